"""Operators by their formulas: contractions in their order, each over grids of its loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamella.base.dim import Extent, add
from lamella.base.dtype import BOOL, F32, F64, I64, ElementType
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.affine import find_form
from lamella.bridge.graph_to_onnx.arithmetic import apply, cast
from lamella.bridge.graph_to_onnx.emitter import DATA_ELEMENTS, Value, value_info
from lamella.bridge.graph_to_onnx.loops import LoopSpace, volume_of
from lamella.bridge.graph_to_onnx.scope import Held, Scope
from lamella.bridge.graph_to_onnx.stores import ASSIGNMENTS, Store, start_of
from lamella.bridge.graph_to_onnx.terms import FormulaTensor, Subscript, TermReader, is_speculative
from lamella.bridge.onnx.nodes import Graph
from lamella.graph.nodes import Argument, Operation, Pack, Single, Tensor
from lamella.ops.formula import Contraction, Element, Guard, Index, Loop
from lamella.ops.instance import Declared, Instance
from lamella.ops.lower import contractions, reachable


@dataclass(frozen=True, slots=True)
class Recurrence:
    """`y[…, j + start, …] := f(y[…, j + start - 1, …])`: each step reads the slice before the one that it writes."""

    loop: Loop
    axis: int
    """The dimension of the target that the steps run along."""
    start: int
    """Where the first step writes."""
    reads: tuple[Element, ...]
    order: tuple[str, ...]
    """The loops along the other dimensions of the target."""


def own_reads(contraction: Contraction) -> list[Element]:
    """The places where a formula reads what it assigns."""
    written = {target.tensor for target in contraction.targets}
    inside = [index for target in contraction.targets for index in target.indices]
    found = reachable(*inside, *contraction.values, contraction.condition)
    return [term for term in found if isinstance(term, Element) and term.tensor in written]


def ordered_loops(contraction: Contraction) -> list[str]:
    """The loops whose steps are taken one after the other, because steps read what others write; none mostly."""
    reads = own_reads(contraction)
    if not reads:
        return []
    free: set[str] = set()
    for place, index in enumerate(contraction.targets[0].indices):
        others = (*reads, *contraction.targets)
        if isinstance(index, Index) and all(
            len(item.indices) > place and item.indices[place] == index for item in others
        ):
            free.add(index.name)
    return [loop.index for loop in contraction.loops if loop.index not in free]


def find_recurrence(contraction: Contraction, names: list[str], space: LoopSpace) -> Recurrence | None:
    """The recurrence that a formula is, along its one ordered loop; None where it is something else."""
    target, reads = contraction.targets[0], own_reads(contraction)
    if len(names) != 1 or len(contraction.targets) > 1 or contraction.condition is not None:
        return None
    (name,) = names
    along = [place for place, index in enumerate(target.indices) if not isinstance(index, Index)]
    along = along or [place for place, index in enumerate(target.indices) if index == Index(name)]
    if len(along) != 1 or target.item is not None:
        return None
    (axis,) = along
    written = _shift(target, axis, name, space)
    rest = [index for place, index in enumerate(target.indices) if place != axis]
    order = tuple(index.name for index in rest if isinstance(index, Index))
    if written is None or written < 1 or len(order) != len(rest) or len(set(order)) != len(order):
        return None
    if name in order or any(_shift(item, axis, name, space) != written - 1 for item in reads):
        return None
    if len(order) + 1 != len(contraction.loops):
        return None
    loop = next(item for item in contraction.loops if item.index == name)
    return Recurrence(loop, axis, written, tuple(reads), order)


def _shift(element: Element, axis: int, name: str, space: LoopSpace) -> int | None:
    """How far behind a loop's index an element lies along a dimension."""
    index = element.indices[axis]
    # An index of one step would be left out of its own form.
    form = None if isinstance(index, Guard) else find_form(index, {**space.longest, name: 2})
    if form is None or form.terms != ((name, 1),):
        return None
    return form.constant


