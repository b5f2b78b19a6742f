"""Ranks as processes of this machine: the first is the one that was called, which starts the others."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.paths import is_there, read_text
from lamella.base.writer import write_text
from lamella.train.ranks.mesh import SHARED, Mesh
from lamella.train.ranks.trainer import World
from lamella.train.ranks.transport import Processes, RankLostError, Transport, choose_link, given_place

Work = Callable[[World], object]
"""What every rank does; it is sent to other processes, so it is a function of a module with arguments bound."""
LOST = 3
"""The status of a rank that ended because another one was missing."""
GRACE = 5.0
"""Seconds that a rank has to end after another one has."""


@contextmanager
def joined(mesh: Mesh, work: Work, backend: str | None = None) -> Iterator[World]:
    """This process as a rank of a mesh: the rank that a launcher says, else the first, with others that do `work`.

    Where the backend computes on GPUs, arrays go between them where there are enough.
    """
    place = given_place()
    if place is not None:
        rank, size = place
        if size != mesh.size:
            raise InputError(f"{size} processes were started for the {mesh.size} ranks of {mesh}")
        own, all_ = (int(os.environ.get(name, "0") or 0) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
        with _world(mesh, Processes(rank, size, link=choose_link(backend, own, all_ or size))) as world:
            yield world
        return
    with tempfile.TemporaryDirectory(prefix="lamella-ranks-") as folder:
        address = _address(Path(folder))
        with _others(mesh, work, Path(folder), backend):
            link = choose_link(backend, 0, mesh.size)
            with _world(mesh, Processes(0, mesh.size, address, link)) as world:
                yield world


@contextmanager
def _world(mesh: Mesh, transport: Processes) -> Iterator[World]:
    """The mesh with its groups."""
    try:
        axes = [*((axis,) for axis in mesh.extents), SHARED]
        transport.prepare([mesh.group(rank, *item) for item in axes for rank in range(mesh.size)])
        yield World(mesh, transport)
        transport.finish()
    finally:
        transport.close()


@contextmanager
def _others(mesh: Mesh, work: Work, folder: Path, backend: str | None) -> Iterator[None]:
    """All ranks but the first as processes, which end with it; one that is lost is named."""
    others = [_start(mesh, work, rank, folder, backend) for rank in range(1, mesh.size)]
    patience = 0.0
    try:
        yield
        patience = GRACE
    except RankLostError as problem:
        raise _explained(problem, others, folder) from None
    finally:
        _end(others, patience)


def _start(mesh: Mesh, work: Work, rank: int, folder: Path, backend: str | None) -> Popen[bytes]:
    """A process that is another rank; it gets its work through its input, and says nothing."""
    found = Popen([sys.executable, "-m", "lamella.train.ranks.process"], stdin=PIPE, stdout=DEVNULL)
    if found.stdin is not None:
        found.stdin.write(pickle.dumps((mesh, work, rank, folder, backend)))
        found.stdin.close()
    return found


def _address(folder: Path) -> str:
    """Where ranks meet."""
    return f"file://{folder / 'meeting'}"


def _words(folder: Path, rank: int) -> Path:
    """Where a rank says why it ended."""
    return folder / f"rank-{rank}.txt"


def be_rank(mesh: Mesh, work: Work, rank: int, folder: Path, backend: str | None) -> int:
    """The life of another rank: silent; where it fails by itself the first rank says why. Gives its status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first rank is told, and ends the others
    try:
        link = choose_link(backend, rank, mesh.size)
        with _world(mesh, Processes(rank, mesh.size, _address(folder), link)) as world:
            work(world)
    except RankLostError:
        return LOST
    except LamellaError as problem:
        write_text(_words(folder, rank), str(problem))
        return 1
    return 0


def _explained(problem: RankLostError, others: Sequence[Popen[bytes]], folder: Path) -> InputError:
    """What became of the rank that was lost."""
    codes = [_status(item, GRACE) for item in others]
    # A rank that found another one missing ends by itself: it is not the one that began.
    ended = [(number, code) for number, code in enumerate(codes, 1) if code not in (0, LOST, None)]
    if not ended:
        return problem
    number, code = ended[0]
    how = f"was killed by signal {-code}" if (code or 0) < 0 else f"ended with status {code}"
    if is_there(_words(folder, number)):
        how = f"ended with {read_text(_words(folder, number))[:400]}"
    hint = "checkpoints that were kept are whole: the same command with --resume goes on behind the last"
    return InputError(f"rank {number} {how}, and the training ended", hint=hint)


def _status(process: Popen[bytes], patience: float) -> int | None:
    """How a process ended; None where it goes on."""
    with suppress(TimeoutExpired):
        return process.wait(patience)
    return None


def _end(processes: Sequence[Popen[bytes]], patience: float) -> None:
    for item in processes:
        if _status(item, patience) is None:
            item.terminate()
        if _status(item, GRACE) is None:
            item.kill()
            item.wait()


__all__ = ["Transport", "Work", "be_rank", "joined"]
