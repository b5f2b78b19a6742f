"""Building graphs call by call, with the shapes that the operators' definitions give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lamella.base.dim import Dim, Extent, bounds, symbol, symbols
from lamella.base.dtype import BOOL, F32, I64, ElementType
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.base.source import NOWHERE
from lamella.graph.nodes import (
    Argument,
    Branch,
    Constant,
    Graph,
    Loop,
    Node,
    Operation,
    Pack,
    Region,
    Shape,
    Single,
    Tensor,
    Update,
    Value,
)
from lamella.graph.rewrite import FreshNames, copy_of, results_of
from lamella.lang.skriptnd.rules.names import UNKNOWN_OPERATOR
from lamella.ops.instance import Declared, Fill, Instance, Repeated
from lamella.ops.instantiate import instantiate
from lamella.ops.library import Library

Given = Argument | Single
"""What a caller passes for an input: also scalars, which become constants."""


def bind(
    library: Library,
    operator: str,
    inputs: Sequence[Given],
    attributes: Mapping[str, Value],
    types: Mapping[str, ElementType],
    results: Sequence[str],
) -> Instance:
    """One call, bound; Found says what is wrong with it."""
    definition = library.find(operator)
    if definition is None:
        raise Found(UNKNOWN_OPERATOR.at(NOWHERE, name=operator))
    given = {name: value for name, value in attributes.items() if value is not None}
    return instantiate(library, definition, inputs, given, types, results)


def result_names(library: Library, operator: str) -> tuple[str, ...]:
    """What an operator calls its outputs."""
    definition = library.find(operator)
    return () if definition is None else tuple(item.name for item in definition.operator.parameters("output"))


def result(declared: Declared, name: str) -> Argument:
    """The tensor, or the pack of tensors, that an output is."""
    if declared.items is not None:
        return tuple(
            Tensor(f"{name}:{number}", declared.element, shape)
            for number, shape in enumerate(declared.items, 1)
        )
    shape = declared.shape or ()
    if declared.size is not None:
        return Pack(name, declared.element, shape, declared.size)
    return Tensor(name, declared.element, shape)


def base_name(argument: Argument, default: str = "") -> str:
    """What a result was called when its extents were named after it: the pack, for items of a pack."""
    if isinstance(argument, Tensor | Pack):
        return argument.name
    return argument[0].name.removesuffix(":1") if argument else default


def call(
    library: Library,
    operator: str,
    inputs: Sequence[Argument],
    attributes: Mapping[str, Value],
    names: Sequence[str],
    types: Mapping[str, ElementType] | None = None,
) -> Operation:
    """An operation on tensors, its results under these names; Found says what is wrong with it."""
    instance = bind(library, operator, inputs, attributes, types or {}, names)
    outputs = tuple(result(item, name) for item, name in zip(instance.outputs, names, strict=True))
    bound = tuple(instance.types.items())
    return Operation(operator, tuple(inputs), outputs, _plain(instance), bound)


def _plain(instance: Instance) -> tuple[tuple[str, Value], ...]:
    """The attributes of an instance, all of which have values that a graph holds."""
    found: list[tuple[str, Value]] = []
    for name, value in instance.attributes:
        if isinstance(value, Repeated):
            found.append((name, value))
            continue
        items = value if isinstance(value, tuple) else (value,)
        kept = tuple(item for item in items if isinstance(item, int | float | str | Dim))
        if len(kept) == len(items):
            found.append((name, kept if isinstance(value, tuple) else kept[0]))
        else:
            found.append((name, None))
    return tuple(found)


def settle_shape(
    name: str,
    shapes: Sequence[Shape],
    hidden: frozenset[str] = frozenset(),
    new: Callable[[str, int, int], Extent] = symbol,
) -> Shape:
    """The shape of a tensor that takes one of several; an extent that differs, or that is hidden outside, is new."""
    found: list[Extent] = []
    for axis, extents in enumerate(zip(*shapes, strict=True)):
        first = extents[0]
        if all(item == first for item in extents) and not any(item.name in hidden for item in symbols(first)):
            found.append(first)
            continue
        ends = [bounds(item) for item in extents]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        found.append(new(f"{name}.shape[{axis}]", high, max(low, 0)))
    return tuple(found)


def _told_inside(regions: Iterable[Region]) -> Iterator[str]:
    """The symbols of extents that operations inside of regions introduce: they mean nothing outside."""
    for region in regions:
        for made in (item for node in region.nodes for item in results_of(node)):
            told = f"{made.name}.shape["
            yield from (
                item.name for extent in made.shape for item in symbols(extent) if item.name.startswith(told)
            )


class Builder:
    """A graph under construction; every name it gives is new."""

    def __init__(self, library: Library, name: str) -> None:
        self.library = library
        self.name = name
        self.origin: Origin | None = None
        """What the operations are made from that are called from now on."""
        self._names = FreshNames()
        self._inputs: list[Argument] = []
        self._variables: list[Tensor] = []
        self._constants: dict[object, Constant] = {}
        self._updates: list[Update] = []
        self._nodes: list[Node] = []

    def fresh(self, stem: str) -> str:
        """A name like this one that nothing has."""
        return self._names.take(stem)

    def input(self, name: str, element: ElementType, shape: Sequence[Extent]) -> Tensor:
        """A new input."""
        tensor = Tensor(self.fresh(name), element, tuple(shape))
        self._inputs.append(tensor)
        return tensor

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs that there are by now."""
        return tuple(item for item in self._inputs if isinstance(item, Tensor))

    def variable(self, name: str, element: ElementType, shape: Sequence[Extent]) -> Tensor:
        """A new variable."""
        tensor = Tensor(self.fresh(name), element, tuple(shape))
        self._variables.append(tensor)
        return tensor

    def constant(
        self, value: Single | tuple[Single, ...], element: ElementType | None = None, shape: Shape = ()
    ) -> Tensor:
        """A constant tensor: one value everywhere, or all of them in row-major order; equal ones are one."""
        kind = element or _element_of(value[0] if isinstance(value, tuple) else value)
        key = (repr(value), kind, shape)
        if key not in self._constants:
            self._constants[key] = Constant(Tensor(self.fresh("c"), kind, shape), value)
        return self._constants[key].tensor

    def call(
        self,
        operator: str,
        *inputs: Given,
        types: Mapping[str, ElementType] | None = None,
        results: Sequence[str] = (),
        **attributes: Value | list[Single],
    ) -> Tensor:
        """Call an operator of one result."""
        found = self.call_all(operator, *inputs, types=types, results=results, **attributes)
        if len(found) != 1 or not isinstance(found[0], Tensor):
            raise ValueError(f"{operator} does not give one tensor")
        return found[0]

    def call_all(
        self,
        operator: str,
        *inputs: Given,
        types: Mapping[str, ElementType] | None = None,
        results: Sequence[str] = (),
        **attributes: Value | list[Single],
    ) -> tuple[Argument, ...]:
        """Call an operator; one argument for each of its results. Found says what is wrong with the call."""
        names = [self.fresh(name) for name in results or result_names(self.library, operator)]
        given = {name: tuple(item) if isinstance(item, list) else item for name, item in attributes.items()}
        instance = bind(self.library, operator, inputs, given, types or {}, names)
        outputs = tuple(result(item, name) for item, name in zip(instance.outputs, names, strict=True))
        types_found = tuple(instance.types.items())
        operation = Operation(
            operator,
            self._arguments(instance),
            outputs,
            _plain(instance),
            types_found,
            origin=self.origin,
        )
        self._nodes.append(operation)
        return outputs

    def _arguments(self, instance: Instance) -> tuple[Argument, ...]:
        """What an operation reads; scalars are constants by now."""
        return tuple(self._argument(instance.symbols[name]) for name, _ in instance.inputs)

    def _argument(self, value: object) -> Argument:
        if isinstance(value, Fill):
            single = value.value if isinstance(value.value, int | float | str | Dim) else 0
            return self.constant(single, value.element, value.shape)
        if isinstance(value, tuple):
            found = [self._argument(item) for item in value]
            return tuple(item for item in found if isinstance(item, Tensor))
        return value if isinstance(value, Tensor | Pack) else None

    # --- control flow ---------------------------------------------------------------------------------------

    @contextmanager
    def _region(self) -> Iterator[list[Node]]:
        outer, self._nodes = self._nodes, []
        try:
            yield self._nodes
        finally:
            self._nodes = outer

    def region(self, body: Callable[..., Sequence[Tensor]], *inputs: Tensor) -> Region:
        """What a function calls, as a region; the function gets the region's inputs and gives its results."""
        with self._region() as nodes:
            outputs = tuple(body(*inputs))
            return Region(inputs, tuple(nodes), outputs)

    def branch(
        self,
        condition: Tensor,
        then: Callable[[], Sequence[Tensor]],
        otherwise: Callable[[], Sequence[Tensor]],
    ) -> tuple[Tensor, ...]:
        """`if`: both functions give as many tensors, of the same types and ranks; extents may differ."""
        branches = (self.region(then), self.region(otherwise))
        hidden = frozenset(_told_inside(branches))
        outputs = tuple(
            self._either(first, second, hidden)
            for first, second in zip(branches[0].outputs, branches[1].outputs, strict=True)
        )
        self._nodes.append(Branch((Region((), (), (condition,)),), branches, outputs))
        return outputs

    def _either(self, first: Tensor, second: Tensor, hidden: frozenset[str]) -> Tensor:
        name = self.fresh("r")
        return Tensor(name, first.element, settle_shape(name, [first.shape, second.shape], hidden))

    def fold(
        self,
        carried: Sequence[Tensor],
        body: Callable[..., Sequence[Tensor]],
        count: Tensor | Extent | None = None,
        scans: Sequence[tuple[Tensor, ...]] = (),
        condition: Callable[..., Tensor] | None = None,
    ) -> tuple[Argument, ...]:
        """`do`: carried tensors are updated each time, what the function gives beyond them is collected.

        Without scans the length of what is collected is the count. The condition is asked of the carried tensors before
        each step.
        """
        inner = tuple(replace(item, name=self.fresh("s")) for item in carried)
        items = tuple(replace(scan[0], name=self.fresh("item")) for scan in scans)
        region = self.region(body, *inner, *items)
        test = None
        if condition is not None:
            seen = tuple(replace(item, name=self.fresh("s")) for item in (*carried, *items))
            test = self.region(lambda *given: (condition(*given[: len(carried)]),), *seen)
        steps = len(scans[0]) if scans else count
        outputs: list[Argument] = [replace(item, name=self.fresh("r")) for item in carried]
        outputs += [self._collected(item, steps) for item in region.outputs[len(carried) :]]
        loop = Loop(
            tuple(carried), tuple(scans), region, tuple(outputs), count, test, pretest=test is not None
        )
        self._nodes.append(loop)
        return loop.outputs

    def _collected(self, item: Tensor, steps: Tensor | Extent | None) -> Argument:
        """One tensor for each step of a loop whose steps are known."""
        name = self.fresh("r")
        number = steps if isinstance(steps, int) else 0
        return tuple(replace(item, name=f"{name}:{step}") for step in range(1, number + 1))

    def add_node(self, node: Node) -> None:
        """A node that is made already, its names taken from this builder."""
        self._nodes.append(node)

    @property
    def length(self) -> int:
        """How many nodes there are by now."""
        return len(self._nodes)

    def made_since(self, length: int) -> tuple[str, ...]:
        """The tensors that nodes made after there were so many."""
        made = (item for node in self._nodes[length:] for item in results_of(node))
        return tuple(item.name for item in made)

    def nodes_since(self, length: int) -> tuple[Node, ...]:
        """The nodes that were made after there were so many."""
        return tuple(self._nodes[length:])

    def update(self, variable: Tensor, value: Tensor) -> None:
        """After a run the variable has this value."""
        self._updates.append(Update(variable, value))

    def finish(self, *outputs: Tensor, names: Sequence[str] = ()) -> Graph:
        """The graph; an output that the graph does not compute, or has already, is copied."""
        made = {item.name for node in self._nodes for item in node.outputs if isinstance(item, Tensor)}
        found: list[Tensor] = []
        for tensor in outputs:
            if tensor.name in made and tensor not in found and not names:
                found.append(tensor)
                continue
            copy = replace(tensor, name=self.fresh(names[len(found)] if names else "y"), quantization=None)
            self._nodes.append(copy_of(tensor, copy))
            found.append(copy)
        return Graph(
            self.name,
            tuple(self._inputs),
            tuple(found),
            tuple(self._nodes),
            tuple(self._variables),
            tuple(self._constants.values()),
            tuple(self._updates),
        )


def _element_of(value: Single) -> ElementType:
    if isinstance(value, bool):
        return BOOL
    return F32 if isinstance(value, float) else I64
