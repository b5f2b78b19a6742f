"""Config parameters and their values: arguments, defaults, lets and constraints in the order of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lamella.base.dim import Dim, Extent, symbol
from lamella.base.errors import Found
from lamella.base.limits import LARGEST
from lamella.base.source import Span
from lamella.lang.module.instantiate.collecting import Findings
from lamella.lang.module.instantiate.evaluate import Surroundings, evaluate
from lamella.lang.module.instantiate.nodes import Items, Known, Record, Value
from lamella.lang.module.instantiate.telling import describe, names_in, quote, tell
from lamella.lang.module.nodes import (
    Argument,
    Binding,
    Bool,
    ConfigParam,
    ConfigType,
    Constraint,
    Dict,
    Expr,
    Integer,
    Let,
    List,
    Module,
    Name,
    Null,
    Real,
    RuntimeDim,
    Text,
)
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.rules import constants as rules
from lamella.lang.module.rules import names as name_rules
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import DTYPES

# --- types of config parameters: what they take, and what it becomes ----------------------------------------


ANYTHING = ConfigType("")
"""The type of a parameter whose default is an expression of no certain kind."""
_WANTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a string",
    "dict": "a dict",
}


def type_of(param: ConfigParam) -> ConfigType:
    """The type of a parameter: the declared one, else that of its default, else an integer."""
    if param.type is not None:
        return param.type
    match param.default:
        case None | Integer():
            return ConfigType("int")
        case Real():
            return ConfigType("float")
        case Bool():
            return ConfigType("bool")
        case Text():
            return ConfigType("string")
        case List(items) if items and isinstance(items[0], Integer | Text):
            return ConfigType("int" if isinstance(items[0], Integer) else "string", listed=True)
        case Dict():
            return ConfigType("dict")
        case Null() | Name() | _:
            return ANYTHING


def takes_words(kind: ConfigType) -> bool:
    """Whether a bare name may be a value of this type."""
    return kind.name in ("enum", "dtype", "dict") or kind is ANYTHING


def fit(known: Known, kind: ConfigType, what: str) -> Known:
    """A value as a parameter of some type holds it; Found where it does not fit."""
    value = _convert(known.value, kind, what, known.span)
    return replace(known, value=value, choices=kind.choices)


def _convert(value: Value, kind: ConfigType, what: str, span: Span) -> Value:
    if kind is ANYTHING or (value is None and kind.optional):
        return value
    if not kind.listed:
        return _single(value, kind, what, span)
    if not isinstance(value, tuple):
        raise _wrong(what, value, f"a list of {_wanted(kind)}", span)
    return Items.of(_single(item, kind, f"an element of {what}", span) for item in value)


def _single(value: Value, kind: ConfigType, what: str, span: Span) -> Value:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind.name == "float" and isinstance(value, int) and whole:
        return float(value)
    fits = {
        "int": whole or isinstance(value, Dim),
        "float": isinstance(value, float),
        "bool": isinstance(value, bool),
        "string": isinstance(value, str),
        "dtype": isinstance(value, str) and value in DTYPES,
        "enum": isinstance(value, str) and value in kind.choices,
        "dict": isinstance(value, Record),
    }
    if fits.get(kind.name, True):
        return value
    raise _wrong(what, value, _wanted(kind), span, _repair(value, kind))


def _wanted(kind: ConfigType) -> str:
    if kind.name == "enum":
        return f"one of {', '.join(kind.choices)}"
    return _WANTED.get(kind.name, f"a {kind.name}")


def _repair(value: Value, kind: ConfigType) -> str:
    if isinstance(value, str) and kind.name in ("enum", "dtype"):
        return guess(value, kind.choices if kind.name == "enum" else DTYPES)
    return "None is taken by a type with '?'" if value is None else ""


def _wrong(what: str, value: Value, wanted: str, span: Span, repair: str = "") -> Found:
    return Found(rules.KIND.at(span, what=what, found=describe(value), wanted=wanted, repair=repair))


T = TypeVar("T")


@dataclass(slots=True)
class Names:
    """The constant world of one instance: values so far, and names whose value could not be found.

    What uses such a name is left out without a second finding.
    """

    module: str
    findings: Findings
    known: MutableMapping[str, Known] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    runtime: frozenset[str] = frozenset()
    """Names that are nothing but dimensions of the inputs."""
    tensors: frozenset[str] = frozenset()
    """Names of the world of tensors, which are no constants."""

    @property
    def around(self) -> Surroundings:
        """Where the expressions stand."""
        return Surroundings(f"in '{self.module}'", self.tensors, self._extent)

    def _extent(self, name: str) -> Extent | None:
        return runtime_dimension(name) if name in self.runtime else None

    def is_usable(self, expr: Expr) -> bool:
        """Whether an expression is free of names that failed before."""
        return not self.failed or self.failed.isdisjoint(names_in(expr))

    def attempt(self, expr: Expr, compute: Callable[[], T]) -> T | None:
        """What is computed from an expression; None where that fails, or follows from what failed before."""
        return self.findings.attempt(compute) if self.is_usable(expr) else None

    def bind(self, name: str, known: Known | None) -> None:
        """Give a name its value, or note that it has none."""
        self.failed.discard(name)
        self.known.pop(name, None)
        if known is None:
            self.failed.add(name)
        else:
            self.known[name] = known


def runtime_dimension(name: str) -> Extent:
    """The extent of a dimension that the inputs bind, as every part of a program names it."""
    return symbol(name, LARGEST)


def evaluate_argument(argument: Expr, param: ConfigParam, names: Names) -> Known:
    """The value of an argument in the world of the caller, with the source that it has for the callee."""
    around = Surroundings(where=f"in '{names.module}'", words=takes_words(type_of(param)))
    return Known(evaluate(argument, names.known, around), _source(argument, names), argument.span)


def _source(argument: Expr, names: Names) -> str:
    """A name that is handed on keeps where its value came from."""
    before = names.known.get(argument.id) if isinstance(argument, Name) else None
    if before is None or before.source in ("", "let", "argument"):
        return "argument"
    if before.source == "default":
        return f"argument from the default of '{names.module}'"
    return before.source if before.source.startswith("argument") else f"argument from {before.source}"


def match_arguments(
    module: str, params: tuple[ConfigParam, ...], arguments: Iterable[Argument], findings: Findings
) -> dict[str, Argument]:
    """Arguments by the names of the parameters that take them: positional ones in order, then by name."""
    places = {param.name: param for param in params}
    found: dict[str, Argument] = {}
    for index, argument in enumerate(arguments):
        name = argument.name if argument.name is not None else _name_at(index, params)
        if name is None:
            what, wanted = f"the call of '{module}'", f"at most {len(params)}"
            findings.add(rules.LENGTH.at(argument.span, what=what, found=index + 1, wanted=wanted, repair=""))
        elif name not in places:
            repair = guess(name, places)
            findings.add(
                name_rules.UNKNOWN_ARGUMENT.at(argument.span, module=module, name=name, repair=repair)
            )
        elif name in found:
            findings.add(
                name_rules.DUPLICATE.at(
                    argument.span, kind="argument", name=name, where=f"a call of '{module}'"
                )
            )
        else:
            found[name] = argument
    return found


def _name_at(index: int, params: tuple[ConfigParam, ...]) -> str | None:
    return params[index].name if index < len(params) else None


def bind_params(module: Module, given: Mapping[str, Known], names: Names, span: Span) -> None:
    """Give every config parameter the value that was given, or its default."""
    for param in module.params or ():
        known = given.get(param.name)
        names.bind(
            param.name,
            _default(param, names, "default", span) if known is None else _fit(param, known, names),
        )


def _fit(param: ConfigParam, known: Known, names: Names) -> Known | None:
    what = f"'{param.name}' of '{names.module}'"
    return names.findings.attempt(lambda: fit(known, type_of(param), what))


def bind_missing(missing: Iterable[ConfigParam], names: Names, span: Span) -> None:
    """Give the parameters that only an ancestor has their defaults."""
    for param in missing:
        names.bind(param.name, _default(param, names, "inherited default", span))


def _default(param: ConfigParam, names: Names, source: str, span: Span) -> Known | None:
    default, kind = param.default, type_of(param)
    if default is None:
        repair = f"give it as {param.name}=…, or give the parameter a default"
        finding = rules.MISSING.at(span, module=names.module, name=param.name, repair=repair)
        names.findings.add(finding)
        return None
    around = Surroundings(where=f"in '{names.module}'", words=takes_words(kind))
    what = f"the default of '{param.name}'"
    return names.attempt(
        default, lambda: fit(Known(evaluate(default, names.known, around), source, default.span), kind, what)
    )


def run_bindings(bindings: Iterable[Binding], names: Names, reserved: frozenset[str]) -> None:
    """Lets and constraints from top to bottom; `reserved` are the config parameters, which no let may be."""
    for binding in bindings:
        match binding:
            case Let() | RuntimeDim() if binding.name in reserved:
                where = f"'{names.module}'"
                names.findings.add(
                    name_rules.DUPLICATE.at(binding.span, kind="let name", name=binding.name, where=where)
                )
            case Let():
                names.bind(binding.name, _run_let(binding, names))
            case RuntimeDim():
                names.bind(binding.name, Known(runtime_dimension(binding.name), "the inputs", binding.span))
            case Constraint():
                _check_constraint(binding, names)
            case _:
                names.findings.add(syntax.STUB.at(binding.span, name=names.module))


def _run_let(let: Let, names: Names) -> Known | None:
    same = names.known.get(let.value.id) if isinstance(let.value, Name) else None
    choices = () if same is None else same.choices
    return names.attempt(
        let.value, lambda: Known(evaluate(let.value, names.known, names.around), "let", let.span, choices)
    )


def _check_constraint(constraint: Constraint, names: Names) -> None:
    condition = constraint.condition
    if not names.is_usable(condition):
        return
    text = quote(condition.span, "condition")
    try:
        value = evaluate(condition, names.known, names.around)
    except Found as problem:
        finding = problem.finding
        if finding.code == rules.NOT_CONSTANT.code:
            finding = rules.CONSTRAINT_FORM.at(condition.span, text=text, found="not constant")
        names.findings.add(finding)
        return
    if not isinstance(value, bool):
        names.findings.add(rules.CONSTRAINT_FORM.at(condition.span, text=text, found=describe(value)))
    elif not value:
        values = tell(names_in(condition), names.known)
        names.findings.add(
            rules.CONSTRAINT.at(condition.span, message=constraint.message, text=text, values=values)
        )
