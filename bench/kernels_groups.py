"""Measure the kernels that are written for groups of maps and reductions, beside torch and beside a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from bench.contest import OURS, Report, Work, contest, fill, tell
from lamella.backend.cpu import compile_program
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import F32
from lamella.bridge.graph_to_kernels import KernelWriter, flatten
from lamella.bridge.graph_to_kernels.groups import Group
from lamella.bridge.graph_to_kernels.inline import inline
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.tensor.nodes import Program
from lamella.ops.library import Library

CACHE_BYTES = 24 << 20
"""Tensors that together are larger come from memory: below, exponentials take longer than bytes."""
SHARE = 0.6
"""Of the speed of a copy, what a kernel should reach whose tensors come from memory."""
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class GroupCase:
    """A group: how it is built, what torch does instead, the shapes of its inputs."""

    name: str
    build: Callable[..., Tensor]
    theirs: Callable[..., object]
    shapes: tuple[tuple[int, ...], ...]
    share: float | None = SHARE


def softmax(builder: Builder, x: Tensor, axis: int) -> Tensor:
    """Softmax along an axis."""
    return builder.call("nn.softmax", x, axes=(axis,))


def residual_norm(builder: Builder, x: Tensor, r: Tensor, scale: Tensor) -> Tensor:
    """RMS norm of a sum."""
    total = builder.call("math.add", x, r)
    size = scale.shape[-1]
    return builder.call("aten.rms_norm", total, scale, normalized_shape=(size,), eps=EPSILON)


def bias_gelu(builder: Builder, x: Tensor, bias: Tensor) -> Tensor:
    """GELU in its form with tanh of a sum with a row."""
    return builder.call("aten.gelu", builder.call("math.add", x, bias), approximate="tanh")


def layer_norm(builder: Builder, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Layer norm over the last dimension."""
    return builder.call("aten.layer_norm", x, scale, shift, normalized_shape=(scale.shape[-1],), eps=EPSILON)


def moved(perm: tuple[int, ...]) -> GroupCase:
    """A transpose of an image."""
    return GroupCase(
        f"transpose {perm}",
        partial(_transpose, perm=perm),
        lambda x: x.permute(perm).contiguous(),
        ((8, 64, 56, 56),),
        0.4,
    )


def _transpose(builder: Builder, x: Tensor, perm: tuple[int, ...]) -> Tensor:
    return builder.call("layout.transpose", x, perm=perm)


def cases(rows: int, width: int) -> list[GroupCase]:
    """Groups over a matrix."""
    matrix, row = (rows, width), (1, width)
    return [
        GroupCase("softmax", partial(softmax, axis=1), lambda x: torch.softmax(x, 1), (matrix,)),
        GroupCase(
            "log softmax",
            lambda builder, x: builder.call("aten.log_softmax", x, dim=1),
            lambda x: torch.log_softmax(x, 1),
            (matrix,),
        ),
        GroupCase(
            "layer norm",
            layer_norm,
            lambda x, g, b: F.layer_norm(x, (width,), g, b, EPSILON),
            (matrix, (width,), (width,)),
        ),
        GroupCase(
            "residual + RMS norm",
            residual_norm,
            lambda x, r, g: F.rms_norm(x + r, (width,), g, EPSILON),
            (matrix, matrix, (width,)),
        ),
        GroupCase(
            "bias + gelu",
            bias_gelu,
            lambda x, b: F.gelu(x + b, approximate="tanh"),
            (matrix, row),
            0.45,
        ),
        GroupCase(
            "transpose", partial(_transpose, perm=(1, 0)), lambda x: x.t().contiguous(), (matrix,), 0.4
        ),
    ]


IMAGES = (
    GroupCase(
        "softmax over channels",
        partial(softmax, axis=1),
        lambda x: torch.softmax(x, 1),
        ((8, 64, 56, 56),),
        None,
    ),
    GroupCase(
        "batch statistics",
        lambda builder, x: builder.call("math.mean_reduce", builder.call("math.sqr", x), axes=(0, 2, 3)),
        lambda x: (x * x).mean((0, 2, 3)),
        ((8, 64, 56, 56),),
    ),
    GroupCase(
        "max pool 3x3 / 2",
        lambda builder, x: builder.call("nn.max_pool", x, size=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
        lambda x: F.max_pool2d(x, 3, 2, 1),
        ((1, 64, 112, 112),),
        None,
    ),
    moved((0, 2, 3, 1)),
)


def group_call(case: GroupCase, tensors: Sequence[torch.Tensor], threads: int) -> tuple[Work, Array]:
    """A call of the kernels of a group, and the array that it fills."""
    builder = Builder(Library("specification"), "G")
    inputs = [builder.input(f"x{place}", F32, shape) for place, shape in enumerate(case.shapes)]
    model = flatten(Model(builder.finish(case.build(builder, *inputs)), builder.library))
    graph = model.graph
    outputs = tuple(item for item in graph.outputs if isinstance(item, Tensor))
    constants = {item.tensor.name: item.value for item in graph.constants}
    stages = inline(model.library, Group(tuple(graph.operations()), tuple(inputs), outputs, constants))
    writer = KernelWriter(model.library)
    names = {name: (name, None) for name in (*stages.inputs, *stages.outputs)}
    calls = list(writer.add_stages("group", stages, names))
    compiled = compile_program(Program(tuple(writer.functions)), threads=threads)
    arrays = {item.name: tensor.numpy() for item, tensor in zip(inputs, tensors, strict=True)}
    for held in stages.tensors.values():
        arrays.setdefault(held.name, np.zeros(held.shape, numpy_dtype(held.element)))
    given = [
        [arrays[item.name.removeprefix(".")].reshape(item.shape[::-1]).T for item in call.operands]
        for call in calls
    ]

    def run() -> None:
        for call, arguments in zip(calls, given, strict=True):
            compiled.call(call.kernel, arguments, call.groups)

    return run, arrays[stages.outputs[0]]


def measure_groups(report: Report, quick: bool) -> None:
    """Groups as the graph layer writes them: faster than torch, and near a copy where tensors come from memory."""
    sizes = ((128, 768), (512, 1024), (1024, 4096))
    found = [case for rows, width in (sizes[1:] if quick else sizes) for case in cases(rows, width)]
    for case in (*found, *IMAGES):
        tensors = [fill(*shape) for shape in case.shapes]
        ours, result = group_call(case, tensors, report.threads)
        source, target = tensors[0], torch.empty_like(tensors[0])
        work: dict[str, Work] = {
            OURS: ours,
            "torch eager": partial(case.theirs, *tensors),
            "copy": partial(target.copy_, source),
        }
        times = contest(report, work)
        amount = 4 * (sum(item.numel() for item in tensors) + result.size)
        copied = times.pop("copy") * amount / (8 * source.numel())
        what = f"{case.name}, {' x '.join(map(str, case.shapes[0]))}"
        tell(report, what, times, amount=amount, unit="GB/s", target=1.0, limit=copied)
        least = case.share if amount > CACHE_BYTES * report.threads else None
        tell(report, what, {OURS: times[OURS], "copy": copied}, amount=amount, unit="GB/s", target=least)


PARTS: tuple[Callable[[Report, bool], None], ...] = (measure_groups,)
