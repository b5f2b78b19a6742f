"""Adapters of ATen calls that draw random numbers, by the operators of `rand`; the generator is ours."""

from __future__ import annotations

import math
from types import MappingProxyType

from lamella.base.dtype import F32, F64, I64, ElementType
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.site import CallSite
from lamella.graph.nodes import Shape, Tensor


def _uniform(
    site: CallSite, shape: Shape, low: float = 0.0, high: float = 1.0, element: ElementType = F32
) -> Tensor:
    return site.make("rand.uniform", element, min=low, max=high, shape=shape)


def _normal(site: CallSite, shape: Shape, mean: float = 0.0, deviation: float = 1.0) -> Tensor:
    return site.call("rand.normal", mean=mean, std=deviation, shape=shape)


def _shape(site: CallSite) -> Shape:
    """The shape that is given, or that of the tensor that is drawn anew."""
    return site.extents("size") if "size" in site.operands else site.tensor("self").shape


def _result(site: CallSite, drawn: Tensor) -> Tensor:
    """What is drawn in the type that is asked for, else that of the tensor that is drawn anew, else f32."""
    operand = site.operands.get("self")
    return site.cast(drawn, site.element() or (operand.element if isinstance(operand, Tensor) else F32))


def build_uniform(site: CallSite) -> Result:
    """Equally likely numbers from 0, or `from`, up to but not including 1, or `to`."""
    low, high = (
        site.real(name) if name in site.operands else end for name, end in (("from", 0.0), ("to", 1.0))
    )
    return _result(site, _uniform(site, _shape(site), low, high))


def build_normal(site: CallSite) -> Result:
    """Normally distributed numbers of a mean and a deviation, which may be tensors."""
    mean, deviation = (
        site.scalar(name) if name in site.operands else other for name, other in (("mean", 0.0), ("std", 1.0))
    )
    if isinstance(mean, int | float) and isinstance(deviation, int | float):
        return _result(site, _normal(site, _shape(site), float(mean), float(deviation)))
    element = next(item.element for item in (mean, deviation) if isinstance(item, Tensor))
    middle, width = site.cast(mean, element), site.cast(deviation, element)
    shape = site.call("aten.add", middle, width).shape
    spread = site.call("aten.mul", site.cast(_normal(site, shape), element), width)
    return site.call("aten.add", spread, middle)


def build_log_normal(site: CallSite) -> Result:
    """Numbers whose logarithms are normally distributed."""
    drawn = _normal(site, _shape(site), site.real("mean"), site.real("std"))
    return _result(site, site.call("aten.exp", drawn))


def build_integers(site: CallSite) -> Result:
    """Equally likely integers from `low` up to but not including `high`."""
    names = ("low", "high") if "high" in site.operands else ("from", "to")
    low = site.integer(names[0]) if site.has(names[0]) else 0
    high = site.integer(names[1]) if site.has(names[1]) else 1 << 24
    if not low < high:
        site.refuse(names[1], f"numbers above {low} are possible")
    operand = site.operands.get("self")
    element = site.element() or (operand.element if isinstance(operand, Tensor) else I64)
    return site.cast(_uniform(site, _shape(site), low, high, I64), element)


def build_permutation(site: CallSite) -> Result:
    """The numbers below `n` in an order that is drawn."""
    keys = _uniform(site, (site.extent("n"),), element=F64)
    _, order = site.call_all("aten.sort", keys, dim=0)
    return site.cast(order, site.element() or I64)


def build_bernoulli(site: CallSite) -> Result:
    """One with a probability, which may be a tensor of them, else zero."""
    operand = site.tensor("self")
    chance = site.scalar("p") if "p" in site.operands else operand
    drawn = _uniform(site, operand.shape)
    return site.cast(site.call("aten.lt", drawn, site.cast(chance, F32)), operand.element)


def build_exponential(site: CallSite) -> Result:
    """Exponentially distributed numbers of a rate."""
    drawn = _exponential(site, _shape(site))
    return _result(site, site.call("aten.div", drawn, site.cast(site.real("lambd"), F32)))


def _exponential(site: CallSite, shape: Shape) -> Tensor:
    below_one = site.call("aten.neg", _uniform(site, shape))
    return site.call("aten.neg", site.call("aten.log1p", below_one))


def build_cauchy(site: CallSite) -> Result:
    """Cauchy-distributed numbers about a median."""
    angle = _uniform(site, _shape(site), -math.pi / 2, math.pi / 2)
    wide = site.call("aten.mul", site.call("aten.tan", angle), site.cast(site.real("sigma"), F32))
    return _result(site, site.call("aten.add", wide, site.cast(site.real("median"), F32)))


