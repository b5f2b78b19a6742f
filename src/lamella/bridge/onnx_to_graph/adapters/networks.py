"""Adapters of reductions, products, convolutions, pools and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import BOOL, F32, I64, U8
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.graph.nodes import Tensor
from lamella.graph.nodes import Value as GraphValue

# --- reductions ---------------------------------------------------------------------------------------------------


def _reduced(site: NodeSite) -> tuple[tuple[int, ...], bool]:
    """The axes of a reduction, and whether they go away."""
    rank = len(site.tensor().shape)
    since = 13 if site.node.op_type == "ReduceSum" else 18
    axes = site.axes(rank, 1, since)
    if not axes:
        axes = () if site.flag("noop_with_empty_axes") else tuple(range(rank))
    return axes, not site.flag("keepdims", True)


def _reduction(operator: str, **more: GraphValue) -> Callable[[NodeSite], Results]:
    def run(site: NodeSite) -> Results:
        x = site.tensor()
        axes, squeeze = _reduced(site)
        if x.element == BOOL:
            found = site.call(operator, site.cast(x, U8), axes=axes, squeeze=squeeze, **more)
            return site.cast(found, BOOL)
        return site.call(operator, x, axes=axes, squeeze=squeeze, **more)

    return run


def _reduce_mean(site: NodeSite) -> Results:
    x = site.tensor()
    axes, squeeze = _reduced(site)
    if x.element.is_float:
        return site.call("math.mean_reduce", x, axes=axes, squeeze=squeeze)
    total = site.call("math.sum_reduce", x, axes=axes, squeeze=squeeze)
    one: Extent = 1
    count = reduce(dim.mul, [x.shape[axis] for axis in axes], one)
    return site.call("onnx.divide_integers", total, site.builder.constant(count, x.element))


def _arg(operator: str) -> Callable[[NodeSite], Results]:
    """The place of an extreme: the first one, or with `select_last_index` the last."""

    def run(site: NodeSite) -> Results:
        x = site.tensor()
        axis = site.axis_in(site.integer("axis", 0), len(x.shape))
        keep = site.flag("keepdims", True)
        if not site.flag("select_last_index"):
            return site.call(operator, x, dim=axis, keepdim=keep)
        flipped = site.call("aten.flip", x, dims=(axis,))
        found = site.call(operator, flipped, dim=axis, keepdim=keep)
        last = site.builder.constant(dim.sub(x.shape[axis], 1), I64)
        return site.call("math.sub", last, found)

    return run


def _softmax(operator: str) -> Callable[[NodeSite], Results]:
    """Before version 13 the axes from `axis` on are taken as one."""

    def run(site: NodeSite) -> Results:
        x = site.tensor()
        rank = len(x.shape)
        axis = site.axis_in(site.integer("axis", 1 if site.version < 13 else -1), rank)
        if site.version >= 13 or axis == rank - 1:
            return _along(site, operator, x, axis)
        one: Extent = 1
        flat = (reduce(dim.mul, x.shape[:axis], one), reduce(dim.mul, x.shape[axis:], one))
        return site.reshape(_along(site, operator, site.reshape(x, flat), 1), x.shape)

    return run


def _along(site: NodeSite, operator: str, x: Tensor, axis: int) -> Tensor:
    if operator == "nn.softmax":
        return site.call(operator, x, axes=(axis,))
    return site.call(operator, x, **{"dim" if operator.startswith("aten") else "axis": axis})


# --- products -----------------------------------------------------------------------------------------------------


def _matmul(site: NodeSite) -> Results:
    left, right = site.tensor(0), site.tensor(1)
    if not left.element.is_float:
        return site.call("onnx.matmul_integers", *_matrices(site, left, right))
    if min(len(left.shape), len(right.shape)) < 2:
        return site.call("aten.matmul", left, right)
    return site.call("linalg.matmul", left, right)


def _matrices(site: NodeSite, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    if min(len(left.shape), len(right.shape)) < 2:
        site.refuse("multiplies vectors of integers")
    return left, right


def _gemm(site: NodeSite) -> Results:
    left, right, bias = site.tensor(0), site.tensor(1), site.optional(2)
    trans_a, trans_b = site.flag("transA"), site.flag("transB")
    alpha, beta = site.real("alpha", 1.0), site.real("beta", 1.0)
    if not left.element.is_float:
        site.refuse("multiplies integers")
    vector = bias is None or (len(bias.shape) == 1 and bias.shape[0] == right.shape[0 if trans_b else 1])
    if alpha == beta == 1.0 and not trans_a and trans_b and vector:
        return site.call("nn.linear", left, right, bias)
    product = site.call("linalg.matmul", left, right, transA=trans_a, transB=trans_b)
    product = site.scaled(product, alpha)
    return product if bias is None else site.add(product, site.scaled(bias, beta))


# --- convolutions and pools ---------------------------------------------------------------------------------------


def windows(
    site: NodeSite, extents: Sequence[Extent], kernel: Sequence[Extent]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Extent, ...]]:
    """Strides, dilations and pads (all before, then all after) of a window over some extents."""
    rank = len(extents)
    strides = site.ints("strides") or (1,) * rank
    dilations = site.ints("dilations") or (1,) * rank
    auto = site.text("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return strides, dilations, tuple(site.ints("pads") or (0,) * (2 * rank))
    if auto == "VALID":
        return strides, dilations, (0,) * (2 * rank)
    before: list[Extent] = []
    after: list[Extent] = []
    for size, stride, step, width in zip(extents, strides, dilations, kernel, strict=True):
        # As many windows as there are strides in the extent, begun ones included.
        needed = dim.add(dim.mul(dim.sub(dim.ceil_divide(size, stride), 1), stride), _reach(width, step))
        total = dim.larger(dim.sub(needed, size), 0)
        small = dim.floor_divide(total, 2)
        large = dim.sub(total, small)
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return strides, dilations, (*before, *after)


def _reach(width: Extent, dilation: int) -> Extent:
    """How many elements a dilated window spans."""
    return dim.add(dim.mul(dim.sub(width, 1), dilation), 1)


def _conv(site: NodeSite) -> Results:
    x, weight, bias = site.tensor(0), site.tensor(1), site.optional(2)
    strides, dilations, pads = windows(site, x.shape[2:], weight.shape[2:])
    return site.call(
        "nn.conv",
        x,
        weight,
        bias,
        stride=strides,
        dilation=dilations,
        padding=pads,
        groups=site.groups(),
    )


def _conv_transpose(site: NodeSite) -> Results:
    x, weight, bias = site.tensor(0), site.tensor(1), site.optional(2)
    rank = len(x.shape) - 2
    strides, dilations = site.ints("strides") or (1,) * rank, site.ints("dilations") or (1,) * rank
    extra = site.ints("output_padding") or (0,) * rank
    full = [
        dim.add(dim.mul(dim.sub(size, 1), stride), dim.add(_reach(width, step), more))
        for size, stride, width, step, more in zip(
            x.shape[2:], strides, weight.shape[2:], dilations, extra, strict=True
        )
    ]
    pads, sizes = _deconv_pads(site, x, full, strides)
    return site.call(
        "onnx.conv_transpose",
        x,
        weight,
        bias,
        stride=strides,
        dilation=dilations,
        padding=tuple(pads[:rank]),
        size=tuple(sizes),
        groups=site.groups(),
    )


def _deconv_pads(
    site: NodeSite, x: Tensor, full: list[Extent], strides: Sequence[int]
) -> tuple[list[Extent], list[Extent]]:
    """The pads and the extents of the result, one from the other."""
    auto, wanted = site.text("auto_pad", "NOTSET"), site.ints("output_shape")
    rank = len(full)
    if wanted is None and auto in ("NOTSET", "VALID"):
        pads: list[Extent] = (
            list(site.ints("pads") or (0,) * (2 * rank)) if auto == "NOTSET" else [0] * (2 * rank)
        )
        sizes = [dim.sub(size, dim.add(pads[axis], pads[rank + axis])) for axis, size in enumerate(full)]
        return pads, sizes
    target: list[Extent] = (
        list(wanted[-rank:])
        if wanted is not None
        else [dim.mul(size, stride) for size, stride in zip(x.shape[2:], strides, strict=True)]
    )
    totals = [dim.larger(dim.sub(size, goal), 0) for size, goal in zip(full, target, strict=True)]
    halves = [dim.floor_divide(item, 2) for item in totals]
    rest = [dim.sub(item, half) for item, half in zip(totals, halves, strict=True)]
    # The larger half lies before, unless SAME_UPPER asks for it behind.
    before, after = (halves, rest) if auto == "SAME_UPPER" else (rest, halves)
    return [*before, *after], target


def _pool_attributes(site: NodeSite, x: Tensor) -> dict[str, GraphValue]:
    kernel = site.ints("kernel_shape") or ()
    strides, dilations, pads = windows(site, x.shape[2:], kernel)
    ceil = site.flag("ceil_mode")
    return {
        "size": kernel,
        "stride": strides,
        "dilation": dilations,
        "padding": _enough(site, x, kernel, strides, dilations, pads) if ceil else pads,
    }


def _enough(
    site: NodeSite,
    x: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[Extent],
) -> tuple[Extent, ...]:
    """Pads behind that make room for a last window that begins inside; one that begins behind is left out."""
    rank = len(kernel)
    after: list[Extent] = []
    for axis in range(rank):
        size, before, behind = x.shape[2 + axis], pads[axis], pads[rank + axis]
        reach = _reach(kernel[axis], dilations[axis])
        room = dim.sub(dim.add(dim.add(size, before), behind), reach)
        if not (isinstance(room, int) and isinstance(size, int) and isinstance(before, int)):
            site.refuse_open("rounds up the number of windows over", size)
        count = -(-room // strides[axis]) + 1
        if (count - 1) * strides[axis] >= size + before:
            count -= 1
        needed = dim.sub((count - 1) * strides[axis], size + before)
        after.append(dim.add(needed, reach))
    return (*pads[:rank], *after)


def _as_real(site: NodeSite, x: Tensor) -> Tensor:
    return x if x.element.is_float else site.cast(x, F32)


def _max_pool(site: NodeSite) -> Results:
    x = site.tensor()
    given = _pool_attributes(site, x)
    if len(site.node.outputs) < 2 or not site.node.outputs[1]:
        return site.call("nn.max_pool", x, **given)
    found = site.call("nn.max_pool", _as_real(site, x), **given)
    padding = given.pop("padding")
    assert isinstance(padding, tuple)  # as it was made above
    places = site.call(
        "onnx.pool_places",
        _as_real(site, x),
        found,
        padding=padding[: len(x.shape) - 2],
        columns=bool(site.integer("storage_order", 0)),
        **given,
    )
    return [site.cast(found, x.element), places]


def _average_pool(site: NodeSite) -> Results:
    return average_pool(site, site.tensor())


def average_pool(site: NodeSite, x: Tensor, whole_windows: bool = False) -> Tensor:
    """The means of windows, as the attributes of a node say; of whole ones where pads count, if that is wanted."""
    given = _pool_attributes(site, x)
    if not site.flag("count_include_pad"):
        return site.call("nn.avg_pool", x, ignore_border=True, **given)
    _, __, pads = windows(site, x.shape[2:], site.ints("kernel_shape") or ())
    if whole_windows or not site.flag("ceil_mode"):
        return site.call("nn.avg_pool", x, ignore_border=False, **given)
    # What a rounded-up last window reaches beyond the pads does not count.
    rank = len(x.shape) - 2
    whole = given["padding"]
    assert isinstance(whole, tuple)  # as it was made above
    padded = site.call(
        "layout.pad", x, site.scalar(0, x.element), axes=tuple(range(2, rank + 2)), padding=pads
    )
    rest = [dim.larger(dim.sub(_extent(a), b), 0) for a, b in zip(whole[rank:], pads[rank:], strict=True)]
    given["padding"] = (*(0,) * rank, *rest)
    return site.call("nn.avg_pool", padded, ignore_border=True, **given)


def _extent(value: object) -> Extent:
    return value if isinstance(value, int | Dim) else 0


def _lp_pool(site: NodeSite) -> Results:
    x = site.tensor()
    return site.call("nn.lp_pool", x, p=float(site.integer("p", 2)), **_pool_attributes(site, x))


def _global(operator: str) -> Callable[[NodeSite], Results]:
    def run(site: NodeSite) -> Results:
        x = site.tensor()
        axes = tuple(range(2, len(x.shape)))
        more: dict[str, GraphValue] = {}
        if operator == "math.lp_reduce":
            more = {"p": float(site.integer("p", 2))}
        return site.call(operator, x, axes=axes, **more)

    return run


def _max_unpool(site: NodeSite) -> Results:
    x, places = site.tensor(0), site.tensor(1)
    rank = len(x.shape) - 2
    kernel, strides = site.ints("kernel_shape") or (), site.ints("strides") or (1,) * rank
    pads = site.ints("pads") or (0,) * (2 * rank)
    # Places count in the extents that follow from the window; a larger result holds them at its start.
    sizes = [
        dim.sub(dim.add(dim.mul(dim.sub(size, 1), stride), width), pads[axis] + pads[rank + axis])
        for axis, (size, stride, width) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    found = site.call("onnx.max_unpool", x, site.cast(places, I64), size=tuple(sizes))
    if not site.has(2):
        return found
    wanted = site.extents(2, "the output shape")[-rank:]
    after = [dim.sub(goal, size) for goal, size in zip(wanted, sizes, strict=True)]
    axes = tuple(range(2, rank + 2))
    return site.call(
        "layout.pad", found, site.scalar(0, x.element), axes=axes, padding=(*(0,) * rank, *after)
    )


# --- normalisations -----------------------------------------------------------------------------------------------


def _batch_norm(site: NodeSite) -> Results:
    x, scale, bias, mean, variance = (site.tensor(index) for index in range(5))
    epsilon = site.real("epsilon", 1e-5)
    if not site.flag("training_mode"):
        scale, bias, mean, variance = (site.cast(item, x.element) for item in (scale, bias, mean, variance))
        return site.call("nn.batch_norm", x, mean, variance, bias, scale, epsilon=epsilon)
    axes = tuple(axis for axis in range(len(x.shape)) if axis != 1)
    now, spread = site.call_all("math.moments", x, axes=axes, squeeze=True)
    momentum = site.real("momentum", 0.9)
    found = site.call("nn.batch_norm", x, now, spread, bias, scale, epsilon=epsilon)
    kept = [
        site.add(site.scaled(old, momentum), site.scaled(new, 1.0 - momentum))
        for old, new in ((mean, now), (variance, spread))
    ]
    return [found, *kept]


def _instance_norm(site: NodeSite) -> Results:
    x, scale, bias = (site.tensor(index) for index in range(3))
    return site.call("nn.mean_variance_norm", x, bias, scale, epsilon=site.real("epsilon", 1e-5))


def _group_norm(site: NodeSite) -> Results:
    x, scale, bias = (site.tensor(index) for index in range(3))
    groups = site.integer("num_groups")
    epsilon = site.real("epsilon", 1e-5)
    if site.version >= 21:
        return site.call("aten.group_norm", x, scale, bias, num_groups=groups, eps=epsilon)
    # Before version 21 there is one scale for each group.
    plain = site.call("aten.group_norm", x, None, None, num_groups=groups, eps=epsilon)
    one: Extent = 1
    rest = reduce(dim.mul, x.shape[1:], one)
    grouped = site.reshape(plain, (x.shape[0], groups, dim.floor_divide(rest, groups)))
    column = (groups, 1)
    shaped = site.add(site.mul(grouped, site.reshape(scale, column)), site.reshape(bias, column))
    return site.reshape(shaped, x.shape)


def _layer_norm(site: NodeSite) -> Results:
    """Mean and inverse deviation are also results; both are computed in the type that `stash_type` says."""
    x = site.tensor()
    rank = len(x.shape)
    axes = tuple(range(site.axis_in(site.integer("axis", -1), rank), rank))
    epsilon = site.real("epsilon", 1e-5)
    weight, bias = site.tensor(1), site.optional(2)
    sizes = tuple(x.shape[axis] for axis in axes)
    fits = weight.shape == sizes and (bias is None or bias.shape == sizes) and x.element.bits >= 32
    if fits and not any(site.node.outputs[1:]):
        return site.call("aten.layer_norm", x, weight, bias, normalized_shape=sizes, eps=epsilon)
    wide = site.cast(x, site.type_of("stash_type", F32)) if x.element.bits < 32 else x
    normal, mean, rstd = site.call_all("onnx.normalize", wide, axes=axes, epsilon=epsilon)
    found = site.mul(site.cast(normal, x.element), site.cast(weight, x.element))
    if bias is not None:
        found = site.add(found, site.cast(bias, x.element))
    return [found, mean, rstd]


def _rms_norm(site: NodeSite) -> Results:
    x = site.tensor()
    rank = len(x.shape)
    axes = tuple(range(site.axis_in(site.integer("axis", -1), rank), rank))
    wide = site.cast(x, site.type_of("stash_type", F32)) if x.element.bits < 32 else x
    normal = site.call("onnx.rms_normalize", wide, axes=axes, epsilon=site.real("epsilon", 1e-5))
    return site.mul(site.cast(normal, x.element), site.cast(site.tensor(1), x.element))


def _lrn(site: NodeSite) -> Results:
    size = site.integer("size")
    return site.call(
        "nn.local_response_norm",
        site.tensor(),
        axes=(1,),
        size=(size,),
        alpha=site.real("alpha", 1e-4),
        beta=site.real("beta", 0.75),
        bias=site.real("bias", 1.0),
    )


def _lp_norm(site: NodeSite) -> Results:
    x = site.tensor()
    axis = site.axis_in(site.integer("axis", -1), len(x.shape))
    return site.call("onnx.lp_normalize", x, axis=axis, p=site.integer("p", 2))


def _mean_variance(site: NodeSite) -> Results:
    x = site.tensor()
    axes = site.ints("axes") or (0, 2, 3)
    return site.call("onnx.mean_variance_norm", x, axes=axes)


NETWORKS: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {
        "ReduceSum": _reduction("math.sum_reduce"),
        "ReduceProd": _reduction("math.prod_reduce"),
        "ReduceMin": _reduction("math.min_reduce"),
        "ReduceMax": _reduction("math.max_reduce"),
        "ReduceMean": _reduce_mean,
        "ReduceL1": _reduction("onnx.reduce_l1"),
        "ReduceL2": _reduction("onnx.reduce_l2"),
        "ReduceLogSum": _reduction("onnx.reduce_log_sum"),
        "ReduceLogSumExp": _reduction("onnx.reduce_log_sum_exp"),
        "ReduceSumSquare": _reduction("onnx.reduce_sum_square"),
        "ArgMax": _arg("aten.argmax"),
        "ArgMin": _arg("aten.argmin"),
        "Softmax": _softmax("nn.softmax"),
        "LogSoftmax": _softmax("aten.log_softmax"),
        "Hardmax": _softmax("onnx.hardmax"),
        "MatMul": _matmul,
        "Gemm": _gemm,
        "Conv": _conv,
        "ConvTranspose": _conv_transpose,
        "MaxPool": _max_pool,
        "AveragePool": _average_pool,
        "LpPool": _lp_pool,
        "GlobalMaxPool": _global("math.max_reduce"),
        "GlobalAveragePool": _global("math.mean_reduce"),
        "GlobalLpPool": _global("math.lp_reduce"),
        "MaxUnpool": _max_unpool,
        "BatchNormalization": _batch_norm,
        "InstanceNormalization": _instance_norm,
        "GroupNormalization": _group_norm,
        "LayerNormalization": _layer_norm,
        "RMSNormalization": _rms_norm,
        "LRN": _lrn,
        "LpNormalization": _lp_norm,
        "MeanVarianceNormalization": _mean_variance,
    }
)
"""Adapters by the names of ONNX's operators."""
