"""A stream that was read is made of known units and operations, stays inside its memory map and is unambiguous."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.dtype import find_in
from lamella.base.limits import DEFAULT, LARGEST, Limits, OutOfRange, add, ceil_divide, mul, product
from lamella.base.quant import Quant, quant_problems
from lamella.base.shape import MOST_AXES, element_count, row_major_strides
from lamella.base.source import NOWHERE
from lamella.lang.nem import nodes as text
from lamella.lang.nem.check.kernels import COMPUTE
from lamella.lang.nem.check.operands import (
    check_attributes,
    check_counts,
    check_layouts,
    check_ranks,
    read_call,
)
from lamella.lang.nem.check.shapes import check_shapes
from lamella.lang.nem.codecs import CODECS, whole_blocks
from lamella.lang.nem.registry import Opcode, opcode
from lamella.lang.nem.resolved import AttributeValue, Buffer, Index, Region, Task, TensorType
from lamella.lang.nem.rules import BAD_STREAM
from lamella.lang.nem.words import MOVES
from lamella.plan.stcb.nodes import (
    LEVELS,
    MOST_BITS,
    MOST_ENGINES,
    MOST_QUEUES,
    PLAIN,
    RESET,
    UNIT_TYPES,
    WDM,
    MappedBuffer,
    Repeat,
    Stream,
    StridedAccess,
    TaskRecord,
    bad_stream,
    groups,
    level_name,
)
from lamella.plan.stcb.run import Bit, Queues, RecordGroup, order_of, queue_up

# --- the proof that a stream means one thing: whatever the units' speeds, each wait sees the set ------------


Clock = list[int]
"""For each queue, how many of its groups are known to be complete."""


@dataclass(slots=True)
class _Epoch:
    """One use of a bit: who sets it, who waits for it, who clears it."""

    clock: Clock
    before: int | None
    waiters: list[int] = field(default_factory=list)
    clearer: int | None = None


def verify_stream(stream: Stream) -> list[Diagnostic]:
    """Findings where a bit is ambiguous or the stream cannot come to its end; none where it is proved."""
    queues = queue_up(stream)
    proof = _Proof(queues)
    for number, starts in order_of(queues):
        if starts:
            proof.take(number, queues.groups[number])
    problems = proof.problems
    if not problems and len(proof.places) < len(queues.groups):
        stuck = next(number for number in range(len(queues.groups)) if number not in proof.places)
        title = queues.title(stuck)
        problems = [f"the stream never ends: {title} waits for bits that nothing left can set"]
    return [BAD_STREAM.at(NOWHERE, problem=problem) for problem in problems[:20]]


class _Proof:
    """Follows one run and proves, group by group, that every other run agrees with it."""

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self.last: list[Clock] = [[0] * len(queues.order) for _ in queues.order]
        self.places: dict[int, tuple[int, int]] = {}
        self.taken = [0] * len(queues.order)
        self.epochs: dict[Bit, _Epoch] = {}
        self.problems: list[str] = []

    def take(self, number: int, group: RecordGroup) -> None:
        """One group starts and completes."""
        known = self._start(number, group)
        for bit in group.clear:
            self._clear(number, group, bit, known)
        before = list(known)
        self.places[number] = (0, 0)
        for queue in group.queues:
            self.taken[queue] += 1
            known[queue] = self.taken[queue]
            self.places[number] = (queue, self.taken[queue])
        for bit in group.set:
            self._set(number, bit, before, known)
        for queue in group.queues:
            self.last[queue] = known

    def _start(self, number: int, group: RecordGroup) -> Clock:
        """What is complete when a group starts; waits count once nothing earlier can be mistaken for their set."""
        known = join([self.last[queue] for queue in group.queues], len(self.taken))
        unproved = list(group.wait)
        while unproved:
            safe = [bit for bit in unproved if self._is_fresh(bit, known)]
            if not safe:
                names = ", ".join(str(bit) for _, bit in unproved)
                title = self.queues.title(number)
                self.problems.append(f"{title} may take an earlier set of bit {names} for its own")
                safe = unproved
            known = join([known, *(self.epochs[bit].clock for bit in safe)], len(self.taken))
            unproved = [bit for bit in unproved if bit not in safe]
        for bit in group.wait:
            self.epochs[bit].waiters.append(number)
        return known

    def _is_fresh(self, bit: Bit, known: Clock) -> bool:
        before = self.epochs[bit].before
        return before is None or self._is_complete(before, known)

    def _is_complete(self, number: int, known: Clock) -> bool:
        queue, place = self.places[number]
        return known[queue] >= place

    def _clear(self, number: int, group: RecordGroup, bit: Bit, known: Clock) -> None:
        epoch, title = self.epochs.get(bit), self.queues.title
        if epoch is None or bit not in group.wait:
            self.problems.append(f"{title(number)} clears bit {bit[1]} without waiting for it")
            return
        epoch.clearer = number
        for waiter in epoch.waiters:
            if waiter != number and not self._is_complete(waiter, known):
                problem = f"may clear bit {bit[1]} before {title(waiter)} has seen it"
                self.problems.append(f"{title(number)} {problem}")

    def _set(self, number: int, bit: Bit, known: Clock, done: Clock) -> None:
        epoch, title = self.epochs.get(bit), self.queues.title
        before = None if epoch is None else epoch.clearer
        if epoch is not None and before is None:
            self.problems.append(f"{title(number)} sets bit {bit[1]} of engine {bit[0]}, which is still set")
        elif before is not None and before != number and not self._is_complete(before, known):
            problem = f"may set bit {bit[1]} before {title(before)} has cleared it"
            self.problems.append(f"{title(number)} {problem}")
        self.epochs[bit] = _Epoch(done, before)


def join(clocks: list[Clock], size: int) -> Clock:
    """What is known to who knows all of these."""
    found = [0] * size
    for clock in clocks:
        found = list(map(max, found, clock))
    return found


NAME = re.compile(r"[A-Za-z_][0-9A-Za-z_]*")
MOST_UNITS = 1 << 16
MOST_RECORDS = 1 << 32
MOST_LOOPS = 1 << 16


def validate_stream(stream: Stream, limits: Limits = DEFAULT) -> Stream:
    """The stream itself; a LamellaError where it cannot be executed, or would not mean one thing."""
    for problem in _structure(stream, limits):
        raise bad_stream(problem)
    for finding in verify_stream(stream):
        raise bad_stream(finding.message)
    return stream


def tensor_type(access: StridedAccess, constants: Sequence[Quant]) -> TensorType:
    """What an access says about its bytes, in the words of the language."""
    quant = None if access.quant is None else constants[access.quant]
    return TensorType(access.dtype, access.dims, access.layout, access.strides, quant)


def hands_on(made: StridedAccess, taken: StridedAccess) -> bool:
    """Whether a chain can hand over a value: the same bytes without gaps, as the same tensor or as plain bytes."""
    if (made.level, made.addr) != (taken.level, taken.addr):
        return False
    same = (made.dims, made.strides, made.dtype) == (taken.dims, taken.strides, taken.dtype)
    return _dense_bytes(made) > 0 and (same or (taken.dims, taken.dtype) == ((_dense_bytes(made),), "u8"))


def _dense_bytes(access: StridedAccess) -> int:
    """The size of a tensor that fills whole bytes in row-major order; 0 for any other."""
    element = find_in("nem", access.dtype)
    bits = 0 if element is None else element_count(access.dims) * element.bits
    return bits // 8 if bits % 8 == 0 and access.strides == row_major_strides(access.dims) else 0


def _structure(stream: Stream, limits: Limits) -> Iterator[str]:
    if not 1 <= stream.bits <= MOST_BITS:
        yield f"a bank of {stream.bits} bits; there are 1 to {MOST_BITS}"
    if not 1 <= len(stream.engines) <= MOST_ENGINES:
        yield f"{len(stream.engines)} engines; there are 1 to {MOST_ENGINES}"
    used = {(engine, record.unit) for engine, record in stream.written()}
    if len(used) > MOST_QUEUES + len(stream.engines):
        yield f"{len(used)} units are in use; there are at most {MOST_QUEUES}"
    yield from _names(stream, limits)
    memory = _MemoryMap(stream)
    yield from memory.problems()
    yield from _tensors(stream, memory)
    checked = _Checked(stream, memory)
    yield from _repeats(stream, checked, limits)
    yield from _sequence(stream)
    yield from _kernels(stream)
    for engine, record in stream.written():
        yield from (
            f"record {record.seq} of engine {engine}: {item}" for item in checked.record(engine, record)
        )
    for engine, records in enumerate(stream.engines):
        yield from (f"engine {engine}: {item}" for item in _chains(records))


def _names(stream: Stream, limits: Limits) -> Iterator[str]:
    names = [stream.name, stream.device, *(place.buffer for place in stream.memory)]
    names += [tensor.name for tensor in stream.tensors]
    longest = max(map(len, names))
    if longest > limits.max_name:
        yield f"a name has {longest} characters; the limit max_name is {limits.max_name}"
    # Names of a program are identifiers, and files are called after them: nothing else may come this way.
    for name in names:
        if name and not NAME.fullmatch(name):
            yield f"'{name}' is not a name"
    for what, found in (
        ("buffer", [place.buffer for place in stream.memory]),
        ("tensor", [tensor.name for tensor in stream.tensors]),
    ):
        if len(set(found)) < len(found):
            yield f"two entries name the same {what}"


class _MemoryMap:
    """The places of each memory in order of address."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.places: dict[str, list[MappedBuffer]] = {}
        for place in stream.memory:
            self.places.setdefault(level_name(place.level, place.engine), []).append(place)
        for found in self.places.values():
            found.sort(key=lambda place: place.addr)
        self.starts = {level: [place.addr for place in found] for level, found in self.places.items()}

    def problems(self) -> Iterator[str]:
        """Places are of known memories, not empty, and disjoint."""
        for place in self.stream.memory:
            if place.level not in LEVELS or not 0 <= place.engine < self._owners(place.level):
                yield f"buffer '{place.buffer}' lies in no memory of this device"
            elif place.addr < 0 or place.size < 1 or place.addr + place.size > LARGEST:
                yield f"buffer '{place.buffer}' cannot have {place.size} bytes at address {place.addr}"
            if place.codec or place.stored:
                yield from _codec(place)
        if sorted(place.number for place in self.stream.memory) != list(range(len(self.stream.memory))):
            yield "the buffers are not numbered from 0"
        if tuple(ordered(self.stream.memory)) != self.stream.memory:
            yield "the memory map is not in order"
        for level, found in self.places.items():
            for one, other in pairwise(found):
                if one.addr + one.size > other.addr:
                    yield f"buffers '{one.buffer}' and '{other.buffer}' overlap in {level}"

    def _owners(self, level: str) -> int:
        return len(self.stream.engines) if level == "L1" else 1

    def around(self, access: StridedAccess, engine: int) -> MappedBuffer | None:
        """The buffer in which an access begins."""
        level = level_name(access.level, engine)
        number = bisect_right(self.starts.get(level, []), access.addr)
        return self.places[level][number - 1] if number else None

    def access_problems(self, access: StridedAccess, engine: int) -> Iterator[str]:
        """The elements of an access lie inside one buffer."""
        element = find_in("nem", access.dtype)
        if element is None:
            yield f"'{access.dtype}' is not an element type"
            return
        if not 1 <= len(access.dims) <= MOST_AXES or len(access.strides) != len(access.dims):
            yield f"{len(access.dims)} dimensions with {len(access.strides)} strides"
            return
        if min(access.dims) < 1 or min(access.strides) < 0:
            yield "a dimension below 1 or a stride below 0"
            return
        try:
            needed = _needed_bytes(access, element.bits)
        except OutOfRange as problem:
            yield str(problem)
            return
        place = self.around(access, engine)
        if place is None or access.addr + needed > place.addr + place.size:
            level = level_name(access.level, engine)
            yield f"{needed} bytes at address {access.addr} of {level} lie in no buffer"
        if access.quant is not None:
            yield from self._quant_problems(access)

    def move_problems(self, record: TaskRecord, engine: int) -> Iterator[str]:
        """What is stored by a codec is read by transfers of whole blocks through WDM."""
        for number, access in enumerate((*record.src, *record.dst)):
            place = self.around(access, engine)
            if place is None or not place.codec:
                continue
            moves = record.op == "transfer" and record.path == WDM and number == 0
            start = Index(access.addr - place.addr)
            if not moves or not whole_blocks(start, access.dims[0], place.size):
                yield f"'{place.buffer}' is stored by a codec; only transfers of whole blocks read it"

    def _quant_problems(self, access: StridedAccess) -> Iterator[str]:
        element = find_in("nem", access.dtype)
        if element is None or access.quant is None or not 0 <= access.quant < len(self.stream.constants):
            yield f"constant {access.quant} does not exist"
            return
        yield from quant_problems(self.stream.constants[access.quant], access.dims, element)


