"""Adapters of ATen calls that move elements (views, joins, gathers) and of the layers of neural networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType

from lamella.base.dim import Dim, Extent, add, equal, floor_divide, mul, symbols
from lamella.base.dtype import BOOL, F32, F64, I64, U8
from lamella.bridge.aten.nodes import Operand, Result
from lamella.bridge.aten.promotion import result_type
from lamella.bridge.aten.site import CallSite, call_named, finish, volume
from lamella.graph.nodes import Shape, Tensor, Value

# --- layers of neural networks: softmax, attention, normalisation -------------------------------------------


_SCALES = ("scales", "scales_d", "scales_h", "scales_w")
_TRAINED = "a graph computes what a model gives after training: export it in eval mode"


def build_softmax(site: CallSite) -> Result:
    """Softmax along a dimension, in another type where one is given."""
    operand, element = site.tensor("self"), site.element()
    if site.flag("half_to_float"):
        element = F32
    found = operand if element is None else site.cast(operand, element)
    return site.call(site.schema.operator, found, dim=site.integer("dim"))


def build_softmax_backward(site: CallSite) -> Result:
    """The gradient of a softmax, in the type of what it was given."""
    back, output = site.tensor("grad_output"), site.tensor("output")
    found = site.call(site.schema.operator, back, output, dim=site.integer("dim"))
    return site.cast(found, site.element("input_dtype") or found.element)


def build_attention(site: CallSite) -> Result:
    """Attention without dropout."""
    if site.real("dropout_p") != 0:
        site.refuse("dropout_p", "only 0 is possible: " + _TRAINED)
    mask = "attn_bias" if "attn_bias" in site.operands else "attn_mask"
    tensors = [site.tensor(name) for name in ("query", "key", "value")]
    given: dict[str, Value] = {name: site.flag(name) for name in ("is_causal", "enable_gqa")}
    if site.has("scale"):
        given["scale"] = site.real("scale")
    hidden = site.tensor(mask) if site.has(mask) else None
    return site.padded(site.call(site.schema.operator, *tensors, hidden, **given))


def build_rms_norm(site: CallSite) -> Result:
    """Normalisation by the mean square; without `eps` it is the distance from 1 to the next number of the type."""
    element = site.tensor("input").element
    eps = site.real("eps") if site.has("eps") else 2.0**-52 if element == F64 else None
    return site.padded(*site.flatten(call_named(site, site.schema.operator, attributes={"eps": eps})))


def build_instance_norm(site: CallSite) -> Result:
    """Normalisation of each channel by itself: as many groups as channels."""
    if not site.flag("use_input_stats"):
        site.refuse("use_input_stats", "the statistics of the input itself are possible")
    operand = site.tensor("input")
    parts = [site.tensor(name) if site.has(name) else None for name in ("weight", "bias")]
    channels = operand.shape[1] if len(operand.shape) > 1 else 0
    return site.call("aten.group_norm", operand, *parts, num_groups=channels, eps=site.real("eps"))


def build_batch_stats(site: CallSite) -> Result:
    """Normalisation by the statistics of the batch itself."""
    if not site.flag("training"):
        site.refuse("training", "there are no other statistics than those of the batch")
    return site.flatten(call_named(site, site.schema.operator, attributes={"training": None}))


def build_safe_softmax(site: CallSite) -> Result:
    """Softmax along a dimension; where all is minus infinity it is 0."""
    element = site.element() or site.tensor("self").element
    operand, dim = site.cast(site.tensor("self"), element), site.integer("dim")
    found = site.call("aten.softmax", operand, dim=dim)
    hidden = site.call("aten.eq", operand, site.cast(-math.inf, element))
    empty = site.call("aten.all", hidden, dim=(dim,), keepdim=True)
    return site.call("aten.masked_fill", found, empty, site.cast(0.0, element))


def build_batch_norm(site: CallSite) -> Result:
    """Normalisation by the statistics of the training; by those of the batch where no others are kept."""
    kept = ("running_mean", "running_var")
    if site.flag("training") and not any(map(site.has, kept)):
        without = dict.fromkeys(("training", *kept))
        found = call_named(site, "aten.native_batch_norm_legit_no_stats", attributes=without)
        return site.padded(*site.flatten(found)[: len(site.schema.results)])
    if site.flag("training"):
        site.refuse("training", _TRAINED)
    for name in kept:
        site.tensor(name)
    return site.padded(*site.flatten(call_named(site, site.schema.operator, attributes={"training": None})))


# --- convolution and pooling --------------------------------------------------------------------------------


def _batched(site: CallSite, operand: Tensor, rank: int, work: Callable[[Tensor], Tensor]) -> Tensor:
    """An image without a batch is a batch of one."""
    if len(operand.shape) != rank - 1:
        return work(operand)
    single = work(site.call("aten.unsqueeze", operand, dim=0))
    return site.call("aten.squeeze", single, dim=(0,))


def build_convolution(site: CallSite) -> Result:
    """Convolution; padding in words, and one number for all dimensions, are written out."""
    operand, weight = site.tensor("input"), site.tensor("weight")
    count = len(weight.shape) - 2
    given: dict[str, Value] = {}
    for name in ("stride", "padding", "dilation", "output_padding"):
        if name in site.operands and not isinstance(site.operands[name], str):
            found = site.extents(name)
            given[name] = found * count if len(found) == 1 else found
    if isinstance(site.operands.get("padding"), str):
        operand, given["padding"] = _pad_in_words(site, operand, weight)

    def convolve(image: Tensor) -> Tensor:
        return site.flatten(call_named(site, site.schema.operator, {"input": image}, given))[0]

    return _batched(site, operand, count + 2, convolve)


def _pad_in_words(site: CallSite, operand: Tensor, weight: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """`valid` is no padding; `same` keeps the extents, and where it is odd the end gets more."""
    word, kernel = site.word("padding"), weight.shape[2:]
    if word == "valid":
        return operand, (0,) * len(kernel)
    if word != "same":
        site.refuse("padding", '"valid", "same" and a list are possible')
    reaches = [mul(step, add(size, -1)) for step, size in zip(site.extents("dilation"), kernel, strict=False)]
    known = [item for item in reaches if isinstance(item, int)]
    if len(known) != len(kernel):
        site.refuse("padding", "the size of the kernel must be known")
    odd = [item % 2 for item in known]
    if any(odd):
        sides = tuple(part for item in reversed(odd) for part in (0, item))
        operand = site.call("aten.constant_pad_nd", operand, None, pad=sides)
    return operand, tuple(item // 2 for item in known)


def build_pool(site: CallSite) -> Result:
    """Pooling; without strides the windows lie side by side."""
    given: dict[str, Value] = {"stride": site.extents("stride") or None, **_clipped_window(site)}
    return site.padded(*site.flatten(call_named(site, site.schema.operator, attributes=given)))


def _clipped_window(site: CallSite) -> dict[str, Value]:
    """The window of a pool as large as its input, where `ceil_mode` lets it be the only one and larger than that."""
    sizes = site.extents("kernel_size")
    strides, paddings = site.extents("stride") or sizes, site.extents("padding") or (0,)
    shape = site.tensor("self").shape[-len(sizes) :]
    if not site.flag("ceil_mode") or any(item != 1 for item in site.extents("dilation")):
        return {}
    rows = zip(shape, sizes, _spread(strides, len(sizes)), _spread(paddings, len(sizes)), strict=True)
    clipped = tuple(_clip(*row) for row in rows)
    return {} if clipped == sizes else {"kernel_size": clipped, "stride": strides}


def _spread(items: tuple[Extent, ...], count: int) -> tuple[Extent, ...]:
    return items * count if len(items) == 1 else items


def _clip(extent: Extent, size: Extent, stride: Extent, padding: Extent) -> Extent:
    if not (isinstance(extent, int) and isinstance(size, int) and isinstance(stride, int)):
        return size
    room = extent + 2 * padding if isinstance(padding, int) else size
    return room if room < size < room + stride else size


def build_pool_backward(site: CallSite) -> Result:
    """The gradient of pooling; without strides the windows lie side by side."""
    stride = site.extents("stride") or site.extents("kernel_size")
    return site.padded(*site.flatten(call_named(site, site.schema.operator, attributes={"stride": stride})))


def build_adaptive_max(site: CallSite) -> Result:
    """The largest elements of windows of sizes as equal as can be; where they are equal they lie side by side."""
    operand, sizes = site.tensor("self"), site.extents("output_size")
    whole = operand.shape[len(operand.shape) - len(sizes) :]
    kernel = [floor_divide(extent, size) for extent, size in zip(whole, sizes, strict=True) if size != 0]
    if len(kernel) != len(sizes) or [mul(a, b) for a, b in zip(kernel, sizes, strict=True)] != [*whole]:
        return site.call_all(site.schema.operator, operand, output_size=tuple(sizes))
    return site.call_all(f"aten.max_pool{len(sizes)}d_with_indices", operand, kernel_size=tuple(kernel))


def build_upsample(site: CallSite) -> Result:
    """An image of another size; factors must say the size that is given."""
    scales = [item.name for item in site.schema.parameters if item.name in _SCALES]
    given: dict[str, Value] = dict.fromkeys(scales)
    if scales and all(site.has(name) for name in scales):
        given |= {"output_size": None, "scale_factors": tuple(site.real(name) for name in scales)}
    (found,) = site.flatten(call_named(site, site.schema.operator, attributes=given))
    if scales:
        for extent, size in zip(found.shape[2:], site.extents("output_size"), strict=False):
            if equal(extent, size) is False:
                site.refuse("output_size", f"the factors say {extent}")
    return found


# --- padding ------------------------------------------------------------------------------------------------


def build_pad(site: CallSite) -> Result:
    """Elements put around a tensor."""
    operand = site.tensor("self")
    empty = site.operands.get("value") in (None, 0)
    value = None if empty else site.cast(site.scalar("value"), operand.element)
    mode = {"mode": site.word("mode")} if "mode" in site.operands else {}
    return site.call(site.schema.operator, operand, value, pad=site.extents("pad"), **mode)


NETWORKS = MappingProxyType(
    {
        **{"softmax": build_softmax, "attention": build_attention},
        **{
            "batch_norm": build_batch_norm,
            "rms_norm": build_rms_norm,
            "convolution": build_convolution,
            "pool": build_pool,
            "pool_backward": build_pool_backward,
            "softmax_backward": build_softmax_backward,
        },
        **{
            "upsample": build_upsample,
            "instance_norm": build_instance_norm,
            "adaptive_max": build_adaptive_max,
            "batch_stats": build_batch_stats,
            "safe_softmax": build_safe_softmax,
            "pad": build_pad,
        },
    }
)
"""Adapters of operations of neural networks, by the words of the table."""


# --- operations that move elements: views, joins, gathers and scatters --------------------------------------


def build_squeeze(site: CallSite) -> Result:
    """Dimensions of extent 1 left out: the given ones, or all."""
    operand = site.tensor("self")
    dims = {"dim": site.integers("dim")} if "dim" in site.operands else {}
    return site.call("aten.squeeze", operand, **dims)


def build_view(site: CallSite) -> Result:
    """Another shape; of an empty tensor the extent that is left to tell is 0."""
    operand = site.tensor("self")
    name = "shape" if site.schema.operator == "aten.reshape" else "size"
    extents = site.extents(name)
    if 0 in operand.shape and 0 not in extents:
        extents = tuple(0 if item == -1 else item for item in extents)
    if any(map(is_told_by_run, operand.shape)):
        # It may turn out to be 0, of which an extent that is left to tell cannot be told.
        others = volume(tuple(item for item in extents if item != -1))
        rest = floor_divide(volume(operand.shape), others) if others != 0 else 0
        extents = tuple(rest if item == -1 else item for item in extents)
    return site.call(site.schema.operator, operand, **{name: extents})


def build_view_as(site: CallSite) -> Result:
    """The shape of another tensor."""
    name = "shape" if site.schema.operator == "aten.reshape" else "size"
    return site.call(site.schema.operator, site.tensor("self"), **{name: site.tensor("other").shape})


def build_swap(site: CallSite) -> Result:
    """Two dimensions exchanged, under other names."""
    names = ("axis0", "axis1") if "axis0" in site.operands else ("dim0", "dim1")
    first, second = (site.integer(name) for name in names)
    return site.call("aten.transpose", site.tensor("self"), dim0=first, dim1=second)


def build_reverse(site: CallSite) -> Result:
    """All dimensions in reverse order."""
    operand = site.tensor("self")
    return site.call("aten.permute", operand, dims=tuple(reversed(range(len(operand.shape)))))


def build_last_two(site: CallSite) -> Result:
    """The last two dimensions exchanged."""
    return site.call("aten.transpose", site.tensor("self"), dim0=-2, dim1=-1)


def build_movedim(site: CallSite) -> Result:
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


def build_copy(site: CallSite) -> Result:
    """Another tensor's elements, in the type and shape of the first."""
    operand = site.tensor("self")
    return site.call("aten.copy", operand, site.cast(site.scalar("src"), operand.element))


