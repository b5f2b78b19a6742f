"""Generated expressions, each with its value by plain Python."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate, pairwise
from math import prod
from typing import TypeAlias

from hypothesis import assume
from hypothesis import strategies as st

Pair: TypeAlias = tuple[str, int]
Pack: TypeAlias = tuple[str, tuple[int, ...]]
Truth: TypeAlias = tuple[str, bool]


@st.composite
def integers(draw: st.DrawFn, depth: int = 3) -> Pair:
    """An integer expression."""
    if depth == 0:
        number = draw(st.integers(-50, 50) | st.integers(10**18, 10**20))
        return (str(number), number) if number >= 0 else (f"({number})", number)
    form = draw(st.sampled_from(("chain", "divide", "power", "select", "fold", "index", "cast", "plain")))
    if form == "chain":
        return draw(_chain(depth))
    if form == "divide":
        return draw(_division(depth))
    if form == "power":
        (text, base), exponent = draw(integers(0)), draw(st.integers(0, 5))
        return f"({text} ** {exponent})", base**exponent
    if form == "select":
        condition, then, other = draw(truths(depth - 1)), draw(integers(depth - 1)), draw(integers(depth - 1))
        return f"({condition[0]} ? {then[0]} : {other[0]})", then[1] if condition[1] else other[1]
    if form == "fold":
        return draw(_fold(depth))
    if form == "index":
        text, pack = draw(packs(depth - 1))
        assume(pack)
        place = draw(st.integers(-len(pack), len(pack) - 1))
        return f"{text}[{place}]", pack[place]
    if form == "cast":
        condition = draw(truths(depth - 1))
        return f"int({condition[0]})", 1 if condition[1] else 0
    return draw(integers(0))


@st.composite
def _chain(draw: st.DrawFn, depth: int) -> Pair:
    text, value = draw(integers(depth - 1))
    signs = draw(st.sampled_from((("+", "-"), ("*",), ("<<", ">>"))))
    for _ in range(draw(st.integers(1, 3))):
        sign, (other, number) = draw(st.sampled_from(signs)), draw(integers(depth - 1))
        text = f"{text} {sign} {other}"
        rules = {"+": value + number, "-": value - number, "*": value * number}
        value = {**rules, "<<": min(value, number), ">>": max(value, number)}[sign]
    return f"({text})", value


@st.composite
def _division(draw: st.DrawFn, depth: int) -> Pair:
    (left, a), (right, b) = draw(integers(depth - 1)), draw(integers(depth - 1))
    assume(b != 0)
    sign = draw(st.sampled_from(("/", "\\", "%")))
    return f"({left} {sign} {right})", {"/": a // b, "\\": -((-a) // b), "%": a - b * (a // b)}[sign]


@st.composite
def _fold(draw: st.DrawFn, depth: int) -> Pair:
    text, pack = draw(packs(depth - 1))
    sign = draw(st.sampled_from(("+", "*", "<<", ">>")))
    assume(pack or sign in "+*")
    rules = {"+": sum(pack), "*": prod(pack)}
    value = rules[sign] if sign in rules else (min if sign == "<<" else max)(pack)
    return f"({text} {sign} ..)", value


@st.composite
def packs(draw: st.DrawFn, depth: int = 2) -> Pack:
    """An expression for a pack of integers."""
    form = draw(
        st.sampled_from(("list", "range", "broadcast", "each", "cumulate", "reverse", "put", "join", "zip"))
    )
    if depth == 0 or form == "list":
        items = draw(st.lists(integers(0), max_size=4))
        return f"[{', '.join(text for text, _ in items)}]", tuple(value for _, value in items)
    if form == "range":
        begin, end = draw(st.integers(-9, 9)), draw(st.integers(-9, 9))
        step = draw(st.integers(-3, 3).filter(bool))
        return f"[({begin}):({end}):({step})]", tuple(range(begin, end, step))
    text, pack = draw(packs(depth - 1))
    if form == "broadcast":
        other, number = draw(integers(depth - 1))
        return f"({text} - {other})", tuple(item - number for item in pack)
    if form == "each":
        return f"({text} * {text})", tuple(item * item for item in pack)
    if form == "cumulate":
        return f"({text} + ...)", tuple(accumulate(pack))
    if form == "reverse":
        return f"{text}[::-1]", pack[::-1]
    if form == "put":
        assume(pack)
        place, (other, number) = draw(st.integers(0, len(pack) - 1)), draw(integers(depth - 1))
        return f"({text}[{place}] <- {other})", (*pack[:place], number, *pack[place + 1 :])
    if form == "join":
        (other, number), times = draw(integers(depth - 1)), draw(st.integers(0, 3))
        return f"[{text}.., {other} ..({times})]", (*pack, *(number,) * times)
    return f"[({text}, -{text})..]", tuple(value for item in pack for value in (item, -item))


@st.composite
def truths(draw: st.DrawFn, depth: int = 2) -> Truth:
    """An expression for a truth value."""
    if depth == 0:
        value = draw(st.booleans())
        return ("true" if value else "false"), value
    form = draw(st.sampled_from(("compare", "join", "not", "in", "fold")))
    if form == "compare":
        (left, a), (right, b) = draw(integers(depth - 1)), draw(integers(depth - 1))
        sign = draw(st.sampled_from(("<", "<=", ">", ">=", "==", "!=", "is")))
        rules = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b, "is": a == b}
        return f"({left} {sign} {right})", rules[sign]
    if form == "join":
        items = draw(st.lists(truths(depth - 1), min_size=2, max_size=4))
        signs = draw(
            st.lists(st.sampled_from(("&&", "||", "^")), min_size=len(items) - 1, max_size=len(items) - 1)
        )
        joins = {"&&": lambda a, b: a and b, "||": lambda a, b: a or b, "^": lambda a, b: a != b}
        steps = list(zip(signs, items[1:], strict=True))
        text = items[0][0] + "".join(f" {sign} {item[0]}" for sign, item in steps)
        value = reduce(lambda found, step: joins[step[0]](found, step[1][1]), steps, items[0][1])
        return f"({text})", value
    if form == "not":
        text, value = draw(truths(depth - 1))
        return f"!{text}", not value
    text, pack = draw(packs(depth - 1))
    if form == "in":
        other, number = draw(integers(depth - 1))
        return f"({other} in {text})", number in pack
    sign = draw(st.sampled_from(("<", "<=", ">", ">=", "==", "!=")))
    return f"({text} {sign} ..)", _is_sorted(sign, pack)


def _is_sorted(sign: str, pack: tuple[int, ...]) -> bool:
    if sign == "!=":
        return len(set(pack)) == len(pack)
    rules = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "==": lambda a, b: a == b,
    }
    return all(rules[sign](a, b) for a, b in pairwise(pack))
