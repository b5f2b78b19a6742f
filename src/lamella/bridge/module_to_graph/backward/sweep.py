"""From the last call to the first: every tensor gets the sum of what comes back to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lamella.bridge.module_to_graph.backward.calls import pull, refuse, unserved
from lamella.bridge.module_to_graph.backward.nodes import Called, Visit, flat
from lamella.bridge.module_to_graph.backward.recorder import Recorder
from lamella.bridge.module_to_graph.nodes import Bound
from lamella.bridge.module_to_graph.road import Place
from lamella.graph.nodes import Tensor

Explicit = Callable[[Visit, Sequence["Tensor | None"], "Sweep"], None]
"""Runs the backward graph that an instance has itself, and adds what it gives."""
NARROW = 8
"""Gradients of tensors with elements of at most this many bits stay as wide as they come."""


class Wanted:
    """The tensors that need gradients, because a parameter or an input stands before them."""

    def __init__(self, parameters: Iterable[str], inputs: Iterable[str]) -> None:
        self.trained = set(parameters)
        """What depends on a trainable parameter."""
        self.all = self.trained | set(inputs)

    def follow(self, calls: Iterable[Called]) -> None:
        """Mark what calls make of what is marked."""
        for call in calls:
            operands = {item.name for item in call.operands()}
            for marked in (self.trained, self.all):
                if operands & marked:
                    marked.update(item.name for item in call.tensors() if item.element.is_float)


class Sweep:
    """One way back through calls; parameters have one sum for all ways, other tensors one for each."""

    def __init__(
        self, road: Recorder, wanted: Wanted, explicit: Explicit, parameters: dict[str, list[Tensor]]
    ) -> None:
        self.road, self.wanted, self.explicit = road, wanted, explicit
        self.parameters = parameters
        self._local: dict[str, list[Tensor]] = {}

    def again(self) -> Sweep:
        """Another way back that adds to the same parameters."""
        return Sweep(self.road, self.wanted, self.explicit, self.parameters)

    def add(self, tensor: Bound, gradient: Bound) -> None:
        """Add to the gradient of a tensor that needs one."""
        if not isinstance(tensor, Tensor) or not isinstance(gradient, Tensor):
            return
        if tensor.name in self.wanted.all:
            sums = self.parameters if self.road.is_parameter(tensor) else self._local
            if tensor.element.bits > NARROW:
                gradient = self.road.cast(gradient, tensor.element, None)
            self.road.mark_gradients(gradient)
            sums.setdefault(tensor.name, []).append(gradient)

    def seed(self, tensor: Bound, gradient: Tensor) -> None:
        """Begin with the gradient of an output."""
        if isinstance(tensor, Tensor):
            self.road.mark_gradients(gradient)
            self._local.setdefault(tensor.name, []).append(gradient)

    def take(self, tensor: Tensor) -> Tensor | None:
        """The sum of what came back to a tensor, once."""
        sums = self.parameters if self.road.is_parameter(tensor) else self._local
        return self.total(sums.pop(tensor.name, []), tensor.name)

    def total(self, parts: Sequence[Tensor], name: str) -> Tensor | None:
        """The sum of gradients; None where there is none."""
        found: Tensor | None = None
        root = self.road.root
        for part in parts:
            if found is None or root is None:
                found = part
                continue
            place = Place("add", root.forward.span, None)
            found = next(flat(self.road.call("math.add", (found, part), {}, (f"{name}.d_sum",), place)))
        return found

    def run(self, visit: Visit) -> None:
        """Go back through an instance."""
        gradients = [self.take(item) if isinstance(item, Tensor) else None for item in visit.outputs]
        with self.road.reading(visit.reads):
            if visit.backward is not None:
                if any(item is not None for item in gradients):
                    self.explicit(visit, gradients, self)
                return
            for output, gradient in zip(visit.outputs, gradients, strict=True):
                self.add(output, gradient)
            for step in reversed(visit.steps):
                if isinstance(step, Visit):
                    self.run(step)
                else:
                    self._pull(step, visit)

    def _pull(self, call: Called, visit: Visit) -> None:
        found = {item.name: self.take(item) for item in call.tensors() if item.element.is_float}
        if not any(found.values()) or not any(item.name in self.wanted.all for item in call.operands()):
            return
        visit.pulled.append(call)
        for operand in unserved(call):
            if operand.name in self.wanted.trained and operand.element.is_float:
                self.road.report(refuse(call, operand), call.place.origin)
        for tensor, gradient in pull(call, lambda item: found.get(item.name), self.road):
            self.add(tensor, gradient)
