"""Gradients are compared with differences: right ones pass, each kind of a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import repaired
from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.bridge.module_to_graph.backward.verify import Trial, Verification, verify_backward
from lamella.graph.model import Model
from tests.bridge.test_module_backward_explicit import BLOCK, RECOMPUTED
from tests.support.bridge.module_gradients import instance_of

BAD = Path(__file__).parents[1] / "lang" / "module" / "bad" / "e103_sign.module"


def verify(text: str, name: str = "M", **shapes: int) -> Verification:
    """What the comparison says of a declaration."""
    return verify_backward(instance_of(text, name), CompilationSettings(), Trial(shapes=shapes), compiled)


def compiled(model: Model) -> GraphExecutable:
    """A model on the reference in 64 bits."""
    return compile_model(model, dtype="f64")


@pytest.mark.parametrize("text", [RECOMPUTED, BLOCK.replace("layers: int = 3", "layers: int = 1")])
def test_right_gradients_pass(text: str) -> None:
    found = verify(text, B=2, T=3)
    assert found.findings == (), list(found.lines())
    assert found.judged[0].error < 1e-5
    assert "compared, the worst is" in next(found.lines())


WRONG = {
    "another factor": (
        "(d_h, w) -> matmul(transpose=NN) -> d_x",
        "(d_h, w) -> matmul(transpose=NN) -> scale(1.01) -> d_x",
        "d_x",
    ),
    "a transposed weight": (
        "(d_h, x) -> matmul(transpose=TN) -> d_w",
        "(d_h, x) -> matmul(transpose=TN) -> transpose(0, 1) -> t\n          t -> d_w",
        "d_w",
    ),
    "another derivative": ("gelu_backward(approximate=false)", "silu_backward()", "d_w"),
    "a lost term": (
        "(d_y, a, v) -> mul_backward() -> (d_a, d_v)",
        "(d_y, a, v) -> mul_backward() -> (d_a, d_p)\n          (d_p, d_p) -> mul() -> d_v",
        "d_v",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_gradients_are_named(case: str) -> None:
    old, new, name = WRONG[case]
    assert old in RECOMPUTED
    found = verify(RECOMPUTED.replace(old, new), B=2, T=3)
    assert {item.code for item in found.findings} == {"E103"}
    assert any(f"'{name}'" in item.message for item in found.findings)
    assert found.judged[0].error > 1e-3


def test_the_wrong_program_is_told_and_the_right_one_is_not() -> None:
    text = BAD.read_text(encoding="utf-8")
    found = verify(text, "Doubled")
    assert [(item.code, item.span.line) for item in found.findings] == [("E103", 10)]
    assert verify(repaired(text), "Doubled").findings == ()


def test_the_line_that_is_wrong_is_pointed_at() -> None:
    """What several wrong gradients depend on and no right one does; else what gives the one that is wrong."""
    for old, new, line in (
        ("gelu_backward(approximate=false)", "silu_backward()", "silu_backward"),
        (
            "(d_h, w) -> matmul(transpose=NN) -> d_x",
            "(d_h, w) -> matmul(transpose=NN) -> scale(1.01) -> d_x",
            "scale",
        ),
    ):
        findings = verify(RECOMPUTED.replace(old, new), B=2, T=3).findings
        assert findings
        assert all(line in item.span.text for item in findings), [item.span.text for item in findings]


def test_one_wrong_element_is_found() -> None:
    """It is lost in the sum along a direction, and is named by its place."""
    text = """
    module M(d: int = 8):
      params:
        w: [d]

      forward:
        in: x: [B, d]
        out: y: [B, d]
        graph:
          (x, w) -> mul() -> y

        save: [x]

      backward:
        graph:
          (d_y, saved.x, w) -> mul_backward() -> (d_x, d_p)
          d_p[0:1] -> scale(1.0001) -> first
          (first, d_p[1:8]) -> concat(dim=0) -> d_w
    """
    trial = Trial(tolerance=5e-5)
    found = verify_backward(instance_of(text, "M"), CompilationSettings(), trial, compiled)
    assert [item.name for item in found.judged if item.error > trial.tolerance] == ["d_w"]
    assert "at [0]" in found.findings[0].message


def test_what_gradient_changes_is_told_without_a_finding() -> None:
    text = RECOMPUTED.replace("-> d_x", "-> d_x @gradient(scale=0.1)")
    found = verify(text)
    assert found.findings == ()
    assert found.judged[0].error > 0.5


def test_a_graph_that_is_wrong_is_not_run() -> None:
    found = verify(RECOMPUTED.replace("-> d_x", "-> d_other"))
    assert [item.code for item in found.findings] == ["E005"]


FORMS = {
    "packed attention": (
        "qkv: [B, T, 8, 4]",
        "[B, T, 4, 4]",
        ["qkv -> flash_attention(window_size=2) -> y"],
    ),
    "packed rotation and norms": (
        "(qkv: [B, T, 8, 4], q: [4], k: [4])",
        "[B, T, 8, 4]",
        ["(qkv, q, k, freqs) -> qkv_qk_norm_rope() -> n", "n -> rope(freqs=freqs) -> y"],
    ),
    "attention with slopes": (
        "(q: [B, 4, T, 4], k: [B, 2, T, 4], v: [B, 2, T, 4])",
        "[B, 4, T, 4]",
        ["(q, k, v) -> flash_attention(alibi_slopes=[0.5, 0.25, 0.125, 0.0625]) -> y"],
    ),
    "both outputs of attention": (
        "(q: [B, 4, T, 4], k: [B, 2, T, 4], v: [B, 2, T, 4])",
        "[B, 4, T, 4]",
        [
            "(q, k, freqs) -> rope(interleaved=true) -> (a, b)",
            "(a, b, v) -> flash_attention(causal=false) -> y",
        ],
    ),
    "heads out of one tensor": (
        "qkv: [B, T, 32]",
        "[B, T, 16]",
        ["qkv -> split_and_reshape() -> (q, k, v)", "(q, k, v) -> flash_attention() -> reshape() -> y"],
    ),
    "batches that broadcast": (
        "(a: [B, 3, T, 4], b: [3, 4, T])",
        "[B, 3, T, T]",
        ["(a, b) -> batched_matmul() -> y"],
    ),
    "groups": ("(x: [B, T, 8], w: [8])", "[B, T, 8]", ["(x, w) -> group_rmsnorm(n_groups=2) -> y"]),
    "mask": (
        "(x: [B, T, 8], mask: [B, T] @gradient(skip))",
        "[B, T, 8]",
        ["(x, mask) -> apply_mask() -> y"],
    ),
    "experts that are instances": (
        "(x: [T, 4], gate: [3, 4])",
        "[T, 4]",
        [
            "(x, gate) -> moe_router(2) -> (weights, indices)",
            "indices -> moe_compute_offsets(3) -> offsets",
            "(x, indices, offsets) -> moe_permute() -> (permuted, scatter)",
            "(permuted, experts, offsets) -> moe_experts() -> rows",
            "(rows, weights, scatter) -> moe_unpermute() -> y",
        ],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_of_primitives_have_right_gradients(form: str) -> None:
    inputs, out, statements = FORMS[form]
    experts = "\n      params:\n        experts: [3] x ExpertMLP(4, 5)" if "instances" in form else ""
    text = f"""
    import std.modules.moe.ExpertMLP

    module M(num_heads: int = 4, num_kv_heads: int = 2, max_seq: int = 16):
      constants:
        freqs: precompute_rope_freqs(max_seq, 4){experts}
      forward:
        in: {inputs}
        out: y: {out}
        graph:
"""
    found = verify(text + "".join(f"          {line}\n" for line in statements), B=2, T=3)
    assert found.findings == (), list(found.lines())
    assert found.judged
    assert found.judged[0].error < 1e-4, list(found.lines())


def test_a_wrong_part_is_named_with_its_line_not_the_whole_around_it() -> None:
    text = """
    module Doubled(d: int):
      forward:
        in: x: [B, d]
        out: y: [B, d]
        graph:
          x -> scale(factor=2.0) -> y
      backward:
        d_y: [B, d]
        d_x: [B, d]
        graph:
          d_y -> scale(factor=3.0) -> d_x

    module M(d: int = 3):
      params:
        w: [d, d]
        double: [2] x Doubled(d)
      forward:
        in: x: [B, d]
        out: y: [B, d]
        graph:
          (x, w) -> matmul(transpose=NT) -> h
          h -> double[0]() -> double[1]() -> y
    """
    (finding,) = verify(text, B=2).findings
    assert "'d_x' of 'Doubled' is not the gradient" in finding.message
    assert finding.span.text == "d_y -> scale(factor=3.0) -> d_x"
