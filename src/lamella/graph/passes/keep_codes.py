"""Weights that are stored as codes stay codes in the graph: what makes numbers of them stands before each reader.

    x · wᵀ = x · (real(q) * s)ᵀ                       q: i4 or i8, with a scale for each group along the sum
    x · wᵀ = x · (real(q) * s)ᵀ + sums(x) · oᵀ        with an offset for each group: sums(x) are those of its groups
    x · wᵀ = x · (t[q] * s)ᵀ                          q: i4, which says what of a table is meant
    w[i]   = real(q[i]) * s[i] + o[i]                 rows of a table

All of it is operations of the library, so that every backend computes the numbers of the stored model; kernels of
products take the chain in, and read codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lamella.base.codes import CodeForm
from lamella.base.dtype import F32, ElementType
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor, Value, walk
from lamella.graph.rewrite import Replacement, RewriteWalk, members, rewrite, uses
from lamella.ops.library import Library

PRODUCT, TABLE = "llm.matmul", "llm.embedding"
WEIGHT = 1
"""The input of either operator that is the weight."""
CODES, SCALES, OFFSETS = ".codes", ".scales", ".offsets"
"""What the names of the variables have behind that of the weight."""


def keep_codes(model: Model, forms: Mapping[str, CodeForm]) -> tuple[Model, frozenset[str]]:
    """The model with codes for those weights that products and tables alone read, and which those are.

    `forms` says by the name of its variable how a weight is stored.
    """
    kept = _kept(model, forms)
    if not kept:
        return model, frozenset()
    keeping = _Keeping(model, {item.name: _parts(item, forms[item.name]) for item in kept})
    graph = rewrite(model.graph, keeping.visit)
    variables = [
        part
        for item in graph.variables
        for part in (keeping.parts[item.name].tensors() if item.name in keeping.parts else (item,))
    ]
    return replace(model, graph=replace(graph, variables=tuple(variables))), frozenset(keeping.parts)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The variables that a weight becomes."""

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None
    numbers: tuple[float, ...]
    """What the codes stand for, where that is not themselves."""

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.codes, self.scales, *((self.offsets,) if self.offsets is not None else ()))


def _parts(weight: Tensor, form: CodeForm) -> _Parts:
    rows, width = weight.shape
    count = int(width) // form.group if isinstance(width, int) else 1
    offsets = Tensor(f"{weight.name}{OFFSETS}", F32, (rows, count)) if form.has_offsets else None
    codes = Tensor(f"{weight.name}{CODES}", form.element, (rows, count, form.group))
    return _Parts(codes, Tensor(f"{weight.name}{SCALES}", F32, (rows, count, 1)), offsets, form.numbers)


def _kept(model: Model, forms: Mapping[str, CodeForm]) -> list[Tensor]:
    """The weights that nothing reads but what can read codes."""
    reads = uses(model.graph)
    fit: dict[str, int] = {}
    for node in walk(model.graph.nodes):
        found = _weight_of(node)
        if found is not None:
            fit[found.name] = fit.get(found.name, 0) + 1
    return [
        item
        for item in model.graph.variables
        if item.name in forms
        and item.element == F32
        and fit.get(item.name, 0) == reads.get(item.name)
        and len(item.shape) == 2
    ]


def _weight_of(node: Node) -> Tensor | None:
    """The weight that an operation reads in a way that codes have too."""
    if not isinstance(node, Operation) or node.operator not in (PRODUCT, TABLE):
        return None
    given = dict(node.attributes)
    is_plain = node.operator == TABLE or (
        given["transpose"] == "NT" and given["alpha"] == 1.0 and node.inputs[2:] in ((), (None,))
    )
    if not is_plain:
        return None
    weight, activation = node.inputs[WEIGHT], node.inputs[0]
    plain = isinstance(weight, Tensor) and isinstance(activation, Tensor) and weight.name != activation.name
    return weight if plain and isinstance(weight, Tensor) else None


