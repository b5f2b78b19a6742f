"""Which names the statements of a backward graph read, and which of them they may not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.bridge.module_to_graph.backward.saving import Saving
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.statements.order import Folding
from lamella.bridge.module_to_graph.values import SAVED, find_name
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.telling import parts_of
from lamella.lang.module.nodes import Flow, Member, Name, Operation, Rest, Subscript
from lamella.lang.module.rules import gradients


def read_names(flow: Flow) -> Iterator[Name]:
    """The names that a statement reads without `saved.`."""
    todo: list[Subscript] = list(flow.sources)
    for step in flow.steps:
        if isinstance(step, Operation):
            todo += [argument.value for argument in step.arguments]
    while todo:
        item = todo.pop()
        if isinstance(item, Name):
            yield item
        elif not isinstance(item, Rest) and not _is_saved(item):
            todo += parts_of(item)


def _is_saved(item: object) -> bool:
    return isinstance(item, Member) and isinstance(item.operand, Name) and item.operand.id == SAVED


def bare_names(flows: Sequence[Flow]) -> set[str]:
    """All names that statements read without `saved.`."""
    return {name.id for flow in flows for name in read_names(flow)}


def check_reads(
    folding: Folding, frame: Frame, forward: Mapping[str, Tensor], saving: Saving
) -> Iterator[tuple[Diagnostic, str]]:
    """Forward tensors that are read but not there, each with its name."""
    made = {target.name for flow in (*folding.flows, *folding.recomputed) for target in flow.targets}
    inputs = {port.name or "in" for port, _ in saving.visit.inputs}
    for flows, again in ((folding.recomputed, True), (folding.flows, False)):
        for flow in flows:
            for name in read_names(flow):
                known = name.id in made or find_name(name.id, frame) or name.id not in forward
                if known or (name.id in inputs and name.id in saving.available):
                    continue
                yield _missing(name, flow, again, saving), name.id


def _missing(name: Name, flow: Flow, again: bool, saving: Saving) -> Diagnostic:
    if again:
        return gradients.NOT_DERIVABLE.at(name.span, name=flow.targets[0].name, leaf=name.id)
    there = name.id in saving.available
    repair = f"read it as saved.{name.id}" if there else f"add '{name.id}' to save:, and read saved.{name.id}"
    return gradients.NOT_SAVED.at(name.span, name=name.id, module=saving.visit.frame.name, repair=repair)
