"""Checkpointed regions against the stages of a pipeline: E025."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.annotations.reading import read_annotation
from lamella.lang.module.check.views import View, callee_module, find_module, flows_in, own_graph, view_of
from lamella.lang.module.nodes import Annotation, Flow, Name, Operation
from lamella.lang.module.rules.annotated import STAGES

CHECKPOINT, PARTITION = "checkpoint", "partition"
DEEPEST = 50
"""Calls within calls that are followed."""
_Stages = frozenset[int]


def check_stages(view: View, regions: Regions) -> Iterator[Diagnostic]:
    """Regions that are recomputed as one but belong to several stages."""
    module = view.module
    graph = () if module.forward is None else module.forward.annotations
    whole = _checkpoint((*module.annotations, *graph), view)
    if whole is not None:
        yield from _report(whole, regions.of_module(view, 0))
    for flow in flows_in(own_graph(module)):
        found = _checkpoint((*flow.annotations, *_inner(flow)), view)
        if found is not None:
            yield from _report(found, regions.of_flow(flow, view, 0))
    for param in module.tensors:
        found = _checkpoint(param.annotations, view)
        child = view.child(param.path.parts[0].name)
        inner = None if child is None else find_module(child[0].module, child[1])
        if found is not None and inner is not None:
            yield from _report(found, regions.of_module(view_of(*inner), 1))


def _report(annotation: Annotation, stages: _Stages) -> Iterator[Diagnostic]:
    if len(stages) > 1:
        yield STAGES.at(annotation.span, stages=", ".join(map(str, sorted(stages))))


def _inner(flow: Flow) -> list[Annotation]:
    return [item for target in flow.targets for item in target.annotations]


def _checkpoint(annotations: Sequence[Annotation], view: View) -> Annotation | None:
    """The annotation that makes a region; one of granularity `none` makes none."""
    for item in annotations:
        if item.name == CHECKPOINT:
            level = read_annotation(item, {}, view.constants).arguments.get("granularity")
            return None if level == "none" else item
    return None


def _stage(annotations: Sequence[Annotation], view: View) -> _Stages:
    for item in annotations:
        if item.name == PARTITION:
            stage = read_annotation(item, {}, view.constants).arguments.get("stage")
            return frozenset((stage,)) if isinstance(stage, int) else frozenset()
    return frozenset()


class Regions:
    """The stages of statements and modules, each looked up once."""

    def __init__(self) -> None:
        self._modules: dict[int, _Stages] = {}

    def of_module(self, view: View, depth: int) -> _Stages:
        """All stages that a declaration speaks of, in its own graph and in what it calls."""
        key = id(view.module)
        if key not in self._modules:
            self._modules[key] = frozenset()  # what a module that contains itself adds is already counted
            graph = () if view.module.forward is None else view.module.forward.annotations
            found = _stage((*view.module.annotations, *graph), view)
            for flow in flows_in(own_graph(view.module)):
                found |= self.of_flow(flow, view, depth)
            self._modules[key] = found
        return self._modules[key]

    def of_flow(self, flow: Flow, view: View, depth: int) -> _Stages:
        """The stages of a statement: its own, those of its operations, those inside what they call."""
        found = _stage((*flow.annotations, *_inner(flow)), view)
        for step in flow.steps:
            if isinstance(step, Operation):
                found |= _stage(step.annotations, view) | self._of_call(step, view, depth)
        return found

    def _of_call(self, step: Operation, view: View, depth: int) -> _Stages:
        called = callee_module(step, view)
        callee = step.callee
        param = view.params.get(callee.id) if isinstance(callee, Name) else None
        found = frozenset() if param is None else _stage(param[0].annotations, view)
        if called is None or depth >= DEEPEST:
            return found
        return found | self.of_module(view_of(*called), depth + 1)
