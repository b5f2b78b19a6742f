"""Hostile Module DSL programs by their case in the list of attacks, M1 to M9; what is found in each.

M4 about checkpoints and M9 about folders need weights, M6 needs gradients: tests/security/test_module.py has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

LONG, MOST = 10_000, 1000
MANY = 50_000


@dataclass(frozen=True, slots=True)
class Attack:
    """A program as files, of which `main.module` is checked; the code that must be found, none where it is right."""

    code: str
    make: Callable[[], str]
    files: Mapping[str, str] = field(default_factory=dict)


def module(
    graph: str = "x -> y", params: str = "", head: str = "module M(d: int = 4):", lets: str = ""
) -> str:
    """A module of one input and one output."""
    parts = [head]
    parts += ["  let:", f"    {lets}"] if lets else []
    parts += ["  params:", f"    {params}"] if params else []
    lines = "\n".join(f"      {line}" for line in graph.split("\n"))
    return "\n".join(
        [*parts, "  forward:", "    in: x: [B, d]", "    out: y: [B, d]", "    graph:", lines, ""]
    )


def nested(levels: int) -> str:
    """M1: guards inside guards."""
    guards = "".join(f"{' ' * (6 + level)}if true:\n" for level in range(levels))
    return f"module M(d: int = 4):\n  forward:\n    graph:\n{guards}{' ' * (6 + levels)}x -> y\n"


def towers(levels: int, width: int) -> str:
    """M2: a model of models, each of which holds so many of the next."""
    lines = ["module L0():\n  params:\n    w: [1]\n"]
    for level in range(levels):
        lines.append(f"module L{level + 1}():\n  params:\n    inner: [{width}] x L{level}()\n")
    return "\n".join(lines)


def twins(levels: int) -> str:
    """M2: each module holds the next twice."""
    lines = ["module L0():\n  params:\n    w: [1]\n"]
    lines += [
        f"module L{level + 1}():\n  params:\n    a: L{level}()\n    b: L{level}()\n"
        for level in range(levels)
    ]
    return "\n".join(lines)


def statements(count: int, elements: int) -> str:
    """M2: a long graph, often."""
    body = "\n".join(["x -> x0", *(f"x{n} -> relu() -> x{n + 1}" for n in range(count)), f"x{count} -> y"])
    inner = module(body, head="module Inner(d: int = 4):")
    return f"{inner}\n{module('x -> inner() -> y', f'inner: [{elements}] x Inner(d)')}"


def layered(count: int) -> str:
    """M2: elements that all differ."""
    inner = module("(x, w) -> mul() -> y", "w: [d]", "module Inner(d: int, n: int):")
    return f"{inner}\n{module('x -> inner() -> y', f'inner: [{count}] x Inner(d, layer)')}"


def extending(count: int, first: str) -> str:
    """M3: each module extends the next, the last another one."""
    names = [f"module A{n} extends A{n + 1}:\n  forward:\n    graph:\n      x -> y\n" for n in range(count)]
    return "\n".join([*names, f"module A{count} extends {first}:\n  forward:\n    graph:\n      x -> y\n"])


def mapped(*entries: str) -> str:
    """M4: a module of two tensors with a mapping."""
    lines = "".join(f"    {entry}\n" for entry in entries)
    return module("(x, w) -> mul() -> y", "w: [d]\n    v: [2 * d]") + f"  hf_mapping:\n{lines}"


def backward(*statements: str, recompute: str = "") -> str:
    """M6: a module with a backward graph."""
    lines = "".join(f"      {line}\n" for line in statements)
    again = "".join(f"        {line}\n" for line in recompute.split("\n")) if recompute else ""
    block = f"      recompute:\n{again}" if again else ""
    text = module("(x, w) -> mul() -> h\nh -> relu() -> y", "w: [d]")
    return f"{text}    save: [x, h]\n  backward:\n    graph:\n{block}{lines}"


GROUPS: Mapping[str, Mapping[str, Attack]] = {
    "M1": {
        "tabs": Attack("E001", lambda: "module M():\n\tforward:\n\t\tgraph:\n\t\t\tx -> y\n"),
        "tabs and spaces": Attack("E001", lambda: "module M():\n  forward:\n \t  graph:\n      x -> y\n"),
        "ten thousand levels": Attack("E101", lambda: nested(LONG)),
        "back to nowhere": Attack(
            "E001", lambda: "module M():\n    forward:\n        graph:\n      x -> y\n"
        ),
        "a hundred thousand steps in and out": Attack(
            "E001", lambda: "module M():\n" + "".join(f"{' ' * (n % 7 + 1)}x\n" for n in range(MANY))
        ),
        "brackets": Attack("E101", lambda: module(f"x -> scale({'(' * LONG}1{')' * LONG}) -> y")),
    },
    "M2": {
        "a long array": Attack(
            "E101",
            lambda: module("x -> y", "n: [1_000_000_000_000] x M2()") + module(head="module M2(d: int = 4):"),
        ),
        "a length that overflows": Attack(
            "E003", lambda: module("x -> y", "n: [10 ** 400] x M2()") + module(head="module M2(d: int = 4):")
        ),
        "a model of models": Attack("E101", lambda: towers(12, 100)),
        "twins of twins": Attack("E101", lambda: twins(60)),
        "a long graph, often": Attack("E101", lambda: statements(500, 190_000)),
        "elements that differ": Attack("E101", lambda: layered(60_000)),
        "elements that differ, as many as may be": Attack("", lambda: layered(2000)),
        "a huge tensor": Attack("E003", lambda: module("x -> y", "w: [99999999999, 99999999999]")),
        "a huge constant": Attack(
            "E003",
            lambda: module("(x, c) -> mul() -> y").replace(
                "  forward", "  constants:\n    c: zeros(99999999, 99999999)\n  forward"
            ),
        ),
        "a huge list": Attack("E002", lambda: module(f"x -> view([{', '.join(['d'] * MANY)}, q]) -> y")),
    },
    "M3": {
        "extends itself": Attack("E011", lambda: extending(0, "A0")),
        "a circle of parents": Attack("E011", lambda: extending(50, "A0")),
        "a long line of parents": Attack(
            "E101", lambda: extending(MOST, "A0").replace(f"A{MOST} extends A0", f"A{MOST}()")
        ),
        "a circle of files": Attack(
            "E007",
            lambda: "import other.B\n" + module(),
            {"other.module": "import main.M\nmodule B():\n  params:\n    w: [1]\n"},
        ),
        "a file outside": Attack("E001", lambda: "import ..secret.B\n" + module()),
        "a huge version": Attack("E001", lambda: "import std.primitives.matmul.v99999999999\n" + module()),
        "a huger version": Attack("E001", lambda: f"import std.primitives.matmul.v{'9' * LONG}\n" + module()),
        "a lock that points elsewhere": Attack(
            "E102",
            lambda: "import std.modules.linear.Linear\n" + module(),
            {"module.lock": "version: 1\nresolved_modules:\n  std.modules.linear: ../../../etc/passwd\n"},
        ),
    },
    "M4": {
        "an unknown function": Attack("E010", lambda: mapped('w: transform("a", fn: __import__)', 'v: "b"')),
        "a function that is text": Attack(
            "E001", lambda: mapped('w: transform("a", fn: "os.system(1)")', 'v: "b"')
        ),
        "an index on one side": Attack("E010", lambda: mapped('w: "a.{i}"', 'v: "b"')),
        "a parameter that is not there": Attack(
            "E010", lambda: mapped('w: "a"', 'v: "b"', 'ghost: "../../c"')
        ),
        "many entries": Attack("E010", lambda: mapped(*(f'ghost{n}: "a{n}"' for n in range(LONG)))),
    },
    "M5": {
        "division by zero": Attack("E003", lambda: module(lets="n = d // (d - d)")),
        "remainder of zero": Attack("E003", lambda: module(lets='constraint: d % (d - 4) == 0, "never"')),
        "real division by zero": Attack("E003", lambda: module(lets="n = 1.0 / (d - 4)")),
        "lets that use each other": Attack("E002", lambda: module(lets="a = b\n    b = a")),
        "a long line of squares": Attack(
            "E003",
            lambda: module(
                lets="c0 = 3\n    " + "\n    ".join(f"c{n + 1} = c{n} * c{n}" for n in range(LONG))
            ),
        ),
        "a huge power": Attack("E003", lambda: module(lets="n = 9 ** 9 ** 9 ** 9")),
        "no number": Attack("E003", lambda: module(lets="n = sqrt(0 - 1)")),
        "a runtime division": Attack("E003", lambda: module("x -> scale(1.0 / (B - B)) -> y")),
    },
    "M7": {
        "a wrong kind": Attack("E008", lambda: module("x -> relu() -> y @memory(7)")),
        "an unknown name": Attack("E008", lambda: module("x -> relu() -> y @__class__")),
        "a huge list": Attack(
            "E008", lambda: module(f"x -> relu() -> y @adapter(lora, rank=[{', '.join(['1'] * MANY)}])")
        ),
        "a huge number": Attack(
            "E001", lambda: module("x -> relu() -> y @memory(offload, priority=99999999999999999999999)")
        ),
        "many annotations": Attack("E008", lambda: module(f"x -> relu() -> y {'@x ' * LONG}")),
        "a condition that calls": Attack(
            "E008", lambda: module('x -> relu() -> y @assert(__import__("os"), message="m")')
        ),
    },
    "M8": {
        "escapes in a docstring": Attack("", lambda: '"""\x1b]0;owned\x07 \x9b2J"""\n' + module()),
        "escapes in a message": Attack(
            "E027", lambda: module(lets='constraint: d == 5, "\\u001b[2J\\u009b2J"')
        ),
        "escapes in a name": Attack("E001", lambda: module("x\x1b[31m -> relu() -> y")),
        "letters from the right": Attack("E001", lambda: module("x\u202e -> relu() -> y")),
        "an endless docstring": Attack("E001", lambda: '"""' + "a\n" * MANY),
    },
    "M9": {
        "a class as an architecture": Attack(
            "",
            lambda: (
                module() + '  hf_config:\n    architecture: "os.system"\n    model_type: "subprocess.Popen"\n'
            ),
        ),
        "a parameter that is not there": Attack(
            "E010",
            lambda: (
                module() + '  hf_config:\n    architecture: "X"\n    param_mapping:\n      ghost: __class__\n'
            ),
        ),
    },
}
"""Attacks by the case of the list that they are."""
