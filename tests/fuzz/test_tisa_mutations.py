"""Mutated manifests and vocabularies: any bytes give a tokenizer or clean findings, in time that grows with the text.

`make fuzz` walks new cases: a failure names its own, and `LAMELLA_SEED=… LAMELLA_CASE=…` walks that one alone.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from lamella.backend.tisa import load_tokenizer
from lamella.base.diagnostic import LamellaError
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.lang.nac.nodes import File, Resource
from tests.bridge.test_tokenizer_to_nac import ours_of
from tests.support.backend.tisa.manifests import Given, file_of, tables, text16
from tests.support.bridge.tokenizer_corpus import lines
from tests.support.bridge.tokenizer_kinds import KINDS, trained
from tests.support.watch import watched

NEW = str(time.time_ns()) if "LAMELLA_FUZZ" in os.environ else "250"
SEED = os.environ.get("LAMELLA_SEED", NEW)
CASE = os.environ.get("LAMELLA_CASE", "")
SHARES = 4
LEAST = 4_000
SECONDS, MEBIBYTES = 5, 300
TEXTS = ("", "aab ba  <s>b\n", "É'S 12" + "a" * 200, "ab " * 100)
PATTERNS = (
    "(a+)+$",
    r"\p{L}+|\s+",
    "(a|a)*b|a",
    r"[^\s]{1,3}",
    "(?i:ab)?b",
    "",
    "(a?){20}",
    r"\s+(?!\S)|.",
    "<s>",
)
REPEATED = tuple(
    bytes([code]) + len(payload).to_bytes(4, "little") + payload
    for code, payload in (
        *((0x01, b""), (0x15, b""), (0x02, b"\4NFKC"), (0x02, b"\3NFD")),
        *((0x03, text16("a") + text16("É")), (0x03, text16("É") + text16("aa")), (0x07, text16("b"))),
        *((0x81, b"\1\0" + text16("a")), (0x80, b"\1\0\x09\3\0\0\0" + text16("ab"))),
        (0x10, b"\1\0\1" + text16("b")),
    )
)
"""Instructions that a manifest may have many times."""
IDS = {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "aa": 4, "aab": 5, "##b": 6, "▁": 7, "<s>": 8}


@cache
def seeds() -> tuple[File, ...]:
    """Small files of every kind, and one with every instruction."""
    steps: list[Given] = [
        ("ADDED_TOKENS", (1, 8, "<s>"), (14, 9, "b")),
        ("UNICODE_NORM", "NFKC"),
        ("REPLACE_PATTERN", 0, "a+b", "▁"),
        ("PARTITION_RULES", (1, "<s>"), (0, r"\p{L}+"), (6, r"\s", 1, "a")),
        ("SPLIT", 3, 0, "[ab]"),
        ("PREPEND_WHERE", 2, "▁"),
        ("ENCODE_OPTIONS", 3, 100, "<unk>", ""),
    ]
    ends: list[Given] = [("COMPOSE", 1, (), "<s>"), ("DECODE_FALLBACK",), ("DECODE_STRIP", "a", 1, 0)]
    encoders: list[Given] = [("BPE_ENCODE",), ("WORDPIECE_ENCODE", "##"), ("UNIGRAM_ENCODE",)]
    own = [file_of([*steps, encoder, *ends], IDS) for encoder in encoders]
    return tuple(
        replace(file, resources=tables(IDS, [["a", "b"], ["a", "a"]])) for file in [*own, *map(small, KINDS)]
    )


def small(kind: str) -> File:
    """The manifest of a kind; the vocabulary is another."""
    document = json.loads(trained(kind).to_str())
    vocabulary = document["model"]["vocab"]
    few = dict(list(vocabulary.items())[:8]) if isinstance(vocabulary, dict) else vocabulary[:8]
    document["model"] |= {"vocab": few, "merges": []}
    return File(manifest=tokenizer_to_nac(json.dumps(document).encode()).manifest)


def mutate(data: bytes, random: Random) -> bytes:
    """Bytes that are set, cut, doubled or moved, a pattern in front of them, or an instruction again and again."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at, end = sorted(random.randint(0, len(changed)) for _ in range(2))
        kind = random.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] = random.choice((0, 1, 2, 0x10, 0x20, 0x80, 0xFF, random.randrange(256)))
        elif kind == 1:
            del changed[at : min(end, at + 8)]
        elif kind == 2:
            changed[at:at] = changed[at : min(end, at + 16)]
        elif kind == 3:
            pattern = random.choice(PATTERNS).encode()
            rule = b"\1\0\0" + len(pattern).to_bytes(2, "little") + pattern
            changed[5:5] = b"\x10" + len(rule).to_bytes(4, "little") + rule
        elif kind == 4:
            changed[5:5] = random.choice(REPEATED) * random.choice((1, 2, 3, 20, 300))
        else:
            changed[at:end] = bytes(random.randrange(256) for _ in range(random.randint(0, 4)))
    return bytes(changed)


def mutant(random: Random) -> File:
    """A seed with another manifest, or other resources."""
    file = random.choice(seeds())
    if random.random() < 0.8:
        return replace(file, manifest=mutate(bytes(file.manifest), random))
    place = random.randrange(len(file.resources))
    broken = Resource(file.resources[place].name, mutate(bytes(file.resources[place].data), random))
    return replace(file, resources=(*file.resources[:place], broken, *file.resources[place + 1 :]))


def walk(file: File) -> str:
    """What comes of a file: its finding, or nothing."""
    try:
        made = load_tokenizer(file)
        for text in TEXTS:
            made.decode(made.encode(text))
    except LamellaError as problem:
        return problem.findings[0].code
    return ""


@pytest.mark.parametrize("share", range(SHARES))
def test_mutated_manifests(share: int, mutations: int) -> None:
    seen: Counter[str] = Counter()
    failures: dict[str, str] = {}
    count = max(mutations, LEAST)
    for number in range(share, count, SHARES) if not CASE else [int(CASE)] * (share == 0):
        file = mutant(Random(f"{SEED}:{number}"))
        try:
            with watched(SECONDS, MEBIBYTES):
                seen[walk(file)] += 1
        except Exception:  # noqa: BLE001
            words = traceback.format_exc(limit=-3)
            failures.setdefault(words, f"LAMELLA_SEED={SEED} LAMELLA_CASE={number}\n{words}")
    assert not failures, "\n".join(list(failures.values())[:5])
    assert CASE or {"", "NAC164", "NAC253"} <= seen.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_many_lines_have_the_ids_of_the_package(kind: str, mutations: int) -> None:
    judge, ours = trained(kind), ours_of(trained(kind))
    for line in lines(mutations // 10, seed=int(SEED[-9:])):
        ids = judge.encode(line).ids
        assert ours.encode(line) == ids, f"LAMELLA_SEED={SEED}: {line!r}"
        assert ours.decode(ids) == judge.decode(ids), f"LAMELLA_SEED={SEED}: {line!r}"
