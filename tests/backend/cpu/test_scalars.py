"""Arithmetic, comparisons and selections of machine code: exact Python integers, NumPy and the interpreter judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from lamella.backend.cpu.emit import scalars
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.values import MatrixValue, ScalarValue
from lamella.backend.interpreter.arithmetic import compute_binary
from lamella.lang.tensor.nodes import Arith, Cast, Coopmatrix, Value
from tests.support.backend.cpu.computing import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    PARTS,
    Array,
    run_lanes,
)

BINARY = ("add", "sub", "mul", "div", "rem", "min", "max")
BITWISE = ("and", "or", "xor")
LANES = (1, 4, 16, 64)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def draw(element: str, count: int = 128, seed: int = 3) -> Array:
    """Numbers of all sizes, with those at the edges of their type."""
    random = np.random.default_rng(seed)
    dtype = DTYPES[element]
    if element == "bool":
        return random.integers(0, 2, count).astype(np.bool_)
    if element in INTEGERS:
        limits = np.iinfo(dtype)
        values = random.integers(limits.min, limits.max, count, endpoint=True).astype(dtype)
        edges = [limits.min, limits.max, 0, 1, -1, 7, -7]
        return np.concatenate([random.permutation(edges).astype(dtype), values])[:count]
    if element in COMPLEX:
        part = PARTS[element]
        found = np.empty(count, dtype)
        found.real, found.imag = draw(part, count, seed), draw(part, count, seed + 9)
        return found
    bits = random.integers(-(1 << (8 * dtype.itemsize - 1)), 1 << (8 * dtype.itemsize - 1), count)
    values = bits.astype(f"i{dtype.itemsize}").view(dtype)
    values[: count // 2] = random.standard_normal(count // 2).astype(dtype)
    special = random.permutation([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5])
    values[:8] = special.astype(dtype)
    values[np.isnan(values)] = np.nan  # one that signals is not what a program makes
    return values


def agree(found: Array, expected: Array) -> bool:
    """Whether numbers are the same, signs of zeros included; one NaN is as good as another."""
    wide = (
        np.complex128
        if found.dtype.kind == "c"
        else np.float64
        if found.dtype.kind not in "ib"
        else found.dtype
    )
    left, right = found.astype(wide), expected.astype(wide)
    same = (left == right) | ((left != left) & (right != right))
    if found.dtype.kind in "ibc":
        return bool(same.all())
    signs = np.signbit(left) == np.signbit(right)
    return bool((same & (signs | (left != left))).all())


def combine(function: str) -> partial[ScalarValue]:
    return partial(_flipped, function)


def _flipped(function: str, context: EmitContext, left: ScalarValue, right: ScalarValue) -> ScalarValue:
    return scalars.combine(context, function, left, right)


def wrap(value: int, element: str) -> int:
    bits = 8 * int(DTYPES[element].itemsize)
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def truncate(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


EXACT: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": truncate,
    "rem": lambda a, b: a - b * truncate(a, b),
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}


@pytest.mark.parametrize("function", EXACT)
@pytest.mark.parametrize("element", INTEGERS)
def test_integers_are_exact_modulo_their_range(function: str, element: str) -> None:
    left, right = draw(element, seed=1), draw(element, seed=2)
    if function in ("shl", "shr"):
        right = right % right.dtype.type(8 * right.itemsize)
    if function in ("div", "rem"):
        right[right == 0] = 3
        left[0], right[0] = np.iinfo(left.dtype).min, -1
    for lanes in LANES:
        found = run_lanes(combine(function), [element, element], element, lanes, left, right)
        pairs = zip(left.tolist(), right.tolist(), strict=True)
        assert found.tolist() == [wrap(EXACT[function](a, b), element) for a, b in pairs]


@pytest.mark.parametrize("element", INTEGERS)
def test_nothing_traps_or_poisons_the_lanes_beside_it(element: str) -> None:
    """A division by zero and a shift by too much are open; other lanes have their results, the process its life."""
    left, right = draw(element, 64), np.full(64, 3, DTYPES[element])
    right[::4] = 0
    for lanes in (1, 16):
        found = run_lanes(combine("div"), [element, element], element, lanes, left, right)
        assert [truncate(int(a), 3) for a in np.delete(left, np.s_[::4])] == np.delete(
            found, np.s_[::4]
        ).tolist()
        run_lanes(combine("rem"), [element, element], element, lanes, left, right)
    right[::4] = 100
    found = run_lanes(combine("shr"), [element, element], element, 16, left, right)
    assert (np.delete(left, np.s_[::4]) >> 3).tolist() == np.delete(found, np.s_[::4]).tolist()


@pytest.mark.parametrize("function", BINARY)
@pytest.mark.parametrize("element", FLOATS)
def test_floats_are_those_of_ieee(function: str, element: str) -> None:
    left, right = draw(element, 512, seed=4), draw(element, 512, seed=5)
    expected = np.asarray(compute_binary(function, left, right))
    if function in ("min", "max"):  # which of two zeros is the lesser is open
        left, right, expected = (x[(left != 0) | (right != 0)] for x in (left, right, expected))
    for lanes in (1, 16):
        found = run_lanes(combine(function), [element, element], element, lanes, left, right)
        assert agree(found, expected)


@pytest.mark.parametrize("function", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("element", COMPLEX)
def test_complex_numbers(function: str, element: str) -> None:
    left, right = (draw(element, 256, seed)[8:128] for seed in (6, 7))
    found = run_lanes(combine(function), [element, element], element, 8, left, right)
    expected = EXPECTED[function](left.astype(np.clongdouble), right.astype(np.clongdouble))
    scale = (
        np.abs(left) * np.abs(right) if function == "mul" else np.abs(expected) + np.abs(left) + np.abs(right)
    )
    assert np.all(np.abs(found - expected) <= 4 * np.finfo(DTYPES[element]).eps * scale)


EXPECTED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


@pytest.mark.parametrize("element", COMPLEX)
def test_absolute_values_of_complex_numbers(element: str) -> None:
    values = draw(element, 512)
    found = run_lanes(partial(_unary, "abs"), [element], PARTS[element], 16, values)
    expected = np.hypot(values.real.astype(np.longdouble), values.imag.astype(np.longdouble))
    near = np.abs(found - expected) <= np.spacing(expected.astype(found.dtype))
    same = (found == expected.astype(found.dtype)) | (np.isnan(found) & np.isnan(expected))
    assert np.all(near | same)


def _unary(function: str, context: EmitContext, value: ScalarValue) -> ScalarValue:
    return scalars.compute_unary(context, function, value)


@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS, *COMPLEX])
def test_functions_of_one_operand(element: str) -> None:
    values = draw(element)
    assert agree(run_lanes(partial(_unary, "neg"), [element], element, 16, values), -values)
    if element in INTEGERS:
        assert agree(run_lanes(partial(_unary, "not"), [element], element, 16, values), ~values)
    if element not in COMPLEX:
        assert agree(run_lanes(partial(_unary, "abs"), [element], element, 16, values), np.abs(values))
        return
    part = PARTS[element]
    assert agree(run_lanes(partial(_unary, "re"), [element], part, 16, values), values.real)
    assert agree(run_lanes(partial(_unary, "im"), [element], part, 16, values), values.imag)
    assert agree(run_lanes(partial(_unary, "conj"), [element], element, 16, values), np.conj(values))


@pytest.mark.parametrize("function", BITWISE)
def test_booleans(function: str) -> None:
    left, right = draw("bool", seed=1), draw("bool", seed=2)
    expected = {"and": left & right, "or": left | right, "xor": left ^ right}[function]
    for lanes in (1, 16):
        assert agree(run_lanes(combine(function), ["bool", "bool"], "bool", lanes, left, right), expected)
    assert agree(run_lanes(partial(_unary, "not"), ["bool"], "bool", 16, left), ~left)


COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}


@pytest.mark.parametrize("function", COMPARISONS)
@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS, *COMPLEX])
def test_comparisons(function: str, element: str) -> None:
    if element in COMPLEX and function not in ("eq", "ne"):
        return
    left, right = draw(element, seed=1), draw(element, seed=2)
    right[::3] = left[::3]
    found = run_lanes(
        lambda context, *pair: scalars.compare(context, function, *pair),
        [element] * 2,
        "bool",
        16,
        left,
        right,
    )
    assert agree(found, COMPARISONS[function](left, right))


@pytest.mark.parametrize("element", ["bool", "i8", "index", "bf16", "f16", "f64", "c32"])
def test_selections(element: str) -> None:
    condition, left, right = draw("bool"), draw(element, seed=1), draw(element, seed=2)
    for lanes in (1, 16):
        found = run_lanes(scalars.select, ["bool", element, element], element, lanes, condition, left, right)
        assert agree(found, np.where(condition, left, right))


# --- cooperative matrices -----------------------------------------------------------------------------------


def over_matrices(context: EmitContext, instruction: Arith | Cast, **values: ScalarValue) -> ScalarValue:
    """Matrices of one column, whatever the instruction makes of them as one value."""
    use = Coopmatrix(next(reversed(values.values())).element, context.lanes, 1, "matrix_acc")
    for name, value in values.items():
        matrix = MatrixValue(use, tuple((part,) for part in value.parts), value.count)
        context.values[name] = value if value.element == "bool" else matrix
    if isinstance(instruction, Arith):
        found = scalars.emit_arith(context, instruction)
    else:
        found = scalars.emit_cast(context, instruction)
    assert isinstance(found, MatrixValue)
    assert found.type == instruction.type
    return ScalarValue(found.type.element, tuple(part[0] for part in found.parts), found.width)


@pytest.mark.parametrize("element", ["i8", "i32", "bf16", "f16", "f32", "f64", "c32", "c64"])
@pytest.mark.parametrize("function", ["add", "sub", "mul", "div", "neg"])
def test_matrices_are_computed_by_component(function: str, element: str) -> None:
    left, right = (draw(element, 192, seed)[8:96] for seed in (1, 2))
    right[right == 0] = 1
    names = ("a",) if function == "neg" else ("a", "b")
    type_ = Coopmatrix(element, 8, 1, "matrix_acc")
    instruction = Arith(function, tuple(Value(name) for name in names), type_)
    operands = (left, right)[: len(names)]
    found = run_lanes(
        lambda context, *values: over_matrices(context, instruction, **dict(zip(names, values, strict=True))),
        [element] * len(names),
        element,
        8,
        *operands,
    )
    expected = -left if function == "neg" else np.asarray(compute_binary(function, left, right))
    if element in COMPLEX:
        scale = 1 + np.abs(left) + np.abs(right) + np.abs(left) * np.abs(right) + np.abs(expected)
        assert np.all(np.abs(found - expected) <= 4 * np.finfo(found.dtype).eps * scale)
    else:
        assert agree(found, expected)


def test_a_condition_chooses_between_matrices() -> None:
    left, right = draw("f32", 64, seed=1), draw("f32", 64, seed=2)
    instruction = Arith("select", (Value("c"), Value("a"), Value("b")), Coopmatrix("f32", 8, 1, "matrix_acc"))
    for condition in (True, False):
        found = run_lanes(
            lambda context, c, a, b: over_matrices(context, instruction, c=c, a=a, b=b),
            ["bool", "f32", "f32"],
            "f32",
            8,
            np.full(64, condition),
            left,
            right,
        )
        assert agree(found, left if condition else right)


def test_matrices_are_cast_by_component() -> None:
    values = draw("f32", 64)
    instruction = Cast(Value("a"), Coopmatrix("bf16", 8, 1, "matrix_acc"))
    found = run_lanes(lambda context, a: over_matrices(context, instruction, a=a), ["f32"], "bf16", 8, values)
    assert agree(found, values.astype(DTYPES["bf16"]))


# --- what reductions need -----------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS, *COMPLEX])
def test_an_identity_changes_nothing(function: str, element: str) -> None:
    if element in COMPLEX and function in ("max", "min"):
        return
    values = draw(element)
    values = values[np.isfinite(values.astype(np.complex128))] if element not in INTEGERS else values
    found = run_lanes(
        lambda context, value: scalars.combine(context, function, value, scalars.identity(function, element)),
        [element],
        element,
        16,
        values,
    )
    assert np.array_equal(found, values)


def test_vectors_of_any_length_are_combined() -> None:
    """The lanes of a column, or half of a subgroup in a reduction, are not those of the region."""
    here_lanes, values = 16, np.arange(64, dtype=np.int32)

    def halves(context: EmitContext, value: ScalarValue) -> ScalarValue:
        kind = f"<{here_lanes} x i32>"
        parts = [
            context.out.value(
                f"shufflevector {kind} {value.operand}, {kind} poison, "
                f"<8 x i32> <{', '.join(f'i32 {start + n}' for n in range(8))}>"
            )
            for start in (0, 8)
        ]
        left, right = (ScalarValue("i32", (part,), 8) for part in parts)
        total = scalars.combine(context, "add", left, right)
        total = scalars.combine(context, "mul", total, scalars.make_constant(3, "i32"))
        mask = ", ".join(f"i32 {n % 8}" for n in range(16))
        text = f"shufflevector <8 x i32> {total.operand}, <8 x i32> poison, <16 x i32> <{mask}>"
        return ScalarValue("i32", (context.out.value(text),), 16)

    found = run_lanes(halves, ["i32"], "i32", here_lanes, values)
    blocks = values.reshape(-1, 2, 8)
    assert np.array_equal(found.reshape(-1, 2, 8)[:, 0], 3 * blocks.sum(axis=1))


@pytest.mark.parametrize("count", [1, 8])
def test_bits_of_bf16(count: int) -> None:
    values = draw("f32", 256)
    values[10] = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    found = run_lanes(
        lambda context, value: ScalarValue(
            "bf16", (scalars.from_float(context, value.operand, count),), count
        ),
        ["f32"],
        "bf16",
        count,
        values,
    )
    assert agree(found, values.astype(DTYPES["bf16"]))
    back = run_lanes(
        lambda context, value: ScalarValue("f32", (scalars.to_float(context, value.operand, count),), count),
        ["bf16"],
        "f32",
        count,
        found,
    )
    assert agree(back, found.astype(np.float32))