def _codec(place: MappedBuffer) -> Iterator[str]:
    codec = CODECS.get(place.codec)
    if codec is None or place.level != "DDR" or not place.imported or place.size % codec.width:
        yield f"buffer '{place.buffer}' cannot be stored by codec '{place.codec[:80]}'"
    elif not codec.smallest(place.size) <= place.stored <= codec.largest(place.size):
        yield f"buffer '{place.buffer}' cannot be stored in {place.stored} bytes"


def ordered(places: Iterable[MappedBuffer]) -> list[MappedBuffer]:
    """The order of a memory map: L2, L1 engine by engine, DDR, each by address."""
    levels = {"L2": 0, "L1": 1, "DDR": 2}
    return sorted(places, key=lambda item: (levels.get(item.level, 3), item.engine, item.addr))


def _needed_bytes(access: StridedAccess, bits: int) -> int:
    """From the first byte to behind the last; at least one byte-wise place for each element, whatever the strides."""
    last = 0
    for size, stride in zip(access.dims, access.strides, strict=True):
        last = add(last, mul(size - 1, stride))
    return ceil_divide(mul(max(add(last, 1), product(access.dims)), bits), 8)


def _tensors(stream: Stream, memory: _MemoryMap) -> Iterator[str]:
    for tensor in stream.tensors:
        if not 0 <= tensor.engine < len(stream.engines):
            yield f"tensor '{tensor.name}' belongs to engine {tensor.engine}, which does not exist"
            return
        for problem in memory.access_problems(tensor.access, tensor.engine):
            yield f"tensor '{tensor.name}': {problem}"


