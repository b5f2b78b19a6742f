"""What is known of a value: numbers as affine forms, conditions as facts, memrefs as views of their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.lang.tensor.check.memory.forms.affine import ZERO, Affine
from lamella.lang.tensor.check.memory.forms.symbols import NOBODY
from lamella.lang.tensor.nodes import Coopmatrix, Memref


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar or a cooperative matrix; only integers have a form."""

    form: Affine | None = None
    depends: frozenset[int] = NOBODY
    """The symbols that tell work-items apart and on which the value depends."""
    constant: object = None
    """Where it is a constant without a form."""
    matrix: Coopmatrix | None = None
    """The type of a cooperative matrix."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Forms that are 0 or more where a condition has one of its two values; exact where they say all of it."""

    forms: tuple[Affine, ...] = ()
    exact: bool = False


ALWAYS = Facts((), True)
NEVER = Facts((Affine(-1),), True)
NOTHING = Facts()


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean."""

    holds: Facts = NOTHING
    fails: Facts = NOTHING
    depends: frozenset[int] = NOBODY
    parameter: str = ""
    """The parameter that it is, which whoever launches the kernel chooses."""


Address: TypeAlias = tuple[tuple[int, Affine], ...]
"""Elements from the beginning of the memory: multiples of unknown strides, each a symbol, -1 standing for 1."""


@dataclass(frozen=True, slots=True)
class View:
    """A memref: its memory, where in it it begins, its sizes and strides."""

    name: str
    root: int
    type: Memref
    sizes: tuple[Affine, ...]
    strides: tuple[Affine | None, ...]
    address: Address | None = ((-1, ZERO),)
    """None where it is no multiple of strides."""

    def locate(self, indices: tuple[Affine, ...]) -> Address | None:
        """The address of an element."""
        found = None if self.address is None else dict(self.address)
        for index, stride in zip(indices, self.strides, strict=True):
            if found is None or stride is None:
                return None
            found = _advance(found, index, stride)
        return None if found is None else tuple(sorted(found.items()))


def _advance(address: dict[int, Affine], index: Affine, stride: Affine) -> dict[int, Affine] | None:
    if not stride.terms:
        symbol, factor = -1, stride.constant
    elif len(stride.terms) == 1 and stride.constant == 0:
        symbol, factor = stride.terms[0]
    else:
        return None
    return address | {symbol: address.get(symbol, ZERO).plus(index, factor)}


@dataclass(frozen=True, slots=True)
class Family:
    """A group of memrefs."""

    name: str
    root: int
    type: Memref
    size: Affine
    ends: tuple[tuple[int, int], ...] = ()
    """Where a launch tells them, the least and the largest size of each mode of its memrefs."""


Known: TypeAlias = Number | Condition | View | Family
