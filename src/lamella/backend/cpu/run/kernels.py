"""The kernels of a program as machine code, called like functions of Python.

A kernel runs to its end before the interpreter sees a signal: Ctrl-C is heard when it returns. What a launch can
verify is verified; an index that leaves its memref or a division by zero inside a kernel is undefined here, and
found by the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from lamella.backend.arguments import verify_arguments
from lamella.backend.cpu.compiled import Emitted, Entry
from lamella.backend.cpu.jit import CodeError, Loaded, host_machine, readable_assembly
from lamella.backend.cpu.run.launch import Packer
from lamella.backend.cpu.run.pool import Runner, checked_threads, count_threads
from lamella.backend.named import Grid, Groups, NamedKernels, take_grid
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.tensor import write
from lamella.lang.tensor.extensions import lower_extensions
from lamella.lang.tensor.nodes import Function
from lamella.lang.tensor.rules import running as rules


class Kernels(NamedKernels):
    """The kernels of a program as machine code: `kernels.name(A, B, groups=n)` runs one on NumPy arrays, in place."""

    def __init__(
        self,
        compiled: Emitted,
        code: Loaded,
        *,
        limits: Limits = DEFAULT,
        threads: int | None = None,
        proved: bool = False,
    ) -> None:
        super().__init__(compiled.program)
        self._proved = proved
        self._compiled = compiled
        self._refuse_large(limits)
        count = count_threads() if threads is None else checked_threads(threads)
        self._code = code
        self._ready = {entry.name: self._prepare(entry, count) for entry in compiled.entries}

    def call(self, name: str, arguments: Sequence[object] = (), groups: Groups = 1) -> None:
        """Run a kernel for a number of work-groups, on all threads; arrays are updated in place."""
        found = self._ready.get(name)
        if found is None:
            raise CodeError(f"there is no code of '{self._find(name).name}'")
        function, packer, runner = found
        grid = take_grid(function, groups)
        if len(packer.parameters) > len(function.parameters):
            arguments = _with_axes(function, arguments, grid)
        packed = packer.pack(arguments, grid.total)
        runner.run(packed.slots, grid.total)

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

    def _prepare(self, entry: Entry, threads: int) -> tuple[Function, Packer, Runner]:
        function = self._find(entry.name)
        runner = Runner(self._code.address(entry.symbol), entry.local_bytes, threads)
        return function, Packer(lower_extensions(function), self._proved), runner

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


def _with_axes(function: Function, arguments: Sequence[object], grid: Grid) -> list[object]:
    """Arguments with how many work-groups there are along x and y, which a kernel that asks for its axes reads."""
    if len(arguments) != len(function.parameters):
        raise LamellaError(verify_arguments(function, arguments))
    return [*arguments, grid.x, grid.y]
