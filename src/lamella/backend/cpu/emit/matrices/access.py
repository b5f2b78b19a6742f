"""What a checked access leaves out: masks of lanes, conditions of rows and columns, vectors that mind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import add, multiply, number
from lamella.backend.cpu.emit.matrices.layout import MatrixAxis, MatrixLayout, component, move, width_of
from lamella.backend.cpu.emit.memory.addresses import (
    VectorAddress,
    load_vector,
    part_bytes,
    part_pointers,
    store_vector,
)
from lamella.backend.cpu.emit.scalars.lanes import SUFFIX
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, llvm
from lamella.base.records import dataclass
from lamella.lang.tensor.check.kinds import BYTES, PARTS
from lamella.lang.tensor.nodes import Coopmatrix

# --- moving lanes about in vectors of any length; a vector of one lane is a scalar --------------------------


def part_count(element: str) -> int:
    """How many parts an element has: two where it is complex."""
    return 2 if element in PARTS else 1


def splat(context: EmitContext, operand: str, element: str, count: int) -> str:
    """A vector with the same value in every lane."""
    if count == 1:
        return operand
    if not operand.startswith("%"):
        return f"splat ({LLVM[element]} {operand})"
    return integers.splat(context, operand, element, count)


def shuffle(context: EmitContext, element: str, pair: Sequence[str], count: int, lanes: Sequence[int]) -> str:
    """Lanes picked from one or two vectors of `count` lanes; -1 picks anything."""
    kind = llvm(element, count)
    first, second = (*pair, "poison")[:2]
    if len(lanes) == 1:
        source, place = (first, lanes[0]) if lanes[0] < count else (second, lanes[0] - count)
        return source if count == 1 else context.out.value(f"extractelement {kind} {source}, i64 {place}")
    if count == 1:
        return assemble(context, element, [pair[lane] if lane >= 0 else "poison" for lane in lanes])
    listed = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
    return context.out.value(
        f"shufflevector {kind} {first}, {kind} {second}, <{len(lanes)} x i32> <{listed}>"
    )


def take_run(context: EmitContext, element: str, vector: str, count: int, lanes: range) -> str:
    """Lanes that follow each other from a multiple of their number on; LLVM reads this faster than a shuffle."""
    size = len(lanes)
    names = f"{_mangled(element, size)}.{_mangled(element, count)}"
    operands = f"{llvm(element, count)} {vector}, i64 {lanes.start}"
    return context.out.intrinsic(llvm(element, size), f"llvm.vector.extract.{names}", operands)


def put_run(context: EmitContext, element: str, pair: tuple[str, str], count: int, lanes: range) -> str:
    """The first vector, of `count` lanes, with the second in lanes that follow each other as in `take_run`."""
    whole, size = llvm(element, count), len(lanes)
    names = f"{_mangled(element, count)}.{_mangled(element, size)}"
    operands = f"{whole} {pair[0]}, {llvm(element, size)} {pair[1]}, i64 {lanes.start}"
    return context.out.intrinsic(whole, f"llvm.vector.insert.{names}", operands)


def _mangled(element: str, count: int) -> str:
    """A vector type as names of intrinsic functions have it."""
    return f"v{count}{SUFFIX.get(LLVM[element], LLVM[element])}"


def run_of(rows: Sequence[int]) -> range | None:
    """Rows as a run that begins at a multiple of its length; None where they are none, or a single one."""
    start, size = rows[0], len(rows)
    run = range(start, start + size)
    return run if size > 1 and start % size == 0 and list(rows) == list(run) else None


def assemble(context: EmitContext, element: str, scalars: Sequence[str]) -> str:
    """A vector put together from scalars."""
    kind, found = llvm(element, len(scalars)), "poison"
    for place, scalar in enumerate(scalars):
        if scalar != "poison":
            text = f"insertelement {kind} {found}, {LLVM[element]} {scalar}, i64 {place}"
            found = context.out.value(text)
    return found


def concatenate(context: EmitContext, element: str, vectors: Sequence[str], count: int) -> str:
    """One vector after the other, each of `count` lanes; pairs first, so that registers are filled side by side."""
    if len(vectors) == 1:
        return vectors[0]
    if count == 1:
        return assemble(context, element, vectors)
    if len(vectors) % 2 == 0:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        joined = [shuffle(context, element, pair, count, range(2 * count)) for pair in pairs]
        return concatenate(context, element, joined, 2 * count)
    longer = (len(vectors) - 1) * count
    front = concatenate(context, element, vectors[:-1], count)
    back = shuffle(context, element, vectors[-1:], count, [*range(count), *[-1] * (longer - count)])
    return shuffle(context, element, (front, back), longer, range(longer + count))


LARGEST = 16
"""Bytes of the largest element."""
ASIDE = 64
"""Bytes that divide the places of zeros and of what nobody reads."""


@dataclass(frozen=True, slots=True)
class AxisBounds:
    """The components of an axis that lie inside, from the first up to before the last, as i32 operands."""

    first: str
    last: str


def guard(context: EmitContext, axis: MatrixAxis, count: int) -> AxisBounds | None:
    """Which of the first `count` components lie inside; None where all do or nobody asks."""
    if not _is_open(axis, count):
        return None
    out = context.out
    before = out.value(f"sub i64 0, {axis.start.operand}")
    left = out.value(f"sub i64 {axis.size.operand}, {axis.start.operand}")
    return AxisBounds(_clamped(context, before, count), _clamped(context, left, count))


def _is_open(axis: MatrixAxis, count: int) -> bool:
    start, size = axis.start.constant, axis.size.constant
    known = isinstance(start, int) and isinstance(size, int) and 0 <= start <= size - count
    return axis.checked and not known


def _clamped(context: EmitContext, operand: str, count: int) -> str:
    low = context.out.intrinsic("i64", "llvm.smax.i64", f"i64 {operand}, i64 0")
    both = context.out.intrinsic("i64", "llvm.smin.i64", f"i64 {low}, i64 {count}")
    return context.out.value(f"trunc i64 {both} to i32")


def inside(context: EmitContext, axis: MatrixAxis, index: int) -> str | None:
    """Whether a component of an axis lies inside, as an i1; None where it does or nobody asks."""
    if not _is_open(axis, index + 1):
        return None
    place = add(context, axis.start, number(index))
    return context.out.value(f"icmp ult i64 {place.operand}, {axis.size.operand}")


def mask_lanes(context: EmitContext, allowed: AxisBounds | None, lanes: Sequence[int]) -> str | None:
    """A mask for lanes that hold these components of an axis (-1: none); None where all lanes may be accessed."""
    if allowed is None:
        whole = all(lane >= 0 for lane in lanes)
        known = ", ".join(f"i1 {str(lane >= 0).lower()}" for lane in lanes)
        return None if whole else f"<{known}>"
    count = len(lanes)
    kind = llvm("i32", count)
    held = f"<{', '.join(f'i32 {lane}' for lane in lanes)}>" if count > 1 else str(lanes[0])
    first, last = (splat(context, item, "i32", count) for item in (allowed.first, allowed.last))
    after = context.out.value(f"icmp sge {kind} {held}, {first}")
    before = context.out.value(f"icmp slt {kind} {held}, {last}")
    return context.out.value(f"and {llvm('bool', count)} {after}, {before}")


def restrict(context: EmitContext, mask: str | None, condition: str | None, count: int) -> str | None:
    """The lanes of a mask where a condition holds, else none."""
    if condition is None:
        return mask
    kind = llvm("bool", count)
    return context.out.value(f"select i1 {condition}, {kind} {mask or _all(count)}, {kind} zeroinitializer")


def _all(count: int) -> str:
    return "true" if count == 1 else "splat (i1 true)"


# --- numbers in memory --------------------------------------------------------------------------------------


def run_place(
    element: str, pointer: str, count: int, alignment: int = 1, streamed: bool = False
) -> VectorAddress:
    """Where parts of numbers lie one behind the other; no more is said of alignment than holds for `or_zeros`."""
    bytes_ = min(max(alignment, part_bytes(element)), ASIDE)
    return VectorAddress(LLVM[element], count, pointer, bytes_, streamed)


def load_lanes(context: EmitContext, place: VectorAddress, mask: str | None) -> str:
    """A vector from memory; lanes that a mask leaves out are 0."""
    if mask is not None and place.count == 1:
        place = replace(place, pointer=or_zeros(context, place.pointer, mask))
    return load_vector(context, place, mask)


def store_lanes(context: EmitContext, place: VectorAddress, vector: str, mask: str | None) -> None:
    """A vector into memory; lanes that a mask leaves out stay as they are."""
    if mask is not None and place.count == 1:
        place = replace(place, pointer=or_aside(context, place.pointer, mask))
    store_vector(context, place, vector, mask)


def load_scalar(context: EmitContext, element: str, pointer: str) -> tuple[str, ...]:
    """The parts of one element."""
    pointers = part_pointers(context, element, pointer)
    return tuple(load_lanes(context, run_place(element, item, 1), None) for item in pointers)


def store_scalar(context: EmitContext, element: str, parts: Sequence[str], pointer: str) -> None:
    """The parts of one element into memory."""
    for part, item in zip(parts, part_pointers(context, element, pointer), strict=True):
        store_lanes(context, run_place(element, item, 1), part, None)


def or_zeros(context: EmitContext, pointer: str, condition: str, size: int = LARGEST) -> str:
    """A pointer, or one to so many bytes of zeros where a condition does not hold."""
    name = f"@lamella_zeros_{size}"
    context.out.need(f"{name} = private unnamed_addr constant [{size} x i8] zeroinitializer, align {ASIDE}")
    return context.out.value(f"select i1 {condition}, ptr {pointer}, ptr {name}")


def or_aside(context: EmitContext, pointer: str, condition: str, size: int = LARGEST) -> str:
    """A pointer, or one to so many bytes that nobody reads where a condition does not hold."""
    return context.out.value(f"select i1 {condition}, ptr {pointer}, ptr {context.out.share(size)}")


def join_conditions(context: EmitContext, left: str | None, right: str | None) -> str | None:
    """Whether both hold."""
    if left is None or right is None:
        return right if left is None else left
    return context.out.value(f"and i1 {left}, {right}")


# --- matrices that are held as a scalar for each component --------------------------------------------------


Instead: TypeAlias = Callable[[EmitContext, str, str, int], str]
"""Gives a pointer where a condition holds, else one to so many other bytes."""
LARGEST_COLUMN = 1 << 10
"""Bytes of a column that is replaced as a whole."""


def load_grid(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> MatrixValue:
    """Load component by component; a product spreads each over a vector, which costs no more than the load."""
    cells = [load_scalar(context, type_.element, cell) for cell in _cells(context, place, type_, or_zeros)]
    return MatrixValue(type_, tuple(zip(*cells, strict=True)))


def store_grid(context: EmitContext, place: MatrixLayout, matrix: MatrixValue) -> None:
    """Store component by component."""
    cells = _cells(context, place, matrix.type, or_aside)
    for parts, cell in zip(zip(*matrix.parts, strict=True), cells, strict=True):
        store_scalar(context, place.element, parts, cell)


def _cells(context: EmitContext, place: MatrixLayout, type_: Coopmatrix, instead: Instead) -> Iterator[str]:
    """The pointer to each component, columns first; what a check leaves out is replaced."""
    rows = [inside(context, place.rows, row) for row in range(type_.rows)]
    size = BYTES[place.element]
    whole = _column_bytes(place, type_)
    for column in range(type_.columns):
        start = component(context, place, 0, column)
        condition = inside(context, place.columns, column // place.pack)
        if condition is not None and whole is not None:
            start, condition = instead(context, start, condition, whole), None
        for row, other in enumerate(rows):
            step = multiply(context, place.rows.step, number(row))
            both = join_conditions(context, condition, other)
            pointer = move(context, place.element, start, step)
            yield pointer if both is None else instead(context, pointer, both, size)


def _column_bytes(place: MatrixLayout, type_: Coopmatrix) -> int | None:
    """From the first to the last byte of a column, rounded up to a power of two; None where it is too long."""
    step = place.rows.step.constant
    if not isinstance(step, int) or step < 0:
        return None
    reach = ((type_.rows - 1) * step + 1) * BYTES[place.element]
    return 1 << (reach - 1).bit_length() if reach <= LARGEST_COLUMN else None


# --- transpose: vectors are loaded as memory runs, and transposed in registers -------------------------------


@dataclass(frozen=True, slots=True)
class BlockTranspose:
    """A matrix that is transposed in blocks: `group` rows by a power of two of columns."""

    context: EmitContext
    place: MatrixLayout
    type: Coopmatrix
    width: int
    group: int

    @property
    def element(self) -> str:
        """The element type."""
        return self.type.element

    def swap(self, vectors: Sequence[str]) -> list[str]:
        """Turn square blocks, as many side by side as fit a vector: lane l of vector v becomes lane v of vector l."""
        found, distance = list(vectors), 1
        while distance < len(found):
            found = self._exchange(found, distance)
            distance *= 2
        return found

    def _exchange(self, vectors: list[str], distance: int) -> list[str]:
        lanes = range(self.group)
        low = [lane if not lane & distance else self.group + lane - distance for lane in lanes]
        high = [lane + distance if not lane & distance else self.group + lane for lane in lanes]
        found = list(vectors)
        for index, vector in enumerate(vectors):
            if not index & distance:
                pair = (vector, vectors[index + distance])
                found[index] = shuffle(self.context, self.element, pair, self.group, low)
                found[index + distance] = shuffle(self.context, self.element, pair, self.group, high)
        return found


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """Neighbouring columns, a power of two of them, and which of them may be accessed."""

    first: int
    count: int
    mask: str | None

    def mask_row(self, transpose: BlockTranspose, row: int) -> str | None:
        """Which columns of a row may be accessed."""
        return restrict(
            transpose.context, self.mask, inside(transpose.context, transpose.place.rows, row), self.count
        )


def start_transpose(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> BlockTranspose:
    """Decide on the blocks: as many rows as fit a vector register and divide the column."""
    width = width_of(type_)
    longest = max(1, context.target.vector_bytes // part_bytes(type_.element))
    return BlockTranspose(context, place, type_, width, min(longest, width & -width))


def load_transposed(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> MatrixValue:
    """A matrix whose rows are contiguous in memory."""
    transpose = start_transpose(context, place, type_)
    columns: list[str] = []
    for block in _blocks(transpose):
        groups = [_load_block(transpose, block, row) for row in range(0, transpose.width, transpose.group)]
        columns += [
            concatenate(context, type_.element, [found[index] for found in groups], transpose.group)
            for index in range(block.count)
        ]
    return MatrixValue(type_, (tuple(columns),), transpose.width)


def _blocks(transpose: BlockTranspose) -> Iterator[ColumnBlock]:
    """Columns in powers of two, large ones first."""
    allowed, first = guard(transpose.context, transpose.place.columns, transpose.type.columns), 0
    while first < transpose.type.columns:
        count = min(transpose.group, 1 << ((transpose.type.columns - first).bit_length() - 1))
        yield ColumnBlock(first, count, mask_lanes(transpose.context, allowed, range(first, first + count)))
        first += count


def _load_block(transpose: BlockTranspose, block: ColumnBlock, row: int) -> list[str]:
    """The columns of a block: rows that lie `count` apart share a vector, so that squares are transposed together."""
    if row >= transpose.type.rows:
        return ["poison"] * block.count
    vectors = []
    for offset in range(block.count):
        rows = range(row + offset, row + transpose.group, block.count)
        pieces = [_load_piece(transpose, block, item) for item in rows]
        vectors.append(concatenate(transpose.context, transpose.element, pieces, block.count))
    return transpose.swap(vectors)


def _load_piece(transpose: BlockTranspose, block: ColumnBlock, row: int) -> str:
    if row >= transpose.type.rows:
        return "poison"
    pointer = component(transpose.context, transpose.place, row, block.first)
    place = run_place(transpose.element, pointer, block.count)
    return load_lanes(transpose.context, place, block.mask_row(transpose, row))


def store_transposed(context: EmitContext, place: MatrixLayout, matrix: MatrixValue) -> None:
    """A matrix into memory in which rows are contiguous."""
    transpose = start_transpose(context, place, matrix.type)
    for block in _blocks(transpose):
        columns = matrix.parts[0][block.first : block.first + block.count]
        for row in range(0, matrix.type.rows, transpose.group):
            lanes = range(row, row + transpose.group)
            own = [_slice(transpose, item, transpose.width, lanes) for item in columns]
            for offset, vector in enumerate(transpose.swap(own)):
                _store_pieces(transpose, block, vector, row + offset)


def _store_pieces(transpose: BlockTranspose, block: ColumnBlock, vector: str, first: int) -> None:
    """The rows that share a vector, `count` apart from the first on."""
    end = first - first % transpose.group + transpose.group
    for start, row in enumerate(range(first, min(end, transpose.type.rows), block.count)):
        lanes = range(start * block.count, (start + 1) * block.count)
        piece = _slice(transpose, vector, transpose.group, lanes)
        pointer = component(transpose.context, transpose.place, row, block.first)
        place = run_place(transpose.element, pointer, block.count)
        store_lanes(transpose.context, place, piece, block.mask_row(transpose, row))


def _slice(transpose: BlockTranspose, vector: str, count: int, lanes: range) -> str:
    """Neighbouring lanes of a vector."""
    return (
        vector
        if len(lanes) == count
        else shuffle(transpose.context, transpose.element, (vector,), count, lanes)
    )