def by_formulas(scope: Scope, operation: Operation, instance: Instance) -> list[Held]:
    """The results of an operation by its formulas; Unsupported where it has none."""
    formulas = contractions(instance)
    if not formulas and not _is_empty(operation):
        raise Unsupported("ONNX has no such operation, and it has no formula that others could be made of")
    translation = FormulaTranslation(scope, operation, instance)
    for item in formulas:
        translation.run(item)
    return translation.results()


def _is_empty(operation: Operation) -> bool:
    shapes = [item.shape for output in operation.outputs for item in _items(output)]
    return all(0 in shape for shape in shapes)


def _items(argument: Argument) -> tuple[Tensor | Pack, ...]:
    if isinstance(argument, tuple):
        return argument
    return () if argument is None else (argument,)


class FormulaTranslation:
    """The tensors of one operation while its formulas are translated."""

    def __init__(self, scope: Scope, operation: Operation, instance: Instance) -> None:
        self.scope = scope
        self.operation = operation
        self.tensors: dict[str, FormulaTensor] = {}
        for (name, _), argument in zip(instance.inputs, operation.inputs, strict=True):
            if argument is not None:
                self.tensors[name] = _tensor_of(argument, scope.held(argument))
        for declared, argument in zip(instance.outputs, operation.outputs, strict=True):
            self.tensors[declared.name] = _tensor_of(argument, None)
        for declared, value in instance.constants:
            self.tensors[declared.name] = _constant_of(scope, declared, value)
        self.outputs = [item.name for item in instance.outputs]
        wide = any(item.element == F64 for item in self.tensors.values())
        self.real = F64 if wide else F32

    def run(self, contraction: Contraction) -> None:
        """Translate one contraction."""
        if any(loop.extent == 0 for loop in contraction.loops):
            self._start(contraction)
            return
        ordered, space = ordered_loops(contraction), LoopSpace(self.scope, contraction.loops)
        recurrence = find_recurrence(contraction, ordered, space) if ordered else None
        if recurrence is not None:
            self._run_recurrence(contraction, recurrence)
        elif ordered:
            self._run_ordered(contraction, ordered)
        else:
            self._run_at_once(contraction, space)

    def _start(self, contraction: Contraction) -> None:
        """What a contraction without steps leaves."""
        for target in contraction.targets:
            tensor = self.tensors[target.tensor]
            item = target.item if isinstance(target.item, int) else 0
            if tensor.values[item] is None:
                tensor.values[item] = self._filled(tensor, item, contraction.sign)

    def _filled(self, tensor: FormulaTensor, item: int, sign: str = "=") -> Value:
        from_sign = 0 if sign in ASSIGNMENTS else start_of(sign, tensor.element)
        return self.scope.filled(from_sign, tensor.element, tensor.shapes[item])

    def _whole(self, tensor: FormulaTensor, item: int) -> Value:
        """What an output holds so far, in its shape."""
        value = tensor.values[item]
        if value is None:
            return self._filled(tensor, item)
        if item in tensor.uniform and value.known is not None:
            tensor.uniform.discard(item)
            return self.scope.filled(value.known, tensor.element, tensor.shapes[item])
        return value

    def _run_at_once(self, contraction: Contraction, space: LoopSpace) -> None:
        """All steps at once."""
        reader = TermReader(space, self.tensors, self.real, speculative=is_speculative(contraction))
        reader.collect_guards(contraction)
        targets = [self._target(reader, item) for item in contraction.targets]
        masks = list(reader.masks)
        if contraction.condition is not None:
            masks.append(reader.compute(contraction.condition))
        mask = space.both(masks)
        if len(targets) > 1:
            # All targets are assigned as one: every value is read before the first of them changes.
            for value in contraction.values:
                reader.read(value)
        for element, (item, parts), value in zip(
            contraction.targets, targets, contraction.values, strict=True
        ):
            tensor = self.tensors[element.tensor]
            tensor.values[item] = Store(reader, element, contraction.sign, tensor, item, mask).run(
                value, parts
            )

    def _target(self, reader: TermReader, element: Element) -> tuple[int, list[Subscript]]:
        tensor = self.tensors[element.tensor]
        indices = element.indices
        item = 0
        if element.item is not None and tensor.is_stacked:
            indices = (element.item, *indices)
        elif element.item is not None:
            if not isinstance(element.item, int):
                raise Unsupported("the item of a pack that is assigned is computed")
            item = element.item
        shape = tensor.shapes[item]
        return item, [reader.subscript(index, extent) for index, extent in zip(indices, shape, strict=True)]

    # --- steps that read what others wrote ----------------------------------------------------------------------

    def _run_ordered(self, contraction: Contraction, names: Sequence[str]) -> None:
        """One step after the other along some loops, all others at once: a loop that carries the targets."""
        outer = self.scope
        written = list(dict.fromkeys(item.tensor for item in contraction.targets))
        places = [(name, item) for name in written for item in range(len(self.tensors[name].values))]
        before = [self._whole(self.tensors[name], item) for name, item in places]
        extents = {loop.index: loop.extent for loop in contraction.loops if loop.index in names}
        inner = outer.emitter.inner()
        scope = self.scope = Scope(inner, outer)
        take = inner.shared.names.take
        step, going = Value(I64, take(f"{inner.stem}/step")), Value(BOOL, take(f"{inner.stem}/going"))
        carried = [Value(value.element, take(f"{inner.stem}/carried")) for value in before]
        for (name, item), value in zip(places, carried, strict=True):
            self.tensors[name].values[item] = value
        fixed = _digits(scope, step, extents)
        self._run_at_once(contraction, LoopSpace(scope, contraction.loops, fixed))
        after = [self.tensors[name].values[item] for name, item in places]
        body = _loop_body(scope, step, going, carried, [item for item in after if item is not None])
        self.scope = outer
        total = outer.extent(volume_of(extents.values()))
        elements = [item.element for item in before]
        found = outer.emitter.add_all("Loop", (total, None, *before), elements, body=body)
        for (name, item), value in zip(places, found, strict=True):
            self.tensors[name].values[item] = value

    def _run_recurrence(self, contraction: Contraction, recurrence: Recurrence) -> None:
        """Slice after slice, each from the one before: a loop that carries one of them and gives all."""
        outer, (target,) = self.scope, contraction.targets
        tensor, axis = self.tensors[target.tensor], recurrence.axis
        whole = self._whole(tensor, 0)
        place = outer.emitter.number(recurrence.start - 1, I64)
        first = outer.emitter.add("Gather", (whole, place), tensor.element, axis=axis)
        inner = outer.emitter.inner()
        scope, take = Scope(inner, outer), inner.shared.names.take
        step, going = Value(I64, take(f"{inner.stem}/step")), Value(BOOL, take(f"{inner.stem}/going"))
        carried = Value(tensor.element, take(f"{inner.stem}/carried"))
        space = LoopSpace(scope, contraction.loops, {recurrence.loop.index: step})
        after = self._next_slice(contraction, recurrence, space, carried)
        body = _loop_body(scope, step, going, (carried,), (after, after))
        elements = (tensor.element, tensor.element)
        _, rows = outer.emitter.add_all(
            "Loop", (outer.extent(recurrence.loop.extent), None, first), elements, body=body
        )
        tensor.values[0] = self._joined(tensor, whole, rows, recurrence)

    def _next_slice(
        self, contraction: Contraction, recurrence: Recurrence, space: LoopSpace, carried: Value
    ) -> Value:
        """What a step writes, given what the one before it wrote."""
        order = [space.numbers[name] for name in recurrence.order]
        before = space.arrange(carried, order)
        speculative = is_speculative(contraction)
        reader = TermReader(space, self.tensors, self.real, speculative=speculative)
        for element in recurrence.reads:
            reader.take(element, before)
        reader.collect_guards(contraction)
        if space.both(reader.masks) is not None:
            raise Unsupported("a recurrence skips steps")
        axes = sorted(order)
        found = space.expand(reader.read(contraction.values[0]), axes)
        turned = space.transpose(found, [axes.index(item) for item in order])
        return cast(space.emitter, turned, self.tensors[contraction.targets[0].tensor].element)

    def _joined(self, tensor: FormulaTensor, whole: Value, rows: Value, recurrence: Recurrence) -> Value:
        """The slices of all steps, between what stood before and behind them."""
        emitter, axis, start = self.scope.emitter, recurrence.axis, recurrence.start
        rank = len(tensor.shapes[0])
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
        if axis:
            rows = emitter.add("Transpose", (rows,), tensor.element, perm=order)
        ends = [emitter.integers(item) for item in (0, start, axis)]
        parts = [emitter.add("Slice", (whole, *ends), tensor.element), rows]
        end = add(recurrence.loop.extent, start)
        if end != tensor.shapes[0][axis]:
            last = emitter.integers((1 << 63) - 1)
            rest = (self.scope.shape((end,)), last, emitter.integers(axis))
            parts.append(emitter.add("Slice", (whole, *rest), tensor.element))
        return emitter.add("Concat", parts, tensor.element, axis=axis)

    # --- results ------------------------------------------------------------------------------------------------

    def results(self) -> list[Held]:
        """What the outputs are; one that nothing was assigned to holds zeros."""
        found: list[Held] = []
        for name, argument in zip(self.outputs, self.operation.outputs, strict=True):
            tensor = self.tensors[name]
            values = tuple(self._whole(tensor, number) for number in range(len(tensor.values)))
            found.append(values if isinstance(argument, tuple) else values[0])
        return found


