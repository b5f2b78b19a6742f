"""Text from a model: a graph with caches is given the prompt, and then each token that it chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from lamella.backend.executor import GraphExecutable
from lamella.backend.executor.inputs import input_type, list_parts
from lamella.backend.executor.kernels import KernelExecutable
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import need
from lamella.base.paths import is_there, shown
from lamella.bridge.hf_to_module.folder import read_object
from lamella.bridge.module_to_graph import Settings
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.pipeline.backends import make_executable
from lamella.pipeline.generate import Generated, Sampling, decode, sampling_of, stop_tokens
from lamella.pipeline.module.execution import build
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.module.operators import library_of
from lamella.pipeline.options import Options

TOKENIZER = "tokenizer.json"
BATCH = "B"
"""The dimension of sequences, as the models of the library call it."""
PARTS = (256, 64, 16, 4, 1)
"""How many tokens kernels read at once: they are made for known extents, so a prompt of any length takes five sets of
them in all, and every token behind it the last of these."""
LONGEST = ("max_seq", "max_position_embeddings")
"""Parameters that say how many positions a model has."""


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
        hint = "give the numbers of tokens with --tokens instead of --prompt"
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
        self.executable = cast("GraphExecutable", make_executable(model, backend, options))
        if not hasattr(self.executable, "state"):
            raise InputError(
                f"backend '{backend}' keeps no states, which generation needs", hint="leave --backend out"
            )
        kept = [item.variable.name for item in model.graph.updates]
        self._empty = {name: self.executable.state[name] for name in kept}
        self.stops = (
            frozenset(stop_tokens(source.folder.config)) if source.folder is not None else frozenset()
        )
        self.findings = model.findings
        """What there is to say about the weights."""

    def run(self, start: Sequence[int], sampling: Sampling) -> Iterator[int]:
        """The tokens that follow, each as it is chosen."""
        if not start:
            raise InputError("the prompt has no tokens")
        self.executable.state.update(self._empty)
        return decode(self._rate, start, sampling, self.stops)

    def _rate(self, new: Sequence[int]) -> Array:
        parts = PARTS if isinstance(self.executable, KernelExecutable) else (len(new),)
        for part in split_tokens(new, parts):
            found = self.executable(**{self._input: np.asarray([part], np.int64)})
        scores: Array = found[self._output][0, -1]
        return scores


def split_tokens(tokens: Sequence[int], lengths: Sequence[int]) -> Iterator[Sequence[int]]:
    """Tokens in parts of given lengths, the longest ones first; the last of the lengths divides all others."""
    start = 0
    for length in lengths:
        while len(tokens) - start >= length:
            yield tokens[start : start + length]
            start += length


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


def generate_tokens(path: Path, prompt: Sequence[int], options: Options) -> Generated:
    """The tokens that follow others."""
    sampling = sampling_of(options)
    generator = Generator(path, len(prompt) + sampling.max_tokens, options, options.backend)
    tokens = list(generator.run(prompt, sampling))
    return Generated(tokens, generator.executable, findings=generator.findings)


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
    generator = Generator(path, len(start) + sampling.max_tokens, options, options.backend)
    tokens: list[int] = []
    emitted = ""
    for token in generator.run(start, sampling):
        tokens.append(token)
        text = tokenizer.decode(tokens)
        # A character of several tokens is not complete before the last of them.
        if emit is not None and text.startswith(emitted) and not text.endswith("�"):
            emit(text[len(emitted) :])
            emitted = text
    return Generated(tokens, generator.executable, tokenizer.decode(tokens), generator.findings)
