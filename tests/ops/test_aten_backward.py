"""The gradients of `aten`, judged by torch: its own backward operators, and what its automatic gradients give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import Array, arrays, axis_of, shapes
from tests.support.judges.harness import refuse
from tests.support.judges.registry import Given, Refusal, judged

Data = st.DataObject
Shape = tuple[int, ...]
REALS = ("float32", "float64")
MASK = [True, True, True]


def gradients(function: Callable[..., Any], back: Array, *inputs: Array) -> tuple[Any, ...]:
    """What torch's automatic gradients give for each input."""
    leaves = [tensor_of(item).requires_grad_() for item in inputs]
    found: tuple[Any, ...] = torch.autograd.grad(function(*leaves), leaves, tensor_of(back))
    return found


@judged(
    "torch",
    *("aten.threshold_backward", "aten.gelu_backward", "aten.silu_backward", "aten.hardsigmoid_backward"),
    *("aten.hardswish_backward", "aten.leaky_relu_backward", "aten.elu_backward"),
)
@given(shapes(0, 4), st.sampled_from(REALS), st.data())
def test_elements(shape: Shape, dtype: str, data: Data) -> None:
    back, x = (data.draw(arrays(shape, (dtype,), -5, 5)) for _ in range(2))
    judge("threshold_backward", back, x, threshold=0.5)
    judge("silu_backward", back, x)
    for name in ("hardsigmoid_backward", "hardswish_backward"):
        expected = getattr(torch.ops.aten, name)(tensor_of(back), tensor_of(x))
        agree(name, [back, x], {}, expected, tolerance=1e-6)
    for way in ("none", "tanh"):
        judge("gelu_backward", back, x, approximate=way)
    slope = torch.ops.aten.leaky_relu_backward(tensor_of(back), tensor_of(x), 0.125, False)
    agree("leaky_relu_backward", [back, x], {"negative_slope": 0.125}, slope)
    for result in (False, True):
        factors: dict[str, Given] = {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5, "is_result": result}
        expected = torch.ops.aten.elu_backward(tensor_of(back), 1.5, 2.0, 0.5, result, tensor_of(x))
        agree("elu_backward", [back, x], factors, expected)


@judged("torch", "aten.sigmoid_backward", "aten.tanh_backward")
@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
@given(shapes(0, 4), st.data())
def test_elements_by_what_was_given(name: str, shape: Shape, data: Data) -> None:
    back, x = (data.draw(arrays(shape, ("float64",), -5, 5)) for _ in range(2))
    result = getattr(torch, name)(tensor_of(x))
    judge(f"{name}_backward", back, np.asarray(result))
    agree(f"{name}_backward", [back, np.asarray(result)], {}, gradients(getattr(torch, name), back, x))


@judged("torch", "aten.softmax_backward_data", "aten.log_softmax_backward_data")
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@given(shapes(1, 4), st.sampled_from(REALS), st.data())
def test_softmax(name: str, shape: Shape, dtype: str, data: Data) -> None:
    back, x = (data.draw(arrays(shape, (dtype,), -5, 5)) for _ in range(2))
    dim = data.draw(axis_of(len(shape)))
    result = getattr(torch, name)(tensor_of(x), dim)
    direct = getattr(torch.ops.aten, f"_{name}_backward_data")
    for expected in (
        direct(tensor_of(back), result, dim, result.dtype),
        gradients(lambda leaf: getattr(torch, name)(leaf, dim), back, x),
    ):
        agree(f"{name}_backward_data", [back, np.asarray(result)], {"dim": dim}, expected, tolerance=1e-4)


@judged("torch", "aten.native_layer_norm_backward")
@given(shapes(1, 4, 1), st.data())
def test_layer_norm(shape: Shape, data: Data) -> None:
    size = shape[data.draw(st.integers(0, len(shape) - 1)) :]
    back, x = (data.draw(arrays(shape, ("float64",))) for _ in range(2))
    weight, bias = (data.draw(arrays(size, ("float64",))) for _ in range(2))
    _, mean, rstd = torch.native_layer_norm(tensor_of(x), size, tensor_of(weight), tensor_of(bias), 0.125)
    moments = np.asarray(mean), np.asarray(rstd)
    expected = torch.ops.aten.native_layer_norm_backward(
        tensor_of(back), tensor_of(x), size, mean, rstd, tensor_of(weight), tensor_of(bias), MASK
    )

    def normalise(*leaves: Any) -> Any:
        return torch.layer_norm(leaves[0], size, *leaves[1:], 0.125)

    given_: dict[str, Given] = {"normalized_shape": size}
    agree("native_layer_norm_backward", [back, x, *moments, weight, bias], given_, expected)
    agree(
        "native_layer_norm_backward",
        [back, x, *moments, weight, bias],
        given_,
        gradients(normalise, back, x, weight, bias),
    )


