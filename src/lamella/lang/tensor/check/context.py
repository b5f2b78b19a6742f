"""Context of a check: the symbol table of a function, and the statement at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice

from lamella.base.diagnostic import ERROR, Diagnostic, Label, Rule
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.lang.tensor.check.kinds import ATOMIC
from lamella.lang.tensor.check.roles import header_span, regions_of, type_span, word_of
from lamella.lang.tensor.nodes import (
    INDEX,
    CoopApply,
    For,
    Foreach,
    ForeachTile,
    Function,
    Number,
    Region,
    Statement,
    Type,
    Value,
)
from lamella.lang.tensor.rules import instructions as operand_rules
from lamella.lang.tensor.rules import values as rules
from lamella.lang.tensor.rules.syntax import EXTENSION
from lamella.lang.tensor.write import write_type

MOST_GUESSES = 20
COMPARED_NAMES = 500


@dataclass(frozen=True, slots=True)
class ValueDefinition:
    """What a value is: its type (None where a finding leaves it open), its constant, where it is defined."""

    type: Type | None
    span: Span
    constant: Number | None = None


class FunctionContext:
    """The symbol table of the function that is checked: the values in scope, those whose region has ended, findings."""

    def __init__(self, function: Function, findings: list[Diagnostic]) -> None:
        self.errors = 0
        self.names: dict[str, ValueDefinition] = {}
        self._findings = findings
        self._function = function
        self._ended: dict[str, Span] = {}
        self._unknown: set[str] = set()
        self._extensions: set[str] = set()
        attributes = function.attributes
        size = None if attributes is None else attributes.find("subgroup_size")
        self.subgroup_size = size if isinstance(size, int) and size > 0 else None
        """Where the function says it; else a target chooses it."""

    def note_extension(self, span: Span, feature: str, instead: str) -> None:
        """Say that the specification does not have a feature, once in a function."""
        if feature not in self._extensions:
            self._extensions.add(feature)
            self.report(EXTENSION.at(span, feature=feature, instead=instead))

    def report(self, finding: Diagnostic) -> None:
        """Keep a finding."""
        self._findings.append(finding)
        self.errors += finding.severity == ERROR

    def define(self, value: Value, entry: ValueDefinition) -> tuple[str, ValueDefinition | None]:
        """Give a name its meaning; returned is what `forget` needs to take it back."""
        earlier = self.names.get(value.name)
        if earlier is not None:
            label = Label(earlier.span, "defined here first")
            self.report(rules.REDEFINED.at(value.span, name=value.name, labels=[label]))
            entry = ValueDefinition(None, value.span)
        self.names[value.name] = entry
        return value.name, earlier

    def forget(self, name: str, earlier: ValueDefinition | None) -> None:
        """The region that defined a name has ended."""
        self._ended[name] = self.names[name].span
        if earlier is None:
            del self.names[name]
        else:
            self.names[name] = earlier

    def find(self, value: Value) -> ValueDefinition | None:
        """What a value is; an unknown one is a finding, the first time."""
        entry = self.names.get(value.name)
        if entry is None and value.name not in self._unknown:
            self._unknown.add(value.name)
            self.report(self._unknown_name(value))
        return entry

    def type_of(self, value: Value) -> Type | None:
        """The type of a value; None where that is in error."""
        entry = self.find(value)
        return None if entry is None else entry.type

    def types_of(self, *values: Value) -> tuple[Type, ...] | None:
        """The types of values; None where one of them is in error, all of them looked up."""
        types = [self.type_of(value) for value in values]
        known = tuple(item for item in types if item is not None)
        return known if len(known) == len(types) else None

    def labels(self, *values: Value) -> list[Label]:
        """The places where values are defined, with their types."""
        entries = {value.name: self.names.get(value.name) for value in values}
        return [
            Label(entry.span, f"'%{name}' of type {write_type(entry.type)} is defined here")
            for name, entry in entries.items()
            if entry is not None and entry.type is not None
        ]

    def _unknown_name(self, value: Value) -> Diagnostic:
        name = value.name
        if name in self._ended:
            labels = [Label(self._ended[name], "defined here, in a region that has ended")]
            return rules.OUT_OF_REGION.at(value.span, name=name, labels=labels)
        if name in self._definitions:
            labels = [Label(self._definitions[name], "defined here")]
            return rules.USED_EARLY.at(value.span, name=name, labels=labels)
        return rules.UNDEFINED.at(value.span, name=name, hint=self._guess(name))

    def _guess(self, name: str) -> str:
        """A hint at a name that looks alike; looking for one is not worth much time."""
        if len(self._unknown) > MOST_GUESSES:
            return ""
        near = nearest(name, islice(self.names, COMPARED_NAMES))
        return f"did you mean '%{near[0]}'?" if near else ""

    @cached_property
    def _definitions(self) -> Mapping[str, Span]:
        """Every name that the function defines, with its first place."""
        definitions: dict[str, Span] = {}
        for value in defined_values(self._function.body):
            definitions.setdefault(value.name, value.span)
        return definitions


@dataclass(frozen=True, slots=True)
class StatementContext:
    """A statement in its function: what is said about it, and what its operands and results are to be."""

    context: FunctionContext
    statement: Statement

    @property
    def word(self) -> str:
        """What the instruction is called."""
        return word_of(self.statement.instruction)

    @property
    def span(self) -> Span:
        """The place of the instruction, without its regions."""
        return header_span(self.statement)

    @property
    def type_span(self) -> Span:
        """The place of the type of what the instruction gives."""
        return type_span(self.statement)

    def say(self, rule: Rule, span: Span, about: Iterable[Value] = (), **words: object) -> None:
        """Report a finding, with the places where the values it is about are defined."""
        labels = self.context.labels(*about)
        self.context.report(rule.at(span, hint=None, labels=labels, **{"instruction": self.word, **words}))

    def say_all(self, findings: Iterable[Diagnostic]) -> None:
        """Report findings that others made."""
        for finding in findings:
            self.context.report(finding)

    def expect(self, value: Value, type_: Type, fits: bool, wanted: str) -> bool:
        """Whether an operand is of the kind that is wanted; that it is not is a finding."""
        if not fits:
            self.say(
                operand_rules.OPERAND_KIND,
                value.span,
                [value],
                name=value.name,
                type=write_type(type_),
                wanted=wanted,
            )
        return fits

    def expect_result(self, type_: Type, wanted: Type, about: Iterable[Value] = ()) -> None:
        """The type that is written behind the instruction is the one it gives."""
        if type_ != wanted:
            self.say(
                operand_rules.RESULT_TYPE,
                self.type_span,
                about,
                wanted=write_type(wanted),
                type=write_type(type_),
            )

    def expect_indices(self, values: Iterable[Value], what: str) -> None:
        """Indices, offsets and sizes are of type index."""
        for value in values:
            type_ = self.context.type_of(value)
            if type_ is not None and type_ != INDEX:
                self.say(
                    operand_rules.INDEX_TYPE,
                    value.span,
                    [value],
                    name=value.name,
                    type=write_type(type_),
                    what=what,
                )

    def expect_atomic(self, element: str, flag: str | bool) -> None:
        """Atomic updates exist for some types only."""
        if flag and element not in ATOMIC:
            self.say(operand_rules.ATOMIC_TYPE, self.span, element=element)


def defined_values(region: Region) -> Iterator[Value]:
    """The values that a region and those inside it define."""
    waiting = [region]
    while waiting:
        for statement in waiting.pop().statements:
            yield from statement.results
            inner = regions_of(statement)
            if inner:
                yield from _loop_values(statement)
                waiting += inner


def _loop_values(statement: Statement) -> tuple[Value, ...]:
    instruction = statement.instruction
    match instruction:
        case For(variable=variable, carried=carried):
            return (variable, *(value for value, _ in carried))
        case Foreach(variables=variables):
            return variables
        case ForeachTile(variables=variables, sizes=sizes):
            return (*variables, *sizes)
        case CoopApply(row=row, column=column, value=value):
            return (row, column, value)
        case _:
            return ()
