"""Mutated NEM programs down the whole road: a clean finding or a right result, and never much time or memory.

`make test` walks the same cases every time, `make fuzz` new ones: a failure names the seed and the number of its case,
and `LAMELLA_SEED=… LAMELLA_CASE=…` walks that case alone.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from lamella.base.diagnostic import LamellaError
from lamella.pipeline.nem.program import read_program
from tests.support.fuzz.mutate import Seed, mutate_bytes, mutate_text, read_seed
from tests.support.fuzz.nem_walk import SMALL, judge, judge_refusal, walk
from tests.support.watch import TooSlowError, watched

ROOT = Path(__file__).parents[2]
FOLDERS = {"tests/lang/nem/good": 3, "tests/lang/nem/bad": 1, "examples/npu": 8}
"""Where programs are, and how often each is taken: right ones reach further."""
SHARES = 4
FEWEST = 1000
"""With fewer, a share may not get as far as running."""
SECONDS = 5
MEBIBYTES = 500
MOST_TOLD = 10
NEW = str(time.time_ns()) if "LAMELLA_FUZZ" in os.environ else "0"
SEED = os.environ.get("LAMELLA_SEED", NEW)
CASE = os.environ.get("LAMELLA_CASE", "")
DEVICES = (None, None, "npm_lite", "npm_mid", "npm_pro", "npm_pro_x1")


def read_seeds() -> list[Seed]:
    """Good, bad and example programs."""
    found: list[Seed] = []
    for folder, weight in FOLDERS.items():
        found += [read_seed(path) for path in sorted((ROOT / folder).rglob("*.nem"))] * weight
    return found


def walk_case(seeds: list[Seed], number: int, place: Path) -> set[str]:
    """One mutated program; one in eight is mutated as bytes and read from a file."""
    random = Random(f"{SEED}:{number}")
    seed, text = mutate_text(random, seeds)
    device = random.choice(DEVICES)
    if number // SHARES % 8:
        place.write_text(text, encoding="utf-8", errors="replace", newline="")
        return walk(text, seed.path, device)
    place.write_bytes(mutate_bytes(random, text))
    try:
        judge(read_program(place, device, SMALL).findings)
    except LamellaError as problem:
        judge_refusal(problem)
    return {"bytes"}


@pytest.mark.parametrize("share", range(SHARES))
def test_mutated_programs(share: int, mutations: int, tmp_path: Path) -> None:
    seeds = read_seeds()
    reached: Counter[str] = Counter()
    failures: dict[str, str] = {}
    numbers = range(share, max(FEWEST, mutations), SHARES) if not CASE else [int(CASE)] * (share == 0)
    for number in numbers:
        place = tmp_path / "case.nem"
        try:
            with watched(SECONDS, MEBIBYTES):
                reached.update(walk_case(seeds, number, place))
        except Exception as problem:  # noqa: BLE001  any kind of exception is what is looked for
            _keep(failures, problem, number, place)
        if len(failures) >= MOST_TOLD:
            break
    print(dict(reached))  # noqa: T201  shown with `-rP`: how far the cases came
    assert not failures, "\n\n".join(failures.values())
    assert CASE or all(reached[stage] for stage in ("sound", "simulated", "bound", "run", "written"))


def _keep(failures: dict[str, str], problem: Exception, number: int, place: Path) -> None:
    """One failure for each place in the code; its text is kept beside the test's other files."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if "lamella" in frame.filename] or list(frames)
    key = f"{type(problem).__name__} {Path(ours[-1].filename).name}:{ours[-1].lineno}"
    if isinstance(problem, TooSlowError):
        key = type(problem).__name__
    if key not in failures:
        kept = place.with_name(f"case{number}.nem")
        kept.write_bytes(place.read_bytes())
        told = "".join(traceback.format_exception(problem)[-8:])
        failures[key] = f"LAMELLA_SEED={SEED} LAMELLA_CASE={number} ({kept}): {key}\n{told[-3000:]}"
