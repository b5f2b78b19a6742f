"""Variants of products: each is text, and all of them compute the same on the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu import compile_program
from lamella.backend.cpu.compile import emit
from lamella.backend.cuda.compile import with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.bridge.graph_to_kernels import KernelOptions, graph_to_kernels
from lamella.bridge.graph_to_kernels.split_reductions import PARTIAL
from lamella.graph.model import Model
from lamella.graph.rewrite import members
from lamella.kernels.candidates import Candidate, Problem
from lamella.kernels.native_products import find_native
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Program
from lamella.pipeline.kernels.execution import prepare
from lamella.pipeline.options import Options

HOPPER = find_target("sm_90a")


def linear(tokens: int, width: int, rows: int) -> str:
    return (
        f"@input {{ x: real[{tokens},{width}]; }} @variable {{ w: real[{rows},{width}]; b: real[{rows}]; }}"
        f" @output {{ y: real[{tokens},{rows}]; }} @compose {{ z = nn.linear(x, w, b); y = nn.relu(z); }}"
    )


PLAIN = (
    "@input { x: real[24,40]; } @variable { w: real[40,64]; } @output { y: real[24,64]; }"
    " @compose { y = linalg.matmul(x, w); }"
)
WINDOWS = (
    "@input { x: real[1,3,6,7]; } @variable { a: real[64,3,1,1]; w: real[40,64,3,3]; b: real[40]; }"
    " @output { y: real[1,40,6,7]; } @compose { c = nn.conv(x, a); t = nn.relu(c);"
    " z = nn.conv{padding=1}(t, w, b); y = nn.relu(z); }"
)
TWICE = (
    "@input { x: real[24,512]; r: real[24,64]; } @variable { w: real[64,512]; v: real[64,64]; }"
    " @output { y: real[24,64]; } @compose { z = nn.linear(x, w, 0.0); a = math.add(z, r); s = nn.relu(a);"
    " t = nn.linear(s, v, 0.0); y = math.add(t, s); }"
)
CASES = {
    "tensor cores": (linear(24, 64, 40), "bf16"),
    "a plain product": (PLAIN, "bf16"),
    "a plain product of reals": (PLAIN, "f32"),
    "windows": (WINDOWS, "bf16"),
    "an output in two types": (TWICE.replace("512", "64"), "bf16"),
    "vectors": (linear(1, 768, 6), "bf16"),
    "codes": (linear(1, 512, 6), "w8"),
    "threads": (linear(24, 40, 36), "f32"),
}

QUICK = ("vectors", "codes", "threads", "a plain product of reals")


def prepared(folder: Path, text: str, precision: str) -> Model:
    path = folder / "product.sknd"
    path.write_text(f"import nn, math, linalg;\ngraph Product {{ {text} }}\n")
    model: Any = lamella.load(path)
    return prepare(model, Options(precision=precision), True)


def written(model: Model, precision: str, choose: Callable[[Problem], Candidate]) -> KernelGraph:
    options = KernelOptions(target=HOPPER, narrow=precision != "f32", choose=choose)
    found = graph_to_kernels(model, options=options)
    return replace(found, program=with_sizes(found.program))


def problems_of(model: Model, precision: str) -> list[Problem]:
    met: list[Problem] = []

    def choose(problem: Problem) -> Candidate:
        met.append(problem)
        return problem.default

    written(model, precision, choose)
    return met


def inputs_of(model: Model) -> dict[str, Array]:
    random = np.random.default_rng(5)
    shapes = {item.name: tuple(int(str(size)) for size in item.shape) for item in members(model.graph.inputs)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def run(made: KernelGraph, given: dict[str, Array]) -> Array:
    kernels = interpreter.compile_program(made.program, check_bounds=True)
    return compile_graph(made, kernels.call)(**given)["y"]


LONG_WINDOWS = (
    "@input { x: real[1,2,4,5]; } @variable { a: real[128,2,1,1]; w: real[24,128,3,3]; b: real[24]; }"
    " @output { y: real[1,24,4,5]; } @compose { c = nn.conv(x, a); t = nn.relu(c);"
    " z = nn.conv{padding=1}(t, w, b); y = nn.relu(z); }"
)
LONG = {
    "whole tiles": linear(64, 512, 32),
    "cut tiles": linear(19, 512, 40),
    "a weight that is laid": PLAIN.replace("40", "512"),
    "windows": LONG_WINDOWS,
    "an output in two types": TWICE,
}


@pytest.mark.parametrize("name", LONG)
def test_work_groups_share_a_long_sum(name: str, tmp_path: Path) -> None:
    model = prepared(tmp_path, LONG[name], "bf16")
    given = inputs_of(model)
    want = run(written(model, "bf16", lambda problem: problem.default), given)
    names: list[str] = []

    def choose(problem: Problem) -> Candidate:
        ways = [item for item in problem.candidates() if "parts of the sum" in item.name]
        names.extend(item.name for item in ways)
        return ways[-1] if ways else problem.default

    made = written(model, "bf16", choose)
    assert names
    compiled = emit(made.program, HOPPER)
    assert any(item.pipeline is not None for item in compiled.entries)
    np.testing.assert_allclose(run(made, given), want, rtol=1e-3, atol=1e-3)


DEEP_WINDOWS = LONG_WINDOWS.replace("128", "256")
DEEP = {
    "rows": (linear(33, 2304, 40), True),
    "windows": (DEEP_WINDOWS, True),
    "a sum that is not so long": (LONG_WINDOWS, False),
    "many tiles": (linear(640, 2304, 512), False),
}


@pytest.mark.parametrize("name", DEEP)
def test_long_sums_of_few_tiles_are_shared_where_nothing_is_measured(name: str, tmp_path: Path) -> None:
    """As many parts on every GPU: numbers do not depend on how many multiprocessors it has."""
    text, shared = DEEP[name]
    model = prepared(tmp_path, text, "bf16")
    found = []
    for count in (0, 24, 132):
        target = replace(HOPPER, multiprocessors=count)
        made = graph_to_kernels(model, options=KernelOptions(target=target, narrow=True))
        found.append(replace(made, program=with_sizes(made.program)))
    calls = [[call for item in made.calls.values() for call in item if not call.once] for made in found]
    for item in calls:
        in_parts = any(operand.name.endswith(PARTIAL) for call in item for operand in call.operands)
        assert in_parts == shared
    if not shared:
        return
    given = inputs_of(model)

    def first(problem: Problem) -> Candidate:
        return next(item for item in problem.candidates() if "parts of the sum" not in item.name)

    plain, *several = (
        compile_graph(item, compile_program(item.program).call)(**given)["y"]
        for item in (written(model, "bf16", first), *found)
    )
    np.testing.assert_allclose(several[0], plain, rtol=1e-3, atol=1e-3)
    for other in several[1:]:
        np.testing.assert_array_equal(other, several[0])


@pytest.mark.parametrize("name", CASES)
def test_all_ways_compute_the_same(name: str, tmp_path: Path) -> None:
    text, precision = CASES[name]
    model = prepared(tmp_path, text, precision)
    given = inputs_of(model)
    want = run(written(model, precision, lambda problem: problem.default), given)
    most = max(len(list(problem.candidates())) for problem in problems_of(model, precision))
    assert most > 1
    # The larger a tile the longer the interpreter takes: of tensor cores the second tile, and the last way.
    for number in range(1, most) if name in QUICK else {1, most - 1}:

        def choose(problem: Problem, number: int = number) -> Candidate:
            ways = list(problem.candidates())
            return ways[min(number, len(ways) - 1)]

        found = run(written(model, precision, choose), given)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_ways_have_names_of_their_own(tmp_path: Path) -> None:
    for text, precision in CASES.values():
        for problem in problems_of(prepared(tmp_path, text, precision), precision):
            names = [item.name for item in problem.candidates()]
            assert len(set(names)) == len(names)
            assert names[0] == problem.default.name


def test_the_usual_way_is_what_is_written_where_nobody_chooses(tmp_path: Path) -> None:
    text, precision = CASES["tensor cores"]
    model = prepared(tmp_path, text, precision)
    plain = graph_to_kernels(model, options=KernelOptions(target=HOPPER, narrow=True))
    chosen = graph_to_kernels(
        model, options=KernelOptions(target=HOPPER, narrow=True, choose=lambda problem: problem.default)
    )
    assert chosen.program == plain.program


def test_ways_are_compiled_for_the_device(tmp_path: Path) -> None:
    text, precision = CASES["tensor cores"]
    (problem,) = problems_of(prepared(tmp_path, text, precision), precision)
    for way in problem.candidates():
        compiled = emit(with_sizes(Program(way.functions)), HOPPER)
        assert {item.name for item in compiled.entries} == {item.name for item in way.functions}


def test_a_text_says_what_a_choice_depends_on(tmp_path: Path) -> None:
    first, again = (
        problems_of(prepared(tmp_path, text, "bf16"), "bf16")[0].text()
        for text in (linear(24, 64, 40), linear(24, 64, 40).replace("x", "tokens"))
    )
    other = problems_of(prepared(tmp_path, linear(24, 64, 48), "bf16"), "bf16")[0].text()
    assert first == again != other


def test_a_product_alone_and_one_with_an_end_have_the_way_of_a_library(tmp_path: Path) -> None:
    (plain,) = problems_of(prepared(tmp_path, PLAIN, "bf16"), "bf16")
    (ended,) = problems_of(prepared(tmp_path, linear(24, 64, 40), "bf16"), "bf16")
    kernels = []
    for problem in (plain, ended):
        (way,) = (item for item in problem.candidates() if item.is_native)
        kernels.append([find_native(item) is not None for item in way.functions])
        assert all(not item.is_native for item in problem.candidates(native=False))
    assert kernels == [[True], [True, False]]


def test_a_library_multiplies_matrices_as_they_lie(tmp_path: Path) -> None:
    (problem,) = problems_of(prepared(tmp_path, PLAIN, "f32"), "f32")
    (way,) = (item for item in problem.candidates() if item.is_native)
    product = find_native(way.functions[0])
    assert product is not None
    assert (product.left.rows, product.left.columns, product.left.transposed) == (64, 40, False)
    assert (product.right.rows, product.right.columns, product.right.transposed) == (40, 24, False)
    assert (product.output.rows, product.output.columns, product.output.element) == (64, 24, "f32")
