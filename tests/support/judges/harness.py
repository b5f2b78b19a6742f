"""The call of one operator, bound by the engine and run by the reference, and how its results are compared.

An operator is called by its qualified name; `newer/math.argmin_nd` is that of the newer draft. Inputs are arrays,
tuples of arrays for packs, numbers for scalar arguments, or None where an optional one is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from lamella.backend.reference import compile_model
from lamella.base import arrays, dtype
from lamella.base.errors import Found
from lamella.base.source import Source
from lamella.graph.build import Builder
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Tensor, tensors
from lamella.lang.skriptnd.nodes import Dtype
from lamella.ops.instance import Definition
from lamella.ops.instantiate import instantiate
from lamella.ops.library import Library
from tests.support.judges.registry import Given, Number, Refusal

Array = npt.NDArray[Any]
Input: TypeAlias = Array | tuple[Array, ...] | Number | None
Result: TypeAlias = Array | tuple[Array, ...]

TOLERANCE = {"float64": 1e-9, "float32": 1e-5, "float16": 2e-3}


@functools.cache
def library(dialect: str, texts: bool = False) -> Library:
    """The shipped library of a dialect, read once; texts are loaded into one of their own."""
    return Library(dialect)


def find(operator: str) -> tuple[Definition, Library]:
    """An operator of the library and the library it stands in."""
    name = operator.removeprefix("newer/")
    source = library("specification" if name == operator else "newer")
    definition = source.find(name)
    assert definition is not None, operator
    return definition, source


def one(operator: str, *inputs: Input, **attributes: Given) -> Array:
    """The only output of a call."""
    (result,) = run(operator, inputs, attributes)
    assert isinstance(result, np.ndarray)
    return result


def pack(operator: str, *inputs: Input, **attributes: Given) -> tuple[Array, ...]:
    """The only output of a call, a pack."""
    (result,) = run(operator, inputs, attributes)
    assert isinstance(result, tuple)
    return result


def run(
    operator: str,
    inputs: Sequence[Input],
    attributes: Mapping[str, Given] = {},
    types: Sequence[str] = (),
    compute: str = "f32",
    seed: int = 0,
) -> tuple[Result, ...]:
    """All outputs of a call; `types` are the operator's generic types in their order."""
    definition, source = find(operator)
    builder, fed = Builder(source, "judged"), dict[str, Array]()
    given = [_give(builder, f"x{place}", value, fed) for place, value in enumerate(inputs)]
    written: dict[str, Any] = dict(attributes)
    outputs = builder.call_all(definition.name, *given, types=_types(definition, types), **written)
    flat = [item for output in outputs for item in tensors(output)]
    graph = builder.finish(*flat)
    found = compile_model(Model(graph, source), dtype=compute, seed=seed)(**fed)
    values = iter([found[tensor.name] for output in graph.outputs for tensor in tensors(output)])
    return tuple(_collect(output, values) for output in outputs)


def _give(builder: Builder, name: str, value: Input, fed: dict[str, Array]) -> Argument | Number:
    """An input of the graph for each array, which is fed to it; numbers stay what they are."""
    if isinstance(value, tuple):
        items = enumerate(value)
        return tuple(_feed(builder, f"{name}_{index}", item, fed) for index, item in items)
    return _feed(builder, name, value, fed) if isinstance(value, np.ndarray) else value


def _feed(builder: Builder, name: str, array: Array, fed: dict[str, Array]) -> Tensor:
    element = arrays.element_type_of(array.dtype)
    assert element is not None
    fed[name] = array
    return builder.input(name, element, array.shape)


def _types(definition: Definition, names: Sequence[str]) -> dict[str, dtype.ElementType]:
    generic = [item.name for item in definition.operator.items("dtype") if isinstance(item, Dtype)]
    found = {name: dtype.find_in("skriptnd", given) for name, given in zip(generic, names, strict=False)}
    return {name: element for name, element in found.items() if element is not None}


def _collect(output: Argument, values: Any) -> Result:
    if isinstance(output, tuple):
        return tuple(next(values) for _ in output)
    result: Array = next(values)
    return result


def compose_text(text: str, data: Mapping[str, Array] = {}) -> Model:
    """The model of a graph that is written out."""
    source = library("specification", texts=True)
    module = source.load(Source("main.sknd", text))
    assert module.sound, module.findings
    graph, findings = compose(module)
    assert graph is not None, findings
    return Model(graph, source, data)


def run_text(
    text: str, inputs: Mapping[str, Array], data: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The outputs of a graph that is written out, and its variables after the run."""
    executable = compile_model(compose_text(text, data))
    return executable(**inputs), dict(executable.state)


def refuse(refusal: Refusal) -> None:
    """See that an operator refuses a call, and says why."""
    definition, source = find(refusal.operator)
    elements = [dtype.find(name) for name in refusal.element.split()]

    def tensor(name: str, shape: tuple[int, ...], place: int) -> Tensor:
        element = elements[min(place, len(elements) - 1)]
        assert element is not None
        return Tensor(name, element, shape)

    inputs = [
        tensor(f"x{place}", item, place)
        if isinstance(item, tuple)
        else tuple(tensor(f"x{place}_{index}", shape, place) for index, shape in enumerate(item))
        for place, item in enumerate(refusal.inputs)
    ]
    with pytest.raises(Found) as caught:
        instantiate(source, definition, inputs, refusal.attributes, _types(definition, refusal.types))
    messages = [item.message for item in caught.value.findings]
    assert any(refusal.fragment in message for message in messages), messages


def same(actual: Array, expected: Array) -> None:
    """See that two arrays are equal to the last bit, types and shapes included."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual, expected)


def near(actual: Array, expected: Array, tolerance: float | None = None) -> None:
    """See that two arrays agree within the precision of their type."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    allowed = TOLERANCE.get(actual.dtype.name, 0.0) if tolerance is None else tolerance
    np.testing.assert_allclose(actual, expected, rtol=allowed, atol=allowed)
