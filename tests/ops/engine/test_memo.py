"""The memo of bound calls: what it gives is what binding gives, whatever was bound before."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import dim
from lamella.base.dtype import F16, F64, I64, ElementType
from lamella.base.errors import Found
from lamella.ops.instance import Argument, Instance, Single, Value
from lamella.ops.instantiate import instantiate
from lamella.ops.library import DIALECTS, Library
from lamella.ops.lower import contractions
from lamella.ops.memo import LONGEST, MOST_CALLS, CallMemo
from tests.support.ops.engine.calls import Fake, call, module, tensor
from tests.support.ops.engine.random_calls import Drawn, blur, draw_call

LIBRARIES = {dialect: Library(dialect) for dialect in DIALECTS}
OPERATORS = [
    (dialect, f"{name}.{item}")
    for dialect, library in LIBRARIES.items()
    for name in sorted(library.standard)
    for item in library.operators(name)
]
NUMBERED = """
operator o {
    @dtype { T: type; }
    @attrib { a: T..; }
    @input { x: real[n]; }
    @output { y: T[n]; }
    @lower { y[i,] = a[0], i < n; }
}
"""
TWO_INPUTS = """
operator o {
    @input { x: real[n]; z: real[n]; }
    @output { y: real[n]; }
    @lower { y[i,] = x[i,] + z[i,], i < n; }
}
"""
PRINTING = """
operator o {
    @input { x: real[n]; }
    @using { s = "{x}"; }
    @output { y: real[n]; }
    @lower { y[i,] = x[i,], i < n; }
}
"""


def renamed(argument: Argument, name: str) -> Argument:
    """The argument with other tensors of the same types and shapes."""
    if isinstance(argument, tuple):
        tensors = tuple(replace(item, name=name) for item in argument if isinstance(item, Fake))
        return tensors if len(tensors) == len(argument) else argument
    return replace(argument, name=name) if isinstance(argument, Fake) else argument


def bind(
    library: Library,
    name: str,
    drawn: Drawn,
    memo: CallMemo | None = None,
    types: Mapping[str, ElementType] | None = None,
) -> Instance | str:
    """The instance of a call of which nothing but the memo is known, or why it is refused."""
    shared = library._shipped
    shared.calls, before = memo or CallMemo(), shared.calls
    try:
        return call(library, name, drawn.arguments, drawn.attributes, types)
    except Found as problem:
        return str(problem.findings[0])
    finally:
        shared.calls = before


def see_same(found: Instance | str, expected: Instance | str) -> None:
    """See that two instances say the same, to the spelling of each value."""
    assert found == expected
    assert repr(found) == repr(expected)
    if isinstance(found, Instance) and isinstance(expected, Instance):
        assert list(found.symbols) == list(expected.symbols)
        assert formulas(found) == formulas(expected)


def formulas(instance: Instance) -> str:
    """The formulas of a call as they are spelled, or why there are none."""
    try:
        return repr(contractions(instance))
    except Found as problem:
        return str(problem.findings)


@given(st.sampled_from(OPERATORS), st.randoms(use_true_random=False), st.booleans())
def test_a_call_again_is_the_call_bound_anew(
    operator: tuple[str, str], random: Random, dynamic: bool
) -> None:
    library, name = LIBRARIES[operator[0]], operator[1]
    definition = library.find(name)
    assert definition is not None
    drawn = draw_call(random, definition.operator)
    drawn = blur(random, drawn)[0] if dynamic else drawn
    other = Drawn([renamed(item, "other") for item in drawn.arguments], drawn.attributes)
    memo = CallMemo()
    first = bind(library, name, drawn, memo)
    see_same(first, bind(library, name, drawn))
    see_same(bind(library, name, other, memo), bind(library, name, other))
    if isinstance(first, Instance):
        # As a graph holds it, with everything written out: this is what a run binds again.
        arguments = [renamed(value, "third") for _, value in first.inputs]
        written = Drawn(arguments, dict(first.attributes))
        again = bind(library, name, written, memo, first.types)
        see_same(again, bind(library, name, written, None, first.types))


@pytest.mark.parametrize("name", ["math.add", "nn.relu", "math.sum_reduce", "nn.softmax", "layout.transpose"])
def test_calls_that_differ_in_names_alone_are_bound_once(name: str) -> None:
    library = Library()
    definition = library.find(name)
    assert definition is not None
    inputs = sum(1 for item in definition.operator.parameters("input") if not item.type.optional)
    attributes: dict[str, Value] = {"axes": (0, 1)} if name in ("math.sum_reduce", "nn.softmax") else {}
    attributes |= {"perm": (1, 0)} if name == "layout.transpose" else {}
    first = call(library, name, [tensor(2, 3, name=f"a{n}") for n in range(inputs)], attributes)
    second = call(library, name, [tensor(2, 3, name=f"b{n}") for n in range(inputs)], attributes)
    assert second.memo is first.memo
    assert [item.name for _, item in second.inputs if isinstance(item, Fake)] == [
        f"b{n}" for n in range(inputs)
    ]
    assert all(second.symbols[key] is value for key, value in second.inputs)
    written = call(library, name, [value for _, value in second.inputs], dict(first.attributes), first.types)
    assert written.memo is first.memo


def test_values_that_are_equal_and_not_the_same_are_told_apart() -> None:
    library = module(NUMBERED).library
    singles: list[Single] = [1, 1.0, True, 0, 0.0, -0.0, False, nan]
    for value in (*singles, *singles):
        for pack in ((value,), (value, value)):
            found = call(library, "main.o", [tensor(3)], {"a": pack})
            assert repr(found.symbols["a"]) == repr(pack)
            assert repr(contractions(found)[0].values) == repr((value,))


def test_scalars_that_stand_for_tensors_are_told_apart() -> None:
    library = Library()
    for value in (1.0, 2.0, 0.0, -0.0, 1.0, -0.0):
        (found,) = contractions(call(library, "math.mul", [tensor(2, 3), value]))
        assert f", {value!r})" in repr(found)


def test_types_are_told_apart() -> None:
    library = Library()
    for element in (F16, F64, I64, F16):
        found = call(library, "math.add", [tensor(2, element=element), tensor(2, element=element)])
        assert found.outputs[0].element == element


def test_symbols_named_after_results_are_those_of_the_call() -> None:
    library = Library("newer")
    definition = library.find("layout.nonzero")
    assert definition is not None
    for name in ("a", "b"):
        (output,) = instantiate(library, definition, [tensor(2, 3)], results=[name]).outputs
        assert f"{name}.shape" in str(output.shape)


def test_messages_that_the_run_may_print_have_the_names_of_the_call() -> None:
    library, n = module(TWO_INPUTS).library, dim.symbol("n", 9)
    for name in ("left", "right"):
        (check,) = call(library, "main.o", [tensor(n, name=name), tensor(3)]).checks
        assert name in check.message


def test_a_string_of_a_tensor_is_that_of_the_call() -> None:
    library = module(PRINTING).library
    for name in ("a", "b"):
        assert call(library, "main.o", [tensor(2, name=name)]).symbols["s"] == name


def test_a_memo_is_bounded() -> None:
    library = Library()
    definition = library.find("nn.relu")
    assert definition is not None
    memo = library.calls(definition)
    for size in range(MOST_CALLS + 50):
        call(library, "nn.relu", [tensor(size)])
    assert len(memo) == MOST_CALLS
    last = call(library, "nn.relu", [tensor(MOST_CALLS)])
    call(library, "layout.concat", [tuple(tensor(1) for _ in range(LONGEST + 1))], {"axis": 0})
    assert call(library, "nn.relu", [tensor(MOST_CALLS)]).memo is last.memo


def test_libraries_share_the_calls_of_shipped_operators_alone() -> None:
    first, second = Library(), Library()
    assert call(first, "nn.relu", [tensor(7)]).memo is call(second, "nn.relu", [tensor(7)]).memo
    newer = call(Library("newer"), "nn.relu", [tensor(7)])
    assert newer.memo is not call(first, "nn.relu", [tensor(7)]).memo
    small, large = (module(TWO_INPUTS.replace("+", sign)).library for sign in ("<<", ">>"))
    texts = [repr(contractions(call(item, "main.o", [tensor(3), tensor(3)]))) for item in (small, large)]
    assert texts[0] != texts[1]


def test_each_thread_has_its_own_budget_of_long_packs() -> None:
    library = Library()
    library.budget.left = 1
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: library.budget.left).result() == library.budget.most
    assert library.budget.left == 1
    assert Library().budget.left == library.budget.most
