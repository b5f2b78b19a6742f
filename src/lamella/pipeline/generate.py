"""Autoregressive generation: prefill, then one token at a time, for any model that rates the next token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.suggest import list_known
from lamella.graph.model import Model
from lamella.graph.nodes import tensors
from lamella.pipeline.accuracy import AccuracyReport
from lamella.pipeline.decoding import Rate, Sampling
from lamella.pipeline.languages import Executable
from lamella.pipeline.options import Options

LARGEST = 2**31
MOST_STOPS = 64
"""Tokens that end a text; a config that names more is not believed."""


@dataclass(frozen=True, slots=True)
class Generated:
    """The tokens that follow a prompt, their text where there is a tokenizer, and what computed them."""

    tokens: list[int]
    executable: Executable
    text: str = ""
    findings: tuple[Diagnostic, ...] = ()
    """What there is to say about the weights."""
    accuracy: AccuracyReport | None = None
    """How far scores lie from those of full precision, where it is reduced."""

    __repr__ = show_line
    _repr_html_ = show_html

    def told(self) -> list[Diagnostic]:
        """What there is to say about the weights, and about what ran: that it was not machine code, say."""
        return list(dict.fromkeys((*self.findings, *self.executable.findings)))

    def _card(self) -> Card:
        """What was generated."""
        text = (("text", repr(self.text)),) if self.text else ()
        return Card("generated", "", (("tokens", f"{len(self.tokens)}"), ("", f"{self.tokens}"), *text))


def sampling_of(options: Options) -> Sampling:
    """How the options want tokens chosen."""
    return Sampling(options.max_tokens, options.temperature, options.start_seed)


def read_tokens(text: str) -> list[int]:
    """Numbers of tokens as a user writes them: `1,5,7`."""
    words = [word.strip() for word in text.split(",")]
    if not all(
        word.isascii() and word.isdigit() and len(word) <= 10 and int(word) < LARGEST for word in words
    ):
        raise InputError(f"'{text[:80]}' is no list of tokens", hint="write numbers with commas: 1,5,7")
    return [int(word) for word in words]


def stop_tokens(config: Mapping[str, object]) -> Iterator[int]:
    """The tokens at which a text ends, by the config of a checkpoint."""
    named = config.get("eos_token_id")
    for item in (named if isinstance(named, list) else [named])[:MOST_STOPS]:
        if isinstance(item, int) and not isinstance(item, bool) and abs(item) < 1 << 63:
            yield item


# --- models that are called by the names of their inputs: NAC files and graphs ------------------------------------


@runtime_checkable
class Stateful(Protocol):
    """Something to call with tokens that may keep states, and knows what its inputs are."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""

    def __call__(self, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once."""

    @property
    def state(self) -> Mapping[str, Array]:
        """What is kept between calls, by name."""

    def type_of(self, name: str) -> str:
        """What an input is, as far as it is known."""

    def steers(self, name: str) -> bool:
        """Whether an input may be positions, lengths or a mask."""

    def shape_of(self, name: str) -> tuple[int | None, ...] | None:
        """The extents of an input, None for those that a call decides; None where nothing is known."""


class GraphOfTokens:
    """A compiled graph that knows what its inputs are; one with states keeps them, one without is given all tokens."""

    def __init__(self, executable: Executable, model: Model) -> None:
        self.executable = executable
        self._updated = {item.variable.name: item.variable for item in model.graph.updates}
        self._declared = {item.name: item for given in model.graph.inputs for item in tensors(given)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return self.executable.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return self.executable.outputs

    @property
    def state(self) -> Mapping[str, Array]:
        """What is kept between calls: only that there is something matters here."""
        return {name: np.zeros(0) for name in self._updated}

    def shape_of(self, name: str) -> tuple[int | None, ...] | None:
        """The extents of an input, None for those that a call decides; None where nothing is known."""
        found = self._declared.get(name)
        return (
            None if found is None else tuple(size if isinstance(size, int) else None for size in found.shape)
        )

    def type_of(self, name: str) -> str:
        """What an input is: `i64[1, T]`."""
        found = self._declared[name]
        return f"{found.element}[{', '.join(map(str, found.shape))}]"

    def steers(self, name: str) -> bool:
        """Whether an input may be tokens, positions, lengths or a mask: no real numbers."""
        return name in self._declared and not self._declared[name].element.is_float

    def __call__(self, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once, with integers of the type that the graph wants."""
        given = {name: self._fit(name, np.asarray(item)) for name, item in inputs.items()}
        return self.executable(**given)

    def _fit(self, name: str, array: Array) -> Array:
        found = self._declared.get(name)
        return (
            array
            if found is None or array.dtype.kind not in "iu"
            else array.astype(numpy_dtype(found.element))
        )


def rate_by_names(executable: object, ends: str | None, others: Mapping[str, Array]) -> Rate:
    """How a model rates the next token: by an input and an output, which `ends` names as INPUT=OUTPUT.

    A model that keeps states is given one token in each call; one that keeps none is given all so far.
    """
    if not isinstance(executable, Stateful):
        hint = "run it without --backend, on its virtual machine"
        raise InputError("a NAC file generates tokens only where it keeps its states", hint=hint)
    target, source = _find_ends(executable, ends, others)
    _require_steering(executable, target, others)
    shape = executable.shape_of(target)
    tokens: list[int] = []

    def call(row: Sequence[int]) -> Array:
        return executable(**others, **{target: _array(target, row, shape)})[source]

    def rate(new: Sequence[int]) -> Array:
        if not executable.state:
            tokens.extend(new)
            return _last_row(source, call(tokens))
        for token in new[:-1]:
            call([token])
        return _last_row(source, call(new[-1:]))

    return rate


def _find_ends(executable: Stateful, ends: str | None, others: Mapping[str, Array]) -> tuple[str, str]:
    """The input that takes tokens and the output that rates them: as they are named, else the only ones."""
    if ends is not None:
        target, equals, source = ends.partition("=")
        if not equals or not source or target in others:
            hint = "--ends INPUT=OUTPUT, an input that is not given otherwise"
            raise InputError(f"'{ends[:80]}' names no input and output", hint=hint)
        _require(source, executable.outputs, "output")
        _require(target, executable.inputs, "input")
        return target, source
    inputs = [name for name in executable.inputs if name not in others and executable.steers(name)]
    outputs = executable.outputs
    if len(inputs) != 1 or len(outputs) != 1:
        names = f"inputs {', '.join(inputs) or 'none'}; outputs {', '.join(outputs) or 'none'}"
        raise InputError(
            f"it is not clear which takes tokens and which rates them: {names}",
            hint="say --ends INPUT=OUTPUT",
        )
    return inputs[0], outputs[0]


def _require_steering(executable: Stateful, target: str, given: Mapping[str, Array]) -> None:
    """Integers and masks beside the tokens decide what is computed: drawn at random they would change the tokens."""
    rest = [name for name in executable.inputs if name != target and name not in given]
    missing = [name for name in rest if executable.steers(name)]
    if missing:
        listed = ", ".join(f"'{name[:80]}' ({executable.type_of(name)})" for name in missing)
        hint = " ".join(f"--input {name[:80]}=FILE.npy" for name in missing)
        what = f"input{'s' * (len(missing) > 1)} {listed}"
        raise InputError(f"{what} may steer the model, and so is never random", hint=f"give it: {hint}")


def _require(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        raise InputError(f"there is no {what} '{name[:80]}'", hint=list_known(name, names, f"{what}s are:"))


def _array(name: str, tokens: Sequence[int], shape: tuple[int | None, ...] | None) -> Array:
    """Tokens as an input of one row."""
    rank = 2 if shape is None else len(shape)
    wanted = (*(1,) * (rank - 1), len(tokens)) if rank else ()
    if shape is not None and any(size not in (None, want) for size, want in zip(shape, wanted, strict=True)):
        hint = "one token is given in each call, all so far to a model that keeps no states"
        raise InputError(f"input '{name[:80]}' has shape {list(shape)}, not {list(wanted)}", hint=hint)
    return np.array(tokens[-1] if not rank else tokens, np.int64).reshape(wanted)


def _last_row(name: str, scores: Array) -> Array:
    if scores.ndim == 0 or scores.size == 0:
        raise InputError(f"output '{name[:80]}' has shape {list(scores.shape)}, and so no row to choose from")
    row: Array = scores.reshape(-1, scores.shape[-1])[-1]
    return row
