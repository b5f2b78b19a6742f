"""The left side of `=`: which name takes which part of a result, and what the tensors are called in the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from lamella.graph.compose.scope.session import Named
from lamella.lang.skriptnd.nodes import Expr, ListPattern, Omitted, Pack, Pattern, Result, Unzip
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.problem import Problem

T = TypeVar("T")
Length: TypeAlias = Callable[[Expr], int]
"""The value of the expression of a pack's length."""


class Wanted(Protocol):
    """The name or names of one result; None where nothing is said."""

    def single(self) -> Named | None:
        """The name of a result that is one tensor, or of a pack as a whole."""

    def items(self, count: int) -> Sequence[Named | None]:
        """The names of the tensors of a packed result, in order."""


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A result that is left out, or has a name only in its region."""

    def single(self) -> Named | None:
        """No name."""
        return None

    def items(self, count: int) -> Sequence[Named | None]:
        """No names."""
        return (None,) * count


UNNAMED = Unnamed()


@dataclass(frozen=True, slots=True)
class Simple:
    """A name; the items of a pack are numbered from 1."""

    named: Named

    def single(self) -> Named | None:
        """The name itself."""
        return self.named

    def items(self, count: int) -> Sequence[Named | None]:
        """The name with numbers."""
        name, exposed, promised = self.named
        return [Named(f"{name}:{number + 1}", exposed, promised) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Names that are settled one by one."""

    names: tuple[Named, ...]

    def single(self) -> Named | None:
        """The only name."""
        return self.names[0] if self.names else None

    def items(self, count: int) -> Sequence[Named | None]:
        """The names as they are."""
        return (*self.names[:count], *(None,) * (count - len(self.names)))


@dataclass(frozen=True, slots=True)
class Listed:
    """`[a, b..]`: names for the items of a pack."""

    pattern: ListPattern
    resolve: Callable[[str], Wanted]
    length: Length

    def single(self) -> Named | None:
        """The list as a whole has no name."""
        return None

    def items(self, count: int) -> Sequence[Named | None]:
        """The names in the list, packed ones with numbers."""
        found: list[Named | None] = [None] * count
        for item, places in spread(self.pattern, range(count), self.length):
            wanted = self.resolve(item.name)
            if isinstance(places, tuple):
                for place, named in zip(places, wanted.items(len(places)), strict=True):
                    found[place] = named
            else:
                found[places] = wanted.single()
        return found


def pack_of(item: Result) -> Pack | None:
    """What is said of the length of a result, behind its name or behind its type."""
    return item.pack or (item.type.pack if item.type is not None else None)


def names_in(pattern: Pattern) -> Iterator[Result]:
    """The names of a pattern, in order."""
    if isinstance(pattern, Result):
        yield pattern
    elif isinstance(pattern, ListPattern):
        for item in pattern.items:
            yield from item.items if isinstance(item, Unzip) else [item] if isinstance(item, Result) else []


def spread(
    pattern: ListPattern, values: Sequence[T], length: Length
) -> Iterator[tuple[Result, T | tuple[T, ...]]]:
    """The names of a list with the values they take."""
    start = 0
    for item, count in zip(pattern.items, _counts(pattern, len(values), length), strict=True):
        taken = tuple(values[start : start + count])
        start += count
        if isinstance(item, Unzip):
            step = len(item.items)
            yield from ((name, taken[place::step]) for place, name in enumerate(item.items))
        elif isinstance(item, Result):
            yield item, (taken if pack_of(item) is not None else taken[0])


def _counts(pattern: ListPattern, total: int, length: Length) -> list[int]:
    """How many values each item of a list takes."""
    counts = [_count(item, length) for item in pattern.items]
    rest = total - sum(count for count in counts if count is not None)
    flexible = [place for place, count in enumerate(counts) if count is None]
    whole = rest % _width(pattern.items[flexible[0]]) == 0 if flexible else rest == 0
    if rest < 0 or not whole or len(flexible) > 1:
        raise Problem(rules.PATTERN_LENGTH.at(pattern.span, wanted=total - rest, found=total))
    return [rest if count is None else count for count in counts]


def _count(item: Result | Unzip | Omitted, length: Length) -> int | None:
    if isinstance(item, Omitted):
        return 1
    pack = item.pack if isinstance(item, Unzip) else pack_of(item)
    if pack is None:
        return 1
    if pack.length is None or isinstance(pack.length, Omitted):
        return None
    return _width(item) * length(pack.length)


def _width(item: Result | Unzip | Omitted) -> int:
    return len(item.items) if isinstance(item, Unzip) else 1
