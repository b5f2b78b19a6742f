"""A stream as a person reads it: the memory map, then one line for each record."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import printable
from lamella.plan.stcb.nodes import PLAIN, Access, Origin, Record, Stream, level_name


def list_stream(stream: Stream) -> Iterator[str]:
    """The lines of a listing, without newlines; names from files are made safe to print."""
    yield printable(
        f"stcb 1.0  {stream.name or '(unnamed)'}  device {stream.device}  {stream.bits} token bits"
    )
    for level, peak in sorted(stream.peaks().items()):
        yield f"memory {level}: {peak} bytes"
        for place in sorted(stream.memory, key=lambda item: item.addr):
            if level_name(place.level, place.engine) == level:
                note = "  import" if place.imported else ""
                yield printable(f"  {place.addr:#010x} {place.size:>10}  {place.buffer}{note}")
    for engine, records in enumerate(stream.engines):
        yield f"engine {engine}: {len(records)} record{'' if len(records) == 1 else 's'}"
        for record in records:
            yield printable("  " + list_record(record))


def list_record(record: Record) -> str:
    """One record in one line: number, unit, operation, bits, operands, where it comes from."""
    parts = [f"{record.seq:>5} {record.unit!s:<7} {record.op:<10}"]
    parts += [
        f"{word} {','.join(map(str, bits))}"
        for word, bits in (("wait", record.wait), ("clear", record.clear), ("set", record.set))
        if bits
    ]
    parts += [f"set {bit}@{engine}" for engine, bit in record.remote]
    if record.src or record.dst:
        sources, targets = (", ".join(map(_show, items)) for items in (record.src, record.dst))
        parts.append(f"{sources} -> {'next' if record.chain else targets}")
    parts += [f"path {record.path}"] * (record.path != PLAIN) + ["memmove"] * record.memmove
    return "  ".join([*parts, _from(record.origin)]).rstrip()


def _show(access: Access) -> str:
    dims = "x".join(map(str, access.dims))
    return f"{access.level}+{access.addr:#x} {access.dtype}[{dims}]"


def _from(origin: Origin) -> str:
    if not origin.line:
        return ""
    where = "".join(f" {name}={value}" for name, value in origin.iteration)
    names = "".join(f" {word}" for word in (origin.token, origin.debug, origin.profile) if word)
    return f"; line {origin.line}{where}{names}"
