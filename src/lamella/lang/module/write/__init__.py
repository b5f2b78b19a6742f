"""Pretty-printer: Module DSL nodes to canonical text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from itertools import groupby
from typing import NamedTuple, TypeVar

from lamella.base.lines import Lines
from lamella.base.source import NO_TRIVIA, Trivia
from lamella.lang.module import nodes as n
from lamella.lang.module.write.expressions import (
    is_primary,
    quote,
    write_annotation,
    write_annotations,
    write_arguments,
    write_condition,
    write_config_param,
    write_expression,
    write_if,
    write_param,
    write_path,
    write_port,
    write_type,
)

__all__ = ["document_lines", "write", "write_expression", "write_path", "write_type"]

INDENT = "  "
WIDTH = 100
OPENING = "([{"
CLOSING = ")]}"
SMALL = 12
"""Brackets around less than this are not worth breaking."""
FENCE = '"""'
LINES = (n.Import, n.Export)
Noted = TypeVar("Noted", n.ConfigParam, n.Constant, n.Param, n.Mapping)


def write(document: n.Document) -> str:
    """The canonical text of a document: `parse` of it is an equal document, and `write` of that the same text."""
    return ModuleWriter().write(document)


class ModuleWriter(Lines):
    """Writes a file from its docstring to its last declaration; a blank line stands between sections."""

    indent = INDENT

    def write(self, node: n.Document) -> str:
        """The text of a document; a blank line stands between its declarations."""
        self.comments(node.notes.above)
        self.document(node.doc)
        before: n.Item | None = None
        for item in node.items:
            is_grouped = isinstance(item, LINES) and type(item) is type(before)
            self.item(item, not is_grouped)
            before = item
        self._end(node)
        return self.text()

    def _end(self, node: n.Document) -> None:
        if node.notes.last:
            self.lines += [""] * bool(node.items)
            self.comments(node.notes.last)

    @singledispatchmethod
    def item(self, node: n.Item, apart: bool) -> None:
        """Write an import, an export or a declaration."""
        raise TypeError(f"{type(node).__name__} is not an item of a document")

    @item.register
    def _(self, node: n.Import, apart: bool) -> None:
        self.place(node.notes, _import_lines(node), apart)

    @item.register
    def _(self, node: n.Export, apart: bool) -> None:
        self.put(node.notes, f"export {node.kind} {node.name}".rstrip(), apart)

    @item.register
    def _(self, node: n.Broken, apart: bool) -> None:
        """What could not be read is written as it was."""
        self.place(NO_TRIVIA, node.span.text.rstrip().splitlines(), apart)

    # --- modules --------------------------------------------------------------------------------------------

    @item.register
    def _(self, node: n.Module, apart: bool) -> None:
        self._head(node, apart)
        self.document(node.doc)
        self.annotations(node.annotations, apart=True)
        self.bindings(node.bindings)
        self.constants(node.constants)
        self.tensors(node.tensors)
        self.sublayers(node.sublayers)
        self.forward(node.forward)
        self.backward(node.backward)
        if node.hf_config is not None:
            self.begin(NO_TRIVIA, "hf_config:", apart=True)
            self.fields(node.hf_config)
            self.level -= 1
        self.mappings("hf_mapping", node.hf_mapping)
        self.mappings("hf_export", node.hf_export)
        self._finish(node)

    def _head(self, node: n.Module, apart: bool) -> None:
        """The first line of a module; comments beside its parameters force them onto lines of their own."""
        start = f"{'abstract ' * node.abstract}{node.kind} {node.name}"
        end = f" extends {node.extends}:" if node.extends is not None else ":"
        params = node.params or ()
        if not any(param.notes.above or param.notes.behind for param in params):
            text = f"({', '.join(map(write_config_param, params))})" if node.params is not None else ""
            self.begin(node.notes, start + text + end, apart)
            return
        self.above(node.notes, apart)
        self.open_block(NO_TRIVIA, f"{start}(")
        for index, param in enumerate(params):
            comma = "," if index + 1 < len(params) else ""
            self.put(param.notes, write_config_param(param) + comma)
        self.level -= 1
        self.lines.append(f"){end}" + (f"  {node.notes.behind}" if node.notes.behind else ""))
        self.level += 1

    def _finish(self, node: n.Module | n.Primitive) -> None:
        """The end of a declaration: `...` where it is not finished, and the comments there."""
        if node.stub:
            self.put(NO_TRIVIA, "...", apart=True)
        self.end(node.notes)

    # --- primitives, recipes and presets --------------------------------------------------------------------

    @item.register
    def _(self, node: n.Primitive, apart: bool) -> None:
        self.begin(node.notes, f"primitive {node.name}:", apart)
        self.document(node.doc)
        self.config_params(node.params)
        self.signature("forward", node.forward)
        self.signature("backward", node.backward)
        if node.save is not None:
            self.above(NO_TRIVIA, apart=True)
        self.selection("save", node.save)
        self.fields(node.sections, apart=True)
        self._finish(node)

    def signature(self, name: str, node: n.Signature | None) -> None:
        """Write `forward:` or `backward:` of a primitive."""
        if node is None:
            return
        self.begin(node.notes, f"{name}:", apart=True)
        if node.native:
            self.put(NO_TRIVIA, "_")
        self.ports("in", "inputs", node.inputs)
        self.ports("out", "outputs", node.outputs)
        for item in node.equations:
            targets = ", ".join(item.targets)
            left = targets if len(item.targets) == 1 else f"({targets})"
            self.put(item.notes, f"{left} = {write_expression(item.value)}")
        self.fields(node.fields)
        self.end(node.notes)

    @item.register
    def _(self, node: n.Recipe | n.Preset, apart: bool) -> None:
        word = "recipe" if isinstance(node, n.Recipe) else "preset"
        self.begin(node.notes, f"{word} {node.name}:", apart)
        self.document(node.doc)
        if node.doc and node.fields:
            self.above(NO_TRIVIA, apart=True)
        self.fields(node.fields)
        self.end(node.notes)

    @item.register
    def _(self, node: n.Setting, apart: bool) -> None:
        self.begin(node.notes, f"{node.kind}:", apart)
        self.document(node.doc)
        if node.doc and node.fields:
            self.above(NO_TRIVIA, apart=True)
        fields = node.fields
        if node.kind == "groups":
            fields = tuple(replace(item, name=quote(item.name)) for item in fields)
        self.fields(fields)
        self.end(node.notes)

    # --- lines and blocks -----------------------------------------------------------------------------------

    def put(self, notes: Trivia, text: str, apart: bool = False) -> None:
        """A statement with its notes, broken where it is too long."""
        self.place(notes, wrap(text, self.level), apart)

    def begin(self, notes: Trivia, head: str, apart: bool = False) -> None:
        """The line that opens a block, with its notes."""
        self.put(notes, head, apart)
        self.level += 1

    def end(self, notes: Trivia) -> None:
        """The end of a block, after the comments that stand there."""
        self.comments(notes.last)
        self.level -= 1

    # --- statements -----------------------------------------------------------------------------------------

    def statements(self, statements: Iterable[n.Statement]) -> None:
        """Statements, one below the other."""
        for statement in statements:
            self.statement(statement)

    @singledispatchmethod
    def statement(self, node: n.Statement) -> None:
        """Write a statement."""
        raise TypeError(f"{type(node).__name__} is not a statement")

    @statement.register
    def _(self, node: n.Flow) -> None:
        parts = [_sources(node.sources)]
        parts += [f"-> {_step(step)}" for step in node.steps]
        parts.append(f"-> {_targets(node.targets)}")
        notes = [write_annotation(item) for item in node.annotations]
        self.place(node.notes, self._flow(parts, notes))

    def _flow(self, parts: Sequence[str], annotations: Sequence[str]) -> list[str]:
        """On one line where it fits, else broken before every arrow and every annotation."""
        whole = " ".join((*parts, *annotations))
        if fits(whole, self.level):
            return [INDENT * self.level + whole]
        found = wrap(parts[0], self.level)
        for part in (*parts[1:], *annotations):
            found += wrap(part, self.level + 1)
        return found

    @statement.register
    def _(self, node: n.Conditional) -> None:
        for index, arm in enumerate(node.arms):
            self.begin(arm.notes, f"{'elif' if index else 'if'} {write_condition(arm.condition)}:")
            self.statements(arm.body)
            self.end(arm.notes)
        if node.otherwise is not None:
            self.begin(node.notes, "else:")
            self.statements(node.otherwise)
            self.end(node.notes)

    @statement.register
    def _(self, node: n.Recompute) -> None:
        self.begin(node.notes, "recompute:")
        self.statements(node.body)
        self.end(node.notes)

    @statement.register
    def _(self, node: n.Stub) -> None:
        self.put(node.notes, "...")

    def selection(self, name: str, node: n.Selection | None) -> None:
        """`save: [item, …] if condition`, if it is there."""
        if node is not None:
            items = ", ".join(item.text + "..." * item.spread for item in node.items)
            self.put(node.notes, f"{name}: [{items}]{write_if(node.condition)}")

    def document(self, text: str) -> None:
        """Write a docstring, if there is one."""
        if text:
            self.place(NO_TRIVIA, document_lines(text, INDENT * self.level))

    def annotations(self, annotations: Sequence[n.Annotation], apart: bool = False) -> None:
        """Write the annotations of a declaration or of a section, one on a line."""
        for index, item in enumerate(annotations):
            self.put(NO_TRIVIA, write_annotation(item), apart and index == 0)

    def section(self, name: str, items: Sequence[Noted] | None, text: Callable[[Noted], str]) -> None:
        """Write a section of one line for each of its items, if it is there."""
        if items is None:
            return
        self.begin(NO_TRIVIA, f"{name}:", apart=True)
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
        self.section(name, items, _mapping)

    def sublayers(self, node: n.Sublayers | None) -> None:
        """Write `pattern:` and its sublayers."""
        if node is None:
            return
        self.begin(node.notes, f"pattern: {node.pattern}", apart=True)
        if node.sublayers:
            self.begin(NO_TRIVIA, "sublayers:")
            for names in node.sublayers:
                self.put(NO_TRIVIA, f"- ({', '.join(names)})")
            self.level -= 1
        self.end(node.notes)

    # --- let ------------------------------------------------------------------------------------------------

    def bindings(self, bindings: Sequence[n.Binding]) -> None:
        """Write `let:`; constraints that follow each other share a block."""
        if not bindings:
            return
        self.begin(NO_TRIVIA, "let:", apart=True)
        for is_constraint, group in groupby(bindings, lambda item: isinstance(item, n.Constraint)):
            items = list(group)
            if is_constraint:
                self.begin(NO_TRIVIA, "constraint:", apart=True)
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
            self.begin(NO_TRIVIA, "graph:")
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
            self.put(Trivia(ports[0].notes.above) if ports else NO_TRIVIA, row)
        else:
            self.begin(NO_TRIVIA, f"{block}:")
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


