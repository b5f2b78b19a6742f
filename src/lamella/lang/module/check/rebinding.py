"""Names that statements bind a second time: E017."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, Label
from lamella.lang.module.nodes import Bool, Flow, Operation
from lamella.lang.module.rules.graphs import REBOUND

DROPPED = "_"
"""The name of a result that is not kept."""


def find_rebound(flows: Iterable[Flow], taken: set[str]) -> Iterator[Diagnostic]:
    """Names that are bound a second time; a gradient of a parameter may be added to."""
    first: dict[str, Flow] = {}
    for flow in flows:
        for target in flow.targets:
            name = target.name
            if name == DROPPED or (name in first and accumulates(flow)):
                continue
            if name in first or name in taken:
                labels = [Label(first[name].span, "bound here first")] if name in first else []
                yield REBOUND.at(target.span, labels=labels, name=name)
            first.setdefault(name, flow)


def drop_rebound(flows: Sequence[Flow], found: Iterable[Diagnostic]) -> list[Flow]:
    """The statements without the bindings that were found to be second ones: each name has one maker."""
    places = {(item.span.start, item.span.end) for item in found}
    if not places:
        return list(flows)
    return [
        replace(
            flow,
            targets=tuple(
                replace(target, name=DROPPED) if (target.span.start, target.span.end) in places else target
                for target in flow.targets
            ),
        )
        for flow in flows
    ]


def accumulates(flow: Flow) -> bool:
    """Whether a statement adds to the gradient that it writes."""
    last = flow.steps[-1] if flow.steps else None
    if not isinstance(last, Operation) or not flow.targets[0].name.startswith("d_"):
        return False
    return any(argument.name == "accumulate" and argument.value != Bool(False) for argument in last.arguments)
