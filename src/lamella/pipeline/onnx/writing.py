"""Graphs into ONNX files: with the numbers of all weights, in the file or beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Found
from lamella.base.writer import remove_file, write_pieces
from lamella.bridge.graph_to_onnx import graph_to_onnx
from lamella.bridge.onnx.nodes import Buffer, TensorProto
from lamella.bridge.onnx.nodes import Model as OnnxModel
from lamella.bridge.onnx.write import model_message
from lamella.graph.model import Model as GraphModel
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.execution import with_numbers

LARGEST = (1 << 31) - (1 << 24)
"""Bytes of weights that stay in the file: a file of protocol buffers has less than 2 GiB."""
SMALL = 1 << 10
"""Bytes of a tensor that always stays in the file."""
PAGE = 1 << 12
"""Numbers beside the file begin at a multiple of this, so that they can be mapped."""
BESIDE = ".data"


@dataclass(frozen=True, slots=True)
class WrittenModel:
    """An ONNX model that a graph became."""

    model: OnnxModel
    findings: tuple[Diagnostic, ...] = ()

    @property
    def language(self) -> str:
        """The language that the model is written in."""
        return "onnx"

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """The model as it will be written."""
        graph = self.model.graph
        return Card("ONNX model", graph.name, (("nodes", f"{len(graph.nodes):,}"),))


def from_graph(model: GraphModel, path: Path, options: Options) -> WrittenModel:
    """The ONNX model of a graph; weights that it lacks are random, from the seed."""
    whole = with_numbers(model, options, all_or_none=False)
    try:
        return WrittenModel(graph_to_onnx(whole), whole.findings)
    except Found as problem:
        raise LamellaError(problem.findings) from None


def save(model: WrittenModel, path: Path, largest: int = LARGEST) -> None:
    """Write a model; where its weights are more than a file can hold, they go into one beside it."""
    beside = path.with_name(f"{path.name}{BESIDE}")
    graph = model.model.graph
    if sum(_size(item) for item in graph.initializers) <= largest:
        remove_file(beside)
        _write(path, model.model)
        return
    placed = list(_placed(graph.initializers, beside.name))
    pieces = _padded(item for item, kept in zip(graph.initializers, placed, strict=True) if kept.is_external)
    write_pieces(beside, pieces, through_links=False)
    _write(path, replace(model.model, graph=replace(graph, initializers=tuple(placed))))


def _write(path: Path, model: OnnxModel) -> None:
    write_pieces(path, model_message(model).parts())


def _size(tensor: TensorProto) -> int:
    return 0 if tensor.raw is None else memoryview(tensor.raw).nbytes


def _placed(tensors: tuple[TensorProto, ...], file: str) -> Iterator[TensorProto]:
    """The tensors with the places of their numbers instead of them, where they are not small."""
    offset = 0
    for item in tensors:
        size = _size(item)
        if size <= SMALL:
            yield item
            continue
        places = (("location", file), ("offset", str(offset)), ("length", str(size)))
        yield replace(item, raw=None, external=places, is_external=True)
        offset += size + -size % PAGE


def _padded(tensors: Iterator[TensorProto]) -> Iterator[Buffer]:
    for item in tensors:
        yield memoryview(item.raw or b"")
        yield bytes(-_size(item) % PAGE)
