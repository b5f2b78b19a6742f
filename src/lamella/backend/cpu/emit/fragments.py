"""Fragments: cooperative matrices in the register layout of NVIDIA's `mma`, of 16 x 16, 16 x 8 and 8 x 16 elements.

A product is computed transposed, C' = B' A' (the factor on the right is what the hardware calls A): then two
neighbouring rows of C, which lie side by side in memory, are in the registers of one thread. With g = lane / 4 and t =
lane mod 4 a thread holds of each block of 8 rows by 16 columns of C the elements (2t, g), (2t+1, g), (2t, g+8) and
(2t+1, g+8); blocks are numbered along the rows first. Of a factor it holds words of two neighbouring k. Of one row,
which is a matrix too, it holds the elements of columns g and g+8, of one column those of rows 2t and 2t+1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from lamella.backend.cpu.emit import threads, warps
from lamella.backend.cpu.emit.context import EmitContext, Emitters
from lamella.backend.cpu.emit.integers import dynamic
from lamella.backend.cpu.emit.matrices import emit_scale
from lamella.backend.cpu.emit.matrices.access import join_conditions, load_scalar, or_zeros, store_scalar
from lamella.backend.cpu.emit.matrices.layout import (
    MatrixAxis,
    MatrixLayout,
    find_layout,
    move,
    named_matrix,
    uniform,
)
from lamella.backend.cpu.emit.memory.addresses import noalias_metadata
from lamella.backend.cpu.emit.scalars import combine, make_constant
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, ScalarValue
from lamella.base.records import dataclass
from lamella.kernels.fragments import COLUMNS, DEPTH, ROWS
from lamella.lang.tensor.nodes import (
    Cast,
    Constant,
    CoopApply,
    CoopConstruct,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
)

# --- values --------------------------------------------------------------------------------------------------


def _same(type_: Coopmatrix, number: ScalarValue) -> MatrixValue:
    count = len(list(_sum_places(type_)))
    return MatrixValue(type_, tuple((part,) * count for part in number.parts))


def constant_matrix(context: EmitContext, constant: Constant) -> MatrixValue:
    """A matrix with the same number everywhere; it writes nothing."""
    type_ = constant.type
    if not isinstance(type_, Coopmatrix):
        raise TypeError("the constant is no cooperative matrix")
    return _same(type_, make_constant(constant.value, type_.element))


def emit_construct(context: EmitContext, construct: CoopConstruct) -> MatrixValue:
    """A matrix with one number everywhere, or with one row or column everywhere."""
    if not isinstance(context.values[construct.scalar.name], MatrixValue):
        return _same(construct.type, uniform(context, context.scalar(construct.scalar.name)))
    line = named_matrix(context, construct.scalar)
    held = dict(zip(_sum_places(line.type), line.parts[0], strict=True))
    row, column = int(line.type.rows > 1), int(line.type.columns > 1)
    cells = tuple(held[place[0] * row, place[1] * column] for place in _sum_places(construct.type))
    return MatrixValue(construct.type, (cells,))


def emit_reduce(context: EmitContext, reduce: CoopReduce) -> MatrixValue:
    """Sums or extremes of columns or rows: of what a thread holds, then of the threads that hold the same ones."""
    matrix, element = named_matrix(context, reduce.operand), reduce.type.element
    along, distances = (1, (1, 2)) if reduce.mode == "column" else (0, (4, 8, 16))
    lines: dict[int, list[ScalarValue]] = {}
    for place, part in zip(_sum_places(matrix.type), matrix.parts[0], strict=True):
        lines.setdefault(place[along], []).append(ScalarValue(element, (part,)))
    found = [
        threads.reduce_lanes(
            context, reduce.function, _meet(context, reduce.function, lines[place[along]]), distances
        )
        for place in _sum_places(reduce.type)
    ]
    return MatrixValue(reduce.type, (tuple(item.operand for item in found),))


def _meet(context: EmitContext, function: str, values: Sequence[ScalarValue]) -> ScalarValue:
    """Tree reduction of values in pairs, so that no one waits for all before it."""
    while len(values) > 1:
        pairs = [combine(context, function, *pair) for pair in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *values[len(pairs) * 2 :]]
    return values[0]


def emit_cast(context: EmitContext, cast: Cast) -> ScalarValue | MatrixValue:
    """A cast; sums that become a factor have its words already: two neighbouring rows are two neighbouring k."""
    type_ = cast.type
    if not isinstance(type_, Coopmatrix) or type_.use == "matrix_acc":
        return warps.emit_thread_cast(context, cast)
    matrix = named_matrix(context, cast.operand)
    pairs = {
        place: words
        for place, *words in zip(
            list(_sum_places(matrix.type))[::2], matrix.parts[0][::2], matrix.parts[0][1::2], strict=True
        )
    }
    words = [
        _narrow_pair(context, type_.element, *pairs[k + half, column + side])
        for k in range(0, type_.rows, DEPTH)
        for column in range(0, type_.columns, COLUMNS)
        for half, side in ((0, 0), (0, 8), (8, 0), (8, 8))
    ]
    return MatrixValue(type_, (tuple(words),), words=True)


def _narrow_pair(context: EmitContext, element: str, low: str, high: str) -> str:
    """Two numbers as a packed word of two halves, by the one instruction that rounds both."""
    text = f"cvt.rn.{element}x2.f32 $0, $2, $1;"
    return context.out.value(f'call i32 asm "{text}", "=r,f,f"(float {low}, float {high})')


# --- memory --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Threads:
    """Operands of a thread, i64: its group of four, and twice its number there."""

    group: str
    pair: str


def _threads(context: EmitContext) -> _Threads:
    out = context.out
    lane = out.value(f"zext i32 {context.lane} to i64")
    inner = out.value(f"and i64 {lane}, 3")
    return _Threads(out.value(f"lshr i64 {lane}, 2"), out.value(f"shl i64 {inner}, 1"))


class _Address:
    """Pointers to elements of a matrix: steps from those of a thread are constants."""

    def __init__(self, context: EmitContext, place: MatrixLayout, row: str, column: str) -> None:
        self._context, self.place = context, place
        self._row, self._column = row, column
        out = context.out
        along = out.value(f"mul i64 {row}, {place.rows.step.operand}")
        across = out.value(f"mul i64 {column}, {place.columns.step.operand}")
        both = dynamic(out.value(f"add i64 {along}, {across}"))
        self._pointer = move(context, place.element, place.pointer, both)

    def pointer(self, row: int, column: int) -> str:
        """Where an element lies, so many rows and columns from that of the thread."""
        out, place = self._context.out, self.place
        along = _times(self._context, place.rows, row)
        across = _times(self._context, place.columns, column)
        offset = out.value(f"add i64 {along}, {across}")
        return move(self._context, place.element, self._pointer, dynamic(offset))

    def condition(self, row: int, column: int) -> str | None:
        """Whether it lies inside; None where nobody asks."""
        first = self._inside(self.place.rows, self._row, row)
        return join_conditions(self._context, first, self._inside(self.place.columns, self._column, column))

    def _inside(self, axis: MatrixAxis, own: str, step: int) -> str | None:
        if not axis.checked:
            return None
        out = self._context.out
        moved = out.value(f"add i64 {own}, {step}")
        index = out.value(f"add i64 {axis.start.operand}, {moved}")
        return out.value(f"icmp ult i64 {index}, {axis.size.operand}")


def _times(context: EmitContext, axis: MatrixAxis, count: int) -> str:
    step = axis.step.constant
    if isinstance(step, int):
        return str(step * count)
    return context.out.value(f"mul i64 {axis.step.operand}, {count}") if count else "0"


def _sum_places(type_: Coopmatrix) -> Iterator[tuple[int, int]]:
    """The row and column of each value of a thread, from its own on."""
    sides, halves = (0, 1) if type_.rows > 1 else (0,), (0, 8) if type_.columns > 1 else (0,)
    for column in range(0, type_.columns, COLUMNS):
        for row in range(0, type_.rows, ROWS):
            yield from ((row + side, column + half) for half in halves for side in sides)


def _own_address(context: EmitContext, place: MatrixLayout, type_: Coopmatrix, own: _Threads) -> _Address:
    """Where the first element of sums lies that a thread holds; of one row or column there is no other."""
    return _Address(
        context, place, own.pair if type_.rows > 1 else "0", own.group if type_.columns > 1 else "0"
    )


def emit_load(context: EmitContext, load: CoopLoad) -> MatrixValue:
    """Load what this thread holds of a matrix; what a check leaves out is 0."""
    place, own = find_layout(context, load), _threads(context)
    if load.type.use == "matrix_acc":
        address = _own_address(context, place, load.type, own)
        spots = list(_sum_places(load.type))
        if load.type.rows > 1 and place.element == "f32" and _stores_pairs(place):
            pairs = [_load_pair(context, address, *item) for item in spots[::2]]
            return MatrixValue(load.type, (tuple(cell for pair in pairs for cell in pair),))
        cells = [_element(context, address, *item) for item in spots]
        return MatrixValue(load.type, (tuple(cells),))
    words = tuple(_words(context, place, load.type, own))
    return MatrixValue(load.type, (words,), words=True)


def _load_pair(context: EmitContext, address: _Address, row: int, column: int) -> list[str]:
    """Two rows that lie side by side, in one access."""
    out, pointer, condition = context.out, address.pointer(row, column), address.condition(row, column)
    kept = pointer if condition is None else or_zeros(context, pointer, condition)
    both = out.value(f"load <2 x float>, ptr {kept}, align 8")
    return [out.value(f"extractelement <2 x float> {both}, i64 {side}") for side in range(2)]


def _element(context: EmitContext, address: _Address, row: int, column: int) -> str:
    pointer, condition = address.pointer(row, column), address.condition(row, column)
    kept = pointer if condition is None else or_zeros(context, pointer, condition)
    return load_scalar(context, address.place.element, kept)[0]


def _words(context: EmitContext, place: MatrixLayout, type_: Coopmatrix, own: _Threads) -> Iterator[str]:
    """Words of two neighbouring k, in the order in which products take them: blocks of columns of the sum first."""
    if type_.use == "matrix_a":
        address = _Address(context, place, own.group, own.pair)
        for k in range(0, type_.columns, DEPTH):
            for row in range(0, type_.rows, ROWS):
                yield from (_word(context, address, (row, k + half), (0, 1)) for half in (0, 8))
        return
    address = _Address(context, place, own.pair, own.group)
    for k in range(0, type_.rows, DEPTH):
        for column in range(0, type_.columns, COLUMNS):
            for half, side in ((0, 0), (0, 8), (8, 0), (8, 8)):
                yield _word(context, address, (k + half, column + side), (1, 0))


def _word(context: EmitContext, address: _Address, first: tuple[int, int], step: tuple[int, int]) -> str:
    """Two elements along k as a word: one access where they lie side by side and none is left out."""
    out, place = context.out, address.place
    along, other = (place.rows, place.columns) if step[0] else (place.columns, place.rows)
    pair_even = along.start.divisor % 2 == 0 and other.step.divisor % 2 == 0
    if along.step.constant == 1 and not along.checked and pair_even and place.alignment >= 4:
        pointer, condition = address.pointer(*first), address.condition(*first)
        kept = pointer if condition is None else or_zeros(context, pointer, condition)
        return out.value(f"load i32, ptr {kept}, align 4")
    kind = LLVM[place.element]
    second = (first[0] + step[0], first[1] + step[1])
    halves = []
    for item in (first, second):
        found = _element(context, address, *item)
        bits = found if kind == "i16" else out.value(f"bitcast {kind} {found} to i16")
        halves.append(out.value(f"zext i16 {bits} to i32"))
    high = out.value(f"shl i32 {halves[1]}, 16")
    return out.value(f"or i32 {halves[0]}, {high}")


def emit_store(context: EmitContext, store: CoopStore) -> None:
    """Store what this thread holds of a matrix; what a check leaves out stays as it is."""
    place, matrix, own = find_layout(context, store), named_matrix(context, store.value), _threads(context)
    address = _own_address(context, place, matrix.type, own)
    values = list(zip(_sum_places(matrix.type), matrix.parts[0], strict=True))
    if matrix.type.rows > 1 and _stores_pairs(place):
        for ((row, column), low), (_, high) in zip(values[::2], values[1::2], strict=True):
            condition = address.condition(row, column)
            pair = partial(_store_pair, context, place.element, address.pointer(row, column), (low, high))
            warps.when(context, condition, pair)
        return
    # Threads that hold the same elements store the same.
    for (row, column), value in values:
        one = partial(store_scalar, context, place.element, (value,), address.pointer(row, column))
        warps.when(context, address.condition(row, column), one)


def _stores_pairs(place: MatrixLayout) -> bool:
    """Whether two rows lie side by side, at a multiple of their size, and are both inside or both not."""
    rows, columns = place.rows, place.columns
    width = 8 if place.element == "f32" else 4
    even = rows.start.divisor % 2 == 0 and columns.step.divisor % 2 == 0
    return rows.step.constant == 1 and not rows.checked and even and place.alignment >= width


def _store_pair(context: EmitContext, element: str, pointer: str, pair: tuple[str, str]) -> None:
    out, kind = context.out, LLVM[element]
    first = out.value(f"insertelement <2 x {kind}> poison, {kind} {pair[0]}, i64 0")
    both = out.value(f"insertelement <2 x {kind}> {first}, {kind} {pair[1]}, i64 1")
    hint = noalias_metadata(context)
    out.line(f"store <2 x {kind}> {both}, ptr {pointer}, align {8 if element == 'f32' else 4}{hint}")


# --- products ------------------------------------------------------------------------------------------------


def emit_mul_add(context: EmitContext, add: CoopMulAdd) -> MatrixValue:
    """A B + C by `mma.sync`, 8 rows by 16 columns at a time."""
    left, right, added = (named_matrix(context, item) for item in (add.left, add.right, add.accumulator))
    sums = list(added.parts[0])
    rows, columns = added.type.rows // ROWS, added.type.columns // COLUMNS
    for k in range(left.type.columns // DEPTH):
        for column in range(columns):
            at = (k * columns + column) * 4
            wide = right.parts[0][at : at + 4]
            for row in range(rows):
                place = (column * rows + row) * 4
                narrow = left.parts[0][(k * rows + row) * 2 : (k * rows + row) * 2 + 2]
                sums[place : place + 4] = _product(
                    context, left.type.element, (*wide, *narrow), sums[place : place + 4]
                )
    return MatrixValue(add.type, (tuple(sums),))


def _product(context: EmitContext, element: str, words: tuple[str, ...], sums: list[str]) -> list[str]:
    """One instruction, written as it is: LLVM's names of it differ from type to type."""
    out = context.out
    text = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{element}.{element}.f32 "
        "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};"
    )
    kind = "{ float, float, float, float }"
    given = ", ".join([*(f"i32 {word}" for word in words), *(f"float {item}" for item in sums)])
    ways = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
    found = out.value(f'call {kind} asm sideeffect "{text}", "{ways}"({given})')
    return [out.value(f"extractvalue {kind} {found}, {place}") for place in range(4)]


