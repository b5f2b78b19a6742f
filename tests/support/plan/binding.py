"""What the tests of binder and streams share: programs from text, their streams, and the order that a run kept."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

from lamella.backend.npu import compile_plan, random_inputs
from lamella.backend.npu.stream import compile_stream
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.lang.nem.resolved import Item, Loop, Plan, Task
from lamella.pipeline.nem.program import read_program
from lamella.plan.bind import bind
from lamella.plan.expand import expand
from lamella.plan.stcb import from_bytes, to_bytes
from lamella.plan.stcb.nodes import Stream
from lamella.plan.stcb.run import order_of, queue_up

EXAMPLES = Path(__file__).parents[3] / "examples" / "npu"


@dataclass(frozen=True)
class Bound:
    """A program and its stream."""

    plan: Plan
    stream: Stream
    findings: list[Diagnostic]

    @property
    def codes(self) -> list[str]:
        return [finding.code for finding in self.findings]


def read(text: str, folder: Path) -> Plan:
    """The plan of a program text."""
    path = folder / "program.nem"
    path.write_text(text, encoding="utf-8")
    program = read_program(path)
    wrong = [str(item) for item in program.findings if item.severity == "error"]
    assert not wrong
    assert program.plan is not None
    return program.plan


def bind_plan(plan: Plan) -> Bound:
    """The stream of a plan that can be bound."""
    stream, findings = bind(plan)
    assert stream is not None, [str(item) for item in findings]
    return Bound(plan, stream, findings)


def device_text(name: str = "d", **counts: int) -> str:
    """A device with all type variants that the tests use; counts replace the usual ones."""
    given = {
        "engines": 1,
        "NMU": 1,
        "CSTL": 2,
        "DMA": 2,
        "VPU": 1,
        "sDMA": 1,
        "WDM": 0,
        "tokens": 16,
    } | counts
    units = "".join(
        f"            {unit} = {given[unit]}\n" for unit in ("NMU", "CSTL", "DMA", "VPU") if given[unit]
    )
    return f"""include "nem_baseline_1.0.nem"
device {name} extends nem_baseline_1_0 {{
    topology {{
        num_engines = {given["engines"]}
        l2_size_bytes = 1048576
        device_units {{ sDMA = {given["sDMA"]} WDM = {given["WDM"]} }}
        per_engine {{
{units}            SEQ = 1
            l1_size_bytes = 524288
        }}
    }}
    unit_characteristics {{ SEQ {{ max_active_tokens = {given["tokens"]} }} }}
}}
device {name}
"""


def runs_of(stream: Stream, inputs: dict[str, Array], seeds: range) -> list[dict[str, Array]]:
    """The outputs of a stream: in its own order, then in random interleavings."""
    found = [compile_stream(stream)(**inputs)]
    return found + [compile_stream(stream, seed=seed, order="random")(**inputs) for seed in seeds]


def equals_program(bound: Bound, seeds: range = range(4)) -> bool:
    """Whether the stream, re-read from bytes, gives the bytes of the program in every interleaving that is tried."""
    inputs = random_inputs(bound.plan)
    wanted = compile_plan(bound.plan)(**inputs)
    stream = from_bytes(to_bytes(bound.stream))
    return all(same(wanted, found) for found in runs_of(stream, inputs, seeds))


def same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    """Whether two runs gave the same names and the same bytes."""
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def times_of(stream: Stream, seed: int | None) -> dict[int, tuple[int, int]]:
    """For each record by its number, when it started and when it was complete in one interleaving."""
    queues = queue_up(stream)
    starts: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    chooser = None if seed is None else random.Random(seed)
    for time, (number, begins) in enumerate(order_of(queues, chooser)):
        for record in queues.records(number):
            if begins:
                starts[record.seq] = time
            else:
                found[record.seq] = (starts[record.seq], time)
    return found


def precedence(plan: Plan) -> list[tuple[int, int]]:
    """All pairs of task instances, counted in program order, whose order the program fixes: by brute force."""
    nodes = expand(plan)
    before: list[int] = []
    for node in nodes:
        mask = 0
        for number in node.after:
            mask |= before[number] | 1 << number
        before.append(mask)
    tasks = [node.number for node in nodes if node.task is not None]
    return [
        (first, second)
        for second, number in enumerate(tasks)
        for first, other in enumerate(tasks[:second])
        if before[number] >> other & 1
    ]


def on_engines(plan: Plan, engines: int, seed: int) -> Plan:
    """The same program with some tasks sent to an engine by @seq_engine."""
    chooser = random.Random(seed)

    def place(item: Item) -> Item:
        if isinstance(item, Loop):
            return replace(item, body=tuple(place(inner) for inner in item.body))
        if isinstance(item, Task):
            return replace(item, engine=chooser.choice([None, *range(engines)]))
        return item

    return replace(plan, body=tuple(place(item) for item in plan.body))
