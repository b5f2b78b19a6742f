"""Files of data by their endings: `.npy`, `.npz`, `.safetensors`, `.jsonl`, `.parquet`, texts, and folders of texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError, Malformed
from lamella.base.jsontext import decode_object
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import need
from lamella.base.paths import is_folder, map_bytes, read_bytes, read_text, shown
from lamella.base.records import dataclass
from lamella.graph.data.safetensors import decode_safetensors
from lamella.graph.nodes import Tensor
from lamella.pipeline.arrays import map_array, read_arrays
from lamella.train.data.batches import Dataset
from lamella.train.data.examples import TARGET_NAMES, make_examples
from lamella.train.data.texts import TextEncoder, TextSpan, has_tokenizer, pieces_of, stream_of
from lamella.train.data.windows import TokenStream, TokenWindows, learnt_windows, require_stream

BYTES = "bytes:"
"""What stands before a file whose bytes are the tokens."""
RECORDS = (".jsonl", ".ndjson")
TEXTS = (".txt", ".md", ".text")
TOKEN_NAMES = ("tokens", "token_ids", "input_ids")
"""What data call a row of tokens."""
_PART = re.compile(r"(?P<path>.*)\[(?P<first>\d{0,18}):(?P<last>\d{0,18})\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DataRequest:
    """What a model takes: its inputs, how long sequences are, and where its tokenizer lies."""

    ports: Sequence[Tensor]
    sequence: int | None = None
    """Tokens of a sequence; None where nobody said."""
    vocabulary: int | None = None
    tokenizer: Path | None = None
    """The folder with the tokenizer."""
    limits: Limits = field(default=DEFAULT)


@dataclass(frozen=True, slots=True)
class ItemRange:
    """The items of a data set between two numbers, such as `F.npz[:1198]`."""

    data: Dataset
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many items there are."""
        return self.last - self.first

    @property
    def tokens(self) -> int:
        """Targets of an item."""
        return self.data.tokens

    def take(self, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Mapping[str, Array]:
        """Some items."""
        return self.data.take(rows + self.first)

    def describe(self) -> str:
        """One line about the data."""
        return f"items {self.first} to {self.last - 1} of {self.data.describe()}"


def open_data(words: str, request: DataRequest) -> Dataset:
    """The data that a user names: a file, a folder, `bytes:F`, or some of the items, `F[first:last]`."""
    part = _PART.fullmatch(words)
    if part is None:
        return _open(words, request)
    data = _open(part["path"], request)
    first = int(part["first"] or 0)
    last = min(int(part["last"] or data.size), data.size)
    if first >= last:
        raise InputError(f"'{printable(words)}' holds no items", hint=f"there are {data.size}, from 0")
    return ItemRange(data, first, last)


def _open(words: str, request: DataRequest) -> Dataset:
    if words.startswith(BYTES):
        path = Path(words.removeprefix(BYTES))
        tokens = np.frombuffer(read_bytes(path, request.limits), np.uint8)
        return _windows(TokenStream(tokens, source=f"the bytes of '{shown(path)}'"), request)
    path = Path(words)
    source, ending = f"'{shown(path)}'", path.suffix.lower()
    if is_folder(path) or ending in TEXTS:
        encoder = _encoder(request, path)
        return _windows(stream_of(_texts(path, request.limits), encoder, source), request)
    if ending in RECORDS:
        return _from_records(_lines(path, request.limits), path, request)
    if ending == ".parquet":
        return _from_records(_rows(path, request.limits), path, request)
    if ending == ".npy":
        return _from_array(path, source, request)
    if ending == ".npz":
        return from_arrays(read_arrays(path, request.limits), request, source)
    if ending == ".safetensors":
        mapped = map_bytes(path, request.limits)
        return from_arrays(decode_safetensors(mapped.data, shown(path)), request, source)
    known = ", ".join((".npy", ".npz", ".safetensors", *RECORDS, ".parquet", *TEXTS))
    hint = f"endings are: {known}; {BYTES}{path.name} takes the bytes of any file for tokens"
    raise InputError(f"{source} has no ending of data", path=shown(path), hint=hint)


def _windows(stream: TokenStream, request: DataRequest) -> TokenWindows:
    """A stream as windows for the input that takes tokens."""
    found = [item for item in request.ports if not item.element.is_float]
    if len(found) != 1 or len(request.ports) != 1:
        names = ", ".join(printable(item.name) for item in request.ports)
        hint = f"give a .npz file with: {names} and targets"
        raise InputError(f"a row of tokens is for one input, and the model has {names}", hint=hint)
    length = request.sequence or _fixed_length(found[0])
    if length is None:
        raise InputError("nobody says how long a sequence is", hint="say --sequence T")
    windows = TokenWindows(stream, length, found[0].name, request.vocabulary, learnt_windows(stream, length))
    if windows.kept is not None and not len(windows.kept):
        hint = "of records only completions and what an assistant says are learnt: look at them, or say --sequence T"
        raise InputError(f"no window of {stream.source} holds something to learn", hint=hint)
    if windows.size < 1:
        count = len(stream.tokens)
        hint = f"say --sequence {count - 1} or less" if count > 1 else "there is nothing in it to learn"
        raise InputError(f"{count} tokens of {stream.source} fill no window of {length} + 1", hint=hint)
    windows.require_known()
    return windows


def _fixed_length(port: Tensor) -> int | None:
    last = port.shape[-1] if len(port.shape) > 1 else None
    return last if isinstance(last, int) else None


# --- arrays -----------------------------------------------------------------------------------------------------


def _from_array(path: Path, source: str, request: DataRequest) -> Dataset:
    mapped, array = map_array(path, request.limits)
    require_stream(array, source)
    return _windows(TokenStream(array, source=source, check=mapped.check_whole), request)


def from_arrays(arrays: Mapping[str, Array], request: DataRequest, source: str) -> Dataset:
    """Arrays by the names of inputs with targets, or a row of tokens alone."""
    names = {item.name for item in request.ports}
    if not any(name in arrays for name in TARGET_NAMES):
        rows = [name for name in (*TOKEN_NAMES, *sorted(names)) if name in arrays]
        if rows and arrays[rows[0]].ndim == 1:
            require_stream(arrays[rows[0]], source)
            return _windows(TokenStream(arrays[rows[0]], source=source), request)
    return make_examples(arrays, request.ports, source, request.vocabulary)


# --- texts and records ------------------------------------------------------------------------------------------


def _encoder(request: DataRequest, path: Path) -> TextEncoder:
    folder = request.tokenizer
    if folder is None or not has_tokenizer(folder):
        hint = f"train a Hugging Face folder that has one, give tokens as .npy, or say {BYTES}{path.name}"
        raise InputError(
            f"'{shown(path)}' is text, and the model has no tokenizer", path=shown(path), hint=hint
        )
    return TextEncoder(folder, request.limits)


def _texts(path: Path, limits: Limits) -> Iterator[TextSpan]:
    """The text of a file, or the texts of a folder in the order of their names."""
    if not is_folder(path):
        yield TextSpan(read_text(path, limits), ends=False)
        return
    files = sorted(item for item in path.iterdir() if item.suffix.lower() in TEXTS)
    if not files:
        raise InputError(
            f"the folder '{shown(path)}' holds no texts", hint=f"endings are: {', '.join(TEXTS)}"
        )
    yield from (TextSpan(read_text(item, limits)) for item in files)


def _lines(path: Path, limits: Limits) -> Iterator[Mapping[str, object]]:
    """The objects of a file with one JSON object on each line."""
    for number, line in enumerate(read_text(path, limits).splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield decode_object(line, limits.max_depth)
        except Malformed as problem:
            raise InputError(f"line {number} {problem}", path=shown(path)) from None


def _rows(path: Path, limits: Limits) -> Iterator[Mapping[str, object]]:
    """The rows of a table in the Parquet format, some at a time."""
    map_bytes(path, limits)  # what cannot be opened is said in our words
    arrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    try:
        table = parquet.ParquetFile(str(path), memory_map=True)
        for batch in table.iter_batches(batch_size=1024):
            yield from batch.to_pylist()
    except (arrow.ArrowException, OSError, ValueError) as problem:
        raise InputError(f"not a readable .parquet file: {str(problem)[:200]}", path=shown(path)) from None


def _from_records(records: Iterator[Mapping[str, object]], path: Path, request: DataRequest) -> Dataset:
    """Records with tokens, or with texts."""
    source = f"'{shown(path)}'"
    first = next(records, None)
    if first is None:
        raise InputError(f"{source} holds no records", path=shown(path))
    every = _chain(first, records)
    key = next((name for name in TOKEN_NAMES if name in first), None)
    if key is not None:
        parts = [_token_row(record.get(key), number, source) for number, record in enumerate(every, 1)]
        return _windows(TokenStream(np.concatenate(parts), source=source), request)
    encoder = _encoder(request, path)
    return _windows(stream_of(pieces_of(every, encoder, source), encoder, source), request)


def _chain(
    first: Mapping[str, object], rest: Iterator[Mapping[str, object]]
) -> Iterator[Mapping[str, object]]:
    yield first
    yield from rest


def _token_row(value: object, number: int, source: str) -> Array:
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 31 for item in value):
        return np.asarray(value, np.int32)
    raise InputError(f"record {number} of {source} holds no list of tokens")
