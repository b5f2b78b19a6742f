"""Graphs and what they connect: data flow, guards, recomputation, lists of saved tensors, inputs and outputs."""

from __future__ import annotations

from typing import TypeAlias

from lamella.base.cursor import SHOWN, SyntaxProblem
from lamella.base.source import NO_TRIVIA, Span, Trivia
from lamella.lang.module.nodes import (
    Arm,
    Bool,
    Call,
    Conditional,
    Expr,
    Flow,
    Name,
    Operation,
    Pattern,
    Port,
    PortType,
    Recompute,
    ScalarType,
    Selection,
    SequenceType,
    ShapeAssertion,
    Star,
    Statement,
    Step,
    Target,
    TensorType,
    TupleType,
)
from lamella.lang.module.parse.expressions import ModuleCursor
from lamella.lang.module.parse.layout import NAME, NEWLINE
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import SCALARS

_Body: TypeAlias = tuple[tuple[Statement, ...], tuple[str, ...]]
GLOB_SIGNS = frozenset(("*", "**"))
ANY = (Star(),)


def read_graph(cursor: ModuleCursor) -> tuple[Statement, ...]:
    """`'graph' ':'` with its statements."""
    return cursor.section(_statement)


def _statement(cursor: ModuleCursor) -> Statement:
    """`data_flow | conditional | recompute_block | '...'`."""
    text, behind = cursor.text, cursor.ahead()
    # All words of the language may be names of tensors: before an arrow, `if` is one.
    if text == "if" and behind != "->":
        return _conditional(cursor)
    if cursor.at_stub():
        return cursor.stub()
    if (text == "else" and behind in (":", "if")) or (text == "elif" and behind != "->"):
        cursor.misindented(f"'{text}' belongs to no 'if'", "indent the statements of 'if' further than 'if'")
        raise SyntaxProblem
    if text == "recompute" and behind == ":":
        return _recompute_block(cursor)
    return _flow(cursor)


# --- data flow ----------------------------------------------------------------------------------------------


def _flow(cursor: ModuleCursor) -> Flow:
    """`source ('->' step)* '->' target annotation*`."""
    first = cursor.index
    sources = _sources(cursor)
    if cursor.text != "->":
        raise cursor.problem("'->'", "after the source of a statement")
    steps: list[Step] = []
    targets: tuple[Target, ...] | None = None
    while cursor.accept("->"):
        targets = _leg(cursor, steps)
        if targets is not None:
            break
    if targets is None:
        raise cursor.problem("'->' and the name of a result", "after an operation")
    annotations = cursor.annotations()
    if cursor.text == "->":
        raise cursor.problem("the end of the statement", "after its results")
    span, notes = cursor.settle(first)
    cursor.end_line("after a statement")
    return Flow(sources, tuple(steps), targets, annotations, notes, span)


def _sources(cursor: ModuleCursor) -> tuple[Expr, ...]:
    """A source, or several in parentheses."""
    if cursor.text != "(":
        return (cursor.expression(),)
    cursor.next()
    found = []
    while cursor.text != ")":
        found.append(cursor.expression())
        if not cursor.accept(","):
            break
    cursor.expect(")", "after the sources of a statement")
    return tuple(found)


def _leg(cursor: ModuleCursor, steps: list[Step]) -> tuple[Target, ...] | None:
    """What stands behind an arrow: a step, which is added, or the results, which are returned."""
    if cursor.text == "(":
        return _targets(cursor)
    if cursor.text == "[":
        found = cursor.tensor()
        steps.append(ShapeAssertion(found, found.span))
        return None
    first = cursor.index
    if cursor.kind != NAME:
        raise cursor.problem("an operation or the name of a result", "after '->'")
    value = cursor.postfix()
    start = cursor.index
    annotations = cursor.annotations()
    if isinstance(value, Call):
        steps.append(Operation(value.callee, value.arguments, annotations, cursor.span_from(first)))
        return None
    if cursor.text == "->":
        steps.append(Operation(value, (), annotations, cursor.span_from(first)))
        return None
    if not isinstance(value, Name):
        raise _no_target(cursor, value)
    # The annotations behind the last name belong to the statement: it reads them again.
    cursor.move_to(start)
    return (Target(value.id, (), value.span),)


def _no_target(cursor: ModuleCursor, value: Expr) -> SyntaxProblem:
    shown, where = f"'{value.span.text[:SHOWN]}'", "at the end of a statement"
    return cursor.report(syntax.MISPLACED.at(value.span, what=shown, where=where, repair="name the result"))


def _targets(cursor: ModuleCursor) -> tuple[Target, ...]:
    """`'(' target (',' target)* ')'`."""
    cursor.next()
    found = []
    while cursor.text != ")":
        found.append(_target(cursor))
        if not cursor.accept(","):
            break
    cursor.expect(")", "after the results of a statement")
    return tuple(found)


