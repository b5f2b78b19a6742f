"""Types and shapes of parameters: extents, pack lengths and ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from lamella.base.records import dataclass
from lamella.lang.skriptnd.check.context import DeclaredName, OperatorContext, affine_in, excerpt, names_in
from lamella.lang.skriptnd.check.kinds import (
    ABSTRACT,
    UNKNOWN,
    MaybeExtent,
    ValueKind,
    family,
    is_type,
    length_of,
    shown,
)
from lamella.lang.skriptnd.nodes import (
    Expr,
    Extent,
    ListPattern,
    Name,
    Omitted,
    Pack,
    Parameter,
    Pattern,
    Result,
    TypeSpec,
    Unzip,
)
from lamella.lang.skriptnd.rules import names, types
from lamella.lang.skriptnd.rules import shapes as rules


@dataclass(frozen=True, slots=True)
class Declaring:
    """How the shapes of a block are read: what it is called, and whether its extents declare names."""

    what: str
    declares: bool = False
    graph: bool = False
    dynamic: bool = False
    """Whether names with bounds are new: the outputs of operators whose extents only the run knows."""


def type_of(context: OperatorContext, spec: TypeSpec, name: str) -> str | None:
    """The element type of a parameter."""
    if context.generics.get(spec.name) == "":
        return None
    if spec.name in context.generics or is_type(spec.name):
        return spec.name
    if spec.name in ABSTRACT:
        context.report(types.ABSTRACT_TYPE.at(spec.span, name=name, type=spec.name))
    else:
        context.report(names.UNKNOWN_TYPE.at(spec.span, name=spec.name))
    return None


def read_length(context: OperatorContext, pack: Pack, name: str, declares: bool = False) -> ValueKind:
    """The kind of a pack length; one that is left out is the name's own symbol."""
    if pack.bound is not None:
        infer_size(context, pack.bound, name)
    if pack.length is None or isinstance(pack.length, Omitted):
        return ValueKind("int", value=length_of(f"|{name}|"))
    if declares:
        declare_new(context, pack.length, pack)
    return infer_size(context, pack.length, name)


def declare_new(context: OperatorContext, expr: Expr, pack: Pack | None = None) -> str | None:
    """Declare the name that an affine expression introduces; other new names are a finding."""
    known = _visible(context)
    new = [name for name in dict.fromkeys(names_in(expr)) if name not in known]
    if not new or any(name in context.place.hidden for name in new):
        return None
    # An input binds its extents by solving them for their new name: only an affine form of one name can be solved.
    name = affine_in(expr, known)
    if name is not None and len(new) == 1:
        if pack is not None:
            context.declare(
                name, DeclaredName(ValueKind("int", value=length_of(name)), "a pack length", expr.span)
            )
        return name
    for item in new:
        context.declare(item, DeclaredName(UNKNOWN, "an extent", expr.span))
    listed = ", ".join(f"'{item}'" for item in new)
    context.report(rules.NOT_AFFINE.at(expr.span, text=excerpt(expr), names=listed))
    return None


def _visible(context: OperatorContext) -> Collection[str]:
    return context.scope.names.keys()


def infer_size(context: OperatorContext, expr: Expr, name: str) -> ValueKind:
    """The kind of a length: one int, or a bool that keeps an item or drops it."""
    kind = context.infer(expr)
    if kind.packed:
        return context.report(types.PACK_HERE.at(expr.span, what="a length", text=excerpt(expr)))
    if kind.known and (kind.tensor or family(kind.type or "") not in ("int", "bool")):
        return context.report(rules.LENGTH_TYPE.at(expr.span, name=name, type=kind))
    return kind


