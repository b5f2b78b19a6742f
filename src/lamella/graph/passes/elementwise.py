"""Which operators work element by element: read off their formulas."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.lang.skriptnd import nodes as n
from lamella.ops.evaluate.walk import walk


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
    place = (n.Expand(n.Name(bound.index)),)
    found = list(_parts(lowering))
    accesses = [item for item in found if isinstance(item, n.Access)]
    fits = all(item.tensor == source and item.indices == place for item in accesses)
    loose = sum(1 for item in found if isinstance(item, n.Name) and item.id in (bound.index, symbol))
    members = any(isinstance(item, n.Member) for item in found)
    same = lowering.target.indices == place and bound.limit == n.Name(symbol)
    return fits and same and not members and loose == len(accesses)


def _parts(lowering: n.Lowering) -> Iterator[object]:
    """Everything on the right of a formula, its local values included."""
    for expr in (lowering.value, lowering.condition, *(item.value for item in lowering.locals)):
        if expr is not None:
            yield from walk(expr)
