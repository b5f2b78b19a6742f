"""Grouped GEMM of a mixture of experts (MoE): each row names its matrix, and rows lie in the order of the experts.

`y[r, j] += x[r, i] * w[expert[r], j, i]`. Where rows are many, a kernel cuts the rows of each expert into tiles and
writes a table of them on the device: expert, first row, end. A work-group takes a tile of the
table, computes like any GEMM on tensor cores (`tensor_core_gemm.py`) with the matrix of that expert, and stores no row
behind the end. Rows out of order are a fault, and the operation then runs without the table. Few rows are a GEMV each
(`gemv.py`) with the matrix that they name; no other matrix is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis, matrix_view
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.gemv import Gemv, find_gemv
from lamella.bridge.graph_to_kernels.gemv_writer import GemvWriter
from lamella.bridge.graph_to_kernels.k_major import PACKED_COLUMNS, k_major_access
from lamella.bridge.graph_to_kernels.tensor_core_gemm import (
    BANDS,
    COLUMN_TILE,
    LANE,
    ROW_TILE,
    TILES,
    TensorCoreGemm,
    TensorCoreWriter,
    find_tensor_core_gemm,
    flatten_factor,
    pack_operands,
)
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import (
    Parameters,
    TileKernel,
    group_sizes,
    promise_pairs,
    tell_fault,
)
from lamella.bridge.graph_to_kernels.tiled import Key, ProductGroup, Tensors, key_of
from lamella.kernels.build import Builder
from lamella.kernels.fragments import COLUMNS
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Memref, Scalar, Slice, Value
from lamella.lang.tensor.nodes.types import BOOL, INDEX, make_memref
from lamella.ops.formula import Apply, Contraction, Element, Index
from lamella.ops.formula import Scalar as Term

EXPERT_BAND = 4
"""Tiles of rows side by side before the next rows of the matrices follow: those of one expert share its matrix."""
FEWEST_ROWS = 8
"""Rows below which a product never is one of tiles."""
MOST_VECTORS = 16
"""Rows above which it never is one of vectors: more of them would read a matrix twice."""
TABLE: Key = (f"{PACKED[0]}_tiles", None)
"""The temporary that holds the table."""
EXPERT, FIRST, END = FIELDS = ("expert", "first", "end")
"""What the table tells of a tile."""
NUMBER = Scalar("i32")
SUBGROUPS = 32
"""Subgroups that look at the experts."""


@dataclass(frozen=True, slots=True)
class ExpertOperand:
    """The operand of a product that each row picks, and the tensor of experts that picks it."""

    product: Contraction
    """The product with the first matrix for everyone."""
    batched: Contraction
    """The product with a matrix for each row."""
    matrices: Element
    experts: Element
    loop: str
    """The loop over the rows."""
    count: int
    """How many matrices there are."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return next(
            item.extent
            for item in self.product.loops
            if item.index == self.loop and isinstance(item.extent, int)
        )


def find_expert_operand(product: Contraction, tensors: Tensors) -> ExpertOperand:
    """The operand that is picked by an integer for each row; Unsupported where there is none."""
    value = product.values[0]
    if not isinstance(value, Apply) or value.function != "*" or product.condition is not None:
        raise Unsupported("it is no plain sum")
    found = [item for item in value.operands if isinstance(item, Element) and _expert_index(item) is not None]
    if len(found) != 1 or not all(isinstance(item, Element) for item in value.operands):
        raise Unsupported("no factor belongs to experts of rows")
    (matrices,) = found
    experts = _expert_index(matrices)
    held = tensors.get(key_of(matrices))
    if experts is None or held is None or held.lies.halo[0] != (0, 0):
        raise Unsupported("no factor belongs to experts of rows")
    (row,) = experts.indices
    if not isinstance(row, Index) or max(held.lies.strides) != held.lies.strides[0]:
        raise Unsupported("experts are not those of single rows")
    first, own = (_with_expert(product, matrices, item) for item in (0, row))
    return ExpertOperand(first, own, matrices, experts, row.name, held.shape[0])


