"""Plans built by hand, for tests of what reads plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from lamella.base.source import EMPTY_SOURCE
from lamella.lang.nem import nodes
from lamella.lang.nem.device import InheritedValue, ResolvedDevice, ResolvedTopology
from lamella.lang.nem.resolved import (
    Atom,
    AttributeValue,
    Buffer,
    Index,
    Item,
    Loop,
    Operation,
    Plan,
    Region,
    Resource,
    Task,
    Variable,
    Wait,
)


def buffer(name: str, size: int, level: str = "L2", align: int = 1, imported: bool = False) -> Buffer:
    memory, _, engine = level.partition("[")
    node = nodes.Buffer(nodes.Name(name), memory, None, nodes.Integer(size))
    return Buffer(name, memory, int(engine.rstrip("]") or 0), size, align, imported, node)


def index(constant: int = 0, *terms: tuple[Atom, int]) -> Index:
    return Index(constant, terms)


def variable(loop: int) -> Index:
    return Index(0, ((Variable(loop, f"i{loop}"), 1),))


def operation(sign: str, left: Index, right: Index | int) -> Index:
    other = Index(right) if isinstance(right, int) else right
    return Index(0, ((Operation(sign, left, other), 1),))


def plus(left: Index, right: Index, factor: int = 1) -> Index:
    terms = dict(left.terms)
    for atom, count in right.terms:
        terms[atom] = terms.get(atom, 0) + factor * count
    return Index(left.constant + factor * right.constant, tuple((a, n) for a, n in terms.items() if n))


def region(of: Buffer, offset: Index | int, extent: int, name: str = "", readonly: bool = False) -> Region:
    where = Index(offset) if isinstance(offset, int) else offset
    return Region(name, of, where, extent, None, readonly=readonly)


class Marks(TypedDict, total=False):
    """What a task may carry beside its operands."""

    sync: bool
    memmove: bool
    resource: Resource | None
    engine: int | None
    attributes: Mapping[str, AttributeValue]
    debug: str
    profile: str


@dataclass
class Draft:
    """Numbers tasks and loops while a program is put together."""

    tasks: int = 0
    loops: int = 0
    buffers: list[Buffer] = field(default_factory=list)

    def task(
        self,
        opcode: str,
        inputs: Sequence[Region],
        outputs: Sequence[Region],
        deps: Sequence[Task] = (),
        **marks: Unpack[Marks],
    ) -> Task:
        number, sync = self.tasks, marks.get("sync", False)
        self.tasks += 1
        token = f"t{number}"
        node = nodes.Task(nodes.Name(token), nodes.Name(opcode), "sync" if sync else "async", (), ())
        return Task(
            number=number,
            token=token,
            opcode=opcode,
            sync=sync,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attributes=marks.get("attributes", {}),
            deps=tuple(dep.number for dep in deps),
            engine=marks.get("engine"),
            resource=marks.get("resource"),
            node=node,
            memmove=marks.get("memmove", False),
            debug=marks.get("debug", ""),
            profile=marks.get("profile", ""),
        )

    def loop_number(self) -> int:
        self.loops += 1
        return self.loops - 1

    def plan(self, body: Sequence[Item], device: ResolvedDevice | None = None) -> Plan:
        return Plan("test", EMPTY_SOURCE, device, tuple(self.buffers), tuple(body))


class Builder(Draft):
    """Puts programs together whose bytes matter."""

    def buffer(
        self, name: str, size: int, level: str = "L2", align: int = 1, imported: bool = False
    ) -> Buffer:
        self.buffers.append(buffer(name, size, level, align, imported))
        return self.buffers[-1]

    def move(self, src: Region, dst: Region, *deps: Task, sync: bool = False) -> Task:
        return self.task("transfer", [src], [dst], deps, sync=sync)


def loop(number: int, first: int, last: int, window: int, body: Sequence[Item]) -> Loop:
    return Loop(number, f"i{number}", first, last, window, tuple(body))


def wait(*tasks: Task) -> Wait:
    return Wait(tuple(task.number for task in tasks))


def device(
    l1: int = 1 << 20, l2: int = 1 << 20, engines: int = 1, tokens: int | None = None
) -> ResolvedDevice:
    units = {"NMU": 1, "CSTL": 2, "DMA": 2, "VPU": 1, "SEQ": 1}
    topology = ResolvedTopology(engines, l1, l2, units, {"sDMA": 1}, "test")
    known = {} if tokens is None else {"SEQ": {"max_active_tokens": InheritedValue(tokens, "test")}}
    return ResolvedDevice("test", ("test",), "1.0", topology, known, {}, {})
