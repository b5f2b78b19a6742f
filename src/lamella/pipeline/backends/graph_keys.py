"""Graphs whose compiled form is kept: what that depends on, and which of them it can stand for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields

from lamella.base.dim import Dim
from lamella.base.package import fingerprint
from lamella.graph.model import Model
from lamella.graph.rewrite import extents, members
from lamella.pipeline.options import Options, table

NOT_IN_CODE = frozenset({"as_json", "backend", "random", "seed", "threads", "weights"})
"""Options that change a run and not what is compiled."""


def digest_graph(model: Model, options: Options, machine: Sequence[str]) -> str:
    """What a compiled graph depends on: the graph with its operators, options, the machine, and this package.

    The numbers of its weights are no part of it.
    """
    found = hashlib.sha256()
    for part in _parts(model, options, machine):
        found.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return found.hexdigest()


def _parts(model: Model, options: Options, machine: Sequence[str]) -> Iterator[str]:
    yield from ("graph", fingerprint(""), *machine, model.library.dialect, repr(model.library.limits))
    # All that the graph holds: what it says of itself is for people.
    yield repr([getattr(model.graph, item.name) for item in fields(model.graph)])
    yield repr(model.hints)
    yield repr(sorted(model.streams.items()))
    for name, document in sorted(model.library.documents.items()):
        yield from (name, document.span.source.name, document.span.source.text)
    for operation in model.graph.operations():
        yield from () if operation.origin is None else operation.origin.words()
    for name, option in sorted(table().items()):
        if name not in NOT_IN_CODE and option.effects.get("compile"):
            yield f"{name}={getattr(options, name)!r}"


def is_watched(options: Options) -> bool:
    """Whether a run does what only a compiler and its graph can tell, what was measured for it among that."""
    return options.quantized or options.trace is not None or options.check_bounds or options.tune


def is_open(model: Model) -> bool:
    """Whether the graph leaves extents open that each call decides."""
    return any(isinstance(extent, Dim) for item in members(model.graph.inputs) for extent in extents(item))


def is_alike(model: Model, compiled: Model) -> bool:
    """Whether a graph takes and gives what it did before it was compiled."""
    left, right = model.graph, compiled.graph
    return (left.inputs, left.outputs, left.variables, left.updates, left.checks) == (
        right.inputs,
        right.outputs,
        right.variables,
        right.updates,
        right.checks,
    )
