"""Where adapters go: products with weights, and the parts of a weight that a checkpoint calls by names of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from lamella.base.diagnostic import LamellaError, errors, printable
from lamella.base.errors import InputError
from lamella.bridge.module_to_graph import graph_name
from lamella.bridge.module_to_hf import ExportMapping, OutgoingTensor, plan_export
from lamella.graph.nodes import Graph, Node, Operation, Tensor
from lamella.graph.rewrite import members, operands_of, producers
from lamella.lang.module.instantiate import Instance
from lamella.pipeline.module.weight_plan import context_of, weights_of
from lamella.train.adapters.specs import DEFAULT_TARGETS, LORA, AdapterSpec

PROJECTION = "_proj"
"""What the names of projections end with in most checkpoints: `q` means `q_proj`."""
WEIGHT = ".weight"
TRANSPOSED = "transpose"
ADDITIONS = ("llm.bias_add", "math.add", "aten.add")
POSITIONED = "llm.embedding_with_position"
EMBEDDINGS = ("llm.embedding", POSITIONED, "aten.embedding")
ROUNDING = (
    "layout.cast",
    "llm.quantize",
    "llm.dequantize",
    "math.div",
    "math.mul",
    "math.iden",
    "aten.reshape",
)
"""Operators by which recipes round the operands and results of products."""
TURN = "layout.transpose"
MAGNITUDE = "math.abs"
"""What the scale of a rounding begins with."""
GROUPED = "moe.grouped_gemm"
EXPERT = re.compile(r"(.+\.experts)\.\d+\.([^.]+)\.weight")
"""The name of a matrix of one expert in a checkpoint."""
MATRICES = ("gate_up_proj", "down_proj")
"""What the package transformers calls the matrices of all experts together."""
LAST = ("w2", "down_proj")
"""What checkpoints call the last product of an expert."""
EXPERTS = "moe."
"""What operators on groups of tokens are called by."""
HEAD = ("lm_head", "embed_out", "score", "classifier")
"""Products that rate tokens: never adapted, nor narrow, unless they are named."""


@dataclass(frozen=True, slots=True)
class Product:
    """An operation that multiplies with a weight."""

    node: Operation
    given: Tensor
    """What is multiplied."""
    weight: Tensor
    result: Tensor
    bias: Tensor | None
    is_turned: bool
    """Whether the weight is stored with its inputs first."""
    offsets: Tensor | None = None
    """Where the rows of each expert begin, of a product with a matrix for each of them."""

    @property
    def width(self) -> int:
        """Numbers that go in."""
        return _extent(self.weight, -2 if self.is_turned else -1)

    @property
    def rows(self) -> int:
        """Numbers that come out."""
        return _extent(self.weight, -1 if self.is_turned else -2)

    @property
    def experts(self) -> int:
        """How many matrices the weight has; 0 where it is one that all rows are multiplied with."""
        return 0 if self.offsets is None else _extent(self.weight, 0)


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """Rows of a weight that one adapter adds to, and what the checkpoint calls them."""

    product: Product
    module: str
    """The name of the module in a checkpoint, such as `model.layers.0.self_attn.q_proj`."""
    first: int
    last: int
    spec: AdapterSpec
    is_stored_turned: bool = False
    """Whether the checkpoint stores the weight with its inputs first."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.last - self.first

    @property
    def is_whole(self) -> bool:
        """Whether they are all rows of the weight."""
        return self.rows == self.product.rows

    @property
    def word(self) -> str:
        """The last part of its name."""
        return self.module.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class WeightRows:
    """Rows of a weight, by the name of a checkpoint."""

    module: str
    first: int
    last: int
    is_turned: bool = False


def _extent(tensor: Tensor, axis: int) -> int:
    found = tensor.shape[axis]
    return found if isinstance(found, int) else 0


def find_products(graph: Graph) -> dict[str, Product]:
    """The products of a graph whose weights nothing else reads, by the names of the weights.

    A weight may be rounded or turned on its way to the product.
    """
    variables = {item.name: item for item in graph.variables}
    makers = producers(graph)
    readers: dict[str, list[Operation]] = {}
    for operation in graph.operations():
        for item in members(operation.inputs):
            readers.setdefault(item.name, []).append(operation)
    found: dict[str, list[Product]] = {}
    for node in graph.nodes:
        product = _product(node) if isinstance(node, Operation) else None
        if product is None:
            continue
        name = unrounded(product.weight.name, makers)
        turned = _turned(makers.get(name))
        if turned is not None and [*readers.get(name, ())] == [node]:
            name = unrounded(turned, makers)
            shape = product.weight.shape[::-1]
            product = replace(product, is_turned=not product.is_turned)
        else:
            shape = product.weight.shape
        weight = variables.get(name)
        if weight is not None and weight.shape == shape:
            found.setdefault(weight.name, []).append(replace(product, weight=weight))
    return {
        name: items[0]
        for name, items in found.items()
        if len(items) == 1
        and all(
            node is items[0].node or node.operator in (*ROUNDING, MAGNITUDE, TURN) for node in readers[name]
        )
    }


