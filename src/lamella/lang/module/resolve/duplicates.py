"""Names that one declaration gives twice in one of its two worlds, that of constants and that of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.module.nodes import Document, Let, Module, Preset, Primitive, Recipe, RuntimeDim
from lamella.lang.module.rules import names as rules


def find_duplicates(document: Document) -> Iterator[Diagnostic]:
    """The names that a declaration of a file gives twice."""
    for item in document.items:
        if isinstance(item, Module):
            yield from _in_module(item)
        elif isinstance(item, Primitive):
            params = (("parameter", param.name, param.span) for param in item.params)
            yield from _twice(params, item.name)
        elif isinstance(item, Recipe | Preset):
            fields = (("field", field.name, field.span) for field in item.fields if field.name != "-")
            yield from _twice(fields, item.name)


def _in_module(module: Module) -> Iterator[Diagnostic]:
    params = [("config parameter", param.name, param.span) for param in module.params or ()]
    lets = [
        ("let name", item.name, item.span) for item in module.bindings if isinstance(item, Let | RuntimeDim)
    ]
    yield from _twice([*params, *lets], module.name)
    tensors = [
        ("parameter", item.path.parts[0].name, item.span)
        for item in module.tensors
        if len(item.path.parts) == 1 and not item.path.parts[0].indices
    ]
    constants = [("constant", item.name, item.span) for item in module.constants]
    yield from _twice([*tensors, *constants], module.name)


def _twice(names: Iterable[tuple[str, str, Span]], owner: str) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for kind, name, span in names:
        if name in seen:
            yield rules.DUPLICATE.at(span, kind=kind, name=name, where=f"'{owner}'")
        seen.add(name)