def build_repeat_interleave(site: CallSite) -> Result:
    """Each element several times; without a dimension the tensor is flattened."""
    operand, repeats = site.tensor("self"), site.extent("repeats")
    if not site.has("dim"):
        operand = site.call("aten.flatten", operand)
    dim = site.integer("dim") if site.has("dim") else 0
    return site.call("aten.repeat_interleave", operand, repeats=repeats, dim=dim)


def build_roll(site: CallSite) -> Result:
    """Elements moved round; without dimensions in the order of memory."""
    operand, shifts, dims = site.tensor("self"), site.extents("shifts"), site.integers("dims")
    if dims:
        return site.call("aten.roll", operand, shifts=shifts, dims=dims)
    flat = site.call("aten.flatten", operand)
    moved = site.call("aten.roll", flat, shifts=shifts, dims=(0,))
    return site.call("aten.reshape", moved, shape=operand.shape)


def build_join(site: CallSite) -> Result:
    """Tensors in their common type put side by side; torch passes over empty ones without shape."""
    tensors = site.tensors("tensors")
    element = result_type(tensors)
    kept = [item for item in tensors if item.shape != (0,)] if site.schema.operator == "aten.cat" else tensors
    pack = tuple(site.cast(item, element) for item in kept or tensors)
    return site.builder.call(site.schema.operator, pack, dim=site.integer("dim"))


