"""Blocks given only by a pattern, declared shapes that only the run can test, settings of verification, folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from docs.generate import repaired
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.cli import lamella as command
from lamella.graph.model import Model
from tests.support.repository import ROOT, TESTS

BAD = TESTS / "lang" / "module" / "bad"
BLOCK = """\
module Norm(n: int):
  params:
    weight: [n]
  forward:
    in: x: [*, n]
    out: y: [*, n]
    graph:
      (x, weight) -> rmsnorm(eps=1e-6) -> (y, rstd)

module Map(n: int):
  params:
    w: [n, n]
  forward:
    in: x: [B, T, n]
    out: y: [B, T, n]
    graph:
      (x, w) -> matmul(transpose=NT) -> y

block Pair(n: int = 4, B: int = 9):
  params:
    norm1: Norm(n)
    first: Map(n)
    norm2: Norm(n)
    second: Map(n)
  pattern: PATTERN
    sublayers:
      - (norm1, first)
      - (norm2, second)
"""


def call(*words: object, status: int = 0) -> str:
    """What a command prints; its exit status is compared."""
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exit_code == status, done.output
    return done.output


def written(folder: Path, text: str) -> Path:
    path = folder / "m.module"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("pattern", ["sequential_residual", "parallel_residual"])
def test_a_block_given_only_by_a_pattern_runs(pattern: str, tmp_path: Path) -> None:
    path = written(tmp_path, BLOCK.replace("PATTERN", pattern))
    assert not lamella.check(path)
    loaded = lamella.load(path)
    assert isinstance(loaded, Model)
    model = compile_model(loaded)
    rng = np.random.default_rng(1)
    weights = {name: rng.normal(size=array.shape).astype(np.float32) for name, array in model.state.items()}
    model.state.update(weights)
    x = rng.normal(size=(2, 3, 4)).astype(np.float32)

    def branch(norm: str, map_: str, value: Array) -> Array:
        rstd = 1 / np.sqrt((value.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)
        return np.asarray(value * rstd * weights[f"{norm}.weight"] @ weights[f"{map_}.w"].T)

    middle = x + branch("norm1", "first", x)
    last = middle + branch("norm2", "second", middle if pattern == "sequential_residual" else x)
    np.testing.assert_allclose(model(x=x)["out"], last, rtol=1e-4, atol=1e-5)
    assert "Pair: 5 gradients compared" in call("check", path, "--verify-backward")


def test_a_block_whose_sublayers_say_no_type_is_told_how_to_say_it(tmp_path: Path) -> None:
    text = BLOCK.replace("PATTERN", "sequential_residual").replace("    in: x: [*, n]\n", "")
    for line in ("    in: x: [B, T, n]\n", "    out: y: [*, n]\n", "    out: y: [B, T, n]\n"):
        text = text.replace(line, "")
    assert "declare it: in: x" in call("run", written(tmp_path, text), status=1)


def test_a_declared_shape_that_cannot_be_proved_is_tested_at_run_time() -> None:
    path = BAD / "e123_lengths.module"
    assert not lamella.check(path)
    for backend in ("reference", "cpu"):
        told = call("run", path, "--shape", "B=2,T=3,U=4", "--backend", backend, status=1)
        assert "error[E123]: 'y' of 'Second' is declared [B, T, d], its shape is [B, U, 4]" in told
        assert "'T' is 3, 'U' is 4" in told
        call("run", path, "--shape", "B=2,T=3,U=3", "--backend", backend)
    model = lamella.compile(path, backend="reference")
    with pytest.raises(LamellaError, match="'T' is 3, 'U' is 4"):
        model(a=np.zeros((1, 3, 4), np.float32), b=np.zeros((1, 4, 4), np.float32))


def test_what_only_the_run_can_test_travels_with_the_graph(tmp_path: Path) -> None:
    source, saved = (
        BAD / "e123_lengths.module",
        [tmp_path / name for name in ("text", "unit", "x.nac", "y.nac")],
    )
    call("lower", source, "--to", "sknd", "-o", saved[0])
    call("lower", source, "--to", "ir", "-o", saved[1])
    call("convert", source, saved[2])
    call("convert", saved[0], saved[3])
    for path in saved:
        told = call("run", path, "--shape", "B=2,T=3,U=4", "--seed", "1", status=1)
        assert "'y' of 'Second' is declared [B, T, d], its shape is [B, U, 4]; in this run" in told
        call("run", path, "--shape", "B=2,T=3,U=3", "--seed", "1")
    call("run", saved[2], "--shape", "B=2,T=3,U=4", "--seed", "1", "--backend", "cpu", status=1)
    call("lower", saved[0], "--to", "sknd", "-o", tmp_path / "again")
    texts = [(folder / "main.sknd").read_text(encoding="utf-8") for folder in (saved[0], tmp_path / "again")]
    assert texts[0] == texts[1]
    assert "@assert" in texts[0]


def test_the_right_one_runs(tmp_path: Path) -> None:
    text = repaired((BAD / "e123_lengths.module").read_text(encoding="utf-8"))
    call("run", written(tmp_path, text), "--shape", "B=2,T=3,U=4")


WRONG = """\
verify_backward:
  tolerance: TOLERANCE
  shapes: {n: 3, B: 5}

