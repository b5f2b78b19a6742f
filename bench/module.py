"""Measure the Module DSL and Hugging Face folders: check, compile, open, show, generate; memory while loading."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, LlamaConfig

from bench.measuring import ROUNDS, beside, best, row
from bench.start import children
from lamella.base.paths import shipped
from lamella.base.source import Source
from lamella.bridge.module_to_graph import CompilationSettings, module_to_graph
from lamella.lang.module.parse import parse
from lamella.pipeline.decoding import Sampling
from lamella.pipeline.module.folder_check import check as check_folder
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options
from tests.lang.module.test_grammar import grammar

MODELS = shipped("models")
SMALL = Path(__file__).resolve().parents[1] / "examples" / "llama" / "page.module"
MEGABYTE = 1e6
BYTES = {"BF16": 2, "F32": 4}
PROMPT, ANSWER = 8, 64
make_model: Callable[..., Any] = AutoModelForCausalLM.from_config
RUN = """
import json, runpy, sys
sys.argv = ["lamella", *sys.argv[1:]]
try:
    runpy.run_module("lamella", run_name="__main__")
except SystemExit as end:
    code = end.code
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
print(json.dumps([code, "numpy" in sys.modules, peak]), file=sys.stderr)
"""
"""A command, and then whether NumPy was loaded and the peak of memory in kilobytes."""
LOAD = """
import json, sys
from pathlib import Path
import lamella.pipeline.module.generate as generating
from lamella.pipeline.options import Options
def told(word):  # kilobytes; the peak of `getrusage` is inherited across a fork, this one is not
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(word))
before = told("VmRSS")
kept = generating.Generator(Path(sys.argv[1]), 16, Options())
print(json.dumps([told("VmHWM") - before, told("VmRSS") - before]))
"""
PEER_SHOW = """
import sys
from pathlib import Path
from safetensors import safe_open
from transformers import AutoConfig
print(AutoConfig.from_pretrained(sys.argv[1]))
for file in Path(sys.argv[1]).glob("*.safetensors"):
    with safe_open(file, "pt") as store:
        print([(name, store.get_slice(name).get_shape()) for name in store.keys()])
"""


def measure() -> None:
    """All of it, one thread each."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        compiled = _environment(home)
        measure_check(compiled)
        measure_parse()
        measure_compile()
        measure_checkpoint(home / "large")
        measure_show(home / "small", compiled)
        measure_generation(home / "small")
        measure_memory(home / "heavy", compiled)


def _environment(home: Path) -> Mapping[str, str]:
    """An environment in which modules are compiled once, as those of an installed package are."""
    wanted = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**wanted, "PYTHONPYCACHEPREFIX": str(home / "compiled")}


# --- texts and graphs -------------------------------------------------------------------------------------------


def measure_check(environment: Mapping[str, str]) -> None:
    """The check of a model on a page, as a process."""
    command = [sys.executable, "-c", RUN, "check", str(SMALL)]
    run = partial(subprocess.run, command, check=True, capture_output=True, text=True, env=environment)
    told = json.loads(run().stderr)
    bare = best(partial(subprocess.run, [sys.executable, "-c", "pass"], check=True), children)
    loads = "NumPy is loaded" if told[1] else "no NumPy"
    beside = f"target 0.5 s; bare interpreter {bare:.2f} s; {loads}, {told[2] / 1000:.0f} MB"
    row("lamella check of a model on a page", f"{best(run, children):.2f} s CPU", beside)


