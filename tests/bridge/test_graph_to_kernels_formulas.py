"""Formulas as kernels: steps that are skipped, steps without a value, orders that matter, tensors of odd shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from lamella.backend.cpu import compile_program
from lamella.backend.executor.kernels import compile_graph
from lamella.backend.interpreter import compile_program as interpret
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.source import Source
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.ops.library import Library
from tests.backend.reference.test_wrong_runs import LIMITS, RUNS, given_inputs
from tests.support.bridge.launch_lists import compile_lists
from tests.support.bridge.operators.calls import Told, agree, build, call, natives
from tests.support.graph.texts import model_of
from tests.support.judges.registry import Given

REAL = np.float32


def operator(inputs: str, outputs: str, formulas: str, attributes: str = "") -> Model:
    """A graph of one call of an operator with these formulas; inputs are written as in the language."""
    names = ", ".join(item.split(":")[0].strip() for item in inputs.split(";") if item.strip())
    results = ", ".join(item.split(":")[0].strip() for item in outputs.split(";") if item.strip())
    return model_of(
        f"operator op {{ @input {{ {inputs} }} @output {{ {outputs} }} {attributes} @lower {{ {formulas} }} }}\n"
        f"graph G {{ @input {{ {inputs} }} @output {{ {outputs} }} @compose {{ {results} = op({names}); }} }}"
    )


def run_all(model: Model, fed: Mapping[str, Array], native: bool = False) -> dict[str, Array]:
    """The outputs by machine code; the interpreter and the reference agree with them, or find the same."""
    kernels = graph_to_kernels(model)
    assert bool(natives(kernels)) is native
    runs = [
        compile_model(model),
        compile_graph(kernels, compile_program(kernels.program).call),
        compile_lists(kernels),
        compile_graph(kernels, interpret(kernels.program).call),
    ]
    expected = runs[0](**fed)
    agree(runs[2](**fed), expected)
    found = runs[1](**fed)
    agree(found, expected)
    return dict(found)


def refused(model: Model, fed: Mapping[str, Array]) -> str:
    """What the machine code says of inputs that it cannot compute with; the reference says the same."""
    kernels = graph_to_kernels(model)
    assert not natives(kernels)
    told = []
    for run in (compile_model(model), compile_lists(kernels)):
        with pytest.raises(LamellaError) as caught:
            run(**fed)
        told.append(str(caught.value))
    assert told[0] == told[1]
    return told[1]


# --- steps that are skipped ---------------------------------------------------------------------------------


def test_guards_skip_what_is_outside() -> None:
    x = np.arange(1, 6, dtype=REAL)
    model = operator("x: real[5];", "y: real[5];", "y[i,] += x[|i + j - 1|,], i < 5, j < 3;")
    np.testing.assert_array_equal(run_all(model, {"x": x})["y"], np.convolve(x, np.ones(3), "same"))


def test_guards_replace_what_is_outside() -> None:
    x = np.arange(1, 6, dtype=REAL)
    model = operator("x: real[5];", "y: real[9];", "y[i,] = x[|i - 2 <> 0 : 4|,], i < 9;")
    np.testing.assert_array_equal(run_all(model, {"x": x})["y"], np.pad(x, 2, "edge"))


def test_guards_of_the_target_skip_too() -> None:
    x = np.arange(1, 6, dtype=REAL)
    model = operator("x: real[5];", "y: real[5];", "y[|i + j - 1|,] += x[i,], i < 5, j < 3;")
    np.testing.assert_array_equal(run_all(model, {"x": x})["y"], np.convolve(x, np.ones(3), "same"))


def test_a_condition_leaves_elements_as_they_were() -> None:
    x = np.asarray([3, -1, 2, -5], REAL)
    formulas = "y[i,] = 7.0, i < 4; y[i,] := x[i,], i < 4 | x[i,] > 0.0;"
    found = run_all(operator("x: real[4];", "y: real[4];", formulas), {"x": x})
    np.testing.assert_array_equal(found["y"], [3, 7, 2, 7])


def test_an_accumulation_without_a_step_keeps_its_first_value() -> None:
    signs = {"+=": 0, "*=": 1, "<=": np.inf, ">=": -np.inf}
    for sign, expected in signs.items():
        formulas = f"y[i,] {sign} x[j,], i < 3, j < 4 | x[j,] > 9.0;"
        found = run_all(operator("x: real[4];", "y: real[3];", formulas), {"x": np.ones(4, REAL)})
        np.testing.assert_array_equal(found["y"], np.full(3, expected, REAL))


# --- steps without a value ----------------------------------------------------------------------------------


def test_an_index_outside_is_told_as_by_the_reference() -> None:
    model = operator("x: real[4]; k: int[3];", "y: real[3];", "y[i,] = x[k[i,],], i < 3;")
    x, good = np.arange(4, dtype=REAL), np.asarray([3, 0, 2])
    np.testing.assert_array_equal(run_all(model, {"x": x, "k": good})["y"], [3, 0, 2])
    for wrong in (4, -1, 1 << 40, -(1 << 63)):
        assert "SKR320" in refused(model, {"x": x, "k": np.asarray([0, wrong, 1])})


def test_a_target_outside_is_told_as_by_the_reference() -> None:
    formulas = "y[i,] = 0.0, i < 4; y[k[i,],] := x[i,], i < 3;"
    model = operator("x: real[3]; k: int[3];", "y: real[4];", formulas)
    assert "SKR320" in refused(model, {"x": np.ones(3, REAL), "k": np.asarray([0, 4, 1])})


@pytest.mark.parametrize("sign", ["/", "%", "\\"])
def test_a_division_by_zero_is_told_as_by_the_reference(sign: str) -> None:
    model = operator("a: int[3]; b: int[3];", "y: int[3];", f"y[i,] = a[i,] {sign} b[i,], i < 3;")
    a, b = np.asarray([7, -7, 7]), np.asarray([2, 2, -2])
    run_all(model, {"a": a, "b": b})
    assert "SKR322" in refused(model, {"a": a, "b": np.asarray([1, 0, 1])})


def test_the_side_that_is_not_chosen_is_not_computed() -> None:
    formulas = "y[i,] = b[i,] == 0 ? -1 : a[i,] / b[i,], i < 4;"
    model = operator("a: int[4]; b: int[4];", "y: int[4];", formulas)
    found = run_all(model, {"a": np.asarray([7, 8, -9, 5]), "b": np.asarray([2, 0, 2, 0])})
    np.testing.assert_array_equal(found["y"], [3, -1, -5, -1])


@pytest.mark.parametrize(("sign", "expected"), [("&&", 0), ("||", 1), ("=>", 1)])
def test_logic_stops_where_the_left_side_decides(sign: str, expected: int) -> None:
    test = "k[i,] >= 4" if sign == "||" else "k[i,] < 4"
    formulas = f"y[i,] = {test} {sign} x[k[i,],] > 0.0, i < 3;"
    model = operator("x: real[4]; k: int[3];", "y: bool[3];", formulas)
    found = run_all(model, {"x": np.asarray([1, -1, 1, 1], REAL), "k": np.asarray([0, 1, 9])})
    np.testing.assert_array_equal(found["y"], [True, False, bool(expected)])


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_wrong_runs_find_the_same(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    library = Library()
    graph = compose(library.load(Source("main.sknd", text))).graph
    assert graph is not None
    told = []
    model = Model(graph, library)
    kernels = graph_to_kernels(model)
    for run in (compile_model(model, limits=LIMITS), compile_lists(kernels, limits=LIMITS)):
        with pytest.raises(LamellaError) as caught:
            run(**given_inputs(text))
        told.append([item.code for item in caught.value.findings])
    assert told[0] == told[1]


# --- orders that matter -------------------------------------------------------------------------------------


def test_the_last_of_several_assignments_stays() -> None:
    formulas = "y[i,] = 0.0, i < 3; y[k[i,],] := x[i,], i < 5;"
    model = operator("x: real[5]; k: int[5];", "y: real[3];", formulas)
    fed = {"x": np.arange(5, dtype=REAL), "k": np.asarray([0, 2, 0, 2, 0])}
    np.testing.assert_array_equal(run_all(model, fed)["y"], [4, 0, 3])


def test_several_steps_add_to_one_place() -> None:
    formulas = "y[k[i,],] += x[i,], i < 200;"
    model = operator("x: real[200]; k: int[200];", "y: real[3];", formulas)
    random = np.random.default_rng(0)
    x, k = random.integers(-9, 9, 200).astype(REAL), random.integers(0, 3, 200)
    np.testing.assert_array_equal(run_all(model, {"x": x, "k": k})["y"], np.bincount(k, x, 3))


def test_a_formula_that_reads_its_target_takes_its_steps_in_order() -> None:
    formulas = "y[i,] = x[i,], i < 50; y[i + 1,] := y[i,] + x[i + 1,], i < 49;"
    x = np.arange(50, dtype=REAL)
    found = run_all(operator("x: real[50];", "y: real[50];", formulas), {"x": x})
    np.testing.assert_array_equal(found["y"], np.cumsum(x))


def test_an_index_in_two_dimensions_takes_each_step_once() -> None:
    formulas = "y[2 - i, i] += x[j,], i < 3, j < 4;"
    found = run_all(operator("x: real[4];", "y: real[3, 3];", formulas), {"x": np.ones(4, REAL)})
    np.testing.assert_array_equal(found["y"], 4 * np.eye(3)[::-1])


def test_the_first_of_equal_elements_is_found() -> None:
    formulas = "k[i,] = 0, i < 2; k[i,] := j, i < 2, j < 5 | x[i, j] > x[i, k[i,]];"
    x = np.asarray([[1, 5, 2, 5, 0], [3, 3, 3, 1, 3]], REAL)
    found = run_all(operator("x: real[2, 5];", "k: int[2];", formulas), {"x": x})
    np.testing.assert_array_equal(found["k"], x.argmax(1))


def test_a_pack_is_assigned_item_by_item() -> None:
    model, fed = build_one("layout.split", "f32 5 3 -1..1", axis=0, sizes=(2, 0, 3))
    found = list(run_all(model, fed).values())
    (x,) = fed.values()
    for part, other in zip(found, np.split(x, [2, 2]), strict=True):
        np.testing.assert_array_equal(part, other)


# --- odd shapes and numbers ---------------------------------------------------------------------------------


def test_numbers_of_rank_0() -> None:
    model = operator("x: real[]; y: real[];", "z: real[];", "z[] = x[] / y[];")
    assert run_all(model, {"x": np.asarray(3, REAL), "y": np.asarray(4, REAL)})["z"] == 0.75


def test_tensors_of_24_dimensions() -> None:
    shape = [1] * 22 + [2, 3]
    model = build_one("math.exp", f"f32 {' '.join(map(str, shape))} -1..1")
    run_all(*model)


@pytest.mark.parametrize("shape", ["0", "0 3", "3 0", "0 0"])
def test_empty_tensors(shape: str) -> None:
    for operator in ("math.exp", "math.sqr"):
        run_all(*build_one(operator, f"f32 {shape} -1..1"))
    run_all(*build_one("linalg.matmul", "f32 3 0", "f32 0 4"))
    run_all(*build_one("layout.concat", [f"f32 {shape}", f"f32 {shape}"], axis=0))


def build_one(
    operator: str, *inputs: Told | list[Told], **attributes: Given
) -> tuple[Model, dict[str, Array]]:
    """A graph of one call, and its inputs."""
    return build([call(operator, *inputs, **attributes)])


ODD = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38, 0.5, 2.5, -2.5, 1e10)
UNARY = (
    *("neg", "rcp", "sqr", "sqrt", "rsqr", "rsqrt", "exp", "log", "log2", "sin", "cos", "tan", "tanh"),
    *(
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "atanh",
        "abs",
        "sign",
        "floor",
        "ceil",
        "round",
    ),
)
BINARY = ("add", "sub", "mul", "div", "mod", "pow", "min", "max", "lt", "le", "gt", "ge", "eq", "ne")


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_odd_numbers(name: str) -> None:
    left, right = (side.ravel().astype(REAL) for side in np.meshgrid(ODD, ODD))
    inputs = [f"f32 {left.size}"] * (1 + (name in BINARY))
    model, fed = build_one(f"math.{name}", *inputs)
    run_all(model, dict(zip(fed, (left, right), strict=False)))


EDGES = (0, 1, -1, 2, -7, 127, -128, 1 << 31, -(1 << 31), (1 << 62) + 3, (1 << 63) - 1, -(1 << 63))


@pytest.mark.parametrize("element", ["i8", "u8", "i16", "u16", "i32", "u32", "i64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "min", "max", "lt", "eq"])
def test_integers_at_their_edges(name: str, element: str) -> None:
    kind = np.dtype({"i": "int", "u": "uint"}[element[0]] + element[1:])
    sides = np.meshgrid(np.asarray(EDGES), np.asarray(EDGES))
    left, right = (side.ravel().astype(kind) for side in sides)
    model, fed = build_one(f"math.{name}", f"{element} {left.size}", f"{element} {left.size}")
    run_all(model, dict(zip(fed, (left, right), strict=True)))


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("target", ["i8", "u8", "i16", "i32", "i64", "bool", "f16", "bf16", "f64"])
@pytest.mark.parametrize("source", ["f32", "f16", "bf16", "f64", "i64", "u8", "bool"])
def test_casts(source: str, target: str) -> None:
    model, fed = build_one(f"layout.cast<{target},{source}>", f"{source} 14 0..1")
    ((name, like),) = fed.items()
    odd = np.asarray(ODD) if like.dtype.kind not in "iub" else np.asarray([0, 1, 2, 200, 127, 255, 3] * 2)
    run_all(model, {name: odd.astype(like.dtype)})
