"""The vocabulary of a tokenizer: tokens, ids, scores and merges, from the resources of a file."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lamella.base.errors import Found, InputError, Malformed
from lamella.base.jsontext import decode_object
from lamella.base.reader import Reader
from lamella.lang.nac.nodes import File, Resource
from lamella.lang.nac.rules import sections as rules

TOKENS, INDEX, MERGES, SCORES = "vocab.b", "vidx.b", "merges.b", "scores.b"
Merge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Ids and scores by token, tokens by id, and pairs of tokens in the order in which they merge."""

    ids: Mapping[str, int]
    scores: Mapping[str, float] = field(default_factory=dict)
    merges: tuple[Merge, ...] = ()

    def tokens(self) -> dict[int, str]:
        """The token of each id; the first of several."""
        found: dict[int, str] = {}
        for token, number in self.ids.items():
            found.setdefault(number, token)
        return found


def load_vocabulary(file: File) -> Vocabulary | None:
    """The vocabulary that a file carries, or None; Found where it cannot be read."""
    resources = {item.name: item for item in file.resources}
    for name, read in (
        (TOKENS, _read_tables),
        ("tokenizer.json", _read_document),
        ("vocab.json", _read_words),
    ):
        if name in resources:
            try:
                return read(resources)
            except InputError as problem:
                reason = f"cannot be read: {problem.message}"
            except Malformed as problem:
                reason = str(problem)
            raise Found(rules.VOCABULARY.at(resources[name].span, name=name, problem=reason))
    return None


# --- tables -------------------------------------------------------------------------------------------------


def _read_tables(resources: Mapping[str, Resource]) -> Vocabulary:
    offsets, records = _records(Reader(resources[TOKENS].data))
    ids = {token: number for token, number, _ in records}
    if len(ids) < len(records):
        raise Malformed("has a token twice")
    if INDEX in resources:
        _check_index(Reader(resources[INDEX].data), offsets, [number for _, number, _ in records])
    scores = {token: score for token, _, score in records}
    if SCORES in resources:
        scores = _read_scores(Reader(resources[SCORES].data), ids)
    merges = _read_merges(Reader(resources[MERGES].data)) if MERGES in resources else ()
    return Vocabulary(ids, scores, merges)


def _records(reader: Reader) -> tuple[tuple[int, ...], list[tuple[str, int, float]]]:
    """The records of a vocabulary, which lie apart: their texts are no longer than the whole."""
    count = reader.count(reader.u32(), 4, "a vocabulary")
    offsets = reader.integers("I", count, "a vocabulary")
    start, data = reader.position, reader.view(reader.remaining)
    found, left = [], len(data)
    for offset in offsets:
        if offset + 10 > len(data):
            raise InputError(f"a token begins at byte {offset} of {len(data)}", start)
        size = int.from_bytes(data[offset : offset + 2], "little")
        left -= size + 10
        if offset + size + 10 > len(data) or left < 0:
            raise InputError(f"the token at byte {offset} does not lie within the table", start + offset)
        end = offset + 2 + size
        number, score = struct.unpack_from("<if", data, end)
        found.append((_text(data[offset + 2 : end]), number, _number(score)))
    return offsets, found


def _text(data: memoryview) -> str:
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("has a token that is not UTF-8") from None


def _check_index(reader: Reader, offsets: Iterable[int], numbers: list[int]) -> None:
    """The table by id says the same as the table by token."""
    size = reader.count(reader.u32(), 4, "an index")
    index = reader.integers("I", size, "an index")
    reader.finish("the index")
    if min(numbers, default=0) < 0 or max(numbers, default=-1) + 1 != size:
        last = max(numbers, default=-1)
        raise Malformed(f"has ids up to {last}, and '{INDEX}' has {size} places")
    if any(index[number] != offset for number, offset in zip(numbers, offsets, strict=True)):
        raise Malformed(f"and '{INDEX}' disagree about the place of a token")


def _read_scores(reader: Reader, ids: Mapping[str, int]) -> dict[str, float]:
    """Scores in double precision by id."""
    count = reader.count(reader.u32(), 8, "a list of scores")
    scores = struct.unpack(f"<{count}d", reader.take(8 * count))
    reader.finish("the scores")
    if any(not 0 <= number < count for number in ids.values()):
        raise Malformed(f"has ids for which '{SCORES}' has no score")
    return {token: _number(scores[number]) for token, number in ids.items()}


def _number(score: float) -> float:
    if score != score:
        raise Malformed("has a score that is no number")
    return score


def _read_merges(reader: Reader) -> tuple[Merge, ...]:
    count = reader.count(reader.u32(), 4, "a list of merges")
    found = []
    for _ in range(count):
        first = _text(reader.view(reader.u16()))
        found.append((first, _text(reader.view(reader.u16()))))
    reader.finish("the merges")
    return tuple(found)


# --- texts --------------------------------------------------------------------------------------------------


def _read_json(resource: Resource) -> dict[str, object]:
    # Vocabularies are large and nothing recurses over them: a walk for their depth would show.
    return decode_object(resource.data, max_depth=None)


def _object(found: object) -> dict[str, object]:
    if not isinstance(found, dict):
        raise Malformed("is not an object of JSON")
    return found


def _read_document(resources: Mapping[str, Resource]) -> Vocabulary:
    model = _object(_read_json(resources["tokenizer.json"]).get("model"))
    vocabulary, merges = model.get("vocab"), model.get("merges", [])
    if not isinstance(merges, list):
        raise Malformed("has merges that are no list")
    pairs = tuple(_pair(item.split(" ") if isinstance(item, str) else item) for item in merges)
    if isinstance(vocabulary, list):
        scored = [_scored(item) for item in vocabulary]
        ids = {token: number for number, (token, _) in enumerate(scored)}
        return Vocabulary(ids, dict(scored), pairs)
    ids = _numbered(_object(vocabulary))
    return Vocabulary(ids, {}, pairs)


def _pair(item: object) -> Merge:
    if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], str):
        return item[0], item[1]
    raise Malformed("has a merge that is no pair of tokens")


def _scored(item: object) -> tuple[str, float]:
    if (
        isinstance(item, list)
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], float | int)
    ):
        return item[0], _number(float(item[1]))
    raise Malformed("has a token without a score")


def _numbered(words: dict[str, object]) -> dict[str, int]:
    found = {token: number for token, number in words.items() if isinstance(number, int)}
    if len(found) < len(words) or any(not 0 <= number < 2**31 for number in found.values()):
        raise Malformed("has a token whose id is not a number from 0 to 2147483647")
    return found


def _read_words(resources: Mapping[str, Resource]) -> Vocabulary:
    ids = _numbered(_read_json(resources["vocab.json"]))
    if "merges.txt" not in resources:
        return Vocabulary(ids)
    try:
        lines = bytes(resources["merges.txt"].data).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise Malformed("stands beside a 'merges.txt' that is not UTF-8") from None
    pairs = [line.rstrip("\r").split(" ") for line in lines if line and not line.startswith("#version")]
    return Vocabulary(ids, {}, tuple(map(_pair, pairs)))
