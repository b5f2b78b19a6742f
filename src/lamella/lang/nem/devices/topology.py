"""The numbers of one device block: topology and unit characteristics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import Limits
from lamella.base.source import Span
from lamella.lang.nem import rules
from lamella.lang.nem.device import Given, ResolvedTopology
from lamella.lang.nem.evaluate import Problem, evaluate
from lamella.lang.nem.nodes import Device, Name, Setting, Topology
from lamella.lang.nem.words import UNITS

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
