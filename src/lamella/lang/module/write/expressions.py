"""Expressions as text, with no more parentheses than they need."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from lamella.lang.module import nodes as n

# --- literals -----------------------------------------------------------------------------------------------


ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def write_real(value: float) -> str:
    """The shortest text that reads back as the same number; it has a point or an exponent."""
    mantissa, mark, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


def quote(text: str) -> str:
    """A string; what cannot be seen is escaped."""
    return f'"{"".join(map(_character, text))}"'


def _character(char: str) -> str:
    if char in ESCAPES:
        return ESCAPES[char]
    return char if char.isprintable() or char > "\uffff" else f"\\u{ord(char):04x}"


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


# --- types and paths ----------------------------------------------------------------------------------------


Type = n.ConfigType | n.PortType | n.ParamType


@singledispatch
def write_type(node: Type) -> str:
    """The canonical text of a type: of a config parameter, a tensor, or what `params:` declares."""
    raise TypeError(f"{type(node).__name__} is not a type")


@write_type.register
def _(node: n.ConfigType) -> str:
    text = f"enum({', '.join(node.choices)})" if node.name == "enum" else node.name
    return (f"[{text}]" if node.listed else text) + "?" * node.optional


@write_type.register
def _(node: n.TensorType) -> str:
    parts = [*map(_dim, node.dims), *([] if node.dtype is None else [node.dtype])]
    text = f"[{', '.join(parts)}]" if parts else "scalar"
    return text + "?" * node.optional


def _dim(node: n.Dim) -> str:
    if isinstance(node, n.Star):
        return "*"
    return "..." if isinstance(node, n.Unchanged) else write_expression(node)


@write_type.register
def _(node: n.TupleType) -> str:
    return f"({', '.join(map(write_type, node.items))})"


@write_type.register
def _(node: n.SequenceType) -> str:
    return f"tuple<{'' if node.item is None else write_type(node.item)}>"


@write_type.register
def _(node: n.ScalarType) -> str:
    return node.name + "?" * node.optional


@write_type.register
def _(node: n.InstanceType) -> str:
    # With parentheses a module of this name would be the parameter that another one shares.
    if node.module == "tied_to" and not node.arguments:
        return node.module
    return node.module + write_arguments(node.arguments)


@write_type.register
def _(node: n.ArrayType) -> str:
    return f"[{write_expression(node.size)}] x {write_type(node.element)}"


@write_type.register
def _(node: n.TiedType) -> str:
    return f"tied_to({write_path(node.path)})"


def write_path(node: n.Path) -> str:
    """`blocks[{i}].attention.qkv_weight`."""
    return ".".join(part.name + "".join(map(_place, part.indices)) for part in node.parts)


def _place(index: str | int) -> str:
    return f"[{{{index}}}]" if isinstance(index, str) else f"[{index}]"


def write_if(condition: n.Expr | None) -> str:
    """` if condition`, or nothing."""
    return "" if condition is None else f" if {write_condition(condition)}"


# --- annotations and what they stand behind -----------------------------------------------------------------


def write_annotation(node: n.Annotation) -> str:
    """`@name` or `@name(argument, …)`."""
    return f"@{node.name}{write_arguments(node.arguments) if node.arguments else ''}"


def write_annotations(annotations: Iterable[n.Annotation]) -> str:
    """Annotations behind something, each after a space."""
    return "".join(f" {write_annotation(item)}" for item in annotations)


def write_config_param(node: n.ConfigParam) -> str:
    """`name: type = default`; without a type `name=default`."""
    default = "" if node.default is None else write_expression(node.default)
    if node.type is None:
        return f"{node.name}={default}" if default else node.name
    return f"{node.name}: {write_type(node.type)}" + (f" = {default}" if default else "")


def write_port(node: n.Port) -> str:
    """`name: type = default @annotation…`, as far as it is given."""
    text = _port_head(node)
    if node.default is not None:
        text += f" = {write_expression(node.default)}"
    return text + write_annotations(node.annotations)


def _port_head(node: n.Port) -> str:
    if node.name is None:
        return "" if node.type is None else write_type(node.type)
    if node.type is None:
        return node.name
    if isinstance(node.type, n.SequenceType) and node.type.item is None:
        return f"{node.name}..."
    return f"{node.name}: {write_type(node.type)}"


def write_param(node: n.Param) -> str:
    """`+path: type if condition else type @annotation…`."""
    text = f"{'+' * node.added}{write_path(node.path)}: {write_type(node.type)}{write_if(node.condition)}"
    if node.otherwise is not None:
        text += f" else {write_type(node.otherwise)}"
    return text + write_annotations(node.annotations)
