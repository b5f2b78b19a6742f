"""Lines of the text to ABCD instructions and memory commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.base.cursor import SHOWN
from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.nac.assembly.nodes import (
    Argument,
    Call,
    Id,
    Label,
    Line,
    Moment,
    Order,
    Raw,
    System,
    Value,
)
from lamella.lang.nac.assembly.numbers import write_string, write_value
from lamella.lang.nac.assembly.tables import Table, Tables
from lamella.lang.nac.assembly.words import SYSTEM
from lamella.lang.nac.nodes import CONVERGENCE, Command, ConstantType, Instruction, Parameter, Signature, Tick
from lamella.lang.nac.rules import assembly as rules

_CODES: Mapping[ConstantType, str] = MappingProxyType(
    {
        ConstantType.NULL: "c",
        ConstantType.BOOL: "b",
        ConstantType.INT64: "i",
        ConstantType.FLOAT64: "f",
        ConstantType.STRING: "s",
        ConstantType.INT32_LIST: "S",
        ConstantType.FLOAT32_LIST: "S",
    }
)
"""The code of a constant in a signature that was left out."""


@dataclass(slots=True)
class Encoder:
    """Turns the lines of one section into instructions; what is missing in the tables is added to them."""

    tables: Tables
    indices: Mapping[str, int]
    findings: list[Diagnostic] = field(default_factory=list)

    def instruction(self, index: int, line: Line) -> Instruction:
        """The instruction of a line; what cannot be said in it is left out of it."""
        match line.body:
            case Raw(operation, variant, constants, offsets):
                return Instruction(operation, variant, constants, offsets, line.span)
            case System() as system:
                return self._system(index, line, system)
            case Call() as call:
                return self._call(index, line, call)

    # --- system operations ----------------------------------------------------------------------------------

    def _system(self, index: int, line: Line, body: System) -> Instruction:
        operation, variant = SYSTEM[body.word]
        constants = tuple(self._operand(item, line.span) for item in body.operands)
        offsets = tuple(self._offset(index, label, line) for label in body.labels)
        if operation == CONVERGENCE:
            variant, *lengths = constants
            constants = tuple(lengths)
        return Instruction(operation, variant, constants, offsets, line.span)

    def _operand(self, operand: int | str | Value | Id, span: Span) -> int:
        match operand:
            case int():
                return operand
            case str():
                return self._known(self.tables.parameters, operand, span, "parameter")
            case _:
                return self._constant(operand)

    # --- regular operations ---------------------------------------------------------------------------------

    def _call(self, index: int, line: Line, body: Call) -> Instruction:
        operation = self._operation(body.operation, line.span)
        variant = self._variant(body, line.span)
        constants = tuple(self._constant(item) for item in body.arguments if not isinstance(item, Label))
        offsets = tuple(
            self._offset(index, item, line) if isinstance(item, Label) else 0 for item in body.arguments
        )
        return Instruction(operation, variant, constants, offsets, line.span)

    def _operation(self, operation: str | Id, span: Span) -> int:
        if isinstance(operation, Id):
            return operation.number
        found = self.tables.operation_id(operation, span)
        if found is not None:
            return found
        return self._full(self.tables.operations.last, "operation", write_string(operation), span)

    def _variant(self, body: Call, span: Span) -> int:
        """The id of the signature; an operation without signature and arguments has none."""
        codes = body.signature
        if codes is None:
            if not body.arguments:
                return 0
            codes = "".join(map(self._code, body.arguments))
        elif len(codes) != len(body.arguments):
            given = _counted(len(body.arguments))
            shown, wanted = write_string(codes[:SHOWN]), len(codes)
            self.findings.append(rules.ARGUMENT_COUNT.at(span, codes=shown, wanted=wanted, given=given))
            return 0
        return self._known(self.tables.signatures, codes, span, "signature")

    def _code(self, argument: Argument) -> str:
        if isinstance(argument, Label):
            return "T"
        return _CODES[argument.type] if isinstance(argument, Value) else "c"

    def _constant(self, constant: Value | Id) -> int:
        if isinstance(constant, Id):
            return constant.number
        type_, value, span = constant.type, constant.value, constant.span
        found = self.tables.constant_id(type_, value, span)
        if found is not None:
            return found
        return self._full(self.tables.constants.last, "constant", write_value(type_, value), span)

    def _known(self, table: Table[Parameter] | Table[Signature], meaning: str, span: Span, what: str) -> int:
        found = table.id_of(meaning, span)
        return self._full(table.last, what, write_string(meaning), span) if found is None else found

    def _full(self, last: int, what: str, text: str, span: Span) -> int:
        self.findings.append(rules.FULL_TABLE.at(span, what=what, text=text[:SHOWN], last=last))
        return 0

    # --- labels ---------------------------------------------------------------------------------------------

    def _offset(self, index: int, label: Label, line: Line) -> int:
        found = self._index(label)
        if found == index:
            self.findings.append(rules.OWN_RESULT.at(label.span, label=line.label.name[:SHOWN]))
        return 0 if found is None else found - index

    def _index(self, label: Label) -> int | None:
        found = self.indices.get(label.name)
        if found is None:
            repair = f"there are {len(self.indices)} instructions" if label.name.isdigit() else "define it"
            self.findings.append(rules.UNKNOWN_LABEL.at(label.span, label=label.name[:SHOWN], repair=repair))
        return found

    # --- memory commands ------------------------------------------------------------------------------------

    def tick(self, index: int, item: Line | Moment) -> Tick:
        """The commands of an instruction or of a row of `.schedule`."""
        span = item.orders[0].span.to(item.orders[-1].span) if item.orders else item.span
        return Tick(index, tuple(self._commands(item.orders)), span)

    def _commands(self, orders: Sequence[Order]) -> Iterable[Command]:
        for order in orders:
            for target in order.targets:
                index = target if isinstance(target, int) else self._index(target)
                if index is not None:
                    span = order.span if isinstance(target, int) else target.span
                    yield Command(order.action, index, span)


def _counted(count: int) -> str:
    return f"{count} is" if count == 1 else f"{count} are"


def index_labels(lines: Sequence[Line]) -> tuple[dict[str, int], list[Diagnostic]]:
    """The index of each label, and what is wrong with labels: numbers must be indices, none may stand twice."""
    indices: dict[str, int] = {}
    findings: list[Diagnostic] = []
    for index, line in enumerate(lines):
        name, span = line.label.name, line.label.span
        if name in indices:
            findings.append(rules.REPEATED.at(span, what=f"the label %{name[:SHOWN]}"))
        elif name.isdigit() and name != str(index):
            findings.append(rules.LABEL_INDEX.at(span, label=name[:SHOWN], index=index))
        indices.setdefault(name, index)
    return indices, findings
