"""Split-K: several work-groups share the sum of a GEMM, and one more kernel adds their partial sums.

Few tiles leave multiprocessors idle; where K is long, splitting it gives them work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.accesses import Axis
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.implicit_gemm import ImplicitGemm
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.split_reductions import PARTIAL
from lamella.bridge.graph_to_kernels.tensor_core_gemm import PART, TensorCoreGemm
from lamella.bridge.graph_to_kernels.terms import TensorView
from lamella.bridge.graph_to_kernels.tiled import (
    PreparedProduct,
    ProductGroup,
    Tensors,
    key_of,
    meeting,
)
from lamella.kernels.launches import Layout, dense_layout
from lamella.ops.formula import Apply, Contraction, Element, Index, Loop
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import reachable

COUNTS = (2, 4, 8)
"""Split factors."""
FEWEST_SPLIT_STEPS = 256
"""The fewest steps of a part: a pipeline has to fill and to drain."""
SMALL_TILE = (32, 64)
FEW_GROUPS, FULL_GROUPS = 32, 132
"""Work-groups of such tiles that leave most of a GPU idle, and as many as are wanted."""
LEAST_SAVED = 1536
"""The fewest steps that split-K must save in each tile, to be worth the launch that adds the parts."""


def layout_of_sums(group: ProductGroup, tensors: Tensors) -> Tensors:
    """The tensors, with the partial sums laid out like the first output that is made of the sum.

    So the reduction kernel reads and writes in the same order.
    """
    key = key_of(group.product.targets[0])
    held = tensors[key]
    if not group.epilogues or held.layout is not None:
        return tensors
    end, sums = group.epilogues[0], meeting(group.epilogues[0], key[0])
    output = end.targets[0]
    steps = {
        index.name: step
        for index, step in zip(output.indices, tensors[key_of(output)].lies.strides, strict=True)
        if isinstance(index, Index)
    }
    found = [steps.get(index.name) if isinstance(index, Index) else None for index in sums[0].indices]
    if any(step is None and size > 1 for step, size in zip(found, held.shape, strict=True)):
        return tensors
    order = sorted(range(len(found)), key=lambda place: (held.shape[place] > 1, -(found[place] or 0)))
    return {**tensors, key: replace(held, layout=dense_layout(held.shape, order))}


def split_counts(depth: int, groups: int, step: int, multiprocessors: int) -> list[int]:
    """Split factors that are worth trying, given the work-groups there are; none where those are enough.

    A part is whole steps of a pipeline.
    """
    if groups >= multiprocessors:
        return []
    return [count for count in COUNTS if depth % (count * step) == 0 and depth >= count * FEWEST_SPLIT_STEPS]


def default_split(depth: int, spread: tuple[int, int], many: int, step: int) -> int:
    """The split factor where nothing is measured: 1 where splitting is not worth it.

    It depends on extents alone, so that every GPU adds in the same order.
    """
    groups = many * prod(-(-extent // tile) for extent, tile in zip(spread, SMALL_TILE, strict=True))
    fitting = [
        count
        for count in split_counts(depth, groups, step, FEW_GROUPS + 1)
        if groups * count <= FULL_GROUPS and depth - depth // count >= LEAST_SAVED
    ]
    return max(fitting, default=1)


def split_tensor_core_gemm(plan: TensorCoreGemm, parts: int) -> TensorCoreGemm:
    """A GEMM with split K, whose output is a tensor of partial sums; Unsupported where it has several outputs."""
    return replace(plan, parts=parts, found=_split(plan.found, parts))


def split_implicit_gemm(plan: ImplicitGemm, parts: int) -> ImplicitGemm:
    """A convolution with split K."""
    return replace(plan, parts=parts, found=_split(plan.found, parts))


def _split(found: PreparedProduct, parts: int) -> PreparedProduct:
    if found.group.epilogues or found.group.copies:
        raise Unsupported("its sums are no tensor")
    (end,) = found.epilogues
    target = end.formula.targets[0]
    access = found.accesses[id(target)]
    size = prod(axis.size for axis in access.axes)
    axes = (Axis(parts, size, Affine(0, ((PART, 1),))), *access.axes)
    kept = replace(end, keys={id(target): (_name(target.tensor), None)})
    accesses = {**found.accesses, id(target): replace(access, axes=axes)}
    return replace(found, epilogues=(kept,), accesses=accesses)


def _name(tensor: str) -> str:
    return f"{tensor}{PARTIAL}"


def add_partial_sums(
    stages: Stages, product: Contraction, parts: int, held: TensorView
) -> tuple[Stages, Contraction, tuple[str, Layout]]:
    """The stages with a tensor of partial sums, the stage that adds them, and the layout of that tensor."""
    lies, (target,) = held.lies, product.targets
    if lies.is_padded or lies.size(held.shape) != prod(held.shape):
        raise Unsupported("its sums have a border")
    own = stages.tensors[target.tensor]
    partial = GroupTensor(_name(own.name), own.element, (parts, *own.shape))
    layout = Layout((prod(own.shape), *lies.strides), ((0, 0), *lies.halo))
    names = {item.name for item in reachable(*target.indices) if isinstance(item, Index)}
    kept = tuple(loop for loop in product.loops if loop.index in names)
    place = Element(partial.name, (Index(PART), *target.indices), target.type)
    # One term, not a loop: all parts are in flight at once.
    first, *others = (replace(place, indices=(part, *target.indices)) for part in range(parts))
    total: Term = first
    for item in others:
        total = Apply("+", (total, item), target.type)
    adding = Contraction((target,), "=", (total,), kept)
    made = replace(product, targets=(place,), loops=(Loop(PART, parts), *product.loops))
    contractions = _replaced(stages.contractions, product, (made, adding))
    tensors = {**stages.tensors, partial.name: partial}
    return replace(stages, contractions=contractions, tensors=tensors), adding, (partial.name, layout)


def _replaced(
    stages: Sequence[Contraction], old: Contraction, new: Sequence[Contraction]
) -> tuple[Contraction, ...]:
    parts = [new if item is old else (item,) for item in stages]
    return tuple(item for part in parts for item in part)
