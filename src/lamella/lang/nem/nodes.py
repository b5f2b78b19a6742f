"""NEM on one page: the nodes of a document, in the words of the specification.

Spans and notes (comments, blank lines) are carried and never compared, so `parse(write(d)) == d` is plain equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Span, Trivia, beside, where

# --- expressions and values ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal."""

    value: int
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Real:
    """A FLOAT literal."""

    value: float
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier: a declared name where it is declared, a use where it is used."""

    id: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Negate:
    """A unary minus."""

    operand: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one precedence level, from left to right: `first (sign operand)…`, flat however long."""

    first: Expr
    rest: tuple[tuple[str, Expr], ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Items:
    """A list value `[a, b, …]`."""

    values: tuple[Value, ...]
    span: Span = where()


Expr: TypeAlias = Integer | Real | Name | Negate | Chain
Value: TypeAlias = Expr | Text | Items


@dataclass(frozen=True, slots=True)
class Attribute:
    """`name = value`: a compute attribute or a field of a quantisation descriptor."""

    name: Name
    value: Value
    span: Span = where()


# --- regions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quant:
    """A quantisation descriptor: `per_tensor`, `per_channel` or `per_group` with its fields."""

    form: str
    fields: tuple[Attribute, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class TypeAttributes:
    """How the bytes of a region are read; which parts must stand together is the checker's business."""

    elem: Name | None = None
    shape: tuple[Expr, ...] | None = None
    layout: Name | None = None
    strides: tuple[Expr, ...] | None = None
    quant: Quant | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Region:
    """A bounded view into a buffer."""

    buffer: Name
    offset: Expr
    extent: Expr
    type: TypeAttributes | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class UnitRef:
    """An execution unit instance, `CSTL[1]`."""

    unit: str
    index: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Decorator:
    """An optional refinement, `@name` or `@name(arguments)`."""

    name: str
    arguments: tuple[Value | UnitRef, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Operand:
    """A region by name or written in place, with the decorators behind it."""

    value: Name | Region
    decorators: tuple[Decorator, ...] = ()
    span: Span = where()


# --- statements ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    """A named compile-time integer."""

    name: Name
    value: Expr
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Let:
    """A name for an expression, a string or a list."""

    name: Name
    value: Value
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class RegionDef:
    """A named region, `name = region(…)` or `let name = region(…)`."""

    name: Name
    region: Region
    decorators: tuple[Decorator, ...] = ()
    let: bool = False
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage at one memory level."""

    name: Name
    level: str
    index: Expr | None
    size: Expr | None
    align: Expr | None = None
    imported: bool = False
    decorators: tuple[Decorator, ...] = ()
    codec: Name | None = None
    stored: Expr | None = None
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Task:
    """A transfer, a store or a compute operation, with the token that its completion produces."""

    token: Name | None
    opcode: Name
    form: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attributes: tuple[Attribute, ...] = ()
    deps: tuple[Name, ...] = ()
    decorators: tuple[Decorator, ...] = ()
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits for the tokens of earlier tasks."""

    tokens: tuple[Name, ...]
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Loop:
    """An iteration space, inclusive at both ends, with its body."""

    variable: Name
    first: Expr
    last: Expr
    decorators: tuple[Decorator, ...]
    body: tuple[Statement, ...]
    span: Span = where()
    notes: Trivia = beside()
    end_notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Broken:
    """A statement that could not be read; the names it would have declared stay silent afterwards."""

    names: tuple[Name, ...]
    span: Span = where()
    notes: Trivia = beside()


Statement: TypeAlias = Const | Let | RegionDef | Buffer | Task | Wait | Loop | Broken


# --- type families and devices ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeParameter:
    """A type variable and the element types it ranges over."""

    name: str
    elems: tuple[str, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Binding:
    """`X: T`: the type of an operand: an element type, a type variable, `absent` or `any_supported`."""

    operand: str
    type: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Constraint:
    """`accum = f32`, `quant = required on dst`: a condition on an attribute."""

    name: str
    words: tuple[str, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Conformance:
    """`MUST <f16>`: the class of one instantiation."""

    level: str
    elems: tuple[str, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Variant:
    """A named variant of a family with its operand bindings and conformance classes."""

    name: str
    bindings: tuple[Binding, ...]
    conformance: tuple[Conformance, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class TypeFamily:
    """A parameterised set of legal operand-type combinations."""

    name: Name
    parameters: tuple[TypeParameter, ...]
    bindings: tuple[Binding, ...]
    constraints: tuple[Constraint, ...]
    variants: tuple[Variant, ...]
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Setting:
    """`name = value` in a device block: a unit count, a size, a characteristic."""

    name: Name
    value: Expr
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Topology:
    """Engines, memories and unit counts of a device."""

    settings: tuple[Setting, ...]
    device_units: tuple[Setting, ...] | None
    per_engine: tuple[Setting, ...] | None
    span: Span = where()
    notes: Trivia = beside()
    device_units_notes: Trivia = beside()
    per_engine_notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class UnitGroup:
    """The characteristics of one unit type."""

    unit: Name
    settings: tuple[Setting, ...]
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class VariantRef:
    """`gemm.float<bf16>.no_bias`: one family variant at one instantiation."""

    family: str
    elems: tuple[str, ...]
    variant: str
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Device:
    """A device configuration; a block that was not written is None."""

    name: Name
    parent: Name | None = None
    spec_version: Text | None = None
    topology: Topology | None = None
    characteristics: tuple[UnitGroup, ...] | None = None
    mandatory: tuple[VariantRef, ...] | None = None
    extended: tuple[VariantRef, ...] | None = None
    span: Span = where()
    notes: Trivia = beside()
    end_notes: Trivia = beside()
    version_notes: Trivia = beside()
    characteristics_notes: Trivia = beside()
    mandatory_notes: Trivia = beside()
    extended_notes: Trivia = beside()


# --- documents ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Include:
    """Makes the devices and type families of another file visible."""

    path: Text
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class DeviceRef:
    """`device NAME` or `device "file"`: the program's target."""

    target: Name | Text
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Document:
    """A NEM file: includes, then type families and devices, then, unless it is a configuration, one program."""

    includes: tuple[Include, ...] = ()
    declarations: tuple[TypeFamily | Device | Broken, ...] = ()
    device: DeviceRef | None = None
    name: Name | None = None
    statements: tuple[Statement, ...] = ()
    span: Span = where()
    name_notes: Trivia = beside()
    end_notes: Trivia = beside()

    @property
    def is_program(self) -> bool:
        """Whether the file holds a program rather than only a configuration."""
        return bool(self.statements) or self.device is not None or self.name is not None
