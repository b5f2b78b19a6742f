"""Cards: what the things of the API are, as one line for a terminal and as a small table for a notebook.

A class says what it is with `_card`, and takes `show_line` as its `__repr__` and `show_html` as its `_repr_html_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Protocol

from lamella.base.diagnostic import printable
from lamella.base.records import dataclass

LINE = 200
"""The characters of a line, at most."""
ROWS = 60
"""The rows of a table in a card; the rest is counted."""
STYLE = "text-align:left;font-family:monospace;white-space:pre-wrap"


@dataclass(frozen=True, slots=True)
class CardTable:
    """A table that a notebook shows when it is opened: one row for each operation, kernel, task or record."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[Sequence[str], ...]
    count: int
    """How many rows there would be, were all of them given."""


@dataclass(frozen=True, slots=True)
class Card:
    """What something is: its kind and name, facts in the order of their weight, tables."""

    kind: str
    name: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[CardTable, ...] = ()

    def line(self) -> str:
        """All but the tables in one line."""
        facts = ", ".join(_phrase(name, value) for name, value in self.facts)
        title = f"{self.kind} {self.name}".strip()
        return printable(f"<{title}: {facts}>" if facts else f"<{title}>", LINE)

    def html(self) -> str:
        """All of it for a notebook; nothing in it is taken for markup."""
        rows = "".join(
            f'<tr><th style="text-align:left">{_safe(name)}</th><td style="{STYLE}">{_safe(value)}</td></tr>'
            for name, value in self.facts
        )
        title = f"<b>{_safe(self.kind)}</b> {_safe(self.name)}"
        tables = "".join(_table_html(item) for item in self.tables)
        return f"<div>{title}<table>{rows}</table>{tables}</div>"


class HasCard(Protocol):
    """Something that says what it is."""

    def _card(self) -> Card:
        """What it is."""


def show_line(self: HasCard) -> str:
    """What it is, in one line."""
    return self._card().line()


def show_html(self: HasCard) -> str:
    """What it is, for a notebook."""
    return self._card().html()


def make_table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], count: int | None = None
) -> CardTable:
    """A table of the first rows; the others are only counted, unless their number is known."""
    first: list[Sequence[str]] = []
    number = 0
    for number, row in enumerate(rows, 1):
        if number <= ROWS:
            first.append(row)
        elif count is not None:
            break
    return CardTable(title, tuple(heads), tuple(first), number if count is None else count)


def join_names(names: Sequence[str], most: int = 6) -> str:
    """The first names, and how many there are beside them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) + more) if names else "none"


def _phrase(name: str, value: str) -> str:
    """A fact in a line: numbers say what they count."""
    if not value.replace(",", "").isdigit():
        return value
    singular = name.removesuffix("es") if name.endswith("ches") else name.removesuffix("s")
    return f"{value} {singular if value == '1' else name}"


def _safe(text: str) -> str:
    return escape(printable(text, 400))


def _table_html(table: CardTable) -> str:
    heads = "".join(f'<th style="text-align:left">{_safe(item)}</th>' for item in table.heads)
    rows = "".join(
        f"<tr>{''.join(f'<td style={STYLE!r}>{_safe(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    left = table.count - len(table.rows)
    more = f"<p>… and {left:,} more</p>" if left > 0 else ""
    head = f"<summary>{table.count:,} {_safe(table.title)}</summary>"
    return f"<details>{head}<table><tr>{heads}</tr>{rows}</table>{more}</details>"
