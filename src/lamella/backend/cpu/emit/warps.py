"""Cooperative matrices in the registers of a warp: row i of a matrix_a or matrix_acc in thread i, modulo the size.

So they lie as the components of the language do where the rows are a multiple of the subgroup size. A product reads the
factor on the left from registers of its own thread, and no thread waits for another. A matrix_b is in the registers of
every thread. Any element type, any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import gcd

from lamella.backend.cpu.emit import threads
from lamella.backend.cpu.emit.context import EmitContext, Emitters
from lamella.backend.cpu.emit.integers import dynamic
from lamella.backend.cpu.emit.integers import number as known_integer
from lamella.backend.cpu.emit.matrices import emit_extract, emit_insert, emit_scale
from lamella.backend.cpu.emit.matrices.access import (
    inside,
    join_conditions,
    load_grid,
    load_scalar,
    or_zeros,
    store_grid,
    store_scalar,
)
from lamella.backend.cpu.emit.matrices.layout import (
    MatrixLayout,
    component,
    find_layout,
    move,
    named_matrix,
    uniform,
)
from lamella.backend.cpu.emit.matrices.multiply import WIDER, accumulate
from lamella.backend.cpu.emit.memory import EMITTERS as LOADS
from lamella.backend.cpu.emit.memory import add_in_turn, store_in_turn
from lamella.backend.cpu.emit.memory.addresses import (
    address,
    alias_scope,
    first_pointer,
    part_bytes,
    part_pointers,
)
from lamella.backend.cpu.emit.scalars import combine, convert, emit_cast, identity, make_constant
from lamella.backend.cpu.emit.scalars.lanes import element_of, map_columns
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, MemrefValue, RunValue, ScalarValue
from lamella.lang.tensor.layout import component_place
from lamella.lang.tensor.nodes import (
    Cast,
    Constant,
    CoopApply,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
    Load,
)


def rows_held(context: EmitContext, type_: Coopmatrix) -> int:
    """How many rows of a matrix_a or matrix_acc a thread holds."""
    return -(-type_.rows // context.subgroup_size)


def _value_count(context: EmitContext, type_: Coopmatrix) -> int:
    held = type_.rows if type_.use == "matrix_b" else rows_held(context, type_)
    return held * type_.columns


def _same(context: EmitContext, type_: Coopmatrix, number: ScalarValue) -> MatrixValue:
    return MatrixValue(type_, tuple((part,) * _value_count(context, type_) for part in number.parts))


def constant_matrix(context: EmitContext, constant: Constant) -> MatrixValue:
    """A cooperative matrix with the same number everywhere; it writes nothing."""
    type_ = constant.type
    if not isinstance(type_, Coopmatrix):
        raise TypeError("the constant is no cooperative matrix")
    return _same(context, type_, make_constant(constant.value, type_.element))


def emit_construct(context: EmitContext, construct: CoopConstruct) -> MatrixValue:
    """A cooperative matrix with one number everywhere, or one row or column everywhere."""
    type_ = construct.type
    if not isinstance(context.values[construct.scalar.name], MatrixValue):
        return _same(context, type_, uniform(context, context.scalar(construct.scalar.name)))
    line, held = named_matrix(context, construct.scalar), rows_held(context, type_)
    if line.type.rows == type_.rows:
        return MatrixValue(type_, tuple(part * type_.columns for part in line.parts))
    cells = [
        threads.of_lane(context, _value(context, line, column, type_.element), 0)
        for column in range(type_.columns)
    ]
    parts = zip(*(cell.parts for cell in cells), strict=True)
    return MatrixValue(type_, tuple(tuple(item for item in part for _ in range(held)) for part in parts))


def emit_reduce(context: EmitContext, reduce: CoopReduce) -> MatrixValue:
    """Sums or extremes of rows, which a thread holds, or of columns, for which threads meet."""
    matrix, type_ = named_matrix(context, reduce.operand), reduce.type
    held, columns = rows_held(context, matrix.type), range(matrix.type.columns)
    if reduce.mode == "row":
        found = [
            _join(
                context,
                reduce.function,
                [_value(context, matrix, column * held + step, type_.element) for column in columns],
            )
            for step in range(held)
        ]
    else:
        found = [_reduce_column(context, reduce.function, matrix, column) for column in columns]
    return MatrixValue(type_, tuple(zip(*(item.parts for item in found), strict=True)))


def _reduce_column(context: EmitContext, function: str, matrix: MatrixValue, column: int) -> ScalarValue:
    """What a column comes to, in every thread; threads without a row of it add nothing."""
    size, element = context.subgroup_size, matrix.type.element
    held, cells = rows_held(context, matrix.type), []
    for step in range(held):
        value, rest = _value(context, matrix, column * held + step, element), matrix.type.rows - step * size
        if rest < size:
            own = context.out.value(f"icmp ult i32 {context.lane}, {rest}")
            value = threads.choose(context, own, value, identity(function, element))
        cells.append(value)
    return threads.reduce_lanes(context, function, _join(context, function, cells))


def _join(context: EmitContext, function: str, values: Sequence[ScalarValue]) -> ScalarValue:
    total = values[0]
    for value in values[1:]:
        total = combine(context, function, total, value)
    return total


def emit_apply(context: EmitContext, apply: CoopApply) -> MatrixValue:
    """A matrix each of whose elements a region makes of one and of its row and column; all threads have rows."""
    matrix, found = named_matrix(context, apply.operand), list[str]()
    held, size = rows_held(context, apply.type), context.subgroup_size
    for number in range(len(matrix.parts[0])):
        column, step = divmod(number, held)
        row = context.out.value(f"add i32 {context.lane}, {step * size}")
        context.values[apply.row.name] = dynamic(row, "i32")
        context.values[apply.column.name] = known_integer(column, "i32")
        context.values[apply.value.name] = _value(context, matrix, number, matrix.type.element)
        (result,) = context.walk(context, apply.body.statements)
        if not isinstance(result, ScalarValue):
            raise TypeError("what the region gives is no scalar")
        found.append(result.operand)
    return MatrixValue(apply.type, (tuple(found),))


# --- memory --------------------------------------------------------------------------------------------------


def when(context: EmitContext, condition: str | None, body: Callable[[], None]) -> None:
    """Predicated code: what a thread runs where a condition holds; always where there is none."""
    if condition is None:
        body()
        return
    out = context.out
    then, after = out.label("then"), out.label("after")
    out.branch(condition, then, after)
    out.begin(then)
    body()
    out.jump(after)
    out.begin(after)


def _cells(
    context: EmitContext, place: MatrixLayout, type_: Coopmatrix
) -> Iterator[tuple[int, str, str | None]]:
    """The number of each value that this thread holds, where it lies, and whether it lies inside."""
    out, size, held = context.out, context.subgroup_size, rows_held(context, type_)
    lane = out.value(f"zext i32 {context.lane} to i64")
    for step in range(held):
        row = out.value(f"add i64 {lane}, {step * size}") if step else lane
        exists = None if (step + 1) * size <= type_.rows else out.value(f"icmp ult i64 {row}, {type_.rows}")
        if place.rows.checked:
            index = out.value(f"add i64 {place.rows.start.operand}, {row}")
            own = out.value(f"icmp ult i64 {index}, {place.rows.size.operand}")
            exists = join_conditions(context, exists, own)
        distance = dynamic(out.value(f"mul i64 {row}, {place.rows.step.operand}"))
        moved = replace(place, pointer=move(context, place.element, place.pointer, distance))
        for column in range(type_.columns):
            condition = join_conditions(context, exists, inside(context, place.columns, column // place.pack))
            yield column * held + step, component(context, moved, 0, column), condition


def emit_load(context: EmitContext, load: CoopLoad) -> MatrixValue:
    """Load what this thread holds of a matrix; what a check leaves out is 0."""
    place, type_ = find_layout(context, load), load.type
    if type_.use == "matrix_b":
        return load_grid(context, place, type_)
    found: dict[int, tuple[str, ...]] = {}
    for number, pointer, condition in _cells(context, place, type_):
        kept = pointer if condition is None else or_zeros(context, pointer, condition)
        found[number] = load_scalar(context, type_.element, kept)
    cells = [found[number] for number in sorted(found)]
    return MatrixValue(type_, tuple(zip(*cells, strict=True)))


def emit_store(context: EmitContext, store: CoopStore) -> None:
    """Store what this thread holds of a matrix, when all threads of the subgroup have come so far.

    They wait for each other before, because others may still read what was there, and behind, because they may read it.
    """
    place, matrix = find_layout(context, store), named_matrix(context, store.value)
    threads.warp_barrier(context)
    if matrix.type.use == "matrix_b":
        whole = partial(_store_whole, context, place, matrix, store.flag)
        when(context, threads.is_first_lane(context), whole)
    else:
        for number, pointer, condition in _cells(context, place, matrix.type):
            parts = tuple(part[number] for part in matrix.parts)
            value = ScalarValue(place.element, parts)
            when(context, condition, partial(_store_one, context, pointer, value, store.flag))
    threads.warp_barrier(context)


def _store_one(context: EmitContext, pointer: str, value: ScalarValue, flag: str) -> None:
    if flag:
        update = add_in_turn if flag == "atomic_add" else store_in_turn
        update(context, ScalarValue("ptr", (pointer,)), value)
    else:
        store_scalar(context, value.element, value.parts, pointer)


def _store_whole(context: EmitContext, place: MatrixLayout, matrix: MatrixValue, flag: str) -> None:
    """Store a matrix that every thread holds."""
    if not flag:
        store_grid(context, place, matrix)
        return
    rows = matrix.type.rows
    for number, parts in enumerate(zip(*matrix.parts, strict=True)):
        column, row = divmod(number, rows)
        condition = join_conditions(
            context,
            inside(context, place.rows, row),
            inside(context, place.columns, column // place.pack),
        )
        pointer, value = component(context, place, row, column), ScalarValue(place.element, parts)
        when(context, condition, partial(_store_one, context, pointer, value, flag))


# --- products ------------------------------------------------------------------------------------------------


def emit_mul_add(context: EmitContext, add: CoopMulAdd) -> MatrixValue:
    """A B + C: sums in the accumulation type of C, each in the order of k, rounded once to the result."""
    left, right, added = (named_matrix(context, item) for item in (add.left, add.right, add.accumulator))
    own = WIDER.get(added.type.element, added.type.element)
    held, depth = rows_held(context, added.type), left.type.columns
    sums, rows, cells = (
        [_value(context, item, number, own) for number in range(len(item.parts[0]))]
        for item in (added, left, right)
    )
    for k in range(depth):
        for number, total in enumerate(sums):
            column, step = divmod(number, held)
            sums[number] = accumulate(context, rows[k * held + step], cells[column * depth + k], total)
    found = [convert(context, total, add.type.element) for total in sums]
    return MatrixValue(add.type, tuple(zip(*(item.parts for item in found), strict=True)))


def _value(context: EmitContext, matrix: MatrixValue, number: int, element: str) -> ScalarValue:
    parts = tuple(part[number] for part in matrix.parts)
    return convert(context, ScalarValue(matrix.type.element, parts), element)


# --- loads of single elements --------------------------------------------------------------------------------


UNCHANGED = "!invariant.load !1000000"
"""The number is far behind those of the lines that assembly is printed with."""


def emit_element(context: EmitContext, load: Load) -> RunValue | None:
    """Load an element; of memory that the kernel does not write it may be loaded earlier, past any store.

    A kernel that starts early may not say that memory never changes: the one before it writes while this one waits, and
    what it reads by other ways than the caches that all share would be what was there before.
    """
    memory = context.values[load.operand.name]
    if not isinstance(memory, MemrefValue) or not memory.fixed:
        return LOADS[Load](context, load)
    place = address(context, memory, [context.scalar(item.name) for item in load.indices])
    pointers = part_pointers(context, place.element, first_pointer(context, place))
    kept = UNCHANGED
    if context.early:
        kept = alias_scope(context)
    else:
        context.out.need("!1000000 = !{}")
    part = LLVM[place.element]
    alignment = place.alignment if len(pointers) == 1 else part_bytes(place.element)
    text = "load {part}, ptr {pointer}, align {alignment}, {kept}"
    parts = [
        context.out.value(text.format(part=part, pointer=item, alignment=alignment, kept=kept))
        for item in pointers
    ]
    return ScalarValue(place.element, tuple(parts))


# --- casts ---------------------------------------------------------------------------------------------------


def emit_thread_cast(context: EmitContext, cast: Cast) -> ScalarValue | MatrixValue:
    """A cast; the GPU has an instruction for the one to bf16, where processors need several."""
    value = context.values[cast.operand.name]
    if not isinstance(value, MatrixValue) or not isinstance(cast.type, Coopmatrix):
        return emit_cast(context, cast)
    if value.type.element == "f32" and element_of(cast.type) == "bf16":
        found = map_columns(cast.type, _to_bf16, context, value)
    else:
        found = map_columns(cast.type, partial(convert, element=cast.type.element), context, value)
    if cast.type.use != "matrix_b" or value.type.use == "matrix_b":
        return found
    # Every thread holds all of a matrix_b.
    held, size = rows_held(context, cast.type), context.subgroup_size
    cells = [
        threads.of_lane(
            context, _value(context, found, column * held + row // size, cast.type.element), row % size
        )
        for column in range(cast.type.columns)
        for row in range(cast.type.rows)
    ]
    return MatrixValue(cast.type, tuple(zip(*(cell.parts for cell in cells), strict=True)))


def _to_bf16(context: EmitContext, value: ScalarValue) -> ScalarValue:
    short = context.out.value(f"fptrunc float {value.operand} to bfloat")
    return ScalarValue("bf16", (context.out.value(f"bitcast bfloat {short} to i16"),))


# --- components ----------------------------------------------------------------------------------------------


class _Component:
    """Where a component of all threads lies: `side` rows from a first one on, in some columns.

    Thread p has row `first + p mod side` of column `column + p div side`, which is in the registers of the thread with
    the number of that row, modulo the size of the subgroup; all these rows have the same place there.
    """

    def __init__(self, context: EmitContext, type_: Coopmatrix, component: int) -> None:
        size = context.subgroup_size
        self.side = gcd(type_.rows, size)
        first, self.column = component_place(type_, size, 0, component) or (0, type_.columns)
        self.step, self.base = divmod(first, size)
        self.columns = range(min(size // self.side, type_.columns - self.column))
        self.held = rows_held(context, type_)

    def number(self, offset: int) -> int:
        """Which value of its thread holds a row of a column."""
        return (self.column + offset) * self.held + self.step


def extract_component(context: EmitContext, extract: CoopExtract) -> ScalarValue:
    """A component of each work-item."""
    matrix, out = named_matrix(context, extract.operand), context.out
    if matrix.type.use == "matrix_b":
        return emit_extract(context, extract)
    place = _Component(context, matrix.type, extract.component)
    if place.side == context.subgroup_size:
        return _value(context, matrix, place.number(0), matrix.type.element)
    row = out.value(f"and i32 {context.lane}, {place.side - 1}")
    source = out.value(f"add i32 {row}, {place.base}")
    own = out.value(f"lshr i32 {context.lane}, {place.side.bit_length() - 1}")
    found = make_constant(0, matrix.type.element)
    for offset in place.columns:
        value = _value(context, matrix, place.number(offset), matrix.type.element)
        moved = threads.from_lane(context, value, source)
        found = threads.choose(context, out.value(f"icmp eq i32 {own}, {offset}"), moved, found)
    return found


def insert_component(context: EmitContext, insert: CoopInsert) -> MatrixValue:
    """The matrix with a component of each work-item replaced."""
    matrix, out = named_matrix(context, insert.operand), context.out
    if matrix.type.use == "matrix_b":
        return emit_insert(context, insert)
    scalar = context.scalar(insert.scalar.name)
    place = _Component(context, matrix.type, insert.component)
    row = out.value(f"sub i32 {context.lane}, {place.base}")
    has = out.value(f"icmp ult i32 {row}, {place.side}")
    parts = [list(part) for part in matrix.parts]
    for offset in place.columns:
        number = place.number(offset)
        moved = scalar
        if place.side < context.subgroup_size:
            source = out.value(f"add i32 {row}, {offset * place.side}")
            old = _value(context, matrix, number, matrix.type.element)
            moved = threads.choose(context, has, threads.from_lane(context, scalar, source), old)
        for part, operand in zip(parts, moved.parts, strict=True):
            part[number] = operand
    return replace(matrix, parts=tuple(map(tuple, parts)))


EMITTERS: Emitters = {
    Cast: emit_thread_cast,
    CoopApply: emit_apply,
    Load: emit_element,
    CoopLoad: emit_load,
    CoopStore: emit_store,
    CoopMulAdd: emit_mul_add,
    CoopScale: emit_scale,
    CoopConstruct: emit_construct,
    CoopReduce: emit_reduce,
    CoopExtract: extract_component,
    CoopInsert: insert_component,
}
"""What emits each instruction of this kind where each work-item is a thread."""
