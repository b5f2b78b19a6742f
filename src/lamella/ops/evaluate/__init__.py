"""The value of every expression of the language, before the run and inside formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from lamella.base.limits import DEFAULT, Limits
from lamella.lang.skriptnd import nodes
from lamella.ops.evaluate import access, lists, names
from lamella.ops.evaluate.compiler import Compiler, Makers, guarded, read, word_in
from lamella.ops.evaluate.elementwise import lift_unary, spread
from lamella.ops.evaluate.folds import accumulate, fold
from lamella.ops.evaluate.walk import Node, infer, primitive
from lamella.ops.scalars import functions
from lamella.ops.scalars.arithmetic import Binary, Budget
from lamella.ops.scalars.values import Code, Scope

# --- operators, folds, choices, casts and functions ---------------------------------------------------------


SHORT = {"&&": False, "||": True, "=>": False}
"""The left side that decides an operator without its right side."""


def compile_chain(compiler: Compiler, node: nodes.Chain) -> Code:
    """Operators of one level, from left to right."""
    code = compiler.compile(node.first)
    if len(node.rest) == 1:
        sign, operand = node.rest[0]
        return guarded(_step(compiler, sign, code, compiler.compile(operand)), node.span)
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

    return guarded(_run, node.span)


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


def compile_unary(compiler: Compiler, node: nodes.Unary) -> Code:
    """`+x`, `-x` or `!x`."""
    return _applied(compiler, node, functions.unary(node.sign))


def compile_call(compiler: Compiler, node: nodes.Call) -> Code:
    """A built-in function."""
    return _applied(compiler, node, partial(functions.call, node.function))


def _applied(compiler: Compiler, node: nodes.Unary | nodes.Call, rule: Callable[[object], object]) -> Code:
    operand, lifted, spent = compiler.compile(node.operand), lift_unary(rule), compiler.arithmetic.spent
    return guarded(lambda scope: lifted(spent(operand(scope))), node.span)


def compile_cast(compiler: Compiler, node: nodes.Cast) -> Code:
    """`type(x)` or `type()`."""
    operand = compiler.compile_some(node.operand)
    word = primitive(node.type)
    generic = read(node.type, node.span)

    def _run(scope: Scope) -> object:
        target = word or word_in(generic(scope))
        if operand is None:
            return functions.DEFAULTS[target]
        return lift_unary(partial(functions.cast, target))(compiler.arithmetic.spent(operand(scope)))

    return guarded(_run, node.span)


def compile_fold(compiler: Compiler, node: nodes.Fold) -> Code:
    """`pack sign ..` and `pack sign ...`."""
    operand, sign, arithmetic = compiler.compile(node.operand), node.sign, compiler.arithmetic
    if node.cumulative:
        return guarded(lambda scope: accumulate(arithmetic, sign, operand(scope)), node.span)
    word = infer(node.operand, compiler.words)
    generic = bool(word) and primitive(word) is None

    def _run(scope: Scope) -> object:
        return fold(arithmetic, sign, operand(scope), word_in(scope.get(word)) if generic else word)

    return guarded(_run, node.span)


def compile_select(compiler: Compiler, node: nodes.Select) -> Code:
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

    return guarded(_run, node.span)


def _widened(value: object, mask: tuple[object, ...]) -> object:
    """What all items of a mask choose."""
    return spread("?:", lambda pair: pair[1], (mask, value))


def compile_coalesce(compiler: Compiler, node: nodes.Coalesce) -> Code:
    """`value ?? default`."""
    value, default = compiler.compile(node.value), compiler.compile(node.default)

    def _run(scope: Scope) -> object:
        found = value(scope)
        return default(scope) if found is None else found

    return _run


__all__ = ["Code", "Compiler", "Scope", "evaluate", "make_compiler"]

_MAKERS: Makers = MappingProxyType(
    {
        nodes.Integer: names.compile_literal,
        nodes.Real: names.compile_literal,
        nodes.Bool: names.compile_literal,
        nodes.Constant: names.compile_constant,
        nodes.Text: names.compile_text,
        nodes.Format: names.compile_format,
        nodes.Name: names.compile_name,
        nodes.NullTest: names.compile_null_test,
        nodes.Member: names.compile_member,
        nodes.Omitted: names.compile_omitted,
        nodes.Unary: compile_unary,
        nodes.Call: compile_call,
        nodes.Cast: compile_cast,
        nodes.Chain: compile_chain,
        nodes.Fold: compile_fold,
        nodes.Select: compile_select,
        nodes.Coalesce: compile_coalesce,
        nodes.List: lists.compile_list,
        nodes.Index: lists.compile_index,
        nodes.Substitute: lists.compile_substitute,
        nodes.Expand: lists.compile_misplaced,
        nodes.Zip: lists.compile_misplaced,
        nodes.Range: lists.compile_misplaced,
        nodes.Bounded: access.compile_guard,
        nodes.Access: access.compile_access,
    }
)


def make_compiler(
    limits: Limits = DEFAULT, words: Mapping[str, str] | None = None, budget: Budget | None = None
) -> Compiler:
    """What makes the expressions of one operator ready; `words` are the types of the names it declares."""
    return Compiler(_MAKERS, limits, words or {}, budget)


def evaluate(expression: Node, scope: Scope, limits: Limits = DEFAULT) -> object:
    """The value of one expression; a Problem says why it has none."""
    return make_compiler(limits).compile(expression)(scope)
