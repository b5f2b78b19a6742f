"""Mutated SkriptND texts and data files: any input gives clean findings in bounded time, or what it says.

A failure names its case: `LAMELLA_SEED=… LAMELLA_CASE=…` walks that one alone.
"""

from __future__ import annotations

import json
import os
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from lamella.backend.formula import contract
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.graph.data.dat import DatItem, Stored, decode_dat, encode_dat
from lamella.graph.data.safetensors import decode_safetensors, encode_safetensors
from tests.support.fuzz.nem_walk import judge_refusal
from tests.support.fuzz.skriptnd_mutate import mutate_text
from tests.support.fuzz.skriptnd_seeds import read_seeds
from tests.support.fuzz.skriptnd_walk import walk
from tests.support.watch import TooSlowError, watched

SEED = os.environ.get("LAMELLA_SEED", "3")
CASE = os.environ.get("LAMELLA_CASE", "")
SHARES = 4
SECONDS = 8
MEBIBYTES = 600
MOST_TOLD = 25


@pytest.mark.parametrize("share", range(SHARES))
def test_mutated_texts(share: int, mutations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "LONGEST", 1 << 22)  # more steps only say that NumPy is slow
    seeds = read_seeds()
    reached: Counter[str] = Counter()
    failures: dict[str, str] = {}
    numbers = range(share, mutations, SHARES) if not CASE else [int(CASE)] * (share == 0)
    for number in numbers:
        random = Random(f"{SEED}:{number}")
        text = mutate_text(random, seeds)
        dialect = random.choice(("specification", "specification", "newer"))
        try:
            with watched(SECONDS, MEBIBYTES):
                reached.update(walk(text, dialect))
        except Exception as problem:  # noqa: BLE001  any kind of exception is what is looked for
            _keep(failures, problem, number, text, tmp_path)
        if len(failures) >= MOST_TOLD:
            break
    print(dict(reached))  # noqa: T201  shown with `-rP`: how far the cases came
    assert not failures, "\n\n".join(failures.values())
    stages = ("read", "written", "checked", "sound", "composed", "run", "lowered")
    assert CASE or all(reached[stage] for stage in stages)


def _keep(failures: dict[str, str], problem: Exception, number: int, text: str, folder: Path) -> None:
    """One failure for each place in the code; its text is kept beside the test's other files."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if "lamella" in frame.filename] or list(frames)
    key = f"{type(problem).__name__} {Path(ours[-1].filename).name}:{ours[-1].lineno}"
    if isinstance(problem, TooSlowError):
        key = type(problem).__name__
    if key not in failures:
        kept = folder / f"case{number}.sknd"
        kept.write_text(text, encoding="utf-8", errors="replace", newline="")
        told = "".join(traceback.format_exception(problem)[-8:])
        failures[key] = f"LAMELLA_SEED={SEED} LAMELLA_CASE={number} ({kept}): {key}\n{told[-3000:]}"


# --- data ---------------------------------------------------------------------------------------------------

WORD_VALUES = (0, 1, 2, 5, 7, 8, 9, 64, 128, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1)


def tensor_files() -> list[bytes]:
    """A tensor file of each kind of item."""
    numbers = np.arange(6).reshape(2, 3)
    kinds = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
    plain = [encode_dat(numbers.astype(kind), "t") for kind in kinds]
    codes = [
        encode_dat(Stored(numbers, item, 5), "t") for item in (DatItem.QUANTIZED_SIGNED, DatItem.UNSIGNED)
    ]
    return plain + codes


def stores() -> list[bytes]:
    """Stores of several tensors, of one, of none."""
    arrays: dict[str, Array] = {
        "a": np.zeros((2, 3), np.float32),
        "b.c": np.ones(4, np.int64),
        "d": np.ones((), np.bool_),
    }
    return [
        encode_safetensors(arrays, "s"),
        encode_safetensors({"a": arrays["a"]}, "s"),
        encode_safetensors({}, "s"),
    ]


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """Words, bytes and lengths changed at random."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        place, kind = random.randrange(len(found) + 1), random.randrange(6)
        if kind == 0:
            place = place // 4 * 4
            found[place : place + 4] = random.choice(WORD_VALUES).to_bytes(4, "little")
        elif kind == 1:
            found[place : place + 1] = bytes([random.randrange(256)])
        elif kind == 2:
            del found[place : place + random.choice((1, 1, 4, 100))]
        elif kind == 3:
            found[place:place] = random.randbytes(random.choice((1, 4, 100)))
        elif kind == 4:
            found[:8] = random.choice((0, 1, 8, len(found), 2**40, 2**63, 2**64 - 1)).to_bytes(8, "little")
        else:
            found[place : place + 1] = random.choice(
                (b"9" * 30, b'"', b"{", b"]", b"-1", b"1e9", b"\xff", b"\0")
            )
    return bytes(found)


def mutate_header(random: Random, data: bytes) -> bytes:
    """An entry of a store's header changed, where the rest stays in order."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    wrong: tuple[object, ...] = (
        0,
        -1,
        2**63,
        2**64,
        1.5,
        "F32",
        None,
        [],
        [0],
        [0, 2**62],
        [[]],
        {},
        True,
        "\x1b[2J",
        "../x",
        24,
        12,
    )
    for name in list(header):
        if random.random() < 0.5:
            key = random.choice(("dtype", "shape", "data_offsets"))
            value = header[name][key]
            is_list = isinstance(value, list) and value and random.random() < 0.6
            header[name][key] = [*value[:-1], random.choice(wrong)] if is_list else random.choice(wrong)
        if random.random() < 0.2:
            header[random.choice(("", "__metadata__", "../../x", "\x00", "a" * 9999))] = header.pop(name)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


@pytest.mark.parametrize("kind", ["dat", "safetensors"])
def test_mutated_data(kind: str, mutations: int) -> None:
    reads: dict[str, Callable[[bytes, str], object]] = {"dat": decode_dat, "safetensors": decode_safetensors}
    seeds = tensor_files() if kind == "dat" else stores()
    read = refused = 0
    for number in range(mutations):
        random = Random(f"{SEED}:{kind}:{number}")
        seed = random.choice(seeds)
        is_header = kind == "safetensors" and random.random() < 0.5
        data = mutate_header(random, seed) if is_header else mutate_bytes(random, seed)
        try:
            with watched(SECONDS, MEBIBYTES):
                found = reads[kind](data, "case")
        except LamellaError as problem:
            judge_refusal(problem)
            refused += 1
            continue
        read += 1
        if isinstance(found, Stored):
            again = decode_dat(encode_dat(found, "again"), "again")
            assert np.array_equal(again.values, found.values, equal_nan=found.values.dtype.kind == "f")
        elif isinstance(found, dict):
            assert decode_safetensors(encode_safetensors(found, "again"), "again").keys() == found.keys()
    print({"read": read, "refused": refused})  # noqa: T201  shown with `-rP`
    assert read
    assert refused
