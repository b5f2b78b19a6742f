"""One resolved task against its opcode: operands, attribute values, shapes, element types, device.

One root error never cascades: what a rule needs to make sense is checked before it, and silences it when wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nem.check.attributes import check_attributes
from lamella.lang.nem.check.operands import (
    MOVES,
    Call,
    check_counts,
    check_layouts,
    check_move,
    check_ranks,
    read_call,
)
from lamella.lang.nem.check.shapes import check_shapes
from lamella.lang.nem.check.types import check_types
from lamella.lang.nem.device import FamilyVariant, ResolvedDevice
from lamella.lang.nem.registry import Opcode
from lamella.lang.nem.resolved import Task
from lamella.lang.nem.rules import FUTURE_OPCODE, GENERIC_OPERATION


def check_task(
    task: Task, opcode: Opcode, variants: Sequence[FamilyVariant], device: ResolvedDevice | None
) -> tuple[list[Diagnostic], str]:
    """The findings of one task, and the type variant that it matches ("" where none applies).

    `variants` are those of `families_of(opcode)`; without a device only legality is judged.
    """
    findings = list(_check_status(task, opcode))
    wrong = list(check_counts(task, opcode))
    if wrong or opcode.name in MOVES:
        return findings + (wrong or list(check_move(task))), ""
    call, untyped = read_call(task, opcode)
    if call is None:
        return findings + untyped, ""
    types, variant = check_types(call, variants, device)
    return [*findings, *_check_geometry(call), *types], variant


def _check_status(task: Task, opcode: Opcode) -> Iterator[Diagnostic]:
    """Future opcodes and generic operations are legal; they are pointed out."""
    span = task.node.opcode.span
    if opcode.status == "future":
        yield FUTURE_OPCODE.at(span, opcode=opcode.name)
    if opcode.hardware == "escape_hatch" and "op" in task.attributes:
        yield GENERIC_OPERATION.at(span, name=task.attributes["op"])


def _check_geometry(call: Call) -> list[Diagnostic]:
    """Ranks and layouts, then attribute values, then shapes: the first that is wrong silences the rest."""
    return (
        [*check_ranks(call), *check_layouts(call)] or list(check_attributes(call)) or list(check_shapes(call))
    )
