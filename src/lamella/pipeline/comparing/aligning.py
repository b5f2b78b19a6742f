"""Which operation of one graph is which of another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher

from lamella.graph.nodes import Graph, Operation, Tensor, tensors

MOST = 20_000
"""Operations that are aligned by what they are; of larger graphs the n-th is taken for the n-th."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Operations that are the same in both graphs, in order, and those that only one has."""

    pairs: tuple[tuple[Operation, Operation], ...]
    left: tuple[Operation, ...]
    right: tuple[Operation, ...]


def align(left: Graph, right: Graph) -> Alignment:
    """The longest runs of operations with equal operators and types, those of regions left aside."""
    one, other = _operations(left), _operations(right)
    keys = [_key(item) for item in one], [_key(item) for item in other]
    if max(len(one), len(other)) > MOST:
        pairs = [(a, b) for a, b in zip(one, other, strict=False) if _key(a) == _key(b)]
    else:
        blocks = SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks()
        pairs = [
            (one[block.a + step], other[block.b + step]) for block in blocks for step in range(block.size)
        ]
    seen = {id(item) for pair in pairs for item in pair}
    return Alignment(
        tuple(pairs),
        tuple(item for item in one if id(item) not in seen),
        tuple(item for item in other if id(item) not in seen),
    )


def _operations(graph: Graph) -> list[Operation]:
    return [node for node in graph.nodes if isinstance(node, Operation)]


def _key(operation: Operation) -> tuple[object, ...]:
    return operation.operator, tuple((item.element, item.shape) for item in results(operation))


def results(operation: Operation) -> tuple[Tensor, ...]:
    """The tensors that an operation makes."""
    return tuple(item for argument in operation.outputs for item in tensors(argument))


def count_operators(operations: tuple[Operation, ...]) -> str:
    """`2 × aten.add, 1 × aten.mul`: the most frequent ones first."""
    counts = Counter(item.operator for item in operations).most_common()
    return ", ".join(f"{number} × {name}" for name, number in counts)
