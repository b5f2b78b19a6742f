"""Kernel generation: the kernels of a graph, those of its fused groups and of its other operations.

Other compound operations are decomposed first, and so are groups that have no kernel as a whole. Operators without a
formula stay native, and so do the few formulas that no kernel is written for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from math import prod

from lamella.base.dim import substitute
from lamella.base.dtype import F64
from lamella.base.errors import Found, Unsupported
from lamella.base.limits import DEFAULT, Limits
from lamella.base.open_extent import OpenExtent
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import is_integer
from lamella.bridge.graph_to_kernels.contraction import (
    ASSIGNMENTS,
    Held,
    elements,
    fewest_steps,
    neutral_value,
    plan_steps,
    write_contraction,
)
from lamella.bridge.graph_to_kernels.coverage import find_shift, mark_calls
from lamella.bridge.graph_to_kernels.group_kernels import GroupPlace, GroupWriter
from lamella.bridge.graph_to_kernels.groups import Constants, group_of
from lamella.bridge.graph_to_kernels.in_place import UNDO, StateUpdate, find_put, find_updates
from lamella.bridge.graph_to_kernels.inline import Stages, inline
from lamella.bridge.graph_to_kernels.layouts import (
    PlacedStages,
    choose_layouts,
    crossing_tensors,
    fixed_tensors,
    insert_copies,
    pinned_tensors,
    temporary_orders,
)
from lamella.bridge.graph_to_kernels.paged_attention import OPERATOR as PAGES
from lamella.bridge.graph_to_kernels.split_concat import split_concat_consumers
from lamella.bridge.graph_to_kernels.split_reductions import split_reductions_over_threads
from lamella.bridge.graph_to_kernels.terms import (
    TensorView,
    TermWriter,
    computing_type,
    is_picked,
    stored_type,
)
from lamella.graph.binding import bind_operation, quantizer_of, signature
from lamella.graph.compose.decompose import decompose
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Operation, Pack, Tensor, regions, walk
from lamella.graph.nodes import tensors as tensors_of
from lamella.graph.rewrite import members
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.candidates import Choose
from lamella.kernels.deduplicate import deduplicate_kernels
from lamella.kernels.launches import Layout, dense_layout
from lamella.kernels.nodes import InPlaceCalls, KernelCall, KernelGraph, KernelOperand, find_temporaries
from lamella.kernels.target import TARGETS, Target
from lamella.lang.tensor.nodes import Function, Parameter, Program, Scalar, Value
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction, Element, Index, Loop
from lamella.ops.instance import Declared, Instance
from lamella.ops.library import Library, is_group
from lamella.ops.lower import contractions
from lamella.ops.memo import exact
from lamella.ops.specialise import specialise

# --- the kernels of operations: each formula of an operation is one, and one more fills what must -----------


Key = tuple[str, int | None]
FAULT = make_memref("i32", (1,))
FAULT_NAME = "fault"
F32 = Scalar("f32")


@dataclass(slots=True)
class KernelWriter:
    """Writes the kernels of a graph; `wide` computes every real in 64 bits."""

    library: Library
    wide: bool = False
    extents: Mapping[str, int] = field(default_factory=dict)
    """The numbers of extents that the graph leaves open."""
    target: Target = TARGETS["cpu-avx512"]
    narrow: bool = False
    """Whether factors of products of two activations may be rounded to bf16."""
    choose: Choose | None = None
    """Decides between the ways to compute a product."""
    functions: list[Function] = field(default_factory=list)
    _plans: dict[object, tuple[Operation, Stages | None]] = field(default_factory=dict)

    def add(
        self, operation: Operation, place: GroupPlace | None = None, known: Constants | None = None
    ) -> tuple[KernelCall, ...]:
        """Write the kernels of an operation, none where it has nothing to compute.

        Unsupported says why there are none: it has no formula, or one that no kernel is written for. `known` are the
        values of inputs that are the same everywhere. Inputs have the names that the graph gives them.
        """
        if any(isinstance(item, Pack) for item in operation.outputs):
            raise Unsupported("only the run tells how many tensors it gives")
        try:
            return self._add_group(operation, place or GroupPlace(), known or {})
        except Unsupported:
            if place is not None and place.layouts:
                raise
            return self.add_formulas(operation)

    def plan(self, operation: Operation, fixed: frozenset[str], known: Constants) -> PlacedStages:
        """The stages of an operation from its formulas, or from those of its components."""
        literals = tuple(exact(known.get(item.name)) for item in members(operation.inputs))
        key = signature(operation), literals
        if key not in self._plans:
            self._plans[key] = self._plan(operation, known)
        named, stages = self._plans[key]
        if stages is None:
            raise Unsupported("no kernel is written for its formulas together")
        names = {new: old for old, new in _pairs(operation, named)}
        return PlacedStages(stages, names, frozenset(new for new, old in names.items() if old in fixed))

    def _plan(self, operation: Operation, known: Constants) -> tuple[Operation, Stages | None]:
        named = name_operands(self.library, operation)
        if self._is_rounded_by_host(named):
            return named, None
        literals = {new: known[old] for old, new in _pairs(operation, named) if old in known}
        try:
            group = group_of(self.library, named)
            group = replace(group, constants={**group.constants, **literals})
            whole = inline(self.library, group, self.extents, self.wide)
            threads = self.target.has_threads
            stages = split_reductions_over_threads(
                split_concat_consumers(whole) if threads else whole, threads
            )
        except Unsupported:
            return named, None
        tables = any(isinstance(value, tuple) for value in stages.constants.values())
        return named, None if tables else stages

    def _is_rounded_by_host(self, operation: Operation) -> bool:
        """Whether an operator of its own accumulates in a narrow type: the host then holds it in a wide one."""
        instance = bind_operation(self.library, operation)
        narrow = [item.name for item in instance.outputs if computing_type(item.element, F32) != item.element]
        if not narrow or instance.definition.operator.kind != "lower":
            return False
        return any(
            formula.sign not in ASSIGNMENTS and any(item.tensor in narrow for item in formula.targets)
            for formula in contractions(instance)
        )

    def _add_group(self, operation: Operation, place: GroupPlace, known: Constants) -> tuple[KernelCall, ...]:
        placed = self.plan(operation, place.fixed, known)
        layouts = {new: place.layouts[old] for new, old in placed.names.items() if old in place.layouts}
        for name, order in temporary_orders(placed.stages, placed.fixed).items():
            layouts[name] = dense_layout(placed.stages.tensors[name].shape, order)
        if len(placed.stages.contractions) == 1 and not layouts and _shift(placed.stages, {}) is not None:
            raise Unsupported("it only renames memory")
        operands = {item: _operand_key(item) for item in placed.names}
        here = GroupPlace(placed.fixed, layouts)
        if operation.operator == PAGES:
            with suppress(Unsupported):
                return self._add_pages(operation, placed.stages, operands, here)
        calls = self.add_stages(operation.operator.replace(".", "_"), placed.stages, operands, here)
        shift = _shift(placed.stages, layouts) if len(placed.stages.contractions) == len(calls) == 1 else None
        return calls if shift is None else (replace(calls[0], renames=True, shift=shift),)

    def add_stages(
        self,
        stem: str,
        stages: Stages,
        operands: Mapping[str, Key],
        place: GroupPlace | None = None,
    ) -> tuple[KernelCall, ...]:
        """Write the kernels of stages; inputs and outputs are these operands, other tensors are temporaries."""
        name = f"{stem}_{len(self.functions)}"
        writing = GroupWriter(
            name, stages, self.target, place or GroupPlace(), operands, self.narrow, choose=self.choose
        )
        found = writing.write()
        find_temporaries(found)
        self.functions += writing.functions
        return found

    def _add_pages(
        self, operation: Operation, stages: Stages, operands: Mapping[str, Key], place: GroupPlace
    ) -> tuple[KernelCall, ...]:
        """The kernels of an attention to pages, which are read where they lie."""
        name = f"{operation.operator.replace('.', '_')}_{len(self.functions)}"
        writing = GroupWriter(name, stages, self.target, place, operands, self.narrow)
        found = writing.write_pages(dict(operation.attributes))
        self.functions += writing.functions
        return found

    def add_formulas(self, operation: Operation) -> tuple[KernelCall, ...]:
        """The kernels of an operation by its formulas, each one by itself."""
        instance = bind_operation(self.library, operation)
        if instance.definition.operator.kind != "lower":
            raise Unsupported("it has no formula")
        formulas = self._formulas(instance)
        before = len(self.functions)
        try:
            tensors = dict(_operations_tensors(instance, self.wide, self.extents))
            real = Scalar("f64" if any(item.element == F64 for item in tensors.values()) else "f32")
            computed = {key: _computed(item, key, formulas, real) for key, item in tensors.items()}
            calls = mark_calls(tuple(self._write(instance, formulas, computed, real)), formulas, tensors)
            return tuple(self._rounded(instance, calls, tensors, computed, real))
        except Unsupported:
            del self.functions[before:]
            raise

    def add_in_place(
        self, update: StateUpdate, known: frozenset[str], layouts: Mapping[str, Layout]
    ) -> InPlaceCalls:
        """Write kernels for an operation that puts its output into a state; Unsupported says why there are none.

        Where it is put may depend on the tensors that are known before a run: those say it again after one that failed.
        """
        instance = bind_operation(self.library, update.operation)
        given = [
            (name, item.name)
            for (name, _), item in zip(instance.inputs, update.operation.inputs, strict=True)
            if isinstance(item, Tensor)
        ]
        kept = [name for name, tensor in given if tensor == update.state]
        formulas = self._formulas(instance)
        if len(kept) != 1 or len(formulas) != 1:
            raise Unsupported("it is not one formula of the state")
        put, output = find_put(formulas[0], kept[0]), instance.outputs[0].name
        if not {tensor for name, tensor in given if name in put.where} <= known:
            raise Unsupported("only the run tells where")
        tensors = dict(_operations_tensors(instance, self.wide, self.extents))
        for name, tensor in given:
            tensors[name, None] = replace(tensors[name, None], layout=layouts.get(tensor))
        held = tensors[output, None]
        tensors[UNDO, None] = TensorView(Value("undo"), held.element, put.shape)
        real = Scalar("f64" if any(item.element == F64 for item in tensors.values()) else "f32")
        before = len(self.functions)
        try:
            save, write, restore = (
                self._kernel(instance, item, tensors, real, True)
                for item in (put.save(output), put.formula, put.restore())
            )
        except Unsupported:
            del self.functions[before:]
            raise
        # Where nothing is overwritten, nothing is restored: what is not saved need not be zero.
        calls = replace(save, operands=tuple(replace(item, whole=True) for item in save.operands)), write
        return InPlaceCalls(update.state, UNDO, calls, restore)

    def _formulas(self, instance: Instance) -> Sequence[Contraction]:
        """The formulas as the reference runs them with these extents."""
        found = contractions(instance)
        try:
            return [specialise(item, self.extents) for item in found] if self.extents else found
        except (Fault, Found, ZeroDivisionError):
            raise Unsupported("its formula has no value with these extents") from None

    def _rounded(
        self,
        instance: Instance,
        calls: Sequence[KernelCall],
        tensors: Mapping[Key, TensorView],
        computed: Mapping[Key, TensorView],
        real: Scalar,
    ) -> Iterator[KernelCall]:
        """The calls with what is accumulated in a wider type as a temporary, which is rounded once at the end."""
        used = {(item.name, item.item): item for call in calls for item in call.operands}
        wide = {
            key: replace(item, name=f".{item.name}.{item.item or 0}", item=None)
            for key, item in used.items()
            if item.element != stored_type(tensors[key].element)
        }
        for call in calls:
            named = (
                replace(item, name=wide[item.name, item.item].name, item=None)
                if (item.name, item.item) in wide
                else item
                for item in call.operands
            )
            yield replace(call, operands=tuple(named))
        for key, operand in wide.items():
            yield self._round(instance, tensors[key], computed[key], key, operand, real)

    def _round(
        self,
        instance: Instance,
        held: TensorView,
        computed: TensorView,
        key: Key,
        operand: KernelOperand,
        real: Scalar,
    ) -> KernelCall:
        """A kernel that stores a temporary in the type of its tensor."""
        rows, columns = prod(held.shape[:-1]), prod(held.shape[-1:])
        flat = {
            key: replace(held, shape=(rows, columns)),
            (operand.name, None): replace(
                computed, shape=(rows, columns), memref=Value(f"{held.memref.name}_wide")
            ),
        }
        kind = "real" if held.element.is_float else "int"
        place = Index("i"), Index("j")
        copy = Contraction(
            (Element(key[0], place, kind, key[1]),),
            "=",
            (Element(operand.name, place, kind),),
            (Loop("i", rows), Loop("j", columns)),
        )
        found = self._kernel(instance, copy, flat, real, False)
        first, second = found.operands
        return replace(found, operands=(replace(first, whole=True), second))

    def _write(
        self,
        instance: Instance,
        formulas: Sequence[Contraction],
        tensors: Mapping[Key, TensorView],
        real: Scalar,
    ) -> Iterator[KernelCall]:
        started: set[Key] = set()
        for formula in formulas:
            keys = [_key(target) for target in formula.targets]
            if any(key not in tensors for key in keys):
                raise Unsupported("a shape is only known in the run")
            shapes = {target.tensor: tensors[_key(target)].shape for target in formula.targets}
            begun = all(key in started for key in keys)
            empty = any(loop.extent == 0 for loop in formula.loops)
            if (
                formula.sign not in ASSIGNMENTS
                and not begun
                and (empty or not plan_steps(formula, shapes).covers)
            ):
                places = [key for key in keys if 0 not in tensors[key].shape]
                yield from (self._fill(instance, tensors[key], key, formula, real) for key in places)
                begun = True
            started.update(keys)
            if not empty:
                yield self._kernel(instance, formula, tensors, real, begun)

    def _name(self, instance: Instance) -> str:
        return f"{instance.definition.name.replace('.', '_')}_{len(self.functions)}"

    def _kernel(
        self,
        instance: Instance,
        formula: Contraction,
        tensors: Mapping[Key, TensorView],
        real: Scalar,
        started: bool,
    ) -> KernelCall:
        used = _used(formula, tensors)
        names = FreshNames({item.memref.name for item in used.values()} | {FAULT_NAME})
        builder, fault = Builder(names), Value(FAULT_NAME)
        least = fewest_steps(self.target)
        groups, faults = write_contraction(builder, formula, used, real, fault, Held(started), least)
        operands = [_operand_of(key, held) for key, held in used.items()]
        parameters = [
            Parameter(held.memref, make_memref(operand.element, operand.shape, operand.strides))
            for held, operand in zip(used.values(), operands, strict=True)
        ]
        if faults:
            parameters.append(Parameter(fault, FAULT))
        return self._close(instance, builder, parameters, operands, groups, faults)

    def _fill(
        self, instance: Instance, held: TensorView, key: Key, formula: Contraction, real: Scalar
    ) -> KernelCall:
        """A kernel that gives every element the value that changes nothing."""
        count = 1
        for size in held.shape:
            count *= size
        flat = replace(held, shape=(count,))
        builder = Builder(FreshNames({held.memref.name}))
        end = builder.constant(count)
        with builder.foreach([end]) as (inner, variables):
            writing = TermWriter(real, {key: flat}, {"i": count}, [inner])
            writing.open_index("i", variables[0])
            target = replace(formula.targets[0], tensor=key[0], item=key[1])
            value = neutral_value(writing, formula.sign, target)
            writing.store_at(value, target, [variables[0]])
        operand = KernelOperand(key[0], key[1], (count,), stored_type(held.element))
        parameter = Parameter(held.memref, make_memref(operand.element, (count,)))
        return self._close(instance, builder, [parameter], [operand], 1, False)

    def _close(
        self,
        instance: Instance,
        builder: Builder,
        parameters: Sequence[Parameter],
        operands: Sequence[KernelOperand],
        groups: int,
        faults: bool,
    ) -> KernelCall:
        """Finish a kernel."""
        name = self._name(instance)
        self.functions.append(Function(name, tuple(parameters), builder.region()))
        return KernelCall(name, tuple(operands), groups, faults)


def name_operands(library: Library, operation: Operation) -> Operation:
    """The operation on tensors that have the names of its operator's parameters, each its own."""
    instance = bind_operation(library, operation)
    inputs = [_rename(name, item) for (name, _), item in zip(instance.inputs, operation.inputs, strict=True)]
    outputs = [
        _rename(item.name, argument)
        for item, argument in zip(instance.outputs, operation.outputs, strict=True)
    ]
    return replace(operation, inputs=tuple(inputs), outputs=tuple(outputs))


