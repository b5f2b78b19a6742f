"""Files of NAC 1.8 as bytes, which only other compilers write."""

from __future__ import annotations

from dataclasses import replace

from lamella.base.limits import DEFAULT
from lamella.lang.nac import File, write
from lamella.lang.nac.layout import MAGIC
from lamella.lang.nac.nodes import V1_6
from lamella.lang.nac.parse import ContainerReading, read_header
from tests.support.lang.nac.containers import container


def newer_bytes(file: File) -> bytes:
    """A file with a training graph as bytes of version 1.8; its operations are those of 1.6."""
    header = replace(file.header, version=V1_6)
    known = {item.id for item in file.operations}
    assert all(
        item.operation < 20 or item.operation in known for item in (*file.instructions, *file.training)
    )
    plain = write(replace(file, header=header, training=()))
    code = write(replace(file, header=header, instructions=file.training, training=(), inputs=()))
    bits = plain[len(MAGIC) + 1] | 0x40
    counts = (file.header.inputs, file.header.outputs, file.header.d_model)
    return container({**_sections(plain), "TRNG": _sections(code)["OPS "]}, "1.8", bits=bits, counts=counts)


def _sections(data: bytes) -> dict[str, bytes]:
    """The contents of the sections of a file, without their tags."""
    table = read_header(ContainerReading(memoryview(data), "", DEFAULT))
    assert table is not None
    return {tag: data[start + 4 : end] for tag, (start, end) in table.places.items()}
