"""Derived gradients of every form of a statement, against torch in 64 bits."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch.nn import functional as F

from lamella.base.dtype import F64
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.graph.nodes import Tensor
from tests.support.bridge.module_gradients import Judge, Tensors, check, differentiated, instance_of

X = np.random.default_rng(7).normal(size=(3, 4))
HEAD = """
    module M(d: int = 4, flag: bool = true):
      params:
        w: [d, d]
        v: [d]
      forward:
        in: x: [B, d]
        out: y: {out}
        graph:
"""


def module(*statements: str, out: str = "[B, d]") -> str:
    """A module of one input, two parameters and one output with these statements."""
    return HEAD.format(out=out) + "".join(f"          {line}\n" for line in statements)


CASES: dict[str, tuple[list[str], str, Judge]] = {
    "chain": (
        ["(x, v) -> mul() -> silu() -> relu2() -> y"],
        "[B, d]",
        lambda i, w: F.silu(i["x"] * w["v"]).relu() ** 2,
    ),
    "broadcast": (
        ["(x, v) -> add() -> a", "(v, a) -> div() -> y"],
        "[B, d]",
        lambda i, w: w["v"] / (i["x"] + w["v"]),
    ),
    "identity": (["x -> a", "(a, v) -> sub() -> b", "b -> y"], "[B, d]", lambda i, w: i["x"] - w["v"]),
    "several uses": (
        [
            "(x, w) -> matmul() -> a",
            "(a, w) -> matmul() -> b",
            "(a, b) -> mul() -> c",
            "(c, x, a) -> add3() -> y",
        ],
        "[B, d]",
        lambda i, w: (a := i["x"] @ w["w"].T) * (a @ w["w"].T) + i["x"] + a,
    ),
    "scalars": (["x -> add(2.5) -> mul(2) -> scale(0.5) -> y"], "[B, d]", lambda i, w: i["x"] + 2.5),
    "index": (["x[:, 1] -> a", "(a, a) -> mul() -> y"], "[B]", lambda i, w: i["x"][:, 1] ** 2),
    "range": (
        ["x[:, 1:3] -> a", "x[..., :2] -> b", "(a, b) -> mul() -> y"],
        "[B, 2]",
        lambda i, w: i["x"][:, 1:3] * i["x"][:, :2],
    ),
    "row": (["x[-1] -> a", "(a, x[0]) -> mul() -> y"], "[d]", lambda i, w: i["x"][-1] * i["x"][0]),
    "index of a parameter": (["(x, w[1]) -> mul() -> y"], "[B, d]", lambda i, w: i["x"] * w["w"][1]),
    "split": (
        ["(x, w) -> matmul() -> a", "a -> split([1, 2, 1], dim=-1) -> (p, _, r)", "(p, r) -> mul() -> y"],
        "[B, 1]",
        lambda i, w: (a := i["x"] @ w["w"].T)[:, :1] * a[:, 3:],
    ),
    "concat": (
        ["(x, v) -> mul() -> a", "(a, x, a) -> concat(dim=0) -> y"],
        "[3 * B, d]",
        lambda i, w: torch.cat([i["x"] * w["v"], i["x"], i["x"] * w["v"]]),
    ),
    "fork": (["x -> fork(3) -> (a, b, c)", "(a, b) -> mul() -> y"], "[B, d]", lambda i, w: i["x"] ** 2),
    "views": (
        ["x -> view([B * d]) -> view([d, B]) -> transpose(0, 1) -> a", "(a, x) -> mul() -> y"],
        "[B, d]",
        lambda i, w: i["x"].reshape(4, 3).T * i["x"],
    ),
    "reductions": (
        ["x -> reduce_mean(dim=0) -> a", "x -> reduce_max(dim=0) -> (m, at)", "(a, m) -> mul() -> y"],
        "[d]",
        lambda i, w: i["x"].mean(0) * i["x"].max(0).values,
    ),
    "guards": (
        ["if flag:", "  (x, v) -> mul() -> y", "else:", "  x -> y"],
        "[B, d]",
        lambda i, w: i["x"] * w["v"],
    ),
    "not differentiable parts": (
        ["zeros([B, d]) -> z", "(z, x) -> add() -> a", "(a, v) -> mul() -> y"],
        "[B, d]",
        lambda i, w: i["x"] * w["v"],
    ),
    "softmax": (
        ["(x, w) -> matmul() -> softmax(dim=0) -> y"],
        "[B, d]",
        lambda i, w: (i["x"] @ w["w"].T).softmax(0),
    ),
    "norms": (
        ["(x, v) -> rmsnorm(eps=0.01) -> a", "(a, v) -> layernorm() -> y"],
        "[B, d]",
        lambda i, w: F.layer_norm(F.rms_norm(i["x"], (4,), w["v"], 0.01), (4,), w["v"]),
    ),
    "two outputs of a norm": (
        ["(x, x, v) -> fused_residual_rmsnorm(eps=0.01) -> (r, n)", "(r, n) -> mul() -> y"],
        "[B, d]",
        lambda i, w: 2 * i["x"] * F.rms_norm(2 * i["x"], (4,), w["v"], 0.01),
    ),
    "one output of a norm": (
        ["(x, x, v) -> fused_residual_rmsnorm(eps=0.01) -> (_, y)"],
        "[B, d]",
        lambda i, w: F.rms_norm(2 * i["x"], (4,), w["v"], 0.01),
    ),
    "stopped": (
        ["(x, v) -> mul() -> a @gradient(skip)", "(a, x) -> mul() -> y"],
        "[B, d]",
        lambda i, w: (i["x"] * w["v"]).detach() * i["x"],
    ),
    "stopped alias": (
        ["x -> a @gradient(skip)", "(a, x) -> mul() -> y"],
        "[B, d]",
        lambda i, w: i["x"].detach() * i["x"],
    ),
    "scaled": (
        ["(x, v) -> mul() -> a @gradient(compute, scale=0.25)", "(a, x) -> add() -> y"],
        "[B, d]",
        lambda i, w: (s := i["x"] * w["v"] * 0.25) + (i["x"] * w["v"] - s).detach() + i["x"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_statements_have_the_gradients_of_torch(case: str) -> None:
    statements, out, judge = CASES[case]
    check(module(*statements, out=out), {"x": X}, judge)


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu()": torch.relu,
    "silu()": F.silu,
    "tanh()": torch.tanh,
    "sigmoid()": torch.sigmoid,
    "softmax(dim=-1)": lambda x: x.softmax(-1),
    "exp_neg()": lambda x: -x.exp(),
    "scale(0.5)": lambda x: x * 0.5,
    "gelu(approximate=true)": lambda x: F.gelu(x, approximate="tanh"),
    "view([d, B]) -> view([B, d])": lambda x: x,
    "transpose(0, 1) -> copy() -> transpose(0, 1)": lambda x: x,
    "reduce_mean(dim=-1, keepdim=true) -> add(v)": lambda x: x.mean(-1, keepdim=True),
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add()": torch.add,
    "sub()": torch.sub,
    "mul()": torch.mul,
    "swiglu()": lambda x, y: F.silu(x) * y,
    "geglu()": lambda x, y: F.gelu(x) * y,
}
Step = tuple[str, tuple[int, ...]]


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    """Steps that each read what was there before: 0 is the input, 1 a parameter, then the steps."""
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 8))):
        operand = st.integers(0, number + 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(sorted(UNARY))), (draw(operand),)))
        else:
            steps.append((draw(st.sampled_from(sorted(BINARY))), (draw(operand), draw(operand))))
    return steps


@given(graphs())
def test_random_graphs_have_the_gradients_of_torch(steps: list[Step]) -> None:
    names = ["x", "w[:3]", *(f"t{number}" for number in range(len(steps)))]
    lines = [
        f"({', '.join(names[item] for item in operands)}) -> {operation} -> t{number}"
        for number, (operation, operands) in enumerate(steps)
    ]
    lines += [f"({names[-1]}, x, w[:3]) -> add3() -> last", "(last, v) -> mul() -> y"]

    def judge(i: Tensors, w: Tensors) -> torch.Tensor:
        values = [i["x"], w["w"][:3]]
        for operation, operands in steps:
            given = [values[item] for item in operands]
            made = UNARY[operation](*given) if operation in UNARY else BINARY[operation](*given)
            values.append(made + w["v"] if operation.endswith("add(v)") else made)
        return (values[-1] + i["x"] + w["w"][:3]) * w["v"]

    text = module(*lines).replace("in: x: [B, d]", "in: x: [3, d]").replace("[d, B]", "[d, 3]")
    check(text.replace("[B, d]", "[3, d]"), {"x": X}, judge)


def test_a_parameter_that_nothing_reads_is_no_variable_and_one_without_a_way_back_gets_zeros() -> None:
    text = module("(x, v) -> mul() -> a @gradient(skip)", "(a, x) -> add() -> y")
    ours = check(text, {"x": X}, lambda i, w: (i["x"] * w["v"]).detach() + i["x"])
    assert set(ours.found.gradients) == {"v"}
    assert not ours.gradients["v"].any()


def test_casts_are_passed_back() -> None:
    text = module("(x, v) -> mul() -> a @dtype(fp32)", "a -> b @dtype(fp64)", "(b, x) -> mul() -> y")
    found = differentiated(text)
    assert found.model is not None
    kinds = {item.name: item.element.name for item in found.model.graph.outputs if isinstance(item, Tensor)}
    assert kinds["d_x"] == kinds["d_v"] == "f64"


TIED = """
    model M(n: int = 6, d: int = 4):
      params:
        table: [n, d]
        head: tied_to(table)
        fixed: [d] @frozen
        free: [d]
      forward:
        in: (ids: [B, T], mask: [B, T, d] @gradient(skip), labels: [B, T, int64])
        out: (logits: [B, T, n], loss: scalar)
        graph:
          ids -> embedding(table) -> e
          (e, fixed) -> mul() -> f
          (f, free) -> add() -> g
          (g, mask) -> mul() -> h
          (h, head) -> matmul(transpose=NT) -> logits
          (logits, labels) -> cross_entropy(ignore_index=2) -> loss
