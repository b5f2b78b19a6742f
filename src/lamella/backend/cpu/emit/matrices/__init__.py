"""Cooperative matrices on a processor: columns in vectors, products as fused multiply-adds, AMX tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lamella.backend.cpu.emit import integers, threads
from lamella.backend.cpu.emit.context import EmitContext, Emitters
from lamella.backend.cpu.emit.matrices.access import (
    assemble,
    guard,
    inside,
    load_grid,
    load_lanes,
    load_transposed,
    mask_lanes,
    or_aside,
    part_count,
    put_run,
    restrict,
    run_of,
    run_place,
    shuffle,
    splat,
    store_grid,
    store_lanes,
    store_transposed,
    take_run,
)
from lamella.backend.cpu.emit.matrices.layout import (
    MatrixLayout,
    column_width,
    component,
    find_layout,
    is_grid,
    named_matrix,
    uniform,
    value_count,
    width_of,
)
from lamella.backend.cpu.emit.matrices.multiply import constant_matrix, emit_mul_add, emit_scale
from lamella.backend.cpu.emit.matrices.tiles import emit_tile_loop
from lamella.backend.cpu.emit.memory import add_in_turn, store_in_turn
from lamella.backend.cpu.emit.memory.addresses import (
    VectorAddress,
    each_lane,
    gather,
    part_bytes,
    part_pointers,
    scatter,
    unit,
)
from lamella.backend.cpu.emit.scalars import combine, make_constant
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, ScalarValue, llvm
from lamella.base.diagnostic import Diagnostic
from lamella.base.records import dataclass
from lamella.kernels.rewrite import walk
from lamella.lang.tensor.layout import component_places
from lamella.lang.tensor.nodes import (
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
    Function,
    Instruction,
    Program,
)
from lamella.lang.tensor.rules import running as rules

# --- matrices of which nothing is contiguous, and atomic stores: lane by lane --------------------------------


WORD = 4
LONGEST = 64
"""Lanes from which on a loop is shorter than instructions side by side."""


def load_scattered(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> MatrixValue:
    """Gather each column."""
    width = width_of(type_)
    columns = [
        tuple(
            _scattered_read(context, item, mask)
            for item in _scattered_places(context, type_.element, pointers, width)
        )
        for pointers, mask in _columns(context, place, type_, width)
    ]
    return MatrixValue(type_, tuple(zip(*columns, strict=True)), width)


def store_scattered(context: EmitContext, place: MatrixLayout, matrix: MatrixValue) -> None:
    """Scatter each column."""
    columns = _columns(context, place, matrix.type, matrix.width)
    for parts, (pointers, mask) in zip(zip(*matrix.parts, strict=True), columns, strict=True):
        places = _scattered_places(context, place.element, pointers, matrix.width)
        for vector, item in zip(parts, places, strict=True):
            _write(context, item, vector, mask)


def _scattered_places(context: EmitContext, element: str, pointers: str, width: int) -> list[VectorAddress]:
    """Where the parts of a column are."""
    found = part_pointers(context, element, pointers, width)
    return [VectorAddress(LLVM[element], width, item, part_bytes(element)) for item in found]


def _scattered_read(context: EmitContext, place: VectorAddress, mask: str | None) -> str:
    """Gather a column; in a loop where the target would need code for each lane."""
    if _is_wide(context, place, "avx2"):
        return gather(context, place, mask)
    buffer = context.out.reserve(place.part, place.count)
    context.out.line(f"store {place.kind} zeroinitializer, ptr {buffer}, align 64")
    lanes = ", ".join(f"i64 {lane}" for lane in range(place.count))
    own = context.out.value(f"getelementptr {place.part}, ptr {buffer}, <{place.count} x i64> <{lanes}>")

    def copy(pointers: list[str]) -> None:
        found = context.out.value(f"load {place.part}, ptr {pointers[0]}, align {place.alignment}")
        context.out.line(f"store {place.part} {found}, ptr {pointers[1]}")

    each_lane(context, [("ptr", place.pointer), ("ptr", own)], place.count, mask, copy)
    return context.out.value(f"load {place.kind}, ptr {buffer}, align 64")


def _write(context: EmitContext, place: VectorAddress, vector: str, mask: str | None) -> None:
    """Scatter a column; in a loop where the target would need code for each lane."""
    if _is_wide(context, place, "avx512f"):
        scatter(context, place, vector, mask)
        return

    def put(entries: list[str]) -> None:
        context.out.line(f"store {place.part} {entries[1]}, ptr {entries[0]}, align {place.alignment}")

    each_lane(context, [("ptr", place.pointer), (place.part, vector)], place.count, mask, put)


def _is_wide(context: EmitContext, place: VectorAddress, feature: str) -> bool:
    """Whether an instruction of the target handles the lanes of a vector: never those of less than four bytes."""
    has = f"+{feature}" in context.target.features.split(",")
    return has and place.alignment >= WORD and place.count <= LONGEST


def store_atomically(context: EmitContext, place: MatrixLayout, matrix: MatrixValue, flag: str) -> None:
    """Store or add each component as one update; columns one after the other."""
    width = column_width(matrix.type.rows)
    update = add_in_turn if flag == "atomic_add" else store_in_turn
    columns = _columns(context, place, matrix.type, width)
    for column, (pointers, mask) in enumerate(columns):
        parts = tuple(_column(context, matrix, part, column, width) for part in matrix.parts)
        if width == 1 and mask is not None:
            pointers, mask = or_aside(context, pointers, mask), None
        update(
            context, ScalarValue("ptr", (pointers,), width), ScalarValue(place.element, parts, width), mask
        )


def _column(context: EmitContext, matrix: MatrixValue, part: tuple[str, ...], column: int, width: int) -> str:
    """A part of a column as a vector, also of a matrix that is held as scalars."""
    if matrix.type.use != "matrix_b":
        return part[column]
    rows = matrix.type.rows
    scalars = [*part[column * rows : (column + 1) * rows], *["poison"] * (width - rows)]
    return scalars[0] if width == 1 else assemble(context, matrix.type.element, scalars)


def _columns(
    context: EmitContext, place: MatrixLayout, type_: Coopmatrix, width: int
) -> Iterator[tuple[str, str | None]]:
    """For each column pointers to all its lanes, and which of them may be accessed."""
    lanes = [row if row < type_.rows else -1 for row in range(width)]
    mask = mask_lanes(context, guard(context, place.rows, type_.rows), lanes)
    steps = _steps(context, place, width)
    for column in range(type_.columns):
        condition = inside(context, place.columns, column // place.pack)
        start = component(context, place, 0, column)
        if width > 1:
            start = context.out.value(f"getelementptr {unit(place.element)}, ptr {start}, {steps}")
        yield start, restrict(context, mask, condition, width)


def _steps(context: EmitContext, place: MatrixLayout, width: int) -> str:
    """The distance of each lane from the first of its column."""
    if width == 1:
        return ""
    kind = f"<{width} x i64>"
    listed = ", ".join(f"i64 {row}" for row in range(width))
    step = splat(context, place.rows.step.operand, "index", width)
    return f"{kind} " + context.out.value(f"mul {kind} {step}, <{listed}>")


# --- matrices whose columns are contiguous in memory: a vector for each, or for each pack of them -----------


@dataclass(frozen=True, slots=True)
class ContiguousRun:
    """Contiguous memory of `woven` values interleaved for each row (parts of a number, columns of a pack)."""

    column: int
    """The first column."""
    columns: int
    woven: int
    pointer: str
    mask: str | None


def _runs(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> Iterator[ContiguousRun]:
    woven, width = place.pack * part_count(type_.element), width_of(type_)
    allowed = guard(context, place.rows, type_.rows)
    known: dict[int, str | None] = {}
    for column in range(0, type_.columns, place.pack):
        held = min(place.pack, type_.columns - column)
        if held not in known:
            used = held * part_count(type_.element)
            known[held] = mask_lanes(context, allowed, _lanes(type_.rows, width, woven, used))
        condition = inside(context, place.columns, column // place.pack)
        mask = restrict(context, known[held], condition, width * woven)
        yield ContiguousRun(column, held, woven, component(context, place, 0, column), mask)


def _lanes(rows: int, width: int, woven: int, used: int) -> list[int]:
    """The row of each lane of a run; -1 behind the last row and the last column."""
    return [row if row < rows and slot < used else -1 for row in range(width) for slot in range(woven)]


def load_columns(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> MatrixValue:
    """Load a vector for each column or pack of columns."""
    width, parts = width_of(type_), part_count(type_.element)
    found: list[list[str]] = [[] for _ in range(parts)]
    for run in _runs(context, place, type_):
        held = run_place(type_.element, run.pointer, width * run.woven, place.alignment)
        whole = load_lanes(context, held, run.mask)
        slots = [_unweave(context, type_.element, whole, width, run.woven, slot) for slot in range(run.woven)]
        for part in range(parts):
            found[part] += slots[part : run.columns * parts : parts]
    return MatrixValue(type_, tuple(map(tuple, found)), width)


def _unweave(context: EmitContext, element: str, whole: str, width: int, woven: int, slot: int) -> str:
    if woven == 1:
        return whole
    return shuffle(context, element, (whole,), width * woven, range(slot, width * woven, woven))


def store_columns(context: EmitContext, place: MatrixLayout, matrix: MatrixValue) -> None:
    """Store a vector for each column or pack of columns."""
    type_ = matrix.type
    for run in _runs(context, place, type_):
        columns = range(run.column, run.column + run.columns)
        slots = [part[column] for column in columns for part in matrix.parts]
        slots += ["poison"] * (run.woven - len(slots))
        whole = _weave(context, type_.element, slots, matrix.width)
        count, streamed = matrix.width * run.woven, place.streamed and run.mask is None
        held = run_place(type_.element, run.pointer, count, place.alignment, streamed)
        store_lanes(context, held, whole, run.mask)


def _weave(context: EmitContext, element: str, slots: Sequence[str], width: int) -> str:
    """Vectors lane by lane after one another; a power of two of them."""
    if len(slots) == 1:
        return slots[0]
    half = len(slots) // 2
    pairs = zip(slots[:half], slots[half:], strict=True)
    order = [lane + side * width for lane in range(width) for side in (0, 1)]
    return _weave(
        context, element, [shuffle(context, element, pair, width, order) for pair in pairs], 2 * width
    )


# --- components of cooperative matrices: splats, extract, insert ---------------------------------------------


def emit_construct(context: EmitContext, construct: CoopConstruct) -> MatrixValue:
    """A cooperative matrix with one number everywhere."""
    type_ = construct.type
    if isinstance(context.values[construct.scalar.name], MatrixValue):
        return _repeat(context, type_, named_matrix(context, construct.scalar))
    number, width = uniform(context, context.scalar(construct.scalar.name)), width_of(type_)
    parts = [splat(context, part, type_.element, width) for part in number.parts]
    return MatrixValue(type_, tuple((part,) * value_count(type_) for part in parts), width)


def _repeat(context: EmitContext, type_: Coopmatrix, line: MatrixValue) -> MatrixValue:
    """A matrix whose columns, or rows, are all the same."""
    width = width_of(type_)
    if line.type.rows == type_.rows:
        return MatrixValue(type_, tuple(part * type_.columns for part in line.parts), width)
    parts = [tuple(splat(context, item, type_.element, width) for item in part) for part in line.parts]
    return MatrixValue(type_, tuple(parts), width)


def emit_reduce(context: EmitContext, reduce: CoopReduce) -> MatrixValue:
    """Sums or extremes of columns, or of rows: halves of vectors, or columns one after the other."""
    matrix, element = named_matrix(context, reduce.operand), reduce.type.element
    columns = [
        ScalarValue(element, tuple(part[number] for part in matrix.parts), matrix.width)
        for number in range(matrix.type.columns)
    ]
    if reduce.mode == "row":
        total = columns[0]
        for column in columns[1:]:
            total = combine(context, reduce.function, total, column)
        return MatrixValue(reduce.type, tuple((part,) for part in total.parts), matrix.width)
    found = [_fold_rows(context, reduce.function, column, matrix.type.rows) for column in columns]
    return MatrixValue(reduce.type, tuple(zip(*(item.parts for item in found), strict=True)))


def _fold_rows(context: EmitContext, function: str, column: ScalarValue, rows: int) -> ScalarValue:
    """What the first rows of a column come to; as long as they are even, both halves at once."""
    element, width = column.element, column.count
    while rows > 1 and rows % 2 == 0:
        rows //= 2
        halves = [
            ScalarValue(
                element,
                tuple(
                    shuffle(context, element, (part,), width, range(first, first + rows))
                    for part in column.parts
                ),
                rows,
            )
            for first in (0, rows)
        ]
        column, width = combine(context, function, *halves), rows
    if width == 1:
        return column
    kind = llvm(element, width)
    cells = [
        ScalarValue(
            element,
            tuple(context.out.value(f"extractelement {kind} {part}, i64 {row}") for part in column.parts),
        )
        for row in range(rows)
    ]
    total = cells[0]
    for cell in cells[1:]:
        total = combine(context, function, total, cell)
    return total


def _places(context: EmitContext, matrix: MatrixValue, component: int) -> Sequence[tuple[int, int] | None]:
    """The row and column of a component of each lane."""
    return component_places(matrix.type, context.subgroup_size, component)


def _home(matrix: MatrixValue, place: tuple[int, int]) -> tuple[int, int | None]:
    """Which value of a matrix holds a component, and in which of its lanes; None where it is the value."""
    row, column = place
    if matrix.width > 1:
        return column, row
    return column * matrix.type.rows + row, None


def _read(context: EmitContext, matrix: MatrixValue, part: int, place: tuple[int, int] | None) -> str:
    """A part of a component; behind the last column there is 0."""
    if place is None:
        return make_constant(0, matrix.type.element).parts[part]
    number, lane = _home(matrix, place)
    value = matrix.parts[part][number]
    if lane is None:
        return value
    return context.out.value(f"extractelement {llvm(matrix.type.element, matrix.width)} {value}, i64 {lane}")


def _rows_of_column(
    context: EmitContext, matrix: MatrixValue, places: Sequence[tuple[int, int] | None]
) -> tuple[int, list[int]] | None:
    """The column that all lanes have a component of, and the row of each; None where it is not one vector."""
    held = [place for place in places if place is not None]
    columns = {column for _, column in held}
    if context.threads or matrix.width == 1 or len(held) < max(2, len(places)) or len(columns) > 1:
        return None
    return columns.pop(), [row for row, _ in held]


def emit_extract(context: EmitContext, extract: CoopExtract) -> ScalarValue:
    """A component of each lane."""
    matrix = named_matrix(context, extract.operand)
    places, element = _places(context, matrix, extract.component), matrix.type.element
    whole = _rows_of_column(context, matrix, places)
    if whole is not None:
        vectors = (part[whole[0]] for part in matrix.parts)
        found = tuple(_take_rows(context, element, vector, matrix.width, whole[1]) for vector in vectors)
        return ScalarValue(element, found, len(places))
    cells = [[_read(context, matrix, part, place) for place in places] for part in range(len(matrix.parts))]
    if len(places) == 1:
        return ScalarValue(element, tuple(cell[0] for cell in cells))
    if context.threads:
        return threads.choose_lane(context, element, cells)
    return ScalarValue(element, tuple(assemble(context, element, cell) for cell in cells), len(places))


def _take_rows(context: EmitContext, element: str, vector: str, width: int, rows: Sequence[int]) -> str:
    """Rows of a column, one for each lane; one shuffle, where an instruction for each lane would be LLVM's to find."""
    run = run_of(rows)
    if run is None:
        return shuffle(context, element, (vector,), width, rows)
    return vector if len(run) == width else take_run(context, element, vector, width, run)