def _rename(name: str, argument: Argument) -> Argument:
    if isinstance(argument, Tensor):
        return replace(argument, name=name)
    if not isinstance(argument, tuple):
        return argument
    return tuple(replace(item, name=f"{name}:{number}") for number, item in enumerate(argument))


def _operand_key(name: str) -> Key:
    """The operand that a tensor of a named operation is."""
    word, _, number = name.partition(":")
    return word, int(number) if number else None


def _pairs(operation: Operation, named: Operation) -> Iterator[tuple[str, str]]:
    """The names of an operation's tensors in the graph, and those of its operator's parameters."""
    sides = zip((*operation.inputs, *operation.outputs), (*named.inputs, *named.outputs), strict=True)
    for one, other in sides:
        for old, new in zip(tensors_of(one), tensors_of(other), strict=True):
            yield old.name, new.name


def _shift(stages: Stages, layouts: Mapping[str, Layout]) -> int | None:
    """The offset of a copy in its source, in elements, if the one formula is a copy that can be a view.

    A view of a part has gaps. What leaves the graph may have to lie row by row; it then has memory of its own.
    """
    tensors: dict[Key, TensorView] = {
        (name, None): TensorView(Value("t"), item.element, item.shape, layouts.get(name))
        for name, item in stages.tensors.items()
    }
    (target, *_) = stages.contractions[0].targets
    return find_shift(stages.contractions[0], tensors, parts=target.tensor in layouts)


