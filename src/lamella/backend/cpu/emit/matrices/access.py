"""Load and store of cooperative matrices: which way fits how a matrix lies in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.matrices.columns import load_columns, store_columns
from lamella.backend.cpu.emit.matrices.grids import load_grid, store_grid
from lamella.backend.cpu.emit.matrices.places import Layout, find_layout
from lamella.backend.cpu.emit.matrices.scattered import (
    load_scattered,
    store_atomically,
    store_scattered,
)
from lamella.backend.cpu.emit.matrices.shapes import is_grid, named_matrix
from lamella.backend.cpu.emit.matrices.turning import load_turned, store_turned
from lamella.backend.cpu.emit.matrices.vectors import part_count
from lamella.backend.cpu.emit.values import Matrix
from lamella.lang.tensor.nodes import CoopLoad, Coopmatrix, CoopStore


@dataclass(frozen=True, slots=True)
class Way:
    """How a matrix comes from memory and goes there."""

    load: Callable[[Here, Layout, Coopmatrix], Matrix]
    store: Callable[[Here, Layout, Matrix], None]


GRID = Way(load_grid, store_grid)
COLUMNS = Way(load_columns, store_columns)
TURNED = Way(load_turned, store_turned)
SCATTERED = Way(load_scattered, store_scattered)


def emit_coop_load(here: Here, load: CoopLoad) -> Matrix:
    """Load a cooperative matrix; what a check leaves out is 0."""
    place = find_layout(here, load)
    return choose_way(place, load.type).load(here, place, load.type)


def emit_coop_store(here: Here, store: CoopStore) -> None:
    """Store a cooperative matrix; what a check leaves out stays as it is."""
    place, matrix = find_layout(here, store), named_matrix(here, store.value)
    if store.flag:
        store_atomically(here, place, matrix, store.flag)
    else:
        choose_way(place, matrix.type).store(here, place, matrix)


def choose_way(place: Layout, type_: Coopmatrix) -> Way:
    """Scalars, whole columns, columns turned out of rows, or lanes one by one."""
    if is_grid(type_):
        return GRID
    packed = place.pack > 1
    if place.rows.step.constant == place.pack and (not packed or place.within.constant == 1):
        return COLUMNS
    if place.columns.step.constant == 1 and not packed and part_count(type_.element) == 1:
        return TURNED
    return SCATTERED
