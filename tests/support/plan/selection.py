"""Graphs on the simulated NPU by their plans, beside the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, element_type_of
from lamella.graph.build import Builder, Given
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Tensor
from lamella.ops.library import Library
from lamella.pipeline.nem.lowering import LoweredPlan, PlanStage, from_graph
from lamella.pipeline.nem.stages import executable
from lamella.pipeline.options import Options

LIBRARY = Library()
TOLERANCE = 2e-2
"""Of f16 beside f32, in parts of the largest number."""


@dataclass(slots=True)
class Drawing:
    """A graph under construction, with numbers from a seed for its variables."""

    seed: int
    builder: Builder = field(init=False)
    random: np.random.Generator = field(init=False)
    data: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.builder = Builder(LIBRARY, "drawn")
        self.random = np.random.default_rng(self.seed)

    def weight(self, array: Array, name: str = "w") -> Tensor:
        """A variable that holds an array."""
        element = element_type_of(array.dtype)
        assert element is not None
        found = self.builder.variable(name, element, array.shape)
        self.data[found.name] = array
        return found

    def real(self, *shape: int) -> Tensor:
        """A variable of small real numbers."""
        return self.weight((self.random.standard_normal(shape) / 4).astype(np.float32))

    def codes(self, *shape: int, bits: int = 8) -> Tensor:
        """A variable of codes."""
        half = 1 << (bits - 1)
        return self.weight(self.random.integers(-half, half, shape).astype(np.int8))

    def call(self, operator: str, *inputs: Given, **attributes: Any) -> Tensor:
        """An operation of one result; attributes are whatever the operator takes."""
        return self.builder.call(operator, *inputs, **attributes)

    def call_all(self, operator: str, *inputs: Given, **attributes: Any) -> tuple[Argument, ...]:
        """An operation of several results."""
        return self.builder.call_all(operator, *inputs, **attributes)

    def finish(self, *outputs: Tensor) -> Model:
        """The model."""
        return Model(self.builder.finish(*outputs), LIBRARY, self.data)


def plans_of(model: Model, device: str | None = "npm_lite", after: str | None = "select") -> LoweredPlan:
    """The plans of a model: the selected one, and without `after` the tiled one."""
    return from_graph(model, Path(), Options(device=device, after=after))


def run_stage(stage: PlanStage, model: Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What a plan gives for the inputs of its model."""
    plan = executable(stage.program, stage.numbers, model.graph, Options(device="npm_lite"))
    plan.draws = False
    return plan(**inputs)


def draw_inputs(model: Model, seed: int = 0) -> dict[str, Array]:
    """Inputs from a seed."""
    return compile_model(model, seed=seed).draw_inputs()


def assert_equal(
    model: Model, device: str | None = "npm_lite", tiled: bool = False, seed: int = 0
) -> LoweredPlan:
    """The plans of a model of codes give its numbers, bit by bit."""
    found = plans_of(model, device, None if tiled else "select")
    inputs = draw_inputs(model, seed)
    wanted = compile_model(model)(**inputs)
    for stage in found.stages:
        given = run_stage(stage, model, inputs)
        for name, array in wanted.items():
            np.testing.assert_array_equal(given[name], array, err_msg=f"{stage.name}: {name}")
    return found


def assert_close(
    model: Model,
    device: str | None = "npm_lite",
    tiled: bool = False,
    inputs: Mapping[str, Array] | None = None,
) -> LoweredPlan:
    """The plans of a model of real numbers give its numbers as f16 can; a tiled one those of the selected one."""
    found = plans_of(model, device, None if tiled else "select")
    inputs = draw_inputs(model) if inputs is None else inputs
    wanted = compile_model(model)(**inputs)
    given = [run_stage(stage, model, inputs) for stage in found.stages]
    for name, array in wanted.items():
        assert given[0][name].shape == array.shape, name
        scale = max(float(np.abs(array[np.isfinite(array)]).max(initial=0.0)), 1e-3)
        np.testing.assert_allclose(given[0][name], array, rtol=0, atol=TOLERANCE * scale, err_msg=name)
        for other in given[1:]:
            np.testing.assert_array_equal(other[name], given[0][name], err_msg=f"tiled {name}")
    return found
