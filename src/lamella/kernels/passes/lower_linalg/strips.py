"""The parts of the loops of a product: blocks of the sum, strips of tiles, and where tiles read from."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, least, subtract
from lamella.kernels.passes.lower_linalg.operands import GemmOperands, MatrixOperand, RowSpan
from lamella.kernels.passes.lower_linalg.scaling import Scaling
from lamella.kernels.passes.lower_linalg.tiles import TilePlan
from lamella.lang.tensor.nodes import IndexOrSize, Memref, Value, make_memref
from lamella.lang.tensor.nodes.types import COMPLEX


@dataclass(frozen=True, slots=True)
class DepthBlock:
    """A block of the sum: so many columns of A and rows of B."""

    begin: IndexOrSize
    depth: IndexOrSize
    scaling: Scaling

    @property
    def span(self) -> RowSpan:
        """The columns of A and rows of B."""
        return RowSpan(self.begin, self.depth)


@dataclass(frozen=True, slots=True)
class Strip:
    """Rows or columns that are cut into tiles of one size; in a ragged strip the last tile may cover less."""

    begin: IndexOrSize
    end: IndexOrSize
    size: int
    ragged: bool = False

    def span(self, builder: Builder, position: IndexOrSize) -> RowSpan:
        """What a tile at a position covers."""
        if not self.ragged:
            return RowSpan(position, self.size)
        return RowSpan(position, least(builder, self.size, subtract(builder, self.end, position)))

    def is_full(self, builder: Builder, span: RowSpan) -> Value:
        """Whether a tile covers its whole size, at run time."""
        return builder.compare("eq", as_value(builder, span.size), builder.constant(self.size))


@dataclass(frozen=True, slots=True)
class Buffers:
    """Where panels of A and columns of B are read from; None where the matrices themselves are."""

    panels: Value | None
    """A panel is some rows of A, one column behind the other; the last mode counts panels."""
    panel_type: Memref
    b: MatrixOperand | None
    ready: bool = False
    """Whether the panels hold all of A from the beginning."""

    @property
    def are_filled(self) -> bool:
        """Whether something is copied on the way."""
        return self.b is not None or (self.panels is not None and not self.ready)


def make_buffers(builder: Builder, product: GemmOperands, plan: TilePlan) -> Buffers:
    """Local memory for the copies that a plan asks for."""
    depth = plan.block or product.k
    if not isinstance(depth, int):
        return Buffers(None, product.a.type, None)
    whole = -(-depth // plan.depth) * plan.depth if plan.pack > 1 else depth
    panels, type_ = None, product.a.type
    if plan.pack_a:
        shape: tuple[int, ...] = (plan.rows, whole // plan.pack, plan.panels)
        if plan.pack > 1:
            shape = (plan.pack, *shape)
        type_ = make_memref(_copied(product.a.type.element, product, plan), shape, None, True)
        panels = builder.alloca(type_)
    columns = make_columns(builder, product, plan, whole) if plan.pack_b else None
    return Buffers(panels, type_, columns)


def make_columns(builder: Builder, product: GemmOperands, plan: TilePlan, depth: int) -> MatrixOperand:
    """Memory for some columns of B, in the direction in which they lie now unless the sums want one."""
    flat = product.b.row_stride != 1 and product.b.column_stride == 1 and plan.pack == 1
    shape = (plan.columns, depth) if flat else (depth, plan.columns)
    type_ = make_memref(_copied(product.b.type.element, product, plan), shape, None, True)
    return MatrixOperand(builder.alloca(type_), type_, flat)


def _copied(element: str, product: GemmOperands, plan: TilePlan) -> str:
    """A copy is made in the type of the sums, but for packs and for a real factor of a complex sum."""
    return element if product.wide in COMPLEX or plan.pack > 1 else product.wide
