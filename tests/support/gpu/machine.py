"""Execution of kernels thread by thread: warps of a block are scheduled in turn, each until it waits for others.

A warp of all blocks is one row of lanes, so that an instruction is one call of NumPy. Divergent lanes go on by
themselves, those that are furthest back first, and reconverge where their paths meet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamella.base.arrays import Array
from tests.support.gpu import mathematics, matrices
from tests.support.gpu.code import EXIT, Code, Launch
from tests.support.gpu.counts import Counts
from tests.support.gpu.memory import LOCAL, NO_NUMBER, SHARED, WINDOW, DeviceFault, Turn

MOST_LANES = 4096
RANK = 24
"""Bits of a place in local memory, above which the number of another block in the cluster stands."""


def run_launch(code: Code, launch: Launch, seed: int = 0, counts: Counts | None = None) -> None:
    """Run all work-groups of a launch; only the first of them where it is counted what they cost."""
    threads = launch.block[0] * launch.block[1]
    if not 0 < threads <= code.entry.most_threads:
        raise DeviceFault(
            f"{code.entry.name} has blocks of {threads} threads, and at most {code.entry.most_threads}"
        )
    per = max(1, MOST_LANES // (threads * launch.cluster)) * launch.cluster
    turn = code.memory.begin(launch.is_early)
    with np.errstate(all="ignore"):
        batch = Batch(code, launch, turn, min(per, launch.grid))
        batch.counts = counts
        for first in range(0, launch.grid if counts is None else 1, per):
            if first + batch.blocks > launch.grid:
                batch = Batch(code, launch, turn, launch.grid - first)
            batch.run(first, random.Random(seed + first))
    if counts is not None:
        counts.launches, counts.threads = counts.launches + 1, threads
        counts.groups, counts.blocks = counts.groups + launch.grid, counts.blocks + batch.blocks
    if not turn.has_waited:
        raise DeviceFault(f"{code.entry.name} begins early and never waits for the launch in front of it")


@dataclass(slots=True)
class Barrier:
    """An mbarrier: it counts arrivals and bytes."""

    needed: int
    missing: int
    waiting_bytes: int = 0
    phase: int = 0

    def settle(self) -> None:
        """Begin the next phase where nothing is missing."""
        if not self.missing and not self.waiting_bytes:
            self.phase, self.missing = self.phase ^ 1, self.needed


class Batch:
    """Blocks that run at once."""

    def __init__(self, code: Code, launch: Launch, turn: Turn, blocks: int) -> None:
        self.code, self.launch, self.turn, self.blocks = code, launch, turn, blocks
        self.counts: Counts | None = None
        self.shared_bytes = WINDOW + code.entry.shared_bytes + launch.shared_bytes
        self.stride = -(-self.shared_bytes // 1024) * 1024
        self.local = np.empty(self.blocks * self.stride, np.uint8)
        self.words = {size: self.local.view(f"u{size}") for size in (1, 2, 4, 8)}
        self.barriers: dict[tuple[int, int], Barrier] = {}
        threads = launch.block[0] * launch.block[1]
        width = 128 if code.has_warpgroups else 32
        self.units = [Unit(self, width, start, threads) for start in range(0, threads, width)]

    def run(self, first: int, order: random.Random) -> None:
        """Run blocks from one on until all threads have ended."""
        self.local.fill(NO_NUMBER)
        self.barriers.clear()
        self.arrived: dict[tuple[object, ...], Array] = {}
        """How many threads of each block have come to a barrier and gone on."""
        self.alive = np.zeros(self.blocks, np.int64)
        """The threads of each block that have not ended."""
        for unit in self.units:
            unit.begin(first)
        while True:
            busy = [unit for unit in self.units if unit.ready]
            order.shuffle(busy)
            for unit in busy:
                unit.run()
            if not self._release() and not busy:
                break
        stuck = [(unit, place, mask) for unit in self.units for place, mask in unit.parked.items()]
        if stuck:
            told = sorted({unit.code.segments[place].item.text for unit, place, _ in stuck})  # type: ignore[union-attr]
            raise DeviceFault(f"{self.code.entry.name}: threads wait for ever at {'; '.join(told)}")

    def _release(self) -> bool:
        """Let those go on who need not wait any more; whether there are any."""
        segments, found = self.code.segments, False
        meetings: dict[tuple[object, ...], list[tuple[Unit, int, Array]]] = {}
        for unit in self.units:
            for place in list(unit.parked):
                kind = segments[place].kind
                if kind == "poll":
                    found |= unit.poll(place, unit.parked.pop(place))
                elif kind == "warp":
                    before = unit.parked.pop(place)
                    unit.meet(place, before)
                    found |= bool(unit.ready)
                elif kind in ("block", "cluster"):
                    for key, mask in unit.meetings(place, kind):
                        meetings.setdefault(key, []).append((unit, place, mask))
        for key, meeting in meetings.items():
            found |= self._meet(key, meeting)
        return found

    def _meet(self, key: tuple[object, ...], waiting: Sequence[tuple[Unit, int, Array]]) -> bool:
        gone = self.arrived.get(key, np.zeros(self.blocks, np.int64))
        arrived = gone.copy()
        for _, _, mask in waiting:
            arrived += mask.reshape(self.blocks, -1).sum(1)
        needed = np.full(self.blocks, key[2]) if len(key) > 2 else self.alive
        if key == ("cluster",):
            size = self.launch.cluster
            arrived, needed = (
                np.repeat(item.reshape(-1, size).sum(1), size) for item in (arrived, self.alive)
            )
        if (arrived > needed).any():
            raise DeviceFault(f"{self.code.entry.name}: more threads than were told meet at a barrier")
        whole = (arrived == needed) & (arrived > 0)
        if not whole.any():
            return False
        self.arrived[key] = np.where(whole, 0, gone)
        for unit, place, mask in waiting:
            going = mask & np.repeat(whole, unit.width)
            unit.park(place, unit.parked.pop(place) & ~going)
            unit.go(self.code.segments[place].following, going)
        return True

    def barrier(self, block: int, place: int) -> Barrier:
        """A barrier of a block, or of another one of its cluster."""
        if place >> RANK:
            size = self.launch.cluster
            block = block // size * size + (place >> RANK) - 1
        found = self.barriers.get((block, place & (1 << RANK) - 1))
        if found is None:
            raise DeviceFault(f"{self.code.entry.name}: no barrier was begun at {place:#x} of local memory")
        return found


@dataclass(slots=True)
class _Copy:
    """An asynchronous copy out of shared memory."""

    group: int
    work: Callable[[], None]


@dataclass(slots=True)
class _Mixed:
    """Words of several kinds of memory, those of one kind behind those of another."""

    parts: list[tuple[Any, Array, Any]]

    def __getitem__(self, shift: Array) -> Array:
        step = int(shift[0])
        return np.concatenate([words[at + step] for words, at, _ in self.parts])

    def __setitem__(self, shift: Array, values: Any) -> None:
        step, start = int(shift[0]), 0
        values = np.broadcast_to(values, shift.shape)
        for words, at, _ in self.parts:
            words[at + step] = values[start : start + len(at)]
            start += len(at)


class Unit:
    """A warp, or warpgroup, of each block; the lanes of its rows."""

    def __init__(self, batch: Batch, width: int, start: int, threads: int) -> None:
        self.batch, self.width = batch, width
        code, launch = batch.code, batch.launch
        self.code, self.memory = code, code.memory
        count = batch.blocks * width
        thread = np.tile(start + np.arange(width), batch.blocks)
        self.block = np.repeat(np.arange(batch.blocks), width)
        self._threads = thread < threads
        self.lane = (thread & 31).astype(np.int64)
        self._local_bytes = max(8, code.entry.local_bytes)
        self._local = np.full(count * self._local_bytes, NO_NUMBER, np.uint8)
        numbers = {
            "tid_x": thread % launch.block[0], "tid_y": thread // launch.block[0], "tid_z": 0 * thread,
            "ntid_x": 0 * thread + launch.block[0], "ntid_y": 0 * thread + launch.block[1], "ntid_z": 0 * thread + 1,
            "ctaid_x": self.block, "ctaid_y": 0 * thread, "ctaid_z": 0 * thread,
            "nctaid_x": 0 * thread + launch.grid, "nctaid_y": 0 * thread + 1, "nctaid_z": 0 * thread + 1,
            "laneid": self.lane, "warpid": thread // 32,
            "cluster_ctarank": self.block % launch.cluster, "cluster_nctarank": 0 * thread + launch.cluster,
        }  # fmt: skip
        special: dict[str, Any] = {
            f"special_{name}": item.astype(np.uint32) for name, item in numbers.items()
        }
        special["parameters"] = dict(
            zip(code.entry.parameters, map(np.uint64, launch.parameters), strict=True)
        )
        self._rows = code.make(self, count, special)
        self._code = [
            (self._rows[f"run_{place}"], self._rows[f"tell_{place}"]) for place in range(len(code.segments))
        ]

    def begin(self, first: int) -> None:
        """Let the threads of blocks from one on begin."""
        count = len(self.lane)
        self._rows["special_ctaid_x"][...] = first + self.block
        self.alive = self._threads.copy()
        self.batch.alive += self.alive.reshape(self.batch.blocks, -1).sum(1)
        self.ready: dict[int, Array] = {0: self.alive.copy()}
        self.parked: dict[int, Array] = {}
        self._waited = np.full(count, not self.batch.launch.is_early)
        self._committed = np.zeros(count, np.int64)
        self._products: list[matrices.Product] = []
        self._copies: dict[int, list[_Copy]] = {}
        self._copy_groups: dict[int, int] = {}

    # --- the way of lanes --------------------------------------------------------------------------------------

    def go(self, place: int, mask: Array) -> None:
        """Let lanes go on somewhere."""
        if not mask.any():
            return
        if place == EXIT:
            self._end(mask)
        elif place in self.ready:
            self.ready[place] = self.ready[place] | mask
        else:
            self.ready[place] = mask

    def park(self, place: int, mask: Array) -> None:
        """Let lanes wait."""
        if mask.any():
            self.parked[place] = self.parked[place] | mask if place in self.parked else mask

    def _end(self, mask: Array) -> None:
        self.alive = self.alive & ~mask
        self.batch.alive -= mask.reshape(self.batch.blocks, -1).sum(1)
        if any(self._copies.get(int(lane)) for lane in np.flatnonzero(mask)):
            raise DeviceFault(
                f"{self.code.entry.name}: a thread ends before what it copies has left local memory"
            )
        if any((item.mask & mask).any() for item in self._products):
            raise DeviceFault(f"{self.code.entry.name}: a warpgroup ends without waiting for its product")

    def run(self) -> None:
        """Run until all lanes wait or have ended."""
        segments = self.code.segments
        while self.ready:
            place = min(self.ready)
            mask = self.ready.pop(place)
            segment = segments[place]
            if segment.kind in ("fall", "branch"):
                self._execute(place, mask)
                if segment.kind == "fall":
                    self.go(segment.following, mask)
                else:
                    truth = self._rows[segment.predicate]
                    truth = ~truth if segment.negated else truth
                    self.go(segment.target, mask & truth)
                    self.go(segment.following, mask & ~truth)
            elif segment.kind == "warp":
                self.meet(place, mask)
            elif segment.kind == "warpgroup":
                self._meet_all(place, mask)
            elif segment.kind == "poll":
                self.poll(place, mask)
            else:
                self.park(place, mask)

    def _execute(self, place: int, mask: Array) -> None:
        if self.batch.counts is not None:
            warps = int(mask.reshape(-1, 32).any(1).sum())
            self.batch.counts.instructions += warps * self.code.lengths[place]
        self._code[place][0](True if mask.all() else mask)

    def meet(self, place: int, mask: Array) -> None:
        """Lanes that all of their warp have met go on; the others wait."""
        mask = mask | self.parked.pop(place, np.False_)
        members = np.broadcast_to(self._code[place][1](), mask.shape).astype(np.uint64)
        weights = np.uint64(1) << self.lane.astype(np.uint64)
        here, there = (
            np.repeat(np.where(item, weights, np.uint64(0)).reshape(-1, 32).sum(1), 32)
            for item in (mask, self.alive)
        )
        needed = members & there
        going = mask & ((here & needed) == needed)
        self.park(place, mask & ~going)
        if going.any():
            self._execute(place, going)
            self.go(self.code.segments[place].following, going)

    def meetings(self, place: int, kind: str) -> Iterator[tuple[tuple[object, ...], Array]]:
        """The barriers at which lanes wait, each by its number and what else is told of it."""
        mask = self.parked[place]
        told = () if kind == "cluster" else self._code[place][1]()
        rows = [np.broadcast_to(item, mask.shape) for item in told]
        for values in sorted({tuple(int(row[lane]) for row in rows) for lane in np.flatnonzero(mask)}):
            chosen = mask.copy()
            for row, value in zip(rows, values, strict=True):
                chosen &= row == value
            yield (kind, *values), chosen

    def _meet_all(self, place: int, mask: Array) -> None:
        mask = mask | self.parked.pop(place, np.False_)
        whole = (mask | ~self.alive).reshape(-1, self.width).all(1)
        going = mask & np.repeat(whole, self.width)
        self.park(place, mask & ~going)
        if going.any():
            self._execute(place, going)
            self.go(self.code.segments[place].following, going)

    def poll(self, place: int, mask: Array) -> bool:
        """Lanes whose barrier has reached its next phase go on."""
        row, address, parity = self._code[place][1]()
        parity = np.broadcast_to(parity, mask.shape)
        going = np.zeros_like(mask)
        for lane in np.flatnonzero(mask):
            # A phase that is complete is told by its number: the one that runs now has another.
            barrier = self.batch.barrier(int(self.block[lane]), int(address[lane]))
            going[lane] = barrier.phase != int(parity[lane]) & 1
        np.copyto(row, True, where=going)
        self.park(place, mask & ~going)
        self.go(self.code.segments[place].following, going)
        return bool(going.any())

    def trap(self, mask: Any) -> None:
        """Stop where a kernel finds that it must not go on."""
        if mask is True or mask.any():
            raise DeviceFault(f"{self.code.entry.name}: a thread stops with a trap")

    # --- memory --------------------------------------------------------------------------------------------------

    def find(
        self, addresses: Any, space: str, size: int, parts: int, writes: bool, mask: Any
    ) -> tuple[Any, Array, Any]:
        """The words that lanes access, where theirs are, and the lanes."""
        lanes: Any = slice(None) if mask is True else np.flatnonzero(mask)
        given = np.broadcast_to(addresses, self.alive.shape)[lanes]
        try:
            if space == "generic":
                kinds = np.unique(given >> np.uint64(56)).tolist() or [0]
                if len(kinds) > 1:
                    return self._find_each(addresses, size, parts, writes, mask)
                space = {LOCAL >> 56: "local", SHARED >> 56: "shared"}.get(kinds[0], "global")
                given = given & np.uint64(SHARED - 1) if space == "shared" else given
            if space == "global":
                found = self.memory.places(given, size, parts)
                self._judge(found * size, size * parts, writes, lanes)
                if self.batch.counts is not None:
                    self.batch.counts.touch(found * size, size * parts, np.arange(len(self.alive))[lanes])
                return self.memory.words[size], found, lanes
            offsets = given.astype(np.int64)
            if space == "shared":
                found = self._shared(offsets, size * parts, lanes)
                if self.batch.counts is not None:
                    self.batch.counts.take(found, size * parts, np.arange(len(self.alive))[lanes])
                return self.batch.words[size], found // size, lanes
            offsets -= LOCAL
            self._verify(offsets, size * parts, 0, self._local_bytes)
            starts = np.arange(len(self.alive))[lanes] * self._local_bytes
            return self._local.view(f"u{size}"), (starts + offsets) // size, lanes
        except DeviceFault as fault:
            raise DeviceFault(f"{self.code.entry.name}: {fault}") from fault

    def _find_each(
        self, addresses: Any, size: int, parts: int, writes: bool, mask: Any
    ) -> tuple[_Mixed, Array, Any]:
        """The same where lanes access memory of several kinds."""
        took = self.alive if mask is True else mask
        kinds = np.broadcast_to(addresses >> np.uint64(56), took.shape)
        found = [
            self.find(addresses, "generic", size, parts, writes, took & (kinds == kind))
            for kind in np.unique(kinds[took])
        ]
        lanes = np.concatenate([item[2] for item in found])
        return _Mixed(found), np.zeros(len(lanes), np.int64), lanes

    def _judge(self, places: Array, size: int, writes: bool, lanes: Any) -> None:
        """Refuse what is done before the launch in front has ended and must not be."""
        turn, waited = self.batch.turn, self._waited[lanes]
        if not waited.all():
            if writes:
                raise DeviceFault("memory is written before the wait for the launch in front")
            self.memory.judge_early(places[~waited], size, turn)
        if writes:
            self.memory.note_writer(places, size, turn)

    def wait_before(self, mask: Any) -> None:
        """Wait until the launch in front has ended."""
        self._waited |= mask
        self.batch.turn.has_waited = True

    def let_next(self, mask: Any) -> None:
        """Let the next launch begin when all blocks have said so."""
        turn = self.batch.turn
        has_waited = bool(self._waited.all() if mask is True else self._waited[mask].all())
        turn.settles = has_waited and (turn.settles or not turn.lets_next)
        turn.lets_next = True

    def _verify(self, offsets: Array, size: int, start: int, end: int) -> None:
        if (offsets % size).any():
            raise DeviceFault(f"an access of {size} bytes of local memory is not at a multiple of that")
        wrong = (offsets < start) | (offsets + size > end)
        if wrong.any():
            raise DeviceFault(
                f"an access at {int(offsets[wrong][0])} of local memory, which has {start} to {end}"
            )

    def _shared(self, offsets: Array, size: int, lanes: Any) -> Array:
        """Places among the local memory of all blocks."""
        rank, block = offsets >> RANK, self.block[lanes]
        if rank.any():
            cluster = self.batch.launch.cluster
            block = np.where(rank > 0, block // cluster * cluster + rank - 1, block)
            offsets = offsets & ((1 << RANK) - 1)
        self._verify(offsets, size, WINDOW, self.batch.shared_bytes)
        found: Array = block * self.batch.stride + offsets
        return found

    def change(
        self,
        target: Array | None,
        place: tuple[Any, Array, Any],
        kind: str,
        way: str,
        values: Any,
    ) -> None:
        """An atomic change of what was found, of one lane after the other."""
        words, at, lanes = place
        if isinstance(words, _Mixed):
            for part in words.parts:
                self.change(target, part, kind, way, values)
            return
        size = words.dtype.itemsize
        shown = words.view(kind.replace("s", "i", 1)[0] + str(size)) if kind != "bf16" else words
        given = [np.broadcast_to(item, self.alive.shape)[lanes] for item in values]
        if target is None and way == "add" and kind != "bf16":
            np.add.at(shown, at, given[0])
            return
        before = np.empty(len(at), words.dtype)
        for number, where in enumerate(at):
            before[number] = words[where]
            shown[where] = _changed(shown[where], [item[number] for item in given], way, kind)
        if target is not None:
            target[lanes] = before

    # --- warps ---------------------------------------------------------------------------------------------------

    def shuffle(self, way: str, source: Any, step: Any, bounds: Any, _: object, mask: Any) -> Array:
        """What other lanes of the warp hold; of one that takes no part nobody knows it."""
        source = np.broadcast_to(source, self.alive.shape)
        step, bounds = (np.broadcast_to(item, self.alive.shape).astype(np.int64) for item in (step, bounds))
        clamp, segment, step = bounds & 31, bounds >> 8 & 31, step & 31
        least = self.lane & segment
        most = least | (clamp & ~segment)
        if way == "up":
            other = self.lane - step
            inside = other >= most
        elif way == "down":
            other = self.lane + step
            inside = other <= most
        else:
            other = self.lane ^ step if way == "bfly" else least | (step & ~segment)
            inside = other <= most
        other = np.where(inside, other, self.lane)
        places = np.arange(len(source)) // 32 * 32 + other
        known = self.alive[places] & (True if mask is True else mask[places])
        return np.asarray(np.where(known, source[places], source.dtype.type(0xBADBAD)))

    def mma(self, name: str, sums: Any, left: Any, right: Any, before: Any, mask: Any) -> None:
        """A product of each warp."""
        assert ".m16n8k16." in name, name
        lanes = self._whole(mask)
        kind = name.split(".")[-2]
        one = matrices.left_factor([item[lanes] for item in left], kind)
        other = matrices.right_factor([item[lanes] for item in right], kind)
        given = [np.broadcast_to(item, self.alive.shape)[lanes].view(np.float32) for item in before]
        for target, values in zip(sums, matrices.multiply(given, one, other), strict=True):
            target.view(np.float32)[lanes] = values

    def _whole(self, mask: Any) -> Any:
        """The lanes of a mask, which must be whole warps."""
        if mask is True:
            return slice(None)
        rows = mask.reshape(-1, 32)
        if (rows.any(1) != rows.all(1)).any():
            raise DeviceFault(f"{self.code.entry.name}: only some lanes of a warp multiply")
        return np.flatnonzero(mask)

    def stmatrix(self, name: str, addresses: Any, registers: Any, mask: Any) -> None:
        """Matrices of 8 x 8 halves go to local memory, a lane telling where a row lies."""
        assert name == "stmatrix.sync.aligned.m8n8.x4.shared.b16", name
        lanes = self._whole(mask)
        given = np.broadcast_to(addresses, self.alive.shape)[lanes].astype(np.int64)
        starts = self._shared(given, 16, lanes).reshape(-1, 32)
        for number, register in enumerate(registers):
            for half, words in enumerate(matrices.halves(register[lanes])):
                rows = starts[:, 8 * number + matrices.GROUP]
                self.batch.words[2][rows // 2 + 2 * matrices.TURN + half] = words.reshape(-1, 32)

    # --- warpgroups ----------------------------------------------------------------------------------------------

    def wgmma(self, name: str, operands: Sequence[Any], mask: Any) -> None:
        """Begin a product, which is done when somebody waits for it."""
        sums, left, right, adds, *flags = operands
        left = left if isinstance(left, tuple) else left.copy()
        took = self.alive.copy() if mask is True else mask.copy()
        adds = np.broadcast_to(adds, took.shape).copy()
        given = (sums, left, right.copy(), None, *flags)
        self._products.append(matrices.Product(name, given, took, self._committed.copy(), adds))

    def commit_products(self, mask: Any) -> None:
        """What has begun is a group."""
        self._committed += True if mask is True else mask

    def wait_products(self, newest: int, mask: Any) -> None:
        """Do what has begun, but for the newest groups."""
        for item in self._products:
            now = item.mask & mask & (item.group < self._committed - int(newest))
            for block in np.flatnonzero(now.reshape(-1, self.width).any(1)):
                self._multiply(item, int(block))
            item.mask = item.mask & ~now
        self._products = [item for item in self._products if item.mask.any()]

    def _multiply(self, item: matrices.Product, block: int) -> None:
        lanes = slice(128 * block, 128 * block + 128)
        start = block * self.batch.stride
        left, right = item.factors(self.batch.local[start : start + self.batch.shared_bytes], block)
        rows = [register.view(np.float32)[lanes] for register in item.operands[0]]
        before = rows if item.adds[lanes].all() else [np.zeros_like(row) for row in rows]
        for row, values in zip(rows, matrices.multiply(before, left[None], right), strict=True):
            row[:] = values

    # --- mbarriers and TMA ------------------------------------------------------------------------------------------

    def _lanes(self, mask: Any) -> Iterator[tuple[int, int]]:
        """The lanes of a mask, and their blocks."""
        for lane in np.flatnonzero(self.alive if mask is True else mask):
            yield int(lane), int(self.block[lane])

    def begin_barrier(self, addresses: Any, counts: Any, mask: Any) -> None:
        """Let barriers wait for so many."""
        addresses, counts = (np.broadcast_to(item, self.alive.shape) for item in (addresses, counts))
        for lane, block in self._lanes(mask):
            count = int(counts[lane])
            self._verify(np.array([int(addresses[lane])]), 8, WINDOW, self.batch.shared_bytes)
            self.batch.barriers[block, int(addresses[lane])] = Barrier(count, count)

    def arrive(self, addresses: Any, expected: Any, mask: Any) -> None:
        """Lanes arrive at barriers, some of which expect bytes."""
        addresses, expected = (np.broadcast_to(item, self.alive.shape) for item in (addresses, expected))
        for lane, block in self._lanes(mask):
            barrier = self.batch.barrier(block, int(addresses[lane]))
            barrier.waiting_bytes += int(expected[lane])
            barrier.missing -= 1
            if barrier.missing < 0:
                raise DeviceFault(f"{self.code.entry.name}: more arrive at a barrier than it waits for")
            barrier.settle()

    def arrive_only(self, numbers: Any, counts: Any, mask: Any) -> None:
        """Lanes come to a barrier of their block, and go on."""
        numbers, counts = (np.broadcast_to(item, self.alive.shape) for item in (numbers, counts))
        for lane, block in self._lanes(mask):
            key = ("block", int(numbers[lane]), int(counts[lane]))
            self.batch.arrived.setdefault(key, np.zeros(self.batch.blocks, np.int64))[block] += 1

    def load_box(self, where: Any, places: Any, near: Any, barriers: Any, shared: Any, mask: Any) -> None:
        """Copy a part of a matrix to local memory, of several blocks where they are told."""
        rows = [np.broadcast_to(item, self.alive.shape) for item in (where, *places, near, barriers)]
        for lane, block in self._lanes(mask):
            address, x, y, target, barrier = (int(row[lane]) for row in rows)
            matrix = matrices.decode_map(self.memory.view(address, matrices.LINE).tobytes())
            box = np.zeros((matrix.box[1], matrix.box[0] * matrix.width), np.uint8)
            lines, width, start, count, size = matrices.cut_box(matrix, x, y)
            if count and size:
                box[lines, width] = self._lines(matrix, (start, count, size), lane, False)
            cluster = self.batch.launch.cluster
            ranks = [block % cluster]
            if shared is not None:
                told = int(np.broadcast_to(shared, self.alive.shape)[lane])
                ranks = [rank for rank in range(16) if told >> rank & 1]
            for rank in ranks:
                other = block // cluster * cluster + rank
                at = self._box(target, box.shape)
                self.batch.local[other * self.batch.stride + at] = box
                arrived = self.batch.barrier(other, barrier)
                arrived.waiting_bytes -= box.size
                arrived.settle()

    def _lines(
        self, matrix: matrices.TensorMap, part: tuple[int, int, int], lane: int, writes: bool
    ) -> Array:
        start, count, size = part
        whole = (count - 1) * matrix.stride + size
        flat = self.memory.view(start, whole)
        rows = start - self.memory.base + matrix.stride * np.arange(count)[:, None] + np.arange(0, size, 4)
        self._judge(rows.reshape(-1), 4, writes, np.full(rows.size, lane))
        return np.lib.stride_tricks.as_strided(flat, (count, size), (matrix.stride, 1))

    def _box(self, start: int, shape: tuple[int, int]) -> Array:
        """Where the bytes of a box lie in local memory."""
        if start % matrices.LINE or shape[1] != matrices.LINE:
            raise DeviceFault(f"{self.code.entry.name}: a box does not lie in lines of local memory")
        self._verify(
            np.array([start, start + shape[0] * matrices.LINE - 1]), 1, WINDOW, self.batch.shared_bytes
        )
        return matrices.swizzle(start + np.arange(shape[0] * shape[1])).reshape(shape)

    def store_box(self, where: Any, places: Any, near: Any, mask: Any) -> None:
        """Begin to copy a part of a matrix out of local memory; it is read when somebody waits for that."""
        rows = [np.broadcast_to(item, self.alive.shape) for item in (where, *places, near)]
        for lane, _ in self._lanes(mask):
            address, x, y, source = (int(row[lane]) for row in rows)
            matrix = matrices.decode_map(self.memory.view(address, matrices.LINE).tobytes())
            work = _Store(self, matrix, x, y, source, lane)
            self._copies.setdefault(lane, []).append(_Copy(self._copy_groups.get(lane, 0), work))

    def commit_copies(self, mask: Any) -> None:
        """What has begun is a group."""
        for lane, _ in self._lanes(mask):
            self._copy_groups[lane] = self._copy_groups.get(lane, 0) + 1

    def wait_copies(self, newest: int, mask: Any) -> None:
        """Do what has begun, but for the newest groups."""
        for lane, _ in self._lanes(mask):
            last = self._copy_groups.get(lane, 0) - int(newest)
            waiting = self._copies.get(lane, [])
            for item in waiting:
                if item.group < last:
                    item.work()
            self._copies[lane] = [item for item in waiting if item.group >= last]


@dataclass(frozen=True, slots=True)
class _Store:
    """A box on its way out of local memory."""

    unit: Unit
    matrix: matrices.TensorMap
    x: int
    y: int
    source: int
    lane: int

    def __call__(self) -> None:
        batch, matrix, block = self.unit.batch, self.matrix, int(self.unit.block[self.lane])
        shape = (matrix.box[1], matrix.box[0] * matrix.width)
        at = self.unit._box(self.source, shape)
        box = batch.local[block * batch.stride + at]
        lines, width, start, count, size = matrices.cut_box(matrix, self.x, self.y)
        if count and size:
            self.unit._lines(matrix, (start, count, size), self.lane, True)[...] = box[lines, width]


def _changed(old: Any, given: Sequence[Any], way: str, kind: str) -> Any:
    if kind == "bf16":
        one, other = (mathematics.from_bf16(np.array([item], np.uint16))[0] for item in (old, given[0]))
        return mathematics.to_bf16(np.array([one + other], np.float32))[0]
    if way == "cas":
        return given[1] if old == given[0] else old
    value = given[0]
    found = {
        "add": lambda: old + value, "exch": lambda: value,
        "min": lambda: min(old, value), "max": lambda: max(old, value),
        "and": lambda: old & value, "or": lambda: old | value, "xor": lambda: old ^ value,
    }  # fmt: skip
    return found[way]()
