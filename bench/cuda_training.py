"""A step of training on an NVIDIA GPU: tokens in a second of a Qwen3-shaped model, beside transformers with torch.

`python -m bench.cuda_training --layers 28 --batch 2 --sequence 2048` trains all parameters in bf16 with AdamW, ours
with masters in f32. torch runs eager, or compiled with `--compiled`, which takes minutes more; `--launches N` tells the
N kernels that take longest, `--profile N` the N functions of the host in which the first loss spends its time.
`--check` compares losses with those of the cpu on a tiny model, `--losses 50 --rate 3e-4` compares that many with those
of torch, from the same weights, in bf16 and in f32.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import lamella
from bench.cuda_models import tell_kernels
from bench.measuring import note_figure, require_gpu
from lamella.backend.cuda.lists import CudaList
from lamella.base.tuning import tuning_of
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from lamella.train.gradients import trainable
from lamella.train.memory import keep_all

MODEL = Path(lamella.__file__).parent / "models/models/qwen3.module"
TINY = {
    "vocab_size": 512, "d_model": 64, "n_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 32, "d_ff": 192,
    "max_seq": 256, "tie": True,
}  # fmt: skip
RATE = 1e-3
FIRST_S = 20.0
"""Seconds that the first loss may take."""


def shape_of(layers: int) -> dict[str, Any]:
    """Qwen3-0.6B, with fewer layers where time is short."""
    return {
        "vocab_size": 151936, "d_model": 1024, "n_layers": layers, "num_heads": 16, "num_kv_heads": 8,
        "head_dim": 128, "d_ff": 3072, "max_seq": 4096, "tie": True,
    }  # fmt: skip


def trainer(config: dict[str, Any], recipe: str, backend: str, tune: float = 0.0) -> Trainer:
    """A model with random weights, ready to be trained; kernels are chosen by measuring for some seconds."""
    options = Options(config=config, model="Qwen3", seed=0, tune=tune > 0, tune_seconds=tune)
    if recipe != "f32":  # attention computes in bf16 too, as that of torch does
        options = replace(options, recipe=recipe, precision="bf16" if backend == "cuda" else "f32")
    # As torch does, all that the backward pass reads is kept: `lamella train --memory-budget 100GB` does the same.
    return Trainer(keep_all(trainable(MODEL, options)), StepSettings(), backend, options)


def draw(config: dict[str, Any], batch: int, sequence: int) -> dict[str, Any]:
    """A batch of random tokens."""
    tokens = np.random.default_rng(0).integers(0, config["vocab_size"], (batch, sequence + 1))
    return {"token_ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


def check(recipe: str, steps: int = 20) -> None:
    """Losses of a tiny model on both backends."""
    batch = draw(TINY, 2, 64)
    losses = []
    for backend in ("cuda", "cpu"):
        made = trainer(TINY, recipe, backend)
        losses.append([made.step(batch, RATE).loss for _ in range(steps)])
    far = max(abs(one - other) / other for one, other in zip(*losses, strict=True))
    print(
        f"tiny, {recipe}: {losses[0][0]:.5f} → {losses[0][-1]:.5f} on cuda, {losses[1][0]:.5f} → "
        f"{losses[1][-1]:.5f} on cpu; largest difference {far:.1e}",
        flush=True,
    )


def measure(chosen: argparse.Namespace) -> float:
    """Seconds of our step."""
    config = shape_of(chosen.layers)
    batch = draw(config, chosen.batch, chosen.sequence)
    profile = cProfile.Profile()
    if chosen.profile:
        profile.enable()
    begin = time.perf_counter()
    made = trainer(config, chosen.recipe, "cuda", chosen.tune)
    ready = time.perf_counter()
    losses = [made.step(batch, chosen.rate).loss]
    first = time.perf_counter()
    if chosen.profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumulative").print_stats(chosen.profile)
    seconds = []
    for _ in range(chosen.steps):
        start = time.perf_counter()
        losses.append(made.step(batch, chosen.rate).loss)
        seconds.append(time.perf_counter() - start)
    found = statistics.median(seconds)
    note_figure(f"first loss {chosen.recipe}, of {FIRST_S:.0f} s", FIRST_S / (first - begin))
    note_figure(f"tokens/s {chosen.recipe}", chosen.batch * chosen.sequence / found)
    print(
        f"ours: the first loss {first - begin:.1f} s after the model's file ({ready - begin:.1f} s until the step is "
        f"made, {first - ready:.1f} s in it), then {found * 1e3:.1f} ms; losses "
        f"{losses[0]:.4f}, {losses[1]:.4f} → {losses[-1]:.4f}",
        flush=True,
    )
    executable: Any = made.executables[0]
    for segment in executable.segments({"B": chosen.batch, "T": chosen.sequence}):
        if isinstance(segment.each, CudaList):
            print(
                f"    {len(segment.each.whole.launches)} launches, {segment.each.arena_bytes / 1e9:.2f} GB of arena"
            )
            tell_kernels(segment.each, chosen.launches)
    report = tuning_of(executable)
    for line in () if report is None else report.lines():
        print(f"    {line}", flush=True)
    return found


def measure_torch(chosen: argparse.Namespace, torch: Any) -> float:
    """Seconds of a step of transformers."""
    transformers: Any = import_module("transformers")
    config = import_module("bench.decode").qwen3(chosen.layers)
    config.use_cache = False
    batch = draw(shape_of(chosen.layers), chosen.batch, chosen.sequence)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
    tokens, targets = (torch.from_numpy(batch[name]).cuda() for name in ("token_ids", "targets"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=chosen.rate, fused=True)

    def forward(ids: Any) -> Any:
        scores = model(input_ids=ids).logits
        return torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), targets.flatten())

    loss_of = torch.compile(forward) if chosen.compiled else forward

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of(tokens)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return _steps(step, "torch.compile" if chosen.compiled else "torch", chosen.steps)


def compare_losses(config: Any, chosen: argparse.Namespace, backend: str = "cuda") -> None:
    """Losses of ours and of transformers from the same weights over the same batches.

    How far bf16 brings torch from itself in f32 tells how far may be: masters are f32 in all of them.
    """
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config.use_cache = False
    batches = [
        draw_text(config.vocab_size, chosen.batch, chosen.sequence, seed) for seed in range(chosen.losses)
    ]
    with TemporaryDirectory() as folder:
        with torch.device(backend):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.save_pretrained(folder)
        options = Options(recipe=chosen.recipe, precision="bf16" if backend == "cuda" else "f32")
        made = Trainer(keep_all(trainable(Path(folder), options)), StepSettings(), backend, options)
        ours = [made.step(batch, chosen.rate).loss for batch in batches]
        del made
        theirs = []
        for narrow in (True, False):
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            theirs.append(_torch_losses(torch, model.to(backend).train(), batches, chosen.rate, narrow))
    shown = range(0, chosen.losses, max(1, chosen.losses // 10))
    for name, losses in (("ours", ours), ("torch, bf16", theirs[0]), ("torch, f32", theirs[1])):
        print(f"{name:12}", " ".join(f"{losses[step]:8.4f}" for step in (*shown, chosen.losses - 1)))
    halves, wide = theirs
    note_figure(
        "losses, what bf16 costs torch", max(map(_apart, halves, wide)) / max(map(_apart, ours, halves))
    )
    for name, one, other in (
        ("ours and torch", ours, halves),
        ("ours and f32", ours, wide),
        ("torch and f32", halves, wide),
    ):
        far = list(map(_apart, one, other))
        print(
            f"{name:14} differ by {max(far):.1e} at most, {statistics.mean(far):.1e} in the mean", flush=True
        )


def _apart(one: float, other: float) -> float:
    return abs(one - other) / other


def draw_text(vocabulary: int, batch: int, sequence: int, seed: int) -> dict[str, Any]:
    """Tokens that can be learnt: one in four is chance, the others follow from the one before."""
    random = np.random.default_rng(seed)
    words = min(vocabulary, 1000)
    tokens = np.zeros((batch, sequence + 1), np.int64)
    for place in range(sequence + 1):
        follow = (tokens[:, place - 1] * 7 + 3) % words
        tokens[:, place] = np.where(random.random(batch) < 0.25, random.integers(0, words, batch), follow)
    return {"token_ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


def _torch_losses(
    torch: Any, model: Any, batches: list[dict[str, Any]], rate: float, narrow: bool
) -> list[float]:
    """The losses of transformers, whose products are in bf16 or in f32."""
    device, found = next(model.parameters()).device, []
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for batch in batches:
        tokens, targets = (torch.from_numpy(batch[name]).to(device) for name in ("token_ids", "targets"))
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=narrow):
            scores = model(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        found.append(float(loss.item()))
    return found


def _steps(step: Callable[[], float], name: str, count: int) -> float:
    seconds, losses = [], []
    for _ in range(count + 2):
        start = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - start)
    found = statistics.median(seconds[2:])
    print(
        f"{name}: first step {seconds[0]:.1f} s, then {found * 1e3:.1f} ms; losses {losses[0]:.4f}, "
        f"{losses[1]:.4f} → {losses[-1]:.4f}",
        flush=True,
    )
    return found


def main() -> None:
    """Measure one shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    numbers = (
        ("layers", 28),
        ("batch", 2),
        ("sequence", 2048),
        ("steps", 10),
        ("launches", 0),
        ("profile", 0),
    )
    for name, default in numbers:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--recipe", default="bf16")
    parser.add_argument("--rate", type=float, default=1e-5)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--losses", type=int, help="compare so many losses with those of torch, nothing else")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument(
        "--tune", type=float, default=0.0, metavar="SECONDS", help="choose kernels by measuring"
    )
    parser.add_argument("--alone", action="store_true", help="without torch")
    chosen = parser.parse_args()
    require_gpu()
    if chosen.check:
        for recipe in ("f32", "bf16"):
            check(recipe)
        return
    if chosen.losses:
        compare_losses(import_module("bench.decode").qwen3(chosen.layers), chosen)
        return
    ours = measure(chosen)
    if not chosen.alone:
        theirs = measure_torch(chosen, import_module("torch"))
        tokens = chosen.batch * chosen.sequence
        note_figure(f"step {chosen.recipe}, {'torch.compile' if chosen.compiled else 'torch'}", theirs / ours)
        print(f"{tokens / ours:.0f} tokens/s, torch {tokens / theirs:.0f}: ratio {theirs / ours:.2f}")


if __name__ == "__main__":
    main()
