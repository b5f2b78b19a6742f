"""Matrices of which nothing is contiguous in memory, and atomic stores: each lane goes its own way."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.matrices.bounds import guard, inside, mask_lanes, or_aside, restrict
from lamella.backend.cpu.emit.matrices.places import Layout, component
from lamella.backend.cpu.emit.matrices.shapes import column_width, width_of
from lamella.backend.cpu.emit.matrices.vectors import assemble, splat
from lamella.backend.cpu.emit.memory.addresses import part_bytes, part_pointers, unit
from lamella.backend.cpu.emit.memory.atomics import add_in_turn, store_in_turn
from lamella.backend.cpu.emit.memory.lanes import each_lane
from lamella.backend.cpu.emit.memory.vectors import Place, gather, scatter
from lamella.backend.cpu.emit.values import LLVM, Lanes, Matrix
from lamella.lang.tensor.nodes import Coopmatrix

WORD = 4
LONGEST = 64
"""Lanes from which on a loop is shorter than instructions side by side."""


def load_scattered(here: Here, place: Layout, type_: Coopmatrix) -> Matrix:
    """Gather each column."""
    width = width_of(type_)
    columns = [
        tuple(_read(here, item, mask) for item in _places(here, type_.element, pointers, width))
        for pointers, mask in _columns(here, place, type_, width)
    ]
    return Matrix(type_, tuple(zip(*columns, strict=True)), width)


def store_scattered(here: Here, place: Layout, matrix: Matrix) -> None:
    """Scatter each column."""
    columns = _columns(here, place, matrix.type, matrix.width)
    for parts, (pointers, mask) in zip(zip(*matrix.parts, strict=True), columns, strict=True):
        places = _places(here, place.element, pointers, matrix.width)
        for vector, item in zip(parts, places, strict=True):
            _write(here, item, vector, mask)


def _places(here: Here, element: str, pointers: str, width: int) -> list[Place]:
    """Where the parts of a column are."""
    found = part_pointers(here, element, pointers, width)
    return [Place(LLVM[element], width, item, part_bytes(element)) for item in found]


def _read(here: Here, place: Place, mask: str | None) -> str:
    """Gather a column; in a loop where the target would need code for each lane."""
    if _is_wide(here, place, "avx2"):
        return gather(here, place, mask)
    buffer = here.out.reserve(place.part, place.count)
    here.out.line(f"store {place.kind} zeroinitializer, ptr {buffer}, align 64")
    lanes = ", ".join(f"i64 {lane}" for lane in range(place.count))
    own = here.out.value(f"getelementptr {place.part}, ptr {buffer}, <{place.count} x i64> <{lanes}>")

    def copy(pointers: list[str]) -> None:
        found = here.out.value(f"load {place.part}, ptr {pointers[0]}, align {place.alignment}")
        here.out.line(f"store {place.part} {found}, ptr {pointers[1]}")

    each_lane(here, [("ptr", place.pointer), ("ptr", own)], place.count, mask, copy)
    return here.out.value(f"load {place.kind}, ptr {buffer}, align 64")


def _write(here: Here, place: Place, vector: str, mask: str | None) -> None:
    """Scatter a column; in a loop where the target would need code for each lane."""
    if _is_wide(here, place, "avx512f"):
        scatter(here, place, vector, mask)
        return

    def put(entries: list[str]) -> None:
        here.out.line(f"store {place.part} {entries[1]}, ptr {entries[0]}, align {place.alignment}")

    each_lane(here, [("ptr", place.pointer), (place.part, vector)], place.count, mask, put)


def _is_wide(here: Here, place: Place, feature: str) -> bool:
    """Whether an instruction of the target handles the lanes of a vector: never those of less than four bytes."""
    has = f"+{feature}" in here.target.features.split(",")
    return has and place.alignment >= WORD and place.count <= LONGEST


def store_atomically(here: Here, place: Layout, matrix: Matrix, flag: str) -> None:
    """Store or add each component as one update; columns one after the other."""
    width = column_width(matrix.type.rows)
    update = add_in_turn if flag == "atomic_add" else store_in_turn
    columns = _columns(here, place, matrix.type, width)
    for column, (pointers, mask) in enumerate(columns):
        parts = tuple(_column(here, matrix, part, column, width) for part in matrix.parts)
        if width == 1 and mask is not None:
            pointers, mask = or_aside(here, pointers, mask), None
        update(here, Lanes("ptr", (pointers,), width), Lanes(place.element, parts, width), mask)


def _column(here: Here, matrix: Matrix, part: tuple[str, ...], column: int, width: int) -> str:
    """A part of a column as a vector, also of a matrix that is held as scalars."""
    if matrix.type.use != "matrix_b":
        return part[column]
    rows = matrix.type.rows
    scalars = [*part[column * rows : (column + 1) * rows], *["poison"] * (width - rows)]
    return scalars[0] if width == 1 else assemble(here, matrix.type.element, scalars)


def _columns(here: Here, place: Layout, type_: Coopmatrix, width: int) -> Iterator[tuple[str, str | None]]:
    """For each column pointers to all its lanes, and which of them may be accessed."""
    lanes = [row if row < type_.rows else -1 for row in range(width)]
    mask = mask_lanes(here, guard(here, place.rows, type_.rows), lanes)
    steps = _steps(here, place, width)
    for column in range(type_.columns):
        condition = inside(here, place.columns, column // place.pack)
        start = component(here, place, 0, column)
        if width > 1:
            start = here.out.value(f"getelementptr {unit(place.element)}, ptr {start}, {steps}")
        yield start, restrict(here, mask, condition, width)


def _steps(here: Here, place: Layout, width: int) -> str:
    """The distance of each lane from the first of its column."""
    if width == 1:
        return ""
    kind = f"<{width} x i64>"
    listed = ", ".join(f"i64 {row}" for row in range(width))
    step = splat(here, place.rows.step.operand, "index", width)
    return f"{kind} " + here.out.value(f"mul {kind} {step}, <{listed}>")
