"""Two models of any graph language, compared: what `lamella diff` tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.dim import Extent, bounds
from lamella.base.errors import InputError
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Operation, Tensor, tensors
from lamella.pipeline.arrays import file_name, write_array
from lamella.pipeline.comparing.aligning import Alignment, align, count_operators, results
from lamella.pipeline.comparing.numbers import Apart, Diverging, apart, find_diverging, values_of
from lamella.pipeline.languages import execution_of, language_of
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.writing import write_model

TOLERANCE = 1e-5
"""How far results may lie apart, in parts of the largest number."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two models have in common and what not; numbers only where both take the same inputs."""

    interface: tuple[str, ...]
    weights: tuple[Apart, ...]
    alignment: Alignment
    outputs: tuple[Apart, ...] = ()
    diverging: Diverging | None = None
    compared: bool = False

    def is_equal(self, tolerance: float) -> bool:
        """Whether nothing differs but numbers within a tolerance."""
        code = self.alignment.left or self.alignment.right or self.interface
        return not code and self.agrees(tolerance)

    def agrees(self, tolerance: float) -> bool:
        """Whether the outputs are the same within a tolerance."""
        return self.compared and all(item.relative <= tolerance for item in self.outputs)


def load_graph(path: Path, options: Options) -> Model:
    """The graph of a file in any language that has one, with the extents that the user gives."""
    execution = execution_of(language_of(path, options.language))
    model = execution.load(path, options)
    if model.language == "nac":
        model = execution.lower(model, "sknd", options)
    if not isinstance(model, Model):
        raise InputError(f"a file of {model.language} is no graph", hint="compare .sknd, .nac or .pt2")
    return model


def compare(left: Model, right: Model, options: Options, tolerance: float = TOLERANCE) -> Comparison:
    """The differences of two models, and of their numbers on the same random inputs."""
    interface = tuple(_compare_interfaces(left.graph, right.graph))
    weights = tuple(_compare_weights(left, right))
    alignment = align(left.graph, right.graph)
    found = Comparison(interface, weights, alignment)
    if not _same_ends(left.graph, right.graph):
        return found
    one, other = (
        values_of(model, _wanted(model.graph, [pair[side] for pair in alignment.pairs]), options)
        for side, model in enumerate((left, right))
    )
    outputs = tuple(apart(name, one[name], other[name]) for name in _names(left.graph.outputs))
    diverging = find_diverging(alignment, one, other, tolerance)
    return replace(found, outputs=outputs, diverging=diverging, compared=True)


def _wanted(graph: Graph, operations: list[Operation]) -> list[Tensor]:
    found = [item for argument in graph.outputs for item in tensors(argument)]
    found += [item for operation in operations for item in results(operation)]
    return list({item.name: item for item in found}.values())


def _names(arguments: tuple[Argument, ...]) -> list[str]:
    return [item.name for argument in arguments for item in tensors(argument)]


def _same_ends(left: Graph, right: Graph) -> bool:
    """Whether two graphs can be run on the same inputs and give the same outputs."""
    return left.inputs == right.inputs and _names(left.outputs) == _names(right.outputs)


def _compare_interfaces(left: Graph, right: Graph) -> Iterator[str]:
    for what in ("inputs", "outputs", "variables"):
        one, other = (_types(getattr(graph, what)) for graph in (left, right))
        for name in one | other:
            if one.get(name) != other.get(name):
                sides = (one.get(name, "absent"), other.get(name, "absent"))
                yield f"{what[:-1]} {printable(name)}: {sides[0]} | {sides[1]}"


def _types(arguments: tuple[Argument, ...]) -> dict[str, str]:
    return {
        item.name: f"{item.element}[{', '.join(map(_extent, item.shape))}]"
        for argument in arguments
        for item in tensors(argument)
    }


def _extent(extent: Extent) -> str:
    """An extent with its range where it is open: two of one name may differ in that alone."""
    low, high = bounds(extent)
    return str(extent) if low == high else f"{extent} of {low} to {high}"


def _compare_weights(left: Model, right: Model) -> Iterator[Apart]:
    """Variables of both models whose numbers differ."""
    one, other = left.data or {}, right.data or {}
    for name in one:
        if name in other:
            gap = apart(name, one[name], other[name])
            if gap.largest:
                yield gap


def comparison_lines(found: Comparison) -> Iterator[str]:
    """A comparison as people read it; the first model is the left one."""
    yield from (f"{line}" for line in found.interface)
    for item in found.weights:
        yield f"weights {printable(item.name)}: max abs {item.largest:.3g}, of numbers up to {item.scale:.3g}"
    sides = found.alignment
    yield f"operations: {len(sides.pairs)} in both, {len(sides.left)} only left, {len(sides.right)} only right"
    for word, operations in (("left", sides.left), ("right", sides.right)):
        if operations:
            yield f"  only {word}: {printable(count_operators(operations), 200)}"
    if not found.compared:
        yield "numbers: not compared, because inputs or outputs differ; --shape gives open extents one size"
    for item in found.outputs:
        yield f"output {printable(item.name)}: max abs {item.largest:.3g}, of numbers up to {item.scale:.3g}"
    if found.diverging is not None:
        yield from _diverging_lines(found.diverging)


def _diverging_lines(found: Diverging) -> Iterator[str]:
    gap, left = found.apart, found.left
    yield f"first diverging operation: {left.operator} -> {printable(gap.name)}: max abs {gap.largest:.3g}"
    for side, operation in (("left", left), ("right", found.right)):
        if operation.origin is not None:
            yield from (f"  {side} from {word}" for word in operation.origin.words())


def comparison_to_json(found: Comparison) -> dict[str, object]:
    """A comparison as data."""
    sides, first = found.alignment, found.diverging
    return {
        "interface": list(found.interface),
        "weights": [_to_json(item) for item in found.weights],
        "operations": {"both": len(sides.pairs), "left": len(sides.left), "right": len(sides.right)},
        "outputs": [_to_json(item) for item in found.outputs],
        "compared": found.compared,
        "first_diverging": None
        if first is None
        else {"operator": first.left.operator, **_to_json(first.apart)},
    }


def _to_json(item: Apart) -> dict[str, object]:
    largest = item.largest if item.largest < float("inf") else None
    return {"name": item.name, "max_abs": largest, "scale": item.scale}


def write_reproducer(model: Model, found: Diverging, folder: Path, options: Options) -> Path:
    """The diverging operation of the left model alone: a SkriptND model and one .npy for each of its inputs."""
    read = {item.name: item for argument in found.left.inputs for item in tensors(argument)}
    constants = tuple(item for item in model.graph.constants if item.tensor.name in read)
    fixed = {item.tensor.name for item in constants}
    inputs = tuple(item for name, item in read.items() if name not in fixed)
    graph = Graph("reproducer", inputs, found.left.outputs, (found.left,), constants=constants)
    values: Mapping[str, Array] = values_of(model, inputs, options)
    write_model(Model(graph, model.library), folder / "reproducer.sknd")
    for item in inputs:
        write_array(folder / f"{file_name(item.name)}.npy", values[item.name])
    return folder / "reproducer.sknd"
