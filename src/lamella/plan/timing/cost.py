"""What a task costs: cycles = ceil(work / rate) + latency (+ setup_cycles of a DMA) + SEQ.dispatch_cycles, at least 1.

Work is MACs for gemm, matmul and the convolutions, bytes for transfer and store, elements for the rest: those of the
outputs, or of the larger side for pools and reductions; for `compute` the scalar operations of its kernel where its
text tells them, and not less than the elements of its outputs. Rates and latencies are `unit_characteristics`:

    NMU   int4_macs int8_macs int16_macs fp16_macs (4096), int4x8_macs (int8_macs), fp32_macs (fp16_macs / 2), latency 2
          depthwise_macs: a convolution of each channel alone is no faster than this (no limit)
    CSTL  elems_per_cycle 256, bytes_per_cycle 32 (store), latency 1
    DMA   bytes_per_cycle 32, latency 4, setup_cycles 0      sDMA  bytes_per_cycle 16, latency 100, setup_cycles 0
    VPU   elems_per_cycle 64, bytes_per_cycle 32, macs_per_cycle 64, latency 4
    WDM   bytes_per_cycle 64 (of what it makes), latency 8: a transfer of stored weights moves the stored bytes
    SEQ   dispatch_cycles 0, ddr_bytes_per_cycle and l2_bytes_per_cycle (no limit), max_active_tokens, clock_khz

The unit is the one of `@resource`, else the registry's default; a transfer that touches DDR runs on sDMA, and so does
a view from or to there, a gather of rows of a table above all, which moves the elements; a unit that
the device lacks is replaced by VPU. A task without an engine runs on engine 0. Energy is optional: `fj_per_mac`,
`fj_per_element` and `fj_per_byte` (femtojoules) of the unit that runs the task, `SEQ.fj_per_cycle` for the whole run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from lamella.base import dtype
from lamella.base.dtype import ElementType
from lamella.lang.nem.device import ResolvedDevice, ResolvedTopology
from lamella.lang.nem.registry import opcode
from lamella.lang.nem.resolved import Region, Task
from lamella.lang.nem.words import MOVES

# --- A device as the cost model sees it: unit counts and characteristics, with the defaults that ------------


SHARED = -1
"""The engine of units that belong to the whole device."""
SHARED_UNITS = ("sDMA", "WDM")
RUNNING_UNITS = ("NMU", "CSTL", "DMA", "VPU", "sDMA")
"""Units on which tasks run; SEQ only issues them, WDM sits in a weight path."""
LINKS = MappingProxyType({"DDR": "ddr_bytes_per_cycle", "L2": "l2_bytes_per_cycle"})
"""Memory levels whose total bandwidth a device may limit, with the SEQ key."""

_GENERIC = ResolvedTopology(
    num_engines=1,
    l1_size_bytes=0,
    l2_size_bytes=0,
    per_engine=MappingProxyType({"NMU": 1, "CSTL": 2, "DMA": 2, "VPU": 1, "SEQ": 1}),
    device_units=MappingProxyType({"sDMA": 1, "WDM": 0}),
    given_by="generic",
)


def unit_name(place: tuple[int, str], engines: int) -> str:
    """The name of a unit class; engines are distinguished only where there are several."""
    engine, unit = place
    return unit if engine == SHARED or engines == 1 else f"E{engine}.{unit}"


class MachineModel:
    """Answers what a device gives, and remembers each default that was used instead."""

    def __init__(self, device: ResolvedDevice | None) -> None:
        self.device = device
        self.name = "generic" if device is None else device.name
        self.defaults: dict[str, int] = {}
        known = None if device is None else device.topology
        self.topology = known or _GENERIC
        self.is_generic = known is None
        self.engines = max(1, self.topology.num_engines)
        self.links = self._links()

    def given(self, unit: str, key: str) -> int | None:
        """A characteristic of the device file, or None where it is silent."""
        if self.device is None:
            return None
        found = self.device.characteristics.get(unit, {}).get(key)
        return None if found is None else found.value

    def value(self, unit: str, key: str, default: int, least: int = 0) -> int:
        """A characteristic, or its default; never less than `least`, which keeps rates positive."""
        found = self.given(unit, key)
        if found is None or found < least:
            self.defaults[f"{unit}.{key}"] = found = max(default, least)
        return found

    def count(self, unit: str) -> int:
        """How many instances of a unit there are on an engine or, for shared units, on the device."""
        units = self.topology.device_units if unit in SHARED_UNITS else self.topology.per_engine
        return max(0, units.get(unit, 0))

    def total(self, unit: str, engines: int) -> int:
        """How many instances of a unit so many engines have; at least the one that is assumed."""
        return max(1, self.count(unit)) * (1 if unit in SHARED_UNITS else engines)

    def fallback(self, unit: str) -> str:
        """The unit itself where the device has it, else VPU, as the binder does."""
        if self.count(unit) > 0 or unit == "VPU":
            return unit
        return "VPU" if self.count("VPU") > 0 else unit

    def instances(self, unit: str) -> int:
        """How many instances a task may choose from; one is assumed of a unit that the device lacks altogether."""
        found = self.count(unit)
        if found == 0:
            self.defaults[f"topology.{unit}"] = found = 1
        return found

    def capacity(self, level: str) -> int | None:
        """Bytes of a memory level; None where nothing limits it."""
        if self.is_generic or level == "DDR":
            return None
        return self.topology.l2_size_bytes if level == "L2" else self.topology.l1_size_bytes

    @property
    def tokens(self) -> int | None:
        """How many tokens may be live on an engine; None where the device file does not say."""
        found = self.given("SEQ", "max_active_tokens")
        return None if found is None else max(1, found)

    @property
    def clock_khz(self) -> int | None:
        """The clock, where the device file gives one."""
        found = self.given("SEQ", "clock_khz")
        return found if found is not None and found > 0 else None

    def _links(self) -> dict[str, int]:
        """The levels whose total bandwidth is limited, in bytes a cycle."""
        found = {level: self.given("SEQ", key) for level, key in LINKS.items()}
        return {level: rate for level, rate in found.items() if rate is not None and rate > 0}


MACS, ELEMENTS, BYTES = "macs", "elements", "bytes"


_LATENCY = MappingProxyType({"NMU": 2, "CSTL": 1, "DMA": 4, "sDMA": 100, "VPU": 4})
_RATES = MappingProxyType({ELEMENTS: "elems_per_cycle", BYTES: "bytes_per_cycle", MACS: "macs_per_cycle"})
_RATE = MappingProxyType(
    {
        ("CSTL", ELEMENTS): 256,
        ("VPU", ELEMENTS): 64,
        ("CSTL", BYTES): 32,
        ("DMA", BYTES): 32,
        ("sDMA", BYTES): 16,
        ("VPU", BYTES): 32,
        ("VPU", MACS): 64,
    }
)
_ENERGY = MappingProxyType({MACS: "fj_per_mac", ELEMENTS: "fj_per_element", BYTES: "fj_per_byte"})
_PRODUCTS = frozenset({"gemm", "matmul"})
_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "depthwise_conv2d"})
_SHRINKING = frozenset(
    {"maxpool", "avgpool", "reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"},
)
_SLOWEST = 32
_MACS = 4096


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of each instance of a task, and the units it may run on; `links` are levels and bytes a cycle."""

    cycles: int
    unit: str
    engine: int
    instances: int
    kind: str
    work: int
    rate: int
    links: tuple[tuple[str, int], ...] = ()
    energy: int | None = None

    @property
    def place(self) -> tuple[int, str]:
        """The class of units it competes for."""
        return self.engine, self.unit


