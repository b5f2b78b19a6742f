"""Regions and buffers of the text as values."""

from __future__ import annotations

import math
from dataclasses import replace

from lamella.base.dtype import ElementType, find_in
from lamella.base.limits import OutOfRange
from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant, axis_of, expected_count
from lamella.base.shape import MOST_AXES, bytes_for, element_count, row_major_strides, span_of
from lamella.lang.nem import nodes
from lamella.lang.nem.resolve.decorators import Decorators
from lamella.lang.nem.resolve.expressions import Expressions, Failed
from lamella.lang.nem.resolve.scope import Poison
from lamella.lang.nem.resolved import Buffer, Index, Region, TensorType
from lamella.lang.nem.rules import (
    BAD_ALIGNMENT,
    BAD_DIMENSION,
    DOUBLE_TYPE,
    EMPTY_BUFFER,
    EMPTY_EXTENT,
    ENGINE_RANGE,
    EXTENT_TOO_SMALL,
    INCOMPLETE_TYPE,
    LAYOUT_RANK,
    LIMIT,
    OUT_OF_RANGE,
    QUANT_AXIS,
    QUANT_FIELDS,
    QUANT_GROUP,
    QUANT_LENGTH,
    QUANT_SCALE,
    QUANT_ZERO,
    STRIDE_COUNT,
    STRIDES_LEAVE,
    WRONG_KIND,
)

# --- quantisation descriptors of the text as values ---------------------------------------------------------


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


LARGEST_ALIGNMENT = 1 << 30
NAMED_LAYOUTS = ("NHWC", "NCHW", "HWIO")


def resolve_buffer(values: Expressions, node: nodes.Buffer) -> Buffer:
    """A buffer with its size, alignment and engine."""
    if node.size is None:
        raise Failed
    size = values.integer(node.size, "a buffer size")
    if size <= 0:
        raise values.fail(EMPTY_BUFFER.at(node.size.span, name=node.name.id, size=size))
    align = 1 if node.align is None else values.integer(node.align, "an alignment")
    if align < 1 or align > LARGEST_ALIGNMENT or align & (align - 1):
        span = node.align.span if node.align else node.span
        raise values.fail(BAD_ALIGNMENT.at(span, name=node.name.id, align=align))
    engine = 0 if node.index is None else values.integer(node.index, "an engine index")
    if engine < 0:
        finding = ENGINE_RANGE.at(
            node.span, name=node.name.id, engine=engine, device="a device", count="1 or more"
        )
        raise values.fail(finding)
    marks = Decorators(values, "a buffer", node.decorators)
    return Buffer(
        node.name.id,
        node.level,
        engine,
        size,
        align,
        node.imported,
        node,
        debug=marks.word("debug"),
        profile=marks.word("profile"),
    )


def resolve_operand(values: Expressions, operand: nodes.Operand) -> Region:
    """The region an operand names or writes in place, with the decorators behind it."""
    if isinstance(operand.value, nodes.Region):
        return resolve_region(values, operand.value, "", operand.decorators)
    meaning = values.meaning(operand.value)
    if isinstance(meaning, Region):
        return decorate(values, meaning, operand.decorators)
    if isinstance(meaning, Buffer):
        whole = Region(meaning.name, meaning, Index(0), meaning.size, None, operand.span)
        return decorate(values, whole, operand.decorators)
    raise values.wrong(operand.value, meaning, "a region or a buffer")


def resolve_region(
    values: Expressions, node: nodes.Region, name: str, decorators: tuple[nodes.Decorator, ...]
) -> Region:
    """A region with its buffer looked up and its numbers evaluated."""
    buffer = values.meaning(node.buffer)
    if not isinstance(buffer, Buffer | Poison):
        raise values.wrong(node.buffer, buffer, "a buffer")
    offset = values.index(node.offset, "a region offset")
    extent = values.integer(node.extent, "a region extent")
    if extent <= 0:
        raise values.fail(EMPTY_EXTENT.at(node.extent.span, extent=extent))
    tensor = None if node.type is None else resolve_type(values, node.type, extent)
    if isinstance(buffer, Poison):
        raise Failed
    return decorate(values, Region(name, buffer, offset, extent, tensor, node.span), decorators)


