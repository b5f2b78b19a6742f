"""Mutated Module DSL files and folders of weights: any of them gives clean findings, soon and without harm.

`make fuzz` walks new cases: a failure names its own, and `LAMELLA_SEED=… LAMELLA_CASE=…` walks that one alone.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lamella.base.diagnostic import Diagnostic
from tests.support.fuzz.module_folders import mutate_folder
from tests.support.fuzz.module_walk import check, walk
from tests.support.strategies.mutation import mutants
from tests.support.watch import watched

ROOT = Path(__file__).parents[2]
LANGUAGE = ROOT / "tests/lang/module"
SEEDS = sorted(
    [
        *(
            path
            for name in ("good", "complete", "specification")
            for path in (LANGUAGE / name).glob("*.module")
        ),
        *(ROOT / "src/lamella/models").rglob("*.module"),
    ]
)
NEW = str(time.time_ns()) if "LAMELLA_FUZZ" in os.environ else "7"
SEED = os.environ.get("LAMELLA_SEED", NEW)
CASE = os.environ.get("LAMELLA_CASE", "")
SHARES = 4
FOLDERS = 5
"""So many texts are mutated for each folder."""
SECONDS, MEBIBYTES = 10, 300
MOST_TOLD = 10


def numbers(count: int, share: int) -> Sequence[int]:
    """The cases of one share."""
    return range(share, count, SHARES) if not CASE else [int(CASE)] * (share == 0)


def walk_all(cases: Sequence[int], walk_one: Callable[[int], list[Diagnostic]]) -> Counter[str]:
    """The codes that all cases give; what got out of one of them fails."""
    seen: Counter[str] = Counter()
    failures: dict[str, str] = {}
    for number in cases:
        try:
            with watched(SECONDS, MEBIBYTES):
                found = walk_one(number)
        except Exception as problem:  # noqa: BLE001  any kind of exception is what is looked for
            told = "".join(traceback.format_exception(problem)[-6:])
            failures.setdefault(told[-300:], f"LAMELLA_SEED={SEED} LAMELLA_CASE={number}\n{told}")
            if len(failures) >= MOST_TOLD:
                break
            continue
        seen.update({item.code for item in found} or {"right"})
    assert not failures, "\n\n".join(failures.values())
    return seen


@pytest.mark.parametrize("share", range(SHARES))
def test_any_text_gives_findings(share: int, mutations: int, tmp_path: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in SEEDS]

    def walk_one(number: int) -> list[Diagnostic]:
        (text,) = mutants([texts[number % len(texts)]], 1, int(SEED) + number)
        return walk(text, tmp_path)

    seen = walk_all(numbers(mutations, share), walk_one)
    assert CASE or (seen["right"] and len(seen) > 10), "mutations reach many rules"


@pytest.mark.parametrize("share", range(SHARES))
def test_any_folder_gives_findings(share: int, mutations: int, tmp_path: Path) -> None:
    def walk_one(number: int) -> list[Diagnostic]:
        mutate_folder(tmp_path, f"{SEED}:{number}")
        found = check(tmp_path)
        for finding in found:
            assert finding.code
            assert all(character.isprintable() for character in finding.message), ascii(finding.message)
        return found

    seen = walk_all(numbers(mutations // FOLDERS, share), walk_one)
    assert CASE or (seen["right"] and len(seen) > 3), "mutations reach many rules"