def build_split_sizes(site: CallSite) -> Result:
    """Parts of given sizes, under another name."""
    sizes = site.extents("split_size")
    return site.call_all(
        "aten.split_with_sizes", site.tensor("self"), split_sizes=sizes, dim=site.integer("dim")
    )


def build_scattered(site: CallSite) -> Result:
    """A part replaced, in the type of the whole."""
    operand = site.tensor("self")
    inputs = {"src": site.cast(site.tensor("src"), operand.element)}
    return finish(site, call_named(site, site.schema.operator, inputs))


def build_scatter_value(site: CallSite) -> Result:
    """One value put at places."""
    operand, places = site.tensor("self"), site.tensor("index")
    value = site.cast(site.scalar("value"), operand.element)
    return site.call(site.schema.operator, operand, places, value, dim=site.integer("dim"))


def build_index(site: CallSite) -> Result:
    """Elements at places that tensors of integers say; None leaves a dimension whole."""
    dims, places = _places(site)
    return site.builder.call("aten.index", site.tensor("self"), places, dims=dims)


def build_index_put(site: CallSite) -> Result:
    """Other elements at places that tensors of integers say."""
    operand, accumulate = site.tensor("self"), site.flag("accumulate")
    masked = None if accumulate else _masked(site, operand)
    if masked is not None:
        return masked
    dims, places = _places(site)
    values = site.cast(site.scalar("values"), operand.element)
    return site.builder.call("aten.index_put", operand, places, values, dims=dims, accumulate=accumulate)


