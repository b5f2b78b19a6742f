"""Which tensors a checkpoint is to hold, and which part of which weight each of them is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import EllipsisType
from typing import NamedTuple, TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.bridge.hf_to_module.checkpoint import EMPTY, Checkpoint
from lamella.bridge.hf_to_module.expand import Assignment, expand
from lamella.bridge.hf_to_module.measure import MisfitError, Ruler, check_ranges, show
from lamella.bridge.hf_to_module.nodes import (
    Context,
    Joined,
    Made,
    Stacked,
    Weight,
    Whole,
    element_named,
    names_in,
)
from lamella.bridge.hf_to_module.strangers import spelled
from lamella.bridge.hf_to_module.transforms import FUNCTIONS
from lamella.lang.module import nodes as n
from lamella.lang.module.rules import mappings as rules

Step: TypeAlias = tuple[int | slice | EllipsisType, ...]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A tensor that is written: the part of a weight at `steps`, one index after the other, through a function.

    `back` is the function that makes the part out of the tensor again. `element` is None where the weight has none of
    its own: it is that of the numbers. `weight` is None for a tensor of the source that no weight speaks of.
    """

    name: str
    shape: Shape
    element: ElementType | None
    weight: Weight | None = None
    steps: tuple[Step, ...] = ()
    function: str = ""
    back: str = ""


class ExportPlan(NamedTuple):
    """The tensors of a checkpoint in the order of the weights, and what is wrong."""

    tensors: tuple[Outgoing, ...]
    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Mapped:
    """How weights and tensors correspond: the weights, `hf_mapping:`, `hf_export:` and what mappings may ask."""

    weights: Sequence[Weight]
    imports: Sequence[n.Mapping]
    exports: Sequence[n.Mapping]
    context: Context


def plan_export(mapped: Mapped, given: Mapping[str, object], source: Checkpoint | None = None) -> ExportPlan:
    """The tensors for these weights: as `hf_export:` says, else what undoes `hf_mapping:`.

    Names, types and the sizes of fused parts are those of the source where there is one. Tied weights are not written;
    optional ones are where they are `given`. Tensors of the source that belong to no weight are kept.
    """
    return _Planning(mapped, given, source or EMPTY).run()


class _Planning:
    """The work of `plan_export`, with what it finds on the way."""

    def __init__(self, mapped: Mapped, given: Mapping[str, object], source: Checkpoint) -> None:
        self._mapped = mapped
        self._context = mapped.context
        self._given = given
        self._source = source.tensors
        self._ruler = Ruler(source.tensors, self._spell, mapped.context.head_dim)
        self._findings: list[Diagnostic] = []

    def run(self) -> ExportPlan:
        mapped = self._mapped
        imports = expand(mapped.weights, mapped.imports, mapped.context)
        exports = expand(mapped.weights, mapped.exports, mapped.context)
        self._findings += (*imports.findings, *exports.findings)
        said = {item.weight.path: item for item in exports.assignments}
        known = {item.weight.path: item for item in imports.assignments}
        found: dict[str, Outgoing] = {}
        for weight in mapped.weights:
            if weight.tied is None:
                for item in self._outgoing(weight, said.get(weight.path), known.get(weight.path)):
                    self._add(item, weight, found)
        tied = {self._spell(name) for name in (*imports.tied, *exports.tied)}
        left = (item for item in self._source.values() if item.name not in found and item.name not in tied)
        dropped = {
            self._spell(name)
            for path in known.keys() - self._given.keys()
            for name in names_in(known[path].made)
        }
        kept = [Outgoing(item.name, item.shape, item.dtype) for item in left if item.name not in dropped]
        return ExportPlan((*found.values(), *kept), tuple(self._findings))

    def _spell(self, name: str) -> str:
        return spelled(name, self._context.prefix, self._source)

    def _add(self, item: Outgoing, weight: Weight, found: dict[str, Outgoing]) -> None:
        first = found.setdefault(item.name, item)
        if first is not item and first.weight is not None:
            self._findings.append(
                rules.USED_TWICE.at(weight.span, name=item.name, first=first.weight.path, second=weight.path)
            )

    def _outgoing(
        self, weight: Weight, said: Assignment | None, known: Assignment | None
    ) -> Iterator[Outgoing]:
        """The tensors of a weight."""
        to = said or known
        if weight.path not in self._given:
            if not weight.optional:
                self._findings.append(rules.NO_NUMBERS.at(weight.span, path=weight.path))
        elif to is None:
            self._findings.append(rules.UNMAPPED.at(weight.span, path=weight.path))
        else:
            try:
                yield from self._parts(to.made, to, weight.shape, (), said is None)
            except MisfitError as problem:
                self._findings.append(problem.finding)

    def _parts(
        self, made: Made, to: Assignment, shape: Shape, steps: tuple[Step, ...], undo: bool
    ) -> Iterator[Outgoing]:
        match made:
            case Whole():
                yield self._whole(made, to, shape, steps, undo)
            case Stacked(parts):
                for index, part in enumerate(parts):
                    yield from self._parts(part, to, shape[1:], (*steps, (index, ...)), undo)
            case Joined(parts, dim):
                axis = dim % max(len(shape), 1)
                for part, (low, high) in zip(parts, self._ranges(made, to, shape, axis), strict=True):
                    step: Step = (*(slice(None),) * axis, slice(low, high))
                    inner = (*shape[:axis], high - low, *shape[axis + 1 :])
                    yield from self._parts(part, to, inner, (*steps, step), undo)

    def _whole(
        self, made: Whole, to: Assignment, shape: Shape, steps: tuple[Step, ...], undo: bool
    ) -> Outgoing:
        """One tensor; what was done to it on the way in is undone."""
        name = self._spell(made.name)
        other = FUNCTIONS[made.function].inverse if made.function else ""
        function, back = (other, made.function) if undo else (made.function, other)
        result: Shape | str = FUNCTIONS[function].shape(shape, self._context.head_dim) if function else shape
        if isinstance(result, str):
            text = show(shape)
            raise MisfitError(
                rules.FUNCTION_SHAPE.at(
                    to.span, name=to.weight.path, found=text, function=function, why=result
                )
            )
        stored = self._source.get(name)
        element = stored.dtype if stored is not None else element_named(to.weight.element)
        return Outgoing(name, result, element, to.weight, steps, function, back)

    def _ranges(self, made: Joined, to: Assignment, shape: Shape, axis: int) -> Sequence[tuple[int, int]]:
        """Which range of a dimension each part takes."""
        if not shape:
            raise MisfitError(rules.SIZES.at(to.span, path=to.weight.path))
        if made.bounds:
            check_ranges(made.bounds, shape[axis], axis, to)
            return made.bounds
        try:
            sizes = [self._ruler.measure(part, to).shape[axis] for part in made.parts]
        except (KeyError, IndexError):  # the source, where there is one, does not hold the parts
            raise MisfitError(rules.SIZES.at(to.span, path=to.weight.path)) from None
        ranges = [(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]
        check_ranges(ranges, shape[axis], axis, to)
        return ranges
