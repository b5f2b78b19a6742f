"""The table operator × judge at the end of a test run."""

from __future__ import annotations

import pytest

from tests.support.judges.registry import table


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known with which tests say whom they ask about which operators."""
    config.addinivalue_line(
        "markers", "judged(judge, *operators): asks a judge about operators of the library"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print who judges what, where the operators were tested."""
    reports = terminalreporter.stats.get("passed", ())
    if not any(item.nodeid.startswith("tests/ops/test_table.py") for item in reports):
        return
    found = table()
    terminalreporter.section(f"{len(found)} operators and their judges")
    for name, judges in sorted(found.items()):
        terminalreporter.line(f"{name:<36}{', '.join(judges)}")
