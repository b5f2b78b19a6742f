"""Instructions that a worker executes on its own: those without a region and without a partner."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from lamella.backend.arguments import SHAPES, Shape, dtype_of
from lamella.backend.interpreter import arithmetic, scalars
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
from lamella.backend.interpreter.state import RunValue, Step, Worker
from lamella.base.arrays import Array
from lamella.base.records import replace
from lamella.lang.tensor import nodes
from lamella.lang.tensor.layout import component_count, component_place
from lamella.lang.tensor.nodes import Blas
from lamella.lang.tensor.rules import running as rules
from lamella.lang.tensor.write import write_type
from lamella.ops.fault import Fault

# --- collective instructions on memrefs: axpby, cumsum, gemm, gemv, ger, hadamard, sum ----------------------


GARBAGE = 0xA5

Formula: TypeAlias = Callable[[Blas, list[Array]], Array]
Prepare: TypeAlias = Callable[[Any, str | None], Step]
"""What makes an instruction ready, whose result has a name."""


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


def prepare(instruction: nodes.Instruction, name: str | None) -> Step | None:
    """An instruction ready to be executed many times, whose result has a name; None for one that needs partners."""
    made = PREPARE.get(type(instruction))
    return None if made is None else made(instruction, name)


def element_of(kind: nodes.Type) -> str:
    """The element, component or scalar type of a type."""
    return (
        kind.name
        if isinstance(kind, nodes.Scalar)
        else kind.element
        if not isinstance(kind, nodes.Group)
        else ""
    )


def _constant(item: nodes.Constant, _: str | None) -> Step:
    value, kind = make_number(item.value, element_of(item.type)), item.type
    if not isinstance(kind, nodes.Coopmatrix):
        return lambda worker: value

    def filled(worker: Worker) -> RunValue:
        worker.group.refuse_matrix(kind)
        return np.full((kind.rows, kind.columns), value)

    return filled


def _apply(function: Callable[..., Number], operands: Sequence[nodes.Value]) -> Step:
    """A function of numbers that have names."""
    names = [value.name for value in operands]
    if len(names) == 1:
        (only,) = names
        return lambda worker: function(worker.values[only])
    if len(names) == 2:
        left, right = names

        def applied(worker: Worker) -> RunValue:
            values = worker.values
            return function(values[left], values[right])

        return applied
    return lambda worker: function(*[worker.values[name] for name in names])


def _arith(item: nodes.Arith, _: str | None) -> Step:
    element, is_matrix = element_of(item.type), isinstance(item.type, nodes.Coopmatrix)
    if item.function == "select":
        return _apply(lambda condition, left, right: left if condition else right, item.operands)
    if item.function == "fma":
        return _apply(arithmetic.compute_fused if is_matrix else scalars.fused(element), item.operands)
    if len(item.operands) == 1:
        return _apply(partial(arithmetic.compute_unary, item.function), item.operands)
    if is_matrix:
        return _apply(partial(arithmetic.compute_binary, item.function), item.operands)
    return _apply(scalars.binary(item.function, element), item.operands)


def _compare(item: nodes.Compare, _: str | None) -> Step:
    return _apply(arithmetic.COMPARISONS[item.function], (item.left, item.right))


def _math(item: nodes.Math, _: str | None) -> Step:
    function, element = item.function, element_of(item.type)
    if isinstance(item.type, nodes.Coopmatrix):
        return _apply(lambda *operands: arithmetic.compute_math(function, operands, element), item.operands)
    return _apply(scalars.mathematics(function, element), item.operands)


def _cast(item: nodes.Cast, _: str | None) -> Step:
    element = element_of(item.type)
    if isinstance(item.type, nodes.Coopmatrix):
        return _apply(lambda operand: convert(operand, element), (item.operand,))
    return _apply(scalars.converter(element), (item.operand,))


def _builtin(item: nodes.Builtin, _: str | None) -> Step:
    known, element = BUILTINS[item.name], element_of(item.type)
    return lambda worker: make_integer(known(worker), element)


def _load(item: nodes.Load, name: str | None) -> Step:
    operand, indices = item.operand.name, [index.name for index in item.indices]

    def load(worker: Worker) -> RunValue:
        values = worker.values
        source, found = values[operand], [int(values[index]) for index in indices]  # type: ignore[arg-type]
        if isinstance(source, GroupReference):
            return replace(source.load(found[0]), name=name)
        return source.load(found)  # type: ignore[union-attr]  # which the checker has seen to

    return load


def _store(item: nodes.Store, _: str | None) -> Step:
    """Every work-item stores; where they act as one, only an addition tells the difference."""
    if item.flag == "atomic_add":
        return partial(_add, item=item)
    operand, stored, indices = item.operand.name, item.value.name, [index.name for index in item.indices]

    def store(worker: Worker) -> None:
        values = worker.values
        target, found = values[operand], [int(values[index]) for index in indices]  # type: ignore[arg-type]
        target.store(values[stored], found)  # type: ignore[union-attr, arg-type]

    return store


def _add(worker: Worker, item: nodes.Store) -> None:
    target, value = worker.reference(item.operand), worker.number(item.value)
    indices = [worker.integer(index) for index in item.indices]
    times = worker.group.launch.items if worker.item is None else 1
    worker.group.launch.count(times)
    for _ in range(times):
        target.store(arithmetic.compute_binary("add", target.load(indices), value), indices)


def _update(worker: Worker, item: nodes.AtomicUpdate) -> RunValue:
    """Combine an element with a value; gives the element as it was before."""
    target, value = worker.reference(item.operand), worker.number(item.value)
    indices = [worker.integer(index) for index in item.indices]
    before = target.load(indices)
    target.store(arithmetic.compute_binary(item.function, before, value), indices)
    return before


def _extract(worker: Worker, item: nodes.CoopExtract) -> RunValue:
    """A component that the work-item holds; behind the last column there is 0."""
    matrix = np.asarray(worker.number(item.operand))
    place = held_component(worker, worker.group.launch.matrices[id(item)], item.component)
    found: Number = matrix.dtype.type(0) if place is None else matrix[place]
    return found


def held_component(worker: Worker, type_: nodes.Coopmatrix, component: int) -> tuple[int, int] | None:
    """The row and column of a component of a work-item; one that it does not have is a fault."""
    lanes = worker.group.launch.subgroup_size
    count = component_count(type_, lanes)
    if not 0 <= component < count:
        raise Fault(rules.NO_COMPONENT, component=component, type=write_type(type_), count=count, lanes=lanes)
    return component_place(type_, lanes, worker.lane, component)


def _size(worker: Worker, item: nodes.SizeOf) -> RunValue:
    source = worker.values[item.operand.name]
    size = (
        len(source.items)
        if isinstance(source, GroupReference)
        else worker.reference(item.operand).shape[item.mode]
    )
    return make_integer(size, "index")


def _extent(worker: Worker, item: nodes.IndexOrSize) -> int:
    return item if isinstance(item, int) else worker.integer(item)


def _subview(worker: Worker, item: nodes.Subview) -> MemrefReference:
    """A slice of static size 0 takes its mode away; one of a run-time size never does."""
    slices = [
        (_extent(worker, s.offset), None if s.size == 0 else _extent(worker, s.size)) for s in item.slices
    ]
    source, check = worker.reference(item.operand), worker.group.launch.options.check_bounds
    return source.subview(slices, check)


def _expand(worker: Worker, item: nodes.Expand) -> MemrefReference:
    sizes = [_extent(worker, size) for size in item.sizes]
    return worker.reference(item.operand).expand(item.mode, sizes)


def _fuse(worker: Worker, item: nodes.Fuse) -> MemrefReference:
    return worker.reference(item.operand).fuse(item.first, item.last)


def _alloca(worker: Worker, item: nodes.Alloca) -> MemrefReference:
    shape = tuple(size or 0 for size in item.type.shape)
    stride = tuple(step or 0 for step in item.type.stride)
    reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    count = reach + 1 if math.prod(shape) else 0
    worker.group.allocate(count * dtype_of(item.type.element).itemsize)
    return MemrefReference("alloca", make_garbage(item.type.element, count), 0, shape, stride)


def _blas(worker: Worker, item: nodes.Blas) -> None:
    alpha, *sources, beta, target = item.operands
    memrefs = [worker.reference(value) for value in (*sources, target)]
    element = element_name(memrefs[-1].memory.dtype)
    for memref in memrefs:
        worker.group.refuse_large(memref.shape, accumulation(element))
    memrefs[-1].write(update(item, memrefs, worker.number(alpha), worker.number(beta), element))


def _stop_lifetime(_: Worker, item: nodes.LifetimeStop) -> None:
    return None


def _place(worker: Worker) -> tuple[int, int, int]:
    return worker.group.launch.grid.place(worker.group.number)


def _subgroup_rows(worker: Worker) -> int:
    launch = worker.group.launch
    return max(1, launch.work_group_size[0] // launch.subgroup_size)


def _whole(execute: Callable[..., RunValue | None]) -> Prepare:
    """An instruction that is read whenever it is executed."""
    return lambda item, _: partial(execute, item=item)


def _view(execute: Callable[..., MemrefReference]) -> Prepare:
    """The same for one that gives a memref, which is known by its newest name."""
    return lambda item, name: lambda worker: replace(execute(worker, item), name=name)


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
PREPARE: Mapping[type, Prepare] = MappingProxyType(
    {
        nodes.Constant: _constant,
        nodes.Arith: _arith,
        nodes.Compare: _compare,
        nodes.Math: _math,
        nodes.Cast: _cast,
        nodes.Builtin: _builtin,
        nodes.Load: _load,
        nodes.Store: _store,
        nodes.AtomicUpdate: _whole(_update),
        nodes.CoopExtract: _whole(_extract),
        nodes.SizeOf: _whole(_size),
        nodes.Subview: _view(_subview),
        nodes.Expand: _view(_expand),
        nodes.Fuse: _view(_fuse),
        nodes.Alloca: _view(_alloca),
        nodes.LifetimeStop: _whole(_stop_lifetime),
        nodes.Blas: _whole(_blas),
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
