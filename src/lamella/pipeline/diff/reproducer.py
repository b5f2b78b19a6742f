"""A divergence alone: the few operations of both sides as two models with the same inputs, and how to compare them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, printable
from lamella.base.dim import symbols
from lamella.base.writer import make_folder, write_text
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.graph.rewrite import FreshNames, Substitution, defined, extent_substitution, rename
from lamella.pipeline.arrays import file_name, write_array
from lamella.pipeline.diff.causes import Cause
from lamella.pipeline.diff.comparison import Comparison, Explained
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.diff.sides import Side
from lamella.pipeline.diff.values import extents_of
from lamella.pipeline.onnx.writing import from_graph, save
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.execution import write_model

LEFT, RIGHT, COMMANDS = "left.sknd", "right.sknd", "commands.txt"
LONGEST = 300
"""Characters of a cause that are written."""
WORD = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Reproducer:
    """Two models of few operations with inputs of the same names, and the numbers of these."""

    left: Side
    right: Side
    inputs: Mapping[str, Array]

    @property
    def operations(self) -> tuple[int, int]:
        """How many operations both have."""
        return len(self.left.model.graph.nodes), len(self.right.model.graph.nodes)


def make_reproducer(found: Comparison, at: Explained, tolerance: float) -> Reproducer:
    """The operations of a divergence, with what they read as inputs: of the left side where both read the same."""
    backs = {other: one for one, other in at.at.borders}
    known = [extents_of(side.model.graph, of) for side, of in zip(found.sides, found.values, strict=True)]
    left, names = _with_plain_names(_with_numbers(at.left.to_model(), known[0]), {})
    given = {backs[other]: names[backs[other]] for other in backs if backs[other] in names}
    right, others = _with_plain_names(
        _with_numbers(at.right.to_model(), known[1]),
        {other: given[backs[other]] for other in backs if backs[other] in given},
    )
    inputs = {names[item.name]: _value(found, 0, item.name) for item in at.left.inputs if item.name in names}
    for item in at.right.inputs:
        mine = backs.get(item.name)
        alike = mine is not None and mine in names and _are_alike(found, mine, item.name, tolerance)
        if item.name in others and not alike:
            fresh = f"{others[item.name]}_right" if others[item.name] in inputs else others[item.name]
            right = replace(right, graph=rename(right.graph, {others[item.name]: fresh}))
            inputs[fresh] = _value(found, 1, item.name)
    one, other = _with_all_inputs(left, right, inputs)
    sides = (replace(found.sides[0], model=one), replace(found.sides[1], model=other))
    return Reproducer(sides[0], sides[1], {name: inputs[name] for name in _names(one.graph)})


def _value(found: Comparison, side: int, name: str) -> Array:
    return np.asarray(found.values[side][name])


def _are_alike(found: Comparison, one: str, other: str, tolerance: float) -> bool:
    """Whether two corresponding tensors can be one input: the same shape, and numbers that agree."""
    pair = next((pair for pair in found.pairs if pair.left == one and pair.right == other), None)
    return (
        pair is not None
        and not pair.layout.axes
        and _value(found, 0, one).shape == _value(found, 1, other).shape
        and pair.agrees(tolerance)
    )


def _with_numbers(model: Model, known: Mapping[str, int]) -> Model:
    """A part of a model with numbers for the extents that none of its inputs tells."""
    shapes = [item.shape for item in listed(model.graph.inputs)]
    told = {symbol.name for shape in shapes for extent in shape for symbol in symbols(extent)}
    change = extent_substitution({name: size for name, size in known.items() if name not in told})
    renewal = Substitution(lambda item: replace(item, shape=tuple(map(change, item.shape))), change)
    return replace(model, graph=renewal.graph(model.graph))


def _with_plain_names(model: Model, given: Mapping[str, str]) -> tuple[Model, dict[str, str]]:
    """A model whose tensors have short plain names; and the names of its inputs."""
    fresh = FreshNames(given.values())
    tensors = list(defined(model.graph))
    names = {item.name: given.get(item.name) or fresh.take(_plain(item.name)) for item in tensors}
    graph = replace(rename(model.graph, names), name="reproducer")
    return replace(model, graph=graph), {item.name: names[item.name] for item in listed(model.graph.inputs)}


def _plain(name: str) -> str:
    found = WORD.sub("_", name).strip("_")[-40:]
    return found if found[:1].isalpha() else f"t{found}"


def _with_all_inputs(left: Model, right: Model, inputs: Mapping[str, Array]) -> tuple[Model, Model]:
    """Both models with the inputs of both, in one order: what one does not read it takes all the same."""
    known = {item.name: item for item in (*listed(right.graph.inputs), *listed(left.graph.inputs))}
    ordered = tuple(known[name] for name in inputs if name in known)
    one, other = (replace(model, graph=replace(model.graph, inputs=ordered)) for model in (left, right))
    return one, other


def _names(graph: Graph) -> list[str]:
    return [item.name for item in listed(graph.inputs)]


def write_reproducer(made: Reproducer, folder: Path, tolerance: float, causes: Sequence[Cause] = ()) -> Path:
    """Write both models, also as ONNX, their inputs and the command that compares them; gives the left model.

    The causes are those that the whole models prove: fewer operations may prove less.
    """
    make_folder(folder)
    notes = [f"# cause: {item.kind}: {printable(item.sentence, LONGEST)}" for item in causes]
    for side, name in ((made.left, LEFT), (made.right, RIGHT)):
        write_model(side.model, folder / name)
        notes += _write_onnx(side.model, folder / Path(name).with_suffix(".onnx"))
    words = [LEFT, RIGHT]
    for name, array in made.inputs.items():
        write_array(folder / f"{file_name(name)}.npy", array)
        words.append(f"--input {name}={file_name(name)}.npy")
    for side in (made.left, made.right):
        words += [f"--backend {side.backend or 'reference'}"]
    if made.left.precision or made.right.precision:
        words += [f"--precision {side.precision or 'f32'}" for side in (made.left, made.right)]
    words.append(f"--tolerance {tolerance:g}")
    write_text(
        folder / COMMANDS, "".join(f"{line}\n" for line in (f"lamella diff {' '.join(words)}", *notes))
    )
    return folder / LEFT


def _write_onnx(model: Model, path: Path) -> list[str]:
    """Write a model as ONNX; where that cannot express it, a line says so."""
    try:
        save(from_graph(model, path, Options()), path)
    except LamellaError as problem:
        return [f"# no {path.name}: {problem.findings[0].message}"]
    return []
