"""ONNX files in the commands and in the API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.cli import lamella as command
from lamella.graph.model import Model
from lamella.onnx import Backend
from tests.support.bridge.onnx_models import (
    BOOL,
    FLOAT,
    INT64,
    branching_model,
    function_model,
    model_of,
    port,
    small_model,
)

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper = pytest.importorskip("onnx.helper")

ATTENTION = Path(__file__).parents[2] / "examples" / "onnx" / "attention.onnx"


def _saved(model: Any, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _loaded(path: Path, **options: Any) -> Model:
    found = lamella.load(path, **options)
    assert isinstance(found, Model)
    return found


def _judge(path: Path, feed: dict[str, Array]) -> None:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feed)
    found = lamella.compile(_loaded(path), backend="reference")(**feed)
    for left, right in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def _numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_names_of_extents_stay_open_and_shape_arithmetic_goes() -> None:
    model = _loaded(ATTENTION)
    (x,) = model.graph.inputs
    assert [str(size) for size in x.shape] == ["batch", "time", "8"]  # type: ignore[union-attr]
    used = {item.operator for item in model.graph.operations()}
    assert not used & {"layout.shape", "layout.gather", "layout.concat"}
    _judge(ATTENTION, {"x": _numbers(2, 5, 8)})


def test_extents_are_fixed_by_the_option() -> None:
    (x,) = _loaded(ATTENTION, shape={"batch": 1, "time": 3}).graph.inputs
    assert x.shape == (1, 3, 8)  # type: ignore[union-attr]


def test_models_give_what_onnxruntime_gives(tmp_path: Path) -> None:
    _judge(_saved(small_model(), tmp_path), {"x": _numbers(2, 3)})
    _judge(_saved(function_model(), tmp_path), {"x": _numbers(2)})
    for flag in (True, False):
        _judge(_saved(branching_model(), tmp_path), {"c": np.asarray(flag), "x": _numbers(2)})


def test_a_loop_that_the_run_ends(tmp_path: Path) -> None:
    """Doubles its state until it is large, and collects every one."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["t"]),
            helper.make_node("ReduceMax", ["t"], ["top"], keepdims=0),
            helper.make_node("Less", ["top", "limit"], ["on"]),
            helper.make_node("Identity", ["t"], ["seen"]),
        ],
        "body",
        [port("i", [], INT64), port("go", [], BOOL), port("s", [2])],
        [port("on", [], BOOL), port("t", [2]), port("seen", [2])],
    )
    node = helper.make_node("Loop", ["n", "yes", "x"], ["last", "all"], body=body)
    weights = {"n": np.asarray(20), "yes": np.asarray(True), "limit": np.asarray(50, np.float32)}
    outputs = [port("last", [2]), port("all", ["k", 2])]
    model = model_of([node], [port("x", [2])], outputs, weights)
    _judge(_saved(model, tmp_path), {"x": np.array([1, 2], np.float32)})


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_networks_of_unequal_lengths(tmp_path: Path, operator: str, direction: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    ways, size, steps, batch, width = (2 if direction == "bidirectional" else 1), 3, 4, 2, 5
    weights = {
        "w": _numbers(ways, gates * size, width),
        "r": _numbers(ways, gates * size, size) * 0.5,
        "b": _numbers(ways, 2 * gates * size),
        "lens": np.array([4, 2], np.int32),
    }
    given = {"hidden_size": size, "direction": direction}
    if operator == "GRU":
        given["linear_before_reset"] = 1
    states = ["h", "c"] if operator == "LSTM" else ["h"]
    node = helper.make_node(operator, ["x", "w", "r", "b", "lens"], ["y", *states], **given)
    outputs = [port("y", [steps, ways, batch, size]), *(port(item, [ways, batch, size]) for item in states)]
    model = model_of([node], [port("x", [steps, batch, width])], outputs, weights, opset=14)
    _judge(_saved(model, tmp_path), {"x": _numbers(steps, batch, width)})


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = small_model()
    onnx.save_model(model, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").exists()
    _judge(path, {"x": _numbers(2, 3)})
    (tmp_path / "m.data").unlink()
    with pytest.raises(LamellaError, match="ONX030"):
        lamella.load(path)


def test_a_model_goes_through_skriptnd(tmp_path: Path) -> None:
    model = _loaded(ATTENTION, shape={"batch": 1, "time": 3})
    lamella.save(model, tmp_path / "again.sknd")
    again = lamella.load(tmp_path / "again.sknd")
    x = _numbers(1, 3, 8)
    wanted = lamella.compile(model, backend="reference")(x=x)["y"]
    assert np.array_equal(lamella.compile(again, backend="reference")(x=x)["y"], wanted)


def test_operations_know_their_nodes(tmp_path: Path) -> None:
    model = _loaded(_saved(small_model(), tmp_path))
    told = [str(item.origin) for item in model.graph.operations() if item.origin is not None]
    assert any("first: Gemm" in item for item in told)


def test_a_sparse_weight_is_dense_in_the_graph(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], [port("x", [4])], [port("y", [4])])
    values = helper.make_tensor("w", FLOAT, [2], [5.0, 7.0])
    places = helper.make_tensor("i", INT64, [2], [1, 3])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))
    found = lamella.compile(_loaded(_saved(model, tmp_path)), backend="reference")(x=np.zeros(4, np.float32))
    assert found["y"].tolist() == [0, 5, 0, 7]


