"""From a graph to a selected plan: NEM opcodes that the device has, before any tiling.

Every operation becomes opcodes by the row of its operator, or else what its own definition is made of becomes them.
Every tensor is one whole region in DDR, so the plan is straight text that can be read, checked, run, and tiled.
What is known before the run is computed here. What nothing can express is one finding with the origin of the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import Diagnostic, LamellaError, printable
from lamella.base.dtype import BOOL, F64, I64, U64, ElementType, name_in
from lamella.base.errors import Unsupported
from lamella.base.origin import Origin, with_origin
from lamella.base.quant import Quant
from lamella.base.shape import element_count
from lamella.base.source import NOWHERE, Span
from lamella.bridge.graph_to_kernels.task import ReadsNothing
from lamella.bridge.graph_to_plan.assembly import (
    Assembly,
    TaskRecord,
    port_names,
    size_of,
    write_document,
)
from lamella.bridge.graph_to_plan.compute import ComputeTasks
from lamella.bridge.graph_to_plan.emitter import Emitter, stored_array
from lamella.bridge.graph_to_plan.joining import join_parts, original_of
from lamella.bridge.graph_to_plan.offers import FLOATS, Offers
from lamella.bridge.graph_to_plan.rows import TABLE, Row, RowCall
from lamella.bridge.graph_to_plan.rows.call import Given, static
from lamella.bridge.graph_to_plan.rows.quantised import boundary_quant
from lamella.bridge.graph_to_plan.rules import NO_FLOATS, NOT_SELECTED
from lamella.bridge.graph_to_plan.values import BufferRecord, Value, is_whole, known, natural, placed
from lamella.graph.compose.decompose import compose_call, decompose
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Operation, Pack, Tensor, tensors
from lamella.graph.passes.fold_batch_norm import fold_batch_norm
from lamella.graph.passes.fold_constants import Evaluate, array_of
from lamella.graph.passes.unroll_loops import unroll_loops
from lamella.graph.rewrite import operands_of, results_of, uses
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.nodes import DeviceRef, Document
from lamella.ops.fault import Fault

LIBRARY = "ops/"
"""How the names of the library's own texts begin."""
SMALL_STATE = 64
"""Elements of a state that is copied before it is read."""
REAL = "f16"
"""The float type that every device has."""


@dataclass(frozen=True, slots=True)
class SelectedOperation:
    """How one operation of the model is computed, and what that takes."""

    operation: str
    operator: str
    origin: str
    how: str
    """opcode, view, decomposed, known or compute."""
    opcodes: tuple[str, ...]
    reason: str
    work: int
    """Multiplications of products, else elements that are written."""


@dataclass(frozen=True, slots=True)
class SelectedPlan:
    """A plan of whole tensors, the numbers that fill it, and how each operation got into it."""

    document: Document
    weights: Mapping[str, Array]
    """Arrays by the names of the buffers that they fill."""
    report: tuple[SelectedOperation, ...]
    ports: Mapping[str, str]
    """What the inputs, outputs and states of the model are called in the plan."""
    real: str
    kernels: str = ""
    """The tensor-language program of its compute tasks; empty where it has none."""
    operations: tuple[str, ...] = ()
    """For each task, in the order of the text, the first result of the operation that it belongs to."""


def graph_to_plan(
    model: Model,
    evaluate: Evaluate,
    device: ResolvedDevice | None = None,
    target: DeviceRef | None = None,
    real: str = REAL,
) -> SelectedPlan:
    """The selected plan of a model whose extents are known and whose variables have numbers.

    LamellaError holds one finding for each operation that the device cannot compute.
    """
    kept = decompose(unroll_loops(model), lambda name: name in TABLE)
    selection = _Selection(
        fold_batch_norm(join_parts(kept)), evaluate, Emitter(Assembly(), Offers(device), real)
    )
    selection.run()
    if not selection.findings and not selection.emit.offers.computes_floats:
        selection.refuse_floats()
    if selection.findings:
        raise LamellaError(selection.findings)
    return selection.plan(target)


def _gives_codes(operation: Operation) -> bool:
    return all(isinstance(item, Tensor) and item.element.is_integer for item in results_of(operation))


def element_in(element: ElementType, real: str) -> str:
    """The element type of NEM that holds one of the graph: wide floats become the plan's, wide integers i32."""
    if element.is_float and element.bits > 16:
        return real
    if element == BOOL:
        return "i8"
    if element in (I64, U64):
        return "i32"
    found = name_in("nem", element)
    if found is None or element == F64:
        raise Unsupported(f"NEM has no element type {element}")
    return found


