"""A stream from the bytes of a file, whichever of the two forms they are."""

from __future__ import annotations

from lamella.base.limits import DEFAULT, Limits
from lamella.plan.stcb.binary import MAGIC, from_bytes
from lamella.plan.stcb.faults import bad_stream
from lamella.plan.stcb.json import from_json
from lamella.plan.stcb.nodes import Stream


def read_stream(data: bytes, limits: Limits = DEFAULT) -> Stream:
    """The stream of a file; bytes that begin with the magic are binary, all others must be JSON in UTF-8."""
    if data.startswith(MAGIC):
        return from_bytes(data, limits)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise bad_stream(f"this is neither STCB nor UTF-8 (at byte {problem.start})") from None
    return from_json(text, limits)
