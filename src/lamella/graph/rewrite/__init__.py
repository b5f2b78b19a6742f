"""Changing graphs: the one walk, replacement of tensors and extents everywhere, what nodes make and read."""

from __future__ import annotations

from lamella.graph.rewrite.members import Fresh, defined, extents, made, members, producers, used, uses
from lamella.graph.rewrite.renewal import Renewal, rename, rename_symbols, substitution
from lamella.graph.rewrite.walk import Change, Visit, Walk, copy_of, rewrite

__all__ = [
    "Change",
    "Fresh",
    "Renewal",
    "Visit",
    "Walk",
    "copy_of",
    "defined",
    "extents",
    "made",
    "members",
    "producers",
    "rename",
    "rename_symbols",
    "rewrite",
    "substitution",
    "used",
    "uses",
]
