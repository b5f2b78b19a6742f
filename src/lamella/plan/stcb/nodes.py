"""STCB on one page: a bound program as the streams of task-control records that the engines take.

It is our own format, in the words of `docs/layers/stcb.md`; it is not the vendor's TCB, whose register maps are not
public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import LamellaError
from lamella.base.levels import at_level
from lamella.base.quant import Quant
from lamella.base.source import NOWHERE
from lamella.lang.nem.registry import load_registry
from lamella.lang.nem.resolved import AttributeValue
from lamella.lang.nem.rules import BAD_STREAM

# --- what is wrong with a stream, as the one finding that every reader of streams raises --------------------


def bad_stream(problem: str) -> LamellaError:
    """The error of a stream that cannot be taken."""
    return LamellaError([BAD_STREAM.at(NOWHERE, problem=problem)])


VERSION = (1, 1)
SHOWN_VERSION = f"{VERSION[0]}.{VERSION[1]}"
MOST_BITS = 32
MOST_ENGINES = 64
MOST_QUEUES = 512
"""Units in use, all engines together; the proof of a stream takes time and memory in proportion."""
RESET = "reset"
PLAIN, WDM = "plain", "wdm"
LEVELS = ("DDR", "L2", "L1")
UNIT_TYPES = ("SEQ", "DMA", "NMU", "CSTLA", "CSTLB", "VPU", "SDMA")
"""Kinds of queues; the place in this list is the number in the binary form."""


def op_names() -> tuple[str, ...]:
    """`reset` and the opcodes in the order of the registry; the place in this list is the number in the binary form."""
    return (RESET, *load_registry())


@dataclass(frozen=True, slots=True)
class StreamUnit:
    """An execution unit of an engine; the two halves of a CSTL are units of their own."""

    type: str
    index: int

    def __str__(self) -> str:
        half = self.type[4:] if self.type.startswith("CSTL") else ""
        return f"{self.type.removesuffix(half) if half else self.type}{self.index}{half}"


@dataclass(frozen=True, slots=True)
class StridedAccess:
    """Bytes at an address read or written as an N-dimensional strided tensor; strides count elements.

    `quant` is a place in the stream's constants. L1 is that of the engine in whose stream the record stands.
    """

    level: str
    addr: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "u8"
    layout: str | None = None
    quant: int | None = None


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """The statement of the program and the iteration that a record was made from."""

    line: int = 0
    token: str = ""
    iteration: tuple[tuple[str, int], ...] = ()
    debug: str = ""
    profile: str = ""

    def later(self, place: int, iterations: int) -> RecordOrigin:
        """The same statement in a later iteration of the loop whose variable stands at a place."""
        moved = tuple(
            (name, value + iterations) if number == place else (name, value)
            for number, (name, value) in enumerate(self.iteration)
        )
        return replace(self, iteration=moved)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task for one unit: what it waits for, what it does, what it tells others.

    `seq` is its place in the program; streams keep that order but for chains, which stand together.
    `wait`, `set` and `clear` are bits of the engine's own bank, `remote` are bits (engine, bit) set in other banks.
    `chain` hands the result to the next record of the stream instead of writing it.
    """

    seq: int
    unit: StreamUnit
    op: str
    wait: tuple[int, ...] = ()
    set: tuple[int, ...] = ()
    clear: tuple[int, ...] = ()
    remote: tuple[tuple[int, int], ...] = ()
    src: tuple[StridedAccess, ...] = ()
    dst: tuple[StridedAccess, ...] = ()
    attrs: Mapping[str, AttributeValue] = field(default_factory=lambda: MappingProxyType({}))
    chain: bool = False
    path: str = PLAIN
    memmove: bool = False
    origin: RecordOrigin = RecordOrigin()


