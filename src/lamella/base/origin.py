"""What a node was made from, back to the line of the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.records import dataclass
from lamella.base.source import EMPTY_SOURCE, ShippedSource, Span

LONGEST_CHAIN = 64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Origin:
    """A thing, where it stands, and the thing above it; carried with a node, compared by identity."""

    what: str
    span: Span | None = None
    above: Origin | None = None

    def __repr__(self) -> str:
        return f"<Origin {self}>"

    def __str__(self) -> str:
        """The words of one link, as in `ops/nn.sknd:88 nn.conv`."""
        if self.span is None or self.span.source is EMPTY_SOURCE:
            return printable(self.what)
        return f"{printable(self.span.source.name)}:{self.span.line} {printable(self.what)}"

    def chain(self) -> Iterator[Origin]:
        """This origin and those above it, nearest first; a longer chain is cut."""
        link: Origin | None = self
        for _ in range(LONGEST_CHAIN):
            if link is None:
                return
            yield link
            link = link.above

    def words(self) -> tuple[str, ...]:
        """The chain as text, ready for a finding."""
        return tuple(str(link) for link in self.chain())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupOrigin(Origin):
    """The origin of a node that stands for several, with that of each of them in order."""

    members: tuple[Origin | None, ...] = ()


def blamed(origin: Origin | None) -> Origin | None:
    """The nearest link that stands in a model: not in the library, nor made by a pass."""
    for link in () if origin is None else origin.chain():
        source = None if link.span is None else link.span.source
        if not isinstance(source, ShippedSource) and source is not EMPTY_SOURCE:
            return link
    return None


def derived() -> Origin | None:
    """A dataclass field that says what a node was made from: carried, not compared."""
    origin: Origin | None = field(default=None, compare=False, repr=False, kw_only=True)
    return origin


def with_origin(finding: Diagnostic, origin: Origin | None) -> Diagnostic:
    """The finding with the chain of what it was made from."""
    return finding if origin is None else finding.from_origin(*origin.words())
