"""Elements of tensors, and the guards around their indices."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import Context, excerpt
from lamella.lang.skriptnd.check.expressions.packs import infer_expansion, infer_integer
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind, family
from lamella.lang.skriptnd.check.lengths import Known, shown
from lamella.lang.skriptnd.nodes import Access, Bounded, Expand, Expr, Range
from lamella.lang.skriptnd.rules import lowering as rules


def infer_access(context: Context, access: Access) -> Kind:
    """`tensor[i, j..]`: an element, or a pack of elements where the tensor or an index is a pack."""
    if not context.place.accesses:
        return context.report(
            rules.ACCESS_PLACE.at(access.span, name=access.tensor, block=context.place.block)
        )
    tensor = context.lookup(access.tensor, access.span)
    if tensor.known and not tensor.tensor:
        context.report(rules.NOT_A_TENSOR.at(access.span, name=access.tensor, what=tensor))
        tensor = UNKNOWN
    tensor = _choose(context, access, tensor)
    guarded, context.place.guards = context.place.guards, True
    found = _Indices(context, access)
    for index in access.indices:
        found.add(index)
    context.place.guards = guarded
    if not tensor.known:
        return UNKNOWN
    if context.algebra.differ(tensor.rank, found.count):
        rank, count = shown(tensor.rank), shown(found.count)
        context.report(rules.RANK.at(access.span, name=access.tensor, rank=rank, count=count))
    return found.element(tensor)


def _choose(context: Context, access: Access, tensor: Kind) -> Kind:
    """The tensor that is accessed: an item of a pack where one is chosen."""
    if access.item is None:
        return tensor
    position = context.infer(access.item)
    if tensor.known and not tensor.packed:
        return context.report(rules.ITEM_OF_TENSOR.at(access.span, name=access.tensor))
    if position.known and (position.tensor or (position.type and family(position.type) != "int")):
        context.report(rules.TENSOR_INDEX.at(access.item.span, name=access.tensor, type=position.type))
        return UNKNOWN
    if not (tensor.known and position.known):
        return UNKNOWN
    chosen = tensor.maybe(position.optional)
    return chosen.pack(position.length) if position.packed else chosen.single()


class _Indices:
    """The indices of one access: how many dimensions they cover and whether they make a pack."""

    def __init__(self, context: Context, access: Access) -> None:
        self.count: Known = 0
        self._context = context
        self._access = access
        self._optional = False
        self._packed = False
        self._known = True
        self._length: Known = None

    def add(self, index: Expr | Expand | Range) -> None:
        """Count one index."""
        if isinstance(index, Range):
            self._add_range(index)
            return
        kind = self._kind_of(index)
        self._optional = self._optional or kind.optional
        if isinstance(index, Expand):
            covered = kind.length if kind.known else None
        else:
            covered = 1
            self._known = self._known and kind.known
            if kind.packed:
                self._packed, self._length = True, kind.length
        self.count = self._context.algebra.combine("+", self.count, covered)

    def _kind_of(self, index: Expr | Expand) -> Kind:
        if isinstance(index, Expand):
            kind = infer_expansion(self._context, index)
        else:
            kind = self._context.infer(index)
        if kind.known and (kind.tensor or (kind.type and family(kind.type) != "int")):
            name, found = self._access.tensor, kind if kind.tensor else kind.type
            return self._context.report(rules.TENSOR_INDEX.at(index.span, name=name, type=found))
        return kind

    def _add_range(self, index: Range) -> None:
        """A range of a dimension gives a pack of elements."""
        for part in (index.begin, index.end, index.step):
            if part is not None:
                infer_integer(self._context, part, "a range")
        self._packed, self._length = True, None
        self.count = self._context.algebra.combine("+", self.count, 1)

    def element(self, tensor: Kind) -> Kind:
        """The element that is accessed; an index that is not known may be a pack."""
        if not self._known:
            return UNKNOWN
        optional = tensor.optional or self._optional
        if tensor.packed:
            return Kind(tensor.type, optional, True, length=tensor.length)
        return Kind(tensor.type, optional, self._packed, length=self._length)


def infer_guard(context: Context, guard: Bounded) -> Kind:
    """`|index|` and `|index <> below : above|`."""
    if not context.place.guards:
        return context.report(rules.GUARD_PLACE.at(guard.span, text=excerpt(guard.index)))
    whole = context.infer(guard.index)
    for part in (guard.below, guard.above):
        if part is not None:
            kind = context.infer(part)
            _refuse_other_types(context, part, kind)
            whole = _widened(whole, kind)
    return UNKNOWN if not _refuse_other_types(context, guard.index, whole) else whole


def _refuse_other_types(context: Context, part: Expr, kind: Kind) -> bool:
    if kind.known and (kind.tensor or (kind.type and family(kind.type) != "int")):
        context.report(rules.TENSOR_INDEX.at(part.span, name=excerpt(part), type=kind.type))
        return False
    return True


def _widened(whole: Kind, kind: Kind) -> Kind:
    if not (whole.known and kind.known):
        return UNKNOWN
    if kind.packed and not whole.packed:
        return whole.maybe(kind.optional).pack(kind.length)
    return whole.maybe(kind.optional)
