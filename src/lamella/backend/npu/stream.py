"""Executes a task-control stream: engines and units side by side, held together by token bits alone.

The stream is read back as a plan whose tasks are its records, so that names, inputs, outputs and random inputs are
those of the program it was bound from. The order of execution comes from the stream's own rules, never from that plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import name_inputs
from lamella.backend.npu.executable import PROGRAM, PlanExecutable
from lamella.backend.npu.findings import RunFindings
from lamella.backend.npu.memory import MemoryImage, read_tensor, within_memory, write_tensor
from lamella.backend.npu.opcodes import OpcodeInput
from lamella.backend.npu.vpu import Vpu, kernel_of_text
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, Rule, errors
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import EMPTY_SOURCE
from lamella.lang.nem import nodes as text
from lamella.lang.nem.check.kernels import check_kernels
from lamella.lang.nem.resolved import Buffer, Index, Plan, Region, Task, TensorType
from lamella.lang.nem.rules import UNINITIALISED
from lamella.plan.stcb.nodes import (
    RESET,
    MappedBuffer,
    NamedTensor,
    Stream,
    StridedAccess,
    TaskRecord,
    bad_stream,
    level_name,
)
from lamella.plan.stcb.run import Queues, order_of, queue_up
from lamella.plan.stcb.validate import hands_on, tensor_type

Result = tuple[StridedAccess, TensorType, Array]
"""A value on its way to memory."""


def compile_stream(
    stream: Stream, *, seed: int = 0, order: str = PROGRAM, limits: Limits = DEFAULT
) -> StreamExecutable:
    """Make a stream callable; `order` "random" or "random:SEED" picks how the units interleave."""
    return StreamExecutable(stream, seed, order, limits)


class StreamExecutable(PlanExecutable):
    """Runs a stream; without inputs they are random, the same as those of the program with the same seed."""

    def __init__(self, stream: Stream, seed: int, order: str, limits: Limits) -> None:
        super().__init__(plan_of(stream), seed, order, limits)
        self.stream = stream

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once, in the default interleaving or in one that the seed picks."""
        self.findings = []
        memory = self._fill(name_inputs(self.inputs, arrays, inputs))
        random = None if self._order_seed is None else Random(self._order_seed)
        with within_memory(self.plan.buffers):
            run = _StreamRun(self.stream, self.plan, memory, self._limits)
            self.findings = run.all(queue_up(self.stream), random)
        if errors(self.findings):
            raise LamellaError(self.findings)
        return {name: self._ports.read(memory, name) for name in self.outputs}


class _StreamRun:
    """One execution: what was started and is not complete holds the values it is going to write."""

    def __init__(self, stream: Stream, plan: Plan, memory: MemoryImage, limits: Limits) -> None:
        self.stream = stream
        self.memory = memory
        self.places = _BufferTable(stream)
        self.findings = RunFindings(plan)
        self.vpu = Vpu(plan.kernels, limits)
        self.statements: dict[object, int] = {}
        self.pending: dict[int, list[Result] | None] = {}

    def all(self, queues: Queues, random: Random | None) -> list[Diagnostic]:
        """Run to the end; a stream that stops before it is an error."""
        left = len(queues.groups)
        for number, starts in order_of(queues, random):
            engine = queues.groups[number].engine
            if starts:
                # A unit reads somewhere between start and completion: both ends are tried.
                late = random is not None and random.random() < 0.5
                self.pending[number] = None if late else self.compute(engine, queues.records(number))
            else:
                results = self.pending.pop(number)
                self.write(
                    engine, self.compute(engine, queues.records(number)) if results is None else results
                )
                left -= 1
            if self.findings.failed:
                return self.findings.diagnostics()
        if left:
            raise bad_stream(
                f"the stream stops: {left} of {len(queues.groups)} tasks wait for bits that nothing sets"
            )
        return self.findings.diagnostics()

    def compute(self, engine: int, records: Sequence[TaskRecord]) -> list[Result]:
        """The results of records that a chain binds together; only the last one's go to memory."""
        handed: list[Result] = []
        for record in records:
            if record.op != RESET:
                handed = self._apply(engine, record, handed)
        return handed

    def write(self, engine: int, results: Sequence[Result]) -> None:
        """Put results into memory."""
        if self.findings.failed:
            return
        for access, type, values in results:
            place = self.places.find(access, engine)
            self.memory.write(place.buffer, access.addr - place.addr, type, values)

    def _apply(self, engine: int, record: TaskRecord, handed: Sequence[Result]) -> list[Result]:
        def report(rule: Rule, **values: object) -> None:
            self._report(record, rule, values)

        operands = [self._load(engine, record, access, handed) for access in record.src]
        types = [tensor_type(access, self.stream.constants) for access in record.dst]
        results = self.vpu.apply(record.op, operands, types, record.attrs, report)
        return list(zip(record.dst, types, results, strict=True))

    def _load(
        self, engine: int, record: TaskRecord, access: StridedAccess, handed: Sequence[Result]
    ) -> OpcodeInput:
        type = tensor_type(access, self.stream.constants)
        for made, made_type, values in handed:
            if hands_on(made, access):
                return OpcodeInput(_reread(made_type, values, type), type)
        place = self.places.find(access, engine)
        offset = access.addr - place.addr
        missing = self.memory.unwritten(place.buffer, offset, type)
        if missing is not None:
            found = f"bytes [{missing[0]}, {missing[1]})"
            self._report(record, UNINITIALISED, {"range": found, "buffer": place.buffer})
        return OpcodeInput(self.memory.read(place.buffer, offset, type), type)

    def _report(self, record: TaskRecord, rule: Rule, values: dict[str, object]) -> None:
        """Count a finding of the statement that a record comes from."""
        origin = record.origin
        key = (origin.line, origin.token, record.op, origin.debug) if origin.line else record.seq
        task = replace(
            _task(record, self.stream, ()), number=self.statements.setdefault(key, len(self.statements))
        )
        where = ", ".join(f"{name}={value}" for name, value in origin.iteration)
        line = f" of line {origin.line}" if origin.line else ""
        place = {"iteration": f" in iteration {where}" if where else "", "task": task.title + line}
        self.findings.add(task, {}, rule, {**place, **values})


