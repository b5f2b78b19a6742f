"""Findings on their way from where they are noticed to where a tokenizer is loaded."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic


class TokenizerProblem(Exception):
    """A tokenizer cannot be loaded; never leaves this folder."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding
