"""A graph as kernels: one for each formula of each operation, matrix products as `gemm`.

Operations that are composed are decomposed first; those without a formula, and the few formulas that no kernel is
written for, stay native.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamella.base.dim import substitute
from lamella.base.dtype import F32, F64, I64, ElementType
from lamella.base.errors import Found, Unsupported
from lamella.base.limits import DEFAULT, Limits
from lamella.bridge.graph_to_kernels.affine import is_integer
from lamella.bridge.graph_to_kernels.contraction import (
    ASSIGNMENTS,
    elements,
    neutral_value,
    plan_steps,
    write_contraction,
)
from lamella.bridge.graph_to_kernels.group_kernels import TEMPORARY, distinct, split_runs, stages_of
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.maps import ACCUMULATED
from lamella.bridge.graph_to_kernels.products import BatchedProduct, find_product, memref_shape, write_product
from lamella.bridge.graph_to_kernels.rows import SIZES, RowKernel
from lamella.bridge.graph_to_kernels.terms import TensorView, TermWriter, is_picked, stored_type
from lamella.bridge.graph_to_kernels.windows import WindowProduct, find_window, write_window
from lamella.graph.binding import bind_operation, quantizer_of, signature
from lamella.graph.compose.decompose import decompose
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Operation, Pack, Tensor, regions, walk
from lamella.graph.rewrite import members
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.nodes import KernelCall, KernelGraph, KernelOperand
from lamella.lang.tensor.nodes import Function, Parameter, Program, Scalar, Value
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction, Element
from lamella.ops.instance import Declared, Instance
from lamella.ops.library import Library
from lamella.ops.lower import contractions
from lamella.ops.specialise import specialise

# --- the kernels of operations: each formula of an operation is one, and one more fills what must -----------


Key = tuple[str, int | None]
FAULT = make_memref("i32", (1,))
FAULT_NAME = "fault"


@dataclass(slots=True)
class KernelWriter:
    """The kernels of a graph while they are written; `wide` computes every real in 64 bits."""

    library: Library
    wide: bool = False
    extents: Mapping[str, int] = field(default_factory=dict)
    """The numbers of extents that the graph leaves open."""
    functions: list[Function] = field(default_factory=list)
    sizes: Sequence[int] = SIZES
    """The sizes that a subgroup may have where the kernels will run."""

    def add(self, operation: Operation) -> tuple[KernelCall, ...]:
        """Write the kernels of an operation, none where it has nothing to compute.

        Unsupported says why there are none: it has no formula, or one that no kernel is written for.
        """
        if any(isinstance(item, Pack) for item in operation.outputs):
            raise Unsupported("only the run tells how many tensors it gives")
        instance = bind_operation(self.library, operation)
        before = len(self.functions)
        alone = instance.definition.operator.kind == "lower"
        try:
            if alone and _is_widened(instance, contractions(instance)):
                raise Unsupported("the host rounds what is accumulated in another type")
            return tuple(self._write_group(operation, alone))
        except Unsupported:
            del self.functions[before:]
            if not alone:
                raise
        try:
            return tuple(self._write(instance, self._formulas(instance)))
        except Unsupported:
            del self.functions[before:]
            raise

    def _write_group(self, operation: Operation, alone: bool) -> Iterator[KernelCall]:
        """The kernels of maps and reductions."""
        own = distinct(operation)
        stages = stages_of(self.library, own, self.extents, self.wide)
        if alone and any(name.endswith(ACCUMULATED) for name in stages.tensors):
            raise Unsupported("a sum starts from something")
        names = dict(_parameter_names(bind_operation(self.library, own), own))
        yield from self.add_stages(operation.operator.replace(".", "_"), stages, names, alone)

    def add_stages(
        self, stem: str, stages: Stages, names: Mapping[str, Key], strict: bool = False
    ) -> Iterator[KernelCall]:
        """Write the kernels of the stages of a group, whose tensors have these names; the others are temporaries.

        `strict` refuses a stage that is no part of a row kernel.
        """
        for run in split_runs(f"{stem}_{len(self.functions)}", stages, self.sizes):
            if run.kernel is not None:
                self.functions.append(run.kernel.function)
                yield _row_call(run.kernel, stages, names)
            elif strict:
                raise Unsupported(run.reason)
            else:
                yield from self._write_stage(stem, run.stages[0], stages, names)

    def _write_stage(
        self, stem: str, stage: Contraction, stages: Stages, names: Mapping[str, Key]
    ) -> Iterator[KernelCall]:
        """The kernels of a stage that is no row kernel."""
        taken = {FAULT_NAME}
        tensors: dict[Key, TensorView] = {
            (name, None): TensorView(Value(_memref_name(name, None, taken)), item.element, item.shape)
            for name, item in stages.tensors.items()
        }
        first = next(
            item for item in stages.contractions if item.targets[0].tensor == stage.targets[0].tensor
        )
        real = Scalar("f64" if any(item.element == F64 for item in tensors.values()) else "f32")
        for call in self._write_formula(stem, stage, tensors, real, stage is not first):
            operands = tuple(_renamed(item, names) for item in call.operands)
            yield replace(call, operands=operands)

    def _formulas(self, instance: Instance) -> Sequence[Contraction]:
        """The formulas as the reference runs them with these extents."""
        found = contractions(instance)
        try:
            return [specialise(item, self.extents) for item in found] if self.extents else found
        except (Fault, Found, ZeroDivisionError):
            raise Unsupported("its formula has no value with these extents") from None

    def _write(self, instance: Instance, formulas: Sequence[Contraction]) -> Iterator[KernelCall]:
        tensors = dict(_operations_tensors(instance, self.wide, self.extents))
        real = Scalar("f64" if any(item.element == F64 for item in tensors.values()) else "f32")
        tensors = {key: _computed(item, key, formulas, real) for key, item in tensors.items()}
        started: set[Key] = set()
        stem = instance.definition.name.replace(".", "_")
        for formula in formulas:
            keys = [_key(target) for target in formula.targets]
            begun = all(key in started for key in keys)
            yield from self._write_formula(stem, formula, tensors, real, begun)
            started.update(keys)

    def _write_formula(
        self, stem: str, formula: Contraction, tensors: Mapping[Key, TensorView], real: Scalar, begun: bool
    ) -> Iterator[KernelCall]:
        """The kernels of one formula; `begun` says that its targets hold values to go on from."""
        keys = [_key(target) for target in formula.targets]
        if any(key not in tensors for key in keys):
            raise Unsupported("a shape is only known in the run")
        shapes = {target.tensor: tensors[_key(target)].shape for target in formula.targets}
        empty = any(loop.extent == 0 for loop in formula.loops)
        if (
            formula.sign not in ASSIGNMENTS
            and not begun
            and (empty or not plan_steps(formula, shapes).covers)
        ):
            places = [key for key in keys if 0 not in tensors[key].shape]
            yield from (self._fill(stem, tensors[key], key, formula, real) for key in places)
            begun = True
        if not empty:
            yield self._kernel(stem, formula, tensors, real, begun)

    def _name(self, stem: str) -> str:
        return f"{stem}_{len(self.functions)}"

    def _kernel(
        self,
        stem: str,
        formula: Contraction,
        tensors: Mapping[Key, TensorView],
        real: Scalar,
        started: bool,
    ) -> KernelCall:
        product = find_product(formula, tensors, real)
        if product is not None:
            return self._product(stem, product, tensors, real, started)
        # The products of a window add to the target again and again, so it must hold something already.
        window = find_window(formula, tensors, real) if started else None
        if window is not None:
            return self._window(stem, window, real)
        used = _used(formula, tensors)
        names = FreshNames({item.memref.name for item in used.values()} | {FAULT_NAME})
        builder, fault = Builder(names), Value(FAULT_NAME)
        groups, faults = write_contraction(builder, formula, used, real, fault, started)
        operands = [
            KernelOperand(name, item, held.shape[::-1], stored_type(held.element))
            for (name, item), held in used.items()
        ]
        parameters = [
            Parameter(held.memref, make_memref(operand.element, operand.shape))
            for held, operand in zip(used.values(), operands, strict=True)
        ]
        if faults:
            parameters.append(Parameter(fault, FAULT))
        return self._close(stem, builder, parameters, operands, groups, faults)

    def _product(
        self,
        stem: str,
        product: BatchedProduct,
        tensors: Mapping[Key, TensorView],
        real: Scalar,
        started: bool,
    ) -> KernelCall:
        operands, parameters = [], []
        for number, factor in enumerate(product.factors):
            shape = memref_shape(factor, product.extents)
            name, item = _key(factor.element)
            operands.append(KernelOperand(name, item, shape, real.name))
            parameters.append(Parameter(Value("CAB"[number]), make_memref(real.name, shape)))
        builder = Builder(FreshNames({"A", "B", "C"}))
        memrefs = [item.value for item in parameters]
        groups = write_product(builder, product, memrefs, real, started)
        return self._close(stem, builder, parameters, operands, groups, False)

    def _window(self, stem: str, window: WindowProduct, real: Scalar) -> KernelCall:
        operands, parameters = [], []
        for number, element in enumerate(window.elements):
            shape = window.shape(number)
            operands.append(KernelOperand(*_key(element), shape, real.name))
            parameters.append(Parameter(Value("CAB"[number]), make_memref(real.name, shape)))
        builder = Builder(FreshNames({"A", "B", "C"}))
        groups = write_window(builder, window, [item.value for item in parameters], real)
        return self._close(stem, builder, parameters, operands, groups, False)

    def _fill(self, stem: str, held: TensorView, key: Key, formula: Contraction, real: Scalar) -> KernelCall:
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
        return self._close(stem, builder, [parameter], [operand], 1, False)

    def _close(
        self,
        stem: str,
        builder: Builder,
        parameters: Sequence[Parameter],
        operands: Sequence[KernelOperand],
        groups: int,
        faults: bool,
    ) -> KernelCall:
        name = self._name(stem)
        self.functions.append(Function(name, tuple(parameters), builder.region()))
        return KernelCall(name, tuple(operands), groups, faults)


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
    """A tensor that is accumulated is held in the type that is computed with, and rounded once by the host."""
    signs = {item.sign for item in formulas if any(target.tensor == key[0] for target in item.targets)}
    if signs <= set(ASSIGNMENTS):
        return held
    return replace(held, element=computing_type(held.element, real))


def computing_type(element: ElementType, real: Scalar) -> ElementType:
    """The type in which elements are computed with."""
    if element.is_float:
        return F64 if real.name == "f64" else F32
    return I64 if element.is_integer else element


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


# --- the tensors of a group -----------------------------------------------------------------------------------


def _parameter_names(instance: Instance, operation: Operation) -> Iterator[tuple[str, Key]]:
    """The inputs and outputs of an operation: what its operator calls each tensor."""
    names = [*(name for name, _ in instance.inputs), *(item.name for item in instance.outputs)]
    for name, value in zip(names, (*operation.inputs, *operation.outputs), strict=True):
        for number, item in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(item, Tensor):
                yield item.name, (name, number if isinstance(value, tuple) else None)


def _is_widened(instance: Instance, formulas: Sequence[Contraction]) -> bool:
    """Whether an output is accumulated in another type than it has."""
    summed = {
        item.tensor for formula in formulas if formula.sign not in ASSIGNMENTS for item in formula.targets
    }
    elements = [item.element for item in instance.outputs if item.name in summed]
    return any(computing_type(item, Scalar("f64" if item == F64 else "f32")) != item for item in elements)


def _row_call(kernel: RowKernel, stages: Stages, names: Mapping[str, Key]) -> KernelCall:
    operands = tuple(
        _renamed(KernelOperand(name, None, (span,), stored_type(stages.tensors[name].element)), names)
        for name, span in zip(kernel.tensors, kernel.spans, strict=True)
    )
    return KernelCall(kernel.function.name, operands, kernel.groups)


def _renamed(operand: KernelOperand, names: Mapping[str, Key]) -> KernelOperand:
    """An operand by the name that the operator gives it; what has none is a temporary."""
    name, item = names.get(operand.name, (f"{TEMPORARY}{operand.name}", None))
    return replace(operand, name=name, item=item)


__all__ = ["flatten", "graph_to_kernels"]


def flatten(model: Model, limits: Limits = DEFAULT) -> Model:
    """The model with every compound operator replaced by its components, itself where it has none."""
    return decompose(model, _none, limits)


def _none(operator: str) -> bool:
    """No operator is taken whole."""
    return False


def graph_to_kernels(
    model: Model,
    keep: Callable[[str], bool] | None = None,
    wide: bool = False,
    limits: Limits = DEFAULT,
    extents: Mapping[str, int] | None = None,
    quantized: bool = False,
    sizes: Sequence[int] = SIZES,
) -> KernelGraph:
    """The kernels of a model; operations that differ in names alone share them.

    `wide` holds and computes every real tensor in 64 bits. `extents` are the numbers of those that the graph leaves
    open; an operation with others has no kernel. With `quantized` what quantises tensors has kernels too. `sizes` are
    those that a subgroup may have.
    """
    flat = decompose(model, keep, limits) if keep else flatten(model, limits)
    kernels = KernelWriter(flat.library, wide, extents or {}, sizes=sizes)
    calls: dict[object, tuple[KernelCall, ...]] = {}
    native: dict[object, str] = {}
    quantizers = _quantizers(flat, limits) if quantized else ()
    for operation in (*flat.graph.operations(), *quantizers):
        key = signature(operation)
        if key not in calls and key not in native:
            try:
                calls[key] = kernels.add(operation)
            except Unsupported as problem:
                native[key] = str(problem)
    return KernelGraph(flat, Program(tuple(kernels.functions)), calls, native, kernels.extents, quantizers)


def _quantizers(model: Model, limits: Limits) -> tuple[Operation, ...]:
    """What quantises the tensors of a graph, decomposed like the graph itself."""
    found = {item.name: quantizer_of(item) for item in _tensors(model.graph)}
    nodes = tuple(item for item in found.values() if item is not None)
    given = tuple(item for node in nodes for item in node.inputs)
    alone = Graph(model.graph.name, given, tuple(item for node in nodes for item in node.outputs), nodes)
    return tuple(decompose(replace(model, graph=alone), _none, limits).graph.operations())


def _tensors(graph: Graph) -> Iterator[Tensor]:
    """Every tensor that a run holds by itself."""
    arguments = [*graph.inputs, *graph.variables, *(item.tensor for item in graph.constants)]
    for node in walk(graph.nodes):
        arguments += [*node.outputs, *(item for region in regions(node) for item in region.inputs)]
    return (item for item in members(arguments) if isinstance(item, Tensor))
