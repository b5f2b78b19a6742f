"""Lowering of a `tokenizer.json` to the manifest and the resources of a file."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Found, Malformed
from lamella.base.jsontext import decode_json
from lamella.base.source import Binary, Span
from lamella.lang.nac.assembly.nodes import ProgramStep
from lamella.lang.nac.assembly.programs import encode_manifest_step
from lamella.lang.nac.check.manifest import BEHAVES, MAGIC
from lamella.lang.nac.nodes import Resource
from lamella.lang.nac.rules import sections as rules

# --- the JSON text: every part knows its place, and says when it is not what it should be -------------------


LONGEST_PLACE = 500
"""Characters of a place; those of real tokenizers have some tens."""


LARGEST, HIGHEST_POWER = 2**64 - 1, 308


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A value within the text, and where it stands."""

    value: object
    place: str
    span: Span

    def wrong(self, problem: str) -> Found:
        """What refuses this part."""
        return Found(rules.DOCUMENT.at(self.span, place=self.place, problem=problem))

    def unsayable(self, what: str) -> Found:
        """What refuses a part that manifests cannot say."""
        return Found(rules.NO_INSTRUCTION.at(self.span, place=self.place, what=what))

    def __getitem__(self, key: str) -> DocumentPart:
        """A part of an object; where it is absent its value is None."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return DocumentPart(
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

    def items(self) -> Iterator[DocumentPart]:
        """The parts of a list."""
        value = [] if self.value is None else self.value
        if not isinstance(value, list):
            raise self.wrong("is not a list")
        return (DocumentPart(item, f"{self.place}[{place}]", self.span) for place, item in enumerate(value))

    def entries(self) -> Iterator[tuple[str, DocumentPart]]:
        """The parts of an object with their keys."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return (
            (key, DocumentPart(item, f"{self.place}.{key}", self.span)) for key, item in self.value.items()
        )


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


def read_document(data: bytes, name: str) -> DocumentPart:
    """The whole text."""
    span = Span(Binary(name), 0, 0)
    try:
        value = decode_json(data, max_depth=None, read_number=read_number)
    except Malformed as problem:
        raise DocumentPart(None, "the text", span).wrong(str(problem)) from None
    return DocumentPart(value, "the text", span)


# --- patterns that the parts of tokenizers stand for --------------------------------------------------------


BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
WORDS = r"[\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+"
CONTROL = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\x{FFFD}\p{Cf}\p{Co}]"
IDEOGRAPHS = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
NMT_DROPPED = r"[\x01-\x08\x0B\x0E-\x1F\x7F\x8F\x9F]"
NMT_SPACES = r"[\x09\x0A\x0C\x0D\x{1680}\x{200B}-\x{200F}\x{2028}\x{2029}\x{2581}\x{FEFF}\x{FFFD}]"


def escape(text: str) -> str:
    """The pattern of a literal text."""
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character == "\0":
        return r"\x00"
    return (
        f"\\{character}"
        if character.isascii() and not character.isalnum() and character != " "
        else character
    )


def read_pattern(part: DocumentPart) -> str:
    """A literal text or a pattern: `{"String": …}` or `{"Regex": …}`."""
    if part["Regex"]:
        return part["Regex"].text()
    return escape(part["String"].text())


# --- normalizers as instructions ----------------------------------------------------------------------------


Steps = list[ProgramStep]
CHARSMAP = "charsmap.b"
INSTEAD, AROUND = 0, 1
ALWAYS, AT_START = 1, 2


def normalizer_steps(part: DocumentPart) -> Steps:
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


def _lowercase(_: DocumentPart) -> Steps:
    """Letter by letter: a sigma at the end of a word is not another letter."""
    return [ProgramStep("REPLACE", ("Σ", "σ")), ProgramStep("LOWERCASE", ())]


