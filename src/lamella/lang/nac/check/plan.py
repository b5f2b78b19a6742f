"""Verifier of the orchestrator's plan: control flow, dataflow of slots and models, constants. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, Label, Rule
from lamella.base.limits import LARGEST
from lamella.base.source import Span
from lamella.lang.nac.blocks import block_problem, find_block
from lamella.lang.nac.check.bytecode import (
    BRANCH,
    BREAK,
    CONSTANT,
    DEBUG_PRINT,
    FORMAT,
    GET_ID,
    HALT,
    JUMPS,
    LOAD_ARRAY,
    LOAD_DATA,
    LOAD_EXTERN,
    LOAD_MODEL,
    LOOP_END,
    LOOP_START,
    OPCODES,
    PROMPT,
    RETURN,
    RUN_BLOCK,
    RUN_PARALLEL,
    TRAIN_STEP,
    UNLOAD,
    WRITE,
    DecodeStop,
    OperandKind,
    PlanStep,
    decode,
)
from lamella.lang.nac.nodes import V1_5, V1_6, Constant, ConstantValue, File
from lamella.lang.nac.rules import sections as rules

# --- dataflow over the control-flow graph of a plan: reached steps, written slots, loaded models ------------
#
# A forward must-analysis: what holds before a step is the intersection over all ways to it, to a fixed point.


SLOTS = 256
"""How many slots there are, and how many models."""
MOST_VISITS = 2_000_000
"""Visits of instructions after which nothing is believed to be written any more."""
_TOKENIZER, _SLOT, _FILE = 0, 1, 2
"""Variants: RES_LOAD_EXTERN of a tokenizer, RES_UNLOAD of a slot, IO_WRITE to a file."""

Values = Mapping[int, ConstantValue]
"""The constants of a plan by id."""


def slots_read(step: PlanStep) -> Iterator[int]:
    """The slots that an instruction reads."""
    yield from step.values(OperandKind.READ)
    if step.code == WRITE and step.fields[1] == _FILE:
        yield step.operands[2][1]


def models_used(step: PlanStep, values: Values) -> Iterator[int]:
    """The models that an instruction uses, also by their tokenizers."""
    yield from step.values(OperandKind.MODEL)
    if step.code == LOAD_EXTERN and step.fields[1] == _TOKENIZER:
        number = model_number(values.get(step.operands[2][1]))
        if number is not None:
            yield number


def model_number(value: ConstantValue) -> int | None:
    """The model that a constant names; compilers write 0 and "0" alike."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 4:
        value = int(value)
    return int(value) if isinstance(value, int | float) and value in range(SLOTS) else None


def loop_counts(steps: Sequence[PlanStep], values: Values) -> dict[int, int]:
    """The slots that only ever hold one integer constant, with it: what loops are counted by."""
    found: dict[int, int | None] = {}
    for step in steps:
        value = values.get(step.operands[1][1]) if step.code == CONSTANT else None
        count = value if isinstance(value, int) else None
        for slot in step.values(OperandKind.WRITE):
            found[slot] = count if found.get(slot, count) == count else None
    return {slot: int(count) for slot, count in found.items() if count is not None}


@dataclass(frozen=True, slots=True)
class PlanFlowGraph:
    """The steps of a plan whose jumps are sound, and where each of them may lead."""

    steps: Sequence[PlanStep]
    after: Sequence[tuple[int, ...]]
    """For each step the numbers of those that may follow it."""
    skips: Mapping[int, int]
    """For each start of a loop the number of the step behind its end."""


def read_graph(steps: Sequence[PlanStep], counts: Mapping[int, int]) -> PlanFlowGraph:
    """The ways that a plan has, of which constants may close some."""
    numbers = {step.offset: number for number, step in enumerate(steps)}
    skips = _find_skips(steps)
    after: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        target = len(steps) if step.target is None else numbers.get(step.target, len(steps))
        found = _following(number, step, target, skips, counts)
        after.append(tuple(item for item in found if item < len(steps)))
    return PlanFlowGraph(steps, after, skips)


