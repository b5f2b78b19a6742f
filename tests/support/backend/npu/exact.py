"""Judges written naively: one element at a time, Python integers and floats, nothing of NumPy's arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

import numpy as np

from lamella.backend.npu.opcodes import OpcodeInput
from lamella.base.quant import PerGroup, PerTensor, Quant
from lamella.lang.nem.resolved import TensorType
from tests.support.backend.npu.drawing import Case

Place = tuple[int, ...]
Results = list[dict[Place, float]]
RANGES = {
    **{"i4": (-8, 7), "i8": (-128, 127), "i16": (-(2**15), 2**15 - 1), "i32": (-(2**31), 2**31 - 1)},
    **{"u8": (0, 255), "u16": (0, 2**16 - 1), "u32": (0, 2**32 - 1)},
}
PRECISION = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127)}


def places(shape: tuple[int, ...]) -> Iterator[Place]:
    """All indices of a shape in row-major order."""
    return itertools.product(*(range(size) for size in shape))


def group_at(quant: Quant | None, rank: int, place: Place) -> tuple[int, int]:
    """Axis (-1 for none) and number of the group that an element belongs to."""
    if quant is None or isinstance(quant, PerTensor):
        return -1, 0
    axis = quant.axis % rank
    return axis, place[axis] // (quant.group_size if isinstance(quant, PerGroup) else 1)


def quant_at(type: TensorType, place: Place) -> tuple[float, int]:
    """Scale and zero point of one element."""
    quant = type.quant
    if quant is None:
        return 1.0, 0
    if isinstance(quant, PerTensor):
        return quant.scale, quant.zero_point
    group = group_at(quant, len(type.shape), place)[1]
    return quant.scales[group], quant.zero_points[group]


def integer_at(operand: OpcodeInput, place: Place) -> int:
    """A stored integer."""
    return int(operand.array[place])


def centred_at(operand: OpcodeInput, place: Place) -> int:
    """A stored integer less its zero point."""
    return integer_at(operand, place) - quant_at(operand.type, place)[1]


def real_at(operand: OpcodeInput, place: Place) -> float:
    """The number that an element stands for."""
    if operand.type.elem in PRECISION:
        return float(operand.array[place])
    return quant_at(operand.type, place)[0] * centred_at(operand, place)


def clamp_to(elem: str, value: int) -> int:
    """Saturate."""
    low, high = RANGES[elem]
    return min(max(value, low), high)


def wrap_to(elem: str, value: int) -> int:
    """Keep the low bits."""
    low, high = RANGES[elem]
    return (value - low) % (high - low + 1) + low


def store(real: float, type: TensorType, place: Place) -> int:
    """A real number as a stored integer: divide, round half to even, add the zero point, saturate."""
    scale, zero = quant_at(type, place)
    low, high = RANGES[type.elem]
    quotient = real / scale
    if math.isnan(quotient):
        return 0
    if math.isinf(quotient):
        return high if quotient > 0 else low
    return clamp_to(type.elem, round(quotient) + zero)


def nearest(value: float, elem: str) -> float:
    """The nearest number of a floating type, ties to even, by exact fractions."""
    digits, low, high = PRECISION[elem]
    if value == 0 or not math.isfinite(value):
        return value
    exact = Fraction(value)
    exponent = max(math.frexp(value)[1] - 1, low)
    step = Fraction(2) ** (exponent - digits + 1)
    rounded = round(exact / step) * step
    if abs(rounded) >= Fraction(2) ** (high + 1):
        return math.copysign(math.inf, value)
    return float(rounded)


# --- products -----------------------------------------------------------------------------------------------

Pair = tuple[Place, Place]


def gemm(case: Case) -> Results:
    """Each output element by its own sum."""
    a, b, y = case.inputs[0], case.inputs[1], case.outputs[0]

    def terms(place: Place) -> list[Pair]:
        left, right = _spread(a, place), _spread(b, place)
        return [((*left, place[-2], k), (*right, k, place[-1])) for k in range(a.type.shape[-1])]

    return [{place: _product(case, place, terms(place)) for place in places(y.shape)}]


def _spread(operand: OpcodeInput, place: Place) -> Place:
    """The leading indices of an operand whose leading axes broadcast."""
    sizes = operand.type.shape[:-2]
    leading = place[:-2][len(place) - 2 - len(sizes) :]
    return tuple(0 if size == 1 else index for size, index in zip(sizes, leading, strict=True))


def convolve(case: Case) -> Results:
    """Each output element by its own sum over kernel places and channels, padding left out."""
    x, w, y = case.inputs[0].type.shape, case.inputs[1].type.shape, case.outputs[0].shape
    rank = len(x) - 2
    pads, strides, dilations = (case.attributes[name] for name in ("pads", "strides", "dilations"))
    assert isinstance(pads, tuple)
    assert isinstance(strides, tuple)
    assert isinstance(dilations, tuple)
    depth, groups = w[-2], x[-1] // w[-2]
    found: dict[Place, float] = {}
    for place in places(y):
        group = place[-1] // (w[-1] // groups)
        terms = []
        for *tap, c in places(w[:-1]):
            at = [place[1 + i] * strides[i] + tap[i] * dilations[i] - pads[i] for i in range(rank)]
            if all(0 <= at[i] < x[1 + i] for i in range(rank)):
                terms.append(((place[0], *at, group * depth + c), (*tap, c, place[-1])))
        found[place] = _product(case, place, terms)
    return [found]


def _product(case: Case, place: Place, terms: list[Pair]) -> float:
    if case.outputs[0].elem in PRECISION:
        return _float_product(case, place, terms)
    return _integer_product(case, place, terms)


def _bias(case: Case, place: Place, read: Callable[[OpcodeInput, Place], float]) -> float:
    if len(case.inputs) < 3:
        return 0
    bias = case.inputs[2]
    at = place[len(place) - len(bias.type.shape) :]
    return read(bias, tuple(0 if size == 1 else i for size, i in zip(bias.type.shape, at, strict=True)))


def _float_product(case: Case, place: Place, terms: list[Pair]) -> float:
    """f32 products and sums in ascending order, the bias last, one rounding."""
    total = 0.0
    for left, right in terms:
        product = nearest(real_at(case.inputs[0], left) * real_at(case.inputs[1], right), "f32")
        total = nearest(total + product, "f32")
    total = nearest(total + _bias(case, place, real_at), "f32")
    return nearest(total, case.outputs[0].elem)


def _runs_along_reduction(case: Case) -> tuple[bool, bool]:
    a, b = (item.type for item in case.inputs[:2])
    rank = len(a.shape)
    axes = [group_at(type.quant, len(type.shape), (0,) * len(type.shape))[0] for type in (a, b)]
    if case.opcode in ("gemm", "matmul"):
        return axes[0] == rank - 1, axes[1] == len(b.shape) - 2
    return axes[0] > 0, 0 <= axes[1] < rank - 1


def _integer_product(case: Case, place: Place, terms: list[Pair]) -> int:
    (a, b), y = case.inputs[:2], case.outputs[0]
    along = _runs_along_reduction(case)
    if any(along):
        return _grouped_product(case, place, terms, along)
    total = sum(centred_at(a, left) * centred_at(b, right) for left, right in terms)
    total = wrap_to("i32", total + int(_bias(case, place, integer_at)))
    if y.quant is None:
        return clamp_to(y.elem, total)
    scales = [quant_at(item.type, at)[0] for item, at in zip((a, b), _any_term(case, place), strict=True)]
    scale, zero = quant_at(y, place)
    return clamp_to(y.elem, round(total * (scales[0] * scales[1] / scale)) + zero)


def _any_term(case: Case, place: Place) -> Pair:
    """One place of each operand that an output uses; it tells the scales that do not run along the reduction."""
    shapes = [item.type.shape for item in case.inputs[:2]]
    if case.opcode not in ("gemm", "matmul"):
        return (place[0], *(0,) * (len(place) - 1)), (*(0,) * (len(place) - 1), place[-1])
    left, right = _spread(case.inputs[0], place), _spread(case.inputs[1], place)
    assert len(shapes[0]) >= 2
    return (*left, place[-2], 0), (*right, 0, place[-1])


def _grouped_product(case: Case, place: Place, terms: list[Pair], along: tuple[bool, bool]) -> int:
    """One i32 sum per group, scaled and added in ascending order; the bias is a real number."""
    (a, b), y = case.inputs[:2], case.outputs[0]
    sums: dict[tuple[int, int], int] = {}
    scale_of: dict[tuple[int, int], float] = {}
    for left, right in terms:
        key = (_key(case, a, left, right) if along[0] else 0, _key(case, b, right, right) if along[1] else 0)
        sums[key] = sums.get(key, 0) + centred_at(a, left) * centred_at(b, right)
        scales = [quant_at(item.type, at)[0] for item, at in ((a, left), (b, right))]
        scale_of[key] = (scales[0] if along[0] else 1.0) * (scales[1] if along[1] else 1.0)
    total = 0.0
    for key in sorted(sums):
        total += scale_of[key] * wrap_to("i32", sums[key])
    for operand, inside, at in zip((a, b), along, _any_term(case, place), strict=True):
        total *= 1.0 if inside else quant_at(operand.type, at)[0]
    return store(total + _bias(case, place, real_at), y, place)


def _key(case: Case, operand: OpcodeInput, at: Place, tap: Place) -> int:
    """The group of a term; scales along a spatial axis of X make one group per kernel place."""
    axis, group = group_at(operand.type.quant, len(at), at)
    spatial = operand is case.inputs[0] and case.opcode.endswith(("1d", "2d", "3d")) and axis < len(at) - 1
    return tap[axis - 1] if spatial else group


# --- elementwise --------------------------------------------------------------------------------------------


def _pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.nan if a else math.inf


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 else math.copysign(math.inf, a) * math.copysign(1.0, b)


REAL: Mapping[str, Callable[..., float]] = {
    **{"relu": lambda x: max(x, 0.0), "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "tanh": math.tanh},
    **{"exp": math.exp, "log": lambda x: math.log(x) if x > 0 else (-math.inf if x == 0 else math.nan)},
    **{"sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan, "abs": abs, "neg": lambda x: -x},
    **{"gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2, "silu": lambda x: x / (1 + math.exp(-x))},
    **{"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": _divide},
    **{"min": min, "max": max, "pow": _pow},
}


def _attributed(case: Case) -> Callable[..., float]:
    alpha, low, high = (case.attributes.get(name, 0) for name in ("alpha", "min_val", "max_val"))
    assert not isinstance(alpha, str | tuple)
    assert not isinstance(low, str | tuple)
    assert not isinstance(high, str | tuple)
    if case.opcode == "leaky_relu":
        return lambda x: x if x >= 0 else x * alpha
    return lambda x: min(max(x, low), high)


def real_function(case: Case) -> Callable[..., float]:
    """The function of an elementwise opcode on Python floats."""
    return REAL.get(case.opcode) or _attributed(case)


def quantised_elements(case: Case) -> Results:
    """Real numbers, the function, stored again; relu with one descriptor is max(q, zero point)."""
    y = case.outputs[0]
    found: dict[Place, float] = {}
    for place in places(y.shape):
        values = [real_at(item, place) for item in case.inputs]
        found[place] = store(real_function(case)(*values), y, place)
        if case.opcode == "relu" and case.inputs[0].type.quant == y.quant:
            found[place] = max(integer_at(case.inputs[0], place), quant_at(y, place)[1])
    return [found]


def _truncate(value: float | Fraction) -> int:
    return math.trunc(value)


def _whole(opcode: str, a: int, b: int) -> int:
    if opcode == "div":
        return _truncate(Fraction(a, b))
    if opcode == "pow":
        return a**b if b >= 0 else _truncate(Fraction(1, a**-b))
    return {"add": a + b, "sub": a - b, "mul": a * b, "min": min(a, b), "max": max(a, b)}[opcode]


def plain_elements(case: Case) -> Results:
    """Python integers, wrapped."""
    y = case.outputs[0]
    found: dict[Place, float] = {}
    for place in places(y.shape):
        values = [integer_at(item, place) for item in case.inputs]
        value = _whole(case.opcode, *values) if len(values) == 2 else _truncate(real_function(case)(*values))
        found[place] = wrap_to(y.elem, value)
    return [found]


def as_array(
    results: dict[Place, float], type: TensorType
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Results as doubles, which hold every element of every NEM type."""
    found = np.empty(type.shape, np.float64)
    for place, value in results.items():
        found[place] = value
    return found
