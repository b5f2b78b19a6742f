"""Scalars: constants, arithmetic, comparisons, casts and builtins as forms and conditions."""

from __future__ import annotations

from lamella.lang.tensor.check.memory.forms.affine import ONE, ZERO, Affine
from lamella.lang.tensor.check.memory.forms.integers import BITS
from lamella.lang.tensor.check.memory.forms.symbols import GROUP, NOBODY, RANGED, Symbol
from lamella.lang.tensor.check.memory.state import (
    ALWAYS,
    NEVER,
    NOTHING,
    AbstractValue,
    ConditionFacts,
    KnownCondition,
    KnownScalar,
    MemoryState,
)
from lamella.lang.tensor.nodes import (
    BOOL,
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    Coopmatrix,
    Math,
    Scalar,
    Type,
    Value,
)

MOST_ITEMS = 1 << 16
"""More work-items than any work-group has."""
MOST_FACTS = 16
"""Of a conjunction of conditions."""


def evaluate_scalar(
    state: MemoryState, item: Constant | Arith | Compare | Math | Cast | Builtin
) -> AbstractValue:
    """What is known of the result."""
    match item:
        case Constant(value=value, type=type_):
            return _constant(state, value, type_)
        case Arith():
            return _arith(state, item)
        case Compare():
            return _compare(state, item)
        case Cast():
            return _cast(state, item)
        case Builtin():
            form = _builtin(state, item.name)
            return KnownScalar(form, state.symbols.depends([form]))
        case Math(operands=operands, type=type_):
            return unknown_value(state, type_, _depends(state, operands))


def unknown_value(state: MemoryState, type_: Type, depends: frozenset[int], name: str = "") -> AbstractValue:
    """A value of which only the type is known."""
    if type_ == BOOL:
        return KnownCondition(depends=depends)
    if isinstance(type_, Scalar) and type_.name in BITS:
        return KnownScalar(state.integers.unknown(type_.name, depends, name), depends)
    return KnownScalar(None, depends, None, type_ if isinstance(type_, Coopmatrix) else None)


def _depends(state: MemoryState, values: tuple[Value, ...]) -> frozenset[int]:
    known = (state.values.get(value.name) for value in values)
    return NOBODY.union(*(state.depends_of(item) for item in known if item is not None))


def _constant(state: MemoryState, value: object, type_: Type) -> AbstractValue:
    if isinstance(value, bool):
        return KnownCondition(ALWAYS, NEVER) if value else KnownCondition(NEVER, ALWAYS)
    if isinstance(value, int) and isinstance(type_, Scalar) and type_.name in BITS:
        return KnownScalar(state.integers.fit(Affine(value), type_.name))
    return KnownScalar(None, NOBODY, value, type_ if isinstance(type_, Coopmatrix) else None)


def _arith(state: MemoryState, item: Arith) -> AbstractValue:
    depends = _depends(state, item.operands)
    if item.type == BOOL:
        return _logic(state, item, depends)
    if not isinstance(item.type, Scalar) or item.type.name not in BITS:
        return unknown_value(state, item.type, depends)
    if item.function == "select":
        forms = tuple(state.form(value) for value in item.operands[1:])
        return KnownScalar(state.integers.choice(forms, depends), depends)
    operands = tuple(state.form(value) for value in item.operands)
    found = state.integers.evaluate(item.function, operands, item.type.name)
    if found is None:
        return unknown_value(state, item.type, depends)
    return KnownScalar(found, state.symbols.depends([found]))


def _logic(state: MemoryState, item: Arith, depends: frozenset[int]) -> KnownCondition:
    known = [_condition(state, value) for value in item.operands]
    match item.function:
        case "not":
            return KnownCondition(known[0].fails, known[0].holds, depends)
        case "and":
            return KnownCondition(_both(known[0].holds, known[1].holds), NOTHING, depends)
        case "or":
            return KnownCondition(NOTHING, _both(known[0].fails, known[1].fails), depends)
        case _:
            return KnownCondition(depends=depends)


