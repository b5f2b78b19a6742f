"""Types, parameters, formulas and components as text."""

from __future__ import annotations

import re

from lamella.base.dtype import find_in
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.words import KEYWORDS
from lamella.lang.skriptnd.write.expressions import (
    write_all,
    write_before,
    write_behind_bar,
    write_expression,
)

NAME = r"[A-Za-z_][0-9A-Za-z_]*"
INVOCATION = re.compile(rf"({NAME})((?:\.{NAME})*)(?: < {NAME} > \(|\()")
"""How an expression begins that would be read as an invocation."""

Piece = str | n.Block


def type_text(node: n.TypeSpec) -> str:
    """`optional real^(rank)[shape]..(length)`."""
    words = "optional " * node.optional + "dynamic " * node.dynamic
    rank = "" if node.rank is None else f"^({node.rank})"
    shape = "" if node.shape is None else shape_text(node.shape)
    return f"{words}{node.name}{rank}{shape}{pack_text(node.pack)}"


def shape_text(shape: tuple[n.Extent, ...]) -> str:
    """`[extent, …]`."""
    return f"[{', '.join(map(extent_text, shape))}]"


def extent_text(node: n.Extent) -> str:
    """`..static value|bound..(length)`."""
    head = ".." * node.spread + "static " * node.static
    last = node.value if node.bound is None else node.bound
    text = write_expression(last) if node.pack is None else write_before(last, "..")
    if node.bound is not None:
        text = f"({text})" if text.startswith("|") else text
        text = f"{write_before(node.value, '|')}|{text}"
    return f"{head}{text}{pack_text(node.pack)}"


def pack_text(node: n.Pack | None) -> str:
    """`..`, `..(length)` or `..(length|bound)`; nothing where there is no pack."""
    if node is None:
        return ""
    if node.length is None:
        return ".."
    control = f"{node.control} " if node.control else ""
    if node.bound is None:
        return f"..({control}{write_expression(node.length)})"
    return f"..({control}{write_before(node.length, '|')}|{write_behind_bar(node.bound)})"


def bounds_text(bounds: tuple[n.Bound, ...]) -> str:
    """`i < n, j < m`."""
    return ", ".join(f"{item.index} < {write_expression(item.limit)}" for item in bounds)


def pattern_text(node: n.Pattern | n.Unzip) -> str:
    """What stands on the left of `=`."""
    if isinstance(node, n.Omitted):
        return "~"
    if isinstance(node, n.ListPattern):
        return f"[{', '.join(map(pattern_text, node.items))}]"
    if isinstance(node, n.Unzip):
        return f"({', '.join(map(pattern_text, node.items))}){pack_text(node.pack)}"
    return f"{typed_text(node.name, node.type)}{pack_text(node.pack)}"


def typed_text(name: str, type_: n.TypeSpec | None) -> str:
    """`name: type`."""
    return name if type_ is None else f"{name}: {type_text(type_)}"


def printed_text(node: n.Printed) -> str:
    """`"label": value`."""
    label = "" if node.label is None else f"{write_expression(n.Text(node.label))}: "
    return label + write_expression(node.value)


def iteration_text(node: n.Iteration | None) -> str:
    """`..(index -> count)`; nothing where there is none."""
    if node is None:
        return ""
    count = "" if node.count is None else write_expression(node.count)
    if node.index is None:
        return f"..({count})"
    return f"..({node.index} -> {count})" if count else f"..({node.index} ->)"


# --- components ---------------------------------------------------------------------------------------------


def operator_text(operator: str, types: tuple[str, ...], attributes: tuple[n.Attribute, ...]) -> str:
    """`operator<types>{attributes}`."""
    named = f"<{', '.join(types)}>" if types else ""
    given = ", ".join(f"{item.name}={write_expression(item.value)}" for item in attributes)
    return f"{operator}{named}" + (f"{{{given}}}" if given else "")


def callee_pieces(node: n.Callee) -> list[Piece]:
    """An invocation, a block or an expression."""
    if isinstance(node, n.Block):
        return [f"{node.label}: {{" if node.label else "{", node, "}"]
    if isinstance(node, n.Invocation):
        label = f"{node.label}: " if node.label else ""
        head = operator_text(node.operator, node.types, node.attributes)
        return [f"{label}{head}({write_all(node.arguments)})"]
    text = write_expression(node)
    found = INVOCATION.match(text)
    if found is None or found[1] in KEYWORDS or (not found[2] and find_in("skriptnd", found[1])):
        return [text]
    return [f"({text})"]


def branch_pieces(node: n.Branch) -> list[Piece]:
    """`if c then a elif d then b else e`."""
    found: list[Piece] = []
    for word, (condition, consequent) in zip(("if", *["elif"] * len(node.cases)), node.cases, strict=False):
        found += [word, *callee_pieces(condition), "then", *callee_pieces(consequent)]
    return [*found, "else", *callee_pieces(node.otherwise)]


def loop_pieces(node: n.Loop) -> list[Piece]:
    """`with … for … while … do … while …`."""
    found: list[Piece] = []
    if node.carried:
        found.append("with " + ", ".join(map(carried_text, node.carried)))
    if node.scans:
        scans = (f"{item.name} : {write_expression(item.value)}" for item in node.scans)
        found.append("for " + ", ".join(scans))
    if node.before is not None:
        found += ["while", *callee_pieces(node.before)]
    found += [("unroll" if node.unroll else "do") + iteration_text(node.iteration)]
    found += callee_pieces(node.body)
    if node.after is not None:
        found += ["while", *callee_pieces(node.after)]
    return found


def carried_text(node: n.Carried) -> str:
    """`name: type = value`."""
    return f"{typed_text(node.name, node.type)} = {write_expression(node.value)}"


def component_pieces(node: n.Component) -> list[Piece]:
    """`results = value`."""
    results = ", ".join(map(pattern_text, node.results))
    if isinstance(node.value, n.Branch):
        pieces = branch_pieces(node.value)
    elif isinstance(node.value, n.Loop):
        pieces = loop_pieces(node.value)
    else:
        pieces = callee_pieces(node.value)
    return [f"{results} =", *pieces]
