"""Flash attention for Hopper: the interpreter runs its text, a formula in double precision judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.run.proof import LaunchFacts, prove
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor.extensions import lower_extensions
from lamella.lang.tensor.nodes import Memref
from tests.backend.cuda.test_cuda_text import assemble_on
from tests.backend.cuda.test_tensor_core_gemm import plan, write_graph

CASES = {
    "grouped heads": (1, 2, 1, 128, 384, False),
    "a causal mask": (1, 1, 1, 256, 384, True),
    "no whole tiles": (1, 1, 1, 130, 330, False),
}
"""Batch, heads, heads of keys, queries, keys, and whether later keys are hidden; vectors have 64 elements."""
DEPTH = 64


def graph_of(folder: Path, case: tuple[int, int, int, int, int, bool], line: str = "") -> Path:
    """A graph of one attention."""
    batch, heads, shared, queries, keys, causal = case
    told = f"is_causal={str(causal).lower()}, enable_gqa={str(heads != shared).lower()}"
    shapes = (
        f"@input {{ q: real[{batch},{heads},{queries},{DEPTH}]; k: real[{batch},{shared},{keys},{DEPTH}];"
        f" v: real[{batch},{shared},{keys},{DEPTH}]; }} @output {{ y: real[{batch},{heads},{queries},{DEPTH}]; }}"
    )
    called = f"aten.scaled_dot_product_attention{{{told}}}(q, k, v)"
    return write_graph(folder, shapes, line.format(called) if line else f"y = {called};")


def draw(case: tuple[int, int, int, int, int, bool]) -> dict[str, Array]:
    """Queries, keys and values."""
    batch, heads, shared, queries, keys, _ = case
    random = np.random.default_rng(11)
    shapes = {
        "q": (batch, heads, queries, DEPTH),
        "k": (batch, shared, keys, DEPTH),
        "v": (batch, shared, keys, DEPTH),
    }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def attend(given: dict[str, Array], causal: bool) -> Array:
    """The same by its formula."""
    q, k, v = (given[name].astype(np.float64) for name in "qkv")
    k, v = (np.repeat(item, q.shape[1] // item.shape[1], 1) for item in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(DEPTH)
    if causal:
        scores = np.where(np.tri(*scores.shape[2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(3, keepdims=True))
    found: Array = weights / weights.sum(3, keepdims=True) @ v
    return found


@pytest.mark.parametrize("name", CASES)
def test_tiles_of_keys_stream_past_the_queries(name: str, tmp_path: Path) -> None:
    made = plan(graph_of(tmp_path, CASES[name]))
    run = compile_graph(made, interpreter.compile_program(made.program).call)
    given = draw(CASES[name])
    # Queries, keys, values and weights are rounded to 8 bits.
    np.testing.assert_allclose(run(**given)["y"], attend(given, CASES[name][-1]), atol=2e-2)


@pytest.mark.parametrize(
    "case", [(2, 4, 2, 512, 512, True), (1, 2, 2, 384, 640, False), (2, 2, 1, 500, 500, True)]
)
def test_it_is_proved_and_one_kernel_of_warpgroups(
    case: tuple[int, int, int, int, int, bool], tmp_path: Path
) -> None:
    made = plan(graph_of(tmp_path, case))
    (function,) = (item for item in made.program.functions if "CoopMulAdd" in repr(item))
    groups = case[0] * case[1] * -(-case[3] // 128)
    types = {item.value.name: item.type for item in function.parameters if isinstance(item.type, Memref)}
    known = LaunchFacts(
        {name: item.shape for name, item in types.items()},
        {},
        {name: item.stride for name, item in types.items()},
    )
    assert prove(lower_extensions(function), known, None, groups, default_sizes(function)).is_complete
    compiled = emit(made.program, find_target("sm_90a"))
    (pipeline,) = (item.pipeline for item in compiled.entries if item.pipeline is not None)
    assert pipeline.threads == 384
    assert len(pipeline.maps) == 3
    assert "wgmma.mma_async" in compiled.text
    # Neither the warpgroups nor the one that copies for them need more registers than they have.
    assert not assemble_on("sm_90a", compiled.text, tmp_path)


def test_rows_that_are_no_softmax_of_scores_are_products_of_halves(tmp_path: Path) -> None:
    """A mask that is added is none that tiles know: scores, their rows and the mixture are kernels of their own."""
    shape = f"[1,2,512,{DEPTH}]"
    shapes = f"@input {{ q: real{shape}; k: real{shape}; v: real{shape}; m: real[1,1,512,512]; }}"
    made = plan(
        write_graph(
            tmp_path,
            f"{shapes} @output {{ y: real{shape}; }}",
            "y = aten.scaled_dot_product_attention(q, k, v, m);",
        )
    )
    compiled = emit(made.program, find_target("sm_90a"))
    assert len([item for item in compiled.entries if item.pipeline is not None]) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES.values(), (2, 4, 2, 512, 512, True), (2, 2, 1, 500, 500, True)])
def test_a_device_computes_the_same(case: tuple[int, int, int, int, int, bool], tmp_path: Path) -> None:
    run = lamella.compile(graph_of(tmp_path, case), backend="cuda", precision="bf16")
    given = draw(case)
    np.testing.assert_allclose(run(**given)["y"], attend(given, case[-1]), atol=2e-2)


def test_heads_of_one_product_are_neither_laid_nor_moved(tmp_path: Path) -> None:
    """Few keys in whole tiles stream too: halves as the product stores them, and a result as the next one reads it."""
    heads = "".join(
        f" {name}h = layout.reshape{{shape=[2,128,2,64]}}({name});"
        f" {name}t = layout.transpose{{perm=[0,2,1,3]}}({name}h);"
        for name in "qkv"
    )
    path = write_graph(
        tmp_path,
        "@input { x: real[256,128]; } @variable { w: real[384,128]; b: real[384]; u: real[128,128]; }"
        " @output { y: real[256,128]; }",
        f"z = nn.linear(x, w, b); [q, k, v] = layout.split{{axis=1, count=3}}(z);{heads}"
        " a = aten.scaled_dot_product_attention(qt, kt, vt); t = layout.transpose{perm=[0,2,1,3]}(a);"
        " f = layout.reshape{shape=[256,128]}(t); y = nn.linear(f, u, 0.0);",
    )
    made = plan(path)
    attention = next(item for item in made.program.functions if "attention_cast" in item.name)
    types = [item.type for item in attention.parameters if isinstance(item.type, Memref)]
    assert {item.element for item in types} == {"bf16"}
    # Vectors, heads, tokens: the order in which the next product goes along them.
    assert [size for size in types[0].shape if size != 1] == [64, 2, 128, 2]
