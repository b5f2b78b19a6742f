"""The values of one task's attributes: counts, ranges and axes that fit its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import find_in
from lamella.lang.nem.check.operands import Call
from lamella.lang.nem.rules import ATTRIBUTE_VALUE

PAD_MODES = ("constant", "edge", "reflect")
SHOWN = 12


def check_attributes(call: Call) -> Iterator[Diagnostic]:
    """Attribute values make sense for the operands of the task; each wrong one is one finding."""
    for name in call.opcode.attributes:
        if name not in _WANTS or call.value(name) is None:
            continue
        wanted = _WANTS[name](call, name)
        if wanted:
            yield ATTRIBUTE_VALUE.at(
                call.place_of(name),
                name=name,
                opcode=call.opcode.name,
                found=_shown(call, name),
                wanted=wanted,
            )


def count_axis(axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones count from the back."""
    return axis + rank if axis < 0 else axis


def show_shape(values: Sequence[int]) -> str:
    """A list of numbers as the text writes it; a long one is cut."""
    more = f", … ({len(values)} values)" if len(values) > SHOWN else ""
    return f"[{', '.join(map(str, values[:SHOWN]))}{more}]"


def _shown(call: Call, name: str) -> str:
    value = call.value(name)
    return show_shape(value) if isinstance(value, tuple) else str(value)


# Each function says what an attribute must be, or nothing where it is that.


def _axis(call: Call, name: str) -> str:
    rank = _rank(call)
    return "" if -rank <= call.integer(name) < rank else f"it must lie between {-rank} and {rank - 1}"


def _axes(call: Call, name: str) -> str:
    rank, axes = _rank(call), call.integers(name)
    if not axes:
        return "it must name at least one axis"
    if not all(-rank <= axis < rank for axis in axes):
        return f"its values must lie between {-rank} and {rank - 1}"
    return _distinct([count_axis(axis, rank) for axis in axes])


def _distinct(axes: Sequence[int]) -> str:
    return "" if len(set(axes)) == len(axes) else "it names an axis twice"


def _per_axis(call: Call, name: str) -> str:
    """One positive number for each spatial axis."""
    values = call.integers(name)
    return _counted(values, _rank(call) - 2) or _at_least(values, 1)


def _pads(call: Call, name: str) -> str:
    """All begins, then all ends: over the spatial axes of a window, over all axes of pad."""
    values = call.integers(name)
    axes = _rank(call) if call.opcode.name == "pad" else _rank(call) - 2
    wrong = _counted(values, 2 * axes) or _at_least(values, 0)
    if wrong:
        return wrong
    if "kernel_shape" in call.opcode.attributes:
        return _inside_kernel(call, values)
    return _reflectable(call, values) if call.value("mode") == "reflect" else ""


def _inside_kernel(call: Call, pads: Sequence[int]) -> str:
    """Every window of a pool holds at least one real element."""
    kernel = call.integers("kernel_shape")
    outside = [size for pad, size in zip(pads, (*kernel, *kernel), strict=False) if pad >= size > 0]
    return f"each pad must be smaller than the kernel's {outside[0]}" if outside else ""


def _reflectable(call: Call, pads: Sequence[int]) -> str:
    shape = call.inputs["X"].shape
    beyond = [size for pad, size in zip(pads, (*shape, *shape), strict=True) if pad >= size]
    return f"reflect reaches at most {beyond[0] - 1} of {beyond[0]} elements" if beyond else ""


def _groups(call: Call, name: str) -> str:
    return "" if call.integer(name) >= 1 else "it must be at least 1"


def _perm(call: Call, name: str) -> str:
    rank = _rank(call)
    if sorted(call.integers(name)) == list(range(rank)):
        return ""
    return f"it must name each axis from 0 to {rank - 1} once"


def _target_shape(call: Call, name: str) -> str:
    values = call.integers(name)
    if not values:
        return "it needs at least one dimension"
    if any(size < 1 and size != -1 for size in values):
        return "dimensions must be positive; one may be -1"
    return "" if values.count(-1) <= 1 else "only one dimension may be -1"


def _bounds_of_slice(call: Call, name: str) -> str:
    """Starts, ends and steps go with the axes, one each."""
    values, axes = call.integers(name), call.value("axes")
    wrong = _counted(values, len(axes)) if isinstance(axes, tuple) else ""
    if not wrong and name == "steps" and 0 in values:
        return "a step must not be 0"
    return wrong


def _split_sizes(call: Call, name: str) -> str:
    values, axis = call.integers(name), call.value("axis")
    wrong = _counted(values, len(call.outputs)) or _at_least(values, 1)
    shape = call.inputs["X"].shape
    if wrong or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return wrong
    total = sum(values)
    return "" if total == shape[axis] else f"its sum {total} must be the {shape[axis]} of axis {axis}"


def _mode(call: Call, name: str) -> str:
    return (
        "" if call.value(name) in PAD_MODES else f"it must be {', '.join(PAD_MODES[:-1])} or {PAD_MODES[-1]}"
    )


def _constant_value(call: Call, name: str) -> str:
    """What fills an unquantised integer tensor is one of its integers."""
    value, kind = call.value(name), call.inputs["X"]
    element = find_in("nem", kind.elem)
    if not isinstance(value, int | float) or element is None or not element.is_integer or kind.quant:
        return ""
    if math.isfinite(value) and value == int(value) and element.minimum <= value <= element.maximum:
        return ""
    return f"{kind.elem} holds integers from {element.minimum} to {element.maximum}"


def _epsilon(call: Call, name: str) -> str:
    value = call.value(name)
    return "it must not be negative" if isinstance(value, int | float) and value < 0 else ""


def _min_val(call: Call, name: str) -> str:
    low, high = call.value(name), call.value("max_val")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        return f"it must not exceed max_val {high}"
    return ""


def _rank(call: Call) -> int:
    """The rank of the first input, which attributes speak of."""
    return len(next(iter(call.inputs.values())).shape)


def _counted(values: Sequence[int], count: int) -> str:
    return "" if len(values) == count else f"it needs {count} value{'' if count == 1 else 's'}"


def _at_least(values: Sequence[int], least: int) -> str:
    return "" if all(value >= least for value in values) else f"its values must be at least {least}"


_WANTS: Mapping[str, Callable[[Call, str], str]] = MappingProxyType(
    {
        **{"axis": _axis, "axes": _axes, "perm": _perm, "target_shape": _target_shape},
        **{"kernel_shape": _per_axis, "strides": _per_axis, "dilations": _per_axis, "pads": _pads},
        **{"starts": _bounds_of_slice, "ends": _bounds_of_slice, "steps": _bounds_of_slice},
        **{"groups": _groups, "split_sizes": _split_sizes, "mode": _mode},
        **{"constant_value": _constant_value, "epsilon": _epsilon, "min_val": _min_val},
    }
)
