"""`lamella` and `python` of a shell session as forks of one process that has imported everything already.

Each command is a process of its own, with its own folder, environment and streams, as it is for a user; only the second
of imports before it is spent once. How a fresh interpreter starts is judged in tests/house/test_startup.py.
"""

from __future__ import annotations

import array
import gc
import importlib
import marshal
import os
import pkgutil
import resource
import runpy
import selectors
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.repository import ROOT

# Its modules are those that start in half the time of `json` and `socket`.
SHIM = """#!{python} -IS
import _socket, array, marshal, os, resource, sys
door = _socket.socket(_socket.AF_UNIX)
door.connect({door!r})
largest = resource.getrlimit(resource.RLIMIT_FSIZE)
words = marshal.dumps([{program!r}, sys.argv[1:], os.getcwd(), dict(os.environ), largest])
streams = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
door.sendmsg([len(words).to_bytes(8, "little")], streams)
door.sendall(words)
status = door.recv(4)
sys.exit(int.from_bytes(status, "little") if len(status) == 4 else 3)
"""


@contextmanager
def commands_by_fork(folder: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a shell in which `lamella` and `python` are forks, while the process lives that they leave."""
    door = str(folder / "door")
    for name in ("lamella", "python", "python3"):
        shim = folder / name
        shim.write_text(SHIM.format(python=sys.executable, door=door, program=name), encoding="utf-8")
        shim.chmod(0o755)
    command = [sys.executable, "-m", "tests.support.forked", door]
    server = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    with server:
        assert server.stdout.readline() == b"ready\n"
        yield environment | {"PATH": os.pathsep.join([str(folder), environment["PATH"]])}
        server.kill()


Lamella = Callable[..., subprocess.CompletedProcess[str]]
"""The command: its words, `data` for its standard input, and what to `prepare` in the process before it begins."""


def run_lamella(
    shell: dict[str, str],
    *arguments: str | Path,
    data: bytes | None = None,
    prepare: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, in the root of the repository, and never see a traceback of it."""
    done = subprocess.run(
        ["lamella", *map(str, arguments)],
        executable=shutil.which("lamella", path=shell["PATH"]),
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        cwd=ROOT,
        env=shell,
        preexec_fn=prepare,
        timeout=60,
        check=False,
    )
    found = subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )
    assert "Traceback" not in found.stderr
    assert "internal error" not in found.stderr, found.stderr
    return found


def small_disk() -> None:
    """No file of this process may grow beyond a kilobyte: what a full disk does, without the disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


def serve(door: str) -> None:
    """Import the package, then fork once for each command that comes through the door."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(door)
        listener.listen(16)
        _import_all()
        _import_torch()
        _read_shipped()
        # What exists by now is shared with every fork: no collection of garbage in one shall write to it.
        gc.collect()
        gc.freeze()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        _answer_all(listener)


def _answer_all(listener: socket.socket) -> None:
    with selectors.DefaultSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.data is None:
                    connection, _ = listener.accept()
                    process = _begin(connection)
                    waiting.register(os.pidfd_open(process), selectors.EVENT_READ, (process, connection))
                else:
                    waiting.unregister(key.fileobj)
                    os.close(key.fd)
                    _end(*key.data)


def _import_all() -> None:
    package = importlib.import_module("lamella")
    for module in pkgutil.walk_packages(package.__path__, "lamella."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    sys.path.remove(os.getcwd())  # what `-m` put there


def _import_torch() -> None:
    """Import what exports and reads modules of PyTorch: three seconds for each command that does."""
    for name in ("torch", "torch._dynamo", "torch._export.serde.serialize", "torch.export._trace"):
        importlib.import_module(name)


def _read_shipped() -> None:
    """Read the files of the package that most commands read, which a process keeps."""
    importlib.import_module("lamella").check(ROOT / "examples" / "llama" / "page.module")


def _begin(connection: socket.socket) -> int:
    """Run one command in a process of its own, whose number it gives: one fork, which takes 20 ms beside torch."""
    size, streams = _receive(connection)
    program, words, cwd, environment, largest = marshal.loads(_exactly(connection, size))
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        return child
    connection.close()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    resource.setrlimit(resource.RLIMIT_FSIZE, largest)
    for number, (stream, name) in enumerate(zip(streams, ("stdin", "stdout", "stderr"), strict=True)):
        os.dup2(stream, number)
        os.close(stream)
        setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    os._exit(_run(program, words))


def _end(process: int, connection: socket.socket) -> None:
    """Send the status of a command that has ended, as a shell counts it."""
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with connection, suppress(OSError):  # who waited for it may be gone
        connection.sendall((status if status >= 0 else 128 - status).to_bytes(4, "little"))


def _receive(connection: socket.socket) -> tuple[int, list[int]]:
    handles = array.array("i")
    text, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_LEN(3 * handles.itemsize))
    for _, _, data in ancillary:
        handles.frombytes(data)
    return int.from_bytes(text, "little"), list(handles)


def _exactly(connection: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    return text


def _run(program: str, words: list[str]) -> int:
    """The status with which a program ends; its exceptions are printed as the interpreter prints them."""
    try:
        if program == "lamella":
            sys.argv = ["lamella", *words]
            importlib.import_module("lamella.cli").main()
        elif words[:1] == ["-m"]:
            sys.argv = words[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[:1] == ["-c"]:
            sys.argv = ["-c", *words[2:]]
            sys.path.insert(0, "")
            names: dict[str, Any] = {"__name__": "__main__"}
            exec(compile(words[1], "<string>", "exec"), names)
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).resolve().parent))
            runpy.run_path(words[0], run_name="__main__")
        sys.stdout.flush()
        status = 0
    except SystemExit as end:
        status = _status(end.code)
    except BaseException:  # noqa: BLE001  whatever ends a program is what its user sees
        traceback.print_exc()
        status = 1
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return status


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


if __name__ == "__main__":
    serve(sys.argv[1])
