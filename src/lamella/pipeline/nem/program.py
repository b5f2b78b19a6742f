"""A NEM program or a bound stream as the API hands it around."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath

from lamella.base.card import Card, make_table, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.errors import InputError
from lamella.base.gc import gc_paused
from lamella.base.levels import at_level
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import (
    STANDARD_INPUT,
    Refusal,
    default_root,
    is_there,
    read_text,
    resolve_include,
    shipped,
    shown,
)
from lamella.base.source import Source
from lamella.lang.nem import Document, Plan, check
from lamella.lang.nem.check.kernels import COMPUTE, check_kernels
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.rules import UNREADABLE_INCLUDE
from lamella.pipeline.languages import plan_kernels
from lamella.plan.verify import verify

KERNELS = ".tensor"
"""The ending of the file beside a program that holds the kernels of its `compute` tasks."""


@dataclass(frozen=True, slots=True)
class Program:
    """A checked NEM file: its document, its plan (None for a configuration) and what was found."""

    path: Path | None
    source: Source
    document: Document
    plan: Plan | None
    findings: tuple[Diagnostic, ...]

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """What it is: how many tasks of which opcodes on which device."""
        if self.plan is None:
            return Card("NEM configuration", self.source.name, ())
        tasks = list(self.plan.tasks())
        rows = ((item.token, item.opcode, str(item.span.line)) for item in tasks)
        device = self.plan.device.name if self.plan.device else "no device"
        facts = (("tasks", f"{len(tasks):,}"), ("device", device))
        table = make_table("tasks", ("token", "opcode", "line"), rows, len(tasks))
        return Card("NEM program", self.plan.name or self.source.name, facts, (table,))

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
    kernels: Source | None = None,
) -> Program:
    """The language's rules, then the lowering to the plan, then the plan's own rules.

    Kernels of compute tasks are those that are given, else those of the file beside the program.
    """
    with gc_paused():
        checked = check(source, path, device, limits, root)
        findings, plan = list(checked.findings), checked.plan
        if plan is not None:
            plan, found = _link(plan, path, root, limits) if kernels is None else _join(plan, kernels, limits)
            findings += found
        wrong = bool(errors(findings))
        if plan is not None and checked.complete:
            findings += verify(plan, limits)
    usable = plan if checked.complete and not wrong else None
    return Program(path, source, checked.library.document, usable, tuple(sort_findings(findings)))


def _link(plan: Plan, path: Path | None, root: Path | None, limits: Limits) -> tuple[Plan, list[Diagnostic]]:
    """The plan with the kernels of its `compute` tasks, which stand in the file beside it that ends in .tensor."""
    asking = next((task for task in plan.tasks() if task.opcode == COMPUTE), None)
    if asking is None:
        return plan, []
    place = None if path is None else path.with_suffix(KERNELS)
    if path is None or place is None or not is_there(place):
        return plan, list(check_kernels(plan.tasks(), None, ""))
    found = resolve_include(root or default_root(path), path, place.name, limits)
    if isinstance(found, Refusal):
        return plan, [UNREADABLE_INCLUDE.at(asking.span, path=place.name, cause=found.cause, hint=found.hint)]
    return _join(plan, Source(str(place), read_text(found, limits)), limits)


def _join(plan: Plan, text: Source, limits: Limits) -> tuple[Plan, list[Diagnostic]]:
    """The plan with the kernels of a text."""
    kernels, findings = plan_kernels().read_kernels(text, limits)
    if kernels is None:
        return plan, findings
    linked, more = plan_kernels().link(plan, kernels, PurePath(text.name).name)
    return linked, [*findings, *more]