def measure_parse() -> None:
    """The hand-written parser beside Lark on the same grammar and texts."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(MODELS.rglob("*.module")))
    peer = grammar()
    ours = best(lambda: parse(Source("models.module", text)))
    theirs = best(lambda: peer.parse(f"\n{text}\n"))
    speed = f"{len(text) / MEGABYTE / ours:.2f} MB/s"
    row(f"parse {len(text) // 1000} KB of models", speed, beside(ours, theirs, "Lark"))


def measure_compile() -> None:
    """Llama of many layers as a graph, beside transformers that only makes its modules."""
    path = MODELS / "models" / "llama.module"

    def ours(layers: int) -> None:
        source = read_source(path, Options(config={"n_layers": layers}))
        module_to_graph(source.instance, CompilationSettings())

    def theirs() -> None:
        with torch.device("meta"):
            make_model(LlamaConfig(num_hidden_layers=80))

    half, whole = best(partial(ours, 40)), best(partial(ours, 80))
    told = (
        f"target 5 s; {whole / half:.1f} x 40 layers; {beside(whole, best(theirs), 'transformers on meta')}"
    )
    row("Llama of 80 layers from text to graph", f"{whole:.2f} s CPU", told)


# --- folders ----------------------------------------------------------------------------------------------------


def write_sparse(folder: Path, config: Mapping[str, int], element: str) -> list[str]:
    """A Llama of zeros whose file takes no room on the disk; the names of its tensors."""
    width, inner, rows = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    square, norm = [width, width], [width]
    layer = {f"self_attn.{name}_proj.weight": square for name in "qkvo"}
    layer |= {"mlp.gate_proj.weight": [inner, width], "mlp.up_proj.weight": [inner, width]}
    layer |= {"mlp.down_proj.weight": [width, inner]}
    layer |= {"input_layernorm.weight": norm, "post_attention_layernorm.weight": norm}
    shapes = {"model.embed_tokens.weight": [rows, width], "lm_head.weight": [rows, width]}
    shapes["model.norm.weight"] = norm
    for number in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
    header, position = {}, 0
    for name, shape in shapes.items():
        size = BYTES[element] * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": element, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    known = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **config}
    (folder / "config.json").write_text(json.dumps(known), encoding="utf-8")
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + position)
    return list(shapes)


def _config(layers: int, width: int, inner: int, rows: int = 1000) -> dict[str, int]:
    shape = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers}
    return {**shape, "vocab_size": rows, "num_attention_heads": 8, "num_key_value_heads": 8}


def measure_checkpoint(folder: Path) -> None:
    """Ten gigabytes in ten thousand tensors: opened, mapped to the weights of a model, and validated."""
    names = write_sparse(folder, _config(1111, 512, 2304), "BF16")
    file = folder / "model.safetensors"

    def theirs() -> None:
        with safe_open(file, "np") as store:
            for name in names:
                store.get_slice(name).get_shape()

    ours = best(lambda: check_folder(folder, Options()))
    told = f"target 2 s; {beside(ours, best(theirs), 'safetensors, shapes alone')}"
    size = file.stat().st_size / 1e9
    row(f"validate {size:.1f} GB, {len(names):,} tensors", f"{ours:.2f} s CPU", told)


def measure_show(folder: Path, environment: Mapping[str, str]) -> None:
    """A folder of Hugging Face shown by a process, beside one that asks transformers and safetensors."""
    config = _config(4, 256, 688)
    made = LlamaConfig.from_dict({**config, "max_position_embeddings": 512})
    make_model(made).save_pretrained(folder)

    def timed(words: Sequence[str]) -> float:
        command = [sys.executable, *words, str(folder)]
        run = partial(subprocess.run, command, check=True, capture_output=True, env=environment)
        run()
        return best(run, children)

    ours = timed(["-m", "lamella", "show"])
    told = beside(ours, timed(["-c", PEER_SHOW]), "AutoConfig and safetensors")
    row("lamella show of a folder", f"{ours:.2f} s CPU", f"target 0.5 s; {told}")


def measure_memory(folder: Path, environment: Mapping[str, str]) -> None:
    """The peak of memory while the weights of a folder are loaded, the process before it not counted."""
    config = _config(16, 1024, 2816)
    write_sparse(folder, config, "F32")
    weights = (folder / "model.safetensors").stat().st_size
    fused = 2 * BYTES["F32"] * config["hidden_size"] * config["intermediate_size"]
    command = [sys.executable, "-c", LOAD, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    peak, held = (1024 * number / MEGABYTE for number in json.loads(done.stdout))
    bound = f"weights {weights / MEGABYTE:.0f} MB + largest fused tensor {fused / MEGABYTE:.0f} MB"
    row("peak while weights are loaded", f"{peak:.0f} MB", f"{bound}; {held:.0f} MB held afterwards")


# --- generation -------------------------------------------------------------------------------------------------


def measure_generation(folder: Path) -> None:
    """The time of a token behind the prompt, on our backends and in transformers."""
    theirs = _transformers_token(folder)
    for backend in ("reference", "cpu"):
        generator = Generator(folder, PROMPT + ANSWER, Options(threads=1), backend)
        ours = min(_token(generator) for _ in range(ROUNDS))
        row(
            f"a token of a small Llama, {backend}",
            f"{ours * 1000:.1f} ms",
            beside(ours, theirs, "transformers"),
        )


def _token(generator: Generator) -> float:
    tokens = generator.run(range(1, PROMPT + 1), Sampling(ANSWER))
    next(tokens)
    next(tokens)
    start = time.process_time()
    count = len(list(tokens))
    return (time.process_time() - start) / count


def _transformers_token(folder: Path) -> float:
    # A model that is loaded does not train.
    model = AutoModelForCausalLM.from_pretrained(folder)

    def work() -> float:
        found = model(torch.arange(1, PROMPT + 1)[None], use_cache=True)
        start = time.process_time()
        for _ in range(ANSWER - 1):
            token = found.logits[:, -1:].argmax(-1)
            found = model(token, past_key_values=found.past_key_values, use_cache=True)
        return (time.process_time() - start) / (ANSWER - 1)

    with torch.inference_mode():
        return min(work() for _ in range(ROUNDS))
