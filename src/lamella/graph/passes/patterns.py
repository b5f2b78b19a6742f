"""Rewrite patterns: equations as text, and the one driver that applies them to operations.

    f(f(x)) = x                              if involution(f)
    math.select(True, x, y) = broadcast(x)
    aten.zeros_like(_) = aten.zeros(size=shape)

On the left, names with a dot are operators, or others that only call them (`aten.where` is `math.select`); other names
in front of brackets stand for any operator, and the same name for the same one. Behind them stand tensors by name,
tensors all of whose elements are a number or a truth value, `None` for an input that is left out, `_` for any, `[x]`
for a pack of one tensor, and `name=value` for an attribute all of whose items have that value. The two inputs of a
commutative operator match in either order.

On the right stands a tensor of the left, something that was computed on the left already, a new operation, a function
of `BUILDERS`, `[x]` for a pack of one result, or several of these for several results. Nothing is rewritten unless type
and shape stay the same.

Conditions are traits of operators (`identity(f, e)`: the elements of `e` are what the declaration says), and the
predicates that a table brings along.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from lamella.base.dim import Extent, TooComplex, mul
from lamella.base.dtype import ElementType
from lamella.base.records import dataclass
from lamella.graph.nodes import Argument, Constant, Node, Operation, Shape, Single, Tensor, Value, tensors
from lamella.graph.rewrite import Replacement, RewriteWalk, Visit, members
from lamella.ops.library import Library
from lamella.ops.traits import DERIVED, KNOWN, PLACING, Trait

ATEN = "aten."
_LONGEST_CHAIN = 4
"""Operations that may stand between a tensor and the one value that it is full of."""
_ALGEBRAIC = frozenset(("identity", "absorbing", "idempotent", "involution", "even", "monomial"))
"""Traits that hold while attributes other than those that place operands are left out."""


@dataclass(frozen=True, slots=True)
class EquationTerm:
    """A term of an equation: what it is by its `kind`, its name or value, and the terms inside."""

    kind: str
    """`tensor`, `value`, `absent`, `any`, `single`, `call`, or on the right `several`."""
    name: str = ""
    value: bool | int = 0
    terms: tuple[EquationTerm, ...] = ()
    attributes: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True, slots=True)
class EquationCondition:
    """A trait or a predicate, with the names that it is asked about."""

    name: str
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """An equation: what may stand for the left side where the conditions hold."""

    text: str
    left: EquationTerm
    right: EquationTerm
    conditions: tuple[EquationCondition, ...]


Bindings: TypeAlias = Mapping[object, Tensor | Operation | Constant]
"""Tensors by the names and terms that they match, operations by the names in front of brackets."""


@dataclass(frozen=True, slots=True)
class Match:
    """An operation that a left side matches, with what its names stand for."""

    library: Library
    walk: RewriteWalk
    node: Operation
    bound: dict[object, Tensor | Operation | Constant] = field(default_factory=dict)

    def tensor(self, name: str) -> Tensor | None:
        """The tensor that a name stands for."""
        found = self.bound.get(name)
        return found if isinstance(found, Tensor) else None

    def operation(self, name: str) -> Operation:
        """The outermost operation that a name stands for."""
        found = self.bound[name]
        assert isinstance(found, Operation)
        return found

    def uniform(self, tensor: Argument) -> Single | None:
        """The one value of a tensor that is known and the same everywhere."""
        return uniform(self.library, self.walk, tensor)


Predicate: TypeAlias = Callable[[Match, tuple[str, ...]], bool]
"""Whether a condition holds for the names it is asked about; it may give a name of the right side its value."""
Built: TypeAlias = Tensor | Operation | Constant | None
Builder: TypeAlias = Callable[[Match, Tensor], Built]


# --- equations from text --------------------------------------------------------------------------------------


def identities(table: str) -> tuple[Identity, ...]:
    """The equations of a table, one in each line; what follows `#` is a comment."""
    lines = (line.partition("#")[0].strip() for line in table.splitlines())
    return tuple(map(_identity, filter(None, lines)))


def _identity(text: str) -> Identity:
    equation, _, conditions = text.partition(" if ")
    left, right = (_pattern(ast.parse(side.strip(), mode="eval").body) for side in equation.split(" = "))
    found = [ast.parse(item.strip(), mode="eval").body for item in conditions.split(" and ") if item.strip()]
    asked = tuple(
        EquationCondition(item.name, tuple(term.name for term in item.terms)) for item in map(_pattern, found)
    )
    return Identity(" ".join(text.split()), left, right, asked)


def _pattern(node: ast.expr) -> EquationTerm:
    match node:
        case ast.Name(id="_"):
            return EquationTerm("any")
        case ast.Name(id=name):
            return EquationTerm("tensor", name)
        case ast.Constant(value=None):
            return EquationTerm("absent")
        case ast.Constant(value=int(value)):
            return EquationTerm("value", value=value)
        case ast.List(elts=[inner]):
            return EquationTerm("single", terms=(_pattern(inner),))
        case ast.Tuple(elts=items):
            return EquationTerm("several", terms=tuple(map(_pattern, items)))
        case ast.Call(func=head, args=args, keywords=keywords):
            attributes = tuple((str(item.arg), _attribute(item.value)) for item in keywords)
            return EquationTerm("call", ast.unparse(head), 0, tuple(map(_pattern, args)), attributes)
    raise ValueError(f"'{ast.unparse(node)}' is no term of an equation")


def _attribute(node: ast.expr) -> int | str:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return name
    raise ValueError(f"'{ast.unparse(node)}' is no value of an attribute")


# --- the driver -------------------------------------------------------------------------------------------------


def rewriting(
    library: Library,
    table: Sequence[Identity],
    predicates: Mapping[str, Predicate] = MappingProxyType({}),
    of_values: frozenset[str] = frozenset(),
) -> Visit:
    """The visit of a pass that applies to each operation the first equation of a table that fits.

    The predicates `of_values` hold of nothing unless an operand is full of zeros or an attribute is 0.
    """
    return _Driver(library, table, predicates, of_values | {"identity", "absorbing"}).visit


class _Candidate(NamedTuple):
    """An equation that an operator may fit, and what else it needs: an inner operation, an operand of known value."""

    identity: Identity
    inner: str
    of_values: bool


class _Driver:
    """Tries the equations whose left side can match an operator; which these are is found out once for each."""

    def __init__(
        self,
        library: Library,
        table: Sequence[Identity],
        predicates: Mapping[str, Predicate],
        of_values: frozenset[str],
    ) -> None:
        self.library = library
        self.table = table
        self.predicates = predicates
        self._of_values = of_values
        self._fitting: dict[str, tuple[_Candidate, ...]] = {}
        self._inner: dict[tuple[str, str], bool] = {}
        self._filling: dict[str, bool] = {}
        self._numbers: dict[str, tuple[int, ...]] = {}

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """What takes the place of an operation."""
        if not isinstance(node, Operation):
            return None
        if node.operator not in self._fitting:
            self._fitting[node.operator] = tuple(self._candidates(node.operator))
        candidates = self._fitting[node.operator]
        if not candidates:
            return None
        makers = [maker.operator for item in node.inputs if (maker := walk.maker(item)) is not None]
        known: bool | None = None
        # Most operations fail here: no operand is the result of what an inner term could match, nor has one value.
        for identity, inner, of_values in candidates:
            if inner and not any(self._may_be_inner(identity, inner, item) for item in makers):
                continue
            if of_values:
                known = self._may_have_value(node, walk, makers) if known is None else known
                if not known:
                    continue
            change = self._apply(identity, node, walk)
            if change is not None:
                return change
        return None

    def _candidates(self, operator: str) -> Iterator[_Candidate]:
        for item in self.table:
            if _may_match(self.library, item, item.left.name, operator):
                inner = _inner_head(item)
                # Of an inner operation the conditions may ask too, and its operands are not looked at.
                asks = not inner and any(part.name in self._of_values for part in item.conditions)
                yield _Candidate(item, inner, asks or any(term.kind == "value" for term in item.left.terms))

    def _may_have_value(self, node: Operation, walk: RewriteWalk, makers: Sequence[str]) -> bool:
        """Whether an operand is full of a number that conditions ask for, or an attribute, like a weight, is 0."""
        if any(value == 0 for _, value in node.attributes):
            return True
        named = [item for item in members(node.inputs) if item.name in walk.constants]
        operands = members(node.inputs) if any(map(self._fills, makers)) else named
        special = self._special(node.operator)
        return any(uniform(self.library, walk, item) in special for item in operands)

    def _special(self, operator: str) -> tuple[int, ...]:
        """The numbers that conditions and terms ask for: those that an operator declares, zero and the truth values."""
        if operator not in self._numbers:
            traits = self.library.traits(operator)
            declared = [traits[name] for name in ("identity", "absorbing") if name in traits]
            self._numbers[operator] = (0, 1, *(int(text) for item in declared for text in item.values))
        return self._numbers[operator]

    def _fills(self, operator: str) -> bool:
        if operator not in self._filling:
            traits = self.library.traits(operator)
            self._filling[operator] = "fill" in traits or "spread" in traits
        return self._filling[operator]

    def _may_be_inner(self, identity: Identity, head: str, operator: str) -> bool:
        key = (identity.text, operator)
        if key not in self._inner:
            self._inner[key] = _may_match(self.library, identity, head, operator)
        return self._inner[key]

    def _apply(self, identity: Identity, node: Operation, walk: RewriteWalk) -> Replacement | None:
        for bound in _match_call(self.library, walk, identity.left, node, {}):
            match = Match(self.library, walk, node, dict(bound))
            if all(self._holds(item, match) for item in identity.conditions):
                change = _change(identity, match)
                if change is not None and walk.is_sound(node, change):
                    return change
        return None

    def _holds(self, condition: EquationCondition, match: Match) -> bool:
        predicate = self.predicates.get(condition.name)
        if predicate is not None:
            return predicate(match, condition.about)
        return _has_trait(match, condition)


def _inner_head(identity: Identity) -> str:
    """The name in front of an operation inside the left side, of which there is at most one."""
    return next((item.name for item in identity.left.terms if item.kind == "call"), "")


def _may_match(library: Library, identity: Identity, head: str, operator: str) -> bool:
    """Whether an operator is the one that a name of the left side means, or has the traits that it must have."""
    if "." in head:
        return library.traits(operator).root == head
    asked = [item for item in identity.conditions if item.about[:1] == (head,) and is_trait(item.name)]
    return all(item.name in library.traits(operator) for item in asked)


def is_trait(name: str) -> bool:
    """Whether a condition asks for a trait."""
    return name in KNOWN or name in DERIVED


def _has_trait(match: Match, condition: EquationCondition) -> bool:
    operation = match.operation(condition.about[0])
    trait = trait_of(match.library, operation, condition.name)
    if trait is None:
        return False
    values = (match.uniform(match.tensor(name)) for name in condition.about[1:])
    return all(is_number(value, int(number)) for value, number in zip(values, trait.values, strict=False))


def trait_of(library: Library, operation: Operation, name: str) -> Trait | None:
    """A trait of an operator, where it holds for the types and attributes of a call."""
    traits = library.traits(operation.operator)
    if name not in traits:
        return None
    trait = traits[name]
    if trait.kind:
        first = next((item.element for item in members(operation.inputs)), None)
        if first is None or not _is_of(first, trait.kind):
            return None
    return None if name in _ALGEBRAIC and not is_plain(operation, placed=True) else trait


def _is_of(element: ElementType, kind: str) -> bool:
    if kind == "bool":
        return not element.is_float and not element.is_integer
    return element.is_integer if kind == "int" else element.is_float


def is_plain(operation: Operation, placed: bool = False) -> bool:
    """Whether all attributes are left out; those that place operands may be there where `placed` allows it."""
    return all(value is None or (placed and name.endswith(PLACING)) for name, value in operation.attributes)


# --- matching ---------------------------------------------------------------------------------------------------


def _match_call(
    library: Library, walk: RewriteWalk, pattern: EquationTerm, operation: Operation, bound: Bindings
) -> Iterator[Bindings]:
    """The ways in which an operation matches a term."""
    traits = library.traits(operation.operator)
    inputs = operation.inputs
    if "." in pattern.name:
        if traits.root != pattern.name:
            return
        inputs = inputs if traits.order is None else tuple(inputs[number] for number in traits.order)
    earlier = bound.get(pattern.name)
    if isinstance(earlier, Operation) and earlier.operator != operation.operator:
        return
    if len(inputs) != len(pattern.terms) or not _has_attributes(operation, pattern):
        return
    # The first binding of a name stays: `f` of `f(f(x))` means the outer operation.
    start = {pattern.name: operation, **bound}
    yield from _match_all(library, walk, pattern.terms, inputs, start)
    if len(inputs) == 2 and trait_of(library, operation, "commutative") is not None:
        yield from _match_all(library, walk, pattern.terms, inputs[::-1], start)


def _has_attributes(operation: Operation, pattern: EquationTerm) -> bool:
    attributes = dict(operation.attributes)
    for name, value in pattern.attributes:
        actual = attributes.get(name)
        items = actual if isinstance(actual, tuple) else (actual,)
        if any(item != value for item in items):
            return False
    return True


def _match_all(
    library: Library,
    walk: RewriteWalk,
    patterns: Sequence[EquationTerm],
    inputs: Sequence[Argument],
    bound: Bindings,
) -> Iterator[Bindings]:
    if not patterns:
        yield bound
        return
    if all(item.kind == "tensor" for item in patterns):
        yield from _match_tensors(patterns, inputs, bound)
        return
    for found in _match(library, walk, patterns[0], inputs[0], bound):
        yield from _match_all(library, walk, patterns[1:], inputs[1:], found)


def _match_tensors(
    patterns: Sequence[EquationTerm], inputs: Sequence[Argument], bound: Bindings
) -> Iterator[Bindings]:
    """The one way in which names alone match, the most frequent case."""
    found = dict(bound)
    for pattern, argument in zip(patterns, inputs, strict=True):
        earlier = found.get(pattern.name)
        if not isinstance(argument, Tensor) or (
            isinstance(earlier, Tensor) and earlier.name != argument.name
        ):
            return
        found[pattern.name] = argument
    yield found


def _match(
    library: Library, walk: RewriteWalk, pattern: EquationTerm, argument: Argument, bound: Bindings
) -> Iterator[Bindings]:
    """The ways in which an argument matches a term."""
    match pattern.kind:
        case "any":
            yield bound
        case "absent" if argument is None:
            yield bound
        case "single" if isinstance(argument, tuple) and len(argument) == 1:
            yield from _match(library, walk, pattern.terms[0], argument[0], bound)
        case "value" if isinstance(argument, Tensor):
            value = uniform(library, walk, argument)
            if isinstance(value, int | float) and value == pattern.value:
                yield bound
        case "tensor" if isinstance(argument, Tensor):
            earlier = bound.get(pattern.name)
            if not isinstance(earlier, Tensor) or earlier.name == argument.name:
                yield {**bound, pattern.name: argument}
        case "call":
            maker = walk.maker(argument)
            # A quantised result is rounded on the way: an equation of what was computed does not hold through it.
            if maker is not None and output_of(maker) is not None and isinstance(argument, Tensor):
                yield from _match_call(library, walk, pattern, maker, {**bound, pattern: argument})


# --- the right side ---------------------------------------------------------------------------------------------


def _change(identity: Identity, match: Match) -> Replacement | None:
    right, node = identity.right, match.node
    terms = right.terms if right.kind == "several" else (right,)
    outputs = node.outputs
    if len(terms) != len(outputs):
        return None
    change = Replacement()
    for term, output in zip(terms, outputs, strict=True):
        packed = term.kind == "single"
        if packed and (not isinstance(output, tuple) or len(output) != 1):
            return None
        target = next(iter(tensors(output)), None) if packed or isinstance(output, Tensor) else None
        built = None if target is None else _build(term.terms[0] if packed else term, match, target)
        if built is None or target is None:
            return None
        if isinstance(built, Constant) and target.name in match.walk.outputs:
            return None
        change = _joined(change, target, built)
    return change


def _joined(change: Replacement, target: Tensor, built: Tensor | Operation | Constant) -> Replacement:
    if isinstance(built, Operation):
        return replace(change, nodes=(*change.nodes, built))
    if isinstance(built, Constant):
        return replace(change, constants=(*change.constants, built))
    return replace(change, results={**change.results, target.name: built})


def _build(term: EquationTerm, match: Match, target: Tensor) -> Built:
    """What a term of the right side stands for, in the place of one output."""
    known = match.bound.get(term if term.kind == "call" else term.name)
    if known is not None and not isinstance(known, Operation):
        return known
    if term.kind == "value":
        return _constant(target, term.value)
    if term.kind != "call":
        return None
    inputs = tuple(match.tensor(item.name) for item in term.terms)
    if term.name in BUILDERS and inputs[0] is not None:
        return BUILDERS[term.name](match, inputs[0])
    if "." not in term.name:
        return replace(match.operation(term.name), inputs=inputs, outputs=match.node.outputs)
    if target.quantization is not None or not is_static(target.shape):
        return None
    attributes = tuple((name, target.shape if value == "shape" else value) for name, value in term.attributes)
    types = match.node.types if len(match.node.outputs) == 1 else (("T", target.element),)
    return Operation(term.name, inputs, (target,), attributes, types, origin=match.node.origin)


def _constant(target: Tensor, value: Single | None) -> Constant | None:
    if value is None or target.quantization is not None or not is_static(target.shape):
        return None
    return Constant(target, float(value) if target.element.is_float and isinstance(value, int) else value)


def constant(match: Match, source: Tensor) -> Constant | None:
    """The one value of a tensor in the shape of the result."""
    output = output_of(match.node)
    return None if output is None else _constant(output, match.uniform(source))


def broadcast(match: Match, source: Tensor) -> Tensor | Operation | None:
    """A tensor in the shape of the result; what stretches it is ATen's, and only in a graph of ATen."""
    node, output = match.node, match.node.outputs[0]
    if not isinstance(output, Tensor):
        return None
    if source.shape == output.shape:
        return source
    if not node.operator.startswith(ATEN) or not is_static((*source.shape, *output.shape)):
        return None
    attributes, types = (("size", output.shape),), (("T", source.element),)
    return Operation("aten.expand", (source,), node.outputs, attributes, types, origin=node.origin)


