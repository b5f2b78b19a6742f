"""The kernels of a program as machine code, called like functions of Python.

A kernel runs to its end before the interpreter sees a signal: Ctrl-C is heard when it returns. Every access is proved
to stay inside its memory before the code runs. Where the sizes and integers of a launch do not suffice for a proof,
because data decide, another form of the kernel runs that tests those accesses; where no test can be written, the
interpreter does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from lamella.backend.arguments import verify_arguments
from lamella.backend.cpu.compiled import EmittedProgram, KernelSymbol
from lamella.backend.cpu.jit import (
    LoadedCode,
    code_error,
    host_machine,
    readable_assembly,
)
from lamella.backend.cpu.run.launch import ArgumentPacker, PackedArguments
from lamella.backend.cpu.run.pool import KernelLauncher, ListWalker, checked_threads, count_threads
from lamella.backend.cpu.run.prepared import PreparedLaunch
from lamella.backend.named import Grid, Groups, NamedKernels, take_grid
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Unsupported
from lamella.base.limits import DEFAULT, Limits
from lamella.base.records import dataclass
from lamella.kernels.bounds_checks import TestedKernel, add_bounds_checks
from lamella.kernels.rewrite import walk
from lamella.kernels.sizes import Sizes, choose_sizes, default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor import write
from lamella.lang.tensor.check.memory import Proof
from lamella.lang.tensor.extensions import lower_extensions
from lamella.lang.tensor.nodes import CoopApply, Function, Group, Program
from lamella.lang.tensor.rules import running as rules


@dataclass(frozen=True, slots=True)
class LaunchCompiler:
    """How kernels are made of programs that come up at launch."""

    target: Target | None = None
    compile: Callable[[Program], NamedKernels] | None = None
    """Makes machine code of a kernel with bounds checks."""
    interpret: Callable[[Program], NamedKernels] | None = None
    """Runs kernels by the letter."""


@dataclass(frozen=True, slots=True)
class _Tested:
    """A kernel with bounds checks as machine code, and the statements that are tested, by their identity."""

    kernel: TestedKernel
    kernels: NamedKernels
    statements: frozenset[int]


class CompiledKernels(NamedKernels):
    """The kernels of a program as machine code: `kernels.name(A, B, groups=n)` runs one on NumPy arrays, in place."""

    def __init__(
        self,
        compiled: EmittedProgram,
        code: LoadedCode,
        *,
        limits: Limits = DEFAULT,
        threads: int | None = None,
        proved: bool = False,
        ways: LaunchCompiler | None = None,
    ) -> None:
        super().__init__(compiled.program)
        self._proved = proved
        self._compiled = compiled
        self._ways = ways or LaunchCompiler()
        self._tested: dict[str, _Tested | None] = {}
        """Kernels with bounds checks; None where only the interpreter can test."""
        self._interpreter: NamedKernels | None = None
        self._said: set[str] = set()
        """Kernels of which it is said already that they run with tests."""
        self._refuse_large(limits)
        self._threads = count_threads() if threads is None else checked_threads(threads)
        self._code = code
        self._ready = {entry.name: self._prepare(entry, self._threads) for entry in compiled.entries}

    def call(self, name: str, arguments: Sequence[object] = (), groups: Groups = 1) -> None:
        """Run a kernel for a number of work-groups, on all threads; arrays are updated in place."""
        found = self._ready.get(name)
        if found is None:
            raise code_error(f"there is no code of '{self._find(name).name}'")
        function, packer, _ = found
        grid = take_grid(function, groups)
        has_axes = len(packer.parameters) > len(function.parameters)
        given = with_axes(function, arguments, grid) if has_axes else arguments
        packed = packer.pack(given, grid.total)
        if packed.doubts is None:
            self._launch(name, packed, given, grid.total)
            return
        findings = self._run_tested(packer.function, given, grid.total, packed.doubts)
        if findings is None:
            self._run_interpreted(name, arguments, groups)
        elif findings:
            raise LamellaError(findings)

    def _launch(self, name: str, packed: PackedArguments, arguments: Sequence[object], groups: int) -> None:
        """Run a launch that is proved."""
        self._ready[name][2].run(packed.slots, groups)

    @cached_property
    def walker(self) -> ListWalker:
        """What runs launch lists on the threads of these kernels."""
        return ListWalker(self._threads)

    def prepare(self, name: str, arguments: Sequence[object], groups: int) -> PreparedLaunch:
        """A launch for arrays of these layouts, wherever they will lie; arrays that are written overlap no other.

        Parameters are memrefs and numbers: the tables of a group belong to one call.
        Unsupported: only the interpreter can test it. LamellaError: it leaves its memory for certain.
        """
        function, packer, runner = self._ready[name]
        if any(isinstance(item.type, Group) for item in function.parameters):
            raise Unsupported("it takes a group of arrays")
        has_axes = len(packer.parameters) > len(function.parameters)
        given = with_axes(function, arguments, Grid(groups)) if has_axes else arguments
        packed, places = packer.pack_placed(given, groups)
        if packed.doubts is None:
            return PreparedLaunch(self._code, runner.address, runner.local_bytes, packed.slots, tuple(places))
        tested = self._find_tested(packer.function, packed.doubts)
        if tested is None or not isinstance(tested.kernels, CompiledKernels):
            raise Unsupported("only the interpreter can test its accesses")
        tests = np.zeros(tested.kernel.slots, np.int64)
        return replace(tested.kernels.prepare(name, [*given, tests], groups), tests=tests)

    def _find_tested(self, function: Function, doubts: Proof) -> _Tested | None:
        """The kernel with bounds checks, and word of it; None where only the interpreter can test."""
        is_analysed = any(
            isinstance(item.instruction, CoopApply) for item in walk(self._find(function.name).body)
        )
        tested = None if doubts.opaque or is_analysed else self._test(function, doubts)
        self._say(function, doubts, tested is None)
        return tested

    def _run_tested(
        self, function: Function, arguments: Sequence[object], groups: int, doubts: Proof
    ) -> list[Diagnostic] | None:
        """Run a launch of which something is not proved, with bounds checks, and give the tests that failed.

        None where only the interpreter can test it. The function has no extensions any more, but for an apply, which
        is a loop there for the proof alone.
        """
        tested = self._find_tested(function, doubts)
        if tested is None:
            return None
        slots = np.zeros(tested.kernel.slots, np.int64)
        tested.kernels.call(function.name, [*arguments, slots], groups)
        return tested.kernel.findings(slots.tolist()) if slots.any() else []

    def _test(self, function: Function, doubts: Proof) -> _Tested | None:
        """The kernel with bounds checks wherever this launch or one before needs them."""
        wanted = frozenset(map(id, doubts.open))
        if function.name in self._tested:
            found = self._tested[function.name]
            if found is None or wanted <= found.statements:
                return found
            wanted |= found.statements
        self._tested[function.name] = found = self._add_tests(function, wanted)
        return found

    def _add_tests(self, function: Function, wanted: frozenset[int]) -> _Tested | None:
        """None where no test can be written, or where the kernel becomes longer with them than one may be."""
        if self._ways.compile is None:
            return None
        try:
            kernel = add_bounds_checks(function, wanted)
            kernels = self._ways.compile(replace(self._program, functions=(kernel.function,)))
        except (Unsupported, LamellaError):
            return None
        return _Tested(kernel, kernels, wanted)

    def _run_interpreted(self, name: str, arguments: Sequence[object], groups: Groups) -> None:
        """Run a launch by the letter."""
        if self._interpreter is None:
            if self._ways.interpret is None:
                raise code_error("a launch that is not proved needs an interpreter")
            self._interpreter = self._ways.interpret(self._program)
        self._interpreter.call(name, arguments, groups)

    def _say(self, function: Function, doubts: Proof, interpreted: bool) -> None:
        """Keep once for each kernel that it runs with tests, and why."""
        if function.name in self._said:
            return
        self._said.add(function.name)
        why = doubts.doubts[0].message if doubts.doubts else "a view is made that cannot be followed"
        how = "in the interpreter" if interpreted else "with bounds checks"
        span = doubts.doubts[0].span if doubts.doubts else function.span
        self.findings.append(rules.TESTED.at(span, name=function.name, how=how, why=why))

    @cached_property
    def ir(self) -> str:
        """The program after the passes, in the canonical form of the tensor language."""
        return write(self._compiled.lowered)

    @property
    def llvm(self) -> str:
        """The text that LLVM gets."""
        return self._compiled.text

    @cached_property
    def asm(self) -> str:
        """The assembly for this machine."""
        return readable_assembly(self._compiled.text, host_machine())

    def _prepare(self, entry: KernelSymbol, threads: int) -> tuple[Function, ArgumentPacker, KernelLauncher]:
        function = self._find(entry.name)
        runner = KernelLauncher(self._code.address(entry.symbol), entry.local_bytes, threads)
        return (
            function,
            ArgumentPacker(lower_extensions(function), self._proved, self._sizes(function)),
            runner,
        )

    def _sizes(self, function: Function) -> Sizes:
        """The sizes that the code was made for."""
        if self._ways.target is not None:
            return choose_sizes(function, self._ways.target)
        lowered = next(item for item in self._compiled.lowered.functions if item.name == function.name)
        return default_sizes(lowered)

    def _refuse_large(self, limits: Limits) -> None:
        """Refuse kernels whose local memory passes the limit."""
        large = [item for item in self._compiled.entries if item.local_bytes > limits.max_total_bytes]
        if large:
            raise LamellaError(
                [
                    rules.TOO_MUCH_LOCAL.at(
                        self._find(item.name).span,
                        bytes=item.local_bytes,
                        limit=limits.max_total_bytes,
                        place="",
                    )
                    for item in large
                ]
            )


def with_axes(function: Function, arguments: Sequence[object], grid: Grid) -> list[object]:
    """Arguments with how many work-groups there are along x and y, which a kernel that asks for its axes reads."""
    if len(arguments) != len(function.parameters):
        raise LamellaError(verify_arguments(function, arguments))
    return [*arguments, grid.x, grid.y]
