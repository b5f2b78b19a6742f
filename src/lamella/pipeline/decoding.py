"""How tokens are chosen behind others: greedily, by chance or by beam search, under the rules of a folder.

The rules, their order and the scores of beams are those of transformers, whose `generation_config.json` names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError

MOST_BEAMS, MOST_WORDS = 256, 4096
"""Beams, and words that are never chosen; a config that names more is not believed."""

Kept = TypeVar("Kept")
"""What a model has seen, as it keeps that."""
Rate = Callable[[Sequence[int]], Array]
"""Gives a score for each token that may come next; takes those that are new since the last call."""


class Branches(Protocol[Kept]):
    """A model that can continue from several places: what it has seen is kept, and taken up again."""

    def rate_next(self, new: Sequence[int]) -> Array:
        """The scores of the token behind further ones."""

    def keep(self) -> Kept:
        """What it has seen so far."""

    def resume(self, kept: Kept) -> None:
        """Continue behind what was kept."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a folder says about how tokens are chosen."""

    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    min_length: int = 0
    min_new_tokens: int = 0
    forced_eos_token_id: int | None = None
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


PLAIN = Rules()
CHANCE = ("top_k", "top_p", "min_p")
"""Rules for tokens that are drawn."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How many tokens are chosen at most, and how: the likeliest, or by chance with a temperature."""

    max_tokens: int = 16
    temperature: float = 0.0
    seed: int = 0
    rules: Rules = PLAIN
    stops: frozenset[int] = frozenset()
    """Tokens that end a text."""
    answered: int = 0
    """How many of the last tokens of the prompt belong to the answer, as lengths count it."""

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is chosen, whatever stands before it."""
        bare = replace(self.rules, top_k=PLAIN.top_k, top_p=PLAIN.top_p, min_p=PLAIN.min_p)
        return self.temperature <= 0 and bare == PLAIN


def continue_text(
    model: Branches[Kept], prompt: Sequence[int], sampling: Sampling, before: Sequence[int] = ()
) -> Iterator[int]:
    """The tokens that follow; `before` are those that the model has seen already, which rules count too."""
    if sampling.rules.num_beams > 1 and sampling.temperature <= 0:
        return iter(_BeamSearch(model, prompt, sampling, before).run())
    return decode(model.rate_next, prompt, sampling, before)


def decode(
    rate: Rate, prompt: Sequence[int], sampling: Sampling, before: Sequence[int] = ()
) -> Iterator[int]:
    """The tokens that follow, each as it is chosen; one that ends a text is the last, and is not given."""
    chance = np.random.default_rng(sampling.seed)
    text, new = Continuation([*before, *prompt], sampling), list(prompt)
    for _ in range(sampling.max_tokens):
        token = choose_token(text.apply_rules(rate(new)), sampling, chance)
        if token in sampling.stops:
            return
        yield token
        text.tokens.append(token)
        new = [token]


def choose_token(scores: Array, sampling: Sampling, chance: np.random.Generator) -> int:
    """The likeliest token, or with a temperature one by chance."""
    if sampling.temperature <= 0:
        return int(scores.argmax())
    scaled = _likely_alone(scores.astype(np.float64) / sampling.temperature, sampling.rules)
    weights = np.exp(scaled - scaled.max())
    return int(chance.choice(len(weights), p=weights / weights.sum()))


def _likely_alone(scores: Array, rules: Rules) -> Array:
    """Scores of the likeliest tokens alone: so many, those that make up a share, those near the likeliest."""
    if 0 < rules.top_k < len(scores):
        scores = np.where(scores < np.partition(scores, -rules.top_k)[-rules.top_k], -np.inf, scores)
    if rules.top_p < 1.0:
        order = np.argsort(scores, kind="stable")
        unlikely = np.cumsum(_shares(scores)[order]) <= 1.0 - rules.top_p
        unlikely[-1] = False
        scores = scores.copy()
        scores[order[unlikely]] = -np.inf
    if rules.min_p > 0.0:
        shares = _shares(scores)
        scores = np.where(shares < rules.min_p * shares.max(), -np.inf, scores)
    return scores


def _shares(scores: Array) -> Array:
    raised = np.exp(scores - scores.max())
    found: Array = raised / raised.sum()
    return found


class Continuation:
    """Tokens so far, the first of which were given, and what rules make of the scores behind them."""

    def __init__(self, given: Sequence[int], sampling: Sampling, chosen: Sequence[int] = ()) -> None:
        self.tokens = [*given, *chosen]
        self.sampling = sampling
        self.given = len(given)

    def apply_rules(self, scores: Array) -> Array:
        """Scores in which what the rules forbid is never the best."""
        rules, size = self.sampling.rules, len(scores)
        if rules == PLAIN:
            return scores
        scores = scores.copy()
        if rules.repetition_penalty != 1.0:
            seen = [token for token in dict.fromkeys(self.tokens) if token < size]
            found = scores[seen]
            scores[seen] = np.where(
                found < 0, found * rules.repetition_penalty, found / rules.repetition_penalty
            )
        scores[[token for token in self._forbidden() if 0 <= token < size]] = -np.inf
        last = len(self.tokens) + 1 == self.given + self.sampling.max_tokens
        if rules.forced_eos_token_id is not None and last:
            scores[:] = -np.inf
            scores[rules.forced_eos_token_id] = 0.0
        hidden = [*rules.suppress_tokens]
        hidden += rules.begin_suppress_tokens if len(self.tokens) == self.given else ()
        scores[[token for token in hidden if token < size]] = -np.inf
        return scores

    def _forbidden(self) -> Iterator[int]:
        """Tokens that would repeat a row of them, finish a forbidden one, or end too short a text."""
        rules, tokens = self.sampling.rules, self.tokens
        size = rules.no_repeat_ngram_size
        if 0 < size <= len(tokens):
            tail = tokens[len(tokens) + 1 - size :]
            for begin in range(len(tokens) + 1 - size):
                if tokens[begin : begin + size - 1] == tail:
                    yield tokens[begin + size - 1]
        for word in rules.bad_words_ids:
            if len(word) == 1 or tuple(tokens[1 - len(word) :]) == word[:-1]:
                yield word[-1]
        if (
            len(tokens) < rules.min_length
            or len(tokens) - self.given + self.sampling.answered < rules.min_new_tokens
        ):
            yield from self.sampling.stops


# --- beam search ----------------------------------------------------------------------------------------------------


class Beam(NamedTuple, Generic[Kept]):
    """A way to continue: its tokens, the logarithm of how likely they are, and what the model has seen of it."""

    tokens: tuple[int, ...]
    score: float
    kept: Kept | None = None


class _BeamSearch(Generic[Kept]):
    """The likeliest of several ways to continue: live beams, and the best of those that have ended.

    Ways of several lengths are compared by their mean score, or as the length penalty has it.
    """

    def __init__(
        self, model: Branches[Kept], prompt: Sequence[int], sampling: Sampling, before: Sequence[int]
    ) -> None:
        self._model, self._prompt, self._sampling, self._before = model, prompt, sampling, before
        self._count, self._rules = sampling.rules.num_beams, sampling.rules
        self._ended: list[Beam[Kept]] = []
        self._improving = True

    def run(self) -> tuple[int, ...]:
        """The tokens of the best way, without one that ends a text."""
        live: list[Beam[Kept]] = [Beam((), 0.0)]
        for length in range(1, self._sampling.max_tokens + 1):
            candidates = self._candidates(live)
            ends = [
                item.tokens[-1] in self._sampling.stops or length == self._sampling.max_tokens
                for item in candidates
            ]
            live = [item for item, end in zip(candidates, ends, strict=True) if not end][: self._count]
            self._end([item for item, end in zip(candidates, ends, strict=True) if end], candidates, length)
            if not live or not self._goes_on(live[0], length):
                break
        best = max(self._ended, key=lambda item: item.score).tokens if self._ended else ()
        return best[:-1] if best and best[-1] in self._sampling.stops else best

    def _candidates(self, live: Sequence[Beam[Kept]]) -> list[Beam[Kept]]:
        """The best continuations of all beams by one token, the best first: enough of them that some do not end."""
        rated: list[Array] = []
        kept: list[Kept] = []
        for beam in live:
            if beam.kept is not None:
                self._model.resume(beam.kept)
            scores = self._model.rate_next(beam.tokens[-1:] or self._prompt)
            kept.append(self._model.keep())
            text = Continuation([*self._before, *self._prompt], self._sampling, beam.tokens)
            rated.append(text.apply_rules(_log_softmax(scores)) + np.float32(beam.score))
        joined = np.concatenate(rated)
        most = max(2, 1 + len(self._sampling.stops)) * self._count
        best = np.argsort(-joined, kind="stable")[:most]
        size = len(rated[0])
        return [
            Beam((*live[place // size].tokens, int(place % size)), float(joined[place]), kept[place // size])
            for place in best
            if np.isfinite(joined[place])
        ]

    def _end(self, ended: Sequence[Beam[Kept]], candidates: Sequence[Beam[Kept]], length: int) -> None:
        """Take the new ends among the best candidates, and keep as many ends as there are beams."""
        full = len(self._ended) == self._count
        if not self._improving or (full and self._rules.early_stopping is True):
            return
        weight = (length + self._sampling.answered) ** self._rules.length_penalty
        best = {item.tokens for item in candidates[: self._count]}
        self._ended += [Beam(item.tokens, item.score / weight) for item in ended if item.tokens in best]
        self._ended = sorted(self._ended, key=lambda item: -item.score)[: self._count]

    def _goes_on(self, best: Beam[Kept], length: int) -> bool:
        """Whether a live beam may still become better than the worst end."""
        if len(self._ended) < self._count:
            return True
        if self._rules.early_stopping is True:
            return False
        longest = self._rules.early_stopping == "never" and self._rules.length_penalty > 0.0
        hoped = (self._sampling.max_tokens if longest else length) + self._sampling.answered
        self._improving &= best.score / hoped**self._rules.length_penalty > self._ended[-1].score
        return self._improving


def _log_softmax(scores: Array) -> Array:
    shifted = scores.astype(np.float32) - scores.max()
    found: Array = shifted - np.log(np.exp(shifted).sum())
    return found


# --- what a folder says ---------------------------------------------------------------------------------------------

OTHERS: Mapping[str, object] = MappingProxyType(
    {
        **{"typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "top_h": None, "penalty_alpha": None},
        **{"num_beam_groups": 1, "diversity_penalty": 0.0, "encoder_repetition_penalty": 1.0},
        **{
            "encoder_no_repeat_ngram_size": 0,
            "sequence_bias": None,
            "guidance_scale": 1.0,
            "constraints": None,
        },
        **{"force_words_ids": None, "exponential_decay_length_penalty": None, "forced_decoder_ids": None},
        **{"renormalize_logits": False, "watermarking_config": None},
    }
)
"""Settings of a folder that are not obeyed, with the values that ask for nothing."""


def read_rules(said: Mapping[str, object]) -> Rules:
    """What a folder says about how tokens are chosen; InputError names what is no value."""
    found: dict[str, object] = {}
    for name, value in said.items():
        if name in _READERS and value is not None:
            try:
                found[name] = _READERS[name](value)
            except (TypeError, ValueError, OverflowError):
                text = str(value)[:60]
                raise InputError(f"'{name}' is {text} in what the folder says about generation") from None
    return Rules(**found)  # type: ignore[arg-type]


def ignored_settings(said: Mapping[str, object], temperature: float) -> Iterator[str]:
    """What a folder says about how tokens are chosen that is not how they are chosen."""
    plain = dict(OTHERS)
    if temperature <= 0:
        plain |= {"do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": None}
    else:
        plain["num_beams"] = 1
    sampled = said.get("do_sample") is True
    for name, value in plain.items():
        # What speaks of draws alone asks for nothing where nothing is drawn.
        if name in (*CHANCE, "temperature", "typical_p") and not sampled and temperature <= 0:
            continue
        if said.get(name) not in (None, value):
            yield name


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError
        return value

    return read


def _number(least: float, most: float = math.inf) -> Callable[[object], float]:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError
        return float(value)

    return read


def _tokens(value: object) -> tuple[int, ...]:
    listed = value if isinstance(value, list) else [value]
    read = _whole(-1, 2**31)
    return tuple(token for token in map(read, listed) if token >= 0)


def _words(value: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list) or len(value) > MOST_WORDS:
        raise ValueError
    return tuple(word for word in map(_tokens, value) if word)


def _stopping(value: object) -> bool | str:
    if isinstance(value, bool):
        return value
    if value != "never":
        raise ValueError
    return "never"


def _first(value: object) -> int:
    found = _tokens(value)
    return found[0] if found else _whole(0, 0)(value)


_READERS: Mapping[str, Callable[[object], object]] = MappingProxyType(
    {
        "num_beams": _whole(1, MOST_BEAMS),
        "length_penalty": _number(-math.inf),
        "early_stopping": _stopping,
        "repetition_penalty": _number(1e-9),
        "no_repeat_ngram_size": _whole(0, 2**31),
        "bad_words_ids": _words,
        "min_length": _whole(0, 2**31),
        "min_new_tokens": _whole(0, 2**31),
        "forced_eos_token_id": _first,
        "suppress_tokens": _tokens,
        "begin_suppress_tokens": _tokens,
        "top_k": _whole(0, 2**31),
        "top_p": _number(0.0, 1.0),
        "min_p": _number(0.0, 1.0),
    }
)
"""How each rule is read."""
RULES = tuple(_READERS)
"""What rules are called in configs."""
