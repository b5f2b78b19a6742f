"""Calls whose shapes only the run tells: one graph, judged by torch at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lamella.backend.reference import compile_model
from lamella.base.dim import Dim, add, floor_divide, mul, sub, symbol
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import AtenCall, Operand
from lamella.bridge.aten.table import find_schema
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Tensor, tensors
from tests.support.bridge.aten.judge import (
    agree,
    array_of,
    describe_again,
    element_of,
    flat,
    library,
    overload,
    torch,
)

N = symbol("n", 64, 1)
SIZES = (1, 4, 7)
Make = Callable[[Any], Mapping[str, Any]]


def half(n: Any) -> Any:
    """Half of a size, rounded down."""
    return floor_divide(n, 2) if isinstance(n, Dim) else n // 2


def times(n: Any, factor: int) -> Any:
    """A size several times."""
    return mul(n, factor) if isinstance(n, Dim) else n * factor


def more(n: Any, number: int) -> Any:
    """A size and some."""
    return add(n, number) if isinstance(n, Dim) else n + number


def rest(n: Any) -> Any:
    """The other half."""
    return sub(n, half(n)) if isinstance(n, Dim) else n - half(n)


X, Y, PLACES = "x", "y", "places"
CASES: tuple[tuple[str, Make], ...] = (
    ("view", lambda n: {"self": X, "size": (times(n, 2), 4)}),
    ("view", lambda n: {"self": X, "size": (-1, 2, n)}),
    ("reshape", lambda n: {"self": X, "shape": (n, 2, -1)}),
    ("expand", lambda n: {"self": Y, "size": (n, -1)}),
    ("expand", lambda n: {"self": Y, "size": (2, n, 8)}),
    ("repeat", lambda n: {"self": Y, "repeats": (n, 1)}),
    ("full", lambda n: {"size": (n, 3), "fill_value": 2.5}),
    ("full", lambda n: {"size": (2,), "fill_value": n}),
    ("zeros", lambda n: {"size": (more(n, 1),)}),
    ("new_ones", lambda n: {"self": X, "size": (n,), "dtype": torch.int64}),
    ("full_like", lambda n: {"self": X, "fill_value": 1, "dtype": torch.int64}),
    ("zeros_like", lambda n: {"self": X, "dtype": torch.bool}),
    ("arange", lambda n: {"end": n}),
    ("arange.start", lambda n: {"start": 1, "end": more(n, 1), "dtype": torch.float32}),
    ("arange.start_step", lambda n: {"start": 0, "end": times(n, 2), "step": 2}),
    ("slice.Tensor", lambda n: {"self": X, "dim": 0, "start": 0, "end": half(n)}),
    ("slice.Tensor", lambda n: {"self": X, "dim": 0, "start": half(n), "end": 2**63 - 1}),
    ("slice.Tensor", lambda n: {"self": X, "dim": 1, "start": -3, "step": 2}),
    ("select.int", lambda n: {"self": X, "dim": 0, "index": more(n, -1)}),
    ("split_with_sizes", lambda n: {"self": X, "split_sizes": (half(n), rest(n))}),
    ("split.Tensor", lambda n: {"self": X, "split_size": 3, "dim": 1}),
    ("split.Tensor", lambda n: {"self": X, "split_size": n, "dim": 0}),
    ("add.Tensor", lambda n: {"self": X, "other": n}),
    ("mul.Scalar", lambda n: {"self": X, "other": n}),
    ("div.Tensor", lambda n: {"self": PLACES, "other": n}),
    ("eq.Scalar", lambda n: {"self": PLACES, "other": n}),
    ("add.Tensor", lambda n: {"self": X, "other": Y}),
    ("cat", lambda n: {"tensors": (X, Y, X), "dim": 0}),
    ("stack", lambda n: {"tensors": (X, X), "dim": 1}),
    ("sum.dim_IntList", lambda n: {"self": X, "dim": (0,)}),
    ("mean.dim", lambda n: {"self": X, "dim": (0,), "keepdim": True}),
    ("softmax.int", lambda n: {"self": X, "dim": 0}),
    ("index.Tensor", lambda n: {"self": X, "indices": (PLACES,)}),
    ("index.Tensor", lambda n: {"self": X, "indices": (None, PLACES)}),
    ("index_select", lambda n: {"self": X, "dim": 1, "index": PLACES}),
    ("permute", lambda n: {"self": X, "dims": (1, 0)}),
    ("unsqueeze", lambda n: {"self": X, "dim": -1}),
    ("flatten.using_ints", lambda n: {"self": X}),
    ("cumsum", lambda n: {"self": X, "dim": 0}),
    ("argmax", lambda n: {"self": X, "dim": 0}),
    ("clamp", lambda n: {"self": X, "max": n}),
    ("triu", lambda n: {"self": X, "diagonal": 1}),
    ("layer_norm", lambda n: {"input": X, "normalized_shape": (8,)}),
    ("constant_pad_nd", lambda n: {"self": X, "pad": (0, 0, 1, half(n))}),
    ("matmul", lambda n: {"self": X, "other": "w"}),
    ("masked_fill.Scalar", lambda n: {"self": X, "mask": "mask", "value": n}),
    ("scalar_tensor", lambda n: {"s": n}),
)


def fed(n: int) -> dict[str, Any]:
    """The tensors at one size."""
    x = torch.arange(n * 8, dtype=torch.float32).remainder(5).reshape(n, 8) - 1.5
    y, w = torch.linspace(-1, 1, 8).reshape(1, 8), torch.linspace(-1, 1, 16).reshape(8, 2)
    return {X: x, Y: y, PLACES: torch.zeros(3, dtype=torch.int64), "w": w, "mask": x > 0}


def for_torch(value: Any, given: Mapping[str, Any]) -> Any:
    """What torch takes for an operand."""
    if isinstance(value, tuple):
        return [for_torch(item, given) for item in value]
    return given[value] if isinstance(value, str) else value


def for_us(value: Any, given: Mapping[str, Tensor]) -> Operand:
    """What a call passes for an operand."""
    if isinstance(value, tuple):
        return tuple(for_us(item, given) for item in value)
    if isinstance(value, torch.dtype):
        return element_of(value)
    found: Operand = given[value] if isinstance(value, str) else value
    return found


@pytest.mark.parametrize(
    ("name", "make"), CASES, ids=[f"{number}-{item[0]}" for number, item in enumerate(CASES)]
)
def test_one_graph_for_all_sizes(name: str, make: Make) -> None:
    schema = find_schema(f"aten.{name}")
    assert schema is not None
    builder = Builder(library(), "symbolic")
    inputs = {
        key: builder.input(
            key, element_of(item.dtype), [N if extent == 7 else extent for extent in item.shape]
        )
        for key, item in fed(7).items()
    }
    operands = {key: for_us(value, inputs) for key, value in make(N).items()}
    result = build_call(builder, AtenCall(schema, operands))
    graph = builder.finish(*[item for item in flat(result) if isinstance(item, Tensor)])
    model = compile_model(Model(graph, library()))
    for n in SIZES:
        given = fed(n)
        found = model(**{key: array_of(item) for key, item in given.items()})
        expected = overload(schema.name)(**{key: for_torch(item, given) for key, item in make(n).items()})
        wanted = expected if isinstance(expected, tuple | list) else [expected]
        names = [item.name for output in graph.outputs for item in tensors(output)]
        for key, other in zip(names, wanted, strict=True):
            agree(found[key], other)
    for node in graph.nodes:
        if isinstance(node, Operation):
            describe_again(node, {item.tensor.name: item for item in graph.constants})
