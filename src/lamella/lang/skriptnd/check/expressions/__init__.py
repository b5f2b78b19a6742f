"""The kinds of expressions: one function for each node, findings on the way."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import Context, excerpt
from lamella.lang.skriptnd.check.expressions.chains import (
    infer_chain,
    infer_fold,
    infer_unary,
    refuse_tensor,
    tested,
)
from lamella.lang.skriptnd.check.expressions.packs import (
    infer_expansion,
    infer_index,
    infer_integer,
    infer_list,
    infer_substitute,
)
from lamella.lang.skriptnd.check.kinds import (
    BOOL,
    REAL,
    STR,
    UNKNOWN,
    Kind,
    agrees,
    belongs,
    family,
    is_type,
    join_types,
)
from lamella.lang.skriptnd.check.lengths import Known, shown
from lamella.lang.skriptnd.nodes import (
    Access,
    Bool,
    Bounded,
    Call,
    Cast,
    Chain,
    Coalesce,
    Constant,
    Expand,
    Expr,
    Fold,
    Format,
    Index,
    Integer,
    List,
    Member,
    Name,
    NullTest,
    Range,
    Real,
    Select,
    Substitute,
    Text,
    Unary,
)
from lamella.lang.skriptnd.rules import lowering as rules
from lamella.lang.skriptnd.rules import names
from lamella.lang.skriptnd.rules import types as types_rules

# --- elements of tensors, and the guards around their indices -----------------------------------------------


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


# --- choices: `? :`, `??` and the test for null -------------------------------------------------------------


def infer_select(context: Context, select: Select) -> Kind:
    """`condition ? then : otherwise`; without the second branch the result may be null."""
    condition = context.infer(select.condition)
    if condition.tensor:
        condition = refuse_tensor(context, select.condition, "the condition of '?'")
    if condition.known and condition.type != "bool":
        context.report(
            types_rules.NOT_BOOL.at(select.condition.span, what="the condition of '?'", type=condition.type)
        )
        condition = UNKNOWN
    names = tested(select.condition)
    if names:
        with context.inner():
            context.present(names)
            then = context.infer(select.then)
    else:
        then = context.infer(select.then)
    if select.otherwise is None:
        return _select_alone(context, select, condition, then)
    return _select(context, select, (condition, then, context.infer(select.otherwise)))


def _select_alone(context: Context, select: Select, condition: Kind, then: Kind) -> Kind:
    if condition.packed:
        return context.report(types_rules.SELECT_PACK.at(select.condition.span))
    return then.maybe() if then.known and condition.known else UNKNOWN


def _select(context: Context, select: Select, parts: tuple[Kind, Kind, Kind]) -> Kind:
    condition, then, otherwise = parts
    if not (condition.known and then.known and otherwise.known):
        return UNKNOWN
    if not agrees(then, otherwise) or then.tensor != otherwise.tensor:
        return context.report(types_rules.SELECT_TYPES.at(select.span, left=then, right=otherwise))
    name = join_types(then.type, otherwise.type)
    optional = condition.optional or then.optional or otherwise.optional
    if then.tensor:
        rank = then.rank if then.rank == otherwise.rank else None
        length = then.length if then.length == otherwise.length else None
        return Kind(name, optional, then.packed, True, length, rank)
    if condition.packed:
        return Kind(name, optional, True, length=_common(context, select, parts))
    chosen = context.algebra.choose
    if then.packed and otherwise.packed:
        return Kind(name, optional, True, length=chosen(condition.value, then.length, otherwise.length))
    if then.packed or otherwise.packed:
        return Kind(name, optional, True)
    return Kind(name, optional, value=chosen(condition.value, then.value, otherwise.value))


def _common(context: Context, select: Select, parts: tuple[Kind, Kind, Kind]) -> Known:
    """The length of packs that are chosen from item by item."""
    common: Known = None
    for part in parts:
        if not part.packed or part.length is None:
            continue
        if context.algebra.differ(common, part.length):
            left, right = shown(common), shown(part.length)
            context.report(types_rules.PACK_LENGTHS.at(select.span, sign="? :", left=left, right=right))
            return None
        common = part.length if common is None else common
    return common


def infer_coalesce(context: Context, coalesce: Coalesce) -> Kind:
    """`value ?? default`."""
    left, right = context.infer(coalesce.value), context.infer(coalesce.default)
    if left.known and not left.optional:
        context.report(types_rules.COALESCE_LEFT.at(coalesce.span, text=excerpt(coalesce.value)))
        return left
    if right.known and right.optional:
        context.report(types_rules.COALESCE_RIGHT.at(coalesce.default.span, text=excerpt(coalesce.default)))
        return UNKNOWN
    if not (left.known and right.known):
        return UNKNOWN
    if not agrees(left, right):
        return context.report(types_rules.COALESCE_TYPES.at(coalesce.span, left=left.type, right=right.type))
    name = join_types(left.type, right.type)
    if left.tensor or right.tensor:
        rank = left.rank if left.rank == right.rank else None
        return Kind(name, False, left.packed, True, None, rank)
    if left.packed or right.packed:
        length = left.length if left.packed and right.packed and left.length == right.length else None
        # A single value replaces a pack whose length nobody knows.
        return Kind(name, False, True, length=length)
    value = left.value if left.value == right.value else None
    if value is None and left.value is not None and right.value is not None:
        value = context.algebra.form(("??", left.value, right.value))
    return Kind(name, value=value)


def infer_null_test(context: Context, test: NullTest) -> Kind:
    """`?name`."""
    kind = context.lookup(test.name, test.span)
    if kind.known and not kind.optional:
        context.report(types_rules.NULL_TEST.at(test.span, name=test.name))
    return BOOL


# --- casts, built-in functions, formatted strings and the members of tensors --------------------------------


NUMERIC = frozenset(("abs", "sign"))
FUNCTIONS = NUMERIC | {
    *("sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "round", "floor", "ceil", "frac"),
}


def infer_cast(context: Context, cast: Cast) -> Kind:
    """`type(x)` and the default value `type()`."""
    base = context.generics.get(cast.type)
    if base is None and not is_type(cast.type):
        if cast.operand is not None:
            context.infer(cast.operand)
        return context.report(names.UNKNOWN_TYPE.at(cast.span, name=cast.type))
    if base == "":
        return UNKNOWN
    if cast.operand is None:
        return Kind(cast.type, value=0 if family(cast.type) in ("int", "bool") else None)
    kind = context.infer(cast.operand)
    if kind.tensor:
        kind = refuse_tensor(context, cast.operand, "a cast")
    if not kind.known:
        return UNKNOWN
    if not (_casts(context, cast.type) and _casts(context, kind.type or "")):
        return context.report(types_rules.CAST_TYPE.at(cast.span, left=kind.type, right=cast.type))
    keeps = family(cast.type) == "int" and family(kind.type or "") in ("int", "bool")
    return Kind(
        cast.type, kind.optional, kind.packed, length=kind.length, value=kind.value if keeps else None
    )


def _casts(context: Context, name: str) -> bool:
    if name in context.generics:
        return belongs(context.generics[name], "arith")
    return name == "" or belongs(name, "arith")


def infer_call(context: Context, call: Call) -> Kind:
    """A built-in function of one argument."""
    kind = context.infer(call.operand)
    if call.function not in FUNCTIONS:
        return UNKNOWN
    if kind.tensor:
        kind = refuse_tensor(context, call.operand, f"'{call.function}'")
    if not kind.known:
        return UNKNOWN
    if not _takes(context, call.function, kind.type or ""):
        wanted = "int or real" if call.function in NUMERIC else "real"
        return context.report(
            types_rules.FUNCTION_TYPE.at(call.span, name=call.function, wanted=wanted, type=kind.type)
        )
    value = context.algebra.form(("abs", kind.value), 0) if _is_size(call, kind) else None
    return Kind(kind.type, kind.optional, kind.packed, length=kind.length, value=value)


def _is_size(call: Call, kind: Kind) -> bool:
    return call.function == "abs" and kind.value is not None and family(kind.type or "") == "int"


def _takes(context: Context, function: str, name: str) -> bool:
    if function in NUMERIC:
        return not name or belongs(context.generics.get(name, name), "num")
    return family(name) in ("real", "complex", "")


def infer_format(context: Context, text: Format) -> Kind:
    """A string with holes."""
    optional = False
    for part in text.parts:
        if not isinstance(part, str):
            kind = context.infer(part)
            optional = optional or kind.optional
            if kind.tensor:
                refuse_tensor(context, part, "a string")
    return STR.maybe(optional)


def infer_member(context: Context, member: Member) -> Kind:
    """`x.shape`, `x.rank` and `x.size`."""
    kind = context.lookup(member.name, member.span)
    if not kind.known:
        return UNKNOWN
    if not kind.tensor or kind.packed != (member.field == "size"):
        return context.report(
            names.NO_MEMBER.at(member.span, name=member.name, field=member.field, what=kind)
        )
    if member.field == "shape":
        return Kind("int", kind.optional, True, length=kind.rank)
    return Kind("int", kind.optional, value=kind.length if member.field == "size" else kind.rank)


def infer(context: Context, expr: Expr) -> Kind:
    """The kind of an expression."""
    match expr:
        case Name():
            return context.lookup(expr.id, expr.span)
        case Integer():
            return Kind("int", value=expr.value)
        case Chain():
            return infer_chain(context, expr)
        case Access():
            return infer_access(context, expr)
        case Index():
            return infer_index(context, expr)
        case Select():
            return infer_select(context, expr)
        case Coalesce():
            return infer_coalesce(context, expr)
        case List():
            return infer_list(context, expr)
        case Fold():
            return infer_fold(context, expr)
        case Unary():
            return infer_unary(context, expr)
        case Call():
            return infer_call(context, expr)
        case Cast():
            return infer_cast(context, expr)
        case Member():
            return infer_member(context, expr)
        case NullTest():
            return infer_null_test(context, expr)
        case Substitute():
            return infer_substitute(context, expr)
        case Bounded():
            return infer_guard(context, expr)
        case Format():
            return infer_format(context, expr)
        case Bool():
            return Kind("bool", value=int(expr.value))
        case Real() | Constant():
            return REAL
        case Text():
            return STR