def _normalizers_replace(part: DocumentPart) -> Steps:
    if part["pattern"]["String"]:
        old = part["pattern"]["String"].text()
        if not old:
            raise part.unsayable("a replacement of nothing")
        return [ProgramStep("REPLACE", (old, part["content"].text()))]
    return [ProgramStep("REPLACE_PATTERN", (INSTEAD, read_pattern(part["pattern"]), part["content"].text()))]


def _prepend(part: DocumentPart) -> Steps:
    return [ProgramStep("PREPEND_WHERE", (ALWAYS, part["prepend"].text()))]


def _normalizers_strip(part: DocumentPart) -> Steps:
    left = [ProgramStep("REPLACE_PATTERN", (INSTEAD, r"^\s+", ""))] if part["strip_left"].flag() else []
    right = [ProgramStep("REPLACE_PATTERN", (INSTEAD, r"\s+$", ""))] if part["strip_right"].flag() else []
    return left + right


def _strip_accents(_: DocumentPart) -> Steps:
    return [ProgramStep("FILTER_CATEGORY", ("M",))]


def _normalizers_bert(part: DocumentPart) -> Steps:
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


def _nmt(_: DocumentPart) -> Steps:
    dropped = ProgramStep("REPLACE_PATTERN", (INSTEAD, NMT_DROPPED, ""))
    return [dropped, ProgramStep("REPLACE_PATTERN", (INSTEAD, NMT_SPACES, " "))]


def _charsmap(_: DocumentPart) -> Steps:
    return [ProgramStep("CHARSMAP", (CHARSMAP,))]


def find_charsmap(part: DocumentPart) -> bytes | None:
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


def _normalizers_byte_level(_: DocumentPart) -> Steps:
    return [ProgramStep("BYTE_ENCODE", ())]


_NORMALIZERS: Mapping[str, Callable[[DocumentPart], Steps]] = MappingProxyType(
    {
        "Lowercase": _lowercase,
        "Replace": _normalizers_replace,
        "Prepend": _prepend,
        "Strip": _normalizers_strip,
        "StripAccents": _strip_accents,
        "BertNormalizer": _normalizers_bert,
        "Nmt": _nmt,
        "Precompiled": _charsmap,
        "ByteLevel": _normalizers_byte_level,
    }
)


# --- post-processors as a template, decoders as instructions ------------------------------------------------


Template = tuple[int | None, ...]
PLACE: Template = (None,)
"""The place of the text alone."""


def template_steps(part: DocumentPart) -> Steps:
    """The template of a post-processor, where it adds something to a single text."""
    template = _template(part)
    if template == PLACE:
        return []
    return [ProgramStep("COMPOSE", tuple(() if item is None else item for item in template))]


def _template(part: DocumentPart) -> Template:
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


def _pair_id(part: DocumentPart) -> int:
    items = list(part.items())
    if len(items) != 2:
        raise part.wrong("is not a token with its id")
    return items[1].number()


def _item(part: DocumentPart, item: DocumentPart) -> Template:
    if item["SpecialToken"]:
        name = item["SpecialToken"]["id"].text()
        return tuple(number.number() for number in part["special_tokens"][name]["ids"].items())
    if item["Sequence"]["id"].text() != "A":
        raise item.unsayable("the second of two texts")
    return PLACE


# --- decoders -----------------------------------------------------------------------------------------------


def decoder_steps(part: DocumentPart) -> Steps:
    """The instructions of a decoder; tokens stand apart where there is none."""
    return _decoders(part) if part else [ProgramStep("DECODE_JOIN", (" ",))]


def _decoders(part: DocumentPart) -> Steps:
    if part.kind == "Sequence":
        return [step for item in part["decoders"].items() for step in _decoders(item)]
    if part.kind not in _DECODERS:
        raise part.unsayable(f"the decoder '{part.kind}'")
    return [_DECODERS[part.kind](part)]


def _wordpieces(part: DocumentPart) -> ProgramStep:
    return ProgramStep("DECODE_WORDPIECES", (part["prefix"].text("##"), int(part["cleanup"].flag(True))))


