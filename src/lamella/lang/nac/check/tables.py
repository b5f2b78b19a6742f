"""Symbol tables of a file: operations, signatures, constants, parameters by id; an id means one thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, Label
from lamella.lang.nac.nodes import FIRST_REGULAR, Constant, File, Operation, Parameter, Signature
from lamella.lang.nac.operations import CONSTANT_CODES, LAST, TENSOR_CODES, Standard, standard_operations
from lamella.lang.nac.rules import data as rules

LAST_CONSTANT = 32767
"""The largest id that the signed entries of field C can name."""


@dataclass(frozen=True, slots=True)
class SymbolTables:
    """What the ids of a file stand for; of records with one id the first counts."""

    standard: Mapping[int, Standard]
    operations: Mapping[int, Operation]
    signatures: Mapping[int, Signature]
    constants: Mapping[int, Constant]
    parameters: Mapping[int, Parameter]

    def name_of(self, operation: int) -> str | None:
        """The name of a regular operation; what the file says is stronger than what is standard."""
        if operation in self.operations:
            return self.operations[operation].name
        return self.standard[operation].name if operation in self.standard else None

    def standard_of(self, operation: int) -> Standard | None:
        """The standard operation that an id stands for, also where the file names it itself."""
        name = self.name_of(operation)
        known = self.standard.get(operation)
        return known if known is not None and known.name == name else None


def read_tables(file: File) -> SymbolTables:
    """The tables of a file."""
    return SymbolTables(
        standard_operations(file.header.version),
        {item.id: item for item in reversed(file.operations)},
        {item.id: item for item in reversed(file.signatures)},
        {item.id: item for item in reversed(file.constants)},
        {item.id: item for item in reversed(file.parameters)},
    )


def check_operations(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """Operations have ids that instructions can name, and one name each."""
    names: dict[str, Operation] = {}
    for item in file.operations:
        first = tables.operations[item.id]
        named = names.setdefault(item.name, item)
        if item.id < FIRST_REGULAR:
            yield rules.SYSTEM_REDEFINED.at(item.span, id=item.id, name=item.name)
        elif item.id > LAST:
            yield rules.OPERATION_UNREACHABLE.at(item.span, id=item.id)
        if first is not item:
            labels = [Label(first.span, "named here first")]
            yield rules.OPERATION_TWICE.at(
                item.span, id=item.id, first=first.name, name=item.name, labels=labels
            )
        if not item.name:
            yield rules.OPERATION_UNNAMED.at(item.span, id=item.id)
        elif named.id != item.id:
            labels = [Label(named.span, "named here first")]
            yield rules.OPERATION_NAME_TWICE.at(
                item.span, id=item.id, first=named.id, name=item.name, labels=labels
            )


def check_signatures(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """Signatures have ids that instructions can name, one meaning each, and known codes."""
    for item in file.signatures:
        first = tables.signatures[item.id]
        if item.id > LAST:
            yield rules.SIGNATURE_UNREACHABLE.at(item.span, id=item.id)
        if item.id == 0 and item.codes:
            yield rules.SIGNATURE_ZERO.at(item.span, codes=item.codes)
        if first is not item:
            labels = [Label(first.span, "given here first")]
            yield rules.SIGNATURE_TWICE.at(
                item.span, id=item.id, first=first.codes, codes=item.codes, labels=labels
            )
        wrong = [code for code in item.codes if code not in TENSOR_CODES and code not in CONSTANT_CODES]
        if wrong:
            yield rules.SIGNATURE_CODE.at(item.span, code=wrong[0], codes=item.codes)


def check_constants(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """Constants have ids that instructions can name, and one value each."""
    for item in file.constants:
        first = tables.constants[item.id]
        if item.id > LAST_CONSTANT:
            yield rules.CONSTANT_UNREACHABLE.at(item.span, id=item.id)
        if first is not item:
            labels = [Label(first.span, "given here first")]
            yield rules.CONSTANT_TWICE.at(item.span, id=item.id, labels=labels)
