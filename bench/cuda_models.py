"""Whole networks on an NVIDIA GPU beside torch on the same device, in one process.

`python -m bench.cuda_models bert gpt2_prefill --batch 1` prints a line for each network and, with `--launches N`, the N
kernels that take longest. With `--tune SECONDS` the time without tuning stands above, and what was measured below.
Weights are random; products compute in bf16 on both sides, ours with activations in f32.
torch runs in eager mode, captured as a CUDA graph; `--compiled` adds `torch.compile(mode="max-autotune")`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import lamella
from bench.cuda import time_ours, time_torch
from bench.measuring import note_figure, require_gpu
from lamella.backend.cpu.run.lists import reach_of
from lamella.backend.cuda.lists import CudaList
from lamella.base.arrays import Array
from lamella.base.tuning import tuning_of

RUNS = 20


def bench(name: str, batch: int, chosen: argparse.Namespace, torch: Any) -> None:
    """One network of one batch."""
    networks = import_module("bench.networks")
    module, given = networks.build(name, batch)
    begin = time.perf_counter()
    graph = lamella.from_torch(module, given)
    read = time.perf_counter()
    if chosen.tune:
        _tell_untuned(graph, given, chosen)
        read = time.perf_counter()
    tuned: dict[str, Any] = {"tune": True, "tune_seconds": chosen.tune} if chosen.tune else {}
    run: Any = lamella.compile(graph, backend="cuda", precision=chosen.precision, **tuned)
    compiled = time.perf_counter()
    inputs = {key: item.numpy() for key, item in zip(run.inputs, given, strict=True)}
    found = next(iter(run(**inputs).values()))
    first = time.perf_counter()
    whole = min(_seconds(lambda: run(**inputs)) for _ in range(RUNS))
    ours = _device_seconds(run)
    with torch.no_grad():
        want, short, peers = _torch(torch, module, given, chosen.compiled)
    for peer, each in peers.items():
        note_figure(f"{name} b{batch}, {peer}", each / ours)
    told = ", ".join(f"{peer} {each * 1e3:.3f} ms, ratio {ours / each:.2f}" for peer, each in peers.items())
    print(
        f"{name:14} b{batch} {chosen.precision}: device {ours * 1e3:.3f} ms, call {whole * 1e3:.3f} ms, {told}; "
        f"errors {_error(found, want):.1e} and {_error(short, want):.1e}; read {read - begin:.1f} s, "
        f"compile {compiled - read:.1f} s, first call {first - compiled:.1f} s",
        flush=True,
    )
    segment = run.whole_segment()
    if segment is not None and isinstance(segment.each, CudaList):
        tell_kernels(segment.each, chosen.launches)
    report = tuning_of(run)
    for line in () if report is None else report.lines():
        print(f"    {line}", flush=True)


def _tell_untuned(graph: Any, given: Any, chosen: argparse.Namespace) -> None:
    """The time of the launches before kernels are chosen by measuring."""
    run: Any = lamella.compile(graph, backend="cuda", precision=chosen.precision)
    run(**{key: item.numpy() for key, item in zip(run.inputs, given, strict=True)})
    print(f"    without --tune: device {_device_seconds(run) * 1e3:.3f} ms", flush=True)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _device_seconds(run: Any) -> float:
    """The time of the launches alone, without what is copied from and to the host."""
    segment = run.whole_segment()
    if segment is None or not isinstance(segment.each, CudaList):
        return float("nan")
    return statistics.median(time_ours(segment.each.replay) for _ in range(RUNS))


def _error(found: Array, want: Array) -> float:
    """The distance of two arrays, in parts of the second."""
    difference = found.astype(np.float64) - want.astype(np.float64)
    return float(np.linalg.norm(difference.ravel()) / np.linalg.norm(want.astype(np.float64).ravel()))


def _torch(torch: Any, module: Any, given: Any, compiled: bool) -> tuple[Array, Array, dict[str, float]]:
    """What torch computes in f32 and in bf16, and how long the second takes, captured and compiled."""
    own = module.cuda()
    inputs = [item.cuda() for item in given]
    want = _first(own(*inputs))
    short = own.bfloat16()
    inputs = [item.bfloat16() if item.is_floating_point() else item for item in inputs]
    for _ in range(3):
        result = _first(short(*inputs))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        short(*inputs)
    peers = {"torch": statistics.median(time_torch(torch, graph.replay) for _ in range(RUNS))}
    if compiled:
        torch.compiler.reset()
        begin, tuned = time.perf_counter(), torch.compile(short, mode="max-autotune")
        for _ in range(3):
            tuned(*inputs)
        torch.cuda.synchronize()
        print(f"    torch.compile took {time.perf_counter() - begin:.1f} s", flush=True)
        peers["compiled"] = statistics.median(time_torch(torch, lambda: tuned(*inputs)) for _ in range(RUNS))
    return want, result, peers


def _first(result: Any) -> Array:
    found: Array = (result[0] if isinstance(result, tuple) else result).float().cpu().numpy()
    return found


def tell_kernels(launches: CudaList, count: int) -> None:
    """The kernels that take longest, all launches of each in a row, with the bytes that they touch."""
    if not count:
        return
    sizes: Counter[tuple[str, int]] = Counter()
    for item in launches.whole.launches:
        sizes[item.kernel or "fill", item.groups] += sum(map(reach_of, item.arguments))
    found = launches.kernel_seconds()
    total = sum(seconds for _, seconds in found.values())
    print(f"    {len(launches.whole.launches)} launches, {total * 1e3:.3f} ms kernel by kernel")
    for key, (times, seconds) in sorted(found.items(), key=lambda item: -item[1][1])[:count]:
        rate = sizes[key] / seconds / 1e12
        print(
            f"    {seconds * 1e6:9.1f} us, {times:3} of {seconds * 1e6 / times:7.2f} us, {rate:5.2f} TB/s: "
            f"{key[0]} of {key[1]}",
            flush=True,
        )


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--batch", default="1", help="several with commas")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--launches", type=int, default=0)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--tune", type=float, default=0.0, metavar="SECONDS", help="before and after tuning")
    chosen = parser.parse_args()
    require_gpu()
    torch: Any = import_module("torch")
    for name in chosen.networks:
        for batch in map(int, chosen.batch.split(",")):
            bench(name, batch, chosen, torch)


if __name__ == "__main__":
    main()
