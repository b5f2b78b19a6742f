"""Products with weights, told by their formulas: which operand is the weight, which of its axes the result has.

output[b, n] += input[b, c] * weight[n, c]      the weight's axis 0 is the result's axis 1
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.binding import bind_operation, signature
from lamella.graph.nodes import Graph, Node, Operation, Tensor, regions, walk
from lamella.graph.rewrite import operands_of, results_of, uses
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Scalar
from lamella.ops.instance import Instance
from lamella.ops.library import Library
from lamella.ops.lower import contractions, reachable


@dataclass(frozen=True, slots=True)
class WeightedProduct:
    """One call that sums products of an activation and a weight."""

    operation: Operation
    activation: int
    """Which input is multiplied with the weight."""
    weight: int
    """Which input is the weight."""
    bias: int | None
    """Which input is added to each channel; None where the operator takes none."""
    channel: int
    """The axis of the result along which the channels lie."""
    rows: int
    """The axis of the weight that it is."""
    kept: tuple[int, ...] = ()
    """The axes of the activation that the result has as they are."""
    grouped: bool = False
    """Whether each channel reads its own part of the activation, as in a grouped convolution."""

    @property
    def result(self) -> Tensor:
        """What the call gives."""
        (output,) = self.operation.outputs
        if not isinstance(output, Tensor):
            raise TypeError(output)
        return output

    def operand(self, number: int | None) -> Tensor | None:
        """An input; None where there is none."""
        found = None if number is None else self.operation.inputs[number]
        return found if isinstance(found, Tensor) else None


class FixedTensors:
    """The tensors of a graph that are the same in every run, as far as a walk has come, and how often all are read."""

    def __init__(self, graph: Graph, library: Library) -> None:
        self._library = library
        updated = {item.variable.name for item in graph.updates}
        self.names = {item.name for item in graph.variables if item.name not in updated}
        self.names |= {item.tensor.name for item in graph.constants}
        self.reads = uses(graph)

    def add(self, node: Node) -> bool:
        """Take note of a node that the walk has come by; whether what it makes is the same in every run."""
        fixed = all(item.name in self.names for item in operands_of(node)) and not self._is_random(node)
        if fixed:
            self.names.update(item.name for item in results_of(node))
        return fixed

    def _is_random(self, node: Node) -> bool:
        inner = (node, *(item for region in regions(node) for item in walk(region.nodes)))
        return any(
            isinstance(item, Operation) and "random" in self._library.traits(item.operator) for item in inner
        )

    def holds(self, item: object) -> bool:
        """Whether a tensor is one."""
        return isinstance(item, Tensor) and item.name in self.names


class KnownProducts:
    """The products of a graph, equal operations looked at once."""

    def __init__(self, library: Library, fixed: FixedTensors) -> None:
        self._library = library
        self._fixed = fixed
        self._known: dict[object, WeightedProduct | None] = {}

    def find(self, operation: Operation) -> WeightedProduct | None:
        """The product that an operation is; None where it is none, or where its weight changes from run to run."""
        if len(operation.outputs) != 1 or not isinstance(operation.outputs[0], Tensor):
            return None
        key = signature(operation), tuple(map(self._fixed.holds, operation.inputs))
        if key not in self._known:
            self._known[key] = find_product(self._library, operation, self._fixed)
        found = self._known[key]
        return None if found is None else replace(found, operation=operation)


FEWEST_USES = 8
"""How often a product reads each element of both factors, where it is worth storing them anew."""


def find_factors(library: Library, operation: Operation) -> tuple[int, int] | None:
    """The two inputs that an operation is the sum of products of, and of nothing else."""
    found = _find_sum(library, operation)
    if found is None:
        return None
    (total, factors), formulas = found
    starts = [item.values[0] for item in formulas if item is not total]
    inputs = [place for place, _ in factors]
    plain = len(_factors(total.values[0])) == len(set(inputs)) == 2
    return (inputs[0], inputs[1]) if plain and all(item == 0 for item in starts) else None


def _find_sum(
    library: Library, operation: Operation
) -> tuple[tuple[Contraction, list[tuple[int, Element]]], tuple[Contraction, ...]] | None:
    """The sum that an operation of one result is, with its factors by the numbers of inputs, and all formulas."""
    try:
        instance = bind_operation(library, operation)
        if instance.definition.operator.kind != "lower" or len(operation.outputs) != 1:
            return None
        formulas = contractions(instance)
    except (Fault, Found):
        return None
    sums = [item for item in formulas if item.sign == "+="]
    if len(sums) != 1 or not _is_started(formulas):
        return None
    names = [name for name, _ in instance.inputs]
    factors = [item for item in _factors(sums[0].values[0]) if item.tensor in names]
    return (sums[0], [(names.index(item.tensor), item) for item in factors]), formulas


def find_free_product(library: Library, operation: Operation, fixed: FixedTensors) -> tuple[int, int] | None:
    """The two inputs of a product that both change from run to run, each element of which it reads often."""
    found = _find_sum(library, operation)
    if found is None:
        return None
    total, placed = found[0]
    inputs, factors = [place for place, _ in placed], [item for _, item in placed]
    if len(set(inputs)) != 2 or any(fixed.holds(operation.inputs[place]) for place in inputs):
        return None
    extents = {loop.index: loop.extent for loop in total.loops}
    for item in factors:
        # What data pick is another element for each step of the loops that they depend on.
        used = {index.name for index in reachable(*item.indices) if isinstance(index, Index)}
        free = [extents[name] for name in extents if name not in used]
        known = [extent for extent in free if isinstance(extent, int)]
        if len(known) < len(free) or prod(known) < FEWEST_USES:
            return None
    return inputs[0], inputs[1]


def find_product(library: Library, operation: Operation, fixed: FixedTensors) -> WeightedProduct | None:
    """The product that an operation of one result is, by its formulas."""
    try:
        instance = bind_operation(library, operation)
        if instance.definition.operator.kind != "lower":
            return None
        formulas = contractions(instance)
    except (Fault, Found):
        return None
    sums = [item for item in formulas if item.sign == "+="]
    if len(sums) != 1 or len(sums[0].targets) != 1 or not _is_started(formulas):
        return None
    return _find(library, operation, instance, sums[0], fixed)


def _is_started(formulas: tuple[Contraction, ...]) -> bool:
    """Whether all but the sum only say what it starts from: zero, or a bias."""
    return all(item.sign in ("+=", "=") for item in formulas) and len(formulas) <= 2


def _find(
    library: Library, operation: Operation, instance: Instance, formula: Contraction, fixed: FixedTensors
) -> WeightedProduct | None:
    names = [name for name, _ in instance.inputs]
    factors = _factors(formula.values[0])
    if len(factors) != 2 or any(item.tensor not in names for item in factors):
        return None  # what an operator says itself, a constant, is no input
    weights = [item for item in factors if fixed.holds(operation.inputs[names.index(item.tensor)])]
    others = [item for item in factors if item not in weights]
    if len(weights) != 1 or len(others) != 1:
        return None
    target, weight, other = formula.targets[0], weights[0], others[0]
    single = {loop.index for loop in formula.loops if loop.extent == 1}
    for channel, place in enumerate(target.indices):
        used = _names_of(place)
        # The channel's index is one of the weight alone, or of its group too, as in a grouped convolution.
        if used and place in weight.indices and place not in other.indices and _is_private(place, target):
            found = WeightedProduct(
                operation,
                names.index(other.tensor),
                names.index(weight.tensor),
                None,
                channel,
                weight.indices.index(place),
                tuple(axis for axis, item in enumerate(other.indices) if item in target.indices),
                any(used & _names_of(item) - single for item in other.indices),
            )
            return replace(found, bias=_find_bias(library, found, names))
    return None


def _is_private(place: Scalar | Guard, target: Element) -> bool:
    """Whether no other axis of the result moves with this index."""
    used = _names_of(place)
    return not any(used & _names_of(item) for item in target.indices if item is not place)


def _names_of(term: object) -> set[str]:
    if isinstance(term, Index):
        return {term.name}
    if isinstance(term, Apply):
        return set().union(*map(_names_of, term.operands))
    return _names_of(term.index) if isinstance(term, Guard) else set()


def _factors(value: Scalar) -> list[Element]:
    if isinstance(value, Apply) and value.function == "*" and len(value.operands) == 2:
        found = [item for item in value.operands if isinstance(item, Element)]
        return found if len(found) == 2 and all(item.item is None for item in found) else []
    return []


def _find_bias(library: Library, product: WeightedProduct, names: list[str]) -> int | None:
    """The input that the sum starts from, one element for each channel; an absent one is tried."""
    result = product.result
    vector = Tensor("bias", result.element, (result.shape[product.channel],))
    for number, item in enumerate(product.operation.inputs):
        if number in (product.activation, product.weight) or (
            item is not None and not isinstance(item, Tensor)
        ):
            continue
        inputs = list(product.operation.inputs)
        inputs[number] = vector
        try:
            formulas = contractions(bind_operation(library, replace(product.operation, inputs=tuple(inputs))))
        except (Fault, Found):
            continue
        if any(_starts_from(formula, names[number], product.channel) for formula in formulas):
            return number
    return None


def _starts_from(formula: Contraction, name: str, channel: int) -> bool:
    value = formula.values[0]
    return (
        formula.sign == "="
        and isinstance(value, Element)
        and value.tensor == name
        and value.indices == (formula.targets[0].indices[channel],)
    )
