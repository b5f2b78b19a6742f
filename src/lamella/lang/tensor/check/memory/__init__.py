"""What is proved of a program's memory: bounds, races, aliases, local memory that is written before it is read.

A position is an affine form over loop trips, work-items and sizes, bounded by the loops and conditions around it. What
is proved is silent, what has a counter-example is an error or a warning, what is not known is a note.
"""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic
from lamella.lang.tensor.check.memory.state import Sizes
from lamella.lang.tensor.check.memory.walk import Walk
from lamella.lang.tensor.extensions import lower_extensions
from lamella.lang.tensor.nodes import Function

__all__ = ["check_memory"]


def check_memory(function: Function) -> list[Diagnostic]:
    """What is wrong or doubtful with the memory of a function that has no errors."""
    function = lower_extensions(function)
    return Walk(function, _sizes(function)).run(function.body)


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
