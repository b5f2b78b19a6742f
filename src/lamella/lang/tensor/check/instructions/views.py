"""Views of memory: subview, expand and fuse."""

from __future__ import annotations

from collections.abc import Iterable

from lamella.base.cursor import SHOWN
from lamella.base.limits import LARGEST
from lamella.lang.tensor.check.here import Here
from lamella.lang.tensor.nodes import Expand, Fuse, IndexOrSize, Memref, Size, Slice, Subview, Value
from lamella.lang.tensor.rules import instructions as rules
from lamella.lang.tensor.write.types import write_size, write_type


def check_view(here: Here, view: Subview | Expand | Fuse) -> None:
    """Check that the type of a view is one of its layout."""
    types = here.context.types_of(view.operand, *_values_of(view))
    if types is None:
        return
    operand = types[0]
    if not isinstance(operand, Memref):
        here.expect(view.operand, operand, False, "a memref")
        return
    here.expect_indices(_values_of(view), "an offset or a size")
    layout = _layout_of(here, view, operand)
    if layout is not None:
        _check_result(here, view, layout)


def _values_of(view: Subview | Expand | Fuse) -> list[Value]:
    items: list[IndexOrSize] = []
    if isinstance(view, Subview):
        items = [item for part in view.slices for item in (part.offset, part.size)]
    elif isinstance(view, Expand):
        items = list(view.sizes)
    return [item for item in items if isinstance(item, Value)]


def _layout_of(here: Here, view: Subview | Expand | Fuse, operand: Memref) -> Memref | None:
    """The type that a view is of; None where what it asks for is in error."""
    match view:
        case Subview():
            return _subview(here, view, operand)
        case Expand():
            return _expand(here, view, operand)
        case Fuse():
            return _fuse(here, view, operand)


def _known(item: IndexOrSize) -> Size:
    return item if isinstance(item, int) else None


def _subview(here: Here, view: Subview, operand: Memref) -> Memref | None:
    if len(view.slices) != operand.order:
        words = {"count": len(view.slices), "name": view.operand.name, "order": operand.order}
        here.say(rules.SLICE_COUNT, here.span, [view.operand], **words)
        return None
    before = here.context.errors
    for mode, part in enumerate(view.slices):
        _check_slice(here, mode, part, operand.shape[mode])
    if here.context.errors > before:
        return None
    kept = [
        (part, stride) for part, stride in zip(view.slices, operand.stride, strict=True) if part.size != 0
    ]
    shape = tuple(_known(part.size) for part, _ in kept)
    return Memref(operand.element, shape, tuple(stride for _, stride in kept), operand.local)


def _check_slice(here: Here, mode: int, part: Slice, bound: Size) -> None:
    offset, size = _known(part.offset), _known(part.size)
    if (offset or 0) < 0 or (size or 0) < 0:
        words = {"offset": write_size(offset), "size": write_size(size)}
        here.say(rules.SLICE_NEGATIVE, here.span, (), mode=mode, **words)
    elif bound is not None:
        # a dynamic offset is 0 or more and a dynamic size 1 or more
        end = (offset or 0) + (size or 1)
        if end > bound:
            here.say(rules.SLICE_PAST_END, here.span, mode=mode, end=end, bound=bound)


def _expand(here: Here, view: Expand, operand: Memref) -> Memref | None:
    mode, sizes = view.mode, tuple(map(_known, view.sizes))
    if not 0 <= mode < operand.order:
        words = {"name": view.operand.name, "order": operand.order}
        here.say(rules.EXPAND_MODE, here.span, [view.operand], mode=mode, **words)
        return None
    if not _check_factors(here, view, sizes, operand.shape[mode]):
        return None
    strides = _running_strides(operand.stride[mode], sizes)
    shape = (*operand.shape[:mode], *sizes, *operand.shape[mode + 1 :])
    stride = (*operand.stride[:mode], *strides, *operand.stride[mode + 1 :])
    return Memref(operand.element, shape, stride, operand.local)


