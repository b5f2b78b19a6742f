"""Kernels that are one GEMM, which a vendor library may compute in their place.

`attributes{native=true}` allows it: the text stays what is computed, and who has no such library runs it.
"""

from __future__ import annotations

from lamella.base.records import dataclass
from lamella.lang.tensor.nodes import Blas, Constant, Dictionary, DictionaryEntry, Function, Memref

NATIVE = "native"
"""The attribute of a kernel that a library may compute."""
ATTRIBUTES = Dictionary((DictionaryEntry(NATIVE, True),))


@dataclass(frozen=True, slots=True)
class Matrix:
    """A parameter that is a matrix whose columns lie in a row: sizes, elements from column to column."""

    place: int
    """Which parameter it is."""
    element: str
    rows: int
    columns: int
    stride: int
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class NativeProduct:
    """C := A B, both factors perhaps transposed."""

    left: Matrix
    right: Matrix
    output: Matrix

    @property
    def depth(self) -> int:
        """The length of the sum."""
        return self.left.rows if self.left.transposed else self.left.columns


def find_native(function: Function) -> NativeProduct | None:
    """The product that a library may compute in the place of a kernel; None where it may not, or it is none."""
    given = function.attributes
    if given is None or given.find(NATIVE) is not True:
        return None
    constants: dict[str, object] = {}
    blas: list[Blas] = []
    for item in function.body.statements:
        if isinstance(item.instruction, Constant):
            constants[item.results[0].name] = item.instruction.value
        elif isinstance(item.instruction, Blas):
            blas.append(item.instruction)
        else:
            return None
    if len(blas) != 1 or blas[0].function != "gemm" or blas[0].atomic:
        return None
    alpha, *sides, beta, output = (item.name for item in blas[0].operands)
    if constants.get(alpha) != 1 or constants.get(beta) != 0:
        return None
    flags = (*blas[0].transposes, False)
    found = [_matrix(function, name, flag) for name, flag in zip((*sides, output), flags, strict=True)]
    left, right, product = found
    return None if left is None or right is None or product is None else NativeProduct(left, right, product)


def _matrix(function: Function, name: str, transposed: bool) -> Matrix | None:
    """A parameter of known sizes as a matrix; None where it is none, or its columns do not lie in a row."""
    for place, item in enumerate(function.parameters):
        type_ = item.type
        if item.value.name != name or not isinstance(type_, Memref) or len(type_.shape) != 2:
            continue
        (rows, columns), (step, stride) = type_.shape, type_.stride
        if rows is None or columns is None or stride is None or step != 1 or stride < rows:
            return None
        return Matrix(place, type_.element, rows, columns, stride, transposed)
    return None
