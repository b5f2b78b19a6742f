"""From operations with kernels to a launch list: buffers, aliases, constants that are hoisted, one arena.

A copy that only renames memory becomes an alias, perhaps of a part; what kernels do not write whole is filled first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from lamella.base.origin import Origin
from lamella.base.records import dataclass
from lamella.graph.passes.recompute import OFFLOAD
from lamella.kernels.launches import FILL, Buffer, BufferView, Launch, LaunchList
from lamella.kernels.nodes import KernelCall, KernelOperand, find_temporaries
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes.types import packed_stride

OperandKey: TypeAlias = tuple[str, int | None]
"""A tensor of an operation by the name that its operator gives it, with its place in a pack."""


@dataclass(frozen=True, slots=True)
class ScheduledOperation:
    """An operation of known shapes: its kernels, and the tensor of the graph that each of their operands is."""

    operator: str
    calls: tuple[KernelCall, ...]
    tensors: Mapping[OperandKey, str]
    outputs: tuple[str, ...]
    origin: Origin | None = None
    state: str = ""
    """The tensor whose memory the one output takes over, where it does."""


@dataclass(slots=True)
class Scheduler:
    """A launch list while it is written.

    `sizes` are the bytes of the tensors; `writes` tells for each kernel which of its parameters it may write;
    `padded` are the tensors that have a halo, equal numbers for halos at the same places.
    """

    sizes: Mapping[str, int]
    writes: Mapping[str, Sequence[bool]]
    padded: Mapping[str, int] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """The buffer of each tensor that is there by now."""
    shifts: dict[str, int] = field(default_factory=dict)
    """Where tensors that are parts of others begin there, in bytes."""

    def give(self, tensor: str) -> None:
        """Take a tensor from outside."""
        self.buffers[tensor] = Buffer(self.sizes[tensor])
        self.places[tensor] = tensor

    def add(self, operation: ScheduledOperation) -> None:
        """Launch the kernels of an operation; Unsupported where two that differ share a temporary's name."""
        find_temporaries(operation.calls)
        if operation.state:
            self.places[operation.outputs[0]] = self.places[operation.state]
        for call in operation.calls:
            self._launch(operation, call)
        for tensor in operation.outputs:
            if tensor not in self.places:
                self._begin(operation, tensor, self.sizes[tensor])

    def view(self, tensor: str) -> BufferView:
        """All of a tensor, as one row of bytes."""
        return _bytes_of(self.places[tensor], self.sizes[tensor], self.shifts.get(tensor, 0))

    def finish(self, inputs: Iterable[str], outputs: Iterable[str]) -> LaunchList:
        """The list, with the tensors that go in and those that come out."""
        return LaunchList(
            dict(self.buffers),
            tuple(self.launches),
            {name: self.view(name) for name in inputs},
            {name: self.view(name) for name in outputs},
        )

    def _launch(self, operation: ScheduledOperation, call: KernelCall) -> None:
        names = [self._tensor(operation, item) for item in call.operands]
        if call.renames and names[0] not in self.places and operation.operator != OFFLOAD:
            self.places[names[0]] = self.places[names[1]]
            shift = call.shift * BYTES[call.operands[0].element]
            self.shifts[names[0]] = self.shifts.get(names[1], 0) + shift
            return
        writes = tuple(place for place, _ in enumerate(names) if self.writes[call.kernel][place])
        for place in writes:
            if names[place] not in self.places:
                operand = call.operands[place]
                self._begin(operation, names[place], self._size(operand, names[place]), operand.whole)
        views = tuple(self._view(name, item) for name, item in zip(names, call.operands, strict=True))
        self.launches.append(
            Launch(
                call.kernel,
                views,
                writes,
                call.groups,
                call.has_fault,
                operation.operator,
                operation.origin,
            )
        )

    def _begin(self, operation: ScheduledOperation, tensor: str, size: int, whole: bool = False) -> None:
        """Make a buffer for a tensor, filled where its kernels do not write all of it."""
        self.buffers[tensor] = Buffer(size, self.padded.get(tensor, 0), operation.operator == OFFLOAD)
        self.places[tensor] = tensor
        if not whole and size:
            view = _bytes_of(tensor, size)
            self.launches.append(
                Launch(FILL, (view,), (0,), operator=operation.operator, origin=operation.origin)
            )

    def _tensor(self, operation: ScheduledOperation, operand: KernelOperand) -> str:
        if operand.is_temporary:
            return name_temporary(operation.outputs, operand.name)
        return operation.tensors[operand.name, operand.item]

    def _size(self, operand: KernelOperand, tensor: str) -> int:
        return self.sizes.get(tensor, BYTES[operand.element] * operand.reach)

    def _view(self, tensor: str, operand: KernelOperand) -> BufferView:
        strides = operand.strides or tuple(stride or 0 for stride in packed_stride(operand.shape))
        offset = operand.offset + self.shifts.get(tensor, 0) // BYTES[operand.element]
        return BufferView(self.places[tensor], operand.element, operand.shape, strides, offset)


