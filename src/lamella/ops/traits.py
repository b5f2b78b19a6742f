"""Traits: algebraic facts about operators that passes ask for, declared beside an operator or derived from its body.

A shipped operator declares its traits in the last lines of the comment above it:

    # The negative of each element.
    # traits: involution
    operator neg {

`absorbing 0 of int` holds for integers alone, `linear 1 alpha` names an attribute. What a trait means is in `KNOWN`,
and a test evaluates every declared one on random inputs. Derived, and so true of the operators of users too, are:

- *elementwise*: one formula `y[i..] = f(x[i..]), i < s`;
- *aligned*: likewise for several inputs that broadcast;
- *copy*: `y[i..] = x[i..]`;
- *random*: a composition that calls what is random;
- everything that another operator is, for one that only calls it: `aten.neg` is `math.neg`, and `aten.masked_fill(x,
  c, v)` is `math.select(c, v, x)`.

Traits hold for attributes at their defaults, but for those that only place operands (`…_align`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType

from lamella.base.errors import Malformed
from lamella.base.records import dataclass
from lamella.base.suggest import did_you_mean
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.check.definitions import invoked
from lamella.ops.evaluate.walk import walk
from lamella.ops.instance import Definition

PLACING = "_align"
"""How the names of attributes end that only say which axes of operands meet."""


@dataclass(frozen=True, slots=True)
class TraitRule:
    """What a trait means, and the values that its declaration has behind its name."""

    sentence: str
    values: str = ""


KNOWN: Mapping[str, TraitRule] = MappingProxyType(
    {
        "commutative": TraitRule("f(x, y) = f(y, x)"),
        "identity": TraitRule("f(x, e) = x", "e"),
        "absorbing": TraitRule("f(x, e) = e", "e"),
        "idempotent": TraitRule("f(f(x)) = f(x), or f(x, x) = x"),
        "involution": TraitRule("f(f(x)) = x"),
        "even": TraitRule("f(-x) = f(x)"),
        "linear": TraitRule("f(x, y) = a · x + b · y", "a b"),
        "monomial": TraitRule("f(x, y) = x ** a · y ** b", "a b"),
        "reshape": TraitRule("the same elements in row-major order"),
        "permutation": TraitRule("the axes in another order"),
        "window": TraitRule("f(x) = x where the output has the shape of x"),
        "singleton": TraitRule("f([x]) = x"),
        "partition": TraitRule("f(x) = [x] where there is one part"),
        "fill": TraitRule("every element is e", "e"),
        "spread": TraitRule("every element is one of the first input"),
        "generator": TraitRule("made of its attributes and scalars, and shorter to say than its values"),
        "along_axes": TraitRule("f{axes=a}(transpose(x, p)) = transpose(f{axes=p[a]}(x), p)"),
        "formats": TraitRule("'data_format' and 'filter_format' say the order of the axes"),
        "random": TraitRule("each call draws anew"),
        "elsewhere": TraitRule("f(x) = x, in memory of another kind: neither stands for the other"),
    }
)
DERIVED: Mapping[str, str] = MappingProxyType(
    {
        "elementwise": "y[i..] = f(x[i..])",
        "aligned": "z[i..] = f(x[i..], y[i..], …), with broadcasting",
        "copy": "y = x",
    }
)
KINDS = ("int", "real", "bool")
_DECLARATION = re.compile(r"#\s*traits:(.*)")
_TRAIT = re.compile(r"(?P<name>\w+)(?P<values>(?: (?!of )\S+)*)(?: of (?P<kind>\w+))?")


@dataclass(frozen=True, slots=True)
class Trait:
    """A trait of an operator: its name, its values, and the element types that it holds for."""

    name: str
    values: tuple[str, ...] = ()
    kind: str = ""
    """`int`, `real` or `bool`; empty for all."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of an operator."""

    items: Mapping[str, Trait] = field(default_factory=dict)
    root: str = ""
    """The operator that this one only calls, at the end of all such calls; without one, the operator itself."""
    order: tuple[int, ...] | None = None
    """The inputs that are passed to the root, by number; None for all of them in their order."""

    def __contains__(self, name: str) -> bool:
        return name in self.items

    def __getitem__(self, name: str) -> Trait:
        return self.items[name]


