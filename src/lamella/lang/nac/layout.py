"""Where things stand in a file: the headers of four versions, the sections, and the fields of instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.lang.nac.nodes import (
    CONTROL_FLOW,
    CONVERGENCE,
    FIRST_REGULAR,
    INPUT,
    NONE,
    OUTPUT,
    V1_5,
    V1_6,
    V1_7,
    V1_8,
)
from lamella.lang.nac.operations import CONSTANT_CODES

MAGIC = b"NAC"
TABLE = 12
"""The byte at which the table of section offsets begins."""
SLOT = 8
"""Bytes of one offset."""
INTERNAL, TRAINS = 0x80, 0x40
"""Bits of the quantisation byte; the second one exists since 1.7."""
UNUSED = ""
"""The slot of a section that was never written."""

_FIRST = ("MMAP", "OPS ", "CMAP", "CNST", "PERM", "DATA", "PROC")


@dataclass(frozen=True, slots=True)
class Container:
    """The header of a version: its version byte, its length and the tags of its slots."""

    version: str
    byte: int
    size: int
    slots: tuple[str, ...]

    @property
    def trains(self) -> bool:
        """Whether there is room for a training graph."""
        return "TRNG" in self.slots

    @property
    def padding(self) -> int:
        """The byte behind the table of offsets."""
        return TABLE + SLOT * len(self.slots)


CONTAINERS: Mapping[str, Container] = MappingProxyType(
    {
        item.version: item
        for item in (
            Container(V1_5, 1, 90, (*_FIRST, UNUSED, "RSRC")),
            Container(V1_6, 1, 88, (*_FIRST, "ORCH", "RSRC")),
            Container(V1_7, 2, 92, (*_FIRST, "ORCH", "TRNG", "RSRC")),
            Container(V1_8, 2, 100, (*_FIRST, "ORCH", "TRNG", "RSRC", "ARRS")),
        )
    }
)
"""The headers by version."""

WRITTEN = ("MMAP", "OPS ", "CMAP", "CNST", "PERM", "DATA", "PROC", "RSRC", "ORCH")
"""The sections of 1.6 in the order in which they are written, which is not that of their slots."""


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """What fields C and D of an instruction consist of.

    C is a prefix and so many `constants`, or nothing at all where that is None; `counted` says that the prefix is
    their number, so that nothing elsewhere says it. `prefixes` are the spellings in use, the first is written.
    """

    constants: int | None = None
    offsets: int = 0
    prefixes: tuple[int, ...] = ()
    counted: bool = False


_EMPTY = FieldLayout()
_ONE = FieldLayout(1, prefixes=(1, 2))
_SYSTEM: Mapping[tuple[int, int], FieldLayout] = MappingProxyType(
    {
        (NONE, 0): _EMPTY,
        (INPUT, 0): _EMPTY,
        **{(INPUT, variant): _ONE for variant in (1, 2, 3, 4, 5)},
        (OUTPUT, 3): FieldLayout(1, 2, (1, 2)),
        (OUTPUT, 4): FieldLayout(None, 1),
    }
)


def fields_of(operation: int, variant: int, signature: str | None, outputs: int) -> FieldLayout | None:
    """The fields of an instruction, or None where nobody knows them.

    `signature` is that of the variant, where there is one; `outputs` is the count in the header.
    """
    if operation >= FIRST_REGULAR:
        if not signature or not variant:
            return _EMPTY
        return FieldLayout(
            0 if any(code in CONSTANT_CODES for code in signature) else None, len(signature), counted=True
        )
    if operation == OUTPUT and variant in (0, 1):
        return FieldLayout(outputs, outputs, (outputs, outputs + 1))
    if operation == CONTROL_FLOW:
        return FieldLayout(2, 1, (3, 2))
    if operation == CONVERGENCE:
        return FieldLayout(0, 1, counted=True)
    return _SYSTEM.get((operation, variant))
