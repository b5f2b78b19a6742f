"""Transfers that overlap with launches: batches that come from the host, one after the other and pipelined.

`python -m bench.cuda_batches --batch 4096 --layers 8` prints milliseconds a batch: of `run` in a loop, of
`executable.map`, of the launches alone, and of torch, which copies from pageable memory, and from pinned memory on a
stream of its own. Numbers of both of our ways are compared bit by bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import lamella
from bench.measuring import require_gpu
from lamella.backend import cuda
from lamella.base.arrays import Array

WIDTH = 4096


def text_of(batch: int, layers: int) -> str:
    """Products in a row."""
    weights = " ".join(f"w{number}: real[{WIDTH}, {WIDTH}];" for number in range(layers))
    steps = " ".join(f"t{number + 1} = nn.linear(t{number}, w{number});" for number in range(1, layers))
    return f"""
import nn;
graph Layers {{
    @input {{ x: real[{batch}, {WIDTH}]; }}
    @variable {{ {weights} }}
    @output {{ t{layers}: real[{batch}, {WIDTH}]; }}
    @compose {{ t1 = nn.linear(x, w0); {steps} }}
}}
"""


def timed(work: Callable[[], Any], count: int) -> float:
    """Milliseconds of each of so many batches, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e3


def ours(run: Any, batches: list[Array]) -> dict[str, float]:
    """Both ways, whose numbers must be the same, and what stays on the device."""
    name = run.outputs[0]
    want = [run(x=x)[name] for x in batches]
    for found, one in zip(run.map({"x": x} for x in batches), want, strict=True):
        if not np.array_equal(found[name], one):
            raise SystemExit("other numbers than one run after the other")
    there = cuda.to_device(batches[0])
    rooms = {name: cuda.to_device(want[0])}
    again = batches * 4

    def map_all(place: str | None) -> None:
        for _ in run.map(({"x": x} for x in again), out=place):
            pass

    return {
        "run": timed(lambda: [run(x=x) for x in again], len(again)),
        "map": timed(lambda: map_all(None), len(again)),
        "map, outputs stay": timed(lambda: map_all("device"), len(again)),
        "on the device": timed(lambda: [run.run({"x": there}, out=rooms) for _ in again], len(again)),
    }


def torches(torch: Any, batches: list[Array], layers: int) -> dict[str, float]:
    """The same products, copied as most do, and from pinned memory beside the launches."""
    module = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    module = module.cuda().bfloat16()
    again, side = batches * 4, torch.cuda.Stream()

    def plain() -> None:
        for x in again:
            module(torch.from_numpy(x).cuda().bfloat16()).float().cpu()

    def ahead() -> Iterator[Any]:
        for x in again:
            with torch.cuda.stream(side):
                there = torch.from_numpy(x).pin_memory().cuda(non_blocking=True)
            yield there

    def beside() -> None:
        source = ahead()
        coming, leaving = next(source), None
        while coming is not None:
            torch.cuda.current_stream().wait_stream(side)
            found = module(coming.bfloat16()).float()
            coming.record_stream(torch.cuda.current_stream())
            home = torch.empty(found.shape, pin_memory=True).copy_(found, non_blocking=True)
            coming, leaving = next(source, None), home
        torch.cuda.synchronize()
        del leaving

    with torch.no_grad():
        for work in (plain, beside):
            work()
        return {"torch": timed(plain, len(again)), "torch, pinned": timed(beside, len(again))}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--precision", default="bf16")
    chosen = parser.parse_args()
    require_gpu()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "layers.sknd")
        path.write_text(text_of(chosen.batch, chosen.layers))
        run: Any = lamella.compile(path, backend="cuda", precision=chosen.precision, seed=1)
    random = np.random.default_rng(0)
    batches = [random.standard_normal((chosen.batch, WIDTH), np.float32) for _ in range(6)]
    found = ours(run, batches)
    found |= torches(import_module("torch"), batches, chosen.layers)
    print(f"{batches[0].nbytes / 1e6:.0f} MB each way; milliseconds a batch")
    for name, each in found.items():
        print(f"{name:20} {each:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
