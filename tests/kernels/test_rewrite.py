"""Names of values: each its own, and programs that mean what they meant."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from lamella.backend.interpreter import compile_program
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.kernels.build import names_of
from lamella.kernels.passes import lower
from lamella.kernels.rewrite import copy_region, make_names_unique, rename_region, walk
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse
from lamella.lang.tensor import nodes as n
from lamella.lang.tensor.check.context import defined_values
from tests.support.strategies.tensor_kernels import Kernel, kernels

TWICE = """func @f(%A: memref<i32x3>) {
  %0 = constant 0 : index
  %2 = constant 2 : index
  %one = constant 1 : i32
  %x = for %i:index=%0,%2 init(%x=%one) -> (i32) {
    %y = arith.add %x, %x : i32
    yield (%y)
  }
  foreach (%i)=(%0),(%2) {
    %y = arith.add %x, %one : i32
    store %y, %A[%i]
  }
  %y = for %i:index=%0,%2 init(%z=%x) -> (i32) {
    %y = arith.mul %z, %x : i32
    yield (%y)
  }
  store %y, %A[%2]
}
"""


def test_names_that_come_twice_are_told_apart() -> None:
    program = parse(Source("a.tensor", TWICE)).program
    apart = n.Program((make_names_unique(program.functions[0]),))
    names = [item.name for item in defined_values(apart.functions[0].body)]
    assert len(names) == len(set(names))
    results = []
    for item in (program, apart):
        found = np.zeros(3, np.int32)
        compile_program(item).f(found)
        results.append(found.tolist())
    assert results[0] == results[1] == [5, 5, 64]


@given(kernels())
def test_copies_have_names_of_their_own(kernel: Kernel) -> None:
    function = make_names_unique(parse(Source("a.tensor", kernel.text)).program.functions[0])
    copy = copy_region(function.body, names_of(function), {})
    old = {item.name for item in defined_values(function.body)}
    assert not old & {item.name for item in defined_values(copy)}
    assert len(list(walk(copy))) == len(list(walk(function.body)))


def test_deep_nesting_costs_no_stack() -> None:
    depth = 60
    text = "func @f(%A: memref<f32x4>) {\n%0 = constant 0 : index\n%1 = constant 1 : index\n%a = constant 1.0 : f32\n"
    text += "".join(f"for %i{k}:index=%0,%1 {{\n" for k in range(depth))
    text += "axpby.n %a, %A, %a, %A\n" + "}\n" * depth + "}\n"
    parsed = parse(Source("a.tensor", text))
    assert not errors([*parsed.findings, *check(parsed.program)])
    found = lower(parsed.program, find_target("cpu-avx512"))
    assert not errors(check(found))


def test_regions_of_any_depth_are_walked_and_rewritten() -> None:
    region = n.Region((n.Statement((n.Value("x"),), n.Constant(1, n.INDEX)),))
    for _ in range(20_000):
        region = n.Region((n.Statement((), n.If(n.Value("c"), region)),))
    renamed = rename_region(region, {"c": n.Value("d"), "x": n.Value("y")})
    conditions = [
        item.instruction.condition.name for item in walk(renamed) if isinstance(item.instruction, n.If)
    ]
    assert conditions == ["d"] * 20_000
    assert [item.results[0].name for item in walk(renamed) if item.results] == ["y"]
