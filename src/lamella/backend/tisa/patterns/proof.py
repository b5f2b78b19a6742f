"""Which patterns a backtracking matcher runs in linear time, decided by the shape of their branches.

A branch is *bounded* where it takes few characters in few ways. It is *sure* where it has a loop behind a bounded part
and cannot fail once the loop has what it needs: what it has read, it takes. Another branch with a loop is *covered*
where the next sure branch begins alike and takes at least what was read in vain. Then every character is read a fixed
number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from lamella.backend.tisa.patterns.nodes import Choice, Look, Node, One, Repeat, Row
from lamella.backend.tisa.patterns.sets import Chars

FEW, SHORT = 64, 64
"""Ways through a bounded part, and characters that it takes."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A branch by its loop; without one it is bounded."""

    sure: bool
    prefix: tuple[Node, ...] = ()
    loop: Chars | None = None


def runs_linear(rules: Sequence[Node]) -> bool:
    """Whether a backtracking matcher reads each character of a text a fixed number of times at most."""
    branches = [branch for rule in rules for branch in branches_of(rule)]
    shapes = [_shape(branch) for branch in branches]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or any(least(branch) == 0 for branch in branches):
        return False
    return all(shape.sure or _covered(known[place:]) for place, shape in enumerate(known))


def branches_of(node: Node) -> tuple[Node, ...]:
    """The branches of a choice, or the one that there is."""
    return node.options if isinstance(node, Choice) else (node,)


def _covered(shapes: Sequence[_Shape]) -> bool:
    """Whether a sure branch takes what the first branch may have read in vain, with nothing else between."""
    first = shapes[0]
    vain = list(takewhile(lambda shape: not shape.sure, shapes))
    rest = shapes[len(vain) :]
    return bool(rest) and all(_alike(shape, rest[0]) for shape in [*vain, rest[0]]) and _alike(first, rest[0])


def _alike(shape: _Shape, cover: _Shape) -> bool:
    if shape.loop is None or cover.loop is None or shape.prefix != cover.prefix:
        return False
    return shape.loop.within(cover.loop)


def _shape(branch: Node) -> _Shape | None:
    items = branch.items if isinstance(branch, Row) else (branch,)
    place = next((i for i, item in enumerate(items) if not _bounded([item])), len(items))
    if not _bounded(items[:place]):
        return None
    if place == len(items):
        return _Shape(True)
    loop, tail = items[place], items[place + 1 :]
    if not isinstance(loop, Repeat) or not isinstance(loop.item, One) or not loop.eager or loop.low > SHORT:
        return None
    if _sure(loop, loop.item.chars, tail):
        return _Shape(True, items[:place], loop.item.chars)
    return _Shape(False, items[:place], loop.item.chars) if _ends_soon(tail) else None


def _sure(loop: Repeat, chars: Chars, tail: Sequence[Node]) -> bool:
    """Nothing behind the loop can fail: optional parts, or a look that one step back satisfies."""
    if len(tail) == 1 and isinstance(tail[0], Look):
        return not loop.final and chars.within(tail[0].chars)
    return all(map(_optional, tail))


def _optional(node: Node) -> bool:
    if not isinstance(node, Repeat) or node.low or not node.eager:
        return False
    return isinstance(node.item, One) or (node.high == 1 and _bounded([node.item]))


def _ends_soon(tail: Sequence[Node]) -> bool:
    """A bounded part or a second loop, and then nothing that can fail."""
    first, rest = tail[:1], tail[1:]
    if _bounded(first):
        return _bounded(tail) or all(map(_optional, rest))
    second = first[0]
    if not isinstance(second, Repeat) or not isinstance(second.item, One):
        return False
    return second.eager and second.low <= SHORT and all(map(_optional, rest))


def _bounded(items: Sequence[Node]) -> bool:
    ways = longest = 1
    for item in items:
        ways *= _ways(item)
        longest += _longest(item)
    return ways <= FEW and longest <= SHORT


def _ways(node: Node) -> int:
    """How many ways lead through a part at most; many where it is nested."""
    match node:
        case Row(items):
            ways = 1
            for item in items:
                ways = min(ways * _ways(item), FEW + 1)
            return ways
        case Choice(options):
            return min(sum(map(_ways, options)), FEW + 1)
        case Repeat(One(), low, high):
            return FEW + 1 if high is None else high - low + 1
        case Repeat(item, 0, 1):
            return 1 + _ways(item)
        case Repeat():
            return FEW + 1
    return 1


def _longest(node: Node) -> int:
    match node:
        case Row(items):
            return min(sum(map(_longest, items)), SHORT + 1)
        case Choice(options):
            return max(map(_longest, options))
        case Repeat(item, _, high):
            return SHORT + 1 if high is None else min(_longest(item) * high, SHORT + 1)
        case One():
            return 1
    return 0


def least(node: Node) -> int:
    """Characters that a part takes at least."""
    match node:
        case Row(items):
            return sum(map(least, items))
        case Choice(options):
            return min(map(least, options))
        case Repeat(item, low, _):
            return least(item) * low
        case One():
            return 1
    return 0
