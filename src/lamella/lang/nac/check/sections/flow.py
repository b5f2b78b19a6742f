"""The ways through a plan: which instructions are reached, which slots are written and which models loaded there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamella.lang.nac.check.sections.decode import Step
from lamella.lang.nac.check.sections.opcodes import (
    CONSTANT,
    HALT,
    JUMPS,
    LOAD_EXTERN,
    LOOP_END,
    LOOP_START,
    RETURN,
    UNLOAD,
    WRITE,
    Kind,
)
from lamella.lang.nac.nodes import ConstantValue

SLOTS = 256
"""How many slots there are, and how many models."""
MOST_VISITS = 2_000_000
"""Visits of instructions after which nothing is believed to be written any more."""
_TOKENIZER, _SLOT, _FILE = 0, 1, 2
"""Variants: RES_LOAD_EXTERN of a tokenizer, RES_UNLOAD of a slot, IO_WRITE to a file."""

Values = Mapping[int, ConstantValue]
"""The constants of a plan by id."""


def slots_read(step: Step) -> Iterator[int]:
    """The slots that an instruction reads."""
    yield from step.values(Kind.READ)
    if step.code == WRITE and step.fields[1] == _FILE:
        yield step.operands[2][1]


def models_used(step: Step, values: Values) -> Iterator[int]:
    """The models that an instruction uses, also by their tokenizers."""
    yield from step.values(Kind.MODEL)
    if step.code == LOAD_EXTERN and step.fields[1] == _TOKENIZER:
        number = model_number(values.get(step.operands[2][1]))
        if number is not None:
            yield number


def model_number(value: ConstantValue) -> int | None:
    """The model that a constant names; compilers write 0 and "0" alike."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 4:
        value = int(value)
    return int(value) if isinstance(value, int | float) and value in range(SLOTS) else None


def loop_counts(steps: Sequence[Step], values: Values) -> dict[int, int]:
    """The slots that only ever hold one integer constant, with it: what loops are counted by."""
    found: dict[int, int | None] = {}
    for step in steps:
        value = values.get(step.operands[1][1]) if step.code == CONSTANT else None
        count = value if isinstance(value, int) else None
        for slot in step.values(Kind.WRITE):
            found[slot] = count if found.get(slot, count) == count else None
    return {slot: int(count) for slot, count in found.items() if count is not None}


@dataclass(frozen=True, slots=True)
class Graph:
    """The steps of a plan whose jumps are sound, and where each of them may lead."""

    steps: Sequence[Step]
    after: Sequence[tuple[int, ...]]
    """For each step the numbers of those that may follow it."""
    skips: Mapping[int, int]
    """For each start of a loop the number of the step behind its end."""


def read_graph(steps: Sequence[Step], counts: Mapping[int, int]) -> Graph:
    """The ways that a plan has, of which constants may close some."""
    numbers = {step.offset: number for number, step in enumerate(steps)}
    skips = _find_skips(steps)
    after: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        target = len(steps) if step.target is None else numbers.get(step.target, len(steps))
        found = _following(number, step, target, skips, counts)
        after.append(tuple(item for item in found if item < len(steps)))
    return Graph(steps, after, skips)


def _find_skips(steps: Sequence[Step]) -> dict[int, int]:
    skips: dict[int, int] = {}
    open_: list[int] = []
    for number, step in enumerate(steps):
        if step.code == LOOP_START:
            open_.append(number)
        elif step.code == LOOP_END and open_:
            skips[open_.pop()] = number + 1
    return skips


def _following(
    number: int, step: Step, target: int, skips: Mapping[int, int], counts: Mapping[int, int]
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


def follow(graph: Graph) -> list[int | None]:
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


def _sweep(graph: Graph, changes: Sequence[tuple[int, int]], before: list[int | None]) -> bool:
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


def _changes(step: Step) -> tuple[int, int]:
    """The bits that a step takes away, and those that it sets."""
    gone = 0
    if step.code == UNLOAD:
        gone = slot_bit(step.operands[1][1]) if step.fields[0] == _SLOT else model_bit(step.operands[1][1])
    there = 0
    for slot in step.values(Kind.WRITE):
        there |= slot_bit(slot)
    for model in step.values(Kind.LOADED):
        there |= model_bit(model)
    return gone, there


def slot_bit(slot: int) -> int:
    """The bit that says that a slot is written."""
    return 1 << slot


def model_bit(model: int) -> int:
    """The bit that says that a model is loaded."""
    return 1 << SLOTS + model
