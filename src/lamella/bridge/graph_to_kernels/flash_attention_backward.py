"""The backward pass of flash attention on Hopper: scores are recomputed tile by tile, twice, and none is stored.

    keys:     p = exp(c q k - l),  d = p (g v - a);   dv += g' p,  dk += q' d     for 128 keys, queries stream by
    queries:  the same scores                         dq += k' d                  for 128 queries, keys stream by

A work-group has 128 columns, a subgroup 16 of them. Keys and values of the first kernel, queries and output gradients
of the second one stay in local memory. A tile of the others is an operand twice, once transposed. Of a causal mask only
the tiles on the diagonal are tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import log, prod

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, matrix_view
from lamella.bridge.graph_to_kernels.attention_backward import WIDTH, BackwardRoles, Operand
from lamella.bridge.graph_to_kernels.flash_attention import (
    HIDDEN,
    LANE,
    MOST_WIDE,
    PANEL,
    REAL,
    ROW,
    exponential,
)
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tma_operands import (
    NARROW,
    TILE,
    balanced_blocks,
    head_view,
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
    CoopScale,
    CoopStore,
    Scalar,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS, INDEX

STREAMED = 64
"""Queries or keys of a tile: with more of them the sums would not fit the registers."""
TILES = 2
"""Unrolling by two tiles: the scores of the second are begun while the sums of the first are still in flight."""
BLOCK = "block"
"""The number of a work-group's columns."""
SCORES = Coopmatrix(SUMS, STREAMED, COLUMNS, "matrix_acc")
COLUMN = Coopmatrix(SUMS, STREAMED, 1, "matrix_acc")
WEIGHTS = Coopmatrix(NARROW, STREAMED, COLUMNS, "matrix_b")


def write_flash_attention_backward(roles: BackwardRoles, real: Scalar, target: Target) -> list[TileKernel]:
    """The kernels of the backward pass, whose operands may be rounded; Unsupported says why not."""
    if not target.has_warpgroups or real.name != SUMS:
        raise Unsupported("no warpgroups compute it")
    extents = roles.extents
    if any(extents[name] % PANEL or extents[name] > MOST_WIDE for name in (roles.depth, WIDTH)):
        raise Unsupported("its vectors are no panels")
    if any(extents[name] % TILE for name in (roles.query, roles.key)) or len(roles.share) > 1:
        raise Unsupported("its queries or keys are no whole tiles, or heads are shared by several loops")
    if roles.causal and extents[roles.query] != extents[roles.key]:
        raise Unsupported("its queries and keys are not the same")
    if roles.scale <= 0:
        raise Unsupported("its scores are not scaled")
    return _BackwardWriter(roles, target).write()


