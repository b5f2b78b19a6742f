"""Gradients of Module DSL texts for tests: computed on the reference, and by torch from the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from textwrap import dedent

import numpy as np
import numpy.typing as npt
import torch

from lamella.backend.reference import compile_model
from lamella.base.dtype import F64
from lamella.bridge.module_to_graph import CompilationSettings, graph_name
from lamella.bridge.module_to_graph.backward import Differentiated, differentiate
from lamella.bridge.module_to_graph.constant_tables import compute_table
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate import Instance, Value
from tests.support.lang.module.instances import built

Array = npt.NDArray[np.float64]
Tensors = Mapping[str, torch.Tensor]
Judge = Callable[[Tensors, Tensors], "torch.Tensor | tuple[torch.Tensor, ...]"]
"""Outputs from inputs and weights, each by name."""


@dataclass(frozen=True, slots=True)
class Run:
    """The numbers that went in, and what came out."""

    found: Differentiated
    inputs: dict[str, npt.NDArray[np.generic]]
    weights: dict[str, Array]
    seeds: dict[str, Array]
    results: dict[str, Array]

    @property
    def gradients(self) -> dict[str, Array]:
        """All gradients by what they are of."""
        names = {**self.found.input_gradients, **self.found.gradients}
        return {graph_name(path): self.results[output] for path, output in names.items()}


def differentiated(text: str, name: str = "M", **config: Value) -> Differentiated:
    """A text with its gradients, which has nothing wrong."""
    found = differentiate(built(dedent(text), name, **config), CompilationSettings(element=F64))
    assert found.findings == (), "\n".join(map(str, found.findings))
    return found


def run(found: Differentiated, inputs: Mapping[str, npt.ArrayLike], seed: int = 3) -> Run:
    """Random weights, random gradients of the outputs, and what they give."""
    assert found.model is not None
    rng = np.random.default_rng(seed)
    executable = compile_model(found.model, dtype="f64")
    weights: dict[str, Array] = {}
    for weight in found.compiled.weights:
        weights[graph_name(weight.path)] = array = rng.normal(size=weight.slot.dims) * 0.7
        executable.state[weight.tensor.name] = array
    for name, constant in found.compiled.constants.items():
        executable.state[name] = compute_table(constant)
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    shapes = executable_shapes(found, arrays)
    seeds = {name: rng.normal(size=shapes[item]) for name, item in found.seeds.items()}
    given = {found.seeds[name]: array for name, array in seeds.items()}
    return Run(found, arrays, weights, seeds, executable(**arrays, **given))


def executable_shapes(
    found: Differentiated, arrays: Mapping[str, npt.NDArray[np.generic]]
) -> dict[str, tuple[int, ...]]:
    """The shapes of all inputs, their open dimensions as large as those of the arrays."""
    assert found.model is not None
    inputs = {item.name: item for item in found.model.graph.inputs if isinstance(item, Tensor)}
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        for extent, size in zip(inputs[name].shape, array.shape, strict=True):
            sizes[str(extent)] = size
    return {
        name: tuple(item if isinstance(item, int) else eval(str(item), {}, sizes) for item in tensor.shape)
        for name, tensor in inputs.items()
    }


def compare(ours: Run, judge: Judge, tolerance: float = 1e-6) -> None:
    """Our gradients and outputs are those of torch."""
    inputs = {name: _leaf(array) for name, array in ours.inputs.items()}
    weights = {name: _leaf(array) for name, array in ours.weights.items()}
    outputs = judge(inputs, weights)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    total = torch.zeros((), dtype=torch.float64)
    for output, (name, array) in zip(outputs, ours.seeds.items(), strict=True):
        np.testing.assert_allclose(
            ours.results[name], output.detach().numpy(), rtol=tolerance, atol=tolerance
        )
        total = total + (output * torch.tensor(array)).sum()
    total.backward()
    assert ours.gradients
    for name, found in ours.gradients.items():
        leaf = inputs.get(name, weights.get(name))
        assert leaf is not None
        wanted = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        np.testing.assert_allclose(found, wanted.numpy(), rtol=tolerance, atol=tolerance, err_msg=name)


def _leaf(array: npt.NDArray[np.generic]) -> torch.Tensor:
    tensor = torch.tensor(array)
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def check(text: str, inputs: Mapping[str, npt.ArrayLike], judge: Judge, **config: Value) -> Run:
    """Compare the gradients of a text with those of torch."""
    ours = run(differentiated(text, "M", **config), inputs)
    compare(ours, judge)
    return ours


def instance_of(text: str, name: str = "M", **config: Value) -> Instance:
    """An instance of a text."""
    return built(dedent(text), name, **config)
