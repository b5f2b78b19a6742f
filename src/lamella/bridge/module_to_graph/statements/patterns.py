"""Residual patterns of blocks, written out as the statements that they mean."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.nodes import Flow, Forward, Name, Operation, Port, Sublayers, Target
from lamella.lang.module.rules import annotated

SEQUENTIAL, PARALLEL = "sequential_residual", "parallel_residual"


def expand_pattern(pattern: Sublayers, forward: Forward | None) -> Forward:
    """The forward section of a block with a pattern: input `x`, output `out`.

    `sequential_residual`: x = x + last(… first(x)) for each tuple in turn; `parallel_residual`: x + the sum of all
    chains of x.
    """
    if pattern.pattern not in (SEQUENTIAL, PARALLEL):
        repair = f"write {SEQUENTIAL} or {PARALLEL}, or a forward section"
        raise Problem(annotated.RESIDUAL.at(pattern.span, name=pattern.pattern, repair=repair))
    inputs = (
        (Port("x", None, span=pattern.span),) if forward is None or forward.inputs is None else forward.inputs
    )
    outputs = (
        (Port("out", None, span=pattern.span),)
        if forward is None or forward.outputs is None
        else forward.outputs
    )
    return Forward(inputs, outputs, tuple(_statements(pattern)), span=pattern.span)


def _statements(pattern: Sublayers) -> Iterator[Flow]:
    last, stream = len(pattern.sublayers) - 1, "x"
    for number, chain in enumerate(pattern.sublayers):
        entry = stream if pattern.pattern == SEQUENTIAL else "x"
        yield _flow(pattern, (entry,), chain, f"branch{number}")
        result = "out" if number == last else f"x{number + 1}"
        yield _flow(pattern, (stream, f"branch{number}"), ("add",), result)
        stream = result


def _flow(pattern: Sublayers, sources: tuple[str, ...], steps: tuple[str, ...], target: str) -> Flow:
    span = pattern.span
    operations = tuple(Operation(Name(step, span), span=span) for step in steps)
    return Flow(
        tuple(Name(item, span) for item in sources), operations, (Target(target, span=span),), span=span
    )
