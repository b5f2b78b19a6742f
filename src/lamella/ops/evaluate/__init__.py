"""The value of every expression of the language, before the run and inside formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.dim import TooComplex
from lamella.base.dtype import ElementType
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Span
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.rules.invocation import NO_VALUE, TOO_COMPLEX
from lamella.lang.skriptnd.rules.lowering import RANK
from lamella.lang.skriptnd.rules.names import NO_MEMBER
from lamella.ops.evaluate.packs import (
    accumulate,
    contains,
    fold,
    interleave,
    lift,
    lift_unary,
    make_range,
    pick,
    pick_range,
    position,
    repeat,
    spread,
    substitute,
)
from lamella.ops.evaluate.walk import Node, infer, primitive
from lamella.ops.fault import Fault
from lamella.ops.formula import Element, Guard, Scalar
from lamella.ops.instance import Fill, Repeated
from lamella.ops.scalars import functions
from lamella.ops.scalars.arithmetic import Arithmetic, Binary, PackBudget
from lamella.ops.scalars.terms import RANGES, refuse, unguard
from lamella.ops.scalars.values import (
    SCALARS,
    Code,
    Scope,
    Unknown,
    expect_known,
    spell,
    word_of,
    word_of_type,
)


class Compiler:
    """Makes expressions of one operator ready; `words` are the types of the names it declares."""

    def __init__(
        self, makers: Makers, limits: Limits, words: Mapping[str, str], budget: PackBudget | None = None
    ) -> None:
        self.makers = makers
        self.limits = limits
        self.words = words
        self.arithmetic = Arithmetic(limits, budget)
        self.binary: Mapping[str, Binary] = {
            **{sign: lift(sign, rule, self.arithmetic.spend) for sign, rule in self.arithmetic.signs.items()},
            "in": contains(self.arithmetic),
        }

    def compile(self, node: Node) -> Code:
        """An expression as a function of the names that have values."""
        return self.makers[type(node)](self, node)

    def compile_some(self, node: Node | None) -> Code | None:
        """An expression that may be left out."""
        return None if node is None else self.compile(node)


Makers: TypeAlias = Mapping[type, Callable[..., Code]]
"""What makes each kind of node ready: a function of the compiler and the node."""


def _guarded(code: Code, span: Span) -> Code:
    """The same code; a fault inside gets the place of the expression."""

    def _run(scope: Scope) -> object:
        try:
            return code(scope)
        except Fault as fault:
            raise fault.at(span) from None
        except TooComplex as problem:
            raise Fault(TOO_COMPLEX, what=problem).at(span) from None

    return _run


def _read(name: str, span: Span) -> Code:
    """The value of a name."""

    def _run(scope: Scope) -> object:
        try:
            value = scope[name]
        except KeyError:
            raise Fault(NO_VALUE, name=name).at(span) from None
        if type(value) is Unknown:
            raise value.problem
        return value

    return _run


def _word_in(element: object) -> str:
    """The primitive type that a generic one stands for in this call."""
    return word_of_type(element) if isinstance(element, ElementType) else "int"


# --- names, constants and texts -------------------------------------------------------------------------------


CONSTANTS: Mapping[str, float] = {"inf": math.inf, "pi": math.pi}


def _compile_literal(_: Compiler, node: nodes.Integer | nodes.Real | nodes.Bool) -> Code:
    """A number or a truth value."""
    value = node.value
    return lambda scope: value


def _compile_constant(_: Compiler, node: nodes.Constant) -> Code:
    """`inf` or `pi`."""
    value = CONSTANTS[node.name]
    return lambda scope: value


def _compile_omitted(_: Compiler, node: nodes.Omitted) -> Code:
    """`~`: null."""
    return lambda scope: None


def _compile_text(_: Compiler, node: nodes.Text) -> Code:
    """A string."""
    value = _unescape(node.value)
    return lambda scope: value


def _unescape(text: str) -> str:
    """A string without the backslashes that keep its braces."""
    return text.replace("\\{", "{").replace("\\}", "}")


def _compile_format(compiler: Compiler, node: nodes.Format) -> Code:
    """A string with values in it."""
    pieces = [_unescape(item) if isinstance(item, str) else compiler.compile(item) for item in node.parts]

    def _run(scope: Scope) -> object:
        words = [item if isinstance(item, str) else spell(item(scope)) for item in pieces]
        compiler.arithmetic.keep_items(sum(map(len, words)))
        return "".join(words)

    return _guarded(_run, node.span)


def _compile_name(_: Compiler, node: nodes.Name) -> Code:
    """An identifier."""
    return _read(node.id, node.span)


def _compile_null_test(_: Compiler, node: nodes.NullTest) -> Code:
    """`?name`."""
    code = _read(node.name, node.span)
    return lambda scope: code(scope) is not None


def _compile_member(_: Compiler, node: nodes.Member) -> Code:
    """`x.shape`, `x.rank` or `x.size`."""
    code, member = _read(node.name, node.span), _MEMBERS[node.field]

    def _run(scope: Scope) -> object:
        value = code(scope)
        return None if value is None else member(value)

    return _guarded(_run, node.span)


def _shape_of(value: object) -> tuple[object, ...]:
    """The extents of a tensor; a scalar has none."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return shape
    if isinstance(value, SCALARS):
        return ()
    raise Fault(NO_MEMBER, name=spell(value), field="shape", what=word_of(value))


