"""What `bench.cuda_targets` says of benchmarks that fail, miss what they have to reach, or do neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import cuda_targets
from bench.cuda_targets import Job, run, tell


@pytest.mark.parametrize(
    ("arguments", "missed", "told"),
    [
        ("timeit -n 1 -r 1 pass", 0, ""),
        ("timeit --no-such-option", 1, "ended with status 2"),
        ("http.server --bind 127.0.0.1 0", 1, "stopped after 1 s"),
    ],
)
def test_a_benchmark_that_fails_is_a_figure_missed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    missed: int,
    told: str,
) -> None:
    monkeypatch.setitem(cuda_targets.JOBS, "codes", Job(arguments, {}))
    assert tell("codes", *run("codes", 1.0, tmp_path)) == missed
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(("value", "missed"), [(1.0, 0), (0.9, 1), (float("nan"), 1), (None, 1)])
def test_figures_are_held_to_what_they_have_to_reach(
    monkeypatch: pytest.MonkeyPatch, value: float | None, missed: int
) -> None:
    monkeypatch.setitem(cuda_targets.JOBS, "codes", Job("", {"speed": 1.0}))
    assert tell("codes", {} if value is None else {"speed": value}, "") == missed
