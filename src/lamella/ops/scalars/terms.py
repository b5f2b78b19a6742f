"""Terms of formulas, made with what is known already computed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping

from lamella.base import dim
from lamella.base.dim import Dim, Extent, Logic, Test, Truth
from lamella.base.limits import in_range
from lamella.lang.skriptnd.rules.lowering import GUARD_PLACE
from lamella.lang.skriptnd.rules.types import OPERAND, OPERAND_TYPES
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Guard, Index, Scalar
from lamella.ops.scalars.values import CONDITIONS, SCALARS, TERMS, word_of

# --- which values an index can have, and which guards it therefore does not need ----------------------------


RANGES = "|ranges|"
"""The name under which a scope holds the extents of loop indices; no identifier is spelled so."""
Ends = tuple[int, int]


def unguard(part: object, extent: object, ranges: Mapping[str, Extent]) -> object:
    """A guarded index without its guard where it cannot leave its range."""
    if not isinstance(part, Guard) or not isinstance(extent, int | Dim):
        return part
    ends = ends_of(part.index, ranges, {})
    if ends is not None and ends[0] >= 0 and ends[1] < dim.bounds(extent)[0]:
        return part.index
    if isinstance(part.index, Index) and ranges.get(part.index.name) == extent:
        return part.index
    return part


def ends_of(value: object, ranges: Mapping[str, Extent], known: dict[int, Ends | None]) -> Ends | None:
    """The smallest and the largest value of an index; None where nothing is known."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, Dim):
        return dim.bounds(value)
    if isinstance(value, Index):
        extent = ranges.get(value.name)
        return None if extent is None else (0, max(dim.bounds(extent)[1] - 1, 0))
    if not isinstance(value, Apply):
        return None
    key = id(value)
    if key not in known:
        # Guards against terms that are nested deeper than anything an index needs.
        known[key] = None if len(known) > MOST_PARTS else _ends_of_apply(value, ranges, known)
    return known[key]


MOST_PARTS = 100


def _ends_of_apply(value: Apply, ranges: Mapping[str, Extent], known: dict[int, Ends | None]) -> Ends | None:
    if value.function not in ("+", "-", "*", "<<", ">>"):
        return None
    known[id(value)] = None
    left, right = (ends_of(item, ranges, known) for item in value.operands)
    if left is None or right is None:
        return None
    found = _combine(value.function, left, right)
    # The run wraps around where exact numbers would go on growing.
    return found if in_range(found[0]) and in_range(found[1]) else None


def _combine(function: str, left: Ends, right: Ends) -> Ends:
    if function == "+":
        return left[0] + right[0], left[1] + right[1]
    if function == "-":
        return left[0] - right[1], left[1] - right[0]
    if function == "*":
        corners = [a * b for a in left for b in right]
        return min(corners), max(corners)
    pick = min if function == "<<" else max
    return pick(left[0], right[0]), pick(left[1], right[1])


LARGEST_POWER = 16
LARGEST_EXPONENT = 1023

COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))
LOGICAL = frozenset(("&&", "||", "^", "=>"))
_KNOWN: Mapping[str, Callable[[float, float], bool]] = {
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    **{"==": operator.eq, "!=": operator.ne},
}


def is_extent(value: object) -> bool:
    """Whether a value is an integer that may be symbolic."""
    return type(value) is int or type(value) is Dim or (isinstance(value, int) and type(value) is not bool)


def is_truth(value: object) -> bool:
    """Whether a value is a truth value that may be undecided."""
    return type(value) is bool or isinstance(value, CONDITIONS)


def is_term(value: object) -> bool:
    """Whether a value is computed by the run."""
    return isinstance(value, TERMS)


def refuse(sign: str, *operands: object) -> Fault:
    """The fault of operands that an operator does not take."""
    if any(isinstance(item, Guard) for item in operands):
        return Fault(GUARD_PLACE, text="…")
    words = list(dict.fromkeys(word_of(item) for item in operands))
    if len(words) == 2 and len(operands) == 2:
        return Fault(OPERAND_TYPES, sign=sign, left=words[0], right=words[1])
    return Fault(OPERAND, sign=sign, type=_list_words(words))


