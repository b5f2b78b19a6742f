"""Every row of the selection once: the operator on the NPU beside the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from lamella.base.dtype import BOOL, F32, I64
from lamella.bridge.graph_to_plan.rows import TABLE
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Tensor, Value, tensors
from tests.support.plan.selection import Drawing, assert_close, assert_equal

SCALES: Mapping[str, Value] = {"x_scale": 0.05, "x_zero": 3, "y_scale": 0.04, "y_zero": -5}
PAIR: Mapping[str, Value] = {
    "a_scale": 0.05,
    "a_zero": 3,
    "b_scale": 0.03,
    "b_zero": -2,
    "y_scale": 0.06,
    "y_zero": 1,
}
Case = Callable[[Drawing, Tensor], Tensor | tuple[Tensor, ...]]


def made(argument: Argument) -> Tensor | tuple[Tensor, ...]:
    """The tensors of a result."""
    return argument if isinstance(argument, Tensor) else tensors(argument)


def call(operator: str, *rest: tuple[int, ...] | float | None, **attributes: Any) -> Case:
    """An operator on the input; what else it takes is drawn: shapes of weights, or numbers."""

    def build(drawing: Drawing, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        others = [drawing.real(*item) if isinstance(item, tuple) else item for item in rest]
        return made(drawing.call_all(operator, x, *others, **attributes)[0])

    return build


def positive(case: Case) -> Case:
    """A case on numbers above zero."""

    def build(drawing: Drawing, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        square = drawing.call("math.mul", x, x)
        return case(drawing, drawing.call("math.add", square, 0.5))

    return build


def ids(case: Callable[[Drawing, Tensor], Tensor]) -> Case:
    """A case on indices that the run tells."""

    def build(drawing: Drawing, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        return case(drawing, drawing.builder.input("ids", I64, (4,)))

    return build


def rows_of_codes(drawing: Drawing, index: Tensor) -> Tensor:
    """Rows of a table of codes, each with a scale of its own."""
    scales = drawing.weight(drawing.random.uniform(0.001, 0.02, (5, 1)))
    rows = (drawing.call("layout.gather", item, index, axis=0) for item in (drawing.codes(5, 3), scales))
    return drawing.call("quant.decode", *rows)


def pack(operator: str, **attributes: Any) -> Case:
    """An operator on two tensors in a pack."""

    def build(drawing: Drawing, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        other = drawing.call("math.neg", x)
        return drawing.call(operator, (x, other), **attributes)

    return build


def select(drawing: Drawing, x: Tensor) -> Tensor:
    """A choice by a condition that is known."""
    mask = drawing.weight(drawing.random.integers(0, 2, (4, 6)).astype(np.bool_))
    assert mask.element == BOOL
    return drawing.call("math.select", mask, x, 0.25)


def attention(operator: str, **attributes: Any) -> Case:
    """Attention of the input with itself in two heads."""

    def build(drawing: Drawing, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        return made(drawing.call_all(operator, x, x, x, **attributes)[0])

    return build


def pair(name: str) -> Case:
    """An operator on the codes of the input and known ones of fewer axes."""

    def build(drawing: Drawing, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        return drawing.call(f"quant.{name}", x, drawing.codes(3, 1), **PAIR)

    return build


def rotate(drawing: Drawing, x: Tensor) -> Tensor:
    """Rotary positions."""
    angles = drawing.random.uniform(0, 6, (8, 2))
    freqs = drawing.weight(np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32))
    words = {"interleaved": False, "sign": 1.0}
    return drawing.call("llm._rotate", x, freqs, None, time=2, columns=2, **words)


def heads(drawing: Drawing, x: Tensor) -> Tensor:
    """Some heads of packed ones."""
    return drawing.call("llm._take_heads", x, first=1, count=2)


def resample(drawing: Drawing, x: Tensor) -> Tensor:
    """Sums of two rows of an image each."""
    places = drawing.weight(drawing.random.integers(0, 4, (2, 5)))
    return drawing.call("onnx.resample", x, places, drawing.real(2, 5), axis=2)


ROWS: Mapping[str, tuple[tuple[int, ...], Case]] = {
    **{
        name: ((2, 3, 4), call(name))
        for name in ("math.neg", "math.abs", "math.exp", "math.tanh", "math.iden")
    },
    **{
        name: ((2, 3, 4), call(name))
        for name in ("nn.sigmoid", "nn.silu", "aten.silu", "aten.sigmoid", "math.sqr")
    },
    **{name: ((3, 4), positive(call(name))) for name in ("math.log", "math.sqrt", "math.rsqrt", "math.rcp")},
    **{name: ((3, 4), positive(call(name))) for name in ("math.rsqr", "math.log2")},
    **{name: ((2, 3, 4), call(name, (3, 1))) for name in ("math.add", "math.sub", "math.mul", "math.min")},
    "math.max": ((2, 3, 4), call("math.max", 0.5)),
    "math.div": ((2, 3, 4), call("math.div", 3.0)),
    "math.pow": ((3, 4), positive(call("math.pow", 1.5))),
    "math.clamp": ((3, 4), call("math.clamp", -0.5, 0.75)),
    "math.select": ((4, 6), select),
    "nn.relu": ((3, 4), call("nn.relu", alpha=0.1)),
    "aten.relu6": ((3, 4), call("aten.relu6")),
    "aten.leaky_relu": ((3, 4), call("aten.leaky_relu", negative_slope=0.2)),
    **{name: ((3, 4), call(name)) for name in ("nn.gelu", "aten.gelu", "aten.hardsigmoid")},
    **{name: ((3, 4), call(name)) for name in ("aten.hardswish", "onnx.hard_swish")},
    "llm.gelu": ((3, 4), call("llm.gelu", approximate=True)),
    **{name: ((3, 4), call(name)) for name in ("nn.elu", "nn.softplus")},
    "aten.elu": ((3, 4), call("aten.elu", alpha=1.5, scale=1.1, input_scale=0.7)),
    **{name: ((3, 4), call(name)) for name in ("nn.selu", "aten.mish", "aten.log_sigmoid", "aten.hardtanh")},
    "aten.celu": ((3, 4), call("aten.celu", alpha=1.4)),
    "aten.softplus": ((3, 4), call("aten.softplus", beta=2.0)),
    "nn.prelu": ((2, 4, 3), call("nn.prelu", (4,))),
    "onnx.prelu": ((2, 4, 3), call("onnx.prelu", (4, 1))),
    "aten.prelu": ((2, 4, 3, 3), call("aten.prelu", (4,))),
    "llm.bias_add": ((3, 4), call("llm.bias_add", (4,))),
    "llm.add_kind": ((2, 3, 4), call("llm.add_kind", (2, 4), None)),
    "llm.swiglu": ((3, 4), call("llm.swiglu", (3, 4))),
    "layout.cast": ((1,), ids(lambda d, i: d.call("layout.cast", i, types={"R": F32}))),
    "nn.linear": ((3, 4), call("nn.linear", (5, 4), (5,))),
    "linalg.matmul": ((2, 3, 4), call("linalg.matmul", (2, 5, 4), None, transB=True)),
    "linalg.matvec": ((3, 4), call("linalg.matvec", (4,))),
    "nn.conv": (
        (2, 4, 7, 6),
        call("nn.conv", (6, 2, 3, 3), (6,), stride=[2, 1], padding=[1, 1, 1, 1], groups=2),
    ),
    "nn.deconv": (
        (2, 4, 5, 6),
        call("nn.deconv", (4, 3, 3, 4), (6,), stride=[2, 3], padding=[1, 2, 1, 2], groups=2, dilation=[2, 1]),
    ),
    "onnx.conv_transpose": (
        (1, 4, 9),
        call("onnx.conv_transpose", (4, 3, 4), (3,), stride=[2], dilation=[1], padding=[1], size=[19]),
    ),
    "onnx.resample": ((1, 2, 4, 3), resample),
    "image.nearest_resize": ((1, 2, 4, 3), call("image.nearest_resize", axes=[2, 3], size=[8, 5])),
    "image.linear_resize": ((1, 2, 4, 9), call("image.linear_resize", axes=[2, 3], size=[7, 5])),
    "nn.sum_pool": ((1, 3, 7, 6), call("nn.sum_pool", size=[3, 2], stride=[2, 1], padding=[1, 0, 1, 1])),
    "nn.max_pool": ((1, 3, 7, 6), call("nn.max_pool", size=[3, 2], stride=[2, 2], padding=[1, 0, 1, 0])),
    "nn.avg_pool": ((1, 3, 7, 6), call("nn.avg_pool", size=[3, 3], stride=[2, 2], padding=[1, 1, 1, 1])),
    "math.max_reduce": ((2, 3, 4), call("math.max_reduce", axes=[1])),
    "math.min_reduce": ((2, 3, 4), call("math.min_reduce", axes=[0, 2])),
    "math.mean_reduce": ((2, 3, 4), call("math.mean_reduce", axes=[0, 2], squeeze=True)),
    "math.sum_reduce": ((2, 3, 4), call("math.sum_reduce", axes=[1])),
    "nn.softmax": ((2, 3, 4), call("nn.softmax", axes=[1])),
    **{name: ((2, 3, 4), call(name, dim=-1)) for name in ("aten.softmax", "llm.softmax", "aten.log_softmax")},
    "aten.layer_norm": ((2, 3, 4), call("aten.layer_norm", (3, 4), (3, 4), normalized_shape=[3, 4])),
    "llm.layernorm": ((2, 3, 4), call("llm.layernorm", (4,), (4,))),
    "aten.rms_norm": ((2, 3, 4), call("aten.rms_norm", (4,), normalized_shape=[4], eps=1e-5)),
    "llm.rmsnorm": ((2, 3, 4), call("llm.rmsnorm", (4,))),
    "aten.group_norm": ((2, 4, 3), call("aten.group_norm", (4,), (4,), num_groups=2)),
    "layout.reshape": ((2, 3, 4), call("layout.reshape", shape=[4, 6])),
    "layout.flatten": ((2, 3, 4), call("layout.flatten", axis=1)),
    "layout.unflatten": ((2, 3, 4), call("layout.unflatten", axis=2, shape=[2, 2])),
    "layout.squeeze": ((2, 1, 4), call("layout.squeeze", axes=[1])),
    "layout.unsqueeze": ((2, 4), call("layout.unsqueeze", axes=[1])),
    "layout.transpose": ((2, 3, 4), call("layout.transpose", perm=[2, 0, 1])),
    "layout.slice": ((2, 5, 4), call("layout.slice", axes=[1, 2], begin=[1, 3], end=[5, 0], stride=[2, -1])),
    "layout.split": ((2, 6), call("layout.split", axis=1, sizes=[2, 4])),
    "layout.unstack": ((3, 4), call("layout.unstack", axis=1)),
    "layout.concat": ((2, 3), pack("layout.concat", axis=1)),
    "layout.stack": ((2, 3), pack("layout.stack", axis=1)),
    "layout.pad": ((2, 3), call("layout.pad", padding=[1, 0, 0, 2], method="REFLECT")),
    "layout.gather": ((5, 3), ids(lambda d, i: d.call("layout.gather", d.real(5, 3), i, axis=0))),
    "aten._uneven_means": ((1, 2, 7, 5), call("aten._uneven_means", dim=-2, size=3)),
    "aten.slice": ((2, 7, 4), call("aten.slice", dim=1, start=-6, end=-1, step=2)),
    "aten.expand": ((3, 1), call("aten.expand", size=[2, -1, 4])),
    "aten.roll": ((3, 4), call("aten.roll", shifts=[1, -2], dims=[0, -1])),
    "aten.repeat_interleave": ((2, 3), call("aten.repeat_interleave", repeats=3, dim=0)),
    "aten.flip": ((2, 3, 4), call("aten.flip", dims=[0, -1])),
    "layout.tile": ((2, 3), call("layout.tile", axes=[1], repeats=[2])),
    "layout.broadcast": ((2, 1), call("layout.broadcast", axes=[1], shape=[3])),
    "layout.uniform": (
        (3,),
        lambda d, x: d.call("math.add", x, d.call("layout.uniform", 2.0, shape=[3])),
    ),
    "quant.decode": ((1,), ids(rows_of_codes)),
    "aten.embedding": ((1,), ids(lambda d, i: d.call("aten.embedding", d.real(5, 3), i))),
    "llm.embedding": ((1,), ids(lambda d, i: d.call("llm.embedding", i, d.real(5, 3)))),
    "llm._take_heads": ((2, 3, 4, 5), heads),
    "llm._first_rows": ((5, 3), call("llm._first_rows", count=2)),
    "llm.flash_attention": ((1, 2, 3, 6), attention("llm.flash_attention", causal=True)),
    "aten.scaled_dot_product_attention": (
        (1, 2, 3, 6),
        attention("aten.scaled_dot_product_attention", is_causal=False),
    ),
    "llm._rotate": ((1, 2, 5, 6), rotate),
}
CODES: Mapping[str, tuple[tuple[int, ...], Case]] = {
    **{
        f"quant.{name}": ((2, 3, 4), call(f"quant.{name}", **SCALES))
        for name in ("relu", "sigmoid", "tanh", "gelu", "silu", "abs", "neg", "exp", "requantize")
    },
    **{
        f"quant.{name}": ((3, 4), call(f"quant.{name}", **{**SCALES, "x_zero": -128}))
        for name in ("sqrt", "log")
    },
    "quant.leaky_relu": ((3, 4), call("quant.leaky_relu", alpha=0.3, **SCALES)),
    "quant.clamp": ((3, 4), call("quant.clamp", low=-1.5, high=0.7, **SCALES)),
    **{f"quant.{name}": ((2, 3, 4), pair(name)) for name in ("add", "sub", "mul", "div", "min", "max")},
    "quant.avg_pool": (
        (1, 3, 6, 7),
        call("quant.avg_pool", size=[3, 2], stride=[2, 2], padding=[1, 0, 1, 1], **SCALES),
    ),
    "quant.mean": ((2, 3, 4, 5), call("quant.mean", axes=[2, 3], squeeze=True, **SCALES)),
}
"""Operators on codes: from the input's to others, which leave as numbers."""
ELSEWHERE = {
    *("quant.quantize", "quant.dequantize"),  # every case of codes begins and ends with them
    "aten.safe_softmax",  # attention of folders has it
    *("quant.conv", "quant.matmul"),  # test_graph_to_plan_graphs draws them
    *("llm._scores", "llm._see", "llm._mix"),  # models in pieces, in test_graph_to_plan_models
    *("llm.positions", "llm.advance", "llm.remember"),  # a decoder with a cache, in test_graph_to_plan_models
}


