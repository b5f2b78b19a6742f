"""SPMD code of several subgroups on one thread: between two barriers each subgroup runs in its turn.

What a subgroup knows across a barrier is kept in memory, a place for each subgroup. Control flow around a barrier is
the same for all work-items, so it is followed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.control.carry import operands_of, settle, with_operands
from lamella.backend.cpu.emit.integers import dynamic, number
from lamella.backend.cpu.emit.values import LLVM, RunValue, ScalarValue
from lamella.backend.cpu.emit.varying import yielded
from lamella.kernels.build import regions
from lamella.kernels.rewrite import used_values
from lamella.lang.tensor.nodes import Barrier, For, If, Instruction, Region, Statement, Value, Yield


@dataclass(slots=True)
class SpilledValue:
    """A value of each subgroup in memory: its kind, and where each of its operands is."""

    like: RunValue
    places: list[tuple[str, str]]


@dataclass(slots=True)
class SpillTable:
    """The values that are kept across barriers, by name."""

    kept: dict[str, SpilledValue] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    """How often each name is used in the whole parallel region."""


def has_barrier(region: Region) -> bool:
    """Whether there is a barrier in a region, however deep."""
    waiting = [region]
    while waiting:
        for statement in waiting.pop().statements:
            if isinstance(statement.instruction, Barrier):
                return True
            waiting += regions(statement.instruction)
    return False


def emit_phases(context: EmitContext, statements: Sequence[Statement], phases: SpillTable) -> None:
    """Run statements for all subgroups of the work-group."""
    run: list[Statement] = []
    for statement in statements:
        if not _is_boundary(statement.instruction):
            run.append(statement)
            continue
        _emit_run(context, run, phases)
        run = []
        _emit_boundary(context, statement, phases)
    _emit_run(context, run, phases)


def count_uses(region: Region) -> dict[str, int]:
    """How often each name is used in a region and the regions in it."""
    found: dict[str, int] = {}
    waiting = [region]
    while waiting:
        for statement in waiting.pop().statements:
            for item in used_values(statement.instruction):
                found[item.name] = found.get(item.name, 0) + 1
            waiting += regions(statement.instruction)
    return found


def _is_boundary(instruction: Instruction) -> bool:
    return isinstance(instruction, Barrier) or any(has_barrier(item) for item in regions(instruction))


def _emit_boundary(context: EmitContext, statement: Statement, phases: SpillTable) -> None:
    if isinstance(statement.instruction, For):
        _emit_for(context, statement, statement.instruction, phases)
    elif isinstance(statement.instruction, If):
        _emit_if(context, statement, statement.instruction, phases)


# --- a run of statements without barriers -------------------------------------------------------------------


def _emit_run(context: EmitContext, run: Sequence[Statement], phases: SpillTable) -> None:
    """Each subgroup runs the statements; what is used elsewhere is kept."""
    if not run:
        return
    inside = count_uses(Region(tuple(run)))
    # What a run yields leaves it, for whoever carries it on.
    passed = count_uses(Region(tuple(item for item in run if not isinstance(item.instruction, Yield))))
    results = [item.name for statement in run for item in statement.results]
    leaving = [name for name in results if phases.used.get(name, 0) > passed.get(name, 0)]

    def body() -> None:
        _fetch(context, inside, phases)
        context.walk(context, run)
        for name in leaving:
            _keep(context, name, context.values[name], phases)

    _for_each_subgroup(context, body)


def _for_each_subgroup(context: EmitContext, body: Callable[[], None]) -> None:
    out = context.out
    loop, after, before = out.label("subgroup"), out.label("done"), out.block
    out.jump(loop)
    out.begin(loop)
    hole, name = out.hole(), out.name()
    outer, context.subgroup_id = context.subgroup_id, name
    body()
    following = out.value(f"add i32 {name}, 1")
    out.fill(hole, f"{name} = phi i32 [0, %{before}], [{following}, %{out.block}]")
    out.branch(out.value(f"icmp slt i32 {following}, {context.subgroups}"), loop, after)
    out.begin(after)
    context.subgroup_id = outer


def _fetch(context: EmitContext, names: dict[str, int], phases: SpillTable) -> None:
    for name in names:
        if name in phases.kept:
            context.values[name] = _load(context, phases.kept[name], context.subgroup_id)


def _load(context: EmitContext, kept: SpilledValue, subgroup: str) -> RunValue:
    found = []
    for kind, place in kept.places:
        address = context.out.value(f"getelementptr {kind}, ptr {place}, i32 {subgroup}")
        found.append(context.out.value(f"load {kind}, ptr {address}"))
    return with_operands(kept.like, found)


def _keep(context: EmitContext, name: str, value: RunValue, phases: SpillTable) -> None:
    kept = phases.kept.get(name)
    if kept is None:
        kinds = [kind for kind, _ in operands_of(value)]
        kept = SpilledValue(value, [(kind, context.out.reserve(kind, context.subgroups)) for kind in kinds])
        phases.kept[name] = kept
    for (kind, place), (_, operand) in zip(kept.places, operands_of(value), strict=True):
        address = context.out.value(f"getelementptr {kind}, ptr {place}, i32 {context.subgroup_id}")
        context.out.line(f"store {kind} {operand}, ptr {address}")


# --- control flow around barriers ---------------------------------------------------------------------------


def _agreed(context: EmitContext, name: str, phases: SpillTable) -> ScalarValue:
    """A value on which all work-items agree: that of the first subgroup."""
    found = _load(context, phases.kept[name], "0") if name in phases.kept else context.values[name]
    settled = settle(context, found, False)
    if not isinstance(settled, ScalarValue):
        raise TypeError("control flow is decided by scalars")
    return settled


def _move(context: EmitContext, names: Sequence[tuple[str, str]], phases: SpillTable) -> None:
    """Keep values under new names, all of a subgroup at once."""
    if not names:
        return

    def body() -> None:
        _fetch(context, dict.fromkeys((old for old, _ in names), 1), phases)
        values = [settle(context, context.values[old], new in context.varying) for old, new in names]
        for (_, new), value in zip(names, values, strict=True):
            _keep(context, new, value, phases)

    _for_each_subgroup(context, body)


def _emit_for(context: EmitContext, statement: Statement, node: For, phases: SpillTable) -> None:
    out = context.out
    begin, end = _agreed(context, node.begin.name, phases), _agreed(context, node.end.name, phases)
    step = number(1, begin.element) if node.step is None else _agreed(context, node.step.name, phases)
    _move(context, [(start.name, name.name) for name, start in node.carried], phases)
    kind = LLVM[begin.element]
    body, after, before = out.label("loop"), out.label("done"), out.block
    out.branch(out.value(f"icmp slt {kind} {begin.operand}, {end.operand}"), body, after)
    out.begin(body)
    hole, counter = out.hole(), out.name()
    context.values[node.variable.name] = dynamic(counter, begin.element)
    emit_phases(context, node.body.statements, phases)
    _move(context, [(value.name, name.name) for value, (name, _) in _pairs(node)], phases)
    following = out.value(f"add {kind} {counter}, {step.operand}")
    out.fill(hole, f"{counter} = phi {kind} [{begin.operand}, %{before}], [{following}, %{out.block}]")
    out.branch(out.value(f"icmp slt {kind} {following}, {end.operand}"), body, after)
    out.begin(after)
    names = [name.name for name, _ in node.carried]
    _move(context, list(zip(names, (item.name for item in statement.results), strict=False)), phases)


def _pairs(node: For) -> list[tuple[Value, tuple[Value, Value]]]:
    return list(zip(yielded(node.body), node.carried, strict=True))


def _emit_if(context: EmitContext, statement: Statement, node: If, phases: SpillTable) -> None:
    out = context.out
    condition = _agreed(context, node.condition.name, phases)
    then, otherwise, after = out.label("then"), out.label("else"), out.label("after")
    out.branch(condition.operand, then, otherwise)
    for label, region in ((then, node.then), (otherwise, node.otherwise)):
        out.begin(label)
        if region is not None:
            emit_phases(context, region.statements, phases)
            names = [item.name for item in yielded(region)]
            _move(context, list(zip(names, (item.name for item in statement.results), strict=False)), phases)
        out.jump(after)
    out.begin(after)
