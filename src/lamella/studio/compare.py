"""Two graphs beside each other: which operations correspond, which differ, and by how much their numbers do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from hashlib import blake2b
from math import isfinite

import numpy as np

from lamella.base.diagnostic import printable
from lamella.graph.nodes import Node, Operation
from lamella.pipeline.diff.comparison import compare as compare_numbers
from lamella.pipeline.diff.gap import measure
from lamella.pipeline.diff.sides import Side, make_sides
from lamella.pipeline.options import Options
from lamella.studio.gather import Gathered
from lamella.studio.graph_level import Things, operands_of, operator_of, results_of, type_of
from lamella.studio.weights import MOST_BYTES, sample_of

SAME, CHANGED, ALONE = range(3)
"""What an operation is to the other model: like its partner, unlike it, without one."""
MOST_ALIGNED = 3000
"""Operations that are aligned by their order; more are paired by names and structure alone."""


def pair_graphs(left: Things, right: Things) -> list[tuple[int, int]]:
    """Operations that correspond: by operator and name, then by structure, by order, and at last by name alone."""
    one: dict[int, int] = {}
    other: dict[int, int] = {}
    for keys, match in ((_calls, _matched), (_structures, _matched), (_kinds, _aligned), (_names, _matched)):
        for first, second in match(keys(left), keys(right), one, other):
            one[first], other[second] = second, first
    return sorted(one.items())


def _names(things: Things) -> list[Hashable]:
    return [next((item.name for item in results_of(node)), None) for node in things.nodes]


def _calls(things: Things) -> list[Hashable]:
    return list(zip(map(operator_of, things.nodes), _names(things), strict=True))


def _kinds(things: Things) -> list[Hashable]:
    return [(operator_of(node), tuple(map(type_of, results_of(node)))) for node in things.nodes]


def _structures(things: Things) -> list[Hashable]:
    """What each operation computes of the inputs and variables of the graph, as a hash."""
    hashes: dict[str, bytes] = {}
    found: list[Hashable] = []
    for node in things.nodes:
        attributes = node.attributes if isinstance(node, Operation) else ()
        text = blake2b(f"{operator_of(node)}{attributes}".encode(), digest_size=16)
        for item in operands_of(node):
            text.update(hashes.get(item.name) or type_of(item).encode())
        for place, item in enumerate(results_of(node)):
            hashes[item.name] = text.digest() + bytes([place % 256])
        found.append(text.digest())
    return found


def _matched(
    left: Sequence[Hashable], right: Sequence[Hashable], taken: Mapping[int, int], others: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Those of equal keys, in order."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in enumerate(right):
        if number not in others and key is not None:
            places[key].append(number)
    found = []
    for number, key in enumerate(left):
        if number not in taken and places.get(key):
            found.append((number, places[key].pop(0)))
    return found


def _aligned(
    left: Sequence[Hashable], right: Sequence[Hashable], taken: Mapping[int, int], others: Mapping[int, int]
) -> list[tuple[int, int]]:
    """What is left over, aligned like the lines of two texts."""
    one = [number for number in range(len(left)) if number not in taken]
    other = [number for number in range(len(right)) if number not in others]
    if not one or not other or max(len(one), len(other)) > MOST_ALIGNED:
        return []
    matcher = SequenceMatcher(None, [left[n] for n in one], [right[n] for n in other], autojunk=False)
    return [
        (one[block.a + step], other[block.b + step])
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
    ]


def _is_alike(one: Node, other: Node) -> bool:
    attributes = [node.attributes if isinstance(node, Operation) else () for node in (one, other)]
    types = [[type_of(item) for item in (*operands_of(node), *results_of(node))] for node in (one, other)]
    return operator_of(one) == operator_of(other) and attributes[0] == attributes[1] and types[0] == types[1]


def add_comparison(left: Gathered, right: Gathered) -> dict[str, object] | None:
    """The partners of operations on both sides, and what each is to its partner; None where there are no graphs."""
    if left.things is None or right.things is None:
        return None
    pairs = pair_graphs(left.things, right.things)
    partner = [[-1] * len(left.things.nodes), [-1] * len(right.things.nodes)]
    status = [[ALONE] * len(left.things.nodes), [ALONE] * len(right.things.nodes)]
    for first, second in pairs:
        alike = _is_alike(left.things.nodes[first], right.things.nodes[second])
        partner[0][first], partner[1][second] = second, first
        status[0][first] = status[1][second] = SAME if alike else CHANGED
    return {"partner": partner, "status": status, "weights": compare_weights(left, right, pairs)}


def compare_weights(
    left: Gathered, right: Gathered, pairs: Sequence[tuple[int, int]]
) -> dict[str, object] | None:
    """Weights that corresponding operations read: how many hold the same numbers, and how far the others lie apart."""
    data = [{} if side.model is None else side.model.data or {} for side in (left, right)]
    if not data[0] or not data[1] or left.things is None or right.things is None:
        return None
    partners: dict[str, str] = {}
    for first, second in pairs:
        read = operands_of(left.things.nodes[first]), operands_of(right.things.nodes[second])
        for one, other in zip(*read, strict=False):
            if one.name in data[0] and other.name in data[1]:
                partners.setdefault(one.name, other.name)
    same, changed, room = 0, [], MOST_BYTES
    for one_name, other_name in partners.items():
        arrays = [np.asarray(side[name]) for side, name in zip(data, (one_name, other_name), strict=True)]
        room -= sum(array.nbytes for array in arrays)
        if room < 0:
            break
        gap = measure(one_name, *(sample_of(array) for array in arrays))
        if not gap.unlike and not gap.largest:
            same += 1
        else:
            known = {"relative": gap.relative, "cosine": gap.cosine} if isfinite(gap.relative) else {}
            names = [printable(name, 300) for name in (one_name, other_name)]
            changed.append({"names": names, "unlike": gap.unlike, **known})
    return {"same": same, "changed": changed}


def add_errors(sides: Sequence[Gathered], options: Options) -> None:
    """How far numbers lie apart, operation by operation: two models on one input, or one model on two backends."""
    models = [Side(item.model) for item in sides if item.model is not None]
    if not models:
        return
    chosen = replace(options, random=True, shape={})  # the models have their extents
    if len(models) == 1:
        chosen = replace(chosen, backends=("reference", "cpu"))
    found = compare_numbers(*make_sides(models, chosen), chosen, {})
    for place, side in enumerate(sides):
        gaps = {(pair.left, pair.right)[place]: pair.gap.relative for pair in found.pairs}
        assert side.things is not None  # it has a model
        level = side.levels["graph"]
        assert isinstance(level, dict)  # of a graph
        level["ops"]["error"] = [_error(node, gaps) for node in side.things.nodes]


def _error(node: Node, gaps: Mapping[str, float]) -> float | None:
    known = [gaps[item.name] for item in results_of(node) if item.name in gaps]
    return float(f"{max(known):.4g}") if known and max(known) < float("inf") else None
