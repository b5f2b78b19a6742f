"""Operators that order, search and draw: sorting, extremes and their places, suppression, random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from lamella.base.dtype import BOOL, F32, F64, I32, I64, ElementType
from lamella.bridge.graph_to_onnx.arithmetic import cast
from lamella.bridge.graph_to_onnx.direct.call import Call, Row
from lamella.bridge.graph_to_onnx.emitter import Value, data_type
from lamella.bridge.graph_to_onnx.scope import Held

SORTED = (F32, F64, I32, I64)
"""Types that onnxruntime orders."""


def _ordered(call: Call) -> Value:
    """The first input in a type that can be ordered."""
    value = call.value()
    if value.element in SORTED:
        return value
    return cast(call.emitter, value, F32 if value.element.is_float else I64)


def _top_k(call: Call) -> list[Held] | None:
    axis = call.axis()
    if axis is None:
        return None
    value = _ordered(call)
    count = call.scope.reshape(call.scope.extent(call.output().shape[axis]), (1,))
    largest = int(bool(call.attribute("largest")))
    found, places = call.emitter.add_all(
        "TopK", (value, count), (value.element, I64), axis=axis, largest=largest, sorted=1
    )
    return [cast(call.emitter, found, call.element), places]


def _extreme(op_type: str) -> Row:
    def emit(call: Call) -> list[Held] | None:
        axis = call.axis()
        if axis is None:
            return None
        keep = 0 if call.attribute("squeeze") else 1
        return [call.emitter.add(op_type, (_ordered(call),), I64, axis=axis, keepdims=keep)]

    return emit


def _cumulate(call: Call) -> list[Held] | None:
    axis = call.axis("axis" if call.attribute("dim") is None else "dim")
    value = call.value()
    if axis is None or value.element not in SORTED:
        return None
    flags = {name: int(bool(call.attribute(name))) for name in ("exclusive", "reverse")}
    return call.alone("CumSum", value, call.emitter.number(axis, I64), **flags)


def _suppress(call: Call) -> list[Held] | None:
    emitter = call.emitter
    boxes, scores = (cast(emitter, call.value(place), F32) for place in (0, 1))
    most = call.scope.reshape(call.scope.extent(call.integer("max_outputs_per_class") or 0), (1,))
    overlap = emitter.constant(np.asarray([call.real("iou_threshold")], np.float32))
    least = call.attribute("score_threshold")
    bound = None if least is None else emitter.constant(np.asarray([least], np.float32))
    centred = int(call.attribute("box_format") == "CENTER")
    given = (boxes, scores, most, overlap, bound)
    return [emitter.add("NonMaxSuppression", given, I64, center_point_box=centred)]


# --- random numbers -------------------------------------------------------------------------------------------


def _drawn(call: Call, op_type: str, element: ElementType, **attributes: float) -> Value:
    """Random numbers in the shape of the output, which the run may tell."""
    emitter, shape = call.emitter, call.output().shape
    known = [item for item in shape if isinstance(item, int)]
    if len(known) == len(shape):
        return emitter.add(op_type, (), element, dtype=data_type(element), shape=known, **attributes)
    like = emitter.add("ConstantOfShape", (call.vector(shape),), F32)
    return emitter.add(f"{op_type}Like", (like,), element, dtype=data_type(element), **attributes)


def _drawing_type(call: Call) -> ElementType:
    return call.element if call.element in (F32, F64) else F32


def _uniform(call: Call) -> list[Held]:
    ends = {"low": call.real("min"), "high": call.real("max", 1.0)}
    found = _drawn(call, "RandomUniform", _drawing_type(call), **ends)
    if not call.element.is_float:
        found = call.emitter.add("Floor", (found,), found.element)
    return [cast(call.emitter, found, call.element)]


def _normal(call: Call) -> list[Held]:
    moments = {"mean": call.real("mean"), "scale": call.real("std", 1.0)}
    if moments["scale"] == 0:
        # onnxruntime ends the process at a deviation of 0.
        return [call.scope.filled(moments["mean"], call.element, call.output().shape)]
    return [cast(call.emitter, _drawn(call, "RandomNormal", _drawing_type(call), **moments), call.element)]


def _bernoulli(call: Call) -> list[Held]:
    drawn = _drawn(call, "RandomUniform", F32, low=0.0, high=1.0)
    return [call.emitter.add("Less", (drawn, call.emitter.number(call.real("prob"), F32)), BOOL)]


def _unique(call: Call) -> list[Held]:
    """Different elements in their order, where each element stands among them, and how often each occurs."""
    value = _ordered(call)
    kinds = (value.element, I64, I64, I64)
    found, _, inverse, counts = call.emitter.add_all("Unique", (value,), kinds, sorted=1)
    placed = call.scope.reshape(inverse, call.output(1).shape)
    return [cast(call.emitter, found, call.element), placed, counts]


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "algo.top_k": _top_k,
        "algo.nonmax_suppress": _suppress,
        "algo.unique": _unique,
        "math.argmax": _extreme("ArgMax"),
        "math.argmin": _extreme("ArgMin"),
        **dict.fromkeys(("math.cumsum", "aten.cumsum"), _cumulate),
        "rand.uniform": _uniform,
        "rand.normal": _normal,
        "rand.bernoulli": _bernoulli,
    }
)
