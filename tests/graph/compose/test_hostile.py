"""Texts that ask for too much: budgets stop them, with one finding and in time that the budget bounds."""

from __future__ import annotations

import sys

import pytest

from lamella.base.limits import Limits
from tests.support.graph.compose.composing import attempt, build, codes, findings, flow

SMALL = Limits(max_operations=2000)


def nested(counts: list[str]) -> str:
    """Unrolled loops inside each other."""
    text = "math.exp(a)"
    for count in counts:
        text = f"{{ b = with a = a unroll..({count}) {text}; yield b; }}"
    return f"y = with a = x unroll..(1) {text};"


@pytest.mark.parametrize("count", ["1000000000", "10 ** 18", "10 ** 1000"])
def test_an_endless_unroll_is_refused_at_once(count: str) -> None:
    assert codes(flow(f"y = with a = x unroll..({count}) math.exp(a);")) == ["SKR315"]


def test_nested_unrolls_multiply() -> None:
    assert codes(flow(nested(["1000", "1000", "1000"]))) == ["SKR315"]
    assert codes(flow(nested(["50", "50"])), SMALL) == ["SKR315"]
    assert len(build(flow(nested(["4", "5"]))).nodes) == 20


def recursive(condition: str, attribute: str, extra: str = "") -> str:
    """An operator that composes itself."""
    return f"""
    operator f {{
        @attrib {{ n: int; }}
        @input {{ x: real[k]; }}
        @output {{ y: real[k]; }}
        @compose {{
            t = math.exp(x);
            {extra}
            y = if {condition} then f{{n={attribute}}}(t) else t;
        }}
    }}
    """


@pytest.mark.parametrize("depth", [1, 5, 150])
def test_an_operator_may_compose_itself_and_stop(depth: int) -> None:
    graph = build(recursive("n > 1", "n - 1") + flow(f"y = f{{n={depth}}}(x);"))
    assert [item.operator for item in graph.operations()].count("math.exp") == depth


@pytest.mark.parametrize("attribute", ["n", "n + 1", "n - 1"])
def test_an_operator_that_never_stops_is_stopped(attribute: str) -> None:
    before = sys.getrecursionlimit()
    assert codes(recursive("true", attribute) + flow("y = f{n=1}(x);")) == ["SKR314"]
    assert sys.getrecursionlimit() == before


def test_an_operator_that_composes_itself_twice_is_stopped_as_well() -> None:
    text = recursive("true", "n + 1", "u = f{n=n + 1}(t);")
    assert codes(text + flow("y = f{n=1}(x);")) == ["SKR314"]


def test_a_tree_of_calls_meets_the_budget() -> None:
    text = recursive("n > 0", "n - 1", "u = if n > 0 then f{n=n - 1}(t) else t;")
    assert codes(text + flow("y = f{n=40}(x);"), SMALL) == ["SKR315"]


def test_operators_that_compose_each_other() -> None:
    text = """
    operator f {
        @input { x: real[k]; }
        @output { y: real[k]; }
        @compose { t = math.exp(x); y = g(t); }
    }
    operator g {
        @input { x: real[k]; }
        @output { y: real[k]; }
        @compose { t = math.sin(x); y = f(t); }
    }
    """
    (finding,) = findings(text + flow("y = f(x);"))
    assert finding.code == "SKR314"


def test_blocks_as_deep_as_the_limit() -> None:
    depth = 80
    text = "y = " + "{ a = " * depth + "x; yield a; }" + "; yield a; }" * (depth - 1) + ";"
    assert len(build(flow(text)).nodes) == 1


def test_a_loop_that_never_ends_is_composed_once() -> None:
    assert len(build(flow("y = with a = x while true do math.exp(a);")).nodes) == 1


def test_a_long_scan_counts() -> None:
    components = "y, ys = with a = x do..(100000) { b = math.exp(a); yield b, b; };"
    assert codes(flow(components), SMALL) == ["SKR315"]


def test_work_grows_with_the_text() -> None:
    """Twice the components cost twice the work, counted in calls of functions."""

    def work(count: int) -> int:
        lines = "\n".join(f"a{k + 1} = math.add(a{k}, x);" for k in range(count))
        text = flow(f"a0 = math.exp(x);\n{lines}\ny = math.exp(a{count});")
        calls = 0

        def tick(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        attempt(text)
        sys.setprofile(tick)
        try:
            assert attempt(text).graph is not None
        finally:
            sys.setprofile(None)
        return calls

    small, large = work(100), work(400)
    assert large < 4.4 * small
