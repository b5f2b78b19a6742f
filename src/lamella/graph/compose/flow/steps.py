"""What every loop starts from: the packs it scans and the values it carries."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from lamella.base.dim import Extent
from lamella.graph.compose.scope.frame import Frame
from lamella.graph.compose.types import give_type
from lamella.graph.compose.values import describe
from lamella.graph.nodes import Pack
from lamella.lang.skriptnd.nodes import Block, Carried, Invocation, Loop, Scan
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.problem import Problem

Scanned: TypeAlias = tuple[object, ...] | Pack


class Steps(NamedTuple):
    """The packs that a loop scans, and how long they are; None where it scans nothing."""

    packs: tuple[Scanned, ...]
    length: Extent | None


def scan(frame: Frame, loop: Loop) -> Steps:
    """The packs of a loop's `for`, all of one length."""
    packs = tuple(_scanned(frame, item) for item in loop.scans)
    lengths = list(dict.fromkeys(item.size if isinstance(item, Pack) else len(item) for item in packs))
    if len(lengths) > 1:
        words = " and ".join(str(item) for item in lengths)
        raise Problem(rules.SCANS_DIFFER.at(loop.span, lengths=words))
    return Steps(packs, lengths[0] if lengths else None)


def _scanned(frame: Frame, item: Scan) -> Scanned:
    value = frame.value(item.value)
    if isinstance(value, tuple | Pack):
        return value
    raise Problem(
        rules.WRONG_VALUE.at(
            item.span, what=f"what '{item.name}' scans", found=describe(value), wanted="a pack"
        )
    )


def start_value(frame: Frame, item: Carried) -> object:
    """What a carried name means at the start; with a type, a scalar fills a tensor of that type."""
    value = frame.value(item.value)
    return value if item.type is None else give_type(frame, value, item.type, item.name)


def label_of(loop: Loop, label: str | None) -> str | None:
    """The automatic label of a loop is its body's, unless its condition is a call as well."""
    tests = [item for item in (loop.before, loop.after) if isinstance(item, Invocation | Block)]
    return None if tests and isinstance(loop.body, Invocation | Block) else label