class Shape:
    """Reads the extents of one parameter and adds up its rank."""

    def __init__(
        self, context: OperatorContext, parameter: Parameter, declaring: Declaring, length: MaybeExtent
    ) -> None:
        self.rank: MaybeExtent = 0
        self._context = context
        self._parameter = parameter
        self._declaring = declaring
        self._length = length

    def add(self, extent: Extent) -> None:
        """Read one extent."""
        self._check_spread(extent)
        self._check_bound(extent)
        length = self._read_length(extent)
        if isinstance(extent.value, Omitted):
            self._check_omitted(extent)
            covered = length.value if length is not None else 1
        else:
            covered = self._read_value(extent, extent.value, length)
        self.rank = self._context.algebra.combine("+", self.rank, covered)

    def _read_length(self, extent: Extent) -> ValueKind | None:
        if extent.pack is None:
            return None
        if extent.pack.length is None and isinstance(extent.value, Omitted | Name):
            text = extent.value.id if isinstance(extent.value, Name) else "~"
            known = self._context.scope.find(text)
            if known is not None and known.kind.packed:
                return ValueKind("int", value=known.kind.length)
            return read_length(self._context, extent.pack, text)
        if extent.pack.length is None:
            return ValueKind("int")
        return read_length(self._context, extent.pack, self._parameter.name, self._declaring.declares)

    def _read_value(self, extent: Extent, value: Expr, length: ValueKind | None) -> MaybeExtent:
        """How many dimensions an extent covers."""
        context, name = self._context, self._parameter.name
        if self._declaring.declares or (self._declaring.dynamic and extent.bound is not None):
            self._declare(extent, value, length)
        kind = context.infer(value)
        if not kind.known:
            return None if length is None or length.value is None else length.value
        if kind.tensor or (kind.type and family(kind.type) != "int"):
            context.report(rules.EXTENT_TYPE.at(value.span, name=name, type=kind))
            return None
        if isinstance(kind.value, int) and kind.value < 0:
            context.report(rules.NEGATIVE_EXTENT.at(value.span, name=name, value=kind.value))
        if kind.packed and extent.pack is None and not extent.spread:
            context.report(rules.EXTENT_PACK.at(value.span, name=name, text=excerpt(value)))
            return kind.length
        return self._covered(extent, kind, length)

    def _covered(self, extent: Extent, kind: ValueKind, length: ValueKind | None) -> MaybeExtent:
        if length is None:
            # An extent that is null vanishes, unless the whole tensor is null with it.
            return None if kind.optional and not self._parameter.type.optional else 1
        if not kind.packed:
            if extent.pack is not None and extent.pack.length is None:
                text = excerpt(extent.value)
                self._context.report(types.EXPANSION_LENGTH.at(extent.span, text=text))
                return None
            return length.value
        if self._context.algebra.differ(kind.length, length.value) and length.type == "int":
            left, right = shown(kind.length), shown(length.value)
            text = excerpt(extent.value)
            self._context.report(types.EXPANSION_PLACE.at(extent.span, text=text, length=left, wanted=right))
        if kind.optional and not self._parameter.type.optional:
            return None
        return kind.length if length.value is None or self._is_open(extent) else length.value

    def _is_open(self, extent: Extent) -> bool:
        return extent.pack is not None and extent.pack.length is None

    def _declare(self, extent: Extent, value: Expr, length: ValueKind | None) -> None:
        """Give the new name in an extent its kind."""
        name = declare_new(self._context, value)
        if name is None:
            return
        optional = self._parameter.type.optional
        if length is not None and not length.known:
            kind = UNKNOWN
        elif extent.spread:
            kind = ValueKind("int", optional, True, length=self._length)
        elif length is not None and length.type == "bool":
            kind = ValueKind("int", True, value=length_of(name))
        elif length is not None:
            known = length.value if length.value is not None else length_of(f"|{name}|")
            kind = ValueKind("int", optional, True, length=known)
        else:
            kind = ValueKind("int", optional, value=length_of(name))
        self._context.declare(name, DeclaredName(kind, "an extent", value.span))

    def _check_spread(self, extent: Extent) -> None:
        if not extent.spread:
            return
        if extent.pack is not None:
            self._context.report(rules.SPREAD_PACK.at(extent.span, text=excerpt(extent.value)))
        elif self._parameter.type.pack is None:
            name = self._parameter.name
            self._context.report(rules.SPREAD_SINGLE.at(extent.span, text=excerpt(extent.value), name=name))

    def _check_bound(self, extent: Extent) -> None:
        if extent.bound is None:
            return
        infer_size(self._context, extent.bound, self._parameter.name)
        if not isinstance(extent.value, Name | Omitted):
            self._context.report(rules.BOUND_NAME.at(extent.span, text=excerpt(extent.value)))
        elif isinstance(extent.value, Name):
            self._check_name(extent, extent.value.id, extent.bound)

    def _check_name(self, extent: Extent, name: str, bound: Expr) -> None:
        """A bound is said of a new name, or again as it was said before."""
        entry, earlier = self._context.scope.find(name), self._context.bounds.setdefault(name, bound)
        if entry is not None and entry.what == "an attribute":
            self._context.report(rules.BOUND_STATIC.at(extent.span, name=name))
        elif earlier != bound:
            first, second = excerpt(earlier), excerpt(bound)
            self._context.report(names.BOUND_DIFFERS.at(extent.span, name=name, first=first, second=second))

    def _check_omitted(self, extent: Extent) -> None:
        what = self._declaring.what
        if what == "result" or (self._declaring.graph and what in ("input", "output")):
            return
        if what == "output" and extent.bound is not None:
            return
        repair = "write ~|BOUND" if what == "output" else "give it a name"
        self._context.report(
            rules.OMITTED_EXTENT.at(extent.span, what=what, name=self._parameter.name, repair=repair)
        )


def read_tensor(context: OperatorContext, parameter: Parameter, declaring: Declaring) -> ValueKind:
    """The kind of a tensor parameter."""
    spec = parameter.type
    name = type_of(context, spec, parameter.name)
    length = _pack_length(context, parameter, declaring)
    if spec.shape is None:
        if not declaring.graph or declaring.what not in ("input", "output"):
            context.report(rules.INPUT_SHAPE.at(parameter.span, what=declaring.what, name=parameter.name))
        rank: MaybeExtent = None
    else:
        shape = Shape(context, parameter, declaring, length)
        for extent in spec.shape:
            shape.add(extent)
        rank = shape.rank
    return ValueKind(name, spec.optional, spec.pack is not None, True, length, rank)


