"""Plans built by hand and at random, for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from lamella.lang.nem import nodes
from lamella.lang.nem.device import InheritedValue, ResolvedDevice, ResolvedTopology
from lamella.lang.nem.resolved import (
    Buffer,
    Index,
    Item,
    Loop,
    Operation,
    Plan,
    Region,
    Resource,
    Task,
    TensorType,
    Variable,
    Wait,
)
from tests.support.plan.build import Draft

LITE_UNITS = {"NMU": 1, "CSTL": 2, "DMA": 2, "VPU": 1, "SEQ": 1}
LITE_KEYS = {"NMU": {"int8_macs": 4096, "fp16_macs": 2048}, "SEQ": {"max_active_tokens": 16}}


def make_device(
    units: Mapping[str, int] = LITE_UNITS,
    keys: Mapping[str, Mapping[str, int]] = LITE_KEYS,
    engines: int = 1,
    shared: int = 1,
) -> ResolvedDevice:
    """A device with unit counts and characteristics; memories as npm_lite has them."""
    topology = ResolvedTopology(engines, 524288, 1048576, units, {"sDMA": shared, "WDM": 0}, "test")
    given = {
        unit: {key: InheritedValue(value, "test") for key, value in values.items()}
        for unit, values in keys.items()
    }
    return ResolvedDevice("test", ("test",), "1.0", topology, given, {}, {})


def make_buffer(name: str, memory: str, size: int, engine: int = 0) -> Buffer:
    node = nodes.Buffer(nodes.Name(name), memory, None, None)
    return Buffer(name, memory, engine, size, 64, False, node)


def view(buffer: Buffer, extent: int, elem: str = "", shape: Sequence[int] = (), offset: int = 0) -> Region:
    """A region; typed where an element type is given."""
    strides = tuple(1 for _ in shape)
    type = TensorType(elem, tuple(shape), "N", strides) if elem else None
    return Region("", buffer, Index(offset), extent, type)


def variable_mod(loop: int, count: int, factor: int = 1, add: int = 0) -> Index:
    """`(factor · i + add) mod count`."""
    inner = Index(add, ((Variable(loop, "i"), factor),))
    return Index(0, ((Operation("mod", inner, Index(count)), 1),))


class Builder(Draft):
    """Puts programs together whose time matters."""

    def buffer(self, name: str, memory: str, size: int, engine: int = 0) -> Buffer:
        self.buffers.append(make_buffer(name, memory, size, engine))
        return self.buffers[-1]


def conv_pipeline(
    tiles: int = 4, window: int = 1, hoisted: bool = False, device: ResolvedDevice | None = None
) -> Plan:
    """The worked convolution: load tile and weights, conv2d, relu, store."""
    make = Builder()
    far = [make.buffer(name, "L2", size) for name, size in (("X", 16384 * tiles), ("W", 73728), ("B", 512))]
    result = make.buffer("Y", "L2", 25088 * tiles)
    near = [make.buffer(name, "L1", size) for name, size in (("x", 32768), ("w", 73728), ("y", 50176))]
    tile = view(near[0], 16384, "i8", (1, 16, 16, 64))
    weights = view(near[1], 73728, "i8", (3, 3, 64, 128))
    bias, made = view(far[2], 512, "i32", (128,)), view(near[2], 25088, "i8", (1, 14, 14, 128))
    number = make.loop_number()

    def load_weights() -> Task:
        return make.task("transfer", [view(far[1], 73728)], [weights], debug="load W", profile="load")

    early = load_weights() if hoisted else None
    load = make.task("transfer", [view(far[0], 16384)], [tile], debug="load X", profile="load")
    second = early or load_weights()
    conv = make.task("conv2d", [tile, weights, bias], [made], [load, second], debug="conv")
    relu = make.task("relu", [made], [made], [conv], debug="relu")
    store = make.task("store", [made], [view(result, 25088)], [relu], debug="store")
    held: list[Item] = [load] if hoisted else [load, second]
    body = (*held, Wait((load.number, second.number)), conv, relu, store)
    loop = Loop(number, "i", 0, tiles - 1, window, body)
    return make.plan([loop] if early is None else [early, loop], device or make_device())


def gemm_ring(tiles: int = 8, ring: int = 4, cstl: int = 4) -> Plan:
    """The published gemm: 64×256 · 256×128 f16 tiles, weights loaded once, relu and store on CSTL[i mod ring]."""
    make = Builder()
    far = make.buffer("A", "L2", 32768 * tiles)
    weights, result = make.buffer("B", "L2", 65536), make.buffer("Y", "L2", 16384 * tiles)
    a, b = make.buffer("a", "L1", 32768 * ring), make.buffer("b", "L1", 65536)
    y = make.buffer("y", "L1", 16384 * ring)
    number = make.loop_number()
    pin = variable_mod(number, ring)
    first, second = view(a, 32768, "f16", (64, 256)), view(b, 65536, "f16", (256, 128))
    made = view(y, 16384, "f16", (64, 128))
    load_b = make.task("transfer", [view(weights, 65536)], [second], resource=Resource("DMA", Index(1)))
    load = make.task("transfer", [view(far, 32768)], [first], resource=Resource("DMA", Index(0)))
    gemm = make.task("gemm", [first, second], [made], [load, load_b])
    relu = make.task("relu", [made], [made], [gemm], resource=Resource("CSTL", pin))
    store = make.task("store", [made], [view(result, 16384)], [relu], resource=Resource("CSTL", pin))
    loop = Loop(number, "i", 0, tiles - 1, ring, (load, gemm, relu, store))
    return make.plan([load_b, loop], make_device({**LITE_UNITS, "CSTL": cstl}))


# --- random plans -------------------------------------------------------------------------------------------


class RandomPlan:
    """Draws a plan: nests up to three loops, windows, waits, `.sync`, outer tokens, pinned units, several engines."""

    def __init__(self, seed: int, tasks: int = 8, trips: int = 12, limits: bool = True) -> None:
        self.random = Random(seed)
        self.make = Builder()
        self.left = self.random.randint(1, tasks)
        self.trips = trips
        self.engines = self.random.choice((1, 1, 2, 3))
        self.limits = limits
        self.memories = {
            "DDR": self.make.buffer("d", "DDR", 1 << 20),
            "L2": self.make.buffer("l", "L2", 1 << 20),
            **{f"L1[{k}]": self.make.buffer(f"n{k}", "L1", 1 << 18, k) for k in range(self.engines)},
        }

    def plan(self) -> Plan:
        body = self.body((), [])
        while self.left > 0:
            body += self.body((), [])
        return self.make.plan(body, self.device())

    def device(self) -> ResolvedDevice | None:
        draw = self.random
        if draw.random() < 0.1:
            return None
        units = {unit: draw.randint(1, 3) for unit in ("NMU", "CSTL", "DMA", "VPU")}
        units["CSTL"] = draw.choice((0, 1, 2, 4))
        keys: dict[str, dict[str, int]] = {
            "NMU": {"int8_macs": draw.choice((64, 256)), "latency": draw.randint(0, 9)},
            "CSTL": {"elems_per_cycle": draw.choice((4, 16)), "latency": draw.randint(0, 5)},
            "sDMA": {"latency": draw.choice((1, 30))},
            "DMA": {"setup_cycles": draw.randint(0, 3)},
            "SEQ": {},
        }
        if self.limits and draw.random() < 0.6:
            keys["SEQ"]["max_active_tokens"] = draw.randint(1, 5)
        if self.limits and draw.random() < 0.3:
            keys["SEQ"] |= {"l2_bytes_per_cycle": draw.choice((32, 48, 64)), "ddr_bytes_per_cycle": 20}
        return make_device({**units, "SEQ": 1}, keys, self.engines, draw.randint(1, 2))

    def body(self, loops: tuple[int, ...], visible: list[Task]) -> list[Item]:
        """A statement list; `visible` are the tasks whose tokens may be waited for."""
        draw, made = self.random, list[Item]()
        known = list(visible)
        for _ in range(draw.randint(1, 5)):
            kind = draw.random()
            if kind < 0.15 and known:
                made.append(Wait(tuple({task.number for task in self.some(known, 2)} or {known[-1].number})))
            elif kind < 0.4 and len(loops) < 3:
                made.append(self.loop(loops, known))
            elif self.left > 0:
                task = self.task(loops, known)
                made.append(task)
                known.append(task)
        return made

    def some(self, tasks: list[Task], most: int) -> list[Task]:
        count = min(len(tasks), self.random.randint(0, most))
        return self.random.sample(tasks[-6:], min(count, len(tasks[-6:])))

    def loop(self, loops: tuple[int, ...], known: list[Task]) -> Loop:
        number = self.make.loop_number()
        first = self.random.randint(0, 3)
        trips = self.random.choice((0, 1, 2, self.trips, self.trips))
        body = self.body((*loops, number), known)
        return Loop(number, "i", first, first + trips - 1, self.random.randint(1, 4), tuple(body))

    def task(self, loops: tuple[int, ...], known: list[Task]) -> Task:
        self.left -= 1
        draw = self.random
        deps = self.some(known, 3)
        engine = draw.randrange(self.engines)
        opcode, unit, inputs, outputs = self.work(self.memories[f"L1[{engine}]"])
        pin = Resource(unit, self.pin(loops)) if unit and draw.random() < 0.4 else None
        sync = draw.random() < 0.1
        return self.make.task(opcode, inputs, outputs, deps, resource=pin, engine=engine, sync=sync)

    def work(self, near: Buffer) -> tuple[str, str, list[Region], list[Region]]:
        """An opcode, the unit it may be pinned to, its inputs and outputs."""
        draw = self.random
        kind, size = draw.random(), draw.choice((32, 256, 1000, 2048))
        if kind < 0.4:
            places = [near, near, self.memories["L2"], self.memories["DDR"]]
            a, b = draw.choice(places), draw.choice(places)
            unit = "" if "DDR" in (a.memory, b.memory) else "DMA"
            return "transfer", unit, [view(a, size)], [view(b, size)]
        tile = view(near, size, "i8", (size,))
        if kind < 0.6:
            factors = [view(near, 64, "i8", (8, 8)), view(near, 8 * size, "i8", (8, size))]
            return "gemm", "", factors, [view(near, 8 * size, "i8", (8, size))]
        if kind < 0.7:
            return "quantize", "", [tile], [tile]
        opcode = draw.choice(("relu", "store", "add"))
        return opcode, "CSTL", [tile], [view(self.memories["L2"], size) if opcode == "store" else tile]

    def pin(self, loops: tuple[int, ...]) -> Index:
        draw = self.random
        if not loops or draw.random() < 0.3:
            return Index(draw.randint(0, 5))
        loop = draw.choice(loops)
        if draw.random() < 0.3:
            inner = Index(0, ((Variable(loop, "i"), draw.randint(1, 3)),))
            return Index(draw.randint(0, 1), ((Operation("/", inner, Index(draw.randint(1, 3))), 1),))
        return variable_mod(loop, draw.randint(1, 4), draw.choice((1, 3)), draw.randint(0, 2))
