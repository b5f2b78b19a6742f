"""Expressions as text, with no more parentheses than they need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import singledispatch

from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.words import LEVELS, POWER

# --- strings as they are written ----------------------------------------------------------------------------


UNIT = re.compile(r"\\[\"']|[^\"'\\]+|[\s\S]")
MARKS = frozenset("\"'")


def quote(text: str) -> str:
    """A string; where it holds both kinds of quotes, as several adjacent literals."""
    return quote_parts([(text, False)])


def quote_parts(parts: Iterable[tuple[str, bool]]) -> str:
    """A string of texts and holes, of which each says whether it is a hole; a hole is never divided."""
    literals: list[list[str]] = [[]]
    forbidden: list[frozenset[str]] = [frozenset()]
    for unit, marks in _units(parts):
        if forbidden[-1] | marks == MARKS and literals[-1]:
            literals.append([])
            forbidden.append(frozenset())
        literals[-1].append(unit)
        forbidden[-1] |= marks
    pairs = zip(literals, forbidden, strict=True)
    return " ".join(_literal("".join(units), "'" if '"' in marks else '"') for units, marks in pairs)


def _literal(text: str, mark: str) -> str:
    return f"{mark}{text}{mark}"


def _units(parts: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, frozenset[str]]]:
    """What may not be divided, each with the quotes that cannot enclose it."""
    for text, is_hole in parts:
        for unit in [text] if is_hole else UNIT.findall(text):
            is_escape = not is_hole and unit.startswith("\\")
            yield unit, frozenset() if is_escape else MARKS.intersection(unit)


INDEXED = (n.Name, n.Bool, n.Constant, n.List, n.Call, n.Cast, n.Member, n.Index, n.Access)
ENDS_WITH_INTEGER = re.compile(r"(?:^|[^0-9A-Za-z_.])[0-9]+$")
SIGNED, PRIMARY = POWER + 1, POWER + 2

Part = n.Expr | n.Item | n.Omitted


@singledispatch
def write_expression(node: Part) -> str:
    """The canonical text of an expression, an item of a list, an index or an extent."""
    raise TypeError(f"{type(node).__name__} is not an expression")


def write_before(node: n.Expr | n.Omitted, mark: str) -> str:
    """An expression that a mark follows, in parentheses where the mark would else be taken for a part of it."""
    text = write_expression(node)
    if mark == ":":
        return _apart(text, _is_open(node))
    if mark == "..":
        return f"({text})" if text.endswith(".") else f"{text} " if ENDS_WITH_INTEGER.search(text) else text
    return _apart(text, text.endswith("|"))


def write_behind_bar(node: n.Expr) -> str:
    """An expression that follows a bar: two bars in a row would be one sign."""
    text = write_expression(node)
    return _apart(text, text.startswith("|"))


def _apart(text: str, is_needed: bool) -> str:
    return f"({text})" if is_needed else text


def _is_open(node: Part) -> bool:
    """Whether a colon behind a node would add a branch to a selection at its end."""
    while not isinstance(node, n.Select) or node.otherwise is not None:
        if isinstance(node, n.Select) and node.otherwise is not None:
            node = node.otherwise
        elif isinstance(node, n.Coalesce):
            node = node.default
        elif isinstance(node, n.Substitute):
            node = node.value
        else:
            return False
    return True


# --- precedence ---------------------------------------------------------------------------------------------


def _level(node: n.Expr) -> int:
    """How tight a node binds; complete expressions do not bind at all."""
    if isinstance(node, n.Chain):
        return LEVELS[node.rest[0][0]]
    if isinstance(node, n.Fold):
        return LEVELS[node.sign]
    if isinstance(node, (n.Select, n.Coalesce, n.Substitute)):
        return 0
    return SIGNED if isinstance(node, n.Unary) else PRIMARY


def _within(node: n.Expr, level: int) -> str:
    """A node as an operand: in parentheses if it binds less tight than this."""
    text = write_expression(node)
    return text if _level(node) >= level else f"({text})"


def _first(node: n.Expr, sign: str) -> str:
    """The first operand of a chain or of a fold that goes on with a sign."""
    level = LEVELS[sign]
    if isinstance(node, n.Fold) and LEVELS[node.sign] == level:
        return _within(node, level if node.sign == sign else PRIMARY)
    return _within(node, PRIMARY if level == POWER else level + 1)


def _operand(sign: str, node: n.Expr) -> str:
    if sign != "**":
        return _within(node, LEVELS[sign] + 1)
    inner: n.Expr = node
    while isinstance(inner, n.Unary):
        inner = inner.operand
    return _within(node, PRIMARY if isinstance(inner, n.Chain) else SIGNED)


@write_expression.register
def _(node: n.Chain) -> str:
    parts = [_first(node.first, node.rest[0][0])]
    for sign, operand in node.rest:
        parts += [sign, _operand(sign, operand)]
    return " ".join(parts)


@write_expression.register
def _(node: n.Fold) -> str:
    is_level = isinstance(node.operand, n.Chain) and _level(node.operand) == LEVELS[node.sign]
    operand = write_expression(node.operand) if is_level else _first(node.operand, node.sign)
    return f"{operand} {node.sign} {'...' if node.cumulative else '..'}"


@write_expression.register
def _(node: n.Unary) -> str:
    return node.sign + _within(node.operand, POWER)


@write_expression.register
def _(node: n.Select) -> str:
    condition = _within(node.condition, 1)
    if node.otherwise is None:
        return f"{condition} ? {write_expression(node.then)}"
    return f"{condition} ? {write_before(node.then, ':')} : {write_expression(node.otherwise)}"


@write_expression.register
def _(node: n.Coalesce) -> str:
    return f"{_within(node.value, 1)} ?? {write_expression(node.default)}"


# --- values -------------------------------------------------------------------------------------------------


@write_expression.register
def _(node: n.Format) -> str:
    parts = (
        (part, False) if isinstance(part, str) else ("{" + write_expression(part) + "}", True)
        for part in node.parts
    )
    return quote_parts(parts)


@write_expression.register
def _(node: n.Cast) -> str:
    return f"{node.type}({'' if node.operand is None else write_expression(node.operand)})"


@write_expression.register
def _(node: n.Bounded) -> str:
    index = write_expression(node.index)
    if node.below is None or node.above is None:
        return f"|{_apart(index, index.startswith('|') or index.endswith('|'))}|"
    index = write_behind_bar(node.index)
    return f"|{index} <> {write_before(node.below, ':')} : {write_before(node.above, '|')}|"


@write_expression.register
def _(node: n.Range) -> str:
    begin = "" if node.begin is None else write_before(node.begin, ":")
    if node.step is None:
        return f"{begin}:{'' if node.end is None else write_expression(node.end)}"
    end = "" if node.end is None else write_before(node.end, ":")
    return f"{begin}:{end}:{write_expression(node.step)}"


@write_expression.register
def _(node: n.Expand) -> str:
    count = "" if node.count is None else f"({write_expression(node.count)})"
    return f"{write_before(node.operand, '..')}..{count}"


def write_all(nodes: tuple[Part, ...]) -> str:
    """Nodes with commas between them."""
    return ", ".join(map(write_expression, nodes))


@write_expression.register
def _(node: n.Index) -> str:
    text = write_expression(node.operand)
    operand = text if isinstance(node.operand, INDEXED) else f"({text})"
    return f"{operand}[{write_expression(node.index)}]"


@write_expression.register
def _(node: n.Access) -> str:
    item = "" if node.item is None else f"[{write_expression(node.item)}]"
    is_plain = len(node.indices) == 1 and not isinstance(node.indices[0], n.Expand)
    return f"{node.tensor}{item}[{write_all(node.indices)}{',' if is_plain else ''}]"


@write_expression.register
def _(node: n.Integer) -> str:
    return str(node.value)


@write_expression.register
def _(node: n.Real) -> str:
    return repr(node.value)


@write_expression.register
def _(node: n.Bool) -> str:
    return "true" if node.value else "false"


@write_expression.register
def _(node: n.Constant) -> str:
    return node.name


@write_expression.register
def _(node: n.Text) -> str:
    return quote(node.value)


@write_expression.register
def _(node: n.Name) -> str:
    return node.id


@write_expression.register
def _(_: n.Omitted) -> str:
    return "~"


@write_expression.register
def _(node: n.Member) -> str:
    return f"{node.name}.{node.field}"


@write_expression.register
def _(node: n.NullTest) -> str:
    return f"?{node.name}"


@write_expression.register
def _(node: n.Zip) -> str:
    return f"({write_all(node.operands)}).."


@write_expression.register
def _(node: n.List) -> str:
    return f"[{write_all(node.items)}]"


@write_expression.register
def _(node: n.Substitute) -> str:
    return f"{write_expression(node.target)} <- {write_expression(node.value)}"


@write_expression.register
def _(node: n.Call) -> str:
    return f"`{node.function}`({write_expression(node.operand)})"