def _size(value: object) -> object:
    size = len(value) if isinstance(value, tuple) else getattr(value, "size", None)
    if size is None:
        raise Fault(NO_MEMBER, name=spell(value), field="size", what=word_of(value))
    return size


_MEMBERS: Mapping[str, Callable[[object], object]] = {
    "shape": _shape_of,
    "rank": lambda value: len(_shape_of(value)),
    "size": _size,
}


# --- packs: lists, items and slices ---------------------------------------------------------------------------


def _compile_list(compiler: Compiler, node: nodes.List) -> Code:
    """`[item, …]`; null where an item is null."""
    if not any(isinstance(item, nodes.Range | nodes.Expand | nodes.Zip) for item in node.items):
        return _plain_list([compiler.compile(item) for item in node.items], node)
    codes = [_compile_items(compiler, item) for item in node.items]
    return _guarded(lambda scope: _join(compiler.arithmetic, codes, scope), node.span)


def _plain_list(codes: Sequence[Code], node: nodes.List) -> Code:
    def _run(scope: Scope) -> object:
        items = tuple([code(scope) for code in codes])
        for item in items:
            if item is None:
                return None
            if isinstance(item, tuple | Repeated):
                raise refuse("[]", item)
        return items

    return _guarded(_run, node.span)


def _join(arithmetic: Arithmetic, codes: Sequence[Code], scope: Scope) -> object:
    """The packs of several list items, one after the other."""
    found: list[object] = []
    for code in codes:
        items = code(scope)
        if items is None:
            return None
        if isinstance(items, Repeated):
            if len(codes) == 1:
                return items
            raise refuse("[]", items)
        if not isinstance(items, tuple):
            raise refuse("..", items)
        arithmetic.keep_items(len(found) + len(items))
        found += items
    return tuple(found)


def _compile_items(compiler: Compiler, node: Node) -> Code:
    """One item of a list as the pack of items it stands for."""
    match node:
        case nodes.Range():
            return _compile_range(compiler, node)
        case nodes.Expand():
            return _compile_expand(compiler, node)
        case nodes.Zip():
            operands = [compiler.compile(item) for item in node.operands]
            arithmetic = compiler.arithmetic
            return _guarded(
                lambda scope: interleave(arithmetic, [code(scope) for code in operands]), node.span
            )
    return _single(compiler.compile(node))


def _single(code: Code) -> Code:
    def _run(scope: Scope) -> object:
        value = code(scope)
        if isinstance(value, tuple | Repeated):
            raise refuse("[]", value)
        return None if value is None else (value,)

    return _run


