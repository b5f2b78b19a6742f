"""What comes with a model: PROC, ORCH and RSRC, and ARRS of newer files."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.lang.nac.nodes import Array, Constant, Resource
from lamella.lang.nac.parse.reading import Section
from lamella.lang.nac.parse.tables import read_constant


def read_manifest(section: Section) -> Iterator[memoryview]:
    """The one block of PROC."""
    yield section.reader.view(section.reader.u32(), "the manifest")


def read_plan(section: Section) -> Iterator[memoryview | Constant]:
    """The bytecode of ORCH, then its constants."""
    reader = section.reader
    size, start, count = reader.u32(), reader.position, reader.u32()
    yield reader.view(size, "the bytecode")
    reader.count(count, 5, "constants")
    section.reading.keep_limit("max_statements", count, "the number of constants in ORCH", start)
    for _ in range(count):
        constant = read_constant(section)
        if constant is not None:
            yield constant


def read_resources(section: Section) -> Iterator[Resource]:
    """The records of RSRC."""
    reader = section.reader
    for number in section.counted(6, "resources"):
        start = reader.position
        name = section.text(reader.u16(), f"the name of resource {number}")
        data = reader.view(reader.u32(), f"resource {number}")
        yield Resource(name, data, section.span(start))


def read_arrays(section: Section) -> Iterator[Array]:
    """The records of ARRS."""
    reader = section.reader
    for number in section.counted(12, "arrays"):
        start = reader.position
        name = section.text(reader.u16(), f"the name of array {number}")
        dtype, rank = reader.u8(), reader.u8()
        section.reading.keep_limit("max_rank", rank, f"the rank of array {number}", start)
        shape = reader.integers("I", rank, f"the shape of array {number}")
        data = reader.view(reader.u64(), f"array {number}")
        yield Array(name, dtype, shape, data, section.span(start))
