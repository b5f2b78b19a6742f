"""The symbols of a declared shape from the shapes of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lamella.base.diagnostic import Label
from lamella.base.dim import Dim
from lamella.lang.skriptnd.rules.invocation import RANK_MISMATCH, UNDECIDED, UNEQUAL_RANKS
from lamella.ops.bind.plan import ExtentPlan, Measure, ParameterPlan
from lamella.ops.bind.state import Binding, Place, describe
from lamella.ops.instance import Repeated, Shape
from lamella.ops.problem import Fault, Problem
from lamella.ops.scalars.values import expect_known, show


class Tensors(NamedTuple):
    """The tensors of one argument: their shapes, and the length of the pack where only the run tells it."""

    items: Sequence[object]
    shapes: Sequence[Shape]
    size: Dim | None = None


class Shapes:
    """Binds declared shapes in one call."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.scope = binding.scope

    def bind(self, parameter: ParameterPlan, tensors: Tensors) -> None:
        """A declared shape to the shapes of its tensors."""
        rank = len(tensors.shapes[0])
        for shape in tensors.shapes:
            if len(shape) != rank:
                told = {"name": parameter.name, "first": show(tensors.shapes[0]), "other": show(shape)}
                raise self.binding.problem(UNEQUAL_RANKS, (), **told)
        if parameter.type.rank:
            place = Place(parameter, "the rank of", parameter.parameter.span, tensors.items[0])
            self.binding.set(parameter.type.rank, rank, place)
        if parameter.extents is None:
            return
        axis = 0
        for extent, length in zip(parameter.extents, self._lengths(parameter, tensors), strict=True):
            place = Place(parameter, "dimensions of", extent.span, tensors.items[0], axis)
            if extent.packed:
                self._bind_packed(extent, length, tensors, place)
            elif length:
                self._bind_single(extent, tensors, place)
            axis += length

    # --- how many dimensions each item takes ----------------------------------------------------------------

    def _lengths(self, parameter: ParameterPlan, tensors: Tensors) -> Sequence[int]:
        rank, found = len(tensors.shapes[0]), [self._length(extent) for extent in parameter.extents or ()]
        known = [length for length in found if length is not None]
        total, is_open = sum(known), len(known) < len(found)
        if total > rank or (not is_open and total < rank) or min(known, default=0) < 0:
            raise self._wrong_rank(parameter, tensors, total, is_open)
        lengths: list[int] = []
        for length in found:
            lengths.append(rank - total if length is None else length)
            total = rank if length is None else total
        return lengths

    def _length(self, extent: ExtentPlan) -> int | None:
        """The number of dimensions of one item; None where the rank tells it."""
        if not extent.packed:
            return 0 if self._is_absent(extent) else 1
        if extent.length is not None:
            if self.binding.is_deduced(extent.length) or not self.binding.knows(extent.length):
                return None
            length = self.binding.value(extent.length)
            return 0 if length is None else expect_known(length, "the length of a packed extent")
        measure = extent.value
        if measure is None or self.binding.is_deduced(measure) or not self.binding.knows(measure):
            return None
        pack = self.binding.value(measure)
        return len(pack) if isinstance(pack, tuple) else None

    def _is_absent(self, extent: ExtentPlan) -> bool:
        """Whether a single extent is null; such an extent vanishes."""
        measure = extent.value
        if measure is None or self.binding.is_deduced(measure) or not self.binding.knows(measure):
            return False
        return self.binding.value(measure) is None

    def _wrong_rank(self, parameter: ParameterPlan, tensors: Tensors, total: int, more: bool) -> Problem:
        item, shape = tensors.items[0], tensors.shapes[0]
        told = {
            "name": parameter.name,
            "declared": " ".join(parameter.type.span.text.split()),
            "expected": f"at least {total}" if more else str(total),
            "given": describe(item),
            "rank": len(shape),
        }
        return self.binding.problem(RANK_MISMATCH, [Label(parameter.parameter.span, "declared here")], **told)

    def bind_length(self, parameter: ParameterPlan, extent: ExtentPlan, length: int, place: Place) -> None:
        """The length of a packed extent; the rank it tells must not be negative."""
        measure = extent.length
        if measure is None:
            return
        deduced = self.binding.is_deduced(measure)
        self.binding.bind(measure, length, replace(place, what="the rank of", axis=None))
        symbol = self.scope[measure.symbol or ""] if deduced else 0
        if isinstance(symbol, int) and symbol < 0:
            told = {
                "name": parameter.name,
                "declared": " ".join(parameter.type.span.text.split()),
                "expected": f"at least {measure.form.offset if measure.form else 0}",
                "given": str(place) if place.tensor is None else describe(place.tensor),
                "rank": length,
            }
            raise self.binding.problem(RANK_MISMATCH, [Label(extent.span, "declared here")], **told)

    # --- extents --------------------------------------------------------------------------------------------

    def _bind_single(self, extent: ExtentPlan, tensors: Tensors, place: Place) -> None:
        measure, axis = extent.value, place.axis or 0
        self._keep_extents(extent, 1, tensors, place)
        if measure is None:
            return
        if extent.spread:
            values = tuple(shape[axis] for shape in tensors.shapes)
            self._bind_spread(measure, values, tensors.size, place)
            return
        for item, shape in zip(tensors.items, tensors.shapes, strict=True):
            here = (
                place if item is place.tensor else Place(place.parameter, place.what, place.span, item, axis)
            )
            self.binding.bind(measure, shape[axis], here)

    def _keep_extents(self, extent: ExtentPlan, count: int, tensors: Tensors, place: Place) -> None:
        """An extent that states its upper bound keeps it, and one that is said to be static is known."""
        if extent.bound is None and not extent.static:
            return
        axis = place.axis or 0
        for item, shape in zip(tensors.items, tensors.shapes, strict=True):
            for number, value in enumerate(shape[axis : axis + count]):
                here = Place(place.parameter, place.what, place.span, item, axis + number)
                if extent.static and isinstance(value, Dim):
                    raise Fault(UNDECIDED, what=str(here), value=show(value)).at(self.binding.span)
                if extent.bound is not None:
                    self.binding.keep_bound(extent.value, extent.bound(self.scope), value, here)

    def _bind_spread(self, measure: Measure, values: Shape, size: Dim | None, place: Place) -> None:
        """One extent for each tensor of the pack."""
        if not self.binding.is_deduced(measure):
            self._compare_all(measure, values, place)
            return
        solved = tuple(self.binding.solve(measure, value, place) for value in values)
        pack = solved if size is None else Repeated(solved[0], size)
        self.binding.set(measure.symbol or "", pack, Place(place.parameter, f"{place}: items of", place.span))

    def _bind_packed(self, extent: ExtentPlan, length: int, tensors: Tensors, place: Place) -> None:
        if extent.length is not None and self.binding.is_deduced(extent.length):
            self.bind_length(place.parameter, extent, length, place)
        self._keep_extents(extent, length, tensors, place)
        if extent.value is None:
            return
        flag = extent.length is not None and type(self.binding.value(extent.length)) is bool
        axis = place.axis or 0
        for item, shape in zip(tensors.items, tensors.shapes, strict=True):
            here = Place(place.parameter, place.what, place.span, item, axis)
            self._bind_part(extent.value, shape[axis : axis + length], flag, here)

    def _bind_part(self, measure: Measure, part: Shape, flag: bool, place: Place) -> None:
        """Some dimensions of a tensor: a pack of extents, or one that is there or not."""
        if flag:
            if part:
                self.binding.bind(measure, part[0], place)
            else:
                self.binding.set_null(measure)
        elif self.binding.is_deduced(measure):
            plain = measure.form is not None and measure.form[1:] == (1, 0)
            solved = part if plain else tuple(self.binding.solve(measure, n, place) for n in part)
            self.binding.set(measure.symbol or "", solved, place)
        else:
            self._compare_all(measure, part, place)

    def _compare_all(self, measure: Measure, values: Shape, place: Place) -> None:
        expected = self.binding.value(measure)
        if isinstance(expected, Repeated):
            expected = (expected.item,) * len(values)
        if expected == values:
            return
        items = expected if isinstance(expected, tuple) else (expected,) * len(values)
        if len(items) != len(values):
            told = {"name": place.parameter.name, "declared": measure.text, "expected": len(items)}
            label = Label(measure.span, "declared here")
            raise self.binding.problem(RANK_MISMATCH, [label], **told, given=place, rank=len(values))
        for index, (item, value) in enumerate(zip(items, values, strict=True)):
            self.binding.compare(measure, item, value, place, index)
