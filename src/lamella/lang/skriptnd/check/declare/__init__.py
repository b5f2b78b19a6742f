"""The declaring blocks of an operator, in the order in which they depend on each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator

from lamella.lang.skriptnd.affine import read_affine, symbol_of
from lamella.lang.skriptnd.check.context import Context, Entry, Place, excerpt
from lamella.lang.skriptnd.check.declare.patterns import names_of
from lamella.lang.skriptnd.check.declare.shapes import Declaring, infer_size, read_tensor, type_of
from lamella.lang.skriptnd.check.declare.tensors import declare_tensors
from lamella.lang.skriptnd.check.declare.usings import (
    check_assertions,
    declare_usings,
    early_usings,
    infer_value,
)
from lamella.lang.skriptnd.check.kinds import ABSTRACT, UNKNOWN, Kind, agrees, belongs, family, is_type
from lamella.lang.skriptnd.check.lengths import Known, length_of, number_of, truth_of
from lamella.lang.skriptnd.check.names import affine_in, names_in
from lamella.lang.skriptnd.nodes import (
    Assertion,
    Dtype,
    Expr,
    Extent,
    Name,
    Omitted,
    Operator,
    Parameter,
    Using,
)
from lamella.lang.skriptnd.rules import names, types
from lamella.lang.skriptnd.rules import shapes as rules

# --- attributes: their types, lengths and defaults, and in which order defaults can be evaluated ------------


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
    form = read_affine(item.type.pack.length)
    return symbol_of(form) if form is not None else None


# --- inputs: the order in which their shapes can be bound (specification 2.6.1), and the names they ---------


class Binding:
    """Finds the binding order: an input comes next when at most one length in its shape is open."""

    def __init__(self, inputs: list[Parameter], known: Iterable[str]) -> None:
        self._inputs = inputs
        self._known = set(known)
        self._waiting: dict[str, list[Parameter]] = {}
        self._bound: set[str] = set()
        self.open: dict[str, list[Extent]] = {}
        """The packs of each input whose lengths were not known when it was last asked for."""

    def order(self) -> list[Parameter]:
        """The inputs that can be bound, in their order; optional ones come last."""
        ordered: list[Parameter] = []
        for optional in (False, True):
            # What an optional input would tell is not known in every call: the others do not wait for it.
            self._waiting.clear()
            ordered += self._order([item for item in self._inputs if item.type.optional is optional])
        return ordered

    def _order(self, inputs: list[Parameter]) -> Iterator[Parameter]:
        queue = deque(inputs)
        while queue:
            item = queue.popleft()
            if item.name in self._bound:
                continue
            self.open[item.name] = self._open_lengths(item)
            if len(self.open[item.name]) > 1:
                for name in dict.fromkeys(names_in(item.type)):
                    self._waiting.setdefault(name, []).append(item)
                continue
            self._bound.add(item.name)
            for name in _names_of(item):
                if name not in self._known:
                    self._known.add(name)
                    queue.extend(self._waiting.pop(name, ()))
            yield item

    def _open_lengths(self, item: Parameter) -> list[Extent]:
        """The packs of a shape whose lengths are not known when the input is bound."""
        return [extent for extent in item.type.shape or () if self._is_open(extent, item.type.rank)]

    def _is_open(self, extent: Extent, rank: str | None) -> bool:
        if extent.pack is None or isinstance(extent.pack.length, Omitted):
            return False
        if extent.pack.length is not None:
            return not all(name in self._known or name == rank for name in names_in(extent.pack.length))
        return not (isinstance(extent.value, Name) and extent.value.id in self._known)


def _names_of(item: Parameter) -> Iterator[str]:
    yield from names_in(item.type)
    if item.type.rank is not None:
        yield item.type.rank
    yield item.name


def declare_inputs(context: Context, inputs: list[Parameter], known: Iterable[str], graph: bool) -> None:
    """Declare inputs and the names of their shapes, in their binding order."""
    for item in inputs:
        context.declare(item.name, Entry(Kind(None, tensor=True), "an input", item.span))
    binding = Binding(inputs, known)
    ordered = binding.order()
    bound = {item.name for item in ordered}
    left = [item for item in inputs if item.name not in bound]
    declaring = Declaring("input", True, graph)
    for item in [*ordered, *left]:
        earlier = len(context.findings)
        _declare_input(context, item, declaring)
        if item.name not in bound and len(context.findings) == earlier:
            _report_open(context, item, binding.open[item.name])


def _report_open(context: Context, item: Parameter, extents: list[Extent]) -> None:
    """Say that lengths are not known, unless an earlier finding is why."""
    lengths = [name for extent in extents for name in names_in(extent.pack and extent.pack.length)]
    entries = [context.scope.find(name) for name in lengths]
    if all(entry is not None and entry.kind.known for entry in entries):
        packs = ", ".join(f"'{excerpt(extent.value)}'" for extent in extents[:8])
        context.report(rules.AMBIGUOUS.at(item.span, name=item.name, packs=packs))


def _declare_input(context: Context, item: Parameter, declaring: Declaring) -> None:
    if item.type.rank is not None:
        kind = Kind("int", item.type.optional, value=length_of(item.type.rank))
        context.declare(item.type.rank, Entry(kind, "a rank", item.type.span))
    kind = read_tensor(context, item, declaring)
    entry = context.scope.names[item.name]
    if entry.span == item.span:
        context.scope.names[item.name] = Entry(kind, "an input", item.span)
    if item.bounds:
        context.report(rules.INDEX_PLACE.at(item.bounds[0].span, what="input", name=item.name))


def check_input_defaults(context: Context, inputs: list[Parameter]) -> None:
    """Defaults of inputs are values of their type."""
    for item in inputs:
        if item.value is None:
            continue
        if item.type.optional:
            context.report(rules.OPTIONAL_DEFAULT.at(item.span, what="input", name=item.name))
        kind, declared = infer_value(context, item.value, "a default"), context.scope.names[item.name].kind
        if not agrees(kind, declared):
            context.report(
                types.DEFAULT_TYPE.at(item.value.span, name=item.name, left=declared.type, right=kind.type)
            )
        elif kind.packed and declared.known and not declared.packed:
            text = excerpt(item.value)
            context.report(
                types.PACK_HERE.at(item.value.span, what=f"the default of '{item.name}'", text=text)
            )
        elif kind.optional:
            what = f"the default of '{item.name}'"
            context.report(types.OPTIONAL_HERE.at(item.value.span, text=excerpt(item.value), what=what))


def declare(context: Context, operator: Operator) -> None:
    """Declare everything that the blocks before `@lower` and `@compose` declare."""
    _declare_types(context, operator)
    attributes = list(operator.parameters("attrib"))
    inputs = list(operator.parameters("input"))
    usings = [item for item in operator.items("using") if isinstance(item, Using)]
    plain = {item.name for item in attributes if is_plain(item)}
    early = early_usings(usings, _known_later(operator) - plain)
    hidden = frozenset(result.name for item in usings for result in names_of(item.target))
    hidden -= {item.name for item in (*attributes, *inputs)}
    with context.at(Place("attrib", hidden=hidden)):
        declare_attributes(context, attributes)
    with context.at(Place("using")):
        declare_usings(context, early)
    known = plain | {result.name for item in early for result in names_of(item.target)}
    with context.at(Place("input", hidden=hidden - known)):
        declare_inputs(context, inputs, known, operator.graph)
    with context.at(Place("attrib", hidden=hidden)):
        bound = {*known, *(context.scope.names.keys() - {item.name for item in attributes})}
        read_lengths(context, attributes)
        check_defaults(context, attributes, bound)
    with context.at(Place("input", hidden=hidden - known)):
        check_input_defaults(context, inputs)
    _declare_rest(context, operator, usings, {id(item) for item in early})


def _known_later(operator: Operator) -> set[str]:
    """The names that attributes, inputs and their shapes declare."""
    items = (*operator.parameters("attrib"), *operator.parameters("input"))
    ranks = {item.type.rank for item in items if item.type.rank is not None}
    return {item.name for item in items} | ranks | {name for item in items for name in names_in(item.type)}


def _declare_types(context: Context, operator: Operator) -> None:
    """The generic types with what restricts them."""
    for item in operator.items("dtype"):
        if not isinstance(item, Dtype):
            continue
        if item.name in context.generics:
            context.report(names.DUPLICATE.at(item.span, name=item.name, what="a generic type"))
            continue
        if is_type(item.name):
            context.report(names.TYPE_NAME_TAKEN.at(item.span, name=item.name))
        if item.base not in ABSTRACT:
            context.report(types.DTYPE_BASE.at(item.span, name=item.name, type=item.base))
        elif item.default is not None and not (is_type(item.default) and belongs(item.default, item.base)):
            context.report(
                types.DTYPE_DEFAULT.at(item.span, name=item.name, type=item.default, base=item.base)
            )
        context.generics[item.name] = item.base if item.base in ABSTRACT else ""


def _declare_rest(context: Context, operator: Operator, usings: list[Using], done: set[int]) -> None:
    with context.at(Place("using")):
        declare_usings(context, usings, done)
    with context.at(Place("constant")):
        declare_tensors(context, list(operator.parameters("constant")), "constant")
    with context.at(Place("variable")):
        declare_tensors(context, list(operator.parameters("variable")), "variable")
    with context.at(Place("output")):
        declare_tensors(context, list(operator.parameters("output")), "output", operator.graph)
    with context.at(Place("assert")):
        assertions = [item for item in operator.items("assert") if isinstance(item, Assertion)]
        check_assertions(context, assertions)
