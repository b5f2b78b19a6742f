"""The weights of a block put into the place of another block's: of one motif and of equal sizes, or not at all.

What the two blocks compute decides, not what they are called: their genomes are to be the same. The block of the target
then runs with the weights of the donor beside the donor's own, on the same inputs: so weights that were paired wrongly
and blocks that differ in what a genome does not tell (positions, epsilons, layouts) are found by their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.records import dataclass
from lamella.bridge.nac_to_graph.convert_weights import with_internal
from lamella.genome.sequence import Genome, read_genome
from lamella.graph.blocks import weights_in, words_of
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import operands_of
from lamella.pipeline.api import read
from lamella.pipeline.diff import Comparison, Side, as_graph, compare, divergence_lines, make_sides
from lamella.pipeline.nac.execution import save
from lamella.pipeline.nac.graphs import weights_of
from lamella.pipeline.nac.model import Model as NacModel
from lamella.pipeline.nac.model import is_whole, read_checked
from lamella.pipeline.options import Options

GIVEN = ("input", "tokens")
"""Instructions that only say that something comes in."""
MOST = 8
"""Weights and instructions that a message names."""


@dataclass(frozen=True, slots=True)
class BlockOf:
    """A block of the model of a path."""

    path: Path
    block: str
    model: Model
    part: Model

    def __str__(self) -> str:
        return f"{printable(str(self.path), 120)}:{printable(self.block, 80)}"

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Its weights that have numbers."""
        return tuple(
            item for item in weights_in(self.model.graph, self.block) if item.name in (self.part.data or {})
        )

    def numbers(self, name: str) -> Array:
        """The numbers of a weight."""
        return np.asarray((self.part.data or {})[name])

    def inner(self, name: str) -> tuple[str, ...]:
        """The name of a weight inside of the block."""
        return words_of(name)[len(words_of(self.block)) :]


@dataclass(frozen=True, slots=True)
class Moved:
    """A weight of the target that takes the numbers of one of the donor."""

    source: str
    target: str
    shape: tuple[int, ...]
    is_turned: bool = False
    """Whether rows become columns: the two models store the same product in two ways."""

    @property
    def parameters(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)

    def numbers(self, source: Array, target: Array) -> Array:
        """The numbers of the donor as the target stores them."""
        return np.ascontiguousarray(source.T if self.is_turned else source).astype(target.dtype)


@dataclass(frozen=True, slots=True)
class Transplant:
    """What is moved from a donor into a target, and how far the block then is from what it was in the donor."""

    donor: BlockOf
    target: BlockOf
    motif: tuple[str, ...]
    moved: tuple[Moved, ...]
    kept: tuple[str, ...]
    """Weights of the target's block that the donor's has nothing for."""
    shared: tuple[str, ...]
    """Weights that change although operations outside of the block read them too."""
    difference: float

    @property
    def parameters(self) -> int:
        """How many numbers are moved."""
        return sum(item.parameters for item in self.moved)

    def numbers(self) -> dict[str, Array]:
        """The new numbers of the target, by the names of its variables."""
        return {
            item.target: item.numbers(self.donor.numbers(item.source), self.target.numbers(item.target))
            for item in self.moved
        }


def read_block(text: str, options: Options) -> BlockOf:
    """The block that `PATH:BLOCK` names."""
    path, colon, block = text.rpartition(":")
    if not colon or not path or not words_of(block):
        hint = "write the model, a colon and the path of its weights: model.nac:blocks.0.mlp"
        raise InputError(f"'{printable(text, 120)}' names no block of a model", hint=hint)
    model = as_graph(read(Path(path), options), options)
    if model is None:
        raise InputError("it has no graph, only kernels or a plan", path=path)
    found = BlockOf(Path(path), block, model, model[block])
    if not found.weights:
        hint = "weights come with a checkpoint: a Hugging Face folder, .nac, .onnx, .sknd with its weights"
        raise InputError(f"block '{printable(block, 80)}' has no weights with numbers", path=path, hint=hint)
    return found


def plan_transplant(donor: BlockOf, target: BlockOf, options: Options) -> Transplant:
    """Pair the weights of two blocks and try the result; InputError says with numbers what does not fit."""
    genomes = [read_genome(replace(item.part, data=None)) for item in (donor, target)]
    motifs = [
        tuple(str(item) for item in genome.instructions if item.word not in GIVEN) for genome in genomes
    ]
    if genomes[0] != genomes[1]:
        raise _unlike(donor, target, motifs)
    pairs = dict(_pair(donor, target, genomes))
    outside = _read_outside(target)
    # a table that all blocks read, such as that of positions, has the same numbers in both as a rule
    moved = tuple(
        item
        for item in _moved(donor, target, pairs)
        if item.target not in outside or _changes(donor, target, item)
    )
    kept = tuple(item.name for item in target.weights if item.name not in pairs)
    shared = tuple(item.target for item in moved if item.target in outside)
    made = Transplant(donor, target, motifs[0], moved, kept, shared, 0.0)
    return replace(made, difference=_try(made, options))


