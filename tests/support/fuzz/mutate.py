"""Mutated texts: tokens, numbers, lines and bytes of good and bad programs, changed at random from a seed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lamella.base.dtype import LANGUAGES
from lamella.lang.nem.registry import load_registry

# Tokens with the blanks before them, so that the joined list is the text again.
PIECE = re.compile(r"\s*(?:[A-Za-z_]\w*|\d+(?:\.\d+)?|\.\.|\"[^\"\n]*\"|#[^\n]*|.)|\s+", re.DOTALL)
NUMBER = re.compile(r"\s*\d+$")
WORD = re.compile(r"\s*[A-Za-z_]\w*$")
EVIL_NUMBERS = (
    *("0", "1", "-1", "2", "3", "7", "13", "64", "97", "255", "256", "65537", "1000003", "1000000007"),
    *("2147483647", "2147483648", "4294967296", "999999999989", "4611686018427387904"),
    *("9223372036854775807", "-9223372036854775807", "9223372036854775808", "9" * 40, "9" * 5000),
    *("0.0", "0.5", "1.0e300", "1.0e-320", "1.5e9999", "1e5", ".5", "0x10", "(1/0)", "(1 mod 0)", "1..2"),
)
EVIL_WORDS = (
    *("loop i in [0..9]:", "endloop", "wait()", "deps=[]", "@max_in_flight(0)", "@max_in_flight(1000000)"),
    *("@max_in_flight(3)", "region(", ")", "[", "]", "{", "}", "mod", "in", "out", ",", ";", "@memmove"),
    *(
        "@materialized",
        "@readonly",
        "@writeonly",
        "@deterministic",
        "@resource(CSTL[0])",
        "@resource(DMA[i])",
    ),
    *("@seq_engine(1)", '@debug("a")', "@profile(hot)", "L1[1]", "L1[1000000000]", "DDR", "device npm_lite"),
    *('include "npm_pro.nem"', 'include "../x.nem"', "program p:", "const C = 3", "let R = 4", "import"),
    *("quant=per_tensor(scale=0.5, zero_point=1)", "strides=[1]", "layout=C", "elem=i4", "per_group", "sync"),
    *(
        "\x1b[31m",
        "\u202e",
        "<script>",
        "\ufeff",
        "é",
        "\r",
        "\0",
        "\U0001f600",
        '"',
        "#",
        "\\",
        "((((",
        "))))",
    ),
)
ELEMENTS = tuple(LANGUAGES["nem"])


@dataclass(frozen=True, slots=True)
class Seed:
    """A program to mutate."""

    path: Path
    text: str
    pieces: tuple[str, ...]


def read_seed(path: Path) -> Seed:
    """A program as its pieces."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return Seed(path, text, tuple(PIECE.findall(text)))


Change = Callable[[Random, list[str], Sequence[Seed]], None]


