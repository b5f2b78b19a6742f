"""Compiled graphs between processes: the launch lists of a graph that is one segment, with launches that are proved.

The text that is kept names machine code by the keys of the object cache, and holds everything else: buffers, views,
the slots of each launch, constants. Nothing of it is a program that reading it would run.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lamella.backend.cpu.jit import KeptObject, LoadedCode, load_all, open_cache, unpack_objects
from lamella.backend.cpu.run.lists import NativeList, NativeMachine
from lamella.backend.cpu.run.memory import SharedArena
from lamella.backend.cpu.run.pool import ListWalker, checked_threads, count_threads
from lamella.backend.cpu.run.prepared import ArraySlot, PreparedLaunch, address_of
from lamella.backend.executor.segments import OnceResult, Segment, TensorShape
from lamella.base.arrays import Array, element_type_of, numpy_dtype
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import find as find_type
from lamella.base.errors import Malformed
from lamella.base.gc import gc_paused
from lamella.base.jsontext import decode_json
from lamella.base.limits import Limits
from lamella.base.placement import OperationPlacement
from lamella.kernels.launch_json import (
    as_list,
    as_number,
    as_numbers,
    as_object,
    as_text,
    decode_list,
    encode_list,
)
from lamella.kernels.launches import FILL, Launch, LaunchList

MOST_CONSTANTS = 1 << 26
"""Graphs with more bytes of constants are not kept: they would be most of the cache."""


class StoredGraph(NamedTuple):
    """What is kept of a compiled graph: the segment that it is, and where its operations run."""

    segment: Segment
    placement: list[OperationPlacement]


# --- writing ---------------------------------------------------------------------------------------------------


def encode_graph(segment: Segment, placement: Sequence[OperationPlacement]) -> bytes | None:
    """A compiled graph as bytes; None where a part of it is kept nowhere."""
    lists = [segment.each, *(item.launches for item in segment.once)]
    native = [item for item in lists if isinstance(item, NativeList)]
    constants = [segment.constants, *(item.constants for item in segment.once)]
    size = sum(array.nbytes for row in constants for array in row.values())
    if len(native) < len(lists) or size > MOST_CONSTANTS:
        return None
    launches = LaunchWriter()
    written = [{**encode_list(item.whole), "prepared": launches.add_all(item.prepared)} for item in native]
    objects = [item for item in launches.objects if item is not None]
    if len(objects) < len(launches.objects):
        return None
    text = {
        "lists": written,
        "objects": [[item.key.hex(), item.start] for item in objects],
        "prepared": list(launches.found.values()),
        "constants": [encode_constants(row) for row in constants],
        "outputs": {
            name: [list(shape), dtype_name(dtype)] for name, (shape, dtype) in segment.outputs.items()
        },
        "placement": [list(item) for item in placement],
        "batch": [segment.parts, sorted(segment.batched)],
    }
    return json.dumps(text, separators=(",", ":")).encode()


class LaunchWriter:
    """Writes launches once that have the same code and slots, and collects the objects that they need."""

    def __init__(self) -> None:
        self.objects: dict[KeptObject | None, int] = {}
        self.found: dict[str, list[object]] = {}
        self._places: dict[str, int] = {}

    def add_all(self, prepared: Sequence[PreparedLaunch | None]) -> list[int | None]:
        """Which of the written launches each launch of a list is."""
        return [None if item is None else self._add(item) for item in prepared]

    def _add(self, made: PreparedLaunch) -> int:
        number = self.objects.setdefault(made.code.kept, len(self.objects))
        words = np.frombuffer(made.slots, np.int64).copy()
        words[[item.slot for item in made.places]] = 0  # addresses of this process
        tests = None if made.tests is None else len(made.tests)
        row: list[object] = [number, made.code.symbol(made.address), made.local_bytes]
        row += [words.tolist(), list(map(list, made.places)), tests]
        text = json.dumps(row)
        self.found.setdefault(text, row)
        return self._places.setdefault(text, len(self._places))


def encode_constants(constants: Mapping[str, Array]) -> dict[str, object]:
    """Constants as a value of JSON."""
    return {
        name: [dtype_name(array.dtype), list(array.shape), b64encode(array.tobytes()).decode()]
        for name, array in constants.items()
    }


def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """The name of the element type that an array holds."""
    return str(element_type_of(dtype))


# --- reading ---------------------------------------------------------------------------------------------------


@gc_paused()
def decode_graph(content: bytes, limits: Limits, threads: int | None = None) -> StoredGraph | None:
    """A compiled graph of bytes that were kept; None where they are no such thing, or its code is gone."""
    try:
        # No depth is asked for: whoever reads the value knows what stands where, and goes no deeper.
        found = as_object(decode_json(content, None))
        lists = [decode_list(item, limits.max_total_bytes) for item in as_list(found.get("lists"))]
        launches = StoredLaunches(found, limits, threads, _load)
        for whole, item in zip(lists, as_list(found.get("lists")), strict=True):
            launches.know(whole, as_list(as_object(item).get("prepared"), len(whole.launches)))
        segment = _read_segment(found, lists, NativeMachine(launches, SharedArena()))
        return StoredGraph(segment, read_placement(found))
    except (Malformed, Base64Error, LamellaError):
        return None


class StoredLaunches:
    """Launches that were proved when they were written: code that is loaded, slots, and where addresses go."""

    def __init__(
        self,
        found: Mapping[str, object],
        limits: Limits,
        threads: int | None,
        load: Callable[[int, KeptObject, Sequence[str]], LoadedCode],
    ) -> None:
        """`load` brings an object, by its number, with some of its symbols."""
        self._threads = count_threads() if threads is None else checked_threads(threads)
        rows = [StoredLaunch.read(item) for item in as_list(found.get("prepared"))]
        kept = [_read_kept(item) for item in as_list(found.get("objects"))]
        if any(row.number >= len(kept) or row.local_bytes > limits.max_total_bytes for row in rows):
            raise Malformed("a launch has no code")
        self._rows = rows
        self._codes = [
            load(number, item, sorted({row.symbol for row in rows if row.number == number}))
            for number, item in enumerate(kept)
        ]
        self._numbers: dict[int, int] = {}
        """Which row each launch is, by identity: lists keep their launches alive."""

    @cached_property
    def walker(self) -> ListWalker:
        """What runs launch lists."""
        return ListWalker(self._threads)

    def know(self, whole: LaunchList, numbers: Sequence[object]) -> None:
        """Which rows the launches of a list are."""
        for launch, number in zip(whole.launches, numbers, strict=True):
            if (launch.kernel == FILL) != (number is None):
                raise Malformed("a launch is not prepared")
            if number is not None:
                place = as_number(number)
                if place >= len(self._rows) or not self._rows[place].fits(launch):
                    raise Malformed("a launch is not prepared")
                self._numbers[id(launch)] = place

    def prepare_all(
        self, launches: Sequence[Launch], faults: Array
    ) -> Iterator[tuple[Launch, PreparedLaunch | None]]:
        """Each launch with its code and slots."""
        for number, launch in enumerate(launches):
            if launch.kernel == FILL:
                yield launch, None
            else:
                row = self._rows[self._numbers[id(launch)]]
                yield launch, row.prepare(self._codes[row.number], launch, faults[number : number + 1])


class StoredLaunch(NamedTuple):
    """A launch as it is kept: which object, its symbol, local memory, slots, where addresses go, how many tests."""

    number: int
    symbol: str
    local_bytes: int
    slots: tuple[int, ...]
    places: tuple[ArraySlot, ...]
    tests: int | None

    @classmethod
    def read(cls, value: object) -> StoredLaunch:
        """The launch of a value of JSON."""
        number, symbol, local_bytes, slots, places, tests = as_list(value, 6)
        words = as_numbers(slots, -(1 << 63))
        found = tuple(ArraySlot(*as_numbers(as_list(item, 3))) for item in as_list(places))
        if any(item.slot >= len(words) or not item.alignment for item in found):
            raise Malformed("a launch has an address without a slot")
        size = None if tests is None else as_number(tests, 1)
        return cls(as_number(number), as_text(symbol), as_number(local_bytes), words, found, size)

    def fits(self, launch: Launch) -> bool:
        """Whether there is an address for each argument: its views, the fault, the tests."""
        wanted = len(launch.arguments) + launch.has_fault
        places = sorted(item.place for item in self.places)
        return places[:wanted] == list(range(wanted)) and len(places) == wanted + (self.tests is not None)

    def prepare(self, code: LoadedCode, launch: Launch, fault: Array) -> PreparedLaunch:
        """The launch in this process; addresses of its views are left open."""
        words = np.array(self.slots, np.int64)
        tests = None if self.tests is None else np.zeros(self.tests, np.int64)
        count = len(launch.arguments)
        for item in self.places:
            if item.place == count and launch.has_fault:
                words[item.slot] = address_of(fault)
            elif item.place >= count and tests is not None:
                words[item.slot] = address_of(tests)
        address = code.address(self.symbol)
        return PreparedLaunch(code, address, self.local_bytes, words.tobytes(), self.places, tests)


def _read_kept(value: object) -> KeptObject:
    key, start = as_list(value, 2)
    try:
        return KeptObject(bytes.fromhex(as_text(key)), as_number(start))
    except ValueError:
        raise Malformed("a key belongs here") from None


def _load(number: int, kept: KeptObject, symbols: Sequence[str]) -> LoadedCode:
    """Machine code from the object cache."""
    return load_all(unpack_objects(read_object(kept)), symbols, kept)


def read_object(kept: KeptObject) -> bytes:
    """What the object cache holds; Malformed where it is gone."""
    store = open_cache()
    content = None if store is None else store.get(kept.key)
    if content is None or len(content) < kept.start:
        raise Malformed("the code is gone")
    return content[kept.start :]


def _read_segment(
    found: Mapping[str, object], lists: Sequence[LaunchList], machine: NativeMachine
) -> Segment:
    constants = [read_constants(item) for item in as_list(found.get("constants"), len(lists))]
    if not lists:
        raise Malformed("there is no list")
    outputs = {name: read_output(item) for name, item in as_object(found.get("outputs")).items()}
    once = [_read_once(whole, own, machine) for whole, own in zip(lists[1:], constants[1:], strict=True)]
    parts, batched = as_list(found.get("batch"), 2)
    names = frozenset(map(as_text, as_list(batched)))
    each = machine.compile(lists[0])
    return Segment(
        (), {}, outputs, machine, constants[0], each, once, parts=as_number(parts, 1), batched=names
    )


def _read_once(whole: LaunchList, constants: Mapping[str, Array], machine: NativeMachine) -> OnceResult:
    kept = {name: machine.keep(whole.buffers[view.buffer].size) for name, view in whole.outputs.items()}
    inputs = tuple(name for name in whole.inputs if name not in constants)
    return OnceResult(machine.compile(whole, once=True), inputs, kept, constants)


def read_constants(value: object) -> dict[str, Array]:
    """The constants of a value of JSON."""
    found: dict[str, Array] = {}
    for name, item in as_object(value).items():
        kind, shape, text = as_list(item, 3)
        array = np.frombuffer(b64decode(as_text(text), validate=True), _read_dtype(kind))
        try:
            found[name] = array.reshape(as_numbers(shape))
        except ValueError:
            raise Malformed("a constant has another shape") from None
    return found


def _read_dtype(value: object) -> np.dtype[np.generic]:
    element = find_type(as_text(value))
    if element is None:
        raise Malformed("a type belongs here")
    return numpy_dtype(element)


def read_output(value: object) -> TensorShape:
    """The shape and type of an output."""
    shape, kind = as_list(value, 2)
    return as_numbers(shape), _read_dtype(kind)


def read_placement(found: Mapping[str, object]) -> list[OperationPlacement]:
    """Where operations run."""
    return [OperationPlacement(*map(as_text, as_list(item, 3))) for item in as_list(found.get("placement"))]