def _spaces(part: DocumentPart) -> ProgramStep:
    old = "always" if part["add_prefix_space"].flag(True) else "never"
    drops = part["prepend_scheme"].text(old) != "never"
    return ProgramStep("DECODE_SPACES", (part["replacement"].text("▁"), int(drops)))


def _strip(part: DocumentPart) -> ProgramStep:
    counts = (part[key].number(0, 65535) for key in ("start", "stop"))
    return ProgramStep("DECODE_STRIP", (part["content"].text(), *counts))


def _replace(part: DocumentPart) -> ProgramStep:
    content = part["content"].text()
    if part["pattern"]["String"]:
        return ProgramStep("DECODE_REPLACE", (0, part["pattern"]["String"].text(), content))
    return ProgramStep("DECODE_REPLACE", (1, read_pattern(part["pattern"]), content))


_DECODERS: Mapping[str, Callable[[DocumentPart], ProgramStep]] = MappingProxyType(
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


def splitting_steps(part: DocumentPart) -> Steps:
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


def _cut(behaviour: DocumentPart, pattern: str, inverted: bool = False) -> Steps:
    """A split by the instruction that was published, where it has one."""
    name = behaviour.text("Isolated")
    if name not in BEHAVIOURS:
        raise behaviour.wrong(f"is '{name}', which is no behaviour")
    if name == "Isolated":
        return [_isolate(pattern)]
    if name == "Removed" and not inverted:
        return [_remove(pattern)]
    return [ProgramStep("SPLIT", (BEHAVIOURS.index(name), int(inverted), pattern))]


def _byte_level(part: DocumentPart) -> Steps:
    space = [ProgramStep("PREPEND", (" ",))] if part["add_prefix_space"].flag(True) else []
    words = [_isolate(BYTE_LEVEL)] if part["use_regex"].flag(True) else []
    return [*space, *words, ProgramStep("BYTE_ENCODE", ())]


def _whitespace(_: DocumentPart) -> Steps:
    return [ProgramStep("SPLIT", (0, 1, WORDS))]


def _whitespace_split(_: DocumentPart) -> Steps:
    return [_remove(r"\s+")]


def _bert(_: DocumentPart) -> Steps:
    return [_remove(r"\s+"), _isolate(PUNCTUATION)]


def _punctuation(part: DocumentPart) -> Steps:
    return _cut(part["behavior"], PUNCTUATION)


def _digits(part: DocumentPart) -> Steps:
    return [_isolate(r"\p{N}" if part["individual_digits"].flag() else r"\p{N}+")]


def _split(part: DocumentPart) -> Steps:
    return _cut(part["behavior"], read_pattern(part["pattern"]), part["invert"].flag())


def _delimiter(part: DocumentPart) -> Steps:
    return [_remove(escape(part["delimiter"].text()))]


def _metaspace(part: DocumentPart) -> Steps:
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


_SPLITTERS: Mapping[str, Callable[[DocumentPart], Steps]] = MappingProxyType(
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
class VocabularyTables:
    """The vocabulary of a model: ids and scores by token, and merges in order."""

    ids: dict[str, int]
    scores: dict[str, float] | None = None
    merges: tuple[tuple[str, str], ...] = ()


def model_steps(part: DocumentPart) -> tuple[Steps, VocabularyTables]:
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


def _kind(part: DocumentPart) -> str:
    """Old texts do not name their models."""
    if part["type"]:
        return part.kind
    return "BPE" if part["merges"] else "Unigram" if isinstance(part["vocab"].value, list) else "WordPiece"


def _numbered(part: DocumentPart) -> dict[str, int]:
    return {token: item.number() for token, item in part.entries()}


def _byte_pairs(part: DocumentPart) -> tuple[Steps, VocabularyTables]:
    tables = VocabularyTables(_numbered(part["vocab"]), None, tuple(map(_merge, part["merges"].items())))
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


def _merge(part: DocumentPart) -> tuple[str, str]:
    words = part.value.split(" ") if isinstance(part.value, str) else [item.text() for item in part.items()]
    if len(words) != 2:
        raise part.wrong("is not a pair of tokens")
    return words[0], words[1]


def _unknown(part: DocumentPart, tables: VocabularyTables) -> str:
    token = part["unk_token"].text("")
    if token and token not in tables.ids:
        raise part["unk_token"].wrong(f"is '{token}', which is not in the vocabulary")
    return token


def _word_pieces(part: DocumentPart) -> tuple[Steps, VocabularyTables]:
    tables = VocabularyTables(_numbered(part["vocab"]))
    longest = part["max_input_chars_per_word"].number(100, MOST_CHARACTERS)
    options = ProgramStep("ENCODE_OPTIONS", (0, longest, _unknown(part, tables), ""))
    return [options, ProgramStep("WORDPIECE_ENCODE", (part["continuing_subword_prefix"].text("##"),))], tables


def _likeliest(part: DocumentPart) -> tuple[Steps, VocabularyTables]:
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
    tables = VocabularyTables({item: number for number, item in enumerate(tokens)}, scores)
    return [
        ProgramStep("ENCODE_OPTIONS", (flags, MOST_CHARACTERS, token, "")),
        ProgramStep("UNIGRAM_ENCODE", ()),
    ], tables


# --- the resources of a tokenizer: tokens, their index, merges and scores as bytes --------------------------


LONGEST = 65535


def write_tables(tables: VocabularyTables) -> tuple[Resource, ...]:
    """`vocab.b` and `vidx.b`; `merges.b` where there are merges, `scores.b` with the scores in double precision."""
    return tuple(Resource(name, data) for name, data in _tables(tables))


def _tables(tables: VocabularyTables) -> Iterator[tuple[str, bytes]]:
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


# --- the whole tokenizer ------------------------------------------------------------------------------------


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
    except Found as problem:
        raise LamellaError(problem.findings) from None
    more = () if table is None else (Resource(CHARSMAP, table),)
    return TokenizerParts(manifest, (*write_tables(tables), *more), tuple(_left_out(document)))


def _steps(document: DocumentPart) -> tuple[Steps, VocabularyTables]:
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


def _added(part: DocumentPart) -> Token:
    flags = sum(part[name].flag() << bit for bit, name in enumerate(FLAGS))
    return flags, part["id"].number(), part["content"].text()


def _added_step(tokens: tuple[Token, ...]) -> Steps:
    shown = tuple(token for token in tokens if token[2])
    return [ProgramStep("ADDED_TOKENS", shown)] if shown else []


def _check_tables(part: DocumentPart, tables: VocabularyTables) -> None:
    for token, number in tables.ids.items():
        text = DocumentPart(token, part.place, part.span).text()
        if len(text.encode("utf-8")) > LONGEST:
            raise part.wrong(f"has a token of more than {LONGEST} bytes")
        if number >= LARGEST_ID:
            raise part.wrong(f"gives a token the id {number}; {LARGEST_ID - 1} is the last")
    if tables.scores and any(score != score for score in tables.scores.values()):
        raise part.wrong("has a score that is no number")


def _packed(document: DocumentPart, step: ProgramStep) -> bytes:
    try:
        return encode_manifest_step(step)
    except Malformed as problem:
        raise document.wrong(f"needs an instruction {step.name} that {problem}") from None


def _left_out(document: DocumentPart) -> Iterator[Diagnostic]:
    reasons = {"truncation": "texts are encoded whole", "padding": "nothing is put behind short texts"}
    for name, reason in reasons.items():
        if document[name]:
            yield rules.LEFT_OUT.at(document.span, place=name, reason=reason)
    if document["model"]["dropout"]:
        yield rules.LEFT_OUT.at(document.span, place="model.dropout", reason="encoding is not random")


__all__ = ["TokenizerParts", "tokenizer_to_nac"]
