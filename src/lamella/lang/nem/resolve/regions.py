"""Regions and buffers of the text as values."""

from __future__ import annotations

import math
from dataclasses import replace

from lamella.base.dtype import ElementType, find_in
from lamella.base.errors import Found
from lamella.base.limits import OutOfRange
from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant, axis_of, expected_count
from lamella.base.shape import MOST_AXES, bytes_for, element_count, row_major_strides, span_of
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.lang.nem import nodes
from lamella.lang.nem.codecs import CODECS
from lamella.lang.nem.resolve.expressions import ExpressionResolver
from lamella.lang.nem.resolve.scope import Poison
from lamella.lang.nem.resolved import Buffer, Index, Region, Resource, TensorType
from lamella.lang.nem.rules import (
    BAD_ALIGNMENT,
    BAD_DIMENSION,
    BAD_WINDOW,
    CODEC_PLACE,
    DECORATOR_ARGUMENTS,
    DOUBLE_TYPE,
    DUPLICATE_DECORATOR,
    EMPTY_BUFFER,
    EMPTY_EXTENT,
    ENGINE_RANGE,
    EXTENT_TOO_SMALL,
    INCOMPLETE_TYPE,
    LAYOUT_RANK,
    LIMIT,
    MISPLACED_DECORATOR,
    OUT_OF_RANGE,
    QUANT_AXIS,
    QUANT_FIELDS,
    QUANT_GROUP,
    QUANT_LENGTH,
    QUANT_SCALE,
    QUANT_ZERO,
    RESOURCE_TARGET,
    STRIDE_COUNT,
    STRIDES_LEAVE,
    UNKNOWN_CODEC,
    UNKNOWN_DECORATOR,
    WRONG_KIND,
)

# --- decorators: which are known, where each may stand, and what its arguments are --------------------------


TASK, MOVE, REGION, LOOP, BUFFER = "a task", "a move", "a region", "a loop", "a buffer"
TARGETS = {
    "materialized": (REGION,),
    "readonly": (REGION,),
    "writeonly": (REGION,),
    "deterministic": (TASK, MOVE),
    "memmove": (MOVE,),
    "resource": (TASK, MOVE),
    "seq_engine": (TASK, MOVE),
    "max_in_flight": (LOOP,),
    "debug": (TASK, MOVE, REGION, LOOP, BUFFER),
    "profile": (TASK, MOVE, REGION, LOOP, BUFFER),
}
ARGUMENTS = {
    "resource": "one unit instance, like CSTL[0]",
    "seq_engine": "one engine index",
    "max_in_flight": "one integer",
    "debug": "one name",
    "profile": "one tag",
}
RESOURCE_UNITS = ("NMU", "CSTL", "DMA", "VPU")
ALL_UNITS = (*RESOURCE_UNITS, "SEQ", "sDMA", "WDM")


class Decorators:
    """The decorators of one object, validated; those in error are left out."""

    def __init__(self, values: ExpressionResolver, target: str, found: tuple[nodes.Decorator, ...]) -> None:
        self._values = values
        self._by_name: dict[str, nodes.Decorator] = {}
        for decorator in found:
            self._admit(decorator, target)

    def _admit(self, decorator: nodes.Decorator, target: str) -> None:
        name, findings = decorator.name, self._values.findings
        if name not in TARGETS:
            close = nearest(name, TARGETS)
            hint = f"did you mean @{close[0]}?" if close else f"decorators are: {', '.join(TARGETS)}"
            findings.append(UNKNOWN_DECORATOR.at(decorator.span, name=name, hint=hint))
        elif target not in TARGETS[name]:
            wanted = " or ".join(TARGETS[name])
            findings.append(MISPLACED_DECORATOR.at(decorator.span, name=name, wanted=wanted, found=target))
        elif name in self._by_name:
            findings.append(DUPLICATE_DECORATOR.at(decorator.span, name=name))
        elif len(decorator.arguments) != (name in ARGUMENTS):
            self._bad_arguments(decorator)
        else:
            self._by_name[name] = decorator

    def _bad_arguments(self, decorator: nodes.Decorator) -> Found:
        wanted = ARGUMENTS.get(decorator.name, "no argument")
        finding = DECORATOR_ARGUMENTS.at(decorator.span, name=decorator.name, wanted=wanted)
        return self._values.fail(finding)

    def has(self, name: str) -> bool:
        """Whether the object carries this decorator."""
        return name in self._by_name

    def word(self, name: str) -> str:
        """The name or tag of @debug and @profile; empty where absent."""
        decorator = self._by_name.get(name)
        if decorator is None:
            return ""
        argument = decorator.arguments[0]
        if isinstance(argument, nodes.Name):
            return argument.id
        if isinstance(argument, nodes.Text):
            return argument.value
        self._bad_arguments(decorator)
        return ""

    def integer(self, name: str) -> int | None:
        """The integer argument of @seq_engine and @max_in_flight; None where absent or in error."""
        decorator = self._by_name.get(name)
        if decorator is None:
            return None
        argument = decorator.arguments[0]
        if isinstance(argument, nodes.Text | nodes.Items | nodes.UnitRef):
            self._bad_arguments(decorator)
            return None
        try:
            return self._values.integer(argument, f"@{name}")
        except Found:
            return None

    def window(self) -> int:
        """The @max_in_flight of a loop; 1 where absent."""
        count = self.integer("max_in_flight")
        if count is not None and count < 1:
            span = self._by_name["max_in_flight"].span
            self._values.findings.append(BAD_WINDOW.at(span, count=count))
        return max(1, count or 1)

    def resource(self) -> Resource | None:
        """The @resource of a task; None where absent or in error."""
        decorator = self._by_name.get("resource")
        if decorator is None:
            return None
        unit = decorator.arguments[0]
        if not isinstance(unit, nodes.UnitRef) or unit.unit not in ALL_UNITS:
            self._bad_arguments(decorator)
            return None
        if unit.unit not in RESOURCE_UNITS:
            self._values.findings.append(RESOURCE_TARGET.at(unit.span, unit=unit.unit))
            return None
        try:
            return Resource(unit.unit, self._values.index(unit.index, "a unit index"), decorator.span)
        except Found:
            return None

    def span(self, name: str) -> Span:
        """Where a decorator stands."""
        return self._by_name[name].span


