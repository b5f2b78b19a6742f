"""Kernels by name, the surface that every way to run them has: `kernels.name(A, B, groups=n)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from lamella.backend.layouts import LAYOUT_CODES, lay_out
from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.lang.tensor.extensions import read_axes
from lamella.lang.tensor.nodes import Function, Program
from lamella.lang.tensor.rules import running as rules
from lamella.lang.tensor.write import card_of_kernels

MOST_GROUPS = 1 << 62
Groups: TypeAlias = int | Sequence[int]
"""How many work-groups a launch has: a number, or one for each of the axes x, y and z."""


class Grid(NamedTuple):
    """The work-groups of a launch along x, y and z; they are counted along x first."""

    x: int
    y: int = 1
    z: int = 1

    @property
    def total(self) -> int:
        """All work-groups."""
        return self.x * self.y * self.z

    def place(self, number: int) -> tuple[int, int, int]:
        """Where a work-group stands, by its number."""
        rest, x = divmod(number, self.x)
        z, y = divmod(rest, self.y)
        return x, y, z


class NoKernelError(LamellaError, AttributeError):
    """There is no kernel of a name; to Python it is an attribute that is not there."""


def _in_order(
    kernel: str, order: list[str], arguments: Sequence[object], named: dict[str, object]
) -> list[object]:
    """Arguments in the order of the parameters, those that are named in their places."""
    rest = order[len(arguments) :]
    wrong = next((name for name in named if name not in rest), None)
    if wrong is not None:
        known = ", ".join(order) or "none"
        raise InputError(
            f"kernel '{kernel}' has no parameter '{wrong}' left to give", hint=f"it has: {known}"
        )
    missing = next((name for name in rest if name not in named), None)
    if missing is not None:
        raise InputError(f"kernel '{kernel}' gets no '{missing}'", hint=f"its parameters: {', '.join(order)}")
    return [*arguments, *(named[name] for name in rest)]


class NamedKernels(ABC):
    """The kernels of a program: `kernels.name(A, B, groups=n)` runs one on NumPy arrays, in place.

    Arrays that lie as the memrefs say are not copied; those of other strides are, there and back. `call` copies none.
    """

    def __init__(self, program: Program) -> None:
        self.findings: list[Diagnostic] = []
        """What is worth to be said of how kernels run, once for each."""
        self._program = program
        self._functions = {function.name: function for function in program.functions}

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """What it is: the names of its kernels."""
        return card_of_kernels("", self._program)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels, in the order of the program."""
        return tuple(self._functions)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """A kernel by its name; one whose name is taken here is reached with `call`."""
        if name.startswith("_"):
            raise AttributeError(name)
        function = self._find(name)
        order = [item.value.name for item in function.parameters]

        def kernel(*arguments: object, groups: Groups = 1, **named: object) -> None:
            given = _in_order(name, order, arguments, named) if named else arguments
            try:
                self.call(name, given, groups)
            except LamellaError as problem:
                if not LAYOUT_CODES.issuperset(item.code for item in problem.findings):
                    raise
                # Nothing has run: a launch is verified first, and refused for the layout of arrays alone.
                laid = lay_out(function, given)
                if laid is None:
                    raise
                self.call(name, laid.arguments, groups)
                laid.copy_back()

        kernel.__name__ = kernel.__qualname__ = name
        kernel.__doc__ = (
            f"{name}({', '.join(order)}, groups=1): run it for some work-groups, arrays in place."
        )
        self.__dict__[name] = kernel  # the next look finds it without coming here
        return kernel

    @abstractmethod
    def call(self, name: str, arguments: Sequence[object] = (), groups: Groups = 1) -> None:
        """Run a kernel for a number of work-groups, along x or along several axes; arrays are updated in place."""

    def _find(self, name: str) -> Function:
        found = self._functions.get(name)
        if found is None:
            shown = ", ".join(f"@{item}" for item in self._functions) or "none"
            raise NoKernelError([rules.UNKNOWN_KERNEL.at(self._program.span, name=name, kernels=shown)])
        return found


def take_grid(function: Function, groups: object) -> Grid:
    """The work-groups of a launch, once it is certain that they are numbers, and that the kernel reads its axes."""
    if isinstance(groups, int | np.integer) and not isinstance(groups, bool) and 0 <= groups <= MOST_GROUPS:
        return Grid(int(groups))
    given = list(groups) if isinstance(groups, Sequence) and not isinstance(groups, str) else []
    sizes = [int(item) for item in given if isinstance(item, int | np.integer) and not isinstance(item, bool)]
    grid = Grid(*sizes) if 1 <= len(sizes) == len(given) <= 3 else None
    if grid is None or min(grid) < 0 or max(*grid, grid.total) > MOST_GROUPS:
        raise LamellaError([rules.GROUP_COUNT.at(function.span, name=function.name, groups=groups)])
    _refuse_unread(function, grid)
    return grid


def _refuse_unread(function: Function, grid: Grid) -> None:
    """Refuse several work-groups along an axis that a kernel never asks for: all of them would do the same."""
    read = read_axes(function) if grid.y != 1 or grid.z != 1 else frozenset()
    for axis, count in (("y", grid.y), ("z", grid.z)):
        if count > 1 and axis not in read:
            unread = rules.UNREAD_AXIS.at(function.span, name=function.name, count=count, axis=axis)
            raise LamellaError([unread])
