"""The resources of a tokenizer: tokens, their index, merges and scores as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lamella.bridge.tokenizer_to_nac.models import Tables
from lamella.lang.nac.nodes import Resource

LONGEST = 65535


def write_tables(tables: Tables) -> tuple[Resource, ...]:
    """`vocab.b` and `vidx.b`; `merges.b` where there are merges, `scores.b` with the scores in double precision."""
    return tuple(Resource(name, data) for name, data in _tables(tables))


def _tables(tables: Tables) -> Iterator[tuple[str, bytes]]:
    scores = tables.scores or {}
    records, offsets, by_id = bytearray(), list[int](), dict[int, int]()
    for token in sorted(tables.ids, key=lambda text: text.encode("utf-8")):
        offsets.append(len(records))
        by_id[tables.ids[token]] = len(records)
        records += _text(token) + struct.pack("<if", tables.ids[token], scores.get(token, 0.0))
    yield "vocab.b", _list("I", offsets) + records
    yield "vidx.b", _list("I", [by_id.get(number, 0) for number in range(max(by_id, default=-1) + 1)])
    if tables.merges:
        pairs = b"".join(_text(first) + _text(second) for first, second in tables.merges)
        yield "merges.b", struct.pack("<I", len(tables.merges)) + pairs
    if tables.scores is not None:
        yield "scores.b", _list("d", list(scores.values()))


def _list(code: str, values: list[int] | list[float]) -> bytes:
    return struct.pack(f"<I{len(values)}{code}", len(values), *values)


def _text(token: str) -> bytes:
    data = token.encode("utf-8")
    return struct.pack("<H", len(data)) + data
