"""Device configurations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from lamella.base.cursor import SyntaxProblem
from lamella.base.source import NO_NOTES, Notes
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import Device, Setting, Text, Topology, UnitGroup, VariantRef
from lamella.lang.nem.parse.expressions import Expressions
from lamella.lang.nem.parse.families import Families
from lamella.lang.nem.parse.lexis import NAME
from lamella.lang.nem.words import STATEMENT_WORDS

T = TypeVar("T")
OPCODE_BLOCKS = ("mandatory", "extended")


@dataclass(slots=True)
class _Body:
    """The blocks of one device, as they are found."""

    version: Text | None = None
    version_notes: Notes = NO_NOTES
    topology: Topology | None = None
    characteristics: tuple[UnitGroup, ...] | None = None
    characteristics_notes: Notes = NO_NOTES
    mandatory: tuple[VariantRef, ...] | None = None
    mandatory_notes: Notes = NO_NOTES
    extended: tuple[VariantRef, ...] | None = None
    extended_notes: Notes = NO_NOTES
    damaged: bool = False


class Devices(Families, Expressions):
    """The rules of the grammar under `device_block`."""

    def device_block(self) -> Device:
        """`'device' ID ('extends' ID)? '{' block* '}'`; the order of the blocks is free."""
        first = self.next()
        name = self.declare("the name of a device", "after 'device'")
        parent = self.use("the name of the parent", "after 'extends'") if self.accept("extends") else None
        notes = self.open_block(first)
        self._body = body = _Body()
        while self.text != "}":
            self.device_item(body)
        end = self.next()
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
            self.span_from(first),
            notes,
            self._closing_notes(end),
            body.version_notes,
            body.characteristics_notes,
            body.mandatory_notes,
            body.extended_notes,
        )

    def device_item(self, body: _Body) -> None:
        """`spec_version`, `topology`, `unit_characteristics`, `opcode.mandatory` or `opcode.extended`."""
        first = self.index
        if self.text == "spec_version":
            self.spec_version(body)
        elif self.text == "topology":
            topology = self.topology()
            body.topology = self._once(body.topology, topology, first, "topology")
        elif self.text == "unit_characteristics":
            self.unit_characteristics(body)
        elif self.text == "opcode" and self.ahead() == "." and self.ahead(2) in OPCODE_BLOCKS:
            self.opcode_block(body)
        elif self.kind == NAME and self.ahead() in ("=", "{", "."):
            finding = rules.UNKNOWN_SETTING.at(self.span(first), name=self.text, place="a device")
            raise self.report(finding)
        else:
            raise self.problem("a block of a device or '}'", "in a device")

    def _once(self, given: T | None, found: T, first: int, what: str) -> T:
        """The first of two equal blocks or settings; the second is reported."""
        if given is None:
            return found
        self.report(rules.DOUBLE_SETTING.at(self.span(first), what=what))
        return given

    def open_block(self, first: int) -> Notes:
        """Take the brace that opens a block, with the notes of what stands before it."""
        brace = self.expect("{", "at the beginning of a block")
        return self.margin.take(self.starts[first], self.end_of(brace), self.starts[self.index])

    def _closing_notes(self, end: int) -> Notes:
        return self.margin.close(self.starts[end], self.end_of(end), self.starts[self.index])

    def close_block(self, notes: Notes) -> Notes:
        """Take the brace that closes a block; comments before and behind it are the last of the block."""
        end = self.expect("}", "at the end of a block")
        found = self._closing_notes(end)
        last = (*found.above, found.behind) if found.behind else found.above
        return replace(notes, last=last) if last else notes

    def spec_version(self, body: _Body) -> None:
        """`'spec_version' '=' STRING`."""
        first = self.next()
        self.expect("=", "after 'spec_version'")
        text = self.string("after 'spec_version ='")
        notes = self.settle(first)[1]
        if body.version is None:
            body.version_notes = notes
        body.version = self._once(body.version, text, first, "spec_version")

    # --- topology and characteristics -----------------------------------------------------------------------

    def topology(self) -> Topology:
        """`'topology' '{' (setting | 'device_units' '{' setting* '}' | 'per_engine' '{' setting* '}')* '}'`."""
        first = self.next()
        notes = self.open_block(first)
        settings: dict[str, Setting] = {}
        blocks: dict[str, tuple[tuple[Setting, ...], Notes]] = {}
        while self.text != "}":
            if self.text in ("device_units", "per_engine"):
                word, start = self.text, self.index
                found = self.unit_counts()
                blocks[word] = self._once(blocks.get(word), found, start, word)
            else:
                self.setting(settings)
        notes = self.close_block(notes)
        units, unit_notes = blocks.get("device_units", (None, NO_NOTES))
        engine, engine_notes = blocks.get("per_engine", (None, NO_NOTES))
        span = self.span_from(first)
        return Topology(tuple(settings.values()), units, engine, span, notes, unit_notes, engine_notes)

    def unit_counts(self) -> tuple[tuple[Setting, ...], Notes]:
        """`('device_units' | 'per_engine') '{' setting* '}'`."""
        notes = self.open_block(self.next())
        settings = self.settings()
        return settings, self.close_block(notes)

    def unit_characteristics(self, body: _Body) -> None:
        """`'unit_characteristics' '{' (UNIT '{' setting* '}')* '}'`."""
        first = self.next()
        notes = self.open_block(first)
        groups: dict[str, UnitGroup] = {}
        while self.text != "}":
            start = self.index
            group = self.unit_group()
            name = group.unit.id
            groups[name] = self._once(groups.get(name), group, start, name)
        notes = self.close_block(notes)
        if body.characteristics is None:
            body.characteristics_notes = notes
        found = tuple(groups.values())
        body.characteristics = self._once(body.characteristics, found, first, "unit_characteristics")

    def unit_group(self) -> UnitGroup:
        """`UNIT '{' setting* '}'`."""
        first = self.index
        unit = self.use("a unit or '}'", "in unit_characteristics")
        notes = self.open_block(first)
        settings = self.settings()
        notes = self.close_block(notes)
        return UnitGroup(unit, settings, self.span_from(first), notes)

    def settings(self) -> tuple[Setting, ...]:
        """`setting*`."""
        found: dict[str, Setting] = {}
        while self.text != "}":
            self.setting(found)
        return tuple(found.values())

    def setting(self, found: dict[str, Setting]) -> None:
        """`ID '=' expr`; after an unreadable value the next setting is read, and the device counts as broken."""
        first = self.index
        depth = self.depth_left
        name = self.use("a setting or '}'", "in a block of a device")
        self.expect("=", "after the name of a setting")
        try:
            value = self.expression()
        except SyntaxProblem:
            self.depth_left = depth
            self._body.damaged = True
            self.skip_to(self.at_setting)
            return
        setting = Setting(name, value, *self.settle(first))
        found[name.id] = self._once(found.get(name.id), setting, first, name.id)

    def at_setting(self) -> bool:
        """Whether a setting, a block or the end of one stands ahead."""
        if self.text == "}" or self.text in STATEMENT_WORDS:
            return True
        return self.kind == NAME and self.ahead() in ("=", "{")

    # --- type variants --------------------------------------------------------------------------------------

    def opcode_block(self, body: _Body) -> None:
        """`'opcode' '.' ('mandatory' | 'extended') '{' variant_ref* '}'`."""
        first = self.next()
        self.next()
        word = self.text
        self.next()
        notes = self.open_block(first)
        found = []
        while self.text != "}":
            found.append(self.variant_reference())
        notes = self.close_block(notes)
        given = getattr(body, word)
        if given is None:
            setattr(body, f"{word}_notes", notes)
        setattr(body, word, self._once(given, tuple(found), first, f"opcode.{word}"))

    def variant_reference(self) -> VariantRef:
        """`ID ('.' ID)? ('<' ELEM,+ '>')? '.' ID`."""
        first = self.index
        parts = [self.word("a variant or '}'", "in a list of variants")]
        while len(parts) < 3 and self.accept("."):
            parts.append(self.word("a name", "after '.'"))
        elems: tuple[str, ...] = ()
        if self.text == "<" and len(parts) < 3:
            elems = self.instantiation()
            self.expect(".", "before the name of a variant")
            parts.append(self.word("the name of a variant", "after '.'"))
        elif len(parts) < 2:
            raise self.problem("'.' or '<'", "after the name of a type family")
        return VariantRef(".".join(parts[:-1]), elems, parts[-1], *self.settle(first))
