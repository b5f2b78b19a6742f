"""What an encoder does with words that its vocabulary does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FALLBACK, FUSED, WHOLE = 1, 2, 4
"""Flags of ENCODE_OPTIONS: bytes for unknown characters, one token for a row of them, words of the vocabulary first."""


@dataclass(frozen=True, slots=True)
class Options:
    """The operands of ENCODE_OPTIONS; `unknown` is the id for what has none, or None where it is left out."""

    flags: int
    longest: int
    unknown: int | None
    prefix: str = ""

    def has(self, flag: int) -> bool:
        """Whether a flag is set."""
        return bool(self.flags & flag)


def published_unknown(ids: Mapping[str, int]) -> int:
    """The id for unknown characters where nothing else is said."""
    return ids.get("<unk>", ids.get("[UNK]", 0))


def byte_ids(text: str, ids: Mapping[str, int]) -> list[int] | None:
    """The ids of the tokens `<0x41>` for the bytes of a text, or None where one is missing."""
    found = [ids.get(f"<0x{byte:02X}>") for byte in text.encode("utf-8", "replace")]
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None
