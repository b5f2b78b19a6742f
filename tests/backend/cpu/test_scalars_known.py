"""Casts, constants, and what stays known about integers: NumPy, the interpreter and exact integers judge."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.emit import integers, scalars
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.values import ScalarValue
from lamella.backend.interpreter.arithmetic import convert, make_number
from lamella.lang.tensor.nodes import Arith, Cast, Compare, Constant, Number, Scalar, Value
from tests.backend.cpu.test_scalars import agree, draw, wrap
from tests.support.backend.cpu.computing import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    PARTS,
    Array,
    assembly_for,
    here_with,
    run_lanes,
    write_kernel,
)

ALL = (*INTEGERS, *FLOATS, *COMPLEX)
CASTS = [(a, b) for a in ALL for b in ALL if b in COMPLEX or a not in COMPLEX]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def cast_to(element: str, context: EmitContext, value: ScalarValue) -> ScalarValue:
    context.values["a"] = value
    found = scalars.emit_cast(context, Cast(Value("a"), Scalar(element)))
    assert isinstance(found, ScalarValue)
    return found


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_casts(source: str, target: str) -> None:
    values = draw(source, 512)
    if source in FLOATS:
        edges = [
            1e3,
            -1e3,
            127.9,
            -128.9,
            32767.5,
            2147483647.0,
            -2147483649.0,
            9.3e18,
            -9.3e18,
            65519.9,
            65520.0,
        ]
        values[8:19] = np.array(edges).astype(values.dtype)
    expected = np.asarray(convert(values, target))
    for lanes in (1, 16):
        found = run_lanes(lambda context, a: cast_to(target, context, a), [source], target, lanes, values)
        assert agree(found, expected)


def test_doubles_are_rounded_to_halves_once() -> None:
    """Beside a tie of f16, f32 would round the double onto the tie, and the second rounding would go astray."""
    ties = np.arange(0x3C00, 0x7BFF, 7, dtype=np.uint16).view(np.float16).astype(np.float64)
    ties = ties * (1 + 2.0**-11)
    values = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf), ties * 2.0**-24])
    found = run_lanes(lambda context, a: cast_to("f16", context, a), ["f64"], "f16", 16, values)
    assert agree(found, values.astype(np.float16))


# --- constants ----------------------------------------------------------------------------------------------

FLOATING = st.floats(allow_nan=True) | st.sampled_from(
    [65520.0, 3.5e38, 1e-46, 5e-324, -0.0, 1.50390625, 1.51171875]
)


@pytest.mark.parametrize("element", ALL)
@given(data=st.data())
def test_constants_are_rounded_or_wrapped(element: str, data: st.DataObject) -> None:
    value: Number
    if element in INTEGERS:
        value = data.draw(st.integers(-(1 << 63), (1 << 63) - 1))
    else:
        value = data.draw(FLOATING)
    if element in COMPLEX:
        value = (float(data.draw(FLOATING)), float(data.draw(FLOATING)))
    with np.errstate(all="ignore"):
        expected = np.asarray([make_number(value, element)])
    made = Constant(value, Scalar(element))
    assert agree(constant_array(made), expected)


def constant_array(constant: Constant) -> Array:
    """The bits of a constant, read from its text."""
    context = here_with(1)
    found = scalars.emit_constant(context, constant)
    assert context.out.lines == []
    parts = [_read(part, PARTS.get(found.element, found.element)) for part in found.parts]
    if len(parts) == 1:
        return parts[0]
    whole = np.empty(1, DTYPES[found.element])
    whole.real, whole.imag = parts
    return whole


def _read(text: str, element: str) -> Array:
    dtype = DTYPES[element]
    if element in INTEGERS:
        return np.array([int(text)], dtype)
    if element == "bf16":
        return np.array([int(text)], np.int16).view(dtype)
    if element == "f16":
        return np.array([int(text.removeprefix("0xH"), 16)], np.uint16).view(dtype)
    return np.array([int(text, 16)], np.uint64).view(np.float64).astype(dtype)


@pytest.mark.parametrize("element", ["bool", *ALL])
def test_constants_are_read_by_llvm(element: str) -> None:
    value: Number = True if element == "bool" else 5 if element in INTEGERS else 0.1
    number: Number = (0.1, -math.inf) if element in COMPLEX else value
    constant = Constant(number, Scalar(element))

    def emit(context: EmitContext, like: ScalarValue) -> ScalarValue:
        found = scalars.emit_constant(context, constant)
        return scalars.select(
            context, ScalarValue("bool", ("poison",), constant=True), integers.spread(context, found), like
        )

    found = run_lanes(emit, [element], element, 16, np.zeros(16, DTYPES[element]))
    assert agree(found, np.full(16, make_number(number, element)))


# --- what stays known ---------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "sub", "mul", "shl", "div", "rem", "shr", "min", "and", "neg", "not", "abs"]),
        st.sampled_from(["constant", "lane", "uniform", "same"]),
        st.integers(-40, 40),
    ),
    max_size=6,
)


@given(element=st.sampled_from(INTEGERS), steps=STEPS, then=st.sampled_from(INTEGERS))
def test_affine_and_constant_integers_are_what_they_stand_for(
    element: str, steps: list[tuple[str, str, int]], then: str
) -> None:
    """A chain of instructions on lane numbers, constants and a uniform value, beside exact integers."""
    expected: list[int] = [wrap(lane, element) for lane in range(16)]
    seven = np.full(16, 7, DTYPES[element])
    for function, kind, number in steps:
        others = [_other(kind, number, n, value, function) for n, value in enumerate(expected)]
        expected = [_exact(function, *pair, element) for pair in zip(expected, others, strict=True)]
    expected = [wrap(value, then) for value in expected]

    def emit(context: EmitContext, sevens: ScalarValue) -> ScalarValue:
        uniform = ScalarValue(element, (context.out.value(f"extractelement {_typed(sevens)}, i64 0"),))
        value = integers.affine(context, "0", 1, element)
        for function, kind, number in steps:
            context.values["a"] = value
            context.values["b"] = _operand(context, kind, number, value, uniform, function)
            names = ("a",) if function in ("neg", "not", "abs") else ("a", "b")
            found = scalars.emit_arith(context, Arith(function, tuple(map(Value, names)), Scalar(element)))
            assert isinstance(found, ScalarValue)
            value = found
        found = scalars.convert(context, value, then)
        return integers.spread(context, found)

    assert run_lanes(emit, [element], then, 16, seven).tolist() == expected


def _typed(value: ScalarValue) -> str:
    return f"<16 x {'i64' if value.element == 'index' else value.element}> {value.operand}"


def _limited(function: str, number: int) -> int:
    if function in ("shl", "shr"):
        return abs(number) % 8
    return number or 3


def _other(kind: str, number: int, lane: int, value: int, function: str) -> int:
    if kind == "constant" or function in ("shl", "shr", "div", "rem"):
        return _limited(function, number)
    return {"lane": lane, "uniform": 7, "same": value}[kind]


def _operand(
    context: EmitContext, kind: str, number: int, value: ScalarValue, uniform: ScalarValue, function: str
) -> ScalarValue:
    if kind == "constant" or function in ("shl", "shr", "div", "rem"):
        return integers.number(_limited(function, number), value.element)
    return {"lane": integers.affine(context, "0", 1, value.element), "uniform": uniform, "same": value}[kind]


def _exact(function: str, a: int, b: int, element: str) -> int:
    quotient = abs(a) // abs(b or 1) * (1 if (a < 0) == (b < 0) else -1)
    results = {
        "add": a + b,
        "sub": a - b,
        "mul": a * b,
        "shl": a << (b % 8),
        "shr": a >> (b % 8),
        "div": quotient,
        "rem": a - b * quotient,
        "min": min(a, b),
        "and": a & b,
        "neg": -a,
        "not": ~a,
        "abs": abs(a),
    }
    return wrap(results[function], element)


def test_lane_numbers_stay_even_through_casts() -> None:
    """The emitter of loads sees that neighbouring lanes touch neighbouring memory."""
    context = here_with(16)
    lane = integers.affine(context, "0", 1, "i32")
    wide = scalars.convert(context, lane, "index")
    assert (wide.element, wide.base, wide.step, wide.parts) == ("index", "0", 1, ())
    shifted = scalars.combine(context, "add", wide, integers.dynamic("%n", "index", divisor=16))
    assert shifted.step == 1
    scaled = scalars.combine(context, "shl", shifted, integers.number(2))
    assert scaled.step == 4
    assert scalars.convert(context, scaled, "i32").step == 4
    assert scalars.convert(context, scalars.convert(context, shifted, "i32"), "index").base is None


def test_divisors_follow_the_values() -> None:
    context = here_with(16)
    value = integers.dynamic("%n", "index", divisor=24)
    known = {"div": (6, 4), "shr": (3, 3), "rem": (16, 8), "min": (36, 12), "mul": (4, 96)}
    for function, (number, divisor) in known.items():
        assert scalars.combine(context, function, value, integers.number(number)).divisor == divisor
    assert scalars.combine(context, "div", value, integers.number(7)).divisor == 1
    assert scalars.convert(context, value, "i32").divisor == 8


@pytest.mark.parametrize(
    ("element", "divisors"), [("i8", (1, 6, 8)), ("i32", (1, 6, 8)), ("i64", (4, 6, 24))]
)
def test_only_powers_of_two_divide_what_may_have_wrapped(
    element: str, divisors: tuple[int, int, int]
) -> None:
    """22 * 6 in i8 is -124, which is no multiple of 6; a third of it is odd."""
    context = here_with(16)
    value = integers.dynamic("%n", element, divisor=24)
    found = [scalars.combine(context, "div", value, integers.number(known, element)) for known in (6, 4)]
    found.append(scalars.convert(context, value, "index"))
    assert tuple(item.divisor for item in found) == divisors


def test_known_comparisons_and_selections_write_nothing() -> None:
    context = here_with(16)
    context.values["a"], context.values["b"] = integers.number(3), integers.number(4)
    found = scalars.emit_compare(context, Compare("lt", Value("a"), Value("b"), Scalar("bool")))
    assert found.constant is True
    context.values["c"] = found
    chosen = scalars.emit_arith(
        context, Arith("select", (Value("c"), Value("a"), Value("b")), Scalar("index"))
    )
    assert chosen == integers.number(3)
    assert context.out.lines == []


@pytest.mark.parametrize("target", ["cpu-avx512", "cpu-avx2", "cpu-aarch64"])
def test_instructions_are_selected_for_other_machines(target: str) -> None:
    """None needs a function that a machine without half precision would call."""
    for source, wanted in (("f64", "f16"), ("f16", "i8"), ("i64", "f16"), ("f32", "bf16"), ("f64", "i64")):
        text = write_kernel(
            lambda context, a, to=wanted: cast_to(to, context, a), [source], wanted, 16, target
        )
        shown = assembly_for(text, target)
        assert "call" not in shown
        assert "\tbl\t" not in shown
