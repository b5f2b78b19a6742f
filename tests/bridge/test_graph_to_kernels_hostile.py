"""Graphs that mean harm: odd names, formulas that multiply, extents beyond memory; clean findings or right numbers."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import F32
from lamella.base.limits import Limits
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.lang.tensor import write
from tests.bridge.test_graph_to_kernels_formulas import operator, run_all
from tests.support.bridge.launch_lists import compile_lists
from tests.support.bridge.operators.calls import agree, by_kernels, by_reference, natives
from tests.support.graph.texts import model_of
from tests.support.judges.harness import library

REAL = np.float32


def test_names_never_meet() -> None:
    """Items of packs, the place where faults are told and words of the tensor language are names as well."""
    formulas = "y[i,] = a[0][i,] + a[1][i,] + a_0[fault[i,],] + fault_[i,], i < 3;"
    inputs = "a: real[3]..(2); a_0: real[3]; fault: int[3]; fault_: real[3];"
    arrays = {f"a:{number}": np.full(3, 10.0**number, REAL) for number in (1, 2)}
    fed = {
        **arrays,
        "a_0": np.arange(3, dtype=REAL),
        "fault": np.asarray([2, 0, 1]),
        "fault_": np.ones(3, REAL),
    }
    found = run_all(operator(inputs, "y: real[3];", formulas), fed)
    np.testing.assert_array_equal(found["y"], [113, 111, 112])


def test_words_of_the_language_are_names() -> None:
    model = model_of(
        "operator func { @input { memref: real[3]; } @output { index: real[3]; } "
        "@lower { index[foreach,] = memref[foreach,], foreach < 3; } }\n"
        "graph G { @input { x: real[3]; } @output { y: real[3]; } @compose { y = func(x); } }"
    )
    x = np.arange(3, dtype=REAL)
    np.testing.assert_array_equal(run_all(model, {"x": x})["y"], x)


def test_tensors_of_a_graph_lend_no_names() -> None:
    builder = Builder(library("specification"), "G")
    x = builder.input('"; ret void }\x1b[31m\u202e', F32, (3,))
    model = Model(builder.finish(builder.call("math.exp", x)), library("specification"))
    text = write(graph_to_kernels(model).program)
    assert text.isascii()
    assert "ret" not in text


@pytest.mark.parametrize(("depth", "native"), [(4, False), (40, True)])
def test_branches_do_not_multiply(depth: int, native: bool) -> None:
    """A gathered element that each branch needs is written in each; beyond a bound the host computes it."""
    locals_ = "".join(f"a{k + 1} = x[i,] > {k}.0 ? a{k} : a{k} + 1.0, " for k in range(depth))
    formulas = f"a0 = x[k[i,],], {locals_}y[i,] = a{depth}, i < 4;"
    model = operator("x: real[4]; k: int[4];", "y: real[4];", formulas)
    run_all(model, {"x": np.arange(4, dtype=REAL), "k": np.asarray([3, 2, 1, 0])}, native)


def test_shared_terms_are_written_once() -> None:
    locals_ = "".join(f"a{k + 1} = a{k} + a{k}, " for k in range(60))
    model = operator("x: real[4];", "y: real[4];", f"a0 = x[i,], {locals_}y[i,] = a60, i < 4;")
    assert len(write(graph_to_kernels(model).program)) < 10_000
    x = np.arange(4, dtype=REAL)
    np.testing.assert_array_equal(run_all(model, {"x": x})["y"], x * 2.0**60)


HUGE = {
    "steps": ("y: real[1];", f"y[0,] += x[0,] * real(i), i < {1 << 62};", "SKR323"),
    "extent": (f"y: real[{1 << 62}];", f"y[i,] = x[0,], i < {1 << 62};", "SKR325"),
    "product": (
        f"y: real[{1 << 40}, {1 << 40}];",
        f"y[i, j] = x[0,], i < {1 << 40}, j < {1 << 40};",
        "SKR325",
    ),
}


@pytest.mark.parametrize(("output", "formulas", "code"), HUGE.values(), ids=HUGE)
def test_what_is_too_large_is_refused(output: str, formulas: str, code: str) -> None:
    with pytest.raises(LamellaError) as caught:
        by_kernels(operator("x: real[1];", output, formulas))(x=np.ones(1, REAL))
    assert [item.code for item in caught.value.findings] == [code]


def test_memory_is_limited() -> None:
    model = operator("x: real[1];", "y: real[1000000];", "y[i,] = x[0,], i < 1000000;")
    kernels = graph_to_kernels(model)
    run = compile_lists(kernels, limits=Limits(max_total_bytes=1 << 20))
    with pytest.raises(LamellaError) as caught:
        run(x=np.ones(1, REAL))
    assert [item.code for item in caught.value.findings] == ["SKR325"]


@pytest.mark.parametrize(
    "index",
    [f"(i * {1 << 40} * {1 << 22}) % 4", f"|i * {1 << 61} + i * {1 << 61}|", f"|i - {(1 << 63) - 1}|"],
)
def test_indices_that_wrap_around(index: str) -> None:
    model = operator("x: real[4];", "y: real[4];", f"y[i,] = x[{index},], i < 4;")
    x = np.arange(4, dtype=REAL)
    agree(by_kernels(model)(x=x), by_reference(model)(x=x))


def test_equal_operations_share_their_kernels() -> None:
    source = library("specification")
    builder = Builder(source, "G")
    y = builder.input("x", F32, (3,))
    for _ in range(500):
        y = builder.call("math.neg", y)
    model = Model(builder.finish(y), source)
    kernels = graph_to_kernels(model)
    assert len(kernels.program.functions) == 1
    assert not natives(kernels)
    x = np.arange(3, dtype=REAL)
    agree(by_kernels(model)(x=x), compile_model(model)(x=x))
