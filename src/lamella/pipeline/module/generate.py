"""Text from a model: a graph with caches is given the prompt, and then each token that it chose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeAlias, cast

import numpy as np

from lamella.backend.executor import GraphExecutable
from lamella.backend.executor.inputs import input_type, list_parts
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import need
from lamella.base.paths import is_there, shown
from lamella.bridge.hf_to_module import find_architecture, is_gguf, open_gguf_tokenizer
from lamella.bridge.hf_to_module.checkpoint import read_object, whole
from lamella.bridge.hf_to_module.folder import CONFIG
from lamella.bridge.module_to_graph import CompilationSettings, Held
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members
from lamella.lang.module.rules import mappings as rules
from lamella.pipeline import backends
from lamella.pipeline.accuracy import FULL, AccuracyReport, compare_precision
from lamella.pipeline.backends import make_executable
from lamella.pipeline.decoding import RULES, Sampling, continue_text, ignored_settings, read_rules
from lamella.pipeline.generate import Generated, GraphOfTokens, rate_by_names, sampling_of, stop_tokens
from lamella.pipeline.module.execution import build, load
from lamella.pipeline.module.folders import Source, read_source, reason_for_torch
from lamella.pipeline.module.operators import library_of
from lamella.pipeline.options import Options

TOKENIZER = "tokenizer.json"
BATCH = "B"
"""The dimension of sequences, as the models of the library call it."""
MOST_TOKENS = 512
"""How many tokens are read at once: a longer prompt is read in parts, so that its tensors stay small."""
HEAD = "llm.matmul"
"""The operator of the product that rates tokens, each row by itself."""
CAUSAL = ("ForCausalLM", "LMHeadModel")
LOGITS = "logits"
"""How architectures of transformers that continue tokens are called, and their scores."""
GENERATION = "generation_config.json"
TOKENS, DECODER_TOKENS = "token_ids", "decoder_token_ids"
"""What models of the library call the tokens that they read, and those that they write."""
MOST_WRITTEN, MOST_FIRST = 256, 8
"""Tokens that a task writes at most unless it is told otherwise, and those with which a decoder may begin."""
AHEAD = 32
"""Tokens that a device chooses before anybody looks at them."""
LONGEST = ("max_seq", "max_position_embeddings")
"""Parameters that say how many positions a model has."""


class Encoding(Protocol):
    """The tokens of a text, as the package `tokenizers` gives them."""

    ids: list[int]
    type_ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    special_tokens_mask: list[int]
    sequence_ids: list[int | None]
    word_ids: list[int | None]


class Tokenizer(Protocol):
    """What is used of the package `tokenizers`."""

    def encode(self, text: str, pair: str | None = None) -> Encoding:
        """The tokens of a text, or of two."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of tokens."""

    def token_to_id(self, token: str) -> int | None:
        """The number of a token."""

    def no_padding(self) -> None:
        """Add nothing to short texts."""

    def no_truncation(self) -> None:
        """Take nothing from long ones."""

    def enable_truncation(self, max_length: int) -> None:
        """Take what is too long from texts."""