def _unlike(donor: BlockOf, target: BlockOf, motifs: Sequence[Sequence[str]]) -> InputError:
    words = [", ".join(item[:MOST]) + (", …" if len(item) > MOST else "") for item in motifs]
    return InputError(
        f"the blocks compute different things: {donor} has {len(motifs[0])} instructions ({words[0]}), "
        f"{target} has {len(motifs[1])} ({words[1]})",
        hint=f"`lamella genome align {donor.path} {target.path}` writes both models side by side",
    )


# --- which weight becomes which -------------------------------------------------------------------------------------


def _pair(donor: BlockOf, target: BlockOf, genomes: Sequence[Genome]) -> Iterator[tuple[str, str]]:
    """Weights of the target with those of the donor: by name inside of the block, else by what reads them."""
    named = {donor.inner(item.name): item.name for item in donor.weights}
    same = {
        item.name: named[target.inner(item.name)]
        for item in target.weights
        if target.inner(item.name) in named
    }
    yield from same.items()
    given, taken = (
        [[name for name in names if name not in used] for names in genome.weights]
        for genome, used in zip(genomes, (set(same.values()), set(same)), strict=True)
    )
    sides = {item.name for item in donor.weights}, {item.name for item in target.weights}
    for ours, theirs in zip(given, taken, strict=True):
        left = [name for name in ours if name in sides[0]]
        right = [name for name in theirs if name in sides[1]]
        if len(left) == len(right):
            yield from zip(right, left, strict=True)


def _moved(donor: BlockOf, target: BlockOf, pairs: Mapping[str, str]) -> Iterator[Moved]:
    wrong = []
    for name, source in pairs.items():
        one, other = donor.numbers(source), target.numbers(name)
        if (one.dtype.kind in "iub") != (other.dtype.kind in "iub"):
            wrong.append(f"{source} is {one.dtype}, {name} {other.dtype}")
        elif one.shape == other.shape or one.shape == other.shape[::-1]:
            yield Moved(source, name, other.shape, one.shape != other.shape)
        else:
            wrong.append(f"{source} is {list(one.shape)}, {name} {list(other.shape)}")
    if wrong or not pairs:
        more = f" and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
        words = f"{printable('; '.join(wrong[:MOST]), 600)}{more}" or "no weight of one is that of the other"
        hint = "only blocks of equal sizes take each other's weights"
        raise InputError(f"{donor} does not fit {target}: {words}", hint=hint)


def _changes(donor: BlockOf, target: BlockOf, item: Moved) -> bool:
    before = target.numbers(item.target)
    return not np.array_equal(item.numbers(donor.numbers(item.source), before), before)


def _read_outside(target: BlockOf) -> set[str]:
    """What operations outside of a block read."""
    inner = {id(node) for node in target.part.graph.nodes}
    outside = (node for node in target.model.graph.nodes if id(node) not in inner)
    return {item.name for node in outside for item in operands_of(node)}


def write_nac(made: Transplant, output: Path, options: Options) -> Path:
    """Write the target, a NAC file, with its new weights: code, tokenizer and plan stay as they are."""
    model = read_checked(made.target.path, options.limits)
    stored = {} if is_whole(model) else dict(weights_of(model, options).tensors)
    file, findings = with_internal(model.file, {**stored, **made.numbers()})
    save(NacModel(made.target.path, file, findings), output, options)
    return output


# --- does it do what it did? ----------------------------------------------------------------------------------------


def _try(made: Transplant, options: Options) -> float:
    """How far the block of the target, with its new weights, is from the donor's, on the same random inputs."""
    part = made.target.part
    renewed = replace(part, data={**(part.data or {}), **made.numbers()})
    chosen = replace(options, random=True)
    found = compare(*make_sides([Side(made.donor.part), Side(renewed)], chosen), chosen)
    if not found.compared:
        raise InputError(f"{made.donor} cannot be run in the place of {made.target}: {found.unlike}")
    largest = max((item.relative for item in found.outputs), default=0.0)
    if largest > options.tolerance:
        raise _other_numbers(made, found, largest)
    return largest


def _other_numbers(made: Transplant, found: Comparison, largest: float) -> InputError:
    first = () if found.diverging is None else tuple(divergence_lines(found.diverging))
    causes = () if found.diverging is None else found.diverging.causes
    why = f"; {causes[0].kind}: {causes[0].sentence}" if causes else ""
    return InputError(
        f"with these weights {made.target} gives other numbers than {made.donor}, "
        f"by {largest:.3g} of the largest{why}",
        hint="; ".join((*first[:1], "--tolerance X takes blocks that differ by less")),
    )
