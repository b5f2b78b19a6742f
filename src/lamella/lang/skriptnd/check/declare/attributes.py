"""Attributes: their types, lengths and defaults, and in which order defaults can be evaluated."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator

from lamella.lang.skriptnd.affine import read_affine
from lamella.lang.skriptnd.check.context import Context, Entry, excerpt
from lamella.lang.skriptnd.check.declare.shapes import infer_size, type_of
from lamella.lang.skriptnd.check.declare.usings import infer_value
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind, agrees, family
from lamella.lang.skriptnd.check.lengths import Known, length_of, number_of, truth_of
from lamella.lang.skriptnd.check.names import affine_in, names_in
from lamella.lang.skriptnd.nodes import Expr, Omitted, Parameter
from lamella.lang.skriptnd.rules import shapes as rules
from lamella.lang.skriptnd.rules import types


def declare_attributes(context: Context, attributes: list[Parameter]) -> None:
    """Declare attributes; lengths that depend on other things are read later."""
    for item in attributes:
        if item.type.shape is not None:
            context.report(rules.ATTRIBUTE_TENSOR.at(item.span, name=item.name))
        if item.type.rank is not None:
            context.report(rules.RANK_PLACE.at(item.span, what="attribute", name=item.name))
        if item.type.optional and item.value is not None:
            context.report(rules.OPTIONAL_DEFAULT.at(item.span, what="attribute", name=item.name))
        if item.bounds:
            context.report(rules.INDEX_PLACE.at(item.bounds[0].span, what="attribute", name=item.name))
        context.declare(item.name, Entry(_kind_of(context, item), "an attribute", item.span))


def _kind_of(context: Context, item: Parameter) -> Kind:
    name = type_of(context, item.type, item.name)
    if name is None:
        return UNKNOWN
    if item.type.pack is not None:
        return Kind(name, item.type.optional, True, length=length_of(f"|{item.name}|"))
    value: Known = None
    if family(name) == "int":
        value = number_of(item.name)
    elif name == "bool":
        value = truth_of(item.name)
    return Kind(name, item.type.optional, value=value)


def is_plain(item: Parameter) -> bool:
    """Whether an attribute is known before the inputs: single, not optional, without a default to work out."""
    deferred = item.value is not None and next(names_in(item.value), None) is not None
    return item.type.pack is None and not item.type.optional and not deferred


def read_lengths(context: Context, attributes: list[Parameter]) -> None:
    """Read the lengths of packed attributes; a new name in one is declared by it."""
    for item in attributes:
        pack = item.type.pack
        if pack is None or pack.length is None or isinstance(pack.length, Omitted):
            continue
        name = affine_in(pack.length, context.scope.names)
        if name is not None:
            entry = Entry(Kind("int", value=length_of(name)), "a pack length", pack.length.span)
            context.declare(name, entry)
    for item in attributes:
        pack = item.type.pack
        if pack is not None and pack.length is not None and not isinstance(pack.length, Omitted):
            _read_length(context, item, pack.length)


def _read_length(context: Context, item: Parameter, length: Expr) -> None:
    kind, entry = infer_size(context, length, item.name), context.scope.names[item.name]
    if kind.known and kind.type == "bool":
        context.report(rules.LENGTH_TYPE.at(length.span, name=item.name, type=kind))
    elif kind.known and kind.value is not None and entry.kind.packed:
        context.scope.names[item.name] = Entry(entry.kind.pack(kind.value), entry.what, entry.span)


def check_defaults(context: Context, attributes: list[Parameter], known: Collection[str]) -> None:
    """Defaults have the type of their attributes and can be evaluated once the inputs are bound."""
    uniform: set[str] = set()
    for item in attributes:
        if item.value is None:
            continue
        kind, declared = infer_value(context, item.value, "a default"), context.scope.names[item.name].kind
        if not agrees(kind, declared):
            context.report(
                types.DEFAULT_TYPE.at(item.value.span, name=item.name, left=declared.type, right=kind.type)
            )
        elif kind.packed and declared.known and not declared.packed:
            what = f"the default of '{item.name}'"
            context.report(types.PACK_HERE.at(item.value.span, what=what, text=excerpt(item.value)))
        elif context.algebra.differ(kind.length, declared.length) and kind.packed:
            _report_length(context, item, kind, declared)
        if kind.known and not kind.packed and item.type.pack is not None:
            uniform.add(item.name)
    for item, cause in _unresolved(attributes, known, uniform):
        context.report(rules.DEFAULT_UNKNOWN.at(item.span, name=item.name, cause=cause))


def _report_length(context: Context, item: Parameter, kind: Kind, declared: Kind) -> None:
    left, right = str(declared.length), str(kind.length)
    context.report(rules.HINT_LENGTH.at(item.span, name=item.name, left=left, right=right))


class _Needs:
    """The deferred attributes that still wait for names, by name."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = set(known)
        self._queue = deque(self._known)
        self._waiting: dict[str, list[str]] = {}
        self._missing: dict[str, set[str]] = {}
        self._gives: dict[str, list[str]] = {}

    def add(self, name: str, needs: Iterable[str], gives: list[str]) -> None:
        """An attribute that is known when others are, and makes more names known."""
        missing = {item for item in needs if item not in self._known}
        self._missing[name], self._gives[name] = missing, [name, *gives]
        for item in missing:
            self._waiting.setdefault(item, []).append(name)
        if not missing:
            self._queue.extend(self._gives[name])

    def left(self) -> dict[str, set[str]]:
        """What stays unknown, with the names it waits for."""
        while self._queue:
            name = self._queue.popleft()
            self._known.add(name)
            for waiting in self._waiting.pop(name, ()):
                missing = self._missing[waiting]
                missing.discard(name)
                if not missing:
                    self._queue.extend(self._gives[waiting])
        return {name: missing for name, missing in self._missing.items() if missing}


def _unresolved(
    attributes: list[Parameter], known: Collection[str], uniform: set[str]
) -> Iterator[tuple[Parameter, str]]:
    """The attributes whose defaults cannot be evaluated, with the reason."""
    needs = _Needs(known)
    declared = {item.name for item in attributes} | {
        name for item in attributes for name in names_in(item.type.pack and item.type.pack.length)
    }
    for item in attributes:
        length = _length_name(item)
        gives = [length] if length is not None and item.name not in uniform else []
        wanted = [name for name in names_in(item.value) if name in declared]
        if item.name in uniform:
            wanted += names_in(item.type.pack and item.type.pack.length)
        needs.add(item.name, wanted, gives)
    left = needs.left()
    for item in attributes:
        if item.name in uniform and (item.type.pack is None or item.type.pack.length is None):
            yield item, "it is one value, and nothing says how often"
        elif item.name in left and item.value is not None:
            waits = ", ".join(f"'{name}'" for name in sorted(left[item.name])[:3])
            yield item, f"{waits} is not known without it"


def _length_name(item: Parameter) -> str | None:
    if item.type.pack is None:
        return None
    affine = read_affine(item.type.pack.length)
    return affine.name if affine is not None else None
