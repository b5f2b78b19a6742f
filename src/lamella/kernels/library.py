"""Kernels that programs write: matrix products with weights packed beforehand, batches, tall matrices.

Each function gives a program with one kernel `@kernel`; sizes are static, C is overwritten. A packed matrix of
weights holds panels of rows, one column behind the other: element (i, k) of the matrix is
`panels[i % rows, k, i // rows]`, and where `pack` elements of a row lie together (bf16 and i8 for targets that
multiply packs) `panels[k % pack, i % rows, k // pack, i // rows]`. What is missing in the last panel is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lamella.base.arrays import Array
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.direct import MultistreamGemv, StreamedGemm, count_streams
from lamella.kernels.passes.lower_linalg.extents import add, as_value, least, multiply, subtract
from lamella.kernels.passes.lower_linalg.gemm import write_panels
from lamella.kernels.passes.lower_linalg.operands import (
    WIDER,
    GemmOperands,
    MatrixOperand,
    RowSpan,
    ScalarFactor,
    constant,
)
from lamella.kernels.passes.lower_linalg.tiles import TilePlan, plan_panels, start_panels
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    INDEX,
    Blas,
    Dictionary,
    DictionaryEntry,
    Function,
    IndexOrSize,
    Memref,
    Number,
    Parameter,
    Program,
    Scalar,
    Slice,
    Value,
    make_memref,
)

NAME = "kernel"
NAMES = ("A", "B", "C")
BLOCK_ROWS = 4096
"""Rows of a tall matrix that one work-group takes."""
LINE_BYTES = 64
"""Bytes of a line of the caches."""


@dataclass(frozen=True, slots=True)
class GemmShape:
    """The sizes of a product: C has m rows and n columns, A has k columns."""

    m: int
    n: int
    k: int


def pack_panels(matrix: Array, rows: int = 32, pack: int = 1) -> Array:
    """The panels of a matrix, in the layout of the memrefs of packed kernels."""
    height, depth = -matrix.shape[0] % rows, -matrix.shape[1] % (pack * 16 if pack > 1 else 1)
    whole = np.pad(matrix, ((0, height), (0, depth)))
    count, columns = whole.shape[0] // rows, whole.shape[1]
    # modes from the slowest to the fastest, as they lie in memory
    parts = whole.reshape(count, rows, columns // pack, pack).transpose(0, 2, 1, 3)
    packed: Array = np.ascontiguousarray(parts)
    return packed.transpose(3, 2, 1, 0) if pack > 1 else packed.reshape(count, -1, rows).transpose(2, 1, 0)


def packed_gemm(
    shape: GemmShape, target: Target, element: str = "f32", result: str | None = None, groups: int = 1
) -> Program:
    """`C := A B` with A in panels; so many work-groups share the panels."""
    kind = result or WIDER.get(element, element)
    start = start_panels(element, WIDER.get(kind, kind), target)
    count = -(-shape.m // start.rows)
    types = [_panels(shape, element, start), make_memref(element, (shape.k, shape.n))]
    types.append(make_memref(kind, (shape.m, shape.n)))
    builder, (a, b, c) = _start()
    share = PanelShare(-(-count // max(1, groups)), count, builder)
    if start.pack == 1 and element == kind and count_streams(shape.n) > 1:
        end = least(builder, add(builder, share.first, share.size), count)
        operands = (MatrixOperand(item, type_) for item, type_ in zip((a, b, c), types, strict=True))
        MultistreamGemv(*operands).write(builder, share.first, end)
        return _finish(builder, types)
    begin = multiply(builder, share.first, start.rows)
    m = (
        shape.m
        if share.is_whole
        else least(builder, share.size * start.rows, subtract(builder, shape.m, begin))
    )
    one, zero = _factor(builder, 1, element), _factor(builder, 0, kind)
    place = MatrixOperand(c, types[2]).view(builder, RowSpan(begin, m), RowSpan(0, shape.n))
    product = GemmOperands(
        one, MatrixOperand(a, types[0]), MatrixOperand(b, types[1]), zero, place, m, shape.n, shape.k
    )
    product = replace(product, whole_rows=shape.m % start.rows == 0)
    write_panels(builder, product, plan_panels(product, start, target), share.first)
    return _finish(builder, types)


def _panels(shape: GemmShape, element: str, plan: TilePlan) -> Memref:
    """The type of a packed matrix."""
    count = -(-shape.m // plan.rows)
    if plan.pack == 1:
        return make_memref(element, (plan.rows, shape.k, count))
    depth = -(-shape.k // plan.depth) * plan.depth // plan.pack
    return make_memref(element, (plan.pack, plan.rows, depth, count))


class PanelShare:
    """The share of a work-group of so many panels."""

    def __init__(self, size: int, count: int, builder: Builder) -> None:
        self.size = size
        self.is_whole = size >= count
        number = None if self.is_whole else builder.builtin("group_id", INDEX)
        self.first: IndexOrSize = 0 if number is None else multiply(builder, number, size)


def batched_gemm(
    shape: GemmShape, element: str = "f32", transposes: tuple[bool, bool] = (False, False), beta: int = 0
) -> Program:
    """`C := A B + beta C` for each of many matrices that lie one behind the other; a work-group takes one."""
    m, n, k = shape.m, shape.n, shape.k
    sizes = [(k, m) if transposes[0] else (m, k), (n, k) if transposes[1] else (k, n), (m, n)]
    types = [make_memref(element, (*size, None)) for size in sizes]
    builder, values = _start()
    number = builder.builtin("group_id", INDEX)
    a, b, c = (_matrix(builder, value, type_, number) for value, type_ in zip(values, types, strict=True))
    one, zero = (constant(builder, item, Scalar(element)) for item in (1, beta))
    builder.put(Blas("gemm", (one, a, b, zero, c), transposes))
    return _finish(builder, types)


def tall_gemm(shape: GemmShape, element: str = "f32", block: int = BLOCK_ROWS) -> Program:
    """`C := A B` for a matrix A of many rows; a work-group takes a block of them, the last one what is left."""
    types = [
        make_memref(element, size) for size in ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))
    ]
    builder, (a, b, c) = _start()
    one, zero = (constant(builder, item, Scalar(element)) for item in (1, 0))
    begin = multiply(builder, builder.builtin("group_id", INDEX), block)
    operands = (MatrixOperand(a, types[0]), MatrixOperand(c, types[2]))

    def write_block(inner: Builder, rows: IndexOrSize) -> None:
        left, result = (
            item.view(inner, RowSpan(begin, rows), RowSpan(0, _columns(item))) for item in operands
        )
        inner.put(Blas("gemm", (one, left.value, b, zero, result.value), (False, False)))

    rest = shape.m % block
    if not rest:
        write_block(builder, block)
    else:
        last = builder.compare("gt", as_value(builder, add(builder, begin, block)), builder.constant(shape.m))
        with builder.choice(last) as (then, otherwise):
            write_block(then, rest)
            write_block(otherwise, block)
    return _finish(builder, types)


def streamed_gemm(shape: GemmShape, target: Target, element: str = "f32", block: int = BLOCK_ROWS) -> Program:
    """`C := A B` for an A of many rows and a C that is larger than the caches and begins at a line of them."""
    sizes = ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))
    types = [make_memref(element, size) for size in sizes]
    builder, values = _start()
    a, b, c = (MatrixOperand(value, type_) for value, type_ in zip(values, types, strict=True))
    begin = multiply(builder, builder.builtin("group_id", INDEX), block)
    StreamedGemm(a, b, c, target).write(builder, begin, block)
    return stream_result(_finish(builder, types))


def stream_result(program: Program) -> Program:
    """The same kernel for a C that is larger than the caches and begins at a line of them: it is written past them.

    A kernel that reads its own C again is slower so.
    """
    promise = Dictionary((DictionaryEntry("alignment", LINE_BYTES), DictionaryEntry("streamed", True)))
    (function,) = program.functions
    *others, result = function.parameters
    return Program((replace(function, parameters=(*others, replace(result, attributes=promise))),))


def _columns(operand: MatrixOperand) -> int:
    return operand.type.shape[1] or 0


def _matrix(builder: Builder, value: Value, type_: Memref, number: Value) -> Value:
    """One of many matrices."""
    rows, columns = (size or 0 for size in type_.shape[:2])
    shown = Memref(type_.element, type_.shape[:2], type_.stride[:2])
    return builder.subview(value, (Slice(0, rows), Slice(0, columns), Slice(number)), shown)


def _factor(builder: Builder, number: int, element: str) -> ScalarFactor:
    known: Number = number
    return ScalarFactor(constant(builder, number, Scalar(element)), Scalar(element), known)


def _start() -> tuple[Builder, list[Value]]:
    return Builder(FreshNames(set(NAMES))), [Value(name) for name in NAMES]


def _finish(builder: Builder, types: Sequence[Memref]) -> Program:
    found = tuple(Parameter(Value(name), type_) for name, type_ in zip(NAMES, types, strict=True))
    return Program((Function(NAME, found, builder.region()),))
