"""Files of torch.export: read, and refused without running anything when they are broken or hostile."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lamella
from lamella.backend.reference import compile_model
from lamella.base.limits import Limits
from lamella.graph.nodes import Tensor
from lamella.pipeline.options import Options
from lamella.pipeline.torch.execution import load
from tests.support.bridge.torch_models.archives import Change, rewrite, save_small

PROGRAM, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"
SAMPLES = "data/sample_inputs/model.pt"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "small.pt2"
    save_small(path)
    return path


def code_of(path: Path, limits: Limits | None = None) -> str:
    """The code of the one finding that a file has."""
    with pytest.raises(lamella.LamellaError) as caught:
        load(path, Options(limits=limits or Limits()))
    (found,) = caught.value.findings
    return found.code


def test_a_file_is_the_graph_of_its_module(tmp_path: Path) -> None:
    module = save_small(tmp_path / "small.pt2")
    model = load(tmp_path / "small.pt2", Options())
    assert model.graph.name == "Small"
    assert {item.name for item in model.graph.variables} == {"inner.weight", "inner.bias"}
    x = torch.randn(5, 3)
    found = compile_model(model)(x=x.numpy())["output"]
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-6)


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def test_open_extents_keep_the_names_that_a_file_gives_them(tmp_path: Path) -> None:
    path, batch = tmp_path / "sum.pt2", torch.export.Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}, "y": {0: batch}}
    program = torch.export.export(Sum(), (torch.ones(5, 4), torch.ones(5, 4)), dynamic_shapes=shapes)
    torch.export.save(program, str(path), extra_files={"axes.json": '{"x": {"0": "batch"}}'})
    model = load(path, Options())
    inputs = [item for item in model.graph.inputs if isinstance(item, Tensor)]
    assert [[str(size) for size in item.shape] for item in inputs] == [["batch", "4"]] * 2
    fixed = load(path, Options(shape={"batch": 3})).graph.inputs[0]
    assert isinstance(fixed, Tensor)
    assert fixed.shape == (3, 4)
    for text, wrong in (
        ('{"x": {"1": "width"}}', "'width' names axis 1 of 'x', which is not open"),
        ('{"z": {"0": "n"}}', "which is not open"),
        ('{"x": {"0": 3}}', "does not name axes"),
        ('{"x": {"0": "a b"}}', "does not name axes"),
        ("[" * 100_000, "does not name axes"),
    ):
        torch.export.save(program, str(path), extra_files={"axes.json": text})
        with pytest.raises(lamella.LamellaError, match=wrong):
            load(path, Options())


def test_classes_of_results_need_not_be_loaded(small: Path, tmp_path: Path) -> None:
    def changed(name: str, data: bytes) -> bytes:
        if name != PROGRAM:
            return data
        tree = json.loads(data)
        signature = tree["graph_module"]["module_call_graph"][0]["signature"]
        version, leaf = json.loads(signature["out_spec"])
        inner = {"type": "nowhere.Result", "context": '["logits"]', "children_spec": [leaf]}
        signature["out_spec"] = json.dumps([version, inner])
        return json.dumps(tree).encode()

    rewrite(small, tmp_path / "other.pt2", changed)
    for _ in range(2):
        model = load(tmp_path / "other.pt2", Options())
        assert [item.name for item in model.graph.outputs if isinstance(item, Tensor)] == ["logits"]


class Payload:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def pickled(trace: Path, with_torch: bool) -> bytes:
    if not with_torch:
        return pickle.dumps(Payload(trace))
    stream = io.BytesIO()
    torch.save(((Payload(trace),), {}), stream)
    return stream.getvalue()


def replaced(record: str, old: str, new: str) -> Change:
    """A change of one text in one record."""

    def changed(name: str, data: bytes) -> bytes:
        if name != record:
            return data
        assert old.encode() in data
        return data.replace(old.encode(), new.encode())

    return changed


def attacks(trace: Path) -> dict[str, Change]:
    """Ways to make PyTorch's loader run `os.mkdir(trace)`."""
    call = f"__import__('os').mkdir('{trace}')"
    return {
        "sample inputs": lambda name, data: pickled(trace, with_torch=True) if name == SAMPLES else data,
        "bare pickle": lambda name, data: pickled(trace, with_torch=False) if name == SAMPLES else data,
        "weights": lambda name, data: (
            pickled(trace, with_torch=True)
            if name == "data/weights/weight_0"
            else replaced(WEIGHTS, '"use_pickle": false', '"use_pickle": true')(name, data)
        ),
        "a size": replaced(PROGRAM, "Symbol('s77', positive=True, integer=True)", call),
        "a function": replaced(PROGRAM, "torch.ops.aten.relu.default", "torch.serialization.os.mkdir"),
        "a builtin": replaced(PROGRAM, "torch.ops.aten.relu.default", "_operator.methodcaller"),
        "an object": replaced(WEIGHTS, '"weight_1"', '"opaque_obj_1"'),
    }


