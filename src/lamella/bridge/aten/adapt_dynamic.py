"""Adapters of ATen calls whose results have extents that only the run tells: selections, different elements, counts."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from lamella.base.dtype import F32, F64, I64
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.site import CallSite, fit_number, volume
from lamella.graph.nodes import Tensor

LARGEST_COUNT = 1 << 20
"""The largest number of a tensor that becomes an extent."""


def count_up(site: CallSite, count: Tensor) -> Tensor:
    """The numbers from 0 on below the one that a tensor without dimensions holds."""
    return site.call("layout.dynamic_range", site.cast(count, I64), limit=LARGEST_COUNT)


def build_masked_select(site: CallSite) -> Result:
    """The elements where a mask holds; both are stretched to one shape."""
    operand, mask = site.tensor("self"), site.tensor("mask")
    if operand.shape == mask.shape:
        return site.call("aten.masked_select", operand, mask)
    shape = site.call("aten.where", mask, operand, operand).shape
    stretched = [
        item if item.shape == shape else site.call("aten.expand", item, size=shape)
        for item in (operand, mask)
    ]
    return site.call("aten.masked_select", *stretched)


def build_masked_scatter(site: CallSite) -> Result:
    """Elements one after the other where a mask holds; of a number that only the run tells there may be none."""
    operand, source = site.tensor("self"), site.tensor("source")
    if not isinstance(volume(source.shape), int):
        flat = site.call("aten.view", source, size=(volume(source.shape),))
        spare = site.builder.constant(fit_number(0, source.element), source.element, (1,))
        source = site.builder.call("aten.cat", (flat, spare), dim=0)
    return site.call("aten.masked_scatter", operand, site.tensor("mask"), source)


def _sortable(site: CallSite, operand: Tensor) -> Tensor:
    """A tensor whose elements can be ordered: integers as floats of 64 bits."""
    return operand if operand.element.is_float else site.cast(operand, F64)


def build_unique(site: CallSite) -> Result:
    """The different elements in their order."""
    operand = site.tensor("self")
    found, *others = site.call_all("algo.unique", _sortable(site, operand))
    return site.cast(found, operand.element), *_asked(site, others)


def _asked(site: CallSite, others: Sequence[Tensor]) -> list[Tensor | None]:
    """Places and counts, where a call asks for them."""
    names = ("return_inverse", "return_counts")[: len(site.schema.results) - 1]
    return [item if site.flag(name) else None for name, item in zip(names, others, strict=False)]


def build_unique_dim(site: CallSite) -> Result:
    """The different slices along a dimension, in the order of their elements."""
    operand, dim = site.tensor("self"), site.integer("dim")
    moved = site.call("aten.transpose", operand, dim0=0, dim1=dim)
    flat = site.call("aten.flatten", _sortable(site, moved), start_dim=1) if len(moved.shape) > 1 else None
    rows = site.call("aten.view", _sortable(site, moved), size=(-1, 1)) if flat is None else flat
    found, *others = site.call_all("algo.unique_rows", rows)
    shaped = site.call("aten.view", found, size=(found.shape[0], *moved.shape[1:]))
    return site.cast(site.call("aten.transpose", shaped, dim0=0, dim1=dim), operand.element), *_asked(
        site, others
    )


def build_unique_runs(site: CallSite) -> Result:
    """Each run of equal elements once."""
    if site.has("dim"):
        site.refuse("dim", "runs of single elements are possible")
    found, *others = site.call_all("algo.unique_runs", site.tensor("self"))
    return found, *_asked(site, others)


def build_bincount(site: CallSite) -> Result:
    """How often each number occurs, or the sums of their weights."""
    operand, least = site.cast(site.tensor("self"), I64), site.integer("minlength")
    ends = site.call("aten.add", operand, site.cast(1, I64))
    bound = site.builder.constant(least, I64, (1,))
    largest = site.call("aten.amax", site.builder.call("aten.cat", (ends, bound), dim=0), dim=(0,))
    weights = (
        site.tensor("weights") if site.has("weights") else site.make("aten.ones", I64, size=operand.shape)
    )
    if weights.element != F32 and site.has("weights"):
        weights = site.cast(weights, F64)
    return site.call("algo.bincount", operand, weights, count_up(site, largest))


def build_repeats(site: CallSite) -> Result:
    """The number of each place, as often as it says there."""
    repeats = site.cast(site.tensor("repeats"), I64)
    ends = site.call("aten.cumsum", repeats, dim=0)
    if site.has("output_size"):
        places = site.make("aten.arange", I64, start=0, end=site.extent("output_size"), step=1)
    else:
        places = count_up(site, site.call("aten.sum", repeats, dim=(0,)))
    found = site.call("aten.searchsorted", ends, places, right=True)
    return site.cast(found, site.tensor("repeats").element)


def build_nonzero_static(site: CallSite) -> Result:
    """The first positions of elements that are not zero, and behind them a number that is given."""
    operand, size = site.tensor("self"), site.extent("size")
    places = site.call("aten.nonzero", operand)
    value = site.cast(site.integer("fill_value"), I64)
    rest = site.call("aten.full", value, size=(size, len(operand.shape)))
    joined = site.builder.call("aten.cat", (places, rest), dim=0)
    return site.call("aten.slice", joined, dim=0, start=0, end=size)


DYNAMIC = MappingProxyType(
    {
        **{
            "masked_select": build_masked_select,
            "masked_scatter": build_masked_scatter,
            "bincount": build_bincount,
            "repeats": build_repeats,
        },
        **{"unique": build_unique, "unique_runs": build_unique_runs, "unique_dim": build_unique_dim},
        "nonzero_static": build_nonzero_static,
    }
)
"""Adapters of calls whose results the run shapes, by the words of the table."""
