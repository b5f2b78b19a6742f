"""Mappings against the tensors of an instance: conditions, elements, ranges and dimensions: E010."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.lang.module.instantiate.evaluate import evaluate_bool, evaluate_int
from lamella.lang.module.instantiate.nodes import Instance
from lamella.lang.module.nodes import Fuse, Integer, Mapping, Split
from lamella.lang.module.rules import mappings as rules
from lamella.lang.module.write import write_path

_Shape = tuple[int, ...]


def check_mapped(instance: Instance) -> Iterator[Diagnostic]:
    """What is wrong with `hf_mapping:` and `hf_export:` once the shapes of parameters are known."""
    module = instance.module
    for entry in (*(module.hf_mapping or ()), *(module.hf_export or ())):
        try:
            if entry.condition is None or evaluate_bool(entry.condition, instance.values, "the condition"):
                _require_fit(entry, instance)
        except Found as problem:
            yield problem.finding


def _require_fit(entry: Mapping, instance: Instance) -> None:
    bounds = _bounds(entry.spec, instance) if isinstance(entry.spec, Split) else []
    for shape in dict.fromkeys(_shapes_at(entry, instance)):
        if isinstance(entry.spec, Split | Fuse):
            axis = _axis(entry, entry.spec.dim, shape)
            if bounds:
                _require_cover(entry, bounds, axis, shape[axis])


def _shapes_at(entry: Mapping, instance: Instance) -> Iterator[_Shape]:
    """The shapes of the tensors that an entry speaks of; none where it is switched off or leads nowhere."""
    owners = [instance]
    *modules, last = entry.path.parts
    for part in modules:
        found: dict[Instance, None] = {}
        for owner in owners:
            child = owner.children.get(part.name, ())
            elements = (child,) if isinstance(child, Instance) else child
            found |= dict.fromkeys(_chosen(entry, part.name, part.indices, elements))
        owners = list(found)
    for owner in owners:
        slot = owner.tensors.get(last.name)
        if slot is not None and slot.tied is None and len(last.indices) <= len(slot.dims):
            for index, extent in zip(last.indices, slot.dims, strict=False):
                _require_element(entry, last.name, index, extent)
            yield slot.dims[len(last.indices) :]


def _chosen(
    entry: Mapping, name: str, indices: tuple[str | int, ...], elements: tuple[Instance, ...]
) -> tuple[Instance, ...]:
    """The elements of an array that an index means: one, or with a placeholder all."""
    index = indices[0] if indices else ""
    if not isinstance(index, int) or not elements:
        return elements
    _require_element(entry, name, index, len(elements))
    return (elements[index],)


def _require_element(entry: Mapping, name: str, index: str | int, count: int) -> None:
    if isinstance(index, int) and index >= count:
        raise Found(rules.NO_ELEMENT.at(entry.path.span, name=name, index=index, count=count))


def _bounds(split: Split, instance: Instance) -> list[tuple[int, int]]:
    what = "the bound of the range"
    return sorted(
        (evaluate_int(part.low, instance.values, what), evaluate_int(part.high, instance.values, what))
        for part in split.parts
    )


def _axis(entry: Mapping, dim: int, shape: _Shape) -> int:
    if -len(shape) <= dim < len(shape):
        return dim % len(shape)
    raise Found(rules.NO_DIMENSION.at(entry.span, path=write_path(entry.path), shape=list(shape), dim=dim))


def _require_cover(entry: Mapping, bounds: list[tuple[int, int]], axis: int, extent: int) -> None:
    """Ranges cover a dimension without gap or overlap; those of literals are known to follow each other."""
    position, why = 0, ""
    for low, high in bounds:
        if not why and (low != position or high < low):
            why = "run backwards" if high < low else "overlap" if low < position else "leave a gap"
        position = high
    if why and _is_literal(entry.spec):
        return
    why = why or ("" if position == extent else f"end at {position}")
    if why:
        path = write_path(entry.path)
        raise Found(rules.COVERING.at(entry.span, path=path, why=why, dim=axis, extent=extent))


def _is_literal(spec: object) -> bool:
    parts = spec.parts if isinstance(spec, Split) else ()
    return all(isinstance(bound, Integer) for part in parts for bound in (part.low, part.high))
