"""Recursive-descent parser of the Module DSL: text to nodes, with several errors per run.

Each rule of the grammar is a function that takes the cursor. `tokens` has the words, lines and blocks with error
recovery, `expressions` what rules are made of, `graphs` and `sections` what stands in a declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from lamella.base.cursor import SHOWN, SyntaxProblem
from lamella.base.diagnostic import Diagnostic
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NO_TRIVIA, Source, Span, Trivia
from lamella.base.suggest import nearest
from lamella.lang.module.nodes import (
    Broken,
    ConfigParam,
    Document,
    Equation,
    Export,
    Field,
    Import,
    Imported,
    Item,
    Module,
    Port,
    Preset,
    Primitive,
    Recipe,
    Selection,
    Setting,
    Signature,
)
from lamella.lang.module.parse.expressions import ModuleCursor
from lamella.lang.module.parse.graphs import read_port_row, read_ports, read_selection
from lamella.lang.module.parse.layout import LAYOUT, NAME, NEWLINE
from lamella.lang.module.parse.sections import INPUTS, OUTPUTS, ModuleBody, read_field, read_section
from lamella.lang.module.parse.tokens import DOC, STRING, read_doc
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import KINDS, OPENERS, SECTIONS, SETTINGS

EXPORTED = KINDS | {"primitive", "recipe", "preset"}
ALL = "*"
"""The kind of an export of all that is imported."""
VERSION_DIGITS = 9
REPEATABLE = frozenset(("constraint",))
INNER = frozenset(("in", "inputs", "out", "outputs", "graph", "save", "recompute"))
"""Words of lines that stand in 'forward:'."""
NATIVE = "_"


@dataclass(slots=True)
class _ModuleHead:
    """The head of a declaration; `is_broken` where it could not be read to its end."""

    kind: str = ""
    name: str = ""
    params: tuple[ConfigParam, ...] | None = None
    abstract: bool = False
    extends: str | None = None
    is_broken: bool = False


@dataclass(slots=True)
class _SignatureBody:
    """The parts of a signature, as they are read."""

    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    equations: list[Equation] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    native: bool = False


@dataclass(slots=True)
class _PrimitiveBody:
    """The sections of a primitive, as they are read."""

    params: tuple[ConfigParam, ...] = ()
    forward: Signature | None = None
    backward: Signature | None = None
    save: Selection | None = None
    sections: list[Field] = field(default_factory=list)


class ParsedModule(NamedTuple):
    """A document and what was found wrong with its text; what could not be read is `Broken` in it or left out."""

    document: Document
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> ParsedModule:
    """The document of a text; never raises, whatever the text is."""
    with gc_paused():
        cursor = ModuleCursor(source, limits)
        document = _document(cursor)
    return ParsedModule(document, tuple(cursor.findings))


def _document(cursor: ModuleCursor) -> Document:
    """A file."""
    notes, doc = NO_TRIVIA, ""
    if cursor.kind == DOC:
        notes = cursor.above(cursor.index)
        doc = read_doc(cursor.text)
    items: list[Item] = cursor.members(_item, 0)
    end = len(cursor.source.text)
    last = cursor.blocks.within(0, end + 1)
    closed, span = cursor.closed(notes, last), Span(cursor.source, 0, end)
    return Document(tuple(items), doc, closed, span, frozenset(cursor.lost))


def _item(cursor: ModuleCursor) -> Item:
    """An import, an export or a declaration; one that cannot be read is `Broken`."""
    first, depth = cursor.index, cursor.depth_left
    try:
        return _reader(cursor)(cursor)
    except SyntaxProblem:
        cursor.depth_left = depth
        cursor.pass_line()
        return Broken("", cursor.span(first))


def _reader(cursor: ModuleCursor) -> Callable[[ModuleCursor], Item]:
    """What reads the item ahead, by its first word; a word that is nearly one is reported and taken for it."""
    read = _ITEM_READERS.get(cursor.text)
    if read is not None:
        return read
    if cursor.text in SECTIONS and cursor.ahead() == ":":
        cursor.misindented("a section stands inside a declaration", "indent it, and all that belongs to it")
        raise SyntaxProblem
    wanted, where = "an import or a declaration", "here"
    is_head = cursor.kinds[cursor.index + 1] == NAME
    if is_head and cursor.reword(OPENERS, wanted, where):
        return _ITEM_READERS[cursor.text]
    close = nearest(cursor.text, OPENERS | SETTINGS) if cursor.kind == NAME else []
    raise cursor.problem(wanted, where, f"did you mean {close[0]}?" if close else "")


# --- imports ------------------------------------------------------------------------------------------------


def _import(cursor: ModuleCursor) -> Import:
    """`'import' path ('as' name | '.' '*' | '.' '{' imported,+ '}')?`."""
    first = cursor.next()
    path = [cursor.name("the path of a module", "after 'import'")]
    names: tuple[Imported, ...] | None = None
    while names is None and cursor.accept("."):
        if cursor.accept("*"):
            names = ()
        elif cursor.accept("{"):
            names = _imported(cursor, "}")
        else:
            path.append(cursor.name("a name", "after '.'"))
    version = _version(cursor, path)
    alias = cursor.name("a name", "after 'as'") if names is None and cursor.accept("as") else None
    span, notes = cursor.settle(first)
    cursor.end_line("after an import")
    return Import(tuple(path), version, alias, names, notes, span)


def _from(cursor: ModuleCursor) -> Import:
    """`'from' path 'import' (imported,+ | '(' imported,+ ')' | '*')`."""
    first = cursor.next()
    path = cursor.dotted("the path of a module", "after 'from'").split(".")
    version = _version(cursor, path)
    cursor.expect("import", "after the path of a module")
    if cursor.accept("*"):
        names: tuple[Imported, ...] = ()
    else:
        names = _imported(cursor, ")" if cursor.accept("(") else "")
    span, notes = cursor.settle(first)
    cursor.end_line("after an import")
    return Import(tuple(path), version, None, names, notes, span)


def _imported(cursor: ModuleCursor, end: str) -> tuple[Imported, ...]:
    """`name ('as' name)?` in a row, up to a closing bracket if there is one."""
    found = [_imported_name(cursor)]
    while cursor.accept(","):
        if end and cursor.text == end:
            break
        found.append(_imported_name(cursor))
    if end:
        cursor.expect(end, "after the names of an import")
    return tuple(found)


def _imported_name(cursor: ModuleCursor) -> Imported:
    first = cursor.index
    name = cursor.name("the name of a declaration", "in an import")
    alias = cursor.name("a name", "after 'as'") if cursor.accept("as") else None
    return Imported(name, alias, cursor.span_from(first))


def _version(cursor: ModuleCursor, path: list[str]) -> int | None:
    """Take a last part like `v2` from a path."""
    digits = path[-1][1:]
    if len(path) < 2 or not path[-1].startswith("v") or not (digits.isascii() and digits.isdigit()):
        return None
    # `int` of a hostile row of digits would take quadratic time.
    if len(digits) > VERSION_DIGITS:
        place, hint = cursor.span(cursor.index - 1), f"a version has at most {VERSION_DIGITS} digits"
        raise cursor.report(syntax.TOO_LARGE.at(place, hint=hint, text=digits[:SHOWN]))
    del path[-1]
    return int(digits)


def _export(cursor: ModuleCursor) -> Export:
    """`'export' (kind name | '*')`."""
    first = cursor.next()
    name = ""
    if cursor.accept(ALL):
        kind = ALL
    elif cursor.text in EXPORTED:
        kind = cursor.name("a kind", "here")
        name = cursor.name("the name of a declaration", f"after '{kind}'")
    else:
        raise cursor.problem("module, block, model, primitive, recipe, preset or '*'", "after 'export'")
    span, notes = cursor.settle(first)
    cursor.end_line("after an export")
    return Export(kind, name, notes, span)


# --- modules, blocks and models: the head, and the sections of the body -------------------------------------


def _module(cursor: ModuleCursor) -> Module | Broken:
    """`'abstract'? ('module' | 'block' | 'model') name params? ('extends' name)? ':'` with its sections."""
    first = cursor.index
    notes = cursor.above(first)
    cursor.has_stub = False
    head = _head(cursor)
    notes = cursor.headed(notes)
    doc = cursor.doc_below()
    body = ModuleBody()
    where = f"'{head.name[:40]}'"
    seen: set[str] = set()
    _, last = cursor.body(lambda cursor: _section_line(cursor, body, seen, where), "of sections")
    notes, span = cursor.closed(notes, last), cursor.span_from(first)
    if head.is_broken:
        # The body was read for its own mistakes; under a broken head it has no meaning.
        return Broken(head.name, span)
    return Module(
        head.kind,
        head.name,
        head.params if head.params is not None or head.extends else (),
        head.abstract,
        head.extends,
        doc,
        tuple(body.annotations),
        tuple(body.bindings),
        body.constants,
        body.tensors,
        body.sublayers,
        body.forward,
        body.backward,
        body.hf_config,
        body.hf_mapping,
        body.hf_export,
        cursor.has_stub,
        notes,
        span,
    )


def _head(cursor: ModuleCursor) -> _ModuleHead:
    """The head of a declaration; the body is read also when the head is broken."""
    head, depth = _ModuleHead(), cursor.depth_left
    try:
        _read_head(cursor, head)
    except SyntaxProblem:
        cursor.depth_left = depth
        cursor.pass_words()
        head.is_broken = True
    return head


def _read_head(cursor: ModuleCursor, head: _ModuleHead) -> None:
    head.abstract = cursor.accept("abstract")
    if cursor.text not in KINDS:
        raise cursor.problem("module, block or model", "after 'abstract'")
    head.kind = cursor.name("a word", "here")
    head.name = cursor.name(f"the name of the {head.kind}", f"after '{head.kind}'")
    if cursor.text == "(":
        head.params = cursor.config_params()
    if cursor.accept("extends"):
        head.extends = cursor.dotted("the name of a declaration", "after 'extends'")
    cursor.expect(":", f"after the head of '{head.name[:40]}'")


def _section_line(cursor: ModuleCursor, body: ModuleBody, seen: set[str], where: str) -> None:
    """One section, or the annotations of the whole declaration."""
    if cursor.text == "@":
        body.annotations += cursor.annotation_line()
        return
    if cursor.skip_stub():
        return
    first = cursor.index
    if cursor.text not in SECTIONS or cursor.ahead() != ":":
        _require_section(cursor, body, where)
    body.is_astray = False
    word = cursor.text
    is_second = word in seen and word not in REPEATABLE
    if is_second:
        cursor.twice(first, where)
    seen.add(word)
    # A second section is read all the same, for what is wrong inside it; the first one stays.
    read_section(cursor, ModuleBody() if is_second else body)


def _require_section(cursor: ModuleCursor, body: ModuleBody, where: str) -> None:
    """What stands in the place of a section: a word that is nearly one, or a line that belongs into one.

    Of several such lines behind each other the first is reported.
    """
    if cursor.text in SECTIONS:
        cursor.next()
        raise cursor.problem("':'", f"after '{cursor.texts[cursor.index - 1]}'")
    is_inner = cursor.text in INNER or cursor.has_arrow()
    if (
        cursor.ahead() == ":"
        and cursor.text not in INNER
        and cursor.reword(SECTIONS, "a section", f"in {where}")
    ):
        return
    if body.is_astray:
        raise SyntaxProblem
    body.is_astray = True
    if cursor.begins_line() and (is_inner or _follows_head(cursor)):
        inside = (
            "'graph:'"
            if cursor.has_arrow()
            else "'forward:'"
            if cursor.text in INNER
            else "the section above"
        )
        cursor.misindented(f"it belongs into {inside}", "indent it further than the head of its section")
        raise SyntaxProblem
    hint = "sections are let, constants, params, pattern, forward, backward, hf_config, hf_mapping, hf_export"
    raise cursor.problem("a section", f"in {where}", hint)


def _follows_head(cursor: ModuleCursor) -> bool:
    """Whether the line before is the head of a section with nothing below it."""
    index = cursor.index - 1
    while index and cursor.kinds[index] in LAYOUT:
        index -= 1
    return cursor.texts[index] == ":" and cursor.texts[index - 1] in SECTIONS


# --- primitives: what they take and give, and their free sections -------------------------------------------


def _primitive(cursor: ModuleCursor) -> Primitive | Broken:
    """`'primitive' name ':'` with its sections."""
    first = cursor.index
    notes = cursor.above(first)
    cursor.has_stub = False
    name, is_broken = _plain_head(cursor)
    notes = cursor.headed(notes)
    doc = cursor.doc_below()
    body = _PrimitiveBody()
    seen: set[str] = set()
    _, last = cursor.body(lambda cursor: _primitive_line(cursor, body, seen, name), "of sections")
    notes, span = cursor.closed(notes, last), cursor.span_from(first)
    if is_broken:
        return Broken(name, span)
    parts = (body.params, body.forward, body.backward, body.save, tuple(body.sections))
    return Primitive(name, doc, *parts, cursor.has_stub, notes, span)


def _plain_head(cursor: ModuleCursor) -> tuple[str, bool]:
    """`word name ':'`: the name, and whether the head is broken; the body is read also then."""
    word = cursor.text
    cursor.next()
    name = ""
    try:
        name = cursor.name(f"the name of the {word}", f"after '{word}'")
        cursor.expect(":", f"after '{name[:40]}'")
    except SyntaxProblem:
        cursor.pass_words()
        return name, True
    return name, False


def _primitive_line(cursor: ModuleCursor, body: _PrimitiveBody, seen: set[str], name: str) -> None:
    """One section of a primitive; one that is there twice is reported, and the first stays."""
    if cursor.skip_stub():
        return
    word = cursor.text
    if cursor.at_named() and word in seen:
        cursor.twice(cursor.index, f"'{name[:40]}'")
        body = _PrimitiveBody()
    seen.add(word)
    if not cursor.at_named():
        raise cursor.problem("a section", f"in '{name[:40]}'")
    if word == "params":
        body.params = cursor.section(ModuleCursor.config_line)
    elif word == "forward":
        body.forward = _signature(cursor)
    elif word == "backward":
        body.backward = _signature(cursor)
    elif word == "save" and cursor.ahead(2) == "[":
        body.save = read_selection(cursor)
    else:
        body.sections.append(read_field(cursor))


def _signature(cursor: ModuleCursor) -> Signature:
    """`('forward' | 'backward') ':'` with inputs, outputs, equations and fields."""
    first = cursor.next()
    notes = cursor.above(first)
    cursor.next()
    notes = cursor.headed(notes)
    found = _SignatureBody()
    _, last = cursor.body(lambda cursor: _signature_line(cursor, found), "of sections")
    return Signature(
        found.inputs,
        found.outputs,
        tuple(found.equations),
        tuple(found.fields),
        found.native,
        cursor.closed(notes, last),
        cursor.span_from(first),
    )


def _signature_line(cursor: ModuleCursor, found: _SignatureBody) -> None:
    if cursor.skip_stub():
        return
    if cursor.text == NATIVE and cursor.kinds[cursor.index + 1] == NEWLINE:
        first = cursor.next()
        found.native = True
        cursor.carry(first)
        cursor.end_line("after '_'")
    elif cursor.text in (*INPUTS, *OUTPUTS) and cursor.ahead() == ":":
        first, is_input = cursor.index, cursor.text in INPUTS
        if (found.inputs if is_input else found.outputs) is not None:
            cursor.twice(first, "a signature")
        ports = _open_ports(cursor, found)
        found.inputs, found.outputs = (ports, found.outputs) if is_input else (found.inputs, ports)
    elif cursor.text == "(" or (cursor.kind == NAME and cursor.ahead() in ("=", ",")):
        found.equations.append(_equation(cursor))
    else:
        found.fields.append(read_field(cursor))


def _open_ports(cursor: ModuleCursor, found: _SignatureBody) -> tuple[Port, ...]:
    """Inputs or outputs; `= value` behind them is an equation for them."""
    if cursor.kinds[cursor.index + 2] == NEWLINE:
        return read_ports(cursor, is_open=True)
    cursor.section_head()
    first = cursor.index
    ports = read_port_row(cursor, is_open=True)
    if cursor.accept("="):
        value = cursor.expression()
        targets = tuple(port.name or "" for port in ports)
        found.equations.append(Equation(targets, value, span=cursor.span_from(first)))
    cursor.end_line("after inputs or outputs")
    return ports


def _equation(cursor: ModuleCursor) -> Equation:
    """`(name,+ | '(' name,+ ')') '=' expression`."""
    first = cursor.index
    is_tuple = cursor.accept("(")
    targets = cursor.separated(lambda: cursor.name("the name of a gradient", "in an equation"))
    if is_tuple:
        cursor.expect(")", "after the names of gradients")
    cursor.expect("=", "after the name of a gradient")
    value = cursor.expression()
    span, notes = cursor.settle(first)
    cursor.end_line("after an equation")
    return Equation(tuple(targets), value, notes, span)


# --- declarations without sections --------------------------------------------------------------------------


def _recipe(cursor: ModuleCursor) -> Recipe | Broken:
    """`'recipe' name ':'` with fields."""
    name, fields, doc, notes, span = _named_fields(cursor)
    return Recipe(name, fields, doc, notes, span) if fields is not None else Broken(name, span)


def _preset(cursor: ModuleCursor) -> Preset | Broken:
    """`'preset' name ':'` with fields."""
    name, fields, doc, notes, span = _named_fields(cursor)
    return Preset(name, fields, doc, notes, span) if fields is not None else Broken(name, span)


def _setting(cursor: ModuleCursor) -> Setting:
    """`('verify_backward' | 'topology' | 'groups') ':'` with fields; the names of groups may be strings."""
    first = cursor.index
    notes, word = cursor.above(first), cursor.text
    cursor.next()
    cursor.expect(":", f"after '{word}'")
    if word in cursor.settings:
        cursor.twice(first, "this file")
    cursor.settings.add(word)
    notes = cursor.headed(notes)
    doc = cursor.doc_below()
    fields, last = cursor.body(_group_of_devices if word == "groups" else read_field, "of fields")
    return Setting(word, fields, doc, cursor.closed(notes, last), cursor.span_from(first))


def _group_of_devices(cursor: ModuleCursor) -> Field:
    """`(name | string) ':' text`."""
    first = cursor.index
    wanted, where = "the name of a group", "in 'groups:'"
    name = cursor.string(wanted, where).value if cursor.kind == STRING else cursor.name(wanted, where)
    cursor.expect(":", "after the name of a group")
    value = cursor.free_value()
    span, notes = cursor.settle(first)
    cursor.end_line("after a group")
    return Field(name, value, notes, span)


def _named_fields(cursor: ModuleCursor) -> tuple[str, tuple[Field, ...] | None, str, Trivia, Span]:
    """The parts of a recipe or a preset; its fields are None where the head is broken."""
    first = cursor.index
    notes = cursor.above(first)
    name, is_broken = _plain_head(cursor)
    notes = cursor.headed(notes)
    doc = cursor.doc_below()
    fields, last = cursor.body(read_field, "of fields")
    notes, span = cursor.closed(notes, last), cursor.span_from(first)
    return name, None if is_broken else fields, doc, notes, span


_ITEM_READERS: dict[str, Callable[[ModuleCursor], Item]] = {
    "import": _import,
    "from": _from,
    "export": _export,
    "primitive": _primitive,
    "recipe": _recipe,
    "preset": _preset,
    "abstract": _module,
    **dict.fromkeys(KINDS, _module),
    **dict.fromkeys(SETTINGS, _setting),
}
