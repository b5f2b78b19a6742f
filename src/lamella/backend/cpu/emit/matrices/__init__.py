"""Cooperative matrices: columns in vectors, products as fused multiply-adds, tiles where the processor has them."""

from __future__ import annotations

from lamella.backend.cpu.emit.matrices.access import emit_coop_load, emit_coop_store
from lamella.backend.cpu.emit.matrices.components import emit_construct, emit_extract, emit_insert
from lamella.backend.cpu.emit.matrices.limits import find_long_code
from lamella.backend.cpu.emit.matrices.multiply import constant_matrix, emit_mul_add, emit_scale
from lamella.backend.cpu.emit.matrices.tiles import emit_tile_loop

__all__ = [
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
