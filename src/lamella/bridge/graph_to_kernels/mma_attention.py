"""Fused attention on tensor cores (`mma.sync`) for few keys: all scores of a block of queries lie in local memory.

    s[q, k] += query[q, …] * key[k, …];   rows: m >= f(s), e = exp(s - m), …;   y[q, d] += w[q, k] * value[k, d]

A work-group of four subgroups takes some queries of one head. Keys, and then values, are staged in chunks and rounded
to bf16 on the way to local memory, whatever their layout: no transposed or narrow copy is made before. Of a chunk each
subgroup multiplies 16 keys. For the row operations (softmax) each work-item has some keys of one query, and reductions
meet in local memory. In the second product each subgroup has a part of the values' dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis, form_value
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.attention import (
    BLOCK,
    QUERY,
    Attention,
    AttentionRoles,
    AttentionWriter,
    RowStage,
    RowWriter,
    find_attention_roles,
)
from lamella.bridge.graph_to_kernels.contraction import ASSIGNMENTS, join, neutral_value
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.terms import stored_type
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import Epilogue, Key, Tensors, key_of
from lamella.kernels.build import Builder
from lamella.kernels.fragments import COLUMNS, DEPTH, ROWS, SUMS, WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    Alloca,
    Barrier,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopStore,
    Dictionary,
    DictionaryEntry,
    Expand,
    Scalar,
    Slice,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS, INDEX, Memref, make_memref

NARROW = "bf16"
SUBGROUPS = 4
THREADS = SUBGROUPS * WARP
CHUNK = SUBGROUPS * COLUMNS
"""Keys that are in local memory at once."""
PAD = 8
"""Padding of rows in local memory against bank conflicts."""
HEIGHTS = (32, 16)
"""Queries of a work-group."""
FEWEST_QUERIES = 16
UNROLLED = 16
LANE = Scalar("i32")
HALF = Scalar(NARROW)


def write_mma_attention(attention: Attention, tensors: Tensors, real: Scalar, target: Target) -> TileKernel:
    """The kernel of an attention whose operands may be rounded; Unsupported says why there is none."""
    if not target.tensor_cores or real.name != SUMS:
        raise Unsupported("there are no tensor cores for it")
    for rows in HEIGHTS:
        roles = find_attention_roles(attention, tensors, real, target, rows)
        sizes = _Sizes(roles)
        sizes.verify()
        if sizes.local_bytes <= target.local_bytes:
            return _MmaAttentionWriter(roles, tensors, sizes=sizes).write()
    raise Unsupported("its scores do not fit into local memory")


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The extents of an attention, and the local memory that it takes."""

    roles: AttentionRoles

    @property
    def depth(self) -> int:
        """Of queries and keys."""
        return self.roles.extents[self.roles.depth[0]]

    @property
    def width(self) -> int:
        """Of values."""
        return self.roles.extents[self.roles.width]

    @property
    def keys(self) -> int:
        """Of one head."""
        return self.roles.extents[self.roles.key]

    @property
    def padded_keys(self) -> int:
        """Keys in whole chunks."""
        return -(-self.keys // CHUNK) * CHUNK

    @property
    def rows(self) -> int:
        """Queries of a work-group."""
        return self.roles.rows

    @property
    def parts(self) -> int:
        """Work-items that share a query."""
        return THREADS // self.rows

    @property
    def tile(self) -> int:
        """Elements of a chunk of keys or values."""
        return max((self.depth + PAD) * CHUNK, (CHUNK + PAD) * self.width)

    @property
    def scores(self) -> int:
        """Elements of what holds the scores, and then the mixture."""
        return self.rows * max(self.padded_keys, self.width)

    @property
    def local_bytes(self) -> int:
        """The bytes of local memory, each piece aligned to 64."""
        narrow = self.rows * (self.depth + PAD), self.tile, self.rows * (self.padded_keys + PAD)
        reductions = sum(item.formula.sign not in ASSIGNMENTS for item in self.roles.stages)
        wide = self.scores, (self.parts + 1) * self.rows * reductions
        return sum(2 * item + 64 for item in narrow) + sum(4 * item + 64 for item in wide)

    def verify(self) -> None:
        """Refuse extents that fragments do not have."""
        roles = self.roles
        if any(map(is_open, roles.extents.values())) or len(roles.depth) != 1:
            raise Unsupported("its extents are open, or its scores sums over several loops")
        if self.depth % DEPTH or self.width % (SUBGROUPS * ROWS):
            raise Unsupported("its vectors are no fragments")
        if roles.extents[roles.query] < FEWEST_QUERIES:
            raise Unsupported("it has few queries")
        if any(key[0] in roles.places for key in roles.keys):
            raise Unsupported("it reads what it makes")


@dataclass(slots=True)
class _MmaAttentionWriter(AttentionWriter):
    """Writes the kernel; one region of work-items, with barriers."""

    sizes: _Sizes = field(kw_only=True)
    thread: Value = Value("")
    """The number of a work-item in its work-group."""
    partial: dict[int, Value] = field(default_factory=dict)
    """Partial reductions of work-items, by the number of the stage."""

    @property
    def _query(self) -> Form:
        """The number of a query among all: positions are computed from it, not from that in its work-group."""
        return Affine(0, ((self.roles.query, 1),))

    def write(self) -> TileKernel:
        """Write it."""
        roles, sizes = self.roles, self.sizes
        self._bind()
        sides = [
            self.parameters.add(key, access)
            for key, access in zip(
                roles.keys, (roles.query_access, roles.key_access, roles.value_access), strict=True
            )
        ]
        builder = self.parameters.builder()
        extents = {**roles.extents, BLOCK: roles.blocks}
        values = delinearize_group(builder, [*roles.outer, BLOCK], extents)
        queries = _local_memory(builder, NARROW, sizes.rows * (sizes.depth + PAD))
        tile, scores = _local_memory(builder, NARROW, sizes.tile), _local_memory(builder, SUMS, sizes.scores)
        weights = _local_memory(builder, NARROW, sizes.rows * (sizes.padded_keys + PAD))
        self._allocate(builder)
        with builder.parallel() as region:
            lane = region.cast(region.builtin("subgroup_local_id", LANE), INDEX)
            subgroup = region.cast(region.builtin("subgroup_id", LANE), INDEX)
            first = region.arith("mul", subgroup, region.constant(WARP))
            self.thread = region.arith("add", first, lane)
            views = _Views(region, sizes, queries, tile, scores, weights)
            self.locals = {roles.attention.scores.targets[0].tensor: views.scores}
            self._stage(region, values, (sides[0], QUERY, roles.depth[0]), (views.queries, False), sizes.rows)
            self._score(region, values, sides[1], views, subgroup)
            self._write_rows_of(region, values, views)
            self._mix_values(region, values, sides[2], views, subgroup)
            self._finish(region, values, views)
        groups = prod(extents[name] for name in (*roles.outer, BLOCK))
        return replace(self.parameters.close(builder, groups), attributes=group_sizes(SUBGROUPS))

    def _outside(self, key: Key, access: Access) -> Access:
        return self.parameters.add(key, access)

    def _allocate(self, builder: Builder) -> None:
        """Local memory for row reductions: partial results of each work-item, and those that the epilogue reads."""
        roles, rows = self.roles, self.sizes.rows
        for key, name in roles.sums.items():
            if name not in self.sums:
                self.sums[name] = builder.alloca(make_memref(SUMS, (rows,), local=True))
            query: Form = Affine(0, ((QUERY, 1),))
            self.accesses[key] = Access(self.sums[name], SUMS, (Axis(rows, 1, query),), True)
        self.partial = {
            number: builder.alloca(make_memref(SUMS, (rows, self.sizes.parts), local=True))
            for number, item in enumerate(roles.stages)
            if item.formula.sign not in ASSIGNMENTS
        }

    # --- to local memory ------------------------------------------------------------------------------------------

    def _number(self, builder: Builder, values: Mapping[str, Value], query: Value) -> Value:
        """The number among all of a query of the work-group, that of the last one where there are fewer."""
        roles = self.roles
        first = builder.arith("mul", values[BLOCK], builder.constant(self.sizes.rows))
        number = builder.arith("add", first, query)
        if roles.extents[roles.query] % self.sizes.rows == 0:
            return number
        return builder.arith("min", number, builder.constant(roles.extents[roles.query] - 1))

    def _stage(
        self,
        builder: Builder,
        values: Mapping[str, Value],
        source: tuple[Access, str, str],
        target: tuple[Value, bool],
        lines: int,
    ) -> None:
        """Stage lines of an operand in local memory, rounded; loads are coalesced along its vectors or across them."""
        access, line, along = source
        extent = self.roles.extents[along]
        unroll = Dictionary((DictionaryEntry("unroll", UNROLLED),))
        bounds = builder.constant(0), builder.constant(lines * extent), builder.constant(THREADS)
        with builder.loop(*bounds, attributes=unroll) as loop:
            body = loop.body
            element = body.arith("add", loop.variable, self.thread)
            size = body.constant(extent)
            place, number = body.arith("rem", element, size), body.arith("div", element, size)
            here = {**values, along: place}
            if line == QUERY:
                here[self.roles.query] = self._number(body, values, number)
            else:
                here[line] = self._clamped_key(body, values[line], number)
            value = body.load(access.memref, access.places(body, here), Scalar(access.element))
            if access.element != NARROW:
                value = body.cast(value, HALF)
            memory, transposed = target
            body.store(value, memory, [number, place] if transposed else [place, number])

    def _clamped_key(self, builder: Builder, first: Value, number: Value) -> Value:
        found = builder.arith("add", first, number)
        if self.sizes.keys == self.sizes.padded_keys:
            return found
        return builder.arith("min", found, builder.constant(self.sizes.keys - 1))

    # --- products -------------------------------------------------------------------------------------------------

    def _score(
        self, builder: Builder, values: Mapping[str, Value], keys: Access, views: _Views, subgroup: Value
    ) -> None:
        """The scores, chunk by chunk: rows are queries, and each subgroup has 16 keys as columns."""
        roles, sizes = self.roles, self.sizes
        sums = Coopmatrix(SUMS, sizes.rows, COLUMNS, "matrix_acc")
        own = builder.arith("mul", subgroup, builder.constant(COLUMNS))
        bounds = builder.constant(0), builder.constant(sizes.padded_keys), builder.constant(CHUNK)
        with builder.loop(*bounds) as chunk:
            body = chunk.body
            body.put(Barrier(on_local=True))
            here = {**values, roles.key: chunk.variable}
            self._stage(body, here, (keys, roles.key, roles.depth[0]), (views.keys, False), CHUNK)
            body.put(Barrier(on_local=True))
            steps = body.constant(0), body.constant(sizes.depth), body.constant(DEPTH)
            zero = body.constant(0.0, sums)
            with body.loop(*steps, carried=[(zero, sums)], attributes=_whole()) as loop:
                inner, k = loop.body, loop.variable
                left = Coopmatrix(NARROW, sizes.rows, DEPTH, "matrix_a")
                right = Coopmatrix(NARROW, DEPTH, COLUMNS, "matrix_b")
                a = inner.value(CoopLoad(views.queries, k, inner.constant(0), left, True))
                b = inner.value(CoopLoad(views.keys, k, own, right, False))
                inner.give(inner.value(CoopMulAdd(a, b, loop.carried[0], sums)))
            column = body.arith("add", chunk.variable, own)
            body.put(CoopStore(loop.results[0], views.scores, body.constant(0), column))

    def _mix_values(
        self, builder: Builder, values: Mapping[str, Value], source: Access, views: _Views, subgroup: Value
    ) -> None:
        """The second product: rows are the values' dimension, a part for each subgroup, columns are queries."""
        roles, sizes = self.roles, self.sizes
        part = sizes.width // SUBGROUPS
        sums = Coopmatrix(SUMS, part, sizes.rows, "matrix_acc")
        own = builder.arith("mul", subgroup, builder.constant(part))
        bounds = builder.constant(0), builder.constant(sizes.padded_keys), builder.constant(CHUNK)
        zero = builder.constant(0.0, sums)
        with builder.loop(*bounds, carried=[(zero, sums)]) as chunk:
            body = chunk.body
            body.put(Barrier(on_local=True))
            here = {**values, roles.key: chunk.variable}
            self._stage(body, here, (source, roles.key, roles.width), (views.values, True), CHUNK)
            body.put(Barrier(on_local=True))
            steps = body.constant(0), body.constant(CHUNK), body.constant(DEPTH)
            with body.loop(*steps, carried=[(chunk.carried[0], sums)], attributes=_whole()) as loop:
                inner, k = loop.body, loop.variable
                left = Coopmatrix(NARROW, part, DEPTH, "matrix_a")
                right = Coopmatrix(NARROW, DEPTH, sizes.rows, "matrix_b")
                a = inner.value(CoopLoad(views.values, k, own, left, True))
                row = inner.arith("add", chunk.variable, k)
                b = inner.value(CoopLoad(views.weights, row, inner.constant(0), right, False))
                inner.give(inner.value(CoopMulAdd(a, b, loop.carried[0], sums)))
            body.give(loop.results[0])
        # Scores are read no more, so that the mixture may lie there.
        builder.put(Barrier(on_local=True))
        builder.put(CoopStore(chunk.results[0], views.mixture, own, builder.constant(0)))
        builder.put(Barrier(on_local=True))

    # --- rows of scores -------------------------------------------------------------------------------------------

    def _write_rows_of(self, builder: Builder, values: Mapping[str, Value], views: _Views) -> None:
        """The row operations (softmax): a work-item has every so many-th key of one query."""
        sizes, rows = self.sizes, builder.constant(self.sizes.rows)
        builder.put(Barrier(on_local=True))
        query, part = builder.arith("rem", self.thread, rows), builder.arith("div", self.thread, rows)
        here = {**values, QUERY: query, self.roles.query: self._number(builder, values, query)}
        known: dict[str, Value] = {}
        for number, stage in enumerate(self.roles.stages):
            self._write_row_stage(builder, number, stage, (here, part, known), views)
        if sizes.padded_keys > sizes.keys:
            zero = builder.constant(0.0, HALF)
            first = builder.arith("add", builder.constant(sizes.keys), part)
            bounds = builder.constant(sizes.padded_keys), builder.constant(sizes.parts)
            with builder.loop(first, *bounds) as loop:
                loop.body.store(zero, views.weights, [loop.variable, query])

    def _write_row_stage(
        self,
        builder: Builder,
        number: int,
        stage: RowStage,
        place: tuple[dict[str, Value], Value, dict[str, Value]],
        views: _Views,
    ) -> None:
        here, part, known = place
        roles, formula = self.roles, stage.formula
        target = formula.targets[0]
        writing = RowWriter(roles.real, self.tensors, stage.extents, [builder])
        writing.accesses, writing.loops = self.accesses, dict(here)
        writing.locals, writing.known, writing.key = self.locals, known, roles.key
        own = next((name for name, form in stage.loops.items() if form.coefficient(roles.key)), None)
        for name, form in stage.loops.items():
            if name != own:
                writing.open_index(name, form_value(builder, form, here))
        element, kind = self.tensors[key_of(target)].element, writing.kind(target)
        if own is None:
            known[target.tensor] = writing.rounded(writing.value(formula.values[0]), element, kind)
            self._store_once(builder, writing, stage, part)
            return
        reduced = number in self.partial
        is_row = not any(form.coefficient(roles.key) for form in roles.places[target.tensor])
        if reduced != is_row or kind != roles.real:
            raise Unsupported("a stage is neither a map nor a reduction of rows")
        start = [(neutral_value(writing, formula.sign, target), kind)] if reduced else []
        bounds = part, builder.constant(self.sizes.keys), builder.constant(self.sizes.parts)
        with builder.loop(*bounds, carried=start) as loop:
            writing.levels.append(loop.body)
            writing.open_index(own, loop.variable)
            writing.loops = {**here, roles.key: loop.variable}
            value = writing.value(formula.values[0])
            if reduced:
                loop.body.give(join(writing, formula.sign, loop.carried[0], value, target))
            else:
                value = writing.rounded(value, element, kind)
                loop.body.store(value, self._memory(number, target.tensor), [here[QUERY], loop.variable])
                if target.tensor == roles.weights:
                    short = loop.body.cast(value, HALF)
                    loop.body.store(short, views.weights, [loop.variable, here[QUERY]])
        if not reduced:
            return
        writing.levels, writing.loops = [builder], dict(here)
        partial = self.partial[number]
        builder.store(loop.results[0], partial, [here[QUERY], part])
        builder.put(Barrier(on_local=True))
        total = builder.load(partial, [here[QUERY], builder.constant(0)], kind)
        for other in range(1, self.sizes.parts):
            more = builder.load(partial, [here[QUERY], builder.constant(other)], kind)
            total = join(writing, formula.sign, total, more, target)
        known[target.tensor] = total
        self._store_once(builder, writing, stage, part)

    def _store_once(self, builder: Builder, writing: RowWriter, stage: RowStage, part: Value) -> None:
        """Store what a row has one of: the first work-item of a query does."""
        target = stage.formula.targets[0]
        access, value = self.accesses.get(id(target)), writing.known[target.tensor]
        if access is None and target.tensor not in self.sums:
            return
        with builder.condition(builder.compare("eq", part, builder.constant(0))) as inner:
            if target.tensor in self.sums:
                inner.store(value, self.sums[target.tensor], [writing.loops[QUERY]])
            if access is not None:
                stored = Scalar(stored_type(writing.held(target).element))
                kept = value if stored == writing.kind(target) else inner.cast(value, stored)
                # Work-items beyond the last query have its row, and store the same once more.
                inner.store(kept, access.memref, access.places(inner, writing.loops))

    # --- the end --------------------------------------------------------------------------------------------------

    def _finish(self, builder: Builder, values: Mapping[str, Value], views: _Views) -> None:
        """The epilogue: store outputs, vectors side by side."""
        roles, sizes = self.roles, self.sizes
        bounds = builder.constant(0), builder.constant(sizes.rows * sizes.width), builder.constant(THREADS)
        with builder.loop(*bounds) as loop:
            body = loop.body
            element = body.arith("add", loop.variable, self.thread)
            size = body.constant(sizes.width)
            place, query = body.arith("rem", element, size), body.arith("div", element, size)
            total = body.load(views.mixture, [place, query], Scalar(SUMS))
            number = self._number(body, values, query)
            here = {**values, QUERY: query, roles.query: number, roles.width: place}
            for end in self.epilogues:
                self._store_epilogue(body, end, here, total)

    def _store_epilogue(
        self, builder: Builder, end: Epilogue, here: Mapping[str, Value], total: Value
    ) -> None:
        mixed, result = self.roles.attention.mixture.targets[0].tensor, total
        if end.formula.values[0] is not end.formula.targets[0]:
            writing = EpilogueWriter(self.roles.real, self.tensors, end.extents, [builder])
            writing.accesses, writing.loops = self.accesses, here
            result = writing.epilogue_value(end, mixed, total)
        access = self.accesses[id(end.formula.targets[0])]
        if access.element not in FLOATS:
            raise Unsupported("its output is no real")
        if access.element != SUMS:
            result = builder.cast(result, Scalar(access.element))
        builder.store(result, access.memref, access.places(builder, here))


def _whole() -> Dictionary:
    return Dictionary((DictionaryEntry("unroll", True),))


def _local_memory(builder: Builder, element: str, size: int) -> Value:
    """Local memory of so many elements, in a row."""
    aligned = Dictionary((DictionaryEntry("alignment", 64),))
    return builder.value(Alloca(make_memref(element, (size,), local=True), aligned))


class _Views:
    """Local memory as the products and the rows see it."""

    def __init__(
        self, builder: Builder, sizes: _Sizes, queries: Value, tile: Value, scores: Value, weights: Value
    ) -> None:
        self.queries = _matrix(builder, queries, NARROW, (sizes.depth + PAD, sizes.rows))
        self.keys = _matrix(builder, tile, NARROW, (sizes.depth + PAD, CHUNK))
        self.values = _matrix(builder, tile, NARROW, (CHUNK + PAD, sizes.width))
        self.scores = _matrix(builder, scores, SUMS, (sizes.rows, sizes.padded_keys))
        self.mixture = _matrix(builder, scores, SUMS, (sizes.width, sizes.rows))
        self.weights = _matrix(builder, weights, NARROW, (sizes.padded_keys + PAD, sizes.rows))


def _matrix(builder: Builder, memory: Value, element: str, shape: Sequence[int]) -> Value:
    """The first elements of memory as a matrix without gaps."""
    size = prod(shape)
    row = builder.subview(memory, [Slice(0, size)], Memref(element, (size,), (1,), True))
    return builder.value(Expand(row, 0, tuple(shape), Memref(element, tuple(shape), (1, shape[0]), True)))
