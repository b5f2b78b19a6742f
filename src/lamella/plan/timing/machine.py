"""A device as the cost model sees it: unit counts and characteristics, with the defaults that were needed.

A device file fully determines the simulation through `unit_characteristics`; where it is silent a default is used
and remembered. Without a device the simulation runs on `generic`: as many engines as the plan names, each with the
units of npm_lite, all default rates, no token limit, memories without end.
"""

from __future__ import annotations

from types import MappingProxyType

from lamella.lang.nem.device import ResolvedDevice, ResolvedTopology

SHARED = -1
"""The engine of units that belong to the whole device."""
SHARED_UNITS = ("sDMA", "WDM")
RUNNING_UNITS = ("NMU", "CSTL", "DMA", "VPU", "sDMA")
"""Units on which tasks run; SEQ only issues them, WDM sits in a weight path."""
LINKS = MappingProxyType({"DDR": "ddr_bytes_per_cycle", "L2": "l2_bytes_per_cycle"})
"""Memory levels whose total bandwidth a device may limit, with the SEQ key."""

_GENERIC = ResolvedTopology(
    num_engines=1,
    l1_size_bytes=0,
    l2_size_bytes=0,
    per_engine=MappingProxyType({"NMU": 1, "CSTL": 2, "DMA": 2, "VPU": 1, "SEQ": 1}),
    device_units=MappingProxyType({"sDMA": 1, "WDM": 0}),
    given_by="generic",
)


def unit_name(place: tuple[int, str], engines: int) -> str:
    """The name of a unit class; engines are told apart only where there are several."""
    engine, unit = place
    return unit if engine == SHARED or engines == 1 else f"E{engine}.{unit}"


class MachineModel:
    """Answers what a device gives, and remembers each default that was used instead."""

    def __init__(self, device: ResolvedDevice | None) -> None:
        self.device = device
        self.name = "generic" if device is None else device.name
        self.defaults: dict[str, int] = {}
        known = None if device is None else device.topology
        self.topology = known or _GENERIC
        self.is_generic = known is None
        self.engines = max(1, self.topology.num_engines)
        self.links = self._links()

    def given(self, unit: str, key: str) -> int | None:
        """A characteristic of the device file, or None where it is silent."""
        if self.device is None:
            return None
        found = self.device.characteristics.get(unit, {}).get(key)
        return None if found is None else found.value

    def value(self, unit: str, key: str, default: int, least: int = 0) -> int:
        """A characteristic, or its default; never less than `least`, which keeps rates positive."""
        found = self.given(unit, key)
        if found is None or found < least:
            self.defaults[f"{unit}.{key}"] = found = max(default, least)
        return found

    def count(self, unit: str) -> int:
        """How many instances of a unit there are on an engine or, for shared units, on the device."""
        units = self.topology.device_units if unit in SHARED_UNITS else self.topology.per_engine
        return max(0, units.get(unit, 0))

    def total(self, unit: str, engines: int) -> int:
        """How many instances of a unit so many engines have; at least the one that is assumed."""
        return max(1, self.count(unit)) * (1 if unit in SHARED_UNITS else engines)

    def fallback(self, unit: str) -> str:
        """The unit itself where the device has it, else VPU, as the binder does."""
        if self.count(unit) > 0 or unit == "VPU":
            return unit
        return "VPU" if self.count("VPU") > 0 else unit

    def instances(self, unit: str) -> int:
        """How many instances a task may choose from; one is assumed of a unit that the device lacks altogether."""
        found = self.count(unit)
        if found == 0:
            self.defaults[f"topology.{unit}"] = found = 1
        return found

    def capacity(self, level: str) -> int | None:
        """Bytes of a memory level; None where nothing limits it."""
        if self.is_generic or level == "DDR":
            return None
        return self.topology.l2_size_bytes if level == "L2" else self.topology.l1_size_bytes

    @property
    def tokens(self) -> int | None:
        """How many tokens may be live on an engine; None where the device file does not say."""
        found = self.given("SEQ", "max_active_tokens")
        return None if found is None else max(1, found)

    @property
    def clock_khz(self) -> int | None:
        """The clock, where the device file gives one."""
        found = self.given("SEQ", "clock_khz")
        return found if found is not None and found > 0 else None

    def _links(self) -> dict[str, int]:
        """The levels whose total bandwidth is limited, in bytes a cycle."""
        found = {level: self.given("SEQ", key) for level, key in LINKS.items()}
        return {level: rate for level, rate in found.items() if rate is not None and rate > 0}
