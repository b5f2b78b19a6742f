"""Machine code of a single instruction, run on arrays: what the emission of scalars is judged with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.text import IrWriter
from lamella.backend.cpu.emit.values import LLVM, RunValue, ScalarValue, llvm
from lamella.backend.cpu.jit.engine import Processor, assemble, assembly, host_machine, load
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Statement

Array = npt.NDArray[Any]
Emit = Callable[..., ScalarValue]
SIGNATURE = "define void @kernel_0(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) {\nentry:"
DTYPES = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c32": np.dtype(np.complex64),
    "c64": np.dtype(np.complex128),
}
PARTS = {"c32": "f32", "c64": "f64"}
INTEGERS = ("i8", "i16", "i32", "i64", "index")
FLOATS = ("bf16", "f16", "f32", "f64")
COMPLEX = ("c32", "c64")


def here_with(lanes: int, target: str = "cpu-avx512") -> EmitContext:
    """A place to emit at, with so many lanes."""
    context = EmitContext(IrWriter(), find_target(target), _walk, lanes=lanes, subgroup_size=lanes)
    context.collective = False
    return context


def _walk(context: EmitContext, statements: Sequence[Statement]) -> tuple[RunValue, ...]:
    raise AssertionError("no scalar has a region")


def write_kernel(
    emit: Emit, elements: Sequence[str], result: str, lanes: int, target: str = "cpu-avx512"
) -> str:
    """A kernel that applies `emit(here, value, …)` to one block of lanes for each work-group.

    Arrays come in the order of the operands, the result last; the parts of a complex one are arrays of their own.
    """
    context = here_with(lanes, target)
    out = context.out
    loop, after, begin = out.label("loop"), out.label("after"), out.block
    out.jump(loop)
    out.begin(loop)
    index, hole = out.name(), out.hole()
    slot, operands = 0, []
    for element in elements:
        parts = tuple(_load(context, slot + n, element, index) for n in range(2 if element in PARTS else 1))
        slot += len(parts)
        operands.append(ScalarValue(element, parts, lanes))
    found = emit(context, *operands)
    for n, part in enumerate(found.parts):
        _store(context, slot + n, ScalarValue(found.element, (part,), found.count), index)
    following = out.value(f"add i64 {index}, 1")
    more = out.value(f"icmp slt i64 {following}, %last")
    out.fill(hole, f"{index} = phi i64 [ %first, %{begin} ], [ {following}, %{out.block} ]")
    out.branch(more, loop, after)
    out.begin(after)
    out.line("ret void")
    assert found.element == result
    return "\n".join([SIGNATURE, out.body(), "}", *out.declarations])


def _kind(element: str) -> str:
    return "i8" if element == "bool" else LLVM[element]


def _place(context: EmitContext, slot: int, element: str, index: str) -> str:
    out = context.out
    address = out.value(f"getelementptr i64, ptr %args, i64 {slot}")
    pointer = out.value(f"load ptr, ptr {address}")
    offset = out.value(f"mul i64 {index}, {context.lanes}")
    return out.value(f"getelementptr {_kind(element)}, ptr {pointer}, i64 {offset}")


def _wide(element: str, count: int) -> str:
    return _kind(element) if count == 1 else f"<{count} x {_kind(element)}>"


def _load(context: EmitContext, slot: int, element: str, index: str) -> str:
    kind = _wide(element, context.lanes)
    found = context.out.value(f"load {kind}, ptr {_place(context, slot, element, index)}, align 1")
    if element != "bool":
        return found
    return context.out.value(f"trunc {kind} {found} to {llvm('bool', context.lanes)}")


def _store(context: EmitContext, slot: int, value: ScalarValue, index: str) -> None:
    kind, operand = _wide(value.element, value.count), value.operand
    if value.element == "bool":
        operand = context.out.value(f"zext {llvm('bool', value.count)} {operand} to {kind}")
    place = _place(context, slot, value.element, index)
    context.out.line(f"store {kind} {operand}, ptr {place}, align 1")


def run_text(text: str, arrays: Sequence[Array], groups: int) -> None:
    """Run a kernel on arrays, one slot each."""
    loaded = load(assemble(text, host_machine()), ["kernel_0"])
    slots = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )
    kind(loaded.address("kernel_0"))(slots, 0, groups, groups, None)


def run_lanes(
    emit: Emit,
    elements: Sequence[str],
    result: str,
    lanes: int,
    *operands: Array,
    target: str = "cpu-avx512",
) -> Array:
    """What `emit` computes for arrays of one dimension; their length is made a multiple of the lanes."""
    count = len(operands[0])
    groups = -(-count // lanes)
    arrays = [part for operand in operands for part in _split(np.resize(operand, groups * lanes))]
    dtype = DTYPES[PARTS.get(result, result)]
    parts = [np.zeros(groups * lanes, dtype) for _ in range(2 if result in PARTS else 1)]
    run_text(write_kernel(emit, elements, result, lanes, target), [*arrays, *parts], groups)
    if result not in PARTS:
        return parts[0][:count]
    found = np.empty(count, DTYPES[result])
    found.real, found.imag = parts[0][:count], parts[1][:count]
    return found


def _split(array: Array) -> list[Array]:
    if array.dtype.kind != "c":
        return [np.ascontiguousarray(array)]
    return [np.ascontiguousarray(array.real), np.ascontiguousarray(array.imag)]


def assembly_for(text: str, target: str) -> str:
    """The assembly of a kernel for a target that need not be this machine."""
    found = find_target(target)
    return assembly(text, Processor(found.triple, found.cpu, found.features))
