"""Measure a step of training: a model like GPT-2 small beside eager PyTorch, in turns, each in a process of its own.

    python -m bench.training [--layers 12] [--batch 4] [--sequence 128] [--threads 1] [--steps 4]

Time is CPU seconds of the fastest step (forward, backward, AdamW, f32) on one thread, else seconds by the clock.
Memory is the largest resident size of each process, less that before the model was made, less parameters, gradients
and both slots of AdamW.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measuring import row

MODEL = Path(__file__).parents[1] / "src/lamella/models/models/gpt2.module"
WORDS = 50257
SIDES = ("lamella", "torch")


def main() -> None:
    """Print the time and the memory of both, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name, default in (("layers", 12), ("batch", 4), ("sequence", 128), ("threads", 1), ("steps", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=2, help="how often each side is run")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.side is not None:
        print(json.dumps(_measure(told)))
        return
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(told.rounds):
        for side in SIDES:
            found[side].append(_run(side))
    best = {side: {key: min(item[key] for item in runs) for key in runs[0]} for side, runs in found.items()}
    ours, theirs = best["lamella"], best["torch"]
    for key, unit, limit in (("seconds", "s", 1.0), ("beyond_mb", "MB", 0.8)):
        ratio = ours[key] / theirs[key]
        row(
            f"a step of GPT-2 with {told.layers} layers, {key}",
            f"{ours[key]:.2f} {unit}",
            f"torch eager {theirs[key]:.2f} {unit}: {ratio:.2f} x (at most {limit})",
        )
    row("its first step, with compiling", f"{ours['first']:.1f} s", f"torch eager {theirs['first']:.1f} s")
    row("loss after these steps", f"{ours['loss']:.3f}", "random tokens, each side with weights of its own")


def _run(side: str) -> dict[str, float]:
    """What one side measures of itself."""
    command = [sys.executable, "-m", "bench.training", *sys.argv[1:], "--side", side]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(told: argparse.Namespace) -> dict[str, float]:
    os.environ["OMP_NUM_THREADS"] = str(told.threads)
    make = {"lamella": _lamella, "torch": _torch}[told.side]
    step, count, before = make(told)
    clock = time.thread_time if told.threads == 1 else time.perf_counter
    times, loss = [], 0.0
    for _ in range(told.steps):
        start = clock()
        loss = step()
        times.append(clock() - start)
    known = 4 * 4 * count / 1e6
    beyond = _resident() - before - known
    return {"seconds": min(times), "first": times[0], "beyond_mb": beyond, "loss": loss}


def _resident() -> float:
    """The largest size that this process ever had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _lamella(told: argparse.Namespace) -> tuple[Callable[[], float], int, float]:
    import numpy as np

    from lamella.pipeline.options import Options
    from lamella.train import StepSettings, Trainer

    before = _resident()
    config = {"n_layers": told.layers, "max_seq": told.sequence, "vocab_size": WORDS}
    options = Options(config=config, model="GPT2", seed=0, threads=told.threads)
    trainer = Trainer(MODEL, StepSettings(), options=options)
    tokens = np.random.default_rng(0).integers(0, WORDS, (told.batch, told.sequence + 1))
    batch = {"token_ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}
    count = sum(array.size for array in trainer.parameters.values())
    return lambda: trainer.step(batch, 1e-4).loss, count, before


def _torch(told: argparse.Namespace) -> tuple[Callable[[], float], int, float]:
    import torch
    import transformers

    torch.set_num_threads(told.threads)
    before = _resident()
    config = transformers.GPT2Config(
        n_layer=told.layers, n_positions=told.sequence, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0
    )
    config.use_cache = False
    made: Any = transformers.GPT2LMHeadModel
    model = made(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, WORDS, (told.batch, told.sequence + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()

    def step() -> float:
        scores = model(inputs).logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step, sum(item.numel() for item in model.parameters()), before


if __name__ == "__main__":
    main()
