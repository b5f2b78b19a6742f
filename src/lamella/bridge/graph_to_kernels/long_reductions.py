"""Two-stage reductions chosen by layout: very long sums of few rows are split over the work-groups of a GPU.

    s[c] += x[h, w, c]  →  p[k, c] += x[k * n + h, w, c];  s[c] += p[k, c]

Which loop is contiguous decides what lanes do, and so how many subgroups a reduction occupies. Layouts tell this,
formulas do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.factors import is_contraction
from lamella.bridge.graph_to_kernels.flat import FlatLayout, flatten_stages
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.maps import ASSIGNMENTS
from lamella.bridge.graph_to_kernels.row_plan import RowPlan, plan_rows
from lamella.bridge.graph_to_kernels.scans import find_scan
from lamella.bridge.graph_to_kernels.split_reductions import PARTIAL, reuses, two_stage_sum
from lamella.kernels.launches import Layout, dense_layout
from lamella.kernels.split_rows import FEWEST_GROUPS
from lamella.ops.formula import Contraction, Index
from lamella.ops.lower import reachable

FEW_SUBGROUPS, FULL_SUBGROUPS = 264, 528
"""Subgroups that leave most of a GPU idle, and as many as are wanted."""
LONG, LONG_INSIDE = 128, 512
"""Steps of a lane that take longer than one more launch; more where lanes go along the row, many loads at once."""
FEWEST_ELEMENTS = 1 << 15
"""Elements of a sum that is worth another launch."""
PART_STEPS = 16
"""Steps of a lane in a part, at least."""


def split_long_reductions(
    stages: Stages, layouts: Mapping[str, Layout], sizes: Sequence[int]
) -> tuple[Stages, dict[str, Layout]]:
    """The stages with reductions split that few subgroups would take long for, and the layouts of partial sums.

    The number of parts depends on extents and layouts alone: every GPU adds in the same order.
    """
    splitting = _Splitting(stages, layouts, sizes)
    writers = Counter(item.tensor for stage in stages.contractions for item in stage.targets)
    for number, stage in enumerate(stages.contractions):
        alone = len(stage.targets) == 1 and writers[stage.targets[0].tensor] == 1
        cut = splitting.find_split(stage, f"placed{number}{PARTIAL}") if alone else None
        splitting.contractions += (stage,) if cut is None else cut
    return replace(
        stages, contractions=tuple(splitting.contractions), tensors=splitting.tensors
    ), splitting.placed


@dataclass(slots=True)
class _Splitting:
    """The stages of a group while reductions are split."""

    stages: Stages
    layouts: Mapping[str, Layout]
    sizes: Sequence[int]
    contractions: list[Contraction] = field(default_factory=list)
    tensors: dict[str, GroupTensor] = field(init=False)
    placed: dict[str, Layout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tensors = dict(self.stages.tensors)

    def find_split(self, stage: Contraction, ending: str) -> tuple[Contraction, Contraction] | None:
        """Partial sums and their sum, in a tensor whose name ends so; None where splitting is not worth it."""
        extents = {loop.index: loop.extent for loop in stage.loops if isinstance(loop.extent, int)}
        if (
            stage.sign in ASSIGNMENTS
            or len(extents) < len(stage.loops)
            or any(map(is_open, extents.values()))
        ):
            return None
        if prod(extents.values()) < FEWEST_ELEMENTS or is_contraction(stage) or reuses(stage, self.stages):
            return None
        if find_scan(stage, self.stages.tensors) is not None:
            return None
        try:
            plan = self._plan(stage)
        except Unsupported:
            return None
        each, subgroups = _steps_of(plan, extents), plan.groups * plan.sharers
        shares = plan.across is None and plan.groups >= FEWEST_GROUPS
        if shares or subgroups >= FEW_SUBGROUPS or each < (LONG if plan.across else LONG_INSIDE):
            return None
        wanted = min(-(-FULL_SUBGROUPS // subgroups), each // PART_STEPS)
        kept = {item.name for item in reachable(*stage.targets[0].indices) if isinstance(item, Index)}
        name = f"{stage.targets[0].tensor}/{ending}"
        cuts = []
        for loop in stage.loops:
            count = max(size for size in range(1, wanted + 1) if extents[loop.index] % size == 0)
            if loop.index not in kept and count > 1:
                self._place(stage.targets[0].tensor, name, count)
                cut = two_stage_sum(stage, loop, count, name)
                with suppress(Unsupported):
                    cuts.append((_steps_of(self._plan(cut[0]), extents), count, cut))
        if not cuts:
            self.tensors.pop(name, None)
            self.placed.pop(name, None)
            return None
        _, count, cut = min(cuts, key=lambda item: item[0])
        self._place(stage.targets[0].tensor, name, count)
        return cut

    def _place(self, target: str, name: str, count: int) -> None:
        """Make the tensor of partial sums, laid out like the sum itself, one part behind the other."""
        held = self.tensors[target]
        self.tensors[name] = GroupTensor(name, held.element, (count, *held.shape))
        if target in self.layouts:
            strides = self.layouts[target].strides
            order = sorted(range(len(strides)), key=lambda place: -strides[place])
            self.placed[name] = dense_layout((count, *held.shape), (0, *(place + 1 for place in order)))

    def _plan(self, stage: Contraction) -> RowPlan:
        layouts = {**self.layouts, **self.placed}
        flat = {name: FlatLayout(item.strides, item.start) for name, item in layouts.items()}
        kernel = flatten_stages([stage], self.tensors, flat)
        return plan_rows(kernel, self.tensors, frozenset({stage.targets[0].tensor}), self.sizes, threads=True)


def _steps_of(plan: RowPlan, extents: Mapping[str, int]) -> int:
    """The steps that each lane takes of a sum, where all have some."""
    return prod(extents.values()) // (plan.groups * plan.sharers * plan.lanes)
