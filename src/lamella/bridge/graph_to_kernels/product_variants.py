"""Kernel selection for sums of products: the first kind that suits, and its variants (tile sizes, split-K).

The first variant is the one that a model of the machine prefers. Autotuning may find that another one is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.depthwise import find_depthwise, write_depthwise
from lamella.bridge.graph_to_kernels.gemv import (
    MOST_SUMS,
    UNROLLED,
    Gemv,
    find_gemv,
)
from lamella.bridge.graph_to_kernels.gemv_gate import split_gates
from lamella.bridge.graph_to_kernels.gemv_writer import write_gemv
from lamella.bridge.graph_to_kernels.grouped_gemm import write_grouped_gemm
from lamella.bridge.graph_to_kernels.implicit_gemm import (
    ImplicitGemm,
    find_implicit_gemm,
    write_implicit_gemm,
)
from lamella.bridge.graph_to_kernels.mn_major_gemm import write_mn_major_gemm
from lamella.bridge.graph_to_kernels.quantized_gemv import find_quantized_gemv, write_quantized_gemv
from lamella.bridge.graph_to_kernels.split_k import (
    default_split,
    layout_of_sums,
    split_counts,
    split_implicit_gemm,
    split_tensor_core_gemm,
)
from lamella.bridge.graph_to_kernels.tensor_core_gemm import (
    STEP,
    TensorCoreGemm,
    find_tensor_core_gemm,
    order_tiles,
    write_tensor_core_gemm,
)
from lamella.bridge.graph_to_kernels.tile_kernels import write_tiles
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel
from lamella.bridge.graph_to_kernels.tiled import (
    THREAD_COLUMNS,
    Key,
    ProductGroup,
    Tensors,
    find_tiles,
)
from lamella.bridge.graph_to_kernels.transposed_gemv import write_transposed_gemv
from lamella.kernels.fragments import COLUMNS
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Scalar

MOST_TILES = 4
"""Tiles of tensor cores among which is chosen: those that the model of the machine likes best."""
PIECES = (UNROLLED, 4, 16)
"""Vectorised loads that subgroups may have in flight, the default first."""
WIDTHS = (THREAD_COLUMNS, 4, 16)
"""Columns of register tiles of threads, the default first."""

IM2COL_LAUNCH_S, IM2COL_ELEMENT_S = 2e-6, 2e-12
"""Seconds of one more launch, and of each element that im2col copies."""
THREAD_SPEED, CORE_SPEED = 16e12, 300e12
"""What threads multiply and add in a second, and tensor cores with tiles that are not the largest."""


@dataclass(frozen=True, slots=True)
class ProductPlace:
    """The context of a product: its tensors, the type of sums, the target, and what may be rounded."""

    tensors: Tensors
    real: Scalar
    target: Target
    fixed: frozenset[Key]
    """Tensors that never change."""
    rounds: bool = False
    """Whether both factors may be rounded to bf16."""
    decodes: bool = False
    """Whether codes may be decoded for tensor cores."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel variant, by its name."""

    name: str
    write: Callable[[], list[TileKernel]]
    """Writes its kernels, in the order in which they run."""
    parts: int = 1
    """Split-K: the number of parts, whose partial sums are added and given to the epilogue behind."""
    usual: bool = False
    """Whether this split is the default where nothing is measured."""


_Kind = Callable[[ProductGroup, ProductPlace], list[Variant]]


@dataclass(frozen=True, slots=True)
class WrittenProduct:
    """A product by its default variant, and the other variants of its kind."""

    name: str
    kernels: list[TileKernel]
    others: Sequence[Variant]

    @property
    def in_parts(self) -> Variant | None:
        """The split-K variant that is better than the first one as far as extents tell."""
        return next((variant for variant in self.others if variant.usual), None)


def write_product(group: ProductGroup, place: ProductPlace) -> WrittenProduct:
    """The kernels of a product, by the first kind that suits; Unsupported says why none does."""
    kinds: Sequence[_Kind] = (
        _fused_gemv,
        _grouped_gemm,
        _tensor_cores,
        _implicit_gemm,
        _im2col,
        _quantized_gemv,
        _gemv,
        _transposed_gemv,
        _tiles,
    )
    if group.prologue:
        kinds = (_fused_gemv,)
    elif group.copies:
        kinds = (_tensor_cores, _implicit_gemm, _im2col)
    for find in kinds:
        with suppress(Unsupported):
            first, *others = find(group, place)
            return WrittenProduct(first.name, first.write(), others)
    if group.prologue or group.copies:
        raise Unsupported("no kernel does all of it")
    narrow = place.target.has_threads
    lanes = find_depthwise(group, place.tensors, place.real, place.fixed, narrow)
    return WrittenProduct("lanes", write_depthwise(lanes, place.tensors, place.target), ())


