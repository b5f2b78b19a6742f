"""Measure how whole models start: compiled cold, found again, and the memory that each takes, beside onnxruntime.

usage: python -m bench.model_start [NAME …]    none: resnet50 bert gpt2_decode lstm gigabyte
`--backend cuda --precision bf16` starts them on a GPU, beside nobody; `--profile 25` tells the 25 functions in which
such a start spends its time. `gigabyte` is 1 GB of weights in products of one row: what it takes beyond reading the
file, and what the system alone takes to give a process so much memory for the first time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from bench.exports import FOLDER, material_of
from bench.measuring import note_figure, require_gpu
from lamella.graph.data.safetensors import write_safetensors

GIGABYTE = "gigabyte"
NAMES = ("resnet50", "bert", "gpt2_decode", "lstm", GIGABYTE)
WIDE, DEEP = 4096, 15
COLD_S, CACHED_S = 2.0, 0.4
DEVICE_COLD_S, DEVICE_CACHED_S = 5.0, 1.0
STARTED = """
import cProfile, json, os, pstats, resource, sys, time
import numpy as np
from pathlib import Path
profile = None
model, backend, precision, lines, *paths = sys.argv[1:]
given = {path.stem.partition(".")[2]: np.load(path) for path in map(Path, paths)}
def clock():
    return np.array([time.perf_counter(), sum(os.times()[:4])])
if model.endswith(".onnx"):
    import onnxruntime
    start = clock()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    feed = dict(zip(names, given.values(), strict=True))
    run = lambda: session.run(None, feed)
else:
    import lamella
    start = clock()
    ways = {"backend": "cpu", "threads": 1} if backend == "cpu" else {"backend": backend, "precision": precision}
    profile = cProfile.Profile() if int(lines) else None
    if profile is not None:
        profile.enable()
    executable = lamella.compile(model, **ways)
    run = lambda: executable(**given)
made = clock()
run()
first = clock()
if int(lines) and profile is not None:
    profile.disable()
    pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(int(lines))
run()
second = clock()
times = [made - start, first - made, second - first]
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
aside = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps({"times": [item.tolist() for item in times], "peak": peak, "aside": aside}))
"""

READ = """
import json, os, sys, time
import numpy as np
from lamella.backend.cpu.run.memory import allocate_bytes
def clock():
    return np.array([time.perf_counter(), sum(os.times()[:4])])
room, size, begin = bytearray(1 << 24), 0, clock()
with open(sys.argv[1], "rb", buffering=0) as file:
    while count := file.readinto(room):
        size += count
read = clock()
given = allocate_bytes(size)
given[::4096] = 1
print(json.dumps({"read": (read - begin).tolist(), "given": (clock() - read).tolist()}))
"""


class Way(NamedTuple):
    """Where a model runs, and in which precision."""

    backend: str
    precision: str


CPU = Way("cpu", "f32")


def environment(cache: str, bytecode: str | None = None) -> dict[str, str]:
    """One thread, caches of machine code of ours and of a GPU's driver, and the bytecode of an installed package."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept = {"LAMELLA_CACHE": f"{cache}/objects", "CUDA_CACHE_PATH": f"{cache}/driver"}
    kept["PYTHONPYCACHEPREFIX"] = bytecode or str((FOLDER / "bytecode").absolute())
    return {**found, **kept, "OMP_NUM_THREADS": "1"}


def start(
    model: Path,
    inputs: Sequence[Path],
    cache: str,
    way: Way = CPU,
    lines: int = 0,
    bytecode: str | None = None,
) -> Mapping[str, list[list[float]] | float]:
    """Seconds to make a model callable, of its first call and of its second one, and the peak of memory."""
    command = [sys.executable, "-c", STARTED, str(model), *way, str(lines), *map(str, inputs)]
    done = subprocess.run(command, env=environment(cache, bytecode), stdout=subprocess.PIPE, check=True)
    found: Mapping[str, list[list[float]] | float] = json.loads(done.stdout)
    return found


def told(name: str, way: str, facts: Mapping[str, list[list[float]] | float], target: float) -> str:
    """A line: seconds until the first result, without what a run itself takes, and memory."""
    times, peak, aside = facts["times"], facts["peak"], facts["aside"]
    assert isinstance(times, list)
    assert isinstance(peak, int)
    assert isinstance(aside, int)
    made, first, run = times
    whole = [one + other - again for one, other, again in zip(made, first, run, strict=True)]
    seconds = "".join(f"{item:>8.2f}" for item in (*whole, made[1], first[1], run[1]))
    aim = f"   target {target:.1f} s" if target else ""
    if target:
        note_figure(f"{name} {way}, of {target:.1f} s", target / whole[0])
    return f"{name:14} {way:12}{seconds}{peak / 1e6:>9.0f}{aside / 1e6:>7.0f}{aim}"


