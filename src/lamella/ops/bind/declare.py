"""What a call declares: its outputs, constants and variables, with their element types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from lamella.base import dim
from lamella.base.diagnostic import Label
from lamella.base.dim import Dim, Extent
from lamella.base.errors import Found
from lamella.base.limits import LARGEST
from lamella.lang.skriptnd.rules.invocation import (
    BAD_EXTENT,
    NOT_COMPUTABLE,
    TOO_LARGE,
    TOO_MANY_DIMENSIONS,
)
from lamella.lang.skriptnd.rules.names import GRAPH_EXTENT
from lamella.lang.skriptnd.rules.shapes import CONSTANT_LENGTH, CONSTANT_VALUE, PACK_LENGTH_MISSING
from lamella.lang.skriptnd.rules.types import DEFAULT_TYPE, NOT_A_PACK
from lamella.ops.bind.plan import ExtentPlan, ParameterPlan
from lamella.ops.bind.state import CallBinding, TypeBinder, as_element
from lamella.ops.evaluate.packs import pick
from lamella.ops.evaluate.walk import primitive
from lamella.ops.fault import Fault
from lamella.ops.instance import Declared, Repeated, Shape, Single
from lamella.ops.scalars.values import expect_count, expect_extent, expect_known, show, word_of


class DeclarationBinder:
    """Computes the declarations of one call."""

    def __init__(self, binding: CallBinding, types: TypeBinder, named: bool = False) -> None:
        self.binding = binding
        self.types = types
        self.scope = binding.scope
        self.named = named
        """Whether symbols have the names the definition gives them, as those of a graph's inputs have."""

    def declare(self, parameter: ParameterPlan, result: str) -> Declared:
        """A parameter whose shape the definition tells; `result` names the symbols of extents it does not tell."""
        element = self.types.element_of(parameter)
        if not parameter.packed:
            shape = None if parameter.extents is None else self.shape(parameter, result)
            return Declared(parameter.name, element, shape)
        length = self._pack_length(parameter, result)
        if isinstance(length, Dim):
            shape = None if parameter.extents is None else self.shape(parameter, result)
            return Declared(parameter.name, element, shape, size=length)
        if parameter.extents is None:
            return Declared(parameter.name, element, None, ((),) * length)
        items = tuple(self.shape(parameter, f"{result}:{k + 1}", k) for k in range(length))
        return Declared(parameter.name, element, items[0] if items else (), items)

    def _pack_length(self, parameter: ParameterPlan, result: str) -> Extent:
        """How many tensors a packed output has."""
        measure = parameter.length
        if measure is not None and self.binding.knows(measure):
            value = measure.code(self.scope)
            if isinstance(value, Dim):
                return value
            return expect_count(value, f"the length of '{parameter.name}'", self.binding.plan.limits.max_pack)
        if parameter.bound is None:
            label = Label(parameter.parameter.span, "declared here")
            raise self.binding.problem(PACK_LENGTH_MISSING, [label], name=parameter.name)
        symbol = None if measure is None else measure.symbol
        name = symbol if self.named and symbol else f"{result}.size"
        high = self._upper(parameter.bound(self.scope))
        most = self.binding.plan.limits.max_pack
        found = dim.symbol(name, expect_count(high, f"the longest '{parameter.name}'", most))
        if symbol is not None:
            self.scope[symbol] = found
        return found

    @staticmethod
    def _upper(bound: object) -> int:
        if isinstance(bound, Dim):
            return min(dim.bounds(bound)[1], LARGEST)
        high = expect_known(bound, "an upper bound")
        if not 0 <= high <= LARGEST:
            reason = "extents and lengths lie between 0 and 2 ** 63 - 1"
            raise Fault(NOT_COMPUTABLE, what=f"the upper bound {show(high)}", reason=reason)
        return high

    # --- shapes ---------------------------------------------------------------------------------------------

    def shape(self, parameter: ParameterPlan, result: str, item: int = 0) -> Shape:
        """The extents of one tensor; null ones vanish."""
        found: list[Extent] = []
        for extent in parameter.extents or ():
            for value in self._values(parameter, extent, f"{result}.shape", len(found), item):
                found.append(self._checked(parameter, extent, len(found), value))
        self._keep_rank(parameter, len(found))
        return tuple(found)

    def _keep_rank(self, parameter: ParameterPlan, rank: int) -> int:
        """A number of dimensions that a tensor may have."""
        limit = self.binding.plan.limits.max_rank
        if rank > limit:
            raise self.binding.problem(TOO_MANY_DIMENSIONS, name=parameter.name, rank=rank, limit=limit)
        return rank

    def _values(
        self, parameter: ParameterPlan, extent: ExtentPlan, name: str, axis: int, item: int
    ) -> Sequence[object]:
        """The extents that one item of a shape stands for."""
        measure = extent.value
        length = None if extent.length is None else self.binding.value(extent.length)
        most = self.binding.plan.limits.max_pack
        count = 1 if length is None else expect_count(length, "the length of a packed extent", most)
        self._keep_rank(parameter, count)
        if measure is None or ((extent.bound is not None or self.named) and not self.binding.knows(measure)):
            return self._symbols(extent, name, axis, count)
        value = self.binding.value(measure)
        if value is None or (extent.packed and length is False):
            return ()
        if extent.spread:
            return (_spread_item(value, item),)
        if isinstance(value, tuple) and extent.packed:
            return value
        if extent.packed and length is None:
            raise Fault(NOT_A_PACK, what="'..'", text=show(value)).at(extent.span)
        return (value,) * count

    def _symbols(self, extent: ExtentPlan, name: str, axis: int, count: int) -> Sequence[Extent]:
        """New symbols for extents that only the run tells."""
        symbol = None if extent.value is None else extent.value.symbol
        high = self._bound(extent, name)
        labels = [f"{name}[{axis + k}]" for k in range(count)]
        if self.named and symbol:
            labels = [f"{symbol}[{k}]" for k in range(count)] if extent.packed else [symbol]
        found = tuple(dim.symbol(label, high) for label in labels)
        if symbol is not None:
            self.scope[symbol] = found if extent.packed else found[0]
        return found

    def _bound(self, extent: ExtentPlan, name: str) -> int:
        """The largest value of an extent that only the run tells; a graph's input must say it."""
        if extent.bound is not None:
            return self._upper(extent.bound(self.scope))
        if self.named:
            details = {
                "name": name.removesuffix(".shape"),
                "extent": "~" if extent.value is None else extent.value.text,
            }
            raise self.binding.problem(GRAPH_EXTENT, [Label(extent.span, "declared here")], **details)
        return LARGEST

    def _checked(self, parameter: ParameterPlan, extent: ExtentPlan, axis: int, value: object) -> Extent:
        if type(value) is int:
            if 0 <= value <= LARGEST:
                return value
            raise self._bad_extent(parameter, extent, axis, value)
        found = expect_extent(value)
        if dim.bounds(found)[0] < 0:
            problem = self._bad_extent(parameter, extent, axis, value)
            self.binding.require(dim.less_equal(0, found), problem, extent.span)
        return found

    def _bad_extent(self, parameter: ParameterPlan, extent: ExtentPlan, axis: int, value: object) -> Found:
        reason = (
            "extents are not negative" if not isinstance(value, int) or value < 0 else "extents have 63 bits"
        )
        label = Label(extent.span, "computed here")
        values = {"axis": axis, "name": parameter.name, "value": show(value), "reason": reason}
        return self.binding.problem(BAD_EXTENT, [label], **values)

    # --- constants ------------------------------------------------------------------------------------------

    def constant(self, parameter: ParameterPlan) -> tuple[Declared, Single | tuple[Single, ...]]:
        """A constant with its value, or all its values in row-major order."""
        declared = self.declare(parameter, parameter.name)
        if parameter.default is None:
            raise self.binding.problem(CONSTANT_VALUE, name=parameter.name)
        value = (
            parameter.default(self.scope) if not parameter.parameter.bounds else self._per_element(parameter)
        )
        self._check_values(parameter, declared, value)
        if isinstance(value, tuple):
            return declared, tuple([as_element(item, declared.element) for item in value])
        return declared, as_element(value, declared.element)

    def _per_element(self, parameter: ParameterPlan) -> tuple[object, ...]:
        """The value for every combination of the index symbols."""
        ranges: list[range] = []
        places: list[tuple[str, slice | int]] = []
        for bound in parameter.parameter.bounds:
            limit = self.binding.plan.compiler.compile(bound.limit)(self.scope)
            limits = limit if isinstance(limit, tuple) else (limit,)
            start = len(ranges)
            ranges += [range(expect_known(item, f"the range of '{bound.index}'")) for item in limits]
            places.append((bound.index, slice(start, len(ranges)) if isinstance(limit, tuple) else start))
        # len() of a range cannot say lengths of more than 64 bits.
        total, most = prod(max(item.stop, 0) for item in ranges), self.binding.plan.limits.max_pack
        if total > most:
            what = f"a constant of {show(total)} values"
            raise Fault(TOO_LARGE, what=what, limit="max_pack", bound=most).at(parameter.parameter.span)
        scope, code = dict(self.scope), parameter.default
        found: list[object] = []
        for row in product(*ranges):
            scope.update({name: row[place] for name, place in places})
            found.append(None if code is None else code(scope))
        return tuple(found)

    def _check_values(self, parameter: ParameterPlan, declared: Declared, value: object) -> None:
        values = value if isinstance(value, tuple) else (value,)
        word = primitive(parameter.type.name) or primitive(str(self.scope.get(parameter.type.name, "")))
        for item in values:
            if word_of(item) != word:
                raise Fault(
                    DEFAULT_TYPE, name=parameter.name, left=parameter.type.name, right=word_of(item)
                ).at(parameter.parameter.span)
        self.binding.keep_range(parameter.name, declared.element, *values)
        if not isinstance(value, tuple):
            return
        expected = len(declared.items) if declared.items is not None else _volume(declared.shape)
        if expected != len(value):
            raise self.binding.problem(
                CONSTANT_LENGTH, name=parameter.name, left=show(expected), right=len(value)
            )


def _spread_item(value: object, item: int) -> object:
    """The extent of one tensor of a pack."""
    if isinstance(value, tuple):
        return pick(value, item)
    return value.item if isinstance(value, Repeated) else value


def _volume(shape: Shape | None) -> Extent:
    total: Extent = 1
    for extent in shape or ():
        total = dim.mul(total, extent)
    return total