def _target(cursor: ModuleCursor) -> Target:
    """`name annotation*`."""
    first = cursor.index
    name = cursor.name("the name of a result", "after '->'")
    return Target(name, cursor.annotations(), cursor.span_from(first))


# --- blocks -------------------------------------------------------------------------------------------------


def _conditional(cursor: ModuleCursor) -> Conditional:
    """`'if' condition ':' body (('elif' | 'else' 'if') condition ':' body)* ('else' ':' body)?`."""
    first = cursor.index
    arms = [_arm(cursor)]
    while cursor.text == "elif" or (cursor.text == "else" and cursor.ahead() == "if"):
        if cursor.text == "else":
            cursor.next()
        arms.append(_arm(cursor))
    notes = NO_TRIVIA
    otherwise = None
    if cursor.text == "else" and cursor.ahead() == ":":
        start = cursor.next()
        notes = cursor.above(start)
        cursor.next()
        notes = cursor.headed(notes)
        found: _Body = cursor.body(_statement, "of a graph")
        otherwise, notes = found[0], cursor.closed(notes, found[1])
    return Conditional(tuple(arms), otherwise, notes, cursor.span_from(first))


def _arm(cursor: ModuleCursor) -> Arm:
    """`('if' | 'elif') condition ':' body`; a broken guard does not keep the body from being read."""
    first = cursor.next()
    notes = cursor.above(first)
    condition = _guard(cursor)
    notes = cursor.headed(notes)
    body: _Body = cursor.body(_statement, "of a graph")
    return Arm(condition, body[0], cursor.closed(notes, body[1]), cursor.span_from(first))


def _guard(cursor: ModuleCursor) -> Expr:
    """`expression ':'`; in the place of a broken one stands `true`."""
    first, depth = cursor.index, cursor.depth_left
    try:
        value = cursor.expression()
        cursor.expect(":", "after the condition of 'if'")
    except SyntaxProblem:
        cursor.depth_left = depth
        cursor.pass_words()
        value = Bool(True, cursor.span_from(first))
    return value


def _recompute_block(cursor: ModuleCursor) -> Recompute:
    """`'recompute' ':'` with its statements."""
    first = cursor.next()
    notes = cursor.above(first)
    cursor.next()
    notes = cursor.headed(notes)
    body: _Body = cursor.body(_statement, "of a graph")
    return Recompute(body[0], cursor.closed(notes, body[1]), cursor.span_from(first))


# --- lists of tensors ---------------------------------------------------------------------------------------


def read_selection(cursor: ModuleCursor) -> Selection:
    """`name ':' '[' pattern,* ']' ('if' condition)?`."""
    first = cursor.next()
    word = cursor.texts[first]
    cursor.expect(":", f"after '{word}'")
    cursor.expect("[", f"before the tensors of '{word}'")
    items = []
    while cursor.text != "]":
        items.append(_pattern(cursor))
        if not cursor.accept(","):
            break
    cursor.expect("]", f"after the tensors of '{word}'")
    condition = cursor.expression() if cursor.accept("if") else None
    span, notes = cursor.settle(first)
    cursor.end_line(f"after '{word}'")
    return Selection(tuple(items), condition, notes, span)


def _pattern(cursor: ModuleCursor) -> Pattern:
    """`name`, `na*me`, `*`, or `name...`; the parts of a glob stand side by side."""
    first = cursor.index
    while _is_glob_part(cursor) and (cursor.index == first or _touches(cursor)):
        cursor.next()
    text = (
        cursor.source.text[cursor.starts[first] : cursor.end_of(cursor.index - 1)]
        if cursor.index > first
        else ""
    )
    spread = cursor.text == "..."
    if spread:
        cursor.next()
    if not text and not spread:
        raise cursor.problem("the name of a tensor", "in a list of tensors")
    return Pattern(text, spread, cursor.span_from(first))


def _is_glob_part(cursor: ModuleCursor) -> bool:
    return cursor.kind == NAME or cursor.text in GLOB_SIGNS


def _touches(cursor: ModuleCursor) -> bool:
    """Whether the token ahead follows without a space."""
    return cursor.starts[cursor.index] == cursor.end_of(cursor.index - 1)


# --- inputs and outputs; a primitive may leave types open ---------------------------------------------------


def read_ports(cursor: ModuleCursor, is_open: bool) -> tuple[Port, ...]:
    """`('in' | 'out' | 'inputs' | 'outputs') ':'` and what follows: ports in parentheses, in a row, or in lines."""
    cursor.section_head()
    if cursor.kind == NEWLINE:
        found, last = cursor.lines(lambda cursor: _port_line(cursor, is_open))
        cursor.carry_over(last)
        return tuple(port for row in found for port in row)
    row = read_port_row(cursor, is_open)
    cursor.end_line("after inputs or outputs")
    return row


