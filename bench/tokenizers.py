"""Measure tokenizers: lines of many scripts, one by one, beside the package `tokenizers` on one thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from tokenizers import Tokenizer as Peer

from bench.measuring import row
from lamella.backend.tisa import load_tokenizer
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.lang.nac.nodes import File
from tests.support.bridge.tokenizer_corpus import lines
from tests.support.bridge.tokenizer_kinds import KINDS, trained

LINES, ROUNDS = 10_000, 3
TARGET = 0.3


def seconds(encode: Callable[[str], object], texts: Sequence[str]) -> float:
    """CPU seconds for all texts."""
    start = time.process_time()
    for text in texts:
        encode(text)
    return time.process_time() - start


def measure_kind(kind: str, texts: Sequence[str]) -> None:
    """One tokenizer: new to the lines, and when it has seen them."""
    source = trained(kind).to_str()
    parts = tokenizer_to_nac(source.encode())
    firsts, agains = [], []
    for _ in range(ROUNDS):
        peer = Peer.from_str(source)
        ours = load_tokenizer(File(manifest=parts.manifest, resources=parts.resources))
        firsts.append((seconds(ours.encode, texts), seconds(peer.encode, texts)))
        agains.append((seconds(ours.encode, texts), seconds(peer.encode, texts)))
    if any(ours.encode(text) != peer.encode(text).ids for text in texts):
        raise SystemExit(f"{kind}: the ids are not those of the package")
    for what, times in (("new lines", firsts), ("known lines", agains)):
        mine, theirs = (min(column) for column in zip(*times, strict=True))
        told = f"tokenizers {LINES / theirs / 1000:.0f}: {theirs / mine:.2f} of its speed, at least {TARGET} asked"
        row(f"{kind}, {what}", f"{LINES / mine / 1000:.0f} lines/ms", told)


def measure() -> None:
    """Every kind."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = lines(LINES, seed=6)
    for kind in KINDS:
        measure_kind(kind, texts)
