"""From nodes to numbers: names looked up, constants evaluated, regions, tasks and loops made into a plan."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Source
from lamella.lang.nem import nodes
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.resolve.statements import Statements
from lamella.lang.nem.resolved import Plan


@dataclass(frozen=True, slots=True)
class Resolution:
    """A plan and what was found on the way; `complete` is False when statements had to be left out."""

    plan: Plan
    findings: tuple[Diagnostic, ...]
    complete: bool


def resolve(document: nodes.Document, source: Source, device: ResolvedDevice | None) -> Resolution:
    """The plan that a program's text says; `device` is the target, where one is known."""
    statements = Statements(device)
    body = statements.program(document.statements)
    plan = Plan(
        document.name.id if document.name else "",
        source,
        device,
        tuple(statements.buffers),
        body,
        statements.regions,
        tuple(statements.declared),
    )
    complete = statements.complete and not statements.values.met_poison
    return Resolution(plan, tuple(statements.findings), complete)
