"""What `@fuse`, `@fuse_required`, `@nofuse`, `@kernel` and hooks that change a tensor say of fusion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lamella.bridge.module_to_graph.nodes import BuiltStep, Mark
from lamella.graph.model import FusionHint
from lamella.lang.module.check import PATTERNS, plain
from lamella.lang.module.rules.annotated import FUSION

CHANGING = ("modify", "replace")
"""The modes of hooks that change what they are given: nothing is fused across one."""


def fusion_hints(marks: Iterable[Mark]) -> tuple[FusionHint, ...]:
    """The hints of a graph, in the order of their annotations."""
    return tuple(dict.fromkeys(hint for mark in marks for hint in _hints(mark)))


def _hints(mark: Mark) -> Iterator[FusionHint]:
    name, arguments = mark.annotation.name, mark.arguments
    if name == "hook" and arguments.get("mode") in CHANGING:
        yield FusionHint(frozenset((mark.tensor.name,)), is_apart=True, reason="a hook changes its result")
    elif name == "nofuse":
        reason = arguments.get("reason")
        said = f"@nofuse: {reason}" if isinstance(reason, str) else "@nofuse"
        yield FusionHint(_made(_last(mark)), is_apart=True, reason=said)
    elif name == "kernel":
        word = str(arguments.get("name"))
        made = _made(_last(mark))
        yield FusionHint(made, is_apart=True, is_together=True, kernel=word, reason=f"@kernel({word})")
    elif name in ("fuse", "fuse_required"):
        yield from _fused(mark)


def _fused(mark: Mark) -> Iterator[FusionHint]:
    steps = _chosen(mark)
    refused = None
    if mark.annotation.name == "fuse_required":
        pattern = mark.arguments.get("pattern") or ", ".join(item.name for item in steps)
        why, repair = "it is required, and cannot be one group here", "@fuse is a wish, and may be ignored"
        refused = FUSION.at(mark.annotation.span, name=pattern, why=why, repair=repair)
    wide = mark.arguments.get("scope") == "global" and refused is None
    reason = f"@{mark.annotation.name}"
    yield FusionHint(_made(steps), is_together=not wide, is_free=wide, reason=reason, refused=refused)


def _last(mark: Mark) -> Sequence[BuiltStep]:
    """The operation that makes an annotated tensor."""
    return mark.steps[-1:] or (BuiltStep("", (mark.tensor.name,)),)


def _made(steps: Iterable[BuiltStep]) -> frozenset[str]:
    return frozenset(name for item in steps for name in item.tensors)


def _chosen(mark: Mark) -> Sequence[BuiltStep]:
    """The operations of a statement that a pattern or a list names; all of them where it names none by themselves."""
    pattern, ops = mark.arguments.get("pattern"), mark.arguments.get("ops")
    wanted: Sequence[frozenset[str]] = PATTERNS.get(pattern, ()) if isinstance(pattern, str) else ()
    if isinstance(ops, tuple):
        wanted = [frozenset((plain(str(item)),)) for item in ops]
    names = [plain(item.name) for item in mark.steps]
    for start in range(len(names) - len(wanted) + 1 if wanted else 0):
        if all(names[start + number] in item for number, item in enumerate(wanted)):
            return mark.steps[start : start + len(wanted)]
    return mark.steps
