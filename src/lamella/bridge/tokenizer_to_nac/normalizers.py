"""Normalizers as instructions."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.bridge.tokenizer_to_nac.document import Part
from lamella.bridge.tokenizer_to_nac.patterns import (
    CONTROL,
    IDEOGRAPHS,
    NMT_DROPPED,
    NMT_SPACES,
    read_pattern,
)
from lamella.lang.nac.assembly.nodes import ProgramStep

Steps = list[ProgramStep]
CHARSMAP = "charsmap.b"
INSTEAD, AROUND = 0, 1
ALWAYS, AT_START = 1, 2


def normalizer_steps(part: Part) -> Steps:
    """The instructions of a normalizer; none where there is none."""
    if not part:
        return []
    if part.kind == "Sequence":
        return [step for item in part["normalizers"].items() for step in normalizer_steps(item)]
    if part.kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return [ProgramStep("UNICODE_NORM", (part.kind,))]
    if part.kind not in _NORMALIZERS:
        raise part.unsayable(f"the normalizer '{part.kind}'")
    return _NORMALIZERS[part.kind](part)


def _lowercase(_: Part) -> Steps:
    """Letter by letter: a sigma at the end of a word is not another letter."""
    return [ProgramStep("REPLACE", ("Σ", "σ")), ProgramStep("LOWERCASE", ())]


def _replace(part: Part) -> Steps:
    if part["pattern"]["String"]:
        old = part["pattern"]["String"].text()
        if not old:
            raise part.unsayable("a replacement of nothing")
        return [ProgramStep("REPLACE", (old, part["content"].text()))]
    return [ProgramStep("REPLACE_PATTERN", (INSTEAD, read_pattern(part["pattern"]), part["content"].text()))]


def _prepend(part: Part) -> Steps:
    return [ProgramStep("PREPEND_WHERE", (ALWAYS, part["prepend"].text()))]


def _strip(part: Part) -> Steps:
    left = [ProgramStep("REPLACE_PATTERN", (INSTEAD, r"^\s+", ""))] if part["strip_left"].flag() else []
    right = [ProgramStep("REPLACE_PATTERN", (INSTEAD, r"\s+$", ""))] if part["strip_right"].flag() else []
    return left + right


def _strip_accents(_: Part) -> Steps:
    return [ProgramStep("FILTER_CATEGORY", ("M",))]


def _bert(part: Part) -> Steps:
    steps: Steps = []
    if part["clean_text"].flag(True):
        steps += [
            ProgramStep("REPLACE_PATTERN", (INSTEAD, CONTROL, "")),
            ProgramStep("REPLACE_PATTERN", (INSTEAD, r"\s", " ")),
        ]
    if part["handle_chinese_chars"].flag(True):
        steps.append(ProgramStep("REPLACE_PATTERN", (AROUND, IDEOGRAPHS, " ")))
    lowercase = part["lowercase"].flag(True)
    if part["strip_accents"].flag(lowercase):
        steps += [ProgramStep("UNICODE_NORM", ("NFD",)), ProgramStep("FILTER_CATEGORY", ("Mn",))]
    return steps + _lowercase(part) * lowercase


def _nmt(_: Part) -> Steps:
    dropped = ProgramStep("REPLACE_PATTERN", (INSTEAD, NMT_DROPPED, ""))
    return [dropped, ProgramStep("REPLACE_PATTERN", (INSTEAD, NMT_SPACES, " "))]


def _charsmap(_: Part) -> Steps:
    return [ProgramStep("CHARSMAP", (CHARSMAP,))]


def find_charsmap(part: Part) -> bytes | None:
    """The table of a normalizer made by sentencepiece, where there is one."""
    if not part:
        return None
    if part.kind == "Sequence":
        tables = [table for item in part["normalizers"].items() if (table := find_charsmap(item)) is not None]
        if len(tables) > 1:
            raise part.unsayable("a normalizer with two tables of characters")
        return tables[0] if tables else None
    if part.kind != "Precompiled":
        return None
    try:
        return b64decode(part["precompiled_charsmap"].text(), validate=True)
    except ValueError:
        raise part["precompiled_charsmap"].wrong("is not base64") from None


def _byte_level(_: Part) -> Steps:
    return [ProgramStep("BYTE_ENCODE", ())]


_NORMALIZERS: Mapping[str, Callable[[Part], Steps]] = MappingProxyType(
    {
        "Lowercase": _lowercase,
        "Replace": _replace,
        "Prepend": _prepend,
        "Strip": _strip,
        "StripAccents": _strip_accents,
        "BertNormalizer": _bert,
        "Nmt": _nmt,
        "Precompiled": _charsmap,
        "ByteLevel": _byte_level,
    }
)
