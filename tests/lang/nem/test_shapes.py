"""Output shapes of all opcodes, judged by NumPy and torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lamella.lang.nem.resolved import AttributeValue
from tests.support.lang.nem.written_tasks import codes_for

Shape = tuple[int, ...]
Attributes = Mapping[str, AttributeValue]
SIZES = st.integers(1, 6)
SHAPES = st.lists(SIZES, min_size=1, max_size=4).map(tuple)
ALIKE = (
    *("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs", "neg", "gelu", "silu"),
    *("cast", "quantize", "dequantize"),
)
BINARY = ("add", "sub", "mul", "div", "min", "max", "pow")


def expect(
    opcode: str, inputs: Sequence[Shape], wanted: Sequence[Shape] | None, attributes: Attributes | None = None
) -> None:
    """The judge's shapes are accepted and any other refused; where the judge refuses, so do we."""
    given_attributes = attributes or {}
    if wanted is None:
        guess = [inputs[0]]
        assert set(codes_for(opcode, inputs, guess, given_attributes)) & {"NEM090", "NEM091"}
        return
    assert codes_for(opcode, inputs, wanted, given_attributes) == []
    for index, shape in enumerate(wanted):
        for other in ((*shape[:-1], shape[-1] + 1), (*shape, 1)):
            changed = [*wanted[:index], other, *wanted[index + 1 :]]
            found = codes_for(opcode, inputs, changed, given_attributes)
            assert found in (["NEM089"], ["NEM087"])


def image(*shape: int) -> torch.Tensor:
    """Zeros of a type that torch computes without a vendor library; only the shape counts."""
    return torch.zeros(shape, dtype=torch.float64)


# --- the same shape -----------------------------------------------------------------------------------------


@given(st.sampled_from(ALIKE), SHAPES)
def test_unary_operations_keep_the_shape(opcode: str, shape: Shape) -> None:
    expect(opcode, [shape], [shape])


@given(st.sampled_from(BINARY), SHAPES, SHAPES)
def test_binary_operations_do_not_broadcast(opcode: str, left: Shape, right: Shape) -> None:
    expect(opcode, [left, left], [left])
    if left != right:
        expect(opcode, [left, right], None)


@given(SHAPES, st.integers(-5, 5), st.sampled_from(("softmax", "log_softmax")))
def test_softmax_axes(shape: Shape, axis: int, opcode: str) -> None:
    exists = axis in range(-len(shape), len(shape))
    expect(opcode, [shape], [shape] if exists else None, {"axis": axis})


@given(SHAPES, st.integers(-4, 3), SIZES, st.sampled_from(("layernorm", "rmsnorm")), st.booleans())
def test_norm_parameters_have_the_size_of_the_axis(
    shape: Shape, axis: int, size: int, opcode: str, bias: bool
) -> None:
    exists = axis in range(-len(shape), len(shape))
    inputs = [shape, (size,), (size,)][: 3 if bias and opcode == "layernorm" else 2]
    legal = exists and np.take(np.zeros(shape), 0, axis).size * size == math.prod(shape)
    expect(opcode, inputs, [shape] if legal else None, {"axis": axis, "epsilon": 0.1})


# --- products -----------------------------------------------------------------------------------------------


@given(st.lists(SIZES, max_size=2), st.lists(SIZES, max_size=2), SIZES, SIZES, SIZES, st.sampled_from("gm"))
def test_products_follow_matmul_without_broadcasting(
    batch: list[int], other: list[int], m: int, k: int, n: int, which: str
) -> None:
    opcode = "gemm" if which == "g" else "matmul"
    a, b = (*batch, m, k), (*other, k, n)
    wanted = None
    if other in ([], batch):
        wanted = [tuple(torch.matmul(image(*a), image(*b)).shape)]
    expect(opcode, [a, b], wanted, {"accum_type": "f32"})
    expect(opcode, [a, (*other, k + 1, n)], None, {"accum_type": "f32"})


@given(
    st.lists(st.integers(1, 2), min_size=2, max_size=3), st.lists(st.integers(1, 2), min_size=1, max_size=4)
)
def test_the_addend_broadcasts_to_the_output(y: list[int], c: list[int]) -> None:
    a, b = (*y[:-1], 5), (5, y[-1])
    try:
        legal = np.broadcast_shapes(tuple(c), tuple(y)) == tuple(y)
    except ValueError:
        legal = False
    expect("gemm", [a, b, tuple(c)], [tuple(y)] if legal else None, {"accum_type": "f32"})


# --- windows ------------------------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn, axes: int) -> dict[str, tuple[int, ...]]:
    """Sizes, kernel, pads, strides and dilations over some spatial axes."""
    several = st.lists(st.integers(1, 3), min_size=axes, max_size=axes).map(tuple)
    return {
        "sizes": draw(st.lists(st.integers(1, 9), min_size=axes, max_size=axes).map(tuple)),
        "kernel": draw(several),
        "strides": draw(several),
        "dilations": draw(several),
        "pads": draw(st.lists(st.integers(0, 3), min_size=2 * axes, max_size=2 * axes).map(tuple)),
    }


