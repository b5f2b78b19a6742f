"""What a declaration takes over from those that it extends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lamella.lang.module.instantiate.tree import is_override
from lamella.lang.module.nodes import (
    Backward,
    ConfigParam,
    Constant,
    Forward,
    Mapping,
    Module,
    Param,
    Port,
)
from lamella.lang.module.resolve.lineage import Generation, merge_fields


@dataclass(frozen=True, slots=True)
class Restated:
    """A parameter, or the inputs or outputs, that a descendant says again."""

    child: Generation
    parent: Generation
    now: Param | tuple[Port, ...]
    before: Param | tuple[Port, ...]


@dataclass(slots=True, eq=False)
class Merged:
    """A declaration with all that it inherits.

    `tensors` pairs each parameter with the generation whose names it uses; `missing` are config parameters of an
    ancestor that the declaration itself does not have.
    """

    module: Module
    tensors: list[tuple[Param, Generation]]
    graph: Generation
    backward: Generation
    missing: list[ConfigParam] = field(default_factory=list)
    restated: list[Restated] = field(default_factory=list)
    added_twice: list[Param] = field(default_factory=list)


def merge(lineage: list[Generation]) -> Merged:
    """All generations as one declaration; what contradicts is kept for when the shapes are known."""
    first = lineage[0]
    merged = Merged(first.module, [(item, first) for item in first.module.tensors], first, first)
    for child in lineage[1:]:
        _take_params(merged, child)
        _take_tensors(merged, child)
        _take_graphs(merged, child)
        merged.module = _take_sections(merged.module, child.module)
    tensors = tuple(param for param, _ in merged.tensors)
    merged.module = replace(merged.module, tensors=tensors, extends=None)
    return merged


def _take_params(merged: Merged, child: Generation) -> None:
    """The parameters of the descendant; those that only the ancestor has keep their defaults."""
    if child.module.params is None:
        return
    own = {param.name for param in child.module.params}
    before = [*(merged.module.params or ()), *merged.missing]
    merged.missing = [param for param in before if param.name not in own]


def _take_tensors(merged: Merged, child: Generation) -> None:
    places = {param.path: index for index, (param, _) in enumerate(merged.tensors)}
    for param in child.module.tensors:
        index = places.get(param.path)
        if index is None or is_override(param):
            merged.tensors.append((param, child))
            continue
        before, parent = merged.tensors[index]
        if param.added:
            merged.added_twice.append(param)
        else:
            merged.restated.append(Restated(child, parent, param, before))
            kept = replace(before, annotations=(*before.annotations, *param.annotations))
            merged.tensors[index] = (kept, parent)


def _take_graphs(merged: Merged, child: Generation) -> None:
    old, new = merged.module.forward, child.module.forward
    if old is not None and new is not None:
        pairs = ((new.inputs, old.inputs), (new.outputs, old.outputs))
        merged.restated += [
            Restated(child, merged.graph, now, before)
            for now, before in pairs
            if now is not None and before is not None
        ]
    if _has_graph(child.module):
        merged.graph = merged.backward = child
    elif child.module.backward is not None:
        merged.backward = child


def _has_graph(module: Module) -> bool:
    """Whether a declaration says itself what it computes."""
    return module.sublayers is not None or (module.forward is not None and module.forward.graph is not None)


def _take_sections(old: Module, new: Module) -> Module:
    return replace(
        new,
        params=old.params if new.params is None else new.params,
        annotations=(*old.annotations, *new.annotations),
        bindings=(*old.bindings, *new.bindings),
        constants=_named_last(old, new),
        sublayers=new.sublayers if _has_graph(new) else old.sublayers,
        forward=_take_forward(old, new),
        backward=_take_backward(old, new),
        hf_config=merge_fields(old.hf_config, new.hf_config),
        hf_mapping=_take_mappings(old.hf_mapping, new.hf_mapping, new.hf_mapping),
        # The way back belongs to the entry of its parameter: another entry has another.
        hf_export=_take_mappings(old.hf_export, new.hf_export, new.hf_mapping, new.hf_export),
        stub=old.stub or new.stub,
    )


def _take_mappings(
    old: tuple[Mapping, ...] | None, new: tuple[Mapping, ...] | None, *said: tuple[Mapping, ...] | None
) -> tuple[Mapping, ...] | None:
    """The entries of the descendant, and those of the ancestor for parameters of which nothing is said."""
    if old is None:
        return new
    own = {_place(item) for items in said for item in items or ()}
    return (*(item for item in old if _place(item) not in own), *(new or ()))


def _place(item: Mapping) -> str:
    """The path of an entry; what its placeholders are called does not matter."""
    parts = (
        (part.name, *("{}" if isinstance(at, str) else f"{at}" for at in part.indices))
        for part in item.path.parts
    )
    return ".".join("/".join(part) for part in parts)


def _named_last(old: Module, new: Module) -> tuple[Constant, ...]:
    found = {item.name: item for item in (*old.constants, *new.constants)}
    return tuple(found.values())


def _take_forward(old: Module, new: Module) -> Forward | None:
    """Inputs and outputs are inherited one by one, the graph with its save lists as a whole."""
    before, now = old.forward, new.forward
    if before is None or now is None:
        kept = now if before is None else before
        return replace(kept, graph=None) if kept is before and kept and new.sublayers else kept
    ports = now.inputs if now.inputs is not None else before.inputs
    outputs = now.outputs if now.outputs is not None else before.outputs
    if _has_graph(new):
        return replace(now, inputs=ports, outputs=outputs)
    return replace(
        before,
        inputs=ports,
        outputs=outputs,
        save=now.save or before.save,
        recompute=now.recompute or before.recompute,
        annotations=(*before.annotations, *now.annotations),
    )


def _take_backward(old: Module, new: Module) -> Backward | None:
    """The backward graph belongs to the forward graph: it goes where that is replaced."""
    return new.backward if new.backward is not None or _has_graph(new) else old.backward
