"""Pairing heaps of nodes in memory, ordered by (time, position); functions of the subset of `base.compiled`.

A heap is the address of its first node, 0 where it is empty.
"""

from __future__ import annotations

from lamella.base.compiled import Words

NODE_TIME, NODE_POSITION, NODE_CHILD, NODE_NEXT, NODE_ENTRY, NODE_WIDTH = range(6)


def merge(m: Words, one: int, other: int) -> int:
    """One heap of two."""
    if one == 0:
        return other
    if other == 0:
        return one
    first = one
    second = other
    if m[other + NODE_TIME] < m[one + NODE_TIME] or (
        m[other + NODE_TIME] == m[one + NODE_TIME] and m[other + NODE_POSITION] < m[one + NODE_POSITION]
    ):
        first = other
        second = one
    m[second + NODE_NEXT] = m[first + NODE_CHILD]
    m[first + NODE_CHILD] = second
    return first


def without_first(m: Words, root: int) -> int:
    """The heap without its first node: children are merged in pairs, then all."""
    child = m[root + NODE_CHILD]
    pairs = 0
    while child != 0:
        other = m[child + NODE_NEXT]
        after = 0
        m[child + NODE_NEXT] = 0
        if other != 0:
            after = m[other + NODE_NEXT]
            m[other + NODE_NEXT] = 0
        joined = merge(m, child, other)
        m[joined + NODE_NEXT] = pairs
        pairs = joined
        child = after
    found = 0
    while pairs != 0:
        after = m[pairs + NODE_NEXT]
        m[pairs + NODE_NEXT] = 0
        found = merge(m, found, pairs)
        pairs = after
    return found
