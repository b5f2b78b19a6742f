"""Schemes of quantisation: how many bits weights and activations have, and the ladder of each layer's precisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.errors import InputError
from lamella.pipeline.quantize.weights import CHANNEL, GROUP, TENSOR, Granularity

REAL = "float"
"""What a layer is that computes in real numbers."""
DEFAULT_GROUP = 32


@dataclass(frozen=True, slots=True)
class Scheme:
    """Bits of weights and activations; activations stay real numbers where only weights are stored narrow."""

    name: str
    weight_bits: int
    is_integer: bool
    """Whether layers compute with the codes of activations too."""


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        item.name: item
        for item in (
            Scheme("int8", 8, True),
            Scheme("w4a8", 4, True),
            Scheme("w8", 8, False),
            Scheme("w4", 4, False),
        )
    }
)
"""The schemes by name; each is also what one layer of a mixed model may be."""


def ladder(scheme: Scheme) -> tuple[Scheme, ...]:
    """The schemes that layers may have in a mixed model, from the narrowest: a scheme, and the one with more bits."""
    return tuple(
        item
        for item in sorted(SCHEMES.values(), key=lambda item: item.weight_bits)
        if item.is_integer == scheme.is_integer
    )


def read_granularity(text: str | None, scheme: Scheme) -> Granularity:
    """`tensor`, `channel` or `group:N`; InputError for other words and for groups that integers cannot have."""
    if text is None:
        grouped = scheme.weight_bits < 8 and not scheme.is_integer
        return Granularity(GROUP, DEFAULT_GROUP) if grouped else Granularity()
    kind, colon, size = text.partition(":")
    if kind in (TENSOR, CHANNEL) and not colon:
        return Granularity(kind)
    if kind != GROUP or not (size.isdecimal() and 0 < int(size[:9]) <= 1 << 20):
        raise InputError(f"'{text[:40]}' is no granularity", hint="give tensor, channel or group:N")
    if scheme.is_integer:
        hint = f"give channel, or --scheme w{scheme.weight_bits}: weights alone in groups"
        raise InputError(
            f"scheme {scheme.name} sums a channel as a whole, so groups have no scales", hint=hint
        )
    return Granularity(GROUP, int(size))
