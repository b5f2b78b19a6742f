"""Compute attributes of the text as values, by the types the registry gives them."""

from __future__ import annotations

from lamella.base.dtype import find_in
from lamella.base.suggest import nearest
from lamella.lang.nem import nodes
from lamella.lang.nem.registry import AttributeSpec, Opcode
from lamella.lang.nem.resolve.expressions import Expressions, Failed, literal_kind
from lamella.lang.nem.resolve.scope import Number, Written
from lamella.lang.nem.resolved import AttributeValue
from lamella.lang.nem.rules import ATTRIBUTE_TYPE, DUPLICATE_ATTRIBUTE, MISSING_ATTRIBUTE, UNKNOWN_ATTRIBUTE

WANTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "elem_type": "an element type",
    "int_list": "a list of integers",
    "string": "a string",
    "id": "a name",
}
BOOLEANS: dict[str | int, bool] = {"true": True, "false": False, 1: True, 0: False}
GENERIC = "compute"


def resolve_attributes(values: Expressions, task: nodes.Task, opcode: Opcode) -> dict[str, AttributeValue]:
    """The attributes of a task, defaults filled in; what is in error is reported and left out."""
    found: dict[str, AttributeValue] = {}
    seen: set[str] = set()
    for item in task.attributes:
        name = item.name.id
        if name in seen:
            values.findings.append(DUPLICATE_ATTRIBUTE.at(item.span, name=name))
            continue
        seen.add(name)
        try:
            found[name] = _resolve_one(values, item, opcode)
        except Failed:
            continue
    for spec in opcode.attributes.values():
        if spec.name not in seen:
            _fill_default(values, task, spec, found)
    return found


def _fill_default(
    values: Expressions, task: nodes.Task, spec: AttributeSpec, found: dict[str, AttributeValue]
) -> None:
    if spec.required:
        opcode = task.opcode
        values.findings.append(MISSING_ATTRIBUTE.at(opcode.span, opcode=opcode.id, name=spec.name))
    elif isinstance(spec.default, int | float | str):
        found[spec.name] = spec.default


def _resolve_one(values: Expressions, item: nodes.Attribute, opcode: Opcode) -> AttributeValue:
    spec = opcode.attributes.get(item.name.id)
    if spec is not None:
        return _typed(values, item, spec, opcode)
    if opcode.name == GENERIC:
        return _untyped(values, item.value)
    close = nearest(item.name.id, opcode.attributes)
    names = ", ".join(opcode.attributes) or "none"
    hint = f"did you mean '{close[0]}'?" if close else f"its attributes are: {names}"
    finding = UNKNOWN_ATTRIBUTE.at(item.name.span, opcode=opcode.name, name=item.name.id, hint=hint)
    raise values.fail(finding)


def _typed(values: Expressions, item: nodes.Attribute, spec: AttributeSpec, opcode: Opcode) -> AttributeValue:
    """The value of an attribute in the type of its specification."""
    value = _plain(values, item.value, spec.type)
    result: AttributeValue | None = None
    if spec.type == "int" and isinstance(value, int):
        result = value
    elif spec.type == "float" and isinstance(value, int | float):
        result = float(value)
    elif spec.type == "bool" and isinstance(value, int | str):
        result = BOOLEANS.get(value)
    elif spec.type == "elem_type" and isinstance(value, str) and find_in("nem", value) is not None:
        result = value
    elif (spec.type == "string" and isinstance(value, str)) or spec.type == "id":
        result = value if isinstance(value, str) else None
    elif spec.type == "int_list" and isinstance(value, tuple):
        result = value
    if result is None:
        shown = value if isinstance(value, str) else literal_kind(item.value)
        finding = ATTRIBUTE_TYPE.at(
            item.value.span, name=spec.name, opcode=opcode.name, wanted=WANTED[spec.type], found=shown
        )
        raise values.fail(finding)
    return result


def _plain(values: Expressions, value: nodes.Value, wanted: str) -> AttributeValue:
    """A value as a number, a word or a tuple of integers; names are looked up where a number or list is wanted."""
    if isinstance(value, nodes.Name) and wanted in ("elem_type", "bool", "id"):
        return value.id
    if isinstance(value, nodes.Text) or (wanted == "string" and isinstance(value, nodes.Name)):
        return values.text(value, "a string")
    if isinstance(value, nodes.Items) or (wanted == "int_list" and isinstance(value, nodes.Name)):
        return tuple(_member(values, item) for item in values.items(value, "a list"))
    return values.number(value, "an attribute")


def _member(values: Expressions, value: nodes.Value) -> int:
    if isinstance(value, nodes.Text | nodes.Items):
        values.number(value, "an integer")
        raise Failed
    return values.integer(value, "a list of integers")


def _untyped(values: Expressions, value: nodes.Value) -> AttributeValue:
    """An attribute of a generic operation: kept as it is written."""
    if isinstance(value, nodes.Name):
        meaning = values.scope.find(value.id)
        if isinstance(meaning, Number):
            return values.integer(value, "an attribute")
        if isinstance(meaning, Written):
            return _untyped(values, meaning.value)
        return value.id
    return _plain(values, value, "any")
