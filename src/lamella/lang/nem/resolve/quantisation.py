"""Quantisation descriptors of the text as values."""

from __future__ import annotations

import math

from lamella.base.dtype import find_in
from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant, axis_of, expected_count
from lamella.lang.nem import nodes
from lamella.lang.nem.resolve.expressions import Expressions, Failed
from lamella.lang.nem.rules import (
    QUANT_AXIS,
    QUANT_FIELDS,
    QUANT_GROUP,
    QUANT_LENGTH,
    QUANT_SCALE,
    QUANT_ZERO,
)

FIELDS = {
    "per_tensor": ("scale", "zero_point"),
    "per_channel": ("axis", "scales", "zero_points"),
    "per_group": ("axis", "group_size", "scales", "zero_points"),
}


def resolve_quant(values: Expressions, node: nodes.Quant, elem: str, shape: tuple[int, ...]) -> Quant:
    """The descriptor of a region, checked against its element type and shape."""
    fields = _fields(values, node)
    quant: Quant
    if node.form == "per_tensor":
        scale = _scale(values, fields["scale"])
        quant = PerTensor(scale, _zero_point(values, fields["zero_point"], elem))
    else:
        quant = _along_axis(values, node, fields, elem)
        _check_axis(values, node, quant, shape)
    return quant


def _fields(values: Expressions, node: nodes.Quant) -> dict[str, nodes.Value]:
    """The fields by name: each known, none twice, none missing."""
    wanted = FIELDS[node.form]
    found: dict[str, nodes.Value] = {}
    for item in node.fields:
        name = item.name.id
        if name not in wanted or name in found:
            problem = f"has no field '{name}'" if name not in wanted else f"gives '{name}' twice"
            raise values.fail(QUANT_FIELDS.at(item.name.span, form=node.form, problem=problem))
        found[name] = item.value
    missing = [name for name in wanted if name not in found]
    if missing:
        raise values.fail(QUANT_FIELDS.at(node.span, form=node.form, problem=f"lacks {', '.join(missing)}"))
    return found


def _along_axis(
    values: Expressions, node: nodes.Quant, fields: dict[str, nodes.Value], elem: str
) -> PerChannel | PerGroup:
    axis = _integer(values, fields["axis"], "an axis")
    scales = tuple(_scale(values, item) for item in values.items(fields["scales"], "a list of scales"))
    zero_items = values.items(fields["zero_points"], "a list of zero points")
    zeros = tuple(_zero_point(values, item, elem) for item in zero_items)
    if node.form == "per_channel":
        return PerChannel(axis, scales, zeros)
    size = _integer(values, fields["group_size"], "a group size")
    if size <= 0:
        raise values.fail(QUANT_GROUP.at(fields["group_size"].span, size=size))
    return PerGroup(axis, size, scales, zeros)


def _check_axis(
    values: Expressions, node: nodes.Quant, quant: PerChannel | PerGroup, shape: tuple[int, ...]
) -> None:
    axis = axis_of(quant, len(shape))
    if axis is None:
        raise values.fail(QUANT_AXIS.at(node.span, axis=quant.axis, rank=len(shape)))
    wanted = expected_count(quant, shape)
    for field, found in (("scales", quant.scales), ("zero_points", quant.zero_points)):
        if len(found) != wanted:
            finding = QUANT_LENGTH.at(
                node.span,
                field=field,
                found=len(found),
                form=node.form,
                axis=axis,
                size=shape[axis],
                wanted=wanted,
            )
            raise values.fail(finding)


def _scale(values: Expressions, value: nodes.Value) -> float:
    scale = float(values.number(value, "a scale"))
    if not (math.isfinite(scale) and scale > 0):
        raise values.fail(QUANT_SCALE.at(value.span, scale=scale))
    return scale


def _zero_point(values: Expressions, value: nodes.Value, elem: str) -> int:
    zero = _integer(values, value, "a zero point")
    element = find_in("nem", elem)
    if element is not None and element.is_integer and not element.minimum <= zero <= element.maximum:
        finding = QUANT_ZERO.at(value.span, zero=zero, elem=elem, low=element.minimum, high=element.maximum)
        raise values.fail(finding)
    return zero


def _integer(values: Expressions, value: nodes.Value, what: str) -> int:
    if isinstance(value, nodes.Text | nodes.Items):
        values.number(value, what)
        raise Failed
    return values.integer(value, what)
