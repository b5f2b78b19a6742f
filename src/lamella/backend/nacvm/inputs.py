"""What enters a run of a file: arrays by the names of the inputs, checked, or random from the seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lamella.backend.executor.inputs import SMALL, as_array, draw, fit, generator, smallest
from lamella.backend.formula.storage import Storage, known_shape
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dim import Extent
from lamella.base.errors import Malformed
from lamella.base.source import NOWHERE, Span
from lamella.graph.nodes import Tensor
from lamella.lang.nac.rules.running import INPUT_ELEMENTS, INPUT_NAME, INPUT_SHAPE

Picks = Callable[[], Mapping[str, Sequence[Extent]]]
"""For integer inputs that are indices, the extents that they pick from, by the names of tensors."""


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """An input: its instruction, the name that callers use, the tensor that it is."""

    index: int
    name: str
    tensor: Tensor
    span: Span

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return known_shape(self.tensor.shape, {})

    @property
    def type(self) -> str:
        """Its element type and shape, in words."""
        return f"{self.tensor.element}{list(self.shape)}"


def take_inputs(
    entries: Sequence[ProgramInput],
    given: Mapping[str, npt.ArrayLike],
    storage: Storage,
    seed: int,
    picks: Picks,
) -> list[Array]:
    """The arrays of all inputs in order; what is wrong with those that are given is told at once."""
    found: list[Array | None] = []
    findings = _unknown(entries, given)
    for entry in entries:
        array = _enter(entry, given[entry.name], storage) if entry.name in given else None
        found.append(None if isinstance(array, Diagnostic) else array)
        findings += [array] if isinstance(array, Diagnostic) else []
    if findings:
        raise LamellaError(findings)
    pairs = zip(entries, found, strict=True)
    return [_draw(entry, storage, seed, picks) if array is None else array for entry, array in pairs]


def _unknown(entries: Sequence[ProgramInput], given: Mapping[str, npt.ArrayLike]) -> list[Diagnostic]:
    known = {entry.name for entry in entries}
    if given.keys() <= known:
        return []
    span = entries[0].span if entries else NOWHERE
    names = ", ".join(entry.name for entry in entries) or "none"
    return [INPUT_NAME.at(span, name=name, names=names) for name in given if name not in known]


def _enter(entry: ProgramInput, given: npt.ArrayLike, storage: Storage) -> Array | Diagnostic:
    try:
        array = as_array(given)
        if array.shape != entry.shape:
            return INPUT_SHAPE.at(entry.span, name=entry.name, type=entry.type, found=list(array.shape))
        return fit(array, entry.tensor.element, storage)
    except Malformed as misfit:
        element = entry.tensor.element.name
        return INPUT_ELEMENTS.at(entry.span, name=entry.name, element=element, found=str(misfit))


def _draw(entry: ProgramInput, storage: Storage, seed: int, picks: Picks) -> Array:
    element = entry.tensor.element
    below = smallest(picks().get(entry.tensor.name, ()), {}) if element.is_integer else SMALL
    return np.asarray(draw(generator(seed, entry.name), element, entry.shape, storage, below))
