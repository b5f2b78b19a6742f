"""The names in a piece of syntax, and the extents that declare one."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lamella.base.source import Notes, Span
from lamella.lang.skriptnd.affine import read_affine, symbol_of
from lamella.lang.skriptnd.nodes import Access, Member, Name, NullTest


def names_in(node: object) -> Iterator[str]:
    """The names that a node uses, possibly several times; a walk without recursion."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, Name):
            yield item.id
        elif isinstance(item, Member | NullTest):
            yield item.name
        elif isinstance(item, tuple):
            if not isinstance(item, Span):
                stack.extend(item)
        elif hasattr(item, "__dataclass_fields__") and not isinstance(item, Notes):
            if isinstance(item, Access):
                yield item.tensor
            stack.extend(getattr(item, field) for field in item.__dataclass_fields__)


def new_names(node: object, known: Collection[str]) -> list[str]:
    """The names of a node that are not known yet, each once."""
    return [name for name in dict.fromkeys(names_in(node)) if name not in known]


def affine_in(node: object, known: Collection[str]) -> str | None:
    """The new name that an extent declares: the only one in it, multiplied and moved by numbers."""
    form = read_affine(node)
    name = None if form is None else symbol_of(form)
    return None if name in known else name
