"""Parameters below: annotations and tensors that a declaration adds to what its instances hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.lang.module.instantiate.nodes import Instance, TensorSlot
from lamella.lang.module.instantiate.walk import Child, path_text, total
from lamella.lang.module.nodes import Annotation, Param, Path, PathPart, TensorType, Unchanged
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.rules import mappings as mapping_rules
from lamella.lang.module.rules import names as name_rules


def is_override(param: Param) -> bool:
    """Whether a parameter is about one that another declaration holds, or that is inherited."""
    parts = param.path.parts
    return len(parts) > 1 or bool(parts[0].indices) or changes_only(param)


def changes_only(param: Param) -> bool:
    """Whether a parameter has the shape `[...]` and only gives annotations."""
    return isinstance(param.type, TensorType) and any(isinstance(item, Unchanged) for item in param.type.dims)


@dataclass(frozen=True, slots=True)
class Tree:
    """What an instance holds, while it is built."""

    tensors: Mapping[str, TensorSlot]
    children: Mapping[str, Child]
    switched_off: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One override: the path, the annotations to add, and the tensor to add where it is a new one."""

    model: str
    path: Path
    annotations: tuple[Annotation, ...]
    added: TensorSlot | None = None

    def apply(self, tree: Tree) -> Tree:
        """The tree with the change; Found where its path leads nowhere."""
        return self._change(tree, self.path.parts)

    def _change(self, tree: Tree, parts: tuple[PathPart, ...]) -> Tree:
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
        tree = Tree(instance.tensors, instance.children, instance.switched_off)
        changed = self._change(tree, parts)
        size = total(changed.tensors, changed.children)
        return replace(instance, tensors=changed.tensors, children=changed.children, size=size)

    def _change_tensor(self, tree: Tree, parts: tuple[PathPart, ...]) -> Mapping[str, TensorSlot]:
        name = path_text(Path(parts))
        slot = tree.tensors.get(name)
        if self.added is not None:
            if slot is not None or name in tree.children:
                where = f"'{self.model}'"
                raise Found(name_rules.DUPLICATE.at(self.path.span, kind="parameter", name=name, where=where))
            return {**tree.tensors, name: replace(self.added, name=name)}
        if name in tree.switched_off:
            return tree.tensors
        if slot is None:
            raise Found(self._unknown(guess(name, (*tree.tensors, *tree.children))))
        annotated = replace(slot, annotations=(*slot.annotations, *self.annotations))
        return {**tree.tensors, name: annotated}

    def _unknown(self, repair: str) -> Diagnostic:
        return mapping_rules.UNKNOWN_PATH.at(
            self.path.span, model=self.model, path=path_text(self.path), repair=repair
        )
