"""Annotations with their values, and the memory modes that they and `save:` and `recompute:` give to tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from itertools import chain
from re import Pattern, compile

from lamella.base.dim import Dim
from lamella.base.errors import Found
from lamella.bridge.module_to_graph.nodes import Compiled, Mark
from lamella.bridge.module_to_ir.nodes import Annotation, Json
from lamella.graph.model import Streaming
from lamella.graph.nodes import Operation
from lamella.graph.rewrite import members
from lamella.lang.module import nodes as n
from lamella.lang.module.annotations import ArgumentValue, read_annotation
from lamella.lang.module.instantiate import Instance, Known, children
from lamella.lang.module.instantiate.evaluate import evaluate_bool
from lamella.lang.module.instantiate.nodes import DictValue
from lamella.lang.module.nodes import Expr, Selection
from lamella.lang.module.write.expressions import write_expression


def resolve_annotation(annotation: n.Annotation, known: Mapping[str, Known]) -> Annotation:
    """An annotation with all its arguments, those that are left out with their defaults."""
    return _resolved(annotation.name, read_annotation(annotation, known).arguments)


def _resolved(name: str, arguments: Mapping[str, ArgumentValue]) -> Annotation:
    return Annotation(name, {key: plain(value) for key, value in arguments.items()})


def resolve_annotations(
    annotations: Iterable[n.Annotation], known: Mapping[str, Known]
) -> tuple[Annotation, ...]:
    """Several annotations."""
    return tuple(resolve_annotation(item, known) for item in annotations)


def plain(value: ArgumentValue) -> Json:
    """A value of the language as a value of a file; what no file can say is its text."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, DictValue):
        return {key: plain(item) for key, item in value.entries}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if isinstance(value, Dim) else write_expression(value)


