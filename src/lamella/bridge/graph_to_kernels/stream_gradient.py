"""The way back through an attention on Hopper: scores are made again tile by tile, twice, and none is kept.

    keys:     p = exp(c q k - l),  d = p (g v - a);   dv += g' p,  dk += q' d     for 128 keys, queries stream by
    queries:  the same scores                         dq += k' d                  for 128 queries, keys stream by

A work-group has 128 columns, a subgroup 16 of them. Keys and values of the first kernel, queries and what comes back of
the second one stay in local memory; a tile of the others is a factor twice, once turned. Of a causal mask only the
tiles on the diagonal are tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import log, prod

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, matrix_view
from lamella.bridge.graph_to_kernels.attention_gradient import WIDTH, GradientRoles, Side
from lamella.bridge.graph_to_kernels.stream_attention import (
    HIDDEN,
    LANE,
    MOST_WIDE,
    PANEL,
    REAL,
    ROW,
    exponential,
)
from lamella.bridge.graph_to_kernels.stream_sides import (
    NARROW,
    TILE,
    head_view,
    lay_side,
    split_turns,
    with_pairs,
)
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
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
BLOCK = "block"
"""The number of a work-group's columns."""
SCORES = Coopmatrix(SUMS, STREAMED, COLUMNS, "matrix_acc")
COLUMN = Coopmatrix(SUMS, STREAMED, 1, "matrix_acc")
WEIGHTS = Coopmatrix(NARROW, STREAMED, COLUMNS, "matrix_b")


def write_stream_gradient(roles: GradientRoles, real: Scalar, target: Target) -> list[TileKernel]:
    """The kernels of the way back, whose factors may be rounded; Unsupported says why there are none."""
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
    return _GradientWriter(roles, target).write()


@dataclass(slots=True)
class _GradientWriter:
    """The kernels while they are written."""

    roles: GradientRoles
    target: Target
    sides: dict[str, Side] = field(default_factory=dict)
    """Queries, keys, values and what comes back, as matrices of halves."""

    def write(self) -> list[TileKernel]:
        """Those that lay factors, that of keys and values, and that of queries."""
        roles, kernels = self.roles, list[TileKernel]()
        factors = {"queries": roles.queries, "keys": roles.keys, "values": roles.values, "given": roles.given}
        for name, side in factors.items():
            line, inner = self._lies(name)
            loops = (*roles.heads, *roles.share, line, inner)
            access, key, before = lay_side(side.access, (side.key, name), line, loops, roles.extents)
            kernels += before
            self.sides[name] = Side(access, key)
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
            values = split_turns(region, roles.heads, {**extents, BLOCK: blocks}, BLOCK, self.target)
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
        """The gradients of keys and values with what the queries of one head add."""
        roles, (first, own) = self.roles, columns
        heads = [writing.head(builder, name, values) for name in ("queries", "given")]
        rows = [writing.row_of(builder, name, values) for name in ("logs", "along")]
        size, end = builder.constant(STREAMED), builder.constant(roles.extents[roles.query])
        spans = [(builder.constant(0), end, False)]
        if roles.causal:
            middle = builder.arith("add", first, builder.constant(TILE))
            spans = [(first, middle, True), (middle, end, False)]
        results = [value for value, _ in carried]
        for begin, last, tested in spans:
            begun = [(value, kind) for value, (_, kind) in zip(results, carried, strict=True)]
            with builder.loop(begin, last, size, carried=begun) as loop:
                body, at, zero = loop.body, loop.variable, loop.body.constant(0)
                tiles = [
                    writing.tile(body, name, head, at)
                    for name, head in zip(("queries", "given"), heads, strict=True)
                ]
                none = body.constant(0.0, SCORES)
                scores = body.value(CoopMulAdd(tiles[0], held[0], none, SCORES))
                toward = body.value(CoopMulAdd(tiles[1], held[1], none, SCORES))
                logs = body.value(CoopLoad(rows[0], at, zero, COLUMN))
                if tested:
                    scores = _hide(body, scores, key=own, query=at, keys_are_rows=False)
                weights = _weigh(body, scores, logs, COLUMN, roles.scale)
                back = writing.tile(body, "given", heads[1], at, turned=True)
                narrow = body.cast(weights, WEIGHTS)
                values_sum = body.value(CoopMulAdd(back, narrow, loop.carried[1], carried[1][1]))
                along = body.value(CoopLoad(rows[1], at, zero, COLUMN))
                steep = body.cast(_steepen(body, weights, toward, along), WEIGHTS)
                turned = writing.tile(body, "queries", heads[0], at, turned=True)
                keys_sum = body.value(CoopMulAdd(turned, steep, loop.carried[0], carried[0][1]))
                body.give(keys_sum, values_sum)
            results = loop.results
        return results

    # --- queries ----------------------------------------------------------------------------------------------------

    def _write_queries(self) -> TileKernel:
        roles, extents = self.roles, self.roles.extents
        writing = _KernelWriter(roles, self.sides)
        output = writing.parameters.add(roles.to_queries.key, roles.to_queries.access)
        builder = writing.begin()
        outer = (*roles.heads, *roles.share)
        with builder.parallel() as region:
            blocks = extents[roles.query] // TILE
            values = split_turns(region, outer, {**extents, BLOCK: blocks}, BLOCK, self.target)
            # The last queries see most keys.
            block = region.arith("sub", region.constant(blocks - 1), values[BLOCK])
            first = region.arith("mul", block, region.constant(TILE))
            own = _own_columns(region, first)
            held = [writing.hold(region, name, values, own) for name in ("queries", "given")]
            zero = region.constant(0)
            rows = [
                region.value(CoopLoad(writing.row_of(region, name, values), own, zero, ROW, True))
                for name in ("logs", "along")
            ]
            total = self._stream_keys(region, writing, values, (first, own), held, rows)
            kind = _sums(extents[roles.depth])
            total = region.value(CoopScale(region.constant(roles.factor, REAL), total, kind))
            writing.store(region, output, (roles.depth, roles.query), total, {**values, roles.query: own})
        groups = prod(extents[name] for name in outer) * blocks
        return writing.close(builder, groups)

    def _stream_keys(
        self,
        builder: Builder,
        writing: _KernelWriter,
        values: Mapping[str, Value],
        columns: tuple[Value, Value],
        held: Sequence[Value],
        rows: Sequence[Value],
    ) -> Value:
        """The gradient of queries."""
        roles, (first, own) = self.roles, columns
        heads = [writing.head(builder, name, values) for name in ("keys", "values")]
        zero, size = builder.constant(0), builder.constant(STREAMED)
        kind = _sums(roles.extents[roles.depth])
        spans = [(zero, builder.constant(roles.extents[roles.key]), False)]
        if roles.causal:
            spans = [(zero, first, False), (first, builder.arith("add", first, builder.constant(TILE)), True)]
        result = builder.constant(0.0, kind)
        for begin, last, tested in spans:
            with builder.loop(begin, last, size, carried=[(result, kind)]) as loop:
                body, at = loop.body, loop.variable
                tiles = [
                    writing.tile(body, name, head, at)
                    for name, head in zip(("keys", "values"), heads, strict=True)
                ]
                none = body.constant(0.0, SCORES)
                scores = body.value(CoopMulAdd(tiles[0], held[0], none, SCORES))
                toward = body.value(CoopMulAdd(tiles[1], held[1], none, SCORES))
                if tested:
                    scores = _hide(body, scores, key=at, query=own, keys_are_rows=True)
                weights = _weigh(body, scores, rows[0], ROW, roles.scale)
                steep = body.cast(_steepen(body, weights, toward, rows[1]), WEIGHTS)
                turned = writing.tile(body, "keys", heads[0], at, turned=True)
                body.give(body.value(CoopMulAdd(turned, steep, loop.carried[0], kind)))
            (result,) = loop.results
        return result


