"""Findings of one instantiation: each place is told once, and what follows from a mistake is not told at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.errors import Found
from lamella.base.source import NOWHERE, Span

T = TypeVar("T")


class Findings:
    """The findings so far, in order."""

    __slots__ = ("_seen", "items")

    def __init__(self) -> None:
        self.items: list[Diagnostic] = []
        self._seen: set[tuple[str, str, int, int]] = set()

    def add(self, *findings: Diagnostic) -> None:
        """Keep findings, unless the same was said of the same place before."""
        for finding in findings:
            span = finding.span
            key = (finding.code, finding.message if span is NOWHERE else "", span.start, span.end)
            place = (key[0], f"{key[1]} {id(span.source)}", key[2], key[3])
            if place not in self._seen:
                self._seen.add(place)
                self.items.append(finding)

    def attempt(self, compute: Callable[[], T]) -> T | None:
        """The result of a computation, or None with its finding kept."""
        try:
            return compute()
        except Found as problem:
            self.add(problem.finding)
            return None


def with_label(findings: Iterable[Diagnostic], span: Span, text: str) -> list[Diagnostic]:
    """Findings that also say which place asked for what is wrong."""
    if not span.source.text:
        return list(findings)
    label = Label(span, text)
    return [item if item.labels else replace(item, labels=(label,)) for item in findings]
