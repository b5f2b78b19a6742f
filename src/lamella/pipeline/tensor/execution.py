"""Kernels for the API and for `lamella run`: load, compile, call, save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lamella.backend.arguments import verify_arguments
from lamella.backend.cpu import compile_program
from lamella.backend.cpu.host import host_like
from lamella.backend.cpu.run.launch import know_sizes
from lamella.backend.cpu.run.proof import find_open, specialise
from lamella.backend.drawing import Drawn, refuse_missing, types_of
from lamella.backend.interpreter import ExecutedStatement
from lamella.backend.interpreter import compile_program as interpret
from lamella.backend.interpreter.memory import GroupReference, MemrefReference
from lamella.backend.interpreter.state import RunValue
from lamella.backend.named import NamedKernels
from lamella.backend.progress import Progress, no_progress
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.errors import InputError
from lamella.base.writer import write_text
from lamella.lang.tensor import write, write_type
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
from lamella.pipeline.languages import part_of
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.checked import read_checked
from lamella.pipeline.tensor.draws import draw_array, empty_array
from lamella.pipeline.tensor.program import KernelFile

if TYPE_CHECKING:
    from lamella.pipeline.tensor.lowering import Lowered


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


BACKENDS = ("cpu", "interpreter")
INTERPRETED = "so the interpreter ran it, which counts steps; --backend cpu runs machine code"


def load(path: Path, options: Options) -> KernelFile:
    """Read and check the kernels of a file; LamellaError holds all findings when something is wrong."""
    return read_checked(path, options.limits)


def compile(  # the API's word: lamella.compile
    model: KernelFile, backend: str | None, options: Options
) -> NamedKernels | KernelRun:
    """Make kernels callable, `kernels.name(A, B, groups=n)`; with `kernel` named, that one alone."""
    if options.kernel is not None:
        return KernelRun(model, backend, options)
    return compile_kernels(model.program, backend, options)


def compile_kernels(
    program: Program, backend: str | None, options: Options, proved: bool = False
) -> NamedKernels:
    """Kernels on a backend; what only the interpreter does, it does unasked."""
    if backend not in (None, *BACKENDS):
        known = ", ".join(BACKENDS)
        raise InputError(f"there is no backend '{backend}' for kernels", hint=f"kernels run on: {known}")
    watched = options.trace is not None or options.check_bounds
    if backend == "cpu" and watched:
        raise InputError("machine code is neither traced nor tested", hint="--backend interpreter does both")
    if backend == "interpreter" or watched:
        trace = None if options.trace is None else Tracer(options.trace)
        return interpret(program, limits=options.limits, check_bounds=options.check_bounds, trace=trace)
    target = None if options.target is None else host_like(options.target)
    return compile_program(
        program,
        limits=options.limits,
        target=target,
        threads=options.threads or None,
        proved=proved,
    )


def lower(model: KernelFile, to: str, options: Options) -> Lowered:
    """The program after its passes, as text for LLVM, or as the code of a processor."""
    lowered: Lowered = part_of("tensor", "lowering").lower_program(model.program, to, options)
    return lowered


def save(model: KernelFile | Lowered, path: Path) -> None:
    """Write kernels: their canonical text, or what they were lowered to."""
    if not isinstance(model, KernelFile):
        write_text(path, model.text)
        return
    if path.suffix != ".tensor":
        raise InputError(f"'{path.name}' is no ending for kernels", hint="kernels are written as .tensor")
    write_text(path, write(model.program))


class KernelRun:
    """One kernel with its arguments, run like any other model; its outputs are the arrays after the call.

    Without a backend it runs as machine code, which proves or tests every access, but for loops that may have no end:
    those run in the interpreter, which counts steps.
    """

    def __init__(self, model: KernelFile, backend: str | None, options: Options) -> None:
        self.findings: list[Diagnostic] = []
        self.watch: Progress = no_progress
        self.draws = options.draws
        """Whether arrays that a call does not give are random; where not, they are missing."""
        self.drawn = Drawn()
        """What the last call drew."""
        self._function = _find(model, options.kernel or None)
        self._program = model.program
        self._options = options
        self._chosen = "cpu" if backend is None and options.target is not None else backend
        self._kernels: dict[str | None, NamedKernels] = {}
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

    def __call__(self, /, **given: npt.ArrayLike) -> dict[str, Array]:
        """Run once; arrays of known shape that are not given are random where that is wanted, else missing."""
        unknown = next((key for key in given if key not in self.inputs), None)
        if unknown is not None:
            hint = f"it has: {', '.join(self.inputs) or 'none'}"
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
        kernels.call(self._function.name, arguments, self._options.groups)
        self.findings = [*self.findings, *(item for item in kernels.findings if item not in self.findings)]
        return {key: value for key in self.outputs if (value := _stacked(values[key])) is not None}

    def _choose(self, arguments: Sequence[object]) -> str | None:
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
        return "interpreter" if endless else None

    def _compiled(self, backend: str | None) -> NamedKernels:
        if backend not in self._kernels:
            self._kernels[backend] = compile_kernels(self._program, backend, self._options)
        return self._kernels[backend]


def _find(model: KernelFile, name: str | None) -> Function:
    functions = model.program.functions
    found = next((item for item in functions if name in (None, item.name)), None)
    if found is None or (name is None and len(functions) > 1):
        message = "say which kernel to run with --kernel" if name is None else f"there is no kernel '{name}'"
        raise InputError(message, hint=f"kernels are: {', '.join(item.name for item in functions)}")
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
    if not isinstance(kind, Memref) or value.ndim != kind.order:
        return value
    found = empty_array(kind, value.shape, value.dtype)
    found[...] = value
    return found


def _stacked(value: object) -> Array | None:
    if isinstance(value, list):
        return np.stack(value) if value else None
    return value if isinstance(value, np.ndarray) else None
