"""Horizontal fusion: independent kernels become one, whose work-groups are those of the parts, one after the other.

It is done for kernels that write parts of one tensor: a launch of a GPU costs as much as moving megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.open_extent import is_open
from lamella.bridge.graph_to_kernels.coverage import write_parts
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.nodes import KernelCall, KernelOperand
from lamella.kernels.rewrite import copy_region, make_names_unique, rewrite, walk, with_statements
from lamella.lang.tensor.nodes import (
    Alloca,
    Builtin,
    Cast,
    Function,
    Parameter,
    Region,
    Statement,
    Value,
)
from lamella.lang.tensor.nodes.types import INDEX
from lamella.ops.formula import Contraction

FEWEST_GROUPS = 64
"""Work-groups up to which small launches become phases of others, which costs less yet."""
MOST_PARTS = 16
"""Parts of one kernel: work-items of each of them hold where all arrays lie."""
GROUP = "group_id"

Written = tuple[Function, KernelCall]
Run = tuple[KernelCall, Sequence[Contraction]]
"""The call of a kernel, and the formulas that it computes."""


def fuse_parts_horizontally(
    functions: Sequence[Function], calls: Sequence[KernelCall], runs: Sequence[Run]
) -> tuple[list[Function], list[KernelCall]]:
    """The kernels of a group and their calls, one for each run that writes parts one behind the other."""
    known, found = {item.name: item for item in functions}, list(calls)
    waiting = list(runs)
    while waiting:
        first = found.index(waiting[0][0])
        count = 1
        while (
            count < min(len(waiting), MOST_PARTS)
            and first + count < len(found)
            and found[first + count] == waiting[count][0]
            and write_parts([stages for _, stages in waiting[: count + 1]])
        ):
            count += 1
        parts = [(known[item.kernel], item) for item, _ in waiting[:count]]
        joined = fuse_horizontally(parts[0][1].kernel, parts)
        if joined is not None:
            for _, item in parts:
                del known[item.kernel]
            known[joined[0].name] = joined[0]
            found[first : first + count] = [joined[1]]
        waiting = waiting[count:]
    return list(known.values()), found


def fuse_horizontally(name: str, parts: Sequence[Written]) -> Written | None:
    """One kernel and its call for independent ones; None where they stay apart."""
    (first, call), groups = parts[0], [item.groups for _, item in parts]
    alike = all(
        item.attributes == first.attributes and other.once == call.once and not other.has_fault
        for item, other in parts
    )
    plain = all(_is_plain(item) for item, _ in parts)
    if not alike or not plain or not 1 < len(parts) <= MOST_PARTS or any(map(is_open, groups)):
        return None
    return _HorizontalFusion(parts).write(name) if sum(groups) > FEWEST_GROUPS else None


def _is_plain(function: Function) -> bool:
    """Whether a kernel asks for its work-group's number alone, and has no local memory."""
    kinds = [item.instruction for item in walk(function.body)]
    asked = {item.name for item in kinds if isinstance(item, Builtin)}
    return asked <= {GROUP, "subgroup_local_id", "subgroup_id"} and not any(
        isinstance(item, Alloca) for item in kinds
    )


class _HorizontalFusion:
    """The fused kernel while it is written."""

    def __init__(self, parts: Sequence[Written]) -> None:
        self.parts = [(make_names_unique(item), call) for item, call in parts]
        self.names = FreshNames(set())
        self.parameters: list[Parameter] = []
        self.operands: list[KernelOperand] = []
        self.starts = [sum(call.groups for _, call in parts[:place]) for place in range(len(parts))]

    def write(self, name: str) -> Written:
        """Write everything."""
        given = [self._parameters_of(*item) for item in self.parts]
        builder = Builder(self.names)
        group = builder.builtin(GROUP, INDEX)
        self._choose(builder, group, list(zip(range(len(self.parts)), given, strict=True)))
        (first, call), last = self.parts[0], self.parts[-1][1]
        function = Function(name, tuple(self.parameters), builder.region(), first.attributes)
        groups = self.starts[-1] + last.groups
        return function, KernelCall(name, tuple(self.operands), groups, once=call.once)

    def _parameters_of(self, function: Function, call: KernelCall) -> dict[str, Value]:
        """The parameters of the fused kernel for those of a part; what several parts read is one."""
        found: dict[str, Value] = {}
        for parameter, operand in zip(function.parameters, call.operands, strict=True):
            known = (
                item
                for item, held in zip(self.parameters, self.operands, strict=True)
                if held == operand and item.type == parameter.type
            )
            same = next(known, None)
            if same is None:
                same = Parameter(self._named(parameter.value), parameter.type, parameter.attributes)
                self.parameters.append(same)
                self.operands.append(operand)
            found[parameter.value.name] = same.value
        return found

    def _named(self, value: Value) -> Value:
        """The name of a parameter, as long as no other one has it."""
        name = value.name if value.name not in self.names.used else f"{value.name}_{len(self.parameters)}"
        self.names.used.add(name)
        return Value(name)

    def _choose(self, builder: Builder, group: Value, parts: Sequence[tuple[int, dict[str, Value]]]) -> None:
        """The part of a work-group, of those that are left."""
        if len(parts) == 1:
            ((place, given),) = parts
            self._add(builder, group, place, given)
            return
        half = len(parts) // 2
        border = builder.constant(self.starts[parts[half][0]])
        with builder.choice(builder.compare("lt", group, border)) as sides:
            for side, own in zip(sides, (parts[:half], parts[half:]), strict=True):
                self._choose(side, group, own)

    def _add(self, builder: Builder, group: Value, place: int, given: dict[str, Value]) -> None:
        function, call = self.parts[place]
        start, end = self.starts[place], call.groups - 1
        own = builder.arith("sub", group, builder.constant(start)) if start else group
        own = builder.arith("min", builder.arith("max", own, builder.constant(0)), builder.constant(end))
        body = copy_region(function.body, self.names, given)
        for statement in _with_group(body, own).statements:
            builder.add_statement(statement)


def _with_group(body: Region, own: Value) -> Region:
    """The region with a value for the number of the work-group."""

    def visit(found: Region, _: bool) -> Region:
        return with_statements(found, [change(item) for item in found.statements])

    def change(statement: Statement) -> Statement:
        item = statement.instruction
        if not isinstance(item, Builtin) or item.name != GROUP:
            return statement
        return Statement(statement.results, Cast(own, item.type), statement.span)

    return rewrite(body, visit)
