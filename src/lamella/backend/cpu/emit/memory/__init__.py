"""Memory: addresses, loads, stores, atomic updates, views, groups, and the parameters of a kernel."""

from __future__ import annotations

from lamella.backend.cpu.emit.memory.addresses import (
    Address,
    address,
    alignment_of,
    element_pointer,
    lane_pointers,
)
from lamella.backend.cpu.emit.memory.atomics import add_in_turn, store_in_turn
from lamella.backend.cpu.emit.memory.loads import emit_load, load_element
from lamella.backend.cpu.emit.memory.parameters import load_parameter
from lamella.backend.cpu.emit.memory.stores import emit_store, emit_update, store_element
from lamella.backend.cpu.emit.memory.vectors import Place, gather, load_vector, scatter, shuffle, store_vector
from lamella.backend.cpu.emit.memory.views import (
    emit_expand,
    emit_fuse,
    emit_size,
    emit_subview,
    make_local,
    memory_of,
)

__all__ = [
    "Address",
    "Place",
    "add_in_turn",
    "address",
    "alignment_of",
    "element_pointer",
    "emit_expand",
    "emit_fuse",
    "emit_load",
    "emit_size",
    "emit_store",
    "emit_subview",
    "emit_update",
    "gather",
    "lane_pointers",
    "load_element",
    "load_parameter",
    "load_vector",
    "make_local",
    "memory_of",
    "scatter",
    "shuffle",
    "store_element",
    "store_in_turn",
    "store_vector",
]
