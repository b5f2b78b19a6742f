"""A NEM program or a bound stream as the API hands it around."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.errors import InputError
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import STANDARD_INPUT, read_text, shipped, shown
from lamella.base.source import Source
from lamella.lang.nem import Document, Plan, check
from lamella.lang.nem.device import ResolvedDevice
from lamella.plan.verify import verify


@dataclass(frozen=True, slots=True)
class Program:
    """A checked NEM file: its document, its plan (None for a configuration) and what was found."""

    path: Path | None
    source: Source
    document: Document
    plan: Plan | None
    findings: tuple[Diagnostic, ...]

    def __repr__(self) -> str:
        if self.plan is None:
            return f"<NEM configuration {self.source.name}>"
        device = self.plan.device.name if self.plan.device else "no device"
        tasks = sum(1 for _ in self.plan.tasks())
        return f"<NEM program {self.plan.name or self.source.name}: {tasks} tasks, {device}>"

    @property
    def language(self) -> str:
        """The language that the model is written in."""
        return "nem"

    @property
    def device(self) -> ResolvedDevice | None:
        """The target device."""
        return self.plan.device if self.plan else None


def read_source(path: Path, limits: Limits) -> Source:
    """The text of a file, called as the user called it; a shipped one by its place in the package."""
    name = shown(path) if path == STANDARD_INPUT else str(path)
    if path.parent == shipped("devices"):
        name = f"lamella/devices/{path.name}"
    return Source(name, read_text(path, limits))


def read_program(
    path: Path, device: str | None = None, limits: Limits = DEFAULT, root: Path | None = None
) -> Program:
    """Read and check a NEM file; findings are carried, nothing is raised for them."""
    source = read_source(path, limits)
    return check_program(source, None if path == STANDARD_INPUT else path, device, limits, root)


def read_checked(
    path: Path, device: str | None = None, limits: Limits = DEFAULT, root: Path | None = None
) -> Program:
    """Read and check a NEM file; LamellaError holds its findings when there are errors among them."""
    program = read_program(path, device, limits, root)
    if errors(program.findings):
        raise LamellaError(program.findings)
    return program


def plan_of(program: Program) -> Plan:
    """The plan of a program; a configuration has none."""
    if program.plan is None:
        hint = "it may define devices and type families, which `lamella show` lists"
        raise InputError("the file holds no program", path=program.path, hint=hint)
    return program.plan


def check_program(
    source: Source,
    path: Path | None = None,
    device: str | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
) -> Program:
    """The language's rules, then the lowering to the plan, then the plan's own rules."""
    with gc_paused():
        checked = check(source, path, device, limits, root)
        findings = list(checked.findings)
        if checked.plan is not None and checked.complete:
            findings += verify(checked.plan, limits)
    found = tuple(sort_findings(findings))
    plan = checked.plan if checked.complete and not errors(checked.findings) else None
    return Program(path, source, checked.library.document, plan, found)
