"""Config parameters and their values: arguments, defaults, lets and constraints in the order of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, Extent, symbol
from lamella.base.errors import Found
from lamella.base.limits import LARGEST
from lamella.base.source import NOWHERE, Span
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate
from lamella.lang.module.instantiate.inherit import Merged
from lamella.lang.module.instantiate.messages import describe, format_values, quote
from lamella.lang.module.instantiate.nodes import DictValue, Items, Known, Value
from lamella.lang.module.nodes import (
    Binding,
    Bool,
    ConfigParam,
    ConfigType,
    Constraint,
    Dict,
    Expr,
    Field,
    Integer,
    Let,
    List,
    Module,
    Name,
    Null,
    Preset,
    Real,
    RuntimeDim,
    ScalarType,
    TensorType,
    Text,
    names_in,
)
from lamella.lang.module.resolve.nodes import Scope
from lamella.lang.module.rules import constants as rules
from lamella.lang.module.rules import names as name_rules
from lamella.lang.module.rules import syntax
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import DTYPES

# --- findings of one instantiation: each place once, and nothing that follows from an earlier mistake -------


Result = TypeVar("Result")


class Findings:
    """The findings so far, in order."""

    __slots__ = ("_seen", "items")

    def __init__(self) -> None:
        self.items: list[Diagnostic] = []
        self._seen: set[tuple[str, str, int, int]] = set()

    def add(self, *findings: Diagnostic) -> None:
        """Keep findings, unless the same was said of the same place before."""
        for finding in findings:
            span = finding.span
            # Findings without a place differ only by their sentence.
            key = (finding.code, finding.message if span is NOWHERE else "", span.start, span.end)
            place = (key[0], f"{key[1]} {id(span.source)}", key[2], key[3])
            if place not in self._seen:
                self._seen.add(place)
                self.items.append(finding)

    def attempt(self, compute: Callable[[], Result]) -> Result | None:
        """The result of a computation, or None with its finding kept."""
        try:
            return compute()
        except Found as problem:
            self.add(problem.finding)
            return None


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
    """A value as a parameter of some type holds it; raises Found where it does not fit."""
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
        "dict": isinstance(value, DictValue),
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
        return suggest(value, kind.choices if kind.name == "enum" else DTYPES)
    return "None is taken by a type with '?'" if value is None else ""


def _wrong(what: str, value: Value, wanted: str, span: Span, repair: str = "") -> Found:
    return Found(rules.KIND.at(span, what=what, found=describe(value), wanted=wanted, repair=repair))


T = TypeVar("T")


@dataclass(slots=True)
class ConstantScope:
    """The symbol table of the constants of one instance: values so far, and names whose value could not be found.

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
    def around(self) -> EvaluationContext:
        """Where the expressions stand."""
        return EvaluationContext(f"in '{self.module}'", self.tensors, self._extent)

    def _extent(self, name: str) -> Extent | None:
        return runtime_dimension(name) if name in self.runtime else None

    @property
    def is_refused(self) -> bool:
        """Whether a constraint was false."""
        return any(item.code == rules.CONSTRAINT.code for item in self.findings.items)

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


def bind_constants(
    merged: Merged, given: Mapping[str, Known], span: Span, findings: Findings
) -> ConstantScope:
    """The constant scope of an instance: config parameters, inherited defaults, lets and constraints in order."""
    module = merged.module
    params = [param.name for param in module.params or ()]
    # A dimension of the inputs may have the name of a tensor: in a constant it is the dimension.
    runtime = _runtime_names(module)
    names = ConstantScope(module.name, findings, runtime=runtime, tensors=_tensor_names(module) - runtime)
    for name in given:
        if name not in params:
            repair = suggest(name, params)
            place = given[name].span
            findings.add(name_rules.UNKNOWN_ARGUMENT.at(place, module=module.name, name=name, repair=repair))
    _bind_params(module, given, names, span)
    _bind_missing(merged.missing, names, span)
    reserved = frozenset((*params, *(param.name for param in merged.missing)))
    _run_bindings(module.bindings, names, reserved)
    return names


def _runtime_names(module: Module) -> frozenset[str]:
    """Names in the shapes of inputs that are neither parameters nor lets."""
    inputs = module.forward.inputs if module.forward is not None else None
    types = [port.type for port in inputs or ()]
    used = {name for kind in types if isinstance(kind, TensorType) for name in names_in(*kind.dims)}
    lets = {item.name for item in module.bindings if isinstance(item, Let | RuntimeDim)}
    return frozenset(used - lets - {param.name for param in module.params or ()})