def _put_rows(context: EmitContext, matrix: MatrixValue, column: str, given: str, rows: Sequence[int]) -> str:
    """A column in which rows have what the lanes have."""
    element, width = matrix.type.element, matrix.width
    run = run_of(rows)
    if run is not None:
        return given if len(run) == width else put_run(context, element, (column, given), width, run)
    lanes = {row: lane for lane, row in enumerate(rows)}
    wide = shuffle(context, element, (given,), len(rows), [lanes.get(row, -1) for row in range(width)])
    picked = [row + width * (row in lanes) for row in range(width)]
    return shuffle(context, element, (column, wide), width, picked)


def emit_insert(context: EmitContext, insert: CoopInsert) -> MatrixValue:
    """The matrix with a component of each lane replaced."""
    matrix, scalar = named_matrix(context, insert.operand), context.scalar(insert.scalar.name)
    element = matrix.type.element
    parts = [list(part) for part in matrix.parts]
    places = _places(context, matrix, insert.component)
    whole = _rows_of_column(context, matrix, places)
    if whole is not None:
        column, rows = whole
        for part, given in zip(parts, integers.spread(context, scalar).parts, strict=True):
            part[column] = _put_rows(context, matrix, part[column], given, rows)
        return MatrixValue(matrix.type, tuple(map(tuple, parts)), matrix.width)
    for lane, place in enumerate(places):
        if place is None:
            continue
        number, row = _home(matrix, place)
        for part, operand in zip(parts, _of_lane(context, scalar, lane).parts, strict=True):
            part[number] = (
                operand if row is None else _put(context, element, matrix.width, part[number], operand, row)
            )
    return MatrixValue(matrix.type, tuple(map(tuple, parts)), matrix.width)


