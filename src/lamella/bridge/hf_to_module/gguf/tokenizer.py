"""The tokenizer of a GGUF file in the words of a tokenizer.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.base.errors import Malformed
from lamella.base.gguf import Item

PREFIX = "tokenizer.ggml."
CONTROL, OWN, BYTE = 3, 4, 6
"""Kinds of tokens: those that no text becomes, those that are found before words are cut, and single bytes."""
SPACE = "▁"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{count}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe"), _WORDS.format(count="{1,3}")),
        **dict.fromkeys(("qwen2", "qwen35", "deepseek-r1-qwen", "stablelm2"), _WORDS.format(count="")),
        **dict.fromkeys(("default", "gpt-2", "olmo"), ""),
        **dict.fromkeys(("starcoder", "refact", "smollm", "command-r", "granite"), r"\p{N}"),
    }
)
"""How text is cut before bytes are merged, by the name that the metadata have for it; empty is as GPT-2 does it."""


def tokenizer_of(items: Mapping[str, Item]) -> dict[str, object]:
    """The tokenizer that metadata describe; Malformed where they do not, or in words that are not known."""
    kind, tokens = items.get(f"{PREFIX}model"), _texts(items, "tokens")
    if kind not in ("gpt2", "llama"):
        raise Malformed(f"its tokenizer is {kind!s:.40}; those that are read are gpt2 and llama")
    kinds = items.get(f"{PREFIX}token_type")
    given = kinds if isinstance(kinds, list) and len(kinds) == len(tokens) else [1] * len(tokens)
    marked = [(number, item) for number, item in enumerate(given) if item in (CONTROL, OWN)]
    found = _bytes_merged(items, tokens) if kind == "gpt2" else _pieces_merged(items, tokens)
    added = [
        {
            **{"id": number, "content": tokens[number], "special": item == CONTROL, "normalized": False},
            **{"single_word": False, "lstrip": False, "rstrip": False},
        }
        for number, item in marked
    ]
    ends = _post_processor(items, tokens, kind == "llama")
    parts = {"truncation": None, "padding": None, "added_tokens": added, "post_processor": ends}
    return {"version": "1.0", **parts, **found}


def _texts(items: Mapping[str, Item], key: str) -> list[str]:
    found = items.get(f"{PREFIX}{key}")
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise Malformed(f"it holds no {PREFIX}{key}")
    return [item for item in found if isinstance(item, str)]


def _bytes_merged(items: Mapping[str, Item], tokens: Sequence[str]) -> dict[str, object]:
    """Bytes that are merged, as GPT-2 does it."""
    name = items.get(f"{PREFIX}pre", "default")
    if name not in PATTERNS or not isinstance(name, str):
        known = ", ".join(PATTERNS)
        raise Malformed(f"its text is cut as {name!s:.40} does it; those that are known are {known}")
    pattern = PATTERNS[name]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    cutter: dict[str, object] = {**level, "use_regex": True}
    if pattern:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        cutter = {"type": "Sequence", "pretokenizers": [split, {**level, "use_regex": pattern == r"\p{N}"}]}
    merges = [item.split(" ", 1) for item in _texts(items, "merges")]
    if any(len(item) != 2 for item in merges):
        raise Malformed(f"an entry of {PREFIX}merges is no pair")
    model = _model(tokens, merges, unknown=None, falls_back=False, whole=name in ("llama-bpe", "llama3"))
    return {
        **{"normalizer": None, "pre_tokenizer": cutter, "model": model},
        "decoder": {**level, "use_regex": True},
    }


def _pieces_merged(items: Mapping[str, Item], tokens: Sequence[str]) -> dict[str, object]:
    """Characters that are merged to pieces in the order of their scores, as SentencePiece does it."""
    scores = items.get(f"{PREFIX}scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise Malformed(f"it holds no {PREFIX}scores for its tokens")
    begins = items.get(f"{PREFIX}add_space_prefix", True)
    unknown = items.get(f"{PREFIX}unknown_token_id", 0)
    merges = _merges(tokens, [float(item) for item in scores])
    word = tokens[unknown] if isinstance(unknown, int) and 0 <= unknown < len(tokens) else None
    model = _model(tokens, merges, unknown=word, falls_back=True, whole=False)
    spaced = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    first = {"type": "Prepend", "prepend": SPACE}
    back = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*([first] if begins else []), spaced]},
        "pre_tokenizer": None,
        "model": model,
        "decoder": {"type": "Sequence", "decoders": [*back, *([strip] if begins else [])]},
    }


def _merges(tokens: Sequence[str], scores: Sequence[float]) -> list[list[str]]:
    """Every way to make a token of two others, the tokens with the highest scores first."""
    place = {item: number for number, item in enumerate(tokens)}
    found: list[tuple[float, int, int, list[str]]] = []
    for number, token in enumerate(tokens):
        for cut in range(1, min(len(token), _LONGEST)):
            left, right = token[:cut], token[cut:]
            if left in place and right in place:
                found.append((-scores[number], place[left], place[right], [left, right]))
    return [item[-1] for item in sorted(found, key=lambda item: item[:3])]


_LONGEST = 1024
"""Tokens are cut in two at so many places at most, so that one long token does not cost its square."""


def _model(
    tokens: Sequence[str], merges: list[list[str]], unknown: str | None, falls_back: bool, whole: bool
) -> dict[str, object]:
    return {
        **{"type": "BPE", "dropout": None, "unk_token": unknown, "continuing_subword_prefix": None},
        **{"end_of_word_suffix": None, "fuse_unk": falls_back, "byte_fallback": falls_back},
        **{"ignore_merges": whole, "vocab": {item: number for number, item in enumerate(tokens)}},
        "merges": merges,
    }


def _post_processor(items: Mapping[str, Item], tokens: Sequence[str], default: bool) -> object:
    """What stands before and behind each text."""
    ends = {}
    for word, key, there in (("bos", "add_bos_token", default), ("eos", "add_eos_token", False)):
        number = items.get(f"{PREFIX}{word}_token_id")
        if items.get(f"{PREFIX}{key}", there) and isinstance(number, int) and 0 <= number < len(tokens):
            ends[word] = tokens[number], number
    if not ends:
        return None

    def part(word: str) -> list[dict[str, object]]:
        return [{"SpecialToken": {"id": ends[word][0], "type_id": 0}}] if word in ends else []

    single = [*part("bos"), {"Sequence": {"id": "A", "type_id": 0}}, *part("eos")]
    pair = [*single, *part("bos"), {"Sequence": {"id": "B", "type_id": 0}}, *part("eos")]
    special = {text: {"id": text, "ids": [number], "tokens": [text]} for text, number in ends.values()}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
