"""SPMD code of several subgroups on one thread: barrier-free regions, in which each subgroup runs in turn.

What a subgroup knows across a barrier is spilled to memory, a place for each subgroup. Control flow around a barrier is
the same for all work-items, so it is followed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import dynamic, number, spread
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, MemrefValue, RunValue, ScalarValue, llvm
from lamella.backend.cpu.emit.varying import yielded
from lamella.base.records import dataclass
from lamella.kernels.build import regions
from lamella.kernels.rewrite import used_values
from lamella.lang.tensor.nodes import Barrier, For, If, Instruction, Region, Statement, Value, Yield

# --- values that cross a branch, a loop or a barrier, taken apart into LLVM operands and put ----------------


def settle(context: EmitContext, value: RunValue, varying: bool) -> RunValue:
    """A value in the form in which it is carried: nothing is known of it but its operands."""
    if not isinstance(value, ScalarValue):
        return value
    if varying and context.lanes > 1:
        wide = spread(context, value)
        return ScalarValue(wide.element, wide.parts, context.lanes)
    if value.is_uniform:
        return ScalarValue(value.element, value.parts)
    wide = spread(context, value)
    kind = llvm(value.element, context.lanes)
    parts = tuple(context.out.value(f"extractelement {kind} {part}, i64 0") for part in wide.parts)
    return ScalarValue(value.element, parts)


def operands_of(value: RunValue) -> Iterator[tuple[str, str]]:
    """The LLVM type and operand of everything that a value is at run time."""
    if isinstance(value, ScalarValue):
        yield from ((llvm(value.element, value.count), part) for part in value.parts)
        if not value.parts and value.base is not None:
            yield llvm(value.element), value.base
    elif isinstance(value, MatrixValue):
        kind = "i32" if value.words else llvm(value.type.element, value.width)
        yield from ((kind, item) for part in value.parts for item in part)
    elif isinstance(value, MemrefValue):
        for item in (value.pointer, value.offset, *value.sizes, *value.strides):
            if item.constant is None:
                yield from operands_of(item)


def with_operands(value: RunValue, operands: Sequence[str]) -> RunValue:
    """The same kind of value with other operands, in the order of `operands_of`."""
    return _rebuild(value, iter(operands))


def _rebuild(value: RunValue, operands: Iterator[str]) -> RunValue:
    if isinstance(value, ScalarValue):
        return _rebuild_lanes(value, operands)
    if isinstance(value, MatrixValue):
        parts = tuple(tuple(next(operands) for _ in part) for part in value.parts)
        return replace(value, parts=parts)
    if isinstance(value, MemrefValue):
        pointer = _rebuild_known(value.pointer, operands)
        offset = _rebuild_known(value.offset, operands)
        sizes = tuple(_rebuild_known(item, operands) for item in value.sizes)
        strides = tuple(_rebuild_known(item, operands) for item in value.strides)
        return replace(value, pointer=pointer, offset=offset, sizes=sizes, strides=strides)
    return value


def _rebuild_known(value: ScalarValue, operands: Iterator[str]) -> ScalarValue:
    return value if value.constant is not None else _rebuild_lanes(value, operands)


def _rebuild_lanes(value: ScalarValue, operands: Iterator[str]) -> ScalarValue:
    if value.parts:
        return replace(
            value, parts=tuple(next(operands) for _ in value.parts), constant=None, base=None, step=0
        )
    return replace(value, base=next(operands))


def choose(context: EmitContext, mask: str, new: RunValue, old: RunValue) -> RunValue:
    """The new value in lanes of a mask, the old one elsewhere; both are settled."""
    if isinstance(new, MatrixValue) or not isinstance(new, ScalarValue):
        return new
    if new.is_uniform:
        return new
    kind = f"<{context.lanes} x i1>"
    pairs = zip(operands_of(new), operands_of(old), strict=True)
    chosen = [
        context.out.value(f"select {kind} {mask}, {one} {first}, {one} {second}")
        for (one, first), (_, second) in pairs
    ]
    return with_operands(new, chosen)


class Merge:
    """Phis of a set of values, opened before what comes into them is known."""

    def __init__(self, context: EmitContext, values: Sequence[RunValue]) -> None:
        self._here = context
        self._holes: list[tuple[int, str, str]] = []
        self._incoming: list[list[str]] = []
        self.values = [self._open(value) for value in values]

    def _open(self, value: RunValue) -> RunValue:
        names = []
        for kind, _ in operands_of(value):
            hole, name = self._here.out.hole(), self._here.out.name()
            self._holes.append((hole, name, kind))
            self._incoming.append([])
            names.append(name)
        return with_operands(value, names)

    def receive(self, values: Sequence[RunValue], block: str) -> None:
        """What comes in from a block."""
        operands = [item for value in values for item in operands_of(value)]
        for incoming, (_, operand) in zip(self._incoming, operands, strict=True):
            incoming.append(f"[{operand}, %{block}]")

    def receive_nothing(self, block: str) -> None:
        """A block from which the values are never used."""
        for incoming in self._incoming:
            incoming.append(f"[zeroinitializer, %{block}]")

    def close(self) -> list[RunValue]:
        """Write the phis."""
        for (hole, name, kind), incoming in zip(self._holes, self._incoming, strict=True):
            self._here.out.fill(hole, f"{name} = phi {kind} {', '.join(incoming)}")
        return self.values


def index(operand: str, like: ScalarValue, divisor: int = 1) -> ScalarValue:
    """A uniform integer of the type of another."""
    return dynamic(operand, like.element, divisor)


# --- masks: which lanes of a subgroup run -------------------------------------------------------------------


def kind(context: EmitContext) -> str:
    """The LLVM type of a mask."""
    return f"<{context.lanes} x i1>"


def both(context: EmitContext, left: str | None, right: str) -> str:
    """The lanes that are in two masks; None has all."""
    return right if left is None else context.out.value(f"and {kind(context)} {left}, {right}")


def others(context: EmitContext, mask: str) -> str:
    """The lanes that are not in a mask."""
    return context.out.value(f"xor {kind(context)} {mask}, splat (i1 true)")


def any_lane(context: EmitContext, mask: str) -> str:
    """Whether a mask has a lane, as an i1."""
    bits = context.out.value(f"bitcast {kind(context)} {mask} to i{context.lanes}")
    return context.out.value(f"icmp ne i{context.lanes} {bits}, 0")


def less(context: EmitContext, left: ScalarValue, right: ScalarValue) -> str:
    """The lanes in which one integer is less than another."""
    first, second = (spread(context, item).operand for item in (left, right))
    return context.out.value(f"icmp slt {llvm(left.element, context.lanes)} {first}, {second}")


@contextmanager
def masked(context: EmitContext, mask: str | None) -> Iterator[None]:
    """Run some lanes only."""
    before, context.mask = context.mask, mask
    yield
    context.mask = before


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
