"""Weight mappings against the parameters that a declaration has: E010."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.check.views import View, find_module, view_of
from lamella.lang.module.instantiate.walk import path_text
from lamella.lang.module.nodes import (
    Direct,
    Field,
    Fuse,
    Integer,
    Mapping,
    Module,
    Path,
    PathPart,
    Spec,
    Split,
    SplitPart,
    TiedType,
    Transform,
)
from lamella.lang.module.resolve.near import Nearness, guess
from lamella.lang.module.resolve.nodes import Scope
from lamella.lang.module.rules import constants
from lamella.lang.module.rules import mappings as rules

TRANSFORMS = (
    "transpose",
    "neg",
    "negate_exp",
    "log_negate",
    "exp",
    "log",
    "squeeze_1",
    "unsqueeze_1",
    "half_to_interleaved",
    "interleaved_to_half",
    "stack",
)
"""The functions that may stand behind `fn:`."""
STACK = "stack"
ARCHITECTURE, PARAMETERS = "architecture", "param_mapping"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_INDEX = re.compile(r"\[[^\]]*\]")
_Part = Direct | Transform | SplitPart | TiedType


def check_mappings(view: View) -> Iterator[Diagnostic]:
    """What is wrong with the entries of `hf_config:`, `hf_mapping:` and `hf_export:` whatever the values are."""
    module = view.module
    if module.hf_config is not None:
        yield from _check_config(module.hf_config, view)
    paths = _Paths(view)
    for entries in (module.hf_mapping, module.hf_export):
        yield from _check_twice(entries or ())
        for entry in entries or ():
            yield from _check_entry(entry, paths)


# --- hf_config --------------------------------------------------------------------------------------------------


def _check_config(fields: tuple[Field, ...], view: View) -> Iterator[Diagnostic]:
    if view.whole and not any(item.name == ARCHITECTURE for item in _config_fields(view)):
        yield constants.MISSING_SECTION.at(
            fields[0].span if fields else view.module.span,
            module=view.module.name,
            section="architecture in its hf_config section",
            repair='name the class that config.json names: architecture: "…"',
        )
    for item in fields:
        if item.name == PARAMETERS and isinstance(item.value, tuple):
            for entry in item.value:
                if view.whole and entry.name not in view.config:
                    repair = guess(entry.name, view.config)
                    yield rules.PARAMETER.at(entry.span, name=entry.name, repair=repair)


def _config_fields(view: View) -> list[Field]:
    return [item for module, _ in view.lineage for item in module.hf_config or ()]


# --- entries ----------------------------------------------------------------------------------------------------


def _check_twice(entries: tuple[Mapping, ...]) -> Iterator[Diagnostic]:
    """Parameters with two entries; entries with conditions may exclude each other."""
    seen: set[str] = set()
    for entry in entries:
        if entry.condition is None:
            path = _PLACEHOLDER.sub("{}", path_text(entry.path))
            if path in seen:
                yield rules.TWICE.at(entry.path.span, path=path_text(entry.path))
            seen.add(path)


def _check_entry(entry: Mapping, paths: _Paths) -> Iterator[Diagnostic]:
    yield from paths.check(entry.path)
    left = {item for part in entry.path.parts for item in part.indices if isinstance(item, str)}
    for part in parts_of(entry.spec):
        yield from _check_part(part, left)
        if isinstance(part, TiedType):
            yield from paths.check(part.path)
    if isinstance(entry.spec, Split):
        yield from _check_ranges(entry, entry.spec)


def _check_part(part: _Part, left: set[str]) -> Iterator[Diagnostic]:
    """Functions are known, and placeholders stand on both sides."""
    function = part.function if isinstance(part, Transform) else ""
    if function and function not in TRANSFORMS:
        repair = guess(function, TRANSFORMS) or f"there are {', '.join(TRANSFORMS)}"
        yield rules.FUNCTION.at(part.span, name=function, repair=repair)
    text = path_text(part.path) if isinstance(part, TiedType) else part.name
    right = set(_PLACEHOLDER.findall(text))
    free = right - left
    if function == STACK:
        if not free:
            yield rules.FUNCTION_STACK.at(part.span, name=text)
        free = free if len(free) > 1 else set()
    lost = set() if isinstance(part, TiedType) else left - right
    yield from (rules.PLACEHOLDER.at(part.span, name=name) for name in sorted(free | lost))


def parts_of(spec: Spec) -> tuple[_Part, ...]:
    """The tensors of a checkpoint that an entry speaks of."""
    if isinstance(spec, Fuse):
        return spec.sources
    return spec.parts if isinstance(spec, Split) else (spec,)


def _check_ranges(entry: Mapping, split: Split) -> Iterator[Diagnostic]:
    """Ranges that are numbers follow each other without gaps."""
    path = path_text(entry.path)
    for part in split.parts:
        if (
            isinstance(part.low, Integer)
            and isinstance(part.high, Integer)
            and part.high.value <= part.low.value
        ):
            why = f"hold nothing in [{part.low.value}, {part.high.value}]"
            yield rules.RANGES.at(part.span, path=path, why=why)
            return
    if split.parts and isinstance(split.parts[0].low, Integer) and split.parts[0].low.value != 0:
        why = f"begin at {split.parts[0].low.value}, not at 0"
        yield rules.RANGES.at(split.parts[0].span, path=path, why=why)
    for first, second in pairwise(split.parts):
        end, begin = first.high, second.low
        if isinstance(end, Integer) and isinstance(begin, Integer) and end.value != begin.value:
            kind = "overlap" if begin.value < end.value else "leave a gap"
            why = f"{kind}: one ends at {end.value}, the next begins at {begin.value}"
            yield rules.RANGES.at(second.span, path=path, why=why)


# --- paths ------------------------------------------------------------------------------------------------------


class _Paths:
    """The parameters of a declaration and of all below it, looked up by paths."""

    def __init__(self, view: View) -> None:
        self._view = view
        tensors = (param for module, _ in view.lineage for param in module.tensors)
        self._added = {_bare(path_text(param.path)) for param in tensors}
        self._views: dict[int, View] = {}
        self._near: dict[int, Nearness] = {}

    def check(self, path: Path) -> Iterator[Diagnostic]:
        """A path leads to a parameter; one that was added from above is found by its text."""
        text = path_text(path)
        repair = None if _bare(text) in self._added else self._miss(path.parts)
        if repair is not None:
            yield rules.UNKNOWN_PATH.at(path.span, model=self._view.module.name, path=text, repair=repair)

    def _miss(self, parts: tuple[PathPart, ...]) -> str | None:
        """What is meant instead of the first part of a path that leads nowhere; None where all parts lead on."""
        current: View | None = self._view
        for number, part in enumerate(parts):
            if current is None or not current.whole:
                return None
            if part.name not in current.params:
                return self._nearness(current).guess(part.name)
            child = current.child(part.name)
            last = number == len(parts) - 1
            if child is None or last:
                is_tensor = child is None and last
                return (
                    None if is_tensor else f"'{part.name}' is {'a tensor' if child is None else 'no tensor'}"
                )
            inner = find_module(child[0].module, child[1])
            current = None if inner is None else self._below(*inner)
        return None

    def _below(self, module: Module, scope: Scope | None) -> View:
        if id(module) not in self._views:
            self._views[id(module)] = view_of(module, scope)
        return self._views[id(module)]

    def _nearness(self, view: View) -> Nearness:
        if id(view) not in self._near:
            self._near[id(view)] = Nearness(lambda: view.params)
        return self._near[id(view)]


def _bare(path: str) -> str:
    return _INDEX.sub("[]", path)
