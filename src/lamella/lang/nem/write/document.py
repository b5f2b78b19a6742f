"""Documents, type families and devices as lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lamella.base.source import NO_NOTES, Notes
from lamella.lang.nem.nodes import (
    Binding,
    Broken,
    Conformance,
    Device,
    DeviceRef,
    Document,
    Setting,
    Text,
    Topology,
    TypeFamily,
    UnitGroup,
    Variant,
    VariantRef,
)
from lamella.lang.nem.write.statements import StatementWriter
from lamella.lang.nem.write.values import write_expression, write_string


class DocumentWriter(StatementWriter):
    """Writes a document from its includes to its last statement."""

    def document(self, node: Document) -> str:
        """The text of a document; its parts are set apart by a blank line."""
        for item in node.includes:
            self.put(item.notes, [[f"include {write_string(item.path.value)}"]])
        for declaration in node.declarations:
            self._declaration(declaration)
        if node.device is not None:
            self.put(node.device.notes, [[f"device {_target(node.device)}"]], apart=True)
        if node.name is not None:
            self.put(node.name_notes, [[f"program {node.name.id}:"]], apart=True)
        for index, statement in enumerate(node.statements):
            if index == 0 and self.lines and not statement.notes.blank:
                self.lines.append("")
            self.statement(statement)
        if node.end_notes.above:
            self.above(node.end_notes)
        return self.text()

    def _declaration(self, node: TypeFamily | Device | Broken) -> None:
        if isinstance(node, TypeFamily):
            self.type_family(node)
        elif isinstance(node, Device):
            self.device(node)
        else:
            self.statement(node)

    # --- type families --------------------------------------------------------------------------------------

    def type_family(self, node: TypeFamily) -> None:
        """Write a type family; the comment behind it stands behind its last line."""
        parameters = ", ".join(f"{item.name}: {{{', '.join(item.elems)}}}" for item in node.parameters)
        head = f"type_family {node.name.id}" + (f"<{parameters}>" if parameters else "")
        self.open_block(Notes(node.notes.above, "", node.notes.blank), head + " {", apart=True)
        for binding in node.bindings:
            self.put(NO_NOTES, [[_binding(binding)]])
        for constraint in node.constraints:
            self.put(NO_NOTES, [[f"{constraint.name} = {' '.join(constraint.words)}"]])
        self.open_block(NO_NOTES, "variants:", apart=True)
        for variant in node.variants:
            self.variant(variant)
        self.level -= 1
        self.close_block(Notes(behind=node.notes.behind), "}")

    def variant(self, node: Variant) -> None:
        """Write a variant and, below it, its conformance classes."""
        bindings = " ".join(_binding(item) for item in node.bindings)
        self.open_block(NO_NOTES, f"{node.name}: {{ {bindings} }}" if bindings else f"{node.name}: {{}}")
        classes = " ".join(_conformance(item) for item in node.conformance)
        self.put(NO_NOTES, [[f"conformance: {{ {classes} }}" if classes else "conformance: {}"]])
        self.level -= 1

    # --- devices --------------------------------------------------------------------------------------------

    def device(self, node: Device) -> None:
        """Write a device; its blocks are set apart by a blank line."""
        parent = f" extends {node.parent.id}" if node.parent is not None else ""
        self.open_block(node.notes, f"device {node.name.id}{parent} {{", apart=True)
        if node.spec_version is not None:
            self.put(node.version_notes, [[f"spec_version = {write_string(node.spec_version.value)}"]])
        if node.topology is not None:
            self.topology(node.topology)
        if node.characteristics is not None:
            self.open_block(node.characteristics_notes, "unit_characteristics {", apart=True)
            for group in node.characteristics:
                self.unit_group(group)
            self.end_block(node.characteristics_notes)
        self.variants("opcode.mandatory", node.mandatory, node.mandatory_notes)
        self.variants("opcode.extended", node.extended, node.extended_notes)
        self.close_block(node.end_notes, "}")

    def end_block(self, notes: Notes) -> None:
        """Close a block after its last comments."""
        self.comments(notes.last)
        self.close_block(NO_NOTES, "}")

    def topology(self, node: Topology) -> None:
        """Write a topology: its own settings, then those of the device, then those of an engine."""
        self.open_block(node.notes, "topology {", apart=True)
        self.settings(node.settings)
        if node.device_units is not None:
            self.block("device_units", node.device_units, node.device_units_notes)
        if node.per_engine is not None:
            self.block("per_engine", node.per_engine, node.per_engine_notes)
        self.end_block(node.notes)

    def block(self, name: str, settings: Sequence[Setting], notes: Notes) -> None:
        """Write a named block of settings."""
        self.open_block(notes, f"{name} {{")
        self.settings(settings)
        self.end_block(notes)

    def settings(self, settings: Iterable[Setting]) -> None:
        """Write settings, one on a line."""
        for item in settings:
            self.put(item.notes, [[f"{item.name.id} = {write_expression(item.value)}"]])

    def unit_group(self, node: UnitGroup) -> None:
        """Write the characteristics of a unit."""
        self.block(node.unit.id, node.settings, node.notes)

    def variants(self, name: str, variants: Sequence[VariantRef] | None, notes: Notes) -> None:
        """Write a list of variants, one on a line."""
        if variants is None:
            return
        self.open_block(notes, f"{name} {{", apart=True)
        for item in variants:
            elems = f"<{', '.join(item.elems)}>" if item.elems else ""
            self.put(item.notes, [[f"{item.family}{elems}.{item.variant}"]])
        self.end_block(notes)


def _binding(node: Binding) -> str:
    return f"{node.operand}: {node.type}"


def _conformance(node: Conformance) -> str:
    return f"{node.level} <{', '.join(node.elems)}>" if node.elems else node.level


def _target(node: DeviceRef) -> str:
    return write_string(node.target.value) if isinstance(node.target, Text) else node.target.id
