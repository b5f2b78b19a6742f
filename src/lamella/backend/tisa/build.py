"""A manifest as stages: every instruction checked against those before it and against the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.backend.tisa import changes, cuts
from lamella.backend.tisa.changes import Change
from lamella.backend.tisa.charsmap import CharacterMap
from lamella.backend.tisa.cuts import Added, Cut, Rule, Settling
from lamella.backend.tisa.decoding import Decoder, build_decoder, is_decoder, published_decoders
from lamella.backend.tisa.growth import MOST_GROWTH, Growth, find_texts
from lamella.backend.tisa.models.bpe import BytePairs
from lamella.backend.tisa.models.options import Options, published_unknown
from lamella.backend.tisa.models.unigram import LikeliestPieces
from lamella.backend.tisa.models.wordpiece import WordPieces
from lamella.backend.tisa.patterns import Node, PatternError, parse_pattern
from lamella.backend.tisa.problem import TokenizerProblem
from lamella.backend.tisa.running import Encode, join
from lamella.backend.tisa.vocabulary import Vocabulary
from lamella.base.errors import InputError
from lamella.base.source import Span
from lamella.lang.nac.assembly.nodes import Step, StepOperand
from lamella.lang.nac.check.sections.manifest import BEHAVES, PROTECTED, TRIMS
from lamella.lang.nac.nodes import Resource
from lamella.lang.nac.rules import tokenizing as rules

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

    def run(self, steps: Sequence[Step]) -> None:
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

    def _check_order(self, place: int, step: Step) -> None:
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

    def _check_growth(self, place: int, step: Step) -> None:
        """Texts grow with what is put into them, again and again: a bound for all instructions together."""
        self.growth.follow(step, self.longest)
        if self.growth.times > MOST_GROWTH:
            raise TokenizerProblem(rules.GROWTH.at(self.span, name=step.name, place=place, most=MOST_GROWTH))

    def _misplaced(self, place: int, name: str, problem: str) -> TokenizerProblem:
        return TokenizerProblem(rules.ORDER.at(self.span, name=name, place=place, problem=problem))

    def _add(self, step: Step) -> None:
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
