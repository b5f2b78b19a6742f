"""Pretty-printer: NEM nodes to canonical text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatchmethod

from lamella.base.lines import INDENT, Lines
from lamella.base.source import NO_TRIVIA, Trivia
from lamella.lang.nem.nodes import (
    Attribute,
    Binding,
    Broken,
    Buffer,
    Chain,
    Conformance,
    Const,
    Decorator,
    Device,
    DeviceRef,
    Document,
    Expr,
    Integer,
    Items,
    Let,
    Loop,
    Name,
    Negate,
    Operand,
    Quant,
    Real,
    Region,
    RegionDef,
    Setting,
    Statement,
    Task,
    Text,
    Topology,
    TypeAttributes,
    TypeFamily,
    UnitGroup,
    UnitRef,
    Value,
    Variant,
    VariantRef,
    Wait,
)
from lamella.lang.nem.words import MOVES, NOTE_DECORATORS, TASK_DECORATORS

# --- expressions, values, regions and decorators as words ---------------------------------------------------


ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write_expression(value: Expr) -> str:
    """An expression, with parentheses where the reading needs them."""
    if isinstance(value, Name):
        return value.id
    if isinstance(value, Integer):
        return str(value.value)
    if isinstance(value, Real):
        return write_real(value.value)
    if isinstance(value, Negate):
        inner = write_expression(value.operand)
        return f"-({inner})" if isinstance(value.operand, Chain) else f"-{inner}"
    is_sum = _is_sum(value)
    parts = [_operand(value.first, is_sum)]
    for sign, operand in value.rest:
        parts.append(sign)
        parts.append(_operand(operand, is_sum))
    return " ".join(parts)


def _is_sum(value: Chain) -> bool:
    return value.rest[0][0] in ("+", "-")


def _operand(value: Expr, in_sum: bool) -> str:
    """An operand of a chain: of chains, only a product in a sum stands without parentheses."""
    text = write_expression(value)
    bare = not isinstance(value, Chain) or (in_sum and not _is_sum(value))
    return text if bare else f"({text})"


def write_real(value: float) -> str:
    """A FLOAT that reads back as the same number; it has digits on both sides of the point."""
    text = repr(value)
    mantissa, mark, exponent = text.partition("e")
    return text if "." in mantissa else f"{mantissa}.0{mark}{exponent}"


def write_string(value: str) -> str:
    """A STRING; what cannot be seen is escaped."""
    return (
        '"' + "".join(ESCAPES.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in value) + '"'
    )


def words_of(value: Value) -> list[str]:
    """A value; each item of a list is a word."""
    if isinstance(value, Items):
        return enclosed("[", [words_of(item) for item in value.values], "]")
    if isinstance(value, Text):
        return [write_string(value.value)]
    return [write_expression(value)]


def listed(parts: Iterable[Sequence[str]]) -> list[str]:
    """Parts with a comma behind each but the last."""
    found: list[str] = []
    for part in parts:
        if found:
            found[-1] += ","
        found += part
    return found


def enclosed(opening: str, parts: Iterable[Sequence[str]], closing: str) -> list[str]:
    """Parts with commas between them and signs around them."""
    found = listed(parts) or [""]
    found[0] = opening + found[0]
    found[-1] += closing
    return found


def attribute_words(attribute: Attribute) -> list[str]:
    """`name=value`."""
    return _led(f"{attribute.name.id}=", words_of(attribute.value))


def _led(prefix: str, words: list[str]) -> list[str]:
    return [prefix + words[0], *words[1:]]


def region_words(region: Region) -> list[str]:
    """A region without its type."""
    offset, extent = write_expression(region.offset), write_expression(region.extent)
    return [f"region({region.buffer.id},", f"{offset},", f"{extent})"]


def type_groups(type_: TypeAttributes | None) -> list[list[str]]:
    """The type attributes in their canonical order, with a comma behind each but the last."""
    if type_ is None:
        return []
    parts: list[list[str]] = []
    if type_.elem is not None:
        parts.append([f"elem={type_.elem.id}"])
    if type_.shape is not None:
        parts.append(_sizes("shape=[", type_.shape))
    if type_.layout is not None:
        parts.append([f"layout={type_.layout.id}"])
    if type_.strides is not None:
        parts.append(_sizes("strides=[", type_.strides))
    if type_.quant is not None:
        parts.append(quant_words(type_.quant))
    for part in parts[:-1]:
        part[-1] += ","
    return parts


def _sizes(opening: str, sizes: tuple[Expr, ...]) -> list[str]:
    return enclosed(opening, [[write_expression(item)] for item in sizes], "]")


def quant_words(quant: Quant) -> list[str]:
    """A quantisation descriptor."""
    return enclosed(f"quant={quant.form}(", [attribute_words(item) for item in quant.fields], ")")


def operand_words(operand: Operand) -> list[str]:
    """An operand with its type and decorators."""
    value = operand.value
    if isinstance(value, Name):
        found = [value.id]
    else:
        found = region_words(value) + [word for group in type_groups(value.type) for word in group]
    return found + decorators_words(operand.decorators)


def decorators_words(decorators: tuple[Decorator, ...]) -> list[str]:
    """Decorators one behind the other."""
    return [word for decorator in decorators for word in decorator_words(decorator)]


def decorator_words(decorator: Decorator) -> list[str]:
    """`@name` or `@name(arguments)`."""
    name = f"@{decorator.name}"
    if not decorator.arguments:
        return [name]
    return enclosed(f"{name}(", [_argument_words(item) for item in decorator.arguments], ")")


def _argument_words(argument: Value | UnitRef) -> list[str]:
    if isinstance(argument, UnitRef):
        return [f"{argument.unit}[{write_expression(argument.index)}]"]
    return words_of(argument)


# --- how a long line is broken ------------------------------------------------------------------------------


WIDTH = 120
TABLE = 12
"""Items of a list beyond which it is a table on one line: scales of channels are looked up, not read."""


def _filled(words: Sequence[str], first: str, others: str) -> list[str]:
    """Words in lines that are as full as they may be."""
    found: list[str] = []
    line, length = [first + words[0]], len(first) + len(words[0])
    for word in words[1:]:
        if length + 1 + len(word) > WIDTH:
            found.append(" ".join(line))
            line, length = [others + word], len(others) + len(word)
        else:
            line.append(word)
            length += 1 + len(word)
    return [*found, " ".join(line)]


END_DECORATORS = TASK_DECORATORS | NOTE_DECORATORS


def _move_groups(task: Task) -> list[list[str]]:
    """`(dst=…, src=…, deps=[…])`."""
    ends = [*zip(("dst", "src"), (task.outputs[0], task.inputs[0]), strict=True)]
    groups = []
    for name, operand in ends:
        words = operand_words(operand)
        groups.append([f"{name}={words[0]}", *words[1:]])
    if task.deps:
        groups.append(_deps_words(task.deps))
    for group in groups[:-1]:
        group[-1] += ","
    groups[0][0] = "(" + groups[0][0]
    groups[-1][-1] += ")"
    return groups


def _compute_groups(task: Task) -> list[list[str]]:
    """` in … out … attributes deps=[…]`; where words would else be read as another node's, `deps` stands between."""
    inputs = [" in", *listed([operand_words(item) for item in task.inputs])]
    outputs = ["out", *listed([operand_words(item) for item in task.outputs])]
    attributes = [attribute_words(item) for item in task.attributes]
    if _strides_clash(task):
        return [inputs, outputs, _deps_words(task.deps), *attributes]
    needed = task.deps or (not task.attributes and _decorators_clash(task))
    return [inputs, outputs, *attributes, _deps_words(task.deps) if needed else []]


