"""Memory footprints of work-groups: the first and the last element of each parameter that one may touch.

Indices are followed as intervals: the number of the work-group is known, lanes and subgroups are any of theirs, a loop
goes from its begin to its end, and what comes out of memory is anything. An access that is run lies inside its memref.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.build import regions
from lamella.kernels.rewrite import used_values
from lamella.lang.tensor.nodes import (
    Arith,
    Builtin,
    Cast,
    Constant,
    For,
    Foreach,
    Function,
    Instruction,
    Load,
    Memref,
    Region,
    Store,
    Value,
)

Interval = tuple[int, int]
"""The least and the largest integer that a value may be."""
ANYTHING: Interval = (-(1 << 62), 1 << 62)


@dataclass(frozen=True, slots=True)
class Footprint:
    """The elements of a memref that are touched, counted from its first: all lie from the first to the last."""

    first: int
    last: int
    is_written: bool

    def joined(self, other: Footprint) -> Footprint:
        """The union of two footprints."""
        return Footprint(
            min(self.first, other.first), max(self.last, other.last), self.is_written or other.is_written
        )


def find_footprints(function: Function, group: int, sizes: tuple[int, int]) -> dict[str, Footprint]:
    """The footprint of a work-group in each parameter; `sizes` are the lanes of a subgroup, and the subgroups.

    Unsupported: a parameter is seen in another way than by loads and stores.
    """
    types = {item.value.name: item.type for item in function.parameters}
    known = {name: type_ for name, type_ in types.items() if isinstance(type_, Memref)}
    following = _Following(known, {"group_id": (group, group)})
    following.builtins["subgroup_local_id"] = (0, sizes[0] - 1)
    following.builtins["subgroup_id"] = (0, sizes[1] - 1)
    following.visit(function.body)
    return following.found


@dataclass(slots=True)
class _Following:
    """The intervals of the values of a kernel."""

    memrefs: Mapping[str, Memref]
    builtins: dict[str, Interval]
    found: dict[str, Footprint] = field(default_factory=dict)
    values: dict[str, Interval] = field(default_factory=dict)

    def visit(self, region: Region) -> None:
        """Follow the statements of a region."""
        for statement in region.statements:
            node = statement.instruction
            match node:
                case Load():
                    self._touch(node.operand, node.indices, False)
                case Store():
                    self._touch(node.operand, node.indices, True)
                case For():
                    self.values[node.variable.name] = self._counted(node.begin, node.end, node.step)
                case Foreach():
                    pairs = zip(node.begins, node.ends, strict=True)
                    for variable, pair in zip(node.variables, pairs, strict=True):
                        self.values[variable.name] = self._counted(*pair)
                case _:
                    self._verify(node)
            for inner in regions(node):
                self.visit(inner)
            if len(statement.results) == 1:
                self.values[statement.results[0].name] = self._interval(node)

    def _verify(self, node: Instruction) -> None:
        """Refuse what makes another view of a parameter, or touches it as a whole."""
        if not regions(node) and any(item.name in self.memrefs for item in used_values(node)):
            raise Unsupported("a parameter is seen in another way than by loads and stores")

    def _of(self, value: Value) -> Interval:
        return self.values.get(value.name, ANYTHING)

    def _counted(self, begin: Value, end: Value, step: Value | None = None) -> Interval:
        (first, other), last = self._of(begin), self._of(end)[1] - 1
        by, most = (1, 1) if step is None else self._of(step)
        if first == other and by == most > 0 and last > first:
            last -= (last - first) % by
        return first, max(first, last)

    def _touch(self, operand: Value, indices: Sequence[Value], is_written: bool) -> None:
        type_ = self.memrefs.get(operand.name)
        if type_ is None:
            return
        first = last = 0
        for index, size, stride in zip(indices, type_.shape, type_.stride, strict=True):
            if size is None or stride is None or stride < 0:
                raise Unsupported("its sizes are not known")
            low, high = self._of(index)
            first += stride * min(max(low, 0), size - 1)
            last += stride * max(min(high, size - 1), 0)
        own, before = Footprint(first, last, is_written), self.found.get(operand.name)
        self.found[operand.name] = own if before is None else before.joined(own)

    def _interval(self, node: object) -> Interval:
        match node:
            case Constant() if isinstance(node.value, int):
                return node.value, node.value
            case Builtin():
                return self.builtins.get(node.name, ANYTHING)
            case Cast():
                return self._of(node.operand)
            case Arith():
                return _combine(node.function, [self._of(item) for item in node.operands])
            case _:
                return ANYTHING


def _combine(function: str, given: Sequence[Interval]) -> Interval:
    """The interval of a function of intervals."""
    if function == "select":
        return min(item[0] for item in given[1:]), max(item[1] for item in given[1:])
    if len(given) != 2 or (any(item == ANYTHING for item in given) and function not in ("min", "max")):
        return ANYTHING
    (low, high), (other_low, other_high) = given
    match function:
        case "add":
            return low + other_low, high + other_high
        case "sub":
            return low - other_high, high - other_low
        case "mul":
            ends = [one * other for one in given[0] for other in given[1]]
            return min(ends), max(ends)
        case "min":
            return min(low, other_low), min(high, other_high)
        case "max":
            return max(low, other_low), max(high, other_high)
        case "div" if low >= 0 and other_low > 0:
            return low // other_high, high // other_low
        case "rem" if low >= 0 and other_low > 0:
            if other_low == other_high and low // other_low == high // other_low:
                return low % other_low, high % other_low
            return 0, min(high, other_high - 1)
        case _:
            return ANYTHING
