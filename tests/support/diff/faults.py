"""Faults planted in copies of random models: what ports get wrong, at a random place, with the truth about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.dtype import F16
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Node, Operation, Tensor, Value
from lamella.graph.passes.decompose_all import decompose_all
from lamella.graph.rewrite import Substitution, copy_of, defined, rename, results_of
from tests.support.diff.models import KINDS, Random


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of a model, the tensors whose operation it is at, and the causes that describe it."""

    model: Model
    at: frozenset[str]
    causes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Planted:
    """A model, the same with a fault, and the truth about it."""

    name: str
    left: Model
    right: Model
    at: frozenset[str]
    causes: frozenset[str]


Plant = Callable[[Model, Random], Iterator[Fault]]


def operations(model: Model, *names: str) -> Iterator[Operation]:
    for node in model.graph.nodes:
        if isinstance(node, Operation) and node.operator in names:
            yield node


def results(node: Node) -> frozenset[str]:
    return frozenset(item.name for item in results_of(node))


def exchanged(model: Model, node: Operation, new: Operation, *causes: str) -> Fault:
    nodes = tuple(new if item is node else item for item in model.graph.nodes)
    changed = replace(model, graph=replace(model.graph, nodes=nodes))
    return Fault(changed, results(node), frozenset(causes))


def with_attribute(node: Operation, name: str, value: Value) -> Operation:
    return replace(
        node, attributes=tuple((key, value if key == name else old) for key, old in node.attributes)
    )


def with_data(model: Model, changed: Mapping[str, Array], at: Operation, *causes: str) -> Fault:
    return Fault(replace(model, data={**(model.data or {}), **changed}), results(at), frozenset(causes))


# --- attributes and constants ---------------------------------------------------------------------------------


def wrong_eps(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "llm.rmsnorm", "llm.layernorm", "nn.batch_norm"):
        name = "epsilon" if node.operator == "nn.batch_norm" else "eps"
        yield exchanged(model, node, with_attribute(node, name, 3e-2), "eps", "attribute")
    constants = {item.tensor.name: item for item in model.graph.constants}
    for node in operations(model, "math.add"):
        for item in node.inputs:
            if isinstance(item, Tensor) and item.name in constants and constants[item.name].value == 1e-5:
                new = Constant(replace(item, name=f"{item.name}_other"), 1e-3)
                graph = replace(model.graph, constants=(*model.graph.constants, new))
                inputs = tuple(new.tensor if one is item else one for one in node.inputs)
                yield exchanged(replace(model, graph=graph), node, replace(node, inputs=inputs), "eps")


def gelu_variant(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "nn.gelu"):
        yield exchanged(model, node, with_attribute(node, "approximate", "TANH"), "gelu variant")
    for node in operations(model, "llm.gelu"):
        yield exchanged(model, node, with_attribute(node, "approximate", False), "gelu variant")
    for node in operations(model, "llm.geglu"):
        yield exchanged(model, node, with_attribute(node, "approximate", True), "gelu variant")


def leaky(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "nn.relu"):
        yield exchanged(model, node, with_attribute(node, "alpha", 0.01), "function", "attribute")


def other_activation(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "nn.silu", "math.tanh"):
        other = "nn.sigmoid" if node.operator == "math.tanh" else "nn.relu"
        attributes: tuple[tuple[str, Value], ...] = (
            (("alpha", None), ("max", None)) if other == "nn.relu" else ()
        )
        new = replace(node, operator=other, attributes=attributes, types=())
        yield exchanged(model, node, new, "function")


def rope_layout(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "llm.rope"):
        yield exchanged(model, node, with_attribute(node, "interleaved", True), "rope layout")


def off_by_one_window(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "llm.flash_attention"):
        window = dict(node.attributes)["window_size"]
        if isinstance(window, int):
            yield exchanged(model, node, with_attribute(node, "window_size", window + 1), "window")


def not_causal(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "llm.flash_attention"):
        if dict(node.attributes)["window_size"] is None:
            yield exchanged(model, node, with_attribute(node, "causal", False), "causal mask", "attribute")


def attention_scale(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "llm.flash_attention"):
        yield exchanged(model, node, with_attribute(node, "softmax_scale", 1.0), "scale", "attribute")


def wrong_axis(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "nn.softmax"):
        axes = dict(node.attributes)["axes"]
        assert isinstance(axes, tuple)
        assert isinstance(axes[0], int)
        yield exchanged(model, node, with_attribute(node, "axes", (axes[0] - 1,)), "axis")


