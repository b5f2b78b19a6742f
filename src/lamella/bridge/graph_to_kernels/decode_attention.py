"""Attention of a decoding step in one kernel on a GPU: a few queries, among them all heads that share keys (GQA).

    s[q, k] += query[q, …] * key[k, …];   rows: m >= f(s), e = exp(s - m), …;   y[q, d] += w[q, k] * value[k, d]

Nothing is read twice, so memory bandwidth decides. The subgroups of a work-group share the keys of one head: each goes
along the vectors of some keys, and keeps the queries in registers. One subgroup has the row operations of each query.
Values are read as keys were, and partial results of all subgroups meet in local memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import gcd, prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis, form_value
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.attention import (
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
from lamella.bridge.graph_to_kernels.gemv import PIECE, promise_vector_loads
from lamella.bridge.graph_to_kernels.terms import stored_type
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import Key, Tensors, key_of
from lamella.kernels.build import Builder
from lamella.kernels.fragments import WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Barrier, Scalar, SubgroupOperation, Value
from lamella.lang.tensor.nodes.types import FLOATS, INDEX, make_memref

SUBGROUPS = 16
"""Subgroups that share the keys of a head."""
THREADS = SUBGROUPS * WARP
MOST_QUERIES = 8
"""Queries of a work-group, which each subgroup keeps in registers."""
MOST_KEYS = 1024
"""Keys above which one work-group for each head is too few of them."""
AT_ONCE, MOST_FIRST = 8, 12
"""Keys of a subgroup whose vectors are in flight at once, and how many of them it begins with.

