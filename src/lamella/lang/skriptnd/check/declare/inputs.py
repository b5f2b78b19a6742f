"""Inputs: the order in which their shapes can be bound (specification 2.6.1), and the names they declare."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from lamella.lang.skriptnd.check.context import Context, Entry, excerpt
from lamella.lang.skriptnd.check.declare.shapes import Declaring, read_tensor
from lamella.lang.skriptnd.check.declare.usings import infer_value
from lamella.lang.skriptnd.check.kinds import Kind, agrees
from lamella.lang.skriptnd.check.lengths import length_of
from lamella.lang.skriptnd.check.names import names_in
from lamella.lang.skriptnd.nodes import Extent, Name, Omitted, Parameter
from lamella.lang.skriptnd.rules import shapes as rules
from lamella.lang.skriptnd.rules import types


class Binding:
    """Finds the binding order: an input comes next when at most one length in its shape is open."""

    def __init__(self, inputs: list[Parameter], known: Iterable[str]) -> None:
        self._inputs = inputs
        self._known = set(known)
        self._waiting: dict[str, list[Parameter]] = {}
        self._bound: set[str] = set()
        self.open: dict[str, list[Extent]] = {}
        """The packs of each input whose lengths were not known when it was last asked for."""

    def order(self) -> list[Parameter]:
        """The inputs that can be bound, in their order; optional ones come last."""
        ordered: list[Parameter] = []
        for optional in (False, True):
            # What an optional input would tell is not known in every call: the others do not wait for it.
            self._waiting.clear()
            ordered += self._order([item for item in self._inputs if item.type.optional is optional])
        return ordered

    def _order(self, inputs: list[Parameter]) -> Iterator[Parameter]:
        queue = deque(inputs)
        while queue:
            item = queue.popleft()
            if item.name in self._bound:
                continue
            self.open[item.name] = self._open_lengths(item)
            if len(self.open[item.name]) > 1:
                for name in dict.fromkeys(names_in(item.type)):
                    self._waiting.setdefault(name, []).append(item)
                continue
            self._bound.add(item.name)
            for name in _names_of(item):
                if name not in self._known:
                    self._known.add(name)
                    queue.extend(self._waiting.pop(name, ()))
            yield item

    def _open_lengths(self, item: Parameter) -> list[Extent]:
        """The packs of a shape whose lengths are not known when the input is bound."""
        return [extent for extent in item.type.shape or () if self._is_open(extent, item.type.rank)]

    def _is_open(self, extent: Extent, rank: str | None) -> bool:
        if extent.pack is None or isinstance(extent.pack.length, Omitted):
            return False
        if extent.pack.length is not None:
            return not all(name in self._known or name == rank for name in names_in(extent.pack.length))
        return not (isinstance(extent.value, Name) and extent.value.id in self._known)


def _names_of(item: Parameter) -> Iterator[str]:
    yield from names_in(item.type)
    if item.type.rank is not None:
        yield item.type.rank
    yield item.name


def declare_inputs(context: Context, inputs: list[Parameter], known: Iterable[str], graph: bool) -> None:
    """Declare inputs and the names of their shapes, in their binding order."""
    for item in inputs:
        context.declare(item.name, Entry(Kind(None, tensor=True), "an input", item.span))
    binding = Binding(inputs, known)
    ordered = binding.order()
    bound = {item.name for item in ordered}
    left = [item for item in inputs if item.name not in bound]
    declaring = Declaring("input", True, graph)
    for item in [*ordered, *left]:
        earlier = len(context.findings)
        _declare_input(context, item, declaring)
        if item.name not in bound and len(context.findings) == earlier:
            _report_open(context, item, binding.open[item.name])


def _report_open(context: Context, item: Parameter, extents: list[Extent]) -> None:
    """Say that lengths are not known, unless an earlier finding is why."""
    lengths = [name for extent in extents for name in names_in(extent.pack and extent.pack.length)]
    entries = [context.scope.find(name) for name in lengths]
    if all(entry is not None and entry.kind.known for entry in entries):
        packs = ", ".join(f"'{excerpt(extent.value)}'" for extent in extents[:8])
        context.report(rules.AMBIGUOUS.at(item.span, name=item.name, packs=packs))


def _declare_input(context: Context, item: Parameter, declaring: Declaring) -> None:
    if item.type.rank is not None:
        kind = Kind("int", item.type.optional, value=length_of(item.type.rank))
        context.declare(item.type.rank, Entry(kind, "a rank", item.type.span))
    kind = read_tensor(context, item, declaring)
    entry = context.scope.names[item.name]
    if entry.span == item.span:
        context.scope.names[item.name] = Entry(kind, "an input", item.span)
    if item.bounds:
        context.report(rules.INDEX_PLACE.at(item.bounds[0].span, what="input", name=item.name))


def check_input_defaults(context: Context, inputs: list[Parameter]) -> None:
    """Defaults of inputs are values of their type."""
    for item in inputs:
        if item.value is None:
            continue
        if item.type.optional:
            context.report(rules.OPTIONAL_DEFAULT.at(item.span, what="input", name=item.name))
        kind, declared = infer_value(context, item.value, "a default"), context.scope.names[item.name].kind
        if not agrees(kind, declared):
            context.report(
                types.DEFAULT_TYPE.at(item.value.span, name=item.name, left=declared.type, right=kind.type)
            )
        elif kind.packed and declared.known and not declared.packed:
            text = excerpt(item.value)
            context.report(
                types.PACK_HERE.at(item.value.span, what=f"the default of '{item.name}'", text=text)
            )
        elif kind.optional:
            what = f"the default of '{item.name}'"
            context.report(types.OPTIONAL_HERE.at(item.value.span, text=excerpt(item.value), what=what))
