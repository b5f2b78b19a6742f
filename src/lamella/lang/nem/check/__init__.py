"""The language's own rules on a document: its includes, devices and families, names, regions, tasks and types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.nem.check.tasks import check_task
from lamella.lang.nem.check.types import families_of
from lamella.lang.nem.device import FamilyVariant, ResolvedDevice
from lamella.lang.nem.devices import check_devices, pick_target
from lamella.lang.nem.documents import Library, load
from lamella.lang.nem.families import variants_of
from lamella.lang.nem.registry import load_registry
from lamella.lang.nem.resolve import resolve
from lamella.lang.nem.resolved import Item, Loop, Plan, Task


@dataclass(frozen=True, slots=True)
class Checked:
    """A document with what was found in it; `plan` is None unless it holds a program that could be read whole."""

    library: Library
    findings: tuple[Diagnostic, ...]
    plan: Plan | None = None
    complete: bool = False


def check(
    source: Source,
    path: Path | None = None,
    device: str | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
) -> Checked:
    """Check a document; `device` (a shipped name or a file) replaces the target the program names.

    Includes stay below `root`, by default the folder of the document.
    """
    library = load(source, path, limits, root, device)
    findings = [*library.findings, *check_devices(library)]
    if not library.document.is_program:
        return Checked(library, tuple(sort_findings(findings)))
    target, problems = pick_target(library)
    resolution = resolve(library.document, source, target)
    findings += [*problems, *resolution.findings]
    body = _check_types(resolution.plan.body, _Types(library, target), findings)
    plan = replace(resolution.plan, body=body)
    return Checked(library, tuple(sort_findings(findings)), plan, resolution.complete)


class _Types:
    """The family variants of each opcode, looked up once."""

    def __init__(self, library: Library, device: ResolvedDevice | None) -> None:
        self.device = device
        self._library = library
        self._variants: dict[str, tuple[FamilyVariant, ...]] = {}

    def variants(self, opcode: str) -> tuple[FamilyVariant, ...]:
        """All variants of the opcode's families that are visible here."""
        if opcode not in self._variants:
            families = families_of(load_registry()[opcode])
            self._variants[opcode] = variants_of(self._library.variants, families)
        return self._variants[opcode]


def _check_types(body: tuple[Item, ...], types: _Types, findings: list[Diagnostic]) -> tuple[Item, ...]:
    """The same items, each task with the type variant it matched."""
    items: list[Item] = []
    for item in body:
        if isinstance(item, Loop):
            items.append(replace(item, body=_check_types(item.body, types, findings)))
        elif isinstance(item, Task):
            found, variant = check_task(
                item, load_registry()[item.opcode], types.variants(item.opcode), types.device
            )
            findings += found
            items.append(replace(item, variant=variant) if variant else item)
        else:
            items.append(item)
    return tuple(items)
