"""The machine of manifests: what every published instruction says, and what a public compiler wrote."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from docs.generate import RIGHT, repaired
from lamella.backend.tisa import load_tokenizer
from lamella.lang.nac.nodes import File, Resource
from tests.support.backend.tisa.manifests import Given, tables, tokenizer, tokens
from tests.support.backend.tisa.wrong import findings_of

BAD = sorted((Path(__file__).parents[2] / "lang" / "nac" / "bad").glob("nac25*.txt"))
SAMPLE = Path(__file__).parents[4] / "shared" / "samples" / "nac" / "tisa-bpe"


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_wrong_tokenizers_are_found_and_right_ones_are_not(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = Counter(re.findall(r"; expect (NAC\d{3})", text))
    assert wanted
    assert Counter(item.code for item in findings_of(text)) == wanted
    assert RIGHT.search(text)
    assert findings_of(repaired(text)) == []


@pytest.mark.skipif(not SAMPLE.exists(), reason="the folder of samples is not beside the repository")
@pytest.mark.parametrize("form", ["texts", "document", "tables"])
def test_a_manifest_of_the_public_compiler(form: str) -> None:
    known = json.loads((SAMPLE / "expected.json").read_text())
    made = load_tokenizer(
        File(manifest=(SAMPLE / "manifest.tisa").read_bytes(), resources=resources(known, form))
    )
    for case in known["cases"]:
        assert made.encode(case["text"]) == case["tisa_ids"]
        assert made.decode(case["tisa_ids"]) == case["tisa_decode"]


def resources(known: dict[str, Any], form: str) -> tuple[Resource, ...]:
    """A vocabulary in one of the forms that files have."""
    vocabulary, merges = known["vocab"], known["merges"]
    if form == "texts":
        lines = "\n".join(" ".join(pair) for pair in merges)
        return Resource("vocab.json", json.dumps(vocabulary).encode()), Resource("merges.txt", lines.encode())
    if form == "document":
        text = json.dumps({"model": {"vocab": vocabulary, "merges": [" ".join(pair) for pair in merges]}})
        return (Resource("tokenizer.json", text.encode()),)
    return tables(vocabulary, merges)


# --- instructions -------------------------------------------------------------------------------------------

LETTERS = "<unk> a b c ab abc A B é e \u0301 ▁ ▁a x y z"


@pytest.mark.parametrize(
    ("steps", "text", "wanted"),
    [
        ([("LOWERCASE",)], "AB", ["a", "b"]),
        ([("UNICODE_NORM", "NFD")], "é", ["e", "\u0301"]),
        ([("UNICODE_NORM", "NFC")], "e\u0301", ["é"]),
        ([("REPLACE", "ab", "c")], "xabab", ["x", "c", "c"]),
        ([("FILTER_CATEGORY", "Mn", "Lu")], "Ae\u0301", ["e"]),
        ([("FILTER_CATEGORY", "L")], "a ▁", ["<unk>", "▁"]),
        ([("PREPEND", "x")], "a", ["x", "a"]),
        ([("PREPEND", "x")], "xa", ["x", "a"]),
        ([("PREPEND_WHERE", 1, "x")], "xa", ["x", "x", "a"]),
        ([("PARTITION_RULES", (2, "a", 1))], "bac", ["b", "c"]),
        ([("PARTITION_RULES", (6, "b", 2, "x"))], "axbxc", ["a", "b", "x", "c"]),
        ([("PARTITION_RULES", (1, "<unk>"))], "a <unk>b", ["a", "<unk>", "b"]),
        ([("PARTITION_RULES", (1, "ab"), (0, "[abc]"))], "abc", ["ab", "c"]),
        ([("PARTITION_RULES", (1, "q"))], "aq", ["a", "<unk>"]),
        ([("SPLIT", 0, 0, "[ab]"), ("PREPEND", "x")], "zacyb", ["x", "z", "x", "c", "y"]),
        ([("SPLIT", 0, 1, "[ab]"), ("PREPEND", "x")], "zacyb", ["x", "a", "x", "b"]),
        ([("SPLIT", 2, 0, "a"), ("PREPEND", "x")], "azaab", ["x", "a", "x", "z", "a", "x", "a", "x", "b"]),
        ([("SPLIT", 3, 0, "a"), ("PREPEND", "x")], "azaab", ["x", "a", "z", "x", "a", "x", "a", "b"]),
        ([("SPLIT", 4, 0, "a"), ("PREPEND", "x")], "zaab", ["x", "z", "x", "a", "a", "x", "b"]),
        ([("SPLIT", 1, 0, "a"), ("PREPEND_WHERE", 2, "x")], "aa", ["x", "a", "a"]),
        ([("REPLACE_PATTERN", 0, "a+", "b")], "caac", ["c", "b", "c"]),
        ([("REPLACE_PATTERN", 1, "[ab]", "x")], "ca", ["c", "x", "a", "x"]),
        ([("ADDED_TOKENS", (2, 3, "c")), ("PREPEND", "x")], "a  c b", ["x", "a", "c", "x", "<unk>", "b"]),
        ([("ADDED_TOKENS", (4, 3, "c")), ("PREPEND", "x")], "ac  b", ["x", "a", "c", "x", "b"]),
        ([("ADDED_TOKENS", (16, 3, "c"))], "ac c", ["a", "c", "<unk>", "c"]),
        ([("ADDED_TOKENS", (0, 4, "ab"), (0, 5, "abc"))], "ababc", ["ab", "abc"]),
        ([("LOWERCASE",), ("ADDED_TOKENS", (8, 15, "XY"))], "aXy", ["a", "XY"]),
        ([("ADDED_TOKENS", (0, 15, "XY")), ("PREPEND_WHERE", 2, "x")], "XYa", ["XY", "a"]),
    ],
)
def test_instructions_before_the_encoder(steps: list[Given], text: str, wanted: list[str]) -> None:
    assert tokens(tokenizer([*steps, ("BPE_ENCODE",)], LETTERS), text) == wanted


def test_bytes_become_their_alphabet() -> None:
    made = tokenizer([("BYTE_ENCODE",), ("BPE_ENCODE",)], "a Ġ Ċ Ã ©")
    assert tokens(made, "a \né") == ["a", "Ġ", "Ċ", "Ã", "©"]
    assert made.decode(made.encode("a \né")) == "a \né"
    assert made.decode([3]) == "\ufffd"


def test_word_pieces_go_on_behind_an_unknown_character_or_refuse_the_word() -> None:
    words = "[UNK] a ab ##c ##cd"
    assert tokens(tokenizer([("WORDPIECE_ENCODE", "##")], words), "abcdxc") == ["ab", "##cd", "[UNK]", "##c"]
    whole: list[Given] = [("ENCODE_OPTIONS", 0, 4, "[UNK]", ""), ("WORDPIECE_ENCODE", "##")]
    made = tokenizer(whole, words)
    assert tokens(made, "abcd") == ["ab", "##cd"]
    assert tokens(made, "abx") == ["[UNK]"]
    assert tokens(made, "abccc") == ["[UNK]"]


def test_suffixes_and_prefixes_of_byte_pairs() -> None:
    assert tokens(tokenizer([("BPE_ENCODE", "</w>")], "a b</w> ab</w>", ["a b</w>"]), "ab") == ["ab</w>"]
    options = ("ENCODE_OPTIONS", 0, 9, "", "##")
    assert tokens(tokenizer([options, ("BPE_ENCODE",)], "a ##b ab", ["a ##b"]), "ab") == ["ab"]


@pytest.mark.parametrize(
    ("flags", "unknown", "wanted"),
    [
        (0, "", ["a", "a"]),
        (0, "?", ["a", "?", "?", "a"]),
        (2, "?", ["a", "?", "a"]),
        (1, "?", ["a", "<0xC3>", "<0xA9>", "a", "?"]),
        (4, "", ["aéqa"]),
    ],
)
def test_options_for_unknown_characters(flags: int, unknown: str, wanted: list[str]) -> None:
    steps: list[Given] = [("ENCODE_OPTIONS", flags, 9, unknown, ""), ("BPE_ENCODE",)]
    made = tokenizer(steps, "a ? <0xC3> <0xA9> aéqa")
    # as `tokenizers` has it, an unknown character that waits for a known one comes behind bytes
    assert tokens(made, "aéqa" if flags != 1 else "aéaq") == wanted


def test_templates_have_ids_and_tokens() -> None:
    made = tokenizer([("BPE_ENCODE",), ("COMPOSE", 1, (), "c", ())], "a b c")
    assert made.encode("a") == [1, 0, 2, 0]
    assert made.encode("") == [1, 2]
    assert (made.id_of("c"), made.id_of("d"), made.token_of(7)) == (2, None, None)


@pytest.mark.parametrize(
    ("steps", "ids", "wanted"),
    [
        ([("DECODE_JOIN", "-")], [0, 9, 1], "a-##b"),
        ([("DECODE_WORDPIECES", "##", 0)], [0, 1, 0, 2], "ab a ▁c"),
        ([("DECODE_WORDPIECES", "##", 1)], [0, 4], "a."),
        ([("DECODE_SPACES", "▁", 1)], [2, 2], "c c"),
        ([("DECODE_SPACES", "▁", 0)], [2, 2], " c c"),
        ([("DECODE_FALLBACK",)], [5, 6, 0, 5], "éa\ufffd"),
        ([("DECODE_REPLACE", 0, "a", "x"), ("DECODE_REPLACE", 1, "[#]+", "")], [0, 1], "xb"),
        ([("DECODE_SUFFIX", "</w>")], [3, 3], "d d"),
        ([("DECODE_FUSE",), ("DECODE_STRIP", "a", 1, 1)], [0, 0, 0, 4, 0], "aa."),
    ],
)
def test_ways_back(steps: list[Given], ids: list[int], wanted: str) -> None:
    made = tokenizer([("BPE_ENCODE",), *steps], "a ##b ▁c d</w> . <0xC3> <0xA9>")
    assert made.decode(ids) == wanted


def test_special_tokens_are_left_out_unless_they_are_asked_for() -> None:
    made = tokenizer([("ADDED_TOKENS", (1, 1, "<s>")), ("BPE_ENCODE",), ("DECODE_FUSE",)], "a")
    assert made.encode("a<s>a") == [0, 1, 0]
    assert made.decode([0, 1, 0]) == "aa"
    assert made.decode([0, 1, 0], special=True) == "a<s>a"