@pytest.mark.parametrize("way", sorted(attacks(Path())))
def test_a_hostile_file_is_refused_and_runs_nothing(way: str, small: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    rewrite(small, tmp_path / "other.pt2", attacks(trace)[way])
    assert code_of(tmp_path / "other.pt2") == "SKR385"
    assert not trace.exists()


def test_guards_of_a_file_are_not_run(small: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    def changed(name: str, data: bytes) -> bytes:
        if name != PROGRAM:
            return data
        tree = json.loads(data)
        tree["guards_code"] = [f"__import__('os').mkdir({str(trace)!r}) is None"]
        return json.dumps(tree).encode()

    rewrite(small, tmp_path / "other.pt2", changed)
    load(tmp_path / "other.pt2", Options())
    assert not trace.exists()


def test_files_that_are_none_are_told(tmp_path: Path, small: Path) -> None:
    (tmp_path / "text.pt2").write_text("no archive")
    (tmp_path / "empty.pt2").write_bytes(b"")
    assert code_of(tmp_path / "text.pt2") == "SKR384"
    assert code_of(tmp_path / "empty.pt2") == "SKR384"
    assert code_of(tmp_path / "missing.pt2") == "LAM001"
    assert code_of(tmp_path) == "LAM001"
    rewrite(small, tmp_path / "cut.pt2", lambda name, data: b"" if name == "data/weights/weight_0" else data)
    assert code_of(tmp_path / "cut.pt2") == "SKR384"
    assert code_of(small, Limits(max_data_bytes=1000)) == "LAM001"
    assert code_of(small, Limits(max_file_bytes=1000)) == "SKR384"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.booleans(),
)
def test_mutated_files_give_findings(
    small: Path, tmp_path: Path, places: list[tuple[int, int]], cut: bool
) -> None:
    data = bytearray(small.read_bytes())
    for place, value in places:
        data[place % len(data)] = value
    (tmp_path / "other.pt2").write_bytes(data[: places[0][0] % len(data)] if cut else data)
    with suppress(lamella.LamellaError):
        load(tmp_path / "other.pt2", Options())


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a JSON text."""
    if isinstance(tree, dict | list) and tree:
        for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(item, (*path, key))
    else:
        yield path


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=3),
    value=st.sampled_from([None, 0, -1, 1 << 62, "", "x", "torch.ops.aten.neg.default", [], {}, True]),
)
def test_programs_with_other_values_give_findings(
    small: Path, tmp_path: Path, places: list[int], value: object
) -> None:
    def changed(name: str, data: bytes) -> bytes:
        if name not in (PROGRAM, WEIGHTS):
            return data
        tree = json.loads(data)
        paths = list(leaves(tree))
        for place in places:
            inner: Any = tree
            *above, last = paths[place % len(paths)]
            for key in above:
                inner = inner[key]
            inner[last] = value
        return json.dumps(tree).encode()

    rewrite(small, tmp_path / "other.pt2", changed)
    with suppress(lamella.LamellaError):
        load(tmp_path / "other.pt2", Options())
