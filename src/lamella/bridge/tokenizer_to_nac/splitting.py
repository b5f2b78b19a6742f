"""Pre-tokenizers as instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.bridge.tokenizer_to_nac.document import Part
from lamella.bridge.tokenizer_to_nac.normalizers import AT_START, Steps
from lamella.bridge.tokenizer_to_nac.patterns import BYTE_LEVEL, PUNCTUATION, WORDS, escape, read_pattern
from lamella.lang.nac.assembly.nodes import Step
from lamella.lang.nac.check.sections.manifest import BEHAVES

BEHAVIOURS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def splitting_steps(part: Part) -> Steps:
    """The instructions of a pre-tokenizer; none where there is none."""
    if not part:
        return []
    if part.kind == "Sequence":
        return [step for item in part["pretokenizers"].items() for step in splitting_steps(item)]
    if part.kind not in _SPLITTERS:
        raise part.unsayable(f"the pre-tokenizer '{part.kind}'")
    return _SPLITTERS[part.kind](part)


def _isolate(pattern: str) -> Step:
    return Step("PARTITION_RULES", ((0, pattern),))


def _remove(pattern: str) -> Step:
    return Step("PARTITION_RULES", ((BEHAVES, pattern, 1),))


def _cut(behaviour: Part, pattern: str, inverted: bool = False) -> Steps:
    """A split by the instruction that was published, where it has one."""
    name = behaviour.text("Isolated")
    if name not in BEHAVIOURS:
        raise behaviour.wrong(f"is '{name}', which is no behaviour")
    if name == "Isolated":
        return [_isolate(pattern)]
    if name == "Removed" and not inverted:
        return [_remove(pattern)]
    return [Step("SPLIT", (BEHAVIOURS.index(name), int(inverted), pattern))]


def _byte_level(part: Part) -> Steps:
    space = [Step("PREPEND", (" ",))] if part["add_prefix_space"].flag(True) else []
    words = [_isolate(BYTE_LEVEL)] if part["use_regex"].flag(True) else []
    return [*space, *words, Step("BYTE_ENCODE", ())]


def _whitespace(_: Part) -> Steps:
    return [Step("SPLIT", (0, 1, WORDS))]


def _whitespace_split(_: Part) -> Steps:
    return [_remove(r"\s+")]


def _bert(_: Part) -> Steps:
    return [_remove(r"\s+"), _isolate(PUNCTUATION)]


def _punctuation(part: Part) -> Steps:
    return _cut(part["behavior"], PUNCTUATION)


def _digits(part: Part) -> Steps:
    return [_isolate(r"\p{N}" if part["individual_digits"].flag() else r"\p{N}+")]


def _split(part: Part) -> Steps:
    return _cut(part["behavior"], read_pattern(part["pattern"]), part["invert"].flag())


def _delimiter(part: Part) -> Steps:
    return [_remove(escape(part["delimiter"].text()))]


def _metaspace(part: Part) -> Steps:
    mark = part["replacement"].text("▁")
    old = "always" if part["add_prefix_space"].flag(True) else "never"
    scheme = part["prepend_scheme"].text(old)
    if len(mark) != 1 or scheme not in ("always", "never", "first"):
        raise part.wrong(f"has the mark '{mark}' and the scheme '{scheme}'")
    steps = [Step("REPLACE", (" ", mark))]
    if scheme != "never":
        first = Step("PREPEND_WHERE", (AT_START, mark))
        steps.append(first if scheme == "first" else Step("PREPEND", (mark,)))
    quoted = escape(mark)
    return [*steps, _isolate(f"{quoted}[^{quoted}]*|[^{quoted}]+")] if part["split"].flag(True) else steps


_SPLITTERS: Mapping[str, Callable[[Part], Steps]] = MappingProxyType(
    {
        "ByteLevel": _byte_level,
        "Whitespace": _whitespace,
        "WhitespaceSplit": _whitespace_split,
        "BertPreTokenizer": _bert,
        "Punctuation": _punctuation,
        "Digits": _digits,
        "Split": _split,
        "CharDelimiterSplit": _delimiter,
        "Metaspace": _metaspace,
    }
)
