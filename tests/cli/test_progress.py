"""Progress is for people: on a terminal, and only when it takes a while."""

from __future__ import annotations

import io
import sys

import pytest

from lamella.cli.progress import FEW, watch


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "total", "shown"),
    [(Terminal(), FEW, True), (Terminal(), FEW - 1, False), (io.StringIO(), FEW, False)],
    ids=["long on a terminal", "short on a terminal", "long in a file"],
)
def test_a_bar_where_a_person_looks(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, total: int, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    assert list(watch(range(total), total)) == list(range(total))
    assert bool(stream.getvalue()) == shown
