"""The kinds of expressions: one function for each node, findings on the way."""

from __future__ import annotations

from lamella.lang.skriptnd.check.context import OperatorContext, excerpt
from lamella.lang.skriptnd.check.kinds import (
    BOOL,
    REAL,
    STR,
    UNKNOWN,
    MaybeExtent,
    ValueKind,
    agrees,
    belongs,
    family,
    is_type,
    join_types,
    shown,
)
from lamella.lang.skriptnd.check.packs import infer_expansion, infer_integer, infer_pack
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
from lamella.lang.skriptnd.rules import lowering as lowering_rules
from lamella.lang.skriptnd.rules import names
from lamella.lang.skriptnd.rules import types as rules
from lamella.lang.skriptnd.rules import types as types_rules

# --- unary and binary operators and their folds -------------------------------------------------------------


ARITHMETIC = frozenset(("+", "-", "*", "/", "\\", "%", "**", "<<", ">>"))
LOGICAL = frozenset(("&&", "||", "^", "=>"))
ORDERING = frozenset(("<", "<=", ">", ">="))
DIVIDING = frozenset(("/", "\\", "%"))
BASES = {
    **dict.fromkeys(ARITHMETIC, "num"),
    **dict.fromkeys(ORDERING, "type"),
    **dict.fromkeys(LOGICAL, "bool"),
}


def _infer_chain(context: OperatorContext, chain: Chain) -> ValueKind:
    """Operators of one level, from left to right."""
    left = _operand(context, chain.first, chain.rest[0][0])
    if chain.rest[0][0] not in ("&&", "=>"):
        for sign, operand in chain.rest:
            left = _join(context, chain, sign, left, operand)
        return left
    # What a conjunction has tested is there in the terms behind the test.
    with context.inner():
        context.present(tested(chain.first))
        for sign, operand in chain.rest:
            left = _join(context, chain, sign, left, operand)
            if sign == "&&":
                context.present(tested(operand))
    return left


def tested(condition: Expr) -> list[str]:
    """The names whose values are there when a condition holds: null tests alone or in a conjunction."""
    if isinstance(condition, NullTest):
        return [condition.name]
    if isinstance(condition, Chain) and all(sign == "&&" for sign, _ in condition.rest):
        terms = [condition.first, *(operand for _, operand in condition.rest)]
        return [item.name for item in terms if isinstance(item, NullTest)]
    return []


def _operand(context: OperatorContext, expr: Expr, sign: str) -> ValueKind:
    kind = context.infer(expr)
    if kind.tensor and sign != "is":
        return refuse_tensor(context, expr, f"'{sign}'")
    return kind


def refuse_tensor(context: OperatorContext, expr: Expr, place: str) -> ValueKind:
    """Say that a tensor stands where a value is needed before the run."""
    return context.report(names.TENSOR_HERE.at(expr.span, name=excerpt(expr), place=place))


def _join(context: OperatorContext, chain: Chain, sign: str, left: ValueKind, operand: Expr) -> ValueKind:
    right = _operand(context, operand, sign)
    if sign == "in" and right.known and not right.packed:
        context.report(rules.NOT_A_PACK.at(operand.span, what="'in'", text=excerpt(operand)))
        return UNKNOWN
    if not (left.known and right.known):
        return UNKNOWN
    if sign in LOGICAL:
        checked = _check_logic(context, chain, sign, left, right)
    elif not agrees(left, right) and not _is_left_to_call(context, sign, left, right):
        context.report(rules.OPERAND_TYPES.at(chain.span, sign=sign, left=left.type, right=right.type))
        checked = False
    else:
        checked = _is_defined(context, chain, sign, join_types(left.type, right.type) or left.type or "")
    if sign in DIVIDING and right.value == 0 and not right.packed and family(right.type or "") == "int":
        context.report(rules.DIVISION_BY_ZERO.at(operand.span, sign=sign))
        checked = False
    return _result(context, chain, sign, left, right) if checked else UNKNOWN


def _is_left_to_call(context: OperatorContext, sign: str, left: ValueKind, right: ValueKind) -> bool:
    """Whether two types may be the same in a call: one of them is generic, and they are compared."""
    return sign not in ARITHMETIC and (left.type in context.generics or right.type in context.generics)


def _check_logic(
    context: OperatorContext, chain: Chain, sign: str, left: ValueKind, right: ValueKind
) -> bool:
    for side in (left, right):
        if side.type != "bool":
            context.report(rules.NOT_BOOL.at(chain.span, what=f"an operand of '{sign}'", type=side.type))
            return False
    return True


