"""The declaring blocks of an operator, in the order in which they depend on each other."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import Context, Place
from lamella.lang.skriptnd.check.declare.attributes import (
    check_defaults,
    declare_attributes,
    is_plain,
    read_lengths,
)
from lamella.lang.skriptnd.check.declare.inputs import check_input_defaults, declare_inputs
from lamella.lang.skriptnd.check.declare.patterns import names_of
from lamella.lang.skriptnd.check.declare.tensors import declare_tensors
from lamella.lang.skriptnd.check.declare.usings import check_assertions, declare_usings, early_usings
from lamella.lang.skriptnd.check.kinds import ABSTRACT, belongs, is_type
from lamella.lang.skriptnd.check.names import names_in
from lamella.lang.skriptnd.nodes import Assertion, Dtype, Operator, Using
from lamella.lang.skriptnd.rules import names, types


def declare(context: Context, operator: Operator) -> None:
    """Declare everything that the blocks before `@lower` and `@compose` declare."""
    _declare_types(context, operator)
    attributes = list(operator.parameters("attrib"))
    inputs = list(operator.parameters("input"))
    usings = [item for item in operator.items("using") if isinstance(item, Using)]
    plain = {item.name for item in attributes if is_plain(item)}
    early = early_usings(usings, _known_later(operator) - plain)
    hidden = frozenset(result.name for item in usings for result in names_of(item.target))
    hidden -= {item.name for item in (*attributes, *inputs)}
    with context.at(Place("attrib", hidden=hidden)):
        declare_attributes(context, attributes)
    with context.at(Place("using")):
        declare_usings(context, early)
    known = plain | {result.name for item in early for result in names_of(item.target)}
    with context.at(Place("input", hidden=hidden - known)):
        declare_inputs(context, inputs, known, operator.graph)
    with context.at(Place("attrib", hidden=hidden)):
        bound = {*known, *(context.scope.names.keys() - {item.name for item in attributes})}
        read_lengths(context, attributes)
        check_defaults(context, attributes, bound)
    with context.at(Place("input", hidden=hidden - known)):
        check_input_defaults(context, inputs)
    _declare_rest(context, operator, usings, {id(item) for item in early})


def _known_later(operator: Operator) -> set[str]:
    """The names that attributes, inputs and their shapes declare."""
    items = (*operator.parameters("attrib"), *operator.parameters("input"))
    ranks = {item.type.rank for item in items if item.type.rank is not None}
    return {item.name for item in items} | ranks | {name for item in items for name in names_in(item.type)}


def _declare_types(context: Context, operator: Operator) -> None:
    """The generic types with what restricts them."""
    for item in operator.items("dtype"):
        if not isinstance(item, Dtype):
            continue
        if item.name in context.generics:
            context.report(names.DUPLICATE.at(item.span, name=item.name, what="a generic type"))
            continue
        if is_type(item.name):
            context.report(names.TYPE_NAME_TAKEN.at(item.span, name=item.name))
        if item.base not in ABSTRACT:
            context.report(types.DTYPE_BASE.at(item.span, name=item.name, type=item.base))
        elif item.default is not None and not (is_type(item.default) and belongs(item.default, item.base)):
            context.report(
                types.DTYPE_DEFAULT.at(item.span, name=item.name, type=item.default, base=item.base)
            )
        context.generics[item.name] = item.base if item.base in ABSTRACT else ""


def _declare_rest(context: Context, operator: Operator, usings: list[Using], done: set[int]) -> None:
    with context.at(Place("using")):
        declare_usings(context, usings, done)
    with context.at(Place("constant")):
        declare_tensors(context, list(operator.parameters("constant")), "constant")
    with context.at(Place("variable")):
        declare_tensors(context, list(operator.parameters("variable")), "variable")
    with context.at(Place("output")):
        declare_tensors(context, list(operator.parameters("output")), "output", operator.graph)
    with context.at(Place("assert")):
        assertions = [item for item in operator.items("assert") if isinstance(item, Assertion)]
        check_assertions(context, assertions)
