"""What leaves a plan: lines on a terminal, and files."""

from __future__ import annotations

from types import MappingProxyType

from lamella.backend.mep.faults import fault
from lamella.backend.mep.host import PRINT, WRITE
from lamella.backend.mep.state import Actions, State
from lamella.backend.mep.values import Value, as_text, show, shown_bytes
from lamella.lang.nac.check.sections import opcodes

_FILE = 2
_APPEND, _NO_NEWLINE = 1, 2
_STREAMS = ("stdout", "stderr")


def _debug(state: State, numbers: tuple[int, ...]) -> None:
    source, id_ = numbers
    value = state.read(source)
    _print(state, "stderr", f"{state.text(id_)} {_worded(state, value)}\n")


def _write(state: State, numbers: tuple[int, ...]) -> None:
    source, kind, slot, mode = numbers
    value = state.read(source)
    if kind == _FILE:
        _write_file(state, as_text(state.read(slot)), value, mode == _APPEND)
        return
    end = "" if mode == _NO_NEWLINE else "\n"
    if isinstance(value, bytes):
        raise fault("prints a picture", "write it to a file")
    _print(state, _STREAMS[kind], _worded(state, value) + end)


def _worded(state: State, value: Value) -> str:
    state.keep_room(shown_bytes([value]))
    return show(value)


def _print(state: State, stream: str, text: str) -> None:
    action = f"prints on {stream}"
    state.allow(PRINT, action)
    state.emit(len(text))
    state.ask(action, lambda: state.around.host.print_text(stream, text))


def _write_file(state: State, path: str, value: Value, append: bool) -> None:
    action = f"writes '{path}'"
    state.allow_path(WRITE, action, path)
    data = value if isinstance(value, bytes) else _worded(state, value).encode("utf-8", "replace")
    state.emit(len(data))
    state.ask(action, lambda: state.around.host.write_file(path, data, append))


OUTPUT: Actions = MappingProxyType({opcodes.DEBUG_PRINT: _debug, opcodes.WRITE: _write})
"""Instructions that print and write."""
