"""Backward graphs that are written: what their forms mean, against torch in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lamella.base.dtype import F64
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.bridge.module_to_graph.backward import differentiate
from tests.support.bridge.module_gradients import Tensors, check, compare, differentiated, instance_of, run

X = np.random.default_rng(7).normal(size=(2, 3, 4))

PROJECTION = """
    module M(i: int = 4, o: int = {out}):
      params:
        w: [o, i]
      forward:
        in: x: [B, T, i]
        out: y: [B, T, o]
        graph:
          (x, w) -> matmul(transpose=NT) -> y
        save: [x]
      backward:
        d_y: [B, T, o]
        d_x: [B, T, i]
        graph:
          {back}
          {weight} -> d_w
"""
BACK = [
    "(d_y, w) -> matmul(transpose=NN) -> d_x",
    "d_y -> matmul(w) -> d_x",
    "(d_y, w) -> Linear_backward() -> d_x",
    "d_y -> LinearBackward(w) -> d_x",
    "(d_y, w) -> matmul() -> p\n          p -> d_x",
    "(d_y, saved.x) -> LinearBackward(w) -> d_x",
    "(d_y, saved.x, w) -> matmul_backward(transpose=NT) -> d_x",
]
WEIGHT = [
    "(d_y, saved.x) -> matmul(transpose=TN)",
    "(saved.x, d_y) -> matmul(transpose=TN)",
    "(saved.x, d_y) -> matmul(transpose=NT)",
    "(x, d_y) -> matmul()",
    "(d_y, saved.x) -> weight_grad()",
    "(d_y, saved.x) -> matmul(transpose=TN, accumulate=true)",
    "d_y -> scale(1.0) -> g\n          (saved.x, g) -> matmul()",
]


@pytest.mark.parametrize("back", BACK)
@pytest.mark.parametrize("out", [4, 5])
def test_gradients_of_inputs_mean_what_their_form_says(back: str, out: int) -> None:
    text = PROJECTION.format(out=out, back=back, weight=WEIGHT[0])
    check(text, {"x": X}, lambda i, w: i["x"] @ w["w"].T)


@pytest.mark.parametrize("weight", WEIGHT)
@pytest.mark.parametrize("out", [4, 5])
def test_gradients_of_weights_mean_what_their_form_says(weight: str, out: int) -> None:
    text = PROJECTION.format(out=out, back=BACK[0], weight=weight)
    found = differentiate(instance_of(text), CompilationSettings(element=F64))
    old = "transpose" in weight and weight.startswith("(saved")
    assert [item.code for item in found.findings] == (["W102"] if old else [])
    compare(run(found, {"x": X}), lambda i, w: i["x"] @ w["w"].T)


def test_what_is_written_is_what_is_computed() -> None:
    text = PROJECTION.format(out=5, back="(d_y, w) -> matmul() -> scale(3.0) -> d_x", weight=WEIGHT[0])
    ours = run(differentiated(text), {"x": X})
    wanted = 3 * ours.seeds["y"] @ ours.weights["w"]
    np.testing.assert_allclose(ours.gradients["x"], wanted, rtol=1e-12)


@pytest.mark.parametrize("module", ["Linear", "SwiGLU_MLP"])
def test_modules_of_the_library_have_right_backward_graphs(module: str) -> None:
    arguments = "4, 5, use_bias=true" if module == "Linear" else "4, 6"
    text = f"""
        module M():
          params:
            part: {module}({arguments})
          forward:
            in: x: [B, T, 4]
            out: y: [B, T, {5 if module == "Linear" else 4}]
            graph:
              x -> part() -> y
    """

    def judge(i: Tensors, w: Tensors) -> torch.Tensor:
        if module == "Linear":
            return F.linear(i["x"], w["part.weight"], w["part.bias"])
        gate, up = (i["x"] @ w["part.up_weight"].T).chunk(2, -1)
        return (F.silu(gate) * up) @ w["part.down_weight"].T

    header = f"import std.modules.{'linear' if module == 'Linear' else 'mlp'}.{module}\n"
    import_text = header + "\n".join(line[8:] for line in text.splitlines())
    check(import_text, {"x": X}, judge)


def test_a_module_called_with_tensors_gives_their_gradients() -> None:
    text = """
        import std.modules.linear.Linear

        module M(d: int = 4):
          params:
            w: [d, d]
            b: [d]
          forward:
            in: x: [B, T, d]
            out: y: [B, T, d]
            graph:
              x -> Linear(w, bias=b) -> h
              h -> Linear(w) -> y
    """
    check(text, {"x": X}, lambda i, w: F.linear(F.linear(i["x"], w["w"], w["b"]), w["w"]))


SHARED = """
    module M(d: int = 4):
      params:
        w: [d, d]
      forward:
        in: x: [B, T, d]
        out: y: [B, T, d]
        graph:
          x -> Linear(w) -> h
          h -> Linear(w) -> y
      backward:
        graph:
          (d_y, w) -> Linear_backward() -> d_h
          (d_y, saved.h) -> weight_grad(accumulate=true) -> d_w
          (d_h, w) -> Linear_backward() -> d_x
          (d_h, saved.x) -> weight_grad(accumulate=true) -> d_w
