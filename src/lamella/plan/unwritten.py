"""Reads of local memory that nothing ever fills."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nem.resolved import Plan
from lamella.lang.nem.rules import NEVER_WRITTEN


def check_unwritten(plan: Plan) -> Iterator[Diagnostic]:
    """An L1 is filled by tasks alone: a buffer there that is read and never written holds nothing of meaning."""
    written = {region.buffer.name for task in plan.tasks() for region in task.outputs}
    told: set[str] = set()
    for task in plan.tasks():
        for number, region in enumerate(task.inputs):
            buffer = region.buffer
            if buffer.memory != "L1" or buffer.imported or buffer.name in written or buffer.name in told:
                continue
            told.add(buffer.name)
            operands = task.node.inputs
            span = operands[number].span if number < len(operands) else task.span
            yield NEVER_WRITTEN.at(span, task=task.title, buffer=buffer.name)