# --- the tensors of an operation ----------------------------------------------------------------------------


def _key(element: Element) -> Key:
    return element.tensor, element.item if is_integer(element.item) else None


def _operations_tensors(
    instance: Instance, wide: bool, extents: Mapping[str, int]
) -> Iterator[tuple[Key, TensorView]]:
    """Every tensor that the formulas may name, as far as its shape is known."""
    declared: list[tuple[str, object]] = [
        *instance.inputs,
        *((item.name, item.tensors()) for item in instance.outputs),
        *((item.name, item.tensors()) for item, _ in instance.constants),
    ]
    taken = {FAULT_NAME}
    for name, value in declared:
        items = value if isinstance(value, tuple) else (value,)
        for number, item in enumerate(items):
            key = name, number if isinstance(value, tuple) else None
            held = _held(_memref_name(*key, taken), item, wide, extents)
            if held is not None:
                yield key, held


def _memref_name(name: str, number: int | None, taken: set[str]) -> str:
    """The name of a tensor as the language has it, unlike every other."""
    stem = "".join(char if char.isascii() and char.isalnum() else "_" for char in name).lstrip("_0123456789")
    found = f"{stem or 't'}{'' if number is None else f'_{number}'}"
    while found in taken:
        found += "_"
    taken.add(found)
    return found


