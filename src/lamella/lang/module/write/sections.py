"""Sections of a declaration as lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from lamella.base.source import NO_NOTES, Notes
from lamella.lang.module import nodes as n
from lamella.lang.module.write.expressions import write_expression
from lamella.lang.module.write.graphs import GraphWriter
from lamella.lang.module.write.strings import document_lines, quote
from lamella.lang.module.write.types import (
    write_annotation,
    write_config_param,
    write_mapping,
    write_param,
    write_port,
)
from lamella.lang.module.write.wrap import INDENT, fits, wrap

Noted = TypeVar("Noted", n.ConfigParam, n.Constant, n.Param, n.Mapping)


class SectionWriter(GraphWriter):
    """Writes the sections of a declaration; a blank line stands between them."""

    def document(self, text: str) -> None:
        """Write a docstring, if there is one."""
        if text:
            self.place(NO_NOTES, document_lines(text, INDENT * self.level))

    def annotations(self, annotations: Sequence[n.Annotation], apart: bool = False) -> None:
        """Write the annotations of a declaration or of a section, one on a line."""
        for index, item in enumerate(annotations):
            self.put(NO_NOTES, write_annotation(item), apart and index == 0)

    def section(self, name: str, items: Sequence[Noted] | None, text: Callable[[Noted], str]) -> None:
        """Write a section of one line for each of its items, if it is there."""
        if items is None:
            return
        self.begin(NO_NOTES, f"{name}:", apart=True)
        for item in items:
            self.put(item.notes, text(item))
        self.level -= 1

    def config_params(self, items: Sequence[n.ConfigParam]) -> None:
        """Write `params:` of a primitive."""
        self.section("params", items or None, write_config_param)

    def constants(self, items: Sequence[n.Constant]) -> None:
        """Write `constants:`."""
        self.section("constants", items or None, lambda item: f"{item.name}: {write_expression(item.value)}")

    def tensors(self, items: Sequence[n.Param]) -> None:
        """Write `params:` of a module."""
        self.section("params", items or None, write_param)

    def mappings(self, name: str, items: Sequence[n.Mapping] | None) -> None:
        """Write `hf_mapping:` or `hf_export:`."""
        self.section(name, items, write_mapping)

    def sublayers(self, node: n.Sublayers | None) -> None:
        """Write `pattern:` and its sublayers."""
        if node is None:
            return
        self.begin(node.notes, f"pattern: {node.pattern}", apart=True)
        if node.sublayers:
            self.begin(NO_NOTES, "sublayers:")
            for names in node.sublayers:
                self.put(NO_NOTES, f"- ({', '.join(names)})")
            self.level -= 1
        self.end(node.notes)

    # --- let ------------------------------------------------------------------------------------------------

    def bindings(self, bindings: Sequence[n.Binding]) -> None:
        """Write `let:`; constraints that follow each other share a block."""
        if not bindings:
            return
        self.begin(NO_NOTES, "let:", apart=True)
        for is_constraint, group in groupby(bindings, lambda item: isinstance(item, n.Constraint)):
            items = list(group)
            if is_constraint:
                self.begin(NO_NOTES, "constraint:", apart=True)
            for item in items:
                self._binding(item)
            self.level -= is_constraint
        self.level -= 1

    def _binding(self, node: n.Binding) -> None:
        if isinstance(node, n.Let):
            self.put(node.notes, f"{node.name} = {write_expression(node.value)}")
        elif isinstance(node, n.RuntimeDim):
            self.put(node.notes, f"{node.name}: {node.kind}")
        elif isinstance(node, n.Constraint):
            self.put(node.notes, f"{write_expression(node.condition)}, {quote(node.message)}")
        else:
            self.statement(node)

    # --- forward and backward -------------------------------------------------------------------------------

    def forward(self, node: n.Forward | None) -> None:
        """Write `forward:`."""
        if node is None:
            return
        self.begin(node.notes, "forward:", apart=True)
        self.annotations(node.annotations)
        self.ports("in", "inputs", node.inputs)
        self.ports("out", "outputs", node.outputs)
        self.graph(node.graph)
        self.selection("save", node.save)
        self.selection("recompute", node.recompute)
        self.end(node.notes)

    def backward(self, node: n.Backward | None) -> None:
        """Write `backward:`."""
        if node is None:
            return
        self.begin(node.notes, "backward:", apart=True)
        self.annotations(node.annotations)
        for port in node.gradients:
            self.put(port.notes, write_port(port))
        self.ports("in", "inputs", node.inputs)
        self.ports("out", "outputs", node.outputs)
        self.graph(node.graph)
        self.end(node.notes)

    def graph(self, statements: Sequence[n.Statement] | None) -> None:
        """Write `graph:`."""
        if statements is not None:
            self.begin(NO_NOTES, "graph:")
            self.statements(statements)
            self.level -= 1

    def ports(self, word: str, block: str, ports: Sequence[n.Port] | None) -> None:
        """Write inputs or outputs: on one line where they fit and no comment stands among them, else as a block."""
        if ports is None:
            return
        texts = [write_port(port) for port in ports]
        row = f"{word}: ({', '.join(texts)})"
        if len(ports) == 1 and not texts[0].endswith("..."):
            self.put(replace(ports[0].notes, blank=False), f"{word}: {texts[0]}")
        elif fits(row, self.level) and not _needs_lines(ports):
            self.put(Notes(ports[0].notes.above) if ports else NO_NOTES, row)
        else:
            self.begin(NO_NOTES, f"{block}:")
            for port, text in zip(ports, texts, strict=True):
                self.put(port.notes, text)
            self.level -= 1

    # --- free sections --------------------------------------------------------------------------------------

    def fields(self, fields: Sequence[n.Field], apart: bool = False) -> None:
        """Write fields, one on a line; those of a field stand below it."""
        for field in fields:
            if isinstance(field.value, tuple):
                self.begin(field.notes, f"{field.name}:", apart)
                self.fields(field.value)
                self.end(field.notes)
            else:
                self.place(field.notes, self._field(field.name, field.value), apart)

    def _field(self, name: str, value: n.Expr | str) -> list[str]:
        """A field of one line, or an item of a list; free text stays as it is."""
        head = "- " if name == "-" else f"{name}: "
        if isinstance(value, str):
            return [f"{INDENT * self.level}{head}{value}"]
        return wrap(head + write_expression(value), self.level)


def _needs_lines(ports: Sequence[n.Port]) -> bool:
    """Whether comments stand among ports, or one without a name: several of those in a row would be a tuple."""
    is_noted = any(port.notes.above for port in ports[1:]) or any(port.notes.behind for port in ports)
    return is_noted or any(port.name is None for port in ports)
