"""Names that one declaration gives twice in one of its two worlds, constants and tensors, or cannot give at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.module.nodes import Document, Let, Module, Preset, Primitive, Recipe, RuntimeDim
from lamella.lang.module.rules import names as rules
from lamella.lang.module.words import RESERVED


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


def find_reserved(document: Document, primitives: Collection[str]) -> Iterator[Diagnostic]:
    """Declarations and parameters with names that cannot be declared; a tensor may be named like a primitive."""
    for item in document.items:
        if not isinstance(item, Module):
            continue
        names = [(item.kind, item.name, item.span)]
        names += [("config parameter", param.name, param.span) for param in item.params or ()]
        names += [entry for entry in _own_tensors(item) if entry[1] not in primitives]
        for kind, name, span in names:
            if name in RESERVED:
                yield rules.RESERVED.at(span, name=name, kind=kind)


def _own_tensors(module: Module) -> list[tuple[str, str, Span]]:
    """The parameters that a declaration gives itself, not those of its instances."""
    return [
        ("parameter", item.path.parts[0].name, item.span)
        for item in module.tensors
        if len(item.path.parts) == 1 and not item.path.parts[0].indices
    ]


def _in_module(module: Module) -> Iterator[Diagnostic]:
    params = [("config parameter", param.name, param.span) for param in module.params or ()]
    lets = [
        ("let name", item.name, item.span) for item in module.bindings if isinstance(item, Let | RuntimeDim)
    ]
    yield from _twice([*params, *lets], module.name)
    constants = [("constant", item.name, item.span) for item in module.constants]
    yield from _twice([*_own_tensors(module), *constants], module.name)


def _twice(names: Iterable[tuple[str, str, Span]], owner: str) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for kind, name, span in names:
        if name in seen:
            yield rules.DUPLICATE.at(span, kind=kind, name=name, where=f"'{owner}'")
        seen.add(name)
