"""The way back through an attention: scores and what comes back to them, maps of both, and three sums of these.

    s = q k',  t = g v',  w = exp(c s - l),  d = w (t - a);   dq = d k,  dk = d' q,  dv = w' g

Scores and what is made of them have as many elements as queries times keys; nothing else of this size is read or
written, so that kernels can make them again tile by tile and keep none.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamella.graph.nodes import Tensor
from lamella.graph.passes.fuse.kinds import Kind
from lamella.graph.passes.fuse.parts import Part
from lamella.graph.rewrite import results_of

PANEL, MOST_WIDE, TILE = 64, 128, 128
"""Vectors are multiples of so many elements, and this wide; queries and keys are whole tiles."""
PRODUCTS, SUMS = 2, 3
"""Contractions before the maps, and behind them."""


def find_gradients(part: Part) -> Iterator[list[int]]:
    """The operations of each way back through an attention in a part, what widens their operands with them."""
    taken: set[int] = set()
    for number in range(len(part.nodes)):
        found = None if number in taken else _gradient_of(part, number)
        if found is not None and not taken & set(found):
            taken |= set(found)
            yield found


def is_gradient(part: Part, members: list[int]) -> bool:
    """Whether operations are the way back through an attention, and nothing more."""
    return any(sorted(members) == found for number in members if (found := _gradient_of(part, number)))


def _gradient_of(part: Part, number: int) -> list[int] | None:
    """The operations round the map that joins two products of the size of scores; None where there are none."""
    if part.facts[number].kind is not Kind.MAP:
        return None
    maps: set[int] = set()
    products: set[int] = set()
    _find_roots(part, number, maps, products)
    if len(products) != PRODUCTS:
        return None
    made = {item.name for member in (*products, *maps) for item in results_of(part.nodes[member])}
    sums = {reader for name in made for reader in part.readers.get(name, ()) if reader not in maps}
    if len(sums) != SUMS or made & part.visible:
        return None
    if any(part.facts[item].kind is not Kind.CONTRACT for item in sums) or not _has_tiles(part, number, sums):
        return None
    read = {item.name for member in (*products, *sums) for item in part.sources(member)}
    wide = {part.makers[name] for name in read if part.makers.get(name) in part.decoding}
    return sorted({*products, *maps, *sums, *wide})


def _find_roots(part: Part, number: int, maps: set[int], found: set[int]) -> None:
    """The contractions of its size that a map is made of, by way of others of this size; no more than are too many.

    Residuals are such maps through all layers of a network.
    """
    size = part.facts[number].size
    maps.add(number)
    for item in part.sources(number):
        maker = part.makers.get(item.name)
        if maker is None or maker in maps or part.facts[maker].size != size:
            continue
        if part.facts[maker].kind is Kind.CONTRACT:
            found.add(maker)
        elif part.facts[maker].kind is Kind.MAP and len(found) <= PRODUCTS:
            _find_roots(part, maker, maps, found)


def _has_tiles(part: Part, number: int, sums: set[int]) -> bool:
    """Whether queries and keys are whole tiles, and vectors panels."""
    (scores,) = results_of(part.nodes[number])
    widths = [item.shape[-1] for one in sums for item in results_of(part.nodes[one])]
    if not isinstance(scores, Tensor) or len(scores.shape) < 2:
        return False
    whole = all(isinstance(item, int) and item % TILE == 0 for item in scores.shape[-2:])
    return whole and all(isinstance(item, int) and item % PANEL == 0 and item <= MOST_WIDE for item in widths)
