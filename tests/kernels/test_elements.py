"""Linear algebra on single elements written as loops: NumPy and the interpreter's own instructions judge it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter import compile_program
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.kernels.build import Builder, names_of
from lamella.kernels.passes.lower_foreach import lower_foreach
from lamella.kernels.passes.lower_linalg.elements import lower_elements
from lamella.kernels.rewrite import constants_of, types_of, walk
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.nodes import Blas, Load, Memref, Program
from tests.backend.interpreter.test_linear import PAIRS, scalar
from tests.support.backend.interpreter.kernels import (
    COMPLEX,
    EPSILON,
    INTEGERS,
    Array,
    compile_text,
    draw_array,
    widen,
)

FUNCTIONS = ("axpby.n", "axpby.t", "sum.n", "sum.t", "cumsum0", "cumsum1", "ger", "hadamard")
TARGET = find_target("cpu-avx512")
SIZES = "attributes{subgroup_size=4, work_group_size=[8,2]}"


def lower(text: str) -> Program:
    """The program with its linear algebra as loops over work-items."""
    parsed = parse(Source("kernels.tensor", text))
    assert not errors(parsed.findings), parsed.findings
    (function,) = parsed.program.functions
    builder = Builder(names_of(function))
    types, constants = types_of(function), constants_of(function)
    for statement in function.body.statements:
        if isinstance(statement.instruction, Blas):
            lower_elements(builder, statement.instruction, types, TARGET, constants)
        else:
            builder.add_statement(statement)
    lowered = Program((replace(function, body=builder.region()),))
    assert not errors(check(lowered)), check(lowered)
    found = lower_foreach(lowered, TARGET)
    assert not errors(check(found)), check(found)
    return found


def shapes(function: str, m: int, n: int) -> list[tuple[int, ...]]:
    """Shapes of the operands and of the result."""
    found: dict[str, list[tuple[int, ...]]] = {
        "axpby.n": [(m, n), (m, n)],
        "axpby.t": [(n, m), (m, n)],
        "sum.n": [(m, n), (m,)],
        "sum.t": [(n, m), (m,)],
        "cumsum0": [(m, n), (m, n)],
        "cumsum1": [(m, n), (m, n)],
        "ger": [(m,), (n,), (m, n)],
        "hadamard": [(m, n), (m, n), (m, n)],
    }
    return found[function]


def write_kernel(
    function: str, elements: list[str], sizes: list[tuple[int, ...]], static: bool, factors: tuple[str, str]
) -> str:
    """A kernel; a factor that is not empty is a constant."""
    names = "ABC" if len(sizes) == 3 else "AC"
    memrefs = []
    for name, element, shape in zip(names, elements, sizes, strict=True):
        dims = "".join(f"x{size}" if static else "x?" for size in shape)
        layout = "" if static else f",strided<{','.join('?' * len(shape))}>"
        memrefs.append(f"%{name}: memref<{element}{dims}{layout}>")
    inputs = ", ".join(f"%{name}" for name in names[:-1])
    word, mode = (function[:-1], f", {function[-1]}") if function.startswith("cumsum") else (function, "")
    kinds = (elements[0], elements[-1])
    given = [f"%g{i}: {kind}" for i, kind in enumerate(kinds)]
    lines = [
        f"  %c{i} = constant {text} : {kind}"
        for i, (text, kind) in enumerate(zip(factors, kinds, strict=True))
        if text
    ]
    alpha, beta = (f"%{'c' if text else 'g'}{i}" for i, text in enumerate(factors))
    body = "\n".join([*lines, f"  {word} {alpha}, {inputs}{mode}, {beta}, %C"])
    return f"func @f({', '.join([*given, *memrefs])}) {SIZES} {{\n{body}\n}}\n"


def run_case(
    function: str,
    elements: list[str],
    layout: tuple[int, int, int, bool],
    factors: tuple[float, float],
    known: bool,
) -> None:
    """Compare the lowered kernel with the instruction itself, run by the interpreter."""
    m, n, pad, static = layout
    sizes = shapes(function, m, n)
    random = np.random.default_rng(m * 100 + n)
    arrays = [draw_array(random, e, s, 0 if static else pad) for e, s in zip(elements, sizes, strict=True)]
    numbers = scalar(elements[0], factors[0]), scalar(elements[-1], factors[1])
    texts = [
        _literal(e, v) if known else "" for e, v in zip((elements[0], elements[-1]), numbers, strict=True)
    ]
    text = write_kernel(function, elements, sizes, static, (texts[0], texts[1]))
    if numbers[1] == 0 and elements[-1] not in INTEGERS:
        arrays[-1][...] = np.nan
    scale = _scale(arrays, numbers, elements)
    wanted = arrays[-1].copy(order="F")
    compile_text(text).f(*numbers, *arrays[:-1], wanted)
    compile_program(lower(text), seed=m).f(*numbers, *arrays)
    _compare(arrays[-1], wanted, elements[-1], scale * (m + n))


def _literal(element: str, value: complex) -> str:
    if element in INTEGERS:
        return str(int(value.real))
    if element in COMPLEX:
        return f"[{float(np.real(value))!r}, {float(np.imag(value))!r}]"
    return repr(float(np.real(value)))


def _scale(arrays: list[Array], numbers: tuple[complex, complex], elements: list[str]) -> float:
    whole = 1.0 + abs(numbers[0]) + abs(numbers[1])
    for array, element in zip(arrays, elements, strict=True):
        largest = np.nan_to_num(np.abs(widen(array, element))).max(initial=1.0)
        whole *= max(1.0, float(largest))
    return whole


def _compare(found: Array, wanted: Array, element: str, scale: float) -> None:
    if element in INTEGERS:
        assert np.array_equal(found, wanted)
        return
    bound = 4 * EPSILON[element] * scale
    assert np.all(abs(widen(found, element) - widen(wanted, element)) <= bound)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_promotion(function: str, pair: tuple[str, str]) -> None:
    elements = [pair[0], pair[0], pair[1]] if function in ("ger", "hadamard") else list(pair)
    run_case(function, elements, (5, 4, 0, True), (2, 1), False)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("factors", list(product((0, 1, -1.5), (0, 1, -1.5))))
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_every_factor(function: str, factors: tuple[float, float], static: bool, known: bool) -> None:
    elements = ["f32"] * (3 if function in ("ger", "hadamard") else 2)
    run_case(function, elements, (17, 19, 3, static), factors, known)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("static", [True, False])
def test_many_rows(function: str, static: bool) -> None:
    elements = ["i32"] * (3 if function in ("ger", "hadamard") else 2)
    run_case(function, elements, (147, 3, 1, static), (2, 3), True)


@given(
    st.sampled_from(FUNCTIONS),
    st.sampled_from(["f32", "bf16", "c64", "i32"]),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([0, 1, 2.5]),
)
def test_any_shape(function: str, element: str, m: int, n: int, pad: int, static: bool, beta: float) -> None:
    elements = [element] * (3 if function in ("ger", "hadamard") else 2)
    run_case(function, elements, (m, n, pad, static), (2, beta), m % 2 == 0)


LINES = {
    "order 0": "func @f(%a: f32, %A: memref<f32>, %C: memref<f32>) S {\n axpby.n %a, %A, %a, %C\n}",
    "vectors": "func @f(%a: f32, %A: memref<f32x37>, %C: memref<f32x37>) S {\n axpby.t %a, %A, %a, %C\n}",
    "products": "func @f(%a: f32, %A: memref<f32x5>, %C: memref<f32x5>) S {\n hadamard %a, %A, %A, %a, %C\n}",
    "total": "func @f(%a: f32, %A: memref<f32x77>, %C: memref<f32>) S {\n sum.n %a, %A, %a, %C\n}",
    "scan": "func @f(%a: f32, %A: memref<f32x77>, %C: memref<f32x77>) S {\n cumsum %a, %A, 0, %a, %C\n}",
    "order 3": "func @f(%a: f32, %A: memref<f32x9x2x3>, %C: memref<f32x9x2x3>) S {\n cumsum %a, %A, 0, %a, %C\n}",
    "middle": "func @f(%a: f32, %A: memref<f32x9x2x3>, %C: memref<f32x9x2x3>) S {\n cumsum %a, %A, 1, %a, %C\n}",
    "last": "func @f(%a: f32, %A: memref<f32x2x9x3>, %C: memref<f32x2x9x3>) S {\n cumsum %a, %A, 2, %a, %C\n}",
    "blocks": "func @f(%a: f32, %A: memref<f32x150x2x3>, %C: memref<f32x150x2x3>) S {\n"
    "cumsum %a, %A, 1, %a, %C\n}",
    "short": "func @f(%a: f32, %A: memref<f32x3x9>, %C: memref<f32x3x9>) S {\n cumsum %a, %A, 0, %a, %C\n}",
    "atomic add": "func @f(%a: f32, %A: memref<f32x8x5>, %C: memref<f32x8x5>) S {\n"
    "%b = constant 1.0 : f32\n axpby.n.atomic %a, %A, %b, %C\n}",
    "atomic store": "func @f(%a: f32, %A: memref<f32x20x35>, %C: memref<f32x35x20>) S {\n"
    "%b = constant 0.0 : f32\n axpby.t.atomic %a, %A, %b, %C\n}",
    "atomic tiles": "func @f(%a: f32, %A: memref<f32x20x35>, %C: memref<f32x35x20>) S {\n"
    "%b = constant 1.0 : f32\n axpby.t.atomic %a, %A, %b, %C\n}",
    "atomic sum": "func @f(%a: f32, %A: memref<f32x20x35>, %C: memref<f32x35>) S {\n"
    "%b = constant 1.0 : f32\n sum.t.atomic %a, %A, %b, %C\n}",
}


@pytest.mark.parametrize("name", LINES)
def test_other_orders_and_atomics(name: str) -> None:
    text = LINES[name].replace(" S {", f" {SIZES} {{")
    parameters = parse(Source("kernels.tensor", text)).program.functions[0].parameters
    shapes = [[size or 0 for size in item.type.shape] for item in parameters if isinstance(item.type, Memref)]
    random = np.random.default_rng(1)
    source, target = (draw_array(random, "f32", tuple(shape)) for shape in shapes)
    wanted = target.copy(order="F")
    compile_text(text).f(1.5, source, wanted)
    compile_program(lower(text), seed=1).f(1.5, source, target)
    _compare(target, wanted, "f32", 300)


def test_beta_of_zero_reads_nothing() -> None:
    text = write_kernel("axpby.n", ["f32", "f32"], [(4, 4), (4, 4)], True, ("", "0.0"))
    loads = [
        item.instruction.operand.name
        for item in walk(lower(text).functions[0].body)
        if isinstance(item.instruction, Load)
    ]
    assert loads
    assert len(set(loads)) == 1
