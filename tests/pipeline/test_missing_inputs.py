"""Inputs and weights that nobody gives: the API raises, commands say what they drew, nothing that steers is drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend.executor import GraphExecutable
from tests.support.cli.skriptnd_models import call
from tests.support.repository import ROOT

NET = """import math;

graph Net {
    @input { x: real[n|4, 3]; mask: bool[3]; xs: real[2]..(2); }
    @variable { w: real[3]; }
    @output { y: real[~, 3]; z: real[2]; }
    @compose {
        a = math.mul(x, w);
        y = math.select(mask, a, x);
        z = math.sum_n(xs);
    }
}
"""
PICK = """import layout;

graph Pick {
    @input { places: int[2]; rows: real[4, 3]; }
    @output { y: real[2, 3]; }
    @compose { y = layout.gather{axis = 0}(rows, places); }
}
"""
GATE = """module Gate(d: int = 4):
  params:
    up: [d, d]
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, up) -> matmul(transpose=NT) -> y
"""
AXPY = """func @axpy(%a: f32, %x: memref<f32x8>, %y: memref<f32x8>) {
  %0 = constant 0 : index
  %8 = constant 8 : index
  foreach (%i):index=(%0),(%8) {
    %v = load %x[%i] : f32
    %w = arith.mul %a, %v : f32
    store %w, %y[%i]
  }
}
"""
STEERED = """; the table is read at a position
nac 1.6
.code
    %t = input()
    %p = input()
    %g = input()
    %w = parameter(table)
    %e = aten.embedding.default:WT(%w, %t)
    %q = aten.embedding.default:WT(%w, %p)
    %s = nac.add:TT(%e, %q)
    %m = nac.mul:TT(%s, %g)
    %y = output(%m)
.inputs
    0 = tokens
    1 = position
    2 = gain
.parameters
    1 = table
.tensors
    1 = float32[3, 3] hex("0000803f000000000000000000000000000080400000000000000000000000000000c03f")
.resources
    lamella.json = text("NOTES")
