"""Correspondence of two dataflow graphs: which tensors of one are those of the other.

Evidence is taken strongest first: the ends, then names and origins together with operators, then numbers (near-equal
values, laid out in whatever way), then structure (equal operators that read corresponding tensors), then order. Each
tensor has at most one partner; a pair may disagree, which is what a comparison looks for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array
from lamella.pipeline.diff.flow import Dataflow, origin_words, word_of
from lamella.pipeline.diff.gap import Gap, Rearrangement, find_rearrangement, is_close, measure
from lamella.pipeline.diff.values import Ends

LOOSE = 1e-3
"""How near numbers are, in parts of the largest, that speak for a correspondence; agreement asks for more."""
TRIED = 24
"""Tensors of about the same norm that are looked at for one partner."""
MOST = 20_000
"""Nodes that are aligned by what they are; of larger graphs the n-th is taken for the n-th."""

Values: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tensors that correspond, why, and how far their numbers are apart."""

    left: str
    right: str
    evidence: str
    gap: Gap
    layout: Rearrangement = field(default_factory=Rearrangement)

    def agrees(self, tolerance: float) -> bool:
        """Whether the numbers are the same within a tolerance."""
        return self.gap.relative <= tolerance


@dataclass(frozen=True, slots=True)
class SideView:
    """A side as pairing sees it: its dataflow, and what its tensors hold."""

    flow: Dataflow
    values: Values


