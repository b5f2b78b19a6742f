"""Instances as a tree: every tensor with its path, and what stands at a path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from lamella.lang.module.instantiate.nodes import Instance, TensorSlot
from lamella.lang.module.nodes import Path, PathPart

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


def path_text(path: Path) -> str:
    """A path as it is written."""
    return ".".join(_part_text(part) for part in path.parts)


def _part_text(part: PathPart) -> str:
    indices = (f"[{item}]" if isinstance(item, int) else f"[{{{item}}}]" for item in part.indices)
    return f"{part.name}{''.join(indices)}"
