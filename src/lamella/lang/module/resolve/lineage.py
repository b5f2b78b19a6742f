"""Declarations that extend others, and modules that parameters name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Span
from lamella.lang.module.nodes import ConfigParam, Field, InstanceType, Module, Preset, Primitive, Recipe
from lamella.lang.module.resolve.nodes import Declared, Scope
from lamella.lang.module.rules import constants, syntax
from lamella.lang.module.rules import inheritance as rules
from lamella.lang.module.rules import names as name_rules
from lamella.lang.module.suggest import suggest

_KINDS = {Primitive: "a primitive", Recipe: "a recipe", Preset: "a preset"}


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """A declaration of a lineage with the scope of its file."""

    declared: Declared
    module: Module
    scope: Scope


def trace_lineage(declared: Declared, scope: Scope, limits: Limits = DEFAULT) -> list[Generation]:
    """A declaration and those that it extends, the first ancestor first; raises Found where one is none."""
    found: list[Generation] = []
    seen: set[int] = set()
    while True:
        module = declared.declaration
        if not isinstance(module, Module):
            raise Found(_not_a_module(found[-1].module, module))
        if id(module) in seen:
            cycle = " -> ".join([*(item.module.name for item in found), module.name])
            raise Found(rules.CYCLE.at(found[0].module.span, name=found[0].module.name, cycle=cycle))
        seen.add(id(module))
        found.append(Generation(declared, module, scope))
        if len(found) > limits.max_depth:
            what = f"the number of ancestors of '{found[0].module.name}'"
            raise Found(
                syntax.LIMIT.at(found[0].module.span, what=what, limit=limits.max_depth, option="max_depth")
            )
        if module.extends is None:
            return found[::-1]
        declared = _parent(module, scope)
        scope = scope.of(declared)


def merge_fields(old: tuple[Field, ...] | None, new: tuple[Field, ...] | None) -> tuple[Field, ...] | None:
    """The fields of a section such as `hf_config:`; those that a descendant does not say are the ancestor's."""
    if old is None or new is None:
        return old if new is None else new
    own = {item.name for item in new}
    return (*(item for item in old if item.name not in own), *new)


def inherited_config(lineage: Sequence[Generation]) -> tuple[Field, ...]:
    """What a declaration and those that it extends say in `hf_config:`."""
    return reduce(merge_fields, (item.module.hf_config for item in lineage), None) or ()


def _parent(module: Module, scope: Scope) -> Declared:
    return _find(module.extends or "", scope, module.span)


def _find(name: str, scope: Scope, span: Span) -> Declared:
    found = scope.find(name)
    if found is not None:
        return found
    home = scope.library.home(name)
    repair = f"import {home}" if home else suggest(name, scope.names())
    raise Found(name_rules.UNKNOWN.at(span, name=name, where="here", repair=repair))


def _not_a_module(child: Module, found: Primitive | Recipe | Preset) -> Diagnostic:
    return rules.NOT_A_MODULE.at(child.span, name=child.name, parent=child.extends, found=_KINDS[type(found)])


def config_params(lineage: list[Generation]) -> tuple[ConfigParam, ...]:
    """The config parameters of the last generation: its own list, or that of the nearest ancestor that has one."""
    lists = (item.module.params for item in reversed(lineage))
    return next((params for params in lists if params is not None), ())


def find_module(kind: InstanceType, scope: Scope) -> Declared:
    """The module that a parameter names; raises Found where there is none of that name."""
    found = _find(kind.module, scope, kind.span)
    if not isinstance(found.declaration, Module):
        what, kind_found = f"'{kind.module}'", _KINDS[type(found.declaration)]
        raise Found(
            constants.KIND.at(
                kind.span, what=what, found=kind_found, wanted="a module, block or model", repair=""
            )
        )
    return found
