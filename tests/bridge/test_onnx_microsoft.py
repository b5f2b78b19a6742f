"""Operators of `com.microsoft` against onnxruntime, which defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamella.base.arrays import Array
from lamella.onnx import Backend

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper = pytest.importorskip("onnx.helper")

Inputs = dict[str, Array]


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(np.float32)


def _codes(*shape: int, signed: bool = False, seed: int = 0) -> Array:
    found = np.random.default_rng(seed).integers(0, 256, shape)
    return (found - 128).astype(np.int8) if signed else found.astype(np.uint8)


def _scalar(value: float) -> Array:
    return np.asarray(value, np.float32)


def _model(operator: str, inputs: Inputs, outputs: int, domain: str, attributes: dict[str, Any]) -> Any:
    """A model of one node; names that begin with `_` are left out."""
    names = ["" if name.startswith("_") else name for name in inputs]
    results = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(item.dtype), item.shape)
        for name, item in inputs.items()
        if not name.startswith("_")
    ]
    empty = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "one", ports, empty)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


W = "com.microsoft"
HALF = np.arange(8)[:, None] * np.arange(1, 3)[None] * 0.1
COS, SIN = np.cos(HALF).astype(np.float32), np.sin(HALF).astype(np.float32)
WIDE = (np.arange(8)[:, None] * np.arange(1, 9)[None] * 0.1).astype(np.float32)
NONE = np.zeros(0, np.float32)

CASES: dict[str, tuple[str, Inputs, int, dict[str, Any]]] = {
    "gelu": ("Gelu", {"x": _numbers(2, 5)}, 1, {}),
    "fast_gelu": ("FastGelu", {"x": _numbers(2, 5), "b": _numbers(5)}, 1, {}),
    "bias_gelu": ("BiasGelu", {"x": _numbers(2, 5), "b": _numbers(5)}, 1, {}),
    "quick_gelu": ("QuickGelu", {"x": _numbers(2, 5)}, 1, {"alpha": 1.5}),
    "fused_matmul": (
        "FusedMatMul",
        {"a": _numbers(2, 4, 3), "b": _numbers(2, 5, 4)},
        1,
        {"transA": 1, "transB": 1, "alpha": 0.5},
    ),
    "fused_conv": (
        "FusedConv",
        {"x": _numbers(1, 2, 5, 5), "w": _numbers(3, 2, 3, 3), "b": _numbers(3)},
        1,
        {"activation": "LeakyRelu", "activation_params": [0.2], "pads": [1, 1, 1, 1]},
    ),
    "fused_gemm": (
        "FusedGemm",
        {"a": _numbers(3, 4), "b": _numbers(4, 5), "c": _numbers(5)},
        1,
        {"activation": "Relu"},
    ),
    "skip_layer_norm": (
        "SkipLayerNormalization",
        {
            "x": _numbers(2, 3, 8),
            "s": _numbers(2, 3, 8, seed=1),
            "g": _numbers(8),
            "b": _numbers(8, seed=2),
            "c": _numbers(8, seed=3),
        },
        1,
        {"epsilon": 1e-5},
    ),
    "skip_simplified": (
        "SkipSimplifiedLayerNormalization",
        {"x": _numbers(2, 3, 8), "s": _numbers(2, 3, 8, seed=1), "g": _numbers(8)},
        1,
        {"epsilon": 1e-5},
    ),
    "embed": (
        "EmbedLayerNormalization",
        {
            "ids": np.array([[1, 2, 3], [0, 4, 5]], np.int32),
            "segments": np.array([[0, 0, 1], [0, 1, 1]], np.int32),
            "words": _numbers(6, 8),
            "places": _numbers(4, 8, seed=1),
            "kinds": _numbers(2, 8, seed=2),
            "gamma": _numbers(8),
            "beta": _numbers(8, seed=4),
        },
        2,
        {"epsilon": 1e-5},
    ),
    "attention": (
        "Attention",
        {"x": _numbers(2, 4, 8), "w": _numbers(8, 24), "b": _numbers(24)},
        1,
        {"num_heads": 2},
    ),
    "attention_mask": (
        "Attention",
        {
            "x": _numbers(2, 4, 8),
            "w": _numbers(8, 24),
            "b": _numbers(24),
            "m": np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32),
        },
        1,
        {"num_heads": 2},
    ),
    "attention_causal": (
        "Attention",
        {"x": _numbers(2, 4, 8), "w": _numbers(8, 24), "b": _numbers(24)},
        1,
        {"num_heads": 2, "unidirectional": 1},
    ),
    "attention_past": (
        "Attention",
        {
            "x": _numbers(2, 2, 8),
            "w": _numbers(8, 24),
            "b": _numbers(24),
            "_m": NONE,
            "past": _numbers(2, 2, 2, 3, 4),
        },
        2,
        {"num_heads": 2, "unidirectional": 1},
    ),
    "multi_head": (
        "MultiHeadAttention",
        {
            "q": _numbers(2, 3, 8),
            "k": _numbers(2, 5, 8, seed=1),
            "v": _numbers(2, 5, 8, seed=2),
            "b": _numbers(24),
        },
        1,
        {"num_heads": 2},
    ),
    "multi_head_bias": (
        "MultiHeadAttention",
        {
            "q": _numbers(1, 3, 8),
            "k": _numbers(1, 5, 8, seed=1),
            "v": _numbers(1, 5, 8, seed=2),
            "_b": NONE,
            "_m": NONE,
            "a": _numbers(1, 2, 3, 5),
        },
        1,
        {"num_heads": 2},
    ),
    "group_query": (
        "GroupQueryAttention",
        {
            "q": _numbers(2, 3, 32),
            "k": _numbers(2, 3, 16, seed=1),
            "v": _numbers(2, 3, 16, seed=2),
            "pk": np.zeros((2, 2, 0, 8), np.float32),
            "pv": np.zeros((2, 2, 0, 8), np.float32),
            "lengths": np.array([2, 2], np.int32),
            "total": np.asarray(3, np.int32),
        },
        3,
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "group_query_step": (
        "GroupQueryAttention",
        {
            "q": _numbers(1, 1, 64),
            "k": _numbers(1, 1, 32, seed=1),
            "v": _numbers(1, 1, 32, seed=2),
            "pk": _numbers(1, 2, 4, 16, seed=3),
            "pv": _numbers(1, 2, 4, 16, seed=4),
            "lengths": np.array([4], np.int32),
            "total": np.asarray(5, np.int32),
            "cos": np.cos(WIDE),
            "sin": np.sin(WIDE),
        },
        3,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "rotary": (
        "RotaryEmbedding",
        {"x": _numbers(1, 3, 8), "p": np.array([[0, 1, 2]], np.int64), "c": COS, "s": SIN},
        1,
        {},
    ),
    "rotary_interleaved": (
        "RotaryEmbedding",
        {"x": _numbers(1, 2, 3, 4), "p": np.array([2], np.int64), "c": COS, "s": SIN},
        1,
        {"interleaved": 1},
    ),
    "matmul_bits": (
        "MatMulNBits",
        {"x": _numbers(3, 32), "b": _codes(5, 2, 8), "s": _numbers(10) * 0.1, "z": _codes(5, seed=2)},
        1,
        {"K": 32, "N": 5, "bits": 4, "block_size": 16},
    ),
    "matmul_bits_symmetric": (
        "MatMulNBits",
        {"x": _numbers(3, 32), "b": _codes(5, 2, 8), "s": _numbers(10) * 0.1},
        1,
        {"K": 32, "N": 5, "bits": 4, "block_size": 16},
    ),
    "qlinear_add": (
        "QLinearAdd",
        {
            "a": _codes(2, 3),
            "as": _scalar(0.1),
            "az": np.asarray(100, np.uint8),
            "b": _codes(2, 3, seed=1),
            "bs": _scalar(0.2),
            "bz": np.asarray(90, np.uint8),
            "ys": _scalar(0.3),
            "yz": np.asarray(120, np.uint8),
        },
        1,
        {},
    ),
    "qlinear_mul": (
        "QLinearMul",
        {
            "a": _codes(2, 3),
            "as": _scalar(0.1),
            "az": np.asarray(100, np.uint8),
            "b": _codes(3, seed=1),
            "bs": _scalar(0.02),
            "bz": np.asarray(90, np.uint8),
            "ys": _scalar(0.3),
            "yz": np.asarray(120, np.uint8),
        },
        1,
        {},
    ),
    "qlinear_sigmoid": (
        "QLinearSigmoid",
        {
            "a": _codes(2, 3, signed=True),
            "as": _scalar(0.05),
            "az": np.asarray(3, np.int8),
            "ys": _scalar(1 / 256),
            "yz": np.asarray(-128, np.int8),
        },
        1,
        {},
    ),
    "qlinear_leaky": (
        "QLinearLeakyRelu",
        {
            "a": _codes(2, 3),
            "as": _scalar(0.05),
            "az": np.asarray(128, np.uint8),
            "ys": _scalar(0.04),
            "yz": np.asarray(30, np.uint8),
        },
        1,
        {"alpha": 0.1},
    ),
    "qlinear_global_pool": (
        "QLinearGlobalAveragePool",
        {
            "a": _codes(1, 2, 3, 3),
            "as": _scalar(0.05),
            "az": np.asarray(128, np.uint8),
            "ys": _scalar(0.04),
            "yz": np.asarray(30, np.uint8),
        },
        1,
        {},
    ),
    "qlinear_pool": (
        "QLinearAveragePool",
        {
            "a": _codes(1, 2, 4, 4),
            "as": _scalar(0.05),
            "az": np.asarray(128, np.uint8),
            "ys": _scalar(0.05),
            "yz": np.asarray(128, np.uint8),
        },
        1,
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "qlinear_pool_rounded_up": (
        "QLinearAveragePool",
        {
            "a": _codes(1, 2, 5, 5),
            "as": _scalar(0.05),
            "az": np.asarray(128, np.uint8),
            "ys": _scalar(0.05),
            "yz": np.asarray(128, np.uint8),
        },
        1,
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    ),
    "qlinear_pool_same": (
        "QLinearAveragePool",
        {
            "a": _codes(1, 2, 5, 5),
            "as": _scalar(0.05),
            "az": np.asarray(128, np.uint8),
            "ys": _scalar(0.05),
            "yz": np.asarray(128, np.uint8),
        },
        1,
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
    "qlinear_pool_padded": (
        "QLinearAveragePool",
        {
            "a": _codes(1, 2, 4, 5),
            "as": _scalar(0.05),
            "az": np.asarray(128, np.uint8),
            "ys": _scalar(0.05),
            "yz": np.asarray(128, np.uint8),
        },
        1,
        {
            "kernel_shape": [3, 3],
            "strides": [2, 2],
            "pads": [1, 1, 1, 1],
            "count_include_pad": 1,
            "ceil_mode": 1,
        },
    ),
    "qlinear_pool_last": (
        "QLinearAveragePool",
        {
            "a": _codes(1, 5, 4, 3),
            "as": _scalar(0.05),
            "az": np.asarray(128, np.uint8),
            "ys": _scalar(0.05),
            "yz": np.asarray(128, np.uint8),
        },
        1,
        {"kernel_shape": [2, 2], "strides": [1, 2], "channels_last": 1},
    ),
    "qlinear_concat": (
        "QLinearConcat",
        {
            "ys": _scalar(0.1),
            "yz": np.asarray(128, np.uint8),
            "a": _codes(2, 2),
            "as": _scalar(0.1),
            "az": np.asarray(120, np.uint8),
            "b": _codes(2, 3, seed=1),
            "bs": _scalar(0.08),
            "bz": np.asarray(128, np.uint8),
        },
        1,
        {"axis": 1},
    ),
    "matmul_integer_to_float": (
        "MatMulIntegerToFloat",
        {
            "a": _codes(3, 4),
            "b": _codes(4, 5, signed=True),
            "as": _scalar(0.1),
            "bs": _numbers(5) * 0.1,
            "az": np.asarray(100, np.uint8),
            "bz": np.zeros(5, np.int8),
            "c": _numbers(5),
        },
        1,
        {},
    ),
    "dynamic_matmul": (
        "DynamicQuantizeMatMul",
        {
            "a": _numbers(3, 4),
            "b": _codes(4, 5, signed=True),
            "bs": np.asarray([0.1], np.float32),
            "bz": np.asarray([3], np.int8),
        },
        1,
        {},
    ),
    "qattention": (
        "QAttention",
        {
            "x": _codes(1, 3, 8),
            "w": _codes(8, 24, signed=True),
            "b": _numbers(24),
            "xs": _scalar(0.02),
            "ws": _scalar(0.01),
            "_m": NONE,
            "xz": np.asarray(128, np.uint8),
            "wz": np.asarray(0, np.int8),
        },
        1,
        {"num_heads": 2},
    ),
    "qgemm": (
        "QGemm",
        {
            "a": _codes(3, 4),
            "as": _scalar(0.1),
            "az": np.asarray(100, np.uint8),
            "b": _codes(4, 5, signed=True),
            "bs": _scalar(0.1),
            "bz": np.asarray(3, np.int8),
            "c": np.arange(5, dtype=np.int32),
        },
        1,
        {"transB": 0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_what_onnxruntime_gives(name: str) -> None:
    operator, inputs, outputs, attributes = CASES[name]
    model = _model(operator, inputs, outputs, W, attributes)
    feed = {key: value for key, value in inputs.items() if not key.startswith("_")}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feed)
    found = Backend.run_model(model, feed)
    for left, right in zip(found, wanted, strict=False):
        assert left.dtype == right.dtype
        if right.dtype.kind == "f":
            np.testing.assert_allclose(left, right, rtol=2e-4, atol=2e-5)
        else:
            # onnxruntime rounds some of these through tables: one code of difference is its own.
            assert np.abs(left.astype(int) - right.astype(int)).max() <= 1
