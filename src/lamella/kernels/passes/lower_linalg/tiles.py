"""How a product is cut: tiles of registers, blocks that stay in a cache, and what is copied together first."""

from __future__ import annotations

from dataclasses import replace

from lamella.base.records import dataclass
from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, least, subtract
from lamella.kernels.passes.lower_linalg.operands import GemmOperands, MatrixOperand, RowSpan, Scaling
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import IndexOrSize, Memref, Value, make_memref
from lamella.lang.tensor.nodes.types import COMPLEX
from lamella.lang.tensor.words import PACKED

DEPTH = 2
"""Columns of A that one step of the inner loop takes."""
STRAIGHT = 4
"""Columns of A that are multiplied without a loop."""
TALLEST = 8
"""Vectors that the rows of a tile may fill."""
LOWEST = 4
"""Vectors that a tile of all rows may fill where columns are many."""
BLOCK_BYTES = 1024
"""Bytes of one column of B in a block, so that the columns of a tile stay in the first cache."""
PACK_BLOCK_BYTES = 4096
"""The same where the target multiplies packs: a tile of them has more columns, of smaller elements."""
UNIT = 16
"""Rows and columns of a matrix of sums where the target multiplies packs."""
PRODUCTS = (("bf16", "f32"), ("i8", "i32"))
"""Elements and sums of products of packs."""
FEWEST_COLUMNS = 8
"""Columns for which copies into packs are worth their time."""
PANELS = 16
"""Tiles of A, one above the other, in a block: together they stay in the second cache."""
PACKED_BYTES = 1 << 20
"""Bytes of tiles of A that are copied together, at most."""
SMALL_BYTES = 32 << 10
"""A matrix of so many bytes stays in the first cache, whatever its layout."""
ALIAS_BYTES = 2 << 10
"""Columns at a multiple of so many bytes fall on the same few lines of the first cache."""
FAR_BYTES = 1 << 20
"""A matrix of more bytes does not stay in the second cache."""
WIDE_BYTES = 16 << 20
"""A part of a matrix that spreads over more bytes does not either."""
STREAMS = 8
"""Columns of a far matrix that are read side by side."""
STREAM_COLUMNS = 24
"""Columns of B up to which a far matrix is read once or twice."""
TAIL_COLUMNS = 4
"""Columns of a tile behind the last whole one where their number is known only at run time."""


@dataclass(frozen=True, slots=True)
class TilePlan:
    """How one product is cut."""

    rows: int
    """Rows of a tile."""
    columns: int
    """Columns of a tile, at most."""
    depth: int
    """Columns of A in one step of the inner loop."""
    block: int | None
    """Columns of A in a block; None where all of them are one block."""
    panels: int = 0
    """Tiles of A, one above the other, in a block of rows; 0 where all of them are one block."""
    pack_a: bool = False
    """Whether the tiles of a block of A are copied together."""
    pack_b: bool = False
    """Whether the columns of B that a tile needs are copied together."""
    pack: int = 1
    """Elements of a row that copies of A keep together, for targets that multiply packs."""
    unit: int | None = None
    """Rows and columns of one matrix of sums, at most; None where a tile is one matrix."""


