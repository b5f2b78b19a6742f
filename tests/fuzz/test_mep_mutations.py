"""Mutated plans: verified and run, they end with clean findings and touch nothing that was not granted.

`make fuzz` runs new cases: a failure names its own, and `LAMELLA_SEED=… LAMELLA_CASE=…` runs that one alone.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from random import Random

import numpy as np
import pytest

from lamella.backend.mep import CAPABILITIES, PlanBudget, run_plan
from lamella.base.diagnostic import Diagnostic, LamellaError, render
from lamella.lang.nac import RULES
from lamella.lang.nac.nodes import File
from tests.support.backend.mep.fakes import RecordingHost
from tests.support.fuzz.mep_seeds import mutate, seeds
from tests.support.watch import watched

NEW = str(time.time_ns()) if "LAMELLA_FUZZ" in os.environ else "61"
SEED = os.environ.get("LAMELLA_SEED", NEW)
CASE = os.environ.get("LAMELLA_CASE", "")
SHARES, FEWEST, MOST_TOLD = 4, 4_000, 5
SECONDS, MEBIBYTES = 2, 100
BUDGET = PlanBudget(200, 4 << 20)
CODES = {rule.code for rule in RULES}
TOUCHES = {
    "prompt": "prompt",
    "print": "print",
    "read": "read",
    "image": "read",
    "write": "write",
    "model": "models",
}


def host() -> RecordingHost:
    """A host that has something to give."""
    pictures = {"a.npy": np.arange(256 * 256 * 3).reshape(256, 256, 3).astype(np.uint8)}
    return RecordingHost(pictures, ["word", "3"], lambda first, last, values: list(values))


def attempt(file: File, grants: frozenset[str]) -> list[Diagnostic]:
    """Run a plan with some grants; what was found, after a look at what was touched."""
    used = host()
    found: list[Diagnostic] = []
    try:
        outcome = run_plan(file, used, grants=grants, budget=BUDGET)
        assert outcome.steps <= BUDGET.steps
        assert outcome.peak_bytes <= BUDGET.bytes
    except LamellaError as problem:
        found = list(problem.findings)
        assert found
    touched = {TOUCHES[item.split()[0]] for item in used.touched if item.split()[0] in TOUCHES}
    assert touched <= grants, used.touched
    assert all(
        "/" not in item and ".." not in item for item in used.touched if item.startswith(("read", "write"))
    )
    for item in found:
        assert item.code in CODES
        assert all(line.isprintable() for line in render(item).split("\n"))
    return found


def test_seeds_are_right() -> None:
    for file in seeds():
        assert attempt(file, frozenset(CAPABILITIES)) == []


@pytest.mark.parametrize("share", range(SHARES))
def test_mutated_plans(share: int, mutations: int) -> None:
    seen: Counter[str] = Counter()
    failures: list[str] = []
    numbers = range(share, max(FEWEST, mutations), SHARES) if not CASE else [int(CASE)] * (share == 0)
    for number in numbers:
        chance = Random(f"{SEED}:{number}")
        grants = frozenset(item for item in CAPABILITIES if chance.random() < (number % 3) / 2)
        try:
            with watched(SECONDS, MEBIBYTES):
                found = attempt(mutate(chance), grants)
        except Exception as problem:  # noqa: BLE001  any kind of exception is what is looked for
            told = "".join(traceback.format_exception(problem)[-6:])
            failures.append(f"LAMELLA_SEED={SEED} LAMELLA_CASE={number}\n{told}")
            if len(failures) >= MOST_TOLD:
                break
            continue
        seen.update({item.code for item in found} or {"right"})
    assert not failures, "\n\n".join(failures)
    assert CASE or (len(seen) > 15 and seen["right"] > 20), f"mutations reach many rules: {seen}"
