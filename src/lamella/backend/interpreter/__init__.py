"""The interpreter: runs kernels by the letter of the tensor language, slow and obvious, the judge of other backends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np

from lamella.backend.arguments import Arrays, dtype_of, group_items, layout_strides, verify_arguments
from lamella.backend.interpreter.arithmetic import Number, convert
from lamella.backend.interpreter.execute import run_work_group, stop
from lamella.backend.interpreter.memory import (
    GroupReference,
    MemrefReference,
)
from lamella.backend.interpreter.state import (
    ExecutedStatement,
    InterpreterOptions,
    KernelLaunch,
    PreparedStatement,
    RunValue,
    Trace,
)
from lamella.backend.named import Grid, Groups, NamedKernels, take_grid
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT, Limits
from lamella.base.records import replace
from lamella.kernels.rewrite import extracted_matrices
from lamella.kernels.sizes import default_sizes
from lamella.lang.tensor import check
from lamella.lang.tensor.nodes import Function, Group, Memref, Parameter, Program
from lamella.lang.tensor.rules import running as rules
from lamella.ops.fault import Fault

# --- what a caller passes to a kernel: verified, then taken as the values of its parameters -----------------


def take_arguments(function: Function, arguments: Sequence[object]) -> dict[str, RunValue]:
    """The values of the parameters; all findings about what does not fit are raised at once."""
    findings = verify_arguments(function, arguments)
    if findings:
        raise LamellaError(findings)
    pairs = zip(function.parameters, arguments, strict=True)
    return {parameter.value.name: _take(parameter, argument) for parameter, argument in pairs}


def _take(parameter: Parameter, argument: object) -> RunValue:
    name, kind = parameter.value.name, parameter.type
    if isinstance(kind, Memref) and isinstance(argument, np.ndarray):
        return _refer(name, kind, argument)
    if isinstance(kind, Group):
        given = group_items(kind, argument)
        return GroupReference(
            name, tuple(_refer(name, kind.memref, item, given.offset) for item in given.items)
        )
    return _take_scalar(kind, argument)


def _take_scalar(kind: object, argument: object) -> Number:
    element = str(kind)
    if isinstance(argument, int) and dtype_of(element).kind not in "ib":
        argument = float(argument)
    return convert(argument if isinstance(argument, np.generic) else np.asarray(argument)[()], element)


def _refer(name: str, kind: Memref, array: Array, offset: int = 0) -> MemrefReference:
    """A reference to an array; the declared strides stand where the array's own are never used."""
    plain = replace(MemrefReference.of(name, array), stride=layout_strides(kind, array))
    return plain.shifted(array, offset) if offset else plain


# --- the kernels of a program as Python functions -----------------------------------------------------------


LARGEST_WORK_GROUP = 1 << 14


class InterpretedKernels(NamedKernels):
    """The kernels of a program, run by the letter: `kernels.name(A, B, groups=n)`."""

    def __init__(self, program: Program, options: InterpreterOptions) -> None:
        super().__init__(program)
        self._options = options
        self._prepared: dict[int, list[PreparedStatement]] = {}
        self._matrices = {item.name: extracted_matrices(item) for item in program.functions}

    def call(self, name: str, arguments: Sequence[object] = (), groups: Groups = 1) -> None:
        """Run a kernel for a number of work-groups, one after the other; arrays are updated in place."""
        function = self._find(name)
        grid = take_grid(function, groups)
        with np.errstate(all="ignore"):
            _run(self._launch(function, grid), take_arguments(function, arguments))

    def _launch(self, function: Function, grid: Grid) -> KernelLaunch:
        sizes = default_sizes(function)
        items = math.prod(sizes.work_group_size)
        if items > LARGEST_WORK_GROUP:
            values = {"name": function.name, "items": items, "limit": LARGEST_WORK_GROUP}
            raise LamellaError([rules.WORK_GROUP_LIMIT.at(function.span, hint=None, labels=(), **values)])
        order = None if self._options.seed is None else Random(self._options.seed)
        shapes = sizes.subgroup_size, sizes.work_group_size
        matrices = self._matrices[function.name]
        return KernelLaunch(function, self._options, grid, *shapes, order, matrices, self._prepared)


def _run(launch: KernelLaunch, arguments: dict[str, RunValue]) -> None:
    """Run all work-groups; the first fault ends the run."""
    try:
        for number in _order(launch):
            launch.count()
            run_work_group(launch, number, arguments)
    except Fault as fault:
        raise LamellaError(list(stop(fault, launch.function.span).findings)) from None
    except Found as stopped:
        raise LamellaError(list(stopped.findings)) from None


def _order(launch: KernelLaunch) -> Sequence[int]:
    """Work-groups have no order; a seed mixes them."""
    numbers = range(launch.groups)
    if launch.order is None or launch.groups > launch.options.limits.max_steps:
        return numbers
    return launch.order.sample(numbers, launch.groups)


def compile_program(
    program: Program,
    *,
    limits: Limits = DEFAULT,
    check_bounds: bool = False,
    seed: int | None = None,
    trace: Trace | None = None,
) -> InterpretedKernels:
    """Make the kernels of a program callable; a program with errors raises them.

    Every access is tested, so none leaves its array; `check_bounds` also tests views where they are made. A `seed`
    mixes what has no order: work-groups, work-items between barriers, the tuples of a foreach. `trace` is called
    with each executed statement.
    """
    found = errors(check(program))
    if found:
        raise LamellaError(found)
    return InterpretedKernels(program, InterpreterOptions(limits, check_bounds, seed, trace))


__all__ = ["Arrays", "ExecutedStatement", "InterpretedKernels", "Trace", "compile_program"]
