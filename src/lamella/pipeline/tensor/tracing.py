"""Executed statements as lines: where, what, and the values that came of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lamella.backend.interpreter import Step
from lamella.backend.interpreter.memory import Reference, References
from lamella.backend.interpreter.state import RunValue
from lamella.lang.tensor.check.roles import word_of
from lamella.lang.tensor.nodes import For, Foreach, If, Parallel, Statement
from lamella.lang.tensor.write import write_instruction

MOST_LINES = 10_000
"""A trace that is longer is not read."""
MOST_ELEMENTS = 8


class Tracer:
    """Writes a line for each executed statement, and says so where it writes no more."""

    def __init__(self, write: Callable[[str], None], most: int = MOST_LINES) -> None:
        self._write = write
        self._left = most
        self._most = most

    def __call__(self, step: Step) -> None:
        """Write the line of a statement."""
        if self._left > 0:
            self._write(trace_line(step))
        elif self._left == 0:
            self._write(f"the trace ends after {self._most} statements, the run goes on")
        self._left -= 1


def trace_line(step: Step) -> str:
    """`line 12 of @kernel, work-group 0, work-item 3: %r = arith.add %a, %b : f32 ; 3.5`."""
    item = "" if step.item is None else f", work-item {step.item}"
    values = ", ".join(map(_value, step.results))
    shown = f" ; {values}" if values else ""
    place = f"line {step.statement.span.line} of @{step.kernel}, work-group {step.group}{item}"
    return f"{place}: {_statement(step.statement)}{shown}"


def _statement(statement: Statement) -> str:
    """A statement on one line; of one with regions, its word."""
    results = ",".join(f"%{value.name}" for value in statement.results)
    head = f"{results} = " if results else ""
    instruction = statement.instruction
    if isinstance(instruction, For | Foreach | If | Parallel):
        return f"{head}{word_of(instruction)}"
    return head + write_instruction(instruction)


def _value(value: RunValue) -> str:
    if isinstance(value, References):
        return f"group of {len(value.items)}"
    if isinstance(value, Reference):
        shape, stride = ("x".join(map(str, item)) or "1" for item in (value.shape, value.stride))
        return f"memref {shape}, strides {stride}, from element {value.offset}"
    if not isinstance(value, np.ndarray) or not value.ndim:
        return _number(value)
    first = " ".join(_number(item) for item in value.flatten(order="F")[:MOST_ELEMENTS])
    more = " …" if value.size > MOST_ELEMENTS else ""
    return f"matrix {'x'.join(map(str, value.shape))} [{first}{more}]"


def _number(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)
