"""Tasks of models that hear samples themselves: letters, labels or vectors of a WAV file.

Letters are read from scores by connectionist temporal classification: the best token of each moment, repeated ones
once, without those that stand between letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_there, shown
from lamella.base.placement import placement_of
from lamella.bridge.hf_to_module.checkpoint import read_object
from lamella.pipeline.backends import make_executable
from lamella.pipeline.languages import Executable
from lamella.pipeline.module.execution import load
from lamella.pipeline.options import Options
from lamella.pipeline.tasks import TaskResult
from lamella.pipeline.tasks.speech import PREPROCESSOR, read_wav_at
from lamella.pipeline.tasks.text import TYPES, few, label_scores, labels_of, ranked

SAMPLES = "input_values"
LETTERS = "vocab.json"
EXTRACTOR = "Wav2Vec2FeatureExtractor"
QUIET = 1e-7
"""What is added to the variance of samples before they are divided by its root."""


class Listening(NamedTuple):
    """What a folder says about its samples: how many are a second, and whether they are normalised."""

    rate: int = 16000
    normalise: bool = True


def perform(task: str, path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """Do a task with each of the files."""
    listening = read_listening(path, options.limits)
    letters = Letters(path, options) if task == "speech-to-text" else None
    model = load(path, options)
    executable = make_executable(model, options.backend, options)
    if executable.inputs != (SAMPLES,):
        raise InputError(f"the model takes {', '.join(executable.inputs)}, no sound alone", path=shown(path))
    items, lines = [], []
    for name in options.audio:
        samples = samples_of(read_wav_at(Path(name), listening.rate, options.limits), listening)
        found = _run(path, executable, samples)
        if letters is not None:
            item, rows = _write(found, letters)
        else:
            item, rows = _PERFORMERS[task](found, config, options)
        items.append(item)
        lines += rows if len(options.audio) == 1 else [f"{name}:", *(f"  {row}" for row in rows)]
    return TaskResult(tuple(items), tuple(lines), model.findings, tuple(placement_of(executable)))


def _run(path: Path, executable: Executable, samples: Array) -> Array:
    """The first output for one sound."""
    found: Array = next(iter(executable(**{SAMPLES: samples[None]}).values()))[0]
    if not found.size:
        raise InputError(f"{len(samples)} samples are too few for the model", path=shown(path))
    return found


def _write(scores: Array, letters: Letters) -> tuple[object, list[str]]:
    text = letters.read(scores.argmax(-1).tolist())
    return {"text": text}, [text]


def _classify(logits: Array, config: Mapping[str, object], options: Options) -> tuple[object, list[str]]:
    """The labels of a sound, each with its score, the highest first."""
    scores = label_scores(logits, config)
    names = labels_of(config, len(scores))
    found = [{"label": names[place], "score": float(scores[place])} for place in ranked(scores, options.top)]
    return found, [f"{item['label']}  {item['score']:.4f}" for item in found]


def _extract(states: Array, config: Mapping[str, object], options: Options) -> tuple[object, list[str]]:
    """The vectors of the moments of a sound."""
    return states.tolist(), [f"{len(row)} numbers: {few(row)}" for row in states]


_PERFORMERS = {"audio-classification": _classify, "audio-feature-extraction": _extract}


# --- samples --------------------------------------------------------------------------------------------------------


def read_listening(path: Path, limits: Limits = DEFAULT) -> Listening:
    """What a folder says about its samples; InputError names what is not done."""
    if not is_there(path / PREPROCESSOR):
        return Listening()
    said = read_object(path, PREPROCESSOR, limits)
    kind = said.get("feature_extractor_type", EXTRACTOR)
    rate, normalise = said.get("sampling_rate", 16000), said.get("do_normalize", True)
    if kind != EXTRACTOR or said.get("feature_size", 1) != 1:
        raise InputError(f"features of '{str(kind)[:80]}' are not computed here", path=shown(path))
    if not isinstance(rate, int) or not 0 < rate < 1 << 20 or not isinstance(normalise, bool):
        raise InputError(f"'sampling_rate' or 'do_normalize' of {PREPROCESSOR} is none", path=shown(path))
    return Listening(rate, normalise)


def samples_of(samples: Array, listening: Listening) -> Array:
    """Samples as a model takes them: with a mean of 0 and a variance of 1 where the folder says so."""
    if listening.normalise and len(samples):
        samples = (samples - samples.mean()) / np.sqrt(samples.var() + QUIET)
    return samples.astype(np.float32)


# --- letters --------------------------------------------------------------------------------------------------------


class Letters:
    """The letters of a folder by their numbers, with those that stand for pauses and for spaces."""

    def __init__(self, path: Path, options: Options) -> None:
        said = read_object(path, TYPES, options.limits) if is_there(path / TYPES) else {}
        if not is_there(path / LETTERS):
            hint = f"the folder of the model on the hub has {LETTERS}"
            raise InputError(f"the folder has no letters: no {LETTERS}", path=shown(path), hint=hint)
        listed: object = read_object(path, LETTERS, options.limits)
        language = said.get("target_lang")
        if isinstance(language, str) and isinstance(listed, dict):
            listed = listed.get(language)
        if not isinstance(listed, dict) or not all(isinstance(item, int) for item in listed.values()):
            what = "of no language" if language is None else f"of the language '{str(language)[:40]}'"
            hint = f'"target_lang" in {TYPES} names one'
            raise InputError(f"{LETTERS} has no letters {what}", path=shown(path), hint=hint)
        added = said.get("added_tokens_decoder")
        self._letters = {number: letter for letter, number in listed.items()}
        for number, item in (added if isinstance(added, dict) else {}).items():
            self._letters.setdefault(int(number), _name(item, ""))
        self._pause = _name(said.get("pad_token"), "<pad>")
        self._space = _name(said.get("word_delimiter_token"), "|")
        self._between = _name(said.get("replace_word_delimiter_char"), " ")
        self._lower = said.get("do_lower_case") is True

    def read(self, best: list[int]) -> str:
        """The text of the best tokens of all moments."""
        letters = (self._letters.get(token, "") for token, _ in groupby(best))
        kept = (
            self._between if letter == self._space else letter for letter in letters if letter != self._pause
        )
        text = "".join(kept).strip()
        return text.lower() if self._lower else text


def _name(token: object, usual: str) -> str:
    """A token as a config writes it: its text, or an object that has it."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else usual
