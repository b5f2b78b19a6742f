"""Copy forwarding: contiguous copies become no launch, and who reads the copy reads the original."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from lamella.kernels.launches import ELEMENT_BYTES, FILL, BufferView, Launch, LaunchList
from lamella.kernels.rewrite import walk
from lamella.lang.tensor.nodes import Function, If, Load, Memref, Store

ROW_BYTES = 64
"""What the start of a view is a multiple of, where it is to be one of another buffer."""


def forward_copies(whole: LaunchList, functions: Mapping[str, Function]) -> LaunchList:
    """The list without launches that copy memory in a row: later ones read where it was copied from."""
    outside = {view.buffer for view in (*whole.inputs.values(), *whole.outputs.values())}
    writers = Counter(launch.arguments[place].buffer for launch in whole.launches for place in launch.writes)
    last = {
        launch.arguments[place].buffer: number
        for number, launch in enumerate(whole.launches)
        for place in launch.writes
    }
    moved: dict[str, BufferView] = {}
    kept: list[Launch] = []
    for number, launch in enumerate(whole.launches):
        found = replace(launch, arguments=tuple(_moved(item, moved) for item in launch.arguments))
        if launch.kernel != FILL and _is_copy(functions[launch.kernel]):
            target, source = _copied(found, functions[launch.kernel])
            held = whole.buffers[target.buffer]
            whole_copy = target.reach == held.size and target.offset == 0 and not held.zeroed
            plain = target.buffer not in outside and writers[target.buffer] == 1 and not held.outside
            starts = source.offset * ELEMENT_BYTES[source.element] % ROW_BYTES == 0
            if whole_copy and plain and starts and last.get(source.buffer, -1) < number:
                moved[target.buffer] = source
                continue
        kept.append(found)
    return replace(whole, launches=tuple(kept))


def _moved(view: BufferView, moved: Mapping[str, BufferView]) -> BufferView:
    found = moved.get(view.buffer)
    if found is None:
        return view
    return replace(view, buffer=found.buffer, offset=found.offset + view.offset)


def _copied(launch: Launch, function: Function) -> tuple[BufferView, BufferView]:
    """What a copy writes, and what it reads."""
    (store,) = (item.instruction for item in walk(function.body) if isinstance(item.instruction, Store))
    names = [item.value.name for item in function.parameters]
    place = names.index(store.operand.name)
    return launch.arguments[place], launch.arguments[1 - place]


def _is_copy(function: Function) -> bool:
    """Whether a kernel of two arrays in a row stores each element at the place that it was loaded from."""
    types = [item.type for item in function.parameters]
    if len(types) != 2 or any(not isinstance(item, Memref) or item.order != 1 for item in types):
        return False
    nodes = list(walk(function.body))
    loads = [item for item in nodes if isinstance(item.instruction, Load)]
    stores = [item.instruction for item in nodes if isinstance(item.instruction, Store)]
    if len(loads) != 1 or len(stores) != 1 or types[0] != types[1]:
        return False
    if any(isinstance(item.instruction, If) for item in nodes):
        return False
    load, store = loads[0].instruction, stores[0]
    return (
        isinstance(load, Load)
        and store.value == loads[0].results[0]
        and load.indices == store.indices
        and load.operand != store.operand
        and not store.flag
    )
