"""Calls of the operators of `aten` that compute gradients and losses."""

from __future__ import annotations

from tests.support.bridge.operators.calls import call

BACK = ("f32 2 3 -4..4", "f32 2 3 -4..4")
ELU = {"alpha": 1.5, "scale": 2.0, "input_scale": 0.5}
MOMENTS = ("f32 2 1 1", "f32 2 1 1 0.5..2")
CLASSES = ("f32 4 3 -4..0", "i64 4 0..2")
WINDOW = {"kernel_size": (3, 2), "stride": (2, 2), "padding": (1, 0)}
CONVOLVED = ("f32 2 4 3 4", "f32 2 4 5 5", "f32 4 2 3 2")
CALLS = (
    call("aten.threshold_backward", *BACK, threshold=0.5),
    call("aten.gelu_backward", *BACK),
    call("aten.gelu_backward", *BACK, approximate="tanh"),
    call("aten.silu_backward", *BACK),
    call("aten.sigmoid_backward", "f32 2 3 -4..4", "f32 2 3 0..1"),
    call("aten.tanh_backward", "f32 2 3 -4..4", "f32 2 3 -1..1"),
    call("aten.hardsigmoid_backward", *BACK),
    call("aten.hardswish_backward", *BACK),
    call("aten.leaky_relu_backward", *BACK, negative_slope=0.125),
    call("aten.elu_backward", *BACK, **ELU, is_result=False),
    call("aten.elu_backward", *BACK, **ELU, is_result=True),
    call("aten.softmax_backward_data", "f32 2 3 4 -4..4", "f32 2 3 4 0..1", dim=1),
    call("aten.log_softmax_backward_data", "f32 2 3 4 -4..4", "f32 2 3 4 -4..0", dim=-1),
    call(
        "aten.native_layer_norm_backward",
        *("f32 2 3 4 -4..4", "f32 2 3 4 -4..4", *MOMENTS, "f32 3 4", "f32 3 4"),
        normalized_shape=(3, 4),
    ),
    call(
        "aten.native_layer_norm_backward",
        *("f32 2 3 4 -4..4", "f32 2 3 4 -4..4", *MOMENTS, None, None),
        normalized_shape=(3, 4),
    ),
    call(
        "aten.native_group_norm_backward",
        *("f32 2 6 3 -4..4", "f32 2 6 3 -4..4", "f32 2 2", "f32 2 2 0.5..2", "f32 6"),
        group=2,
    ),
    call("aten.embedding_dense_backward", "f32 2 5 3 -4..4", "i64 2 5 0..3", num_weights=4, padding_idx=1),
    *(call("aten.mse_loss", *BACK, reduction=way) for way in (0, 1, 2)),
    call("aten.mse_loss_backward", "f32 2 3", *BACK, reduction=0),
    call("aten.mse_loss_backward", "f32", *BACK, reduction=1),
    call("aten.mse_loss_backward", "f32", *BACK, reduction=2),
    *(call("aten.nll_loss_forward", *CLASSES, None, reduction=way) for way in (0, 1, 2)),
    call("aten.nll_loss_forward", *CLASSES, "f32 3 1..2", reduction=1, ignore_index=1),
    call("aten.nll_loss_backward", "f32 4", *CLASSES, None, "f32 1..4", reduction=0),
    call("aten.nll_loss_backward", "f32", *CLASSES, "f32 3 1..2", "f32 1..4", reduction=1, ignore_index=1),
    call("aten.nll_loss_backward", "f32", *CLASSES, None, "f32 1..4", reduction=2),
    call(
        "aten.convolution_backward",
        *CONVOLVED,
        bias_sizes=(4,),
        stride=(2, 1),
        padding=(1, 0),
        groups=2,
    ),
    call(
        "aten.max_pool2d_with_indices_backward",
        *("f32 2 3 3 2", "f32 2 3 6 5", "i64 2 3 3 2 0..29"),
        **WINDOW,
        dilation=(1, 1),
        ceil_mode=False,
    ),
    call("aten.avg_pool2d_backward", "f32 2 3 3 2", "f32 2 3 6 5", **WINDOW, count_include_pad=False),
    call("aten.avg_pool2d_backward", "f32 2 3 3 2", "f32 2 3 6 5", **WINDOW, divisor_override=3),
    call("aten.adaptive_avg_pool2d_backward", "f32 2 3 2 4", "f32 2 3 6 5"),
)
