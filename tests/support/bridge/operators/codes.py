"""Calls of the operators on codes."""

from __future__ import annotations

from tests.support.bridge.operators.calls import call
from tests.support.judges.registry import Given

X_Y: dict[str, Given] = {"x_scale": 0.05, "x_zero": 3, "y_scale": 0.125, "y_zero": -20}
A_B_Y: dict[str, Given] = {"a_scale": 0.05, "a_zero": 3, "b_scale": 0.25, "b_zero": -7, "y_scale": 0.5}
UNARY = ("relu", "leaky_relu", "sigmoid", "tanh", "gelu", "silu", "exp", "log", "sqrt", "abs", "neg")
BINARY = ("add", "sub", "mul", "div", "min", "max")
X = "i8 2 3 4 -128..127"

CALLS = (
    call("quant.quantize", "f32 3 5 -9..9", scale=0.07, zero_point=-5),
    call("quant.quantize<i16>", "f16 3 5 -9..9", scale=0.25),
    call("quant.quantize<u8>", "f64 3 5 -9..9", scale=0.07, zero_point=130),
    call("quant.dequantize", X, scale=0.07, zero_point=-5),
    call("quant.dequantize<f16>", X, scale=0.07, zero_point=-5),
    call("quant.requantize<i16>", X, **X_Y),
    call("quant.decode", "i8 4 6 -128..127", "f64 4 1 0.01..0.02"),
    call("quant.decode<f16>", "i8 4 6 -128..127", "f64 2 3 0.01..0.02"),
    call("quant.look_up", "i4 4 6 -8..7", numbers=tuple(item / 4 - 1.5 for item in range(16))),
    call("quant.linear_codes", X, scale=(0.5, 0.25, 1.0), axis=1),
    *(call(f"quant.{name}", X, **X_Y) for name in UNARY),
    call("quant.sigmoid<i16>", X, **X_Y),
    call("quant.clamp", X, **X_Y, low=0.0, high=1.5),
    *(call(f"quant.{name}", X, "i8 4 -128..127", **A_B_Y) for name in BINARY),
    call("quant.add<i16>", X, X, **A_B_Y),
    call(
        "quant.conv",
        *("i8 1 4 6 5 -128..127", "i8 6 2 3 3 -128..127", "i32 6 -900..900", "f64 6 0.01..0.02"),
        **X_Y,
        groups=2,
        padding=(1, 0, 1, 2),
        stride=(2, 1),
    ),
    call("quant.conv", "i8 2 3 6 -128..127", "i8 4 3 2 -8..7", None, "f64 1 0.01..0.02", **X_Y, w_bits=4),
    call(
        "quant.matmul",
        *("i8 2 3 4 -128..127", "i8 4 5 -128..127", "i32 5 -900..900", "f64 5 0.01..0.02"),
        a_scale=0.05,
        a_zero=3,
        y_scale=0.125,
    ),
    call(
        "quant.matmul<i16>",
        *("i8 2 3 4 -128..127", "i8 2 5 4 -128..127", None, "f64 1 0.01..0.02"),
        a_scale=0.05,
        b_zero=3,
        y_scale=0.125,
        transB=True,
    ),
    call("quant.avg_pool", "i8 1 2 5 6 -128..127", **X_Y, size=(2, 3), padding=(1, 0, 0, 2), stride=2),
    call("quant.mean", X, **X_Y, axes=(1, 2)),
)
