"""What a weight is, what its numbers are made of, and what is known of the model it belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.base.dtype import ElementType, find, find_in
from lamella.base.source import NOWHERE, Span
from lamella.lang.module.nodes import Expr, Path

_INDEX = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor parameter of a model that is built: `blocks[3].attention.qkv_weight`.

    `element` is a type by the name that the language or we have for it; empty, it is that of the checkpoint. `tied`
    is the path of the weight whose numbers it shares. `values` tells the values of the dimensions in messages.
    """

    path: str
    shape: tuple[int, ...]
    element: str = ""
    optional: bool = False
    tied: str | None = None
    span: Span = NOWHERE
    values: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What mappings may ask of a model.

    `evaluate` gives the value of a condition or of a bound of a range, and raises Problem. `declared` are parameters
    that exist only under other values, as `skeleton_of` writes them, each with the condition that is false. `prefix`
    is a first part of tensor names that some checkpoints leave out. `head_dim` is the number of rows of an attention
    head.
    """

    model: str
    evaluate: Callable[[Expr], int | bool]
    declared: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    head_dim: int = 0


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor of a checkpoint, through a transform function where one is named."""

    name: str
    function: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """Parts one behind the other along a dimension; `bounds` are the ranges that they are said to take."""

    parts: tuple[Made, ...]
    dim: int
    bounds: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Stacked:
    """Parts of one shape along a new first dimension."""

    parts: tuple[Made, ...]


@dataclass(frozen=True, slots=True)
class Alias:
    """The numbers of another weight."""

    path: str


Made: TypeAlias = Whole | Joined | Stacked | Alias


def names_in(made: Made) -> Iterator[str]:
    """The tensors of a checkpoint that something is made of, in order."""
    match made:
        case Whole(name):
            yield name
        case Joined(parts) | Stacked(parts):
            for part in parts:
                yield from names_in(part)


def indices_in(path: str) -> tuple[int, ...]:
    """The indices in the path of a weight, in order."""
    return tuple(map(int, _INDEX.findall(path)))


def skeleton_of(path: str) -> str:
    """The path of a weight without the numbers in its indices: `blocks[].attention.qkv_weight`."""
    return _INDEX.sub("[]", path)


def pattern_skeleton(path: Path) -> str:
    """The path of an entry of a mapping as `skeleton_of` gives those of weights."""
    return ".".join(part.name + "[]" * len(part.indices) for part in path.parts)


def element_named(name: str) -> ElementType | None:
    """The element type that the language, or our own tables, call by a name."""
    return find_in("module", name) or find(name)
