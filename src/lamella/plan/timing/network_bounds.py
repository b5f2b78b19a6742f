"""Lower bounds of a network: what no plan of it on a device can beat, from the untiled program and the device alone.

The untiled program has one task for each operation, all tensors in DDR. A plan of it keeps to the data path: DDR ↔ L2
by sDMA, L2 → L1 by DMA, L1 → L2 by CSTL or DMA; computations work on L1, vectors (biases, tables) may be read from L2.
The VPU moves no data, and multiplies only for want of an NMU. All operations are done but those that only rearrange,
and no MAC less. The plan may spread each operation over all units, cut it as finely as it likes, run operations beside
each other as far as single output elements allow, and keep every tensor between two operations on chip.

- compute: MACs or elements at the peak rate of all units that may run them, after the least that must come before the
  first of them (loads, operations before) and before the least that must follow the last (operations, stores);
- ddr: each byte of inputs and weights once, each byte of results once; inputs lie in buffers of their own, so each has
  a transfer of its own; after the last load something must still use it;
- l1: the same bytes from L2 to L1, results back;
- path: the longest chain of operations, each as fast as all units together, overlapping as far as possible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from types import MappingProxyType

from lamella.base.arrays import Array
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.registry import opcode
from lamella.lang.nem.resolve import eligible_units
from lamella.lang.nem.resolved import Plan, Region, Task
from lamella.plan.operands import Codes
from lamella.plan.timing.bounds import CycleBound
from lamella.plan.timing.cost import MACS, MachineModel, overhead, rate_on, work_of
from lamella.plan.timing.dataflow import (
    KEEPING,
    DataEdge,
    Dataflow,
    dense_bytes,
    find_dataflow,
    is_free,
    is_loaded,
)
from lamella.plan.timing.shares import following_share, needed_share

COMPUTE, DDR, L1, PATH = "compute", "ddr", "l1", "path"


@dataclass(frozen=True, slots=True)
class NetworkBounds:
    """The bounds of a network on a device, the bytes that must cross DDR, and the MACs."""

    bounds: tuple[CycleBound, ...]
    read: int
    written: int
    macs: int

    @property
    def largest(self) -> CycleBound:
        """The bound that no plan can beat; of equal ones the first."""
        return max(self.bounds, key=lambda bound: bound.cycles, default=CycleBound(PATH, 0))

    @property
    def compulsory(self) -> int:
        """Bytes that cross DDR in every plan."""
        return self.read + self.written

    def to_json(self) -> dict[str, object]:
        """The bounds as commands print them."""
        return {
            "cycles": self.largest.cycles,
            "binding": self.largest.name,
            "binding_on": self.largest.what,
            "bounds": [
                {"name": bound.name, "cycles": bound.cycles, "what": bound.what} for bound in self.bounds
            ],
            "compulsory": self.compulsory,
            "read": self.read,
            "written": self.written,
            "macs": self.macs,
        }


def find_network_bounds(
    plan: Plan,
    device: ResolvedDevice | None = None,
    outputs: Collection[str] = (),
    arrays: Mapping[str, Array] | None = None,
) -> NetworkBounds:
    """The bounds of an untiled program on a device, its own where none is given.

    `outputs` are the buffers of the network's results; those that nothing reads count whether they are named or not,
    but for what kernels write beside their first result: scratch.
    Where the device has WDM, `arrays`, the bytes of weights, tell how few of them any codec stores.
    """
    machine = MachineModel(device or plan.device)
    known = arrays is not None and machine.count("WDM") > 0
    flow = find_dataflow(plan, outputs, _least_stored(plan, arrays or {}) if known else {})
    work = _Work(machine, flow)
    times = _Times(work, flow)
    links = _Links(machine, flow)
    bounds = [*_compute_bounds(work, times), *_link_bounds(links, times)]
    bounds.append(CycleBound(PATH, max(times.ends(), default=0)))
    macs = sum(amount for number, amount in work.amount.items() if work.kind[number] == MACS)
    return NetworkBounds(tuple(bounds), links.read, links.written, macs)


def _least_stored(plan: Plan, arrays: Mapping[str, Array]) -> dict[str, int]:
    """For each buffer of weights the fewest bytes in which codecs store the operands that lie there."""
    codes = Codes(arrays)
    regions = {
        (item.buffer.name, item.offset, item.extent): item for task in plan.tasks() for item in task.inputs
    }
    found: dict[str, int] = {}
    for region in regions.values():
        if region.buffer.imported and region.offset.is_constant:
            saved = region.extent - codes.least(region)
            name, size = region.buffer.name, region.buffer.size
            found[name] = max(0, found.get(name, size) - saved)
    return found


# --- computation --------------------------------------------------------------------------------------------


class _Work:
    """The work of each computation, and for each unit that may run it the work that all its instances do in a cycle."""

    def __init__(self, machine: MachineModel, flow: Dataflow) -> None:
        self.machine = machine
        self.kind: dict[int, str] = {}
        self.once: dict[int, int] = {}
        self.amount: dict[int, int] = {}
        self.peaks: dict[int, Mapping[str, int]] = {}
        self.latency: dict[int, int] = {}
        for task in flow.tasks:
            if not is_free(task):
                self._add(task, flow.counts[task.number])

    def _add(self, task: Task, count: int) -> None:
        number, machine = task.number, self.machine
        units = _units(task, machine)
        kind, amount = work_of(task)
        self.kind[number], self.once[number], self.amount[number] = kind, amount, amount * count
        self.peaks[number] = MappingProxyType(
            {
                unit: rate_on(unit, kind, task, machine) * machine.total(unit, machine.engines)
                for unit in units
            }
        )
        self.latency[number] = min(overhead(unit, machine) for unit in units)

    def cycles(self, number: int, share: Fraction | None = None) -> int:
        """The least time of a share of one run of a task, however finely it is cut; without a share, of all runs."""
        work = self.amount[number] if share is None else share * self.once[number]
        busy = ceil(Fraction(work) / sum(self.peaks[number].values()))
        return max(1, self.latency[number] + max(busy, 1 if self.once[number] else 0))


def _units(task: Task, machine: MachineModel) -> list[str]:
    """The units of the device that may run a task."""
    known = opcode(task.opcode)
    allowed = ("VPU",) if known is None else eligible_units(task, known)
    if work_of(task)[0] == MACS and machine.count(allowed[0]):
        return [allowed[0]]
    return [unit for unit in allowed if machine.count(unit)] or [machine.fallback(allowed[0])]


def _compute_bounds(work: _Work, times: _Times) -> Iterator[CycleBound]:
    """For each pair of units that share a task, all that can run nowhere else; a unit alone is a pair with itself."""
    units = sorted({unit for peaks in work.peaks.values() for unit in peaks})
    for position, first in enumerate(units):
        for second in units[position:]:
            tasks = [number for number, peaks in work.peaks.items() if peaks.keys() <= {first, second}]
            names = sorted({first, second})
            if any(work.peaks[task].keys() == {first, second} for task in tasks):
                busy = ceil(_spread(work, tasks, first, second)) + min(work.latency[task] for task in tasks)
                head = min(times.starts[task] for task in tasks)
                tail = min(times.tails[task] for task in tasks)
                yield CycleBound(COMPUTE, head + busy + tail, " and ".join(names))


def _spread(work: _Work, tasks: list[int], first: str, second: str) -> Fraction:
    """The shortest time in which two kinds of units can share tasks.

    It is a linear program; each weight of the first unit (the second has the rest) gives a lower bound, and the largest
    is reached where a task takes as long on one as on the other.
    """
    weights = {Fraction(0), Fraction(1)}
    for task in tasks:
        peaks = work.peaks[task]
        if first != second and len(peaks) == 2:
            weights.add(Fraction(peaks[first], peaks[first] + peaks[second]))
    return max(_weighted(work, tasks, {second: 1 - weight, first: weight}) for weight in weights)


def _weighted(work: _Work, tasks: list[int], weights: Mapping[str, Fraction]) -> Fraction:
    return sum(
        (
            work.amount[task] * min(weights[unit] / peak for unit, peak in work.peaks[task].items())
            for task in tasks
        ),
        Fraction(0),
    )


# --- links --------------------------------------------------------------------------------------------------


class _Links:
    """Bytes that must cross, and the rate of everything that carries them."""

    def __init__(self, machine: MachineModel, flow: Dataflow) -> None:
        self.machine = machine
        self.read = sum(flow.read.values())
        self.written = sum(flow.written.values())
        self.loaded = sum(flow.loaded.values())
        self.results = sum(flow.results.values())
        inputs = [
            flow.read[item.name] for item in flow.buffers if not item.imported and flow.loaded.get(item.name)
        ]
        self.inputs = [size for size in inputs if size]

    def loading(self, latency: int) -> int:
        """The least time in which all that is read comes from DDR.

        Where `many` of the sDMAs bring weights, each pays its latency, and these cannot bring them sooner; all of them
        together pay one more for each input.
        """
        every, units = self.rate("sDMA", "DDR"), self.machine.total("sDMA", self.machine.engines)
        found = latency + ceil(Fraction(self.read, every))
        weights = self.read - sum(self.inputs)
        if not self.inputs or weights <= 0:
            return found
        each = Fraction(self.machine.value("sDMA", "bytes_per_cycle", 16, least=1))
        count = len(self.inputs)
        shared = (
            max(
                latency + ceil(weights / (each * many)),
                ceil(((many + count) * latency + self.read / each) / units),
            )
            for many in range(1, units + 1)
        )
        return max(found, min(shared))

    def rate(self, unit: str, level: str) -> int:
        """Bytes a cycle that all instances of a unit move across a level."""
        machine = self.machine
        every = machine.value(unit, "bytes_per_cycle", 16 if unit == "sDMA" else 32, least=1)
        every *= machine.total(unit, machine.engines)
        return min(every, machine.links.get(level, every))


def _link_bounds(links: _Links, times: _Times) -> Iterator[CycleBound]:
    system, near, back = links.rate("sDMA", "DDR"), links.rate("DMA", "L2"), links.rate("CSTL", "L2")
    if links.read:
        yield CycleBound(DDR, links.loading(times.load) + times.after_load, "loads")
    if links.read + links.written:
        both = ceil(Fraction(links.read + links.written, system))
        yield CycleBound(DDR, times.load + both, "loads and stores")
    if links.loaded:
        first = times.load + 1 if links.read else 0
        busy = times.move + ceil(Fraction(links.loaded, near))
        yield CycleBound(L1, first + busy + max(0, times.after_load - times.move - 1), "loads")
    if links.loaded + links.results:
        yield CycleBound(L1, ceil(Fraction(links.loaded + links.results, near + back)), "loads and stores")


# --- chains -------------------------------------------------------------------------------------------------


class _Times:
    """For each computation the earliest start of its first tile and what must follow the end of its last one."""

    def __init__(self, work: _Work, flow: Dataflow) -> None:
        machine = work.machine
        self.work, self.flow = work, flow
        self.load, self.move = overhead("sDMA", machine), overhead("DMA", machine)
        self.store = min(self.move, overhead(machine.fallback("CSTL"), machine))
        self.starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self.tails: dict[int, int] = {}
        self._rate = _Links(machine, flow).rate("sDMA", "DDR")
        for task in flow.tasks:
            self._forward(task)
        for task in reversed(flow.tasks):
            self._backward(task)
        self.after_load = self._least_after_load()

    def ends(self) -> Iterator[int]:
        """For each task, the earliest end of everything that follows it."""
        return (self._ends[task] + self.tails[task] for task in self._ends)

    def _forward(self, task: Task) -> None:
        number, edges = task.number, self.flow.producers[task.number]
        if is_free(task):
            found = [self._ready(edge, Fraction(0)) for edge in edges]
            outside = any((number, operand) in self.flow.outside for operand in range(len(task.inputs)))
            self.starts[number] = 0 if outside else min(found, default=0)
            self._ends[number] = max((self._ends[edge.made] for edge in edges if edge.whole), default=0)
            return
        work = self.work
        start, end = self._loaded(task), 0
        for edge in edges:
            start = max(start, self._first(task, edge))
            if edge.whole:
                end = max(
                    end, self._ends[edge.made] + work.cycles(number, following_share(task, edge.operand))
                )
        self.starts[number] = start
        self._ends[number] = max(end, start + work.cycles(number))

    def _first(self, task: Task, edge: DataEdge) -> int:
        """When the part of an operand that the first tile needs can be there: what others made of it may come first."""
        region = task.inputs[edge.operand]
        made = self.flow.by_number[edge.made].outputs
        others = region.extent - edge.overlap
        dense = len(made) == 1 and all(dense_bytes(item) == item.extent for item in (region, *made))
        if not dense:
            return 0 if others else self._ready(edge, Fraction(0))
        needed = needed_share(task, edge.operand) * region.extent - others
        return 0 if others and needed <= 0 else self._ready(edge, needed / made[0].extent)

    def _ready(self, edge: DataEdge, share: Fraction) -> int:
        """When a share of what a task makes is there; what was only rearranged is there with its first part."""
        start = self.starts[edge.made]
        return start + self.work.cycles(edge.made, share) if edge.made in self.work.once else start

    def _loaded(self, task: Task) -> int:
        """When what the first tile needs of inputs and weights can be in L1."""
        found = [
            (region, needed_share(task, operand) * self.flow.outside[task.number, operand])
            for operand, region in enumerate(task.inputs)
            if (task.number, operand) in self.flow.outside
        ]
        near = self.move + 1 if any(is_loaded(task, region) for region, _ in found) else 0
        far = _together([(region, part) for region, part in found if region.buffer.memory == "DDR"])
        if any(region.buffer.memory == "DDR" for region, _ in found):
            near += self.load + max(1, ceil(far / self._rate))
        return near

    def _backward(self, task: Task) -> None:
        tail = self._stored(task)
        for edge in self.flow.users[task.number]:
            if edge.whole and edge.user in self.work.once:
                share = following_share(self.flow.by_number[edge.user], edge.operand)
                tail = max(tail, self.work.cycles(edge.user, share) + self.tails[edge.user])
            elif edge.whole:
                tail = max(tail, self.tails[edge.user])
        self.tails[task.number] = tail

    def _stored(self, task: Task) -> int:
        if task.number not in self.flow.final:
            return 0
        far = self.load + 1 if any(region.buffer.memory == "DDR" for region in task.outputs) else 0
        return far if is_free(task) else self.store + 1 + far

    def _least_after_load(self) -> int:
        """What must follow the last load: the move to L1, and the computation that needs it, with all that follows."""
        found = [self._after_load(*place) for place in self.flow.outside]
        return min(found, default=0)

    def _after_load(self, number: int, operand: int) -> int:
        task = self.flow.by_number[number]
        if is_free(task):
            return self.tails[number] if task.opcode in KEEPING else 0
        near = self.move + 1 if is_loaded(task, task.inputs[operand]) else 0
        return near + self.work.cycles(number, following_share(task, operand)) + self.tails[number]


def _together(parts: list[tuple[Region, Fraction]]) -> Fraction:
    """The least bytes that hold parts of regions: where two share bytes, so may their parts."""
    total = Fraction(0)
    for name in {region.buffer.name for region, _ in parts}:
        here = [(region, part) for region, part in parts if region.buffer.name == name]
        ranges = sorted(
            (region.offset.constant, region.offset.constant + region.extent) for region, _ in here
        )
        apart = all(end <= start for (_, end), (start, _) in pairwise(ranges))
        sizes = [part for _, part in here]
        total += sum(sizes, Fraction(0)) if apart else max(sizes)
    return total
