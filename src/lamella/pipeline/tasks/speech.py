"""Speech to text: a WAV file becomes mel features, and a model writes what is said in them.

Features are those of Whisper: the log of the power in bands that the ear tells apart, over windows of time.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_there, read_bytes, shown
from lamella.base.placement import placement_of
from lamella.bridge.hf_to_module.checkpoint import read_object
from lamella.pipeline.generate import sampling_of
from lamella.pipeline.module.generate import (
    SequenceGenerator,
    open_generator,
    open_tokenizer,
    with_room,
)
from lamella.pipeline.options import Options
from lamella.pipeline.tasks import TaskResult

PREPROCESSOR = "preprocessor_config.json"
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
"""Formats of samples in a WAV file."""
FEATURES = "features"


class Sound(NamedTuple):
    """Samples between -1 and 1, and how many of them are a second."""

    samples: Array
    rate: int


def perform(task: str, path: Path, config: Mapping[str, object], options: Options) -> TaskResult:
    """Write what is said in each file."""
    found = [_transcribe(path, Path(name), options) for name in options.audio]
    texts = tuple(text for text, _ in found)
    named = zip(options.audio, texts, strict=True)
    lines = texts if len(texts) == 1 else [f"{name}: {text}" for name, text in named]
    generator = found[0][1]
    placed = tuple(placement_of(generator.executable))
    return TaskResult(tuple({"text": text} for text in texts), tuple(lines), generator.findings, placed)


def _transcribe(path: Path, file: Path, options: Options) -> tuple[str, SequenceGenerator]:
    """What is said in a file: each stretch that the model hears at once by itself."""
    hearing = read_hearing(path, options.limits)
    samples = read_wav_at(file, hearing.rate, options.limits)
    generator = open_generator(path, 0, with_room(path, options))
    if not isinstance(generator, SequenceGenerator):
        hint = "leave --via torch out"
        raise InputError("speech is written by models of the library alone", path=shown(path), hint=hint)
    tokenizer = open_tokenizer(path, options.limits)
    parts = []
    for begin in range(0, max(len(samples), 1), hearing.samples):
        generator.read(**{FEATURES: mel_features(samples[begin : begin + hearing.samples], hearing)})
        parts.append(tokenizer.decode(list(_written(generator, options))).strip())
    return " ".join(part for part in parts if part), generator


def _written(generator: SequenceGenerator, options: Options) -> Iterator[int]:
    """The tokens of a stretch; what the folder says about the first ones and about hidden ones is obeyed."""
    said = generator.said
    start, before = list(generator.start), tuple[int, ...]()
    languages, tasks = said.get("lang_to_id"), said.get("task_to_id")
    if isinstance(languages, dict) and languages:
        scores = generator.rate_next(start)
        numbers = [item for item in languages.values() if isinstance(item, int) and item < len(scores)]
        before = generator.start
        start = [max(numbers, key=lambda token: float(scores[token]))]
        chosen = tasks.get("transcribe") if isinstance(tasks, dict) else None
        start += [chosen] if isinstance(chosen, int) else []
    plain = said.get("no_timestamps_token_id")
    start += [plain] if isinstance(plain, int) else []
    return generator.write(start, sampling_of(options), before)


# --- WAV files ----------------------------------------------------------------------------------------------------


def read_wav(path: Path, limits: Limits = DEFAULT) -> Sound:
    """The samples of a WAV file, of all channels in one; InputError says what is wrong with it."""
    data = read_bytes(path, limits)
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise InputError(f"'{shown(path)}' is no WAV file", path=shown(path))
    chunks = dict(_chunks(data))
    layout, samples = chunks.get(b"fmt "), chunks.get(b"data")
    if layout is None or samples is None or len(layout) < 16:
        raise InputError(f"'{shown(path)}' has no samples, or does not say what they are", path=shown(path))
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", layout[:16])
    if kind == EXTENSIBLE and len(layout) >= 26:
        (kind,) = struct.unpack("<H", layout[24:26])
    numbers = _decode(kind, bits, samples)
    if numbers is None or not channels or not rate:
        what = f"samples of {bits} bits in format {kind}"
        hint = "PCM of 8, 16, 24 or 32 bits and floats of 32 or 64 bits are read"
        raise InputError(f"'{shown(path)}' has {what}", path=shown(path), hint=hint)
    whole = numbers[: len(numbers) // channels * channels].reshape(-1, channels)
    return Sound(whole.mean(1).astype(np.float32), rate)


def read_wav_at(path: Path, rate: int, limits: Limits = DEFAULT) -> Array:
    """The samples of a WAV file that has as many in a second as a model hears; InputError says that it has not."""
    sound = read_wav(path, limits)
    if sound.rate != rate:
        hint = f"write it again with {rate} samples in a second"
        raise InputError(
            f"'{shown(path)}' has {sound.rate} samples in a second, the model hears {rate}", hint=hint
        )
    return sound.samples


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 12
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        yield data[place : place + 4], data[place + 8 : place + 8 + size]
        # Chunks begin at even places.
        place += 8 + size + size % 2


def _decode(kind: int, bits: int, samples: bytes) -> Array | None:
    """Samples as numbers between -1 and 1; None for a format that is not known."""
    width = bits // 8
    whole = samples[: len(samples) // width * width] if width else b""
    if (kind, bits) in ((FLOAT, 32), (FLOAT, 64)):
        return np.frombuffer(whole, f"<f{width}").astype(np.float64)
    if (kind, bits) == (PCM, 8):
        return (np.frombuffer(whole, np.uint8).astype(np.float64) - 128) / 128
    if (kind, bits) == (PCM, 24):
        parts = np.frombuffer(whole, np.uint8).reshape(-1, 3).astype(np.int32)
        number = parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16
        return (number - ((number & 0x800000) << 1)).astype(np.float64) / 2**23
    if (kind, bits) in ((PCM, 16), (PCM, 32)):
        return np.frombuffer(whole, f"<i{width}").astype(np.float64) / 2.0 ** (bits - 1)
    return None


# --- mel features -------------------------------------------------------------------------------------------------


class Hearing(NamedTuple):
    """What a folder says about its features."""

    bands: int = 80
    rate: int = 16000
    hop: int = 160
    window: int = 400
    seconds: int = 30

    @property
    def samples(self) -> int:
        """How many samples are heard at once."""
        return self.seconds * self.rate


def read_hearing(path: Path, limits: Limits = DEFAULT) -> Hearing:
    """What a folder says about its features, or what Whisper has."""
    if not is_there(path / PREPROCESSOR):
        return Hearing()
    said = read_object(path, PREPROCESSOR, limits)
    keys = ("feature_size", "sampling_rate", "hop_length", "n_fft", "chunk_length")
    named = dict(zip(Hearing._fields, keys, strict=True))
    found: dict[str, int] = {}
    for name, key in named.items():
        value = said.get(key, 1)
        if not isinstance(value, int) or not 0 < value < 1 << 20:
            raise InputError(f"'{key}' of {PREPROCESSOR} is no size", path=shown(path))
        found |= {name: value} if key in said else {}
    return Hearing(**found)


def mel_features(samples: Array, hearing: Hearing) -> Array:
    """The log of the power in each band over time, `[1, bands, frames]`, of a stretch filled up with silence."""
    filled = np.zeros(hearing.samples)
    filled[: len(samples)] = samples
    edge = hearing.window // 2
    heard = np.pad(filled, edge, mode="reflect")
    count = 1 + (len(heard) - hearing.window) // hearing.hop
    places = np.arange(count)[:, None] * hearing.hop + np.arange(hearing.window)
    shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(hearing.window) / hearing.window)
    power = np.abs(np.fft.rfft(heard[places] * shape)) ** 2
    # The last frame begins where the stretch ends.
    levels = np.log10(np.maximum(mel_bands(hearing) @ power[:-1].T, 1e-10))
    levels = np.maximum(levels, levels.max() - 8.0)
    found: Array = ((levels + 4.0) / 4.0).astype(np.float32)[None]
    return found


def mel_bands(hearing: Hearing) -> Array:
    """How much of each frequency belongs to each band: triangles of one area, spaced as the ear tells pitches."""
    frequencies = np.linspace(0, hearing.rate / 2, hearing.window // 2 + 1)
    edges = _hertz(np.linspace(_mels(0.0), _mels(8000.0), hearing.bands + 2))
    widths = np.diff(edges)
    slopes = edges[:, None] - frequencies
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    areas = 2.0 / (edges[2:] - edges[:-2])
    bands: Array = np.maximum(0, np.minimum(rising, falling)) * areas[:, None]
    return bands


STEP, BEND = 200.0 / 3.0, 1000.0
"""Pitches grow evenly by this many hertz up to the bend, and beyond by a factor."""
FACTOR = 27.0 / math.log(6.4)


def _mels(hertz: float) -> float:
    return hertz / STEP if hertz < BEND else BEND / STEP + math.log(hertz / BEND) * FACTOR


def _hertz(mels: Array) -> Array:
    found: Array = np.where(mels < BEND / STEP, mels * STEP, BEND * np.exp((mels - BEND / STEP) / FACTOR))
    return found