def _put(context: EmitContext, element: str, width: int, column: str, operand: str, row: int) -> str:
    """A column with another number in one row."""
    return context.out.value(
        f"insertelement {llvm(element, width)} {column}, {LLVM[element]} {operand}, i64 {row}"
    )


def _of_lane(context: EmitContext, scalar: ScalarValue, lane: int) -> ScalarValue:
    """What one lane has."""
    if context.threads:
        return threads.of_lane(context, scalar, lane)
    if scalar.is_uniform:
        return scalar
    wide = integers.spread(context, scalar)
    kind = llvm(wide.element, wide.count)
    parts = [context.out.value(f"extractelement {kind} {part}, i64 {lane}") for part in wide.parts]
    return ScalarValue(wide.element, tuple(parts))


# --- cooperative matrices that no code is written for, because it would be too long to be compiled ----------


MAX_COMPONENTS = 1 << 12
"""Components of a matrix."""
MAX_ROWS = 1 << 9
"""Rows of a matrix: LLVM takes very long vectors apart slowly."""
MAX_VECTORS = 1 << 15
"""Vectors that the instructions of one kernel load, store and compute: each has code of its own."""
LANES = 16
"""Rows of a vector, as they are counted here."""
ACCESSED = 4
"""Components that one instruction of an access handles, at worst."""


