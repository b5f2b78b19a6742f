"""Choosing between ways by what is measured: here by a clock and a machine that say what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.object_cache import ObjectCache
from lamella.base.tuning import MeasuredWay, TuningReport
from lamella.base.watching import TUNED
from lamella.graph.model import Model
from lamella.kernels.candidates import Candidate, Place
from lamella.kernels.native_products import find_native
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.pipeline.kernels import tuning
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.kernels.tuning import Tuner
from lamella.pipeline.options import Options
from tests.support.cli.skriptnd_models import call

SMALL, LARGE, LIBRARY = "tiles of 32 x 64", "tiles of 64 x 64", "library"
TEXT = """
import nn;
graph Layers {
    @input { x: real[64,64]; }
    @variable { w: real[64,64]; v: real[256,64]; u: real[64,256]; }
    @output { y: real[64,64]; }
    @compose { a = nn.linear(x, w, 0.0); b = nn.linear(a, v, 0.0); y = nn.linear(b, u, 0.0); }
}
"""


class Machine:
    """Says times by the names of ways; each measurement takes a second."""

    def __init__(self, times: Mapping[str, float], name: str = "a GPU", has_library: bool = True) -> None:
        self.times, self.name, self._has_library = times, name, has_library
        self.measured: list[list[str]] = []
        self.now = 0.0

    @property
    def machine(self) -> str:
        return self.name

    @property
    def has_library(self) -> bool:
        return self._has_library

    def measure(
        self, candidates: Sequence[Candidate], fixed: frozenset[Place], until: float
    ) -> list[MeasuredWay] | None:
        self.now += 1
        if self.now > until:
            return None
        self.measured.append([item.name for item in candidates])
        assert fixed
        return [MeasuredWay(item.name, self.times.get(item.name, 1.0)) for item in candidates]


def tune(
    machine: Machine, store: ObjectCache | None = None, seconds: float = 30.0, native: bool = True
) -> Callable[[Model], KernelGraph]:
    tuner = Tuner(machine, store, seconds, native, lambda: machine.now)
    options = Options(precision="bf16")
    return lambda model: to_kernels(model, options, {}, True, find_target("sm_90a"), tuner)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    path = tmp_path / "layers.sknd"
    path.write_text(TEXT)
    found: Any = lamella.load(path)
    return prepare(found, Options(precision="bf16"), True)


def report_of(written: KernelGraph) -> TuningReport:
    assert written.tuning is not None
    return written.tuning


def test_the_fastest_way_is_written(model: Model) -> None:
    machine = Machine({LARGE: 0.5})
    written = tune(machine)(model)
    report = report_of(written)
    assert [item.chosen for item in report.products] == [LARGE] * 3
    assert not any(item.kept for item in report.products)
    usual = to_kernels(model, Options(precision="bf16"), {}, True, find_target("sm_90a"))
    assert written.program != usual.program
    assert {item.launches for item in report.products} == {1}


def test_the_largest_products_are_measured_first_until_the_time_is_up(model: Model) -> None:
    machine = Machine({LARGE: 0.5})
    report = report_of(tune(machine, seconds=2.5)(model))
    assert len(report.products) == 2
    assert report.left == 1
    # Two products are four times the third.
    assert len(machine.measured) == 2
    assert "1 not measured, the time was up" in next(report.lines())


def test_nothing_is_measured_where_there_is_no_time(model: Model) -> None:
    machine = Machine({LARGE: 0.5})
    written = tune(machine, seconds=0.0)(model)
    usual = to_kernels(model, Options(precision="bf16"), {}, True, find_target("sm_90a"))
    assert not machine.measured
    assert written.program == usual.program
    assert report_of(written).left == 3


def test_a_little_faster_is_not_enough(model: Model) -> None:
    report = report_of(tune(Machine({LARGE: 0.98}))(model))
    assert {item.chosen for item in report.products} == {SMALL}
    assert report.changed == 0


def test_choices_are_kept_for_the_same_machine(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o700)
    store = ObjectCache(folder)
    first = tune(Machine({LARGE: 0.5}), store)(model)
    again, other = Machine({}), Machine({}, name="another GPU")
    found = tune(again, store, seconds=0.0)(model)
    assert found.program == first.program
    assert not again.measured
    assert all(item.kept for item in report_of(found).products)
    tune(other, store)(model)
    assert len(other.measured) == 3


def test_no_library_computes_where_the_backend_is_strict(model: Model) -> None:
    times = {LIBRARY: 0.1}
    for machine, native, expected in (
        (Machine(times), True, True),
        (Machine(times), False, False),
        (Machine(times, has_library=False), True, False),
    ):
        written = tune(machine, native=native)(model)
        assert any(find_native(item) for item in written.program.functions) is expected
        assert any(LIBRARY in names for names in machine.measured) is expected


def test_a_strict_choice_is_not_that_of_others(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o700)
    store = ObjectCache(folder)
    tune(Machine({LIBRARY: 0.1}), store)(model)
    strict = Machine({LIBRARY: 0.1})
    tune(strict, store, native=False)(model)
    assert strict.measured


def test_a_way_that_computes_other_numbers_is_not_taken(model: Model) -> None:
    class Wrong(Machine):
        def measure(
            self, candidates: Sequence[Candidate], fixed: frozenset[Place], until: float
        ) -> list[MeasuredWay] | None:
            found = super().measure(candidates, fixed, until)
            assert found is not None
            first, *others = found
            return [first, *(MeasuredWay(item.name, None, "computes other numbers") for item in others)]

    report = report_of(tune(Wrong({LARGE: 0.1}))(model))
    assert {item.chosen for item in report.products} == {SMALL}
    assert "computes other numbers" in report.products[0].line()


def test_time_is_that_of_a_model_whatever_its_extents(model: Model) -> None:
    machine = Machine({LARGE: 0.5})
    write = tune(machine, seconds=1.5)
    write(model)
    write(model)
    assert len(machine.measured) == 1


def test_who_listens_is_told(model: Model) -> None:
    heard: list[TuningReport] = []
    before = TUNED.set(heard.append)
    try:
        written = tune(Machine({LARGE: 0.5}))(model)
    finally:
        TUNED.reset(before)
    assert heard == [written.tuning]
    facts: Any = heard[0].to_json()
    assert facts["products"][0]["chosen"] == LARGE
    assert facts["products"][0]["ways"][0] == {"name": SMALL, "microseconds": 1e6}
    assert f"[{LARGE} 500000.0 us]" in "\n".join(heard[0].lines())


def test_tuning_is_refused_where_no_gpu_runs_it(tmp_path: Path) -> None:
    path = tmp_path / "layers.sknd"
    path.write_text(TEXT)
    for backend in ("cpu", "reference", "interpreter", None):
        with pytest.raises(LamellaError, match=r"'tune' cannot have an effect without backend='cuda'"):
            lamella.compile(path, backend=backend, tune=True)
    with pytest.raises(LamellaError, match="'tune_seconds' cannot have an effect without 'tune'"):
        lamella.compile(path, backend="cuda", tune_seconds=3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("run {} --tune", "--tune cannot have an effect without --backend cuda"),
        ("run {} --backend cpu --tune", "--tune cannot have an effect without --backend cuda"),
        ("run {} --backend cuda --tune-seconds 3", "--tune-seconds cannot have an effect without --tune"),
        ("lower {} --to tensor --tune", "--tune cannot have an effect without --target cuda|sm_75|sm_80|"),
        ("lower {} --to sknd --target sm_90a --tune", "cannot have an effect without --to tensor"),
        ("bench {} --tune", "--tune measures kernels of cuda, and none of the backends is that"),
        ("train {} --data d.txt --tune", "--tune cannot have an effect without --backend cuda"),
    ],
)
def test_commands_refuse_it_by_name(words: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "layers.sknd"
    path.write_text(TEXT)
    result = call(*words.format(path).split())
    assert result.exit_code != 0
    assert told in result.output + result.stderr


def test_what_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "missing", lambda: "there is no GPU")
    with pytest.raises(InputError, match="no kernel can be measured here: there is no GPU") as caught:
        tuning.open_tuner(Options(tune=True), find_target("sm_90a"))
    assert "without --tune" in str(caught.value)
