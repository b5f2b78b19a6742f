"""Integer networks as lists of layers, written both as TensorFlow Lite files and as untiled NEM programs.

Weights and scales are drawn; only shapes matter for cycles and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bench.flatbuffer import Numbers, Scalar, Table, Value, integers, write

SPREAD = 24
"""The deviation of drawn weights, about that of trained ones: what a peer's compression usually meets."""
CONV, DEPTHWISE, ADD, MAX_POOL, AVERAGE_POOL, DENSE = (
    "conv",
    "depthwise",
    "add",
    "maxpool",
    "avgpool",
    "dense",
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """An int8 activation: its number and shape, N H W C."""

    number: int
    shape: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Layer:
    """An operation: what it reads and makes, its window (rows and columns alike) and padding on all sides."""

    kind: str
    inputs: tuple[Tensor, ...]
    output: Tensor
    kernel: int = 1
    stride: int = 1
    pads: tuple[int, int] = (0, 0)
    """Rows and columns before and after: what TensorFlow calls SAME, or nothing."""
    relu: bool = False


@dataclass(slots=True)
class Network:
    """Layers put together one after the other."""

    name: str
    shape: tuple[int, int, int, int]
    layers: list[Layer] = field(default_factory=list)
    tensors: int = 1

    @property
    def input(self) -> Tensor:
        """What the network reads."""
        return Tensor(0, self.shape)

    def add(
        self,
        kind: str,
        inputs: tuple[Tensor, ...],
        channels: int,
        window: tuple[int, int],
        same: bool,
        relu: bool,
    ) -> Tensor:
        """Append a layer; the answer is what it makes."""
        kernel, stride = window
        count, rows, columns, _ = inputs[0].shape
        sizes, pads = zip(*(_cut(size, kernel, stride, same) for size in (rows, columns)), strict=True)
        made = Tensor(self.tensors, (count, sizes[0], sizes[1], channels))
        self.tensors += 1
        self.layers.append(Layer(kind, inputs, made, kernel, stride, pads[0], relu))
        return made

    def conv(self, x: Tensor, channels: int, kernel: int, stride: int = 1, relu: bool = True) -> Tensor:
        """A convolution over the whole picture."""
        return self.add(CONV, (x,), channels, (kernel, stride), same=True, relu=relu)

    def depthwise(self, x: Tensor, stride: int) -> Tensor:
        """A 3×3 convolution of each channel alone."""
        return self.add(DEPTHWISE, (x,), x.shape[3], (3, stride), same=True, relu=True)

    def plus(self, a: Tensor, b: Tensor, relu: bool) -> Tensor:
        """A sum."""
        return self.add(ADD, (a, b), a.shape[3], (1, 1), same=True, relu=relu)

    def classify(self, x: Tensor, classes: int) -> Tensor:
        """The mean over the picture and a product with weights."""
        mean = self.add(AVERAGE_POOL, (x,), x.shape[3], (x.shape[1], 1), same=False, relu=False)
        return self.add(DENSE, (mean,), classes, (1, 1), same=False, relu=False)


def _cut(size: int, kernel: int, stride: int, same: bool) -> tuple[int, tuple[int, int]]:
    """How many windows there are along an axis, and the padding before and after."""
    if not same:
        return (size - kernel) // stride + 1, (0, 0)
    count = -(-size // stride)
    padding = max(0, (count - 1) * stride + kernel - size)
    return count, (padding // 2, padding - padding // 2)


# --- the networks -------------------------------------------------------------------------------------------


def convolution() -> Network:
    """One 3×3 convolution with ReLU, 64×16×64 → 62×14×128."""
    made = Network("conv", (1, 64, 16, 64))
    made.add(CONV, (made.input,), 128, (3, 1), same=False, relu=True)
    return made


def resnet18() -> Network:
    """The shapes of ResNet-18 on 224×224."""
    made = Network("resnet18", (1, 224, 224, 3))
    x = made.conv(made.input, 64, 7, 2)
    x = made.add(MAX_POOL, (x,), 64, (3, 2), same=True, relu=False)
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for step in (stride, 1):
            short = x if step == 1 and x.shape[3] == channels else made.conv(x, channels, 1, step, relu=False)
            inner = made.conv(x, channels, 3, step)
            x = made.plus(made.conv(inner, channels, 3, relu=False), short, relu=True)
    made.classify(x, 1000)
    return made


def resnet50() -> Network:
    """The shapes of ResNet-50 on 224×224."""
    made = Network("resnet50", (1, 224, 224, 3))
    x = made.conv(made.input, 64, 7, 2)
    x = made.add(MAX_POOL, (x,), 64, (3, 2), same=True, relu=False)
    for channels, repeats, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(repeats):
            stride = first if number == 0 else 1
            short = x if number else made.conv(x, 4 * channels, 1, stride, relu=False)
            inner = made.conv(made.conv(x, channels, 1), channels, 3, stride)
            x = made.plus(made.conv(inner, 4 * channels, 1, relu=False), short, relu=True)
    made.classify(x, 1000)
    return made


def mobilenet_v2() -> Network:
    """The shapes of MobileNetV2 on 224×224."""
    made = Network("mobilenet_v2", (1, 224, 224, 3))
    x = made.conv(made.input, 32, 3, 2)
    blocks = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for factor, channels, repeats, first in blocks:
        for stride in (first, *[1] * (repeats - 1)):
            wide = x if factor == 1 else made.conv(x, factor * x.shape[3], 1)
            narrow = made.conv(made.depthwise(wide, stride), channels, 1, relu=False)
            x = made.plus(narrow, x, relu=False) if stride == 1 and x.shape == narrow.shape else narrow
    made.classify(made.conv(x, 1280, 1), 1000)
    return made


# --- as TensorFlow Lite -------------------------------------------------------------------------------------

_CODES = {ADD: 0, AVERAGE_POOL: 1, CONV: 3, DEPTHWISE: 4, DENSE: 9, MAX_POOL: 17}
_OPTIONS = {ADD: 11, AVERAGE_POOL: 5, CONV: 1, DEPTHWISE: 2, DENSE: 8, MAX_POOL: 5}
_INT8, _INT32 = 9, 2


class _File:
    """Collects the tensors and buffers of a file; buffer 0 is empty by rule."""

    def __init__(self, network: Network) -> None:
        self.buffers: list[Table] = [Table({})]
        self.tensors: list[Table] = []
        self.kinds: list[str] = sorted({layer.kind for layer in network.layers}, key=_CODES.__getitem__)
        self.draw = np.random.default_rng(0)
        shapes = {0: network.shape} | {layer.output.number: layer.output.shape for layer in network.layers}
        flat = {layer.output.number for layer in network.layers if layer.kind == DENSE}
        for number, shape in sorted(shapes.items()):
            self.tensor(f"t{number}", (shape[0], shape[3]) if number in flat else shape, _INT8, 0.05)

    def tensor(
        self, name: str, shape: tuple[int, ...], kind: int, scale: float, data: bytes = b"", channels: int = 1
    ) -> int:
        """Add a tensor; the answer is its number."""
        buffer = 0
        if data:
            buffer = len(self.buffers)
            self.buffers.append(Table({0: Numbers(data, len(data), 16)}))
        scales = np.full(channels, scale, np.float32).tobytes()
        quant = {2: Numbers(scales, channels), 3: Numbers(bytes(8 * channels), channels, 8)}
        axis = 3 if name.endswith("d") else 0
        fields: dict[int, Value] = {
            0: integers(*shape),
            1: Scalar("b", kind),
            2: Scalar("I", buffer),
            3: name,
            4: Table(quant if channels == 1 else {**quant, 6: Scalar("i", axis)}),
        }
        self.tensors.append(Table(fields))
        return len(self.tensors) - 1

    def operator(self, number: int, layer: Layer) -> Table:
        """The operator of a layer, with its weights."""
        inputs = [item.number for item in layer.inputs]
        if layer.kind in (CONV, DEPTHWISE, DENSE):
            inputs += self._weights(number, layer)
        fields: dict[int, Value] = {
            0: Scalar("I", self.kinds.index(layer.kind)),
            1: integers(*inputs),
            2: integers(layer.output.number),
            3: Scalar("B", _OPTIONS[layer.kind]),
            4: Table(_options(layer)),
        }
        return Table(fields)

    def _weights(self, number: int, layer: Layer) -> tuple[int, int]:
        channels, depth, kernel = layer.output.shape[3], layer.inputs[0].shape[3], layer.kernel
        shape: tuple[int, ...] = (channels, kernel, kernel, depth)
        name = f"w{number}"
        if layer.kind == DEPTHWISE:
            shape, name = (1, kernel, kernel, channels), f"w{number}d"
        elif layer.kind == DENSE:
            shape = (channels, depth)
        drawn = np.clip(np.rint(self.draw.normal(0, SPREAD, shape)), -127, 127).astype(np.int8).tobytes()
        several = 1 if layer.kind == DENSE else channels
        weights = self.tensor(name, shape, _INT8, 0.01, drawn, several)
        bias = self.draw.integers(-999, 999, channels).astype(np.int32).tobytes()
        return weights, self.tensor(f"b{number}", (channels,), _INT32, 0.0005, bias, several)


def _options(layer: Layer) -> dict[int, Value]:
    relu = Scalar("b", int(layer.relu))
    padding = Scalar("b", 0 if layer.pads != (0, 0) or layer.kernel == 1 else 1)
    steps: dict[int, Value] = {0: padding, 1: Scalar("i", layer.stride), 2: Scalar("i", layer.stride)}
    if layer.kind in (ADD, DENSE):
        return {0: relu}
    if layer.kind == CONV:
        return {**steps, 3: relu, 4: Scalar("i", 1), 5: Scalar("i", 1)}
    if layer.kind == DEPTHWISE:
        return {**steps, 3: Scalar("i", 1), 4: relu, 5: Scalar("i", 1), 6: Scalar("i", 1)}
    return {**steps, 3: Scalar("i", layer.kernel), 4: Scalar("i", layer.kernel), 5: relu}


def to_tflite(network: Network) -> bytes:
    """The network as a TensorFlow Lite file."""
    file = _File(network)
    operators = [file.operator(number, layer) for number, layer in enumerate(network.layers)]
    codes = [
        Table({0: Scalar("b", _CODES[kind]), 2: Scalar("i", 1), 3: Scalar("i", _CODES[kind])})
        for kind in file.kinds
    ]
    last = network.layers[-1].output.number
    graph = Table({0: file.tensors, 1: integers(0), 2: integers(last), 3: operators, 4: network.name})
    return write(Table({0: Scalar("I", 3), 1: codes, 2: [graph], 3: network.name, 4: file.buffers}), b"TFL3")


# --- as NEM -------------------------------------------------------------------------------------------------

_QUANT = "quant=per_tensor(scale=0.05, zero_point=0)"


def to_nem(network: Network, device: str) -> str:
    """The network as an untiled program: every tensor a buffer of DDR, one task for each layer."""
    shapes = {0: network.shape} | {layer.output.number: layer.output.shape for layer in network.layers}
    lines = [f'include "{device}.nem"', f"device {device}", f"program {network.name}:"]
    for number, shape in sorted(shapes.items()):
        size = int(np.prod(shape))
        lines.append(f"buffer T{number} : DDR (size={size})")
        extents = ", ".join(map(str, shape))
        lines.append(
            f"let t{number} = region(T{number}, 0, {size}) elem=i8, shape=[{extents}], layout=NHWC, {_QUANT}"
        )
    made: dict[int, str] = {}
    for number, layer in enumerate(network.layers):
        lines += _task(number, layer, made)
        made[layer.output.number] = f"k{number}"
    return "\n".join(lines) + "\n"


def _task(number: int, layer: Layer, made: dict[int, str]) -> list[str]:
    lines = [f"# == layer{number}: {layer.kind}"]
    operands = [f"t{item.number}" for item in layer.inputs]
    if layer.kind in (CONV, DEPTHWISE, DENSE):
        channels = layer.output.shape[3]
        depth = 1 if layer.kind == DEPTHWISE else layer.inputs[0].shape[3]
        size = layer.kernel**2 * depth * channels
        shape = f"[{layer.kernel}, {layer.kernel}, {depth}, {channels}]"
        lines += [
            f"buffer W{number} : DDR (size={size}, import)",
            f"buffer B{number} : DDR (size={4 * channels}, import)",
            f"let w{number} = region(W{number}, 0, {size}) elem=i8, shape={shape}, layout=HWIO, {_QUANT}",
            f"let b{number} = region(B{number}, 0, {4 * channels}) elem=i32, shape=[{channels}], layout=C",
        ]
        operands += [f"w{number}", f"b{number}"]
    deps = ", ".join(dict.fromkeys(made[item.number] for item in layer.inputs if item.number in made))
    head = f"k{number} = {_OPCODES.get(layer.kind, 'conv2d')}.async in {', '.join(operands)} out t{layer.output.number}"
    return [*lines, f"{head} {_attributes(layer)} deps=[{deps}]".replace("  ", " ")]


_OPCODES = {ADD: "add", MAX_POOL: "maxpool", AVERAGE_POOL: "avgpool"}
"""The other layers are convolutions."""


def _attributes(layer: Layer) -> str:
    before, after = layer.pads
    window = f"pads=[{before}, {before}, {after}, {after}] strides=[{layer.stride}, {layer.stride}]"
    if layer.kind == ADD:
        return ""
    if layer.kind in (MAX_POOL, AVERAGE_POOL):
        return f"kernel_shape=[{layer.kernel}, {layer.kernel}] {window}"
    groups = layer.output.shape[3] if layer.kind == DEPTHWISE else 1
    return f"{window} dilations=[1, 1] groups={groups} accum_type=i32"
