"""A checkpoint matched with the weights of a model: strictly, and before a single number is read."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.base.gc import gc_paused
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.bridge.hf_to_module.assignments import _DIGITS, Assignment, Expanded, expand, template_of
from lamella.bridge.hf_to_module.checkpoint import Checkpoint, CheckpointTensor, whole
from lamella.bridge.hf_to_module.weights import (
    FUNCTIONS,
    Alias,
    Joined,
    MappingContext,
    Stacked,
    StoredWeights,
    Weight,
    WeightImport,
    WeightRecipe,
    Whole,
    element_named,
    names_in,
)
from lamella.lang.module import nodes as n
from lamella.lang.module.rules import mappings as rules

# --- unmatched tensors, and suggestions of names near to theirs ---------------------------------------------


_BUFFER = re.compile(
    r"(.*\.)?("
    r"rotary_emb\.(inv_freq|original_inv_freq|cos_cached|sin_cached)|position_ids|"
    r"(attn|attention|self_attn|attention\.self)\.(bias|masked_bias|rotary_emb\.inv_freq)|"
    r"(attn|attention)\.attention\.(bias|masked_bias)"
    r")"
)
"""Tables that old versions of transformers stored with the weights, and that are computed."""
_MOST_CANDIDATES = 300
_MOST_SEARCHES = 50


def _is_buffer(name: str) -> bool:
    """Whether a tensor is a known table and no weight: rotary frequencies, positions, causal masks."""
    return _BUFFER.fullmatch(name) is not None


class NamePatterns:
    """Patterns of names such as `vision_*` that may stay unused."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._pattern = re.compile("|".join(map(fnmatch.translate, patterns))) if patterns else None

    def __contains__(self, name: str) -> bool:
        return self._pattern is not None and self._pattern.match(name) is not None


class PotentialReaders:
    """Which parameter would read a tensor that nothing reads: under other values, with more layers, beside another.

    `dormant` is that of an expanded mapping, `wanted` are the names of tensors that are read, and `used` the parameter
    of each.
    """

    def __init__(
        self,
        dormant: Mapping[str, tuple[str, str]],
        wanted: Iterable[str],
        used: Mapping[str, str],
        prefix: str,
    ) -> None:
        self._dormant, self._used, self._prefix = dormant, used, prefix
        self._wanted = {template_of(name) for name in wanted}
        self._owners = {name.rpartition(".")[0]: name for name in used if "." in name}

    def find(self, name: str) -> str | None:
        """Who would read a tensor, as a message says it; None where nobody would."""
        template = template_of(name)
        asleep = self._dormant.get(spelled(template, self._prefix, self._dormant))
        if asleep is not None:
            path, condition = asleep
            return f"'{path}' reads it where its condition {condition} is true"
        if spelled(template, self._prefix, self._wanted) in self._wanted:
            return "it is read where its index is in range, and it is beyond what the config says"
        beside = self._owners.get(name.rpartition(".")[0])
        if beside is not None:
            return f"it belongs to the layer of '{beside}', which '{self._used[beside]}' reads"
        return None