def padded(x: torch.Tensor, pads: Shape) -> torch.Tensor:
    """The tensor with [begins…, ends…] added to its last axes; torch wants pairs, last axis first."""
    half = len(pads) // 2
    pairs = [(pads[axis], pads[axis + half]) for axis in reversed(range(half))]
    return torch.nn.functional.pad(x, [size for pair in pairs for size in pair])


def convolve(window: Mapping[str, Shape], n: int, cin: int, w: Shape, groups: int) -> list[Shape] | None:
    """The shape that torch gives a convolution, channels last."""
    functions = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)
    function = functions[len(window["sizes"]) - 1]
    kernel = image(w[-1], w[-2], *w[:-2])
    try:
        x = padded(image(n, cin, *window["sizes"]), window["pads"])
        y = function(x, kernel, None, window["strides"], 0, window["dilations"], groups)
    except RuntimeError:
        return None
    shape = tuple(y.shape)
    return [(shape[0], *shape[2:], shape[1])] if min(shape) > 0 else None


@pytest.mark.parametrize(("opcode", "axes"), [("conv1d", 1), ("conv2d", 2), ("conv3d", 3)])
@given(data=st.data())
def test_convolutions(opcode: str, axes: int, data: st.DataObject) -> None:
    window = data.draw(windows(axes))
    n, groups, share, cout = (data.draw(st.integers(1, 3)) for _ in range(4))
    cin = groups * share + data.draw(st.sampled_from((0, 0, 0, 1)))
    w = (*window["kernel"], share, cout)
    wanted = convolve(window, n, cin, w, groups)
    attributes = {name: window[name] for name in ("pads", "strides", "dilations")}
    x = (n, *window["sizes"], cin)
    expect(opcode, [x, w], wanted, {**attributes, "groups": groups, "accum_type": "f32"})
    if wanted:
        wrong_bias = (cout + 1,)
        expect(opcode, [x, w, (cout,)], wanted, {**attributes, "groups": groups, "accum_type": "f32"})
        expect(opcode, [x, w, wrong_bias], None, {**attributes, "groups": groups, "accum_type": "f32"})


@given(windows(2), SIZES, SIZES, st.integers(1, 3), st.integers(1, 2))
def test_depthwise_convolutions_have_a_group_for_each_channel(
    window: Mapping[str, Shape], n: int, cin: int, cout: int, share: int
) -> None:
    w = (*window["kernel"], share, cout * cin if share == 1 else cout)
    attributes = {name: window[name] for name in ("pads", "strides", "dilations")}
    wanted = convolve(window, n, cin, w, cin)
    expect("depthwise_conv2d", [(n, *window["sizes"], cin), w], wanted, {**attributes, "accum_type": "f32"})


@given(windows(2), SIZES, SIZES, st.sampled_from(("maxpool", "avgpool")))
def test_pools(window: Mapping[str, Shape], n: int, channels: int, opcode: str) -> None:
    kernel, strides, pads, sizes = (window[name] for name in ("kernel", "strides", "pads", "sizes"))
    x = padded(image(n, channels, *sizes), pads)
    try:
        shape = tuple(torch.nn.functional.max_pool2d(x, kernel, strides).shape)
        wanted: list[Shape] | None = [(n, *shape[2:], channels)]
    except RuntimeError:
        wanted = None
    if wanted and any(pads[axis + end] >= kernel[axis] for axis in (0, 1) for end in (0, 2)):
        # some window holds padding alone, which has no maximum and no mean
        real = padded(torch.ones(1, 1, *sizes), pads)
        assert torch.nn.functional.max_pool2d(real, kernel, 1).min() == 0
        wanted = None
    attributes: Attributes = {"kernel_shape": kernel, "pads": pads, "strides": strides}
    expect(opcode, [(n, *sizes, channels)], wanted, attributes)


# --- views --------------------------------------------------------------------------------------------------


@given(SHAPES, st.lists(st.integers(0, 4), max_size=4))
def test_transpose(shape: Shape, perm: list[int]) -> None:
    for order in (perm, sorted(range(len(shape)), key=lambda axis: perm[axis : axis + 1])):
        try:
            wanted = [np.zeros(shape).transpose(order).shape] if order else None
        except ValueError:
            wanted = None
        expect("transpose", [shape], wanted, {"perm": tuple(order)})


@given(SHAPES, st.lists(st.sampled_from((-1, 1, 2, 3, 4, 6)), min_size=1, max_size=3))
def test_reshape(shape: Shape, target: list[int]) -> None:
    try:
        wanted = [np.zeros(shape).reshape(target).shape]
    except ValueError:
        wanted = None
    expect("reshape", [shape], wanted, {"target_shape": tuple(target)})
    expect("reshape", [shape], [(math.prod(shape),)], {"target_shape": (-1,)})


BOUND = st.one_of(st.integers(-8, 8), st.sampled_from((-(2**63), 2**63 - 1)))


