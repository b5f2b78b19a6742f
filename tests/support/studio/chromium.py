"""A real Chromium, driven through the DevTools protocol on a pipe: clicks, keys, pictures, frame times."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0
"""Seconds that an answer may take."""
BUTTON = {"button": "left", "clickCount": 1}


class Chromium:
    """A browser with one page."""

    def __init__(self, width: int = 1500, height: int = 950) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="studio-", ignore_cleanup_errors=True)
        read_by_it, self._to = os.pipe()
        self._from, written_by_it = os.pipe()
        words = [
            "chromium",
            *FLAGS,
            f"--window-size={width},{height}",
            f"--user-data-dir={self._folder.name}",
        ]
        command = f"exec {shlex.join([*words, 'about:blank'])} 3<&{read_by_it} 4>&{written_by_it}"
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", command],
            pass_fds=(read_by_it, written_by_it),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_by_it)
        os.close(written_by_it)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.events: list[Mapping[str, object]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        assert isinstance(targets, list)
        page = next(item["targetId"] for item in targets if item["type"] == "page")
        found = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = str(found["sessionId"])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    # --- the protocol -----------------------------------------------------------------------------------------

    def call(self, method: str, **parameters: object) -> dict[str, object]:
        """Ask for something, and wait for the answer; events that come first are kept."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result = answer["result"]
                assert isinstance(result, dict)
                return result
            self.events.append(answer)
        raise TimeoutError(method)

    def _next(self) -> dict[str, object]:
        while b"\0" not in self._rest:
            got = os.read(self._from, 1 << 16)
            assert got, "the browser has ended"
            self._rest += got
        text, _, self._rest = self._rest.partition(b"\0")
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def wait_for(self, method: str) -> dict[str, object]:
        """The next event of a kind."""
        while True:
            for place, event in enumerate(self.events):
                if event.get("method") == method:
                    del self.events[place]
                    found = event.get("params", {})
                    assert isinstance(found, dict)
                    return found
            self.events.append(self._next())

    # --- pages ------------------------------------------------------------------------------------------------

    def open(self, path: Path, mode: str = "") -> float:
        """Load a page until it says that it is ready; gives the seconds of that."""
        self.events.clear()
        begun = time.monotonic()
        self.call("Page.navigate", url=f"{path.as_uri()}{mode}")
        while self.run("document.body && document.body.dataset.ready") != "true":
            assert time.monotonic() - begun < PATIENCE, self.problems()
            time.sleep(0.02)
        return time.monotonic() - begun

    def run(self, script: str) -> object:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        result = found["result"]
        assert isinstance(result, dict)
        return result.get("value")

    def problems(self) -> list[str]:
        """What the page logged: errors, refusals of its policy."""
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [json.dumps(event) for event in self.events if event.get("method") in kinds]

    def click(self, x: float, y: float, count: int = 1) -> None:
        """Press and release at a place."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            parts = {} if kind == "mouseMoved" else {**BUTTON, "clickCount": count}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **parts)
        self.settle()

    def click_on(self, selector: str) -> None:
        """Click the middle of an element."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{found}.scrollIntoView({{block: 'nearest'}})")
        middle = "[b.left + b.width / 2, b.top + b.height / 2]"
        box = self.run(f"((b) => {middle})({found}.getBoundingClientRect())")
        assert isinstance(box, list)
        self.click(float(box[0]), float(box[1]))

    def drag(self, points: Sequence[tuple[float, float]]) -> None:
        """Press at the first of some places, move over the others, release at the last."""
        (x, y), *rest = points
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **BUTTON)
        for x, y in rest:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, buttons=1, button="left")
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **BUTTON)
        self.settle()

    def wheel(self, x: float, y: float, amount: float) -> None:
        """Turn the wheel."""
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=amount)
        self.settle()

    def type(self, text: str) -> None:
        """Type letters into what has the focus."""
        self.call("Input.insertText", text=text)
        self.settle()

    def press(self, key: str) -> None:
        """Press a key by its name."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def settle(self) -> None:
        """Wait for two frames."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def text(self, selector: str) -> str:
        """The text of an element."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def data(self, name: str) -> str:
        """What the page says of itself."""
        return str(self.run(f"document.body.dataset[{json.dumps(name)}] ?? ''"))

    def picture(self, path: Path) -> None:
        """Write what is seen as PNG."""
        found = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(str(found["data"])))

    @contextmanager
    def tracing(self) -> Iterator[list[dict[str, object]]]:
        """The events of a trace, there when the block has ended."""
        found: list[dict[str, object]] = []
        self.call("Tracing.start", categories="devtools.timeline,toplevel", transferMode="ReportEvents")
        yield found
        self.events.clear()
        self.call("Tracing.end")
        self.wait_for("Tracing.tracingComplete")
        for event in self.events:
            if event.get("method") == "Tracing.dataCollected":
                parameters = event["params"]
                assert isinstance(parameters, dict)
                found += parameters["value"]