class Marks:
    """The marks of a compilation, by tensor."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self.all = tuple((mark, _resolved(mark.annotation.name, mark.arguments)) for mark in marks)
        self._by_tensor: dict[str, list[Annotation]] = {}
        for mark, resolved in self.all:
            self._by_tensor.setdefault(mark.tensor.name, []).append(resolved)

    def on(self, tensor: str) -> tuple[Annotation, ...]:
        """The annotations of a tensor."""
        return tuple(self._by_tensor.get(tensor, ()))

    def argument(self, tensor: str, annotation: str, argument: str) -> Json:
        """The argument of the last annotation of that name on a tensor; None where there is none."""
        found = [item for item in self.on(tensor) if item.name == annotation]
        return found[-1].arguments.get(argument) if found else None


SAVE, RECOMPUTE, TEMPORARY, PIN = "save", "recompute", "temporary", "pin"
OFFLOAD = "offload"
MOVED = (OFFLOAD, "stream")
"""Modes of what lies outside of the memory of a run until it is read."""
KEPT = (SAVE, PIN, *MOVED)
"""Modes of activations that are still there when the forward pass is over."""
MEMORY, CHECKPOINT, PARTITION = "memory", "checkpoint", "partition"
GRADIENT, LIFETIME = "gradient", "lifetime"
_TensorsByName = Mapping[str, list[str]]
"""The names that one instance binds, each with its tensors."""
_NamesByOwner = Mapping[str, _TensorsByName]
_Owners = Sequence[tuple[str, Instance]]


def find_memory_modes(
    compiled: Compiled, instance: Instance, saved: Iterable[str] = (), seeds: Iterable[str] = ()
) -> dict[str, str]:
    """The mode of each tensor that has one of its own, strongest word first; all others are temporary.

    `saved` are tensors that a derived backward pass reads, `seeds` the inputs where that begins.
    """
    names = _by_owner(compiled)
    marks = Marks(compiled.marks).all
    modes: dict[str, str] = {}
    for mark, resolved in marks:
        if resolved.name == MEMORY:
            modes[mark.tensor.name] = str(resolved.arguments.get("mode", SAVE))
    for mark, resolved in marks:
        if resolved.name == GRADIENT and resolved.arguments.get("mode") == CHECKPOINT:
            modes.setdefault(mark.tensor.name, RECOMPUTE)
    owners = list(_instances(instance))
    regions = _regions(compiled, owners, names, seeds)
    rungs = (
        ((name, SAVE) for region in regions for name in region.kept),
        ((name, RECOMPUTE) for region in regions for name in region.replayed),
        _listed(owners, names),
        ((mark.tensor.name, _lasting(item)) for mark, item in marks if item.name == LIFETIME),
    )
    for tensor, mode in chain(*rungs):
        modes.setdefault(tensor, mode)
    for tensor in saved:
        modes.setdefault(tensor, SAVE)
    return modes


def find_replayed(compiled: Compiled, instance: Instance) -> frozenset[str]:
    """What the operations of regions with a `@checkpoint` make, whether or not something else keeps it."""
    regions = _regions(compiled, list(_instances(instance)), _by_owner(compiled))
    return frozenset(name for region in regions for name in region.replayed)


def find_pinned(compiled: Compiled) -> frozenset[str]:
    """The tensors that `@memory` itself keeps in memory: they are no candidates for offloading."""
    marks = Marks(compiled.marks).all
    said = ((mark.tensor.name, item) for mark, item in marks if item.name == MEMORY)
    return frozenset(name for name, item in said if item.arguments.get("mode", SAVE) in (SAVE, PIN))


def find_streams(compiled: Compiled) -> dict[str, Streaming]:
    """How tensors that `@memory` moves out of memory come and go; parameters go by themselves, others where kept."""
    found: dict[str, Streaming] = {}
    for mark, resolved in Marks(compiled.marks).all:
        arguments = resolved.arguments
        mode, priority = arguments.get("mode"), arguments.get("priority")
        if resolved.name == MEMORY and mode in MOVED:
            found[mark.tensor.name] = Streaming(
                mode == OFFLOAD,
                priority if isinstance(priority, int) else 0,
                arguments.get("prefetch") is not False,
                arguments.get("async") is False,
            )
    return found


def _lasting(lifetime: Annotation) -> str:
    """The mode of a tensor whose life is said: one that ends on the way forward is not there on the way back."""
    return SAVE if lifetime.arguments.get("scope") == "global" else RECOMPUTE


def _by_owner(compiled: Compiled) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for path, tensor in compiled.names:
        owner, _, name = path.rpartition(".")
        found.setdefault(owner, {}).setdefault(name, []).append(tensor.name)
    return found


def _instances(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """Every instance with its path, those inside before those around them."""
    found: list[tuple[str, Instance]] = []
    todo = [("", instance)]
    while todo:
        path, current = todo.pop()
        found.append((path, current))
        todo += [(f"{path}.{name}" if path else name, child) for name, child in children(current)]
    return reversed(found)


# --- checkpoints ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Region:
    """What a `@checkpoint` keeps, and what it lets be computed again."""

    kept: tuple[str, ...]
    replayed: tuple[str, ...] = ()


def _regions(
    compiled: Compiled, owners: _Owners, names: _NamesByOwner, seeds: Iterable[str] = ()
) -> list[_Region]:
    """The regions of all checkpoints, those of statements first."""
    return [*_statement_regions(compiled, names), *_instance_regions(compiled, owners, names, set(seeds))]


def _statement_regions(compiled: Compiled, names: _NamesByOwner) -> Iterator[_Region]:
    """The region of each statement that has a `@checkpoint`: its operations, and all that they call."""
    for mark, resolved in Marks(compiled.marks).all:
        if resolved.name == CHECKPOINT:
            made = {name for step in mark.steps for name in step.tensors}
            nodes = [node for node in _operations(compiled) if any(name in made for name in _made(node))]
            yield _region(resolved, nodes, names.get(mark.path.rpartition(".")[0], {}))


def _instance_regions(
    compiled: Compiled, owners: _Owners, names: _NamesByOwner, seeds: set[str]
) -> Iterator[_Region]:
    """The region of each instance that has a `@checkpoint`, without those inside it that have one of their own."""
    annotations = _annotated(owners, CHECKPOINT)
    inside: dict[str, list[Operation]] = {path: [] for path in annotations}
    late = set(seeds)
    for node in _operations(compiled) if annotations else ():
        if any(item.name in late for item in members(node.inputs)):
            late |= set(_made(node))
            continue
        path = _innermost(node, annotations)
        if path in annotations:
            inside[path].append(node)
    for path, nodes in inside.items():
        yield _region(annotations[path], nodes, names.get(path, {}))


def _innermost(node: Operation, annotations: Mapping[str, Annotation]) -> str:
    """The path of the instance with an annotation that an operation is in; empty for the whole."""
    path = "" if node.origin is None else node.origin.what
    while path and path not in annotations:
        path = path.rpartition(".")[0]
    return path


def find_stages(compiled: Compiled, instance: Instance) -> dict[str, Annotation]:
    """The `@partition` of each tensor: that of its statement, of the nearest one around it, or of its instance."""
    found: dict[str, Annotation] = {}
    for mark, resolved in Marks(compiled.marks).all:
        if resolved.name == PARTITION:
            for name in (name for step in mark.steps for name in step.tensors):
                found.setdefault(name, resolved)
    annotations = _annotated(list(_instances(instance)), PARTITION)
    for node in _operations(compiled) if annotations else ():
        path = _innermost(node, annotations)
        for name in _made(node) if path in annotations else ():
            found.setdefault(name, annotations[path])
    return found


def _region(annotation: Annotation, nodes: Sequence[Operation], names: _TensorsByName) -> _Region:
    """What flows into the operations of a region is kept, as is what it preserves by name.

    A region without checkpoints keeps what it makes, though one around it has them.
    """
    listed = annotation.arguments.get("preserve")
    kept = [
        tensor
        for name in (listed if isinstance(listed, tuple) else ())
        for tensor in names.get(str(name), ())
    ]
    granularity = annotation.arguments.get("granularity")
    made = dict.fromkeys(name for node in nodes for name in _made(node))
    if granularity == "none":
        return _Region((*kept, *made))
    # A selective region whose list says what to preserve lets the rest be computed again; one without a list leaves
    # that to the marks of single tensors.
    if granularity != "full" and not (granularity == "selective" and listed):
        return _Region(tuple(kept))
    given = dict.fromkeys(
        item.name for node in nodes for item in members(node.inputs) if item.name not in made
    )
    return _Region((*kept, *given), tuple(made))


def _operations(compiled: Compiled) -> Iterator[Operation]:
    return iter(()) if compiled.model is None else compiled.model.graph.operations()


def _made(node: Operation) -> Iterator[str]:
    return (item.name for item in members(node.outputs))


def _annotated(owners: _Owners, kind: str) -> dict[str, Annotation]:
    """The annotation of a kind of each instance that has one: where it is declared, or made, which counts more."""
    found: dict[str, Annotation] = {}
    for path, inner in owners:
        module = inner.module
        written = (*module.annotations, *(module.forward.annotations if module.forward is not None else ()))
        for item in resolve_annotations(written, inner.values):
            if item.name == kind:
                found.setdefault(path, item)
        given = {param.path.parts[0].name: param.annotations for param in module.tensors if param.annotations}
        for name, _ in children(inner) if given else ():
            for item in resolve_annotations(given.get(name.partition("[")[0], ()), inner.values):
                if item.name == kind:
                    found[f"{path}.{name}" if path else name] = item
    return found


# --- lists ------------------------------------------------------------------------------------------------------


def _listed(owners: _Owners, names: _NamesByOwner) -> Iterator[tuple[str, str]]:
    """What `save:` names, then what `recompute:` names."""
    for mode in (SAVE, RECOMPUTE):
        for path, inner in owners:
            forward = inner.module.forward
            if forward is not None:
                selection = forward.save if mode == SAVE else forward.recompute
                yield from ((tensor, mode) for tensor in _selected(selection, inner, names.get(path, {})))


def _selected(selection: Selection | None, inner: Instance, names: _TensorsByName) -> Iterator[str]:
    """The tensors that a list names, globs included; a condition that does not hold takes the list away."""
    if selection is None or not _holds(selection.condition, inner):
        return
    for item in selection.items:
        matches = _matcher(item.text)
        for name, tensors in names.items():
            if not item.spread and matches(name):
                yield from tensors


def _holds(condition: Expr | None, inner: Instance) -> bool:
    """Whether a condition holds; what is wrong with it is for the check to say."""
    try:
        return condition is None or evaluate_bool(condition, inner.values, "the condition")
    except Found:
        return False


def _matcher(text: str) -> Callable[[str], object]:
    if "*" not in text:
        return text.__eq__
    pattern: Pattern[str] = compile(translate(text))
    return pattern.fullmatch
