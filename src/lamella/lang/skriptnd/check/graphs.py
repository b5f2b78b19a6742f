"""Graphs: the inputs of a main graph say how large they are."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.lang.skriptnd.check.context import excerpt
from lamella.lang.skriptnd.check.names import names_in
from lamella.lang.skriptnd.nodes import Expr, Extent, Name, Omitted, Operator, Parameter
from lamella.lang.skriptnd.rules import names as rules


def check_main_graph(graph: Operator) -> Iterator[Diagnostic]:
    """Every extent of an input is known or has a bound, and every rank is written down."""
    bounds: dict[str, Expr | None] = {item.name: None for item in graph.parameters("attrib")}
    for item in graph.parameters("input"):
        if item.type.rank is not None:
            yield rules.GRAPH_RANK_CAPTURE.at(item.span, name=item.name)
        if item.type.shape is None:
            yield rules.GRAPH_SHAPE.at(item.span, name=item.name)
        if item.type.pack is not None and not _is_known(item.type.pack.length, bounds):
            if item.type.pack.bound is None:
                length = _shown(item.type.pack.length)
                yield rules.GRAPH_RANK.at(item.span, name=item.name, length=length)
            _remember(item.type.pack.length, item.type.pack.bound, bounds)
        for extent in item.type.shape or ():
            yield from _check_extent(item, extent, bounds)


def _check_extent(item: Parameter, extent: Extent, bounds: dict[str, Expr | None]) -> Iterator[Diagnostic]:
    if extent.pack is not None and not _is_known(extent.pack.length, bounds):
        yield rules.GRAPH_RANK.at(extent.span, name=item.name, length=_shown(extent.pack.length))
    if extent.bound is None and not _is_known(extent.value, bounds):
        yield rules.GRAPH_EXTENT.at(extent.span, extent=_shown(extent.value), name=item.name)
    yield from _check_bound(extent, bounds)
    _remember(extent.value, extent.bound, bounds)


def _check_bound(extent: Extent, bounds: dict[str, Expr | None]) -> Iterator[Diagnostic]:
    if extent.bound is None or not isinstance(extent.value, Name):
        return
    earlier = bounds.get(extent.value.id)
    if earlier is not None and earlier != extent.bound:
        first, second = excerpt(earlier), excerpt(extent.bound)
        yield rules.BOUND_DIFFERS.at(extent.span, name=extent.value.id, first=first, second=second)


def _is_known(size: Expr | Omitted | None, bounds: dict[str, Expr | None]) -> bool:
    """Whether a size is a number, or made of attributes and of extents that have bounds."""
    if size is None or isinstance(size, Omitted):
        return False
    return all(name in bounds for name in names_in(size))


def _remember(size: Expr | Omitted | None, bound: Expr | None, bounds: dict[str, Expr | None]) -> None:
    for name in names_in(size):
        bounds.setdefault(name, bound)


def _shown(size: Expr | Omitted | None) -> str:
    return "" if size is None else "~" if isinstance(size, Omitted) else excerpt(size)
