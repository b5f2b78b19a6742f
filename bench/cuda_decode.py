"""Generation on an NVIDIA GPU: milliseconds for each token of a Qwen3-shaped model, beside transformers in bf16.

`python -m bench.cuda_decode --layers 28`. The bound of a token is the bytes that it reads at least, all weights and in
the middle of the text the cache, both in bf16, by the bandwidth of a copy on the device, measured in the same process.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.cuda import time_ours, time_torch
from bench.cuda_models import tell_kernels
from bench.measuring import note_figure, require_gpu
from lamella.backend.cuda.lists import CudaList
from lamella.base.dim import symbols
from lamella.base.tuning import TuningReport
from lamella.base.watching import TUNED
from lamella.pipeline.decoding import Sampling, decode
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options


def bandwidth(torch: Any) -> float:
    """Bytes that a copy reads and writes in a second."""
    x = torch.empty(1 << 28, device="cuda")
    y = torch.empty_like(x)
    return float(8 * x.numel() / min(time_torch(torch, lambda: y.copy_(x), 5) for _ in range(3)))


def seconds_of(tokens: Iterator[int]) -> tuple[float, float]:
    """The time until the first token, and the mean of those behind it, which may come in bursts."""
    times = [time.perf_counter()]
    while next(tokens, None) is not None:
        times.append(time.perf_counter())
    return times[1] - times[0], (times[-1] - times[1]) / (len(times) - 2)


def transformers_tokens(torch: Any, model: Any, prompt: list[int], count: int) -> Iterator[int]:
    """The tokens that transformers chooses, each as soon as it is known."""
    given, cache = torch.tensor([prompt], device="cuda"), None
    for _ in range(count):
        with torch.inference_mode():
            found = model(given, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, given = found.past_key_values, found.logits[:, -1:].argmax(-1)
        yield int(given.item())


def compiled_tokens(
    torch: Any, transformers: Any, model: Any, prompt: list[int], count: int, compiled: dict[str, Any]
) -> Iterator[int]:
    """The same with a cache of a fixed size and `torch.compile`, whose steps are CUDA graphs."""
    if not compiled:
        compiled["step"] = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        compiled["cache"] = transformers.StaticCache(model.config, len(prompt) + count + 1)
    cache, length = compiled["cache"], len(prompt)
    with torch.inference_mode():
        cache.reset()
        found = model(torch.tensor([prompt], device="cuda"), past_key_values=cache, logits_to_keep=1)
        given = found.logits[:, -1:].argmax(-1)
        yield int(given.item())
        for place in range(length, length + count - 1):
            position = torch.tensor([[place]], device="cuda")
            step = compiled["step"]
            found = step(
                given.clone(), past_key_values=cache, position_ids=position, cache_position=position[0]
            )
            given = found.logits[:, -1:].argmax(-1)
            yield int(given.item())


def measure(
    folder: str, precision: str, chosen: argparse.Namespace, prompt: list[int]
) -> tuple[float, float]:
    """Seconds of a prompt and of a token in a precision."""
    begin = time.perf_counter()
    options = Options(precision=precision, backend="cuda", tune=chosen.tune > 0, tune_seconds=chosen.tune)
    TUNED.set(_print_tuning)
    ours = Generator(Path(folder), chosen.prompt + chosen.tokens + 1, options, "cuda")
    print(f"{precision}: ready after {time.perf_counter() - begin:.1f} s", flush=True)
    empty = ours.keep()
    for turn in range(2):
        first, each = seconds_of(ours.run(prompt, Sampling(chosen.tokens)))
        print(f"ours, turn {turn}: prompt {first * 1e3:.1f} ms, token {each * 1e3:.3f} ms", flush=True)
    ours.resume(empty)
    by_host = list(decode(ours.rate_next, prompt, Sampling(chosen.tokens)))
    by_device = list(ours.run(prompt, Sampling(chosen.tokens)))
    print(
        f"tokens that the device and the host choose are {'the same' if by_device == by_host else 'others'}"
    )
    launches = list_of_token(ours)
    if launches is not None:
        alone = statistics.median(time_ours(launches.replay) for _ in range(20))
        print(f"{len(launches.whole.launches)} launches of a token alone: {alone * 1e3:.3f} ms")
        tell_kernels(launches, chosen.launches)
    return first, each


def list_of_token(generator: Generator) -> CudaList | None:
    """The launches of a token, where one list has them all."""
    executable: Any = generator.executable
    names = {
        item.name for one in executable.model.graph.inputs for extent in one.shape for item in symbols(extent)
    }
    found = [item.each for item in executable.segments(dict.fromkeys(names, 1))]
    return max(
        (item for item in found if isinstance(item, CudaList)),
        key=lambda item: len(item.whole.launches),
        default=None,
    )


def _print_tuning(report: TuningReport) -> None:
    for line in report.lines():
        print(f"    {line}", flush=True)


def main() -> None:
    """Measure one shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=130)
    parser.add_argument("--precision", default="bf16", help="several with commas: f32, bf16, w8, w4, fp8")
    parser.add_argument("--launches", type=int, default=0, help="kernels to tell, the longest first")
    parser.add_argument(
        "--tune", type=float, default=0.0, metavar="SECONDS", help="choose kernels by measuring"
    )
    parser.add_argument("--compiled", action="store_true", help="measure transformers with torch.compile too")
    chosen = parser.parse_args()
    require_gpu()
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    config = import_module("bench.decode").qwen3(chosen.layers)
    prompt = [1 + place % 1000 for place in range(chosen.prompt)]
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        found = {name: measure(folder, name, chosen, prompt) for name in chosen.precision.split(",")}
    weights = sum(item.numel() for item in model.parameters())
    cached = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    bound = 2 * (weights + cached * (chosen.prompt + chosen.tokens // 2)) / bandwidth(torch)
    short = model.cuda().bfloat16()
    for _ in range(2):
        read, step = seconds_of(transformers_tokens(torch, short, prompt, chosen.tokens))
    told, peer = f"transformers {step * 1e3:.3f} ms", step
    if chosen.compiled:
        kept: dict[str, Any] = {}
        for _ in range(2):
            _, fast = seconds_of(compiled_tokens(torch, transformers, short, prompt, chosen.tokens, kept))
        told, peer = f"{told}, compiled {fast * 1e3:.3f} ms", min(step, fast)
    for name, (first, each) in found.items():
        note_figure(f"token {name}, of its bound", bound / each)
        note_figure(f"token {name}, beside transformers", peer / each)
        print(
            f"qwen3, {chosen.layers} layers, {name}: {each * 1e3:.3f} ms a token, {bound / each:.2f} of the "
            f"bound of {bound * 1e3:.3f} ms of bf16; {told}; "
            f"prompts {first * 1e3:.1f} and {read * 1e3:.1f} ms"
        )


if __name__ == "__main__":
    main()
