"""Graphs to NAC and back, for the tests of both roads."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import LamellaError
from lamella.base.dim import symbols
from lamella.base.source import Source
from lamella.bridge.graph_to_nac import Writing, Written, canonical, graph_to_nac
from lamella.bridge.nac_to_graph import nac_to_graph
from lamella.graph.model import Model
from lamella.graph.nodes import Single, Tensor
from lamella.graph.rewrite import members
from lamella.lang.nac import File, assemble, check, disassemble, parse, write
from tests.support.graph.running import random_arrays, same


def with_data(model: Model, seed: int = 0) -> Model:
    """The model with small numbers in its variables."""
    return replace(model, data=random_arrays(model.graph.variables, {}, seed))


def read_back(file: File) -> Model:
    """The model of a file, whose findings must be none."""
    translation = nac_to_graph(file)
    assert not translation.findings, "\n".join(map(str, translation.findings))
    return translation.model


def comparable(model: Model) -> Model:
    """The model with one NaN for all: they are never equal but to themselves."""
    constants = tuple(replace(item, value=_one_nan(item.value)) for item in model.graph.constants)
    return replace(model, graph=replace(model.graph, constants=constants))


def _one_nan(value: Single | tuple[Single, ...]) -> Single | tuple[Single, ...]:
    if isinstance(value, tuple):
        return tuple(math.nan if _is_nan(item) else item for item in value)
    return math.nan if _is_nan(value) else value


def _is_nan(value: Single) -> bool:
    return isinstance(value, float) and math.isnan(value)


def check_file(written: Written) -> None:
    """A file is sound, and the same after bytes and after text."""
    assert not written.findings, "\n".join(map(str, written.findings))
    found = check(written.file)
    assert not found, "\n".join(map(str, found))
    image = write(written.file)
    parsed = parse(image)
    assert not parsed.findings
    assert parsed.file == written.file
    assert write(parsed.file) == image
    assembled = assemble(Source("model.nacs", disassemble(written.file)))
    assert not assembled.findings
    assert assembled.file == written.file


def check_trip(model: Model, numbers: bool = True) -> File:
    """A model is what NAC says when it comes back, under both kinds of signatures, and computes the same."""
    filled = with_data(model)
    wanted = comparable(canonical(filled))
    assert comparable(canonical(wanted)) == wanted
    written = graph_to_nac(filled)
    check_file(written)
    assert graph_to_nac(filled).file == written.file
    found = read_back(written.file)
    assert comparable(found) == wanted
    plain = graph_to_nac(filled, Writing(plain_signatures=True)).file
    assert set("".join(item.codes for item in plain.signatures)) <= set("TSifbsc")
    assert comparable(read_back(plain)) == wanted
    assert found.data is not None
    assert {name: (*values.shape, values.dtype) for name, values in found.data.items()} == {
        item.name: (*item.shape, numpy_dtype(item.element)) for item in model.graph.variables
    }
    if numbers:
        compare_runs(filled, found)
    return written.file


def compare_runs(model: Model, other: Model) -> None:
    """Two models compute the same, or both cannot."""
    try:
        wanted = run(model)
    except LamellaError:
        with pytest.raises(LamellaError):
            run(other)
    else:
        same(wanted, run(other))


def run(model: Model) -> dict[str, Array]:
    """What a model computes from random inputs, every extent being 2; what is drawn is always the same."""
    inputs = [item for item in members(model.graph.inputs) if isinstance(item, Tensor)]
    sizes = {found.name: 2 for item in inputs for extent in item.shape for found in symbols(extent)}
    with np.errstate(all="ignore"):
        return compile_model(model)(**random_arrays(inputs, sizes, 1))
