"""Literals and documentation as they are written."""

from __future__ import annotations

ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
FENCE = '"""'


def write_real(value: float) -> str:
    """The shortest text that reads back as the same number; it has a point or an exponent."""
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


def quote(text: str) -> str:
    """A string; what cannot be seen is escaped."""
    return f'"{"".join(map(_character, text))}"'


def _character(char: str) -> str:
    if char in ESCAPES:
        return ESCAPES[char]
    return char if char.isprintable() or char > "\uffff" else f"\\u{ord(char):04x}"


def document_lines(text: str, indent: str) -> list[str]:
    """A docstring: on one line where it is one, else between lines of its own.

    The language has no way to write three quotes inside, so they become single ones.
    """
    lines = text.replace(FENCE, "'''").split("\n")
    if len(lines) == 1 and not text.startswith('"') and not text.endswith('"'):
        return [f"{indent}{FENCE}{lines[0]}{FENCE}"]
    return [indent + FENCE, *(indent + line if line else "" for line in lines), indent + FENCE]
