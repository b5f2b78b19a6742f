"""Paged attention on a GPU: a few queries of each sequence attend to keys and values in pages.

A work-group takes some keys of one sequence and one head of keys, and all queries that share it. Each of its subgroups
goes along some of these keys: it looks up the page of a key in the table, has the vectors of several keys in flight at
once, and keeps the online softmax state of each query in registers. The subgroups meet in local memory. Where several
work-groups share the keys of a sequence, another kernel combines their partial results. Keys behind the length of a
sequence, and those that no query sees, are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.decode_attention import lane_elements, pieces_at_once
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.gemv import promise_vector_loads
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes, tell_fault
from lamella.bridge.graph_to_kernels.tiled import Key, Tensors
from lamella.kernels.build import Builder
from lamella.kernels.fragments import WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Barrier, Math, Scalar, SubgroupOperation, Value
from lamella.lang.tensor.nodes.types import BOOL, FLOATS, INDEX, make_memref

OPERATOR = "llm.paged_decode"
"""The operator that this is the kernel of."""
SUBGROUPS = 8
"""Subgroups that share the keys of a work-group."""
AT_ONCE = 4
"""Keys of a subgroup whose vectors are in flight at once."""
MOST_ROWS = 8
"""Queries of a work-group, which each subgroup keeps in registers."""
FEWEST_KEYS = 256
"""Keys that a work-group should have at least."""
WAVES = 2
"""Work-groups that there should be for each multiprocessor."""
LOWEST = -1e30
"""The score of masked keys, below every other."""
SEQUENCE, HEAD, SPLIT, ROW, PLACE = "sequence", "head", "split", "row", "place"
QUERY_HEAD, QUERY, PAGE, SLOT, COLUMN = "query head", "query", "page", "slot", "column"
PARTS: Key = (f"{PACKED[0]}_parts", None)
STATES: Key = (f"{PACKED[0]}_states", None)
"""Partial results: mixtures, and for each the largest score and the sum of exponentials."""
REAL, LANE = Scalar("f32"), Scalar("i32")


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """The extents of an attention to pages, and its mask."""

    sequences: int
    heads: int
    share: int
    """Heads of queries for each head of keys."""
    queries: int
    keys: int
    """Keys that the table has room for."""
    page: int
    pages: int
    depth: int
    width: int
    splits: int
    """Split-KV: work-groups that share the keys of a sequence."""
    causal: bool
    scale: float
    window: int | None

    @property
    def rows(self) -> int:
        """Queries that share a head of keys."""
        return self.share * self.queries

    @property
    def each(self) -> int:
        """Keys of a work-group."""
        return -(-self.keys // self.splits)


def write_paged_attention(
    attributes: Mapping[str, object], tensors: Tensors, real: Scalar, target: Target
) -> list[TileKernel]:
    """The kernels of an attention to pages; Unsupported says why there are none."""
    if not target.has_threads or real != REAL:
        raise Unsupported("work-items are lanes, or numbers of 64 bits")
    q, keys, values, table = (tensors[name, None] for name in ("q", "keys", "values", "table"))
    (sequences, query_heads, queries, depth), (pages, page, heads, _) = q.shape, keys.shape
    length, width = table.shape[1] * page, values.shape[3]
    splits = -(-WAVES * max(1, target.multiprocessors) // (sequences * heads))
    splits = max(1, min(splits, -(-length // FEWEST_KEYS)))
    scale, window = attributes.get("softmax_scale"), attributes.get("window_size")
    plan = PagedAttention(
        sequences, heads, query_heads // heads, queries, length, page, pages, depth, width, splits,
        attributes.get("causal") is True,
        scale if isinstance(scale, float) else depth**-0.5,
        window if isinstance(window, int) else None,
    )  # fmt: skip
    _verify(plan, tensors)
    first = PartsWriter(plan, tensors).write()
    return [first] if splits == 1 else [first, _write_sum(plan, tensors)]


def _verify(plan: PagedAttention, tensors: Tensors) -> None:
    if plan.rows > MOST_ROWS or plan.depth % WARP or plan.width % WARP or 0 in tensors["table", None].shape:
        raise Unsupported("it has many queries, or vectors that are no multiples of a subgroup")
    if any(is_open(size) for view in tensors.values() for size in view.shape):
        raise Unsupported("its extents are open")
    floats = [tensors[name, None] for name in ("q", "keys", "values", "out")]
    if any(stored_type(view.element) not in FLOATS for view in floats):
        raise Unsupported("its elements are no reals that are computed with")
    if any(view.lies.strides[-1] != 1 for view in floats):
        raise Unsupported("its vectors do not lie along their dimension")


def _access(view: TensorView, loops: Sequence[str]) -> Access:
    """The access to a tensor whose dimensions some loops count."""
    if any(side for halo in view.lies.halo for side in halo):
        raise Unsupported("a tensor has a halo")
    pairs = zip(loops, view.shape, view.lies.strides, strict=True)
    axes = [Axis(size, stride, Affine(0, ((name, 1),))) for name, size, stride in pairs]
    return Access(Value(""), stored_type(view.element), tuple(sorted(axes, key=lambda axis: -axis.stride)))


def _dense(loops: Sequence[str], sizes: Sequence[int]) -> Access:
    """A temporary whose last loop is the closest."""
    axes, stride = list[Axis](), 1
    for name, size in zip(reversed(loops), reversed(sizes), strict=True):
        axes.append(Axis(size, stride, Affine(0, ((name, 1),))))
        stride *= size
    return Access(Value(""), REAL.name, tuple(reversed(axes)))


def _parts(plan: PagedAttention, parameters: Parameters) -> tuple[Access, Access]:
    """The temporaries of partial results."""
    sizes = plan.sequences, plan.heads, plan.rows, plan.splits
    loops = SEQUENCE, HEAD, ROW, SPLIT
    parts = parameters.add(PARTS, _dense((*loops, COLUMN), (*sizes, plan.width)))
    return parts, parameters.add(STATES, _dense((*loops, PLACE), (*sizes, 2)))


@dataclass(slots=True)
class PartsWriter:
    """Writes the kernel that reads keys and values."""

    plan: PagedAttention
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    lane: Value = Value("")
    subgroup: Value = Value("")
    length: Value = Value("")
    stop: Value = Value("")
    """The number behind the last key of the work-group."""

    def write(self) -> TileKernel:
        """Write it."""
        plan, found = self.plan, {}
        for name, loops in (
            ("q", (SEQUENCE, QUERY_HEAD, QUERY, COLUMN)),
            ("keys", (PAGE, SLOT, HEAD, COLUMN)),
            ("values", (PAGE, SLOT, HEAD, COLUMN)),
            ("table", (SEQUENCE, PLACE)),
            ("lengths", (SEQUENCE,)),
        ):
            found[name] = self.parameters.add((name, None), _access(self.tensors[name, None], loops))
        outputs = self._outputs()
        builder = self.parameters.builder()
        sizes = {SEQUENCE: plan.sequences, HEAD: plan.heads, SPLIT: plan.splits}
        values = delinearize_group(builder, [SEQUENCE, HEAD, SPLIT], sizes)
        room = builder.alloca(make_memref(REAL.name, (plan.width, plan.rows, SUBGROUPS), local=True))
        states = builder.alloca(make_memref(REAL.name, (2, plan.rows, SUBGROUPS), local=True))
        with builder.parallel() as region:
            self.lane = region.cast(region.builtin("subgroup_local_id", LANE), INDEX)
            self.subgroup = region.cast(region.builtin("subgroup_id", LANE), INDEX)
            begin = self._find_keys(region, values, found["lengths"])
            sums = self._mix(region, values, found, begin)
            self._leave(region, sums, room, states)
            region.put(Barrier(on_local=True))
            self._finish(region, values, outputs, room, states)
        kernel = self.parameters.close(builder, plan.sequences * plan.heads * plan.splits)
        for name in ("q", "keys", "values"):
            size = plan.width if name == "values" else plan.depth
            kernel = promise_vector_loads(kernel, [found[name]], pieces_at_once(found[name], size // WARP))
        return replace(kernel, attributes=group_sizes(SUBGROUPS), faults=True)

    def _outputs(self) -> list[Access]:
        if self.plan.splits > 1:
            return [*_parts(self.plan, self.parameters)]
        loops = SEQUENCE, QUERY_HEAD, QUERY, COLUMN
        return [self.parameters.add(("out", None), _access(self.tensors["out", None], loops))]

    def _find_keys(self, builder: Builder, values: Mapping[str, Value], lengths: Access) -> Value:
        """The first key of the work-group that a query sees; the length of the sequence and the end are kept."""
        plan, zero = self.plan, builder.constant(0)
        told = builder.load(lengths.memref, lengths.places(builder, values), Scalar(lengths.element))
        self.length = builder.cast(told, INDEX)
        begin = builder.arith("mul", values[SPLIT], builder.constant(plan.each))
        end = builder.arith("min", self.length, builder.constant(plan.keys))
        self.stop = builder.arith("min", builder.arith("add", begin, builder.constant(plan.each)), end)
        if plan.window is not None:
            behind = builder.constant(plan.queries + plan.window - 1)
            begin = builder.arith("max", begin, builder.arith("sub", self.length, behind))
        return builder.arith("max", begin, zero)

    def _load(
        self, builder: Builder, access: Access, values: Mapping[str, Value], extent: int
    ) -> list[Value]:
        """What a work-item has of a vector, as reals."""
        found = []
        for place in lane_elements(builder, self.lane, extent):
            here = {**values, COLUMN: place}
            value = builder.load(access.memref, access.places(builder, here), Scalar(access.element))
            found.append(value if access.element == REAL.name else builder.cast(value, REAL))
        return found

    def _row(self, builder: Builder, values: Mapping[str, Value], row: int) -> dict[str, Value]:
        """The head and the number of a query among those that share keys."""
        share, query = divmod(row, self.plan.queries)
        first = builder.arith("mul", values[HEAD], builder.constant(self.plan.share))
        head = builder.arith("add", first, builder.constant(share)) if share else first
        return {**values, QUERY_HEAD: head, QUERY: builder.constant(query)}

    def _mix(
        self, builder: Builder, values: Mapping[str, Value], found: Mapping[str, Access], begin: Value
    ) -> list[Value]:
        """The online softmax state of each query: maximum, sum of exponentials, part of the mixture."""
        plan = self.plan
        queries = [
            self._load(builder, found["q"], self._row(builder, values, row), plan.depth)
            for row in range(plan.rows)
        ]
        zero = builder.constant(0.0, REAL)
        start = [builder.constant(LOWEST, REAL), *[zero] * (1 + plan.width // WARP)] * plan.rows
        first = builder.arith("add", begin, self.subgroup)
        step = builder.constant(SUBGROUPS * AT_ONCE)
        with builder.loop(first, self.stop, step, [(item, REAL) for item in start]) as loop:
            body = loop.body
            keys = [body.arith("add", loop.variable, body.constant(SUBGROUPS * n)) for n in range(AT_ONCE)]
            numbers = [self._page(body, values, found["table"], key) for key in keys]
            places = [self._place(body, values, *item) for item in numbers]
            vectors = [self._load(body, found["keys"], place, plan.depth) for place in places]
            mixed = [self._load(body, found["values"], place, plan.width) for place in places]
            self._tell_pages(
                body, [(place[PAGE], number) for place, (number, _) in zip(places, numbers, strict=True)]
            )
            body.give(*self._step(body, keys, queries, (vectors, mixed), loop.carried))
        return loop.results

    def _page(
        self, builder: Builder, values: Mapping[str, Value], table: Access, key: Value
    ) -> tuple[Value, Value]:
        """The page of a key and its place there, from the table; one behind the end is the last one again."""
        plan = self.plan
        last = builder.arith("sub", self.stop, builder.constant(1))
        inside = builder.arith("max", builder.arith("min", key, last), builder.constant(0))
        inside = builder.arith("min", inside, builder.constant(plan.keys - 1))
        size = builder.constant(plan.page)
        here = {**values, PLACE: builder.arith("div", inside, size)}
        told = builder.load(table.memref, table.places(builder, here), Scalar(table.element))
        return builder.cast(told, INDEX), builder.arith("rem", inside, size)

    def _place(
        self, builder: Builder, values: Mapping[str, Value], number: Value, slot: Value
    ) -> dict[str, Value]:
        """Where a key lies; a page that does not exist is read as another one."""
        page = builder.arith("min", number, builder.constant(self.plan.pages - 1))
        return {**values, PAGE: builder.arith("max", page, builder.constant(0)), SLOT: slot}

    def _tell_pages(self, builder: Builder, pages: Sequence[tuple[Value, Value]]) -> None:
        """A page that does not exist is a fault, told once all vectors are in flight, for a branch waits for them."""
        wrong: Value | None = None
        for page, number in pages:
            other = builder.compare("ne", page, number)
            wrong = other if wrong is None else builder.arith("or", wrong, other, type_=BOOL)
        if wrong is not None:
            tell_fault(builder, wrong)

    def _step(
        self,
        builder: Builder,
        keys: Sequence[Value],
        queries: Sequence[Sequence[Value]],
        loaded: tuple[Sequence[Sequence[Value]], Sequence[Sequence[Value]]],
        carried: Sequence[Value],
    ) -> list[Value]:
        """The state after some more keys."""
        plan, (vectors, mixed), found = self.plan, loaded, list[Value]()
        each = 2 + plan.width // WARP
        for row, query in enumerate(queries):
            highest, total, *sums = carried[row * each : (row + 1) * each]
            scores = [
                self._score(builder, (key, row % plan.queries), vector, query)
                for key, vector in zip(keys, vectors, strict=True)
            ]
            largest = highest
            for score in scores:
                largest = builder.arith("max", largest, score, type_=REAL)
            weights = [_exp(builder, score, largest) for score in scores]
            before = _exp(builder, highest, largest)
            total = _join(builder, total, before, [(weight, None) for weight in weights])
            found += [largest, total]
            found += [
                _join(builder, held, before, [(w, v[place]) for w, v in zip(weights, mixed, strict=True)])
                for place, held in enumerate(sums)
            ]
        return found

    def _score(
        self, builder: Builder, key: tuple[Value, int], vector: Sequence[Value], query: Sequence[Value]
    ) -> Value:
        """The scaled product of a key and a query; nothing where the query does not see it."""
        plan, (place, number) = self.plan, key
        total = builder.constant(0.0, REAL)
        for one, other in zip(vector, query, strict=True):
            total = builder.arith("fma", one, other, total, type_=REAL)
        total = builder.value(SubgroupOperation("add", "reduce", total, REAL))
        scaled = builder.arith("mul", total, builder.constant(plan.scale, REAL), type_=REAL)
        tests = [builder.compare("lt", place, self.stop)]
        own = builder.arith("add", self.length, builder.constant(number - plan.queries))
        if plan.causal and plan.queries > 1:
            tests.append(builder.compare("le", place, own))
        if plan.window is not None:
            near = builder.arith("sub", own, place)
            tests.append(builder.compare("lt", near, builder.constant(plan.window)))
        seen = tests[0]
        for test in tests[1:]:
            seen = builder.arith("and", seen, test, type_=BOOL)
        return builder.arith("select", seen, scaled, builder.constant(float("-inf"), REAL), type_=REAL)

    def _leave(self, builder: Builder, sums: Sequence[Value], room: Value, states: Value) -> None:
        """Put the state of a subgroup into local memory."""
        plan = self.plan
        each, places = 2 + plan.width // WARP, lane_elements(builder, self.lane, plan.width)
        for row in range(plan.rows):
            state, mixed = sums[row * each : row * each + 2], sums[row * each + 2 : (row + 1) * each]
            number = builder.constant(row)
            for place, value in zip(places, mixed, strict=True):
                builder.store(value, room, [place, number, self.subgroup])
            with builder.condition(builder.compare("eq", self.lane, builder.constant(0))) as inner:
                for side, value in enumerate(state):
                    inner.store(value, states, [inner.constant(side), number, self.subgroup])

    def _finish(
        self,
        builder: Builder,
        values: Mapping[str, Value],
        outputs: Sequence[Access],
        room: Value,
        states: Value,
    ) -> None:
        """Combine the states of all subgroups, divided where nobody else has a part."""
        plan = self.plan
        first = builder.arith("mul", self.subgroup, builder.constant(WARP))
        thread = builder.arith("add", first, self.lane)
        bounds = builder.constant(plan.rows * plan.width), builder.constant(SUBGROUPS * WARP)
        with builder.loop(thread, *bounds) as loop:
            body, size = loop.body, loop.body.constant(plan.width)
            column, row = body.arith("rem", loop.variable, size), body.arith("div", loop.variable, size)
            held = []
            for number in range(SUBGROUPS):
                own = body.constant(number)
                state = [body.load(states, [body.constant(side), row, own], REAL) for side in range(2)]
                held.append((state[0], state[1], body.load(room, [column, row, own], REAL)))
            largest, total, mixed = _together_parts(body, held)
            here = {**values, **_query_of(body, plan, values, row), ROW: row, COLUMN: column}
            if plan.splits == 1:
                _store_quotient(body, outputs[0], here, mixed, total)
            else:
                _store_parts(body, outputs, here, mixed, (largest, total))


def _exp(builder: Builder, value: Value, level: Value) -> Value:
    return builder.value(Math("exp", (builder.arith("sub", value, level, type_=REAL),), REAL))


def _join(builder: Builder, held: Value, factor: Value, more: Sequence[tuple[Value, Value | None]]) -> Value:
    """A sum times a factor, plus weights, or products with them."""
    found = builder.arith("mul", held, factor, type_=REAL)
    for weight, value in more:
        if value is None:
            found = builder.arith("add", found, weight, type_=REAL)
        else:
            found = builder.arith("fma", weight, value, found, type_=REAL)
    return found


def _together_parts(
    builder: Builder, held: Sequence[tuple[Value, Value, Value]]
) -> tuple[Value, Value, Value]:
    """Combine partial results: maximum, sum and mixture."""
    largest = held[0][0]
    for other, _, _ in held[1:]:
        largest = builder.arith("max", largest, other, type_=REAL)
    total = mixed = builder.constant(0.0, REAL)
    for highest, part, mixture in held:
        weight = _exp(builder, highest, largest)
        total = builder.arith("fma", weight, part, total, type_=REAL)
        mixed = builder.arith("fma", weight, mixture, mixed, type_=REAL)
    return largest, total, mixed


def _query_of(
    builder: Builder, plan: PagedAttention, values: Mapping[str, Value], row: Value
) -> dict[str, Value]:
    """The head and the number of a query that the run tells."""
    first = builder.arith("mul", values[HEAD], builder.constant(plan.share))
    own = builder.arith("div", row, builder.constant(plan.queries))
    query = builder.arith("rem", row, builder.constant(plan.queries))
    return {QUERY_HEAD: builder.arith("add", first, own), QUERY: query}


def _store_quotient(
    builder: Builder, access: Access, values: Mapping[str, Value], mixed: Value, total: Value
) -> None:
    """Store a mixture over the sum of its weights; zero where no key was seen."""
    zero = builder.constant(0.0, REAL)
    quotient = builder.arith("div", mixed, total, type_=REAL)
    result = builder.arith("select", builder.compare("eq", total, zero), zero, quotient, type_=REAL)
    if access.element != REAL.name:
        result = builder.cast(result, Scalar(access.element))
    builder.store(result, access.memref, access.places(builder, values))


def _store_parts(
    builder: Builder,
    outputs: Sequence[Access],
    values: Mapping[str, Value],
    mixed: Value,
    state: tuple[Value, Value],
) -> None:
    """Store the partial results of a work-group: a mixture, and, once for each query, its weights."""
    parts, states = outputs
    builder.store(mixed, parts.memref, parts.places(builder, values))
    with builder.condition(builder.compare("eq", values[COLUMN], builder.constant(0))) as inner:
        for side, value in enumerate(state):
            place = states.places(inner, {**values, PLACE: inner.constant(side)})
            inner.store(value, states.memref, place)


def _write_sum(plan: PagedAttention, tensors: Tensors) -> TileKernel:
    """The kernel that combines partial results: one work-group for each query."""
    parameters = Parameters()
    loops = SEQUENCE, QUERY_HEAD, QUERY, COLUMN
    out = parameters.add(("out", None), _access(tensors["out", None], loops))
    parts, states = _parts(plan, parameters)
    builder = parameters.builder()
    sizes = {SEQUENCE: plan.sequences, HEAD: plan.heads, ROW: plan.rows}
    values = delinearize_group(builder, [SEQUENCE, HEAD, ROW], sizes)
    with builder.foreach([builder.constant(plan.width)]) as (body, (column,)):
        held = []
        for number in range(plan.splits):
            here = {**values, SPLIT: body.constant(number), COLUMN: column}
            state = [
                body.load(states.memref, states.places(body, {**here, PLACE: body.constant(side)}), REAL)
                for side in range(2)
            ]
            held.append((state[0], state[1], body.load(parts.memref, parts.places(body, here), REAL)))
        _, total, mixed = _together_parts(body, held)
        here = {**values, **_query_of(body, plan, values, values[ROW]), COLUMN: column}
        _store_quotient(body, out, here, mixed, total)
    return parameters.close(builder, plan.sequences * plan.heads * plan.rows)
