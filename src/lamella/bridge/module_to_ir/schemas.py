"""The weight schema, the config schema and the metadata of a compiled unit."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import prod

from lamella.base import dim
from lamella.base.dim import Extent, TooComplex
from lamella.base.errors import Found
from lamella.bridge.hf_to_module.config import mapped_keys, text_of, type_of
from lamella.bridge.hf_to_module.weights import (
    FUNCTIONS,
    STACK,
    function_names,
    indices_in,
    pattern_skeleton,
    skeleton_of,
)
from lamella.bridge.module_to_graph.nodes import Compiled
from lamella.bridge.module_to_ir import nodes as ir
from lamella.bridge.module_to_ir.annotations import Marks, plain, resolve_annotations
from lamella.bridge.module_to_ir.codec import encode
from lamella.bridge.module_to_ir.graph import dtype_name, is_trainable, members, operations
from lamella.bridge.module_to_ir.liveness import is_collective
from lamella.bridge.module_to_ir.nodes import Json
from lamella.graph.nodes import Graph, Operation, Tensor
from lamella.lang.module import nodes as n
from lamella.lang.module.instantiate import Instance, TensorSlot, walk
from lamella.lang.module.instantiate.evaluate import evaluate, evaluate_bool
from lamella.lang.module.nodes import ConfigParam, Constraint
from lamella.lang.module.write import write_expression, write_type
from lamella.lang.module.write.expressions import write_path

CONFIG_FORMAT, METADATA_FORMAT = "lamella.config 1", "lamella.metadata 1"
WEIGHTS_FORMAT = "lamella.weights 1"
REGISTRY = 1
"""The version of the table of transform functions."""
LETTERS = "ijklmnopqrstuvw"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def make_schemas(
    compiled: Compiled, graph: Graph, instance: Instance, plans: tuple[ir.GraphIR, ir.ScheduleIR], lock: str
) -> tuple[ir.WeightSchema, ir.ConfigSchema, ir.Metadata]:
    """What a unit holds beside the Graph IR and the Schedule IR, which are `plans`; the metadata digests all."""
    weights, config = _make_weights(compiled, instance), _make_config(instance)
    metadata = _make_metadata(compiled, graph, instance, (*plans, weights, config), lock)
    return weights, config, metadata


# --- config -----------------------------------------------------------------------------------------------------


def _make_config(instance: Instance) -> ir.ConfigSchema:
    """The config parameters of an instance, and how `config.json` calls them."""
    module = instance.module
    fields = module.hf_config or ()
    keys = {entry.name: found for entry, found in mapped_keys(fields)}
    params = module.params or ()
    own = {item.name for item in params}
    derived = {name: plain(item.value) for name, item in instance.values.items() if name not in own}
    constraints = [item for item in module.bindings if isinstance(item, Constraint)]
    return ir.ConfigSchema(
        format=CONFIG_FORMAT,
        architecture=text_of(fields, "architecture"),
        config_class=text_of(fields, "config_class"),
        model_type=text_of(fields, "model_type"),
        params=tuple(_pair(item, keys.get(item.name, ()), instance) for item in params),
        derived=derived,
        constraints=tuple(
            ir.Constrained(write_expression(item.condition), item.message) for item in constraints
        ),
    )


def _pair(param: ConfigParam, keys: Sequence[str], instance: Instance) -> ir.ConfigPair:
    known = instance.values.get(param.name)
    return ir.ConfigPair(
        name=param.name,
        keys=tuple(keys),
        type=write_type(type_of(param)),
        default=None if param.default is None else write_expression(param.default),
        value=None if known is None else plain(known.value),
        source="" if known is None else known.source,
        direction="both" if keys else "none",
    )


# --- metadata ---------------------------------------------------------------------------------------------------


def _make_metadata(
    compiled: Compiled,
    graph: Graph,
    instance: Instance,
    parts: tuple[ir.GraphIR, *tuple[object, ...]],
    lock: str,
) -> ir.Metadata:
    """What there is to know about a unit; `parts` are its other parts, the Graph IR first."""
    plan = parts[0]
    own = {item.name: item for item in plan.params if item.tied_to is None and not item.is_none}
    total = flops(graph)
    return ir.Metadata(
        format=METADATA_FORMAT,
        compiler=_compiler(),
        model=instance.module.name,
        lock=lock,
        inputs=tuple(_ports(graph.inputs)),
        outputs=tuple(_ports(graph.outputs)),
        hooks=plan.hooks,
        marks=_marks(compiled, instance),
        parameters=sum(prod(item.shape) for item in own.values()),
        trainable=sum(prod(item.shape) for item in own.values() if item.trainable),
        flops=str(total),
        flops_per_token=str(_per_token(total, graph)),
        operators=dict(sorted(Counter(node.operator for node in operations(graph)).items())),
        collectives=tuple(
            f"n{number}" for number, node in enumerate(operations(graph)) if is_collective(node)
        ),
        stages=tuple(sorted({item.stage for item in plan.nodes if item.stage is not None})),
        warnings=tuple(
            {"code": item.code, "severity": item.severity, "message": item.message}
            for item in compiled.findings
        ),
        digest=digest(parts),
    )


def _compiler() -> str:
    """The version of this package, empty where it is not installed."""
    try:
        return version("lamella")
    except PackageNotFoundError:
        return ""


def _ports(arguments: Sequence[object]) -> Iterator[ir.TypedPort]:
    for item in arguments:
        if isinstance(item, Tensor):
            yield ir.TypedPort(item.name, dtype_name(item.element), tuple(map(str, item.shape)))


def _marks(compiled: Compiled, instance: Instance) -> dict[str, tuple[Mapping[str, Json], ...]]:
    """The annotations of tensors and of the model itself, by name; hooks have their own list."""
    found: dict[str, list[Mapping[str, Json]]] = {}
    for mark, resolved in Marks(compiled.marks).all:
        if resolved.name != "hook":
            entry = {"path": mark.path, "tensor": mark.tensor.name, "arguments": resolved.arguments}
            found.setdefault(resolved.name, []).append(entry)
    for resolved in resolve_annotations(instance.module.annotations, instance.values):
        entry = {"path": "", "tensor": "", "arguments": resolved.arguments}
        found.setdefault(resolved.name, []).append(entry)
    return {name: tuple(items) for name, items in sorted(found.items())}


def digest(parts: Sequence[object]) -> str:
    """SHA-256 of parts of a unit, without the files and lines where things are written."""
    # The same model compiled in another folder has the same digest.
    texts = [json.dumps(_nowhere(encode(part)), sort_keys=True, allow_nan=False) for part in parts]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _nowhere(value: object) -> object:
    """A value without the places in sources."""
    if isinstance(value, dict):
        return {key: _nowhere(item) for key, item in value.items() if key not in ("source", "file", "digest")}
    return [_nowhere(item) for item in value] if isinstance(value, list) else value


# --- arithmetic -------------------------------------------------------------------------------------------------


def flops(graph: Graph) -> Extent:
    """Operations on floating numbers in all products: two for each product that is added; else none are counted."""
    total: Extent = 0
    for node in operations(graph):
        total = dim.add(total, dim.mul(2, _products(node)))
    return total


def _products(node: Operation) -> Extent:
    """The products that a node adds up."""
    tensors = [item for argument in node.inputs for item in members(argument)]
    results = [item for argument in node.outputs for item in members(argument)]
    name = node.operator.rpartition(".")[2]
    if name in ("matmul", "batched_matmul", "grouped_gemm", "linear") and tensors and results:
        first = dict(node.attributes).get("transpose")
        inner = tensors[0].shape[-1]
        if isinstance(first, str) and first.startswith("T") and name != "grouped_gemm":
            inner = _volume(tensors[0].shape[:-1]) if name == "matmul" else tensors[0].shape[-2]
        return dim.mul(_volume(results[0].shape), inner)
    if name == "flash_attention" and len(tensors) >= 2:
        rows, keys = tensors[0].shape, tensors[1].shape[-2]
        return dim.mul(2, dim.mul(_volume(rows), keys))
    return 0


def _volume(shape: Sequence[Extent]) -> Extent:
    total: Extent = 1
    for extent in shape:
        total = dim.mul(total, extent)
    return total


def _per_token(total: Extent, graph: Graph) -> Extent:
    """A number for one position of the first input."""
    first = next((item for item in graph.inputs if isinstance(item, Tensor)), None)
    if first is None or not first.shape:
        return total
    shape = first.shape if first.element.is_integer else first.shape[:-1]
    try:
        return dim.floor_divide(total, _volume(shape))
    except (ZeroDivisionError, TooComplex):
        return total


# --- weights --------------------------------------------------------------------------------------------------


def _make_weights(compiled: Compiled, instance: Instance) -> ir.WeightSchema:
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
    return ir.WeightSchema(WEIGHTS_FORMAT, module.name, REGISTRY, function_names(), tuple(entries))


@dataclass(frozen=True, slots=True)
class _ActiveMapping:
    """An entry of a mapping whose condition holds, with its indices and the ranges of its split."""

    mapping: n.Mapping
    indices: tuple[str | int, ...]
    bounds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A parameter with the entries that concern it."""

    path: str
    slot: TensorSlot
    imports: tuple[_ActiveMapping, ...]
    exports: tuple[_ActiveMapping, ...]

    def key(self) -> object:
        """What parameters have in common that stand in one line of the schema."""
        slot = self.slot
        mapped = tuple(id(item) for item in (*self.imports, *self.exports))
        kind = (slot.dims, slot.dtype, slot.optional, slot.tied, slot.annotations)
        return skeleton_of(self.path), kind, mapped