def _pack_length(context: OperatorContext, parameter: Parameter, declaring: Declaring) -> MaybeExtent:
    pack = parameter.type.pack
    if pack is None:
        return None
    if pack.length is None and not declaring.declares and not declaring.graph:
        context.report(rules.PACK_LENGTH_MISSING.at(parameter.span, name=parameter.name))
    declares = declaring.declares or (declaring.dynamic and pack.bound is not None)
    return read_length(context, pack, parameter.name, declares).value


# --- what stands on the left of `=`: a name, or a list that takes a pack apart ------------------------------


class TakenResult(NamedTuple):
    """A name of a pattern with the kind of what it gets."""

    result: Result
    kind: ValueKind


def names_of(pattern: Pattern) -> Iterator[Result]:
    """The names of a pattern."""
    if isinstance(pattern, Result):
        yield pattern
    elif isinstance(pattern, ListPattern):
        for item in pattern.items:
            if isinstance(item, Unzip):
                yield from item.items
            elif isinstance(item, Result):
                yield item


def pack_of(result: Result) -> Pack | None:
    """What is said of the length of a result."""
    if result.pack is not None:
        return result.pack
    return result.type.pack if result.type is not None else None


def take(context: OperatorContext, pattern: Pattern, kind: ValueKind) -> list[TakenResult]:
    """The names of a pattern with what each gets of a value; a pattern that does not fit is a finding."""
    if isinstance(pattern, Omitted):
        return []
    if isinstance(pattern, Result):
        return [TakenResult(pattern, _hinted(context, pattern, kind))]
    return _take_apart(context, pattern, kind)


def _hinted(context: OperatorContext, result: Result, kind: ValueKind) -> ValueKind:
    """A pack with the length that is said of it."""
    pack = pack_of(result)
    if pack is None or pack.length is None or isinstance(pack.length, Omitted):
        return kind
    length = read_length(context, pack, result.name)
    if not kind.known or not kind.packed or length.value is None:
        return kind
    if context.algebra.differ(length.value, kind.length):
        left, right = shown(length.value), shown(kind.length)
        context.report(rules.HINT_LENGTH.at(result.span, name=result.name, left=left, right=right))
    return kind.pack(length.value if kind.length is None else kind.length)


def _take_apart(context: OperatorContext, pattern: ListPattern, kind: ValueKind) -> list[TakenResult]:
    lengths = [_length_of(context, item) for item in pattern.items]
    flexible = [item for item, length in zip(pattern.items, lengths, strict=True) if length is None]
    total: MaybeExtent = 0
    for length in lengths:
        total = context.algebra.combine("+", total, length.value if length is not None else 0)
    if len(flexible) > 1:
        context.report(rules.PATTERN_FLEXIBLE.at(pattern.span, count=len(flexible)))
    elif not flexible and context.algebra.differ(total, kind.length):
        left, right = shown(total), shown(kind.length)
        context.report(rules.PATTERN_LENGTH.at(pattern.span, left=left, right=right))
    rest = context.algebra.combine("-", kind.length, total) if len(flexible) == 1 else None
    taken: list[TakenResult] = []
    for item, length in zip(pattern.items, lengths, strict=True):
        taken += _taken(context, item, kind, rest if length is None else length.value)
    return taken


def _length_of(context: OperatorContext, item: Result | Unzip | Omitted) -> ValueKind | None:
    """How many items a part of a pattern takes; None where that is open."""
    if isinstance(item, Omitted):
        return ValueKind("int", value=1)
    pack = item.pack if isinstance(item, Unzip) else pack_of(item)
    if pack is None:
        return ValueKind("int", value=1)
    if pack.length is None or isinstance(pack.length, Omitted):
        return None
    name = item.name if isinstance(item, Result) else "(…)"
    length = read_length(context, pack, name)
    if isinstance(item, Unzip):
        return ValueKind("int", value=context.algebra.combine("*", length.value, len(item.items)))
    return length


def _taken(
    context: OperatorContext, item: Result | Unzip | Omitted, kind: ValueKind, length: MaybeExtent
) -> Iterator[TakenResult]:
    if isinstance(item, Omitted):
        return
    if isinstance(item, Unzip):
        each = context.algebra.combine("/", length, len(item.items))
        for name in item.items:
            yield TakenResult(name, kind.pack(each) if kind.known else UNKNOWN)
    elif not kind.known:
        yield TakenResult(item, UNKNOWN)
    elif pack_of(item) is None:
        yield TakenResult(item, kind.single())
    else:
        yield TakenResult(item, kind.pack(length if length is not None else length_of(f"|{item.name}|")))
