"""`lamella.json`: what NAC has no field for, in one resource of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType

from lamella.base.diagnostic import printable
from lamella.base.origin import Origin
from lamella.bridge.graph_to_nac.code.sizes import own_symbols
from lamella.graph.nodes import Tensor
from lamella.lang.nac.nodes import Resource
from lamella.lang.nac.notes import FORMAT, notes_resource

_INSTRUCTION = re.compile(r" instruction \d+ \S+$")
"""An operation that was read from a file: in the next file it has another place."""


def write_notes(
    graph: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[tuple[str, Tensor]],
    constants: Mapping[str, Sequence[int]],
    origins: Mapping[int, Origin],
    states: Sequence[tuple[Tensor, int | None]] = (),
    branches: Mapping[int, int] = MappingProxyType({}),
) -> Resource:
    """The resource: names and types of inputs and outputs, ranges of extents, stored constants, origins, states.

    A state has the parameter that it begins with, or none for zeros; its new value is an output behind those of the
    caller, in the order of states.
    """
    extents = {name: list(ends) for item in inputs for name, ends in own_symbols(item).items()}
    texts = {str(index): _told(origin) for index, origin in origins.items()}
    content = {
        "format": FORMAT,
        "graph": graph,
        "inputs": [_described(item.name, item) for item in inputs],
        "outputs": [_described(name, item) for name, item in outputs],
        "extents": extents,
        "constants": {name: list(places) for name, places in constants.items()},
        "origins": texts,
        "branches": {str(index): count for index, count in branches.items()},
        "states": [
            {"id": number, **_described(item.name, item), "initial": initial, "update": len(outputs) + number}
            for number, (item, initial) in enumerate(states)
        ],
    }
    kept = {key: value for key, value in content.items() if value or key in ("format", "graph")}
    return notes_resource(kept)


def _described(name: str, tensor: Tensor) -> dict[str, object]:
    shape = [extent if isinstance(extent, int) else str(extent) for extent in tensor.shape]
    return {"name": name, "dtype": tensor.element.name, "shape": shape}


def _told(origin: Origin) -> str:
    """The chain of an origin; files by their names alone, so that the bytes do not tell where somebody works."""
    return " <- ".join(_link(item) for item in origin.chain() if not _INSTRUCTION.search(item.what))


def _link(origin: Origin) -> str:
    if origin.span is None:
        return printable(origin.what)
    return f"{printable(PurePath(origin.span.source.name).name)}:{origin.span.line} {printable(origin.what)}"
