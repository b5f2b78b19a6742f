"""Operators that compose themselves: a circle of calls without a condition has no end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.lang.skriptnd.check.composition import Edge
from lamella.lang.skriptnd.rules import names as rules

LONGEST = 6


def check_recursion(calls: Mapping[str, Sequence[Edge]]) -> Iterator[Diagnostic]:
    """One finding for each call that closes a circle; a walk in depth without recursion."""
    done: set[str] = set()
    for start in calls:
        path: dict[str, Iterator[Edge]] = {} if start in done else {start: iter(calls[start])}
        while path:
            name = next(reversed(path))
            edge = next(path[name], None)
            if edge is None:
                done.add(name)
                del path[name]
            elif edge.operator in path:
                yield _finding(edge, list(path))
            elif edge.operator not in done and edge.operator in calls:
                path[edge.operator] = iter(calls[edge.operator])


def _finding(edge: Edge, path: list[str]) -> Diagnostic:
    circle = [*path[path.index(edge.operator) :], edge.operator]
    if len(circle) > LONGEST:
        circle = [*circle[: LONGEST - 2], "…", circle[-1]]
    return rules.RECURSION.at(edge.span, name=edge.operator, chain=" -> ".join(circle))
