"""Products and constants of cooperative matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.matrices.access import concatenate, shuffle, splat
from lamella.backend.cpu.emit.matrices.layout import named_matrix, uniform, value_count, width_of
from lamella.backend.cpu.emit.scalars import combine, convert, make_constant
from lamella.backend.cpu.emit.scalars.lanes import Vector, map_columns
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, ScalarValue, llvm
from lamella.base.records import dataclass
from lamella.lang.tensor.nodes import Constant, Coopmatrix, CoopMulAdd, CoopScale

WIDER = {"i8": "i32", "bf16": "f32", "f16": "f32"}
"""The types in which sums of narrow numbers are computed; others are their own."""
LEAST = 4
"""Rows from which on short integers are multiplied in pairs."""


def constant_matrix(context: EmitContext, constant: Constant) -> MatrixValue:
    """A cooperative matrix with the same number everywhere; it writes nothing."""
    type_ = constant.type
    if not isinstance(type_, Coopmatrix):
        raise TypeError("the constant is no cooperative matrix")
    width, number = width_of(type_), make_constant(constant.value, type_.element)
    parts = [splat(context, part, type_.element, width) for part in number.parts]
    known = constant.value if isinstance(constant.value, int) else None
    return MatrixValue(type_, tuple((part,) * value_count(type_) for part in parts), width, known)


def emit_scale(context: EmitContext, scale: CoopScale) -> MatrixValue:
    """A cooperative matrix times a number."""
    factor = uniform(context, context.scalar(scale.scalar.name))
    return map_columns(scale.type, partial(_times, factor), context, named_matrix(context, scale.operand))


def _times(factor: ScalarValue, context: EmitContext, column: ScalarValue) -> ScalarValue:
    return combine(context, "mul", column, factor)


def emit_mul_add(context: EmitContext, add: CoopMulAdd) -> MatrixValue:
    """A B + C, computed in the accumulation type of C, each sum in the order of k, and rounded once to the result."""
    left, right, added = (named_matrix(context, item) for item in (add.left, add.right, add.accumulator))
    own = WIDER.get(added.type.element, added.type.element)
    sums = [_value(context, added, place, own) for place in range(added.type.columns)]
    start = 0
    if _suits_quads(context, left, right, own):
        start = _add_quads(context, left, right, sums)
    elif _suits_pairs(context, left, right, own):
        start = _add_pairs(context, left, right, sums)
    elif _suits_dots(context, left, right, own):
        start = _add_dots(context, left, right, sums)
    for depth in range(start, left.type.columns):
        column = _value(context, left, depth, own)
        for place, total in enumerate(sums):
            cell = _value(context, right, place * right.type.rows + depth, own)
            sums[place] = accumulate(context, column, cell, total)
    found = [convert(context, total, add.type.element) for total in sums]
    return MatrixValue(add.type, tuple(zip(*(item.parts for item in found), strict=True)), added.width)


def _value(context: EmitContext, matrix: MatrixValue, place: int, element: str) -> ScalarValue:
    """One of the values that hold a matrix, in the type in which sums are computed."""
    parts = tuple(part[place] for part in matrix.parts)
    return convert(context, ScalarValue(matrix.type.element, parts, matrix.width), element)


def _suits_pairs(context: EmitContext, left: MatrixValue, right: MatrixValue, own: str) -> bool:
    """Whether an instruction adds two products of short integers at once."""
    short = all(item.type.element in ("i8", "i16") for item in (left, right))
    return short and own == "i32" and left.width >= LEAST and "+avx2" in context.target.features.split(",")


def _add_pairs(context: EmitContext, left: MatrixValue, right: MatrixValue, sums: list[ScalarValue]) -> int:
    """Add products two by two; gives the number of those that are added. The sums wrap as those of single ones do."""
    width, rows = left.width, right.type.rows
    whole = left.type.columns - left.type.columns % 2
    order = [lane + side * width for lane in range(width) for side in (0, 1)]
    for depth in range(0, whole, 2):
        pair = [_value(context, left, depth + side, "i16").operand for side in (0, 1)]
        woven = _widened(context, shuffle(context, "i16", pair, width, order), 2 * width)
        for place, total in enumerate(sums):
            cells = [_value(context, right, place * rows + depth + side, "i16").operand for side in (0, 1)]
            product = woven * _widened(context, _spread_pair(context, cells, width), 2 * width)
            first, second = (
                shuffle(context, "i32", (product.operand,), 2 * width, range(side, 2 * width, 2))
                for side in (0, 1)
            )
            both = context.out.value(f"add {llvm('i32', width)} {first}, {second}")
            sum_ = context.out.value(f"add {llvm('i32', width)} {total.operand}, {both}")
            sums[place] = ScalarValue("i32", (sum_,), width)
    return whole


DOT_LANES = 16
"""Sums of one instruction that adds two products of bf16 to each."""


def _suits_dots(context: EmitContext, left: MatrixValue, right: MatrixValue, own: str) -> bool:
    """Whether an instruction adds two products of bf16 at once, rounded as a sum in f32 but for subnormal numbers."""
    narrow = all(item.type.element == "bf16" for item in (left, right))
    has = "+avx512bf16" in context.target.features.split(",")
    return narrow and own == "f32" and has and left.width % DOT_LANES == 0


def _add_dots(context: EmitContext, left: MatrixValue, right: MatrixValue, sums: list[ScalarValue]) -> int:
    """Add products of bf16 two by two; gives the number of those that are added."""
    width, rows = left.width, right.type.rows
    whole = left.type.columns - left.type.columns % 2
    order = [lane + side * width for lane in range(width) for side in (0, 1)]
    for depth in range(0, whole, 2):
        woven = shuffle(context, "i16", left.parts[0][depth : depth + 2], width, order)
        for place, total in enumerate(sums):
            cells = right.parts[0][place * rows + depth : place * rows + depth + 2]
            spread = _spread_pair(context, cells, DOT_LANES)
            parts = [
                _dot(context, total.operand, woven, spread, (first, width))
                for first in range(0, width, DOT_LANES)
            ]
            sums[place] = ScalarValue("f32", (concatenate(context, "f32", parts, DOT_LANES),), width)
    return whole


def _dot(context: EmitContext, total: str, woven: str, spread: str, part: tuple[int, int]) -> str:
    """Some lanes of a sum, to which the products of as many pairs are added."""
    (first, width), count = part, DOT_LANES
    own = shuffle(context, "f32", (total,), width, range(first, first + count))
    pairs = shuffle(context, "i16", (woven,), 2 * width, range(2 * first, 2 * (first + count)))
    factors = [
        context.out.value(f"bitcast <{2 * count} x i16> {item} to <{2 * count} x bfloat>")
        for item in (pairs, spread)
    ]
    listed = ", ".join(f"<{2 * count} x bfloat> {item}" for item in factors)
    return context.out.intrinsic(
        f"<{count} x float>", "llvm.x86.avx512bf16.dpbf16ps.512", f"<{count} x float> {own}, {listed}"
    )


# --- four products of bytes at a time: one factor is unsigned there, so it is moved up by 128, and 128 times the other
# factor is taken away again, which wraps as the sums do


QUAD = 4
MOVED = 0x80808080 - (1 << 32)
"""128 in each byte of a word."""


def _suits_quads(context: EmitContext, left: MatrixValue, right: MatrixValue, own: str) -> bool:
    """Whether an instruction adds four products of bytes at once."""
    narrow = all(item.type.element == "i8" for item in (left, right))
    has = "+avx512vnni" in context.target.features.split(",")
    whole = left.width % DOT_LANES == 0 and left.type.columns >= QUAD
    return narrow and own == "i32" and has and whole


def _add_quads(context: EmitContext, left: MatrixValue, right: MatrixValue, sums: list[ScalarValue]) -> int:
    """Add products of bytes four by four; gives the number of those that are added."""
    width, rows = left.width, right.type.rows
    halves = range(0, width, DOT_LANES)
    moved = splat(context, str(MOVED), "i32", DOT_LANES)
    above = ["zeroinitializer"] * len(halves)
    parts = [
        [
            shuffle(context, "i32", (total.operand,), width, range(first, first + DOT_LANES))
            for first in halves
        ]
        for total in sums
    ]
    depths = range(0, left.type.columns - left.type.columns % QUAD, QUAD)
    for depth in depths:
        words = _weave_bytes(context, left.parts[0][depth : depth + QUAD], width)
        above = [_dot_bytes(context, *pair, moved) for pair in zip(above, words, strict=True)]
        for place, part in enumerate(parts):
            begin = place * rows + depth
            spread = _spread_bytes(context, right.parts[0][begin : begin + QUAD])
            parts[place] = [_dot_bytes(context, *pair, spread) for pair in zip(part, words, strict=True)]
    for place, part in enumerate(parts):
        whole = [
            context.out.value(f"sub <{DOT_LANES} x i32> {one}, {other}")
            for one, other in zip(part, above, strict=True)
        ]
        sums[place] = ScalarValue("i32", (concatenate(context, "i32", whole, DOT_LANES),), width)
    return len(depths) * QUAD


def _weave_bytes(context: EmitContext, columns: Sequence[str], width: int) -> list[str]:
    """Four columns row by row, some rows at a time, as words."""
    pairs = [
        shuffle(context, "i8", (columns[place], columns[place + 2]), width, _turns(width)) for place in (0, 1)
    ]
    whole = shuffle(context, "i8", pairs, 2 * width, _turns(2 * width))
    found = []
    for first in range(0, width, DOT_LANES):
        lanes = range(QUAD * first, QUAD * (first + DOT_LANES))
        part = shuffle(context, "i8", (whole,), QUAD * width, lanes)
        kinds = f"<{QUAD * DOT_LANES} x i8> {part} to <{DOT_LANES} x i32>"
        found.append(context.out.value(f"bitcast {kinds}"))
    return found


def _turns(width: int) -> list[int]:
    """Lanes of two vectors in turn."""
    return [lane + side * width for lane in range(width) for side in (0, 1)]


def _spread_bytes(context: EmitContext, cells: Sequence[str]) -> str:
    """Four bytes, moved up by 128, in all lanes."""
    word = context.out.value(f"zext i8 {cells[0]} to i32")
    for place, cell in enumerate(cells[1:], 1):
        wide = context.out.value(f"zext i8 {cell} to i32")
        word = context.out.value(f"or i32 {word}, {context.out.value(f'shl i32 {wide}, {8 * place}')}")
    return splat(context, context.out.value(f"xor i32 {word}, {MOVED}"), "i32", DOT_LANES)


def _dot_bytes(context: EmitContext, total: str, signed: str, unsigned: str) -> str:
    """Words of a sum, to which four products each are added; bytes that are unsigned come first."""
    kind = f"<{DOT_LANES} x i32>"
    operands = f"{kind} {total}, {kind} {unsigned}, {kind} {signed}"
    return context.out.intrinsic(kind, "llvm.x86.avx512.vpdpbusd.512", operands)


def _widened(context: EmitContext, operand: str, count: int) -> Vector:
    return Vector(context.out, "i16", count, operand).cast("sext", "i32")


def _spread_pair(context: EmitContext, cells: Sequence[str], width: int) -> str:
    """Two numbers of 16 bits in turn, in all lanes."""
    low, high = (context.out.value(f"zext i16 {cell} to i32") for cell in cells)
    moved = context.out.value(f"shl i32 {high}, 16")
    whole = splat(context, context.out.value(f"or i32 {low}, {moved}"), "i32", width)
    return context.out.value(f"bitcast {llvm('i32', width)} {whole} to {llvm('i16', 2 * width)}")


def accumulate(
    context: EmitContext, column: ScalarValue, cell: ScalarValue, total: ScalarValue
) -> ScalarValue:
    """`total + column * cell`, the cell spread over the lanes of the column."""
    product = _Product(context, column.element, column.count)
    spread = [splat(context, part, column.element, column.count) for part in cell.parts]
    if len(spread) == 1:
        parts = (product.add(column.operand, spread[0], total.operand),)
        return ScalarValue(column.element, parts, column.count)
    (real, imaginary), (first, second) = column.parts, spread
    low = product.add(real, first, total.parts[0])
    low = product.add(product.negate(imaginary), second, low)
    high = product.add(real, second, total.parts[1])
    high = product.add(imaginary, first, high)
    return ScalarValue(column.element, (low, high), column.count)


@dataclass(frozen=True, slots=True)
class _Product:
    """Multiplication and addition of parts of one type."""

    context: EmitContext
    element: str
    count: int

    def add(self, left: str, right: str, added: str) -> str:
        """`left * right + added`; floating-point numbers are rounded once."""
        first, second, third = (self._vector(item) for item in (left, right, added))
        whole = first.fma(second, third) if first.is_floating else first * second + third
        return whole.operand

    def negate(self, operand: str) -> str:
        """The negative."""
        return (-self._vector(operand)).operand

    def _vector(self, operand: str) -> Vector:
        return Vector(self.context.out, LLVM[self.element], self.count, operand)