def _strides_clash(task: Task) -> bool:
    """Whether an attribute `strides` would be read as that of the last operand."""
    last = task.outputs[-1]
    untyped = isinstance(last.value, Region) and last.value.type is None and not last.decorators
    return untyped and bool(task.attributes) and task.attributes[0].name.id == "strides"


def _decorators_clash(task: Task) -> bool:
    """Whether decorators behind the last operand would be read as the task's, or the task's as the operand's."""
    own = any(item.name not in END_DECORATORS for item in task.decorators)
    return own or any(item.name in NOTE_DECORATORS for item in task.outputs[-1].decorators)


def _deps_words(deps: tuple[Name, ...]) -> list[str]:
    return enclosed("deps=[", [[name.id] for name in deps], "]")


# --- documents, type families and devices as lines ----------------------------------------------------------


class NemWriter(Lines):
    """Writes a document from its includes to its last statement; statements are given as words."""

    def put(self, notes: Trivia, groups: Sequence[Sequence[str]], apart: bool = False) -> None:
        """A statement with its notes; `groups` are its words, divided where a long line is broken first."""
        self.place(notes, self._laid_out([group for group in groups if group]), apart)

    def _laid_out(self, groups: Sequence[Sequence[str]]) -> list[str]:
        """As many whole groups in a line as fit; a group that is too long for one is broken between its words."""
        indent = INDENT * self.level
        if sum(map(len, groups)) <= 1:
            return [indent + " ".join(word for group in groups for word in group)]
        found: list[str] = []
        for group in groups:
            joined = " ".join(group)
            if found and len(found[-1]) + 1 + len(joined) <= WIDTH:
                found[-1] += f" {joined}"
            else:
                found += _filled(group, indent + INDENT if found else indent, indent + INDENT)
        return found

    @singledispatchmethod
    def statement(self, node: Statement) -> None:
        """Write a statement."""
        raise TypeError(f"{type(node).__name__} is not a statement")

    @statement.register
    def _(self, node: Const) -> None:
        self.put(node.notes, [[f"const {node.name.id} = {write_expression(node.value)}"]])

    @statement.register
    def _(self, node: Let) -> None:
        words = words_of(node.value)
        if len(words) > TABLE:
            words = [" ".join(words)]
        self.put(node.notes, [[f"let {node.name.id} = {words[0]}", *words[1:]]])

    @statement.register
    def _(self, node: RegionDef) -> None:
        words = region_words(node.region)
        words[0] = f"{'let ' if node.let else ''}{node.name.id} = {words[0]}"
        self.put(node.notes, [words, *type_groups(node.region.type), decorators_words(node.decorators)])

    @statement.register
    def _(self, node: Buffer) -> None:
        index = "" if node.index is None else f"[{write_expression(node.index)}]"
        properties = [] if node.size is None else [[f"size={write_expression(node.size)}"]]
        properties += [] if node.align is None else [[f"align={write_expression(node.align)}"]]
        properties += [["import"]] if node.imported else []
        properties += [] if node.codec is None else [[f"codec={node.codec.id}"]]
        properties += [] if node.stored is None else [[f"stored={write_expression(node.stored)}"]]
        head = f"buffer {node.name.id} : {node.level}{index}"
        words = [head, *enclosed("(", properties, ")")]
        self.put(node.notes, [words, decorators_words(node.decorators)])

    @statement.register
    def _(self, node: Wait) -> None:
        self.put(node.notes, [enclosed("wait(", [[name.id] for name in node.tokens], ")")])

    @statement.register
    def _(self, node: Loop) -> None:
        span = f"[{write_expression(node.first)}..{write_expression(node.last)}]"
        words = [f"loop {node.variable.id} in {span}", *decorators_words(node.decorators)]
        words[-1] += ":"
        self.put(node.notes, [words])
        self.level += 1
        for statement in node.body:
            self.statement(statement)
        self.close_block(node.end_notes, "endloop")

    @statement.register
    def _(self, node: Broken) -> None:
        """What could not be read is written as it was."""
        self.put(node.notes, [[node.span.text]])

    @statement.register
    def _(self, node: Task) -> None:
        head = f"{node.token.id} = " if node.token is not None else ""
        head += f"{node.opcode.id}.{node.form}"
        groups = _move_groups(node) if node.opcode.id in MOVES else _compute_groups(node)
        groups[0][0] = head + groups[0][0]
        self.put(node.notes, [*groups, decorators_words(node.decorators)])

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
        self.open_block(Trivia(node.notes.above, "", node.notes.blank), head + " {", apart=True)
        for binding in node.bindings:
            self.put(NO_TRIVIA, [[_binding(binding)]])
        for constraint in node.constraints:
            self.put(NO_TRIVIA, [[f"{constraint.name} = {' '.join(constraint.words)}"]])
        self.open_block(NO_TRIVIA, "variants:", apart=True)
        for variant in node.variants:
            self.variant(variant)
        self.level -= 1
        self.close_block(Trivia(behind=node.notes.behind), "}")

    def variant(self, node: Variant) -> None:
        """Write a variant and, below it, its conformance classes."""
        bindings = " ".join(_binding(item) for item in node.bindings)
        self.open_block(NO_TRIVIA, f"{node.name}: {{ {bindings} }}" if bindings else f"{node.name}: {{}}")
        classes = " ".join(_conformance(item) for item in node.conformance)
        self.put(NO_TRIVIA, [[f"conformance: {{ {classes} }}" if classes else "conformance: {}"]])
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

    def end_block(self, notes: Trivia) -> None:
        """Close a block after its last comments."""
        self.comments(notes.last)
        self.close_block(NO_TRIVIA, "}")

    def topology(self, node: Topology) -> None:
        """Write a topology: its own settings, then those of the device, then those of an engine."""
        self.open_block(node.notes, "topology {", apart=True)
        self.settings(node.settings)
        if node.device_units is not None:
            self.block("device_units", node.device_units, node.device_units_notes)
        if node.per_engine is not None:
            self.block("per_engine", node.per_engine, node.per_engine_notes)
        self.end_block(node.notes)

    def block(self, name: str, settings: Sequence[Setting], notes: Trivia) -> None:
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

    def variants(self, name: str, variants: Sequence[VariantRef] | None, notes: Trivia) -> None:
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


def write(document: Document) -> str:
    """The canonical text of a document: `parse` of it is an equal document, and `write` of that the same text."""
    return NemWriter().document(document)