# --- quantisation descriptors of the text as values ---------------------------------------------------------


FIELDS = {
    "per_tensor": ("scale", "zero_point"),
    "per_channel": ("axis", "scales", "zero_points"),
    "per_group": ("axis", "group_size", "scales", "zero_points"),
}


def resolve_quant(values: ExpressionResolver, node: nodes.Quant, elem: str, shape: tuple[int, ...]) -> Quant:
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


def _fields(values: ExpressionResolver, node: nodes.Quant) -> dict[str, nodes.Value]:
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
    values: ExpressionResolver, node: nodes.Quant, fields: dict[str, nodes.Value], elem: str
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
    values: ExpressionResolver, node: nodes.Quant, quant: PerChannel | PerGroup, shape: tuple[int, ...]
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


def _scale(values: ExpressionResolver, value: nodes.Value) -> float:
    scale = float(values.number(value, "a scale"))
    if not (math.isfinite(scale) and scale > 0):
        raise values.fail(QUANT_SCALE.at(value.span, scale=scale))
    return scale


def _zero_point(values: ExpressionResolver, value: nodes.Value, elem: str) -> int:
    zero = _integer(values, value, "a zero point")
    element = find_in("nem", elem)
    if element is not None and element.is_integer and not element.minimum <= zero <= element.maximum:
        finding = QUANT_ZERO.at(value.span, zero=zero, elem=elem, low=element.minimum, high=element.maximum)
        raise values.fail(finding)
    return zero


def _integer(values: ExpressionResolver, value: nodes.Value, what: str) -> int:
    if isinstance(value, nodes.Text | nodes.Items):
        values.number(value, what)
        raise Found
    return values.integer(value, what)


LARGEST_ALIGNMENT = 1 << 30
NAMED_LAYOUTS = ("NHWC", "NCHW", "HWIO")


def resolve_buffer(values: ExpressionResolver, node: nodes.Buffer) -> Buffer:
    """A buffer with its size, alignment and engine."""
    if node.size is None:
        raise Found
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
    codec, stored = _resolve_codec(values, node, size)
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
        codec=codec,
        stored=stored,
    )


def _resolve_codec(values: ExpressionResolver, node: nodes.Buffer, size: int) -> tuple[str, int]:
    """How a buffer is stored: the codec exists, the buffer is imported into DDR, the sizes are possible."""
    if node.codec is None:
        if node.stored is not None:
            problem = "says what is stored, and no codec"
            raise values.fail(CODEC_PLACE.at(node.stored.span, name=node.name.id, problem=problem))
        return "", 0
    codec = CODECS.get(node.codec.id)
    if codec is None:
        close = nearest(node.codec.id, CODECS)
        hint = f"did you mean '{close[0]}'?" if close else f"codecs are: {', '.join(CODECS)}"
        raise values.fail(UNKNOWN_CODEC.at(node.codec.span, name=node.codec.id, hint=hint))
    stored = codec.largest(size) if node.stored is None else values.integer(node.stored, "a stored size")
    least, most = codec.smallest(size), codec.largest(size)
    problem = ""
    if node.level != "DDR" or not node.imported:
        problem = "has a codec, and is not imported into DDR"
    elif size % codec.width:
        problem = f"has {size} bytes, no whole elements of {codec.width}"
    elif not least <= stored <= most:
        only = f"{least}" if least == most else f"{least} to {most}"
        problem = f"stores {stored} bytes; {codec.name} takes {only}"
    if problem:
        raise values.fail(CODEC_PLACE.at(node.span, name=node.name.id, problem=problem))
    return codec.name, stored


def resolve_operand(values: ExpressionResolver, operand: nodes.Operand) -> Region:
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
    values: ExpressionResolver, node: nodes.Region, name: str, decorators: tuple[nodes.Decorator, ...]
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
        raise Found
    return decorate(values, Region(name, buffer, offset, extent, tensor, node.span), decorators)


def decorate(values: ExpressionResolver, region: Region, decorators: tuple[nodes.Decorator, ...]) -> Region:
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


def resolve_type(values: ExpressionResolver, node: nodes.TypeAttributes, extent: int) -> TensorType:
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


def _shape(values: ExpressionResolver, exprs: tuple[nodes.Expr, ...]) -> tuple[int, ...]:
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


def _strides(
    values: ExpressionResolver, node: nodes.TypeAttributes, shape: tuple[int, ...]
) -> tuple[int, ...]:
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
    values: ExpressionResolver,
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