def declared_traits(text: str, start: int) -> Mapping[str, Trait]:
    """The traits in the comment above the operator that begins at a place of a text; Malformed where one is unknown."""
    block = text[text.rfind("\n\n", 0, start) + 1 : start]
    found = map(_DECLARATION.match, block.splitlines())
    parts = [part for line in found if line is not None for part in line[1].split(",")]
    return {trait.name: trait for trait in map(_read, parts)}


def _read(text: str) -> Trait:
    found = _TRAIT.fullmatch(text.strip())
    if found is None:
        raise Malformed(f"'{text.strip()}' is not a trait")
    name, values, kind = found["name"], tuple(found["values"].split()), found["kind"] or ""
    if name not in KNOWN:
        raise Malformed(f"there is no trait '{name}'; {did_you_mean(name, KNOWN) or ', '.join(KNOWN)}")
    if kind and kind not in KINDS:
        raise Malformed(f"'{kind}' of the trait '{name}' is none of {', '.join(KINDS)}")
    if len(values) != len(KNOWN[name].values.split()):
        raise Malformed(f"the trait '{name}' has the values '{KNOWN[name].values}', not '{' '.join(values)}'")
    return Trait(name, values, kind)


# --- traits that follow from the body of an operator ----------------------------------------------------------


def find_traits(
    definition: Definition, declared: Mapping[str, Trait], ask: Callable[[str], Traits]
) -> Traits:
    """The traits of an operator: those that it declares, and those that follow from its body.

    `ask` gives the traits of the operators that a composition calls, by the names that it uses.
    """
    operator = definition.operator
    derived = () if "elsewhere" in declared else _derived(operator)
    names = [name for name in derived if name not in declared]
    calls = invoked(operator)
    if any("random" in ask(name) for name in calls):
        names.append("random")
    items = {**declared, **{name: Trait(name) for name in names}}
    called = _only_call(operator)
    if called is None:
        return Traits(items, definition.name)
    inner = ask(called.operator)
    count = sum(1 for _ in operator.parameters("input"))
    passed = _passed(operator, called)
    order = passed if inner.order is None else tuple(passed[item] for item in inner.order)
    # Traits speak of inputs by their order: what passes them on otherwise has the root alone.
    if order == tuple(range(count)):
        return Traits({**inner.items, **items}, inner.root)
    return Traits(items, inner.root, order)


def _only_call(operator: n.Operator) -> n.Invocation | None:
    """The call that is all of an operator: of some of its inputs, each once, with all attributes at their defaults."""
    components = operator.items("compose")
    outputs = list(operator.parameters("output"))
    if len(components) != 1 or len(outputs) != 1 or any(operator.parameters("variable")):
        return None
    (component,) = components
    if not isinstance(component, n.Component) or not isinstance(component.value, n.Invocation):
        return None
    call = component.value
    inputs = {item.name for item in operator.parameters("input")}
    names = [item.id for item in call.arguments if isinstance(item, n.Name)]
    whole = len(names) == len(call.arguments) == len(set(names)) and set(names) <= inputs
    (result,) = component.results if len(component.results) == 1 else (None,)
    same = isinstance(result, n.Result) and result.name == outputs[0].name
    return call if names and whole and same and not call.attributes else None


def _passed(operator: n.Operator, call: n.Invocation) -> tuple[int, ...]:
    """The inputs of an operator that it passes on, by number."""
    names = [item.name for item in operator.parameters("input")]
    return tuple(names.index(item.id) for item in call.arguments if isinstance(item, n.Name))


def _derived(operator: n.Operator) -> Iterator[str]:
    lowerings = [item for item in operator.items("lower") if isinstance(item, n.Lowering)]
    outputs = list(operator.parameters("output"))
    if len(lowerings) != 1 or len(outputs) != 1:
        return
    (lowering,) = lowerings
    if is_elementwise(operator):
        yield "elementwise"
        if isinstance(lowering.value, n.Access) and not lowering.locals and lowering.condition is None:
            yield "copy"
    elif _is_aligned(operator, lowering):
        yield "aligned"


