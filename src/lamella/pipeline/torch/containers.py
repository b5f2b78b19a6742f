"""Stand-ins for the classes in which a module gave its results, where the package that defines them is not loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from lamella.base.optional import need


@contextmanager
def known_containers(trees: Iterable[str]) -> Iterator[None]:
    """PyTorch reads these texts of trees meanwhile; it refuses classes that nobody has registered."""
    registry = need("torch.utils._pytree")
    known = registry.SERIALIZED_TYPE_TO_PYTHON_TYPE
    names = dict.fromkeys(name for text in trees for name in _types(text) if name not in known)
    made = [_stand_in(name, registry._private_register_pytree_node) for name in names]
    try:
        yield
    finally:
        for item in made:
            registry._deregister_pytree_node(item)


def _types(text: str) -> Iterator[str]:
    """The names of all classes in a tree."""
    waiting: list[object] = [json.loads(text)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            name = item.get("type")
            if isinstance(name, str):
                yield name
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _stand_in(name: str, register: Callable[..., None]) -> type[object]:
    """A class with children and a context, like any container."""

    def hold(children: Iterable[object], context: object) -> object:
        found = made()
        found.__dict__.update(children=list(children), context=context)
        return found

    made = type(name.rpartition(".")[2], (), {})
    register(
        made,
        lambda item: (item.children, item.context),
        hold,
        serialized_type_name=name,
    )
    return made
