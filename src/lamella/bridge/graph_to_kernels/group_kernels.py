"""The kernels of a group from its stages: attention as one, sums of products as tiles, the rest as row kernels.

Each run of stages gets the best kernel that can be written for it; what several kernels share is a temporary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import TypeAlias

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.attention import Attention, find_attention, write_attention
from lamella.bridge.graph_to_kernels.attention_gradient import find_gradient
from lamella.bridge.graph_to_kernels.code_vectors import find_code_product, write_code_product
from lamella.bridge.graph_to_kernels.contraction import (
    ASSIGNMENTS,
    fewest_steps,
    plan_steps,
    write_contraction,
)
from lamella.bridge.graph_to_kernels.core_attention import write_core_attention
from lamella.bridge.graph_to_kernels.core_products import find_core_product
from lamella.bridge.graph_to_kernels.core_windows import find_windows, write_windows
from lamella.bridge.graph_to_kernels.coverage import is_written_whole
from lamella.bridge.graph_to_kernels.decoded_factors import DECODED
from lamella.bridge.graph_to_kernels.factors import is_contraction
from lamella.bridge.graph_to_kernels.flat import FlatLayout
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.lane_products import find_lane_product, write_lane_product
from lamella.bridge.graph_to_kernels.mixtures import find_mixture, write_mixture
from lamella.bridge.graph_to_kernels.partial_sums import PARTIAL, reuses
from lamella.bridge.graph_to_kernels.rows import SIZES, RowInside, write_rows
from lamella.bridge.graph_to_kernels.split_attention import SPLIT, write_split_attention
from lamella.bridge.graph_to_kernels.stream_attention import write_stream_attention
from lamella.bridge.graph_to_kernels.stream_gradient import write_stream_gradient
from lamella.bridge.graph_to_kernels.strips import Chain, find_chain, plan_strips, write_strips
from lamella.bridge.graph_to_kernels.tables import tabulate
from lamella.bridge.graph_to_kernels.terms import TensorView, computing_type, stored_type
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED, SCALE, write_tiles
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel
from lamella.bridge.graph_to_kernels.tiled import (
    Key,
    ProductGroup,
    find_tiles,
    prepare_product,
    walk_terms,
)
from lamella.bridge.graph_to_kernels.turned_products import write_turned_product
from lamella.bridge.graph_to_kernels.vector_attention import write_vector_attention
from lamella.bridge.graph_to_kernels.vector_fronts import keep_factors, split_front
from lamella.bridge.graph_to_kernels.vector_parts import split_parts
from lamella.bridge.graph_to_kernels.vector_products import find_vector_product
from lamella.bridge.graph_to_kernels.vector_writer import write_vector_product
from lamella.bridge.graph_to_kernels.winograd import WINOGRAD, find_winograd, write_winograd
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.launches import Layout
from lamella.kernels.nodes import KernelCall, KernelOperand
from lamella.kernels.rewrite import rewrite, with_statements
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Function, Math, Memref, Parameter, Region, Scalar, Value
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.formula import Contraction, Element, Index
from lamella.ops.lower import reachable

MOST_STAGES = 32
"""Stages of one row kernel: code of more takes long to compile, and shares little."""
MOST_TRIED = 16
"""Stages that are tried together where all of a run are no kernel: each trial writes one."""
NATIVE = ("exp", "tanh", "erf")
"""Functions that a GPU has instructions for."""
FAULT = Parameter(Value("fault"), make_memref("i32", (1,)))


def _core_attention(
    attention: Attention, tensors: Mapping[Key, TensorView], real: Scalar, target: Target
) -> list[TileKernel]:
    return [write_core_attention(attention, tensors, real, target)]


def _whole_stream(
    attention: Attention, tensors: Mapping[Key, TensorView], real: Scalar, target: Target
) -> list[TileKernel]:
    """The kernel past which keys stream, where nothing has to be laid for it before."""
    kernels = write_stream_attention(attention, tensors, real, target)
    if len(kernels) > 1:
        raise Unsupported("its factors are no whole tiles of halves")
    return kernels


def _vector_attention(
    attention: Attention, tensors: Mapping[Key, TensorView], real: Scalar, target: Target
) -> list[TileKernel]:
    return [write_vector_attention(attention, tensors, real, target)]


def _attention(
    attention: Attention, tensors: Mapping[Key, TensorView], real: Scalar, target: Target
) -> list[TileKernel]:
    return [write_attention(attention, tensors, real, target)]


WriteAttention: TypeAlias = Callable[[Attention, Mapping[Key, TensorView], Scalar, Target], list[TileKernel]]
"""Gives the kernels of an attention, or says why there are none of its kind."""


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Where a group stands: which of its inputs never change, and where its tensors lie."""

    fixed: frozenset[str] = frozenset()
    layouts: Mapping[str, Layout] = field(default_factory=dict)


