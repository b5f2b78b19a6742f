"""The few numbers and sentences that stand at the head and at the foot of every picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lamella.lang.nem.resolved import Plan
from lamella.plan.picture.names import count, in_bytes, in_thousands, percent
from lamella.plan.timing.bounds import CRITICAL_PATH, HEAD_WORK_TAIL, LINK, ROOFLINE, UNIT, Bound
from lamella.plan.timing.cost import MACS
from lamella.plan.timing.report import Report

Fact: TypeAlias = tuple[str, str, str]
"""A label, a value, and a note to it."""

_BOUNDS: Mapping[str, str] = MappingProxyType(
    {
        UNIT: "{what}: all its work",
        HEAD_WORK_TAIL: "{what}: what must come before, all its work, what must follow",
        CRITICAL_PATH: "the longest chain of tasks, were there units without number",
        LINK: "{what}: bytes moved",
        ROOFLINE: "{what}: at peak rate, each byte once",
    }
)
_INCLUDED = (
    "Included: transfers between DDR, L2 and L1, stores, unit latencies, DMA set-up, dispatch, loop windows, token "
    "limits, fill and drain of the pipeline."
)
_EXCLUDED = (
    "Not included: bank conflicts, arbitration inside a memory, DDR refresh and page misses, work of a host, "
    "and the memory traffic of compute tasks, whose operands are taken as they stand. "
    "A unit is busy for the whole of a task."
)
_WAITS = (
    "Waits: dependency = a token, wait or .sync; unit = its unit was busy; window = @max_in_flight; token = no token "
    "was free; bandwidth = the link was full."
)


def tell_topology(report: Report, plan: Plan) -> str:
    """Engines, memories and units of the device."""
    engines = f"{report.engines} engine{'s' if report.engines != 1 else ''}"
    topology = None if plan.device is None else plan.device.topology
    if topology is None:
        return f"{engines} · no device file: default units and rates, memories without end"
    units = {**topology.per_engine, **topology.device_units}
    sizes = [f"L1 {in_bytes(topology.l1_size_bytes)}", f"L2 {in_bytes(topology.l2_size_bytes)}"]
    return " · ".join(
        [engines, *sizes, ", ".join(f"{unit} {number}" for unit, number in units.items() if number)]
    )


def tell_bound(bound: Bound) -> str:
    """What a bound counts."""
    return _BOUNDS[bound.name].format(what=bound.what) if bound.what or bound.name == CRITICAL_PATH else ""


def find_facts(report: Report) -> Iterator[Fact]:
    """The numbers that people ask for first."""
    binding = report.binding
    what = f" ({binding.what})" if binding.what else ""
    yield "cycles", count(report.cycles), ""
    yield "schedule ÷ bound", f"{report.ratio:.3f}", f"{binding.name.replace('_', '-')}{what} is binding"
    if report.microseconds is not None and report.clock_khz is not None:
        yield "time", _time(report.microseconds), f"at {in_thousands(report.clock_khz * 1000, 'Hz')}"
    if report.energy is not None:
        yield "energy", _energy(report.energy), f"{_energy(report.energy // max(report.cycles, 1))} a cycle"
    yield "task instances", count(report.instances), f"of {plural(len(report.tasks), 'task')}"
    yield from _work(report)
    for traffic in report.traffic:
        times = f"{traffic.moved / max(traffic.compulsory, 1):,.2f} × its buffers' bytes".replace(",", " ")
        yield f"{traffic.level} traffic", in_bytes(traffic.moved), times


def plural(number: int, what: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count(number)} {what}{'' if number == 1 else 's'}"


def _work(report: Report) -> Iterator[Fact]:
    macs = sum(task.work * task.count for task in report.tasks if task.kind == MACS)
    if macs:
        yield "MACs", in_thousands(macs, "").strip(), f"{count(macs // max(report.cycles, 1))} a cycle"


def _time(microseconds: float) -> str:
    units = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))
    unit, size = next((item for item in units if microseconds >= item[1]), ("ns", 1e-3))
    return f"{microseconds / size:.4g} {unit}"


def _energy(femtojoules: int) -> str:
    units = (("J", 1e15), ("mJ", 1e12), ("µJ", 1e9), ("nJ", 1e6), ("pJ", 1e3))
    unit, size = next((item for item in units if femtojoules >= item[1]), ("fJ", 1.0))
    return f"{femtojoules / size:.4g} {unit}"


def find_notes(report: Report) -> Iterator[str]:
    """What the numbers include, and where they come from."""
    yield _INCLUDED
    yield _EXCLUDED
    yield _WAITS
    yield _defaults(report)
    if report.clock_khz is None:
        yield "The device file gives no clock (SEQ.clock_khz): cycles only."
    if report.energy is None:
        yield "The device file gives no energy keys (fj_per_mac, fj_per_element, fj_per_byte): no energy."
    if report.forced:
        yield f"{count(report.forced)} task instances started beyond the token limit, as nothing else could run."
    if report.simulated < report.instances:
        share = percent(report.simulated / report.instances)
        yield f"Repeating loop iterations were found: {share} of the instances were simulated, the others are equal."


def _defaults(report: Report) -> str:
    if not report.defaults:
        return "Every value of the cost model comes from the device file."
    used = ", ".join(f"{key} {value}" for key, value in report.defaults.items())
    return f"Defaults of the cost model, where the device file is silent: {used}."
