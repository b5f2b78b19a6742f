"""The tensor language for editors: kernels, their values and the types of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from lamella.base.source import Source, Span
from lamella.lang.tensor import nodes as ten
from lamella.lang.tensor import parse, write, write_type
from lamella.lang.tensor.check.roles import regions_of, result_types
from lamella.lang.tensor.nodes import types
from lamella.lang.tensor.parse.tokens import LEXER
from lamella.lang.tensor.words import DOTTED, INSTRUCTIONS, NEWER, OTHERS, PLAIN, UNSUPPORTED
from lamella.lsp.index import Definition, External, FileIndex, Names, Visit
from lamella.lsp.language import CheckFacts, ForeignDefinition, Word

KEYWORDS = frozenset((*PLAIN, *DOTTED, *OTHERS)) - {"x"}
_FAMILY = re.compile(r"(\w+)\.\w*$")
WORDS = INSTRUCTIONS - UNSUPPORTED - frozenset(NEWER)


# --- what the nodes define and use --------------------------------------------------------------------------


def _value(names: Names, node: object) -> None:
    item = cast(ten.Value, node)
    names.use(item.name, _bare(item))


def _bare(value: ten.Value) -> Span:
    """The name of a value without its sigil; a numbered one may be written with leading zeros."""
    source, start, end = value.span
    return Span(source, min(start + 1, end), end)


def _define(names: Names, value: ten.Value, kind: str, whole: Span, node: object) -> None:
    names.define(value.name, kind, whole, node, _bare(value))


def _function(names: Names, node: object) -> None:
    item = cast(ten.Function, node)
    found = names.define(item.name, "kernel", item.span, item)
    with names.inside(item.span, found):
        for parameter in item.parameters:
            _define(names, parameter.value, "parameter", parameter.span, parameter)
        names.walk(item.body)


def _statement(names: Names, node: object) -> None:
    item = cast(ten.Statement, node)
    regions = regions_of(item)
    names.walk(tuple(part for part in _operands(item.instruction) if not isinstance(part, ten.Region)))
    for region in regions:
        with names.inside(region.span):
            for value in _entered(item.instruction):
                _define(names, value, "variable", item.span, item.instruction)
            names.walk(region.statements)
    for value in item.results:
        _define(names, value, "value", item.span, item)


def _operands(instruction: ten.Instruction) -> list[object]:
    """What an instruction reads; what it defines for its region is left out."""
    match instruction:
        case ten.For():
            starts = tuple(start for _, start in instruction.carried)
            return [instruction.begin, instruction.end, instruction.step, starts]
        case ten.Foreach() | ten.ForeachTile():
            return [instruction.begins, instruction.ends]
        case ten.CoopApply():
            return [instruction.operand]
    return [getattr(instruction, name) for name in type(instruction).__dataclass_fields__]


def _entered(instruction: ten.Instruction) -> tuple[ten.Value, ...]:
    """The values that the region of an instruction is entered with."""
    match instruction:
        case ten.For():
            return (instruction.variable, *(value for value, _ in instruction.carried))
        case ten.Foreach():
            return instruction.variables
        case ten.ForeachTile():
            return (*instruction.variables, *instruction.sizes)
        case ten.CoopApply():
            return (instruction.row, instruction.column, instruction.value)
    return ()


def _nothing(names: Names, node: object) -> None:
    """Types hold no names."""


VISITS: Mapping[type, Visit] = MappingProxyType(
    {
        ten.Value: _value,
        ten.Function: _function,
        ten.Statement: _statement,
        **dict.fromkeys(
            (types.Scalar, types.Memref, types.Group, types.Coopmatrix, types.Dictionary), _nothing
        ),
    }
)


def index_text(source: Source) -> FileIndex:
    """What the names of a text mean; never raises, whatever the text is."""
    program, findings = parse(source)
    names = Names(source, LEXER, VISITS)
    names.walk(program.functions)
    return names.finish(program, findings)


def canonical(index: FileIndex) -> str:
    """The canonical form of a text without syntax errors."""
    return write(cast(ten.Program, index.document))


# --- what an editor shows -----------------------------------------------------------------------------------


def describe(definition: Definition) -> str:
    """A value with its type, and the instruction that gives it; of a kernel its head."""
    head = definition.whole.text.partition("{\n")[0].rstrip(" {\n")
    if definition.kind == "kernel":
        return head
    kind = _type_of(definition.node, definition.name)
    typed = f"%{definition.name}: {kind}" if kind else f"%{definition.name}"
    return typed if definition.kind == "parameter" else f"{typed}\n{head}"


def _type_of(node: object, name: str) -> str:
    """The type of the value that a node defines by a name, as the text would write it; empty where it is open."""
    match node:
        case ten.Parameter():
            return write_type(node.type)
        case ten.Statement():
            types_by_name = zip(
                (item.name for item in node.results), result_types(node.instruction), strict=False
            )
            return next((write_type(kind) for value, kind in types_by_name if value == name), "")
        case ten.For() if name != node.variable.name:
            pairs = zip((value.name for value, _ in node.carried), node.types, strict=False)
            return next((write_type(kind) for value, kind in pairs if value == name), "")
        case ten.For() | ten.Foreach() | ten.ForeachTile():
            return write_type(node.type)
    return ""


def locate(external: External, index: FileIndex, path: Path) -> ForeignDefinition | None:
    """A kernel sees nothing of other files."""
    return None


def explain(external: External) -> str:
    """Nothing is known of a value that is not defined."""
    return ""


def words(index: FileIndex, path: Path, before: str) -> Iterable[Word]:
    """The instructions; behind a dot the functions of their family."""
    written = _FAMILY.search(before)
    family = f"{written[1]}." if written else ""
    return (Word(name[len(family) :], "instruction") for name in sorted(WORDS) if name.startswith(family))


def find_facts(path: Path) -> CheckFacts:
    """All types are written in the text."""
    return CheckFacts()
