"""Devices with their inheritance resolved, checked against the schema rules, and picked as a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath
from types import MappingProxyType

from lamella.base.diagnostic import WARNING, Diagnostic, Label
from lamella.base.errors import Found
from lamella.base.limits import Limits
from lamella.base.source import Span
from lamella.lang.nem import rules
from lamella.lang.nem.device import InheritedValue, ResolvedDevice, ResolvedTopology, VariantId
from lamella.lang.nem.documents import DEVICE_ALIASES, SHIPPED, DeviceLibrary, device_hint, show_cycle
from lamella.lang.nem.evaluate import evaluate
from lamella.lang.nem.families import Variants
from lamella.lang.nem.nodes import Device, Name, Setting, Topology, TypeFamily, VariantRef
from lamella.lang.nem.words import UNITS

KNOWN_VERSION = "1.0"
SPELLINGS = (KNOWN_VERSION, f"NEM-{KNOWN_VERSION}")
MOST_NAMED = 20


def check_devices(library: DeviceLibrary, strict: bool | None = None) -> list[Diagnostic]:
    """What is wrong with the devices that a document sees, each finding once.

    Strict is the check of a configuration; a program that uses one gets warnings where it may still be bound.
    """
    strict = not library.document.is_program if strict is None else strict
    found: list[Diagnostic] = []
    for part in (library, library.target):
        if part is not None:
            ancestry = _trace(part)
            for lineage in ancestry.lineages.values():
                found += _check(lineage, ancestry, part.limits, strict)
    return list(dict.fromkeys(found))


def resolve_device(
    library: DeviceLibrary, name: str, strict: bool = False
) -> tuple[ResolvedDevice | None, list[Diagnostic]]:
    """A visible device after inheritance, and what is wrong with it and its parents."""
    device = library.device(name)
    if device is None:
        return None, []
    ancestry = _trace(library)
    lineage = ancestry.lineages[device.name.id]
    findings = [item for link in lineage.chain() for item in _check(link, ancestry, library.limits, strict)]
    return _resolve(lineage, library.limits), findings


# --- schema rules -------------------------------------------------------------------------------------------


def _check(lineage: Lineage, ancestry: Ancestry, limits: Limits, strict: bool) -> Iterator[Diagnostic]:
    """What is wrong with a device itself; its parents answer for what they gave."""
    yield from lineage.findings
    yield from _check_version(lineage)
    numbers = DeviceNumbers(lineage.device, limits)
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
    # Required variants are numbered in the order of their families: the parent saw those before `seen`.
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
    # From the root down, so that the device which lists a variant first is its giver.
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
            found = DeviceNumbers(link.device, limits).topology(block)
            return found, found is not None
    return None, True


def _characteristics(
    links: list[Lineage], limits: Limits
) -> MappingProxyType[str, MappingProxyType[str, InheritedValue]]:
    """The merge of all blocks; a child's key replaces its parent's."""
    merged: dict[str, dict[str, InheritedValue]] = {}
    # From the root down: a child's value replaces its parent's.
    for link in reversed(links):
        own = DeviceNumbers(link.device, limits).characteristics(link.device)
        for unit, values in own.items():
            merged.setdefault(unit, {}).update(values)
    return MappingProxyType({unit: MappingProxyType(values) for unit, values in merged.items()})


# --- the device that a program is meant for -----------------------------------------------------------------


Target = tuple[ResolvedDevice | None, list[Diagnostic]]


def pick_target(library: DeviceLibrary) -> Target:
    """The target of a document, if it has one: the caller's choice, the directive, or the last inline device.

    Findings are those of the choice and of the device and its parents; what `load` reported is not reported again.
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


def _place(library: DeviceLibrary) -> Span:
    """Where the choice of the device stands; the start of the file for a choice from outside."""
    directive = library.document.device
    return Span(library.source, 0, 0) if directive is None or library.wanted else directive.target.span


def _pick_named(library: DeviceLibrary, name: Name) -> Target:
    if library.device(name.id) is None and not library.may_know(name.id):
        hint = device_hint(name.id, library.devices) or _include_hint(name.id)
        return None, [rules.UNKNOWN_DEVICE.at(name.span, name=name.id, hint=hint)]
    return _pick(library, name.id, name.span)


