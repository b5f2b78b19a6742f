"""The reference backend: runs a graph with NumPy straight from the formulas of its operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import Drawn, types_of
from lamella.backend.reference.checks import require_checks
from lamella.backend.reference.draws import draw_variable, find_picks, generator, reading
from lamella.backend.reference.findings import told
from lamella.backend.reference.inputs import Inputs, Misfit, as_array, fit, list_parts
from lamella.backend.reference.nodes.lifetimes import names_of
from lamella.backend.reference.nodes.machine import Frame, Machine
from lamella.backend.reference.nodes.operators import Held, Operators
from lamella.backend.reference.storage import Storage, known_shape
from lamella.backend.reference.symbols import Extents
from lamella.backend.watch import Watch, unwatched
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Extent
from lamella.base.errors import Found, InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE, Span
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Pack, Tensor
from lamella.lang.skriptnd.rules.data import WRONG_SHAPE, WRONG_TYPE
from lamella.lang.skriptnd.rules.graphs import RANDOM_WEIGHTS
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction
from lamella.ops.instance import Instance
from lamella.ops.library import Library

# --- A graph ready to run: call it with arrays by name, get arrays by name ----------------------------------


PRECISIONS = ("f32", "f64")


class MakeOperators(Protocol):
    """What makes the part that runs single operations."""

    def __call__(self, library: Library, storage: Storage, limits: Limits) -> Operators:
        """The part that runs operations of a library."""


def compile_model(
    model: Model,
    *,
    seed: int = 0,
    dtype: str = "f32",
    quantized: bool = False,
    limits: Limits = DEFAULT,
    operators: MakeOperators = Operators,
) -> Executable:
    """Make a composed model callable.

    The seed picks random inputs, variables without data and what `rand` operators give; `dtype` "f64" holds and
    computes every real tensor in 64 bits; `quantized` applies the quantisation of tensors as they are produced.
    `operators` is what runs single operations: another backend may have its own way.
    """
    return Executable(model, seed, dtype, quantized, limits, operators)


class Executable:
    """Runs a model; its variables keep their values from call to call."""

    def __init__(
        self,
        model: Model,
        seed: int,
        dtype: str,
        quantized: bool,
        limits: Limits,
        operators: MakeOperators = Operators,
    ) -> None:
        if seed < 0:
            raise InputError(f"the seed is {seed}; seeds start at 0")
        if dtype not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise InputError(f"'{dtype[:40]}' is no precision to run in", hint=f"precisions are: {known}")
        self.model = model
        self.findings: list[Diagnostic] = []
        """What the last call found: that weights are random where the model has none, or rounded."""
        self.watch: Watch = unwatched
        """Wraps the nodes of a call, for a progress bar."""
        self.draws = True
        """Whether inputs that a call does not give are random; where not, they are missing."""
        self.drawn = Drawn()
        """What the last call drew."""
        self.state: dict[str, Array] = {}
        """The variables by name, as they are now."""
        self._seed = seed
        storage = Storage(dtype == "f64", limits.max_total_bytes)
        runner = operators(model.library, storage, limits)
        self.machine = Machine(model.library, storage, limits, quantized, runner)
        self._inputs = Inputs(model.graph, storage, seed, self._declaration)
        self.reset()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(item.name for item in list_parts(self.model.graph.inputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(item.name for item in list_parts(self.model.graph.outputs))

    def reset(self) -> None:
        """Give the variables the values they started with."""
        for tensor in self.model.graph.variables:
            with told(tensor.name, tensor.origin, self._declaration(tensor.name)):
                self.state[tensor.name] = self._start(tensor)

    def __call__(self, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; inputs that are not given are random from the seed where that is wanted, else missing."""
        extents, graph = Extents(), self.model.graph
        self.findings = [*self.model.findings, *self.find_random()]
        taken = self._inputs.take(inputs, extents, lambda name: self._picks.get(name, ()), self.draws)
        drawn = types_of({name: item for name, item in taken.items() if name not in inputs})
        self.drawn = Drawn(drawn, len(self._random), len(graph.variables))
        frame = Frame(self.machine_for(extents), extents, np.random.default_rng(self._seed))
        self._enter(frame, taken)
        require_checks(graph.checks, frame.extents)
        needed = [*graph.outputs, *(item.value for item in graph.updates)]
        frame.run(graph.nodes, self.inputs, names_of(needed), self.watch)
        require_checks(graph.checks, frame.extents)
        outputs = {item.name: _leave(frame, item) for item in list_parts(graph.outputs)}
        # All updates at once, from what the run computed.
        self.state |= {item.variable.name: np.array(frame.array(item.value)) for item in graph.updates}
        return outputs

    def machine_for(self, extents: Mapping[str, int]) -> Machine:
        """What runs the nodes of a call in which the open extents of the inputs have these numbers."""
        return self.machine

    def _enter(self, frame: Frame, taken: Mapping[str, Held]) -> None:
        graph = self.model.graph
        for part in list_parts(graph.inputs):
            with told(part.name, part.origin, self._declaration(part.name)):
                frame.put(part, taken[part.name])
        for tensor in graph.variables:
            with told(tensor.name, tensor.origin, self._declaration(tensor.name)):
                frame.put(tensor, self._kept(tensor))
        for constant in graph.constants:
            with told(constant.tensor.name, constant.tensor.origin):
                frame.put_constant(constant)

    def _kept(self, tensor: Tensor) -> Array:
        """A variable as it is now; `state` is open to everybody, so what stands there is tested."""
        found = self.state.get(tensor.name)
        if isinstance(found, np.ndarray) and found.dtype == self.machine.storage.dtype(tensor.element):
            return found
        if found is None:
            raise InputError(
                f"'state' has nothing for variable '{tensor.name}'", hint="reset() gives it its start"
            )
        try:
            return fit(as_array(found), tensor.element, self.machine.storage)
        except Misfit as problem:
            kind = f"{tensor.element}{list(tensor.shape)}"
            raise Fault(WRONG_TYPE, name=tensor.name, type=kind, found=str(problem)) from None

    def _start(self, tensor: Tensor) -> Array:
        storage, name = self.machine.storage, tensor.name
        shape = known_shape(tensor.shape, {})
        given = None if self.model.data is None else self.model.data.get(name)
        if given is None:
            return draw_variable(generator(self._seed, name), tensor, shape, storage)
        kind = f"{tensor.element}{list(shape)}"
        if tuple(given.shape) != shape:
            raise Fault(WRONG_SHAPE, name=name, type=kind, found=list(given.shape))
        try:
            return fit(given, tensor.element, storage)
        except Misfit as problem:
            raise Fault(WRONG_TYPE, name=name, type=kind, found=str(problem)) from None

    def find_random(self) -> list[Diagnostic]:
        """That variables have random values, where the model has none for them."""
        graph, names = self.model.graph, self._random
        if not names:
            return []
        found = self.model.library.find(f"main.{graph.name}")
        span = NOWHERE if found is None else found.operator.span
        total = len(graph.variables)
        count = (
            f"{total} variable{'s' * (total > 1)}"
            if len(names) == total
            else f"{len(names)} of {total} variables"
        )
        return [RANDOM_WEIGHTS.at(span, name=graph.name, count=count, seed=self._seed)]

    @cached_property
    def _random(self) -> list[str]:
        """The variables that the model has no numbers for."""
        data = self.model.data or {}
        return [item.name for item in self.model.graph.variables if item.name not in data]

    def _declaration(self, name: str) -> Span:
        """Where the text declares an input or a variable of the graph."""
        found = self.model.library.find(f"main.{self.model.graph.name}")
        if found is not None:
            for section in ("input", "variable"):
                for parameter in found.operator.parameters(section):
                    if parameter.name == name.partition(":")[0]:
                        return parameter.span
        return NOWHERE

    @cached_property
    def _picks(self) -> Mapping[str, Sequence[Extent]]:
        return find_picks(self.model.graph, self._bound_operations())

    def _bound_operations(self) -> Iterator[tuple[Sequence[str], Instance, Sequence[Contraction]]]:
        model = self.model
        for operation in reading(model.library, model.graph, model.graph.operations()):
            names = [item.name if isinstance(item, Tensor) else "" for item in operation.inputs]
            prepared = self._prepare(operation)
            if prepared is not None:
                yield names, *prepared

    def _prepare(self, operation: Operation) -> tuple[Instance, Sequence[Contraction]] | None:
        try:
            found = self.machine.operators.prepare(operation)
        except (Fault, Found):
            return None
        return found.instance, found.formulas


def _leave(frame: Frame, part: Tensor | Pack) -> Array:
    """An output as outsiders read it; the tensors of a pack of unknown length are stacked."""
    value = frame.held[part.name]
    if isinstance(value, tuple):
        if not value:
            shape = known_shape(part.shape, frame.extents)
            return arrays.to_exchange(
                frame.machine.storage.allocate((0, *shape), arrays.numpy_dtype(part.element))
            )
        value = np.stack(value)
    return np.array(arrays.to_exchange(value))


__all__ = ["BACKEND", "Executable", "ReferenceBackend", "compile_model"]


@dataclass(frozen=True, slots=True)
class ReferenceBackend:
    """Takes a model and gives an executable."""

    name: str = "reference"
    takes: type[Model] = Model

    def keep(self, operator: str) -> bool:
        """Whether an operator is taken whole: any is, because a run decomposes what is composed."""
        return bool(operator)

    def missing(self) -> str | None:
        """Why it cannot run here; it needs nothing but NumPy."""
        return None

    def compile(self, program: Model) -> Executable:
        """Make a composed model callable."""
        return compile_model(program)


BACKEND = ReferenceBackend()
