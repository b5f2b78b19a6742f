"""How parameters correspond to the tensors of a Hugging Face checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.source import Notes, Span, beside, where
from lamella.lang.module.nodes.expressions import Expr
from lamella.lang.module.nodes.types import Path, TiedType


@dataclass(frozen=True, slots=True)
class Direct:
    """`"name"`: one tensor as it is; `{placeholder}` stands for an index."""

    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Transform:
    """`transform("name", fn: function)`."""

    name: str
    function: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Fuse:
    """`fuse("a", "b", …, dim=0)`: tensors one behind the other; each may be transformed first."""

    sources: tuple[Direct | Transform, ...]
    dim: int = 0
    span: Span = where()


@dataclass(frozen=True, slots=True)
class SplitPart:
    """`"name": [low, high]`, half open."""

    name: str
    low: Expr
    high: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Split:
    """`split("a": [0, n], …, dim=0)`: one parameter as several tensors."""

    parts: tuple[SplitPart, ...]
    dim: int = 0
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Mapping:
    """`path: spec if condition`; `path?: spec` where the checkpoint may lack it."""

    path: Path
    spec: Spec
    optional: bool = False
    condition: Expr | None = None
    notes: Notes = beside()
    span: Span = where()


Spec: TypeAlias = Direct | Transform | Fuse | Split | TiedType