def build_geometric(site: CallSite) -> Result:
    """How many trials of a probability it takes until one succeeds."""
    chance = site.real("p")
    if not 0 < chance < 1:
        site.refuse("p", "probabilities between 0 and 1 are possible")
    scaled = site.call("aten.div", _exponential(site, _shape(site)), site.cast(-math.log1p(-chance), F32))
    whole = site.call("aten.ceil", scaled)
    return _result(site, site.call("aten.clamp_min", whole, site.cast(1.0, F32)))


def build_multinomial(site: CallSite) -> Result:
    """Places drawn by their weights: with replacement by the running sum, without it the first of a race."""
    weights, count = site.cast(site.tensor("self"), F32), site.extent("num_samples")
    if not site.flag("replacement"):
        speeds = site.call("aten.div", weights, _exponential(site, weights.shape))
        _, places = site.call_all("aten.topk", speeds, k=count, dim=-1)
        return places
    sums = site.call("aten.cumsum", weights, dim=-1)
    total = site.call("aten.slice", sums, dim=len(weights.shape) - 1, start=-1)
    drawn = _uniform(site, (*weights.shape[:-1], count))
    return site.call("aten.searchsorted", sums, site.call("aten.mul", drawn, total), right=True)


# --- dropout in training ------------------------------------------------------------------------------------


def build_dropout(site: CallSite) -> Result:
    """In training numbers are dropped at random, features whole, and the others grow; else all are kept."""
    operand, chance = site.tensor("input"), site.real("p")
    if not site.flag("train"):
        return site.call_all(site.schema.operator, operand) if _tells_kept(site) else _all_kept(site)
    whole = "feature" in site.schema.name
    shape = (*operand.shape[:2], *[1] * (len(operand.shape) - 2)) if whole else operand.shape
    kept = site.call("aten.ge", _uniform(site, shape), site.cast(chance, F32))
    grown = site.call(
        "aten.mul", operand, site.cast(0.0 if chance >= 1 else 1 / (1 - chance), operand.element)
    )
    found = site.call("aten.mul", grown, site.cast(kept, operand.element))
    return (found, kept) if _tells_kept(site) else found


def _tells_kept(site: CallSite) -> bool:
    return len(site.schema.results) > 1


def _all_kept(site: CallSite) -> Result:
    return site.padded(site.call("aten.dropout", site.tensor("input")))


ALPHA = 1.7580993408473766
"""What SELU gives far below zero, negated: dropped numbers become that, and the rest is scaled."""


def build_alpha_dropout(site: CallSite) -> Result:
    """Dropout that keeps the mean and the variance of what SELU gives."""
    operand, chance = site.tensor("input"), site.real("p")
    if not site.flag("train") or chance == 0:
        return _all_kept(site)
    if chance >= 1:
        return site.call("aten.mul", operand, site.cast(0.0, operand.element))
    kept = site.call("aten.ge", _uniform(site, operand.shape), site.cast(chance, F32))
    scale = 1 / math.sqrt((1 - chance) * (1 + chance * ALPHA**2))
    chosen = site.call("aten.where", kept, operand, site.cast(-ALPHA, operand.element))
    scaled = site.call("aten.mul", chosen, site.cast(scale, operand.element))
    return site.call("aten.add", scaled, site.cast(scale * ALPHA * chance, operand.element))


def build_slopes(site: CallSite) -> Result:
    """Below zero a slope that training draws and evaluation takes from the middle; and the slopes."""
    operand, ends = site.tensor("self"), (site.real("lower"), site.real("upper"))
    if not site.flag("training"):
        return site.call("aten.leaky_relu", operand, negative_slope=sum(ends) / 2), site.tensor("noise")
    drawn = site.cast(_uniform(site, operand.shape, *ends), operand.element)
    below = site.call("aten.le", operand, site.cast(0.0, operand.element))
    slopes = site.call("aten.where", below, drawn, site.cast(1.0, operand.element))
    return site.call("aten.mul", operand, slopes), slopes


RANDOM = MappingProxyType(
    {
        **{"uniform": build_uniform, "normal": build_normal, "log_normal": build_log_normal},
        **{"integers": build_integers, "permutation": build_permutation, "bernoulli": build_bernoulli},
        **{"exponential": build_exponential, "cauchy": build_cauchy, "geometric": build_geometric},
        **{"multinomial": build_multinomial, "dropout": build_dropout, "native_dropout": build_dropout},
        **{"alpha_dropout": build_alpha_dropout, "slopes": build_slopes},
    }
)
"""Adapters of calls that draw numbers, by the words of the table."""
