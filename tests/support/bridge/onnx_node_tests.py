"""ONNX's own tests of operators: what they are, which fail here, and which operators of ours their graphs have."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lamella.bridge.onnx.read import decode_model
from lamella.bridge.onnx_to_graph import graph_for

PAGE = Path(__file__).parents[3] / "docs" / "languages" / "onnx.md"
VERSION = "1.23."
"""The page lists the tests of this version, another one has others."""


@cache
def node_tests() -> dict[str, Any]:
    """The tests by their names; a test that asks for them is skipped where `onnx` is not installed."""
    loader = pytest.importorskip("onnx.backend.test.loader")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes what it expects of overflow and of nothing
        found = loader.load_model_tests(kind="node")
    return {item.name.removeprefix("test_"): item for item in found}


def listed(title: str) -> set[str]:
    """The names in the table below a title of the page."""
    part = PAGE.read_text("utf-8").split(f"\n{title}", 1)[1].split("\n\n", 2)[1]
    return set(re.findall(r"`([\w*]+)`", "".join(line.split("|")[2] for line in part.splitlines()[2:])))


def passing() -> list[str]:
    """The tests that pass, as tests/bridge/test_onnx_nodes.py sees to."""
    return sorted(set(node_tests()) - listed("Not applicable:") - listed("Failing:"))


def as_array(value: Any) -> Any:
    """A value of a test as an array, a list of values as it is."""
    onnx = pytest.importorskip("onnx")
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def operators_of(case: Any) -> set[str]:
    """The operators in the graph of a test; inputs that say shapes are constants of it."""
    model = decode_model(case.model.SerializeToString())
    own = {item.name for item in model.graph.initializers}
    names = [item.name for item in model.graph.inputs if item.name not in own]
    (values, _), *_ = case.data_sets
    contents = {name: as_array(value) for name, value in zip(names, values, strict=False)}
    return {item.operator for item in graph_for(model, contents).graph.operations()}


@cache
def reaching() -> dict[str, list[str]]:
    """For each operator of ours, the passing tests whose graphs have it."""
    found = defaultdict[str, list[str]](list)
    for test in passing():
        for name in operators_of(node_tests()[test]):
            found[name].append(test)
    return dict(found)
