"""Constant folding: the values of constant expressions, without recursion and in bounded time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.dim import Dim, Extent, TooComplex
from lamella.base.errors import Found
from lamella.base.source import Span
from lamella.lang.module.instantiate.arithmetic import (
    INTRINSICS,
    apply,
    call,
    checked,
    compare,
    negate,
    not_constant,
    wrong_kind,
)
from lamella.lang.module.instantiate.messages import quote
from lamella.lang.module.instantiate.nodes import DictValue, Items, Known, Value
from lamella.lang.module.nodes import (
    Bool,
    Call,
    Chain,
    Dict,
    Expr,
    Index,
    Integer,
    List,
    Member,
    Name,
    Null,
    Real,
    Rest,
    Select,
    Set,
    Slice,
    Text,
    Unary,
)
from lamella.lang.module.rules import constants as rules
from lamella.lang.module.rules import names as name_rules
from lamella.lang.module.rules.syntax import LIMIT
from lamella.lang.module.suggest import suggest

_LOGIC = ("and", "&&", "or", "||")
_MOST_VALUES = 100_000
_DEEPEST = 50
"""Values in one list, and lists in lists."""
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What an expression stands in, apart from the names that have values.

    `tensors` are names that are known but never constant. `runtime` gives the extent of a name that is nothing
    else. With `words` a bare name that is nothing else is a word, as enumerations and annotations write it. `rank`
    is that of the tensor whose dimensions are counted: there `[0, ..., -2]` has an end.
    """

    where: str = "here"
    tensors: Collection[str] = ()
    runtime: Callable[[str], Extent | None] | None = None
    words: bool = False
    rank: int | None = None


PLAIN = EvaluationContext()


@dataclass(frozen=True, slots=True)
class _Word:
    """A bare name without a value: a choice of an enumeration, or a mistake."""

    id: str
    span: Span


_Inner: TypeAlias = "int | float | bool | str | Dim | DictValue | _Word | tuple[_Inner, ...] | None"
_Steps: TypeAlias = Generator[Expr, _Inner, _Inner]
"""A computation that asks for the values of expressions; what it returns is its own."""


def evaluate(expr: Expr, names: Mapping[str, Known], around: EvaluationContext = PLAIN) -> Value:
    """The value of an expression; raises Found where it has none."""
    return _Evaluation(names, around).run(expr)


def evaluate_constant(
    expr: Expr, names: Mapping[str, Known], what: str, around: EvaluationContext = PLAIN
) -> Value:
    """The value of an expression that may not depend on runtime dimensions; `what` names the place."""
    value = evaluate(expr, names, around)
    if isinstance(value, Dim):
        raise not_constant(what, value, expr.span)
    return value


def evaluate_bool(
    expr: Expr, names: Mapping[str, Known], what: str, around: EvaluationContext = PLAIN
) -> bool:
    """The truth of a guard or a condition; `what` names it."""
    value = evaluate_constant(expr, names, what, around)
    if isinstance(value, bool):
        return value
    raise wrong_kind(what, value, "true or false", expr.span)


def evaluate_int(expr: Expr, names: Mapping[str, Known], what: str, around: EvaluationContext = PLAIN) -> int:
    """A size, an index or another whole number; `what` names it."""
    value = evaluate_constant(expr, names, what, around)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    repair = "'//' divides whole numbers" if isinstance(value, float) else ""
    raise wrong_kind(what, value, "an integer", expr.span, repair)


def _is_true(value: _Inner, expr: Expr) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, Dim):
        raise not_constant(f"'{quote(expr.span, 'a condition')}'", value, expr.span)
    raise wrong_kind(f"'{quote(expr.span, 'a condition')}'", value, "true or false", expr.span)