class NameSuggestions:
    """Finds the nearest of many names; names that differ only in their numbers are compared once."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self._examples: dict[str, str] = {}
        for name in self._names:
            self._examples.setdefault(template_of(name), name)
        self._candidates = list(self._examples)[:_MOST_CANDIDATES]
        self._found: dict[str, str | None] = {}

    def nearest(self, name: str) -> str | None:
        """The nearest name, with the same numbers where it exists with them."""
        template = template_of(name)[:300]
        if template not in self._found:
            # Similarity costs the product of two lengths, and a checkpoint may have any number of names.
            if len(self._found) >= _MOST_SEARCHES:
                return None
            close = nearest(template, self._candidates)
            self._found[template] = close[0] if close else None
        found = self._found[template]
        return None if found is None else self._with_numbers(found, _DIGITS.findall(name))

    def _with_numbers(self, template: str, numbers: list[str]) -> str:
        parts = template.split("{}")
        if len(parts) == len(numbers) + 1:
            same = "".join(part + number for part, number in zip(parts, [*numbers, ""], strict=True))
            if same in self._names:
                return same
        return self._examples[template]


OLDER = "transformer"
"""What models were called inside of those with a head, before each had a prefix of its own."""
NORMED = MappingProxyType({"original0": "weight_g", "original1": "weight_v"})
"""What the lengths and directions of a weight are called, and what PyTorch called them before."""
_NORMED = re.compile(rf"parametrizations\.weight\.({'|'.join(NORMED)})$")


def spelled(name: str, prefix: str, tensors: Container[str]) -> str:
    """The name under which a tensor stands in a checkpoint, with the prefix of the model, without it, or with another.

    The other is that of models of spans, some of which keep the one that all had once.
    """
    if name in tensors:
        return name
    older: str = _NORMED.sub(lambda found: NORMED[found[1]], name)
    for item in (name, older):
        short = item.removeprefix(f"{prefix}.") if prefix else item
        others: list[str] = [item, short, f"{prefix}.{item}"]
        others += [f"{OLDER}.{short}"] if short != item else []
        for one in others:
            if one in tensors:
                return one
    return name


# --- shape inference of recipes, from the headers of a checkpoint alone -------------------------------------


class MeasuredRecipe(NamedTuple):
    """What is made: from which tensors, of which shape and type."""

    recipe: WeightRecipe
    shape: tuple[int, ...]
    element: ElementType


class RecipeShapes:
    """Measures the sources of weights in one checkpoint; `spell` gives the name under which a tensor stands in it."""

    def __init__(
        self, tensors: Mapping[str, CheckpointTensor], spell: Callable[[str], str], head_dim: int
    ) -> None:
        self._tensors = tensors
        self._spell = spell
        self._head = head_dim

    def measure(self, recipe: WeightRecipe, to: Assignment) -> MeasuredRecipe:
        """The measure of a source; Found says why it is none."""
        match recipe:
            case Joined():
                return self._joined(recipe, to)
            case Stacked(parts):
                return self._stacked(parts, to)
            case Whole():
                return self._whole(recipe, to)
        raise TypeError("the numbers of another weight are measured there")

    def _whole(self, recipe: Whole, to: Assignment) -> MeasuredRecipe:
        entry = self._tensors[self._spell(recipe.name)]
        spelled = Whole(entry.name, recipe.function)
        function = FUNCTIONS.get(recipe.function)
        if function is None:
            return MeasuredRecipe(spelled, entry.shape, entry.dtype)
        shape = function.shape(entry.shape, self._head)
        if function.computes and not entry.dtype.is_float:
            wanted = f"what {recipe.function} makes of floating numbers"
            raise Found(rules.CHECKPOINT_DTYPE.at(to.span, name=entry.name, found=entry.dtype, wanted=wanted))
        if isinstance(shape, str):
            found, name = show(entry.shape), recipe.function
            raise Found(
                rules.FUNCTION_SHAPE.at(to.span, name=entry.name, found=found, function=name, why=shape)
            )
        return MeasuredRecipe(spelled, shape, entry.dtype)

    def _stacked(self, parts: Sequence[WeightRecipe], to: Assignment) -> MeasuredRecipe:
        found = self._alike(parts, to)
        for item in found:
            if item.shape != found[0].shape:
                raise Found(_fused(to, f"{show(found[0].shape)} and {show(item.shape)}"))
        shape = (len(found), *(found[0].shape if found else to.weight.shape[1:]))
        return MeasuredRecipe(Stacked(tuple(item.recipe for item in found)), shape, found[0].element)

    def _joined(self, recipe: Joined, to: Assignment) -> MeasuredRecipe:
        found, dim = self._alike(recipe.parts, to), recipe.dim
        first = found[0].shape
        if not -len(first) <= dim < len(first):
            raise Found(_fused(to, f"no tensor: {show(first)} has no dimension {dim}"))
        axis = dim % len(first)
        for item in found:
            if _without(item.shape, axis) != _without(first, axis) or len(item.shape) != len(first):
                raise Found(_fused(to, f"no tensor: {show(first)} and {show(item.shape)} do not join"))
        sizes = [item.shape[axis] for item in found]
        if recipe.bounds:
            order = _check_bounds(recipe.bounds, sizes, axis, to)
            found = [found[index] for index in order]
        shape = (*first[:axis], sum(sizes), *first[axis + 1 :])
        return MeasuredRecipe(Joined(tuple(item.recipe for item in found), axis), shape, found[0].element)

    def _alike(self, parts: Sequence[WeightRecipe], to: Assignment) -> list[MeasuredRecipe]:
        """The measures of parts that are of one type."""
        found = [self.measure(part, to) for part in parts]
        for item in found:
            if item.element != found[0].element:
                path, first, second = to.weight.path, found[0].element, item.element
                raise Found(rules.FUSED_DTYPE.at(to.span, path=path, first=first, second=second))
        if not found:
            raise Found(_fused(to, "nothing"))
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
    """The order of ranges that cover a dimension without gap or overlap; Found where they do not."""
    # In this order each range must begin where the one before ended: then there is no gap and no overlap.
    order = sorted(range(len(bounds)), key=lambda index: bounds[index])
    position = 0
    for index in order:
        low, high = bounds[index]
        if low != position or high < low:
            why = "overlap" if low < position else "leave a gap"
            raise Found(_covering(to, why if high >= low else "run backwards", axis, extent))
        position = high
    if position != extent:
        raise Found(_covering(to, f"end at {position}", axis, extent))
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
            raise Found(_covering(to, why, axis, extent))
    return order


_COMPARED = 1 << 22
"""Bytes that are compared at a time."""
_MOST_FINDINGS = 1000
"""Findings of one kind: the checkpoint of another model may lack every name."""


@dataclass(frozen=True, slots=True, eq=False)
class ImportPlan:
    """Where the numbers of each weight come from; `absent` are optional weights that the checkpoint lacks."""

    items: tuple[WeightImport, ...]
    findings: tuple[Diagnostic, ...]
    checkpoint: Checkpoint
    head_dim: int = 0
    absent: tuple[str, ...] = field(default=())

    def data(self, element: str | None = None) -> StoredWeights:
        """The arrays of weights by path, each made when it is asked for.

        Floating weights come in `element` where one is named, else in the type that the plan has for each.
        """
        return StoredWeights(self.items, self.checkpoint, self.head_dim, element_named(element or ""))


def plan_import(
    weights: Sequence[Weight],
    mappings: Sequence[n.Mapping],
    checkpoint: Checkpoint,
    context: MappingContext,
    unused: Sequence[str] = (),
) -> ImportPlan:
    """Match weights and tensors: every weight is filled, every tensor is used once, shapes and types fit.

    Known tables may stay unused, and so may tensors whose names match a pattern of `unused`; one that the model would
    read under other values is reported even then. The tensor of a tied weight holds the numbers that the tie gives it.
    """
    with gc_paused():
        return _ImportPlanning(checkpoint, context).run(
            expand(weights, mappings, context), NamePatterns(unused)
        )


class _ImportPlanning:
    """The work of `plan_import`, with what it finds on the way."""

    def __init__(self, checkpoint: Checkpoint, context: MappingContext) -> None:
        self._checkpoint = checkpoint
        self._tensors = checkpoint.tensors
        self._context = context
        self._shapes = RecipeShapes(checkpoint.tensors, self._spell, context.head_dim)
        self._used: dict[str, str] = {}
        self._readers = PotentialReaders({}, (), {}, "")
        self._lacking: list[tuple[str, Assignment]] = []
        self._wanted: list[str] = []
        self._converted: Counter[tuple[ElementType, ElementType]] = Counter()
        self._findings: list[Diagnostic] = []

    def run(self, expanded: Expanded, patterns: NamePatterns) -> ImportPlan:
        """The plan, with all findings."""
        self._findings += expanded.findings
        items: dict[str, WeightImport] = {}
        absent: list[str] = []
        for assignment in expanded.assignments:
            item = self._plan(assignment)
            if item is not None:
                items[item.path] = item
            elif assignment.weight.optional:
                absent.append(assignment.weight.path)
        absent += [item.path for item in expanded.unmapped if item.optional]
        self._findings += self._aliases(items)
        self._readers = PotentialReaders(expanded.dormant, self._wanted, self._used, self._context.prefix)
        untied = list(self._untied(expanded.tied, items, patterns))
        tied = {self._spell(name) for name in expanded.tied}
        left = [
            name for name in self._tensors if not (name in self._used or name in tied or _is_buffer(name))
        ]
        unused = [name for name in left if name not in patterns]
        self._findings += self._report_unmapped(expanded.unmapped)
        self._findings += self._report_lacking(unused)
        self._findings += untied
        self._findings += self._report_unused(unused)
        self._findings += self._report_dropped([name for name in left if name in patterns])
        self._findings += self._report_converted()
        plan = tuple(items.values())
        return ImportPlan(
            plan, tuple(self._findings), self._checkpoint, self._context.head_dim, tuple(absent)
        )

    # --- one weight -----------------------------------------------------------------------------------------

    def _spell(self, name: str) -> str:
        return spelled(name, self._context.prefix, self._tensors)

    def _plan(self, to: Assignment) -> WeightImport | None:
        if isinstance(to.recipe, Alias):
            return WeightImport(to.weight.path, to.weight.shape, None, None, to.recipe, to.span)
        names = list(names_in(to.recipe))
        self._wanted += names
        lacking = [name for name in names if self._spell(name) not in self._tensors]
        # An optional weight may be absent as a whole, but not in parts.
        if lacking:
            if len(lacking) < len(names) or not to.weight.optional:
                self._lacking += [(name, to) for name in lacking]
                # the parts that are there belong to it: they are not what is wrong
                self._use([name for name in names if name not in lacking], to)
            return None
        self._use(names, to)
        try:
            return self._fit(self._shapes.measure(to.recipe, to), to)
        except Found as problem:
            self._findings += problem.findings
            return None

    def _use(self, names: Sequence[str], to: Assignment) -> None:
        for name in map(self._spell, names):
            if name in self._used:
                first, second = self._used[name], to.weight.path
                self._findings.append(rules.USED_TWICE.at(to.span, name=name, first=first, second=second))
            self._used[name] = to.weight.path

    def _fit(self, found: MeasuredRecipe, to: Assignment) -> WeightImport:
        """The item of a weight, once shape and type are what it needs."""
        weight = to.weight
        if found.shape != weight.shape:
            raise Found(self._wrong_shape(found, to))
        wanted = element_named(weight.element) or found.element
        if wanted != found.element:
            if not (wanted.is_float and found.element.is_float):
                name = next(names_in(found.recipe))
                raise Found(rules.CHECKPOINT_DTYPE.at(to.span, name=name, found=found.element, wanted=wanted))
            self._converted[found.element, wanted] += sum(1 for _ in names_in(found.recipe))
        return WeightImport(weight.path, weight.shape, wanted, found.element, found.recipe, to.span)

    def _wrong_shape(self, found: MeasuredRecipe, to: Assignment) -> Diagnostic:
        weight, recipe = to.weight, found.recipe
        wanted, values = show(weight.shape), weight.values
        if not isinstance(recipe, Whole):
            text = show(found.shape)
            return rules.FUSED_SHAPE.at(to.span, path=weight.path, wanted=wanted, found=text, values=values)
        text = show(self._tensors[recipe.name].shape)
        text += f" ({show(found.shape)} after {recipe.function})" if recipe.function else ""
        return rules.CHECKPOINT_SHAPE.at(
            to.span, name=recipe.name, found=text, path=weight.path, wanted=wanted, values=values
        )

    def _aliases(self, items: dict[str, WeightImport]) -> Iterator[Diagnostic]:
        """Weights that the mapping ties to others must lead to one that has numbers, of the same shape."""
        for item in list(items.values()):
            if not isinstance(item.recipe, Alias):
                continue
            other = items.get(item.recipe.path)
            if other is None or isinstance(other.recipe, Alias) or other.shape != item.shape:
                path = item.recipe.path
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
        self, tied: Mapping[str, Assignment], items: Mapping[str, WeightImport], patterns: NamePatterns
    ) -> Iterator[Diagnostic]:
        """Tensors of tied weights that hold other numbers than those that the tie gives them."""
        for name, to in tied.items():
            own, other = self._spell(name), items.get(to.weight.tied or "")
            if own not in self._tensors or other is None or self._is_same(own, other.recipe):
                continue
            path, first = to.weight.path, next(names_in(other.recipe), other.path)
            if own in patterns:
                why = f"it holds other numbers than '{first}', to which '{path}' is tied"
                yield rules.DROPPED.at(self._file_of(own), names=f"'{own}'", stays="stays", why=why)
            else:
                yield rules.UNTIED.at(
                    self._file_of(own), name=own, other=first, path=path, tied=to.weight.tied, pattern=own
                )

    def _is_same(self, name: str, recipe: WeightRecipe) -> bool:
        """Whether a tensor is, bit for bit, the one that another weight is made of."""
        if not isinstance(recipe, Whole) or recipe.function:
            return False
        one, two = self._tensors[name], self._tensors[recipe.name]
        if (one.dtype, one.shape) != (two.dtype, two.shape):
            return False
        # Bytes and not numbers: NaN differs from itself, and 0.0 equals -0.0.
        first, second = (np.frombuffer(self._checkpoint.bytes_of(item.name), np.uint8) for item in (one, two))
        pieces = range(0, one.length, _COMPARED)
        return all(np.array_equal(first[at : at + _COMPARED], second[at : at + _COMPARED]) for at in pieces)

    def _report_unmapped(self, weights: Sequence[Weight]) -> Iterator[Diagnostic]:
        lacking = (item for item in weights if not item.optional)
        yield from (rules.UNMAPPED.at(item.span, path=item.path) for item in islice(lacking, _MOST_FINDINGS))

    def _report_lacking(self, unused: Sequence[str]) -> Iterator[Diagnostic]:
        if not self._lacking:
            return
        near = NameSuggestions(unused or self._tensors)
        for name, to in self._lacking[:_MOST_FINDINGS]:
            close = near.nearest(name)
            repair = f"the nearest that it has is '{close}'" if close else ""
            parts = [item for item in names_in(to.recipe) if self._spell(item) in self._tensors]
            if parts and (not unused or not close):
                # what is near by its name belongs to the same weight, and is in its place
                repair = f"the other parts of the weight are there, such as '{parts[0]}'"
            yield rules.ABSENT.at(to.span, name=name, path=to.weight.path, repair=repair)

    def _report_unused(self, unused: Sequence[str]) -> Iterator[Diagnostic]:
        if not unused:
            return
        lacking = NameSuggestions([name for name, _ in self._lacking] or self._wanted)
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

    def _report_dropped(self, names: Sequence[str]) -> Iterator[Diagnostic]:
        """Tensors that are to stay unused, though the model would read them: those of all layers at once."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(template_of(name), []).append(name)
        for first, *others in groups.values():
            reader = self._readers.find(first)
            if reader is not None:
                shown = f"'{first}'" + (f" and {len(others)} like it" if others else "")
                stays = "stay" if others else "stays"
                yield rules.DROPPED.at(self._file_of(first), names=shown, stays=stays, why=reader)

    def _report_converted(self) -> Iterator[Diagnostic]:
        for (found, wanted), count in self._converted.items():
            place = self._file_of(next(iter(self._used)))
            yield rules.CONVERTED.at(place, count=count, found=found, wanted=wanted)