def padding_side(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "nn.conv"):
        yield exchanged(model, node, with_attribute(node, "padding", (0, 1, 2, 1)), "attribute", "shifted")


def mask_off_by_one(model: Model, random: Random) -> Iterator[Fault]:
    for item in model.graph.constants:
        if isinstance(item.value, tuple) and len(item.tensor.shape) == 4:
            count = int(len(item.value) ** 0.5)
            hidden = np.triu(np.full((count, count), -1e9), 2)
            new = Constant(item.tensor, tuple(map(float, hidden.reshape(-1))))
            constants = tuple(new if one is item else one for one in model.graph.constants)
            node = next(node for node in operations(model, "math.add") if item.tensor in node.inputs)
            yield Fault(
                replace(model, graph=replace(model.graph, constants=constants)),
                results(node),
                frozenset({"constant", "place"}),
            )


# --- rounding and order of operands ---------------------------------------------------------------------------


def wrong_rounding(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "math.round", "math.floor"):
        other = "math.floor" if node.operator == "math.round" else "math.ceil"
        yield exchanged(model, node, replace(node, operator=other), "rounding")


def swapped_operands(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "llm.swiglu", "llm.geglu"):
        new = replace(node, inputs=tuple(reversed(node.inputs)))
        yield exchanged(model, node, new, "swapped operands")
    for node in operations(model, "nn.silu"):
        source = node.inputs[0]
        assert isinstance(source, Tensor)
        other = next(
            (
                item
                for one in operations(model, "math.mul")
                if node.outputs[0] in one.inputs
                for item in one.inputs
                if isinstance(item, Tensor) and item.shape == source.shape and item not in node.outputs
            ),
            None,
        )
        if other is not None and other.name not in {item.tensor.name for item in model.graph.constants}:
            yield exchanged(model, node, replace(node, inputs=(other,)), "other operand", "function")


# --- weights --------------------------------------------------------------------------------------------------


def readers(model: Model, name: str) -> list[Operation]:
    return [
        node
        for node in model.graph.nodes
        if isinstance(node, Operation)
        and any(isinstance(item, Tensor) and item.name == name for item in node.inputs)
    ]


def transposed_weight(model: Model, random: Random) -> Iterator[Fault]:
    for name, array in (model.data or {}).items():
        if array.ndim == 2 and array.shape[0] == array.shape[1]:
            turned = {name: np.ascontiguousarray(array.T)}
            yield with_data(model, turned, readers(model, name)[0], "transposed weight")


def flipped_kernel(model: Model, random: Random) -> Iterator[Fault]:
    for name, array in (model.data or {}).items():
        if array.ndim == 4 and array.shape[-1] == 3:
            flipped = {name: np.ascontiguousarray(array.swapaxes(-1, -2))}
            yield with_data(model, flipped, readers(model, name)[0], "transposed weight")


def gate_order(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "nn.lstm"):
        names = [item.name for item in node.inputs[1:4] if isinstance(item, Tensor)]
        order = [0, 2, 1, 3] if random.integers(2) else [0, 3, 1, 2]
        data = model.data or {}
        changed = {
            name: np.concatenate([np.split(data[name], 4)[place] for place in order]) for name in names
        }
        yield with_data(model, changed, node, "gate order")


def exchanged_weights(model: Model, random: Random) -> Iterator[Fault]:
    data = model.data or {}
    if "gate" in data and "up" in data:
        changed = {"gate": data["up"], "up": data["gate"]}
        fault = with_data(model, changed, readers(model, "gate")[0], "exchanged weights")
        yield replace(fault, at=fault.at | results(readers(model, "up")[0]))


def narrow_weight(model: Model, random: Random) -> Iterator[Fault]:
    for name, array in (model.data or {}).items():
        if array.ndim == 2 and array.dtype == np.float32:
            narrow = {name: array.astype(np.float16).astype(np.float32)}
            yield with_data(model, narrow, readers(model, name)[0], "precision")


def rope_base(model: Model, random: Random) -> Iterator[Fault]:
    data = model.data or {}
    if "freqs" in data:
        count, columns, _ = data["freqs"].shape
        turns = np.arange(count)[:, None] * 5e5 ** (-np.arange(columns) / columns)
        freqs = np.stack([np.cos(turns), np.sin(turns)], -1).astype(np.float32)
        yield with_data(model, {"freqs": freqs}, readers(model, "freqs")[0], "weights", "rope base", "place")


