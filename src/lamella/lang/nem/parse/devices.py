"""Type families and device blocks: the rules of the grammar under `type_family` and `device_block`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from lamella.base.cursor import SyntaxProblem
from lamella.base.source import NO_TRIVIA, Trivia
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import (
    Binding,
    Conformance,
    Constraint,
    Device,
    Name,
    Setting,
    Text,
    Topology,
    TypeFamily,
    TypeParameter,
    UnitGroup,
    Variant,
    VariantRef,
)
from lamella.lang.nem.parse.tokens import NAME, NemCursor
from lamella.lang.nem.words import KEYWORDS, STATEMENT_WORDS

T = TypeVar("T")
OPCODE_BLOCKS = ("mandatory", "extended")


@dataclass(slots=True)
class _DeviceBody:
    """The blocks of one device, as they are found."""

    version: Text | None = None
    version_notes: Trivia = NO_TRIVIA
    topology: Topology | None = None
    characteristics: tuple[UnitGroup, ...] | None = None
    characteristics_notes: Trivia = NO_TRIVIA
    mandatory: tuple[VariantRef, ...] | None = None
    mandatory_notes: Trivia = NO_TRIVIA
    extended: tuple[VariantRef, ...] | None = None
    extended_notes: Trivia = NO_TRIVIA
    damaged: bool = False


def read_type_family(cursor: NemCursor) -> TypeFamily:
    """`'type_family' family_id type_params? '{' (binding | constraint)* 'variants' ':' variant* '}'`."""
    first = cursor.next()
    name = _family_name(cursor)
    parameters = _type_parameters(cursor)
    cursor.expect("{", "after the name of a type family")
    bindings: list[Binding] = []
    constraints: list[Constraint] = []
    while not (cursor.text == "variants" and cursor.ahead() == ":"):
        if cursor.ahead() == "=":
            constraints.append(_constraint(cursor))
        else:
            bindings.append(_binding(cursor))
    cursor.next()
    cursor.next()
    variants = []
    while cursor.text != "}":
        variants.append(_variant(cursor))
    cursor.next()
    parts = (parameters, tuple(bindings), tuple(constraints), tuple(variants))
    return TypeFamily(name, *parts, *cursor.finish(first))


def _family_name(cursor: NemCursor) -> Name:
    """`family_id := ID ('.' ID)?`."""
    name = cursor.declare("the name of a type family", "after 'type_family'")
    if not cursor.accept("."):
        return name
    part = cursor.use("a name", "after '.'")
    whole = Name(f"{name.id}.{part.id}", name.span.to(part.span))
    cursor.declared[-1] = whole
    return whole


def _type_parameters(cursor: NemCursor) -> tuple[TypeParameter, ...]:
    """`type_params := '<' type_param,+ '>'`."""
    if not cursor.accept("<"):
        return ()
    found = cursor.separated(lambda: _type_parameter(cursor))
    cursor.expect(">", "after the type parameters")
    return tuple(found)


def _type_parameter(cursor: NemCursor) -> TypeParameter:
    """`type_param := ID ':' '{' ELEM,+ '}'`."""
    first = cursor.index
    name = cursor.word("a type parameter", "here")
    cursor.expect(":", "after a type parameter")
    cursor.expect("{", "before the types of a parameter")
    elems = cursor.separated(cursor.element)
    cursor.expect("}", "after the types of a parameter")
    return TypeParameter(name, tuple(item.id for item in elems), cursor.span_from(first))


def _binding(cursor: NemCursor) -> Binding:
    """`ID ':' TYPE`."""
    first = cursor.index
    operand = cursor.word("an operand, a constraint or 'variants:'", "in a type family")
    cursor.expect(":", "after the name of an operand")
    return Binding(operand, cursor.word("a type", "after ':'"), cursor.span_from(first))


def _constraint(cursor: NemCursor) -> Constraint:
    """`(ID | 'quant') '=' word+`; a word before ':' or '=' begins the next line."""
    first = cursor.index
    name = cursor.name().id if cursor.text == "quant" else cursor.word("a constraint", "in a type family")
    cursor.next()
    words = [cursor.word("a word", "after '='")]
    while cursor.kind == NAME and cursor.text not in KEYWORDS and cursor.ahead() not in (":", "="):
        words.append(cursor.name().id)
    return Constraint(name, tuple(words), cursor.span_from(first))


def _variant(cursor: NemCursor) -> Variant:
    """`ID ':' '{' binding* '}' 'conformance' ':' '{' conformance* '}'`."""
    first = cursor.index
    name = cursor.word("a variant or '}'", "in a type family")
    cursor.expect(":", "after the name of a variant")
    cursor.expect("{", "before the operands of a variant")
    bindings = []
    while not cursor.accept("}"):
        bindings.append(_binding(cursor))
    cursor.expect("conformance", "after a variant")
    cursor.expect(":", "after 'conformance'")
    cursor.expect("{", "after 'conformance:'")
    classes = []
    while not cursor.accept("}"):
        classes.append(_conformance(cursor))
    return Variant(name, tuple(bindings), tuple(classes), cursor.span_from(first))


def _conformance(cursor: NemCursor) -> Conformance:
    """`('MUST' | 'MAY') ('<' ELEM,+ '>')?`."""
    level = cursor.text
    if level not in ("MUST", "MAY"):
        raise cursor.problem("MUST, MAY or '}'", "in a conformance block")
    first = cursor.next()
    return Conformance(level, _instantiation(cursor), cursor.span_from(first))


def _instantiation(cursor: NemCursor) -> tuple[str, ...]:
    """`('<' ELEM,+ '>')?`."""
    if not cursor.accept("<"):
        return ()
    elems = cursor.separated(cursor.element)
    cursor.expect(">", "after the element types")
    return tuple(item.id for item in elems)


# --- device blocks ------------------------------------------------------------------------------------------


def read_device_block(cursor: NemCursor) -> Device:
    """`'device' ID ('extends' ID)? '{' block* '}'`; the order of the blocks is free."""
    first = cursor.next()
    name = cursor.declare("the name of a device", "after 'device'")
    parent = cursor.use("the name of the parent", "after 'extends'") if cursor.accept("extends") else None
    notes = _open_block(cursor, first)
    body = _DeviceBody()
    while cursor.text != "}":
        _device_item(cursor, body)
    end = cursor.next()
    # What is wrong was reported setting by setting; a device that lacks some of them must not be used.
    if body.damaged:
        raise SyntaxProblem
    return Device(
        name,
        parent,
        body.version,
        body.topology,
        body.characteristics,
        body.mandatory,
        body.extended,
        cursor.span_from(first),
        notes,
        _closing_notes(cursor, end),
        body.version_notes,
        body.characteristics_notes,
        body.mandatory_notes,
        body.extended_notes,
    )


def _device_item(cursor: NemCursor, body: _DeviceBody) -> None:
    """`spec_version`, `topology`, `unit_characteristics`, `opcode.mandatory` or `opcode.extended`."""
    first = cursor.index
    if cursor.text == "spec_version":
        _spec_version(cursor, body)
    elif cursor.text == "topology":
        topology = _topology(cursor, body)
        body.topology = _once(cursor, body.topology, topology, first, "topology")
    elif cursor.text == "unit_characteristics":
        _unit_characteristics(cursor, body)
    elif cursor.text == "opcode" and cursor.ahead() == "." and cursor.ahead(2) in OPCODE_BLOCKS:
        _opcode_block(cursor, body)
    elif cursor.kind == NAME and cursor.ahead() in ("=", "{", "."):
        finding = rules.UNKNOWN_SETTING.at(cursor.span(first), name=cursor.text, place="a device")
        raise cursor.report(finding)
    else:
        raise cursor.problem("a block of a device or '}'", "in a device")


def _once(cursor: NemCursor, given: T | None, found: T, first: int, what: str) -> T:
    """The first of two equal blocks or settings; the second is reported."""
    if given is None:
        return found
    cursor.report(rules.DOUBLE_SETTING.at(cursor.span(first), what=what))
    return given


def _open_block(cursor: NemCursor, first: int) -> Trivia:
    """Take the brace that opens a block, with the notes of what stands before it."""
    brace = cursor.expect("{", "at the beginning of a block")
    return cursor.margin.take(cursor.starts[first], cursor.end_of(brace), cursor.starts[cursor.index])


def _closing_notes(cursor: NemCursor, end: int) -> Trivia:
    return cursor.margin.close(cursor.starts[end], cursor.end_of(end), cursor.starts[cursor.index])


def _close_block(cursor: NemCursor, notes: Trivia) -> Trivia:
    """Take the brace that closes a block; comments before and behind it are the last of the block."""
    end = cursor.expect("}", "at the end of a block")
    found = _closing_notes(cursor, end)
    last = (*found.above, found.behind) if found.behind else found.above
    return replace(notes, last=last) if last else notes


def _spec_version(cursor: NemCursor, body: _DeviceBody) -> None:
    """`'spec_version' '=' STRING`."""
    first = cursor.next()
    cursor.expect("=", "after 'spec_version'")
    text = cursor.string("after 'spec_version ='")
    notes = cursor.settle(first)[1]
    if body.version is None:
        body.version_notes = notes
    body.version = _once(cursor, body.version, text, first, "spec_version")


# --- topology and characteristics ---------------------------------------------------------------------------


def _topology(cursor: NemCursor, body: _DeviceBody) -> Topology:
    """`'topology' '{' (setting | 'device_units' '{' setting* '}' | 'per_engine' '{' setting* '}')* '}'`."""
    first = cursor.next()
    notes = _open_block(cursor, first)
    settings: dict[str, Setting] = {}
    blocks: dict[str, tuple[tuple[Setting, ...], Trivia]] = {}
    while cursor.text != "}":
        if cursor.text in ("device_units", "per_engine"):
            word, start = cursor.text, cursor.index
            found = _unit_counts(cursor, body)
            blocks[word] = _once(cursor, blocks.get(word), found, start, word)
        else:
            _setting(cursor, body, settings)
    notes = _close_block(cursor, notes)
    units, unit_notes = blocks.get("device_units", (None, NO_TRIVIA))
    engine, engine_notes = blocks.get("per_engine", (None, NO_TRIVIA))
    span = cursor.span_from(first)
    return Topology(tuple(settings.values()), units, engine, span, notes, unit_notes, engine_notes)


def _unit_counts(cursor: NemCursor, body: _DeviceBody) -> tuple[tuple[Setting, ...], Trivia]:
    """`('device_units' | 'per_engine') '{' setting* '}'`."""
    notes = _open_block(cursor, cursor.next())
    settings = _settings(cursor, body)
    return settings, _close_block(cursor, notes)


def _unit_characteristics(cursor: NemCursor, body: _DeviceBody) -> None:
    """`'unit_characteristics' '{' (UNIT '{' setting* '}')* '}'`."""
    first = cursor.next()
    notes = _open_block(cursor, first)
    groups: dict[str, UnitGroup] = {}
    while cursor.text != "}":
        start = cursor.index
        group = _unit_group(cursor, body)
        name = group.unit.id
        groups[name] = _once(cursor, groups.get(name), group, start, name)
    notes = _close_block(cursor, notes)
    if body.characteristics is None:
        body.characteristics_notes = notes
    found = tuple(groups.values())
    body.characteristics = _once(cursor, body.characteristics, found, first, "unit_characteristics")


def _unit_group(cursor: NemCursor, body: _DeviceBody) -> UnitGroup:
    """`UNIT '{' setting* '}'`."""
    first = cursor.index
    unit = cursor.use("a unit or '}'", "in unit_characteristics")
    notes = _open_block(cursor, first)
    settings = _settings(cursor, body)
    notes = _close_block(cursor, notes)
    return UnitGroup(unit, settings, cursor.span_from(first), notes)


def _settings(cursor: NemCursor, body: _DeviceBody) -> tuple[Setting, ...]:
    """`setting*`."""
    found: dict[str, Setting] = {}
    while cursor.text != "}":
        _setting(cursor, body, found)
    return tuple(found.values())


def _setting(cursor: NemCursor, body: _DeviceBody, found: dict[str, Setting]) -> None:
    """`ID '=' expr`; after an unreadable value the next setting is read, and the device counts as broken."""
    first = cursor.index
    depth = cursor.depth_left
    name = cursor.use("a setting or '}'", "in a block of a device")
    cursor.expect("=", "after the name of a setting")
    try:
        value = cursor.expression()
    except SyntaxProblem:
        cursor.depth_left = depth
        body.damaged = True
        cursor.skip_to(lambda: _at_setting(cursor))
        return
    setting = Setting(name, value, *cursor.settle(first))
    found[name.id] = _once(cursor, found.get(name.id), setting, first, name.id)


def _at_setting(cursor: NemCursor) -> bool:
    """Whether a setting, a block or the end of one stands ahead."""
    if cursor.text == "}" or cursor.text in STATEMENT_WORDS:
        return True
    return cursor.kind == NAME and cursor.ahead() in ("=", "{")


# --- type variants ------------------------------------------------------------------------------------------


def _opcode_block(cursor: NemCursor, body: _DeviceBody) -> None:
    """`'opcode' '.' ('mandatory' | 'extended') '{' variant_ref* '}'`."""
    first = cursor.next()
    cursor.next()
    word = cursor.text
    cursor.next()
    notes = _open_block(cursor, first)
    found = []
    while cursor.text != "}":
        found.append(_variant_reference(cursor))
    notes = _close_block(cursor, notes)
    given = getattr(body, word)
    if given is None:
        setattr(body, f"{word}_notes", notes)
    setattr(body, word, _once(cursor, given, tuple(found), first, f"opcode.{word}"))


def _variant_reference(cursor: NemCursor) -> VariantRef:
    """`ID ('.' ID)? ('<' ELEM,+ '>')? '.' ID`."""
    first = cursor.index
    parts = [cursor.word("a variant or '}'", "in a list of variants")]
    while len(parts) < 3 and cursor.accept("."):
        parts.append(cursor.word("a name", "after '.'"))
    elems: tuple[str, ...] = ()
    if cursor.text == "<" and len(parts) < 3:
        elems = _instantiation(cursor)
        cursor.expect(".", "before the name of a variant")
        parts.append(cursor.word("the name of a variant", "after '.'"))
    elif len(parts) < 2:
        raise cursor.problem("'.' or '<'", "after the name of a type family")
    return VariantRef(".".join(parts[:-1]), elems, parts[-1], *cursor.settle(first))