def _compile_range(compiler: Compiler, node: nodes.Range) -> Code:
    bounds = [compiler.compile(part) for part in (node.begin, node.end) if part is not None]
    step = compiler.compile_some(node.step) or (lambda scope: 1)

    def _run(scope: Scope) -> object:
        values = [code(scope) for code in (*bounds, step)]
        if len(values) != 3:
            raise refuse(":", *values)
        if any(value is None for value in values):
            return None
        return make_range(compiler.arithmetic, *values)

    return _guarded(_run, node.span)


def _compile_expand(compiler: Compiler, node: nodes.Expand) -> Code:
    operand, count = compiler.compile(node.operand), compiler.compile_some(node.count)
    if count is None:
        return operand
    times = count

    def _run(scope: Scope) -> object:
        number = times(scope)
        if number is None:
            return None
        if number == 0 and isinstance(number, int):
            return ()
        item = operand(scope)
        return None if item is None else repeat(compiler.arithmetic, item, number)

    return _guarded(_run, node.span)


def _compile_misplaced(_: Compiler, node: nodes.Expand | nodes.Zip | nodes.Range) -> Code:
    """An item of a list where one value is needed; the checker refuses it before any call."""

    def _run(scope: Scope) -> object:
        raise refuse("..", ())

    return _guarded(_run, node.span)


# --- indexing -----------------------------------------------------------------------------------------------

Bounds = tuple[Code | None, Code | None, Code | None]


def _compile_index(compiler: Compiler, node: nodes.Index) -> Code:
    """`pack[index]`."""
    operand, spent = compiler.compile(node.operand), compiler.arithmetic.spent
    if isinstance(node.index, nodes.Range):
        bounds = _compile_bounds(compiler, node.index)
        return _guarded(lambda scope: spent(_pick_between(operand(scope), bounds, scope)), node.span)
    index = compiler.compile(node.index)
    return _guarded(lambda scope: pick(operand(scope), spent(index(scope))), node.span)


def _compile_bounds(compiler: Compiler, node: nodes.Range) -> Bounds:
    """The parts of a range of items; each may be left out."""
    some = compiler.compile_some
    return some(node.begin), some(node.end), some(node.step)


def _pick_between(pack: object, bounds: Bounds, scope: Scope) -> object:
    """A range of items; a bound that is there and null makes null."""
    if pack is None:
        return None
    values = [None if code is None else code(scope) for code in bounds]
    if any(value is None and code is not None for value, code in zip(values, bounds, strict=True)):
        return None
    return pick_range(pack, *values)


def _compile_substitute(compiler: Compiler, node: nodes.Substitute) -> Code:
    """`pack[index] <- value`."""
    operand, value = compiler.compile(node.target.operand), compiler.compile(node.value)
    index = _compile_places(compiler, operand, node.target.index)
    spent = compiler.arithmetic.spent
    return _guarded(lambda scope: substitute(spent(operand(scope)), index(scope), value(scope)), node.span)


def _compile_places(compiler: Compiler, operand: Code, node: Node) -> Code:
    if not isinstance(node, nodes.Range):
        return compiler.compile(node)
    bounds = _compile_bounds(compiler, node)

    def _run(scope: Scope) -> object:
        pack = operand(scope)
        return _pick_between(tuple(range(len(pack))) if isinstance(pack, tuple) else None, bounds, scope)

    return _run


# --- accesses of tensors and guards of their indices ----------------------------------------------------------


def _compile_guard(compiler: Compiler, node: nodes.Bounded) -> Code:
    """`|index|` or `|index <> below : above|`."""
    codes = [compiler.compile(part) for part in (node.index, node.below, node.above) if part is not None]

    def _run(scope: Scope) -> object:
        return spread("||", _guard, [code(scope) for code in codes])

    return _guarded(_run, node.span)


def _guard(parts: Sequence[object]) -> Guard:
    known = [_integer(part) for part in parts]
    return Guard(known[0], *known[1:]) if len(known) in (1, 3) else Guard(known[0])


def _integer(value: object) -> Scalar:
    if word_of(value) != "int" or not isinstance(value, SCALARS):
        raise refuse("| |", value)
    return value


