"""`if`: a jump where all lanes agree, masks where they do not."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.backend.cpu.emit.control.carry import Merge, choose, settle
from lamella.backend.cpu.emit.control.masks import any_lane, both, masked, others
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.values import RunValue
from lamella.lang.tensor.nodes import If, Region, Value


def emit_if(here: Here, node: If, results: Sequence[Value]) -> list[RunValue]:
    """Write a branch; its results are settled values."""
    condition = here.scalar(node.condition.name)
    varying = [item.name in here.varying for item in results]
    if isinstance(condition.constant, bool):
        taken = node.then if condition.constant else node.otherwise
        return _side(here, taken, varying)
    if condition.is_uniform:
        return _jump(here, condition.operand, node, varying)
    return _diverge(here, condition.operand, node, varying)


def _side(here: Here, region: Region | None, varying: Sequence[bool]) -> list[RunValue]:
    values = here.walk(here, region.statements) if region is not None else ()
    return [settle(here, value, wide) for value, wide in zip(values, varying, strict=bool(varying))]


def _jump(here: Here, condition: str, node: If, varying: Sequence[bool]) -> list[RunValue]:
    out = here.out
    then, otherwise, after = out.label("then"), out.label("else"), out.label("after")
    out.branch(condition, then, otherwise if node.otherwise is not None else after)
    out.begin(then)
    first, from_first = _side(here, node.then, varying), out.block
    out.jump(after)
    if node.otherwise is None:
        out.begin(after)
        return []
    out.begin(otherwise)
    second, from_second = _side(here, node.otherwise, varying), out.block
    out.jump(after)
    out.begin(after)
    merge = Merge(here, first)
    merge.receive(first, from_first)
    merge.receive(second, from_second)
    return merge.close()


def _diverge(here: Here, condition: str, node: If, varying: Sequence[bool]) -> list[RunValue]:
    first = _guarded(here, both(here, here.mask, condition), node.then, varying)
    if node.otherwise is None:
        return []
    second = _guarded(here, both(here, here.mask, others(here, condition)), node.otherwise, varying)
    return [choose(here, condition, one, other) for one, other in zip(first, second, strict=True)]


def _guarded(here: Here, mask: str, region: Region, varying: Sequence[bool]) -> list[RunValue]:
    """Some lanes run a region; where none does it is jumped over, so that a region always has a running lane."""
    out = here.out
    some, after, before = out.label("some"), out.label("none"), out.block
    out.branch(any_lane(here, mask), some, after)
    out.begin(some)
    with masked(here, mask):
        values = _side(here, region, varying)
    end = out.block
    out.jump(after)
    out.begin(after)
    merge = Merge(here, values)
    merge.receive(values, end)
    merge.receive_nothing(before)
    return merge.close()
