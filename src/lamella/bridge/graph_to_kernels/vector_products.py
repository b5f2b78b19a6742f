"""Products of a matrix with a vector, or a few, where work-items are threads: a subgroup goes along the rows together.

Such a product reads each element of the matrix once, so that memory decides how long it takes: the work-items of a
subgroup read neighbouring pieces of a row of the matrix, and add their sums up at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import gcd, prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.laid_factors import lay_factor, write_laid
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED, EndWriter, split_group
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import (
    Key,
    PreparedProduct,
    ProductGroup,
    Tensors,
    find_roles,
    prepare_product,
)
from lamella.kernels.build import Builder
from lamella.kernels.fragments import WARP
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Dictionary,
    DictionaryEntry,
    If,
    Memref,
    Scalar,
    SubgroupOperation,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS, INDEX

PIECE = 16
"""Bytes that a work-item reads at once."""
MOST_COLUMNS = 7
"""Vectors above which a product with a matrix is better one of tiles."""
UNROLLED = 8
"""Pieces of rows that are under way at once, at most."""
FIRST = 16
"""Pieces with which a subgroup begins: where they are weights, they are under way before it has to wait."""
FULL = 16
"""Subgroups that a multiprocessor should have: so the next kernel finds room for its own, which load weights meanwhile.

