"""Training graphs of NAC 1.7 and 1.8: steps of theirs are those of torch's gradient descent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.lang.nac import assemble, check, parse
from lamella.pipeline.nac.running import Training
from tests.support.bridge.nac_bytes import newer_bytes
from tests.support.bridge.nac_training import Network, network, read, train_torch

NAMES = ("squares", "entropy", "convolution")
CLOSE = {"float32": 1e-5, "float64": 1e-6}
SHORT = {"float32": "f32", "float64": "f64", "int64": "i64"}
PLAIN = """nac 1.8
.code
    %w = parameter(w)
    %y = nac.neg:T(%w)
    %z = output(%y)
.training
    %w = parameter(w)
    %q = nac.mul:TT(%w, %w)
    %l = aten.sum.default:T(%q)
    %g = nac.add:TT(%w, %w)
{rest}
    %f = finish(%l)
.parameters
    1 = w
    2 = r
.tensors
    1 = float32[2] hex("0000803f000000c0")
    2 = float32[] hex("0000003f")
"""
"""One parameter and a loss that is its square: what a step does can be told by hand."""

KEPT = """nac 1.8
.code
    %x = input()
    %w = parameter(w)
    %k = state(3)
    %s = nac.add:TT(%k, %x)
    %y = nac.mul:TT(%s, %w)
    %z = output(%y, %s)
.training
    %s = saved(3)
    %t = target(0)
    %t2 = target(0)
    %y = saved(4)
    %d = nac.sub:TT(%y, %t2)
    %g = nac.mul:TT(%d, %s)
    %r = constant(1.0)
    %u = update(w, %g, %r)
    %f = finish(%t)
.inputs
    0 = x
.parameters
    1 = w
.tensors
    1 = float32[] hex("00000040")
.resources
    lamella.json = text("{notes}")
"""


def compiled(path: Path, item: Network, backend: str | None = None) -> Training:
    """The training graph of a file, for the arrays of a network."""
    given = {"x": item.x.numpy(), "target_0": item.target.numpy()}
    types = {name: f"{SHORT[str(a.dtype)]}{list(a.shape)}" for name, a in given.items()}
    wide: dict[str, Any] = {"dtype": "f64"} if backend and given["x"].dtype == np.float64 else {}
    run = lamella.compile(path, backend, training=True, types=types, **wide)
    assert isinstance(run, Training)
    return run


def agree(run: Training, item: Network, close: float) -> None:
    """Three steps of ours and of torch's."""
    arrays = {"x": item.x.numpy(), "target_0": item.target.numpy()}
    first = item.module(item.x).detach().numpy()
    found = [run(**arrays) for _ in range(3)]
    losses, wanted = train_torch(item, 3)
    np.testing.assert_allclose(found[0]["output"], first, rtol=close, atol=close)
    np.testing.assert_allclose([out["loss"] for out in found], losses, rtol=close)
    assert run.state.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(run.state[name], array, rtol=close, atol=close)


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_steps_are_those_of_torch(name: str, dtype: str, backend: str | None, tmp_path: Path) -> None:
    item = network(name, dtype)
    read(item.text)
    path = tmp_path / "net.nacs"
    path.write_text(item.text)
    agree(compiled(path, item, backend), item, CLOSE[dtype])


def test_kernels_do_the_same(tmp_path: Path) -> None:
    item = network("squares", "float32")
    path = tmp_path / "net.nacs"
    path.write_text(item.text)
    agree(compiled(path, item, "cpu"), item, 1e-4)


def test_bytes_of_the_newest_version_are_trained(tmp_path: Path) -> None:
    item = network("convolution", "float32")
    file = read(
        item.text.replace("nac.mul", "aten.mul.Tensor").replace("aten.mul.Tensor:Tf", "aten.mul.Scalar:Tf")
    )
    data = newer_bytes(file)
    assert parse(data).file.training == file.training
    assert parse(data).file.header.version == "1.8"
    path = tmp_path / "net.nac"
    path.write_bytes(data)
    agree(compiled(path, item), item, CLOSE["float32"])


def plain(tmp_path: Path, rest: str, **options: Any) -> Training:
    """The training of one parameter, which is 1 and -2 at first."""
    path = tmp_path / "plain.nacs"
    path.write_text(PLAIN.format(rest=rest))
    run = lamella.compile(path, None, training=True, **options)
    assert isinstance(run, Training)
    return run


def values(run: Training, **inputs: object) -> list[float]:
    """The parameter after a step."""
    run(**{name: np.asarray(value) for name, value in inputs.items()})
    found: Array = run.state["w"]
    return [float(item) for item in found]


