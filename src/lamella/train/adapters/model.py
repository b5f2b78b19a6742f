"""A model with adapters: what a user or `@adapter` asks for, as a graph with gradients of the adapters alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Found, InputError
from lamella.base.paths import is_folder
from lamella.bridge.module_to_graph.nodes import Compiled, Mark
from lamella.graph.model import Model
from lamella.graph.nodes import Node, Tensor
from lamella.graph.rewrite import members, producers, results_of
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.options import Options
from lamella.train.adapters.base import with_base
from lamella.train.adapters.files import read_adapter
from lamella.train.adapters.places import (
    AdapterRows,
    Product,
    WeightRows,
    checkpoint_parts,
    find_biased,
    find_experts,
    find_places,
    find_products,
    is_head,
    unrounded,
)
from lamella.train.adapters.rewrite import Adapted, AdapterRewrite
from lamella.train.adapters.specs import (
    BOTTLENECK,
    DORA,
    PREFIX,
    PROMPT,
    AdapterSpec,
    parse_spec,
    spec_of_annotation,
)
from lamella.train.adapters.written import WrittenGradients, differentiate_adapted
from lamella.train.gradients import annotated, build_differentiable, trainable_graph, written_source
from lamella.train.initial import with_initial
from lamella.train.saving import is_source, load_graph
from lamella.train.sources import ParameterPolicy, TensorMark, TrainableGraph

ANNOTATION = "adapter"
WHOLE = (PROMPT, PREFIX)
"""Kinds that are of the whole model."""


@dataclass(frozen=True, slots=True)
class AdapterModel:
    """A model with adapters, and what it was before."""

    adapted: Adapted
    frozen: Model
    """The model without them, its weights as they were read or drawn."""
    trainable: TrainableGraph
    drawn: tuple[str, ...] = ()
    """Weights that begin random."""

    def unadapted_experts(self) -> list[Tensor]:
        """The weights of experts that no adapter adds to."""
        adapted = {item.product.weight.name for item in self.adapted.places}
        return [item for item in find_experts(self.frozen.graph) if item.name not in adapted]


def find_adapters(path: Path, options: Options) -> AdapterModel | None:
    """The model of a path with the adapters that options or its text ask for; None where neither does."""
    source = read_source(path, options) if is_source(path, options) else None
    if source is None and not options.adapters:
        return None
    marks: list[Mark] = []
    said: Compiled | None = None
    if source is not None:
        said, model = build_differentiable(source, options)
        marks = [item for item in said.marks if item.annotation.name == ANNOTATION]
    else:
        model = load_graph(path, options)
    if not options.adapters and not marks:
        if options.base is not None or options.merge:
            raise InputError("the model has no adapters", hint="say --adapter lora:rank=8")
        return None
    model, drawn = with_initial(model, options)
    written = None if source is None else written_source(source, options)
    if written is not None:
        graph, needed = written
        whole = replace(graph, model=with_initial(graph.model, options)[0])
        return _Adapting(model, source, said, options, WrittenGradients.of(whole, needed)).run(marks, drawn)
    return _Adapting(model, source, said, options).run(marks, drawn)


class _Adapting:
    """The way from a model to one with adapters and gradients."""

    def __init__(
        self,
        model: Model,
        source: Source | None,
        compiled: Compiled | None,
        options: Options,
        written: WrittenGradients | None = None,
    ) -> None:
        self.model, self.source, self.compiled, self.options = model, source, compiled, options
        self.written = written
        """The gradients that the text of the model writes itself."""
        self.forward = model.graph if written is None else written.forward.graph
        self.parts: Mapping[str, list[WeightRows]] = checkpoint_parts(
            None if source is None else source.instance
        )
        self.products = find_products(self.forward)
        self.start: Mapping[tuple[str, str], Array] = {}
        """Numbers that arrays of adapters begin with, by module and role."""

    def run(self, marks: list[Mark], drawn: tuple[str, ...]) -> AdapterModel:
        """The model with everything that is asked for."""
        spec, places, marked = self._asked() if self.options.adapters else self._marked(marks)
        model, narrow = self._narrow(spec)
        real = np.float64 if self.options.dtype == "f64" else np.float32
        try:
            forward = None if self.written is None else self.forward
            work = AdapterRewrite(model, spec, self.options.start_seed, real, forward)
            adapted = self._started(work.run(places, marked))
            graph = _with_gradients(adapted, narrow, self.compiled, self.written)
        except Found as problem:
            raise LamellaError(problem.findings) from None
        policies = {item.name: ParameterPolicy(item.name) for item in self.model.graph.variables}
        if self.compiled is not None and self.source is not None:
            graph = annotated(graph, self.compiled, self.source)
            policies = dict(graph.policies)
        # What is trained for each expert lies where the weights of that expert lie.
        marks_of = {
            place.module: policies[place.product.weight.name].mark
            for place in places
            if place.product.experts and place.product.weight.name in policies
        }
        policies |= {
            item.variable: ParameterPolicy(item.variable, mark=marks_of.get(item.module, TensorMark()))
            for item in adapted.weights
        }
        return AdapterModel(adapted, self.model, replace(graph, policies=policies), drawn)

    def _asked(self) -> tuple[AdapterSpec, list[AdapterRows], list[Tensor]]:
        """What the options ask for: one kind of adapter, or those of a folder."""
        if len(self.options.adapters) > 1:
            hint = "several targets go into one: --adapter lora:targets=q,v"
            raise InputError(f"{len(self.options.adapters)} adapters are asked for at once", hint=hint)
        (words,) = self.options.adapters
        if is_folder(Path(words)):
            spec, self.start = read_adapter(Path(words), self.options.limits)
        else:
            spec = parse_spec(words)
        has_experts = bool(find_experts(self.model.graph))
        places = [] if spec.kind in WHOLE else find_places(self.products, self.parts, spec, has_experts)
        if spec.kind not in WHOLE and not places:
            raise InputError("the model has no product with a weight that could be adapted")
        return spec, places, []

    def _marked(self, marks: list[Mark]) -> tuple[AdapterSpec, list[AdapterRows], list[Tensor]]:
        """What `@adapter` asks for in the text of the model."""
        specs = [spec_of_annotation(item.arguments) for item in marks]
        kinds = {item.kind for item in specs}
        if len(kinds) > 1:
            raise InputError(f"the model declares adapters of {len(kinds)} kinds: {', '.join(sorted(kinds))}")
        behind = {sums.name: name for name, (sums, _) in find_biased(self.forward).items()}
        by_result = {item.result.name: item for item in self.products.values()}
        makers = producers(self.forward)
        places: list[AdapterRows] = []
        marked: list[Tensor] = []
        for mark, spec in zip(marks, specs, strict=True):
            name = mark.tensor.name
            plain = name if name in by_result or name in behind else unrounded(name, makers)
            product = by_result.get(behind.get(plain, plain))
            if product is not None and spec.kind not in WHOLE:
                places += self._parts_of(product, spec)
            elif spec.kind in (*WHOLE, BOTTLENECK):
                marked.append(mark.tensor)
            else:
                hint = "put it behind a product with a weight, such as Linear"
                raise InputError(
                    f"@adapter({spec.kind}) on '{name[:80]}', which is no such product", hint=hint
                )
        return specs[0], places, marked

    def _parts_of(self, product: Product, spec: AdapterSpec) -> list[AdapterRows]:
        """The places of one product; without targets all its parts."""
        chosen = spec if spec.targets else replace(spec, targets=("*",))
        return find_places({product.weight.name: product}, self.parts, chosen)

    def _narrow(self, spec: AdapterSpec) -> tuple[Model, tuple[str, ...]]:
        """The model whose frozen weights have few bits, where that is asked for."""
        model = self.model if self.written is None else self.written.graph.model
        if self.options.base is None:
            return model, ()
        if spec.kind == DORA:
            raise InputError("dora needs the norms of whole weights", hint="leave --base out, or take lora")
        chosen = [
            item for item in self.products.values() if not item.experts and not is_head(item, self.parts)
        ]
        return with_base(model, chosen, self.options.base)

    def _started(self, adapted: Adapted) -> Adapted:
        """The adapters with the numbers that a folder holds."""
        if not self.start:
            return adapted
        data = dict(adapted.model.data or {})
        for item in adapted.weights:
            found = self.start.get((item.module, item.role if item.module else f"{item.role}.{item.layer}"))
            if found is None or found.shape != item.shape:
                what = "nothing" if found is None else f"an array of {list(found.shape)}"
                raise InputError(
                    f"the folder of the adapter holds {what} for '{item.variable[:80]}' {list(item.shape)}"
                )
            data[item.variable] = found.astype(data[item.variable].dtype)
        return replace(adapted, model=replace(adapted.model, data=data))


def _with_gradients(
    adapted: Adapted, narrow: tuple[str, ...], compiled: Compiled | None, written: WrittenGradients | None
) -> TrainableGraph:
    """The graph with the gradients of its adapters; numbers that are made of codes are made again on the way back."""
    if written is None:
        found = trainable_graph(adapted.model, adapted, [item.variable for item in adapted.weights], compiled)
    else:
        found = differentiate_adapted(adapted, written)
    graph = found.model.graph
    placeholders = {tensor.name for tensor, _ in adapted.detached}
    first: tuple[Node, ...] = tuple(node for _, nodes in adapted.detached for node in nodes)
    inputs = tuple(
        item for item in graph.inputs if not (isinstance(item, Tensor) and item.name in placeholders)
    )
    model = replace(found.model, graph=replace(graph, inputs=inputs, nodes=(*first, *graph.nodes)))
    every = {item.name for node in graph.nodes for item in results_of(node)}
    kept = frozenset(every - _made_of(narrow, graph.nodes)) if narrow else None
    return replace(found, model=model, kept=kept)


def _made_of(names: tuple[str, ...], nodes: tuple[Node, ...]) -> set[str]:
    """The tensors that stand for codes, with what is computed on the way to them."""
    found = set(names)
    for node in reversed(nodes):
        made = {item.name for item in results_of(node)}
        if made & found:
            found |= made
            found |= {item.name for item in members(getattr(node, "inputs", ()))}
    return found