def _held(name: str, item: object, wide: bool, extents: Mapping[str, int]) -> TensorView | None:
    if not isinstance(item, Tensor | Declared) or item.shape is None:
        return None
    known = [substitute(extent, extents) for extent in item.shape]
    shape = tuple(extent for extent in known if isinstance(extent, int))
    if len(shape) != len(item.shape):
        return None
    element = F64 if wide and item.element.is_float else item.element
    return TensorView(Value(name), element, shape)


def _computed(held: TensorView, key: Key, formulas: Sequence[Contraction], real: Scalar) -> TensorView:
    """A tensor that is accumulated is held in the type that is computed with, and rounded once at the end."""
    signs = {item.sign for item in formulas if any(target.tensor == key[0] for target in item.targets)}
    if signs <= set(ASSIGNMENTS):
        return held
    return replace(held, element=computing_type(held.element, real))


def _used(formula: Contraction, tensors: Mapping[Key, TensorView]) -> dict[Key, TensorView]:
    """The tensors that a formula names, targets first; none of them may be empty or unknown."""
    found: dict[Key, TensorView] = {}
    for element in (*formula.targets, *elements(formula)):
        keys = _pack(element.tensor, tensors) if is_picked(element) else [_key(element)]
        if not keys or any(key not in tensors or 0 in tensors[key].shape for key in keys):
            raise Unsupported(f"'{element.tensor}' has no memref")
        found.update((key, tensors[key]) for key in keys)
    return found


