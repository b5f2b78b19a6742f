"""What an NVIDIA GPU would launch for a network or a step of training, told without one: where a cliff is.

`python -m bench.cuda_lists resnet50 unet:4 --top 12` prints the launches that would take longest and those of each
network in all; `--kernel NAME` prints the text of one. `--training bf16 --layers 2` takes a step of a Qwen3-shaped
model, `--token 28` a token of one with 28 layers. A launch is held to take what a launch costs and as long as its
bytes need, which few warps cannot ask for as fast as many: products of large matrices take longer than that, gathers
less, all else about as long.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import lamella
from bench.cuda_training import MODEL, draw, shape_of, trainer
from lamella.backend.cpu.run.lists import reach_of
from lamella.backend.cuda import machine
from lamella.kernels.arena_plan import place_buffers
from lamella.kernels.fuse_launches import fuse_launches
from lamella.kernels.launches import ELEMENT_BYTES, BufferView, Launch, LaunchList
from lamella.kernels.sizes import choose_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Function, Program
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options
from tests.support.backend.fake_driver import fake_device

LAUNCH_S, BANDWIDTH, OF_A_WARP = 2e-6, 3.5e12, 2e9
"""What a launch costs, the bytes that the device moves in a second, and those that a warp asks for."""
WARP = 32
FEW = 4
"""A list of fewer kernels prepares another one, or takes back what it did."""
WORDS = 16384
"""Of the vocabulary: with fewer the step is read sooner, and its layers are the same."""


class _Found(BaseException):
    """The launches are known; nothing else is of interest."""

    def __init__(self, whole: LaunchList, functions: dict[str, Function]) -> None:
        super().__init__()
        self.whole, self.functions = whole, functions


def find_launches(run: Callable[[], object]) -> tuple[LaunchList, dict[str, Function]]:
    """The launches of the first list that runs often and is more than a preparation, and the kernels by name."""
    try:
        with _stopped():
            run()
    except _Found as found:
        return found.whole, found.functions
    raise SystemExit("nothing is launched")


@contextmanager
def _stopped() -> Iterator[None]:
    usual = machine.CudaMachine.compile

    def compile_(self: Any, whole: LaunchList, once: bool = False) -> Any:
        if once or len({item.kernel for item in whole.launches}) < FEW:
            return usual(self, whole, once)
        fewer, made = fuse_launches(whole, self.functions)
        raise _Found(fewer, {**self.functions, **{item.name: item for item in made}})

    uncached = patch.dict(os.environ, LAMELLA_CACHE="")
    with uncached, fake_device(), patch.object(machine.CudaMachine, "compile", compile_):
        yield


def run_network(name: str, batch: int, precision: Any) -> None:
    """A call of a network of `bench.networks`."""
    module, given = import_module("bench.networks").build(name, batch)
    made: Any = lamella.compile(lamella.from_torch(module, given), backend="cuda", precision=precision)
    made(**{key: item.numpy() for key, item in zip(made.inputs, given, strict=True)})


def run_step(recipe: str, layers: int, sequence: int) -> None:
    """A step of training."""
    config = {**shape_of(layers), "vocab_size": WORDS}
    trainer(config, recipe, "cuda").step(draw(config, 2, sequence), 1e-5)


def run_token(layers: int, precision: Any) -> None:
    """A token behind a cache with room for 259."""
    config = {**shape_of(layers), "vocab_size": WORDS}
    options = Options(config=config, model="Qwen3", seed=0, precision=precision, backend="cuda")
    Generator(MODEL, 259, options, "cuda").rate_next([5])


def tell(name: str, whole: LaunchList, functions: dict[str, Function], count: int) -> None:
    """The launches that would take longest, and the sum over all."""
    rows = [(_warps(item, functions), sum(map(_bytes_of, item.arguments)), item) for item in whole.launches]
    timed = [(_seconds(warps, size), warps, size, item) for warps, size, item in rows]
    total = sum(seconds for seconds, *_ in timed)
    moved = sum(size for _, size, _ in rows)
    places = place_buffers(whole, {view.buffer for view in whole.inputs.values()})
    arena = (places.shared_bytes + places.own_bytes) / 1e6
    print(
        f"{name}: {len(rows)} launches, {total * 1e6:.0f} us, {moved / 1e6:.1f} MB; arena {arena:.1f} MB",
        flush=True,
    )
    for seconds, warps, size, item in sorted(timed, key=lambda row: -row[0])[:count]:
        print(
            f"    {seconds * 1e6:9.1f} us, {size / 1e6:8.2f} MB, {item.groups:6} groups of "
            f"{warps // max(1, item.groups):3} warps: {item.kernel or 'fill'}",
            flush=True,
        )


def _bytes_of(view: BufferView) -> int:
    """The bytes of an argument, without those between its elements."""
    return min(reach_of(view), ELEMENT_BYTES[view.element] * math.prod(view.shape))


def _warps(item: Launch, functions: dict[str, Function]) -> int:
    if item.kernel not in functions:
        return 1 << 16  # a fill
    sizes = choose_sizes(functions[item.kernel], find_target("sm_90a"))
    return item.groups * -(-math.prod(sizes.work_group_size) // WARP)


def _seconds(warps: int, size: int) -> float:
    return LAUNCH_S + size / min(BANDWIDTH, max(1, warps) * OF_A_WARP)


def main() -> None:
    """Tell what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NAME[:BATCH]")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--training", metavar="RECIPE")
    parser.add_argument("--token", type=int, metavar="LAYERS")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--kernel", help="print the text of a kernel")
    chosen = parser.parse_args()
    runs: dict[str, Callable[[], None]] = {}
    for item in chosen.networks:
        name, _, batch = item.partition(":")
        runs[item] = partial(run_network, name, int(batch or 1), chosen.precision)
    if chosen.training:
        name = f"a step in {chosen.training}"
        runs[name] = partial(run_step, chosen.training, chosen.layers, chosen.sequence)
    if chosen.token:
        runs[f"a token in {chosen.precision}"] = partial(run_token, chosen.token, chosen.precision)
    for name, run in runs.items():
        whole, functions = find_launches(run)
        if chosen.kernel is None:
            tell(name, whole, functions, chosen.top)
        elif chosen.kernel in functions:
            print(write(Program((functions[chosen.kernel],))))


if __name__ == "__main__":
    main()
