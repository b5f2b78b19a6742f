"""Operations that only move elements, told by their formulas: views, joins, gathers, maxima.

y[i, j] = x[j, i]
"""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Found
from lamella.graph.binding import bind_operation, signature
from lamella.graph.compose.decompose import compose_call
from lamella.graph.nodes import Operation, tensors
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction, Element, Guard
from lamella.ops.library import Library
from lamella.ops.lower import contractions


class KnownMoves:
    """Operations that only move elements, equal ones looked at once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[object, frozenset[int] | None] = {}

    def find(self, operation: Operation) -> frozenset[int] | None:
        """The inputs whose elements an operation moves, unchanged; None where it does more."""
        key = signature(operation)
        if key not in self._known:
            self._known[key] = self._find(operation)
        return self._known[key]

    def _find(self, operation: Operation) -> frozenset[int] | None:
        try:
            instance = bind_operation(self._library, operation)
            kind = instance.definition.operator.kind
            if kind == "compose":
                return self._find_composed(operation)
            formulas = contractions(instance) if kind == "lower" else ()
        except (Fault, Found, LamellaError):
            return None
        names = [name for name, _ in instance.inputs]
        read = [_moved(formula, names) for formula in formulas]
        moved = frozenset(place for item in read if item is not None for place in item)
        return moved if formulas and None not in read else None

    def _find_composed(self, operation: Operation) -> frozenset[int] | None:
        """The inputs that a compound operation moves: all of its components must."""
        read: set[str] = set()
        for node in compose_call(self._library, operation).nodes:
            moved = self.find(node) if isinstance(node, Operation) else None
            if moved is None or not isinstance(node, Operation):
                return None
            read |= {item.name for place in moved for item in tensors(node.inputs[place])}
        found = enumerate(operation.inputs)
        return frozenset(place for place, item in found if any(one.name in read for one in tensors(item)))


def _moved(formula: Contraction, names: Sequence[str]) -> set[int] | None:
    """The inputs that a formula writes elements of; None where it computes, or leaves elements out."""
    if formula.sign not in ("=", ":=", ">=", "<="):
        return None
    found: set[int] = set()
    for value in formula.values:
        if not isinstance(value, Element) or value.tensor not in names:
            return None
        skips = any(
            isinstance(place, Guard) and place.below is None and place.above is None
            for place in value.indices
        )
        # An element that is left out is zero, which is no code of zero; a maximum has others to choose from.
        if skips and formula.sign in ("=", ":="):
            return None
        found.add(names.index(value.tensor))
    return found
