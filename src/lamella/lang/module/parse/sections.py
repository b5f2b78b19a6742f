"""The sections of a declaration, from `let:` to `hf_export:`, and the free fields of recipes and primitives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lamella.base.cursor import SyntaxProblem
from lamella.lang.module.nodes import (
    Annotation,
    Backward,
    Binding,
    Call,
    Constant,
    Constraint,
    Direct,
    Field,
    Forward,
    Fuse,
    Let,
    Mapping,
    Param,
    Port,
    RuntimeDim,
    Selection,
    Spec,
    Split,
    SplitPart,
    Statement,
    Sublayers,
    Transform,
)
from lamella.lang.module.parse.expressions import ModuleCursor
from lamella.lang.module.parse.graphs import read_graph, read_port_row, read_ports, read_selection
from lamella.lang.module.parse.layout import NAME, NEWLINE
from lamella.lang.module.parse.tokens import INT, STRING

INPUTS, OUTPUTS = ("in", "inputs"), ("out", "outputs")
GRADIENT = "d_"
LISTS = ("save", "recompute")
ITEM = "-"
"""The name of a field that is an item of a list, or a line of free text."""


@dataclass(slots=True)
class ModuleBody:
    """The sections of a declaration, as they are read."""

    annotations: list[Annotation] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    constants: tuple[Constant, ...] = ()
    tensors: tuple[Param, ...] = ()
    sublayers: Sublayers | None = None
    forward: Forward | None = None
    backward: Backward | None = None
    hf_config: tuple[Field, ...] | None = None
    hf_mapping: tuple[Mapping, ...] | None = None
    hf_export: tuple[Mapping, ...] | None = None
    is_astray: bool = False
    """Whether the line before was none of a section, and that was reported."""


@dataclass(slots=True)
class _PassBody:
    """The parts of `forward:` or `backward:`, as they are read."""

    where: str
    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    graph: tuple[Statement, ...] | None = None
    save: Selection | None = None
    recompute: Selection | None = None
    gradients: list[Port] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


def read_section(cursor: ModuleCursor, body: ModuleBody) -> None:
    """One section of a module, a block or a model, into its body."""
    word = cursor.text
    if word == "let":
        body.bindings += (item for row in cursor.section(_bindings) for item in row)
    elif word == "constraint":
        body.bindings += cursor.section(_constraint)
    else:
        name, read = _SECTION_READERS[word]
        setattr(body, name, read(cursor))


# --- fields: `name: value` lines whose names are free -------------------------------------------------------


def read_field(cursor: ModuleCursor) -> Field:
    """`name ':' value`, `name ':'` with fields below it, or an item: `'-' value` or a line of text."""
    first = cursor.index
    cursor.accept(ITEM)
    if cursor.at_named() and cursor.kinds[cursor.index + 2] == NEWLINE:
        return _group(cursor, first)
    name = ITEM
    if cursor.at_named():
        name = cursor.name("the name of a field", "here")
        cursor.next()
    value = cursor.free_value()
    cursor.has_stub = cursor.has_stub or value == "..."
    span, notes = cursor.settle(first)
    cursor.end_line("after a field")
    return Field(name, value, notes, span)


def _group(cursor: ModuleCursor, first: int) -> Field:
    """`name ':'` with the fields below it."""
    notes = cursor.above(first)
    name = cursor.name("the name of a field", "here")
    cursor.next()
    notes = cursor.headed(notes)
    cursor.descend("of fields")
    found, last = cursor.lines(read_field)
    cursor.depth_left += 1
    return Field(name, tuple(found), cursor.closed(notes, last), cursor.span_from(first))


# --- mappings between parameters and the tensors of a checkpoint --------------------------------------------


def _mapping(cursor: ModuleCursor) -> Mapping:
    """`path '?'? (':' | '->') spec ('if' condition)?`."""
    first = cursor.index
    path = cursor.path("the path of a parameter", "in a mapping")
    optional = cursor.accept("?")
    if not cursor.accept("->"):
        cursor.expect(":", "after the path of a parameter")
    spec = _spec(cursor)
    condition = cursor.expression() if cursor.accept("if") else None
    span, notes = cursor.settle(first)
    cursor.end_line("after a mapping")
    return Mapping(path, spec, optional, condition, notes, span)


def _spec(cursor: ModuleCursor) -> Spec:
    """`string | fuse | split | transform | tied`."""
    if cursor.kind == NAME and cursor.ahead() == "(":
        if cursor.text == "fuse":
            return _fuse(cursor)
        if cursor.text == "split":
            return _split(cursor)
        if cursor.text == "tied_to":
            return cursor.tied()
    return _source(cursor)


def _source(cursor: ModuleCursor) -> Direct | Transform:
    """`string | transform`."""
    if cursor.text == "transform" and cursor.ahead() == "(":
        return _transform(cursor)
    if cursor.kind != STRING:
        raise _no_source(cursor)
    found = cursor.string("the name of a tensor", "here")
    return Direct(found.value, found.span)


def _no_source(cursor: ModuleCursor) -> SyntaxProblem:
    wanted = "the name of a tensor in quotes, or fuse, split, transform or tied_to"
    return cursor.problem(wanted, "in a mapping")


def _transform(cursor: ModuleCursor) -> Transform:
    """`'transform' '(' string ',' 'fn' (':' | '=') name ')'`."""
    first = cursor.next()
    cursor.next()
    name = cursor.string("the name of a tensor", "in 'transform'").value
    cursor.expect(",", "after the name of a tensor")
    cursor.expect("fn", "in 'transform'")
    if not cursor.accept("="):
        cursor.expect(":", "after 'fn'")
    function = cursor.name("the name of a function", "after 'fn'")
    cursor.accept(",")
    cursor.expect(")", "after the function")
    return Transform(name, function, cursor.span_from(first))


def _fuse(cursor: ModuleCursor) -> Fuse:
    """`'fuse' '(' source,+ (',' 'dim' '=' integer)? ')'`."""
    first = cursor.next()
    cursor.next()
    sources: list[Direct | Transform] = []
    dim = 0
    while cursor.text != ")":
        if cursor.text == "dim":
            dim = _dim_argument(cursor)
        else:
            sources.append(_source(cursor))
        if not cursor.accept(","):
            break
    _close(cursor, bool(sources), "fuse")
    return Fuse(tuple(sources), dim, cursor.span_from(first))


def _split(cursor: ModuleCursor) -> Split:
    """`'split' '(' part,+ (',' 'dim' '=' integer)? ')'`."""
    first = cursor.next()
    cursor.next()
    parts: list[SplitPart] = []
    dim = 0
    while cursor.text != ")":
        if cursor.text == "dim":
            dim = _dim_argument(cursor)
        else:
            parts.append(_part(cursor))
        if not cursor.accept(","):
            break
    _close(cursor, bool(parts), "split")
    return Split(tuple(parts), dim, cursor.span_from(first))


def _close(cursor: ModuleCursor, has_items: bool, word: str) -> None:
    if not has_items:
        raise cursor.problem("the name of a tensor", f"in '{word}'")
    cursor.expect(")", f"after the tensors of '{word}'")


def _part(cursor: ModuleCursor) -> SplitPart:
    """`string ':' '[' expression ',' expression ']'`."""
    first = cursor.index
    name = cursor.string("the name of a tensor", "in 'split'").value
    cursor.expect(":", "after the name of a tensor")
    cursor.expect("[", "before the range of a tensor")
    low = cursor.expression()
    cursor.expect(",", "between the ends of a range")
    high = cursor.expression()
    cursor.expect("]", "after the range of a tensor")
    return SplitPart(name, low, high, cursor.span_from(first))


def _dim_argument(cursor: ModuleCursor) -> int:
    """`'dim' '=' '-'? integer`."""
    cursor.next()
    cursor.expect("=", "after 'dim'")
    sign = -1 if cursor.accept("-") else 1
    if cursor.kind != INT:
        raise cursor.problem("a whole number", "after 'dim='")
    return sign * cursor.integer().value


# --- `forward:` and `backward:` -----------------------------------------------------------------------------


def _forward(cursor: ModuleCursor) -> Forward:
    """`'forward' ':'` with inputs, outputs, graph, `save:` and `recompute:` in any order."""
    first = cursor.next()
    notes = cursor.above(first)
    cursor.expect(":", "after 'forward'")
    notes = cursor.headed(notes)
    parts = _PassBody("'forward:'")
    _, last = cursor.body(lambda cursor: _forward_line(cursor, parts), "of sections")
    return Forward(
        parts.inputs,
        parts.outputs,
        parts.graph,
        parts.save,
        parts.recompute,
        tuple(parts.annotations),
        cursor.closed(notes, last),
        cursor.span_from(first),
    )


def _backward(cursor: ModuleCursor) -> Backward:
    """`'backward' ':'` with gradients, inputs, outputs and graph in any order."""
    first = cursor.next()
    notes = cursor.above(first)
    cursor.expect(":", "after 'backward'")
    notes = cursor.headed(notes)
    parts = _PassBody("'backward:'")
    _, last = cursor.body(lambda cursor: _backward_line(cursor, parts), "of sections")
    return Backward(
        tuple(parts.gradients),
        parts.inputs,
        parts.outputs,
        parts.graph,
        tuple(parts.annotations),
        cursor.closed(notes, last),
        cursor.span_from(first),
    )


def _forward_line(cursor: ModuleCursor, parts: _PassBody) -> None:
    if cursor.text in LISTS and cursor.ahead() == ":":
        _selection(cursor, parts)
    elif not _either_line(cursor, parts):
        wanted, where = "in, out, graph, save or recompute with ':'", "in 'forward:'"
        words = (*INPUTS, *OUTPUTS, *LISTS, "graph")
        if cursor.ahead() == ":" and cursor.reword(words, wanted, where):
            _forward_line(cursor, parts)
            return
        _astray(cursor, parts)
        raise cursor.problem(wanted, where)


def _backward_line(cursor: ModuleCursor, parts: _PassBody) -> None:
    if _either_line(cursor, parts):
        return
    if not cursor.text.startswith(GRADIENT) or cursor.has_arrow():
        _astray(cursor, parts)
        raise cursor.problem("in, out, graph or a gradient with ':'", "in 'backward:'")
    parts.gradients += read_port_row(cursor, is_open=False)
    cursor.end_line("after a gradient")


def _astray(cursor: ModuleCursor, parts: _PassBody) -> None:
    """A statement that is indented like 'graph:' itself: of several the first is reported."""
    if not cursor.has_arrow() or not cursor.begins_line():
        return
    if "->" not in parts.seen:
        parts.seen.add("->")
        cursor.misindented("a statement stands inside 'graph:'", "indent it further than 'graph:'")
    raise SyntaxProblem


def _selection(cursor: ModuleCursor, parts: _PassBody) -> None:
    first = cursor.index
    word = cursor.text
    found = read_selection(cursor)
    if _is_second(cursor, parts, word, first):
        return
    if word == "save":
        parts.save = found
    else:
        parts.recompute = found


def _either_line(cursor: ModuleCursor, parts: _PassBody) -> bool:
    """A line that both passes may have; False where it is none."""
    first = cursor.index
    if cursor.text == "@":
        parts.annotations += cursor.annotation_line()
    elif cursor.at_stub():
        parts.graph = (*(parts.graph or ()), cursor.stub())
    elif cursor.ahead() != ":":
        return False
    elif cursor.text in INPUTS:
        inputs = read_ports(cursor, is_open=False)
        if not _is_second(cursor, parts, INPUTS[0], first):
            parts.inputs = inputs
    elif cursor.text in OUTPUTS:
        outputs = read_ports(cursor, is_open=False)
        if not _is_second(cursor, parts, OUTPUTS[0], first):
            parts.outputs = outputs
    elif cursor.text == "graph":
        graph = read_graph(cursor)
        if not _is_second(cursor, parts, "graph", first):
            parts.graph = (*(parts.graph or ()), *graph)
    else:
        return False
    return True


def _is_second(cursor: ModuleCursor, parts: _PassBody, word: str, first: int) -> bool:
    """Whether a part was there before; it is reported."""
    if word not in parts.seen:
        parts.seen.add(word)
        return False
    cursor.twice(first, parts.where)
    return True


# --- constants ----------------------------------------------------------------------------------------------


RUNTIME_DIMS = ("batch_dim", "seq_dim")


def _bindings(cursor: ModuleCursor) -> tuple[Binding, ...]:
    """One line of `let:`."""
    first = cursor.index
    if cursor.at_stub():
        return (cursor.stub(),)
    if cursor.text == "constraint" and cursor.ahead() == ":":
        return cursor.section(_constraint)
    name = cursor.name("the name of a constant", "in 'let:'")
    if cursor.accept(":"):
        if cursor.text not in RUNTIME_DIMS:
            raise cursor.problem("batch_dim or seq_dim", "after ':'")
        kind = cursor.name("batch_dim or seq_dim", "after ':'")
        span, notes = cursor.settle(first)
        cursor.end_line("after a binding")
        return (RuntimeDim(name, kind, notes, span),)
    cursor.expect("=", f"after '{name[:40]}'")
    value = cursor.expression()
    span, notes = cursor.settle(first)
    cursor.end_line("after a binding")
    return (Let(name, value, notes, span),)


def _constraint(cursor: ModuleCursor) -> Constraint | None:
    """`expression ',' string`."""
    if cursor.skip_stub():
        return None
    first = cursor.index
    condition = cursor.expression()
    cursor.expect(",", "after the condition of a constraint")
    message = cursor.string("the message of the constraint", "after ','").value
    span, notes = cursor.settle(first)
    cursor.end_line("after a constraint")
    return Constraint(condition, message, notes, span)


def _constant(cursor: ModuleCursor) -> Constant | None:
    """`name ':' builtin '(' argument,* ')'`."""
    if cursor.skip_stub():
        return None
    first = cursor.index
    name = cursor.name("the name of a constant", "in 'constants:'")
    cursor.expect(":", "after the name of a constant")
    start = cursor.index
    value = cursor.postfix()
    if not isinstance(value, Call):
        cursor.move_to(start)
        raise cursor.problem("a call such as zeros([4])", "after ':'")
    span, notes = cursor.settle(first)
    cursor.end_line("after a constant")
    return Constant(name, value, notes, span)


# --- parameters ---------------------------------------------------------------------------------------------


def _param(cursor: ModuleCursor) -> Param | None:
    """`'+'? path ':' type ('if' condition ('else' type)?)? annotation*`."""
    if cursor.skip_stub():
        return None
    first = cursor.index
    added = cursor.accept("+")
    path = cursor.path("the name of a parameter", "in 'params:'")
    cursor.expect(":", "after the name of a parameter")
    type_ = cursor.param_type()
    condition = otherwise = None
    if cursor.accept("if"):
        condition = cursor.condition()
        otherwise = cursor.param_type() if cursor.accept("else") else None
    annotations = cursor.annotations()
    span, notes = cursor.settle(first)
    cursor.end_line("after a parameter")
    return Param(path, type_, condition, otherwise, added, annotations, notes, span)


def _pattern_section(cursor: ModuleCursor) -> Sublayers:
    """`'pattern' ':' name` with `sublayers:` below it."""
    first = cursor.next()
    notes = cursor.above(first)
    cursor.expect(":", "after 'pattern'")
    pattern = cursor.name("the name of a pattern", "after 'pattern:'")
    notes = cursor.headed(notes)
    found, last = cursor.lines(_sublayers)
    rows = tuple(row for rows in found for row in rows)
    return Sublayers(pattern, rows, cursor.closed(notes, last), cursor.span_from(first))


def _sublayers(cursor: ModuleCursor) -> tuple[tuple[str, ...], ...]:
    if cursor.text != "sublayers":
        raise cursor.problem("'sublayers:'", "in 'pattern:'")
    return cursor.section(_sublayer)


def _sublayer(cursor: ModuleCursor) -> tuple[str, ...]:
    """`'-' '(' name,+ ')'`, or `'-' name`."""
    first = cursor.index
    cursor.expect("-", "before a sublayer")
    if cursor.accept("("):
        found = cursor.separated(lambda: cursor.dotted("the name of a parameter", "in a sublayer"))
        cursor.expect(")", "after a sublayer")
    else:
        found = [cursor.dotted("a parameter, or several in parentheses", "after '-'")]
    cursor.carry(first)
    cursor.end_line("after a sublayer")
    return tuple(found)


# --- checkpoints --------------------------------------------------------------------------------------------


def _hf_field(cursor: ModuleCursor) -> Field | None:
    """A field of `hf_config:`."""
    return None if cursor.skip_stub() else read_field(cursor)


def _hf_entry(cursor: ModuleCursor) -> Mapping | None:
    """A line of `hf_mapping:` or `hf_export:`."""
    return None if cursor.skip_stub() else _mapping(cursor)


_SECTION_READERS: dict[str, tuple[str, Callable[[ModuleCursor], object]]] = {
    "constants": ("constants", lambda cursor: cursor.section(_constant)),
    "params": ("tensors", lambda cursor: cursor.section(_param)),
    "pattern": ("sublayers", _pattern_section),
    "forward": ("forward", _forward),
    "backward": ("backward", _backward),
    "hf_config": ("hf_config", lambda cursor: cursor.section(_hf_field)),
    "hf_mapping": ("hf_mapping", lambda cursor: cursor.section(_hf_entry)),
    "hf_export": ("hf_export", lambda cursor: cursor.section(_hf_entry)),
}
"""By the word of a section: the field of the body it is, and what reads it."""
