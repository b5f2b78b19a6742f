"""What ranks exchange arrays with: processes through gloo or NCCL, or threads of one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lamella.base.errors import InputError
from lamella.base.optional import Foreign, need

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lamella.base.arrays import Array

PATIENCE = timedelta(minutes=30)
"""How long a rank waits for the others: one may still compile while another has begun."""
MOMENT = 0.05
"""Seconds after which a thread that waits looks whether another one has ended."""
JOINING = timedelta(minutes=2)
"""How long it waits for them to come."""


_DTYPES = ("<f4", "<f8", "<i8", "<i4", "|i1", "|u1", "|b1", "<i2")
"""Types of what is sent to one rank."""
_HEADING = 10
"""Numbers in front of an array that is sent: its type, how many dimensions it has, their extents."""


class RankLostError(InputError):
    """Another rank has ended in the middle of a run."""


class Transport(Protocol):
    """The place of a process among others, and what they do together; all ranks of a group call the same in order."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def size(self) -> int:
        """How many there are."""

    def all_reduce(self, array: Array, group: Sequence[int]) -> Array:
        """The sum of the arrays of a group."""

    def begin_all_reduce(self, array: Array, group: Sequence[int]) -> Callable[[], Array]:
        """Begin to sum; what is given waits for the sum."""

    def all_gather(self, array: Array, group: Sequence[int], dim: int) -> Array:
        """The arrays of a group, one behind the other along a dimension."""

    def reduce_scatter(self, array: Array, group: Sequence[int], dim: int) -> Array:
        """The slice of this rank, along a dimension, of the sum of the arrays of a group."""

    def all_to_all(self, array: Array, group: Sequence[int], dim: int, to: int) -> Array:
        """What is cut along a dimension, cut along another one."""

    def send(self, array: Array, rank: int) -> None:
        """Send an array to a rank, without waiting for it; it takes all that it is sent in their order."""

    def receive(self, rank: int) -> Array:
        """The next array that a rank sends."""

    def close(self) -> None:
        """Leave."""


def exchange_slices(transport: Transport, array: Array, group: Sequence[int], dim: int, to: int) -> Array:
    """What is cut along a dimension, cut along another one: each rank sends a part to each other."""
    parts = np.split(array, len(group), to)
    for rank, part in zip(group, parts, strict=True):
        if rank != transport.rank:
            transport.send(part, rank)
    own = list(group).index(transport.rank)
    found = [parts[own] if rank == transport.rank else transport.receive(rank) for rank in group]
    joined: Array = np.concatenate(found, dim)
    return joined


# --- processes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """What carries the arrays of collectives between processes: gloo from host memory, or NCCL from GPUs."""

    name: str = "gloo"
    device: str = "cpu"
    reason: str = ""
    """Why it is not NCCL, where GPUs compute."""


def choose_link(backend: str | None, local_rank: int, local_ranks: int) -> Link:
    """NCCL where a GPU computes for each rank of this machine, which sees that one alone from here on; else gloo."""
    if backend != "cuda":
        return Link()
    torch: Foreign = need("torch")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < local_ranks:
        return Link(reason=f"torch sees {count} GPUs for {local_ranks} ranks, and NCCL takes one for each")
    if not torch.distributed.is_nccl_available():
        return Link(reason="this torch has no NCCL")
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = seen[local_rank]
    return Link("nccl", "cuda")


