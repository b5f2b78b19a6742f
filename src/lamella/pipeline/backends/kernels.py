"""Kernels as machine code or interpreted: those of a file by name, one of them, or all those of a graph."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from lamella.backend import cuda
from lamella.backend.arguments import verify_arguments
from lamella.backend.cpu import CompiledKernels, compile_program
from lamella.backend.cpu.host import host_like, host_target
from lamella.backend.cpu.run.families import KernelFamilies
from lamella.backend.cpu.run.launch import know_sizes
from lamella.backend.cpu.run.lists import NativeMachine
from lamella.backend.cpu.run.memory import SharedArena
from lamella.backend.cpu.run.proof import find_open, specialise
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.cuda.compile import device_target, fit_kernels
from lamella.backend.cuda.driver import device
from lamella.backend.cuda.greedy import GreedyChoice
from lamella.backend.cuda.machine import CudaMachine
from lamella.backend.cuda.memory import SharedDeviceMemory
from lamella.backend.drawing import Drawn, name_inputs, refuse_missing, types_of
from lamella.backend.executor.extents import Extents
from lamella.backend.executor.inputs import choose_extent
from lamella.backend.executor.kernels import KernelExecutable, Specialise
from lamella.backend.executor.segments import ListMachine
from lamella.backend.executor.specialised import Specialised
from lamella.backend.interpreter import ExecutedStatement
from lamella.backend.interpreter import compile_program as interpret
from lamella.backend.interpreter.memory import GroupReference, MemrefReference
from lamella.backend.interpreter.state import RunValue
from lamella.backend.layouts import laid_out, zeros_in_layout
from lamella.backend.named import NamedKernels
from lamella.backend.progress import Progress, no_progress
from lamella.base import dtype
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import NOTE, Diagnostic, LamellaError, printable
from lamella.base.dim import symbols
from lamella.base.errors import Found, InputError
from lamella.base.object_cache import open_cache
from lamella.base.placement import REFERENCE, placement_line
from lamella.base.records import dataclass
from lamella.base.source import NOWHERE
from lamella.base.suggest import list_known
from lamella.graph.model import Model
from lamella.graph.passes.cut_batch import cut_batch as cut_batch
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.graph.rewrite import extents as extents_of
from lamella.graph.rewrite import members
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import Target
from lamella.lang.skriptnd.rules.graphs import NO_KERNEL, OPEN_EXTENTS
from lamella.lang.tensor import write_type
from lamella.lang.tensor.check.roles import word_of
from lamella.lang.tensor.nodes import (
    For,
    Foreach,
    Function,
    Group,
    If,
    Memref,
    Parallel,
    Parameter,
    Program,
    Scalar,
    Statement,
)
from lamella.lang.tensor.rules.memory import MAY_NOT_END
from lamella.lang.tensor.write import write_instruction
from lamella.pipeline.backends.cuda import KeptExtents, with_room
from lamella.pipeline.backends.graph_keys import is_watched
from lamella.pipeline.kernels.execution import prepare, to_kernels, with_chunks
from lamella.pipeline.kernels.tuning import open_tuner
from lamella.pipeline.languages import Executable
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.program import KernelFile

CUDA = "cuda"
EITHER = "either"
"""Machine code where every loop is seen to end, else the interpreter."""
INTERPRETED = "so the interpreter ran it, which counts steps; --backend cpu runs machine code"


def missing(backend: str) -> str | None:
    """The interpreter is always there."""
    return None


def compile(model: Model | KernelGraph | KernelFile, backend: str, options: Options) -> Executable:
    """Make kernels or a graph callable: `kernels.name(A, B, groups=n)`, one kernel by names, a graph by names."""
    if isinstance(model, KernelFile):
        if options.kernel is not None:
            return KernelRun(model, None if backend == EITHER else backend, options)
        # Kernels are called by their names, not with arrays by name: the API hands them around all the same.
        return cast("Executable", compile_kernels(model.program, backend, options))
    if isinstance(model, KernelGraph):
        return compile_kernel_graph(model, backend, options)
    if not isinstance(model, Model):
        raise InputError(
            "the text of kernels on their way down does not run", hint="compile what was lowered"
        )
    return compile_open(model, backend, options)


def compile_kernels(program: Program, backend: str, options: Options, proved: bool = False) -> NamedKernels:
    """Kernels on a backend; what only the interpreter does, it does unasked."""
    watched = options.trace is not None or options.check_bounds
    if backend in ("cpu", CUDA) and watched:
        raise InputError("machine code is neither traced nor tested", hint="--backend interpreter does both")
    if backend == "interpreter" or watched:
        trace = None if options.trace is None else Tracer(options.trace)
        return interpret(program, limits=options.limits, check_bounds=options.check_bounds, trace=trace)
    if backend == CUDA:
        return cuda.compile_program(program, limits=options.limits, proved=proved)
    target = None if options.target is None else host_like(options.target)
    return compile_program(
        program,
        limits=options.limits,
        target=target,
        threads=options.threads or None,
        proved=proved,
    )


# --- graphs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """What the launch lists of an executable share, whatever the extents: arenas, and copies on a device."""

    host: SharedArena = field(default_factory=SharedArena)
    device: SharedDeviceMemory = field(default_factory=SharedDeviceMemory)


def compile_kernel_graph(model: KernelGraph, backend: str, options: Options) -> KernelExecutable:
    """Make a graph callable whose kernels are known."""
    memory = SharedMemory()
    found = _executable(model.model, lambda extents: _specialised(model, backend, options, memory), options)
    if backend == CUDA:
        found.take_arrays(memory.device.copies)
    return found


def compile_open(model: Model, backend: str, options: Options) -> KernelExecutable:
    """Make a graph callable whose open extents each call decides: its kernels are made for those of the call."""
    if backend == CUDA:
        return _compile_on_device(model, options)
    flat, memory = prepare(model, options), SharedMemory()
    families = KernelFamilies(
        lambda program: cast(CompiledKernels, compile_kernels(program, backend, options))
    )

    def specialise(extents: Mapping[str, int]) -> Specialised:
        native = backend == "cpu"
        chunked = _with_chunks(model, extents, options)
        closed = flat if chunked is None else prepare(chunked, options)
        program = to_kernels(closed, options, extents, native, _target_of(backend))
        if not (native and extents and program.program.functions):
            return replace(_specialised(program, backend, options, memory), replaces=flat.graph.nodes)
        kernels = families.take(program.program, program.renaming)
        machine = NativeMachine(ProvingSource(kernels), memory.host)
        return Specialised(
            program, kernels.call, options.strict_backend, machine, flat.graph.nodes, kernels.compiled
        )

    return _executable(flat, specialise, options)


def _compile_on_device(model: Model, options: Options) -> KernelExecutable:
    """Make a graph callable on a GPU: extents decide what is fused and rounded there, so they are known before."""
    here = device()
    options = with_room(options, here)
    is_open = any(symbols(size) for item in members(model.graph.inputs) for size in extents_of(item))
    whole = model if is_open else prepare(model, options, True)
    memory, tuner = SharedMemory(), open_tuner(options, device_target())
    # What is compiled for known extents is kept by who asks for it, as a whole.
    store = open_cache() if is_open and not is_watched(options) else None
    stored = None if store is None else KeptExtents(store, model, options, memory.device, GreedyChoice)

    def specialise(extents: Mapping[str, int]) -> Specialised:
        known = prepare(_with_extents(whole, extents), options, True) if is_open else whole
        program = to_kernels(known, options, extents, True, _target_of(CUDA), tuner)
        keep = None if stored is None else partial(stored.keep, extents)
        found = _specialised(program, CUDA, options, memory)
        return replace(found, replaces=whole.graph.nodes, keep=keep)

    executable = _executable(whole, specialise, options)
    memory.device.copies.marks.regions = model.regions
    executable.take_arrays(memory.device.copies)
    if stored is not None:
        executable.keep_extents(stored.find)
    return executable


def _with_chunks(model: Model, extents: Mapping[str, int], options: Options) -> Model | None:
    try:
        return with_chunks(model, extents, options)
    except Found as problem:
        raise LamellaError(problem.findings) from None


def _with_extents(model: Model, extents: Mapping[str, int]) -> Model:
    try:
        return specialise_shapes(model, extents)
    except Found as problem:
        raise LamellaError(problem.findings) from None


def _target_of(backend: str) -> Target | None:
    """The target of the machine that a backend runs on; None where it is no machine."""
    if backend == CUDA:
        return device_target()
    return host_target() if backend == "cpu" else None


def find_left(model: Model, options: Options) -> list[Diagnostic]:
    """A note that names the operations of a graph without kernels, for the extents that a random run would have."""
    extents = Extents()
    for item in members(model.graph.inputs):
        for extent in item.shape:
            choose_extent(extent, extents)
    placed = list(to_kernels(prepare(model, options), options, extents).placed())
    line = placement_line([place for _, place in placed])
    told = _tell_open(model, extents)
    if line is None:
        return told
    first = next(node for node, place in placed if place.where == REFERENCE)
    span = NOWHERE if first.origin is None else first.origin.span or NOWHERE
    rule = NO_KERNEL.also("{backend}: {line}")
    return [replace(rule.at(span, backend=options.backend, line=line), severity=NOTE), *told]


def _tell_open(model: Model, extents: Mapping[str, int]) -> list[Diagnostic]:
    """A note that says what calls with other extents cost, where the graph leaves some open."""
    names = ", ".join(sorted(extents))
    rule = OPEN_EXTENTS.also(
        "graph '{graph}' leaves {names} open: calls share code whatever their numbers, 1 has code of its own"
    )
    return [replace(rule.at(NOWHERE, graph=model.graph.name, names=names), severity=NOTE)] if extents else []


def _specialised(program: KernelGraph, backend: str, options: Options, memory: SharedMemory) -> Specialised:
    if backend == CUDA:
        program = fit_kernels(program)
    kernels = compile_kernels(program.program, backend, options)
    machine: ListMachine | None = None
    if isinstance(kernels, cuda.CudaKernels):
        functions = {item.name: item for item in program.program.functions}
        more = partial(cuda.compile_program, limits=options.limits)
        machine = CudaMachine(kernels, functions, more, memory.device, options.strict_backend)
    elif isinstance(kernels, CompiledKernels):
        machine = NativeMachine(ProvingSource(kernels), memory.host)
    return Specialised(program, kernels.call, options.strict_backend, machine)


def _executable(model: Model, specialise: Specialise, options: Options) -> KernelExecutable:
    executable = KernelExecutable(
        model, specialise, options.start_seed, options.dtype or "f32", options.quantized, options.limits
    )
    executable.draws = options.draws
    return executable


# --- one kernel by the names of its parameters -----------------------------------------------------------------


class KernelRun:
    """One kernel with its arguments, run like any other model; its outputs are the arrays after the call.

    Without a backend it runs as machine code, which proves or tests every access, but for loops that may have no end:
    those run in the interpreter, which counts steps.
    """

    def __init__(self, model: KernelFile, backend: str | None, options: Options) -> None:
        self.findings: list[Diagnostic] = []
        self.progress: Progress = no_progress
        self.draws = options.draws
        """Whether arrays that a call does not give are random; where not, they are missing."""
        self.drawn = Drawn()
        """What the last call drew."""
        self.seconds = 0.0
        """How long the kernel ran in the last call."""
        self._function = _find(model, options.kernel or None)
        self._program = model.program
        self._options = options
        self._chosen = "cpu" if backend is None and options.target is not None else backend
        self._kernels: dict[str, NamedKernels] = {}
        if self._chosen is not None:
            self._compiled(self._chosen)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the parameters, in order."""
        return tuple(item.value.name for item in self._function.parameters)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the memrefs and groups, in order."""
        return tuple(
            item.value.name for item in self._function.parameters if not isinstance(item.type, Scalar)
        )

    @property
    def shapes(self) -> dict[str, tuple[int | None, ...] | None]:
        """The sizes of the modes of each memref, None where only a call knows one; None for what is no memref."""
        kinds = {item.value.name: item.type for item in self._function.parameters}
        return {name: kind.shape if isinstance(kind, Memref) else None for name, kind in kinds.items()}

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; arrays of known shape that are not given are random where that is wanted, else missing."""
        given = name_inputs(self.inputs, arrays, inputs)
        unknown = next((key for key in given if key not in self.inputs), None)
        if unknown is not None:
            hint = list_known(unknown, self.inputs, "it has:")
            raise InputError(f"kernel '{self._function.name}' has no parameter '{unknown}'", hint=hint)
        missing = [item for item in self._function.parameters if item.value.name not in given]
        if not self.draws:
            refuse_missing({item.value.name: write_type(item.type) for item in missing})
        seed = self._options.start_seed
        values = {item.value.name: _argument(item, given, seed) for item in self._function.parameters}
        drawn = {item.value.name: np.asarray(values[item.value.name]) for item in missing}
        self.drawn = Drawn(types_of(drawn))
        arguments = list(values.values())
        backend = self._chosen or self._choose(arguments)
        kernels = self._compiled(backend)
        begun = time.perf_counter()
        kernels.call(self._function.name, arguments, self._options.groups)
        self.seconds = time.perf_counter() - begun
        self.findings = [*self.findings, *(item for item in kernels.findings if item not in self.findings)]
        return {key: value for key in self.outputs if (value := _stacked(values[key])) is not None}

    def _choose(self, arguments: Sequence[object]) -> str:
        """Machine code where every loop is seen to end, else the interpreter."""
        if len(arguments) != len(self._function.parameters) or verify_arguments(self._function, arguments):
            return "interpreter"
        # A step of 0 is no constant that the checker would have let pass, so it is looked for before it is one.
        # Only with the integers at hand it is seen whether a loop steps past the largest one.
        known = know_sizes(self._function, arguments)
        ways = [find_open(specialise(self._function, known, given)) for given in (None, arguments)]
        endless = next(
            (kept for way in ways if (kept := [item for item in way if item.code == MAY_NOT_END.code])), []
        )
        self.findings = [replace(item, hint=INTERPRETED) for item in endless]
        return "interpreter" if endless else EITHER

    def _compiled(self, backend: str) -> NamedKernels:
        if backend not in self._kernels:
            self._kernels[backend] = compile_kernels(self._program, backend, self._options)
        return self._kernels[backend]