def _find_skips(steps: Sequence[PlanStep]) -> dict[int, int]:
    skips: dict[int, int] = {}
    open_: list[int] = []
    for number, step in enumerate(steps):
        if step.code == LOOP_START:
            open_.append(number)
        elif step.code == LOOP_END and open_:
            skips[open_.pop()] = number + 1
    return skips


def _following(
    number: int, step: PlanStep, target: int, skips: Mapping[int, int], counts: Mapping[int, int]
) -> tuple[int, ...]:
    if step.code in (RETURN, HALT):
        return ()
    if step.code == LOOP_START:
        count = counts.get(step.operands[0][1])
        ways = (number + 1, skips.get(number, number + 1))
        return ways if count is None else ways[:1] if count > 0 else ways[1:]
    if step.code in JUMPS:
        return (number + 1, target)
    return (number + 1,)


def follow(graph: PlanFlowGraph) -> list[int | None]:
    """What holds before each step on every way to it: a bit for each written slot, then one for each loaded model.

    None where no way leads.
    """
    changes = [_changes(step) for step in graph.steps]
    before: list[int | None] = [None] * len(graph.steps)
    if before:
        before[0] = 0
    most = max(3, MOST_VISITS // max(1, len(before)))
    for _ in range(most):
        if not _sweep(graph, changes, before):
            return before
    return [None if item is None else 0 for item in before]


def _sweep(graph: PlanFlowGraph, changes: Sequence[tuple[int, int]], before: list[int | None]) -> bool:
    """One visit of every step in order; whether an earlier step has to be visited again."""
    again = False
    for number, (gone, there) in enumerate(changes):
        held = before[number]
        if held is None:
            continue
        held = held & ~gone | there
        for next_ in graph.after[number]:
            known = before[next_]
            met = held if known is None else known & held
            if met != known:
                before[next_] = met
                again = again or next_ <= number
    return again


def _changes(step: PlanStep) -> tuple[int, int]:
    """The bits that a step takes away, and those that it sets."""
    gone = 0
    if step.code == UNLOAD:
        gone = slot_bit(step.operands[1][1]) if step.fields[0] == _SLOT else model_bit(step.operands[1][1])
    there = 0
    for slot in step.values(OperandKind.WRITE):
        there |= slot_bit(slot)
    for model in step.values(OperandKind.LOADED):
        there |= model_bit(model)
    return gone, there


def slot_bit(slot: int) -> int:
    """The bit that says that a slot is written."""
    return 1 << slot


def model_bit(model: int) -> int:
    """The bit that says that a model is loaded."""
    return 1 << SLOTS + model


# --- what the constants of a plan are used for, and whether they can be -------------------------------------


SELF = "self"
"""The path under which a plan loads the model of its own file."""
_uses_TOKENIZER = 0
_PIECE = re.compile(r"\{\{|\}\}|\{\}|[{}]|[^{}]+")
_TEXTS: Mapping[int, str] = MappingProxyType(
    {
        PROMPT: "a question",
        LOAD_MODEL: "the path of a model",
        LOAD_DATA: "the path of an array",
        LOAD_ARRAY: "the name of an array",
        GET_ID: "a token",
        FORMAT: "a text with {} for each value",
        DEBUG_PRINT: "a text",
        TRAIN_STEP: "the name of a weight",
    }
)
"""Instructions that take a text from the pool, with what it is."""


def text_of(value: ConstantValue) -> str | None:
    """A constant where a text is wanted; compilers write 1 and "1" alike, so numbers are texts too."""
    return str(value) if isinstance(value, str | bool | int | float) else None


def count_fields(text: str) -> int | None:
    """How many `{}` a format has, where `{{` and `}}` are braces; None where there is more between braces."""
    pieces = _PIECE.findall(text)
    return None if "{" in pieces or "}" in pieces else pieces.count("{}")


def fill(text: str, values: Iterable[str]) -> str:
    """A format with its values in place; nothing of a value is looked at or looked up."""
    given = iter(values)
    return "".join(_uses_filled(piece, given) for piece in _PIECE.findall(text))


def _uses_filled(piece: str, given: Iterator[str]) -> str:
    return next(given, "") if piece == "{}" else piece[0] if piece in ("{{", "}}") else piece


def use_problems(step: PlanStep, values: Values, arrays: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """The constants that an instruction cannot use: id, what is wrong, and the repair."""
    for id_ in (*step.values(OperandKind.CONSTANT), *filter(None, step.values(OperandKind.OPTIONAL))):
        if id_ not in values:
            continue
        if step.code == LOAD_EXTERN and step.fields[1] == _uses_TOKENIZER:
            if model_number(values[id_]) is None:
                yield id_, "it is no model", f"models have numbers from 0 to {SLOTS - 1}"
        elif step.code in _TEXTS:
            yield from _text_problems(step, id_, values[id_], arrays)


def _text_problems(
    step: PlanStep, id_: int, value: ConstantValue, arrays: Collection[str]
) -> Iterator[tuple[int, str, str]]:
    text = text_of(value)
    if text is None:
        yield id_, "it is no text", f"give {_TEXTS[step.code]}"
    elif step.code == LOAD_ARRAY and text not in arrays:
        yield id_, f"there is no array '{text}'", f"arrays are {', '.join(sorted(arrays)[:8]) or 'not there'}"
    elif step.code == FORMAT:
        given, wanted = len(step.values(OperandKind.READ)), count_fields(text)
        if wanted is None:
            yield id_, "it has more than {} in braces", "only {} stands for a value; {{ and }} are braces"
        elif wanted > given:
            yield id_, f"it has {wanted} times {{}} for {given} values", "give a slot for each"


# --- jumps of a plan lead to instructions, and loops are nested ---------------------------------------------


@dataclass(frozen=True, slots=True)
class _Loops:
    """For each place where an instruction begins, the loop around it; for each loop, where it ends.

    A loop is known by the byte where its start instruction begins; -1 is no loop.
    """

    around: dict[int, int]
    ends: dict[int, int]
    alone: list[tuple[PlanStep, str]]
    """Starts without an end and ends without a start, with what is wrong with them."""


def check_jumps(steps: Sequence[PlanStep], span: Span) -> Iterator[Diagnostic]:
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


def _read_loops(steps: Sequence[PlanStep]) -> _Loops:
    loops = _Loops({}, {}, [])
    open_: list[PlanStep] = []
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


def _problem(loops: _Loops, step: PlanStep, target: int) -> str:
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


# --- a bound on the steps of a plan, where its text gives one -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Unbounded:
    """The instruction that leaves the number of steps open, and why, as the rest of a sentence."""

    number: int
    step: PlanStep
    reason: str


def step_bound(steps: Sequence[PlanStep], counts: Mapping[int, int]) -> int | Unbounded:
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
class DecodedPlan:
    """A plan taken apart: its instructions, its constants by id, and where it stands."""

    file: File
    steps: Sequence[PlanStep]
    values: Values

    def place(self, number: int) -> Span:
        """Where an instruction stands: its line in a text, or else the whole plan."""
        plan = self.file.orchestrator
        return plan.lines[number] if len(plan.lines) == len(self.steps) else plan.span

    def report(self, rule: Rule, number: int, **values: object) -> Diagnostic:
        """A finding that names an instruction and its byte."""
        step = self.steps[number]
        name, offset = step.opcode.name, step.offset
        return rule.at(self.place(number), hint=None, labels=(), name=name, offset=offset, **values)


def read_plan(file: File) -> DecodedPlan:
    """The plan of a file, as far as its bytes are instructions."""
    items = decode(file.orchestrator.bytecode)
    values = {item.id: item.value for item in file.orchestrator.constants}
    return DecodedPlan(file, [item for item in items if isinstance(item, PlanStep)], values)


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
    wanted = stop.wanted if isinstance(stop, DecodeStop) else 0
    left = len(file.orchestrator.bytecode) - stop.offset
    return rules.PLAN_CUT.at(span, name=OPCODES[stop.code].name, offset=stop.offset, wanted=wanted, left=left)


def _check_pool(file: File) -> Iterator[Diagnostic]:
    """Constants of the plan have one value each."""
    first: dict[int, Constant] = {}
    for item in file.orchestrator.constants:
        if first.setdefault(item.id, item) is not item:
            labels = [Label(first[item.id].span, "given here first")]
            yield rules.PLAN_CONSTANT_TWICE.at(item.span, id=item.id, labels=labels)


def _check_versions(plan: DecodedPlan) -> Iterator[Diagnostic]:
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
            if operand.kind is OperandKind.CHOICE and value not in known:
                shown = ", ".join(map(str, known))
                yield plan.report(rules.PLAN_CHOICE, number, choice=value, known=shown)


def _check_references(plan: DecodedPlan) -> Iterator[Diagnostic]:
    """What an instruction uses is there: constants in the pool, slots and models that some instruction fills."""
    written, loaded = _filled(plan, OperandKind.WRITE), _filled(plan, OperandKind.LOADED)
    for number, step in enumerate(plan.steps):
        for id_ in (*step.values(OperandKind.CONSTANT), *filter(None, step.values(OperandKind.OPTIONAL))):
            if id_ not in plan.values:
                yield plan.report(rules.PLAN_CONSTANT, number, id=id_)
        for slot in slots_read(step):
            if slot not in written:
                yield plan.report(rules.PLAN_SLOT, number, slot=slot)
        for model in models_used(step, plan.values):
            if model not in loaded:
                yield plan.report(rules.PLAN_MODEL, number, model=model)


def _filled(plan: DecodedPlan, kind: OperandKind) -> set[int]:
    """The slots or the models that some instruction fills."""
    return {value for step in plan.steps for value in step.values(kind)}


def _check_uses(plan: DecodedPlan) -> Iterator[Diagnostic]:
    """Constants are what they are used for."""
    arrays = {item.name for item in plan.file.arrays}
    for number, step in enumerate(plan.steps):
        for id_, problem, repair in use_problems(step, plan.values, arrays):
            yield plan.report(rules.CONSTANT_USE, number, id=id_, problem=problem, repair=repair)


# --- what the dataflow analysis finds -----------------------------------------------------------------------


def _check_ways(plan: DecodedPlan) -> Iterator[Diagnostic]:
    """On every way slots are written and models loaded before they are used; every instruction is on a way."""
    counts = loop_counts(plan.steps, plan.values)
    before = follow(read_graph(plan.steps, counts))
    yield from _check_unreached(plan, before)
    written, loaded = _filled(plan, OperandKind.WRITE), _filled(plan, OperandKind.LOADED)
    for number, (step, held) in enumerate(zip(plan.steps, before, strict=True)):
        if held is None:
            continue
        for slot in dict.fromkeys(slots_read(step)):
            if slot in written and not held & slot_bit(slot):
                yield plan.report(rules.UNWRITTEN, number, slot=slot)
        for model in dict.fromkeys(models_used(step, plan.values)):
            if model in loaded and not held & model_bit(model):
                problem = f"uses model {model}, which is not loaded on every way to it"
                yield plan.report(rules.RUN, number, problem=problem, repair="load it before")
    yield from _check_blocks(plan)
    bound = step_bound(plan.steps, counts)
    if isinstance(bound, Unbounded):
        yield plan.report(rules.UNBOUNDED, bound.number, reason=bound.reason)


def _check_unreached(plan: DecodedPlan, before: Sequence[int | None]) -> Iterator[Diagnostic]:
    """The first instruction of each stretch that no way leads to."""
    number = 0
    while number < len(before):
        end = number
        while end < len(before) and before[end] is None:
            end += 1
        if end > number:
            yield plan.report(rules.UNREACHED, number, count=end - number - 1)
        number = end + 1


def _check_blocks(plan: DecodedPlan) -> Iterator[Diagnostic]:
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
                    yield plan.report(rules.RUN, number, problem=problem, repair=repair)


def _own_models(plan: DecodedPlan) -> set[int]:
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


def blocks_of(step: PlanStep) -> Iterator[BlockCall]:
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