class Processes:
    """Processes that meet at an address and exchange through `torch.distributed`.

    What one sends to another goes through gloo always: NCCL would have both sides queue their sends alike.
    """

    def __init__(self, rank: int, size: int, address: str = "env://", link: Link | None = None) -> None:
        self._torch: Foreign = need("torch")
        self._distributed: Foreign = need("torch.distributed")
        self.rank, self.size, self.link = rank, size, link or Link()
        self._groups: dict[tuple[int, ...], Foreign] = {}
        self._sent: list[tuple[Foreign, Foreign]] = []
        """What is on its way, with what holds its numbers."""
        self._all: Foreign = None
        """The group of all ranks, for what one sends to another."""
        with self._telling():
            self._distributed.init_process_group(
                self.link.name, init_method=address, rank=rank, world_size=size, timeout=JOINING
            )

    def prepare(self, groups: Sequence[Sequence[int]], fewest: int = 2) -> None:
        """Make groups, which every rank does for all of them and in the same order, also for those of others.

        Groups of fewer ranks exchange nothing.
        """
        with self._telling():
            self._all = self._distributed.new_group(timeout=PATIENCE, backend="gloo")
            for group in groups:
                ranks = tuple(group)
                if len(ranks) >= fewest and ranks not in self._groups:
                    self._groups[ranks] = self._distributed.new_group(list(ranks), timeout=PATIENCE)

    def _is_alone(self, group: Sequence[int]) -> bool:
        """Whether a group is one rank that exchanges with nobody, not even through the link."""
        return len(group) < 2 and tuple(group) not in self._groups

    def all_reduce(self, array: Array, group: Sequence[int]) -> Array:
        """The sum of the arrays of a group, which `prepare` made."""
        return self.begin_all_reduce(array, group)()

    def begin_all_reduce(self, array: Array, group: Sequence[int]) -> Callable[[], Array]:
        """Begin to sum; what is given waits for the sum."""
        if self._is_alone(group):
            return lambda: array
        held = self._tensor(array)
        with self._telling():
            work = self._distributed.all_reduce(held, group=self._groups[tuple(group)], async_op=True)

        def wait() -> Array:
            with self._telling():
                work.wait()
            return self._array(held)

        return wait

    def all_gather(self, array: Array, group: Sequence[int], dim: int) -> Array:
        """The arrays of a group, one behind the other along a dimension."""
        if self._is_alone(group):
            return array
        held = self._tensor(array)
        parts = [self._torch.empty_like(held) for _ in group]
        with self._telling():
            self._distributed.all_gather(parts, held, group=self._groups[tuple(group)])
        found: Array = np.concatenate([self._array(item) for item in parts], dim)
        return found

    def reduce_scatter(self, array: Array, group: Sequence[int], dim: int) -> Array:
        """The slice of this rank, along a dimension, of the sum of the arrays of a group."""
        if self._is_alone(group):
            return array
        parts = [self._tensor(item) for item in np.split(array, len(group), dim)]
        own = self._torch.empty_like(parts[0])
        with self._telling():
            self._distributed.reduce_scatter(own, parts, group=self._groups[tuple(group)])
        return self._array(own)

    def all_to_all(self, array: Array, group: Sequence[int], dim: int, to: int) -> Array:
        """What is cut along a dimension, cut along another one."""
        if self._is_alone(group):
            return array
        held = self._tensor(np.stack(np.split(array, len(group), to)))
        found = self._torch.empty_like(held)
        with self._telling():
            self._distributed.all_to_all_single(found, held, group=self._groups[tuple(group)])
        joined: Array = np.concatenate(list(self._array(found)), dim)
        return joined

    def send(self, array: Array, rank: int) -> None:
        """Send an array to a rank, without waiting for it: its shape first, then its numbers."""
        shape = [_DTYPES.index(array.dtype.str), array.ndim, *array.shape]
        heading = self._held(np.array(shape + [0] * (_HEADING - len(shape)), np.int64))
        with self._telling():
            self._sent = [item for item in self._sent if not item[0].is_completed()]
            for held in (heading, self._held(array).reshape(-1)):
                if held.numel():
                    self._sent.append((self._distributed.isend(held, rank, group=self._all), held))

    def receive(self, rank: int) -> Array:
        """The next array that a rank sends."""
        heading = self._torch.empty(_HEADING, dtype=self._torch.int64)
        with self._telling():
            self._distributed.recv(heading, rank, group=self._all)
            kind, count, *extents = heading.tolist()
            found: Array = np.empty(extents[:count], _DTYPES[kind])
            if found.size:
                self._distributed.recv(self._torch.from_numpy(found.reshape(-1)), rank, group=self._all)
        return found

    def _held(self, array: Array) -> Foreign:
        """A copy of an array in host memory, which nobody changes while it is sent."""
        return self._torch.from_numpy(np.array(array, order="C"))

    def _tensor(self, array: Array) -> Foreign:
        """A copy of an array where the link takes it."""
        return self._held(array).to(self.link.device)

    def _array(self, tensor: Foreign) -> Array:
        found: Array = tensor.cpu().numpy()
        return found

    def finish(self) -> None:
        """Wait until all that was sent has left and all ranks have come here: who leaves early takes it along."""
        with self._telling():
            for work, _ in self._sent:
                work.wait()
            self._sent.clear()
            self._distributed.barrier(group=self._all)

    def close(self) -> None:
        """Leave; who still exchanges with this rank has lost it."""
        if self._distributed.is_initialized():
            self._distributed.destroy_process_group()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Say that a rank is gone where the exchange finds so."""
        try:
            yield
        except RuntimeError as problem:
            reason = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
            raise RankLostError(f"rank {self.rank} has lost another rank: {reason}") from None


def given_place(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """The rank of this process and the number of all, where a launcher such as torchrun started it."""
    words = [environment.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    if not all(words) or "MASTER_ADDR" not in environment:
        return None
    if not all(word.isdecimal() and len(word) < 7 for word in words) or int(words[0]) >= int(words[1]):
        raise InputError("RANK and WORLD_SIZE of the environment are no place among ranks")
    return int(words[0]), int(words[1])


# --- threads ----------------------------------------------------------------------------------------------------


class Meeting:
    """Where threads exchange: one barrier for each group, and what each has brought."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._barriers: dict[tuple[int, ...], threading.Barrier] = {}
        self._brought: dict[tuple[int, ...], dict[int, Array]] = {}
        self._queues: dict[tuple[int, int], SimpleQueue[Array]] = {}
        self._ended = False

    def exchange(self, rank: int, array: Array, group: tuple[int, ...]) -> list[Array]:
        """What all of a group have brought, in their order."""
        with self._lock:
            barrier = self._barriers.setdefault(group, threading.Barrier(len(group)))
            brought = self._brought.setdefault(group, {})
        brought[rank] = array
        self._wait(barrier)
        found = [brought[item] for item in group]
        self._wait(barrier)  # nobody brings the next one before all have seen this one
        return found

    def queue(self, sender: int, receiver: int) -> SimpleQueue[Array]:
        """What one has sent to another."""
        with self._lock:
            return self._queues.setdefault((sender, receiver), SimpleQueue())

    def take(self, sender: int, receiver: int) -> Array:
        """The next array that one sends to another."""
        waiting = self.queue(sender, receiver)
        while not self._ended:
            with suppress(Empty):
                return waiting.get(timeout=MOMENT)
        raise RankLostError("a rank has lost another rank")

    def end(self) -> None:
        """Let nobody wait any longer."""
        with self._lock:
            self._ended = True
            for barrier in self._barriers.values():
                barrier.abort()

    @staticmethod
    def _wait(barrier: threading.Barrier) -> None:
        try:
            barrier.wait(PATIENCE.total_seconds())
        except threading.BrokenBarrierError:
            raise RankLostError("a rank has lost another rank") from None


