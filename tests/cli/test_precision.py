"""`--precision`: what `run` says of its accuracy, where it has no effect, and the contest of `bench`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lamella.cli import lamella

TEXT = """\
import nn;
graph G {
    @input { x: real[3, 64]; }
    @variable { w: real[40, 64]; }
    @output { y: real[3, 40]; }
    @compose { y = nn.linear(x, w); }
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "m.sknd"
    path.write_text(TEXT, encoding="utf-8")
    return path


def call(*words: object) -> Result:
    """What a command says."""
    return CliRunner().invoke(lamella, list(map(str, words)))


def test_run_tells_the_errors_of_its_outputs(graph: Path, tmp_path: Path) -> None:
    for precision in ("f32", "w4"):
        words = ("run", graph, "--backend", "cpu", "--precision", precision, "-o", tmp_path / precision)
        found = call(*words, "--json")
        assert found.exit_code == 0, found.output
    full, reduced = (np.load(tmp_path / name / "y.npy").astype(np.float64) for name in ("f32", "w4"))
    told = json.loads(found.output)["accuracy"]
    assert told["precision"] == "w4"
    errors = np.abs(reduced - full)
    np.testing.assert_allclose(
        [told["largest"], told["mean"], told["scale"]], [errors.max(), errors.mean(), np.abs(full).max()]
    )
    line = call(*words).output.splitlines()[-1]
    assert line.startswith(f"w4: differs from f32 by {errors.max():.3g} at most")


@pytest.mark.parametrize("more", [("--backend", "reference"), ("--backend", "cpu", "--dtype", "f64")])
def test_a_precision_without_effect_is_refused(graph: Path, more: tuple[str, ...]) -> None:
    found = call("run", graph, "--precision", "w8", *more)
    assert found.exit_code == 2
    assert "--precision cannot have an effect" in found.output


@pytest.mark.parametrize("more", [(), ("--target", "sm_90a")])
def test_kernels_are_lowered_in_a_precision(graph: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    """Those for a GPU too, whose text runs here; a graph that stays as it is has no precision to be in."""
    words = ("lower", graph, "--precision", "bf16", *more)
    found = call(*words, "--to", "tensor", "-o", tmp_path / "made", "--json")
    assert found.exit_code == 0, found.output
    assert 0 <= json.loads(found.output)["largest_difference"] < 0.02
    (written,) = (tmp_path / "made").glob("*.tensor")
    assert "bf16" in written.read_text(encoding="utf-8")
    refused = call("lower", graph, "--precision", "bf16", "--to", "sknd", "-o", tmp_path / "text")
    assert "--precision cannot have an effect without --after or --explain" in refused.output


def test_bench_holds_both_precisions(graph: Path) -> None:
    found = call("bench", graph, "--precision", "bf16", "--seconds", "0", "--json")
    assert found.exit_code == 0, found.output
    (heat,) = json.loads(found.output)["contests"]
    ours, full = heat["contestants"]
    assert (ours["name"], full["name"]) == ("cpu bf16", "cpu f32")
    assert 0 < ours["difference"]["relative"] < 0.02