@dataclass(slots=True)
class _KernelWriter:
    """One kernel while it is written."""

    roles: GradientRoles
    sides: Mapping[str, Side]
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
        """The columns of a subgroup of a factor."""
        kind = Coopmatrix(NARROW, self._spans(name)[1][1], COLUMNS, "matrix_b")
        return builder.value(CoopLoad(self.head(builder, name, values), builder.constant(0), own, kind))

    def tile(self, builder: Builder, name: str, head: Value, at: Value, turned: bool = False) -> Value:
        """A tile of a factor: its lines as rows, or turned as columns."""
        width = self._spans(name)[1][1]
        rows, columns = (width, STREAMED) if turned else (STREAMED, width)
        kind = Coopmatrix(NARROW, rows, columns, "matrix_a")
        return builder.value(CoopLoad(head, builder.constant(0), at, kind, not turned))

    def row_of(self, builder: Builder, name: str, values: Mapping[str, Value]) -> Value:
        """The numbers of one head that each query has one of, as a column."""
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
    """The weights of scores: exponentials less the logarithm of their sum."""
    less = builder.value(CoopScale(builder.constant(-1.0 / log(2.0), REAL), logs, lines))
    spread = builder.value(CoopConstruct(less, SCORES))
    lies = builder.value(Arith("fma", (scores, builder.constant(scale / log(2.0), SCORES), spread), SCORES))
    return exponential(builder, lies, SCORES)


def _steepen(builder: Builder, weights: Value, toward: Value, along: Value) -> Value:
    """What comes back to scores, but for a factor."""
    spread = builder.value(CoopConstruct(along, SCORES))
    return builder.value(
        Arith("mul", (weights, builder.value(Arith("sub", (toward, spread), SCORES))), SCORES)
    )


def _hide(builder: Builder, scores: Value, key: Value, query: Value, keys_are_rows: bool) -> Value:
    """Scores without those of keys that come later than their query."""
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