def _turned(node: Node | None) -> str | None:
    """The matrix that an operation turns around; None where it does something else."""
    if not isinstance(node, Operation) or node.operator != TURN:
        return None
    first = node.inputs[0]
    is_turn = isinstance(first, Tensor) and dict(node.attributes).get("perm") == (1, 0)
    return first.name if is_turn and isinstance(first, Tensor) else None


def unrounded(name: str, makers: Mapping[str, Node]) -> str:
    """The tensor that one is, but for roundings to narrow types and views on the way."""
    while isinstance(node := makers.get(name), Operation) and node.operator in ROUNDING:
        first = node.inputs[0]
        if not isinstance(first, Tensor):
            break
        name = first.name
    return name


def _product(node: Operation) -> Product | None:
    """The product that an operation is; None for any other."""
    attributes = dict(node.attributes)
    if node.operator == "llm.matmul":
        turned = {"NT": False, "NN": True}.get(str(attributes.get("transpose")))
        plain = attributes.get("alpha") == 1.0 and node.inputs[2:] in ((), (None,))
    elif node.operator == "linalg.matmul":
        turned = attributes.get("transB") is not True
        plain = attributes.get("transA") is not True
    else:
        turned, plain = False, node.operator in ("nn.linear", "aten.linear")
    given, weight, *rest = (*node.inputs, None, None)[:3]
    bias = rest[0] if rest else None
    if node.operator == GROUPED:
        return _grouped(node)
    if not plain or turned is None or not isinstance(given, Tensor) or not isinstance(weight, Tensor):
        return None
    (result, *_) = node.outputs
    fits = len(weight.shape) == 2 and all(isinstance(item, int) for item in weight.shape) and given.shape
    if not fits or not isinstance(result, Tensor) or not (bias is None or isinstance(bias, Tensor)):
        return None
    return Product(node, given, weight, result, bias, turned)


def _grouped(node: Operation) -> Product | None:
    """The product with the matrices of experts that an operation is."""
    given, weight, offsets = node.inputs
    (result,) = node.outputs
    parts = [item for item in (given, weight, offsets, result) if isinstance(item, Tensor)]
    if len(parts) < len(node.inputs) + 1 or not all(isinstance(size, int) for size in parts[1].shape):
        return None
    is_turned = dict(node.attributes).get("transpose") == "NN"
    return Product(node, parts[0], parts[1], parts[3], None, is_turned, parts[2])


# --- names of checkpoints -------------------------------------------------------------------------------------


def checkpoint_parts(instance: Instance | None) -> dict[str, list[WeightRows]]:
    """The parts of weights that a checkpoint has as tensors of their own, by the names of variables."""
    if instance is None or instance.module.hf_mapping is None:
        return {}
    module = instance.module
    mapped = ExportMapping(
        weights_of(instance), module.hf_mapping or (), module.hf_export or (), context_of(instance)
    )
    plan = plan_export(mapped, dict.fromkeys(item.path for item in mapped.weights))
    if errors(plan.findings):
        raise LamellaError(errors(plan.findings))
    found: dict[str, list[WeightRows]] = {}
    stacked: dict[str, list[OutgoingTensor]] = {}
    for item in plan.tensors:
        part = _part(item)
        if part is not None and item.weight is not None:
            found.setdefault(graph_name(item.weight.path), []).append(part)
        elif item.weight is not None and len(item.weight.shape) == 3:
            stacked.setdefault(graph_name(item.weight.path), []).append(item)
    for name, items in stacked.items():
        stack = _stack_name(items)
        if stack:
            found[name] = [WeightRows(stack, 0, 0)]
    return found


def _stack_name(items: Sequence[OutgoingTensor]) -> str:
    """What PEFT calls the matrices of all experts, by their names in a checkpoint; empty where it has none."""
    if len(items) == 1 and ".experts." in items[0].name:
        return items[0].name.removesuffix(WEIGHT)
    matches = [match for item in items if (match := EXPERT.fullmatch(item.name)) is not None]
    owners, words = ({match[group] for match in matches} for group in (1, 2))
    if len(matches) != len(items) or len(owners) != 1:
        return ""
    (owner,) = owners
    word = MATRICES[0] if len(words) > 1 else words.pop()
    # Mixtral's blocks have another name in files than in the models that are made of them.
    return f"{owner.replace('.block_sparse_moe.', '.mlp.')}.{MATRICES[1] if word in LAST else word}"


