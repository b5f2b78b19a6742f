"""The kernel of a GEMV: what a subgroup loads and adds, the reduction, and the epilogue.

Sums are registers of each work-item first. Subgroups that share rows exchange them through local memory. What the
epilogue reads is prefetched before the sums are known, and each of the first work-items of a subgroup finishes one
output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.gemv import (
    FIRST,
    PIECE,
    Gemv,
    promise_vector_loads,
)
from lamella.bridge.graph_to_kernels.gemv_prologue import PrologueWriter, add_product
from lamella.bridge.graph_to_kernels.k_major import write_k_major_pack
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import Key, Tensors
from lamella.kernels.build import Builder
from lamella.kernels.fragments import WARP
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Barrier,
    Dictionary,
    DictionaryEntry,
    If,
    Scalar,
    SubgroupOperation,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS, INDEX, make_memref

LANE = Scalar("i32")
ROWS = "rows"


def write_gemv(plan: Gemv, tensors: Tensors) -> list[TileKernel]:
    """The kernels of a GEMV, in the order in which they run."""
    found, before = plan.found, []
    if plan.packed:
        source = found.factor(plan.matrix_key, plan.row)
        before = [
            write_k_major_pack(source, (plan.matrix_key, PACKED), (plan.row, plan.sum), plan.matrix_extents)
        ]
    return [*before, GemvWriter(plan, tensors).write()]


@dataclass(slots=True)
class GemvWriter:
    """Writes the kernel of a GEMV."""

    plan: Gemv
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)
    prologue: PrologueWriter | None = None
    scratch: Value | None = None
    """Shared memory for sums that subgroups share."""

    def write(self) -> TileKernel:
        """Write it."""
        plan, found = self.plan, self.plan.found
        for item in found.epilogues:
            for key in item.accesses:
                self.accesses[key] = self.parameters.add(item.keys[key], found.accesses[key])
        matrix_key = PACKED if plan.packed else plan.matrix_key
        sides = self._add(matrix_key, plan.matrix), plan.vectors
        if plan.prologue is None:
            sides = sides[0], self._add(plan.vectors_key, plan.vectors)
        else:
            self.prologue = PrologueWriter(plan.prologue.added(self.parameters), plan.real, self.tensors)
        scales = [self._add(item.key, item.access) for item in found.scales]
        self.add_scales()
        builder = self.parameters.builder()
        sizes = {**found.extents, ROWS: -(-plan.turns // plan.together)}
        values = delinearize_group(builder, [*plan.outer, ROWS], sizes)
        if plan.together > 1:
            count = self.count_sums(plan.rows * plan.parts * self._columns * plan.together)
            self.scratch = builder.alloca(
                make_memref(plan.real.name, (WARP, plan.together, count), local=True)
            )
        with builder.parallel() as region:
            turn = self._turn(region, values[ROWS]) if plan.together > 1 else values[ROWS]
            places, own = self._places(region, values), self._own(region, {**values, ROWS: turn})
            loaded = self._load_ends(region, own), self._load_scales(region, scales, own)
            sums = self.sum(region, sides, places)
            self._finish(region, own, loaded, sums)
        kernel = self.parameters.close(builder, plan.groups)
        return self.promise(kernel, sides)

    def _turn(self, builder: Builder, group: Value) -> Value:
        """The number of a subgroup."""
        own = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
        first = builder.arith("mul", group, builder.constant(self.plan.together))
        return builder.arith("add", first, own)

    def promise(self, kernel: TileKernel, sides: Sequence[Access]) -> TileKernel:
        """The kernel whose factors begin where pieces of them can be read at once."""
        along = [sides[0], *self.read_along(sides[1], self.plan.sum)]
        sizes = group_sizes(self.plan.together, self.plan.registers)
        return replace(promise_vector_loads(kernel, along, self.plan.piece), attributes=sizes)

    def read_along(self, vectors: Access, sum_: str) -> Sequence[Access]:
        """The accesses that are read for an element of a vector."""
        return [vectors] if self.prologue is None else self.prologue.prologue.along_sum(sum_)

    def add_scales(self) -> None:
        """Parameters of what else a row is read with; nothing here."""

    def _add(self, key: Key, access: Access) -> Access:
        return self.parameters.add(key, access)

    def _places(self, builder: Builder, values: Mapping[str, Value]) -> list[dict[str, Value]]:
        """The loop indices of each sum of a subgroup; rows behind the end are the last one again.

        The parts of a row follow each other, each with all columns.
        """
        plan, found = self.plan, []
        extents = plan.found.extents
        rows = plan.rows * plan.together
        first = builder.arith("mul", values[ROWS], builder.constant(rows))
        counted = [range(extents[name]) for name in plan.columns]
        for step in range(rows):
            row = builder.arith("add", first, builder.constant(step)) if step else first
            if step and extents[plan.row] % rows:
                row = builder.arith("min", row, builder.constant(extents[plan.row] - 1))
            for part, *place in product(range(plan.parts), *counted):
                columns = zip(plan.columns, map(builder.constant, place), strict=True)
                more = builder.constant(part * extents[plan.row])
                own = builder.arith("add", row, more) if part else row
                found.append({**values, plan.row: own, **dict(columns)})
        return found

    def sum(
        self, builder: Builder, sides: tuple[Access, Access], places: Sequence[Mapping[str, Value]]
    ) -> list[Value]:
        """The reduced sums: those of the places, then those of the prologue of each column."""
        plan, real = self.plan, self.plan.real
        extent, width = plan.found.extents[plan.sum], plan.piece * WARP * plan.together
        own = self._first(builder)
        sums = [builder.constant(0.0, real)] * self.count_sums(len(places))
        whole = extent // width
        for begin, end, unrolled in self.turns(whole, plan.piece * BYTES[plan.matrix.element]):
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
        return self.add_up(
            builder, sums if self.scratch is None else self.exchange(builder, sums, self.scratch)
        )

    def _first(self, builder: Builder) -> Value:
        """The first element of the sum that a work-item reads."""
        plan = self.plan
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        own = builder.arith("mul", lane, builder.constant(plan.piece))
        if plan.together == 1:
            return own
        subgroup = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
        before = builder.arith("mul", subgroup, builder.constant(plan.piece * WARP))
        return builder.arith("add", before, own)

    def exchange(self, builder: Builder, sums: Sequence[Value], scratch: Value) -> list[Value]:
        """Reduce over the subgroups that share rows: each gets the whole sums of its own rows."""
        plan, real = self.plan, self.plan.real
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        subgroup = builder.cast(builder.builtin("subgroup_id", LANE), INDEX)
        for number, value in enumerate(sums):
            builder.store(value, scratch, (lane, subgroup, builder.constant(number)))
        builder.put(Barrier(on_local=True))
        count = plan.rows * plan.parts * self._columns
        first = builder.arith("mul", subgroup, builder.constant(count))
        mine = [builder.arith("add", first, builder.constant(number)) for number in range(count)]
        found = []
        for place in (*mine, *map(builder.constant, range(count * plan.together, len(sums)))):
            total = builder.load(scratch, (lane, builder.constant(0), place), real)
            for share in range(1, plan.together):
                more = builder.load(scratch, (lane, builder.constant(share), place), real)
                total = builder.arith("add", total, more, type_=real)
            found.append(total)
        return found

    def count_sums(self, places: int) -> int:
        """The sums of a subgroup: those of its places, and those of the prologue."""
        more = 0 if self.plan.prologue is None else len(self.plan.prologue.sums)
        return places + more * self._columns

    @property
    def _columns(self) -> int:
        return prod(self.plan.found.extents[name] for name in self.plan.columns)

    def turns(self, whole: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Loops over vectorised loads of a size in bytes: begin, end, and how many loads are in flight (unrolled)."""
        rows, more = self.plan.rows * self.plan.parts * self.plan.together, PIECE // size
        first = min(whole, max(1, FIRST * more // rows))
        most = max(1, self.plan.unrolled * more // rows)
        at_once = max(count for count in range(1, most + 1) if (whole - first) % count == 0)
        for begin, end, unrolled in ((0, first, first), (first, whole, at_once)):
            if begin < end:
                yield begin, end, unrolled

    def add_up(self, builder: Builder, sums: Sequence[Value]) -> list[Value]:
        """Reduce the sums over the work-items of a subgroup (warp shuffles)."""
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
        """Multiply and add one piece of K for each place; what several of them read is loaded once."""
        plan, found = self.plan, list(sums)
        steps = [
            builder.arith("add", position, builder.constant(step)) if step else position
            for step in range(plan.piece)
        ]
        rows: list[list[Value]] = []
        for number, place in enumerate(places):
            if number % self._columns:
                rows.append(rows[-1])
            else:
                rows.append([self.load(builder, sides[0], {**place, plan.sum: item}) for item in steps])
        vectors = self.vectors(builder, sides[1], [{plan.sum: item} for item in steps], places, found)
        for number, row in enumerate(rows):
            for left, right in zip(row, vectors[number % self._columns], strict=True):
                found[number] = add_product(builder, left, right, found[number], plan.real)
        return found

    def vectors(
        self,
        builder: Builder,
        access: Access,
        steps: Sequence[Mapping[str, Value]],
        places: Sequence[Mapping[str, Value]],
        sums: list[Value],
    ) -> list[list[Value]]:
        """Elements of the vector of each column at some steps of K; sums of the prologue grow by theirs."""
        found = []
        for column in range(self._columns):
            place, values = places[column], list[Value]()
            for step in steps:
                if self.prologue is None:
                    values.append(self.load(builder, access, {**place, **step}))
                    continue
                count = len(self.prologue.prologue.sums)
                on_way = slice(len(places) + column * count, len(places) + (column + 1) * count)
                value, sums[on_way] = self.prologue.element(builder, {**place, **step}, sums[on_way])
                values.append(value)
            found.append(values)
        return found

    def load(self, builder: Builder, access: Access, values: Mapping[str, Value]) -> Value:
        """An element as a real."""
        value = builder.load(access.memref, access.places(builder, values), Scalar(access.element))
        return value if access.element == self.plan.real.name else builder.cast(value, self.plan.real)

    # --- outputs --------------------------------------------------------------------------------------------------

    def _own(self, builder: Builder, values: Mapping[str, Value]) -> dict[str, Value]:
        """Where the loops stand for the output of each work-item: those behind the last one have it too."""
        plan, extents = self.plan, self.plan.found.extents
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        number = builder.arith("min", lane, builder.constant(plan.rows * self._columns - 1))
        first = builder.arith("mul", values[ROWS], builder.constant(plan.rows))
        columns = builder.constant(self._columns)
        row = builder.arith("add", first, builder.arith("div", number, columns))
        found = {**values, plan.row: builder.arith("min", row, builder.constant(extents[plan.row] - 1))}
        rest = builder.arith("rem", number, columns)
        for name in reversed(plan.columns):
            size = builder.constant(extents[name])
            found[name], rest = builder.arith("rem", rest, size), builder.arith("div", rest, size)
        return found

    def _load_ends(self, builder: Builder, own: Mapping[str, Value]) -> dict[int, Value]:
        """Prefetch what the epilogue reads beside the sums."""
        targets = {id(item) for end in self.plan.found.epilogues for item in end.formula.targets}
        found = {}
        for end in self.plan.found.epilogues:
            for key in end.accesses.keys() - targets:
                access = self.accesses[key]
                places = access.places(builder, own)
                found[key] = builder.load(access.memref, places, Scalar(access.element))
        return found

    def _load_scales(
        self, builder: Builder, scales: Sequence[Access], own: Mapping[str, Value]
    ) -> list[list[Value]]:
        """The scales of the row of a work-item, for each of its parts."""
        plan, found = self.plan, []
        for part in range(plan.parts):
            more = builder.constant(part * plan.found.extents[plan.row])
            row = builder.arith("add", own[plan.row], more)
            found.append([self.load(builder, item, {**own, plan.row: row}) for item in scales])
        return found

    def _finish(
        self,
        builder: Builder,
        own: Mapping[str, Value],
        loaded: tuple[dict[int, Value], list[list[Value]]],
        sums: Sequence[Value],
    ) -> None:
        """The epilogue: the first work-items store outputs, each of one row and column."""
        plan, columns = self.plan, self._columns
        ends, scales = loaded
        lane = builder.builtin("subgroup_local_id", LANE)
        count = plan.rows * columns
        values = []
        for part in range(plan.parts):
            mine = [
                sums[(row * plan.parts + part) * columns + item]
                for row in range(plan.rows)
                for item in range(columns)
            ]
            values.append(self._pick(builder, lane, mine))
        factors = (
            [] if self.prologue is None else self._on_way(builder, lane, own, sums[count * plan.parts :])
        )
        for part, value in enumerate(values):
            for item in (*scales[part], *factors):
                value = builder.arith("mul", value, item, type_=plan.real)
            values[part] = value
        self._store(builder, own, ends, values, builder.compare("lt", lane, builder.constant(count, LANE)))

    def _pick(self, builder: Builder, lane: Value, values: Sequence[Value]) -> Value:
        """The value of each work-item: the first one has the first."""
        found = values[-1]
        for number in reversed(range(len(values) - 1)):
            is_mine = builder.compare("eq", lane, builder.constant(number, LANE))
            found = builder.arith("select", is_mine, values[number], found, type_=self.plan.real)
        return found

    def _on_way(
        self, builder: Builder, lane: Value, own: Mapping[str, Value], sums: Sequence[Value]
    ) -> list[Value]:
        """The factor of a result from the prologue's sums of each column (one over the root mean square, say)."""
        if self.prologue is None:
            return []
        each = len(sums) // self._columns
        mine = []
        for place in range(each):
            columns = [sums[column * each + place] for column in range(self._columns)]
            mine.append(self._pick(builder, lane, columns * self.plan.rows))
        scale = self.prologue.scale(builder, own, mine)
        return [] if scale is None else [scale]

    def _store(
        self,
        builder: Builder,
        own: Mapping[str, Value],
        loaded: dict[int, Value],
        values: Sequence[Value],
        is_there: Value,
    ) -> None:
        """Store what the outputs are made of the sums of a row, one for each of its parts."""
        plan, found = self.plan, []
        target = plan.found.group.product.targets[0].tensor
        for end in plan.found.epilogues:
            writing = EpilogueWriter(plan.real, self.tensors, end.extents, [builder])
            writing.accesses, writing.loops, writing.ready = self.accesses, own, loaded
            if plan.parts > 1:
                writing.known = {(target, item): value for item, value in enumerate(values)}
            result = values[0]
            if end.formula.values[0] is not end.formula.targets[0]:
                result = writing.epilogue_value(end, target, result)
            access = self.accesses[id(end.formula.targets[0])]
            if access.element not in FLOATS:
                raise Unsupported("its output is no real")
            if access.element != plan.real.name:
                result = builder.cast(result, Scalar(access.element))
            found.append((result, access))
        with builder.condition(is_there) as inner:
            for result, access in found:
                inner.store(result, access.memref, access.places(inner, own))
