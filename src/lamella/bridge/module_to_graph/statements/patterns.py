"""Residual patterns of blocks, written out as the statements that they mean."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from lamella.lang.module.instantiate.evaluate import Problem, evaluate_int
from lamella.lang.module.instantiate.nodes import Instance
from lamella.lang.module.nodes import (
    Dim,
    Flow,
    Forward,
    Integer,
    Name,
    Operation,
    Port,
    Star,
    Sublayers,
    Target,
    TensorType,
    Unchanged,
)
from lamella.lang.module.rules import annotated

SEQUENTIAL, PARALLEL = "sequential_residual", "parallel_residual"


def expand_pattern(
    pattern: Sublayers, forward: Forward | None, type: Callable[[], TensorType | None]
) -> Forward:
    """The forward section of a block with a pattern: input `x` of a type that is asked for, output `out`.

    `sequential_residual`: x = x + last(… first(x)) for each tuple in turn; `parallel_residual`: x + the sum of all
    chains of x.
    """
    if pattern.pattern not in (SEQUENTIAL, PARALLEL):
        repair = f"write {SEQUENTIAL} or {PARALLEL}, or a forward section"
        raise Problem(annotated.RESIDUAL.at(pattern.span, name=pattern.pattern, repair=repair))
    inputs = (
        (Port("x", type(), span=pattern.span),)
        if forward is None or forward.inputs is None
        else forward.inputs
    )
    outputs = (
        (Port("out", None, span=pattern.span),)
        if forward is None or forward.outputs is None
        else forward.outputs
    )
    return Forward(inputs, outputs, tuple(_statements(pattern)), span=pattern.span)


def residual_type(types: Iterable[tuple[TensorType, Instance]], taken: Collection[str]) -> TensorType | None:
    """The type of the stream of a block, by what its sublayers say of their first inputs, each with its values.

    All of them take the same shape. The first that names every dimension is taken, else the first; a dimension that
    the inputs bind keeps its name unless the block has another constant of that name.
    """
    found = [item for item in (_in_block(type, inner, taken) for type, inner in types) if item is not None]
    whole = [item for item in found if not any(isinstance(dim, Star) for dim in item.dims)]
    return next(iter(whole or found), None)


def _in_block(type: TensorType, inner: Instance, taken: Collection[str]) -> TensorType | None:
    """A type of a sublayer with its constants as numbers; None where it counts with dimensions of the inputs."""
    dims: list[Dim] = []
    for item in type.dims:
        if isinstance(item, Star | Unchanged):
            dims.append(Star(item.span))
        elif isinstance(item, Name) and item.id not in inner.values:
            dims.append(Name(f"{item.id}_in" if item.id in taken else item.id, item.span))
        else:
            try:
                dims.append(Integer(evaluate_int(item, inner.values, "a dimension"), item.span))
            except Problem:
                return None
    return replace(type, dims=tuple(dims), optional=False)


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
