"""Calls of operators with drawn inputs, several of them in one graph, run by the reference and by kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base import dtype
from lamella.base.arrays import Array, numpy_dtype
from lamella.bridge.graph_to_kernels import KernelOptions, graph_to_kernels
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, tensors
from lamella.kernels.nodes import KernelGraph
from lamella.lang.skriptnd.nodes import Dtype
from tests.support.bridge.launch_lists import compile_lists
from tests.support.judges.harness import find
from tests.support.judges.registry import Given, Number

Told: TypeAlias = str | Number | None
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call of an operator: its inputs as they are told, its attributes."""

    operator: str
    types: tuple[str, ...]
    inputs: tuple[Told | list[Told], ...]
    attributes: Mapping[str, Given]


def call(operator: str, *inputs: Told | list[Told], **attributes: Given) -> Invocation:
    """A call: `"math.add<real>"`, inputs like `"f32 2 3 -1..1"` (type, shape, range), lists of them for packs."""
    name, _, types = operator.rstrip(">").partition("<")
    return Invocation(name, tuple(types.split(",")) if types else (), inputs, attributes)


def build(calls: Sequence[Invocation]) -> tuple[Model, dict[str, Array]]:
    """One graph with all calls of an operator, and arrays for its inputs."""
    definition, source = find(calls[0].operator)
    builder, fed, outputs = Builder(source, "G"), dict[str, Array](), list[Argument]()
    generic = [item.name for item in definition.operator.items("dtype") if isinstance(item, Dtype)]
    for number, item in enumerate(calls):
        given = [_give(builder, f"x{number}_{place}", told, fed) for place, told in enumerate(item.inputs)]
        elements = [dtype.find_in("skriptnd", name) for name in item.types]
        types = {name: found for name, found in zip(generic, elements, strict=False) if found is not None}
        written: dict[str, Any] = dict(item.attributes)
        outputs += builder.call_all(definition.name, *given, types=types, **written)
    return Model(builder.finish(*[item for output in outputs for item in tensors(output)]), source), fed


def _give(builder: Builder, name: str, told: Told | list[Told], fed: dict[str, Array]) -> Any:
    if isinstance(told, list):
        return tuple(_give(builder, f"{name}_{place}", item, fed) for place, item in enumerate(told))
    if not isinstance(told, str):
        return told
    fed[name] = draw(told, len(fed))
    element = dtype.find(told.split()[0])
    assert element is not None
    return builder.input(name, element, fed[name].shape)


def draw(told: str, seed: int) -> Array:
    """Random numbers of a type, a shape and a range that are told in words."""
    found = re.fullmatch(r"(\w+)((?: \d+)*)(?: (-?[\d.]+?)\.\.(-?[\d.]+))?", told)
    assert found is not None, told
    element, random = dtype.find(found[1]), np.random.default_rng(seed)
    assert element is not None, told
    shape = [int(word) for word in found[2].split()]
    low, high = float(found[3] or 0), float(found[4] or 1)
    numbers = np.asarray(random.uniform(low, high + (not element.is_float), shape))
    whole = numbers if element.is_float else np.floor(numbers)
    return whole.astype(numpy_dtype(element))


def natives(kernels: KernelGraph) -> set[str]:
    """The operators of a graph that no kernel computes though they have something to compute."""
    operations = [item for item in kernels.model.graph.operations() if not _is_empty(item.outputs)]
    return {item.operator for item in operations if kernels.key(item) not in kernels.calls}


def _is_empty(outputs: Sequence[Argument]) -> bool:
    return all(0 in item.shape for output in outputs for item in tensors(output))


Run: TypeAlias = Callable[..., Mapping[str, Array]]


def by_kernels(model: Model, wide: bool = False) -> Run:
    """A model whose operations run as machine code."""
    return machine_code(graph_to_kernels(model, options=KernelOptions(wide)), wide)


def machine_code(kernels: KernelGraph, wide: bool = False) -> Run:
    """Kernels that were lowered already, compiled."""
    return compile_lists(kernels, dtype="f64" if wide else "f32")


def by_reference(model: Model, wide: bool = False) -> Run:
    """A model on the reference."""
    return compile_model(model, dtype="f64" if wide else "f32")


def agree(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Two runs agree in types and shapes, and in numbers within the precision of their type."""
    assert found.keys() == expected.keys()
    for name, other in expected.items():
        array = found[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        allowed = TOLERANCE.get(other.dtype.name, 0.0)
        exact = array if allowed == 0 else array.astype(np.float64)
        judge = other if allowed == 0 else other.astype(np.float64)
        np.testing.assert_allclose(exact, judge, rtol=allowed, atol=allowed, err_msg=name)
