"""Matrix tiles: loops of products that a processor with AMX computes sixteen rows by sixteen columns at a time."""

from __future__ import annotations

from lamella.backend.cpu.emit.matrices.tiles.loops import emit_tile_loop

__all__ = ["emit_tile_loop"]
