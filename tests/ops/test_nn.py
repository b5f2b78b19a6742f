"""Activations and normalisations of `nn`, judged by torch, onnxruntime and NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.judges.draws import FLOATS, Array, arrays, axes_of, axis_of, filled, shapes
from tests.support.judges.harness import near, one, refuse
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import Given, Refusal, judged

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F

Data = st.DataObject
Function = Callable[[torch.Tensor], torch.Tensor]

OFF_AXES = (
    ("'axes' must lie in", (2,)),
    ("'axes' must lie in", (-3,)),
    ("'axes' must name each axis once", (1, -1)),
)
REFUSALS = (
    Refusal("nn.relu", "'alpha' is a slope and must lie in [0, 1]", ((3,),), {"alpha": 1.5}),
    Refusal("nn.relu", "'max' must be above 0", ((3,),), {"max": 0.0}),
    Refusal("nn.prelu", "'axis' must lie in", ((3,), (3,))),
    Refusal("nn.prelu", "'alpha' has 2 items for 3 channels", ((2, 3), (2,))),
    Refusal("nn.thresholded_relu", "'theta' must not be negative", ((3,),), {"theta": -1.0}),
    Refusal("nn.gelu", "'approximate' must be one of", ((3,),), {"approximate": "ERF"}),
    Refusal("nn.batch_norm", "'epsilon' must not be negative", ((2, 3), (3,), (3,)), {"epsilon": -1.0}),
    Refusal("nn.batch_norm", "'channel_axis' must lie in", ((2, 3), (3,), (3,)), {"channel_axis": 2}),
    Refusal("nn.batch_norm", "the input has 2 channels; mean and variance have 3", ((3, 2), (3,), (3,))),
    Refusal("nn.mean_variance_norm", "'epsilon' must not be negative", ((2, 3, 4),), {"epsilon": -1.0}),
    Refusal("nn.mean_variance_norm", "'axes' must lie in", ((2, 3, 4),), {"axes": (3,)}),
    Refusal("nn.mean_variance_norm", "'axes' must name each axis once", ((2, 3, 4),), {"axes": (2, -1)}),
    *(
        Refusal("nn.local_response_norm", fragment, ((2, 3),), {"size": 1, "axes": axes})
        for fragment, axes in OFF_AXES
    ),
    *(
        Refusal(name, fragment, ((2, 3),), {"axes": axes})
        for name in ("nn.l1_norm", "nn.l2_norm", "nn.softmax")
        for fragment, axes in OFF_AXES
    ),
    *(
        Refusal(name, f"'{attribute}' must not be negative", ((2, 3),), {"axes": (1,), attribute: -1.0})
        for name in ("nn.l1_norm", "nn.l2_norm")
        for attribute in ("bias", "epsilon")
    ),
    *(
        Refusal(
            "nn.local_response_norm",
            f"'{attribute}' must not be negative",
            ((2, 3),),
            {"size": 1, attribute: -1.0},
        )
        for attribute in ("alpha", "beta", "bias")
    ),
    Refusal("nn.local_response_norm", "'size' must be at least 1", ((2, 3),), {"size": 0}),
)

FUNCTIONS: MappingProxyType[str, Function] = MappingProxyType(
    {
        "nn.relu": torch.relu,
        "nn.elu": F.elu,
        "nn.selu": lambda x: 1.05070102 * F.elu(x, 1.67326319),
        "nn.gelu": F.gelu,
        "nn.silu": F.silu,
        "nn.sigmoid": torch.sigmoid,
        "nn.softplus": lambda x: F.softplus(x, threshold=1e9),
        "nn.erf": torch.erf,
    }
)


def _wide(array: Array) -> torch.Tensor:
    return torch.tensor(array.astype(np.float64))


def _narrow(tensor: torch.Tensor, like: Array) -> Array:
    return np.asarray(tensor.numpy(), like.dtype)


@judged("torch", *FUNCTIONS)
@pytest.mark.parametrize("operator", FUNCTIONS)
@given(shapes(), st.data())
def test_functions(operator: str, shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, FLOATS))
    near(one(operator, array), _narrow(FUNCTIONS[operator](_wide(array)), array))


@judged("torch", "nn.sigmoid", "nn.softplus", "nn.silu", "nn.gelu", "nn.elu", "nn.erf")
@pytest.mark.parametrize("operator", ["nn.sigmoid", "nn.softplus", "nn.silu", "nn.gelu", "nn.elu", "nn.erf"])
def test_functions_far_out(operator: str) -> None:
    array = np.array([-1e30, -200, -89, -1e-30, 0, 1e-30, 89, 200, 1e30], np.float32)
    near(one(operator, array), _narrow(FUNCTIONS[operator](_wide(array)), array))


@judged("torch", "nn.relu", "nn.thresholded_relu", "nn.elu", "nn.selu")
@given(shapes(), st.sampled_from((0.0, 0.25, 0.5, 1.0)), st.data())
def test_parameters(shape: tuple[int, ...], alpha: float, data: Data) -> None:
    array = data.draw(arrays(shape, FLOATS))
    wide = _wide(array)
    near(one("nn.relu", array, alpha=alpha), _narrow(F.leaky_relu(wide, alpha), array))
    near(one("nn.relu", array, max=6.0), _narrow(F.relu6(wide), array))
    near(one("nn.thresholded_relu", array, theta=alpha), _narrow(F.threshold(wide, alpha, 0.0), array))
    near(one("nn.elu", array, alpha=alpha), _narrow(F.elu(wide, alpha), array))
    scaled = 2.0 * F.elu(wide, alpha)
    near(one("nn.selu", array, **{"alpha": alpha, "lambda": 2.0}), _narrow(scaled, array))


@judged("torch", "nn.gelu")
@given(shapes(), st.data())
def test_gelu_approximated(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, FLOATS))
    wide = _wide(array)
    near(one("nn.gelu", array, approximate="TANH"), _narrow(F.gelu(wide, approximate="tanh"), array))
    near(one("nn.gelu", array, approximate="SIGMOID"), _narrow(wide * torch.sigmoid(1.702 * wide), array))


@judged("numpy", "nn.prelu")
@given(shapes(1, 5), st.data())
def test_prelu(shape: tuple[int, ...], data: Data) -> None:
    array, axis = data.draw(arrays(shape, FLOATS)), data.draw(axis_of(len(shape)))
    alpha = data.draw(arrays((shape[axis],), (array.dtype.name,)))
    slopes = alpha.reshape(-1, *(1,) * (len(shape) - 1 - axis % len(shape)))
    near(one("nn.prelu", array, alpha, axis=axis), np.where(array < 0, slopes * array, array))


@judged("torch", "nn.batch_norm")
@given(shapes(1, 5, 1), st.tuples(st.booleans(), st.booleans()), st.data())
def test_batch_norm(shape: tuple[int, ...], parts: tuple[bool, bool], data: Data) -> None:
    array, axis = data.draw(arrays(shape, FLOATS[:2])), data.draw(axis_of(len(shape)))
    dtype, channels = array.dtype.name, shape[axis]
    mean, variance = filled((channels,), dtype, 1), np.abs(filled((channels,), dtype, 2))
    bias, scale = (
        filled((channels,), dtype, seed) if part else None for seed, part in zip((3, 4), parts, strict=True)
    )
    epsilon = data.draw(st.sampled_from((1e-5, 0.5)))
    moved = torch.movedim(_wide(array), axis, -1).reshape(-1, channels)
    found = F.batch_norm(
        moved,
        _wide(mean),
        _wide(variance),
        None if scale is None else _wide(scale),
        None if bias is None else _wide(bias),
        eps=epsilon,
    )
    placed = torch.movedim(found.reshape(torch.movedim(_wide(array), axis, -1).shape), -1, axis)
    near(
        one("nn.batch_norm", array, mean, variance, bias, scale, epsilon=epsilon, channel_axis=axis),
        _narrow(placed, array),
        1e-4 if dtype == "float32" else None,
    )


@judged("torch", "nn.mean_variance_norm")
@given(shapes(3, 5, 1), st.booleans())
def test_mean_variance_norm(shape: tuple[int, ...], scaled: bool) -> None:
    assume(np.prod(shape[2:]) > 1)
    array = filled(shape, "float64", 0)
    bias, scale = filled((shape[1],), "float64", 1), filled((shape[1],), "float64", 2)
    parts = (bias, scale) if scaled else ()
    weights = (torch.tensor(scale), torch.tensor(bias)) if scaled else (None, None)
    expected = F.instance_norm(torch.tensor(array), weight=weights[0], bias=weights[1], eps=1e-3)
    near(one("nn.mean_variance_norm", array, *parts, epsilon=1e-3), expected.numpy())


@judged("numpy", "nn.mean_variance_norm")
@given(shapes(2, 5, 1), st.data())
def test_mean_variance_norm_over_axes(shape: tuple[int, ...], data: Data) -> None:
    array, axes = data.draw(arrays(shape, ("float64",))), data.draw(axes_of(len(shape)))
    mean, variance = array.mean(axes, keepdims=True), array.var(axes, keepdims=True)
    near(
        one("nn.mean_variance_norm", array, axes=axes, epsilon=0.25),
        (array - mean) / np.sqrt(variance + 0.25),
    )


@judged("torch", "nn.local_response_norm")
@given(shapes(2, 4, 1, 6), st.integers(1, 5), st.data())
def test_local_response_norm(shape: tuple[int, ...], size: int, data: Data) -> None:
    array = data.draw(arrays(shape, FLOATS[:2]))
    settings = [data.draw(st.sampled_from((0.25, 0.5, 1.0, 2.0))) for _ in range(3)]
    assume(size % 2)
    three = _wide(array).reshape(*shape, *(1,) * max(0, 3 - len(shape)))
    expected = F.local_response_norm(three, size, *settings).reshape(shape)
    alpha, beta, bias = settings
    near(
        one("nn.local_response_norm", array, size=size, alpha=alpha, beta=beta, bias=bias),
        _narrow(expected, array),
    )


@judged("numpy", "nn.local_response_norm")
@given(shapes(1, 3, 1, 6), st.data())
def test_local_response_norm_over_axes(shape: tuple[int, ...], data: Data) -> None:
    """Windows of even sizes too, which reach further behind than before, along any axes."""
    array, axes = data.draw(arrays(shape, ("float64",))), data.draw(axes_of(len(shape)))
    size = tuple(data.draw(st.integers(1, 4)) for _ in axes)
    total = array**2
    for axis, window in zip(axes, size, strict=True):
        pads = [
            ((window - 1) // 2, window // 2) if item == axis % len(shape) else (0, 0)
            for item in range(len(shape))
        ]
        total = np.lib.stride_tricks.sliding_window_view(np.pad(total, pads), window, axis).sum(-1)
    expected = array / np.sqrt(2.0 + 0.5 * total / np.prod(size))
    near(one("nn.local_response_norm", array, axes=axes, size=size, alpha=0.5, bias=2.0), expected)


@judged("onnxruntime", "nn.local_response_norm")
@given(st.tuples(*(st.integers(1, 5),) * 4), st.sampled_from((1, 3, 5)))
def test_local_response_norm_of_onnx(shape: tuple[int, ...], size: int) -> None:
    array = filled(shape, "float32", 0)
    (expected,) = run_node("LRN", (array,), size=size, alpha=0.5, beta=0.75, bias=2.0)
    near(one("nn.local_response_norm", array, size=size, alpha=0.5, beta=0.75, bias=2.0), expected)


@judged("numpy", "nn.l1_norm", "nn.l2_norm")
@given(shapes(0, 4), st.data())
def test_norms(shape: tuple[int, ...], data: Data) -> None:
    array, axes = data.draw(arrays(shape, FLOATS[:2])), data.draw(axes_of(len(shape)))
    flags: dict[str, Given] = data.draw(
        st.sampled_from(({"bias": 0.5}, {"epsilon": 2.0}, {"bias": 0.25, "epsilon": 1.0}))
    )
    wide = array.astype(np.float64)
    lengths = {
        "nn.l1_norm": np.abs(wide).sum(axes, keepdims=True),
        "nn.l2_norm": np.sqrt((wide**2).sum(axes, keepdims=True)),
    }
    for operator, length in lengths.items():
        divisor = np.maximum(length + flags.get("bias", 0.0), flags.get("epsilon", 0.0))
        near(one(operator, array, axes=axes, **flags), (wide / divisor).astype(array.dtype))


@judged("onnxruntime", "nn.l1_norm", "nn.l2_norm")
@given(shapes(1, 4, 1), st.data())
def test_norms_of_onnx(shape: tuple[int, ...], data: Data) -> None:
    array, axis = (
        np.abs(data.draw(arrays(shape, ("float32",)))) + np.float32(0.25),
        data.draw(axis_of(len(shape))),
    )
    for p in (1, 2):
        (expected,) = run_node("LpNormalization", (array,), axis=axis, p=p)
        near(one(f"nn.l{p}_norm", array, axes=(axis,)), expected)


@judged("torch", "nn.softmax")
@given(shapes(1, 5, 1), st.data())
def test_softmax(shape: tuple[int, ...], data: Data) -> None:
    array, axis = data.draw(arrays(shape, FLOATS)), data.draw(axis_of(len(shape)))
    near(one("nn.softmax", array, axes=(axis,)), _narrow(torch.softmax(_wide(array), axis), array))


@judged("numpy", "nn.softmax")
@given(shapes(2, 4, 1), st.data())
def test_softmax_over_axes(shape: tuple[int, ...], data: Data) -> None:
    array, axes = data.draw(arrays(shape, ("float64",))), data.draw(axes_of(len(shape), 1))
    powers = np.exp(array)
    near(one("nn.softmax", array, axes=axes), powers / powers.sum(axes, keepdims=True))
    near(one("nn.softmax", array + 1e4, axes=axes), powers / powers.sum(axes, keepdims=True))


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
