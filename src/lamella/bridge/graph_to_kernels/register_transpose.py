"""Transposes in registers: pointwise maps on vectors that read across the order in which they write.

Along the lanes of the output a transposed input lies far apart. So a tile is loaded along the input, a cache line in
each row, as a cooperative matrix, which transposes it. It is kept in local memory in the order of the output, and the
map goes over the tile along the output's own order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from lamella.base.affine import Affine
from lamella.base.dtype import F32
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.flat import FlatKernel, FlatStage, place_of
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.row_plan import GROUP_STEPS
from lamella.bridge.graph_to_kernels.row_terms import RowTerms
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import CoopLoad, Coopmatrix, CoopStore, Expand, Memref, Scalar, Slice, Value
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.formula import Element

SIDE = 16
"""Rows and columns that are transposed at once: a cache line of each row."""
SIDES = (64, 32, 16)
"""Steps of a tile along the output and along the input: several lines of each row, so that memory streams."""
LEAST_STEPS = 1 << 12
"""Elements below which tiles are not worth it."""


@dataclass(frozen=True, slots=True)
class TransposePlan:
    """A map over tiles: the loop along the output, the one along the input, and the others."""

    kernel: FlatKernel
    stage: FlatStage
    along: str
    across: str
    width: int
    depth: int
    others: tuple[str, ...]
    piece: int
    """Steps of the loop along the input that a work-group has."""
    transposed: frozenset[Form]
    """The places that are read through tiles."""

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return prod(self.kernel.extents[name] for name in self.others) * (
            self.kernel.extents[self.across] // self.piece
        )


def plan_transpose(
    kernel: FlatKernel, tensors: Mapping[str, GroupTensor], spans: Mapping[str, int]
) -> TransposePlan | None:
    """The tiles of a map that reads across its order; None where it does not, or where tiles do not fit.

    `spans` are the sizes of the memory of the tensors.
    """
    if len(kernel.stages) != 1 or kernel.stages[0].is_reduction or len(kernel.stages[0].loops) < 2:
        return None
    (stage,) = kernel.stages
    along = next((name for name in stage.loops if stage.place.coefficient(name) == 1), None)
    if along is None:
        return None
    reads = {(item.tensor, place_of(item, kernel.table)) for item in stage.reads()}
    far = {(tensor, form) for tensor, form in reads if form.coefficient(along) > 1}
    closest = {name for _, form in far for name, factor in form.terms if factor == 1}
    if len(closest) != 1:
        return None
    (across,) = closest
    extents = kernel.extents
    width = next((size for size in SIDES if extents[along] % size == 0), 0)
    depth = next((size for size in SIDES if extents[across] % size == 0), 0)
    if not width or not depth or prod(extents[name] for name in stage.loops) < LEAST_STEPS:
        return None
    others = tuple(name for name in stage.loops if name not in (along, across))
    piece = _piece(extents[across], depth, extents[along])
    transposed = frozenset(form for tensor, form in far if tensors[tensor].element == F32)
    plan = TransposePlan(kernel, stage, along, across, width, depth, others, piece, transposed)
    fits = all(_matrix_places(plan, form, spans[tensor]) for tensor, form in far if form in transposed)
    return plan if transposed and fits else None


def _piece(extent: int, depth: int, width: int) -> int:
    """Whole tiles, as many as give a work-group enough to do, that divide the loop."""
    wanted = max(1, GROUP_STEPS // (depth * width))
    count = extent // depth
    fitting = [size for size in range(1, min(wanted, count) + 1) if count % size == 0]
    return depth * max(fitting)


def _matrix_places(plan: TransposePlan, form: Form, size: int) -> tuple[Form, Form] | None:
    """Where a tile begins in memory that is seen as rows of one step along the output: the row, and the place in it.

    None where the rows of a tile would leave the memory, or a place its row.
    """
    stride, extents = form.coefficient(plan.along), plan.kernel.extents
    inner = [item for item in form.terms if item[0] != plan.along and item[1] < stride]
    outer = [item for item in form.terms if item not in inner and item[0] != plan.along]
    first, within = Affine(form.constant, tuple(outer)), Affine(0, tuple(inner))
    box = {name: (0, extents[name] - 1) for name, _ in form.terms}
    inside = within.bounds(box)[1] < stride
    return (first, within) if inside and first.bounds(box)[1] + stride * extents[plan.along] <= size else None


class TransposeWriter:
    """Writes the body of a kernel over tiles."""

    def __init__(
        self, plan: TransposePlan, held: Mapping[str, GroupTensor], builder: Builder, real: Scalar
    ) -> None:
        self.plan = plan
        self.held = held
        self.builder = builder
        self.real = real
        self.places: dict[str, Value] = {}

    def write(self, views: Mapping[tuple[str, int | None], TensorView]) -> None:
        """Write everything."""
        plan, extents = self.plan, self.plan.kernel.extents
        tiles = self._tiles()
        here = self.builder
        counts = {**extents, plan.across: extents[plan.across] // plan.piece}
        self.places = delinearize_group(here, [*plan.others, plan.across], counts)
        begin = here.arith("mul", self.places.pop(plan.across), here.constant(plan.piece))
        end = here.arith("add", begin, here.constant(plan.piece))
        with here.loop(begin, end, here.constant(plan.depth)) as outer:
            zero, stop = outer.body.constant(0), outer.body.constant(extents[plan.along])
            with outer.body.loop(zero, stop, outer.body.constant(plan.width)) as inner:
                corner = {**self.places, plan.across: outer.variable, plan.along: inner.variable}
                with inner.body.parallel() as body:
                    for (name, form), tile in tiles.items():
                        self._transpose_tile(body, views[name, None], form, corner, tile)
                self._store(inner.body, corner, views, tiles)

    def _tiles(self) -> dict[tuple[str, Form], Value]:
        """Local memory for each access that is read across."""
        plan = self.plan
        found: dict[tuple[str, Form], Value] = {}
        for item in plan.stage.reads():
            key = (item.tensor, place_of(item, plan.kernel.table))
            if key[1] in plan.transposed and key not in found:
                element = stored_type(self.held[item.tensor].element)
                memref = make_memref(element, (plan.width, plan.depth), local=True)
                found[key] = self.builder.alloca(memref)
        return found

    def _transpose_tile(
        self, builder: Builder, view: TensorView, form: Form, corner: Mapping[str, Value], tile: Value
    ) -> None:
        """Load a tile along the input, and keep it in the order of the output."""
        plan, element = self.plan, stored_type(view.element)
        stride = form.coefficient(plan.along)
        places = _matrix_places(plan, form, view.shape[0])
        if places is None:
            raise Unsupported("a tile would leave its tensor")
        first = places[0].plus(Affine(0, ((plan.along, stride),)))
        count = stride * plan.width
        flat = builder.subview(
            view.memref, [Slice(form_value(builder, first, corner), count)], Memref(element, (count,), (1,))
        )
        rows = builder.value(
            Expand(flat, 0, (stride, plan.width), Memref(element, (stride, plan.width), (1, stride)))
        )
        type_ = Coopmatrix(element, SIDE, SIDE, "matrix_acc")
        column, zero = form_value(builder, places[1], corner), builder.constant(0)
        side, width, depth = (builder.constant(size) for size in (SIDE, plan.width, plan.depth))
        with builder.loop(zero, width, side) as rows_loop, rows_loop.body.loop(zero, depth, side) as loop:
            row, body = rows_loop.variable, loop.body
            place = body.arith("add", column, loop.variable)
            value = body.value(CoopLoad(rows, place, row, type_, transposed=True))
            body.put(CoopStore(value, tile, row, loop.variable))

    def _store(
        self,
        builder: Builder,
        corner: Mapping[str, Value],
        views: Mapping[tuple[str, int | None], TensorView],
        tiles: Mapping[tuple[str, Form], Value],
    ) -> None:
        """Write a tile along the output."""
        plan = self.plan
        ends = [builder.constant(plan.width), builder.constant(plan.depth)]
        with builder.foreach(ends) as (inner, (row, column)):
            at = dict(corner)
            at[plan.along] = inner.arith("add", corner[plan.along], row)
            at[plan.across] = inner.arith("add", corner[plan.across], column)
            local = (row, column)
            terms = TileTerms(
                self.real, views, plan.kernel.extents, [inner], forms=self._form, tiles=tiles, local=local
            )
            for name, value in at.items():
                terms.open_index(name, value)
            if terms.is_risky(plan.stage.value):
                raise Unsupported("a step may have no value")
            target = Element(
                plan.stage.tensor, (plan.kernel.table.affine(plan.stage.place),), plan.stage.type
            )
            value = terms.saturated(plan.stage.value, self.held[plan.stage.tensor].element)
            terms.store(value, target)

    def _form(self, element: Element) -> Form:
        return place_of(element, self.plan.kernel.table)


def form_value(builder: Builder, form: Form, values: Mapping[str, Value]) -> Value:
    """The value of an affine form."""
    found: Value | None = None
    for name, factor in form.terms:
        part = values[name] if factor == 1 else builder.arith("mul", values[name], builder.constant(factor))
        found = part if found is None else builder.arith("add", found, part)
    if found is None:
        return builder.constant(form.constant)
    return builder.arith("add", found, builder.constant(form.constant)) if form.constant else found


@dataclass(slots=True)
class TileTerms(RowTerms):
    """Terms that find some elements in tiles."""

    tiles: Mapping[tuple[str, Form], Value] = field(default_factory=dict)
    local: tuple[Value, ...] = ()
    """The place in every tile."""

    def load(self, element: Element) -> Value:
        """The element, from its tile where it has one."""
        tile = self.tiles.get((element.tensor, self.forms(element)))
        if tile is None:
            return super(TileTerms, self).load(element)
        held = self.held(element)
        found = self.here.load(tile, self.local, Scalar(stored_type(held.element)))
        return self.widen(found, held.element, self.kind(element))
