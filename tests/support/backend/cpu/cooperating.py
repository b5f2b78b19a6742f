"""Kernels of cooperative instructions for the tests: emitted without the rest of the compiler, run on arrays."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.backend.cpu.emission import emit_for
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.matrices import (
    constant_matrix,
    emit_coop_load,
    emit_coop_store,
    emit_mul_add,
    emit_scale,
)
from lamella.backend.cpu.emit.memory import load_parameter
from lamella.backend.cpu.emit.scalars import emit_arith, emit_cast, emit_constant
from lamella.backend.cpu.emit.text import IrWriter
from lamella.backend.cpu.emit.values import RunValue
from lamella.backend.cpu.jit import LoadedCode, build
from lamella.base.source import Source
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import (
    Arith,
    Cast,
    Constant,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopScale,
    CoopStore,
    For,
    Function,
    Memref,
    Parallel,
    Program,
    Statement,
    Yield,
)

Array = npt.NDArray[Any]
EMIT: dict[type, Any] = {
    Arith: emit_arith,
    Cast: emit_cast,
    CoopLoad: emit_coop_load,
    CoopMulAdd: emit_mul_add,
    CoopScale: emit_scale,
    CoopStore: emit_coop_store,
}


def read(text: str) -> Program:
    """A program that the checker accepts."""
    parsed = parse(Source("kernels.tensor", text))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    return parsed.program


def walk(context: EmitContext, statements: Sequence[Statement]) -> tuple[RunValue, ...]:
    """Emit statements of the kinds that these tests use."""
    for statement in statements:
        node, names = statement.instruction, [item.name for item in statement.results]
        match node:
            case Yield():
                return tuple(context.values[item.name] for item in node.values)
            case Parallel():
                walk(context, node.body.statements)
            case For():
                values = emit_for(context, node, statement.results)
                context.values.update(zip(names, values, strict=False))
            case Constant():
                make = constant_matrix if isinstance(node.type, Coopmatrix) else emit_constant
                context.values[names[0]] = make(context, node)
            case _:
                found = EMIT[type(node)](context, node)
                context.values.update(zip(names, [found], strict=False))
    return ()


def emit(function: Function, target: str = "cpu-avx512") -> str:
    """The module of a function, for one subgroup."""
    out = IrWriter()
    context = EmitContext(out, find_target(target), walk, lanes=16)
    slot = 0
    for parameter in function.parameters:
        context.values[parameter.value.name], slot = load_parameter(context, parameter, slot)
    walk(context, function.body.statements)
    out.line("ret void")
    head = "define void @kernel_0(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) nounwind {"
    return "\n".join([head, "entry:", out.body(), "}", *out.declarations, ""])


class Kernel:
    """Machine code of the only function of a text."""

    def __init__(self, text: str, target: str = "cpu-avx512", translate: Callable[[str], str] = str) -> None:
        self.function = read(text).functions[0]
        self.text = translate(emit(self.function, target))
        self.code: LoadedCode = build(self.text, ["kernel_0"])
        kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self.call = ctypes.CFUNCTYPE(None, *kinds)(self.code.address("kernel_0"))

    def __call__(self, *arguments: Array | int | float | complex) -> None:
        """Run on arrays, which are written in place."""
        slots = np.array(self.pack(arguments), np.int64)
        self.call(slots.ctypes.data, 0, 1, 1, None)

    def pack(self, arguments: Sequence[Array | int | float | complex]) -> list[int]:
        """The slots of the arguments."""
        found: list[int] = []
        for parameter, value in zip(self.function.parameters, arguments, strict=True):
            if isinstance(parameter.type, Memref):
                found += _memref(parameter.type, np.asarray(value))
            else:
                found += _scalar(str(parameter.type), value)
        return found


def _memref(type_: Memref, array: Array) -> list[int]:
    steps = [step // array.itemsize for step in array.strides]
    for known, own in zip(type_.stride, steps, strict=True):
        assert known in (None, own)
    sizes = [own for known, own in zip(type_.shape, array.shape, strict=True) if known is None]
    return [
        array.ctypes.data,
        *sizes,
        *(own for known, own in zip(type_.stride, steps, strict=True) if known is None),
    ]


def _scalar(name: str, value: Any) -> list[int]:
    kinds = {
        "index": "<i8",
        "i64": "<i8",
        "i32": "<i4",
        "f32": "<f4",
        "f64": "<f8",
        "c32": "<c8",
        "c64": "<c16",
    }
    data = np.array([value], kinds[name]).tobytes()
    return [int(item) for item in np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"\0"), np.int64)]


def fence(count: int, dtype: np.dtype[Any], at_end: bool) -> Array:
    """Memory for so many numbers; behind it, or before it, begins a page that nobody may touch."""
    size = count * dtype.itemsize
    pages = -(-size // mmap.PAGESIZE)
    whole = np.frombuffer(mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE), np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for page in (0, pages + 1):
        start = whole.ctypes.data + page * mmap.PAGESIZE
        assert protect(ctypes.c_void_p(start), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    first = mmap.PAGESIZE * (pages + 1) - size if at_end else mmap.PAGESIZE
    return whole[first : first + size].view(dtype)


def lay_out(values: Array, strides: tuple[int, ...], at_end: bool) -> Array:
    """The same numbers in fenced memory, with strides counted in elements."""
    reach = sum((size - 1) * step for size, step in zip(values.shape, strides, strict=True))
    memory = fence(reach + 1, values.dtype, at_end)
    steps = [step * values.itemsize for step in strides]
    found = np.lib.stride_tricks.as_strided(memory, values.shape, steps)
    found[...] = values
    return found
