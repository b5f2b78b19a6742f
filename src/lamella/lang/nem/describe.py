"""A resolved device for people and for tools: what it has, and which device of its chain gave it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.lang.nem.device import FamilyVariant, InheritedValue, ResolvedDevice, ResolvedTopology, VariantId
from lamella.lang.nem.families import Variants, variants_of
from lamella.lang.nem.registry import load_registry

WIDTH = 100


def describe_device(device: ResolvedDevice, variants: Variants) -> str:
    """The device as text: chain, topology, characteristics, and the type variants of every opcode."""
    sections = (_head(device), _topology(device), _characteristics(device), _opcodes(device, variants))
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def device_to_json(device: ResolvedDevice, variants: Variants) -> dict[str, object]:
    """The same as an object for `--json`."""
    return {
        "name": device.name,
        "spec_version": device.spec_version,
        "chain": list(device.chain),
        "topology": None if device.topology is None else _topology_to_json(device.topology),
        "characteristics": {
            unit: {key: {"value": given.value, "device": given.device} for key, given in values.items()}
            for unit, values in device.characteristics.items()
        },
        "mandatory": _names(device.mandatory),
        "extended": _names(device.extended),
        "opcodes": {
            name: _opcode_to_json(device, variants_of(variants, opcode.families))
            for name, opcode in load_registry().items()
            if opcode.families
        },
    }


def _topology_to_json(topology: ResolvedTopology) -> dict[str, object]:
    return {
        "num_engines": topology.num_engines,
        "l1_size_bytes": topology.l1_size_bytes,
        "l2_size_bytes": topology.l2_size_bytes,
        "per_engine": dict(topology.per_engine),
        "device_units": dict(topology.device_units),
        "device": topology.given_by,
    }


def _names(givers: Mapping[VariantId, str]) -> dict[str, str]:
    return {str(variant): giver for variant, giver in givers.items()}


def _opcode_to_json(device: ResolvedDevice, legal: tuple[FamilyVariant, ...]) -> dict[str, list[str]]:
    mandatory = [str(item.id) for item in legal if item.id in device.mandatory]
    extended = [str(item.id) for item in legal if item.id in device.extended]
    return {"mandatory": mandatory, "extended": extended, "effective": mandatory + extended}


# --- text ---------------------------------------------------------------------------------------------------


def _head(device: ResolvedDevice) -> Iterator[str]:
    yield f"device {device.name} (NEM {device.spec_version})"
    if len(device.chain) > 1:
        yield f"  extends {' -> '.join(device.chain[1:])}"


def _topology(device: ResolvedDevice) -> Iterator[str]:
    topology = device.topology
    if topology is None:
        yield "topology: none; the device is abstract and cannot be a target"
        return
    yield f"topology, from {topology.given_by}"
    rows = {
        "num_engines": str(topology.num_engines),
        "l1_size_bytes": f"{topology.l1_size_bytes} per engine",
        "l2_size_bytes": str(topology.l2_size_bytes),
        "per_engine": _counts(topology.per_engine),
        "device_units": _counts(topology.device_units),
    }
    yield from _table(list(rows.items()))


def _counts(units: Mapping[str, int]) -> str:
    return ", ".join(f"{unit} {count}" for unit, count in units.items()) or "none"


def _characteristics(device: ResolvedDevice) -> Iterator[str]:
    rows: list[tuple[str, InheritedValue]] = [
        (f"{unit}.{key}", given)
        for unit, values in device.characteristics.items()
        for key, given in values.items()
    ]
    yield (
        "unit characteristics" if rows else "unit characteristics: none; the defaults of the cost model apply"
    )
    yield from _table([(name, str(given.value), given.device) for name, given in rows])


def _opcodes(device: ResolvedDevice, variants: Variants) -> Iterator[str]:
    """Opcodes of the same families together, as they have the same variants."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, opcode in load_registry().items():
        groups.setdefault(opcode.families, []).append(name)
    counts = f"{len(device.mandatory)} mandatory, {len(device.extended)} extended"
    yield f"type variants: {counts}, {len(device.effective)} effective"
    for families, names in groups.items():
        if families:
            yield from _group(device, names, variants_of(variants, families))
    yield from _wrapped("not subject to type variants: ", groups.get((), []))


def _group(device: ResolvedDevice, names: list[str], legal: tuple[FamilyVariant, ...]) -> Iterator[str]:
    rows = [
        (str(item.id), word, givers[item.id])
        for word, givers in (("mandatory", device.mandatory), ("extended", device.extended))
        for item in legal
        if item.id in givers
    ]
    yield from _wrapped("", names, f": {len(rows)} effective of {len(legal)}")
    yield from _table(rows, "    ")
    absent = [
        str(item.id) for item in legal if item.id not in device.mandatory and item.id not in device.extended
    ]
    if absent:
        yield f"    not offered: {', '.join(absent)}"


def _table(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> Iterator[str]:
    """Rows with their columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield (indent + "  ".join(cells)).rstrip()


def _wrapped(start: str, names: list[str], end: str = "") -> Iterator[str]:
    """Names with commas, broken into lines."""
    line = f"  {start}"
    for index, name in enumerate(names):
        word = f"{name}{end}" if index == len(names) - 1 else f"{name}, "
        if len(line) + len(word) > WIDTH:
            yield line.rstrip()
            line = "    "
        line += word
    yield line
