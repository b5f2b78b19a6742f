"""Elements of tensors in formulas, and their guarded indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.limits import DEFAULT
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.rules.lowering import RANK
from lamella.ops.evaluate import packs
from lamella.ops.evaluate.compiler import Compiler, guarded, read, word_in
from lamella.ops.evaluate.elementwise import spread
from lamella.ops.evaluate.lists import Bounds, compile_bounds, compile_items
from lamella.ops.evaluate.names import shape_of
from lamella.ops.evaluate.walk import Node, primitive
from lamella.ops.formula import Element, Guard, Scalar
from lamella.ops.instance import Fill, Repeated
from lamella.ops.problem import Fault
from lamella.ops.scalars.ranges import RANGES, unguard
from lamella.ops.scalars.terms import refuse
from lamella.ops.scalars.values import SCALARS, Code, Scope, expect_known, word_of


def compile_guard(compiler: Compiler, node: nodes.Bounded) -> Code:
    """`|index|` or `|index <> below : above|`."""
    codes = [compiler.compile(part) for part in (node.index, node.below, node.above) if part is not None]

    def _run(scope: Scope) -> object:
        return spread("||", _guard, [code(scope) for code in codes])

    return guarded(_run, node.span)


def _guard(parts: Sequence[object]) -> Guard:
    known = [_integer(part) for part in parts]
    return Guard(known[0], *known[1:]) if len(known) in (1, 3) else Guard(known[0])


def _integer(value: object) -> Scalar:
    if word_of(value) != "int" or not isinstance(value, SCALARS):
        raise refuse("| |", value)
    return value


def compile_access(compiler: Compiler, node: nodes.Access) -> Code:
    """`tensor[i, j..]` or `pack[k][i, j..]`; null for a tensor that is not there."""
    tensor, item = read(node.tensor, node.span), compiler.compile_some(node.item)
    indices = [_compile_position(compiler, part) for part in node.indices]
    name, word = node.tensor, compiler.words.get(node.tensor, "real")
    generic = primitive(word) is None

    def _run(scope: Scope) -> object:
        value = tensor(scope)
        if value is None:
            return None
        kind = word_in(scope.get(word)) if generic else (primitive(word) or word)
        access = _Access(name, kind, value)
        if item is not None:
            return access.pick(item(scope), indices, scope)
        return access.all_items(indices, scope)

    return guarded(_run, node.span)


_Position = Code | Bounds


def _compile_position(compiler: Compiler, node: Node) -> _Position:
    """One written index: a pack of the positions it takes, or a range along its dimension."""
    if isinstance(node, nodes.Range):
        return compile_bounds(compiler, node)
    if isinstance(node, nodes.Expand):
        return compile_items(compiler, node)
    code = compiler.compile(node)
    return lambda scope: None if (value := code(scope)) is None else (value,)


class _Access:
    """One access of a parameter: which tensors it reaches and by which indices."""

    def __init__(self, name: str, word: str, value: object) -> None:
        self.name = name
        self.word = word
        self.value = value

    def pick(self, item: object, indices: Sequence[_Position], scope: Scope) -> object:
        """Elements of one tensor of a pack."""
        if item is None:
            return None
        if isinstance(self.value, tuple):
            if type(item) is int:
                place = packs.position(item, len(self.value))
                return self._elements(self.value[place], place, indices, scope)
            if not self.value:
                raise Fault(RANK, name=self.name, rank=0, count=len(indices))
            return self._elements(self.value[0], item, indices, scope)
        if getattr(self.value, "size", None) is None:
            raise refuse("[]", self.value)
        return self._elements(self.value, item, indices, scope)

    def all_items(self, indices: Sequence[_Position], scope: Scope) -> object:
        """Elements of a tensor, or of all tensors of a pack."""
        if isinstance(self.value, tuple):
            return tuple([self._elements(item, k, indices, scope) for k, item in enumerate(self.value)])
        return self._elements(self.value, None, indices, scope)

    def _elements(self, tensor: object, item: object, indices: Sequence[_Position], scope: Scope) -> object:
        shape = shape_of(tensor)
        found = self._positions(shape, indices, scope)
        if found is None:
            return None
        if len(found) != len(shape):
            raise Fault(RANK, name=self.name, rank=len(shape), count=len(found))
        ranges = scope.get(RANGES)
        if any(isinstance(part, Guard) for part in found) and isinstance(ranges, Mapping):
            found = [unguard(part, extent, ranges) for part, extent in zip(found, shape, strict=True)]
        if not any(isinstance(part, tuple | Repeated) for part in found):
            return self._element(tensor, item, found)
        return spread("[]", lambda row: self._element(tensor, item, row), found)

    def _positions(
        self, shape: tuple[object, ...], indices: Sequence[_Position], scope: Scope
    ) -> list[object] | None:
        """The index of each dimension; one that is a pack makes the access a pack."""
        found: list[object] = []
        for index in indices:
            if isinstance(index, tuple):
                extent = shape[len(found)] if len(found) < len(shape) else 0
                full = tuple(range(min(expect_known(extent, "the extent of ':'"), DEFAULT.max_pack)))
                found.append(
                    packs.pick_range(full, *(None if code is None else code(scope) for code in index))
                )
                continue
            part = index(scope)
            if part is None:
                return None
            if not isinstance(part, tuple):
                raise refuse("[]", part)
            found += part
        return found

    def _element(self, tensor: object, item: object, indices: Sequence[object]) -> object:
        if isinstance(tensor, Fill) and not any(isinstance(part, Guard) for part in indices):
            return tensor.value
        known: list[Scalar | Guard] = []
        for part in indices:
            known.append(part if isinstance(part, Guard) else _integer(part))
        place = None if item is None else _integer(item)
        return Element(self.name, tuple(known), self.word, place)
