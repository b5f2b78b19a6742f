"""Matrix products of a work-group of warps, for tensor cores: each takes tiles of the result in turn."""

from __future__ import annotations

from lamella.base.records import dataclass
from lamella.kernels.build import Builder
from lamella.kernels.fragments import DEPTH, FACTORS, STEADY, SUMS, WARP
from lamella.kernels.passes.lower_linalg.extents import add as add_extents
from lamella.kernels.passes.lower_linalg.extents import as_value, multiply, quotient
from lamella.kernels.passes.lower_linalg.operands import (
    CHECKED,
    AccumulatorPiece,
    GemmOperands,
    Lanes,
    MatrixOperand,
    RegionValues,
    Scaling,
    Storing,
    find_lanes,
    start_scaling,
)
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    Blas,
    Coopmatrix,
    CoopMulAdd,
    IndexOrSize,
    Value,
)

TILES = ((64, 32), (32, 32), (32, 16), (16, 16), (8, 16))
"""Rows and columns of a tile, whose sums are registers of a warp: the largest that leave one for each warp."""
REGISTERS, SHARE = 1 << 16, 4
"""Those of all work-items of a work-group, and the part of them that sums may have."""
LEAST = 8
"""Rows, columns and steps of a sum below which most of a tile would be for nothing."""


def suits_warps(blas: Blas, known: RegionValues, target: Target, lanes: int) -> bool:
    """Whether tensor cores multiply such factors, and no size is known to be less than what they compute at once."""
    left, right, result = (known.memref(blas.operands[place]) for place in (1, 2, 4))
    sizes = [size for item in (left, right, result) for size in item.shape if size is not None]
    return (
        target.tensor_cores
        and lanes == WARP
        and not blas.atomic
        and left.element == right.element
        and left.element in FACTORS
        and result.element in STEADY
        and min(sizes, default=LEAST) >= LEAST
    )


def lower_for_warps(builder: Builder, product: GemmOperands, subgroups: int | None) -> None:
    """Write the tiles of a product, which warps take in turn; what a tile has more than the matrix is 0."""
    rows, columns = _tile(product, subgroups or 1)
    down, across = (
        quotient(builder, add_extents(builder, extent, size - 1), size)
        for extent, size in ((product.m, rows), (product.n, columns))
    )
    scaling = start_scaling(builder, product)
    with builder.parallel() as whole:
        lanes: Lanes = find_lanes(whole)
        end = as_value(whole, multiply(whole, down, across))
        with whole.loop(lanes.subgroup, end, lanes.subgroups) as loop:
            body, number = loop.body, loop.variable
            row, column = (
                body.arith("mul", body.arith(word, number, as_value(body, down)), body.constant(size))
                for word, size in (("rem", rows), ("div", columns))
            )
            _Tile(scaling, rows, columns, row, column).write(body)


def _tile(product: GemmOperands, subgroups: int) -> tuple[int, int]:
    """Rows and columns of a tile."""
    for rows, columns in TILES:
        counts = [
            -(-extent // size) if isinstance(extent, int) else subgroups
            for extent, size in ((product.m, rows), (product.n, columns))
        ]
        if counts[0] * counts[1] >= subgroups and rows * columns * subgroups * SHARE <= REGISTERS:
            return rows, columns
    return TILES[-1]


@dataclass(frozen=True, slots=True)
class _Tile:
    """A tile of the result, and where it begins."""

    scaling: Scaling
    rows: int
    columns: int
    row: Value
    column: Value

    @property
    def product(self) -> GemmOperands:
        """The whole product."""
        return self.scaling.product

    @property
    def sums(self) -> Coopmatrix:
        """The sums of a tile."""
        return Coopmatrix(SUMS, self.rows, self.columns, "matrix_acc")

    def write(self, builder: Builder) -> None:
        """Add up the products, scale them, add what stood there and store the tile."""
        checked = _checked((self.product.m, self.rows), (self.product.n, self.columns))
        piece = AccumulatorPiece(self.row, self.column, self.sums)
        self.scaling.finish(builder, self._multiply(builder), piece, Storing(self.product.c, checked))

    def _multiply(self, builder: Builder) -> Value:
        product, zero = self.product, builder.constant(0.0, self.sums)
        begin, end = builder.constant(0), as_value(builder, product.k)
        step = builder.constant(DEPTH)
        with builder.loop(begin, end, step, [(zero, self.sums)]) as loop:
            body, k = loop.body, loop.variable
            left = self._factor(body, product.a, (self.row, k), (self.rows, DEPTH))
            right = self._factor(body, product.b, (k, self.column), (DEPTH, self.columns))
            body.give(body.value(CoopMulAdd(left, right, loop.carried[0], self.sums)))
        return loop.results[0]

    def _factor(
        self, builder: Builder, matrix: MatrixOperand, place: tuple[Value, Value], size: tuple[int, int]
    ) -> Value:
        product = self.product
        is_left = matrix is product.a
        extents = (product.m, product.k) if is_left else (product.k, product.n)
        checked = _checked((extents[0], size[0]), (extents[1], size[1]))
        use = "matrix_a" if is_left else "matrix_b"
        return matrix.load(builder, place, Coopmatrix(matrix.type.element, *size, use), checked)


def _checked(rows: tuple[IndexOrSize, int], columns: tuple[IndexOrSize, int]) -> str:
    """What an access tests: tiles that need not come out even."""
    return CHECKED[_is_cut(*rows), _is_cut(*columns)]


def _is_cut(extent: IndexOrSize, size: int) -> bool:
    return not isinstance(extent, int) or extent % size != 0


__all__ = ["lower_for_warps", "suits_warps"]