def cost_of(task: Task, machine: MachineModel) -> Cost:
    """The cost of a task on a device."""
    unit = machine.fallback(_unit(task))
    kind, work = work_of(task)
    levels = _crossed(task, machine)
    rate = min([rate_on(unit, kind, task, machine), *(machine.links[level] for level in levels)])
    energy = machine.given(unit, _ENERGY[kind])
    busy = -(-work // rate)
    if unpacks(task, machine):
        work, busy = _unpack(task, rate, machine)
    return Cost(
        cycles=max(1, busy + overhead(unit, machine)),
        unit=unit,
        engine=SHARED if unit in SHARED_UNITS else task.engine or 0,
        instances=machine.instances(unit),
        kind=kind,
        work=work,
        rate=rate,
        links=tuple((level, rate) for level in levels),
        energy=None if energy is None else energy * work,
    )


def unpacks(task: Task, machine: MachineModel) -> bool:
    """Whether a task reads stored weights through WDM; a device without one has them stored as they are."""
    return task.opcode == "transfer" and bool(task.inputs[0].buffer.codec) and machine.count("WDM") > 0


def _unpack(task: Task, rate: int, machine: MachineModel) -> tuple[int, int]:
    """The stored bytes that cross the link, and the cycles for them or for making the others of them."""
    source, count = task.inputs[0], machine.count("WDM")
    stored = -(-source.extent * source.buffer.stored // source.buffer.size)
    units = max(1, machine.count("sDMA"))
    made = machine.value("WDM", "bytes_per_cycle", 64, least=1) * min(count, units)
    busy = max(-(-stored // rate), -(-source.extent * units // made))
    return stored, busy + machine.value("WDM", "latency", 8)


def _unit(task: Task) -> str:
    if task.resource is not None:
        return task.resource.unit
    if task.opcode == "transfer":
        return "sDMA" if "DDR" in memories(task) else "DMA"
    if ways_through_ddr(task):
        return "sDMA"
    known = opcode(task.opcode)
    return known.units[0] if known is not None and known.units else "VPU"


def ways_through_ddr(task: Task) -> int:
    """How often a task that only moves elements carries each: once from DDR, once to it, or both; else 0."""
    known = opcode(task.opcode)
    if known is None or "view" not in known.families or task.resource is not None:
        return 0
    sources = task.inputs[:1] if task.opcode == "gather" else task.inputs
    return sum(any(item.buffer.memory == "DDR" for item in regions) for regions in (sources, task.outputs))


def crosses(task: Task, level: str) -> bool:
    """Whether a task moves bytes from or to a level."""
    return level in memories(task) if task.opcode in MOVES else level == "DDR" and ways_through_ddr(task) > 0


def memories(task: Task) -> frozenset[str]:
    """The memories that a task touches."""
    return frozenset(region.buffer.memory for region in (*task.inputs, *task.outputs))


def _crossed(task: Task, machine: MachineModel) -> list[str]:
    """The limited links that a data movement crosses; compute tasks are not charged for their operands."""
    return sorted(level for level in machine.links if crosses(task, level))


def overhead(unit: str, machine: MachineModel) -> int:
    """The cycles of a task on a unit beside its work: latency, set-up of a DMA, dispatch."""
    latency = machine.value(unit, "latency", _LATENCY.get(unit, 1))
    setup = machine.value(unit, "setup_cycles", 0) if unit in ("DMA", "sDMA") else 0
    return latency + setup + machine.value("SEQ", "dispatch_cycles", 0)


# --- work ---------------------------------------------------------------------------------------------------


def elements(region: Region) -> int:
    """How many elements a region has; bytes where it has no type."""
    return region.extent if region.type is None else prod(region.type.shape)


def work_of(task: Task) -> tuple[str, int]:
    """The kind and the amount of work of each instance of a task."""
    if task.opcode in MOVES:
        return BYTES, sum(region.extent for region in task.inputs)
    if ways := ways_through_ddr(task):
        return BYTES, ways * sum(region.extent for region in task.outputs)
    made = sum(elements(region) for region in task.outputs)
    if task.work is not None:
        return ELEMENTS, max(made, task.work)
    if task.opcode in _PRODUCTS:
        return MACS, made * (_shape(task, 0)[-1:] or (1,))[0]
    if task.opcode in _CONVOLUTIONS:
        kernel = _shape(task, 1)
        taps = kernel[:2] if task.opcode == "depthwise_conv2d" else kernel[:-1]
        return MACS, made * prod(taps)
    if task.opcode in _SHRINKING:
        return ELEMENTS, max(made, sum(elements(region) for region in task.inputs))
    return ELEMENTS, made


def _shape(task: Task, position: int) -> tuple[int, ...]:
    if position >= len(task.inputs):
        return ()
    type = task.inputs[position].type
    return () if type is None else type.shape


# --- rates --------------------------------------------------------------------------------------------------


def rate_on(unit: str, kind: str, task: Task, machine: MachineModel) -> int:
    """Work of a kind that one instance of a unit does in a cycle of a task."""
    if unit == "NMU" and kind == MACS:
        rate = _mac_rate(list(_operand_types(task.inputs[:2])), machine)
        thin = machine.given("NMU", "depthwise_macs") if _is_depthwise(task) else None
        return rate if thin is None or thin <= 0 else min(rate, thin)
    return machine.value(unit, _RATES[kind], _RATE.get((unit, kind), _SLOWEST), least=1)


def _is_depthwise(task: Task) -> bool:
    """Whether each output channel of a convolution reads one input channel of several."""
    if task.opcode == "depthwise_conv2d":
        return True
    return task.opcode == "conv2d" and _shape(task, 1)[2:3] == (1,) and _shape(task, 0)[-1:] != (1,)


def rates_of(unit: str, machine: MachineModel) -> dict[str, int]:
    """The rates of a unit by their keys, as the device file gives them or by default."""
    if unit != "NMU":
        found = {_RATES[kind]: rate for (name, kind), rate in _RATE.items() if name == unit}
        return {key: machine.value(unit, key, rate, least=1) for key, rate in found.items()}
    rates = {key: _macs(key, machine) for key in ("int4_macs", "int8_macs", "int16_macs", "fp16_macs")}
    given = {key: machine.given(unit, key) for key in ("int4x8_macs", "fp32_macs", "depthwise_macs")}
    return rates | {key: rate for key, rate in given.items() if rate is not None}


def _operand_types(regions: Iterable[Region]) -> Iterable[ElementType]:
    for region in regions:
        name = "i8" if region.type is None else region.type.elem
        yield dtype.find(name) or dtype.I8


def _mac_rate(types: list[ElementType], machine: MachineModel) -> int:
    """MACs a cycle of one NMU for the types of the two factors; the wider one decides, but 4×8 has its own key."""
    widest = max((item.bits for item in types), default=8)
    if any(item.is_float for item in types):
        return (
            _macs("fp16_macs", machine) if widest <= 16 else _macs_like("fp32_macs", "fp16_macs", 2, machine)
        )
    if widest > 8:
        return _macs("int16_macs", machine)
    if widest == 4:
        return _macs("int4_macs", machine)
    mixed = any(item.bits == 4 for item in types)
    return _macs_like("int4x8_macs", "int8_macs", 1, machine) if mixed else _macs("int8_macs", machine)


def _macs(key: str, machine: MachineModel) -> int:
    return machine.value("NMU", key, _MACS, least=1)


def _macs_like(key: str, other: str, share: int, machine: MachineModel) -> int:
    """The rate of a key whose default is a share of another rate, which is asked for only then."""
    return machine.given("NMU", key) or machine.value("NMU", key, _macs(other, machine) // share, least=1)
