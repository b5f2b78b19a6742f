"""In-place updates of states: launches write the next value over the last one, where nobody can see the difference.

    next[i] = f(state[i], …)        becomes        state[i] = f(state[i], …)

A launch list is all that this looks at: a kernel may overwrite what it reads where each of its steps reads and writes
the same element, and a buffer may be overwritten where no later launch reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from lamella.kernels.build import regions
from lamella.kernels.launches import FILL, BufferView, Launch, LaunchList
from lamella.kernels.rewrite import used_values
from lamella.lang.tensor.nodes import Function, Load, Region, Store, Value


def update_in_place(
    whole: LaunchList, updates: Mapping[str, str], kernel: Callable[[str], Function]
) -> LaunchList:
    """The list whose launches overwrite states: `updates` has the output that is the next value of an input.

    What is overwritten is no output any more. A launch waits for the last one that reads what it overwrites, and for
    the last one that may find something wrong: a run that fails leaves states as they were.
    """
    search = _Overwriting(whole, kernel)
    taken = {value: state for state, value in updates.items() if search.takes(state, value)}
    if not taken:
        return whole
    same = {whole.outputs[value].buffer: whole.inputs[state].buffer for value, state in taken.items()}
    launches = tuple(_renamed(item, same) for item in search.ordered())
    return replace(
        whole,
        buffers={name: item for name, item in whole.buffers.items() if name not in same},
        launches=launches,
        outputs={name: view for name, view in whole.outputs.items() if name not in taken},
        overwritten=whole.overwritten | set(taken.values()),
    )


def _renamed(launch: Launch, same: Mapping[str, str]) -> Launch:
    views = (replace(view, buffer=same.get(view.buffer, view.buffer)) for view in launch.arguments)
    return replace(launch, arguments=tuple(views))


class _Overwriting:
    """Finds what can be overwritten, and which launches wait for that."""

    def __init__(self, whole: LaunchList, kernel: Callable[[str], Function]) -> None:
        self.whole, self.kernel = whole, kernel
        self.written = [
            frozenset(launch.arguments[place].buffer for place in launch.writes) for launch in whole.launches
        ]
        """The buffers that each launch writes."""
        self.changed = frozenset(buffer for written in self.written for buffer in written)
        """The buffers that any launch writes: who reads others waits for nobody."""
        self.outside = Counter(view.buffer for view in (*whole.inputs.values(), *whole.outputs.values()))
        self.touching: dict[str, list[int]] = {}
        for number, launch in enumerate(whole.launches):
            for buffer in dict.fromkeys(item.buffer for item in launch.arguments):
                self.touching.setdefault(buffer, []).append(number)
        self.failing = max(
            (number for number, item in enumerate(whole.launches) if item.has_fault), default=-1
        )
        """The last launch that may find something wrong."""
        self.waits: dict[int, int] = {}
        """The launch that another waits for."""
        self.writers: dict[str, int] = {}
        """The launch that overwrites a buffer."""

    def takes(self, state: str, value: str) -> bool:
        """Whether the next value of a state may overwrite the last one."""
        old, new = self.whole.inputs.get(state), self.whole.outputs.get(value)
        if old is None or new is None or self.outside[old.buffer] != 1 or self.outside[new.buffer] != 1:
            return False
        makers = self.touching.get(new.buffer, [])
        # What others read of the new value would have to move too.
        if len(makers) != 1 or makers[0] not in self.touching.get(old.buffer, []):
            return False
        number = makers[0]
        readers = self.touching[old.buffer]
        if self.whole.launches[number].has_fault or any(
            self._is_moved(item) for item in readers if item != number
        ):
            return False
        last = max(*readers, self.failing, self.waits.get(number, number))
        if last > number and not self._can_wait(number, last):
            return False
        if not _is_elementwise(self.whole.launches[number], old.buffer, new.buffer, self.kernel):
            return False
        self.waits[number] = last
        self.writers[old.buffer] = number
        return True

    def _is_moved(self, number: int) -> bool:
        return self.waits.get(number, number) > number

    def _can_wait(self, number: int, until: int) -> bool:
        """Whether a launch may run behind a later one: none on the way writes what it reads or reads what it writes."""
        launch = self.whole.launches[number]
        mine = self.written[number]
        # Who overwrites something waits for all that read it, where they stood when that was decided.
        if any(self.writers.get(item.buffer, number) != number for item in launch.arguments):
            return False
        for buffer in self.changed.intersection(item.buffer for item in launch.arguments):
            for other in self.touching[buffer]:
                if number < other <= until and (buffer in mine or buffer in self.written[other]):
                    return False
        return True

    def ordered(self) -> list[Launch]:
        """The launches, each behind those that it waits for."""
        numbers = range(len(self.whole.launches))
        # A launch that waits comes behind the one that it waits for, which has the same first number.
        order = sorted(numbers, key=lambda number: (self.waits.get(number, number), self._is_moved(number)))
        return [self.whole.launches[number] for number in order]


def _is_elementwise(launch: Launch, old: str, new: str, kernel: Callable[[str], Function]) -> bool:
    """Whether a launch reads a buffer only where it writes the same element of another one afterwards."""
    reading = [number for number, item in enumerate(launch.arguments) if item.buffer == old]
    writing = [number for number, item in enumerate(launch.arguments) if item.buffer == new]
    if launch.kernel == FILL or len(reading) != 1 or len(writing) != 1 or reading[0] in launch.writes:
        return False
    source, target = launch.arguments[reading[0]], launch.arguments[writing[0]]
    if _place(source) != _place(target):
        return False
    function = kernel(launch.kernel)
    names = [item.value.name for item in function.parameters]
    return _Elementwise(names[reading[0]], names[writing[0]]).holds(function.body)


def _place(view: BufferView) -> tuple[object, ...]:
    return view.element, view.shape, view.strides, view.offset


class _Elementwise:
    """The proof for a kernel: what reads an element of one memref stands in one block before what writes it.

    Every element is written by one step of one block, because kernels compute each element of a result once. A step
    that reads an element writes it too, so no other step can have written it before.
    """

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target

    def holds(self, region: Region) -> bool:
        """Whether it is so in a region and in those inside it."""
        read: set[tuple[Value, ...]] = set()
        written: set[tuple[Value, ...]] = set()
        for statement in region.statements:
            instruction = statement.instruction
            if not all(map(self.holds, regions(instruction))):
                return False
            used = {item.name for item in used_values(instruction)}
            if self.source not in used and self.target not in used:
                continue
            if isinstance(instruction, Load) and instruction.operand.name == self.source:
                read.add(instruction.indices)
                # What was written already cannot be read any more.
                if written:
                    return False
            elif (
                isinstance(instruction, Store)
                and instruction.operand.name == self.target
                and instruction.value.name not in (self.source, self.target)
            ):
                written.add(instruction.indices)
            else:
                return False
        return len(read) <= 1 and len(written) <= 1 and read <= written
