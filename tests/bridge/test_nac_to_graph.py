"""Files as graphs: samples of the public compiler, names of everything, weights that are read when they are needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.reference import compile_model
from lamella.base.dim import Dim, bounds
from lamella.base.dtype import F16, F32, I64
from lamella.bridge.nac_to_graph import InputType, check_translation, nac_to_graph
from lamella.bridge.nac_to_graph.convert_weights import quantise_file
from lamella.bridge.nac_to_graph.notes import read_extent
from lamella.bridge.nac_to_graph.weights import find_weights, store_weight
from lamella.graph.nodes import Graph, Tensor
from lamella.graph.verify import verify
from lamella.lang.nac import nodes as n
from lamella.lang.nac import open_file
from tests.support.bridge.nac_compiler import Compiler
from tests.support.bridge.nac_graphs import assembled, program, translate

SAMPLES = sorted((Path(__file__).parents[3] / "shared" / "samples" / "nac").glob("v1*/*.nac"))
ERRORS = {"v16-mlp-int8c": 7e-3}
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
XY = "%x = input()\n%y = nac.neg:T(%x)\n%z = output(%y)"


@pytest.mark.skipif(not SAMPLES, reason="the folder of samples is not beside the repository")
def test_samples_give_what_torch_computes() -> None:
    for path in SAMPLES:
        x, expected = np.load(path.parent / "input_0.npy"), np.load(path.parent / "torch_0.npy")
        file = open_file(path).file
        found = nac_to_graph(file, find_weights(file, path), {"x": InputType(F32, x.shape)})
        assert not verify(found.model.graph, found.model.library)
        actual = compile_model(found.model)(x=x)["output"]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=ERRORS.get(path.parent.name, 1e-5))


def names(graph: Graph) -> list[str]:
    """What the outputs of a graph are called."""
    return [item.name for item in graph.outputs if isinstance(item, Tensor)]


def with_notes(file: n.File, **notes: Any) -> n.File:
    """The file with notes in its resource."""
    told = json.dumps({"format": 1, **notes}).encode()
    return replace(file, resources=(n.Resource("lamella.json", told),))


def test_notes_tell_what_inputs_and_outputs_are() -> None:
    inputs = [{"name": "x", "dtype": "f32", "shape": [2, "n"], "later": 1}]
    outputs = [{"name": "logits", "dtype": "f32", "shape": [2, "n"]}]
    file = with_notes(program(XY, "x"), graph="Net", inputs=inputs, outputs=outputs, extents={"n": [1, 8]})
    graph = nac_to_graph(file).model.graph
    assert (graph.name, names(graph)) == ("Net", ["logits"])
    (x,) = graph.inputs
    assert isinstance(x, Tensor)
    assert x.shape[0] == 2
    assert isinstance(x.shape[1], Dim)
    assert bounds(x.shape[1]) == (1, 8)
    given_ = nac_to_graph(file, inputs={"x": InputType(F16, (4,))}).model.graph
    assert given_.inputs == (Tensor("x", F16, (4,)),)


def test_symbolic_sizes_are_followed() -> None:
    code = """
        %x = input()
        %s = aten.sym_size.int:Ti(%x, 0)
        %t = mul:Ti(%s, 3)
        %y = nac.view:TT(%x, %t)
        %z = output(%y)
    """
    file = program(code, "x")
    inputs = [{"name": "x", "dtype": "f32", "shape": ["n", 3]}]
    found = nac_to_graph(with_notes(file, inputs=inputs, extents={"n": [1, 64]}))
    assert str(found.results[2]) == "3 * n"
    for count in (1, 5):
        x = np.zeros((count, 3), np.float32)
        assert compile_model(found.model)(x=x)["output"].shape == (3 * count,)


def test_results_without_names_are_numbered() -> None:
    code = XY.replace("output(%y)", "output(%y, %x, %y)")
    graph = translate(code, x=X).model.graph
    assert names(graph) == ["output_0", "output_1", "output_2"]
    assert [item.operator for item in graph.operations()] == ["aten.neg", "math.iden", "math.iden"]
    assert names(translate(XY, x=X).model.graph) == ["output"]


def test_each_instruction_says_what_it_became() -> None:
    code = "%x = input()\n%p = nac.pass:T(%x)\n%a = nac.neg:T(%p)\n%y = nac.add:Tf(%a, 2.5)\n%z = output(%y)"
    found = translate(code, x=X)
    assert [[item.operator for item in step] for step in found.steps] == [
        *([], [], ["aten.neg"], ["aten.add"]),
        [],
    ]
    assert found.results[1] == found.results[0] == found.model.graph.inputs[0]
    assert found.results[3] == found.model.graph.outputs[0]
    assert [item for step in found.steps for item in step] == list(found.model.graph.nodes)


def test_operations_know_their_instructions() -> None:
    file = with_notes(program(XY, "x"), origins={"1": "model.py:7 neg"})
    graph = nac_to_graph(file, inputs={"x": InputType(F32, (2,))}).model.graph
    (origin,) = [item.origin for item in graph.operations()]
    assert origin is not None
    assert origin.words() == ("program.nacs instruction 1 nac.neg", "model.py:7 neg")


def test_a_parameter_is_one_variable_however_often_it_is_loaded() -> None:
    code = ".code\n%a = parameter(w)\n%b = parameter(w)\n%y = nac.add:TT(%a, %b)\n%z = output(%y)"
    data = '.parameters\n1 = w\n.tensors\n1 = float32[2] hex("0000803f00000040")'
    model = nac_to_graph(assembled(f"{code}\n{data}")).model
    assert [item.name for item in model.graph.variables] == ["w"]
    assert compile_model(model)()["output"].tolist() == [2.0, 4.0]


def test_weights_are_read_when_they_are_asked_for() -> None:
    code = ".code\n%a = parameter(w)\n%z = output(%a)\n.parameters\n1 = w\n.tensors\n1 = float32[] zeros(4)"
    file = assembled(code)
    view = memoryview(b"\0\0\0\0")
    model = nac_to_graph(replace(file, tensors=(replace(file.tensors[0], data=view),))).model
    assert model.data is not None
    view.release()
    assert list(model.data) == ["w"]
    with pytest.raises(ValueError, match="released"):
        model.data["w"]


@pytest.mark.parametrize("method", [n.Method.FP16, n.Method.INT8_TENSOR, n.Method.BLOCK_FP8])
def test_quantised_weights_are_floats(method: n.Method) -> None:
    compiler = Compiler()
    stored = store_weight(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), 1)
    assert stored is not None
    file = quantise_file(compiler.finish(compiler.parameter(stored, "w")), method).file
    model = nac_to_graph(file).model
    assert model.graph.variables == (Tensor("w", F32, (2, 3)),)
    found = compile_model(model)()["output"]
    np.testing.assert_allclose(found, np.linspace(-1, 1, 6).reshape(2, 3), atol=1e-2)


@given(st.lists(st.sampled_from([0.5, 1.0, -2.0]), min_size=1, max_size=6))
def test_noted_parameters_are_constants(values: list[float]) -> None:
    compiler = Compiler()
    stored = store_weight(np.array(values, np.float32), 1)
    assert stored is not None
    loaded = compiler.parameter(stored, "constant.1")
    file = compiler.finish(loaded, notes={"format": 1, "constants": {"constant.1": [0]}})
    model = nac_to_graph(file).model
    ((tensor, value),) = [(item.tensor, item.value) for item in model.graph.constants]
    assert not model.graph.variables
    assert value == (values[0] if len(set(values)) == 1 else tuple(values))
    assert (tensor.element, tensor.shape) == (F32, (len(values),))
    assert compile_model(model)()["output"].tolist() == values
    assert not check_translation(file)


def test_lifted_constants_are_numbers_or_inputs() -> None:
    code = "%x = input()\n%c = constant(2.5)\n%y = nac.add:TT(%x, %c)\n%z = output(%y)"
    file = program(code, "x")
    found = nac_to_graph(file, inputs={"x": InputType(F32, (3,))})
    ones = np.ones(3, np.float32)
    assert compile_model(found.model)(x=ones)["output"].tolist() == [3.5, 3.5, 3.5]
    types = {"x": InputType(F32, (3,)), "constant_1": InputType(F32, ())}
    found = nac_to_graph(file, inputs=types)
    fed = {"x": ones, "constant_1": np.array(4, np.float32)}
    assert compile_model(found.model)(**fed)["output"].tolist() == [5.0, 5.0, 5.0]


def test_names_do_not_collide() -> None:
    code = "%x = input()\n%w = input()\n%a = nac.neg:T(%x)\n%y = nac.add:TT(%a, %w)\n%z = output(%y)"
    graph = translate(code, output=X, output_1=X).model.graph
    assert [item.name for item in graph.inputs if isinstance(item, Tensor)] == ["output", "output_1"]
    assert (
        len({item.name for step in graph.operations() for item in step.outputs if isinstance(item, Tensor)})
        == 2
    )


def test_integers_stay_integers() -> None:
    code = "%x = input()\n%y = nac.add:Ti(%x, 1)\n%z = output(%y)"
    (output,) = translate(code, x=np.zeros(2, np.int64)).model.graph.outputs
    assert output == Tensor("output", I64, (2,))


EXTENTS = st.recursive(
    st.sampled_from(["n", "m", "x.shape[0]"]) | st.integers(0, 9).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%", "<<", ">>"]), inner).map(
        lambda item: f"({item[0]} {item[1]} {item[2]})"
    ),
    max_leaves=6,
)


@given(EXTENTS)
def test_extents_are_read_as_they_are_written(text: str) -> None:
    ranges = {"n": (1, 50), "m": (1, 50), "x.shape[0]": (1, 50)}
    try:
        first = read_extent(text, ranges)
    except ArithmeticError:
        return
    written = str(first)
    if not written.startswith("-"):
        assert read_extent(written, ranges) == first


@pytest.mark.parametrize("text", ["", "n +", "(n", "n)", "n $ 2", "* n", "1.5", "(" * 99, "n ? 1 : 2"])
def test_what_is_no_extent_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unexpected|parenthes"):
        read_extent(text, {})
