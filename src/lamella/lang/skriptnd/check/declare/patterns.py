"""What stands on the left of `=`: a name, or a list that takes a pack apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lamella.lang.skriptnd.check.context import Context
from lamella.lang.skriptnd.check.declare.shapes import read_length
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind
from lamella.lang.skriptnd.check.lengths import Known, length_of, shown
from lamella.lang.skriptnd.nodes import ListPattern, Omitted, Pack, Pattern, Result, Unzip
from lamella.lang.skriptnd.rules import shapes as rules


class Taken(NamedTuple):
    """A name of a pattern with the kind of what it gets."""

    result: Result
    kind: Kind


def names_of(pattern: Pattern) -> Iterator[Result]:
    """The names of a pattern."""
    if isinstance(pattern, Result):
        yield pattern
    elif isinstance(pattern, ListPattern):
        for item in pattern.items:
            if isinstance(item, Unzip):
                yield from item.items
            elif isinstance(item, Result):
                yield item


def pack_of(result: Result) -> Pack | None:
    """What is said of the length of a result."""
    if result.pack is not None:
        return result.pack
    return result.type.pack if result.type is not None else None


def take(context: Context, pattern: Pattern, kind: Kind) -> list[Taken]:
    """The names of a pattern with what each gets of a value; a pattern that does not fit is a finding."""
    if isinstance(pattern, Omitted):
        return []
    if isinstance(pattern, Result):
        return [Taken(pattern, _hinted(context, pattern, kind))]
    return _take_apart(context, pattern, kind)


def _hinted(context: Context, result: Result, kind: Kind) -> Kind:
    """A pack with the length that is said of it."""
    pack = pack_of(result)
    if pack is None or pack.length is None or isinstance(pack.length, Omitted):
        return kind
    length = read_length(context, pack, result.name)
    if not kind.known or not kind.packed or length.value is None:
        return kind
    if context.algebra.differ(length.value, kind.length):
        left, right = shown(length.value), shown(kind.length)
        context.report(rules.HINT_LENGTH.at(result.span, name=result.name, left=left, right=right))
    return kind.pack(length.value if kind.length is None else kind.length)


def _take_apart(context: Context, pattern: ListPattern, kind: Kind) -> list[Taken]:
    lengths = [_length_of(context, item) for item in pattern.items]
    flexible = [item for item, length in zip(pattern.items, lengths, strict=True) if length is None]
    total: Known = 0
    for length in lengths:
        total = context.algebra.combine("+", total, length.value if length is not None else 0)
    if len(flexible) > 1:
        context.report(rules.PATTERN_FLEXIBLE.at(pattern.span, count=len(flexible)))
    elif not flexible and context.algebra.differ(total, kind.length):
        left, right = shown(total), shown(kind.length)
        context.report(rules.PATTERN_LENGTH.at(pattern.span, left=left, right=right))
    rest = context.algebra.combine("-", kind.length, total) if len(flexible) == 1 else None
    taken: list[Taken] = []
    for item, length in zip(pattern.items, lengths, strict=True):
        taken += _taken(context, item, kind, rest if length is None else length.value)
    return taken


def _length_of(context: Context, item: Result | Unzip | Omitted) -> Kind | None:
    """How many items a part of a pattern takes; None where that is open."""
    if isinstance(item, Omitted):
        return Kind("int", value=1)
    pack = item.pack if isinstance(item, Unzip) else pack_of(item)
    if pack is None:
        return Kind("int", value=1)
    if pack.length is None or isinstance(pack.length, Omitted):
        return None
    name = item.name if isinstance(item, Result) else "(…)"
    length = read_length(context, pack, name)
    if isinstance(item, Unzip):
        return Kind("int", value=context.algebra.combine("*", length.value, len(item.items)))
    return length


def _taken(context: Context, item: Result | Unzip | Omitted, kind: Kind, length: Known) -> Iterator[Taken]:
    if isinstance(item, Omitted):
        return
    if isinstance(item, Unzip):
        each = context.algebra.combine("/", length, len(item.items))
        for name in item.items:
            yield Taken(name, kind.pack(each) if kind.known else UNKNOWN)
    elif not kind.known:
        yield Taken(item, UNKNOWN)
    elif pack_of(item) is None:
        yield Taken(item, kind.single())
    else:
        yield Taken(item, kind.pack(length if length is not None else length_of(f"|{item.name}|")))
