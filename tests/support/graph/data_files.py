"""Tensor files, stores and folders of them from descriptions of a few lines."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lamella.base import dtype
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dim import symbol
from lamella.graph.data import (
    DatItem,
    Stored,
    decode_dat,
    read_safetensors,
    read_weights,
    write_dat,
    write_weights,
)
from lamella.graph.nodes import Graph, Tensor

ITEM = re.compile(r"(\w+) ([\w.]+): (\w+)\[(.*?)\](?: = (\S+))?")
FIELDS = {"version": 1, "length": 4, "rank": 4, "extents": 4, "bits": 4, "type": 4, "reserved": 4}
PLACES = {"version": 2, "length": 4, "rank": 8, "extents": 12, "bits": 44, "type": 48, "reserved": 52}


def described(text: str) -> list[tuple[str, str]]:
    """The lines of a description: the first word and the rest."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line]


def _plain(text: str) -> str:
    return "\n".join(f"{word} {rest}" for word, rest in described(text))


def tensor_file(text: str) -> bytes:
    """The bytes of a tensor file, written field by field."""
    image = bytearray(128)
    for word, rest in described(text):
        if word in FIELDS:
            values = [int(item) for item in rest.split()]
            raw = b"".join(value.to_bytes(FIELDS[word], "little") for value in values)
            image[PLACES[word] : PLACES[word] + len(raw)] = raw
        elif word == "magic":
            image[:2] = bytes.fromhex(rest)
        elif word == "items":
            image += bytes.fromhex(rest)
    kept = [int(rest) for word, rest in described(text) if word == "keep"]
    return bytes(image[: kept[0]] if kept else image)


def store_file(text: str) -> bytes:
    """The bytes of a store: the header as it is written, then zeros."""
    lines = dict(described(text))
    header = lines["header"].encode()
    return len(header).to_bytes(8, "little") + header + bytes(int(lines["bytes"]))


def _tensor(name: str, element: str, sizes: str) -> Tensor:
    found = dtype.find(element)
    assert found is not None
    shape = tuple(
        int(size) if size.strip().isdigit() else symbol(size.strip(), 9) for size in sizes.split(",")
    )
    return Tensor(name, found, shape)


def _stored(element: str, sizes: str, value: str | None) -> Stored | Array:
    shape = tuple(int(size) for size in sizes.split(","))
    if element.startswith("code"):
        return Stored(np.ones(shape, np.int8), DatItem.QUANTIZED_SIGNED, int(element[4:]))
    found = dtype.find(element)
    assert found is not None
    return np.full(shape, float(value or 1), numpy_dtype(found))


def graph_of(text: str) -> Graph:
    """The graph whose variables a description lists."""
    found = [match.groups() for match in ITEM.finditer(_plain(text)) if match[1] == "variable"]
    return Graph(
        "G", (), (), (), tuple(_tensor(name, element, sizes) for _, name, element, sizes, _ in found)
    )


def folder(text: str, path: Path) -> list[Diagnostic]:
    """What is found when the variables of a description are read from, or written to, its files."""
    graph = graph_of(text)
    for kind, name, element, sizes, value in (match.groups() for match in ITEM.finditer(_plain(text))):
        if kind == "file":
            write_dat(path / name, _stored(element, sizes, value))
    for word, rest in described(text):
        if word == "write":
            return _written(graph, path / rest)
    return list(read_weights(path, graph).findings)


def _written(graph: Graph, path: Path) -> list[Diagnostic]:
    arrays = {
        item.name: np.zeros([size for size in item.shape if isinstance(size, int)], numpy_dtype(item.element))
        for item in graph.variables
    }
    target = path if path.suffix == ".safetensors" else path.parent
    return findings(lambda: write_weights(target, graph, arrays))


def findings(action: Callable[[], object]) -> list[Diagnostic]:
    """What an action complains about."""
    try:
        action()
    except LamellaError as problem:
        return list(problem.findings)
    return []


def judge(text: str, path: Path) -> list[Diagnostic]:
    """What is wrong with a described file or folder."""
    path.mkdir(exist_ok=True)
    words = {word for word, _ in described(text)}
    if "magic" in words:
        return findings(lambda: decode_dat(tensor_file(text), "x.dat"))
    if "header" in words:
        file = path / "x.safetensors"
        file.write_bytes(store_file(text))
        return findings(lambda: read_safetensors(file))
    return folder(text, path)


def pack_bits(values: list[int], bits: int) -> bytes:
    """Items one behind the other, the most significant bit first, told in plain integers."""
    text = "".join(format(value & ((1 << bits) - 1), f"0{bits}b") for value in values)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[start : start + 8], 2) for start in range(0, len(text), 8))


def little_endian(values: list[int], size: int) -> bytes:
    """Items of whole bytes, told in plain integers."""
    return b"".join((value & ((1 << 8 * size) - 1)).to_bytes(size, "little") for value in values)


def header_of(shape: tuple[int, ...], bits: int, code: int, reserved: int = 0) -> bytes:
    """The header of a right file, field by field."""
    length = math.ceil(math.prod(shape) * bits / 8)
    extents = " ".join(map(str, shape)) or "0"
    lines = ["magic 4e ef", "version 1 0", f"length {length}", f"rank {len(shape)}"]
    lines += [f"extents {extents}", f"bits {bits}", f"type {code}", f"reserved {reserved}"]
    return tensor_file("\n".join(lines))


def store_header(**entries: object) -> bytes:
    """The header of a store from Python values, with its length."""
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text
