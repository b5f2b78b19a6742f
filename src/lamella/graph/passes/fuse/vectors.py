"""Products of a matrix with few vectors: what belongs to their kernel beside what belongs to every contraction.

Such a product reads its matrix once and its vectors for every row, so that memory decides how long it takes. A norm of
the vectors is computed on the way; and one subgroup takes the rows that a gate joins: y[i] and y[i + n].
"""

from __future__ import annotations

from math import prod

import numpy as np

from lamella.graph.passes.fuse.kinds import Kind, Read
from lamella.graph.passes.fuse.machine import Machine
from lamella.graph.passes.fuse.parts import Part

MOST_PARTS = 4
"""Parts of its rows that are joined: each is a sum of a subgroup."""


def count_vectors(part: Part, number: int, machine: Machine) -> int:
    """With how many vectors a contraction multiplies a matrix that never changes; 0 where they are not few."""
    facts = part.facts[number]
    if facts.kind is not Kind.CONTRACT or not machine.vectors:
        return 0
    fixed = [
        size
        for item, size in zip(part.sources(number), facts.sizes, strict=True)
        if is_fixed(part, item.name)
    ]
    if len(fixed) != 1 or facts.steps % max(1, prod(fixed)):
        return 0
    vectors = facts.steps // fixed[0]
    return vectors if vectors <= machine.vectors and facts.size % max(1, vectors) == 0 else 0


def is_fixed(part: Part, name: str) -> bool:
    """Whether a tensor never changes, or is made of codes that never do."""
    maker = part.makers.get(name)
    if maker is None or maker not in part.decoding:
        return part.is_static(name)
    return all(is_fixed(part, item.name) for item in part.sources(maker))


def reads_part(read: Read, rows: int, length: int) -> bool:
    """Whether an access reads some part of the rows of a product, all vectors alike: the next `length` of `rows`."""
    if not length or rows % length or rows // length > MOST_PARTS or read.guarded:
        return False
    first = read.places - (read.targets // length * rows + read.targets % length)
    return bool(np.all(first == first[0])) and int(first[0]) % length == 0 and 0 <= int(first[0]) < rows