def _fused_gemv(group: ProductGroup, place: ProductPlace) -> list[Variant]:
    """GEMV with a fused prologue (a norm) or a gated epilogue."""
    if not place.target.has_threads:
        raise Unsupported("work-items are lanes")
    group, views = split_gates(group, place.tensors)
    if group.parts == 1 and not group.prologue:
        raise Unsupported("nothing is joined")
    place = replace(place, tensors=views)
    with suppress(Unsupported):
        return _quantized_gemv(group, place, place.decodes)
    return _gemv(group, place, place.decodes)


def _grouped_gemm(group: ProductGroup, place: ProductPlace) -> list[Variant]:
    """Grouped GEMM: rows with the matrices that they name."""
    written = write_grouped_gemm(group, place.tensors, place.real, place.target)
    return [Variant("owned", lambda: written)]


def _tensor_cores(group: ProductGroup, place: ProductPlace) -> list[Variant]:
    plan = find_tensor_core_gemm(group, place.tensors, place.real, place.target, place.rounds, place.decodes)
    variants = _tensor_core_tiles(plan, place)
    with suppress(Unsupported):
        variants += _tensor_cores_split(plan, place)
    return variants


def _tensor_core_tiles(plan: TensorCoreGemm, place: ProductPlace) -> list[Variant]:
    return [
        Variant(
            _tiles_of(rows, subgroups),
            partial(
                write_mn_major_gemm,
                replace(plan, rows=rows, subgroups=subgroups),
                place.tensors,
                place.target,
            ),
        )
        for rows, subgroups in order_tiles(plan.spread, plan.many, place.target)[:MOST_TILES]
    ]


def _im2col(group: ProductGroup, place: ProductPlace) -> list[Variant]:
    """Convolutions of few channels: im2col, where packing the windows pays."""
    plan = find_tensor_core_gemm(group, place.tensors, place.real, place.target, place.rounds, im2col=True)
    if not plan.packing[1] or _im2col_seconds(plan) > _thread_seconds(plan):
        raise Unsupported("what it multiplies is cheaper to read where it lies")
    return _tensor_core_tiles(plan, place)


def _im2col_seconds(plan: TensorCoreGemm) -> float:
    """The estimated time of im2col and of the GEMM behind it."""
    packed = prod(plan.found.extents[name] for name in plan.packing[1])
    done = plan.groups * plan.rows * plan.columns * plan.found.extents[plan.sum]
    return IM2COL_LAUNCH_S + packed * IM2COL_ELEMENT_S + 2 * done / CORE_SPEED


def _thread_seconds(plan: TensorCoreGemm) -> float:
    """The estimated time of fused multiply-adds without tensor cores."""
    rows, columns = plan.spread
    return 2 * plan.many * rows * columns * plan.found.extents[plan.sum] / THREAD_SPEED


def _tensor_cores_split(plan: TensorCoreGemm, place: ProductPlace) -> list[Variant]:
    if plan.packing[1] or (plan.packing[0] and plan.row_key not in place.fixed):
        return []
    group, tensors = _sums_of(plan.found.group), layout_of_sums(plan.found.group, place.tensors)
    alone = find_tensor_core_gemm(group, tensors, place.real, place.target, place.rounds, place.decodes)
    step = 2 * STEP // BYTES[plan.row_factor.element]
    depth = plan.found.extents[plan.sum]
    usual = default_split(depth, plan.spread, plan.many, step)
    counts = split_counts(depth, plan.groups, step, place.target.multiprocessors) or [usual]
    variants = []
    for count in (item for item in counts if item > 1):
        rows, subgroups = order_tiles(alone.spread, count * alone.many, place.target)[0]
        cut = split_tensor_core_gemm(replace(alone, rows=rows, subgroups=subgroups), count)
        name = f"{count} parts of the sum, {_tiles_of(rows, subgroups)}"
        variants.append(Variant(name, partial(write_tensor_core_gemm, cut, tensors), count, count == usual))
    return variants