def name_temporary(outputs: Sequence[str], name: str) -> str:
    """The tensor that a temporary of an operation is: no name of a graph is a path of two, so that none meet."""
    return f"{outputs[0] if outputs else ''}\n{name}"


def _bytes_of(buffer: str, size: int, start: int = 0) -> BufferView:
    return BufferView(buffer, "i8", (size,), (1,), start)


# --- what runs once ------------------------------------------------------------------------------------------


def hoist(whole: LaunchList, fixed: Collection[str]) -> tuple[LaunchList, LaunchList]:
    """The launches that depend on fixed inputs alone, and the others, which take what those leave as inputs."""
    changing = {view.buffer for name, view in whole.inputs.items() if name not in fixed}
    touched = [
        (
            {item.buffer for item in launch.arguments},
            {launch.arguments[place].buffer for place in launch.writes},
        )
        for launch in whole.launches
    ]
    grows = True
    while grows:
        grows = False
        for used, written in touched:
            # A buffer that one launch changes in each call is not fixed, whoever else writes it.
            if not used.isdisjoint(changing) and not written <= changing:
                changing |= written
                grows = True
    is_once = [used.isdisjoint(changing) for used, _ in touched]
    once = [launch for launch, kept in zip(whole.launches, is_once, strict=True) if kept]
    each = [launch for launch, kept in zip(whole.launches, is_once, strict=True) if not kept]
    once, same = _share(once, {view.buffer for view in (*whole.inputs.values(), *whole.outputs.values())})
    each = [_renamed(launch, same) for launch in each]
    made = {launch.arguments[place].buffer for launch in once for place in launch.writes}
    needed = {item.buffer for launch in each for item in launch.arguments}
    needed |= {view.buffer for view in whole.outputs.values()}
    kept_views = {name: _bytes_of(name, whole.buffers[name].size) for name in sorted(made & needed)}
    first = _pruned(LaunchList(whole.buffers, tuple(once), whole.inputs, kept_views))
    second = replace(whole, launches=tuple(each), inputs={**whole.inputs, **kept_views})
    return first, _pruned(second)


def _share(launches: Sequence[Launch], outside: Collection[str]) -> tuple[list[Launch], dict[str, str]]:
    """The launches without those that compute what another has computed, and the buffers that stand for theirs.

    A weight that many operations read is packed once: each step of an unrolled loop reads the same memory.
    """
    writers = Counter(launch.arguments[place].buffer for launch in launches for place in launch.writes)
    same: dict[str, str] = {}
    known: dict[object, Launch] = {}
    kept: list[Launch] = []
    for launch in launches:
        found = _renamed(launch, same)
        written = [found.arguments[place].buffer for place in found.writes]
        if not any(writers[name] > 1 or name in outside for name in written):
            places = tuple(
                replace(item, buffer="") if place in found.writes else item
                for place, item in enumerate(found.arguments)
            )
            first = known.setdefault((found.kernel, places, found.groups), found)
            if first is not found:
                for place in found.writes:
                    same[found.arguments[place].buffer] = first.arguments[place].buffer
                continue
        kept.append(found)
    return kept, same


def _renamed(launch: Launch, same: Mapping[str, str]) -> Launch:
    if not any(item.buffer in same for item in launch.arguments):
        return launch
    views = tuple(replace(item, buffer=same.get(item.buffer, item.buffer)) for item in launch.arguments)
    return replace(launch, arguments=views)


def _pruned(whole: LaunchList) -> LaunchList:
    """The list with the buffers that it uses, and the inputs that it reads."""
    used = {item.buffer for launch in whole.launches for item in launch.arguments}
    used |= {view.buffer for view in whole.outputs.values()}
    return replace(
        whole,
        buffers={name: buffer for name, buffer in whole.buffers.items() if name in used},
        inputs={name: view for name, view in whole.inputs.items() if view.buffer in used},
    )


def split(whole: LaunchList) -> list[LaunchList]:
    """The parts of a list that have nothing to do with each other: no launch of one touches what another writes."""
    group_of: dict[str, int] = {}
    groups: dict[int, list[Launch]] = {}
    written = {launch.arguments[place].buffer for launch in whole.launches for place in launch.writes}
    for number, launch in enumerate(whole.launches):
        touched = {item.buffer for item in launch.arguments} & written
        joined = sorted({group_of[name] for name in touched if name in group_of})
        groups[number] = [item for other in joined for item in groups.pop(other)] + [launch]
        group_of |= {name: number for name, other in group_of.items() if other in joined}
        group_of |= dict.fromkeys(touched, number)
    order = {id(launch): number for number, launch in enumerate(whole.launches)}
    found = []
    for number, launches in groups.items():
        outputs = {name: view for name, view in whole.outputs.items() if group_of.get(view.buffer) == number}
        row = tuple(sorted(launches, key=lambda item: order[id(item)]))
        found.append(_pruned(LaunchList(whole.buffers, row, whole.inputs, outputs)))
    return found
