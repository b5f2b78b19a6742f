"""Backward operators that stay written by hand give what is derived from the formulas of their forward operators."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.bridge.module_to_graph.calls import ports
from lamella.graph.gradient import differentiate
from lamella.graph.nodes import tensors
from lamella.lang.module.nodes import Primitive
from lamella.ops.gradient import declared_gradients
from lamella.ops.library import Library
from tests.support.bridge.operators import llm, mixtures, scans
from tests.support.bridge.operators.calls import Invocation, build, call
from tests.support.judges.harness import run
from tests.support.judges.registry import Given
from tests.support.lang.module.instances import read

TOLERANCE = 1e-10
SCOPE = read("module M():\n  params:\n    w: [1]\n").scope
LIBRARY = Library()
MOST_KEPT = 41
"""Backward operators that are written by hand; there were 83. Two turn rotations back, one solves a system."""
OTHERS = {
    "llm.reduce_max_backward": "gives everything to the first of equal maxima, which it is told",
    "llm.convert_dtype_backward": "converts between two types, one of which is that of the gradient",
    "llm.permute_backward": "a view",
    "llm.view_backward": "a view",
    "recurrent.solve_lower_backward": "nothing is derived: the formula reads what it computes; torch judges it",
}
"""Kept for what the derived one does not do."""


OFFSETS = ("i32 5 0..0",)


def kept() -> dict[str, Primitive]:
    """The primitives whose backward operator is written, one for each such operator."""
    found: dict[str, Primitive] = {}
    for name in SCOPE.library.primitives():
        declared = SCOPE.library.primitive(name)
        primitive = None if declared is None else declared.declaration
        operator = primitive.operator("backward") if isinstance(primitive, Primitive) else None
        if operator is not None and isinstance(primitive, Primitive):
            found.setdefault(operator, primitive)
    written = (name for name in found if "backward" in name and name not in {*declared_gradients(), *OTHERS})
    return {name: found[name] for name in written}


KEPT = kept()


def calls_of(primitive: Primitive) -> list[Invocation]:
    """Calls of the forward operator of a primitive, of real numbers that are not narrow."""
    calls = (*llm.CALLS, *mixtures.CALLS, *scans.CALLS)
    found = [item for item in calls if item.operator == primitive.operator("forward")]
    # Offsets of experts are not drawn so that they fit what was routed to them.
    return [item for item in found if "f16" not in str(item.inputs) and item.inputs[2:3] != OFFSETS][:3]


@pytest.mark.parametrize("operator", KEPT)
def test_written_and_derived_gradients_are_the_same(operator: str) -> None:
    primitive = KEPT[operator]
    assert primitive.forward is not None
    assert primitive.backward is not None
    calls = calls_of(primitive)
    assert calls, "no call of it"
    for item in calls:
        compare(operator, primitive, item)


def compare(operator: str, primitive: Primitive, item: Invocation) -> None:
    """One call, by both ways."""
    model, fed = build([item])
    wide = {name: array.astype("f8") if array.dtype.kind == "f" else array for name, array in fed.items()}
    outputs = compile_model(model, dtype="f64")(**wide)
    values = given_values(primitive, item, wide)
    forward, backward = primitive.forward, primitive.backward
    assert forward is not None
    assert backward is not None
    values |= dict(
        zip((port.name or "out" for port in forward.outputs or ()), outputs.values(), strict=False)
    )
    random, seeds = np.random.default_rng(3), dict[str, Array]()
    names = [port.name or "out" for port in forward.outputs or ()]
    taken = {port.name or "" for port in backward.inputs or ()}
    for name, (key, array) in zip(names, outputs.items(), strict=False):
        comes_back = array.dtype.kind == "f" and f"d_{name}" in taken
        seeds[key] = random.normal(size=array.shape) if comes_back else np.zeros(array.shape)
        values[f"d_{name}"] = seeds[key]
    definition = LIBRARY.find(operator)
    assert definition is not None
    own = {one.name for one in definition.operator.parameters("attrib")}
    attributes = {name: value for name, value in item.attributes.items() if name in own}
    written = run(operator, [values.get(port.name or "") for port in backward.inputs or ()], attributes)
    real = [one.name for given in model.graph.inputs for one in tensors(given) if one.element.is_float]
    back = differentiate(model, real)
    asked = {one.name for given in back.graph.inputs for one in tensors(given)}
    told = {f"d_{key}": seed for key, seed in seeds.items() if f"d_{key}" in asked}
    derived = dict(zip(real, compile_model(back, dtype="f64")(**wide, **told).values(), strict=True))
    places = {port.name or "in": f"x0_{place}" for place, port in enumerate(ports(primitive))}
    for port, mine in zip(backward.outputs or (), written, strict=False):
        name = places[(port.name or "").removeprefix("d_")]
        if name in derived:
            assert isinstance(mine, np.ndarray)
            np.testing.assert_allclose(mine, derived[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def given_values(primitive: Primitive, item: Invocation, fed: dict[str, Array]) -> dict[str, Array | None]:
    """The operands of a call by the names that its primitive gives them."""
    names = [port.name or "in" for port in ports(primitive)]
    return {name: fed.get(f"x0_{place}") for place, name in enumerate(names[: len(item.inputs)])}


WINDOW: dict[str, Given] = {
    "kernel_size": (2, 2),
    "stride": (2, 2),
    "padding": (0, 0),
    "dilation": (1, 1),
    "ceil_mode": False,
}
MAPS = ("f64 2 4 5 6 -1..1", "f64 6 2 3 3 -1..1", "f64 6 -1..1")
FILTERS: dict[str, Given] = {"groups": 2, "padding": (1, 1)}
ATEN: dict[str, tuple[Invocation, tuple[str, ...], dict[str, Given]]] = {
    "softmax_backward_data": (call("aten.softmax", "f64 3 5 -2..2", dim=1), ("d0", "y0"), {"dim": 1}),
    "log_softmax_backward_data": (call("aten.log_softmax", "f64 3 5 -2..2", dim=0), ("d0", "y0"), {"dim": 0}),
    "native_layer_norm_backward": (
        call("aten.native_layer_norm", "f64 3 4 -2..2", "f64 4", "f64 4", normalized_shape=(4,), eps=1e-5),
        ("d0", "x0", "y1", "y2", "x1", "x2"),
        {"normalized_shape": (4,)},
    ),
    "native_group_norm_backward": (
        call("aten.native_group_norm", "f64 2 4 3 -2..2", "f64 4", "f64 4", group=2, eps=1e-5),
        ("d0", "x0", "y1", "y2", "x1"),
        {"group": 2},
    ),
    "convolution_backward": (call("aten.convolution", *MAPS, **FILTERS), ("d0", "x0", "x1"), FILTERS),
    "max_pool2d_with_indices_backward": (
        call("aten.max_pool2d_with_indices", "f64 2 3 4 6 -1..1", **WINDOW),
        ("d0", "x0", "y1"),
        WINDOW,
    ),
    "adaptive_avg_pool2d_backward": (
        call("aten.adaptive_avg_pool2d", "f64 2 5 7 -1..1", output_size=(2, 3)),
        ("d0", "x0"),
        {},
    ),
    "elu_backward": (
        call("aten.elu", "f64 9 -2..2", alpha=1.5),
        ("d0", "x0"),
        {"alpha": 1.5, "scale": 1.0, "input_scale": 1.0, "is_result": False},
    ),
    "embedding_dense_backward": (
        call("aten.embedding", "f64 7 3", "i64 2 4 0..6"),
        ("d0", "x1"),
        {"num_weights": 7},
    ),
}
"""Calls of forward operators of ATen, and what their backward takes: gradients `d`, inputs `x`, outputs `y`."""


@pytest.mark.parametrize("name", ATEN)
def test_written_gradients_of_aten_are_the_derived_ones(name: str) -> None:
    item, taken, attributes = ATEN[name]
    model, fed = build([item])
    outputs = list(compile_model(model, dtype="f64")(**fed).values())
    random = np.random.default_rng(4)
    seeds = [random.normal(size=array.shape) for array in outputs]
    values = {f"x{place}": array for place, array in enumerate(fed.values())}
    values |= {f"y{place}": array for place, array in enumerate(outputs)}
    values |= {f"d{place}": array for place, array in enumerate(seeds)}
    written = run(f"aten.{name}", [values[one] for one in taken], attributes)
    real = [name for name, array in fed.items() if array.dtype.kind == "f"]
    back = differentiate(model, real)
    # What comes back to statistics is nothing: only the first output has a gradient there.
    asked = [one for given in back.graph.inputs for one in tensors(given) if one.name.startswith("d_")]
    told = {
        one.name: seed if place == 0 else np.zeros_like(seed)
        for place, (one, seed) in enumerate(zip(asked, seeds, strict=False))
    }
    derived = compile_model(back, dtype="f64")(**fed, **told).values()
    for mine, theirs in zip(written, derived, strict=False):
        assert isinstance(mine, np.ndarray)
        np.testing.assert_allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE)


def test_few_backward_operators_are_written() -> None:
    modules = ("aten", "llm", "mamba", "moe", "recurrent")
    names = [f"{module}.{name}" for module in modules for name in LIBRARY.operators(module)]
    written = [name for name in names if "backward" in name and name not in declared_gradients()]
    assert len(written) <= MOST_KEPT


@pytest.mark.parametrize("name", declared_gradients())
def test_declared_gradients_are_derived(name: str) -> None:
    row, found = declared_gradients()[name], LIBRARY.find_operator(name)
    assert found is not None, "its gradient cannot be derived"
    for side, names in (("input", row.inputs), ("output", row.outputs)):
        assert [item.name for item in found.parameters(side)] == [row.names.get(name, name) for name in names]
