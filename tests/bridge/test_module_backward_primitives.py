"""Every primitive declares a backward that its operator has, in names that its forward has."""

from __future__ import annotations

import pytest

from lamella.bridge.module_to_graph.calls import ports
from lamella.lang.module.nodes import Primitive
from lamella.ops.library import Library
from tests.support.lang.module.instances import read

SCOPE = read("module M():\n  params:\n    w: [1]\n").scope
OPERATORS = Library()


def primitives() -> dict[str, Primitive]:
    """The primitives that have a backward."""
    found = {name: SCOPE.library.primitive(name) for name in SCOPE.library.primitives()}
    return {
        name: declared.declaration
        for name, declared in found.items()
        if declared is not None
        and isinstance(declared.declaration, Primitive)
        and declared.declaration.backward is not None
    }


PRIMITIVES = primitives()


@pytest.mark.parametrize("name", PRIMITIVES)
def test_backwards_are_written_in_the_names_of_the_forward(name: str) -> None:
    primitive = PRIMITIVES[name]
    assert primitive.backward is not None
    assert primitive.forward is not None
    inputs = {port.name or "in" for port in ports(primitive)}
    outputs = {port.name or "out" for port in primitive.forward.outputs or ()}
    taken = [port.name or "" for port in primitive.backward.inputs or ()]
    given = [port.name or "" for port in primitive.backward.outputs or ()]
    assert {f"d_{item}" for item in outputs} & set(taken), "nothing comes back"
    assert all(item in inputs | outputs or item.removeprefix("d_") in outputs for item in taken)
    assert given
    assert all(item.startswith("d_") and item.removeprefix("d_") in inputs for item in given)
    saved = {item.text for item in primitive.save.items} if primitive.save is not None else set()
    assert saved <= inputs | outputs
    assert saved - {port.name for port in ports(primitive)} <= set(taken), "saved, but not taken"


@pytest.mark.parametrize("name", PRIMITIVES)
def test_backward_operators_take_what_is_declared(name: str) -> None:
    primitive = PRIMITIVES[name]
    operator = primitive.operator("backward")
    assert operator is not None
    assert primitive.backward is not None
    definition = OPERATORS.find(operator)
    assert definition is not None
    taken, given = primitive.backward.inputs or (), primitive.backward.outputs or ()
    assert len(list(definition.operator.parameters("input"))) >= len(taken)
    assert len(list(definition.operator.parameters("output"))) >= len(given)
    attributes = list(definition.operator.parameters("attrib"))
    required = {item.name for item in attributes if item.value is None and not item.type.optional}
    assert required <= {item.name for item in primitive.params}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_defaults_are_the_same_on_both_ways(name: str) -> None:
    primitive = PRIMITIVES[name]
    forward, backward = (OPERATORS.find(primitive.operator(way) or "") for way in ("forward", "backward"))
    assert forward is not None
    assert backward is not None
    there = {item.name: item.value for item in forward.operator.parameters("attrib")}
    back = {item.name: item.value for item in backward.operator.parameters("attrib")}
    assert {key: value for key, value in back.items() if key in there} == {
        key: value for key, value in there.items() if key in back
    }


def test_most_primitives_go_back() -> None:
    assert len(PRIMITIVES) > 50
