"""From a `tokenizer.json` to the manifest and the resources of a file."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Malformed
from lamella.bridge.tokenizer_to_nac.document import Part, TokenizerProblem, read_document
from lamella.bridge.tokenizer_to_nac.normalizers import (
    AT_START,
    CHARSMAP,
    Steps,
    find_charsmap,
    normalizer_steps,
)
from lamella.bridge.tokenizer_to_nac.patterns import BYTE_LEVEL, PUNCTUATION, WORDS, escape, read_pattern
from lamella.lang.nac.assembly.nodes import ProgramStep
from lamella.lang.nac.assembly.programs import encode_manifest_step
from lamella.lang.nac.check.manifest import BEHAVES, MAGIC
from lamella.lang.nac.nodes import Resource
from lamella.lang.nac.rules import sections as rules

# --- post-processors as a template, decoders as instructions ------------------------------------------------


Template = tuple[int | None, ...]
PLACE: Template = (None,)
"""The place of the text alone."""


def template_steps(part: Part) -> Steps:
    """The template of a post-processor, where it adds something to a single text."""
    template = _template(part)
    if template == PLACE:
        return []
    return [ProgramStep("COMPOSE", tuple(() if item is None else item for item in template))]


def _template(part: Part) -> Template:
    if not part:
        return PLACE
    match part.kind:
        case "Sequence":
            template = PLACE
            for item in part["processors"].items():
                template = _around(_template(item), template)
            return template
        case "ByteLevel":
            return PLACE
        case "BertProcessing" | "RobertaProcessing":
            return _pair_id(part["cls"]), None, _pair_id(part["sep"])
        case "TemplateProcessing":
            return tuple(number for item in part["single"].items() for number in _item(part, item))
        case kind:
            raise part.unsayable(f"the post-processor '{kind}'")


def _around(outer: Template, inner: Template) -> Template:
    return tuple(number for item in outer for number in (inner if item is None else (item,)))


def _pair_id(part: Part) -> int:
    items = list(part.items())
    if len(items) != 2:
        raise part.wrong("is not a token with its id")
    return items[1].number()


def _item(part: Part, item: Part) -> Template:
    if item["SpecialToken"]:
        name = item["SpecialToken"]["id"].text()
        return tuple(number.number() for number in part["special_tokens"][name]["ids"].items())
    if item["Sequence"]["id"].text() != "A":
        raise item.unsayable("the second of two texts")
    return PLACE


# --- decoders -----------------------------------------------------------------------------------------------


def decoder_steps(part: Part) -> Steps:
    """The instructions of a decoder; tokens stand apart where there is none."""
    return _decoders(part) if part else [ProgramStep("DECODE_JOIN", (" ",))]


def _decoders(part: Part) -> Steps:
    if part.kind == "Sequence":
        return [step for item in part["decoders"].items() for step in _decoders(item)]
    if part.kind not in _DECODERS:
        raise part.unsayable(f"the decoder '{part.kind}'")
    return [_DECODERS[part.kind](part)]


def _wordpieces(part: Part) -> ProgramStep:
    return ProgramStep("DECODE_WORDPIECES", (part["prefix"].text("##"), int(part["cleanup"].flag(True))))


def _spaces(part: Part) -> ProgramStep:
    old = "always" if part["add_prefix_space"].flag(True) else "never"
    drops = part["prepend_scheme"].text(old) != "never"
    return ProgramStep("DECODE_SPACES", (part["replacement"].text("▁"), int(drops)))


def _strip(part: Part) -> ProgramStep:
    counts = (part[key].number(0, 65535) for key in ("start", "stop"))
    return ProgramStep("DECODE_STRIP", (part["content"].text(), *counts))


def _replace(part: Part) -> ProgramStep:
    content = part["content"].text()
    if part["pattern"]["String"]:
        return ProgramStep("DECODE_REPLACE", (0, part["pattern"]["String"].text(), content))
    return ProgramStep("DECODE_REPLACE", (1, read_pattern(part["pattern"]), content))


_DECODERS: Mapping[str, Callable[[Part], ProgramStep]] = MappingProxyType(
    {
        "ByteLevel": lambda _: ProgramStep("DECODE_BYTES", ()),
        "WordPiece": _wordpieces,
        "Metaspace": _spaces,
        "Fuse": lambda _: ProgramStep("DECODE_FUSE", ()),
        "Strip": _strip,
        "ByteFallback": lambda _: ProgramStep("DECODE_FALLBACK", ()),
        "Replace": _replace,
        "BPEDecoder": lambda part: ProgramStep("DECODE_SUFFIX", (part["suffix"].text("</w>"),)),
    }
)


# --- pre-tokenizers as instructions -------------------------------------------------------------------------


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


def _isolate(pattern: str) -> ProgramStep:
    return ProgramStep("PARTITION_RULES", ((0, pattern),))


def _remove(pattern: str) -> ProgramStep:
    return ProgramStep("PARTITION_RULES", ((BEHAVES, pattern, 1),))


def _cut(behaviour: Part, pattern: str, inverted: bool = False) -> Steps:
    """A split by the instruction that was published, where it has one."""
    name = behaviour.text("Isolated")
    if name not in BEHAVIOURS:
        raise behaviour.wrong(f"is '{name}', which is no behaviour")
    if name == "Isolated":
        return [_isolate(pattern)]
    if name == "Removed" and not inverted:
        return [_remove(pattern)]
    return [ProgramStep("SPLIT", (BEHAVIOURS.index(name), int(inverted), pattern))]


def _byte_level(part: Part) -> Steps:
    space = [ProgramStep("PREPEND", (" ",))] if part["add_prefix_space"].flag(True) else []
    words = [_isolate(BYTE_LEVEL)] if part["use_regex"].flag(True) else []
    return [*space, *words, ProgramStep("BYTE_ENCODE", ())]


def _whitespace(_: Part) -> Steps:
    return [ProgramStep("SPLIT", (0, 1, WORDS))]


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
    steps = [ProgramStep("REPLACE", (" ", mark))]
    if scheme != "never":
        first = ProgramStep("PREPEND_WHERE", (AT_START, mark))
        steps.append(first if scheme == "first" else ProgramStep("PREPEND", (mark,)))
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


# --- models as an instruction and tables --------------------------------------------------------------------


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
    options = ProgramStep("ENCODE_OPTIONS", (flags, MOST_CHARACTERS, _unknown(part, tables), prefix))
    suffix = part["end_of_word_suffix"].text("")
    return [options, ProgramStep("BPE_ENCODE", (suffix,) if suffix else ())], tables


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
    options = ProgramStep("ENCODE_OPTIONS", (0, longest, _unknown(part, tables), ""))
    return [options, ProgramStep("WORDPIECE_ENCODE", (part["continuing_subword_prefix"].text("##"),))], tables


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
    return [
        ProgramStep("ENCODE_OPTIONS", (flags, MOST_CHARACTERS, token, "")),
        ProgramStep("UNIGRAM_ENCODE", ()),
    ], tables


# --- the resources of a tokenizer: tokens, their index, merges and scores as bytes --------------------------


LONGEST = 65535


def write_tables(tables: Tables) -> tuple[Resource, ...]:
    """`vocab.b` and `vidx.b`; `merges.b` where there are merges, `scores.b` with the scores in double precision."""
    return tuple(Resource(name, data) for name, data in _tables(tables))


def _tables(tables: Tables) -> Iterator[tuple[str, bytes]]:
    scores = tables.scores or {}
    records, offsets, by_id = bytearray(), list[int](), dict[int, int]()
    for token in sorted(tables.ids, key=lambda text: text.encode("utf-8")):
        offsets.append(len(records))
        by_id[tables.ids[token]] = len(records)
        records += _text(token) + struct.pack("<if", tables.ids[token], scores.get(token, 0.0))
    yield "vocab.b", _list("I", offsets) + records
    yield "vidx.b", _list("I", [by_id.get(number, 0) for number in range(max(by_id, default=-1) + 1)])
    if tables.merges:
        pairs = b"".join(_text(first) + _text(second) for first, second in tables.merges)
        yield "merges.b", struct.pack("<I", len(tables.merges)) + pairs
    if tables.scores is not None:
        yield "scores.b", _list("d", list(scores.values()))


def _list(code: str, values: list[int] | list[float]) -> bytes:
    return struct.pack(f"<I{len(values)}{code}", len(values), *values)


def _text(token: str) -> bytes:
    data = token.encode("utf-8")
    return struct.pack("<H", len(data)) + data


# --- A tokenizer of the package `tokenizers` as a manifest with its resources -------------------------------


FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")
"""What added tokens may be, from the lowest bit on."""
NORMALIZED = 8
LARGEST_ID = 1 << 24


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """The manifest for PROC, the resources for RSRC, and what was left out."""

    manifest: bytes
    resources: tuple[Resource, ...]
    findings: tuple[Diagnostic, ...] = ()


def tokenizer_to_nac(data: bytes, name: str = "tokenizer.json") -> TokenizerParts:
    """The parts of a file that say what a `tokenizer.json` says; LamellaError with findings where nothing can."""
    try:
        document = read_document(data, name)
        steps, tables = _steps(document)
        _check_tables(document["model"], tables)
        table = find_charsmap(document["normalizer"])
        manifest = MAGIC + b"".join(_packed(document, step) for step in steps)
    except TokenizerProblem as problem:
        raise LamellaError([problem.finding]) from None
    more = () if table is None else (Resource(CHARSMAP, table),)
    return TokenizerParts(manifest, (*write_tables(tables), *more), tuple(_left_out(document)))


def _steps(document: Part) -> tuple[Steps, Tables]:
    added = [_added(item) for item in document["added_tokens"].items()]
    raw = tuple(token for token in added if not token[0] & NORMALIZED)
    normalized = tuple(token for token in added if token[0] & NORMALIZED)
    encoder, tables = model_steps(document["model"])
    steps = [
        *_added_step(raw),
        *normalizer_steps(document["normalizer"]),
        *_added_step(normalized),
        *splitting_steps(document["pre_tokenizer"]),
        *encoder,
        *template_steps(document["post_processor"]),
        *decoder_steps(document["decoder"]),
    ]
    return steps, tables


Token = tuple[int, int, str]


def _added(part: Part) -> Token:
    flags = sum(part[name].flag() << bit for bit, name in enumerate(FLAGS))
    return flags, part["id"].number(), part["content"].text()


def _added_step(tokens: tuple[Token, ...]) -> Steps:
    shown = tuple(token for token in tokens if token[2])
    return [ProgramStep("ADDED_TOKENS", shown)] if shown else []


def _check_tables(part: Part, tables: Tables) -> None:
    for token, number in tables.ids.items():
        text = Part(token, part.place, part.span).text()
        if len(text.encode("utf-8")) > LONGEST:
            raise part.wrong(f"has a token of more than {LONGEST} bytes")
        if number >= LARGEST_ID:
            raise part.wrong(f"gives a token the id {number}; {LARGEST_ID - 1} is the last")
    if tables.scores and any(score != score for score in tables.scores.values()):
        raise part.wrong("has a score that is no number")


def _packed(document: Part, step: ProgramStep) -> bytes:
    try:
        return encode_manifest_step(step)
    except Malformed as problem:
        raise document.wrong(f"needs an instruction {step.name} that {problem}") from None


def _left_out(document: Part) -> Iterator[Diagnostic]:
    reasons = {"truncation": "texts are encoded whole", "padding": "nothing is put behind short texts"}
    for name, reason in reasons.items():
        if document[name]:
            yield rules.LEFT_OUT.at(document.span, place=name, reason=reason)
    if document["model"]["dropout"]:
        yield rules.LEFT_OUT.at(document.span, place="model.dropout", reason="encoding is not random")


__all__ = ["TokenizerParts", "tokenizer_to_nac"]
