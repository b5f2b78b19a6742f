"""Runs the nodes of a graph in order: operations, branches, loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from lamella.backend.reference.checks import require_checks
from lamella.backend.reference.findings import told
from lamella.backend.reference.nodes.lifetimes import last_uses, names_of
from lamella.backend.reference.nodes.loops import is_true, run_loop
from lamella.backend.reference.nodes.operators import Held, Operators
from lamella.backend.reference.storage import Storage, known_shape, known_single
from lamella.backend.reference.symbols import Extents
from lamella.backend.watch import Watch, unwatched
from lamella.base.arrays import Array
from lamella.base.dim import substitute
from lamella.base.limits import Limits
from lamella.graph.binding import quantizer_of
from lamella.graph.compose.decompose import DecomposedCall, compose_call
from lamella.graph.nodes import Argument, Constant, Loop, Node, Operation, Pack, Region, Tensor
from lamella.lang.skriptnd.rules.graphs import TOO_MUCH_MEMORY
from lamella.ops.fault import Fault
from lamella.ops.library import Library


@dataclass(slots=True)
class Machine:
    """What all runs of one executable share."""

    library: Library
    storage: Storage
    limits: Limits
    quantized: bool
    operators: Operators
    rows: dict[int, list[tuple[str, ...]]] = field(default_factory=dict)
    bodies: dict[int, DecomposedCall] = field(default_factory=dict)
    quantizers: dict[str, Operation] = field(default_factory=dict)


class Frame:
    """The tensors that are held while some nodes run; regions share the frame around them."""

    def __init__(self, machine: Machine, extents: Extents, random: np.random.Generator) -> None:
        self.machine = machine
        self.extents = extents
        self.random = random
        self.held: dict[str, Array | tuple[Array, ...]] = {}
        self.late: dict[str, Constant] = {}
        self.bytes = 0
        self.steps: Iterator[int] = count()

    # --- tensors --------------------------------------------------------------------------------------------

    def get(self, argument: Argument) -> Held:
        """The array of a tensor, or those of a pack."""
        if isinstance(argument, tuple):
            return tuple(self.array(item) for item in argument)
        if isinstance(argument, Pack):
            return self.held[argument.name]
        return None if argument is None else self.array(argument)

    def array(self, tensor: Tensor) -> Array:
        """The array of a tensor."""
        if tensor.name in self.late:
            return self._fill(self.late[tensor.name])
        found = self.held[tensor.name]
        return found[0] if isinstance(found, tuple) else found

    def put(self, argument: Argument, value: Held) -> None:
        """Hold what a node gave, quantised where the tensor says so; symbols of its shape are bound."""
        if isinstance(argument, Tensor) and isinstance(value, np.ndarray):
            self.extents.bind(argument.name, argument.shape, value.shape)
            self._hold(argument.name, self._quantize(argument, value))
        elif isinstance(argument, Pack) and isinstance(value, tuple):
            self.extents.bind_extent(f"the length of '{argument.name}'", argument.size, len(value))
            self._hold(argument.name, value)
        elif isinstance(argument, tuple) and isinstance(value, tuple):
            self.extents.bind_extent("the length of a pack", len(argument), len(value))
            for item, array in zip(argument, value, strict=True):
                self.put(item, array)

    def _hold(self, name: str, value: Array | tuple[Array, ...]) -> None:
        self._drop(name)
        self.held[name] = value
        self.reserve(_size(value))

    def reserve(self, size: int) -> None:
        """Count bytes that are held, or no longer where they are negative."""
        self.bytes += size
        if self.bytes > self.machine.storage.most_bytes:
            raise Fault(TOO_MUCH_MEMORY, needed=self.bytes, limit=self.machine.storage.most_bytes)

    def _drop(self, name: str) -> None:
        if name in self.held:
            self.bytes -= _size(self.held.pop(name))

    def put_constant(self, constant: Constant) -> None:
        """Hold a constant; one whose extents a node still has to tell is made whenever it is used."""
        if all(isinstance(substitute(extent, self.extents), int) for extent in constant.tensor.shape):
            self.put(constant.tensor, self._fill(constant))
        else:
            self.late[constant.tensor.name] = constant

    def _fill(self, constant: Constant) -> Array:
        tensor, value = constant.tensor, constant.value
        shape = known_shape(tensor.shape, self.extents)
        several = isinstance(value, tuple)
        singles = [
            known_single(item, self.extents) for item in (value if isinstance(value, tuple) else (value,))
        ]
        return self.machine.storage.constant(tensor.element, shape, singles if several else singles[0])

    def _quantize(self, tensor: Tensor, value: Array) -> Array:
        if tensor.quantization is None or not self.machine.quantized:
            return value
        quantizers = self.machine.quantizers
        operation = quantizers.get(tensor.name) or quantizer_of(tensor)
        if operation is None:
            return value
        quantizers[tensor.name] = operation
        found = self._run(operation, [value])[0]
        return found if isinstance(found, np.ndarray) else value

    # --- nodes ----------------------------------------------------------------------------------------------

    def run(
        self, nodes: Sequence[Node], inputs: Iterable[str], kept: Iterable[str], watch: Watch = unwatched
    ) -> None:
        """Run nodes in order and let go of what is not needed any more."""
        key = id(nodes)
        if key not in self.machine.rows:
            self.machine.rows[key] = last_uses(nodes, inputs, kept)
        for node, unused in zip(watch(nodes, len(nodes)), self.machine.rows[key], strict=True):
            with told(node.operator if isinstance(node, Operation) else "the graph", node.origin):
                for argument, value in zip(node.outputs, self._run_node(node), strict=True):
                    self.put(argument, value)
            for name in unused:
                self._drop(name)

    def _run_node(self, node: Node) -> Sequence[Held]:
        if isinstance(node, Operation):
            return self._run(node, [self.get(item) for item in node.inputs])
        if isinstance(node, Loop):
            return run_loop(self, node, self.machine.limits.max_steps)
        chosen = next(
            (number for number, item in enumerate(node.conditions) if is_true(self.region(item))), -1
        )
        return self.region(node.branches[chosen])

    def _run(self, operation: Operation, inputs: Sequence[Held]) -> list[Held]:
        found = self.machine.operators.run(operation, inputs, self.extents, self.random)
        return self._compose(operation, inputs) if found is None else found

    def _compose(self, operation: Operation, inputs: Sequence[Held]) -> list[Held]:
        """Run an operation by its components, in a frame of its own."""
        key, machine = id(operation), self.machine
        if key not in machine.bodies:
            machine.bodies[key] = compose_call(machine.library, operation, limits=machine.limits)
        body = machine.bodies[key]
        frame = Frame(machine, Extents(self.extents), self.random)
        frame.bytes, frame.steps = self.bytes, self.steps
        for argument, value in zip(operation.inputs, inputs, strict=True):
            frame.put(argument, value)
        for constant in body.constants:
            frame.put_constant(constant)
        frame.run(body.nodes, (), names_of(operation.outputs))
        return [frame.get(item) for item in operation.outputs]

    def region(self, region: Region, values: Sequence[Array] = ()) -> list[Array]:
        """The outputs of a region for some inputs; what the run told of extents inside it stays inside."""
        before = dict(self.extents)
        for tensor, value in zip(region.inputs, values, strict=True):
            self.put(tensor, value)
        names = [tensor.name for tensor in region.inputs]
        require_checks(region.checks, self.extents)
        self.run(region.nodes, names, names_of(region.outputs))
        require_checks(region.checks, self.extents)
        for name in self.extents.keys() - before.keys():
            del self.extents[name]
        return [self.array(tensor) for tensor in region.outputs]


def _size(value: Array | tuple[Array, ...]) -> int:
    """The bytes of what is held."""
    return sum(item.nbytes for item in value) if isinstance(value, tuple) else value.nbytes
