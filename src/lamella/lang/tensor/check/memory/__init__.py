"""What is proved of a program's memory: bounds, races, aliases, local memory that is written before it is read.

A position is an affine form over loop trips, work-items and sizes, bounded by the loops and conditions around it. What
is proved is silent, what has a counter-example is an error or a warning, what is not known is a note.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.lang.tensor.check.memory.bounds import shape_pairs, show_shapes
from lamella.lang.tensor.check.memory.state import Launch, Sizes
from lamella.lang.tensor.check.memory.walk import Walk
from lamella.lang.tensor.extensions import lower_extensions
from lamella.lang.tensor.nodes import Function, Statement
from lamella.lang.tensor.rules import memory as rules
from lamella.lang.tensor.rules import running

__all__ = ["Launch", "Proof", "Sizes", "check_memory", "prove_launch", "shape_pairs", "show_shapes"]

_ACCESSES = (rules.LEAVES, rules.CAN_LEAVE, rules.UNPROVED)
ACCESSES = frozenset(rule.code for rule in (*_ACCESSES, running.SHAPES_DISAGREE, running.WRONG_EXPANSION))


def check_memory(function: Function) -> list[Diagnostic]:
    """What is wrong or doubtful with the memory of a function that has no errors."""
    function = lower_extensions(function)
    return Walk(function, _sizes(function)).run(function.body)


@dataclass(frozen=True, slots=True)
class Proof:
    """What is proved of the accesses of a launch."""

    wrong: tuple[Diagnostic, ...]
    """Accesses that leave their memory for certain."""
    doubts: tuple[Diagnostic, ...]
    """Accesses of which it is not known, in words."""
    open: tuple[Statement, ...]
    """The statements that are not proved to stay inside their memory."""
    opaque: bool
    """Whether something cannot be followed, so that only the interpreter can run it."""

    @property
    def is_complete(self) -> bool:
        """Whether no access leaves its memory, whatever the data are."""
        return not self.open and not self.opaque


def prove_launch(function: Function, sizes: Sizes, launch: Launch) -> Proof:
    """Prove the accesses of a function whose types have the sizes and strides of a launch; no integer is too large."""
    walk = Walk(function, sizes, launch)
    found = [item for item in walk.run(function.body) if item.code in ACCESSES]
    wrong = tuple(item for item in found if item.severity == ERROR)
    doubts = tuple(item for item in found if item.severity != ERROR)
    return Proof(wrong, doubts, tuple(walk.state.open.values()), walk.state.opaque)


def _sizes(function: Function) -> Sizes:
    attributes = function.attributes
    if attributes is None:
        return Sizes(least=2)
    subgroup, whole = attributes.find("subgroup_size"), attributes.find("work_group_size")
    size = subgroup if isinstance(subgroup, int) else None
    items = [item for item in whole if isinstance(item, int)] if isinstance(whole, tuple) else []
    if len(items) != 2:
        return Sizes(size, None, 1 if whole is not None else 2)
    return Sizes(size, None if size is None else items[0] // size * items[1])
