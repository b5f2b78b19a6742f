"""Codes of 4 bits as integers of 8, and reals of 8 as bf16: the same numbers, and no type that NAC lacks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lamella
from lamella.backend.executor import GraphExecutable
from lamella.base.dtype import BF16, I4
from lamella.graph.passes.widen_codes import widen_codes
from tests.support.graph.texts import small

NUMBERS = ", ".join(str(item / 4 - 1.5) for item in range(16))


def test_tables_rows_and_casts_read_wider_codes() -> None:
    model = small(
        "i: int[2];",
        f"a = quant.look_up{{numbers=[{NUMBERS}]}}(q); b = layout.cast<real>(p);"
        "r = layout.gather{axis=0}(p, i); c = layout.cast<real>(r);",
        "a: real[3, 4]; b: real[5, 2]; c: real[2, 2]",
        "@variable { q: i4[3, 4]; p: i4[5, 2]; }",
    )
    wide = widen_codes(model)
    assert not any(item.element == I4 for item in wide.graph.variables)
    random = np.random.default_rng(0)
    codes = {name: random.integers(-8, 8, shape) for name, shape in (("q", (3, 4)), ("p", (5, 2)))}
    found = []
    for one, kind in ((model, ml_dtypes.int4), (wide, np.int8)):
        run = lamella.compile(one, backend="reference")
        assert isinstance(run, GraphExecutable)
        run.state.update({name: item.astype(kind) for name, item in codes.items()})
        found.append(run(i=np.array([4, 1])))
    np.testing.assert_array_equal(found[0]["a"], codes["q"] / 4 + 0.5)
    for name in "abc":
        np.testing.assert_array_equal(found[0][name], found[1][name])


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_reals_of_8_bits_are_those_of_bf16(kind: Any) -> None:
    name = {ml_dtypes.float8_e4m3fn: "f8e4m3", ml_dtypes.float8_e5m2: "f8e5m2"}[kind]
    model = small(
        "i: int[2];",
        "a = layout.cast<real>(q); r = layout.gather{axis=0}(q, i); b = layout.cast<real>(r);",
        "a: real[16, 16]; b: real[2, 16]",
        f"@variable {{ q: {name}[16, 16]; }}",
    )
    wide = widen_codes(model)
    assert [item.element for item in wide.graph.variables] == [BF16]
    codes = np.arange(256, dtype=np.uint8).view(kind).reshape(16, 16)
    for one, numbers in ((model, codes), (wide, codes.astype(ml_dtypes.bfloat16))):
        run = lamella.compile(one, backend="reference")
        assert isinstance(run, GraphExecutable)
        run.state["q"] = numbers
        found = run(i=np.array([4, 1]))
        np.testing.assert_array_equal(found["a"], codes.astype(np.float32))
        np.testing.assert_array_equal(found["b"], codes[[4, 1]].astype(np.float32))
