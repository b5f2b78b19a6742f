"""Adapters of the operators of domain `com.microsoft` that exporters and optimisers write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from lamella.base import dim
from lamella.base.dim import Extent
from lamella.base.dtype import BOOL, F32, I32, I64, U8, ElementType
from lamella.bridge.onnx_to_graph.adapters.attention import (
    ROWS,
    Masks,
    attend,
    by_heads,
    joined_heads,
    rotate,
)
from lamella.bridge.onnx_to_graph.adapters.networks import NETWORKS, average_pool
from lamella.bridge.onnx_to_graph.adapters.quantised import (
    QUANTISED,
    along,
    centred,
    input_numbers,
    known_scale,
    known_zero,
    output_codes,
    product,
    to_codes,
    to_numbers,
)
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.graph.nodes import Tensor

# --- activations and products -------------------------------------------------------------------------------------


def _fast_gelu(site: NodeSite) -> Results:
    x = site.tensor() if not site.has(1) else site.add(site.tensor(0), site.tensor(1))
    return site.call("nn.gelu", x, approximate="TANH")


def _bias_gelu(site: NodeSite) -> Results:
    return site.call("nn.gelu", site.add(site.tensor(0), site.tensor(1)))


def _fused_matmul(site: NodeSite) -> Results:
    if site.flag("transBatchA") or site.flag("transBatchB"):
        site.refuse("exchanges batches")
    found = site.call(
        "linalg.matmul",
        site.tensor(0),
        site.tensor(1),
        transA=site.flag("transA"),
        transB=site.flag("transB"),
    )
    return site.scaled(found, site.real("alpha", 1.0))


def _activated(site: NodeSite, x: Tensor, name: str, parameters: Sequence[float]) -> Tensor:
    """What a fused activation makes of a result."""
    plain = {"Relu": "nn.relu", "Tanh": "math.tanh", "Sigmoid": "nn.sigmoid"}
    if not name:
        return x
    if name in plain:
        return site.call(plain[name], x)
    if name == "LeakyRelu":
        return site.call("nn.relu", x, alpha=parameters[0] if parameters else 0.01)
    if name == "Clip":
        low, high = (site.scalar(item, x.element) for item in parameters[:2])
        return site.call("math.clamp", x, low, high)
    if name != "HardSigmoid":
        site.refuse(f"has the activation '{name}'")
    return site.call("onnx.hard_sigmoid", x, alpha=parameters[0], beta=parameters[1])


def _one(found: Results) -> Tensor:
    result = found[0] if isinstance(found, list | tuple) else found
    assert isinstance(result, Tensor)  # adapters of products give tensors
    return result


def _fused_conv(site: NodeSite) -> Results:
    found = _one(NETWORKS["Conv"](site))
    if site.has(3):
        found = site.add(found, site.tensor(3))
    return _activated(site, found, site.text("activation", ""), site.reals("activation_params") or ())


def _fused_gemm(site: NodeSite) -> Results:
    found = _one(NETWORKS["Gemm"](site))
    given = [site.real("activation_alpha", 0.01), site.real("activation_beta", 0.0)]
    return _activated(site, found, site.text("activation", ""), given)


# --- normalisations -----------------------------------------------------------------------------------------------


def _simplified(site: NodeSite) -> Results:
    x = site.tensor()
    rank = len(x.shape)
    axes = tuple(range(site.axis_in(site.integer("axis", -1), rank), rank))
    normal = site.call("onnx.rms_normalize", x, axes=axes, epsilon=site.real("epsilon", 1e-5))
    return site.mul(site.cast(normal, site.tensor(1).element), site.tensor(1))


def _skip_sum(site: NodeSite, bias: int) -> Tensor:
    total = site.add(site.tensor(0), site.tensor(1))
    return total if not site.has(bias) else site.add(total, site.tensor(bias))


def _skip_layer_norm(site: NodeSite) -> Results:
    total = _skip_sum(site, 4)
    found = _layer_norm(site, total, site.tensor(2), site.optional(3), site.real("epsilon", 1e-12))
    return [found, None, None, total]


def _layer_norm(site: NodeSite, x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    return site.call("aten.layer_norm", x, weight, bias, normalized_shape=(x.shape[-1],), eps=epsilon)


def _skip_simplified(site: NodeSite) -> Results:
    total = _skip_sum(site, 3)
    axes = (len(total.shape) - 1,)
    normal = site.call("onnx.rms_normalize", total, axes=axes, epsilon=site.real("epsilon", 1e-12))
    return [site.mul(normal, site.tensor(2)), None, None, total]


def _embed(site: NodeSite) -> Results:
    """Embeddings of words, places and segments, added and normalised."""
    words, segments = site.cast(site.tensor(0), I64), site.optional(1)
    found = site.call("onnx.gather", site.tensor(2), words, axis=0)
    places = site.optional(8)
    if places is None:
        rows = site.make("layout.range", I64, first=0, last=words.shape[1], stride=1)
        located = site.call("onnx.gather", site.tensor(3), rows, axis=0)
    else:
        located = site.call("onnx.gather", site.tensor(3), site.cast(places, I64), axis=0)
    total = site.add(found, located)
    if segments is not None and site.has(4):
        total = site.add(total, site.call("onnx.gather", site.tensor(4), site.cast(segments, I64), axis=0))
    normal = _layer_norm(site, total, site.tensor(5), site.tensor(6), site.real("epsilon", 1e-12))
    mask = site.optional(7)
    if mask is None:
        counts = site.make("layout.uniform", I32, site.scalar(0, I32), shape=(words.shape[0],))
    else:
        counts = site.cast(site.call("math.sum_reduce", mask, axes=(1,), squeeze=True), I32)
    return [normal, counts, total]


# --- attention ----------------------------------------------------------------------------------------------------


def _hidden(site: NodeSite, masks: Masks, kept: Tensor) -> None:
    """Truths that hide by a large negative number instead of minus infinity."""
    value = site.real("mask_filter_value", -10000.0)
    kind = masks.element
    masks.add(site.call("math.select", kept, site.scalar(0, kind), site.scalar(value, kind)))


def _mask(site: NodeSite, masks: Masks, given: Tensor, rows: Extent, columns: Extent) -> None:
    """A mask of lengths, of keys, or of pairs of queries and keys."""
    if len(given.shape) == 1:
        last = site.call("math.sub", site.cast(given, I64), site.scalar(1, I64))
        kept = site.call("onnx.window_of_batch", last, rows=1, columns=columns, before=-1, behind=0)
        _hidden(site, masks, kept)
        return
    kept = given if given.element == BOOL else site.call("math.gt", given, site.scalar(0, given.element))
    if len(given.shape) == 2:
        kept = site.reshape(kept, (given.shape[0], 1, 1, given.shape[1]))
    elif len(given.shape) == 3:
        kept = site.reshape(kept, (given.shape[0], 1, *given.shape[1:]))
    del rows
    _hidden(site, masks, kept)


def _attention(site: NodeSite) -> Results:
    """One product makes queries, keys and values."""
    x, weight, bias = site.tensor(0), site.tensor(1), site.optional(2)
    projected = site.call("linalg.matmul", x, weight)
    if bias is not None:
        projected = site.add(projected, bias)
    return _self_attention(site, projected, site.optional(3), site.optional(4), site.optional(5))


def _self_attention(
    site: NodeSite, projected: Tensor, mask: Tensor | None, past: Tensor | None, extra: Tensor | None
) -> Results:
    heads = site.integer("num_heads")
    sizes: Sequence[Extent] = site.ints("qkv_hidden_sizes") or [dim.floor_divide(projected.shape[2], 3)] * 3
    parts = site.call_all("layout.split", projected, axis=2, sizes=tuple(sizes))
    query, key, value = (by_heads(site, item, heads) for item in parts)
    offset: Extent = 0
    if past is not None:
        keys, values = site.call_all("layout.unstack", past, axis=0)
        offset = keys.shape[ROWS]
        key = site.call("layout.concat", (keys, key), axis=ROWS)
        value = site.call("layout.concat", (values, value), axis=ROWS)
    masks = Masks(site, query.element)
    rows, columns = query.shape[ROWS], key.shape[ROWS]
    if mask is not None:
        _mask(site, masks, mask, rows, columns)
    if extra is not None:
        masks.add(extra)
    if site.flag("unidirectional"):
        masks.window(rows, columns, offset, (-1, 0))
    found = attend(site, (query, key, value), _scale(site), masks)
    present = site.call("layout.stack", (key, value), axis=0) if len(site.node.outputs) > 1 else None
    return [joined_heads(site, found.output), present]


def _scale(site: NodeSite) -> float | None:
    found = site.real("scale", 0.0)
    return found or None


def _multi_head(site: NodeSite) -> Results:
    if not site.has(1) or not site.has(2):
        site.refuse("has queries, keys and values in one tensor")
    heads = site.integer("num_heads")
    given = [site.tensor(index) for index in range(3)]
    if site.has(3):
        sizes = tuple(item.shape[2] if len(item.shape) == 3 else 0 for item in given)
        parts = site.call_all("layout.split", site.tensor(3), axis=0, sizes=sizes)
        given = [
            site.add(item, part) if len(item.shape) == 3 else item
            for item, part in zip(given, parts, strict=True)
        ]
    query, key, value = (by_heads(site, item, heads) if len(item.shape) == 3 else item for item in given)
    past_key, past_value = site.optional(6), site.optional(7)
    offset: Extent = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[ROWS]
        key = site.call("layout.concat", (past_key, key), axis=ROWS)
        value = site.call("layout.concat", (past_value, value), axis=ROWS)
    masks = Masks(site, query.element)
    rows, columns = query.shape[ROWS], key.shape[ROWS]
    if site.has(4):
        _mask(site, masks, site.tensor(4), rows, columns)
    if site.has(5):
        masks.add(site.tensor(5))
    if site.flag("unidirectional"):
        masks.window(rows, columns, offset, (-1, 0))
    found = attend(site, (query, key, value), _scale(site), masks)
    return [joined_heads(site, found.output), key, value]


def _group_query(site: NodeSite) -> Results:
    """Queries of several heads share keys and values; a cache holds those of the steps before."""
    heads, shared = site.integer("num_heads"), site.integer("kv_num_heads")
    query, key, value = _separate(site, heads, shared)
    rows = query.shape[1]
    lengths = site.add(site.reshape(site.cast(site.tensor(5), I64), (query.shape[0],)), site.scalar(1, I64))
    before = site.call("math.sub", lengths, site.builder.constant(rows, I64))
    before = site.call("math.max", before, site.scalar(0, I64))
    width = dim.floor_divide(query.shape[2], heads)
    query = site.reshape(query, (*query.shape[:2], heads, width))
    key = site.reshape(key, (*key.shape[:2], shared, width))
    if site.flag("do_rotary"):
        caches = _angles(site, before, rows)
        count = 2 * _known(site, caches[0].shape[3])
        twisted = site.flag("rotary_interleaved")
        query, key = (rotate(site, item, caches, twisted, count) for item in (query, key))
    query, key = (site.transpose(item, (0, 2, 1, 3)) for item in (query, key))
    value = by_heads(site, value, shared)
    offset: Extent = 0
    past_key, past_value = site.optional(3), site.optional(4)
    if past_key is not None and past_value is not None:
        offset = past_key.shape[ROWS]
        key = site.call("layout.concat", (past_key, key), axis=ROWS)
        value = site.call("layout.concat", (past_value, value), axis=ROWS)
    masks = Masks(site, query.element)
    window = site.integer("local_window_size", -1)
    sides = (window - 1 if window > 0 else -1, 0)
    masks.window(rows, key.shape[ROWS], offset, sides)
    if site.has(10):
        masks.add(site.tensor(10))
    found = attend(site, (query, key, value), _scale(site), masks, site.real("softcap", 0.0))
    return [joined_heads(site, found.output), key, value]


def _separate(site: NodeSite, heads: int, shared: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, which may stand in one tensor."""
    if site.has(1) and site.has(2):
        return site.tensor(0), site.tensor(1), site.tensor(2)
    packed = site.tensor(0)
    width = dim.floor_divide(packed.shape[2], heads + 2 * shared)
    sizes = tuple(dim.mul(width, count) for count in (heads, shared, shared))
    query, key, value = site.call_all("layout.split", packed, axis=2, sizes=sizes)
    return query, key, value