def _sums_of(group: ProductGroup) -> ProductGroup:
    """A product without its epilogue."""
    return replace(group, epilogues=(), copies=())


def _tiles_of(rows: int, subgroups: int) -> str:
    return f"tiles of {rows} x {subgroups * COLUMNS}"


def _implicit_gemm(group: ProductGroup, place: ProductPlace) -> list[Variant]:
    plan = find_implicit_gemm(group, place.tensors, place.real, place.target, place.fixed)
    extents = plan.found.extents[plan.row], plan.columns
    variants = [
        Variant(
            _tiles_of(rows, subgroups),
            partial(write_implicit_gemm, replace(plan, rows=rows, subgroups=subgroups), place.tensors),
        )
        for rows, subgroups in order_tiles(extents, 1, place.target)[:MOST_TILES]
    ]
    with suppress(Unsupported):
        variants += _implicit_gemm_split(plan, place)
    return variants


def _implicit_gemm_split(plan: ImplicitGemm, place: ProductPlace) -> list[Variant]:
    group, tensors = _sums_of(plan.found.group), layout_of_sums(plan.found.group, place.tensors)
    alone = find_implicit_gemm(group, tensors, place.real, place.target, place.fixed)
    extents = alone.found.extents[alone.row], alone.columns
    variants, groups = [], prod(plan.tiles)
    usual = default_split(alone.depth, extents, 1, STEP)
    counts = split_counts(alone.depth, groups, STEP, place.target.multiprocessors) or [usual]
    for count in (item for item in counts if item > 1):
        rows, subgroups = order_tiles(extents, count, place.target)[0]
        cut = split_implicit_gemm(replace(alone, rows=rows, subgroups=subgroups), count)
        name = f"{count} parts of the sum, {_tiles_of(rows, subgroups)}"
        variants.append(Variant(name, partial(write_implicit_gemm, cut, tensors), count, count == usual))
    return variants


def _quantized_gemv(group: ProductGroup, place: ProductPlace, narrow: bool = False) -> list[Variant]:
    plan = find_quantized_gemv(group, place.tensors, place.real, place.target, place.fixed, narrow)
    return [
        Variant(
            f"{_count(rows, 'row')} of codes",
            partial(
                write_quantized_gemv, replace(plan, vector=replace(plan.vector, rows=rows)), place.tensors
            ),
        )
        for rows in _row_counts(plan.vector)
    ]


def _gemv(group: ProductGroup, place: ProductPlace, narrow: bool = False) -> list[Variant]:
    plan = find_gemv(group, place.tensors, place.real, place.target, place.fixed, narrow)
    return [
        Variant(
            f"{_count(rows, 'row')}, {pieces} pieces",
            partial(write_gemv, _with_rows(plan, rows, pieces), place.tensors),
        )
        for rows in _row_counts(plan)
        for pieces in PIECES
    ]


def _with_rows(plan: Gemv, rows: int, pieces: int) -> Gemv:
    bound = plan.registers if rows == plan.rows else None
    return replace(plan, rows=rows, unrolled=pieces, registers=bound)


def _row_counts(plan: Gemv) -> list[int]:
    """Rows that a subgroup may have, those of the plan first."""
    columns = plan.column_count * plan.parts
    fitting = [rows for rows in (1, 2, 4) if rows * columns <= max(MOST_SUMS, columns)]
    most = plan.found.extents[plan.row]
    return list(dict.fromkeys([plan.rows, *(rows for rows in fitting if rows <= most)]))


def _transposed_gemv(group: ProductGroup, place: ProductPlace) -> list[Variant]:
    written = write_transposed_gemv(group, place.tensors, place.real, place.target)
    return [Variant("subgroups that share the sum", lambda: [written])]


def _tiles(group: ProductGroup, place: ProductPlace) -> list[Variant]:
    if not place.target.has_threads:
        return [Variant("tiles", partial(_write_tiles, group, place, THREAD_COLUMNS))]
    return [
        Variant(f"{width} columns of threads", partial(_write_tiles, group, place, width)) for width in WIDTHS
    ]


def _write_tiles(group: ProductGroup, place: ProductPlace, columns: int) -> list[TileKernel]:
    plan = find_tiles(group, place.tensors, place.real, place.target, place.fixed, columns)
    return write_tiles(plan, place.tensors)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number > 1)}"
