"""The schema rules of devices, and a device with everything its parents gave it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from lamella.base.diagnostic import WARNING, Diagnostic, Label
from lamella.base.limits import Limits
from lamella.lang.nem import rules
from lamella.lang.nem.device import Given, ResolvedDevice, ResolvedTopology, VariantId
from lamella.lang.nem.devices.inherit import Ancestry, Lineage, trace
from lamella.lang.nem.devices.topology import Numbers
from lamella.lang.nem.documents.library import Library
from lamella.lang.nem.nodes import VariantRef

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