def _find(model: KernelFile, name: str | None) -> Function:
    functions = model.program.functions
    found = next((item for item in functions if name in (None, item.name)), None)
    if found is None or (name is None and len(functions) > 1):
        message = "say which kernel to run with --kernel" if name is None else f"there is no kernel '{name}'"
        names = [item.name for item in functions]
        raise InputError(message, hint=list_known(name or "", names, "kernels are:"))
    return found


def _argument(parameter: Parameter, given: Mapping[str, npt.ArrayLike], seed: int) -> object:
    """What a kernel gets for a parameter: scalars as numbers, groups as lists, arrays as they are."""
    name, kind = parameter.value.name, parameter.type
    if name in given:
        value = np.asarray(given[name])
        if isinstance(kind, Scalar):
            return value.item() if value.size == 1 else value
        return (
            [_laid_out(kind.memref, item) for item in value]
            if isinstance(kind, Group)
            else _laid_out(kind, value)
        )
    if isinstance(kind, Memref) and None not in kind.shape:
        return draw_array(kind, name, seed)
    hint = f"give it with --arg {name}={'NUMBER' if isinstance(kind, Scalar) else 'FILE.npy'}"
    raise InputError(f"parameter '{printable(name)}' ({write_type(kind)}) has no value", hint=hint)


