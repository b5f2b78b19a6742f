"""Statements as lines."""

from __future__ import annotations

from functools import singledispatchmethod

from lamella.lang.nem.nodes import (
    Broken,
    Buffer,
    Const,
    Let,
    Loop,
    Name,
    Region,
    RegionDef,
    Statement,
    Task,
    Wait,
)
from lamella.lang.nem.words import MOVES, NOTE_DECORATORS, TASK_DECORATORS
from lamella.lang.nem.write.lines import Lines
from lamella.lang.nem.write.values import (
    attribute_words,
    decorators_words,
    enclosed,
    listed,
    operand_words,
    region_words,
    type_groups,
    words_of,
    write_expression,
)

END_DECORATORS = TASK_DECORATORS | NOTE_DECORATORS


class StatementWriter(Lines):
    """Writes statements, one on a line."""

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
    attributes = [word for item in task.attributes for word in attribute_words(item)]
    if _strides_clash(task):
        return [inputs, outputs, _deps_words(task.deps), attributes]
    needed = task.deps or (not task.attributes and _decorators_clash(task))
    return [inputs, outputs, attributes, _deps_words(task.deps) if needed else []]


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