def _kernels(stream: Stream) -> Iterator[str]:
    """The kernels are those that records name, each once, in the order of their names."""
    names = [kernel.name for kernel in stream.kernels]
    used = {record.attrs.get("op") for _, record in stream.written() if record.op == COMPUTE}
    if names != sorted(set(names)):
        yield "the kernels are not in the order of their names"
    for name in used.symmetric_difference(names):
        yield f"kernel '{str(name)[:80]}' is named by a record and not there, or the other way round"


def _sequence(stream: Stream) -> Iterator[str]:
    """Sequence numbers are given once; each engine ends with its only reset."""
    seen: set[int] = set()
    for engine, records in enumerate(stream.engines):
        if not records or records[-1].op != RESET or any(record.op == RESET for record in records[:-1]):
            yield f"engine {engine} does not end with its only reset"
        for numbers in _numbers(stream, engine):
            if numbers[0] < 0 or numbers[-1] >= MOST_RECORDS or not seen.isdisjoint(numbers):
                yield f"sequence number {numbers[0]} is given twice or out of range"
                return
            seen.update(numbers)


def _numbers(stream: Stream, engine: int) -> Iterator[range]:
    """The sequence numbers of each written record, those of its copies included."""
    found = {
        place: item
        for item in stream.repeats_of(engine)
        for place in range(item.first, item.end)
        if item.count > 0
    }
    for place, record in enumerate(stream.engines[engine]):
        item = found.get(place)
        step, count = (1, 1) if item is None else (max(1, item.seq_step), item.count)
        yield range(record.seq, record.seq + step * count, step)


