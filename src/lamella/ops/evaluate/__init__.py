"""The value of every expression of the language, before the run and inside formulas."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.base.limits import DEFAULT, Limits
from lamella.lang.skriptnd import nodes
from lamella.ops.evaluate import access, lists, names, operators
from lamella.ops.evaluate.compiler import Compiler, Makers
from lamella.ops.evaluate.walk import Node
from lamella.ops.scalars.arithmetic import Budget
from lamella.ops.scalars.values import Code, Scope

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
        nodes.Unary: operators.compile_unary,
        nodes.Call: operators.compile_call,
        nodes.Cast: operators.compile_cast,
        nodes.Chain: operators.compile_chain,
        nodes.Fold: operators.compile_fold,
        nodes.Select: operators.compile_select,
        nodes.Coalesce: operators.compile_coalesce,
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
