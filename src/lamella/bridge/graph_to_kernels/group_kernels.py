"""Kernel selection for a fused group: attention as one kernel, sums of products as tiles, the rest as row kernels.

Each run of stages gets the best kernel that can be written for it; what several kernels share is a temporary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.attention import Attention, find_attention
from lamella.bridge.graph_to_kernels.attention_backward import find_attention_backward
from lamella.bridge.graph_to_kernels.attention_variants import attention_variants
from lamella.bridge.graph_to_kernels.contraction import (
    ASSIGNMENTS,
    Held,
    fewest_steps,
    plan_steps,
    write_contraction,
)
from lamella.bridge.graph_to_kernels.coverage import is_written_whole
from lamella.bridge.graph_to_kernels.factors import find_factors, is_contraction
from lamella.bridge.graph_to_kernels.flash_attention_backward import write_flash_attention_backward
from lamella.bridge.graph_to_kernels.flat import FlatLayout
from lamella.bridge.graph_to_kernels.gemv_prologue import keep_factors, split_prologue
from lamella.bridge.graph_to_kernels.horizontal_fusion import Run, fuse_parts_horizontally
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.k_major import DECODED
from lamella.bridge.graph_to_kernels.layouts import inherited_order, product_factors
from lamella.bridge.graph_to_kernels.long_reductions import split_long_reductions
from lamella.bridge.graph_to_kernels.native_products import write_native_product
from lamella.bridge.graph_to_kernels.paged_attention import write_paged_attention
from lamella.bridge.graph_to_kernels.pooling import write_pooling
from lamella.bridge.graph_to_kernels.product_variants import (
    ProductPlace,
    Variant,
    WrittenProduct,
    write_product,
)
from lamella.bridge.graph_to_kernels.rows import SIZES, RowInside, write_rows
from lamella.bridge.graph_to_kernels.split_k import add_partial_sums, layout_of_sums
from lamella.bridge.graph_to_kernels.split_kv_attention import SPLIT
from lamella.bridge.graph_to_kernels.split_reductions import PARTIAL, reuses
from lamella.bridge.graph_to_kernels.strips import Chain, find_chain, write_strips
from lamella.bridge.graph_to_kernels.tables import tabulate
from lamella.bridge.graph_to_kernels.terms import TensorView, computing_type, stored_type
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED, SCALE
from lamella.bridge.graph_to_kernels.tile_parameters import FAULT, TileKernel
from lamella.bridge.graph_to_kernels.tiled import (
    Key,
    ProductGroup,
    extents_of,
    prepare_product,
    walk_terms,
)
from lamella.bridge.graph_to_kernels.winograd import WINOGRAD, write_winograd
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.candidates import Candidate, Choose, Problem
from lamella.kernels.launches import Layout, dense_layout
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
LIBRARY = "library"
"""The name of the candidate that a vendor library computes."""


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """The context of a group: which of its inputs are constant, and the layouts of its tensors."""

    fixed: frozenset[str] = frozenset()
    layouts: Mapping[str, Layout] = field(default_factory=dict)


@dataclass(slots=True)
class GroupWriter:
    """Writes the kernels of one group."""

    name: str
    stages: Stages
    target: Target
    place: GroupPlace
    operands: Mapping[str, Key]
    """The operand that each input and output is."""
    narrow: bool = False
    """Whether operands of products of two activations may be rounded to bf16."""
    rounds: bool = False
    """Whether both are: they are those of an attention that no kernel of its own computes."""
    choose: Choose | None = None
    """The autotuner, which chooses between candidates; without it the default is taken."""
    functions: list[Function] = field(default_factory=list)
    calls: list[KernelCall] = field(default_factory=list)
    products: int = 0
    partial: set[str] = field(default_factory=set)
    """Sums that go on from zeros, because no step writes every element."""
    _fixed: set[str] = field(default_factory=set)
    """Constant-folded tensors: what kernels of the group make of constant inputs."""
    _runs: list[Run] = field(default_factory=list)
    """The calls of row kernels, with their stages."""
    _whole: dict[str, bool] = field(default_factory=dict)
    """Whether tensors are written whole, as far as somebody asked."""

    def write(self) -> tuple[KernelCall, ...]:
        """Write all kernels; Unsupported where a stage has none."""
        if any(self._is_narrow(item) for item in self.stages.contractions):
            raise Unsupported("a sum of a narrow type is rounded by the host")
        attention = find_attention(self.stages.contractions, self.stages.outputs)
        if attention is not None and self._add_attention(attention):
            return tuple(self.calls)
        if self._add_attention_backward():
            return tuple(self.calls)
        if self.stages.borders:
            self._add_chain(find_chain(self.stages.contractions, self.stages.outputs))
            return tuple(self.calls)
        if self.target.has_threads:
            self.stages = keep_factors(self.stages, self.place.fixed)
            self.stages, placed = split_long_reductions(self.stages, self.place.layouts, self._row_sizes)
            self.place = replace(self.place, layouts={**self.place.layouts, **placed})
        waiting = list(self.stages.contractions)
        while waiting:
            waiting = waiting[self._take(waiting) :]
        if self.target.has_threads:
            self.functions, self.calls = fuse_parts_horizontally(self.functions, self.calls, self._runs)
        return tuple(self.calls)

    def write_pages(self, attributes: Mapping[str, object]) -> tuple[KernelCall, ...]:
        """Write the kernels of an attention to pages; Unsupported where there are none."""
        for kernel in write_paged_attention(attributes, self._views, self._real, self.target):
            self._add_tile(kernel)
        return tuple(self.calls)

    def _add_attention(self, attention: Attention) -> bool:
        """Fused attention in one kernel, where one can be written."""
        for write in attention_variants(self.target, self.narrow):
            with suppress(Unsupported):
                for kernel in write(attention, self._views, self._real, self.target):
                    self._add_tile(kernel)
                return True
        self.rounds = self.target.has_threads and self.narrow
        return False

    def _add_attention_backward(self) -> bool:
        """The kernels of the backward pass of attention, where they can be written."""
        roles = (
            find_attention_backward(self.stages.contractions, self._views)
            if self.target.has_threads
            else None
        )
        if roles is None or not self.narrow:
            return False
        with suppress(Unsupported):
            for kernel in write_flash_attention_backward(roles, self._real, self.target):
                self._add_tile(kernel)
            return True
        self.rounds = True
        return False

    @property
    def _real(self) -> Scalar:
        return Scalar("f64" if self.stages.wide else "f32")

    @property
    def _row_sizes(self) -> tuple[int, ...]:
        """The sizes that subgroups of row kernels may have."""
        return tuple(item for item in SIZES if item in self.target.subgroup_sizes) or SIZES

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
        """Write a kernel for the first stages; gives how many stages it computes."""
        prologue, place = split_prologue(stages, self._is_needed) if self.target.has_threads else ((), 0)
        if place:
            with suppress(Unsupported):
                count = _count_ends(stages[place:])
                self._add_product(stages[place : place + count], stages[place + count :], prologue)
                return place + count
        if is_contraction(stages[0]):
            for count, copies in self._counts(stages):
                last = count + copies
                try:
                    self._add_product(stages[:count], stages[last:], copies=tuple(stages[count:last]))
                    return last
                except Unsupported:
                    continue
        with suppress(Unsupported):
            return self._add_pooling(stages)
        if not reuses(stages[0], self.stages):
            run = _count_rows(stages)
            for stage in stages[:run]:
                self._lay(stage)
            counts: list[int] = [run, *range(min(run - 1, MOST_TRIED), 0, -1)]
            for count in counts:
                try:
                    self._add_rows(stages[:count], stages[count:])
                    self._runs.append((self.calls[-1], stages[:count]))
                    return count
                except Unsupported:
                    continue
        self._lay(stages[0])
        self._add_plain(stages[0])
        return 1

    def _lay(self, stage: Contraction) -> None:
        """Lay out a temporary like what it is computed from, so that loads and stores stay coalesced."""
        (target, *others), shapes = stage.targets, self.stages.tensors
        known = {*self.operands, *self.place.layouts, *self.place.fixed}
        if not self.target.has_threads or others or target.tensor in known or self._is_factor(target.tensor):
            return
        lies = {name: view.lies.strides for (name, _), view in self._views.items()}
        for name in (target.tensor, *self.place.fixed):
            lies.pop(name, None)
        order = inherited_order(stage, shapes, lies)
        if order is not None and order != tuple(range(len(order))):
            layout = dense_layout(shapes[target.tensor].shape, order)
            self.place = replace(self.place, layouts={**self.place.layouts, target.tensor: layout})

    def _is_factor(self, tensor: str) -> bool:
        """Whether a product of two tensors that the run makes reads one, which wants it row by row."""
        return any(
            tensor in _read([stage]) and product_factors(stage, self.place.fixed) is None
            for stage in self.stages.contractions
            if find_factors(stage) is not None
        )

    def _counts(self, stages: Sequence[Contraction]) -> Iterable[tuple[int, int]]:
        """Candidates for a product with its epilogue: how many stages, and how many copies of those behind them."""
        found = list[tuple[int, int]]()
        for count in (_count_ends(stages), 1):
            if self.target.tensor_cores:
                found.append((count, _count_copies(stages, count)))
            found.append((count, 0))
        return dict.fromkeys(found)

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
        prologue: tuple[Contraction, ...] = (),
        copies: tuple[Contraction, ...] = (),
    ) -> None:
        """A product with its prologue and epilogue."""
        hidden = stages[0].targets[0].tensor
        if len(stages) > 1 and hidden in {*self.stages.outputs, *_read(rest)}:
            raise Unsupported("the sum itself is needed")
        if self._is_started(stages[0]):
            raise Unsupported("a sum goes on from what its target holds")
        fixed = frozenset((name, None) for name in self.place.fixed)
        group = ProductGroup(stages[0], tuple(stages[1:]), prologue, copies=copies)
        try:
            self._add_winograd(group, fixed)
        except Unsupported:
            self._add_best(group, rest, fixed)
        self.products += 1

    def _add_best(self, group: ProductGroup, rest: Sequence[Contraction], fixed: frozenset[Key]) -> None:
        """The kernels of a product by the variant that autotuning chose, where it does."""
        place = ProductPlace(self._views, self._real, self.target, fixed, self.rounds, self.narrow)
        written = write_product(group, place)
        here = self._detached()
        chosen = here._as_usual(written, group, rest)
        problem = Problem(
            chosen,
            prod(extents_of(group.product).values()),
            frozenset(self.operands[name] for name in self.place.fixed if name in self.operands),
            partial(here._write_others, written, chosen.name, group, rest),
        )
        if self.choose is not None:
            chosen = self.choose(problem)
        self.functions += chosen.functions
        self.calls += chosen.calls

    def _as_usual(
        self, written: WrittenProduct, group: ProductGroup, rest: Sequence[Contraction]
    ) -> Candidate:
        """The default variant: the first one, or split-K for long sums of few tiles."""
        variant = written.in_parts
        if variant is not None:
            with suppress(Unsupported):
                return self._in_parts(variant, variant.write(), group, rest)
        return self._as_candidate(written.name, written.kernels)

    def _detached(self) -> GroupWriter:
        """A copy of this writer, whose kernels are not part of the group."""
        return replace(
            self,
            functions=list(self.functions),
            calls=list(self.calls),
            partial=set(self.partial),
            _fixed=set(self._fixed),
            _whole=dict(self._whole),
        )

    def _as_candidate(
        self,
        name: str,
        kernels: Iterable[TileKernel],
        epilogues: Sequence[Contraction] = (),
        rest: Sequence[Contraction] = (),
    ) -> Candidate:
        """A candidate for autotuning: kernels of a product, and one for the epilogue."""
        candidate = self._detached()
        for kernel in kernels:
            candidate._add_tile(kernel)
        if epilogues:
            candidate._add_rows(epilogues, rest)
        functions, calls = candidate.functions[len(self.functions) :], candidate.calls[len(self.calls) :]
        return Candidate(name, tuple(functions), tuple(calls))

    def _write_others(
        self, written: WrittenProduct, usual: str, group: ProductGroup, rest: Sequence[Contraction]
    ) -> Iterator[Candidate]:
        """The candidates beside the default one, that of a vendor library last."""
        if usual != written.name:
            yield self._as_candidate(written.name, written.kernels)
        for variant in (item for item in written.others if item.name != usual):
            with suppress(Unsupported):
                own = variant.write()
                yield (
                    self._in_parts(variant, own, group, rest)
                    if variant.parts > 1
                    else self._as_candidate(variant.name, own)
                )
        with suppress(Unsupported):
            if not group.prologue:
                yield self._by_library(group, rest)

    def _in_parts(
        self,
        variant: Variant,
        kernels: Iterable[TileKernel],
        group: ProductGroup,
        rest: Sequence[Contraction],
    ) -> Candidate:
        """The split-K candidate: its kernels, and one more that adds partial sums and runs the epilogue."""
        held = layout_of_sums(group, self._views)[group.product.targets[0].tensor, None]
        stages, adding, (name, layout) = add_partial_sums(self.stages, group.product, variant.parts, held)
        place = replace(self.place, layouts={**self.place.layouts, name: layout})
        candidate = replace(self._detached(), stages=stages, place=place)
        return candidate._as_candidate(variant.name, kernels, (adding, *group.epilogues, *group.copies), rest)

    def _by_library(self, group: ProductGroup, rest: Sequence[Contraction]) -> Candidate:
        """The candidate whose product a vendor library computes, with a kernel for the epilogue."""
        views = layout_of_sums(group, self._views)
        write = partial(write_native_product, tensors=views, real=self._real, target=self.target)
        try:
            return self._as_candidate(LIBRARY, [write(group)])
        except Unsupported:
            kernel, name = write(replace(group, epilogues=(), copies=())), group.product.targets[0].tensor
            layouts = {**self.place.layouts, name: views[name, None].lies}
            candidate = replace(self._detached(), place=replace(self.place, layouts=layouts))
            return candidate._as_candidate(LIBRARY, [kernel], (*group.epilogues, *group.copies), rest)

    def _add_winograd(self, group: ProductGroup, fixed: frozenset[Key]) -> None:
        """A Winograd convolution in strips: their kernels are the same, and see other parts of the tensors."""
        if group.copies:
            raise Unsupported("strips store outputs once")
        prepared = prepare_product(group, self._views, self._real)
        found = write_winograd(prepared, self._views, self._real, self.target, fixed)
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
        """Depth-first fusion of a chain of products; what is no such chain is better written product by product."""
        fixed = frozenset((name, None) for name in self.place.fixed)
        for kernel in write_strips(chain, self._views, self._real, self.target, fixed):
            self._add_tile(kernel)

    def _add_tile(self, kernel: TileKernel) -> None:
        operands = [
            self._operand(key[0], parameter.type)
            for key, parameter in zip(kernel.keys, kernel.parameters, strict=True)
            if isinstance(parameter.type, Memref)
        ]
        first, *others = (key[0] for key in kernel.keys)
        once = first.startswith((PACKED[0], SCALE)) and self._are_fixed(others)
        parameters = (*kernel.parameters, *([FAULT] if kernel.faults else []))
        function = Function(self._next, parameters, kernel.body, kernel.attributes)
        self._add(function, operands, kernel.groups, kernel.faults, once)

    def _add_pooling(self, stages: Sequence[Contraction]) -> int:
        """Pooling with as much epilogue as one kernel can have; gives how many stages those are."""
        if self._is_started(stages[0]):
            raise Unsupported("a sum goes on from what its target holds")
        self._lay(stages[0])
        hidden = stages[0].targets[0].tensor
        for count in dict.fromkeys((_count_ends(stages), 1)):
            is_needed = hidden in {*self.stages.outputs, *_read(stages[count:])}
            with suppress(Unsupported):
                kernel = write_pooling(stages[:count], self._views, self._real, self.target, is_needed)
                self._add_tile(kernel)
                return count
        raise Unsupported("it has no windows whose lanes lie closest")

    def _add_rows(self, stages: Sequence[Contraction], rest: Sequence[Contraction]) -> None:
        for stage in stages:
            self._verify_rows(stage)
        _keep_parts_apart(stages)
        made = dict.fromkeys(item.tensor for stage in stages for item in stage.targets)
        needed = {*self.stages.outputs, *_read(rest)}
        outputs = frozenset(name for name in made if name in needed)
        flat = {name: _flat(item) for name, item in self.place.layouts.items()}
        own = frozenset(name for name in self.stages.tensors if name not in self.operands)
        inside = RowInside(own, self.stages.wide, self.target.has_threads)
        kernel = write_rows(self._next, stages, self.stages.tensors, outputs, flat, self._row_sizes, inside)
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
        """The fallback: a loop nest of one formula; what only its loops decide is in tables."""
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
        floor = self._filled(stage.targets[0].tensor, stage)
        begun = Held(started, floor)
        groups, faults = write_contraction(builder, stage, views, self._real, FAULT.value, begun, least)
        parameters = [Parameter(item.memref, _strided(item)) for item in views.values()]
        operands = [
            replace(self._operand(name, parameter.type), offset=views[name, None].lies.start)
            for name, parameter in zip(names, parameters, strict=True)
            if isinstance(parameter.type, Memref)
        ]
        function = Function(self._next, (*parameters, *([FAULT] if faults else [])), builder.region())
        self._add(function, operands, groups, faults)

    def _filled(self, tensor: str, stage: Contraction) -> int | None:
        """The constant that a tensor is filled with before a stage; None where it is not known."""
        before = self.stages.contractions[: self.stages.contractions.index(stage)]
        writers = [item for item in before if any(one.tensor == tensor for one in item.targets)]
        if len(writers) != 1 or writers[0].sign not in ASSIGNMENTS or len(writers[0].targets) != 1:
            return None
        (value,) = writers[0].values
        whole = is_written_whole((tensor, None), writers, self._views)
        return value if whole and isinstance(value, int) and not isinstance(value, bool) else None

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
    """Hardware approximations of functions: where operands are rounded to 8 bits, 10 bits of them are enough."""
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
    """How many stages are a sum and its pointwise epilogue."""
    hidden = stages[0].targets[0].tensor
    count = 1
    for stage in stages[1:]:
        if stage.sign not in ASSIGNMENTS or hidden not in set(_read([stage])):
            break
        count += 1
    return count


def _count_copies(stages: Sequence[Contraction], count: int) -> int:
    """How many stages behind the first ones store what those make once more, in another type."""
    made = {item.tensor for stage in stages[:count] for item in stage.targets}
    copies = 0
    for stage in stages[count:]:
        (value, *others) = stage.values
        is_copy = isinstance(value, Element) and value.tensor in made and not others
        if not is_copy or stage.sign not in ASSIGNMENTS or stage.condition is not None:
            break
        copies += 1
    return copies


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
    """Refuse a kernel with both stages of a split reduction: one work-group would compute all of it."""
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
