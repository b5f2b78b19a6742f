"""Devices with their inheritance resolved, checked against the schema rules, and picked as a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from types import MappingProxyType

from lamella.base.diagnostic import WARNING, Diagnostic, Label
from lamella.base.limits import Limits
from lamella.base.source import Span
from lamella.lang.nem import rules
from lamella.lang.nem.device import Given, ResolvedDevice, ResolvedTopology, VariantId
from lamella.lang.nem.devices.inherit import Ancestry, Lineage, include_hint, trace
from lamella.lang.nem.documents.library import Library, device_hint
from lamella.lang.nem.evaluate import Problem, evaluate
from lamella.lang.nem.nodes import Device, Name, Setting, Topology, VariantRef
from lamella.lang.nem.words import UNITS

# --- the schema rules of devices, and a device with everything its parents gave it --------------------------


# --- the numbers of one device block: topology and unit characteristics -------------------------------------


# The settings of each block, and the least value of each.
WHOLE = MappingProxyType({"num_engines": 1, "l2_size_bytes": 1})
DEVICE_UNITS = MappingProxyType({"sDMA": 0, "WDM": 0})
ENGINE_UNITS = MappingProxyType(dict.fromkeys(("NMU", "CSTL", "DMA", "VPU", "SEQ"), 1))
PER_ENGINE = MappingProxyType({**ENGINE_UNITS, "l1_size_bytes": 1})

RATES = (
    "int4_macs",
    "int8_macs",
    "int16_macs",
    "fp16_macs",
    "int4x8_macs",
    "elems_per_cycle",
    "bytes_per_cycle",
)
LEAST = MappingProxyType(
    {
        **dict.fromkeys((*RATES, "max_active_tokens", "clock_khz"), 1),
        **dict.fromkeys(("latency", "setup_cycles", "dispatch_cycles"), 0),
    }
)
"""Characteristics that the cost model computes with; all other keys are free and kept."""


class Numbers:
    """Reads the settings of one device; findings are collected."""

    def __init__(self, device: Device, limits: Limits) -> None:
        self.device = device.name.id
        self.limits = limits
        self.findings: list[Diagnostic] = []
        self.misplaced: set[str] = set()

    def topology(self, block: Topology) -> ResolvedTopology | None:
        """The topology, or None where something of it is wrong."""
        whole = self.settings(block.settings, "topology", WHOLE)
        shared = self.settings(block.device_units or (), "device_units", DEVICE_UNITS)
        engine = self.settings(block.per_engine or (), "per_engine", PER_ENGINE)
        present = {*whole, *engine, *self.misplaced}
        if block.per_engine is None:
            present.add("l1_size_bytes")
        self.findings += self._missing(block, present)
        if self.findings:
            return None
        l1_size = engine.pop("l1_size_bytes")
        self._keep_countable(block.span, whole["num_engines"], engine, shared)
        return ResolvedTopology(
            num_engines=whole["num_engines"],
            l1_size_bytes=l1_size,
            l2_size_bytes=whole["l2_size_bytes"],
            per_engine=MappingProxyType(engine),
            device_units=MappingProxyType(shared),
            given_by=self.device,
        )

    def _missing(self, block: Topology, present: set[str]) -> Iterator[Diagnostic]:
        fields = [name for name in (*WHOLE, "l1_size_bytes") if name not in present]
        if block.per_engine is None:
            fields.append("per_engine")
        for name in fields:
            yield rules.TOPOLOGY_FIELD.at(block.span, name=self.device, field=name)

    def _keep_countable(
        self, span: Span, engines: int, engine: Mapping[str, int], shared: Mapping[str, int]
    ) -> None:
        """Later stages hold one record for each unit."""
        limit = self.limits.max_expansion
        if engines * (1 + sum(engine.values())) + sum(shared.values()) > limit:
            what = f"the number of units of device '{self.device}'"
            self.findings.append(rules.LIMIT.at(span, what=what, limit=limit, option="max_expansion"))

    def characteristics(self, device: Device) -> dict[str, dict[str, Given]]:
        """The characteristics that the block states, by unit and key."""
        found: dict[str, dict[str, Given]] = {}
        for group in device.characteristics or ():
            unit = group.unit
            if unit.id not in UNITS:
                self._unknown(unit, "unit_characteristics")
            elif unit.id in found:
                self.findings.append(rules.DOUBLE_SETTING.at(unit.span, what=unit.id))
            else:
                values = self.settings(group.settings, unit.id, None)
                found[unit.id] = {key: Given(value, self.device) for key, value in values.items()}
        return found

    # --- settings -------------------------------------------------------------------------------------------

    def settings(
        self, settings: Sequence[Setting], place: str, known: Mapping[str, int] | None
    ) -> dict[str, int]:
        """The values of a block; `known` are its settings with their least values; None: all are free."""
        values: dict[str, int] = {}
        for setting in settings:
            name = setting.name.id
            if name in values:
                self.findings.append(rules.DOUBLE_SETTING.at(setting.name.span, what=f"{place} {name}"))
            elif known is not None and name not in known:
                self._unknown(setting.name, place)
            else:
                values[name] = self._value(setting, place, (LEAST if known is None else known).get(name))
        return values

    def _unknown(self, name: Name, place: str) -> None:
        self.misplaced.add(name.id)
        if name.id in UNITS:
            hint = "sDMA and WDM stand in device_units, the other units in per_engine"
            self.findings.append(rules.UNIT_PLACE.at(name.span, unit=name.id, place=place, hint=hint))
        else:
            self.findings.append(rules.UNKNOWN_SETTING.at(name.span, name=name.id, place=place))

    def _value(self, setting: Setting, place: str, least: int | None) -> int:
        """The value of a setting; where it has none there is a finding, and the number does not matter."""
        name = setting.name.id
        try:
            value = evaluate(setting.value, _no_names, name)
        except Problem as problem:
            self.findings.append(problem.finding)
            return 0
        if least is not None and value < least:
            field = name if place == "topology" else f"{place}.{name}"
            self.findings.append(
                rules.TOPOLOGY_VALUE.at(
                    setting.value.span, field=field, name=self.device, value=value, least=least
                )
            )
        return value


def _no_names(name: Name) -> int:
    hint = "the settings of a device are integers; constants of a program are not seen there"
    raise Problem(rules.UNDEFINED.at(name.span, name=name.id, hint=hint))


KNOWN_VERSION = "1.0"
SPELLINGS = (KNOWN_VERSION, f"NEM-{KNOWN_VERSION}")
MOST_NAMED = 20


def check_devices(library: Library, strict: bool | None = None) -> list[Diagnostic]:
    """What is wrong with the devices that a document sees, each finding once.

    Strict is the check of a configuration; a program that uses one gets warnings where it may still be bound.
    """
    strict = not library.document.is_program if strict is None else strict
    found: list[Diagnostic] = []
    for part in (library, library.target):
        if part is not None:
            ancestry = trace(part)
            for lineage in ancestry.lineages.values():
                found += _check(lineage, ancestry, part.limits, strict)
    return list(dict.fromkeys(found))


def resolve_device(
    library: Library, name: str, strict: bool = False
) -> tuple[ResolvedDevice | None, list[Diagnostic]]:
    """A visible device after inheritance, and what is wrong with it and its parents."""
    device = library.device(name)
    if device is None:
        return None, []
    ancestry = trace(library)
    lineage = ancestry.lineages[device.name.id]
    findings = [item for link in lineage.chain() for item in _check(link, ancestry, library.limits, strict)]
    return _resolve(lineage, library.limits), findings


# --- schema rules -------------------------------------------------------------------------------------------


def _check(lineage: Lineage, ancestry: Ancestry, limits: Limits, strict: bool) -> Iterator[Diagnostic]:
    """What is wrong with a device itself; its parents answer for what they gave."""
    yield from lineage.findings
    yield from _check_version(lineage)
    numbers = Numbers(lineage.device, limits)
    if lineage.device.topology is not None:
        numbers.topology(lineage.device.topology)
    numbers.characteristics(lineage.device)
    yield from numbers.findings
    for finding in _check_disjoint(lineage):
        yield finding if strict else replace(finding, severity=WARNING)
    if lineage.sound and not lineage.doubtful:
        yield from _check_complete(lineage, ancestry)


def _check_version(lineage: Lineage) -> Iterator[Diagnostic]:
    """A root states the revision of the specification, and nobody else does."""
    device = lineage.device
    name, version = device.name.id, device.spec_version
    if device.parent is not None:
        if version is not None:
            yield rules.DERIVED_VERSION.at(version.span, name=name)
    elif version is None:
        hint = f'begin it with spec_version = "{KNOWN_VERSION}", or extend nem_baseline_1_0'
        yield rules.MISSING_VERSION.at(device.name.span, name=name, hint=hint)
    elif version.value not in SPELLINGS:
        yield rules.SPEC_VERSION.at(version.span, name=name, found=version.value, known=KNOWN_VERSION)


def _check_disjoint(lineage: Lineage) -> Iterator[Diagnostic]:
    """No variant is both guaranteed and conditional; the finding stands where the second listing is."""
    for variant, ref in lineage.extended.items():
        if lineage.is_mandatory(variant):
            yield _both(lineage, variant, ref)
    if lineage.parent is not None:
        for variant, ref in lineage.mandatory.items():
            if lineage.parent.is_extended(variant) and not lineage.parent.is_mandatory(variant):
                yield _both(lineage, variant, ref)


def _both(lineage: Lineage, variant: VariantId, ref: VariantRef) -> Diagnostic:
    others = (
        (link.device.name.id, other)
        for link in lineage.chain()
        for other in (link.mandatory.get(variant), link.extended.get(variant))
        if other is not None and other is not ref
    )
    labels = [Label(other.span, f"listed here by '{name}'") for name, other in others][:1]
    name = lineage.device.name.id
    return rules.MANDATORY_AND_EXTENDED.at(ref.span, variant=variant, name=name, labels=labels)


def _check_complete(lineage: Lineage, ancestry: Ancestry) -> Iterator[Diagnostic]:
    """Every MUST variant of the families before the device is mandatory; parents answer for their own."""
    first = lineage.parent.seen if lineage.parent else 0
    missing: list[str] = []
    for index in range(first, lineage.seen):
        if not lineage.is_mandatory(ancestry.required[index]):
            missing.append(str(ancestry.required[index]))
        if len(missing) == MOST_NAMED:
            missing.append("…")
            break
    if missing:
        device = lineage.device
        hint = "add them to opcode.mandatory" if device.parent else None
        yield rules.MISSING_MUST.at(
            device.name.span, name=device.name.id, variants=", ".join(missing), hint=hint
        )


# --- the resolved device ------------------------------------------------------------------------------------


def _resolve(lineage: Lineage, limits: Limits) -> ResolvedDevice | None:
    """The device with what its parents gave; None where the chain or the topology cannot be relied on."""
    links = list(lineage.chain())
    root = links[-1]
    topology, usable = _topology(links, limits)
    if not root.sound or not usable:
        return None
    version = root.device.spec_version
    mandatory, extended = _givers(links)
    return ResolvedDevice(
        name=lineage.device.name.id,
        chain=tuple(link.device.name.id for link in links),
        spec_version=version.value if version else KNOWN_VERSION,
        topology=topology,
        characteristics=_characteristics(links, limits),
        mandatory=MappingProxyType(mandatory),
        extended=MappingProxyType(extended),
        span=lineage.device.name.span,
    )


def _givers(links: list[Lineage]) -> tuple[dict[VariantId, str], dict[VariantId, str]]:
    """Mandatory and extended variants, each with the device that lists it first; mandatory wins."""
    mandatory: dict[VariantId, str] = {}
    extended: dict[VariantId, str] = {}
    for link in reversed(links):
        for variant in link.mandatory:
            mandatory.setdefault(variant, link.device.name.id)
        for variant in link.extended:
            extended.setdefault(variant, link.device.name.id)
    return mandatory, {item: by for item, by in extended.items() if item not in mandatory}


def _topology(links: list[Lineage], limits: Limits) -> tuple[ResolvedTopology | None, bool]:
    """The topology of the nearest device that has one, and whether it makes sense."""
    for link in links:
        block = link.device.topology
        if block is not None:
            found = Numbers(link.device, limits).topology(block)
            return found, found is not None
    return None, True


def _characteristics(
    links: list[Lineage], limits: Limits
) -> MappingProxyType[str, MappingProxyType[str, Given]]:
    """The merge of all blocks; a child's key replaces its parent's."""
    merged: dict[str, dict[str, Given]] = {}
    for link in reversed(links):
        own = Numbers(link.device, limits).characteristics(link.device)
        for unit, values in own.items():
            merged.setdefault(unit, {}).update(values)
    return MappingProxyType({unit: MappingProxyType(values) for unit, values in merged.items()})


# --- the device that a program is meant for -----------------------------------------------------------------


Target = tuple[ResolvedDevice | None, list[Diagnostic]]


def pick_target(library: Library) -> Target:
    """The target of a document, if it has one: the caller's choice, the directive, or the last inline device.

    Findings are those of the choice and of the device and its parents; what `load` told is not told again.
    """
    document, place = library.document, _place(library)
    if library.target is not None:
        return _pick_from_file(library.target, library.wanted, place)
    if library.wanted:
        return _pick(library, library.wanted, place)
    if document.device is not None:
        target = document.device.target
        return _pick_named(library, target) if isinstance(target, Name) else (None, [])
    own = library.own_devices
    if document.is_program and own:
        return _pick(library, own[-1].name.id, own[-1].name.span)
    return None, []


def _place(library: Library) -> Span:
    """Where the choice of the device stands; the start of the file for a choice from outside."""
    directive = library.document.device
    return Span(library.source, 0, 0) if directive is None or library.wanted else directive.target.span


def _pick_named(library: Library, name: Name) -> Target:
    if library.device(name.id) is None and not library.may_know(name.id):
        hint = device_hint(name.id, library.devices) or include_hint(name.id)
        return None, [rules.UNKNOWN_DEVICE.at(name.span, name=name.id, hint=hint)]
    return _pick(library, name.id, name.span)


def _pick_from_file(library: Library, wanted: str, place: Span) -> Target:
    """The named device of a file, else the only one, else the one that is named like the file."""
    own = [item.name.id for item in library.own_devices]
    stem = PurePath(library.source.name).stem
    chosen = next((name for name in (wanted, stem) if name in own), own[0] if len(own) == 1 else None)
    if chosen is not None:
        return _pick(library, chosen, place)
    if library.broken or not library.complete:
        return None, []
    path = library.source.name
    return None, [rules.AMBIGUOUS_DEVICE.at(place, path=path, count=len(own))]


def _pick(library: Library, name: str, place: Span) -> Target:
    device, findings = resolve_device(library, name)
    if device is not None and device.topology is None:
        return None, [*findings, rules.ABSTRACT_TARGET.at(place, name=name)]
    return device, findings


__all__ = ["check_devices", "pick_target", "resolve_device"]