# --- parts of lines -----------------------------------------------------------------------------------------


def _sources(sources: tuple[n.Expr, ...]) -> str:
    text = ", ".join(map(write_expression, sources))
    return text if len(sources) == 1 and is_primary(sources[0]) else f"({text})"


def _step(node: n.Step) -> str:
    if isinstance(node, n.ShapeAssertion):
        return write_type(node.type)
    callee = write_expression(node.callee)
    return f"{callee}{write_arguments(node.arguments)}{write_annotations(node.annotations)}"


def _targets(targets: tuple[n.Target, ...]) -> str:
    """One target stands alone unless it has annotations of its own."""
    text = ", ".join(item.name + write_annotations(item.annotations) for item in targets)
    return text if len(targets) == 1 and not targets[0].annotations else f"({text})"


def _needs_lines(ports: Sequence[n.Port]) -> bool:
    """Whether comments stand among ports, or one without a name: several of those in a row would be a tuple."""
    is_noted = any(port.notes.above for port in ports[1:]) or any(port.notes.behind for port in ports)
    return is_noted or any(port.name is None for port in ports)


def _import_lines(node: n.Import) -> list[str]:
    version = () if node.version is None else (f"v{node.version}",)
    path = ".".join((*node.path, *version))
    if node.names is None:
        return [f"import {path}{_alias(node.alias)}"]
    if not node.names:
        return [f"import {path}.*"]
    names = ", ".join(item.name + _alias(item.alias) for item in node.names)
    line = f"from {path} import {names}"
    return [line] if fits(line, 0) else wrap(f"import {path}.{{{names}}}", 0)


