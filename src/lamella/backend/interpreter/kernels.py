"""The kernels of a program as Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from lamella.backend.interpreter.execute import run_work_group
from lamella.backend.interpreter.faults import Fault, Stopped
from lamella.backend.interpreter.launch import take_arguments
from lamella.backend.interpreter.state import Launch, Options, RunValue, Trace
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.tensor import check
from lamella.lang.tensor.nodes import Function, Program
from lamella.lang.tensor.rules import running as rules

SUBGROUP_SIZES = (16, 8, 4, 2, 1)
LARGEST_WORK_GROUP = 1 << 14


class Kernels:
    """The kernels of a program: `kernels.name(A, B, groups=n)` runs one on NumPy arrays, in place."""

    def __init__(self, program: Program, options: Options) -> None:
        self._program = program
        self._functions = {function.name: function for function in program.functions}
        self._options = options

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

        return kernel

    def call(self, name: str, arguments: Sequence[object] = (), groups: int = 1) -> None:
        """Run a kernel for a number of work-groups, one after the other; arrays are updated in place."""
        function = self._find(name)
        if not _is_count(groups):
            raise LamellaError([rules.GROUP_COUNT.at(function.span, name=name, groups=groups)])
        with np.errstate(all="ignore"):
            _run(self._launch(function, int(groups)), take_arguments(function, arguments))

    def _find(self, name: str) -> Function:
        found = self._functions.get(name)
        if found is None:
            shown = ", ".join(f"@{item}" for item in self._functions) or "none"
            raise LamellaError([rules.UNKNOWN_KERNEL.at(self._program.span, name=name, kernels=shown)])
        return found

    def _launch(self, function: Function, groups: int) -> Launch:
        size = work_group_size(function)
        items = size[1][0] * size[1][1]
        if items > LARGEST_WORK_GROUP:
            values = {"name": function.name, "items": items, "limit": LARGEST_WORK_GROUP}
            raise LamellaError([rules.WORK_GROUP_LIMIT.at(function.span, hint=None, labels=(), **values)])
        order = None if self._options.seed is None else Random(self._options.seed)
        return Launch(function, self._options, groups, size[0], size[1], order)


def _run(launch: Launch, arguments: dict[str, RunValue]) -> None:
    """Run all work-groups; the first fault ends the run."""
    try:
        for number in _order(launch):
            launch.count()
            run_work_group(launch, number, arguments)
    except Fault as fault:
        raise LamellaError([fault.at(launch.function.span).finding]) from None
    except Stopped as stopped:
        raise LamellaError([stopped.finding]) from None


def _is_count(groups: object) -> bool:
    return isinstance(groups, int | np.integer) and not isinstance(groups, bool) and int(groups) >= 0


def _order(launch: Launch) -> Sequence[int]:
    """Work-groups have no order; a seed mixes them."""
    numbers = range(launch.groups)
    if launch.order is None or launch.groups > launch.options.limits.max_steps:
        return numbers
    return launch.order.sample(numbers, launch.groups)


def work_group_size(function: Function) -> tuple[int, tuple[int, int]]:
    """Subgroup size and work-group size of a kernel: its attributes, else 16 and one subgroup."""
    attributes = function.attributes
    subgroup = None if attributes is None else attributes.find("subgroup_size")
    whole = None if attributes is None else attributes.find("work_group_size")
    items = [item for item in whole if isinstance(item, int)] if isinstance(whole, tuple) else []
    size = subgroup if isinstance(subgroup, int) else _fitting(items[0] if items else SUBGROUP_SIZES[0])
    return size, (items[0], items[1]) if len(items) == 2 else (size, 1)


def _fitting(rows: int) -> int:
    """The largest usual subgroup size that divides the rows of a work-group."""
    return next(size for size in SUBGROUP_SIZES if rows % size == 0)


def compile_program(
    program: Program,
    *,
    limits: Limits = DEFAULT,
    check_bounds: bool = False,
    seed: int | None = None,
    trace: Trace | None = None,
) -> Kernels:
    """Make the kernels of a program callable; a program with errors raises them.

    Every access is tested, so none leaves its array; `check_bounds` also tests views where they are made. A `seed`
    mixes what has no order: work-groups, work-items between barriers, the tuples of a foreach. `trace` is called
    with each executed statement.
    """
    found = errors(check(program))
    if found:
        raise LamellaError(found)
    return Kernels(program, Options(limits, check_bounds, seed, trace))
