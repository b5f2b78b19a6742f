"""Adapters of ATen calls that several operators say together: order statistics, shifts, filtered images, losses."""

from __future__ import annotations

import math
from types import MappingProxyType

from lamella.base.dtype import BOOL, F32, F64, I64
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.promotion import result_type
from lamella.bridge.aten.site import CallSite
from lamella.graph.nodes import Tensor

# --- elements at a place of the order -----------------------------------------------------------------------


def build_kth(site: CallSite) -> Result:
    """The element at place k of each sorted row, counted from 1, and where it stood."""
    operand, dim, place = site.tensor("self"), site.integer("dim"), site.integer("k") - 1
    if place < 0:
        site.refuse("k", "numbers from 1 on are possible")
    exact = operand if operand.element.is_float else site.cast(operand, F64)
    values, places = site.call_all("aten.sort", exact, dim=dim)
    kept = [site.call("aten.select", item, dim=dim, index=place) for item in (values, places)]
    if site.flag("keepdim"):
        kept = [site.call("aten.unsqueeze", item, dim=dim) for item in kept]
    return site.cast(kept[0], operand.element), kept[1]


def build_middle(site: CallSite) -> Result:
    """The middle one of all elements, the lower of two."""
    operand = site.tensor("self")
    exact = operand if operand.element.is_float else site.cast(operand, F64)
    row = site.call("aten.view", exact, size=(-1,))
    values, _ = site.call_all("aten.median_dim", row, dim=0, keepdim=False)
    return site.cast(values, operand.element)


def build_nanmedian(site: CallSite) -> Result:
    """The middle one of the elements that are numbers, the lower of two, and where it stood."""
    operand = site.tensor("self")
    along = "dim" in site.operands
    if not along and 0 in operand.shape:
        return site.cast(math.nan, operand.element)
    row = operand if along else site.call("aten.view", operand, size=(-1,))
    dim = site.integer("dim") if along else 0
    exact = row if row.element.is_float else site.cast(row, F64)
    values, places = site.call_all("aten.sort", exact, dim=dim)
    real = site.cast(site.call("aten.logical_not", site.call("aten.isnan", values)), I64)
    last = site.call("aten.sub", site.call("aten.sum", real, dim=(dim,), keepdim=True), site.cast(1, I64))
    middle = site.call(
        "aten.clamp_min", site.call("aten.floor_divide", last, site.cast(2, I64)), site.cast(0, I64)
    )
    found = [site.call("aten.gather", item, middle, dim=dim) for item in (values, places)]
    if not site.flag("keepdim"):
        found = [site.call("aten.squeeze", item, dim=(dim,)) for item in found]
    value = site.cast(found[0], operand.element)
    return (value, found[1]) if along else value


# --- elementwise --------------------------------------------------------------------------------------------


def build_shift(site: CallSite) -> Result:
    """An integer times a power of two, which wraps round, or divided by it, rounded down."""
    operand, count = site.tensor("self"), site.scalar("other")
    if not operand.element.is_integer:
        site.refuse("self", "integers are possible")
    most = operand.element.bits - 2
    if isinstance(count, Tensor):
        element = result_type((operand, count))
        two = site.cast(2, element)
        operand, factor = site.cast(operand, element), site.call("aten.pow", two, site.cast(count, element))
    elif not isinstance(count, int) or not 0 <= count <= most:
        site.refuse("other", f"numbers from 0 to {most} are possible")
    else:
        factor = site.cast(1 << count, operand.element)
    word = site.schema.name
    operator = "aten.mul" if "lshift" in word or "left" in word else "aten.floor_divide"
    return site.call(operator, operand, factor)


def build_ignore_nan(site: CallSite) -> Result:
    """The larger or smaller one; what is no number only where both are none."""
    pair = (site.tensor("self"), site.tensor("other"))
    element = result_type(pair)
    first, second = (site.cast(item, element) for item in pair)
    found = site.call(site.schema.operator, first, second)
    if not element.is_float:
        return found
    without = site.call("aten.where", site.call("aten.isnan", second), first, found)
    return site.call("aten.where", site.call("aten.isnan", first), second, without)


def build_angle(site: CallSite) -> Result:
    """The angle of a real number: half a turn below zero."""
    operand = site.tensor("self")
    real = operand if operand.element.is_float else site.cast(operand, F32)
    turn, none = (site.cast(number, real.element) for number in (math.pi, 0.0))
    found = site.call("aten.where", site.call("aten.lt", real, none), turn, none)
    return site.call("aten.where", site.call("aten.isnan", real), real, found)


def build_ldexp(site: CallSite) -> Result:
    """A number times a power of two."""
    operand, other = site.tensor("self"), site.tensor("other")
    element = operand.element if operand.element.is_float else F32
    power = site.call("aten.exp2", site.cast(other, element))
    return site.call("aten.mul", site.cast(operand, element), power)


def build_ndtri(site: CallSite) -> Result:
    """Below which number a normally distributed one lies with a probability."""
    operand = site.tensor("self")
    real = operand if operand.element.is_float else site.cast(operand, F32)
    twice = site.call("aten.mul", real, site.cast(2.0, real.element))
    found = site.call("aten.erfinv", site.call("aten.sub", twice, site.cast(1.0, real.element)))
    return site.call("aten.mul", found, site.cast(math.sqrt(2.0), real.element))


# --- places -------------------------------------------------------------------------------------------------