def read_port_row(cursor: ModuleCursor, is_open: bool) -> tuple[Port, ...]:
    """Ports in parentheses or in a row, without the end of their line."""
    if cursor.text == "(" and not _at_tuple_type(cursor):
        return _tuple(cursor, is_open)
    return _row(cursor, is_open)


def _port_line(cursor: ModuleCursor, is_open: bool) -> tuple[Port, ...]:
    """A line of an `inputs:` block; a comma at its end means nothing."""
    found = _row(cursor, is_open)
    cursor.end_line("after an input or output")
    return found


def _row(cursor: ModuleCursor, is_open: bool) -> tuple[Port, ...]:
    """`port (',' port)*`."""
    found = [_port(cursor, is_open)]
    while cursor.texts[cursor.index - 1] == "," and cursor.kind != NEWLINE:
        found.append(_port(cursor, is_open))
    return tuple(found)


def _tuple(cursor: ModuleCursor, is_open: bool) -> tuple[Port, ...]:
    """`'(' port,* ')'`."""
    cursor.next()
    found = []
    while cursor.text != ")":
        found.append(_port(cursor, is_open))
        if cursor.texts[cursor.index - 1] != ",":
            break
    cursor.expect(")", "after inputs or outputs")
    return tuple(found)


def _at_tuple_type(cursor: ModuleCursor) -> bool:
    """Whether a parenthesis opens a tuple of types without names."""
    return cursor.ahead() in ("[", "Tensor")


def _port(cursor: ModuleCursor, is_open: bool) -> Port:
    """`(name ':')? type ('=' expression)? annotation*`, with the comma behind it."""
    first = cursor.index
    name, type_ = _name_and_type(cursor, is_open)
    default = None
    if cursor.text == "=" and name is not None and type_ is not None:
        cursor.next()
        default = cursor.expression()
    annotations = cursor.annotations()
    span, notes = _with_comma(cursor, first)
    return Port(name, type_, default, annotations, notes, span)


def _with_comma(cursor: ModuleCursor, first: int) -> tuple[Span, Trivia]:
    """The span of a port, the comma behind it, and the notes: a comment behind the comma is the port's."""
    span = cursor.span_from(first)
    cursor.accept(",")
    return span, cursor.settle(first)[1]


def _name_and_type(cursor: ModuleCursor, is_open: bool) -> tuple[str | None, PortType | None]:
    if cursor.at_named():
        name = cursor.name("a name", "here")
        cursor.next()
        return name, _port_type(cursor, is_open)
    if cursor.kind == NAME and cursor.ahead() == "...":
        name = cursor.name("a name", "here")
        cursor.next()
        return name, SequenceType()
    if is_open and cursor.kind == NAME and not _at_type(cursor):
        name = cursor.name("a name", "here")
        return name, TensorType(ANY, None, True) if cursor.accept("?") else None
    return None, _port_type(cursor, is_open)


def _at_type(cursor: ModuleCursor) -> bool:
    return cursor.at_tensor() or (cursor.text == "tuple" and cursor.ahead() in ("<", "("))


def _port_type(cursor: ModuleCursor, is_open: bool) -> PortType | None:
    """`tensor | '(' tensor,+ ')' | 'tuple' '<' tensor '>' | 'int' | 'float'`; in a primitive also a free word."""
    first = cursor.index
    if cursor.at_tensor():
        return cursor.tensor()
    if cursor.text == "(":
        cursor.next()
        items = tuple(cursor.separated(cursor.tensor))
        cursor.expect(")", "after the types of a tuple")
        return TupleType(items, cursor.span_from(first))
    if cursor.text == "tuple" and cursor.ahead() in ("<", "("):
        return _sequence(cursor)
    if cursor.text in SCALARS:
        word = cursor.name("a type", "here")
        return ScalarType(word, cursor.accept("?"), cursor.span_from(first))
    if is_open and cursor.kind == NAME:
        cursor.next()
        return None
    raise cursor.problem("the type of a tensor, such as [B, T]", "here")


def _sequence(cursor: ModuleCursor) -> SequenceType:
    """`'tuple' '<' tensor '>'`, or the comprehension of the specification."""
    first = cursor.next()
    closing = ">" if cursor.text == "<" else ")"
    cursor.next()
    item = cursor.tensor()
    if closing == ")" and cursor.accept("for"):
        cursor.name("a name", "after 'for'")
        cursor.expect("in", "after the name of an index")
        cursor.expression()
    cursor.expect(closing, "after the type of the items")
    return SequenceType(item, cursor.span_from(first))
