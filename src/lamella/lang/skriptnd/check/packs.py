"""Packs: lists and what stands in them, indices, substitution."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import OperatorContext, excerpt
from lamella.lang.skriptnd.check.kinds import (
    UNKNOWN,
    MaybeExtent,
    ValueKind,
    agrees,
    family,
    join_types,
    shown,
)
from lamella.lang.skriptnd.nodes import Expand, Expr, Index, Item, List, Name, Range, Substitute, Zip
from lamella.lang.skriptnd.rules import lowering
from lamella.lang.skriptnd.rules import types as rules


def infer_pack(context: OperatorContext, node: List | Index | Substitute) -> ValueKind:
    """The kind of a list, of what an index takes from a pack, or of a pack with other items in some places."""
    match node:
        case List():
            return _infer_list(context, node)
        case Index():
            return _infer_index(context, node)
        case Substitute():
            return _infer_substitute(context, node)


def _infer_list(context: OperatorContext, items: List) -> ValueKind:
    """`[item, …]`: items of one type, their lengths added."""
    whole = ValueKind("", packed=True, length=0)
    for item in items.items:
        kind = _infer_item(context, item)
        if not kind.known or not whole.known:
            whole = UNKNOWN
            continue
        if not agrees(whole, kind):
            context.report(rules.LIST_TYPES.at(item.span, left=whole.type, right=kind.type))
            whole = UNKNOWN
            continue
        length = context.algebra.combine("+", whole.length, kind.length)
        rank = kind.rank if whole.type == "" or whole.rank == kind.rank else None
        name = join_types(whole.type, kind.type)
        optional, tensor = whole.optional or kind.optional, whole.tensor or kind.tensor
        whole = ValueKind(name, optional, True, tensor, length, rank)
    return whole


def _infer_item(context: OperatorContext, item: Item) -> ValueKind:
    """An item of a list as the pack of what it stands for."""
    if isinstance(item, Range):
        return _infer_range(context, item)
    if isinstance(item, Expand):
        return infer_expansion(context, item)
    if isinstance(item, Zip):
        return _infer_zip(context, item)
    kind = context.infer(item)
    if kind.packed:
        return context.report(rules.EXPANSION_MISSING.at(item.span, text=excerpt(item)))
    return kind.pack(1) if kind.known else kind


def _infer_range(context: OperatorContext, item: Range) -> ValueKind:
    """`begin:end:step` as the integers it counts."""
    parts = [infer_integer(context, part, "a range") for part in (item.begin, item.end, item.step) if part]
    step = _step(context, item, parts[2] if item.step is not None else None)
    if not all(part.known for part in parts) or len(parts) < 2:
        return ValueKind("int", packed=True)
    optional = any(part.optional for part in parts)
    length = _distance(context, parts[0].value, parts[1].value, step)
    return ValueKind("int", optional, True, length=context.algebra.at_least_zero(length))


def _step(context: OperatorContext, item: Range, step: ValueKind | None) -> int | None:
    """The step of a range where it is a number."""
    if step is None:
        return 1
    if item.step is not None and step.value == 0 and step.known:
        context.report(rules.RANGE_STEP.at(item.step.span))
    return step.value if isinstance(step.value, int) and step.value else None


def _distance(
    context: OperatorContext, begin: MaybeExtent, end: MaybeExtent, step: int | None
) -> MaybeExtent:
    if step is None:
        return None
    first, last = (begin, end) if step > 0 else (end, begin)
    return context.algebra.steps(context.algebra.combine("-", last, first), abs(step))


def infer_expansion(context: OperatorContext, item: Expand) -> ValueKind:
    """`e..` and `e..(count)`."""
    kind = context.infer(item.operand)
    count = _infer_count(context, item.count) if item.count is not None else None
    if not kind.known:
        return UNKNOWN
    if kind.packed:
        if count is not None and context.algebra.differ(kind.length, count.value):
            left, right = shown(kind.length), shown(count.value)
            return context.report(
                rules.EXPANSION_PLACE.at(item.span, text=excerpt(item.operand), length=left, wanted=right)
            )
        return kind
    if count is None:
        return context.report(rules.EXPANSION_LENGTH.at(item.span, text=excerpt(item.operand)))
    if count.type == "bool":
        # The flag that keeps the item also says that it is there.
        return kind.present().maybe(count.optional).pack(count.value)
    return kind.maybe(count.optional).pack(count.value)


def _infer_count(context: OperatorContext, count: Expr) -> ValueKind:
    kind = context.infer(count)
    if kind.packed:
        return context.report(
            rules.PACK_HERE.at(count.span, what="the count of an expansion", text=excerpt(count))
        )
    if kind.known and (kind.tensor or family(kind.type or "") not in ("int", "bool")):
        return context.report(rules.EXPANSION_COUNT.at(count.span, type=kind if kind.tensor else kind.type))
    return kind


def _infer_zip(context: OperatorContext, item: Zip) -> ValueKind:
    """`(a, b)..`: packs of one length in turn."""
    whole: ValueKind | None = None
    for operand in item.operands:
        kind = context.infer(operand)
        if kind.known and not kind.packed:
            kind = context.report(rules.NOT_A_PACK.at(operand.span, what="a zip", text=excerpt(operand)))
        if whole is None or not (whole.known and kind.known):
            whole = kind if whole is None or whole.known else whole
            continue
        if not agrees(whole, kind):
            return context.report(rules.LIST_TYPES.at(operand.span, left=whole.type, right=kind.type))
        if context.algebra.differ(whole.length, kind.length):
            left, right = shown(whole.length), shown(kind.length)
            return context.report(rules.ZIP_LENGTHS.at(operand.span, left=left, right=right))
        name, length = join_types(whole.type, kind.type), whole.length if kind.length is None else kind.length
        whole = ValueKind(name, whole.optional or kind.optional, True, whole.tensor or kind.tensor, length)
    if whole is None or not whole.known:
        return UNKNOWN
    return whole.pack(context.algebra.combine("*", whole.length, len(item.operands)))


def infer_integer(context: OperatorContext, expr: Expr, what: str) -> ValueKind:
    """The kind of an expression that must be one int."""
    kind = context.infer(expr)
    if kind.packed:
        return context.report(rules.PACK_HERE.at(expr.span, what=what, text=excerpt(expr)))
    if kind.known and (kind.tensor or family(kind.type or "") != "int"):
        return context.report(
            rules.INTEGER_NEEDED.at(expr.span, what=what, type=kind if kind.tensor else kind.type)
        )
    return kind


def _infer_index(context: OperatorContext, index: Index) -> ValueKind:
    """`pack[index]`: one item, or a pack of them; also a part of a string."""
    kind = context.infer(index.operand)
    if kind.type == "str" and not kind.packed and not kind.tensor:
        _infer_position(context, index, ValueKind("str", packed=True))
        return ValueKind("str", kind.optional)
    if kind.tensor and not kind.packed:
        return context.report(lowering.TENSOR_RANGE.at(index.span, name=excerpt(index.operand)))
    if kind.known and not kind.packed:
        text = excerpt(index.operand)
        return context.report(rules.NOT_A_PACK.at(index.span, what="an index", text=text))
    position = _infer_position(context, index, kind)
    if not (kind.known and position.known):
        return UNKNOWN
    found = kind.maybe(position.optional)
    return found.pack(position.length) if position.packed else _item(context, index, found, position)


def _item(context: OperatorContext, index: Index, kind: ValueKind, position: ValueKind) -> ValueKind:
    """One item of a pack."""
    if isinstance(position.value, int) and isinstance(kind.length, int):
        if not -kind.length <= position.value < kind.length:
            context.report(rules.INDEX_RANGE.at(index.span, index=position.value, length=kind.length))
        return kind.single()
    single = kind.single()
    if not isinstance(index.operand, Name) or position.value is None or family(kind.type or "") != "int":
        return single
    value = context.algebra.form(("[]", index.operand.id, position.value))
    return ValueKind(single.type, single.optional, False, single.tensor, None, single.rank, value)


def _infer_position(context: OperatorContext, index: Index, kind: ValueKind) -> ValueKind:
    """An index as the items it takes: an int, or a pack whose length is that of the result."""
    if isinstance(index.index, Range):
        return _infer_slice(context, index.index, kind)
    position = context.infer(index.index)
    if not position.known:
        return UNKNOWN
    if position.packed and position.type == "bool":
        if context.algebra.differ(position.length, kind.length):
            left, right = shown(position.length), shown(kind.length)
            context.report(rules.MASK_LENGTH.at(index.index.span, left=left, right=right))
        return ValueKind("bool", position.optional, True)
    if position.tensor or (position.type and family(position.type) != "int"):
        return context.report(
            rules.INDEX_TYPE.at(
                index.index.span, what="a pack", type=position if position.tensor else position.type
            )
        )
    return position


def _infer_slice(context: OperatorContext, part: Range, kind: ValueKind) -> ValueKind:
    """`begin:end:step` behind a pack; negative numbers count from its end."""
    kinds = [
        None if item is None else infer_integer(context, item, "a range") for item in (part.begin, part.end)
    ]
    step = _step(context, part, None if part.step is None else infer_integer(context, part.step, "a step"))
    optional = any(item.optional for item in kinds if item is not None)
    if step is None or not all(item is None or item.known for item in kinds):
        return ValueKind("int", optional, True)
    total = kind.length
    ends = (0, total) if step > 0 else (context.algebra.combine("-", total, 1), -1)
    begin, end = (
        missing if item is None else context.algebra.position(item.value, total)
        for item, missing in zip(kinds, ends, strict=True)
    )
    length = _distance(context, begin, end, step)
    # An index out of range is refused, so only a slice with two ends of its own can turn out empty.
    whole = part.begin is None or part.end is None
    return ValueKind("int", optional, True, length=length if whole else context.algebra.at_least_zero(length))


def _infer_substitute(context: OperatorContext, node: Substitute) -> ValueKind:
    """`pack[index] <- value`."""
    kind, value = context.infer(node.target.operand), context.infer(node.value)
    if kind.known and not kind.packed:
        text = excerpt(node.target.operand)
        return context.report(rules.NOT_A_PACK.at(node.span, what="'<-'", text=text))
    position = _infer_position(context, node.target, kind)
    if not (kind.known and value.known and position.known):
        return UNKNOWN if not kind.known else kind.maybe(value.optional or position.optional)
    if position.type == "bool":
        return context.report(rules.INDEX_TYPE.at(node.target.index.span, what="'<-'", type="a pack of bool"))
    if not agrees(kind, value):
        return context.report(rules.SUBSTITUTE_TYPE.at(node.span, left=kind.type, right=value.type))
    wanted = position.length if position.packed else 1
    if value.packed and (not position.packed or context.algebra.differ(wanted, value.length)):
        many, found = ("one value" if not position.packed else f"{shown(wanted)} values"), shown(value.length)
        index = excerpt(node.target.index)
        return context.report(
            rules.SUBSTITUTE_INDEX.at(node.span, wanted=many, index=index, found=f"a pack of {found}")
        )
    return ValueKind(
        join_types(kind.type, value.type),
        kind.optional or value.optional or position.optional,
        True,
        kind.tensor,
        kind.length,
        kind.rank,
    )