@dataclass(slots=True)
class _BackwardWriter:
    """Writes the kernels."""

    roles: BackwardRoles
    target: Target
    sides: dict[str, Operand] = field(default_factory=dict)
    """Queries, keys, values and output gradients, as matrices of halves."""

    def write(self) -> list[TileKernel]:
        """The kernels that pack operands, that of keys and values, and that of queries."""
        roles, kernels = self.roles, list[TileKernel]()
        factors = {"queries": roles.queries, "keys": roles.keys, "values": roles.values, "given": roles.given}
        for name, side in factors.items():
            line, inner = self._lies(name)
            loops = (*roles.heads, *roles.share, line, inner)
            access, key, before = tma_operand(side.access, (side.key, name), line, loops, roles.extents)
            kernels += before
            self.sides[name] = Operand(access, key)
        return [*kernels, self._write_keys(), self._write_queries()]

    def _lies(self, name: str) -> tuple[str, str]:
        """The loops of the lines of a factor, and along them."""
        roles = self.roles
        line = roles.query if name in ("queries", "given") else roles.key
        return line, roles.depth if name in ("queries", "keys") else WIDTH

    # --- keys and values ------------------------------------------------------------------------------------------

    def _write_keys(self) -> TileKernel:
        roles, extents = self.roles, self.roles.extents
        writing = _KernelWriter(roles, self.sides)
        outputs = [writing.parameters.add(item.key, item.access) for item in (roles.to_keys, roles.to_values)]
        builder = writing.begin()
        with builder.parallel() as region:
            blocks = extents[roles.key] // TILE
            values = balanced_blocks(region, roles.heads, {**extents, BLOCK: blocks}, BLOCK, self.target)
            first = region.arith("mul", values[BLOCK], region.constant(TILE))
            own = _own_columns(region, first)
            held = [writing.hold(region, name, values, own) for name in ("keys", "values")]
            types = [_sums(extents[name]) for name in (roles.depth, WIDTH)]
            carried = [(region.constant(0.0, item), item) for item in types]
            if roles.share and extents[roles.share[0]] > 1:
                zero, many = region.constant(0), region.constant(extents[roles.share[0]])
                with region.loop(zero, many, region.constant(1), carried=carried) as loop:
                    inside = {**values, roles.share[0]: loop.variable}
                    begun = list(zip(loop.carried, types, strict=True))
                    loop.body.give(
                        *self._stream_queries(loop.body, writing, inside, (first, own), held, begun)
                    )
                results = loop.results
            else:
                inside = {**values, **{name: region.constant(0) for name in roles.share}}
                results = self._stream_queries(region, writing, inside, (first, own), held, carried)
            steep = region.value(CoopScale(region.constant(roles.factor, REAL), results[0], types[0]))
            spans = (roles.depth, roles.key), (WIDTH, roles.key)
            for access, span, value in zip(outputs, spans, (steep, results[1]), strict=True):
                writing.store(region, access, span, value, {**values, roles.key: own})
        groups = prod(extents[name] for name in roles.heads) * blocks
        return writing.close(builder, groups)

    def _stream_queries(
        self,
        builder: Builder,
        writing: _KernelWriter,
        values: Mapping[str, Value],
        columns: tuple[Value, Value],
        held: Sequence[Value],
        carried: Sequence[tuple[Value, Coopmatrix]],
    ) -> list[Value]:
        """The gradients of keys and values, accumulated over the queries of one head."""
        roles, (first, own) = self.roles, columns
        rows = [writing.row_of(builder, name, values) for name in ("logs", "along")]
        end = builder.constant(roles.extents[roles.query])
        spans = [(builder.constant(0), end, False)]
        if roles.causal:
            middle = builder.arith("add", first, builder.constant(TILE))
            spans = [(first, middle, True), (middle, end, False)]
        streamed = _TiledOperands(("queries", "given"), held, own, rows, COLUMN)
        return self._stream(builder, writing, values, streamed, spans, carried)

    # --- queries ----------------------------------------------------------------------------------------------------

    def _write_queries(self) -> TileKernel:
        roles, extents = self.roles, self.roles.extents
        writing = _KernelWriter(roles, self.sides)
        output = writing.parameters.add(roles.to_queries.key, roles.to_queries.access)
        builder = writing.begin()
        outer = (*roles.heads, *roles.share)
        with builder.parallel() as region:
            blocks = extents[roles.query] // TILE
            values = balanced_blocks(region, outer, {**extents, BLOCK: blocks}, BLOCK, self.target)
            # The last queries see most keys.
            block = region.arith("sub", region.constant(blocks - 1), values[BLOCK])
            first = region.arith("mul", block, region.constant(TILE))
            own = _own_columns(region, first)
            held = [writing.hold(region, name, values, own) for name in ("queries", "given")]
            zero, kind = region.constant(0), _sums(extents[roles.depth])
            rows = [
                region.value(CoopLoad(writing.row_of(region, name, values), own, zero, ROW, True))
                for name in ("logs", "along")
            ]
            spans = [(zero, region.constant(extents[roles.key]), False)]
            if roles.causal:
                last = region.arith("add", first, region.constant(TILE))
                spans = [(zero, first, False), (first, last, True)]
            streamed = _TiledOperands(("keys", "values"), held, own, rows, ROW)
            start = [(region.constant(0.0, kind), kind)]
            (total,) = self._stream(region, writing, values, streamed, spans, start)
            total = region.value(CoopScale(region.constant(roles.factor, REAL), total, kind))
            writing.store(region, output, (roles.depth, roles.query), total, {**values, roles.query: own})
        groups = prod(extents[name] for name in outer) * blocks
        return writing.close(builder, groups)

    # --- what streams by --------------------------------------------------------------------------------------------

    def _stream(
        self,
        builder: Builder,
        writing: _KernelWriter,
        values: Mapping[str, Value],
        streamed: _TiledOperands,
        spans: Sequence[tuple[Value, Value, bool]],
        carried: Sequence[tuple[Value, Coopmatrix]],
    ) -> list[Value]:
        """The sums, accumulated over the tiles of some spans; a span that is tested is masked."""
        heads = [writing.head(builder, name, values) for name in streamed.names]
        results, size = [value for value, _ in carried], builder.constant(TILES * STREAMED)
        for begin, last, tested in spans:
            begun = [(value, kind) for value, (_, kind) in zip(results, carried, strict=True)]
            with builder.loop(begin, last, size, carried=begun) as loop:
                sums = [(value, kind) for value, (_, kind) in zip(loop.carried, carried, strict=True)]
                for number in range(TILES):
                    at = loop.variable
                    if number:
                        at = loop.body.arith("add", at, loop.body.constant(number * STREAMED))
                    sums = self._add_tile(loop.body, writing, (streamed, heads), (at, tested), sums)
                loop.body.give(*(value for value, _ in sums))
            results = loop.results
        return results

    def _add_tile(
        self,
        body: Builder,
        writing: _KernelWriter,
        source: tuple[_TiledOperands, Sequence[Value]],
        place: tuple[Value, bool],
        sums: Sequence[tuple[Value, Coopmatrix]],
    ) -> list[tuple[Value, Coopmatrix]]:
        """The sums with those of one tile: first the gradient of the scores, perhaps a second with the weights."""
        (streamed, heads), (at, tested), roles = source, place, self.roles
        tiles = [writing.tile(body, name, head, at) for name, head in zip(streamed.names, heads, strict=True)]
        none, found = body.constant(0.0, SCORES), list(sums)
        scores = body.value(CoopMulAdd(tiles[0], streamed.held[0], none, SCORES))
        logs = streamed.line(body, 0, at)
        if tested:
            places = (streamed.own, at) if streamed.lines is COLUMN else (at, streamed.own)
            scores = _hide(body, scores, *places, keys_are_rows=streamed.lines is ROW)
        lies = _weigh(body, scores, logs, streamed.lines, roles.scale)
        # Begun before, it would have to wait beside the sums of the tile in front, for which there are no registers.
        toward = body.value(CoopMulAdd(tiles[1], streamed.held[1], none, SCORES))
        weights = exponential(body, lies, SCORES)
        if len(sums) > 1:
            total, kind = sums[1]
            back = writing.tile(body, streamed.names[1], heads[1], at, transposed=True)
            found[1] = body.value(CoopMulAdd(back, body.cast(weights, WEIGHTS), total, kind)), kind
        along = streamed.line(body, 1, at)
        steep = body.cast(_score_gradient(body, weights, toward, along), WEIGHTS)
        total, kind = sums[0]
        transposed = writing.tile(body, streamed.names[0], heads[0], at, transposed=True)
        found[0] = body.value(CoopMulAdd(transposed, steep, total, kind)), kind
        return found