class Pairing:
    """The correspondence of two sides, built up from the strongest evidence to the weakest."""

    def __init__(self, left: SideView, right: SideView, ends: Ends) -> None:
        self.left, self.right = left, right
        self.partner: dict[str, str] = {}
        self.back: dict[str, str] = {}
        self.evidence: dict[str, str] = {}
        self.ends = {one.name: other.name for one, other in ends.outputs}
        """The results that are compared, whatever else speaks for it; one tensor may be several results."""
        for one, other in ends.inputs:
            self._pair(one.name, other.name, "input")
        self._pair_variables()
        self._pair_constants()
        self._pair_names()
        self._pair_origins()
        self._pair_forward(self._holds_the_same)
        self._pair_numbers()
        self._pair_forward(self._reads_the_same)
        self._pair_backward(self.ends)
        self._pair_forward(self._reads_the_same)
        self._pair_order()
        self._pair_backward(dict(self.partner))
        self._pair_forward(self._are_alike)
        self._pair_remaining_names()
        self._pair_between()

    # --- bookkeeping ----------------------------------------------------------------------------------------

    def _pair(self, one: str, other: str, evidence: str) -> bool:
        if one in self.partner or other in self.back:
            return False
        self.partner[one], self.back[other], self.evidence[one] = other, one, evidence
        return True

    def _are_alike(self, one: str, other: str) -> bool:
        """Whether two tensors hold equally many numbers."""
        first, second = self.left.values.get(one), self.right.values.get(other)
        return first is not None and second is not None and first.size == second.size

    def _open(self) -> tuple[list[str], list[str]]:
        """The tensors that nodes make and that have no partner yet."""
        left = [item.name for item in self.left.flow.made() if item.name not in self.partner]
        right = [item.name for item in self.right.flow.made() if item.name not in self.back]
        return left, right

    def _word(self, side: SideView, name: str) -> str:
        """The operator that makes a tensor, and which of its results it is."""
        place = side.flow.maker[name]
        results = side.flow.results(place)
        which = results.index(name) if name in results else "pack"
        return f"{word_of(side.flow.nodes[place])}.{which}"

    # --- leaves ---------------------------------------------------------------------------------------------

    def _pair_variables(self) -> None:
        """Variables by name; those under other names by their numbers, in whatever layout."""
        left, right = self.left.flow, self.right.flow
        for name in left.graph.variables:
            if name.name in right.variables and self._are_alike(name.name, name.name):
                self._pair(name.name, name.name, "name")
        one = [item.name for item in left.graph.variables if item.name not in self.partner]
        other = [item.name for item in right.graph.variables if item.name not in self.back]
        self._match_numbers(one, other, "numbers")

    def _pair_constants(self) -> None:
        """Constants of one name and size, in graphs that name them alike."""
        for name in self.left.flow.constants:
            if name in self.right.flow.constants and self._are_alike(name, name):
                first, second = self.left.values[name], self.right.values[name]
                if is_close(first, second, LOOSE):
                    self._pair(name, name, "name")

    # --- names and origins ----------------------------------------------------------------------------------

    def _pair_names(self) -> None:
        """Tensors of one name that are results of one operator."""
        for name in self.left.flow.maker:
            if (
                name in self.right.flow.maker
                and self._are_alike(name, name)
                and self._word(self.left, name) == self._word(self.right, name)
            ):
                self._pair(name, name, "name")

    def _pair_origins(self) -> None:
        """Results of one operator whose origins, as far as they go, are the same and are no other's."""
        keys = [self._origin_keys(side) for side in (self.left, self.right)]
        counts = [Counter(side.values()) for side in keys]
        right = {key: name for name, key in keys[1].items() if counts[1][key] == 1}
        for name, key in keys[0].items():
            if counts[0][key] == 1 and key in right and self._are_alike(name, right[key]):
                self._pair(name, right[key], "origin")

    def _origin_keys(self, side: SideView) -> dict[str, tuple[str, ...]]:
        found = {}
        for name, place in side.flow.maker.items():
            words = origin_words(side.flow.nodes[place].origin)
            if words:
                found[name] = (self._word(side, name), *words[-2:])
        return found

    # --- numbers --------------------------------------------------------------------------------------------

    def _pair_numbers(self) -> None:
        """Tensors that hold nearly the same numbers, in whatever layout."""
        one, other = self._open()
        self._match_numbers(one, other, "numbers")

    def _match_numbers(self, one: Sequence[str], other: Sequence[str], evidence: str) -> None:
        index = NumberIndex({name: self.right.values[name] for name in other if name in self.right.values})
        for name in one:
            value = self.left.values.get(name)
            if value is None or is_plain(value):
                continue
            found = [item for item in index.near(value) if item not in self.back]
            found = [
                item
                for item in found
                if find_rearrangement(value, self.right.values[item], LOOSE) is not None
            ]
            if found:
                self._pair(name, max(found, key=lambda item: self._likeness(name, item)), evidence)

    def _likeness(self, one: str, other: str) -> tuple[bool, bool, bool, float]:
        """What speaks for a pair beside its numbers: the first that holds decides."""
        left, right = self.left.flow, self.right.flow
        made = not left.is_leaf(one) and not right.is_leaf(other)
        same_word = made and self._word(self.left, one) == self._word(self.right, other)
        first, second = self.left.values[one], self.right.values[other]
        gap = measure("", first, second).relative if first.shape == second.shape else 1.0
        return same_word, one == other, first.shape == second.shape, -gap

    # --- structure ------------------------------------------------------------------------------------------

    def _pair_forward(self, fits: Callable[[str, str], bool]) -> None:
        """Results of equal operators that read corresponding tensors and fit together, from the inputs down."""
        for name in self._open()[0]:
            if name not in self.left.values:
                continue
            found = [item for item in self._consumers(name) if item not in self.back and fits(name, item)]
            if found:
                best = max(found, key=lambda item: self._shared_operands(name, item))
                self._pair(name, best, "structure")

    def _consumers(self, name: str) -> Iterator[str]:
        """Results on the right that are made as this one is made, from a partner of what it is made from."""
        left, right = self.left.flow, self.right.flow
        word = self._word(self.left, name)
        seen: set[str] = set()
        for operand in left.operands[left.maker[name]]:
            partner = self.partner.get(operand)
            for place in right.readers.get(partner, ()) if partner is not None else ():
                for item in right.results(place):
                    if (
                        item not in seen
                        and self._are_alike(name, item)
                        and self._word(self.right, item) == word
                    ):
                        seen.add(item)
                        yield item

    def _shared_operands(self, one: str, other: str) -> tuple[int, bool]:
        left, right = self.left.flow, self.right.flow
        mine = [self.partner.get(item) for item in left.operands[left.maker[one]]]
        theirs = right.operands[right.maker[other]]
        return sum(item in theirs for item in mine if item is not None), one == other

    def _reads_the_same(self, one: str, other: str) -> bool:
        """Whether two results are made from tensors all of which correspond."""
        left, right = self.left.flow, self.right.flow
        mine = {
            self.partner.get(item, "")
            for item in left.operands[left.maker[one]]
            if item not in left.constants
        }
        theirs = {item for item in right.operands[right.maker[other]] if item not in right.constants}
        return mine == theirs

    def _holds_the_same(self, one: str, other: str) -> bool:
        return find_rearrangement(self.left.values[one], self.right.values[other], LOOSE) is not None

    def _pair_backward(self, results: Mapping[str, str]) -> None:
        """What results that are to be the same are made from, operand by operand, while the operators are the same."""
        waiting = list(results.items())
        seen: set[tuple[str, str]] = set()
        while waiting:
            one, other = waiting.pop()
            if (one, other) in seen or one not in self.left.flow.maker or other not in self.right.flow.maker:
                continue
            seen.add((one, other))
            if self._are_alike(one, other):
                self._pair(one, other, "structure")
            if self.partner.get(one) == other and self._word(self.left, one) == self._word(self.right, other):
                mine = self.left.flow.operands[self.left.flow.maker[one]]
                theirs = self.right.flow.operands[self.right.flow.maker[other]]
                if len(mine) == len(theirs):
                    waiting += [pair for pair in zip(mine, theirs, strict=True) if self._may_pair(*pair)]

    def _may_pair(self, one: str, other: str) -> bool:
        """Whether two tensors are free for each other, or are partners already."""
        if one in self.partner or other in self.back:
            return self.partner.get(one) == other
        return self._are_alike(one, other)

    # --- order ----------------------------------------------------------------------------------------------

    def _pair_order(self) -> None:
        """What is left, by the longest runs of equal operators and sizes."""
        one, other = self._open()
        one = [name for name in one if name in self.left.values]
        other = [name for name in other if name in self.right.values]
        keys = [
            [(self._word(side, name), side.values[name].size) for name in names]
            for side, names in ((self.left, one), (self.right, other))
        ]
        if max(len(one), len(other)) > MOST:
            pairs: Iterable[tuple[int, int]] = (
                (place, place) for place, (a, b) in enumerate(zip(*keys, strict=False)) if a == b
            )
        else:
            blocks = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks()
            pairs = ((block.a + step, block.b + step) for block in blocks for step in range(block.size))
        for first, second in pairs:
            self._pair(one[first], other[second], "order")

    def _pair_remaining_names(self) -> None:
        """Tensors of one name and size, made by other operators."""
        for name in self._open()[0]:
            if name in self.right.flow.maker and self._are_alike(name, name):
                self._pair(name, name, "name")

    def _pair_between(self) -> None:
        """Results of other operators that stand between corresponding tensors: made from some, read for others."""
        left, right = self.left.flow, self.right.flow
        for name in self._open()[0]:
            partners = [self.partner.get(item) for item in left.operands[left.maker[name]]]
            places = {place for item in partners if item is not None for place in right.readers.get(item, ())}
            found = [
                item
                for place in sorted(places)
                for item in right.results(place)
                if item not in self.back and self._are_alike(name, item) and self._are_read_alike(name, item)
            ]
            if found:
                self._pair(name, max(found, key=lambda item: self._shared_operands(name, item)), "structure")

    def _are_read_alike(self, one: str, other: str) -> bool:
        """Whether nodes that read two tensors make tensors that correspond."""
        left, right = self.left.flow, self.right.flow
        mine = {self.partner.get(item) for place in left.readers.get(one, ()) for item in left.results(place)}
        theirs = {item for place in right.readers.get(other, ()) for item in right.results(place)}
        return bool(mine & theirs)

    # --- result ---------------------------------------------------------------------------------------------

    def pairs(self) -> list[Pair]:
        """The pairs with their gaps, in the order of the left side; results that are compared come as they are."""
        found = []
        leaves = [name for name in self.partner if self.left.flow.is_leaf(name)]
        for name in (*leaves, *(item.name for item in self.left.flow.made() if item.name in self.partner)):
            if name in self.left.values and self.partner[name] in self.right.values:
                found.append(self.measured(name, self.partner[name], self.evidence[name]))
        return found

    def measured(self, one: str, other: str, evidence: str) -> Pair:
        """A pair with its gap; numbers laid out otherwise are compared in one layout."""
        first, second = self.left.values[one], self.right.values[other]
        if first.shape == second.shape:
            gap = measure(one, first, second)
            if gap.relative <= LOOSE or evidence == "name":
                return Pair(one, other, evidence, gap)
        way = find_rearrangement(second, first, LOOSE)
        if way is None:
            return Pair(one, other, evidence, measure(one, first, second))
        return Pair(one, other, evidence, measure(one, first, way.apply(second, first.shape)), way)


