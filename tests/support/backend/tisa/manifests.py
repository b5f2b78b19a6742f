"""Small tokenizers from instructions and a vocabulary."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from lamella.backend.tisa import ManifestTokenizer, load_tokenizer
from lamella.lang.nac.assembly.nodes import ProgramStep, StepOperand
from lamella.lang.nac.assembly.programs import encode_manifest
from lamella.lang.nac.nodes import File, Resource

Given = tuple[str, *tuple[StepOperand, ...]]


def file_of(steps: Sequence[Given], ids: dict[str, int], merges: Sequence[str] = ()) -> File:
    """A file with a manifest, `vocab.json` and `merges.txt`."""
    manifest = encode_manifest([ProgramStep(name, tuple(operands)) for name, *operands in steps])
    resources = [Resource("vocab.json", json.dumps(ids).encode())]
    resources += [Resource("merges.txt", "\n".join(["#version: 0.2", *merges]).encode())] if merges else []
    return File(manifest=manifest, resources=tuple(resources))


def tokenizer(steps: Sequence[Given], words: str, merges: Sequence[str] = ()) -> ManifestTokenizer:
    """A tokenizer whose tokens are these words, with ids in order."""
    return load_tokenizer(file_of(steps, {word: place for place, word in enumerate(words.split())}, merges))


def tokens(made: ManifestTokenizer, text: str) -> list[str | None]:
    """The tokens of a text."""
    return [made.token_of(number) for number in made.encode(text)]


def text16(text: str) -> bytes:
    """A text behind its length."""
    return struct.pack("<H", len(text.encode())) + text.encode()


def tables(vocabulary: dict[str, int], merges: list[list[str]]) -> tuple[Resource, ...]:
    """`vocab.b`, `vidx.b` and `merges.b`."""
    data, offsets = b"", dict[int, int]()
    for token in sorted(vocabulary, key=str.encode):
        offsets[vocabulary[token]] = len(data)
        data += text16(token) + struct.pack("<if", vocabulary[token], 0.0)
    count = len(vocabulary)
    places = struct.pack(f"<I{count}I", count, *offsets.values())
    index = struct.pack(f"<I{count}I", count, *(offsets[number] for number in range(count)))
    pairs = b"".join(text16(word) for pair in merges for word in pair)
    return (
        Resource("vocab.b", places + data),
        Resource("vidx.b", index),
        Resource("merges.b", struct.pack("<I", len(merges)) + pairs),
    )