def _compile_access(compiler: Compiler, node: nodes.Access) -> Code:
    """`tensor[i, j..]` or `pack[k][i, j..]`; null for a tensor that is not there."""
    tensor, item = _read(node.tensor, node.span), compiler.compile_some(node.item)
    indices = [_compile_position(compiler, part) for part in node.indices]
    name, word = node.tensor, compiler.words.get(node.tensor, "real")
    generic = primitive(word) is None

    def _run(scope: Scope) -> object:
        value = tensor(scope)
        if value is None:
            return None
        kind = _word_in(scope.get(word)) if generic else (primitive(word) or word)
        access = _Access(name, kind, value)
        if item is not None:
            return access.pick(item(scope), indices, scope)
        return access.all_items(indices, scope)

    return _guarded(_run, node.span)


_Position = Code | Bounds


def _compile_position(compiler: Compiler, node: Node) -> _Position:
    """One written index: a pack of the positions it takes, or a range along its dimension."""
    if isinstance(node, nodes.Range):
        return _compile_bounds(compiler, node)
    if isinstance(node, nodes.Expand):
        return _compile_items(compiler, node)
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
                place = position(item, len(self.value))
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
        shape = _shape_of(tensor)
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
                found.append(pick_range(full, *(None if code is None else code(scope) for code in index)))
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


# --- operators, folds, choices, casts and functions ---------------------------------------------------------


SHORT = {"&&": False, "||": True, "=>": False}
"""The left side that decides an operator without its right side."""


def _compile_chain(compiler: Compiler, node: nodes.Chain) -> Code:
    """Operators of one level, from left to right."""
    code = compiler.compile(node.first)
    if len(node.rest) == 1:
        sign, operand = node.rest[0]
        return _guarded(_step(compiler, sign, code, compiler.compile(operand)), node.span)
    steps = [(sign, compiler.binary[sign], compiler.compile(operand)) for sign, operand in node.rest]

    def _run(scope: Scope) -> object:
        value = code(scope)
        for sign, rule, operand in steps:
            value = (
                _decided(sign, value)
                if sign in SHORT and _is_decided(sign, value)
                else rule(value, operand(scope))
            )
        return value

    return _guarded(_run, node.span)


def _step(compiler: Compiler, sign: str, left: Code, right: Code) -> Code:
    rule = compiler.binary[sign]
    if sign in SHORT:
        return _short_circuit(sign, rule, left, right)
    return lambda scope: rule(left(scope), right(scope))


def _short_circuit(sign: str, rule: Binary, left: Code, right: Code) -> Code:
    def _run(scope: Scope) -> object:
        value = left(scope)
        return _decided(sign, value) if _is_decided(sign, value) else rule(value, right(scope))

    return _run


def _is_decided(sign: str, value: object) -> bool:
    """Whether the left side tells the result; for a pack, whether each of its items does."""
    if value is None:
        return True
    if isinstance(value, tuple):
        return bool(value) and all(item is SHORT[sign] for item in value)
    return value is SHORT[sign]


def _decided(sign: str, value: object) -> object:
    if value is None:
        return None
    result = sign != "&&"
    return (result,) * len(value) if isinstance(value, tuple) else result


def _compile_unary(compiler: Compiler, node: nodes.Unary) -> Code:
    """`+x`, `-x` or `!x`."""
    return _applied(compiler, node, functions.unary(node.sign))


def _compile_call(compiler: Compiler, node: nodes.Call) -> Code:
    """A built-in function."""
    return _applied(compiler, node, partial(functions.call, node.function))


def _applied(compiler: Compiler, node: nodes.Unary | nodes.Call, rule: Callable[[object], object]) -> Code:
    operand, lifted, spent = compiler.compile(node.operand), lift_unary(rule), compiler.arithmetic.spent
    return _guarded(lambda scope: lifted(spent(operand(scope))), node.span)


