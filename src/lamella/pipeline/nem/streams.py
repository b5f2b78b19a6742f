"""Bound streams in files."""

from __future__ import annotations

from pathlib import Path

from lamella.base.errors import InputError
from lamella.base.writer import write_bytes, write_text
from lamella.plan.stcb import Stream, to_bytes, to_json


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
