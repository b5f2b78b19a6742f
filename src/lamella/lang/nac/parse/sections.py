"""The sections of a file one after another, those first that others need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from lamella.base.errors import InputError
from lamella.base.reader import Reader
from lamella.lang.nac.layout import TABLE
from lamella.lang.nac.nodes import Constant, File, Input, Instruction, Orchestrator, Parameter, Tensor
from lamella.lang.nac.parse.attachments import read_arrays, read_manifest, read_plan, read_resources
from lamella.lang.nac.parse.header import Table
from lamella.lang.nac.parse.instructions import read_instructions
from lamella.lang.nac.parse.reading import Reading, Section, collect
from lamella.lang.nac.parse.tables import read_constants, read_operations, read_schedule, read_signatures
from lamella.lang.nac.parse.weights import read_data
from lamella.lang.nac.rules import container as rules

T = TypeVar("T")
_EXTERNAL = "the header says that the weights stand elsewhere"


def read_sections(reading: Reading, table: Table) -> File:
    """The file behind a header."""
    _check_presence(reading, table)
    parts = _Parts(reading, table)
    signatures = parts.read("PERM", read_signatures)
    codes = {item.id: item.codes for item in signatures}

    def instructions(section: Section) -> Iterator[Instruction]:
        return read_instructions(section, codes, table.header.outputs)

    data = parts.read("DATA", lambda section: read_data(section, table.header.internal))
    return File(
        header=table.header,
        operations=parts.read("CMAP", read_operations),
        signatures=signatures,
        constants=parts.read("CNST", read_constants),
        instructions=parts.read("OPS ", instructions),
        schedule=parts.read("MMAP", read_schedule),
        parameters=tuple(item for item in data if isinstance(item, Parameter)),
        inputs=tuple(item for item in data if isinstance(item, Input)),
        tensors=tuple(item for item in data if isinstance(item, Tensor)),
        manifest=next(iter(parts.read("PROC", read_manifest)), b""),
        orchestrator=_orchestrator(parts),
        resources=parts.read("RSRC", read_resources),
        training=parts.read("TRNG", instructions),
        arrays=parts.read("ARRS", read_arrays),
        span=reading.span(0, len(reading.data)),
        manifest_span=reading.span(*table.places.get("PROC", (0, 0))),
    )


def _check_presence(reading: Reading, table: Table) -> None:
    """What a header promises or cannot do without."""
    if "OPS " not in table.places:
        reading.report(rules.NO_INSTRUCTIONS, TABLE, table.container.padding)
    there = "TRNG" in table.places
    if there != table.trains:
        values = {"bit": int(table.trains), "presence": "there" if there else "not there"}
        reading.report(rules.TRAINING_FLAG, 4, 5, **values)


def _orchestrator(parts: _Parts) -> Orchestrator:
    found = parts.read("ORCH", read_plan)
    start, end = parts.table.places.get("ORCH", (0, 0))
    constants = tuple(item for item in found if isinstance(item, Constant))
    bytecode = next((item for item in found if isinstance(item, memoryview)), b"")
    return Orchestrator(bytecode, constants, parts.reading.span(start, end))


class _Parts:
    """The sections that a header names."""

    def __init__(self, reading: Reading, table: Table) -> None:
        self.reading = reading
        self.table = table

    def read(self, tag: str, records: Callable[[Section], Iterator[T]]) -> tuple[T, ...]:
        """The records of a section; none where it is absent or not what its slot says."""
        if tag not in self.table.places:
            return ()
        section = Section(self.reading, tag, Reader(self.reading.data, *self.table.places[tag]))
        if not self._has_tag(section):
            return ()
        external = tag == "DATA" and not self.table.header.internal
        return tuple(collect(section, records(section), _EXTERNAL if external else ""))

    def _has_tag(self, section: Section) -> bool:
        start = section.reader.position
        try:
            found = section.reader.take(4, "the tag")
        except InputError as problem:
            self.reading.findings.append(section.close(problem))
            return False
        if found == section.tag.encode():
            return True
        known = [tag for tag in self.table.container.slots if found == tag.encode()]
        repair = f"that is the tag of {known[0].strip()}" if known else "the section is not read"
        section.report(rules.WRONG_TAG, start, section=section.name, found=repr(found), repair=repair)
        return False
