"""Nodes of a graph as components of a composition."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field, replace

from lamella.base.dim import Atom, Condition, Dim, DimPart, DimSymbol, Extent, Logic, Monomial, symbols
from lamella.base.dtype import LANGUAGES, ElementType, name_in
from lamella.base.records import dataclass
from lamella.graph.nodes import Argument, Branch, Loop, Node, Operation, Pack, Region, Single, Tensor, Value
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.words import BUILT_INS, KEYWORDS
from lamella.ops.instance import Definition, Repeated, singles
from lamella.ops.library import Library

# --- names as identifiers of the language --------------------------------------------------------------------


IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
LONGEST = 200
"""Names of text have a limit, and those of tensors, which are paths of labels, have none."""
RESERVED = frozenset((*KEYWORDS, *BUILT_INS, *LANGUAGES["skriptnd"], "_", "main"))


def spell(name: str) -> str:
    """An identifier that looks like a name; it may be reserved."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", name[:LONGEST]) or "t"
    return f"_{word}" if word[0].isdigit() else word


# --- values, extents and conditions as expressions of the language ------------------------------------------


_OF_TENSOR = re.compile(r"(?P<tensor>.+)\.(?P<field>shape|size|rank)(\[(?P<axis>\d+)\])?")


def expression(value: Value) -> n.Expr:
    """A value of an attribute or a constant."""
    if isinstance(value, tuple):
        return n.List(tuple(map(_single, value)))
    if isinstance(value, Repeated):
        item, length = singles(value)
        return n.List((n.Expand(_single(item), _single(length)),))
    return n.List(()) if value is None else _single(value)


def _single(value: Single) -> n.Expr:
    if isinstance(value, bool):
        return n.Bool(value)
    if isinstance(value, int):
        return _signed(value < 0, n.Integer(abs(value)))
    if isinstance(value, float):
        return _real(value)
    if isinstance(value, str):
        return n.Text(value.replace("{", "\\{"))
    return extent(value) if isinstance(value, Dim) else condition(value)


def _signed(negative: bool, number: n.Expr) -> n.Expr:
    return n.Unary("-", number) if negative else number


def _real(value: float) -> n.Expr:
    if math.isnan(value):
        return n.Chain(n.Constant("inf"), (("-", n.Constant("inf")),))
    size = n.Constant("inf") if math.isinf(value) else n.Real(abs(value))
    return _signed(math.copysign(1.0, value) < 0, size)


def extent(value: Extent) -> n.Expr:
    """An extent: a sum of products."""
    if isinstance(value, int):
        return _single(value)
    (monomial, factor), *others = value.terms
    first = _product(monomial, factor)
    rest = tuple(("-" if size < 0 else "+", _product(item, abs(size))) for item, size in others)
    return n.Chain(first, rest) if rest else first


def _product(monomial: Monomial, factor: int) -> n.Expr:
    words = [_atom(item) for item in monomial]
    if factor != 1 or not words:
        words.insert(0, _single(factor))
    return n.Chain(words[0], tuple(("*", word) for word in words[1:])) if len(words) > 1 else words[0]


def _atom(atom: Atom) -> n.Expr:
    return _symbol(atom) if isinstance(atom, DimSymbol) else _part(atom)


def _symbol(symbol: DimSymbol) -> n.Expr:
    """A symbol is a name, or the extent of a tensor that it is called after."""
    found = _OF_TENSOR.fullmatch(symbol.name)
    if found is None:
        return n.Name(symbol.name)
    member = n.Member(found["tensor"], found["field"])
    return member if found["axis"] is None else n.Index(member, n.Integer(int(found["axis"])))


def _part(part: DimPart) -> n.Expr:
    left, right = (extent(item) for item in part.operands)
    if part.condition is not None:
        return n.Select(condition(part.condition), left, right)
    return n.Chain(left, ((part.sign, right),))


