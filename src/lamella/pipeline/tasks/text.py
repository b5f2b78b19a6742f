"""Tasks of texts: each text is run by itself, with the tokens of the folder's own tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.jsontext import parse_json
from lamella.base.paths import is_there, read_text_in, shown
from lamella.base.placement import placement_of
from lamella.base.source import Source
from lamella.bridge.hf_to_module.checkpoint import read_object
from lamella.graph.data.safetensors import read_safetensors
from lamella.graph.model import Model
from lamella.pipeline.backends import make_executable
from lamella.pipeline.generate import sampling_of
from lamella.pipeline.languages import Executable
from lamella.pipeline.module.execution import load
from lamella.pipeline.module.generate import Encoding, Tokenizer, open_generator, open_tokenizer, with_room
from lamella.pipeline.options import Options
from lamella.pipeline.tasks import SENTENCES, TaskResult

TOKENS = ("token_ids", "input_ids")
"""What models of the library, and those that are read through PyTorch, call the tokens of a text."""
KINDS = "token_type_ids"
OUTSIDE = "O"
"""The label of a token that belongs to nothing."""
LONGEST_ANSWER = 15
"""How many tokens an answer has at most."""
MASKS = ("[MASK]", "<mask>")
"""How tokenizers without a config call the token that is to be filled."""
TYPES = "tokenizer_config.json"


class TextModel:
    """A folder that is ready to be given tokens: its model, its tokenizer and its config."""

    def __init__(self, path: Path, config: Mapping[str, object], options: Options) -> None:
        self.path, self.config, self.options = path, config, options
        self.tokenizer = open_tokenizer(path, options.limits)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        said = read_object(path, TYPES, options.limits) if is_there(path / TYPES) else {}
        names = said.get("model_input_names")
        self._has_kinds = not isinstance(names, list) or KINDS in names
        self._compiled: dict[bool, tuple[Model, Executable]] = {}

    def run(self, found: Encoding) -> dict[str, Array]:
        """What the model gives for one text, or for a pair of them."""
        pair = self._has_kinds and any(found.type_ids)
        if pair not in self._compiled:
            given = {KINDS: np.asarray([found.type_ids], np.int64)} if pair else {}
            model = load(self.path, replace(self.options, contents=given))
            self._compiled[pair] = (model, make_executable(model, self.options.backend, self.options))
        executable = self._compiled[pair][1]
        name = next((item for item in TOKENS if item in executable.inputs), None)
        others = [item for item in executable.inputs if item not in (name, KINDS)]
        if name is None or others:
            what = ", ".join(executable.inputs)
            raise InputError(f"the model takes {what}, no text", path=shown(self.path))
        inputs = {name: np.asarray([found.ids], np.int64)}
        # RoBERTa has one kind alone: its tokenizer marks pairs, its table has no second row.
        if pair and KINDS in executable.inputs:
            inputs[KINDS] = np.asarray([found.type_ids], np.int64)
        return {key: item[0] for key, item in executable(**inputs).items()}

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """What there is to say about the weights."""
        return next((model.findings for model, _ in self._compiled.values()), ())

    def outcome(self, items: Sequence[object], lines: Sequence[str]) -> TaskResult:
        """What was found, with where it was computed."""
        placed = next((placement_of(run) for _, run in self._compiled.values()), ())
        return TaskResult(tuple(items), tuple(lines), self.findings, tuple(placed))


def perform(task: str, path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """Do a task with each of the texts."""
    if options.context is not None and task != "question-answering":
        raise InputError(f"--context is what a question is about; {task} takes --text alone")
    return _PERFORMERS[task](path, config, options)


def softmax(scores: Array) -> Array:
    """Scores as shares of 1, along the last dimension."""
    raised = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    shares: Array = raised / raised.sum(-1, keepdims=True)
    return shares


def labels_of(config: Mapping[str, object], count: int) -> list[str]:
    """What the labels of a classifier are called."""
    said = config.get("id2label")
    named = said if isinstance(said, dict) else {}
    return [str(named.get(str(number), f"LABEL_{number}")) for number in range(count)]


def ranked(scores: Array, count: int) -> list[int]:
    """Where the highest scores stand, the highest first."""
    return [int(place) for place in np.argsort(-scores, kind="stable")[:count]]


# --- labels -------------------------------------------------------------------------------------------------------


def _classify(path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """The labels of texts, each with its score, the highest first."""
    model = TextModel(path, config, options)
    items, lines = [], []
    for text in options.text:
        logits = model.run(model.tokenizer.encode(text))["logits"]
        scores = label_scores(logits, config)
        names = labels_of(config, len(scores))
        found = [
            {"label": names[place], "score": float(scores[place])} for place in ranked(scores, options.top)
        ]
        items.append(found)
        lines += _titled(text, options, (f"{item['label']}  {item['score']:.4f}" for item in found))
    return model.outcome(items, lines)


def label_scores(logits: Array, config: Mapping[str, object]) -> Array:
    """Scores of labels: shares of one, each by itself where several may hold, numbers as they are for a regression."""
    kind = config.get("problem_type")
    if kind == "regression":
        return logits.astype(np.float64)
    if kind == "multi_label_classification" or logits.shape[-1] == 1:
        scores: Array = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
        return scores
    return softmax(logits)


def _label_tokens(path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """The tokens of texts that belong to something, each with its label, its score and its place."""
    model = TextModel(path, config, options)
    items, lines = [], []
    for text in options.text:
        tokens = model.tokenizer.encode(text)
        scores = softmax(model.run(tokens)["logits"])
        names = labels_of(config, scores.shape[-1])
        best = scores.argmax(-1)
        found = [
            {
                "entity": names[best[place]],
                "score": float(scores[place, best[place]]),
                "index": place,
                "word": tokens.tokens[place],
                "start": tokens.offsets[place][0],
                "end": tokens.offsets[place][1],
            }
            for place in range(len(tokens.ids))
            if not tokens.special_tokens_mask[place] and names[best[place]] != OUTSIDE
        ]
        items.append(found)
        rows = (
            f"{text[item['start'] : item['end']]}  {item['entity']}  {item['score']:.4f}" for item in found
        )
        lines += _titled(text, options, rows)
    return model.outcome(items, lines)


def _titled(text: str, options: Options, rows: Iterator[str]) -> list[str]:
    """The lines of one text, under it where there are several."""
    listed = list(rows)
    return listed if len(options.text) == 1 else [f"{text}:", *(f"  {row}" for row in listed)]


# --- masked words -------------------------------------------------------------------------------------------------


def _fill(path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """The likeliest words for each masked token of texts."""
    model = TextModel(path, config, options)
    name, mask = mask_token(path, model.tokenizer, options)
    items: list[object] = []
    lines: list[str] = []
    for text in options.text:
        ids = model.tokenizer.encode(text)
        places = [place for place, token in enumerate(ids.ids) if token == mask]
        if not places:
            raise InputError(f"the text has no {name}", hint=f"write {name} where a word is to be found")
        logits = model.run(ids)["logits"]
        found = [
            _words(model.tokenizer, ids.ids, place, softmax(logits[place]), options.top) for place in places
        ]
        items.append(found[0] if len(found) == 1 else found)
        for words in found:
            lines += _titled(text, options, (f"{item['token_str']}  {item['score']:.4f}" for item in words))
    return model.outcome(items, lines)


def _words(
    tokenizer: Tokenizer, ids: list[int], place: int, scores: Array, count: int
) -> list[dict[str, object]]:
    return [
        {
            "score": float(scores[token]),
            "token": token,
            "token_str": tokenizer.decode([token]),
            "sequence": tokenizer.decode([*ids[:place], token, *ids[place + 1 :]]),
        }
        for token in ranked(scores, count)
    ]


def mask_token(path: Path, tokenizer: Tokenizer, options: Options) -> tuple[str, int]:
    """The token that stands for a word to be found, and its number."""
    said = read_object(path, TYPES, options.limits).get("mask_token") if is_there(path / TYPES) else None
    named = said.get("content") if isinstance(said, dict) else said
    for name in (named, *MASKS):
        number = tokenizer.token_to_id(name) if isinstance(name, str) else None
        if isinstance(name, str) and number is not None:
            return name, number
    hint = f'write "mask_token" into {TYPES}'
    raise InputError(
        "the tokenizer of the folder has no token for a masked word", path=shown(path), hint=hint
    )


# --- answers ------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """A part of a text, and how likely it answers a question."""

    score: float
    start: int
    end: int


def _answer(path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """The likeliest parts of a text that answer questions."""
    context = options.context
    if context is None:
        raise InputError("a question is about a text", hint="--text QUESTION --context TEXT")
    model = TextModel(path, config, options)
    items, lines = [], []
    for question in options.text:
        tokens = model.tokenizer.encode(question, context)
        found = model.run(tokens)
        answers = best_spans(found["start_logits"], found["end_logits"], tokens, options.top)
        rows = [{**item._asdict(), "answer": context[item.start : item.end]} for item in answers]
        items.append(rows)
        lines += _titled(question, options, (f"{row['answer']}  {row['score']:.4f}" for row in rows))
    return model.outcome(items, lines)


def best_spans(begins: Array, ends: Array, tokens: Encoding, count: int) -> list[Answer]:
    """The likeliest parts of the second text: of the tokens of it alone, none too long, whole words."""
    inside = np.asarray([number == 1 for number in tokens.sequence_ids])
    if not inside.any():
        raise InputError("--context has no tokens")
    first, last = (softmax(np.where(inside, item, -np.inf)) for item in (begins, ends))
    likely = np.triu(np.outer(first, last)) - np.triu(np.outer(first, last), LONGEST_ANSWER)
    found: dict[tuple[int, int], float] = {}
    for place in np.argsort(-likely, axis=None, kind="stable"):
        begin, end = divmod(int(place), len(last))
        if len(found) == count or likely[begin, end] <= 0:
            break
        span = (_word_edges(tokens, begin)[0], _word_edges(tokens, end)[1])
        found[span] = found.get(span, 0.0) + float(likely[begin, end])
    return [Answer(score, *span) for span, score in found.items()]


def _word_edges(tokens: Encoding, place: int) -> tuple[int, int]:
    """Where the word of a token begins and ends."""
    word = tokens.word_ids[place]
    same = [
        tokens.offsets[number]
        for number, item in enumerate(tokens.word_ids)
        if item == word and tokens.sequence_ids[number] == 1 and word is not None
    ] or [tokens.offsets[place]]
    return min(begin for begin, _ in same), max(end for _, end in same)


# --- vectors ------------------------------------------------------------------------------------------------------


def _extract(path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """The vectors of the tokens of texts."""
    model = TextModel(path, config, options)
    items, lines = [], []
    for text in options.text:
        states = next(iter(model.run(model.tokenizer.encode(text)).values()))
        items.append(states.tolist())
        rows = (f"{len(row)} numbers: {few(row)}" for row in states)
        lines += _titled(text, options, rows)
    return model.outcome(items, lines)


def few(row: Array) -> str:
    """The first numbers of a vector."""
    return " ".join(f"{number:.4f}" for number in row[:4]) + (" …" if len(row) > 4 else "")


def _embed(path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """One vector for each text, by what `modules.json` lists."""
    model = TextModel(path, config, options)
    listed = _sentence_modules(path, options)
    said = path / "sentence_bert_config.json"
    longest = read_object(path, said.name, options.limits).get("max_seq_length") if is_there(said) else None
    if isinstance(longest, int):
        model.tokenizer.enable_truncation(longest)
    steps = [_vector_step(path, kind, folder, options) for kind, folder in listed]
    items, lines = [], []
    for text in options.text:
        found = next(iter(model.run(model.tokenizer.encode(text)).values()))
        for step in steps:
            found = step(found)
        items.append(found.tolist())
        lines += _titled(text, options, iter([f"{len(found)} numbers: {few(found)}"]))
    return model.outcome(items, lines)


def _sentence_modules(path: Path, options: Options) -> list[tuple[str, str]]:
    """The kinds and folders of the modules behind the encoder, in their order."""
    source = Source(shown(path / SENTENCES), read_text_in(path, SENTENCES, options.limits))
    listed = parse_json(source, options.limits)
    rows = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    kinds = [(str(item.get("type", "")).rpartition(".")[2], str(item.get("path", ""))) for item in rows]
    if not kinds or kinds[0][0] != "Transformer" or kinds[0][1]:
        raise InputError(f"{SENTENCES} does not begin with a Transformer in its own folder", path=shown(path))
    return kinds[1:]


def _vector_step(path: Path, kind: str, folder: str, options: Options) -> Callable[[Array], Array]:
    """What a module of sentence-transformers does to the vectors of a text."""
    if kind == "Normalize":
        return lambda found: found / max(float(np.linalg.norm(found)), 1e-12)
    if kind not in ("Pooling", "Dense") or not folder or "/" in folder or folder.startswith("."):
        known = "Pooling, Dense and Normalize are"
        raise InputError(f"the module '{kind[:80]}' of {SENTENCES} is not known: {known}", path=shown(path))
    said = read_object(path / folder, "config.json", options.limits)
    return _pooling(path, said) if kind == "Pooling" else _dense(path / folder, said, options)


_POOLING: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "pooling_mode_cls_token": lambda states: states[0],
        "pooling_mode_max_tokens": lambda states: states.max(0),
        "pooling_mode_mean_tokens": lambda states: states.mean(0),
        "pooling_mode_mean_sqrt_len_tokens": lambda states: states.sum(0) / np.sqrt(len(states)),
        "pooling_mode_weightedmean_tokens": lambda states: np.average(
            states, 0, np.arange(1, len(states) + 1)
        ),
        "pooling_mode_lasttoken": lambda states: states[-1],
    }
)
"""How the vectors of tokens become one; several are put one behind the other."""


def _pooling(path: Path, said: Mapping[str, object]) -> Callable[[Array], Array]:
    asked = [name for name, value in said.items() if name.startswith("pooling_mode_") and value is True]
    unknown = [name for name in asked if name not in _POOLING]
    if unknown or not asked:
        what = ", ".join(unknown) or "nothing"
        raise InputError(f"the pooling asks for {what[:200]}", path=shown(path), hint=", ".join(_POOLING))
    order = [name for name in _POOLING if name in asked]
    return lambda states: np.concatenate([_POOLING[name](states) for name in order])


_ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {"Identity": lambda x: x, "Tanh": np.tanh, "ReLU": lambda x: np.maximum(x, 0)}
)


def _dense(folder: Path, said: Mapping[str, object], options: Options) -> Callable[[Array], Array]:
    name = str(said.get("activation_function", "Tanh")).rpartition(".")[2]
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise InputError(f"the activation '{name[:80]}' is not known: {known} are", path=shown(folder))
    tensors = read_safetensors(folder / "model.safetensors", options.limits)
    weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
    return lambda found: _ACTIVATIONS[name](found @ weight.T + (0 if bias is None else bias))


# --- texts --------------------------------------------------------------------------------------------------------


def _write(path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """What a model writes for each text."""
    tokenizer = open_tokenizer(path, options.limits)
    options = with_room(path, options)
    generator = open_generator(path, 0, options)
    found = [
        tokenizer.decode(list(generator.run(tokenizer.encode(text).ids, sampling_of(options))))
        for text in options.text
    ]
    placed = placement_of(generator.executable)
    return TaskResult(
        tuple({"generated_text": text} for text in found), tuple(found), generator.findings, tuple(placed)
    )


_PERFORMERS: Mapping[str, Callable[[Path, Mapping[str, object], Options], TaskResult]] = MappingProxyType(
    {
        "text-classification": _classify,
        "token-classification": _label_tokens,
        "fill-mask": _fill,
        "question-answering": _answer,
        "feature-extraction": _extract,
        "sentence-embedding": _embed,
        "text-to-text": _write,
    }
)
