"""Python's arithmetic on sizes, and the choice of one result out of several, as exported programs contain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from lamella.base import dim
from lamella.base.dim import Dim, Extent, TooComplex, Truth
from lamella.base.errors import Found
from lamella.base.source import NOWHERE
from lamella.bridge.aten.nodes import Operand, Result
from lamella.bridge.aten.site import as_extent, show
from lamella.graph.nodes import Tensor
from lamella.lang.skriptnd.rules.aten import SIZE_ARITHMETIC

LARGEST_POWER = 16

_Rule: TypeAlias = Callable[..., Extent]
_Question: TypeAlias = Callable[[Extent, Extent], Truth]


def is_size_operation(name: str) -> bool:
    """Whether a name is one of Python's that `compute_size` knows."""
    return name == "getitem" or name in _RULES or name in _QUESTIONS


def compute_size(name: str, operands: Sequence[Operand | Result]) -> Result:
    """What an operation of Python gives for sizes: `add`, `floordiv`, `getitem` …; a Problem says why it gives none.

    A comparison that only the run decides gives None: nothing but an assertion may use it.
    """
    if name == "getitem":
        return _pick(operands)
    extents = [_extent(name, item, operands) for item in operands]
    try:
        if name in _QUESTIONS and len(extents) == 2:
            answer = _QUESTIONS[name](extents[0], extents[1])
            return answer if isinstance(answer, bool) else None
        if name in _RULES and len(extents) == _count(name):
            return _bounded(_RULES[name](*extents))
    except ZeroDivisionError:
        raise _refuse(name, operands, "a divisor is zero") from None
    except TooComplex:
        raise _refuse(name, operands, "it is too complex to follow") from None
    except ValueError as error:
        raise _refuse(name, operands, str(error)) from None
    raise _refuse(name, operands, "there is no such operation on so many sizes")


def _refuse(name: str, operands: Sequence[Operand | Result], reason: str) -> Found:
    shown = ", ".join(show(item) for item in operands)
    return Found(SIZE_ARITHMETIC.at(NOWHERE, name=name, operands=shown, reason=reason))


def _extent(name: str, item: Operand | Result, operands: Sequence[Operand | Result]) -> Extent:
    found = as_extent(item)
    if found is not None:
        return found
    raise _refuse(name, operands, f"{show(item)} is no integer")


def _pick(operands: Sequence[Operand | Result]) -> Result:
    """One of several results."""
    if len(operands) != 2:
        raise _refuse("getitem", operands, "it takes a tuple and a place in it")
    group, place = operands
    if not isinstance(group, tuple) or not isinstance(place, int):
        raise _refuse("getitem", operands, "it takes a tuple and a place in it")
    if not -len(group) <= place < len(group):
        raise _refuse("getitem", operands, f"there are {len(group)} results")
    found = group[place]
    if found is None:
        raise _refuse("getitem", operands, "this result is not computed here")
    if isinstance(found, Tensor | int | Dim | tuple):
        return _result(found)
    raise _refuse("getitem", operands, f"{show(found)} is neither a tensor nor a size")


def _result(value: Tensor | Extent | tuple[Operand | Result, ...]) -> Result:
    if isinstance(value, tuple):
        kept = [item for item in value if isinstance(item, Tensor | int | Dim | tuple)]
        return tuple(_result(item) for item in kept)
    return value


def _differ(left: Extent, right: Extent) -> Truth:
    return dim.negate(dim.equal(left, right))


def _bounded(value: Extent) -> Extent:
    """A size that has 64 bits, as every number of an exported program has."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("it has more than 64 bits")
    return value


def _negate(value: Extent) -> Extent:
    return dim.mul(value, -1)


def _same(value: Extent) -> Extent:
    return value


def _power(base: Extent, exponent: Extent) -> Extent:
    if not isinstance(exponent, int) or not 0 <= exponent <= LARGEST_POWER:
        raise ValueError(f"the exponent is {exponent}; 0 to {LARGEST_POWER} are possible")
    found: Extent = 1
    for _ in range(exponent):
        found = dim.mul(found, base)
    return found


def _divide(left: Extent, right: Extent) -> Extent:
    """A quotient that is whole."""
    found = dim.floor_divide(left, right)
    if dim.mul(found, right) != left:
        raise ValueError("the quotient has a fraction; floordiv gives a size")
    return found


_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        **{"add": dim.add, "sub": dim.sub, "mul": dim.mul, "floordiv": dim.floor_divide},
        **{"mod": dim.remainder, "neg": _negate, "pow": _power, "truediv": _divide},
        **{"sym_max": dim.larger, "sym_min": dim.smaller, "max": dim.larger, "min": dim.smaller},
        **{"pos": _same, "sym_int": _same, "sym_float": _same, "trunc": _same, "floor": _same, "ceil": _same},
    }
)
_SINGLE = frozenset(("neg", "pos", "sym_int", "sym_float", "trunc", "floor", "ceil"))
_QUESTIONS: Mapping[str, _Question] = MappingProxyType(
    {
        **{"eq": dim.equal, "ne": _differ, "lt": dim.less, "le": dim.less_equal},
        "gt": lambda left, right: dim.less(right, left),
        "ge": lambda left, right: dim.less_equal(right, left),
    }
)


def _count(name: str) -> int:
    return 1 if name in _SINGLE else 2
