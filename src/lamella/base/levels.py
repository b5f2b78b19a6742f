"""A model seen at one of its levels: the statements of a text, each with the operations of the model behind it.

A class that is a model takes `at_level` as its method `at`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from lamella.base.card import Card, make_table, show_html, show_line
from lamella.base.errors import InputError
from lamella.base.optional import load_late
from lamella.base.records import dataclass
from lamella.base.suggest import did_you_mean

SHOWN = 8
"""Names of parts that a message lists."""


@dataclass(frozen=True, slots=True)
class LevelItem:
    """An operation, an instruction, a kernel or a task, in the order of its text."""

    index: int
    name: str
    """The operator, the opcode, or the name of the kernel."""
    text: str
    type: str = ""
    """What it gives, such as `f32[1, 8, 64]`; empty where that is not known, or is no single tensor."""
    operations: tuple[str, ...] = ()
    """The operations of the graph that it comes from, by the names of their results."""
    parts: tuple[str, ...] = ()
    """The parts of the model that these stand in."""

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """The extents of what it gives, where its type is known."""
        _, bracket, rest = self.type.partition("[")
        if not bracket or self.type.startswith("("):
            return None
        words = [word.strip() for word in rest.rstrip("]").split(",") if word.strip()]
        return tuple(int(word) if word.isdecimal() else word for word in words)

    def lies_in(self, path: str) -> bool:
        """Whether it comes from a part of the model, or from an operation of that name."""
        return any(
            name == path or name.startswith((f"{path}.", f"{path}/"))
            for name in (*self.operations, *self.parts)
        )

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Level(Sequence[LevelItem]):
    """A model at one level: a sequence of what its text consists of; a path picks what comes from one part."""

    name: str
    """The word of `lamella lower --to`."""
    title: str
    items: tuple[LevelItem, ...]
    model: object
    """The whole model at this level, to be compiled, saved or compared."""

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """What it is: a row for each item."""
        rows = (
            (str(item.index), item.name, item.type, ", ".join(item.operations[:3])) for item in self.items
        )
        table = make_table("items", ("", "name", "type", "from"), rows, len(self.items))
        return Card(f"level {self.name}", self.title, (("items", f"{len(self.items):,}"),), (table,))

    @property
    def text(self) -> str:
        """The text of all items, one below the other."""
        return "\n".join(item.text for item in self.items)

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[LevelItem]:
        return iter(self.items)

    @overload
    def __getitem__(self, key: int) -> LevelItem: ...
    @overload
    def __getitem__(self, key: slice | str) -> Level: ...
    def __getitem__(self, key: int | slice | str) -> LevelItem | Level:
        """An item by its place, or what comes from a part of the model, such as `blocks.0.mlp`."""
        if isinstance(key, int):
            return self.items[key]
        if isinstance(key, slice):
            return Level(self.name, self.title, self.items[key], self.model)
        path = key.replace("[", ".").replace("]", "").strip(".")
        found = tuple(item for item in self.items if item.lies_in(path))
        if not found:
            raise InputError(f"nothing at level {self.name} comes from '{key[:80]}'", hint=self._known(path))
        return Level(self.name, f"{self.title} {path}", found, self.model)

    def _known(self, path: str) -> str:
        names = list(dict.fromkeys(name for item in self.items for name in (*item.parts, *item.operations)))
        close = did_you_mean(path, names)
        return close or f"parts are: {', '.join(names[:SHOWN])}{', …' * (len(names) > SHOWN)}"


def at_level(self: object, level: str, **options: object) -> Level:
    """The model at a level: `sknd`, `nac`, `tensor`, `llvm`, `asm` or `nem`; options are those of `lamella.lower`."""
    found: Level = load_late("lamella.studio.levels").level_of(self, level, options)
    return found
