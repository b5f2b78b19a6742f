"""Operations that work element by element: their operands are brought to one type as torch does it."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from lamella.base.dtype import BOOL, I64, ElementType
from lamella.bridge.aten.adapt.plain import RENAMED, build_plain, call_named, finish
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.promotion import Number, real_type, result_type
from lamella.bridge.aten.site import Site, fit_number
from lamella.graph.nodes import Shape, Tensor

_OF_TRUTHS = MappingProxyType(
    {
        **{"aten.add": "aten.logical_or", "aten.mul": "aten.logical_and"},
        **{"aten.minimum": "aten.logical_and", "aten.maximum": "aten.logical_or"},
        **{"aten.min_other": "aten.logical_and", "aten.max_other": "aten.logical_or"},
    }
)
"""What arithmetic means where both operands are truth values."""


def build_real(site: Site) -> Result:
    """A function whose result has fractions: integers become float32."""
    operand = site.tensor("self")
    inputs = {"self": site.cast(operand, real_type(operand.element))}
    return finish(site, call_named(site, site.schema.operator, inputs))


def build_whole(site: Site) -> Result:
    """Rounding, which leaves integers as they are."""
    operand = site.tensor("self")
    return build_plain(site) if operand.element.is_float else site.call("aten.clone", operand)


def build_finite(site: Site) -> Result:
    """Whether elements are no number or infinite, which integers never are."""
    operand = site.tensor("self")
    if operand.element.is_float:
        return build_plain(site)
    return site.call("aten.eq" if site.schema.operator == "aten.isfinite" else "aten.ne", operand, operand)


def build_relu(site: Site) -> Result:
    """The rectifier, of integers too."""
    operand = site.tensor("self")
    if operand.element.is_float:
        return build_plain(site)
    return site.call("aten.clamp_min", operand, site.cast(0, operand.element))


def build_magnitude(site: Site) -> Result:
    """The absolute value or the sign, which truth values are themselves."""
    operand = site.tensor("self")
    return site.call("aten.clone", operand) if operand.element == BOOL else build_plain(site)


def operand_pair(site: Site) -> tuple[Tensor | Number, Tensor | Number]:
    """Both operands of an operation, whatever the second is called."""
    second = RENAMED.get(site.schema.operator, {}).get("other", "other")
    return site.scalar("self"), site.scalar(second)


def cast_all(site: Site, operands: Sequence[Tensor | Number], element: ElementType) -> tuple[Tensor, ...]:
    """All operands in one type."""
    return tuple(site.cast(item, element) for item in operands)


def build_arithmetic(site: Site) -> Result:
    """Sums and products, in the common type; of truth values they are `or` and `and`."""
    pair = operand_pair(site)
    element, operator = result_type(pair), site.schema.operator
    left, right = cast_all(site, pair, element)
    if element == BOOL and operator in _OF_TRUTHS:
        return site.call(_OF_TRUTHS[operator], left, right)
    if "alpha" not in site.operands:
        return site.call(operator, left, right)
    return site.call(operator, left, right, alpha=fit_number(site.number("alpha"), element))


def build_square(site: Site) -> Result:
    """Squares; those of truth values are integers."""
    operand = site.tensor("self")
    return site.call("aten.square", site.cast(operand, I64) if operand.element == BOOL else operand)


def build_common(site: Site) -> Result:
    """An operation on the common type of its operands."""
    pair = operand_pair(site)
    return site.call(site.schema.operator, *cast_all(site, pair, result_type(pair)))


def build_division(site: Site) -> Result:
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


def _divide_towards_zero(site: Site, left: Tensor, right: Tensor) -> Tensor:
    """What is left over, taken away, leaves a multiple of the divisor."""
    over = site.call("aten.fmod", left, right)
    return site.call("aten.floor_divide", site.call("aten.sub", left, over), right)


def build_real_pair(site: Site) -> Result:
    """A function of two operands whose result has fractions."""
    pair = operand_pair(site)
    return site.call(site.schema.operator, *cast_all(site, pair, real_type(result_type(pair))))


def build_logit(site: Site) -> Result:
    """The inverse of the sigmoid, of integers too."""
    operand = site.tensor("self")
    eps = site.real("eps") if site.has("eps") else None
    return site.call(site.schema.operator, site.cast(operand, real_type(operand.element)), eps=eps)


def build_nan_to_num(site: Site) -> Result:
    """Numbers in place of what is none; infinity becomes the largest number of the type."""
    operand = site.tensor("self")
    if not operand.element.is_float:
        return site.call("aten.clone", operand)
    largest = operand.element.largest
    defaults = {"nan": 0.0, "posinf": largest, "neginf": -largest}
    given = {name: site.real(name) if site.has(name) else value for name, value in defaults.items()}
    return site.call(site.schema.operator, operand, **given)


def build_power(site: Site) -> Result:
    """Powers in the common type; of truth values they are computed with numbers."""
    pair = operand_pair(site)
    element = result_type(pair)
    if element == BOOL:
        power = site.call("aten.pow", *cast_all(site, pair, I64))
        return site.cast(power, BOOL)
    return site.call("aten.pow", *cast_all(site, pair, element))


def build_compare(site: Site) -> Result:
    """Comparisons in the common type; truth values are ordered as 0 and 1."""
    pair = operand_pair(site)
    element = result_type(pair)
    if element == BOOL and site.schema.operator not in ("aten.eq", "aten.ne"):
        element = I64
    return site.call(site.schema.operator, *cast_all(site, pair, element))


def build_where(site: Site) -> Result:
    """A choice between two operands in their common type."""
    pair = operand_pair(site)
    condition = site.cast(site.tensor("condition"), BOOL)
    return site.call("aten.where", condition, *cast_all(site, pair, result_type(pair)))


def build_replace(site: Site) -> Result:
    """A value in place of elements, in the type of the elements."""
    operand = site.tensor("self")
    value = site.cast(site.scalar("value"), operand.element)
    if "mask" not in site.operands:
        return site.call(site.schema.operator, operand, value)
    return site.call(site.schema.operator, operand, site.cast(site.tensor("mask"), BOOL), value)


def build_clamp(site: Site) -> Result:
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


def build_fused(site: Site) -> Result:
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


def build_prelu_kernel(site: Site) -> Result:
    """The learnt slope of negative elements, its shape made to fit already."""
    operand = site.tensor("self")
    scaled = site.call("aten.mul", operand, site.tensor("weight"))
    positive = site.call("aten.gt", operand, site.cast(0, operand.element))
    return site.call("aten.where", positive, operand, scaled)


def build_dropout(site: Site) -> Result:
    """Nothing is dropped outside training."""
    if site.flag("train") and site.operands.get("p") != 0:
        site.refuse("train", "a graph computes what a model gives after training: export it in eval mode")
    return site.padded(site.call("aten.dropout", site.tensor("input")))


def build_native_dropout(site: Site) -> Result:
    """Nothing is dropped outside training, and the mask says so."""
    if site.flag("train") and site.operands.get("p") != 0:
        site.refuse("train", "a graph computes what a model gives after training: export it in eval mode")
    return site.call_all(site.schema.operator, site.tensor("input"))


def build_convert(site: Site) -> Result:
    """Elements in another type; without one, a copy."""
    operand = site.tensor("self")
    element = site.element()
    if element is None:
        return site.call("aten.clone", operand)
    return site.make("aten.to_copy", element, operand)


HOW = MappingProxyType(
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
        **{"fused": build_fused, "prelu_kernel": build_prelu_kernel, "dropout": build_dropout},
        **{"convert": build_convert, "native_dropout": build_native_dropout},
        **{"real_pair": build_real_pair, "logit": build_logit, "nan_to_num": build_nan_to_num},
    }
)
"""The words of the table that are explained here."""
