"""Selected plans for tests: networks written as untiled NEM, every tensor one region of DDR, one task per operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from lamella.backend.npu import compile_plan
from lamella.base.arrays import Array
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.nem import Plan, check, write
from lamella.plan.tiling import Tiled, TilingOptions, tile
from lamella.plan.tiling.choice import TACTICS, Tactic
from lamella.plan.verify import verify

SIZES = {"i4": 0.5, "i8": 1, "i16": 2, "i32": 4, "f16": 2, "f32": 4}
LAYOUTS = {1: "C", 2: "MK", 3: "BMK", 4: "NHWC"}


@dataclass(frozen=True)
class Tensor:
    """A tensor of the network under construction."""

    name: str
    elem: str
    shape: tuple[int, ...]


@dataclass
class Selected:
    """Writes a selected plan; quantisation is drawn from a seed."""

    device: str = 'include "npm_lite.nem"\ndevice npm_lite'
    seed: int = 0
    lines: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    quants: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def tensor(
        self,
        elem: str,
        shape: tuple[int, ...],
        name: str = "",
        imported: bool = False,
        quant: str = "",
        layout: str = "",
    ) -> Tensor:
        """Declare a tensor."""
        self.count += 1
        name = name or f"t{self.count}"
        size = int(-(-prod(shape) * SIZES[elem] // 1))
        words = ", import" if imported else ""
        self.buffers.append(f"buffer {name}_b : DDR (size={size}, align=64{words})")
        if elem in ("i8", "i16") and not quant:
            scale, zero = round(float(self.random.uniform(0.02, 0.2)), 4), int(self.random.integers(-20, 20))
            quant = f"per_tensor(scale={scale}, zero_point={zero})"
        self.quants[name] = quant
        text = f"let {name} = region({name}_b, 0, {size}) elem={elem}, shape={list(shape)}, "
        text += f"layout={layout or LAYOUTS[len(shape)]}" + (f", quant={quant}" if quant else "")
        self.buffers.append(text)
        return Tensor(name, elem, shape)

    def weight(self, elem: str, shape: tuple[int, ...], channels: bool = True) -> Tensor:
        """An imported weight with a scale for each channel of the last axis."""
        scales = [round(float(item), 5) for item in self.random.uniform(0.001, 0.02, shape[-1])]
        quant = f"per_channel(axis={len(shape) - 1}, scales={scales}, zero_points={[0] * shape[-1]})"
        if not channels:
            quant = f"per_tensor(scale={scales[0]}, zero_point=0)"
        if elem not in ("i8", "i4"):
            quant = ""
        return self.tensor(elem, shape, imported=True, quant=quant, layout="HWIO" if len(shape) == 4 else "")

    def task(self, opcode: str, inputs: list[Tensor], output: Tensor, attributes: str = "") -> Tensor:
        """One operation."""
        token = f"{opcode}_{output.name}"
        deps = sorted({self.made[item.name] for item in inputs if item.name in self.made})
        names = ", ".join(item.name for item in inputs)
        self.lines.append(
            f"{token} = {opcode}.async in {names} out {output.name} {attributes} deps=[{', '.join(deps)}]"
        )
        self.made[output.name] = token
        return output

    def conv(
        self,
        x: Tensor,
        channels: int,
        kernel: int = 3,
        stride: int = 1,
        pad: int = 1,
        weights: str = "i8",
    ) -> Tensor:
        """A convolution with bias; `weights` is the element type of its weights, or "each" for one channel each."""
        n, h, w, c = x.shape
        groups, bits = (c, "i8") if weights == "each" else (1, weights)
        out = tuple((size + 2 * pad - kernel) // stride + 1 for size in (h, w))
        weight = self.weight(bits if x.elem == "i8" else x.elem, (kernel, kernel, c // groups, channels))
        inputs = [x, weight]
        if x.elem == "i8":
            inputs.append(self.tensor("i32", (channels,), imported=True))
        y = self.tensor(x.elem, (n, *out, channels))
        accum = "i32" if x.elem == "i8" else "f32"
        attributes = (
            f"pads={[pad] * 4} strides={[stride] * 2} dilations=[1, 1] groups={groups} accum_type={accum}"
        )
        return self.task("conv2d", inputs, y, attributes)

    def pool(
        self, x: Tensor, kind: str = "maxpool", kernel: int = 2, stride: int = 2, pad: int = 0
    ) -> Tensor:
        """A pool."""
        n, h, w, c = x.shape
        out = tuple((size + 2 * pad - kernel) // stride + 1 for size in (h, w))
        y = self.tensor(x.elem, (n, *out, c))
        return self.task(kind, [x], y, f"kernel_shape={[kernel] * 2} pads={[pad] * 4} strides={[stride] * 2}")

    def linear(self, x: Tensor, channels: int, bias: bool = True) -> Tensor:
        """A product with weights."""
        inputs = [x, self.weight(x.elem, (x.shape[-1], channels))]
        integers = x.elem == "i8"
        if bias and integers:
            inputs.append(self.tensor("i32", (channels,), imported=True))
        y = self.tensor(x.elem, (*x.shape[:-1], channels))
        accum = "i32" if integers else "f32"
        return self.task("gemm", inputs, y, f"accum_type={accum}")

    def unary(self, opcode: str, x: Tensor, elem: str = "", attributes: str = "") -> Tensor:
        """A task of one input whose output has the same shape."""
        return self.task(opcode, [x], self.tensor(elem or x.elem, x.shape), attributes)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """A sum."""
        return self.task("add", [a, b], self.tensor(a.elem, a.shape))

    def text(self) -> str:
        """The program."""
        return "\n".join([self.device, "", *self.buffers, "", *self.lines, ""])

    def plan(self) -> Plan:
        """The checked plan."""
        return read_text(self.text())


def read_text(text: str) -> Plan:
    """The plan of a program text, free of errors and hazards."""
    checked = check(Source("program.nem", text))
    assert checked.plan is not None
    found = errors([*checked.findings, *verify(checked.plan)])
    assert not found, "\n".join(str(item) for item in found[:5])
    return checked.plan


def tiled_plan(
    plan: Plan,
    engines: int = 0,
    tactics: tuple[Tactic, ...] = TACTICS,
    arrays: Mapping[str, Array] | None = None,
) -> tuple[Tiled, Plan, str]:
    """A plan, tiled for its device, written, read and checked again."""
    assert plan.device is not None
    tiled = tile(plan, plan.device, TilingOptions(engines=engines, tactics=tactics, arrays=arrays))
    text = write(tiled.document)
    return tiled, read_text(text), text


def drawn_bytes(plan: Plan, seed: int = 0) -> dict[str, Array]:
    """Random bytes for every buffer of a plan."""
    random = np.random.default_rng(seed)
    types = {region.buffer.name: region.type for region in plan.regions.values() if region.type is not None}
    raw: dict[str, Array] = {}
    for buffer in plan.buffers:
        if types[buffer.name].elem == "f16":
            raw[buffer.name] = random.normal(0, 0.5, buffer.size // 2).astype(np.float16).view(np.uint8)
        else:
            raw[buffer.name] = random.integers(0, 256, buffer.size, np.uint8)
            if types[buffer.name].elem == "i32":
                raw[buffer.name] = (
                    random.integers(-999, 999, buffer.size // 4).astype(np.int32).view(np.uint8)
                )
    return raw


def same_bytes(
    plan: Plan,
    tiled: Tiled,
    result: Plan,
    seed: int = 0,
    order: str = "program",
    raw: dict[str, Array] | None = None,
) -> None:
    """Both plans give the same bytes in every output buffer of the tiled one."""
    before = compile_plan(plan)
    raw = raw or drawn_bytes(plan, seed)
    wanted = before(**_given(before.inputs, raw, plan))
    after = compile_plan(result, seed=seed, order=order)
    given = _given(after.inputs, raw, plan)
    given |= tiled.pack(raw)
    after.draws = False
    found = after(**given)
    shared = [name for name in found if name in wanted]
    assert shared
    for name in shared:
        assert wanted[name].tobytes() == found[name].tobytes(), name


def _given(names: tuple[str, ...], raw: dict[str, Array], plan: Plan) -> dict[str, Array]:
    """The inputs of a plan: whole buffers where they can be given, else typed regions."""
    found: dict[str, Array] = {name: raw[name] for name in names if name in raw}
    for name in names:
        region = plan.regions.get(name)
        if region is not None and region.buffer.name not in found and region.type is not None:
            elem = {"i8": np.int8, "f16": np.float16, "i32": np.int32}[region.type.elem]
            found[name] = raw[region.buffer.name].view(elem).reshape(region.type.shape)
    return found
