"""Calls of ATen operations as operations of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.base.dim import TooComplex
from lamella.base.origin import Origin, tell_origin
from lamella.bridge.aten.adapt import creation, elements, layouts, networks, plain, reductions
from lamella.bridge.aten.nodes import Call, Result
from lamella.bridge.aten.site import Site, open_site, volume
from lamella.bridge.aten.table import rows
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor
from lamella.lang.skriptnd.rules.aten import UNSAYABLE
from lamella.ops.problem import Problem

Build = Callable[[Site], Result]


def build_call(builder: Builder, call: Call, origin: Origin | None = None) -> Result:
    """Add what a call computes to a graph: defaults filled, types promoted as torch does it.

    Gives the tensor, the size, or a tuple of them; None where nothing is computed. A Problem says why a call cannot be
    said.
    """
    row = rows().get(call.schema.name)
    around, builder.origin = builder.origin, origin
    try:
        site = open_site(builder, call)
        return _build("refuse" if row is None else row.how, site)
    except TooComplex:
        finding = site.problem(UNSAYABLE, reason="the sizes of its results cannot be followed")
        raise Problem(*(tell_origin(item, origin) for item in finding.findings)) from None
    except Problem as problem:
        raise Problem(*(tell_origin(item, origin) for item in problem.findings)) from None
    finally:
        builder.origin = around


def _build(how: str, site: Site) -> Result:
    """What a line of the table says; torch takes a tensor without dimensions for one of a single dimension."""
    given = site.operands.get("dim") not in (None, ())
    names = _ALONG.get(how, ()) if given else ()
    raised = {name: site.call("aten.unsqueeze", item, dim=0) for name, item in _points(site, names)}
    if not raised:
        return _HOW[how](site)
    return _lower(site, _HOW[how](replace(site, operands={**site.operands, **raised})))


def _points(site: Site, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """The operands of some names that are tensors without dimensions."""
    for name in names:
        operand = site.operands.get(name)
        if isinstance(operand, Tensor) and not operand.shape:
            yield name, operand


def _lower(site: Site, result: Result) -> Result:
    if isinstance(result, tuple):
        return tuple(_lower(site, item) for item in result)
    return (
        site.call("aten.squeeze", result, dim=(0,)) if isinstance(result, Tensor) and result.shape else result
    )


def _drop(_: Site) -> Result:
    """What only tests a size or a type, which the graph knows."""
    return None


def _size(site: Site) -> Result:
    """An extent of a tensor, or how many elements it has."""
    shape = site.tensor("self").shape
    if "dim" in site.operands:
        dim = site.integer("dim")
        if not -len(shape) <= dim < len(shape):
            site.refuse("dim", f"the tensor has {len(shape)} dimensions")
        return shape[dim]
    return volume(shape)


def _random(site: Site) -> Result:
    site.give_up("it gives other numbers at each call; pass them as an input")


def _refuse(site: Site) -> Result:
    site.give_up("its result, or the shape of it, depends on the numbers of a tensor")


_HOW: Mapping[str, Build] = MappingProxyType(
    {
        **{"drop": _drop, "size": _size, "refuse": _refuse, "random": _random},
        **{"plain": plain.build_plain, "first": plain.build_first},
        **elements.HOW,
        **reductions.HOW,
        **creation.HOW,
        **layouts.HOW,
        **networks.HOW,
    }
)
"""How each line of the table is built."""
_ALONG: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys((*reductions.HOW, "softmax", "safe_softmax", "squeeze"), ("self",)),
        "softmax_backward": ("grad_output", "output"),
    }
)
"""What works along dimensions, and the operands that have them."""
