"""Annotations that watch a run: hooks, probes, assertions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from docs.generate import repaired
from lamella.cli import lamella as command
from lamella.pipeline.module.observe import Observed, observe
from lamella.pipeline.options import Options
from tests.support.repository import TESTS

BAD = TESTS / "lang" / "module" / "bad" / "e104_range.module"
X = np.array([[1.0, -2.0, 3.0, 0.5], [0.0, 4.0, -1.0, 2.0]])
TEXT = """module M(d: int = 4):
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      x -> relu() -> r
      (x, r) -> add() -> y {annotation}
"""


def look(folder: Path, annotation: str) -> Observed:
    """One run of a module with an annotation on its output."""
    path = folder / "m.module"
    path.write_text(TEXT.format(annotation=annotation), encoding="utf-8")
    return observe(path, Options(dtype="f64"), {"x": X})


Y, R = X + np.maximum(X, 0), np.maximum(X, 0)
CONDITIONS = {
    "!has_nan(y)": not np.isnan(Y).any(),
    "has_inf(y)": bool(np.isinf(Y).any()),
    "!has_nan_or_inf(y) && y.shape[-1] == d": True,
    "y.shape[0] == 3": False,
    "all(y >= x)": bool((Y >= X).all()),
    "all(r > 0) || any(y > 7)": bool((R > 0).all() or (Y > 7).any()),
    "max(abs(y)) <= 8": bool(np.abs(Y).max() <= 8),
    "min(y) + 2 * 1 < 0": bool(Y.min() + 2 < 0),
    "mean(y) - mean(r) == mean(x)": bool(np.isclose(Y.mean() - R.mean(), X.mean())),
    "norm(y) / norm(x) > 1.5": bool(np.linalg.norm(Y) / np.linalg.norm(X) > 1.5),
    "x.shape[-2] != 2": False,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_are_judged_by_the_numbers(condition: str, tmp_path: Path) -> None:
    for written in (condition, f'"{condition}"'):
        found = look(tmp_path, f'@assert({written}, message="told")')
        false = [item for item in found.findings if item.code == "E104"]
        assert len(false) == (0 if CONDITIONS[condition] else 1)
        assert all("on 'y' is false: told" in item.message for item in false)


def test_an_assertion_that_is_switched_off_is_silent(tmp_path: Path) -> None:
    assert not look(tmp_path, "@assert(all(y > 100), enabled=false)").findings


def test_hooks_and_probes_see_the_numbers(tmp_path: Path) -> None:
    found = look(
        tmp_path,
        '@hook(AfterAttention) @probe("y", condition="max(y) > 7") @probe("n", condition="max(y) > 9")',
    )
    numbers = f"mean {Y.mean():.4g}, deviation {Y.std():.4g}, from {Y.min():.4g} to {Y.max():.4g}"
    assert found.lines == (
        f"hook AfterAttention y: float64 2×4, {numbers}",
        f"probe y y: float64 2×4, {numbers}",
    )
    np.testing.assert_array_equal(found.outputs["y"], Y)
    assert list(found.outputs) == ["y"]


def test_a_wrong_program_and_a_right_one(tmp_path: Path) -> None:
    options = Options(shape={"B": 2}, seed=0)
    found = observe(BAD, options, {})
    assert [(item.code, item.span.line) for item in found.findings] == [("E104", 7)]
    right = tmp_path / BAD.name
    right.write_text(repaired(BAD.read_text(encoding="utf-8")), encoding="utf-8")
    assert not observe(right, options, {}).findings


REGIONS = """
module Inner(d: int):
  {declaration}
  params:
    w: [d, d]
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, w) -> matmul(transpose=NT) -> h
      h -> relu() -> y

module Outer(d: int = 4):
  params:
    layers: [2] x Inner(d)
    head: Inner(d) {instance}
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      x -> layers[0]() -> p {statement}
      p -> layers[1]() -> q
      q -> softmax() -> r
      r -> head() -> y
"""


def regions(folder: Path, **marks: str) -> Path:
    """Three instances of a module, with annotations in some places."""
    path = folder / "outer.module"
    gaps = {"declaration": "", "instance": "", "statement": "", **marks}
    path.write_text(REGIONS.format(**gaps), encoding="utf-8")
    return path


TRACED = {
    ("declaration", "ops"): ["layers[0].h", "layers[0].y", "layers[1].h", "layers[1].y", "head.h", "head.y"],
    ("instance", "tensors"): ["head.h: float64 2×4", "head.y: float64 2×4"],
    ("statement", "values"): ["p: float64 2×4, mean "],
}


@pytest.mark.parametrize(("place", "level"), TRACED)
def test_traces_tell_what_ran_inside_by_their_level(place: str, level: str, tmp_path: Path) -> None:
    """`@trace` on a statement tells its result, on an instance or a declaration every name inside."""
    path = regions(tmp_path, **{place: f"@trace(level={level})"})
    found = observe(path, Options(dtype="f64", seed=1), {"x": X})
    lines, wanted = sorted(found.lines), sorted(f"trace {item}" for item in TRACED[place, level])
    assert len(lines) == len(wanted)
    assert all(line.startswith(item) for line, item in zip(lines, wanted, strict=True))
    if level == "values":
        numbers = [float(item) for item in lines[0].partition("values ")[2].split(", ")]
        assert len(numbers) == X.size
    else:
        assert lines == wanted


@pytest.mark.parametrize("backend", ["reference", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_profiles_tell_the_time_of_regions_by_name(backend: str, tmp_path: Path) -> None:
    """`@profile` sums up its own operations, and what is fused across its border is shared out.

    Without events the clock goes on between them, without markers the time line has no slice.
    """
    path = regions(
        tmp_path,
        declaration='@profile("inner", memory=true)',
        instance='@profile("head", cuda_events=false)',
        statement='@profile("first", nvtx=false)',
    )
    timeline = tmp_path / "run.json"
    words = ["run", str(path), "--shape", "B=2", "--backend", backend, "--profile", "--json"]
    done = CliRunner().invoke(command, [*words, "--timeline", str(timeline)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["profile"]
    regions_ = [(item["name"], item["path"]) for item in found["regions"]]
    inner = [("inner", name) for name in ("layers[0]", "layers[1]", "head")]
    assert sorted(regions_) == sorted([("first", "p"), ("head", "head"), *inner])
    whole = sum(item["seconds"] for item in found["operators"].values())
    parts = [item["seconds"] for item in found["regions"] if item["name"] == "inner"]
    assert 0 < sum(parts) < whole
    assert all((item.get("bytes", 0) > 0) == (item["name"] == "inner") for item in found["regions"])
    slices = [item for item in json.loads(timeline.read_text())["traceEvents"] if item["cat"] == "@profile"]
    assert sorted(item["name"] for item in slices) == sorted(name for name, _ in regions_ if name != "first")
    (head,) = (item for item in slices if item["name"] == "head")
    assert head["args"]["seconds"] * 1e6 == pytest.approx(head["dur"])