def _reread(made: TensorType, values: Array, wanted: TensorType) -> Array:
    """A value as the next record of a chain takes it: the same elements, or their bytes."""
    if (made.elem, made.shape) == (wanted.elem, wanted.shape):
        return values
    image = np.zeros(wanted.shape, np.uint8)
    write_tensor(image, 0, made, values)
    return read_tensor(image, 0, wanted)


class _BufferTable:
    """Finds the buffer of an address."""

    def __init__(self, stream: Stream) -> None:
        self.places: dict[str, list[MappedBuffer]] = {}
        for place in stream.memory:
            self.places.setdefault(level_name(place.level, place.engine), []).append(place)
        self.starts = {level: [place.addr for place in found] for level, found in self.places.items()}

    def find(self, access: StridedAccess, engine: int) -> MappedBuffer:
        """The buffer that an access lies in."""
        level = level_name(access.level, engine)
        number = bisect_right(self.starts.get(level, []), access.addr)
        if not number:
            raise bad_stream(f"address {access.addr} of {level} lies in no buffer")
        return self.places[level][number - 1]


# --- the stream as a plan -----------------------------------------------------------------------------------


def plan_of(stream: Stream) -> Plan:
    """The records in the order of the program, as tasks on the buffers of the memory map.

    A stream whose records do not fit the kernels that it carries is refused.
    """
    places = _BufferTable(stream)
    order = sorted(stream.records(), key=lambda item: item[1].seq)
    buffers = {place.buffer: _buffer(place) for place in sorted(stream.memory, key=lambda item: item.number)}

    def region(access: StridedAccess, engine: int, name: str = "") -> Region:
        place = places.find(access, engine)
        type = tensor_type(access, stream.constants)
        return Region(name, buffers[place.buffer], Index(access.addr - place.addr), _span(type), type)

    tasks = [
        _task(record, stream, [region(access, engine) for access in (*record.src, *record.dst)])
        for engine, record in order
        if record.op != RESET
    ]
    kernels = {item.name: kernel_of_text(item.name, item.text) for item in stream.kernels}
    for finding in check_kernels(tasks, kernels, "the stream"):
        raise bad_stream(finding.message)
    return Plan(
        name=stream.name,
        source=EMPTY_SOURCE,
        device=None,
        buffers=tuple(buffers.values()),
        body=tuple(tasks),
        regions={
            item.name: _named(item, region(item.access, item.engine, item.name)) for item in stream.tensors
        },
        kernels=kernels,
    )


def _named(tensor: NamedTensor, region: Region) -> Region:
    return replace(region, name=tensor.name)


def _buffer(place: MappedBuffer) -> Buffer:
    node = text.Buffer(text.Name(place.buffer), place.level, None, None)
    buffer = Buffer(place.buffer, place.level, place.engine, place.size, 1, place.imported, node)
    return replace(buffer, codec=place.codec, stored=place.stored)


def _span(type: TensorType) -> int:
    """The bytes of a move; the extent of other regions is not used."""
    return type.shape[0] if type.elem == "u8" and len(type.shape) == 1 else 1


def _task(record: TaskRecord, stream: Stream, regions: Sequence[Region]) -> Task:
    return Task(
        number=record.seq,
        token=record.origin.token,
        opcode=record.op,
        sync=False,
        inputs=tuple(regions[: len(record.src)]),
        outputs=tuple(regions[len(record.src) :]),
        attributes=record.attrs,
        deps=(),
        engine=None,
        resource=None,
        node=text.Task(None, text.Name(record.op), "async", (), ()),
        debug=record.origin.debug,
    )