Where its first keys lie depends on nothing that a run tells, so that they can be loaded before anything else.
"""
MOST_WHOLE = 512
"""The most keys for which row operations are unrolled, so that a work-item waits for nothing between its keys."""
TOGETHER = {"+=": "add", ">=": "max", "<=": "min"}
"""The subgroup operation that combines parts of a reduction."""
LANE = Scalar("i32")


def write_decode_attention(
    attention: Attention, tensors: Tensors, real: Scalar, target: Target
) -> TileKernel:
    """The kernel of an attention of few queries; Unsupported says why there is none."""
    if not target.has_threads:
        raise Unsupported("work-items are lanes")
    roles = find_attention_roles(attention, tensors, real, target, MOST_QUERIES)
    roles = replace(roles, rows=roles.extents[roles.query])
    verify_warp_vectors(roles)
    if roles.extents[roles.key] > MOST_KEYS:
        raise Unsupported("it has many keys")
    scratch = roles.rows * (roles.extents[roles.key] + SUBGROUPS * roles.extents[roles.width] + 2 * WARP)
    if 4 * scratch > target.local_bytes:
        raise Unsupported("its scores do not fit into local memory")
    return _DecodeAttentionWriter(roles, tensors).write()


def verify_warp_vectors(roles: AttentionRoles) -> None:
    """Refuse vectors that a subgroup does not read in coalesced pieces."""
    if any(map(is_open, roles.extents.values())) or len(roles.depth) != 1 or roles.real.name != "f32":
        raise Unsupported("its extents are open, or its scores sums over several loops")
    depth, width = roles.extents[roles.depth[0]], roles.extents[roles.width]
    if roles.rows > MOST_QUERIES or depth % WARP or width % WARP:
        raise Unsupported("it has many queries, or its vectors are no multiples of a subgroup")
    if any(key[0] in roles.places for key in roles.keys):
        raise Unsupported("it reads what it makes")
    along = [(roles.query_access, roles.depth[0]), (roles.key_access, roles.depth[0])]
    if any(access.stride(loop) != 1 for access, loop in [*along, (roles.value_access, roles.width)]):
        raise Unsupported("its vectors do not lie along their dimension")


def pieces_at_once(access: Access, each: int) -> int:
    """Elements of a vectorised load of a work-item, aligned to their number."""
    *others, _ = access.axes
    return gcd(PIECE // BYTES[access.element], each, *(axis.stride for axis in others))


def lane_elements(builder: Builder, lane: Value, extent: int) -> list[Value]:
    """The contiguous elements of a vector that a lane of a warp has."""
    each = extent // WARP
    first = builder.arith("mul", lane, builder.constant(each))
    return [builder.arith("add", first, builder.constant(step)) if step else first for step in range(each)]


@dataclass(slots=True)
class _DecodeAttentionWriter(AttentionWriter):
    """Writes the kernel; one region of work-items, with barriers."""

    lane: Value = Value("")
    subgroup: Value = Value("")
    end: Value = Value("")
    """The number behind the last key that counts."""
    last: Value = Value("")
    ahead: list[list[Value]] = field(default_factory=list)
    """Prefetched values of the first keys of a subgroup, loaded before the weights are known."""

    @property
    def keys(self) -> int:
        """Of one head."""
        return self.roles.extents[self.roles.key]

    @property
    def begun(self) -> int:
        """Keys of the first trip of a subgroup."""
        return min(-(-self.keys // SUBGROUPS), MOST_FIRST)

    @property
    def has_more(self) -> bool:
        """Whether there are more keys than those of the first trip."""
        return self.begun * SUBGROUPS < self.keys

    @property
    def _query(self) -> Form:
        """The number of a query among all."""
        return Affine(0, ((self.roles.query, 1),))

    def _outside(self, key: Key, access: Access) -> Access:
        return self.parameters.add(key, access)

    def write(self) -> TileKernel:
        """Write it."""
        roles = self.roles
        self._bind()
        accesses = roles.query_access, roles.key_access, roles.value_access
        sides = [self.parameters.add(key, access) for key, access in zip(roles.keys, accesses, strict=True)]
        builder = self.parameters.builder()
        values = delinearize_group(builder, roles.outer, roles.extents)
        width, padded = roles.extents[roles.width], -(-self.keys // WARP) * WARP
        scores = builder.alloca(make_memref("f32", (roles.rows, padded), local=True))
        parts = builder.alloca(make_memref("f32", (width, roles.rows, SUBGROUPS), local=True))
        self.locals = {roles.attention.scores.targets[0].tensor: scores}
        for key, name in roles.sums.items():
            if name not in self.sums:
                self.sums[name] = builder.alloca(make_memref("f32", (roles.rows,), local=True))
            query: Form = Affine(0, ((QUERY, 1),))
            self.accesses[key] = Access(self.sums[name], "f32", (Axis(roles.rows, 1, query),), True)
        with builder.parallel() as region:
            self.lane = region.cast(region.builtin("subgroup_local_id", LANE), INDEX)
            self.subgroup = region.cast(region.builtin("subgroup_id", LANE), INDEX)
            self._find_end(region, values)
            self._score(region, values, sides[0], sides[1])
            first = self._first_keys(region)
            self.ahead = self._load_vectors(region, values, (sides[2], roles.width), first)
            region.put(Barrier(on_local=True))
            with region.condition(region.compare("lt", self.subgroup, region.constant(roles.rows))) as inner:
                here = {**values, QUERY: self.subgroup, roles.query: self.subgroup}
                known: dict[str, Value] = {}
                for number, stage in enumerate(roles.stages):
                    self._write_row_stage(inner, number, stage, here, known)
            region.put(Barrier(on_local=True))
            self._mix_values(region, values, sides[2], parts)
            region.put(Barrier(on_local=True))
            self._finish(region, values, parts)
        groups = prod(roles.extents[name] for name in roles.outer)
        kernel = self.parameters.close(builder, groups)
        for side, loop in zip(sides, (roles.depth[0], roles.depth[0], roles.width), strict=True):
            kernel = promise_vector_loads(kernel, [side], pieces_at_once(side, roles.extents[loop] // WARP))
        return replace(kernel, attributes=group_sizes(SUBGROUPS))

    def _find_end(self, builder: Builder, values: Mapping[str, Value]) -> None:
        """The keys that count: those that the last query sees."""
        roles, visible = self.roles, self.roles.visible
        if visible is None:
            self.last = builder.constant(roles.extents[roles.key] - 1)
        else:
            bottom = {**values, roles.query: builder.constant(roles.rows - 1)}
            self.last = self._key_place(builder, visible.last, bottom)
        self.end = builder.arith("add", self.last, builder.constant(1))

    def _load(self, builder: Builder, access: Access, values: Mapping[str, Value]) -> Value:
        value = builder.load(access.memref, access.places(builder, values), Scalar(access.element))
        return value if access.element == "f32" else builder.cast(value, self.roles.real)

    def _first_keys(self, builder: Builder) -> list[Value]:
        """The keys of the first trip; those that are not there are the last one again."""
        keys = []
        for step in range(self.begun):
            key = builder.arith("add", self.subgroup, builder.constant(step * SUBGROUPS))
            is_cut = (step + 1) * SUBGROUPS > self.keys
            keys.append(builder.arith("min", key, builder.constant(self.keys - 1)) if is_cut else key)
        return keys

    def _keys_at_once(self, builder: Builder, first: Value) -> list[Value]:
        """The keys of a later trip of a subgroup; those behind the last that counts are that one again."""
        steps = [builder.constant(step * SUBGROUPS) for step in range(AT_ONCE)]
        keys = [builder.arith("add", first, step) if number else first for number, step in enumerate(steps)]
        return [builder.arith("min", key, self.last) for key in keys]

    def _more_keys(self, builder: Builder) -> tuple[Value, Value, Value]:
        """The loop over the keys behind those that a subgroup begins with."""
        first = builder.arith("add", self.subgroup, builder.constant(self.begun * SUBGROUPS))
        return first, self.end, builder.constant(AT_ONCE * SUBGROUPS)

    def _load_vectors(
        self,
        builder: Builder,
        values: Mapping[str, Value],
        source: tuple[Access, str],
        keys: Sequence[Value],
    ) -> list[list[Value]]:
        """What a work-item has of the vectors of one trip: all loads are in flight at once."""
        access, along = source
        places = lane_elements(builder, self.lane, self.roles.extents[along])
        return [
            [self._load(builder, access, {**values, self.roles.key: key, along: place}) for place in places]
            for key in keys
        ]

    def _score(self, builder: Builder, values: Mapping[str, Value], queries: Access, keys: Access) -> None:
        """The scores, trip by trip, or all in one."""
        roles, name = self.roles, self.roles.depth[0]
        own = [
            [
                self._load(builder, queries, {**values, roles.query: builder.constant(query), name: place})
                for place in lane_elements(builder, self.lane, roles.extents[name])
            ]
            for query in range(roles.rows)
        ]
        self._score_trip(builder, values, (keys, name), self._first_keys(builder), own)
        if self.has_more:
            with builder.loop(*self._more_keys(builder)) as loop:
                numbers = self._keys_at_once(loop.body, loop.variable)
                self._score_trip(loop.body, values, (keys, name), numbers, own)

    def _score_trip(
        self,
        builder: Builder,
        values: Mapping[str, Value],
        source: tuple[Access, str],
        numbers: Sequence[Value],
        queries: Sequence[Sequence[Value]],
    ) -> None:
        """The scores of some keys; work-item q stores those of query q."""
        roles, real = self.roles, self.roles.real
        loaded = self._load_vectors(builder, values, source, numbers)
        found = []
        for vector in loaded:
            totals = [self._dot(builder, vector, query) for query in queries]
            total = totals[0]
            for number, other in enumerate(totals[1:], 1):
                mine = builder.compare("eq", self.lane, builder.constant(number))
                total = builder.arith("select", mine, other, total, type_=real)
            found.append(total)
        scores = self.locals[roles.attention.scores.targets[0].tensor]
        with builder.condition(builder.compare("lt", self.lane, builder.constant(roles.rows))) as inner:
            for key, total in zip(numbers, found, strict=True):
                # A key behind the last is that one again, and its scores are the same.
                inner.store(total, scores, [self.lane, key])

    def _dot(self, builder: Builder, left: Sequence[Value], right: Sequence[Value]) -> Value:
        real = self.roles.real
        total = builder.constant(0.0, real)
        for one, other in zip(left, right, strict=True):
            total = builder.arith("add", total, builder.arith("mul", one, other, type_=real), type_=real)
        return builder.value(SubgroupOperation("add", "reduce", total, real))

    # --- rows of scores -------------------------------------------------------------------------------------------

    def _write_row_stage(
        self,
        builder: Builder,
        number: int,
        stage: RowStage,
        here: Mapping[str, Value],
        known: dict[str, Value],
    ) -> None:
        """A map of a row of scores, or a reduction of it: a work-item has every 32nd key."""
        roles, formula = self.roles, stage.formula
        target = formula.targets[0]
        own = next((name for name, form in stage.loops.items() if form.coefficient(roles.key)), None)
        writing = self._row_writer(builder, stage, here, known)
        element, kind = self.tensors[key_of(target)].element, writing.kind(target)
        if own is None:
            known[target.tensor] = writing.rounded(writing.value(formula.values[0]), element, kind)
            self._store_once(builder, writing, stage)
            return
        reduced = not any(form.coefficient(roles.key) for form in roles.places[target.tensor])
        if reduced == (formula.sign in ASSIGNMENTS) or kind != roles.real:
            raise Unsupported("a stage is neither a map nor a reduction of rows")
        neutral = neutral_value(writing, formula.sign, target) if reduced else None
        if self.keys <= MOST_WHOLE:
            total = self._write_whole(writing, number, stage, (own, neutral))
        else:
            total = self._write_loop(writing, number, stage, (own, neutral))
        if total is not None:
            if formula.sign not in TOGETHER:
                raise Unsupported("subgroups have no such reduction")
            writing.levels, writing.loops = [builder], here
            together = SubgroupOperation(TOGETHER[formula.sign], "reduce", total, kind)
            known[target.tensor] = builder.value(together)
            self._store_once(builder, writing, stage)

    def _row_writer(
        self, builder: Builder, stage: RowStage, here: Mapping[str, Value], known: Mapping[str, Value]
    ) -> RowWriter:
        """What writes the terms of a stage, all loops but that of the keys being known."""
        writing = RowWriter(self.roles.real, self.tensors, stage.extents, [builder])
        writing.accesses, writing.loops = self.accesses, here
        writing.locals, writing.known, writing.key = self.locals, known, self.roles.key
        for name, form in stage.loops.items():
            if not form.coefficient(self.roles.key):
                writing.open_index(name, form_value(builder, form, here))
        return writing

    def _write_whole(
        self, writing: RowWriter, number: int, stage: RowStage, way: tuple[str, Value | None]
    ) -> Value | None:
        """A stage, unrolled over the keys of a work-item; gives its part of a reduction.

        A work-item behind the last key reads that one again. What it makes of it nobody reads.
        """
        builder, here, formula = writing.levels[0], writing.loops, stage.formula
        (own, total), target = way, formula.targets[0]
        element, kind = self.tensors[key_of(target)].element, writing.kind(target)
        for first in range(0, self.keys, WARP):
            place = builder.arith("add", self.lane, builder.constant(first)) if first else self.lane
            is_cut = first + WARP > self.keys
            key = builder.arith("min", place, builder.constant(self.keys - 1)) if is_cut else place
            writing = self._row_writer(builder, stage, here, writing.known)
            writing.open_index(own, key)
            writing.loops = {**here, self.roles.key: key}
            value = writing.value(formula.values[0])
            if total is None:
                memory = self._memory(number, target.tensor)
                builder.store(writing.rounded(value, element, kind), memory, [here[QUERY], place])
                continue
            joined = join(writing, formula.sign, total, value, target)
            if is_cut:
                inside = builder.compare("lt", place, builder.constant(self.keys))
                joined = builder.arith("select", inside, joined, total, type_=kind)
            total = joined
        return total

    def _write_loop(
        self, writing: RowWriter, number: int, stage: RowStage, way: tuple[str, Value | None]
    ) -> Value | None:
        """The same as a loop up to the last key that counts."""
        builder, here, formula = writing.levels[0], writing.loops, stage.formula
        (own, neutral), target = way, formula.targets[0]
        element, kind = self.tensors[key_of(target)].element, writing.kind(target)
        start = [] if neutral is None else [(neutral, kind)]
        with builder.loop(self.lane, self.end, builder.constant(WARP), carried=start) as loop:
            writing.levels.append(loop.body)
            writing.open_index(own, loop.variable)
            writing.loops = {**here, self.roles.key: loop.variable}
            value = writing.value(formula.values[0])
            if neutral is not None:
                loop.body.give(join(writing, formula.sign, loop.carried[0], value, target))
            else:
                value = writing.rounded(value, element, kind)
                loop.body.store(value, self._memory(number, target.tensor), [here[QUERY], loop.variable])
        return None if neutral is None else loop.results[0]

    def _store_once(self, builder: Builder, writing: RowWriter, stage: RowStage) -> None:
        """Store what a row has one of where others, or the end, read it: the first work-item does."""
        target = stage.formula.targets[0]
        access, value = self.accesses.get(id(target)), writing.known[target.tensor]
        if access is None and target.tensor not in self.sums:
            return
        with builder.condition(builder.compare("eq", self.lane, builder.constant(0))) as inner:
            if target.tensor in self.sums:
                inner.store(value, self.sums[target.tensor], [writing.loops[QUERY]])
            if access is not None:
                stored = Scalar(stored_type(writing.held(target).element))
                kept = value if stored == writing.kind(target) else inner.cast(value, stored)
                inner.store(kept, access.memref, access.places(inner, writing.loops))

    # --- the mixture ----------------------------------------------------------------------------------------------

    def _mix_values(
        self, builder: Builder, values: Mapping[str, Value], source: Access, parts: Value
    ) -> None:
        """Put the part of the mixture of a subgroup into local memory."""
        roles, real = self.roles, self.roles.real
        places = lane_elements(builder, self.lane, roles.extents[roles.width])
        sums = [builder.constant(0.0, real)] * (roles.rows * len(places))
        sums = self._mix_trip(builder, self.ahead, self._first_keys(builder), self.subgroup, sums)
        if self.has_more:
            carried = [(value, real) for value in sums]
            with builder.loop(*self._more_keys(builder), carried) as loop:
                keys = self._keys_at_once(loop.body, loop.variable)
                loaded = self._load_vectors(loop.body, values, (source, roles.width), keys)
                loop.body.give(*self._mix_trip(loop.body, loaded, keys, loop.variable, loop.carried))
            sums = loop.results
        for number, total in enumerate(sums):
            query, place = divmod(number, len(places))
            builder.store(total, parts, [places[place], builder.constant(query), self.subgroup])

    def _mix_trip(
        self,
        builder: Builder,
        loaded: Sequence[Sequence[Value]],
        keys: Sequence[Value],
        first: Value,
        sums: Sequence[Value],
    ) -> list[Value]:
        """The sums with the values of some keys; those behind the last count for nothing, whatever lies there."""
        roles, real, found = self.roles, self.roles.real, list(sums)
        weights, zero = self.locals[roles.weights], builder.constant(0.0, self.roles.real)
        for count, (key, read) in enumerate(zip(keys, loaded, strict=True)):
            counted = builder.arith("add", first, builder.constant(count * SUBGROUPS))
            counts = builder.compare("lt", counted, self.end)
            vector = [builder.arith("select", counts, value, zero, type_=real) for value in read]
            for query in range(roles.rows):
                held = builder.load(weights, [builder.constant(query), key], real)
                weight = builder.arith("select", counts, held, zero, type_=real)
                for number, value in enumerate(vector, query * len(vector)):
                    term = builder.arith("mul", weight, value, type_=real)
                    found[number] = builder.arith("add", found[number], term, type_=real)
        return found

    def _finish(self, builder: Builder, values: Mapping[str, Value], parts: Value) -> None:
        """Reduce the parts of all subgroups, and run the epilogue."""
        roles, real = self.roles, self.roles.real
        width = roles.extents[roles.width]
        first = builder.arith("mul", self.subgroup, builder.constant(WARP))
        thread = builder.arith("add", first, self.lane)
        bounds = builder.constant(roles.rows * width), builder.constant(THREADS)
        with builder.loop(thread, *bounds) as loop:
            body, size = loop.body, loop.body.constant(width)
            place, query = body.arith("rem", loop.variable, size), body.arith("div", loop.variable, size)
            total = body.load(parts, [place, query, body.constant(0)], real)
            for other in range(1, SUBGROUPS):
                more = body.load(parts, [place, query, body.constant(other)], real)
                total = body.arith("add", total, more, type_=real)
            here = {**values, QUERY: query, roles.query: query, roles.width: place}
            for end in self.epilogues:
                result = total
                if end.formula.values[0] is not end.formula.targets[0]:
                    writing = EpilogueWriter(real, self.tensors, end.extents, [body])
                    writing.accesses, writing.loops = self.accesses, here
                    result = writing.epilogue_value(end, roles.attention.mixture.targets[0].tensor, total)
                access = self.accesses[id(end.formula.targets[0])]
                if access.element not in FLOATS:
                    raise Unsupported("its output is no real")
                if access.element != "f32":
                    result = body.cast(result, Scalar(access.element))
                body.store(result, access.memref, access.places(body, here))
