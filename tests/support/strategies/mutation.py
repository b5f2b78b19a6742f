"""Texts that were right once: words deleted, doubled, swapped or replaced, bytes inserted, ends cut off."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence

WORDS = re.compile(r"\s+|[A-Za-z_]\w*|\d+|\"[^\"\n]*\"|.", re.DOTALL)
NASTY = (
    *("\0", "\r", "\t", "\f", "\ufeff", "\u202e", "é", "$", '"', "\\", "#", "'", "@", "..", "=", "1e-5", ".5", "1."),
    *("(((((", ")))))", "[[[[", "{{{", "}}}", "<", "-" * 300, "9" * 400, "a" * 2000, "loop i in [0..3]:\n" * 250),
)  # fmt: skip

Mutation = Callable[[list[str], random.Random], None]


def cut(text: str) -> list[str]:
    """The words of a text, white space among them."""
    return WORDS.findall(text)


def delete(words: list[str], chance: random.Random) -> None:
    """Leave out one to three words."""
    place = chance.randrange(len(words))
    del words[place : place + chance.randint(1, 3)]


def double(words: list[str], chance: random.Random) -> None:
    """Write one to three words twice."""
    place = chance.randrange(len(words))
    words[place:place] = words[place : place + chance.randint(1, 3)]


def swap(words: list[str], chance: random.Random) -> None:
    """Exchange two words."""
    one, two = chance.randrange(len(words)), chance.randrange(len(words))
    words[one], words[two] = words[two], words[one]


def replace(words: list[str], chance: random.Random) -> None:
    """Put a word of the text in the place of another."""
    words[chance.randrange(len(words))] = chance.choice(words)


def insert(words: list[str], chance: random.Random) -> None:
    """Insert something that is seldom right."""
    nasty = chance.choice(NASTY) if chance.random() < 0.7 else chance.randbytes(3).decode("latin-1")
    words.insert(chance.randrange(len(words)), nasty)


def truncate(words: list[str], chance: random.Random) -> None:
    """Cut off the end."""
    del words[chance.randrange(len(words)) :]


MUTATIONS: tuple[Mutation, ...] = (delete, double, swap, replace, insert, truncate)


def mutants(texts: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """Texts made from right ones by one to three mutations, now and then spliced from two of them."""
    chance = random.Random(seed)
    cuts = [cut(text) for text in texts if text]
    for _ in range(count):
        words = list(chance.choice(cuts))
        if chance.random() < 0.1:
            other = chance.choice(cuts)
            words = words[: chance.randrange(len(words))] + other[chance.randrange(len(other)) :]
        for _ in range(chance.randint(1, 3)):
            if words:
                chance.choice(MUTATIONS)(words, chance)
        yield "".join(words)