def is_plain(array: Array) -> bool:
    """Whether an array holds too few different numbers to be known by them."""
    flat = np.asarray(array).reshape(-1)
    return flat.size < 2 or bool((flat == flat[0]).all()) or flat.dtype.kind == "b"


class NumberIndex:
    """Arrays by their size and norm, which no layout changes."""

    def __init__(self, arrays: Values) -> None:
        rows: dict[int, list[tuple[float, str]]] = {}
        for name, array in arrays.items():
            rows.setdefault(array.size, []).append((norm_of(array), name))
        self._rows = {size: sorted(row) for size, row in rows.items()}

    def near(self, array: Array) -> list[str]:
        """The names of arrays of about the same norm, the nearest first."""
        row = self._rows.get(array.size, [])
        norm = norm_of(array)
        margin = 4 * LOOSE * norm
        first, last = bisect_left(row, (norm - margin, "")), bisect_right(row, (norm + margin, "\U0010ffff"))
        near = sorted(row[first:last], key=lambda item: abs(item[0] - norm))
        return [name for _, name in near[:TRIED]]


def norm_of(array: Array) -> float:
    """The root of the mean square of the numbers that are finite, those that a mask hides clipped."""
    flat = np.asarray(array).astype(np.float64).reshape(-1)
    flat = np.clip(flat[np.isfinite(flat)], -1e6, 1e6)
    return float(np.sqrt(np.mean(flat * flat))) if flat.size else 0.0
