"""Passes: each takes a program in the tensor language and gives another one that does the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lamella.base.errors import InputError
from lamella.kernels.passes.choose_sizes import write_sizes
from lamella.kernels.passes.fold_constants import fold_constants
from lamella.kernels.passes.insert_barriers import insert_barriers
from lamella.kernels.passes.lower_extensions import lower_extensions
from lamella.kernels.passes.lower_foreach import lower_foreach
from lamella.kernels.passes.lower_linalg import lower_linalg
from lamella.kernels.passes.place_locals import place_locals
from lamella.kernels.passes.stop_lifetimes import stop_lifetimes
from lamella.kernels.passes.unroll import unroll
from lamella.kernels.rewrite import change_functions, tell_apart
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Program

__all__ = ["PASSES", "Pass", "lower"]


@dataclass(frozen=True, slots=True)
class Pass:
    """A step on the way to machine code."""

    name: str
    run: Callable[[Program, Target], Program]


def _choose_sizes(program: Program, target: Target) -> Program:
    return change_functions(program, lambda function: write_sizes(function, target))


# Barriers come last: local memory that two allocas share one after the other must be left before it is taken again.
PASSES: tuple[Pass, ...] = (
    Pass("choose-sizes", _choose_sizes),
    Pass("lower-extensions", lower_extensions),
    Pass("unroll", unroll),
    Pass("lower-linalg", lower_linalg),
    Pass("lower-foreach", lower_foreach),
    Pass("fold-constants", fold_constants),
    Pass("stop-lifetimes", stop_lifetimes),
    Pass("place-locals", place_locals),
    Pass("insert-barriers", insert_barriers),
)
"""All passes in their order."""


def lower(program: Program, target: Target, after: str | None = None) -> Program:
    """What the passes make of a program without errors; all of them, or up to and with the one that is named."""
    names = [item.name for item in PASSES]
    if after is not None and after not in names:
        raise InputError(f"there is no pass '{after}'", hint=f"passes are: {', '.join(names)}")
    found = change_functions(program, tell_apart)
    for item in PASSES:
        found = item.run(found, target)
        if item.name == after:
            break
    return found