def _drop(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    start = random.randrange(len(pieces))
    del pieces[start : start + random.choice((1, 1, 1, 2, 5, 20))]


def _copy(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    start, to = random.randrange(len(pieces)), random.randrange(len(pieces))
    pieces[to:to] = pieces[start : start + random.choice((1, 1, 2, 5, 20))]


def _swap(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    one, two = random.randrange(len(pieces)), random.randrange(len(pieces))
    pieces[one], pieces[two] = pieces[two], pieces[one]


def _borrow(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    other = random.choice(seeds).pieces
    if other:
        pieces[random.randrange(len(pieces))] = random.choice(other)


def _insert(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    pieces.insert(random.randrange(len(pieces) + 1), " " + random.choice(EVIL_WORDS))


def _explode(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    _replace(random, pieces, NUMBER, lambda text: " " + random.choice(EVIL_NUMBERS))


def _nudge(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    """A number becomes another one of its size: the program often stays a program."""

    def near(text: str) -> str:
        value = int(text[:18])
        return f" {max(0, random.choice((value + 1, value - 1, value * 2, value // 2, value + 64)))}"

    _replace(random, pieces, NUMBER, near)


def _rename(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    """A word becomes another word of the same text."""
    words = [piece for piece in pieces if WORD.match(piece)]
    if words:
        _replace(random, pieces, WORD, lambda text: " " + random.choice(words).strip())


def _retype(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    elements = re.compile(rf"\s*(?:{'|'.join(ELEMENTS)})$")
    _replace(random, pieces, elements, lambda text: random.choice(ELEMENTS))


def _other_opcode(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    opcodes = tuple(load_registry())
    _replace(
        random, pieces, re.compile(rf"\s*(?:{'|'.join(opcodes)})$"), lambda text: " " + random.choice(opcodes)
    )


def _other_form(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    forms = {
        "async": "sync",
        "sync": "async",
        "transfer": "store",
        "store": "transfer",
        "L2": "DDR",
        "L1": "L2",
    }
    _replace(
        random, pieces, re.compile("(?:async|sync|L2|L1)$|\\s*(?:transfer|store)$"), lambda text: forms[text]
    )


def _nest(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    depth = random.choice((1, 2, 10, 190, 260, 3000))
    _replace(random, pieces, NUMBER, lambda text: f" {'(' * depth}{text}{')' * depth}")


def _chain(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    sign = random.choice((" + 0", " - 1", " * 1", " mod 7", " / 2", "+-"))
    _replace(random, pieces, NUMBER, lambda text: f" {text}{sign * random.choice((1, 3, 300))}")


def _repeat_line(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    lines = "".join(pieces).split("\n")
    start, to = random.randrange(len(lines)), random.randrange(len(lines) + 1)
    lines[to:to] = lines[start : start + random.choice((1, 1, 2, 4))] * random.choice((1, 1, 2, 30))
    pieces[:] = PIECE.findall("\n".join(lines))


def _drop_line(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    lines = "".join(pieces).split("\n")
    del lines[random.randrange(len(lines))]
    pieces[:] = PIECE.findall("\n".join(lines))


def _move_line(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    lines = "".join(pieces).split("\n")
    line = lines.pop(random.randrange(len(lines)))
    lines.insert(random.randrange(len(lines) + 1), line)
    pieces[:] = PIECE.findall("\n".join(lines))


def _loop_lines(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    """Lines into a loop, or into many."""
    lines = "".join(pieces).split("\n")
    first, last = sorted((random.randrange(len(lines)), random.randrange(len(lines) + 1)))
    end, window = random.choice((0, 1, 2, 5, 30, 10**9, 10**15)), random.choice((1, 1, 2, 3, 100))
    count = random.choice((1, 1, 2, 40))
    names = [f"q{random.randrange(100)}_{level}" for level in range(count)]
    lines[first:first] = [f"loop {name} in [0..{end}] @max_in_flight({window}):" for name in names]
    lines[last + count : last + count] = ["endloop"] * count
    pieces[:] = PIECE.findall("\n".join(lines))


def _splice(random: Random, pieces: list[str], seeds: Sequence[Seed]) -> None:
    other = random.choice(seeds).pieces
    if other:
        start = random.randrange(len(other))
        pieces[random.randrange(len(pieces)) :] = other[start:]


def _replace(random: Random, pieces: list[str], wanted: re.Pattern[str], make: Callable[[str], str]) -> None:
    places = [place for place, piece in enumerate(pieces) if wanted.match(piece)]
    if places:
        place = random.choice(places)
        pieces[place] = make(pieces[place].strip())


GENTLE: tuple[Change, ...] = (
    *(_nudge, _nudge, _nudge, _rename, _retype, _other_opcode, _other_form, _other_form),
    *(_repeat_line, _drop_line, _move_line, _loop_lines, _loop_lines, _chain),
)
ROUGH: tuple[Change, ...] = (_drop, _copy, _swap, _borrow, _insert, _explode, _explode, _nest, _splice)


def mutate_text(random: Random, seeds: Sequence[Seed]) -> tuple[Seed, str]:
    """A seed and what became of its text; half of the time only changes that programs often survive."""
    seed = random.choice(seeds)
    pieces = list(seed.pieces)
    changes = GENTLE if random.random() < 0.65 else GENTLE + ROUGH + ROUGH
    for _ in range(random.choice((1, 1, 1, 1, 1, 2, 2, 3, 5, 9))):
        if not pieces:
            break
        random.choice(changes)(random, pieces, seeds)
    return seed, "".join(pieces)


def mutate_bytes(random: Random, text: str) -> bytes:
    """Some bytes of a text changed, inserted or lost."""
    data = bytearray(text.encode("utf-8", "replace"))
    for _ in range(random.choice((1, 1, 2, 8))):
        place = random.randrange(len(data) + 1)
        kind = random.randrange(4)
        if kind == 0:
            data[place : place + random.choice((1, 1, 8))] = b""
        elif kind == 1:
            data[place:place] = random.randbytes(random.choice((1, 1, 8)))
        elif kind == 2:
            data[place:place] = random.choice(
                (b"\0", b"\r\n", b"\xef\xbb\xbf", b"\xff", b"\xc3", b"\xed\xa0\x80")
            )
        else:
            data[place : place + 1] = bytes([random.randrange(256)])
    return bytes(data)
