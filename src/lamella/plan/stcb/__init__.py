"""STCB, our documented task-control stream: its nodes, its two written forms, its listing and its proof."""

from lamella.plan.stcb.binary import from_bytes, to_bytes
from lamella.plan.stcb.json import from_json, to_json
from lamella.plan.stcb.listing import list_stream
from lamella.plan.stcb.nodes import Stream
from lamella.plan.stcb.read import read_stream
from lamella.plan.stcb.validate import validate_stream
from lamella.plan.stcb.verify import verify_stream

__all__ = [
    "Stream",
    "from_bytes",
    "from_json",
    "list_stream",
    "read_stream",
    "to_bytes",
    "to_json",
    "validate_stream",
    "verify_stream",
]