def is_elementwise(operator: n.Operator) -> bool:
    """Whether each element of the output depends on the same element of the one input and on nothing else.

    The formula must be of the form `y[i..] = f(x[i..]), i < s` with `x` and `y` of shape `[s..]`.
    """
    inputs, outputs = list(operator.parameters("input")), list(operator.parameters("output"))
    lowerings = [item for item in operator.items("lower") if isinstance(item, n.Lowering)]
    if len(inputs) != 1 or len(outputs) != 1 or len(lowerings) != 1:
        return False
    symbol = _packed_name(inputs[0].type)
    if symbol is None or symbol != _packed_name(outputs[0].type) or inputs[0].type.pack is not None:
        return False
    return _is_plain(lowerings[0], inputs[0].name, symbol)


def _packed_name(spec: n.TypeSpec) -> str | None:
    """`s` of a shape `[s..]`."""
    if spec.shape is None or len(spec.shape) != 1:
        return None
    extent = spec.shape[0]
    packed = extent.pack is not None and not extent.spread and extent.bound is None
    return extent.value.id if packed and isinstance(extent.value, n.Name) else None


def _is_plain(lowering: n.Lowering, source: str, symbol: str) -> bool:
    if len(lowering.bounds) != 1 or lowering.sign != "=" or lowering.unroll is not None:
        return False
    (bound,) = lowering.bounds
    place = (n.Expand(n.Name(bound.index)),)  # nodes compare without their spans
    items = list(_inside(lowering))
    accesses = [item for item in items if isinstance(item, n.Access)]
    fits = all(item.tensor == source and item.indices == place for item in accesses)
    # An index or an extent outside of an access would make the element depend on where it stands.
    loose = sum(1 for item in items if isinstance(item, n.Name) and item.id in (bound.index, symbol))
    members = any(isinstance(item, n.Member) for item in items)
    same = lowering.target.indices == place and bound.limit == n.Name(symbol)
    return fits and same and not members and loose == len(accesses)


def _inside(lowering: n.Lowering) -> Iterator[object]:
    """Everything on the right of a formula, its local values included."""
    for expr in (lowering.value, lowering.condition, *(item.value for item in lowering.locals)):
        if expr is not None:
            yield from walk(expr)


def _is_aligned(operator: n.Operator, lowering: n.Lowering) -> bool:
    """Whether every access of the formula is `x[s is 1 ? 0 : i[p:p + r]..]`, and its index stands nowhere else."""
    if not all(item.name.endswith(PLACING) for item in operator.parameters("attrib")):
        return False
    if len(lowering.bounds) != 1 or lowering.sign != "=" or lowering.unroll is not None:
        return False
    index = n.Name(lowering.bounds[0].index)
    items = list(_inside(lowering))
    accesses = [item for item in items if isinstance(item, n.Access)]
    fits = all(len(item.indices) == 1 and _is_broadcast(item.indices[0], index) for item in accesses)
    loose = sum(1 for item in items if item == index)
    members = any(isinstance(item, n.Member) for item in items)
    target = lowering.target.indices == (n.Expand(index),)
    return len(accesses) > 1 and fits and target and not members and loose == len(accesses)


def _is_broadcast(item: object, index: n.Name) -> bool:
    """`s is 1 ? 0 : i[p:p + r]..`: the element at the same place, or the only one."""
    select = item.operand if isinstance(item, n.Expand) else None
    if not isinstance(select, n.Select) or select.then != n.Integer(0):
        return False
    condition, place = select.condition, select.otherwise
    single = isinstance(condition, n.Chain) and [(sign, one) for sign, one in condition.rest] == [
        ("is", n.Integer(1))
    ]
    return (
        single and isinstance(place, n.Index) and place.operand == index and isinstance(place.index, n.Range)
    )
