"""Rules, findings and how they are shown."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

from lamella.base.records import dataclass
from lamella.base.source import NOWHERE, Span

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that a finding speaks of."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: what is wrong, where, and how to repair it."""

    code: str
    severity: str
    message: str
    span: Span = NOWHERE
    hint: str = ""
    labels: tuple[Label, ...] = ()
    origins: tuple[str, ...] = ()

    def __str__(self) -> str:
        return render(self)

    def __repr__(self) -> str:
        return f"<{printable(render(self, lines=False).partition(chr(10))[0], 200)}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(render(self))}</pre>"

    def from_origin(self, *origins: str) -> Diagnostic:
        """The same finding with the chain of things it was made from."""
        return replace(self, origins=origins)

    def to_json(self) -> dict[str, object]:
        """The finding as the command line's `--json` prints it."""
        line, column = self.span.source.place(self.span.start)
        end_line, end_column = self.span.source.place(self.span.end)
        return {
            "file": self.span.source.name,
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "labels": [
                {
                    "file": item.span.source.name,
                    "line": item.span.line,
                    "column": item.span.column,
                    "text": item.text,
                }
                for item in self.labels
            ],
            "origins": list(self.origins),
        }


class _Quoting(string.Formatter):
    """Fills a rule's sentence; what comes from a file is made safe to print."""

    def format_field(self, value: object, format_spec: str) -> str:
        return printable(format(value, format_spec))


_FORMATTER = _Quoting()


@dataclass(frozen=True, slots=True)
class Rule:
    """One normative statement of a language: its code, its place in the specification, its sentence."""

    code: str
    section: str
    sentence: str
    severity: str = ERROR
    hint: str = ""

    def also(self, sentence: str, hint: str = "") -> Rule:
        """The same rule as it is said of another situation."""
        return replace(self, sentence=sentence, hint=hint)

    def at(
        self, span: Span, *, hint: str | None = None, labels: Iterable[Label] = (), **values: object
    ) -> Diagnostic:
        """A finding of this rule at a place, its sentence filled with the names and numbers at hand."""
        message = _FORMATTER.format(self.sentence, **values)
        advice = _FORMATTER.format(self.hint, **values) if hint is None else printable(hint)
        return Diagnostic(self.code, self.severity, message, span, advice, tuple(labels))


class LamellaError(Exception):
    """What the public boundary raises: all findings at once."""

    def __init__(self, findings: Sequence[Diagnostic]) -> None:
        super().__init__("\n".join(render(item) for item in findings))
        self.findings = tuple(findings)


def errors(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings that are errors."""
    return [item for item in findings if item.severity == ERROR]


def printable(text: str, limit: int = 2000) -> str:
    """Text that is safe on a terminal: control characters and bidirectional overrides are escaped, length bounded."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def render(finding: Diagnostic, lines: bool = True) -> str:
    """A finding as a person reads it: the sentence, the source line with carets, labels, hint, origin chain."""
    head = f"{finding.severity}[{finding.code}]: {finding.message}"
    parts = []
    if finding.span.source is NOWHERE.source:
        parts.append(head)
    else:
        parts.append(f"{_position(finding.span)}: {head}")
        if lines:
            parts += _excerpt(finding.span, "")
    for label in finding.labels:
        parts.append(f"  {_position(label.span)}: {label.text}")
        if lines:
            parts += _excerpt(label.span, "")
    if finding.hint:
        parts.append(f"  hint: {finding.hint}")
    if finding.origins:
        parts.append(f"  from: {'  <-  '.join(finding.origins)}")
    return "\n".join(parts)


def _position(span: Span) -> str:
    return f"{printable(span.source.name)}:{span.source.tell(span.start)}"


WIDTH = 160


def _excerpt(span: Span, text: str) -> list[str]:
    """The source line with carets below it; long lines are cut around the place."""
    if not span.source.text:
        return []
    number, column = span.source.place(span.start)
    line = span.source.line(number)
    length = max(1, min(span.end - span.start, len(line) - column + 1))
    first = max(0, column - 1 - WIDTH // 2) if len(line) > WIDTH else 0
    shown = "".join(c if c.isprintable() else " " for c in line[first : first + WIDTH])
    gutter = f"{number:>3} | "
    carets = "^" * min(length, max(1, WIDTH - (column - 1 - first)))
    return [gutter + shown, " " * (len(gutter) - 2) + "| " + " " * (column - 1 - first) + carets + text]


def sort_findings(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Findings in the order of their places, each once."""
    unique = dict.fromkeys(findings)
    return sorted(unique, key=lambda item: (item.span.source.name, item.span.start, item.code))
