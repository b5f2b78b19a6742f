"""Cover one module: export it, compare our numbers with eager mode, time both in turn; one line of JSON.

usage: python -m bench.coverage.one NAME
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

import lamella
from bench.coverage.zoo import build
from lamella.base.arrays import Array

ROUNDS, LEAST_S, PATIENCE_S = 5, 0.15, 5.0
"""Rounds in turn, how long a round of one of the two lasts at least, and after how long a third is not begun."""
TOLERANCE = 2e-3
"""How far results may lie apart, in parts of the largest number: deep networks with random weights add up."""


Facts = dict[str, Any]


def cover(name: str) -> Facts:
    """What is found out about a module; `stage` says how far it came."""
    return gather_facts(name, _stages(name))


def gather_facts(name: str, stages: Iterator[tuple[str, Facts]]) -> Facts:
    """All that the stages of a module found out until one failed, and why it did."""
    facts: Facts = {"name": name, "stage": "build"}
    try:
        for stage, found in stages:
            facts |= {**found, "stage": stage}
    except Exception as problem:  # noqa: BLE001  # whatever happens to a module is a fact about it
        text = next(iter(str(problem).splitlines()), "")
        facts["problem"] = f"{type(problem).__name__}: {text[:300]}"
    return facts


def _stages(name: str) -> Iterator[tuple[str, Facts]]:
    """The stages that come next, each with what the one before found out."""
    module, inputs = build(name)
    yield "eager", {}
    with torch.inference_mode():
        expected = [item for item in _pytree.tree_leaves(module(*inputs)) if isinstance(item, torch.Tensor)]
    yield "export", {}
    model = lamella.from_torch(module, inputs)
    yield "compile", {}
    start = time.perf_counter()
    executable: Any = lamella.compile(model, backend="cpu", threads=1)
    leaves = [item for item in _pytree.tree_leaves(inputs) if isinstance(item, torch.Tensor)]
    given = {word: item.numpy() for word, item in zip(executable.inputs, leaves, strict=True)}
    found = executable(**given)
    yield "compare", {"compile_s": time.perf_counter() - start}
    apart = difference(list(found.values()), [item.numpy() for item in expected])
    yield "time", {"difference": apart, "agrees": apart <= TOLERANCE, **_placement(executable)}
    with torch.inference_mode():
        eager, ours = _alternate(lambda: module(*inputs), lambda: executable(**given))
    yield "done", {"eager_ms": eager * 1e3, "ours_ms": ours * 1e3, "ratio": ours / eager}


def _placement(executable: Any) -> Facts:
    """Operators that have no kernels, and so run by their formulas."""
    rest = sorted({str(item.operation) for item in executable.placement if item.where != "kernel"})
    return {"by_formulas": rest} if rest else {}


def difference(ours: list[Array], theirs: list[Array]) -> float:
    """The largest difference as a part of the largest number; infinite where shapes or counts differ."""
    if len(ours) < len(theirs):
        return float("inf")
    worst = 0.0
    for left, right in zip(ours, theirs, strict=False):
        if left.shape != right.shape:
            return float("inf")
        if left.size:
            wide = right.astype(np.float64)
            largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)) or 1.0
            apart = np.atleast_1d(np.abs(left.astype(np.float64) - wide))
            apart[(left == right) | (np.isnan(left) & np.isnan(right))] = 0.0  # infinities that are the same
            worst = max(worst, float(apart.max()) / largest)
    return worst


def _alternate(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of the fastest call of each, in turn: one thread each, whom other work does not lengthen."""
    best, began = [float("inf"), float("inf")], time.perf_counter()
    for turn in range(ROUNDS):
        if turn > 1 and time.perf_counter() - began > PATIENCE_S:
            break
        for place, work in enumerate((first, second)):
            work()
            end = time.perf_counter() + LEAST_S
            while True:
                start = time.thread_time()
                work()
                best[place] = min(best[place], time.thread_time() - start)
                if time.perf_counter() > end:
                    break
    return best[0], best[1]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print("\n" + json.dumps(cover(sys.argv[1])))