class _Keeping:
    def __init__(self, model: Model, parts: Mapping[str, _Parts]) -> None:
        self.library: Library = model.library
        self.parts = parts
        self.sums: dict[tuple[str, int, tuple[int, ...]], Tensor] = {}
        """The sums of groups of each activation: a tensor, the size of groups, the path of its region."""
        self.made: list[Operation] = []

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """A product or a table that reads codes."""
        weight = _weight_of(node)
        if weight is None or weight.name not in self.parts or not isinstance(node, Operation):
            return None
        self.made = []
        parts = self.parts[weight.name]
        self._table(node, parts, weight, walk) if node.operator == TABLE else self._product(
            node, parts, weight, walk
        )
        nodes = tuple(replace(item, origin=item.origin or node.origin) for item in self.made)
        return Replacement(nodes)

    def _product(self, node: Operation, parts: _Parts, weight: Tensor, walk: RewriteWalk) -> None:
        decoded = self._decode((parts.codes, parts.scales), parts.numbers, weight.name, walk)
        numbers = self._call(
            "layout.reshape", (decoded,), walk.fresh(f"{weight.name}.numbers"), {"shape": weight.shape}
        )
        (result,) = members(node.outputs)
        if parts.offsets is None:
            self.made.append(replace(node, inputs=(node.inputs[0], numbers, *node.inputs[2:])))
            return
        attributes = dict(node.attributes)
        product = self._call(
            PRODUCT, (node.inputs[0], numbers, None), walk.fresh(f"{result.name}.codes"), attributes
        )
        sums = self._sums(node.inputs[0], parts, walk)
        more = self._call(
            PRODUCT, (sums, parts.offsets, None), walk.fresh(f"{result.name}.offsets"), attributes
        )
        self._call("math.add", (product, more), result.name)

    def _sums(self, activation: Argument, parts: _Parts, walk: RewriteWalk) -> Tensor:
        """The sums of an activation over the elements that share an offset."""
        if not isinstance(activation, Tensor):
            raise TypeError(activation)
        _, count, group = parts.codes.shape
        key = activation.name, int(group) if isinstance(group, int) else 0, walk.path
        if key not in self.sums:
            name, last = activation.name, len(activation.shape) - 1
            cut: dict[str, Value] = {"axis": last, "rank": 1, "shape": (count, group)}
            groups = self._call("layout.reshape", (activation,), walk.fresh(f"{name}.groups"), cut)
            over: dict[str, Value] = {"axes": (last + 1,), "squeeze": True}
            self.sums[key] = self._call("math.sum_reduce", (groups,), walk.fresh(f"{name}.sums"), over)
        return self.sums[key]

    def _table(self, node: Operation, parts: _Parts, weight: Tensor, walk: RewriteWalk) -> None:
        index, (result,) = node.inputs[0], members(node.outputs)
        if not isinstance(index, Tensor) or not isinstance(result, Tensor):
            raise TypeError(index)
        rows = [
            self._call("layout.gather", (item, index), walk.fresh(f"{item.name}.rows"), {"axis": 0})
            for item in parts.tensors()
        ]
        decoded = self._decode((rows[0], rows[1]), parts.numbers, weight.name, walk)
        if parts.offsets is not None:
            wide = {"axes": (len(index.shape) + 1,)}
            offsets = self._call(
                "layout.unsqueeze", (rows[2],), walk.fresh(f"{weight.name}.offsets.rows"), wide
            )
            decoded = self._call("math.add", (decoded, offsets), walk.fresh(f"{weight.name}.moved"))
        self._call("layout.flatten", (decoded,), result.name, {"axis": len(index.shape), "rank": 2})

    def _decode(
        self, parts: tuple[Tensor, Tensor], numbers: tuple[float, ...], name: str, walk: RewriteWalk
    ) -> Tensor:
        (codes, scales), real_name = parts, walk.fresh(f"{name}.real")
        if numbers:
            real = self._call("quant.look_up", (codes,), real_name, {"numbers": numbers})
        else:
            real = self._call("layout.cast", (codes,), real_name, types={"R": F32})
        return self._call("math.mul", (real, scales), walk.fresh(f"{name}.decoded"))

    def _call(
        self,
        operator: str,
        inputs: tuple[Argument, ...],
        name: str,
        attributes: Mapping[str, Value] | None = None,
        types: Mapping[str, ElementType] | None = None,
    ) -> Tensor:
        self.made.append(call(self.library, operator, inputs, attributes or {}, [name], types))
        (found,) = self.made[-1].outputs
        if not isinstance(found, Tensor):
            raise TypeError(found)
        return found
