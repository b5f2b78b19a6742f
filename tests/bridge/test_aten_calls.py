"""Every overload of the table on drawn operands: the graph built gives what torch gives, and is described again."""

from __future__ import annotations

import warnings
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.bridge.aten.table import DROP, REFUSE, SIZE, rows
from tests.support.bridge.aten.cases import CASES, DRAWN, PLAIN, SIGNED
from tests.support.bridge.aten.elements import single
from tests.support.bridge.aten.judge import judge

BUILT = [
    name
    for name, row in rows().items()
    if row.schema.operator not in (DROP, SIZE, REFUSE) and row.how not in (*SIGNED, *DRAWN)
]
"""All but what has free signs or is drawn: the modules on linear algebra and on random numbers judge it."""
ELSEWHERE = ("aten._scaled_dot_product_efficient_attention.default",)
"""What torch has for other machines than this one."""


@pytest.mark.parametrize("name", BUILT)
@settings(max_examples=4)
@given(st.integers(0, 2**32 - 1))
def test_calls(name: str, seed: int) -> None:
    row, random = rows()[name], Random(seed)
    draw = CASES.get(row.how) or PLAIN.get(row.schema.operator, single)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        taken = any(judge(name, **draw(random, row.schema)) for _ in range(40))
    assert taken or name in ELSEWHERE, "torch refuses every call that was drawn"
