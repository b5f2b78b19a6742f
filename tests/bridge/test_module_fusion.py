"""What annotations of the Module DSL do to the groups of a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Found
from lamella.graph.model import Model
from lamella.graph.passes.decompose_all import decompose_all
from lamella.graph.passes.fuse import Fusion, fuse_model
from lamella.graph.passes.merge_products import merge_products
from tests.support.bridge.module_texts import written
from tests.support.graph.running import run, same

TEXT = """\
module M(d: int = 8):
  params:
    w: [d]
    v: [d, d]
    u: [d, d]
    b: [d]
  forward:
    in:
      x: [B, T, d]
      r: [B, T, d]
    out: y: [B, T, {width}]
    graph:
      {body}
"""
NORM = "_mean_square _inverse_root _scale_both"


def load(folder: Path, body: str, width: str = "d") -> Model:
    """A module of one or several statements for known extents."""
    text = TEXT.format(body=body.replace("; ", "\n      "), width=width)
    model = lamella.load(written(folder, text), shape={"B": 2, "T": 3})
    assert isinstance(model, Model)
    return model


def groups(fusion: Fusion) -> list[str]:
    """The operators of each group, without their modules."""
    return [" ".join(name.rpartition(".")[2] for name in item.operators) for item in fusion.groups]


PATTERNS = {
    "residual_norm": ("(x, r) -> add() -> rmsnorm(w) -> y", "d", [f"add {NORM}"]),
    "norm_linear": ("x -> rmsnorm(w) -> matmul(v) -> y", "d", [f"{NORM} matmul"]),
    "gated_mlp": ("x -> split([4, 4]) -> swiglu() -> y", "2", []),
    "attention_softmax": (
        "x -> scale(0.5) -> softmax() -> y",
        "d",
        ["scale max_reduce sub exp sum_reduce div"],
    ),
    "bias_activation": ("x -> add(b) -> silu() -> y", "d", ["add silu"]),
    "linear_bias_act": ("x -> matmul(v) -> add(b) -> silu() -> y", "d", ["matmul iden add silu"]),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_is_one_group(name: str, tmp_path: Path) -> None:
    body, width, expected = PATTERNS[name]
    model = load(tmp_path, f"{body} @fuse_required({name})", width)
    fusion = fuse_model(decompose_all(model))
    assert groups(fusion) == expected
    same(run(model, {}), run(fusion.model, {}))


def test_fuse_asks_for_what_would_not_pay(tmp_path: Path) -> None:
    """Rows are normalised again for every block of a product, unless somebody wants that."""
    body = "x -> rmsnorm(w) -> matmul(v) -> y"
    assert groups(fuse_model(load(tmp_path, body))) == [NORM]
    for annotation in ("@fuse(norm_linear)", "@fuse(ops=[rmsnorm, matmul])", "@fuse(scope=global)"):
        assert groups(fuse_model(load(tmp_path, f"{body} {annotation}"))) == [f"{NORM} matmul"]


def test_the_scope_says_whether_all_must_be_one_group(tmp_path: Path) -> None:
    """Two products are never one group; with the whole statement as scope what can be fused still is."""
    body = "x -> rmsnorm(w) -> matmul(v) -> silu() -> rmsnorm(w) -> matmul(u) -> y @fuse(scope={})"
    apart = [NORM, "matmul iden silu", NORM]
    assert groups(fuse_model(load(tmp_path, body.format("local")))) == apart
    together = [f"{NORM} matmul iden silu", f"{NORM} matmul"]
    assert groups(fuse_model(load(tmp_path, body.format("global")))) == together


def test_fuse_of_what_cannot_be_fused_is_ignored(tmp_path: Path) -> None:
    fusion = fuse_model(load(tmp_path, "x -> matmul(v) -> rmsnorm(w) -> y @fuse(ops=[matmul, rmsnorm])"))
    assert groups(fusion) == [NORM]
    assert any("@fuse, but a reduction follows a contraction" in line for line in fusion.lines())


def test_fuse_required_of_what_cannot_be_fused_is_an_error(tmp_path: Path) -> None:
    model = load(tmp_path, "x -> matmul(v) -> rmsnorm(w) -> y @fuse_required(ops=[matmul, rmsnorm])")
    with pytest.raises(Found) as problem:
        fuse_model(model)
    (finding,) = problem.value.findings
    assert finding.code == "E013"
    assert finding.span.text.startswith("@fuse_required")
    with pytest.raises(LamellaError):
        lamella.lower(model, to="sknd", after="fuse")
    with pytest.raises(LamellaError, match="E013"):
        lamella.compile(model)


def test_nofuse_keeps_an_operation_apart(tmp_path: Path) -> None:
    body = "(x, r) -> add() -> rmsnorm(w) -> z{}; z -> add(b) -> silu() -> y"
    assert groups(fuse_model(load(tmp_path, body.format("")))) == [f"add {NORM} add silu"]
    apart = fuse_model(load(tmp_path, body.format('@nofuse(reason="to look at it")')))
    assert groups(apart) == [NORM, "add silu"]
    assert any("@nofuse: to look at it" in line for line in apart.lines())


def test_nofuse_keeps_products_apart(tmp_path: Path) -> None:
    body = "x -> matmul(v) -> p{}; x -> matmul(u) -> q; (p, q) -> batched_matmul(transpose=NT) -> y"
    for annotation, count in (("", 2), (" @nofuse", 3)):
        model = merge_products(decompose_all(load(tmp_path, body.format(annotation), "T")))
        assert sum(item.operator == "linalg.matmul" for item in model.graph.operations()) == count


def test_a_hook_that_changes_its_tensor_is_a_barrier(tmp_path: Path) -> None:
    body = "(x, r) -> add() -> a{}; a -> silu() -> y"
    assert groups(fuse_model(load(tmp_path, body.format("")))) == ["add silu"]
    assert groups(fuse_model(load(tmp_path, body.format(" @hook(AfterAdd, mode=modify)")))) == []
    assert groups(fuse_model(load(tmp_path, body.format(" @hook(AfterAdd, mode=observe)")))) == ["add silu"]


def test_kernel_names_the_group(tmp_path: Path) -> None:
    body = '(x, r) -> add() -> rmsnorm(w) -> z @kernel("my_norm"); z -> silu() -> y'
    model = load(tmp_path, body)
    fusion = fuse_model(model)
    assert [item.operator for item in fusion.groups] == ["fused.my_norm"]
    assert groups(fusion) == [NORM]
    same(run(model, {}), run(fusion.model, {}))


def test_kernel_tells_targets_what_it_may_take(tmp_path: Path) -> None:
    """Its workspace, and whether it may be chosen by measuring: nothing here measures, so no bit depends on it."""
    body = '(x, r) -> add() -> rmsnorm(w) -> y @kernel("k"{})'
    plain, asked = (load(tmp_path, body.format(words)) for words in ("", ", autotune=false, workspace=64"))
    assert [(item.workspace, item.is_tuned) for item in (*plain.hints, *asked.hints)] == [
        (None, True),
        (64, False),
    ]
    assert fuse_model(plain).model == fuse_model(asked).model


def test_kernels_may_have_any_name(tmp_path: Path) -> None:
    model = load(tmp_path, '(x, r) -> add() -> y @kernel("3x3 / fast")')
    fusion = fuse_model(model)
    assert [item.operator for item in fusion.groups] == ["fused.group_3x3___fast"]
    same(run(model, {}), run(fusion.model, {}))


def test_kernel_of_one_operation_is_a_group_too(tmp_path: Path) -> None:
    fusion = fuse_model(load(tmp_path, '(x, r) -> add() -> a; a -> silu() -> y @kernel("my_silu")'))
    assert [(item.operator, item.operators) for item in fusion.groups] == [("fused.my_silu", ("nn.silu",))]
