"""A step of training as one graph: outputs, loss, gradients, clipping, and the next values of all parameters.

model graph ─ loss ─ gradients ─ clipping ─ optimiser      parameters and slots are variables with updates
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from lamella.base.dtype import I64, ElementType
from lamella.base.errors import InputError
from lamella.base.suggest import list_known
from lamella.graph.build import Builder
from lamella.graph.insert_calls import ALL_REDUCE
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Node, Operation, Tensor, tensors
from lamella.graph.passes.dce import dce
from lamella.graph.passes.recompute import recompute
from lamella.graph.passes.variable_dce import variable_dce
from lamella.graph.rewrite import defined, operands_of, producers, results_of
from lamella.train.mixed import (
    MASTER,
    SCALE,
    UNFINITE,
    LossScale,
    cast,
    has_narrow_range,
    wide,
    widened,
)
from lamella.train.optimizers import RATE, Optimizer, TrainedParameter, Updating, find_optimizer
from lamella.train.settings import StepSettings
from lamella.train.sources import TARGETS, TrainableGraph, halves

LOSS, AUXILIARY, NORM, WEIGHT, FIRST = "loss", "auxiliary_loss", "gradient_norm", "weight", "first"
EXCHANGES = 1 << 20
"""Numbers of calls from here on are those of exchanges between ranks; below are those of hooks."""
STAGES = EXCHANGES + 2
"""The number of the call that sums over the stages of a pipeline."""
IGNORED = -100
"""The target that takes no part in the loss."""
LOGITS = "logits"
OPTIMIZERS_MODULE = "optim."
PICKING = ("embedding", "gather", "index_select", "take")
"""How the names of operators begin that pick rows of a table."""


@dataclass(frozen=True, slots=True)
class LossRule:
    """What compares outputs with targets: an operator, which has a backward, and the type of the targets."""

    operator: str
    element: ElementType | None
    """None where targets are of the type of the outputs."""
    dropped: int
    """How many dimensions targets have less."""
    attributes: Mapping[str, int] = field(default_factory=dict)


LOSSES: Mapping[str, LossRule] = MappingProxyType(
    {
        "cross_entropy": LossRule("llm.cross_entropy", I64, 1, {"ignore_index": IGNORED}),
        "squared_error": LossRule("optim.squared_error", None, 0),
    }
)
"""All losses by name."""


@dataclass(frozen=True, slots=True)
class StepGraph:
    """A graph that takes a batch, its targets and some scalars, gives the loss, and updates its variables."""

    model: Model
    scalars: Mapping[str, str]
    """The inputs that are numbers of the step, not of its batch, by what they mean."""
    updated: tuple[str, ...]
    """The variables that it changes."""
    outputs: Mapping[str, str]
    """What its outputs are called: the loss and, where gradients are clipped, their norm."""


class StepBuilder:
    """Makes graphs of a model with gradients: the whole step, or its two halves where gradients are collected."""

    def __init__(self, source: TrainableGraph, settings: StepSettings) -> None:
        self.source, self.settings = source, settings
        self.optimizer: Optimizer = find_optimizer(settings.optimizer)
        if settings.loss not in LOSSES:
            raise InputError(
                f"there is no loss '{settings.loss[:40]}'", hint=list_known(settings.loss, LOSSES)
            )
        self.rule = LOSSES[settings.loss]
        self.scored = _find_scored(source)
        graph = source.model.graph
        self.parameters = {item.name: item for item in graph.variables if item.name in source.gradients}
        self.outer = _find_outer(graph, self.scored)
        """Tables that indices pick rows of, and what makes the scores."""
        self.real = wide(self._output(self.scored).element)
        """The type of the loss and of all numbers of a step."""
        self.is_scaled = not source.loss and has_narrow_range(self._halves()[1])
        self.states = tuple(
            item.variable.name for item in graph.updates if item.variable.name not in self.parameters
        )
        """What the model itself remembers from step to step."""

    # --- the graphs -----------------------------------------------------------------------------------------

    def step(self) -> StepGraph:
        """The whole step."""
        builder = self._builder()
        scaling = LossScale(builder) if self.is_scaled else None
        outputs = self._differentiated(builder, None, scaling.scale if scaling else None)
        scalars = self._scalars(builder)
        found = self._changed(builder, self._gradients(), scalars, scaling)
        return self._finish(builder, {**outputs, **found}, scalars)

    def evaluation(self) -> StepGraph:
        """The loss alone; parameters are inputs, because others change them between two runs."""
        builder = self._builder()
        forward, _ = self._halves()
        for node in forward:
            builder.add_node(node)
        loss = self._loss(builder)
        made = self._finish(builder, {LOSS: loss}, {}, is_changing=False)
        return replace(made, model=_with_inputs(made.model, (*self.parameters, *self.states)))

    def collection(self) -> StepGraph:
        """The first half of a step on a part of a batch: its gradients, added to what is collected."""
        builder = self._builder()
        names = (WEIGHT, FIRST, SCALE) if self.is_scaled else (WEIGHT, FIRST)
        scalars = {name: builder.input(name, self.real, ()) for name in names}
        weight, first = scalars[WEIGHT], scalars[FIRST]
        outputs = self._differentiated(builder, weight, scalars.get(SCALE))
        for name, gradient in self._gradients().items():
            gradient = widened(builder, gradient)
            if self.source.loss:  # there is no seed that could be weighed
                gradient = builder.call("math.mul", gradient, weight)
            held = builder.variable(collected(name), gradient.element, gradient.shape)
            builder.update(held, builder.call("optim.collect", held, gradient, first))
        made = self._finish(builder, outputs, scalars)
        return replace(made, model=_with_inputs(made.model, self.parameters))

    def application(self) -> StepGraph:
        """The second half of a step: the optimiser, on what was collected."""
        builder = Builder(self.source.model.library, f"{self.source.model.graph.name}_update")
        gradients = {
            name: builder.input(collected(name), wide(item.element), item.shape)
            for name, item in self._gradients().items()
        }
        for name in self.parameters:
            builder.fresh(name)
        scalars = self._scalars(builder)
        scaling = LossScale(builder) if self.is_scaled else None
        found = self._changed(builder, gradients, scalars, scaling)
        graph = builder.finish(*found.values(), names=tuple(found))
        whole = replace(graph, variables=(*self.parameters.values(), *graph.variables))
        updated = tuple(item.variable.name for item in graph.updates)
        model = self._streaming(replace(self.source.model, graph=whole, findings=(), hints=()))
        names = {name: item.name for name, item in scalars.items()}
        return StepGraph(model, names, updated, _called(found, graph))

    # --- their parts ----------------------------------------------------------------------------------------

    def _builder(self) -> Builder:
        """A builder that knows the names of the model; seeds are not among them, they are computed."""
        graph = self.source.model.graph
        builder = Builder(self.source.model.library, f"{graph.name}_step")
        seeds = self.source.gradient_inputs
        for item in defined(graph):
            if item.name not in seeds:
                builder.fresh(item.name)
        return builder

    def _halves(self) -> tuple[list[Node], list[Node]]:
        """The operations that need no gradient of an output, and those that do."""
        return halves(self.source.model.graph.nodes, self.source.gradient_inputs)

    def _differentiated(
        self, builder: Builder, weight: Tensor | None, scale: Tensor | None
    ) -> dict[str, Tensor]:
        """The model with its loss and its gradients; gives the loss."""
        forward, backward = self._halves()
        for node in forward:
            builder.add_node(node)
        outputs = {LOSS: self._loss(builder)}
        auxiliary = self.source.auxiliary
        if auxiliary is not None:
            outputs[AUXILIARY] = self._sum(
                builder, [widened(builder, self._output(item)) for item in auxiliary.tensors]
            )
        if not self.source.loss:
            self._seed(builder, weight, scale)
        for node in backward:
            builder.add_node(node)
        if weight is not None:
            outputs = {name: builder.call("math.mul", item, weight) for name, item in outputs.items()}
        return outputs

    def _scored_tensor(self, builder: Builder) -> Tensor:
        """What the loss is made of, in the type in which it is computed."""
        return widened(builder, self._output(self.scored))

    def _loss(self, builder: Builder) -> Tensor:
        """The mean cross-entropy of what is scored; a model whose output is a number has its loss already."""
        logits = self._scored_tensor(builder)
        if self.source.loss or not logits.shape:
            return logits
        rule = self.rule
        shape = logits.shape[: len(logits.shape) - rule.dropped]
        targets = builder.input(TARGETS, rule.element or logits.element, shape)
        loss = builder.call(
            rule.operator, logits, targets, types=None, results=("mean_loss",), **rule.attributes
        )
        auxiliary = self.source.auxiliary
        parts = auxiliary.trained if auxiliary else ()
        return self._sum(builder, (loss, *(widened(builder, self._output(item)) for item in parts)))

    def _sum(self, builder: Builder, parts: Sequence[Tensor]) -> Tensor:
        found = parts[0]
        for item in parts[1:]:
            found = builder.call("math.add", found, item)
        return found

    def _seed(self, builder: Builder, weight: Tensor | None, scale: Tensor | None) -> None:
        """The gradients of the outputs, under the names of the inputs that they are in the model's graph."""
        factors = [item for item in (weight, scale) if item is not None]
        one = factors[0] if factors else builder.constant(1.0, self.real)
        for item in factors[1:]:
            one = builder.call("math.mul", one, item)
        auxiliary = self.source.auxiliary
        if auxiliary is not None:
            cast(builder, one, self._output(auxiliary.tensors[0]).element, auxiliary.seed)
        for output, seed in self.source.seeds.items():
            tensor = self._output(output)
            if output != self.scored:
                builder.call(
                    "llm.zeros",
                    types={"dtype": tensor.element},
                    results=(seed,),
                    shape=tensor.shape,
                )
            elif not tensor.shape:
                cast(builder, one, tensor.element, seed)
            else:
                self._seed_scores(builder, one, tensor, seed)

    def _seed_scores(self, builder: Builder, one: Tensor, scores: Tensor, seed: str) -> None:
        """The gradient of what is scored, which is as wide as the loss before it gets the type of the scores."""
        targets = next(item for item in builder.inputs if item.name == TARGETS)
        given = widened(builder, scores)
        is_wide = given is scores
        found = builder.call(
            f"{self.rule.operator}_backward",
            one,
            given,
            targets,
            types=None,
            results=(seed if is_wide else f"{seed}.wide",),
            **self.rule.attributes,
        )
        if not is_wide:
            cast(builder, found, scores.element, seed)

    def _output(self, name: str) -> Tensor:
        return self._tensors[name]

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        """The tensors of the model's graph by name."""
        found = defined(self.source.model.graph)
        return {item.name: item for item in found if isinstance(item, Tensor)}

    def _gradients(self) -> dict[str, Tensor]:
        """The gradients by the variables that they belong to, as they are computed: outputs are copies."""
        makers = producers(self.source.model.graph)
        found: dict[str, Tensor] = {}
        for name, output in self.source.gradients.items():
            tensor = self._output(output)
            while isinstance(node := makers.get(tensor.name), Operation) and node.operator == "math.iden":
                tensor = _tensor(node.inputs[0])
            found[name] = tensor
        return found

    def _sum_all(self, builder: Builder, numbers: Mapping[str, Tensor]) -> Tensor:
        """The sum of one number for each parameter; those of slices are summed over the ranks that have them."""
        parts: dict[int | None, list[Tensor]] = {}
        for name, item in numbers.items():
            parts.setdefault(self.source.divided.get(name), []).append(item)
        sums = {number: self._sum(builder, items) for number, items in parts.items()}
        whole = [
            item if number is None else builder.call(ALL_REDUCE, item, number=number)
            for number, item in sums.items()
        ]
        total = self._sum(builder, whole)
        return builder.call(ALL_REDUCE, total, number=STAGES) if self.source.is_stage else total

    def _scalars(self, builder: Builder) -> dict[str, Tensor]:
        names = (RATE, *self.optimizer.scalars(self.settings, 1))
        return {name: builder.input(name, self.real, ()) for name in names}

    def _changed(
        self,
        builder: Builder,
        gradients: Mapping[str, Tensor],
        scalars: Mapping[str, Tensor],
        scaling: LossScale | None,
    ) -> dict[str, Tensor]:
        """All updates that gradients make; gives what is told of the gradients."""
        found = {name: widened(builder, item) for name, item in gradients.items()}
        if scaling is not None:
            found = scaling.unscaled(found, self._sum_all)
        found, told = self._clipped(builder, found)
        self._update(builder, found, scalars, scaling)
        if scaling is not None and scaling.unfinite is not None:
            told[UNFINITE] = scaling.unfinite
        return told

    def _clipped(
        self, builder: Builder, gradients: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Gradients whose norms are no larger than they may be, and the norm of all, where that is asked for."""
        found = dict(gradients)
        for name, gradient in gradients.items():
            limit, scale = self.source.policy(name).clip, self.source.policy(name).gradient_scale
            if scale != 1.0:
                gradient = found[name] = builder.call("llm.scale", gradient, factor=scale)
            if limit is not None and name in self.source.divided:
                hint = "its @trainable(grad_clip) needs the whole: let every rank have it, or say --clip"
                raise InputError(f"ranks have slices of '{name[:80]}'", hint=hint)
            if limit is not None:
                found[name] = builder.call("optim.clip_norm", gradient, limit=limit)
        limit = self.settings.clip
        if limit is None or not found:
            return found, {}
        squares = {name: builder.call("optim.square_sum", item) for name, item in found.items()}
        total = self._sum_all(builder, squares)
        factor, norm = map(_tensor, builder.call_all("optim.clip_factor", total, limit=limit))
        scaled = {name: builder.call("math.mul", item, factor) for name, item in found.items()}
        return scaled, {NORM: norm}

    def _update(
        self,
        builder: Builder,
        gradients: Mapping[str, Tensor],
        scalars: Mapping[str, Tensor],
        scaling: LossScale | None,
    ) -> None:
        """The next values of parameters and slots; a narrow parameter is what its master is, rounded."""
        for name, gradient in gradients.items():
            own = self.parameters[name]
            is_wide = own.element is wide(own.element)
            held = own if is_wide else builder.variable(slot_name(name, MASTER), gradient.element, own.shape)
            parameter = TrainedParameter(held, self.source.policy(name), name not in self.outer)
            slots = {
                item.name: builder.variable(slot_name(name, item.name), item.element, item.shape)
                for item in self.optimizer.slots(parameter, self.settings)
            }
            given = Updating(builder, self.settings, parameter, gradient, slots, scalars)
            values = [*zip((held, *slots.values()), self.optimizer.update(given), strict=True)]
            if not is_wide:
                values.append((own, cast(builder, values[0][1], own.element)))
            for variable, value in values:
                builder.update(variable, value if scaling is None else scaling.guarded(variable, value))

    def _finish(
        self,
        builder: Builder,
        outputs: Mapping[str, Tensor],
        scalars: Mapping[str, Tensor],
        is_changing: bool = True,
    ) -> StepGraph:
        graph = self.source.model.graph
        seeds = self.source.gradient_inputs
        made = builder.finish(*outputs.values(), names=tuple(outputs))
        if is_changing:
            own = tuple(item for item in graph.updates if item.variable.name in self.states)
            made = replace(made, updates=(*own, *made.updates))
        changed = {item.variable.name for item in made.updates}
        made = replace(made, nodes=_with_early_updates(made.nodes, changed))
        kept = tuple(
            argument for argument in graph.inputs if not any(item.name in seeds for item in tensors(argument))
        )
        whole = replace(
            made,
            inputs=(*kept, *made.inputs),
            variables=(*graph.variables, *made.variables),
            constants=(*graph.constants, *made.constants),
            checks=graph.checks,
        )
        model = self._streaming(replace(self.source.model, graph=whole))
        if self.source.kept is not None:
            model = recompute(model, self.source.kept, seeds, self.source.moved)
        model = variable_dce(dce(model))
        updated = tuple(item.variable.name for item in whole.updates)
        names = {name: item.name for name, item in scalars.items()}
        return StepGraph(model, names, updated, _called(outputs, made))

    def _streaming(self, model: Model) -> Model:
        """The model whose slots of parameters that come and go do so too."""
        streams = dict(model.streams)
        for item in model.graph.variables:
            owner = item.name.rpartition(".")[0]
            if owner in self.parameters and owner in streams and item.name not in self._tensors:
                streams[item.name] = streams[owner]
        return replace(model, streams=streams)


def _with_early_updates(nodes: Sequence[Node], changed: Collection[str]) -> tuple[Node, ...]:
    """The nodes with each update as soon as its gradient is there and nobody reads the old value any more.

    A gradient is needed no longer than until then, and its memory is free for the next one.
    """
    made: dict[str, int] = {}
    last: dict[str, int] = {}
    places: list[int] = []
    for number, node in enumerate(nodes):
        read = [item.name for item in operands_of(node)]
        updates = isinstance(node, Operation) and node.operator.startswith(OPTIMIZERS_MODULE)
        place = number
        if updates:
            place = max([made.get(name, -1) for name in read] + [last.get(name, -1) for name in read])
        else:
            last |= {name: number for name in read if name in changed}
        made |= {item.name: place for item in results_of(node)}
        places.append(place)
    # A stable sort: an update comes behind the node that it waits for.
    return tuple(nodes[number] for number in sorted(range(len(nodes)), key=places.__getitem__))


def slot_name(parameter: str, slot: str) -> str:
    """What the variable of a slot is called."""
    return f"{parameter}.{slot}"


def collected(parameter: str) -> str:
    """What the variable of a parameter's collected gradient is called."""
    return f"{parameter}.collected"


def _called(outputs: Mapping[str, Tensor], graph: Graph) -> dict[str, str]:
    """The names of outputs in a graph, which may have had to call them otherwise."""
    made = (item.name for argument in graph.outputs for item in tensors(argument))
    return dict(zip(outputs, made, strict=True))


def _tensor(argument: object) -> Tensor:
    if not isinstance(argument, Tensor):
        raise TypeError(f"{argument} is no tensor")
    return argument


def _find_scored(source: TrainableGraph) -> str:
    """The output that the loss is made of: the logits, else the first that has a gradient."""
    if not source.gradients:
        raise InputError("the model has no parameter that is trained", hint="is every one @frozen?")
    if source.loss:
        return source.loss
    if not source.seeds:
        raise InputError("no output of the model depends on its parameters", hint="there is nothing to train")
    return LOGITS if LOGITS in source.seeds else next(iter(source.seeds))


def _find_outer(graph: Graph, scored: str) -> set[str]:
    """What operators read that pick rows, and what the operation reads that makes the scores."""
    makers = producers(graph)
    found: set[str] = set()
    for node in graph.operations():
        if node.operator.rpartition(".")[2].startswith(PICKING):
            found |= {item.name for item in operands_of(node)}
    name = scored
    while (maker := makers.get(name)) is not None:
        read = [item.name for item in operands_of(maker)]
        found |= set(read)
        if len(read) != 1:
            break
        name = read[0]
    return found


def _with_inputs(model: Model, parameters: Collection[str]) -> Model:
    """The model whose parameters are inputs."""
    graph = model.graph
    own = tuple(item for item in graph.variables if item.name in parameters)
    rest = tuple(item for item in graph.variables if item.name not in parameters)
    return replace(model, graph=replace(graph, inputs=(*graph.inputs, *own), variables=rest))
