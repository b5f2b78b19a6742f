"""Fault injection: a training is killed at random moments and goes on, until it is done."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.train.checkpoints import checkpoint_folder, read_checkpoint, read_last

LIMIT = 1800.0
"""Seconds that one process may take: only one that hangs needs so many, on a busy machine too."""
LATE = 0.03
"""Seconds within which a process is killed that was waited for."""


@dataclass
class CampaignResult:
    """What killing did."""

    kills: int = 0
    torn: list[str] = field(default_factory=list)
    """Files with the name of a checkpoint that cannot be read."""
    resumable: int = 0
    """Kills behind which the newest checkpoint is no older than the one before them."""
    resumed: list[int] = field(default_factory=list)
    """Steps behind which runs went on that were not killed."""
    is_equal: bool = True
    """Whether losses and weights are those of a run that nobody killed, of every run that came to its end."""


class Campaign:
    """A training that is killed again and again.

    Moments are those of the process's own clock, the time that it computed: a busy machine changes none of them.
    """

    def __init__(
        self, model: Path, data: Path, folder: Path, steps: int, seed: int, backend: str = "cpu"
    ) -> None:
        self._folder, self._target = folder, folder / "killed.safetensors"
        self._random = random.Random(seed)
        sizes = ["--steps", str(steps), "--batch", "2", "--sequence", "8", "--save-every", "1", "--shuffle"]
        self._words = [
            *(sys.executable, "-m", "lamella", "train", str(model), "--data", str(data)),
            *(*sizes, "--backend", backend, "--json"),
        ]
        self._whole: dict[str, object] = {}
        self._seconds = 0.0
        """What the run that nobody kills computes."""

    def run(self, kills: int, told: Callable[[CampaignResult], None] = lambda found: None) -> CampaignResult:
        """Kill so many processes, every other one behind its first new checkpoint; then let one finish.

        `told` is called behind each kill.
        """
        found = CampaignResult()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = usage.ru_utime + usage.ru_stime
        self._whole = self._finish("whole.safetensors")
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._seconds = usage.ru_utime + usage.ru_stime - start
        while found.kills < kills:
            before = self._last_step()
            if not self._kill(is_late=found.kills % 2 == 1):
                self._compare(found)
                shutil.rmtree(checkpoint_folder(self._target))
                continue
            found.kills += 1
            found.torn += self._torn()
            found.resumable += self._last_step() >= before
            told(found)
        self._compare(found)
        return found

    def _compare(self, found: CampaignResult) -> None:
        """Let a run come to its end, and compare what it made with what nobody killed."""
        last = self._finish(self._target.name, "--resume")
        found.resumed.append(int(str(last["resumed"])))
        same = (self._folder / "whole.safetensors").read_bytes() == self._target.read_bytes()
        found.is_equal = found.is_equal and same and self._whole["losses"] == last["losses"]

    def _finish(self, name: str, *more: str) -> dict[str, object]:
        words = [*self._words, "--save", str(self._folder / name), *more]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        output, problem = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, output + problem
        result: dict[str, object] = json.loads(output)
        return result

    def _kill(self, is_late: bool) -> bool:
        """Start a run and kill it; whether it was not done by then."""
        before = self._names()
        words = [*self._words, "--save", str(self._target), "--resume"]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        start = time.monotonic()
        moment = self._random.random() * self._seconds
        while process.poll() is None and time.monotonic() - start < LIMIT:
            if (self._names() - before) if is_late else computed(process.pid) >= moment:
                break
            time.sleep(0.002)
        time.sleep(self._random.random() * LATE)
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL

    def _names(self) -> set[str]:
        folder = checkpoint_folder(self._target)
        return {item.name for item in folder.iterdir()} if folder.is_dir() else set()

    def _last_step(self) -> int:
        """The step of the newest checkpoint that can be read; -1 where there is one and none can."""
        try:
            found = read_last(checkpoint_folder(self._target))
        except LamellaError:
            return -1
        return 0 if found is None else found.step

    def _torn(self) -> list[str]:
        """Checkpoints that cannot be read."""
        found = []
        for path in checkpoint_folder(self._target).glob("step-*.safetensors"):
            try:
                read_checkpoint(path)
            except LamellaError as problem:
                found.append(f"{path.name}: {problem}")
        return found


def computed(process: int) -> float:
    """The seconds that a process has computed."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
