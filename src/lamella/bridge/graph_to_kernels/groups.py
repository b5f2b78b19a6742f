"""Fusion groups: operations that are computed together, and their formulas over the tensors of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from lamella.base.dim import substitute
from lamella.base.dtype import F64, ElementType
from lamella.base.errors import Found, Unsupported
from lamella.base.records import dataclass
from lamella.graph.binding import bind_operation
from lamella.graph.compose.decompose import compose_call
from lamella.graph.nodes import Argument, Operation, Pack, Tensor, tensors
from lamella.graph.rewrite import results_of
from lamella.lang.skriptnd.check.definitions import invoked
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction
from lamella.ops.instance import Instance, Shape, Single
from lamella.ops.library import FUSED, Library
from lamella.ops.lower import contractions
from lamella.ops.specialise import specialise

Constants: TypeAlias = Mapping[str, Single | tuple[Single, ...]]
"""Tensors known before the run by name: one value everywhere, or all values in row-major order."""
Place: TypeAlias = tuple[str, int | None]
"""A tensor by the name that its operator gives it, and its number in a pack."""


@dataclass(frozen=True, slots=True)
class Group:
    """Operations with formulas, in the order in which they run; what no output is lives inside only."""

    operations: tuple[Operation, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    constants: Constants = field(default_factory=dict)
    borders: frozenset[str] = frozenset()
    """What groups inside it make, where it is a chain of such."""


@dataclass(frozen=True, slots=True)
class GroupTensor:
    """A tensor that formulas of a group name, with known extents."""

    name: str
    element: ElementType
    shape: tuple[int, ...]

    @property
    def volume(self) -> int:
        """The number of its elements."""
        found = 1
        for size in self.shape:
            found *= size
        return found


@dataclass(frozen=True, slots=True)
class MemberFormula:
    """A formula of a member, and the tensors of the group that the names in it stand for."""

    contraction: Contraction
    names: Mapping[Place, str]


@dataclass(frozen=True, slots=True)
class GroupFormulas:
    """The formulas of all members in their order, and every tensor that they name."""

    formulas: tuple[MemberFormula, ...]
    tensors: Mapping[str, GroupTensor]
    constants: Constants


def group_of(library: Library, operation: Operation) -> Group:
    """The group that an operation is: itself, or the components of a compound one."""
    given = tuple(item for argument in operation.inputs for item in tensors(argument))
    made = tuple(item for argument in operation.outputs for item in tensors(argument))
    definition = library.find(operation.operator)
    if definition is None:
        raise Unsupported("there is no such operator")
    if definition.operator.kind == "lower":
        return Group((operation,), given, made)
    if definition.operator.kind != "compose":
        raise Unsupported("it has no formula")
    parts = compose_call(library, operation)
    if parts.checks:
        raise Unsupported("only the run can decide an assertion of a component")
    members = tuple(item for item in parts.nodes if isinstance(item, Operation))
    if len(members) < len(parts.nodes):
        raise Unsupported("it has control flow")
    constants = {item.tensor.name: item.value for item in parts.constants}
    return Group(members, given, made, constants, _borders(library, operation))


def _borders(library: Library, operation: Operation) -> frozenset[str]:
    """What the groups make that an operation is a chain of; nothing where it is a group itself."""
    prefix, definition = f"{FUSED}.", library.find(operation.operator)
    if definition is None or not operation.operator.startswith(prefix):
        return frozenset()
    names = {f"{prefix}{item.removeprefix(prefix)}" for item in invoked(definition.operator)}
    inner = {item for item in names if (found := library.find(item)) and found.operator.kind == "compose"}
    if not inner:
        return frozenset()
    parts = compose_call(library, operation, inner.__contains__)
    made = {item.name for node in parts.nodes for item in results_of(node)}
    return frozenset(made - {item.name for part in operation.outputs for item in tensors(part)})


def group_formulas(
    library: Library, group: Group, extents: Mapping[str, int] | None = None, wide: bool = False
) -> GroupFormulas:
    """The formulas of a group; `extents` are those that the graph leaves open, `wide` holds every real in 64 bits."""
    collecting = _Collecting(extents or {}, wide)
    for operation in group.operations:
        instance = bind_operation(library, operation)
        if instance.definition.operator.kind != "lower" or instance.variables:
            raise Unsupported(f"'{operation.operator}' has no formula")
        collecting.add(operation, instance)
    constants = {name: value for name, value in group.constants.items() if name in collecting.tensors}
    floats = {item.element for item in collecting.tensors.values() if item.element.is_float}
    if F64 in floats and len(floats) > 1:
        raise Unsupported("it mixes f64 with narrower reals")
    return GroupFormulas(
        tuple(collecting.formulas), collecting.tensors, {**constants, **collecting.constants}
    )


@dataclass(slots=True)
class _Collecting:
    """The formulas of a group while they are collected."""

    extents: Mapping[str, int]
    wide: bool
    formulas: list[MemberFormula] = field(default_factory=list)
    tensors: dict[str, GroupTensor] = field(default_factory=dict)
    constants: dict[str, Single | tuple[Single, ...]] = field(default_factory=dict)

    def add(self, operation: Operation, instance: Instance) -> None:
        """Add the formulas of a member."""
        names = dict(self._named(operation, instance))
        self.formulas += [MemberFormula(item, names) for item in self._formulas(instance)]

    def _formulas(self, instance: Instance) -> Sequence[Contraction]:
        found = contractions(instance)
        try:
            return [specialise(item, self.extents) for item in found] if self.extents else found
        except (Fault, Found, ZeroDivisionError):
            raise Unsupported("its formula has no value with these extents") from None

    def _named(self, operation: Operation, instance: Instance) -> Iterator[tuple[Place, str]]:
        """The tensors of a member by the names that its formulas use."""
        given = [(name, item) for name, item in instance.inputs if isinstance(item, Tensor | tuple)]
        made = [
            (item.name, argument) for item, argument in zip(instance.outputs, operation.outputs, strict=True)
        ]
        for name, argument in (*given, *made):
            if isinstance(argument, Pack):
                raise Unsupported("only the run tells how many tensors it gives")
            items = argument if isinstance(argument, tuple) else (argument,)
            for number, item in enumerate(items):
                if isinstance(item, Tensor):
                    self._take(item.name, item.element, item.shape)
                    yield (name, number if isinstance(argument, tuple) else None), item.name
        for declared, value in instance.constants:
            if isinstance(value, tuple) and declared.shape is not None:
                name = f"{_first(operation.outputs)}/{declared.name}"
                self._take(name, declared.element, declared.shape)
                self.constants[name] = value
                yield (declared.name, None), name

    def _take(self, name: str, element: ElementType, shape: Shape | None) -> None:
        known = [substitute(extent, self.extents) for extent in shape or ()]
        sizes = tuple(extent for extent in known if isinstance(extent, int))
        if shape is None or len(sizes) < len(known):
            raise Unsupported("a shape is only known in the run")
        self.tensors[name] = GroupTensor(name, F64 if self.wide and element.is_float else element, sizes)


def _first(arguments: Sequence[Argument]) -> str:
    return next((item.name for argument in arguments for item in tensors(argument)), "")
