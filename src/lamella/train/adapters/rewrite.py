"""Adapters as a rewrite of the graph: what is trained is added to it, and all that it had is frozen.

LoRA        y = W x  becomes  y = W x + s · B (A x)          A small, B zero; of x some numbers are dropped
DoRA        … then each row of y times m / ‖W + s · B A‖     the norm is no way for gradients, m begins as the norm
IA³         y times l, or x times l before the last product of a feed-forward network
prompt      the first tokens of a sequence are vectors that are trained, in the place of embeddings
prefix      the keys and values of the first tokens are trained, in every attention; or a network that makes them
bottleneck  h becomes h + U act(D h)                         U zero
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import numpy as np

from lamella.base.arrays import Array
from lamella.base.dim import mul
from lamella.base.dtype import I64
from lamella.base.errors import InputError
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Node, Operation, Tensor
from lamella.graph.rewrite import defined, members, operands_of, results_of
from lamella.train.adapters.places import (
    POSITIONED,
    AdapterRows,
    Product,
    attentions,
    embeddings,
    find_biased,
)
from lamella.train.adapters.specs import BOTTLENECK, DORA, IA3, LORA, PREFIX, PROMPT, AdapterSpec
from lamella.train.mixed import cast, wide

MOST_TOKENS = 1 << 16
FEED_FORWARD = ("down_proj", "fc2", "wo", "c_proj", "dense_4h_to_h", "down")
"""Names of the last products of feed-forward networks, whose inputs IA³ scales."""
DRAWS = "draws"
PRIME = (1 << 31) - 1
"""Draws and keys of dropout are below it."""
KEYS_AND_VALUES = {1: "key", 2: "value"}
"""What the inputs of an attention are that a prefix changes, by their places."""
ACTIVATIONS = {"relu": "nn.relu", "gelu": "nn.gelu", "silu": "nn.silu"}


@dataclass(frozen=True, slots=True)
class AdapterWeight:
    """One array that an adapter trains."""

    variable: str
    module: str
    """The module of a checkpoint that it belongs to; empty for one of the whole model."""
    role: str
    """What it is there: `lora_A`, `lora_B`, `magnitude`, `scale`, `input_scale`, `prompt`, `key`, `value`, …"""
    shape: tuple[int, ...]
    layer: int = 0


@dataclass(frozen=True, slots=True)
class AdapterPart:
    """What makes one tensor out of the tensor that it was."""

    plain: Tensor
    result: Tensor
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Adapted:
    """A graph with adapters."""

    model: Model
    weights: tuple[AdapterWeight, ...]
    places: tuple[AdapterRows, ...]
    spec: AdapterSpec
    virtual: int = 0
    """Virtual tokens in front of every sequence."""
    detached: tuple[tuple[Tensor, tuple[Node, ...]], ...] = field(default=(), compare=False)
    """Inputs through which no gradient flows, each with what computes it from variables."""
    draws: str = ""
    """The input that has a number for each example, by which is decided what dropout drops; empty without dropout."""
    heads: int = 0
    """The heads of the keys and values that a network makes."""
    parts: tuple[AdapterPart, ...] = field(default=(), compare=False)
    """What was added, tensor by tensor."""


class AdapterRewrite:
    """The work of adding adapters of one kind to a graph."""

    def __init__(
        self,
        model: Model,
        spec: AdapterSpec,
        seed: int,
        real: type[np.floating],
        forward: Graph | None = None,
    ) -> None:
        """`forward` is the way forward alone, of a model whose graph has gradients already."""
        self.forward, self.is_written = forward or model.graph, forward is not None
        self.model, self.spec, self.seed, self.real = model, spec, seed, np.dtype(real)
        self.graph: Graph = model.graph
        self.weights: list[AdapterWeight] = []
        self.data: dict[str, Array] = {}
        self.detached: list[tuple[Tensor, tuple[Node, ...]]] = []
        self.builder = Builder(model.library, model.graph.name)
        self.changes: dict[str, Callable[[Tensor, str], None]] = {}
        """By the name of a result: what makes the tensor of that name out of the result as it was."""
        self.before: dict[str, Callable[[Operation], Operation]] = {}
        """By the name of a result: what changes the operation that computes it."""
        self.draws: Tensor | None = None
        self.prefixes: Tensor | None = None
        """Keys and values of all layers, where a network makes them: a row for each virtual token."""
        self.heads = 0
        self.parts: list[AdapterPart] = []
        self.biased = find_biased(self.forward)
        """The sums of results and biases, by the results."""

    # --- the walk -----------------------------------------------------------------------------------------------

    def run(self, places: Sequence[AdapterRows], marked: Sequence[Tensor] = ()) -> Adapted:
        """The graph with adapters at the places, and of the whole model; `marked` are tensors that a text names."""
        virtual = self._plan(places, marked)
        taken = {item.name for item in defined(self.graph)} - set(self.changes)
        for name in taken:
            self.builder.fresh(name)
        for node in self.graph.nodes:
            self._add(node)
        made = self.builder.finish()
        placeholders = tuple(item for item, _ in self.detached)
        graph = replace(
            self.graph,
            nodes=made.nodes,
            inputs=(*self.graph.inputs, *made.inputs, *placeholders),
            variables=(*self.graph.variables, *made.variables),
            constants=(*self.graph.constants, *made.constants),
        )
        data = {**(self.model.data or {}), **self.data}
        model = replace(self.model, graph=graph, data=data, hints=())
        draws = "" if self.draws is None else self.draws.name
        return Adapted(
            model,
            tuple(self.weights),
            tuple(places),
            self.spec,
            virtual,
            tuple(self.detached),
            draws,
            self.heads,
            tuple(self.parts),
        )

    def _add(self, node: Node) -> None:
        """One node, changed where an adapter says so."""
        results = [item for item in results_of(node) if item.name in self.changes or item.name in self.before]
        for item in results:
            if item.name in self.before and isinstance(node, Operation):
                node = self.before[item.name](node)
        changed = [item for item in results if item.name in self.changes]
        if not changed or not isinstance(node, Operation):
            self.builder.add_node(node)
            return
        plain = {
            item.name: replace(item, name=self.builder.fresh(f"{item.name}.frozen"))
            for item in changed
            if isinstance(item, Tensor)
        }
        outputs = tuple(
            plain.get(item.name, item) if isinstance(item, Tensor) else item for item in node.outputs
        )
        self.builder.add_node(replace(node, outputs=outputs))
        for name, tensor in plain.items():
            before = self.builder.length
            self.changes[name](tensor, name)
            made = self.builder.nodes_since(before)
            self.parts.append(AdapterPart(tensor, replace(tensor, name=name), made))

    def _plan(self, places: Sequence[AdapterRows], marked: Sequence[Tensor]) -> int:
        """What is to be done at which tensor; gives the number of virtual tokens."""
        spec = self.spec
        if spec.kind in (PROMPT, PREFIX):
            self._plan_virtual()
            return spec.length
        by_result: dict[str, list[AdapterRows]] = {}
        for place in places:
            by_result.setdefault(place.product.result.name, []).append(place)
        for name, found in by_result.items():
            product = found[0].product
            behind = self.biased.get(name, (product.result, None))[0]
            if spec.kind in (LORA, DORA):
                self.changes[name] = self._low_rank(product, found)
            elif spec.kind == IA3:
                self._plan_scales(product, found, behind)
            else:
                self.changes[behind.name] = self._bottleneck(found[0].module, behind)
        if spec.kind == BOTTLENECK:
            self.changes |= {item.name: self._bottleneck(item.name, item) for item in marked}
        return 0

    # --- arrays ---------------------------------------------------------------------------------------------------

    def _variable(self, module: str, role: str, like: Tensor, values: Array, layer: int = 0) -> Tensor:
        """A new array that is trained, in the type of a tensor that it is computed with; it is held in a wide one."""
        stem = f"{module}.{role}" if module else f"{role}.{layer}"
        tensor = self.builder.variable(stem, wide(like.element), values.shape)
        self.weights.append(AdapterWeight(tensor.name, module, role, values.shape, layer))
        self.data[tensor.name] = values.astype(self.real)
        return cast(self.builder, tensor, like.element)

    def _random(self, name: str, shape: tuple[int, ...], deviation: float) -> Array:
        random = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        return random.standard_normal(shape) * deviation

    # --- low rank -------------------------------------------------------------------------------------------------

    def _low_rank(self, product: Product, places: Sequence[AdapterRows]) -> Callable[[Tensor, str], None]:
        def change(plain: Tensor, name: str) -> None:
            total, factor = plain, None
            for place in places:
                down, up = self._pair(place)
                if product.offsets is not None:
                    small = self.builder.call(
                        "moe.grouped_gemm", product.given, down, product.offsets, transpose="NT"
                    )
                    delta = self.builder.call("moe.grouped_gemm", small, up, product.offsets, transpose="NT")
                    scaled = self.builder.call("llm.scale", delta, factor=place.spec.scale)
                    total = self.builder.call("math.add", total, scaled)
                    continue
                given = self._dropped(product.given, place)
                small = self.builder.call("llm.matmul", given, down, transpose="NT")
                whole = self._rows(up, place)
                delta = self.builder.call("llm.matmul", small, whole, transpose="NT", alpha=place.spec.scale)
                total = self.builder.call("math.add", total, delta)
                if place.spec.kind == DORA:
                    part = self._magnitude(place, down, up)
                    factor = part if factor is None else self.builder.call("math.mul", factor, part)
            if factor is None:
                self.builder.call("math.iden", total, results=(name,))
            elif product.bias is None:
                self.builder.call("math.mul", total, factor, results=(name,))
            else:  # the bias stays out of it
                bare = self.builder.call("math.sub", total, product.bias)
                scaled = self.builder.call("math.mul", bare, factor)
                self.builder.call("math.add", scaled, product.bias, results=(name,))

        return change

    def _pair(self, place: AdapterRows) -> tuple[Tensor, Tensor]:
        """Both factors: the first as torch's layers begin, uniform within 1 / √width, the second zero."""
        width, rank = place.product.width, place.spec.rank
        if rank > max(width, place.rows):
            raise InputError(f"rank {rank} is larger than '{place.module}', {place.rows} × {width}")
        random = np.random.default_rng([self.seed, zlib.crc32(place.module.encode())])
        each = (place.product.experts,) if place.product.experts else ()
        if each and place.spec.dropout:
            raise InputError(
                f"'{place.module[:80]}' has a matrix for each expert, and dropout is for products of all rows",
                hint="leave dropout out, or this target",
            )
        start = random.uniform(-1.0, 1.0, (*each, rank, width)) / np.sqrt(width)
        given = place.product.given
        down = self._variable(place.module, "lora_A", given, start)
        return down, self._variable(place.module, "lora_B", given, np.zeros((*each, place.rows, rank)))

    def _dropped(self, given: Tensor, place: AdapterRows) -> Tensor:
        """What a product of low rank is given: without dropout all that there is."""
        if not place.spec.dropout or place.spec.kind == DORA:
            return given
        first = next((item for item in members(self.graph.inputs) if isinstance(item, Tensor)), None)
        if first is None or given.shape[:1] != first.shape[:1] or len(given.shape) < 2:
            raise InputError(
                f"what '{place.module}' is given, [{', '.join(map(str, given.shape))}], is not one row of numbers "
                "for each example, which dropout needs",
                hint="leave dropout out, or this target",
            )
        if self.draws is None:
            self.draws = self.builder.input(DRAWS, I64, given.shape[:1])
        salt = zlib.crc32(place.module.encode()) % PRIME
        call = self.builder.call
        keys = call("optim.draw_keys", self.draws, salt=salt)
        rows = call("aten.reshape", given, shape=(given.shape[0], reduce(mul, given.shape[1:])))
        return call(
            "aten.reshape", call("optim.dropout", rows, keys, rate=place.spec.dropout), shape=given.shape
        )

    def _rows(self, tensor: Tensor, place: AdapterRows, axis: int = 0) -> Tensor:
        """A tensor of some rows as one of all rows of the weight, zeros elsewhere."""
        if place.is_whole:
            return tensor
        around = (place.first, place.product.rows - place.last)
        return self.builder.call("layout.pad", tensor, axes=(axis,), padding=around)

    def _magnitude(self, place: AdapterRows, down: Tensor, up: Tensor) -> Tensor:
        """The factor of each row: the trained magnitude over the norm, through which no gradient flows."""
        given, rows = place.product.given, self._stored_rows(place)
        norm = Tensor(self.builder.fresh(f"{place.module}.norm"), given.element, (place.rows,))
        magnitude = self._variable(place.module, "magnitude", given, np.linalg.norm(rows, axis=1))
        self.detached.append((norm, tuple(self._norm_nodes(place, down, up, norm))))
        return self._factor(self.builder.call("math.div", magnitude, norm), place)

    def _factor(self, part: Tensor, place: AdapterRows) -> Tensor:
        """A factor of some rows as one of all rows, ones elsewhere."""
        if place.is_whole:
            return part
        less = self.builder.call("math.sub", part, 1.0)
        return self.builder.call("math.add", self._rows(less, place), 1.0)

    def _stored_rows(self, place: AdapterRows) -> Array:
        """The numbers of the rows as they are now."""
        data = (self.model.data or {}).get(place.product.weight.name)
        if data is None:
            raise InputError(
                f"'{place.product.weight.name[:80]}' has no numbers", hint="dora adds to trained weights"
            )
        whole = np.asarray(data, np.float64)
        return (whole.T if place.product.is_turned else whole)[place.first : place.last]

    def _norm_nodes(self, place: AdapterRows, down: Tensor, up: Tensor, norm: Tensor) -> Iterator[Node]:
        """What computes the norms of the rows of W + s · B A from variables."""
        inner = Builder(self.model.library, "norm")
        for item in (*defined(self.graph), down, up):
            inner.fresh(item.name)
        weight, turned = place.product.weight, place.product.is_turned
        axis = 1 if turned else 0
        rows = inner.call(
            "layout.slice",
            weight,
            axes=(axis,),
            begin=(place.first,),
            end=(place.last,),
            results=(f"{norm.name}.rows",),
        )
        rows = cast(inner, rows, norm.element)
        ways, pair = ("TT", (down, up)) if turned else ("NN", (up, down))
        product = inner.call(
            "llm.matmul", *pair, transpose=ways, alpha=place.spec.scale, results=(f"{norm.name}.product",)
        )
        total = inner.call("math.add", rows, product, results=(f"{norm.name}.sum",))
        square = inner.call("math.sqr", total, results=(f"{norm.name}.square",))
        sums = inner.call(
            "math.sum_reduce",
            square,
            axes=(0 if turned else 1,),
            squeeze=True,
            results=(f"{norm.name}.squares",),
        )
        inner.call("math.sqrt", sums, results=(norm.name,))
        yield from inner.finish().nodes

    # --- scales ---------------------------------------------------------------------------------------------------

    def _plan_scales(self, product: Product, places: Sequence[AdapterRows], behind: Tensor) -> None:
        if any(place.word in FEED_FORWARD for place in places):
            change_input = self._scaled_input(product, places[0])
            if self.is_written:
                self._plan_operand(product.node, product.given, change_input)
            else:
                self.before[product.result.name] = partial(_with_operand, product.given, change_input)
            return

        def change(plain: Tensor, name: str) -> None:
            factor: Tensor | None = None
            for place in places:
                scale = self._variable(place.module, "scale", behind, np.ones(place.rows))
                part = self._factor(scale, place)
                factor = part if factor is None else self.builder.call("math.mul", factor, part)
            if factor is not None:
                self.builder.call("math.mul", plain, factor, results=(name,))

        self.changes[behind.name] = change

    def _scaled_input(self, product: Product, place: AdapterRows) -> Callable[[Tensor, str], Tensor]:
        def change(plain: Tensor, name: str) -> Tensor:
            scale = self._variable(place.module, "input_scale", plain, np.ones(product.width))
            return self.builder.call("math.mul", plain, scale, results=(name,))

        return change

    # --- bottlenecks ------------------------------------------------------------------------------------------------

    def _bottleneck(self, module: str, tensor: Tensor) -> Callable[[Tensor, str], None]:
        width = tensor.shape[-1] if tensor.shape else None
        if not isinstance(width, int):
            raise InputError(f"'{tensor.name[:80]}' has no known width, which a bottleneck needs")

        def change(plain: Tensor, name: str) -> None:
            dim = self.spec.dim
            start = self._random(f"{module}.down", (dim, width), 1 / np.sqrt(width))
            down = self._variable(module, "adapter_down", tensor, start)
            first = self._variable(module, "adapter_down_bias", tensor, np.zeros(dim))
            up = self._variable(module, "adapter_up", tensor, np.zeros((width, dim)))
            second = self._variable(module, "adapter_up_bias", tensor, np.zeros(width))
            call = self.builder.call
            small = call("math.add", call("llm.matmul", plain, down, transpose="NT"), first)
            active = call(ACTIVATIONS[self.spec.activation], small)
            wide = call("math.add", call("llm.matmul", active, up, transpose="NT"), second)
            call("math.add", plain, wide, results=(name,))

        return change

    # --- virtual tokens ---------------------------------------------------------------------------------------------

    def _plan_virtual(self) -> None:
        if self.spec.length > MOST_TOKENS:
            raise InputError(f"{self.spec.length} virtual tokens are too many", hint=f"at most {MOST_TOKENS}")
        if self.spec.kind == PROMPT:
            found = list(embeddings(self.forward))
            if len(found) != 1:
                raise InputError(f"a prompt is for a model that looks tokens up once, not {len(found)} times")
            self._plan_prompt(found[0])
            return
        layers = list(attentions(self.forward))
        if not layers:
            raise InputError("a prefix is for a model with causal attention, and there is none")
        for number, node in enumerate(layers):
            out = node.outputs[0]
            assert isinstance(out, Tensor)  # an attention gives tensors
            change = self._with_prefix(number, 2 * len(layers))
            if self.is_written:
                for place in KEYS_AND_VALUES:
                    self._plan_operand(node, node.inputs[place], partial(change, place))
            else:
                self.before[out.name] = partial(_with_operands, change)

    def _plan_operand(
        self, node: Operation, operand: Argument, change: Callable[[Tensor, str], Tensor]
    ) -> None:
        """Change what an operation is given where it is made: gradients are written for the one that is read."""
        if not isinstance(operand, Tensor):
            raise InputError("an attention has no keys or no values of its own")
        readers = [one for one in self.forward.operations() if operand in operands_of(one)]
        if readers != [node]:
            raise InputError(
                f"'{operand.name[:80]}' is read {len(readers)} times, and a backward: section is written for it",
                hint=f"{self.spec.kind} changes what one operation alone is given",
            )

        def made(plain: Tensor, name: str) -> None:
            change(plain, name)

        self.changes[operand.name] = made

    def _plan_prompt(self, node: Operation) -> None:
        out = node.outputs[0]
        assert isinstance(out, Tensor)  # a table gives one tensor
        width = out.shape[-1]
        if not isinstance(width, int):
            raise InputError("the table of embeddings has no known width")

        def change(plain: Tensor, name: str) -> None:
            start = self._sampled(node, width)
            prompt = self._variable("", "prompt", out, start)
            value = prompt
            if node.operator == POSITIONED and isinstance(node.inputs[2], Tensor):
                length = self.spec.length
                table = self.builder.call(
                    "layout.slice", node.inputs[2], axes=(0,), begin=(0,), end=(length,)
                )
                value = self.builder.call("math.add", prompt, table)
            self._replace_first(plain, value, 1, name)

        self.changes[out.name] = change

    def _sampled(self, node: Operation, width: int) -> Array:
        """Embeddings of random tokens, as the prompt begins."""
        table = node.inputs[1]
        data = (self.model.data or {}).get(table.name) if isinstance(table, Tensor) else None
        if data is None:
            return self._random("prompt", (self.spec.length, width), 0.02)
        random = np.random.default_rng([self.seed, zlib.crc32(b"prompt")])
        return np.asarray(data)[random.integers(0, len(data), self.spec.length)]

    def _with_prefix(self, number: int, count: int) -> Callable[[int, Tensor, str], Tensor]:
        """Keys and values of one layer behind a prefix, of which there are `count` in all layers."""

        def change(place: int, item: Tensor, name: str) -> Tensor:
            role = KEYS_AND_VALUES[place]
            if not all(isinstance(item.shape[axis], int) for axis in (1, 3)):
                raise InputError("the heads of an attention have no known number and width")
            heads, width = (size for size in (item.shape[1], item.shape[3]) if isinstance(size, int))
            if self.spec.hidden_dim:
                prefix = self._made_prefix(item, heads, width, 2 * number + place - 1, count)
            else:
                start = self._random(f"{role}{number}", (heads, self.spec.length, width), 0.02)
                prefix = self._variable("", role, item, start, number)
            return self._replace_first(item, prefix, 2, name)

        return change

    def _made_prefix(self, item: Tensor, heads: int, width: int, number: int, count: int) -> Tensor:
        """The keys or values of one layer of those that the network makes of vectors for the virtual tokens.

        It is that of PEFT: a table, a layer of `hidden_dim`, tanh, and a layer for all that is made.
        """
        call, length, size = self.builder.call, self.spec.length, heads * width
        if self.prefixes is None:
            self.heads, hidden = heads, self.spec.hidden_dim
            table = self._variable("", "table", item, self._random("table", (length, size), 1.0))
            first = self._linear("first", item, hidden, size)
            last = self._linear("last", item, count * size, hidden)
            inner = call("math.add", call("llm.matmul", table, first[0], transpose="NT"), first[1])
            active = call("math.tanh", inner)
            self.prefixes = call("math.add", call("llm.matmul", active, last[0], transpose="NT"), last[1])
        made = self.prefixes
        if made.shape != (length, count * size) or self.heads != heads:
            raise InputError(
                "a network makes prefixes of layers whose heads are alike", hint="leave hidden_dim out"
            )
        own = call("layout.slice", made, axes=(1,), begin=(number * size,), end=((number + 1) * size,))
        rows = call("aten.reshape", own, shape=(length, heads, width))
        return call("layout.transpose", rows, perm=(1, 0, 2))

    def _linear(self, name: str, like: Tensor, rows: int, width: int) -> tuple[Tensor, Tensor]:
        """The weight and the bias of a layer, which begin as those of torch: uniform within 1 / √width."""
        random = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        weight, bias = (random.uniform(-1.0, 1.0, shape) / np.sqrt(width) for shape in ((rows, width), rows))
        return self._variable("", name, like, weight), self._variable("", f"{name}_bias", like, bias)

    def _replace_first(self, tensor: Tensor, value: Tensor, axis: int, name: str) -> Tensor:
        """A tensor whose first items along an axis are those of a value that all sequences share."""
        length, end = self.spec.length, tensor.shape[axis]
        rest = self.builder.call("layout.slice", tensor, axes=(axis,), begin=(length,), end=(end,))
        shape = tuple(self.spec.length if place == axis else size for place, size in enumerate(tensor.shape))
        zeros = self.builder.call("llm.zeros", types={"dtype": tensor.element}, shape=shape)
        first = self.builder.call("math.add", zeros, value)
        return self.builder.call("layout.concat", (first, rest), axis=axis, results=(name,))


def _with_operand(given: Tensor, change: Callable[[Tensor, str], Tensor], node: Operation) -> Operation:
    """An operation that is given something else in the place of a tensor."""
    changed = change(given, f"{given.name}.scaled")
    return replace(node, inputs=tuple(changed if item == given else item for item in node.inputs))


def _with_operands(change: Callable[[int, Tensor, str], Tensor], node: Operation) -> Operation:
    """An attention whose keys and values are changed."""
    inputs = list(node.inputs)
    for place in KEYS_AND_VALUES:
        item = inputs[place]
        if not isinstance(item, Tensor):
            raise InputError("an attention has no keys or no values of its own")
        inputs[place] = change(place, item, f"{item.name}.prefixed")
    return replace(node, inputs=tuple(inputs))
