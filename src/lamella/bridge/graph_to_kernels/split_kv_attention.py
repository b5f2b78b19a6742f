"""Split-KV attention (flash decoding): a few queries, whose keys several work-groups share; any number of keys.

    s[q, k] += query[q, …] * key[k, …];   m >= s, e = exp(s - m), l += e;   y[q, d] += e[q, k] * value[k, d] / l

Each subgroup goes along some keys by itself with online softmax: the running maximum, the sum of the weights and its
part of the mixture stay in registers. The subgroups of a work-group meet once, in local memory. A second kernel
combines the partial results of the work-groups of a head.

The first keys of a subgroup depend on nothing that a run tells, so they are prefetched before anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.attention import (
    Attention,
    AttentionRoles,
    AttentionWriter,
    find_attention_roles,
)
from lamella.bridge.graph_to_kernels.decode_attention import MOST_QUERIES, pieces_at_once, verify_warp_vectors
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.gemv import promise_vector_loads
from lamella.bridge.graph_to_kernels.softmax import SoftmaxReader, divided, read_softmax
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import Key, Tensors, walk_terms
from lamella.kernels.build import Builder
from lamella.kernels.fragments import WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Barrier, Math, Scalar, SubgroupBroadcast, SubgroupOperation, Value
from lamella.lang.tensor.nodes.types import FLOATS, INDEX, make_memref
from lamella.ops.formula import Element

SUBGROUPS = 8
"""Subgroups of a work-group."""
MOST_PARTS = 8
"""Work-groups that share the keys of a head."""
FEWEST_KEYS = 64
"""Keys above which a head is worth more than one work-group."""
AT_ONCE = 4
"""Keys of a subgroup whose vectors are in flight at once."""
HIDDEN = -(2.0**120)
"""The score of masked keys: less than any; a number, so that its difference to itself is one."""
PART = "part"
SPLIT = ".split"
"""How the names of the temporaries of partial results begin."""
PARTS: Key = (f"{SPLIT}_parts", None)
MOST: Key = (f"{SPLIT}_most", None)
TOTAL: Key = (f"{SPLIT}_total", None)
LANE, REAL = Scalar("i32"), Scalar("f32")


def write_split_kv_attention(
    attention: Attention, tensors: Tensors, real: Scalar, target: Target
) -> list[TileKernel]:
    """The two kernels of an attention of few queries; Unsupported says why there are none."""
    if not target.has_threads:
        raise Unsupported("work-items are lanes")
    roles = find_attention_roles(attention, tensors, real, target, MOST_QUERIES)
    roles = replace(roles, rows=roles.extents[roles.query])
    verify_warp_vectors(roles)
    softmax = read_softmax(roles)
    roles = replace(roles, epilogues=tuple(divided(item, roles, softmax) for item in roles.epilogues))
    made = {item.formula.targets[0].tensor for item in roles.stages}
    read = {
        item.tensor
        for end in roles.epilogues
        for item in walk_terms(end.formula)
        if isinstance(item, Element)
    }
    if made & (roles.attention.outputs | read):
        raise Unsupported("others read its rows")
    if softmax.masked and (roles.visible is None or roles.visible.first is not None):
        raise Unsupported("its mask is no last key")
    heads = prod(roles.extents[name] for name in roles.outer)
    parts = min(MOST_PARTS, target.multiprocessors // heads, -(-roles.extents[roles.key] // SUBGROUPS))
    if parts < 2 or roles.extents[roles.key] < FEWEST_KEYS:
        raise Unsupported("its heads alone are enough work-groups")
    return [
        _PartWriter(roles, tensors, softmax=softmax, parts=parts).write(),
        _JoinWriter(roles, tensors, parts, bool(softmax.weights)).write(),
    ]


def _held(roles: AttentionRoles, parts: int, inner: Sequence[tuple[str, int]]) -> Access:
    """The temporary of partial results of each part of each head, by some loops more; the last of them contiguous."""
    loops = [(name, roles.extents[name]) for name in roles.outer] + [(PART, parts), *inner]
    axes, stride = list[Axis](), 1
    for name, size in reversed(loops):
        index: Form = Affine(0, ((name, 1),))
        axes.append(Axis(size, stride, index))
        stride *= size
    return Access(Value(""), REAL.name, tuple(reversed(axes)))


def _exponential(builder: Builder, number: Value, most: Value) -> Value:
    return builder.value(Math("exp", (builder.arith("sub", number, most, type_=REAL),), REAL))


@dataclass(frozen=True, slots=True)
class _State:
    """The online softmax state of each query: running maximum, sum of weights, part of the mixture."""

    most: list[Value]
    total: list[Value]
    sums: list[list[Value]]

    def values(self) -> list[Value]:
        """The state as a list of values, as loops carry it."""
        return [*self.most, *self.total, *(item for row in self.sums for item in row)]

    def taken(self, values: Sequence[Value]) -> _State:
        """A state from such a list."""
        count, each = len(self.most), len(self.sums[0])
        rest = values[2 * count :]
        rows = [list(rest[start : start + each]) for start in range(0, len(rest), each)]
        return _State(list(values[:count]), list(values[count : 2 * count]), rows)


@dataclass(slots=True)
class _PartWriter(AttentionWriter):
    """Writes the kernel of the partial results of a work-group."""

    softmax: SoftmaxReader = field(kw_only=True)
    parts: int = field(kw_only=True)
    lane: Value = Value("")
    subgroup: Value = Value("")
    first: Value = Value("")
    """The first key of a subgroup, one of those of all parts."""
    last: list[Value] = field(default_factory=list)
    """The last visible key of each query; nothing where all are visible."""

    @property
    def _query(self) -> Form:
        """The number of a query among all."""
        return Affine(0, ((self.roles.query, 1),))

    @property
    def keys(self) -> int:
        """Of one head."""
        return self.roles.extents[self.roles.key]

    @property
    def step(self) -> int:
        """From one key of a subgroup to its next."""
        return self.parts * SUBGROUPS

    def write(self) -> TileKernel:
        """Write it."""
        roles, depth = self.roles, self.roles.depth[0]
        accesses = roles.query_access, roles.key_access, roles.value_access
        sides = [self.parameters.add(key, access) for key, access in zip(roles.keys, accesses, strict=True)]
        builder = self.parameters.builder()
        values = delinearize_group(builder, [*roles.outer, PART], {**roles.extents, PART: self.parts})
        width = roles.extents[roles.width]
        sums = builder.alloca(make_memref("f32", (width, roles.rows, SUBGROUPS), local=True))
        rows = builder.alloca(make_memref("f32", (roles.rows, SUBGROUPS, 2), local=True))
        with builder.parallel() as region:
            self.lane = region.cast(region.builtin("subgroup_local_id", LANE), INDEX)
            self.subgroup = region.cast(region.builtin("subgroup_id", LANE), INDEX)
            part = region.arith("mul", values[PART], region.constant(SUBGROUPS))
            self.first = region.arith("add", part, self.subgroup)
            self._find_last(region, values)
            queries = [
                self._load_vector(region, sides[0], {**values, roles.query: region.constant(query)}, depth)
                for query in range(roles.rows)
            ]
            state = self._attend(region, values, queries, sides)
            self._spill_state(region, state, sums, rows)
            region.put(Barrier(on_local=True))
            self._finish(region, values, sums, rows)
        kernel = self.parameters.close(
            builder, prod(roles.extents[name] for name in roles.outer) * self.parts
        )
        for side, loop in zip(sides, (depth, depth, roles.width), strict=True):
            kernel = promise_vector_loads(kernel, [side], pieces_at_once(side, roles.extents[loop] // WARP))
        return replace(kernel, attributes=group_sizes(SUBGROUPS))

    def _find_last(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """The last key that counts for each query."""
        visible = self.roles.visible
        if not self.softmax.masked or visible is None:
            return
        once = self.roles.query not in visible.last.form.symbols
        for query in range(self.roles.rows):
            here = {**values, self.roles.query: builder.constant(query)}
            same = once and self.last
            self.last.append(self.last[0] if same else self._last_key(builder, visible.last, here))

    def _load_vector(
        self, builder: Builder, access: Access, values: Mapping[str, Value], along: str
    ) -> list[Value]:
        """What a work-item has of a vector: elements side by side."""
        each = self.roles.extents[along] // WARP
        first = builder.arith("mul", self.lane, builder.constant(each))
        found = []
        for step in range(each):
            place = builder.arith("add", first, builder.constant(step)) if step else first
            where = access.places(builder, {**values, along: place})
            value = builder.load(access.memref, where, Scalar(access.element))
            found.append(value if access.element == REAL.name else builder.cast(value, REAL))
        return found

    # --- keys and values --------------------------------------------------------------------------------------------

    def _attend(
        self,
        builder: Builder,
        values: Mapping[str, Value],
        queries: Sequence[Sequence[Value]],
        sides: Sequence[Access],
    ) -> _State:
        """All keys of a subgroup: a first trip of known keys, then a loop up to the last visible one."""
        count = min(AT_ONCE, -(-self.keys // self.step))
        keys = [self._key(builder, self.first, step) for step in range(count)]
        state = self._take_keys(builder, values, (queries, sides, keys), None)
        if count * self.step >= self.keys:
            return state
        begin = builder.arith("add", self.first, builder.constant(count * self.step))
        end = builder.constant(self.keys)
        for number, item in enumerate(dict.fromkeys(self.last)):
            behind = builder.arith("add", item, builder.constant(1))
            end = builder.arith("max", end, behind) if number else behind
        by = builder.constant(AT_ONCE * self.step)
        with builder.loop(begin, end, by, [(item, REAL) for item in state.values()]) as loop:
            keys = [self._key(loop.body, loop.variable, step) for step in range(AT_ONCE)]
            taken = state.taken(loop.carried)
            loop.body.give(*self._take_keys(loop.body, values, (queries, sides, keys), taken).values())
        return state.taken(loop.results)

    def _key(self, builder: Builder, first: Value, step: int) -> Value:
        return builder.arith("add", first, builder.constant(step * self.step)) if step else first

    def _take_keys(
        self,
        builder: Builder,
        values: Mapping[str, Value],
        given: tuple[Sequence[Sequence[Value]], Sequence[Access], Sequence[Value]],
        before: _State | None,
    ) -> _State:
        """Update the state with some keys; those that are hidden or not there count for nothing."""
        (queries, sides, keys), roles = given, self.roles
        most = builder.constant(self.keys - 1)
        places = [{**values, roles.key: builder.arith("min", key, most)} for key in keys]
        vectors = [self._load_vector(builder, sides[1], place, roles.depth[0]) for place in places]
        mixed = [self._load_vector(builder, sides[2], place, roles.width) for place in places]
        seen = [self._is_seen(builder, key) for key in keys]
        zero, hidden = builder.constant(0.0, REAL), builder.constant(HIDDEN, REAL)
        found = _State([], [], [])
        for number, query in enumerate(queries):
            scores = []
            for vector, sight in zip(vectors, seen, strict=True):
                score = self._score(builder, vector, query)
                scores.append(builder.arith("select", sight[number], score, hidden, type_=REAL))
            top = scores[0] if before is None else before.most[number]
            for score in scores[before is None :]:
                top = builder.arith("max", top, score, type_=REAL)
            total, sums = zero, [zero] * len(mixed[0])
            if before is not None:
                shrinks = _exponential(builder, before.most[number], top)
                total = builder.arith("mul", before.total[number], shrinks, type_=REAL)
                sums = [builder.arith("mul", item, shrinks, type_=REAL) for item in before.sums[number]]
            for score, sight, vector in zip(scores, seen, mixed, strict=True):
                weight = _exponential(builder, score, top)
                weight = builder.arith("select", sight[number], weight, zero, type_=REAL)
                total = builder.arith("add", total, weight, type_=REAL)
                kept = [builder.arith("select", sight[number], item, zero, type_=REAL) for item in vector]
                sums = [
                    builder.arith("fma", weight, item, held, type_=REAL)
                    for item, held in zip(kept, sums, strict=True)
                ]
            found = _State([*found.most, top], [*found.total, total], [*found.sums, sums])
        return found

    def _is_seen(self, builder: Builder, key: Value) -> list[Value]:
        """Whether each query sees a key."""
        if not self.last:
            return [builder.compare("lt", key, builder.constant(self.keys))] * self.roles.rows
        known: dict[Value, Value] = {}
        for item in self.last:
            if item not in known:
                known[item] = builder.compare("le", key, item)
        return [known[item] for item in self.last]

    def _score(self, builder: Builder, vector: Sequence[Value], query: Sequence[Value]) -> Value:
        total = builder.constant(0.0, REAL)
        for one, other in zip(vector, query, strict=True):
            total = builder.arith("fma", one, other, total, type_=REAL)
        whole = builder.value(SubgroupOperation("add", "reduce", total, REAL))
        return builder.arith("mul", whole, builder.constant(self.softmax.scale, REAL), type_=REAL)

    # --- what a work-group has ----------------------------------------------------------------------------------------

    def _spill_state(self, builder: Builder, state: _State, sums: Value, rows: Value) -> None:
        """Put the state of a subgroup into local memory."""
        each = len(state.sums[0])
        first = builder.arith("mul", self.lane, builder.constant(each))
        for query, row in enumerate(state.sums):
            for step, item in enumerate(row):
                place = builder.arith("add", first, builder.constant(step)) if step else first
                builder.store(item, sums, [place, builder.constant(query), self.subgroup])
        with builder.condition(builder.compare("eq", self.lane, builder.constant(0))) as inner:
            for query in range(len(state.most)):
                for number, item in enumerate((state.most[query], state.total[query])):
                    places = [inner.constant(query), self.subgroup, inner.constant(number)]
                    inner.store(item, rows, places)

    def _finish(self, builder: Builder, values: Mapping[str, Value], sums: Value, rows: Value) -> None:
        """Combine the states of the subgroups; each work-item has some elements of the mixture."""
        roles, width = self.roles, self.roles.extents[self.roles.width]
        inner = (roles.query, roles.rows)
        parts = self.parameters.add(PARTS, _held(roles, self.parts, [inner, (roles.width, width)]))
        most, total = (self.parameters.add(key, _held(roles, self.parts, [inner])) for key in (MOST, TOTAL))
        first = builder.arith("mul", self.subgroup, builder.constant(WARP))
        thread = builder.arith("add", first, self.lane)
        bounds = builder.constant(roles.rows * width), builder.constant(SUBGROUPS * WARP)
        with builder.loop(thread, *bounds) as loop:
            body, size = loop.body, loop.body.constant(width)
            place, query = body.arith("rem", loop.variable, size), body.arith("div", loop.variable, size)
            tops, totals = (
                [
                    body.load(rows, [query, body.constant(item), body.constant(number)], REAL)
                    for item in range(SUBGROUPS)
                ]
                for number in (0, 1)
            )
            held = [body.load(sums, [place, query, body.constant(item)], REAL) for item in range(SUBGROUPS)]
            top, whole, mixture = combine_partials(body, tops, totals, held)
            here = {**values, roles.query: query, roles.width: place}
            body.store(mixture, parts.memref, parts.places(body, here))
            with body.condition(body.compare("eq", place, body.constant(0))) as inside:
                inside.store(top, most.memref, most.places(inside, here))
                inside.store(whole, total.memref, total.places(inside, here))


def combine_partials(
    builder: Builder, tops: Sequence[Value], totals: Sequence[Value], sums: Sequence[Value]
) -> tuple[Value, Value, Value]:
    """Combine partial results: the maximum, the sum of weights, and an element of the mixture."""
    factors, top = rescale_factors(builder, tops)
    return top, weighted(builder, factors, totals), weighted(builder, factors, sums)


def rescale_factors(builder: Builder, tops: Sequence[Value]) -> tuple[list[Value], Value]:
    """The factors that rescale partial results to a common maximum, and that maximum."""
    top = tops[0]
    for item in tops[1:]:
        top = builder.arith("max", top, item, type_=REAL)
    return [_exponential(builder, item, top) for item in tops], top


def weighted(builder: Builder, factors: Sequence[Value], given: Sequence[Value]) -> Value:
    """The sum of products."""
    total = builder.arith("mul", factors[0], given[0], type_=REAL)
    for factor, item in zip(factors[1:], given[1:], strict=True):
        total = builder.arith("fma", factor, item, total, type_=REAL)
    return total


@dataclass(slots=True)
class _JoinWriter:
    """Writes the kernel that combines the partial results of all heads: a subgroup for each query."""

    roles: AttentionRoles
    tensors: Tensors
    parts: int
    divides_weights: bool
    """Whether weights are divided by their sum, not the mixture: without keys that is NaN then, else 0."""
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)

    def write(self) -> TileKernel:
        """Write it."""
        roles, width = self.roles, self.roles.extents[self.roles.width]
        for end in roles.epilogues:
            for key, access in end.accesses.items():
                if key not in roles.sums:
                    self.accesses[key] = self.parameters.add(end.keys[key], access)
        inner = (roles.query, roles.rows)
        parts = self.parameters.add(PARTS, _held(roles, self.parts, [inner, (roles.width, width)]))
        rows = [self.parameters.add(key, _held(roles, self.parts, [inner])) for key in (MOST, TOTAL)]
        builder = self.parameters.builder()
        values = delinearize_group(builder, [*roles.outer, roles.query], roles.extents)
        with builder.parallel() as region:
            lane = region.builtin("subgroup_local_id", LANE)
            first = region.arith("mul", region.cast(lane, INDEX), region.constant(width // WARP))
            places = [
                region.arith("add", first, region.constant(step)) if step else first
                for step in range(width // WARP)
            ]
            held = [self._load_parts(region, parts, {**values, roles.width: place}) for place in places]
            factors, whole = self._find_factors(region, lane, rows, values)
            shrinks = region.arith("div", region.constant(1.0, REAL), whole, type_=REAL)
            if not self.divides_weights:
                zero = region.constant(0.0, REAL)
                none = region.compare("eq", whole, zero)
                shrinks = region.arith("select", none, zero, shrinks, type_=REAL)
            for place, row in zip(places, held, strict=True):
                mixture = region.arith("mul", weighted(region, factors, row), shrinks, type_=REAL)
                self._store(region, {**values, roles.width: place}, mixture)
        kernel = self.parameters.close(
            builder, prod(roles.extents[name] for name in roles.outer) * roles.rows
        )
        kernel = promise_vector_loads(kernel, [parts], min(4, width // WARP))
        return replace(kernel, attributes=group_sizes(1))

    def _load_parts(self, builder: Builder, parts: Access, values: Mapping[str, Value]) -> list[Value]:
        """An element of the mixture of each part."""
        found = []
        for part in range(self.parts):
            here = {**values, PART: builder.constant(part)}
            found.append(builder.load(parts.memref, parts.places(builder, here), REAL))
        return found

    def _find_factors(
        self, builder: Builder, lane: Value, rows: Sequence[Access], values: Mapping[str, Value]
    ) -> tuple[list[Value], Value]:
        """The rescaling factor of each part, and the sum of all weights; each lane knows one part."""
        own = builder.arith("min", lane, builder.constant(self.parts - 1, LANE), type_=LANE)
        here = {**values, PART: builder.cast(own, INDEX)}
        top, total = (builder.load(item.memref, item.places(builder, here), REAL) for item in rows)
        most = builder.value(SubgroupOperation("max", "reduce", top, REAL))
        factor = _exponential(builder, top, most)
        is_own = builder.compare("lt", lane, builder.constant(self.parts, LANE))
        weight = builder.arith("mul", factor, total, type_=REAL)
        weight = builder.arith("select", is_own, weight, builder.constant(0.0, REAL), type_=REAL)
        lanes = [builder.constant(part, LANE) for part in range(self.parts)]
        factors = [builder.value(SubgroupBroadcast(factor, item, REAL)) for item in lanes]
        return factors, builder.value(SubgroupOperation("add", "reduce", weight, REAL))

    def _store(self, builder: Builder, here: Mapping[str, Value], mixture: Value) -> None:
        """Store what outputs are made of an element of the mixture."""
        roles = self.roles
        for end in roles.epilogues:
            result = mixture
            if end.formula.values[0] is not end.formula.targets[0]:
                writing = EpilogueWriter(REAL, self.tensors, end.extents, [builder])
                writing.accesses, writing.loops = self.accesses, here
                result = writing.epilogue_value(end, roles.attention.mixture.targets[0].tensor, mixture)
            access = self.accesses[id(end.formula.targets[0])]
            if access.element not in FLOATS:
                raise Unsupported("its output is no real")
            if access.element != REAL.name:
                result = builder.cast(result, Scalar(access.element))
            builder.store(result, access.memref, access.places(builder, here))