def _compile_cast(compiler: Compiler, node: nodes.Cast) -> Code:
    """`type(x)` or `type()`."""
    operand = compiler.compile_some(node.operand)
    word = primitive(node.type)
    generic = _read(node.type, node.span)

    def _run(scope: Scope) -> object:
        target = word or _word_in(generic(scope))
        if operand is None:
            return functions.DEFAULTS[target]
        return lift_unary(partial(functions.cast, target))(compiler.arithmetic.spent(operand(scope)))

    return _guarded(_run, node.span)


def _compile_fold(compiler: Compiler, node: nodes.Fold) -> Code:
    """`pack sign ..` and `pack sign ...`."""
    operand, sign, arithmetic = compiler.compile(node.operand), node.sign, compiler.arithmetic
    if node.cumulative:
        return _guarded(lambda scope: accumulate(arithmetic, sign, operand(scope)), node.span)
    word = infer(node.operand, compiler.words)
    generic = bool(word) and primitive(word) is None

    def _run(scope: Scope) -> object:
        return fold(arithmetic, sign, operand(scope), _word_in(scope.get(word)) if generic else word)

    return _guarded(_run, node.span)


def _compile_select(compiler: Compiler, node: nodes.Select) -> Code:
    """`condition ? then : otherwise`; a branch that is not taken is not evaluated."""
    condition, then = compiler.compile(node.condition), compiler.compile(node.then)
    otherwise = compiler.compile_some(node.otherwise) or (lambda scope: None)

    def _run(scope: Scope) -> object:
        truth = compiler.arithmetic.spent(condition(scope))
        if truth is True:
            return then(scope)
        if truth is False:
            return otherwise(scope)
        if truth is None:
            return None
        if (
            isinstance(truth, tuple)
            and truth
            and truth.count(truth[0]) == len(truth)
            and isinstance(truth[0], bool)
        ):
            return _widened(then(scope) if truth[0] else otherwise(scope), truth)
        return spread("?:", functions.select, (truth, then(scope), otherwise(scope)))

    return _guarded(_run, node.span)


def _widened(value: object, mask: tuple[object, ...]) -> object:
    """What all items of a mask choose."""
    return spread("?:", lambda pair: pair[1], (mask, value))


def _compile_coalesce(compiler: Compiler, node: nodes.Coalesce) -> Code:
    """`value ?? default`."""
    value, default = compiler.compile(node.value), compiler.compile(node.default)

    def _run(scope: Scope) -> object:
        found = value(scope)
        return default(scope) if found is None else found

    return _run


__all__ = ["Code", "Compiler", "Scope", "evaluate", "make_compiler"]

_MAKERS: Makers = MappingProxyType(
    {
        nodes.Integer: _compile_literal,
        nodes.Real: _compile_literal,
        nodes.Bool: _compile_literal,
        nodes.Constant: _compile_constant,
        nodes.Text: _compile_text,
        nodes.Format: _compile_format,
        nodes.Name: _compile_name,
        nodes.NullTest: _compile_null_test,
        nodes.Member: _compile_member,
        nodes.Omitted: _compile_omitted,
        nodes.Unary: _compile_unary,
        nodes.Call: _compile_call,
        nodes.Cast: _compile_cast,
        nodes.Chain: _compile_chain,
        nodes.Fold: _compile_fold,
        nodes.Select: _compile_select,
        nodes.Coalesce: _compile_coalesce,
        nodes.List: _compile_list,
        nodes.Index: _compile_index,
        nodes.Substitute: _compile_substitute,
        nodes.Expand: _compile_misplaced,
        nodes.Zip: _compile_misplaced,
        nodes.Range: _compile_misplaced,
        nodes.Bounded: _compile_guard,
        nodes.Access: _compile_access,
    }
)


def make_compiler(
    limits: Limits = DEFAULT, words: Mapping[str, str] | None = None, budget: PackBudget | None = None
) -> Compiler:
    """What makes the expressions of one operator ready; `words` are the types of the names it declares."""
    return Compiler(_MAKERS, limits, words or {}, budget)


def evaluate(expression: Node, scope: Scope, limits: Limits = DEFAULT) -> object:
    """The value of one expression; Found says why it has none."""
    return make_compiler(limits).compile(expression)(scope)