class _Evaluation:
    """One evaluation: the names, and the stack of computations that are under way."""

    __slots__ = ("around", "names")

    def __init__(self, names: Mapping[str, Known], around: EvaluationContext) -> None:
        self.names = names
        self.around = around

    def run(self, expr: Expr) -> Value:
        """The value of a whole expression."""
        try:
            value = self._run(expr)
        except TooComplex:
            text = f"'{quote(expr.span, 'the expression')}'"
            found = "too large a formula of runtime dimensions"
            raise Found(rules.OUT_OF_RANGE.at(expr.span, what=text, found=found, repair="")) from None
        return self._spell(value) if self.around.words else self._settled(value)

    def _run(self, expr: Expr) -> _Inner:
        value: _Inner = None
        # Generators on a stack of our own: however deep an expression is, Python's stack does not grow.
        stack = [self._steps(expr)]
        while stack:
            try:
                asked = stack[-1].send(value)
            except StopIteration as done:
                stack.pop()
                value = done.value
            else:
                stack.append(self._steps(asked))
                value = None
        return value

    def _steps(self, expr: Expr) -> _Steps:
        """The computation of one expression."""
        match expr:
            case Chain():
                return self._chain(expr)
            case Unary():
                return self._unary(expr)
            case Select():
                return self._select(expr)
            case List():
                return self._list(expr)
            case Set():
                return self._set(expr)
            case Dict():
                return self._dict(expr)
            case Member():
                return self._member(expr)
            case Call():
                return self._call(expr)
            case Index():
                return self._index(expr)
            case _:
                return self._leaf(expr)

    def _leaf(self, expr: Expr) -> _Steps:
        yield from ()
        match expr:
            case Integer(value) | Real(value):
                return checked(value, expr.span, "the number")
            case Bool(value) | Text(value):
                return value
            case Null():
                return None
            case Name():
                return self._name(expr)
        raise TypeError(f"{type(expr).__name__} is not an expression")

    def _name(self, name: Name) -> _Inner:
        known = self.names.get(name.id)
        if known is not None:
            return known.value
        if name.id in self.around.tensors:
            raise Found(
                rules.NOT_CONSTANT.at(name.span, what=f"'{name.id}'", why="it is a tensor of the graph")
            )
        extent = None if self.around.runtime is None else self.around.runtime(name.id)
        return _Word(name.id, name.span) if extent is None else extent

    def _chain(self, chain: Chain) -> _Steps:
        signs = {sign for sign, _ in chain.rest}
        if signs.issubset(_LOGIC):
            return (yield from self._logic(chain))
        if signs.issubset(_COMPARISONS):
            return (yield from self._compare(chain))
        value = self._settled((yield chain.first))
        for sign, operand in chain.rest:
            right = self._settled((yield operand))
            value = apply(sign, value, right, _so_far(chain, operand))
        return value

    def _logic(self, chain: Chain) -> _Steps:
        """`and` and `or` stop at the operand that decides."""
        truth = _is_true(self._settled((yield chain.first)), chain.first)
        for sign, operand in chain.rest:
            if truth == (sign in ("or", "||")):
                return truth
            truth = _is_true(self._settled((yield operand)), operand)
        return truth

    def _compare(self, chain: Chain) -> _Steps:
        """`a < b < c` holds where every pair does."""
        before, left = chain.first, (yield chain.first)
        for sign, operand in chain.rest:
            right = yield operand
            first = self._beside(left, right, operand)
            second = self._beside(right, left, before)
            if not compare(sign, first, second, _so_far(chain, operand)):
                return False
            before, left = operand, right
        return True

    def _beside(self, value: _Inner, other: _Inner, expr: Expr) -> Value:
        """A side of a comparison: a bare name beside a string is a word, one of those that the other side may be."""
        if not isinstance(other, str) or isinstance(value, str):
            return self._settled(value)
        choices = self._choices(expr)
        for word in [value] if isinstance(value, _Word) else _words(value):
            if choices and word.id not in choices:
                raise self._unknown(word, choices)
        return self._spell(value)

    def _choices(self, expr: Expr) -> tuple[str, ...]:
        known = self.names.get(expr.id) if isinstance(expr, Name) else None
        return () if known is None else known.choices

    def _unary(self, unary: Unary) -> _Steps:
        value = self._settled((yield unary.operand))
        if unary.sign == "-":
            return negate(value, unary.span)
        return not _is_true(value, unary.operand)

    def _select(self, select: Select) -> _Steps:
        condition = self._settled((yield select.condition))
        return (yield select.value if _is_true(condition, select.condition) else select.otherwise)

    def _list(self, items: List) -> _Steps:
        values: list[_Inner] = []
        first: int | None = None
        for item in items.items:
            if isinstance(item, Rest):
                first = self._end_of_row(values.pop(), items)
                continue
            value = yield item
            if first is None:
                values.append(value)
            else:
                values += self._row(first, self._end_of_row(value, items), items)
                first = None
        return self._gathered(values, items.span)

    def _end_of_row(self, value: _Inner, items: List) -> int:
        """A whole number before or behind `...`."""
        found = self._settled(value)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        raise wrong_kind("what stands beside '...'", found, "an integer", items.span)

    def _row(self, first: int, last: int, items: List) -> range:
        """The whole numbers from one to another; in a shape of known rank, negative ones count from its end."""
        rank, what = self.around.rank, f"'{quote(items.span, 'the list')}'"
        is_mixed = first >= 0 > last
        if is_mixed and rank is None:
            why = "its end counts from the last dimension of a tensor"
            raise Found(rules.NOT_CONSTANT.at(items.span, what=what, why=why))
        if rank is not None:
            first, last = (item + rank if item < 0 else item for item in (first, last))
        if last < first and not is_mixed:
            found, wanted = f"a row from {first} down to {last}", "one that goes up"
            raise Found(rules.KIND.at(items.span, what=what, found=found, wanted=wanted, repair=""))
        if last - first >= _MOST_VALUES:
            raise _too_many(what, items.span)
        return range(first, last + 1)

    def _gathered(self, values: Sequence[_Inner], span: Span) -> _Inner:
        """A list of values; one with words in it is settled later, where it is known what they are."""
        if any(isinstance(item, _Word) or type(item) is tuple for item in values):
            if len(values) > _MOST_VALUES:
                raise _too_many(f"'{quote(span, 'the list')}'", span)
            return tuple(values)
        found = Items.of(self._settled(item) for item in values)
        if found.size > _MOST_VALUES or found.depth > _DEEPEST:
            raise _too_many(f"'{quote(span, 'the list')}'", span)
        return found

    def _set(self, expr: Set) -> _Steps:
        """A list of the items, each once."""
        found: dict[object, _Inner] = {}
        for item in expr.items:
            value = yield item
            key = value.id if isinstance(value, _Word) else value
            found.setdefault((type(value), key), value)
        return self._gathered(list(found.values()), expr.span)

    def _dict(self, expr: Dict) -> _Steps:
        found: dict[str, Value] = {}
        for entry in expr.entries:
            value = yield entry.value
            if entry.key in found:
                where = f"'{quote(expr.span, 'a dict')}'"
                raise Found(name_rules.DUPLICATE.at(entry.span, kind="key", name=entry.key, where=where))
            found[entry.key] = self._spell(value)
        self._gathered(list(found.values()), expr.span)
        return DictValue(tuple(found.items()))

    def _member(self, expr: Member) -> _Steps:
        """`dict.key`; a member of anything else is no constant."""
        root: Expr = expr
        while isinstance(root, Member | Index):
            root = root.operand
        known = self.names.get(root.id) if isinstance(root, Name) else None
        owner = (yield expr.operand) if known is not None else None
        if isinstance(owner, DictValue):
            return self._entry(owner, expr.field, expr)
        text = f"'{quote(expr.span, 'a member')}'"
        raise Found(rules.NOT_CONSTANT.at(expr.span, what=text, why="it belongs to a tensor"))

    def _entry(self, owner: DictValue, key: str, expr: Expr) -> Value:
        found = owner.find(key)
        if found is not None:
            return found[0]
        where = f"in the dict of '{quote(expr.span, 'this')}'"
        repair = suggest(key, owner.names()) or f"it has {', '.join(owner.names()) or 'no keys'}"
        raise Found(name_rules.UNKNOWN.at(expr.span, name=key, where=where, repair=repair))

    def _call(self, expr: Call) -> _Steps:
        callee = expr.callee
        if not isinstance(callee, Name) or callee.id not in INTRINSICS:
            raise unknown_function(expr)
        values: list[Value] = []
        for argument in expr.arguments:
            if argument.name is not None:
                raise Found(
                    name_rules.UNKNOWN_ARGUMENT.at(
                        argument.span, module=callee.id, name=argument.name, repair="intrinsics take no names"
                    )
                )
            values.append(self._settled((yield argument.value)))
        return call(callee.id, values, expr.span)

    def _index(self, index: Index) -> _Steps:
        """An element or a range of a list or a string."""
        whole = yield index.operand
        if isinstance(whole, DictValue) and len(index.items) == 1 and isinstance(index.items[0], Text):
            return self._entry(whole, index.items[0].value, index)
        if not isinstance(whole, tuple | str) or len(index.items) != 1:
            what = f"what '{quote(index.span, 'the index')}' takes from"
            raise wrong_kind(what, self._settled(whole), "a list", index.span)
        item = index.items[0]
        if isinstance(item, Rest):
            return whole
        if isinstance(item, Slice):
            low = yield from self._bound(item.begin)
            high = yield from self._bound(item.end)
            return whole[slice(low, high)]
        at = _whole(self._settled((yield item)), item)
        if -len(whole) <= at < len(whole):
            return whole[at]
        raise Found(
            rules.POSITION.at(
                item.span,
                what="the index",
                found=at,
                name=quote(index.operand.span, "the list"),
                count=len(whole),
                repair="",
            )
        )

    def _bound(self, bound: Expr | None) -> Generator[Expr, _Inner, int | None]:
        return None if bound is None else _whole(self._settled((yield bound)), bound)

    def _settled(self, value: _Inner) -> Value:
        """A value in which every word turned out to be a mistake."""
        if isinstance(value, _Word):
            raise self._unknown(value, self.names)
        if isinstance(value, tuple) and not isinstance(value, Items):
            return Items.of(self._settled(item) for item in value)
        return value

    def _spell(self, value: _Inner) -> Value:
        """A value in which words are strings."""
        if isinstance(value, _Word):
            return value.id
        if isinstance(value, tuple) and not isinstance(value, Items):
            return Items.of(self._spell(item) for item in value)
        return value

    def _unknown(self, word: _Word, names: Collection[str]) -> Found:
        repair = suggest(word.id, names)
        return Found(name_rules.UNKNOWN.at(word.span, name=word.id, where=self.around.where, repair=repair))


