"""Launch lists on a GPU: one arena, one table of slots, and after the first run one CUDA graph.

What a call hands over is copied to the device, and what it takes out is copied back; weights stay there, and so do
states that launches update in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lamella.backend.cpu.compiled import maps_offset
from lamella.backend.cpu.run.lists import LaunchSource, find_settled, reach_of
from lamella.backend.cpu.run.prepared import PreparedLaunch, address_of
from lamella.backend.cuda.arrays import DeviceMemory, PinnedMemory
from lamella.backend.cuda.cublaslt import WORKSPACE, LibraryLaunch, bind_product
from lamella.backend.cuda.device_code import DeviceCode
from lamella.backend.cuda.driver import Event, LaunchGraph, call, device, is_blocking, own_stream
from lamella.backend.cuda.memory import ListBuffers, ListFlags, SharedDeviceMemory
from lamella.backend.cuda.modules import DeviceKernel, load_kernels
from lamella.backend.cuda.tensor_maps import with_maps
from lamella.base.arrays import Array
from lamella.base.errors import InputError, Unsupported
from lamella.base.origin import blamed
from lamella.base.records import dataclass
from lamella.graph.model import Streaming
from lamella.kernels.arena_plan import ALIGNMENT
from lamella.kernels.launches import (
    ELEMENT_BYTES,
    BufferView,
    Launch,
    LaunchList,
    LaunchTime,
    verify_views,
)

if TYPE_CHECKING:
    from lamella.kernels.native_products import NativeProduct

MOST_PINNED = 1 << 22
"""The most bytes of an output that is copied through pinned memory."""
PLACE, LIBRARY = re.compile(r":\d+ "), "ops/"
"""What a word of an origin has that tells a line, and how it begins where that is one of the library."""
COPIED = 16
"""The alignment in bytes of arrays that TMA reads."""


class TokenChoice(Protocol):
    """The protocol of token choices on the device, as `GreedyChoice` is one."""

    @property
    def most(self) -> int:
        """The number of choices that it can keep."""

    def begin(self) -> None:
        """Forget all choices."""

    def launch(self) -> None:
        """Choose once more, asynchronously."""

    def read(self, count: int) -> Array:
        """The tokens chosen since the beginning; waits for them."""


MakeChoice = Callable[[int, int, int], TokenChoice]
"""Makes a choice over so many scores at an address, which writes to another address."""


@dataclass(slots=True)
class _DeviceLaunch:
    """A launch with its slots, whose addresses are on the device; None for the kernel of one that fills."""

    kernel: DeviceKernel | None
    slots: Array
    groups: int
    place: int = 0
    """The offset of its slots in the table, in bytes."""
    library: LibraryLaunch | None = None
    """The library call that replaces a kernel."""
    origin: str = ""
    """Where what it computes stands in the model."""


@dataclass(slots=True)
class _FedStep:
    """A decoding step: a run of a list that is fed by the one before, and the choice behind it."""

    choice: TokenChoice
    entries: Mapping[str, str]
    """The inputs that outputs are carried to."""
    saved: Mapping[str, DeviceMemory]
    """The saved values that are carried between two runs."""
    choose: Callable[[], None]
    """Saves what is carried, and chooses."""
    record: Callable[[], LaunchGraph]
    """Captures a run with what was saved, and the choice behind it."""
    _graph: LaunchGraph | None = None

    def run(self) -> None:
        """Run once more; the first choice has brought its kernels to the device, so that this can be recorded."""
        if self._graph is None:
            self._graph = self.record()
        self._graph.launch()


class CudaList:
    """A launch list ready to run. Unsupported: a launch is neither proved nor can it be tested."""

    def __init__(
        self,
        source: LaunchSource,
        whole: LaunchList,
        room: SharedDeviceMemory,
        choose: MakeChoice | None = None,
        is_once: bool = False,
        natives: Mapping[str, NativeProduct] | None = None,
    ) -> None:
        verify_views(whole)
        self.whole = whole
        self._copies, self._choose, self._is_once = room.copies, choose, is_once
        self._stream = own_stream()
        names = {launch.kernel for launch in whole.launches}
        self._natives = {name: item for name, item in (natives or {}).items() if name in names}
        """The kernels that a library computes."""
        workspace = WORKSPACE if self._natives else 0
        self._buffers = ListBuffers(whole, room.once if is_once else room.arena, is_once, workspace)
        plan = self._buffers.plan
        self.arena_bytes, self.outside_bytes = self._buffers.shared_bytes, plan.outside_bytes
        self.blocks = plan.blocks
        self._faults = np.zeros(max(1, len(whole.launches)), np.int32)
        self._prepared = list(source.prepare_all(whole.launches, self._faults))
        for launch, made in self._prepared:
            _verify_places(launch, made)
        self._flags = ListFlags(
            self._faults, [None if made is None else made.tests for _, made in self._prepared]
        )
        self._settled = find_settled(whole, self.prepared)
        self._table: DeviceMemory | None = None
        self._base = -1
        self._launches: list[_DeviceLaunch] = []
        self._graphs: list[LaunchGraph] = []
        self._bound: dict[str, Array] = {}
        self._entering = list(whole.inputs)
        self._pinned: dict[str, PinnedMemory] = {}
        self._has_run = False
        self._choice: tuple[tuple[int, int, int], TokenChoice] | None = None
        """What chooses the next input, for the addresses that it reads and writes."""
        self._step: _FedStep | None = None
        self._known: tuple[tuple[int, ...], frozenset[str]] = ((-1,), frozenset())
        """The states of the last run, by their identities, and those that lie on the device."""
        written = {launch.arguments[place].buffer for launch in whole.launches for place in launch.writes}
        self._updated = [name for name, view in whole.inputs.items() if view.buffer in written]

    @property
    def prepared(self) -> list[PreparedLaunch | None]:
        """The code and the slots of each launch; None for those that fill."""
        return [made for _, made in self._prepared]

    @property
    def library_launches(self) -> int:
        """The number of launches of the last run that a library computed."""
        return sum(item.library is not None for item in self._launches)

    def stream(self, policies: Mapping[str, Streaming]) -> None:
        """Nothing moves: what a device reads lies in its memory, or in the pinned memory beside it."""

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Let all later runs read arrays that they are not given."""
        device()
        self._bound = {name: array for name, array in inputs.items() if name in self.whole.inputs}
        self._entering = [name for name in self.whole.inputs if name not in self._bound]
        for name, array in self._bound.items():
            if name in self._updated or not self._share(name, array):
                self._enter(name, array)
            array.flags.writeable = False  # nobody tells when somebody writes into what was copied once
        self._stream.wait()

    def run(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], times: list[LaunchTime] | None = None
    ) -> bool:
        """Run all launches; False where one found something wrong, and the outputs mean nothing.

        States that launches update are on the device afterwards, and newer there than in the arrays of the host.
        """
        return self.begin(inputs, outputs, times)()

    def begin(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], times: list[LaunchTime] | None = None
    ) -> Callable[[], bool]:
        """Launch what may find something wrong, or all; what waits for it, launches the rest and copies outputs."""
        device()  # whichever thread this is
        states = self._take_states(inputs)
        self._settle()
        held = [self._enter(name, inputs[name]) for name in self._entering if name not in states]
        others = {name: inputs[name] for name in self._updated if name in inputs and name not in states}
        self._run_first(times)
        return partial(self._end, outputs, others, times, held)

    def _end(
        self,
        outputs: Mapping[str, Array],
        others: Mapping[str, Array],
        times: list[LaunchTime] | None,
        held: list[Array],
    ) -> bool:
        """Wait for a run that has begun; what it reads of the host lives as long."""
        device()
        waiting: list[tuple[Array, Array]] = []
        sound = self._run_rest(times)
        if sound and self._is_once:
            sound = self._flags.are_clear()
            if sound:
                self._stay(outputs)
        elif sound:
            leaving = {name: outputs[name] for name in self.whole.outputs.keys() - self.whole.undo}
            lent = {name: item for name, item in leaving.items() if self._copies.is_lent(item)}
            home = {name: item for name, item in leaving.items() if name not in lent}
            waiting = self._leave({**home, **others})
            sound = self._flags.are_clear()
            if sound:
                self._stay(lent)
        if not sound:
            self._flags.clear()
            waiting = self._leave({name: outputs[name] for name in self.whole.undo if name in outputs})
        self._stream.wait("running a launch list")
        del held
        for room, target in waiting:
            if room is not target:
                np.copyto(target, room)
            self._copies.forget(target)
        return sound

    def replay(self) -> None:
        """Run all launches of the last run again, on what lies on the device, asynchronously."""
        for graph in self._graphs or self._record_graphs():
            graph.launch()

    def feed_back(
        self, output: str, following: str, count: int, carried: Mapping[str, tuple[str, Array]]
    ) -> Array | None:
        """The likeliest number of an output so many times, each run but the first being given that of the one before.

        What is carried from an output to the input of a name goes to an array of the host at last. Nobody waits in
        between. None where nothing has run, or the input is more than a number.
        """
        scores, entered = self.whole.outputs[output], self.whole.inputs[following]
        device()
        self._settle()
        if not self._has_run or self._choose is None or following in self._bound or entered.reach != 8:
            return None
        if is_blocking():
            return None
        places = self._buffers.address(scores), scores.reach // 4, self._buffers.address(entered)
        if self._choice is None or self._choice[0] != places:
            self._choice = places, self._choose(*places)
        choice = self._choice[1]
        if count > choice.most:
            return None
        step = self._fed_step(choice, carried)
        choice.begin()
        step.choose()
        for _ in range(count - 1):
            step.run()
        for name, (_, target) in carried.items():
            step.saved[name].read(address_of(target), target.nbytes, self._stream)
        found = choice.read(count)
        if not self._flags.are_clear():
            self._flags.clear()
            raise InputError(f"a run that was fed what '{output}' rates best found something wrong")
        return found

    def _fed_step(self, choice: TokenChoice, carried: Mapping[str, tuple[str, Array]]) -> _FedStep:
        """A run that is given what was chosen and carried, and the next choice, as one graph of launches."""
        entries = {name: entry for name, (entry, _) in carried.items()}
        if self._step is not None and self._step.choice is choice and self._step.entries == entries:
            return self._step
        saved = {name: DeviceMemory(target.nbytes) for name, (_, target) in carried.items()}

        def choose() -> None:
            for name in entries:
                # What is chosen may be written to where this lies.
                self._move(self._buffers.address(self.whole.outputs[name]), saved[name].address, name)
            choice.launch()

        def run() -> None:
            for name, entry in entries.items():
                self._move(saved[name].address, self._buffers.start(self.whole.inputs[entry].buffer), name)
            self._record(0, len(self._launches))
            choose()

        self._step = _FedStep(choice, entries, saved, choose, lambda: LaunchGraph(self._stream, run))
        return self._step

    def _move(self, source: int, target: int, name: str) -> None:
        call("cuMemcpyDtoDAsync_v2", target, source, self.whole.outputs[name].reach, self._stream.handle)

    def kernel_seconds(self, rounds: int = 5) -> dict[tuple[str, int], tuple[int, float]]:
        """How often each kernel is launched with so many work-groups, and how long these launches take in a row.

        They run on what lies on the device after the last run, and leave other numbers there: states change.
        """
        found: dict[tuple[str, int], tuple[int, float]] = {}
        numbers: dict[tuple[str, int], list[int]] = {}
        for number, launch in enumerate(self.whole.launches):
            numbers.setdefault((launch.kernel or "fill", launch.groups), []).append(number)
        for key, chosen in numbers.items():
            graph = LaunchGraph(self._stream, partial(self.record_some, chosen))
            best = float("inf")
            for _ in range(rounds + 1):
                begin, end = Event(), Event()
                begin.record(self._stream)
                graph.launch()
                end.record(self._stream)
                best = min(best, end.seconds_since(begin))
            found[key] = (len(chosen), best)
        return found

    def record_some(self, numbers: Sequence[int]) -> None:
        """Launch some of the kernels in their order."""
        for number in numbers:
            self._launch(self._launches[number])

    def _run_first(self, times: list[LaunchTime] | None) -> None:
        """Run what may find something wrong; from the second run on as CUDA graphs: many lists run but once."""
        if self._has_run and times is None and not self._is_once and not self._graphs and not is_blocking():
            self._record_graphs()
        if self._ranges():
            self._run_range(0, times)

    def _run_rest(self, times: list[LaunchTime] | None) -> bool:
        """Run what changes states for good; False where something was found wrong before."""
        for number in range(1, len(self._ranges())):
            if not self._flags.are_clear():
                return False
            self._run_range(number, times)
        self._has_run = True
        return True

    def _run_range(self, number: int, times: list[LaunchTime] | None) -> None:
        first, end = self._ranges()[number]
        if times is not None:
            self._run_timed(times, first, end)
        elif self._graphs:
            self._graphs[number].launch()
        else:
            self._record(first, end)

    def _ranges(self) -> list[tuple[int, int]]:
        """What may find something wrong, and what is launched when nothing was."""
        ranges = [(0, self._settled), (self._settled, len(self._launches))]
        if not self._flags.can_be_set:
            ranges = [(0, len(self._launches))]
        return [item for item in ranges if item[0] < item[1]]

    def _record_graphs(self) -> list[LaunchGraph]:
        """Capture the launches as CUDA graphs."""
        self._graphs = [LaunchGraph(self._stream, partial(self._record, *item)) for item in self._ranges()]
        return self._graphs

    # --- inputs and outputs ----------------------------------------------------------------------------------

    def _share(self, name: str, array: Array) -> bool:
        """Let a buffer be the copy of an array that all lists share; False where that is not dense."""
        view = self.whole.inputs[name]
        if not array.flags.c_contiguous or array.nbytes != self.whole.buffers[view.buffer].size:
            return False
        if self._buffers.lay(view.buffer, self._copies.memory(array)):
            self._base = -1
        return True

    def _enter(self, name: str, array: Array) -> Array:
        """Copy an array to its buffer; gives what must live until it is there."""
        place, newer = self._buffers.start(self.whole.inputs[name].buffer), self._copies.newer(array)
        if newer is not None:
            call("cuMemcpyDtoDAsync_v2", place, newer.address, newer.size, self._stream.handle)
            return array
        dense = np.ascontiguousarray(array)
        if dense.nbytes:
            call("cuMemcpyHtoDAsync_v2", place, address_of(dense), dense.nbytes, self._stream.handle)
        return dense

    def _take_states(self, inputs: Mapping[str, Array]) -> frozenset[str]:
        """Let states that launches update be where they lie on the device; gives which of them can."""
        given = [inputs[name] for name in self._updated if name in inputs]
        known = (self._copies.version, *map(id, given))
        if known != self._known[0]:
            found = [name for name in self._updated if name in inputs and self._share(name, inputs[name])]
            for name in found:
                self._copies.change(inputs[name])
            self._known = (self._copies.version, *map(id, given)), frozenset(found)
        return self._known[1]

    def _leave(self, targets: Mapping[str, Array]) -> list[tuple[Array, Array]]:
        """Copy outputs, and states that have no copy of their own, to the host: where to, and for which arrays."""
        waiting = []
        for name, target in targets.items():
            view = self.whole.outputs[name] if name in self.whole.outputs else self.whole.inputs[name]
            waiting.append((self._read(name, view, target), target))
        return waiting

    def _stay(self, outputs: Mapping[str, Array]) -> None:
        """Let the device keep what others read there; the host never sees it."""
        for name, target in outputs.items():
            self._copies.keep(target, self._buffers.address(self.whole.outputs[name]))

    def _read(self, name: str, view: BufferView, target: Array) -> Array:
        """Copy to memory that the device reaches by itself, where that is little; else straight to the array."""
        room = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        if 0 < target.nbytes <= MOST_PINNED:
            pinned = self._pinned.get(name)
            if pinned is None or pinned.size != target.nbytes:
                pinned = self._pinned[name] = PinnedMemory(target.nbytes)
            room = pinned.bytes().view(target.dtype).reshape(target.shape)
        if room.nbytes:
            call(
                "cuMemcpyDtoHAsync_v2",
                address_of(room),
                self._buffers.address(view),
                room.nbytes,
                self._stream.handle,
            )
        return room

    # --- the table of slots ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Write the addresses into the slots, where the arena has moved."""
        if self._base == self._buffers.base():
            return
        # What fails on the way is done again by the next run.
        self._base, self._graphs, self._has_run = -1, [], False
        self._step = None
        self._launches = [
            self._place(number, launch, made) for number, (launch, made) in enumerate(self._prepared)
        ]
        load_kernels({item.kernel for item in self._launches if item.kernel is not None})
        rows, size = [], 0
        for item in self._launches:
            words = with_maps(item.slots, None if item.kernel is None else item.kernel.pipeline)
            item.place, whole = size, maps_offset(-(-len(words) // 8))
            rows.append(words.tobytes().ljust(whole, b"\0"))
            size += whole
        table = np.frombuffer(b"".join(rows) or b"\0", np.uint8)
        self._table = DeviceMemory(table.nbytes)
        self._table.write(address_of(table), table.nbytes, self._stream)
        self._stream.wait()
        self._base = self._buffers.base()

    def _place(self, number: int, launch: Launch, made: PreparedLaunch | None) -> _DeviceLaunch:
        if made is None:
            view = launch.arguments[0]
            return _DeviceLaunch(None, np.array([self._buffers.address(view), reach_of(view)], np.int64), 1)
        if launch.kernel in self._natives:
            places = [self._buffers.address(item) for item in launch.arguments]
            with suppress(Unsupported):
                bound = bind_product(self._natives[launch.kernel], places, self._buffers.workspace)
                return _DeviceLaunch(None, np.zeros(1, np.int64), launch.groups, library=bound)
        code, slots = made.code, np.frombuffer(made.slots, np.int64).copy()
        if not isinstance(code, DeviceCode):
            raise Unsupported("it is no kernel of the device")
        for place, slot, _ in made.places:
            if place < len(launch.arguments):
                slots[slot] = self._buffers.address(launch.arguments[place])
            elif launch.has_fault and place == len(launch.arguments):
                slots[slot] = self._flags.fault(number)
            else:
                slots[slot] = self._flags.tests(number)
        return _DeviceLaunch(code.kernels[made.address], slots, launch.groups, origin=_shown_origin(launch))

    def _record(self, first: int, end: int) -> None:
        for number, item in enumerate(self._launches[first:end]):
            self._launch(item, number == 0)

    def _launch(self, item: _DeviceLaunch, is_first: bool = False) -> None:
        if item.library is not None:
            item.library.launch(self._stream)
        elif item.kernel is None:
            address, size = item.slots.tolist()
            if size:
                call("cuMemsetD8Async", address, 0, size, self._stream.handle)
        elif self._table is not None and item.groups:
            place = self._table.address + item.place
            item.kernel.launch(self._stream, place, item.groups, is_first, item.origin)

    def _run_timed(self, times: list[LaunchTime], first: int, end: int) -> None:
        """Run launch by launch with an event between."""
        moments = [Event() for _ in range(end - first + 1)]
        moments[0].record(self._stream)
        try:
            for number, moment in enumerate(moments[1:], first):
                self._copies.marks.enter(self.whole.launches[number].origin)
                self._launch(self._launches[number], number == first)
                moment.record(self._stream)
        finally:
            self._copies.marks.leave()
        total = 0.0
        for number, launch in enumerate(self.whole.launches[first:end]):
            seconds = moments[number + 1].seconds_since(moments[number])
            size = sum(map(reach_of, launch.arguments))
            name = launch.kernel or "fill"
            times.append(
                LaunchTime(launch.operator, name, seconds, total, launch.groups, size, launch.origin)
            )
            total += seconds


def _shown_origin(launch: Launch) -> str:
    """Where what a launch computes stands in the model, else in the library; kept launches have words of it alone."""
    found = blamed(launch.origin)
    if found is not None and found.span is not None:
        return str(found)
    words = () if launch.origin is None else launch.origin.words()
    known = [word for word in words if word != launch.operator]
    of_model = (word for word in known if PLACE.search(word) and not word.startswith(LIBRARY))
    return next(of_model, next(iter(known), launch.operator))


def _verify_places(launch: Launch, made: PreparedLaunch | None) -> None:
    """Refuse a launch whose views begin where its kernel cannot read them; buffers themselves begin well."""
    if made is None or not isinstance(made.code, DeviceCode):
        return
    pipeline = made.code.kernels[made.address].pipeline
    copied = {item.slot for item in pipeline.maps} if pipeline is not None else set()
    for place, slot, alignment in made.places:
        if place >= len(launch.arguments):
            continue
        view, wanted = launch.arguments[place], max(alignment, COPIED if slot in copied else 1)
        if view.offset * ELEMENT_BYTES[view.element] % wanted or wanted > ALIGNMENT:
            raise Unsupported("a view begins where its kernel cannot read it")
