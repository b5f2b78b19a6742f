"""Mutated SkriptND: words, numbers, signs and lines of right texts, changed at random."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

PIECE = re.compile(
    r"\s+|[A-Za-z_]\w*|\d+(?:\.\d+)?|\.\.\.?|[<>=!:+*&|?-]+|\"[^\"\n]*\"|'[^'\n]*'|#[^\n]*|.", re.DOTALL
)
NUMBER = re.compile(r"\d+$")
WORD = re.compile(r"[A-Za-z_]\w*$")
SIGN = re.compile(r"(?:\.\.\.?|[<>=!:+*&|?/\\%^~,-]+)$")
NUMBERS = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "3",
        "7",
        "64",
        "2147483648",
        "(2 ** 62)",
        "(2 ** 63)",
        "(9 ** 9 ** 9)",
        "(1 / 0)",
    ),
    *(
        "9223372036854775807",
        "9" * 40,
        "9" * 5000,
        "1.0",
        "0.0",
        "1e400",
        "(0.0 / 0.0)",
        "int(inf)",
        "(-inf)",
        "pi",
    ),
    *(
        "true",
        "'a'",
        "null",
        "[]",
        "[0:3]",
        "[1, 2]",
        "(1 ..(3))",
        "x.shape",
        "x.rank",
        "~",
        "10 ** 18",
        "1e-320",
    ),
)
WORDS = (
    *(
        "optional",
        "real",
        "int",
        "bool",
        "str",
        "f16",
        "i4",
        "u64",
        "bf16",
        "type",
        "num",
        "arith",
        "with",
        "for",
    ),
    *(
        "while",
        "do",
        "unroll",
        "if",
        "then",
        "elif",
        "else",
        "yield",
        "is",
        "in",
        "as",
        "public",
        "operator f {",
        "}",
    ),
    *(
        "@lower {",
        "@compose {",
        "@using {",
        "@input {",
        "@quantize {",
        "@update {",
        "@constant {",
        "graph G {",
        "~",
    ),
    *(
        "import math;",
        "import main;",
        "..",
        "...",
        "..(3)",
        "..(n|4)",
        "|n|",
        "^(r)",
        "<-",
        "->",
        "=>",
        "<>",
        ":=",
        "??",
    ),
    *(
        "`exp`(",
        "exp(",
        "<?",
        ">?",
        "<<",
        ">>",
        "unroll..(1000000)",
        "do..(1000000)",
        "[i,]",
        "[]",
        "[0]",
        "[-1]",
    ),
    *(
        "\x1b[31m",
        "\u202e",
        "<script>",
        "\ufeff",
        "é",
        "\r",
        "\0",
        "'",
        '"',
        "#",
        "\\",
        "{",
        "{n}",
        "((((",
        "]]]]",
        "`",
    ),
)
SIGNS = (
    *(
        "+",
        "-",
        "*",
        "/",
        "\\",
        "%",
        "**",
        "<",
        "<=",
        ">",
        ">=",
        "==",
        "!=",
        "&&",
        "||",
        "^",
        "=>",
        "<<",
        ">>",
        "<?",
    ),
    *(
        ">?",
        "..",
        "...",
        "??",
        "?",
        ":",
        ":=",
        "=",
        "+=",
        "*=",
        "&=",
        "|=",
        "<-",
        "->",
        "<>",
        "|",
        "!",
        "~",
        ",",
        ".",
    ),
)
Change = Callable[[Random, list[str], Sequence[str]], None]


def _replace(random: Random, pieces: list[str], wanted: re.Pattern[str], make: Callable[[str], str]) -> None:
    places = [place for place, piece in enumerate(pieces) if wanted.match(piece)]
    if places:
        place = random.choice(places)
        pieces[place] = make(pieces[place])


def _nudge(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    """A number becomes one near it: the text often stays right."""

    def near(text: str) -> str:
        value = int(text[:18])
        return str(max(0, random.choice((value + 1, value - 1, value * 2, value // 2, 0, 1, 2))))

    _replace(random, pieces, NUMBER, near)


def _explode(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    _replace(random, pieces, NUMBER, lambda text: random.choice(NUMBERS))


def _rename(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    """A word becomes another word of the same text."""
    words = [piece for piece in pieces if WORD.match(piece)]
    _replace(random, pieces, WORD, lambda text: random.choice(words))


def _reword(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    _replace(random, pieces, WORD, lambda text: random.choice(WORDS))


def _resign(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    _replace(random, pieces, SIGN, lambda text: random.choice(SIGNS))


def _drop(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    start = random.randrange(len(pieces))
    del pieces[start : start + random.choice((1, 1, 1, 2, 5, 20))]


def _copy(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    start, to = random.randrange(len(pieces)), random.randrange(len(pieces))
    pieces[to:to] = pieces[start : start + random.choice((1, 1, 2, 5, 20))]


def _swap(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    one, two = random.randrange(len(pieces)), random.randrange(len(pieces))
    pieces[one], pieces[two] = pieces[two], pieces[one]


def _insert(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    pieces.insert(random.randrange(len(pieces) + 1), f" {random.choice(WORDS + NUMBERS)} ")


def _nest(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    depth = random.choice((1, 2, 10, 55, 70, 3000))
    opening, closing = random.choice((("(", ")"), ("[", "]"), ("-", ""), ("!", ""), ("true ? 1 : ", "")))
    _replace(random, pieces, NUMBER, lambda text: f"{opening * depth}{text}{closing * depth}")


def _chain(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    sign = random.choice((" + 0", " - 1", " * 2", " % 7", " / 2", " ** 2", " << 3", "[0]", ".."))
    _replace(random, pieces, NUMBER, lambda text: f"{text}{sign * random.choice((1, 3, 300))}")


def _move_statement(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    """A statement stands elsewhere, twice or not at all."""
    statements = "".join(pieces).split(";")
    one = statements.pop(random.randrange(len(statements)))
    to = random.randrange(len(statements) + 1)
    statements[to:to] = [one] * random.choice((0, 1, 1, 2, 30))
    pieces[:] = PIECE.findall(";".join(statements))


def _splice(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    other = PIECE.findall(random.choice(seeds))
    start = random.randrange(len(other))
    if random.random() < 0.5:
        pieces[random.randrange(len(pieces)) :] = other[start:]
    else:
        place = random.randrange(len(pieces))
        pieces[place:place] = other[start : start + random.choice((2, 10, 40))]


def _cut(random: Random, pieces: list[str], seeds: Sequence[str]) -> None:
    del pieces[random.randrange(len(pieces)) :]


GENTLE: tuple[Change, ...] = (
    *(_nudge,) * 5,
    *(_rename,) * 2,
    *(_resign,) * 2,
    _move_statement,
    _chain,
    _copy,
    _explode,
)
ROUGH: tuple[Change, ...] = (_drop, _copy, _swap, _insert, _explode, _reword, _nest, _splice, _cut)


def mutate_text(random: Random, seeds: Sequence[str]) -> str:
    """What became of one of the texts; often only changes that texts survive."""
    pieces = PIECE.findall(random.choice(seeds))
    changes = GENTLE if random.random() < 0.75 else GENTLE + ROUGH + ROUGH
    for _ in range(random.choice((1, 1, 1, 1, 1, 1, 2, 2, 3, 5))):
        if not pieces:
            break
        random.choice(changes)(random, pieces, seeds)
    return "".join(pieces)
