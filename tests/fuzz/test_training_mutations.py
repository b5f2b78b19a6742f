"""Mutated training graphs: whatever stands in TRNG or in the resources, there are findings or a step, nothing else."""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dtype import F32
from lamella.bridge.nac_to_graph import InputType
from lamella.bridge.nac_to_graph.training import check_training
from lamella.lang.nac import File, check, parse, upgrade_version
from lamella.lang.nac.nodes import Resource
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.running import compile_training
from lamella.pipeline.options import Options
from tests.support.bridge.nac_bytes import newer_bytes
from tests.support.fuzz.nac_field_mutate import known, mutate
from tests.support.fuzz.nac_seeds import trained
from tests.support.watch import watched

SEED = os.environ.get("LAMELLA_SEED", str(time.time_ns()) if "LAMELLA_FUZZ" in os.environ else "7")
INPUTS = {"x": InputType(F32, (2,)), "target_0": InputType(F32, (2,))}
SECONDS, MEBIBYTES = 2, 200
BYTES = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"0",
    b"-1",
    b"1e999",
    b"null",
    b"w",
    b"\xff",
    b"saved_2",
    b"loss",
)


def resource(file: File, name: str) -> bytes:
    """What a resource holds."""
    return next(bytes(item.data) for item in file.resources if item.name == name)


def with_resource(file: File, name: str, data: bytes) -> File:
    """The file with another content of a resource."""
    changed = [Resource(name, data) if item.name == name else item for item in file.resources]
    return replace(file, resources=tuple(changed))


def mutant(number: int) -> File | None:
    """A file whose section, notes or inner file is damaged; None where it cannot be read."""
    chance = Random(f"{SEED}:{number}")
    older = upgrade_version(trained())
    kind = number % 3
    if kind == 0:
        file, found = parse(mutate(tuple(known([newer_bytes(trained())])), chance))
        return None if errors(found) else file
    if kind == 1:
        data = mutate(tuple(known([resource(older, "training.nac")])), chance)
        return with_resource(older, "training.nac", data)
    text = bytearray(resource(older, "training.json"))
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(text))
        text[start : start + chance.randint(0, 6)] = chance.choice(BYTES)
    return with_resource(older, "training.json", bytes(text))


def walk(file: File) -> tuple[list[Diagnostic], bool]:
    """What is wrong with a training graph, and whether a step of it was done."""
    found = errors(check(file)) or errors(check_training(file, INPUTS))
    if found:
        return found, False
    model = Model(Path("mutant.nac"), file, ())
    given = {"x": np.array([1, 2], np.float32), "target_0": np.array([3, 4], np.float32)}
    try:
        run = compile_training(model, None, Options(lr=0.5, types={}))
        run(**{name: array for name, array in given.items() if name in run.inputs})
    except LamellaError as problem:
        return list(problem.findings), False
    return [], True


def test_mutated_training_graphs(mutations: int) -> None:
    seen: Counter[str] = Counter()
    walk(upgrade_version(trained()))  # the first of all reads the operators that the others find in memory
    done = 0
    for number in range(mutations // 4):
        file = mutant(number)
        if file is None:
            continue
        try:
            with watched(SECONDS, MEBIBYTES):
                found, stepped = walk(file)
        except Exception as problem:
            told = "".join(traceback.format_exception(problem)[-6:])
            raise AssertionError(f"LAMELLA_SEED={SEED}, case {number}\n{told}") from problem
        seen.update(item.code for item in found)
        done += stepped
    assert done
    assert {"NAC281", "NAC282", "NAC284"} <= seen.keys()
