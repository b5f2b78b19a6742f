"""Convolutions of `nn`, judged by torch and onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.judges.draws import Array, filled
from tests.support.judges.harness import near, one, refuse
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import Given, Refusal, judged

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F

Data = st.DataObject
Numbers = tuple[int, ...]
CONVOLVE: MappingProxyType[int, Callable[..., torch.Tensor]] = MappingProxyType(
    {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
)
SPREAD: MappingProxyType[int, Callable[..., torch.Tensor]] = MappingProxyType(
    {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
)

CONV, DECONV = "nn.conv", "nn.deconv"
SHARED = (
    ("'data_format' must be one of", {"data_format": "CNX"}),
    ("'filter_format' must be one of", {"filter_format": "CNX"}),
    ("'padding_align' must be one of", {"padding_align": "MIDDLE"}),
    ("'stride' must be at least 1", {"stride": 0}),
    ("'dilation' must be at least 1", {"dilation": (1, -1)}),
    ("'groups' must not be negative", {"groups": -1}),
)
REFUSALS = (
    *(
        Refusal(operator, fragment, ((1, 4, 5, 5), (4, 4, 3, 3)), attributes)
        for operator in (CONV, DECONV)
        for fragment, attributes in SHARED
    ),
    *(
        Refusal(operator, "needs at least one input channel", ((1, 0, 5), (0, 0, 3)), {"groups": 0})
        for operator in (CONV, DECONV)
    ),
    *(
        Refusal(operator, "every extent of the filter must be positive", ((1, 4, 5), (4, 4, 0)))
        for operator in (CONV, DECONV)
    ),
    Refusal(
        CONV, "does not fit into the padded input", ((1, 4, 5), (4, 4, 3)), {"padding": 0, "dilation": 3}
    ),
    Refusal(
        CONV, "the 3 output channels cannot be divided into 2 groups", ((1, 4, 5), (3, 2, 3)), {"groups": 2}
    ),
    Refusal(CONV, "a filter of 2 channels in 1 groups needs 2", ((1, 4, 5), (3, 2, 3))),
    Refusal(CONV, "the bias has 2 items for 3 output channels", ((1, 4, 5), (3, 4, 3), (2,))),
    Refusal(DECONV, "the input has 4 channels; the filter is made for 3", ((1, 4, 5), (3, 2, 3))),
    Refusal(
        DECONV, "the 3 input channels cannot be divided into 2 groups", ((1, 3, 5), (3, 2, 3)), {"groups": 2}
    ),
    Refusal(
        DECONV, "the bias has 3 items for 4 output channels", ((1, 4, 5), (4, 2, 3), (3,)), {"groups": 2}
    ),
    Refusal(DECONV, "the output would have extents", ((1, 4, 1), (4, 2, 3)), {"padding": 2}),
    Refusal(DECONV, "would not give back the input's extents", ((1, 4, 5), (4, 2, 3)), {"output_size": 9}),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A drawn convolution in the layout NCX, and the attributes it is called with."""

    input: Array
    filter: Array
    bias: Array | None
    stride: Numbers
    dilation: Numbers
    groups: int
    offset: Numbers
    output: Numbers
    attributes: Mapping[str, Given]

    @property
    def spread(self) -> Numbers:
        """The extents of the dilated filter."""
        sizes = self.filter.shape[2:]
        return tuple((size - 1) * step + 1 for size, step in zip(sizes, self.dilation, strict=True))


def _many(draw: st.DrawFn, count: int, least: int, most: int) -> Numbers:
    return tuple(draw(st.lists(st.integers(least, most), min_size=count, max_size=count)))