@dataclass(slots=True)
class GroupWriter:
    """The kernels of one group while they are written."""

    name: str
    stages: Stages
    target: Target
    place: GroupPlace
    operands: Mapping[str, Key]
    """The operand that each input and output is."""
    narrow: bool = False
    """Whether factors of products of two activations may be rounded to bf16."""
    rounds: bool = False
    """Whether both are: they are those of an attention that no kernel of its own computes."""
    functions: list[Function] = field(default_factory=list)
    calls: list[KernelCall] = field(default_factory=list)
    products: int = 0
    partial: set[str] = field(default_factory=set)
    """Sums that go on from zeros, because no step writes every element."""
    _fixed: set[str] = field(default_factory=set)
    """What kernels of the group make of inputs that never change."""
    _whole: dict[str, bool] = field(default_factory=dict)
    """Whether tensors are written whole, as far as somebody asked."""

    def write(self) -> tuple[KernelCall, ...]:
        """Write all kernels; Unsupported where a stage has none."""
        if any(self._is_narrow(item) for item in self.stages.contractions):
            raise Unsupported("a sum of a narrow type is rounded by the host")
        attention = find_attention(self.stages.contractions, self.stages.outputs)
        if attention is not None and self._add_attention(attention):
            return tuple(self.calls)
        if self._add_gradient():
            return tuple(self.calls)
        if self.stages.borders:
            self._add_chain(find_chain(self.stages.contractions, self.stages.outputs))
            return tuple(self.calls)
        if self.target.has_threads:
            self.stages = keep_factors(self.stages, self.place.fixed)
        waiting = list(self.stages.contractions)
        while waiting:
            waiting = waiting[self._take(waiting) :]
        return tuple(self.calls)

    def _add_attention(self, attention: Attention) -> bool:
        """One kernel for an attention, where one is written."""
        ways: Sequence[WriteAttention] = (_attention,)
        if self.target.has_threads:
            # Threads are many, and so are the scores: products of their own share them out better than lanes could.
            ways = (_whole_stream, _core_attention, write_stream_attention) if self.narrow else ()
            ways = (write_split_attention, _vector_attention, *ways)
        for write in ways:
            with suppress(Unsupported):
                for kernel in write(attention, self._views, self._real, self.target):
                    self._add_tile(kernel)
                return True
        self.rounds = self.target.has_threads and self.narrow
        return False

    def _add_gradient(self) -> bool:
        """The kernels of the way back through an attention, where they are written."""
        roles = find_gradient(self.stages.contractions, self._views) if self.target.has_threads else None
        if roles is None or not self.narrow:
            return False
        with suppress(Unsupported):
            for kernel in write_stream_gradient(roles, self._real, self.target):
                self._add_tile(kernel)
            return True
        self.rounds = True
        return False

    @property
    def _real(self) -> Scalar:
        return Scalar("f64" if self.stages.wide else "f32")

    @property
    def _views(self) -> dict[Key, TensorView]:
        return {
            (name, None): TensorView(Value(name), item.element, item.shape, self.place.layouts.get(name))
            for name, item in self.stages.tensors.items()
        }

    def _is_narrow(self, stage: Contraction) -> bool:
        """Whether a stage accumulates in another type than its target has."""
        elements = [self.stages.tensors[item.tensor].element for item in stage.targets]
        return stage.sign not in ASSIGNMENTS and any(
            computing_type(item, self._real) != item for item in elements
        )

    # --- runs of stages -------------------------------------------------------------------------------------------

    def _take(self, stages: Sequence[Contraction]) -> int:
        """Write a kernel for the first stages; gives how many those are."""
        front, place = split_front(stages, self._is_needed) if self.target.has_threads else ((), 0)
        if place:
            with suppress(Unsupported):
                count = _count_ends(stages[place:])
                self._add_product(stages[place : place + count], stages[place + count :], front)
                return place + count
        if is_contraction(stages[0]):
            for count in (_count_ends(stages), 1):
                try:
                    self._add_product(stages[:count], stages[count:])
                    return count
                except Unsupported:
                    continue
        if not reuses(stages[0], self.stages):
            run = _count_rows(stages)
            counts: list[int] = [run, *range(min(run - 1, MOST_TRIED), 0, -1)]
            for count in counts:
                try:
                    self._add_rows(stages[:count], stages[count:])
                    return count
                except Unsupported:
                    continue
        self._add_plain(stages[0])
        return 1

    def _is_started(self, stage: Contraction) -> bool:
        """Whether a stage goes on from what its target holds."""
        tensor = stage.targets[0].tensor
        first = next(item for item in self.stages.contractions if item.targets[0].tensor == tensor)
        return first is not stage

    def _verify_rows(self, stage: Contraction) -> None:
        if stage.sign in ASSIGNMENTS:
            return
        if self._is_started(stage):
            raise Unsupported("a sum goes on from what its target holds")
        indices = [index for item in stage.targets for index in item.indices]
        counted = {item.name for item in reachable(*indices) if isinstance(item, Index)}
        if counted >= {loop.index for loop in stage.loops}:
            raise Unsupported("a sum over nothing is no reduction of a row")

    def _is_needed(self, tensor: str, inside: Sequence[Contraction]) -> bool:
        """Whether a tensor leaves the group, or is read by other stages than some."""
        others = [item for item in self.stages.contractions if not any(item is one for one in inside)]
        return tensor in {*self.stages.outputs, *_read(others)}

    def _add_product(
        self,
        stages: Sequence[Contraction],
        rest: Sequence[Contraction],
        front: tuple[Contraction, ...] = (),
    ) -> None:
        hidden = stages[0].targets[0].tensor
        if len(stages) > 1 and hidden in {*self.stages.outputs, *_read(rest)}:
            raise Unsupported("the sum itself is needed")
        if self._is_started(stages[0]):
            raise Unsupported("a sum goes on from what its target holds")
        fixed = frozenset((name, None) for name in self.place.fixed)
        group = ProductGroup(stages[0], tuple(stages[1:]), front)
        try:
            self._add_winograd(group, fixed)
        except Unsupported:
            for kernel in self._vectors(group, fixed) or self._product(group, fixed):
                self._add_tile(kernel)
        self.products += 1

    def _vectors(self, group: ProductGroup, fixed: frozenset[Key]) -> list[TileKernel]:
        """The kernels of a product with few vectors that are scaled, or parts of whose rows are joined; none else."""
        if not self.target.has_threads:
            return []
        try:
            group, views = split_parts(group, self._views)
            if group.parts == 1 and not group.front:
                return []
            with suppress(Unsupported):
                codes = find_code_product(group, views, self._real, self.target, fixed, self.narrow)
                return write_code_product(codes, views)
            few = find_vector_product(group, views, self._real, self.target, fixed, self.narrow)
            return write_vector_product(few, views)
        except Unsupported:
            if group.front:
                raise
            return []

    def _product(self, group: ProductGroup, fixed: frozenset[Key]) -> list[TileKernel]:
        """The kernels of a sum of products, by tiles or by lanes."""
        with suppress(Unsupported):
            cores = find_core_product(group, self._views, self._real, self.target, self.rounds, self.narrow)
            return write_turned_product(cores, self._views, self.target)
        with suppress(Unsupported):
            windows = find_windows(group, self._views, self._real, self.target, fixed)
            return write_windows(windows, self._views)
        with suppress(Unsupported):
            codes = find_code_product(group, self._views, self._real, self.target, fixed)
            return write_code_product(codes, self._views)
        with suppress(Unsupported):
            few = find_vector_product(group, self._views, self._real, self.target, fixed)
            return write_vector_product(few, self._views)
        with suppress(Unsupported):
            return write_mixture(find_mixture(group, self._views, self._real, self.target), self._views)
        try:
            tiled = find_tiles(group, self._views, self._real, self.target, fixed)
            return write_tiles(tiled, self._views)
        except Unsupported:
            plan = find_lane_product(group, self._views, self._real, fixed)
            return write_lane_product(plan, self._views)

    def _add_winograd(self, group: ProductGroup, fixed: frozenset[Key]) -> None:
        """A convolution in strips: their kernels are the same, and see other parts of the tensors."""
        plan = find_winograd(prepare_product(group, self._views, self._real), self._real, fixed)
        found = write_winograd(plan, self._views, self.target)
        for kernel in found.weights:
            self._add_tile(kernel)
        for item in found.strip:
            self._add_tile(item.kernel)
        first = self.calls[-len(found.strip) :]
        for strip in range(1, found.strips):
            for item, call in zip(found.strip, first, strict=True):
                operands = zip(call.operands, item.moves, strict=True)
                moved = tuple(replace(operand, offset=strip * move) for operand, move in operands)
                self.calls.append(replace(call, operands=moved))

    def _add_chain(self, chain: Chain) -> None:
        """Products in strips; what is no such chain is better written product by product, each a group of its own."""
        fixed = frozenset((name, None) for name in self.place.fixed)
        plan = plan_strips(chain, self._views, self._real, self.target, fixed)
        for kernel in write_strips(plan, self._views):
            self._add_tile(kernel)

    def _add_tile(self, kernel: TileKernel) -> None:
        operands = [
            self._operand(key[0], parameter.type)
            for key, parameter in zip(kernel.keys, kernel.parameters, strict=True)
            if isinstance(parameter.type, Memref)
        ]
        first, *others = (key[0] for key in kernel.keys)
        once = first.startswith((PACKED[0], SCALE)) and self._are_fixed(others)
        function = Function(self._next, kernel.parameters, kernel.body, kernel.attributes)
        self._add(function, operands, kernel.groups, once=once)

    def _add_rows(self, stages: Sequence[Contraction], rest: Sequence[Contraction]) -> None:
        for stage in stages:
            self._verify_rows(stage)
        _keep_parts_apart(stages)
        made = dict.fromkeys(item.tensor for stage in stages for item in stage.targets)
        needed = {*self.stages.outputs, *_read(rest)}
        outputs = frozenset(name for name in made if name in needed)
        flat = {name: _flat(item) for name, item in self.place.layouts.items()}
        sizes = tuple(item for item in SIZES if item in self.target.subgroup_sizes) or SIZES
        own = frozenset(name for name in self.stages.tensors if name not in self.operands)
        inside = RowInside(own, self.stages.wide, self.target.has_threads)
        kernel = write_rows(self._next, stages, self.stages.tensors, outputs, flat, sizes, inside)
        operands = [
            replace(self._operand(name, parameter.type), offset=start)
            for name, start, parameter in zip(
                kernel.tensors, kernel.starts, kernel.function.parameters, strict=True
            )
            if isinstance(parameter.type, Memref)
        ]
        once = self._are_fixed(_read(stages), made)
        self._fixed |= set(made) if once else set()
        self._add(kernel.function, operands, kernel.groups, once=once)

    def _are_fixed(self, tensors: Iterable[str], made: Collection[str] = ()) -> bool:
        """Whether what a kernel reads, but for what it makes itself, is the same in every call."""
        return all(name in self.place.fixed or name in self._fixed or name in made for name in tensors)

    def _add_plain(self, stage: Contraction) -> None:
        """A kernel of one formula, the way that takes any; what only its loops decide is in tables."""
        shapes = {item.tensor: self.stages.tensors[item.tensor].shape for item in stage.targets}
        started = self._is_started(stage)
        least = fewest_steps(self.target)
        steps = plan_steps(stage, shapes, self._views[stage.targets[0].tensor, None].lies.strides, least)
        if stage.sign not in ASSIGNMENTS and not started and not steps.covers:
            if stage.sign != "+=":
                raise Unsupported("its target must be filled first")
            started = True  # what is not written whole holds zeros before
            self.partial |= {item.tensor for item in stage.targets}
        order = (*steps.inner, *steps.groups, *steps.items)
        found = tabulate(stage, order, self.stages.tensors, self._real.name == "f64")
        if found.tables:
            parts = [
                (*found.tables, found.formula) if item is stage else (item,)
                for item in self.stages.contractions
            ]
            self.stages = replace(
                self.stages,
                contractions=tuple(item for part in parts for item in part),
                tensors={**self.stages.tensors, **found.tensors},
            )
            for table in found.tables:
                self._add_plain(table)
            stage = found.formula
        names = dict.fromkeys(item.tensor for item in walk_terms(stage) if isinstance(item, Element))
        values = {name: Value(f"t{number}") for number, name in enumerate(names)}
        views: dict[Key, TensorView] = {
            (name, None): replace(self._views[name, None], memref=value) for name, value in values.items()
        }
        if any(0 in item.shape for item in views.values()):
            raise Unsupported("a tensor is empty")
        builder = Builder(FreshNames({*(item.name for item in values.values()), FAULT.value.name}))
        groups, faults = write_contraction(builder, stage, views, self._real, FAULT.value, started, least)
        parameters = [Parameter(item.memref, _strided(item)) for item in views.values()]
        operands = [
            replace(self._operand(name, parameter.type), offset=views[name, None].lies.start)
            for name, parameter in zip(names, parameters, strict=True)
            if isinstance(parameter.type, Memref)
        ]
        function = Function(self._next, (*parameters, *([FAULT] if faults else [])), builder.region())
        self._add(function, operands, groups, faults)

    # --- calls ----------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> str:
        return f"{self.name}_{len(self.functions)}" if self.functions else self.name

    def _add(
        self,
        function: Function,
        operands: Sequence[KernelOperand],
        groups: int,
        faults: bool = False,
        once: bool = False,
    ) -> None:
        if self.narrow and self.target.has_threads:
            function = replace(function, body=rewrite(function.body, _natively))
        self.functions.append(function)
        self.calls.append(KernelCall(function.name, tuple(operands), groups, faults, once=once))

    def _operand(self, tensor: str, type_: Memref) -> KernelOperand:
        shape = tuple(size or 0 for size in type_.shape)
        strides = tuple(stride or 0 for stride in type_.stride)
        name, item = self.operands.get(tensor, (f".{tensor.lstrip('.')}", None))
        own = tensor.startswith((PACKED[0], SCALE, WINOGRAD, DECODED[0], SPLIT))
        if own:
            # Each product of a group has a factor of its own to pack.
            name = f"{tensor}.{self.products}"
        whole = own or self._is_whole(tensor)
        return KernelOperand(name, item, shape, type_.element, whole, strides)

    def _is_whole(self, tensor: str) -> bool:
        if tensor in self.partial:
            return False
        if tensor not in self._whole:
            stages = self.stages.contractions
            written = any(item.tensor == tensor for stage in stages for item in stage.targets)
            self._whole[tensor] = written and is_written_whole((tensor, None), stages, self._views)
        return self._whole[tensor]


