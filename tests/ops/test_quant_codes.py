"""The operators of `quant` on codes, judged by NumPy and, bit for bit, by the opcodes of the NPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.npu.opcodes import OpcodeInput, apply
from lamella.base.arrays import element_type_of
from lamella.base.diagnostic import Rule
from lamella.base.quant import PerChannel, PerTensor, Quant
from lamella.lang.nem.resolved import TensorType
from tests.support.judges.draws import Array
from tests.support.judges.harness import near, one, refuse, run, same
from tests.support.judges.registry import Given, Refusal, judged

Rng = np.random.Generator
SEEDS = st.integers(0, 2**32 - 1)
LIMITS = {"i8": (-128, 127), "i16": (-32768, 32767), "u8": (0, 255)}
OUTPUTS = st.sampled_from(("i8", "i16"))
X_Y: dict[str, Given] = {"x_scale": 1.0, "y_scale": 1.0}
A_B_Y: dict[str, Given] = {"a_scale": 1.0, "b_scale": 1.0, "y_scale": 1.0}
A_Y: dict[str, Given] = {"a_scale": 1.0, "y_scale": 1.0}


# --- drawing and judging ---------------------------------------------------------------------------------------


def _scale(rng: Rng) -> float:
    """A scale; a power of two makes ties, which rounding must see."""
    return float(2.0 ** rng.integers(-6, 2)) if rng.random() < 0.5 else float(rng.uniform(0.001, 2.0))


def _codes(rng: Rng, shape: Sequence[int], low: int = -128, high: int = 127) -> Array:
    return np.asarray(rng.integers(low, high + 1, tuple(shape)).astype(np.int8))


def _typed(array: Array, quant: Quant | None = None) -> OpcodeInput:
    return OpcodeInput(array, _type(array.dtype, array.shape, quant))


def _type(dtype: np.dtype[np.generic], shape: tuple[int, ...], quant: Quant | None) -> TensorType:
    element = element_type_of(dtype)
    assert element is not None
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    layout = "NHWC" if len(shape) == 4 else "C"
    return TensorType(str(element), shape, layout, strides, quant)


def _refused(rule: Rule, **values: object) -> None:
    raise AssertionError((rule, values))


def _opcode(
    name: str, inputs: Sequence[OpcodeInput], y: Array, quant: Quant | None, **attributes: object
) -> Array:
    """The result of an opcode in the type and shape of an array."""
    given: Mapping[str, object] = attributes
    (found,) = apply(name, inputs, [_type(y.dtype, y.shape, quant)], given, _refused)  # type: ignore[arg-type]
    return found


def _stored(real: Array, quant: PerTensor, name: str) -> Array:
    """Numbers as codes, by NumPy alone."""
    low, high = LIMITS[name]
    with np.errstate(all="ignore"):
        steps = np.nan_to_num(np.rint(real / quant.scale) + quant.zero_point, nan=0.0)
    return np.asarray(np.clip(steps, low, high).astype({"i8": "i1", "i16": "i2", "u8": "u1"}[name]))


def _numbers(codes: Array, quant: PerTensor) -> Array:
    return np.asarray((codes.astype(np.float64) - quant.zero_point) * quant.scale)


def _quant(rng: Rng, name: str = "i8") -> PerTensor:
    low, high = (max(end, -300) if end < 0 else min(end, 300) for end in LIMITS[name])
    return PerTensor(_scale(rng), int(rng.integers(low, high + 1)))


def _of(prefix: str, quant: PerTensor) -> dict[str, Given]:
    return {f"{prefix}_scale": quant.scale, f"{prefix}_zero": quant.zero_point}


def _one(operator: str, inputs: Sequence[Array | None], name: str, attributes: Mapping[str, Given]) -> Array:
    (found,) = run(operator, inputs, attributes, (name,))
    assert isinstance(found, np.ndarray)
    return found


# --- to codes and back -----------------------------------------------------------------------------------------


@judged("numpy", "quant.quantize")
@given(SEEDS, st.sampled_from(tuple(LIMITS)), st.sampled_from(("float16", "float32", "float64")))
def test_numbers_become_codes(seed: int, name: str, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    quant = _quant(rng, name)
    halves = rng.integers(-600, 600, 12) * quant.scale / 2
    wild = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0])
    with np.errstate(over="ignore"):
        x = np.concatenate([halves, rng.normal(0, 200 * quant.scale, 12), wild]).astype(dtype)
    found = _one("quant.quantize", [x], name, {"scale": quant.scale, "zero_point": quant.zero_point})
    expected = _stored(x.astype(np.float64), quant, name)
    same(found, expected)
    same(_opcode("quantize", [_typed(x)], expected, quant), expected)


@judged("numpy", "quant.dequantize")
@given(SEEDS, st.sampled_from(("float16", "float32")))
def test_codes_become_numbers(seed: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    quant, x = _quant(rng), _codes(rng, (3, 5))
    attributes: dict[str, Given] = {"scale": quant.scale, "zero_point": quant.zero_point}
    found = _one("quant.dequantize", [x], {"float16": "f16", "float32": "f32"}[dtype], attributes)
    expected = _numbers(x, quant).astype(np.float32).astype(dtype)
    same(found, expected)
    same(_opcode("dequantize", [_typed(x, quant)], expected, None), expected)


@judged("numpy", "quant.decode")
@given(SEEDS, st.sampled_from(((1, 1), (4, 1), (1, 6), (4, 6), (2, 3), (4, 2))))
def test_codes_with_scales_of_blocks(seed: int, blocks: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    x, scale = _codes(rng, (4, 6)), rng.uniform(0.01, 2.0, blocks)
    spread = scale.repeat(4 // blocks[0], 0).repeat(6 // blocks[1], 1)
    same(_one("quant.decode", [x, scale], "f32", {}), (x * spread).astype(np.float32))


@judged("numpy", "quant.linear_codes")
@given(SEEDS)
def test_the_meaning_of_codes_changes_nothing(seed: int) -> None:
    x = _codes(np.random.default_rng(seed), (3, 4))
    same(_one("quant.linear_codes", [x], "i8", {"scale": (0.5, 0.25, 1.0, 2.0), "axis": 1}), x)


# --- element by element ----------------------------------------------------------------------------------------

_erf = np.vectorize(math.erf)
UNARY: Mapping[str, Callable[[Array], Array]] = {
    **{"relu": lambda x: np.maximum(x, 0), "abs": np.abs, "neg": np.negative, "exp": np.exp, "log": np.log},
    **{"sqrt": np.sqrt, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x))},
    **{"silu": lambda x: x / (1 + np.exp(-x)), "gelu": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2)))},
    **{"requantize": np.positive},
}


@judged("numpy", *(f"quant.{name}" for name in UNARY))
@given(SEEDS, OUTPUTS, st.sampled_from(tuple(UNARY)))
def test_functions_of_codes(seed: int, name: str, operator: str) -> None:
    rng = np.random.default_rng(seed)
    x, y = _quant(rng), _quant(rng, name)
    codes = _codes(rng, (4, 7))
    found = _one(f"quant.{operator}", [codes], name, {**_of("x", x), **_of("y", y)})
    with np.errstate(all="ignore"):
        real = UNARY[operator](_numbers(codes, x))
    same(found, _stored(real, y, name))
    if operator != "requantize":
        same(found, _opcode(operator, [_typed(codes, x)], found, y))


@judged("numpy", "quant.leaky_relu", "quant.clamp")
@given(SEEDS, OUTPUTS, st.floats(-2, 2), st.floats(0, 4))
def test_functions_of_codes_with_attributes(seed: int, name: str, low: float, width: float) -> None:
    rng = np.random.default_rng(seed)
    x, y = _quant(rng), _quant(rng, name)
    codes, high = _codes(rng, (4, 7)), low + width
    real, ends = _numbers(codes, x), {**_of("x", x), **_of("y", y)}
    leaky = _one("quant.leaky_relu", [codes], name, {**ends, "alpha": width / 4})
    same(leaky, _stored(np.where(real < 0, real * (width / 4), real), y, name))
    same(leaky, _opcode("leaky_relu", [_typed(codes, x)], leaky, y, alpha=width / 4))
    kept = _one("quant.clamp", [codes], name, {**ends, "low": low, "high": high})
    same(kept, _stored(np.minimum(np.maximum(real, low), high), y, name))
    same(kept, _opcode("clamp", [_typed(codes, x)], kept, y, min_val=low, max_val=high))


BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide},
    **{"min": np.minimum, "max": np.maximum},
}


@judged("numpy", *(f"quant.{name}" for name in BINARY))
@given(SEEDS, OUTPUTS, st.sampled_from(tuple(BINARY)), st.sampled_from(((3, 4), (4,), (1, 4), (3, 1), ())))
def test_two_tensors_of_codes(seed: int, name: str, operator: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    a, b, y = _quant(rng), _quant(rng), _quant(rng, name)
    left, right = _codes(rng, (3, 4)), _codes(rng, shape)
    attributes = {**_of("a", a), **_of("b", b), **_of("y", y)}
    found = _one(f"quant.{operator}", [left, right], name, attributes)
    with np.errstate(all="ignore"):
        expected = _stored(BINARY[operator](_numbers(left, a), _numbers(right, b)), y, name)
    same(found, expected)
    spread = np.ascontiguousarray(np.broadcast_to(right, (3, 4)))
    same(found, _opcode(operator, [_typed(left, a), _typed(spread, b)], found, y))


# --- sums of products ------------------------------------------------------------------------------------------


def _rescaled(sums: Array, factor: Array, y: PerTensor, name: str) -> Array:
    low, high = LIMITS[name]
    return np.asarray(
        np.clip(np.rint(sums * factor) + y.zero_point, low, high).astype("i1" if name == "i8" else "i2")
    )


def _weight_quant(rng: Rng, count: int, several: bool) -> tuple[Array, Quant]:
    scales = np.array([_scale(rng) for _ in range(count if several else 1)])
    if several:
        return scales, PerChannel(-1, tuple(scales), (0,) * count)
    return scales, PerTensor(float(scales[0]), 0)


@judged("numpy", "quant.matmul")
@given(SEEDS, OUTPUTS, st.booleans(), st.booleans(), st.sampled_from((4, 8)))
def test_products_of_codes(seed: int, name: str, several: bool, biased: bool, bits: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(item) for item in rng.integers(1, 9, 3))
    (batch_a, batch_b), trans_a, trans_b = (
        [((), ()), ((2,), ()), ((2,), (2,)), ((2, 1), (3,))][int(rng.integers(4))],
        bool(rng.integers(2)),
        bool(rng.integers(2)),
    )
    low, high = (-8, 7) if bits == 4 else (-128, 127)
    a, b = _codes(rng, (*batch_a, m, k)), _codes(rng, (*batch_b, k, n), low, high)
    x, y = _quant(rng), _quant(rng, name)
    zero = 0 if several else int(rng.integers(-8, 8))
    scales, quant = _weight_quant(rng, n, several)
    quant = quant if several else PerTensor(float(scales[0]), zero)
    bias = rng.integers(-500, 500, n).astype(np.int32) if biased else None
    attributes = {**_of("a", x), **_of("y", y), "b_zero": zero, "b_bits": bits}
    given_a, given_b = (a.swapaxes(-1, -2) if trans_a else a), (b.swapaxes(-1, -2) if trans_b else b)
    found = _one(
        "quant.matmul",
        [np.ascontiguousarray(given_a), np.ascontiguousarray(given_b), bias, scales],
        name,
        {**attributes, "transA": trans_a, "transB": trans_b},
    )
    sums = (a.astype(np.int64) - x.zero_point) @ (b.astype(np.int64) - zero)
    sums = sums if bias is None else sums + bias
    same(found, _rescaled(sums, x.scale * scales / y.scale, y, name))
    typed = [_typed(a, x), _typed(b, quant), *([] if bias is None else [_typed(bias)])]
    same(found, _opcode("gemm", typed, found, y))


@judged("numpy", "quant.conv")
@given(SEEDS, OUTPUTS, st.booleans(), st.booleans(), st.sampled_from((4, 8)))
def test_convolutions_of_codes(seed: int, name: str, several: bool, biased: bool, bits: int) -> None:
    rng = np.random.default_rng(seed)
    groups, depth, width = (int(item) for item in rng.integers(1, 4, 3))
    if rng.random() < 0.3:
        groups, depth, width = 4, 1, 1
    kernel, strides, dilations = (tuple(int(i) for i in rng.integers(1, top, 2)) for top in (4, 3, 3))
    pads = tuple(int(i) for i in rng.integers(0, 3, 4))
    low, high = (-8, 7) if bits == 4 else (-128, 127)
    codes = _codes(rng, (int(rng.integers(1, 3)), groups * depth, 6, 7))
    filters = _codes(rng, (groups * width, depth, *kernel), low, high)
    x, y = _quant(rng), _quant(rng, name)
    scales, quant = _weight_quant(rng, groups * width, several)
    bias = rng.integers(-500, 500, groups * width).astype(np.int32) if biased else None
    attributes = {**_of("x", x), **_of("y", y), "stride": strides, "dilation": dilations, "w_bits": bits}
    found = _one(
        "quant.conv",
        [codes, filters, bias, scales],
        name,
        {**attributes, "padding": pads, "groups": groups},
    )
    last, hwio = (np.ascontiguousarray(codes.transpose(0, 2, 3, 1)), filters.transpose(2, 3, 1, 0))
    typed = [_typed(last, x), _typed(np.ascontiguousarray(hwio), quant)]
    expected = _opcode(
        "conv2d",
        [*typed, *([] if bias is None else [_typed(bias)])],
        np.ascontiguousarray(found.transpose(0, 2, 3, 1)),
        y,
        pads=pads,
        strides=strides,
        dilations=dilations,
        groups=groups,
    )
    same(np.ascontiguousarray(found.transpose(0, 2, 3, 1)), expected)
    sums = _sliding_sums(codes.astype(np.int64) - x.zero_point, filters, (strides, dilations, pads), groups)
    sums = sums if bias is None else sums + bias[:, None, None]
    same(found, _rescaled(sums, (x.scale * scales / y.scale)[:, None, None], y, name))


def _sliding_sums(
    x: Array, filters: Array, window: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], groups: int
) -> Array:
    """A convolution in groups, position by position of the filter."""
    strides, dilations, (top, left, bottom, right) = window
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (count, depth, height, width), size = filters.shape, padded.shape[2:]
    rows, columns = (
        (full - (taps - 1) * dilation - 1) // stride + 1
        for full, taps, dilation, stride in zip(size, (height, width), dilations, strides, strict=True)
    )
    found = np.zeros((x.shape[0], count, rows, columns), np.int64)
    for number in range(count):
        channels = padded[:, (number // (count // groups)) * depth :][:, :depth]
        for i in range(height):
            for j in range(width):
                part = channels[:, :, i * dilations[0] :, j * dilations[1] :]
                part = part[:, :, :: strides[0], :: strides[1]][:, :, :rows, :columns]
                found[:, number] += np.einsum("bchw,c->bhw", part, filters[number, :, i, j].astype(np.int64))
    return found


# --- means -----------------------------------------------------------------------------------------------------


@judged("numpy", "quant.avg_pool")
@given(SEEDS, st.booleans())
def test_means_of_windows_of_codes(seed: int, kept: bool) -> None:
    rng = np.random.default_rng(seed)
    kernel, strides = (tuple(int(i) for i in rng.integers(1, 4, 2)) for _ in range(2))
    pads = tuple(int(rng.integers(0, size)) for size in (*kernel, *kernel))
    codes, x = _codes(rng, (2, 3, 5, 6)), _quant(rng)
    y = x if kept else _quant(rng)
    attributes = {**_of("x", x), **_of("y", y), "size": kernel, "stride": strides, "padding": pads}
    found = _one("quant.avg_pool", [codes], "i8", attributes).transpose(0, 2, 3, 1)
    last = np.ascontiguousarray(codes.transpose(0, 2, 3, 1))
    expected = _opcode(
        "avgpool",
        [_typed(last, x)],
        np.ascontiguousarray(found),
        y,
        kernel_shape=kernel,
        pads=pads,
        strides=strides,
    )
    same(np.ascontiguousarray(found), expected)


@judged("numpy", "quant.mean")
@given(SEEDS, OUTPUTS, st.booleans(), st.booleans())
def test_means_of_codes(seed: int, name: str, kept: bool, squeeze: bool) -> None:
    rng = np.random.default_rng(seed)
    codes, x = _codes(rng, (2, 4, 3, 5)), _quant(rng)
    y = x if kept else _quant(rng, name)
    attributes = {**_of("x", x), **_of("y", y), "axes": (2, 3), "squeeze": squeeze}
    found = _one("quant.mean", [codes], name, attributes)
    if kept:
        expected = _stored(codes.astype(np.float64).mean((2, 3), keepdims=True), PerTensor(1.0, 0), name)
    else:
        means = (codes.astype(np.float64) - x.zero_point).mean((2, 3), keepdims=True)
        expected = _stored(x.scale * means, y, name)
    same(found, expected.reshape(found.shape))


@judged("numpy", "nn.max_pool")
@given(SEEDS, st.sampled_from((np.int8, np.int16, np.uint8)))
def test_largest_codes_of_windows(seed: int, dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)  # type: ignore[type-var]
    codes = rng.integers(info.min, info.max + 1, (2, 3, 5, 6)).astype(dtype)
    found = one("nn.max_pool", codes, size=(2, 3), stride=(2, 1), padding=(1, 1, 0, 1))
    padded = np.pad(codes, ((0, 0), (0, 0), (1, 0), (1, 1)), constant_values=info.min)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))[:, :, ::2]
    same(found, windows.max((-1, -2)))


@judged("numpy", "quant.conv")
def test_large_sums_are_exact() -> None:
    """Sums of products of 32 bits that singles do not hold."""
    rng = np.random.default_rng(0)
    codes, filters = _codes(rng, (1, 512, 4, 4), 100), _codes(rng, (3, 512, 3, 3), 100)
    sums = _sliding_sums(codes.astype(np.int64) + 128, filters, ((1, 1), (1, 1), (0,) * 4), 1)
    attributes: dict[str, Given] = {"x_scale": 1.0, "x_zero": -128, "y_scale": 8192.0}
    found = _one("quant.conv", [codes, filters, None, np.ones(1)], "i16", attributes)
    near(found, _rescaled(sums, np.array(1 / 8192.0), PerTensor(8192.0, 0), "i16"))


# --- what is refused -------------------------------------------------------------------------------------------

_CONV: tuple[tuple[int, ...], ...] = ((1, 4, 5, 5), (6, 2, 3, 3), (6,), (6,))
_CONV_TYPES, _PRODUCT_TYPES = "i8 i8 i32 f64", "i8 i8 i32 f64"
_PRODUCT: tuple[tuple[int, ...], ...] = ((2, 3, 4), (4, 5), (5,), (5,))
_GROUPED: dict[str, Given] = {**X_Y, "groups": 2}
_POOL: dict[str, Given] = {**X_Y, "size": (2, 2)}

REFUSALS = (
    *(
        Refusal(f"quant.{name}", "'scale' must be positive", ((2, 3),), {"scale": 0.0}, kind)
        for name, kind in (("quantize", "f32"), ("dequantize", "i8"))
    ),
    Refusal("quant.pick", "must hold positive extents", ((0,), (1,), (16,)), {"shape": (2, 0)}, "u8 f32 f32"),
    Refusal(
        "quant.pick",
        "'block' must be positive",
        ((3,), (1,), (16,)),
        {"shape": (2, 3), "block": 0},
        "u8 f32 f32",
    ),
    Refusal(
        "quant.pick", "6 elements take 6 / 2 bytes", ((4,), (1,), (16,)), {"shape": (2, 3)}, "u8 f32 f32"
    ),
    Refusal("quant.pick", "take 2 scales", ((3,), (1,), (16,)), {"shape": (2, 3), "block": 4}, "u8 f32 f32"),
    Refusal("quant.decode", "as many axes of scales as of codes", ((4, 6), (4,)), {}, "i8 f64"),
    Refusal("quant.decode", "of the codes are no multiples", ((4, 6), (3, 6)), {}, "i8 f64"),
    Refusal("quant.linear_codes", "every 'scale' must be positive", ((2, 3),), {"scale": (1.0, 0.0)}, "i8"),
    Refusal(
        "quant.linear_codes",
        "'group_size' must be at least 1",
        ((2, 3),),
        {"scale": (1.0,), "group_size": 0},
        "i8",
    ),
    *(
        Refusal(
            f"quant.{name}",
            f"'{side}_scale' must be positive",
            ((2, 3),),
            {**X_Y, **extra, f"{side}_scale": 0.0},
            "i8",
        )
        for name in (*UNARY, "leaky_relu", "clamp", "mean", "avg_pool")
        for side in "xy"
        for extra in (
            {"low": 0.0, "high": 1.0}
            if name == "clamp"
            else {"size": (1,), "axes": (1,)}
            if name == "avg_pool"
            else {},
        )
    ),
    *(
        Refusal(
            f"quant.{name}",
            f"'{side}_scale' must be positive",
            ((2, 3), (3,)),
            {**A_B_Y, f"{side}_scale": 0.0},
            "i8",
        )
        for name in BINARY
        for side in "aby"
    ),
    *(
        Refusal(f"quant.{name}", "the shapes of 'a' and 'b' do not broadcast", ((2, 3), (2,)), A_B_Y, "i8")
        for name in BINARY
    ),
    Refusal(
        "quant.leaky_relu", "'alpha' is a slope and must lie in [0, 1]", ((2,),), {**X_Y, "alpha": 2.0}, "i8"
    ),
    Refusal("quant.clamp", "'low' must not be above 'high'", ((2,),), {**X_Y, "low": 1.0, "high": 0.0}, "i8"),
    *(
        Refusal("quant.conv", fragment, _CONV, {**_GROUPED, **attributes}, _CONV_TYPES)
        for fragment, attributes in (
            ("'x_scale' must be positive", {"x_scale": 0.0}),
            ("'y_scale' must be positive", {"y_scale": -1.0}),
            ("'w_bits' must be 4 or 8", {"w_bits": 5}),
            ("'stride' must be at least 1", {"stride": 0}),
            ("'dilation' must be at least 1", {"dilation": 0}),
            ("'padding' must not be negative", {"padding": -1}),
            ("'groups' must be at least 1", {"groups": 0}),
            ("the dilated filter does not fit", {"dilation": 3}),
            ("the 6 output channels cannot be divided into 4 groups", {"groups": 4}),
            ("the input has 4 channels; a filter of 2 channels in 3 groups needs 6", {"groups": 3}),
        )
    ),
    Refusal(
        "quant.conv",
        "every extent of the filter must be positive",
        ((1, 4, 5, 5), (6, 2, 0, 3), (6,), (6,)),
        _GROUPED,
        _CONV_TYPES,
    ),
    Refusal(
        "quant.conv",
        "the bias has 5 items for 6 output channels",
        (*_CONV[:2], (5,), (6,)),
        _GROUPED,
        _CONV_TYPES,
    ),
    Refusal(
        "quant.conv", "there are 5 scales for 6 output channels", (*_CONV[:3], (5,)), _GROUPED, _CONV_TYPES
    ),
    *(
        Refusal("quant.matmul", fragment, _PRODUCT, {**A_Y, **attributes}, _PRODUCT_TYPES)
        for fragment, attributes in (
            ("'a_scale' must be positive", {"a_scale": 0.0}),
            ("'y_scale' must be positive", {"y_scale": 0.0}),
            ("'b_bits' must be 4, 8 or 16", {"b_bits": 5}),
            ("the summed extent is 3 by a and 4 by b", {"transA": True}),
        )
    ),
    Refusal(
        "quant.matmul", "the bias has 4 items for 5 columns", (*_PRODUCT[:2], (4,), (5,)), A_Y, _PRODUCT_TYPES
    ),
    Refusal("quant.matmul", "there are 4 scales for 5 columns", (*_PRODUCT[:3], (4,)), A_Y, _PRODUCT_TYPES),
    Refusal(
        "quant.matmul",
        "cannot be broadcast to each other",
        ((2, 3, 4), (3, 4, 5), (5,), (5,)),
        A_Y,
        _PRODUCT_TYPES,
    ),
    *(
        Refusal("quant.avg_pool", fragment, ((1, 2, 3, 4),), {**_POOL, **attributes}, "i8")
        for fragment, attributes in (
            ("every item of 'axes' must lie in", {"axes": (2, 4)}),
            ("'axes' must name each axis once", {"axes": (2, 2)}),
            ("'size' must be at least 1", {"size": (0, 1)}),
            ("'stride' must be at least 1", {"stride": (0, 1)}),
            ("'padding' must be less than 'size'", {"padding": 2}),
            ("the window does not fit into the padded input", {"size": (6, 1)}),
        )
    ),
    Refusal("quant.mean", "'axes' must be at least -2 and below 2", ((2, 3),), {**X_Y, "axes": (2,)}, "i8"),
    Refusal("quant.mean", "'axes' must name each dimension once", ((2, 3),), {**X_Y, "axes": (0, -2)}, "i8"),
)


@judged("numpy", "quant.look_up")
@given(SEEDS)
def test_look_up(seed: int) -> None:
    """The lowest code of 4 bits is for the first number."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-8, 8, rng.integers(1, 5, rng.integers(0, 4)))
    numbers = rng.standard_normal(16).astype(np.float32)
    given = np.asarray(codes).astype(ml_dtypes.int4)
    found = _one("quant.look_up", [given], "f32", {"numbers": tuple(map(float, numbers))})
    same(found, numbers[codes + 8])


@judged("numpy", "quant.pick")
@given(SEEDS)
def test_pick(seed: int) -> None:
    """Codes of four bits, the first of a byte in its high half, look numbers up; each block has a scale."""
    rng = np.random.default_rng(seed)
    rows, columns, block = int(rng.integers(1, 5)), 2 * int(rng.integers(1, 6)), int(rng.integers(1, 9))
    codes = rng.integers(0, 16, rows * columns)
    scale = rng.uniform(0.5, 2, -(-codes.size // block)).astype(np.float32)
    numbers = rng.normal(size=16).astype(np.float32)
    packed = (codes[0::2] * 16 + codes[1::2]).astype(np.uint8)
    found = one("quant.pick", packed, scale, numbers, shape=(rows, columns), block=block)
    wanted = numbers[codes] * np.repeat(scale, block)[: codes.size]
    near(found, wanted.reshape(rows, columns))


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refused(refusal: Refusal) -> None:
    refuse(refusal)
