"""Modules that torch exports, written into files as the public compiler does it, run as torch runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.bridge.nac_to_graph import nac_to_graph
from lamella.bridge.nac_to_graph.weights import store_weight
from lamella.graph.verify import verify
from lamella.lang.nac import parse, write
from lamella.lang.nac.nodes import V1_6, V1_8, File
from tests.support.bridge.nac_compiler import Compiler, Result, Word
from tests.support.judges.aten import torch


class Network(torch.nn.Module):
    """Convolutions with normalisation, pooling, a residual and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.deep = torch.nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.norm(self.stem(image)))
        x = torch.nn.functional.max_pool2d(x + self.deep(x), 2)
        return torch.softmax(self.head(x.mean((2, 3))), -1)


class Attention(torch.nn.Module):
    """Words, a causal mask made of a range, heads by views, a split and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(11, 8)
        self.project = torch.nn.Linear(8, 24)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, ids: Any) -> Any:
        x = self.norm(self.words(ids))
        count = ids.shape[1]
        parts = self.project(x).split(8, -1)
        q, k, v = (part.view(ids.shape[0], count, 2, 4).transpose(1, 2) for part in parts)
        steps = torch.arange(count)
        later = steps[None, :] > steps[:, None]
        scores = (q @ k.transpose(-1, -2) / 2.0).masked_fill(later, -1e9)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(ids.shape[0], count, 8)
        return torch.cat([mixed, 1.0 - torch.nn.functional.gelu(mixed, approximate="tanh")], -1)


IMAGE = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
IDS = torch.tensor([[1, 5, 9, 0], [2, 2, 10, 3]])


class Exported:
    """An exported program while it is written into a file."""

    def __init__(self, module: Any, example: Any, version: str = V1_6, open_axes: Any = None) -> None:
        self.program = torch.export.export(module.eval(), (example,), dynamic_shapes=open_axes)
        self.compiler = Compiler(version)
        self.results: dict[str, Any] = {}

    def file(self, example: Any, notes: Any = None) -> File:
        """The file; only the user's inputs are given, weights lie in it."""
        signature = self.program.graph_signature
        weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and node.name in weights:
                self._weight(node.name, weights[node.name])
            elif node.op == "placeholder":
                self.results[node.name] = self.compiler.input(example.numpy(), "given")
            elif node.op == "call_function":
                self.results[node.name] = self._call(node)
        (output,) = self.program.graph.output_node().args[0]
        return self.compiler.finish(self.results[output.name], notes=notes)

    def _weight(self, name: str, path: str) -> None:
        values = self.program.state_dict[path].detach().numpy()
        stored = store_weight(np.ascontiguousarray(values), len(self.compiler.parameters) + 1)
        assert stored is not None
        self.results[name] = self.compiler.parameter(stored, path)

    def _call(self, node: Any) -> Result:
        name = str(node.target) if isinstance(node.target, torch._ops.OpOverload) else node.target.__name__
        keywords = {key: self._value(item) for key, item in node.kwargs.items()}
        return self.compiler.call(name, [self._value(item) for item in node.args], keywords)

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self.results[value.name]
        if isinstance(value, list | tuple):
            return list(self._values(value))
        words = (torch.dtype, torch.device, torch.layout, torch.memory_format)
        return Word(str(value).removeprefix("torch.")) if isinstance(value, words) else value

    def _values(self, values: Sequence[Any]) -> Iterator[Any]:
        return (self._value(item) for item in values)


@pytest.mark.parametrize("version", [V1_6, V1_8])
@pytest.mark.parametrize(("kind", "example"), [(Network, IMAGE), (Attention, IDS)])
def test_exports_run_as_torch_runs_them(kind: Any, example: Any, version: str) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    with torch.no_grad():
        expected = module(example).numpy()
        file = Exported(module, example, version).file(example)
    if version == V1_6:
        file = parse(write(file), "export.nac").file
    model = nac_to_graph(file).model
    assert not verify(model.graph, model.library)
    actual = compile_model(model)(given=example.numpy())["output"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_open_axes_stay_open() -> None:
    torch.manual_seed(0)
    module = Attention().eval()
    axes = {0: torch.export.Dim("b", max=8), 1: torch.export.Dim("n", max=16)}
    described = [{"name": "given", "dtype": "i64", "shape": ["b", "n"]}]
    notes = {"format": 1, "inputs": described, "extents": {"b": [2, 8], "n": [2, 16]}}
    file = Exported(module, IDS, open_axes=(axes,)).file(IDS, notes)
    program = compile_model(nac_to_graph(file).model)
    for shape in ((2, 4), (3, 7)):
        ids = torch.arange(shape[0] * shape[1]).reshape(shape) % 11
        with torch.no_grad():
            expected = module(ids).numpy()
        np.testing.assert_allclose(program(given=ids.numpy())["output"], expected, rtol=1e-4, atol=1e-5)
