"""Names that declarations use: what they extend and what their parameters are."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import Limits
from lamella.lang.module.nodes import ArrayType, InstanceType, Module, Param
from lamella.lang.module.resolve.lineage import find_module, trace_lineage
from lamella.lang.module.resolve.nodes import Declared, Scope
from lamella.lang.module.resolve.problem import Problem
from lamella.lang.module.rules.syntax import LIMIT


def check_uses(scope: Scope, limits: Limits) -> Iterator[Diagnostic]:
    """What the declarations of a file name and nobody declares, whether or not it is ever instantiated."""
    declared = [item for item in scope.local.values() if isinstance(item.declaration, Module)]
    yield from _check_lineages(declared, scope, limits)
    for item in declared:
        if isinstance(item.declaration, Module):
            yield from _check_params(item.declaration, scope)


def _check_lineages(declared: list[Declared], scope: Scope, limits: Limits) -> Iterator[Diagnostic]:
    for item in declared:
        try:
            trace_lineage(item, scope, limits)
        except Problem as problem:
            yield problem.finding
            if problem.finding.code == LIMIT.code:  # the others of a lineage without end would say the same
                return


def _check_params(module: Module, scope: Scope) -> Iterator[Diagnostic]:
    for param in module.tensors:
        for kind in _instances(param):
            try:
                find_module(kind, scope)
            except Problem as problem:
                yield problem.finding


def _instances(param: Param) -> Iterator[InstanceType]:
    for kind in (param.type, param.otherwise):
        if isinstance(kind, InstanceType):
            yield kind
        elif isinstance(kind, ArrayType) and isinstance(kind.element, InstanceType):
            yield kind.element
