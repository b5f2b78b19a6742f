"""Calls of operators on tensors that have a name, an element type and a shape, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamella.base.dim import Dim, Extent
from lamella.base.dtype import F32, ElementType
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE, Source, Span
from lamella.lang.skriptnd.nodes import Using
from lamella.ops.evaluate import evaluate
from lamella.ops.instance import Argument, Instance, Value
from lamella.ops.instantiate import instantiate
from lamella.ops.library import Library, LoadedModule


@dataclass(frozen=True)
class Fake:
    """A tensor."""

    name: str
    shape: tuple[Extent, ...]
    element: ElementType = F32


@dataclass(frozen=True)
class FakePack:
    """A pack of tensors whose length only the run tells."""

    name: str
    shape: tuple[Extent, ...]
    size: Dim
    element: ElementType = F32


def tensor(*shape: Extent, name: str = "t", element: ElementType = F32) -> Fake:
    return Fake(name, shape, element)


def module(text: str, limits: Limits = DEFAULT) -> LoadedModule:
    """The operators of a text, which must be sound."""
    found = Library(limits=limits).load(Source("test.sknd", text))
    assert found.sound, "\n".join(map(str, found.findings))
    return found


def call(
    library: Library,
    name: str,
    arguments: Sequence[Argument] = (),
    attributes: Mapping[str, Value] | None = None,
    types: Mapping[str, ElementType] | None = None,
    span: Span = NOWHERE,
) -> Instance:
    """Bind a call of an operator by its qualified name."""
    definition = library.find(name)
    assert definition is not None, name
    return instantiate(library, definition, arguments, attributes or {}, types or {}, span=span)


def bind(text: str, *arguments: Argument, **attributes: Value) -> Instance:
    """Bind a call of the first operator of a text."""
    found = module(text)
    return call(found.library, f"main.{found.document.declarations[0].name}", arguments, attributes)


def refusal(text: str, *arguments: Argument, **attributes: Value) -> str:
    """Why a call is refused: the code and the sentence."""
    try:
        bind(text, *arguments, **attributes)
    except Found as problem:
        return f"{problem.findings[0].code}: {problem.findings[0].message}"
    raise AssertionError("the call was taken")


def shapes(instance: Instance) -> list[object]:
    """The shapes of the outputs; of a pack, those of its items."""
    return [item.shape if item.items is None else item.items for item in instance.outputs]


def value_of(text: str, /, **names: object) -> object:
    """The value of an expression."""
    return value_within(DEFAULT, text, **names)


def value_within(limits: Limits, text: str, /, **names: object) -> object:
    """The value of an expression within other limits."""
    document = module(f"operator o {{ @using {{ x = {text}; }} }}", limits).document
    using = document.declarations[0].items("using")[0]
    assert isinstance(using, Using)
    return evaluate(using.value, names, limits)


def problem_of(text: str, /, **names: object) -> str:
    """Why an expression has no value: the code and the sentence."""
    return problem_within(DEFAULT, text, **names)


def problem_within(limits: Limits, text: str, /, **names: object) -> str:
    """Why an expression has no value within other limits."""
    try:
        found = value_within(limits, text, **names)
    except Found as problem:
        return f"{problem.findings[0].code}: {problem.findings[0].message}"
    raise AssertionError(f"the value is {found}")
