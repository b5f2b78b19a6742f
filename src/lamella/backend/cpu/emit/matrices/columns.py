"""Matrices whose columns are contiguous in memory: a vector for each, or for each pack of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.matrices.bounds import (
    guard,
    inside,
    load_lanes,
    mask_lanes,
    restrict,
    run_place,
    store_lanes,
)
from lamella.backend.cpu.emit.matrices.places import Layout, component
from lamella.backend.cpu.emit.matrices.shapes import width_of
from lamella.backend.cpu.emit.matrices.vectors import part_count, shuffle
from lamella.backend.cpu.emit.values import Matrix
from lamella.lang.tensor.nodes import Coopmatrix


@dataclass(frozen=True, slots=True)
class Run:
    """Contiguous memory: `woven` values lie together for each row (parts of a number, columns of a pack)."""

    column: int
    """The first column."""
    columns: int
    woven: int
    pointer: str
    mask: str | None


def _runs(here: Here, place: Layout, type_: Coopmatrix) -> Iterator[Run]:
    woven, width = place.pack * part_count(type_.element), width_of(type_)
    allowed = guard(here, place.rows, type_.rows)
    known: dict[int, str | None] = {}
    for column in range(0, type_.columns, place.pack):
        held = min(place.pack, type_.columns - column)
        if held not in known:
            used = held * part_count(type_.element)
            known[held] = mask_lanes(here, allowed, _lanes(type_.rows, width, woven, used))
        condition = inside(here, place.columns, column // place.pack)
        mask = restrict(here, known[held], condition, width * woven)
        yield Run(column, held, woven, component(here, place, 0, column), mask)


def _lanes(rows: int, width: int, woven: int, used: int) -> list[int]:
    """The row of each lane of a run; -1 behind the last row and the last column."""
    return [row if row < rows and slot < used else -1 for row in range(width) for slot in range(woven)]


def load_columns(here: Here, place: Layout, type_: Coopmatrix) -> Matrix:
    """Load a vector for each column or pack of columns."""
    width, parts = width_of(type_), part_count(type_.element)
    found: list[list[str]] = [[] for _ in range(parts)]
    for run in _runs(here, place, type_):
        held = run_place(type_.element, run.pointer, width * run.woven, place.alignment)
        whole = load_lanes(here, held, run.mask)
        slots = [_unweave(here, type_.element, whole, width, run.woven, slot) for slot in range(run.woven)]
        for part in range(parts):
            found[part] += slots[part : run.columns * parts : parts]
    return Matrix(type_, tuple(map(tuple, found)), width)


def _unweave(here: Here, element: str, whole: str, width: int, woven: int, slot: int) -> str:
    if woven == 1:
        return whole
    return shuffle(here, element, (whole,), width * woven, range(slot, width * woven, woven))


def store_columns(here: Here, place: Layout, matrix: Matrix) -> None:
    """Store a vector for each column or pack of columns."""
    type_ = matrix.type
    for run in _runs(here, place, type_):
        columns = range(run.column, run.column + run.columns)
        slots = [part[column] for column in columns for part in matrix.parts]
        slots += ["poison"] * (run.woven - len(slots))
        whole = _weave(here, type_.element, slots, matrix.width)
        count, streamed = matrix.width * run.woven, place.streamed and run.mask is None
        held = run_place(type_.element, run.pointer, count, place.alignment, streamed)
        store_lanes(here, held, whole, run.mask)


def _weave(here: Here, element: str, slots: Sequence[str], width: int) -> str:
    """Vectors lane by lane after one another; a power of two of them."""
    if len(slots) == 1:
        return slots[0]
    half = len(slots) // 2
    pairs = zip(slots[:half], slots[half:], strict=True)
    order = [lane + side * width for lane in range(width) for side in (0, 1)]
    return _weave(here, element, [shuffle(here, element, pair, width, order) for pair in pairs], 2 * width)