def reshape(match: Match, source: Tensor) -> Operation | None:
    """A tensor in the shape of the result, its elements in row-major order; in a graph of ATen by `aten.view`."""
    node, output = match.node, match.node.outputs[0]
    if not isinstance(output, Tensor):
        return None
    if node.operator.startswith(ATEN):
        # Open extents must give the same volume by form, as the definition of `view` asks.
        static = is_static((*source.shape, *output.shape))
        if not static and ((size := volume(source.shape)) is None or size != volume(output.shape)):
            return None
        return replace(node, operator="aten.view", inputs=(source,), attributes=(("size", output.shape),))
    if not all(isinstance(extent, int) and extent > 0 for extent in (*source.shape, *output.shape)):
        return None
    attributes: tuple[tuple[str, Value], ...] = (
        ("axis", 0),
        ("rank", len(source.shape)),
        ("shape", output.shape),
    )
    return replace(node, operator="layout.reshape", inputs=(source,), attributes=attributes)


BUILDERS: Mapping[str, Builder] = MappingProxyType(
    {"broadcast": broadcast, "constant": constant, "reshape": reshape}
)


# --- what is known of tensors -----------------------------------------------------------------------------------


def output_of(node: Operation) -> Tensor | None:
    """The one tensor that an operation computes, where it is one that is not quantised."""
    output = node.outputs[0] if len(node.outputs) == 1 else None
    return output if isinstance(output, Tensor) and output.quantization is None else None


