"""Whether stored data are what a variable asks for, and what they are as its array."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, cast, element_type_of
from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.base.source import Span
from lamella.graph.data.dat import Stored
from lamella.graph.nodes import Quantization, Tensor, Value
from lamella.lang.skriptnd.rules import data as rules

Found = tuple[Array | None, list[Diagnostic]]


def describe(tensor: Tensor) -> str:
    """A tensor's type as messages say it."""
    return f"{tensor.element}[{', '.join(str(extent) for extent in tensor.shape)}]"


def fit(variable: Tensor, stored: Stored | Array, place: Span) -> Found:
    """The array of a variable from what a file holds, or why it is none."""
    values = stored.values if isinstance(stored, Stored) else stored
    if values.shape != variable.shape:
        return None, [_wrong(variable, place, list(values.shape), shape=True)]
    if isinstance(stored, Stored) and stored.item.is_code:
        return _from_codes(variable, stored, place)
    element = element_type_of(values.dtype)
    wanted = variable.element
    if element == wanted:
        return values, []
    if element is None or element.is_float != wanted.is_float or types.BOOL in (element, wanted):
        return None, [_wrong(variable, place, element or values.dtype)]
    if wanted.is_float:
        return _convert_floats(variable, values, element, place)
    return _convert_integers(variable, values, place)


def _wrong(variable: Tensor, place: Span, found: object, shape: bool = False) -> Diagnostic:
    rule = rules.WRONG_SHAPE if shape else rules.WRONG_TYPE
    return rule.at(place, name=variable.name, type=describe(variable), found=found)


def _convert_floats(variable: Tensor, values: Array, element: ElementType, place: Span) -> Found:
    """Wider types hold the numbers of narrower ones; the other way round they are rounded, which is said."""
    converted = cast(values, variable.element)
    if element.bits < variable.element.bits:
        return converted, []
    finding = rules.ROUNDED_DATA.at(place, name=variable.name, found=element, type=variable.element)
    return converted, [finding]


def _convert_integers(variable: Tensor, values: Array, place: Span) -> Found:
    """Any integer type will do whose values the variable can hold."""
    least, most = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for value in (least, most):
        if not variable.element.minimum <= value <= variable.element.maximum:
            finding = rules.DATA_DO_NOT_FIT.at(
                place, name=variable.name, type=describe(variable), value=value
            )
            return None, [finding]
    return cast(values, variable.element), []


# --- codes of quantised values ------------------------------------------------------------------------------


def _from_codes(variable: Tensor, stored: Stored, place: Span) -> Found:
    if not variable.element.is_float:
        return None, [_wrong(variable, place, f"codes of {stored.bits} bits")]
    numbers = _decode(stored.values.astype(np.float64), variable.quantization)
    if numbers is None:
        finding = rules.CODES_WITHOUT_SCALE.at(place, name=variable.name, bits=stored.bits)
        return None, [finding]
    return cast(numbers, variable.element), []


def _decode(codes: Array, quantization: Quantization | None) -> Array | None:
    """What codes stand for: the second half of the linear quantizers of module `quant`."""
    if quantization is None:
        return None
    attributes = dict(quantization.attributes)
    if quantization.operator == "quant.zero_point_linear_quantize":
        low, part = np.zeros(()), codes - _along(attributes, "zero_point", codes)
        size = _along(attributes, "scale", codes)
    elif quantization.operator == "quant.min_max_linear_quantize":
        low, part = _along(attributes, "min", codes), (codes + _shift(attributes)) / _steps(attributes)
        size = _along(attributes, "max", codes) - low
    else:
        return None
    numbers: Array = part * size + low
    return numbers


def _along(attributes: Mapping[str, Value], name: str, codes: Array) -> Array:
    """An attribute as an array that broadcasts along the channel axis."""
    values = np.asarray(attributes[name], np.float64)
    if values.size <= 1:
        return values.reshape(())
    shape = [1] * codes.ndim
    shape[_integer(attributes, "channel_axis")] = -1
    return values.reshape(shape)


def _integer(attributes: Mapping[str, Value], name: str) -> int:
    value = attributes[name]
    return int(value) if isinstance(value, int) else 0


def _shift(attributes: Mapping[str, Value]) -> float:
    """The code that stands for the minimum, negated."""
    if not attributes["signed"]:
        return 0.0
    return float((1 << _integer(attributes, "bits") - 1) - bool(attributes["symmetric"]))


def _steps(attributes: Mapping[str, Value]) -> float:
    """How many steps lie between the minimum and the maximum."""
    narrowed = bool(attributes["signed"] and attributes["symmetric"])
    return float((1 << _integer(attributes, "bits")) - 1 - narrowed)
