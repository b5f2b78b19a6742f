"""Mutated NAC files: any bytes give a file and clean findings, and what is found right can be written again.

`make fuzz` walks new cases: a failure names its own, and `LAMELLA_SEED=… LAMELLA_CASE=…` walks that one alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from lamella.lang.nac import check, parse
from tests.support.fuzz.nac_field_mutate import mutate
from tests.support.fuzz.nac_fields import walk as walk_fields
from tests.support.fuzz.nac_mutate import mutants
from tests.support.fuzz.nac_seeds import files, seeds
from tests.support.fuzz.nac_walk import walk
from tests.support.watch import watched

NEW = str(time.time_ns()) if "LAMELLA_FUZZ" in os.environ else "60"
SEED = os.environ.get("LAMELLA_SEED", NEW)
CASE = os.environ.get("LAMELLA_CASE", "")
SHARES = 4
SECONDS, MEBIBYTES = 1, 200
MOST_TOLD = 10
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("data", files(), ids=lambda data: f"{len(data)} bytes")
def test_every_byte_of_a_seed_is_of_one_field(data: bytes) -> None:
    """The layout that mutations know is that of the whole file, and the file is right."""
    file, findings = parse(data)
    assert not [*findings, *check(file)]
    at = 0
    for item in sorted(walk_fields(data), key=lambda item: (item.start, item.end)):
        assert item.start == at
        at = item.end
    assert at == len(data)


@pytest.mark.parametrize("share", range(SHARES))
def test_mutated_fields(share: int, mutations: int) -> None:
    """Fields that are set, exchanged, doubled or cut where they stand."""
    seen: Counter[str] = Counter()
    failures: dict[str, str] = {}
    written = 0
    numbers = range(share, mutations, SHARES) if not CASE else [int(CASE)] * (share == 0)
    for number in numbers:
        data = mutate(seeds(), Random(f"{SEED}:{number}"))
        try:
            with watched(SECONDS, MEBIBYTES):
                found, done = walk(data)
        except Exception as problem:  # noqa: BLE001  any kind of exception is what is looked for
            told = "".join(traceback.format_exception(problem)[-6:])
            key = told[-300:]
            failures.setdefault(key, f"LAMELLA_SEED={SEED} LAMELLA_CASE={number}: {data.hex()}\n{told}")
            if len(failures) >= MOST_TOLD:
                break
            continue
        seen.update(item.code for item in found)
        written += done
    assert not failures, "\n\n".join(failures.values())
    assert CASE or (len(seen) > 60 and written), "mutations reach many rules"


def test_mutated_records(mutations: int) -> None:
    """Records that are left out, doubled and exchanged, and bytes anywhere in them."""
    seen: Counter[str] = Counter()
    right = 0
    for data in mutants(files(), mutations, int(SEED)):
        found, done = walk(data)
        seen.update(item.code for item in found)
        right += done
    assert 0 < right < mutations
    assert len(seen) > 40, "mutations reach many rules"


def test_a_process_of_little_memory_reads_them_all() -> None:
    """What a process may ask for is bounded by the system, so that no peak between two looks is missed."""
    words = [sys.executable, "-m", "tests.support.fuzz.nac_child", "0", "200"]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    told = json.loads(result.stdout)
    assert told["cases"] == 200
    assert told["kib"] < MEBIBYTES << 10
