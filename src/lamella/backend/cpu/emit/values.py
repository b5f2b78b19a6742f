"""What a value of the tensor language is while code is emitted for it."""

from __future__ import annotations

from typing import TypeAlias

from lamella.base.records import dataclass
from lamella.lang.tensor.nodes import Coopmatrix, Group, Memref

LLVM = {
    "bool": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "index": "i64",
    "f8e4m3": "i8",  # bits, as those of bf16; nothing is computed in them
    "f8e5m2": "i8",
    "bf16": "i16",  # bits; arithmetic goes through float
    "f16": "half",
    "f32": "float",
    "f64": "double",
    "c32": "float",  # two parts
    "c64": "double",
    "ptr": "ptr",
}
"""The LLVM type of a part of a scalar."""


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A value of scalar type: one for all lanes of a subgroup (`count` 1), or one per lane.

    `parts` are LLVM operands: one, or the real and the imaginary part of a complex value. An integer of each lane that
    is `base + step * lane` may be kept as that alone, with no parts, until somebody needs the vector
    (`integers.spread`): such an index tells that neighbouring lanes touch neighbouring memory.
    """

    element: str
    parts: tuple[str, ...]
    count: int = 1
    constant: int | float | bool | None = None
    """What is known before the run; of a uniform value that is not complex."""
    base: str | None = None
    step: int = 0
    divisor: int = 1
    """An integer that divides the value (of lane 0 where it is affine)."""

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes have the same value."""
        return self.count == 1

    @property
    def operand(self) -> str:
        """The only part."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class MemrefValue:
    """A memref: element (i, j, …) is at `pointer + (offset + i * strides[0] + …)`, counted in elements.

    The pointer is uniform unless it was loaded from a group by an index that is not.
    """

    type: Memref
    pointer: ScalarValue
    offset: ScalarValue
    sizes: tuple[ScalarValue, ...]
    strides: tuple[ScalarValue, ...]
    alignment: int = 1
    """Bytes that divide the pointer (without the offset)."""
    streamed: bool = False
    """Whether what is written here need not stay in a cache."""
    fixed: bool = False
    """Whether nobody writes to this memory while the kernel runs."""


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A group: pointers in memory, and for each `?` of the memref type an array of numbers in memory."""

    type: Group
    pointers: str
    sizes: tuple[str | None, ...]
    """For each mode the LLVM pointer to the array of its sizes; None where the size is static."""
    strides: tuple[str | None, ...]
    count: ScalarValue
    offset: ScalarValue
    alignment: int = 1
    size_divisors: tuple[int, ...] = ()
    """Integers that divide the sizes of all members, as far as they are promised, from the first mode on."""
    stride_divisors: tuple[int, ...] = ()
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class MatrixValue:
    """A cooperative matrix, held for the whole subgroup.

    A matrix_a or matrix_acc is a vector per column, `width` lanes long (rows, rounded up to what vectors like; lanes
    behind the last row hold anything); a matrix_b is a scalar per element, columns first. `parts[p][n]` is the
    operand of part p (two for complex) of column n, or of element n.
    """

    type: Coopmatrix
    parts: tuple[tuple[str, ...], ...]
    width: int = 1
    number: int | None = None
    """The integer that all components are, where it is a constant."""
    bits: int | None = None
    """How many bits hold every component with its sign, where that is known to be few."""
    words: bool = False
    """Whether its parts are words of two components, as those of a factor of the tensor cores are."""
    codes: tuple[str, ...] = ()
    """Operands whose low 4 bits its components are, or, where it is not known that those are few, shifted up to the
    sign."""


RunValue: TypeAlias = ScalarValue | MemrefValue | GroupValue | MatrixValue


def llvm(element: str, count: int = 1) -> str:
    """The LLVM type of a part of a value."""
    kind = LLVM[element]
    return kind if count == 1 else f"<{count} x {kind}>"
