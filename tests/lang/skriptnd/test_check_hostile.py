"""Hostile definitions: clean findings, no expansion, work that grows like the text.

Work is counted in calls of Python functions, which no other process disturbs.
"""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Source
from lamella.lang.skriptnd import Document, check, parse
from tests.support.lang.skriptnd.library import FOLDER, find
from tests.support.strategies.mutation import mutants
from tests.support.strategies.skriptnd import documents

SMALL, TIMES = 60, 10
MEBIBYTE = 1 << 20
ATTRIBUTES = "@attrib { a: int; b: bool; p: int..(k); o: optional int; }"


def use(text: str) -> str:
    return f"operator f {{ {ATTRIBUTES} @using {{ u = {text}; }} }}"


def many(count: int, line: Callable[[int], str]) -> str:
    return "".join(line(number) for number in range(count))


ATTACKS: dict[str, Callable[[int], str]] = {
    "a long sum": lambda n: use(" + ".join(["a"] * n)),
    "a long product": lambda n: use(" * ".join(["a"] * n)),
    "a product of sums": lambda n: use(" * ".join(f"(a + {i} + k)" for i in range(n))),
    "a long quotient": lambda n: use(" / ".join(["a"] * n)),
    "a tower of powers": lambda n: use(" ** ".join(["9"] * n)),
    "large numbers": lambda n: use(" * ".join(["9" * 50] * n)),
    "squares of squares": lambda n: (
        f"operator f {{ {ATTRIBUTES} @using {{ u0 = a; {many(n, lambda i: f'u{i + 1} = u{i} * u{i} + a;')} }} }}"
    ),
    "quotients of quotients": lambda n: (
        f"operator f {{ {ATTRIBUTES} @using {{ u0 = a; {many(n, lambda i: f'u{i + 1} = u{i} / a + u{i} % a;')} }} }}"
    ),
    "a long list": lambda n: use("[" + ", ".join(["a", "p.."] * n) + "]"),
    "unknown names": lambda n: f"operator f {{ @using {{ {many(n, lambda i: f'u{i} = v{i};')} }} }}",
    "one name often": lambda n: f"operator f {{ @attrib {{ {many(n, lambda i: 'a: int;')} }} }}",
    "one operator often": lambda n: many(n, lambda i: "operator f { @attrib { a: int; } }\n"),
    "defaults in a chain": lambda n: (
        f"operator f {{ @attrib {{ {many(n, lambda i: f'a{i}: int = a{i + 1};')} a{n}: int; }} }}"
    ),
    "inputs that wait": lambda n: (
        f"operator f {{ @input {{ {many(n, lambda i: f'x{i}: real[s{i}..,s{i + 1}..];')} z: real[s{n}..]; }} }}"
    ),
    "printed values": lambda n: (
        f"operator f {{ {ATTRIBUTES} @assert {{ a > 0: '{'{a}' * n}'{', a' * n}; }} }}"
    ),
    "components": lambda n: (
        "operator g { @input { x: real[s..]; } @output { y: real[s..]; } }"
        f"operator f {{ @input {{ x0: real[n]; }} @output {{ y: real[n]; }} @compose {{"
        f"{many(n, lambda i: f'x{i + 1} = g(x{i});')} y = g(x{n}); }} }}"
    ),
    "operators in a chain": lambda n: many(
        n,
        lambda i: (
            f"operator g{i} {{ @input {{ x: real[n]; }} @output {{ y: real[n]; }} "
            f"@compose {{ y = g{i + 1}(x); }} }}\n"
        ),
    ),
    "formulas": lambda n: (
        f"operator f {{ @input {{ x: real[n]; }} @output {{ y: real[n]; }} @lower {{"
        f"{many(n, lambda i: 'y[i,] += x[i,], i < n;')} }} }}"
    ),
}


def checked(text: str) -> list[Diagnostic]:
    return check(parse(Source("attack.sknd", text)).document)


