"""Expressions as text, with no more parentheses than they need."""

from __future__ import annotations

from functools import singledispatch

from lamella.lang.module import nodes as n
from lamella.lang.module.write.strings import quote, write_real

LEVELS = {
    **dict.fromkeys(("or", "||"), 1),
    **dict.fromkeys(("and", "&&"), 2),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "not in"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "//", "%"), 6),
    "**": 8,
}
"""How tight a sign binds; a selection does not bind at all."""
SIGNS = {"not": 3, "-": 7, "!": 7}
POWER, PRIMARY = 8, 9

POSTFIX = (n.Member, n.Index, n.Call)


@singledispatch
def write_expression(node: n.Subscript) -> str:
    """The canonical text of an expression or of an index."""
    raise TypeError(f"{type(node).__name__} is not an expression")


def write_condition(node: n.Expr) -> str:
    """An expression behind `if`: a selection stands in parentheses, since an `else` may follow."""
    return _within(node, 1)


def is_primary(node: n.Expr) -> bool:
    """Whether a node needs no parentheses anywhere."""
    return _level(node) == PRIMARY


def write_argument(node: n.Argument) -> str:
    """`value` or `name=value`."""
    value = write_expression(node.value)
    return value if node.name is None else f"{node.name}={value}"


def write_arguments(arguments: tuple[n.Argument, ...]) -> str:
    """`(argument, …)`."""
    return f"({', '.join(map(write_argument, arguments))})"


# --- precedence ---------------------------------------------------------------------------------------------


def _level(node: n.Expr) -> int:
    if isinstance(node, n.Chain):
        return LEVELS[node.rest[0][0]]
    if isinstance(node, n.Select):
        return 0
    if isinstance(node, n.Integer | n.Real):
        return SIGNS["-"] if node.value < 0 else PRIMARY
    return SIGNS[node.sign] if isinstance(node, n.Unary) else PRIMARY


def _within(node: n.Expr, level: int) -> str:
    """A node as an operand: in parentheses if it binds less tight than this."""
    text = write_expression(node)
    return text if _level(node) >= level else f"({text})"


@write_expression.register
def _(node: n.Chain) -> str:
    level = LEVELS[node.rest[0][0]]
    if level == POWER:
        (_, exponent), *_ = node.rest
        return f"{_within(node.first, PRIMARY)} ** {_exponent(exponent)}"
    parts = [_within(node.first, level + 1)]
    for sign, operand in node.rest:
        parts += [sign, _within(operand, level + 1)]
    return " ".join(parts)


def _exponent(node: n.Expr) -> str:
    """What follows `**`: a sign and another power need no parentheses there."""
    is_bare = not isinstance(node, n.Unary) or node.sign == "-"
    return _within(node, SIGNS["-"] if is_bare else PRIMARY)


@write_expression.register
def _(node: n.Unary) -> str:
    if node.sign == "not":
        return f"not {_within(node.operand, LEVELS['=='])}"
    return node.sign + _within(node.operand, POWER if node.sign == "-" else PRIMARY)


@write_expression.register
def _(node: n.Select) -> str:
    value, condition = _within(node.value, 1), _within(node.condition, 1)
    return f"{value} if {condition} else {write_expression(node.otherwise)}"


# --- operands -----------------------------------------------------------------------------------------------


@write_expression.register
def _(node: n.Integer) -> str:
    return str(node.value)


@write_expression.register
def _(node: n.Real) -> str:
    return write_real(node.value)


@write_expression.register
def _(node: n.Bool) -> str:
    return "true" if node.value else "false"


@write_expression.register
def _(node: n.Text) -> str:
    return quote(node.value)


@write_expression.register
def _(_: n.Null) -> str:
    return "None"


@write_expression.register
def _(node: n.Name) -> str:
    return node.id


@write_expression.register
def _(node: n.List) -> str:
    return f"[{', '.join(map(write_expression, node.items))}]"


@write_expression.register
def _(node: n.Set) -> str:
    return f"{{{', '.join(map(write_expression, node.items))}}}"


@write_expression.register
def _(node: n.Dict) -> str:
    entries = (f"{_key(item.key)}: {write_expression(item.value)}" for item in node.entries)
    return f"{{{', '.join(entries)}}}"


def _key(text: str) -> str:
    """A key of a dict: a name as it is, anything else as a string."""
    return text if text.isascii() and text.isidentifier() else quote(text)


@write_expression.register
def _(node: n.Slice) -> str:
    begin = "" if node.begin is None else write_expression(node.begin)
    return f"{begin}:{'' if node.end is None else write_expression(node.end)}"


@write_expression.register
def _(_: n.Rest) -> str:
    return "..."


@write_expression.register
def _(node: n.Member | n.Index | n.Call) -> str:
    """From the outside in without recursion: such chains may be long."""
    inner: n.Expr = node
    suffixes: list[str] = []
    while isinstance(inner, POSTFIX):
        suffixes.append(_suffix(inner))
        inner = inner.callee if isinstance(inner, n.Call) else inner.operand
    return _within(inner, PRIMARY) + "".join(reversed(suffixes))


def _suffix(node: n.Member | n.Index | n.Call) -> str:
    if isinstance(node, n.Member):
        return f".{node.field}"
    if isinstance(node, n.Index):
        return f"[{', '.join(map(write_expression, node.items))}]"
    return write_arguments(node.arguments)
