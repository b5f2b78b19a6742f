"""Arrays as pictures: PNG, written with what Python brings."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from lamella.backend.mep.faults import fault
from lamella.backend.mep.values import words_for
from lamella.base.arrays import Array

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _COLOUR = 0, 2
_MOST = 1 << 31
_PLAIN, _COLOURED, _BATCHED = 2, 3, 4
"""Axes of a picture without colours, with colours, and of a batch of pictures."""


def encode_png(array: Array) -> bytes:
    """An array as the bytes of a PNG file: rows and columns, grey or with 3 colours first or last.

    Integers are levels from 0 to 255, reals from 0 to 1; what lies outside is cut off.
    """
    pixels = _pixels(array)
    height, width, colours = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, _GREY if colours == 1 else _COLOUR, 0, 0, 0)
    rows = np.zeros((height, 1 + width * colours), np.uint8)
    rows[:, 1:] = pixels.reshape(height, width * colours)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _pixels(array: Array) -> Array:
    """Rows, columns and colours as bytes."""
    placed: Array = array[0] if array.ndim == _BATCHED and array.shape[0] == 1 else array
    if placed.ndim == _PLAIN:
        placed = placed.reshape(*placed.shape, 1)
    elif placed.ndim == _COLOURED and placed.shape[-1] not in (1, 3):
        placed = placed.transpose(1, 2, 0)
    if placed.ndim != _COLOURED or placed.shape[-1] not in (1, 3) or not 0 < placed.size < _MOST:
        raise fault(
            f"cannot make a picture of {words_for(array)}", "give rows and columns, with 1 or 3 colours"
        )
    return _levels(placed)


def _levels(placed: Array) -> Array:
    if placed.dtype.kind == "f":
        placed = np.rint(np.nan_to_num(placed.astype(np.float64)) * 255.0)
    return np.clip(placed.astype(np.float64), 0, 255).astype(np.uint8)
