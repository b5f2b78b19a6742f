"""Performance counters of a network's kernels on an NVIDIA GPU, counted by emulation: coalescing, bank conflicts.

`python -m bench.cuda_counts resnet50 unet:4 --top 12` runs the first work-groups of each launch of a network's second
call on the GPU that tests emulate. For each kernel it tells the bytes of global memory that its warps touch, in sectors
of 32, and how much of them lanes want; bank conflicts of shared memory (cycles over the least that would do); and the
time that each of these and the instructions need on an H200. Products on warpgroups and TMA count as nothing. Numbers
are garbage, for most work-groups do not run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import lamella
from lamella.backend.cpu.compiled import KernelSymbol
from lamella.backend.cuda.modules import CudaModule
from tests.support.gpu.counts import SECTOR, Counts
from tests.support.gpu.driver import emulated_device

MULTIPROCESSORS, CLOCK, BANDWIDTH = 132, 1.755e9, 5.5e12
"""Those of an H200, and the bytes that its L2 gives in a second."""
ISSUED = 4
"""Instructions of warps that a multiprocessor issues at once."""
THREADS = 2048


def count_network(name: str, batch: int, precision: Any) -> dict[str, Counts]:
    """What the kernels of a network's call cost, by their names."""
    module, given = import_module("bench.networks").build(name, batch)
    with emulated_device() as device, _names() as names:
        made: Any = lamella.compile(lamella.from_torch(module, given), backend="cuda", precision=precision)
        inputs = {key: item.numpy() for key, item in zip(made.inputs, given, strict=True)}
        device.counts = {}
        made(**inputs)
        found = dict[str, Counts]()
        device.counts = found
        made(**inputs)
    return {names.get(symbol, symbol): item for symbol, item in found.items()}


@contextmanager
def _names() -> Iterator[dict[str, str]]:
    """Kernels by their symbols, as they are loaded."""
    names, usual = dict[str, str](), CudaModule.find

    def find(self: CudaModule, entry: KernelSymbol) -> int:
        names[entry.symbol] = entry.name
        return usual(self, entry)

    with patch.object(CudaModule, "find", find):
        yield names


def seconds(item: Counts) -> dict[str, float]:
    """What each of the resources needs for all launches of a kernel."""
    share = item.groups / max(1, item.blocks)
    # Blocks go to multiprocessors in turns; one that is alone waits for nobody and helps nobody.
    launched = item.groups / max(1, item.launches)
    at_once = min(launched, MULTIPROCESSORS)
    own = share / at_once
    return {
        "memory": item.sectors * SECTOR * share / BANDWIDTH,
        "instructions": item.instructions * own / ISSUED / CLOCK,
        "local memory": item.turns * own / CLOCK,
    }


def tell(name: str, found: dict[str, Counts], count: int) -> None:
    """The kernels that take longest by these counts."""
    rows = sorted(((max(seconds(item).values()), kernel) for kernel, item in found.items()), reverse=True)
    print(f"{name}: {len(rows)} kernels, {1e6 * sum(taken for taken, _ in rows):.0f} us", flush=True)
    for taken, kernel in rows[:count]:
        item = found[kernel]
        times = seconds(item)
        share = item.wanted / max(1, item.sectors * SECTOR)
        turns = item.turns / item.least_turns if item.least_turns else 1.0
        told = ", ".join(f"{key} {1e6 * value:.1f}" for key, value in times.items())
        print(
            f"    {1e6 * taken:8.1f} us, {item.launches} x {item.groups // item.launches} x {item.threads}: {told}; "
            f" {share:.2f} of pieces wanted, {turns:.1f} turns: {kernel}",
            flush=True,
        )


def main() -> None:
    """Tell what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", metavar="NAME[:BATCH]")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--top", type=int, default=10)
    chosen = parser.parse_args()
    for item in chosen.networks:
        name, _, batch = item.partition(":")
        tell(item, count_network(name, int(batch or 1), chosen.precision), chosen.top)


if __name__ == "__main__":
    main()
