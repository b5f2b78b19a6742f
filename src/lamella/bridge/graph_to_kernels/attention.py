"""Fused attention in one kernel: scores of a block of queries, row operations (softmax), the second product.

    s[q, k] += query[q, …] * key[k, …];   rows: m >= f(s), e = exp(s - m), …;   y[q, d] += w[q, k] * value[k, d]

A work-group takes some queries of one head and holds their scores, never those of all queries. Queries lie over the
lanes while scores are computed, so that row operations need nothing of another lane. Values are read in place, their
dimension over the lanes, and the weights are broadcast elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis, form_value, matrix_view, substitute_loops
from lamella.bridge.graph_to_kernels.affine import Form, find_form
from lamella.bridge.graph_to_kernels.attention_mask import KeyBound, VisibleKeys, find_visible
from lamella.bridge.graph_to_kernels.contraction import ASSIGNMENTS, join, neutral_value
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import load_predicated
from lamella.bridge.graph_to_kernels.terms import TermWriter, stored_type
from lamella.bridge.graph_to_kernels.tile_kernels import ProductWriter
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel
from lamella.bridge.graph_to_kernels.tile_widths import tile_width
from lamella.bridge.graph_to_kernels.tiled import (
    Epilogue,
    Key,
    ProductGroup,
    Roles,
    Tensors,
    TiledProduct,
    extents_of,
    find_epilogue,
    held_access,
    key_of,
    meet,
    verify_whole,
    walk_terms,
)
from lamella.kernels.build import Builder
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Cast, CoopLoad, Coopmatrix, CoopStore, If, LifetimeStop, Scalar, Value
from lamella.lang.tensor.nodes.types import INDEX, make_memref
from lamella.ops.formula import Apply, Contraction, Element, Guard
from lamella.ops.formula import Scalar as Term

QUERY = "query"
"""The number of a query in its work-group."""
ONE_QUERY = "one query"
"""The loop that counts queries where there is one alone, and none counts it."""
BLOCK = "queries"
"""The number of a work-group's queries."""
WIDTH = "width"
"""The loop along the dimension of values."""
FEWEST_QUERIES = 2
"""The fewest queries for which lanes go along queries."""
LOCAL_BYTES = 1 << 20
"""The most bytes of scores: they should stay in the second-level cache."""
FEWEST_KEYS = 128
"""Keys that there is room for where their number is open."""
COPIED = 16
LANE = Scalar("i32")


@dataclass(frozen=True, slots=True)
class Attention:
    """The stages of an attention: scores, operations on rows, the second product, and its epilogue."""

    scores: Contraction
    rows: tuple[Contraction, ...]
    mixture: Contraction
    epilogues: tuple[Contraction, ...]
    outputs: frozenset[str] = frozenset()
    """The tensors that others read."""


def find_attention(stages: Sequence[Contraction], outputs: Sequence[str]) -> Attention | None:
    """Recognise an attention among stages, of which others read the outputs; None where there is none."""
    products = [number for number, stage in enumerate(stages) if is_product(stage)]
    if len(products) != 2 or products[0] != 0:
        return None
    rows = tuple(stages[1 : products[1]])
    mixture, epilogues = stages[products[1]], tuple(stages[products[1] + 1 :])
    made = {item.tensor for stage in rows for item in stage.targets} | {stages[0].targets[0].tensor}
    read = {item.tensor for item in walk_terms(mixture) if isinstance(item, Element)} & made
    if not rows or len(read) != 1 or any(stage.condition is not None for stage in rows):
        return None
    late = {item.tensor for end in epilogues for item in walk_terms(end) if isinstance(item, Element)}
    sums = {stage.targets[0].tensor for stage in rows if stage.sign not in ASSIGNMENTS}
    if late & (made - sums):
        return None
    return Attention(stages[0], rows, mixture, epilogues, frozenset(outputs))


def is_product(stage: Contraction) -> bool:
    """Whether a stage is a sum of products of two elements."""
    value = stage.values[0]
    return (
        stage.sign == "+="
        and isinstance(value, Apply)
        and value.function == "*"
        and all(isinstance(item, Element) for item in value.operands)
    )


def write_attention(attention: Attention, tensors: Tensors, real: Scalar, target: Target) -> TileKernel:
    """The kernel of an attention; Unsupported says why there is none."""
    return AttentionWriter(find_attention_roles(attention, tensors, real, target), tensors).write()