def _alias(name: str | None) -> str:
    return "" if name is None else f" as {name}"


def document_lines(text: str, indent: str) -> list[str]:
    """A docstring: on one line where it is one, else between lines of its own.

    The language has no way to write three quotes inside, so they become single ones.
    """
    lines = text.replace(FENCE, "'''").split("\n")
    if len(lines) == 1 and not text.startswith('"') and not text.endswith('"'):
        return [f"{indent}{FENCE}{lines[0]}{FENCE}"]
    return [indent + FENCE, *(indent + line if line else "" for line in lines), indent + FENCE]


def _mapping(node: n.Mapping) -> str:
    """`path?: spec if condition`."""
    optional = "?" * node.optional
    return f"{write_path(node.path)}{optional}: {_spec(node.spec)}{write_if(node.condition)}"


def _spec(node: n.Spec) -> str:
    if isinstance(node, n.Direct):
        return quote(node.name)
    if isinstance(node, n.Transform):
        return f"transform({quote(node.name)}, fn: {node.function})"
    if isinstance(node, n.TiedType):
        return write_type(node)
    name, parts = (
        ("fuse", map(_spec, node.sources)) if isinstance(node, n.Fuse) else ("split", _split_parts(node))
    )
    return f"{name}({', '.join([*parts, f'dim={node.dim}'])})"