@dataclass(frozen=True, slots=True)
class _TiledOperands:
    """What streams past the columns of a subgroup, and what these hold."""

    names: tuple[str, str]
    held: Sequence[Value]
    own: Value
    """Where the columns begin."""
    rows: Sequence[Value]
    """Row values (logarithms, and sums of the output gradient): where they lie, or those of the columns themselves."""
    lines: Coopmatrix

    def line(self, body: Builder, number: int, at: Value) -> Value:
        """Those of a tile, or of the columns."""
        if self.lines is ROW:
            return self.rows[number]
        return body.value(CoopLoad(self.rows[number], at, body.constant(0), COLUMN))


@dataclass(slots=True)
class _KernelWriter:
    """Writes one kernel."""

    roles: BackwardRoles
    sides: Mapping[str, Operand]
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[str, Access] = field(default_factory=dict)

    def begin(self) -> Builder:
        """A builder, when all outputs are known."""
        named = {**self.sides, "logs": self.roles.logs, "along": self.roles.along}
        self.accesses = {name: self.parameters.add(side.key, side.access) for name, side in named.items()}
        return self.parameters.builder()

    def close(self, builder: Builder, groups: int) -> TileKernel:
        """The kernel of what was written."""
        kernel = with_pairs(self.parameters.close(builder, groups))
        return replace(kernel, attributes=group_sizes(TILE // COLUMNS))

    def _spans(self, name: str) -> tuple[tuple[str, int], tuple[str, int]]:
        roles = self.roles
        line = roles.query if name in ("queries", "given") else roles.key
        inner = roles.depth if name in ("queries", "keys") else WIDTH
        return (line, roles.extents[line]), (inner, roles.extents[inner])

    def head(self, builder: Builder, name: str, values: Mapping[str, Value]) -> Value:
        """The vectors of a factor of one head."""
        return head_view(builder, self.accesses[name], *self._spans(name), values)

    def hold(self, builder: Builder, name: str, values: Mapping[str, Value], own: Value) -> Value:
        """The columns of an operand that a subgroup keeps in local memory."""
        kind = Coopmatrix(NARROW, self._spans(name)[1][1], COLUMNS, "matrix_b")
        return builder.value(CoopLoad(self.head(builder, name, values), builder.constant(0), own, kind))

    def tile(self, builder: Builder, name: str, head: Value, at: Value, transposed: bool = False) -> Value:
        """A tile of an operand: its lines as rows, or transposed as columns."""
        width = self._spans(name)[1][1]
        rows, columns = (width, STREAMED) if transposed else (STREAMED, width)
        kind = Coopmatrix(NARROW, rows, columns, "matrix_a")
        return builder.value(CoopLoad(head, builder.constant(0), at, kind, not transposed))

    def row_of(self, builder: Builder, name: str, values: Mapping[str, Value]) -> Value:
        """The row values of one head (one for each query), as a column."""
        roles, access = self.roles, self.accesses[name]
        if access.element != SUMS:
            raise Unsupported("what rows have one of is narrow")
        span = (roles.query, roles.extents[roles.query])
        view = matrix_view(builder, access, [span], {**values, roles.query: builder.constant(0)})
        return view.value

    def store(
        self,
        builder: Builder,
        access: Access,
        lies: tuple[str, str],
        value: Value,
        values: Mapping[str, Value],
    ) -> None:
        """Store sums: vectors of so many columns."""
        inner, line = lies
        extents, zero = self.roles.extents, builder.constant(0)
        if access.element not in FLOATS:
            raise Unsupported("its output is no real")
        if access.element != SUMS:
            value = builder.value(Cast(value, replace(_sums(extents[inner]), element=access.element)))
        spans = [(name, extents[name]) for name in (inner, line)]
        view = matrix_view(builder, access, spans, {**values, inner: zero, line: zero})
        if view.transposed:
            raise Unsupported("vectors do not lie closest in its output")
        builder.put(CoopStore(value, view.value, zero, values[line]))


# --- parts of both ----------------------------------------------------------------------------------------------------


def _sums(width: int) -> Coopmatrix:
    return Coopmatrix(SUMS, width, COLUMNS, "matrix_acc")


def _own_columns(builder: Builder, first: Value) -> Value:
    """Where the columns of a subgroup begin."""
    subgroup = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
    return builder.arith("add", first, builder.arith("mul", subgroup, builder.constant(COLUMNS)))


def _weigh(builder: Builder, scores: Value, logs: Value, lines: Coopmatrix, scale: float) -> Value:
    """What weights are powers of 2 of: scores less the logarithm of the sum of their exponentials."""
    less = builder.value(CoopScale(builder.constant(-1.0 / log(2.0), REAL), logs, lines))
    spread = builder.value(CoopConstruct(less, SCORES))
    return builder.value(Arith("fma", (scores, builder.constant(scale / log(2.0), SCORES), spread), SCORES))


def _score_gradient(builder: Builder, weights: Value, toward: Value, along: Value) -> Value:
    """The gradient of the scores, but for a factor."""
    spread = builder.value(CoopConstruct(along, SCORES))
    return builder.value(
        Arith("mul", (weights, builder.value(Arith("sub", (toward, spread), SCORES))), SCORES)
    )


def _hide(builder: Builder, scores: Value, key: Value, query: Value, keys_are_rows: bool) -> Value:
    """Masked scores: keys later than their query do not count."""
    row, column, value = (builder.names.new() for _ in range(3))
    inner = builder.inner()
    steps = (row, column) if keys_are_rows else (column, row)
    places = [
        inner.arith("add", start, inner.cast(step, INDEX))
        for start, step in zip((key, query), steps, strict=True)
    ]
    hidden = inner.compare("gt", *places)
    inner.give(inner.arith("select", hidden, inner.constant(HIDDEN, REAL), value, type_=REAL))
    return builder.value(CoopApply(row, column, value, scores, SCORES, inner.region()))