# --- roles ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowStage:
    """A formula over rows of scores, with its loops in those of the scores."""

    formula: Contraction
    extents: Mapping[str, int]
    loops: Mapping[str, Form]


@dataclass(frozen=True, slots=True)
class AttentionRoles:
    """The role of each loop of an attention."""

    attention: Attention
    real: Scalar
    extents: Mapping[str, int]
    """Of the scores' loops and of the mixture's that they have not."""
    query: str
    key: str
    outer: tuple[str, ...]
    query_access: Access
    key_access: Access
    value_access: Access
    keys: tuple[Key, Key, Key]
    depth: tuple[str, ...]
    """The sums of the scores."""
    width: str
    """The loop of the values' dimension."""
    places: Mapping[str, tuple[Form, ...]]
    """Where each tensor of the kernel's own is reached in each dimension."""
    stages: tuple[RowStage, ...]
    weights: str
    epilogues: tuple[Epilogue, ...]
    sums: Mapping[int, str]
    """The elements of the epilogues that are reductions of rows, by their identity, with their tensors."""
    visible: VisibleKeys | None
    """The visible keys, where a mask hides others."""
    lanes: int
    rows: int

    @property
    def blocks(self) -> int:
        """Work-groups that share the queries of a head."""
        return -(-self.extents[self.query] // self.rows)


def find_attention_roles(
    attention: Attention, tensors: Tensors, real: Scalar, target: Target, rows: int = 0
) -> AttentionRoles:
    """The role of each loop, for so many queries of a work-group or those that fit a cache; else Unsupported."""
    extents = extents_of(attention.scores)
    product = attention.scores.values[0]
    if not isinstance(product, Apply):
        raise Unsupported("its scores are no product")
    first, second = (item for item in product.operands if isinstance(item, Element))
    scores = attention.scores.targets[0]
    places = {scores.tensor: tuple(_form(item, extents) for item in scores.indices)}
    stages = tuple(_row_stage(item, places) for item in attention.rows)
    mixed, weight, value = _mixture(attention.mixture, places)
    own = extents_of(attention.mixture)
    verify_whole(scores, tensors[key_of(scores)].shape, extents)
    verify_whole(mixed, tensors[key_of(mixed)].shape, own)
    loops = meet([(weight, places[weight.tensor])], own)
    width = [name for name in own if name not in loops]
    summed = [name for name in own if not _reaches(attention.mixture.targets[0], name, own)]
    if len(width) != 1 or len(summed) != 1:
        raise Unsupported("its mixture has not one dimension of its own")
    key = _single(loops[summed[0]])
    accesses = [held_access(item, tensors, extents) for item in (first, second)]
    elements = [first, second]
    if key in accesses[0].loops():
        accesses.reverse()
        elements.reverse()
    _verify_outputs(attention, places, key)
    query = _query(scores, accesses, key, extents)
    if extents.get(query, 1) < FEWEST_QUERIES and not (rows or is_open(extents.get(query, 1))):
        raise Unsupported("it has few queries")
    outer = tuple(name for name in extents if name not in (query, key) and _reaches(scores, name, extents))
    depth = tuple(name for name in extents if not _reaches(scores, name, extents))
    # Both products name their loops alone, so the mixture's own one gets a name that the scores have not.
    wide: Form = Affine(0, ((WIDTH, 1),))
    loops = {**loops, width[0]: wide}
    extents = {query: 1, **extents, WIDTH: own[width[0]]}
    values = substitute_loops(held_access(value, tensors, own), loops)
    targets = [place_in(item, loops, own) for item in mixed.indices]
    epilogues = tuple(find_epilogue(item, mixed.tensor, targets, tensors) for item in attention.epilogues)
    sums = dict(_sums_of_rows(epilogues, places))
    if not epilogues:
        epilogues = (_itself(attention.mixture, mixed, own, loops, tensors),)
    lanes = max(1, target.vector_bytes // (8 if real.name == "f64" else 4))
    keys = key_of(elements[0]), key_of(elements[1]), key_of(value)
    return AttentionRoles(
        attention, real, extents, query, key, outer, accesses[0], accesses[1], values, keys, depth,
        WIDTH, places, stages, weight.tensor, epilogues, sums, _visible(stages, key, weight.tensor, extents[key]),
        lanes, rows or _rows(extents[key], lanes),
    )  # fmt: skip


def _verify_outputs(attention: Attention, places: Mapping[str, tuple[Form, ...]], key: str) -> None:
    """Refuse outputs but row values and results: scores are not read outside, nor mixtures worked on further."""
    scores = {name for name, forms in places.items() if any(form.coefficient(key) for form in forms)}
    hidden = {attention.mixture.targets[0].tensor} if attention.epilogues else set()
    if attention.outputs & (scores | hidden):
        raise Unsupported("others read its scores")


def _visible(stages: Sequence[RowStage], key: str, weights: str, keys: int) -> VisibleKeys | None:
    """The keys that count; of open ones all do."""
    rows = [(item.formula, item.loops) for item in stages]
    return None if is_open(keys) else find_visible(rows, key, weights)


def _sums_of_rows(
    epilogues: Sequence[Epilogue], places: Mapping[str, tuple[Form, ...]]
) -> Iterator[tuple[int, str]]:
    """The elements of what follows the mixture that are reductions of a row of scores, each read at its own row."""
    for end in epilogues:
        for item in walk_terms(end.formula):
            if isinstance(item, Element) and item.tensor in places:
                here = tuple(place_in(index, end.loops, end.extents) for index in item.indices)
                if here != places[item.tensor]:
                    raise Unsupported("what follows it reads another row")
                yield id(item), item.tensor


def _rows(keys: int, lanes: int) -> int:
    for rows in (2 * lanes, lanes):
        if rows * _room(keys) * 4 <= LOCAL_BYTES and rows % COPIED == 0:
            return rows
    raise Unsupported(f"scores of {keys} keys do not fit into the cache")


def _form(index: Term | Guard, extents: Mapping[str, int]) -> Form:
    form = None if isinstance(index, Guard) else find_form(index, extents)
    if form is None:
        raise Unsupported("an index of its scores is tested, or not affine")
    return form


def place_in(index: Term | Guard, loops: Mapping[str, Form], extents: Mapping[str, int]) -> Form:
    """An index over other loops."""
    form = _form(index, extents)
    found: Form = Affine(form.constant)
    for name, factor in form.terms:
        found = found.plus(loops[name], factor)
    return found


def _single(form: Form) -> str:
    if form.constant or len(form.terms) != 1 or form.terms[0][1] != 1:
        raise Unsupported("its keys are counted by several loops")
    return form.terms[0][0]


def _reaches(element: Element, name: str, extents: Mapping[str, int]) -> bool:
    return any(_form(item, extents).coefficient(name) for item in element.indices)


def _row_stage(formula: Contraction, places: dict[str, tuple[Form, ...]]) -> RowStage:
    own = extents_of(formula)
    if len(formula.targets) != 1:
        raise Unsupported("a stage writes several tensors")
    read = [item for item in walk_terms(formula) if isinstance(item, Element) and item.tensor in places]
    loops = meet([(item, places[item.tensor]) for item in read], own)
    if len(loops) < len(own):
        raise Unsupported("a stage has loops that the scores have not")
    target = formula.targets[0]
    places[target.tensor] = tuple(place_in(item, loops, own) for item in target.indices)
    return RowStage(formula, own, loops)


def _mixture(
    formula: Contraction, places: Mapping[str, tuple[Form, ...]]
) -> tuple[Element, Element, Element]:
    """The target, the weights and the values of the second product."""
    value = formula.values[0]
    if not isinstance(value, Apply) or formula.condition is not None:
        raise Unsupported("its mixture is no product")
    one, other = (item for item in value.operands if isinstance(item, Element))
    if one.tensor not in places:
        one, other = other, one
    return formula.targets[0], one, other


def _query(scores: Element, accesses: Sequence[Access], key: str, extents: Mapping[str, int]) -> str:
    """The longest loop of the scores that the keys do not have, with a dimension of its own; an open one first."""
    plain = [_form(item, extents) for item in scores.indices]
    names = [form.terms[0][0] for form in plain if len(form.terms) == 1 and form.terms[0][1] == 1]
    found = [name for name in names if name != key and name not in accesses[1].loops()]
    return max(found, key=lambda name: (is_open(extents[name]), extents[name]), default=ONE_QUERY)


def _itself(
    formula: Contraction,
    target: Element,
    own: Mapping[str, int],
    loops: Mapping[str, Form],
    tensors: Tensors,
) -> Epilogue:
    access = substitute_loops(held_access(target, tensors, own), loops)
    return Epilogue(
        Contraction((target,), "=", (target,), formula.loops),
        own,
        loops,
        {id(target): access},
        {id(target): key_of(target)},
    )


# --- the kernel -------------------------------------------------------------------------------------------------


SCORES: Key = (".scores", None)
QUERIES: Key = (".queries", None)


@dataclass(slots=True)
class AttentionWriter:
    """Writes the kernel of an attention."""

    roles: AttentionRoles
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)
    epilogues: list[Epilogue] = field(default_factory=list)
    locals: dict[str, Value] = field(default_factory=dict)
    """The memory of scores and of what stages make of them, by tensor."""
    sums: dict[str, Value] = field(default_factory=dict)
    """The memory of reductions of rows that are read behind the mixture."""
    span: tuple[Value, Value, int] | None = None
    """The first tile of keys that a block sees, the one behind the last, and the keys of a tile."""

    def write(self) -> TileKernel:
        """Write it."""
        roles = self.roles
        self._bind()
        builder = self.parameters.builder()
        sizes = {**roles.extents, BLOCK: roles.blocks}
        values = delinearize_group(builder, [*roles.outer, BLOCK], sizes)
        full, rest = divmod(roles.extents[roles.query], roles.rows)
        if (full and rest) or is_open(full):
            whole = builder.compare("lt", values[BLOCK], builder.constant(full))
            with builder.choice(whole) as (then, otherwise):
                self._write_block(then, values, roles.rows)
                # Where there is no such block, its height means nothing; a view of none would be another kernel.
                self._write_block(otherwise, values, rest if rest else rest + 1)
        else:
            self._write_block(builder, values, roles.rows if full else rest)
        groups = prod(sizes[name] for name in (*roles.outer, BLOCK))
        return self.parameters.close(builder, groups)

    def _bind(self) -> None:
        """Make parameters of everything that is read or written outside."""
        roles = self.roles
        for end in roles.epilogues:
            for key, access in end.accesses.items():
                if key not in roles.sums:
                    self.accesses[key] = self._outside(end.keys[key], access)
            loops = {name: form.replace(roles.query, self._query) for name, form in end.loops.items()}
            self.epilogues.append(replace(end, loops=loops))
        for stage in roles.stages:
            target = stage.formula.targets[0]
            if target.tensor in roles.attention.outputs:
                access = held_access(target, self.tensors, stage.extents)
                self.accesses[id(target)] = self._outside(
                    key_of(target), substitute_loops(access, stage.loops)
                )
            for item in walk_terms(stage.formula):
                if isinstance(item, Element) and item.tensor not in roles.places:
                    access = held_access(item, self.tensors, stage.extents)
                    self.accesses[id(item)] = self._outside(
                        key_of(item), substitute_loops(access, stage.loops)
                    )

    def _outside(self, key: Key, access: Access) -> Access:
        """A parameter; the number of a query is that in its work-group."""
        return self.parameters.add(key, substitute_loops(access, {self.roles.query: self._query}))

    @property
    def _query(self) -> Form:
        """The number of a query among all."""
        return Affine(0, ((BLOCK, self.roles.rows), (QUERY, 1)))

    def _write_block(self, builder: Builder, values: dict[str, Value], height: int) -> None:
        roles = self.roles
        rows = roles.rows if is_open(height) else -(-height // COPIED) * COPIED
        element, depth = roles.real.name, prod(roles.extents[name] for name in roles.depth)
        queries = builder.alloca(make_memref(element, (rows, depth), local=True))
        scores = builder.alloca(make_memref(element, (rows, _room(roles.extents[roles.key])), local=True))
        self.locals = {roles.attention.scores.targets[0].tensor: scores}
        self.sums = {
            name: builder.alloca(make_memref(element, (rows,), local=True))
            for name in dict.fromkeys(roles.sums.values())
        }
        for key, name in roles.sums.items():
            query: Form = Affine(0, ((QUERY, 1),))
            self.accesses[key] = Access(self.sums[name], element, (Axis(rows, 1, query),), True)
        self.span = self._find_span(builder, values, (height, rows))
        self._copy_queries(builder, values, queries, (height, rows))
        self._multiply(builder, values, (queries, scores), rows)
        builder.put(LifetimeStop(queries))
        with builder.parallel() as region:
            self._write_rows(region, values, (height, rows))
        self._mix(builder, values, self.locals[roles.weights], (height, rows))
        builder.put(LifetimeStop(scores))

    def _find_span(
        self, builder: Builder, values: Mapping[str, Value], sizes: tuple[int, int]
    ) -> tuple[Value, Value, int] | None:
        """The tiles of keys that the queries of a block see (mask bounds); None where that may be all."""
        roles, visible = self.roles, self.roles.visible
        if visible is None:
            return None
        height, rows = sizes
        keys = roles.extents[roles.key]
        width = self._tiled((QUERY, roles.key, roles.depth[0]), rows, keys).widths[0]
        size, one = builder.constant(width), builder.constant(1)
        last = self._key_place(builder, visible.last, {**values, QUERY: builder.constant(height - 1)})
        tiles = builder.arith("add", builder.arith("div", last, size), one)
        first = builder.constant(0)
        if visible.first is not None:
            place = self._key_place(builder, visible.first, {**values, QUERY: first})
            first = builder.arith("div", place, size)
        return first, tiles, width

    def _key_place(self, builder: Builder, bound: KeyBound, values: Mapping[str, Value]) -> Value:
        """The number of a key, at least 0 and below that of all keys."""
        return builder.arith("max", self._last_key(builder, bound, values), builder.constant(0))

    def _last_key(self, builder: Builder, bound: KeyBound, values: Mapping[str, Value]) -> Value:
        """The number of a key, below that of all keys; less than 0 where there is none."""
        found = form_value(builder, bound.form.replace(self.roles.query, self._query), values)
        for name in bound.scalars:
            held = self.tensors[name, None]
            stored = stored_type(held.element)
            access = self.parameters.add((name, None), Access(held.memref, stored, ()))
            number = builder.load(access.memref, [], Scalar(stored))
            found = builder.arith("add", found, builder.cast(number, INDEX))
        return builder.arith("min", found, builder.constant(self.roles.extents[self.roles.key] - 1))

    # --- scores ---------------------------------------------------------------------------------------------------

    def _copy_queries(
        self, builder: Builder, values: Mapping[str, Value], queries: Value, sizes: tuple[int, int]
    ) -> None:
        """Pack the queries of a work-group side by side, so that lanes go along them."""
        roles = self.roles
        if len(roles.depth) != 1:
            raise Unsupported("its scores are sums over several loops")
        (height, rows), name = sizes, roles.depth[0]
        source = self._outside(roles.keys[0], roles.query_access)
        extent = roles.extents[name]
        target = _own(queries, roles.real.name, (extent, name), rows)
        with builder.parallel() as region:
            zero = region.constant(0)
            for begin in range(0, extent, COPIED):
                count = min(COPIED, extent - begin)
                here = {**values, QUERY: zero, name: region.constant(begin)}
                view = matrix_view(region, source, [(QUERY, height), (name, count)], here)
                type_ = Coopmatrix(source.element, rows, count, "matrix_a")
                checked = "" if height == rows and not is_open(height) else "rows"
                value = region.value(CoopLoad(view.value, zero, zero, type_, view.transposed, checked))
                if source.element != target.element:
                    value = region.value(Cast(value, replace(type_, element=target.element)))
                place = matrix_view(region, target, [(QUERY, rows), (name, count)], here)
                region.put(CoopStore(value, place.value, zero, zero))

    def _multiply(
        self, builder: Builder, values: Mapping[str, Value], memory: tuple[Value, Value], rows: int
    ) -> None:
        """The scores: queries over the lanes, keys as columns."""
        roles = self.roles
        name, keys = roles.depth[0], roles.extents[roles.key]
        packed = _own(memory[0], roles.real.name, (roles.extents[name], name), rows)
        scores = _own(memory[1], roles.real.name, (keys, roles.key), rows)
        target = roles.attention.scores.targets[0]
        end = Epilogue(
            Contraction((target,), "=", (target,), roles.attention.scores.loops),
            roles.extents,
            {},
            {id(target): scores},
            {id(target): SCORES},
        )
        tiled = self._tiled((QUERY, roles.key, name), rows, keys)
        tiled = replace(
            tiled, row_factor=packed, row_key=QUERIES, column_factor=roles.key_access, column_key=roles.keys[1],
            epilogues=(end,), accesses={id(target): scores},
        )  # fmt: skip
        writer = ProductWriter(tiled, self.tensors, self.parameters, frozenset([QUERIES, SCORES]))
        writer.tiles = None if self.span is None else self.span[:2]
        writer.bind(None)
        with builder.parallel() as region:
            writer.write_panels(region, values)

    def _tiled(self, loops: tuple[str, str, str], rows: int, columns: int) -> TiledProduct:
        """A product of one row loop, one column loop and one sum, inside of a work-group."""
        roles = self.roles
        row, column, total = loops
        extents = {**roles.extents, row: rows, column: columns}
        panel = roles.lanes if rows <= roles.lanes else 2 * roles.lanes
        width = tile_width(columns, max(1, 28 * roles.lanes // panel))
        if column == roles.key and roles.visible is not None:
            width += width % 2  # the mixture takes two keys at a time
        nothing = roles.query_access
        return TiledProduct(
            ProductGroup(roles.attention.scores), roles.real, extents,
            Roles(row, (column,), (), (total,)),
            nothing, QUERIES, nothing, QUERIES, False, (), {}, (), roles.lanes, panel, (width,), 0, columns,
        )  # fmt: skip

    # --- rows of scores -------------------------------------------------------------------------------------------

    def _write_rows(self, builder: Builder, values: Mapping[str, Value], sizes: tuple[int, int]) -> None:
        """The operations on rows of scores: each lane has a row of its own."""
        height, rows = sizes
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        for begin in range(0, rows, COPIED):
            query = builder.arith("add", lane, builder.constant(begin)) if begin else lane
            here = {**values, QUERY: query}
            guard = height if begin + COPIED > height or is_open(height) else None
            known: dict[str, Value] = {}
            for number, stage in enumerate(self.roles.stages):
                self._write_stage(builder, number, stage, (here, guard, known))

    def _write_stage(
        self,
        builder: Builder,
        number: int,
        stage: RowStage,
        place: tuple[dict[str, Value], int | None, dict[str, Value]],
    ) -> None:
        here, guard, known = place
        roles, formula = self.roles, stage.formula
        target = formula.targets[0]
        writing = RowWriter(roles.real, self.tensors, stage.extents, [builder])
        writing.accesses, writing.loops, writing.guard = self.accesses, dict(here), guard
        writing.locals, writing.known, writing.key = self.locals, known, roles.key
        own = next((name for name, form in stage.loops.items() if form.coefficient(roles.key)), None)
        for name, form in stage.loops.items():
            if name != own:
                writing.open_index(name, form_value(builder, form.replace(roles.query, self._query), here))
        element, kind = self.tensors[key_of(target)].element, writing.kind(target)
        if own is None:
            known[target.tensor] = writing.rounded(writing.value(formula.values[0]), element, kind)
            self._store_row(writing, target, known[target.tensor])
            return
        reduced = not any(form.coefficient(roles.key) for form in roles.places[target.tensor])
        if reduced == (formula.sign in ASSIGNMENTS):
            raise Unsupported("a stage is neither a map nor a reduction of rows")
        if not reduced and kind != roles.real:
            raise Unsupported("what a stage makes of scores are no reals")
        start = [(neutral_value(writing, formula.sign, target), kind)] if reduced else []
        begin, end = builder.constant(0), builder.constant(roles.extents[roles.key])
        if self.span is not None:
            first, last, size = self.span
            width = builder.constant(size)
            begin = builder.arith("mul", first, width)
            end = builder.arith("min", builder.arith("mul", last, width), end)
        with builder.loop(begin, end, carried=start) as loop:
            writing.levels.append(loop.body)
            writing.open_index(own, loop.variable)
            writing.loops = {**here, roles.key: loop.variable}
            value = writing.value(formula.values[0])
            if reduced:
                loop.body.give(join(writing, formula.sign, loop.carried[0], value, target))
            else:
                memory = self._memory(number, target.tensor)
                loop.body.store(writing.rounded(value, element, kind), memory, [here[QUERY], loop.variable])
        if reduced:
            known[target.tensor] = loop.results[0]
            writing.loops = here
            self._store_row(writing, target, loop.results[0])
            if target.tensor in self.sums:
                builder.store(loop.results[0], self.sums[target.tensor], [here[QUERY]])

    def _store_row(self, writing: RowWriter, target: Element, value: Value) -> None:
        """Store what a row has one of, where others read it: lanes beyond the last query touch no memory."""
        access = self.accesses.get(id(target))
        if access is None:
            return
        here, guard = writing.here, writing.guard
        inside = here.inner()
        stored = Scalar(stored_type(writing.held(target).element))
        kept = value if stored == writing.kind(target) else inside.cast(value, stored)
        inside.store(kept, access.memref, access.places(inside, writing.loops))
        if guard is None:
            here.statements += inside.statements
            return
        here.put(If(here.compare("lt", writing.loops[QUERY], here.constant(guard)), inside.region()))

    def _memory(self, number: int, tensor: str) -> Value:
        """The memory of what a stage makes of scores: that of dead scores is reused."""
        if tensor in self.locals:
            return self.locals[tensor]
        later = {
            item.tensor
            for stage in self.roles.stages[number + 1 :]
            for item in walk_terms(stage.formula)
            if isinstance(item, Element)
        }
        free = next((name for name in self.locals if name not in later | {self.roles.weights}), None)
        if free is None:
            raise Unsupported("its scores are needed twice")
        self.locals[tensor] = self.locals[free]
        return self.locals[tensor]

    # --- the mixture ----------------------------------------------------------------------------------------------

    def _mix(
        self, builder: Builder, values: Mapping[str, Value], memory: Value, sizes: tuple[int, int]
    ) -> None:
        """The second product: the dimension of values over the lanes, queries as columns."""
        roles = self.roles
        height, rows = sizes
        if roles.value_access.stride(roles.width) != 1:
            raise Unsupported("its values do not lie along their dimension")
        keys = roles.extents[roles.key]
        weights = _own(memory, roles.real.name, (keys, roles.key), rows)
        tiled = self._tiled((roles.width, QUERY, roles.key), roles.extents[roles.width], height)
        mixed = roles.attention.mixture
        tiled = replace(
            tiled, group=ProductGroup(mixed), row_factor=roles.value_access, row_key=roles.keys[2],
            column_factor=weights, column_key=SCORES, epilogues=tuple(self.epilogues),
            accesses={key: self.accesses[key] for end in roles.epilogues for key in end.accesses},
        )  # fmt: skip
        own = frozenset([SCORES, *((name, None) for name in self.sums)])
        writer = ProductWriter(tiled, self.tensors, self.parameters, own)
        writer.steps = self.span
        writer.bind(None)
        with builder.parallel() as region:
            writer.write_panels(region, values)


def _room(keys: int) -> int:
    """How many keys the scores of a work-group have room for: local memory has a static size."""
    return max(FEWEST_KEYS, 1 << (keys - 1).bit_length()) if is_open(keys) else keys


def _own(memory: Value, element: str, loop: tuple[int, str], rows: int) -> Access:
    """Local memory: the queries contiguous, then another loop."""
    query: Form = Affine(0, ((QUERY, 1),))
    other: Form = Affine(0, ((loop[1], 1),))
    return Access(memory, element, (Axis(loop[0], rows, other), Axis(rows, 1, query)), True)


@dataclass(slots=True)
class RowWriter(TermWriter):
    """Terms of one row of scores: scores are in local memory, reductions of the row are values."""

    accesses: Mapping[int, Access] = field(default_factory=dict)
    loops: Mapping[str, Value] = field(default_factory=dict)
    guard: int | None = None
    """The number of queries, where lanes reach beyond them."""
    locals: Mapping[str, Value] = field(default_factory=dict)
    known: Mapping[str, Value] = field(default_factory=dict)
    key: str = ""

    def load(self, element: Element) -> Value:
        """The element of a tensor."""
        if element.tensor in self.known:
            return self.known[element.tensor]
        if element.tensor in self.locals:
            places = [self.loops[QUERY], self.loops[self.key]]
            return self.here.load(self.locals[element.tensor], places, self.real)
        return load_predicated(self, element, self.accesses[id(element)], self.loops, (QUERY, self.guard))
