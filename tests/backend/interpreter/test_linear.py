"""Collective instructions against NumPy in float64: all functions, types, transposes, alpha, beta, layouts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.backend.interpreter.kernels import (
    COMPLEX,
    DTYPES,
    EPSILON,
    INTEGERS,
    Array,
    compile_text,
    draw_array,
    widen,
)

# What each type may be promoted to, as the table of the language says.
PROMOTES = {
    "i8": "i8 i16 i32 i64 index bf16 f16 f32 f64 c32 c64",
    "i16": "i16 i32 i64 index f32 f64 c32 c64",
    "i32": "i32 i64 index f64 c64",
    "i64": "i64",
    "index": "index",
    "bf16": "bf16 f32 f64 c32 c64",
    "f16": "f16 f32 f64 c32 c64",
    "f32": "f32 f64 c32 c64",
    "f64": "f64 c64",
    "c32": "c32 c64",
    "c64": "c64",
}
PAIRS = [(a, b) for a in DTYPES for b in PROMOTES[a].split()]
TWO = ("gemm", "gemv", "ger", "hadamard")
FUNCTIONS = ("axpby", "cumsum", "gemm", "gemv", "ger", "hadamard", "sum")
TRANSPOSES = {"axpby": 1, "gemm": 2, "gemv": 1, "sum": 1}


def judge(function: str, transposes: tuple[bool, ...], arrays: list[Array]) -> Array:
    """What the instruction computes before alpha and beta."""
    flags = (*transposes, False, False)
    arrays = [item.T if flag and item.ndim == 2 else item for item, flag in zip(arrays, flags, strict=False)]
    formulas: dict[str, Callable[..., Array]] = {
        "axpby": lambda a: a,
        "cumsum": lambda a: np.cumsum(a, 1),
        "sum": lambda a: a @ np.ones(a.shape[1], a.dtype),
        "gemm": lambda a, b: np.einsum("ik,kj->ij", a, b),
        "gemv": lambda a, b: np.einsum("ik,k->i", a, b),
        "ger": lambda a, b: np.einsum("i,j->ij", a, b),
        "hadamard": lambda a, b: a * b,
    }
    return np.asarray(formulas[function](*arrays))


def shapes(function: str, transposes: tuple[bool, ...], m: int, n: int, k: int) -> list[tuple[int, ...]]:
    """Shapes of the operands and of the result."""
    plain: dict[str, list[tuple[int, ...]]] = {
        "axpby": [(m, n), (m, n)],
        "cumsum": [(m, n), (m, n)],
        "sum": [(m, n), (m,)],
        "gemm": [(m, k), (k, n), (m, n)],
        "gemv": [(m, k), (k,), (m,)],
        "ger": [(m,), (n,), (m, n)],
        "hadamard": [(m, n), (m, n), (m, n)],
    }
    found = plain[function]
    return [
        item[::-1] if flag else item for item, flag in zip(found, (*transposes, *[False] * 3), strict=False)
    ]


def write_kernel(
    function: str,
    transposes: tuple[bool, ...],
    elements: list[str],
    sizes: list[tuple[int, ...]],
    static: bool,
) -> str:
    """One kernel; alpha has the type of A, beta that of the result."""
    names = "ABC" if len(sizes) == 3 else "AC"
    memrefs = []
    for name, element, shape in zip(names, elements, sizes, strict=True):
        dims = "".join(f"x{size}" if static else "x?" for size in shape)
        layout = "" if static else f",strided<{','.join('?' * len(shape))}>"
        memrefs.append(f"%{name}: memref<{element}{dims}{layout}>")
    flags = "".join(".t" if flag else ".n" for flag in transposes)
    inputs = ", ".join(f"%{name}" for name in names[:-1])
    mode = ", 1" if function == "cumsum" else ""
    return (
        f"func @f(%alpha: {elements[0]}, {', '.join(memrefs)}, %beta: {elements[-1]}) {{\n"
        f"  {function}{flags} %alpha, {inputs}{mode}, %beta, %C\n}}\n"
    )


def scalar(element: str, value: float) -> float | complex | int:
    """A number as an argument of a type."""
    if element in INTEGERS:
        return int(np.trunc(value))
    return complex(value, 0.5) if element in COMPLEX and value not in (0, 1) else value


def run_case(
    function: str,
    transposes: tuple[bool, ...],
    elements: list[str],
    layout: tuple[int, int, int, int, bool],
    factors: tuple[float, float],
    seed: int,
) -> None:
    """Compare one kernel with NumPy."""
    m, n, k, pad, static = layout
    sizes = shapes(function, transposes, m, n, k)
    random = np.random.default_rng(seed)
    arrays = [draw_array(random, e, s, 0 if static else pad) for e, s in zip(elements, sizes, strict=True)]
    alpha, beta = scalar(elements[0], factors[0]), scalar(elements[-1], factors[1])
    kinds = [widen(item, e) for item, e in zip(arrays, elements, strict=True)]
    whole = alpha * judge(function, transposes, kinds[:-1])
    expected = whole + beta * kinds[-1] if beta != 0 else whole
    if beta == 0 and elements[-1] not in INTEGERS:
        arrays[-1][...] = np.nan
    kernels = compile_text(write_kernel(function, transposes, elements, sizes, static))
    kernels.f(alpha, *arrays, beta)
    result = elements[-1]
    if result in INTEGERS:
        assert np.array_equal(arrays[-1], expected.astype(DTYPES[result]))
        return
    scale = abs(alpha) * judge(function, transposes, [abs(item) for item in kinds[:-1]]) + abs(
        beta * kinds[-1]
    )
    wide = {"bf16": "f32", "f16": "f32"}.get(result, result)
    bound = (2 * EPSILON[result] + 4 * (m + n + k) * EPSILON[wide]) * scale + 2.0**-24
    assert np.all(abs(widen(arrays[-1], result) - expected) <= bound)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_promotion(function: str, pair: tuple[str, str]) -> None:
    elements = [pair[0], pair[0], pair[1]] if function in TWO else list(pair)
    transposes = (False,) * TRANSPOSES.get(function, 0)
    run_case(function, transposes, elements, (5, 4, 3, 0, True), (2, 1), 1)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("factors", list(product((0, 1, -1.5), (0, 1, -1.5))))
@pytest.mark.parametrize("static", [True, False])
def test_every_transpose_and_factor(function: str, factors: tuple[float, float], static: bool) -> None:
    for transposes in product((False, True), repeat=TRANSPOSES.get(function, 0)):
        for element in ("f32", "c64", "i16"):
            elements = [element] * (3 if function in TWO else 2)
            run_case(function, transposes, elements, (4, 3, 5, 2, static), factors, 2)


@given(
    st.sampled_from(FUNCTIONS),
    st.sampled_from(PAIRS),
    st.tuples(*[st.integers(1, 7)] * 3, st.integers(0, 3), st.booleans()),
    st.tuples(*[st.sampled_from([0.0, 1.0, -1.5, 3.0])] * 2),
    st.integers(0, 2**32),
)
def test_mixed_operands(
    function: str,
    pair: tuple[str, str],
    layout: tuple[int, int, int, int, bool],
    factors: tuple[float, float],
    seed: int,
) -> None:
    count = TRANSPOSES.get(function, 0)
    transposes = tuple(bool(seed >> bit & 1) for bit in range(count))
    lower, upper = pair
    elements = [lower, upper, upper] if function in TWO else [lower, upper]
    run_case(function, transposes, elements, layout, factors, seed)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("beta", [0, 1])
@pytest.mark.parametrize("element", ["f32", "i32", "c64"])
def test_atomic_updates_of_three_work_groups(function: str, beta: int, element: str) -> None:
    """Each work-group overwrites the result, or adds to it."""
    transposes = (False,) * TRANSPOSES.get(function, 0)
    sizes = shapes(function, transposes, 3, 4, 2)
    text = write_kernel(function, transposes, [element] * len(sizes), sizes, True)
    number = {"f32": f"{beta}.0", "i32": str(beta), "c64": f"[{beta}.0,0.0]"}[element]
    text = text.replace(f", %beta: {element}) {{", f") {{\n  %beta = constant {number} : {element}")
    flags = "".join(".n" for _ in transposes)
    text = text.replace(f"{function}{flags} ", f"{function}{flags}.atomic ")
    random = np.random.default_rng(3)
    arrays = [draw_array(random, element, size) for size in sizes]
    kinds = [widen(item, element) for item in arrays]
    step = judge(function, transposes, kinds[:-1])
    compile_text(text).f(1, *arrays, groups=3)
    expected = kinds[-1] + 3 * step if beta else step
    assert np.allclose(widen(arrays[-1], element), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("instruction", "shape", "result", "formula"),
    [
        ("axpby.t %one, %A, %zero, %C", (), (), lambda a: a),
        ("axpby.t %one, %A, %zero, %C", (5,), (5,), lambda a: a),
        ("sum.t %one, %A, %zero, %C", (5,), (), lambda a: a.sum()),
        ("sum.t %one, %A, %zero, %C", (5, 3), (3,), lambda a: a.sum(0)),
        ("hadamard %one, %A, %A, %zero, %C", (5,), (5,), lambda a: a * a),
        ("cumsum %one, %A, 0, %zero, %C", (4,), (4,), np.cumsum),
        ("cumsum %one, %A, 0, %zero, %C", (4, 3, 2), (4, 3, 2), lambda a: np.cumsum(a, 0)),
        ("cumsum %one, %A, 2, %zero, %C", (4, 3, 2), (4, 3, 2), lambda a: np.cumsum(a, 2)),
    ],
)
def test_other_orders(
    instruction: str, shape: tuple[int, ...], result: tuple[int, ...], formula: Callable[[Array], Array]
) -> None:
    kinds = ["".join(f"x{size}" for size in sizes) for sizes in (shape, result)]
    text = (
        f"func @f(%one: f64, %zero: f64, %A: memref<f64{kinds[0]}>, %C: memref<f64{kinds[1]}>) {{\n"
        f"  {instruction}\n}}"
    )
    values = draw_array(np.random.default_rng(4), "f64", shape)
    found = np.full(result, np.nan, order="F")
    compile_text(text).f(1.0, 0.0, values, found)
    assert np.allclose(found, formula(values), rtol=1e-13, atol=1e-13)


def test_an_empty_sum_is_zero() -> None:
    kernels = compile_text(
        "func @f(%a: f32, %A: memref<f32x?x?>, %B: memref<f32x?x?>, %C: memref<f32x?x?>) {\n"
        "  %zero = constant 0.0 : f32\n  gemm.n.n %a, %A, %B, %zero, %C\n}"
    )
    found = np.full((2, 3), np.nan, np.float32, order="F")
    kernels.f(1.0, np.zeros((2, 0), np.float32, order="F"), np.zeros((0, 3), np.float32, order="F"), found)
    assert np.array_equal(found, np.zeros((2, 3)))


def test_accumulation_is_wider_than_the_result() -> None:
    """A sum of a thousand ones is exact in f32 and would stop at 256 in bf16."""
    kernels = compile_text(
        "func @f(%a: bf16, %A: memref<bf16x1000>, %b: bf16, %C: memref<bf16>) { sum.n %a, %A, %b, %C }"
    )
    total = np.zeros((), DTYPES["bf16"])
    kernels.f(1.0, np.ones(1000, DTYPES["bf16"]), 0.0, total)
    assert float(total) == 1000.0


def test_dynamic_modes_must_agree() -> None:
    kernels = compile_text(
        "func @f(%a: f32, %A: memref<f32x?x?>, %B: memref<f32x?x?>, %C: memref<f32x?x?>) {\n"
        "  gemm.n.n %a, %A, %B, %a, %C\n}"
    )
    arrays = [np.zeros(shape, np.float32, order="F") for shape in ((2, 3), (4, 2), (2, 2))]
    with pytest.raises(Exception, match="A=2x3, B=4x2, C=2x2"):
        kernels.f(1.0, *arrays)
