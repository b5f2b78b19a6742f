"""The operators of `aten` that networks consist of, judged by torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import FLOATS, Array, arrays, axis_of, shapes
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Shape = tuple[int, ...]
REALS = FLOATS[:2]
EXTENTS = st.integers(0, 4)
FEW = st.integers(1, 4)


def one_type(data: Data, *given_: Shape, low: int = -9, high: int = 9) -> list[Array]:
    """Arrays of one drawn type."""
    dtype = (data.draw(st.sampled_from(REALS)),)
    return [data.draw(arrays(shape, dtype, low, high)) for shape in given_]


@judged("torch", "aten.mm", "aten.bmm", "aten.mv", "aten.dot")
@given(EXTENTS, EXTENTS, EXTENTS, EXTENTS, st.data())
def test_products(b: int, n: int, k: int, m: int, data: Data) -> None:
    x, y = one_type(data, (b, n, k), (b, k, m))
    judge("bmm", x, y)
    x, y, v, w = one_type(data, (n, k), (k, m), (k,), (k,))
    judge("mm", x, y)
    judge("mv", x, v)
    judge("dot", v, w)


@judged("torch", "aten.matmul")
@given(shapes(0, 2, 1, 3), FEW, EXTENTS, FEW, st.data())
def test_matmul(batch: Shape, n: int, k: int, m: int, data: Data) -> None:
    left = (*(1 if data.draw(st.booleans()) else item for item in batch), n, k)
    right = (*batch[data.draw(st.integers(0, len(batch))) :], k, m)
    x, y = one_type(data, data.draw(st.sampled_from((left, (k,)))), data.draw(st.sampled_from((right, (k,)))))
    judge("matmul", x, y)


@judged("torch", "aten.addmm", "aten.baddbmm")
@given(FEW, FEW, FEW, FEW, st.sampled_from((1.0, 0.5, -2.0)), st.data())
def test_sums_of_products(b: int, n: int, k: int, m: int, factor: float, data: Data) -> None:
    added = data.draw(st.sampled_from(((m,), (n, m), (1, m), (n, 1), ())))
    z, x, y = one_type(data, added, (n, k), (k, m))
    judge("addmm", z, x, y, beta=factor, alpha=-factor)
    judge("addmm", z, x, y)
    z, x, y = one_type(data, data.draw(st.sampled_from(((b, n, m), (n, m)))), (b, n, k), (b, k, m))
    judge("baddbmm", z, x, y, beta=factor, alpha=-factor)


@judged("torch", "aten.linear")
@given(shapes(0, 3), FEW, FEW, st.booleans(), st.data())
def test_linear(batch: Shape, c: int, n: int, biased: bool, data: Data) -> None:
    x, weight, bias = one_type(data, (*batch, c), (n, c), (n,))
    judge("linear", x, weight, *((bias,) if biased else ()))


@judged("torch", "aten.softmax", "aten.log_softmax")
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@given(shapes(1, 4, 1), st.data())
def test_softmax(name: str, shape: Shape, data: Data) -> None:
    x, dim = data.draw(arrays(shape)), data.draw(axis_of(len(shape)))
    agree(name, [x], {"dim": dim}, getattr(torch, name)(tensor_of(x), dim))


@judged("torch", "aten.safe_softmax")
@given(shapes(1, 3, 1), st.data())
def test_softmax_of_hidden_rows(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ("float32", "float64")))
    x[data.draw(arrays(shape, ("bool",)))] = -np.inf
    agree("safe_softmax", [x], {}, torch.ops.aten._safe_softmax(tensor_of(x), -1))


@st.composite
def attentions(draw: st.DrawFn) -> tuple[Shape, Shape, Shape]:
    """Shapes of queries, keys and values."""
    batch = draw(shapes(1, 2, 1, 3))
    n, m, e, v = (draw(FEW) for _ in range(4))
    return (*batch, n, e), (*batch, m, e), (*batch, m, v)


def attend(inputs: list[Array], mask: Array | None = None, **given_: float | bool) -> None:
    """See that attention agrees, in the types of the inputs."""
    function = torch.nn.functional.scaled_dot_product_attention
    expected = function(*map(tensor_of, inputs), attn_mask=tensor_of(mask), **given_)
    agree("scaled_dot_product_attention", [*inputs, mask], given_, expected, tolerance=1e-5)


@judged("torch", "aten.scaled_dot_product_attention")
@given(attentions(), st.data())
def test_attention(given_: tuple[Shape, Shape, Shape], data: Data) -> None:
    inputs = one_type(data, *given_, low=-1, high=1)
    attend(inputs)
    attend(inputs, is_causal=True)
    attend(inputs, scale=0.75)
    whole = (*given_[0][:-1], given_[1][-2])
    masked = whole[data.draw(st.integers(0, len(whole) - 2)) :]
    attend(inputs, data.draw(arrays(masked, ("bool",))))
    attend(inputs, data.draw(arrays(masked, (inputs[0].dtype.name,))))


@given(FEW, FEW, FEW, FEW, st.data())
def test_shared_heads(heads: int, share: int, n: int, m: int, data: Data) -> None:
    inputs = one_type(data, (2, heads * share, n, 3), (2, heads, m, 3), (2, heads, m, 2), low=-1, high=1)
    attend(inputs, enable_gqa=True)


@judged("torch", "aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm")
@given(shapes(1, 4, 1), st.booleans(), st.data())
def test_layer_norm(shape: Shape, scaled: bool, data: Data) -> None:
    inner = shape[data.draw(st.integers(0, len(shape) - 1)) :]
    x, weight, bias = one_type(data, shape, inner, inner)
    given_ = (weight, bias) if scaled else (None, None)
    tensors = map(tensor_of, (x, *given_))
    expected = torch.ops.aten.native_layer_norm(next(tensors), inner, *tensors, 0.125)
    attributes: dict[str, Given] = {"normalized_shape": inner, "eps": 0.125}
    agree("native_layer_norm", [x, *given_], attributes, expected, tolerance=2e-5)
    agree("layer_norm", [x, *given_], attributes, expected[0], tolerance=2e-5)
    tensors = map(tensor_of, (x, given_[0]))
    expected = torch.rms_norm(next(tensors), inner, next(tensors), 0.125)
    agree("rms_norm", [x, given_[0]], attributes, expected, tolerance=2e-5)


@judged("torch", "aten.group_norm")
@given(shapes(0, 2, 1), FEW, FEW, FEW, st.booleans(), st.data())
def test_group_norm(space: Shape, b: int, groups: int, each: int, scaled: bool, data: Data) -> None:
    channels = groups * each
    x, weight, bias = one_type(data, (b, channels, *space), (channels,), (channels,))
    given_ = (weight, bias) if scaled else (None, None)
    expected = torch.group_norm(tensor_of(x), groups, *map(tensor_of, given_), 0.125)
    agree("group_norm", [x, *given_], {"num_groups": groups, "eps": 0.125}, expected, tolerance=2e-5)


@judged("torch", "aten.batch_norm", "aten.native_batch_norm_legit_no_training")
@given(shapes(0, 2, 1), FEW, FEW, st.booleans(), st.data())
def test_batch_norm(space: Shape, b: int, c: int, scaled: bool, data: Data) -> None:
    x, weight, bias, mean = one_type(data, (b, c, *space), (c,), (c,), (c,))
    variance = np.abs(mean)
    given_ = (weight, bias) if scaled else (None, None)
    tensors = list(map(tensor_of, (x, *given_, mean, variance)))
    expected = torch.ops.aten.batch_norm(*tensors, False, 0.1, 0.125, False)
    for name in ("batch_norm", "native_batch_norm_legit_no_training"):
        agree(name, [x, *given_, mean, variance], {"eps": 0.125}, expected, tolerance=2e-5)


@st.composite
def windows(draw: st.DrawFn, rank: int, largest: int = 3) -> dict[str, Shape]:
    """Attributes of a convolution."""

    def several(low: int, high: int) -> Shape:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    return {"stride": several(1, 3), "padding": several(0, largest - 1), "dilation": several(1, 2)}


@judged("torch", "aten.conv1d", "aten.conv2d", "aten.conv3d", "aten.convolution")
@pytest.mark.parametrize("rank", [1, 2, 3])
@given(st.tuples(FEW, FEW, FEW, st.integers(1, 2)), st.booleans(), st.data())
def test_convolutions(rank: int, sizes: tuple[int, int, int, int], biased: bool, data: Data) -> None:
    b, m, n, groups = sizes
    given_ = data.draw(windows(rank))
    kernel = data.draw(shapes(rank, rank, 1, 3))
    space = tuple((f - 1) * d + data.draw(FEW) for f, d in zip(kernel, given_["dilation"], strict=True))
    x, weight, bias = one_type(data, (b, n * groups, *space), (m * groups, n, *kernel), (m * groups,))
    inputs = [x, weight, *([bias] if biased else [])]
    function = getattr(torch.nn.functional, f"conv{rank}d")
    expected = function(*map(tensor_of, inputs), groups=groups, **given_)
    agree(f"conv{rank}d", inputs, {**given_, "groups": groups}, expected, tolerance=1e-4)
    agree("convolution", inputs, {**given_, "groups": groups}, expected, tolerance=1e-4)


@judged("torch", "aten.conv_transpose1d", "aten.conv_transpose2d", "aten.convolution")
@pytest.mark.parametrize("rank", [1, 2])
@given(st.tuples(FEW, FEW, FEW, st.integers(1, 2)), st.booleans(), st.data())
def test_transposed(rank: int, sizes: tuple[int, int, int, int], biased: bool, data: Data) -> None:
    b, m, n, groups = sizes
    given_ = data.draw(windows(rank, 2))
    more = tuple(data.draw(st.integers(0, stride - 1)) for stride in given_["stride"])
    kernel = data.draw(shapes(rank, rank, 2, 3))
    space = data.draw(shapes(rank, rank, 2, 4))
    x, weight, bias = one_type(data, (b, n * groups, *space), (n * groups, m, *kernel), (m * groups,))
    inputs = [x, weight, *([bias] if biased else [])]
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    attributes: dict[str, Given] = {**given_, "groups": groups, "output_padding": more}
    expected = function(*map(tensor_of, inputs), **attributes)
    agree(f"conv_transpose{rank}d", inputs, attributes, expected, tolerance=1e-4)
    agree("convolution", inputs, {**attributes, "transposed": True}, expected, tolerance=1e-4)


@judged("torch", "aten.max_pool1d", "aten.max_pool2d", "aten.avg_pool1d", "aten.avg_pool2d")
@pytest.mark.parametrize("rank", [1, 2])
@given(shapes(1, 2, 1, 3), st.booleans(), st.booleans(), st.data())
def test_pools(rank: int, leading: Shape, ceil: bool, borders: bool, data: Data) -> None:
    kernel = data.draw(shapes(rank, rank, 1, 3))
    padding = tuple(data.draw(st.integers(0, size // 2)) for size in kernel)
    x = data.draw(arrays((*leading, *(2 * size + data.draw(EXTENTS) for size in kernel))))
    given_: dict[str, Given] = {"kernel_size": kernel, "padding": padding, "ceil_mode": ceil}
    given_ |= {"stride": data.draw(shapes(rank, rank, 1, 4))} if data.draw(st.booleans()) else {}
    dilation = data.draw(shapes(rank, rank, 1, 2))
    function = getattr(torch.nn.functional, f"max_pool{rank}d")
    expected = function(tensor_of(x), **given_, dilation=dilation)
    agree(f"max_pool{rank}d", [x], {**given_, "dilation": dilation}, expected)
    given_ |= {"count_include_pad": borders}
    given_ |= {"divisor_override": 3} if rank == 2 and data.draw(st.booleans()) else {}
    function = getattr(torch.nn.functional, f"avg_pool{rank}d")
    agree(f"avg_pool{rank}d", [x], given_, function(tensor_of(x), **given_))


@judged("torch", "aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d")
@pytest.mark.parametrize("rank", [1, 2])
@given(shapes(1, 2, 1, 3), st.data())
def test_adaptive_pools(rank: int, leading: Shape, data: Data) -> None:
    x = data.draw(arrays((*leading, *data.draw(shapes(rank, rank, 1, 9)))))
    judge(f"adaptive_avg_pool{rank}d", x, output_size=data.draw(shapes(rank, rank, 1, 5)))


@judged("torch", "aten.upsample_nearest2d", "aten.upsample_bilinear2d")
@given(shapes(4, 4, 1, 4), shapes(2, 2, 1, 7), st.booleans(), st.data())
def test_resized(shape: Shape, size: Shape, corners: bool, data: Data) -> None:
    x = data.draw(arrays(shape))
    nearest, bilinear = torch.ops.aten.upsample_nearest2d.vec, torch.ops.aten.upsample_bilinear2d.vec
    agree("upsample_nearest2d", [x], {"output_size": size}, nearest(tensor_of(x), size, None))
    expected = bilinear(tensor_of(x), size, corners, None)
    agree("upsample_bilinear2d", [x], {"output_size": size, "align_corners": corners}, expected)
    factors = (float(size[0]), float(size[1]))
    agree("upsample_nearest2d", [x], {"scale_factors": factors}, nearest(tensor_of(x), None, factors))
    expected = bilinear(tensor_of(x), None, False, factors)
    agree("upsample_bilinear2d", [x], {"scale_factors": factors}, expected)
