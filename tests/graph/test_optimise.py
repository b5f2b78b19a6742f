"""The optimiser: random graphs of ATen's and of the library's operators keep every bit; and what it reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.graph.model import Model
from lamella.graph.nodes import Operation
from lamella.graph.passes import PASSES
from lamella.graph.passes.fold_constants import Evaluate
from lamella.graph.passes.optimise import MOST_ROUNDS, Optimised, optimise
from lamella.graph.rewrite import members
from lamella.graph.verify import verify
from tests.support.graph.aten_models import aten_models, run_special, same_bits, special_arrays
from tests.support.graph.running import evaluate
from tests.support.graph.texts import body_of, small
from tests.support.strategies.graph import models

EXTENTS = st.integers(1, 4).map(lambda size: {"n": size})
ROUND = ("simplify", "cancel_transposes", "cse", "dce", "variable_dce")


def by_reference(model: Model) -> Evaluate:
    """The reference, for the constants of a model."""

    def compute(operation: Operation, arrays: Mapping[str, Array]) -> Sequence[Array]:
        return evaluate(model, operation, arrays)

    return compute


def keeps_every_bit(before: Model, after: Model, extents: Mapping[str, int]) -> None:
    """A whole graph with the same outputs that computes the same from special numbers."""
    assert not verify(after.graph, after.library)
    assert [item.name for item in members(before.graph.outputs)] == [
        item.name for item in members(after.graph.outputs)
    ]
    data = special_arrays(before.graph.variables, {}, 3)
    same_bits(run_special(before, data, extents), run_special(after, data, extents))


@given(model=aten_models(), extents=EXTENTS)
def test_graphs_of_aten_keep_every_bit(model: Model, extents: dict[str, int]) -> None:
    found = optimise(model, by_reference(model))
    keeps_every_bit(model, found.model, extents)
    assert found.after <= found.before
    assert found.rounds <= MOST_ROUNDS


@pytest.mark.parametrize("name", ROUND)
@given(model=aten_models(), extents=EXTENTS)
def test_each_pass_alone_keeps_every_bit(name: str, model: Model, extents: dict[str, int]) -> None:
    keeps_every_bit(model, PASSES[name](model), extents)


@given(model=models(), extents=EXTENTS)
def test_graphs_of_the_library_keep_every_bit(model: Model, extents: dict[str, int]) -> None:
    keeps_every_bit(model, optimise(model, by_reference(model)).model, extents)


@given(model=aten_models())
def test_origins_survive(model: Model) -> None:
    """What an operation is made from stays a whole chain of the model that was given."""
    chains = {item.origin for item in model.graph.operations()}
    found = optimise(model, by_reference(model)).model
    assert all(item.origin in chains for item in found.graph.operations())


@given(model=aten_models())
def test_what_is_optimised_stays(model: Model) -> None:
    once = optimise(model, by_reference(model)).model
    again = optimise(once, by_reference(once))
    assert again.after == sum(1 for _ in once.graph.operations())


# --- what it reports ----------------------------------------------------------------------------------------

BODY = (
    "a = aten.dropout(x); b = aten.mul(a, 1.0); c = aten.exp(b); d = aten.exp(a); e = aten.add(c, d);"
    " f = aten.t(e); g = aten.t(f); h = aten.add(w, 1.0); i = aten.arange<real>{end=3.0}();"
    " j = aten.neg(i); k = aten.add(g, j); y = aten.add(k, 0.0);"
)


def optimised(relaxed: bool = False) -> Optimised:
    model = small("x: real[3, 3];", BODY, blocks="@variable { w: real[3]; v: real[3]; }")
    data = {"w": np.ones(3, np.float32), "v": np.ones(3, np.float32)}
    model = Model(model.graph, model.library, data)
    return optimise(model, by_reference(model), relaxed)


def test_the_report_says_which_pass_took_what() -> None:
    found = optimised()
    assert " ".join(body_of(found.model)) == (
        "c = aten.exp(x); e = aten.add{alpha=1.0}(c, c); k = aten.add{alpha=1.0}(e, j);"
        " y = aten.add{alpha=1.0}(k, constant_2);"
    )
    assert (found.before, found.after, found.variables) == (12, 4, 2)
    assert {name: count for name, count in found.removed.items() if count} == {
        "simplify": 2,
        "cancel_transposes": 1,
        "fold_constants": 1,
        "cse": 1,
        "dce": 3,
    }
    assert sum(found.removed.values()) == found.before - found.after
    first, *rest = found.lines()
    assert first == "12 operations before, 4 after, in 2 rounds"
    assert rest[0].split() == ["2", "by", "simplify"]
    assert rest[-1].split() == ["2", "unused", "variables"]


def test_relaxed_equations_are_asked_for() -> None:
    found = optimised(relaxed=True)
    assert body_of(found.model)[-1] == "y = aten.add{alpha=1.0}(e, j);"
    assert found.removed["fast_math"] == 1
    assert "fast_math" not in optimised().removed


def test_unused_variables_go_with_their_data() -> None:
    blocks = "@variable { w: real[3]; v: real[3]; u: real[3]; } @update { u = y; }"
    model = small("x: real[3];", "y = aten.add(x, w);", blocks=blocks)
    read: list[str] = []
    found = PASSES["variable_dce"](Model(model.graph, model.library, _Lazy(read)))
    assert [item.name for item in found.graph.variables] == ["w", "u"]
    assert found.data is not None
    assert (list(found.data), len(found.data), "v" in found.data, "w" in found.data) == (
        ["w", "u"],
        2,
        False,
        True,
    )
    assert not read
    assert found.data["w"].tolist() == [1.0] * 3
    assert not verify(found.graph, found.library)


class _Lazy(Mapping[str, Array]):
    """Data that note when they are read."""

    def __init__(self, read: list[str]) -> None:
        self.read = read

    def __getitem__(self, name: str) -> Array:
        self.read.append(name)
        return np.ones(3, np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(("w", "v", "u"))

    def __len__(self) -> int:
        return 3

    def __contains__(self, name: object) -> bool:
        return name in ("w", "v", "u")
