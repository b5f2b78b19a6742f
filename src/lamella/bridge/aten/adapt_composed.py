"""Adapters of ATen calls that several operators say together: order statistics, shifts, filtered images, losses."""

from __future__ import annotations

from types import MappingProxyType

from lamella.base.dtype import BOOL, F64, I64
from lamella.bridge.aten.nodes import Result
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


# --- elementwise --------------------------------------------------------------------------------------------


def build_shift(site: CallSite) -> Result:
    """An integer times a power of two, which wraps round, or divided by it, rounded down."""
    operand, count = site.tensor("self"), site.integer("other")
    if not operand.element.is_integer:
        site.refuse("self", "integers are possible")
    most = operand.element.bits - 2
    if not 0 <= count <= most:
        site.refuse("other", f"numbers from 0 to {most} are possible")
    operator = (
        "aten.mul" if "lshift" in site.schema.name or "left" in site.schema.name else "aten.floor_divide"
    )
    return site.call(operator, operand, site.cast(1 << count, operand.element))


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
        **{"kth": build_kth, "middle": build_middle, "shift": build_shift},
        **{"filtered": build_filtered, "multilabel_margin": build_multilabel_margin},
    }
)
"""Adapters of what several operators say, by the words of the table."""
