"""The primitives that are declared for modules agree with the operators that implement them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import lamella
from lamella.lang.skriptnd.nodes import Dtype, Operator
from tests.ops.judges.harness import find

FOLDER = Path(lamella.__file__).parent / "models" / "primitives"
PORT = re.compile(r"(\w+): (?:\[[^\]]*\]|tuple<\[[^\]]*\]>|scalar)(\??)")
MINE = ("linear_algebra", "norms", "activations", "attention", "shapes", "elementwise", "reductions")
GROUPS = (*MINE, "creation", "losses", "precision", "collectives")


@dataclass(frozen=True, slots=True)
class Declared:
    """A primitive as its text declares it."""

    name: str
    text: str

    def section(self, name: str) -> str:
        """The lines of a section."""
        found = re.search(rf"^  {name}:\n((?:    .*\n)+)", self.text, re.M)
        return "" if found is None else found[1]

    def ports(self, section: str, way: str) -> list[tuple[str, bool]]:
        """The names of inputs or outputs, and which may be left out."""
        line = re.search(rf"^    {way}: (.*)$", self.section(section), re.M)
        assert line is not None, self.name
        if line[1].startswith("tuple<"):
            return [("out", False)]
        found = [(name, mark == "?") for name, mark in PORT.findall(line[1])]
        assert line[1] == "(" + ", ".join(match[0] for match in PORT.finditer(line[1])) + ")", self.name
        return found

    def parameters(self) -> dict[str, str]:
        """The types of the parameters, defaults left out."""
        lines = re.findall(r"^    (\w+): (.*?)(?: = .*)?$", self.section("params"), re.M)
        return dict(lines)

    def operator(self, section: str) -> Operator | None:
        """What implements a section."""
        line = re.search(rf"^    {section}: (\S+)$", self.section("impl"), re.M)
        return None if line is None else find(line[1])[0].operator


def read() -> list[Declared]:
    """The primitives of all files."""
    found = []
    for path in (FOLDER / f"{name}.module" for name in GROUPS):
        for text in re.split(r"\n(?=primitive )", _on_one_line(path.read_text())):
            name = re.match(r"primitive (\w+):\n", text)
            assert name is not None, text
            found.append(Declared(name[1], text))
    return found


def _on_one_line(text: str) -> str:
    """A text whose parentheses do not span lines."""
    return re.sub(r"\(\n\s+", "(", re.sub(r",\n\s+", ", ", re.sub(r",?\n\s*\)", ")", text)))


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
def test_forward(primitive: Declared) -> None:
    operator, names = primitive.operator("forward"), primitive.parameters()
    assert operator is not None
    assert set(names) <= set(attributes(operator))
    check(operator, primitive.ports("forward", "in"), len(primitive.ports("forward", "out")), set(names))


@every
def test_backward(primitive: Declared) -> None:
    operator = primitive.operator("backward")
    assert (operator is None) == (primitive.section("backward") == "")
    if operator is None:
        return
    given, results = primitive.ports("backward", "in"), primitive.ports("backward", "out")
    check(operator, given, len(results), set(primitive.parameters()))
    taken = [name for name, _ in primitive.ports("forward", "in")]
    made = [name for name, _ in primitive.ports("forward", "out")]
    assert {name for name, _ in given} <= {*taken, *made, *(f"d_{name}" for name in made)}
    assert {name for name, _ in results} <= {f"d_{name}" for name in taken}


@every
def test_what_is_saved_is_read(primitive: Declared) -> None:
    line = re.search(r"^  save: \[(.*)\]$", primitive.text, re.M)
    saved = set() if line is None else {name for name in line[1].split(", ") if name}
    read = {name for name, _ in primitive.ports("backward", "in")} if line is not None else set()
    assert saved <= read
    assert not any(name.startswith("d_") for name in saved)


def test_no_primitive_is_declared_twice() -> None:
    names = [item.name for item in PRIMITIVES]
    assert len(names) == len(set(names))