def _masked(site: CallSite, operand: Tensor) -> Tensor | None:
    """One number at all places where a mask is true; None where that is not what is put."""
    given, value = site.operands["indices"], site.scalar("values")
    *before, mask = given if isinstance(given, tuple) and given else (None,)
    first = len(before)
    if not isinstance(mask, Tensor) or mask.element != BOOL or any(item is not None for item in before):
        return None
    if isinstance(value, Tensor) and any(not is_one(extent) for extent in value.shape):
        return None
    number = site.cast(value, operand.element)
    if number.shape:
        number = site.call("aten.view", number, size=())
    for _ in operand.shape[first + len(mask.shape) :]:
        mask = site.call("aten.unsqueeze", mask, dim=-1)
    return site.call("aten.masked_fill", operand, mask, number)


def _places(site: CallSite) -> tuple[tuple[int, ...], tuple[Tensor, ...]]:
    """The dimensions that are indexed, and the indices, all of one shape."""
    given = site.operands["indices"]
    items = given if isinstance(given, tuple) else (given,)
    if any(not isinstance(item, Tensor | None) for item in items) or all(item is None for item in items):
        site.refuse("indices", "a list of tensors of integers or truth values and None is possible")
    whole = [place for item in items for place in _places_of_mask(site, item)]
    dims = tuple(place for place, item in enumerate(whole) if item is not None)
    tensors = tuple(item for item in whole if item is not None)
    shape = _broadcast(site, [item.shape for item in tensors])
    wide = [site.cast(item, I64) for item in tensors]
    places = tuple(
        item if item.shape == shape else site.call("aten.expand", item, size=shape) for item in wide
    )
    return dims, places