# --- entries of mappings ----------------------------------------------------------------------------------------


def _holding(mappings: Sequence[n.Mapping], instance: Instance) -> dict[str, list[_ActiveMapping]]:
    """The entries that hold, by the path they speak of without its indices."""
    found: dict[str, list[_ActiveMapping]] = {}
    for mapping in mappings:
        entry = _read(mapping, instance)
        if entry is not None:
            found.setdefault(pattern_skeleton(mapping.path), []).append(entry)
    return found


def _read(mapping: n.Mapping, instance: Instance) -> _ActiveMapping | None:
    """An entry with its values; what is wrong with it is reported when a checkpoint is read."""
    values, condition = instance.values, mapping.condition
    try:
        if condition is not None and not evaluate_bool(condition, values, "the condition"):
            return None
        parts = mapping.spec.parts if isinstance(mapping.spec, n.Split) else ()
        bounds = [(evaluate(item.low, values), evaluate(item.high, values)) for item in parts]
    except Found:
        return None
    known = tuple((low, high) for low, high in bounds if isinstance(low, int) and isinstance(high, int))
    indices = tuple(index for part in mapping.path.parts for index in part.indices)
    return _ActiveMapping(mapping, indices, known) if len(known) == len(bounds) else None


def _concerning(path: str, table: Mapping[str, list[_ActiveMapping]]) -> tuple[_ActiveMapping, ...]:
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
    annotations = resolve_annotations(slot.annotations, instance.values)
    resolved = {item.name: item.arguments for item in annotations}
    training = resolved.get("trainable", {})
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
        shard=resolved.get("shard"),
        storage=resolved.get("scaling") or resolved.get("dtype"),
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