@judged("torch", "aten.native_group_norm_backward")
@given(st.integers(1, 3), st.integers(1, 2), shapes(1, 3, 1, 3), st.booleans(), st.data())
def test_group_norm(groups: int, each: int, rest: Shape, affine: bool, data: Data) -> None:
    shape = (rest[0], groups * each, *rest[1:])
    back, x = (data.draw(arrays(shape, ("float64",))) for _ in range(2))
    weight = data.draw(arrays((shape[1],), ("float64",))) if affine else np.ones(shape[1])
    bias = np.zeros(shape[1])
    sizes = (shape[0], shape[1], int(np.prod(shape[2:])), groups)
    tensors = tensor_of(x), tensor_of(weight), tensor_of(bias)
    _, mean, rstd = torch.ops.aten.native_group_norm(*tensors, *sizes, 0.125)

    def normalise(*leaves: Any) -> Any:
        return torch.group_norm(leaves[0], groups, *leaves[1:], 0.125)

    inputs = [back, x, np.asarray(mean), np.asarray(rstd), weight if affine else None]
    direct = torch.ops.aten.native_group_norm_backward(
        tensor_of(back), tensors[0], mean, rstd, tensors[1], *sizes, MASK
    )
    for expected in (direct, gradients(normalise, back, x, weight, bias)):
        agree("native_group_norm_backward", inputs, {"group": groups}, expected)


@judged("torch", "aten.embedding_dense_backward")
@given(shapes(0, 3), st.integers(1, 4), st.integers(1, 3), st.integers(-1, 3), st.data())
def test_embedding(shape: Shape, rows: int, columns: int, padding: int, data: Data) -> None:
    back = data.draw(arrays((*shape, columns), REALS))
    places = data.draw(arrays(shape, ("int64",), 0, rows - 1))
    expected = torch.ops.aten.embedding_dense_backward(
        tensor_of(back), tensor_of(places), rows, padding, False
    )
    agree(
        "embedding_dense_backward",
        [back, places],
        {"num_weights": rows, "padding_idx": padding},
        expected,
    )


@judged("torch", "aten.mse_loss", "aten.mse_loss_backward")
@pytest.mark.parametrize("reduction", [0, 1, 2])
@given(shapes(0, 3, 1), st.data())
def test_mean_square(reduction: int, shape: Shape, data: Data) -> None:
    x, target = (data.draw(arrays(shape, ("float64",))) for _ in range(2))
    judge("mse_loss", x, target, reduction=reduction)
    back = data.draw(arrays(() if reduction else shape, ("float64",)))
    judge("mse_loss_backward", back, x, target, reduction=reduction)
    (expected,) = gradients(lambda leaf: torch.ops.aten.mse_loss(leaf, tensor_of(target), reduction), back, x)
    agree("mse_loss_backward", [back, x, target], {"reduction": reduction}, expected)


@judged("torch", "aten.nll_loss_forward", "aten.nll_loss_backward")
@pytest.mark.parametrize("reduction", [0, 1, 2])
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from((-100, 0, 1)), st.booleans(), st.data())
def test_likelihood(
    reduction: int, rows: int, classes: int, ignored: int, weighted: bool, data: Data
) -> None:
    x = data.draw(arrays((rows, classes), ("float64",)))
    target = data.draw(arrays((rows,), ("int64",), 0, classes - 1))
    if ignored < 0 and data.draw(st.booleans()):
        target[0] = ignored
    weight = data.draw(arrays((classes,), ("float64",), 1)) if weighted else None
    back = data.draw(arrays(() if reduction else (rows,), ("float64",)))
    told: dict[str, Given] = {"reduction": reduction, "ignore_index": ignored}
    operands = (*map(tensor_of, (x, target, weight)), reduction, ignored)
    loss, total = torch.ops.aten.nll_loss_forward(*operands)
    agree("nll_loss_forward", [x, target, weight], told, (loss, total))
    direct = torch.ops.aten.nll_loss_backward(tensor_of(back), *operands, total)
    (automatic,) = gradients(lambda leaf: torch.ops.aten.nll_loss_forward(leaf, *operands[1:])[0], back, x)
    for expected in (direct, automatic):
        agree("nll_loss_backward", [back, x, target, weight, np.asarray(total)], told, expected)


