"""ONNX files under their judges: the checker with full shape inference, then onnxruntime."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from lamella.base.arrays import Array
from lamella.bridge.graph_to_onnx import graph_to_onnx
from lamella.bridge.onnx.nodes import DataType
from lamella.bridge.onnx.write import encode_model
from lamella.graph.model import Model

COUNTER = """import math;
graph Counter {
    @input { x: real[3]; }
    @variable { total: real[3]; weight: real[3]; }
    @output { y: real[3]; }
    @compose {
        scaled = math.mul(x, weight);
        y = math.add(scaled, total);
    }
    @update { total = y; }
}
"""
"""A graph with a state, which leaves as an input and an output."""

# It has no types.
onnxruntime: Any = importlib.import_module("onnxruntime")
NARROW: Mapping[int, tuple[Any, Any]] = {
    DataType.BFLOAT16: (ml_dtypes.bfloat16, np.uint16),
    DataType.FLOAT8E4M3FN: (ml_dtypes.float8_e4m3fn, np.uint8),
    DataType.FLOAT8E4M3FNUZ: (ml_dtypes.float8_e4m3fnuz, np.uint8),
    DataType.FLOAT8E5M2: (ml_dtypes.float8_e5m2, np.uint8),
    DataType.FLOAT8E5M2FNUZ: (ml_dtypes.float8_e5m2fnuz, np.uint8),
}
"""Types that onnxruntime takes and gives as their bits."""


def exported(model: Model) -> onnx.ModelProto:
    """A graph as an ONNX model that the checker accepts."""
    found = onnx.load_model_from_string(encode_model(graph_to_onnx(model)))
    onnx.checker.check_model(found, full_check=True)
    return found


def run_onnx(model: onnx.ModelProto | str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a model or a file in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    given = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    graph = (onnx.load(model, load_external_data=False) if isinstance(model, str) else model).graph
    types = {item.name: item.type.tensor_type.elem_type for item in (*graph.input, *graph.output)}
    names = [item.name for item in session.get_outputs()]
    asked = [item.name for item in (*session.get_inputs(), *session.get_overridable_initializers())]
    fed = {name: _given(inputs[name], types[name]) for name in asked if name in inputs}
    results = session.run_with_ort_values(names, fed)
    return {name: _taken(item, types[name]) for name, item in zip(names, results, strict=True)}


def _given(array: Array, kind: int) -> Any:
    array = np.asarray(array, order="C")
    if kind not in NARROW:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    own, bits = NARROW[kind]
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.astype(own).view(bits), kind)


def _taken(value: Any, kind: int) -> Array:
    if kind not in NARROW:
        return np.asarray(value.numpy())
    own, bits = NARROW[kind]
    shape = tuple(value.shape())
    size = int(np.prod(shape)) * np.dtype(bits).itemsize
    data = bytes((ctypes.c_char * size).from_address(value.data_ptr())) if size else b""
    return np.asarray(np.frombuffer(data, bits).view(own).reshape(shape))


def largest_difference(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> float:
    """The largest difference of any number; infinite where names or shapes differ."""
    if found.keys() != wanted.keys() or any(found[name].shape != item.shape for name, item in wanted.items()):
        return float("inf")
    pairs = [(found[name].astype(np.float64), np.asarray(item, np.float64)) for name, item in wanted.items()]
    return max((float(np.abs(left - right).max()) for left, right in pairs if right.size), default=0.0)