def _total(parts: Sequence[Array]) -> Array:
    total = np.array(parts[0])
    for item in parts[1:]:
        total += item
    return total


class Threads:
    """The place of one thread in a meeting."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting, self.rank, self.size = meeting, rank, meeting.size

    def all_reduce(self, array: Array, group: Sequence[int]) -> Array:
        """The sum of the arrays of a group, in the order of its ranks."""
        if len(group) < 2:
            return array
        return _total(self._meeting.exchange(self.rank, array, tuple(group)))

    def begin_all_reduce(self, array: Array, group: Sequence[int]) -> Callable[[], Array]:
        """Begin to sum; what is given waits for the sum."""
        copied = np.array(array)
        return lambda: self.all_reduce(copied, group)

    def all_gather(self, array: Array, group: Sequence[int], dim: int) -> Array:
        """The arrays of a group, one behind the other along a dimension."""
        if len(group) < 2:
            return array
        found: Array = np.concatenate(self._meeting.exchange(self.rank, array, tuple(group)), dim)
        return found

    def reduce_scatter(self, array: Array, group: Sequence[int], dim: int) -> Array:
        """The slice of this rank, along a dimension, of the sum of the arrays of a group."""
        total = self.all_reduce(array, group)
        return np.split(total, len(group), dim)[list(group).index(self.rank)]

    def all_to_all(self, array: Array, group: Sequence[int], dim: int, to: int) -> Array:
        """What is cut along a dimension, cut along another one."""
        return exchange_slices(self, array, group, dim, to)

    def send(self, array: Array, rank: int) -> None:
        """Send an array to a rank, without waiting for it."""
        self._meeting.queue(self.rank, rank).put(np.array(array))

    def receive(self, rank: int) -> Array:
        """The next array that a rank sends."""
        return self._meeting.take(rank, self.rank)

    def close(self) -> None:
        """Leave: who still waits is told."""
        self._meeting.end()


def run_threads(size: int, work: Callable[[Threads], object]) -> list[object]:
    """What work gives in each of some threads, which may exchange; the first failure of one is raised."""
    meeting = Meeting(size)

    def run(rank: int) -> object:
        is_done = False
        try:
            found = work(Threads(meeting, rank))
            is_done = True
            return found
        finally:
            if not is_done:
                meeting.end()

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    failures = [item for item in (future.exception() for future in futures) if item is not None]
    if failures:
        raise next((item for item in failures if not isinstance(item, RankLostError)), failures[0])
    return [item.result() for item in futures]