def _pick_from_file(library: DeviceLibrary, wanted: str, place: Span) -> Target:
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


def _pick(library: DeviceLibrary, name: str, place: Span) -> Target:
    device, findings = resolve_device(library, name)
    if device is not None and device.topology is None:
        return None, [*findings, rules.ABSTRACT_TARGET.at(place, name=name)]
    return device, findings


__all__ = ["check_devices", "pick_target", "resolve_device"]


# --- device inheritance: the chain of parents of every device, and what each link declares ------------------


SHOWN = 13


@dataclass(frozen=True, slots=True, eq=False)
class Lineage:
    """A device, its parent, and the variants that it declares itself."""

    device: Device
    parent: Lineage | None
    sound: bool
    """Whether the chain of parents leads to a root."""
    depth: int
    seen: int
    """How many of the required variants belong to families defined before the device."""
    mandatory: Mapping[VariantId, VariantRef] = field(repr=False)
    extended: Mapping[VariantId, VariantRef] = field(repr=False)
    doubtful: bool
    """Whether some variant that it names is not known."""
    findings: tuple[Diagnostic, ...] = field(repr=False)

    def chain(self) -> Iterator[Lineage]:
        """The device and its parents, nearest first."""
        link: Lineage | None = self
        while link is not None:
            yield link
            link = link.parent

    def is_mandatory(self, variant: VariantId) -> bool:
        """Whether the device or a parent guarantees a variant."""
        return any(variant in link.mandatory for link in self.chain())

    def is_extended(self, variant: VariantId) -> bool:
        """Whether the device or a parent lists a variant as conditionally available."""
        return any(variant in link.extended for link in self.chain())


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The lineages of all devices of a library, and the MUST variants of its families in order."""

    lineages: Mapping[str, Lineage]
    required: tuple[VariantId, ...]


def _trace(library: DeviceLibrary) -> Ancestry:
    """Follow every `extends` of a library; parents come before children, so that one pass is enough."""
    return _LineageTracer(library).trace()


class _LineageTracer:
    """One pass over the declarations, and what it has found so far."""

    def __init__(self, library: DeviceLibrary) -> None:
        self.library = library
        self.known = {item.id for items in library.variants.values() for item in items}
        self.cycles = _find_cycles(library)
        self.lineages: dict[str, Lineage] = {}
        declared = {item.name.id for item in library.declarations if isinstance(item, TypeFamily)}
        self.required = [
            item
            for name in library.variants
            if name not in declared
            for item in _must(library.variants, name)
        ]

    def trace(self) -> Ancestry:
        """Take the declarations in the order of their definition."""
        for item in self.library.declarations:
            if isinstance(item, TypeFamily):
                self.required += _must(self.library.variants, item.name.id)
            else:
                self.lineages[item.name.id] = self._lineage(item)
        return Ancestry(self.lineages, tuple(self.required))

    def _lineage(self, device: Device) -> Lineage:
        findings: list[Diagnostic] = []
        parent = self._parent(device, findings)
        mandatory, lost = self._variants(device.mandatory or (), findings)
        extended, lost_too = self._variants(device.extended or (), findings)
        return Lineage(
            device=device,
            parent=parent,
            sound=device.parent is None or parent is not None,
            depth=parent.depth + 1 if parent else 1,
            seen=len(self.required),
            mandatory=mandatory,
            extended=extended,
            doubtful=lost or lost_too,
            findings=tuple(findings),
        )

    # --- parents --------------------------------------------------------------------------------------------

    def _parent(self, device: Device, findings: list[Diagnostic]) -> Lineage | None:
        """The lineage that a device continues; None where it is a root or has no sound parent."""
        if device.parent is None:
            return None
        cycle = self.cycles.get(device.name.id)
        if cycle is not None:
            findings += [cycle] if cycle.span == device.parent.span else []
            return None
        parent = self.lineages.get(device.parent.id)
        parent = parent or self.lineages.get(DEVICE_ALIASES.get(device.parent.id, ""))
        if parent is None:
            findings += self._unknown_parent(device, device.parent)
            return None
        limit = self.library.limits.max_depth
        if parent.depth == limit:
            what = f"the chain of parents of device '{device.name.id}'"
            place = device.parent.span
            findings.append(rules.LIMIT.at(place, what=what, limit=limit, option="max_depth"))
            return None
        return parent if parent.sound else None

    def _unknown_parent(self, device: Device, parent: Name) -> Iterator[Diagnostic]:
        later = self.library.device(parent.id)
        if later is None and self.library.may_know(parent.id):
            return
        labels = [Label(later.name.span, "defined here")] if later else []
        hint = "" if later else _include_hint(parent.id)
        yield rules.UNKNOWN_PARENT.at(
            parent.span, name=parent.id, child=device.name.id, labels=labels, hint=hint
        )

    # --- variants -------------------------------------------------------------------------------------------

    def _variants(
        self, refs: tuple[VariantRef, ...], findings: list[Diagnostic]
    ) -> tuple[dict[VariantId, VariantRef], bool]:
        """The variants that a block names, and whether some of them are not known."""
        found: dict[VariantId, VariantRef] = {}
        doubtful = False
        for ref in refs:
            variant = VariantId(ref.family, ref.elems, ref.variant)
            if variant not in self.known:
                doubtful = True
                findings += self._unknown_variant(variant, ref)
            elif variant in found:
                findings.append(rules.DOUBLE_SETTING.at(ref.span, what=str(variant)))
            else:
                found[variant] = ref
        return found, doubtful

    def _unknown_variant(self, variant: VariantId, ref: VariantRef) -> Iterator[Diagnostic]:
        if self.library.may_know(variant.family):
            return
        family = self.library.variants.get(variant.family)
        if family:
            hint = f"{variant.family} has {', '.join(str(item.id) for item in family[:SHOWN])}"
        else:
            hint = f"known families are {', '.join(islice(self.library.variants, SHOWN))}"
        yield rules.UNKNOWN_VARIANT.at(ref.span, variant=variant, hint=hint)


def _must(variants: Variants, family: str) -> list[VariantId]:
    return [item.id for item in variants.get(family, ()) if item.must]


def _include_hint(device: str) -> str:
    """How a shipped device is made visible; of a name that none has, the device that may be meant."""
    file = SHIPPED.get(DEVICE_ALIASES.get(device, device))
    return f'include "{file}" makes it visible' if file else device_hint(device, SHIPPED)


# --- inheritance cycles -------------------------------------------------------------------------------------


def _find_cycles(library: DeviceLibrary) -> dict[str, Diagnostic]:
    """The devices that extend themselves, each with the one finding of its cycle."""
    found: dict[str, Diagnostic] = {}
    walk_of: dict[str, str] = {}
    for name in library.devices:
        path: list[str] = []
        here: str | None = name
        while here is not None and here not in walk_of:
            walk_of[here] = name
            path.append(here)
            here = _parent_name(library, here)
        if here is not None and path and walk_of[here] == name:
            members = path[path.index(here) :]
            found.update(dict.fromkeys(members, _report_cycle(library, members)))
    return found


def _parent_name(library: DeviceLibrary, name: str) -> str | None:
    parent = library.devices[name].parent
    device = None if parent is None else library.device(parent.id)
    return None if device is None else device.name.id


def _report_cycle(library: DeviceLibrary, members: list[str]) -> Diagnostic:
    """The finding stands at the member that is defined first."""
    among = set(members)
    first = next(device for name, device in library.devices.items() if name in among)
    start = members.index(first.name.id)
    chain = show_cycle([*members[start:], *members[:start]])
    place = first.parent.span if first.parent else first.name.span
    return rules.EXTENDS_CYCLE.at(place, name=first.name.id, chain=chain)


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


class DeviceNumbers:
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

    def characteristics(self, device: Device) -> dict[str, dict[str, InheritedValue]]:
        """The characteristics that the block states, by unit and key."""
        found: dict[str, dict[str, InheritedValue]] = {}
        for group in device.characteristics or ():
            unit = group.unit
            if unit.id not in UNITS:
                self._unknown(unit, "unit_characteristics")
            elif unit.id in found:
                self.findings.append(rules.DOUBLE_SETTING.at(unit.span, what=unit.id))
            else:
                values = self.settings(group.settings, unit.id, None)
                found[unit.id] = {key: InheritedValue(value, self.device) for key, value in values.items()}
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
        except Found as problem:
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
    raise Found(rules.UNDEFINED.at(name.span, name=name.id, hint=hint))
