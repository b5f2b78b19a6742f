"""What can stand for a parameter of an ATen schema, by the words of its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.dim import Dim
from lamella.base.dtype import C32, C64, ElementType, find_in
from lamella.bridge.aten.nodes import Operand
from lamella.bridge.nac_to_graph.nodes import first_tensor
from lamella.graph.nodes import Tensor

WITHOUT_EFFECT = frozenset({"Device", "Layout", "MemoryFormat", "Generator", "Stream"})
"""Types whose values change nothing that a graph says."""
IGNORED = frozenset({"pin_memory", "non_blocking"})
"""Parameters of other types with the same fate."""
COMPUTED = frozenset({"Tensor", "Scalar", "int", "SymInt", "float", "bool", "SymBool"})
"""Types that results of instructions can have."""
_KIND = re.compile(r"(\w+)(\?)?(?:\[(\d*)\](\?)?)?")
_DEVICE = re.compile(r"(?:cpu|cuda|meta|mps|xpu|hpu|xla|vulkan|mkldnn|mtia|privateuseone)(?::\d{1,4})?")
_LAYOUT = re.compile(r"strided|sparse_\w+|_mkldnn|jagged")
_FORMAT = re.compile(r"\w+_format|channels_last(?:_3d)?")
_COMPLEX: Mapping[str, ElementType] = MappingProxyType({"complex64": C32, "complex128": C64})


class Kind(NamedTuple):
    """A type of ATen: `SymInt[2]?` is an optional list of two SymInt, `Tensor?[]` a list of optional tensors."""

    base: str
    optional: bool
    many: bool = False
    length: int | None = None
    empty_items: bool = False


class Fit(NamedTuple):
    """A value as a parameter takes it, and how far it had to be bent."""

    value: Operand
    cost: int = 0


@cache
def read_kind(text: str) -> Kind:
    """The type that ATen's words say."""
    match = _KIND.fullmatch(text)
    if match is None:
        return Kind(text, optional=False)
    base, inner, length, outer = match.groups()
    if length is None:
        return Kind(base, optional=inner is not None)
    return Kind(base, outer is not None, True, int(length) if length else None, inner is not None)


def fit(base: str, value: Operand) -> Fit | None:
    """A single value as a type takes it; None where it does not."""
    rule = _FITS.get(base)
    return None if rule is None or value is None else rule(value)


def fit_list(kind: Kind, values: tuple[Operand, ...]) -> Fit | None:
    """A list as a type takes it."""
    found = [fit_item(kind, item) for item in values]
    kept = [item for item in found if item is not None]
    if len(kept) != len(found):
        return None
    return Fit(tuple(item.value for item in kept), sum(item.cost for item in kept))


def fit_item(kind: Kind, value: Operand) -> Fit | None:
    """An item of a list as its type takes it."""
    if value is None:
        return Fit(None) if kind.empty_items else None
    if kind.base == "bool" and isinstance(value, int) and value in (0, 1):
        # A constant list holds integers alone, so that `[True, False]` arrives as `(1, 0)`.
        return Fit(bool(value))
    return fit(kind.base, value)


def _is_number(value: Operand) -> bool:
    return isinstance(value, bool | int | float | Dim)


def _tensor(value: Operand) -> Fit | None:
    found = first_tensor(value)
    if found is not None:
        return Fit(found, 0 if isinstance(value, Tensor) else 1)
    # A number may stand for a tensor: `aten.add.Tensor(x, 2)` is how torch exports x + 2.
    return Fit(value, 2) if _is_number(value) else None


def _scalar(value: Operand) -> Fit | None:
    # A truth value is a number, but rather one of another parameter.
    return Fit(value, int(isinstance(value, bool))) if _is_number(value) else None


def _integer(value: Operand) -> Fit | None:
    return Fit(value) if isinstance(value, int | Dim) and not isinstance(value, bool) else None


def _number(value: Operand) -> Fit | None:
    if isinstance(value, float):
        return Fit(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
        return Fit(float(value), 1)
    return None


def _truth(value: Operand) -> Fit | None:
    return Fit(value) if isinstance(value, bool) else None


def _word(value: Operand) -> Fit | None:
    return Fit(value) if isinstance(value, str) else None


def _element(value: Operand) -> Fit | None:
    found = find_element(value) if isinstance(value, str) else None
    return None if found is None else Fit(found)


def find_element(word: str) -> ElementType | None:
    """The element type that torch calls by a word."""
    short = word.removeprefix("torch.")
    return find_in("nac", short) or _COMPLEX.get(short)


def _words(pattern: re.Pattern[str]) -> Callable[[Operand], Fit | None]:
    return lambda value: Fit(value) if isinstance(value, str) and pattern.fullmatch(value) else None


_FITS: Mapping[str, Callable[[Operand], Fit | None]] = MappingProxyType(
    {
        **{"Tensor": _tensor, "Scalar": _scalar, "int": _integer, "SymInt": _integer, "float": _number},
        **{"bool": _truth, "str": _word, "ScalarType": _element, "SymBool": _truth},
        **{"Device": _words(_DEVICE), "Layout": _words(_LAYOUT), "MemoryFormat": _words(_FORMAT)},
    }
)
