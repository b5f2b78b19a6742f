"""Judges of the float opcodes: torch in double precision."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from tests.support.backend.npu.drawing import Case

# Emulated processors announce matrix tiles that they cannot run.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F
from torch import Tensor

Judge: TypeAlias = Callable[[Case], Tensor]


def inputs(case: Case) -> list[Tensor]:
    """The operands as doubles."""
    return [torch.from_numpy(item.array.astype(np.float64)) for item in case.inputs]


def _integers(case: Case, name: str) -> list[int]:
    value = case.attributes[name]
    assert isinstance(value, tuple)
    return list(value)


def _number(case: Case, name: str) -> float:
    value = case.attributes[name]
    assert isinstance(value, int | float)
    return value


def _flag(case: Case) -> bool:
    return bool(case.attributes["keepdims"])


ELEMENTS: Mapping[str, Callable[..., Tensor]] = {
    **{"relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp, "log": torch.log},
    **{"sqrt": torch.sqrt, "abs": torch.abs, "neg": torch.neg, "gelu": F.gelu, "silu": F.silu},
    **{"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div},
    **{"min": torch.minimum, "max": torch.maximum, "pow": torch.pow},
}


def elements(case: Case) -> Tensor:
    """An elementwise function."""
    if case.opcode == "leaky_relu":
        return F.leaky_relu(inputs(case)[0], _number(case, "alpha"))
    if case.opcode == "clamp":
        return torch.clamp(inputs(case)[0], _number(case, "min_val"), _number(case, "max_val"))
    return ELEMENTS[case.opcode](*inputs(case))


def product(case: Case) -> Tensor:
    """A matrix product and its bias."""
    left, right, *bias = inputs(case)
    return left @ right + (bias[0] if bias else 0.0)


def _padded(case: Case, x: Tensor, value: float) -> Tensor:
    """Channels first, padded: torch counts pads from the last axis."""
    rank = x.ndim - 2
    pads = _integers(case, "pads")
    pairs = [pads[i + side * rank] for i in reversed(range(rank)) for side in (0, 1)]
    return F.pad(x.movedim(-1, 1), pairs, value=value)


def convolution(case: Case) -> Tensor:
    """A convolution, its axes reordered."""
    x, w, *bias = inputs(case)
    function = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim]
    weights = w.movedim(-1, 0).movedim(-1, 1)
    groups = x.shape[-1] // w.shape[-2]
    found = function(
        _padded(case, x, 0.0),
        weights,
        bias[0] if bias else None,
        _integers(case, "strides"),
        0,
        _integers(case, "dilations"),
        groups,
    )
    return found.movedim(1, -1)


def pool(case: Case) -> Tensor:
    """The maximum, or the sum divided by the number of real elements."""
    (x,) = inputs(case)
    kernel, strides = _integers(case, "kernel_shape"), _integers(case, "strides")
    if case.opcode == "maxpool":
        return F.max_pool2d(_padded(case, x, -torch.inf), kernel, strides).movedim(1, -1)
    sums, counts = (
        F.avg_pool2d(_padded(case, item, 0.0), kernel, strides, divisor_override=1)
        for item in (x, torch.ones_like(x))
    )
    return (sums / counts.clamp(min=1)).movedim(1, -1)


def norm(case: Case) -> Tensor:
    """Moments along the axis, then scale and bias."""
    x, *affine = inputs(case)
    axis = int(_number(case, "axis"))
    scale, bias = (*(item.reshape(_along(x, axis)) for item in affine), 1.0, 0.0)[:2]
    if len(affine) < 2:
        bias = 0.0
    if case.opcode == "layernorm":
        variance, mean = torch.var_mean(x, axis, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(variance + _number(case, "epsilon")) * scale + bias
    return x / torch.sqrt((x * x).mean(axis, keepdim=True) + _number(case, "epsilon")) * scale


def _along(x: Tensor, axis: int) -> list[int]:
    return [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]


def soft(case: Case) -> Tensor:
    """The two softmaxes."""
    function = torch.softmax if case.opcode == "softmax" else torch.log_softmax
    return function(inputs(case)[0], int(_number(case, "axis")))


def reduction(case: Case) -> Tensor:
    """Sum and extremes along axes."""
    function = {"reduce_sum": torch.sum, "reduce_max": torch.amax, "reduce_min": torch.amin}[case.opcode]
    return function(inputs(case)[0], _integers(case, "axes"), _flag(case))
