"""The inputs of one call: tensors, packs of them, scalars that stand for tensors, and null."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.diagnostic import Label
from lamella.base.dim import Dim, Extent
from lamella.lang.skriptnd.rules.composition import ARGUMENT_MISSING, ARGUMENT_PACK
from lamella.lang.skriptnd.rules.invocation import FREE_EXTENT, NO_VALUE, UNDECIDED
from lamella.ops.bind.plan import ExtentPlan, ParameterPlan
from lamella.ops.bind.shapes import Shapes, Tensors
from lamella.ops.bind.state import Binding, Place
from lamella.ops.bind.types import Types
from lamella.ops.bind.values import as_value
from lamella.ops.formula import Term
from lamella.ops.instance import Argument, Fill, Shape, Single
from lamella.ops.problem import Fault, Problem
from lamella.ops.scalars.values import SCALARS, expect_count, expect_extent


class Inputs:
    """Binds the inputs of one call in the binding order of the definition."""

    def __init__(self, binding: Binding, types: Types) -> None:
        self.binding = binding
        self.types = types
        self.scope = binding.scope
        self.shapes = Shapes(binding)

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
        except Problem as problem:
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
            self.shapes.bind(parameter, Tensors((argument,), (shape,)))

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

    def _wrong_kind(self, parameter: ParameterPlan, expected: str, argument: object) -> Problem:
        given = "a scalar" if isinstance(argument, SCALARS) else "a tensor"
        if isinstance(argument, tuple) or size_of(argument) is not None:
            given = "a pack"
        label = Label(parameter.parameter.span, "declared here")
        told = {"name": self.binding.name, "input": parameter.name, "left": expected, "right": given}
        return self.binding.problem(ARGUMENT_PACK, [label], **told)

    # --- packs ----------------------------------------------------------------------------------------------

    def _bind_pack(self, parameter: ParameterPlan, argument: object) -> None:
        size = size_of(argument)
        if not isinstance(argument, tuple):
            if size is None:
                raise self._wrong_kind(parameter, "a pack of tensors", argument)
            self._bind_length(parameter, size)
            self.scope[parameter.name] = argument
            self.shapes.bind(parameter, Tensors((argument,), (getattr(argument, "shape", ()),), size))
            return
        self._bind_length(parameter, len(argument))
        items = tuple(self._filled(parameter, item) for item in argument)
        self.scope[parameter.name] = items
        if items:
            self.shapes.bind(parameter, Tensors(items, [getattr(item, "shape", ()) for item in items]))
        else:
            self._bind_empty(parameter)

    def _bind_length(self, parameter: ParameterPlan, length: Extent) -> None:
        place = Place(parameter, "the length of", parameter.parameter.span)
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
        place = Place(parameter, "the empty pack for", parameter.parameter.span)
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
        rank, place = parameter.type.rank, Place(parameter, "the rank of", parameter.parameter.span)
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
            told = {"name": parameter.name, "symbol": measure.text if measure else "~"}
            raise self.binding.problem(FREE_EXTENT, [Label(extent.span, "declared here")], **told)
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
        place = Place(parameter, "the scalar for", extent.span)
        if extent.length is not None:
            self.shapes.bind_length(parameter, extent, 0, place)
        if extent.value is not None and self.binding.is_deduced(extent.value):
            self.binding.set(extent.value.symbol or "", (), place)


def default_of(binding: Binding, parameter: ParameterPlan) -> Argument:
    """What an input is where a call leaves it out."""
    return None if parameter.default is None else as_value(parameter.default(binding.scope))


def size_of(argument: object) -> Dim | None:
    """The length of a pack that only the run tells."""
    size = getattr(argument, "size", None)
    return size if isinstance(size, Dim) else None
