"""Launches that write the next value of a state into the memory of the last one, where nobody can see the difference.

    next[i] = f(state[i], …)        becomes        state[i] = f(state[i], …)

A launch list is all that this looks at: a kernel may overwrite what it reads where each of its steps reads and writes
the same element, and a buffer may be overwritten where no later launch reads it.
"""

from __future__ import annotations

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

    What is overwritten is no output any more. A run that fails has to fail before the first launch that overwrites.
    """
    taken: dict[str, str] = {}
    for state, value in updates.items():
        if state in whole.inputs and value in whole.outputs and _can_overwrite(whole, state, value, kernel):
            taken[value] = state
    if not taken:
        return whole
    same = {whole.outputs[value].buffer: whole.inputs[state].buffer for value, state in taken.items()}
    launches = tuple(
        replace(
            item,
            arguments=tuple(
                replace(view, buffer=same.get(view.buffer, view.buffer)) for view in item.arguments
            ),
        )
        for item in whole.launches
    )
    outputs = {name: view for name, view in whole.outputs.items() if name not in taken}
    buffers = {name: item for name, item in whole.buffers.items() if name not in same}
    return replace(
        whole,
        buffers=buffers,
        launches=launches,
        outputs=outputs,
        overwritten=whole.overwritten | set(taken.values()),
    )


def _can_overwrite(whole: LaunchList, state: str, value: str, kernel: Callable[[str], Function]) -> bool:
    old, new = whole.inputs[state].buffer, whole.outputs[value].buffer
    shared = [view.buffer for view in (*whole.inputs.values(), *whole.outputs.values())]
    if old == new or shared.count(old) != 1 or shared.count(new) != 1:
        return False
    touching = [number for number, item in enumerate(whole.launches) if _touches(item, new)]
    if not touching:
        return False
    first = whole.launches[touching[0]]
    # Whoever reads the new value comes behind; whoever reads the old one must come before.
    if any(_touches(item, old) for item in whole.launches[touching[0] + 1 :]):
        return False
    if any(new in _written(item) for item in whole.launches[touching[0] + 1 :]):
        return False
    return _is_elementwise(first, old, new, kernel)


def _touches(launch: Launch, buffer: str) -> bool:
    return any(item.buffer == buffer for item in launch.arguments)


def _written(launch: Launch) -> set[str]:
    return {launch.arguments[place].buffer for place in launch.writes}


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
