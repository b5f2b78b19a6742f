"""Jumps of a plan in words: labels, and loops whose distances nobody has to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType

from lamella.lang.nac.assembly.nodes import Step
from lamella.lang.nac.check.sections.opcodes import BRANCH, BREAK, LOOP_END, LOOP_START, OPCODES

LABEL = "FLOW_LABEL"
"""The word that names the place of the next instruction; it takes no bytes."""
_CODES: Mapping[str, int] = MappingProxyType({opcode.name: code for code, opcode in OPCODES.items()})
_CONDITIONAL = 2
"""Operands of a branch: its condition and where it leads."""


@dataclass(slots=True)
class _Places:
    """Where things lie: the ends of steps, labels, and the loop that each break and each end belongs to."""

    ends: list[int]
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[int, int] = field(default_factory=dict)
    """By the number of a step that ends or leaves a loop, the byte it jumps to."""


def resolve_jumps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps with distances in place of labels and of what was left out; labels themselves are gone.

    A step that cannot be resolved stays as it is, for `encode_plan_step` to tell what is wrong with it.
    """
    places = _find_places(steps)
    resolved = (_resolve(number, step, places) for number, step in enumerate(steps))
    return tuple(step for step in resolved if step is not None)


def _find_places(steps: Sequence[Step]) -> _Places:
    places = _Places(list(accumulate(map(_size, steps))))
    open_: list[tuple[int, list[int]]] = []
    for number, step in enumerate(steps):
        code, end = _CODES.get(step.name), places.ends[number]
        if step.name == LABEL and step.operands and isinstance(step.operands[0], str):
            places.labels.setdefault(step.operands[0], number)
        elif code == LOOP_START:
            open_.append((end, []))
        elif code == BREAK and open_:
            open_[-1][1].append(number)
        elif code == LOOP_END and open_:
            body, breaks = open_.pop()
            places.targets[number] = body
            places.targets.update(dict.fromkeys(breaks, end))
    return places


def _size(step: Step) -> int:
    """The bytes of a step, as far as they can be told."""
    if step.name not in _CODES:
        return 0
    opcode = OPCODES[_CODES[step.name]]
    first = step.operands[0] if step.operands else None
    more = opcode.more.get(first, ()) if isinstance(first, int) else ()
    slots = sum(len(item) for item in step.operands if isinstance(item, tuple))
    return 1 + slots + sum(operand.kind.size for operand in (*opcode.operands, *more))


def _resolve(number: int, step: Step, places: _Places) -> Step | None:
    code, end = _CODES.get(step.name), places.ends[number]
    if step.name == LABEL:
        is_first = len(step.operands) == 1 and places.labels.get(str(step.operands[0])) == number
        return None if is_first else step
    if code == BRANCH and len(step.operands) == _CONDITIONAL and isinstance(step.operands[1], str):
        label = places.labels.get(step.operands[1])
        return step if label is None else _with(step, places.ends[label] - end)
    wanted = {LOOP_END: 0, BREAK: 1}.get(code) if code is not None else None
    if wanted == len(step.operands) and number in places.targets:
        return _with(step, places.targets[number] - end)
    return step


def _with(step: Step, distance: int) -> Step:
    """The step with a distance as its last operand."""
    kept = tuple(item for item in step.operands if not isinstance(item, str))
    return replace(step, operands=(*kept, distance))
