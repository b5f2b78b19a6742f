"""Instructions that a worker executes on its own: those without a region and without a partner."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.backend.arguments import SHAPES, Shape, dtype_of
from lamella.backend.interpreter import arithmetic
from lamella.backend.interpreter.arithmetic import (
    Number,
    accumulation,
    convert,
    element_name,
    is_complex,
    is_integer,
    make_integer,
    make_number,
)
from lamella.backend.interpreter.memory import GroupReference, MemrefReference
from lamella.backend.interpreter.state import RunValue, Worker
from lamella.base.arrays import Array
from lamella.lang.tensor import nodes
from lamella.lang.tensor.layout import component_count, component_place
from lamella.lang.tensor.nodes import Blas
from lamella.lang.tensor.rules import running as rules
from lamella.lang.tensor.write import write_type
from lamella.ops.fault import Fault

# --- collective instructions on memrefs: axpby, cumsum, gemm, gemv, ger, hadamard, sum ----------------------


GARBAGE = 0xA5

Formula: TypeAlias = Callable[[Blas, list[Array]], Array]


def update(blas: Blas, inputs: list[MemrefReference], alpha: Number, beta: Number, element: str) -> Array:
    """The new elements of the result, whose element type is given and which is the last of the memrefs."""
    *sources, target = inputs
    wide = accumulation(element)
    arrays = _transpose(blas, [source.read() for source in sources])
    _agree(blas, arrays, target)
    value = convert(alpha, wide) * FORMULAS[blas.function](blas, [_widen(item, wide) for item in arrays])
    if beta != 0:
        value = value + convert(beta, wide) * _widen(target.read(), wide)
    return np.asarray(convert(value, element))


def _widen(values: Array, element: str) -> Array:
    return np.asarray(convert(values, element))


def _transpose(blas: Blas, arrays: list[Array]) -> list[Array]:
    """The operands as op() sees them; a vector is its own transpose."""
    flags = (*blas.transposes, *[False] * len(arrays))
    return [item.T if flag else item for item, flag in zip(arrays, flags, strict=False)]


def _agree(blas: Blas, arrays: list[Array], target: MemrefReference) -> None:
    """Refuse shapes that do not fit, which the checker could not see where sizes are dynamic."""
    if not SHAPES[blas.function]([item.shape for item in arrays], target.shape):
        shown = _describe_shapes([*(item.shape for item in arrays), target.shape])
        raise Fault(rules.SHAPES_DISAGREE, function=blas.function, shapes=shown)


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "axpby": lambda _, arrays: arrays[0],
        "cumsum": lambda blas, arrays: np.cumsum(arrays[0], blas.mode, dtype=arrays[0].dtype),
        "sum": lambda _, arrays: np.sum(arrays[0], -1, dtype=arrays[0].dtype),
        "gemm": lambda _, arrays: np.matmul(*arrays),
        "gemv": lambda _, arrays: np.matmul(*arrays),
        "ger": lambda _, arrays: np.multiply.outer(*arrays),
        "hadamard": lambda _, arrays: np.multiply(*arrays),
    }
)


def evaluate(worker: Worker, instruction: nodes.Instruction) -> tuple[RunValue, ...]:
    """Execute one instruction and give its results."""
    return EVALUATE[type(instruction)](worker, instruction)


def element_of(kind: nodes.Type) -> str:
    """The element, component or scalar type of a type."""
    return (
        kind.name
        if isinstance(kind, nodes.Scalar)
        else kind.element
        if not isinstance(kind, nodes.Group)
        else ""
    )


def _constant(worker: Worker, item: nodes.Constant) -> tuple[RunValue, ...]:
    made = worker.group.launch.constants
    value = made.get(id(item))
    if value is None:
        value = made[id(item)] = make_number(item.value, element_of(item.type))
    if isinstance(item.type, nodes.Coopmatrix):
        worker.group.refuse_matrix(item.type)
        return (np.full((item.type.rows, item.type.columns), value),)
    return (value,)


def _arith(worker: Worker, item: nodes.Arith) -> tuple[RunValue, ...]:
    operands = [worker.number(value) for value in item.operands]
    if item.function == "select":
        return (operands[1] if operands[0] else operands[2],)
    if item.function == "fma":
        return (arithmetic.compute_fused(*operands),)
    if len(operands) == 1:
        return (arithmetic.compute_unary(item.function, operands[0]),)
    return (arithmetic.compute_binary(item.function, *operands),)


def _compare(worker: Worker, item: nodes.Compare) -> tuple[RunValue, ...]:
    return (arithmetic.compare(item.function, worker.number(item.left), worker.number(item.right)),)


def _math(worker: Worker, item: nodes.Math) -> tuple[RunValue, ...]:
    operands = [worker.number(value) for value in item.operands]
    return (arithmetic.compute_math(item.function, operands, element_of(item.type)),)


def _cast(worker: Worker, item: nodes.Cast) -> tuple[RunValue, ...]:
    return (convert(worker.number(item.operand), element_of(item.type)),)


def _builtin(worker: Worker, item: nodes.Builtin) -> tuple[RunValue, ...]:
    return (make_integer(BUILTINS[item.name](worker), element_of(item.type)),)


def _load(worker: Worker, item: nodes.Load) -> tuple[RunValue, ...]:
    source = worker.values[item.operand.name]
    indices = [worker.integer(index) for index in item.indices]
    if isinstance(source, GroupReference):
        return (source.load(indices[0]),)
    return (worker.reference(item.operand).load(indices),)


def _store(worker: Worker, item: nodes.Store) -> tuple[RunValue, ...]:
    """Every work-item stores; where they act as one, only an addition tells the difference."""
    target, value = worker.reference(item.operand), worker.number(item.value)
    indices = [worker.integer(index) for index in item.indices]
    if item.flag != "atomic_add":
        target.store(value, indices)
        return ()
    times = worker.group.launch.items if worker.item is None else 1
    worker.group.launch.count(times)
    for _ in range(times):
        target.store(arithmetic.compute_binary("add", target.load(indices), value), indices)
    return ()


def _update(worker: Worker, item: nodes.AtomicUpdate) -> tuple[RunValue, ...]:
    """Combine an element with a value; gives the element as it was before."""
    target, value = worker.reference(item.operand), worker.number(item.value)
    indices = [worker.integer(index) for index in item.indices]
    before = target.load(indices)
    target.store(arithmetic.compute_binary(item.function, before, value), indices)
    return (before,)


def _extract(worker: Worker, item: nodes.CoopExtract) -> tuple[RunValue, ...]:
    """A component that the work-item holds; behind the last column there is 0."""
    matrix = np.asarray(worker.number(item.operand))
    place = held_component(worker, worker.group.launch.matrices[id(item)], item.component)
    return (matrix.dtype.type(0) if place is None else matrix[place],)


def held_component(worker: Worker, type_: nodes.Coopmatrix, component: int) -> tuple[int, int] | None:
    """The row and column of a component of a work-item; one that it does not have is a fault."""
    lanes = worker.group.launch.subgroup_size
    count = component_count(type_, lanes)
    if not 0 <= component < count:
        raise Fault(rules.NO_COMPONENT, component=component, type=write_type(type_), count=count, lanes=lanes)
    return component_place(type_, lanes, worker.lane, component)


def _size(worker: Worker, item: nodes.SizeOf) -> tuple[RunValue, ...]:
    source = worker.values[item.operand.name]
    size = (
        len(source.items)
        if isinstance(source, GroupReference)
        else worker.reference(item.operand).shape[item.mode]
    )
    return (make_integer(size, "index"),)


def _extent(worker: Worker, item: nodes.IndexOrSize) -> int:
    return item if isinstance(item, int) else worker.integer(item)


def _subview(worker: Worker, item: nodes.Subview) -> tuple[RunValue, ...]:
    """A slice of static size 0 takes its mode away; one of a run-time size never does."""
    slices = [
        (_extent(worker, s.offset), None if s.size == 0 else _extent(worker, s.size)) for s in item.slices
    ]
    source, check = worker.reference(item.operand), worker.group.launch.options.check_bounds
    return (source.subview(slices, check),)


def _expand(worker: Worker, item: nodes.Expand) -> tuple[RunValue, ...]:
    sizes = [_extent(worker, size) for size in item.sizes]
    return (worker.reference(item.operand).expand(item.mode, sizes),)


def _fuse(worker: Worker, item: nodes.Fuse) -> tuple[RunValue, ...]:
    return (worker.reference(item.operand).fuse(item.first, item.last),)


def _alloca(worker: Worker, item: nodes.Alloca) -> tuple[RunValue, ...]:
    shape = tuple(size or 0 for size in item.type.shape)
    stride = tuple(step or 0 for step in item.type.stride)
    reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    count = reach + 1 if math.prod(shape) else 0
    worker.group.allocate(count * dtype_of(item.type.element).itemsize)
    return (MemrefReference("alloca", make_garbage(item.type.element, count), 0, shape, stride),)


def _blas(worker: Worker, item: nodes.Blas) -> tuple[RunValue, ...]:
    alpha, *sources, beta, target = item.operands
    memrefs = [worker.reference(value) for value in (*sources, target)]
    element = element_name(memrefs[-1].memory.dtype)
    for memref in memrefs:
        worker.group.refuse_large(memref.shape, accumulation(element))
    memrefs[-1].write(update(item, memrefs, worker.number(alpha), worker.number(beta), element))
    return ()


def _stop_lifetime(_: Worker, __: nodes.LifetimeStop) -> tuple[RunValue, ...]:
    return ()


def _place(worker: Worker) -> tuple[int, int, int]:
    return worker.group.launch.grid.place(worker.group.number)


def _subgroup_rows(worker: Worker) -> int:
    launch = worker.group.launch
    return max(1, launch.work_group_size[0] // launch.subgroup_size)


BUILTINS: Mapping[str, Callable[[Worker], int]] = MappingProxyType(
    {
        "group_id": lambda worker: _place(worker)[0],
        "group_id.y": lambda worker: _place(worker)[1],
        "group_id.z": lambda worker: _place(worker)[2],
        "group_size": lambda worker: worker.group.launch.grid.x,
        "group_size.y": lambda worker: worker.group.launch.grid.y,
        "group_size.z": lambda worker: worker.group.launch.grid.z,
        "num_subgroups": lambda worker: worker.group.launch.items // worker.group.launch.subgroup_size,
        "num_subgroups.x": lambda worker: _subgroup_rows(worker),
        "num_subgroups.y": lambda worker: worker.group.launch.work_group_size[1],
        "num_subgroups.z": lambda _: 1,
        "subgroup_size": lambda worker: worker.group.launch.subgroup_size,
        "subgroup_id": lambda worker: worker.subgroup,
        "subgroup_id.x": lambda worker: worker.subgroup % _subgroup_rows(worker),
        "subgroup_id.y": lambda worker: worker.subgroup // _subgroup_rows(worker),
        "subgroup_id.z": lambda _: 0,
        "subgroup_local_id": lambda worker: worker.lane,
    }
)
EVALUATE: Mapping[type, Callable[..., tuple[RunValue, ...]]] = MappingProxyType(
    {
        nodes.Constant: _constant,
        nodes.Arith: _arith,
        nodes.Compare: _compare,
        nodes.Math: _math,
        nodes.Cast: _cast,
        nodes.Builtin: _builtin,
        nodes.Load: _load,
        nodes.Store: _store,
        nodes.AtomicUpdate: _update,
        nodes.CoopExtract: _extract,
        nodes.SizeOf: _size,
        nodes.Subview: _subview,
        nodes.Expand: _expand,
        nodes.Fuse: _fuse,
        nodes.Alloca: _alloca,
        nodes.LifetimeStop: _stop_lifetime,
        nodes.Blas: _blas,
    }
)


def _describe_shapes(shapes: Sequence[Shape]) -> str:
    """Shapes of operands and result as a message shows them."""
    names = "ABC" if len(shapes) == 3 else "AB"
    shown = ("x".join(map(str, shape)) or "scalar" for shape in shapes)
    return ", ".join(f"{name}={shape}" for name, shape in zip(names, shown, strict=True))


def make_garbage(element: str, count: int) -> Array:
    """Memory that nobody has written: NaN where the type has one, else a pattern that shows."""
    dtype = dtype_of(element)
    if is_integer(dtype):
        return np.full(count * dtype.itemsize, GARBAGE, np.uint8).view(dtype)
    return np.full(count, complex(np.nan, np.nan) if is_complex(dtype) else np.nan, dtype)