def _is_defined(context: OperatorContext, node: Chain | Fold | Unary, sign: str, name: str) -> bool:
    """Whether an operator is defined for a type; where it is not, it is a finding."""
    if sign in ("==", "!=", "is", "in", ":=") or not name:
        return True
    if name == "str" and sign == "+" and not isinstance(node, Fold):
        return True
    base = "num" if isinstance(node, Fold) and sign in ORDERING else BASES[sign]
    if name in context.generics:
        restriction = context.generics[name]
        if base == "bool" or not belongs(restriction, base):
            context.report(
                rules.GENERIC_OPERAND.at(node.span, sign=sign, wanted=base, name=name, base=restriction)
            )
            return False
        return True
    if name == base or (base != "bool" and (belongs(name, base) or family(name) == "complex")):
        return True
    context.report(rules.OPERAND.at(node.span, sign=sign, type=name))
    return False


def _result(
    context: OperatorContext, chain: Chain, sign: str, left: ValueKind, right: ValueKind
) -> ValueKind:
    optional = left.optional or right.optional
    name = "bool" if sign not in ARITHMETIC else join_types(left.type, right.type)
    if sign == "in":
        return ValueKind(name, optional, left.packed, length=left.length)
    if left.packed and right.packed and context.algebra.differ(left.length, right.length):
        context.report(
            rules.PACK_LENGTHS.at(chain.span, sign=sign, left=shown(left.length), right=shown(right.length))
        )
        return UNKNOWN
    if left.packed or right.packed:
        known = left.length if left.packed and left.length is not None else None
        return ValueKind(
            name, optional, True, length=known if known is not None or not right.packed else right.length
        )
    return ValueKind(name, optional, value=_value(context, sign, left, right))


def _value(context: OperatorContext, sign: str, left: ValueKind, right: ValueKind) -> MaybeExtent:
    if sign == "**":
        return None
    if sign in ARITHMETIC and family(left.type or "") == "int":
        return context.algebra.combine(sign, left.value, right.value)
    if sign == "&&":
        return context.algebra.combine("*", left.value, right.value)
    return None


def _infer_unary(context: OperatorContext, unary: Unary) -> ValueKind:
    """`+x`, `-x` and `!x`."""
    kind = _operand(context, unary.operand, unary.sign)
    if not kind.known:
        return UNKNOWN
    if unary.sign == "!":
        if kind.type != "bool":
            return context.report(rules.NOT_BOOL.at(unary.span, what="the operand of '!'", type=kind.type))
        value = context.algebra.combine("-", 1, kind.value)
    else:
        if kind.type == "str" or not _is_defined(context, unary, "-", kind.type or ""):
            return (
                UNKNOWN
                if kind.type != "str"
                else context.report(rules.OPERAND.at(unary.span, sign=unary.sign, type="str"))
            )
        value = kind.value if unary.sign == "+" else context.algebra.combine("-", 0, kind.value)
    return ValueKind(
        kind.type, kind.optional, kind.packed, length=kind.length, value=None if kind.packed else value
    )


def _infer_fold(context: OperatorContext, fold: Fold) -> ValueKind:
    """`pack sign ..` and `pack sign ...`."""
    kind = _operand(context, fold.operand, fold.sign)
    if not kind.known:
        return UNKNOWN
    if not kind.packed:
        return context.report(
            rules.NOT_A_PACK.at(fold.span, what=f"'{fold.sign} ..'", text=excerpt(fold.operand))
        )
    if fold.sign in LOGICAL and kind.type not in ("bool", ""):
        return context.report(rules.NOT_BOOL.at(fold.span, what=f"'{fold.sign} ..'", type=kind.type))
    if not _is_defined(context, fold, fold.sign, kind.type or ""):
        return UNKNOWN
    if fold.cumulative:
        return ValueKind(kind.type, kind.optional, True, length=kind.length)
    compared = fold.sign in ORDERING or fold.sign in ("==", "!=")
    nullable = fold.sign in ("<<", ">>", ":=")
    return ValueKind("bool" if compared else kind.type, kind.optional or nullable)


# --- elements of tensors, and the guards around their indices -----------------------------------------------


def _infer_access(context: OperatorContext, access: Access) -> ValueKind:
    """`tensor[i, j..]`: an element, or a pack of elements where the tensor or an index is a pack."""
    if not context.place.accesses:
        return context.report(
            lowering_rules.ACCESS_PLACE.at(access.span, name=access.tensor, block=context.place.block)
        )
    tensor = context.lookup(access.tensor, access.span)
    if tensor.known and not tensor.tensor:
        context.report(lowering_rules.NOT_A_TENSOR.at(access.span, name=access.tensor, what=tensor))
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
        context.report(lowering_rules.RANK.at(access.span, name=access.tensor, rank=rank, count=count))
    return found.element(tensor)


