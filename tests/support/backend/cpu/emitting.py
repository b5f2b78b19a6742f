"""Kernels of hand-written values: what the parts of the emission write is compiled and called on NumPy arrays."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence

import numpy as np

from lamella.backend.arguments import dtype_of
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.memory import load_parameter
from lamella.backend.cpu.emit.text import IrWriter
from lamella.backend.cpu.emit.values import LLVM, RunValue, ScalarValue
from lamella.backend.cpu.jit import build
from lamella.backend.interpreter.arithmetic import is_complex
from lamella.base.arrays import Array
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Parameter, Statement, Type, Value

PAGE = mmap.PAGESIZE
ROOM = 2 * PAGE
Call = Callable[..., None]


def _walk(context: EmitContext, statements: Sequence[Statement]) -> tuple[RunValue, ...]:
    raise AssertionError("there are no regions here")


def make_here(lanes: int = 1, items: int = 1) -> EmitContext:
    """A place to emit to, in an SPMD region where there are lanes."""
    context = EmitContext(IrWriter(), find_target("cpu-avx512"), _walk)
    context.lanes, context.subgroup_size, context.items = lanes, lanes, items
    context.collective, context.scratch = lanes == 1, "%scratch"
    return context


def read_slot(context: EmitContext, slot: int, kind: str = "ptr") -> str:
    """The operand in a slot of the arguments."""
    pointer = context.out.value(f"getelementptr i64, ptr %args, i64 {slot}")
    return context.out.value(f"load {kind}, ptr {pointer}")


def read_lanes(context: EmitContext, element: str, slot: int) -> ScalarValue:
    """A vector of whole lanes behind the pointer in a slot; parts of complex numbers one after the other."""
    pointer, kind = read_slot(context, slot), f"<{context.lanes} x {LLVM[element]}>"
    kind = LLVM[element] if context.lanes == 1 else kind
    parts = []
    for part in range(2 if is_complex(dtype_of(element)) else 1):
        place = context.out.value(f"getelementptr {kind}, ptr {pointer}, i64 {part}")
        parts.append(context.out.value(f"load {kind}, ptr {place}, align 1"))
    return ScalarValue(element, tuple(parts), context.lanes)


def read_mask(context: EmitContext, slot: int) -> None:
    """Let only those lanes run whose bit is set in a slot."""
    bits = read_slot(context, slot, f"i{context.lanes}")
    context.mask = context.out.value(f"bitcast i{context.lanes} {bits} to <{context.lanes} x i1>")


def write_lanes(context: EmitContext, value: ScalarValue, slot: int) -> None:
    """Write whole lanes to the pointer in a slot; a value that all lanes share is written once."""
    pointer = read_slot(context, slot)
    kind = LLVM[value.element] if value.count == 1 else f"<{value.count} x {LLVM[value.element]}>"
    for part, operand in enumerate(value.parts):
        place = context.out.value(f"getelementptr {kind}, ptr {pointer}, i64 {part}")
        context.out.line(f"store {kind} {operand}, ptr {place}, align 1")


def add_parameter(context: EmitContext, name: str, kind: Type, slot: int = 0) -> int:
    """Read a parameter from a slot on; gives the slot behind."""
    context.values[name], slot = load_parameter(context, Parameter(Value(name), kind), slot)
    return slot


def module_text(context: EmitContext) -> str:
    """The module of a kernel that has been written."""
    head = "define void @kernel_0(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) {\nentry:\n"
    return f"{head}{context.out.body()}\n  ret void\n}}\n" + "\n".join(context.out.declarations) + "\n"


def compile_kernel(context: EmitContext) -> Call:
    """A function that calls the kernel with slots: arrays are pointers, the rest are the bits of a slot."""
    loaded = build(module_text(context), ["kernel_0"])
    kinds = [ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    entry = ctypes.CFUNCTYPE(None, *kinds)(loaded.address("kernel_0"))

    def call(*slots: Array | int) -> None:
        listed = [item.ctypes.data if isinstance(item, np.ndarray) else item for item in slots]
        arguments = np.array([item % (1 << 64) for item in listed], np.uint64)
        scratch = np.zeros(1 << 12, np.uint8)
        aligned = scratch.ctypes.data + -scratch.ctypes.data % 128
        entry(arguments.ctypes.data, 0, 1, 1, aligned)
        assert loaded is not None  # the code lives as long as the call

    return call


def in_parts(values: Array) -> Array:
    """Complex numbers as `read_lanes` and `write_lanes` hold them: all real parts, then all imaginary ones."""
    if not is_complex(values.dtype):
        return np.ascontiguousarray(values)
    return np.concatenate([values.real, values.imag])


def draw_values(element: str, count: int, seed: int) -> Array:
    """Small whole numbers of a type, whose sums are exact in every type."""
    generator = np.random.default_rng(seed)
    dtype = dtype_of(element)
    drawn = generator.integers(-8, 9, count)
    if is_complex(dtype):
        return (drawn + 1j * generator.integers(-8, 9, count)).astype(dtype)
    return drawn.astype(dtype)


class Guarded:
    """Some pages of memory between two that nobody may touch."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, ROOM + 2 * PAGE)
        self._whole = np.frombuffer(self._map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        for place in (0, PAGE + ROOM):
            start = self._whole.ctypes.data + place
            assert libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(PAGE), 0) == 0

    def place(self, values: Array, at_end: bool) -> Array:
        """A copy of values that ends, or begins, where the pages do."""
        pages = self._whole[PAGE : PAGE + ROOM]
        start = ROOM - values.nbytes if at_end else 0
        found = pages[start : start + values.nbytes].view(values.dtype)
        found[:] = values
        return found
