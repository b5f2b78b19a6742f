"""The orchestrator's plan: verified before anything could run it, and never run here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, Label, Rule
from lamella.base.limits import LARGEST
from lamella.base.source import Span
from lamella.lang.nac.blocks import block_problem, find_block
from lamella.lang.nac.check.sections.decode import Step, Stop, decode
from lamella.lang.nac.check.sections.flow import (
    Values,
    follow,
    loop_counts,
    model_bit,
    models_used,
    read_graph,
    slot_bit,
    slots_read,
)
from lamella.lang.nac.check.sections.opcodes import (
    BRANCH,
    BREAK,
    HALT,
    LOAD_MODEL,
    LOOP_END,
    LOOP_START,
    OPCODES,
    RETURN,
    RUN_BLOCK,
    RUN_PARALLEL,
    Kind,
)
from lamella.lang.nac.check.sections.uses import SELF, text_of, use_problems
from lamella.lang.nac.nodes import V1_5, V1_6, Constant, File
from lamella.lang.nac.rules import planning
from lamella.lang.nac.rules import sections as rules

# --- jumps of a plan lead to instructions, and loops are nested ---------------------------------------------


@dataclass(frozen=True, slots=True)
class _Loops:
    """For each place where an instruction begins, the loop around it; for each loop, where it ends.

    A loop is known by the byte where its start instruction begins; -1 is no loop.
    """

    around: dict[int, int]
    ends: dict[int, int]
    alone: list[tuple[Step, str]]
    """Starts without an end and ends without a start, with what is wrong with them."""


def check_jumps(steps: Sequence[Step], span: Span) -> Iterator[Diagnostic]:
    """Every jump leads to an instruction of the same loop; loops close where they began; breaks leave their loop."""
    loops = _read_loops(steps)
    for step, problem in loops.alone:
        yield rules.PLAN_LOOP.at(span, name=step.opcode.name, offset=step.offset, problem=problem)
    for step in steps:
        if step.target is None:
            continue
        if step.target not in loops.around:
            yield rules.PLAN_JUMP.at(span, name=step.opcode.name, offset=step.offset, target=step.target)
            continue
        problem = _problem(loops, step, step.target)
        if problem:
            yield rules.PLAN_LOOP.at(span, name=step.opcode.name, offset=step.offset, problem=problem)


def _read_loops(steps: Sequence[Step]) -> _Loops:
    loops = _Loops({}, {}, [])
    open_: list[Step] = []
    for step in steps:
        loops.around[step.offset] = open_[-1].offset if open_ else -1
        if step.code == LOOP_START:
            open_.append(step)
        elif step.code == LOOP_END and open_:
            loops.ends[open_.pop().offset] = step.end
        elif step.code == LOOP_END:
            loops.alone.append((step, "ends no loop"))
    if steps:
        loops.around[steps[-1].end] = -1
    loops.alone.extend((step, "begins a loop that does not end") for step in open_)
    return loops


def _problem(loops: _Loops, step: Step, target: int) -> str:
    """What is wrong with a jump to an instruction, as the rest of a sentence; nothing where it is right."""
    loop = loops.around[step.offset]
    if step.code == BRANCH:
        return "" if loops.around[target] == loop else "jumps into a loop or out of one"
    if loop < 0:
        return "is in no loop" if step.code == BREAK else ""
    wanted = loops.ends.get(loop) if step.code == BREAK else _body(loop)
    if wanted is None or target == wanted:
        return ""
    return f"jumps to byte {target}; its loop {'is left at' if step.code == BREAK else 'begins at'} byte {wanted}"


def _body(loop: int) -> int:
    """The first byte behind the start of a loop, which is an opcode and a slot."""
    return loop + 2


# --- how many steps a plan takes at the most, where its text tells ------------------------------------------


@dataclass(frozen=True, slots=True)
class Unbounded:
    """The instruction that leaves the number of steps open, and why, as the rest of a sentence."""

    number: int
    step: Step
    reason: str


def step_bound(steps: Sequence[Step], counts: Mapping[int, int]) -> int | Unbounded:
    """The most steps that sound loops and jumps make; `counts` are the slots that hold one known integer.

    A number beyond 64 bits is as good as the largest of them.
    """
    totals, repeats = [0], [1]
    for number, step in enumerate(steps):
        if step.code == BRANCH and step.target is not None and step.target <= step.offset:
            return Unbounded(number, step, "may jump back any number of times")
        totals[-1] += 1
        if step.code == LOOP_START:
            count = counts.get(step.operands[0][1])
            if count is None:
                return Unbounded(number, step, "counts by a slot that only a run fills")
            totals.append(0)
            repeats.append(max(0, count))
        elif step.code == LOOP_END and len(totals) > 1:
            totals[-2:] = [min(LARGEST, totals[-2] + totals[-1] * repeats.pop())]
    return min(LARGEST, totals[0])


MOST_BYTES = 1 << 18
"""The longest bytecode that is taken apart; jumps reach 32767 bytes."""
MOST_BLOCKED = 1 << 20
"""Instructions of all blocks together whose results are counted before a plan runs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan taken apart: its instructions, its constants by id, and where it stands."""

    file: File
    steps: Sequence[Step]
    values: Values

    def place(self, number: int) -> Span:
        """Where an instruction stands: its line in a text, or else the whole plan."""
        plan = self.file.orchestrator
        return plan.lines[number] if len(plan.lines) == len(self.steps) else plan.span

    def tell(self, rule: Rule, number: int, **values: object) -> Diagnostic:
        """A finding that names an instruction and its byte."""
        step = self.steps[number]
        name, offset = step.opcode.name, step.offset
        return rule.at(self.place(number), hint=None, labels=(), name=name, offset=offset, **values)


def read_plan(file: File) -> Plan:
    """The plan of a file, as far as its bytes are instructions."""
    items = decode(file.orchestrator.bytecode)
    values = {item.id: item.value for item in file.orchestrator.constants}
    return Plan(file, [item for item in items if isinstance(item, Step)], values)


def check_plan(file: File) -> Iterator[Diagnostic]:
    """The plan of a file: opcodes, operands, constants, slots, models, jumps, its ways and its end."""
    yield from _check_pool(file)
    length = len(file.orchestrator.bytecode)
    if length > MOST_BYTES:
        yield rules.PLAN_LENGTH.at(file.orchestrator.span, length=length, limit=MOST_BYTES)
        return
    plan = read_plan(file)
    yield from _check_versions(plan)
    yield from _check_references(plan)
    yield from _check_uses(plan)
    if (plan.steps[-1].end if plan.steps else 0) < length:
        yield _stopped(file)
        return
    jumps = list(check_jumps(plan.steps, file.orchestrator.span))
    yield from jumps
    if not jumps:
        yield from _check_ways(plan)
    if plan.steps and plan.steps[-1].code not in (RETURN, HALT):
        yield rules.PLAN_END.at(plan.place(len(plan.steps) - 1))


def _stopped(file: File) -> Diagnostic:
    """Why the bytecode cannot be read to its end."""
    span = file.orchestrator.span
    *_, stop = decode(file.orchestrator.bytecode)
    if stop.code not in OPCODES:
        return rules.PLAN_OPCODE.at(span, offset=stop.offset, opcode=stop.code, version=file.header.version)
    wanted = stop.wanted if isinstance(stop, Stop) else 0
    left = len(file.orchestrator.bytecode) - stop.offset
    return rules.PLAN_CUT.at(span, name=OPCODES[stop.code].name, offset=stop.offset, wanted=wanted, left=left)


def _check_pool(file: File) -> Iterator[Diagnostic]:
    """Constants of the plan have one value each."""
    first: dict[int, Constant] = {}
    for item in file.orchestrator.constants:
        if first.setdefault(item.id, item) is not item:
            labels = [Label(first[item.id].span, "given here first")]
            yield rules.PLAN_CONSTANT_TWICE.at(item.span, id=item.id, labels=labels)


def _check_versions(plan: Plan) -> Iterator[Diagnostic]:
    """Instructions and their variants exist in the version of the file."""
    version = plan.file.header.version
    old = version in (V1_5, V1_6)
    for number, step in enumerate(plan.steps):
        if old and step.opcode.is_new:
            yield rules.PLAN_OPCODE.at(
                plan.place(number), offset=step.offset, opcode=step.code, version=version
            )
        for operand, value in step.operands:
            known = operand.variants if old else operand.variants + operand.newer
            if operand.kind is Kind.CHOICE and value not in known:
                shown = ", ".join(map(str, known))
                yield plan.tell(rules.PLAN_CHOICE, number, choice=value, known=shown)


def _check_references(plan: Plan) -> Iterator[Diagnostic]:
    """What an instruction uses is there: constants in the pool, slots and models that some instruction fills."""
    written, loaded = _filled(plan, Kind.WRITE), _filled(plan, Kind.LOADED)
    for number, step in enumerate(plan.steps):
        for id_ in (*step.values(Kind.CONSTANT), *filter(None, step.values(Kind.OPTIONAL))):
            if id_ not in plan.values:
                yield plan.tell(rules.PLAN_CONSTANT, number, id=id_)
        for slot in slots_read(step):
            if slot not in written:
                yield plan.tell(rules.PLAN_SLOT, number, slot=slot)
        for model in models_used(step, plan.values):
            if model not in loaded:
                yield plan.tell(rules.PLAN_MODEL, number, model=model)


def _filled(plan: Plan, kind: Kind) -> set[int]:
    """The slots or the models that some instruction fills."""
    return {value for step in plan.steps for value in step.values(kind)}


def _check_uses(plan: Plan) -> Iterator[Diagnostic]:
    """Constants are what they are used for."""
    arrays = {item.name for item in plan.file.arrays}
    for number, step in enumerate(plan.steps):
        for id_, problem, repair in use_problems(step, plan.values, arrays):
            yield plan.tell(planning.CONSTANT_USE, number, id=id_, problem=problem, repair=repair)


# --- the ways through it ------------------------------------------------------------------------------------


def _check_ways(plan: Plan) -> Iterator[Diagnostic]:
    """On every way slots are written and models loaded before they are used; every instruction is on a way."""
    counts = loop_counts(plan.steps, plan.values)
    before = follow(read_graph(plan.steps, counts))
    yield from _check_unreached(plan, before)
    written, loaded = _filled(plan, Kind.WRITE), _filled(plan, Kind.LOADED)
    for number, (step, held) in enumerate(zip(plan.steps, before, strict=True)):
        if held is None:
            continue
        for slot in dict.fromkeys(slots_read(step)):
            if slot in written and not held & slot_bit(slot):
                yield plan.tell(planning.UNWRITTEN, number, slot=slot)
        for model in dict.fromkeys(models_used(step, plan.values)):
            if model in loaded and not held & model_bit(model):
                problem = f"uses model {model}, which is not loaded on every way to it"
                yield plan.tell(planning.RUN, number, problem=problem, repair="load it before")
    yield from _check_blocks(plan)
    bound = step_bound(plan.steps, counts)
    if isinstance(bound, Unbounded):
        yield plan.tell(planning.UNBOUNDED, bound.number, reason=bound.reason)


def _check_unreached(plan: Plan, before: Sequence[int | None]) -> Iterator[Diagnostic]:
    """The first instruction of each stretch that no way leads to."""
    number = 0
    while number < len(before):
        end = number
        while end < len(before) and before[end] is None:
            end += 1
        if end > number:
            yield plan.tell(planning.UNREACHED, number, count=end - number - 1)
        number = end + 1


def _check_blocks(plan: Plan) -> Iterator[Diagnostic]:
    """Blocks of the file's own instructions exist, and take and give as much as the plan says."""
    own = _own_models(plan)
    left = MOST_BLOCKED
    for number, step in enumerate(plan.steps):
        for block in blocks_of(step):
            left -= len(plan.file.instructions)
            if block.model in own and left >= 0:
                problem = _block_problem(plan.file, block)
                if problem:
                    repair = "blocks hold instructions of the model, from the first to the last"
                    yield plan.tell(planning.RUN, number, problem=problem, repair=repair)


