"""The formula of an operator, written out for one call: scalar terms over loop indices, all packs expanded.

Terms form a graph, not a tree: what a lowering names as a local value is one object used several times. Walk them with
a memory by identity; comparing or hashing a deep one visits shared parts again and again.
"""

from __future__ import annotations

from typing import TypeAlias

from lamella.base.dim import Condition, Dim, Extent
from lamella.base.records import dataclass

MOST_LOOPS = 64
"""Each loop is an axis of the arrays that a run computes with, and NumPy's have so many at most."""


@dataclass(frozen=True, slots=True)
class Index:
    """A loop index; its name is unique in its contraction (`i.0`, `i.1` for a packed `i`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Counter:
    """The write position of a data-dependent output (newer draft): counts the assignments executed so far."""

    name: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A tested index: skipped when out of range, or replaced by `below` or `above`."""

    index: Scalar
    below: Scalar | None = None
    above: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a parameter: an input, output, constant or variable of the operator.

    `item` picks a tensor of a packed parameter; it is a number unless the formula computes it.
    """

    tensor: str
    indices: tuple[Scalar | Guard, ...]
    type: str
    item: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of scalars.

    `function` is a sign of the language (`+ - * / \\ % ** << >> < <= > >= == != && || ^ => !`), `neg`, `?:` with
    three operands, a built-in function, or `cast` to `type`. `type` is the result's: int, real, bool or str.
    """

    function: str
    operands: tuple[Scalar, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """An item of a pack of known values, picked at run time."""

    table: tuple[Scalar, ...]
    index: Scalar
    type: str


Term: TypeAlias = Index | Counter | Element | Apply | Lookup
Scalar: TypeAlias = int | float | bool | str | Dim | Condition | Term


@dataclass(frozen=True, slots=True)
class Loop:
    """`index < extent`."""

    index: str
    extent: Extent


@dataclass(frozen=True, slots=True)
class Contraction:
    """One lowering, written out: nested loops in this order around an assignment.

    A packed left side assigns all its targets in the same step. In each step: guards of all accesses, left and right,
    then the condition, then `targets sign values`. Signs are `= := += *= &= |= <= >=`.
    """

    targets: tuple[Element, ...]
    sign: str
    values: tuple[Scalar, ...]
    loops: tuple[Loop, ...]
    condition: Scalar | None = None