"""


ADDED = "weight_grad(accumulate=true) -> d_w"


@pytest.mark.parametrize("text", [ADDED, "weight_grad() -> d_w @gradient(accumulate)"])
def test_contributions_accumulate(text: str) -> None:
    check(SHARED.replace(ADDED, text), {"x": X}, lambda i, w: i["x"] @ w["w"].T @ w["w"].T)


RECOMPUTED = """
    module M(d: int = 4):
      params:
        w: [d, d]
        v: [d]
      forward:
        in: x: [B, T, d]
        out: y: [B, T, d]
        graph:
          (x, w) -> matmul(transpose=NT) -> h
          h -> gelu(approximate=false) -> a
          (a, v) -> mul() -> y
        save: [x]
        recompute: [h]
      backward:
        graph:
          recompute:
            h -> gelu(approximate=false) -> a
            (saved.x, w) -> matmul(transpose=NT) -> h
          (d_y, a, v) -> mul_backward() -> (d_a, d_v)
          (d_a, saved.h) -> gelu_backward(approximate=false) -> d_h
          (d_h, w) -> matmul(transpose=NN) -> d_x
          (d_h, x) -> matmul(transpose=TN) -> d_w
"""


def test_recomputed_tensors_are_read_by_their_names() -> None:
    check(RECOMPUTED, {"x": X}, lambda i, w: F.gelu(i["x"] @ w["w"].T) * w["v"])


BLOCK = """
    import std.modules.mlp.SwiGLU_MLP
    import std.modules.norms.RMSNormParams

    module Shifted(d: int):
      params:
        w: [d, d]
      forward:
        in: x: [B, T, d]
        out: y: [B, T, d]
        graph:
          (x, w) -> matmul(transpose=NT) -> tanh() -> y

    block Dense(d: int, eps: float = 0.01):
      params:
        ln1: RMSNormParams(d)
        attention: Shifted(d)
        ln2: RMSNormParams(d)
        mlp: SwiGLU_MLP(d, 6)
      forward:
        inputs:
          x: [B, T, d]
          residual: [B, T, d]
        outputs:
          out: [B, T, d]
          residual_out: [B, T, d]
        graph:
          (residual, x) -> fused_residual_rmsnorm(ln1.weight, eps) -> (residual_mid, ln1_out)
          ln1_out -> attention -> attn_out
          (residual_mid, attn_out) -> fused_residual_rmsnorm(ln2.weight, eps) -> (residual_out, ln2_out)
          ln2_out -> mlp -> out
        save: [ln*_out, residual_mid, residual_out]
      backward:
        inputs:
          d_out: [B, T, d]
          d_residual: [B, T, d]
        outputs:
          d_x: [B, T, d]
          d_residual_out: [B, T, d]
        graph:
          (d_out, saved.ln2_out, mlp) -> mlp.backward() -> (d_ln2_out, d_mlp_params)
          (d_ln2_out, d_residual, saved.residual_out, ln2.weight)
            -> fused_residual_rmsnorm_backward(eps=eps) -> (d_residual_mid, d_attn_out, d_ln2_weight)
          (d_attn_out, saved.ln1_out, attention) -> attention.backward() -> (d_ln1_out, d_attn_params)
          (d_ln1_out, d_residual_mid, saved.residual_mid, ln1.weight)
            -> fused_residual_rmsnorm_backward(eps=eps) -> (d_residual_out, d_x, d_ln1_weight)

    model M(n: int = 6, d: int = 4, layers: int = 3):
      params:
        embedding: [n, d]
        blocks: [layers] x Dense(d)
        final_norm: [d]
        lm_head: tied_to(embedding)
      forward:
        in: [B, T, int64]
        out: [B, T, n]
        graph:
          in -> embedding(embedding) -> x0
          zeros([B, T, d]) -> residual0
          (x0, residual0) -> StackedBlocks(blocks, layers) -> (xN, residualN)
          (residualN, xN) -> fused_residual_rmsnorm(final_norm, 0.01) -> (sum, xF)
          xF -> Linear(lm_head) -> out
        save: [in, per_layer_saves..., sum, xF]
      backward:
        d_out: [B, T, n]
        graph:
          (d_out, lm_head) -> matmul(transpose=NN) -> d_xF
          (d_out, saved.xF) -> matmul(transpose=TN, accumulate=true) -> d_lm_head
          (d_xF, saved.sum, final_norm) -> rmsnorm_backward(eps=0.01) -> (d_residualN, d_xN, d_final_norm)
          (d_xN, d_residualN) -> StackedBlocksBackward(blocks, layers) -> (d_x0, d_residual0)
          (d_x0, saved.in) -> embedding_backward() -> d_embedding
