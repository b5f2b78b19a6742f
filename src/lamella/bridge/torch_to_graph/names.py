"""What the results of a program are called, from the tree in which the module gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lamella.bridge.torch_to_graph.program import Tree

SINGLE = "output"
_ODD = re.compile(r"\W+")


def output_names(tree: Tree | None, count: int) -> list[str]:
    """A name for each leaf: keys and fields by their names, items by their places, a single tensor `output`."""
    paths = list(_leaves(tree, ())) if tree is not None else []
    if len(paths) != count:
        return [f"{SINGLE}_{number}" for number in range(count)]
    return [_joined(path) for path in paths]


def _joined(path: tuple[str, ...]) -> str:
    words = (SINGLE, *path) if not path or path[0].isdigit() else path
    return _ODD.sub("_", "_".join(words)) or SINGLE


def _leaves(tree: Tree, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if tree.type is None:
        yield path
        return
    children = tree.children()
    for word, child in zip(_words(tree, len(children)), children, strict=True):
        yield from _leaves(child, (*path, word))


def _words(tree: Tree, count: int) -> list[str]:
    """The names of the children: the fields of a named tuple, the keys of a mapping, the fields of a dataclass."""
    context = tree.context
    candidates = [getattr(context, "_fields", None), getattr(tree.type, "_fields", None), context]
    candidates += list(context) if isinstance(context, list | tuple) else []
    found = next((words for words in map(_as_words, candidates) if len(words) == count), None)
    return [str(number) for number in range(count)] if found is None else found


def _as_words(found: object) -> list[str]:
    """The words that a list holds; none where it holds anything else."""
    if not isinstance(found, list | tuple):
        return []
    words = [item for item in found if isinstance(item, str)]
    return words if len(words) == len(found) else []
