"""The numbers of `constants:`, such as rotary tables, computed once in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from lamella.bridge.module_to_graph.lowering import original_length, rope_kind
from lamella.lang.module.instantiate.nodes import BuiltConstant, DictValue, Value

if TYPE_CHECKING:
    from lamella.base.arrays import Array

Number = int | float


def precompute_rope_freqs(
    max_seq: int,
    dim: int,
    theta: float = 10000.0,
    scaling: str = "default",
    factor: float = 1.0,
    **llama3: float,
) -> Array:
    """Cosine and sine of every position and pair, `[max_seq, dim / 2, 2]`; `scaling` is default, linear or llama3.

    `llama3` are low_freq_factor, high_freq_factor and original_max_seq.
    """
    inverse = np.asarray(float(theta), np.float64) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    if scaling == "linear":
        inverse = inverse / factor
    if scaling == "llama3":
        inverse = _llama3(inverse, factor, **llama3)
    return _table(inverse, max_seq, 1.0)


def _llama3(
    inverse: Array,
    factor: float,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    original_max_seq: float = 8192,
) -> Array:
    """Long wavelengths are stretched by the factor, short ones stay, those between are blended."""
    wavelength = 2 * math.pi / inverse
    blend = (original_max_seq / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
    between = inverse * ((1 - blend) / factor + blend)
    stretched = np.where(wavelength > original_max_seq / low_freq_factor, inverse / factor, between)
    return np.where(wavelength < original_max_seq / high_freq_factor, inverse, stretched)


def precompute_yarn_freqs(
    max_seq: int,
    dim: int,
    scale_factor: float,
    theta: float = 10000.0,
    original_max_seq: int = 4096,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> Array:
    """Positions stretched as YaRN does it: fast pairs stay, slow ones are divided, a ramp lies between."""
    first, last = _turns_at((beta_fast, beta_slow), dim, theta, original_max_seq)
    ramp = math.floor(first), math.ceil(last)
    return _table(_yarn(dim, scale_factor, theta, ramp), max_seq, _yarn_size(scale_factor))


def _turns_at(rotations: tuple[float, float], dim: int, theta: float, original: int) -> Iterator[float]:
    """The pairs that turn so often within the original length."""
    return (dim * math.log(original / (item * 2 * math.pi)) / (2 * math.log(theta)) for item in rotations)


def _yarn(dim: int, factor: float, theta: float, ramp: tuple[float, float]) -> Array:
    """What each pair turns by from position to position."""
    inverse = np.asarray(float(theta), np.float64) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    low, high = max(ramp[0], 0), min(ramp[1], dim - 1)
    # The bound keeps a ramp without width from dividing by zero.
    share = np.clip((np.arange(dim // 2, dtype=np.float64) - low) / max(high - low, 0.001), 0, 1)
    mixed: Array = inverse / factor * share + inverse * (1 - share)
    return mixed


def _yarn_size(factor: float, share: float = 1.0) -> float:
    """How much larger attention becomes."""
    return 0.1 * share * math.log(factor) + 1.0 if factor > 1 else 1.0


def rotary_table(
    max_seq: int,
    dim: int,
    theta: float = 10000.0,
    scaling: DictValue | None = None,
    original: int | None = None,
    long: bool = False,
) -> Array:
    """Cosine and sine of every position and pair, with what a `rope_parameters` of Hugging Face says of them.

    The base is an argument, which may differ from the one that is said there. LongRoPE has a table of the original
    length, or with `long` one of all positions, with other factors.
    """
    said = dict(scaling.entries) if scaling is not None else {}
    kind, factor = rope_kind(scaling), float(_real(said, "factor", 1.0))
    begun = original_length(scaling, original, max_seq)
    match kind:
        case "yarn":
            return _yarn_table(max_seq, dim, theta, begun, said)
        case "longrope":
            inverse = np.asarray(theta, np.float64) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
            listed = said["long_factor" if long else "short_factor"]
            stretched = inverse / np.asarray(listed, np.float64)
            factor = float(_real(said, "factor", max_seq / begun))
            raised = math.sqrt(1 + math.log(factor) / math.log(begun)) if factor > 1 else 1.0
            rows = max_seq if long else min(max_seq, begun)
            return _table(stretched, rows, float(_real(said, "attention_factor", raised)))
        case "llama3":
            names = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
            own = {name: float(_real(said, name, value)) for name, value in names.items()}
            return precompute_rope_freqs(
                max_seq, dim, theta, kind, factor, **own, original_max_seq=float(begun)
            )
        case _:
            # Dynamic scaling changes nothing up to the length that the config names, and the table ends there.
            return precompute_rope_freqs(max_seq, dim, theta, kind, factor if kind == "linear" else 1.0)


def _yarn_table(max_seq: int, dim: int, theta: float, original: int, said: Mapping[str, Value]) -> Array:
    """The table of YaRN, with the size of attention that its config says or that follows from its factor."""
    factor = float(_real(said, "factor", max_seq / original))
    size, whole = (float(_real(said, name, 0.0)) for name in ("mscale", "mscale_all_dim"))
    raised = _yarn_size(factor, size) / _yarn_size(factor, whole) if size and whole else _yarn_size(factor)
    betas = float(_real(said, "beta_fast", 32.0)), float(_real(said, "beta_slow", 1.0))
    first, last = _turns_at(betas, dim, theta, original)
    ramp = (first, last) if said.get("truncate") is False else (math.floor(first), math.ceil(last))
    return _table(_yarn(dim, factor, theta, ramp), max_seq, float(_real(said, "attention_factor", raised)))


def _real(said: Mapping[str, Value], name: str, default: Number) -> Number:
    value = said.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def _table(inverse: Array, max_seq: int, factor: float) -> Array:
    # In double precision: near position 100 000 a float32 angle is off by up to 0.004.
    angles = np.outer(np.arange(max_seq, dtype=np.float64), inverse)
    return np.stack([np.cos(angles) * factor, np.sin(angles) * factor], axis=-1)


def sinusoid_table(max_seq: int, dim: int) -> Array:
    """For every position the sines of its angles, then their cosines, `[max_seq, dim]`."""
    inverse = 10000.0 ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    angles = np.outer(np.arange(max_seq, dtype=np.float64), inverse)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def zeros(*shape: int) -> Array:
    """Zeros of a shape."""
    return np.zeros(shape)


def ones(*shape: int) -> Array:
    """Ones of a shape."""
    return np.ones(shape)


def full(shape: tuple[int, ...], value: Number) -> Array:
    """One value everywhere."""
    return np.full(shape, float(value))


def arange(end: int) -> Array:
    """The numbers from 0 to below the end."""
    return np.arange(end, dtype=np.float64)


BUILTINS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        item.__name__: item
        for item in (
            *(precompute_rope_freqs, precompute_yarn_freqs, rotary_table, sinusoid_table),
            *(zeros, ones, full, arange),
        )
    }
)
"""Every function that `constants:` may name."""


def compute_table(built: BuiltConstant) -> Array:
    """The numbers of a constant."""
    return BUILTINS[built.function](*built.positional, **built.named)
