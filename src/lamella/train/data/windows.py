"""Token streams cut into windows: inputs that follow each other, and the same tokens one place on as targets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.records import dataclass
from lamella.train.data.batches import IGNORED, TARGETS, Batch, Rows

MOST_SEEN = 1 << 28
"""Tokens that are looked at before the first step."""
SEEN_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class TokenStream:
    """Tokens in a row, and which of them are learnt."""

    tokens: Array
    """Integers, one axis; may lie in a mapped file."""
    learnt: npt.NDArray[np.bool_] | None = None
    """Which tokens are targets; None for all."""
    source: str = ""
    """Where they come from, in words."""
    check: Callable[[], None] | None = None
    """Refuses a mapped file that was cut meanwhile."""


@dataclass(frozen=True, slots=True)
class TokenWindows:
    """Windows of `length` + 1 tokens, of which window k begins at token k · `length`.

    So the inputs of windows follow each other without a gap, and every token but the first is a target once.
    """

    stream: TokenStream
    length: int
    port: str
    """The input that takes tokens."""
    vocabulary: int | None = None
    """How many tokens the model knows; None where its graph does not say."""
    kept: Rows | None = None
    """The windows in which something is learnt; None where that is all of them."""

    @property
    def size(self) -> int:
        """How many windows there are."""
        return window_count(self.stream, self.length) if self.kept is None else len(self.kept)

    @property
    def tokens(self) -> int:
        """Targets of a window."""
        return self.length

    def take(self, rows: Rows) -> Batch:
        """Some windows as inputs and targets."""
        if self.stream.check is not None:
            self.stream.check()
        rows = rows if self.kept is None else self.kept[rows]
        places = rows[:, None] * self.length + np.arange(self.length + 1)
        found = np.asarray(self.stream.tokens[places]).astype(np.int64)
        self._require_known(found, rows)
        targets = found[:, 1:].copy()
        if self.stream.learnt is not None:
            targets[~self.stream.learnt[places[:, 1:]]] = IGNORED
        return {self.port: np.ascontiguousarray(found[:, :-1]), TARGETS: targets}

    def describe(self) -> str:
        """One line about the data."""
        left = window_count(self.stream, self.length) - self.size
        rest = f" ({left:,} more hold nothing to learn)" if left else ""
        return (
            f"{len(self.stream.tokens):,} tokens of {self.stream.source}, "
            f"{self.size:,} windows of {self.length} + 1{rest}"
        )

    def require_known(self) -> None:
        """InputError where a token is none of the model's: a run should not end at it after hours.

        Of more tokens than can be looked at in a second the rest is looked at when it is taken.
        """
        tokens = self.stream.tokens[:MOST_SEEN]
        for start in range(0, len(tokens), SEEN_AT_ONCE):
            part = np.asarray(tokens[start : start + SEEN_AT_ONCE])
            wrong = np.nonzero(self._is_unknown(part))[0]
            if len(wrong):
                raise self._unknown(start + int(wrong[0]), int(part[wrong[0]]))

    def _require_known(self, found: npt.NDArray[np.int64], rows: Rows) -> None:
        wrong = self._is_unknown(found)
        if wrong.any():
            row, place = (int(item[0]) for item in np.nonzero(wrong))
            raise self._unknown(int(rows[row]) * self.length + place, int(found[row, place]))

    def _is_unknown(self, found: Array) -> npt.NDArray[np.bool_]:
        return (found < 0) if self.vocabulary is None else (found < 0) | (found >= self.vocabulary)

    def _unknown(self, place: int, token: int) -> InputError:
        most = self.vocabulary
        known = "" if most is None else f"; the model knows tokens 0 to {most - 1}"
        hint = "the data were made for another tokenizer, or for another model"
        return InputError(f"token {place} of {self.stream.source} is {token}{known}", hint=hint)


def window_count(stream: TokenStream, length: int) -> int:
    """How many windows of a length there are in a stream."""
    return max(0, len(stream.tokens) - 1) // length


def learnt_windows(stream: TokenStream, length: int) -> Rows | None:
    """The windows in which some target counts; None for all.

    Others are left out: a batch of them alone would have no mean loss.
    """
    if stream.learnt is None:
        return None
    count = window_count(stream, length)
    found = np.flatnonzero(stream.learnt[1 : count * length + 1].reshape(count, length).any(axis=1))
    return None if len(found) == count else found


def require_stream(array: Array, source: str) -> None:
    """InputError for an array that is no row of tokens."""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        hint = (
            "tokens are integers along one axis; several arrays, by the names of inputs, lie in a .npz file"
        )
        raise InputError(f"{source} holds {array.dtype} {list(array.shape)}, no row of tokens", hint=hint)