def _check_factors(here: Here, view: Expand, sizes: tuple[Size, ...], size: Size) -> bool:
    known = [item for item in sizes if item is not None]
    before = here.context.errors
    if known and min(known) < (0 if size == 0 else 1):
        here.say(rules.EXPAND_NEGATIVE, here.span, size=min(known))
    elif len(known) == len(sizes) and size is not None and _product(known) != size:
        words = {"factors": " x ".join(map(str, known[:SHOWN])), "product": _product(known) or "too much"}
        here.say(rules.EXPAND_PRODUCT, here.span, [view.operand], mode=view.mode, size=size, **words)
    return here.context.errors == before


def _running_strides(first: Size, sizes: tuple[Size, ...]) -> list[Size]:
    strides = [first]
    for size in sizes[:-1]:
        last = strides[-1]
        strides.append(None if last is None or size is None else _product((last, size)))
    return strides


def _product(factors: Iterable[int]) -> Size:
    """The product of sizes; None where it leaves the range of sizes, so that it takes no time to know that."""
    product = 1
    for factor in factors:
        product *= factor
        if product > LARGEST:
            return None
    return product


def _fuse(here: Here, view: Fuse, operand: Memref) -> Memref | None:
    first, last = view.first, view.last
    if not 0 <= first < last < operand.order:
        words = {"first": first, "last": last, "name": view.operand.name, "order": operand.order}
        here.say(rules.FUSE_MODES, here.span, [view.operand], **words)
        return None
    if not _check_adjacent(here, view, operand):
        return None
    sizes = [size for size in operand.shape[first : last + 1] if size is not None]
    fused = _product(sizes) if len(sizes) == last + 1 - first else None
    shape = (*operand.shape[:first], fused, *operand.shape[last + 1 :])
    stride = (*operand.stride[: first + 1], *operand.stride[last + 1 :])
    return Memref(operand.element, shape, stride, operand.local)


def _check_adjacent(here: Here, view: Fuse, operand: Memref) -> bool:
    for mode in range(view.first, view.last):
        size, stride, following = operand.shape[mode], operand.stride[mode], operand.stride[mode + 1]
        if size is None or stride is None or following is None or size * stride == following:
            continue
        words = {"size": size, "stride": stride, "following": following}
        here.say(rules.FUSE_STRIDE, here.span, [view.operand], mode=mode, next=mode + 1, **words)
        return False
    return True


def _check_result(here: Here, view: Subview | Expand | Fuse, layout: Memref) -> None:
    """The written type is the layout, where a known stride may be written as '?'."""
    type_, span, about = view.type, here.type_span, [view.operand]
    if type_.element != layout.element:
        here.say(rules.VIEW_ELEMENT, span, about, operand=layout.element, type=type_.element)
    if type_.local != layout.local:
        here.say(rules.VIEW_SPACE, span, about, operand=_space(layout), type=_space(type_))
    if type_.order != layout.order:
        here.say(rules.VIEW_ORDER, span, about, wanted=layout.order, order=type_.order)
        return
    for mode, (wanted, size) in enumerate(zip(layout.shape, type_.shape, strict=True)):
        if size != wanted:
            words = {"wanted": write_size(wanted), "size": write_size(size)}
            here.say(rules.VIEW_SIZE, span, about, mode=mode, **words)
            return
    _check_strides(here, view, layout)


def _check_strides(here: Here, view: Subview | Expand | Fuse, layout: Memref) -> None:
    for mode, (wanted, stride) in enumerate(zip(layout.stride, view.type.stride, strict=True)):
        if stride is not None and stride != wanted:
            words = {"wanted": write_size(wanted), "stride": stride, "type": write_type(layout)}
            here.say(rules.VIEW_STRIDE, here.type_span, [view.operand], mode=mode, **words)
            return


def _space(type_: Memref) -> str:
    return "local" if type_.local else "global"
