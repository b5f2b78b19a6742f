"""Annotations against the table: names, arguments, values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.base.cursor import SyntaxProblem
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.lang.module.annotations.table import (
    KINDS,
    AnnotationArguments,
    AnnotationKind,
    AnnotationParameter,
    ArgumentValue,
)
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate
from lamella.lang.module.instantiate.messages import quote, show
from lamella.lang.module.instantiate.nodes import Known, Value
from lamella.lang.module.nodes import (
    Annotation,
    Argument,
    Bool,
    Call,
    Chain,
    Expr,
    Index,
    Integer,
    Member,
    Name,
    Real,
    Text,
    Unary,
    names_in,
)
from lamella.lang.module.parse.expressions import ModuleCursor
from lamella.lang.module.parse.layout import NEWLINE
from lamella.lang.module.rules import annotated as rules
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import DTYPES

FUNCTIONS = frozenset(
    ("has_nan", "has_inf", "has_nan_or_inf", "all", "any", "min", "max", "abs", "mean", "norm")
)
"""What a condition may ask of a tensor."""
SIGNS = frozenset(("==", "!=", "<", "<=", ">", ">=", "&&", "||", "and", "or", "+", "-", "*", "/"))
SHAPE = "shape"
WORDS = EvaluationContext(words=True)
FUSED_PARTS = ("q", "k", "v", "o", "gate", "up", "down")
"""The parts of a fused projection that an adapter may name."""


def _find_kind(annotation: Annotation) -> AnnotationKind | Diagnostic:
    """The annotation of that name, or the finding that there is none."""
    found = KINDS.get(annotation.name)
    if found is not None:
        return found
    repair = suggest(annotation.name, KINDS)
    return rules.UNKNOWN.at(annotation.span, name=annotation.name, repair=repair)


def read_annotation(
    annotation: Annotation, known: Mapping[str, Known], unknown: Iterable[str] = ()
) -> AnnotationArguments:
    """The arguments of an annotation; `unknown` are constants whose values are not known yet.

    A bare name is a word unless a constant has that name.
    """
    kind = _find_kind(annotation)
    if isinstance(kind, Diagnostic):
        return AnnotationArguments({}, (kind,))
    reader = _ArgumentReader(annotation, kind, known, frozenset(unknown))
    return AnnotationArguments(reader.read(), tuple(reader.findings))


@dataclass(slots=True)
class _ArgumentReader:
    """One annotation while its arguments are read."""

    annotation: Annotation
    kind: AnnotationKind
    known: Mapping[str, Known]
    unknown: frozenset[str]
    findings: list[Diagnostic] = field(default_factory=list)

    def read(self) -> dict[str, ArgumentValue]:
        """Every argument that is given or has a default, and whose value is known."""
        given = dict(self._match())
        found: dict[str, ArgumentValue] = {}
        for parameter in self.kind.parameters:
            if parameter.name in given:
                found |= self._value(parameter, given[parameter.name])
            elif parameter.required:
                name, span = self.kind.name, self.annotation.span
                repair = f"it is {wanted(parameter)}"
                self.findings.append(
                    rules.MISSING.at(span, name=name, argument=parameter.name, repair=repair)
                )
            else:
                found[parameter.name] = parameter.default
        if self.kind.name == "kernel" and found.get("fallback") is False:
            # No backend has kernels by the names of users yet, so none can keep what this asks for.
            self.findings.append(rules.KERNEL.at(self.annotation.span, name=found.get("name", "")))
        return found

    def _match(self) -> Iterator[tuple[str, Argument]]:
        """Arguments by the names of their parameters; those without a name come in the order of the table."""
        names = [item.name for item in self.kind.parameters]
        taken: set[str] = set()
        for number, argument in enumerate(self.annotation.arguments):
            name = argument.name
            if name is None:
                name = names[number] if number < len(names) else quote(argument.span, "another")
            if name not in names or name in taken:
                repair = "it is given twice" if name in taken else self._repair(name, names)
                finding = rules.ARGUMENT.at(argument.span, name=self.kind.name, argument=name, repair=repair)
                self.findings.append(finding)
                continue
            taken.add(name)
            yield name, argument

    def _repair(self, name: str, names: list[str]) -> str:
        return suggest(name, names) or (f"it has {', '.join(names)}" if names else "it has no arguments")

    # --- values -----------------------------------------------------------------------------------------------

    def _value(self, parameter: AnnotationParameter, argument: Argument) -> dict[str, ArgumentValue]:
        if parameter.kind == "condition":
            return self._condition(parameter, argument)
        if not self.unknown.isdisjoint(names_in(argument.value)):
            return {}
        try:
            value = evaluate(argument.value, self.known, WORDS)
        except Found as problem:
            self.findings.append(problem.finding)
            return {}
        if value is None and parameter.kind == "point":
            value = "None"
        if not accepts(parameter, value):
            self._refuse(parameter, argument.value, show_value(value, parameter))
            return {}
        return {parameter.name: value}

    def _condition(self, parameter: AnnotationParameter, argument: Argument) -> dict[str, ArgumentValue]:
        condition = _read_condition(argument.value)
        if condition is None:
            self._refuse(parameter, argument.value, f"'{quote(argument.value.span, 'a text')}'")
            return {}
        mistake = _find_mistake(condition)
        if mistake is not None:
            self._refuse(parameter, argument.value, f"an expression with '{quote(mistake.span, 'this')}'")
            return {}
        return {parameter.name: condition}

    def _refuse(self, parameter: AnnotationParameter, expr: Expr, found: str) -> None:
        repair = ""
        if parameter.kind == "condition":
            repair = f"it compares numbers and tensors, and asks {', '.join(sorted(FUNCTIONS))}"
        elif parameter.choices:
            repair = suggest(found.strip("'"), parameter.choices)
        finding = rules.VALUE.at(
            expr.span,
            name=self.kind.name,
            argument=parameter.name,
            found=found,
            wanted=wanted(parameter),
            repair=repair,
        )
        self.findings.append(finding)


def show_value(value: Value, parameter: AnnotationParameter) -> str:
    """A value as a message names it: a word without the quotes of a string."""
    if isinstance(value, Dim):
        return "not constant"
    return f"'{value}'" if isinstance(value, str) and parameter.kind != "int" else show(value)


# --- kinds of arguments -------------------------------------------------------------------------------------


def wanted(parameter: AnnotationParameter) -> str:
    """What an argument must be, as messages say it."""
    if parameter.choices:
        return f"one of {', '.join(parameter.choices)}"
    text = _WANTED[parameter.kind]
    if parameter.least is not None:
        text += f" of at least {parameter.least:g}"
    return text


def accepts(parameter: AnnotationParameter, value: Value) -> bool:
    """Whether a value is what a parameter takes."""
    if value is None:
        return parameter.optional
    if parameter.choices:
        return isinstance(value, str) and value in parameter.choices
    if not _IS[parameter.kind](value):
        return False
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number or parameter.least is None or _at_least(value, parameter.least)


def _at_least(value: Value, least: float) -> bool:
    return isinstance(value, int | float) and value >= least


def _is_int(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_bool(value: Value) -> bool:
    return isinstance(value, bool)


def _is_text(value: Value) -> bool:
    return isinstance(value, str) and bool(value)


def _is_dtype(value: Value) -> bool:
    return isinstance(value, str) and value in DTYPES


def _are_names(value: Value) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) for item in value)


def _are_parts(value: Value) -> bool:
    return isinstance(value, tuple) and all(item in FUSED_PARTS for item in value)


def _is_pair(value: Value) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(item, int) and item > 0 for item in value)
    )


_IS: Mapping[str, Callable[[Value], bool]] = MappingProxyType(
    {
        "int": _is_int,
        "float": _is_float,
        "bool": _is_bool,
        "string": _is_text,
        "word": _is_text,
        "policy": _is_text,
        "point": _is_text,
        "recipe": _is_text,
        "dtype": _is_dtype,
        "names": _are_names,
        "parts": _are_parts,
        "pair": _is_pair,
    }
)
_WANTED: Mapping[str, str] = MappingProxyType(
    {
        "int": "an integer",
        "float": "a number",
        "bool": "true or false",
        "string": "a text",
        "word": "a word",
        "policy": "the name of a policy",
        "point": "the name of a hook point",
        "recipe": "the name of a recipe",
        "dtype": "an element type",
        "names": "a list of names",
        "parts": f"a list of {', '.join(FUSED_PARTS)}",
        "pair": "two positive integers",
        "condition": "a condition",
    }
)


# --- conditions of `@assert` and `@probe`: a small language of its own, written bare or as a string ---------


def _read_condition(expr: Expr) -> Expr | None:
    """The condition that an argument is; None where its string cannot be read."""
    if not isinstance(expr, Text):
        return expr
    parser = ModuleCursor(Source("condition", expr.value), DEFAULT)
    try:
        found = parser.expression()
    except SyntaxProblem:
        return None
    ended = parser.kind == NEWLINE or not parser.text
    return found if ended and not parser.findings else None


def _find_mistake(condition: Expr) -> Expr | None:
    """The first part of a condition that the language of conditions does not have."""
    todo = [condition]
    while todo:
        expr = todo.pop()
        if not _is_allowed(expr):
            return expr
        todo += reversed(list(_parts(expr)))
    return None


def tensors_in(condition: Expr) -> Iterator[Name]:
    """The names that a condition reads, with their places."""
    todo = [condition]
    while todo:
        expr = todo.pop()
        if isinstance(expr, Name):
            yield expr
        elif isinstance(expr, Index | Member):
            todo.append(expr.operand)
        else:
            todo += reversed(list(_parts(expr)))


def _is_allowed(expr: Expr) -> bool:
    match expr:
        case Integer() | Real() | Bool() | Name():
            return True
        case Unary(sign, _):
            return sign in ("!", "-", "not")
        case Chain(_, rest):
            return all(sign in SIGNS for sign, _ in rest)
        case Call(Name(function), arguments):
            return function in FUNCTIONS and bool(arguments) and all(item.name is None for item in arguments)
        case Index(Member(Name(), field), (index,)):
            return field == SHAPE and _is_index(index)
    return False


def _is_index(expr: object) -> bool:
    inner = expr.operand if isinstance(expr, Unary) and expr.sign == "-" else expr
    return isinstance(inner, Integer | Name)


def _parts(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Unary(_, operand):
            yield operand
        case Chain(first, rest):
            yield first
            yield from (operand for _, operand in rest)
        case Call(_, arguments):
            yield from (item.value for item in arguments)