def build_put(site: CallSite) -> Result:
    """Other elements at places of a tensor, counted in row-major order."""
    operand, places = site.tensor("self"), site.tensor("index")
    flat, source = site.call("aten.view", operand, size=(-1,)), site.tensor("source")
    where = (site.call("aten.view", places, size=(-1,)),)
    values = site.call("aten.view", source, size=(-1,))
    found = site.builder.call(
        "aten.index_put", flat, where, values, dims=(0,), accumulate=site.flag("accumulate")
    )
    return site.call("aten.view", found, size=operand.shape)


def build_triangle(site: CallSite) -> Result:
    """The rows and columns of the elements on one side of a diagonal."""
    row, column, offset = site.integer("row"), site.integer("col"), site.integer("offset")
    whole = site.make("aten.ones", I64, size=(row, column))
    lower = "tril" in site.schema.name
    part = site.call("aten.tril" if lower else "aten.triu", whole, diagonal=offset)
    sides = (
        (max(0, min(column, line + offset + 1)), max(0, min(column, line + offset))) for line in range(row)
    )
    count = sum(below if lower else column - before for below, before in sides)
    places = site.call("layout.nonzero", part)
    return site.cast(site.call("aten.view", places, size=(2, count)), site.element() or I64)


def build_kaiser(site: CallSite) -> Result:
    """The Kaiser window: Bessel functions of a half circle."""
    count, periodic = site.integer("window_length"), "periodic" not in site.operands or site.flag("periodic")
    beta, element = site.real("beta") if "beta" in site.operands else 12.0, site.element() or F32
    steps = max(count - (not periodic), 1)
    place = site.make("aten.arange", F32, start=0.0, end=float(count), step=1.0)
    unit = site.call("aten.mul", place, site.cast(2.0 / steps, F32))
    inner = site.call("aten.square", site.call("aten.sub", unit, site.cast(1.0, F32)))
    height = site.call("aten.relu", site.call("aten.sub", site.cast(1.0, F32), inner))
    wave = site.call("aten.mul", site.call("aten.sqrt", height), site.cast(beta, F32))
    ends = [site.call("aten.i0", item) for item in (wave, site.cast(beta, F32))]
    return site.cast(site.call("aten.div", *ends), element)


# --- images that are filtered where they shrink -------------------------------------------------------------


def build_filtered(site: CallSite) -> Result:
    """An image of another size; pixels are squares, and factors must say the size that is given."""
    operand, sizes = site.tensor("self"), site.extents("output_size")
    if site.flag("align_corners"):
        site.refuse("align_corners", "pixels that are squares are possible")
    for name, size, extent in zip(("scales_h", "scales_w"), sizes, operand.shape[-2:], strict=True):
        if site.has(name) and not (isinstance(extent, int) and site.real(name) * extent == size):
            site.refuse(name, "factors that make whole extents are possible")
    return site.call(site.schema.operator, operand, output_size=sizes)


# --- losses -------------------------------------------------------------------------------------------------


def build_multilabel_margin(site: CallSite) -> Result:
    """How far each class that is no target comes within 1 of each target; targets end at the first negative one.

    PyTorch's own decomposition gives other numbers than its kernel where rows have targets of different count.
    """
    given, target, reduction = site.tensor("self"), site.tensor("target"), site.integer("reduction")
    if len(given.shape) == 1:
        given, target = (site.call("aten.unsqueeze", item, dim=0) for item in (given, target))
        reduction = reduction or 2
    count = given.shape[1]
    zero = site.cast(0, I64)
    begun = site.cast(site.call("aten.ge", target, zero), I64)
    live = site.cast(site.call("aten.cumprod", begun, dim=1), BOOL)
    places = site.call("aten.where", live, target, zero)
    classes = site.make("aten.arange", I64, start=0, end=count, step=1)
    column = site.call("aten.unsqueeze", target, dim=2)
    same = site.call("aten.logical_and", site.call("aten.eq", column, classes), _column(site, live))
    other = site.call("aten.logical_not", site.call("aten.any", same, dim=(1,)))
    wanted = _column(site, site.call("aten.gather", given, places, dim=1))
    apart = site.call("aten.sub", site.call("aten.unsqueeze", given, dim=1), wanted)
    loss = site.call("aten.relu", site.call("aten.add", apart, site.cast(1.0, given.element)))
    counted = site.call("aten.logical_and", _column(site, live), site.call("aten.unsqueeze", other, dim=1))
    kept = site.call("aten.mul", loss, site.cast(counted, given.element))
    rows = site.call("aten.mean", site.call("aten.sum", kept, dim=(1,)), dim=(1,))
    if reduction == 0:
        return rows
    return site.call("aten.mean" if reduction == 1 else "aten.sum", rows, dim=(0,))


def _column(site: CallSite, tensor: Tensor) -> Tensor:
    return site.call("aten.unsqueeze", tensor, dim=2)


COMPOSED = MappingProxyType(
    {
        **{"kth": build_kth, "middle": build_middle, "nanmedian": build_nanmedian, "shift": build_shift},
        **{"ignore_nan": build_ignore_nan, "angle": build_angle, "ldexp": build_ldexp, "ndtri": build_ndtri},
        **{"put": build_put, "triangle": build_triangle, "kaiser": build_kaiser},
        **{"filtered": build_filtered, "multilabel_margin": build_multilabel_margin},
    }
)
"""Adapters of what several operators say, by the words of the table."""
