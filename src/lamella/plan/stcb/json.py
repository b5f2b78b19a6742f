"""Streams as JSON: the schema of `docs/layers/stcb.md`, read without trust and written in one canonical way."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from lamella.base.dtype import find_in
from lamella.base.errors import Malformed
from lamella.base.jsontext import decode_json
from lamella.base.limits import DEFAULT, LARGEST, Limits
from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant
from lamella.lang.nem.resolved import AttributeValue
from lamella.plan.stcb import fields
from lamella.plan.stcb.fields import Fields, Json
from lamella.plan.stcb.nodes import (
    PLAIN,
    SHOWN_VERSION,
    MappedBuffer,
    NamedTensor,
    RecordOrigin,
    Repeat,
    Stream,
    StreamKernel,
    StreamUnit,
    StridedAccess,
    TaskRecord,
    bad_stream,
)
from lamella.plan.stcb.validate import validate_stream

_UNIT = re.compile(r"(SEQ|DMA|NMU|VPU|SDMA)([0-9]{1,5})|(CSTL)([0-9]{1,5})([AB])")


# --- writing ------------------------------------------------------------------------------------------------


def to_json(stream: Stream) -> str:
    """The text of a stream, one record to a line; the same stream gives the same text."""
    head: dict[str, Json] = {
        "version": SHOWN_VERSION,
        "name": stream.name,
        "device": stream.device,
        "tokens": {"bits": stream.bits},
        "memory": _memory(stream),
        "tensors": [_tensor(tensor) for tensor in stream.tensors],
        "constants": [_constant(quant) for quant in stream.constants],
    }
    if stream.kernels:
        head["kernels"] = [{"name": item.name, "text": item.text} for item in stream.kernels]
    if stream.repeats:
        head["repeats"] = [_repeat(item) for item in stream.repeats]
    lines = [f'"{key}": {_dump(value)}' for key, value in head.items()]
    engines = [
        f'{{"id": {number}, "stream": [\n' + ",\n".join(_dump(_record(item)) for item in records) + "\n]}"
        for number, records in enumerate(stream.engines)
    ]
    return "{\n" + ",\n".join([*lines, '"engines": [' + ", ".join(engines) + "]"]) + "\n}\n"


def _repeat(item: Repeat) -> dict[str, Json]:
    return {
        **{"engine": item.engine, "first": item.first, "length": item.length, "count": item.count},
        **{"seq_step": item.seq_step, "variable": item.variable, "variable_step": item.variable_step},
        "steps": [list(steps) for steps in item.steps],
    }


def _dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def _memory(stream: Stream) -> dict[str, Json]:
    level = {name: [_place(item) for item in stream.memory if item.level == name] for name in ("DDR", "L2")}
    owners = range(len(stream.engines))
    local = [[_place(p) for p in stream.memory if p.level == "L1" and p.engine == e] for e in owners]
    return {"L2": level["L2"], "L1": local, "DDR": level["DDR"]}


def _place(place: MappedBuffer) -> dict[str, Json]:
    entry: dict[str, Json] = {"buffer": place.buffer, "addr": place.addr, "size": place.size}
    entry["number"] = place.number
    if place.imported:
        entry["import"] = True
    return {**entry, "codec": place.codec, "stored": place.stored} if place.codec else entry


def _tensor(tensor: NamedTensor) -> dict[str, Json]:
    access = tensor.access
    return {
        **{"name": tensor.name, "engine": tensor.engine, **_access(access)},
        **{"dtype": access.dtype, "layout": access.layout, "quant": access.quant},
    }


def _constant(quant: Quant) -> dict[str, Json]:
    if isinstance(quant, PerTensor):
        return {"form": "per_tensor", "scale": quant.scale, "zero_point": quant.zero_point}
    entry: dict[str, Json] = {"form": "per_channel", "axis": quant.axis}
    if isinstance(quant, PerGroup):
        entry = {"form": "per_group", "axis": quant.axis, "group_size": quant.group_size}
    return {**entry, "scales": list(quant.scales), "zero_points": list(quant.zero_points)}


def _access(access: StridedAccess) -> dict[str, Json]:
    return {
        **{"level": access.level, "addr": access.addr, "dims": list(access.dims)},
        "strides_bytes": [_in_bytes(stride, access.dtype) for stride in access.strides],
    }


def _in_bytes(stride: int, dtype: str) -> int | float:
    """A stride of an odd number of 4-bit elements ends in half a byte."""
    bits = stride * _bits(dtype)
    return bits / 8 if bits % 8 else bits // 8


def _bits(dtype: str) -> int:
    element = find_in("nem", dtype)
    if element is None:
        raise bad_stream(f"'{dtype[:40]}' is not an element type")
    return element.bits


def _record(record: TaskRecord) -> dict[str, Json]:
    operands = (*record.src, *record.dst)
    entry: dict[str, Json] = {
        **{"seq": record.seq, "unit": str(record.unit), "op": record.op},
        **{"wait": list(record.wait), "set": list(record.set), "clear": list(record.clear)},
    }
    if record.remote:
        entry["remote"] = [list(bit) for bit in record.remote]
    if operands:
        entry["src"] = [_access(item) for item in record.src]
        entry["dst"] = [_access(item) for item in record.dst]
        entry["params"] = _params(record)
    flags = {"chain": record.chain, "memmove": record.memmove}
    entry |= {name: True for name, value in flags.items() if value}
    if record.path != PLAIN:
        entry["path"] = record.path
    return {**entry, "origin": _origin(record.origin)}


def _params(record: TaskRecord) -> dict[str, Json]:
    operands = (*record.src, *record.dst)
    return {
        "dtype": [item.dtype for item in operands],
        "shapes": [list(item.dims) for item in operands],
        "layout": [item.layout for item in operands],
        "quant": [item.quant for item in operands],
        "attrs": {name: _value(value) for name, value in record.attrs.items()},
    }


def _value(value: AttributeValue) -> Json:
    return list(value) if isinstance(value, tuple) else value


def _origin(origin: RecordOrigin) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "line": origin.line,
        "iteration": dict(origin.iteration),
        "token": origin.token,
    }
    names = {"debug": origin.debug, "profile": origin.profile}
    return entry | {name: value for name, value in names.items() if value}


# --- reading ------------------------------------------------------------------------------------------------


def from_json(text: str, limits: Limits = DEFAULT) -> Stream:
    """The stream of a text; a LamellaError says what is wrong with it."""
    try:
        value = decode_json(text)
    except Malformed as problem:
        raise bad_stream(f"this {problem}") from None
    top = Fields(value, "the stream")
    if top.take("version", fields.text) != SHOWN_VERSION:
        raise bad_stream(f"the version is not {SHOWN_VERSION}")
    stream = Stream(
        name=top.take("name", fields.text),
        device=top.take("device", fields.text),
        bits=Fields(top.take("tokens", fields.any_value), "tokens").only("bits", fields.integer),
        memory=_read_memory(Fields(top.take("memory", fields.any_value), "memory")),
        engines=tuple(
            _read_engine(number, item) for number, item in enumerate(top.take("engines", fields.items))
        ),
        constants=tuple(_read_constant(item) for item in top.take("constants", fields.items)),
        tensors=tuple(_read_tensor(item) for item in top.take("tensors", fields.items)),
        kernels=tuple(_read_kernel(item) for item in _list_or_none(top, "kernels")),
        repeats=tuple(_read_repeat(item) for item in _list_or_none(top, "repeats")),
    )
    top.finish()
    return validate_stream(stream, limits)


def _list_or_none(top: Fields, name: str) -> list[Json]:
    """A list that is left out where it is empty."""
    nothing: list[Json] = []
    return top.take_or(name, fields.items, nothing)


def _read_memory(memory: Fields) -> tuple[MappedBuffer, ...]:
    """Places in the order of the text: L2, then L1 engine by engine, then DDR."""
    shared = {name: memory.take(name, fields.items) for name in ("L2", "DDR")}
    local = memory.take("L1", fields.items)
    memory.finish()
    found = [_read_place(item, "L2", 0) for item in shared["L2"]]
    for engine, items in enumerate(local):
        found += [_read_place(item, "L1", engine) for item in fields.items(items, "L1")]
    return (*found, *(_read_place(item, "DDR", 0) for item in shared["DDR"]))


def _read_place(value: Json, level: str, engine: int) -> MappedBuffer:
    entry = Fields(value, "a buffer")
    place = MappedBuffer(
        number=entry.take("number", fields.natural),
        buffer=entry.take("buffer", fields.text),
        level=level,
        engine=engine,
        addr=entry.take("addr", fields.natural),
        size=entry.take("size", fields.natural),
        imported=entry.take_or("import", fields.true, False),
        codec=entry.take_or("codec", fields.text, ""),
        stored=entry.take_or("stored", fields.natural, 0),
    )
    entry.finish()
    return place


def _read_tensor(value: Json) -> NamedTensor:
    entry = Fields(value, "a tensor")
    name, engine = entry.take("name", fields.text), entry.take("engine", fields.natural)
    columns = (entry.take(name, fields.any_value) for name in ("dtype", "layout", "quant"))
    return NamedTensor(name, engine, _read_access(entry, *columns))


def _read_access(entry: Fields, dtype: Json, layout: Json, quant: Json) -> StridedAccess:
    """An access whose type stands elsewhere than its place."""
    elem = fields.text(dtype, "a dtype")
    strides = entry.take("strides_bytes", fields.items)
    access = StridedAccess(
        level=entry.take("level", fields.text),
        addr=entry.take("addr", fields.natural),
        dims=entry.take("dims", fields.integers),
        strides=tuple(_in_elements(item, _bits(elem)) for item in strides),
        dtype=elem,
        layout=fields.text_or_none(layout, "a layout"),
        quant=fields.index_or_none(quant, "a quant"),
    )
    entry.finish()
    return access


def _in_elements(stride: Json, bits: int) -> int:
    if isinstance(stride, bool) or not isinstance(stride, int | float) or not 0 <= stride <= LARGEST // 8:
        raise bad_stream("a stride is not a number of bytes")
    found, rest = divmod(int(stride * 8), bits)
    if rest or (isinstance(stride, float) and (stride * 8) % bits):
        raise bad_stream(f"a stride of {stride} bytes is no whole number of elements")
    return found


def _read_constant(value: Json) -> Quant:
    entry = Fields(value, "a constant")
    form = entry.take("form", fields.text)
    found: Quant
    if form == "per_tensor":
        found = PerTensor(entry.take("scale", fields.number), entry.take("zero_point", fields.integer))
    elif form in ("per_channel", "per_group"):
        axis = entry.take("axis", fields.integer)
        size = entry.take("group_size", fields.integer) if form == "per_group" else 0
        scales = tuple(fields.number(item, "a scale") for item in entry.take("scales", fields.items))
        zeros = entry.take("zero_points", fields.integers)
        found = (
            PerGroup(axis, size, scales, zeros) if form == "per_group" else PerChannel(axis, scales, zeros)
        )
    else:
        raise bad_stream(f"'{form[:40]}' is not a form of quantisation")
    entry.finish()
    return found


def _read_kernel(value: Json) -> StreamKernel:
    entry = Fields(value, "a kernel")
    kernel = StreamKernel(entry.take("name", fields.text), entry.take("text", fields.text))
    entry.finish()
    return kernel


def _read_repeat(value: Json) -> Repeat:
    entry = Fields(value, "a repeat")
    repeat = Repeat(
        engine=entry.take("engine", fields.natural),
        first=entry.take("first", fields.natural),
        length=entry.take("length", fields.natural),
        count=entry.take("count", fields.natural),
        seq_step=entry.take("seq_step", fields.natural),
        variable=entry.take("variable", fields.natural),
        variable_step=entry.take("variable_step", fields.natural),
        steps=tuple(fields.integers(item, "steps") for item in entry.take("steps", fields.items)),
    )
    entry.finish()
    return repeat


def _read_engine(number: int, value: Json) -> tuple[TaskRecord, ...]:
    entry = Fields(value, "an engine")
    if entry.take("id", fields.natural) != number:
        raise bad_stream(f"engine {number} has another id")
    records = entry.take("stream", fields.items)
    entry.finish()
    return tuple(_read_record(item) for item in records)


def _read_record(value: Json) -> TaskRecord:
    entry = Fields(value, "a record")
    src, dst, attrs = _read_operands(entry) if "params" in entry.fields else ((), (), {})
    record = TaskRecord(
        seq=entry.take("seq", fields.natural),
        unit=_read_unit(entry.take("unit", fields.text)),
        op=entry.take("op", fields.text),
        wait=entry.take("wait", fields.integers),
        set=entry.take("set", fields.integers),
        clear=entry.take("clear", fields.integers),
        remote=entry.take_or("remote", _read_pairs, ()),
        src=src,
        dst=dst,
        attrs=attrs,
        chain=entry.take_or("chain", fields.true, False),
        path=entry.take_or("path", fields.text, PLAIN),
        memmove=entry.take_or("memmove", fields.true, False),
        origin=_read_origin(Fields(entry.take("origin", fields.any_value), "an origin")),
    )
    entry.finish()
    return record


def _read_pairs(value: Json, what: str) -> tuple[tuple[int, int], ...]:
    pairs = [fields.integers(item, what) for item in fields.items(value, what)]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise bad_stream("remote bits are pairs of an engine and a bit")
    return tuple((pair[0], pair[1]) for pair in pairs)


def _read_unit(name: str) -> StreamUnit:
    found = _UNIT.fullmatch(name)
    if found is None:
        raise bad_stream(f"'{name[:40]}' is not a unit")
    simple, number, half, half_number, letter = found.groups()
    unit = StreamUnit(simple, int(number)) if simple else StreamUnit(half + letter, int(half_number))
    if str(unit) != name:
        raise bad_stream(f"'{name}' is not a unit")
    return unit


def _read_operands(
    entry: Fields,
) -> tuple[tuple[StridedAccess, ...], tuple[StridedAccess, ...], Mapping[str, AttributeValue]]:
    """Sources, destinations and attributes; the lists of `params` go over both kinds of operands."""
    sources, targets = entry.take("src", fields.items), entry.take("dst", fields.items)
    params = Fields(entry.take("params", fields.any_value), "params")
    count = len(sources) + len(targets)
    lists = {name: params.take(name, fields.items) for name in ("dtype", "shapes", "layout", "quant")}
    attrs = params.take("attrs", fields.any_value)
    params.finish()
    if any(len(items) != count for items in lists.values()):
        raise bad_stream(f"params describe other than the {count} operands of their record")
    columns = zip(lists["dtype"], lists["layout"], lists["quant"], strict=True)
    found = tuple(
        _read_access(Fields(item, "an operand"), *column)
        for item, column in zip([*sources, *targets], columns, strict=True)
    )
    if [list(access.dims) for access in found] != lists["shapes"]:
        raise bad_stream("shapes and dims of a record differ")
    return found[: len(sources)], found[len(sources) :], _read_attributes(attrs)


def _read_attributes(value: Json) -> Mapping[str, AttributeValue]:
    return {
        fields.text(name, "a name"): _attribute(item) for name, item in Fields(value, "attrs").fields.items()
    }


def _attribute(value: Json) -> AttributeValue:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return fields.text(value, "an attribute")
    if isinstance(value, list):
        return fields.integers(value, "an attribute")
    return (
        fields.number(value, "an attribute")
        if isinstance(value, float)
        else fields.integer(value, "an attribute")
    )


def _read_origin(entry: Fields) -> RecordOrigin:
    iteration = Fields(entry.take("iteration", fields.any_value), "an iteration").fields
    origin = RecordOrigin(
        line=entry.take("line", fields.natural),
        token=entry.take("token", fields.text),
        iteration=tuple(
            (fields.text(name, "a name"), fields.integer(item, "an iteration"))
            for name, item in iteration.items()
        ),
        debug=entry.take_or("debug", fields.text, ""),
        profile=entry.take_or("profile", fields.text, ""),
    )
    entry.finish()
    return origin
