"""Tokenizers of every kind: ids and texts are those of the package `tokenizers`, line by line."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Judge
from tokenizers import models, normalizers, pre_tokenizers

from lamella.backend.tisa import ManifestTokenizer, load_tokenizer
from lamella.base.diagnostic import LamellaError
from lamella.base.source import Source
from lamella.bridge.tokenizer_to_nac import read_document, tokenizer_to_nac
from lamella.lang.nac import assemble, check, disassemble, parse, write
from lamella.lang.nac.nodes import File
from tests.support.bridge.tokenizer_corpus import lines
from tests.support.bridge.tokenizer_kinds import KINDS, trained

KIND = pytest.mark.parametrize("kind", KINDS)
LINES = 1000


def file_of(judge: Judge) -> File:
    """The file of a tokenizer."""
    parts = tokenizer_to_nac(judge.to_str().encode())
    assert not parts.findings
    return File(manifest=parts.manifest, resources=parts.resources)


def ours_of(judge: Judge) -> ManifestTokenizer:
    """Our tokenizer for one of the package."""
    return load_tokenizer(file_of(judge))


@KIND
def test_lines_have_the_ids_of_the_package(kind: str) -> None:
    judge, ours = trained(kind), ours_of(trained(kind))
    wrong = [line for line in lines(LINES) if ours.encode(line) != judge.encode(line).ids]
    assert not wrong, wrong[:3]


@KIND
def test_ids_have_the_texts_of_the_package(kind: str) -> None:
    judge, ours = trained(kind), ours_of(trained(kind))
    for line in lines(LINES // 2, seed=3):
        ids = judge.encode(line).ids
        assert ours.decode(ids) == judge.decode(ids)
        assert ours.decode(ids, special=True) == judge.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("kind", ["gpt2", "llama3", "o200k"])
def test_bytes_come_back(kind: str) -> None:
    ours = ours_of(trained(kind))
    for line in lines(LINES // 2, seed=4):
        special = line.count("<|endoftext|>") + line.count("<s>") + line.count("</s>")
        if not special:
            assert ours.decode(ours.encode(line)) == line


@KIND
@given(ids=st.lists(st.integers(0, 1800), max_size=12))
def test_any_ids_have_the_text_of_the_package(kind: str, ids: list[int]) -> None:
    assert ours_cached(kind).decode(ids) == trained(kind).decode(ids)


@KIND
@given(text=st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cs"]), max_size=20))
def test_any_text_has_the_ids_of_the_package(kind: str, text: str) -> None:
    assert ours_cached(kind).encode(text) == trained(kind).encode(text).ids


@cache
def ours_cached(kind: str) -> ManifestTokenizer:
    """Our tokenizer of a kind, loaded once."""
    return ours_of(trained(kind))


@KIND
def test_tokens_have_the_ids_of_the_package(kind: str) -> None:
    judge, ours = trained(kind), ours_cached(kind)
    vocabulary = judge.get_vocab()
    assert {token: ours.id_of(token) for token in vocabulary} == vocabulary
    assert ours.id_of("no such token") is None


@KIND
def test_a_file_carries_its_tokenizer_through_bytes_and_text(kind: str) -> None:
    file = file_of(trained(kind))
    again, findings = parse(write(file))
    assert not findings
    assert not [item for item in check(again) if "manifest" in item.message]
    assert (bytes(again.manifest), again.resources) == (file.manifest, file.resources)
    text = disassemble(file)
    assert "_ENCODE(" in text
    assert assemble(Source("a.nacs", text)).file.manifest == file.manifest


# --- single parts -------------------------------------------------------------------------------------------

LETTERS = {character: number for number, character in enumerate("?abcABC éÉ1²½.,!-_'▁")}
PARTS: list[tuple[normalizers.Normalizer | None, pre_tokenizers.PreTokenizer | None]] = [
    (normalizers.NFKD(), None),
    (normalizers.NFKC(), pre_tokenizers.WhitespaceSplit()),
    (normalizers.Strip(left=False), None),
    (normalizers.Strip(right=False), pre_tokenizers.Punctuation("removed")),
    (normalizers.StripAccents(), pre_tokenizers.Punctuation("contiguous")),
    (normalizers.BertNormalizer(clean_text=False, lowercase=True, strip_accents=False), None),
    (normalizers.BertNormalizer(handle_chinese_chars=False, lowercase=False, strip_accents=True), None),
    (normalizers.Replace("a", "bb"), pre_tokenizers.CharDelimiterSplit("b")),
    (None, pre_tokenizers.Digits(individual_digits=False)),
    (None, pre_tokenizers.Split(" ", "removed", invert=True)),
    (None, pre_tokenizers.Split(".", "merged_with_previous", invert=True)),
    (None, pre_tokenizers.Metaspace(prepend_scheme="never", split=False)),
    (None, pre_tokenizers.Metaspace("_", prepend_scheme="first")),
    (normalizers.Prepend("A"), pre_tokenizers.Whitespace()),
]


@pytest.mark.parametrize("parts", PARTS, ids=lambda parts: " ".join(type(part).__name__ for part in parts))
def test_parts_change_texts_as_the_package_does(
    parts: tuple[normalizers.Normalizer | None, pre_tokenizers.PreTokenizer | None],
) -> None:
    judge = Judge(models.BPE(LETTERS, [], unk_token="?"))
    if parts[0] is not None:
        judge.normalizer = parts[0]
    if parts[1] is not None:
        judge.pre_tokenizer = parts[1]
    ours = ours_of(judge)
    for line in [*lines(200, seed=5), " a.b, ", "..a  b--c", "éÉ²½", "1a22b"]:
        assert ours.encode(line) == judge.encode(line).ids


# --- texts that are no tokenizers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '"a"',
        "[" * 100_000,
        '{"model": {}}',
        '{"model": {"type": "WordLevel", "vocab": {}}}',
        "\xff",
    ],
)
def test_other_texts_are_findings(text: str) -> None:
    with pytest.raises(LamellaError) as problem:
        tokenizer_to_nac(text.encode("latin-1"))
    assert problem.value.findings[0].code in ("NAC256", "NAC257")


def test_deep_parts_are_findings() -> None:
    part: object = None
    for _ in range(200):
        part = {"type": "Sequence", "normalizers": [part]}
    text = json.dumps({"normalizer": part, "model": {"type": "BPE", "vocab": {}, "merges": []}})
    with pytest.raises(LamellaError, match="nested too deep"):
        tokenizer_to_nac(text.encode())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.text("ab\0\ud800", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "String", "id", "a"]), inner)
    ),
    max_leaves=5,
)


@KIND
@given(data=st.data())
def test_changed_texts_are_findings(kind: str, data: st.DataObject) -> None:
    document = json.loads(trained(kind).to_str())
    vocabulary = document["model"]["vocab"]
    document["model"]["vocab"] = (
        vocabulary[:20] if isinstance(vocabulary, list) else dict(list(vocabulary.items())[:20])
    )
    document["model"]["merges"] = []
    place = document
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(range(len(place)) if isinstance(place, list) else sorted(place)))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(VALUES)
            break
        place = place[key]
    assert told(json.dumps(document).encode()) in ("", "error", "warning")


def told(text: bytes) -> str:
    """How grave what is found is, where a tokenizer is made and run."""
    try:
        parts = tokenizer_to_nac(text)
        made = load_tokenizer(File(manifest=parts.manifest, resources=parts.resources))
        made.decode(made.encode("a b\n<s>é"))
    except LamellaError as problem:
        return problem.findings[0].severity
    return parts.findings[0].severity if parts.findings else ""


@given(
    st.lists(
        st.floats(-1e6, -1e-6) | st.floats(-1e300, 1e300, allow_subnormal=False), min_size=1, max_size=20
    )
)
def test_scores_are_read_as_the_package_reads_them(scores: list[float]) -> None:
    model = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [[f"t{place}", score] for place, score in enumerate(scores)],
    }
    text = json.dumps({"version": "1.0", "added_tokens": [], "model": model})
    again = json.loads(Judge.from_str(text).to_str())["model"]["vocab"]
    document = read_document(text.encode(), "tokenizer.json")
    rows = [list(row.items()) for row in document["model"]["vocab"].items()]
    assert [score.real() for _, score in rows] == [score for _, score in again]
