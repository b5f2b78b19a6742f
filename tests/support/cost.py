"""Where a test run spends processor time: seconds by area, by file and by test, those of child processes counted in.

A plugin of pytest that is loaded by name: `pytest -p tests.support.cost tests/graph`. It counts what the clock on the
wall cannot tell apart on a machine that others use.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

CPU = "cpu"
"""The name under which a report carries its seconds from a worker to the process that prints."""
TICKS = os.sysconf("SC_CLK_TCK")
FILES, TESTS = 30, 40
"""How many files and tests are listed, the most expensive ones first."""


def seconds() -> float:
    """The processor time of this process, of its children, and of theirs that have ended."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + sum(map(_of_child, _children()))


def _children() -> list[str]:
    found: list[str] = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread ended in between
            found += (thread / "children").read_text(encoding="ascii").split()
    return found


def _of_child(number: str) -> float:
    try:
        stat = Path(f"/proc/{number}/stat").read_text(encoding="utf-8")
    except OSError:  # it ended in between: what it used is counted with the ended ones next time
        return 0.0
    return sum(map(int, stat.rpartition(")")[2].split()[11:15])) / TICKS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note the time at which a test begins, fixtures included."""
    item.stash[_BEGAN] = seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give each part of a test (set-up, call, end) the seconds since the part before it."""
    report = yield
    now = seconds()
    report.user_properties = [*report.user_properties, (CPU, now - item.stash[_BEGAN])]
    item.stash[_BEGAN] = now
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables."""
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == CPU:
                    spent[report.nodeid] += value
    terminalreporter.section(f"processor time: {sum(spent.values()):.1f} s in {len(spent)} tests")
    for title, most, key in (("area", None, _area), ("file", FILES, _file), ("test", TESTS, str)):
        table: Counter[str] = Counter()
        for test, value in spent.items():
            table[key(test)] += value
        terminalreporter.line(f"by {title}:")
        for name, value in table.most_common(most):
            terminalreporter.line(f"{value:9.2f}  {name}")


def _area(test: str) -> str:
    return "/".join(test.split("/")[:2])


def _file(test: str) -> str:
    return test.partition("::")[0]


_BEGAN = pytest.StashKey[float]()
