"""What an object file asks of others: LLVM ends the process over a symbol that nobody has, so we look before."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.errors import InputError
from lamella.base.reader import Reader

ELF = b"\x7fELF\x02\x01"
SYMBOL_TABLE = 2
SECTION, SYMBOL = 64, 24
PROCESSORS = MappingProxyType({"x86_64": 62, "aarch64": 183})


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def undefined_symbols(content: bytes) -> list[str]:
    """The names that a 64-bit little-endian ELF object leaves open; none for objects of another format."""
    if not content.startswith(ELF):
        return []
    sections = _read_sections(content)
    tables = [section for section in sections if section.kind == SYMBOL_TABLE]
    return [name for table in tables for name in _open_names(content, table, sections)]


def is_for(content: bytes, triple: str) -> bool:
    """Whether an object is for the processor of a triple, as far as we know both."""
    wanted = PROCESSORS.get(triple.partition("-")[0])
    return wanted is None or not content.startswith(ELF) or _reader_at(content, 18).u16() == wanted


def _reader_at(content: bytes, offset: int) -> Reader:
    reader = Reader(content)
    reader.take(offset, "what stands before")
    return reader


def _read_sections(content: bytes) -> list[_Section]:
    header = _reader_at(content, 40)
    start = header.u64()
    header.take(12)
    count = header.u16()
    reader = _reader_at(content, start)
    return [_read_section(reader) for _ in range(reader.count(count, SECTION, "the section table"))]


def _read_section(reader: Reader) -> _Section:
    reader.u32()
    kind = reader.u32()
    reader.take(16)
    offset, size, link = reader.u64(), reader.u64(), reader.u32()
    reader.take(20)
    return _Section(kind, offset, size, link)


def _open_names(content: bytes, table: _Section, sections: list[_Section]) -> list[str]:
    if table.link >= len(sections):
        raise InputError("a symbol table has no names", table.offset)
    names = sections[table.link]
    reader = _reader_at(content, table.offset)
    found = []
    for _ in range(reader.count(table.size // SYMBOL, SYMBOL, "the symbol table")):
        start, _, section = reader.u32(), reader.u16(), reader.u16()
        reader.take(16)
        if start and not section:
            found.append(_name_at(content, names.offset + start))
    return found


def _name_at(content: bytes, start: int) -> str:
    end = content.find(0, start)
    return content[start : end if end >= 0 else start].decode("utf-8", "replace")
