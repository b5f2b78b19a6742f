"""The configuration of a graph: values of attributes and types as a user gives them.

They are Python objects, or text in the language itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.diagnostic import Diagnostic, Rule, errors
from lamella.base.dtype import LANGUAGES, ElementType
from lamella.base.errors import Found, InputError
from lamella.base.source import Source
from lamella.base.suggest import list_known
from lamella.lang.skriptnd import parse
from lamella.lang.skriptnd.nodes import Dtype, Expr, Operator, Parameter
from lamella.ops.evaluate import evaluate
from lamella.ops.fault import Fault
from lamella.ops.instance import Definition, Single, Value

ELEMENTS: Mapping[str, ElementType] = LANGUAGES["skriptnd"]
SHOWN = 100
WRAP = "operator value {{ @attrib {{ value: {type} = {text}; }} }}"


def configure(
    operator: Operator, config: Mapping[str, object]
) -> tuple[dict[str, Value], dict[str, ElementType]]:
    """The values of a graph's attributes and generic types, by the names that the user gave."""
    attributes = {item.name: item for item in operator.parameters("attrib")}
    types = {item.name: item for item in operator.items("dtype") if isinstance(item, Dtype)}
    unknown = next((name for name in config if name not in attributes and name not in types), None)
    if unknown is not None:
        raise _unknown_config(unknown, [operator])
    values = {name: value_of(value, attributes[name]) for name, value in config.items() if name in attributes}
    return values, {name: _element(types[name], value) for name, value in config.items() if name in types}


def config_names(operator: Operator) -> list[str]:
    """What can be set: the attributes and the generic types of a graph."""
    types = [item.name for item in operator.items("dtype") if isinstance(item, Dtype)]
    return [*(item.name for item in operator.parameters("attrib")), *types]


def require_config(graphs: Sequence[Definition], config: Mapping[str, object]) -> None:
    """Where several graphs are composed with one configuration, each name in it belongs to one of them."""
    operators = [item.operator for item in graphs]
    known = {name for operator in operators for name in config_names(operator)}
    unknown = next((name for name in config if name not in known), None)
    if unknown is not None:
        raise _unknown_config(unknown, operators)


def config_for(operator: Operator, config: Mapping[str, object]) -> dict[str, object]:
    """The part of a configuration that concerns one graph."""
    names = config_names(operator)
    return {name: value for name, value in config.items() if name in names}


def _unknown_config(name: str, operators: Sequence[Operator]) -> InputError:
    known = dict.fromkeys(word for item in operators for word in config_names(item))
    graphs = f"graph '{operators[0].name}' has no" if len(operators) == 1 else "no graph here has an"
    span = operators[0].span if operators else None
    return InputError(f"{graphs} attribute or type '{name[:SHOWN]}'", span=span, hint=list_known(name, known))


def _element(declared: Dtype, value: object) -> ElementType:
    found = ELEMENTS.get(str(value))
    if found is None:
        message = f"'{str(value)[:SHOWN]}' is no type for '{declared.name}'"
        raise InputError(message, span=declared.span, hint=f"types are: {', '.join(ELEMENTS)}")
    return found


def missing_config(operator: Operator, config: Mapping[str, object]) -> list[str]:
    """The attributes and types that have no value and no default."""
    attributes = [item.name for item in operator.parameters("attrib") if _needed(item)]
    types = [
        item.name for item in operator.items("dtype") if isinstance(item, Dtype) and item.default is None
    ]
    return [name for name in (*attributes, *types) if name not in config]


def _needed(attribute: Parameter) -> bool:
    return attribute.value is None and not attribute.type.optional


def report_missing(rule: Rule, operator: Operator, missing: Sequence[str]) -> Diagnostic:
    """That a graph lacks values, with the words that give them."""
    words = " ".join(f"--set {name}=…" for name in missing)
    return rule.at(operator.span, name=operator.name, missing=", ".join(missing), words=words)


# --- one value ----------------------------------------------------------------------------------------------


def value_of(value: object, attribute: Parameter) -> Value:
    """The value of an attribute; text is read in the language, and as it stands for an attribute of type str."""
    if isinstance(value, str):
        return _from_text(value, attribute)
    if value is None or isinstance(value, bool | int | float):
        return _real(value, attribute)
    if isinstance(value, Sequence):
        return tuple(_item(item, attribute) for item in value)
    raise _no_value(f"a {type(value).__name__}", attribute)


def _no_value(what: str, attribute: Parameter) -> InputError:
    return InputError(f"{what} is no value for '{attribute.name}'", span=attribute.span)


def _item(value: object, attribute: Parameter) -> Single:
    if isinstance(value, str | bool | int | float):
        found = _real(value, attribute)
        if isinstance(found, str | bool | int | float):
            return found
    raise _no_value(f"a pack with a {type(value).__name__}", attribute)


def _real(value: bool | int | float | str | None, attribute: Parameter) -> bool | int | float | str | None:
    """A whole number for a real attribute is meant as a real: Python writes 1 where the language writes 1.0."""
    if isinstance(value, bool) or not isinstance(value, int) or attribute.type.name != "real":
        return value
    try:
        return float(value)
    except OverflowError:
        raise _no_value("a number beyond the largest real", attribute) from None


def _from_text(text: str, attribute: Parameter) -> Value:
    if attribute.type.name == "str" and text[:1] not in ("'", '"', "["):
        return text
    expression = _parse(text, attribute)
    try:
        found = evaluate(expression, {})
    except (Found, Fault):
        found = None
    if found is None or not isinstance(found, bool | int | float | str | tuple):
        raise _no_value(f"'{text[:SHOWN]}'", attribute)
    if isinstance(found, tuple):
        return tuple(_item(item, attribute) for item in found)
    return _real(found, attribute)


def _parse(text: str, attribute: Parameter) -> Expr:
    parsed = parse(Source(f"--set {attribute.name}", WRAP.format(type=attribute.type.name, text=text)))
    operators = parsed.document.declarations
    parameters = list(operators[0].parameters("attrib")) if len(operators) == 1 else []
    if errors(parsed.findings) or len(parameters) != 1 or parameters[0].value is None:
        raise _no_value(f"'{text[:SHOWN]}'", attribute)
    return parameters[0].value
