"""The bounds of a network: below every plan of it, however finely it is cut, and the numbers of worked cases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.resolved import AttributeValue, Plan, Region, Task
from lamella.plan.timing import simulate
from lamella.plan.timing.network_bounds import find_network_bounds
from tests.support.plan.timing_plans import Builder, make_device, view

CASES = max(120, int(os.environ.get("LAMELLA_FUZZ", "0")) // 50)
WINDOW: Mapping[str, AttributeValue] = {
    "pads": (0, 0, 0, 0),
    "strides": (1, 1),
    "dilations": (1, 1),
    "groups": 1,
}


def convolution(strides: tuple[int, int] = (1, 1), kernel: int = 3) -> Plan:
    """One int8 convolution 64×16×64 → 128 channels, its tensors in DDR."""
    make = Builder()
    rows, columns = ((size - kernel) // stride + 1 for size, stride in zip((64, 16), strides, strict=True))
    weights, made = kernel * kernel * 64 * 128, rows * columns * 128
    x, w = make.buffer("x", "DDR", 65536), make.buffer("w", "DDR", weights)
    b, y = make.buffer("b", "DDR", 512), make.buffer("y", "DDR", made)
    inputs = [view(x, 65536, "i8", (1, 64, 16, 64)), view(w, weights, "i8", (kernel, kernel, 64, 128))]
    conv = make.task(
        "conv2d",
        [*inputs, view(b, 512, "i32", (128,))],
        [view(y, made, "i8", (1, rows, columns, 128))],
        attributes={**WINDOW, "strides": strides},
    )
    units = {"NMU": 1, "CSTL": 2, "DMA": 4, "VPU": 1, "SEQ": 1}
    return make.plan([conv], make_device(units, {"NMU": {"int8_macs": 2048}}))


def test_the_bound_of_one_convolution() -> None:
    """The first tile needs one window, one channel of weights, its bias; then all MACs; then a store."""
    found = find_network_bounds(convolution())
    needed = 3 * 3 * 64 + 3 * 3 * 64
    head = 100 + needed // 16 + 4 + 1
    macs = 62 * 14 * 128 * 9 * 64
    tail = 1 + 1 + 100 + 1
    assert found.macs == macs
    assert found.largest.cycles == head + macs // 2048 + 2 + tail
    assert (found.read, found.written) == (65536 + 73728 + 512, 62 * 14 * 128)


def test_strides_that_skip_pixels_need_not_load_them() -> None:
    found = find_network_bounds(convolution((2, 2), kernel=1))
    assert found.read == 65536 // 4 + 64 * 128 + 512


class Network:
    """A chain of int8 operations on rows, as one task each and cut into tiles without loops or limits."""

    def __init__(self, seed: int) -> None:
        self.random = draw = Random(seed)
        self.rows = draw.choice((1, 2, 8, 24))
        self.widths = [draw.choice((8, 32, 100))]
        self.operations: list[str] = []
        for _ in range(draw.randint(1, 5)):
            self.operations.append(draw.choice(("gemm", "relu", "softmax", "add", "quantize")))
            gemm = self.operations[-1] == "gemm"
            self.widths.append(draw.choice((8, 32, 100)) if gemm else self.widths[-1])

    def device(self) -> ResolvedDevice:
        draw = self.random
        units = {unit: draw.randint(1, 3) for unit in ("NMU", "CSTL", "DMA", "VPU")}
        keys = {
            "NMU": {"int8_macs": draw.choice((4, 64, 4096)), "latency": draw.randint(0, 9)},
            "CSTL": {"elems_per_cycle": draw.choice((1, 16, 256)), "latency": draw.randint(0, 5)},
            "VPU": {"elems_per_cycle": draw.choice((1, 64)), "latency": draw.randint(0, 5)},
            "sDMA": {"latency": draw.choice((0, 30)), "bytes_per_cycle": draw.choice((1, 16, 512))},
            "DMA": {"setup_cycles": draw.randint(0, 3), "bytes_per_cycle": draw.choice((2, 32))},
        }
        return make_device({**units, "SEQ": 1}, keys, draw.randint(1, 3), draw.randint(1, 2))

    def untiled(self, device: ResolvedDevice) -> Plan:
        make = Builder()
        sizes = [self.rows * width for width in self.widths]
        tensors = [
            view(make.buffer(f"t{step}", "DDR", size), size, "i8", (self.rows, width))
            for step, (size, width) in enumerate(zip(sizes, self.widths, strict=True))
        ]
        tasks: list[Task] = []
        for step, name in enumerate(self.operations):
            inputs = [tensors[step], *self._others(make, step)]
            tasks.append(make.task(name, inputs, [tensors[step + 1]], tasks[-1:]))
        return make.plan(tasks, device)

    def _others(self, make: Builder, step: int) -> list[Region]:
        if self.operations[step] == "gemm":
            shape = (self.widths[step], self.widths[step + 1])
        elif self.operations[step] == "add":
            shape = (self.rows, self.widths[step])
        else:
            return []
        size = shape[0] * shape[1]
        return [view(make.buffer(f"w{step}", "DDR", size), size, "i8", shape)]

    def tiled(self, device: ResolvedDevice) -> Plan:
        """Rows cut into tiles, gemms also into columns, each tile on some engine, everything beside everything."""
        made = _Tiles(self, device)
        engines = 1 if device.topology is None else device.topology.num_engines
        cuts = self.random.choice([count for count in (1, 2, 8, 24) if self.rows % count == 0])
        for tile in range(cuts):
            made.run(self.rows // cuts, tile % engines, self.random.choice((1, 2, 4)))
        return made.make.plan(made.tasks, device)


class _Tiles:
    """Collects the tasks of tiles; a weight crosses DDR once, and comes once to each engine."""

    def __init__(self, network: Network, device: ResolvedDevice) -> None:
        self.network = network
        self.make = Builder()
        self.tasks: list[Task] = []
        self.far = self.make.buffer("far", "DDR", 1 << 20)
        self.middle = self.make.buffer("mid", "L2", 1 << 20)
        engines = 1 if device.topology is None else device.topology.num_engines
        self.near = [self.make.buffer(f"near{k}", "L1", 1 << 20, k) for k in range(engines)]
        self.weights: dict[tuple[int, int, int], Task] = {}
        self.pieces: dict[tuple[int, int], Task] = {}

    def add(self, name: str, inputs: list[Region], made: Region, deps: list[Task], engine: int = 0) -> Task:
        task = self.make.task(name, inputs, [made], deps, engine=engine)
        self.tasks.append(task)
        return task

    def fetch(self, size: int, engine: int) -> Task:
        first = self.add("transfer", [view(self.far, size)], view(self.middle, size), [])
        return self.add("transfer", [view(self.middle, size)], view(self.near[engine], size), [first], engine)

    def weight(self, step: int, part: int, size: int, engine: int) -> Task:
        if (step, part) not in self.pieces:
            task = self.add("transfer", [view(self.far, size)], view(self.middle, size), [])
            self.pieces[step, part] = task
        if (step, part, engine) not in self.weights:
            before = [self.pieces[step, part]]
            source, target = view(self.middle, size), view(self.near[engine], size)
            self.weights[step, part, engine] = self.add("transfer", [source], target, before, engine)
        return self.weights[step, part, engine]

    def run(self, rows: int, engine: int, columns: int) -> None:
        widths = self.network.widths
        before = [self.fetch(rows * widths[0], engine)]
        for step, name in enumerate(self.network.operations):
            if name == "gemm":
                before = self.product(step, rows, engine, columns, before)
                continue
            tile = view(self.near[engine], rows * widths[step], "i8", (rows, widths[step]))
            other = [self.fetch(rows * widths[step], engine)] if name == "add" else []
            inputs = [tile] * (2 if name == "add" else 1)
            before = [self.add(name, inputs, tile, [*before, *other], engine)]
        size = rows * widths[-1]
        source, target = view(self.near[engine], size), view(self.middle, size)
        stored = self.add("store", [source], target, before, engine)
        self.add("transfer", [view(self.middle, size)], view(self.far, size), [stored])

    def product(self, step: int, rows: int, engine: int, columns: int, before: list[Task]) -> list[Task]:
        depth, width = self.network.widths[step : step + 2]
        part = width // columns if width % columns == 0 else width
        near, found = self.near[engine], list[Task]()
        for number in range(width // part):
            loaded = self.weight(step, number * part * 1000 + part, depth * part, engine)
            inputs = [
                view(near, rows * depth, "i8", (rows, depth)),
                view(near, depth * part, "i8", (depth, part)),
            ]
            made = view(near, rows * part, "i8", (rows, part))
            found.append(self.add("gemm", inputs, made, [*before, loaded], engine))
        return found


def test_no_plan_of_a_network_beats_its_bounds() -> None:
    near = 0
    for seed in range(CASES):
        network = Network(seed)
        device = network.device()
        bounds = find_network_bounds(network.untiled(device))
        for _ in range(4):
            report = simulate(network.tiled(device), detail=0)
            for bound in bounds.bounds:
                assert bound.cycles <= report.cycles, (seed, bound)
            assert report.moved("DDR") >= bounds.compulsory
            near += report.cycles <= 1.1 * bounds.largest.cycles
    assert near > CASES // 8


def test_what_lies_between_operations_need_not_cross_ddr() -> None:
    make = Builder()
    a, b, c, d = (make.buffer(name, "DDR", 4096) for name in "abcd")
    first = make.task("relu", [view(a, 4096, "i8", (64, 64))], [view(b, 4096, "i8", (64, 64))])
    turned = make.task("transpose", [view(b, 4096, "i8", (64, 64))], [view(c, 4096, "i8", (64, 64))], [first])
    last = make.task("softmax", [view(c, 4096, "i8", (64, 64))], [view(d, 4096, "i8", (64, 64))], [turned])
    found = find_network_bounds(make.plan([first, turned, last], make_device()))
    assert (found.read, found.written) == (4096, 4096)


def test_a_cache_that_is_written_in_place_is_read_around_the_new_row() -> None:
    make = Builder()
    row, cache, out = (
        make.buffer("row", "DDR", 64),
        make.buffer("cache", "DDR", 6400),
        make.buffer("o", "DDR", 6400),
    )
    new = make.task("relu", [view(row, 64, "i8", (1, 64))], [view(cache, 64, "i8", (1, 64), offset=640)])
    whole = view(cache, 6400, "i8", (100, 64))
    used = make.task("relu", [whole], [view(out, 6400, "i8", (100, 64))], [new])
    found = find_network_bounds(make.plan([new, used], make_device()))
    assert found.read == 64 + 6400 - 64


def test_weights_with_a_codec_count_as_they_are_stored() -> None:
    make = Builder()
    x, y = make.buffer("x", "DDR", 512), make.buffer("y", "DDR", 512)
    weights = replace(make.buffer("w", "DDR", 4096), codec="sparse", stored=1024)
    make.buffers[-1] = weights
    inputs = [view(x, 512, "i8", (8, 64)), view(weights, 4096, "i8", (64, 64))]
    gemm = make.task("gemm", inputs, [view(y, 512, "i8", (8, 64))])
    assert find_network_bounds(make.plan([gemm], make_device())).read == 512 + 1024


def test_bytes_that_two_operands_share_come_once() -> None:
    """A vector times itself, 16 bytes: one cycle of the link brings both factors."""
    make = Builder()
    x, y = make.buffer("x", "DDR", 16), make.buffer("y", "DDR", 1)
    factors = [view(x, 16, "i8", (1, 16)), view(x, 16, "i8", (16, 1))]
    product = make.task("matmul", factors, [view(y, 1, "i8", (1, 1))])
    found = find_network_bounds(make.plan([product], make_device()))
    assert found.largest.cycles == (100 + 1) + (4 + 1) + (2 + 1) + (1 + 1) + (100 + 1)
