"""Device inheritance: the chain of parents of every device, and what each link declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from lamella.base.diagnostic import Diagnostic, Label
from lamella.lang.nem import rules
from lamella.lang.nem.device import VariantId
from lamella.lang.nem.documents.library import DEVICE_ALIASES, SHIPPED, Library, device_hint, show_circle
from lamella.lang.nem.families import Variants
from lamella.lang.nem.nodes import Device, Name, TypeFamily, VariantRef

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


def trace(library: Library) -> Ancestry:
    """Follow every `extends` of a library; parents come before children, so that one pass is enough."""
    return _Tracing(library).trace()


class _Tracing:
    """One pass over the declarations, and what it has found so far."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.known = {item.id for items in library.variants.values() for item in items}
        self.circles = find_circles(library)
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
        circle = self.circles.get(device.name.id)
        if circle is not None:
            findings += [circle] if circle.span == device.parent.span else []
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
        hint = "" if later else include_hint(parent.id)
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


def include_hint(device: str) -> str:
    """How a shipped device is made visible; of a name that none has, the device that may be meant."""
    file = SHIPPED.get(DEVICE_ALIASES.get(device, device))
    return f'include "{file}" makes it visible' if file else device_hint(device, SHIPPED)


# --- circles ------------------------------------------------------------------------------------------------


def find_circles(library: Library) -> dict[str, Diagnostic]:
    """The devices that extend themselves, each with the one finding of its circle."""
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
            found.update(dict.fromkeys(members, _tell_circle(library, members)))
    return found


def _parent_name(library: Library, name: str) -> str | None:
    parent = library.devices[name].parent
    device = None if parent is None else library.device(parent.id)
    return None if device is None else device.name.id


def _tell_circle(library: Library, members: list[str]) -> Diagnostic:
    """The finding stands at the member that is defined first."""
    among = set(members)
    first = next(device for name, device in library.devices.items() if name in among)
    start = members.index(first.name.id)
    chain = show_circle([*members[start:], *members[:start]])
    place = first.parent.span if first.parent else first.name.span
    return rules.EXTENDS_CYCLE.at(place, name=first.name.id, chain=chain)
