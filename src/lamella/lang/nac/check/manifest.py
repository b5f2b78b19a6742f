"""The tokenizer manifest, instruction by instruction: every payload holds the fields that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError, Malformed
from lamella.base.reader import Reader
from lamella.lang.nac.nodes import File
from lamella.lang.nac.rules import sections as rules

MAGIC = b"TISA\x01"
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
PROTECTED, BEHAVES, TRIMS = 1, 2, 4
MOST_PARTS = 65536
"""Instructions and rules of a manifest that are read; those of real tokenizers are some thousands."""
MOST_INSTRUCTIONS = 256
"""Instructions of a manifest; those of real tokenizers are some dozens."""
_HEAD = 5


def check_manifest(file: File) -> Iterator[Diagnostic]:
    """The manifest of a file, where there is one."""
    data = memoryview(file.manifest)
    if not data:
        return
    if data[: len(MAGIC)] != MAGIC:
        yield rules.MANIFEST_HEAD.at(file.manifest_span)
        return
    position, parts, count = len(MAGIC), 0, 0
    while position < len(data):
        name = _name(data[position])
        parts, count = parts + _count_parts(data[position:]), count + 1
        if parts > MOST_PARTS or count > MOST_INSTRUCTIONS:
            most = f"{MOST_INSTRUCTIONS} instructions"
            problem = f"is beyond {most if parts <= MOST_PARTS else f'{MOST_PARTS} instructions and rules'}"
            yield rules.MANIFEST_VALUE.at(
                file.manifest_span, name=name, offset=position, problem=problem, repair="the rest is not read"
            )
            return
        left = len(data) - position - _HEAD
        length = int.from_bytes(data[position + 1 : position + _HEAD], "little")
        if left < length:
            problem = f"needs {max(length, -left)} bytes; {max(left, 0)} are left"
            yield rules.MANIFEST_CUT.at(file.manifest_span, name=name, offset=position, problem=problem)
            return
        start = position + _HEAD
        yield from _check_record(file, position, data[start : start + length])
        position = start + length


def _count_parts(record: memoryview) -> int:
    """How much work a record says that it is: itself, and its rules or tokens."""
    rules = record[_HEAD : _HEAD + 2] if record[0] in (_PARTITION, _ADDED) else b""
    return 1 + int.from_bytes(rules, "little")


def _name(opcode: int) -> str:
    return _RECORDS[opcode].name if opcode in _RECORDS else f"instruction {opcode}"


def _check_record(file: File, offset: int, payload: memoryview) -> Iterator[Diagnostic]:
    opcode = memoryview(file.manifest)[offset]
    record = _RECORDS.get(opcode)
    if record is None:
        yield rules.MANIFEST_OPCODE.at(file.manifest_span, offset=offset, opcode=opcode)
        return
    reader = Reader(payload)
    try:
        record.read(reader)
        reader.finish("its fields")
    except InputError as problem:
        yield rules.MANIFEST_CUT.at(
            file.manifest_span, name=record.name, offset=offset, problem=f"is wrong: {problem.message}"
        )
    except Malformed as wrong:
        reason, repair = wrong.args
        yield rules.MANIFEST_VALUE.at(
            file.manifest_span, name=record.name, offset=offset, problem=reason, repair=repair
        )


@dataclass(frozen=True, slots=True)
class _Record:
    """An instruction of the manifest: its name and how its payload is read."""

    name: str
    read: Callable[[Reader], None]


def _nothing(reader: Reader) -> None:
    """A payload without fields."""


def _text(reader: Reader, length: int) -> str:
    data = reader.take(length, "a text")
    if b"\0" in data:
        raise Malformed("holds a NUL character", "a pattern names it '\\x00'")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("holds a text that is not UTF-8", "texts are UTF-8") from None


def _short_text(reader: Reader) -> str:
    return _text(reader, reader.u8())


def _long_text(reader: Reader) -> str:
    return _text(reader, reader.u16())


def _form(reader: Reader) -> None:
    form = _short_text(reader)
    if form not in FORMS:
        raise Malformed(f"asks for the form '{form}'", f"forms are {', '.join(FORMS)}")


def _replacement(reader: Reader) -> None:
    if not _long_text(reader):
        raise Malformed("replaces an empty text", "name the text that is replaced")
    _long_text(reader)


def _categories(reader: Reader) -> None:
    for _ in range(reader.u8()):
        category = _short_text(reader)
        if not category.isalpha() or len(category) > 2:
            raise Malformed(f"names the category '{category}'", "categories are like 'Mn' or 'Cc'")


def _prefix(reader: Reader) -> None:
    _long_text(reader)


def _rules(reader: Reader) -> None:
    for _ in range(reader.count(reader.u16(), 3, "a list of rules")):
        flags = reader.u8()
        if flags > PROTECTED | BEHAVES | TRIMS:
            raise Malformed(f"has a rule with the flags {flags}", "flags are 1, 2, 4 and their sums")
        _long_text(reader)
        behaviour = reader.u8() if flags & BEHAVES else 1
        if behaviour not in (1, 2):
            raise Malformed(f"has a rule with behaviour {behaviour}", "1 removes, 2 isolates")
        if flags & TRIMS:
            _short_text(reader)


def _suffix(reader: Reader) -> None:
    """Newer versions give the text that ends words; older ones have nothing here."""
    if reader.remaining:
        _short_text(reader)


def _marker(reader: Reader) -> None:
    _short_text(reader)


def _template(reader: Reader) -> None:
    for _ in range(reader.u8()):
        if not _flag(reader):
            continue
        if _flag(reader):
            reader.i32()
        else:
            _short_text(reader)


def _flag(reader: Reader) -> bool:
    value = reader.u8()
    if value > 1:
        raise Malformed(f"has {value} where 0 or 1 stands", "a flag is 0 or 1")
    return bool(value)


# --- ours ---------------------------------------------------------------------------------------------------


def _most(highest: int, *texts: Callable[[Reader], object]) -> Callable[[Reader], None]:
    """A byte up to a number, and texts behind it."""

    def read(reader: Reader) -> None:
        _byte(reader, highest)
        for text in texts:
            text(reader)

    return read


def _byte(reader: Reader, highest: int) -> int:
    value = reader.u8()
    if value > highest:
        raise Malformed(f"has {value} where 0 to {highest} stand", f"{highest} is the highest number here")
    return value


def _added(reader: Reader) -> None:
    for _ in range(reader.count(reader.u16(), 7, "a list of tokens")):
        _byte(reader, 31)
        if reader.i32() < 0:
            raise Malformed("gives a token a negative id", "ids begin at 0")
        if not _long_text(reader):
            raise Malformed("has a token without text", "a token has a character at least")


def _split(reader: Reader) -> None:
    _byte(reader, 4)
    _flag(reader)
    _long_text(reader)


def _options(reader: Reader) -> None:
    _byte(reader, 7)
    reader.u16()
    _short_text(reader)
    _short_text(reader)


def _character(reader: Reader) -> None:
    if len(_short_text(reader)) != 1:
        raise Malformed("does not name one character", "name one character")


def _two_counts(reader: Reader) -> None:
    _character(reader)
    reader.u16()
    reader.u16()


def _marked(mark: Callable[[Reader], object]) -> Callable[[Reader], None]:
    """A text and a flag behind it."""

    def read(reader: Reader) -> None:
        mark(reader)
        _flag(reader)

    return read


_PARTITION, _ADDED = 0x10, 0x80
_RECORDS: Mapping[int, _Record] = MappingProxyType(
    {
        0x01: _Record("LOWERCASE", _nothing),
        0x02: _Record("UNICODE_NORM", _form),
        0x03: _Record("REPLACE", _replacement),
        0x04: _Record("FILTER_CATEGORY", _categories),
        0x07: _Record("PREPEND", _prefix),
        _PARTITION: _Record("PARTITION_RULES", _rules),
        0x15: _Record("BYTE_ENCODE", _nothing),
        0x20: _Record("BPE_ENCODE", _suffix),
        0x21: _Record("WORDPIECE_ENCODE", _marker),
        0x22: _Record("UNIGRAM_ENCODE", _nothing),
        0x30: _Record("COMPOSE", _template),
        _ADDED: _Record("ADDED_TOKENS", _added),
        0x81: _Record("SPLIT", _split),
        0x82: _Record("PREPEND_WHERE", _most(3, _long_text)),
        0x83: _Record("REPLACE_PATTERN", _most(1, _long_text, _long_text)),
        0x84: _Record("ENCODE_OPTIONS", _options),
        0x85: _Record("CHARSMAP", _marker),
        0x90: _Record("DECODE_BYTES", _nothing),
        0x91: _Record("DECODE_WORDPIECES", _marked(_short_text)),
        0x92: _Record("DECODE_SPACES", _marked(_character)),
        0x93: _Record("DECODE_FUSE", _nothing),
        0x94: _Record("DECODE_STRIP", _two_counts),
        0x95: _Record("DECODE_FALLBACK", _nothing),
        0x96: _Record("DECODE_REPLACE", _most(1, _long_text, _long_text)),
        0x97: _Record("DECODE_SUFFIX", _marker),
        0x98: _Record("DECODE_JOIN", _marker),
    }
)
