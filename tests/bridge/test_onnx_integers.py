"""Quantised ONNX files as integer graphs: what quantisers write, what we write, and what does not fit."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lamella
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.bridge.onnx.read import decode_model
from lamella.bridge.onnx_to_graph import onnx_to_graph
from lamella.graph.model import Model
from tests.graph.test_quantize import network
from tests.support.bridge.onnx_files import exported, run_onnx
from tests.support.graph.quantised import quantise

quantization: Any = importlib.import_module("onnxruntime.quantization")
SHAPE = (1, 2, 6, 6)


def _initializers(**arrays: Array | np.generic) -> list[TensorProto]:
    return [numpy_helper.from_array(np.asarray(item), name) for name, item in arrays.items()]


def _model(
    nodes: list[onnx.NodeProto], outputs: dict[str, int], **arrays: Array | np.generic
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        _initializers(**arrays),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def _float_network() -> onnx.ModelProto:
    """A convolution, a rectifier, a residual sum, a pool and a product, without quantisation."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Array:
        return np.asarray(rng.normal(0, 0.3, shape).astype(np.float32))

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"], pads=[1, 1, 1, 1], group=4),
        helper.make_node("Add", ["r", "d"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "m", "n"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    given = {"w": weights(4, 2, 3, 3), "b": weights(4), "v": weights(4, 1, 3, 3)}
    return _model(nodes, {"y": TensorProto.FLOAT}, **given, m=weights(5, 36), n=weights(5))


class _Samples(quantization.CalibrationDataReader):
    """A few drawn inputs."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._left: Iterator[dict[str, Array]] = iter(
            [{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(4)]
        )

    def get_next(self) -> dict[str, Array] | None:
        """The next input."""
        return next(self._left, None)


def _quantised(folder: Path, form: str, kind: str) -> Path:
    source, target = folder / "float.onnx", folder / f"{form}.onnx"
    onnx.save(_float_network(), source)
    quantization.quantize_static(
        source,
        target,
        _Samples(),
        quant_format=quantization.QuantFormat[form],
        per_channel=form == "QDQ",
        activation_type=quantization.QuantType[kind],
        weight_type=quantization.QuantType.QInt8,
    )
    return target


def _operators(model: Model) -> list[str]:
    return [item.operator for item in model.graph.operations()]


@pytest.mark.parametrize(("form", "kind"), [("QDQ", "QInt8"), ("QOperator", "QUInt8")])
def test_what_a_quantiser_writes(tmp_path: Path, form: str, kind: str) -> None:
    path = _quantised(tmp_path, form, kind)
    model = lamella.load(path)
    assert isinstance(model, Model)
    found = _operators(model)
    assert found.count("quant.conv") == 2
    assert {"quant.add", "quant.matmul", "nn.max_pool", "nn.softmax"} <= set(found)
    assert not {"nn.conv", "nn.linear", "math.add", "onnx.to_codes"} & set(found)
    x = {"x": np.random.default_rng(2).normal(size=SHAPE).astype(np.float32)}
    wanted = run_onnx(str(path), x)["y"]
    step = 1 / 255
    np.testing.assert_allclose(compile_model(model)(**x)["y"], wanted, atol=1.01 * step)


def test_our_own_files_come_back() -> None:
    quantised = quantise(network())
    proto = exported(quantised.found.model)
    again = _load(proto)
    views = {"layout.flatten": "layout.reshape"}
    assert _operators(again) == [views.get(item, item) for item in quantised.operators]
    wanted = compile_model(quantised.found.model)(**quantised.fed)["y"]
    np.testing.assert_allclose(compile_model(again)(**quantised.fed)["y"], wanted, atol=0.02)


def _load(proto: onnx.ModelProto) -> Model:
    return onnx_to_graph(decode_model(proto.SerializeToString()))


ENDS: dict[str, np.generic] = {
    "xs": np.float32(0.05),
    "xz": np.int8(3),
    "ys": np.float32(0.0913),
    "yz": np.int8(-5),
}


def _pair(x: str, scale: str, zero: str, y: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [x, scale, zero], [f"{y}q"]),
        helper.make_node("DequantizeLinear", [f"{y}q", scale, zero], [y]),
    ]


def test_numbers_that_others_read_stay_unrounded() -> None:
    """A tensor that has codes for one reader alone."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        *_pair("t", "xs", "xz", "d"),
        helper.make_node("Sigmoid", ["d"], ["s"]),
        *_pair("s", "ys", "yz", "e"),
        helper.make_node("Add", ["t", "e"], ["y"]),
    ]
    proto = _model(nodes, {"y": TensorProto.FLOAT}, **ENDS)
    x = {"x": np.random.default_rng(3).normal(size=SHAPE).astype(np.float32)}
    model = _load(proto)
    assert "quant.sigmoid" in _operators(model)
    np.testing.assert_allclose(compile_model(model)(**x)["y"], run_onnx(proto, x)["y"], atol=1e-6)


def test_codes_that_are_outputs_stay_codes() -> None:
    nodes = [
        *_pair("x", "xs", "xz", "d"),
        helper.make_node("Relu", ["d"], ["r"]),
        *_pair("r", "ys", "yz", "y"),
    ]
    proto = _model(nodes, {"y": TensorProto.FLOAT, "yq": TensorProto.INT8, "dq": TensorProto.INT8}, **ENDS)
    x = {"x": np.random.default_rng(4).normal(size=SHAPE).astype(np.float32)}
    found, wanted = compile_model(_load(proto))(**x), run_onnx(proto, x)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, atol=1e-6, err_msg=name)


def test_scales_of_the_run_stay_as_they_are_written() -> None:
    """A scale that is computed has no place in an attribute."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Div", ["m", "c"], ["s"]),
        helper.make_node("QuantizeLinear", ["x", "s", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "xz"], ["y"]),
    ]
    proto = _model(nodes, {"y": TensorProto.FLOAT}, c=np.float32(127.0), xz=np.int8(0))
    model = _load(proto)
    assert "onnx.to_codes" in _operators(model)
    x = {"x": np.random.default_rng(5).normal(size=SHAPE).astype(np.float32)}
    np.testing.assert_allclose(compile_model(model)(**x)["y"], run_onnx(proto, x)["y"], atol=1e-6)


@pytest.mark.parametrize("zero", [0, 128, 117])
def test_weights_of_bytes(zero: int) -> None:
    """Bytes around their middle are signed codes; around another place the product stays real."""
    rng = np.random.default_rng(6)
    nodes = [
        *_pair("x", "xs", "xz", "d"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        helper.make_node("Conv", ["d", "v"], ["c"]),
        *_pair("c", "ys", "yz", "y"),
    ]
    weight = rng.integers(0, 256, (3, 2, 3, 3)).astype(np.uint8)
    arrays: dict[str, Array | np.generic] = {"w": weight, "ws": np.float32(0.01), "wz": np.uint8(zero)}
    proto = _model(nodes, {"y": TensorProto.FLOAT}, **ENDS, **arrays)
    model = _load(proto)
    assert ("quant.conv" in _operators(model)) == (zero == 128)
    x = {"x": rng.normal(size=SHAPE).astype(np.float32)}
    np.testing.assert_allclose(compile_model(model)(**x)["y"], run_onnx(proto, x)["y"], atol=0.1001)
