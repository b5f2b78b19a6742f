"""Random calls of every library operator: taken or refused by findings, alike for known and unknown extents."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import dim
from lamella.base.dim import Extent
from lamella.base.errors import Found
from lamella.ops.instance import Instance
from lamella.ops.library import DIALECTS, Library
from lamella.ops.lower import contractions
from lamella.ops.specialise import decide, specialise
from tests.support.ops.engine.calls import call, shapes
from tests.support.ops.engine.random_calls import Drawn, blur, draw_call

LIBRARIES = {dialect: Library(dialect) for dialect in DIALECTS}


def names(dialect: str) -> list[str]:
    library = LIBRARIES[dialect]
    return sorted(f"{module}.{item}" for module in library.standard for item in library.operators(module))


OPERATORS = [(dialect, name) for dialect in DIALECTS for name in names(dialect)]


def attempt(dialect: str, name: str, drawn: Drawn) -> Instance | None:
    """The instance of a call; None where findings refuse it."""
    try:
        return call(LIBRARIES[dialect], name, drawn.arguments, drawn.attributes)
    except Found as problem:
        if not problem.findings or not problem.findings[0].message:
            raise
        return None


def draw(dialect: str, name: str, random: Random) -> Drawn:
    definition = LIBRARIES[dialect].find(name)
    assert definition is not None
    return draw_call(random, definition.operator)


@given(st.sampled_from(OPERATORS), st.randoms(use_true_random=False))
def test_a_call_that_is_taken_has_its_formulas(operator: tuple[str, str], random: Random) -> None:
    found = attempt(*operator, draw(*operator, random))
    if found is not None:
        for item in contractions(found):
            assert len(item.targets) == len(item.values)


def known(value: object, values: dict[str, int]) -> object:
    """Shapes with the symbols known."""
    if isinstance(value, tuple):
        return tuple(known(item, values) for item in value)
    return dim.substitute(value, values) if isinstance(value, int | dim.Dim) else value


def holds(instance: Instance, values: dict[str, int]) -> bool:
    return all(decide(check, values) for check in instance.checks)


@given(st.sampled_from(OPERATORS), st.randoms(use_true_random=False))
def test_unknown_extents_lead_where_known_ones_do(operator: tuple[str, str], random: Random) -> None:
    drawn = draw(*operator, random)
    blurred, values = blur(random, drawn)
    found = attempt(*operator, blurred)
    if found is None or any(item.size is not None for item in found.outputs) or _open_extents(found, values):
        return
    try:
        if not holds(found, values):
            return
    except Found:  # a divisor of a check is zero
        return
    expected = attempt(*operator, drawn)
    assert expected is not None
    assert [known(shape, values) for shape in shapes(found)] == shapes(expected)
    for item in contractions(found):
        assert all(isinstance(loop.extent, int) for loop in specialise(item, values).loops)


def _open_extents(instance: Instance, values: dict[str, int]) -> list[Extent]:
    """Extents that only the results tell."""
    found: list[Extent] = []
    for item in instance.outputs:
        for shape in item.items or (item.shape or (),):
            found += [extent for extent in shape if any(s.name not in values for s in dim.symbols(extent))]
    return found


@pytest.mark.parametrize(
    "name", ["math.add", "math.mean_reduce", "nn.relu", "layout.transpose", "layout.concat"]
)
def test_random_calls_are_taken_often_enough(name: str) -> None:
    random = Random(5)
    taken = sum(
        attempt("specification", name, draw("specification", name, random)) is not None for _ in range(400)
    )
    assert taken > 5