def _tensor_names(module: Module) -> frozenset[str]:
    """Names of parameters, constants, inputs and outputs."""
    forward = module.forward
    ports = (*(forward.inputs or ()), *(forward.outputs or ())) if forward is not None else ()
    named = [port.name for port in ports if port.name is not None and not isinstance(port.type, ScalarType)]
    params = [param.path.parts[0].name for param in module.tensors]
    return frozenset((*named, *params, *(item.name for item in module.constants)))


def _bind_params(module: Module, given: Mapping[str, Known], names: ConstantScope, span: Span) -> None:
    """Give every config parameter the value that was given, or its default."""
    for param in module.params or ():
        known = given.get(param.name)
        names.bind(
            param.name,
            _default(param, names, "default", span) if known is None else _fit(param, known, names),
        )


def _fit(param: ConfigParam, known: Known, names: ConstantScope) -> Known | None:
    what = f"'{param.name}' of '{names.module}'"
    return names.findings.attempt(lambda: fit(known, type_of(param), what))


def _bind_missing(missing: Iterable[ConfigParam], names: ConstantScope, span: Span) -> None:
    """Give the parameters that only an ancestor has their defaults."""
    for param in missing:
        names.bind(param.name, _default(param, names, "inherited default", span))


def _default(param: ConfigParam, names: ConstantScope, source: str, span: Span) -> Known | None:
    default, kind = param.default, type_of(param)
    if default is None:
        repair = f"give it as {param.name}=…, or give the parameter a default"
        finding = rules.MISSING.at(span, module=names.module, name=param.name, repair=repair)
        names.findings.add(finding)
        return None
    around = EvaluationContext(where=f"in '{names.module}'", words=takes_words(kind))
    what = f"the default of '{param.name}'"
    return names.attempt(
        default, lambda: fit(Known(evaluate(default, names.known, around), source, default.span), kind, what)
    )


def _run_bindings(bindings: Iterable[Binding], names: ConstantScope, reserved: frozenset[str]) -> None:
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


def _run_let(let: Let, names: ConstantScope) -> Known | None:
    same = names.known.get(let.value.id) if isinstance(let.value, Name) else None
    choices = () if same is None else same.choices
    return names.attempt(
        let.value, lambda: Known(evaluate(let.value, names.known, names.around), "let", let.span, choices)
    )


def _check_constraint(constraint: Constraint, names: ConstantScope) -> None:
    condition = constraint.condition
    if not names.is_usable(condition):
        return
    text = quote(condition.span, "condition")
    try:
        value = evaluate(condition, names.known, names.around)
    except Found as problem:
        finding = problem.finding
        if finding.code == rules.KIND.code and names.is_refused:
            return  # an earlier constraint may be what keeps this one from being asked: h > 0, then d % h == 0
        if finding.code == rules.NOT_CONSTANT.code:
            finding = rules.CONSTRAINT_FORM.at(condition.span, text=text, found="not constant")
        names.findings.add(finding)
        return
    if not isinstance(value, bool):
        names.findings.add(rules.CONSTRAINT_FORM.at(condition.span, text=text, found=describe(value)))
    elif not value:
        values = format_values(names_in(condition), names.known)
        names.findings.add(
            rules.CONSTRAINT.at(condition.span, message=constraint.message, text=text, values=values)
        )


# --- presets: named sets of config values -------------------------------------------------------------------


def find_presets(scope: Scope) -> dict[str, Preset]:
    """The presets of a file, by name: its own, and those that it imports."""
    found = {**scope.imported, **scope.local}
    items = (declared.declaration for declared in found.values())
    return {item.name: item for item in items if isinstance(item, Preset)}


def read_preset(preset: Preset) -> tuple[dict[str, Known], tuple[Diagnostic, ...]]:
    """The config values of a preset; a value may use those above it."""
    findings = Findings()
    config: dict[str, Known] = {}
    for item in preset.fields:
        try:
            config[item.name] = _preset_value(item, preset.name, config)
        except Found as problem:
            findings.add(problem.finding)
    return config, tuple(findings.items)


def _preset_value(item: Field, preset: str, config: dict[str, Known]) -> Known:
    if isinstance(item.value, str | tuple):
        what, found = f"'{item.name}' of the preset '{preset}'", "no value"
        raise Found(rules.KIND.at(item.span, what=what, found=found, wanted="a constant", repair=""))
    around = EvaluationContext(where=f"in the preset '{preset}'", words=True)
    return Known(evaluate(item.value, config, around), f"preset '{preset}'", item.span)
