"""Faults planted in random small models: `lamella diff` names the operation, infers the cause, and cuts it out.

`make test` plants a few of one seed, `make fuzz` many of a fresh one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from lamella.graph.rewrite import results_of
from lamella.pipeline.diff import Side, compare, make_sides
from lamella.pipeline.diff.reduction import differs, reduce
from lamella.pipeline.options import Options
from tests.support.diff.faults import Planted, plant

IS_LONG = "LAMELLA_FUZZ" in os.environ
FEW, SHARES = 8, 2
SEED = time.time_ns() if IS_LONG else 17
OPTIONS = replace(Options(), random=True)
SLOWEST = 10.0
KNOWN = 0.97
"""How many causes are inferred at least, of those that the catalogue has."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison says about a planted fault."""

    is_found: bool
    is_explained: bool
    words: str


def judge(planted: Planted) -> Verdict:
    """Whether a comparison names the operation of a fault and its cause, and its reduction still differs."""
    started = time.process_time()
    left, right = make_sides([Side(planted.left), Side(planted.right)], OPTIONS)
    found = compare(left, right, OPTIONS)
    first = found.diverging
    words = f"{planted.name} at {sorted(planted.at)}"
    if first is None or first.operation is None:
        return Verdict(False, False, f"{words}: nothing is named")
    named = {item.name for item in results_of(first.operation)}
    kinds = {cause.kind for cause in first.causes}
    made = reduce(found, OPTIONS)
    is_small = made is not None and max(made.operations) <= 3 and differs(made, OPTIONS)
    is_quick = time.process_time() - started < SLOWEST
    said = (
        f"{words}: {sorted(named)}, {[cause.sentence for cause in first.causes]}, {made and made.operations}"
    )
    return Verdict(bool(named & planted.at) and is_small and is_quick, bool(kinds & planted.causes), said)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_planted_fault_is_named_and_explained(share: int, mutations: int) -> None:
    count = mutations // 500 if IS_LONG else FEW // SHARES
    verdicts = [judge(plant(SEED + share * count + number)) for number in range(count)]
    assert not [item.words for item in verdicts if not item.is_found], SEED
    unexplained = [item.words for item in verdicts if not item.is_explained]
    assert len(unexplained) <= (1 - KNOWN) * count, (SEED, unexplained)


def test_a_model_has_no_fault_against_itself() -> None:
    for planted in _some():
        left, right = make_sides([Side(planted.left), Side(planted.left)], OPTIONS)
        found = compare(left, right, OPTIONS)
        assert found.agrees(0.0)
        assert found.diverging is None


def _some() -> Iterator[Planted]:
    yield from (plant(SEED + number) for number in range(3))
