"""ONNX files for the command `show`: what is in one, without another package and without reading numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from lamella.base.diagnostic import printable
from lamella.base.gc import gc_paused
from lamella.base.limits import OutOfRange, product
from lamella.base.paths import shown
from lamella.base.shape import bytes_for
from lamella.bridge.onnx.nodes import (
    DataType,
    Graph,
    Model,
    Node,
    OtherType,
    TensorProto,
    ValueInfo,
    subgraphs,
)
from lamella.bridge.onnx.read import read_model
from lamella.pipeline.languages import Description
from lamella.pipeline.options import Options

LISTED = 40
"""Inputs, outputs or operators that are listed; of more, the number of the others is given."""


def describe(name: str, options: Options) -> Description:
    """What is in a file, in one screen."""
    path = Path(name)
    with gc_paused():
        model = read_model(path, options.limits)
    lines = [f"{printable(shown(path))}: {_title(model)}", "", *_lines(model)]
    return Description("\n".join(lines), {"file": name, "kind": "onnx", **_facts(model)})


def _title(model: Model) -> str:
    versions = ", ".join(f"{printable(item.domain) or 'ai.onnx'} {item.version}" for item in model.opsets)
    made = " ".join(printable(item) for item in (model.producer, model.producer_version) if item)
    return f"ONNX, opset {versions}" + (f", by {made}" if made else "")


def _lines(model: Model) -> Iterator[str]:
    graph = model.graph
    own = {item.name for item in graph.initializers}
    inputs = [item for item in graph.inputs if item.name not in own]
    yield f"graph {printable(graph.name) or 'without a name'}: {_count(graph.nodes)} nodes"
    yield from _ports("inputs", inputs)
    yield from _ports("outputs", graph.outputs)
    count, size = _weights(graph)
    yield f"weights: {len(graph.initializers)} tensors, {count:,} numbers, {_amount(size)}"
    external = sorted({_location(item) for item in graph.initializers if item.is_external})
    if external:
        yield f"  in {', '.join(printable(item) for item in external[:8])}"
    if model.functions:
        yield f"functions: {', '.join(printable(item.name) for item in model.functions[:LISTED])}"
    yield "operators:"
    found = _operators(graph)
    for word, number in found.most_common(LISTED):
        yield f"  {number:>6} {printable(word)}"
    if len(found) > LISTED:
        yield f"  and {len(found) - LISTED} others"


def _ports(title: str, ports: Sequence[ValueInfo]) -> Iterator[str]:
    yield f"{title}:"
    for item in ports[:LISTED]:
        yield f"  {printable(item.name)}: {printable(_type(item))}"
    if len(ports) > LISTED:
        yield f"  and {len(ports) - LISTED} others"


def _type(item: ValueInfo) -> str:
    kind = item.type
    if kind is None:
        return "of no type"
    if isinstance(kind, OtherType):
        return kind.kind
    words = {int(entry): entry.name.lower() for entry in DataType}
    element = words.get(kind.data_type, str(kind.data_type))
    if kind.shape is None:
        return element
    return f"{element}[{', '.join('?' if size is None else str(size) for size in kind.shape)}]"


def _all_nodes(graph: Graph) -> Iterator[Node]:
    waiting = [graph]
    while waiting:
        found = waiting.pop()
        for node in found.nodes:
            yield node
            waiting += [inner for _, inner in subgraphs(node)]


def _count(nodes: Sequence[Node]) -> str:
    return f"{len(nodes):,}"


def _operators(graph: Graph) -> Counter[str]:
    return Counter(
        f"{item.domain}.{item.op_type}" if item.domain else item.op_type for item in _all_nodes(graph)
    )


def _weights(graph: Graph) -> tuple[int, int]:
    """How many numbers the initializers hold, and in how many bytes."""
    count = size = 0
    for item in graph.initializers:
        try:
            number = product(item.dims)
            bits = item.element.bits if item.element is not None else 8
            count, size = count + number, size + bytes_for(number, bits)
        except OutOfRange:
            continue  # no tensor has this shape, which `check` says
    return count, size


def _location(tensor: TensorProto) -> str:
    return next((value for key, value in tensor.external if key == "location"), "")


def _amount(size: int) -> str:
    value, units = float(size), ("bytes", "KB", "MB", "GB")
    for unit in units:
        if value < 1000 or unit == units[-1]:
            return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return ""


def _facts(model: Model) -> dict[str, object]:
    graph = model.graph
    count, size = _weights(graph)
    return {
        "ir_version": model.ir_version,
        "producer": model.producer,
        "opsets": {item.domain or "ai.onnx": item.version for item in model.opsets},
        "inputs": {item.name: _type(item) for item in graph.inputs},
        "outputs": {item.name: _type(item) for item in graph.outputs},
        "nodes": len(graph.nodes),
        "operators": dict(_operators(graph)),
        "functions": [item.name for item in model.functions],
        "weights": {"tensors": len(graph.initializers), "numbers": count, "bytes": size},
    }
