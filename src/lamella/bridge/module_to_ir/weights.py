"""The weight schema: every parameter, and which tensors of a checkpoint it is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lamella.bridge.hf_to_module.nodes import indices_in, pattern_skeleton, skeleton_of
from lamella.bridge.hf_to_module.transforms import FUNCTIONS, STACK, function_names
from lamella.bridge.module_to_graph.nodes import Compiled
from lamella.bridge.module_to_ir import nodes as ir
from lamella.bridge.module_to_ir.annotating import tell_all
from lamella.bridge.module_to_ir.graph import dtype_name, is_trainable
from lamella.bridge.module_to_ir.nodes.graph import Json
from lamella.lang.module import nodes as n
from lamella.lang.module.instantiate import Instance, TensorSlot, walk
from lamella.lang.module.instantiate.evaluate import Problem, evaluate, evaluate_bool
from lamella.lang.module.write import write_path

FORMAT = "lamella.weights 1"
REGISTRY = 1
"""The version of the table of transform functions."""
LETTERS = "ijklmnopqrstuvw"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def make_weights(compiled: Compiled, instance: Instance) -> ir.WeightSchema:
    """The schema of the parameters of an instance."""
    module = instance.module
    imports = _holding(module.hf_mapping or (), instance)
    exports = _holding(module.hf_export or (), instance)
    groups: dict[object, list[_Found]] = {}
    for path, slot in walk(instance):
        found = _Found(path, slot, _concerning(path, imports), _concerning(path, exports))
        groups.setdefault(found.key(), []).append(found)
    elements = {item.path: dtype_name(item.tensor.element) for item in compiled.weights}
    entries = (entry for group in groups.values() for entry in _entries(group, elements, instance))
    return ir.WeightSchema(FORMAT, module.name, REGISTRY, function_names(), tuple(entries))


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a mapping whose condition holds, with its indices and the ranges of its split."""

    mapping: n.Mapping
    indices: tuple[str | int, ...]
    bounds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A parameter with the entries that concern it."""

    path: str
    slot: TensorSlot
    imports: tuple[_Entry, ...]
    exports: tuple[_Entry, ...]

    def key(self) -> object:
        """What parameters have in common that stand in one line of the schema."""
        slot = self.slot
        mapped = tuple(id(item) for item in (*self.imports, *self.exports))
        kind = (slot.dims, slot.dtype, slot.optional, slot.tied, slot.annotations)
        return skeleton_of(self.path), kind, mapped


# --- entries of mappings ----------------------------------------------------------------------------------------


def _holding(mappings: Sequence[n.Mapping], instance: Instance) -> dict[str, list[_Entry]]:
    """The entries that hold, by the path they speak of without its indices."""
    found: dict[str, list[_Entry]] = {}
    for mapping in mappings:
        entry = _read(mapping, instance)
        if entry is not None:
            found.setdefault(pattern_skeleton(mapping.path), []).append(entry)
    return found


def _read(mapping: n.Mapping, instance: Instance) -> _Entry | None:
    """An entry with its values; what is wrong with it is said when a checkpoint is read."""
    values, condition = instance.values, mapping.condition
    try:
        if condition is not None and not evaluate_bool(condition, values, "the condition"):
            return None
        parts = mapping.spec.parts if isinstance(mapping.spec, n.Split) else ()
        bounds = [(evaluate(item.low, values), evaluate(item.high, values)) for item in parts]
    except Problem:
        return None
    known = tuple((low, high) for low, high in bounds if isinstance(low, int) and isinstance(high, int))
    indices = tuple(index for part in mapping.path.parts for index in part.indices)
    return _Entry(mapping, indices, known) if len(known) == len(bounds) else None


def _concerning(path: str, table: Mapping[str, list[_Entry]]) -> tuple[_Entry, ...]:
    """The entries that speak of a parameter, or of the slices of it."""
    skeleton, indices = skeleton_of(path), indices_in(path)
    candidates = [*table.get(skeleton, ()), *table.get(f"{skeleton}[]", ())]
    return tuple(
        entry
        for entry in candidates
        if all(
            isinstance(wanted, str) or wanted == index
            for wanted, index in zip(entry.indices, indices, strict=False)
        )
    )


# --- entries of the schema --------------------------------------------------------------------------------------


def _entries(
    group: Sequence[_Found], elements: Mapping[str, str], instance: Instance
) -> Iterator[ir.WeightEntry]:
    """One entry for parameters that fill ranges of indices, else one for each."""
    indices = [indices_in(item.path) for item in group]
    columns = list(zip(*indices, strict=True))
    ranges = [(min(column), max(column) + 1) for column in columns]
    if prod(high - low for low, high in ranges) == len(group):
        yield _entry(group[0], ranges, elements, instance)
        return
    for item, own in zip(group, indices, strict=True):
        yield _entry(item, [(index, index + 1) for index in own], elements, instance)


def _entry(
    found: _Found, ranges: Sequence[tuple[int, int]], elements: Mapping[str, str], instance: Instance
) -> ir.WeightEntry:
    slot = found.slot
    names = _names(found, len(ranges))
    annotations = tell_all(slot.annotations, instance.values)
    told = {item.name: item.arguments for item in annotations}
    training = told.get("trainable", {})
    imports = tuple(_spec(entry, names) for entry in found.imports)
    exports = tuple(_spec(entry, names) for entry in found.exports)
    return ir.WeightEntry(
        path=_with_names(found.path, names),
        ranges=dict(zip(names, ranges, strict=True)),
        shape=slot.dims,
        dtype=elements.get(slot.tied or found.path, slot.dtype or ""),
        trainable=is_trainable(slot, None),
        lr_scale=_number(training.get("lr_scale"), 1.0),
        wd_scale=_number(training.get("wd_scale"), 1.0),
        grad_clip=_number(training.get("grad_clip"), 0.0) or None,
        shard=told.get("shard"),
        storage=told.get("scaling") or told.get("dtype"),
        optional=slot.optional,
        tied_to=slot.tied,
        imports=imports,
        exports=exports or tuple(_undone(imports)),
        annotations=annotations,
    )


def _number(value: Json, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default


def _names(found: _Found, count: int) -> list[str]:
    """What the indices of a parameter are called: as the mapping calls them, else by letters."""
    entry = next(iter((*found.imports, *found.exports)), None)
    given = [] if entry is None else list(entry.indices[:count])
    taken = {item for item in given if isinstance(item, str)}
    free = (letter for letter in LETTERS if letter not in taken)
    names = [item if isinstance(item, str) else next(free) for item in given]
    return names + [next(free) for _ in range(count - len(names))]


def _with_names(path: str, names: Iterable[str]) -> str:
    text = skeleton_of(path)
    for name in names:
        text = text.replace("[]", f"[{{{name}}}]", 1)
    return text


# --- specifications ---------------------------------------------------------------------------------------------


def _spec(entry: _Entry, names: Sequence[str]) -> ir.Spec:
    """How an entry makes a parameter, with the names that the schema has for its indices."""
    mapping = entry.mapping
    renamed = {own: name for own, name in zip(entry.indices, names, strict=False) if isinstance(own, str)}
    kind, parts, dim = _parts(mapping.spec, entry.bounds)
    known = tuple(ir.Part(_rename(item.name, renamed), item.function, item.low, item.high) for item in parts)
    return ir.Spec(_rename(write_path(mapping.path), renamed), kind, known, dim, mapping.optional)


def _rename(text: str, renamed: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: f"{{{renamed.get(match[1], match[1])}}}", text)


def _parts(spec: n.Spec, bounds: Sequence[tuple[int, int]]) -> tuple[str, list[ir.Part], int]:
    match spec:
        case n.Direct(name):
            return "direct", [ir.Part(name)], 0
        case n.Transform(name, function):
            return ("stack" if function == STACK else "transform"), [ir.Part(name, function)], 0
        case n.Fuse(sources, dim):
            return "fuse", [ir.Part(item.name, getattr(item, "function", "")) for item in sources], dim
        case n.Split(parts, dim):
            ranges = zip(parts, bounds, strict=True)
            return "split", [ir.Part(item.name, "", *bound) for item, bound in ranges], dim
    return "tied", [ir.Part(write_path(spec.path))], 0


_OPPOSITE = {
    "direct": "direct",
    "transform": "transform",
    "stack": "unstack",
    "fuse": "split",
    "split": "split",
}


def _undone(imports: Sequence[ir.Spec]) -> Iterator[ir.Spec]:
    """What undoes the entries; where to split a fused parameter is as its sources say."""
    for item in imports:
        if item.kind in _OPPOSITE:
            parts = (ir.Part(part.name, _inverse(part.function), part.low, part.high) for part in item.parts)
            yield ir.Spec(
                item.path, _OPPOSITE[item.kind], tuple(parts), item.dim, item.optional, derived=True
            )


def _inverse(function: str) -> str:
    found = FUNCTIONS.get(function)
    return "" if found is None else found.inverse
