"""What the tensors of a model hold in one run: on the reference, or on a backend that is to be judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from lamella.backend.executor.extents import Extents
from lamella.backend.executor.run import make_constant
from lamella.backend.formula.storage import Storage, known_single
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.dim import Dim, Logic, Test
from lamella.base.errors import InputError
from lamella.base.suggest import list_known
from lamella.graph.binding import describes_quantization
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Graph, Tensor
from lamella.graph.rewrite import copy_of
from lamella.ops.fault import Fault
from lamella.pipeline.backends import make_executable
from lamella.pipeline.comparison_options import REALS
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.diff.sides import REFERENCE, Side
from lamella.pipeline.languages import SKRIPTND
from lamella.pipeline.options import Options

MACHINE = "nacvm"
MARK = "value of "
CORNERS = (np.nan, np.inf, -np.inf, 1e-40, -1e-40, -0.0, 0.0, 3e38, -3e38, 1e-45)
"""Numbers that operations treat in ways of their own: NaN, infinities, denormals, zeros, the largest."""
SHARE = 12
"""One of so many numbers of an input is a corner."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The inputs of both sides that are fed alike, and the results that are compared, each pair by their tensors."""

    inputs: tuple[tuple[Tensor, Tensor], ...]
    outputs: tuple[tuple[Tensor, Tensor], ...]
    unlike: str = ""
    """Why there is nothing to run on both; empty where there is."""


def match_ends(left: Graph, right: Graph) -> Ends:
    """Inputs and outputs by name where both sides have the same names, else by place; new states by variable."""
    found = []
    for what in ("inputs", "outputs"):
        one, other = listed(getattr(left, what)), listed(getattr(right, what))
        if len(one) != len(other):
            return Ends((), (), f"there are {len(one)} {what} and {len(other)}")
        named = {item.name: item for item in other}
        if named.keys() == {item.name for item in one}:
            other = [named[item.name] for item in one]
        pairs = tuple(zip(one, other, strict=True))
        wrong = next((pair for pair in pairs if pair[0].shape != pair[1].shape), None)
        if wrong is not None:
            shapes = " and ".join(f"'{printable(item.name)}' {list(map(str, item.shape))}" for item in wrong)
            return Ends((), (), f"the types of {what} differ: {shapes}")
        found.append(pairs)
    return Ends(found[0], (*found[1], *_states(left, right)))


def _states(left: Graph, right: Graph) -> list[tuple[Tensor, Tensor]]:
    """What states become, where both sides keep a state of one name."""
    other = {item.variable.name: item.value for item in right.updates}
    return [
        (item.value, other[item.variable.name])
        for item in left.updates
        if item.variable.name in other and item.value.shape == other[item.variable.name].shape
    ]


def draw_inputs(
    left: Model, ends: Ends, options: Options, given: Mapping[str, Array] | None = None
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The inputs of both sides: given ones, others drawn for the left model, with corners where they are asked for."""
    given = dict(given or {})
    known = {item.name for pair in ends.inputs for item in pair}
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        names = [printable(pair[0].name) for pair in ends.inputs]
        hint = list_known(unknown, names, "inputs are:")
        raise InputError(f"there is no input '{printable(unknown)}'", hint=hint)
    drawn = compile_model(left, seed=options.start_seed, limits=options.limits).draw_inputs()
    found: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
    for mine, theirs in ends.inputs:
        value = given.get(mine.name, given.get(theirs.name))
        if value is None:
            value = drawn[mine.name]
            if options.corners:
                value = with_corners(value, options.start_seed)
        found[0][mine.name] = value
        found[1][theirs.name] = value
    return found


def with_corners(array: Array, seed: int) -> Array:
    """An array of real numbers with some that are no ordinary ones, in places that the seed says."""
    if array.dtype.kind not in "fV" or not array.size:
        return array
    random = np.random.default_rng(seed)
    found = np.array(array)
    count = max(1, min(array.size // SHARE, 4 * len(CORNERS)))
    places = random.choice(array.size, size=count, replace=False)
    chosen = random.permutation(np.resize(np.asarray(CORNERS), count))
    with np.errstate(over="ignore", under="ignore"):
        found.reshape(-1)[places] = chosen.astype(found.dtype)
    return found


def values_of(
    side: Side, wanted: Iterable[Tensor], options: Options, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """What some tensors of a model hold in a run on its backend: all of them are outputs of that run."""
    if side.observed is not None:
        return {item.name: side.observed[item.name] for item in wanted if item.name in side.observed}
    found = run_side(side, observed_model(side.model, wanted), options, inputs)
    return observed_values(found)


def observed_model(model: Model, wanted: Iterable[Tensor]) -> Model:
    """The model whose outputs are copies of some of its tensors, wherever these are made; it changes no state."""
    pairs = [(item, replace(item, name=f"{MARK}{item.name}", quantization=None)) for item in wanted]
    nodes = (*model.graph.nodes, *(copy_of(*pair) for pair in pairs))
    outputs = tuple(copy for _, copy in pairs)
    return replace(model, graph=replace(model.graph, nodes=nodes, outputs=outputs, updates=()))


def observed_values(found: Mapping[str, Array]) -> dict[str, Array]:
    """What a run of an observed model gave, by the names of the tensors that were looked at."""
    return {name.removeprefix(MARK): array for name, array in found.items()}


def constant_values(graph: Graph, options: Options, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of the constants whose extents and contents are known in a run on these inputs."""
    storage = Storage(False, options.limits.max_total_bytes)
    extents = extents_of(graph, inputs)
    known = (item for item in graph.constants if _is_known(item, extents))
    return {item.tensor.name: make_constant(item, storage, extents) for item in known}


def extents_of(graph: Graph, inputs: Mapping[str, Array]) -> Extents:
    """The open extents of a graph, as its inputs tell them."""
    found = Extents()
    for item in listed(graph.inputs):
        if item.name in inputs:
            with suppress(Fault):  # what does not fit is said by the run itself
                found.bind(item.name, item.shape, inputs[item.name].shape)
    return found


def _is_known(constant: Constant, extents: Extents) -> bool:
    """Whether nothing in a constant is left to what the run computes."""
    content = constant.value if isinstance(constant.value, tuple) else (constant.value,)
    parts = (known_single(item, extents) for item in (*constant.tensor.shape, *content))
    return not any(isinstance(item, Dim | Test | Logic) for item in parts)


def results_of_side(side: Side, options: Options, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs and the new states of a model as it is, nothing else being looked at."""
    if side.observed is not None:
        return dict(side.observed)
    graph = side.model.graph
    states = [item.value for item in graph.updates]
    if not states:
        return run_side(side, side.model, options, inputs)
    return values_of(side, [*listed(graph.outputs), *states], options, inputs)


def run_side(side: Side, model: Model, options: Options, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What a model gives on the backend and in the precision of a side."""
    chosen = replace(options, shape={}, types={}, weights=None, random=True)  # what loading has honoured
    if side.precision is not None:
        is_real = side.precision in REALS
        chosen = (
            replace(chosen, dtype=side.precision) if is_real else replace(chosen, precision=side.precision)
        )
    if chosen.quantized and not describes_quantization(model.graph):
        chosen = replace(chosen, quantized=False)  # its codes are operations, or it has none
    machine = side.backend == MACHINE
    form = SKRIPTND.lower(model, "nac", chosen) if machine else model
    return make_executable(form, side.backend or REFERENCE, chosen)(**inputs)
