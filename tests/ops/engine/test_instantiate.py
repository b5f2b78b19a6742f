"""Binding of calls: types, attributes, shapes, helper symbols, outputs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import dim
from lamella.base.dim import Dim, symbol
from lamella.base.dtype import BF16, F16, F32, F64, I8, I64, ElementType
from lamella.base.errors import Found
from lamella.base.source import Source
from lamella.ops.instance import Argument, Fill, Instance, Value
from lamella.ops.instantiate import bind_graph
from lamella.ops.library import Library
from tests.support.ops.engine.calls import FakePack, bind, call, module, refusal, shapes, tensor

LIBRARY = Library()


def operator(**blocks: str) -> str:
    """An operator with the blocks given."""
    return f"operator o {{ {' '.join(f'@{name} {{ {text} }}' for name, text in blocks.items())} }}"


def symbols(instance: Instance, *names: str) -> list[object]:
    return [instance.symbols[name] for name in names]


# --- shapes -------------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 20), st.integers(0, 4))
def test_affine_extents_are_solved(factor: int, offset: int, k: int, d: int) -> None:
    text = operator(input=f"x: real[{factor} * k + {offset}, s..(2 * d)];", output="y: real[k];")
    found = bind(text, tensor(factor * k + offset, *range(2 * d)))
    assert symbols(found, "k", "d", "s") == [k, d, tuple(range(2 * d))]
    assert shapes(found) == [(k,)]


@pytest.mark.parametrize(
    "extent", ["2 * (k + 1)", "k * 2 + 2", "-(-2 * k) + 2", "2 + k + k", "(k + 1) * 2 + 0"]
)
def test_affine_spellings(extent: str) -> None:
    found = bind(operator(input=f"x: real[{extent}];", output="y: real[k];"), tensor(10))
    assert found.symbols["k"] == 4


@pytest.mark.parametrize(
    ("declared", "shape", "expected"),
    [
        ("[s.., n]", (2, 3, 4), {"s": (2, 3), "n": 4}),
        ("[s.., n]", (4,), {"s": (), "n": 4}),
        ("[n, s..]", (2, 3, 4), {"n": 2, "s": (3, 4)}),
        ("[a, s..(d), b]", (1, 2, 3, 4), {"a": 1, "s": (2, 3), "b": 4, "d": 2}),
        ("^(r)[s..]", (5, 6), {"r": 2, "s": (5, 6)}),
        ("^(r)[s..(r - 1), n]", (5, 6), {"s": (5,), "n": 6}),
        ("[2 * s..]", (4, 6), {"s": (2, 3)}),
        ("[]", (), {}),
        ("[n, n]", (3, 3), {"n": 3}),
        ("[n, 2 * n + 1]", (3, 7), {"n": 3}),
    ],
)
def test_declared_shapes(declared: str, shape: tuple[int, ...], expected: dict[str, object]) -> None:
    found = bind(operator(input=f"x: real{declared};", output="y: real[];"), tensor(*shape))
    assert {name: found.symbols[name] for name in expected} == expected


def test_the_binding_order_of_the_specification() -> None:
    text = operator(
        attrib="r: int; a: optional int; b: int..(d) = 0; c: int = 2 * d + r;",
        input="x: real[s..(r), z..(d), t..]; y: real[s..(r), z..(d)];",
        output="o: real[];",
    )
    found = bind(text, tensor(2, 3, 4, 5, 6), tensor(2, 3, 4), r=1)
    assert symbols(found, "s", "z", "t", "d", "a", "b", "c") == [(2,), (3, 4), (5, 6), 2, None, (0, 0), 5]
    assert dict(found.attributes) == {"r": 1, "a": None, "b": (0, 0), "c": 5}


def test_optional_extents_by_a_flag() -> None:
    text = operator(
        attrib="first: bool = true;",
        input="x: real[b, c..(first), s..(d), c..(!first)];",
        output="y: real[c, s..];",
    )
    assert shapes(bind(text, tensor(1, 2, 3, 4))) == [(2, 3, 4)]
    assert shapes(bind(text, tensor(1, 2, 3, 4), first=False)) == [(4, 2, 3)]


def test_null_extents_vanish() -> None:
    text = operator(
        attrib="n: optional int;",
        input="x: real[n, s..];",
        output="y: real[n, 1 ..(?n), true ? 7, false ? 8, s..];",
    )
    assert shapes(bind(text, tensor(2, 3))) == [(7, 2, 3)]
    assert shapes(bind(text, tensor(2, 3), n=2)) == [(2, 1, 7, 3)]


def test_packs_of_tensors() -> None:
    text = operator(
        input="xs: real[z, s..(l), ..t]..(k);",
        using="total = t + ..;",
        output="ys: real[s.., ..t]..(k); y: real[total];",
    )
    found = bind(text, (tensor(1, 2, 3), tensor(1, 2, 4)))
    assert symbols(found, "z", "s", "t", "k", "l") == [1, (2,), (3, 4), 2, 1]
    assert shapes(found) == [((2, 3), (2, 4)), (7,)]


def test_an_empty_pack_tells_no_extents() -> None:
    text = operator(input="xs: real[n]..(k);", output="y: real[2];")
    assert shapes(bind(text, ())) == [(2,)]
    text = operator(input="xs: real[n]..(k);", output="y: real[n];")
    assert refusal(text, ()) == "SKR264: 'n' has no value here"


def test_a_pack_of_unknown_length() -> None:
    k = symbol("k", 7)
    assert isinstance(k, Dim)
    text = operator(
        input="xs: real[n, ..z]..(k);", using="u = z := ..; sums = z + ...;", output="y: real[n, u * k];"
    )
    found = bind(text, FakePack("xs", (3, 4), k))
    assert shapes(found) == [(3, dim.mul(k, 4))]
    text = operator(input="xs: real[..z]..(k);", using="sums = z + ...;", output="y: real[sums..];")
    assert refusal(text, FakePack("xs", (3,), k)).startswith("SKR262: the length of a pack folded by '+'")


def test_optional_inputs() -> None:
    text = operator(
        input="x: real[n]; b: optional real[m, t..(d)];",
        using="k = m ?? 7; e = ?b ? d : -1;",
        output="y: real[k];",
    )
    assert symbols(bind(text, tensor(3)), "b", "m", "t", "d", "k", "e") == [None, None, None, None, 7, -1]
    assert symbols(bind(text, tensor(3), None), "k") == [7]
    assert symbols(bind(text, tensor(3), tensor(4, 5)), "k", "t", "e") == [4, (5,), 1]


# --- scalars ------------------------------------------------------------------------------------------------


def test_scalars_for_tensors() -> None:
    text = operator(input="x: real[s..]; y: real[s..];", output="z: real[s..];")
    fill = bind(text, tensor(2, 3), 1.0).symbols["y"]
    assert fill == Fill("y", F32, (2, 3), 1.0)
    text = operator(input="x: real[s..(d)]; y: real[t..(e)];", output="z: real[s.., t..];")
    found = bind(text, 0.5, tensor(4))
    assert shapes(found) == [(4,)]
    assert symbols(found, "s", "d") == [(), 0]


def test_scalars_wait_for_the_extents_of_others() -> None:
    text = operator(input="x: real[n]; y: real[n];", output="z: real[n];")
    assert bind(text, 1.0, tensor(5)).symbols["x"] == Fill("x", F32, (5,), 1.0)
    assert refusal(text, 1.0, 2.0) == (
        "SKR285: main.o: the scalar for input 'x' has no shape of its own, and 'n' is not known otherwise"
    )


def test_defaults_of_inputs() -> None:
    text = operator(input="x: real[n]; h: real[n] = 0.0; t: int[] = 3;", output="y: real[n];")
    found = bind(text, tensor(2))
    assert found.inputs == (("x", tensor(2)), ("h", 0.0), ("t", 3))
    assert found.symbols["h"] == Fill("h", F32, (2,), 0.0)
    assert found.symbols["t"] == Fill("t", I64, (), 3)


def test_packs_of_scalars() -> None:
    text = operator(input="xs: real[s..]..(k);", output="y: real[s..];")
    found = bind(text, (1.0, 2.0))
    assert [item.value for item in found.symbols["xs"]] == [1.0, 2.0]  # type: ignore[attr-defined]


# --- element types ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", [F16, BF16, F32, F64])
def test_real_takes_every_width(element: ElementType) -> None:
    text = operator(input="x: real[n]; y: optional real[n];", variable="v: real[n];", output="z: real[n];")
    found = bind(text, tensor(2, element=element))
    assert [found.outputs[0].element, found.variables[0].element, found.symbols["real"]] == [element] * 3


def test_one_call_has_one_width() -> None:
    text = operator(input="x: real[n]; y: real[n];", output="z: real[n];")
    assert refusal(text, tensor(2, element=F16), tensor(2)) == (
        "SKR272: the real tensors of one call share one width: 'x' of main.o is f16, 'y' is f32"
    )


def test_integers_and_sized_types() -> None:
    text = operator(input="x: int[n];", output="y: int[n]; z: i8[n]; w: bool[n];")
    found = bind(text, tensor(2, element=I8))
    assert [str(item.element) for item in found.outputs] == ["i64", "i8", "bool"]
    text = operator(input="x: i8[n];", output="y: real[n];")
    assert (
        refusal(text, tensor(2, element=I64))
        == "SKR211: input 'x' of 'main.o' is of type i8 and gets i64 (tensor t)"
    )


def test_generic_types() -> None:
    text = operator(
        dtype="T: num; R: arith = bool;",
        attrib="a: optional T;",
        input="x: T[n];",
        output="y: T[n]; z: R[n];",
    )
    found = bind(text, tensor(2, element=I8))
    assert dict(found.types) == {"T": I8, "R": found.outputs[1].element}
    assert str(found.outputs[1].element) == "bool"
    assert refusal(text, tensor(2, element=I8), a=1.5).startswith(
        "SKR210: attribute 'a' of 'main.o' is T and gets real"
    )
    text = operator(dtype="T: num;", attrib="a: T;", output="y: T[];")
    assert bind(text, a=2).outputs[0].element == I64
    assert bind(text, a=2.0).outputs[0].element == F32
    text = operator(dtype="T: num;", output="y: T[];")
    assert refusal(text) == "SKR215: nothing determines the type 'T' of 'main.o'"


def test_types_that_are_given() -> None:
    found = call(LIBRARY, "layout.cast", [tensor(2)], types={"R": I8})
    assert found.outputs[0].element == I8
    with pytest.raises(Found, match="is restricted by num and becomes bool"):
        call(LIBRARY, "rand.uniform", attributes={"shape": (2,)}, types={"T": LIBRARY_BOOL})
    with pytest.raises(Found, match="'S' is not a type"):
        call(LIBRARY, "layout.cast", [tensor(2)], types={"S": I8})


LIBRARY_BOOL = call(LIBRARY, "rand.bernoulli", attributes={"prob": 0.5, "shape": (2,)}).outputs[0].element


# --- attributes ---------------------------------------------------------------------------------------------


def test_uniform_values_for_packs() -> None:
    text = operator(attrib="p: int..(2 * d); q: int..(d) = 1;", input="x: real[s..(d)];", output="y: real[];")
    found = bind(text, tensor(2, 3), p=4)
    assert dict(found.attributes) == {"p": (4, 4, 4, 4), "q": (1, 1)}
    assert refusal(operator(attrib="p: int..(k);", output="y: real[];"), p=4) == (
        "SKR271: attribute 'p' of main.o is one value, and its length 'k' is not known from the inputs"
    )


def test_deferred_defaults_in_any_order() -> None:
    text = operator(attrib="b: int = a + 1; a: int = n;", input="x: real[n];", output="y: real[b];")
    assert shapes(bind(text, tensor(3))) == [(4,)]


def test_an_optional_default_that_is_null_must_be_given() -> None:
    text = operator(attrib="r: optional int; a: int..(k) = [0:r];", output="y: real[k];")
    assert shapes(bind(text, r=3)) == [(3,)]
    assert shapes(bind(text, a=(1, 2))) == [(2,)]
    assert refusal(text) == "SKR208: 'main.o' is invoked without its attribute 'a'"


def test_lengths_of_packs_agree() -> None:
    text = operator(attrib="a: int..(k); b: int..(k);", output="y: real[k];")
    assert shapes(bind(text, a=(1, 2), b=(3, 4))) == [(2,)]
    assert refusal(text, a=(1, 2), b=(3,)) == "SKR270: 'b' of main.o has 1 items, but its length 'k' is 2"


@given(st.lists(st.integers(0, 3), max_size=3), st.lists(st.integers(0, 9), max_size=8))
def test_values_by_their_number(shape: list[int], values: list[int]) -> None:
    text = operator(attrib="shape: int..(d); value: int..(shape * ..);", output="y: int[shape..];")
    volume = 1
    for extent in shape:
        volume *= extent
    if volume == len(values):
        assert shapes(bind(text, shape=tuple(shape), value=tuple(values))) == [tuple(shape)]
    else:
        assert refusal(text, shape=tuple(shape), value=tuple(values)).startswith(
            "SKR270: 'value' of main.o has"
        )


# --- helper symbols and assertions --------------------------------------------------------------------------


def test_assertions_guard_the_symbols_behind_them() -> None:
    text = operator(
        attrib="a: int; b: int; c: int;",
        using="r = a / b;",
        **{
            "assert": "r + c == 42: 'sum'; b > 0: 'b must be positive', b; a % b == 0: 'not divisible', a, b;"
        },
        output="y: real[r];",
    )
    assert shapes(bind(text, a=80, b=2, c=2)) == [(40,)]
    assert refusal(text, a=80, b=0, c=2) == "SKR283: main.o: b must be positive (b = 0)"
    assert refusal(text, a=81, b=2, c=2) == "SKR283: main.o: not divisible (a = 81, b = 2)"
    assert refusal(text, a=82, b=2, c=2) == "SKR283: main.o: sum"


def test_early_symbols_can_be_used_in_shapes() -> None:
    text = operator(
        attrib="format: str = 'NCX';",
        input="x: real[b, c..(ncx), s..(d), c..(!ncx)];",
        using="ncx = format == 'NCX'; k = c * 2;",
        output="y: real[k];",
    )
    assert shapes(bind(text, tensor(1, 2, 3))) == [(4,)]
    assert shapes(bind(text, tensor(1, 2, 3), format="NXC")) == [(6,)]


def test_patterns_take_packs_apart() -> None:
    text = operator(
        attrib="c: int..(n);",
        using="[a, b.., z] = c; [(e, f)..] = c; [g..(2), h..] = c; k..(n) = c;",
        output="y: real[];",
    )
    found = bind(text, c=(1, 2, 3, 4))
    assert symbols(found, "a", "b", "z", "e", "f", "g", "h") == [1, (2, 3), 4, (1, 3), (2, 4), (1, 2), (3, 4)]
    assert refusal(text, c=(1, 2, 3)).startswith(
        "SKR152: a pattern for 2 by 2 items takes apart a pack of length 3"
    )
    assert refusal(text, c=(1,)).startswith("SKR152: a pattern for 2 items takes apart a pack of length 1")


def test_null_assertions_are_skipped_and_packs_are_taken_together() -> None:
    text = operator(
        attrib="a: optional int; p: int..;", **{"assert": "a > 0; p > 0: 'items', p;"}, output="y: real[];"
    )
    bind(text, p=(1, 2))
    bind(text, a=1, p=())
    assert refusal(text, a=0, p=()) == "SKR283: main.o: 'a > 0' does not hold (a = 0)"
    assert refusal(text, p=(1, 0)) == "SKR283: main.o: items (p = [1, 0])"


# --- dynamic extents ----------------------------------------------------------------------------------------


def test_outputs_that_only_the_run_tells() -> None:
    text = operator(
        attrib="k: int;", input="x: real[n, m];", output="y: real[~|k, m]; z: real[s|k]; w: real[s|k, ~|n];"
    )
    definition = module(text).library.find("main.o")
    assert definition is not None
    found = bind(text, tensor(3, 4), k=9)
    names = [[str(extent) for extent in item.shape or ()] for item in found.outputs]
    assert names == [["y.shape[0]", "4"], ["z.shape[0]"], ["z.shape[0]", "w.shape[1]"]]
    assert [dim.bounds(extent) for extent in found.outputs[2].shape or ()] == [(0, 9), (0, 3)]


def test_symbols_are_named_after_the_results() -> None:
    found = call(LIBRARY, "layout.nonzero", [tensor(2, 3)])
    definition = LIBRARY.find("layout.nonzero")
    assert definition is not None
    assert str((found.outputs[0].shape or ())[1]) == "index.shape[1]"


def test_undecided_agreement_is_left_to_the_run() -> None:
    n, m = symbol("n", 9), symbol("m", 9)
    found = bind(
        operator(input="x: real[k]; y: real[k];", output="z: real[k];"), tensor(n), tensor(m, name="b")
    )
    (check,) = found.checks
    assert str(check.condition) == "n == m"
    assert check.message == (
        "main.o: 'k' is n by dimension 0 of 'x' (tensor t: [n]), but m by dimension 0 of 'y' (tensor b: [m])"
    )
    found = bind(operator(input="x: real[4 * k];", output="z: real[k];"), tensor(n))
    assert [str(check.condition) for check in found.checks] == ["(n % 4) == 0"]
    assert [str(extent) for extent in found.outputs[0].shape or ()] == ["(n / 4)"]


def test_extents_that_may_be_negative_are_checked() -> None:
    found = bind(operator(input="x: real[n];", output="y: real[n - 3];"), tensor(symbol("n", 9)))
    assert [str(check.condition) for check in found.checks] == ["0 <= n - 3"]
    assert refusal(operator(input="x: real[n];", output="y: real[n - 3];"), tensor(2)) == (
        "SKR284: main.o: extent 0 of 'y' is -1; extents are not negative"
    )


# --- graphs -------------------------------------------------------------------------------------------------


def graph(text: str, **attributes: Value) -> Instance:
    found = module(text)
    return bind_graph(found.library, found.graphs[0], attributes)


def test_inputs_of_a_main_graph() -> None:
    found = graph(
        """graph G { @attrib { b: int = 2; }
        @input { x: real[b, n|10, ~|20]; y: real[n]; z: i8[~|5 ..(2), 3]; ws: real[n]..(2); vs: real[n]..(k|4); }
        @output { o: real; p: real[~, n]; } @compose { o = x; p = x; } }""",
        b=3,
    )
    x, y, z, ws, vs = found.declared
    assert [str(extent) for extent in x.shape or ()] == ["3", "n", "x.shape[2]"]
    assert y.shape == (symbol("n", 10),)
    assert [str(extent) for extent in z.shape or ()] == ["z.shape[0]", "z.shape[1]", "3"]
    assert z.element == I8
    assert ws.items == ((symbol("n", 10),),) * 2
    assert vs.size == symbol("k", 4)
    assert found.outputs[0].shape is None
    assert [str(extent) for extent in found.outputs[1].shape or ()] == ["p.shape[0]", "n"]


def test_a_graph_input_needs_a_bound() -> None:
    text = "graph G { @input { x: real[n]; } @output { y: real; } @compose { y = x; } }"
    found = Library().load(Source("g.sknd", text))
    with pytest.raises(Found, match="the extent 'n' of graph input 'x' has no upper bound"):
        bind_graph(found.library, found.graphs[0])


# --- hostile calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (operator(output="y: real[1 ..(1000)];"), "SKR287"),
        (operator(output="y: real[2 ** 63];"), "SKR284"),
        (operator(output="y: real[-1];"), "SKR284"),
        (operator(output="y: real[2 ** 5000];"), "SKR261"),
        (operator(output="y: real[]..(10 ** 9);"), "SKR261"),
        (
            operator(constant="c: real[n] = 1.0, i < n;", attrib="n: int = 10 ** 7;", output="y: real[];"),
            "SKR261",
        ),
        (operator(constant="c: real[2] = [1.0];", output="y: real[];"), "SKR139"),
        (operator(constant="c: real[2] = 1;", output="y: real[];"), "SKR086"),
        (operator(output="y: str[];"), "SKR273"),
        (operator(attrib="p: int..(10 ** 9) = 1;", output="y: real[];"), "SKR261"),
    ],
)
def test_refused_definitions(text: str, code: str) -> None:
    assert refusal(text).startswith(code)


ARGUMENTS: list[Argument] = [
    None,
    1,
    1.5,
    True,
    "a",
    (),
    (1, 2),
    tensor(2),
    (tensor(2), tensor(2)),
]
VALUES: list[Value] = [
    None,
    0,
    -1,
    1,
    2.5,
    False,
    "NCX",
    (),
    (0,),
    (1, 2),
    (1.5,),
    ("a", "b"),
    10**30,
    10**12,
]
OPERATORS = sorted(f"{name}.{item}" for name in LIBRARY.standard for item in LIBRARY.operators(name))


@given(st.data())
def test_any_call_is_taken_or_refused_by_a_finding(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(OPERATORS))
    definition = LIBRARY.find(name)
    assert definition is not None
    attributes = [item.name for item in definition.operator.parameters("attrib")]
    given_ones = data.draw(st.lists(st.sampled_from(attributes), unique=True) if attributes else st.just([]))
    arguments = data.draw(st.lists(st.sampled_from(ARGUMENTS), max_size=3))
    values = {item: data.draw(st.sampled_from(VALUES)) for item in given_ones}
    found = attempt(name, arguments, values)
    assert found.outputs if isinstance(found, Instance) else found


def attempt(name: str, arguments: list[Argument], values: dict[str, Value]) -> Instance | str:
    try:
        return call(LIBRARY, name, arguments, values)
    except Found as problem:
        return problem.findings[0].message
