"""Tensor files (.dat), .safetensors and .json files for the commands: check and show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import Diagnostic, LamellaError, printable
from lamella.base.errors import InputError
from lamella.base.jsontext import parse_json
from lamella.base.limits import Limits
from lamella.base.paths import map_bytes, read_bytes, read_text, shown
from lamella.base.source import Source
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.graph.data import read_dat
from lamella.graph.data.safetensors import decode_index, decode_safetensors
from lamella.pipeline.languages import DOCUMENT, NEM, Description
from lamella.pipeline.options import Options

# --- JSON files for the commands: tokenizers, configs, indices of checkpoints, task-control -----------------


LISTED = 40
"""Entries of an object that are listed; of more, the number of the others is given."""
LONGEST = 60
"""Characters of a value that are shown."""


def check_document(path: Path, options: Options) -> list[Diagnostic]:
    """A stream with its own checks, a tokenizer as it is compiled; of others the syntax."""
    found = _documents_read(path, options.limits)
    if is_stream_object(found):
        return NEM.check(path, options)
    if _kind(found) == "tokenizer":
        return list(tokenizer_to_nac(read_bytes(path, options.limits), path.name).findings)
    return []


def describe_document(path: Path, options: Options) -> Description:
    """What a JSON file is, and what it holds, entry by entry."""
    found = _documents_read(path, options.limits)
    if is_stream_object(found):
        return NEM.show(str(path), options)
    kind = _kind(found)
    name = printable(shown(path))
    data: dict[str, object] = {"file": shown(path), "kind": kind}
    findings: tuple[Diagnostic, ...] = ()
    if not isinstance(found, Mapping):
        return Description(f"{name}: JSON, {_value(found)}", data | {"value": _value(found)})
    if kind == "tokenizer":
        lines, facts = list(_tokenizer_lines(found)), {"model": _entry(found, "model", "type")}
        try:
            findings = tokenizer_to_nac(read_bytes(path, options.limits), path.name).findings
        except LamellaError as problem:
            findings = problem.findings
    elif kind == "index":
        lines, facts = list(_index_lines(found)), {"tensors": len(_mapping(found, "weight_map"))}
    else:
        lines, facts = list(_entries(found)), {"keys": list(found)}
    return Description("\n".join([f"{name}: {TITLES[kind]}", *lines]), data | facts, findings)


TITLES = {
    "tokenizer": "a tokenizer",
    "config": "the config of a Hugging Face folder",
    "index": "the index of a checkpoint in shards",
    "object": "a JSON object",
    "value": "a JSON value",
}


def is_stream_object(value: object) -> bool:
    """Whether a JSON value is meant to be a task-control stream."""
    return isinstance(value, Mapping) and ("engines" in value or {"version", "tokens"} <= value.keys())


def _documents_read(path: Path, limits: Limits) -> object:
    return parse_json(Source(shown(path), read_text(path, limits)), limits)


def _kind(value: object) -> str:
    if not isinstance(value, Mapping):
        return "value"
    if isinstance(value.get("model"), Mapping) and ("added_tokens" in value or "vocab" in value["model"]):
        return "tokenizer"
    if "weight_map" in value:
        return "index"
    return "config" if "model_type" in value or "architectures" in value else "object"


def _mapping(value: object, key: str) -> Mapping[str, object]:
    inner = value.get(key) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _entry(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _tokenizer_lines(value: Mapping[str, object]) -> Iterator[str]:
    model = _mapping(value, "model")
    kind = model.get("type") or ("BPE" if "merges" in model else "not said")
    vocabulary = model.get("vocab")
    size = len(vocabulary) if isinstance(vocabulary, Mapping | list) else 0
    yield f"  model          {printable(str(kind))}, {size:,} tokens"
    merges = model.get("merges")
    if isinstance(merges, list):
        yield f"  merges         {len(merges):,}"
    added = value.get("added_tokens")
    if isinstance(added, list):
        words = [str(_entry(item, "content")) for item in added[:LISTED]]
        more = f" and {len(added) - LISTED} more" if len(added) > LISTED else ""
        yield f"  added tokens   {len(added)}: {printable(', '.join(words), 200)}{more}"
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding"):
        part = value.get(key)
        if part is not None:
            yield f"  {key:<14} {printable(', '.join(_kinds(part)) or _value(part))}"


def _kinds(part: object) -> list[str]:
    """The kinds of a part of a tokenizer; a sequence has those of its members."""
    if not isinstance(part, Mapping):
        return []
    members = next((item for item in part.values() if isinstance(item, list) and item), [])
    inner = [word for item in members for word in _kinds(item)] if part.get("type") == "Sequence" else []
    return inner or [str(part.get("type", "not said"))]


def _index_lines(value: Mapping[str, object]) -> Iterator[str]:
    names = _mapping(value, "weight_map")
    files = sorted({str(item) for item in names.values()})
    size = _entry(value, "metadata", "total_size")
    if isinstance(size, int):
        yield f"  {size:,} bytes"
    yield f"  {len(names):,} tensors in {len(files):,} files"
    for file in files[:LISTED]:
        yield f"    {printable(file)}: {sum(item == file for item in names.values()):,} tensors"


def _entries(value: Mapping[str, object]) -> Iterator[str]:
    shown_names = [printable(str(key), 40) for key in list(value)[:LISTED]]
    width = max(map(len, shown_names), default=0)
    for name, item in zip(shown_names, value.values(), strict=False):
        yield f"  {name:<{width}}  {_value(item)}"
    if len(value) > LISTED:
        yield f"  and {len(value) - LISTED:,} more"


def _value(value: object) -> str:
    """A value in short: scalars as they are, of containers what they hold."""
    if isinstance(value, Mapping):
        names = ", ".join(map(str, list(value)[:6]))
        return f"object of {len(value):,}" + (f": {printable(names, LONGEST)}" if names else "")
    if isinstance(value, list):
        plain = all(isinstance(item, str | int | float | bool | None) for item in value[:8])
        items = ", ".join(map(str, value[:8])) if plain else ""
        return f"list of {len(value):,}" + (f": {printable(items, LONGEST)}" if items else "")
    return printable(str(value), LONGEST) if not isinstance(value, bool | None) else str(value).lower()


MOST_READ = 1 << 24
"""Bytes of a file whose numbers are read to be shown."""


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The whole file is read; what is wrong with it is raised by the reader."""
    if path.suffix.lower() == DOCUMENT:
        return check_document(path, options)
    _read(path, options.limits)
    return []


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """Data have no text."""
    raise InputError(f"'{path.name}' holds data, not text", path=path)


