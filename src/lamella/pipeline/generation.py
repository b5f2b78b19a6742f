"""`lamella.generate`, and what the command shares with it: a model in any language continues a text or tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.graph.model import Model as GraphModel
from lamella.pipeline.api import make_executable, read
from lamella.pipeline.api_options import GenerateOptions
from lamella.pipeline.decoding import decode
from lamella.pipeline.effects import steps_of
from lamella.pipeline.generate import Generated, GraphOfTokens, rate_by_names, sampling_of
from lamella.pipeline.given import Use, find_inert, options_of
from lamella.pipeline.languages import NAC, ONNX, SKRIPTND, architectures, language_of, subject_of
from lamella.pipeline.options import Options, drawing
from lamella.pipeline.signatures import documented


@documented(GenerateOptions)
def generate(
    path: str | Path,
    prompt: str | Sequence[int],
    /,
    *,
    inputs: Mapping[str, npt.ArrayLike] | None = None,
    emit: Callable[[str], None] | None = None,
    **options: Unpack[GenerateOptions],
) -> Generated:
    """Continue a text or tokens with the model of a path; gives the tokens, and their text where there is a tokenizer.

    `inputs` are arrays beside the tokens, by name; `emit` gets each piece of a text as it is known.
    """
    words = {"prompt": prompt} if isinstance(prompt, str) else {"tokens": ",".join(map(str, prompt))}
    chosen, file = drawing(options_of({**options, **words}, by_command=True)), Path(path)
    subject = subject_of(file, chosen.language)
    given = {name: getattr(chosen, name) for name in chosen.given}
    inert = find_inert(Use(steps_of("generate", subject, given), subject, str(file)), chosen)
    if inert is not None:
        raise inert.error()
    if not isinstance(prompt, str):
        arrays = {name: np.asarray(item) for name, item in (inputs or {}).items()}
        return generate_tokens(file, prompt, arrays, chosen)
    if language_of(file, chosen.language) is NAC:
        hint = "lamella generate FILE --prompt TEXT runs it, and shows what it prints"
        raise InputError("a text is answered by the plan of a NAC file", hint=hint)
    return architectures().generate_text(file, prompt, chosen, emit)


def generate_tokens(
    path: Path, prompt: Sequence[int], arrays: Mapping[str, Array], options: Options
) -> Generated:
    """The tokens that follow others: by a cache of keys and values, or by the names of an input and an output."""
    if language_of(path, options.language) not in (NAC, SKRIPTND, ONNX):
        return architectures().generate_tokens(path, prompt, options)
    model = read(path, options)
    executable = make_executable(model, options.backend, options)
    named = GraphOfTokens(executable, model) if isinstance(model, GraphModel) else executable
    rate = rate_by_names(named, options.ends, arrays)
    tokens = list(decode(rate, prompt, sampling_of(options)))
    return Generated(tokens, executable, findings=tuple(executable.findings))
