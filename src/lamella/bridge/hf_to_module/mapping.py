"""A checkpoint matched with the weights of a model: strictly, and before a single number is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.base.gc import gc_paused
from lamella.base.source import Span
from lamella.bridge.hf_to_module.checkpoint import Checkpoint
from lamella.bridge.hf_to_module.data import Item, Numbers
from lamella.bridge.hf_to_module.documents import whole
from lamella.bridge.hf_to_module.expand import Assignment, Expanded, expand
from lamella.bridge.hf_to_module.measure import Measured, MisfitError, Ruler, show
from lamella.bridge.hf_to_module.nodes import Alias, Context, Made, Weight, Whole, element_named, names_in
from lamella.bridge.hf_to_module.strangers import (
    Neighbours,
    Patterns,
    Readers,
    is_buffer,
    spelled,
    template_of,
)
from lamella.lang.module import nodes as n
from lamella.lang.module.rules import mappings as rules

_COMPARED = 1 << 22
"""Bytes that are compared at a time."""
_MOST_FINDINGS = 1000
"""Findings of one kind: the checkpoint of another model may lack every name."""


@dataclass(frozen=True, slots=True, eq=False)
class ImportPlan:
    """Where the numbers of each weight come from; `absent` are optional weights that the checkpoint lacks."""

    items: tuple[Item, ...]
    findings: tuple[Diagnostic, ...]
    checkpoint: Checkpoint
    head_dim: int = 0
    absent: tuple[str, ...] = field(default=())

    def data(self, element: str | None = None) -> Mapping[str, Array]:
        """The arrays of weights by path, each made when it is asked for.

        Floating weights come in `element` where one is named, else in the type that the plan has for each.
        """
        return Numbers(self.items, self.checkpoint, self.head_dim, element_named(element or ""))


def plan_import(
    weights: Sequence[Weight],
    mappings: Sequence[n.Mapping],
    checkpoint: Checkpoint,
    context: Context,
    unused: Sequence[str] = (),
) -> ImportPlan:
    """Match weights and tensors: every weight is filled, every tensor is used once, shapes and types fit.

    Known tables may stay unused, and so may tensors whose names match a pattern of `unused`; one that the model would
    read under other values is told even then. The tensor of a tied weight holds the numbers that the tie gives it.
    """
    with gc_paused():
        return _Planning(checkpoint, context).run(expand(weights, mappings, context), Patterns(unused))


class _Planning:
    """The work of `plan_import`, with what it finds on the way."""

    def __init__(self, checkpoint: Checkpoint, context: Context) -> None:
        self._checkpoint = checkpoint
        self._tensors = checkpoint.tensors
        self._context = context
        self._ruler = Ruler(checkpoint.tensors, self._spell, context.head_dim)
        self._used: dict[str, str] = {}
        self._readers = Readers({}, (), {}, "")
        self._lacking: list[tuple[str, Assignment]] = []
        self._wanted: list[str] = []
        self._converted: Counter[tuple[ElementType, ElementType]] = Counter()
        self._findings: list[Diagnostic] = []

    def run(self, expanded: Expanded, patterns: Patterns) -> ImportPlan:
        """The plan, with all findings."""
        self._findings += expanded.findings
        items: dict[str, Item] = {}
        absent: list[str] = []
        for assignment in expanded.assignments:
            item = self._plan(assignment)
            if item is not None:
                items[item.path] = item
            elif assignment.weight.optional:
                absent.append(assignment.weight.path)
        absent += [item.path for item in expanded.unmapped if item.optional]
        self._findings += self._aliases(items)
        self._readers = Readers(expanded.dormant, self._wanted, self._used, self._context.prefix)
        untied = list(self._untied(expanded.tied, items, patterns))
        tied = {self._spell(name) for name in expanded.tied}
        left = [name for name in self._tensors if not (name in self._used or name in tied or is_buffer(name))]
        unused = [name for name in left if name not in patterns]
        self._findings += self._tell_unmapped(expanded.unmapped)
        self._findings += self._tell_lacking(unused)
        self._findings += untied
        self._findings += self._tell_unused(unused)
        self._findings += self._tell_dropped([name for name in left if name in patterns])
        self._findings += self._tell_converted()
        plan = tuple(items.values())
        return ImportPlan(
            plan, tuple(self._findings), self._checkpoint, self._context.head_dim, tuple(absent)
        )

    # --- one weight -----------------------------------------------------------------------------------------

    def _spell(self, name: str) -> str:
        return spelled(name, self._context.prefix, self._tensors)

    def _plan(self, to: Assignment) -> Item | None:
        if isinstance(to.made, Alias):
            return Item(to.weight.path, to.weight.shape, None, None, to.made, to.span)
        names = list(names_in(to.made))
        self._wanted += names
        lacking = [name for name in names if self._spell(name) not in self._tensors]
        if lacking:
            if len(lacking) < len(names) or not to.weight.optional:
                self._lacking += [(name, to) for name in lacking]
            return None
        self._use(names, to)
        try:
            return self._fit(self._ruler.measure(to.made, to), to)
        except MisfitError as problem:
            self._findings.append(problem.finding)
            return None

    def _use(self, names: Sequence[str], to: Assignment) -> None:
        for name in map(self._spell, names):
            if name in self._used:
                first, second = self._used[name], to.weight.path
                self._findings.append(rules.USED_TWICE.at(to.span, name=name, first=first, second=second))
            self._used[name] = to.weight.path

    def _fit(self, found: Measured, to: Assignment) -> Item:
        """The item of a weight, once shape and type are what it needs."""
        weight = to.weight
        if found.shape != weight.shape:
            raise MisfitError(self._wrong_shape(found, to))
        wanted = element_named(weight.element) or found.element
        if wanted != found.element:
            if not (wanted.is_float and found.element.is_float):
                name = next(names_in(found.made))
                raise MisfitError(
                    rules.CHECKPOINT_DTYPE.at(to.span, name=name, found=found.element, wanted=wanted)
                )
            self._converted[found.element, wanted] += sum(1 for _ in names_in(found.made))
        return Item(weight.path, weight.shape, wanted, found.element, found.made, to.span)

    def _wrong_shape(self, found: Measured, to: Assignment) -> Diagnostic:
        weight, made = to.weight, found.made
        wanted, values = show(weight.shape), weight.values
        if not isinstance(made, Whole):
            text = show(found.shape)
            return rules.FUSED_SHAPE.at(to.span, path=weight.path, wanted=wanted, found=text, values=values)
        text = show(self._tensors[made.name].shape)
        text += f" ({show(found.shape)} after {made.function})" if made.function else ""
        return rules.CHECKPOINT_SHAPE.at(
            to.span, name=made.name, found=text, path=weight.path, wanted=wanted, values=values
        )

    def _aliases(self, items: dict[str, Item]) -> Iterator[Diagnostic]:
        """Weights that the mapping ties to others must lead to one that has numbers, of the same shape."""
        for item in list(items.values()):
            if not isinstance(item.made, Alias):
                continue
            other = items.get(item.made.path)
            if other is None or isinstance(other.made, Alias) or other.shape != item.shape:
                path = item.made.path
                yield rules.UNKNOWN_PATH.at(
                    item.span,
                    model=self._context.model,
                    path=path,
                    repair="tie it to a weight of the same shape",
                )
                del items[item.path]

    def _file_of(self, name: str) -> Span:
        return whole(self._checkpoint.files[self._tensors[name].file].path)

    # --- what is left over ----------------------------------------------------------------------------------

    def _untied(
        self, tied: Mapping[str, Assignment], items: Mapping[str, Item], patterns: Patterns
    ) -> Iterator[Diagnostic]:
        """Tensors of tied weights that hold other numbers than those that the tie gives them."""
        for name, to in tied.items():
            own, other = self._spell(name), items.get(to.weight.tied or "")
            if own not in self._tensors or other is None or self._is_same(own, other.made):
                continue
            path, first = to.weight.path, next(names_in(other.made), other.path)
            if own in patterns:
                why = f"it holds other numbers than '{first}', to which '{path}' is tied"
                yield rules.DROPPED.at(self._file_of(own), names=f"'{own}'", stays="stays", why=why)
            else:
                yield rules.UNTIED.at(
                    self._file_of(own), name=own, other=first, path=path, tied=to.weight.tied, pattern=own
                )

    def _is_same(self, name: str, made: Made) -> bool:
        """Whether a tensor is, bit for bit, the one that another weight is made of."""
        if not isinstance(made, Whole) or made.function:
            return False
        one, two = self._tensors[name], self._tensors[made.name]
        if (one.dtype, one.shape) != (two.dtype, two.shape):
            return False
        first, second = (np.frombuffer(self._checkpoint.bytes_of(item.name), np.uint8) for item in (one, two))
        pieces = range(0, one.length, _COMPARED)
        return all(np.array_equal(first[at : at + _COMPARED], second[at : at + _COMPARED]) for at in pieces)

    def _tell_unmapped(self, weights: Sequence[Weight]) -> Iterator[Diagnostic]:
        lacking = (item for item in weights if not item.optional)
        yield from (rules.UNMAPPED.at(item.span, path=item.path) for item in islice(lacking, _MOST_FINDINGS))

    def _tell_lacking(self, unused: Sequence[str]) -> Iterator[Diagnostic]:
        if not self._lacking:
            return
        near = Neighbours(unused or self._tensors)
        for name, to in self._lacking[:_MOST_FINDINGS]:
            close = near.nearest(name)
            repair = f"the nearest that it has is '{close}'" if close else ""
            yield rules.ABSENT.at(to.span, name=name, path=to.weight.path, repair=repair)

    def _tell_unused(self, unused: Sequence[str]) -> Iterator[Diagnostic]:
        if not unused:
            return
        lacking = Neighbours([name for name, _ in self._lacking] or self._wanted)
        for name in unused[:_MOST_FINDINGS]:
            reader, close = self._readers.find(name), lacking.nearest(name)
            if reader is not None:
                repair = (
                    f"{reader}; without it the numbers are others: --unused PATTERN warns, and leaves it out"
                )
            else:
                near = f"the nearest that is needed is '{close}'; " if close else ""
                repair = f"{near}if the model is whole without it, --unused PATTERN lets it stay unused"
            place = self._file_of(name)
            yield rules.UNUSED.at(place, name=name, model=self._context.model, repair=repair)

    def _tell_dropped(self, names: Sequence[str]) -> Iterator[Diagnostic]:
        """Tensors that are said to stay unused, though the model would read them: those of all layers at once."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(template_of(name), []).append(name)
        for first, *others in groups.values():
            reader = self._readers.find(first)
            if reader is not None:
                shown = f"'{first}'" + (f" and {len(others)} like it" if others else "")
                stays = "stay" if others else "stays"
                yield rules.DROPPED.at(self._file_of(first), names=shown, stays=stays, why=reader)

    def _tell_converted(self) -> Iterator[Diagnostic]:
        for (found, wanted), count in self._converted.items():
            place = self._file_of(next(iter(self._used)))
            yield rules.CONVERTED.at(place, count=count, found=found, wanted=wanted)
