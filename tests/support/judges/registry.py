"""Who judges what: which operators the library has, which tests judge them, which calls they refuse.

A test says with `@judged("torch", "nn.conv")` whom it asks about which operators; those of the newer draft are called
`newer/math.argmin_nd`. A test module lists wrong calls in `REFUSALS`. Both stand in the modules themselves, so the
table is the same whichever tests run.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest

import lamella.ops
from lamella.ops.gradient import declared_gradients

LIBRARY = Path(lamella.ops.__file__).parent
TESTS = Path(__file__).parents[2] / "ops"
JUDGES = ("numpy", "onnx", "onnxruntime", "torch", "statistics")

Shape: TypeAlias = tuple[int, ...]
Number: TypeAlias = int | float | bool
Given: TypeAlias = Number | str | tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that an assertion of an operator refuses, and a piece of what it then says.

    Inputs are shapes of tensors, lists of them for packs; an element type other than f32 stands in `element`, or one
    for each input with blanks between them.
    """

    operator: str
    fragment: str
    inputs: tuple[Shape | list[Shape], ...] = ()
    attributes: Mapping[str, Given] = field(default_factory=dict)
    element: str = "f32"
    types: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.operator}: {self.fragment}"


def judged(judge: str, *operators: str) -> pytest.MarkDecorator:
    """Say that a test asks a judge about operators."""
    assert judge in JUDGES, judge
    return pytest.mark.judged(judge, *operators)


def operators() -> list[str]:
    """Every public operator of the library; a private one is judged through those that use it."""
    named = [
        (path, re.findall(r"^(?:public )?operator ([a-z]\w*)", path.read_text(), re.M)) for path in texts()
    ]
    written = [f"{prefix_of(path)}{path.stem}.{name}" for path, names in named for name in names]
    return [*written, *declared_gradients()]


def texts() -> list[Path]:
    """The files of the library; what operators without a formula give is told for gradients alone."""
    return sorted(path for path in LIBRARY.rglob("*.sknd") if path.parent.name != "gradient")


def prefix_of(path: Path) -> str:
    """What tells the operators of the newer draft from the others."""
    return "newer/" if path.parent.name == "newer" else ""


def modules() -> Iterator[ModuleType]:
    """The test modules of the library."""
    for path in sorted(TESTS.glob("test_*.py")):
        yield importlib.import_module(f"tests.ops.{path.stem}")


def table() -> dict[str, list[str]]:
    """For each operator of the library, and each that a test speaks of, who judges it."""
    found: dict[str, set[str]] = {name: set() for name in operators()}
    for module in modules():
        for item in vars(module).values():
            for mark in getattr(item, "pytestmark", ()):
                for name in mark.args[1:] if mark.name == "judged" else ():
                    found.setdefault(name, set()).add(mark.args[0])
    return {name: sorted(judges) for name, judges in found.items()}


@functools.cache
def refusals() -> tuple[Refusal, ...]:
    """All wrong calls that the test modules list."""
    return tuple(item for module in modules() for item in getattr(module, "REFUSALS", ()))