def _chains(records: Sequence[TaskRecord]) -> Iterator[str]:
    """What a record hands on is taken by the next one, once."""
    for members in groups(tuple(records)):
        if members[-1].chain:
            yield f"the chain of record {members[0].seq} has no end"
        for one, other in pairwise(members):
            taken = [access for access in other.src if one.dst and hands_on(one.dst[0], access)]
            if one.op == RESET or other.op == RESET or len(one.dst) != 1 or len(taken) != 1:
                yield f"record {other.seq} does not take what record {one.seq} hands on"


def _repeats(stream: Stream, checked: _Checked, limits: Limits) -> Iterator[str]:
    """Repeated records stand side by side, hold whole chains, and stay in their buffers in the last copy, too."""
    count = stream.count() if all(item.count > 0 for item in stream.repeats) else 0
    if count > limits.max_records:
        yield f"{count} records are executed; the limit max_records is {limits.max_records}"
    ends = [0] * len(stream.engines)
    last = -1
    for item in stream.repeats:
        if not last <= item.engine < len(stream.engines) or item.length < 1 or item.count < 2:
            yield "repeats are not in order, or repeat nothing"
            return
        records = stream.engines[item.engine]
        if item.first < ends[item.engine] or item.end >= len(records) or len(item.steps) != item.length:
            yield f"a repeat of engine {item.engine} does not stand by itself"
            return
        last, ends[item.engine] = item.engine, item.end
        if records[item.end - 1].chain or (item.first and records[item.first - 1].chain):
            yield f"a repeat of engine {item.engine} cuts a chain"
        counts = 0 <= item.variable < MOST_LOOPS and 0 <= item.variable_step <= LARGEST // item.count
        if item.seq_step < 1 or not counts:
            yield f"a repeat of engine {item.engine} does not count its copies"
        yield from _last_copy(item, records[item.first : item.end], checked)


