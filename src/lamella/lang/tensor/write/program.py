"""Programs, functions and regions as lines."""

from __future__ import annotations

from dataclasses import replace

from lamella.base.lines import Lines
from lamella.base.source import Notes
from lamella.lang.tensor.nodes import (
    CoopApply,
    For,
    Foreach,
    ForeachTile,
    Function,
    If,
    Parallel,
    Parameter,
    Program,
    Region,
    Statement,
)
from lamella.lang.tensor.write.instructions import close_values, write_instruction
from lamella.lang.tensor.write.types import write_dictionary, write_type, write_types


class ProgramWriter(Lines):
    """Writes a program from its first function to its last, one instruction on a line."""

    indent = "  "

    def program(self, node: Program) -> str:
        """The text of a program; a blank line stands between its functions."""
        for function in node.functions:
            self.function(function)
        if node.end.above:
            self.above(node.end)
        return self.text()

    # --- functions ------------------------------------------------------------------------------------------

    def function(self, node: Function) -> None:
        """Write a function, its parameters one below the other."""
        self.place(node.notes, _head_lines(node), apart=True)
        self.level += 1
        self.inside(node.body)
        self.close_block(node.body.end, "}")

    # --- regions --------------------------------------------------------------------------------------------

    def inside(self, node: Region) -> None:
        """Write the statements of a region; it does not begin with a blank line."""
        for index, statement in enumerate(node.statements):
            notes = statement.notes
            self.statement(statement, replace(notes, blank=False) if index == 0 else notes)

    def statement(self, node: Statement, notes: Notes) -> None:
        """Write a statement with its notes."""
        results = f"{close_values(node.results)} = " if node.results else ""
        match node.instruction:
            case For() as loop:
                self.open_block(notes, results + _for_head(loop))
                tail = "" if loop.attributes is None else f" {write_dictionary(loop.attributes)}"
                self.rest(loop.body, "}" + tail)
            case Foreach() as loop:
                self.open_block(notes, results + _foreach_head(loop))
                self.rest(loop.body, "}")
            case ForeachTile() as loop:
                self.open_block(notes, results + _tile_head(loop))
                self.rest(loop.body, "}")
            case CoopApply() as apply:
                self.open_block(notes, results + _apply_head(apply))
                self.rest(apply.body, "}")
            case Parallel() as parallel:
                self.open_block(notes, f"{results}parallel {{")
                self.rest(parallel.body, "}")
            case If() as branch:
                self.branch(branch, notes, results)
            case instruction:
                self.place(notes, [self.indent * self.level + results + write_instruction(instruction)])

    def rest(self, node: Region, end: str) -> None:
        """Write what is inside a region and the line that closes it."""
        self.inside(node)
        self.close_block(node.end, end)

    def branch(self, node: If, notes: Notes, results: str) -> None:
        """Write a branch; `} else {` stands on one line."""
        types = f" -> {write_types(node.types)}" if node.types else ""
        self.open_block(notes, f"{results}if %{node.condition.name}{types} {{")
        if node.otherwise is None:
            self.rest(node.then, "}")
            return
        self.rest(node.then, "} else {")
        self.level += 1
        self.rest(node.otherwise, "}")


def _head_lines(node: Function) -> list[str]:
    """The lines from `func` to the brace, with the comments beside the parameters."""
    start = f"func @{node.name}("
    attributes = "" if node.attributes is None else f" attributes{write_dictionary(node.attributes)}"
    end = f"){attributes} {{"
    if not node.parameters:
        return [start + end]
    margin = " " * len(start)
    lines: list[str] = []
    for left, parameter in zip(range(len(node.parameters))[::-1], node.parameters, strict=True):
        lines += [margin + line for line in parameter.notes.above if line]
        comma = "," if left else ""
        behind = f"  {parameter.notes.behind}" if parameter.notes.behind else ""
        lines.append(f"{margin}{_parameter(parameter)}{comma}{behind}")
    lines[:1] = [start, lines[0]] if node.parameters[0].notes.above else [start + lines[0].lstrip()]
    if node.parameters[-1].notes.behind:
        return [*lines, margin[:-1] + end]
    return [*lines[:-1], lines[-1] + end]


def _parameter(node: Parameter) -> str:
    attributes = "" if node.attributes is None else f" {write_dictionary(node.attributes)}"
    return f"%{node.value.name}: {write_type(node.type)}{attributes}"


def _for_head(node: For) -> str:
    bounds = [node.begin, node.end] + ([] if node.step is None else [node.step])
    head = f"for %{node.variable.name}:{node.type.name}={close_values(bounds)}"
    if node.carried:
        pairs = ",".join(f"%{name.name}=%{start.name}" for name, start in node.carried)
        head += f" init({pairs}) -> {write_types(node.types)}"
    return head + " {"


def _foreach_head(node: Foreach) -> str:
    lists = ",".join(f"({close_values(items)})" for items in (node.begins, node.ends))
    return f"foreach ({close_values(node.variables)}):{node.type.name}={lists} {{"


def _tile_head(node: ForeachTile) -> str:
    head = _foreach_head(Foreach(node.variables, node.begins, node.ends, node.body, node.type))
    tile = f"({close_values(node.sizes)})<=({','.join(map(str, node.tile))})"
    return f"{head.replace('foreach', 'foreach_tile', 1)[:-1]}as {tile} {{"


def _apply_head(node: CoopApply) -> str:
    values = close_values((node.row, node.column, node.value))
    return f"cooperative_matrix_apply ({values})=%{node.operand.name} -> {write_type(node.type)} {{"