def test_every_row_has_a_case() -> None:
    """What the table lists is tried here or in the file that is named."""
    assert set(ROWS) | set(CODES) | ELSEWHERE == set(TABLE)
    assert not (set(ROWS) | set(CODES)) & ELSEWHERE


def model_of(shape: tuple[int, ...], case: Case) -> Model:
    """A graph of one case."""
    drawing = Drawing(7)
    found = case(drawing, drawing.builder.input("x", F32, shape))
    return drawing.finish(*((found,) if isinstance(found, Tensor) else found))


@pytest.mark.parametrize("operator", ROWS)
def test_real(operator: str) -> None:
    """An operator on real numbers, within f16."""
    found = assert_close(model_of(*ROWS[operator]))
    assert not found.selection.kernels, "a kernel took the place of the row"


@pytest.mark.parametrize("operator", CODES)
def test_codes(operator: str) -> None:
    """An operator on codes, bit by bit."""
    shape, case = CODES[operator]

    def build(drawing: Drawing, x: Tensor) -> Tensor:
        codes = drawing.call("quant.quantize", x, scale=0.02, zero_point=3)
        found = case(drawing, codes)
        assert isinstance(found, Tensor)
        return drawing.call("quant.dequantize", found, scale=0.04, zero_point=-5)

    found = assert_equal(model_of(shape, build))
    assert not found.selection.kernels
