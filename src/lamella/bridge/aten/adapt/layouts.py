"""Operations that move elements: shapes, parts, joints, places."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from lamella.base.dim import Extent, equal
from lamella.base.dtype import BOOL, I64, U8
from lamella.bridge.aten.adapt.plain import call_named, finish
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.promotion import result_type
from lamella.bridge.aten.site import Site
from lamella.graph.nodes import Shape, Tensor


def build_squeeze(site: Site) -> Result:
    """Dimensions of extent 1 left out: the given ones, or all."""
    operand = site.tensor("self")
    dims = {"dim": site.integers("dim")} if "dim" in site.operands else {}
    return site.call("aten.squeeze", operand, **dims)


def build_view(site: Site) -> Result:
    """Another shape; of an empty tensor the extent that is left to tell is 0."""
    operand = site.tensor("self")
    name = "shape" if site.schema.operator == "aten.reshape" else "size"
    extents = site.extents(name)
    if 0 in operand.shape and 0 not in extents:
        extents = tuple(0 if item == -1 else item for item in extents)
    return site.call(site.schema.operator, operand, **{name: extents})


def build_view_as(site: Site) -> Result:
    """The shape of another tensor."""
    name = "shape" if site.schema.operator == "aten.reshape" else "size"
    return site.call(site.schema.operator, site.tensor("self"), **{name: site.tensor("other").shape})


def build_swap(site: Site) -> Result:
    """Two dimensions exchanged, under other names."""
    names = ("axis0", "axis1") if "axis0" in site.operands else ("dim0", "dim1")
    first, second = (site.integer(name) for name in names)
    return site.call("aten.transpose", site.tensor("self"), dim0=first, dim1=second)


def build_reverse(site: Site) -> Result:
    """All dimensions in reverse order."""
    operand = site.tensor("self")
    return site.call("aten.permute", operand, dims=tuple(reversed(range(len(operand.shape)))))


def build_last_two(site: Site) -> Result:
    """The last two dimensions exchanged."""
    return site.call("aten.transpose", site.tensor("self"), dim0=-2, dim1=-1)


def build_movedim(site: Site) -> Result:
    """Some dimensions at other places, the others in their order."""
    operand = site.tensor("self")
    rank = len(operand.shape)
    sources = [item % max(rank, 1) for item in site.integers("source")]
    targets = [item % max(rank, 1) for item in site.integers("destination")]
    given = (*site.integers("source"), *site.integers("destination"))
    inside = all(-rank <= item < rank for item in given)
    if not inside or not len(set(sources)) == len(sources) == len(set(targets)) == len(targets):
        site.refuse("source", f"as many different dimensions of {rank} as 'destination' has are possible")
    rest = iter([item for item in range(rank) if item not in sources])
    placed = dict(zip(targets, sources, strict=True))
    order = tuple(placed[place] if place in placed else next(rest) for place in range(rank))
    return site.call("aten.permute", operand, dims=order)


def build_copy(site: Site) -> Result:
    """Another tensor's elements, in the type and shape of the first."""
    operand = site.tensor("self")
    return site.call("aten.copy", operand, site.cast(site.scalar("src"), operand.element))


def build_repeat_interleave(site: Site) -> Result:
    """Each element several times; without a dimension the tensor is flattened."""
    operand, repeats = site.tensor("self"), site.extent("repeats")
    if not site.has("dim"):
        operand = site.call("aten.flatten", operand)
    dim = site.integer("dim") if site.has("dim") else 0
    return site.call("aten.repeat_interleave", operand, repeats=repeats, dim=dim)


def build_roll(site: Site) -> Result:
    """Elements moved round; without dimensions in the order of memory."""
    operand, shifts, dims = site.tensor("self"), site.extents("shifts"), site.integers("dims")
    if dims:
        return site.call("aten.roll", operand, shifts=shifts, dims=dims)
    flat = site.call("aten.flatten", operand)
    moved = site.call("aten.roll", flat, shifts=shifts, dims=(0,))
    return site.call("aten.reshape", moved, shape=operand.shape)


def build_join(site: Site) -> Result:
    """Tensors in their common type put side by side; torch passes over empty ones without shape."""
    tensors = site.tensors("tensors")
    element = result_type(tensors)
    kept = [item for item in tensors if item.shape != (0,)] if site.schema.operator == "aten.cat" else tensors
    pack = tuple(site.cast(item, element) for item in kept or tensors)
    return site.builder.call(site.schema.operator, pack, dim=site.integer("dim"))


def build_split_sizes(site: Site) -> Result:
    """Parts of given sizes, under another name."""
    sizes = site.extents("split_size")
    return site.call_all(
        "aten.split_with_sizes", site.tensor("self"), split_sizes=sizes, dim=site.integer("dim")
    )


def build_scattered(site: Site) -> Result:
    """A part replaced, in the type of the whole."""
    operand = site.tensor("self")
    inputs = {"src": site.cast(site.tensor("src"), operand.element)}
    return finish(site, call_named(site, site.schema.operator, inputs))


