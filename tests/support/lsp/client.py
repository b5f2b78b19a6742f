"""An editor for tests: it speaks the protocol with `lamella lsp` over pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Message = dict[str, Any]


class Editor:
    """A server in a process of its own, and what it has said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lamella", "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
        )
        self._number = 0
        self._notes: deque[Message] = deque()
        self._versions: dict[str, int] = {}
        self.capabilities = self.ask(
            "initialize",
            processId=None,
            rootUri=folder.as_uri(),
            capabilities={"general": {"positionEncodings": ["utf-16"]}},
            workspaceFolders=[{"uri": folder.as_uri(), "name": "test"}],
        )["capabilities"]
        self.tell("initialized")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            assert self.ask("shutdown") is None
            self.tell("exit")
            assert self._process.wait(10) == 0
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    # --- messages -------------------------------------------------------------------------------------------

    def _send(self, message: Message) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()

    def _receive(self) -> Message:
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the server has ended"
        found: Message = json.loads(self._process.stdout.read(length))
        return found

    def tell(self, method: str, **params: object) -> None:
        """A notification."""
        self._send({"method": method, "params": params})

    def answer(self, method: str, **params: object) -> Message:
        """A request, and the whole answer to it."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self._number and "method" not in message:
                return message
            self._notes.append(message)

    def ask(self, method: str, **params: object) -> Any:
        """A request, and the result of it."""
        message = self.answer(method, **params)
        assert "error" not in message, message["error"]
        return message["result"]

    # --- texts ----------------------------------------------------------------------------------------------

    def uri(self, name: str) -> str:
        """The address of a file of the folder."""
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str, language: str = "") -> None:
        """Show a text."""
        self._versions[name] = 1
        item = {"uri": self.uri(name), "languageId": language, "version": 1, "text": text}
        self.tell("textDocument/didOpen", textDocument=item)

    def change(self, name: str, text: str) -> None:
        """Show another text instead, and do not save it."""
        self._versions[name] += 1
        document = {"uri": self.uri(name), "version": self._versions[name]}
        self.tell("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])

    def findings(self, name: str) -> list[Message]:
        """What is said of the newest version of a text; waits for it."""
        while True:
            message = self._notes.popleft() if self._notes else self._receive()
            params = message.get("params", {})
            assert message.get("method") != "window/logMessage", params
            if message.get("method") != "textDocument/publishDiagnostics" or params["uri"] != self.uri(name):
                continue
            if params["version"] == self._versions[name]:
                found: list[Message] = params["diagnostics"]
                return found

    def at(self, name: str, text: str, words: str, shift: int = 0, number: int = 0) -> Message:
        """The parameters of a request about the place where words stand, `shift` code points behind their start."""
        offset = -1
        for _ in range(number + 1):
            offset = text.index(words, offset + 1)
        line = text.count("\n", 0, offset)
        before = text[text.rfind("\n", 0, offset) + 1 : offset + shift]
        position = {"line": line, "character": len(before.encode("utf-16-le")) // 2}
        return {"textDocument": {"uri": self.uri(name)}, "position": position}


def pick(text: str, place: Message) -> str:
    """What stands in a range, by the rules of the protocol: counted in UTF-16."""
    lines = text.split("\n")
    start, end = place["start"], place["end"]
    assert start["line"] == end["line"]
    units: bytes = lines[start["line"]].encode("utf-16-le")
    first, last = int(start["character"]), int(end["character"])
    return units[2 * first : 2 * last].decode("utf-16-le")
