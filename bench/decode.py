"""Measure generation: tokens of a Qwen3-shaped and of a small Llama model, beside transformers, in turns on one core.

    python -m bench.decode [--layers 4] [--prompt 128] [--precision f32,w8] [--against eager,compile]

The bound of a token is the bytes of the weights and of the cache by the bandwidth of this machine, measured.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from bench.measuring import row
from lamella.pipeline.bench.ceilings import measure_ceilings
from lamella.pipeline.decoding import Sampling, decode
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options

ROUNDS = 4
ANSWER = 12
"""Tokens of one sample."""
WIDTHS = {"f32": 4.0, "w8": 1.0, "w4": 0.5625, "fp8": 1.0, "bf16": 2.0, "int8": 1.0}
"""Bytes that a weight of a product takes, scales of 4-bit codes included."""
Answer = Callable[[Sequence[int]], tuple[float, float]]
"""Reads a prompt and answers it: seconds of the prompt, and of each token behind the first."""


def qwen3(layers: int) -> Qwen3Config:
    """The shape of Qwen3-0.6B, with fewer layers where time is short."""
    return Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=layers,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
        max_position_embeddings=4096,
    )  # fmt: skip


def llama() -> LlamaConfig:
    """A small Llama of four layers."""
    return LlamaConfig(
        vocab_size=32000, hidden_size=512, intermediate_size=1408, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=2048,
    )  # fmt: skip


def main() -> None:
    """Print a line for each model, precision and peer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--layers", type=int, default=4, help="layers of the Qwen3-shaped model (0.6B has 28)"
    )
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--precision", default="f32", help="of ours, several with commas")
    parser.add_argument("--against", default="eager", help="eager, compile; several with commas")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name, config in (("llama", llama()), ("qwen3", qwen3(given.layers))):
            path = Path(folder, name)
            make: Callable[..., Any] = AutoModelForCausalLM.from_config
            make(config).save_pretrained(path)
            measure(f"{name}, {config.num_hidden_layers} layers", path, given)


def measure(title: str, path: Path, given: argparse.Namespace) -> None:
    """The contestants in turns, the fastest sample of each."""
    prompt = [1 + place % 1000 for place in range(given.prompt)]
    precisions = given.precision.split(",")
    contestants: dict[str, Answer] = {
        **{f"lamella {name}": _ours(path, len(prompt), name) for name in precisions},
        **{f"transformers {name}": _transformers(path, name) for name in given.against.split(",") if name},
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(ROUNDS + 1):
        for name, answer in contestants.items():
            found[name].append(answer(prompt))
    # The first sample of each compiles, or touches its weights for the first time.
    best = {name: [min(column) for column in zip(*items[1:], strict=True)] for name, items in found.items()}
    peers = [seconds for name, seconds in best.items() if not name.startswith("lamella")]
    gbytes = measure_ceilings(1).gbytes
    for name, (first, each) in best.items():
        others = [min(column) for column in zip(*peers, strict=True)] if peers else [first, each]
        ratio = (
            f"{each / others[1]:.2f} of the best peer; prompt {first * 1e3:.0f} ms, {first / others[0]:.2f}"
        )
        if name.startswith("lamella"):
            bound = _bytes_read(path, WIDTHS[name.split()[1]]) / gbytes / 1e9
            ratio += f"; bound {bound * 1e3:.1f} ms at {gbytes:.1f} GB/s"
        row(f"{title}: {name}", f"{each * 1e3:.2f} ms/token", ratio)


def _ours(path: Path, prompt: int, precision: str) -> Answer:
    generator = Generator(path, prompt + ANSWER + 1, Options(threads=1, precision=precision))

    def answer(tokens: Sequence[int]) -> tuple[float, float]:
        return _timed(generator.run(tokens, Sampling(ANSWER)))

    return answer


def _transformers(path: Path, way: str) -> Answer:
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    step = torch.compile(model, dynamic=True) if way == "compile" else model

    def answer(tokens: Sequence[int]) -> tuple[float, float]:
        cache: list[Any] = [None]

        def rate(new: Sequence[int]) -> np.ndarray[Any, Any]:
            with torch.inference_mode():
                ids = torch.tensor([list(new)])
                given = step(ids, past_key_values=cache[0], use_cache=True, logits_to_keep=1)
            cache[0] = given.past_key_values
            scores: np.ndarray[Any, Any] = given.logits[0, -1].numpy()
            return scores

        return _timed(decode(rate, tokens, Sampling(ANSWER)))

    return answer


def _timed(tokens: Iterator[int]) -> tuple[float, float]:
    """CPU seconds of the first token, and the fastest of those behind it."""
    start = time.thread_time()
    next(tokens)
    first = time.thread_time() - start
    times: list[float] = []
    while True:
        start = time.thread_time()
        if next(tokens, None) is None:
            return first, min(times)
        times.append(time.thread_time() - start)


def _bytes_read(path: Path, width: float) -> float:
    """The bytes that a token reads: every weight of a product once, no table of embeddings that is no head."""
    with safe_open(path / "model.safetensors", "np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    read = [
        shape
        for name, shape in shapes.items()
        if len(shape) == 2 and not (name == "model.embed_tokens.weight" and "lm_head.weight" in shapes)
    ]
    return float(width * sum(math.prod(shape) for shape in read))


if __name__ == "__main__":
    main()
