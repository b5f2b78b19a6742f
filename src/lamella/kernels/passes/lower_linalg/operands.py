"""What a matrix product works on: matrices as op() shows them, factors, and the product as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, least
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Blas,
    CoopLoad,
    Coopmatrix,
    Expand,
    IndexOrSize,
    Memref,
    Number,
    Scalar,
    Slice,
    Type,
    Value,
)

WIDER = {"i8": "i32", "bf16": "f32", "f16": "f32"}
"""Types whose products are summed in a wider one."""
CHECKED = {(False, False): "", (True, False): "rows", (False, True): "cols", (True, True): "both"}
"""The word for what an access checks, by rows and columns."""


@dataclass(frozen=True, slots=True)
class RowSpan:
    """So many rows or columns from a position on."""

    begin: IndexOrSize
    size: IndexOrSize


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """A memref of order 2, transposed or not; rows and columns are those of what op() gives."""

    value: Value
    type: Memref
    transposed: bool = False

    @property
    def row_stride(self) -> int | None:
        """Elements from one row to the next."""
        return self.type.stride[1 if self.transposed else 0]

    @property
    def column_stride(self) -> int | None:
        """Elements from one column to the next."""
        return self.type.stride[0 if self.transposed else 1]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return BYTES[self.type.element]

    def extent(self, builder: Builder, mode: int) -> IndexOrSize:
        """The number of rows or of columns."""
        own = 1 - mode if self.transposed else mode
        size = self.type.shape[own]
        return builder.size(self.value, own) if size is None else size

    def view(self, builder: Builder, rows: RowSpan, columns: RowSpan) -> MatrixOperand:
        """A part of the matrix."""
        spans = (columns, rows) if self.transposed else (rows, columns)
        shape = tuple(item.size if isinstance(item.size, int) else None for item in spans)
        if shape == self.type.shape and all(item.begin == 0 for item in spans):
            return self
        type_ = Memref(self.type.element, shape, self.type.stride, self.type.local)
        slices = [Slice(item.begin, item.size) for item in spans]
        return MatrixOperand(builder.subview(self.value, slices, type_), type_, self.transposed)

    def load(
        self,
        builder: Builder,
        position: tuple[IndexOrSize, IndexOrSize],
        type_: Coopmatrix,
        checked: str = "",
    ) -> Value:
        """A cooperative matrix whose first component stands at a row and a column."""
        row, column = (as_value(builder, item) for item in position)
        if self.transposed:
            row, column = column, row
        return builder.value(CoopLoad(self.value, row, column, type_, self.transposed, checked))


@dataclass(frozen=True, slots=True)
class ScalarFactor:
    """alpha or beta: a scalar, with its value where that is known."""

    value: Value
    type: Scalar
    known: Number | None

    def is_known(self, number: int) -> bool:
        """Whether the factor is known to be a number."""
        if self.known is None:
            return False
        return complex(*self.known) == number if isinstance(self.known, tuple) else self.known == number


@dataclass(frozen=True, slots=True)
class GemmOperands:
    """`C := alpha * A * B + beta * C`, and the sizes of it: C has m rows and n columns, A has k columns."""

    alpha: ScalarFactor
    a: MatrixOperand
    b: MatrixOperand
    beta: ScalarFactor
    c: MatrixOperand
    m: IndexOrSize
    n: IndexOrSize
    k: IndexOrSize
    atomic: bool = False
    whole_rows: bool = False
    """Whether the rows are known to fill their tiles."""

    @property
    def wide(self) -> str:
        """The type in which products are summed."""
        return WIDER.get(self.c.type.element, self.c.type.element)


@dataclass(frozen=True, slots=True)
class RegionValues:
    """What is known of the values that a region sees: their types, and the numbers of constants."""

    types: Mapping[str, Type]
    constants: Mapping[str, Number]

    def factor(self, value: Value) -> ScalarFactor:
        """A scalar operand."""
        type_ = self.types[value.name]
        if not isinstance(type_, Scalar):
            raise TypeError(f"%{value.name} is no scalar")
        return ScalarFactor(value, type_, self.constants.get(value.name))

    def memref(self, value: Value) -> Memref:
        """The type of a memref operand."""
        type_ = self.types[value.name]
        if not isinstance(type_, Memref):
            raise TypeError(f"%{value.name} is no memref")
        return type_


def find_product(builder: Builder, blas: Blas, known: RegionValues) -> GemmOperands:
    """The product that `gemm` or `gemv` asks for; a vector is a matrix of one column."""
    alpha, left, right, beta, result = blas.operands
    a = MatrixOperand(left, known.memref(left), blas.transposes[0])
    b = _as_matrix(builder, right, known.memref(right))
    if blas.function == "gemm":
        b = MatrixOperand(right, known.memref(right), blas.transposes[1])
    c = _as_matrix(builder, result, known.memref(result))
    m = _shared(builder, (c, 0), (a, 0))
    n = _shared(builder, (c, 1), (b, 1))
    k = _shared(builder, (a, 1), (b, 0))
    return GemmOperands(known.factor(alpha), a, b, known.factor(beta), c, m, n, k, blas.atomic)


def _shared(
    builder: Builder, left: tuple[MatrixOperand, int], right: tuple[MatrixOperand, int]
) -> IndexOrSize:
    """A size that two operands share; at run time they may disagree, and none is read or written past its end."""
    sizes = [operand.extent(builder, mode) for operand, mode in (left, right)]
    return least(builder, *sizes)


def _as_matrix(builder: Builder, value: Value, type_: Memref) -> MatrixOperand:
    """A vector as a matrix of one column; a matrix as it is."""
    if type_.order == 2:
        return MatrixOperand(value, type_)
    size, stride = type_.shape[0], type_.stride[0]
    column = None if size is None or stride is None else size * stride
    wider = Memref(type_.element, (size, 1), (stride, column), type_.local)
    count = builder.size(value, 0) if size is None else size
    return MatrixOperand(builder.value(Expand(value, 0, (count, 1), wider)), wider)