def _laid_out(kind: object, value: Array) -> Array:
    """A copy in the layout that the kernel declares, so that the order of a file's bytes does not matter."""
    return laid_out(kind, value) if isinstance(kind, Memref) and value.ndim == kind.order else value


def _stacked(value: object) -> Array | None:
    if isinstance(value, list):
        return np.stack(value) if value else None
    return value if isinstance(value, np.ndarray) else None


# --- random arrays in the layout that a kernel declares --------------------------------------------------------


LARGEST = 8
"""Random integers lie between minus this and this."""


def draw_array(kind: Memref, name: str, seed: int) -> Array:
    """A random array of known shape; strides that only the run knows are the packed ones."""
    shape = tuple(size or 0 for size in kind.shape)
    element = dtype.LANGUAGES["tensor"][kind.element]
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    found = zeros_in_layout(kind, shape, numpy_dtype(element))
    if element.is_integer:
        found[...] = random.integers(-LARGEST, LARGEST, shape, endpoint=True).astype(found.dtype)
    else:
        found[...] = random.standard_normal(shape).astype(found.dtype)
    return found


# --- executed statements as lines: where, what, and the values that came of it ------------------------------


MOST_LINES = 10_000
"""A trace that is longer is not read."""
MOST_ELEMENTS = 8