def _natively(region: Region, spmd: bool) -> Region:
    """Functions as the hardware has them: where factors are rounded to 8 bits, 10 bits of them are enough."""
    statements = [
        replace(item, instruction=replace(node, function=f"native_{node.function}"))
        if isinstance(node := item.instruction, Math)
        and node.function in NATIVE
        and node.type == Scalar("f32")
        else item
        for item in region.statements
    ]
    return with_statements(region, statements)


def _count_ends(stages: Sequence[Contraction]) -> int:
    """How many stages are a sum and what is made of it element by element."""
    hidden = stages[0].targets[0].tensor
    count = 1
    for stage in stages[1:]:
        if stage.sign not in ASSIGNMENTS or hidden not in set(_read([stage])):
            break
        count += 1
    return count


def _count_rows(stages: Sequence[Contraction]) -> int:
    """How many stages one row kernel may be made of at most: no sums of products, and each tensor written once."""
    written = {item.tensor for item in stages[0].targets}
    for count, stage in enumerate(stages[1:MOST_STAGES], 1):
        targets = {item.tensor for item in stage.targets}
        if is_contraction(stage) or targets & written:
            return count
        written |= targets
    return min(len(stages), MOST_STAGES)


def _keep_parts_apart(first: Sequence[Contraction]) -> None:
    """Refuse a kernel that sums parts and makes some: one work-group would make all of them."""
    made = {item.tensor for stage in first for item in stage.targets if item.tensor.endswith(PARTIAL)}
    sums = {stage.targets[0].tensor for stage in first if stage.sign not in ASSIGNMENTS}
    if made and sums - made:
        raise Unsupported("threads share a sum")


def _read(stages: Sequence[Contraction]) -> Iterator[str]:
    for stage in stages:
        written = [id(item) for item in stage.targets]
        for item in walk_terms(stage):
            if isinstance(item, Element) and id(item) not in written:
                yield item.tensor


def _flat(layout: Layout) -> FlatLayout:
    """A layout as places in one row of memory: the halo before the tensor is skipped."""
    return FlatLayout(layout.strides, layout.start)


def _strided(held: TensorView) -> Memref:
    """The memref of a tensor with a mode for each dimension, the last one first."""
    return make_memref(stored_type(held.element), held.shape[::-1], held.lies.strides[::-1])
