"""The kernels of a NEM program: one file of the tensor language beside it, PROGRAM.tensor for PROGRAM.nem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamella.backend.npu.stream import plan_of
from lamella.backend.npu.vpu import count_work, kernels_of
from lamella.base.diagnostic import NOTE, Diagnostic, errors
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.nem.check.kernels import COMPUTE, check_kernels, kernel_name
from lamella.lang.nem.resolved import ComputeKernel, Item, Loop, Plan, Task
from lamella.lang.tensor import check, parse
from lamella.plan.stcb.nodes import Stream


def read_kernels(
    source: Source, limits: Limits = DEFAULT
) -> tuple[Mapping[str, ComputeKernel] | None, list[Diagnostic]]:
    """The kernels of a text, and what is wrong with it; none where there are errors.

    What the language cannot decide without the sizes of a call is not said: every launch is tested or proved.
    """
    parsed = parse(source, limits)
    found = [*parsed.findings]
    if not errors(found):
        found += check(parsed.program)
    told = [item for item in found if item.severity != NOTE]
    return (None if errors(found) else kernels_of(parsed.program)), told


def link(plan: Plan, kernels: Mapping[str, ComputeKernel], file: str) -> tuple[Plan, list[Diagnostic]]:
    """The plan with its kernels, and what does not fit; each `compute` task knows its work and its rows."""
    found = list(check_kernels(plan.tasks(), kernels, file))
    if errors(found):
        return plan, found
    used = {kernel_name(task) for task in plan.tasks() if task.opcode == COMPUTE}
    # A task that names no operation is in error already, and has no kernel.
    mine = {name: kernel for name, kernel in kernels.items() if name in used}
    return replace(plan, kernels=mine, body=_with_work(plan.body, mine)), found


def _with_work(body: tuple[Item, ...], kernels: Mapping[str, ComputeKernel]) -> tuple[Item, ...]:
    items: list[Item] = []
    for item in body:
        if isinstance(item, Loop):
            items.append(replace(item, body=_with_work(item.body, kernels)))
        elif isinstance(item, Task) and item.opcode == COMPUTE and kernel_name(item) in kernels:
            kernel = kernels[kernel_name(item)]
            rows = tuple(parameter.by_rows for parameter in kernel.parameters if parameter.shape is not None)
            items.append(replace(item, work=count_work(item, kernel), by_rows=rows))
        else:
            items.append(item)
    return tuple(items)


def check_stream(stream: Stream) -> None:
    """Refuse a stream whose records do not fit the kernels that it carries."""
    plan_of(stream)
