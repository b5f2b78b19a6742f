"""The inputs of a call: given in order or by name, else drawn, else missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.records import dataclass

SHOWN = 12
"""Inputs that a message lists."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a call drew from the seed: inputs by name with their types, and how many weights of how many."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    weights: int = 0
    variables: int = 0

    def line(self, seed: int) -> str:
        """The same in one line; empty where nothing was drawn."""
        parts = [f"{printable(name)} {kind}" for name, kind in self.inputs.items()]
        if len(parts) > SHOWN:
            parts[SHOWN:] = [f"and {len(parts) - SHOWN} more"]
        if self.weights:
            count = f"{self.weights} of {self.variables}" if self.weights < self.variables else "all"
            parts.append(f"weights ({count})")
        return f"random (seed {seed}): {', '.join(parts)}" if parts else ""

    def to_json(self, seed: int) -> dict[str, object]:
        """The same as data."""
        return {"seed": seed, "inputs": dict(self.inputs), "weights": self.weights}


def type_of(array: Array) -> str:
    """The type and the shape of an array, as `float32[2,8]`."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def types_of(drawn: Mapping[str, Array | Sequence[Array] | None]) -> dict[str, str]:
    """The types of arrays by name; several under one name are described by the first and their number."""
    found: dict[str, str] = {}
    for name, item in drawn.items():
        if isinstance(item, Sequence):
            found[name] = f"{type_of(item[0])} × {len(item)}" if item else "nothing"
        elif item is not None:
            found[name] = type_of(item)
    return found


def refuse_missing(missing: Mapping[str, str]) -> None:
    """InputError that names each input that is missing with its type; nothing where none is."""
    if not missing:
        return
    parts = [f"'{printable(name)}' ({kind})" for name, kind in missing.items()]
    if len(parts) > SHOWN:
        parts[SHOWN:] = [f"{len(parts) - SHOWN} more"]
    are = "is" if len(missing) == 1 else "are"
    raise InputError(
        f"input{'s' * (len(missing) > 1)} {', '.join(parts)} {are} not given",
        hint="give every input by name, or compile with seed=N or random=True to draw those that are left out",
    )


def name_inputs(
    names: Sequence[str], arrays: Sequence[npt.ArrayLike], inputs: dict[str, npt.ArrayLike]
) -> dict[str, npt.ArrayLike]:
    """The inputs of a call by name: those that are given in order, and those that are named."""
    if not arrays:
        return inputs
    if len(arrays) > len(names):
        hint = f"inputs in order: {', '.join(names) or 'none'}"
        raise InputError(f"{len(arrays)} inputs are given in order, and there are {len(names)}", hint=hint)
    found = dict(zip(names, arrays, strict=False))
    twice = next((name for name in inputs if name in found), None)
    if twice is not None:
        raise InputError(f"input '{twice[:80]}' is given twice, in order and by name")
    return {**found, **inputs}
