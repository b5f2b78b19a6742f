"""Matrix tiles as the manual of the processor describes them, in Python: code for tiles runs on any machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.backend.cpu.cooperating import Array

BYTE, WORD, POINTER = ctypes.c_int8, ctypes.c_int64, ctypes.c_void_p
KINDS = {
    "ldtilecfg": (POINTER,),
    "tilezero": (BYTE,),
    "tileloadd64": (BYTE, POINTER, WORD),
    "tilestored64": (BYTE, POINTER, WORD),
    "tdpbf16ps": (BYTE, BYTE, BYTE),
    "tdpbssd": (BYTE, BYTE, BYTE),
    "tilerelease": (),
}


class Tiles:
    """Eight tiles; whatever a processor would refuse is kept as a fault."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.content: list[Array] = []
        self.faults: list[str] = []
        self.counts = dict.fromkeys(KINDS, 0)
        self._callbacks = {name: self._guard(name) for name in KINDS}

    def translate(self, text: str) -> str:
        """A module that calls this model where it would use tiles."""
        for name, callback in self._callbacks.items():
            address = ctypes.cast(callback, POINTER).value
            text = text.replace(f"call void @llvm.x86.{name}(", f"call void inttoptr (i64 {address} to ptr)(")
        return text

    def _guard(self, name: str) -> Any:
        run: Callable[..., None] = getattr(self, name)

        def call(*operands: int) -> None:
            self.counts[name] += 1
            try:
                run(*operands)
            except (AssertionError, IndexError, ValueError) as fault:
                self.faults.append(f"{name}{operands}: {fault!r}")

        return ctypes.CFUNCTYPE(None, *KINDS[name])(call)

    def ldtilecfg(self, pointer: int) -> None:
        """Palette 1: bytes of a row from byte 16 on, rows from byte 48 on; all tiles become zero."""
        data = ctypes.string_at(pointer, 64)
        assert data[0] == 1
        assert not any(data[1:16] + data[32:48] + data[56:64])
        widths = np.frombuffer(data, "<u2", 8, 16)
        self.shapes = [(int(rows), int(width)) for rows, width in zip(data[48:56], widths, strict=True)]
        assert all(rows <= 16 and width <= 64 and (rows > 0) == (width > 0) for rows, width in self.shapes)
        self.content = [np.zeros((rows, width), np.uint8) for rows, width in self.shapes]

    def tilezero(self, tile: int) -> None:
        """All bytes 0."""
        self.content[tile][:] = 0

    def tileloadd64(self, tile: int, pointer: int, stride: int) -> None:
        """Rows from memory, so many bytes apart."""
        rows, width = self.shapes[tile]
        for row in range(rows):
            self.content[tile][row] = np.frombuffer(ctypes.string_at(pointer + row * stride, width), np.uint8)

    def tilestored64(self, tile: int, pointer: int, stride: int) -> None:
        """Rows to memory, so many bytes apart."""
        for row, content in enumerate(self.content[tile]):
            ctypes.memmove(pointer + row * stride, content.tobytes(), content.size)

    def tdpbf16ps(self, total: int, left: int, right: int) -> None:
        """Add products of pairs of bf16 to f32."""
        factors = [self.content[item].view(ml_dtypes.bfloat16).astype(np.float32) for item in (left, right)]
        self._multiply(total, factors, np.dtype(np.float32), 2)

    def tdpbssd(self, total: int, left: int, right: int) -> None:
        """Add products of fours of signed bytes to i32."""
        factors = [self.content[item].view(np.int8).astype(np.int32) for item in (left, right)]
        self._multiply(total, factors, np.dtype(np.int32), 4)

    def _multiply(self, total: int, factors: list[Array], kind: np.dtype[np.generic], pack: int) -> None:
        """Row r of the left factor times packs of the right one: element (k, n) is at row k div p, n p + k mod p."""
        left, right = factors
        rows, columns = right.shape[0], right.shape[1] // pack
        whole = right.reshape(rows, columns, pack).transpose(0, 2, 1).reshape(rows * pack, columns)
        sums = self.content[total].view(kind)
        sums += (left @ whole).astype(kind)

    def tilerelease(self) -> None:
        """Nothing is configured any more."""
        self.shapes, self.content = [], []
