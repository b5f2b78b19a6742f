"""Kernel families: kernels of one form share machine code, whose open numbers each launch hands over.

A graph that leaves extents open has kernels for those of each call. Most of them differ from the kernels of another
call in numbers alone: they are compiled once, and a call with other extents costs no LLVM.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from lamella.backend.cpu.run.kernels import CompiledKernels
from lamella.backend.cpu.run.pool import ListWalker
from lamella.backend.cpu.run.prepared import PreparedLaunch
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.kernels.open_numbers import KernelForm, OpenKernel, form_of, open_numbers
from lamella.lang.tensor.nodes import Program

Compile = Callable[[Program], CompiledKernels]
"""Makes machine code of kernels."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A kernel with open numbers, and the machine code that it is in."""

    kernel: OpenKernel
    code: CompiledKernels


class KernelFamilies:
    """The machine code of all kernels that calls with different extents have had so far."""

    def __init__(self, compile: Compile) -> None:
        self._compile = compile
        self._members: dict[str, list[_Member]] = {}
        """By the text of their form."""

    def take(self, program: Program, seldom: Collection[str] = ()) -> FamilyKernels:
        """The kernels of a program; machine code is made for those that no kernel before serves.

        For those that seldom run it is made when one does.
        """
        often = tuple(item for item in program.functions if item.name not in seldom)
        found, compiled = self._make(replace(program, functions=often or program.functions))
        return FamilyKernels(found, compiled, lambda name: self._make(_only(program, name))[0][name])

    def _make(self, program: Program) -> tuple[dict[str, tuple[KernelForm, _Member]], int]:
        """The kernels of a program with their machine code, and how many of them it was made for."""
        forms = {item.name: form_of(item) for item in program.functions}
        new = {name: form for name, form in forms.items() if self._find(form) is None}
        fresh: dict[str, OpenKernel] = {}
        for name, form in new.items():
            if not any(kernel.serves(form) for kernel in fresh.values()):
                fresh[name] = open_numbers(form, _open_places(form))
        if fresh:
            code = self._compile(replace(program, functions=tuple(item.function for item in fresh.values())))
            for kernel in fresh.values():
                self._members.setdefault(kernel.form.text, []).append(_Member(kernel, code))
        found = {name: (form, member) for name, form in forms.items() if (member := self._find(form))}
        return found, len(fresh)

    def _find(self, form: KernelForm) -> _Member | None:
        members = self._members.get(form.text, ())
        return next((item for item in members if item.kernel.serves(form)), None)


def _only(program: Program, name: str) -> Program:
    return replace(program, functions=tuple(item for item in program.functions if item.name == name))


def _open_places(form: KernelForm) -> frozenset[int]:
    return frozenset(place for place, number in enumerate(form.numbers) if is_open(number))


class FamilyKernels:
    """The kernels of one program, as machine code that they share with others."""

    def __init__(
        self,
        kernels: dict[str, tuple[KernelForm, _Member]],
        compiled: int,
        late: Callable[[str], tuple[KernelForm, _Member]],
    ) -> None:
        self._kernels = kernels
        self._late = late
        self.compiled = compiled
        """How many of them machine code was made for at once."""

    @property
    def walker(self) -> ListWalker:
        """What runs launch lists on the threads of the kernels."""
        return next(iter(self._kernels.values()))[1].code.walker

    def _find(self, name: str) -> tuple[KernelForm, _Member]:
        if name not in self._kernels:
            self._kernels[name] = self._late(name)
        return self._kernels[name]

    def prepare(self, name: str, arguments: Sequence[object], groups: int) -> PreparedLaunch:
        """A launch for arrays of these layouts, proved or tested, as that of `CompiledKernels`."""
        form, member = self._find(name)
        given = [*arguments, *member.kernel.arguments(form)]
        return member.code.prepare(member.kernel.function.name, given, groups)

    def call(self, name: str, arguments: Sequence[object], groups: int) -> None:
        """Run a kernel by itself."""
        form, member = self._find(name)
        member.code.call(member.kernel.function.name, [*arguments, *member.kernel.arguments(form)], groups)
