"""Models as an instruction and tables."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.bridge.tokenizer_to_nac.document import Part
from lamella.bridge.tokenizer_to_nac.normalizers import Steps
from lamella.lang.nac.assembly.nodes import Step

FALLBACK, FUSED, WHOLE = 1, 2, 4
MOST_CHARACTERS = 65535


@dataclass(frozen=True, slots=True)
class Tables:
    """The vocabulary of a model: ids and scores by token, and merges in order."""

    ids: dict[str, int]
    scores: dict[str, float] | None = None
    merges: tuple[tuple[str, str], ...] = ()


def model_steps(part: Part) -> tuple[Steps, Tables]:
    """The instructions of a model, and its vocabulary."""
    match _kind(part):
        case "BPE":
            return _byte_pairs(part)
        case "WordPiece":
            return _word_pieces(part)
        case "Unigram":
            return _likeliest(part)
        case kind:
            raise part.unsayable(f"the model '{kind}'")


def _kind(part: Part) -> str:
    """Old texts do not name their models."""
    if part["type"]:
        return part.kind
    return "BPE" if part["merges"] else "Unigram" if isinstance(part["vocab"].value, list) else "WordPiece"


def _numbered(part: Part) -> dict[str, int]:
    return {token: item.number() for token, item in part.entries()}


def _byte_pairs(part: Part) -> tuple[Steps, Tables]:
    tables = Tables(_numbered(part["vocab"]), None, tuple(map(_merge, part["merges"].items())))
    flags = FALLBACK * part["byte_fallback"].flag() + FUSED * part["fuse_unk"].flag()
    flags += WHOLE * part["ignore_merges"].flag()
    prefix = part["continuing_subword_prefix"].text("")
    for item in tables.merges:
        joined = item[0] + item[1][len(prefix) :]
        if not {*item, joined} <= tables.ids.keys():
            raise part["merges"].wrong(
                f"joins '{item[0]}' and '{item[1]}', which are not all in the vocabulary"
            )
    options = Step("ENCODE_OPTIONS", (flags, MOST_CHARACTERS, _unknown(part, tables), prefix))
    suffix = part["end_of_word_suffix"].text("")
    return [options, Step("BPE_ENCODE", (suffix,) if suffix else ())], tables


def _merge(part: Part) -> tuple[str, str]:
    words = part.value.split(" ") if isinstance(part.value, str) else [item.text() for item in part.items()]
    if len(words) != 2:
        raise part.wrong("is not a pair of tokens")
    return words[0], words[1]


def _unknown(part: Part, tables: Tables) -> str:
    token = part["unk_token"].text("")
    if token and token not in tables.ids:
        raise part["unk_token"].wrong(f"is '{token}', which is not in the vocabulary")
    return token


def _word_pieces(part: Part) -> tuple[Steps, Tables]:
    tables = Tables(_numbered(part["vocab"]))
    longest = part["max_input_chars_per_word"].number(100, MOST_CHARACTERS)
    options = Step("ENCODE_OPTIONS", (0, longest, _unknown(part, tables), ""))
    return [options, Step("WORDPIECE_ENCODE", (part["continuing_subword_prefix"].text("##"),))], tables


def _likeliest(part: Part) -> tuple[Steps, Tables]:
    rows = [list(item.items()) for item in part["vocab"].items()]
    if any(len(row) != 2 for row in rows):
        raise part["vocab"].wrong("is not a list of tokens with scores")
    scores = {token.text(): score.real() for token, score in rows}
    if len(scores) < len(rows):
        raise part["vocab"].wrong("has a token twice")
    tokens = list(scores)
    unknown = part["unk_id"]
    token = ""
    if unknown:
        if unknown.number() >= len(tokens):
            raise unknown.wrong(f"is {unknown.number()}; the vocabulary has {len(tokens)} tokens")
        token = tokens[unknown.number()]
    flags = FUSED + FALLBACK * part["byte_fallback"].flag()
    tables = Tables({item: number for number, item in enumerate(tokens)}, scores)
    return [Step("ENCODE_OPTIONS", (flags, MOST_CHARACTERS, token, "")), Step("UNIGRAM_ENCODE", ())], tables