def build_scatter_value(site: Site) -> Result:
    """One value put at places."""
    operand, places = site.tensor("self"), site.tensor("index")
    value = site.cast(site.scalar("value"), operand.element)
    return site.call(site.schema.operator, operand, places, value, dim=site.integer("dim"))


def build_index(site: Site) -> Result:
    """Elements at places that tensors of integers say; None leaves a dimension whole."""
    dims, places = _places(site)
    return site.builder.call("aten.index", site.tensor("self"), places, dims=dims)


def build_index_put(site: Site) -> Result:
    """Other elements at places that tensors of integers say."""
    operand, accumulate = site.tensor("self"), site.flag("accumulate")
    dims, places = _places(site)
    values = site.cast(site.scalar("values"), operand.element)
    return site.builder.call("aten.index_put", operand, places, values, dims=dims, accumulate=accumulate)


def _places(site: Site) -> tuple[tuple[int, ...], tuple[Tensor, ...]]:
    """The dimensions that are indexed, and the indices, all of one shape."""
    given = site.operands["indices"]
    items = given if isinstance(given, tuple) else (given,)
    dims = tuple(place for place, item in enumerate(items) if item is not None)
    tensors = tuple(item for item in items if isinstance(item, Tensor))
    if len(tensors) != len(dims) or not dims:
        site.refuse("indices", "a list of tensors of integers and None is possible")
    if any(item.element in (BOOL, U8) for item in tensors):
        site.give_up("a mask picks as many elements as it has true ones, which only the run tells")
    shape = _broadcast(site, [item.shape for item in tensors])
    places = tuple(
        item if item.shape == shape else site.call("aten.expand", item, size=shape) for item in tensors
    )
    return dims, places


def _broadcast(site: Site, shapes: Sequence[Shape]) -> Shape:
    """The shape that tensors have together."""
    rank = max(len(shape) for shape in shapes)
    found: list[Extent] = [1] * rank
    for shape in shapes:
        for place, extent in enumerate(shape, rank - len(shape)):
            if is_one(found[place]):
                found[place] = extent
            elif not is_one(extent) and equal(found[place], extent) is False:
                site.refuse("indices", f"extents of {found[place]} and {extent} do not fit together")
    return tuple(found)


def build_diff(site: Site) -> Result:
    """The differences of neighbours along a dimension; truth values differ or do not."""
    operand, dim = site.tensor("self"), site.integer("dim")
    if operand.element != BOOL:
        return finish(site, call_named(site, site.schema.operator))
    if site.integer("n") != 1:
        site.refuse("n", "single differences of truth values are possible")
    later = site.call("aten.slice", operand, dim=dim, start=1)
    earlier = site.call("aten.slice", operand, dim=dim, end=-1)
    return site.call("aten.ne", later, earlier)


def build_outer(site: Site) -> Result:
    """Every product of two vectors' elements."""
    pair = (site.tensor("self"), site.tensor("vec2"))
    element = result_type(pair)
    column, row = (site.cast(item, element) for item in pair)
    column = site.call("aten.unsqueeze", column, dim=1)
    return site.call("aten.logical_and" if element == BOOL else "aten.mul", column, row)


def build_tile(site: Site) -> Result:
    """A tensor several times; what is not said is said for the last dimensions."""
    operand, repeats = site.tensor("self"), site.extents("dims")
    lead = (1,) * (len(operand.shape) - len(repeats))
    return site.call("aten.repeat", operand, repeats=(*lead, *repeats))


def build_one_hot(site: Site) -> Result:
    """A one at the place that each number says."""
    count = site.extent("num_classes")
    if count == -1:
        site.refuse("num_classes", "the number of classes must be given")
    operand = site.tensor("self")
    column = site.call("aten.unsqueeze", operand, dim=-1)
    places = site.make("aten.arange", operand.element, start=0, end=count, step=1)
    return site.cast(site.call("aten.eq", column, places), I64)


def is_one(extent: Extent) -> bool:
    """Whether an extent is known to be 1."""
    return isinstance(extent, int) and extent == 1


HOW = MappingProxyType(
    {
        **{
            "squeeze": build_squeeze,
            "view": build_view,
            "view_as": build_view_as,
            "swap": build_swap,
            "reverse": build_reverse,
        },
        **{"last_two": build_last_two, "movedim": build_movedim, "copy": build_copy, "roll": build_roll},
        **{"repeat_interleave": build_repeat_interleave, "join": build_join},
        **{"split_sizes": build_split_sizes, "scattered": build_scattered},
        **{
            "scatter_value": build_scatter_value,
            "index": build_index,
            "index_put": build_index_put,
            "diff": build_diff,
            "outer": build_outer,
            "tile": build_tile,
            "one_hot": build_one_hot,
        },
    }
)
"""The words of the table that are explained here."""
