"""A tensor-language file, read and checked."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic, errors, sort_findings
from lamella.base.gc import gc_paused
from lamella.base.levels import at_level
from lamella.base.limits import Limits
from lamella.base.paths import read_text, shown
from lamella.base.source import Source
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.nodes import Program
from lamella.lang.tensor.write import card_of_kernels


class KernelFile:
    """The kernels of a file and what was found; checks that nobody has asked for yet are made when somebody does."""

    def __init__(
        self, source: Source, program: Program, findings: tuple[Diagnostic, ...] | None = None
    ) -> None:
        self.source = source
        self.program = program
        self._findings = findings

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """What it is: the names of its kernels."""
        return card_of_kernels(self.source.name, self.program)

    @property
    def language(self) -> str:
        """The language that the model is written in."""
        return "tensor"

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """What was found, in the order of the text."""
        if self._findings is None:
            with gc_paused():
                self._findings = tuple(check(self.program))
        return self._findings


def read_kernels(path: Path, limits: Limits) -> KernelFile:
    """Read and check a file; findings are carried, nothing is raised for them."""
    source = Source(shown(path), read_text(path, limits))
    with gc_paused():
        program, findings = parse(source, limits)
        found = [*findings, *check(_readable(program, findings))]
    return KernelFile(source, program, tuple(sort_findings(found)))


def _readable(program: Program, findings: Iterable[Diagnostic]) -> Program:
    """The functions without syntax errors: what others say depends on what could not be read."""
    starts = sorted(finding.span.start for finding in errors(findings))
    if not starts:
        return program
    spans = ((item, item.span) for item in program.functions)
    kept = (item for item, at in spans if bisect_left(starts, at.start) == bisect_right(starts, at.end))
    return replace(program, functions=tuple(kept))
