"""Calls of operators with drawn shapes, attributes and numbers, and what judges their gradients: differences and torch.

A call that a test lists is drawn anew: extents that are equal stay equal, indices stay inside, real attributes move a
little. What an operator then refuses is drawn again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Found
from lamella.base.source import Source
from lamella.graph.gradient import MODULE, differentiate
from lamella.graph.model import Model
from lamella.graph.nodes import tensors
from lamella.lang.skriptnd import parse, write
from lamella.ops.fault import Fault
from tests.support.bridge.operators.calls import Invocation, Told, build
from tests.support.judges.registry import Given

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

STEPS = (1e-6, 1e-5, 3e-7)
"""How far inputs are moved: where a step meets a kink or rounding, another one does not."""
TOLERANCE = 1e-6
SOME = 4
"""Elements of each input that are moved."""
LARGEST = 6
LEAST = {"onnx.mean_variance_norm": 2}
"""The least extent, where one element alone has no derivative: the root of a variance of 0."""
TRIES = 10
LONG = 1 << 12
"""Elements beyond which a drawn tensor costs too much."""
REFUSED = (Found, Fault, LamellaError, ValueError, AssertionError, ZeroDivisionError)


# --- drawing ----------------------------------------------------------------------------------------------------


def draw_call(item: Invocation, random: np.random.Generator) -> Invocation:
    """A call with other extents and attributes that an operator may take, or may not."""
    extents = {int(size) for told in _flat(item.inputs) for size in _shape(told)}
    least = LEAST.get(item.operator, 1)
    drawn = {
        size: int(random.integers(least, LARGEST + 1)) for size in sorted(extents) if random.random() < 0.7
    }
    told = random.random() < 0.5  # attributes that are extents change with them, or are something else

    def attribute(value: Given) -> Given:
        if isinstance(value, tuple):
            return tuple(attribute(one) for one in value)  # type: ignore[misc]
        if isinstance(value, float) and 1e-3 < abs(value) < 1e3 and value != int(value):
            return float(value * random.uniform(0.8, 1.25))
        is_extent = isinstance(value, int) and not isinstance(value, bool) and value > 1
        return drawn.get(value, value) if told and is_extent and isinstance(value, int) else value

    inputs = tuple(
        [_redrawn(one, drawn) for one in part] if isinstance(part, list) else _redrawn(part, drawn)
        for part in item.inputs
    )
    return replace(item, inputs=inputs, attributes={k: attribute(v) for k, v in item.attributes.items()})


def _flat(inputs: Sequence[Told | list[Told]]) -> Iterator[Told]:
    for item in inputs:
        yield from item if isinstance(item, list) else (item,)


def _shape(told: Told) -> list[str]:
    found = re.match(r"\w+((?: \d+(?![\d.]*\.\.))*)", told) if isinstance(told, str) else None
    return found[1].split() if found else []


def _redrawn(told: Told, drawn: Mapping[int, int]) -> Told:
    """A tensor of other extents in 64 bits; the last index into an extent stays the last one."""
    if not isinstance(told, str):
        return told
    element, ends = told.split()[0], re.search(r" (-?[\d.]+?)\.\.(-?[\d.]+)$", told)
    shape = [str(drawn.get(int(size), int(size))) for size in _shape(told)]
    span = ends[0].strip() if ends else ""
    if ends and element.startswith("i") and ends[1] == "0" and float(ends[2]) >= 1:
        size = int(float(ends[2])) + 1
        span = f"0..{drawn.get(size, size) - 1}"
    return " ".join([element, *shape, *([span] if span else [])])


def real_names(model: Model) -> list[str]:
    """The inputs of reals."""
    return [item.name for given in model.graph.inputs for item in tensors(given) if item.element.is_float]


class DrawnCall:
    """A call with numbers, in 64 bits, and what comes back to its outputs."""

    def __init__(
        self, item: Invocation, random: np.random.Generator | None = None, origin: Invocation | None = None
    ) -> None:
        self.item, self.origin = item, origin or item
        self.model, fed = build([item])
        self.fed = {name: self._number(array, random) for name, array in fed.items()}
        if any(array.size > LONG for array in self.fed.values()):
            raise ValueError("it is too large")
        self.run = compile_model(self.model, dtype="f64")
        self.outputs = dict(self.run(**self.fed))
        if not all(np.isfinite(array).all() for array in self.outputs.values() if array.dtype.kind == "f"):
            raise ValueError("a number is not finite")
        seeds = np.random.default_rng(0) if random is None else random
        self.seeds = {
            name: seeds.normal(size=array.shape)
            for name, array in self.outputs.items()
            if array.dtype.kind == "f"
        }
        self.names = real_names(self.model)

    @staticmethod
    def _number(array: Array, random: np.random.Generator | None) -> Array:
        if array.dtype.kind != "f":
            return array
        if random is None or not array.size:
            return array.astype(np.float64, "C")
        return random.uniform(float(array.min()), float(array.max()), array.shape)

    @property
    def is_judged(self) -> bool:
        """Whether there is a gradient to judge."""
        return bool(self.names and any(array.size for array in self.seeds.values()))

    def gradients(self) -> dict[str, Array]:
        """The gradients of all real inputs; their text is read back on the way."""
        back = differentiate(self.model, self.names)
        made = back.library.own_modules()[MODULE]
        assert parse(Source("gradient", write(made))).document == made
        known = {item.name for given in back.graph.inputs for item in tensors(given)}
        given = {f"d_{name}": seed for name, seed in self.seeds.items() if f"d_{name}" in known}
        found = compile_model(back, dtype="f64")(**self.fed, **given)
        return dict(zip(self.names, found.values(), strict=True))

    def judge_by_differences(self, found: Mapping[str, Array], random: np.random.Generator) -> None:
        """See that gradients are the limit of differences, at some elements of each input."""
        for name in self.names:
            size = self.fed[name].size
            for place in random.choice(size, min(SOME, size), replace=False):
                got = float(found[name].reshape(-1)[place])
                tried = []
                for step in STEPS:
                    tried.append(self._slope(name, place, step))
                    if abs(got - tried[-1]) <= TOLERANCE * (1 + abs(got)):
                        break
                else:
                    raise AssertionError((str(self.item), name, int(place), got, tried))

    def _slope(self, name: str, place: int, step: float) -> float:
        ends = []
        for move in (step, -step):
            moved = self.fed[name].copy()
            moved.reshape(-1)[place] += move
            made = self.run(**{**self.fed, name: moved})
            ends.append(sum(float((seed * made[output]).sum()) for output, seed in self.seeds.items()))
        return (ends[0] - ends[1]) / (2 * step)

    def judge_by_torch(self, found: Mapping[str, Array], function: Callable[..., Any]) -> None:
        """See that gradients are those that torch finds for its own function."""
        leaves = {
            name: torch.tensor(array, requires_grad=array.dtype.kind == "f")
            for name, array in self.fed.items()
        }
        attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in self.item.attributes.items()}
        made = function(*_arguments(self.item, leaves), **attributes)
        results = made if isinstance(made, tuple | list) else (made,)
        total = torch.zeros((), dtype=torch.float64)
        for result, (name, output) in zip(results, self.outputs.items(), strict=False):
            assert tuple(result.shape) == output.shape, (str(self.item), result.shape, output.shape)
            if name in self.seeds and result.requires_grad:
                total = total + (result * torch.tensor(self.seeds[name])).sum()
        wanted = [leaves[name] for name in self.names]
        theirs = (
            torch.autograd.grad(total, wanted, allow_unused=True)
            if total.requires_grad
            else [None] * len(wanted)
        )
        for name, other in zip(self.names, theirs, strict=True):
            expected = np.zeros(self.fed[name].shape) if other is None else other.numpy()
            np.testing.assert_allclose(
                found[name], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{self.item} {name}"
            )


def _arguments(item: Invocation, leaves: Mapping[str, Any]) -> list[Any]:
    """The operands of a call as torch takes them."""
    found: list[Any] = []
    for place, told in enumerate(item.inputs):
        if isinstance(told, list):
            found.append([leaves[f"x0_{place}_{number}"] for number in range(len(told))])
        else:
            found.append(leaves[f"x0_{place}"] if isinstance(told, str) else told)
    return found


def drawn_call(items: Sequence[Invocation], seed: int) -> DrawnCall:
    """A drawn call that an operator takes, of finite numbers; the listed one where none was found."""
    random = np.random.default_rng(seed)
    item = items[int(random.integers(len(items)))]
    for number in range(TRIES + 1):
        try:
            return DrawnCall(draw_call(item, random) if number < TRIES else item, random, item)
        except REFUSED:
            continue
    return DrawnCall(item)
