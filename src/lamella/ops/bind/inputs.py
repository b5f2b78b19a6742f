"""The inputs of one call: tensors, packs of them, scalars that stand for tensors, and null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lamella.base.affine import Affine
from lamella.base.diagnostic import Label
from lamella.base.dim import Dim, Extent
from lamella.base.errors import Found
from lamella.lang.skriptnd.rules.composition import ARGUMENT_MISSING, ARGUMENT_PACK
from lamella.lang.skriptnd.rules.invocation import (
    FREE_EXTENT,
    NO_VALUE,
    RANK_MISMATCH,
    UNDECIDED,
    UNEQUAL_RANKS,
)
from lamella.ops.bind.plan import ExtentPlan, Measure, ParameterPlan
from lamella.ops.bind.state import CallBinding, TypeBinder, ValueOrigin, as_value, describe
from lamella.ops.fault import Fault
from lamella.ops.formula import Term
from lamella.ops.instance import Argument, Fill, Repeated, Shape, Single
from lamella.ops.scalars.values import SCALARS, expect_count, expect_extent, expect_known, show

# --- the symbols of a declared shape from the shapes of tensors ---------------------------------------------


class ArgumentTensors(NamedTuple):
    """The tensors of one argument: their shapes, and the length of the pack where only the run tells it."""

    items: Sequence[object]
    shapes: Sequence[Shape]
    size: Dim | None = None


class ShapeBinder:
    """Binds declared shapes in one call."""

    def __init__(self, binding: CallBinding) -> None:
        self.binding = binding
        self.scope = binding.scope

    def bind(self, parameter: ParameterPlan, tensors: ArgumentTensors) -> None:
        """A declared shape to the shapes of its tensors."""
        rank = len(tensors.shapes[0])
        for shape in tensors.shapes:
            if len(shape) != rank:
                details = {"name": parameter.name, "first": show(tensors.shapes[0]), "other": show(shape)}
                raise self.binding.problem(UNEQUAL_RANKS, (), **details)
        if parameter.type.rank:
            place = ValueOrigin(parameter, "the rank of", parameter.parameter.span, tensors.items[0])
            self.binding.set(parameter.type.rank, rank, place)
        if parameter.extents is None:
            return
        axis = 0
        for extent, length in zip(parameter.extents, self._lengths(parameter, tensors), strict=True):
            place = ValueOrigin(parameter, "dimensions of", extent.span, tensors.items[0], axis)
            if extent.packed:
                self._bind_packed(extent, length, tensors, place)
            elif length:
                self._bind_single(extent, tensors, place)
            axis += length

    # --- how many dimensions each item takes ----------------------------------------------------------------

    def _lengths(self, parameter: ParameterPlan, tensors: ArgumentTensors) -> Sequence[int]:
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

    def _wrong_rank(
        self, parameter: ParameterPlan, tensors: ArgumentTensors, total: int, more: bool
    ) -> Found:
        item, shape = tensors.items[0], tensors.shapes[0]
        details = {
            "name": parameter.name,
            "declared": " ".join(parameter.type.span.text.split()),
            "expected": f"at least {total}" if more else str(total),
            "given": describe(item),
            "rank": len(shape),
        }
        return self.binding.problem(
            RANK_MISMATCH, [Label(parameter.parameter.span, "declared here")], **details
        )

    def bind_length(
        self, parameter: ParameterPlan, extent: ExtentPlan, length: int, place: ValueOrigin
    ) -> None:
        """The length of a packed extent; the rank it tells must not be negative."""
        measure = extent.length
        if measure is None:
            return
        deduced = self.binding.is_deduced(measure)
        self.binding.bind(measure, length, replace(place, what="the rank of", axis=None))
        symbol = self.scope[measure.symbol or ""] if deduced else 0
        if isinstance(symbol, int) and symbol < 0:
            details = {
                "name": parameter.name,
                "declared": " ".join(parameter.type.span.text.split()),
                "expected": f"at least {measure.form.constant if measure.form else 0}",
                "given": str(place) if place.tensor is None else describe(place.tensor),
                "rank": length,
            }
            raise self.binding.problem(RANK_MISMATCH, [Label(extent.span, "declared here")], **details)

    # --- extents --------------------------------------------------------------------------------------------

    def _bind_single(self, extent: ExtentPlan, tensors: ArgumentTensors, place: ValueOrigin) -> None:
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
                place
                if item is place.tensor
                else ValueOrigin(place.parameter, place.what, place.span, item, axis)
            )
            self.binding.bind(measure, shape[axis], here)

    def _keep_extents(
        self, extent: ExtentPlan, count: int, tensors: ArgumentTensors, place: ValueOrigin
    ) -> None:
        """An extent that states its upper bound keeps it, and one that is said to be static is known."""
        if extent.bound is None and not extent.static:
            return
        axis = place.axis or 0
        for item, shape in zip(tensors.items, tensors.shapes, strict=True):
            for number, value in enumerate(shape[axis : axis + count]):
                here = ValueOrigin(place.parameter, place.what, place.span, item, axis + number)
                if extent.static and isinstance(value, Dim):
                    raise Fault(UNDECIDED, what=str(here), value=show(value)).at(self.binding.span)
                if extent.bound is not None:
                    self.binding.keep_bound(extent.value, extent.bound(self.scope), value, here)

    def _bind_spread(self, measure: Measure, values: Shape, size: Dim | None, place: ValueOrigin) -> None:
        """One extent for each tensor of the pack."""
        if not self.binding.is_deduced(measure):
            self._compare_all(measure, values, place)
            return
        solved = tuple(self.binding.solve(measure, value, place) for value in values)
        pack = solved if size is None else Repeated(solved[0], size)
        self.binding.set(
            measure.symbol or "", pack, ValueOrigin(place.parameter, f"{place}: items of", place.span)
        )

    def _bind_packed(
        self, extent: ExtentPlan, length: int, tensors: ArgumentTensors, place: ValueOrigin
    ) -> None:
        if extent.length is not None and self.binding.is_deduced(extent.length):
            self.bind_length(place.parameter, extent, length, place)
        self._keep_extents(extent, length, tensors, place)
        if extent.value is None:
            return
        flag = extent.length is not None and type(self.binding.value(extent.length)) is bool
        axis = place.axis or 0
        for item, shape in zip(tensors.items, tensors.shapes, strict=True):
            here = ValueOrigin(place.parameter, place.what, place.span, item, axis)
            self._bind_part(extent.value, shape[axis : axis + length], flag, here)

    def _bind_part(self, measure: Measure, part: Shape, flag: bool, place: ValueOrigin) -> None:
        """Some dimensions of a tensor: a pack of extents, or one that is there or not."""
        if flag:
            if part:
                self.binding.bind(measure, part[0], place)
            else:
                self.binding.set_null(measure)
        elif self.binding.is_deduced(measure):
            plain = measure.form == Affine(0, ((measure.symbol, 1),))
            solved = part if plain else tuple(self.binding.solve(measure, n, place) for n in part)
            self.binding.set(measure.symbol or "", solved, place)
        else:
            self._compare_all(measure, part, place)

    def _compare_all(self, measure: Measure, values: Shape, place: ValueOrigin) -> None:
        expected = self.binding.value(measure)
        if isinstance(expected, Repeated):
            expected = (expected.item,) * len(values)
        if expected == values:
            return
        items = expected if isinstance(expected, tuple) else (expected,) * len(values)
        if len(items) != len(values):
            details = {"name": place.parameter.name, "declared": measure.text, "expected": len(items)}
            label = Label(measure.span, "declared here")
            raise self.binding.problem(RANK_MISMATCH, [label], **details, given=place, rank=len(values))
        for index, (item, value) in enumerate(zip(items, values, strict=True)):
            self.binding.compare(measure, item, value, place, index)


class InputBinder:
    """Binds the inputs of one call in the binding order of the definition."""

    def __init__(self, binding: CallBinding, types: TypeBinder) -> None:
        self.binding = binding
        self.types = types
        self.scope = binding.scope
        self.shapes = ShapeBinder(binding)

    def bind_all(self, arguments: list[Argument]) -> None:
        """All inputs; scalars whose shape others must tell come later, and defaults made of other values last.

        The arguments are completed by such defaults.
        """
        names = [item.name for item in self.binding.plan.inputs]
        given = dict(zip(names, arguments, strict=True))
        later: list[ParameterPlan] = []
        last: list[ParameterPlan] = []
        for parameter in self.binding.plan.order:
            argument = given[parameter.name]
            if argument is None and parameter.default is not None:
                last.append(parameter)
            elif isinstance(argument, SCALARS) and not parameter.packed and self._is_free(parameter):
                later.append(parameter)
            else:
                self._bind_before(parameter, argument, [(item, given[item.name]) for item in later])
        for parameter in later:
            self.bind(parameter, given[parameter.name])
        for parameter in last:
            argument = default_of(self.binding, parameter)
            arguments[names.index(parameter.name)] = argument
            self.bind(parameter, argument)

    def _bind_before(
        self, parameter: ParameterPlan, argument: Argument, waiting: Sequence[tuple[ParameterPlan, Argument]]
    ) -> None:
        """One input; where it lacks an extent that a scalar cannot tell, the scalar is to blame."""
        try:
            self.bind(parameter, argument)
        except Found as problem:
            if waiting and problem.findings[0].code == NO_VALUE.code:
                self.bind(*waiting[0])
            raise

    def bind(self, parameter: ParameterPlan, argument: Argument) -> None:
        """One input."""
        if argument is None:
            self._bind_null(parameter)
        elif parameter.packed:
            self._bind_pack(parameter, argument)
        elif isinstance(argument, SCALARS):
            self.scope[parameter.name] = self._fill(parameter, argument)
        else:
            shape = getattr(argument, "shape", None)
            if not isinstance(shape, tuple) or size_of(argument) is not None:
                raise self._wrong_kind(parameter, "a tensor", argument)
            self.scope[parameter.name] = argument
            self.shapes.bind(parameter, ArgumentTensors((argument,), (shape,)))

    def _bind_null(self, parameter: ParameterPlan) -> None:
        """An input that is not there."""
        if not parameter.type.optional:
            label = Label(parameter.parameter.span, "declared here")
            raise self.binding.problem(
                ARGUMENT_MISSING, [label], name=self.binding.name, input=parameter.name
            )
        self.scope[parameter.name] = None
        for extent in parameter.extents or ():
            self.binding.set_null(extent.value)
            self.binding.set_null(extent.length)
        self.binding.set_null(parameter.length)
        if parameter.type.rank:
            self.scope.setdefault(parameter.type.rank, None)

    def _wrong_kind(self, parameter: ParameterPlan, expected: str, argument: object) -> Found:
        given = "a scalar" if isinstance(argument, SCALARS) else "a tensor"
        if isinstance(argument, tuple) or size_of(argument) is not None:
            given = "a pack"
        label = Label(parameter.parameter.span, "declared here")
        details = {"name": self.binding.name, "input": parameter.name, "left": expected, "right": given}
        return self.binding.problem(ARGUMENT_PACK, [label], **details)

    # --- packs ----------------------------------------------------------------------------------------------

    def _bind_pack(self, parameter: ParameterPlan, argument: object) -> None:
        size = size_of(argument)
        if not isinstance(argument, tuple):
            if size is None:
                raise self._wrong_kind(parameter, "a pack of tensors", argument)
            self._bind_length(parameter, size)
            self.scope[parameter.name] = argument
            self.shapes.bind(parameter, ArgumentTensors((argument,), (getattr(argument, "shape", ()),), size))
            return
        self._bind_length(parameter, len(argument))
        items = tuple(self._filled(parameter, item) for item in argument)
        self.scope[parameter.name] = items
        if items:
            self.shapes.bind(
                parameter, ArgumentTensors(items, [getattr(item, "shape", ()) for item in items])
            )
        else:
            self._bind_empty(parameter)

    def _bind_length(self, parameter: ParameterPlan, length: Extent) -> None:
        place = ValueOrigin(parameter, "the length of", parameter.parameter.span)
        if (
            parameter.type.pack is not None
            and parameter.type.pack.control == "static"
            and isinstance(length, Dim)
        ):
            raise Fault(UNDECIDED, what=str(place), value=length).at(self.binding.span)
        if parameter.bound is not None:
            self.binding.keep_bound(parameter.length, parameter.bound(self.scope), length, place)
        if parameter.length is not None:
            self.binding.bind(parameter.length, length, place)

    def _filled(self, parameter: ParameterPlan, item: object) -> object:
        """A scalar in a pack of tensors is a tensor without dimensions."""
        if isinstance(item, SCALARS):
            return self._filling(parameter, (), item)
        return item

    def _bind_empty(self, parameter: ParameterPlan) -> None:
        """A pack without tensors tells only that there are none."""
        place = ValueOrigin(parameter, "the empty pack for", parameter.parameter.span)
        for extent in parameter.extents or ():
            if extent.spread and extent.value is not None and self.binding.is_deduced(extent.value):
                self.binding.set(extent.value.symbol or "", (), place)

    # --- scalars --------------------------------------------------------------------------------------------

    def _is_free(self, parameter: ParameterPlan) -> bool:
        """Whether a shape has a single extent that nothing tells yet."""
        single = [extent.value for extent in parameter.extents or () if not extent.packed]
        return any(measure is not None and not self.binding.knows(measure) for measure in single)

    def _fill(self, parameter: ParameterPlan, value: object) -> Fill:
        """A scalar has the shape that others tell; a packed extent that nobody tells is empty."""
        if not isinstance(value, SCALARS):
            raise self._wrong_kind(parameter, "a tensor", value)
        rank, place = parameter.type.rank, ValueOrigin(parameter, "the rank of", parameter.parameter.span)
        if rank:
            self.binding.set(rank, 0, place)
        shape: list[Extent] = []
        for extent in parameter.extents or ():
            shape += self._known_extents(parameter, extent)
        if rank:
            self.binding.set(rank, len(shape), place)
        return self._filling(parameter, tuple(shape), value)

    def _filling(self, parameter: ParameterPlan, shape: Shape, value: Single | Term) -> Fill:
        element = self.types.element_of(parameter)
        self.binding.keep_range(parameter.name, element, value)
        return Fill(parameter.name, element, shape, value)

    def _known_extents(self, parameter: ParameterPlan, extent: ExtentPlan) -> Sequence[Extent]:
        measure = extent.value
        if measure is None or not self.binding.knows(measure):
            if extent.packed:
                self._bind_nothing(parameter, extent)
                return ()
            details = {"name": parameter.name, "symbol": measure.text if measure else "~"}
            raise self.binding.problem(FREE_EXTENT, [Label(extent.span, "declared here")], **details)
        value = self.binding.value(measure)
        if value is None:
            return ()
        if isinstance(value, tuple):
            return [expect_extent(item) for item in value]
        count = 1
        if extent.packed:
            length = None if extent.length is None else self.binding.value(extent.length)
            most = self.binding.plan.limits.max_rank
            count = 0 if length is None else expect_count(length, "the length of a packed extent", most)
        return [expect_extent(value)] * count

    def _bind_nothing(self, parameter: ParameterPlan, extent: ExtentPlan) -> None:
        """A packed extent that nothing tells: it has no dimensions."""
        place = ValueOrigin(parameter, "the scalar for", extent.span)
        if extent.length is not None:
            self.shapes.bind_length(parameter, extent, 0, place)
        if extent.value is not None and self.binding.is_deduced(extent.value):
            self.binding.set(extent.value.symbol or "", (), place)


def default_of(binding: CallBinding, parameter: ParameterPlan) -> Argument:
    """What an input is where a call leaves it out."""
    return None if parameter.default is None else as_value(parameter.default(binding.scope))


def size_of(argument: object) -> Dim | None:
    """The length of a pack that only the run tells."""
    size = getattr(argument, "size", None)
    return size if isinstance(size, Dim) else None
