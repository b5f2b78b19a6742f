"""A checkpoint matched with the weights of a model: strictly, and before a single number is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from lamella.base.arrays import Array
from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.base.source import Span
from lamella.bridge.hf_to_module.checkpoint import Checkpoint
from lamella.bridge.hf_to_module.data import Item, Numbers
from lamella.bridge.hf_to_module.documents import whole
from lamella.bridge.hf_to_module.expand import Assignment, Expanded, expand
from lamella.bridge.hf_to_module.measure import Measured, MisfitError, Ruler, show
from lamella.bridge.hf_to_module.nodes import Alias, Context, Weight, Whole, element_named, names_in
from lamella.bridge.hf_to_module.strangers import Allowed, Neighbours, is_buffer, spelled, template_of
from lamella.lang.module import nodes as n
from lamella.lang.module.rules import mappings as rules

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
    allow: Sequence[str] = (),
) -> ImportPlan:
    """Match weights and tensors: every weight is filled, every tensor is used once, shapes and types fit.

    Tensors whose names match a pattern of `allow`, known tables, and those of tied weights may stay unused.
    """
    with collector_paused():
        return _Planning(checkpoint, context).run(expand(weights, mappings, context), allow)


class _Planning:
    """The work of `plan_import`, with what it finds on the way."""

    def __init__(self, checkpoint: Checkpoint, context: Context) -> None:
        self._checkpoint = checkpoint
        self._tensors = checkpoint.tensors
        self._context = context
        self._ruler = Ruler(checkpoint.tensors, self._spell, context.head_dim)
        self._used: dict[str, str] = {}
        self._lacking: list[tuple[str, Assignment]] = []
        self._wanted: list[str] = []
        self._converted: Counter[tuple[ElementType, ElementType]] = Counter()
        self._findings: list[Diagnostic] = []

    def run(self, expanded: Expanded, allow: Sequence[str]) -> ImportPlan:
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
        tied = {self._spell(name) for name in expanded.tied}
        unused = list(self._unused(tied, Allowed(allow)))
        self._findings += self._tell_unmapped(expanded.unmapped)
        self._findings += self._tell_lacking(unused)
        self._findings += self._tell_unused(unused)
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

    def _unused(self, tied: set[str], allowed: Allowed) -> Iterator[str]:
        for name in self._tensors:
            if name not in self._used and name not in tied and name not in allowed and not is_buffer(name):
                yield name

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
        known = Neighbours(self._wanted)
        lacking = Neighbours([name for name, _ in self._lacking] or self._wanted)
        allow = "; --allow PATTERN lets it stay unused"
        for name in unused[:_MOST_FINDINGS]:
            close = lacking.nearest(name)
            if known.has_template(template_of(name)):
                repair = f"an index in it is beyond what '{self._context.model}' has{allow}"
            else:
                repair = f"the nearest that is needed is '{close}'{allow}" if close else allow[2:]
            place = self._file_of(name)
            yield rules.UNUSED.at(place, name=name, model=self._context.model, repair=repair)

    def _tell_converted(self) -> Iterator[Diagnostic]:
        for (found, wanted), count in self._converted.items():
            place = self._file_of(next(iter(self._used)))
            yield rules.CONVERTED.at(place, count=count, found=found, wanted=wanted)
