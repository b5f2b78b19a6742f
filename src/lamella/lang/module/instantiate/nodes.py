"""Declarations with all values known: instances, their tensors and their constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim
from lamella.base.source import Span, where
from lamella.lang.module.nodes import Annotation, Module
from lamella.lang.module.resolve.nodes import Declared, Scope

Value: TypeAlias = "int | float | bool | str | Dim | tuple[Value, ...] | None"
"""What a constant expression is; `Dim` where it depends on a dimension that only the inputs bind."""


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
