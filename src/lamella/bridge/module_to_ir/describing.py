"""The config schema and the metadata of a compiled unit."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from math import prod

from lamella.base import dim
from lamella.base.dim import Extent, TooComplex
from lamella.bridge.hf_to_module.config import type_of
from lamella.bridge.hf_to_module.keys import mapped_keys, text_of
from lamella.bridge.module_to_graph.nodes import Compiled
from lamella.bridge.module_to_ir import nodes as ir
from lamella.bridge.module_to_ir.annotating import Marks, plain, tell_all
from lamella.bridge.module_to_ir.codec import encode
from lamella.bridge.module_to_ir.graph import dtype_name, members, operations
from lamella.bridge.module_to_ir.lifetimes import is_collective
from lamella.bridge.module_to_ir.nodes.graph import Json
from lamella.graph.nodes import Graph, Operation, Tensor
from lamella.lang.module.instantiate import Instance
from lamella.lang.module.nodes import ConfigParam, Constraint
from lamella.lang.module.write import write_expression, write_type

CONFIG_FORMAT, FORMAT = "lamella.config 1", "lamella.metadata 1"


# --- config -----------------------------------------------------------------------------------------------------


def make_config(instance: Instance) -> ir.ConfigSchema:
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


def make_metadata(
    compiled: Compiled, graph: Graph, instance: Instance, parts: Sequence[object], lock: str
) -> ir.Metadata:
    """What there is to know about a unit; `parts` are its other parts, the Graph IR first."""
    made = parts[0]
    hooks = made.hooks if isinstance(made, ir.GraphIR) else ()
    params = made.params if isinstance(made, ir.GraphIR) else ()
    nodes = made.nodes if isinstance(made, ir.GraphIR) else ()
    own = {item.name: item for item in params if item.tied_to is None and not item.is_none}
    total = flops(graph)
    return ir.Metadata(
        format=FORMAT,
        compiler=_compiler(),
        model=instance.module.name,
        lock=lock,
        inputs=tuple(_ports(graph.inputs)),
        outputs=tuple(_ports(graph.outputs)),
        hooks=hooks,
        marks=_marks(compiled, instance),
        parameters=sum(prod(item.shape) for item in own.values()),
        trainable=sum(prod(item.shape) for item in own.values() if item.trainable),
        flops=str(total),
        flops_per_token=str(_per_token(total, graph)),
        operators=dict(sorted(Counter(node.operator for node in operations(graph)).items())),
        collectives=tuple(
            f"n{number}" for number, node in enumerate(operations(graph)) if is_collective(node)
        ),
        stages=tuple(sorted({item.stage for item in nodes if item.stage is not None})),
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


def _ports(arguments: Sequence[object]) -> Iterator[ir.Port]:
    for item in arguments:
        if isinstance(item, Tensor):
            yield ir.Port(item.name, dtype_name(item.element), tuple(map(str, item.shape)))


def _marks(compiled: Compiled, instance: Instance) -> dict[str, tuple[Mapping[str, Json], ...]]:
    """The annotations of tensors and of the model itself, by name; hooks have their own list."""
    found: dict[str, list[Mapping[str, Json]]] = {}
    for mark, told in Marks(compiled.marks).all:
        if told.name != "hook":
            entry = {"path": mark.path, "tensor": mark.tensor.name, "arguments": told.arguments}
            found.setdefault(told.name, []).append(entry)
    for told in tell_all(instance.module.annotations, instance.values):
        entry = {"path": "", "tensor": "", "arguments": told.arguments}
        found.setdefault(told.name, []).append(entry)
    return {name: tuple(items) for name, items in sorted(found.items())}


def digest(parts: Sequence[object]) -> str:
    """SHA-256 of parts of a unit, without the files and lines where things are written."""
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