def uniform(library: Library, walk: RewriteWalk, tensor: Argument) -> Single | None:
    """The one value of a tensor that is the same everywhere and known: a constant, or one value spread over a shape."""
    for _ in range(_LONGEST_CHAIN):
        constant = walk.constant(tensor)
        if constant is not None:
            return _one_value(constant)
        maker = walk.maker(tensor)
        if maker is None or output_of(maker) is None:
            return None
        traits = library.traits(maker.operator)
        if "fill" in traits:
            return int(traits["fill"].values[0])
        if "spread" not in traits:
            return None
        tensor = maker.inputs[0]
    return None


def _one_value(constant: Constant) -> Single | None:
    value = constant.value
    if constant.tensor.quantization is not None:
        return None
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else None
    return value


def is_number(value: Single | None, number: int) -> bool:
    """Whether a value is a number, with the sign that a zero has in integers."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value != number:
        return False
    return math.copysign(1.0, value) > 0 or number < 0


def is_static(shape: Shape) -> bool:
    """Whether every extent is known before the run."""
    return all(isinstance(extent, int) for extent in shape)


def volume(shape: Shape) -> Extent | None:
    """The number of elements; None where no polynomial says it briefly."""
    product: Extent = 1
    try:
        for extent in shape:
            product = mul(product, extent)
    except TooComplex:
        return None
    return product