def _list_words(words: Iterable[str]) -> str:
    """Words as a sentence lists them."""
    listed = list(words)
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def combine(sign: str, left: object, right: object) -> object:
    """A binary operator where at least one operand is symbolic."""
    if isinstance(left, int | Dim) and isinstance(right, int | Dim) and is_extent(left) and is_extent(right):
        return _combine_extents(sign, left, right)
    if isinstance(left, bool | Test | Logic) and isinstance(right, bool | Test | Logic):
        return _combine_truths(sign, left, right)
    if sign in COMPARISONS and word_of(left) != word_of(right):
        left, right = _promoted(sign, left, right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return _KNOWN[sign](left, right)
    if is_term(left) or is_term(right):
        return _combine_terms(sign, left, right)
    raise refuse(sign, left, right)


_RANKS = ("bool", "int", "real")
"""Numbers in the order in which a comparison promotes them: 0 and 1 for truth values, then reals for integers."""


def _promoted(sign: str, left: object, right: object) -> tuple[object, object]:
    """Two operands of a comparison whose types differ, which only generic types can make: the narrower is cast."""
    words = word_of(left), word_of(right)
    if not all(word in _RANKS for word in words):
        raise refuse(sign, left, right)
    word = max(words, key=_RANKS.index)
    return _cast(left, word), _cast(right, word)


def _cast(value: object, word: str) -> object:
    if word_of(value) == word:
        return value
    if isinstance(value, int) and word == "int":
        return int(value)
    if isinstance(value, int):
        # A real has an exponent of its own: an integer beyond it is beyond every real.
        return float(value) if value.bit_length() <= LARGEST_EXPONENT else math.copysign(math.inf, value)
    return apply("cast", word, value)


def _combine_extents(sign: str, left: Extent, right: Extent) -> object:
    rule = _EXTENTS.get(sign)
    if rule is None:
        raise refuse(sign, left, right)
    return rule(left, right)


def _power(left: Extent, right: Extent) -> Extent:
    """A symbolic extent to a known small power."""
    if not isinstance(right, int) or not 0 <= right <= LARGEST_POWER:
        raise refuse("**", left, right)
    result: Extent = 1
    for _ in range(right):
        result = dim.mul(result, left)
    return result


_EXTENTS: Mapping[str, Callable[[Extent, Extent], object]] = {
    "+": dim.add,
    "-": dim.sub,
    "*": dim.mul,
    "/": dim.floor_divide,
    "\\": dim.ceil_divide,
    "%": dim.remainder,
    "<<": dim.smaller,
    ">>": dim.larger,
    "**": _power,
    "<": dim.less,
    "<=": dim.less_equal,
    ">": lambda left, right: dim.less(right, left),
    ">=": lambda left, right: dim.less_equal(right, left),
    "==": dim.equal,
    "!=": lambda left, right: dim.negate(dim.equal(left, right)),
}

_TRUTHS: Mapping[str, Callable[[Truth, Truth], Truth]] = {
    "&&": dim.both,
    "||": dim.either,
    "^": dim.differ,
    "!=": dim.differ,
    "==": lambda left, right: dim.negate(dim.differ(left, right)),
    "=>": lambda left, right: dim.either(dim.negate(left), right),
    "<": lambda left, right: dim.both(dim.negate(left), right),
    "<=": lambda left, right: dim.either(dim.negate(left), right),
    ">": lambda left, right: dim.both(left, dim.negate(right)),
    ">=": lambda left, right: dim.either(left, dim.negate(right)),
}


def _combine_truths(sign: str, left: Truth, right: Truth) -> object:
    rule = _TRUTHS.get(sign)
    if rule is None:
        raise refuse(sign, left, right)
    return rule(left, right)


def _combine_terms(sign: str, left: object, right: object) -> object:
    word = word_of(left)
    if word != word_of(right) or word not in _TAKES.get(sign, ()):
        raise refuse(sign, left, right)
    if word == "bool" and sign in _ORDERINGS:
        return _order_truths(sign, left, right)
    short = _simplify(sign, left, right) if word != "real" else None
    if short is not None:
        return short
    return apply(sign, "bool" if sign in COMPARISONS else word, left, right)


def _order_truths(sign: str, left: object, right: object) -> object:
    """Truth values by their order, in which false comes before true."""
    low, high = (left, right) if sign in ("<", "<=") else (right, left)
    return combine("&&" if sign in ("<", ">") else "||", negate(low), high)


_NUMBERS = ("int", "real")
_ORDERINGS = ("<", "<=", ">", ">=")
_TAKES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("+", "-", "*", "/", "\\", "%", "**", "<<", ">>"), _NUMBERS),
    **dict.fromkeys(_ORDERINGS, ("int", "real", "bool")),
    **dict.fromkeys(("==", "!="), ("int", "real", "bool", "str")),
    **dict.fromkeys(LOGICAL, ("bool",)),
}


def _simplify(sign: str, left: object, right: object) -> object:
    """What integers and truth values give without computing; None where nothing is known."""
    for known, other in ((left, right), (right, left)):
        if type(known) is bool:
            return _with_truth(sign, known, other, known is left)
    if type(right) is int and (sign, right) in _NEUTRAL:
        return left
    if type(left) is int and (sign, left) in (("+", 0), ("*", 1)):
        return right
    return (
        0 if sign == "*" and (left == 0 or right == 0) and (type(left) is int or type(right) is int) else None
    )


_NEUTRAL = frozenset((("+", 0), ("-", 0), ("*", 1), ("/", 1), ("\\", 1), ("**", 1)))


def _with_truth(sign: str, known: bool, other: object, first: bool) -> object:
    if sign == "&&":
        return other if known else False
    if sign == "||":
        return True if known else other
    if sign == "=>":
        if first:
            return other if known else True
        return True if known else negate(other)
    return negate(other) if known == (sign in ("^", "!=")) else other


def negate(value: object) -> object:
    """`!value` of a truth value."""
    if isinstance(value, bool | Test | Logic):
        return dim.negate(value)
    if word_of(value) != "bool":
        raise refuse("!", value)
    if isinstance(value, Apply) and value.function == "!":
        return value.operands[0]
    return apply("!", "bool", value)


def apply(function: str, word: str, *operands: object) -> Apply:
    """A function of scalars, for the run to compute."""
    checked: list[Scalar] = []
    for item in operands:
        if not isinstance(item, SCALARS):
            raise refuse(function, item)
        checked.append(item)
    return Apply(function, tuple(checked), word)
