"""GEMM on tensor cores as graphs are planned for a GPU: the interpreter runs it, the processor's kernels judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cuda.compile import with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.graph.nodes import Operation
from lamella.graph.rewrite import members
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options


def plan(path: Path, precision: str = "bf16") -> KernelGraph:
    """The kernels of a graph for Hopper."""
    model: Any = lamella.load(path)
    options = Options(precision=precision)
    made = to_kernels(prepare(model, options, True), options, {}, True, find_target("sm_90a"))
    return replace(made, program=with_sizes(made.program))


def write_graph(folder: Path, shapes: str, lines: str) -> Path:
    """A graph of some lines."""
    path = folder / "products.sknd"
    path.write_text(
        f"import nn, math, linalg, layout, aten, llm;\ngraph Products {{ {shapes} @compose {{ {lines} }} }}\n"
    )
    return path


def linear(tokens: int, width: int, rows: int) -> tuple[str, str]:
    """A layer with a bias, what is added to it, and a function of it."""
    shapes = f"@input {{ x: real[{tokens},{width}]; r: real[{tokens},{rows}]; }}"
    shapes += f" @variable {{ w: real[{rows},{width}]; b: real[{rows}]; }}"
    shapes += f" @output {{ y: real[{tokens},{rows}]; }}"
    return shapes, "z = nn.linear(x, w, b); s = nn.silu(z); y = math.add(s, r);"


def twice(tokens: int, width: int, rows: int) -> tuple[str, str]:
    """A layer whose numbers the next layer reads as halves, and what goes on beside it as they are."""
    shapes = f"@input {{ x: real[{tokens},{width}]; r: real[{tokens},{rows}]; }}"
    shapes += f" @variable {{ w: real[{rows},{width}]; b: real[{rows}]; v: real[{rows},{rows}]; }}"
    shapes += f" @output {{ y: real[{tokens},{rows}]; }}"
    return shapes, (
        "z = nn.linear(x, w, b); a = math.add(z, r); s = nn.relu(a); t = nn.linear(s, v, 0.0); y = math.add(t, s);"
    )


CASES = {
    "whole tiles": linear(64, 64, 64),
    "cut rows and columns": linear(19, 64, 40),
    "sums that begin with what is added": (
        "@input { x: real[19,64]; r: real[19,40]; } @variable { w: real[40,64]; b: real[40]; }"
        " @output { y: real[19,40]; }",
        "z = nn.linear(x, w, b); s = math.add(r, z); y = nn.relu(s);",
    ),
    "cut sums": linear(24, 40, 64),
    "one vector": linear(1, 72, 50),
    "three vectors": linear(3, 512, 9),
    "a weight that lies along the rows": (
        "@input { x: real[16,40]; } @variable { w: real[40,24]; } @output { y: real[16,24]; }",
        "y = linalg.matmul(x, w);",
    ),
    "a vector and a weight that lies along the rows": (
        "@input { x: real[1,40]; } @variable { w: real[40,24]; } @output { y: real[1,24]; }",
        "y = linalg.matmul(x, w);",
    ),
    "a tensor by itself": (
        "@input { x: real[64,40]; } @output { y: real[40,40]; }",
        "s = math.mul(x, 0.125); y = linalg.matmul{transA=true}(s, s);",
    ),
    "whole tiles of a tensor by itself": (
        "@input { x: real[64,128]; } @output { y: real[128,128]; }",
        "s = math.mul(x, 0.125); y = linalg.matmul{transA=true}(s, s);",
    ),
    "heads": (
        "@input { x: real[32,32]; } @variable { w: real[48,32]; b: real[48]; } @output { y: real[2,3,16,16]; }",
        "z = nn.linear(x, w, b); h = layout.reshape{shape=[2,16,3,16]}(z); y = layout.transpose{perm=[0,2,1,3]}(h);",
    ),
    "attention": (
        "@input { q: real[2,16,32]; k: real[2,24,32]; v: real[2,24,16]; } @output { y: real[2,16,16]; }",
        "y = aten.scaled_dot_product_attention(q, k, v);",
    ),
    "attention in one kernel": (
        "@input { q: real[2,2,40,32]; k: real[2,2,72,32]; v: real[2,2,72,32]; } @output { y: real[2,2,40,32]; }",
        "y = aten.scaled_dot_product_attention(q, k, v);",
    ),
    "heads of one product that attend": (
        "@input { x: real[40,32]; } @variable { w: real[96,32]; b: real[96]; u: real[32,32]; }"
        " @output { y: real[40,32]; }",
        "z = nn.linear(x, w, b); [q, k, v] = layout.split{axis=1, count=3}(z);"
        + "".join(
            f" {name}h = layout.reshape{{shape=[1,40,1,32]}}({name});"
            f" {name}t = layout.transpose{{perm=[0,2,1,3]}}({name}h);"
            for name in "qkv"
        )
        + " a = aten.scaled_dot_product_attention{is_causal=true}(qt, kt, vt);"
        " t = layout.transpose{perm=[0,2,1,3]}(a); f = layout.reshape{shape=[40,32]}(t); y = nn.linear(f, u, 0.0);",
    ),
    "a convolution": (
        "@input { x: real[1,3,6,7]; } @variable { a: real[64,3,1,1]; w: real[40,64,3,3]; b: real[40]; }"
        " @output { y: real[1,40,6,7]; }",
        "c = nn.conv(x, a); t = nn.relu(c); z = nn.conv{padding=1}(t, w, b); y = nn.relu(z);",
    ),
    "a convolution with a stride": (
        "@input { x: real[2,3,8,8]; } @variable { a: real[64,3,1,1]; w: real[24,64,3,3]; b: real[24]; }"
        " @output { y: real[2,24,4,4]; }",
        "c = nn.conv(x, a); t = nn.relu(c); y = nn.conv{padding=1, stride=2}(t, w, b);",
    ),
    "sums of rows": (
        "@input { p: real[2,1,40]; v: real[2,40,50]; } @output { y: real[2,1,50]; }",
        "z = linalg.matmul(p, v); y = math.exp(z);",
    ),
    "causal attention of a token": (
        "@input { q: real[2,2,32]; k: real[2,24,32]; v: real[2,24,128]; } @output { y: real[2,2,128]; }",
        "y = aten.scaled_dot_product_attention{is_causal=true}(q, k, v);",
    ),
    "attention of a token with shared heads": (
        "@input { q: real[1,6,1,64]; k: real[1,2,150,64]; v: real[1,2,150,32]; } @output { y: real[1,6,1,32]; }",
        "y, s = llm.flash_attention{causal=false}(q, k, v);",
    ),
    "an output in two types": twice(64, 64, 64),
    "a cut output in two types": twice(19, 64, 40),
    "a convolution in two types": (
        "@input { x: real[1,3,6,7]; } @variable { a: real[64,3,1,1]; w: real[64,64,3,3]; b: real[64];"
        " v: real[64,64,1,1]; } @output { y: real[1,64,6,7]; }",
        "c = nn.conv(x, a); t = nn.relu(c); z = nn.conv{padding=1}(t, w, b); s = nn.relu(z);"
        " d = nn.conv(s, v); y = math.add(d, s);",
    ),
    "attention of a token": (
        "@input { q: real[1,3,1,32]; k: real[1,3,20,32]; v: real[1,3,20,32]; } @output { y: real[1,3,1,32]; }",
        "y = aten.scaled_dot_product_attention(q, k, v);",
    ),
}


def draw_inputs(made: KernelGraph, random: np.random.Generator) -> dict[str, Array]:
    """An array for each input."""
    shapes = {
        item.name: tuple(int(str(extent)) for extent in item.shape)
        for item in members(made.model.graph.inputs)
    }
    return {key: random.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}


def tolerance(name: str) -> float:
    """What is rounded that the processor does not round: weights of attention, both factors where one tensor is both.

    Sums that are rounded may be so otherwise.
    """
    if ("atten" in name and "token" not in name) or "itself" in name:
        return 3e-2
    return 2e-3 if "two types" in name else 1e-4


@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_processor(name: str, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *CASES[name])
    made = plan(path)
    texts = [item.name for item in made.program.functions]
    assert texts
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    want = lamella.compile(path, backend="cpu", precision="bf16")
    random = np.random.default_rng(5)
    given = draw_inputs(made, random)
    close = tolerance(name)
    np.testing.assert_allclose(run(**given)["y"], want(**given)["y"], rtol=close, atol=close)


@pytest.mark.parametrize(
    "name", ["whole tiles", "cut rows and columns", "cut sums", "heads", "attention", "a convolution"]
)
def test_tiles_of_products_run_as_pipelines(name: str, tmp_path: Path) -> None:
    made = plan(write_graph(tmp_path, *CASES[name]))
    compiled = emit(made.program, find_target("sm_90a"))
    assert any(item.pipeline is not None for item in compiled.entries)


@pytest.mark.parametrize("name", [name for name in CASES if "two types" in name])
def test_one_kernel_stores_an_output_in_two_types(name: str, tmp_path: Path) -> None:
    made = plan(write_graph(tmp_path, *CASES[name]))
    stored = [
        {
            operand.name: operand.element
            for operand in call.operands
            if operand.whole and not operand.is_temporary
        }
        for calls in made.calls.values()
        for call in calls
    ]
    (both,) = (item for item in stored if {"s"} < item.keys())
    assert sorted(both.values()) == ["bf16", "f32"]


@pytest.mark.parametrize(
    "name",
    ["attention in one kernel", "heads of one product that attend", "attention of a token"],
)
def test_attention_is_one_kernel_that_reads_where_its_operands_lie(name: str, tmp_path: Path) -> None:
    made = plan(write_graph(tmp_path, *CASES[name]))
    names = [item.operator for item in made.model.graph.nodes if isinstance(item, Operation)]
    assert not any(item in ("layout.transpose", "layout.split", "layout.slice") for item in names)
    assert all(len(made.calls[made.key(item)]) == 1 for item in made.model.graph.operations())


def test_vectors_are_read_in_pieces(tmp_path: Path) -> None:
    made = plan(write_graph(tmp_path, *CASES["three vectors"]))
    (kernel,) = (item for item in made.program.functions if "linear" in item.name)
    promises = [item.attributes.find("alignment") for item in kernel.parameters if item.attributes]
    assert promises == [16, 16]


def scaled(name: str, code: str) -> str:
    """Lines that make a tensor of codes of 8 bits of another one, and numbers of them, with one scale."""
    return (
        f" {name}a = math.abs({name}); {name}m = math.max_reduce{{axes=[0,1]}}({name}a);"
        f" {name}s = math.mul({name}m, 0.01); {name}d = math.div({name}, {name}s);"
        f" {name}q = llm.quantize<{code}>({name}d); {name}w = llm.dequantize<real>({name}q);"
        f" {name}r = math.mul({name}w, {name}s);"
    )


CODES = (
    "@input { x: real[64,128]; w: real[64,128]; } @output { y: real[64,64]; d: real[64,128]; }",
    scaled("x", "f8e4m3")
    + scaled("w", "f8e4m3")
    + " y = linalg.matmul{transB=true}(xr, wr);"
    + scaled("y", "f8e5m2")
    + " d = linalg.matmul{transA=true}(yr, xr);",
)
"""A product of codes, and one that goes back, whose factors do not lie along the sum."""


def test_codes_of_8_bits_are_multiplied_as_they_are(tmp_path: Path) -> None:
    path = write_graph(tmp_path, *CODES)
    made = plan(path)
    compiled = emit(made.program, find_target("sm_90a"))
    assert sum(item.pipeline is not None for item in compiled.entries) == 2
    assert "k32.f32.e4m3.e4m3" in compiled.text
    assert "e5m2" in compiled.text
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(7))
    found, want = run(**given), lamella.compile(path, backend="reference")(**given)
    for name in "yd":
        np.testing.assert_allclose(found[name], want[name], rtol=1e-4, atol=1e-3)


@pytest.mark.gpu
def test_a_device_multiplies_codes_of_8_bits(tmp_path: Path) -> None:
    path = write_graph(tmp_path, *CODES)
    given = draw_inputs(plan(path), np.random.default_rng(7))
    found = lamella.compile(path, backend="cuda", precision="bf16")(**given)
    want = lamella.compile(path, backend="reference")(**given)
    # The sums of the tensor cores have 13 bits or so behind the point.
    for name in "yd":
        np.testing.assert_allclose(found[name], want[name], rtol=1e-2, atol=2e-2 * np.abs(want[name]).max())


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_device_computes_the_same(name: str, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *CASES[name])
    found, want = (lamella.compile(path, backend=item, precision="bf16") for item in ("cuda", "cpu"))
    random = np.random.default_rng(6)
    given = draw_inputs(plan(path), random)
    close = tolerance(name)
    np.testing.assert_allclose(found(**given)["y"], want(**given)["y"], rtol=close, atol=close)