def stale_position(model: Model, random: Random) -> Iterator[Fault]:
    data = model.data or {}
    for name in ("places", "at"):
        if name in data:
            changed = {name: data[name] - 1}
            yield with_data(model, changed, readers(model, name)[0], "rope position", "offset")
    if "seen" in data:
        fault = with_data(
            model, {"seen": data["seen"] - 1}, readers(model, "seen")[0], "offset", "weights", "value"
        )
        yield replace(fault, at=frozenset().union(*(results(node) for node in readers(model, "seen"))))


# --- operations that are missing ------------------------------------------------------------------------------


def missing_operation(model: Model, random: Random) -> Iterator[Fault]:
    causes = {"llm.bias_add": "bias missing", "math.mul": "scale missing", "math.add": "operation missing"}
    for node in operations(model, *causes):
        source, result = node.inputs[0], node.outputs[0]
        assert isinstance(source, Tensor)
        assert isinstance(result, Tensor)
        if source.shape != result.shape:
            continue
        kinds = {causes[node.operator], "operation missing", "bias missing", "scale missing"}
        if random.integers(2):
            yield exchanged(model, node, copy_of(source, result), *kinds, "function", "other operand")
            continue
        nodes = tuple(item for item in model.graph.nodes if item is not node)
        yield Fault(_without(model, nodes, result, source), results(node), frozenset(kinds))


def _without(model: Model, nodes: tuple[Node, ...], result: Tensor, source: Tensor) -> Model:
    """The model whose readers of a tensor read another."""
    change = Substitution(lambda item: source if item.name == result.name else item)
    outputs = tuple(map(change.argument, model.graph.outputs))
    return replace(model, graph=replace(model.graph, nodes=tuple(map(change.node, nodes)), outputs=outputs))


# --- other wiring ---------------------------------------------------------------------------------------------


def off_by_one_slice(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "layout.slice"):
        given = dict(node.attributes)
        begin, end = given["begin"], given["end"]
        assert isinstance(begin, tuple)
        assert isinstance(end, tuple)
        assert isinstance(begin[0], int)
        assert isinstance(end[0], int)
        moved = with_attribute(with_attribute(node, "begin", (begin[0] + 1,)), "end", (end[0] + 1,))
        yield exchanged(model, node, moved, "attribute", "shifted")


def joined_in_another_order(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "layout.concat"):
        items = node.inputs[0]
        assert isinstance(items, tuple)
        new = replace(node, inputs=(items[::-1],))
        yield exchanged(model, node, new, "swapped operands", "block order", "gate order")


def other_norm(model: Model, random: Random) -> Iterator[Fault]:
    for node in operations(model, "llm.rmsnorm"):
        y, rstd = node.outputs
        assert isinstance(y, Tensor)
        assert isinstance(rstd, Tensor)
        outputs = (y, replace(rstd, name=f"{rstd.name}_mean"), rstd)
        inputs = (*node.inputs, None)
        new = replace(node, operator="llm.layernorm", inputs=inputs, outputs=outputs)
        yield exchanged(model, node, new, "centre")


def wrong_residual(model: Model, random: Random) -> Iterator[Fault]:
    """A residual taken from behind a norm, not from before it."""
    for node in operations(model, "math.add"):
        place = node_places(model)[id(node)]
        first = node.inputs[0]
        assert isinstance(first, Tensor)
        others = [
            item
            for one in model.graph.nodes[:place]
            if isinstance(one, Operation)
            for item in one.outputs
            if isinstance(item, Tensor) and item.shape == first.shape and item not in node.inputs
        ]
        if others and len(first.shape) > 1:
            other = others[int(random.integers(len(others)))]
            new = replace(node, inputs=(other, *node.inputs[1:]))
            yield exchanged(
                model, node, new, "other operand", "operation missing", "bias missing", "function", "scale"
            )


def node_places(model: Model) -> dict[int, int]:
    return {id(node): place for place, node in enumerate(model.graph.nodes)}


