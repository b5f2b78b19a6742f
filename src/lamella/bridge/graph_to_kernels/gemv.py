"""GEMV: products of a matrix with a vector, or a few, where a subgroup (warp) goes along the rows together.

Each element of the matrix is read once, so memory bandwidth decides. The work-items of a subgroup read neighbouring
pieces of a row (coalesced, vectorised loads) and reduce their sums at the end (`gemv_writer.py`). A norm before the
vectors is a fused prologue (`gemv_prologue.py`), a gate behind them a fused epilogue (`gemv_gate.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.gemv_prologue import Prologue, find_prologue
from lamella.bridge.graph_to_kernels.k_major import k_major_access
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel
from lamella.bridge.graph_to_kernels.tiled import (
    Key,
    PreparedProduct,
    ProductGroup,
    Roles,
    Tensors,
    find_roles,
    prepare_product,
)
from lamella.kernels.fragments import WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Dictionary, DictionaryEntry, Memref, Scalar

PIECE = 16
"""Bytes of a vectorised load."""
MOST_COLUMNS = 7
"""Vectors above which a product is better tiled."""
UNROLLED = 8
"""Vectorised loads of rows in flight at once, at most."""
FIRST = 16
"""Loads of the first trip of a subgroup: of weights they are prefetched before the dependent wait."""
FULL = 16
"""Subgroups of a multiprocessor (occupancy): the next kernel finds registers for its own, which prefetch weights.

Where there are more rows, a subgroup takes some.
"""
TOGETHER = 4
"""Subgroups of a work-group that share the sums of its rows, at most.

