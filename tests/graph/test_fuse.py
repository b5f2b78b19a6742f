"""Fusion: which groups a graph has, and that a fused graph is the same graph in numbers and in text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import errors
from lamella.bridge.graph_to_skriptnd import graph_to_skriptnd, with_identifiers
from lamella.graph.compose import compose
from lamella.graph.compose.decompose import compose_call
from lamella.graph.model import Model
from lamella.graph.nodes import Operation
from lamella.graph.passes.decompose_all import decompose_all
from lamella.graph.passes.fuse import Fusion, Kind, Machine, fuse, fuse_model, kind_of
from lamella.graph.passes.fuse.machine import GPU
from lamella.graph.verify import verify
from lamella.lang.skriptnd import check, write
from lamella.ops.library import Library
from tests.support.graph.running import run, same
from tests.support.graph.texts import model_of, small
from tests.support.strategies.graph import models

EXTENTS = st.integers(1, 4).map(lambda size: {"n": size})


def read_back(model: Model, folder: Path) -> Model:
    """The model that the text of another is; its modules must be right."""
    for name, document in graph_to_skriptnd(model).items():
        (folder / f"{name}.sknd").write_text(write(document), encoding="utf-8")
    library = Library()
    module = library.load(folder)
    composed = compose(module)
    findings = [*module.findings, *composed.findings]
    for name, document in library.documents.items():
        findings += check(document, name, library.find_operator)
    assert not errors(findings), "\n".join(map(str, findings))
    assert composed.graph is not None
    return Model(composed.graph, library)


def groups(fusion: Fusion) -> list[tuple[str, str]]:
    """Kind and operators of each group, without the modules of the operators."""
    return [
        (item.kind.value, " ".join(name.rpartition(".")[2] for name in item.operators))
        for item in fusion.groups
    ]


# --- every graph ----------------------------------------------------------------------------------------------


@given(model=models(), extents=EXTENTS)
def test_fused_graphs_give_the_same_bits(model: Model, extents: dict[str, int]) -> None:
    fused = fuse(model)
    assert not verify(fused.graph, fused.library)
    same(run(model, extents), run(fused, extents))


@given(model=models(), extents=EXTENTS)
def test_fused_graphs_read_back(
    tmp_path_factory: pytest.TempPathFactory, model: Model, extents: dict[str, int]
) -> None:
    fused = with_identifiers(fuse(model))
    again = read_back(fused, tmp_path_factory.mktemp("fused"))
    assert [item.operator for item in again.graph.operations()] == [
        item.operator for item in fused.graph.operations()
    ]
    same(run(fused, extents), run(again, extents))


@given(model=models())
def test_members_are_the_operations_of_the_flat_graph(model: Model) -> None:
    """One level of decomposition gives back what was fused: nothing is lost, nothing is computed twice."""
    fused = fuse(model)
    inside = [
        member.operator.rpartition(".")[2].removeprefix("aten_")
        for operation in fused.graph.operations()
        for member in (compose_call(fused.library, operation).nodes if _is_fused(operation) else (operation,))
        if isinstance(member, Operation)
    ]
    flat = [item.operator.rpartition(".")[2].strip("_") for item in decompose_all(model).graph.operations()]
    assert sorted(inside) == sorted(flat)


def _is_fused(operation: Operation) -> bool:
    return operation.operator.startswith("fused.")


@given(model=models())
def test_fusing_twice_changes_nothing(model: Model) -> None:
    once = fuse(model)
    assert fuse(once).graph == once.graph


# --- kinds ----------------------------------------------------------------------------------------------------

X = "x: real[2, 3, 4];"
KINDS = {
    "elementwise": (X, "y = math.exp(x);", Kind.MAP),
    "broadcast": (X + "b: real[4];", "y = math.add(x, b);", Kind.MAP),
    "transposition": (X, "y = layout.transpose{perm=[2, 0, 1]}(x);", Kind.MAP),
    "transposition of ones": ("x: real[1, 3, 1];", "y = layout.transpose{perm=[2, 0, 1]}(x);", Kind.VIEW),
    "slice": (X, "y = layout.slice{axes=[1], begin=[1], end=[3]}(x);", Kind.MAP),
    "concatenation": (X, "y = layout.concat{axis=0}([x, x]);", Kind.MAP),
    "flatten": (X, "y = layout.flatten(x);", Kind.VIEW),
    "copy": (X, "y = math.iden(x);", Kind.VIEW),
    "sum": (X, "y = math.sum_reduce{axes=[1]}(x);", Kind.REDUCE),
    "maximum": (X, "y = math.max_reduce{axes=[0, 2]}(x);", Kind.REDUCE),
    "pooling": (
        "x: real[1, 2, 6, 6];",
        "y = nn.max_pool{axes=[2, 3], size=[3, 3], stride=[2, 2]}(x);",
        Kind.REDUCE,
    ),
    "product": (X + "w: real[2, 4, 5];", "y = linalg.matmul(x, w);", Kind.CONTRACT),
    "linear": ("x: real[2, 3]; w: real[5, 3];", "y = nn.linear(x, w);", Kind.CONTRACT),
    "convolution": (
        "x: real[1, 4, 6, 6]; w: real[6, 2, 3, 3];",
        "y = nn.conv{groups=2, padding=[1, 1, 1, 1]}(x, w);",
        Kind.CONTRACT,
    ),
    "depthwise convolution": (
        "x: real[1, 4, 6, 6]; w: real[4, 1, 3, 3];",
        "y = nn.conv{groups=0}(x, w);",
        Kind.CONTRACT,
    ),
    "transposed convolution": (
        "x: real[1, 4, 6, 6]; w: real[4, 2, 3, 3];",
        "y = nn.deconv{stride=[2, 2]}(x, w);",
        Kind.CONTRACT,
    ),
    "sum of squares": (X, "z = math.sqr(x); y = math.sum_reduce{axes=[2]}(z);", Kind.REDUCE),
    "cumulative sum": (X, "y = math.cumsum{axis=1}(x);", Kind.SCAN),
    "gathering": (X + "i: int[2];", "y = layout.gather{axis=1}(x, i);", Kind.GATHER),
    "random": (X, "z = rand.normal{shape=[2, 3]}(); y = math.exp(z);", Kind.MAP),
    "open extent": ("x: real[n|8, 4];", "y = layout.flatten(x);", Kind.VIEW),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_formulas_tell_the_kind(name: str) -> None:
    inputs, body, kind = KINDS[name]
    model = decompose_all(small(inputs, body))
    assert kind_of(model.library, list(model.graph.operations())[-1]) is kind


def test_random_operators_are_opaque() -> None:
    model = small("", "y = rand.normal{shape=[2, 3]}();")
    assert kind_of(model.library, next(model.graph.operations())) is Kind.OPAQUE


# --- groups ---------------------------------------------------------------------------------------------------

NORM = "sum_reduce div sub sqr sum_reduce div sub add rsqrt mul"
ROW = "max_reduce sub exp sum_reduce div"
SCORES = "q: real[2, 4, 5, 8]; k: real[2, 4, 7, 8]; v: real[2, 4, 7, 3];"
GROUPS = {
    "chain": ("x: real[9, 4];", "a = math.exp(x); b = math.neg(a); y = math.sin(b);", ["map: exp neg sin"]),
    "through a transposition": (
        "x: real[9, 4];",
        "a = math.exp(x); b = layout.transpose{perm=[1, 0]}(a); y = math.sin(b);",
        ["map: exp transpose sin"],
    ),
    "transpositions at the border stay views": (
        "x: real[9, 4];",
        "a = layout.transpose{perm=[1, 0]}(x); b = math.sin(a); c = math.cos(b);"
        "y = layout.transpose{perm=[1, 0]}(c);",
        ["map: sin cos"],
    ),
    "one result read twice": (
        "x: real[9, 4]; z: real[9, 4];",
        "a = math.exp(x); b = math.add(a, z); y = math.mul(b, a);",
        ["map: exp add mul"],
    ),
    "what is costly is not computed again for every element": (
        "x: real[4]; z: real[900, 900, 4];",
        "a = math.exp(x); y = math.add(a, z);",
        [],
    ),
    "nor is what stands before it": (
        "x: real[4]; z: real[900, 900, 4];",
        "a = math.exp(x); b = math.neg(a); y = math.add(b, z);",
        ["map: exp neg"],
    ),
    "what is cheap is": (
        "x: real[4]; z: real[9, 9, 4];",
        "a = math.neg(x); y = math.add(a, z);",
        ["map: neg add"],
    ),
    "softmax": ("x: real[9, 4];", "y = nn.softmax(x);", [f"row: {ROW}"]),
    "softmax of an outer axis": ("x: real[9, 4, 5];", "y = nn.softmax{axes=[1]}(x);", [f"row: {ROW}"]),
    "softmax of an open extent": ("x: real[n|9, m|7];", "y = nn.softmax{axes=[1]}(x);", [f"row: {ROW}"]),
    "residual and norm": (
        "x: real[9, 4]; r: real[9, 4]; s: real[4]; b: real[4];",
        "a = math.add(x, r); c = aten.layer_norm{normalized_shape=[4]}(a, s, b); y = math.add(a, c);",
        [f"row: add {NORM} mul add add"],
    ),
    "rows and columns do not mix": (
        "x: real[9, 4];",
        "a = nn.softmax{axes=[1]}(x); y = nn.softmax{axes=[0]}(a);",
        [f"row: {ROW}", f"row: {ROW}"],
    ),
    "linear with its epilogue": (
        "x: real[9, 4]; w: real[6, 4]; r: real[9, 6];",
        "a = nn.linear(x, w); b = nn.gelu(a); c = math.mul(b, 0.5); y = math.add(c, r);",
        ["contract: linear gelu mul add"],
    ),
    "two products": (
        "x: real[9, 4]; w: real[6, 4]; u: real[5, 6];",
        "a = nn.linear(x, w); b = nn.relu(a); c = nn.linear(b, u); y = nn.relu(c);",
        ["contract: linear relu", "contract: linear relu"],
    ),
    "no transposition behind a product": (
        "x: real[9, 4]; w: real[6, 4]; r: real[6, 9];",
        "a = nn.linear(x, w); b = layout.transpose{perm=[1, 0]}(a); y = math.add(b, r);",
        [],
    ),
    "attention": (
        SCORES,
        "s = linalg.matmul{transB=true}(q, k); t = math.mul(s, 0.3); p = nn.softmax{axes=[3]}(t);"
        "y = linalg.matmul(p, v);",
        [f"attention: matmul mul {ROW} matmul"],
    ),
    "attention with a mask": (
        SCORES + "m: bool[5, 7];",
        "s = linalg.matmul{transB=true}(q, k); t = math.select(m, s, -1e9); p = nn.softmax{axes=[3]}(t);"
        "y = linalg.matmul(p, v);",
        [f"attention: matmul select {ROW} matmul"],
    ),
    "attention of grouped heads": (
        "q: real[2, 4, 5, 8]; k: real[2, 2, 7, 8]; v: real[2, 2, 7, 3];",
        "k2 = layout.unsqueeze{axes=[2]}(k); k3 = layout.tile{axes=[2], repeats=[2]}(k2);"
        "k4 = layout.reshape{shape=[2, 4, 7, 8]}(k3); s = linalg.matmul{transB=true}(q, k4);"
        "v2 = layout.unsqueeze{axes=[2]}(v); v3 = layout.tile{axes=[2], repeats=[2]}(v2);"
        "v4 = layout.reshape{shape=[2, 4, 7, 3]}(v3); p = nn.softmax{axes=[3]}(s); y = linalg.matmul(p, v4);",
        [f"attention: tile flatten unflatten matmul tile flatten unflatten {ROW} matmul"],
    ),
    "weights that are read elsewhere are stored": (
        SCORES,
        "s = linalg.matmul{transB=true}(q, k); p = nn.softmax{axes=[3]}(s); z = linalg.matmul(p, v);"
        "o = layout.concat{axis=3}([p, z]); y = math.neg(o);",
        [f"row: {ROW}", "map: concat neg"],
    ),
    "nothing across a draw": (
        "x: real[9, 4];",
        "a = math.exp(x); r = rand.uniform{shape=[9, 4], min=0.0, max=1.0}(); b = math.mul(a, r); y = math.neg(b);",
        ["map: exp mul neg"],
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name: str) -> None:
    inputs, body, expected = GROUPS[name]
    model = small(inputs, body)
    fusion = fuse_model(model)
    found = [f"{kind}: {operators}" for kind, operators in groups(fusion)]
    assert found == expected


def test_rows_read_parts_where_they_lie_on_a_gpu() -> None:
    """A step of a scan reads its place of all: a kernel would copy it for no reader but the next one."""
    lines = (
        "e = math.exp(x); a = layout.slice{axes=[1], begin=[3], end=[4]}(e); s = layout.squeeze{axes=[1]}(a);"
        " m = math.mul(s, z); y = math.sum_reduce{axes=[1]}(m); b = math.neg(e);"
    )
    model = small("x: real[8, 9, 64]; z: real[8, 64];", lines, "y: real[~, ~]; b: real[~, ~, ~]")
    assert ("row", "mul sum_reduce") in groups(fuse_model(model))
    fusion = fuse_model(model, GPU)
    assert ("row", "slice squeeze mul sum_reduce") in groups(fusion)
    same(run(model, {}), run(fusion.model, {}))


CHAIN = """
import nn, math;
graph G {
    @input { x: real[1, 8, 16, 16]; }
    @variable { a: real[32, 8, 1, 1]; w: real[32, 1, 3, 3]; p: real[8, 32, 1, 1]; }
    @output { y: real[1, 8, 16, 16]; }
    @compose {
        c = nn.conv(x, a);
        e = nn.relu(c);
        d = nn.conv{padding=1, groups=32}(e, w);
        o = nn.conv(d, p);
        y = math.add(o, x);
    }
}
"""


def test_a_chain_in_strips_calls_its_groups(tmp_path: Path) -> None:
    """Its operator calls theirs; it reads back, gives the same bits, and is no part of another."""
    model, near = model_of(CHAIN), Machine(cache=1 << 14)
    assert [kind for kind, _ in groups(fuse_model(model))] == ["contract", "contract"]
    fusion = fuse_model(model, near)
    assert groups(fusion)[-1] == ("strip", "conv_relu conv conv_add")
    assert [item.operator for item in fusion.model.graph.operations()] == [fusion.groups[-1].operator]
    assert not verify(fusion.model.graph, fusion.model.library)
    again = read_back(with_identifiers(fusion.model), tmp_path)
    same(run(model, {}), run(fusion.model, {}))
    same(run(model, {}), run(again, {}))
    assert fuse_model(fusion.model, near).model.graph == fusion.model.graph
