"""The orchestrator's plan: verified before anything could run it, and never run here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import Diagnostic, Label
from lamella.lang.nac.check.sections.decode import Step, Stop, decode
from lamella.lang.nac.check.sections.loops import check_jumps
from lamella.lang.nac.check.sections.opcodes import HALT, OPCODES, RETURN, Kind
from lamella.lang.nac.nodes import V1_5, V1_6, Constant, File
from lamella.lang.nac.rules import sections as rules

MOST_BYTES = 1 << 18
"""The longest bytecode that is taken apart; jumps reach 32767 bytes."""


def check_plan(file: File) -> Iterator[Diagnostic]:
    """The plan of a file: opcodes, operands, constants, slots, models, jumps and its end."""
    yield from _check_pool(file)
    length = len(file.orchestrator.bytecode)
    if length > MOST_BYTES:
        yield rules.PLAN_LENGTH.at(file.orchestrator.span, length=length, limit=MOST_BYTES)
        return
    items = list(decode(file.orchestrator.bytecode))
    steps = [item for item in items if isinstance(item, Step)]
    yield from _check_versions(file, steps)
    yield from _check_references(file, steps)
    if len(steps) < len(items):
        yield _stopped(file, items[-1])
        return
    yield from check_jumps(steps, file.orchestrator.span)
    if steps and steps[-1].code not in (RETURN, HALT):
        yield rules.PLAN_END.at(file.orchestrator.span)


def _stopped(file: File, stop: Step | Stop) -> Diagnostic:
    """Why the bytecode cannot be read to its end."""
    span, offset = file.orchestrator.span, stop.offset
    if stop.code not in OPCODES:
        return rules.PLAN_OPCODE.at(span, offset=offset, opcode=stop.code, version=file.header.version)
    wanted = stop.wanted if isinstance(stop, Stop) else 0
    left = len(file.orchestrator.bytecode) - offset
    return rules.PLAN_CUT.at(span, name=OPCODES[stop.code].name, offset=offset, wanted=wanted, left=left)


def _check_pool(file: File) -> Iterator[Diagnostic]:
    """Constants of the plan have one value each."""
    first: dict[int, Constant] = {}
    for item in file.orchestrator.constants:
        if first.setdefault(item.id, item) is not item:
            labels = [Label(first[item.id].span, "given here first")]
            yield rules.PLAN_CONSTANT_TWICE.at(item.span, id=item.id, labels=labels)


def _check_versions(file: File, steps: Sequence[Step]) -> Iterator[Diagnostic]:
    """Instructions and their variants exist in the version of the file."""
    span, version = file.orchestrator.span, file.header.version
    old = version in (V1_5, V1_6)
    for step in steps:
        if old and step.opcode.is_new:
            yield rules.PLAN_OPCODE.at(span, offset=step.offset, opcode=step.code, version=version)
        for operand, value in step.operands:
            known = operand.variants if old else operand.variants + operand.newer
            if operand.kind is Kind.CHOICE and value not in known:
                shown = ", ".join(map(str, known))
                yield rules.PLAN_CHOICE.at(
                    span, name=step.opcode.name, offset=step.offset, choice=value, known=shown
                )


def _check_references(file: File, steps: Sequence[Step]) -> Iterator[Diagnostic]:
    """What an instruction uses is there: constants in the pool, slots and models that some instruction fills."""
    span = file.orchestrator.span
    constants = {item.id for item in file.orchestrator.constants}
    written = {slot for step in steps for slot in step.values(Kind.WRITE)}
    loaded = {model for step in steps for model in step.values(Kind.LOADED)}
    for step in steps:
        name, offset = step.opcode.name, step.offset
        for id_ in (*step.values(Kind.CONSTANT), *filter(None, step.values(Kind.OPTIONAL))):
            if id_ not in constants:
                yield rules.PLAN_CONSTANT.at(span, name=name, offset=offset, id=id_)
        for slot in step.values(Kind.READ):
            if slot not in written:
                yield rules.PLAN_SLOT.at(span, name=name, offset=offset, slot=slot)
        for model in step.values(Kind.MODEL):
            if model not in loaded:
                yield rules.PLAN_MODEL.at(span, name=name, offset=offset, model=model)