def _places_of_mask(site: CallSite, item: Operand) -> tuple[Tensor | None, ...]:
    """Where a mask holds: a tensor of places for each of its dimensions, as long as only the run tells."""
    if not isinstance(item, Tensor):
        return (None,)
    if item.element not in (BOOL, U8):
        return (item,)
    if not item.shape:
        site.refuse("indices", "a mask has at least one dimension")
    places = site.call("layout.nonzero", item)
    return tuple(site.call("aten.select", places, dim=0, index=axis) for axis in range(len(item.shape)))


def _broadcast(site: CallSite, shapes: Sequence[Shape]) -> Shape:
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


def build_diff(site: CallSite) -> Result:
    """The differences of neighbours along a dimension; truth values differ or do not."""
    operand, dim = site.tensor("self"), site.integer("dim")
    if operand.element != BOOL:
        return finish(site, call_named(site, site.schema.operator))
    if site.integer("n") != 1:
        site.refuse("n", "single differences of truth values are possible")
    later = site.call("aten.slice", operand, dim=dim, start=1)
    earlier = site.call("aten.slice", operand, dim=dim, end=-1)
    return site.call("aten.ne", later, earlier)


def build_outer(site: CallSite) -> Result:
    """Every product of two vectors' elements."""
    pair = (site.tensor("self"), site.tensor("vec2"))
    element = result_type(pair)
    column, row = (site.cast(item, element) for item in pair)
    column = site.call("aten.unsqueeze", column, dim=1)
    return site.call("aten.logical_and" if element == BOOL else "aten.mul", column, row)


def build_tile(site: CallSite) -> Result:
    """A tensor several times; what is not said is said for the last dimensions."""
    operand, repeats = site.tensor("self"), site.extents("dims")
    lead = (1,) * (len(operand.shape) - len(repeats))
    return site.call("aten.repeat", operand, repeats=(*lead, *repeats))


def build_one_hot(site: CallSite) -> Result:
    """A one at the place that each number says."""
    count = site.extent("num_classes")
    if count == -1:
        site.refuse("num_classes", "the number of classes must be given")
    operand = site.tensor("self")
    column = site.call("aten.unsqueeze", operand, dim=-1)
    places = site.make("aten.arange", operand.element, start=0, end=count, step=1)
    return site.cast(site.call("aten.eq", column, places), I64)


def is_told_by_run(extent: Extent) -> bool:
    """Whether an extent is that of a result, such as `index.shape[1]`, and not one of an input."""
    return isinstance(extent, Dim) and not all(item.name.isidentifier() for item in symbols(extent))


def is_one(extent: Extent) -> bool:
    """Whether an extent is known to be 1."""
    return isinstance(extent, int) and extent == 1


LAYOUTS = MappingProxyType(
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
"""Adapters of operations that move elements, by the words of the table."""
