"""A mesh of ranks: how many processes a training has along each axis of parallelism, and who exchanges with whom."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import product

from lamella.base.errors import InputError

MOST = 4096
"""More ranks than that are a slip of the pen."""
SHARED = ("dp", "ep")
"""The axes whose ranks take parts of a batch."""
_ENTRY = re.compile(r"(dp|pp|ep|tp)=(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Mesh:
    """The extents of the axes; ranks count along the last axis first.

    Data parallel ranks take parts of a batch, pipeline ranks stages of the model, expert ranks parts of a batch and
    some of the experts, tensor parallel ranks slices of weights.
    """

    dp: int = 1
    pp: int = 1
    ep: int = 1
    tp: int = 1

    @property
    def size(self) -> int:
        """The number of ranks."""
        return math.prod(self.extents.values())

    @property
    def extents(self) -> Mapping[str, int]:
        """The extents by the names of the axes."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def position(self, rank: int) -> dict[str, int]:
        """Where a rank is, along each axis."""
        found: dict[str, int] = {}
        for name, extent in reversed(list(self.extents.items())):
            rank, found[name] = divmod(rank, extent)
        return found

    def rank(self, position: Mapping[str, int]) -> int:
        """Who is at a position."""
        found = 0
        for name, extent in self.extents.items():
            found = found * extent + position[name]
        return found

    @property
    def shares(self) -> int:
        """Into how many parts a batch is cut: ranks along dp and ep have tokens of their own."""
        return self.dp * self.ep

    def share(self, rank: int) -> int:
        """Which part of a batch a rank takes."""
        own = self.position(rank)
        return own["dp"] * self.ep + own["ep"]

    def group(self, rank: int, *axes: str) -> tuple[int, ...]:
        """The ranks that differ from one only along some axes, in their order; it is one of them."""
        own = self.position(rank)
        places = product(*(range(self.extents[axis]) for axis in axes))
        return tuple(self.rank({**own, **dict(zip(axes, place, strict=True))}) for place in places)

    def __str__(self) -> str:
        return ",".join(f"{name}={extent}" for name, extent in self.extents.items() if extent > 1) or "dp=1"


def read_mesh(text: str) -> Mesh:
    """The mesh of a text such as `dp=2,tp=2`; InputError says what is wrong in it."""
    found: dict[str, int] = {}
    for word in text.split(","):
        match = _ENTRY.fullmatch(word.strip())
        if match is None or match[1] in found or int(match[2]) < 1:
            hint = "name each of dp, pp, ep, tp once, with a number: dp=2,tp=2"
            raise InputError(f"'{word[:40]}' is no axis of ranks", hint=hint)
        found[match[1]] = int(match[2])
    mesh = Mesh(**found)
    if mesh.size > MOST:
        raise InputError(f"a mesh of {mesh.size} ranks is too large", hint=f"the largest has {MOST}")
    return mesh