# --- components ----------------------------------------------------------------------------------------------


def emit_apply(context: EmitContext, apply: CoopApply) -> MatrixValue:
    """A matrix each of whose elements a region makes of one and of its row and column."""
    matrix, own = named_matrix(context, apply.operand), _threads(context)
    sides = own.pair if apply.type.rows > 1 else "0", own.group if apply.type.columns > 1 else "0"
    row, column = (context.out.value(f"trunc i64 {item} to i32") for item in sides)
    found = []
    for number, place in enumerate(_sum_places(apply.type)):
        moved = zip((row, column), place, strict=True)
        values = (dynamic(context.out.value(f"add i32 {item}, {step}"), "i32") for item, step in moved)
        context.values[apply.row.name], context.values[apply.column.name] = values
        value = ScalarValue(matrix.type.element, (matrix.parts[0][number],))
        context.values[apply.value.name] = value
        (result,) = context.walk(context, apply.body.statements)
        if not isinstance(result, ScalarValue):
            raise TypeError("what the region gives is no scalar")
        found.append(result.operand)
    return MatrixValue(apply.type, (tuple(found),))


EMITTERS: Emitters = {
    Cast: emit_cast,
    CoopApply: emit_apply,
    CoopLoad: emit_load,
    CoopStore: emit_store,
    CoopMulAdd: emit_mul_add,
    CoopScale: emit_scale,
    CoopConstruct: emit_construct,
    CoopReduce: emit_reduce,
}
"""What emits each instruction of this kind where matrices lie in fragments."""
