"""Instances as a tree: every tensor with its path, and what stands at a path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.lang.module.instantiate.nodes import Instance, TensorSlot
from lamella.lang.module.nodes import Annotation, Param, Path, PathPart, TensorType, Unchanged
from lamella.lang.module.rules import mappings as mapping_rules
from lamella.lang.module.rules import names as name_rules
from lamella.lang.module.suggest import suggest
from lamella.lang.module.write import write_path

Child: TypeAlias = Instance | tuple[Instance, ...]
_PART = re.compile(r"([^\[\].]+)((?:\[\d{1,18}\])*)")


def walk(instance: Instance) -> Iterator[tuple[str, TensorSlot]]:
    """Every tensor with its path from the instance, `blocks[3].attention.qkv_weight`, in the order of the text.

    The path of a tied tensor's storage is from the instance too.
    """
    todo: list[tuple[str, Instance]] = [("", instance)]
    while todo:
        prefix, current = todo.pop()
        for name, slot in current.tensors.items():
            tied = None if slot.tied is None else f"{prefix}{slot.tied}"
            yield f"{prefix}{name}", slot if tied is None else replace(slot, tied=tied)
        todo += reversed([(f"{prefix}{path}.", child) for path, child in children(current)])


def children(instance: Instance) -> Iterator[tuple[str, Instance]]:
    """The instances directly below one, elements of arrays one by one: `attention`, `blocks[3]`."""
    for name, child in instance.children.items():
        if isinstance(child, Instance):
            yield name, child
        else:
            yield from ((f"{name}[{index}]", element) for index, element in enumerate(child))


def children_at(instance: Instance, path: str) -> Instance | tuple[Instance, ...] | None:
    """The instance or the array at a path, `blocks[3].attention`; None where there is none."""
    current: Child | None = instance
    for text in path.split(".") if path else ():
        found = _PART.fullmatch(text)
        if found is None or not isinstance(current, Instance):
            return None
        current = _step(current.children, found[1], [int(item) for item in re.findall(r"\d+", found[2])])
    return current


def slot_at(instance: Instance, path: str) -> TensorSlot | None:
    """The tensor at a path; None where there is none. One that was added from above may have a dotted name."""
    end = len(path)
    while end > 0:
        end = path.rfind(".", 0, end)
        owner = children_at(instance, path[: max(end, 0)])
        if isinstance(owner, Instance):
            return owner.tensors.get(path[end + 1 :])
    return instance.tensors.get(path)


def _step(below: Mapping[str, Child], name: str, indices: list[int]) -> Child | None:
    child = below.get(name)
    for index in indices:
        if not isinstance(child, tuple) or index >= len(child):
            return None
        child = child[index]
    return child


def total(tensors: Mapping[str, TensorSlot], below: Mapping[str, Child]) -> int:
    """How many instances and tensors an instance with these parts consists of, itself included."""
    arrays = (child if isinstance(child, tuple) else (child,) for child in below.values())
    return 1 + len(tensors) + sum(element.size for array in arrays for element in array)


# --- parameters below: annotations and tensors that a declaration adds to what its instances hold -----------


def is_override(param: Param) -> bool:
    """Whether a parameter is about one that another declaration holds, or that is inherited."""
    parts = param.path.parts
    return len(parts) > 1 or bool(parts[0].indices) or changes_only(param)


def changes_only(param: Param) -> bool:
    """Whether a parameter has the shape `[...]` and only gives annotations."""
    return isinstance(param.type, TensorType) and any(isinstance(item, Unchanged) for item in param.type.dims)


@dataclass(frozen=True, slots=True)
class InstanceTree:
    """What an instance holds, while it is built."""

    tensors: Mapping[str, TensorSlot]
    children: Mapping[str, Child]
    switched_off: Mapping[str, str]


INHERITED = ("frozen", "trainable")
"""Annotations of an instance that speak of all parameters below it."""


def inherit(child: Child, annotations: tuple[Annotation, ...]) -> Child:
    """An instance, or several, whose parameters have what is said of the whole; their own word counts more."""
    said = tuple(item for item in annotations if item.name in INHERITED)
    return _inherit(child, said, {}) if said else child


def _inherit(child: Child, said: tuple[Annotation, ...], done: dict[int, Instance]) -> Child:
    if not isinstance(child, Instance):
        # Equal elements are one object, and stay one.
        return tuple(_inherit_one(item, said, done) for item in child)
    return _inherit_one(child, said, done)


def _inherit_one(instance: Instance, said: tuple[Annotation, ...], done: dict[int, Instance]) -> Instance:
    if id(instance) not in done:
        tensors = {
            name: replace(slot, annotations=(*said, *slot.annotations))
            for name, slot in instance.tensors.items()
        }
        below = {name: _inherit(child, said, done) for name, child in instance.children.items()}
        done[id(instance)] = replace(instance, tensors=tensors, children=below)
    return done[id(instance)]


@dataclass(frozen=True, slots=True)
class ParameterOverride:
    """One override: the path, the annotations to add, and the tensor to add where it is a new one."""

    model: str
    path: Path
    annotations: tuple[Annotation, ...]
    added: TensorSlot | None = None

    def apply(self, tree: InstanceTree) -> InstanceTree:
        """The tree with the change; raises Found where its path leads nowhere."""
        return self._change(tree, self.path.parts)

    def _change(self, tree: InstanceTree, parts: tuple[PathPart, ...]) -> InstanceTree:
        child = tree.children.get(parts[0].name) if len(parts) > 1 else None
        if child is None:
            return replace(tree, tensors=self._change_tensor(tree, parts))
        changed = self._change_child(child, parts)
        return replace(tree, children={**tree.children, parts[0].name: changed})

    def _change_child(self, child: Child, parts: tuple[PathPart, ...]) -> Child:
        indices = parts[0].indices
        if isinstance(child, Instance) and not indices:
            return self._change_instance(child, parts[1:])
        if isinstance(child, Instance) or len(indices) != 1:
            raise Found(self._unknown(f"'{parts[0].name}' is {'no array' if indices else 'an array'}"))
        place = indices[0]
        if isinstance(place, int):
            if place >= len(child):
                raise Found(self._unknown(f"'{parts[0].name}' has {len(child)} elements"))
            changed = self._change_instance(child[place], parts[1:])
            return (*child[:place], changed, *child[place + 1 :])
        # Equal elements are one object, and stay one.
        once = {id(item): self._change_instance(item, parts[1:]) for item in set(child)}
        return tuple(once[id(item)] for item in child)

    def _change_instance(self, instance: Instance, parts: tuple[PathPart, ...]) -> Instance:
        tree = InstanceTree(instance.tensors, instance.children, instance.switched_off)
        changed = self._change(tree, parts)
        size = total(changed.tensors, changed.children)
        return replace(instance, tensors=changed.tensors, children=changed.children, size=size)

    def _change_tensor(self, tree: InstanceTree, parts: tuple[PathPart, ...]) -> Mapping[str, TensorSlot]:
        name = write_path(Path(parts))
        slot = tree.tensors.get(name)
        if self.added is not None:
            if slot is not None or name in tree.children:
                where = f"'{self.model}'"
                raise Found(name_rules.DUPLICATE.at(self.path.span, kind="parameter", name=name, where=where))
            return {**tree.tensors, name: replace(self.added, name=name)}
        if name in tree.switched_off:
            return tree.tensors
        if slot is None:
            raise Found(self._unknown(suggest(name, (*tree.tensors, *tree.children))))
        annotated = replace(slot, annotations=(*slot.annotations, *self.annotations))
        return {**tree.tensors, name: annotated}

    def _unknown(self, repair: str) -> Diagnostic:
        return mapping_rules.UNKNOWN_PATH.at(
            self.path.span, model=self.model, path=write_path(self.path), repair=repair
        )
