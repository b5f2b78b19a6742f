"""The exception that carries a finding out of a computation; it never leaves the language and its callers."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic


class Problem(Exception):
    """Something has no value; carries the finding that says why."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding
