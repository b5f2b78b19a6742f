"""Calls of ATen operations judged by torch: built into a graph, run by the reference, described and built again."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lamella.backend.reference import compile_model
from lamella.base.arrays import element_type_of
from lamella.base.dtype import ElementType, find_in, name_in
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.describe import describe
from lamella.bridge.aten.nodes import AtenCall, Operand, Result
from lamella.bridge.aten.table import find_schema
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Graph, Operation, Tensor, tensors
from lamella.ops.library import Library

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

__all__ = (
    "ROUGH",
    "Judged",
    "agree",
    "array_of",
    "describe_again",
    "element_of",
    "flat",
    "judge",
    "library",
    "overload",
    "shape_of",
    "torch",
)

Array: TypeAlias = npt.NDArray[Any]
Given: TypeAlias = Any
"""What torch takes: tensors, numbers, words, dtypes, lists of them."""

TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 4e-2}
ROUGH = {"aten.hardsigmoid_backward.default": 1e-6}
"""What torch computes with constants of 32 bits whatever the type."""


@functools.cache
def library() -> Library:
    """The shipped library, read once."""
    return Library()


def array_of(tensor: Any) -> Array:
    """The numbers of a torch tensor."""
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.contiguous().view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(tensor.numpy())


def element_of(dtype: Any) -> ElementType:
    """Our element type for one of torch's."""
    found = find_in("nac", str(dtype).removeprefix("torch."))
    assert found is not None, dtype
    return found


def torch_type(element: ElementType) -> Any:
    """Torch's type for one of ours."""
    return getattr(torch, name_in("nac", element) or "float32")


def overload(name: str) -> Any:
    """The operation of torch that a schema is of."""
    _, stem, kind = name.split(".")
    return getattr(getattr(torch.ops.aten, stem), kind)


class Judged:
    """One call, with what torch gives for it."""

    def __init__(self, name: str, given: Mapping[str, Given]) -> None:
        self.builder = Builder(library(), "judged")
        self.fed: dict[str, Array] = {}
        schema = find_schema(name)
        assert schema is not None, name
        operands = {key: self._operand(key, value) for key, value in given.items()}
        self.result = build_call(self.builder, AtenCall(schema, operands))

    def _operand(self, name: str, value: Given) -> Operand:
        if isinstance(value, torch.Tensor):
            array = array_of(value)
            element = element_type_of(array.dtype)
            assert element is not None
            tensor = self.builder.input(name, element, array.shape)
            self.fed[tensor.name] = array
            return tensor
        if isinstance(value, torch.dtype):
            return element_of(value)
        if isinstance(value, list):
            return tuple(self._operand(f"{name}{place}", item) for place, item in enumerate(value))
        assert value is None or isinstance(value, int | float | str)
        return value

    def run(self) -> tuple[Graph, dict[str, Array]]:
        """The graph, and its results by the names that they have in it."""
        found = [item for item in flat(self.result) if isinstance(item, Tensor)]
        graph = self.builder.finish(*found)
        outputs = compile_model(Model(graph, library()))(**self.fed)
        names = [item.name for output in graph.outputs for item in tensors(output)]
        return graph, {item.name: outputs[name] for item, name in zip(found, names, strict=True)}


def flat(result: Result) -> list[Tensor | object]:
    """The results of a tuple, one after another."""
    if isinstance(result, tuple):
        return [item for part in result for item in flat(part)]
    return [result]


def judge(name: str, **given: Given) -> bool:
    """See that a call gives what torch gives, but for what is not asked for; False where torch refuses it."""
    try:
        expected = overload(name)(**{key: _copy(value) for key, value in given.items()})
    except (RuntimeError, IndexError, TypeError, NotImplementedError, ValueError):
        return False
    judged = Judged(name, given)
    graph, found = judged.run()
    wanted = expected if isinstance(expected, tuple | list) else [expected]
    results = flat(judged.result)
    assert len(results) == len(wanted), (results, wanted)
    for result, other in zip(results, wanted, strict=True):
        if isinstance(result, Tensor) and other is not None:
            assert result.element == element_of(other.dtype), (result, other.dtype)
            agree(
                found[result.name],
                torch.zeros_like(other) if "empty" in name else other,
                ROUGH.get(name, 0.0),
            )
    for node in graph.nodes:
        if isinstance(node, Operation):
            describe_again(node, {item.tensor.name: item for item in graph.constants})
    return True


def _copy(value: Given) -> Given:
    return value.clone() if isinstance(value, torch.Tensor) else value


def agree(actual: Array, tensor: Any, rough: float = 0.0) -> None:
    """See that an array has the shape of a tensor and, within the precision of its type, the same numbers."""
    expected = array_of(tensor)
    assert actual.shape == expected.shape
    allowed = max(TOLERANCE.get(expected.dtype.name, 0.0), rough)
    if allowed:
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=allowed, atol=allowed)


def describe_again(operation: Operation, constants: Mapping[str, Constant]) -> None:
    """See that the call which describes an operation makes an equal one."""
    call = describe(operation, constants)
    if not operation.operator.startswith("aten."):
        assert call is None
        return
    assert call is not None, operation
    _keep_order(call)
    builder = Builder(library(), "again")
    build_call(builder, call)
    found = [node for node in builder.finish().nodes if isinstance(node, Operation)]
    assert len(found) == 1, (operation, call, found)
    assert shape_of(found[0]) == shape_of(operation), call


def _keep_order(call: AtenCall) -> None:
    """Operands stand in the order of the schema, and positional ones have no gaps."""
    names = [item.name for item in call.schema.parameters]
    assert list(call.operands) == [name for name in names if name in call.operands]
    positional = [item.name for item in call.schema.parameters if not item.keyword]
    given = [name for name in positional if name in call.operands]
    assert given == positional[: len(given)]


def shape_of(operation: Operation) -> object:
    """An operation without the names of its tensors."""
    return (
        operation.operator,
        _types(operation.inputs),
        _types(operation.outputs),
        operation.attributes,
        operation.types,
    )


def _types(arguments: Sequence[Argument]) -> list[object]:
    """Elements and shapes; an extent that only the run tells is called after its tensor."""
    known = [[(item.element, item.shape) for item in tensors(argument)] for argument in arguments]
    return [
        [
            (element, [extent if isinstance(extent, int) else "open" for extent in shape])
            for element, shape in row
        ]
        for row in known
    ]
