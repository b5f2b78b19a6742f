"""Operations that look at elements along dimensions: sums, extremes, truths, orders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from lamella.base.dtype import BOOL, F64, I32, I64, U8
from lamella.bridge.aten.adapt.plain import call_named
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.promotion import real_type, result_type
from lamella.bridge.aten.site import Site
from lamella.graph.nodes import Tensor, Value

_COUNTS = ("aten.sum", "aten.prod", "aten.cumsum", "aten.cumprod")
"""What gives int64 for integers and truth values."""


def _dims(site: Site, name: str = "dim") -> Mapping[str, Value]:
    """The dimensions, where there are some: none at all stand for every one."""
    found = site.integers(name)
    return {name: found} if found else {}


def _keepdim(site: Site) -> Mapping[str, bool]:
    return {"keepdim": site.flag("keepdim")} if "keepdim" in site.operands else {}


def _reduce(site: Site, operand: Tensor, **attributes: Value) -> tuple[Tensor, ...]:
    """The operator of the table over some dimensions; a dtype was dealt with before."""
    given: dict[str, Value] = {**_dims(site), **_keepdim(site), **attributes}
    return site.call_all(site.schema.operator, operand, **given)


def _typed(site: Site) -> Tensor:
    """The operand in the type in which it is summed."""
    operand, element = site.tensor("self"), site.element()
    if element is None and site.schema.operator in _COUNTS and not operand.element.is_float:
        element = I64
    return operand if element is None else site.cast(operand, element)


def build_total(site: Site) -> Result:
    """Sums, products, means and norms."""
    operand = _typed(site)
    return site.padded(*_reduce(site, operand))


def build_norm(site: Site) -> Result:
    """The norm of a vector; that of order infinity is the largest absolute value."""
    order, operand = _order(site), _typed(site)
    if order == 0:
        site.refuse("ord" if "ord" in site.operands else "p", "other numbers than 0 are possible")
    if math.isfinite(order):
        return site.padded(*_reduce(site, operand, ord=order))
    operator = "aten.amax" if order > 0 else "aten.amin"
    size = site.call("aten.abs", operand)
    return site.call(operator, size, **_dims(site), **_keepdim(site))


def _order(site: Site) -> float:
    """Which norm; 2 where none is said."""
    name = "ord" if "ord" in site.operands else "p"
    return site.real(name) if site.has(name) else 2.0


def build_running(site: Site) -> Result:
    """Running sums and products along one dimension."""
    return site.call(site.schema.operator, _typed(site), dim=site.integer("dim"))


def build_extremum(site: Site) -> Result:
    """The largest or smallest element; of truth values whether any or all are true."""
    operand = site.tensor("self")
    if operand.element != BOOL:
        return site.padded(*_reduce(site, operand))
    operator = "aten.any" if site.schema.operator == "aten.amax" else "aten.all"
    return site.call(operator, operand, **_dims(site), **_keepdim(site))


def build_truth(site: Site) -> Result:
    """Whether any or all elements are true; uint8 stays uint8, and here no dimensions are none."""
    operand, byte = site.tensor("self"), site.tensor("self").element == U8
    dims = {"dim": ()} if site.operands.get("dim") == () else {}
    (found,) = _reduce(site, site.cast(operand, BOOL) if byte else operand, **dims)
    return site.cast(found, U8) if byte else found


def build_spread(site: Site) -> Result:
    """Variance and standard deviation: `unbiased` is a correction of 1."""
    correction = 1.0
    if site.has("correction"):
        correction = site.real("correction")
    elif "unbiased" in site.operands:
        correction = float(site.flag("unbiased"))
    return site.padded(*_reduce(site, site.tensor("self"), correction=correction))


def build_logsumexp(site: Site) -> Result:
    """The logarithm of a sum of exponentials."""
    operand = site.tensor("self")
    return site.padded(*_reduce(site, site.cast(operand, real_type(operand.element))))


def build_pick(site: Site) -> Result:
    """The place of the largest or smallest element."""
    dim = {"dim": site.integer("dim")} if site.has("dim") else {}
    operand = _ordered(site.tensor("self"), site)
    return site.call(site.schema.operator, operand, keepdim=site.flag("keepdim"), **dim)


def build_picked(site: Site) -> Result:
    """The largest or smallest elements along a dimension, and their places."""
    operand = site.tensor("self")
    dim, keepdim = site.integer("dim"), site.flag("keepdim")
    values, places = site.call_all(site.schema.operator, _ordered(operand, site), dim=dim, keepdim=keepdim)
    return site.cast(values, operand.element), places


def _ordered(operand: Tensor, site: Site) -> Tensor:
    """Truth values as numbers, for they are ordered too."""
    return site.cast(operand, I64) if operand.element == BOOL else operand


def _sortable(operand: Tensor, site: Site) -> Tensor:
    """Integers and truth values as reals, which alone are sorted: exactly up to 53 bits."""
    return operand if operand.element.is_float else site.cast(operand, F64)


def build_order(site: Site) -> Result:
    """The elements in order, and where they stood."""
    operand = site.tensor("self")
    if _is_empty(site):
        return site.call("aten.clone", operand), site.make("aten.zeros", I64, size=operand.shape)
    inputs = {"self": _sortable(operand, site)}
    values, places = site.flatten(call_named(site, site.schema.operator, inputs))
    return site.cast(values, operand.element), places


def build_argsort(site: Site) -> Result:
    """Where the elements stood that are put in order."""
    operand = site.tensor("self")
    if _is_empty(site):
        return site.make("aten.zeros", I64, size=operand.shape)
    inputs = {"self": _sortable(operand, site)}
    return site.flatten(call_named(site, "aten.sort", inputs))[1]


def _is_empty(site: Site) -> bool:
    """Whether there is nothing to put in order."""
    return site.schema.operator == "aten.sort" and 0 in site.tensor("self").shape


def build_search(site: Site) -> Result:
    """Where numbers belong among others that ascend."""
    right = site.flag("right") or site.operands.get("side") == "right"
    named = "boundaries" if "boundaries" in site.operands else "sorted_sequence"
    if site.has("sorter"):
        site.refuse("sorter", "the numbers must ascend as they stand")
    element = result_type((site.tensor("self"), site.tensor(named)))
    value, among = site.cast(site.tensor("self"), element), site.cast(site.tensor(named), element)
    pair = (value, among) if named == "boundaries" else (among, value)
    found = site.call(site.schema.operator, *pair, right=right)
    return site.cast(found, I32) if site.flag("out_int32") else found


HOW = MappingProxyType(
    {
        **{"total": build_total, "norm": build_norm, "running": build_running},
        **{"extremum": build_extremum, "truth": build_truth, "spread": build_spread},
        **{"logsumexp": build_logsumexp, "pick": build_pick, "picked": build_picked},
        **{"order": build_order, "argsort": build_argsort, "search": build_search},
    }
)
"""The words of the table that are explained here."""
