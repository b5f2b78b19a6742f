"""Every form of a statement, built and run, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from lamella.graph.data import write_safetensors
from tests.support.bridge.module_texts import codes, run

X = np.random.default_rng(7).normal(size=(3, 4))
HEAD = """
    module M(d: int = 4, flag: bool = true, kind: enum(a, b, c) = b):
      forward:
        in: x: [B, d]
        out: y: {out}
        graph:
"""


def module(*statements: str, out: str = "[B, d]") -> str:
    """A module of one input and one output with these statements."""
    return HEAD.format(out=out) + "".join(f"          {line}\n" for line in statements)


def silu(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """X · σ(x)."""
    found: npt.NDArray[np.float64] = x / (1 + np.exp(-x))
    return found


CASES = {
    "operation": (["x -> relu() -> y"], np.maximum(X, 0)),
    "chain": (["x -> relu() -> silu() -> y"], silu(np.maximum(X, 0))),
    "tuple": (["x -> relu() -> r", "(x, r) -> add() -> y"], X + np.maximum(X, 0)),
    "identity": (["x -> relu() -> r", "r -> y"], np.maximum(X, 0)),
    "any order": (["r -> silu() -> y", "x -> relu() -> r"], silu(np.maximum(X, 0))),
    "dropped": (["x -> split([1, 3], dim=-1) -> (_, p)", "x -> relu() -> y"], np.maximum(X, 0)),
    "prefix of the outputs": (["x -> split([4], dim=-1) -> p", "p -> relu() -> y"], np.maximum(X, 0)),
    "scalar operand": (["x -> add(2.5) -> mul(2) -> y"], (X + 2.5) * 2),
    "scalar in a tuple": (["(x, 3.0) -> mul() -> y"], X * 3),
    "shape constant": (["x -> scale(1.0 / (2 * d)) -> y"], X / 8),
    "call source": (["zeros([B, d]) -> z", "(z, x) -> sub() -> y"], -X),
    "shape assertion": (["x -> relu() -> [B, d] -> silu() -> y"], silu(np.maximum(X, 0))),
    "guard": (["if flag:", "  x -> relu() -> y", "else:", "  x -> y"], np.maximum(X, 0)),
    "elif": (
        ["if kind == a:", "  x -> y", "elif kind == b:", "  x -> silu() -> y", "else:", "  x -> relu() -> y"],
        silu(X),
    ),
    "nested guard": (
        ["if flag:", "  if not flag:", "    x -> y", "  else:", "    x -> silu() -> y"],
        silu(X),
    ),
    "ternary operand": (["x -> relu() -> r", "(x, r if flag else x) -> add() -> y"], X + np.maximum(X, 0)),
    "view": (["x -> view([B * d]) -> v", "v -> view([B, -1]) -> y"], X),
    "transpose": (["x -> transpose(0, 1) -> t", "t -> transpose(0, 1) -> y"], X),
    "fork": (["x -> fork(2) -> (p, q)", "(p, q) -> add() -> y"], 2 * X),
    "capitals": (["x -> ReLU() -> r", "(r, x) -> Add() -> y"], np.maximum(X, 0) + X),
    "explicit alias": (["x -> y @alias"], X),
    "keyword operand": (["x -> relu() -> r", "x -> add(b=r) -> y"], X + np.maximum(X, 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_statements_mean_what_they_say(case: str, tmp_path: Path) -> None:
    statements, expected = CASES[case]
    found = run(tmp_path, module(*statements), {"x": X})
    np.testing.assert_allclose(found["y"], expected, rtol=1e-12, atol=1e-12)


VIEWS = {
    "x[0]": (X[0], "[d]"),
    "x[-1]": (X[-1], "[d]"),
    "x[:, 1]": (X[:, 1], "[B]"),
    "x[:, 1:3]": (X[:, 1:3], "[B, 2]"),
    "x[..., -1]": (X[..., -1], "[B]"),
    "x[:, :d - 1]": (X[:, :3], "[B, d - 1]"),
    "x[..., 1:]": (X[..., 1:], "[B, d - 1]"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_indexing_gives_views(view: str, tmp_path: Path) -> None:
    expected, shape = VIEWS[view]
    found = run(tmp_path, module(f"{view} -> copy() -> y", out=shape), {"x": X})
    np.testing.assert_array_equal(found["y"], expected)


def test_modules_are_called_by_their_parameters_and_by_tensors(tmp_path: Path) -> None:
    text = """
        module Affine(n: int, m: int, use_bias: bool = false):
          params:
            weight: [m, n]
            bias: [m] if use_bias
          forward:
            in: [*, n]
            out: [*, m]
            graph:
              (in, weight) -> matmul(transpose=NT) -> p
              if use_bias:
                (p, bias) -> add() -> out
              else:
                p -> out

        module M(d: int = 4):
          params:
            first: Affine(d, 5, use_bias=true)
            w: [2, 5]
            b: [2]
          forward:
            in: x: [B, d]
            out: y: [B, 2]
            graph:
              x -> first() -> h
              h -> Affine(w, bias=b) -> y
    """
    rng = np.random.default_rng(1)
    shapes = {"first.weight": (5, 4), "first.bias": (5,), "w": (2, 5), "b": (2,)}
    weights = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    found = run(tmp_path, text, {"x": X}, weights, model="M")
    expected = (X @ weights["first.weight"].T + weights["first.bias"]) @ weights["w"].T + weights["b"]
    np.testing.assert_allclose(found["y"], expected, rtol=1e-12)


BLOCKS = """
    block Step(d: int, factor: float = 1.0):
      params:
        w: [d]
      forward:
        inputs:
          x: [B, d]
          shift: [d]
        out: y: [B, d]
        graph:
          (x, w) -> mul() -> scaled
          (scaled, shift) -> add() -> moved
          moved -> scale(factor) -> y

    model M(d: int = 4, n: int = 3, factors: [float] = [1.0, 2.0, 3.0]):
      params:
        blocks: [n] x Step(d, factors[layer])
        shift: [d]
      forward:
        in: x: [B, d]
        out: z: [B, d]
        graph:
          {call}