def _halves(total: Numbers, upper: bool) -> Numbers:
    return tuple(item // 2 if upper else -(-item // 2) for item in total)


@st.composite
def convolutions(draw: st.DrawFn, transposed: bool = False) -> Case:
    """A convolution of one to three dimensions, padded by itself or explicitly."""
    d = draw(st.sampled_from((1, 1, 2, 2, 3)))
    size, stride, dilation = (_many(draw, d, 1, most) for most in (3, 3, 2))
    extents = _many(draw, d, 1, 8 - d)
    groups, ins, outs = (draw(st.integers(1, 3)) for _ in range(3))
    ceil = draw(st.booleans()) and not transposed
    spread = tuple((k - 1) * step + 1 for k, step in zip(size, dilation, strict=True))
    flags: dict[str, Given] = {"ceil_mode": True} if ceil else {}
    columns = list(zip(extents, spread, stride, strict=True))
    if draw(st.booleans()):
        before, after = _many(draw, d, 0, 2), _many(draw, d, 0, 2)
        total = tuple(a + b for a, b in zip(before, after, strict=True))
        flags["padding"] = (*before, *after)
    else:
        upper = draw(st.booleans())
        steps = (-(-x // s) if ceil else x // s for x, _, s in columns)
        wanted = tuple((n - 1) * s + f - x for n, (x, f, s) in zip(steps, columns, strict=True))
        total = tuple(f - s for _, f, s in columns) if transposed else wanted
        before = _halves(total, upper)
        flags |= {} if upper else {"padding_align": "LOWER"}
    output = tuple(
        (x - 1) * s + f - p if transposed else _count(x + p - f, s, ceil)
        for (x, f, s), p in zip(columns, total, strict=True)
    )
    assume(all(item > 0 for item in output))
    dtype, seed = draw(st.sampled_from(("float32", "float64", "float16"))), draw(st.integers(0, 2**32 - 1))
    channels = (groups * ins, outs) if transposed else (groups * outs, ins)
    bias = filled((groups * outs,), dtype, seed + 1) if draw(st.booleans()) else None
    return Case(
        filled((draw(st.integers(1, 2)), groups * ins, *extents), dtype, seed, -3, 3),
        filled((*channels, *size), dtype, seed + 2, -3, 3),
        bias,
        stride,
        dilation,
        groups,
        before,
        output,
        {**flags, "stride": stride, "dilation": dilation, "groups": groups},
    )


def _count(room: int, stride: int, ceil: bool) -> int:
    return (-(-room // stride) if ceil else room // stride) + 1 if room >= 0 else 0


def _wide(array: Array) -> torch.Tensor:
    return torch.tensor(array.astype(np.float64))


def _convolved(case: Case) -> Array:
    """What torch makes of the input, padded by hand to exactly what the outputs read."""
    pads: list[int] = []
    columns = zip(case.input.shape[2:], case.spread, case.stride, case.offset, case.output, strict=True)
    for extent, spread, stride, before, count in reversed(list(columns)):
        pads += [before, (count - 1) * stride + spread - extent - before]
    function = CONVOLVE[len(case.stride)]
    found = function(
        F.pad(_wide(case.input), pads),
        _wide(case.filter),
        None if case.bias is None else _wide(case.bias),
        case.stride,
        0,
        case.dilation,
        case.groups,
    )
    return np.asarray(found.numpy(), case.input.dtype)


def _call(operator: str, case: Case, **attributes: Given) -> Array:
    bias = () if case.bias is None else (case.bias,)
    return one(operator, case.input, case.filter, *bias, **{**case.attributes, **attributes})


@judged("torch", CONV)
@given(convolutions())
def test_conv(case: Case) -> None:
    near(_call(CONV, case), _convolved(case))


def _moved(array: Array, order: str) -> Array:
    """An array in NCX as `order` lays it out."""
    spatial = range(2, array.ndim)
    places = {"N": [0], "C": [1], "X": list(spatial)}
    return np.ascontiguousarray(array.transpose([axis for letter in order for axis in places[letter]]))


FORMATS = st.sampled_from(("NCX", "NXC", "XCN"))
FILTERS = st.sampled_from(("NCX", "NXC", "XCN", "CXN"))


@judged("torch", CONV, DECONV)
@given(st.booleans().flatmap(lambda flag: st.tuples(st.just(flag), convolutions(flag))), FORMATS, FILTERS)
def test_formats(drawn: tuple[bool, Case], data_format: str, filter_format: str) -> None:
    transposed, case = drawn
    operator, expected = (DECONV, _spread(case)) if transposed else (CONV, _convolved(case))
    moved = _moved(case.input, data_format), _moved(case.filter, filter_format)
    bias = () if case.bias is None else (case.bias,)
    attributes = {**case.attributes, "data_format": data_format, "filter_format": filter_format}
    near(one(operator, *moved, *bias, **attributes), _moved(expected, data_format))


@judged("torch", CONV)
@given(convolutions())
def test_groups_of_one_channel(case: Case) -> None:
    assume(case.filter.shape[1] == 1)
    near(_call(CONV, case, groups=0), _convolved(case))


@judged("onnxruntime", CONV)
@given(convolutions(), st.sampled_from(("UPPER", "LOWER")))
def test_same_padding_of_onnx(case: Case, align: str) -> None:
    """SAME of ONNX is the default padding with `ceil_mode`; it never crops, so filters are as wide as steps."""
    assume(all(size >= stride for size, stride in zip(case.filter.shape[2:], case.stride, strict=True)))
    x, w = case.input.astype(np.float32), case.filter.astype(np.float32)
    attributes = {name: case.attributes[name] for name in ("stride", "groups")}
    found = one(CONV, x, w, **attributes, ceil_mode=True, padding_align=align)
    strides = list(case.stride)
    (expected,) = run_node("Conv", (x, w), strides=strides, group=case.groups, auto_pad=f"SAME_{align}")
    near(found, expected)


def _spread(case: Case) -> Array:
    """What torch spreads the input to, cut out by hand from the whole."""
    function = SPREAD[len(case.stride)]
    whole = function(
        _wide(case.input), _wide(case.filter), None, case.stride, 0, 0, case.groups, case.dilation
    )
    pads: list[int] = []
    for extent, before, count in reversed(list(zip(whole.shape[2:], case.offset, case.output, strict=True))):
        pads += [-before, before + count - extent]
    found = F.pad(whole, pads)
    if case.bias is not None:
        found = found + _wide(case.bias).reshape(-1, *(1,) * len(case.stride))
    return np.asarray(found.numpy(), case.input.dtype)


@judged("torch", DECONV)
@given(convolutions(True))
def test_deconv(case: Case) -> None:
    near(_call(DECONV, case), _spread(case))


@judged("torch", DECONV)
@given(convolutions(True), st.data())
def test_deconv_to_a_given_size(case: Case, data: Data) -> None:
    assume("padding" in case.attributes)
    more = tuple(data.draw(st.integers(0, step - 1)) for step in case.stride)
    output = tuple(size + extra for size, extra in zip(case.output, more, strict=True))
    wider = Case(
        case.input,
        case.filter,
        case.bias,
        case.stride,
        case.dilation,
        case.groups,
        case.offset,
        output,
        {**case.attributes, "output_size": output},
    )
    near(_call(DECONV, wider), _spread(wider))


@judged("torch", "nn.linear")
@given(st.tuples(*(st.integers(0, 4),) * 3), st.sampled_from(("float32", "float64")), st.booleans())
def test_linear(sizes: tuple[int, int, int], dtype: str, biased: bool) -> None:
    batch, ins, outs = sizes
    x, w, b = filled((batch, ins), dtype, 0), filled((outs, ins), dtype, 1), filled((outs,), dtype, 2)
    expected = F.linear(_wide(x), _wide(w), _wide(b) if biased else None)
    near(one("nn.linear", x, w, *((b,) if biased else ())), expected.numpy().astype(dtype))


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
