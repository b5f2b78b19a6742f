"""A file as bytes of version 1.6: the sections in the order of the public compiler, then the header before them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nac.layout import CONTAINERS, INTERNAL, MAGIC, WRITTEN
from lamella.lang.nac.nodes import V1_6, Data, File
from lamella.lang.nac.rules import writing as rules
from lamella.lang.nac.write.image import Image
from lamella.lang.nac.write.instructions import write_instructions
from lamella.lang.nac.write.tables import (
    write_constants,
    write_count,
    write_operations,
    write_schedule,
    write_signatures,
)
from lamella.lang.nac.write.weights import write_data

_CONTAINER = CONTAINERS[V1_6]


def to_pieces(file: File) -> tuple[tuple[Data, ...], list[Diagnostic]]:
    """The bytes of a file, large blocks as they lie in memory, and what they cannot say."""
    image = Image()
    _check_version(image, file)
    image.block(bytes(_CONTAINER.size))
    offsets = {tag: _write_section(image, file, tag) for tag in WRITTEN}
    head, *rest = image.pieces()
    header = _header(image, file, offsets)
    return (header + bytes(head[_CONTAINER.size :]), *rest), image.findings


def _check_version(image: Image, file: File) -> None:
    if file.header.version != V1_6:
        image.report(rules.VERSION, file.header.span, version=file.header.version)
    for section, records in (("TRNG", file.training), ("ARRS", file.arrays)):
        if records:
            image.report(rules.NEWER_SECTION, records[0].span, section=section)


def _header(image: Image, file: File, offsets: Mapping[str, int]) -> bytes:
    """The header, written when it is known where the sections lie."""
    header, head = file.header, Image()
    head.block(MAGIC + bytes([_CONTAINER.byte, header.method | INTERNAL * header.internal]))
    head.number("H", header.inputs, "the number of inputs", header.span)
    head.number("H", header.outputs, "the number of outputs", header.span)
    head.number("B", 0, "the reserved byte", header.span)
    head.number("H", header.d_model, "d_model", header.span)
    for tag in _CONTAINER.slots:
        head.block(struct.pack("<Q", offsets[tag]))
    image.findings += head.findings
    return b"".join(head.pieces()).ljust(_CONTAINER.size, b"\0")


def _write_section(image: Image, file: File, tag: str) -> int:
    """Write a section and give its offset; PROC and RSRC are left out where they are empty."""
    if (tag == "PROC" and not len(file.manifest)) or (tag == "RSRC" and not file.resources):
        return 0
    start = image.begin(tag)
    _WRITERS[tag](image, file)
    return start


def _write_constants(image: Image, file: File) -> None:
    write_count(image, file.constants)
    write_constants(image, file.constants)


def _write_manifest(image: Image, file: File) -> None:
    image.number("I", len(file.manifest), "the length of the manifest", file.span)
    image.block(file.manifest)


def _write_orchestrator(image: Image, file: File) -> None:
    plan = file.orchestrator
    image.number("I", len(plan.bytecode), "the length of the bytecode", plan.span)
    write_count(image, plan.constants)
    image.block(plan.bytecode)
    write_constants(image, plan.constants)


def _write_resources(image: Image, file: File) -> None:
    write_count(image, file.resources)
    for item in file.resources:
        image.text("H", item.name, f"the name of resource '{item.name[:80]}'", item.span)
        image.number("I", len(item.data), f"the length of resource '{item.name[:80]}'", item.span)
        image.block(item.data)


_WRITERS: Mapping[str, Callable[[Image, File], None]] = MappingProxyType(
    {
        "MMAP": lambda image, file: write_schedule(image, file.schedule),
        "OPS ": write_instructions,
        "CMAP": lambda image, file: write_operations(image, file.operations),
        "CNST": _write_constants,
        "PERM": lambda image, file: write_signatures(image, file.signatures),
        "DATA": write_data,
        "PROC": _write_manifest,
        "RSRC": _write_resources,
        "ORCH": _write_orchestrator,
    }
)
