"""The operators of `layer`, which hold their own variables, judged by torch and NumPy."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import Array, filled
from tests.support.judges.harness import near, refuse, run_text
from tests.support.judges.registry import Refusal, judged

# Emulated processors announce matrix tiles that they cannot run.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F

REAL = np.float32
GRAPH = (
    "import layer; graph G {{ @input {{ x: real[{shape}]; }} @output {{ y: real; }} "
    "@compose {{ y = l: {call}(x); }} }}"
)


def _run(call: str, x: Array, variables: dict[str, Array]) -> Array:
    text = GRAPH.format(shape=", ".join(map(str, x.shape)), call=call)
    return run_text(text, {"x": x}, {f"l.{name}": value for name, value in variables.items()})[0]["y"]


def _torch(function: Any, x: Array, variables: dict[str, Array], use_bias: bool, **options: Any) -> Array:
    weight, bias = (torch.from_numpy(variables[name].astype(np.float64)) for name in ("filter", "bias"))
    found = function(torch.from_numpy(x.astype(np.float64)), weight, bias if use_bias else None, **options)
    return np.asarray(found.numpy(), REAL)


@judged("torch", "layer.linear")
@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.booleans(), st.integers(0, 999))
def test_linear(batch: int, inner: int, outer: int, use_bias: bool, seed: int) -> None:
    x = filled((batch, inner), "float32", seed)
    variables = {
        "filter": filled((outer, inner), "float32", seed + 1),
        "bias": filled((outer,), "float32", seed + 2),
    }
    call = f"layer.linear{{channels={outer}, use_bias={str(use_bias).lower()}}}"
    near(_run(call, x, variables), _torch(F.linear, x, variables, use_bias))


@judged("torch", "layer.conv")
@given(st.integers(1, 2), st.integers(1, 3), st.integers(0, 2), st.booleans(), st.integers(0, 999))
def test_conv(stride: int, dilation: int, padding: int, use_bias: bool, seed: int) -> None:
    groups = 1 + seed % 2
    x = filled((2, 4, 7, 8), "float32", seed)
    variables = {
        "filter": filled((6, 4 // groups, 3, 2), "float32", seed + 1, -2, 2),
        "bias": filled((6,), "float32", seed + 2),
    }
    options = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
    written = ", ".join(f"{name}={value}" for name, value in options.items())
    call = f"layer.conv{{channels=6, size=[3, 2], use_bias={str(use_bias).lower()}, {written}}}"
    near(_run(call, x, variables), _torch(F.conv2d, x, variables, use_bias, **options))


@judged("torch", "layer.conv")
@pytest.mark.parametrize(("ceil", "expected"), [(False, 3), (True, 4)])
def test_conv_keeps_the_size_unless_said_otherwise(ceil: bool, expected: int) -> None:
    x = filled((1, 3, 7), "float32", 5)
    variables = {"filter": filled((3, 1, 3), "float32", 6), "bias": filled((3,), "float32", 7)}
    call = f"layer.conv{{channels=3, size=3, stride=2, groups=0, ceil_mode={str(ceil).lower()}}}"
    found = _run(call, x, variables)
    assert found.shape == (1, 3, expected)
    total = (expected - 1) * 2 + 3 - 7
    padded = np.pad(x, ((0, 0), (0, 0), (total // 2, total - total // 2)))
    near(found, _torch(F.conv1d, padded, variables, True, stride=2, groups=3))


@judged("torch", "layer.deconv")
@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.booleans(), st.integers(0, 999))
def test_deconv(stride: int, dilation: int, padding: int, use_bias: bool, seed: int) -> None:
    groups = 1 + seed % 2
    x = filled((2, 4, 3, 4), "float32", seed)
    variables = {
        "filter": filled((4, 3, 3, 2), "float32", seed + 1, -2, 2),
        "bias": filled((3 * groups,), "float32", seed + 2),
    }
    options = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
    written = ", ".join(f"{name}={value}" for name, value in options.items())
    call = f"layer.deconv{{channels=3, size=[3, 2], use_bias={str(use_bias).lower()}, {written}}}"
    near(_run(call, x, variables), _torch(F.conv_transpose2d, x, variables, use_bias, **options))


@judged("torch", "layer.deconv")
def test_deconv_of_a_given_size() -> None:
    x = filled((1, 2, 3), "float32", 8)
    variables = {"filter": filled((2, 3, 3), "float32", 9), "bias": filled((3,), "float32", 10)}
    found = _run("layer.deconv{channels=3, size=3, stride=2, padding=1, output_size=6}", x, variables)
    options = {"stride": 2, "padding": 1, "output_padding": 1}
    near(found, _torch(F.conv_transpose1d, x, variables, True, **options))


def _statistics(channels: int, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "running_mean": random.normal(size=channels).astype(REAL),
        "running_variance": random.uniform(0.5, 2, channels).astype(REAL),
        "bias": random.normal(size=channels).astype(REAL),
        "scale": random.normal(size=channels).astype(REAL),
    }


@judged("torch", "layer.batch_norm")
@given(st.integers(0, 3), st.booleans(), st.booleans(), st.integers(0, 999))
def test_batch_norm(rank: int, use_bias: bool, use_scale: bool, seed: int) -> None:
    x = filled((2, 3, *(2, 3, 2)[:rank]), "float32", seed)
    given_ = _statistics(3, seed)
    switches = f"use_bias={str(use_bias).lower()}, use_scale={str(use_scale).lower()}"
    found = _run(f"layer.batch_norm{{{switches}, epsilon=0.01}}", x, given_)
    wide = {name: torch.from_numpy(value.astype(np.float64)) for name, value in given_.items()}
    expected = F.batch_norm(
        torch.from_numpy(x.astype(np.float64)),
        wide["running_mean"],
        wide["running_variance"],
        wide["scale"] if use_scale else None,
        wide["bias"] if use_bias else None,
        eps=0.01,
    )
    near(found, np.asarray(expected.numpy(), REAL))


@judged("numpy", "layer.batch_norm")
def test_momentum_takes_the_statistics_of_the_batch_and_blends_them_in() -> None:
    x = filled((4, 3, 5), "float32", 3)
    state = _statistics(3, 4)
    text = GRAPH.format(shape="4, 3, 5", call="layer.batch_norm{momentum=0.25}")
    outputs, after = run_text(text, {"x": x}, {f"l.{name}": value for name, value in state.items()})
    mean, variance = x.mean((0, 2), np.float64), x.var((0, 2), np.float64)
    place = (slice(None), None)
    normal = (x - mean[place]) / np.sqrt(variance + 1e-5)[place]
    near(outputs["y"], (normal * state["scale"][place] + state["bias"][place]).astype(REAL))
    near(after["l.running_mean"], (0.75 * state["running_mean"] + 0.25 * mean).astype(REAL))
    near(after["l.running_variance"], (0.75 * state["running_variance"] + 0.25 * variance).astype(REAL))


@judged("numpy", "layer.batch_norm")
def test_statistics_stay_as_they_are_without_momentum() -> None:
    state = _statistics(3, 5)
    text = GRAPH.format(shape="4, 3", call="layer.batch_norm")
    x = filled((4, 3), "float32", 6)
    _, after = run_text(text, {"x": x}, {f"l.{name}": value for name, value in state.items()})
    near(after["l.running_mean"], state["running_mean"])
    near(after["l.running_variance"], state["running_variance"])


WINDOW: dict[str, int] = {"channels": 4, "size": 3}


REFUSALS = (
    Refusal("layer.linear", "'channels' must be positive", ((2, 3),), {"channels": 0}),
    *(
        Refusal(f"layer.{name}", fragment, ((2, 4, 5, 5),), WINDOW | {attribute: value})
        for name in ("conv", "deconv")
        for fragment, attribute, value in (
            ("'channels' must be positive", "channels", 0),
            ("'size' must be positive", "size", 0),
            ("'stride' must be positive", "stride", 0),
            ("'dilation' must be positive", "dilation", 0),
            ("'groups' must not be negative", "groups", -1),
            ("must be divisible by 'groups'", "groups", 3),
        )
    ),
    *(
        Refusal(f"layer.{name}", "the input must have channels", ((2, 0, 5),), WINDOW | {"groups": 0})
        for name in ("conv", "deconv")
    ),
    Refusal(
        "layer.conv",
        "'channels' must be divisible by the number of groups",
        ((2, 4, 5),),
        {"channels": 6, "size": 3, "groups": 4},
    ),
    Refusal(
        "layer.conv",
        "must not be smaller than the dilated filter",
        ((2, 4, 5),),
        {"channels": 4, "size": 9, "padding": 1},
    ),
    Refusal(
        "layer.deconv", "the output would be empty", ((2, 4, 1),), {"channels": 4, "size": 1, "padding": 1}
    ),
    Refusal("layer.batch_norm", "'epsilon' must not be negative", ((2, 3),), {"epsilon": -1.0}),
    Refusal("layer.batch_norm", "'momentum' must be at least 0", ((2, 3),), {"momentum": 1.5}),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
