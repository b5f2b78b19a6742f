"""What one call of an operator is, once its attributes and shapes are bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, TypeAlias

from lamella.base.diagnostic import Rule
from lamella.base.dim import Condition, Dim, Extent, Logic, Test, Truth
from lamella.base.dtype import ElementType
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.lang.skriptnd.nodes import Operator
from lamella.lang.skriptnd.rules.graphs import CHECK_FAILED
from lamella.ops.formula import Contraction, Term

Shape: TypeAlias = tuple[Extent, ...]
Single: TypeAlias = int | float | bool | str | Dim | Condition


@dataclass(frozen=True, slots=True)
class Repeated:
    """A pack of one value whose length only the run tells."""

    item: object
    length: Dim


Value: TypeAlias = Single | tuple[Single, ...] | Repeated | None


def singles(value: Value) -> tuple[Single, ...]:
    """Every single value that a value is made of; the length of a repetition is one of them."""
    if isinstance(value, tuple):
        return value
    found = (value.item, value.length) if isinstance(value, Repeated) else (value,)
    return tuple(item for item in found if isinstance(item, int | float | str | Dim | Test | Logic))


class TensorLike(Protocol):
    """What binding asks of a tensor: a name for messages, an element type and a shape."""

    @property
    def name(self) -> str:
        """The tensor's name."""

    @property
    def element(self) -> ElementType:
        """The type of its elements."""

    @property
    def shape(self) -> Shape:
        """Its extents."""


class PackLike(TensorLike, Protocol):
    """A pack of equally shaped tensors whose length only the run tells."""

    @property
    def size(self) -> Dim:
        """How many tensors."""


Argument: TypeAlias = TensorLike | tuple[TensorLike, ...] | Value
"""What a call passes for an input: a tensor, a pack of them (PackLike: of unknown length), scalars, or null."""


@dataclass(frozen=True, slots=True)
class Fill:
    """A scalar that a call passes for a tensor: the constant tensor of this shape that it stands for."""

    name: str
    element: ElementType
    shape: Shape
    value: Single | Term


@dataclass(frozen=True, slots=True)
class Definition:
    """An operator with the module it stands in; `name` is qualified: `nn.conv`, and `main.G` for the main module."""

    name: str
    module: str
    operator: Operator
    standard: bool = False
    """Whether it belongs to the shipped library."""


@dataclass(frozen=True, slots=True)
class Declared:
    """An output, constant or variable of an instance.

    A pack of known length has one shape for each item in `items`; one of unknown length has `size` and one `shape`.
    A graph may leave out the shape of an output, which is then None, and an extent, which is then the symbol
    `<result>.shape[<axis>]`.
    """

    name: str
    element: ElementType
    shape: Shape | None
    items: tuple[Shape, ...] | None = None
    size: Dim | None = None

    def tensors(self) -> Declared | tuple[Declared, ...]:
        """What the name stands for: a tensor, or the tensors of a pack of known length."""
        if self.items is None:
            return self
        return tuple(Declared(self.name, self.element, shape) for shape in self.items)


@dataclass(frozen=True, slots=True)
class Check:
    """An assertion that only the run can decide, with the sentence for when it fails."""

    condition: Truth | Term
    message: str
    span: Span
    rule: Rule = CHECK_FAILED
    """The rule of the language in which the assertion is written."""


class FormulaMemo:
    """The formulas of a call once they are written out, shared by all instances that are bound alike."""

    __slots__ = ("formulas",)

    def __init__(self) -> None:
        self.formulas: tuple[Contraction, ...] | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One call of an operator: every symbol of its definition has a value."""

    definition: Definition
    types: Mapping[str, ElementType]
    attributes: tuple[tuple[str, Value], ...]
    """All attributes in the order of their declaration, defaults included; null ones are None."""
    inputs: tuple[tuple[str, Argument], ...]
    """The arguments by the names of the inputs; a scalar stands for a constant tensor of rank 0 or a uniform fill."""
    symbols: Mapping[str, object]
    """Every name of the definition that has a value: attributes, extents, lengths, ranks, helper symbols, tensors.

    An input that is a scalar is a `Fill` here; `real` is the width of the call's real tensors.
    """
    outputs: tuple[Declared, ...]
    constants: tuple[tuple[Declared, Single | tuple[Single, ...]], ...] = ()
    """Constants with one value, or all values in row-major order."""
    variables: tuple[Declared, ...] = ()
    checks: tuple[Check, ...] = ()
    declared: tuple[Declared, ...] = ()
    """The inputs of a main graph, which has no call and no arguments: what their declarations say."""
    plan: object = field(default=None, compare=False, repr=False)
    """What the engine keeps for the definition; formulas are made from it."""
    memo: FormulaMemo = field(default_factory=FormulaMemo, compare=False, repr=False)
