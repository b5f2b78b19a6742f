"""What a run holds: the launch, its work-groups, and the workers that execute statements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from random import Random
from typing import TypeAlias

from lamella.backend.arguments import dtype_of
from lamella.backend.interpreter.arithmetic import Number
from lamella.backend.interpreter.memory import GroupReference, MemrefReference
from lamella.backend.named import Grid
from lamella.base.limits import Limits
from lamella.base.records import dataclass
from lamella.lang.tensor.nodes import Coopmatrix, Function, Statement, Value
from lamella.lang.tensor.rules import running as rules
from lamella.ops.fault import Fault

RunValue: TypeAlias = Number | MemrefReference | GroupReference
REFERENCES = (MemrefReference, GroupReference)


@dataclass(frozen=True, slots=True)
class ExecutedStatement:
    """One executed statement, as a trace sees it; `item` is None where the work-group acts as one."""

    kernel: str
    group: int
    item: int | None
    statement: Statement
    results: tuple[RunValue, ...]


Trace: TypeAlias = Callable[[ExecutedStatement], None]


@dataclass(frozen=True, slots=True)
class InterpreterOptions:
    """How kernels are run: the limits, bounds checks of views, a seed that mixes what has no order, a trace."""

    limits: Limits
    check_bounds: bool = False
    seed: int | None = None
    trace: Trace | None = None


@dataclass(slots=True)
class KernelLaunch:
    """One call of a kernel."""

    function: Function
    options: InterpreterOptions
    grid: Grid
    subgroup_size: int
    work_group_size: tuple[int, int]
    order: Random | None
    matrices: Mapping[int, Coopmatrix]
    """The type of the matrix that each `cooperative_matrix_extract` takes a component of, by the id of the node."""
    prepared: dict[int, list[PreparedStatement]]
    """The statements of each region that has been executed, ready to be executed again, by the id of the region."""
    steps: int = 0

    @property
    def groups(self) -> int:
        """Work-groups of the launch."""
        return self.grid.total

    @property
    def items(self) -> int:
        """Work-items of a work-group."""
        return self.work_group_size[0] * self.work_group_size[1]

    def count(self, steps: int = 1) -> None:
        """Count steps against the limit."""
        self.steps += steps
        limit = self.options.limits.max_steps
        if self.steps > limit:
            raise Fault(rules.TOO_MANY_STEPS, limit=limit)


@dataclass(slots=True)
class WorkGroup:
    """One instance of the kernel, with the local memory that it holds."""

    launch: KernelLaunch
    number: int
    local_bytes: int = 0

    def allocate(self, count: int) -> None:
        """Count bytes of local memory against the limit."""
        self.local_bytes += count
        limit = self.launch.options.limits.max_total_bytes
        if self.local_bytes > limit:
            raise Fault(rules.TOO_MUCH_LOCAL, bytes=self.local_bytes, limit=limit)

    def refuse_large(self, shape: tuple[int, ...], element: str, copies: int = 1) -> None:
        """Refuse to hold values, in so many copies, that pass the limit."""
        size = math.prod(shape) * dtype_of(element).itemsize * copies
        limit = self.launch.options.limits.max_total_bytes
        if size > limit:
            shown = "x".join(map(str, shape))
            raise Fault(rules.TOO_LARGE_VALUE, shape=shown, element=element, bytes=size, limit=limit)

    def refuse_matrix(self, kind: Coopmatrix) -> None:
        """Refuse cooperative matrices that all work-items together cannot hold."""
        self.refuse_large((kind.rows, kind.columns), kind.element, self.launch.items)


@dataclass(slots=True)
class Worker:
    """One thread of control with its values: a work-item, or the work-group acting as one."""

    group: WorkGroup
    values: dict[str, RunValue]
    item: int | None = None
    trips: list[int] = field(default_factory=list)
    """Which trip of each loop around the statement at hand is being executed."""

    @property
    def place(self) -> str:
        """How findings name the worker."""
        item = "" if self.item is None else f", work-item {self.item}"
        return f" (work-group {self.group.number}{item})"

    @property
    def lane(self) -> int:
        """The number of a work-item in its subgroup."""
        return (self.item or 0) % self.group.launch.subgroup_size

    @property
    def subgroup(self) -> int:
        """The number of a work-item's subgroup."""
        return (self.item or 0) // self.group.launch.subgroup_size

    def number(self, value: Value) -> Number:
        """A scalar or cooperative matrix."""
        found = self.values[value.name]
        if isinstance(found, REFERENCES):
            raise TypeError(f"%{value.name} is no number")
        return found

    def integer(self, value: Value) -> int:
        """An integer as Python has it."""
        return int(self.number(value))

    def reference(self, value: Value) -> MemrefReference:
        """A memref, under the name that the program gives it here."""
        found = self.values[value.name]
        if not isinstance(found, MemrefReference):
            raise TypeError(f"%{value.name} is no memref")
        return found


Step: TypeAlias = Callable[[Worker], RunValue | None]
"""An instruction ready to be executed; gives its result, where it has one."""
PreparedStatement: TypeAlias = tuple[Statement, Step | None, str | None]
"""A statement, what executes it where that needs no partner, and the name of its result."""