def count_calls(work: Callable[[], object]) -> int:
    """How many Python functions are called."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("make", ATTACKS.values(), ids=ATTACKS.keys())
def test_work_grows_like_the_text(make: Callable[[int], str]) -> None:
    small, large = (parse(Source("attack.sknd", make(size))).document for size in (SMALL, SMALL * TIMES))
    check(small)
    assert count_calls(lambda: check(large)) <= 2 * TIMES * count_calls(lambda: check(small))


HUGE = {
    "a pack of a million million": (use("[a ..(1000000000000)]"), []),
    "a range of a million million": (use("[0:1000000000000]"), []),
    "packs that are too long to be built": (use("[0:1000000000000] + [0:1000000000001]"), ["SKR095"]),
    "a rank of a million million": (
        "operator f { @input { x: real[1 ..(1000000000000)]; } @output { y: real[]; } "
        "@lower { y[] += x[0 ..(1000000000001)]; } }",
        ["SKR168"],
    ),
    "powers of powers": (use("9 ** 9 ** 9 ** 9"), []),
    "a shift that is a minimum": (use("1 << 1000000000000"), []),
    "a real exponent of an int": (use("(-1) ** 0.5"), ["SKR070"]),
    "division by zero": (use("[a / 0, a % 0, a \\ 0]"), ["SKR100", "SKR100", "SKR100"]),
    "a not-a-number as an extent": (
        "operator f { @output { y: real[0.0 / 0.0]; } }",
        ["SKR125"],
    ),
    "null as an extent": (
        "operator f { @attrib { n: optional int; } @output { y: real[n + 1]; } @lower { y[0,] = 1.0; } }",
        [],
    ),
    "an extent bound twice": ("operator f { @input { x: real[n]; y: real[n + 1]; z: real[2 * n]; } }", []),
    "an extent of 2 ** 63": ("operator f { @output { y: real[9223372036854775808]; } }", []),
    "names twice": (
        "operator f { @attrib { a: int; } @input { a: real[n]; } @output { n: real[n]; } }",
        ["SKR030", "SKR030"],
    ),
    "an unroll of a thousand million": (
        "operator f { @input { x: real[n]; } @output { y: real[n]; } "
        "@compose { y = with z = x unroll..(1000000000) { yield z; }; } }",
        [],
    ),
}


@pytest.mark.parametrize(("text", "codes"), HUGE.values(), ids=HUGE.keys())
def test_what_is_huge_is_not_built(text: str, codes: list[str]) -> None:
    document = parse(Source("attack.sknd", text)).document
    tracemalloc.start()
    found = [item.code for item in check(document)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == codes
    assert peak < MEBIBYTE


@pytest.mark.parametrize("depth", [50, 95])
@pytest.mark.parametrize(
    ("head", "core", "tail"),
    [
        ("(1 + ", "a", ")"),
        ("[", "a", "]"),
        ("p[", "0", "]"),
        ("b ? ", "1", " : 2"),
        ("b ? 1 : ", "2", ""),
        ("o ?? ", "1", ""),
        ("`abs`(", "a", ")"),
        ("int(", "a", ")"),
        ("-", "a", ""),
        ("(p[0] <- ", "1", ")[0]"),
        ("(p + ..) + (", "1", ")"),
    ],
)
def test_nesting_up_to_the_limit_is_walked(head: str, core: str, tail: str, depth: int) -> None:
    checked(use(head * depth + core + tail * depth))


def test_mutated_operators_never_break_the_checks() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.sknd"))]
    seed = random.Random(7).randrange(1 << 30)
    for text in mutants(texts, 40, seed):
        for finding in check(parse(Source("mutant.sknd", text)).document, "main", find):
            assert str(finding)


@given(documents())
def test_any_document_is_checked_without_an_exception(document: Document) -> None:
    for finding in check(document, "main", find):
        assert finding.code.startswith("SKR")
        assert finding.message
