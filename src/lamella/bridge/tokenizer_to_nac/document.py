"""The JSON text of a tokenizer, part by part: every part knows its place, and says when it is not what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Malformed
from lamella.base.jsontext import decode_json
from lamella.base.source import Binary, Span
from lamella.lang.nac.rules import tokenizing as rules

LONGEST_PLACE = 500
"""Characters of a place; those of real tokenizers have some tens."""


LARGEST, HIGHEST_POWER = 2**64 - 1, 308


class TokenizerProblem(Exception):
    """A tokenizer cannot be said; never leaves this folder."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Part:
    """A value within the text, and where it stands."""

    value: object
    place: str
    span: Span

    def wrong(self, problem: str) -> TokenizerProblem:
        """What refuses this part."""
        return TokenizerProblem(rules.DOCUMENT.at(self.span, place=self.place, problem=problem))

    def unsayable(self, what: str) -> TokenizerProblem:
        """What refuses a part that manifests cannot say."""
        return TokenizerProblem(rules.NO_INSTRUCTION.at(self.span, place=self.place, what=what))

    def __getitem__(self, key: str) -> Part:
        """A part of an object; where it is absent its value is None."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return Part(
            self.value.get(key), f"{self.place}.{key}" if self.place != "the text" else key, self.span
        )

    def __bool__(self) -> bool:
        return self.value is not None

    @property
    def kind(self) -> str:
        """What the part is called under `type`."""
        if len(self.place) > LONGEST_PLACE:
            raise self.wrong("is nested too deep")
        return self["type"].text()

    def text(self, default: str | None = None) -> str:
        """A text."""
        value = default if self.value is None else self.value
        if not isinstance(value, str):
            raise self.wrong("is not a text")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise self.wrong("holds half a character")
        return value

    def flag(self, default: bool = False) -> bool:
        """A truth value."""
        value = default if self.value is None else self.value
        if not isinstance(value, bool):
            raise self.wrong("is not a truth value")
        return value

    def number(self, default: int | None = None, most: int = 2**31 - 1) -> int:
        """A number from 0 on."""
        value = default if self.value is None else self.value
        if not isinstance(value, int) or not 0 <= value <= most:
            raise self.wrong(f"is not a number from 0 to {most}")
        return value

    def real(self) -> float:
        """A number with or without a fraction."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.wrong("is not a number")
        if isinstance(self.value, int) and abs(self.value) > 2**63:
            raise self.wrong("is too large")
        return float(self.value)

    def items(self) -> Iterator[Part]:
        """The parts of a list."""
        value = [] if self.value is None else self.value
        if not isinstance(value, list):
            raise self.wrong("is not a list")
        return (Part(item, f"{self.place}[{place}]", self.span) for place, item in enumerate(value))

    def entries(self) -> Iterator[tuple[str, Part]]:
        """The parts of an object with their keys."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return ((key, Part(item, f"{self.place}.{key}", self.span)) for key, item in self.value.items())


def read_number(text: str) -> float:
    """A number as the package reads it: its digits are one integer, scaled once by a power of ten.

    This may be a neighbour of the nearest number; scores that are nearly equal are to be compared alike.
    """
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits, scale, full = 0, int(exponent or 0), False
    for place, digit in enumerate(whole + fraction):
        full = full or digits * 10 + int(digit) > LARGEST
        digits = digits if full else digits * 10 + int(digit)
        scale += int(full) if place < len(whole) else -int(not full)
    value = float(digits)
    while value and scale < -HIGHEST_POWER:
        value, scale = value / float(f"1e{HIGHEST_POWER}"), scale + HIGHEST_POWER
    if value and scale > HIGHEST_POWER:
        raise ValueError("too large")
    power = float(f"1e{abs(scale) if value else 0}")
    value = value * power if scale >= 0 else value / power
    return -value if text.startswith("-") else value


def read_document(data: bytes, name: str) -> Part:
    """The whole text."""
    span = Span(Binary(name), 0, 0)
    try:
        value = decode_json(data, max_depth=None, read_number=read_number)
    except Malformed as problem:
        raise Part(None, "the text", span).wrong(str(problem)) from None
    return Part(value, "the text", span)
