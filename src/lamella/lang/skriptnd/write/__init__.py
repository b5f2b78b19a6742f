"""SkriptND nodes to canonical text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import singledispatchmethod
from typing import NamedTuple

from lamella.base.dtype import find_in
from lamella.base.lines import INDENT, Lines
from lamella.base.source import NO_TRIVIA, Trivia
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.nodes import Document
from lamella.lang.skriptnd.words import KEYWORDS, LEVELS, LOWERING_SIGNS
from lamella.lang.skriptnd.write.expressions import (
    write_all,
    write_before,
    write_behind_bar,
    write_expression,
)

# --- types, parameters, formulas and components as text -----------------------------------------------------


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
    assignments = ", ".join(f"{item.name}={write_expression(item.value)}" for item in attributes)
    return f"{operator}{named}" + (f"{{{assignments}}}" if assignments else "")


def callee_pieces(node: n.Callee) -> list[Piece]:
    """An invocation, a block or an expression."""
    if isinstance(node, n.Block):
        return [f"{node.label}: {{" if node.label else "{", node, "}"]
    if isinstance(node, n.Invocation):
        label = f"{node.label}: " if node.label else ""
        head = operator_text(node.operator, node.types, node.attributes)
        return [f"{label}{head}({write_all(node.arguments)})"]
    text = write_expression(node)
    invocation = INVOCATION.match(text)
    if (
        invocation is None
        or invocation[1] in KEYWORDS
        or (not invocation[2] and find_in("skriptnd", invocation[1]))
    ):
        return [text]
    return [f"({text})"]


def branch_pieces(node: n.Branch) -> list[Piece]:
    """`if c then a elif d then b else e`."""
    pieces: list[Piece] = []
    for word, (condition, consequent) in zip(("if", *["elif"] * len(node.cases)), node.cases, strict=False):
        pieces += [word, *callee_pieces(condition), "then", *callee_pieces(consequent)]
    return [*pieces, "else", *callee_pieces(node.otherwise)]


def loop_pieces(node: n.Loop) -> list[Piece]:
    """`with … for … while … do … while …`."""
    pieces: list[Piece] = []
    if node.carried:
        pieces.append("with " + ", ".join(map(carried_text, node.carried)))
    if node.scans:
        scans = (f"{item.name} : {write_expression(item.value)}" for item in node.scans)
        pieces.append("for " + ", ".join(scans))
    if node.before is not None:
        pieces += ["while", *callee_pieces(node.before)]
    pieces += [("unroll" if node.unroll else "do") + iteration_text(node.iteration)]
    pieces += callee_pieces(node.body)
    if node.after is not None:
        pieces += ["while", *callee_pieces(node.after)]
    return pieces


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


# --- how a long statement is broken into lines --------------------------------------------------------------


WIDTH = 100
SIGNS = frozenset((*LEVELS, *LOWERING_SIGNS, "?", "??", ":", "<-", "<>", "->", "|"))
NESTING = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
DEEPER = 10
IN_STRING = 10_000


class _Break(NamedTuple):
    """A space where a line may end; of two the one that costs less, and then the later one, is better."""

    place: int
    cost: int
    quote: str

    def width(self, start: int) -> int:
        """How long the line is that ends here; a string keeps its space and is closed."""
        return self.place - start + 2 * len(self.quote)


def wrap(text: str, level: int) -> list[str]:
    """A statement in lines of at most `WIDTH` where that can be, those behind the first indented once more.

    A line ends at a space outside all brackets rather than within them, at a comma rather than before an operator, and
    within a string only where nothing else is left: the string goes on as another one.
    """
    indent = INDENT * level
    if len(indent) + len(text) <= WIDTH:
        return [indent + text]
    lines: list[str] = []
    start, opening = 0, ""
    breaks = _breaks(text)
    for chosen in _chosen(breaks, len(text), WIDTH - len(indent)):
        end = chosen.place + 1 if chosen.quote else chosen.place
        lines.append(indent + opening + text[start:end] + chosen.quote)
        start, opening = chosen.place + 1, chosen.quote
        indent = INDENT * (level + 1)
    return [*lines, indent + opening + text[start:]]


def _chosen(breaks: Iterator[_Break], length: int, room: int) -> Iterator[_Break]:
    """The places where the lines end."""
    start, room_left = 0, room
    ahead: list[_Break] = []
    upcoming = next(breaks, None)
    while length - start > room_left:
        while upcoming is not None and (upcoming.width(start) <= room_left or not ahead):
            ahead.append(upcoming)
            upcoming = next(breaks, None)
        if not ahead:
            return
        # A line that ends in its first third would be nearly empty.
        late = [item for item in ahead if item.place - start > room_left // 3] or ahead
        best = min(late, key=lambda item: (item.cost, -item.place))
        yield best
        ahead = [item for item in ahead if item.place > best.place]
        start, room_left = best.place + 1, room - len(INDENT) - len(best.quote)


def _breaks(text: str) -> Iterator[_Break]:
    """All places where a line may end, in order."""
    depth, position, length = 0, 0, len(text)
    while position < length:
        char = text[position]
        if char in "\"'":
            end = _string_end(text, position)
            yield from _string_breaks(text, position, end, depth)
            position = end
            continue
        depth += NESTING.get(char, 0)
        if char == " " and not _follows_sign(text, position):
            yield _Break(position, depth * DEEPER + _sign_cost(text, position + 1), "")
        position += 1


def _follows_sign(text: str, place: int) -> bool:
    """Whether an operator stands before a space: a line does not end with one."""
    start = max(0, place - 4)
    return text[max(text.rfind(" ", start, place) + 1, start) : place] in SIGNS


def _sign_cost(text: str, start: int) -> int:
    """A line rather ends before an operator that binds less tight."""
    end = text.find(" ", start, start + 4)
    word = text[start : end if end >= 0 else start]
    return LEVELS.get(word, 0) + (word == "?")


def _string_end(text: str, start: int) -> int:
    end = text.find(text[start], start + 1)
    while end > 0 and text[end - 1] == "\\":
        end = text.find(text[start], end + 1)
    return end + 1 if end > 0 else len(text)


def _string_breaks(text: str, start: int, end: int, depth: int) -> Iterator[_Break]:
    """The spaces of a string outside its holes."""
    is_hole = False
    for place in range(start + 1, end - 1):
        char = text[place]
        if char == "{" and text[place - 1] != "\\":
            is_hole = True
        elif char == "}":
            is_hole = False
        elif char == " " and not is_hole:
            yield _Break(place, IN_STRING + depth, text[start])


class SkriptndWriter(Lines):
    """Writes a module from its imports to its last operator."""

    def document(self, node: n.Document) -> str:
        """The text of a module; a blank line stands between its operators."""
        for item in node.imports:
            self.place(item.notes, wrap(f"import {', '.join(item.modules)};", self.level))
        for operator in node.declarations:
            self.operator(operator)
        if node.end.above:
            self.above(node.end)
        return self.text()

    def operator(self, node: n.Operator) -> None:
        """Write an operator or a graph."""
        word = "graph" if node.graph else "operator"
        self.open_block(node.notes, f"{'public ' * node.public}{word} {node.name} {{", apart=True)
        for section in node.sections:
            self.section(section)
        self.close_block(node.end, "}")

    def section(self, node: n.Section) -> None:
        """Write a block of an operator."""
        self.open_block(node.notes, f"@{node.name} {{")
        for item in node.items:
            self.statement(item)
        self.close_block(node.end, "}")

    # --- statements -----------------------------------------------------------------------------------------

    @singledispatchmethod
    def statement(self, node: n.Statement) -> None:
        """Write a statement."""
        raise TypeError(f"{type(node).__name__} is not a statement")

    @statement.register
    def _(self, node: n.Dtype) -> None:
        default = "" if node.default is None else f" = {node.default}"
        self.place(node.notes, wrap(f"{node.name}: {node.base}{default};", self.level))

    @statement.register
    def _(self, node: n.Parameter) -> None:
        value = "" if node.value is None else f" = {write_expression(node.value)}"
        head = f"{node.name}: {type_text(node.type)}{value}"
        self.place(node.notes, self._with_tail(head, bounds_text(node.bounds)))

    @statement.register
    def _(self, node: n.Using) -> None:
        text = f"{pattern_text(node.target)} = {write_expression(node.value)};"
        self.place(node.notes, wrap(text, self.level))

    @statement.register
    def _(self, node: n.Assertion) -> None:
        if node.message is None:
            self.place(node.notes, wrap(f"{write_expression(node.condition)};", self.level))
            return
        condition, message = write_before(node.condition, ":"), write_expression(node.message)
        values = ", ".join(map(printed_text, node.values))
        lines = self._with_tail(f"{condition}: {message}", values)
        if len(lines) > 1 + bool(values):
            lines = wrap(f"{condition}:", self.level)
            lines += wrap(message + (",", ";")[not values], self.level + 1)
            lines += wrap(f"{values};", self.level + 1) if values else []
        self.place(node.notes, lines)

    @statement.register
    def _(self, node: n.Lowering) -> None:
        lines = []
        prefix = "" if node.unroll is None else f"unroll{iteration_text(node.unroll)} "
        for local in node.locals:
            lines += wrap(f"{prefix}{local.name} = {write_expression(local.value)},", self.level)
            prefix = ""
        head = f"{prefix}{write_expression(node.target)} {node.sign} {write_expression(node.value)}"
        condition = "" if node.condition is None else f" | {write_expression(node.condition)}"
        tail = bounds_text(node.bounds)
        if not tail:
            head, condition = head + condition, ""
        self.place(node.notes, lines + self._with_tail(head, tail + condition))

    @statement.register
    def _(self, node: n.Component) -> None:
        self.pieces(node.notes, component_pieces(node))

    @statement.register
    def _(self, node: n.Quantization) -> None:
        text = f"{node.tensor}: {operator_text(node.operator, node.types, node.attributes)};"
        self.place(node.notes, wrap(text, self.level))

    def _with_tail(self, head: str, tail: str) -> list[str]:
        """`head, tail;`: on one line where it fits, else the tail on a line of its own."""
        if not tail:
            return wrap(f"{head};", self.level)
        whole = f"{head}, {tail};"
        if len(INDENT) * self.level + len(whole) <= WIDTH:
            return wrap(whole, self.level)
        return wrap(f"{head},", self.level) + wrap(f"{tail};", self.level + 1)

    # --- blocks ---------------------------------------------------------------------------------------------

    def pieces(self, notes: Trivia, pieces: Sequence[Piece]) -> None:
        """Write a component: text, and blocks on lines of their own."""
        self.above(notes)
        words: list[str] = []
        for piece in pieces:
            if isinstance(piece, str):
                words.append(piece)
                continue
            self.place(NO_TRIVIA, wrap(" ".join(words), self.level))
            words = []
            self.block(piece)
        self.place(Trivia(behind=notes.behind), wrap(f"{' '.join(words)};", self.level))

    def block(self, node: n.Block) -> None:
        """Write what stands between the braces of a block."""
        self.level += 1
        for component in node.components:
            self.statement(component)
        results = ", ".join(map(write_expression, node.results))
        self.place(node.end, wrap(f"yield {results};", self.level))
        self.comments(node.end.last)
        self.level -= 1


__all__ = ["write", "write_expression"]


def write(document: Document) -> str:
    """The canonical text of a document: `parse` of it is an equal document, and `write` of that the same text."""
    return SkriptndWriter().document(document)