def plan_product(product: GemmOperands, target: Target) -> TilePlan:
    """Decide how to cut a product."""
    packs = _plan_packs(product, target) if target.amx and _suits_packs(product) else None
    if packs is not None:
        return packs
    lanes = max(1, target.vector_bytes // BYTES[product.wide])
    room = _room(target)
    height = _height(product, lanes, room)
    columns = max(1, room // height)
    rows = min(height * lanes, product.m) if isinstance(product.m, int) else height * lanes
    depth = _depth(product, rows, lanes)
    plan = TilePlan(max(1, rows), columns, depth, _block(product, BLOCK_BYTES))
    plan = replace(plan, panels=_panels(product, plan, target))
    pack_a = plan.panels > 0 and _must_pack_a(product, plan)
    if not pack_a and not _is_large(product, plan):
        plan = replace(plan, panels=0)
    pack_b = _must_pack_b(product, plan) and _fits(product, plan, target)
    return replace(plan, pack_a=pack_a, pack_b=pack_b)


def _suits_packs(product: GemmOperands) -> bool:
    """Whether a product is one of packs, and large enough to fill them."""
    element = product.a.type.element
    if product.b.type.element != element or (element, product.wide) not in PRODUCTS:
        return False
    few = isinstance(product.n, int) and product.n < FEWEST_COLUMNS
    short = isinstance(product.k, int) and product.k < FEWEST_COLUMNS
    return not few and not short


def _plan_packs(product: GemmOperands, target: Target) -> TilePlan | None:
    """How a product of packs is cut; None where its copies have no room."""
    pack = PACKED[product.a.type.element]
    rows = 2 * UNIT if not isinstance(product.m, int) else max(1, min(2 * UNIT, product.m))
    depth, block = UNIT * pack, _block(product, PACK_BLOCK_BYTES)
    plan = TilePlan(rows, 2 * UNIT, depth, block, pack_a=True, pack=pack, unit=UNIT)
    whole = isinstance(product.k, int) and product.k % depth == 0
    pack_b = not whole or product.b.row_stride != 1 or _must_pack_b(product, plan)
    plan = replace(plan, panels=_panels(product, plan, target), pack_b=pack_b)
    return plan if plan.panels and _fits(product, plan, target) else None


def start_panels(element: str, wide: str, target: Target) -> TilePlan:
    """The tiles of products whose A lies in panels already: those of the most rows and columns."""
    pack = PACKED[element] if target.amx and (element, wide) in PRODUCTS else 1
    if pack > 1:
        return TilePlan(2 * UNIT, 2 * UNIT, UNIT * pack, None, PANELS, pack=pack, unit=UNIT)
    lanes = max(1, target.vector_bytes // BYTES[wide])
    return TilePlan(2 * lanes, _room(target) // 2, DEPTH, None, PANELS)


def plan_panels(product: GemmOperands, plan: TilePlan, target: Target) -> TilePlan:
    """Decide how to cut a product into such tiles."""
    block = _block(product, PACK_BLOCK_BYTES if plan.pack > 1 else BLOCK_BYTES)
    plan = replace(plan, block=block)
    whole = isinstance(product.k, int) and product.k % plan.depth == 0
    pack_b = _must_pack_b(product, plan) and _fits(product, plan, target)
    pack_b = pack_b or (plan.pack > 1 and not whole)
    return replace(plan, panels=max(1, _panels(product, plan, target)), pack_b=pack_b)


def split(total: int, largest: int) -> list[tuple[int, int]]:
    """Parts of nearly the same size, none larger than a bound: how many of which size."""
    count = -(-total // largest)
    size, more = divmod(total, max(1, count))
    return [item for item in ((more, size + 1), (count - more, size)) if item[0] and item[1]]


def _room(target: Target) -> int:
    """Registers for sums; the others hold factors."""
    return max(4, 3 * min(target.register_count, 32) // 4)


def _height(product: GemmOperands, lanes: int, room: int) -> int:
    """Vectors in a column of a tile: few columns leave registers for more rows."""
    height = 2
    if isinstance(product.n, int):
        height = _power(min(TALLEST, max(2, room // max(1, product.n))))
    if not isinstance(product.m, int):
        return height
    needed = max(1, -(-product.m // lanes))
    return min(_power(needed), max(LOWEST, height)) if needed <= max(LOWEST, height) else height


def _power(count: int) -> int:
    """The greatest power of two that a count reaches: code generators fill up other numbers of vectors."""
    return 1 << (count.bit_length() - 1)


def _depth(product: GemmOperands, rows: int, lanes: int) -> int:
    """Columns of A in a step: one where nobody knows how many there are, or where rows end inside a vector."""
    if not isinstance(product.k, int) or (rows > lanes and rows % lanes):
        return 1
    return max(1, product.k) if product.k <= STRAIGHT else DEPTH


def _block(product: GemmOperands, block_bytes: int) -> int | None:
    """Blocks are summed in C itself, which must not round more than the sum does, nor be stored twice."""
    if product.wide != product.c.type.element or (product.atomic and not product.beta.is_known(1)):
        return None
    size = max(DEPTH, block_bytes // BYTES[product.wide])
    size = min(size, _streams(product) or size)
    whole = isinstance(product.k, int) and product.k <= size + size // 3
    return None if whole else size


def _streams(product: GemmOperands) -> int | None:
    """Columns of A that are read side by side where it comes from far memory once or a few times; None elsewhere."""
    stride, n, k = product.a.column_stride, product.n, product.k
    if stride is None or not isinstance(n, int) or not isinstance(k, int) or product.a.row_stride != 1:
        return None
    column, size = stride * product.a.element_bytes, _bytes(product.a, product.m, k)
    far = column * k > WIDE_BYTES or (size is not None and size > FAR_BYTES)
    if n >= STREAM_COLUMNS or not far or column < ALIAS_BYTES:
        return None
    return STREAMS if n <= STREAMS or k < 4 * STREAMS else 2 * STREAMS


def _must_pack_a(product: GemmOperands, plan: TilePlan) -> bool:
    """Whether the tiles of A are worth a copy: read often enough, and badly laid out."""
    n, stride = product.n, product.a.column_stride
    if isinstance(n, int) and n <= plan.columns:
        return False
    if product.a.row_stride != 1:
        return True
    if stride == plan.rows == product.m:
        return False
    size = _bytes(product.a, product.m, product.k)
    if size is not None and size <= SMALL_BYTES:
        return False
    if product.a.type.element != product.wide and product.wide not in COMPLEX:
        return not isinstance(n, int) or n >= 4 * plan.columns
    aliased = stride is None or stride * product.a.element_bytes % (2 * ALIAS_BYTES) == 0
    return aliased and (not isinstance(n, int) or n >= 16 * plan.columns)


def _must_pack_b(product: GemmOperands, plan: TilePlan) -> bool:
    """Whether the columns of B are worth a copy: where they fall on the same lines of the cache."""
    if not isinstance(product.n, int):
        return True
    if isinstance(product.m, int) and product.m <= 4 * plan.rows:
        return False
    if plan.pack == 1 and product.b.type.element != product.wide and product.wide not in COMPLEX:
        return True
    stride = product.b.column_stride if product.b.row_stride == 1 else product.b.row_stride
    return stride is None or (product.n > 1 and stride * product.b.element_bytes % ALIAS_BYTES == 0)


def _is_large(product: GemmOperands, plan: TilePlan) -> bool:
    """Whether a block of all rows of A leaves the second cache before its next column of tiles."""
    size = _bytes(product.a, product.m, plan.block or product.k)
    again = not isinstance(product.n, int) or product.n > plan.columns
    return again and (size is None or size > PACKED_BYTES)


def _fits(product: GemmOperands, plan: TilePlan, target: Target) -> bool:
    """Whether a copy of the columns of B has room in local memory."""
    depth = plan.block or product.k
    if not isinstance(depth, int):
        return False
    return (depth + plan.depth) * plan.columns * BYTES[product.wide] <= target.local_bytes // 4


def _bytes(operand: MatrixOperand, rows: IndexOrSize, columns: IndexOrSize) -> int | None:
    if isinstance(rows, int) and isinstance(columns, int):
        return rows * columns * operand.element_bytes
    return None


def _panels(product: GemmOperands, plan: TilePlan, target: Target) -> int:
    """How many tiles of A, one above the other, there is room for in local memory."""
    depth = plan.block or product.k
    if not isinstance(depth, int) or depth == 0:
        return 0
    room = min(PACKED_BYTES, target.local_bytes // 2)
    element = product.wide if plan.pack == 1 else product.a.type.element
    return min(PANELS, room // (depth * plan.rows * BYTES[element]))


# --- the parts of the loops of a product: blocks of the sum, strips of tiles, and where tiles read ----------


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
