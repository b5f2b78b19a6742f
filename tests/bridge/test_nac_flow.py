"""Branches and convergences go to NAC and come back, and the virtual machine computes what the reference does."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import lamella
from lamella.backend.nacvm import NacMachine, NacProgram, compile_program
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import BOOL, F32
from lamella.bridge.graph_to_nac import graph_to_nac
from lamella.bridge.nac_to_graph import InputType, nac_to_graph
from lamella.bridge.nac_to_graph.weights import read_weight
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members
from lamella.lang.nac import File
from lamella.lang.nac.nodes import CONVERGENCE
from tests.support.bridge.nac_trips import check_trip, with_data
from tests.support.graph.running import random_arrays
from tests.support.graph.texts import graph_text, model_of
from tests.support.strategies.graph import library, models
from tests.support.strategies.graph_flow import flow_models

CHOICES = [np.array(item) for item in (False, True)]


def machine_of(file: File, traced: bool = False, inputs: Mapping[str, InputType] | None = None) -> NacMachine:
    """The virtual machine of a file."""
    found = nac_to_graph(file, inputs=inputs)
    tensors = {item.parameter: item for item in file.tensors}

    def load(parameter: int) -> Array:
        return read_weight(tensors[parameter], file.header.method)

    constants, source = found.model.graph.constants, found.model.library
    program = NacProgram(file, found.steps, found.results, constants, source, load)
    return compile_program(program, traced=traced)


def inputs_of(model: Model, **given: Array) -> dict[str, Array]:
    """Random numbers for a model, but for what is given."""
    inputs = [item for item in members(model.graph.inputs) if isinstance(item, Tensor)]
    return {**random_arrays(inputs, {}, 1), **given}


def compare(model: Model, fed: dict[str, Array]) -> NacMachine:
    """See that a file computes what its model does."""
    machine = machine_of(graph_to_nac(model).file)
    wanted = list(compile_model(model)(**fed).values())
    for one, other in zip(machine(**fed).values(), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    return machine


@settings(max_examples=40)
@given(flow_models())
def test_branches_and_convergences_come_back(model: Model) -> None:
    check_trip(model, numbers=False)


@given(flow_models())
def test_both_ways_compute_what_the_reference_does(model: Model) -> None:
    filled = with_data(model)
    machine = machine_of(graph_to_nac(filled).file)
    judge = compile_model(filled)
    for one, other in product(CHOICES, CHOICES):
        fed = inputs_of(filled, c0=one, c1=other)
        wanted = list(judge(**fed).values())
        found = list(machine(**fed).values())
        for actual, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        assert machine.peak_bytes <= machine.schedule_bytes


@given(models(("unary", "binary", "branch", "constant", "reduce_axes", "reshape"), open_extents=False))
def test_branches_among_other_operators_come_back(model: Model) -> None:
    check_trip(model)


TEXTS = {
    "a condition": "y = if c then math.exp(x) else math.sin(x);",
    "a chain of conditions": "y = if c then math.exp(x) elif d then math.sin(x) else x;",
    "a block that hands on what it is given": "y = if c then x else k;",
    "an outer tensor in both blocks": "a = math.exp(x); y = if c then math.add(a, v) else math.mul(a, v);",
    "an open extent": "y = if c then math.exp(x) else math.sin(x);",
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_come_back(name: str) -> None:
    extent = "n|7" if "open" in name else "4"
    text = graph_text(
        f"x: real[{extent}]; c: bool[]; d: bool[];",
        TEXTS[name],
        f"y: real[{extent.split('|')[0]}]",
        ""
        if "open" in name
        else "@constant { k: real[4] = [1.0, 2.0, 3.0, 4.0]; } @variable { v: real[4]; }",
    )
    check_trip(model_of(text))


def chosen(count: int) -> Model:
    """A branch that hands over many results, of which a graph with one output uses the last."""
    builder = Builder(library(), "G")
    c, x = builder.input("c", BOOL, ()), builder.input("x", F32, (3,))
    found = builder.branch(
        c,
        lambda: [builder.call("math.mul", x, float(number)) for number in range(count)],
        lambda: [builder.call("math.sub", x, float(number)) for number in range(count)],
    )
    return Model(builder.finish(found[-1]), library())


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_block_hands_over_more_results_than_there_are_outputs(count: int) -> None:
    file = check_trip(chosen(count))
    assert b'"branches":{"2":%d}' % count in bytes(file.resources[0].data)
    for choice in CHOICES:
        compare(chosen(count), inputs_of(chosen(count), c=choice))


def test_only_the_chosen_block_runs() -> None:
    """Weights of the other block are not read, and none of its operations is done."""
    builder = Builder(library(), "G")
    c, x = builder.input("c", BOOL, ()), builder.input("x", F32, (3,))
    one, other = (builder.variable(name, F32, (3,)) for name in ("one", "other"))
    (r,) = builder.branch(
        c, lambda: [builder.call("math.add", x, one)], lambda: [builder.call("math.mul", x, other)]
    )
    model = with_data(Model(builder.finish(r), library()))
    file = graph_to_nac(model).file
    names = {item.id: item.name for item in file.parameters}
    machine = machine_of(file, traced=True)
    for choice, wanted in zip(CHOICES, ("other", "one"), strict=True):
        compare(model, inputs_of(model, c=choice))
        machine(**inputs_of(model, c=choice))
        loads = [event.target for event in machine.trace if event.kind == "load"]
        assert [names[file.instructions[index].constants[0]] for index in loads] == [wanted]


def test_what_only_one_merged_tensor_needs_stands_in_its_block() -> None:
    builder = Builder(library(), "G")
    x = builder.input("x", F32, (3,))
    shared = builder.call("math.sin", x)
    first = builder.call("math.exp", shared)
    second = builder.call("math.neg", builder.call("math.abs", shared))
    merged = builder.call("nac.converge", (first, second, shared), threshold=10)
    model = Model(builder.finish(merged), library())
    file = check_trip(model)
    (found,) = (item for item in file.instructions if item.operation == CONVERGENCE)
    assert (found.variant, found.constants) == (10, (2, 3, 1))
    compare(model, inputs_of(model))


def test_branches_deeper_than_blocks_may_be_are_refused() -> None:
    builder = Builder(library(), "G")
    c, x = builder.input("c", BOOL, ()), builder.input("x", F32, (3,))

    def deep(left: int) -> list[Tensor]:
        return [x] if not left else list(builder.branch(c, lambda: deep(left - 1), lambda: [x]))

    model = Model(builder.finish(*deep(64)), library())
    file = graph_to_nac(model).file
    assert nac_to_graph(file).model.graph.nodes
    compare(model, inputs_of(model, c=np.array(True)))
    deeper = Model(builder.finish(*deep(65)), library())
    with pytest.raises(LamellaError) as problem:
        graph_to_nac(deeper)
    assert [item.code for item in problem.value.findings] == ["NAC216"]


class Ways(nn.Module):
    """A branch inside a branch, by the numbers, with weights on one side."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def small(y: torch.Tensor) -> torch.Tensor:
            return torch.cond(y.sum() < -2, lambda z: z.cos(), lambda z: z * 2, (y,))

        return torch.cond(x.sum() > 0, lambda y: self.inner(y).sin(), small, (x,)) + 1


@pytest.mark.parametrize("number", [0.5, -0.25, -3.0])
def test_conditions_of_torch_run_from_a_file(number: float, tmp_path: Path) -> None:
    module = Ways()
    lamella.save(lamella.from_torch(module, torch.ones(2, 3)), tmp_path / "ways.nac")
    run = lamella.compile(lamella.load(tmp_path / "ways.nac"))
    x = torch.full((2, 3), number)
    (found,) = run(x=x.numpy()).values()
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
