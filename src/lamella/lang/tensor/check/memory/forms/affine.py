"""Affine forms over the symbols of a function, which are numbered in the order in which they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lamella.base import affine

if TYPE_CHECKING:
    Affine: TypeAlias = affine.Affine[int]
else:
    # Calling a class through an alias with parameters costs three times as much, and forms are made by the thousand.
    Affine = affine.Affine

ZERO = Affine()
ONE = Affine(1)
