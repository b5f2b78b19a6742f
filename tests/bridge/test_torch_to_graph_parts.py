"""Names, numbers, sizes, states and control flow on the road from PyTorch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import lamella
from lamella.backend.reference import compile_model
from lamella.base import dtype
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.graph.model import Model
from lamella.graph.nodes import Branch, Loop, Tensor
from lamella.graph.verify import verify
from tests.support.bridge.torch_models.small_models import Decoder

Pair = namedtuple("Pair", ["left", "right"])


class Giving(nn.Module):
    """Gives what a function makes of its input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def outputs(function: Any) -> list[str]:
    """The names of the results of a module that computes a function."""
    model = lamella.from_torch(Giving(function), torch.ones(2, 3))
    assert not verify(model.graph, model.library)
    return [item.name for item in model.graph.outputs if isinstance(item, Tensor)]


def test_results_are_named_after_the_tree() -> None:
    assert outputs(lambda x: x + 1) == ["output"]
    assert outputs(lambda x: (x + 1, x + 2)) == ["output_0", "output_1"]
    assert outputs(lambda x: [x + 1]) == ["output_0"]
    assert outputs(lambda x: {"b": x + 1, "a": (x, x.sin())}) == ["b", "a_0", "a_1"]
    assert outputs(lambda x: Pair(x + 1, x.cos())) == ["left", "right"]
    assert outputs(lambda x: {"kept": x.sin(), "none": None, "three": 3}) == ["kept"]


def test_results_that_are_inputs_or_twice_the_same_keep_their_names() -> None:
    def twice(x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = x.sin()
        return {"given": x, "first": y, "second": y, "part": x.split(1)[1]}

    model = lamella.from_torch(Giving(twice), torch.ones(2, 3))
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = compile_model(model)(x=value)
    assert list(found) == ["given", "first", "second", "part"]
    np.testing.assert_array_equal(found["given"], value)
    np.testing.assert_allclose(found["second"], np.sin(value), rtol=1e-6)
    np.testing.assert_array_equal(found["part"], value[1:])


def test_variables_have_the_names_and_the_memory_of_the_state_dictionary() -> None:
    module = Decoder()
    model = lamella.from_torch(module, torch.zeros(1, 3, dtype=torch.int64))
    names = {item.name for item in model.graph.variables}
    assert "head.weight" not in names  # it is words.weight
    assert names == set(module.state_dict()) - {"head.weight"} | {"steps"}
    assert model.data is not None
    for name in names - {"steps"}:
        assert np.shares_memory(model.data[name], module.state_dict()[name].numpy())


@pytest.mark.parametrize(("kind", "element"), [(torch.bfloat16, dtype.BF16), (torch.float16, dtype.F16)])
def test_narrow_numbers_are_not_copied(kind: Any, element: dtype.ElementType) -> None:
    module = nn.Linear(3, 2).to(kind)
    model = lamella.from_torch(module, torch.ones(1, 3, dtype=kind))
    (weight,) = (item for item in model.graph.variables if item.name == "weight")
    assert weight.element == element
    assert model.data is not None
    module.weight.data[0, 0] = 1.5
    assert float(model.data["weight"][0, 0]) == 1.5
    assert model.data["weight"].dtype == (ml_dtypes.bfloat16 if element == dtype.BF16 else np.float16)


def test_a_module_in_training_is_exported_for_evaluation_and_left_as_it_was() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3))
    module[0].eval()
    model = lamella.from_torch(module, torch.ones(2, 3))
    assert [item.training for item in module.modules()] == [True, False, True]
    assert not model.graph.updates


class Constants(nn.Module):
    """Tensors of the code, small and large."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(20.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0]) + self.table[:3]


def test_small_constants_stand_in_the_graph_and_large_ones_are_variables() -> None:
    model = lamella.from_torch(Constants(), torch.ones(3))
    assert [item.value for item in model.graph.constants if item.tensor.shape] == [(1.0, 2.0, 3.0)]
    assert [item.name for item in model.graph.variables] == ["table"]
    np.testing.assert_array_equal(compile_model(model)(x=np.ones(3, np.float32))["output"], [1, 3, 5])


class Counter(nn.Module):
    """Counts its calls and keeps a mean in a buffer that does not persist."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.mean.lerp_(x, 0.5)
        return self.mean * self.count


def test_changed_buffers_are_updated_from_call_to_call() -> None:
    model = lamella.from_torch(Counter(), torch.ones(3))
    module, executable = Counter(), compile_model(model)
    assert {item.variable.name for item in model.graph.updates} == {"count", "mean"}
    for value in (1.0, 4.0, -2.0):
        wanted = module(torch.full((3,), value))
        np.testing.assert_allclose(executable(x=np.full(3, value, np.float32))["output"], wanted, rtol=1e-6)


class Mixed(nn.Module):
    """Arguments of all kinds, and modes that a graph does not know."""

    def forward(
        self, parts: dict[str, torch.Tensor], power: int, flag: bool = True, rest: Any = None
    ) -> torch.Tensor:
        with torch.no_grad():
            found = parts["a"] ** power if flag else parts["a"]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            product = found @ parts["b"]
        return product if rest is None else product + rest


