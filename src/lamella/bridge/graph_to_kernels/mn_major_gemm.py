"""GEMM on Hopper with MN-major operands: `wgmma` transposes their tiles, so that no kernel packs them before.

The gradients of weights are such products: both operands are contiguous along rows or columns, not along the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, form_value
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.k_major import PACKED_COLUMNS, write_k_major_pack
from lamella.bridge.graph_to_kernels.tensor_core_gemm import (
    STEP,
    TensorCoreGemm,
    TensorCoreWriter,
    write_tensor_core_gemm,
)
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel
from lamella.bridge.graph_to_kernels.tiled import Tensors
from lamella.bridge.graph_to_kernels.tma_operands import flatten_lines, with_pairs
from lamella.kernels.build import Builder
from lamella.kernels.fragments import COLUMNS, DEPTH, FACTORS, SUMS
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import CoopLoad, Coopmatrix, CoopMulAdd, Value


@dataclass(slots=True)
class MnMajorWriter(TensorCoreWriter):
    """Writes the kernel of a GEMM some of whose operands are MN-major."""

    mn_major: tuple[bool, bool] = field(default=(False, False))

    def _sum(
        self,
        builder: Builder,
        factors: tuple[Access, Access],
        values: Mapping[str, Value],
        start: Value | None,
    ) -> Value:
        plan, (rows, columns) = self.plan, factors
        extent, element = plan.found.extents[plan.sum], rows.element
        sums = Coopmatrix(SUMS, plan.rows, COLUMNS, "matrix_acc")
        places = [
            form_value(builder, item.axes[int(mn_major)].index, values)
            for item, mn_major in zip((rows, columns), self.mn_major, strict=True)
        ]
        first, begin = start or builder.constant(0.0, sums), builder.constant(0)
        steps = builder.constant(extent), builder.constant(DEPTH)
        with builder.loop(begin, *steps, carried=[(first, sums)]) as loop:
            body, k = loop.body, loop.variable
            kinds = (
                Coopmatrix(element, plan.rows, DEPTH, "matrix_a"),
                Coopmatrix(element, DEPTH, COLUMNS, "matrix_b"),
            )
            loads = []
            for item, kind, place, mn_major in zip(
                (rows, columns), kinds, places, self.mn_major, strict=True
            ):
                where = (place, k) if mn_major else (k, place)
                along = kind.use == "matrix_a"
                loads.append(body.value(CoopLoad(item.memref, *where, kind, along != mn_major)))
            left, right = loads
            body.give(body.value(CoopMulAdd(left, right, loop.carried[0], sums)))
        return loop.results[0]


def write_mn_major_gemm(plan: TensorCoreGemm, tensors: Tensors, target: Target) -> list[TileKernel]:
    """The kernels of a GEMM: MN-major operands that `wgmma` can transpose are read in place, others packed."""
    extents = plan.found.extents
    if any(plan.packing) and plan.rows < STEP and extents[plan.row] % STEP == 0:
        # Packing an operand takes longer than what smaller tiles save.
        plan = replace(plan, rows=STEP)
    whole = (extents[plan.row] % plan.rows, extents[plan.column] % plan.columns, extents[plan.sum] % STEP)
    if not target.has_warpgroups or any(whole) or plan.rounded or not any(plan.packing):
        return write_tensor_core_gemm(plan, tensors)
    sides, packing, mn_major = [plan.row_factor, plan.column_factor], list(plan.packing), [False, False]
    lines = (
        (plan.row_key, PACKED, plan.row, plan.rows),
        (plan.column_key, PACKED_COLUMNS, plan.column, plan.columns),
    )
    before: list[TileKernel] = []
    for place, (key, own, line, size) in enumerate(lines):
        given = plan.found.factor(key, line)
        found = _mn_major_matrix(given, line, plan) if packing[place] and size % STEP == 0 else None
        if found is not None:
            sides[place], packing[place], mn_major[place] = found, (), True
        elif packing[place]:
            before.append(write_k_major_pack(given, (key, own), packing[place], extents, plan.sums))
    if not any(mn_major):
        return write_tensor_core_gemm(plan, tensors)
    changed = replace(plan, row_factor=sides[0], column_factor=sides[1], packing=(packing[0], packing[1]))
    return [*before, with_pairs(MnMajorWriter(changed, tensors, mn_major=(mn_major[0], mn_major[1])).write())]


def _mn_major_matrix(access: Access, line: str, plan: TensorCoreGemm) -> Access | None:
    """An operand as a matrix whose lines only the sum counts; None where it is none."""
    if access.element not in FACTORS:
        return None
    try:
        found = flatten_lines(access, plan.sums[-1], line)
    except Unsupported:
        return None
    lines, near = found.axes
    if lines.index != _counted(plan.sums, plan.found.extents):
        return None
    counter: Form = Affine(0, ((plan.sum, 1),))
    return replace(found, axes=(replace(lines, index=counter), near))


def _counted(sums: Sequence[str], extents: Mapping[str, int]) -> Form:
    """The linear index of several loops, the last of them fastest."""
    found: Form = Affine(0)
    for name in sums:
        step: Form = Affine(0, ((name, 1),))
        found = step.plus(found, extents[name])
    return found
