"""Declarations with all values known: instances, their tensors and their constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim
from lamella.base.source import Span, where
from lamella.lang.module.nodes import Annotation, Module
from lamella.lang.module.resolve.nodes import Declared, Scope

Value: TypeAlias = "int | float | bool | str | Dim | tuple[Value, ...] | DictValue | None"
"""What a constant expression is; `Dim` where it depends on a dimension that only the inputs bind."""


class Items(tuple["Value", ...]):
    """A list that was computed, with the number of values in it and below, and how deep lists stand in lists.

    Lists are shared, so a few lines can mean more values than there is memory for; who builds one looks at `size`.
    """

    size: int
    depth: int

    @classmethod
    def of(cls, values: Iterable[Value]) -> Items:
        """The list of these values."""
        found = cls(values)
        found.size = len(found) + sum(_held(item)[0] for item in found)
        found.depth = 1 + max((_held(item)[1] for item in found), default=0)
        return found


@dataclass(frozen=True, slots=True)
class DictValue:
    """A dict that was computed: values by their keys, in the order of the text."""

    entries: tuple[tuple[str, Value], ...]
    held: tuple[int, int] = field(init=False, compare=False, repr=False)
    """How many values stand in it, and how deep, as of a list."""

    def __post_init__(self) -> None:
        inner = Items.of(value for _, value in self.entries)
        object.__setattr__(self, "held", (inner.size, inner.depth))

    def find(self, key: str) -> tuple[Value] | None:
        """The value of a key, in a tuple of its own; None where there is none."""
        return next(((value,) for name, value in self.entries if name == key), None)

    def names(self) -> list[str]:
        """The keys in order."""
        return [name for name, _ in self.entries]


def _held(value: Value) -> tuple[int, int]:
    """How many values stand in a value, and how deep."""
    if isinstance(value, Items):
        return value.size, value.depth
    if isinstance(value, DictValue):
        return value.held
    return (0, 0) if not isinstance(value, tuple) else _held(Items.of(value))


@dataclass(frozen=True, slots=True)
class Known:
    """The value of a name and where it came from, such as `default`, `argument`, `let`, `--set`, `config.json 'key'`.

    `choices` are the words that the value is one of, where it is of an enumeration.
    """

    value: Value
    source: str = ""
    span: Span = where()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """A tensor parameter of an instance.

    A tied one has no storage of its own: `tied` is the path of the other from the same instance, and `dims` are
    the other's.
    """

    name: str
    dims: tuple[int, ...]
    dtype: str | None = None
    optional: bool = False
    tied: str | None = None
    annotations: tuple[Annotation, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class BuiltConstant:
    """An entry of `constants:`: the function that builds it, and its arguments; those without a name come first."""

    function: str
    positional: tuple[Value, ...] = ()
    named: Mapping[str, Value] = field(default_factory=dict)
    span: Span = where()


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A module, block or model with all its values; equal ones are one object, which knows no path of its own.

    `module` is the declaration together with what it inherits. `scope` and `backward_scope` say what the names in
    the two graphs mean: an inherited graph is read where it was written.
    """

    declared: Declared
    module: Module
    values: Mapping[str, Known]
    tensors: Mapping[str, TensorSlot]
    children: Mapping[str, Instance | tuple[Instance, ...]]
    constants: Mapping[str, BuiltConstant]
    scope: Scope
    backward_scope: Scope
    switched_off: Mapping[str, str] = field(default_factory=dict)
    """Parameters that do not exist here, each with the text of the condition that is false."""
    lost: frozenset[str] = frozenset()
    """Names of both worlds that have no value because of a mistake: only an instance that is checked has such."""
    size: int = 1
    """Instances and tensors below, counted as often as they occur, this one included."""

    @property
    def name(self) -> str:
        """The name of the declaration."""
        return self.declared.name


@dataclass(frozen=True, slots=True)
class Instantiated:
    """An instance, or None where it cannot be built, and what is wrong."""

    instance: Instance | None
    findings: tuple[Diagnostic, ...] = ()
    partial: Instance | None = None
    """What could be built in spite of mistakes, to see what else is wrong; never to be run."""
