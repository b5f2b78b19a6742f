"""What is wrong with a document, before any of its declarations has values."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.check.annotated import check_annotations
from lamella.lang.module.check.fields import check_presets, check_recipe, check_types
from lamella.lang.module.check.fusion import check_fusion
from lamella.lang.module.check.mappings import check_mappings
from lamella.lang.module.check.names import check_names
from lamella.lang.module.check.precedence import settle
from lamella.lang.module.check.primitives import check_primitive
from lamella.lang.module.check.settings import check_settings
from lamella.lang.module.check.stages import Regions, check_stages
from lamella.lang.module.check.views import View, view_of
from lamella.lang.module.nodes import Document, Module, Primitive, Recipe
from lamella.lang.module.resolve import Scope

__all__ = ["check", "settle"]


def check(document: Document, scope: Scope | None = None) -> Iterator[Diagnostic]:
    """Every finding of the rules that need no values; names of other files are known with a scope only."""
    yield from settle(_check(document, scope), document.lost)


def _check(document: Document, scope: Scope | None) -> Iterator[Diagnostic]:
    regions = Regions()
    for item in document.items:
        if isinstance(item, Module | Primitive):
            yield from check_types(item.params or ())
        if isinstance(item, Module):
            view = view_of(item, scope)
            yield from _check_module(view)
            yield from check_stages(view, regions)
        elif isinstance(item, Primitive):
            yield from check_primitive(item)
        elif isinstance(item, Recipe):
            yield from check_recipe(item)
    yield from check_presets(document, scope)
    yield from check_settings(document)


def _check_module(view: View) -> Iterator[Diagnostic]:
    for group in (check_names, check_annotations, check_fusion, check_mappings):
        yield from group(view)
