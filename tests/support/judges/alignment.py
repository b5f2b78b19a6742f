"""How arguments of element-wise operators are aligned, by the prose of the specification, and drawn cases of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.support.judges.draws import Array, arrays


@dataclass(frozen=True, slots=True)
class Aligned:
    """Arguments with their alignments, and the same arguments padded so that NumPy broadcasts them."""

    arrays: tuple[Array, ...]
    aligns: tuple[int | None, ...]
    padded: tuple[Array, ...]

    def attributes(self, *names: str) -> dict[str, int]:
        """The alignments that are given, by the names of the attributes."""
        return {name: align for name, align in zip(names, self.aligns, strict=True) if align is not None}


def place(rank: int, align: int | None, whole: int) -> int:
    """Where the first dimension of an argument stands in a result of a rank."""
    if align is None:
        return whole - rank
    return align if align >= 0 else whole - rank + align


@st.composite
def aligned(
    draw: st.DrawFn, count: int, dtypes: Sequence[Sequence[str]], low: int = -9, high: int = 9
) -> Aligned:
    """Arguments that broadcast after alignment; where `dtypes` has one entry, they share a type."""
    ranks = [draw(st.integers(0, 3)) for _ in range(count)]
    aligns = [draw(st.none() | st.integers(-2, 2)) for _ in range(count)]
    whole = max(rank + abs(align or 0) for rank, align in zip(ranks, aligns, strict=True))
    full = [draw(st.integers(0, 3)) for _ in range(whole)]
    if len(dtypes) == 1:
        dtypes = [[draw(st.sampled_from(dtypes[0]))]] * count
    found, padded = [], []
    for rank, align, types in zip(ranks, aligns, dtypes, strict=True):
        first = place(rank, align, whole)
        shape = tuple(1 if draw(st.integers(0, 3)) == 0 else extent for extent in full[first : first + rank])
        array = draw(arrays(shape, types, low, high))
        found.append(array)
        padded.append(array.reshape((1,) * first + shape + (1,) * (whole - rank - first)))
    return Aligned(tuple(found), tuple(aligns), tuple(padded))