class _Selection:
    """A walk over the operations of a graph."""

    def __init__(self, model: Model, evaluate: Evaluate, emit: Emitter) -> None:
        self.model = model
        self.graph = model.graph
        self.evaluate = evaluate
        self.emit = emit
        self.values: dict[str, Value] = {}
        self.old_states: dict[str, Value] = {}
        """The places of states."""
        self.finals: dict[str, Value] = {}
        """Codes of outputs whose numbers are made at the border."""
        self.lost: set[str] = set()
        """Tensors that nothing computes."""
        self.vpu = ComputeTasks(model.library, emit)
        self.findings: list[Diagnostic] = []
        self.report: list[SelectedOperation] = []
        self.uses = uses(model.graph)
        self.states = {item.variable.name for item in self.graph.updates}
        self.outputs = {item.name for argument in self.graph.outputs for item in tensors(argument)}
        names = [item.name for argument in self.graph.inputs for item in tensors(argument)]
        names += [item.name for item in self.graph.variables if item.name in self.states]
        names += [item.name for argument in self.graph.outputs for item in tensors(argument)]
        self.ports = port_names(names)

    # --- the walk --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Declare what comes from outside, select every operation, bring results to their ports."""
        for argument in self.graph.inputs:
            for tensor in tensors(argument):
                self._try(tensor.origin, tensor.name, partial(self._declare, tensor))
        data = self.model.data or {}
        for tensor in self.graph.variables:
            self._try(tensor.origin, tensor.name, partial(self._variable, tensor, data))
        for constant in self.graph.constants:
            array = array_of(constant)
            if array is not None:
                self._know(constant.tensor, array)
        for node in self.graph.nodes:
            if isinstance(node, Operation):
                self._operation(node)
            else:
                kind = type(node).__name__.lower()
                why = "NEM has no control flow, and the number of steps is not known before the run"
                self._refuse(node.origin, f"a {kind} of the run", why)
                self.lost.update(item.name for item in results_of(node))
        if not self.findings:
            self._finish()

    def refuse_floats(self) -> None:
        """One finding where an operation computes with real numbers: what a device lacks is not made up for."""
        device = self.emit.offers.device
        for task in self.emit.assembly.tasks:
            used = [item.elem for item in (*task.inputs, *task.outputs)]
            operation = task.origin
            if operation is None or not set(used) & set(FLOATS):
                continue
            origin = operation.origin
            span: Span = NOWHERE if origin is None or origin.span is None else origin.span
            file = span.source.name if span.source.text else "MODEL"
            name = "" if device is None else device.name
            finding = NO_FLOATS.at(span, device=name, name=operation.operator, file=file)
            self.findings.append(with_origin(finding, origin))
            return

    def _try(self, origin: Origin | None, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Unsupported as problem:
            self._refuse(origin, name, str(problem))

    def _refuse(self, origin: Origin | None, name: str, reason: str) -> None:
        span: Span = NOWHERE if origin is None or origin.span is None else origin.span
        self.findings.append(with_origin(NOT_SELECTED.at(span, name=name, reason=reason), origin))

    def _declare(self, tensor: Tensor) -> None:
        """An input of the model: a buffer that the run fills, with codes where all that reads it quantises it alike."""
        elem, quant = self._codes(tensor) or (element_in(tensor.element, self.emit.real), None)
        buffer = self.emit.assembly.buffer(static(tensor), elem, tensor.name)
        buffer.port = tensor.name
        self.values[tensor.name] = self._port(placed(buffer, static(tensor), elem, quant=quant))

    def _codes(self, tensor: Tensor) -> tuple[str, Quant] | None:
        """As what all readers of an input quantise it; None where they do not, or not alike."""
        readers = [node for node in self.graph.nodes if tensor in operands_of(node)]
        if tensor.name in self.outputs or tensor.name in self.states:
            return None
        found = {
            (element_in(node.outputs[0].element, self.emit.real), boundary_quant(dict(node.attributes)))
            for node in readers
            if isinstance(node, Operation)
            and node.operator == "quant.quantize"
            and isinstance(node.outputs[0], Tensor)
        }
        count = sum(isinstance(node, Operation) and node.operator == "quant.quantize" for node in readers)
        return found.pop() if len(found) == 1 and count == len(readers) else None

    def _port(self, value: Value) -> Value:
        """A value whose row-major region has a name of its own, whoever reads it."""
        self.emit.assembly.region(value, natural(value.shape)).is_port = True
        return value

    def _variable(self, tensor: Tensor, data: Mapping[str, Array]) -> None:
        if tensor.name not in data:
            raise Unsupported("it has no numbers")
        if tensor.name not in self.states:
            self._know(tensor, np.asarray(data[tensor.name]))
            return
        self._declare(tensor)
        value = self.values[tensor.name]
        if value.buffer is not None:
            value.buffer.array = stored_array(np.asarray(data[tensor.name]), value.elem)
        self.old_states[tensor.name] = value
        if value.count <= SMALL_STATE:
            # A counter is read as an index, whole, until the end; a copy leaves its place free for the new number.
            self.emit.label = f"{tensor.name}_now"
            self.values[tensor.name] = self.emit.copy(value, natural(value.shape))
            self.emit.assembly.tasks[-1].note = f"the state {tensor.name}"

    def _know(self, tensor: Tensor, array: Array) -> None:
        elem = element_in(tensor.element, self.emit.real)
        self.values[tensor.name] = known(array.reshape(static(tensor)), elem, tensor.name)

    # --- operations ------------------------------------------------------------------------------------------

    def _operation(self, operation: Operation, above: str = "") -> None:
        """Select one operation, or what it is made of."""
        if any(item.name in self.lost for item in operands_of(operation)):
            # One finding for one cause: what reads lost results stays silent.
            self.lost.update(item.name for item in results_of(operation))
            return
        assembly = self.emit.assembly
        assembly.origin, mark = operation, assembly.mark()
        self.emit.label = next((item.name for item in results_of(operation)), "t")
        if self._is_known(operation):
            self._compute(operation)
            return
        if self._is_final(operation):
            return
        empty = next(
            (item for item in results_of(operation) if isinstance(item, Tensor) and 0 in item.shape), None
        )
        if empty is not None:
            self._lose(operation, f"a tensor of shape {list(empty.shape)} has no elements")
            return
        row, reason = self._row(operation.operator), "no opcode computes it"
        if row is not None:
            try:
                self._take(operation, row(self._call(operation)), mark[0])
                self._tell(operation, assembly.tasks[mark[1] :], above)
                return
            except Unsupported as problem:
                reason = str(problem)
                assembly.forget(mark)
            if operation.operator.startswith("quant.") and _gives_codes(operation):
                # The definition of an operation on codes computes in f64, which no device has.
                self._lose(operation, reason)
                return
        self._decompose(operation, reason)

    def _lose(self, operation: Operation, reason: str) -> None:
        """Refuse an operation; what reads its results stays silent."""
        self._refuse(operation.origin, operation.operator, reason)
        self.lost.update(item.name for item in results_of(operation))

    def _row(self, name: str) -> Row | None:
        """The row of an operator: by its name, or that of the private one of the library that it is a copy of."""
        library = self.model.library
        return None if library.is_newer(name) else TABLE.get(name) or TABLE.get(original_of(library, name))

    def _is_final(self, operation: Operation) -> bool:
        """Whether an operation gives an output its numbers: the port then holds the codes, and says what they mean."""
        name = next((item.name for item in results_of(operation)), "")
        if operation.operator != "quant.dequantize" or self.uses.get(name) != 1 or name not in self.outputs:
            return False
        codes = self._value(operation.inputs[0])
        if not isinstance(codes, Value) or codes.is_known:
            return False
        self.finals[name] = replace(codes, quant=boundary_quant(dict(operation.attributes)))
        return True

    def _call(self, operation: Operation) -> RowCall:
        inputs: list[Given] = [self._value(item) for item in operation.inputs]
        return RowCall(self.emit, operation, inputs, dict(operation.attributes), self._is_single)

    def _value(self, argument: Argument) -> Given:
        if argument is None:
            return None
        if isinstance(argument, Pack):
            raise Unsupported("a pack whose length only the run tells")
        if isinstance(argument, Tensor):
            return self._found(argument)
        return tuple(self._found(item) for item in argument)

    def _found(self, tensor: Tensor) -> Value:
        if tensor.name not in self.values:
            raise Unsupported(f"'{tensor.name}' is not there")
        return self.values[tensor.name]

    def _is_single(self, tensor: Tensor) -> bool:
        return self.uses.get(tensor.name) == 1 and tensor.name not in self.outputs

    def _is_known(self, operation: Operation) -> bool:
        """Whether an operation has the same results in every run."""
        given = [item for argument in operation.inputs for item in tensors(argument)]
        if any(isinstance(item, Pack) for item in operation.inputs):
            return False
        fixed = all(item.name in self.values and self.values[item.name].is_known for item in given)
        return fixed and "random" not in self.model.library.traits(operation.operator)

    def _compute(self, operation: Operation) -> None:
        """The results of an operation that no input changes, computed by the backend that is given.

        What the run tells may still be an operand, of which the shape matters alone.
        """
        given = {
            item.name: _as_given(self.values[item.name], item)
            if self.values[item.name].is_known
            else np.zeros(static(item), numpy_dtype(item.element))
            for argument in operation.inputs
            for item in tensors(argument)
        }
        found = self.evaluate(operation, given)
        made = [item for item in results_of(operation) if isinstance(item, Tensor)]
        for tensor, array in zip(made, found, strict=True):
            self._try(operation.origin, operation.operator, partial(self._know, tensor, array))

    def _take(self, operation: Operation, given: Value | Sequence[Value | None], start: int) -> None:
        """The results of a row, which have the shapes of the graph; what was made on the way is called a part."""
        made = [item for item in results_of(operation) if isinstance(item, Tensor)]
        results = [given] if isinstance(given, Value) else list(given)
        for tensor, value in zip(made, results, strict=True):
            if value is None:
                if self.uses.get(tensor.name) or tensor.name in self.outputs:
                    raise Unsupported(f"the opcode does not give '{tensor.name}'")
                continue
            if value.shape != static(tensor):
                raise Unsupported(
                    f"a result of shape {list(value.shape)} where {list(tensor.shape)} is wanted"
                )
            self.values[tensor.name] = value
        for buffer in self.emit.assembly.buffers[start:]:
            if buffer.label == self.emit.label:
                owner = next((item.name for item in made if self._is_in(item, buffer)), "")
                buffer.label = owner or f"{buffer.label}_part"

    def _is_in(self, tensor: Tensor, buffer: BufferRecord) -> bool:
        """Whether a tensor of the graph lies in a buffer."""
        return tensor.name in self.values and self.values[tensor.name].buffer is buffer

    def _decompose(self, operation: Operation, reason: str) -> None:
        """What an operation is made of, in its place; a finding where it is made of nothing."""
        definition = self.model.library.find(operation.operator)
        if definition is None or definition.operator.kind != "compose":
            reason = self._compute_task(operation, reason)
            if not reason:
                return
            self._refuse(operation.origin, operation.operator, reason)
            self.lost.update(item.name for item in results_of(operation))
            return
        body = compose_call(
            self.model.library, operation, lambda name: name in TABLE and name != operation.operator
        )
        for constant in body.constants:
            array = array_of(constant)
            if array is not None:
                self._know(constant.tensor, array)
        inner = [node for node in body.nodes if isinstance(node, Operation)]
        if len(inner) != len(body.nodes):
            self._refuse(operation.origin, operation.operator, "it is made of control flow")
            self.lost.update(item.name for item in results_of(operation))
            return
        for node in inner:
            for item in _read(node):
                self.uses[item.name] = self.uses.get(item.name, 0) + 1
        self.report.append(_reported(operation, "decomposed", (), reason))
        for node in inner:
            self._operation(replace(node, origin=operation.origin), operation.operator)

    def _compute_task(self, operation: Operation, reason: str) -> str:
        """Let a kernel of the tensor language compute an operation on the VPU; why not, where it cannot."""
        assembly, device = self.emit.assembly, self.emit.offers.device
        if device is not None and not device.units("VPU"):
            return f"{reason}; and no kernel does: device '{device.name}' has no VPU"
        mark = assembly.mark()
        try:
            made = self.vpu.run(operation, lambda tensor: self._found(tensor))
        except ReadsNothing:
            assembly.forget(mark)
            self._compute(operation)
            return ""
        except (Unsupported, Fault) as problem:
            assembly.forget(mark)
            return f"{reason}; and no kernel does: {problem}"
        self.values |= made
        tasks = assembly.tasks[mark[1] :]
        tasks[0].note = comment_of(operation)
        self.report.append(_reported(operation, "compute", tasks, reason))
        return ""

    def _tell(self, operation: Operation, tasks: Sequence[TaskRecord], above: str) -> None:
        if tasks:
            tasks[0].note = comment_of(operation)
        how = "opcode" if tasks else "view"
        reason = f"part of {above}" if above else ""
        self.report.append(_reported(operation, how, tasks, reason))

    # --- results ---------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Bring outputs and states to their ports."""
        assembly = self.emit.assembly
        assembly.origin = None
        for argument in self.graph.outputs:
            for tensor in tensors(argument):
                self._output(tensor)
        state_buffers = {self.old_states[name].buffer for name in self.states}
        new = {item.variable.name: self.values[item.value.name] for item in self.graph.updates}
        for name, value in new.items():
            if value.buffer in state_buffers and value.buffer is not self.old_states[name].buffer:
                new[name] = self.emit.copy(value, natural(value.shape))
        for name, value in new.items():
            state = self.old_states[name]
            if state.buffer is None or value.buffer is state.buffer or self._in_place(value, state):
                continue
            self.emit.write_to(value, state.buffer, state.elem)
            assembly.tasks[-1].note = f"the new {name}"

    def _in_place(self, value: Value, state: Value) -> bool:
        """Whether the new value of a state can be made where the old one lies."""
        if value.buffer is None or state.buffer is None or value.buffer.port or value.buffer.imported:
            return False
        alike = is_whole(value) and _fills(value) and value.elem == state.elem
        return alike and self.emit.assembly.put_into(value.buffer, state.buffer)

    def _output(self, tensor: Tensor) -> None:
        """The port of a result: the tensor itself where it is whole and its own, else a copy."""
        value = self.finals.get(tensor.name) or self.values[tensor.name]
        buffer = value.buffer
        if (
            buffer is not None
            and not buffer.port
            and not buffer.imported
            and is_whole(value)
            and _fills(value)
        ):
            buffer.port = tensor.name
            self._port(value)
            return
        elem = element_in(tensor.element, self.emit.real)
        if value.is_float or value.quant is not None:
            elem = value.elem
        made = self.emit.assembly.buffer(static(tensor), elem, tensor.name)
        made.port = tensor.name
        self._port(placed(made, static(tensor), elem, quant=value.quant))
        self.emit.write_to(value, made, elem)
        self.emit.assembly.tasks[-1].note = f"the output {tensor.name}"

    def plan(self, target: DeviceRef | None) -> SelectedPlan:
        """The text of what was selected."""
        document, names = write_document(self.emit.assembly, target, self.ports)
        weights = {name: item.array for item, name in names.items() if item.array is not None}
        kernels = self.vpu.text()
        origins = (task.origin for task in self.emit.assembly.tasks)
        made = ((() if item is None else results_of(item)) for item in origins)
        operations = tuple(next((item.name for item in results), "") for results in made)
        report, real = tuple(self.report), self.emit.real
        return SelectedPlan(document, weights, report, self.ports, real, kernels, operations)


def _fills(value: Value) -> bool:
    """Whether a view is all of its buffer."""
    return value.buffer is not None and size_of(value.shape, value.elem) == value.buffer.size


def _as_given(value: Value, tensor: Tensor) -> Array:
    """Known numbers as the graph holds them."""
    if value.array is None:
        raise ValueError("the numbers are not known")
    return value.array.astype(numpy_dtype(tensor.element), copy=False)


def _read(operation: Operation) -> Iterator[Tensor]:
    return (item for argument in operation.inputs for item in tensors(argument))


# --- what is said of an operation ----------------------------------------------------------------------------


def comment_of(operation: Operation) -> str:
    """Where an operation comes from, as its first task says it: `file:line operator (name)`."""
    name = next((item.name for item in results_of(operation)), "")
    links = () if operation.origin is None else operation.origin.chain()
    # What the library says of its own operators is not where a reader looks.
    spans = (link.span for link in links if link.span is not None)
    hidden = (LIBRARY, NOWHERE.source.name)
    span = next((item for item in spans if not item.source.name.startswith(hidden)), None)
    place = "" if span is None else f"{PurePath(span.source.name).name}:{span.line} "
    return printable(f"{place}{operation.operator} ({name})")


def _reported(operation: Operation, how: str, tasks: Sequence[TaskRecord], reason: str) -> SelectedOperation:
    name = next((item.name for item in results_of(operation)), "")
    origin = "" if operation.origin is None else " <- ".join(operation.origin.words())
    opcodes = tuple(task.opcode for task in tasks)
    return SelectedOperation(name, operation.operator, origin, how, opcodes, reason, sum(map(_work, tasks)))


def _work(task: TaskRecord) -> int:
    """Multiplications of a product, else elements that a task writes."""
    written = element_count(task.outputs[0].shape)
    if task.opcode in ("gemm", "matmul"):
        return written * task.inputs[0].shape[-1]
    if task.opcode == "conv2d":
        return written * element_count(task.inputs[1].shape[:-1])
    return written