@dataclass(frozen=True, slots=True)
class MappedBuffer:
    """A buffer of the memory map; `number` counts declarations, `engine` is the owner of an L1, 0 elsewhere.

    One that is stored by a codec has `size` bytes for records, and `stored` bytes in DDR at most.
    """

    number: int
    buffer: str
    level: str
    engine: int
    addr: int
    size: int
    imported: bool = False
    codec: str = ""
    stored: int = 0


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A typed region that a caller may name, with the engine whose L1 it lies in (0 elsewhere)."""

    name: str
    engine: int
    access: StridedAccess


@dataclass(frozen=True, slots=True)
class StreamKernel:
    """A kernel that records of `compute` run: its name and its canonical text in the tensor language."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Records of an engine that stand for many: `length` of them from place `first` on, `count` times in a row.

    From one copy to the next, sequence numbers grow by `seq_step`, the loop variable at place `variable` of origins by
    `variable_step`, and the address of each operand, sources before destinations, by its number in `steps`.
    """

    engine: int
    first: int
    length: int
    count: int
    seq_step: int
    variable: int
    variable_step: int
    steps: tuple[tuple[int, ...], ...]

    @property
    def end(self) -> int:
        """The place behind the last of its records."""
        return self.first + self.length

    def copy(self, place: int, record: TaskRecord, number: int) -> TaskRecord:
        """The record at a place of the period in a copy, counted from 0."""
        if not number:
            return record
        grown = [number * step for step in self.steps[place]]
        return replace(
            record,
            seq=record.seq + number * self.seq_step,
            src=_shifted(record.src, grown),
            dst=_shifted(record.dst, grown[len(record.src) :]),
            origin=record.origin.later(self.variable, number * self.variable_step),
        )


def _shifted(items: tuple[StridedAccess, ...], by: list[int]) -> tuple[StridedAccess, ...]:
    return tuple(
        replace(item, addr=item.addr + step) if step else item for item, step in zip(items, by, strict=False)
    )


@dataclass(frozen=True, slots=True)
class Stream:
    """A bound program: the memory map, one stream of records for each engine, and the tables they refer to.

    `engines` are the records as they are written; `repeats`, by engine and place, says which of them stand for many.
    """

    name: str
    device: str
    bits: int
    memory: tuple[MappedBuffer, ...]
    engines: tuple[tuple[TaskRecord, ...], ...]
    constants: tuple[Quant, ...] = ()
    tensors: tuple[NamedTensor, ...] = ()
    kernels: tuple[StreamKernel, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    path: Path | None = field(default=None, compare=False, repr=False)
    """The file that it was read from."""

    @property
    def language(self) -> str:
        """The row of the registry of languages that knows it."""
        return "stream"

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """What it is: its records, and the memories that they use."""
        peaks = ", ".join(f"{level} {size:,} B" for level, size in self.peaks().items())
        facts = (
            ("records", f"{sum(map(len, self.engines)):,}"),
            ("engines", f"{len(self.engines)}"),
            ("token bits", f"{self.bits}"),
            ("device", self.device),
            ("memory", peaks),
        )
        return Card("stream", self.name, facts)

    def peaks(self) -> dict[str, int]:
        """The end of the last buffer of each memory; memories are named as a program names them."""
        found: dict[str, int] = {}
        for place in self.memory:
            level = level_name(place.level, place.engine)
            found[level] = max(found.get(level, 0), place.addr + place.size)
        return found

    def written(self) -> Iterator[tuple[int, TaskRecord]]:
        """The records that are written, with the number of their engine."""
        return ((engine, record) for engine, stream in enumerate(self.engines) for record in stream)

    def count(self) -> int:
        """How many records are executed."""
        written = sum(map(len, self.engines))
        return written + sum((item.count - 1) * item.length for item in self.repeats)

    def records(self) -> Iterator[tuple[int, TaskRecord]]:
        """The records that are executed, engine by engine, each repeated one as often as it is."""
        for engine, stream in enumerate(self.engines):
            place = 0
            for repeat in self.repeats_of(engine):
                yield from ((engine, record) for record in stream[place : repeat.first])
                period = stream[repeat.first : repeat.end]
                for number in range(repeat.count):
                    yield from (
                        (engine, repeat.copy(inner, record, number)) for inner, record in enumerate(period)
                    )
                place = repeat.end
            yield from ((engine, record) for record in stream[place:])

    def repeats_of(self, engine: int) -> list[Repeat]:
        """The repeats of an engine."""
        return [item for item in self.repeats if item.engine == engine]


def level_name(level: str, engine: int) -> str:
    """A memory as a program writes it."""
    return f"L1[{engine}]" if level == "L1" else level


def groups(stream: tuple[TaskRecord, ...]) -> Iterator[tuple[TaskRecord, ...]]:
    """The records of one engine, those that a chain binds together as one group."""
    start = 0
    for position, record in enumerate(stream):
        if not record.chain:
            yield stream[start : position + 1]
            start = position + 1
    if start < len(stream):
        yield stream[start:]
