"""What enters a run: arrays by the names of the inputs, checked against the graph, or random from the seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import refuse_missing
from lamella.backend.reference.draws import SMALL, draw, generator, smallest
from lamella.backend.reference.findings import told
from lamella.backend.reference.nodes.operators import Held
from lamella.backend.reference.storage import Storage
from lamella.backend.reference.symbols import Extents
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dim import Extent, bounds, substitute, symbols
from lamella.base.dtype import ElementType, Kind
from lamella.base.source import Span
from lamella.graph.nodes import Argument, Graph, Pack, Tensor, tensors
from lamella.lang.skriptnd.rules.graphs import INPUT_TYPE, UNKNOWN_INPUT
from lamella.ops.fault import Fault

ENDLESS = 1 << 16
"""Beyond it the bound of an extent is no size that somebody has in mind."""


def list_parts(arguments: Sequence[Argument]) -> tuple[Tensor | Pack, ...]:
    """Inputs or outputs in order; the tensors of a pack of known length stand for themselves."""
    return tuple(part for argument in arguments for part in _parts(argument))


def _parts(argument: Argument) -> Sequence[Tensor | Pack]:
    return (argument,) if isinstance(argument, Pack) else tensors(argument)


def input_type(part: Tensor | Pack) -> str:
    """The type of an input as its graph declares it: `f32[1, 3, n]`."""
    text = f"{part.element.name}[{', '.join(map(str, part.shape))}]"
    return f"{text}..({part.size})" if isinstance(part, Pack) else text


@dataclass(frozen=True, slots=True)
class Inputs:
    """Fills the inputs of one call; `place` tells where a name is declared."""

    graph: Graph
    storage: Storage
    seed: int
    place: Callable[[str], Span]

    def take(
        self,
        given: Mapping[str, npt.ArrayLike],
        extents: Extents,
        picks: Callable[[str], Sequence[Extent]],
        draws: bool = True,
    ) -> dict[str, Held]:
        """The arrays of all inputs; the symbols of their shapes get their values, random ones the largest.

        Inputs that are not given are drawn, or refused where nobody wants that.
        """
        parts = list_parts(self.graph.inputs)
        findings = [self._unknown(name) for name in given if name not in {part.name for part in parts}]
        found: dict[str, Held] = {}
        for part in parts:
            if part.name in given:
                try:
                    with told(part.name, part.origin, self.place(part.name)):
                        found[part.name] = self._enter(part, given[part.name], extents)
                except LamellaError as problem:
                    findings += problem.findings
        if findings:
            raise LamellaError(findings)
        if not draws:
            refuse_missing({part.name: input_type(part) for part in parts if part.name not in found})
        # Integers come last: they may pick elements of what is drawn before them.
        for part in sorted(parts, key=lambda item: item.element.is_integer):
            if part.name not in found:
                with told(part.name, part.origin, self.place(part.name)):
                    found[part.name] = self._draw(part, extents, picks)
        return found

    def _unknown(self, name: str) -> Diagnostic:
        parts = list_parts(self.graph.inputs)
        names = ", ".join(part.name for part in parts) or "none"
        span = self.place(parts[0].name if parts else "")
        return UNKNOWN_INPUT.at(span, name=name, graph=self.graph.name, names=names)

    def _enter(self, part: Tensor | Pack, given: npt.ArrayLike, extents: Extents) -> Held:
        if isinstance(part, Tensor):
            array = self._fit(part, given)
            extents.bind(part.name, part.shape, array.shape)
            return array
        items = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
        found = tuple(self._fit(part, item) for item in items)
        extents.bind_extent(f"the length of '{part.name}'", part.size, len(found))
        for array in found:
            extents.bind(part.name, part.shape, array.shape)
        return found

    def _fit(self, part: Tensor | Pack, given: npt.ArrayLike) -> Array:
        try:
            return fit(as_array(given), part.element, self.storage)
        except Misfit as problem:
            raise Fault(INPUT_TYPE, name=part.name, found=str(problem), element=part.element.name) from None

    def _draw(self, part: Tensor | Pack, extents: Extents, picks: Callable[[str], Sequence[Extent]]) -> Held:
        random = generator(self.seed, part.name)
        shape = [choose_extent(extent, extents) for extent in part.shape]
        if isinstance(part, Pack):
            count = choose_extent(part.size, extents)
            return tuple(draw(random, part.element, shape, self.storage, SMALL) for _ in range(count))
        end = smallest(picks(part.name), extents) if part.element.is_integer else SMALL
        return draw(random, part.element, shape, self.storage, end)


def choose_extent(extent: Extent, extents: Extents) -> int:
    """An extent of a random input: what others fixed, or the largest that is allowed; a small one of endless ones."""
    for item in symbols(extent):
        if item.name not in extents:
            extents[item.name] = item.high if item.high <= ENDLESS else max(item.low, SMALL)
    found = substitute(extent, extents)
    return found if isinstance(found, int) else bounds(found)[1]


# --- arrays of the outside ----------------------------------------------------------------------------------


class Misfit(Exception):
    """Values that a tensor cannot hold; its text says what they are."""


def as_array(given: npt.ArrayLike) -> Array:
    """What a caller gives, as an array."""
    try:
        return np.asarray(given)
    except ValueError:
        raise Misfit("no array: its rows differ in length") from None


def fit(values: Array, element: ElementType, storage: Storage) -> Array:
    """An array in the stored type of a tensor: reals are rounded, integers must fit, kinds do not mix."""
    found = arrays.element_type_of(values.dtype)
    if found is None or _kind(found) != _kind(element):
        raise Misfit(f"an array of {values.dtype}")
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    if native.dtype == storage.dtype(element):
        return native if _is_fixed(native) else np.array(native, order="C")
    if element.is_float:
        return native.astype(storage.dtype(element)) if storage.wide else arrays.cast(native, element)
    wide = native if native.dtype == np.uint64 else native.astype(np.int64)
    low, high = (int(wide.min()), int(wide.max())) if wide.size else (0, 0)
    if low < element.minimum or high > element.maximum:
        raise Misfit(f"the number {low if low < element.minimum else high}")
    return arrays.cast(wide, element)


def _is_fixed(values: Array) -> bool:
    """Whether an array keeps its numbers without a copy: its memory is its own, and nobody may write there."""
    flags = values.flags
    return flags.owndata and flags.c_contiguous and flags.aligned and not flags.writeable


def _kind(element: ElementType) -> str:
    if element.is_float:
        return "real"
    return "int" if element.is_integer else element.kind.value if element.kind is Kind.BOOL else element.name
