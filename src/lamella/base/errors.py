"""The errors of reading and writing files: one finding each, in the words of the file."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, Rule
from lamella.base.source import NOWHERE, Source, Span

UNREADABLE = Rule("LAM001", "Files", "{message}")
UNWRITABLE = Rule("LAM002", "Files", "{message}")
MISSING_PACKAGE = Rule("LAM003", "Packages", "{message}")
RULES = (UNREADABLE, UNWRITABLE, MISSING_PACKAGE)


def cause_of(problem: OSError) -> str:
    """What the operating system says, in our style."""
    words = problem.strerror or str(problem)
    return words[:1].lower() + words[1:]


def _place(path: Path | str | None) -> Span:
    """The start of a file whose text is not at hand."""
    return NOWHERE if path is None else Span(Source(str(path), ""), 0, 0)


class InputError(LamellaError):
    """A file or its bytes cannot be taken; `offset` counts bytes from the start of the file."""

    def __init__(
        self,
        message: str,
        offset: int | None = None,
        *,
        path: Path | str | None = None,
        hint: str = "",
        span: Span | None = None,
    ) -> None:
        self.message = message
        self.offset = offset
        self.hint = hint
        sentence = message if offset is None else f"{message} (at byte {offset})"
        super().__init__([UNREADABLE.at(span or _place(path), hint=hint, message=sentence)])

    def within(self, path: Path | str) -> InputError:
        """The same error of a file, for readers that know only bytes."""
        return InputError(self.message, self.offset, path=path, hint=self.hint)


class OutputError(LamellaError):
    """A file cannot be written; what stood there before is still there unless the sentence says otherwise."""

    def __init__(self, message: str, *, path: Path | str, hint: str = "") -> None:
        self.message = message
        self.path = str(path)
        super().__init__([UNWRITABLE.at(_place(path), hint=hint, message=message)])


class Unsupported(Exception):
    """A lowering cannot express something; its text says why. Whoever tried takes another way or makes it a finding."""


class Malformed(Exception):
    """A value of an untrusted file is not what its format asks for; its text is the rest of a sentence about it.

    Never leaves the reader of the file, which makes it a finding with a place; `details` help it to find that.
    """

    def __init__(self, *reason: object, **details: object) -> None:
        super().__init__(*reason)
        self.details = details


class Found(Exception):
    """Carries findings out of deep code to the boundary that collects them; only that boundary catches it."""

    def __init__(self, *findings: Diagnostic) -> None:
        super().__init__("; ".join(item.message for item in findings))
        self.findings = findings

    @property
    def finding(self) -> Diagnostic:
        """The finding, where it carries one."""
        return self.findings[0]