"""
NOTES = {
    "format": 1,
    "inputs": [
        {"name": "tokens", "dtype": "i64", "shape": [1, 1]},
        {"name": "position", "dtype": "i64", "shape": [1, 1]},
        {"name": "gain", "dtype": "f32", "shape": [1, 1, 3]},
    ],
    "outputs": [{"name": "logits", "dtype": "f32", "shape": [1, 1, 3]}],
}
CONV = ROOT / "examples" / "npu" / "conv_relu.nem"
EVERY = ("net.sknd", "gate.module", "steered.nacs", "conv.nem", "conv.stcb")


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notes = json.dumps(NOTES).replace('"', '\\"')
    texts = {
        "net.sknd": NET,
        "gate.module": GATE,
        "k.tensor": AXPY,
        "steered.nacs": STEERED.replace("NOTES", notes),
    }
    texts["conv.nem"] = CONV.read_text(encoding="utf-8")
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")
    lamella.save(lamella.lower("conv.nem", "stcb"), "conv.stcb")


@pytest.mark.parametrize("path", EVERY)
def test_the_api_raises_for_inputs_that_nobody_gives(path: str) -> None:
    run = lamella.compile(path)
    with pytest.raises(lamella.LamellaError) as caught:
        run()
    (finding,) = caught.value.findings
    named = {name for name in run.inputs if f"'{name}' (" in finding.message}
    assert named == set(run.inputs)
    assert "seed=N" in finding.hint
    assert "random=True" in finding.hint


@pytest.mark.parametrize("path", EVERY)
def test_a_seed_or_the_word_draws_them(path: str) -> None:
    zero, word, one = (
        lamella.compile(path, seed=0),
        lamella.compile(path, random=True),
        lamella.compile(path, seed=1),
    )
    first, second, third = zero(), word(), one()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert any(not np.array_equal(first[name], third[name]) for name in first)
    assert set(zero.drawn.inputs) == set(zero.inputs)


def test_types_and_shapes_are_told() -> None:
    for path, told in (
        ("net.sknd", ("inputs 'x' (f32[n, 3]), 'mask' (bool[3]), ", "(f32[2]) are not given")),
        ("gate.module", ("input 'x' (f32[B, 4]) is not given",)),
        ("steered.nacs", ("'position' (i64[1, 1])", "'gain' (f32[1, 1, 3])")),
    ):
        with pytest.raises(lamella.LamellaError) as caught:
            lamella.compile(path)()
        assert all(part in caught.value.findings[0].message for part in told)
    run = lamella.compile("net.sknd")
    with pytest.raises(lamella.LamellaError, match="'mask'") as caught:
        run(x=np.ones((2, 3), np.float32))
    assert "'x'" not in caught.value.findings[0].message


def test_what_is_wrong_with_a_given_input_is_told_first() -> None:
    for path in ("net.sknd", "steered.nacs", "conv.nem"):
        with pytest.raises(lamella.LamellaError, match="nothing"):
            lamella.compile(path)(nothing=np.ones(3, np.float32))


def test_a_buffer_gives_what_lies_in_it() -> None:
    drawn = lamella.compile("conv.nem", seed=3)
    wanted = drawn()
    plan = drawn.plan  # type: ignore[attr-defined]  # a plan has buffers
    sizes = {item.name: item.size for item in plan.buffers if item.level in ("L2", "DDR")}
    run = lamella.compile("conv.nem")
    given = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
    assert run(**given).keys() == wanted.keys()
    assert not run.drawn.inputs


def test_kernels_take_all_their_arguments() -> None:
    run = lamella.compile("k.tensor", kernel="axpy")
    with pytest.raises(lamella.LamellaError, match=r"'a' \(f32\).*'x' \(memref<f32x8>\)"):
        run()
    assert set(lamella.compile("k.tensor", kernel="axpy", seed=1)(a=2.0)) == {"x", "y"}


# --- commands -----------------------------------------------------------------------------------------------------


def test_commands_say_what_is_random() -> None:
    done = call("run", "net.sknd", "--shape", "n=2")
    assert "random (seed 0): x float32[2,3], mask bool[3]" in done.stderr
    assert "weights (all)" in done.stderr
    assert "random" not in done.stdout
    np.save("x.npy", np.ones((2, 3), np.float32))
    line = call("run", "net.sknd", "--input", "x=x.npy", "--seed", "4").stderr
    assert "random (seed 4): mask bool[3]" in line
    told = json.loads(call("run", "net.sknd", "--input", "x=x.npy", "--json").stdout)["random"]
    assert told["seed"] == 0
    assert told["weights"] == 1
    assert told["inputs"]["mask"] == "bool[3]"
    for words, part in (
        (("run", "gate.module", "--shape", "B=2"), "x float32[2,4], weights (all)"),
        (("run", "gate.module", "--shape", "B=2", "--observe"), "x float32[2,4], weights (all)"),
        (("run", "k.tensor", "--arg", "a=1.0"), "x float32[8], y float32[8]"),
        (("run", "conv.nem"), "random (seed 0): "),
        (("run", "conv.stcb"), "random (seed 0): "),
        (("run", "steered.nacs"), "tokens int64[1,1], position int64[1,1], gain float32[1,1,3]"),
    ):
        assert part in call(*words).stderr, words


def test_nothing_is_said_where_all_is_given() -> None:
    np.save("x.npy", np.ones(8, np.float32))
    done = call("run", "k.tensor", "--arg", "a=1.0", "--arg", "x=x.npy", "--arg", "y=x.npy")
    assert "random" not in done.output
    more = ("--arg", "x=x.npy", "--arg", "y=x.npy", "--json")
    assert "random" not in json.loads(call("run", "k.tensor", "--arg", "a=1.0", *more).stdout)


def test_generation_draws_nothing_that_steers() -> None:
    words = ("generate", "steered.nacs", "--tokens", "0", "--ends", "tokens=logits", "--max-tokens", "1")
    done = call(*words)
    assert done.exit_code == 1
    assert "input 'position' (i64[1, 1]) may steer the model, and so is never random" in done.output
    assert "--input position=FILE.npy" in done.output
    np.save("p.npy", np.array([[1]]))
    done = call(*words, "--input", "position=p.npy")
    assert done.exit_code == 0, done.output
    assert "random (seed 0): gain float32[1,1,3]" in done.stderr
    assert re.fullmatch(r"\d\n", done.stdout)


# --- weights --------------------------------------------------------------------------------------------------------


def test_weights_that_nothing_takes_are_refused(tmp_path: Path) -> None:
    Path("bare.sknd").write_text(NET.replace("@variable { w: real[3]; }", "@constant { w: real[3] = 2.0; }"))
    Path("bare.module").write_text(
        "module Bare(d: int = 4):\n  forward:\n    in: x: [B, d]\n    out: y: [B, d]\n"
        "    graph:\n      x -> relu() -> y\n"
    )
    Path("bare.nacs").write_text("nac 1.6\n.code\n%x = input()\n%z = output(%x)\n.inputs\n0 = x\n")
    lamella.save(lamella.lower("gate.module", "sknd", seed=1), "other")
    for path in ("bare.sknd", "bare.module", "bare.nacs"):
        with pytest.raises(lamella.LamellaError, match="that could take weights"):
            lamella.compile(path, weights=tmp_path / "other")


def test_inputs_are_drawn_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "pick.sknd"
    path.write_text(PICK, encoding="utf-8")
    run = lamella.compile(path, backend="reference")
    assert isinstance(run, GraphExecutable)
    drawn = run.draw_inputs()
    assert tuple(drawn) == run.inputs == ("places", "rows")
    assert run(*drawn.values())["y"].shape == (2, 3)
