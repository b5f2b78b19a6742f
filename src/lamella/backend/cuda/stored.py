"""Cached compiled graphs of a GPU between processes: launch lists with proved launches, and the keys of their code.

As on the processor nothing that is read is a program which reading it would run, and what is kept was found by a key of
all that it was made from.
"""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence

from lamella.backend.cpu.jit import KeptObject
from lamella.backend.cpu.run.stored import (
    MOST_CONSTANTS,
    LaunchWriter,
    StoredGraph,
    StoredLaunches,
    dtype_name,
    encode_constants,
    read_constants,
    read_object,
    read_output,
    read_placement,
)
from lamella.backend.cuda.binaries import decode_program
from lamella.backend.cuda.device_code import DeviceCode, device_code
from lamella.backend.cuda.lists import CudaList, MakeChoice
from lamella.backend.cuda.memory import DeviceMachine, SharedDeviceMemory
from lamella.backend.executor.segments import OnceResult, OnceResults, Segment
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Malformed, Unsupported
from lamella.base.gc import gc_paused
from lamella.base.jsontext import decode_json
from lamella.base.limits import Limits
from lamella.base.placement import OperationPlacement
from lamella.base.records import dataclass
from lamella.graph.nodes import Tensor
from lamella.kernels.launch_json import as_list, as_numbers, as_object, as_text, decode_list, encode_list
from lamella.kernels.launches import LaunchList

# --- writing ---------------------------------------------------------------------------------------------------


def encode_segment(segment: Segment, placement: Sequence[OperationPlacement]) -> bytes | None:
    """A graph that is one segment as bytes; None where a part of it is kept nowhere."""
    lists = [segment.each, *(item.launches for item in segment.once)]
    lists += [] if segment.restore is None else [segment.restore]
    own = [item for item in lists if isinstance(item, CudaList)]
    constants = [segment.constants, *(item.constants for item in segment.once)]
    size = sum(array.nbytes for row in constants for array in row.values())
    if len(own) < len(lists) or size > MOST_CONSTANTS or segment.parts > 1:
        return None
    launches = LaunchWriter()
    written = [{**encode_list(item.whole), "prepared": launches.add_all(item.prepared)} for item in own]
    objects = [item for item in launches.objects if item is not None]
    if len(objects) < len(launches.objects):
        return None
    text = {
        "lists": written,
        "objects": [[item.key.hex(), item.start] for item in objects],
        "blocks": _blocks(own, objects),
        "prepared": list(launches.found.values()),
        "constants": [encode_constants(row) for row in constants],
        "outputs": {
            name: [list(shape), dtype_name(dtype)] for name, (shape, dtype) in segment.outputs.items()
        },
        "placement": [list(item) for item in placement],
        "inputs": list(segment.inputs),
        "fixed": list(segment.fixed),
        "states": {name: list(item) for name, item in segment.states.items()},
        "updated": segment.updated,
        "once": [item.key for item in segment.once],
    }
    return json.dumps(text, separators=(",", ":")).encode()


def _blocks(lists: Sequence[CudaList], objects: Sequence[KeptObject]) -> list[dict[str, list[int]]]:
    """For each object the sizes of work-groups of the kernels that lists launch, by symbol."""
    found: dict[KeptObject, dict[str, list[int]]] = {item: {} for item in objects}
    for made in (item for one in lists for item in one.prepared if item is not None):
        code = made.code
        if isinstance(code, DeviceCode) and code.kept is not None:
            found[code.kept][code.symbol(made.address)] = list(code.kernels[made.address].block)
    return [found[item] for item in objects]


# --- reading ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredMachine(DeviceMachine):
    """The machine that runs cached launch lists."""

    source: StoredLaunches
    room: SharedDeviceMemory
    choose: MakeChoice | None

    def compile(self, whole: LaunchList, once: bool = False) -> CudaList:
        """Make a list runnable."""
        return CudaList(self.source, whole, self.room, self.choose, once)


@gc_paused()
def decode_segment(
    content: bytes,
    tensors: Mapping[str, Tensor],
    limits: Limits,
    room: SharedDeviceMemory,
    results: OnceResults,
    choose: MakeChoice | None = None,
) -> StoredGraph | None:
    """A graph of bytes that were kept, whose tensors of the outside are given by name; None where they are none."""
    try:
        found = as_object(decode_json(content, None))
        rows = as_list(found.get("lists"))
        lists = [decode_list(item, limits.max_total_bytes) for item in rows]
        blocks = [_read_blocks(item) for item in as_list(found.get("blocks"))]

        def load(number: int, kept: KeptObject, symbols: Sequence[str]) -> DeviceCode:
            built = decode_program(read_object(kept), kept.key)
            if number >= len(blocks) or not set(symbols) <= blocks[number].keys() & built.contents.keys():
                raise Malformed("a kernel has no code")
            return device_code(built, {item: blocks[number][item] for item in symbols}, {})

        launches = StoredLaunches(found, limits, 1, load)
        for whole, item in zip(lists, rows, strict=True):
            launches.know(whole, as_list(as_object(item).get("prepared"), len(whole.launches)))
        segment = _read_segment(found, lists, StoredMachine(launches, room, choose), tensors, results)
        return StoredGraph(segment, read_placement(found))
    except (Malformed, Base64Error, LamellaError, Unsupported):
        return None


def _read_blocks(value: object) -> dict[str, tuple[int, int]]:
    found = {name: as_numbers(as_list(item, 2), 1) for name, item in as_object(value).items()}
    return {name: (item[0], item[1]) for name, item in found.items()}


def _read_segment(
    found: Mapping[str, object],
    lists: Sequence[LaunchList],
    machine: StoredMachine,
    tensors: Mapping[str, Tensor],
    results: OnceResults,
) -> Segment:
    keys = [as_text(item) for item in as_list(found.get("once"))]
    states = {name: as_list(item, 2) for name, item in as_object(found.get("states")).items()}
    constants = [read_constants(item) for item in as_list(found.get("constants"), len(keys) + 1)]
    if len(lists) != 1 + len(keys) + bool(states):
        raise Malformed("there are other lists")
    names = [as_text(item) for item in as_list(found.get("inputs"))]
    fixed = tuple(as_text(item) for item in as_list(found.get("fixed")))
    if not tensors.keys() >= {*names, *fixed}:
        raise Malformed("there is no tensor of that name")
    outputs = {name: read_output(item) for name, item in as_object(found.get("outputs")).items()}
    segment = Segment(
        (), {name: tensors[name] for name in names}, outputs, machine, constants[0], fixed=fixed
    )
    segment.each = machine.compile(lists[0])
    rows = zip(keys, lists[1:], constants[1:], strict=False)
    segment.once = [_read_once(key, whole, own, machine, results) for key, whole, own in rows]
    segment.states = {name: (as_text(value), as_text(undo)) for name, (value, undo) in states.items()}
    segment.updated = {name: as_text(item) for name, item in as_object(found.get("updated")).items()}
    segment.restore = machine.compile(lists[-1]) if states else None
    return segment


def _read_once(
    key: str, whole: LaunchList, constants: Mapping[str, Array], machine: StoredMachine, results: OnceResults
) -> OnceResult:
    """The result of launches that run once; that of equal ones for other extents, where there is one."""
    found = results.get(key)
    if found is None:
        kept = {name: machine.keep(whole.buffers[view.buffer].size) for name, view in whole.outputs.items()}
        inputs = tuple(name for name in whole.inputs if name not in constants)
        found = results[key] = OnceResult(machine.compile(whole, once=True), inputs, kept, constants, key)
    return found
