"""Names of tensors: the path of labels that leads to them, and how they stay unique."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """The labels on the way from the graph to an operator's body.

    `step` counts the steps of unrolled loops; the next label takes it, so that each step has tensors of its own.
    """

    prefix: str = ""
    step: str = ""

    def name(self, tensor: str) -> str:
        """The name in the graph of a tensor of this scope."""
        return f"{self.prefix}{tensor}{self.step}"

    def behind(self, label: str) -> Scope:
        """The scope behind a label."""
        return Scope(f"{self.prefix}{label}{self.step}.")

    def at_step(self, number: int) -> Scope:
        """The scope of one step of an unrolled loop, counted from 1."""
        return Scope(self.prefix, f"{self.step}:{number}")


class Names:
    """The names a graph has given away, and those it has promised."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._promised: set[str] = set()
        self._last: dict[str, int] = {}

    def promise(self, name: str) -> bool:
        """Keep a name for a tensor that is made later; False where somebody else has it."""
        if name in self._taken or name in self._promised:
            return False
        self._promised.add(name)
        return True

    def is_taken(self, name: str) -> bool:
        """Whether a tensor has this name already."""
        return name in self._taken

    def redeem(self, name: str) -> str:
        """A name that was promised; the next one like it where it has been redeemed before."""
        if name in self._promised:
            self._promised.discard(name)
            self._taken.add(name)
            return name
        return self.fresh(name)

    def fresh(self, name: str) -> str:
        """A name that nothing else has: the one asked for where it is free, else one that no text can spell."""
        found = name
        while found in self._taken or found in self._promised:
            number = self._last[name] = self._last.get(name, 1) + 1
            found = f"{name}~{number}"
        self._taken.add(found)
        return found