module Cube(n: int = 6):
  forward:
    in: x: [B, n]
    out: y: [B, n]
    graph:
      (x, x) -> mul() -> s
      (s, x) -> mul() -> y
    save: [x]

  backward:
    d_y: [B, n]
    d_x: [B, n]
    graph:
      (saved.x, saved.x) -> mul() -> s
      (d_y, s) -> mul() -> g
      g -> scale(2.9) -> d_x
"""


def test_settings_decide_how_gradients_are_verified(tmp_path: Path) -> None:
    told = call("check", written(tmp_path, WRONG.replace("TOLERANCE", "1e-3")), "--verify-backward", status=1)
    assert "E103" in told
    told = call("check", written(tmp_path, WRONG.replace("TOLERANCE", "0.1")), "--verify-backward")
    assert "the worst is 'd_x': 3.3e-02" in told
    assert "verify_backward tolerance = 0.1" in call("show", tmp_path / "m.module")


def test_convert_refuses_what_the_named_architecture_would_lose(tmp_path: Path) -> None:
    path = BAD / "e126_theta.module"
    told = call("convert", path, tmp_path / "lost", status=1)
    assert "E126" in told
    assert "'argument 3' of 'rotary_table' is 500.0 here and 10000.0 there" in told
    assert not (tmp_path / "lost").exists()
    right = repaired(path.read_text(encoding="utf-8"))
    call("convert", written(tmp_path, right), tmp_path / "kept")
    text = right.replace("\n) extends", ", tie: bool = true\n) extends")
    told = call("convert", written(tmp_path, text), tmp_path / "tied", status=1)
    assert "'lm_head.weight'" in told
    text = right.replace("      eps: rms_norm_eps\n", "")
    told = call(
        "convert",
        written(tmp_path, text),
        tmp_path / "eps",
        "--set",
        "eps=0.01",
        status=1,
    )
    assert "'eps' of 'llm.fused_residual_rmsnorm' is 0.01 here and 1e-06 there" in told


def test_unknown_layer_types_are_refused(tmp_path: Path) -> None:
    model = ROOT / "src" / "lamella" / "models" / "models" / "qwen2.module"
    call("convert", model, tmp_path / "tiny", "--preset", "tiny", "--model", "Qwen2")
    config = json.loads((tmp_path / "tiny" / "config.json").read_text(encoding="utf-8"))
    for types, words in (
        (
            ["full_attention", "chunked_attention"],
            '"chunked_attention" is one of full_attention, sliding_attention',
        ),
        (["full_attention"], "layer_types has one word for each layer"),
    ):
        text = json.dumps({**config, "layer_types": types})
        (tmp_path / "tiny" / "config.json").write_text(text, encoding="utf-8")
        assert words in call("check", tmp_path / "tiny", status=1)


def test_a_snapshot_of_a_hub_is_read_through_its_links(tmp_path: Path) -> None:
    call("convert", ROOT / "examples" / "llama" / "page.module", tmp_path / "plain")
    cache = tmp_path / "hub" / "models--some--model"
    (cache / "blobs").mkdir(parents=True)
    snapshot = cache / "snapshots" / "0a1b"
    snapshot.mkdir(parents=True)
    for file in (tmp_path / "plain").iterdir():
        (cache / "blobs" / f"{file.stem}0").write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/{file.stem}0")
    assert call("run", snapshot, "--shape", "B=1,T=2", "--seed", 1) == call(
        "run", tmp_path / "plain", "--shape", "B=1,T=2", "--seed", 1
    )
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../../../plain/config.json")
    assert "symbolic link" in call("check", snapshot, status=1)


@pytest.mark.parametrize("backend", ["reference", "cpu", "interpreter", "nacvm"])
def test_a_call_beyond_the_room_of_the_caches_ends(backend: str, tmp_path: Path) -> None:
    """No backend gives numbers for a position that its caches do not hold, and what they hold stays."""
    page = ROOT / "examples" / "llama" / "page.module"
    small = dict.fromkeys(("num_heads", "num_kv_heads", "n_layers"), 1) | dict.fromkeys(
        ("vocab_size", "d_model", "d_ff", "max_seq"), 8
    )
    if backend == "nacvm":
        words = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
        call("convert", page, tmp_path / "page.nac", "--cache", 2, "--shape", "T=1", *words)
        executable: Any = lamella.compile(tmp_path / "page.nac", seed=1)
        said = call("generate", tmp_path / "page.nac", "--tokens", "0", "--max-tokens", 3, status=1)
        assert "room for 2 tokens" in said
    else:
        executable = lamella.compile(page, backend, cache=2, seed=1, config=small)
        with pytest.raises(LamellaError, match="room for 2 tokens"):
            executable(token_ids=np.zeros((1, 3), np.int64))
    token = np.ones((1, 1), np.int64)
    first, _ = executable(token_ids=token), executable(token_ids=token)
    with pytest.raises(LamellaError, match="room for 2 tokens"):
        executable(token_ids=token)
    assert executable.state["tokens_seen"] == 2
    executable.reset()
    np.testing.assert_array_equal(executable(token_ids=token)["logits"], first["logits"])