def find_long_code(program: Program) -> list[Diagnostic]:
    """Cooperative matrices whose code would be too long; at most one finding for each kernel."""
    return [item for function in program.functions for item in _judge(function)]


def _judge(function: Function) -> Iterator[Diagnostic]:
    known: dict[str, Coopmatrix] = {}
    total = 0
    for statement in walk(function.body):
        type_ = _matrix_of(statement.instruction, known)
        if type_ is None:
            continue
        known.update((item.name, type_) for item in statement.results)
        if type_.rows > MAX_ROWS or type_.rows * type_.columns > MAX_COMPONENTS:
            rows, columns = type_.rows, type_.columns
            yield rules.MATRIX_LIMIT.at(
                statement.span, rows=rows, columns=columns, most=MAX_ROWS, limit=MAX_COMPONENTS
            )
            return
        total += _vectors(statement.instruction, type_, known)
        if total > MAX_VECTORS:
            yield rules.MATRIX_CODE.at(statement.span, name=function.name, count=total, limit=MAX_VECTORS)
            return


def _matrix_of(instruction: Instruction, known: dict[str, Coopmatrix]) -> Coopmatrix | None:
    """The matrix that an instruction makes or stores."""
    if isinstance(instruction, CoopStore):
        return known.get(instruction.value.name)
    found = getattr(instruction, "type", None)
    return found if isinstance(found, Coopmatrix) else None