class Tracer:
    """Writes a line for each executed statement, and says so where it writes no more."""

    def __init__(self, write: Callable[[str], None], most: int = MOST_LINES) -> None:
        self._write = write
        self._left = most
        self._most = most

    def __call__(self, step: ExecutedStatement) -> None:
        """Write the line of a statement."""
        if self._left > 0:
            self._write(trace_line(step))
        elif self._left == 0:
            self._write(f"the trace ends after {self._most} statements, the run goes on")
        self._left -= 1


def trace_line(step: ExecutedStatement) -> str:
    """`line 12 of @kernel, work-group 0, work-item 3: %r = arith.add %a, %b : f32 ; 3.5`."""
    item = "" if step.item is None else f", work-item {step.item}"
    values = ", ".join(map(_value, step.results))
    shown = f" ; {values}" if values else ""
    place = f"line {step.statement.span.line} of @{step.kernel}, work-group {step.group}{item}"
    return f"{place}: {_statement(step.statement)}{shown}"


def _statement(statement: Statement) -> str:
    """A statement on one line; of one with regions, its word."""
    results = ",".join(f"%{value.name}" for value in statement.results)
    head = f"{results} = " if results else ""
    instruction = statement.instruction
    if isinstance(instruction, For | Foreach | If | Parallel):
        return f"{head}{word_of(instruction)}"
    return head + write_instruction(instruction)


def _value(value: RunValue) -> str:
    if isinstance(value, GroupReference):
        return f"group of {len(value.items)}"
    if isinstance(value, MemrefReference):
        shape, stride = ("x".join(map(str, item)) or "1" for item in (value.shape, value.stride))
        return f"memref {shape}, strides {stride}, from element {value.offset}"
    if not isinstance(value, np.ndarray) or not value.ndim:
        return _number(value)
    first = " ".join(_number(item) for item in value.flatten(order="F")[:MOST_ELEMENTS])
    more = " …" if value.size > MOST_ELEMENTS else ""
    return f"matrix {'x'.join(map(str, value.shape))} [{first}{more}]"


def _number(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)
