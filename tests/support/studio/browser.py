"""Opening a page in headless Chromium and reading back what it says of itself."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--enable-logging=stderr",
    "--window-size=1400,1000",
    "--virtual-time-budget=5000",
    "--dump-dom",
)


class _Body(HTMLParser):
    """The data of the body, the text of each element with an id outside of templates, the number of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.scripts = 0
        self._open: list[str] = []
        self._templates = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.scripts += tag == "script"
        if tag == "body":
            self.data = {name[5:]: value for name, value in found.items() if name.startswith("data-")}
        self._templates += tag == "template"
        if "id" in found and not self._templates:
            self._open.append(found["id"])
            self.texts[found["id"]] = ""

    def handle_endtag(self, tag: str) -> None:
        self._templates -= tag == "template"

    def handle_data(self, data: str) -> None:
        if self._open and not self._templates:
            self.texts[self._open[-1]] += data


@dataclass(frozen=True, slots=True)
class Opened:
    """A page after its script has run."""

    data: dict[str, str]
    texts: dict[str, str]
    scripts: int
    console: tuple[str, ...]


def open_page(page: str, folder: Path, mode: str = "") -> Opened:
    """Load a page from a file, with a #mode, and give what is in it afterwards."""
    path = folder / "page.html"
    path.write_text(page, "utf-8")
    done = subprocess.run(
        ["chromium", *FLAGS, f"--user-data-dir={folder / 'profile'}", f"{path.as_uri()}{mode}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    body = _Body()
    body.feed(done.stdout)
    console = tuple(line for line in done.stderr.splitlines() if re.search(r"CONSOLE|Uncaught|Refused", line))
    texts = {name: text.strip() for name, text in body.texts.items()}
    return Opened(body.data, texts, body.scripts, console)
