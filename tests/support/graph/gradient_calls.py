"""Calls of operators that only imported models and steps of training have, for the judges of gradients."""

from __future__ import annotations

from tests.support.bridge.operators.calls import call

X = "f64 3 4 -2..2"
PLACES = "i64 3 4 0..2"
IMAGE = "f64 1 2 5 6 -1..1"
ROIS = ("f64 2 4 0.6..3.4", "i64 2 0..0")
CELLS = {"height": 2, "width": 2, "samples": 2, "scale": 1.0, "half": True}

CALLS = (
    call("aten.mse_loss", X, X),
    call("aten.mse_loss", X, X, reduction=0),
    call("aten.nll_loss_forward", X, "i64 3 0..3", reduction=1),
    call("onnx.hard_sigmoid", X),
    call("onnx.hard_swish", X),
    call("onnx.swish", X, alpha=1.3),
    call("onnx.softplus", X),
    call("onnx.shrink", X, bias=0.25),
    call("onnx.prelu", X, "f64 4"),
    call("onnx.pad_around", X, before=(1, 0), after=(0, 2)),
    call("onnx.gather", X, "i64 2 2 0..2", axis=0),
    call("onnx.gather_elements", X, PLACES, axis=0),
    call("onnx.gather_nd", X, "i64 5 1 0..2"),
    *(call(f"onnx.scatter_{way}", X, PLACES, X, axis=0) for way in ("none", "add", "mul", "max", "min")),
    *(
        call(f"onnx.scatter_nd_{way}", X, "i64 2 1 0..2", "f64 2 4 -2..2")
        for way in ("none", "add", "mul", "max", "min")
    ),
    call("onnx.tensor_scatter", "f64 2 5 3", "f64 2 2 3", "i64 2 0..2", axis=1),
    call("onnx.one_hot", "i64 3 0..4", "f64 2", axis=1, depth=5),
    call("onnx.reverse_sequence", X, "i64 3 1..4", batch_axis=0, time_axis=1),
    call("onnx.cumulative_sum", X, axis=1),
    call("onnx.cumulative_sum", X, axis=0, exclusive=True, reverse=True),
    call("onnx.cumulative_product", X, axis=1),
    call("onnx.cumulative_product", X, axis=0, exclusive=True, reverse=True),
    call(
        "onnx.col2im",
        "f64 1 8 6 -1..1",
        image=(3, 4),
        block=(2, 2),
        dilation=(1, 1),
        padding=(0, 0),
        after=(0, 0),
        stride=(1, 1),
    ),
    call("onnx.reduce_l1", X, axes=(1,)),
    call("onnx.reduce_sum_square", X, axes=(0,), squeeze=True),
    call("onnx.reduce_l2", X),
    call("onnx.reduce_log_sum", "f64 3 4 0.5..2", axes=(1,)),
    call("onnx.reduce_log_sum_exp", X, axes=(1,)),
    call(
        "onnx.conv_transpose",
        "f64 1 4 3 3 -1..1",
        "f64 4 2 2 2 -1..1",
        "f64 4",
        stride=(2, 2),
        dilation=(1, 1),
        padding=(0, 0),
        size=(6, 6),
        groups=2,
    ),
    call("onnx.normalize", X, axes=(1,), epsilon=1e-5),
    call("onnx.rms_normalize", X, axes=(1,), epsilon=1e-5),
    call("onnx.lp_normalize", X, axis=1),
    call("onnx.mean_variance_norm", "f64 2 3 4 -1..1", axes=(0, 2)),
    call("onnx.cap", X, cap=1.5),
    call("onnx.safe_softmax", X),
    call("onnx.rotate_halves", "f64 1 3 2 6 -1..1", "f64 1 3 1 2", "f64 1 3 1 2"),
    call("onnx.rotate_pairs", "f64 1 3 2 6 -1..1", "f64 1 3 1 2", "f64 1 3 1 2"),
    call("onnx.resample", X, "i64 2 5 0..3", "f64 2 5", axis=1),
    call("onnx.reflect_grid", "f64 1 3 3 2 -1.8..1.8"),
    call("onnx.affine_grid", "f64 2 2 3 -1..1", size=(3, 4)),
    call("onnx.roi_align", IMAGE, *ROIS, **CELLS),
    call("onnx.roi_align_max", IMAGE, *ROIS, **CELLS),
    call(
        "onnx.deform_conv",
        "f64 1 2 4 4 -1..1",
        "f64 3 2 2 2 -1..1",
        "f64 1 8 3 3 -0.4..0.4",
        "f64 1 4 3 3",
        "f64 3",
        stride=(1, 1),
        dilation=(1, 1),
        padding=(0, 0),
    ),
    call("onnx.eliminate", "f64 2 3 3 -2..2"),
    call("onnx.pick_losses", "f64 2 3 4 -1..1", "i64 2 4 0..2", "f64 3", ignored=-1),
    call("onnx.pick_weights", "i64 2 4 0..2", "f64 3", ignored=-1),
    call("onnx.fourier", "f64 2 5 2 -1..1", axis=1, length=5, size=5),
    call("onnx.inverse_of_half", "f64 2 3 2 -1..1", axis=1, length=4),
    call("optim.squared_error", X, X),
    call("optim.square_sum", X),
    call("quant.pick", "u8 32 0..255", "f64 1", "f64 16 -1..1", shape=(8, 8)),
    call("misc.after", X, "f64 2"),
)
