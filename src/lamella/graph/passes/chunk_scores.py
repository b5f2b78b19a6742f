"""Scores in chunks: the loss of a language model without the scores of all its tokens.

    s = x wᵀ,  l = cross_entropy(s, t),  ds = cross_entropy_backward(g, s, t),  dx = ds w,  dw = dsᵀ x
      =  l, dx, dw = linear_cross_entropy_gradients{chunk=n}(g, x, w, t)

where nobody else reads scores or their gradients, extents are known, and there are many of them; without a way back it
is `linear_cross_entropy`. Types that both are rounded to on the way are that of the operator. A chunk goes back before
the scores of the next one are made: what is alive at once are those of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from lamella.base.dtype import F32, ElementType
from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Node, Operation, Tensor
from lamella.graph.rewrite import members, operands_of, results_of

CHUNK = 2048
"""Rows of a chunk: the products that go back to fewer would be fewer tiles than a GPU has multiprocessors."""
LEAST_BYTES = 1 << 26
"""Bytes of all scores below which they may be there at once."""
PRODUCT, BACK = "llm.matmul", "llm.matmul_backward"
LOSS, LOSS_BACK = "llm.cross_entropy", "llm.cross_entropy_backward"
SAME = ("layout.cast", "optim.cast", "math.iden")
"""Operators that give the same numbers, in another type perhaps."""
AFTER = "misc.after"


def chunk_scores(model: Model, rows: int | None = None, least: int | None = None) -> Model:
    """The model whose losses never have the scores of more rows than that, where scores take so many bytes."""
    rows, least = rows or CHUNK, LEAST_BYTES if least is None else least
    found = _Scores(model.graph)
    for loss in [node for node in found.operations if node.operator == LOSS]:
        chain = found.chain(loss)
        if chain is None or not chain.pays(rows, least):
            continue
        try:
            graph = _rewritten(model, chain, rows)
        except Found:
            continue
        return chunk_scores(replace(model, graph=graph), rows, least)
    return model


def has_losses(graph: Graph) -> bool:
    """Whether a graph has losses of scores at all."""
    return any(isinstance(node, Operation) and node.operator == LOSS for node in graph.nodes)


@dataclass(frozen=True, slots=True)
class _Chain:
    """A product whose results are scores, its loss, and the way back."""

    loss: Operation
    product: Operation
    back: Operation | None
    """The gradient of the loss, where there is one."""
    back_product: Operation | None
    inside: frozenset[str]
    """Tensors that nobody reads any more."""
    narrow: ElementType

    def pays(self, rows: int, least: int) -> bool:
        """Whether scores are many, and of more rows than a chunk has."""
        (scores,) = self.product.outputs
        shape = scores.shape if isinstance(scores, Tensor) else ()
        extents = [item for item in shape if isinstance(item, int)]
        known = len(extents) == len(shape) > 1
        return known and prod(extents[:-1]) > rows and 4 * prod(extents) >= least


class _Scores:
    """The losses of a graph with what makes and reads them."""

    def __init__(self, graph: Graph) -> None:
        self.operations = [node for node in graph.nodes if isinstance(node, Operation)]
        self.makers = {item.name: node for node in self.operations for item in results_of(node)}
        self.readers: dict[str, list[Operation]] = {}
        self.kept = {item.name for item in members(graph.outputs)}
        self.kept |= {item.value.name for item in graph.updates}
        for node in graph.nodes:
            for item in operands_of(node):
                if isinstance(node, Operation):
                    self.readers.setdefault(item.name, []).append(node)
                else:
                    self.kept.add(item.name)

    def chain(self, loss: Operation) -> _Chain | None:
        """What is computed in chunks; None where somebody else wants scores."""
        product = self._maker(loss.inputs[0])
        attributes = dict(loss.attributes)
        if product is None or product.operator != PRODUCT or attributes["reduction"] not in ("mean", "sum"):
            return None
        if _attributes(product) != {"transpose": "NT", "alpha": 1.0} or product.inputs[2] is not None:
            return None
        (scores,) = results_of(product)
        ahead = self._spread(scores.name)
        if ahead is None:
            return None
        inside, ends = ahead
        ends = [node for node in ends if node is not loss]
        types = self._types(inside)
        if not ends:
            return _Chain(loss, product, None, None, inside, *types) if len(types) == 1 else None
        back = ends[0]
        alike = back.operator == LOSS_BACK and back.attributes == loss.attributes
        if len(ends) != 1 or not alike or back.inputs[2] != loss.inputs[1] or back.inputs[1] is None:
            return None
        (gradient,) = results_of(back)
        behind = self._spread(gradient.name)
        if behind is None or len(behind[1]) != 1 or len(types) != 1:
            return None
        (last,) = behind[1]
        other = self._types(behind[0])
        if last.operator != BACK or _attributes(last) != _attributes(product) or other != types:
            return None
        same = [self._origin(item) for item in last.inputs[1:3]] == list(product.inputs[:2])
        scalar = isinstance(back.inputs[0], Tensor) and not back.inputs[0].shape
        return _Chain(loss, product, back, last, inside | behind[0], *types) if same and scalar else None

    def _maker(self, tensor: Argument) -> Operation | None:
        """What makes a tensor, but for changes of its type."""
        node = self.makers.get(tensor.name) if isinstance(tensor, Tensor) else None
        while node is not None and node.operator in SAME:
            source = node.inputs[0]
            node = self.makers.get(source.name) if isinstance(source, Tensor) else None
        return node

    def _origin(self, tensor: Argument) -> Argument:
        """A tensor that may have waited for another one."""
        node = self.makers.get(tensor.name) if isinstance(tensor, Tensor) else None
        return node.inputs[0] if node is not None and node.operator == AFTER else tensor

    def _spread(self, name: str) -> tuple[frozenset[str], list[Operation]] | None:
        """A tensor and its copies in other types, and who reads them but who only waits; None where they are kept."""
        inside, ends, waiting = set[str](), list[Operation](), [name]
        while waiting:
            here = waiting.pop()
            if here in self.kept:
                return None
            inside.add(here)
            for node in self.readers.get(here, ()):
                waits = node.operator == AFTER and node.inputs[0] != self._tensor(here)
                if node.operator in SAME:
                    waiting += [item.name for item in results_of(node)]
                elif not waits and not any(node is item for item in ends):
                    ends.append(node)
        return frozenset(inside), ends

    def _tensor(self, name: str) -> Tensor | None:
        found = [item for item in results_of(self.makers[name]) if item.name == name]
        return found[0] if found and isinstance(found[0], Tensor) else None

    def _types(self, names: frozenset[str]) -> list[ElementType]:
        """The one type that tensors are rounded to; several where there is no such."""
        found = {item.element for name in names if (item := self._tensor(name)) is not None}
        return sorted(found - {F32}, key=str) or [F32]


def _attributes(product: Operation) -> dict[str, object]:
    """How a product turns its factors, and what it multiplies them with."""
    return {name: value for name, value in product.attributes if name in ("transpose", "alpha")}


def _rewritten(model: Model, chain: _Chain, rows: int) -> Graph:
    """The graph with one operation for all of a chain."""
    x, weight = chain.product.inputs[:2]
    labels = chain.loss.inputs[1]
    attributes = {**dict(chain.loss.attributes), "chunk": rows}
    names = [item.name for item in results_of(chain.loss)]
    given: tuple[Argument, ...] = (x, weight, labels)
    operator = "llm.linear_cross_entropy"
    if chain.back is not None and chain.back_product is not None:
        operator, given = f"{operator}_gradients", (chain.back.inputs[0], *given)
        names += [item.name for item in results_of(chain.back_product)]
    made = call(model.library, operator, given, attributes, names, {"S": chain.narrow})
    made = replace(made, origin=chain.loss.origin)
    gone = {
        id(item) for item in (chain.loss, chain.product, chain.back, chain.back_product) if item is not None
    }
    nodes: list[Node] = []
    for node in model.graph.nodes:
        if node is (chain.back or chain.loss):
            nodes.append(made)
        elif id(node) not in gone and not (
            isinstance(node, Operation)
            and node.operator in SAME
            and all(item.name in chain.inside for item in results_of(node))
        ):
            nodes.append(_waiting_for(node, chain, made))
    return replace(model.graph, nodes=tuple(_ordered(nodes)))


def _waiting_for(node: Node, chain: _Chain, made: Operation) -> Node:
    """What waits for scores or their gradients waits for what is made of them."""
    if not isinstance(node, Operation) or node.operator != AFTER or not isinstance(node.inputs[1], Tensor):
        return node
    last = made.outputs[1] if len(made.outputs) > 1 else made.outputs[0]
    if node.inputs[1].name not in chain.inside or not isinstance(last, Tensor):
        return node
    types = tuple((name, last.element if name == "U" else kind) for name, kind in node.types)
    return replace(node, inputs=(node.inputs[0], last), types=types)


def _ordered(nodes: Sequence[Node]) -> Iterator[Node]:
    """Nodes in their order, each behind those that it reads."""
    made = {item.name for node in nodes for item in results_of(node)}
    waiting: list[Node] = []
    for node in nodes:
        waiting.append(node)
        while (ready := next((item for item in waiting if not made & _read(item)), None)) is not None:
            waiting.remove(ready)
            made -= {item.name for item in results_of(ready)}
            yield ready
    if waiting:
        raise Found


def _read(node: Node) -> set[str]:
    return {item.name for item in operands_of(node)}
