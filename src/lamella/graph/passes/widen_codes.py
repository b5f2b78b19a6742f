"""Codes of 4 bits as integers of 8, and reals of 8 bits as bf16, for languages that have neither: twice the room.

real(q: i4) = real(q: i8)        t[q + 8] = gather(t, int(q) + 8)        real(q: f8e4m3) = real(q: bf16)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from lamella.base.arrays import numpy_dtype
from lamella.base.codes import LOWEST_CODE
from lamella.base.dtype import BF16, F8E4M3, F8E5M2, F32, I4, I8, I64, ElementType
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Node, Operation, Tensor
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library

if TYPE_CHECKING:
    from lamella.base.arrays import Array


Wider: TypeAlias = Mapping[ElementType, ElementType]
REALS: Wider = MappingProxyType({F8E4M3: BF16, F8E5M2: BF16})
"""The type that holds all numbers of one that few languages have."""
WIDER: Wider = MappingProxyType({I4: I8, **REALS})
"""The same of integers too."""


def widen_codes(model: Model, wider: Wider = WIDER) -> Model:
    """The model whose codes have wider types, where casts, tables and rows of them are all that reads them."""
    wide = {
        item.name: replace(item, element=wider[item.element])
        for item in model.graph.variables
        if item.element in wider
    }
    if not wide:
        return model
    elements = {name: item.element for name, item in wide.items()}
    variables = tuple(wide.get(item.name, item) for item in model.graph.variables)
    graph = rewrite(model.graph, _Widening(model.library, wide).visit)
    data = None if model.data is None else _WidenedData(model.data, elements)
    return replace(model, graph=replace(graph, variables=variables), data=data)


class _Widening:
    def __init__(self, library: Library, wide: Mapping[str, Tensor]) -> None:
        self.library = library
        self.wide = dict(wide)

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """What reads codes, for wider ones."""
        if not isinstance(node, Operation) or not node.inputs or not isinstance(node.inputs[0], Tensor):
            return None
        codes, (result, *_) = self.wide.get(node.inputs[0].name), node.outputs
        if codes is None or not isinstance(result, Tensor):
            return None
        if node.operator == "quant.look_up":
            return self._look_up(node, codes, result, walk)
        types = {"R": result.element} if node.operator == "layout.cast" else None
        again = call(
            self.library,
            node.operator,
            (codes, *node.inputs[1:]),
            dict(node.attributes),
            [result.name],
            types,
        )
        (made,) = again.outputs
        if isinstance(made, Tensor) and made.element == codes.element != result.element:
            self.wide[result.name] = made
        return Replacement((replace(again, origin=node.origin),))

    def _look_up(self, node: Operation, codes: Tensor, result: Tensor, walk: RewriteWalk) -> Replacement:
        """A table as a constant, and the places that codes have in it."""
        table = Tensor(walk.fresh(f"{result.name}.numbers"), F32, (16,))
        start = Tensor(walk.fresh(f"{result.name}.start"), I64, ())
        wide, place = (walk.fresh(f"{result.name}.{word}") for word in ("code", "place"))
        made = [call(self.library, "layout.cast", (codes,), {}, [wide], {"R": I64})]
        made.append(call(self.library, "math.add", (_only(made[-1]), start), {}, [place]))
        made.append(call(self.library, "layout.gather", (table, _only(made[-1])), {"axis": 0}, [result.name]))
        numbers = dict(node.attributes)["numbers"]
        if not isinstance(numbers, tuple):
            raise TypeError(numbers)
        constants = Constant(table, numbers), Constant(start, -LOWEST_CODE)
        return Replacement(tuple(replace(item, origin=node.origin) for item in made), constants=constants)


def _only(operation: Operation) -> Tensor:
    (found,) = operation.outputs
    if not isinstance(found, Tensor):
        raise TypeError(found)
    return found


class _WidenedData(Mapping[str, "Array"]):
    """The numbers of variables, codes in wider types, each read when it is asked for."""

    def __init__(self, data: Mapping[str, Array], wide: Mapping[str, ElementType]) -> None:
        self._data = data
        self._wide = wide

    def __getitem__(self, name: str) -> Array:
        found = self._data[name]
        return found.astype(numpy_dtype(self._wide[name])) if name in self._wide else found

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)
