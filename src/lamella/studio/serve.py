"""`view --serve`: the page from this machine alone, made anew when a file changes."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.page import article, text

HOST = "127.0.0.1"
MOST_FILES = 2000


def stamps(paths: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    """When files were written, and how large they are; of folders what is in them."""
    found = []
    for path in paths:
        for item in sorted(path.rglob("*"))[:MOST_FILES] if path.is_dir() else [path]:
            try:
                state = item.stat()
            except OSError:
                continue
            found.append((str(item), state.st_mtime_ns, state.st_size))
    return tuple(found)


class Live:
    """A page that is made again when one of its files has changed; what is wrong then is its page."""

    def __init__(self, paths: Iterable[Path], make: Callable[[str], str]) -> None:
        self.token = secrets.token_urlsafe(16)
        self._paths = tuple(paths)
        self._make = make
        self._lock = threading.Lock()
        self._seen: object = None
        self._page = ""
        self.version = 0

    def refresh(self) -> str:
        """The page of the files as they are now."""
        with self._lock:
            now = stamps(self._paths)
            if now != self._seen:
                self._seen = now
                self.version += 1
                self._page = self._written()
            return self._page

    def _written(self) -> str:
        try:
            return self._make(f"/{self.token}/version/{self.version}")
        except LamellaError as problem:
            lines = "".join(f"<p>{text(item.message)}</p>" for item in problem.findings)
            return article("lamella view", [f"<h2>What is wrong</h2>{lines}"])


def make_server(live: Live) -> ThreadingHTTPServer:
    """A server of this page on the loopback; it answers only who knows its address."""

    class Handler(BaseHTTPRequestHandler):
        """Answers for the page and for its version."""

        def do_GET(self) -> None:
            """Give the page, or say whether a version is still that of the files."""
            host = (self.headers.get("Host") or "").partition(":")[0]
            parts = self.path.strip("/").split("/")
            if host not in (HOST, "localhost") or not secrets.compare_digest(parts[0], live.token):
                self.send_error(404)
                return
            page = live.refresh()
            if parts[1:2] == ["version"]:
                same = parts[2:] == [str(live.version)]
                self._give("same" if same else "changed", "text/plain")
            else:
                self._give(page, "text/html")

        def _give(self, body: str, kind: str) -> None:
            data = body.encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    return ThreadingHTTPServer((HOST, 0), Handler)