@given(st.data(), SHAPES)
def test_slice(data: st.DataObject, shape: Shape) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    written = tuple(axis - len(shape) * data.draw(st.booleans()) for axis in axes)
    starts, ends = (tuple(data.draw(BOUND) for _ in axes) for _ in range(2))
    steps = tuple(data.draw(st.sampled_from((-3, -2, -1, 1, 2, 3))) for _ in axes)
    cut = [slice(None)] * len(shape)
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(*bounds)
    left = np.zeros(shape)[tuple(cut)].shape
    attributes = {"starts": starts, "ends": ends, "axes": written, "steps": steps}
    expect("slice", [shape], [left] if min(left) else None, attributes)
    expect("slice", [shape], None, {**attributes, "steps": (0,) * len(axes)})
    expect("slice", [shape], None, {**attributes, "axes": (axes[0], axes[0])})


@given(SHAPES, st.lists(SIZES, min_size=1, max_size=3), st.integers(-5, 5), st.booleans())
def test_concat(shape: Shape, sizes: list[int], axis: int, spoil: bool) -> None:
    parts = [shape]
    if axis in range(-len(shape), len(shape)):
        parts = [tuple(s if i == axis % len(shape) else d for i, d in enumerate(shape)) for s in sizes]
    if spoil:
        parts = [*parts, tuple(size + 1 for size in shape)]
    try:
        wanted = [np.concatenate([np.zeros(part) for part in parts], axis).shape]
    except ValueError:
        wanted = None
    expect("concat", parts, wanted, {"axis": axis})


@given(SHAPES, st.lists(SIZES, min_size=1, max_size=3), st.integers(-4, 3))
def test_split(shape: Shape, sizes: list[int], axis: int) -> None:
    attributes: Attributes = {"axis": axis, "split_sizes": tuple(sizes)}
    outputs = [shape] * len(sizes)
    if axis not in range(-len(shape), len(shape)):
        assert codes_for("split", [shape], outputs, attributes) == ["NEM091"]
        return
    whole = tuple(sum(sizes) if i == axis % len(shape) else d for i, d in enumerate(shape))
    pieces = np.split(np.zeros(whole), np.cumsum(sizes)[:-1], axis)
    expect("split", [whole], [piece.shape for piece in pieces], attributes)
    if sum(sizes) != shape[axis]:
        assert codes_for("split", [shape], outputs, attributes) == ["NEM091"]
    assert codes_for("split", [whole], [*outputs, shape], attributes) == ["NEM091"]


@given(st.data(), SHAPES, st.sampled_from(("constant", "edge", "reflect")))
def test_pad(data: st.DataObject, shape: Shape, mode: str) -> None:
    pads = tuple(data.draw(st.integers(-2, 3)) for _ in range(2 * len(shape)))
    pairs = [(pads[axis], pads[axis + len(shape)]) for axis in range(len(shape))]
    flat = [side for pair in reversed(pairs) for side in pair]
    try:
        wanted: list[Shape] | None = [tuple(torch.nn.functional.pad(torch.zeros(shape), flat).shape)]
    except RuntimeError:
        wanted = None
    if wanted is not None and 0 in wanted[0]:
        wanted = None
    if mode == "reflect":
        fits = min(pads) >= 0 and all(_reflects(n, *pair) for n, pair in zip(shape, pairs, strict=True))
        wanted = wanted if fits else None
    expect("pad", [shape], wanted, {"pads": pads, "mode": mode, "constant_value": 0.0})


def _reflects(size: int, begin: int, end: int) -> bool:
    try:
        torch.nn.functional.pad(torch.zeros(1, size), (begin, end), mode="reflect")
    except RuntimeError:
        return False
    return True


@given(SHAPES, SHAPES, st.integers(-5, 5))
def test_gather(shape: Shape, indices: Shape, axis: int) -> None:
    wanted = None
    if axis in range(-len(shape), len(shape)):
        wanted = [np.take(np.zeros(shape), np.zeros(indices, int), axis).shape]
    expect("gather", [shape, indices], wanted, {"axis": axis})


# --- reductions ---------------------------------------------------------------------------------------------


@given(SHAPES, st.lists(st.integers(-4, 3), min_size=1, max_size=3), st.booleans())
def test_reductions(shape: Shape, axes: list[int], keepdims: bool) -> None:
    try:
        wanted = [np.zeros(shape).sum(tuple(axes), keepdims=keepdims).shape or (1,)]
    except ValueError:
        wanted = None
    for opcode in ("reduce_sum", "reduce_max", "reduce_min"):
        expect(opcode, [shape], wanted, {"axes": tuple(axes), "keepdims": keepdims})


@given(SHAPES, st.integers(-4, 3), st.booleans(), st.sampled_from(("argmax", "argmin")))
def test_arguments(shape: Shape, axis: int, keepdims: bool, opcode: str) -> None:
    try:
        wanted = [np.zeros(shape).argmax(axis, keepdims=keepdims).shape or (1,)]
    except ValueError:
        wanted = None
    expect(opcode, [shape], wanted, {"axis": axis, "keepdims": keepdims})
