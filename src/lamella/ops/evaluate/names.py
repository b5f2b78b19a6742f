"""Names, literals and the members of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.rules.names import NO_MEMBER
from lamella.ops.evaluate.compiler import Compiler, guarded, read
from lamella.ops.problem import Fault
from lamella.ops.scalars.values import SCALARS, Code, Scope, spell, word_of

CONSTANTS: Mapping[str, float] = {"inf": math.inf, "pi": math.pi}


def compile_literal(_: Compiler, node: nodes.Integer | nodes.Real | nodes.Bool) -> Code:
    """A number or a truth value."""
    value = node.value
    return lambda scope: value


def compile_constant(_: Compiler, node: nodes.Constant) -> Code:
    """`inf` or `pi`."""
    value = CONSTANTS[node.name]
    return lambda scope: value


def compile_omitted(_: Compiler, node: nodes.Omitted) -> Code:
    """`~`: null."""
    return lambda scope: None


def compile_text(_: Compiler, node: nodes.Text) -> Code:
    """A string."""
    value = unescape(node.value)
    return lambda scope: value


def unescape(text: str) -> str:
    """A string without the backslashes that keep its braces."""
    return text.replace("\\{", "{").replace("\\}", "}")


def compile_format(compiler: Compiler, node: nodes.Format) -> Code:
    """A string with values in it."""
    pieces = [unescape(item) if isinstance(item, str) else compiler.compile(item) for item in node.parts]

    def _run(scope: Scope) -> object:
        words = [item if isinstance(item, str) else spell(item(scope)) for item in pieces]
        compiler.arithmetic.keep_items(sum(map(len, words)))
        return "".join(words)

    return guarded(_run, node.span)


def compile_name(_: Compiler, node: nodes.Name) -> Code:
    """An identifier."""
    return read(node.id, node.span)


def compile_null_test(_: Compiler, node: nodes.NullTest) -> Code:
    """`?name`."""
    code = read(node.name, node.span)
    return lambda scope: code(scope) is not None


def compile_member(_: Compiler, node: nodes.Member) -> Code:
    """`x.shape`, `x.rank` or `x.size`."""
    code, member = read(node.name, node.span), _MEMBERS[node.field]

    def _run(scope: Scope) -> object:
        value = code(scope)
        return None if value is None else member(value)

    return guarded(_run, node.span)


def shape_of(value: object) -> tuple[object, ...]:
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
    "shape": shape_of,
    "rank": lambda value: len(shape_of(value)),
    "size": _size,
}
