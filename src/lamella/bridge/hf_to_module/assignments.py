"""Entries of a mapping expanded: which tensors of a checkpoint each weight of a model is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.bridge.hf_to_module.weights import (
    STACK,
    Alias,
    Joined,
    MappingContext,
    Stacked,
    Weight,
    WeightRecipe,
    Whole,
    function_names,
    indices_in,
    names_in,
    pattern_skeleton,
    skeleton_of,
)
from lamella.lang.module import nodes as n
from lamella.lang.module.rules import constants
from lamella.lang.module.rules import mappings as rules
from lamella.lang.module.write import write_path

_DIGITS = re.compile(r"\d+")


def template_of(name: str) -> str:
    """A name with its numbers left open: those of all layers are alike."""
    return _DIGITS.sub("{}", name)


_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_MOST_SLICES = 100_000
_MOST_CANDIDATES, _MOST_SEARCHES = 500, 50
IndexValues = Mapping[str, int]


class Assignment(NamedTuple):
    """A weight, what it is made of, and whether a checkpoint may lack that."""

    weight: Weight
    recipe: WeightRecipe
    optional: bool
    span: Span


class Expanded(NamedTuple):
    """A mapping written out. `tied` are tensors of weights that have no numbers of their own, each with its weight.

    `dormant` are the tensors that weights would be made of under other values, as `template_of` writes their names,
    each with the path of the weight and the condition that is false.
    """

    assignments: tuple[Assignment, ...]
    tied: Mapping[str, Assignment]
    findings: tuple[Diagnostic, ...]
    unmapped: tuple[Weight, ...]
    dormant: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _MappingEntry:
    """An entry that holds: its indices in order, the ranges of its split, and whether something is wrong with it."""

    mapping: n.Mapping
    indices: tuple[str | int, ...]
    bounds: tuple[tuple[int, int], ...] = ()
    wrong: bool = False


def expand(weights: Sequence[Weight], mappings: Sequence[n.Mapping], context: MappingContext) -> Expanded:
    """Every weight with its tensors, and what is wrong with the entries; `unmapped` are weights without an entry."""
    return _Expansion(context).run(weights, mappings)


class _Expansion:
    """The work of `expand`, with what it finds on the way."""

    def __init__(self, context: MappingContext) -> None:
        self._context = context
        self._findings: list[Diagnostic] = []
        self._entries: list[tuple[str, _MappingEntry]] = []
        self._skeletons: set[str] = set()
        self._table: dict[str, list[_MappingEntry]] = {}
        self._exact: dict[tuple[str, tuple[str | int, ...]], list[_MappingEntry]] = {}
        """Entries without placeholders: there may be one for each weight."""
        self._met: set[int] = set()
        self._dormant: dict[str, tuple[str, str]] = {}

    def run(self, weights: Sequence[Weight], mappings: Sequence[n.Mapping]) -> Expanded:
        for mapping in mappings:
            self._take(mapping)
        found: list[Assignment] = []
        tied: dict[str, Assignment] = {}
        unmapped: list[Weight] = []
        for weight in weights:
            assignment = self._assign(weight)
            if weight.tied is not None:
                tied |= {} if assignment is None else dict.fromkeys(names_in(assignment.recipe), assignment)
            elif assignment is None:
                unmapped.append(weight)
            elif assignment.recipe is not _BROKEN:
                found.append(assignment)
        self._report_unmet(weights)
        return Expanded(tuple(found), tied, tuple(self._findings), tuple(unmapped), self._dormant)

    # --- entries --------------------------------------------------------------------------------------------

    def _take(self, mapping: n.Mapping) -> None:
        """Put an entry into the table, unless its condition is false."""
        try:
            if mapping.condition is not None and not _truth(self._context, mapping.condition):
                self._sleep(mapping, f"'{mapping.condition.span.text}'")
                return
            bounds = _bounds(self._context, mapping.spec)
        except Found as problem:
            self._findings.append(problem.finding)
            return
        indices = tuple(index for part in mapping.path.parts for index in part.indices)
        wrong = list(_check_spec(mapping, {item for item in indices if isinstance(item, str)}))
        self._findings += wrong
        entry = _MappingEntry(mapping, indices, bounds, bool(wrong))
        skeleton = pattern_skeleton(mapping.path)
        self._entries.append((skeleton, entry))
        self._skeletons.add(skeleton)
        if any(isinstance(item, str) for item in indices):
            self._table.setdefault(skeleton, []).append(entry)
        else:
            self._exact.setdefault((skeleton, indices), []).append(entry)

    def _sleep(self, mapping: n.Mapping, condition: str) -> None:
        """Remember what an entry would read under other values."""
        path = write_path(mapping.path)
        for part in _parts_of(mapping.spec):
            if not isinstance(part, n.TiedType):
                name = template_of(_PLACEHOLDER.sub("{}", part.name))
                self._dormant.setdefault(name, (path, condition))

    def _report_unmet(self, weights: Sequence[Weight]) -> None:
        """Entries that speak of no weight: the parameter is declared and switched off, or there is none."""
        candidates = list(dict.fromkeys(skeleton_of(item.path) for item in weights))[:_MOST_CANDIDATES]
        declared, searches = self._context.declared, 0
        for skeleton, entry in self._entries:
            if id(entry) in self._met:
                continue
            switched_off = next((place for place in _places(skeleton) if place in declared), None)
            if switched_off is not None:
                self._sleep(entry.mapping, declared[switched_off])
                continue
            searches += 1
            close = nearest(skeleton, candidates if searches <= _MOST_SEARCHES else ())
            repair = f"did you mean '{close[0]}'?" if close else ""
            path, place = write_path(entry.mapping.path), entry.mapping.span
            finding = rules.UNKNOWN_PATH.at(place, model=self._context.model, path=path, repair=repair)
            self._findings.append(finding)

    # --- weights --------------------------------------------------------------------------------------------

    def _assign(self, weight: Weight) -> Assignment | None:
        skeleton, indices = skeleton_of(weight.path), indices_in(weight.path)
        found = self._match(skeleton, indices, weight.path)
        if found is not None:
            entry, bound = found
            recipe = _recipe_of(entry, bound, weight.shape)
            return Assignment(weight, recipe, entry.mapping.optional, entry.mapping.span)
        if f"{skeleton}[]" in self._skeletons and weight.shape:
            return self._assign_slices(weight, f"{skeleton}[]", indices)
        return None

    def _match(
        self, skeleton: str, indices: tuple[int, ...], path: str
    ) -> tuple[_MappingEntry, IndexValues] | None:
        """The entry for a path, and the values of its placeholders."""
        found: tuple[_MappingEntry, IndexValues] | None = None
        for entry in (*self._exact.get((skeleton, indices), ()), *self._table.get(skeleton, ())):
            bound = _bind(entry.indices, indices)
            if bound is None:
                continue
            self._met.add(id(entry))
            if found is not None:
                self._findings.append(rules.TWICE.at(entry.mapping.span, path=path))
                break
            found = entry, bound
        return found

    def _assign_slices(self, weight: Weight, skeleton: str, indices: tuple[int, ...]) -> Assignment | None:
        """A weight whose slices along its first dimension are mapped one by one."""
        extent, inner = weight.shape[0], weight.shape[1:]
        slices = range(extent if extent <= _MOST_SLICES else 0)
        matched = [self._match(skeleton, (*indices, index), f"{weight.path}[{index}]") for index in slices]
        found = [item for item in matched if item is not None]
        if not found:
            return None
        parts = tuple(_recipe_of(entry, bound, inner) for entry, bound in found)
        # By identity: a stack of no slices is equal, and nobody has reported that one yet.
        broken = any(part is _BROKEN for part in parts)
        recipe: WeightRecipe = _BROKEN if broken else Stacked(parts)
        first = found[0][0].mapping
        if len(found) != extent:
            count, path = len(found), weight.path
            self._findings.append(rules.SLICES.at(first.span, count=count, extent=extent, path=path))
            recipe = _BROKEN
        optional = all(entry.mapping.optional for entry, _ in found)
        return Assignment(weight, recipe, optional, first.span)


_BROKEN = Stacked(())
"""The one object that stands for a weight whose entries are already reported; only its identity says so."""


def _places(skeleton: str) -> Iterator[str]:
    """A path and all that hold it: a parameter that is switched off may be a module."""
    while skeleton:
        yield from (skeleton, skeleton.removesuffix("[]"))
        skeleton = skeleton.rpartition(".")[0]


def _bind(pattern: tuple[str | int, ...], indices: tuple[int, ...]) -> dict[str, int] | None:
    """The values of placeholders for which a pattern is these indices."""
    bound: dict[str, int] = {}
    for item, index in zip(pattern, indices, strict=True):
        if index != (bound.setdefault(item, index) if isinstance(item, str) else item):
            return None
    return bound


def _recipe_of(entry: _MappingEntry, bound: IndexValues, shape: tuple[int, ...]) -> WeightRecipe:
    """What an entry says, its placeholders filled in."""
    if entry.wrong:
        return _BROKEN
    match entry.mapping.spec:
        case n.Fuse(sources, dim):
            return Joined(tuple(_part(item, bound, shape) for item in sources), dim)
        case n.Split(parts, dim):
            return Joined(tuple(Whole(_fill(item.name, bound)) for item in parts), dim, entry.bounds)
        case n.TiedType(path):
            return Alias(_fill(write_path(path), bound))
        case spec:
            return _part(spec, bound, shape)


def _part(spec: n.Direct | n.Transform, bound: IndexValues, shape: tuple[int, ...]) -> WeightRecipe:
    if isinstance(spec, n.Direct):
        return Whole(_fill(spec.name, bound))
    if spec.function != STACK:
        return Whole(_fill(spec.name, bound), spec.function)
    free = next((item for item in _PLACEHOLDER.findall(spec.name) if item not in bound), "")
    extent = shape[0] if shape and shape[0] <= _MOST_SLICES else 0
    return Stacked(tuple(Whole(_fill(spec.name, {**bound, free: index})) for index in range(extent)))


def _fill(text: str, bound: IndexValues) -> str:
    for name, index in bound.items():
        text = text.replace(f"{{{name}}}", str(index))
    return text


# --- checks of one entry --------------------------------------------------------------------------------------


def _truth(context: MappingContext, condition: n.Expr) -> bool:
    value = context.evaluate(condition)
    if not isinstance(value, bool):
        raise Found(_wrong_kind(condition, "the condition", value, "true or false"))
    return value


def _bounds(context: MappingContext, spec: n.Spec) -> tuple[tuple[int, int], ...]:
    """The ranges of a split; none for anything else."""
    if not isinstance(spec, n.Split):
        return ()
    return tuple((_integer(context, part.low), _integer(context, part.high)) for part in spec.parts)


def _integer(context: MappingContext, bound: n.Expr) -> int:
    value = context.evaluate(bound)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Found(_wrong_kind(bound, "the bound of the range", value, "an integer"))
    return value


def _wrong_kind(expr: n.Expr, what: str, value: object, wanted: str) -> Diagnostic:
    return constants.KIND.at(expr.span, what=what, found=str(value)[:80], wanted=wanted, repair="")


def _check_spec(mapping: n.Mapping, left: set[str]) -> Iterator[Diagnostic]:
    """Functions are known, and placeholders stand on both sides."""
    for item in _parts_of(mapping.spec):
        function = item.function if isinstance(item, n.Transform) else ""
        if function and function not in function_names():
            close = nearest(function, function_names())
            known = f"did you mean {close[0]}?" if close else f"there are {', '.join(function_names())}"
            yield rules.FUNCTION.at(item.span, name=function, repair=known)
        right = set(_PLACEHOLDER.findall(_text_of(item)))
        free = right - left
        if function == STACK and not free:
            yield rules.FUNCTION_STACK.at(item.span, name=_text_of(item))
        if function == STACK and len(free) == 1:
            free = set()
        lost = set() if isinstance(item, n.TiedType) else left - right
        yield from (rules.PLACEHOLDER.at(item.span, name=name) for name in sorted(free | lost))


def _text_of(part: n.Direct | n.Transform | n.SplitPart | n.TiedType) -> str:
    return write_path(part.path) if isinstance(part, n.TiedType) else part.name


def _parts_of(spec: n.Spec) -> tuple[n.Direct | n.Transform | n.SplitPart | n.TiedType, ...]:
    match spec:
        case n.Fuse(sources):
            return sources
        case n.Split(parts):
            return parts
        case _:
            return (spec,)
