"""Devices with their inheritance resolved, checked against the schema rules, and picked as a target."""

from __future__ import annotations

from lamella.lang.nem.devices.resolve import check_devices, resolve_device
from lamella.lang.nem.devices.target import pick_target

__all__ = ["check_devices", "pick_target", "resolve_device"]
