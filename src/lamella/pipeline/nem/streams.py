"""Bound streams in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import read_bytes, shown
from lamella.base.source import NOWHERE, Source, Span
from lamella.base.writer import write_bytes, write_text
from lamella.plan.stcb import Stream, read_stream, to_bytes, to_json


def load_stream(path: Path, limits: Limits) -> Stream:
    """The stream of a file, which findings about its bytes name."""
    try:
        return replace(read_stream(read_bytes(path, limits), limits), path=path)
    except LamellaError as problem:
        start = Span(Source(shown(path), ""), 0, 0)
        placed = [replace(item, span=start) if item.span == NOWHERE else item for item in problem.findings]
        raise LamellaError(placed) from None


def save_stream(stream: Stream, path: Path) -> None:
    """Write a stream by the ending of the path: .stcb is binary, .json is text."""
    if path.suffix == ".stcb":
        write_bytes(path, to_bytes(stream))
    elif path.suffix == ".json":
        write_text(path, to_json(stream))
    else:
        raise InputError(
            f"'{path.name}' is no ending for a stream", hint="streams are written as .stcb or .json"
        )
