"""Values of attributes as a user gives them: Python objects, or text in the language itself."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.diagnostic import errors
from lamella.base.errors import InputError
from lamella.base.source import Source
from lamella.lang.skriptnd import parse
from lamella.lang.skriptnd.nodes import Expr, Parameter
from lamella.ops.evaluate import evaluate
from lamella.ops.instance import Single, Value
from lamella.ops.problem import Fault, Problem

WRAP = "operator value {{ @attrib {{ value: {type} = {text}; }} }}"


def value_of(value: object, attribute: Parameter) -> Value:
    """The value of an attribute; text is read in the language, and as it stands for an attribute of type str."""
    if isinstance(value, str):
        return _from_text(value, attribute)
    if value is None or isinstance(value, bool | int | float):
        return _real(value, attribute)
    if isinstance(value, Sequence):
        return tuple(_item(item, attribute) for item in value)
    raise InputError(f"'{attribute.name}' cannot be a {type(value).__name__}")


def _item(value: object, attribute: Parameter) -> Single:
    if isinstance(value, str | bool | int | float):
        found = _real(value, attribute)
        if isinstance(found, str | bool | int | float):
            return found
    raise InputError(f"an item of '{attribute.name}' cannot be a {type(value).__name__}")


def _real(value: bool | int | float | str | None, attribute: Parameter) -> bool | int | float | str | None:
    """A whole number for a real attribute is meant as a real: Python writes 1 where the language writes 1.0."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and attribute.type.name == "real" and value is not None else value


def _from_text(text: str, attribute: Parameter) -> Value:
    if attribute.type.name == "str" and text[:1] not in ("'", '"', "["):
        return text
    expression = _parse(text, attribute)
    try:
        found = evaluate(expression, {})
    except (Problem, Fault):
        found = None
    if found is None or not isinstance(found, bool | int | float | str | tuple):
        raise InputError(f"'{text}' is no value for '{attribute.name}'")
    if isinstance(found, tuple):
        return tuple(_item(item, attribute) for item in found)
    return _real(found, attribute)


def _parse(text: str, attribute: Parameter) -> Expr:
    parsed = parse(Source(f"--set {attribute.name}", WRAP.format(type=attribute.type.name, text=text)))
    operators = parsed.document.declarations
    parameters = list(operators[0].parameters("attrib")) if len(operators) == 1 else []
    if errors(parsed.findings) or len(parameters) != 1 or parameters[0].value is None:
        raise InputError(f"'{text[:100]}' is no value for '{attribute.name}'")
    return parameters[0].value
