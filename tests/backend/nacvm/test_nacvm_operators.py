"""Every operator of the library gives on the machine what it gives on the reference."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend.nacvm import compile_program
from tests.bridge.test_graph_to_kernels_operators import calls
from tests.support.backend.nacvm.assembling import assemble
from tests.support.bridge.operators.calls import build, by_reference

CLOSE = {"float64": 1e-12, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}


@pytest.mark.parametrize("operator", calls())
def test_the_machine_agrees_with_the_reference(operator: str) -> None:
    model, fed = build(calls()[operator])
    machine = compile_program(assemble(model))
    expected = by_reference(model)(**fed)
    assert machine.inputs == tuple(fed)
    for _ in range(2):
        found = machine(**fed)
        assert found.keys() == expected.keys()
        for name, other in expected.items():
            array, allowed = found[name], CLOSE.get(other.dtype.name, 0.0)
            assert (array.dtype, array.shape) == (other.dtype, other.shape), name
            np.testing.assert_allclose(array, other, rtol=allowed, atol=allowed, err_msg=name)