def unknown_function(expr: Call) -> Found:
    """The finding that a constant calls what is no function of constants."""
    callee = expr.callee
    name = callee.id if isinstance(callee, Name) else quote(callee.span, "this")
    text, repair = f"'{quote(expr.span, 'the call')}'", suggest(name, INTRINSICS)
    why = f"there is no function '{name}'"
    hint = repair or f"functions of constants are {', '.join(sorted(INTRINSICS))}"
    return Found(rules.NOT_CONSTANT.at(expr.span, what=text, why=why, hint=hint))


def _too_many(what: str, span: Span) -> Found:
    hint = "a list holds fewer values, and fewer lists in lists"
    return Found(LIMIT.at(span, what=what, limit=_MOST_VALUES, option="", hint=hint))


def _words(value: _Inner) -> list[_Word]:
    return [item for item in value if isinstance(item, _Word)] if isinstance(value, tuple) else []


def _whole(value: Value, expr: Expr) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, Dim):
        raise not_constant("the index", value, expr.span)
    raise wrong_kind("the index", value, "an integer", expr.span)


def _so_far(chain: Chain, operand: Expr) -> Span:
    """The part of a chain up to an operand."""
    return chain.span._replace(end=max(chain.span.start, operand.span.end))


__all__ = [
    "PLAIN",
    "EvaluationContext",
    "Found",
    "evaluate",
    "evaluate_bool",
    "evaluate_constant",
    "evaluate_int",
]
