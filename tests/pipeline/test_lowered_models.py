"""What `lower` gives is a model like any other: it is compiled, saved, loaded again, and nothing of others is lost."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella import LamellaError
from lamella.graph.data.safetensors import write_safetensors
from tests.support.cli.skriptnd_models import call

ADD = """import math;

graph Add {
    @input { a: real[2, 3]; }
    @variable { w: real[2, 3]; }
    @output { c: real[2, 3]; }
    @compose { c = math.add(a, w); }
}
"""
A = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([[1, 2, 4], [8, 16, 32]], np.float32)


@pytest.fixture(autouse=True)
def _model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "add.sknd").write_text(ADD, encoding="utf-8")
    write_safetensors(tmp_path / "add.safetensors", {"w": W})


@pytest.mark.parametrize("to", ["sknd", "nac", "tensor", "nem", "stcb"])
def test_a_lowered_model_runs(to: str) -> None:
    lowered = lamella.lower("add.sknd", to=to, device="npm_lite" if to in ("nem", "stcb") else None)
    executable = lamella.compile(lowered)
    assert executable.inputs == ("a",)
    np.testing.assert_array_equal(executable(a=A)["c"], A + W)


def test_a_plan_is_called_and_bound_and_saved() -> None:
    plan = lamella.lower("add.sknd", to="nem", device="npm_lite")
    with pytest.raises(LamellaError, match="plans and streams run on: npu"):
        lamella.compile(plan, backend="cpu")
    np.testing.assert_array_equal(lamella.compile(plan, "npu", order="random:3")(a=A)["c"], A + W)
    stream = lamella.lower(plan, to="stcb")
    with pytest.raises(LamellaError, match=r"\.stcb"):
        lamella.save(plan, "plan.stcb")
    for model, name in ((plan, "plan.nem"), (stream, "bound.stcb")):
        lamella.save(model, name)
        np.testing.assert_array_equal(lamella.compile(name)(a=A)["c"], A + W)


@pytest.mark.parametrize("to", ["llvm", "onnx"])
def test_text_that_is_only_written_says_so(to: str) -> None:
    lowered = lamella.lower("add.sknd", to=to)
    assert len(repr(lowered)) < 200
    with pytest.raises(LamellaError, match="run"):
        lamella.compile(lowered)


def test_a_plan_beside_its_model_does_not_replace_the_weights() -> None:
    """`lower -o .` wrote the numbers of the plan over the weights of the model, which has the same name."""
    before = hashlib.sha256(Path("add.safetensors").read_bytes()).digest()
    result = call("lower", "add.sknd", "--to", "nem", "--device", "npm_lite", "-o", ".")
    assert result.exit_code == 1
    assert "'add.safetensors' is in the way" in result.output
    with pytest.raises(LamellaError, match="in the way"):
        lamella.save(lamella.lower("add.sknd", to="nem"), "add.nem")
    assert hashlib.sha256(Path("add.safetensors").read_bytes()).digest() == before
    for _ in range(2):  # its own numbers are written again
        assert call("lower", "add.sknd", "--to", "nem", "-o", "plans").exit_code == 0


def test_a_report_does_not_replace_what_it_is_about() -> None:
    Path("plan.nem").write_text(
        'include "npm_lite.nem"\ndevice npm_lite\nbuffer A : L2 (size=64, align=64)\n'
    )
    text = Path("plan.nem").read_bytes()
    for option in ("--trace", "--html"):
        result = call("sim", "plan.nem", option, "./plan.nem")
        assert result.exit_code == 2
        assert "is the input itself" in result.output
    assert Path("plan.nem").read_bytes() == text


def test_random_weights_beyond_memory_are_refused_by_their_number() -> None:
    """Each of them fits; together they would be drawn for minutes."""
    Path("large.sknd").write_text(
        "import math;\ngraph G {\n    @input { x: real[1]; }\n    @variable { a: real[600000, 1024]; "
        "b: real[600000, 1024]; }\n    @output { y: real[600000, 1024]; }\n"
        "    @compose { c = math.add(a, b); y = math.add(c, x); }\n}\n",
        encoding="utf-8",
    )
    for backend in ("reference", "cpu"):
        with pytest.raises(LamellaError, match="take 4,915,200,000 bytes of memory; the limit"):
            lamella.compile("large.sknd", backend=backend, seed=1)


def test_what_is_no_array_is_a_finding() -> None:
    executable = lamella.compile("add.sknd", backend="reference")
    np.testing.assert_array_equal(executable(a=[[0, 1, 2], [3, 4, 5]])["c"], A + W)
    with pytest.raises(LamellaError, match="int64"):
        executable(a=A.astype(np.int64))

    class OnDevice:
        def __array__(self, *_: object, **__: object) -> None:
            raise RuntimeError("it is on another device")

    with pytest.raises(LamellaError, match="on another device"):
        executable(a=OnDevice())  # type: ignore[arg-type]


def test_a_stream_that_is_none_is_named() -> None:
    Path("empty.stcb").write_bytes(b"")
    [finding] = lamella.check("empty.stcb")
    assert finding.span.source.name == "empty.stcb"


def test_a_graph_is_converted_into_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert call("convert", "../add.sknd", ".").exit_code == 0
    np.testing.assert_array_equal(lamella.compile(".", backend="reference")(a=A)["c"], A + W)