def describe(name: str, options: Options) -> Description:
    """Each tensor with its type and shape, and the range of its numbers where these are not too many to be read."""
    path = Path(name)
    if path.suffix.lower() == DOCUMENT:
        return describe_document(path, options)
    tensors = _tensors(path, options)
    total = sum(item.size for item in tensors)
    lines = [f"{printable(shown(path))}: {len(tensors)} tensor{'s' * (len(tensors) != 1)}, {total:,} bytes"]
    if total > MOST_READ and not options.stats:
        lines[0] += "; --stats reads their numbers"
    lines += [f"  {printable(item.name)}: {item.facts}" for item in tensors]
    data = {item.name: item.to_json(options.stats) for item in tensors}
    return Description("\n".join(lines), {"file": shown(path), "kind": "data", "tensors": data})


PIECE = 1 << 20
"""Numbers that are looked at at once."""


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """What the finite numbers of a tensor are like, and how many are none."""

    min: float
    max: float
    mean: float
    std: float
    zeros: float
    """The part of all elements that is 0."""
    nan: int
    infinite: int

    def __str__(self) -> str:
        words = [f"{self.min:.6g} .. {self.max:.6g}, mean {self.mean:.6g}, std {self.std:.3g}"]
        words += [f"{self.zeros:.1%} zeros"] if self.zeros else []
        words += [f"{self.nan:,} NaN"] if self.nan else []
        words += [f"{self.infinite:,} infinite"] if self.infinite else []
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class _ShownTensor:
    """A tensor of a file: its name, type, shape and bytes, and what its numbers are like where they were read."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    numbers: TensorStatistics | None = None

    @property
    def facts(self) -> str:
        words = "" if self.numbers is None else f"  {self.numbers}"
        return f"{self.dtype}{list(self.shape)}{words}"

    def to_json(self, stats: bool) -> dict[str, object]:
        """As data, with its numbers where they are asked for."""
        found = {"dtype": self.dtype, "shape": list(self.shape), "bytes": self.size}
        more = {"stats": asdict(self.numbers)} if stats and self.numbers is not None else {}
        return {**found, **more}


def _tensors(path: Path, options: Options) -> list[_ShownTensor]:
    """The tensors of a file; of a large one its header alone, unless their numbers are asked for."""
    limits = options.limits
    if path.suffix.lower() == ".safetensors" and not options.stats:
        index = decode_index(map_bytes(path, limits).data, shown(path))
        if sum(item.end - item.begin for item in index.entries) > MOST_READ:
            return [
                _ShownTensor(item.name, str(numpy_dtype(item.element)), item.shape, item.end - item.begin)
                for item in index.entries
            ]
    return [
        _ShownTensor(name, str(array.dtype), array.shape, array.nbytes, _statistics(array))
        for name, array in _read(path, limits).items()
    ]


def _read(path: Path, limits: Limits) -> dict[str, Array]:
    if path.suffix.lower() == ".safetensors":
        return decode_safetensors(map_bytes(path, limits).data, shown(path))
    return {path.name.removesuffix(".dat"): read_dat(path, limits).values}


def _statistics(array: Array) -> TensorStatistics | None:
    """What the numbers of an array are like; None where it has none."""
    if not array.size or array.dtype.kind in "bc":
        return None
    least = largest = total = square = 0.0
    count = zeros = missing = 0
    flat = array.reshape(-1)
    # In pieces: numbers of a large tensor in 64 bits would take many times its own memory.
    for start in range(0, flat.size, PIECE):
        numbers = flat[start : start + PIECE].astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        missing += int(np.isnan(numbers).sum())
        zeros += int((finite == 0).sum())
        if finite.size:
            low, high = float(finite.min()), float(finite.max())
            least, largest = (min(least, low), max(largest, high)) if count else (low, high)
            total += float(finite.sum())
            square += float((finite * finite).sum())
            count += finite.size
    mean = total / count if count else 0.0
    deviation = max(0.0, square / count - mean * mean) ** 0.5 if count else 0.0
    infinite = array.size - count - missing
    return TensorStatistics(least, largest, mean, deviation, zeros / array.size, missing, infinite)