def _last_copy(item: Repeat, records: Sequence[TaskRecord], checked: _Checked) -> Iterator[str]:
    """Addresses grow evenly: what lies in one buffer in the first and in the last copy lies there in all of them."""
    for place, record in enumerate(records):
        operands = (*record.src, *record.dst)
        if len(item.steps[place]) != len(operands):
            yield f"record {record.seq} has other operands than its repeat"
            return
        copy = item.copy(place, record, item.count - 1)
        for one, other in zip(operands, (*copy.src, *copy.dst), strict=True):
            yield from checked.memory.access_problems(other, item.engine)
            if checked.memory.around(one, item.engine) != checked.memory.around(other, item.engine):
                yield f"record {record.seq} is repeated from one buffer into another"
        # Blocks of stored weights begin at even distances: two copies tell about all.
        yield from checked.memory.move_problems(copy, item.engine)
        yield from checked.memory.move_problems(item.copy(place, record, 1), item.engine)


class _Checked:
    """Records one by one; what each operation is given is checked once for each different combination."""

    def __init__(self, stream: Stream, memory: _MemoryMap) -> None:
        self.stream = stream
        self.memory = memory
        self.known: set[object] = set()

    def record(self, engine: int, record: TaskRecord) -> Iterator[str]:
        """What is wrong with a record."""
        signature = opcode(record.op)
        if record.op != RESET and signature is None:
            yield f"'{record.op}' is not an operation of a stream"
            return
        yield from self._unit(record)
        yield from self._bits(engine, record)
        if signature is None:
            if record.src or record.dst or record.attrs or record.path != PLAIN or record.memmove:
                yield "a reset does nothing else"
            return
        for access in (*record.src, *record.dst):
            yield from self.memory.access_problems(access, engine)
        yield from self.memory.move_problems(record, engine)
        yield from _move(record) if record.op in MOVES else ()
        yield from self._operation(record, signature)

    def _unit(self, record: TaskRecord) -> Iterator[str]:
        if record.unit.type not in UNIT_TYPES or not 0 <= record.unit.index < MOST_UNITS:
            yield f"'{record.unit}' is not a unit"
        if (record.unit.type == "SEQ") != (record.op == RESET):
            yield f"{record.op} does not run on {record.unit}"
        if record.path not in (PLAIN, WDM) or (record.path == WDM and record.op != "transfer"):
            yield f"{record.op} takes no path '{record.path}'"
        if record.memmove and record.op not in MOVES:
            yield f"{record.op} is no move"
        if not 0 <= record.origin.line < MOST_RECORDS:
            yield f"there is no line {record.origin.line}"

    def _bits(self, engine: int, record: TaskRecord) -> Iterator[str]:
        for bits in (record.wait, record.set, record.clear):
            if list(bits) != sorted(set(bits)) or any(not 0 <= bit < self.stream.bits for bit in bits):
                yield f"bits {list(bits)[:40]} do not ascend below {self.stream.bits}"
        if not set(record.clear) <= set(record.wait):
            yield "a bit is cleared that is not waited for"
        if list(record.remote) != sorted(set(record.remote)):
            yield "remote bits do not ascend"
        for other, bit in record.remote:
            outside = not (0 <= other < len(self.stream.engines) and 0 <= bit < self.stream.bits)
            if outside or other == engine:
                yield f"bit {bit} of engine {other} is not a remote bit"

    def _operation(self, record: TaskRecord, signature: Opcode) -> Iterator[str]:
        shapes = tuple((item.dtype, item.dims, item.strides, item.layout, item.quant) for item in record.src)
        results = tuple((item.dtype, item.dims, item.strides, item.layout, item.quant) for item in record.dst)
        key = (
            record.op,
            shapes,
            results,
            tuple(record.attrs.items()),
            tuple(map(type, record.attrs.values())),
        )
        if key in self.known:
            return
        problems = [*_attributes(record, signature), *_kept_types(record, signature)] or list(
            _call(record, signature, self.stream.constants)
        )
        yield from problems
        self.known.add(key)