def _pack(name: str, tensors: Mapping[Key, TensorView]) -> list[Key]:
    return [key for key in tensors if key[0] == name]


__all__ = ["KernelOptions", "flatten", "graph_to_kernels"]


def flatten(model: Model, limits: Limits = DEFAULT) -> Model:
    """The model with every compound operator but fused groups replaced by its components."""
    return decompose(model, is_group, limits)


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """The options that kernels depend on beside the graph."""

    wide: bool = False
    """Whether every real tensor is held and computed in 64 bits."""
    extents: Mapping[str, int] = field(default_factory=dict)
    """The numbers of extents that the graph leaves open; an operation with others has no kernel."""
    quantized: bool = False
    """Whether what quantises tensors has kernels too."""
    target: Target = TARGETS["cpu-avx512"]
    layouts: bool = True
    """Whether tensors inside the graph may lie in another way than row by row."""
    narrow: bool = False
    """Whether tensor cores may round factors of products of two activations to bf16 by themselves."""
    choose: Choose | None = None
    """Decides between the ways to compute a product; without it the one that a model of the machine likes best."""


def graph_to_kernels(
    model: Model,
    keep: Callable[[str], bool] | None = None,
    limits: Limits = DEFAULT,
    options: KernelOptions | None = None,
) -> KernelGraph:
    """The kernels of a model; operations that differ in names alone share them.

    A compound operator that `keep` chooses, without it a fused group, is written whole. Where it has no kernels as a
    whole its components are written instead, so only what really has none is native.
    """
    chosen, kept = options or KernelOptions(), keep or is_group
    # Code for threads is made for the extents of a call: its tiles and pieces depend on them.
    fixed = chosen.target.has_threads
    extents = {
        name: OpenExtent(size) if size > 1 and not fixed else size for name, size in chosen.extents.items()
    }
    kernels = KernelWriter(model.library, chosen.wide, extents, chosen.target, chosen.narrow, chosen.choose)
    calls: dict[object, tuple[KernelCall, ...]] = {}
    refused: set[str] = set()
    while True:
        flat = decompose(model, partial(_stays, kept, frozenset(refused)), limits)
        quantizers = _quantizers(flat, limits) if chosen.quantized else ()
        found = _write_kernels(flat, kernels, quantizers, chosen.layouts and not chosen.quantized, calls)
        compound = set(_compound_natives(found))
        if compound <= refused:
            return found
        refused |= compound