def _loop_body(
    scope: Scope, step: Value, going: Value, carried: Sequence[Value], after: Sequence[Value]
) -> Graph:
    """The body of a loop that takes a known number of steps."""
    emitter = scope.emitter
    still, *results = emitter.results([going, *after])
    inputs = [
        value_info(step, shape=()),
        value_info(going, shape=()),
        *(value_info(item) for item in carried),
    ]
    outputs = [value_info(still, shape=()), *(value_info(item) for item in results)]
    return emitter.graph(f"{emitter.stem}/body", inputs, outputs)


def _digits(scope: Scope, step: Value, extents: Mapping[str, Extent]) -> dict[str, Value]:
    """The indices of some loops in a step, the last one running fastest."""
    found: dict[str, Value] = {}
    rest = step
    for place, (name, extent) in enumerate(reversed(list(extents.items()))):
        if place == len(extents) - 1:
            found[name] = rest
        else:
            size = scope.extent(extent)
            found[name] = apply(scope.emitter, "%", (rest, size), I64)
            rest = scope.emitter.add("Div", (rest, size), I64)
    return found


# --- tensors --------------------------------------------------------------------------------------------------


def _tensor_of(argument: Argument, held: Held) -> FormulaTensor:
    if isinstance(argument, Pack):
        stacked = [held if isinstance(held, Value) else None]
        return FormulaTensor(_plain(argument.element), stacked, [(argument.size, *argument.shape)], True)
    items = argument if isinstance(argument, tuple) else (argument,)
    tensors = [item for item in items if isinstance(item, Tensor)]
    values: list[Value | None] = [None] * len(tensors)
    if held is not None:
        values = list(held) if isinstance(held, tuple) else [held]
    element = _plain(tensors[0].element) if tensors else F32
    return FormulaTensor(element, values, [item.shape for item in tensors])


def _plain(element: ElementType) -> ElementType:
    return DATA_ELEMENTS.get(element, element)


def _constant_of(scope: Scope, declared: Declared, value: Single | tuple[Single, ...]) -> FormulaTensor:
    element = _plain(declared.element)
    if declared.items is None:
        shape = declared.shape or ()
        return FormulaTensor(element, [scope.constant(element, shape, value)], [shape])
    singles = value if isinstance(value, tuple) else (value,) * len(declared.items)
    values: list[Value | None] = [
        scope.constant(element, shape, single) for shape, single in zip(declared.items, singles, strict=True)
    ]
    return FormulaTensor(element, values, list(declared.items))
