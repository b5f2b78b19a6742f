"""Tables of characters as sentencepiece makes them: texts are changed as the package changes them."""

from __future__ import annotations

import json
import struct
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Judge

from lamella.backend.tisa import load_tokenizer
from lamella.backend.tisa.build import CharacterMap
from lamella.base.errors import InputError
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.lang.nac.nodes import File
from tests.support.bridge.tokenizer_corpus import lines

KEYS = {
    "ﬁ": "fi", "Ａ": "A", "é": "é", "e\u0301": "é", "a\u0308": "ä", "\t": " ", "\r": "", "\u3000": " ", "½": "1⁄2",
    "\u200b": "", "が": "が", "か\u3099": "が", "①": "1", "ab": "x", "ﷺ": "صلى الله", "\u0301": "'", "K": "K",
}  # fmt: skip


def double_array(keys: dict[str, str]) -> bytes:
    """A trie in one array: every node has 256 places of its own."""
    nodes: dict[bytes, int] = {b"": 0}
    for key in keys:
        data = key.encode()
        for size in range(1, len(data) + 1):
            nodes.setdefault(data[:size], len(nodes))
    units = [0] * (256 * (len(nodes) + 1))
    texts, starts = b"", dict[bytes, int]()
    for key, text in keys.items():
        starts[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
    places = {b"": 0} | {path: 256 * (nodes[path[:-1]] + 1) + path[-1] for path in nodes if path}
    for path, number in nodes.items():
        base = 256 * (number + 1)
        leaf = path in starts
        units[places[path]] = ((places[path] ^ base) << 10) | (leaf << 8) | (path[-1] if path else 0)
        if leaf:
            units[base] = 1 << 31 | starts[path]
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + texts


def document(table: bytes) -> bytes:
    """A tokenizer that shows what its normalizer makes: one id for each byte."""
    letters = {f"<0x{byte:02X}>": byte + 1 for byte in range(256)} | {"?": 0}
    model = {
        "type": "BPE",
        "vocab": letters,
        "merges": [],
        "unk_token": "?",
        "byte_fallback": True,
        "fuse_unk": False,
    }
    fixed = {
        "dropout": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "ignore_merges": False,
    }
    normalizer = {"type": "Precompiled", "precompiled_charsmap": b64encode(table).decode()}
    whole = {"version": "1.0", "added_tokens": [], "normalizer": normalizer, "model": model | fixed}
    return json.dumps(
        whole | dict.fromkeys(("truncation", "padding", "pre_tokenizer", "post_processor", "decoder"))
    ).encode()


def test_texts_are_changed_as_the_package_does() -> None:
    text = document(double_array(KEYS))
    judge, parts = Judge.from_str(text.decode()), tokenizer_to_nac(text)
    ours = load_tokenizer(File(manifest=parts.manifest, resources=parts.resources))
    told = [
        "e\u0301\u0301",
        "ﬁ\u0301",
        "a\u0308b\r\n",
        "か\u3099",
        "\r\nab",
        "x\u200da",
        *KEYS,
        "".join(KEYS),
    ]
    for line in [*told, *lines(500, seed=7)]:
        assert ours.encode(line) == judge.encode(line).ids, line


@given(st.binary(max_size=80), st.integers(0, 60))
def test_any_bytes_are_a_table_or_a_finding(data: bytes, size: int) -> None:
    whole = double_array({"a": "b"})
    for table in (
        data,
        size.to_bytes(4, "little") + data,
        whole[: len(whole) - size],
        whole[:40] + data + whole[40:],
    ):
        try:
            CharacterMap(table).change().apply("aé e\u0301\r\n")
        except InputError as problem:
            told = problem.message
            assert told


@pytest.mark.parametrize("table", [b"", b"\1\0\0\0", b"\4\0\0\0" + bytes(4) + b"a" * 300])
def test_broken_tables_are_findings(table: bytes) -> None:
    with pytest.raises(InputError):
        CharacterMap(table)
