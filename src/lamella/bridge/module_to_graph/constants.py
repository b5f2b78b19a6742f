"""The shapes of `constants:`; their numbers are computed where they are needed (`tables`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType

from lamella.base.limits import DEFAULT
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import BuiltConstant, Value
from lamella.lang.module.rules.constants import KIND, OUT_OF_RANGE

LLAMA3 = frozenset(("low_freq_factor", "high_freq_factor", "original_max_seq"))
SCALINGS = ("default", "linear", "llama3")
MOST = DEFAULT.max_total_bytes // 8
"""Elements of one constant."""


def shape_of(name: str, built: BuiltConstant) -> tuple[int, ...]:
    """The shape of a constant; a Problem says what is wrong with its arguments."""
    require_call(name, built)
    try:
        shape = SHAPES[built.function](*built.positional, **built.named)
    except (TypeError, ValueError):
        shape = (-1,)
    extents = [item for item in shape if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
    if len(extents) != len(shape):
        raise _wrong(name, built)
    count = math.prod(extents)
    if count > MOST:
        raise Problem(OUT_OF_RANGE.at(built.span, what=f"the size of '{name}'", found=count, repair=""))
    return tuple(extents)


def require_call(name: str, built: BuiltConstant) -> None:
    """A Problem says that a function does not take so many arguments, or none of a name or kind."""
    try:
        signature(SHAPES[built.function]).bind(*built.positional, **built.named)
        SHAPES[built.function](*built.positional, **built.named)
    except ValueError:
        return
    except TypeError:
        raise _wrong(name, built) from None


def _wrong(name: str, built: BuiltConstant) -> Problem:
    found = f"'{built.function}' of values that it does not take"
    wanted = f"{built.function}({_taken(built.function)})"
    return Problem(KIND.at(built.span, what=f"'{name}'", found=found, wanted=wanted, repair=_HINT))


def _taken(function: str) -> str:
    """What a function takes, as its text would name it."""
    items = signature(SHAPES[function]).parameters.values()
    return ", ".join(
        str(item).replace(": 'Value'", "").replace(": Value", "").replace(" ", "") for item in items
    )


_HINT = "sizes are whole numbers of 0 or more, dim is even, the other numbers are positive"


def _rope(
    max_seq: Value,
    dim: Value,
    theta: Value = 10000.0,
    scaling: Value = "default",
    factor: Value = 1.0,
    **llama3: Value,
) -> tuple[Value, ...]:
    if not llama3.keys() <= LLAMA3:
        raise TypeError(f"{', '.join(llama3.keys() - LLAMA3)}")
    numbers = (theta, factor, *llama3.values())
    return _angles(max_seq, dim, numbers) if scaling in SCALINGS else (-1,)


def _yarn(
    max_seq: Value,
    dim: Value,
    scale_factor: Value,
    theta: Value = 10000.0,
    *,
    original_max_seq: Value = 4096,
    beta_fast: Value = 32.0,
    beta_slow: Value = 1.0,
) -> tuple[Value, ...]:
    return _angles(max_seq, dim, (scale_factor, theta, original_max_seq, beta_fast, beta_slow))


def _angles(max_seq: Value, dim: Value, numbers: tuple[Value, ...]) -> tuple[Value, ...]:
    """One cosine and one sine for each position and pair; every number must be positive."""
    sound = all(isinstance(item, int | float) and item > 0 for item in numbers)
    half = dim // 2 if sound and isinstance(dim, int) and dim % 2 == 0 else -1
    return (max_seq, half, 2)


def _listed(*shape: Value) -> tuple[Value, ...]:
    return shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape


def _filled(shape: Value, value: Value) -> tuple[Value, ...]:
    return shape if isinstance(shape, tuple) else (shape,)


def _counted(end: Value) -> tuple[Value, ...]:
    return (end,)


SHAPES: Mapping[str, Callable[..., tuple[Value, ...]]] = MappingProxyType(
    {
        "precompute_rope_freqs": _rope,
        "precompute_yarn_freqs": _yarn,
        "zeros": _listed,
        "ones": _listed,
        "full": _filled,
        "arange": _counted,
    }
)
"""For each function that `constants:` may name, the shape of what it gives."""