"""


def test_tied_frozen_and_skipped_tensors() -> None:
    rng = np.random.default_rng(5)
    inputs = {
        "ids": rng.integers(0, 6, (2, 3)),
        "mask": rng.normal(size=(2, 3, 4)),
        "labels": np.array([[0, 2, 5], [1, 4, 2]]),
    }

    def judge(i: Tensors, w: Tensors) -> tuple[torch.Tensor, ...]:
        hidden = (w["table"][i["ids"]] * w["fixed"] + w["free"]) * i["mask"]
        logits = hidden @ w["table"].T
        return logits, F.cross_entropy(logits.reshape(-1, 6), i["labels"].reshape(-1), ignore_index=2)

    ours = check(TIED, inputs, judge)
    assert set(ours.found.gradients) == {"table", "free"}
    assert ours.found.input_gradients == {}
    assert set(ours.found.seeds) == {"logits", "loss"}


BLOCKS = """
    block Step(d: int):
      params:
        w: [d, d]
      forward:
        inputs:
          x: [B, d]
          shift: [d]
        out: y: [B, d]
        graph:
          (x, w) -> matmul(transpose=NT) -> silu() -> h
          (h, shift, x) -> add3() -> y

    model M(d: int = 4, n: int = 3):
      params:
        blocks: [n] x Step(d)
        shift: [d]
        blocks[1].w: [...] @frozen
      forward:
        in: x: [B, d]
        out: z: [B, d]
        graph:
          (x, shift) -> StackedBlocks(blocks, n) -> a
          (a, shift) -> blocks[0]() -> z
