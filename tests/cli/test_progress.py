"""Progress is for people: on a terminal, and only when it takes a while."""

from __future__ import annotations

import io
import sys
import time

import pytest

from lamella.backend.cpu.compile import FEWEST_SHARED, compile_program
from lamella.base.source import Source
from lamella.cli import progress, waiting
from lamella.lang.tensor import parse


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "patience", "shown"),
    [(Terminal(), 0.0, True), (Terminal(), 1000.0, False), (io.StringIO(), 0.0, False)],
    ids=["long on a terminal", "short on a terminal", "long in a file"],
)
def test_a_bar_where_a_person_looks(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, patience: float, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    assert list(progress.show_progress(range(100), 100)) == list(range(100))
    assert bool(stream.getvalue()) == shown


@pytest.mark.parametrize(
    ("stream", "patience", "shown"),
    [(Terminal(), 0.0, True), (Terminal(), 1000.0, False), (io.StringIO(), 0.0, False)],
    ids=["long on a terminal", "short on a terminal", "long in a file"],
)
def test_words_that_are_taken_back(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, patience: float, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(waiting, "PATIENCE", patience)
    with waiting.waiting("reading x"):
        end = time.monotonic() + 10
        while shown and not stream.getvalue() and time.monotonic() < end:
            time.sleep(0.001)
    assert stream.getvalue() == (f"reading x …{waiting.ERASE}" if shown else "")


def test_kernels_are_counted_while_they_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    monkeypatch.setenv("LAMELLA_CACHE", "")
    functions = "".join(f"func @f{number}(%x: memref<f32x4>) {{\n}}\n" for number in range(FEWEST_SHARED))
    with waiting.waiting("reading x"):
        end = time.monotonic() + 10
        while not stream.getvalue() and time.monotonic() < end:
            time.sleep(0.001)
        compile_program(parse(Source("f.tensor", functions)).program)
    assert "compiling kernels" in stream.getvalue()
    assert f"100 %{waiting.ERASE}" in stream.getvalue()
