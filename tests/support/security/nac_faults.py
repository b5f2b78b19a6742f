"""Three ways in which NAC files are written, and system calls that fail, are interrupted or end the process.

`python -m tests.support.security.nac_faults WRITER FOLDER` kills a writer at each of its system calls and says, as
JSON, what is left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lamella.base import writer
from lamella.base.diagnostic import errors
from lamella.bridge.nac_to_graph.convert_weights import with_external, with_internal
from lamella.bridge.nac_to_graph.weights import read_external
from lamella.lang.nac import File, open_file, save_file
from lamella.lang.nac import nodes as n
from lamella.lang.nac.files import open_assembly, save_assembly
from tests.base.test_writer import FaultyOs
from tests.support.lang.nac.models import perceptron

SIZE = 20_000


def version(number: int) -> File:
    """A file with large weights; those of another number differ in each byte, and so does the code."""
    weight = n.Tensor(1, 7, (SIZE, 1), n.Int8Tensor(0.5), bytes([number]) * SIZE)
    header = n.Header(internal=True, inputs=1, outputs=1, d_model=number, method=n.Method.INT8_CHANNEL)
    return replace(perceptron(), header=header, tensors=(weight, perceptron().tensors[1]))


OLD, NEW = version(1), version(2)


def _pair(path: Path, file: File) -> None:
    save_file(path, with_external(file, path))


def _text(path: Path, file: File) -> None:
    save_assembly(path, file)


def _read_pair(path: Path) -> File | str:
    opened = open_file(path)
    assert not opened.findings
    if opened.file.header.internal:
        return opened.file
    found = read_external(opened.file, path)
    if errors(found.findings):
        return "\n".join(map(str, found.findings))
    return with_internal(opened.file, found.tensors).file


def _read_file(path: Path) -> File:
    opened = open_file(path)
    assert not opened.findings
    return opened.file


def _read_text(path: Path) -> File:
    assembled = open_assembly(path)
    assert not assembled.findings
    return assembled.file


@dataclass(frozen=True, slots=True)
class Road:
    """How a file is written and read."""

    name: str
    write: Callable[[Path, File], None]
    read: Callable[[Path], File | str]

    def state(self, path: Path) -> str:
        """Whether the old file, the new one, none, or a message is what a reader gets."""
        if not path.exists():
            return "none"
        found = self.read(path)
        if isinstance(found, str):
            return found
        return {1: "old", 2: "new"}[found.header.d_model] if found in (OLD, NEW) else "broken"


ROADS: Mapping[str, Road] = {
    road.name: road
    for road in (
        Road("model.nac", save_file, _read_file),
        Road("model.nacs", _text, _read_text),
        Road("pair.nac", _pair, _read_pair),
    )
}


class InterruptedOs(FaultyOs):
    """The user presses a key at the n-th call."""

    def fail(self) -> None:
        """Interrupt what is done."""
        raise KeyboardInterrupt


class KilledOs(FaultyOs):
    """The process ends at the n-th call, without a chance to tidy up."""

    def fail(self) -> None:
        """End here."""
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def calls_through(layer: FaultyOs) -> Iterator[None]:
    """The writer makes its system calls through a layer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "os", layer)
        yield


def kill_at(road: Road, path: Path, number: int) -> bool:
    """Write in a process that ends at its n-th call; whether it came that far."""
    child = os.fork()
    if child == 0:
        with calls_through(KilledOs(os, number, 0)):
            road.write(path, NEW)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(name: str, folder: Path) -> None:
    """Kill writers at their first call, their second call and so on until one comes through."""
    os.fsync = lambda fd: None  # slow, and seen only where the power fails
    road, told = ROADS[name], list[tuple[str, list[str]]]()
    number, killed = 0, True
    while killed:
        number += 1
        road.write(folder / name, OLD)
        told.append((road.state(folder / name), sorted(os.listdir(folder))))
        killed = kill_at(road, folder / name, number)
        told.append((road.state(folder / name), sorted(os.listdir(folder))))
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
