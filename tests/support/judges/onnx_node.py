"""One ONNX node, run by onnxruntime."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

Array = npt.NDArray[Any]
OPSET = 18
# It has no types.
onnxruntime: Any = importlib.import_module("onnxruntime")


def run_node(
    operator: str, inputs: Sequence[Array | None], results: int = 1, **attributes: Any
) -> list[Array]:
    """The outputs of one node; an input of None is left out."""
    given = {f"x{index}": array for index, array in enumerate(inputs) if array is not None}
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(inputs)]
    outputs = [f"y{index}" for index in range(results)]
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    unknown = [onnx.ValueInfoProto(name=name) for name in outputs]
    node = helper.make_node(operator, names, outputs, **attributes)
    graph = helper.make_graph([node], "judge", declared, unknown)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return [np.asarray(item) for item in _session(model).run(None, given)]


def _session(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
