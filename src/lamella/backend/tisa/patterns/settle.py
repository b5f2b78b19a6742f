"""Repetitions that keep what they took, where that changes nothing: an automaton has no way back to forbid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lamella.backend.tisa.patterns.nodes import Begin, Choice, Look, Node, One, PatternError, Repeat, Row
from lamella.backend.tisa.patterns.proof import branches_of, least
from lamella.backend.tisa.patterns.sets import Chars


def settle(rule: Node) -> Node:
    """The same pattern without such repetitions; PatternError where one of them matters."""
    branches = tuple(_settle_row(branch) for branch in branches_of(rule))
    return branches[0] if len(branches) == 1 else Choice(branches)


def _settle_row(branch: Node) -> Node:
    items = branch.items if isinstance(branch, Row) else (branch,)
    return Row(tuple(_settle_item(item, items[place + 1 :]) for place, item in enumerate(items)))


def _settle_item(item: Node, rest: Sequence[Node]) -> Node:
    if isinstance(item, Repeat) and item.final:
        taken = item.item.chars if isinstance(item.item, One) else None
        if rest and (taken is None or _first(rest).meets(taken)):
            raise PatternError("keeps what a repetition took although the rest could take it")
        item = replace(item, final=False)
    if _keeps(item):
        raise PatternError("keeps what a repetition within a group took")
    return item


def _keeps(node: Node) -> bool:
    match node:
        case Row(items) | Choice(items):
            return any(map(_keeps, items))
        case Repeat(item):
            return node.final or _keeps(item)
    return False


def _first(items: Sequence[Node]) -> Chars:
    """The characters with which some parts can begin, and all where they can be empty before the end of the pattern."""
    found = Chars()
    for item in items:
        found |= _starts(item)
        if least(item) > 0 or isinstance(item, Look):
            return found
    return found


def _starts(node: Node) -> Chars:
    match node:
        case One(chars) | Look(chars):
            return chars
        case Row(items):
            return _first(items)
        case Choice(options):
            found = Chars()
            for option in options:
                found |= _starts(option)
            return found
        case Repeat(item):
            return _starts(item)
        case Begin():
            return ~Chars()
