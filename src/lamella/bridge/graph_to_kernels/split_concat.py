"""Pointwise consumers of a concatenation, split into consumers of its parts: the whole is never written.

    c[i, j] = a[i, j];  c[i, j + n] = b[i, j];  y[i, k] = f(c[i, k], g[k])

is `y[i, j] = f(a[i, j], g[j])` and `y[i, j + n] = f(b[i, j], g[j + n])`. Where others read `c` too, each part is
written beside what is computed from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lamella.base.dtype import F32, F64, Kind
from lamella.bridge.graph_to_kernels.affine import find_form
from lamella.bridge.graph_to_kernels.coverage import is_written_whole
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.maps import ASSIGNMENTS
from lamella.bridge.graph_to_kernels.split_reductions import elements_of, replace_terms
from lamella.bridge.graph_to_kernels.terms import TensorView
from lamella.lang.tensor.nodes import Value
from lamella.ops.formula import Contraction, Element, Guard, Index
from lamella.ops.lower import reachable

PART = "/part"
"""How the loops of a part are called in what is made of it."""


def split_concat_consumers(stages: Stages) -> Stages:
    """The stages with pointwise consumers of concatenations split into consumers of their parts."""
    found, written = stages, Counter(item.tensor for stage in stages.contractions for item in stage.targets)
    for name, parts in written.items():
        if parts > 1:
            found = _split_consumer(found, name)
    return found


def _split_consumer(stages: Stages, name: str) -> Stages:
    """The stages with the one consumer of a tensor split, where the tensor is a concatenation."""
    contractions = stages.contractions
    places = [
        place for place, item in enumerate(contractions) if any(one.tensor == name for one in item.targets)
    ]
    readers = [item for item in contractions if name in _read(item)]
    if len(readers) != 1 or not _covers(stages, name):
        return stages
    reader, parts = readers[0], [contractions[place] for place in places]
    own = _loops_read(reader, name, stages)
    end = next(place for place, item in enumerate(contractions) if item is reader)
    late = {
        item.tensor
        for stage in contractions[places[0] :]
        if stage is not reader
        for item in stage.targets
        if item.tensor != name
    }
    made = reader.targets[0].tensor
    fits = places[-1] < end and all(_is_part(item, name, stages) for item in parts)
    waits = late & {*_read(reader), made} or any(made in _read(item) for item in contractions[:end])
    if own is None or not fits or waits:
        return stages
    kept = name in stages.outputs
    found: list[Contraction] = []
    for place, item in enumerate(contractions):
        if item is reader:
            continue
        if place in places:
            found += [item] if kept else []
            found.append(_of_part(reader, own, item))
        else:
            found.append(item)
    tensors = {key: held for key, held in stages.tensors.items() if kept or key != name}
    return replace(stages, contractions=tuple(found), tensors=tensors)


def _read(stage: Contraction) -> set[str]:
    roots = (*stage.values, stage.condition)
    return {item.tensor for item in reachable(*roots) if isinstance(item, Element)}


def _covers(stages: Stages, name: str) -> bool:
    views: Mapping[tuple[str, int | None], TensorView] = {
        (key, None): TensorView(Value(key), held.element, held.shape) for key, held in stages.tensors.items()
    }
    return is_written_whole((name, None), stages.contractions, views)


def _is_map(stage: Contraction) -> bool:
    """Whether a stage assigns one element in each step, none left out."""
    if len(stage.targets) != 1 or stage.sign not in ASSIGNMENTS or stage.condition is not None:
        return False
    indices = stage.targets[0].indices
    counted = {item.name for item in reachable(*indices) if isinstance(item, Index)}
    plain = not any(isinstance(index, Guard) for index in indices)
    return plain and all(
        isinstance(loop.extent, int) and (loop.extent == 1 or loop.index in counted) for loop in stage.loops
    )


def _is_part(stage: Contraction, name: str, stages: Stages) -> bool:
    """Whether a stage writes elements that have the same values without being stored."""
    if not _is_map(stage) or any(
        isinstance(index, Guard) for item in elements_of(stage) for index in item.indices
    ):
        return False
    (value,), element = stage.values, stages.tensors[name].element
    alike = isinstance(value, Element) and stages.tensors[value.tensor].element == element
    return name not in _read(stage) and (alike or element in (F32, F64) or element.kind is Kind.BOOL)


def _loops_read(stage: Contraction, name: str, stages: Stages) -> list[str] | None:
    """The loops of a map that count the dimensions of a tensor which it reads; None where it reads it otherwise."""
    extents = {loop.index: loop.extent for loop in stage.loops if isinstance(loop.extent, int)}
    if not _is_map(stage):
        return None
    found: list[str] | None = None
    for item in elements_of(stage):
        if item.tensor != name:
            continue
        names: list[str] = []
        for index, size in zip(item.indices, stages.tensors[name].shape, strict=True):
            form = None if isinstance(index, Guard) else find_form(index, extents)
            if form is None or form.constant or [factor for _, factor in form.terms] != [1] * (size > 1):
                return None
            if size > 1 and extents[form.terms[0][0]] != size:
                return None
            names += [form.terms[0][0] if form.terms else ""]
        if found not in (None, names) or len(set(names) - {""}) < sum(map(bool, names)):
            return None
        found = names
    return found


def _of_part(reader: Contraction, own: Sequence[str], part: Contraction) -> Contraction:
    """The consumer of one part."""
    moved = replace_terms(part, {loop.index: Index(f"{loop.index}{PART}") for loop in part.loops})
    (target,), (value,) = moved.targets, moved.values
    terms = {
        name: index
        for name, index in zip(own, target.indices, strict=True)
        if name and not isinstance(index, Guard)
    }
    loops = [replace(loop, index=f"{loop.index}{PART}") for loop in part.loops]
    rest = [loop for loop in reader.loops if loop.index not in own]
    return replace(replace_terms(reader, terms, {target.tensor: value}), loops=(*loops, *rest))