def _own_models(plan: Plan) -> set[int]:
    """The numbers under which only the file's own model is loaded."""
    found: dict[int, bool] = {}
    for step in plan.steps:
        if step.code == LOAD_MODEL:
            (_, model), (_, id_) = step.operands
            found[model] = found.get(model, True) and text_of(plan.values.get(id_)) == SELF
    return {model for model, is_own in found.items() if is_own}


@dataclass(frozen=True, slots=True)
class BlockCall:
    """A block that a plan runs: its model, its instructions, the slots it takes from and gives to."""

    model: int
    first: int
    last: int
    takes: tuple[int, ...]
    gives: tuple[int, ...]


def blocks_of(step: Step) -> Iterator[BlockCall]:
    """The blocks that an instruction runs."""
    if step.code not in (RUN_BLOCK, RUN_PARALLEL):
        return
    for start in range(0, len(step.fields), 5):
        match step.fields[start : start + 5]:
            case int(model), int(first), int(last), tuple(takes), tuple(gives):
                yield BlockCall(model, first, last, takes, gives)


def _block_problem(file: File, call: BlockCall) -> str:
    problem = block_problem(file, call.first, call.last)
    if problem:
        return problem
    block = find_block(file, call.first, call.last)
    if len(block.takes) == len(call.takes) and len(block.gives) == len(call.gives):
        return ""
    wanted = f"{len(block.takes)} values and gives {len(block.gives)}"
    given = f"{len(call.takes)} and {len(call.gives)} slots"
    return f"runs instructions {call.first} to {call.last}, a block that takes {wanted}; {given} are named"
