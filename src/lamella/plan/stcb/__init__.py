"""STCB, our documented task-control stream: its nodes, its two written forms, its listing and its proof."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import printable
from lamella.base.dtype import LANGUAGES
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant, scales_of, zero_points_of
from lamella.base.reader import Reader
from lamella.lang.nem.check.kernels import COMPUTE
from lamella.plan.stcb.json import from_json, to_json
from lamella.plan.stcb.nodes import (
    LEVELS,
    PLAIN,
    SHOWN_VERSION,
    VERSION,
    MappedBuffer,
    NamedTensor,
    RecordOrigin,
    Repeat,
    Stream,
    StreamKernel,
    StridedAccess,
    TaskRecord,
    bad_stream,
    level_name,
)
from lamella.plan.stcb.record import RECORD_BYTES, read_record, write_record
from lamella.plan.stcb.validate import validate_stream, verify_stream
from lamella.plan.stcb.words import TextTable, WordReader, Words

# --- streams as bytes: the layout of `docs/layers/stcb.md`, read without trust and written in one -----------


MAGIC = b"STCB"
FORMS = ("per_tensor", "per_channel", "per_group")
DTYPES = tuple(LANGUAGES["nem"])
NONE = 0xFFFFFFFF
"""The number of what is not there."""


# --- writing ------------------------------------------------------------------------------------------------


def to_bytes(stream: Stream) -> bytes:
    """The bytes of a stream; the same stream gives the same bytes."""
    texts, body = TextTable(), Words()
    body.u32(texts.number(stream.name), texts.number(stream.device), stream.bits)
    body.u32(len(stream.memory), len(stream.constants), len(stream.tensors), len(stream.engines))
    body.u32(len(stream.kernels), len(stream.repeats))
    for place in stream.memory:
        _write_place(body, texts, place)
    for quant in stream.constants:
        _write_constant(body, quant)
    for tensor in stream.tensors:
        body.u32(texts.number(tensor.name), tensor.engine)
        write_access(body, texts, tensor.access)
    for kernel in stream.kernels:
        body.u32(texts.number(kernel.name), texts.number(kernel.text))
    for records in stream.engines:
        body.u32(len(records))
        for record in records:
            body.data += write_record(record, texts, write_access)
    for repeat in stream.repeats:
        body.u32(repeat.engine, repeat.first, repeat.length, repeat.variable)
        body.i64((repeat.count, repeat.seq_step, repeat.variable_step))
        for steps in repeat.steps:
            body.u32(len(steps))
            body.i64(steps)
    return _head(texts) + bytes(body.data)


def _head(texts: TextTable) -> bytes:
    """Magic, version and the table of texts, which stands before all that names them."""
    head = Words()
    head.data += MAGIC
    head.u32(VERSION[0] << 16 | VERSION[1], len(texts.numbers))
    for text in texts.numbers:
        head.text(text)
    return bytes(head.data)


def _write_place(body: Words, texts: TextTable, place: MappedBuffer) -> None:
    body.u32(
        place.number, texts.number(place.buffer), LEVELS.index(place.level), place.engine, place.imported
    )
    body.u32(texts.number(place.codec) if place.codec else NONE)
    body.i64((place.addr, place.size, place.stored))


def _write_constant(body: Words, quant: Quant) -> None:
    axis = 0 if isinstance(quant, PerTensor) else quant.axis
    group = quant.group_size if isinstance(quant, PerGroup) else 0
    form = 0 if isinstance(quant, PerTensor) else 2 if isinstance(quant, PerGroup) else 1
    body.u32(form, len(scales_of(quant)), len(zero_points_of(quant)))
    body.i64((axis, group))
    body.f64(scales_of(quant))
    body.i64(zero_points_of(quant))


def write_access(body: Words, texts: TextTable, access: StridedAccess) -> None:
    """Level, element type, rank, quant, layout, then address, dimensions and strides."""
    layout = NONE if access.layout is None else texts.number(access.layout)
    quant = NONE if access.quant is None else access.quant
    body.u32(LEVELS.index(access.level), DTYPES.index(access.dtype), len(access.dims), quant, layout)
    body.i64((access.addr, *access.dims, *access.strides))


# --- reading ------------------------------------------------------------------------------------------------


def from_bytes(data: bytes, limits: Limits = DEFAULT) -> Stream:
    """The stream of bytes; a LamellaError says what is wrong with them."""
    try:
        stream = _read_stream(Reader(data))
    except InputError as problem:
        place = "" if problem.offset is None else f" (at byte {problem.offset})"
        raise bad_stream(f"{problem.message}{place}") from None
    return validate_stream(stream, limits)


def _read_stream(reader: Reader) -> Stream:
    reader.expect(MAGIC, "a task-control stream")
    version = reader.u32()
    if version != VERSION[0] << 16 | VERSION[1]:
        raise InputError(f"version {version >> 16}.{version & 0xFFFF} is not {SHOWN_VERSION}", 4)
    head = WordReader(reader)
    texts = tuple(head.text() for _ in range(head.count(4, "texts")))
    words = WordReader(reader, texts)
    name, device, bits = words.named(), words.named(), words.u32()
    counts = [words.u32() for _ in range(6)]
    stream = Stream(
        name=name,
        device=device,
        bits=bits,
        memory=tuple(_read_place(words) for _ in range(reader.count(counts[0], 48, "the memory map"))),
        constants=tuple(_read_constant(words) for _ in range(reader.count(counts[1], 28, "constants"))),
        tensors=tuple(_read_tensor(words) for _ in range(reader.count(counts[2], 36, "tensors"))),
        kernels=tuple(_read_kernel(words) for _ in range(reader.count(counts[4], 8, "kernels"))),
        engines=tuple(
            tuple(read_record(words, read_access) for _ in range(words.count(RECORD_BYTES, "records")))
            for _ in range(reader.count(counts[3], 4, "engines"))
        ),
        repeats=tuple(_read_repeat(words) for _ in range(reader.count(counts[5], 40, "repeats"))),
    )
    reader.finish("the stream")
    if to_texts(stream) != texts:
        raise InputError("the table of texts is not that of this stream", 12)
    return stream


def to_texts(stream: Stream) -> tuple[str, ...]:
    """The table of texts that belongs to a stream."""
    texts, sink = TextTable(), Words()
    texts.number(stream.name)
    texts.number(stream.device)
    for place in stream.memory:
        _write_place(sink, texts, place)
    for tensor in stream.tensors:
        texts.number(tensor.name)
        write_access(sink, texts, tensor.access)
    for kernel in stream.kernels:
        texts.number(kernel.name)
        texts.number(kernel.text)
    for _, record in stream.written():
        write_record(record, texts, write_access)
    return tuple(texts.numbers)


def _read_place(words: WordReader) -> MappedBuffer:
    number, name = words.u32(), words.named()
    level = words.pick(words.u32(), LEVELS, "a memory")
    engine, imported, codec = words.u32(), words.u32(), words.u32()
    if imported > 1:
        raise words.wrong(f"{imported} is not a flag")
    address, size, stored = words.i64s(3)
    packed = "" if codec == NONE else words.text_at(codec)
    return MappedBuffer(number, name, level, engine, address, size, bool(imported), packed, stored)


def _read_constant(words: WordReader) -> Quant:
    form = words.pick(words.u32(), FORMS, "a form of quantisation")
    scale_count, zero_count = words.u32(), words.u32()
    axis, group = words.i64s(2)
    scales, zeros = words.f64s(scale_count), words.i64s(zero_count)
    if form == "per_tensor" and (scale_count, zero_count, axis, group) == (1, 1, 0, 0):
        return PerTensor(scales[0], zeros[0])
    if form == "per_tensor" or (form == "per_channel" and group):
        raise words.wrong(f"a {form} constant has more than it needs")
    return PerChannel(axis, scales, zeros) if form == "per_channel" else PerGroup(axis, group, scales, zeros)


def _read_kernel(words: WordReader) -> StreamKernel:
    return StreamKernel(words.named(), words.named())


def _read_repeat(words: WordReader) -> Repeat:
    engine, first, length, variable = (words.u32() for _ in range(4))
    count, seq_step, variable_step = words.i64s(3)
    steps = tuple(words.i64s(words.u32()) for _ in range(words.reader.count(length, 4, "steps")))
    return Repeat(engine, first, length, count, seq_step, variable, variable_step, steps)


def _read_tensor(words: WordReader) -> NamedTensor:
    return NamedTensor(words.named(), words.u32(), read_access(words))


def read_access(words: WordReader) -> StridedAccess:
    """What `write_access` wrote."""
    level = words.pick(words.u32(), LEVELS, "a memory")
    dtype = words.pick(words.u32(), DTYPES, "an element type")
    rank, quant, layout = words.u32(), words.u32(), words.u32()
    (address,) = words.i64s(1)
    dims, strides = words.i64s(rank), words.i64s(rank)
    return StridedAccess(
        *(level, address, dims, strides, dtype),
        layout=None if layout == NONE else words.text_at(layout),
        quant=None if quant == NONE else quant,
    )


# --- A stream as a person reads it: the memory map, then one line for each record ---------------------------


def list_stream(stream: Stream) -> Iterator[str]:
    """The lines of a listing, without newlines; names from files are made safe to print."""
    yield printable(
        f"stcb {SHOWN_VERSION}  {stream.name or '(unnamed)'}  device {stream.device}  {stream.bits} token bits"
    )
    for level, peak in sorted(stream.peaks().items()):
        yield f"memory {level}: {peak} bytes"
        for place in sorted(stream.memory, key=lambda item: item.addr):
            if level_name(place.level, place.engine) == level:
                note = "  import" if place.imported else ""
                note += f"  {place.codec}, {place.stored} stored" if place.codec else ""
                yield printable(f"  {place.addr:#010x} {place.size:>10}  {place.buffer}{note}")
    for kernel in stream.kernels:
        yield printable(f"kernel {kernel.name}: {len(kernel.text.splitlines())} lines")
    for engine, records in enumerate(stream.engines):
        yield f"engine {engine}: {len(records)} record{'' if len(records) == 1 else 's'}"
        starts = {item.first: item for item in stream.repeats_of(engine)}
        left, indent = 0, "  "
        for number, record in enumerate(records):
            found = starts.get(number)
            if found is not None:
                left = found.length
                yield f"  repeat {found.count} times, {found.length} records:"
            left -= 1
            indent = "    " if left >= 0 else "  "
            yield printable(indent + list_record(record))


def list_record(record: TaskRecord) -> str:
    """One record in one line: number, unit, operation, bits, operands, where it comes from."""
    parts = [f"{record.seq:>5} {record.unit!s:<7} {record.op:<10}"]
    parts += [
        f"{word} {','.join(map(str, bits))}"
        for word, bits in (("wait", record.wait), ("clear", record.clear), ("set", record.set))
        if bits
    ]
    parts += [f"set {bit}@{engine}" for engine, bit in record.remote]
    if record.op == COMPUTE:
        parts.append(str(record.attrs["op"]))
    if record.src or record.dst:
        sources, targets = (", ".join(map(_show, items)) for items in (record.src, record.dst))
        parts.append(f"{sources} -> {'next' if record.chain else targets}")
    parts += [f"path {record.path}"] * (record.path != PLAIN) + ["memmove"] * record.memmove
    return "  ".join([*parts, _from(record.origin)]).rstrip()


def _show(access: StridedAccess) -> str:
    dims = "x".join(map(str, access.dims))
    return f"{access.level}+{access.addr:#x} {access.dtype}[{dims}]"


def _from(origin: RecordOrigin) -> str:
    if not origin.line:
        return ""
    where = "".join(f" {name}={value}" for name, value in origin.iteration)
    names = "".join(f" {word}" for word in (origin.token, origin.debug, origin.profile) if word)
    return f"; line {origin.line}{where}{names}"


# --- A stream from the bytes of a file, whichever of the two forms they are ---------------------------------


def read_stream(data: bytes, limits: Limits = DEFAULT) -> Stream:
    """The stream of a file; bytes that begin with the magic are binary, all others must be JSON in UTF-8."""
    if data.startswith(MAGIC):
        return from_bytes(data, limits)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise bad_stream(f"this is neither STCB nor UTF-8 (at byte {problem.start})") from None
    return from_json(text, limits)


__all__ = [
    "Stream",
    "from_bytes",
    "from_json",
    "list_stream",
    "read_stream",
    "to_bytes",
    "to_json",
    "validate_stream",
    "verify_stream",
]
