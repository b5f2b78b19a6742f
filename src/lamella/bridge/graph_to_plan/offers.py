"""What a device computes: the type variants of its effective set, asked by opcode and element type."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.errors import Unsupported
from lamella.lang.nem.device import ResolvedDevice, VariantId
from lamella.lang.nem.documents import baseline
from lamella.lang.nem.registry import load_registry

FLOATS = ("f16", "f32", "bf16")
"""Float types in the order in which they take the place of one that is not offered."""
CONVERSIONS = ("view", "cast", "quantize", "dequantize")
"""Families that compute nothing."""
FREE = ("maxpool", "avgpool")
"""Opcodes without a family: they take the types of elementwise ones, and no device limits them."""


class Offers:
    """The variants that a device has; without a device, all that a device may have."""

    def __init__(self, device: ResolvedDevice | None) -> None:
        self.device = device
        known = (item.id for items in baseline().variants.values() for item in items)
        self._effective = frozenset(known) if device is None else device.effective

    def has(self, family: str, elems: Sequence[str], variant: str = "default") -> bool:
        """Whether one variant is offered."""
        return VariantId(family, tuple(elems), variant) in self._effective

    @property
    def computes_floats(self) -> bool:
        """Whether anything but moves and conversions has a variant of a float type."""
        return any(
            set(item.elems) & set(FLOATS) for item in self._effective if item.family not in CONVERSIONS
        )

    def float_for(self, opcode: str, elem: str, variant: str = "default") -> str:
        """The float type in which an opcode runs: the wished one, or the nearest that is offered."""
        if opcode in FREE:
            return elem
        family = _float_family(opcode)
        for found in (elem, *FLOATS):
            if found in FLOATS and self.has(family, (found,), variant):
                return found
        raise Unsupported(f"{self._name()} has no {family} of any float type ({variant})")

    def moved(self, opcode: str, elem: str) -> str:
        """The type in which elements are moved by a view, or computed by an elementwise opcode, as integers."""
        family = load_registry()[opcode].families[0]
        if self.has(family, (elem,)):
            return elem
        raise Unsupported(f"{self._name()} has no {family}<{elem}>.default")

    def _name(self) -> str:
        return "the device" if self.device is None else f"device {self.device.name}"


def _float_family(opcode: str) -> str:
    families = load_registry()[opcode].families
    return next((name for name in families if name.endswith(".float")), families[0])
