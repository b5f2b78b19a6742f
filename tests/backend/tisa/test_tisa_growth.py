"""Long manifests, and manifests that let texts grow: they stay within their bounds or are refused."""

from __future__ import annotations

import struct
import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.tisa import ManifestTokenizer, load_tokenizer
from lamella.backend.tisa.build import Growth
from lamella.base.diagnostic import LamellaError
from lamella.lang.nac.assembly.nodes import ProgramStep
from lamella.lang.nac.check.manifest import MOST_INSTRUCTIONS
from lamella.lang.nac.nodes import File, Resource
from tests.support.backend.tisa.manifests import Given, file_of

IDS = {"<unk>": 0, "a": 1, "b": 2}
GROWING = "aİΐᾂﬃﷺ\U0001d160\u0344\u0958éل\ufffd"
"""Characters that some form makes longer, and what such forms consist of."""
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
MEMBER = "\U0001f469".encode()
ENDS: list[Given] = [("ENCODE_OPTIONS", 0, 100, "<unk>", ""), ("BPE_ENCODE",)]


def file_with(steps: Sequence[Given]) -> File:
    """A file whose characters are a token each, and with a table that makes three broken characters of `a`."""
    units = [0] * 256
    units[ord("a")], units[ord("b")] = ord("a") | 1 << 8 | (ord("a") ^ ord("b")) << 10, 1
    table = Resource("table", struct.pack("<I256I", 1024, *units) + MEMBER + b"\0")
    file = file_of([*steps, *ENDS], IDS)
    return replace(file, resources=(*file.resources, table))


def codes_of(file: File) -> list[str]:
    """What is found where a tokenizer is loaded."""
    try:
        load_tokenizer(file)
    except LamellaError as problem:
        return [item.code for item in problem.findings]
    return []


def repeated(step: Given, count: int) -> ManifestTokenizer:
    """A tokenizer with an instruction so many times."""
    return load_tokenizer(file_with([step] * count))


@pytest.mark.parametrize(
    "step",
    [
        ("LOWERCASE",),
        ("UNICODE_NORM", "NFKC"),
        ("REPLACE", "c", "b"),
        ("REPLACE", "cc", "b"),
        ("FILTER_CATEGORY", "Mn"),
        ("PREPEND", ""),
        ("SPLIT", 1, 0, "b"),
        ("PARTITION_RULES", (1, "<unk>"), (0, "a+")),
        ("ADDED_TOKENS", (9, 0, "<unk>")),
    ],
    ids=lambda step: "-".join(map(str, step[:2])),
)
def test_many_instructions_do_what_one_does(step: Given) -> None:
    most = MOST_INSTRUCTIONS - len(ENDS)
    for text in ("ab<unk>baccab", "ab" * 200):
        assert repeated(step, most).encode(text) == repeated(step, 1).encode(text)
    assert codes_of(file_with([step] * (most + 1))) == ["NAC165"]


@pytest.mark.parametrize(
    "steps",
    [
        [("BYTE_ENCODE",)],
        [("REPLACE", "ل", "ﷺ"), ("UNICODE_NORM", "NFKC")],
        [("REPLACE", "i", "İ"), ("LOWERCASE",)],
        [("CHARSMAP", "table"), ("REPLACE", "\ufffd", "a")],
        [("PREPEND", "a"), ("SPLIT", 1, 0, "a")],
    ],
    ids=lambda steps: steps[0][0],
)
def test_growth_again_and_again_is_refused(steps: list[Given]) -> None:
    assert codes_of(file_with(steps)) == []
    assert codes_of(file_with(steps * 20)) == ["NAC259"]


def _instruction() -> st.SearchStrategy[Given]:
    texts, pattern = st.text(GROWING, max_size=3), st.sampled_from(("a", "[^a]", "a*", "..", "é?"))
    return st.one_of(
        st.sampled_from((("LOWERCASE",), ("BYTE_ENCODE",), ("CHARSMAP", "table"), ("SPLIT", 1, 0, "a"))),
        st.tuples(st.just("UNICODE_NORM"), st.sampled_from(FORMS)),
        st.tuples(st.just("REPLACE"), st.text(GROWING, min_size=1, max_size=2), texts),
        st.tuples(st.just("REPLACE_PATTERN"), st.sampled_from((0, 1)), pattern, texts),
        st.tuples(st.just("PREPEND"), texts),
    )


@given(st.lists(_instruction(), max_size=6), st.text(GROWING, min_size=1, max_size=4))
def test_texts_do_not_grow_more_than_is_counted(steps: list[Given], text: str) -> None:
    growth = Growth()
    for name, *operands in steps:
        growth.follow(ProgramStep(name, tuple(operands)), 1)
    if not codes_of(file_with(steps)):
        # Without merges every character is an id.
        assert len(load_tokenizer(file_with(steps)).encode(text)) <= growth.times * len(text)


CHANGES: dict[str, Callable[[str], str]] = {
    "LOWERCASE": str.lower,
    "NFC": partial(unicodedata.normalize, "NFC"),
    "NFD": partial(unicodedata.normalize, "NFD"),
    "NFKC": partial(unicodedata.normalize, "NFKC"),
    "NFKD": partial(unicodedata.normalize, "NFKD"),
}


@pytest.mark.parametrize("names", ["NFC NFD NFKC NFKD", "LOWERCASE NFKD LOWERCASE NFC", "NFD LOWERCASE NFD"])
def test_forms_of_every_character_are_as_long_as_is_counted(names: str) -> None:
    growth, longest = Growth(), 1
    texts = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    for name in names.split():
        growth.follow(ProgramStep(name, ()) if name == "LOWERCASE" else ProgramStep("UNICODE_NORM", (name,)))
        texts = list(map(CHANGES[name], texts))
        longest = max(longest, *map(len, texts))
    assert longest == growth.times
