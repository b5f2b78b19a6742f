"""A device with its inheritance resolved: topology, characteristics, type variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamella.base.source import NOWHERE, Span


@dataclass(frozen=True, slots=True)
class InheritedValue:
    """A value of a device and the device of the chain that gave it."""

    value: int
    device: str


@dataclass(frozen=True, slots=True)
class VariantId:
    """`gemm.float<bf16>.no_bias` in parts; `str()` is the canonical spelling without spaces."""

    family: str
    elems: tuple[str, ...]
    variant: str

    def __str__(self) -> str:
        elems = f"<{','.join(self.elems)}>" if self.elems else ""
        return f"{self.family}{elems}.{self.variant}"


@dataclass(frozen=True, slots=True)
class FamilyVariant:
    """One legal type combination: operand types, accumulator, quant rule, conformance class."""

    id: VariantId
    operands: Mapping[str, str]
    accum: str
    quant: tuple[str, ...]
    must: bool


@dataclass(frozen=True, slots=True)
class ResolvedTopology:
    """Engines, memory sizes and unit counts."""

    num_engines: int
    l1_size_bytes: int
    l2_size_bytes: int
    per_engine: Mapping[str, int]
    device_units: Mapping[str, int]
    given_by: str


@dataclass(frozen=True, slots=True)
class ResolvedDevice:
    """A device after inheritance; `chain` goes from the device to its root parent."""

    name: str
    chain: tuple[str, ...]
    spec_version: str
    topology: ResolvedTopology | None
    characteristics: Mapping[str, Mapping[str, InheritedValue]]
    mandatory: Mapping[VariantId, str]
    extended: Mapping[VariantId, str]
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def effective(self) -> frozenset[VariantId]:
        """All variants the device offers."""
        return frozenset(self.mandatory) | frozenset(self.extended)

    def units(self, unit: str) -> int:
        """How many instances of a unit type there are, per engine or, for sDMA and WDM, on the device."""
        if self.topology is None:
            return 0
        return self.topology.per_engine.get(unit, self.topology.device_units.get(unit, 0))

    def characteristic(self, unit: str, key: str, default: int) -> int:
        """A characteristic, or the default of the cost model where the device file is silent."""
        given = self.characteristics.get(unit, {}).get(key)
        return default if given is None else given.value