def decorate(values: Expressions, region: Region, decorators: tuple[nodes.Decorator, ...]) -> Region:
    """A region with its decorators applied."""
    if not decorators:
        return region
    marks = Decorators(values, "a region", decorators)
    return replace(
        region,
        materialized=region.materialized or marks.has("materialized"),
        readonly=region.readonly or marks.has("readonly"),
        writeonly=region.writeonly or marks.has("writeonly"),
        debug=marks.word("debug") or region.debug,
        profile=marks.word("profile") or region.profile,
    )


def resolve_type(values: Expressions, node: nodes.TypeAttributes, extent: int) -> TensorType:
    """The tensor type of a region, checked against its extent."""
    if node.elem is None or node.shape is None or (node.layout is None and node.strides is None):
        parts = (
            ("elem", node.elem),
            ("shape", node.shape),
            ("layout or strides", node.layout or node.strides),
        )
        missing = " and ".join(name for name, part in parts if part is None)
        raise values.fail(INCOMPLETE_TYPE.at(node.span, missing=missing))
    if node.layout is not None and node.strides is not None:
        raise values.fail(DOUBLE_TYPE.at(node.layout.span, what="the layout"))
    element = find_in("nem", node.elem.id)
    if element is None:
        raise values.fail(
            WRONG_KIND.at(node.elem.span, name=node.elem.id, kind="an unknown name", wanted="an element type")
        )
    shape = _shape(values, node.shape)
    try:
        strides = _strides(values, node, shape)
        _check_extent(values, node, element, shape, strides, extent)
    except OutOfRange:
        raise values.fail(OUT_OF_RANGE.at(node.span, text=f"the size of shape {list(shape)}")) from None
    quant: Quant | None = None
    if node.quant is not None:
        quant = resolve_quant(values, node.quant, node.elem.id, shape)
    return TensorType(node.elem.id, shape, node.layout.id if node.layout else None, strides, quant)


def _shape(values: Expressions, exprs: tuple[nodes.Expr, ...]) -> tuple[int, ...]:
    if len(exprs) > MOST_AXES:
        where, what = exprs[0].span.to(exprs[-1].span), f"a shape of rank {len(exprs)}"
        raise values.fail(
            LIMIT.at(where, what=what, limit=MOST_AXES, hint="join axes that are used together")
        )
    shape = values.integers(exprs, "a shape dimension")
    for axis, size in enumerate(shape):
        if size <= 0:
            raise values.fail(BAD_DIMENSION.at(exprs[axis].span, axis=axis, size=size))
    return shape


def _strides(values: Expressions, node: nodes.TypeAttributes, shape: tuple[int, ...]) -> tuple[int, ...]:
    if node.strides is None:
        layout = node.layout.id if node.layout else ""
        if layout in NAMED_LAYOUTS and len(shape) != 4:
            raise values.fail(LAYOUT_RANK.at(node.span, layout=layout, rank=len(shape)))
        return row_major_strides(shape)
    strides = values.integers(node.strides, "a stride")
    if len(strides) != len(shape):
        raise values.fail(STRIDE_COUNT.at(node.span, count=len(strides), rank=len(shape)))
    return strides


def _check_extent(
    values: Expressions,
    node: nodes.TypeAttributes,
    element: ElementType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    extent: int,
) -> None:
    count = element_count(shape)
    needed = bytes_for(count, element.bits)
    if needed > extent:
        finding = EXTENT_TOO_SMALL.at(node.span, extent=extent, needed=needed, count=count, elem=element.name)
        raise values.fail(finding)
    lowest, highest = span_of(shape, strides)
    if lowest < 0 or bytes_for(highest + 1, element.bits) > extent:
        outside = lowest if lowest < 0 else highest
        finding = STRIDES_LEAVE.at(
            node.span, strides=list(strides), element=outside, byte=outside * element.bits // 8, extent=extent
        )
        raise values.fail(finding)
