"""GEMM on the tensor cores of a GPU: tiles of cooperative matrices, shared by the subgroups (warps) of a work-group.

A work-group computes a tile of some rows by 16 columns for each of its subgroups. Both operands are K-major: the sum
lies contiguous. On Hopper such a kernel runs as a pipeline of copies (TMA) and `wgmma` (`emit/pipeline_plan.py`),
elsewhere by `mma.sync`. Batch loops are work-groups of their own. An operand that is not K-major is packed before by a
kernel of its own (`k_major.py`): for a weight once, for windows this is im2col.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from types import MappingProxyType

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis, form_value, matrix_view
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.k_major import (
    CODES,
    DECODED,
    PACKED_COLUMNS,
    grain_of,
    k_major_access,
    write_dequantize,
    write_k_major_pack,
)
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes, promise_pairs
from lamella.bridge.graph_to_kernels.tiled import (
    Epilogue,
    Key,
    PreparedProduct,
    ProductGroup,
    Scale,
    Tensors,
    find_roles,
    prepare_product,
)
from lamella.bridge.graph_to_kernels.tma_operands import flatten_lines
from lamella.kernels.build import Builder
from lamella.kernels.fragments import COLUMNS, DEPTH, FACTORS, SUMS
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Cast,
    CoopApply,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopStore,
    Scalar,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS, INDEX, STORED_FLOATS
from lamella.ops.formula import Apply, Element
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import reachable

STEP = 64
"""Halves along the sum in a pipeline stage."""
FEWEST_COLUMNS = 8
"""Columns below which most of a tile would be empty."""
SWIZZLE_BAND = 16
"""Rasterisation: tiles side by side along the columns before the next rows follow, so that they share the cache."""
TILES = (
    (256, 8, 1.0),
    (192, 8, 0.97),
    (128, 8, 0.9),
    (256, 4, 0.85),
    (128, 4, 0.7),
    (64, 8, 0.7),
    (64, 4, 0.5),
    (32, 4, 0.35),
)
"""Rows of a tile, subgroups with 16 columns each, and how much of the peak a multiprocessor reaches with such tiles."""
LANE = Scalar("i32")
ROW_TILE, COLUMN_TILE, BANDS, PART = "row tile", "column tile", "bands", "part of the sum"
"""Names under which tiles, bands of them and parts of the sum count; no loop of a formula has them."""
CUT = MappingProxyType(
    {(False, False): "", (True, False): "rows", (False, True): "cols", (True, True): "both"}
)
"""Which side of a tile is tested, by whether there are fewer rows, and fewer columns."""


@dataclass(frozen=True, slots=True)
class TensorCoreGemm:
    """A GEMM cut into tiles for tensor cores."""

    found: PreparedProduct
    row: str
    column: str
    sum: str
    outer: tuple[str, ...]
    """The other loops of the output."""
    row_factor: Access
    row_key: Key
    column_factor: Access
    column_key: Key
    rows: int
    """Rows of a tile."""
    subgroups: int
    packing: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The loops along which both operands are packed, the sum last; none for one that is K-major already."""
    rounded: str = ""
    """The type to which packing rounds, where it does."""
    sums: tuple[str, ...] = ()
    """The loops that make up the sum; where there are several, both operands are packed along all of them."""
    decoded: tuple[Scale, ...] | None = None
    """The scales of the rows' codes, where rows are codes, which a kernel of its own dequantises."""
    parts: int = 1
    """Split-K: parts of the sum that are work-groups of their own; the output then holds partial sums."""

    @property
    def packed_rows(self) -> Key:
        """The temporary that holds the packed row operand."""
        return PACKED if self.decoded is None else DECODED

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.subgroups * COLUMNS

    @property
    def tiles(self) -> tuple[int, int]:
        """How many tiles there are along the rows and along the columns."""
        rows, columns = self.spread
        return -(-rows // self.rows), -(-columns // self.columns)

    @property
    def spread(self) -> tuple[int, int]:
        """How many rows and columns there are."""
        return self.found.extents[self.row], self.found.extents[self.column]

    @property
    def many(self) -> int:
        """How many matrices of so many rows and columns."""
        return prod(self.found.extents[name] for name in self.outer)

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return self.parts * self.many * prod(self.tiles)

    @property
    def partial(self) -> tuple[bool, bool]:
        """Whether the last tile has fewer rows, or fewer columns."""
        rows, columns = self.spread
        return bool(rows % self.rows), bool(columns % self.columns)


def find_tensor_core_gemm(
    group: ProductGroup,
    tensors: Tensors,
    real: Scalar,
    target: Target,
    rounds: bool = False,
    decodes: bool = False,
    im2col: bool = False,
) -> TensorCoreGemm:
    """The tiles of a GEMM on tensor cores; Unsupported says why there are none.

    With `rounds` both operands may be rounded to bf16. With `decodes` codes may be dequantised first. With `im2col`
    windows of columns may be packed, so that each element is copied once for every window that has it.
    """
    if not target.tensor_cores or real.name != SUMS:
        raise Unsupported("there are no tensor cores for it")
    found = prepare_product(group, tensors, real)
    elements = {item.element for item in found.factors}
    rounded = FACTORS[0] if rounds and SUMS in elements and elements <= {SUMS, FACTORS[0]} else ""
    alike = elements <= set(STORED_FLOATS) or (len(elements) == 1 and elements <= set(FACTORS))
    coded = decodes and bool(found.scales) and len(elements & set(CODES)) == 1 < len(elements)
    coded = coded and elements - set(CODES) <= {SUMS, FACTORS[0]}
    if not coded and (not (rounded or alike) or found.scales):
        raise Unsupported("its factors are no halves")
    if any(map(is_open, found.extents.values())):
        raise Unsupported("its extents are open")
    scaled = {name for item in found.scales for name in item.access.loops()}
    roles, flipped = find_roles(found.outputs, *found.factors, found.extents, scaled)
    if coded:
        rounded = FACTORS[0]
        if found.factors[flipped].element not in CODES:
            raise Unsupported("its codes are those of its columns")
    if not roles.sums or not roles.columns or not found.extents.keys() >= set(roles.sums):
        raise Unsupported("it is not a sum of rows and columns")
    row, column, inner = roles.row, roles.columns[-1], "/".join(roles.sums)
    found = replace(found, extents={**found.extents, inner: prod(found.extents[name] for name in roles.sums)})
    if prod(found.extents[name] for name in roles.columns) < FEWEST_COLUMNS or found.extents[column] < 4:
        raise Unsupported("it has too few columns")
    outer = (*roles.batch, *roles.columns[:-1])
    row_factor, row_key = found.factors[flipped], found.keys[flipped]
    column_factor = found.factors[not flipped]
    packing = tuple(
        _packing_loops(
            item, (*outer, line), roles.sums, found.extents, rounded not in ("", item.element), often
        )
        for item, line, often in ((row_factor, row, False), (column_factor, column, im2col))
    )
    if packing[0]:
        row_factor = k_major_access(row_factor, packing[0], found.extents, rounded)
    if packing[1]:
        column_factor = k_major_access(column_factor, packing[1], found.extents, rounded)
    sides = flatten_factor(row_factor, row, inner), flatten_factor(column_factor, column, inner)
    many = prod(found.extents[name] for name in outer)
    rows, subgroups = order_tiles((found.extents[row], found.extents[column]), many, target)[0]
    return TensorCoreGemm(
        found, row, column, inner, outer, sides[0], row_key, sides[1], found.keys[not flipped],
        rows, subgroups, (packing[0], packing[1]), rounded, tuple(roles.sums), found.scales if coded else None,
    )  # fmt: skip


def split_bounds(
    builder: Builder, extent: int, parts: int, values: Mapping[str, Value]
) -> tuple[Value, Value]:
    """Split-K: where the part of the sum of a work-group begins and ends."""
    if parts == 1:
        return builder.constant(0), builder.constant(extent)
    length = builder.constant(extent // parts)
    begin = builder.arith("mul", values[PART], length)
    return begin, builder.arith("add", begin, length)


def _packing_loops(
    access: Access,
    kept: Sequence[str],
    sums: Sequence[str],
    extents: Mapping[str, int],
    always: bool,
    often: bool,
) -> tuple[str, ...]:
    """The loops along which an operand is packed K-major, the sum last; none where it is K-major already.

    Unsupported: packing would copy elements more than once (im2col), and that is not wanted.
    """
    inner = "/".join(sums)
    if not always and len(sums) == 1 and access.stride(inner) == 1 and _is_matrix(access, kept[-1], inner):
        return ()
    loops = access.loops()
    lies = len(sums) > 1 or access.stride(inner) == 1
    grows = prod(extents[name] for name in loops) > prod(axis.size for axis in access.axes)
    if lies and grows and not often:
        raise Unsupported("a factor is no matrix")
    return (*(name for name in kept if name in loops), inner)


def _is_matrix(access: Access, line: str, inner: str) -> bool:
    try:
        flatten_factor(access, line, inner)
    except Unsupported:
        return False
    return True


def flatten_factor(access: Access, line: str, inner: str) -> Access:
    """An operand as a K-major matrix: the sum contiguous, all other modes fused into one."""
    *others, last = (axis for axis in access.axes if axis.size > 1 or axis.index.symbols)
    if last.stride != 1 or last.index != Affine(0, ((inner, 1),)) or not others:
        raise Unsupported("a factor does not lie along the sum")
    size, stride, index = 1, others[-1].stride, Affine[str](0)
    for axis in reversed(others):
        if axis.stride != stride * size or axis.index.coefficient(inner) or axis.ring:
            raise Unsupported("a factor is no matrix")
        index = index.plus(axis.index, size)
        size *= axis.size
    if index.coefficient(line) != 1 or stride % grain_of(access.element):
        raise Unsupported("a factor is no matrix that the copy engine reads")
    return replace(access, axes=(Axis(size, stride, index), last))


def order_tiles(extents: tuple[int, int], many: int, target: Target) -> list[tuple[int, int]]:
    """Tile sizes (rows, subgroups), those first with which all multiprocessors are done first."""

    def cost(tile: tuple[int, int, float]) -> float:
        rows, subgroups, reached = tile
        columns = subgroups * COLUMNS
        groups = many * -(-extents[0] // rows) * -(-extents[1] // columns)
        return -(-groups // max(1, target.multiprocessors)) * rows * columns / reached

    return [(rows, subgroups) for rows, subgroups, _ in sorted(TILES, key=cost)]


def write_tensor_core_gemm(plan: TensorCoreGemm, tensors: Tensors) -> list[TileKernel]:
    """The kernels of a GEMM, in the order in which they run."""
    return [*pack_operands(plan), TensorCoreWriter(plan, tensors).write()]


def pack_operands(plan: TensorCoreGemm) -> list[TileKernel]:
    """The kernels that pack operands K-major or dequantise their codes, where the GEMM needs that."""
    found, before = plan.found, list[TileKernel]()
    lines = (plan.row_key, plan.row, plan.packed_rows), (plan.column_key, plan.column, PACKED_COLUMNS)
    for loops, (key, line, own) in zip(plan.packing, lines, strict=True):
        if own == DECODED:
            codes, scales = (key, found.factor(key, line)), plan.decoded or ()
            before.append(write_dequantize(codes, scales, loops, plan.sums, found.extents, plan.rounded))
        elif loops:
            given = found.factor(key, line)
            before.append(
                write_k_major_pack(given, (key, own), loops, found.extents, plan.sums, plan.rounded)
            )
    return before


@dataclass(slots=True)
class TensorCoreWriter:
    """Writes the kernel of a GEMM."""

    plan: TensorCoreGemm
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)
    begun: list[Value] = field(default_factory=list)
    """What sums begin with."""

    def write(self) -> TileKernel:
        """Write it."""
        plan, found = self.plan, self.plan.found
        for item in found.stored:
            for key in item.accesses:
                self.accesses[key] = self.parameters.add(item.keys[key], self._flat(found.accesses[key]))
        rows = self.parameters.add(plan.packed_rows if plan.packing[0] else plan.row_key, plan.row_factor)
        columns = self.parameters.add(
            PACKED_COLUMNS if plan.packing[1] else plan.column_key, plan.column_factor
        )
        builder = self.parameters.builder()
        with builder.parallel() as region:
            values = self._positions(region)
            start, epilogues = self._begin(region, values)
            total = self._sum(region, (rows, columns), values, start)
            for end in epilogues:
                self._finish(region, end, values, total)
        outputs = [self.accesses[id(end.formula.targets[0])].memref for end in found.stored]
        kernel = promise_pairs(self.parameters.close(builder, plan.groups), [*outputs, *self.begun])
        return replace(kernel, attributes=group_sizes(plan.subgroups))

    def _positions(self, builder: Builder) -> dict[str, Value]:
        """Where the tile of a subgroup begins.

        Work-groups go in bands (rasterisation), so that neighbours share rows in the cache: pairs of them have the same
        rows, where columns are even.
        """
        plan = self.plan
        row_tiles, column_tiles = plan.tiles
        band = next(
            size for size in range(min(SWIZZLE_BAND, column_tiles), 0, -1) if column_tiles % size == 0
        )
        sizes = {**plan.found.extents, BANDS: column_tiles // band, ROW_TILE: row_tiles, COLUMN_TILE: band}
        parts = [PART] if plan.parts > 1 else []
        sizes[PART] = plan.parts
        values = delinearize_group(builder, [*parts, *plan.outer, BANDS, ROW_TILE, COLUMN_TILE], sizes)
        first = builder.arith("mul", values[BANDS], builder.constant(band))
        tile = builder.arith("add", first, values[COLUMN_TILE])
        subgroup = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
        own = builder.arith("mul", subgroup, builder.constant(COLUMNS))
        start = builder.arith("mul", tile, builder.constant(plan.columns))
        values[plan.column] = builder.arith("add", start, own)
        values[plan.row] = builder.arith("mul", values[ROW_TILE], builder.constant(plan.rows))
        return values

    def _begin(
        self, builder: Builder, values: Mapping[str, Value]
    ) -> tuple[Value | None, Sequence[Epilogue]]:
        """The initial sums, and the epilogues without them: an addend is loaded while the first stages are copied."""
        plan, (first, *others) = self.plan, self.plan.found.epilogues
        output = self.accesses[id(first.formula.targets[0])]
        added = next(
            (
                item
                for item in _added(first.formula.values[0], plan.found.group.product.targets[0].tensor)
                if (access := self.accesses.get(id(item))) is not None
                and access.element == SUMS == output.element
                and access.axes == output.axes
            ),
            None,
        )
        if others or added is None:
            return None, plan.found.epilogues
        access = self.accesses[id(added)]
        self.begun.append(access.memref)
        type_ = Coopmatrix(SUMS, plan.rows, COLUMNS, "matrix_acc")
        memory, column = self._matrix(builder, access, values)
        load = CoopLoad(memory, values[plan.row], column, type_, False, CUT[plan.partial])
        value = _without(first.formula.values[0], added)
        rest = replace(first, formula=replace(first.formula, values=(value,)))
        return builder.value(load), [rest]

    def _sum(
        self,
        builder: Builder,
        factors: tuple[Access, Access],
        values: Mapping[str, Value],
        start: Value | None,
    ) -> Value:
        plan, (rows, columns) = self.plan, factors
        extent = plan.found.extents[plan.sum]
        sums = Coopmatrix(SUMS, plan.rows, COLUMNS, "matrix_acc")
        places = [form_value(builder, item.axes[0].index, values) for item in (rows, columns)]
        short = bool(extent % (2 * STEP // BYTES[rows.element]))
        partial = [
            "both" if short or cut or item.axes[0].size % size else ""
            for cut, item, size in zip(plan.partial, (rows, columns), (plan.rows, plan.columns), strict=True)
        ]
        first, bounds = (
            start or builder.constant(0.0, sums),
            split_bounds(builder, extent, plan.parts, values),
        )
        with builder.loop(*bounds, builder.constant(DEPTH), carried=[(first, sums)]) as loop:
            body, k = loop.body, loop.variable
            left = Coopmatrix(rows.element, plan.rows, DEPTH, "matrix_a")
            right = Coopmatrix(columns.element, DEPTH, COLUMNS, "matrix_b")
            a = body.value(CoopLoad(rows.memref, k, places[0], left, True, partial[0]))
            b = body.value(CoopLoad(columns.memref, k, places[1], right, False, partial[1]))
            body.give(body.value(CoopMulAdd(a, b, loop.carried[0], sums)))
        return loop.results[0]

    def _finish(self, builder: Builder, end: Epilogue, values: Mapping[str, Value], total: Value) -> None:
        """The epilogue: compute an output from the sums, and store it in each of its types."""
        plan, type_ = self.plan, Coopmatrix(SUMS, self.plan.rows, COLUMNS, "matrix_acc")
        if end.formula.values[0] is not end.formula.targets[0]:
            total = self._apply(builder, end, values, total)
        for item in (end, *plan.found.copies_of(end)):
            access = self.accesses[id(item.formula.targets[0])]
            verify_output(access)
            stored = total
            if access.element != SUMS:
                stored = builder.value(Cast(total, replace(type_, element=access.element)))
            memory, column = self._matrix(builder, access, values)
            builder.put(CoopStore(stored, memory, values[plan.row], column, CUT[plan.partial]))

    def _flat(self, access: Access) -> Access:
        """An output as one matrix, where the columns of all outer loops follow each other: TMA can store it."""
        plan = self.plan
        if plan.partial[1] or not (plan.outer or plan.parts > 1):
            return access
        try:
            found = flatten_lines(access, plan.column, plan.row)
        except Unsupported:
            return access
        return found if found.axes[1].index == Affine(0, ((plan.row, 1),)) else access

    def _matrix(self, builder: Builder, access: Access, values: Mapping[str, Value]) -> tuple[Value, Value]:
        """Rows and columns of a tensor that lies as an output does, and the first column of the tile."""
        plan = self.plan
        *columns, rows = access.axes
        is_row = rows.index == Affine(0, ((plan.row, 1),))
        if is_row and len(columns) == 1 and columns[0].index.coefficient(plan.column) == 1:
            return access.memref, form_value(builder, columns[0].index, values)
        zero = builder.constant(0)
        spans = [(name, plan.found.extents[name]) for name in (plan.row, plan.column)]
        whole = {**values, plan.row: zero, plan.column: zero}
        view = matrix_view(builder, access, spans, whole)
        if view.transposed:
            raise Unsupported("rows do not lie closest in its output")
        return view.value, values[plan.column]

    def _apply(self, builder: Builder, end: Epilogue, values: Mapping[str, Value], total: Value) -> Value:
        plan, found = self.plan, self.plan.found
        row, place, value = (builder.names.new() for _ in range(3))
        inner, here = builder.inner(), dict(values)
        for name, step, cut in zip((plan.row, plan.column), (row, place), plan.partial, strict=True):
            here[name] = inner.arith("add", values[name], inner.cast(step, INDEX))
            if cut:
                # What lies behind the last row or column is computed from the last one, and never stored.
                here[name] = inner.arith("min", here[name], inner.constant(found.extents[name] - 1))
        writing = EpilogueWriter(Scalar(SUMS), self.tensors, end.extents, [inner])
        writing.accesses, writing.loops = self.accesses, here
        inner.give(writing.epilogue_value(end, found.group.product.targets[0].tensor, value))
        type_ = Coopmatrix(SUMS, plan.rows, COLUMNS, "matrix_acc")
        return builder.value(CoopApply(row, place, value, total, type_, inner.region()))


def verify_output(access: Access) -> None:
    """Refuse an output that sums of reals cannot be stored in."""
    if access.element not in FLOATS:
        raise Unsupported("its output is no real")


def _added(term: Term, total: str) -> Iterator[Element]:
    """The addends of a sum that come before anything else of the epilogue, once each."""
    terms = list(reachable(term))
    readers: dict[int, list[Apply]] = {}
    for item in (one for one in terms if isinstance(one, Apply)):
        for operand in item.operands:
            readers.setdefault(id(operand), []).append(item)
    sums = [item for item in terms if isinstance(item, Element) and item.tensor == total]
    here: Term = sums[0]
    while len(sums) == 1 and len(readers.get(id(here), ())) == 1:
        (reader,) = readers[id(here)]
        if reader.function != "+":
            return
        here = reader
        for operand in reader.operands:
            if isinstance(operand, Element) and operand.tensor != total and len(readers[id(operand)]) == 1:
                yield operand


def _without(term: Term, added: Element) -> Term:
    """A term without one of its addends."""
    if not isinstance(term, Apply):
        return term
    if term.function == "+" and any(item is added for item in term.operands):
        rest = tuple(item for item in term.operands if item is not added)
        return rest[0] if len(rest) == 1 else replace(term, operands=rest)
    return replace(term, operands=tuple(_without(item, added) for item in term.operands))