def _stays(kept: Callable[[str], bool], refused: frozenset[str], operator: str) -> bool:
    return kept(operator) and operator not in refused


def _write_kernels(
    flat: Model,
    kernels: KernelWriter,
    quantizers: tuple[Operation, ...],
    layouts: bool,
    calls: dict[object, tuple[KernelCall, ...]],
) -> KernelGraph:
    """The kernels of a model whose operations stay as they are."""
    known = {
        item.tensor.name: item.value
        for item in flat.graph.constants
        if isinstance(item.value, bool | int | float)
    }
    if layouts:
        flat = replace(flat, graph=insert_copies(flat.graph, partial(_plan_one, kernels, known)))
    program = KernelGraph(flat, Program(()), {}, {}, kernels.extents, quantizers)
    return _Placing(kernels, program, known, layouts, calls).run()


def _compound_natives(kernels: KernelGraph) -> Iterator[str]:
    """The operators without kernels that have components which may have some."""
    for operation in (*kernels.model.graph.operations(), *kernels.quantizers):
        definition = kernels.model.library.find(operation.operator)
        compound = definition is not None and definition.operator.kind == "compose"
        if compound and kernels.key(operation) in kernels.native:
            yield operation.operator


def _plan_one(
    kernels: KernelWriter, known: Constants, operation: Operation, fixed: frozenset[str]
) -> PlacedStages | None:
    if operation.operator == PAGES and kernels.target.has_threads:
        return None  # pages and queries are read wherever they lie
    try:
        return kernels.plan(operation, fixed, known)
    except Unsupported:
        return None