def narrow_operands(model: Model, random: Random) -> Iterator[Fault]:
    """A product whose first operand went through 16 bits."""
    for node in operations(model, "linalg.matmul", "nn.linear"):
        source = node.inputs[0]
        assert isinstance(source, Tensor)
        half = replace(source, name=f"{source.name}_half", element=F16)
        back = replace(source, name=f"{source.name}_back")
        casts = [
            Operation("layout.cast", (one,), (other,), types=(("R", other.element), ("T", one.element)))
            for one, other in ((source, half), (half, back))
        ]
        new = replace(node, inputs=(back, *node.inputs[1:]))
        nodes = [part for item in model.graph.nodes for part in ((*casts, new) if item is node else (item,))]
        changed = replace(model, graph=replace(model.graph, nodes=tuple(nodes)))
        causes = frozenset({"operation missing", "accumulate type", "precision"})
        at = results(node) | results(casts[0]) | results(casts[1])
        yield Fault(changed, at, causes)


PLANTS: tuple[Plant, ...] = (
    off_by_one_slice,
    joined_in_another_order,
    other_norm,
    wrong_residual,
    narrow_operands,
    wrong_eps,
    gelu_variant,
    leaky,
    other_activation,
    rope_layout,
    off_by_one_window,
    not_causal,
    attention_scale,
    wrong_axis,
    padding_side,
    mask_off_by_one,
    wrong_rounding,
    swapped_operands,
    transposed_weight,
    flipped_kernel,
    gate_order,
    exchanged_weights,
    narrow_weight,
    rope_base,
    stale_position,
    missing_operation,
)


# --- disguise -------------------------------------------------------------------------------------------------


def renamed(model: Model, random: Random) -> tuple[Model, Mapping[str, str]]:
    """The model whose tensors and variables have other names, as another tool would give them, and these names."""
    tensors = [item.name for item in defined(model.graph)]
    numbers = random.permutation(len(tensors))
    kept = {item.name for item in model.graph.inputs if isinstance(item, Tensor)}
    names = {name: f"v{number}" for name, number in zip(tensors, numbers, strict=True) if name not in kept}
    data = {names.get(name, name): array for name, array in (model.data or {}).items()}
    return replace(model, graph=rename(model.graph, names), data=data), names


def with_copies(model: Model, random: Random) -> Model:
    """The model with copies between operations that change nothing."""
    nodes: list[Node] = []
    for node in model.graph.nodes:
        assert isinstance(node, Operation)
        inputs = list(node.inputs)
        for place, item in enumerate(inputs):
            if isinstance(item, Tensor) and random.integers(6) == 0 and item.shape:
                copy = replace(item, name=f"copy {len(nodes)} of {item.name}")
                nodes.append(copy_of(item, copy))
                inputs[place] = copy
        nodes.append(replace(node, inputs=tuple(inputs)))
    return replace(model, graph=replace(model.graph, nodes=tuple(nodes)))


DISGUISES: tuple[tuple[str, Callable[[Model, Random], Model]], ...] = (
    ("as it is", lambda model, random: model),
    ("renamed", lambda model, random: model),
    ("with copies", with_copies),
    ("in parts", lambda model, random: decompose_all(model)),
)
"""What another tool does to a model: other names, copies, operators in their parts."""
WEIGHT_FAULTS = frozenset(
    {"exchanged_weights", "stale_position", "transposed_weight", "gate_order", "flipped_kernel", "rope_base"}
)
"""Faults that are in the numbers of variables: where these have other names too, nothing says which is which."""


def is_visible(left: Model, right: Model) -> bool:
    """Whether a fault changes results at all: rounding hides some, and attention does not see positions alone."""
    one, other = (next(iter(compile_model(model)().values())).astype(np.float64) for model in (left, right))
    return bool(np.abs(one - other).max() > 3e-5 * np.abs(one).max())


def plant(seed: int) -> Planted:
    """A fault at a random place of a random model, which in most cases looks as another tool would write it.

    Seeds that follow each other plant all kinds of faults in turn.
    """
    random = np.random.default_rng(seed)
    fault = PLANTS[seed % len(PLANTS)]
    for _ in range(1000):
        kind = str(random.choice(list(KINDS)))
        left = KINDS[kind](random)
        found = list(fault(left, random))
        if not found:
            continue
        chosen = found[int(random.integers(len(found)))]
        if not is_visible(left, chosen.model):
            continue
        right, at = chosen.model, chosen.at
        disguise = 0 if fault.__name__ in WEIGHT_FAULTS else int(random.integers(len(DISGUISES)))
        if disguise:
            right, names = renamed(DISGUISES[disguise][1](right, random), random)
            at |= {names[item] for item in at if item in names}
        name = f"{fault.__name__} in {kind}, {DISGUISES[disguise][0]}"
        return Planted(name, left, right, at, chosen.causes)
    raise AssertionError(f"nothing to plant {fault.__name__} in")
