"""Measure how whole models start: compiled cold, found again, and the memory that each takes, beside onnxruntime.

usage: python -m bench.model_start [NAME …]    none: resnet50 bert gpt2_decode lstm gigabyte
`gigabyte` is 1 GB of weights in products of one row: what it takes beyond reading the file, and what the system alone
takes to give a process so much memory for the first time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.exports import FOLDER, material_of
from lamella.graph.data.safetensors import write_safetensors

GIGABYTE = "gigabyte"
NAMES = ("resnet50", "bert", "gpt2_decode", "lstm", GIGABYTE)
WIDE, DEEP = 4096, 15
COLD_S, CACHED_S = 2.0, 0.4
STARTED = """
import json, os, resource, sys, time
import numpy as np
from pathlib import Path
model, given = sys.argv[1], {path.stem.partition(".")[2]: np.load(path) for path in map(Path, sys.argv[2:])}
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
    executable = lamella.compile(model, backend="cpu", threads=1)
    run = lambda: executable(**given)
made = clock()
run()
first = clock()
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


def environment(cache: str) -> dict[str, str]:
    """One thread, a cache of machine code, and bytecode, which every installed package has."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept = str((FOLDER / "bytecode").absolute())
    return {**found, "OMP_NUM_THREADS": "1", "LAMELLA_CACHE": cache, "PYTHONPYCACHEPREFIX": kept}


def start(model: Path, inputs: Sequence[Path], cache: str) -> Mapping[str, list[list[float]] | float]:
    """Seconds to make a model callable, of its first call and of its second one, and the peak of memory."""
    command = [sys.executable, "-c", STARTED, str(model), *map(str, inputs)]
    done = subprocess.run(command, env=environment(cache), stdout=subprocess.PIPE, check=True)
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
    return f"{name:14} {way:12}{seconds}{peak / 1e6:>9.0f}{aside / 1e6:>7.0f}{aim}"


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
    heads = ("wall", "CPU", "load", "first", "run")
    print(f"{'model':14} {'':12}{''.join(f'{word:>8}' for word in heads)}{'peak MB':>9}{'aside':>7}")
    print(
        "seconds until a result is there, less what a run takes; then CPU seconds of loading, first and second run;\n"
        "the most memory that the process held, and that another one held which compiled for it"
    )
    for chosen in sys.argv[1:] or NAMES:
        if chosen == GIGABYTE:
            measure_gigabyte()
        else:
            measure(chosen)
