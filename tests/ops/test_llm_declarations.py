"""The primitives that are declared for modules agree with the operators that implement them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lamella.base.paths import shipped
from lamella.base.source import Source
from lamella.lang.module.nodes import Port, Primitive, ScalarType, TensorType
from lamella.lang.module.parse import parse
from lamella.lang.skriptnd.nodes import Dtype, Operator
from tests.support.judges.harness import find

FOLDER = shipped("models") / "primitives"
MINE = ("linear_algebra", "norms", "activations", "attention", "shapes", "elementwise", "reductions")
GROUPS = (*MINE, "creation", "losses", "precision", "collectives")
BUILT = {"rope": {"d_head", "max_seq", "rotary_dim"}}
"""Parameters that say what a table of angles is, which the graph then holds: no operator takes them."""


def read() -> list[Primitive]:
    """The primitives of all files."""
    found: list[Primitive] = []
    for name in GROUPS:
        text = (FOLDER / f"{name}.module").read_text(encoding="utf-8")
        document, findings = parse(Source(name, text))
        assert not findings
        found += [item for item in document.items if isinstance(item, Primitive)]
    return found


def implementation(primitive: Primitive, way: str) -> Operator | None:
    """What implements a section."""
    name = primitive.operator(way)
    return None if name is None else find(name)[0].operator


def named(ports: Sequence[Port] | None) -> list[tuple[str, bool]]:
    """The names of inputs or outputs, and which may be left out."""
    return [
        (port.name or "out", isinstance(port.type, TensorType | ScalarType) and port.type.optional)
        for port in ports or ()
    ]


PRIMITIVES = read()
every = pytest.mark.parametrize("primitive", PRIMITIVES, ids=[item.name for item in PRIMITIVES])


def attributes(operator: Operator) -> dict[str, bool]:
    """The attributes and types that a call gives by name, and which must be given."""
    named = {
        item.name: not item.type.optional and item.value is None for item in operator.parameters("attrib")
    }
    types = [item for item in operator.items("dtype") if isinstance(item, Dtype)]
    return named | {item.name: False for item in types if item.name == "dtype"}


def inputs(operator: Operator) -> list[bool]:
    """For each input whether it may be left out."""
    return [item.type.optional for item in operator.parameters("input")]


def check(operator: Operator, given: Sequence[tuple[str, bool]], results: int, names: set[str]) -> None:
    """See that an operator takes and gives what a section declares."""
    assert inputs(operator) == [optional for _, optional in given]
    assert len(list(operator.parameters("output"))) == results
    needed = {name for name, must in attributes(operator).items() if must}
    assert needed <= names


@every
def test_forward(primitive: Primitive) -> None:
    operator, forward = implementation(primitive, "forward"), primitive.forward
    names = {item.name for item in primitive.params} - BUILT.get(primitive.name, set())
    assert operator is not None
    assert forward is not None
    assert names <= set(attributes(operator))
    check(operator, named(forward.inputs), len(named(forward.outputs)), names)


@every
def test_backward(primitive: Primitive) -> None:
    operator, forward, backward = implementation(primitive, "backward"), primitive.forward, primitive.backward
    assert (operator is None) == (backward is None)
    if operator is None or backward is None or forward is None:
        return
    given, results = named(backward.inputs), named(backward.outputs)
    check(operator, given, len(results), {item.name for item in primitive.params})
    taken = [name for name, _ in named(forward.inputs)]
    made = [name for name, _ in named(forward.outputs)]
    assert {name for name, _ in given} <= {*taken, *made, *(f"d_{name}" for name in made)}
    assert {name for name, _ in results} <= {f"d_{name}" for name in taken}


@every
def test_what_is_saved_is_read(primitive: Primitive) -> None:
    saved = set() if primitive.save is None else {item.text for item in primitive.save.items}
    backward = primitive.backward
    read = set() if backward is None else {name for name, _ in named(backward.inputs)}
    assert saved <= read
    assert not any(name.startswith("d_") for name in saved)


def test_no_primitive_is_declared_twice() -> None:
    names = [item.name for item in PRIMITIVES]
    assert len(names) == len(set(names))