def _split_parts(node: n.Split) -> Iterable[str]:
    for part in node.parts:
        yield f"{quote(part.name)}: [{write_expression(part.low)}, {write_expression(part.high)}]"


# --- how a long line is broken: inside its brackets, one item on a line -------------------------------------


class _Group(NamedTuple):
    """Brackets in a text that no other brackets enclose, and the commas right inside."""

    start: int
    end: int
    commas: tuple[int, ...]


def fits(text: str, level: int) -> bool:
    """Whether a text is short enough for one line."""
    return len(INDENT) * level + len(text) <= WIDTH


def wrap(text: str, level: int) -> list[str]:
    """A line of a text, or the lines it is broken into; inside of brackets the ends of lines mean nothing."""
    if fits(text, level):
        return [INDENT * level + text]
    groups = [group for group in _groups(text) if group.end - group.start > SMALL]
    if not groups:
        return [INDENT * level + text]
    # The widest brackets first: what stands around them then most likely fits.
    group = max(groups, key=lambda item: item.end - item.start)
    return _broken(text, group, level)


def _broken(text: str, group: _Group, level: int) -> list[str]:
    """What stands before the brackets, the items inside, and what follows, each broken further if need be."""
    found = wrap(text[: group.start], level)
    found[-1] += text[group.start]
    places = (group.start, *group.commas, group.end)
    for place, begin in enumerate(places[:-1]):
        end = places[place + 1]
        comma = "," if end != group.end else ""
        found += wrap(text[begin + 1 : end].strip() + comma, level + 1)
    closing, *others = wrap(text[group.end + 1 :], level)
    return [*found, INDENT * level + text[group.end] + closing.removeprefix(INDENT * level), *others]


def _groups(text: str) -> Iterator[_Group]:
    """The outermost brackets of a text; those in strings are none."""
    depth, start, position = 0, 0, 0
    commas: list[int] = []
    while position < len(text):
        char = text[position]
        if char == '"':
            position = _string_end(text, position)
        elif char in OPENING:
            if depth == 0:
                start, commas = position, []
            depth += 1
        elif char in CLOSING:
            depth -= 1
            if depth == 0:
                yield _Group(start, position, tuple(commas))
        elif char == "," and depth == 1:
            commas.append(position)
        position += 1


def _string_end(text: str, start: int) -> int:
    """The place of the quote that closes a string."""
    position = start + 1
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position
