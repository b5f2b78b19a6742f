"""Races against brute force: all pairs of work-items, the elements they access and the values they store."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import ERROR
from lamella.base.source import Source
from lamella.lang.tensor import check, parse

STORES, ACCESSES = "TEN145", "TEN146"
COEFFICIENTS = st.integers(0, 4)
LANES = 8


def codes(text: str) -> list[str]:
    """The races that are found in a text without errors."""
    program, found = parse(Source("k.tensor", text))
    assert not found, "\n".join(map(str, found))
    findings = check(program)
    assert not [str(item) for item in findings if item.severity == ERROR]
    return [item.code for item in findings if item.code in (STORES, ACCESSES)]


def form(name: str, rates: tuple[int, ...], variables: tuple[str, ...], constant: int = 0) -> str:
    """Instructions that make an index of variables."""
    lines = [f"%{name}0 = constant {constant} : index"]
    for number, (rate, variable) in enumerate(zip(rates, variables, strict=True)):
        lines += [
            f"%{name}r{number} = constant {rate} : index",
            f"%{name}m{number} = arith.mul {variable}, %{name}r{number} : index",
            f"%{name}{number + 1} = arith.add %{name}{number}, %{name}m{number} : index",
        ]
    return "\n".join([*lines, f"%{name} = cast %{name}{len(rates)} : index"])


VALUES = {
    "uniform": ((), "%v = constant 1.0 : f32"),
    "i": ((0,), "%v = load %V[%i,%zero] : f32"),
    "j": ((1,), "%v = load %V[%zero,%j] : f32"),
    "both": ((0, 1), "%v = load %V[%i,%j] : f32"),
}


def stores_differ(counts: tuple[int, ...], rates: list[tuple[int, ...]], depends: tuple[int, ...]) -> bool:
    """Whether two tuples of indices store different values to one element."""
    stored: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for items in product(*(range(count) for count in counts)):
        place = tuple(sum(a * b for a, b in zip(rate, items, strict=True)) for rate in rates)
        stored.setdefault(place, set()).add(tuple(items[position] for position in depends))
    return any(len(values) > 1 for values in stored.values())


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.lists(st.tuples(COEFFICIENTS, COEFFICIENTS), min_size=1, max_size=2),
    st.sampled_from(sorted(VALUES)),
)
def test_stores_of_a_foreach(counts: tuple[int, int], rates: list[tuple[int, int]], value: str) -> None:
    depends, line = VALUES[value]
    shape = "x".join(["40"] * len(rates))
    made = "\n".join(form(f"x{mode}_", rate, ("%i", "%j")) for mode, rate in enumerate(rates))
    text = f"""func @k(%A: memref<f32x{shape}>, %V: memref<f32x5x5>) {{
      %zero = constant 0 : index %m = constant {counts[0]} : index %n = constant {counts[1]} : index
      foreach (%i,%j)=(%zero,%zero),(%m,%n) {{
        {line}
        {made}
        store %v, %A[{",".join(f"%x{mode}_" for mode in range(len(rates)))}]
      }}
    }}"""
    assert (STORES in codes(text)) == stores_differ(counts, list(rates), depends)


@given(
    st.tuples(COEFFICIENTS, COEFFICIENTS), st.integers(1, 4), st.sampled_from(["uniform", "i", "j", "both"])
)
def test_stores_of_subgroups(rates: tuple[int, int], subgroups: int, value: str) -> None:
    depends, line = VALUES[value]
    text = f"""func @k(%A: memref<f32x64>, %V: memref<f32x8x8>)
      attributes{{subgroup_size={LANES}, work_group_size=[{LANES},{subgroups}]}} {{
      %zero = constant 0 : index
      parallel {{
        %l = builtin.subgroup_local_id : i32 %s = builtin.subgroup_id : i32
        %i = cast %l : index %j = cast %s : index
        {line}
        {form("x", rates, ("%i", "%j"))}
        store %v, %A[%x]
      }}
    }}"""
    assert (STORES in codes(text)) == stores_differ((LANES, subgroups), [rates], depends)


@given(
    st.tuples(st.integers(0, 3), st.integers(0, 8)),
    st.tuples(st.integers(0, 3), st.integers(0, 8)),
    st.sampled_from(["uniform", "i"]),
    st.booleans(),
)
def test_a_load_and_a_store(
    store: tuple[int, int], load: tuple[int, int], value: str, store_first: bool
) -> None:
    _, line = VALUES[value]
    parts = ["store %v, %A[%x]", "%w = load %A[%y] : f32"]
    first, second = parts if store_first else parts[::-1]

    def text(between: str) -> str:
        return f"""func @k(%A: memref<f32x64>, %V: memref<f32x8x8>)
          attributes{{subgroup_size={LANES}, work_group_size=[{LANES},1]}} {{
          %zero = constant 0 : index
          parallel {{
            %l = builtin.subgroup_local_id : i32
            %i = cast %l : index
            {line}
            {form("x", store[:1], ("%i",), store[1])}
            {form("y", load[:1], ("%i",), load[1])}
            {first}
            {between}
            {second}
          }}
        }}"""

    alone = value == "i" and store[0] == 0
    meets = any(
        store[0] * one + store[1] == load[0] * other + load[1]
        for one, other in product(range(LANES), repeat=2)
        if one != other
    )
    # a value that is the same for all and that each has stored itself is what each loads
    harmless = store_first and value == "uniform" and store[0] == 0
    assert bool(codes(text(""))) == (alone or (meets and not harmless))
    assert bool(codes(text("barrier.global"))) == alone


GUARDED = """func @k(%A: memref<f32x64>, %B: memref<f32x64>, %c: bool)
  attributes{{subgroup_size=8, work_group_size=[16,1]}} {{
  %zero = constant 0 : index
  %one = constant 1 : i32
  %tmp = alloca : memref<f32x64,local>
  parallel {{
    %l = builtin.subgroup_local_id : i32
    %s = builtin.subgroup_id : i32
    %i = cast %l : index
    %a = load %A[%i] : f32
    %least = subgroup_min.reduce %a : f32
    %first = cmp.lt %l, %one : bool
    %alone = cmp.lt %s, %one : bool
    %both = arith.and %first, %alone : bool
    {}
  }}
}}"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("store %a, %B[%zero]", [STORES]),
        ("store.atomic %a, %B[%zero]", []),
        ("if %first { store %a, %B[%zero] }", []),
        ("if %both { store %a, %B[%zero] }", []),
        ("if %c { store %a, %B[%zero] }", [STORES]),
        ("store %least, %B[%zero]", []),
        ("store %least, %tmp[%i] barrier.local %x = load %tmp[%zero] : f32", []),
        ("for %k:i32=%l,%one { store %a, %B[%zero] }", []),
        ("%v = subview %B[%i:1] : memref<f32x1> store %a, %v[%zero]", []),
        ("%v = subview %B[%zero:1] : memref<f32x1> store %a, %v[%zero]", [STORES]),
        ("if %c { store %a, %tmp[%i] } else { %x = load %B[%zero] : f32 }", []),
    ],
)
def test_conditions_atomics_and_views(body: str, found: list[str]) -> None:
    assert codes(GUARDED.format(body)) == found


def test_matrices_are_stored_by_subgroups() -> None:
    text = """func @k(%A: memref<f32x64x64>, %B: memref<f32x64x64>)
      attributes{{subgroup_size=8, work_group_size=[8,4]}} {{
      %zero = constant 0 : index %eight = constant 8 : index
      parallel {{
        %s = builtin.subgroup_id : i32 %j = cast %s : index %x = arith.mul %j, %eight : index
        %a = cooperative_matrix_load.n %A[%x,%zero] : coopmatrix<f32x8x8,matrix_acc>
        cooperative_matrix_store %a, %B[{},%zero]
      }}
    }}"""
    assert codes(text.format("%x")) == []
    assert codes(text.format("%zero")) == [STORES]
