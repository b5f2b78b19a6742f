"""Regions of a model that annotations name: statements, instances, whole declarations; what each makes of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lamella.bridge.module_to_graph import Compiled
from lamella.graph.model import ProfiledRegion
from lamella.graph.nodes import Operation
from lamella.graph.rewrite import results_of
from lamella.lang.module.annotations import ArgumentValue, read_annotation
from lamella.lang.module.instantiate import Instance, children
from lamella.lang.module.nodes import Annotation

PROFILE = "profile"


@dataclass(frozen=True, slots=True)
class AnnotatedRegion:
    """An annotation on a region of a model, with the operations of the graph that it speaks of."""

    path: str
    annotation: Annotation
    arguments: Mapping[str, ArgumentValue]
    nodes: tuple[Operation, ...]
    is_statement: bool = True


def find_regions(name: str, compiled: Compiled, root: Instance) -> Iterator[AnnotatedRegion]:
    """The regions that annotations of a name stand on, those of statements first."""
    nodes = () if compiled.model is None else tuple(compiled.model.graph.operations())
    makers = {item.name: number for number, node in enumerate(nodes) for item in results_of(node)}
    seen: set[tuple[str, int]] = set()
    for mark in compiled.marks:
        # A statement of several results has a mark on each.
        key = mark.path.rpartition(".")[0], mark.annotation.span.start
        if mark.annotation.name == name and mark.steps and key not in seen:
            seen.add(key)
            made = {makers[item] for step in mark.steps for item in step.tensors if item in makers}
            inside = tuple(nodes[number] for number in sorted(made))
            yield AnnotatedRegion(mark.path, mark.annotation, mark.arguments, inside)
    for path, annotation, owner in _annotated(name, root):
        arguments = read_annotation(annotation, owner.values).arguments
        inside = tuple(node for node in nodes if not path or path_of(node).startswith(f"{path}."))
        yield AnnotatedRegion(path, annotation, arguments, inside, is_statement=False)


def path_of(node: Operation) -> str:
    """Where in the model an operation stands."""
    return "" if node.origin is None else node.origin.what


def _annotated(name: str, root: Instance) -> Iterator[tuple[str, Annotation, Instance]]:
    """The annotations of a name on declarations, graphs and instances, with the paths of what they stand on."""
    todo = [("", root)]
    while todo:
        path, current = todo.pop()
        module = current.module
        own = (*module.annotations, *(module.forward.annotations if module.forward is not None else ()))
        yield from ((path, item, current) for item in own if item.name == name)
        given = {item.path.parts[0].name: item.annotations for item in module.tensors if item.annotations}
        for child, instance in reversed(list(children(current))):
            below = f"{path}.{child}" if path else child
            words = given.get(child.partition("[")[0], ())
            yield from ((below, item, current) for item in words if item.name == name)
            todo.append((below, instance))


def profiled_regions(compiled: Compiled, root: Instance) -> tuple[ProfiledRegion, ...]:
    """What `@profile` wants to be told of."""
    return tuple(
        ProfiledRegion(
            str(item.arguments.get("name")),
            item.path,
            frozenset(map(path_of, item.nodes)),
            item.arguments.get("memory") is True,
            item.arguments.get("cuda_events") is not False,
            item.arguments.get("nvtx") is not False,
        )
        for item in find_regions(PROFILE, compiled, root)
    )
