"""Running models with the reference, to compare what they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import substitute
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Operation, Pack, Tensor
from lamella.graph.rewrite import members, results_of


def random_arrays(
    tensors: Sequence[Tensor | Pack], extents: Mapping[str, int], seed: int
) -> dict[str, Array]:
    """Small numbers of every sign for tensors, whole ones among them."""
    source = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for tensor in tensors:
        shape = [int(str(substitute(extent, extents))) for extent in tensor.shape]
        values = np.asarray(np.round(source.normal(size=shape) * 4) / 2)
        found[tensor.name] = values.astype(numpy_dtype(tensor.element))
    return found


def run(model: Model, extents: Mapping[str, int], seed: int = 0) -> dict[str, Array]:
    """Outputs and the state after two runs on random inputs."""
    data = random_arrays(model.graph.variables, {}, seed + 1)
    executable = compile_model(Model(model.graph, model.library, data))
    inputs = random_arrays(list(members(model.graph.inputs)), extents, seed)
    executable(**inputs)
    outputs = executable(**inputs)
    state = {f"state of {name}": np.asarray(value) for name, value in executable.state.items()}
    return {**outputs, **state}


def evaluate(model: Model, operation: Operation, arrays: Mapping[str, Array]) -> list[Array]:
    """One operation run as a graph of its own."""
    inputs = tuple(dict.fromkeys(members(operation.inputs)))
    outputs = tuple(item for item in results_of(operation) if isinstance(item, Tensor))
    read = tuple(item for item in inputs if isinstance(item, Tensor))
    executable = compile_model(Model(Graph("once", read, outputs, (operation,)), model.library))
    found = executable(**arrays)
    return [found[item.name] for item in outputs]


def same(left: Mapping[str, Array], right: Mapping[str, Array], exact: bool = True) -> None:
    """Two runs agree: bit for bit but for the payload of NaN, or within rounding."""
    assert left.keys() == right.keys()
    for name, values in left.items():
        other = right[name]
        assert (values.dtype, values.shape) == (other.dtype, other.shape), name
        if exact or values.dtype.kind != "f":
            np.testing.assert_array_equal(values, other, name)
            if values.dtype.kind == "f":
                np.testing.assert_array_equal(np.signbit(values), np.signbit(other), name)
        else:
            tolerance = 1e-2 if values.dtype.itemsize == 2 else 1e-4
            np.testing.assert_allclose(values, other, tolerance, tolerance, err_msg=name)
