"""How much longer texts may become by what a manifest does with them, one instruction after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.backend.tisa.changes import SURROUND
from lamella.lang.nac.assembly.nodes import Step, StepOperand

MOST_GROWTH = 4096
"""How many times as long a text may become by what a manifest puts into it."""
_FORMS: Mapping[str, int] = MappingProxyType({"NFC": 4, "NFD": 4, "NFKC": 18, "NFKD": 18})
_LOWER = 4
_BYTES = 4
"""A character has four bytes at most."""
_CUT_CHARACTER = 2
"""Characters more where the text of a table begins within a character: each byte of it is one."""


@dataclass
class Growth:
    """How many characters may stand in the place of one.

    Normal forms and small letters are forms of the same characters: of several in a row the one that grows most counts,
    until other characters are put in.
    """

    times: int = 1
    formed: int = 1

    def follow(self, step: Step, longest: int = 0) -> None:
        """Count an instruction; `longest` is the longest text of the table that it names."""
        form = _form(step)
        if form:
            self.times = self.times // self.formed * max(self.formed, form)
            self.formed = max(self.formed, form)
        put = _CUT_CHARACTER + longest if step.name == "CHARSMAP" else _put(step)
        if put:
            self.times *= put
            self.formed = 1


def _form(step: Step) -> int:
    if step.name == "LOWERCASE":
        return _LOWER
    return _FORMS[str(step.operands[0])] if step.name == "UNICODE_NORM" else 0


def _put(step: Step) -> int:
    """How many characters stand for one where others are put in; 0 for instructions that put nothing in."""
    texts = find_texts(step.operands)
    match step.name:
        case "REPLACE_PATTERN" if step.operands[0] == SURROUND:
            return 1 + 2 * len(texts[1])
        case "REPLACE" | "REPLACE_PATTERN" | "DECODE_REPLACE":
            return max(1, len(texts[1]))
        case "PREPEND" | "PREPEND_WHERE" | "DECODE_JOIN":
            return 1 + len(texts[0])
        case "BYTE_ENCODE":
            return _BYTES
        case "DECODE_WORDPIECES":
            return 2
    return 0


def find_texts(operands: tuple[StepOperand, ...]) -> list[str]:
    """All texts among some operands."""
    nested = [
        item for operand in operands for item in (operand if isinstance(operand, tuple) else (operand,))
    ]
    return [item for item in nested if isinstance(item, str)]
