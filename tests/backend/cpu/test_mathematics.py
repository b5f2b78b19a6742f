"""Functions of machine code beside their stated errors: extended precision and decimal series judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, localcontext
from functools import partial

import numpy as np
import pytest

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.mathematics import ACCURACY, compute, emit_math
from lamella.backend.cpu.emit.values import ScalarValue
from lamella.backend.interpreter.arithmetic import compute_math
from lamella.lang.tensor.nodes import Math, Scalar, Value
from lamella.lang.tensor.words import EXTRA_MATH
from lamella.lang.tensor.words import MATH as OLD_MATH
from tests.support.backend.cpu.computing import (
    DTYPES,
    FLOATS,
    Array,
    assembly_for,
    here_with,
    run_lanes,
    write_kernel,
)

WIDE = np.longdouble
COUNT = 2000
UNARY = [name for name in ACCURACY if name != "pow"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def erf(values: Array) -> Array:
    """The error function by its series, in decimal."""
    return np.array([_erf(float(value)) for value in values], WIDE)


def _erf(value: float) -> np.longdouble:
    with localcontext() as context:
        context.prec = 70
        x, total, term = Decimal(value), Decimal(0), Decimal(value)
        for n in range(1, 260):
            total += term / (2 * n - 1)
            term *= -x * x / n
        root_pi = Decimal("1.77245385090551602729816748334114518279754945612238712821380779")
        return WIDE(str(+(2 * total / root_pi)))


TRUE: Mapping[str, Callable[..., Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + WIDE(0.5)), x),
    "sign": np.sign,
}
RANGES: Mapping[str, tuple[float, float]] = {
    "exp": (-104, 89),
    "exp2": (-150, 128),
    "sinh": (-89.5, 89.5),
    "cosh": (-89.5, 89.5),
    "tanh": (-12, 12),
    "sigmoid": (-100, 100),
    "erf": (-6.5, 6.5),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atanh": (-1, 1),
    "log": (0, math.inf),
    "log2": (0, math.inf),
    "sqrt": (0, math.inf),
    "rsqrt": (0, math.inf),
    "acosh": (1, math.inf),
}


def call(function: str, context: EmitContext, *operands: ScalarValue) -> ScalarValue:
    return compute(context, function, *operands)


def arguments(function: str, element: str, count: int = COUNT) -> Array:
    """Arguments of every size, many next to 1 and next to multiples of π/2, inside of the range of a function."""
    random, dtype = np.random.default_rng(11), DTYPES[element]
    low, high = RANGES.get(function, (-math.inf, math.inf))
    scale = 7.9 if element == "f64" and function in ("exp", "exp2", "sinh", "cosh", "sigmoid") else 1.0
    exponents = random.uniform(-1020, 1020, count) if element == "f64" else random.uniform(-140, 126, count)
    signs = random.choice([-1, 1], count)
    drawn = [
        np.exp2(exponents.astype(WIDE)) * signs,
        np.exp2(random.uniform(-12, 6, count)) * signs,
        1 + random.uniform(-0.5, 0.5, count),
        random.integers(-1000, 1000, count) * (math.pi / 2),
        random.uniform(max(low, -800) * scale, min(high, 800) * scale, count),
    ]
    values = np.concatenate([item.astype(dtype) for item in drawn])
    return values[(values >= low * scale) & (values <= high * scale)]


def errors(found: Array, true: Array) -> Array:
    """Distances from the true results in units of the last place; 0 where both are infinite or NaN."""
    rounded = true.astype(found.dtype)
    unit = np.maximum(np.spacing(np.abs(rounded)), np.finfo(found.dtype).smallest_subnormal)
    distance = np.abs((found.astype(WIDE) - true.astype(WIDE)) / unit.astype(WIDE)).astype(np.float64)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(same & ~np.isfinite(distance), 0.0, np.nan_to_num(distance, nan=math.inf))


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("function", UNARY)
def test_errors_are_within_what_is_stated(function: str, element: str) -> None:
    values = arguments(function, element, 60 if function == "erf" else COUNT)
    found = run_lanes(partial(call, function), [element], element, 16, values)
    bound = ACCURACY[function].single if element == "f32" else ACCURACY[function].double
    assert errors(found, TRUE[function](values.astype(WIDE))).max() <= bound


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_powers_are_within_what_is_stated(element: str) -> None:
    random, limit = np.random.default_rng(12), 85 if element == "f32" else 700
    bases = np.exp(np.concatenate([random.uniform(-limit, limit, COUNT), random.uniform(-0.5, 0.5, COUNT)]))
    exponents = random.uniform(-1, 1, 2 * COUNT) * limit / np.abs(np.log(bases))
    x, y = (item.astype(DTYPES[element]) for item in (bases, exponents))
    found = run_lanes(partial(call, "pow"), [element, element], element, 16, x, y)
    bound = ACCURACY["pow"].single if element == "f32" else ACCURACY["pow"].double
    assert errors(found, np.power(x.astype(WIDE), y.astype(WIDE))).max() <= bound


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("function", UNARY)
def test_every_number_of_sixteen_bits(function: str, element: str) -> None:
    """All arguments that the type has, against the interpreter: the neighbour of the rounded result at most."""
    values = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[element])
    found = run_lanes(partial(call, function), [element], element, 16, values)
    expected = np.asarray(compute_math(function, [values], element))
    both = np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    places = [_place(item) for item in (found, expected)]
    distance = np.where(both, 0, np.abs(places[0] - places[1]))
    exact = function in ("floor", "ceil", "trunc", "round", "sign", "sqrt")
    assert distance.max() <= (0 if exact else 1)


def _place(values: Array) -> Array:
    """The position of numbers of sixteen bits among all of their type."""
    bits = values.view(np.uint16).astype(np.int64)
    found: Array = np.where(bits & 0x8000, -(bits & 0x7FFF), bits)
    return found


SPECIAL = np.array(
    [
        *(0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, math.inf, -math.inf, math.nan, 1e-310, -1e-310),
        *(1e-40, -1e-40, 88.8, -88.8, -103.5, -104, 709.9, 710.1, 1e30, -1e30, 1e300, -1e300, 3e38, 128),
        *(127.99, -149, -149.9, -150.5, 1024, -1074, -1076, 4503599627370497.5, 0.49999999999999994, 8388609),
    ]
)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("function", UNARY)
def test_special_values(function: str, element: str) -> None:
    """Zeros keep their signs, NaN comes of what has no result, infinities and denormal numbers are themselves."""
    values = SPECIAL.astype(DTYPES[element])
    found = run_lanes(partial(call, function), [element], element, 8, values)
    agree(found, np.asarray(compute_math(function, [values], element)), element)


def agree(found: Array, expected: Array, element: str) -> None:
    tolerance = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-21, "f64": 2.0**-50}[element]
    least = {"bf16": 1e-40, "f16": 6e-8, "f32": 1.5e-45, "f64": 5e-324}[element]
    left, right = found.astype(np.float64), expected.astype(np.float64)
    near = (np.abs(left - right) <= tolerance * np.abs(right) + least) & (right != 0) & np.isfinite(right)
    same = (left == right) & (np.signbit(left) == np.signbit(right)) | (np.isnan(left) & np.isnan(right))
    assert np.all(near | same)


@pytest.mark.parametrize("element", FLOATS)
def test_special_powers(element: str) -> None:
    numbers = np.array(
        [
            *(0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1.5, -1.5, math.inf, -math.inf, math.nan),
            *(1e308, -1e308, 5e-324, -5e-324, 2.0**53 + 2, 2.0**52 + 1, 1e-300),
        ]
    ).astype(DTYPES[element])
    x, y = (item.ravel() for item in np.meshgrid(numbers, numbers))
    found = run_lanes(partial(call, "pow"), [element, element], element, 16, x, y)
    agree(found, np.asarray(compute_math("pow", [x, y], element)), element)


@pytest.mark.parametrize("function", ["sin", "cos", "tan"])
def test_arguments_next_to_multiples_of_pi(function: str) -> None:
    """The hardest doubles to reduce, and the ends of the way that large arguments take."""
    hard = [6381956970095103.0 * 2.0**797, 2.0**28, np.nextafter(2.0**28, math.inf), 1.7976931348623157e308]
    hard += [5.319372648326541e255, 2.0**1023, 1e22, 2.0**29 * math.pi, 355.0, 103993 * math.pi / 2]
    values = np.array([*hard, *(-np.array(hard))])
    found = run_lanes(partial(call, function), ["f64"], "f64", 4, values)
    assert errors(found, TRUE[function](values.astype(WIDE))).max() <= ACCURACY[function].double


@pytest.mark.parametrize("lanes", [1, 2, 64])
@pytest.mark.parametrize("function", ["exp", "log", "sin", "tanh", "erf"])
def test_results_do_not_depend_on_how_many_lanes_there_are(function: str, lanes: int) -> None:
    values = np.concatenate([arguments(function, "f32", 100), np.array([1e30, math.nan], np.float32)])
    found = run_lanes(partial(call, function), ["f32"], "f32", lanes, values)
    expected = run_lanes(partial(call, function), ["f32"], "f32", 16, values)
    assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("function", ["exp", "exp2", "sinh", "sigmoid", "pow"])
def test_results_are_those_of_other_machines(function: str, element: str) -> None:
    """Where powers of two are multiplied in two steps, the bits are those of the machine that does it in one."""
    values = np.concatenate([arguments(function, element, 500), SPECIAL.astype(DTYPES[element])])
    operands = [np.abs(values), np.roll(values, 1)] if function == "pow" else [values]
    emit, elements = partial(call, function), [element] * len(operands)
    once, twice = (
        run_lanes(emit, elements, element, 8, *operands, target=target)
        for target in ("cpu-avx512", "cpu-avx2")
    )
    assert np.array_equal(once, twice, equal_nan=True)


# --- complex numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["exp", "exp2"])
@pytest.mark.parametrize("element", ["c32", "c64"])
def test_complex_exponentials(function: str, element: str) -> None:
    random, limit = np.random.default_rng(13), 80 if element == "c32" else 700
    values = random.uniform(-limit, limit, 500) + 1j * random.uniform(-30, 30, 500)
    values[:3] = [0, 1j, -limit]
    values = values.astype(DTYPES[element])
    found = run_lanes(partial(call, function), [element], element, 8, values)
    wide = values.astype(np.clongdouble) * (np.log(WIDE(2)) if function == "exp2" else 1)
    expected = np.exp(wide)
    slope = (limit + 30) if function == "exp2" else 4
    assert np.all(np.abs(found - expected) <= slope * np.finfo(DTYPES[element]).eps * np.abs(expected))


def test_complex_exponentials_at_the_ends() -> None:
    values = np.array(
        [math.inf, -math.inf, 0, complex(-math.inf, 2), complex(709.8, 1.57), complex(1, math.inf)]
    )
    found = run_lanes(partial(call, "exp"), ["c64"], "c64", 8, values)
    assert found[0] == math.inf
    assert found[1:4].tolist() == [0, 1, 0]
    assert np.isfinite(found[4].real)
    assert np.isnan(found[5])


# --- instructions -------------------------------------------------------------------------------------------


def test_every_function_of_the_language_has_its_error_stated() -> None:
    names = {name.removeprefix("native_") for name in (*OLD_MATH, *EXTRA_MATH)}
    assert names == set(ACCURACY)


def test_uniform_operands_stay_uniform() -> None:
    context = here_with(16)
    context.values["a"] = ScalarValue("f32", ("%x",))
    found = emit_math(context, Math("native_exp", (Value("a"),), Scalar("f32")))
    assert found.is_uniform
    assert not any("<" in line for line in context.out.lines)


def test_a_uniform_operand_is_spread_beside_one_that_is_not() -> None:
    values = np.arange(1, 17, dtype=np.float32)

    def emit(context: EmitContext, value: ScalarValue) -> ScalarValue:
        context.values["a"], context.values["b"] = value, ScalarValue("f32", ("0x4000000000000000",))
        return emit_math(context, Math("pow", (Value("a"), Value("b")), Scalar("f32")))

    assert run_lanes(emit, ["f32"], "f32", 16, values).tolist() == (values**2).tolist()


@pytest.mark.parametrize("target", ["cpu-avx512", "cpu-avx2", "cpu-aarch64", "cuda"])
def test_no_function_of_a_library_is_called(target: str) -> None:
    for function in ACCURACY:
        elements = ["f32"] * (2 if function == "pow" else 1)
        shown = assembly_for(write_kernel(partial(call, function), elements, "f32", 8, target), target)
        called = [
            line for line in shown.splitlines() if line.split()[:1] in (["callq"], ["bl"], ["call.uni"])
        ]
        assert all("large_" in line for line in called)