def condition(value: Condition) -> n.Expr:
    """A condition on extents."""
    if not isinstance(value, Logic):
        return n.Chain(extent(value.left), ((value.sign, extent(value.right)),))
    words = [condition(item) for item in value.operands]
    if value.sign == "!":
        return n.Unary("!", words[0])
    return n.Chain(words[0], tuple((value.sign, word) for word in words[1:]))


def literal(expr: n.Expr) -> Value:
    """The value of a literal; None where an expression is more than that."""
    if isinstance(expr, n.Integer | n.Real | n.Bool | n.Text):
        return expr.value
    if isinstance(expr, n.Constant):
        return math.inf if expr.name == "inf" else math.pi
    if isinstance(expr, n.Unary) and expr.sign == "-":
        value = literal(expr.operand)
        return -value if isinstance(value, int | float) else None
    if isinstance(expr, n.List):
        return _literals(expr)
    return None


def _literals(expr: n.List) -> Value:
    found: list[Single] = []
    for item in expr.items:
        value = None if isinstance(item, n.Range | n.Expand | n.Zip) else literal(item)
        if value is None or isinstance(value, tuple | Repeated):
            return None
        found.append(value)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ComponentWriter:
    """Writes nodes; `words` holds what is not called by its own name: items of packs, what a condition sees."""

    library: Library
    packs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    words: Mapping[str, n.Expr] = field(default_factory=dict)
    operators: Mapping[str, str] = field(default_factory=dict)
    module: str = "main"
    """The module that is written; what it defines is called without the module's name."""

    def components(self, nodes: tuple[Node, ...]) -> tuple[n.Component, ...]:
        """One component for each node."""
        return tuple(map(self.component, nodes))

    def component(self, node: Node) -> n.Component:
        """A node with the names of its results."""
        value: n.Callee | n.Branch | n.Loop
        if isinstance(node, Operation):
            value = self._invocation(node)
        else:
            value = self._branch(node) if isinstance(node, Branch) else self._loop(node)
        return n.Component(tuple(map(self._pattern, node.outputs)), value)

    def name(self, item: Tensor | Pack) -> n.Expr:
        """A tensor, or a pack of unknown length."""
        return self.words.get(item.name) or n.Name(item.name)

    def argument(self, argument: Argument) -> n.Expr | n.Omitted:
        """What a call passes for an input."""
        if argument is None:
            return n.Omitted()
        if not isinstance(argument, tuple):
            return self.name(argument)
        whole = self._whole(argument)
        return n.List(tuple(map(self.name, argument))) if whole is None else n.Name(whole)

    def _whole(self, argument: tuple[Tensor, ...]) -> str | None:
        """The name of the pack that these tensors are."""
        base = argument[0].name.rpartition(":")[0] if argument else ""
        return base if self.packs.get(base) == tuple(item.name for item in argument) else None

    def _pattern(self, argument: Argument) -> n.Pattern:
        if argument is None or argument == ():
            return n.Omitted()
        if isinstance(argument, Pack):
            return n.Result(argument.name, pack=_length(argument))
        if isinstance(argument, Tensor):
            return n.Result(argument.name)
        whole = self._whole(argument)
        if whole is not None:
            return n.Result(whole, pack=n.Pack(n.Integer(len(argument))))
        return n.ListPattern(tuple(n.Result(item.name) for item in argument))

    def _invocation(self, node: Operation) -> n.Invocation:
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        definition = self.library.find(node.operator)
        return n.Invocation(
            self._operator(node.operator),
            _types(node, definition),
            attributes(node.attributes, definition),
            tuple(map(self.argument, inputs)),
        )

    def _operator(self, name: str) -> str:
        found = self.operators.get(name, name)
        module, _, short = found.rpartition(".")
        return short if module == self.module else found

    def quantization(self, tensor: Tensor) -> n.Quantization | None:
        """The entry of a tensor in `@quantize`."""
        found = tensor.quantization
        if found is None or IDENTIFIER.fullmatch(tensor.name) is None:
            # An item of a pack has no name of its own in the text; what its codes stand for, operations say again.
            return None
        given = attributes(found.attributes, self.library.find(found.operator))
        return n.Quantization(tensor.name, self._operator(found.operator), attributes=given)

    def _region(self, region: Region) -> n.Callee:
        results = tuple(map(self.name, region.outputs))
        if not region.nodes and len(results) == 1:
            return results[0]
        return n.Block(self.components(region.nodes), results)

    def _branch(self, node: Branch) -> n.Branch:
        *branches, otherwise = map(self._region, node.branches)
        conditions = map(self._region, node.conditions)
        return n.Branch(tuple(zip(conditions, branches, strict=True)), otherwise)

    def _loop(self, node: Loop) -> n.Loop:
        carried, scans = len(node.carried), len(node.scans)
        inputs = node.body.inputs
        condition = None if node.condition is None else self._condition(node, node.condition)
        return n.Loop(
            self._region(node.body),
            tuple(
                n.Carried(item.name, self.name(start))
                for item, start in zip(inputs, node.carried, strict=False)
            ),
            tuple(
                n.Scan(item.name, self.expression(pack))
                for item, pack in zip(inputs[carried:], node.scans, strict=False)
            ),
            before=condition if node.pretest else None,
            after=None if node.pretest else condition,
            iteration=self._iteration(node, inputs[carried + scans].name if node.index else None),
        )

    def expression(self, pack: tuple[Tensor, ...] | Pack) -> n.Expr:
        """A pack where an expression must stand."""
        value = self.argument(pack)
        return n.List(()) if isinstance(value, n.Omitted) else value

    def _iteration(self, node: Loop, index: str | None) -> n.Iteration | None:
        if node.count is None:
            return None if index is None else n.Iteration(index)
        value = self.name(node.count) if isinstance(node.count, Tensor) else extent(node.count)
        return n.Iteration(index, value)

    def _condition(self, node: Loop, region: Region) -> n.Callee:
        """The condition sees the same tensors as the body, under the same names."""
        words = {inner.name: n.Name(outer.name) for inner, outer in condition_inputs(node)}
        return replace(self, words={**self.words, **words})._region(region)


