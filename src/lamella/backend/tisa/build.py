"""Compilation of a manifest to stages, a model and decoders; every instruction is checked against those before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.backend.tisa import stages
from lamella.backend.tisa.models import (
    BytePairs,
    EncodeOptions,
    LikeliestPieces,
    WordPieces,
    published_unknown,
)
from lamella.backend.tisa.patterns import Matcher, parse_pattern
from lamella.backend.tisa.stages import (
    STAGES,
    SURROUND,
    AddedToken,
    Cutter,
    Encode,
    Operands,
    PartitionRule,
    Stage,
    TextChange,
    byte_alphabet,
    characterwise,
    join,
)
from lamella.backend.tisa.vocabulary import Vocabulary
from lamella.base.errors import Found, InputError, Malformed
from lamella.base.reader import Reader
from lamella.base.source import Span
from lamella.lang.nac.assembly.nodes import ProgramStep, StepOperand
from lamella.lang.nac.check.manifest import BEHAVES, PROTECTED, TRIMS
from lamella.lang.nac.nodes import Resource
from lamella.lang.nac.rules import sections as rules

# --- decoders: from tokens to the text that they stand for --------------------------------------------------


Tokens = list[str]
Decoder = Callable[[Tokens], Tokens]
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_CLEANED = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


def build_decoder(step: ProgramStep) -> Decoder:
    """What an instruction does with the tokens."""
    return _DECODERS[step.name](*step.operands)


def is_decoder(name: str) -> bool:
    """Whether an instruction leads back."""
    return name in _DECODERS


def decode_bytes() -> Decoder:
    """DECODE_BYTES: tokens of the byte alphabet, others as they are."""
    bytes_of = {character: byte for byte, character in enumerate(byte_alphabet())}

    def token_bytes(token: str) -> bytes:
        try:
            return bytes([bytes_of[character] for character in token])
        except KeyError:
            return token.encode("utf-8", "replace")

    return lambda tokens: [b"".join(map(token_bytes, tokens)).decode("utf-8", "replace")]


def decode_wordpieces(marker: object, cleaned: object) -> Decoder:
    """DECODE_WORDPIECES: a space before each word but the first, none before what continues one."""
    mark = str(marker)

    def one(place: int, token: str) -> str:
        if place:
            token = token.replace(mark, "", 1) if token.startswith(mark) else f" {token}"
        for old, new in _CLEANED if cleaned else ():
            token = token.replace(old, new)
        return token

    return lambda tokens: [one(place, token) for place, token in enumerate(tokens)]


def decode_spaces(mark: object, drop: object) -> Decoder:
    """DECODE_SPACES: marks are spaces; in the first token they may stand for nothing."""

    def one(place: int, token: str) -> str:
        return token.replace(str(mark), "" if drop and not place else " ")

    return lambda tokens: [one(place, token) for place, token in enumerate(tokens)]


def _decoding_fuse() -> Decoder:
    return lambda tokens: ["".join(tokens)]


def _strip(content: object, start: object, stop: object) -> Decoder:
    character, first, last = str(content), _number(start), _number(stop)

    def one(token: str) -> str:
        begin = min(first, len(token) - len(token.lstrip(character)))
        end = len(token) - min(last, len(token) - len(token.rstrip(character)))
        return token[begin : max(begin, end)]

    return lambda tokens: [one(token) for token in tokens]


def _number(operand: object) -> int:
    return operand if isinstance(operand, int) else 0


def _fallback() -> Decoder:
    return _join_bytes


def _join_bytes(tokens: Tokens) -> Tokens:
    """Tokens `<0x41>` in a row are the bytes of a text; where they are none, each is a replacement character."""
    found: Tokens = []
    waiting = bytearray()
    for token in [*tokens, ""]:
        byte = _BYTE.fullmatch(token)
        if byte:
            waiting.append(int(byte[1], 16))
            continue
        if waiting:
            found += _texts_of(bytes(waiting))
            waiting.clear()
        found.append(token)
    return found[:-1]


def _texts_of(data: bytes) -> Tokens:
    try:
        return [data.decode("utf-8")]
    except UnicodeDecodeError:
        return ["\ufffd"] * len(data)


def _replace(is_pattern: object, old: object, new: object) -> Decoder:
    if is_pattern:
        matcher = Matcher([parse_pattern(str(old))])
        return lambda tokens: [matcher.replace(token, lambda _: str(new)) for token in tokens]
    if not old:
        return lambda tokens: tokens
    return lambda tokens: [token.replace(str(old), str(new)) for token in tokens]


def _suffix(suffix: object) -> Decoder:
    def one(place: int, token: str, count: int) -> str:
        return token.replace(str(suffix), "" if place == count - 1 else " ") if suffix else token

    return lambda tokens: [one(place, token, len(tokens)) for place, token in enumerate(tokens)]


def _join(separator: object) -> Decoder:
    return lambda tokens: [str(separator).join(tokens)]


_DECODERS: Mapping[str, Callable[..., Decoder]] = MappingProxyType(
    {
        "DECODE_BYTES": decode_bytes,
        "DECODE_WORDPIECES": decode_wordpieces,
        "DECODE_SPACES": decode_spaces,
        "DECODE_FUSE": _decoding_fuse,
        "DECODE_STRIP": _strip,
        "DECODE_FALLBACK": _fallback,
        "DECODE_REPLACE": _replace,
        "DECODE_SUFFIX": _suffix,
        "DECODE_JOIN": _join,
    }
)


def published_decoders(steps: Sequence[ProgramStep]) -> list[Decoder]:
    """The ways back of a manifest that names none: those of the way there."""
    operands = {step.name: step.operands for step in steps}
    if "BYTE_ENCODE" in operands:
        return [decode_bytes()]
    if "WORDPIECE_ENCODE" in operands:
        return [decode_wordpieces(operands["WORDPIECE_ENCODE"][0], 0)]
    return [decode_spaces("▁", 0), _decoding_fuse(), _strip(" ", 1, 0)]


# --- CHARSMAP: the character table of sentencepiece, a double-array trie with texts behind it ---------------


LONGEST_CLUSTER = 5
"""Bytes of a character with its marks that is looked up as a whole."""
LONGEST_TEXT = 256
_CLUSTER = r"\r\n|[^\p{Cc}\p{Zl}\p{Zp}\p{M}][\p{M}\x{200C}\x{200D}]+"
_VALUE, _LABEL = (1 << 31) - 1, (1 << 31) | 0xFF


class CharacterMap:
    """Texts by the keys that begin a text."""

    def __init__(self, data: bytes | memoryview) -> None:
        reader = Reader(data)
        size = reader.u32()
        if size % 4:
            raise InputError(f"a trie of {size} bytes has no whole units", 0)
        self._units = reader.integers("I", reader.count(size // 4, 4, "a trie"), "a trie")
        self._texts = bytes(reader.view(reader.remaining))
        texts = self._texts.split(b"\0")
        if max(map(len, texts)) > LONGEST_TEXT:
            raise InputError(f"a text has more than {LONGEST_TEXT} bytes", 4 + size)
        self.longest = max(len(text.decode("utf-8", "replace")) for text in texts)

    def find(self, chunk: str) -> str | None:
        """The text of the shortest key with which a chunk begins."""
        node, units = 0, self._units
        unit = units[0] if units else 0
        node ^= _offset(unit)
        for byte in chunk.encode("utf-8", "replace"):
            node ^= byte
            if not byte or node >= len(units) or units[node] & _LABEL != byte:
                return None
            unit = units[node]
            node ^= _offset(unit)
            if unit >> 8 & 1:
                return self._text(units[node] & _VALUE) if node < len(units) else None
        return None

    def _text(self, start: int) -> str:
        end = self._texts.find(b"\0", start)
        return self._texts[start : end if end >= 0 else None].decode("utf-8", "replace")

    def change(self) -> TextChange:
        """The change of whole texts: characters with their marks first, then characters."""
        clusters = Matcher([parse_pattern(_CLUSTER)])
        single = characterwise(self._character).apply

        def apply(text: str) -> str:
            pieces, at = list[str](), 0
            for start, end, _ in clusters.find(text) if not text.isascii() or "\r\n" in text else ():
                found = self._cluster(text[start:end])
                pieces += [single(text[at:start]), single(text[start:end]) if found is None else found]
                at = end
            return "".join(pieces) + single(text[at:])

        return TextChange(apply)

    def _character(self, character: str) -> str:
        found = self.find(character)
        return character if found is None else found

    def _cluster(self, cluster: str) -> str | None:
        short = len(cluster.encode("utf-8", "replace")) <= LONGEST_CLUSTER
        return self.find(cluster) if short else None


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)


# --- growth of texts: a bound over all instructions of a manifest -------------------------------------------


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

    def follow(self, step: ProgramStep, longest: int = 0) -> None:
        """Count an instruction; `longest` is the longest text of the table that it names."""
        form = _form(step)
        if form:
            self.times = self.times // self.formed * max(self.formed, form)
            self.formed = max(self.formed, form)
        put = _CUT_CHARACTER + longest if step.name == "CHARSMAP" else _put(step)
        if put:
            self.times *= put
            self.formed = 1


def _form(step: ProgramStep) -> int:
    if step.name == "LOWERCASE":
        return _LOWER
    return _FORMS[str(step.operands[0])] if step.name == "UNICODE_NORM" else 0


def _put(step: ProgramStep) -> int:
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


@dataclass
class TokenizerBuilder:
    """What a manifest has said so far."""

    vocabulary: Vocabulary
    span: Span
    resources: Mapping[str, Resource] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    added: list[AddedToken] = field(default_factory=list)
    options: EncodeOptions | None = None
    encode: Encode | None = None
    template: tuple[int | None, ...] | None = None
    decoders: list[Decoder] = field(default_factory=list)
    growth: Growth = field(default_factory=Growth)
    longest: int = 0
    """Characters of the longest text of the last table."""

    def run(self, steps: Sequence[ProgramStep]) -> None:
        """All instructions."""
        for place, step in enumerate(steps):
            self._check_order(place, step)
            try:
                self._add(step)
            except Malformed as problem:
                pattern = next((item for item in find_texts(step.operands) if _is_wrong(item)), "")
                finding = rules.PATTERN.at(self.span, pattern=pattern, reason=str(problem))
                raise Found(finding) from None
            self._check_growth(place, step)
        if self.encode is None:
            name = steps[-1].name if steps else "nothing"
            raise self._misplaced(len(steps) - 1, name, "is the last, and no instruction encodes")
        self.decoders = self.decoders or published_decoders(steps)

    def _check_order(self, place: int, step: ProgramStep) -> None:
        encoded = self.encode is not None
        if step.name == "COMPOSE":
            wrong = (
                "comes before the encoder" if not encoded else "is a second one" * (self.template is not None)
            )
        elif is_decoder(step.name):
            wrong = "" if encoded else "comes before the encoder"
        else:
            wrong = "comes behind the encoder" if encoded else ""
        if wrong:
            raise self._misplaced(place, step.name, wrong)

    def _check_growth(self, place: int, step: ProgramStep) -> None:
        """Texts grow with what is put into them, again and again: a bound for all instructions together."""
        self.growth.follow(step, self.longest)
        if self.growth.times > MOST_GROWTH:
            raise Found(rules.GROWTH.at(self.span, name=step.name, place=place, most=MOST_GROWTH))

    def _misplaced(self, place: int, name: str, problem: str) -> Found:
        return Found(rules.ORDER.at(self.span, name=name, place=place, problem=problem))

    def _add(self, step: ProgramStep) -> None:
        if is_decoder(step.name):
            self.decoders.append(build_decoder(step))
        elif step.name in STAGES:
            self.stages.append(STAGES[step.name](step.operands))
        else:
            _OTHERS[step.name](self, step.operands)

    # --- instructions that need the vocabulary --------------------------------------------------------------

    def partition(self, operands: Operands) -> None:
        """PARTITION_RULES."""
        unknown = published_unknown(self.vocabulary.ids)
        made = [_rule(operand) for operand in operands if isinstance(operand, tuple)]
        if made:
            self.stages.append(stages.partition(made, lambda text: self.vocabulary.ids.get(text, unknown)))

    def add_tokens(self, operands: Operands) -> None:
        """ADDED_TOKENS; tokens of normalised texts are changed as texts before this place are."""
        tokens = [_token(operand) for operand in operands if isinstance(operand, tuple)]
        self.added += tokens
        changing = [stage for stage in self.stages if isinstance(stage, TextChange)]
        self.stages.append(stages.added_tokens([_normalized(token, changing) for token in tokens]))

    def map_characters(self, operands: Operands) -> None:
        """CHARSMAP: the table is a resource."""
        name = str(operands[0])
        resource = self.resources.get(name)
        try:
            if resource is None:
                raise InputError("it is not there")
            table = CharacterMap(resource.data)
            self.longest = table.longest
            self.stages.append(table.change())
        except InputError as wrong:
            problem = f"cannot be read: {wrong.message}"
            raise Found(rules.VOCABULARY.at(self.span, name=name, problem=problem)) from None

    def set_options(self, operands: Operands) -> None:
        """ENCODE_OPTIONS."""
        flags, longest, token, prefix = operands
        unknown = self._token_id("ENCODE_OPTIONS", str(token)) if token else None
        self.options = EncodeOptions(_int(flags), _int(longest), unknown, str(prefix))

    def _token_id(self, name: str, token: str) -> int:
        found = self.vocabulary.ids.get(token)
        found = next((item.id for item in self.added if item.text == token), None) if found is None else found
        if found is None:
            raise Found(rules.TOKEN.at(self.span, name=name, token=token))
        return found

    def byte_pairs(self, operands: Operands) -> None:
        """BPE_ENCODE."""
        model = BytePairs(self.vocabulary, self.options, str(operands[0]) if operands else "")
        whole = not any(isinstance(stage, Cutter) for stage in self.stages)
        marked = [Cutter(model.cut)] if whole and model.marked else []
        self._finish(model.encode, marked)

    def word_pieces(self, operands: Operands) -> None:
        """WORDPIECE_ENCODE."""
        self._finish(WordPieces(self.vocabulary, self.options, str(operands[0])).encode)

    def likeliest(self, _: Operands) -> None:
        """UNIGRAM_ENCODE."""
        self._finish(LikeliestPieces(self.vocabulary, self.options).encode)

    def _finish(self, encode: Encode, more: Sequence[Cutter] = ()) -> None:
        self.encode = join([*_fused(self.stages), *more], encode)
        self.growth = Growth()  # the way back begins with tokens of the vocabulary

    def compose(self, operands: Operands) -> None:
        """COMPOSE: ids and tokens around the place of the sequence."""
        self.template = tuple(self._template_item(item) for item in operands)

    def _template_item(self, operand: StepOperand) -> int | None:
        if isinstance(operand, tuple):
            return None
        return operand if isinstance(operand, int) else self._token_id("COMPOSE", operand)


def _is_wrong(pattern: str) -> bool:
    try:
        stages.split(stages.ISOLATED, False, parse_pattern(pattern))
    except Malformed:
        return True
    return False


def _fused(unfused: Sequence[Stage]) -> list[Stage]:
    """The stages with changes of single characters between two cuts made one."""
    found: list[Stage] = []
    row: list[TextChange] = []
    for stage in unfused:
        if isinstance(stage, TextChange):
            row.append(stage)
        else:
            found += [*stages.fuse(row), stage]
            row = []
    return [*found, *stages.fuse(row)]


def _normalized(token: AddedToken, changing: Sequence[TextChange]) -> AddedToken:
    text = token.text
    for change in changing if token.flags & stages.NORMALIZED else ():
        text = change.apply(text)
    return AddedToken(token.flags, token.id, text or token.text)


def _token(operand: tuple[int | str, ...]) -> AddedToken:
    flags, number, text = operand
    return AddedToken(_int(flags), _int(number), str(text))


def _int(operand: object) -> int:
    return operand if isinstance(operand, int) else 0


def _rule(operand: tuple[int | str, ...]) -> PartitionRule:
    """`[flags, pattern, behaviour, trim]`; a space before a protected pattern is no part of the token."""
    flags, pattern = _int(operand[0]), str(operand[1])
    protected = bool(flags & PROTECTED)
    if protected and pattern[:1] in ("<", "["):
        pattern = " ?" + pattern
    behaviour = _int(operand[2]) if flags & BEHAVES else stages.ISOLATE
    return PartitionRule(
        parse_pattern(pattern), protected, behaviour, str(operand[-1]) if flags & TRIMS else ""
    )


_OTHERS: Mapping[str, Callable[[TokenizerBuilder, Operands], None]] = MappingProxyType(
    {
        "PARTITION_RULES": TokenizerBuilder.partition,
        "ADDED_TOKENS": TokenizerBuilder.add_tokens,
        "CHARSMAP": TokenizerBuilder.map_characters,
        "ENCODE_OPTIONS": TokenizerBuilder.set_options,
        "BPE_ENCODE": TokenizerBuilder.byte_pairs,
        "WORDPIECE_ENCODE": TokenizerBuilder.word_pieces,
        "UNIGRAM_ENCODE": TokenizerBuilder.likeliest,
        "COMPOSE": TokenizerBuilder.compose,
    }
)
