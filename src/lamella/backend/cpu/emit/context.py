"""Where code is being emitted: the text so far, the values by name, which lanes run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

from lamella.backend.cpu.emit.text import IrWriter
from lamella.backend.cpu.emit.values import RunValue, ScalarValue, llvm
from lamella.base.records import dataclass
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Statement

Walk: TypeAlias = "Callable[[EmitContext, Sequence[Statement]], tuple[RunValue, ...]]"
"""Emits statements and gives what they yield."""


class TileStream(Protocol):
    """The protocol of what emits tiles that come by TMA, and their products."""

    def take(self, statement: Statement) -> bool:
        """Whether it emits a statement itself; whatever it is, sums that the statement uses are ready then."""


@dataclass(slots=True)
class EmitContext:
    """The state of emission inside one kernel.

    In a collective region there is one lane and no mask. In an SPMD region values have `lanes` lanes; where control
    has diverged, `mask` (an LLVM operand of type <lanes x i1>) says which of them run, and at least one does.
    """

    out: IrWriter
    target: Target
    walk: Walk
    varying: frozenset[str] = frozenset()
    """The names of values that may differ between the lanes of a subgroup."""
    collective: bool = True
    """Whether the work-group acts as one; not inside `parallel`, where a subgroup may have one lane too."""
    lanes: int = 1
    """Lanes of a subgroup in an SPMD region, else 1."""
    subgroups: int = 1
    mask: str | None = None
    values: dict[str, RunValue] = field(default_factory=dict)
    group_id: str = "0"
    group_count: str = "1"
    scratch: str = "null"
    """The pointer to the local memory of the work-group."""
    subgroup_id: str = "0"
    """An i32 operand."""
    lane: str = "0"
    """Where each work-item is a thread of its own, its number in the subgroup: an i32 operand."""
    threads: bool = False
    """Whether each work-item is a thread of its own."""
    members: str = "-1"
    """There, the member mask of its subgroup in the warp: an i32 operand, a bit for each thread."""
    fragments: bool = False
    """There, whether matrices are fragments of the tensor cores."""
    early: bool = False
    """Whether the kernel may start before its predecessor has ended (programmatic dependent launch), on a GPU."""
    settles: bool = False
    """There, whether it waits itself before it lets its dependents start."""
    waits: frozenset[str] | None = None
    """There, while it has not waited for its predecessor: the arrays that it may read all the same."""
    pairs: dict[str, str] = field(default_factory=dict)
    """There, loads of reals of 8 bits that are neighbours: the name of the second by that of the first."""
    joined: dict[str, tuple[str, int]] = field(default_factory=dict)
    """There, what holds such a pair, an i16 operand, and which half of it has the name."""
    widened: dict[tuple[str, str], str] = field(default_factory=dict)
    """There, the halves of a pair, by its operand and the block in which they are made."""
    subgroup_size: int = 1
    items: int = 1
    """Work-items of the work-group."""
    stream: TileStream | None = None
    """There, what takes tiles and products from the walk over statements."""
    shown: str = ""
    """The line of the source that was shown last."""

    def scalar(self, name: str) -> ScalarValue:
        """The scalar value with a name."""
        found = self.values[name]
        if not isinstance(found, ScalarValue):
            raise TypeError(f"%{name} is no scalar")
        return found

    def kind(self, element: str, value: ScalarValue | None = None) -> str:
        """The LLVM type of a part, for one lane or for as many as a value has."""
        return llvm(element, 1 if value is None else value.count)


Emitters: TypeAlias = dict[type, "Callable[..., RunValue | None]"]
"""What emits an instruction, by its class: of a context and the instruction."""