def measure_on_device(name: str, way: Way, lines: int) -> None:
    """The lines of one model on a GPU; a new checkout has no bytecode yet, which is written once for all models."""
    material, _ = material_of(name, 1)
    inputs = sorted(material.model.parent.glob("input*.npy"))
    with TemporaryDirectory(prefix="lamella-objects-") as other:
        found = start(material.model, inputs, other, way, bytecode=f"{other}/bytecode")
        print(told(name, "new checkout", found, 0.0), flush=True)
        start(material.model, inputs, f"{other}/again", way)  # so that there is bytecode
    with TemporaryDirectory(prefix="lamella-objects-") as cache:
        print(told(name, "cold", start(material.model, inputs, cache, way, lines), DEVICE_COLD_S), flush=True)
        for _ in range(2):
            found = start(material.model, inputs, cache, way)
            print(told(name, "found again", found, DEVICE_CACHED_S), flush=True)
        if lines:
            start(material.model, inputs, cache, way, lines)


def measure(name: str) -> None:
    """The lines of one model."""
    material, _ = material_of(name, 1)
    inputs = sorted(material.model.parent.glob("input*.npy"))
    with TemporaryDirectory(prefix="lamella-objects-") as cache, TemporaryDirectory() as other:
        start(material.model, inputs, other)  # so that there is bytecode
        print(told(name, "cold", start(material.model, inputs, cache), COLD_S), flush=True)
        print(told(name, "found again", start(material.model, inputs, cache), CACHED_S), flush=True)
        if material.onnx is not None:
            print(told(name, "onnxruntime", start(material.onnx, inputs, cache), 0.0), flush=True)


def write_gigabyte(folder: Path) -> Path:
    """A chain of products with 1 GB of weights, and its input."""
    names = [f"w{number}" for number in range(DEEP)]
    weights = " ".join(f"{name}: real[{WIDE}, {WIDE}];" for name in names)
    steps = [
        f"{f't{number}' if number < DEEP else 'y'} = nn.linear({f't{number - 1}' if number > 1 else 'x'}, {name}, 0.0);"
        for number, name in enumerate(names, 1)
    ]
    text = f"import nn;\ngraph Gigabyte {{ @input {{ x: real[1, {WIDE}]; }} @variable {{ {weights} }} "
    text += f"@output {{ y: real[1, {WIDE}]; }} @compose {{ {' '.join(steps)} }} }}\n"
    (folder / "main.sknd").write_text(text, encoding="utf-8")
    numbers = np.random.default_rng(0).standard_normal((WIDE, WIDE), np.float32) / np.float32(WIDE**0.5)
    write_safetensors(folder / "main.safetensors", dict.fromkeys(names, numbers))
    np.save(folder / "input0.x.npy", np.ones((1, WIDE), np.float32))
    return folder / "main.sknd"


def measure_gigabyte() -> None:
    """The lines of a model that is all weights."""
    with TemporaryDirectory(prefix="lamella-gigabyte-", dir=FOLDER) as place:
        model = write_gigabyte(Path(place))
        inputs, weights = [Path(place) / "input0.x.npy"], str(model.with_suffix(".safetensors"))
        start(model, inputs, f"{place}/cache")
        print(told(GIGABYTE, "found again", start(model, inputs, f"{place}/cache"), 0.0))
        done = subprocess.run(
            [sys.executable, "-c", READ, weights], env=environment(place), stdout=subprocess.PIPE, check=True
        )
        for word, (wall, busy) in json.loads(done.stdout).items():
            print(f"{GIGABYTE:14} {word:12}{wall:>8.2f}{busy:>8.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--profile", type=int, default=0)
    options = parser.parse_args()
    if options.backend == "cuda":
        require_gpu()
    heads = ("wall", "CPU", "load", "first", "run")
    print(f"{'model':14} {'':12}{''.join(f'{word:>8}' for word in heads)}{'peak MB':>9}{'aside':>7}")
    print(
        "seconds until a result is there, less what a run takes; then CPU seconds of loading, first and second run;\n"
        "the most memory that the process held, and that another one held which compiled for it"
    )
    for chosen in options.names or NAMES:
        if options.backend != "cpu":
            measure_on_device(chosen, Way(options.backend, options.precision), options.profile)
        elif chosen == GIGABYTE:
            measure_gigabyte()
        else:
            measure(chosen)
