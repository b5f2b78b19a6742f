"""What is wrong with a stream, as the one finding that every reader of streams raises."""

from __future__ import annotations

from lamella.base.diagnostic import LamellaError
from lamella.base.source import NOWHERE
from lamella.lang.nem.rules import BAD_STREAM


def bad_stream(problem: str) -> LamellaError:
    """The error of a stream that cannot be taken."""
    return LamellaError([BAD_STREAM.at(NOWHERE, problem=problem)])