def _vectors(instruction: Instruction, type_: Coopmatrix, known: dict[str, Coopmatrix]) -> int:
    """How many vectors, or scalars of a matrix_b, an instruction makes; an access moves lanes about as well."""
    count = type_.rows * type_.columns
    if isinstance(instruction, CoopInsert):
        return LANES
    if type_.use == "matrix_b":
        return count
    if isinstance(instruction, CoopLoad | CoopStore):
        return -(-count // ACCESSED)
    depth = 1
    if isinstance(instruction, CoopMulAdd) and instruction.left.name in known:
        depth = known[instruction.left.name].columns
    return -(-type_.rows // LANES) * type_.columns * depth


# --- load and store of cooperative matrices: which way fits how a matrix lies in memory ---------------------


@dataclass(frozen=True, slots=True)
class AccessPath:
    """How a matrix comes from memory and goes there."""

    load: Callable[[EmitContext, MatrixLayout, Coopmatrix], MatrixValue]
    store: Callable[[EmitContext, MatrixLayout, MatrixValue], None]


GRID = AccessPath(load_grid, store_grid)
COLUMNS = AccessPath(load_columns, store_columns)
TRANSPOSED = AccessPath(load_transposed, store_transposed)
SCATTERED = AccessPath(load_scattered, store_scattered)


def emit_coop_load(context: EmitContext, load: CoopLoad) -> MatrixValue:
    """Load a cooperative matrix; what a check leaves out is 0."""
    place = find_layout(context, load)
    return choose_way(place, load.type).load(context, place, load.type)


def emit_coop_store(context: EmitContext, store: CoopStore) -> None:
    """Store a cooperative matrix; what a check leaves out stays as it is."""
    place, matrix = find_layout(context, store), named_matrix(context, store.value)
    if store.flag:
        store_atomically(context, place, matrix, store.flag)
    else:
        choose_way(place, matrix.type).store(context, place, matrix)


def choose_way(place: MatrixLayout, type_: Coopmatrix) -> AccessPath:
    """Scalars, whole columns, columns transposed from rows, or lanes one by one."""
    if is_grid(type_):
        return GRID
    packed = place.pack > 1
    if place.rows.step.constant == place.pack and (not packed or place.within.constant == 1):
        return COLUMNS
    if place.columns.step.constant == 1 and not packed and part_count(type_.element) == 1:
        return TRANSPOSED
    return SCATTERED


EMITTERS: Emitters = {
    CoopLoad: emit_coop_load,
    CoopMulAdd: emit_mul_add,
    CoopScale: emit_scale,
    CoopStore: emit_coop_store,
    CoopConstruct: emit_construct,
    CoopReduce: emit_reduce,
    CoopExtract: emit_extract,
    CoopInsert: emit_insert,
}
"""What emits each instruction of this kind."""


__all__ = [
    "EMITTERS",
    "constant_matrix",
    "emit_construct",
    "emit_coop_load",
    "emit_coop_store",
    "emit_extract",
    "emit_insert",
    "emit_mul_add",
    "emit_scale",
    "emit_tile_loop",
    "find_long_code",
]