def test_show_needs_no_other_package() -> None:
    script = (
        "import sys; from lamella.cli import main\n"
        f"sys.argv = ['lamella', 'show', {str(ATTENTION)!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'onnx', 'torch', 'google.protobuf'} & set(sys.modules), 'loaded'"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "x: float[batch, time, 8]" in found.stdout


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(LamellaError, match="LAM001"):
        lamella.load(path)


def _reshaping() -> Any:
    return model_of(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        [port("x", [6]), port("s", [2], INT64)],
        [port("y", None)],
    )


def test_contents_that_shapes_need_are_given_with_the_file(tmp_path: Path) -> None:
    path, x = _saved(_reshaping(), tmp_path), np.arange(6, dtype=np.float32)
    with pytest.raises(LamellaError, match=r"ONX041(.|\n)*--input s=FILE.npy"):
        lamella.load(path)
    made = lamella.compile(path, contents={"s": np.array([2, -1])})
    np.testing.assert_array_equal(made(x=x)["y"], x.reshape(2, 3))


def test_commands_give_contents_by_their_inputs(tmp_path: Path) -> None:
    path = _saved(_reshaping(), tmp_path)
    np.save(tmp_path / "s.npy", np.array([3, 2]))
    given = ["--input", f"s={tmp_path / 's.npy'}"]
    for words in (
        ["run", str(path)],
        ["diff", str(path), "--backend", "reference", "--backend", "interpreter"],
    ):
        done = CliRunner().invoke(command, [*words, *given])
        assert done.exit_code == 0, done.output
    assert "y: float32[3, 2]" in CliRunner().invoke(command, ["run", str(path), *given]).output


def test_a_batch_of_nothing(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"]),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
    ]
    weights = {"w": np.ones((3, 4), np.float32), "shape": np.array([0, 2, -1])}
    path = _saved(model_of(nodes, [port("x", ["batch", 3])], [port("y", ["batch", 2, 2])], weights), tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((0, 3), np.float32))
    for words in (["--input", f"x={tmp_path / 'x.npy'}"], ["--shape", "batch=0"]):
        done = CliRunner().invoke(command, ["run", str(path), *words])
        assert "y: float32[0, 2, 2]" in done.output
    (found,) = Backend.prepare(onnx.load(path)).run([np.zeros((0, 3), np.float32)])
    assert found.shape == (0, 2, 2)


def test_extents_that_are_given_are_known_while_a_model_is_read(tmp_path: Path) -> None:
    """As many windows as fit, rounded up, is an extent only where the input's is a number."""
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3], strides=[2], ceil_mode=1)
    path = _saved(model_of([pool], [port("x", [1, 1, "time"])], [port("y", None)]), tmp_path)
    with pytest.raises(LamellaError, match=r"over time, an extent that is open; --shape"):
        lamella.load(path)
    assert lamella.compile(path, shape={"time": 8})(x=np.ones((1, 1, 8), np.float32))["y"].shape == (1, 1, 4)
    with pytest.raises(LamellaError, match="SKR359"):
        lamella.load(ATTENTION, shape={"batch": 1, "nothing": 3})


def test_a_text_says_which_names_it_cannot_spell(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["0"], ["out/put:0"])]
    path = _saved(model_of(nodes, [port("0", [2])], [port("out/put:0", [2])]), tmp_path)
    done = CliRunner().invoke(command, ["convert", str(path), str(tmp_path / "m.sknd")])
    assert "input '0' is called '_0' in the text" in done.output
    assert "output 'out/put:0' is called 'out_put_0' in the text" in done.output
    done = CliRunner().invoke(command, ["convert", str(path), str(tmp_path / "folder")])
    assert "is called" not in done.output


def test_the_language_and_the_precision_of_a_run_can_be_said(tmp_path: Path) -> None:
    path = _saved(small_model(), tmp_path).rename(tmp_path / "model.bin")
    words = ["run", str(path), "--language", "onnx", "--backend", "reference", "--precision"]
    assert CliRunner().invoke(command, [*words, "f32"]).exit_code == 0
    assert "cannot have an effect" in CliRunner().invoke(command, [*words, "w8"]).output
