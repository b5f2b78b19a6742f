"""Drawn networks as plans: of codes bit by bit, of real numbers within f16; tiled ones as the selected ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from lamella.base.dtype import F32, I16, I64
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from tests.support.plan.selection import Drawing, assert_close, assert_equal

DEVICES = ("npm_lite", "npm_pro", None)


@dataclass(slots=True)
class Codes:
    """A tensor of codes and what they mean."""

    tensor: Tensor
    scale: float
    zero: int


class CodeNetwork:
    """A drawn network on codes."""

    def __init__(self, seed: int) -> None:
        self.drawing = Drawing(seed)
        self.random = self.drawing.random
        self.call = self.drawing.call

    def fresh(self) -> tuple[float, int]:
        """What codes may mean."""
        return float(self.random.uniform(0.01, 0.2)), int(self.random.integers(-128, 128))

    def scales(self, count: int) -> Tensor:
        """Scales of weights: one, or one for each channel."""
        shape = count if self.random.integers(2) else 1
        return self.drawing.weight(self.random.uniform(0.001, 0.02, shape))

    def bias(self, count: int) -> Tensor | None:
        """A bias, or none."""
        if not self.random.integers(2):
            return None
        return self.drawing.weight(self.random.integers(-3000, 3000, count).astype(np.int32))

    def conv(self, x: Codes) -> Codes:
        """A convolution: dense, in groups or depthwise, padded or not."""
        channels = x.tensor.shape[1]
        assert isinstance(channels, int)
        groups = int(self.random.choice([item for item in (1, 2, channels) if channels % item == 0]))
        out = groups * int(self.random.integers(1, 4))
        size = [int(item) for item in self.random.integers(1, 4, 2)]
        pads = [int(self.random.integers(0, item)) for item in (*size, *size)]
        bits = int(self.random.choice([4, 8]))
        weight = self.drawing.codes(out, channels // groups, *size, bits=bits)
        scale, zero = self.fresh()
        means = {"x_scale": x.scale, "x_zero": x.zero, "y_scale": scale, "y_zero": zero, "w_bits": bits}
        steps = [int(item) for item in self.random.integers(1, 3, 2)]
        found = self.call(
            "quant.conv",
            x.tensor,
            weight,
            self.bias(out),
            self.scales(out),
            stride=steps,
            padding=pads,
            groups=groups,
            **means,
        )
        return Codes(found, scale, zero)

    def unary(self, x: Codes) -> Codes:
        """A function of each number."""
        name = str(self.random.choice(["relu", "gelu", "sigmoid", "tanh", "silu", "abs", "requantize"]))
        scale, zero = self.fresh()
        means = {"x_scale": x.scale, "x_zero": x.zero, "y_scale": scale, "y_zero": zero}
        return Codes(self.call(f"quant.{name}", x.tensor, **means), scale, zero)

    def binary(self, x: Codes) -> Codes:
        """The tensor with a function of itself."""
        other, name = self.unary(x), str(self.random.choice(["add", "mul", "sub", "max"]))
        scale, zero = self.fresh()
        means = {"a_scale": x.scale, "a_zero": x.zero, "b_scale": other.scale, "b_zero": other.zero}
        found = self.call(f"quant.{name}", x.tensor, other.tensor, **means, y_scale=scale, y_zero=zero)
        return Codes(found, scale, zero)

    def pool(self, x: Codes) -> Codes:
        """The largest of each window."""
        return Codes(self.call("nn.max_pool", x.tensor, size=[2, 2], padding=[0, 0, 1, 1]), x.scale, x.zero)

    def moved(self, x: Codes) -> Codes:
        """Rows and columns exchanged, twice the channels, some of them cut away."""
        turned = self.call("layout.transpose", x.tensor, perm=[0, 1, 3, 2])
        both = self.call("layout.concat", (turned, turned), axis=1)
        count = both.shape[1]
        assert isinstance(count, int)
        return Codes(self.call("layout.slice", both, axes=[1], begin=[1], end=[count]), x.scale, x.zero)

    def head(self, x: Codes) -> Codes:
        """A mean over places, and a product with a matrix."""
        scale, zero = self.fresh()
        means = {"x_scale": x.scale, "x_zero": x.zero, "y_scale": scale, "y_zero": zero}
        mean = self.call("quant.mean", x.tensor, axes=[2, 3], squeeze=True, **means)
        width = mean.shape[1]
        assert isinstance(width, int)
        weight, last = self.drawing.codes(5, width), self.fresh()
        means = {"a_scale": scale, "a_zero": zero, "y_scale": last[0], "y_zero": last[1], "transB": True}
        found = self.call("quant.matmul", mean, weight, self.bias(5), self.scales(5), **means)
        return Codes(found, *last)

    def model(self, layers: int) -> Model:
        """A network of some layers with a head."""
        batch, channels, rows, columns = (
            int(item) for item in self.random.integers((1, 1, 5, 5), (3, 5, 9, 9))
        )
        x = self.drawing.builder.input("x", F32, (batch, channels, rows, columns))
        scale, zero = self.fresh()
        at = Codes(self.call("quant.quantize", x, scale=scale, zero_point=zero), scale, zero)
        for _ in range(layers):
            extents = [item for item in at.tensor.shape[2:] if isinstance(item, int)]
            steps = [self.unary, self.binary, self.moved]
            at = (steps + [self.conv, self.conv, self.pool] * (min(extents) > 3))[
                self.random.integers(6 if min(extents) > 3 else 3)
            ](at)
        made = self.head(at)
        images = self.call("quant.dequantize", at.tensor, scale=at.scale, zero_point=at.zero)
        return self.drawing.finish(
            self.call("quant.dequantize", made.tensor, scale=made.scale, zero_point=made.zero), images
        )


@pytest.mark.parametrize("seed", range(8))
def test_codes(seed: int) -> None:
    """A drawn network of codes."""
    model = CodeNetwork(seed).model(5)
    found = assert_equal(model, DEVICES[seed % 3], seed=seed)
    assert {item.how for item in found.selection.report} <= {"opcode", "view", "decomposed"}


@pytest.mark.parametrize("seed", range(8, 11))
def test_tiled_codes(seed: int) -> None:
    """The same through the memories of a device."""
    assert len(assert_equal(CodeNetwork(seed).model(4), DEVICES[seed % 2], tiled=True, seed=seed).stages) == 2


def test_wide_codes() -> None:
    """Sums that leave as codes of 16 bits: the nearest variant has a bias, so it gets one of zeros."""
    drawing = Drawing(3)
    x = drawing.builder.input("x", F32, (4, 6))
    codes = drawing.call("quant.quantize", x, scale=0.05, zero_point=0)
    scales = drawing.weight(np.full(1, 0.01))
    means = {"a_scale": 0.05, "y_scale": 0.003, "transB": True}
    wide = drawing.call("quant.matmul", codes, drawing.codes(5, 6), None, scales, types={"Q": I16}, **means)
    model = drawing.finish(drawing.call("quant.dequantize", wide, scale=0.003))
    found = assert_equal(model, None)
    (task,) = [item for item in found.selection.report if item.operator == "quant.matmul"]
    assert task.opcodes == ("gemm",)


@pytest.mark.parametrize("stride", [[1, 1, 1], [2, 1, 2]])
def test_volumes_of_codes(stride: list[int]) -> None:
    """A window over three axes is one over two of all the depths under it, padded with the code of zero."""
    drawing = Drawing(4)
    x = drawing.builder.input("x", F32, (2, 3, 5, 6, 4))
    codes = drawing.call("quant.quantize", x, scale=0.05, zero_point=7)
    bias = drawing.weight(np.arange(5, dtype=np.int32) * 40)
    words = {"x_scale": 0.05, "x_zero": 7, "y_scale": 0.02, "y_zero": -3, "stride": stride}
    made = drawing.call(
        "quant.conv",
        codes,
        drawing.codes(5, 3, 3, 3, 2),
        bias,
        drawing.weight(np.full(1, 0.01)),
        padding=[1, 1, 0, 1, 1, 0],
        **words,
    )
    model = drawing.finish(drawing.call("quant.dequantize", made, scale=0.02, zero_point=-3))
    found = assert_equal(model, "npm_lite", tiled=True)
    assert not found.selection.kernels


class RealNetwork:
    """A drawn network of real numbers: an image, then a sequence."""

    def __init__(self, seed: int) -> None:
        self.drawing = Drawing(seed)
        self.random = self.drawing.random
        self.call = self.drawing.call

    def image(self, x: Tensor) -> Tensor:
        """A convolution, a norm of channels, an activation and a residual."""
        channels = x.shape[1]
        assert isinstance(channels, int)
        real = self.drawing.real
        y = self.call("nn.conv", x, real(channels, channels, 3, 3), real(channels), padding=[1, 1, 1, 1])
        scale, shift = (real(channels) for _ in range(2))
        y = self.call("math.add", self.call("math.mul", y, scale, rhs_align=1), shift, rhs_align=1)
        return self.call(
            "math.add", x, self.call(str(self.random.choice(["nn.relu", "nn.silu", "nn.gelu"])), y)
        )

    def sequence(self, x: Tensor) -> Tensor:
        """Attention and a layer of two products, each with a norm and a residual."""
        width = x.shape[-1]
        assert isinstance(width, int)
        real = self.drawing.real
        y = self.call("aten.layer_norm", x, real(width), real(width), normalized_shape=[width])
        y = self.call("aten.linear", y, real(width, width), real(width))
        heads = self.call("layout.unflatten", y, axis=-1, shape=[2, width // 2])
        heads = self.call("layout.transpose", heads, perm=[0, 2, 1, 3])
        mixed = self.call(
            "aten.scaled_dot_product_attention", heads, heads, heads, is_causal=bool(self.random.integers(2))
        )
        joined = self.call("layout.transpose", mixed, perm=[0, 2, 1, 3])
        x = self.call("math.add", x, self.call("layout.flatten", joined, axis=2))
        y = self.call("aten.linear", self.call("aten.softmax", x, dim=-1), real(2 * width, width), None)
        return self.call(
            "math.add",
            x,
            self.call("aten.linear", self.call("nn.gelu", y), real(width, 2 * width), real(width)),
        )

    def model(self) -> Model:
        """Images, their places as a sequence, a mean of it."""
        batch, channels, rows, columns = (
            int(item) for item in self.random.integers((1, 2, 3, 3), (3, 4, 6, 6))
        )
        x = self.drawing.builder.input("x", F32, (batch, 2 * channels, rows, columns))
        y = self.image(self.image(x))
        places = self.call("layout.transpose", self.call("layout.flatten", y, axis=2), perm=[0, 2, 1])
        return self.drawing.finish(self.call("math.mean_reduce", self.sequence(places), axes=[1]), y)


@pytest.mark.parametrize("seed", range(4))
def test_real(seed: int) -> None:
    """A drawn network of real numbers, also tiled."""
    found = assert_close(RealNetwork(seed).model(), DEVICES[seed % 2], tiled=True)
    assert not found.selection.kernels


def test_an_addend_for_columns_that_a_product_has_not() -> None:
    """Sums along an axis are a product with one column, of which the addend knows nothing."""
    drawing = Drawing(0)
    x = drawing.builder.input("x", F32, (2, 3, 5))
    sums = drawing.call("math.sum_reduce", x, axes=[2], squeeze=True)
    assert_close(drawing.finish(drawing.call("math.add", sums, drawing.real(3))))


def test_rows_of_a_table_by_numbers_that_count_from_its_end() -> None:
    """Only the numbers go through a kernel; the table is read by the opcode, row by row."""
    drawing = Drawing(0)
    ids = drawing.builder.input("ids", I64, (4,))
    rows = drawing.call("onnx.gather", drawing.real(5, 3), ids, axis=0)
    found = assert_close(drawing.finish(rows), inputs={"ids": np.array([-1, 0, -5, 2])}, tiled=True)
    assert [item.opcodes for item in found.selection.report] == [("compute",), ("gather",)]