def _expert_index(element: Element) -> Element | None:
    first = element.indices[0] if element.indices else None
    plain = isinstance(first, Element) and first.type == "int" and len(first.indices) == 1
    return first if plain and isinstance(first, Element) else None


def _with_expert(product: Contraction, matrices: Element, expert: Term) -> Contraction:
    value = product.values[0]
    if not isinstance(value, Apply):
        return product
    other = replace(matrices, indices=(expert, *matrices.indices[1:]))
    operands = tuple(other if item is matrices else item for item in value.operands)
    return replace(product, values=(replace(value, operands=operands),))


# --- tiles of rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupedGemm(TensorCoreGemm):
    """A grouped GEMM, cut into the tiles of the table."""

    experts: Key = ("", None)
    loop: str = ""
    count: int = 0

    @property
    def bands(self) -> int:
        """Bands of tiles of rows."""
        many = most_tiles(self.found.extents[self.column], self.columns, self.count)
        return -(-many // EXPERT_BAND)

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles of the matrices' rows, and of the table."""
        return -(-self.found.extents[self.row] // self.rows), self.bands * EXPERT_BAND

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return prod(self.tiles)

    @property
    def partial(self) -> tuple[bool, bool]:
        """Any tile may end with the rows of its expert."""
        return bool(self.found.extents[self.row] % self.rows), True


def write_grouped_gemm(
    group: ProductGroup, tensors: Tensors, real: Scalar, target: Target
) -> list[TileKernel]:
    """The kernels of a grouped GEMM; Unsupported where there are none."""
    if not target.has_threads:
        raise Unsupported("work-items are lanes")
    operand = find_expert_operand(group.product, tensors)
    if operand.rows <= min(MOST_VECTORS, max(operand.count, FEWEST_ROWS - 1)):
        return [_write_vectors(group, operand, tensors, real, target)]
    plan = _find_tiles(group, operand, tensors, real, target)
    table = write_table(
        tensors[plan.experts], plan.experts, plan.columns, plan.count, plan.bands * EXPERT_BAND
    )
    return [table, *pack_operands(plan), GroupedGemmWriter(plan, tensors, tiles=plan).write()]


def _find_tiles(
    group: ProductGroup, operand: ExpertOperand, tensors: Tensors, real: Scalar, target: Target
) -> GroupedGemm:
    core = find_tensor_core_gemm(replace(group, product=operand.product), tensors, real, target)
    extents = {**core.found.extents, EXPERT: operand.count}
    if core.row_key != key_of(operand.matrices) or core.column != operand.loop or core.outer or core.decoded:
        raise Unsupported("rows of experts are not its columns")
    side = core.found.keys.index(core.row_key)
    matrices = _expert_as_index(
        core.found.factors[side], tensors[core.row_key].lies.strides[0], operand.count, ()
    )
    factors = [*core.found.factors]
    factors[side] = matrices
    found = replace(core.found, factors=(factors[0], factors[1]), extents=extents)
    packing = (EXPERT, *core.packing[0]) if core.packing[0] else ()
    if packing:
        matrices = k_major_access(matrices, packing, extents, core.rounded)
    rows, subgroups = _choose_tile((extents[core.row], operand.rows), operand.count, target)
    return GroupedGemm(
        found, core.row, core.column, core.sum, (), flatten_factor(matrices, core.row, core.sum), core.row_key,
        core.column_factor, core.column_key, rows, subgroups, (packing, core.packing[1]), core.rounded, core.sums, None,
        experts=key_of(operand.experts), loop=operand.loop, count=operand.count,
    )  # fmt: skip


def _expert_as_index(access: Access, stride: int, count: int, named: Sequence[str]) -> Access:
    """The matrices with the expert as an index of its own."""
    first, *others = access.axes
    if first.stride != stride or first.size != count or {*first.index.symbols} - {*named}:
        raise Unsupported("matrices do not lie one behind the other")
    return replace(access, axes=(Axis(count, stride, Affine(0, ((EXPERT, 1),))), *others))


def _choose_tile(extents: tuple[int, int], experts: int, target: Target) -> tuple[int, int]:
    """The tile size (rows, subgroups) that is done first, where half a tile of each expert is empty."""

    def cost(tile: tuple[int, int, float]) -> float:
        rows, subgroups, reached = tile
        columns = subgroups * COLUMNS
        tiles = extents[1] / columns + min(experts, extents[1]) / 2
        groups = max(1, round(tiles * -(-extents[0] // rows)))
        return -(-groups // max(1, target.multiprocessors)) * rows * columns / reached

    rows, subgroups, _ = min(TILES, key=cost)
    return rows, subgroups


@dataclass(slots=True)
class GroupedGemmWriter(TensorCoreWriter):
    """Writes the kernel of a grouped GEMM."""

    tiles: GroupedGemm = field(kw_only=True)

    def write(self) -> TileKernel:
        """Write it."""
        plan, found = self.tiles, self.tiles.found
        for item in found.epilogues:
            for key in item.accesses:
                self.accesses[key] = self.parameters.add(item.keys[key], found.accesses[key])
        rows = self.parameters.add(plan.packed_rows if plan.packing[0] else plan.row_key, plan.row_factor)
        columns = self.parameters.add(
            PACKED_COLUMNS if plan.packing[1] else plan.column_key, plan.column_factor
        )
        table = self.parameters.add(TABLE, table_access(plan.bands * EXPERT_BAND))
        builder = self.parameters.builder()
        with builder.parallel() as region:
            values = self._places(region, table.memref)
            used = region.compare("lt", values[FIRST], values[END])
            with region.condition(used) as inner:
                total = self._sum(inner, (rows, columns), values, None)
                for end in found.epilogues:
                    self._finish(inner, end, values, total)
        outputs = [self.accesses[id(end.formula.targets[0])].memref for end in found.epilogues]
        kernel = promise_pairs(self.parameters.close(builder, plan.groups), outputs)
        return replace(kernel, attributes=group_sizes(plan.subgroups))

    def _places(self, builder: Builder, table: Value) -> dict[str, Value]:
        """Where the tile of a subgroup begins, and where the rows of its expert end."""
        plan = self.tiles
        sizes = {BANDS: plan.bands, ROW_TILE: plan.tiles[0], COLUMN_TILE: EXPERT_BAND}
        values = delinearize_group(builder, [BANDS, ROW_TILE, COLUMN_TILE], sizes)
        first = builder.arith("mul", values[BANDS], builder.constant(EXPERT_BAND))
        tile = builder.arith("add", first, values[COLUMN_TILE])
        rows = plan.found.extents[plan.column]
        for name, most in ((EXPERT, plan.count - 1), (FIRST, rows), (END, rows)):
            # The numbers of the table are inside; that they are can be seen only so.
            number = builder.load(table, [builder.constant(FIELDS.index(name)), tile], Scalar("i32"))
            inside = builder.arith("max", builder.cast(number, INDEX), builder.constant(0))
            values[name] = builder.arith("min", inside, builder.constant(most))
        subgroup = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
        own = builder.arith("mul", subgroup, builder.constant(COLUMNS))
        values[plan.column] = builder.arith("add", values[FIRST], own)
        values[plan.row] = builder.arith("mul", values[ROW_TILE], builder.constant(plan.rows))
        return values

    def _matrix(self, builder: Builder, access: Access, values: Mapping[str, Value]) -> tuple[Value, Value]:
        """An output up to where the rows of the expert end."""
        plan, zero = self.plan, builder.constant(0)
        spans = [(name, plan.found.extents[name]) for name in (plan.row, plan.column)]
        view = matrix_view(builder, access, spans, {**values, plan.row: zero, plan.column: zero})
        if view.transposed:
            raise Unsupported("rows do not lie closest in its output")
        stride = next(axis.stride for axis in access.axes if axis.index.coefficient(plan.column))
        type_ = Memref(access.element, (plan.found.extents[plan.row], None), (1, stride))
        slices = [Slice(0, plan.found.extents[plan.row]), Slice(0, values[END])]
        return builder.subview(view.value, slices, type_), values[plan.column]


# --- a few rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupedGemv(Gemv):
    """A few rows, each a GEMV with the matrix of its expert."""

    experts: Key = ("", None)
    loop: str = ""
    count: int = 0


def _write_vectors(
    group: ProductGroup, operand: ExpertOperand, tensors: Tensors, real: Scalar, target: Target
) -> TileKernel:
    key = key_of(operand.matrices)
    held = tensors[key]
    # A matrix for each row, so that rows are no columns of one product: there need not be so many.
    pretended = replace(held, shape=(max(operand.count, operand.rows), *held.shape[1:]))
    batched = replace(group, product=operand.batched)
    plan = find_gemv(batched, {**tensors, key: pretended}, real, target, frozenset())
    if plan.matrix_key != key or plan.outer not in ((), (operand.loop,)) or plan.columns:
        raise Unsupported("rows of experts are not those of its vectors")
    first, *others = plan.matrix.axes
    matrix = replace(plan.matrix, axes=(replace(first, size=operand.count), *others))
    matrix = _expert_as_index(matrix, held.lies.strides[0], operand.count, (operand.loop,))
    fields = {name: getattr(plan, name) for name in Gemv.__dataclass_fields__}
    grouped = GroupedGemv(
        **{**fields, "matrix": matrix},
        experts=key_of(operand.experts),
        loop=operand.loop,
        count=operand.count,
    )
    return GroupedGemvWriter(grouped, tensors).write()


@dataclass(slots=True)
class GroupedGemvWriter(GemvWriter):
    """Writes the kernel of a few rows."""

    experts: Access | None = None

    def add_scales(self) -> None:
        """Experts are read with the rows."""
        plan = self.grouped
        self.experts = self.parameters.add(
            plan.experts, experts_access(self.tensors[plan.experts], plan.loop)
        )

    @property
    def grouped(self) -> GroupedGemv:
        """The plan."""
        if not isinstance(self.plan, GroupedGemv):
            raise Unsupported("its rows name no expert")
        return self.plan

    def _places(self, builder: Builder, values: Mapping[str, Value]) -> list[dict[str, Value]]:
        plan, row = self.grouped, values.get(self.grouped.loop, builder.constant(0))
        if self.experts is None:
            raise Unsupported("its rows name no expert")
        expert = load_expert(builder, self.experts, row, plan.count)
        return GemvWriter._places(self, builder, {**values, plan.loop: row, EXPERT: expert})

    def promise(self, kernel: TileKernel, sides: Sequence[Access]) -> TileKernel:
        """The kernel, which may find rows without an expert."""
        return replace(GemvWriter.promise(self, kernel, sides), faults=True)


# --- the table of tiles ----------------------------------------------------------------------------------------


def most_tiles(rows: int, size: int, experts: int) -> int:
    """An upper bound of the tiles of a size: each expert may leave one that is not full."""
    return rows // size + min(rows, experts)


def table_access(tiles: int) -> Access:
    """A table of so many tiles, the fields of each together."""
    axes = Axis(tiles, len(FIELDS), Affine(0)), Axis(len(FIELDS), 1, Affine(0))
    return Access(Value(""), NUMBER.name, axes)


def experts_access(held: TensorView, loop: str) -> Access:
    """The expert of each row."""
    axis = Axis(held.shape[0], held.lies.strides[0], Affine(0, ((loop, 1),)))
    return Access(Value(""), stored_type(held.element), (axis,))


def load_expert(builder: Builder, experts: Access, row: Value, count: int) -> Value:
    """The expert of a row, clamped; one that does not exist is a fault."""
    found = builder.cast(builder.load(experts.memref, [row], Scalar(experts.element)), INDEX)
    inside = builder.arith(
        "max", builder.constant(0), builder.arith("min", found, builder.constant(count - 1))
    )
    tell_fault(builder, builder.compare("ne", inside, found))
    return inside


def write_table(experts: TensorView, key: Key, size: int, count: int, tiles: int) -> TileKernel:
    """The kernel that writes a table of so many tiles of a size, for `count` experts."""
    parameters, loop = Parameters(), "row"
    table = parameters.add(TABLE, table_access(tiles))
    named = parameters.add(key, experts_access(experts, loop))
    builder = parameters.builder()
    starts = builder.alloca(make_memref(NUMBER.name, (count + 1,), local=True))
    with builder.foreach([builder.constant(count + 1)]) as (region, (place,)):
        region.store(region.constant(0, NUMBER), starts, [place])
    with builder.foreach([builder.constant(experts.shape[0] + 1)]) as (region, (row,)):
        _store_starts(region, row, named, starts, (experts.shape[0], count))
    with builder.foreach([builder.constant(tiles)]) as (region, (tile,)):
        _store_tile(region, tile, starts, table.memref, (size, count))
    made = parameters.close(builder, 1)
    return TileKernel(made.parameters, made.keys, made.body, 1, group_sizes(SUBGROUPS), faults=True)


def _store_starts(
    builder: Builder, row: Value, experts: Access, starts: Value, counts: tuple[int, int]
) -> None:
    """Store the first row of each expert: those behind that of the row before, up to that of this row, begin here."""
    rows, count = counts
    first, last, zero = builder.constant(-1), builder.constant(count), builder.constant(0)
    places = (
        builder.arith("max", builder.arith("sub", row, builder.constant(1)), zero),
        builder.arith("min", row, builder.constant(rows - 1)),
    )
    loaded = [
        builder.cast(builder.load(experts.memref, [place], Scalar(experts.element)), INDEX)
        for place in places
    ]
    is_first = builder.compare("eq", row, zero)
    is_last = builder.compare("eq", row, builder.constant(rows))
    before = builder.arith("select", is_first, first, loaded[0])
    here = builder.arith("select", is_last, last, loaded[1])
    falls = builder.compare("lt", here, before)
    outside = builder.arith(
        "or",
        builder.compare("lt", loaded[1], zero),
        builder.compare("ge", loaded[1], last),
        type_=BOOL,
    )
    tell_fault(builder, builder.arith("or", falls, outside, type_=BOOL))
    begin, end = (
        builder.arith("min", builder.arith("max", _next(builder, item), zero), _next(builder, last))
        for item in (before, here)
    )
    with builder.loop(begin, end) as each:
        each.body.store(each.body.cast(row, NUMBER), starts, [each.variable])


def _next(builder: Builder, value: Value) -> Value:
    return builder.arith("add", value, builder.constant(1))


def _store_tile(builder: Builder, tile: Value, starts: Value, table: Value, counts: tuple[int, int]) -> None:
    """Find the expert of a tile: the first one where the running count of tiles is more than the tile's number."""
    size, count = counts
    zero = builder.constant(0)
    carried = [(zero, INDEX)] * (1 + len(FIELDS))
    with builder.loop(zero, builder.constant(count), carried=carried) as each:
        body, (base, *fields) = each.body, each.carried
        begin, end = (
            body.cast(body.load(starts, [place], NUMBER), INDEX)
            for place in (each.variable, _next(body, each.variable))
        )
        rest = body.arith("add", body.arith("sub", end, begin), body.constant(size - 1))
        after = body.arith("add", base, body.arith("div", rest, body.constant(size)))
        own = body.arith("and", body.compare("le", base, tile), body.compare("lt", tile, after), type_=BOOL)
        moved = body.arith("mul", body.arith("sub", tile, base), body.constant(size))
        found = (each.variable, body.arith("add", begin, moved), end)
        body.give(
            after,
            *(body.arith("select", own, new, old) for new, old in zip(found, fields, strict=True)),
        )
    for number, value in enumerate(each.results[1:]):
        builder.store(builder.cast(value, NUMBER), table, [builder.constant(number), tile])