"""


@pytest.mark.parametrize(
    "call",
    [
        "(x, shift) -> StackedBlocks(blocks, n) -> z",
        "(x, shift) -> blocks[0:n]() -> z",
        "(x, shift) -> blocks[0:1]() -> a\n          (a, shift) -> blocks[1:3]() -> z",
        "(x, shift) -> blocks[0]() -> a\n          (a, shift) -> blocks[1:2]() -> b\n"
        "          (b, shift) -> blocks[-1]() -> z",
    ],
)
def test_arrays_of_blocks_are_folded_and_see_their_index(call: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    weights = {f"blocks.{number}.w": rng.normal(size=4) for number in range(3)}
    weights["shift"] = rng.normal(size=4)
    found = run(tmp_path, BLOCKS.format(call=call), {"x": X}, weights)
    expected = X
    for number in range(3):
        expected = (expected * weights[f"blocks.{number}.w"] + weights["shift"]) * (number + 1)
    np.testing.assert_allclose(found["z"], expected, rtol=1e-12)


@pytest.mark.parametrize("pattern", ["sequential_residual", "parallel_residual"])
def test_patterns_are_residuals(pattern: str, tmp_path: Path) -> None:
    text = f"""
        module Scaled(d: int):
          params:
            w: [d]
          forward:
            in: [B, d]
            out: [B, d]
            graph:
              (in, w) -> mul() -> out

        block Residual(d: int):
          params:
            n1: Scaled(d)
            s1: Scaled(d)
            n2: Scaled(d)
          pattern: {pattern}
            sublayers:
              - (n1, s1)
              - (n2)

        model M(d: int = 4):
          params:
            part: Residual(d)
          forward:
            in: x: [B, d]
            out: y: [B, d]
            graph:
              x -> part() -> y
    """
    rng = np.random.default_rng(3)
    names = ("n1", "s1", "n2")
    w = {name: rng.normal(size=4) for name in names}
    weights = {f"part.{name}.w": array for name, array in w.items()}
    found = run(tmp_path, text, {"x": X}, weights, model="M")
    first = X + X * w["n1"] * w["s1"]
    sequential, parallel = first + first * w["n2"], first + X * w["n2"]
    expected = sequential if pattern == "sequential_residual" else parallel
    np.testing.assert_allclose(found["y"], expected, rtol=1e-12)


def test_tied_parameters_are_one(tmp_path: Path) -> None:
    text = """
        model M(v: int = 6, d: int = 4):
          params:
            table: [v, d]
            head: tied_to(table)
          forward:
            in: ids: [B, T]
            out: logits: [B, T, v]
            graph:
              ids -> embedding(table) -> e
              (e, head) -> matmul(transpose=NT) -> logits
    """
    table = np.random.default_rng(4).normal(size=(6, 4))
    ids = np.array([[0, 5, 2]])
    found = run(tmp_path, text, {"ids": ids}, {"table": table})
    np.testing.assert_allclose(found["logits"], table[ids] @ table.T, rtol=1e-12)


def test_optional_parameters_without_numbers_are_none(tmp_path: Path) -> None:
    text = """
        module M(d: int = 4):
          params:
            w: [d]
            b: [d]?
          forward:
            in: x: [B, d]
            out: y: [B, d]
            graph:
              (x, w, b) -> layernorm() -> y
    """
    w = np.arange(1.0, 5.0)
    found = run(tmp_path, text, {"x": X}, {"w": w})
    mean, var = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
    np.testing.assert_allclose(found["y"], (X - mean) / np.sqrt(var + 1e-5) * w, rtol=1e-10)


def test_optional_parameters_with_numbers_are_there(tmp_path: Path) -> None:
    text = """
        module M(d: int = 4):
          params:
            w: [d]
            b: [d]?
          forward:
            in: x: [B, d]
            out: y: [B, d]
            graph:
              (x, w, b) -> layernorm() -> y
    """
    w, b = np.arange(1.0, 5.0), np.arange(4.0)
    write_safetensors(tmp_path / "w.safetensors", {"w": w.astype(np.float32), "b": b.astype(np.float32)})
    found = run(tmp_path, text, {"x": X}, file=tmp_path / "w.safetensors")
    mean, var = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
    np.testing.assert_allclose(found["y"], (X - mean) / np.sqrt(var + 1e-5) * w + b, rtol=1e-6, atol=1e-6)


TRANSPOSES = {
    "(x, w) -> matmul(transpose=NT) -> y": (5, 4),
    "(x, w) -> matmul(transpose=TN) -> y": (5, 4),
    "(x, w) -> matmul() -> y": (5, 4),
    "x -> matmul(w) -> y": (5, 4),
    "(x, w) -> matmul(transpose=NN) -> y": (4, 5),
}


@pytest.mark.parametrize("statement", TRANSPOSES)
def test_projections_mean_what_their_form_says(statement: str, tmp_path: Path) -> None:
    size = TRANSPOSES[statement]
    text = f"""
        module M():
          params:
            w: {list(size)}
          forward:
            in: x: [B, 4]
            out: y: [B, 5]
            graph:
              {statement}
    """
    w = np.random.default_rng(5).normal(size=size)
    found = run(tmp_path, text, {"x": X}, {"w": w})
    np.testing.assert_allclose(found["y"], X @ (w if size[0] == 4 else w.T), rtol=1e-12)
    assert codes(tmp_path, text) == (["W102"] if "TN" in statement else [])


@pytest.mark.parametrize(
    ("dims", "transposed"), [("d, e", False), ("e, d", True), ("d, d", True), ("e, e", True)]
)
def test_a_square_projection_means_what_its_dimensions_are_called(
    dims: str, transposed: bool, tmp_path: Path
) -> None:
    text = f"""
        module M(d: int = 4, e: int = 4):
          params:
            w: [{dims}]
          forward:
            in: x: [B, d]
            out: y: [B, 4]
            graph:
              (x, w) -> matmul() -> y
    """
    w = np.random.default_rng(5).normal(size=(4, 4))
    found = run(tmp_path, text, {"x": X}, {"w": w})
    np.testing.assert_allclose(found["y"], X @ (w.T if transposed else w), rtol=1e-12)


def test_an_operand_without_a_name_is_in(tmp_path: Path) -> None:
    text = """
        module M(d: int = 4):
          forward:
            in: [B, d]
            out: [B, d]
            graph:
              in -> relu() -> out
    """
    np.testing.assert_array_equal(run(tmp_path, text, {"in": X})["out"], np.maximum(X, 0))


def test_undeclared_ends_are_found(tmp_path: Path) -> None:
    text = """
        module Inner(d: int):
          params:
            w: [d]
          forward:
            graph:
              (first, w) -> mul() -> h
              (h, second) -> add() -> out

        module M(d: int = 4):
          params:
            inner: Inner(d)
          forward:
            in: (p: [B, d], q: [B, d])
            out: y: [B, d]
            graph:
              (p, q) -> inner() -> y
    """
    w = np.arange(1.0, 5.0)
    found = run(tmp_path, text, {"p": X, "q": 2 * X}, {"inner.w": w}, model="M")
    np.testing.assert_allclose(found["y"], X * w + 2 * X)


def test_a_rotation_takes_one_packed_operand_with_its_table_and_positions(tmp_path: Path) -> None:
    text = """
        module M(num_heads: int = 2, num_kv_heads: int = 1, max_seq: int = 5):
          forward:
            in: (qkv: [B, T, 4, 8], freqs: [5, 4, 2], places: [T, int32])
            out: (y: [B, T, 4, 8], q: [B, T, 2, 8], k: [B, T, 1, 8], part: [B, 2, T, 8])
            graph:
              (qkv, freqs, places) -> rope(rotary_dim=8) -> y
              qkv[:, :, 0:2] -> transpose(1, 2) -> q0
              qkv[:, :, 2:3] -> transpose(1, 2) -> k0
              (q0, k0, freqs, places) -> rope() -> (q1, k1)
              q1 -> transpose(1, 2) -> q
              k1 -> transpose(1, 2) -> k
              (q0, k0) -> rope(rotary_dim=4) -> (part, _)
    """
    rng = np.random.default_rng(5)
    given = {"qkv": rng.normal(size=(2, 3, 4, 8)), "freqs": rng.normal(size=(5, 4, 2))}
    found = run(tmp_path, text, {**given, "places": np.array([4, 0, 2], np.int32)})
    np.testing.assert_allclose(found["y"][:, :, :2], found["q"], rtol=1e-12)
    np.testing.assert_allclose(found["y"][:, :, 2:3], found["k"], rtol=1e-12)
    np.testing.assert_array_equal(found["y"][:, :, 3], given["qkv"][:, :, 3])
    np.testing.assert_array_equal(
        found["part"][..., 4:], given["qkv"][:, :, :2].transpose(0, 2, 1, 3)[..., 4:]
    )
    assert codes(
        tmp_path, text.replace("(q0, k0, freqs, places) -> rope()", "(q0, k0, freqs) -> rope(rotary_dim=6)")
    ) == ["E003"]
