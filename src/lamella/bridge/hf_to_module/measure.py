"""The shape and type of what a weight is made of, found from the header of a checkpoint before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.bridge.hf_to_module.checkpoint import Entry
from lamella.bridge.hf_to_module.expand import Assignment
from lamella.bridge.hf_to_module.nodes import Joined, Made, Stacked, Whole
from lamella.bridge.hf_to_module.transforms import FUNCTIONS
from lamella.lang.module.rules import mappings as rules


class Measured(NamedTuple):
    """What is made: from which tensors, of which shape and type."""

    made: Made
    shape: tuple[int, ...]
    element: ElementType


class MisfitError(Exception):
    """Carries a finding to whoever plans; never leaves this package."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Ruler:
    """Measures the sources of weights in one checkpoint; `spell` gives the name under which a tensor stands in it."""

    def __init__(self, tensors: Mapping[str, Entry], spell: Callable[[str], str], head_dim: int) -> None:
        self._tensors = tensors
        self._spell = spell
        self._head = head_dim

    def measure(self, made: Made, to: Assignment) -> Measured:
        """The measure of a source; MisfitError says why it is none."""
        match made:
            case Joined():
                return self._joined(made, to)
            case Stacked(parts):
                return self._stacked(parts, to)
            case Whole():
                return self._whole(made, to)
        raise TypeError("the numbers of another weight are measured there")

    def _whole(self, made: Whole, to: Assignment) -> Measured:
        entry = self._tensors[self._spell(made.name)]
        spelled = Whole(entry.name, made.function)
        function = FUNCTIONS.get(made.function)
        if function is None:
            return Measured(spelled, entry.shape, entry.dtype)
        shape = function.shape(entry.shape, self._head)
        if function.computes and not entry.dtype.is_float:
            wanted = f"what {made.function} makes of floating numbers"
            raise MisfitError(
                rules.CHECKPOINT_DTYPE.at(to.span, name=entry.name, found=entry.dtype, wanted=wanted)
            )
        if isinstance(shape, str):
            found, name = show(entry.shape), made.function
            raise MisfitError(
                rules.FUNCTION_SHAPE.at(to.span, name=entry.name, found=found, function=name, why=shape)
            )
        return Measured(spelled, shape, entry.dtype)

    def _stacked(self, parts: Sequence[Made], to: Assignment) -> Measured:
        found = self._alike(parts, to)
        for item in found:
            if item.shape != found[0].shape:
                raise MisfitError(_fused(to, f"{show(found[0].shape)} and {show(item.shape)}"))
        shape = (len(found), *(found[0].shape if found else to.weight.shape[1:]))
        return Measured(Stacked(tuple(item.made for item in found)), shape, found[0].element)

    def _joined(self, made: Joined, to: Assignment) -> Measured:
        found, dim = self._alike(made.parts, to), made.dim
        first = found[0].shape
        if not -len(first) <= dim < len(first):
            raise MisfitError(_fused(to, f"no tensor: {show(first)} has no dimension {dim}"))
        axis = dim % len(first)
        for item in found:
            if _without(item.shape, axis) != _without(first, axis) or len(item.shape) != len(first):
                raise MisfitError(_fused(to, f"no tensor: {show(first)} and {show(item.shape)} do not join"))
        sizes = [item.shape[axis] for item in found]
        if made.bounds:
            order = _check_bounds(made.bounds, sizes, axis, to)
            found = [found[index] for index in order]
        shape = (*first[:axis], sum(sizes), *first[axis + 1 :])
        return Measured(Joined(tuple(item.made for item in found), axis), shape, found[0].element)

    def _alike(self, parts: Sequence[Made], to: Assignment) -> list[Measured]:
        """The measures of parts that are of one type."""
        found = [self.measure(part, to) for part in parts]
        for item in found:
            if item.element != found[0].element:
                path, first, second = to.weight.path, found[0].element, item.element
                raise MisfitError(rules.FUSED_DTYPE.at(to.span, path=path, first=first, second=second))
        if not found:
            raise MisfitError(_fused(to, "nothing"))
        return found


def show(shape: Sequence[int]) -> str:
    """A shape as messages write it."""
    return f"[{', '.join(map(str, shape))}]"


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _fused(to: Assignment, found: str) -> Diagnostic:
    wanted, values = show(to.weight.shape), to.weight.values
    return rules.FUSED_SHAPE.at(to.span, path=to.weight.path, wanted=wanted, found=found, values=values)


def check_ranges(bounds: Sequence[tuple[int, int]], extent: int, axis: int, to: Assignment) -> list[int]:
    """The order of ranges that cover a dimension without gap or overlap; MisfitError where they do not."""
    order = sorted(range(len(bounds)), key=lambda index: bounds[index])
    position = 0
    for index in order:
        low, high = bounds[index]
        if low != position or high < low:
            why = "overlap" if low < position else "leave a gap"
            raise MisfitError(_covering(to, why if high >= low else "run backwards", axis, extent))
        position = high
    if position != extent:
        raise MisfitError(_covering(to, f"end at {position}", axis, extent))
    return order


def _covering(to: Assignment, why: str, axis: int, extent: int) -> Diagnostic:
    return rules.COVERING.at(to.span, path=to.weight.path, why=why, dim=axis, extent=extent)


def _check_bounds(
    bounds: Sequence[tuple[int, int]], sizes: Sequence[int], axis: int, to: Assignment
) -> list[int]:
    """The order of the parts of a split, each as long as its range."""
    shape = to.weight.shape
    extent = shape[axis] if axis < len(shape) else 0
    order = check_ranges(bounds, extent, axis, to)
    for (low, high), size in zip(bounds, sizes, strict=True):
        if high - low != size:
            why = f"give {high - low} to a tensor of {size}"
            raise MisfitError(_covering(to, why, axis, extent))
    return order
