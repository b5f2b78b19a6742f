"""Whole graphs by kernels: random ones, with states, branches and loops, agree with the reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.executor import GraphExecutable
from lamella.backend.executor.kernels import compile_graph
from lamella.backend.interpreter import compile_program as interpret
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.source import Source
from lamella.bridge.graph_to_kernels import flatten, graph_to_kernels
from lamella.graph.model import Model
from lamella.graph.rewrite import members
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.nodes import Program
from tests.support.bridge.launch_lists import compile_lists
from tests.support.graph.running import random_arrays, same
from tests.support.graph.texts import small
from tests.support.strategies.graph import models

EXTENTS = st.integers(1, 4).map(lambda size: {"n": size})


def checked(program: Program) -> Program:
    """A program that is right, says nothing worse than a note, and is the same when it is read again."""
    assert [item for item in check(program) if item.severity != "note"] == []
    if not program.functions:
        return program
    text = write(program)
    again, findings = parse(Source("again.tensor", text))
    assert not findings
    assert write(again) == text
    return again


def run_twice(executable: GraphExecutable, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs and state after two runs; the findings of a run that has no value."""
    try:
        executable(**inputs)
        found = dict(executable(**inputs))
    except LamellaError as error:
        return {"findings": np.asarray(str(error))}
    return {**found, **{f"state of {name}": np.asarray(item) for name, item in executable.state.items()}}


def judge(model: Model, extents: Mapping[str, int], machine: bool) -> None:
    """A graph computes the same on the reference and by its kernels, which are sound."""
    data = random_arrays(model.graph.variables, {}, 1)
    model = Model(model.graph, model.library, data)
    inputs = random_arrays(list(members(model.graph.inputs)), extents, 0)
    kernels = graph_to_kernels(model)
    program = checked(kernels.program)
    run = compile_lists(kernels) if machine else compile_graph(kernels, interpret(program).call)
    found = run_twice(run, inputs)
    same(found, run_twice(compile_model(model), inputs), exact=False)


@given(model=models(), extents=EXTENTS)
def test_random_graphs_as_machine_code(model: Model, extents: dict[str, int]) -> None:
    judge(model, extents, machine=True)


@given(model=models(open_extents=False))
def test_random_graphs_in_the_interpreter(model: Model) -> None:
    judge(model, {}, machine=False)


def test_equal_operations_lie_as_what_each_of_them_reads() -> None:
    model = small(
        "x: real[1, 16, 8, 8]; z: real[1, 16, 8, 8]; w: real[16, 16, 3, 3];",
        "c = nn.conv{padding=[1, 1, 1, 1]}(x, w); a = math.exp(c); b = math.exp(z); d = math.exp(a);"
        " e = math.exp(b); y = math.sub(d, e);",
    )
    layouts = graph_to_kernels(flatten(model)).layouts
    assert layouts["c"] == layouts["a"] == layouts["d"]
    assert not {"b", "e"} & layouts.keys()