@pytest.mark.parametrize(
    ("rest", "options", "expected"),
    [
        ("    %r = constant(0.25)\n    %u = update(w, %g, %r)", {}, [0.5, -1.0]),
        ("    %r = constant(1)\n    %u = update(w, %g, %r)", {}, [-1.0, 2.0]),
        ("    %r = constant(0.25)\n    %u = update(w, %g, %r)", {"lr": 0.5}, [0.0, 0.0]),
        ("    %r = parameter(r)\n    %u = update(w, %g, %r)", {}, [0.0, 0.0]),
        ("    %r = parameter(r)\n    %u = update(w, %g, %r)", {"lr": 0.25}, [0.5, -1.0]),
        # what is loaded behind a step is what was there before it
        ("    %r = constant(0.5)\n    %u = update(w, %g, %r)\n    %v = parameter(w)", {}, [0.0, 0.0]),
    ],
    ids=["constant", "integer", "another", "parameter", "another than the parameter", "loaded behind"],
)
def test_a_step_is_the_gradient_times_the_rate(
    rest: str, options: dict[str, object], expected: list[float], tmp_path: Path
) -> None:
    run = plain(tmp_path, rest, **options)
    assert run(**{})["loss"] == 5.0
    run.reset()
    assert values(run) == expected


def test_a_rate_may_be_an_input(tmp_path: Path) -> None:
    run = plain(tmp_path, "    %r = input()\n    %u = update(w, %g, %r)")
    assert run.inputs == ("lr",)
    assert values(run, lr=np.float32(0.25)) == [0.5, -1.0]
    assert values(run, lr=np.float32(0.5)) == [0.0, 0.0]


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    run = plain(tmp_path, "    %r = input()\n    %u = update(w, %g, %r)")
    assert values(run, lr=np.float32(0.25)) == [0.5, -1.0]
    with pytest.raises(lamella.LamellaError):
        run(lr=np.array([1, 2], np.float32))
    assert [float(item) for item in run.state["w"]] == [0.5, -1.0]


def test_states_of_the_program_are_kept_beside_the_parameters(tmp_path: Path) -> None:
    scalar = {"dtype": "f32", "shape": []}
    notes = {
        "format": 1,
        "inputs": [{"name": "x", **scalar}],
        "states": [{"id": 3, "name": "k", "update": 1, **scalar}],
    }
    text = KEPT.replace("{notes}", json.dumps(notes).replace('"', '\\"'))
    read(text)
    path = tmp_path / "kept.nacs"
    path.write_text(text)
    run = lamella.compile(path, training=True)
    assert isinstance(run, Training)
    total, weight = 0.0, 2.0
    for x in (1.0, 0.5, -2.0):
        total += x
        out = run(x=np.float32(x), target_0=np.float32(3.0))
        assert out["output"] == np.float32(total * weight)
        weight -= (total * weight - 3.0) * total
        assert run.state["w"] == np.float32(weight)
    assert run.inputs == ("x", "target_0")


def test_weights_are_written_and_read_again(tmp_path: Path) -> None:
    item = network("entropy", "float32")
    path = tmp_path / "net.nacs"
    path.write_text(item.text)
    run = compiled(path, item)
    arrays = {"x": item.x.numpy(), "target_0": item.target.numpy()}
    run(**arrays)
    run.save(tmp_path / "new.safetensors")
    run.save(tmp_path / "copy.nacs")
    wanted = run(**arrays)["loss"]
    again = compiled(tmp_path / "copy.nacs", item)
    assert again(**arrays)["loss"] == wanted
    given = lamella.compile(path, training=True, weights=tmp_path / "new.safetensors")
    assert given(**arrays)["loss"] == wanted
    with pytest.raises(lamella.LamellaError, match="ending"):
        run.save(tmp_path / "new.txt")


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_to_the_older_version_as_resources(name: str, tmp_path: Path) -> None:
    item = network(name, "float32")
    text, path = tmp_path / "net.nacs", tmp_path / "net.nac"
    text.write_text(item.text)
    lamella.save(lamella.load(text), path)
    assert not lamella.check(path)
    file = parse(path.read_bytes()).file
    assert (file.header.version, file.training) == ("1.6", ())
    assert [item.name for item in file.resources] == ["training.json", "training.nac"]
    agree(compiled(path, item), item, CLOSE["float32"])


def test_what_resources_cannot_say_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "plain.nacs"
    path.write_text(PLAIN.format(rest="    %r = parameter(r)\n    %u = update(w, %g, %r)"))
    with pytest.raises(lamella.LamellaError, match="NAC201"):
        lamella.save(lamella.load(path), tmp_path / "plain.nac")


@pytest.mark.parametrize(
    "line",
    ["raw(2, 5, [], [])", "raw(3, 3, [1], [-1])", "raw(3, 3, [1, 1], [-1, -1])", "raw(2, 4, [0, 0], [])"],
)
def test_fields_that_only_a_text_can_have_are_told(line: str) -> None:
    file = assemble(Source("raw.nacs", PLAIN.format(rest=f"    %r = {line}"))).file
    assert "NAC204" in {item.code for item in check(file)}
