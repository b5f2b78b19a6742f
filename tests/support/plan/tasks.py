"""Graphs whose operations are `compute` tasks, one each, on buffers of DDR: NEM text and kernels."""

from __future__ import annotations

from math import prod

from lamella.base.dtype import name_in
from lamella.base.errors import Unsupported
from lamella.base.source import Source
from lamella.bridge.graph_to_kernels.task import TaskKernel, operation_to_task
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Tensor, tensors
from lamella.lang.nem.resolved import Plan
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Program
from lamella.pipeline.nem.kernels import link, read_kernels
from lamella.pipeline.nem.program import check_program

BYTES = {"i8": 1, "u8": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4}


def plan_of_tasks(model: Model, device: str = "npm_lite") -> tuple[Plan, dict[str, str]]:
    """The plan of a flat graph and the names of its tensors there; Unsupported where an operation cannot be a task."""
    kernels, lines = list[TaskKernel](), [f'device "{device}.nem"']
    known = dict[str, str]()
    constants = {
        item.tensor.name: item.value
        for item in model.graph.constants
        if isinstance(item.value, bool | int | float)
    }

    def declare(name: str, elem: str, shape: tuple[int, ...]) -> None:
        known[name] = f"T{len(known)}"
        size = BYTES[elem] * prod(shape)
        sizes = ", ".join(map(str, shape or (1,)))
        lines.append(f"buffer B{known[name]} : DDR (size={size}, align=64)")
        lines.append(
            f"let {known[name]} = region(B{known[name]}, 0, {size}) elem={elem}, shape=[{sizes}], layout=C"
        )

    for node in model.graph.nodes:
        if not isinstance(node, Operation):
            raise Unsupported("no operation")
        kernel = operation_to_task(model.library, node, f"k{len(kernels)}", constants)
        for item in (part for side in (*node.inputs, *node.outputs) for part in tensors(side)):
            if item.name not in known and item.name in (*kernel.inputs, *kernel.outputs):
                declare(item.name, elem_of(item), shape_of(item))
        for number, scratch in enumerate(kernel.scratch):
            declare(f"{kernel.function.name}/{number}", scratch.element, scratch.shape[::-1])
        hidden = [known[f"{kernel.function.name}/{number}"] for number in range(len(kernel.scratch))]
        inside = ", ".join(known[name] for name in kernel.inputs)
        outside = ", ".join([*(known[name] for name in kernel.outputs), *hidden])
        lines.append(f'compute.sync in {inside} out {outside} op="{kernel.function.name}"')
        kernels.append(kernel)
    program = check_program(Source("tasks", "\n".join(lines)))
    assert program.plan is not None, program.findings
    text = write(Program(tuple(kernel.function for kernel in kernels)))
    found, wrong = read_kernels(Source("kernels", text))
    assert found is not None, wrong
    plan, wrong = link(program.plan, found, "kernels")
    assert plan.kernels, wrong
    return plan, known


def elem_of(tensor: Tensor) -> str:
    """The element type of a region that holds a tensor."""
    name = "i8" if tensor.element.name == "bool" else name_in("nem", tensor.element)
    if name is None:
        raise Unsupported(f"no region holds {tensor.element}")
    return name


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The extents of a tensor that has no open ones."""
    return tuple(size for size in tensor.shape or () if isinstance(size, int))