def test_arguments_that_are_no_tensors_become_part_of_the_graph() -> None:
    parts = {"a": torch.randn(2, 3), "b": torch.randn(3, 4)}
    model = lamella.from_torch(Mixed(), (parts, 2))
    assert [item.name for item in model.graph.inputs if isinstance(item, Tensor)] == ["parts_a", "parts_b"]
    found = compile_model(model)(parts_a=parts["a"].numpy(), parts_b=parts["b"].numpy())["output"]
    wanted = Mixed()(parts, 2).float().numpy()
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=2e-2, atol=1e-2)


# --- open extents -------------------------------------------------------------------------------------------


def shapes(model: Model) -> dict[str, str]:
    """The shapes of all inputs, as text."""
    found = (item for item in model.graph.inputs if isinstance(item, Tensor))
    return {item.name: ",".join(map(str, item.shape)) for item in found}


class Joined(nn.Module):
    """Two tensors one behind the other, as rows of two."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x, y]).reshape(-1, 2)
        return joined[: (x.shape[0] + 1) // 2] * x.shape[0] + joined.shape[0]


OPEN = {
    "names": {"x": {0: "N"}, "y": {0: "M"}},
    "axes of every tensor": {0: "N"},
    "dimensions": {"x": {0: torch.export.Dim("N", min=3, max=17)}, "y": None},
    "a list": [{0: "N"}, None],
}


@pytest.mark.parametrize("way", OPEN)
def test_extents_are_opened_in_several_ways(way: str) -> None:
    given = (torch.randn(4, 2), torch.randn(6, 2))
    model = lamella.from_torch(Joined(), given, dynamic=OPEN[way])
    assert shapes(model)["x"] == "N,2"
    assert shapes(model)["y"] == {"names": "M,2", "axes of every tensor": "N,2"}.get(way, "6,2")


@pytest.mark.parametrize("size", [3, 4, 9])
def test_arithmetic_of_sizes_is_that_of_the_run(size: int) -> None:
    given = (torch.randn(4, 2), torch.randn(6, 2))
    model = lamella.from_torch(Joined(), given, dynamic={"x": {0: "N"}})
    assert not verify(model.graph, model.library)
    x = torch.randn(size, 2)
    found = compile_model(model)(x=x.numpy(), y=given[1].numpy())["output"]
    np.testing.assert_allclose(found, Joined()(x, given[1]).numpy(), rtol=1e-5)


def test_ranges_come_from_the_export_and_extents_of_programs_have_the_names_of_inputs() -> None:
    range_of = {"x": {0: torch.export.Dim("N", min=3, max=17)}, "y": None}
    given = (torch.randn(4, 2), torch.randn(6, 2))
    program = torch.export.export(Joined(), given, dynamic_shapes=range_of)
    model = torch_to_graph(program)
    assert shapes(model)["x"] == "x_0,2"
    executable = compile_model(model)
    executable(x=np.ones((17, 2), np.float32), y=np.ones((6, 2), np.float32))
    with pytest.raises(lamella.LamellaError, match="17"):
        executable(x=np.ones((18, 2), np.float32), y=np.ones((6, 2), np.float32))


def test_a_size_can_be_a_result() -> None:
    model = lamella.from_torch(Giving(lambda x: (x + 1, x.shape[0] * 2)), torch.ones(4), dynamic={0: "N"})
    assert int(compile_model(model)(x=np.ones(5, np.float32))["output_1"]) == 10


# --- control flow -------------------------------------------------------------------------------------------


class Choice(nn.Module):
    """One of two ways, by the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.cond(x.sum() > 0, lambda y: self.inner(y).sin(), lambda y: y.cos(), (x,))
        return found + 1


@pytest.mark.parametrize("sign", [1, -1])
def test_a_condition_is_a_branch(sign: int) -> None:
    module = Choice()
    model = lamella.from_torch(module, torch.ones(2, 3))
    assert any(isinstance(node, Branch) for node in model.graph.nodes)
    assert not verify(model.graph, model.library)
    x = torch.full((2, 3), 0.5 * sign)
    found = compile_model(model)(x=x.numpy())["output"]
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)


class Repeated(nn.Module):
    """A loop that runs as often as a tensor says."""

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def more(step: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return step < count

        def body(step: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return step + 1, y * 2 + x

        found: tuple[torch.Tensor, ...] = torch._higher_order_ops.while_loop(more, body, (count * 0, x))
        return found


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_loop_runs_as_often_as_its_condition_says(count: int) -> None:
    model = lamella.from_torch(Repeated(), (torch.ones(3), torch.tensor(3)))
    assert any(isinstance(node, Loop) for node in model.graph.nodes)
    assert not verify(model.graph, model.library)
    found = compile_model(model)(x=np.ones(3, np.float32), count=np.array(count))
    assert int(found["output_0"]) == count
    np.testing.assert_allclose(found["output_1"], [2.0 ** (count + 1) - 1] * 3)


def test_draws_that_nobody_reads_are_left_out() -> None:
    class Drawing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            _ = torch.rand_like(x) * 2 > 1  # as masks are drawn that only training applies
            return x + 1

    x = torch.randn(3)
    model = lamella.from_torch(Drawing(), x)
    assert [item.operator for item in model.graph.operations()] == ["aten.add"]