class _Placing:
    """Writes the kernels while layouts are assigned: where one cannot be written for them, the layouts are given up."""

    def __init__(
        self,
        kernels: KernelWriter,
        program: KernelGraph,
        known: Constants,
        layouts: bool,
        calls: dict[object, tuple[KernelCall, ...]],
    ) -> None:
        self.kernels = kernels
        self.program = program
        self.known = known
        self.fixed = fixed_tensors(program.model.graph)
        self.pinned = pinned_tensors(program.model.graph)
        self.layouts: dict[str, Layout] = {}
        self.choosing = layouts
        self.calls = calls
        self.native: dict[object, str] = {}

    def run(self) -> KernelGraph:
        """Write all kernels."""
        graph = self.program.model.graph
        top = [item for item in graph.nodes if isinstance(item, Operation)]
        while True:
            plans = [_plan_one(self.kernels, self.known, item, self.fixed) for item in top]
            for item, plan in zip(top, plans, strict=True):
                if plan is None:
                    self.pinned |= set(_names_of(item))
            moved = self.kernels.target.has_threads
            self.layouts = choose_layouts(plans, self.pinned, moved) if self.choosing else {}
            found = replace(self.program, keys=self._keys(), layouts=self.layouts)
            failed = [item for item in (*graph.operations(), *found.quantizers) if not self._add(found, item)]
            crossing = crossing_tensors(graph, partial(self._cuts, found)) & self.layouts.keys()
            if not failed and not crossing:
                break
            self.pinned |= {name for item in failed for name in _names_of(item)} | crossing
        needed = {found.key(item) for item in (*graph.operations(), *found.quantizers)}
        calls = {key: item for key, item in self.calls.items() if key in needed}
        in_place = dict(self._in_place(found)) if self.kernels.extents else {}
        used = {call.kernel for item in calls.values() for call in item}
        used |= {call.kernel for item in in_place.values() for call in (*item.calls, item.restore)}
        functions = tuple(item for item in self.kernels.functions if item.name in used)
        written = replace(
            found, program=Program(functions), calls=calls, native=self.native, in_place=in_place
        )
        return deduplicate_kernels(written)

    def _cuts(self, found: KernelGraph, operation: Operation) -> bool:
        """Whether an operation ends a launch list: it has no kernels, or a pack of unknown length."""
        packs = any(isinstance(item, Pack) for item in (*operation.inputs, *operation.outputs))
        return packs or found.key(operation) in self.native

    def _in_place(self, found: KernelGraph) -> Iterator[tuple[str, InPlaceCalls]]:
        """The operations that may write into states, by the names of their outputs."""
        graph = self.program.model.graph
        updates = list(find_updates(graph))
        known = {item.name for item in (*members(graph.inputs), *graph.variables)}
        known -= {item.state for item in updates}
        written: dict[object, InPlaceCalls] = {}
        for item in updates:
            key = found.key(item.operation)
            with suppress(Unsupported):
                if key not in written:
                    written[key] = self.kernels.add_in_place(item, frozenset(known), self.layouts)
                yield item.value, replace(written[key], state=item.state)

    def _add(self, found: KernelGraph, operation: Operation) -> bool:
        """Write the kernels of an operation; False where it has none for the layouts of its tensors."""
        key = found.key(operation)
        if key in self.calls or key in self.native:
            return True
        own = {name: self.layouts[name] for name in _names_of(operation) if name in self.layouts}
        try:
            self.calls[key] = self.kernels.add(operation, GroupPlace(self.fixed, own), self.known)
        except Unsupported as problem:
            if own:
                return False
            self.native[key] = str(problem)
        return True

    def _keys(self) -> dict[str, object]:
        """What kernels depend on beside signatures: which inputs are fixed, which have a value, how tensors lie."""
        found: dict[str, object] = {}
        for operation in self.program.model.graph.operations():
            names = [item.name for item in members(operation.inputs)]
            values = tuple(exact(self.known.get(name)) for name in names)
            lies = tuple(self.layouts.get(name) for name in _names_of(operation))
            first = next((item.name for item in members(operation.outputs)), "")
            found[first] = tuple(name in self.fixed for name in names), values, lies
        return found


def _operand_of(key: Key, held: TensorView) -> KernelOperand:
    """The argument that a tensor is, as it lies."""
    name, item = key
    dense = KernelOperand(name, item, held.shape[::-1], stored_type(held.element))
    if held.layout is None:
        return dense
    return replace(dense, strides=held.layout.strides[::-1], offset=held.layout.start)


def _names_of(operation: Operation) -> list[str]:
    return [item.name for item in members((*operation.inputs, *operation.outputs))]


def _quantizers(model: Model, limits: Limits) -> tuple[Operation, ...]:
    """What quantises the tensors of a graph, decomposed like the graph itself."""
    found = {item.name: quantizer_of(item) for item in _tensors(model.graph)}
    nodes = tuple(item for item in found.values() if item is not None)
    given = tuple(item for node in nodes for item in node.inputs)
    alone = Graph(model.graph.name, given, tuple(item for node in nodes for item in node.outputs), nodes)
    return tuple(decompose(replace(model, graph=alone), is_group, limits).graph.operations())


def _tensors(graph: Graph) -> Iterator[Tensor]:
    """Every tensor that a run holds by itself."""
    arguments = [*graph.inputs, *graph.variables, *(item.tensor for item in graph.constants)]
    for node in walk(graph.nodes):
        arguments += [*node.outputs, *(item for region in regions(node) for item in region.inputs)]
    return (item for item in members(arguments) if isinstance(item, Tensor))
