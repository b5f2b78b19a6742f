"""Modules of PyTorch with the gradients of a loss, as NAC files that can be trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.base.optional import need
from lamella.bridge.graph_to_nac.file import TrainingGraph, with_training
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.graph.model import Model as GraphModel
from lamella.graph.nodes import tensors
from lamella.pipeline.nac.convert import from_graph, simplify
from lamella.pipeline.nac.model import Model
from lamella.pipeline.options import Options

Loss = Callable[..., object]


class Numbers(Protocol):
    """What is used of a tensor, a parameter or a buffer."""

    requires_grad: bool

    @property
    def shape(self) -> Sequence[int]:
        """Its extents."""

    def detach(self) -> Numbers:
        """The numbers alone."""

    def requires_grad_(self) -> Numbers:
        """The same, whose gradient is wanted."""


class TrainableModule(Protocol):
    """What is used of a module."""

    def named_parameters(self, *, remove_duplicate: bool = True) -> Iterable[tuple[str, Numbers]]:
        """Its parameters with their names."""

    def named_buffers(self) -> Iterable[tuple[str, Numbers]]:
        """Its buffers with their names."""


@dataclass(frozen=True, slots=True)
class Example:
    """What a module is called with, and what the loss compares the result with."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    targets: tuple[object, ...]


def with_gradients(module: TrainableModule, example: Example, loss: Loss, forward: GraphModel) -> Model:
    """The file of a module's graph with the graph of its training: the loss, and its gradients by the parameters.

    Parameters that need no gradient, or that the loss does not depend on, stay as they are.
    """
    training = _Tracer(module, example, loss, forward).trace()
    model = from_graph(forward, Path(f"{forward.graph.name}.nac"), Options())
    file, findings = with_training(model.file, training)
    return Model(model.path, file, (*model.findings, *findings))


class _Tracer:
    """Writes down what a loss and its gradients compute."""

    def __init__(self, module: TrainableModule, example: Example, loss: Loss, forward: GraphModel) -> None:
        self._torch = need("torch")
        self._module, self._loss = module, loss
        leaves, self._tree = need("torch.utils._pytree").tree_flatten((example.args, dict(example.kwargs)))
        self._leaves: list[object] = leaves
        self._places = [place for place, item in enumerate(leaves) if self._is_tensor(item)]
        self._targets = example.targets
        self._own = [item.name for argument in forward.graph.inputs for item in tensors(argument)]
        if len(self._own) != len(self._places):
            raise InputError(f"the module takes {len(self._own)} tensors; {len(self._places)} are given")
        if not all(map(self._is_tensor, self._targets)):
            raise InputError("targets are tensors", hint="give them as a tuple: targets=(labels,)")
        self._held = dict(self._find_held({item.name for item in forward.graph.variables}))
        self._wanted = [name for name, item in self._held.items() if item.requires_grad]

    def _is_tensor(self, value: object) -> bool:
        return isinstance(value, self._torch.Tensor)

    def _find_held(self, names: set[str]) -> Iterable[tuple[str, Numbers]]:
        """Parameters and buffers that the file has, each once, under the name that it has there."""
        seen: set[int] = set()
        named = (*self._module.named_parameters(remove_duplicate=False), *self._module.named_buffers())
        for name, item in named:
            if name in names and id(item) not in seen:
                seen.add(id(item))
                yield name, item

    def trace(self) -> TrainingGraph:
        """The graph of a step: first the loss, then the gradients."""
        given = [*(self._leaves[place] for place in self._places), *self._targets, *self._held.values()]
        gradients = self._step(*given)[1:] if self._wanted else ()
        pairs = zip(self._wanted, gradients, strict=True)
        self._wanted = [name for name, gradient in pairs if gradient is not None]
        if not self._wanted:
            raise InputError("the loss depends on no parameter", hint="parameters need requires_grad=True")
        traced = need("torch.fx.experimental.proxy_tensor").make_fx(self._step)(*given)
        program = self._torch.export.export(traced, tuple(given))
        return self._described(torch_to_graph(program, DEFAULT))

    def _step(self, *given: object) -> tuple[object, ...]:
        """A loss and its gradients by the parameters that are wanted."""
        inputs, rest = given[: len(self._places)], given[len(self._places) :]
        targets, held = rest[: len(self._targets)], rest[len(self._targets) :]
        attention = need("torch.nn.attention")
        # Fused kernels of attention have gradients that only a certain machine can compute.
        with self._torch.enable_grad(), attention.sdpa_kernel(attention.SDPBackend.MATH):
            numbers = dict(zip(self._held, (cast("Numbers", item).detach() for item in held), strict=True))
            changing = [numbers[name].requires_grad_() for name in self._wanted]
            leaves = list(self._leaves)
            for place, item in zip(self._places, inputs, strict=True):
                leaves[place] = item
            args, kwargs = need("torch.utils._pytree").tree_unflatten(leaves, self._tree)
            found = self._torch.func.functional_call(self._module, numbers, args, kwargs)
            loss = self._loss(found, *targets)
            shape = list(cast("Numbers", loss).shape) if self._is_tensor(loss) else ["nothing"]
            if shape:
                raise InputError(f"the loss has shape {shape}", hint="a loss is a tensor of a single number")
            return (loss, *self._torch.autograd.grad(loss, changing, allow_unused=True))

    def _described(self, model: GraphModel) -> TrainingGraph:
        """What the inputs and the outputs of the traced graph are."""
        made = simplify(model, Options(), "exact")
        model = model if made is None else made.model
        names = [item.name for argument in model.graph.inputs for item in tensors(argument)]
        outputs = [item.name for argument in model.graph.outputs for item in tensors(argument)]
        own, rest = names[: len(self._own)], names[len(self._own) :]
        targets, held = rest[: len(self._targets)], rest[len(self._targets) :]
        return TrainingGraph(
            model,
            outputs[0],
            dict(zip(self._wanted, outputs[1:], strict=True)),
            dict(zip(held, self._held, strict=True)),
            tuple(targets),
            dict(zip(own, self._own, strict=True)),
        )
