"""Hostile SkriptND texts by their case in the list of attacks, S1 to S12, with the codes that they must give.

Import circles, links and module folders are in test_skriptnd_files.py, since they need files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

MANY = 30_000
NOTHING = ""


@dataclass(frozen=True, slots=True)
class Attack:
    """A text, and the code of the error that `check`, `show` and `run` must give; NOTHING where it is right."""

    make: Callable[[], str]
    check: str = NOTHING
    run: str | None = None
    """Where it differs from what `show` gives, which composes and goes no further."""
    early: bool = False
    """Whether `check`, which goes the way of `run`, finds it too."""


def graph(
    body: str = "y = math.iden(x);",
    inputs: str = "x: real[4];",
    outputs: str = "y: real[4];",
    before: str = NOTHING,
) -> str:
    """A graph, by default one that is right."""
    head = f"import math, layout, nn, linalg, quant;\n{before}\n"
    return f"{head}graph G {{ @input {{ {inputs} }} @output {{ {outputs} }} @compose {{ {body} }} }}\n"


def operator(sections: str, name: str = "f") -> str:
    """An operator on vectors."""
    return f"operator {name} {{ @input {{ x: real[n]; }} @output {{ y: real[n]; }} {sections} }}\n"


def called(sections: str) -> str:
    """A graph that calls an operator."""
    return graph("y = f(x);", before=operator(sections))


def lowered(formula: str) -> str:
    return called(f"@lower {{ {formula} }}")


def used(*values: str) -> str:
    """An operator that computes values before the run, `u0` and more."""
    lines = "".join(f"u{number} = {value};" for number, value in enumerate(values))
    return called(f"@using {{ {lines} }} @assert {{ u0 == u0; }} @lower {{ y[i,] = x[i,], i < n; }}")


def extent(value: str) -> str:
    """A tensor of a computed extent."""
    return graph(f"y = layout.uniform{{shape=[{value}]}}(1.0);", outputs="y: real[~];")


def asserted(message: str) -> str:
    """An assertion that does not hold."""
    return called(f"@assert {{ n > 100: {message}; }} @lower {{ y[i,] = x[i,], i < n; }}")


def nested(depth: int, first: str, opening: str, closing: str) -> str:
    """Blocks in blocks; `{n}` is the level."""
    levels = range(depth)
    start = "".join(opening.replace("{n}", str(n)) for n in levels)
    return start + first + "".join(closing.replace("{n}", str(n)) for n in reversed(levels))


def chained(count: int, make: Callable[[int], str]) -> str:
    """Operators that call each other."""
    return "".join(operator(f"@compose {{ {make(n)} }}", f"g{n}") for n in range(count))


def step(sign: str) -> str:
    """An operator that calls itself with another attribute."""
    body = f"y = if k == 0 then math.neg(x) else f{{k=k {sign} 1}}(x);"
    head = "operator f { @attrib { k: int; } @input { x: real[n]; } @output { y: real[n]; }"
    return f"{head} @compose {{ {body} }} }}"


LEVELS = "SKR007"
LARGE = "SKR261"
MEMORY = "SKR325"
IDEN = "math.iden(x); "

S1: Mapping[str, Attack] = {
    "parentheses": Attack(lambda: used("(" * MANY + "1" + ")" * MANY), LEVELS),
    "lists": Attack(lambda: used("[" * MANY + "1" + "]" * MANY), LEVELS),
    "minus": Attack(lambda: used("-" * MANY + "1"), LEVELS),
    "choices": Attack(lambda: used("true ? 1 : " * MANY + "1"), LEVELS),
    "defaults": Attack(lambda: used("1 ?? " * MANY + "1"), LEVELS),
    "indices": Attack(lambda: used("n" + "[0]" * MANY), LEVELS),
    "blocks": Attack(lambda: graph("y = " + nested(MANY, IDEN, "{ z{n} = ", "yield z{n}; };")), LEVELS),
    "blocks allowed": Attack(lambda: graph("y = " + nested(95, IDEN, "{ z{n} = ", "yield z{n}; };"))),
    "branches": Attack(
        lambda: graph(
            "y = " + nested(99, IDEN, "if c then { z{n} = ", "yield z{n}; } else math.neg(x);"),
            "x: real[4]; c: bool[];",
        )
    ),
    "loops": Attack(
        lambda: graph("y = " + nested(90, IDEN, "with a{n} = x do..(2) { z{n} = ", "yield z{n}; };")),
        run="SKR335",
    ),
    "elif": Attack(
        lambda: graph(
            f"y = if c then {IDEN[:-2]} {'elif c then math.neg(x) ' * 1000} else x;", "x: real[4]; c: bool[];"
        )
    ),
    "sum": Attack(lambda: used(" + ".join(["n"] * MANY))),
    "formula": Attack(lambda: lowered(f"y[i,] = {' + '.join(['x[i,]'] * 8_000)}, i < n;"), run=LARGE, early=True),
    "calls": Attack(lambda: graph(f"y = {'math.iden(' * MANY}x{')' * MANY};"), "SKR017"),
    "operators": Attack(
        lambda: graph(
            "y = g0(x);",
            before=chained(400, lambda n: f"y = g{n + 1}(x);") + operator("@compose { y = x; }", "g400"),
        ),
        "SKR314",
    ),
}  # fmt: skip
S2: Mapping[str, Attack] = {
    "power": Attack(lambda: used("9 ** (9 ** 9)"), LARGE),
    "tower": Attack(lambda: used("9 ** 9 ** 9 ** 9 ** 9 ** 9"), LARGE),
    "minimum": Attack(lambda: used("1 << 10 ** 12")),
    "root": Attack(lambda: used("(-1.0) ** 0.5"), "SKR283"),
    "zero": Attack(lambda: used("1 / 0"), "SKR100"),
    "modulo": Attack(lambda: used("1 % (n - n)"), "SKR100"),
    "nan": Attack(lambda: extent("int(0.0 / 0.0)"), "SKR260"),
    "infinity": Attack(lambda: extent("int(1.0 / 0.0)"), run=MEMORY, early=True),
    "large real": Attack(lambda: extent("int(1e308)"), "SKR284"),
    "larger real": Attack(lambda: extent("int(1e400)"), "SKR004"),
    "exponent": Attack(lambda: used("1e" + "9" * 5000), "SKR004"),
    "digits": Attack(lambda: used("9" * 1_000_000), "SKR004"),
    "squares": Attack(lambda: used("3", *(f"u{n} * u{n}" for n in range(40))), LARGE),
    "strings": Attack(lambda: used("'abc'", *(f"u{n} + u{n}" for n in range(40))), LARGE),
    "sums of packs": Attack(lambda: used("[0:100000]" + " + 1" * 20_000), LARGE),
    "many packs": Attack(lambda: used("[0:100000]", *(f"u{n} + 1" for n in range(200))), LARGE),
    "indices of packs": Attack(lambda: used("[0:100000]", *(f"u{n}[u{n}]" for n in range(200))), LARGE),
    "packs": Attack(lambda: used("[1, 2]", *(f"[u{n}.., u{n}..]" for n in range(40))), LARGE),
}
S3: Mapping[str, Attack] = {
    "pack": Attack(lambda: used("[1 ..(10 ** 12)]"), LARGE),
    "range": Attack(lambda: used("[0 : 10 ** 12]"), LARGE),
    "backward": Attack(lambda: used("[10 ** 18 : 0 : -1]"), LARGE),
    "wide range": Attack(lambda: used("[0 : 10 ** 300 : 10 ** 298]")),
    "zip": Attack(lambda: used("[0:1000000]", f"[({', '.join(['u0'] * 2000)})..]"), LARGE),
    "rank": Attack(
        lambda: graph(inputs="x: real[1 ..(10 ** 5)];", outputs="y: real[1 ..(10 ** 5)];"), "SKR287"
    ),
    "tensors": Attack(lambda: graph("y = math.sum_n(x);", "x: real[4]..(10 ** 9);"), LARGE),
    "open pack": Attack(lambda: graph("y = math.sum_n(x);", "x: real[4]..(k|10 ** 15);"), LARGE),
    "lengths": Attack(lambda: used("[1, 2, 3] + [1, 2]"), "SKR095"),
    "differ": Attack(lambda: used("[0:100000] != ..")),
    "product": Attack(lambda: used("[1:1000000] * .."), LARGE),
    "constant": Attack(
        lambda: called("@constant { c: real[3] = 1.0, i < 10 ** 30; } @lower { y[i,] = x[i,], i < n; }"),
        LARGE,
    ),
}
S4: Mapping[str, Attack] = {
    "unroll": Attack(lambda: graph("y = with a = x unroll..(10 ** 9) math.neg(a);"), "SKR315"),
    "nest": Attack(
        lambda: graph(
            "y = with a = x unroll..(1000) { b = with c = a unroll..(1000) { e = with d = c unroll..(1000) "
            "math.neg(d); yield e; }; yield b; };"
        ),
        "SKR315",
    ),
    "operators": Attack(
        lambda: graph(
            "y = g9(x);",
            before=operator("@compose { y = math.neg(x); }", "g") + chained(
                10, lambda n: f"y = with a = x unroll..(10) g{n - 1 if n else ''}(a);"
            ),
        ),
        "SKR315",
    ),
    "formula": Attack(lambda: lowered("unroll..(k -> 10 ** 9) y[i,] = x[i,], i < n;"), run=LARGE, early=True),
}  # fmt: skip
S5: Mapping[str, Attack] = {
    "itself": Attack(lambda: called("@compose { y = f(x); }"), "SKR044"),
    "each other": Attack(
        lambda: graph(
            "y = f(x);", before=operator("@compose { y = g(x); }") + operator("@compose { y = f(x); }", "g")
        ),
        "SKR044",
    ),
    "shrinking": Attack(lambda: graph("y = f{k=20}(x);", before=step("-"))),
    "shrinking slowly": Attack(lambda: graph("y = f{k=10 ** 6}(x);", before=step("-")), "SKR314"),
    "growing": Attack(lambda: graph("y = f{k=1}(x);", before=step("+")), "SKR314"),
    "graph": Attack(lambda: graph("y = G(x);"), "SKR044"),
}
S6: Mapping[str, Attack] = {
    "while": Attack(lambda: graph("y = with a = x while true do math.neg(a);"), run="SKR335"),
    "behind": Attack(lambda: graph("y = with a = x do math.neg(a) while true;"), run="SKR335"),
    "count": Attack(lambda: graph("y = with a = x do..(2 ** 64) math.neg(a);"), run="SKR335"),
    "nest": Attack(
        lambda: graph("y = with a = x do..(300) { b = with c = a do..(300) math.neg(c); yield b; };"), run="SKR335"
    ),
    "negative": Attack(lambda: graph("y = with a = x do..(-5) math.neg(a);"), "SKR309"),
    "collected": Attack(
        lambda: graph(
            "y, z..(900) = with a = x do..(900) { b = math.neg(a);"
            " c = layout.uniform{shape=[999,99]}(1.0); yield b, c; };",
            outputs="y: real[4]; z: real[999,99]..(900);",
        ),
        run=MEMORY,
    ),
}  # fmt: skip
S8: Mapping[str, Attack] = {
    "operator": Attack(lambda: graph(before="operator f { }\n" * 1000), "SKR040"),
    "attribute": Attack(lambda: called("@attrib { " + "a: int = 1;" * 1000 + " }"), "SKR030"),
    "tensor": Attack(lambda: graph("y = math.iden(x); y = math.iden(x);"), "SKR200"),
    "label": Attack(lambda: graph("z = a: math.iden(x); y = a: math.iden(z);"), "SKR217"),
    "section": Attack(lambda: called("@lower { y[i,] = x[i,], i < n; } " * 2), "SKR013"),
}
S9: Mapping[str, Attack] = {
    "arguments": Attack(lambda: asserted("'x'" + ", n" * 10_000), "SKR283"),
    "holes": Attack(lambda: asserted("'" + "{n}" * 10_000 + "'"), "SKR283"),
    "width": Attack(lambda: asserted("'{n:1000000000d}'"), "SKR001"),
    "attributes": Attack(lambda: asserted("'{n.__class__}'"), "SKR001"),
    "power": Attack(lambda: asserted("'{9 ** (9 ** 9)} {[0:10 ** 12]}'"), "SKR283"),
    "nest": Attack(lambda: asserted("'{" + "(" * MANY + "n" + ")" * MANY + "}'"), LEVELS),
    "escapes": Attack(lambda: asserted("'\x1b[2J \u202e \x9b31m', 'l\x1b': n"), "SKR283"),
    "large": Attack(lambda: asserted("'{2 ** 4000}', [0:1000000]"), "SKR283"),
}
S10: Mapping[str, Attack] = {
    "twice": Attack(lambda: graph("y = math.add(x, z);", "x: real[4]; z: real[5];"), "SKR283"),
    "null": Attack(
        lambda: graph(
            "y = f(x);",
            before="operator f { @attrib { k: optional int; } @input { x: real[n]; } @output { y: real[k]; }"
            " @lower { y[i,] = x[i,], i < n; } }",
        ),
        "SKR304",
    ),
    "zero": Attack(lambda: graph(inputs="x: real[0];", outputs="y: real[0];")),
    "2 ** 63": Attack(lambda: graph(inputs="x: real[2 ** 63];", outputs="y: real[2 ** 63];"), "SKR284"),
    "2 ** 62": Attack(lambda: graph(inputs="x: real[2 ** 62];", outputs="y: real[2 ** 62];"), run=MEMORY, early=True),
    "empty and large": Attack(
        lambda: graph(inputs="x: real[0, 2 ** 62, 2 ** 62];", outputs="y: real[0, 2 ** 62, 2 ** 62];"),
        run=MEMORY, early=True,
    ),
    "negative": Attack(lambda: graph(inputs="x: real[-1];", outputs="y: real[-1];"), "SKR133"),
    "bound": Attack(lambda: graph(inputs="x: real[n|10 ** 18];", outputs="y: real[n];")),
    "negative bound": Attack(lambda: graph(inputs="x: real[n|-1];", outputs="y: real[n];"), "SKR260"),
    "large bound": Attack(lambda: graph(inputs="x: real[n|2 ** 200];", outputs="y: real[n];"), "SKR260"),
}  # fmt: skip
S11: Mapping[str, Attack] = {
    "outside": Attack(lambda: lowered("y[i,] = x[i + 1,], i < n;"), run="SKR320", early=True),
    "before": Attack(lambda: lowered("y[i,] = x[i - 1,], i < n;"), run="SKR320", early=True),
    "far outside": Attack(lambda: lowered("y[i,] = x[i * 2 ** 62,], i < n;"), run="SKR320"),
    "target": Attack(lambda: lowered("y[i,] = x[0,], i < n + 9;"), run="SKR320", early=True),
    "wide": Attack(lambda: lowered("y[i,] = x[|i * 2 ** 63|,], i < n;"), run="SKR324", early=True),
    "reduction": Attack(lambda: lowered("y[i,] += x[|i + j|,], i < n, j < 10 ** 18;"), run="SKR323"),
    "squares": Attack(
        lambda: lowered(
            "z0 = i, " + "".join(f"z{n + 1} = z{n} * z{n}, " for n in range(100)) + "y[i,] = x[|z100|,], i < n;"
        )
    ),
    "sums": Attack(
        lambda: lowered(
            "z0 = x[i,], " + "".join(f"z{n + 1} = z{n} + z{n}, " for n in range(100)) + "y[i,] = z100, i < n;"
        )
    ),
    "alias": Attack(lambda: lowered("x[i,] = y[i,], i < n;"), "SKR160"),
    "itself": Attack(lambda: lowered("y[i,] = y[i - 1,], i < n;"), "SKR177"),
    "loops": Attack(
        lambda: lowered(f"y[i,] += x[i,], i < n, {', '.join(f'j{n} < 2' for n in range(200))};"),
        run="SKR326", early=True,
    ),
}  # fmt: skip
S12: Mapping[str, Attack] = {
    "name": Attack(lambda: graph(before=f"operator {'a' * 1_000_000} {{ }}"), LEVELS),
    "comments": Attack(lambda: "# x\n" * 60_000 + graph()),
    "one comment": Attack(lambda: "#" + "x" * 2_000_000 + "\n" + graph()),
    "mark": Attack(lambda: "\ufeff" + graph()),
    "two marks": Attack(lambda: "\ufeff\ufeff" + graph(), "SKR002"),
    "crlf": Attack(lambda: graph().replace("\n", "\r\n")),
    "cr": Attack(lambda: ("# c\n" + graph()).replace("\n", "\r")),
    "nul": Attack(lambda: graph() + "\0", "LAM001"),
    "surrogate": Attack(lambda: graph() + "# \udc80", "LAM001"),
    "look-alike": Attack(lambda: graph("y = m\u0430th.iden(x);"), "SKR002"),
    "override": Attack(lambda: graph("y = math.iden(\u202ex);"), "SKR002"),
    "nothing": Attack(lambda: "", run="SKR300"),
    "blanks": Attack(lambda: " \n" * 150_000, run="SKR300"),
    "signs": Attack(lambda: "@" * MANY, "SKR002"),
    "quotes": Attack(lambda: "'" * (MANY + 1), "SKR001"),
    "braces": Attack(lambda: "{" * MANY, "SKR001"),
    "string": Attack(lambda: graph(before=f"operator f {{ @attrib {{ a: str = '{'x' * 2_000_000}'; }} }}")),
}
GROUPS: Mapping[str, Mapping[str, Attack]] = MappingProxyType(
    {
        **{
            "S1": S1,
            "S2": S2,
            "S3": S3,
            "S4": S4,
            "S5": S5,
            "S6": S6,
            "S8": S8,
            "S9": S9,
            "S10": S10,
            "S11": S11,
        },
        "S12": S12,
    }
)
