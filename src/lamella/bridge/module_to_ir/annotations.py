"""Annotations with their values, and the memory modes that they and `save:` and `recompute:` give to tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from itertools import chain
from re import Pattern, compile

from lamella.base.dim import Dim
from lamella.base.errors import Found
from lamella.bridge.module_to_graph.nodes import Compiled, Mark
from lamella.bridge.module_to_ir.nodes import Annotation, Json
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
KEPT = (SAVE, PIN, "offload", "stream")
"""Modes of activations that are still there when the forward pass is over."""
MEMORY, CHECKPOINT = "memory", "checkpoint"
_TensorsByName = Mapping[str, list[str]]
"""The names that one instance binds, each with its tensors."""
_NamesByOwner = Mapping[str, _TensorsByName]
_Owners = Sequence[tuple[str, Instance]]


def find_memory_modes(compiled: Compiled, instance: Instance, saved: Iterable[str] = ()) -> dict[str, str]:
    """The mode of each tensor that has one of its own, strongest word first; all others are temporary.

    `saved` are tensors that a derived backward pass reads.
    """
    names = _by_owner(compiled)
    modes: dict[str, str] = {}
    for mark, resolved in Marks(compiled.marks).all:
        if resolved.name == MEMORY:
            modes[mark.tensor.name] = str(resolved.arguments.get("mode", SAVE))
    owners = list(_instances(instance))
    regions = _regions(owners)
    statements = list(_statement_regions(compiled, names))
    replayed = chain(_replayed(regions, names), _replayed_between(compiled, regions, saved))
    rungs = (
        (pair for kept, _ in statements for pair in kept),
        _preserved(owners, regions, names),
        (pair for _, again in statements for pair in again),
        replayed,
        _listed(owners, names),
    )
    for tensor, mode in chain(*rungs):
        modes.setdefault(tensor, mode)
    for tensor in saved:
        modes.setdefault(tensor, SAVE)
    return modes


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


def _regions(owners: _Owners) -> dict[str, Annotation]:
    """The `@checkpoint` of each instance that has one: where it is declared, or where it is made, which counts more."""
    found: dict[str, Annotation] = {}
    for path, inner in owners:
        module = inner.module
        written = (*module.annotations, *(module.forward.annotations if module.forward is not None else ()))
        for item in resolve_annotations(written, inner.values):
            if item.name == CHECKPOINT:
                found.setdefault(path, item)
        given = {param.path.parts[0].name: param.annotations for param in module.tensors if param.annotations}
        for name, _ in children(inner) if given else ():
            for item in resolve_annotations(given.get(name.partition("[")[0], ()), inner.values):
                if item.name == CHECKPOINT:
                    found[f"{path}.{name}" if path else name] = item
    return found


def _preserved(
    owners: _Owners, regions: Mapping[str, Annotation], names: _NamesByOwner
) -> Iterator[tuple[str, str]]:
    """What is saved in spite of `@checkpoint`: what it preserves, and what flows into the region."""
    for path, inner in owners:
        region, forward = regions.get(path), inner.module.forward
        if region is None or not _replays(region):
            continue
        ports = [port.name or "in" for port in (forward.inputs or ())] if forward is not None else []
        for name in (*_preserve_list(region), *ports):
            yield from ((tensor, SAVE) for tensor in names.get(path, {}).get(name, ()))


def _preserve_list(region: Annotation) -> list[str]:
    kept = region.arguments.get("preserve")
    return [str(item) for item in kept] if isinstance(kept, tuple) else []


def _replays(region: Annotation) -> bool:
    return region.arguments.get("granularity") == "full"


def _replayed(regions: Mapping[str, Annotation], names: _NamesByOwner) -> Iterator[tuple[str, str]]:
    """What is computed again: all that is bound where the innermost `@checkpoint` around it says so."""
    for owner, bound in names.items() if regions else ():
        path = owner
        while path and path not in regions:
            path = path.rpartition(".")[0]
        if path in regions and _replays(regions[path]):
            yield from ((tensor, RECOMPUTE) for tensors in bound.values() for tensor in tensors)


def _replayed_between(
    compiled: Compiled, regions: Mapping[str, Annotation], saved: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """What is computed again though no name is bound to it: the tensors between two operations of a chain."""
    if not regions or compiled.model is None:
        return
    wanted = set(saved)
    for node in compiled.model.graph.operations():
        made = [item.name for item in members(node.outputs) if item.name in wanted]
        path = "" if node.origin is None else node.origin.what
        while made and path and path not in regions:
            path = path.rpartition(".")[0]
        if made and path in regions and _replays(regions[path]):
            yield from ((name, RECOMPUTE) for name in made)


def _statement_regions(
    compiled: Compiled, names: _NamesByOwner
) -> Iterator[tuple[list[tuple[str, str]], list[tuple[str, str]]]]:
    """For each `@checkpoint` of a statement what is saved because of it, and what is computed again."""
    for mark, resolved in Marks(compiled.marks).all:
        if resolved.name != CHECKPOINT:
            continue
        made = {name for step in mark.steps for name in step.tensors}
        bound = names.get(mark.path.rpartition(".")[0], {})
        preserved = [tensor for name in _preserve_list(resolved) for tensor in bound.get(name, ())]
        if not _replays(resolved):
            yield [(name, SAVE) for name in preserved], []
            continue
        graph = () if compiled.model is None else compiled.model.graph.operations()
        inner = [node for node in graph if any(item.name in made for item in members(node.outputs))]
        given = [item.name for node in inner for item in members(node.inputs) if item.name not in made]
        yield [(name, SAVE) for name in (*preserved, *given)], [(name, RECOMPUTE) for name in made]


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
