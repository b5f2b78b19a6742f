"""Graph operations as actions on a tape: by the structure of their formulas, by their components, or as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from lamella.backend.executor.extents import Extents
from lamella.backend.executor.run import ExecutionContext, GraphRun, names_of, open_symbols
from lamella.backend.formula.lower import FormulaSet, lower_formulas
from lamella.backend.formula.program import Constants, FormulaProgram, compile_formulas, literals
from lamella.backend.formula.storage import Storage, TensorValue, known_shape, known_single
from lamella.backend.formula.tape import Function, Register, Tape
from lamella.backend.formula.terms import StoredTensor, Tensors
from lamella.backend.nacvm.program import tensor_bytes
from lamella.backend.reference.operators import BoundOperation, FormulaRunner
from lamella.base.arrays import Array
from lamella.base.dim import Dim, Logic, Test, symbols
from lamella.base.errors import Unsupported
from lamella.base.limits import Limits
from lamella.graph.binding import signature
from lamella.graph.compose.decompose import DecomposedCall, compose_call
from lamella.graph.nodes import Argument, Constant, Operation, Pack, Tensor, tensors
from lamella.ops.fault import Fault
from lamella.ops.instance import singles
from lamella.ops.library import Library

Env = dict[str, Register]
"""The values of tensors by name."""

MANY = 1 << 62
"""More bytes than there are: nobody knows how large the values are that the reference makes on its way."""


@dataclass(slots=True)
class CallGenerator:
    """Random numbers of one call; the same seed gives the same ones in every call."""

    seed: int
    generator: np.random.Generator | None = None

    def take(self) -> np.random.Generator:
        """The generator of this call."""
        if self.generator is None:
            self.generator = np.random.default_rng(self.seed)
        return self.generator


@dataclass(frozen=True, slots=True)
class ComposedPattern:
    """A composed operation: the call that it was first met in, and its components under the names of that call."""

    operation: Operation
    body: DecomposedCall
    constants: Mapping[str, Array]


@dataclass(slots=True)
class OperationLowering:
    """Puts operations of a library on tapes; what operations share is done once."""

    library: Library
    storage: Storage
    limits: Limits
    draws: CallGenerator
    operators: FormulaRunner = field(init=False)
    extents: dict[str, int] = field(default_factory=dict)
    """Symbols that results of this call have told."""
    late: dict[str, Constant] = field(default_factory=dict)
    """Constants that only a call knows, by the names of their tensors."""
    _patterns: dict[object, ComposedPattern] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operators = FormulaRunner(self.library, self.storage, self.limits)

    def add(self, tape: Tape, operation: Operation, env: Env) -> None:
        """Put an operation on a tape; its outputs join the values by name."""
        prepared = self.operators.prepare(operation)
        kind = prepared.instance.definition.operator.kind
        if prepared.instance.checks or self._is_open(operation):
            self._add_whole(tape, operation, env)
        elif kind == "compose":
            self._add_composed(tape, operation, env)
        elif kind != "lower" or not self._add_formulas(tape, prepared, operation, env):
            self._add_whole(tape, operation, env)

    def _is_open(self, operation: Operation) -> bool:
        """Whether only a call knows the extents that an operation speaks of, or a constant that it reads."""
        given = [item for argument in (*operation.inputs, *operation.outputs) for item in tensors(argument)]
        sizes = (isinstance(extent, Dim) for item in given for extent in item.shape)
        return any(sizes) or bool(_asked(operation)) or any(item.name in self.late for item in given)

    def array(self, constant: Constant) -> Array:
        """A constant as an array."""
        value = constant.value
        several = isinstance(value, tuple)
        singles = [known_single(item, {}) for item in (value if isinstance(value, tuple) else (value,))]
        shape = known_shape(constant.tensor.shape, {})
        return self.storage.constant(constant.tensor.element, shape, singles if several else singles[0])

    # --- formulas -------------------------------------------------------------------------------------------

    def _add_formulas(self, tape: Tape, prepared: BoundOperation, operation: Operation, env: Env) -> bool:
        """Put the formulas on the tape; False, and nothing done, where their structure is not known."""
        before = len(tape.actions)
        try:
            found = self._lower(tape, prepared, operation, env)
        except (Unsupported, Fault):
            del tape.actions[before:]
            tape.finite.clear()
            return False
        # What must be finite is only known when the run comes here: a program of its own decides between two ways.
        if tape.finite:
            del tape.actions[before:]
            tape.finite.clear()
            return self._add_guarded(tape, prepared, operation, env)
        env.update(zip(_names(operation.outputs), found, strict=True))
        return True

    def _formulas(self, prepared: BoundOperation, operation: Operation) -> FormulaSet:
        storage, outputs = self.storage, prepared.instance.outputs
        types = [storage.dtype(item.element) for given in operation.inputs for item in tensors(given)]
        real = storage.real([*types, *(storage.dtype(item.element) for item in outputs)])
        return FormulaSet(prepared.specialise({}), outputs, storage, real, {})

    def _lower(self, tape: Tape, prepared: BoundOperation, operation: Operation, env: Env) -> list[Register]:
        inputs = self._inputs(tape, prepared, operation, env)
        constants = dict(literals(tape, self._constants(prepared, operation)))
        return lower_formulas(tape, self._formulas(prepared, operation), {**inputs, **constants})

    def _add_guarded(self, tape: Tape, prepared: BoundOperation, operation: Operation, env: Env) -> bool:
        """Put the formulas into a program of their own, which runs where some inputs are finite."""
        formulas, inputs = self._formulas(prepared, operation), self._inputs(tape, prepared, operation, env)
        program = compile_formulas(formulas, inputs, self._constants(prepared, operation))
        if program is None:
            return False
        self._add_call(tape, _guard(program, self._whole(operation)), operation, env)
        return True

    def _inputs(self, tape: Tape, prepared: BoundOperation, operation: Operation, env: Env) -> Tensors:
        """The inputs of an operation by the names that its definition gives them."""
        found: dict[str, StoredTensor | tuple[StoredTensor, ...]] = {}
        for (name, _), argument in zip(prepared.instance.inputs, operation.inputs, strict=True):
            if isinstance(argument, Pack):
                raise Unsupported("the length of a pack is not known")
            items = tuple(self._one(tape, item, env) for item in tensors(argument))
            if argument is not None:
                found[name] = items[0] if isinstance(argument, Tensor) else items
        return found

    def _constants(self, prepared: BoundOperation, operation: Operation) -> Constants:
        """The constants of an operation by the names that its definition gives them."""
        return self.operators.tensors(prepared.instance, [None] * len(operation.inputs), {})

    def _one(self, tape: Tape, tensor: Tensor, env: Env) -> StoredTensor:
        shape = known_shape(tensor.shape, {})
        tape.note(tensor_bytes(tensor))
        return StoredTensor(env[tensor.name], shape, self.storage.dtype(tensor.element))

    # --- components -----------------------------------------------------------------------------------------

    def _add_composed(self, tape: Tape, operation: Operation, env: Env) -> None:
        pattern = self._pattern(operation)
        nodes = [node for node in pattern.body.nodes if isinstance(node, Operation)]
        if len(nodes) != len(pattern.body.nodes):
            self._add_whole(tape, operation, env)
            return
        given, meant = _names(operation.inputs), _names(pattern.operation.inputs)
        inner = {name: env[other] for name, other in zip(meant, given, strict=True)}
        inner |= {name: tape.literal(array) for name, array in pattern.constants.items()}
        for node in nodes:
            self.add(tape, node, inner)
        made = zip(_names(operation.outputs), _names(pattern.operation.outputs), strict=True)
        env.update({name: inner[other] for name, other in made})

    def _pattern(self, operation: Operation) -> ComposedPattern:
        """The components of a call; calls that differ in names alone share them."""
        names = list(_names(operation.inputs))
        key = signature(operation), tuple(names.index(name) for name in names)
        if key not in self._patterns:
            body = compose_call(self.library, operation, limits=self.limits)
            constants = {item.tensor.name: self.array(item) for item in body.constants}
            self._patterns[key] = ComposedPattern(operation, body, constants)
        return self._patterns[key]

    # --- the general way ------------------------------------------------------------------------------------

    def _add_whole(self, tape: Tape, operation: Operation, env: Env) -> None:
        """Let the reference run an operation."""
        self._add_call(tape, self._whole(operation), operation, env)

    def _add_call(self, tape: Tape, function: Function, operation: Operation, env: Env) -> None:
        """Put a call of a function on the tape that takes the inputs of an operation and gives its outputs."""
        made = list(_names(operation.outputs))
        tape.note(MANY)
        given = [env[name] for name in _names(operation.inputs) if name not in self.late]
        result = tape.do(function, *given)
        if len(made) == 1:
            env[made[0]] = result
            return
        for number, name in enumerate(made):
            env[name] = tape.do(itemgetter(number), result)

    def _whole(self, operation: Operation) -> Callable[..., Array | tuple[Array, ...]]:
        machine = ExecutionContext(self.storage, self.limits, False, self.operators)
        nodes, draws = (operation,), self.draws
        kept = list(names_of(operation.outputs))
        late = [self.late[name] for name in _names(operation.inputs) if name in self.late]
        asked = _asked(operation).union(*map(open_symbols, late))
        given = [_without(argument, self.late) for argument in operation.inputs]

        def run(*arrays: Array) -> Array | tuple[Array, ...]:
            frame = GraphRun(machine, Extents(), draws.take())
            for argument, value in zip(given, _arrange(given, arrays), strict=True):
                frame.put(argument, value)
            # What the inputs tell goes first: in a loop, what was told before is of another step.
            frame.extents.update(
                {name: self.extents[name] for name in asked - frame.extents.keys() if name in self.extents}
            )
            for constant in late:
                frame.put_constant(constant)
            frame.run(nodes, (), kept)
            self.extents.update(frame.extents)
            found = tuple(frame.array(item) for output in operation.outputs for item in tensors(output))
            return found[0] if len(found) == 1 else found

        return run


def _guard(program: FormulaProgram, otherwise: Callable[..., Array | tuple[Array, ...]]) -> Function:
    """Run a program where the inputs that it asks for are finite, and the whole operation where one is not."""

    def run(*arrays: Array) -> Array | tuple[Array, ...]:
        results = program.run(arrays)
        if results is None:
            return otherwise(*arrays)
        return results[0] if len(results) == 1 else results

    return run


def _asked(operation: Operation) -> set[str]:
    """The symbols in the attributes of an operation."""
    found = (item for _, value in operation.attributes for item in singles(value))
    return {part.name for item in found if isinstance(item, Dim | Test | Logic) for part in symbols(item)}


def _without(argument: Argument, late: Mapping[str, Constant]) -> Argument:
    """An argument whose array is given; None for one that is a constant of the call."""
    return None if isinstance(argument, Tensor) and argument.name in late else argument


def _names(arguments: Sequence[Argument]) -> Iterator[str]:
    return (item.name for argument in arguments for item in tensors(argument))


def _arrange(arguments: Sequence[Argument], arrays: Sequence[Array]) -> Iterator[TensorValue]:
    """Arrays one after the other, as the arguments that they stand for."""
    waiting = iter(arrays)
    for argument in arguments:
        items = tuple(next(waiting) for _ in tensors(argument))
        yield None if argument is None else items[0] if isinstance(argument, Tensor) else items
