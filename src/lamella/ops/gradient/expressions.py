"""Derivatives of the scalar expressions of formulas: ∂e/∂a for an element a of a tensor, as an expression again.

    (u + v)' = u' + v'    (u · v)' = u' · v + u · v'    (c ? u : v)' = c ? u' : v'    (u ?? v)' = u is there ? u' : v'

Indices and conditions have no derivative. At a tie the second operand of `<<` and `>>` takes all: relu is flat at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import MappingProxyType

from lamella.base.errors import Unsupported
from lamella.lang.skriptnd import nodes as n

ZERO, ONE = n.Real(0.0), n.Real(1.0)
SUMS, PRODUCTS = ("+", "-"), ("*", "/", "%")
FLAT = frozenset({"floor", "ceil", "round", "sign"})
"""Functions whose derivative is 0 wherever they have one."""
NAMING = (n.NullTest, n.Member)
"""Expressions that say a name which is none of an expression inside them."""
LOGIC = frozenset({"=>", "&&", "||", "^", "<", "<=", ">", ">=", "==", "!=", "is", "in"})


# --- building expressions -----------------------------------------------------------------------------------


def negative(one: n.Expr) -> n.Expr:
    """The negative."""
    if isinstance(one, n.Unary) and one.sign == "-":
        return one.operand
    return one if one == ZERO else n.Unary("-", one)


def total(one: n.Expr, two: n.Expr) -> n.Expr:
    """The sum of two."""
    if one == ZERO or two == ZERO:
        return two if one == ZERO else one
    if isinstance(two, n.Unary) and two.sign == "-":
        return n.Chain(one, (("-", two.operand),))
    return n.Chain(one, (("+", two),))


def product(one: n.Expr, two: n.Expr) -> n.Expr:
    """The product of two."""
    if ZERO in (one, two):
        return ZERO
    if one == ONE or two == ONE:
        return two if one == ONE else one
    if isinstance(one, n.Unary) and one.sign == "-":
        return negative(product(one.operand, two))
    if isinstance(two, n.Unary) and two.sign == "-":
        return negative(product(one, two.operand))
    return n.Chain(one, (("*", two),))


def quotient(one: n.Expr, two: n.Expr) -> n.Expr:
    """The quotient of two."""
    return ZERO if one == ZERO else n.Chain(one, (("/", two),))


def choice(condition: n.Expr, one: n.Expr, two: n.Expr) -> n.Expr:
    """One or the other, by a condition."""
    return one if one == two else n.Select(condition, one, two)


def _square(one: n.Expr) -> n.Expr:
    return n.Chain(one, (("*", one),))


def _less(one: n.Expr, two: n.Expr) -> n.Expr:
    return n.Chain(one, (("-", two),))


def _more(one: n.Expr, two: n.Expr) -> n.Expr:
    return n.Chain(one, (("+", two),))


def _call(function: str, one: n.Expr) -> n.Expr:
    return n.Call(function, one)


_ERF = product(quotient(n.Real(2.0), _call("sqrt", n.Constant("pi"))), ONE)

SLOPES: Mapping[str, Callable[[n.Expr], n.Expr]] = MappingProxyType(
    {
        "sqrt": lambda x: quotient(n.Real(0.5), _call("sqrt", x)),
        "exp": lambda x: _call("exp", x),
        "log": lambda x: quotient(ONE, x),
        "sin": lambda x: _call("cos", x),
        "cos": lambda x: negative(_call("sin", x)),
        "tan": lambda x: _more(ONE, _square(_call("tan", x))),
        "asin": lambda x: quotient(ONE, _call("sqrt", _less(ONE, _square(x)))),
        "acos": lambda x: negative(quotient(ONE, _call("sqrt", _less(ONE, _square(x))))),
        "atan": lambda x: quotient(ONE, _more(ONE, _square(x))),
        "sinh": lambda x: _call("cosh", x),
        "cosh": lambda x: _call("sinh", x),
        "tanh": lambda x: _less(ONE, _square(_call("tanh", x))),
        "asinh": lambda x: quotient(ONE, _call("sqrt", _more(_square(x), ONE))),
        "acosh": lambda x: quotient(ONE, _call("sqrt", _less(_square(x), ONE))),
        "atanh": lambda x: quotient(ONE, _less(ONE, _square(x))),
        "erf": lambda x: product(_ERF, _call("exp", negative(_square(x)))),
        "abs": lambda x: _call("sign", x),
        "frac": lambda x: ONE,
    }
)
"""The derivative of each built-in function."""


# --- what stands in an expression ---------------------------------------------------------------------------


def parts_of(node: object) -> Sequence[object]:
    """The nodes directly inside a node."""
    if isinstance(node, (tuple, list)):
        return node
    kind: type = type(node)
    return [getattr(node, name) for name in _places_of(kind)]


@cache
def _places_of(kind: type) -> tuple[str, ...]:
    """The fields of a class in which the parts of its nodes stand; what is no class of nodes has none."""
    if not is_dataclass(kind):
        return ()
    return tuple(item.name for item in fields(kind) if item.name not in ("span", "notes"))


def names_in(node: object) -> Iterator[str]:
    """The names that an expression uses, those of tensors included, in the order in which they stand there."""
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, n.Name):
            yield item.id
        elif isinstance(item, NAMING):
            yield item.name
        elif isinstance(item, n.Access):
            yield item.tensor
        waiting += [part for part in reversed(parts_of(item)) if not isinstance(part, str)]


def differentiable(node: object) -> Iterator[n.Access | n.Name]:
    """Accesses and names whose value passes into that of an expression smoothly: not indices, not conditions."""
    if isinstance(node, n.Access | n.Name):
        yield node
    elif isinstance(node, n.Select):
        yield from differentiable(node.then)
        yield from differentiable(node.otherwise)
    elif isinstance(node, n.Index):
        yield from differentiable(node.operand)
    elif isinstance(node, n.Chain):
        if not any(sign in LOGIC for sign, _ in node.rest):
            yield from differentiable((node.first, *(item for _, item in node.rest)))
    elif not (isinstance(node, n.Call) and node.function in FLAT):
        for part in parts_of(node):
            if not isinstance(part, str):
                yield from differentiable(part)


def _may_be_null(node: object) -> bool:
    """Whether an expression has a choice without a second branch in it."""
    is_open = isinstance(node, n.Select) and node.otherwise is None
    return is_open or any(_may_be_null(part) for part in parts_of(node) if not isinstance(part, str))


def _logistic_power(node: n.Expr) -> n.Expr | None:
    """`w` of `1 + exp(w)`; None where an expression is another one."""
    if not isinstance(node, n.Chain) or len(node.rest) != 1 or node.rest[0][0] != "+":
        return None
    one, two = node.first, node.rest[0][1]
    if isinstance(one, n.Call):
        one, two = two, one
    is_one = isinstance(one, n.Real | n.Integer) and one.value == 1
    return two.operand if is_one and isinstance(two, n.Call) and two.function == "exp" else None


# --- derivatives --------------------------------------------------------------------------------------------


class Derivative:
    """∂/∂access of expressions; `locals` are the derivatives of names, `optional` the names that may be null.

    Where an access picks several elements at once, so do derivatives: one for each of them.
    """

    def __init__(
        self, access: n.Access, locals: Mapping[str, n.Expr], optional: frozenset[str], is_pack: bool = False
    ) -> None:
        self.access, self.locals, self.optional, self.is_pack = access, locals, optional, is_pack

    def of(self, node: n.Expr | None) -> n.Expr:
        """The derivative of an expression; ZERO where it does not depend on the element."""
        if node == self.access:
            return ONE
        match node:
            case n.Name():
                return self.locals.get(node.id, ZERO)
            case n.Unary("+" | "-"):
                inner = self.of(node.operand)
                return negative(inner) if node.sign == "-" else inner
            case n.Chain():
                return self._of_chain(node)
            case n.Select():
                return choice(node.condition, self.of(node.then), self.of(node.otherwise))
            case n.Coalesce():
                return self._of_coalesce(node)
            case n.Call():
                return self._of_call(node)
            case n.Cast():
                return self.of(node.operand) if node.operand is not None else ZERO
            case n.Fold():
                return self._of_fold(node)
            case _:
                self._refuse_inside(node)
                return ZERO

    def _refuse_inside(self, node: object) -> None:
        """Everything else is constant, or has no derivative that can be written here."""
        if any(self._depends(item) for item in differentiable(node) if item is not node):
            raise Unsupported(
                f"a {type(node).__name__.lower()} of '{self.access.tensor}' has no derivative here"
            )

    def _depends(self, item: n.Access | n.Name) -> bool:
        return item == self.access or (isinstance(item, n.Name) and item.id in self.locals)

    def _of_call(self, node: n.Call) -> n.Expr:
        inner = self.of(node.operand)
        if inner == ZERO or node.function in FLAT:
            return ZERO
        power = _logistic_power(node.operand)
        if node.function == "log" and power is not None:
            return product(self.of(power), _less(ONE, quotient(ONE, node.operand)))
        return product(inner, SLOPES[node.function](node.operand))

    def _of_coalesce(self, node: n.Coalesce) -> n.Expr:
        """Which side counts depends on the names in the first that may be null; others are always there."""
        there, missing = self.of(node.value), self.of(node.default)
        nullable = [item for item in dict.fromkeys(names_in(node.value)) if item in self.optional]
        if there == missing:
            return there
        if not nullable:
            # Only an item that a condition leaves out may still be missing.
            return n.Coalesce(there, missing) if _may_be_null(node.value) else there
        tests: list[n.Expr] = [n.NullTest(item) for item in nullable]
        test = tests[0] if len(tests) == 1 else n.Chain(tests[0], tuple(("&&", item) for item in tests[1:]))
        return choice(test, there, missing)

    def _of_fold(self, node: n.Fold) -> n.Expr:
        inner = self.of(node.operand)
        if inner == ZERO:
            return ZERO
        if node.cumulative or node.sign not in ("+", "*"):
            raise Unsupported(f"the fold '{node.sign} ..' has no derivative here")
        if node.sign == "+":
            return inner if self.is_pack else n.Fold(inner, "+")
        # Where a factor is 0 and moves, the product of the others would be needed; there this gives 0.
        is_zero = n.Chain(node.operand, (("==", ZERO),))
        shares = n.Select(is_zero, ZERO, quotient(inner, node.operand))
        return product(node, shares if self.is_pack else n.Fold(shares, "+"))

    def _of_chain(self, node: n.Chain) -> n.Expr:
        """From left to right: the last operator of a chain is applied to everything before it."""
        *before, (sign, right) = node.rest
        left = n.Chain(node.first, tuple(before)) if before else node.first
        if sign in LOGIC:
            return ZERO
        du, dv = self.of(left), self.of(right)
        if ZERO == du == dv:
            return ZERO
        power = _logistic_power(right)
        if sign == "/" and power is not None:
            # exp(w) / (1 + exp(w)) is 1 less 1 / (1 + exp(w)), which is a number where exp(w) is none any more.
            share = product(self.of(power), _less(ONE, quotient(ONE, right)))
            return total(quotient(du, right), negative(product(quotient(left, right), share)))
        return self._of_pair(sign, (left, du), (right, dv))

    @staticmethod
    def _of_pair(sign: str, one: tuple[n.Expr, n.Expr], two: tuple[n.Expr, n.Expr]) -> n.Expr:
        (u, du), (v, dv) = one, two
        match sign:
            case "+":
                return total(du, dv)
            case "-":
                return total(du, negative(dv))
            case "*":
                return total(product(du, v), product(u, dv))
            case "/":
                return total(quotient(du, v), negative(quotient(product(dv, u), _square(v))))
            case "%":
                # u % v is u less a whole number of v, which does not change.
                whole = quotient(_less(u, n.Chain(u, (("%", v),))), v)
                return total(du, negative(product(dv, whole)))
            case "<<" | ">>":
                is_first = n.Chain(u, (("<" if sign == "<<" else ">", v),))
                return choice(is_first, du, dv)
            case "**":
                power = n.Chain(u, (("**", n.Chain(v, (("-", ONE),))),))
                slope = product(du, product(v, power)) if du != ZERO else ZERO
                growth = (
                    product(dv, product(n.Chain(u, (("**", v),)), _call("log", u))) if dv != ZERO else ZERO
                )
                return total(slope, growth)
        raise Unsupported(f"'{sign}' has no derivative")