@judged("torch", "aten.convolution_backward")
@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(0, 2), st.data())
def test_convolution(groups: int, stride: int, dilation: int, padding: int, data: Data) -> None:
    kernel, image = data.draw(shapes(2, 2, 1, 3)), data.draw(shapes(2, 2, 5, 7))
    x = data.draw(arrays((2, 2 * groups, *image), ("float64",)))
    weight = data.draw(arrays((2 * groups, 2, *kernel), ("float64",)))
    steps = ([stride, 1], [padding, 0], [dilation, 1])
    bias = np.zeros(2 * groups)

    def convolve(*leaves: Any) -> Any:
        return torch.conv2d(*leaves, *steps, groups)

    shape = convolve(*map(tensor_of, (x, weight, bias))).shape
    back = data.draw(arrays(tuple(shape), ("float64",)))
    direct = torch.ops.aten.convolution_backward(
        *map(tensor_of, (back, x, weight)), [2 * groups], *steps, False, [0, 0], groups, MASK
    )
    told = dict(zip(("stride", "padding", "dilation"), map(tuple, steps), strict=True))
    given_: dict[str, Given] = {**told, "groups": groups, "bias_sizes": (2 * groups,)}
    for expected in (direct, gradients(convolve, back, x, weight, bias)):
        agree("convolution_backward", [back, x, weight], given_, expected)


