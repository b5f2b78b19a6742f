"""Executes a plan on a memory image, one task instance after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lamella.backend.npu.access import Access, reads_of, writes_of
from lamella.backend.npu.findings import Findings
from lamella.backend.npu.memory import Memory
from lamella.backend.npu.opcodes import Operand, apply
from lamella.backend.npu.order import Instance
from lamella.base.diagnostic import Diagnostic, LamellaError, Rule
from lamella.lang.nem.resolved import Plan, Task
from lamella.lang.nem.rules import MEMORY_NEEDED, UNINITIALISED


def run_plan(plan: Plan, memory: Memory, order: Iterable[Instance]) -> list[Diagnostic]:
    """Run the instances in a legal order; an error ends the run, warnings do not. The findings are returned."""
    findings = Findings(plan)
    for task, iteration in order:
        try:
            run_instance(memory, findings, task, iteration)
        except LamellaError as problem:
            return [*findings.diagnostics(), *problem.findings]
        except MemoryError:
            return [*findings.diagnostics(), _too_large(plan, task)]
        if findings.failed:
            break
    return findings.diagnostics()


def run_instance(memory: Memory, findings: Findings, task: Task, iteration: Mapping[int, int]) -> None:
    """Read the operands, apply the opcode, write the results unless an error was found."""

    def report(rule: Rule, **values: object) -> None:
        findings.add(task, iteration, rule, values)

    reads, writes = reads_of(task, iteration), writes_of(task, iteration)
    for access in reads:
        missing = memory.unwritten(access.buffer, access.offset, access.type)
        if missing is not None:
            report(UNINITIALISED, range=f"bytes [{missing[0]}, {missing[1]})", buffer=access.buffer)
    operands = [_load(memory, access) for access in reads]
    results = apply(task.opcode, operands, [access.type for access in writes], task.attributes, report)
    if findings.failed:
        return
    for access, values in zip(writes, results, strict=True):
        memory.write(access.buffer, access.offset, access.type, values)


def _load(memory: Memory, access: Access) -> Operand:
    return Operand(memory.read(access.buffer, access.offset, access.type), access.type)


def _too_large(plan: Plan, task: Task) -> Diagnostic:
    needed = sum(buffer.size for buffer in plan.buffers)
    return MEMORY_NEEDED.at(task.span, needed=needed, limit="the memory of this machine")
