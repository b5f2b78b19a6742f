"""Every assertion of the operators of `math`, broken once."""

from __future__ import annotations

import pytest

from tests.support.judges.harness import refuse
from tests.support.judges.registry import Refusal

NUMERIC = ("add", "sub", "mul", "div", "mod", "pow", "min", "max", "lt", "gt", "le", "ge", "eq", "ne")
LOGIC = ("and", "or", "xor")
REDUCTIONS = ("min", "max", "sum", "prod", "mean")
POSITIONS = ("math.argmin_nd", "math.argmax_nd", "newer/math.argmin_nd", "newer/math.argmax_nd")
REDUCED = (
    *(Refusal(f"math.{name}_reduce", "") for name in REDUCTIONS),
    *(Refusal(f"math.{name}_reduce", "", element="bool") for name in ("any", "all")),
    Refusal("math.lp_reduce", "", attributes={"p": 2.0}),
    Refusal("math.moments", ""),
    *(Refusal(name, "") for name in POSITIONS),
)

REFUSALS = (
    *(Refusal(f"math.{name}", "'x' and 'y' do not broadcast", ((2, 3), (2, 4))) for name in NUMERIC),
    *(
        Refusal(f"math.{name}", "'x' and 'y' do not broadcast", ((2,), (3,)), element="bool")
        for name in LOGIC
    ),
    Refusal("math.select", "'x' and 'y' do not broadcast", ((1,), (2,), (3,)), element="bool"),
    Refusal("math.select", "'c' and 'x' do not broadcast", ((2,), (3,), (1,)), element="bool"),
    Refusal("math.select", "'c' and 'y' do not broadcast", ((2,), (1,), (3,)), element="bool"),
    *(
        Refusal(f"math.{name}_n", "'xs' must hold at least one tensor", ([],), types=("real",))
        for name in ("sum", "prod", "min", "max", "argmin", "argmax")
    ),
    *(Refusal(f"math.{name}_n", "'xs' must hold at least one tensor", ([],)) for name in ("any", "all")),
    Refusal("math.axpb", "'a' and 'x' do not broadcast", ((2,), (3,), (1,))),
    Refusal("math.axpb", "'b' and 'x' do not broadcast", ((1,), (3,), (2,))),
    Refusal("math.axpb", "'a' and 'b' do not broadcast", ((2,), (1,), (3,))),
    Refusal("math.axpby", "'a' and 'x' do not broadcast", ((2,), (3,), (1,), (1,))),
    Refusal("math.axpby", "'b' and 'y' do not broadcast", ((1,), (1,), (2,), (3,))),
    Refusal("math.axpby", "'a * x' and 'b * y' do not broadcast", ((2,), (2,), (1,), (3,))),
    Refusal("math.clamp", "'x' and 'a' do not broadcast", ((2,), (3,), (1,))),
    Refusal("math.clamp", "'x' and 'b' do not broadcast", ((2,), (1,), (3,))),
    Refusal("math.clamp", "'a' and 'b' do not broadcast", ((1,), (2,), (3,))),
    *(
        Refusal(item.operator, fragment, ((2, 3),), {**item.attributes, "axes": axes}, item.element)
        for item in REDUCED
        for fragment, axes in (("'axes' must be at least -2", (-3,)), ("name each dimension once", (1, -1)))
    ),
    Refusal("math.lp_reduce", "'p' must be positive", ((2, 3),), {"p": 0.0}),
    *(Refusal(name, "'axes' must not be empty", ((2, 3),), {"axes": ()}) for name in POSITIONS),
    *(Refusal(name, "must not be empty along 'axes'", ((2, 0),), {"axes": (1,)}) for name in POSITIONS),
    *(
        Refusal(f"math.{name}", "'axis' must be at least -2", ((2, 3),), {"axis": axis})
        for name, axis in (("argmin", 2), ("argmax", -3), ("cumsum", 2))
    ),
    *(
        Refusal(f"math.{name}", "must not be empty along 'axis'", ((2, 0),), {"axis": 1})
        for name in ("argmin", "argmax")
    ),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
