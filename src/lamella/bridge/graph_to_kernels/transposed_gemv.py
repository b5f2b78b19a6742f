"""Transposed GEMV: weighted sums of the rows of a matrix, as attention of few queries has with its values.

Rows are contiguous, so work-items take neighbouring elements of them. The subgroups of a work-group split the sum
(split-K inside a work-group): each adds every so many-th step, then one of them reduces what all left in local memory.
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
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
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
from lamella.lang.tensor.nodes import Dictionary, DictionaryEntry, Scalar, Value
from lamella.lang.tensor.nodes.types import FLOATS, INDEX, make_memref

MOST_COLUMNS = 4
"""Sums of a work-item for each of its rows."""
SUBGROUPS = 16
"""Subgroups that share a sum."""
PIECE = 4
"""Rows of a work-item, at most."""
UNROLLED = 8
LANE = Scalar("i32")
BLOCK = "block of rows"


@dataclass(frozen=True, slots=True)
class TransposedGemv:
    """A few weighted sums of the rows of a matrix."""

    found: PreparedProduct
    real: Scalar
    row: str
    columns: tuple[str, ...]
    outer: tuple[str, ...]
    sum: str
    matrix: Access
    matrix_key: Key
    weights: Access
    weights_key: Key
    piece: int
    """Rows of a work-item."""

    @property
    def rows(self) -> int:
        """Elements of a row of a work-group."""
        return WARP * self.piece

    @property
    def blocks(self) -> int:
        """Work-groups that share the rows."""
        return -(-self.found.extents[self.row] // self.rows)

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return prod(self.found.extents[name] for name in self.outer) * self.blocks


def _find_transposed_gemv(
    group: ProductGroup, tensors: Tensors, real: Scalar, target: Target
) -> TransposedGemv:
    """The plan of a transposed GEMV; Unsupported says why there is none."""
    if not target.has_threads:
        raise Unsupported("work-items are lanes")
    found = prepare_product(group, tensors, real)
    extents = found.extents
    if any(map(is_open, extents.values())) or found.scales:
        raise Unsupported("its extents are open, or it has scales")
    roles, flipped = find_roles(found.outputs, *found.factors, extents, set())
    columns = prod(extents[name] for name in roles.columns)
    if len(roles.sums) != 1 or roles.sums[0] not in extents or columns > MOST_COLUMNS:
        raise Unsupported("it is not one sum, or has many columns")
    matrix = found.factors[flipped]
    *_, last = matrix.axes
    if (
        last.stride != 1
        or last.index != Affine(0, ((roles.row, 1),))
        or extents[roles.sums[0]] < 2 * SUBGROUPS
    ):
        raise Unsupported("its rows do not lie closest, or its sum is short")
    piece = gcd(PIECE, max(1, extents[roles.row] // WARP))
    return TransposedGemv(
        found, real, roles.row, roles.columns, roles.batch, roles.sums[0], matrix, found.keys[flipped],
        found.factors[not flipped], found.keys[not flipped], piece,
    )  # fmt: skip


def write_transposed_gemv(group: ProductGroup, tensors: Tensors, real: Scalar, target: Target) -> TileKernel:
    """The kernel of a transposed GEMV; Unsupported says why there is none."""
    return _TransposedGemvWriter(_find_transposed_gemv(group, tensors, real, target), tensors).write()


@dataclass(slots=True)
class _TransposedGemvWriter:
    """Writes the kernel."""

    plan: TransposedGemv
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)

    def write(self) -> TileKernel:
        """Write it."""
        plan, found = self.plan, self.plan.found
        for item in found.epilogues:
            for key in item.accesses:
                self.accesses[key] = self.parameters.add(item.keys[key], found.accesses[key])
        matrix = self.parameters.add(plan.matrix_key, plan.matrix)
        weights = self.parameters.add(plan.weights_key, plan.weights)
        builder = self.parameters.builder()
        sizes = {**found.extents, BLOCK: plan.blocks}
        values = delinearize_group(builder, [*plan.outer, BLOCK], sizes)
        places = list(product(*(range(found.extents[name]) for name in plan.columns)))
        count = len(places)
        scratch = builder.alloca(make_memref(plan.real.name, (plan.rows, count, SUBGROUPS), local=True))
        with builder.parallel() as region:
            self._add(region, (matrix, weights), values, places, scratch)
        with builder.parallel() as region:
            self._finish(region, values, places, scratch)
        return replace(self.parameters.close(builder, plan.groups), attributes=group_sizes(SUBGROUPS))

    def _own_rows(self, builder: Builder, values: Mapping[str, Value]) -> tuple[list[Value], list[Value]]:
        """The rows of a work-item, and their places in its work-group."""
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        first = builder.arith("mul", lane, builder.constant(self.plan.piece))
        inside = [
            builder.arith("add", first, builder.constant(step)) if step else first
            for step in range(self.plan.piece)
        ]
        begin = builder.arith("mul", values[BLOCK], builder.constant(self.plan.rows))
        return [builder.arith("add", begin, item) for item in inside], inside

    def _add(
        self,
        builder: Builder,
        sides: tuple[Access, Access],
        values: Mapping[str, Value],
        places: Sequence[tuple[int, ...]],
        scratch: Value,
    ) -> None:
        """Put the partial sums of a subgroup into local memory."""
        plan, real = self.plan, self.plan.real
        rows, inside = self._own_rows(builder, values)
        extents = plan.found.extents
        if extents[plan.row] % plan.rows:
            last = builder.constant(extents[plan.row] - 1)
            rows = [builder.arith("min", item, last) for item in rows]
        own = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
        zero = builder.constant(0.0, real)
        carried = [(zero, real)] * (len(places) * plan.piece)
        end, step = builder.constant(extents[plan.sum]), builder.constant(SUBGROUPS)
        attributes = Dictionary((DictionaryEntry("unroll", UNROLLED),))
        with builder.loop(own, end, step, carried, attributes) as loop:
            body, sums = loop.body, list(loop.carried)
            here = {**values, plan.sum: loop.variable}
            loaded = [self._load(body, sides[0], {**here, plan.row: row}) for row in rows]
            for number, place in enumerate(places):
                columns = dict(zip(plan.columns, map(body.constant, place), strict=True))
                weight = self._load(body, sides[1], {**here, **columns})
                for row, value in enumerate(loaded):
                    term = body.arith("mul", value, weight, type_=real)
                    which = number * plan.piece + row
                    sums[which] = body.arith("add", sums[which], term, type_=real)
            body.give(*sums)
        for number in range(len(places)):
            for row, at in enumerate(inside):
                found = loop.results[number * plan.piece + row]
                builder.store(found, scratch, [at, builder.constant(number), own])

    def _load(self, builder: Builder, access: Access, values: Mapping[str, Value]) -> Value:
        value = builder.load(access.memref, access.places(builder, values), Scalar(access.element))
        return value if access.element == self.plan.real.name else builder.cast(value, self.plan.real)

    def _finish(
        self, builder: Builder, values: Mapping[str, Value], places: Sequence[tuple[int, ...]], scratch: Value
    ) -> None:
        """The first subgroups reduce the partial sums, one for each column, and run the epilogue."""
        plan = self.plan
        rows, inside = self._own_rows(builder, values)
        own = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
        for number, place in enumerate(places):
            with builder.condition(builder.compare("eq", own, builder.constant(number))) as region:
                columns = dict(zip(plan.columns, map(region.constant, place), strict=True))
                for row, at in zip(rows, inside, strict=True):
                    self._finish_row(region, {**values, **columns, plan.row: row}, scratch, (at, number))

    def _finish_row(
        self, builder: Builder, values: Mapping[str, Value], scratch: Value, place: tuple[Value, int]
    ) -> None:
        """Store one row of a column, where there is one."""
        plan, extent = self.plan, self.plan.found.extents[self.plan.row]
        if extent % plan.rows == 0:
            self._store(builder, values, scratch, place)
            return
        exists = builder.compare("lt", values[plan.row], builder.constant(extent))
        with builder.condition(exists) as inner:
            self._store(inner, values, scratch, place)

    def _store(
        self, builder: Builder, values: Mapping[str, Value], scratch: Value, place: tuple[Value, int]
    ) -> None:
        real, found = self.plan.real, self.plan.found
        at, number = place
        total = builder.constant(0.0, real)
        for subgroup in range(SUBGROUPS):
            indices = [at, builder.constant(number), builder.constant(subgroup)]
            total = builder.arith("add", total, builder.load(scratch, indices, real), type_=real)
        for end in found.epilogues:
            result = total
            if end.formula.values[0] is not end.formula.targets[0]:
                writing = EpilogueWriter(real, self.tensors, end.extents, [builder])
                writing.accesses, writing.loops = self.accesses, values
                result = writing.epilogue_value(end, found.group.product.targets[0].tensor, total)
            access = self.accesses[id(end.formula.targets[0])]
            if access.element not in FLOATS:
                raise Unsupported("its output is no real")
            if access.element != real.name:
                result = builder.cast(result, Scalar(access.element))
            builder.store(result, access.memref, access.places(builder, values))