Each reads a part of the vectors for all rows, and they exchange what they have: so a work-group reads vectors once.
"""
MOST_SHARED = 32
"""Sums that a work-item has for all rows of a work-group, at most."""
NEAR = 4096
"""The most bytes of a vector, with its norm, that each subgroup reads whole: its kernel may be a phase of another."""
MOST_SUMS = 4
"""Sums of a subgroup, at most: those of one row with each vector."""
REGISTERS, REGISTER, GRAIN = 1 << 16, 4, 8
"""Registers of a multiprocessor, the bytes of one, and so many are given out at once."""
BESIDE, LEAST_BESIDE = 32, 24
"""Registers that a work-item has beside pieces of the matrix, and those that will do."""


@dataclass(frozen=True, slots=True)
class Gemv:
    """A product of a matrix with a few vectors."""

    found: PreparedProduct
    real: Scalar
    row: str
    columns: tuple[str, ...]
    outer: tuple[str, ...]
    sum: str
    matrix: Access
    matrix_key: Key
    vectors: Access
    vectors_key: Key
    piece: int
    """Elements of a vectorised load."""
    rows: int
    """Rows of a subgroup."""
    packed: bool
    """Whether a kernel of its own packs the matrix K-major."""
    prologue: Prologue | None = None
    """The prologue that makes the vectors, where they are not in memory."""
    together: int = 1
    """Subgroups of a work-group, which share the sums of all its rows."""
    unrolled: int = UNROLLED
    """Vectorised loads of rows in flight at once, at most."""
    registers: int | None = None
    """A register limit, where the next kernel could not start beside this one otherwise."""

    @property
    def column_count(self) -> int:
        """The number of vectors."""
        return prod(self.found.extents[name] for name in self.columns)

    @property
    def parts(self) -> int:
        """Rows of the matrix for each row of the outputs."""
        return self.found.group.parts

    @property
    def matrix_extents(self) -> dict[str, int]:
        """The extents of the loops of the matrix."""
        return {**self.found.extents, self.row: self.found.extents[self.row] * self.parts}

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return prod(self.found.extents[name] for name in self.outer) * -(-self.turns // self.together)

    @property
    def turns(self) -> int:
        """Subgroups that share the rows."""
        return -(-self.found.extents[self.row] // self.rows)


def find_gemv(
    group: ProductGroup,
    tensors: Tensors,
    real: Scalar,
    target: Target,
    constant: frozenset[Key],
    narrow: bool = False,
) -> Gemv:
    """The plan of a GEMV; Unsupported says why there is none.

    With `narrow` vectors that are rounded before the product need not be, where they are not in memory.
    """
    if not target.has_threads:
        raise Unsupported("work-items are lanes")
    found = prepare_product(group, tensors, real)
    if any(map(is_open, found.extents.values())):
        raise Unsupported("its extents are open")
    scaled = {name for item in found.scales for name in item.access.loops()}
    roles, flipped = find_roles(found.outputs, *found.factors, found.extents, scaled)
    inner, extents = roles.sums[-1], found.extents
    columns = prod(extents[name] for name in roles.columns)
    if len(roles.sums) != 1 or inner in scaled or inner not in extents or columns > MOST_COLUMNS:
        raise Unsupported("it is not one sum, or has many columns")
    matrix, vectors = found.factors[flipped], found.factors[not flipped]
    packed = matrix.stride(inner) != 1 and found.keys[flipped] in constant and not roles.batch
    if packed:
        row_extents = {**extents, roles.row: extents[roles.row] * group.parts}
        matrix = k_major_access(matrix, (roles.row, inner), row_extents)
    prologue = find_prologue(found, roles.sums, narrow)
    along = [vectors] if prologue is None else [vectors, *prologue.along_sum(inner)]
    plan = Gemv(
        found, real, roles.row, roles.columns, roles.batch, inner, matrix, found.keys[flipped],
        vectors, found.keys[not flipped], _piece([matrix, *along], inner, extents, PIECE // BYTES[matrix.element]),
        count_rows(group, roles, extents, target), packed, prologue,
    )  # fmt: skip
    read = sum(BYTES[item.element] for item in (along[1:] or along)) * extents[inner]
    if read > NEAR:
        plan = share_rows_across_warps(plan, target, extents[inner] // (plan.piece * WARP))
    if plan.together == 1 and prologue is not None:
        # Each subgroup reads all of a vector: neighbours are to read neighbouring pieces.
        most = PIECE // max(BYTES[item.element] for item in (matrix, *along[1:]))
        plan = replace(plan, piece=_piece([matrix, *along], inner, extents, most))
    return replace(plan, registers=_count_registers(plan, target))


def _count_registers(plan: Gemv, target: Target) -> int | None:
    """A register limit where work-items hold so much of the matrix that the next kernel could not start beside it.

    None where the sum or the rows leave a remainder: its loads are in flight with the rest, at addresses of their own,
    and nobody counts what a limit would spill.
    """
    pieces, left = divmod(plan.found.extents[plan.sum], plan.piece * WARP * plan.together)
    if plan.together == 1 or left or plan.found.extents[plan.row] % (plan.rows * plan.together):
        return None
    held = min(FIRST, pieces * plan.rows * plan.parts * plan.together) * PIECE // REGISTER
    items = -(-plan.groups // max(1, target.multiprocessors)) * plan.together * WARP
    half = -(-REGISTERS // 2 // items // GRAIN) * GRAIN
    bound = max(held + LEAST_BESIDE, half)
    return bound if bound < held + BESIDE else None


def count_rows(group: ProductGroup, roles: Roles, extents: Mapping[str, int], target: Target) -> int:
    """Rows of the outputs that a subgroup takes."""
    columns = prod(extents[name] for name in roles.columns)
    many = prod(extents[name] for name in (*roles.batch, roles.row))
    wanted = -(-many // (FULL * max(1, target.multiprocessors)))
    return max(1, min(wanted, MOST_SUMS // (columns * group.parts), extents[roles.row]))


def share_rows_across_warps(plan: Gemv, target: Target, steps: int) -> Gemv:
    """The plan with several subgroups sharing a row, as long as each multiprocessor keeps a work-group."""
    extents, together = plan.found.extents, TOGETHER
    sums = plan.rows * plan.parts * prod(extents[name] for name in plan.columns)
    while together > 1 and (
        plan.groups // together < target.multiprocessors or steps < together or sums * together > MOST_SHARED
    ):
        together //= 2
    return replace(plan, together=together)


def _piece(factors: Sequence[Access], inner: str, extents: Mapping[str, int], most: int) -> int:
    """Elements of a vectorised load along the sum, aligned in all factors."""
    size = most
    for access in factors:
        *others, last = access.axes
        if last.stride != 1 or last.index != Affine(0, ((inner, 1),)):
            raise Unsupported("a factor does not lie along the sum")
        if any(axis.ring or axis.index.coefficient(inner) for axis in others):
            raise Unsupported("a factor has the sum twice")
        size = gcd(size, last.size, *(axis.stride for axis in others))
    return gcd(size, extents[inner])


def promise_vector_loads(kernel: TileKernel, sides: Sequence[Access], piece: int) -> TileKernel:
    """The kernel with the alignment of its factors promised, so that loads are vectorised."""
    names = {item.memref.name for item in sides}
    parameters = []
    for item in kernel.parameters:
        if item.value.name in names and isinstance(item.type, Memref):
            width = min(PIECE, piece * BYTES[item.type.element])
            promise = Dictionary((DictionaryEntry("alignment", width),))
            item = replace(item, attributes=promise)
        parameters.append(item)
    return replace(kernel, parameters=tuple(parameters))
