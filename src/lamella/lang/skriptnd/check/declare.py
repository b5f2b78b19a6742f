"""The declaring blocks of an operator, in the order in which they depend on each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from lamella.lang.skriptnd.affine import read_affine, symbol_of
from lamella.lang.skriptnd.check.context import (
    CheckedBlock,
    DeclaredName,
    OperatorContext,
    affine_in,
    excerpt,
    names_in,
)
from lamella.lang.skriptnd.check.expressions import refuse_tensor
from lamella.lang.skriptnd.check.kinds import (
    ABSTRACT,
    UNKNOWN,
    MaybeExtent,
    ValueKind,
    agrees,
    belongs,
    family,
    is_type,
    length_of,
    number_of,
    shown,
    truth_of,
)
from lamella.lang.skriptnd.check.shapes import (
    Declaring,
    infer_size,
    names_of,
    pack_of,
    read_tensor,
    take,
    type_of,
)
from lamella.lang.skriptnd.nodes import (
    Assertion,
    Bound,
    Dtype,
    Expr,
    Extent,
    ListPattern,
    Name,
    Omitted,
    Operator,
    Parameter,
    Using,
)
from lamella.lang.skriptnd.rules import lowering, names, types
from lamella.lang.skriptnd.rules import shapes as shapes_rules
from lamella.lang.skriptnd.rules import types as rules

# --- helper symbols and assertions --------------------------------------------------------------------------


def early_usings(usings: Sequence[Using], later: Collection[str]) -> list[Using]:
    """The helper symbols known before the inputs are bound: those that depend on nothing that is known later."""
    waiting = {*later, *(result.name for item in usings for result in names_of(item.target))}
    early = []
    for item in usings:
        if not any(name in waiting for name in names_in(item.value)):
            waiting.difference_update(result.name for result in names_of(item.target))
            early.append(item)
    return early


def declare_usings(context: OperatorContext, usings: Sequence[Using], done: Collection[int] = ()) -> None:
    """Declare helper symbols in their order, each seeing those before it; `done` are ids of those already declared."""
    pending = {
        result.name: item
        for item in reversed(usings)
        for result in names_of(item.target)
        if id(item) in done or result.name not in context.scope.names
    }
    context.place.later = pending.keys()
    for item in usings:
        taken = [] if id(item) in done else take(context, item.target, _value_of(context, item))
        for result in names_of(item.target):
            pending.pop(result.name, None)
        for result, kind in taken:
            entry = DeclaredName(_named(result.name, kind), "a helper symbol", result.span)
            context.declare(result.name, entry)
    context.place.later = ()


def _value_of(context: OperatorContext, item: Using) -> ValueKind:
    kind = infer_value(context, item.value, "@using")
    if kind.type == "" and not isinstance(item.target, Omitted):
        return context.report(rules.UNTYPED_LIST.at(item.span, name=excerpt(item.value)))
    takes_pack = isinstance(item.target, ListPattern) or (
        not isinstance(item.target, Omitted) and pack_of(item.target) is not None
    )
    if kind.known and not kind.packed and takes_pack:
        what = "a pattern" if isinstance(item.target, ListPattern) else "a length"
        return context.report(rules.NOT_A_PACK.at(item.span, what=what, text=excerpt(item.value)))
    return kind


def infer_value(context: OperatorContext, expr: Expr, place: str) -> ValueKind:
    """The kind of an expression that is known before the run."""
    kind = context.infer(expr)
    return refuse_tensor(context, expr, place) if kind.tensor else kind


def _named(name: str, kind: ValueKind) -> ValueKind:
    """A value with a name: what is not known of it is called by that name."""
    if not kind.known:
        return UNKNOWN
    if kind.packed:
        return kind.pack(length_of(f"|{name}|") if kind.length is None else kind.length)
    value: MaybeExtent = kind.value
    if value is None and family(kind.type or "") == "int":
        value = number_of(name)
    elif value is None and kind.type == "bool":
        value = truth_of(name)
    return ValueKind(kind.type, kind.optional, value=value)


def check_assertions(context: OperatorContext, assertions: Sequence[Assertion]) -> None:
    """Conditions are bool, single or packed; what is printed are values."""
    for item in assertions:
        kind = infer_value(context, item.condition, "@assert")
        if kind.known and kind.type not in ("bool", ""):
            context.report(rules.NOT_BOOL.at(item.condition.span, what="the assertion", type=kind.type))
        if item.message is not None:
            context.infer(item.message)
        for printed in item.values:
            infer_value(context, printed.value, "@assert")


# --- constants, variables and outputs: tensors whose shapes are made of declared names ----------------------


def declare_tensors(
    context: OperatorContext, items: Sequence[Parameter], what: str, graph: bool = False
) -> None:
    """Declare the constants, variables or outputs of an operator."""
    article = "an" if what == "output" else "a"
    for item in items:
        kind = read_tensor(context, item, Declaring(what, graph=graph, dynamic=what == "output"))
        context.declare(item.name, DeclaredName(kind, f"{article} {what}", item.span))
        _check_form(context, item, what)
        if what == "constant":
            _check_value(context, item, kind)


def _check_form(context: OperatorContext, item: Parameter, what: str) -> None:
    if item.type.rank is not None:
        context.report(shapes_rules.RANK_PLACE.at(item.span, what=what, name=item.name))
    if item.type.optional:
        context.report(shapes_rules.NEVER_NULL.at(item.span, what=what, name=item.name))
    if item.bounds and what != "constant":
        context.report(shapes_rules.INDEX_PLACE.at(item.bounds[0].span, what=what, name=item.name))
    if item.value is not None and what == "variable":
        context.report(shapes_rules.VARIABLE_VALUE.at(item.value.span, name=item.name))
    if item.value is not None and what == "output":
        context.report(shapes_rules.OUTPUT_VALUE.at(item.value.span, name=item.name))


def _check_value(context: OperatorContext, item: Parameter, declared: ValueKind) -> None:
    if item.value is None:
        context.report(shapes_rules.CONSTANT_VALUE.at(item.span, name=item.name))
        return
    with context.inner():
        count = declare_indices(context, item.bounds)
        kind = infer_value(context, item.value, "@constant")
    if item.bounds and context.algebra.differ(count, declared.rank):
        rank, covered = shown(declared.rank), shown(count)
        context.report(shapes_rules.INDEX_COUNT.at(item.span, name=item.name, rank=rank, count=covered))
    if not agrees(kind, declared):
        context.report(
            types.DEFAULT_TYPE.at(item.value.span, name=item.name, left=declared.type, right=kind.type)
        )
    elif kind.known and kind.optional:
        what = f"constant '{item.name}'"
        context.report(types.OPTIONAL_HERE.at(item.value.span, text=excerpt(item.value), what=what))
    elif kind.known:
        _check_count(context, item, declared, kind)


def _check_count(context: OperatorContext, item: Parameter, declared: ValueKind, kind: ValueKind) -> None:
    """A list gives every element of a constant its value, or every constant of a pack."""
    value = item.value
    if value is None:
        return
    if declared.packed and not kind.packed:
        context.report(shapes_rules.CONSTANT_PACK.at(value.span, name=item.name))
    elif kind.packed and item.bounds:
        text = excerpt(value)
        context.report(types.PACK_HERE.at(value.span, what=f"each element of '{item.name}'", text=text))
    elif kind.packed:
        wanted = declared.length if declared.packed else _volume(context, item)
        if context.algebra.differ(wanted, kind.length):
            left, right = shown(wanted), shown(kind.length)
            context.report(
                shapes_rules.CONSTANT_LENGTH.at(value.span, name=item.name, left=left, right=right)
            )


def _volume(context: OperatorContext, item: Parameter) -> MaybeExtent:
    volume: MaybeExtent = 1
    for extent in item.type.shape or ():
        if extent.pack is not None or isinstance(extent.value, Omitted):
            return None
        entry = context.infer(extent.value)
        volume = context.algebra.combine("*", volume, entry.value)
    return volume


def declare_indices(context: OperatorContext, bounds: Sequence[Bound]) -> MaybeExtent:
    """Declare index symbols with their limits; how many dimensions they cover is returned."""
    count: MaybeExtent = 0
    for bound in bounds:
        kind = _limit_of(context, bound.limit)
        index = ValueKind("int", False, kind.packed, length=kind.length) if kind.known else UNKNOWN
        declare_index(context, bound.index, index, bound)
        covered = None if not kind.known else kind.length if kind.packed else 1
        count = context.algebra.combine("+", count, covered)
    return count


def _limit_of(context: OperatorContext, limit: Expr) -> ValueKind:
    kind = context.infer(limit)
    if kind.tensor or (kind.known and kind.type and family(kind.type) != "int"):
        found = kind if kind.tensor else kind.type
        return context.report(types.INTEGER_NEEDED.at(limit.span, what="a limit", type=found))
    return kind


def declare_index(context: OperatorContext, name: str, kind: ValueKind, node: Bound | Expr) -> None:
    """Declare a name that is local to a formula; it may not hide another one."""
    earlier = context.scope.find(name)
    if earlier is not None:
        context.report(lowering.INDEX_TWICE.at(node.span, name=name, what=earlier.what))
    if not kind.packed and kind.known and kind.value is None and family(kind.type or "") == "int":
        kind = ValueKind("int", kind.optional, value=number_of(name))
    context.scope.names[name] = DeclaredName(kind, "an index symbol", node.span)


# --- attributes: their types, lengths and defaults, and in which order defaults can be evaluated ------------


def declare_attributes(context: OperatorContext, attributes: list[Parameter]) -> None:
    """Declare attributes; lengths that depend on other things are read later."""
    for item in attributes:
        if item.type.shape is not None:
            context.report(shapes_rules.ATTRIBUTE_TENSOR.at(item.span, name=item.name))
        if item.type.rank is not None:
            context.report(shapes_rules.RANK_PLACE.at(item.span, what="attribute", name=item.name))
        if item.type.optional and item.value is not None:
            context.report(shapes_rules.OPTIONAL_DEFAULT.at(item.span, what="attribute", name=item.name))
        if item.bounds:
            context.report(shapes_rules.INDEX_PLACE.at(item.bounds[0].span, what="attribute", name=item.name))
        context.declare(item.name, DeclaredName(_kind_of(context, item), "an attribute", item.span))


def _kind_of(context: OperatorContext, item: Parameter) -> ValueKind:
    name = type_of(context, item.type, item.name)
    if name is None:
        return UNKNOWN
    if item.type.pack is not None:
        return ValueKind(name, item.type.optional, True, length=length_of(f"|{item.name}|"))
    value: MaybeExtent = None
    if family(name) == "int":
        value = number_of(item.name)
    elif name == "bool":
        value = truth_of(item.name)
    return ValueKind(name, item.type.optional, value=value)


def is_plain(item: Parameter) -> bool:
    """Whether an attribute is known before the inputs: single, not optional, without a default to work out."""
    deferred = item.value is not None and next(names_in(item.value), None) is not None
    return item.type.pack is None and not item.type.optional and not deferred


def read_lengths(context: OperatorContext, attributes: list[Parameter]) -> None:
    """Read the lengths of packed attributes; a new name in one is declared by it."""
    # All new names first: a length may use one that a later attribute declares.
    for item in attributes:
        pack = item.type.pack
        if pack is None or pack.length is None or isinstance(pack.length, Omitted):
            continue
        name = affine_in(pack.length, context.scope.names)
        if name is not None:
            entry = DeclaredName(ValueKind("int", value=length_of(name)), "a pack length", pack.length.span)
            context.declare(name, entry)
    for item in attributes:
        pack = item.type.pack
        if pack is not None and pack.length is not None and not isinstance(pack.length, Omitted):
            _read_length(context, item, pack.length)


def _read_length(context: OperatorContext, item: Parameter, length: Expr) -> None:
    kind, entry = infer_size(context, length, item.name), context.scope.names[item.name]
    if kind.known and kind.type == "bool":
        context.report(shapes_rules.LENGTH_TYPE.at(length.span, name=item.name, type=kind))
    elif kind.known and kind.value is not None and entry.kind.packed:
        context.scope.names[item.name] = DeclaredName(entry.kind.pack(kind.value), entry.what, entry.span)


def check_defaults(context: OperatorContext, attributes: list[Parameter], known: Collection[str]) -> None:
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
        context.report(shapes_rules.DEFAULT_UNKNOWN.at(item.span, name=item.name, cause=cause))


def _report_length(context: OperatorContext, item: Parameter, kind: ValueKind, declared: ValueKind) -> None:
    left, right = str(declared.length), str(kind.length)
    context.report(shapes_rules.HINT_LENGTH.at(item.span, name=item.name, left=left, right=right))


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


# --- inputs: the order in which their shapes are bound (specification 2.6.1), and their names ---------------


class BindingOrder:
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
            # What an optional input would bind is not known in every call: the others do not wait for it.
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


def declare_inputs(
    context: OperatorContext, inputs: list[Parameter], known: Iterable[str], graph: bool
) -> None:
    """Declare inputs and the names of their shapes, in their binding order."""
    for item in inputs:
        context.declare(item.name, DeclaredName(ValueKind(None, tensor=True), "an input", item.span))
    binding = BindingOrder(inputs, known)
    ordered = binding.order()
    bound = {item.name for item in ordered}
    left = [item for item in inputs if item.name not in bound]
    declaring = Declaring("input", True, graph)
    for item in [*ordered, *left]:
        earlier = len(context.findings)
        _declare_input(context, item, declaring)
        if item.name not in bound and len(context.findings) == earlier:
            _report_open(context, item, binding.open[item.name])


def _report_open(context: OperatorContext, item: Parameter, extents: list[Extent]) -> None:
    """Say that lengths are not known, unless an earlier finding is why."""
    lengths = [name for extent in extents for name in names_in(extent.pack and extent.pack.length)]
    entries = [context.scope.find(name) for name in lengths]
    if all(entry is not None and entry.kind.known for entry in entries):
        packs = ", ".join(f"'{excerpt(extent.value)}'" for extent in extents[:8])
        context.report(shapes_rules.AMBIGUOUS.at(item.span, name=item.name, packs=packs))


def _declare_input(context: OperatorContext, item: Parameter, declaring: Declaring) -> None:
    if item.type.rank is not None:
        kind = ValueKind("int", item.type.optional, value=length_of(item.type.rank))
        context.declare(item.type.rank, DeclaredName(kind, "a rank", item.type.span))
    kind = read_tensor(context, item, declaring)
    entry = context.scope.names[item.name]
    if entry.span == item.span:
        context.scope.names[item.name] = DeclaredName(kind, "an input", item.span)
    if item.bounds:
        context.report(shapes_rules.INDEX_PLACE.at(item.bounds[0].span, what="input", name=item.name))


def check_input_defaults(context: OperatorContext, inputs: list[Parameter]) -> None:
    """Defaults of inputs are values of their type."""
    for item in inputs:
        if item.value is None:
            continue
        if item.type.optional:
            context.report(shapes_rules.OPTIONAL_DEFAULT.at(item.span, what="input", name=item.name))
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


def declare(context: OperatorContext, operator: Operator) -> None:
    """Declare everything that the blocks before `@lower` and `@compose` declare."""
    _declare_types(context, operator)
    attributes = list(operator.parameters("attrib"))
    inputs = list(operator.parameters("input"))
    usings = [item for item in operator.items("using") if isinstance(item, Using)]
    plain = {item.name for item in attributes if is_plain(item)}
    early = early_usings(usings, _known_later(operator) - plain)
    hidden = frozenset(result.name for item in usings for result in names_of(item.target))
    hidden -= {item.name for item in (*attributes, *inputs)}
    with context.at(CheckedBlock("attrib", hidden=hidden)):
        declare_attributes(context, attributes)
    with context.at(CheckedBlock("using")):
        declare_usings(context, early)
    known = plain | {result.name for item in early for result in names_of(item.target)}
    with context.at(CheckedBlock("input", hidden=hidden - known)):
        declare_inputs(context, inputs, known, operator.graph)
    with context.at(CheckedBlock("attrib", hidden=hidden)):
        bound = {*known, *(context.scope.names.keys() - {item.name for item in attributes})}
        read_lengths(context, attributes)
        check_defaults(context, attributes, bound)
    with context.at(CheckedBlock("input", hidden=hidden - known)):
        check_input_defaults(context, inputs)
    _declare_rest(context, operator, usings, {id(item) for item in early})


def _known_later(operator: Operator) -> set[str]:
    """The names that attributes, inputs and their shapes declare."""
    items = (*operator.parameters("attrib"), *operator.parameters("input"))
    ranks = {item.type.rank for item in items if item.type.rank is not None}
    return {item.name for item in items} | ranks | {name for item in items for name in names_in(item.type)}


def _declare_types(context: OperatorContext, operator: Operator) -> None:
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


def _declare_rest(context: OperatorContext, operator: Operator, usings: list[Using], done: set[int]) -> None:
    with context.at(CheckedBlock("using")):
        declare_usings(context, usings, done)
    with context.at(CheckedBlock("constant")):
        declare_tensors(context, list(operator.parameters("constant")), "constant")
    with context.at(CheckedBlock("variable")):
        declare_tensors(context, list(operator.parameters("variable")), "variable")
    with context.at(CheckedBlock("output")):
        declare_tensors(context, list(operator.parameters("output")), "output", operator.graph)
    with context.at(CheckedBlock("assert")):
        assertions = [item for item in operator.items("assert") if isinstance(item, Assertion)]
        check_assertions(context, assertions)
