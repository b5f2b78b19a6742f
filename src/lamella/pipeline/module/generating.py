"""Text from a model: a graph with caches is given the prompt, and then each token that it chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import numpy as np

from lamella.backend.drawing import Drawn
from lamella.backend.executor import GraphExecutable
from lamella.backend.executor.inputs import input_type, list_parts
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import need
from lamella.base.paths import is_there, shown
from lamella.bridge.hf_to_module.documents import read_object
from lamella.bridge.module_to_graph import Settings
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.pipeline.module.execution import build
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.module.operators import library_of
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.execution import compile as compile_graph

TOKENIZER = "tokenizer.json"
BATCH = "B"
"""The dimension of sequences, as the models of the library call it."""
LONGEST = ("max_seq", "max_position_embeddings")
"""Parameters that say how many positions a model has."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen: the likeliest, or by chance with a temperature."""

    max_tokens: int = 16
    temperature: float = 0.0
    seed: int = 0


def sampling_of(options: Options) -> Sampling:
    """How the options want tokens chosen."""
    return Sampling(options.max_tokens, options.temperature, options.start_seed)


class Tokenizer(Protocol):
    """What is used of the package `tokenizers`."""

    def encode(self, text: str) -> Encoding:
        """The tokens of a text."""

    def decode(self, ids: list[int]) -> str:
        """The text of tokens."""


class Encoding(Protocol):
    """The tokens of a text."""

    ids: list[int]


def open_tokenizer(folder: Path, limits: Limits = DEFAULT) -> Tokenizer:
    """The tokenizer of a folder."""
    path = folder / TOKENIZER
    if not is_there(path):
        hint = "give the numbers of tokens with --start instead of --prompt"
        raise InputError(f"'{shown(folder)}' has no {TOKENIZER}", path=shown(folder), hint=hint)
    # The package raises nothing more exact than Exception, so what it needs at least is looked for before.
    if not isinstance(read_object(folder, TOKENIZER, limits).get("model"), dict):
        raise InputError(f"{TOKENIZER} holds no model of a tokenizer", path=shown(path))
    return cast("Tokenizer", need("tokenizers").Tokenizer.from_file(str(path)))


class Generator:
    """A model that is ready to continue tokens; one executable reads the prompt, whatever its length, and the rest."""

    def __init__(self, path: Path, length: int, options: Options, backend: str | None = None) -> None:
        source = read_source(path, options)
        _require_room(source, length)
        settings = Settings(library=library_of(source.program, options), extents={BATCH: 1}, cached=length)
        model = build(source, options, settings)
        self._input, self._output = _ends(model)
        # All backends of graphs keep their variables alike.
        self.executable = cast("GraphExecutable", compile_graph(model, backend, options))
        kept = [item.variable.name for item in model.graph.updates]
        self._empty = {name: self.executable.state[name] for name in kept}
        self.stops = frozenset(stop_tokens(source))
        self.findings = model.findings
        """What there is to tell about the weights."""

    @property
    def drawn(self) -> Drawn:
        """What is random: weights that nobody gave."""
        return self.executable.drawn

    def require_ends(self, target: str, source: str) -> None:
        """Whether these are the input and the output that the model has for tokens; InputError where not."""
        if (target, source) != (self._input, self._output):
            hint = f"say --generate {self._input}={self._output}"
            raise InputError(f"the model does not continue '{target[:80]}' from '{source[:80]}'", hint=hint)

    def run(self, start: Sequence[int], sampling: Sampling) -> Iterator[int]:
        """The tokens that follow, each as it is chosen; one that ends a text is the last, and is not given."""
        chance = np.random.default_rng(sampling.seed)
        self.executable.state.update(self._empty)
        given = [*start]
        for _ in range(sampling.max_tokens):
            logits = self.executable(**{self._input: np.asarray([given], np.int64)})[self._output][0, -1]
            token = choose_token(logits, sampling.temperature, chance)
            if token in self.stops:
                return
            yield token
            given = [token]


def choose_token(logits: Array, temperature: float, chance: np.random.Generator) -> int:
    """The likeliest token, or with a temperature one by chance."""
    if temperature <= 0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    return int(chance.choice(len(weights), p=weights / weights.sum()))


def _require_room(source: Source, length: int) -> None:
    values = source.instance.values
    longest = next((values[name].value for name in LONGEST if name in values), None)
    if isinstance(longest, int) and length > longest:
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


def stop_tokens(source: Source) -> Iterator[int]:
    """The tokens at which a text ends, by the config of the folder."""
    found = source.folder.config.get("eos_token_id") if source.folder is not None else None
    for item in found if isinstance(found, list) else [found]:
        if isinstance(item, int) and not isinstance(item, bool):
            yield item


class Answer(NamedTuple):
    """The tokens and the text that follow a prompt, what computed them, and what there is to tell of the weights."""

    tokens: list[int]
    text: str
    executable: GraphExecutable
    findings: tuple[Diagnostic, ...] = ()


def generate_text(
    path: Path,
    prompt: str,
    options: Options,
    tell: Callable[[str], None] | None = None,
) -> Answer:
    """What follows a prompt; `tell` gets each piece of the text as it is known."""
    tokenizer = open_tokenizer(path, options.limits)
    start = tokenizer.encode(prompt).ids
    if not start:
        raise InputError("the prompt has no tokens")
    sampling = sampling_of(options)
    generator = Generator(path, len(start) + sampling.max_tokens, options, options.backend)
    tokens: list[int] = []
    told = ""
    for token in generator.run(start, sampling):
        tokens.append(token)
        text = tokenizer.decode(tokens)
        # A character of several tokens is not complete before the last of them.
        if tell is not None and text.startswith(told) and not text.endswith("�"):
            tell(text[len(told) :])
            told = text
    return Answer(tokens, tokenizer.decode(tokens), generator.executable, generator.findings)