def _angles(site: NodeSite, before: Tensor, rows: Extent) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the places of new rows, [batch, rows, 1, half]."""
    steps = site.make("layout.range", I64, first=0, last=rows, stride=1)
    places = site.add(site.reshape(before, (before.shape[0], 1)), steps)
    cos, sin = (
        site.call(
            "layout.unsqueeze", site.call("layout.gather", site.tensor(index), places, axis=0), axes=(2,)
        )
        for index in (7, 8)
    )
    return cos, sin


def _known(site: NodeSite, extent: Extent) -> int:
    if not isinstance(extent, int):
        site.refuse_open("turns a number of elements of", extent)
    return extent


def _rotary(site: NodeSite) -> Results:
    """[batch, rows, hidden] or [batch, heads, rows, width]; places are one offset or one for each row."""
    x, places = site.tensor(0), site.cast(site.tensor(1), I64)
    flat = len(x.shape) == 3
    heads = site.integer("num_heads", 0)
    half = _known(site, site.tensor(2).shape[1])
    if flat:
        width: Extent = dim.floor_divide(x.shape[2], heads) if heads else 2 * half
        work = site.reshape(x, (*x.shape[:2], dim.floor_divide(x.shape[2], width), width))
    else:
        work = site.transpose(x, (0, 2, 1, 3))
    if len(places.shape) == 1:
        steps = site.make("layout.range", I64, first=0, last=work.shape[1], stride=1)
        places = site.reshape(site.add(steps, places), (1, work.shape[1]))
    cos, sin = (
        site.call(
            "layout.unsqueeze", site.call("layout.gather", site.tensor(index), places, axis=0), axes=(2,)
        )
        for index in (2, 3)
    )
    turned = rotate(site, work, (cos, sin), site.flag("interleaved"), 2 * half)
    return site.reshape(turned, x.shape) if flat else site.transpose(turned, (0, 2, 1, 3))


# --- quantised ----------------------------------------------------------------------------------------------------


def _matmul_bits(site: NodeSite) -> Results:
    """Weights of a few bits in blocks, each with a scale and a zero point."""
    x, codes, scales = site.tensor(0), site.tensor(1), site.tensor(2)
    bits, block = site.integer("bits", 4), site.integer("block_size")
    columns, depth = site.integer("N"), site.integer("K")
    if bits not in (4, 8):
        site.refuse(f"has weights of {bits} bits")
    if site.has(4):
        site.refuse("has an order of groups of its own")
    blocks = -(-depth // block)
    whole = site.reshape(_unpacked(site, codes, bits, blocks * block), (columns, blocks, block))
    shift = _zero_points(site, bits, (columns, blocks), x.element)
    moved = site.call("math.sub", site.cast(whole, x.element), shift)
    weights = site.mul(moved, site.reshape(site.cast(scales, x.element), (columns, blocks, 1)))
    flat = site.reshape(weights, (columns, blocks * block))
    if blocks * block != depth:
        flat = site.call("layout.slice", flat, axes=(1,), begin=(0,), end=(depth,))
    bias = site.optional(5)
    return site.call("aten.linear", x, flat, bias)


def _unpacked(site: NodeSite, codes: Tensor, bits: int, count: int) -> Tensor:
    """[rows, …] of bytes as [rows, count] of integers, the low bits first."""
    rows = codes.shape[0]
    flat = site.reshape(codes, (rows, -1))
    if bits == 8:
        return flat
    found = site.call("onnx.nibbles", site.cast(flat, I32))
    if found.shape[1] != count:
        found = site.call("layout.slice", found, axes=(1,), begin=(0,), end=(count,))
    return found


def _zero_points(site: NodeSite, bits: int, shape: tuple[int, int], element: ElementType) -> Tensor:
    given = site.optional(3)
    if given is None:
        return site.scalar(1 << (bits - 1), element)
    if given.element.is_float:
        return site.cast(site.reshape(given, (*shape, 1)), element)
    flat = site.reshape(given, (shape[0], -1))
    return site.cast(site.reshape(_unpacked(site, flat, bits, shape[1]), (*shape, 1)), element)


def _to_real(site: NodeSite, index: int, x: Tensor | None = None) -> Tensor:
    """Codes with the scale and the zero point that follow them as numbers."""
    known = input_numbers(site, index) if x is None else None
    if known is not None:
        return known
    given = site.tensor(index) if x is None else x
    scale, zero = site.cast(site.tensor(index + 1), F32), site.optional(index + 2)
    wide = site.cast(given, F32)
    if zero is not None:
        wide = site.call("math.sub", wide, along(site, site.cast(zero, F32), given, 1))
    return site.mul(wide, along(site, scale, given, 1))


def _to_output(site: NodeSite, found: Tensor, index: int, element: ElementType) -> Tensor:
    """Numbers as codes, by the scale and the zero point of the result."""
    known = output_codes(site, found, index, element)
    if known is not None:
        return known
    scale = along(site, site.cast(site.tensor(index), F32), found, 1)
    zero = site.optional(index + 1)
    moved = None if zero is None else along(site, zero, found, 1)
    return to_codes(site, site.call("math.div", found, scale), moved, element)


def _qlinear_pair(operator: str) -> Callable[[NodeSite], Results]:
    def run(site: NodeSite) -> Results:
        found = site.call(operator, _to_real(site, 0), _to_real(site, 3))
        return _to_output(site, found, 6, site.element(0))

    return run


def _qlinear_single(make: Callable[[NodeSite, Tensor], Tensor]) -> Callable[[NodeSite], Results]:
    def run(site: NodeSite) -> Results:
        return _to_output(site, make(site, _to_real(site, 0)), 3, site.element(0))

    return run


def _mean_pool(site: NodeSite, x: Tensor) -> Tensor:
    axes = tuple(range(2, len(x.shape)))
    return site.call("math.mean_reduce", x, axes=axes)


def _reduce_mean(site: NodeSite, x: Tensor) -> Tensor:
    axes = site.axes(len(x.shape), since=1 << 20) or tuple(range(len(x.shape)))
    return site.call("math.mean_reduce", x, axes=axes, squeeze=not site.flag("keepdims", True))


def _softmax(site: NodeSite, x: Tensor) -> Tensor:
    return site.call("nn.softmax", x, axes=(site.axis_in(site.integer("axis", -1), len(x.shape)),))


def _qlinear_concat(site: NodeSite) -> Results:
    scale, zero = site.tensor(0), site.tensor(1)
    parts = [_to_real(site, index) for index in range(2, len(site.values), 3)]
    axis = site.axis_in(site.integer("axis"), len(parts[0].shape))
    found = site.call("layout.concat", tuple(parts), axis=axis)
    known = output_codes(site, found, 0, zero.element)
    if known is not None:
        return known
    quotient = site.call("math.div", found, along(site, site.cast(scale, F32), found, 1))
    return to_codes(site, quotient, along(site, zero, found, 1), zero.element)


def _qlinear_where(site: NodeSite) -> Results:
    found = site.call("math.select", site.tensor(0), _to_real(site, 1), _to_real(site, 4))
    return _to_output(site, found, 7, site.element(1))


def _integer_product(
    site: NodeSite,
    left: tuple[Tensor, Tensor, Tensor | None],
    right: tuple[Tensor, Tensor, Tensor | None],
    bias: Tensor | None,
) -> Tensor:
    """A product of codes in integers, as numbers; of each, codes, scale and zero point."""
    (a, a_scale, a_zero), (b, b_scale, b_zero) = left, right
    zeros = [None if item is None else _plain(site, item) for item in (a_zero, b_zero)]
    total = product(site, centred(site, a, zeros[0]), centred(site, b, zeros[1]))
    factor = site.mul(_plain(site, site.cast(a_scale, F32)), _plain(site, site.cast(b_scale, F32)))
    found = site.mul(site.cast(total, F32), factor)
    return found if bias is None else site.add(found, bias)


def _plain(site: NodeSite, parameter: Tensor) -> Tensor:
    return site.reshape(parameter, ()) if parameter.shape == (1,) else parameter


def _matmul_to_float(site: NodeSite) -> Results:
    left = (site.tensor(0), site.tensor(2), site.optional(4))
    return _integer_product(site, left, (site.tensor(1), site.tensor(3), site.optional(5)), site.optional(6))


def _dynamic_matmul(site: NodeSite) -> Results:
    x = site.tensor(0)
    scale, zero = site.call_all("onnx.range_of_codes", x)
    codes = to_codes(site, site.call("math.div", x, scale), zero, U8)
    right = (site.tensor(1), site.tensor(2), site.optional(3))
    return _integer_product(site, (codes, scale, site.cast(zero, I32)), right, site.optional(4))


def _qattention(site: NodeSite) -> Results:
    left = (site.tensor(0), site.tensor(3), site.optional(6))
    right = (site.tensor(1), site.tensor(4), site.optional(7))
    projected = _integer_product(site, left, right, site.tensor(2))
    return _self_attention(site, projected, site.optional(5), site.optional(8), None)


def _known_gemm(site: NodeSite) -> Tensor | None:
    """A product of codes whose scales are known, as one of numbers between codes."""
    scales, turned, weight = (
        [known_scale(site, place) for place in (1, 4)],
        site.flag("transB"),
        site.content(3),
    )
    zero = known_zero(site, 5)
    if site.flag("transA") or site.real("alpha", 1.0) != 1.0 or weight is None or zero is None:
        return None
    a_scale, b_scale = scales
    if a_scale is None or b_scale is None or a_scale.size != 1 or known_scale(site, 7) is None:
        return None
    rows = site.materialise(site.known_result(weight if turned else np.ascontiguousarray(weight.T)))
    a, b = input_numbers(site, 0), to_numbers(site, rows, b_scale, zero, 0)
    units = a_scale.reshape(()) * b_scale
    bias = to_numbers(site, site.tensor(6), units, np.zeros((), np.int64), 0) if site.has(6) else None
    if a is None or b is None or (bias is None) == site.has(6):
        return None
    return output_codes(site, site.call("nn.linear", a, b, bias), 7, site.element(0))


def _qgemm(site: NodeSite) -> Results:
    known = _known_gemm(site)
    if known is not None:
        return known
    a, b = site.tensor(0), site.tensor(3)
    a = site.transpose(a, (1, 0)) if site.flag("transA") else a
    b = site.transpose(b, (1, 0)) if site.flag("transB") else b
    left, right = (a, site.tensor(1), site.optional(2)), (b, site.tensor(4), site.optional(5))
    bias = site.optional(6)
    total = product(
        site,
        centred(site, a, None if left[2] is None else _plain(site, left[2])),
        centred(site, b, None if right[2] is None else _plain(site, right[2])),
    )
    if bias is not None:
        total = site.add(total, bias)
    factor = site.mul(_plain(site, left[1]), _plain(site, right[1]))
    found = site.scaled(site.mul(site.cast(total, F32), factor), site.real("alpha", 1.0))
    return _to_output(site, found, 7, site.element(0)) if site.has(7) else found


def _channels_first(site: NodeSite) -> Results:
    if site.flag("channels_last"):
        site.refuse("has its channels last")
    return QUANTISED["QLinearConv"](site)


def _with_channels_first(make: Callable[[NodeSite, Tensor], Tensor]) -> Callable[[NodeSite, Tensor], Tensor]:
    """An operation on tensors whose channels are their second axis, for nodes that may have them last."""

    def run(site: NodeSite, x: Tensor) -> Tensor:
        if not site.flag("channels_last"):
            return make(site, x)
        rank = len(x.shape)
        found = make(site, site.transpose(x, (0, rank - 1, *range(1, rank - 1))))
        return site.transpose(found, (0, *range(2, rank), 1))

    return run


MICROSOFT: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {
        "FastGelu": _fast_gelu,
        "BiasGelu": _bias_gelu,
        "FusedMatMul": _fused_matmul,
        "TransposeMatMul": _fused_matmul,
        "FusedConv": _fused_conv,
        "FusedGemm": _fused_gemm,
        "LayerNormalization": NETWORKS["LayerNormalization"],
        "SimplifiedLayerNormalization": _simplified,
        "SkipLayerNormalization": _skip_layer_norm,
        "SkipSimplifiedLayerNormalization": _skip_simplified,
        "EmbedLayerNormalization": _embed,
        "Attention": _attention,
        "MultiHeadAttention": _multi_head,
        "GroupQueryAttention": _group_query,
        "RotaryEmbedding": _rotary,
        "MatMulNBits": _matmul_bits,
        "QuantizeLinear": QUANTISED["QuantizeLinear"],
        "DequantizeLinear": QUANTISED["DequantizeLinear"],
        "QLinearAdd": _qlinear_pair("math.add"),
        "QLinearMul": _qlinear_pair("math.mul"),
        "QLinearConv": _channels_first,
        "QLinearAveragePool": _qlinear_single(
            _with_channels_first(partial(average_pool, whole_windows=True))
        ),
        "QLinearGlobalAveragePool": _qlinear_single(_with_channels_first(_mean_pool)),
        "QLinearLeakyRelu": _qlinear_single(
            lambda site, x: site.call("nn.relu", x, alpha=site.real("alpha", 0.01))
        ),
        "QLinearSigmoid": _qlinear_single(lambda site, x: site.call("nn.sigmoid", x)),
        "QLinearSoftmax": _qlinear_single(_softmax),
        "QLinearReduceMean": _qlinear_single(_reduce_mean),
        "QLinearConcat": _qlinear_concat,
        "QLinearWhere": _qlinear_where,
        "MatMulIntegerToFloat": _matmul_to_float,
        "DynamicQuantizeMatMul": _dynamic_matmul,
        "QAttention": _qattention,
        "QGemm": _qgemm,
    }
)
"""Adapters by the names of the operators of the domain."""
DOMAIN = "com.microsoft"
