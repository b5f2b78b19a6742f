"""What a backward graph may read of its forward graph: `save:`, `recompute:`, `@memory`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from lamella.base.diagnostic import Diagnostic
from lamella.bridge.module_to_graph.backward.calls import is_optional, named_values, saved_ports
from lamella.bridge.module_to_graph.backward.nodes import Called, Visit, flat
from lamella.bridge.module_to_graph.backward.recorder import Recorder, bound_names
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.evaluate import Problem, Surroundings, evaluate, evaluate_bool
from lamella.lang.module.instantiate.nodes import Known
from lamella.lang.module.nodes import Name, Pattern, Primitive, Selection
from lamella.lang.module.rules import gradients
from lamella.lang.module.suggest import suggest

WHOLE = frozenset(("view", "reshape", "transpose", "permute", "contiguous", "alias"))
"""Primitives that only look at what they are given, and at all of it: who saved the one has the other."""
VIEWS = WHOLE | {"fork", "split", "split_and_reshape", "split_reshape"}
"""Primitives that look at what they are given, or at parts of it."""

MOST_TOLD = 12
"""Tensors that one finding names."""


class Saving:
    """The tensors of an instance that are saved, those that are recomputed, and what can be made of them."""

    def __init__(self, visit: Visit, road: Recorder) -> None:
        self.visit, self.road = visit, road
        self.names = bound_names(visit.frame)
        forward = visit.forward
        self.listed = forward.save is not None
        """Whether there is a list; without one everything may be read."""
        modes = _memory_modes(visit, road)
        chosen = {name for _, names in self.matches(forward.save) for name in names}
        self.saved = {
            name for name in self.names if modes.get(name, "save" if name in chosen else "") == "save"
        }
        again = {name for _, names in self.matches(forward.recompute) for name in names}
        marked = {name for name in self.names if modes.get(name) == "recompute"}
        self.recomputed = (again - self.saved) | marked
        self._calls = tuple(visit.calls())
        self._makers = {item.name: call for call in self._calls for item in call.tensors()}
        self._own = {item.name: name for name, item in reversed(list(self.names.items()))}
        self._leaves: dict[str, Tensor | None] = {}
        self._has = self.closure(self.names[name].name for name in self.saved)

    @property
    def available(self) -> Mapping[str, Tensor]:
        """What `saved.` may name."""
        if not self.listed:
            return self.names
        wanted = self.saved | {name for name in self.recomputed if not self.leaf(self.names[name])}
        return {name: self.names[name] for name in self.names if name in wanted}

    def matches(self, selection: Selection | None) -> Iterator[tuple[Pattern, list[str]]]:
        """The items of a list with the tensors that they name; what stands for the saves of blocks is left out."""
        if selection is None:
            return
        for item in selection.items:
            if not item.spread:
                yield item, [name for name in self.names if fnmatchcase(name, item.text)]

    def closure(self, names: Iterable[str]) -> set[str]:
        """Tensors, what they only look at, and all that only looks at them."""
        found = set(names)
        for call in reversed(self._calls):
            primitive = call.place.primitive
            if primitive is not None and primitive.name in WHOLE and _touches(call.tensors(), found):
                found.update(item.name for item in call.operands())
        for call in self._calls:
            primitive = call.place.primitive
            looks = primitive is None or primitive.name in VIEWS
            if looks and _touches(call.operands(), found):
                found.update(item.name for item in call.tensors())
        return found

    def leaf(self, tensor: Tensor) -> str:
        """What is missing to compute a tensor again, as it is called; nothing where all is there."""
        missing = self._missing(tensor)
        return "" if missing is None else self.called(missing)

    def _missing(self, tensor: Tensor) -> Tensor | None:
        """A tensor that nothing can give and that this one is made of; each is followed once, however many ask."""
        todo = [tensor]
        while todo:
            item = todo[-1]
            if item.name in self._leaves:
                todo.pop()
                continue
            maker = self._makers.get(item.name)
            if item.name in self._has or self.road.is_given(item) or maker is None:
                known = item.name in self._has or self.road.is_given(item)
                self._leaves[item.name] = None if known else item
                todo.pop()
                continue
            operands = list(maker.operands())
            ahead = [operand for operand in operands if operand.name not in self._leaves]
            if ahead:
                todo += reversed(ahead)
            else:
                found = (self._leaves[operand.name] for operand in operands)
                self._leaves[item.name] = next((leaf for leaf in found if leaf is not None), None)
                todo.pop()
        return self._leaves[tensor.name]

    def called(self, tensor: Tensor) -> str:
        """The name that the instance knows a tensor by; of an unnamed one, what makes it."""
        own = self._own.get(tensor.name)
        maker = self._makers.get(tensor.name)
        return own or (maker.place.name if maker is not None else tensor.name)

    # --- findings -------------------------------------------------------------------------------------------

    def missing(self) -> set[str]:
        """The tensors that are missing to recompute what is to be recomputed."""
        return {self.leaf(self.names[name]) for name in self.recomputed} - {""} if self.listed else set()

    def check_recomputed(self) -> Iterator[Diagnostic]:
        """Whether what is to be recomputed can be."""
        if not self.listed:
            return
        spans = {
            name: item.span for item, names in self.matches(self.visit.forward.recompute) for name in names
        }
        for name in self.recomputed:
            leaf = self.leaf(self.names[name])
            if leaf:
                mark = self.road.memory_of(self.visit.frame.place(name))
                span = mark.span if mark is not None else spans.get(name, self.visit.forward.span)
                yield gradients.NOT_DERIVABLE.at(span, name=name, leaf=leaf)

    def check_derived(self, told: Collection[str] = ()) -> Iterator[Diagnostic]:
        """Whether the list has all that the derived backward reads; `told` are tensors known to be missing."""
        selection = self.visit.forward.save
        if selection is None:
            return
        module, extra = self.visit.frame.name, []
        again = {self.names[name].name for name in self.recomputed}
        for tensor in self._needed():
            if tensor.name in self._has or self.road.is_given(tensor):
                continue
            name = self.called(tensor)
            if self.leaf(tensor) in told:
                continue
            if self.leaf(tensor):
                repair = f"add '{self.leaf(tensor)}' to save:"
                yield gradients.NOT_SAVED.at(selection.span, name=name, module=module, repair=repair)
            elif tensor.name not in again:
                extra.append(f"'{name}'")
        if extra:
            named = list(dict.fromkeys(extra))
            more = f" and {len(named) - MOST_TOLD} more" if len(named) > MOST_TOLD else ""
            told = ", ".join(named[:MOST_TOLD]) + more
            yield gradients.BEYOND.at(selection.span, module=module, names=told)

    def _needed(self) -> Iterator[Tensor]:
        """The tensors that the backwards of the calls of this instance need the values of."""
        seen: set[str] = set()
        for call in reversed(self.visit.pulled):
            for tensor in _needs(call):
                if tensor.name not in seen:
                    seen.add(tensor.name)
                    yield tensor

    def check_used(self) -> Iterator[Diagnostic]:
        """Whether all that is saved is read."""
        module = self.visit.frame.name
        for item, names in self.matches(self.visit.forward.save):
            if not names:
                repair = suggest(item.text, self.names) if "*" not in item.text else ""
                yield gradients.NO_MATCH.at(item.span, name=item.text, module=module, repair=repair)
            elif (
                not self.visit.is_wrong
                and not self.closure(self.names[name].name for name in names) & self.visit.reads
            ):
                yield gradients.UNUSED.at(item.span, name=item.text, module=module)


def _touches(tensors: Iterable[Tensor], names: set[str]) -> bool:
    return any(item.name in names for item in tensors)


def _needs(call: Called) -> Iterator[Tensor]:
    """What the primitive of a call saves, but for what its backward can do without."""
    primitive = call.place.primitive
    if primitive is None or primitive.save is None or not _is_kept(call, primitive):
        return
    values = named_values(call, primitive)
    free = {port.name for port in saved_ports(primitive) if is_optional(port)}
    for item in primitive.save.items:
        if item.text not in free:
            yield from flat((values.get(item.text),))


def _is_kept(call: Called, primitive: Primitive) -> bool:
    """Whether the list of a primitive holds for a call; a condition that asks for its attributes may not."""
    condition = primitive.save.condition if primitive.save is not None else None
    if condition is None:
        return True
    known: dict[str, Known] = {}
    try:
        for param in primitive.params:
            if param.name in call.attributes:
                value = call.attributes[param.name]
                known[param.name] = Known(value if isinstance(value, int | float | str) else None)
            elif param.default is not None:
                known[param.name] = Known(evaluate(param.default, known, Surroundings(words=True)))
        return evaluate_bool(condition, known, "the condition of 'save:'")
    except Problem:
        return True


def _memory_modes(visit: Visit, road: Recorder) -> dict[str, str]:
    """What `@memory` says of the tensors of an instance."""
    found: dict[str, str] = {}
    for name in visit.frame.bound:
        mark = road.memory_of(visit.frame.place(name))
        for item in mark.arguments if mark is not None else ():
            if item.name in (None, "mode") and isinstance(item.value, Name):
                found[name] = item.value.id
    return found
