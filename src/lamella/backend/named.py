"""Kernels by name, the surface that every way to run them has: `kernels.name(A, B, groups=n)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from lamella.base.diagnostic import LamellaError
from lamella.lang.tensor.nodes import Function, Program
from lamella.lang.tensor.rules import running as rules

MOST_GROUPS = 1 << 62


class NamedKernels(ABC):
    """The kernels of a program: `kernels.name(A, B, groups=n)` runs one on NumPy arrays, in place."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._functions = {function.name: function for function in program.functions}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels, in the order of the program."""
        return tuple(self._functions)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A kernel by its name; one whose name is taken here is reached with `call`."""
        if name.startswith("_"):
            raise AttributeError(name)
        self._find(name)

        def kernel(*arguments: object, groups: int = 1) -> None:
            self.call(name, arguments, groups)

        self.__dict__[name] = kernel  # the next look finds it without coming here
        return kernel

    @abstractmethod
    def call(self, name: str, arguments: Sequence[object] = (), groups: int = 1) -> None:
        """Run a kernel for a number of work-groups; arrays are updated in place."""

    def _find(self, name: str) -> Function:
        found = self._functions.get(name)
        if found is None:
            shown = ", ".join(f"@{item}" for item in self._functions) or "none"
            raise LamellaError([rules.UNKNOWN_KERNEL.at(self._program.span, name=name, kernels=shown)])
        return found


def count_groups(function: Function, groups: object) -> int:
    """The number of work-groups of a launch, once it is certain that it is one."""
    if isinstance(groups, int | np.integer) and not isinstance(groups, bool) and 0 <= groups <= MOST_GROUPS:
        return int(groups)
    raise LamellaError([rules.GROUP_COUNT.at(function.span, name=function.name, groups=groups)])