def _length(pack: Pack) -> n.Pack | None:
    """The length of a pack, which must be written; a loop alone tells what it has collected."""
    own = any(symbol.name == f"{pack.name}.size" for symbol in symbols(pack.size))
    return None if own else n.Pack(extent(pack.size))


def condition_inputs(node: Loop) -> list[tuple[Tensor, Tensor]]:
    """The inputs of a loop's condition, each with the input of the body that it equals."""
    return [] if node.condition is None else list(zip(node.condition.inputs, node.body.inputs, strict=True))


def type_word(element: ElementType) -> str:
    """An element type as the language spells it."""
    return name_in("skriptnd", element) or element.name


def _types(node: Operation, definition: Definition | None) -> tuple[str, ...]:
    """The generic types up to the last one that the inputs do not tell."""
    inferred: set[str] = set()
    if definition is not None:
        parameters = definition.operator.parameters("input")
        inferred = {item.type.name for item, value in zip(parameters, node.inputs, strict=False) if value}
    missing = [index for index, (name, _) in enumerate(node.types) if name not in inferred]
    return tuple(type_word(element) for _, element in node.types[: max(missing, default=-1) + 1])


def attributes(
    values: tuple[tuple[str, Value], ...], definition: Definition | None
) -> tuple[n.Attribute, ...]:
    """The attributes that say more than their defaults."""
    defaults: dict[str, Value] = {}
    if definition is not None:
        declared = definition.operator.parameters("attrib")
        defaults = {item.name: literal(item.value) for item in declared if item.value is not None}
    return tuple(
        n.Attribute(name, expression(value))
        for name, value in values
        if value is not None and not _is_default(value, defaults.get(name))
    )


def _is_default(value: Value, default: Value) -> bool:
    """Whether a value is what its default says, which may be one value for a whole pack; -0.0 is not 0.0."""
    if isinstance(value, tuple) and not isinstance(default, tuple):
        return default is not None and all(repr(item) == repr(default) for item in value)
    return default is not None and repr(value) == repr(default)
