"""A tensor-language file, read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.limits import Limits
from lamella.base.paths import read_text, shown
from lamella.base.source import Source
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.nodes import Function, Program
from lamella.lang.tensor.rules import memory


@dataclass(frozen=True, slots=True)
class KernelFile:
    """The kernels of a file and what was found."""

    source: Source
    program: Program
    findings: tuple[Diagnostic, ...]

    def __repr__(self) -> str:
        return f"<kernels of {self.source.name}: {', '.join(item.name for item in self.program.functions)}>"

    @property
    def language(self) -> str:
        """The language that the model is written in."""
        return "tensor"


def read_kernels(path: Path, limits: Limits) -> KernelFile:
    """Read and check a file; findings are carried, nothing is raised for them."""
    source = Source(shown(path), read_text(path, limits))
    with collector_paused():
        program, findings = parse(source, limits)
        found = [*findings, *([] if errors(findings) else check(program))]
    return KernelFile(source, program, tuple(sort_findings(found)))


def read_checked(path: Path, limits: Limits) -> KernelFile:
    """Read and check a file; LamellaError holds its findings when there are errors among them."""
    found = read_kernels(path, limits)
    if errors(found.findings):
        raise LamellaError(errors(found.findings))
    return found


def find_doubts(model: KernelFile, function: Function) -> list[Diagnostic]:
    """The accesses of a kernel of which `check` has not proved that they stay inside; a launch verifies the rest."""
    codes = {rule.code for rule in (memory.LEAVES, memory.CAN_LEAVE, memory.UNPROVED, memory.WRONG_EXPANSION)}
    start, end = function.span.start, function.span.end
    return [item for item in model.findings if item.code in codes and start <= item.span.start < end]