def _spec(entry: _ActiveMapping, names: Sequence[str]) -> ir.MappingSpec:
    """How an entry makes a parameter, with the names that the schema has for its indices."""
    mapping = entry.mapping
    renamed = {own: name for own, name in zip(entry.indices, names, strict=False) if isinstance(own, str)}
    kind, parts, dim = _parts(mapping.spec, entry.bounds)
    known = tuple(
        ir.CheckpointPart(_rename(item.name, renamed), item.function, item.low, item.high) for item in parts
    )
    return ir.MappingSpec(_rename(write_path(mapping.path), renamed), kind, known, dim, mapping.optional)


def _rename(text: str, renamed: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: f"{{{renamed.get(match[1], match[1])}}}", text)


def _parts(spec: n.Spec, bounds: Sequence[tuple[int, int]]) -> tuple[str, list[ir.CheckpointPart], int]:
    match spec:
        case n.Direct(name):
            return "direct", [ir.CheckpointPart(name)], 0
        case n.Transform(name, function):
            return ("stack" if function == STACK else "transform"), [ir.CheckpointPart(name, function)], 0
        case n.Fuse(sources, dim):
            return (
                "fuse",
                [ir.CheckpointPart(item.name, getattr(item, "function", "")) for item in sources],
                dim,
            )
        case n.Split(parts, dim):
            ranges = zip(parts, bounds, strict=True)
            return "split", [ir.CheckpointPart(item.name, "", *bound) for item, bound in ranges], dim
    return "tied", [ir.CheckpointPart(write_path(spec.path))], 0


_OPPOSITE = {
    "direct": "direct",
    "transform": "transform",
    "stack": "unstack",
    "fuse": "split",
    "split": "split",
}


def _undone(imports: Sequence[ir.MappingSpec]) -> Iterator[ir.MappingSpec]:
    """What undoes the entries; where to split a fused parameter is as its sources say."""
    for item in imports:
        if item.kind in _OPPOSITE:
            parts = (
                ir.CheckpointPart(part.name, _inverse(part.function), part.low, part.high)
                for part in item.parts
            )
            yield ir.MappingSpec(
                item.path, _OPPOSITE[item.kind], tuple(parts), item.dim, item.optional, derived=True
            )


def _inverse(function: str) -> str:
    found = FUNCTIONS.get(function)
    return "" if found is None else found.inverse
