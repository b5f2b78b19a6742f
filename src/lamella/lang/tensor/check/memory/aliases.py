"""Collective instructions whose result shares memory with an operand."""

from __future__ import annotations

from itertools import product
from math import prod

from lamella.lang.tensor.check.memory.bounds import Place
from lamella.lang.tensor.check.memory.forms.affine import ZERO
from lamella.lang.tensor.check.memory.known import View
from lamella.lang.tensor.check.memory.state import State
from lamella.lang.tensor.nodes import Blas
from lamella.lang.tensor.rules import memory as rules

IN_PLACE = ("axpby", "cumsum", "hadamard")
"""Instructions whose result may be one of their operands, element by element."""
MOST_ELEMENTS = 4096


def check_aliases(state: State, place: Place, item: Blas) -> None:
    """A collective instruction may not write to what it still has to read."""
    output = state.view(item.operands[-1])
    if output is None:
        return
    for operand in item.operands[1:-2]:
        view = state.view(operand)
        if view is None or view.root != output.root or _is_in_place(item, view, output):
            continue
        if _overlap(view, output):
            words = {"instruction": item.function, "output": output.name, "input": view.name}
            state.report(rules.ALIAS.at(place.span, hint=None, labels=(), **words))
            return


def _is_in_place(item: Blas, view: View, output: View) -> bool:
    same = (view.address, view.sizes, view.strides) == (output.address, output.sizes, output.strides)
    moved = any(item.transposes) and len(view.sizes) > 1
    return same and item.function in IN_PLACE and not moved


def _overlap(view: View, output: View) -> bool:
    """Whether two views of one memory have an element in common for certain, if they have any elements."""
    if view.address is None or output.address is None:
        return False
    left, right = dict(view.address), dict(output.address)
    moved = {key: left.get(key, ZERO) - right.get(key, ZERO) for key in {*left, *right}}
    if all(form == ZERO for form in moved.values()):
        return True
    distance = moved.pop(-1, ZERO)
    if distance.terms or any(form != ZERO for form in moved.values()):
        return False
    here, there = _elements(view, distance.constant), _elements(output, 0)
    return here is not None and there is not None and not here.isdisjoint(there)


def _elements(view: View, start: int) -> frozenset[int] | None:
    """The addresses of all elements; None where that are too many or not known."""
    sizes = [size.constant for size in view.sizes if not size.terms]
    strides = [step.constant for step in view.strides if step is not None and not step.terms]
    if len(sizes) < len(view.sizes) or len(strides) < len(view.strides) or prod(sizes) > MOST_ELEMENTS:
        return None
    steps = product(
        *(range(0, size * step, step) if step else (0,) for size, step in zip(sizes, strides, strict=True))
    )
    return frozenset(start + sum(step) for step in steps)
