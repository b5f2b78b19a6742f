"""Expressions and values of the text as numbers; every failure is one finding and an empty result."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import TooComplex
from lamella.base.errors import Found
from lamella.base.limits import DividedByZero, OutOfRange
from lamella.base.source import Span
from lamella.lang.nem import nodes
from lamella.lang.nem.resolve.arithmetic import DEEPEST, MOST_OPERATIONS, Loops, combine, negate
from lamella.lang.nem.resolve.scope import IntegerMeaning, LiteralMeaning, Meaning, NemScope, Poison, kind_of
from lamella.lang.nem.resolved import Index, Variable
from lamella.lang.nem.rules import (
    DIVISION_BY_ZERO,
    FLOAT_HERE,
    LIMIT,
    LOOP_VARIANT,
    NOT_CONSTANT,
    OUT_OF_RANGE,
    WRONG_KIND,
)


class ExpressionResolver:
    """Evaluates expressions in a scope; findings are collected."""

    def __init__(self, scope: NemScope, findings: list[Diagnostic]) -> None:
        self.scope = scope
        self.findings = findings
        self.loops = Loops({})
        self.met_poison = False

    def meaning(self, name: nodes.Name) -> Meaning:
        """What a name means; poison, after one finding, when it is unknown."""
        meaning, findings = self.scope.look_up(name)
        self.findings += findings
        self.met_poison = self.met_poison or isinstance(meaning, Poison)
        return meaning

    def fail(self, finding: Diagnostic) -> Found:
        """Record a finding and give the exception that leaves the expression."""
        self.findings.append(finding)
        return Found()

    def wrong(self, name: nodes.Name, meaning: Meaning, wanted: str) -> Found:
        """A name of another kind than the place needs; poison stays silent."""
        if isinstance(meaning, Poison):
            return Found()
        return self.fail(WRONG_KIND.at(name.span, name=name.id, kind=kind_of(meaning), wanted=wanted))

    # --- integers -------------------------------------------------------------------------------------------

    def index(self, expr: nodes.Expr, what: str) -> Index:
        """An integer expression that may vary with the loop variables."""
        if isinstance(expr, nodes.Integer):
            return Index(expr.value)
        if isinstance(expr, nodes.Real):
            raise self.fail(FLOAT_HERE.at(expr.span, what=what))
        if isinstance(expr, nodes.Name):
            meaning = self.meaning(expr)
            if isinstance(meaning, IntegerMeaning):
                return meaning.index
            raise self.wrong(expr, meaning, "an integer")
        if isinstance(expr, nodes.Negate):
            return negate(self.index(expr.operand, what))
        return self._chain(expr, what)

    def _chain(self, chain: nodes.Chain, what: str) -> Index:
        value = self.index(chain.first, what)
        for sign, operand in chain.rest:
            right = self.index(operand, what)
            try:
                value = combine(sign, value, right, self.loops)
            except DividedByZero:
                raise self.fail(DIVISION_BY_ZERO.at(operand.span, text=_shown(chain.span))) from None
            except OutOfRange:
                raise self.fail(OUT_OF_RANGE.at(chain.span, text=_shown(chain.span))) from None
            except TooComplex:
                raise self.fail(_too_complex(chain)) from None
        return value

    def integer(self, expr: nodes.Expr, what: str) -> int:
        """An integer that is the same in every iteration."""
        index = self.index(expr, what)
        if index.is_constant:
            return index.constant
        raise self.fail(LOOP_VARIANT.at(expr.span, what=what, name=_loop_variable(index)))

    def integers(self, exprs: tuple[nodes.Expr, ...], what: str) -> tuple[int, ...]:
        """Several such integers; all are evaluated before a failure is passed on."""
        values: list[int] = []
        failed = False
        for expr in exprs:
            try:
                values.append(self.integer(expr, what))
            except Found:
                failed = True
        # The findings of all are recorded; the exception only leaves the expression.
        if failed:
            raise Found
        return tuple(values)

    def constant(self, const: nodes.Const) -> Index:
        """The value of a `const`: literals and earlier constants only."""
        for name in _names(const.value):
            meaning = self.meaning(name)
            if not (isinstance(meaning, IntegerMeaning) and meaning.constant) and not isinstance(
                meaning, Poison
            ):
                raise self.fail(NOT_CONSTANT.at(name.span, name=const.name.id, used=name.id))
        return self.index(const.value, "a constant")

    # --- other values ---------------------------------------------------------------------------------------

    def number(self, expr: nodes.Value, what: str) -> int | float:
        """A number that may be a float: an attribute value or a scale."""
        if isinstance(expr, nodes.Real):
            return expr.value
        if isinstance(expr, nodes.Negate):
            return -self.number(expr.operand, what)
        if isinstance(expr, nodes.Name):
            meaning = self.meaning(expr)
            if isinstance(meaning, LiteralMeaning) and isinstance(meaning.value, nodes.Real):
                return meaning.value.value
        if isinstance(expr, nodes.Chain) and is_float(expr):
            return self._float_chain(expr, what)
        if isinstance(expr, nodes.Text | nodes.Items):
            raise self.fail(
                WRONG_KIND.at(expr.span, name=_shown(expr.span), kind=literal_kind(expr), wanted=what)
            )
        return self.integer(expr, what)

    def _float_chain(self, chain: nodes.Chain, what: str) -> float:
        value = float(self.number(chain.first, what))
        for sign, operand in chain.rest:
            right = float(self.number(operand, what))
            if sign in ("/", "mod") and right == 0.0:
                raise self.fail(DIVISION_BY_ZERO.at(operand.span, text=_shown(chain.span)))
            value = _float_step(sign, value, right)
        return value

    def items(self, value: nodes.Value, what: str) -> tuple[nodes.Value, ...]:
        """The members of a list, written in place or named by `let`."""
        if isinstance(value, nodes.Name):
            meaning = self.meaning(value)
            if isinstance(meaning, LiteralMeaning) and isinstance(meaning.value, nodes.Items):
                return meaning.value.values
            raise self.wrong(value, meaning, "a list")
        if isinstance(value, nodes.Items):
            return value.values
        raise self.fail(
            WRONG_KIND.at(value.span, name=_shown(value.span), kind=literal_kind(value), wanted=what)
        )

    def text(self, value: nodes.Value, what: str) -> str:
        """A string, written in place or named by `let`."""
        if isinstance(value, nodes.Text):
            return value.value
        if isinstance(value, nodes.Name):
            meaning = self.meaning(value)
            if isinstance(meaning, LiteralMeaning) and isinstance(meaning.value, nodes.Text):
                return meaning.value.value
            raise self.wrong(value, meaning, "a string")
        raise self.fail(
            WRONG_KIND.at(value.span, name=_shown(value.span), kind=literal_kind(value), wanted=what)
        )


def _too_complex(chain: nodes.Chain) -> Diagnostic:
    what = f"the number of products, quotients and remainders of loop variables in '{_shown(chain.span)}'"
    limit = f"{MOST_OPERATIONS}, {DEEPEST} inside each other"
    return LIMIT.at(chain.span, what=what, limit=limit, hint="write a simpler expression")


def literal_kind(value: nodes.Value) -> str:
    """What a value is, by the look of it."""
    kinds = {nodes.Text: "a string", nodes.Items: "a list", nodes.Real: "a float", nodes.Name: "a name"}
    return kinds.get(type(value), "an integer")


def is_float(expr: nodes.Expr) -> bool:
    """Whether a FLOAT stands somewhere in an expression."""
    return any(isinstance(part, nodes.Real) for part in _leaves(expr))


def _float_step(sign: str, left: float, right: float) -> float:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    return left / right if sign == "/" else left % right


def _leaves(expr: nodes.Expr) -> list[nodes.Expr]:
    """The literals and names of an expression."""
    found: list[nodes.Expr] = []
    todo = [expr]
    while todo:
        part = todo.pop()
        if isinstance(part, nodes.Negate):
            todo.append(part.operand)
        elif isinstance(part, nodes.Chain):
            todo += [part.first, *(operand for _, operand in part.rest)]
        else:
            found.append(part)
    return found


def _names(expr: nodes.Expr) -> list[nodes.Name]:
    return [part for part in _leaves(expr) if isinstance(part, nodes.Name)]


def _loop_variable(index: Index) -> str:
    """The name of one loop variable that an index uses."""
    todo = [atom for atom, _ in index.terms]
    while todo:
        atom = todo.pop()
        if isinstance(atom, Variable):
            return atom.name
        todo += [inner for side in (atom.left, atom.right) for inner, _ in side.terms]
    return ""


def _shown(span: Span) -> str:
    text = " ".join(span.text[:200].split())
    return text if len(text) <= 60 else text[:59] + "…"
