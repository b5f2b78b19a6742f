"""The tokenizer manifest and resources: what is right passes, what could do harm does not."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.lang.nac.check import check
from lamella.lang.nac.nodes import File, Resource

HEAD = b"TISA\x01"


def short(text: str) -> bytes:
    """A text behind one byte of length."""
    data = text.encode()
    return bytes([len(data)]) + data


def long(text: str) -> bytes:
    """A text behind two bytes of length."""
    data = text.encode()
    return struct.pack("<H", len(data)) + data


def record(opcode: int, payload: bytes = b"") -> bytes:
    """An instruction of the manifest."""
    return struct.pack("<BI", opcode, len(payload)) + payload


def codes(manifest: bytes) -> list[str]:
    """The findings of a manifest."""
    return [item.code for item in check(replace(File(), manifest=manifest))]


TEXT = st.text(max_size=5)
RULE = st.one_of(
    st.builds(lambda p, text: bytes([p]) + long(text), st.sampled_from([0, 1]), TEXT),
    st.builds(lambda text, b: b"\x02" + long(text) + bytes([b]), TEXT, st.sampled_from([1, 2])),
    st.builds(lambda text, trim: b"\x05" + long(text) + short(trim), TEXT, TEXT),
    st.builds(
        lambda text, b, trim: b"\x07" + long(text) + bytes([b]) + short(trim),
        TEXT,
        st.sampled_from([1, 2]),
        TEXT,
    ),
)
ITEM = st.one_of(
    st.just(b"\0"),
    st.builds(lambda number: b"\1\1" + struct.pack("<i", number), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.builds(lambda text: b"\1\0" + short(text), TEXT),
)
RECORD = st.one_of(
    st.sampled_from([record(0x01), record(0x15), record(0x20), record(0x22)]),
    st.builds(lambda form: record(0x02, short(form)), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"])),
    st.builds(lambda a, b: record(0x03, long(a) + long(b)), st.text(min_size=1, max_size=5), TEXT),
    st.builds(
        lambda names: record(0x04, bytes([len(names)]) + b"".join(map(short, names))),
        st.lists(st.sampled_from(["Mn", "Cc", "L"])),
    ),
    st.builds(lambda text: record(0x07, long(text)), TEXT),
    st.builds(lambda text: record(0x20, short(text)), TEXT),
    st.builds(lambda text: record(0x21, short(text)), TEXT),
    st.builds(
        lambda rules: record(0x10, struct.pack("<H", len(rules)) + b"".join(rules)),
        st.lists(RULE, max_size=3),
    ),
    st.builds(lambda items: record(0x30, bytes([len(items)]) + b"".join(items)), st.lists(ITEM, max_size=4)),
)
MANIFEST = st.lists(RECORD, max_size=5).map(lambda records: HEAD + b"".join(records))


@given(MANIFEST)
def test_right_manifests_have_nothing_wrong(manifest: bytes) -> None:
    assert codes(manifest) == []


@given(st.lists(RECORD, min_size=1, max_size=4), st.data())
def test_manifests_that_are_cut_short_are_found(records: list[bytes], data: st.DataObject) -> None:
    whole = HEAD + b"".join(records)
    places = {len(HEAD) + sum(map(len, records[:count])) for count in range(len(records) + 1)}
    end = data.draw(st.integers(1, len(whole)))
    wanted = [] if end in places else ["NAC162" if end < len(HEAD) else "NAC164"]
    assert codes(whole[:end]) == wanted


@given(RECORD)
def test_payloads_hold_nothing_more(item: bytes) -> None:
    opcode, payload = item[0], item[5:]
    if (opcode, payload) != (0x20, b""):  # an empty suffix may follow
        assert codes(HEAD + record(opcode, payload + b"\0")) in (["NAC164"], ["NAC165"])


@given(st.binary(max_size=80))
def test_any_bytes_are_answered(data: bytes) -> None:
    assert set(codes(HEAD + data)) <= {"NAC163", "NAC164", "NAC165"}


@pytest.mark.parametrize(
    "payload",
    [
        record(0x02, short("nfc")),
        record(0x03, long("") + long("x")),
        record(0x04, b"\x01" + short("Letter")),
        record(0x07, b"\x01\x00\xff"),
        record(0x10, b"\x01\x00\x08" + long("x")),
        record(0x10, b"\x01\x00\x02" + long("x") + b"\x03"),
        record(0x30, b"\x01\x02"),
        record(0x30, b"\x01\x01\x02"),
    ],
)
def test_values_without_a_meaning_are_refused(payload: bytes) -> None:
    assert codes(HEAD + payload) == ["NAC165"]


def test_many_rules_need_as_many_bytes() -> None:
    assert codes(HEAD + record(0x10, b"\xff\xff\x00")) == ["NAC164"]


def resources(*names: str) -> list[str]:
    """The findings of resources of these names."""
    found = tuple(Resource(name, b"") for name in names)
    return [item.code for item in check(replace(File(), resources=found))]


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", ".", "..", "../x", "/etc/x", "a/b", "C:\\x", "C:x", "a\\b", "a\0b", "a\nb", "x.", "x "),
        *("CON", "con", "nul.txt", "COM1", "lpt9.tar.gz", "a?b", "x" * 256, "é" * 128, "\u202etxt.exe"),
    ],
)
def test_names_that_could_do_harm_are_refused(name: str) -> None:
    assert resources(name) == ["NAC160"]


@pytest.mark.parametrize(
    "name", ["vocab.json", "spiece.model", ".hidden", "vm_vocab.b", "x" * 255, "слова.txt", "console"]
)
def test_names_of_files_are_taken(name: str) -> None:
    assert resources(name) == []


def test_names_stay_apart_on_every_system() -> None:
    assert resources("a", "A") == ["NAC161"]
    assert resources("\u00e9", "e\u0301") == ["NAC161"]
    assert resources(*["same"] * 300) == ["NAC161"]