def _choose(context: OperatorContext, access: Access, tensor: ValueKind) -> ValueKind:
    """The tensor that is accessed: an item of a pack where one is chosen."""
    if access.item is None:
        return tensor
    position = context.infer(access.item)
    if tensor.known and not tensor.packed:
        return context.report(lowering_rules.ITEM_OF_TENSOR.at(access.span, name=access.tensor))
    if position.known and (position.tensor or (position.type and family(position.type) != "int")):
        context.report(
            lowering_rules.TENSOR_INDEX.at(access.item.span, name=access.tensor, type=position.type)
        )
        return UNKNOWN
    if not (tensor.known and position.known):
        return UNKNOWN
    chosen = tensor.maybe(position.optional)
    return chosen.pack(position.length) if position.packed else chosen.single()


class _Indices:
    """The indices of one access: how many dimensions they cover and whether they make a pack."""

    def __init__(self, context: OperatorContext, access: Access) -> None:
        self.count: MaybeExtent = 0
        self._context = context
        self._access = access
        self._optional = False
        self._packed = False
        self._known = True
        self._length: MaybeExtent = None

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

    def _kind_of(self, index: Expr | Expand) -> ValueKind:
        if isinstance(index, Expand):
            kind = infer_expansion(self._context, index)
        else:
            kind = self._context.infer(index)
        if kind.known and (kind.tensor or (kind.type and family(kind.type) != "int")):
            name, found = self._access.tensor, kind if kind.tensor else kind.type
            return self._context.report(lowering_rules.TENSOR_INDEX.at(index.span, name=name, type=found))
        return kind

    def _add_range(self, index: Range) -> None:
        """A range of a dimension gives a pack of elements."""
        for part in (index.begin, index.end, index.step):
            if part is not None:
                infer_integer(self._context, part, "a range")
        self._packed, self._length = True, None
        self.count = self._context.algebra.combine("+", self.count, 1)

    def element(self, tensor: ValueKind) -> ValueKind:
        """The element that is accessed; an index that is not known may be a pack."""
        if not self._known:
            return UNKNOWN
        optional = tensor.optional or self._optional
        if tensor.packed:
            return ValueKind(tensor.type, optional, True, length=tensor.length)
        return ValueKind(tensor.type, optional, self._packed, length=self._length)


def _infer_guard(context: OperatorContext, guard: Bounded) -> ValueKind:
    """`|index|` and `|index <> below : above|`."""
    if not context.place.guards:
        return context.report(lowering_rules.GUARD_PLACE.at(guard.span, text=excerpt(guard.index)))
    whole = context.infer(guard.index)
    for part in (guard.below, guard.above):
        if part is not None:
            kind = context.infer(part)
            _refuse_other_types(context, part, kind)
            whole = _widened(whole, kind)
    return UNKNOWN if not _refuse_other_types(context, guard.index, whole) else whole


def _refuse_other_types(context: OperatorContext, part: Expr, kind: ValueKind) -> bool:
    if kind.known and (kind.tensor or (kind.type and family(kind.type) != "int")):
        context.report(lowering_rules.TENSOR_INDEX.at(part.span, name=excerpt(part), type=kind.type))
        return False
    return True


def _widened(whole: ValueKind, kind: ValueKind) -> ValueKind:
    if not (whole.known and kind.known):
        return UNKNOWN
    if kind.packed and not whole.packed:
        return whole.maybe(kind.optional).pack(kind.length)
    return whole.maybe(kind.optional)


# --- choices: `? :`, `??` and the test for null -------------------------------------------------------------


def _infer_select(context: OperatorContext, select: Select) -> ValueKind:
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


def _select_alone(
    context: OperatorContext, select: Select, condition: ValueKind, then: ValueKind
) -> ValueKind:
    if condition.packed:
        return context.report(types_rules.SELECT_PACK.at(select.condition.span))
    return then.maybe() if then.known and condition.known else UNKNOWN


def _select(
    context: OperatorContext, select: Select, parts: tuple[ValueKind, ValueKind, ValueKind]
) -> ValueKind:
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
        return ValueKind(name, optional, then.packed, True, length, rank)
    if condition.packed:
        return ValueKind(name, optional, True, length=_common(context, select, parts))
    chosen = context.algebra.choose
    if then.packed and otherwise.packed:
        return ValueKind(name, optional, True, length=chosen(condition.value, then.length, otherwise.length))
    if then.packed or otherwise.packed:
        return ValueKind(name, optional, True)
    return ValueKind(name, optional, value=chosen(condition.value, then.value, otherwise.value))


def _common(
    context: OperatorContext, select: Select, parts: tuple[ValueKind, ValueKind, ValueKind]
) -> MaybeExtent:
    """The length of packs that are chosen from item by item."""
    common: MaybeExtent = None
    for part in parts:
        if not part.packed or part.length is None:
            continue
        if context.algebra.differ(common, part.length):
            left, right = shown(common), shown(part.length)
            context.report(types_rules.PACK_LENGTHS.at(select.span, sign="? :", left=left, right=right))
            return None
        common = part.length if common is None else common
    return common


