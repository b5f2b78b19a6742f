"""Adapters of ATen calls that compute numbers: elementwise operations, with torch's type promotion, and reductions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.base.dtype import BOOL, F64, I32, I64, U8, ElementType
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.promotion import Number, real_type, result_type
from lamella.bridge.aten.site import RENAMED, CallSite, build_plain, call_named, finish, fit_number
from lamella.graph.nodes import Shape, Tensor, Value

# --- reductions, scans and sorts along dimensions -----------------------------------------------------------


_COUNTS = ("aten.sum", "aten.prod", "aten.cumsum", "aten.cumprod")
"""What gives int64 for integers and truth values."""


def _dims(site: CallSite, name: str = "dim") -> Mapping[str, Value]:
    """The dimensions, where there are some: none at all stand for every one."""
    found = site.integers(name)
    return {name: found} if found else {}


def _keepdim(site: CallSite) -> Mapping[str, bool]:
    return {"keepdim": site.flag("keepdim")} if "keepdim" in site.operands else {}


def _reduce(site: CallSite, operand: Tensor, **attributes: Value) -> tuple[Tensor, ...]:
    """The operator of the table over some dimensions; a dtype was dealt with before."""
    given: dict[str, Value] = {**_dims(site), **_keepdim(site), **attributes}
    return site.call_all(site.schema.operator, operand, **given)


def _typed(site: CallSite) -> Tensor:
    """The operand in the type in which it is summed."""
    operand, element = site.tensor("self"), site.element()
    if element is None and site.schema.operator in _COUNTS and not operand.element.is_float:
        element = I64
    return operand if element is None else site.cast(operand, element)


def build_total(site: CallSite) -> Result:
    """Sums, products, means and norms."""
    operand = _typed(site)
    return site.padded(*_reduce(site, operand))


def build_trilinear(site: CallSite) -> Result:
    """The sum of products of three tensors that are spread over dimensions of each other.

    What the third one is spread over is summed first, so that it is a product of two.
    """
    spread = [{int(dim) for dim in site.integers(f"expand{number}")} for number in (1, 2, 3)]
    factors = [site.tensor(f"i{number}") for number in (1, 2, 3)]
    for number, dims in enumerate(spread):
        for dim in sorted(dims):
            factors[number] = site.call("aten.unsqueeze", factors[number], dim=dim)
    summed = {int(dim) for dim in site.integers("sumdim")}
    pair = site.call("aten.mul", factors[0], factors[1])
    early = tuple(sorted(summed & spread[2]))
    if early:
        pair = site.call("aten.sum", pair, dim=early, keepdim=True)
    found = site.call("aten.mul", pair, factors[2])
    return site.call("aten.sum", found, dim=tuple(sorted(summed))) if summed else found


def build_norm(site: CallSite) -> Result:
    """The norm of a vector; that of order infinity is the largest absolute value."""
    order, operand = _order(site), _typed(site)
    if order == 0:
        site.refuse("ord" if "ord" in site.operands else "p", "other numbers than 0 are possible")
    if math.isfinite(order):
        return site.padded(*_reduce(site, operand, ord=order))
    operator = "aten.amax" if order > 0 else "aten.amin"
    size = site.call("aten.abs", operand)
    return site.call(operator, size, **_dims(site), **_keepdim(site))


def _order(site: CallSite) -> float:
    """Which norm; 2 where none is said."""
    name = "ord" if "ord" in site.operands else "p"
    return site.real(name) if site.has(name) else 2.0


def build_running(site: CallSite) -> Result:
    """Running sums and products along one dimension."""
    return site.call(site.schema.operator, _typed(site), dim=site.integer("dim"))


def build_extremum(site: CallSite) -> Result:
    """The largest or smallest element; of truth values whether any or all are true."""
    operand = site.tensor("self")
    if operand.element != BOOL:
        return site.padded(*_reduce(site, operand))
    operator = "aten.any" if site.schema.operator == "aten.amax" else "aten.all"
    return site.call(operator, operand, **_dims(site), **_keepdim(site))


def build_truth(site: CallSite) -> Result:
    """Whether any or all elements are true; uint8 stays uint8, and here no dimensions are none."""
    operand, byte = site.tensor("self"), site.tensor("self").element == U8
    dims = {"dim": ()} if site.operands.get("dim") == () else {}
    (found,) = _reduce(site, site.cast(operand, BOOL) if byte else operand, **dims)
    return site.cast(found, U8) if byte else found


def build_spread(site: CallSite) -> Result:
    """Variance and standard deviation: `unbiased` is a correction of 1."""
    correction = 1.0
    if site.has("correction"):
        correction = site.real("correction")
    elif "unbiased" in site.operands:
        correction = float(site.flag("unbiased"))
    return site.padded(*_reduce(site, site.tensor("self"), correction=correction))


def build_logsumexp(site: CallSite) -> Result:
    """The logarithm of a sum of exponentials."""
    operand = site.tensor("self")
    return site.padded(*_reduce(site, site.cast(operand, real_type(operand.element))))


def build_pick(site: CallSite) -> Result:
    """The place of the largest or smallest element."""
    dim = {"dim": site.integer("dim")} if site.has("dim") else {}
    operand = _ordered(site.tensor("self"), site)
    return site.call(site.schema.operator, operand, keepdim=site.flag("keepdim"), **dim)


def build_picked(site: CallSite) -> Result:
    """The largest or smallest elements along a dimension, and their places."""
    operand = site.tensor("self")
    dim, keepdim = site.integer("dim"), site.flag("keepdim")
    values, places = site.call_all(site.schema.operator, _ordered(operand, site), dim=dim, keepdim=keepdim)
    return site.cast(values, operand.element), places


def build_median(site: CallSite) -> Result:
    """The middle elements along a dimension, and their places."""
    operand = site.tensor("self")
    dim, keepdim = site.integer("dim"), site.flag("keepdim")
    values, places = site.call_all(site.schema.operator, _sortable(operand, site), dim=dim, keepdim=keepdim)
    return site.cast(values, operand.element), places


def _ordered(operand: Tensor, site: CallSite) -> Tensor:
    """Truth values as numbers, for they are ordered too."""
    return site.cast(operand, I64) if operand.element == BOOL else operand


def _sortable(operand: Tensor, site: CallSite) -> Tensor:
    """Integers and truth values as reals, which alone are sorted: exactly up to 53 bits."""
    return operand if operand.element.is_float else site.cast(operand, F64)


def build_order(site: CallSite) -> Result:
    """The elements in order, and where they stood."""
    operand = site.tensor("self")
    if _is_empty(site):
        return site.call("aten.clone", operand), site.make("aten.zeros", I64, size=operand.shape)
    inputs = {"self": _sortable(operand, site)}
    values, places = site.flatten(call_named(site, site.schema.operator, inputs))
    return site.cast(values, operand.element), places


def build_argsort(site: CallSite) -> Result:
    """Where the elements stood that are put in order."""
    operand = site.tensor("self")
    if _is_empty(site):
        return site.make("aten.zeros", I64, size=operand.shape)
    inputs = {"self": _sortable(operand, site)}
    return site.flatten(call_named(site, "aten.sort", inputs))[1]


def _is_empty(site: CallSite) -> bool:
    """Whether there is nothing to put in order."""
    return site.schema.operator == "aten.sort" and 0 in site.tensor("self").shape


def build_search(site: CallSite) -> Result:
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


REDUCTIONS = MappingProxyType(
    {
        **{"total": build_total, "norm": build_norm, "running": build_running},
        **{"extremum": build_extremum, "truth": build_truth, "spread": build_spread},
        **{"logsumexp": build_logsumexp, "pick": build_pick, "picked": build_picked},
        **{"median": build_median, "trilinear": build_trilinear},
        **{"order": build_order, "argsort": build_argsort, "search": build_search},
    }
)
"""Adapters of reductions, scans and sorts, by the words of the table."""


# --- elementwise operations, their operands promoted to one type as torch does it ---------------------------


_OF_TRUTHS = MappingProxyType(
    {
        **{"aten.add": "aten.logical_or", "aten.mul": "aten.logical_and"},
        **{"aten.minimum": "aten.logical_and", "aten.maximum": "aten.logical_or"},
        **{"aten.min_other": "aten.logical_and", "aten.max_other": "aten.logical_or"},
    }
)
"""What arithmetic means where both operands are truth values."""


def build_real(site: CallSite) -> Result:
    """A function whose result has fractions: integers become float32."""
    operand = site.tensor("self")
    inputs = {"self": site.cast(operand, real_type(operand.element))}
    return finish(site, call_named(site, site.schema.operator, inputs))


def build_whole(site: CallSite) -> Result:
    """Rounding, which leaves integers as they are."""
    operand = site.tensor("self")
    return build_plain(site) if operand.element.is_float else site.call("aten.clone", operand)


def build_finite(site: CallSite) -> Result:
    """Whether elements are no number or infinite, which integers never are."""
    operand = site.tensor("self")
    if operand.element.is_float:
        return build_plain(site)
    return site.call("aten.eq" if site.schema.operator == "aten.isfinite" else "aten.ne", operand, operand)


def build_relu(site: CallSite) -> Result:
    """The rectifier, of integers too."""
    operand = site.tensor("self")
    if operand.element.is_float:
        return build_plain(site)
    return site.call("aten.clamp_min", operand, site.cast(0, operand.element))


def build_magnitude(site: CallSite) -> Result:
    """The absolute value or the sign, which truth values are themselves."""
    operand = site.tensor("self")
    return site.call("aten.clone", operand) if operand.element == BOOL else build_plain(site)


def operand_pair(site: CallSite) -> tuple[Tensor | Number, Tensor | Number]:
    """Both operands of an operation, whatever the second is called."""
    second = RENAMED.get(site.schema.operator, {}).get("other", "other")
    return site.scalar("self"), site.scalar(second)


def cast_all(site: CallSite, operands: Sequence[Tensor | Number], element: ElementType) -> tuple[Tensor, ...]:
    """All operands in one type."""
    return tuple(site.cast(item, element) for item in operands)


def build_arithmetic(site: CallSite) -> Result:
    """Sums and products, in the common type; of truth values they are `or` and `and`."""
    pair = operand_pair(site)
    element, operator = result_type(pair), site.schema.operator
    left, right = cast_all(site, pair, element)
    if element == BOOL and operator in _OF_TRUTHS:
        return site.call(_OF_TRUTHS[operator], left, right)
    if "alpha" not in site.operands:
        return site.call(operator, left, right)
    return site.call(operator, left, right, alpha=fit_number(site.number("alpha"), element))


def build_square(site: CallSite) -> Result:
    """Squares; those of truth values are integers."""
    operand = site.tensor("self")
    return site.call("aten.square", site.cast(operand, I64) if operand.element == BOOL else operand)


def build_common(site: CallSite) -> Result:
    """An operation on the common type of its operands."""
    pair = operand_pair(site)
    return site.call(site.schema.operator, *cast_all(site, pair, result_type(pair)))


def build_division(site: CallSite) -> Result:
    """Division: without rounding its result has fractions, with it the common type."""
    pair = operand_pair(site)
    element = result_type(pair)
    mode = site.word("rounding_mode") if site.has("rounding_mode") else None
    if mode is None or element.is_float:
        left, right = cast_all(site, pair, real_type(element))
        return site.call("aten.div", left, right, rounding_mode=mode)
    left, right = cast_all(site, pair, element)
    if mode == "floor":
        return site.call("aten.floor_divide", left, right)
    return _divide_towards_zero(site, left, right)


def _divide_towards_zero(site: CallSite, left: Tensor, right: Tensor) -> Tensor:
    """What is left over, taken away, leaves a multiple of the divisor."""
    over = site.call("aten.fmod", left, right)
    return site.call("aten.floor_divide", site.call("aten.sub", left, over), right)


def build_real_pair(site: CallSite) -> Result:
    """A function of two operands whose result has fractions."""
    pair = operand_pair(site)
    return site.call(site.schema.operator, *cast_all(site, pair, real_type(result_type(pair))))


def build_logit(site: CallSite) -> Result:
    """The inverse of the sigmoid, of integers too."""
    operand = site.tensor("self")
    eps = site.real("eps") if site.has("eps") else None
    return site.call(site.schema.operator, site.cast(operand, real_type(operand.element)), eps=eps)


def build_nan_to_num(site: CallSite) -> Result:
    """Numbers in place of what is none; infinity becomes the largest number of the type."""
    operand = site.tensor("self")
    if not operand.element.is_float:
        return site.call("aten.clone", operand)
    largest = operand.element.largest
    defaults = {"nan": 0.0, "posinf": largest, "neginf": -largest}
    given = {name: site.real(name) if site.has(name) else value for name, value in defaults.items()}
    return site.call(site.schema.operator, operand, **given)


def build_power(site: CallSite) -> Result:
    """Powers in the common type; of truth values they are computed with numbers."""
    pair = operand_pair(site)
    element = result_type(pair)
    if element == BOOL:
        power = site.call("aten.pow", *cast_all(site, pair, I64))
        return site.cast(power, BOOL)
    return site.call("aten.pow", *cast_all(site, pair, element))


def build_compare(site: CallSite) -> Result:
    """Comparisons in the common type; truth values are ordered as 0 and 1."""
    pair = operand_pair(site)
    element = result_type(pair)
    if element == BOOL and site.schema.operator not in ("aten.eq", "aten.ne"):
        element = I64
    return site.call(site.schema.operator, *cast_all(site, pair, element))


def build_where(site: CallSite) -> Result:
    """A choice between two operands in their common type."""
    pair = operand_pair(site)
    condition = site.cast(site.tensor("condition"), BOOL)
    return site.call("aten.where", condition, *cast_all(site, pair, result_type(pair)))


def build_replace(site: CallSite) -> Result:
    """A value in place of elements, in the type of the elements."""
    operand = site.tensor("self")
    value = site.cast(site.scalar("value"), operand.element)
    if "mask" not in site.operands:
        return site.call(site.schema.operator, operand, value)
    return site.call(site.schema.operator, operand, site.cast(site.tensor("mask"), BOOL), value)


def build_clamp(site: CallSite) -> Result:
    """Elements kept within bounds; bounds of more dimensions than the elements are compared one by one."""
    bounds = {name: site.scalar(name) for name in ("min", "max") if site.has(name)}
    element = result_type((site.tensor("self"), *bounds.values()))
    found = site.cast(site.tensor("self"), element)
    limits = {name: site.cast(value, element) for name, value in bounds.items()}
    if element != BOOL and all(_fits(limit.shape, found.shape) for limit in limits.values()):
        given = [limits.get(name) for name in ("min", "max") if name in site.operands]
        return site.call(site.schema.operator, found, *given)
    for name, limit in limits.items():
        operator = "aten.maximum" if name == "min" else "aten.minimum"
        found = site.call(_OF_TRUTHS[operator] if element == BOOL else operator, found, limit)
    return found


def _fits(part: Shape, whole: Shape) -> bool:
    """Whether a shape is broadcast to another that stays as it is."""
    behind = whole[len(whole) - len(part) :]
    return len(part) <= len(whole) and all(a in (1, b) for a, b in zip(part, behind, strict=True))


def build_fused(site: CallSite) -> Result:
    """A product or quotient added to a tensor, all of one shape, or broadcast step by step."""
    names = ("self", "tensor1", "tensor2")
    tensors = [site.tensor(name) for name in names]
    element = result_type(tensors)
    first, second, third = cast_all(site, tensors, element)
    value = fit_number(site.number("value"), element)
    if element.is_float and first.shape == second.shape == third.shape:
        return site.call(site.schema.operator, first, second, third, value=value)
    divided = site.schema.operator == "aten.addcdiv"
    part = site.call("aten.div" if divided else "aten.mul", second, third)
    return site.call("aten.add", first, part, alpha=value)


def build_prelu_kernel(site: CallSite) -> Result:
    """The learnt slope of negative elements, its shape made to fit already."""
    operand = site.tensor("self")
    scaled = site.call("aten.mul", operand, site.tensor("weight"))
    positive = site.call("aten.gt", operand, site.cast(0, operand.element))
    return site.call("aten.where", positive, operand, scaled)


def build_convert(site: CallSite) -> Result:
    """Elements in another type; without one, a copy."""
    operand = site.tensor("self")
    element = site.element()
    if element is None:
        return site.call("aten.clone", operand)
    return site.make("aten.to_copy", element, operand)


ELEMENTWISE = MappingProxyType(
    {
        **{"real": build_real, "whole": build_whole, "finite": build_finite, "relu": build_relu},
        **{"magnitude": build_magnitude, "arithmetic": build_arithmetic, "common": build_common},
        **{
            "division": build_division,
            "power": build_power,
            "square": build_square,
            "extreme": build_arithmetic,
        },
        **{"compare": build_compare, "where": build_where, "replace": build_replace, "clamp": build_clamp},
        **{"fused": build_fused, "prelu_kernel": build_prelu_kernel},
        **{"convert": build_convert},
        **{"real_pair": build_real_pair, "logit": build_logit, "nan_to_num": build_nan_to_num},
    }
)
"""Adapters of elementwise operations, by the words of the table."""
