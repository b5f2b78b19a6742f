"""Graphs: the inputs of a main graph say how large they are."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.lang.skriptnd.check.context import excerpt
from lamella.lang.skriptnd.check.declare.patterns import names_of
from lamella.lang.skriptnd.check.names import names_in
from lamella.lang.skriptnd.nodes import Expr, Extent, Omitted, Operator, Parameter, Using
from lamella.lang.skriptnd.rules import names as rules


def check_main_graph(graph: Operator) -> Iterator[Diagnostic]:
    """Every extent of an input is known or has a bound, and every rank is written down."""
    known = {item.name for item in graph.parameters("attrib")}
    usings = [item for item in graph.items("using") if isinstance(item, Using)]
    known.update(result.name for item in usings for result in names_of(item.target))
    for item in graph.parameters("input"):
        if item.type.optional or item.value is not None:
            what = "is optional" if item.type.optional else "has a default value"
            yield rules.GRAPH_ALWAYS_GIVEN.at(item.span, name=item.name, what=what)
        if item.type.rank is not None:
            yield rules.GRAPH_RANK_CAPTURE.at(item.span, name=item.name)
        if item.type.shape is None:
            yield rules.GRAPH_SHAPE.at(item.span, name=item.name)
        if item.type.pack is not None and not _is_known(item.type.pack.length, known):
            if item.type.pack.bound is None:
                length = _shown(item.type.pack.length)
                yield rules.GRAPH_RANK.at(item.span, name=item.name, length=length)
            _remember(item.type.pack.length, known)
        for extent in item.type.shape or ():
            yield from _check_extent(item, extent, known)


def _check_extent(item: Parameter, extent: Extent, known: set[str]) -> Iterator[Diagnostic]:
    # A pack without a length of its own is as long as the pack it names.
    if extent.pack is not None and not _is_known(extent.pack.length or extent.value, known):
        yield rules.GRAPH_RANK.at(extent.span, name=item.name, length=_shown(extent.pack.length))
    if extent.bound is None and not _is_known(extent.value, known):
        yield rules.GRAPH_EXTENT.at(extent.span, extent=_shown(extent.value), name=item.name)
    _remember(extent.value, known)


def _is_known(size: Expr | Omitted | None, known: set[str]) -> bool:
    """Whether a size is a number, or made of attributes and of extents that have bounds."""
    if size is None or isinstance(size, Omitted):
        return False
    return all(name in known for name in names_in(size))


def _remember(size: Expr | Omitted | None, known: set[str]) -> None:
    """What has been said once is known in the shapes that follow."""
    known.update(names_in(size))


def _shown(size: Expr | Omitted | None) -> str:
    return "" if size is None else "~" if isinstance(size, Omitted) else excerpt(size)