"""


def test_blocks_that_are_called_again_add_up() -> None:
    def judge(i: Tensors, w: Tensors) -> torch.Tensor:
        x = i["x"]
        for number in (0, 1, 2, 0):
            x = F.silu(x @ w[f"blocks.{number}.w"].T) + w["shift"] + x
        return x

    ours = check(BLOCKS, {"x": X}, judge)
    assert set(ours.found.gradients) == {"blocks[0].w", "blocks[2].w", "shift"}


def test_what_has_no_backward_is_told_where_a_parameter_needs_it() -> None:
    text = """
        module M(d: int = 4):
          params:
            w: [d, d]
          forward:
            in: x: [B, d]
            out: y: [d, d]
            graph:
              (x, w) -> matmul() -> a
              (a, x) -> weight_grad() -> y
    """
    found = differentiate(instance_of(text), CompilationSettings(element=F64))
    assert found.model is None
    assert [item.code for item in found.findings] == ["E014"]
    assert "weight_grad" in found.findings[0].message


def test_names_that_are_taken_are_not_taken_again() -> None:
    text = """
        module M(d: int = 4):
          params:
            d_x: [d]
          forward:
            in: (x: [B, d], d_y: [B, d])
            out: (y: [B, d], d_d_y: [B, d])
            graph:
              (x, d_y) -> mul() -> y
              (d_y, d_x) -> add() -> d_d_y
    """
    ours = check(text, {"x": X, "d_y": X + 1}, lambda i, w: (i["x"] * i["d_y"], i["d_y"] + w["d_x"]))
    assert len(ours.results) == len(("y", "d_d_y", "x", "d_y", "d_x"))


def test_saved_names_what_the_way_back_reads() -> None:
    found = differentiated(module("(x, w) -> matmul() -> a", "(a, v) -> add() -> b", "b -> silu() -> y"))
    assert set(found.saved) == {"x", "a", "b"}