class _TokenizerFault:
    """Turns what the package of tokenizers cannot do into an error of the file.

    It raises Exception itself, nothing more exact; everything else that comes from there is a bug and goes through.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is Exception:
            reason = printable(str(problem).partition("\n")[0])
            raise InputError(f"the tokenizer cannot be used: {reason}", path=shown(self._path)) from None


class _FileTokenizer:
    """A tokenizer of a file: whatever it is asked and cannot do is an error of that file."""

    def __init__(self, path: Path, make: Callable[[str], object], text: str) -> None:
        self._path = path
        with _TokenizerFault(path):
            self._inner = make(text)

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._inner, name)

        def call(*arguments: object, **options: object) -> object:
            with _TokenizerFault(self._path):
                return method(*arguments, **options)

        return call


def open_tokenizer(folder: Path, limits: Limits = DEFAULT) -> Tokenizer:
    """The tokenizer of a folder."""
    if is_gguf(folder):
        text = json.dumps(open_gguf_tokenizer(folder, limits))
        return cast("Tokenizer", _FileTokenizer(folder, need("tokenizers").Tokenizer.from_str, text))
    path = folder / TOKENIZER
    if not is_there(path):
        hint = "give the numbers of tokens: generate has --tokens 1,2,3, run has --input token_ids=FILE.npy"
        raise InputError(f"'{shown(folder)}' has no {TOKENIZER}", path=shown(folder), hint=hint)
    if not isinstance(read_object(folder, TOKENIZER, limits).get("model"), dict):
        raise InputError(f"{TOKENIZER} holds no model of a tokenizer", path=shown(path))
    return cast("Tokenizer", _FileTokenizer(path, need("tokenizers").Tokenizer.from_file, str(path)))


class Generator:
    """A model that is ready to continue tokens; one executable reads the prompt, whatever its length, and the rest."""

    def __init__(self, path: Path, length: int, options: Options, backend: str | None = None) -> None:
        backends.start(backend)
        source = read_source(path, options)
        _require_words(source)
        _require_room(source, length)
        settings = CompilationSettings(
            library=library_of(source.program, options), extents={BATCH: 1}, cached=length
        )
        model = build(source, options, settings)
        self._input, self._output = _ends(model)
        model = rate_last(model, self._output)
        # All backends of graphs keep their variables alike.
        self.executable = cast("GraphExecutable", make_executable(model, backend, options))
        if not hasattr(self.executable, "state"):
            raise InputError(
                f"backend '{backend}' keeps no states, which generation needs", hint="leave --backend out"
            )
        kept = [item.variable.name for item in model.graph.updates]
        self._empty = {name: self.executable.state[name] for name in kept}
        self._chosen = _FolderRules(_generation_values(source, options))
        self.findings = (*model.findings, *self._chosen.notes(path, options))
        """What there is to say about the weights, and about how tokens are chosen."""

    def run(self, start: Sequence[int], sampling: Sampling) -> Iterator[int]:
        """The tokens that follow, each as it is chosen."""
        if not start:
            raise InputError("the prompt has no tokens")
        self.resume(self._empty)
        whole = self._chosen.complete(sampling)
        return self._run_greedily(start, whole) if whole.is_greedy else continue_text(self, start, whole)

    def _run_greedily(self, start: Sequence[int], sampling: Sampling) -> Iterator[int]:
        """The likeliest tokens; a device that can chooses several before anybody looks at them."""
        given, new, left = start, list[int](), sampling.max_tokens
        while left:
            if not new:
                scores = self.rate_next(given)
                # The prompt has other extents than the calls for each token behind it, so its token is chosen here.
                ahead = None if given is start else self._choose_ahead(min(left, AHEAD))
                new = [int(scores.argmax())] if ahead is None else ahead
            token, *new = new
            if token in sampling.stops:
                return
            yield token
            given, left = [token], left - 1

    def _choose_ahead(self, count: int) -> list[int] | None:
        """The tokens that a device chooses behind the last call; it has read all but the last of them then."""
        found = self.executable.feed_back(self._output, self._input, count)
        return None if found is None else [int(item) for item in found]

    def rate(self, start: Sequence[int]) -> Array:
        """The scores of all tokens behind a prompt."""
        self.resume(self._empty)
        return self.rate_next(start)

    def keep(self) -> Mapping[str, Array]:
        """The caches as they are."""
        return {name: np.array(self.executable.state[name]) for name in self._empty}

    def resume(self, kept: Mapping[str, Array]) -> None:
        """Continue with caches that were kept."""
        self.executable.restart(kept)

    def rate_next(self, new: Sequence[int]) -> Array:
        """The scores of the token behind further ones."""
        for start in range(0, len(new), MOST_TOKENS):
            part = np.asarray([new[start : start + MOST_TOKENS]], np.int64)
            found = self.executable(**{self._input: part})
        scores: Array = found[self._output][0, -1]
        return scores


class SequenceGenerator:
    """A model that reads a sequence and writes another: one graph reads, another writes token by token.

    What the second needs of the first, keys and values of all that was read, is computed once.
    """

    def __init__(self, path: Path, options: Options) -> None:
        source = read_source(path, options)
        self.said = _generation_values(source, options)
        """What the folder says about generation."""
        self._chosen = _FolderRules(self.said)
        self.start = tuple(_first_tokens(self.said, path))
        """The tokens with which the decoder begins."""
        self._longest = _longest(source)
        _require_room(source, len(self.start) + options.max_tokens)
        room = options.max_tokens + MOST_FIRST
        library = library_of(source.program, options)
        read = CompilationSettings(library=library, extents={BATCH: 1}, held=Held.OUTPUTS)
        written = replace(read, cached=room, held=Held.INPUTS)
        reader, writer = (build(source, options, settings) for settings in (read, written))
        writer = rate_last(writer, LOGITS)
        self._reader = make_executable(reader, options.backend, options)
        self.executable = cast("GraphExecutable", make_executable(writer, options.backend, options))
        self._empty = {
            item.variable.name: self.executable.state[item.variable.name] for item in writer.graph.updates
        }
        self._held: Mapping[str, Array] = {}
        self.findings = (*reader.findings, *self._chosen.notes(path, options))

    @property
    def inputs(self) -> tuple[str, ...]:
        """What is read: tokens, or the features of speech."""
        return self._reader.inputs

    def run(self, start: Sequence[int], sampling: Sampling) -> Iterator[int]:
        """The tokens that are written for those of a text, each as it is chosen."""
        self._read_tokens(start)
        # What is forced behind the first token counts as written.
        return self.write(self.start, replace(sampling, answered=len(self.start) - 1))

    def rate(self, start: Sequence[int]) -> Array:
        """The scores of the first token that is written for a text."""
        self._read_tokens(start)
        return self.rate_next(self.start)

    def read(self, **inputs: Array) -> None:
        """Read what is to be answered, and forget what was written."""
        self._held = self._reader(**inputs)
        self.resume(self._empty)

    def keep(self) -> Mapping[str, Array]:
        """The caches of what is written, as they are."""
        return {name: np.array(self.executable.state[name]) for name in self._empty}

    def resume(self, kept: Mapping[str, Array]) -> None:
        """Continue with caches that were kept."""
        self.executable.restart(kept)

    def write(self, start: Sequence[int], sampling: Sampling, before: Sequence[int] = ()) -> Iterator[int]:
        """The tokens that follow others of what is written; `before` stand before those, and are written already."""
        return continue_text(self, start, self._chosen.complete(sampling), before)

    def _read_tokens(self, start: Sequence[int]) -> None:
        if self.inputs != (TOKENS,):
            hint = "lamella run FOLDER --audio FILE.wav writes what is said in it"
            raise InputError(f"the model reads {', '.join(self.inputs)}, no text", hint=hint)
        if not start:
            raise InputError("the prompt has no tokens")
        if self._longest is not None and len(start) > self._longest:
            raise InputError(
                f"the text takes {len(start)} positions, the model has {self._longest}",
                hint="shorten the prompt",
            )
        self.read(**{TOKENS: np.asarray([start], np.int64)})

    def rate_next(self, new: Sequence[int]) -> Array:
        """The scores of the token behind further ones of what is written."""
        found = self.executable(**{DECODER_TOKENS: np.asarray([new], np.int64)}, **self._held)
        scores: Array = found[LOGITS][0, -1].copy()
        return scores


def _generation_values(source: Source, options: Options) -> Mapping[str, object]:
    """What the folder of a model says about generation, where it has one."""
    folder = source.folder
    return {} if folder is None else generation_values(folder.path, folder.config, options)


def generation_values(path: Path, config: Mapping[str, object], options: Options) -> Mapping[str, object]:
    """What a folder says about generation: the file that was written for it, and tokens that its config names.

    Folders without that file have their rules in the config.
    """
    has_file = is_there(path / GENERATION)
    said = {
        name: value
        for name, value in config.items()
        if (
            not has_file
            if name in RULES
            else name.endswith(("token_id", "token_ids")) or name == "max_length"
        )
    }
    if has_file:
        more = read_object(path, GENERATION, options.limits)
        said |= {name: value for name, value in more.items() if value is not None}
    return said


class _FolderRules:
    """How a folder would have tokens chosen."""

    def __init__(self, said: Mapping[str, object]) -> None:
        self._values = said
        self.rules = read_rules(said)
        self.stops = frozenset(stop_tokens(said))

    def complete(self, sampling: Sampling) -> Sampling:
        """What was asked for, under the rules of the folder."""
        return replace(sampling, rules=self.rules, stops=self.stops)

    def notes(self, path: Path, options: Options) -> Iterator[Diagnostic]:
        """A note on what is not obeyed."""
        asked = [*ignored_settings(self._values, options.temperature)]
        if asked:
            words = ", ".join(f"{name} {printable(str(self._values[name]), 40)}" for name in asked)
            why = "tokens are drawn where --temperature says so, and as top_k, top_p and min_p say"
            yield rules.IGNORED.at(whole(path / GENERATION), what=words, why=why)


def _first_tokens(said: Mapping[str, object], path: Path) -> Iterator[int]:
    """The tokens with which a decoder begins."""
    names = ("decoder_start_token_id", "bos_token_id")
    first = next((said[name] for name in names if isinstance(said.get(name), int)), None)
    if not isinstance(first, int):
        hint = f"write it into {GENERATION} of the folder"
        raise InputError(
            "nothing says with which token the decoder begins (decoder_start_token_id)",
            path=shown(path),
            hint=hint,
        )
    yield first
    forced = said.get("forced_bos_token_id")
    if isinstance(forced, int):
        yield forced


class StatelessGenerator:
    """A folder that is read through PyTorch: its graph keeps nothing, and is given all tokens in each step."""

    def __init__(self, path: Path, options: Options, backend: str | None) -> None:
        config = read_object(path, CONFIG, options.limits)
        names = find_architecture(config)
        if not any(name.endswith(CAUSAL) for name in names):
            hint = f"the names of those that do end with {' or '.join(CAUSAL)}"
            raise InputError(f"'{', '.join(names)}' does not continue tokens", path=shown(path), hint=hint)
        model = load(path, options)
        self.executable = make_executable(model, backend, options)
        self._graph = GraphOfTokens(self.executable, model)
        self._ends = f"{self.executable.inputs[0]}={LOGITS}"
        self._chosen = _FolderRules(generation_values(path, config, options))
        self.findings = (*model.findings, *self._chosen.notes(path, options))
        self._seen: tuple[int, ...] = ()

    def run(self, start: Sequence[int], sampling: Sampling) -> Iterator[int]:
        """The tokens that follow, each as it is chosen."""
        self.resume(())
        return continue_text(self, start, self._chosen.complete(sampling))

    def rate(self, start: Sequence[int]) -> Array:
        """The scores of all tokens behind a prompt."""
        self.resume(())
        return self.rate_next(start)

    def keep(self) -> tuple[int, ...]:
        """The tokens so far."""
        return self._seen

    def resume(self, kept: tuple[int, ...]) -> None:
        """Continue behind tokens that were kept."""
        self._seen = kept

    def rate_next(self, new: Sequence[int]) -> Array:
        """The scores of the token behind further ones."""
        self._seen = (*self._seen, *new)
        return rate_by_names(self._graph, self._ends, {})(self._seen)


AnyGenerator: TypeAlias = Generator | SequenceGenerator | StatelessGenerator


def open_generator(path: Path, length: int, options: Options) -> AnyGenerator:
    """What continues the tokens of a model, or answers them: with caches, or through PyTorch without."""
    if reason_for_torch(path, options) is not None:
        return StatelessGenerator(path, options, options.backend)
    if writes_another(read_source(path, options)):
        return SequenceGenerator(path, options)
    return Generator(path, length, options, options.backend)


def rate_last(model: Model, output: str) -> Model:
    """The graph with scores for the last token of a call alone, where they are a product of each token's vector.

    A prompt needs no others, and with a large vocabulary they are half of its work.
    """
    graph = model.graph
    head = next(
        (item for item in graph.operations() if output in {one.name for one in members(item.outputs)}), None
    )
    readers = [item for item in graph.operations() if output in {one.name for one in members(item.inputs)}]
    if head is None or head.operator != HEAD or head not in graph.nodes or readers:
        return model
    vectors, ways = head.inputs[0], dict(head.attributes).get("transpose")
    if not isinstance(vectors, Tensor) or len(vectors.shape) != 3 or ways not in ("NN", "NT"):
        return model
    cut = {"axes": (1,), "begin": (-1,), "end": (vectors.shape[1],)}
    last = call(model.library, "layout.slice", [vectors], cut, [f"{vectors.name}_last"])
    (kept,) = members(last.outputs)
    rated = call(
        model.library, HEAD, [kept, *head.inputs[1:]], dict(head.attributes), [output], dict(head.types)
    )
    if any(not isinstance(extent, int) for item in members(rated.outputs) for extent in item.shape):
        return model
    nodes = tuple(
        part
        for item in graph.nodes
        for part in ((last, replace(rated, origin=head.origin)) if item is head else (item,))
    )
    outputs = tuple(rated.outputs[0] if item.name == output else item for item in members(graph.outputs))
    return replace(model, graph=replace(graph, nodes=nodes, outputs=outputs))


def _require_words(source: Source) -> None:
    """InputError says that a decoder has another head than that of words."""
    head = source.instance.values.get("head")
    if head is not None and head.value != "words":
        hint = "run gives what it rates; one that continues tokens is called …ForCausalLM"
        raise InputError(f"the head of '{source.instance.name}' rates {head.value}, not words", hint=hint)


def writes_another(source: Source) -> bool:
    """Whether a model reads one sequence and writes another."""
    forward = source.instance.module.forward
    ports = () if forward is None or forward.inputs is None else forward.inputs
    return any(port.name == DECODER_TOKENS for port in ports)


def _longest(source: Source) -> int | None:
    """How many positions a model has, where they are counted."""
    values = source.instance.values
    longest = next((values[name].value for name in LONGEST if name in values), None)
    return longest if isinstance(longest, int) else None


def with_room(path: Path, options: Options, most: int = MOST_WRITTEN) -> Options:
    """The options with as many tokens as the folder says that a text takes, where they do not say how many."""
    if "max_tokens" in options.given:
        return options
    source = read_source(path, options)
    said = _generation_values(source, options)
    # A length counts the token with which a decoder begins.
    lengths = (said.get("max_new_tokens"), _less(said.get("max_length")), most)
    wanted = next(item for item in lengths if isinstance(item, int) and item > 0)
    longest = _longest(source) or wanted + MOST_FIRST
    return replace(options, max_tokens=max(1, min(wanted, longest - MOST_FIRST)))


def _less(length: object) -> int | None:
    return length - 1 if isinstance(length, int) and not isinstance(length, bool) else None


def _require_room(source: Source, length: int) -> None:
    longest = _longest(source)
    if longest is not None and length > longest:
        hint = "shorten the prompt, or ask for fewer tokens with --max-tokens"
        raise InputError(f"prompt and answer take {length} positions, the model has {longest}", hint=hint)


def _ends(model: Model) -> tuple[str, str]:
    """The input that takes tokens, and the output that rates the next."""
    inputs = [item for item in model.graph.inputs if isinstance(item, Tensor) and item.element.is_integer]
    outputs = [item for item in model.graph.outputs if isinstance(item, Tensor) and len(item.shape) == 3]
    hint = "a model that generates takes the numbers of tokens, and gives logits for each"
    if len(inputs) != 1 or not outputs:
        raise InputError(f"'{model.graph.name}' does not generate text", hint=hint)
    for part in list_parts(model.graph.inputs):
        if part.name != inputs[0].name:
            what = f"input '{part.name}' ({input_type(part)})"
            raise InputError(f"{what} of '{model.graph.name}' cannot be given while it generates", hint=hint)
    return inputs[0].name, outputs[0].name


def generate_tokens(path: Path, prompt: Sequence[int], options: Options) -> Generated:
    """The tokens that follow others."""
    sampling = sampling_of(options)
    generator = open_generator(path, len(prompt) + sampling.max_tokens, options)
    tokens = list(generator.run(prompt, sampling))
    accuracy = _measure_accuracy(path, generator, prompt, options)
    return Generated(tokens, generator.executable, findings=generator.findings, accuracy=accuracy)


def _measure_accuracy(
    path: Path, generator: AnyGenerator, prompt: Sequence[int], options: Options
) -> AccuracyReport | None:
    """How far the scores behind the prompt lie from those of the model as it is, where the precision is reduced."""
    if options.precision == FULL:
        return None
    full = open_generator(path, len(prompt), replace(options, precision=FULL))
    return compare_precision(
        options.precision, {"scores": generator.rate(prompt)}, {"scores": full.rate(prompt)}
    )


def generate_text(
    path: Path,
    prompt: str,
    options: Options,
    emit: Callable[[str], None] | None = None,
) -> Generated:
    """What follows a prompt; `emit` gets each piece of the text as it is known."""
    tokenizer = open_tokenizer(path, options.limits)
    start = tokenizer.encode(prompt).ids
    sampling = sampling_of(options)
    generator = open_generator(path, len(start) + sampling.max_tokens, options)
    tokens: list[int] = []
    emitted = ""
    for token in generator.run(start, sampling):
        tokens.append(token)
        text = tokenizer.decode(tokens)
        # A character of several tokens is not complete before the last of them.
        if emit is not None and text.startswith(emitted) and not text.endswith("�"):
            emit(text[len(emitted) :])
            emitted = text
    accuracy = _measure_accuracy(path, generator, start, options)
    return Generated(tokens, generator.executable, tokenizer.decode(tokens), generator.findings, accuracy)