def _part(item: OutgoingTensor) -> WeightRows | None:
    """The rows of a weight that a tensor is; None where it is no such thing."""
    if item.weight is None or item.function not in ("", TRANSPOSED) or not item.name.endswith(WEIGHT):
        return None
    shape = item.weight.shape
    if len(shape) != 2:
        return None
    # One number for each row, seen as a matrix: what the steps pick of it are the rows of the tensor.
    rows = np.broadcast_to(np.arange(shape[0])[:, None], shape)
    for step in item.steps:
        rows = rows[step]
    if rows.ndim != 2 or rows.shape[1] != shape[1] or not rows.size:
        return None
    numbers = rows[:, 0]
    if not np.array_equal(numbers, np.arange(numbers[0], numbers[0] + len(numbers))):
        return None
    module = item.name.removesuffix(WEIGHT)
    return WeightRows(module, int(numbers[0]), int(numbers[-1]) + 1, item.function == TRANSPOSED)


def find_experts(graph: Graph) -> list[Tensor]:
    """The weights that have a matrix for each expert: their products are computed in groups."""
    read = {
        item.name
        for node in graph.operations()
        if node.operator.startswith(EXPERTS)
        for item in operands_of(node)
    }
    return [item for item in graph.variables if item.name in read and len(item.shape) == 3]


def find_places(
    products: Mapping[str, Product],
    parts: Mapping[str, Sequence[WeightRows]],
    spec: AdapterSpec,
    has_experts: bool = False,
) -> list[AdapterRows]:
    """The places that an adapter names; InputError for a name that is none."""
    every = [
        AdapterRows(
            product, part.module, part.first, part.last or product.rows, spec.of(part.module), part.is_turned
        )
        for name, product in products.items()
        if not product.experts or spec.kind == LORA
        for part in parts.get(name) or [WeightRows(name.removesuffix(WEIGHT), 0, product.rows)]
    ]
    if not spec.targets:
        plain = [item for item in every if not item.product.experts]
        usual = [item for item in plain if _matches(item, DEFAULT_TARGETS[spec.kind])]
        return usual or [item for item in plain if not _matches(item, HEAD)]
    for word in spec.targets:
        if not any(_matches(item, (word,)) for item in every):
            known = ", ".join(sorted({item.word for item in every})[:20])
            hint = f"products with weights are: {known}"
            if has_experts and spec.kind != LORA:
                hint += "; experts, which are computed in groups, take lora alone"
            raise InputError(f"there is no weight '{printable(word, 60)}' to adapt", hint=hint)
    return [item for item in every if _matches(item, spec.targets)]


def _matches(place: AdapterRows, words: Sequence[str]) -> bool:
    names = [place.word, place.word.removesuffix(PROJECTION), place.module, place.product.weight.name]
    names += ["experts"] if place.product.experts else []
    return any(fnmatchcase(name, word) for name in names for word in words)


def is_head(product: Product, parts: Mapping[str, Sequence[WeightRows]]) -> bool:
    """Whether a product rates tokens."""
    names = [item.module for item in parts.get(product.weight.name, ())] or [product.weight.name]
    return any(name.rpartition(".")[2] in HEAD for name in names)


def find_biased(graph: Graph) -> dict[str, tuple[Tensor, Tensor]]:
    """For results that are read once, by the addition of a bias: the sum and the bias, by the names of the results."""
    variables = {item.name for item in graph.variables}
    readers: dict[str, list[Operation]] = {}
    for node in graph.operations():
        for item in node.inputs:
            if isinstance(item, Tensor):
                readers.setdefault(item.name, []).append(node)
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for name, nodes in readers.items():
        if len(nodes) == 1 and nodes[0].operator in ADDITIONS and isinstance(nodes[0].outputs[0], Tensor):
            others = [item for item in nodes[0].inputs if isinstance(item, Tensor) and item.name != name]
            if len(others) == 1 and others[0].name in variables and len(others[0].shape) == 1:
                found[name] = nodes[0].outputs[0], others[0]
    return found


def embeddings(graph: Graph) -> Iterator[Operation]:
    """The operations that look tokens up in a table."""
    inputs = {item.name for item in graph.inputs if isinstance(item, Tensor)}
    for node in graph.nodes:
        if isinstance(node, Operation) and node.operator in EMBEDDINGS:
            names = {item.name for item in node.inputs if isinstance(item, Tensor)}
            if names & inputs:
                yield node


def attentions(graph: Graph) -> Iterator[Operation]:
    """The operations in which tokens see each other."""
    return (
        node for node in graph.nodes if isinstance(node, Operation) and node.operator == "llm.flash_attention"
    )