Where there are more rows, a subgroup takes some.
"""
MOST_SUMS = 4
"""Sums of a subgroup, at most: those of one row with each vector."""
LANE = Scalar("i32")
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class VectorProduct:
    """A product of a matrix with a few vectors."""

    found: PreparedProduct
    real: Scalar
    row: str
    columns: tuple[str, ...]
    outer: tuple[str, ...]
    sum: str
    matrix: Access
    matrix_key: Key
    vectors: Access
    vectors_key: Key
    piece: int
    """Elements that a work-item reads at once."""
    rows: int
    """Rows of a subgroup."""
    packed: bool
    """Whether the matrix is laid along the sum by a kernel of its own."""
    unrolled: int = UNROLLED
    """Pieces of rows that are under way at once, at most."""

    @property
    def column_count(self) -> int:
        """How many vectors there are."""
        return prod(self.found.extents[name] for name in self.columns)

    @property
    def groups(self) -> int:
        """The number of work-groups, each of one subgroup."""
        extents = self.found.extents
        return prod(extents[name] for name in self.outer) * -(-extents[self.row] // self.rows)


def find_vector_product(
    group: ProductGroup, tensors: Tensors, real: Scalar, target: Target, constant: frozenset[Key]
) -> VectorProduct:
    """How subgroups compute a product with few vectors; Unsupported says why they do not."""
    if not target.has_threads:
        raise Unsupported("work-items are lanes")
    found = prepare_product(group, tensors, real)
    if any(map(is_open, found.extents.values())):
        raise Unsupported("its extents are open")
    scaled = {name for item in found.scales for name in item.access.loops()}
    roles, flipped = find_roles(found.outputs, *found.factors, found.extents, scaled)
    inner, extents = roles.sums[-1], found.extents
    columns = prod(extents[name] for name in roles.columns)
    if len(roles.sums) != 1 or inner in scaled or inner not in extents or columns > MOST_COLUMNS:
        raise Unsupported("it is not one sum, or has many columns")
    matrix, vectors = found.factors[flipped], found.factors[not flipped]
    packed = matrix.stride(inner) != 1 and found.keys[flipped] in constant and not roles.batch
    if packed:
        matrix = lay_factor(matrix, (roles.row, inner), extents)
    piece = _piece(matrix, vectors, inner, extents)
    many = prod(extents[name] for name in (*roles.batch, roles.row))
    wanted = -(-many // (FULL * max(1, target.multiprocessors)))
    rows = max(1, min(wanted, MOST_SUMS // columns, extents[roles.row]))
    return VectorProduct(
        found, real, roles.row, roles.columns, roles.batch, inner, matrix, found.keys[flipped],
        vectors, found.keys[not flipped], piece, rows, packed,
    )  # fmt: skip


def _piece(matrix: Access, vectors: Access, inner: str, extents: Mapping[str, int]) -> int:
    """Elements that lie together along the sum, in both factors at multiples of their number."""
    size = PIECE // BYTES[matrix.element]
    for access in (matrix, vectors):
        *others, last = access.axes
        if last.stride != 1 or last.index != Affine(0, ((inner, 1),)):
            raise Unsupported("a factor does not lie along the sum")
        if any(axis.ring or axis.index.coefficient(inner) for axis in others):
            raise Unsupported("a factor has the sum twice")
        size = gcd(size, last.size, *(axis.stride for axis in others))
    return gcd(size, extents[inner])


def write_vector_product(plan: VectorProduct, tensors: Tensors) -> list[TileKernel]:
    """The kernels of a product, in the order in which they run."""
    found, before = plan.found, []
    if plan.packed:
        source = found.factors[found.keys.index(plan.matrix_key)]
        before = [write_laid(source, (plan.matrix_key, PACKED), (plan.row, plan.sum), found.extents)]
    return [*before, VectorWriter(plan, tensors).write()]


@dataclass(slots=True)
class VectorWriter:
    """The kernel of a product while it is written."""

    plan: VectorProduct
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)

    def write(self) -> TileKernel:
        """Write it."""
        plan, found = self.plan, self.plan.found
        for item in found.ends:
            for key in item.accesses:
                self.accesses[key] = self.parameters.add(item.keys[key], found.accesses[key])
        own = PACKED if plan.packed else plan.matrix_key
        sides = self._add(own, plan.matrix), self._add(plan.vectors_key, plan.vectors)
        scales = [self._add(item.key, item.access) for item in found.scales]
        self.add_scales()
        builder = self.parameters.builder()
        sizes = {**found.extents, ROWS: -(-found.extents[plan.row] // plan.rows)}
        values = split_group(builder, [*plan.outer, ROWS], sizes)
        with builder.parallel() as region:
            places = self._places(region, values)
            sums = self.sum(region, sides, places)
            self._finish(region, scales, places, sums)
        kernel = self.parameters.close(builder, plan.groups)
        return self.promise(kernel, sides)

    def promise(self, kernel: TileKernel, sides: Sequence[Access]) -> TileKernel:
        """The kernel whose factors begin where pieces of them can be read at once."""
        return replace(promise_pieces(kernel, sides, self.plan.piece), attributes=group_sizes(1))

    def add_scales(self) -> None:
        """Parameters of what else a row is read with; nothing here."""

    def _add(self, key: Key, access: Access) -> Access:
        return self.parameters.add(key, access)

    def _places(self, builder: Builder, values: Mapping[str, Value]) -> list[dict[str, Value]]:
        """Where the loops stand for each sum of a subgroup; rows that are not there are the last one again."""
        plan, found = self.plan, []
        extents = plan.found.extents
        first = builder.arith("mul", values[ROWS], builder.constant(plan.rows))
        counted = [range(extents[name]) for name in plan.columns]
        for step in range(plan.rows):
            row = builder.arith("add", first, builder.constant(step)) if step else first
            if step and extents[plan.row] % plan.rows:
                row = builder.arith("min", row, builder.constant(extents[plan.row] - 1))
            for place in product(*counted):
                columns = zip(plan.columns, map(builder.constant, place), strict=True)
                found.append({**values, plan.row: row, **dict(columns)})
        return found

    def sum(
        self, builder: Builder, sides: tuple[Access, Access], places: Sequence[Mapping[str, Value]]
    ) -> list[Value]:
        """The sums of each work-item, added up."""
        plan, real = self.plan, self.plan.real
        extent, width = plan.found.extents[plan.sum], plan.piece * WARP
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        own = builder.arith("mul", lane, builder.constant(plan.piece))
        sums = [builder.constant(0.0, real)] * len(places)
        whole = extent // width
        first = min(whole, max(1, FIRST // plan.rows))
        most = max(1, plan.unrolled // plan.rows)
        at_once = max(count for count in range(1, most + 1) if (whole - first) % count == 0)
        for begin, end, unrolled in ((0, first, first), (first, whole, at_once)):
            if begin == end:
                continue
            attributes = Dictionary((DictionaryEntry("unroll", unrolled),))
            bounds = builder.constant(begin), builder.constant(end), None
            with builder.loop(*bounds, [(value, real) for value in sums], attributes) as loop:
                start = loop.body.arith("mul", loop.variable, loop.body.constant(width))
                position = loop.body.arith("add", start, own)
                loop.body.give(*self._add_piece(loop.body, sides, position, places, loop.carried))
            sums = loop.results
        if extent % width:
            position = builder.arith("add", builder.constant(whole * width), own)
            inside = builder.compare("lt", position, builder.constant(extent))
            then, otherwise = builder.inner(), builder.inner()
            then.give(*self._add_piece(then, sides, position, places, sums))
            otherwise.give(*sums)
            found = [builder.names.new() for _ in sums]
            builder.put(
                If(inside, then.region(), otherwise.region(), tuple(real for _ in sums)), tuple(found)
            )
            sums = found
        return self.add_up(builder, sums)

    def add_up(self, builder: Builder, sums: Sequence[Value]) -> list[Value]:
        """The sums of all work-items of a subgroup."""
        real = self.plan.real
        return [builder.value(SubgroupOperation("add", "reduce", item, real)) for item in sums]

    def _add_piece(
        self,
        builder: Builder,
        sides: tuple[Access, Access],
        position: Value,
        places: Sequence[Mapping[str, Value]],
        sums: Sequence[Value],
    ) -> list[Value]:
        """A piece of the sum of each place; what several of them read is loaded once."""
        plan, real, found = self.plan, self.plan.real, list(sums)
        steps = [
            builder.arith("add", position, builder.constant(step)) if step else position
            for step in range(plan.piece)
        ]
        loaded: dict[tuple[int, tuple[Value, ...]], list[Value]] = {}
        for number, place in enumerate(places):
            pieces = []
            for side, access in enumerate(sides):
                key = side, tuple(place[name] for name in sorted(access.loops() - {plan.sum}))
                if key not in loaded:
                    loaded[key] = [self.load(builder, access, {**place, plan.sum: item}) for item in steps]
                pieces.append(loaded[key])
            for left, right in zip(*pieces, strict=True):
                term = builder.arith("mul", left, right, type_=real)
                found[number] = builder.arith("add", found[number], term, type_=real)
        return found

    def load(self, builder: Builder, access: Access, values: Mapping[str, Value]) -> Value:
        """An element as a real."""
        value = builder.load(access.memref, access.places(builder, values), Scalar(access.element))
        return value if access.element == self.plan.real.name else builder.cast(value, self.plan.real)

    def _finish(
        self,
        builder: Builder,
        scales: Sequence[Access],
        places: Sequence[Mapping[str, Value]],
        sums: Sequence[Value],
    ) -> None:
        """The first work-item stores what the outputs are made of."""
        plan, found = self.plan, self.plan.found
        target = found.group.product.targets[0].tensor
        lane = builder.builtin("subgroup_local_id", LANE)
        for number, (place, total) in enumerate(zip(places, sums, strict=True)):
            own = builder.compare("eq", lane, builder.constant(number % WARP, LANE))
            with builder.condition(own) as inner:
                value = total
                for scale in scales:
                    value = inner.arith("mul", value, self.load(inner, scale, place), type_=plan.real)
                for end in found.ends:
                    writing = EndWriter(plan.real, self.tensors, end.extents, [inner])
                    writing.accesses, writing.loops = self.accesses, place
                    result = value
                    if end.formula.values[0] is not end.formula.targets[0]:
                        result = writing.end_value(end, target, value)
                    access = self.accesses[id(end.formula.targets[0])]
                    if access.element not in FLOATS:
                        raise Unsupported("its output is no real")
                    if access.element != plan.real.name:
                        result = inner.cast(result, Scalar(access.element))
                    inner.store(result, access.memref, access.places(inner, place))


def promise_pieces(kernel: TileKernel, sides: Sequence[Access], piece: int) -> TileKernel:
    """The kernel whose factors begin where pieces of them can be read at once."""
    names = {item.memref.name for item in sides}
    parameters = []
    for item in kernel.parameters:
        if item.value.name in names and isinstance(item.type, Memref):
            width = min(PIECE, piece * BYTES[item.type.element])
            promise = Dictionary((DictionaryEntry("alignment", width),))
            item = replace(item, attributes=promise)
        parameters.append(item)
    return replace(kernel, parameters=tuple(parameters))
