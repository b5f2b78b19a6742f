"""Fault injection: a training is killed at random moments and goes on, until it is done."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.train.checkpoints import checkpoint_folder, read_checkpoint

LIMIT = 120.0
"""Seconds that one process may take."""


@dataclass
class CampaignResult:
    """What killing did."""

    kills: int = 0
    torn: list[str] = field(default_factory=list)
    """Files with the name of a checkpoint that cannot be read."""
    resumed: list[int] = field(default_factory=list)
    """Steps behind which runs went on."""
    is_equal: bool = False
    """Whether losses and weights are those of a run that nobody killed."""


class Campaign:
    """A training that is killed again and again."""

    def __init__(
        self, model: Path, data: Path, folder: Path, steps: int, seed: int, backend: str = "cpu"
    ) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        sizes = ["--steps", str(steps), "--batch", "2", "--sequence", "8", "--save-every", "1", "--shuffle"]
        self._words = [
            sys.executable,
            "-m",
            "lamella",
            "train",
            str(model),
            "--data",
            str(data),
            *sizes,
            "--backend",
            backend,
            "--json",
        ]

    def run(self, kills: int) -> CampaignResult:
        """Kill so many processes, each a random time after its first new checkpoint; then let one finish."""
        found = CampaignResult()
        whole = self._finish("whole.safetensors")
        target = self._folder / "killed.safetensors"
        for _ in range(kills):
            if not self._kill(target):
                break
            found.kills += 1
            found.torn += self._torn(target)
        last = self._finish(target.name, "--resume")
        found.resumed.append(int(str(last["resumed"])))
        same = (self._folder / "whole.safetensors").read_bytes() == target.read_bytes()
        found.is_equal = same and whole["losses"] == last["losses"]
        return found

    def _finish(self, name: str, *more: str) -> dict[str, object]:
        words = [*self._words, "--save", str(self._folder / name), *more]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        result: dict[str, object] = json.loads(done.stdout)
        return result

    def _kill(self, target: Path) -> bool:
        """Start a run and kill it; whether it was not done by then."""
        folder = checkpoint_folder(target)
        before = {item.name for item in folder.iterdir()} if folder.is_dir() else set()
        words = [*self._words, "--save", str(target), "--resume"]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        start = time.monotonic()
        while process.poll() is None and time.monotonic() - start < LIMIT:
            if folder.is_dir() and {item.name for item in folder.iterdir()} - before:
                break
            time.sleep(0.001)
        time.sleep(self._random.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL

    def _torn(self, target: Path) -> list[str]:
        """Checkpoints that cannot be read."""
        found = []
        for path in checkpoint_folder(target).glob("step-*.safetensors"):
            try:
                read_checkpoint(path)
            except LamellaError as problem:
                found.append(f"{path.name}: {problem}")
        return found
