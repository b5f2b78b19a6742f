"""Grouped GEMM of experts, as it is planned for a GPU: the interpreter runs it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from bench.cuda_groups import experts_text
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.base.dtype import I32
from lamella.bridge.graph_to_kernels.grouped_gemm import most_tiles, write_table
from lamella.bridge.graph_to_kernels.terms import TensorView
from lamella.bridge.graph_to_kernels.tile_parameters import FAULT
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Function, Program, Value
from tests.backend.cuda.test_tensor_core_gemm import plan

EXPERTS = 5


def write_grouped(folder: Path, rows: int, width: int, features: int, transpose: str = "TN") -> Path:
    """Rows of experts times their matrices, and a function of that."""
    matrix = f"{width},{features}" if transpose == "NN" else f"{features},{width}"
    path = folder / "grouped.sknd"
    path.write_text(
        "import moe, nn;\n"
        f"graph Grouped {{ @input {{ x: real[{rows},{width}]; offsets: int[{EXPERTS + 1}]; }}"
        f" @variable {{ w: real[{EXPERTS},{matrix}]; }} @output {{ y: real[{rows},{features}]; }}"
        f' @compose {{ z = moe.grouped_gemm{{transpose="{transpose}"}}(x, w, offsets); y = nn.silu(z); }} }}\n'
    )
    return path


def run_plan(made: KernelGraph, given: dict[str, Array]) -> Array:
    """The output that the interpreter computes."""
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = dict(given)
    run.state["w"] = given.pop("w")
    return np.asarray(run(**given)["y"])


def rounded(array: Array) -> Array:
    """Numbers as bf16 has them, rounded to the nearest even."""
    bits = array.astype(np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return kept.astype(np.uint32).view(np.float32).astype(np.float64)


def judge(given: dict[str, Array], transpose: str) -> Array:
    """Each group of rows times its matrix, and silu of that."""
    places = given["offsets"]
    parts = []
    for expert, (begin, end) in enumerate(pairwise(places)):
        matrix = rounded(given["w"][expert])
        parts.append(rounded(given["x"][begin:end]) @ (matrix if transpose == "NN" else matrix.T))
    found = np.concatenate(parts)
    return np.asarray(found / (1 + np.exp(-found)))


def draw(rows: int, width: int, features: int, offsets: list[int], transpose: str) -> dict[str, Array]:
    """Arrays of the inputs."""
    random = np.random.default_rng(rows)
    shape = (EXPERTS, width, features) if transpose == "NN" else (EXPERTS, features, width)
    return {
        "x": random.standard_normal((rows, width)).astype(np.float32),
        "w": (random.standard_normal(shape) / 8).astype(np.float32),
        "offsets": np.array(offsets, np.int64),
    }


@pytest.mark.parametrize("transpose", ["TN", "NN"])
@pytest.mark.parametrize(
    ("rows", "offsets"),
    [
        (150, [0, 70, 70, 71, 135, 150]),
        (150, [0, 0, 0, 150, 150, 150]),
        (40, [0, 1, 20, 21, 39, 40]),
        (5, [0, 2, 2, 4, 5, 5]),
        (1, [0, 0, 0, 0, 1, 1]),
    ],
)
def test_rows_meet_the_matrices_of_their_experts(
    rows: int, offsets: list[int], transpose: str, tmp_path: Path
) -> None:
    given = draw(rows, 64, 48, offsets, transpose)
    made = plan(write_grouped(tmp_path, rows, 64, 48, transpose))
    np.testing.assert_allclose(run_plan(made, given), judge(given, transpose), rtol=1e-4, atol=1e-4)


def test_tiles_of_experts_run_as_pipelines(tmp_path: Path) -> None:
    made = plan(write_grouped(tmp_path, 150, 64, 48))
    compiled = emit(made.program, find_target("sm_90a"))
    (found,) = (item for item in compiled.entries if item.pipeline is not None)
    assert "grouped_gemm" in found.name
    assert "wgmma" in compiled.text


def test_a_few_rows_read_the_matrices_that_they_name(tmp_path: Path) -> None:
    made = plan(write_grouped(tmp_path, 5, 64, 48))
    promises = [
        [item.attributes.find("alignment") for item in kernel.parameters if item.attributes]
        for kernel in made.program.functions
    ]
    assert [16, 16] in promises
    names = {item.value.name for kernel in made.program.functions for item in kernel.parameters}
    assert not any("tiles" in name for name in names)


def run_table(owners: list[int], size: int) -> tuple[Array, bool]:
    """The table of the tiles of some rows, and whether it found a fault."""
    view = TensorView(Value("owners"), I32, (len(owners),))
    tiles = most_tiles(len(owners), size, EXPERTS)
    kernel = write_table(view, ("owners", None), size, EXPERTS, tiles)
    function = Function("table", (*kernel.parameters, FAULT), kernel.body, kernel.attributes)
    table, fault = np.full((3, tiles), -7, np.int32, order="F"), np.zeros(1, np.int32)
    call = interpreter.compile_program(Program((function,)), check_bounds=True).call
    call("table", [table, np.array(owners, np.int32), fault], 1)
    return table.T, bool(fault[0])


@pytest.mark.parametrize("size", [2, 4, 64])
def test_a_table_has_a_tile_for_some_rows_of_each_owner(size: int) -> None:
    random = np.random.default_rng(size)
    for rows in (1, 7, 30):
        owners = np.sort(random.integers(0, EXPERTS, rows))
        found, fault = run_table([int(item) for item in owners], size)
        want = []
        for owner in range(EXPERTS):
            (places,) = np.nonzero(owners == owner)
            want += [(owner, place, places[-1] + 1) for place in places[::size]]
        want += [(0, 0, 0)] * (len(found) - len(want))
        assert not fault
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("owners", [[0, 2, 1], [0, 1, EXPERTS], [-1, 0, 0]])
def test_owners_in_no_order_or_unknown_are_a_fault(owners: list[int]) -> None:
    assert run_table(owners, 4)[1]


def test_an_unknown_owner_of_a_single_row_is_the_words_of_the_reference(tmp_path: Path) -> None:
    path = tmp_path / "few.sknd"
    path.write_text(
        "import moe;\ngraph Few { @input { x: real[2,64]; routes: int[2,1]; }"
        " @variable { u: real[4,64,64]; d: real[4,64,64]; } @output { y: real[2,64]; }"
        ' @compose { y = moe.experts{activation="relu"}(x, u, d, routes); } }\n'
    )
    made = plan(path)
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    x = np.ones((2, 64), np.float32)
    assert np.isfinite(run(x=x, routes=np.array([[3], [0]]))["y"]).all()
    with pytest.raises(lamella.LamellaError, match="4"):
        run(x=x, routes=np.array([[4], [0]]))


def write_layer(folder: Path, tokens: int, width: int, hidden: int) -> Path:
    """A layer of a mixture of experts, two of which work on a token."""
    path = folder / "layer.sknd"
    path.write_text(experts_text(tokens, width, hidden, EXPERTS, 2))
    return path


def fill_layer(run: Any, width: int, hidden: int) -> dict[str, Array]:
    """Weights of a layer, of which it takes its own."""
    random = np.random.default_rng(6)
    shapes = {"r": (EXPERTS, width), "u": (EXPERTS, 2 * hidden, width), "d": (EXPERTS, width, hidden)}
    for key, shape in shapes.items():
        run.state[key] = (random.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)
    return {key: run.state[key] for key in shapes}


def judge_layer(weights: dict[str, Array], x: Array) -> Array:
    """Each token goes to the two experts with the largest scores."""
    weights, x = {key: rounded(item) for key, item in weights.items()}, rounded(x)
    scores = x @ weights["r"].T
    y = np.zeros_like(x)
    for token, row in enumerate(scores):
        best = np.argsort(-row, kind="stable")[:2]
        shares = np.exp(row[best] - row[best].max())
        for share, expert in zip(shares / shares.sum(), best, strict=True):
            gate, up = np.split(x[token] @ weights["u"][expert].T, 2)
            hidden = rounded(gate / (1 + np.exp(-gate)) * up)
            y[token] += share * (hidden @ weights["d"][expert].T)
    return np.asarray(y)


@pytest.mark.parametrize("tokens", [1, 70])
def test_tokens_go_to_their_experts_in_every_call(tokens: int, tmp_path: Path) -> None:
    made = plan(write_layer(tmp_path, tokens, 64, 32))
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    weights = fill_layer(run, 64, 32)
    random = np.random.default_rng(tokens)
    for _ in range(2):  # what a scatter left behind must not stay
        x = random.standard_normal((tokens, 64)).astype(np.float32)
        np.testing.assert_allclose(run(x=x)["y"], judge_layer(weights, x), rtol=1e-2, atol=1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 300])
def test_the_device_sends_tokens_to_their_experts(tokens: int, tmp_path: Path) -> None:
    run: Any = lamella.compile(write_layer(tmp_path, tokens, 256, 128), backend="cuda", precision="bf16")
    weights = fill_layer(run, 256, 128)
    random = np.random.default_rng(tokens)
    for _ in range(3):
        x = random.standard_normal((tokens, 256)).astype(np.float32)
        np.testing.assert_allclose(run(x=x)["y"], judge_layer(weights, x), rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "offsets"), [(300, [0, 130, 130, 131, 259, 300]), (5, [0, 2, 2, 4, 5, 5])])
def test_the_device_computes_the_same(rows: int, offsets: list[int], tmp_path: Path) -> None:
    given = draw(rows, 128, 320, offsets, "TN")
    run: Any = lamella.compile(write_grouped(tmp_path, rows, 128, 320), backend="cuda", precision="bf16")
    run.state["w"] = given.pop("w")
    for _ in range(2):
        found = run(**given)["y"]
        np.testing.assert_allclose(found, judge({**given, "w": run.state["w"]}, "TN"), rtol=2e-3, atol=2e-3)