def _both(left: ConditionFacts, right: ConditionFacts) -> ConditionFacts:
    forms = (*left.forms, *right.forms)
    return ConditionFacts(forms[:MOST_FACTS], left.exact and right.exact and len(forms) <= MOST_FACTS)


def _condition(state: MemoryState, value: Value) -> KnownCondition:
    found = state.values.get(value.name)
    if isinstance(found, KnownCondition):
        return KnownCondition(found.holds, found.fails, found.depends)
    return KnownCondition()


def _compare(state: MemoryState, item: Compare) -> KnownCondition:
    depends = _depends(state, (item.left, item.right))
    left, right = state.number(item.left).form, state.number(item.right).form
    if left is None or right is None:
        return KnownCondition(depends=depends)
    less, greater = right - left - ONE, left - right - ONE
    equal = ConditionFacts((right - left, left - right), True)
    at_most, at_least = ConditionFacts((right - left,), True), ConditionFacts((left - right,), True)
    table = {
        "lt": (ConditionFacts((less,), True), at_least),
        "ge": (at_least, ConditionFacts((less,), True)),
        "gt": (ConditionFacts((greater,), True), at_most),
        "le": (at_most, ConditionFacts((greater,), True)),
        "eq": (equal, _apart(state, left - right)),
        "ne": (_apart(state, left - right), equal),
    }
    holds, fails = table[item.function]
    return KnownCondition(holds, fails, depends)


def _apart(state: MemoryState, difference: Affine) -> ConditionFacts:
    """What two different values are known for: where one is never below the other, it is above it."""
    if not difference.terms:
        return ALWAYS if difference.constant else NEVER
    for form in (difference, difference.times(-1)):
        if state.symbols.proves(form):
            return ConditionFacts((form - ONE,), True)
    return NOTHING


def _cast(state: MemoryState, item: Cast) -> AbstractValue:
    found = state.number(item.operand)
    if not isinstance(item.type, Scalar) or item.type.name not in BITS:
        return unknown_value(state, item.type, found.depends)
    form = None if found.form is None else state.integers.fit(found.form, item.type.name)
    if form is None:
        return unknown_value(state, item.type, found.depends)
    return KnownScalar(form, state.symbols.depends([form]))


# --- builtins -----------------------------------------------------------------------------------------------


def _builtin(state: MemoryState, name: str) -> Affine:
    """One symbol for each builtin; in a foreach nobody knows which work-item has which indices."""
    if name in ("subgroup_id", "subgroup_local_id") and state.spmd is not None and state.spmd.is_foreach:
        last = _builtin(state, COUNTS[name]) - ONE
        low, high = 0, state.symbols.interval(last)[1]
        form = state.integers.new(Symbol(name, low=low, high=high, depends=frozenset(state.spmd.items)))
        state.symbols.state(last - form)
        return form
    if name not in state.builtins:
        state.builtins[name] = _make_builtin(state, name)
    return state.builtins[name]


COUNTS = {"subgroup_id": "num_subgroups", "subgroup_local_id": "subgroup_size", "group_id": "group_size"}


def _make_builtin(state: MemoryState, name: str) -> Affine:
    known = {"subgroup_size": state.sizes.subgroup, "num_subgroups": state.sizes.subgroups}
    known["group_size"] = None if state.launch is None else state.launch.groups
    count = known.get(name)
    if count is not None:
        return Affine(count)
    if name not in COUNTS:
        low = state.sizes.least if name == "subgroup_size" else 1
        high = None if name == "group_size" else MOST_ITEMS
        return state.integers.new(Symbol(name, GROUP, low=low, high=high))
    last = _builtin(state, COUNTS[name]) - ONE
    high = state.symbols.interval(last)[1]
    if name == "group_id" and state.launch is not None:
        form = state.integers.new(Symbol(name, RANGED, 0, high, ZERO, last)) if high else ZERO
    elif name == "group_id":
        form = state.integers.new(Symbol(name, GROUP, low=0))
    else:
        itself = frozenset((len(state.symbols.table),))
        form = state.integers.new(Symbol(name, RANGED, 0, high, ZERO, last, depends=itself))
    state.symbols.state(last - form)
    return form