def _move(record: TaskRecord) -> Iterator[str]:
    for access in (*record.src, *record.dst):
        if (
            access.dtype != "u8"
            or len(access.dims) != 1
            or access.strides != (1,)
            or access.quant is not None
        ):
            yield f"{record.op} moves bytes, dimension by dimension of stride 1"
    if len(record.src) != 1 or len(record.dst) != 1 or record.src[0].dims != record.dst[0].dims:
        yield f"{record.op} has one source and one destination of the same size"


def _kept_types(record: TaskRecord, signature: Opcode) -> Iterator[str]:
    """A view moves elements; it does not make others of them."""
    if signature.families == ("view",):
        moved = record.src[:1] if record.op == "gather" else record.src
        if len({access.dtype for access in (*moved, *record.dst)}) > 1:
            yield f"{record.op} keeps the element type"


def _attributes(record: TaskRecord, signature: Opcode) -> Iterator[str]:
    for name, value in record.attrs.items():
        spec = signature.attributes.get(name)
        if spec is None and record.op == COMPUTE:
            continue
        if spec is None or not _has_type(value, spec.type):
            yield f"{record.op} has no attribute '{name}' with this value"
    for name, spec in signature.attributes.items():
        if spec.required and name not in record.attrs:
            yield f"{record.op} lacks the attribute '{name}'"


def _has_type(value: AttributeValue, wanted: str) -> bool:
    if wanted == "int_list":
        return isinstance(value, tuple)
    if wanted in ("int", "float"):
        fits = isinstance(value, int) or (wanted == "float" and isinstance(value, float))
        return fits and not isinstance(value, bool)
    if wanted == "bool":
        return isinstance(value, bool | int)
    return isinstance(value, str) and (wanted != "elem_type" or find_in("nem", value) is not None)


def _call(record: TaskRecord, signature: Opcode, constants: Sequence[Quant]) -> Iterator[str]:
    """What the language says about an operation with these operands."""
    task = _as_task(record, constants)
    wrong = list(check_counts(task, signature))
    if wrong or record.op in MOVES:
        yield from _messages(wrong)
        return
    call, untyped = read_call(task, signature)
    if call is None:
        yield from _messages(untyped)
        return
    geometry = list(check_ranks(call)) or list(check_layouts(call)) or list(check_attributes(call))
    yield from _messages(geometry or check_shapes(call))


def _messages(findings: Iterable[Diagnostic]) -> Iterator[str]:
    return (finding.message for finding in errors(findings))


def _as_task(record: TaskRecord, constants: Sequence[Quant]) -> Task:
    """A record as the task of a program, for the rules that speak of tasks."""
    node = text.Task(None, text.Name(record.op), "async", (), ())
    return Task(
        number=0,
        token=record.origin.token,
        opcode=record.op,
        sync=False,
        inputs=tuple(_as_region(access, constants) for access in record.src),
        outputs=tuple(_as_region(access, constants) for access in record.dst),
        attributes=record.attrs,
        deps=(),
        engine=None,
        resource=None,
        node=node,
    )


def _as_region(access: StridedAccess, constants: Sequence[Quant]) -> Region:
    level = text.Buffer(text.Name(""), access.level, None, None)
    buffer = Buffer("", access.level, 0, LARGEST, 1, False, level)
    return Region("", buffer, Index(0), access.dims[0], tensor_type(access, constants), NOWHERE)
