"""Examples: arrays by the names of inputs, with targets, whose first axes count the examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.records import dataclass
from lamella.graph.nodes import Tensor
from lamella.train.data.batches import IGNORED, TARGETS, Batch, Rows

TARGET_NAMES = ("targets", "target", "labels", "label", "y")
"""What data call what is aimed at."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs and targets side by side."""

    inputs: Mapping[str, Array]
    targets: Array
    kinds: Mapping[str, np.dtype[np.generic]]
    """The type in which the model takes each input."""
    source: str
    classes: int | None = None
    """How many classes the model tells apart; None where its graph does not say."""

    @property
    def size(self) -> int:
        """How many examples there are."""
        return len(self.targets)

    @property
    def tokens(self) -> int:
        """Targets of an example."""
        return max(1, self.targets[:1].size)

    def take(self, rows: Rows) -> Batch:
        """Some examples."""
        given = {
            name: np.ascontiguousarray(array[rows].astype(self.kinds[name]))
            for name, array in self.inputs.items()
        }
        kind = np.int64 if self.targets.dtype.kind in "iub" else self.targets.dtype
        targets = np.ascontiguousarray(self.targets[rows].astype(kind))
        if kind is np.int64 and self.classes is not None:
            self._require_known(targets, self.classes, rows)
        return {**given, TARGETS: targets}

    def _require_known(self, targets: Array, classes: int, rows: Rows) -> None:
        """InputError for a batch without a loss: a class that the model does not know, or nothing to learn."""
        wrong = ((targets < 0) | (targets >= classes)) & (targets != IGNORED)
        if wrong.any():
            first = tuple(int(item[0]) for item in np.nonzero(wrong))
            known = f"the model knows classes 0 to {classes - 1}, and {IGNORED} for what does not count"
            raise InputError(
                f"a target of example {rows[first[0]]} of {self.source} is {targets[first]}; {known}"
            )
        if (targets == IGNORED).all():
            raise InputError(
                f"no target of example {rows[0]} of {self.source}, and of its batch, counts: all are {IGNORED}",
                hint="leave such examples out, or give a larger --batch",
            )

    def describe(self) -> str:
        """One line about the data."""
        return f"{self.size:,} examples of {self.source}"


def make_examples(
    arrays: Mapping[str, Array], ports: Sequence[Tensor], source: str, classes: int | None = None
) -> Examples:
    """Arrays as examples for the inputs of a model; InputError says what does not fit."""
    targets = next((arrays[name] for name in TARGET_NAMES if name in arrays), None)
    held = printable(", ".join(arrays), 200) or "nothing"
    if targets is None:
        hint = f"it holds: {held}; targets are called {' or '.join(TARGET_NAMES)}"
        raise InputError(f"{source} has no targets", hint=hint)
    missing = next((item.name for item in ports if item.name not in arrays), None)
    if missing is not None:
        raise InputError(f"{source} has no array for input '{printable(missing)}'", hint=f"it holds: {held}")
    for item in ports:
        _require_fit(item, arrays[item.name], targets, source)
    kinds = {item.name: np.dtype(numpy_dtype(item.element)) for item in ports}
    return Examples({item.name: arrays[item.name] for item in ports}, targets, kinds, source, classes)


def _require_fit(port: Tensor, array: Array, targets: Array, source: str) -> None:
    """The array has the axes of the input, and as many examples as there are targets."""
    name = printable(port.name)
    wanted = port.shape[1:]
    fits = array.ndim == len(port.shape) > 0 and all(
        not isinstance(extent, int) or extent == size
        for extent, size in zip(wanted, array.shape[1:], strict=True)
    )
    if not fits:
        shape = ", ".join(map(str, port.shape))
        raise InputError(f"input '{name}' has the shape [{shape}], the array of {source} {list(array.shape)}")
    if not targets.ndim or len(array) != len(targets):
        count = len(targets) if targets.ndim else "no"
        raise InputError(f"{source} has {len(array)} examples for '{name}' and {count} targets")
    if not port.element.is_float and array.dtype.kind not in "iub":
        raise InputError(f"input '{name}' takes integers, and {source} holds {array.dtype}")
