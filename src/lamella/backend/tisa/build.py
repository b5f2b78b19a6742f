"""A manifest as stages: every instruction checked against those before it and against the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.backend.tisa import changes, cuts
from lamella.backend.tisa.changes import SURROUND, Change, characterwise
from lamella.backend.tisa.cuts import Added, Cut, Rule, Settling
from lamella.backend.tisa.decoding import Decoder, build_decoder, is_decoder, published_decoders
from lamella.backend.tisa.models.bpe import BytePairs
from lamella.backend.tisa.models.options import FALLBACK, Options, byte_ids, published_unknown
from lamella.backend.tisa.patterns import Matcher, Node, PatternError, parse_pattern
from lamella.backend.tisa.problem import TokenizerProblem
from lamella.backend.tisa.running import Encode, join
from lamella.backend.tisa.vocabulary import Vocabulary
from lamella.base.errors import InputError
from lamella.base.reader import Reader
from lamella.base.source import Span
from lamella.lang.nac.assembly.nodes import ProgramStep, StepOperand
from lamella.lang.nac.check.manifest import BEHAVES, PROTECTED, TRIMS
from lamella.lang.nac.nodes import Resource
from lamella.lang.nac.rules import sections as rules

# --- word pieces: the longest piece of the vocabulary from the left -----------------------------------------


LONGEST_PIECE = 1024
"""Characters of a piece that is looked for."""


def lengths_of(tokens: Iterable[str]) -> tuple[int, ...]:
    """The lengths of some tokens, the longest first."""
    return tuple(sorted({len(token) for token in tokens if 0 < len(token) <= LONGEST_PIECE}, reverse=True))


class WordPieces:
    """Pieces that begin a word, and those that continue it behind a marker."""

    def __init__(self, vocabulary: Vocabulary, options: Options | None, marker: str) -> None:
        ids = vocabulary.ids
        inner = {token[len(marker) :]: number for token, number in ids.items() if token.startswith(marker)}
        self._tables = (dict(ids), lengths_of(ids)), (inner, lengths_of(inner))
        self._options = options
        self._unknown = options.unknown if options else published_unknown(ids)

    def encode(self, word: str) -> list[int]:
        """The ids of a word; with options an unknown word is unknown as a whole."""
        unknown = [] if self._unknown is None else [self._unknown]
        if self._options and len(word) > self._options.longest:
            return unknown
        found: list[int] = []
        at = 0
        while at < len(word):
            size, number = self._longest(word, at)
            if number is None and self._options:
                return unknown
            found += unknown if number is None else [number]
            at += size
        return found

    def _longest(self, word: str, at: int) -> tuple[int, int | None]:
        """The size and the id of the longest piece at a place; one character without id where there is none."""
        table, sizes = self._tables[at > 0]
        left = len(word) - at
        for size in sizes:
            if size <= left:
                number = table.get(word[at : at + size])
                if number is not None:
                    return size, number
        return 1, None


# --- the likeliest pieces: those whose scores have the largest sum ------------------------------------------


LONGEST = 49
"""Characters of a piece that the published instruction looks for."""
PENALTY = 10.0
"""How much less likely than the least likely piece an unknown character is."""
NOWHERE = float("-inf")


class LikeliestPieces:
    """Scores by piece, with the lengths that pieces beginning with a character have."""

    def __init__(self, vocabulary: Vocabulary, options: Options | None) -> None:
        self._ids, self._options = vocabulary.ids, options
        most = max(map(len, vocabulary.ids), default=0) if options else LONGEST
        self._scores = {
            text: vocabulary.scores.get(text, 0.0) for text in vocabulary.ids if len(text) <= most
        }
        starts: dict[str, list[str]] = {}
        for token in self._scores:
            starts.setdefault(token[:1], []).append(token)
        self._sizes = {first: tuple(reversed(lengths_of(tokens))) for first, tokens in starts.items()}
        self._worst = min(self._scores.values(), default=0.0) - PENALTY
        self._unknown = options.unknown if options else published_unknown(vocabulary.ids)

    def encode(self, word: str) -> list[int]:
        """The ids of a word."""
        pieces = self._best(word)
        if self._options is None:
            return self._published(word, pieces)
        found: list[int] = []
        for piece in _fuse(pieces, self._scores):
            found += self._look_up(piece)
        return found

    def _published(self, word: str, pieces: Sequence[str]) -> list[int]:
        """Characters one by one where no pieces cover the word."""
        known = all(piece in self._ids for piece in pieces)
        unknown = published_unknown(self._ids)
        return [self._ids.get(piece, unknown) for piece in (pieces if known else word)]

    def _look_up(self, piece: str) -> list[int]:
        number = self._ids.get(piece)
        if number is not None:
            return [number]
        fallback = self._options is not None and self._options.has(FALLBACK)
        numbers = byte_ids(piece, self._ids) if fallback else None
        if numbers is not None:
            return numbers
        return [] if self._unknown is None else [self._unknown]

    def _best(self, word: str) -> list[str]:
        """The pieces of the best way through a word; a character that is no piece has the worst score."""
        scores, table = [0.0] + [NOWHERE] * len(word), self._scores
        origins = [-1] * (len(word) + 1)
        for at, first in enumerate(word):
            here, alone = scores[at], False
            for size in self._sizes.get(first, ()):
                score = table.get(word[at : at + size]) if at + size <= len(word) else None
                if score is not None:
                    alone = alone or size == 1
                    if origins[at + size] < 0 or here + score > scores[at + size]:
                        scores[at + size], origins[at + size] = here + score, at
            if not alone and (origins[at + 1] < 0 or here + self._worst > scores[at + 1]):
                scores[at + 1], origins[at + 1] = here + self._worst, at
        return _walk_back(word, origins)


def _walk_back(word: str, origins: Sequence[int]) -> list[str]:
    pieces, end = [], len(word)
    while end > 0:
        pieces.append(word[origins[end] : end])
        end = origins[end]
    return pieces[::-1]


def _fuse(pieces: Sequence[str], known: dict[str, float]) -> list[str]:
    """Unknown pieces in a row are one."""
    found: list[str] = []
    fusing = False
    for piece in pieces:
        unknown = piece not in known
        if unknown and fusing:
            found[-1] += piece
        else:
            found.append(piece)
        fusing = unknown
    return found


# --- CHARSMAP: the table by which sentencepiece changes characters, a trie in one array with the ------------


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

    def change(self) -> Change:
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

        return Change(apply)

    def _character(self, character: str) -> str:
        found = self.find(character)
        return character if found is None else found

    def _cluster(self, cluster: str) -> str | None:
        short = len(cluster.encode("utf-8", "replace")) <= LONGEST_CLUSTER
        return self.find(cluster) if short else None


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)


# --- how much longer texts may become by what a manifest does with them, one instruction after --------------


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


Operands = tuple[StepOperand, ...]
Stage = Change | Cut | Settling


@dataclass
class Builder:
    """What a manifest has said so far."""

    vocabulary: Vocabulary
    span: Span
    resources: Mapping[str, Resource] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    added: list[Added] = field(default_factory=list)
    options: Options | None = None
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
            except PatternError as problem:
                pattern = next((item for item in find_texts(step.operands) if _is_wrong(item)), "")
                finding = rules.PATTERN.at(self.span, pattern=pattern, reason=problem.reason)
                raise TokenizerProblem(finding) from None
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
            raise TokenizerProblem(rules.GROWTH.at(self.span, name=step.name, place=place, most=MOST_GROWTH))

    def _misplaced(self, place: int, name: str, problem: str) -> TokenizerProblem:
        return TokenizerProblem(rules.ORDER.at(self.span, name=name, place=place, problem=problem))

    def _add(self, step: ProgramStep) -> None:
        if is_decoder(step.name):
            self.decoders.append(build_decoder(step))
        elif step.name in _STAGES:
            self.stages.append(_STAGES[step.name](step.operands))
        else:
            _OTHERS[step.name](self, step.operands)

    # --- instructions that need the vocabulary --------------------------------------------------------------

    def partition(self, operands: Operands) -> None:
        """PARTITION_RULES."""
        unknown = published_unknown(self.vocabulary.ids)
        made = [_rule(operand) for operand in operands if isinstance(operand, tuple)]
        if made:
            self.stages.append(cuts.partition(made, lambda text: self.vocabulary.ids.get(text, unknown)))

    def add_tokens(self, operands: Operands) -> None:
        """ADDED_TOKENS; tokens of normalised texts are changed as texts before this place are."""
        tokens = [_token(operand) for operand in operands if isinstance(operand, tuple)]
        self.added += tokens
        changing = [stage for stage in self.stages if isinstance(stage, Change)]
        self.stages.append(cuts.added_tokens([_normalized(token, changing) for token in tokens]))

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
            raise TokenizerProblem(rules.VOCABULARY.at(self.span, name=name, problem=problem)) from None

    def set_options(self, operands: Operands) -> None:
        """ENCODE_OPTIONS."""
        flags, longest, token, prefix = operands
        unknown = self._token_id("ENCODE_OPTIONS", str(token)) if token else None
        self.options = Options(_int(flags), _int(longest), unknown, str(prefix))

    def _token_id(self, name: str, token: str) -> int:
        found = self.vocabulary.ids.get(token)
        found = next((item.id for item in self.added if item.text == token), None) if found is None else found
        if found is None:
            raise TokenizerProblem(rules.TOKEN.at(self.span, name=name, token=token))
        return found

    def byte_pairs(self, operands: Operands) -> None:
        """BPE_ENCODE."""
        model = BytePairs(self.vocabulary, self.options, str(operands[0]) if operands else "")
        whole = not any(isinstance(stage, Cut) for stage in self.stages)
        marked = [Cut(model.cut)] if whole and model.marked else []
        self._finish(model.encode, marked)

    def word_pieces(self, operands: Operands) -> None:
        """WORDPIECE_ENCODE."""
        self._finish(WordPieces(self.vocabulary, self.options, str(operands[0])).encode)

    def likeliest(self, _: Operands) -> None:
        """UNIGRAM_ENCODE."""
        self._finish(LikeliestPieces(self.vocabulary, self.options).encode)

    def _finish(self, encode: Encode, more: Sequence[Cut] = ()) -> None:
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
        cuts.split(cuts.ISOLATED, False, parse_pattern(pattern))
    except PatternError:
        return True
    return False


def _fused(stages: Sequence[Stage]) -> list[Stage]:
    """The stages with changes of single characters between two cuts made one."""
    found: list[Stage] = []
    row: list[Change] = []
    for stage in stages:
        if isinstance(stage, Change):
            row.append(stage)
        else:
            found += [*changes.fuse(row), stage]
            row = []
    return [*found, *changes.fuse(row)]


def _normalized(token: Added, changing: Sequence[Change]) -> Added:
    text = token.text
    for change in changing if token.flags & cuts.NORMALIZED else ():
        text = change.apply(text)
    return Added(token.flags, token.id, text or token.text)


def _token(operand: tuple[int | str, ...]) -> Added:
    flags, number, text = operand
    return Added(_int(flags), _int(number), str(text))


def _int(operand: object) -> int:
    return operand if isinstance(operand, int) else 0


def _rule(operand: tuple[int | str, ...]) -> Rule:
    """`[flags, pattern, behaviour, trim]`; a space before a protected pattern is no part of the token."""
    flags, pattern = _int(operand[0]), str(operand[1])
    protected = bool(flags & PROTECTED)
    if protected and pattern[:1] in ("<", "["):
        pattern = " ?" + pattern
    behaviour = _int(operand[2]) if flags & BEHAVES else cuts.ISOLATE
    return Rule(parse_pattern(pattern), protected, behaviour, str(operand[-1]) if flags & TRIMS else "")


def _pattern(operand: StepOperand) -> Node:
    return parse_pattern(str(operand))


_STAGES: Mapping[str, Callable[[Operands], Stage]] = MappingProxyType(
    {
        "LOWERCASE": lambda _: changes.lower(),
        "UNICODE_NORM": lambda given: changes.normalize(str(given[0])),
        "REPLACE": lambda given: changes.replace(str(given[0]), str(given[1])),
        "FILTER_CATEGORY": lambda given: changes.drop_categories([str(item) for item in given]),
        "PREPEND": lambda given: changes.prepend(str(given[0])),
        "PREPEND_WHERE": lambda given: changes.prepend(
            str(given[1]), bool(_int(given[0]) & 1), bool(_int(given[0]) & 2)
        ),
        "REPLACE_PATTERN": lambda given: changes.replace_pattern(
            _int(given[0]), _pattern(given[1]), str(given[2])
        ),
        "BYTE_ENCODE": lambda _: changes.encode_bytes(),
        "SPLIT": lambda given: cuts.split(_int(given[0]), bool(given[1]), _pattern(given[2])),
    }
)
_OTHERS: Mapping[str, Callable[[Builder, Operands], None]] = MappingProxyType(
    {
        "PARTITION_RULES": Builder.partition,
        "ADDED_TOKENS": Builder.add_tokens,
        "CHARSMAP": Builder.map_characters,
        "ENCODE_OPTIONS": Builder.set_options,
        "BPE_ENCODE": Builder.byte_pairs,
        "WORDPIECE_ENCODE": Builder.word_pieces,
        "UNIGRAM_ENCODE": Builder.likeliest,
        "COMPOSE": Builder.compose,
    }
)