@judged("torch", "aten.max_pool2d_with_indices_backward", "aten.avg_pool2d_backward")
@given(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans(), st.data())
def test_windows(size: int, stride: int, ceiling: bool, counting: bool, data: Data) -> None:
    padding, divisor = data.draw(st.integers(0, size // 2)), data.draw(st.none() | st.just(3))
    x = data.draw(arrays((*data.draw(shapes(1, 2, 1, 3)), 5, 6), ("float64",)))
    window = [size, size], [stride, stride], [padding, padding]
    told: dict[str, Given] = {
        **dict(zip(("kernel_size", "stride", "padding"), map(tuple, window), strict=True)),
        "ceil_mode": ceiling,
    }
    values, places = torch.ops.aten.max_pool2d_with_indices(tensor_of(x), *window, [1, 1], ceiling)
    back = data.draw(arrays(tuple(values.shape), ("float64",)))
    expected = torch.ops.aten.max_pool2d_with_indices_backward(
        tensor_of(back), tensor_of(x), *window, [1, 1], ceiling, places
    )
    largest: dict[str, Given] = {**told, "dilation": (1, 1)}
    agree("max_pool2d_with_indices_backward", [back, x, np.asarray(places)], largest, expected)
    expected = torch.ops.aten.avg_pool2d_backward(
        tensor_of(back), tensor_of(x), *window, ceiling, counting, divisor
    )
    told |= {"count_include_pad": counting} | ({} if divisor is None else {"divisor_override": divisor})
    agree("avg_pool2d_backward", [back, x], told, expected)


@judged("torch", "aten.adaptive_avg_pool2d_backward")
@given(shapes(3, 4, 1, 6), shapes(2, 2, 1, 5), st.data())
def test_adaptive_windows(shape: Shape, size: Shape, data: Data) -> None:
    x, back = data.draw(arrays(shape, ("float64",))), data.draw(arrays((*shape[:-2], *size), ("float64",)))
    direct = torch.ops.aten._adaptive_avg_pool2d_backward(tensor_of(back), tensor_of(x))

    def pool(leaf: Any) -> Any:
        return torch.nn.functional.adaptive_avg_pool2d(leaf, size)

    for expected in (direct, gradients(pool, back, x)):
        agree("adaptive_avg_pool2d_backward", [back, x], {}, expected)


AXIS = "'dim' must be at least -2 and below 2"
CONVOLVED = ((1, 2, 3, 3), (1, 2, 4, 4), (2, 2, 2, 2))
WINDOW: dict[str, Given] = {"kernel_size": 2, "stride": 2, "padding": 0}
LARGEST: dict[str, Given] = {**WINDOW, "dilation": 1, "ceil_mode": False}
LEADING = "must have the leading extents"
FLAT = "must have at least 3 dimensions"
LIKELY = "f32 f32 i64 f32 f32"
REFUSALS = (
    Refusal("aten.gelu_backward", "'approximate' must be one of", ((2,), (2,)), {"approximate": "erf"}),
    *(Refusal(f"aten.{name}softmax_backward_data", AXIS, ((2, 3),) * 2, {"dim": 2}) for name in ("", "log_")),
    Refusal(
        "aten.native_layer_norm_backward",
        "the last extents must be",
        ((2, 3), (2, 3), (2, 1), (2, 1)),
        {"normalized_shape": (4,)},
    ),
    Refusal(
        "aten.native_layer_norm_backward",
        "the weight must have the shape",
        ((2, 3), (2, 3), (2, 1), (2, 1), (1,)),
        {"normalized_shape": (3,)},
    ),
    Refusal(
        "aten.native_group_norm_backward",
        "cannot be divided into 2 groups",
        ((1, 3, 2), (1, 3, 2), (1, 2), (1, 2)),
        {"group": 2},
    ),
    Refusal(
        "aten.embedding_dense_backward",
        "must not be negative",
        ((2, 3), (2,)),
        {"num_weights": -1},
        "f32 i64",
    ),
    Refusal(
        "aten.embedding_dense_backward",
        "are not divided by how often",
        ((2, 3), (2,)),
        {"num_weights": 1, "scale_grad_by_freq": True},
        "f32 i64",
    ),
    Refusal("aten.mse_loss", "'reduction' must be", ((2,), (2,)), {"reduction": 3}),
    Refusal("aten.mse_loss_backward", "'reduction' must be", ((), (2,), (2,)), {"reduction": 3}),
    Refusal("aten.mse_loss_backward", "joins packs of lengths 0 and 1", ((), (2,), (2,)), {"reduction": 0}),
    Refusal("aten.nll_loss_forward", "'reduction' must be", ((2, 3), (2,)), {"reduction": -1}, "f32 i64"),
    Refusal(
        "aten.nll_loss_backward",
        "'reduction' must be",
        ((), (2, 3), (2,), (3,), ()),
        {"reduction": 3},
        LIKELY,
    ),
    Refusal(
        "aten.nll_loss_backward",
        "the dimensions of the loss",
        ((2,), (2, 3), (2,), (3,), ()),
        {"reduction": 1},
        LIKELY,
    ),
    *(
        Refusal("aten.convolution_backward", said, CONVOLVED, wrong)
        for said, wrong in (
            ("gradients of transposed convolutions", {"transposed": True}),
            ("'groups' must be positive", {"groups": 0}),
            ("'stride' must be at least 1", {"stride": 0}),
            ("'dilation' must be at least 1", {"dilation": 0}),
            ("is for transposed convolutions", {"output_padding": 1}),
            ("cannot be divided into 4 groups", {"groups": 4}),
            ("the filters are made for 4", {"groups": 2}),
            ("the bias has", {"bias_sizes": 3}),
            ("the convolution gives", {"padding": 1}),
        )
    ),
    Refusal("aten.max_pool2d_with_indices_backward", FLAT, ((2, 2),) * 3, LARGEST, "f32 f32 i64"),
    Refusal(
        "aten.max_pool2d_with_indices_backward",
        LEADING,
        ((2, 2, 2), (3, 4, 4), (2, 2, 2)),
        LARGEST,
        "f32 f32 i64",
    ),
    Refusal("aten.adaptive_avg_pool2d_backward", FLAT, ((2, 2), (4, 4))),
    Refusal("aten.adaptive_avg_pool2d_backward", LEADING, ((2, 2, 2), (3, 4, 4))),
    Refusal("aten.avg_pool2d_backward", FLAT, ((2, 2), (4, 4)), WINDOW),
    Refusal("aten.avg_pool2d_backward", "must have the shape of 'output'", ((2, 2, 2), (3, 4, 4)), WINDOW),
    *(
        Refusal("aten.avg_pool2d_backward", said, ((3, 2, 2), (3, 4, 4)), {**WINDOW, **wrong})
        for said, wrong in (
            ("'kernel_size' must be at least 1", {"kernel_size": 0}),
            ("'stride' must be at least 1", {"stride": 0}),
            ("'divisor_override' must not be zero", {"divisor_override": 0}),
        )
    ),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