def _infer_coalesce(context: OperatorContext, coalesce: Coalesce) -> ValueKind:
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
        return ValueKind(name, False, left.packed, True, None, rank)
    if left.packed or right.packed:
        length = left.length if left.packed and right.packed and left.length == right.length else None
        # A single value replaces a pack whose length nobody knows.
        return ValueKind(name, False, True, length=length)
    value = left.value if left.value == right.value else None
    if value is None and left.value is not None and right.value is not None:
        value = context.algebra.form(("??", left.value, right.value))
    return ValueKind(name, value=value)


def _infer_null_test(context: OperatorContext, test: NullTest) -> ValueKind:
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


def _infer_cast(context: OperatorContext, cast: Cast) -> ValueKind:
    """`type(x)` and the default value `type()`."""
    base = context.generics.get(cast.type)
    if base is None and not is_type(cast.type):
        if cast.operand is not None:
            context.infer(cast.operand)
        return context.report(names.UNKNOWN_TYPE.at(cast.span, name=cast.type))
    if base == "":
        return UNKNOWN
    if cast.operand is None:
        return ValueKind(cast.type, value=0 if family(cast.type) in ("int", "bool") else None)
    kind = context.infer(cast.operand)
    if kind.tensor:
        kind = refuse_tensor(context, cast.operand, "a cast")
    if not kind.known:
        return UNKNOWN
    if not (_casts(context, cast.type) and _casts(context, kind.type or "")):
        return context.report(types_rules.CAST_TYPE.at(cast.span, left=kind.type, right=cast.type))
    keeps = family(cast.type) == "int" and family(kind.type or "") in ("int", "bool")
    return ValueKind(
        cast.type, kind.optional, kind.packed, length=kind.length, value=kind.value if keeps else None
    )


def _casts(context: OperatorContext, name: str) -> bool:
    if name in context.generics:
        return belongs(context.generics[name], "arith")
    return name == "" or belongs(name, "arith")


def _infer_call(context: OperatorContext, call: Call) -> ValueKind:
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
    return ValueKind(kind.type, kind.optional, kind.packed, length=kind.length, value=value)


def _is_size(call: Call, kind: ValueKind) -> bool:
    return call.function == "abs" and kind.value is not None and family(kind.type or "") == "int"


def _takes(context: OperatorContext, function: str, name: str) -> bool:
    if function in NUMERIC:
        return not name or belongs(context.generics.get(name, name), "num")
    return family(name) in ("real", "complex", "")


def _infer_format(context: OperatorContext, text: Format) -> ValueKind:
    """A string with holes."""
    optional = False
    for part in text.parts:
        if not isinstance(part, str):
            kind = context.infer(part)
            optional = optional or kind.optional
            if kind.tensor:
                refuse_tensor(context, part, "a string")
    return STR.maybe(optional)


def _infer_member(context: OperatorContext, member: Member) -> ValueKind:
    """`x.shape`, `x.rank` and `x.size`."""
    kind = context.lookup(member.name, member.span)
    if not kind.known:
        return UNKNOWN
    if not kind.tensor or kind.packed != (member.field == "size"):
        return context.report(
            names.NO_MEMBER.at(member.span, name=member.name, field=member.field, what=kind)
        )
    if member.field == "shape":
        return ValueKind("int", kind.optional, True, length=kind.rank)
    return ValueKind("int", kind.optional, value=kind.length if member.field == "size" else kind.rank)


def infer(context: OperatorContext, expr: Expr) -> ValueKind:
    """The kind of an expression."""
    # Class patterns are tried one after another: what is frequent stands first.
    match expr:
        case Name():
            return context.lookup(expr.id, expr.span)
        case Integer():
            return ValueKind("int", value=expr.value)
        case Chain():
            return _infer_chain(context, expr)
        case Access():
            return _infer_access(context, expr)
        case Index() | List() | Substitute():
            return infer_pack(context, expr)
        case Select():
            return _infer_select(context, expr)
        case Coalesce():
            return _infer_coalesce(context, expr)
        case Fold():
            return _infer_fold(context, expr)
        case Unary():
            return _infer_unary(context, expr)
        case Call():
            return _infer_call(context, expr)
        case Cast():
            return _infer_cast(context, expr)
        case Member():
            return _infer_member(context, expr)
        case NullTest():
            return _infer_null_test(context, expr)
        case Bounded():
            return _infer_guard(context, expr)
        case Format():
            return _infer_format(context, expr)
        case Bool():
            return ValueKind("bool", value=int(expr.value))
        case Real() | Constant():
            return REAL
        case Text():
            return STR
