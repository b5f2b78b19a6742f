"""A collection of models in one file: the genes of each, and samples of its weights; distances between them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError, Malformed
from lamella.base.jsontext import decode_object
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_folder, is_there, read_text
from lamella.base.records import dataclass
from lamella.base.writer import write_text
from lamella.bridge.hf_to_module import is_model_folder
from lamella.genome.sequence import DEPTHS, Genome, read_genome
from lamella.graph.model import Model
from lamella.pipeline.api import read
from lamella.pipeline.diff import as_graph
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.loading import ENDING, MAIN

FORMAT = "lamella genome 1"
SAMPLES = 128
"""Numbers of each weight that are kept."""
LONGEST = 120
"""Letters of the words for a gene."""
MODELS = (".module", ".sknd", ".nac", ".nacs", ".onnx", ".pt2")
"""Endings of files that a folder is searched for."""
SAME, RELATED = 0.9999, 0.5
"""Correlations from which on weights are the same, or one grew out of the other."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Some numbers of a weight, from the same places of every weight of its shape."""

    instruction: int
    """The instruction of the sequence that reads it."""
    shape: tuple[int, ...]
    numbers: npt.NDArray[np.float32] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of a collection."""

    name: str
    path: str
    instructions: int
    parameters: int
    genes: tuple[frozenset[str], ...]
    """By generations."""
    samples: tuple[Sample, ...] = ()

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """What is known of it."""
        numbers = (("instructions", self.instructions), ("parameters", self.parameters))
        genes = ("genes", sum(map(len, self.genes)))
        return Card("model", self.name, tuple((word, f"{count:,}") for word, count in (*numbers, genes)))


@dataclass(frozen=True, slots=True)
class Kinship:
    """How one model is related to another."""

    entry: Entry
    distance: float
    shared: int
    total: int
    """Genes of both, and of either."""
    more: tuple[str, ...]
    """What the other model has and this one does not, in words."""
    less: tuple[str, ...]
    correlations: tuple[float, ...] = ()
    """Of the weights that stand at the same places."""

    @property
    def weights(self) -> str:
        """What the weights say, in words."""
        if not self.correlations:
            return "not comparable"
        count = len(self.correlations)
        near = sum(item > SAME for item in self.correlations)
        if near == count:
            return "the same"
        related = sum(item > RELATED for item in self.correlations)
        if not related:
            return "unrelated"
        middle = float(np.median(self.correlations))
        return f"{related} of {count} related, {near} the same, median correlation {middle:.3f}"


# --- one model ----------------------------------------------------------------------------------------------------


def find_models(paths: Iterable[Path]) -> Iterator[Path]:
    """The models among files and folders; a folder that is none itself is searched."""
    for path in paths:
        if not is_folder(path) or is_model_folder(path):
            yield path
            continue
        inner = sorted(path.iterdir())
        found = [item for item in inner if item.suffix.lower() in MODELS or is_folder(item)]
        yield from find_models(item for item in found if not item.is_symlink())


def _name_of(path: Path) -> str:
    """What a model is called: its file or folder; of one that every folder has under the same name, the folder."""
    path = path if path.name else path.absolute()
    return path.parent.name if path.name == f"{MAIN}{ENDING}" and path.parent.name else path.name or str(path)


def describe_model(path: Path, options: Options) -> tuple[Entry, Genome, dict[str, str]]:
    """A model as an entry, its genome, and the words for its genes."""
    model = as_graph(read(path, options), options)
    if model is None:
        raise InputError(
            "it has no graph, only kernels or a plan", path=path, hint="a genome is that of a model"
        )
    genome = read_genome(replace(model, data=None))
    genes = genome.genes()
    words = {mark: _shorten(text) for generation in genes for mark, text in generation.items()}
    entry = Entry(
        printable(_name_of(path), 200),
        str(path),
        len(genome.instructions),
        sum(_count(item.shape) for item in model.graph.variables),
        tuple(frozenset(generation) for generation in genes),
        tuple(_samples(genome, model)),
    )
    return entry, genome, words


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _count(shape: Sequence[object]) -> int:
    return prod(item for item in shape if isinstance(item, int))


def _samples(genome: Genome, model: Model) -> Iterator[Sample]:
    data: Mapping[str, Array] = model.data or {}
    for number, names in enumerate(genome.weights):
        for name in names:
            if name in data and data[name].size >= SAMPLES:
                flat = np.asarray(data[name]).reshape(-1)
                places = np.linspace(0, flat.size - 1, SAMPLES).astype(np.int64)
                yield Sample(number, tuple(data[name].shape), flat[places].astype(np.float32))


# --- many models --------------------------------------------------------------------------------------------------


class Collection:
    """Models by name, in the order in which they came."""

    def __init__(self, entries: Iterable[Entry] = (), words: Mapping[str, str] | None = None) -> None:
        self.entries = {item.name: item for item in entries}
        self.words = dict(words or {})

    def add(self, entry: Entry, words: Mapping[str, str]) -> None:
        """Take a model in; one from another place that has its name is kept beside it."""
        name, number = entry.name, 2
        while name in self.entries and self.entries[name].path != entry.path:
            name, number = f"{entry.name}-{number}", number + 1
        self.entries[name] = replace(entry, name=name)
        self.words |= words

    def shared_genes(self) -> set[str]:
        """The motifs: genes over several instructions that at least two models have."""
        seen: set[str] = set()
        found: set[str] = set()
        for entry in self.entries.values():
            mine = frozenset().union(*entry.genes[1:])
            found |= seen & mine
            seen |= mine
        return found

    def near(self, entry: Entry, words: Mapping[str, str]) -> list[Kinship]:
        """All models, the nearest first."""
        known = {**self.words, **words}
        found = [_compare(entry, other, known) for other in self.entries.values()]
        return sorted(found, key=lambda item: (item.distance, -_closeness(item), item.entry.name))

    def presence(self) -> list[npt.NDArray[np.bool_]]:
        """By generations, which model (rows) has which gene (columns)."""
        found = []
        for depth in range(DEPTHS):
            every = sorted(frozenset().union(*(item.genes[depth] for item in self.entries.values())))
            rows = [[gene in item.genes[depth] for gene in every] for item in self.entries.values()]
            found.append(np.array(rows, dtype=bool).reshape(len(rows), len(every)))
        return found

    @staticmethod
    def load(path: Path, limits: Limits = DEFAULT) -> Collection:
        """Read a collection; an empty one where there is no file yet."""
        if not is_there(path):
            return Collection()
        try:
            data = decode_object(read_text(path, limits))
            if data.get("format") != FORMAT:
                raise Malformed("it is no collection of models")
            return Collection(map(_entry_of, _list(data["models"])), _words_of(data["genes"]))
        except (Malformed, KeyError, TypeError, ValueError) as problem:
            raise InputError(
                f"it cannot be read as a collection: {printable(str(problem), 100)}",
                path=path,
                hint="`lamella genome add MODEL… --db FILE` makes one",
            ) from None

    def save(self, path: Path) -> None:
        """Write the collection, whole or not at all."""
        used = {gene for item in self.entries.values() for generation in item.genes for gene in generation}
        genes = {mark: text for mark, text in sorted(self.words.items()) if mark in used}
        models = [_to_json(item) for item in self.entries.values()]
        write_text(path, json.dumps({"format": FORMAT, "models": models, "genes": genes}, indent=0) + "\n")


def distances(presence: Sequence[npt.NDArray[np.bool_]], weights: Sequence[Array] | None = None) -> Array:
    """The distances of all pairs: the part of the genes of two that not both have, averaged over the generations."""
    total: Array = np.zeros((len(presence[0]), len(presence[0])))
    for depth, rows in enumerate(presence):
        weight = np.ones(rows.shape[1]) if weights is None else weights[depth]
        both = (rows * weight) @ rows.T.astype(float)
        sizes = np.diag(both)
        either = sizes[:, None] + sizes[None, :] - both
        total += 1 - np.divide(both, either, out=np.ones_like(both), where=either > 0)
    return total / len(presence)


def _compare(entry: Entry, other: Entry, words: Mapping[str, str]) -> Kinship:
    pairs = list(zip(entry.genes, other.genes, strict=True))
    apart = [1 - len(a & b) / max(1, len(a | b)) for a, b in pairs]
    shared, total = sum(len(a & b) for a, b in pairs), sum(len(a | b) for a, b in pairs)
    more, less = next(((b - a, a - b) for a, b in pairs if a != b), (frozenset(), frozenset()))
    named = [tuple(sorted(words.get(gene, gene) for gene in side)) for side in (more, less)]
    return Kinship(
        other, sum(apart) / len(apart), shared, total, named[0], named[1], tuple(_correlate(entry, other))
    )


def _correlate(one: Entry, other: Entry) -> Iterator[float]:
    """How alike the weights are that the same instruction reads in the same shape."""
    if one.instructions != other.instructions:
        return
    theirs: dict[object, list[Sample]] = {}
    for item in other.samples:
        theirs.setdefault((item.instruction, item.shape), []).append(item)
    for item in one.samples:
        partners = theirs.get((item.instruction, item.shape), [])
        if partners:
            yield max(_correlation(item.numbers, partner.numbers) for partner in partners)


def _correlation(one: Array, other: Array) -> float:
    if np.array_equal(one, other):
        return 1.0
    first, second = one - one.mean(dtype=np.float64), other - other.mean(dtype=np.float64)
    size = float(np.sqrt((first * first).sum() * (second * second).sum()))
    return float((first * second).sum()) / size if size > 0 else 0.0


def _closeness(item: Kinship) -> float:
    return float(np.mean(item.correlations)) if item.correlations else 0.0


# --- files --------------------------------------------------------------------------------------------------------


def _to_json(entry: Entry) -> dict[str, object]:
    samples = [
        [item.instruction, list(item.shape), b64encode(item.numbers.astype("<f4").tobytes()).decode()]
        for item in entry.samples
    ]
    return {
        "name": entry.name,
        "path": entry.path,
        "instructions": entry.instructions,
        "parameters": entry.parameters,
        "genes": [sorted(item) for item in entry.genes],
        "weights": samples,
    }


def _entry_of(data: object) -> Entry:
    if not isinstance(data, dict):
        raise Malformed("a model is no object")
    genes = tuple(frozenset(map(str, _list(item))) for item in _list(data["genes"]))
    if len(genes) != DEPTHS:
        raise Malformed(f"a model has {len(genes)} generations of genes, not {DEPTHS}")
    samples = tuple(_sample_of(_list(item)) for item in _list(data["weights"]))
    numbers = int(data["instructions"]), int(data["parameters"])
    return Entry(str(data["name"]), str(data["path"]), *numbers, genes, samples)


def _sample_of(data: list[object]) -> Sample:
    number, shape, text = data
    values = np.frombuffer(b64decode(str(text), validate=True), dtype="<f4")
    if values.size != SAMPLES or not isinstance(number, int):
        raise Malformed(f"a weight has {values.size} numbers, not {SAMPLES}")
    return Sample(number, tuple(int(str(item)) for item in _list(shape)), values.astype(np.float32))


def _words_of(data: object) -> dict[str, str]:
    if not isinstance(data, dict):
        raise Malformed("the genes are no object")
    return {str(mark): str(text) for mark, text in data.items()}


def _list(data: object) -> list[object]:
    if not isinstance(data, list):
        raise Malformed("a list is missing")
    return data