"""


def block_model(i: Tensors, w: Tensors) -> torch.Tensor:
    """The model above in torch."""

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (4,), weight, 0.01)

    x, residual = w["embedding"][i["in"]], torch.zeros(())
    for number in range(3):
        block = {name[9:]: item for name, item in w.items() if name.startswith(f"blocks.{number}.")}
        residual = residual + x
        attended = torch.tanh(norm(residual, block["ln1.weight"]) @ block["attention.w"].T)
        residual = residual + attended
        gate, up = (norm(residual, block["ln2.weight"]) @ block["mlp.up_weight"].T).chunk(2, -1)
        x = (F.silu(gate) * up) @ block["mlp.down_weight"].T
    return norm(residual + x, w["final_norm"]) @ w["embedding"].T


def test_blocks_and_a_model_as_the_specification_writes_them() -> None:
    ids = np.array([[0, 5, 2], [1, 1, 3]])
    ours = run(differentiated(BLOCK), {"in": ids})
    compare(ours, block_model)
    assert "lm_head" not in ours.found.gradients
    assert len(ours.found.gradients) == 2 + 3 * 5


def test_written_and_derived_gradients_agree() -> None:
    derived = BLOCK[: BLOCK.index("      backward:\n        d_out")]
    ours = run(differentiated(derived), {"in": np.array([[0, 5, 2], [1, 1, 3]])})
    compare(ours, block_model)


def test_an_instance_called_twice_goes_back_twice() -> None:
    text = """
        module Inner(d: int):
          params:
            w: [d]
          forward:
            in: x: [B, d]
            out: y: [B, d]
            graph:
              (x, w) -> mul() -> silu() -> y

        module M(d: int = 4):
          params:
            inner: Inner(d)
          forward:
            in: x: [B, d]
            out: y: [B, d]
            graph:
              x -> inner() -> h
              h -> inner() -> y
          backward:
            graph:
              d_y -> inner.backward() -> d_h
              d_h -> inner.backward() -> d_x
    """
    check(text, {"x": X[0]}, lambda i, w: F.silu(F.silu(i["x"] * w["inner.w"]) * w["inner.w"]))


def test_gradients_are_scaled_where_it_is_said() -> None:
    text = SHARED.replace("Linear_backward() -> d_x", "Linear_backward() -> d_x @gradient(scale=0.1)")
    ours = run(differentiated(text), {"x": X})
    w = ours.weights["w"]
    np.testing.assert_allclose(ours.gradients["x"], 0.1 * ours.seeds["y"] @ w @ w, rtol=1e-12)


def test_an_identity_with_its_own_backward_is_not_confused_with_its_input() -> None:
    text = """
        module Flip(d: int):
          forward:
            in: x: [B, d]
            out: y: [B, d]
            graph:
              x -> y
          backward:
            graph:
              d_y -> scale(-1.0) -> d_x

        module M(d: int = 4):
          params:
            flip: Flip(d)
          forward:
            in: x: [B, d]
            out: z: [B, d]
            graph:
              x -> flip() -> y
              (x, y) -> mul() -> z
    """
    ours = run(differentiated(text), {"x": X[0]})
    np.testing.assert_allclose(ours.gradients["x"], np.zeros((3, 4)), atol=1e-12)
