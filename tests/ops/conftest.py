"""The operators' tests: the mark that says who judges, and the table at the end."""

from __future__ import annotations

from tests.ops.judges.summary import pytest_configure, pytest_terminal_summary

__all__ = ["pytest_configure", "pytest_terminal_summary"]
