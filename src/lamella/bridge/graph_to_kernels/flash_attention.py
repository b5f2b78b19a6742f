"""Flash attention on Hopper: tiles of keys and values stream through local memory, with online softmax.

    s = k q;  n = max(m, s);  p = exp(c (s - n));  a = exp(c (m - n));  l = a l + sum p;  o = a o + v p;  y = o / l

A work-group has 128 queries of one head, a subgroup 16 of them as columns; scores never leave registers. The products
of the next scores and of the last weights are issued together, so that softmax of one tile overlaps with the products
of another. Tiles come last first: of a causal mask, and of keys that end inside a tile, only the first one needs to be
tested. Queries, keys and values that are not bf16, or not whole tiles, are packed by kernels of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import log, prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, matrix_view, substitute_loops
from lamella.bridge.graph_to_kernels.attention import (
    BLOCK,
    Attention,
    AttentionRoles,
    find_attention_roles,
)
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.softmax import SoftmaxReader, divided, read_softmax
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import Epilogue, Tensors, held_access, key_of
from lamella.bridge.graph_to_kernels.tma_operands import (
    NARROW,
    TILE,
    balanced_blocks,
    head_view,
    padded,
    tma_operand,
    with_pairs,
)
from lamella.kernels.build import Builder
from lamella.kernels.fragments import COLUMNS, SUMS
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    Arith,
    Cast,
    CoopApply,
    CoopConstruct,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
    Expand,
    Math,
    Scalar,
    Slice,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS, INDEX, Memref
from lamella.ops.formula import Element

PANEL, MOST_WIDE = 64, 128
"""Vectors are multiples of so many elements, and this many at most: then all sums have registers."""
SUBGROUPS = TILE // COLUMNS
HIDDEN = -(2.0**120)
"""The score of masked keys: less than any; a number, so that its difference to itself is one."""
LANE, REAL = Scalar("i32"), Scalar(SUMS)
SCORES = Coopmatrix(SUMS, TILE, COLUMNS, "matrix_acc")
ROW = Coopmatrix(SUMS, 1, COLUMNS, "matrix_acc")
WEIGHTS = Coopmatrix(NARROW, TILE, COLUMNS, "matrix_b")


def write_flash_attention(
    attention: Attention, tensors: Tensors, real: Scalar, target: Target
) -> list[TileKernel]:
    """The kernels of an attention whose operands may be rounded; Unsupported says why there are none."""
    if not target.has_warpgroups or real.name != SUMS:
        raise Unsupported("no warpgroups compute it")
    roles = find_attention_roles(attention, tensors, real, target, TILE)
    softmax, bound = _find_softmax(roles)
    roles = replace(roles, epilogues=tuple(divided(item, roles, softmax) for item in roles.epilogues))
    _verify(roles, softmax)
    return _FlashAttentionWriter(roles, tensors, softmax, bound, target).write()


def _verify(roles: AttentionRoles, softmax: SoftmaxReader) -> None:
    """Refuse vectors that are no panels, and rows that others read."""
    extents = roles.extents
    if any(map(is_open, extents.values())) or len(roles.depth) != 1:
        raise Unsupported("its extents are open, or its scores sums over several loops")
    if any(item % PANEL or item > MOST_WIDE for item in (extents[roles.depth[0]], extents[roles.width])):
        raise Unsupported("its vectors are no panels")
    made = {item.formula.targets[0].tensor for item in roles.stages} - softmax.logs.keys()
    if made & roles.attention.outputs or any(key[0] in roles.places for key in roles.keys):
        raise Unsupported("others read its rows")


# --- softmax ------------------------------------------------------------------------------------------------------


def _find_softmax(roles: AttentionRoles) -> tuple[SoftmaxReader, int | None]:
    """What is made of scores, and by how much the last key that a query sees is ahead of it."""
    reading = read_softmax(roles)
    if not reading.masked:
        return reading, None
    visible, extents = roles.visible, roles.extents
    if visible is None or visible.first is not None or visible.last.scalars:
        raise Unsupported("its mask is not known before the run")
    ahead = visible.last.form.constant
    if visible.last.form != Affine(ahead, ((roles.query, 1),)) or ahead < 0 or ahead % TILE:
        raise Unsupported("its mask has no tiles")
    if extents[roles.query] + ahead > extents[roles.key]:
        raise Unsupported("its last queries see more keys than there are")
    return reading, ahead


# --- the kernels ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _State:
    """The loop-carried state: weights as an operand, running maxima, sums of weights."""

    weights: Value
    most: Value
    total: Value
    shrinks: Value
    """The factor that rescales everything before."""


@dataclass(slots=True)
class _FlashAttentionWriter:
    """Writes the kernels."""

    roles: AttentionRoles
    tensors: Tensors
    softmax: SoftmaxReader
    bound: int | None
    target: Target
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)

    def write(self) -> list[TileKernel]:
        """Write them, in the order in which they run."""
        roles, kernels, sides = self.roles, list[TileKernel](), list[Access]()
        for end in roles.epilogues:
            for element, access in end.accesses.items():
                if element not in roles.sums:
                    self.accesses[element] = self.parameters.add(end.keys[element], access)
        for row in self.softmax.stored(roles):
            self.accesses[id(row)] = self.parameters.add(key_of(row), self._row_access(row))
        inner = roles.depth[0]
        lines = (roles.query, inner), (roles.key, inner), (roles.key, roles.width)
        accesses = roles.query_access, roles.key_access, roles.value_access
        words = "queries", "keys", "values"
        for line, access, key, word in zip(lines, accesses, roles.keys, words, strict=True):
            loops = (*roles.outer, *line)
            side, own, before = tma_operand(access, (key, word), line[0], loops, roles.extents)
            kernels += before
            sides.append(self.parameters.add(own, side))
        return [*kernels, self._write_attention(sides)]

    def _write_attention(self, sides: Sequence[Access]) -> TileKernel:
        roles, extents = self.roles, self.roles.extents
        blocks, builder = padded(extents[roles.query]) // TILE, self.parameters.builder()
        with builder.parallel() as region:
            values = balanced_blocks(region, roles.outer, {**extents, BLOCK: blocks}, BLOCK, self.target)
            block = region.arith("sub", region.constant(blocks - 1), values[BLOCK])
            first = region.arith("mul", block, region.constant(TILE))
            subgroup = region.cast(region.builtin("subgroup_id", LANE), INDEX)
            own = region.arith("mul", subgroup, region.constant(COLUMNS))
            values[roles.query] = region.arith("add", first, own)
            inner = roles.depth[0]
            lines = (roles.query, inner), (roles.key, inner), (roles.key, roles.width)
            heads = [
                head_view(region, side, (line, extents[line]), (along, extents[along]), values)
                for side, (line, along) in zip(sides, lines, strict=True)
            ]
            mixture, most, total = self._stream(region, heads, values, self._tiles(region, first))
            self._finish(region, values, mixture, total)
            self._store_rows(region, values, most, total)
        groups = prod(extents[name] for name in roles.outer) * blocks
        return replace(with_pairs(self.parameters.close(builder, groups)), attributes=group_sizes(SUBGROUPS))

    def _tiles(self, builder: Builder, first: Value) -> Value:
        """How many tiles of keys the queries of a work-group see."""
        if self.bound is None:
            return builder.constant(padded(self.roles.extents[self.roles.key]) // TILE)
        last = builder.arith("add", first, builder.constant(TILE + self.bound))
        return builder.arith("div", last, builder.constant(TILE))

    def _stream(
        self, builder: Builder, heads: Sequence[Value], values: Mapping[str, Value], tiles: Value
    ) -> tuple[Value, Value, Value]:
        """The mixture of one head, the maxima and the sums of weights."""
        roles, (queries, keys, mixed) = self.roles, heads
        depth, width = roles.extents[roles.depth[0]], roles.extents[roles.width]
        sums = Coopmatrix(SUMS, width, COLUMNS, "matrix_acc")
        left = Coopmatrix(NARROW, TILE, depth, "matrix_a"), Coopmatrix(NARROW, width, TILE, "matrix_a")
        right = Coopmatrix(NARROW, depth, COLUMNS, "matrix_b")
        zero, tile = builder.constant(0), builder.constant(TILE)
        query = builder.value(CoopLoad(queries, zero, values[roles.query], right))
        none, empty = builder.constant(0.0, SCORES), builder.constant(0.0, sums)
        before = builder.constant(HIDDEN, ROW), builder.constant(0.0, ROW)
        rest = builder.arith("sub", tiles, builder.constant(1))
        at = builder.arith("mul", rest, tile)
        key = builder.value(CoopLoad(keys, zero, at, left[0], True))
        scores = builder.value(CoopMulAdd(key, query, none, SCORES))
        if self.bound is not None or roles.extents[roles.key] % TILE:
            scores = self._hide(builder, scores, at, values[roles.query])
        state = self._weigh(builder, scores, *before)
        weights = builder.cast(state.weights, WEIGHTS)
        carried = [(empty, sums), (weights, WEIGHTS), (state.most, ROW), (state.total, ROW)]
        with builder.loop(zero, rest, builder.constant(1), carried=carried) as loop:
            body, (mixture, weights, most, total) = loop.body, loop.carried
            number = body.arith("sub", rest, body.arith("add", loop.variable, body.constant(1)))
            at = body.arith("mul", number, tile)
            key = body.value(CoopLoad(keys, zero, at, left[0], True))
            scores = body.value(CoopMulAdd(key, query, none, SCORES))
            value = body.value(CoopLoad(mixed, zero, body.arith("add", at, tile), left[1]))
            mixture = body.value(CoopMulAdd(value, weights, mixture, sums))
            state = self._weigh(body, scores, most, total)
            shrinks = body.value(CoopConstruct(state.shrinks, sums))
            mixture = body.value(Arith("mul", (mixture, shrinks), sums))
            body.give(mixture, body.cast(state.weights, WEIGHTS), state.most, state.total)
        mixture, weights, most, total = loop.results
        value = builder.value(CoopLoad(mixed, zero, zero, left[1]))
        return builder.value(CoopMulAdd(value, weights, mixture, sums)), most, total

    def _hide(self, builder: Builder, scores: Value, at: Value, query: Value) -> Value:
        """Mask scores: keys that a query does not see."""
        row, column, value = (builder.names.new() for _ in range(3))
        inner = builder.inner()
        key = inner.arith("add", at, inner.cast(row, INDEX))
        if self.bound is None:
            last = inner.constant(self.roles.extents[self.roles.key] - 1)
        else:
            seen = inner.arith("add", query, inner.cast(column, INDEX))
            last = inner.arith("add", seen, inner.constant(self.bound))
        hidden = inner.compare("gt", key, last)
        inner.give(inner.arith("select", hidden, inner.constant(HIDDEN, REAL), value, type_=REAL))
        return builder.value(CoopApply(row, column, value, scores, SCORES, inner.region()))

    def _weigh(self, builder: Builder, scores: Value, most: Value, total: Value) -> _State:
        """One step of online softmax: the weights of a tile, and the state rescaled."""
        factor = self.softmax.scale / log(2.0)
        scale = builder.constant(factor, REAL)
        here = builder.value(CoopReduce("max", "column", scores, ROW))
        larger = builder.value(Arith("max", (most, here), ROW))
        scaled = builder.value(CoopScale(scale, larger, ROW))
        before = builder.value(CoopScale(scale, most, ROW))
        shrinks = exponential(builder, builder.value(Arith("sub", (before, scaled), ROW)), ROW)
        less = builder.value(CoopConstruct(builder.value(Arith("neg", (scaled,), ROW)), SCORES))
        lies = builder.value(Arith("fma", (scores, builder.constant(factor, SCORES), less), SCORES))
        weights = exponential(builder, lies, SCORES)
        added = builder.value(CoopReduce("add", "column", weights, ROW))
        shrunk = builder.value(Arith("mul", (total, shrinks), ROW))
        return _State(weights, larger, builder.value(Arith("add", (shrunk, added), ROW)), shrinks)

    def _row_access(self, element: Element) -> Access:
        """Where what each query has one of is stored."""
        roles = self.roles
        stage = next(item for item in roles.stages if item.formula.targets[0] is element)
        return substitute_loops(held_access(element, self.tensors, stage.extents), stage.loops)

    def _store_rows(self, builder: Builder, values: Mapping[str, Value], most: Value, total: Value) -> None:
        """Store row values: the logarithms of sums of exponentials, and the maxima."""
        roles, zero = self.roles, builder.constant(0)
        for element in self.softmax.stored(roles):
            access = self.accesses[id(element)]
            if access.element != SUMS:
                raise Unsupported("what rows have one of is narrow")
            powers = _by_elements(builder, total, ROW, "native_log2")
            logs = builder.value(CoopScale(builder.constant(log(2.0), REAL), powers, ROW))
            high = builder.value(CoopScale(builder.constant(self.softmax.scale, REAL), most, ROW))
            count = roles.extents[roles.query]
            view = matrix_view(builder, access, [(roles.query, count)], {**values, roles.query: zero})
            stride = access.stride(roles.query)
            line = builder.subview(
                view.value, [Slice(zero, count), Slice(zero)], Memref(SUMS, (count,), (stride,))
            )
            lies = builder.value(Expand(line, 0, (1, count), Memref(SUMS, (1, count), (stride, stride))))
            both = builder.value(Arith("add", (logs, high), ROW))
            cut = "cols" if count % TILE else ""
            builder.put(CoopStore(both, lies, zero, values[roles.query], cut))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _finish(self, builder: Builder, values: Mapping[str, Value], mixture: Value, total: Value) -> None:
        """The epilogue: store outputs."""
        roles = self.roles
        sums = Coopmatrix(SUMS, roles.extents[roles.width], COLUMNS, "matrix_acc")
        row, column, value = (builder.names.new() for _ in range(3))
        inner = builder.inner()
        inner.give(inner.arith("div", inner.constant(1.0, REAL), value, type_=REAL))
        shares = builder.value(CoopApply(row, column, value, total, ROW, inner.region()))
        mixture = builder.value(Arith("mul", (mixture, builder.value(CoopConstruct(shares, sums))), sums))
        for end in roles.epilogues:
            self._store(builder, end, values, mixture, sums)

    def _store(
        self, builder: Builder, end: Epilogue, values: Mapping[str, Value], mixture: Value, sums: Coopmatrix
    ) -> None:
        roles, zero = self.roles, builder.constant(0)
        access = self.accesses[id(end.formula.targets[0])]
        if access.element not in FLOATS:
            raise Unsupported("its output is no real")
        if end.formula.values[0] is not end.formula.targets[0]:
            mixture = self._apply(builder, end, values, mixture, sums)
        if access.element != SUMS:
            mixture = builder.value(Cast(mixture, replace(sums, element=access.element)))
        spans = [(name, roles.extents[name]) for name in (roles.width, roles.query)]
        whole = {**values, roles.width: zero, roles.query: zero}
        view = matrix_view(builder, access, spans, whole)
        if view.transposed:
            raise Unsupported("vectors do not lie closest in its output")
        cut = "cols" if roles.extents[roles.query] % TILE else ""
        builder.put(CoopStore(mixture, view.value, zero, values[roles.query], cut))

    def _apply(
        self, builder: Builder, end: Epilogue, values: Mapping[str, Value], mixture: Value, sums: Coopmatrix
    ) -> Value:
        """What an output is made of an element of the mixture."""
        roles = self.roles
        row, column, value = (builder.names.new() for _ in range(3))
        inner = builder.inner()
        query = inner.arith("add", values[roles.query], inner.cast(column, INDEX))
        if roles.extents[roles.query] % TILE:
            # What lies behind the last query is computed from it, and never stored.
            query = inner.arith("min", query, inner.constant(roles.extents[roles.query] - 1))
        writing = EpilogueWriter(roles.real, self.tensors, end.extents, [inner])
        writing.accesses = self.accesses
        writing.loops = {**values, roles.query: query, roles.width: inner.cast(row, INDEX)}
        inner.give(writing.epilogue_value(end, roles.attention.mixture.targets[0].tensor, value))
        return builder.value(CoopApply(row, column, value, mixture, sums, inner.region()))


def exponential(builder: Builder, matrix: Value, type_: Coopmatrix) -> Value:
    """Powers of 2."""
    return _by_elements(builder, matrix, type_, "native_exp2")


def _by_elements(builder: Builder, matrix: Value, type_: Coopmatrix, function: str) -> Value:
    row, column, value = (builder.names.new() for _ in range(3))
    inner = builder.inner()
    inner.give(inner.value(Math(function, (value,), REAL)))
    return builder.value(CoopApply(row, column, value, matrix, type_, inner.region()))
