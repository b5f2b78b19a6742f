"""A timeline of the launches of a token on an NVIDIA GPU: when each begins, waits and ends, on how many SMs at once.

`python -m bench.cuda_timeline --layers 8` writes timestamps into the PTX of all kernels: the first thread of each block
tells the clock of its multiprocessor (SM) when it begins, when it has waited for its predecessor, and when it ends.
Clocks of multiprocessors are set by the timer that all of them see, which ticks more slowly. The table has a line for
each launch of a layer in the middle, in microseconds since the first block of that layer began.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bench.cuda_decode import list_of_token
from bench.measuring import require_gpu
from lamella.backend.cpu.compiled import KernelSymbol
from lamella.backend.cpu.run.prepared import address_of
from lamella.backend.cuda import build
from lamella.backend.cuda.arrays import DeviceMemory
from lamella.backend.cuda.binaries import BuiltKernel
from lamella.backend.cuda.driver import device, own_stream
from lamella.backend.cuda.lists import CudaList
from lamella.backend.cuda.modules import CudaModule, DeviceKernel
from lamella.base.arrays import Array
from lamella.pipeline.decoding import Sampling
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options

ROWS, BLOCKS, WORDS = 4096, 512, 8
"""Launches and blocks that are told, and the words of each."""
BEGIN, WAITED, END, BARRIERS, PLACE = 0, 1, 2, (3, 4, 5, 6), 7
"""The words: three moments, those behind the first barriers, and the multiprocessor."""
GRAIN = 64
"""Slots of launches begin at multiples of it: their addresses tell launches apart."""
MOMENT = """
{{ .reg .b64 %ta, %tb; .reg .b32 %tc, %td; .reg .pred %tp;
mov.u32 %tc, %tid.x; mov.u32 %td, %tid.y; or.b32 %tc, %tc, %td; setp.eq.u32 %tp, %tc, 0;
mov.u32 %tc, %ctaid.x; min.u32 %tc, %tc, {last}; mul.wide.u32 %tb, %tc, {words};
ld.param.u64 %ta, [{slots}]; shr.u64 %ta, %ta, {shift}; and.b64 %ta, %ta, {rows}; mul.lo.u64 %ta, %ta, {size};
add.s64 %ta, %ta, %tb; add.s64 %ta, %ta, {base};
mov.u64 %tb, %clock64; @%tp st.global.u64 [%ta + {offset}], %tb;
mov.u32 %tc, %smid; cvt.u64.u32 %tb, %tc; @%tp st.global.u64 [%ta + {place}], %tb; }}
"""
CLOCKS = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry clocks(.param .u64 slots, .param .u64 groups) {
.reg .b64 %a, %b, %t, %u, %c; .reg .b32 %s; .reg .pred %p;
ld.param.u64 %a, [slots]; ld.global.u64 %a, [%a];
mov.u64 %t, %globaltimer;
again: mov.u64 %u, %globaltimer; mov.u64 %c, %clock64; setp.eq.u64 %p, %u, %t; @%p bra again;
mov.u32 %s, %smid; mul.wide.u32 %b, %s, 16; add.s64 %a, %a, %b;
st.global.u64 [%a], %u; st.global.u64 [%a + 8], %c; ret; }
"""


class Moments:
    """Memory of the device that kernels write their moments to, and their PTX with them."""

    def __init__(self) -> None:
        self._memory = DeviceMemory(ROWS * BLOCKS * WORDS * 8)
        self._write = build._PtxWriter.write

    def __enter__(self) -> Moments:
        write, own = self._write, self

        def written(writer: Any, number: int) -> BuiltKernel:
            return own.instrument(write(writer, number))

        setattr(build._PtxWriter, "write", written)  # noqa: B010
        return self

    def __exit__(self, *_: object) -> None:
        setattr(build._PtxWriter, "write", self._write)  # noqa: B010

    def instrument(self, kernel: BuiltKernel) -> BuiltKernel:
        """A kernel that tells its moments."""
        assert isinstance(kernel.content, bytes)  # PTX, which nobody has begun to assemble
        text, symbol = kernel.content[:-1].decode(), kernel.entry.symbol

        def moment(which: int) -> str:
            return MOMENT.format(
                last=BLOCKS - 1, slots=f"{symbol}_param_0", shift=GRAIN.bit_length() - 1, rows=ROWS - 1,
                size=BLOCKS * WORDS * 8, words=WORDS * 8, base=self._memory.address, offset=8 * which, place=8 * PLACE,
            )  # fmt: skip

        head, body = text.split("\n{\n", 1)
        begin = re.search(r"^\t(?!\.reg|\.shared|//).*;", body, re.M)
        assert begin is not None
        body = body[: begin.start()] + moment(BEGIN) + body[begin.start() :]
        body = body.replace("\tgriddepcontrol.wait;", "\tgriddepcontrol.wait;" + moment(WAITED), 1)
        body = body.replace("\tret;", moment(END) + "\tret;")
        start, *rest = re.split(r"\tbar\.sync\s+0;", body)
        marks = [moment(which) for which in BARRIERS[: len(rest)]]
        marks += [""] * (len(rest) - len(marks))
        body = start + "".join(f"\tbar.sync 0;{mark}{part}" for mark, part in zip(marks, rest, strict=True))
        return BuiltKernel(kernel.entry, f"{head}\n{{\n{body}\0".encode())

    def clear(self) -> None:
        """Forget all moments."""
        self._memory.fill(own_stream())

    def read(self) -> Array:
        """The moments of all launches: launch, block, word."""
        found = np.zeros((ROWS, BLOCKS, WORDS), np.int64)
        self._memory.read(address_of(found), found.nbytes, own_stream())
        own_stream().wait()
        return found


class Clocks:
    """For each multiprocessor a moment of the common timer, and what its own clock shows then."""

    def __init__(self) -> None:
        self._count = device().multiprocessors
        self._room, self._slots = DeviceMemory(16 * self._count), DeviceMemory(8)
        address = np.array([self._room.address], np.int64)
        self._slots.write(address_of(address), 8, own_stream())
        own_stream().wait()
        entry = KernelSymbol("clocks", "clocks", 0)
        self._kernel = DeviceKernel(CudaModule(CLOCKS.encode() + b"\0"), entry, (1, 1))
        self.read()

    def read(self) -> None:
        """Look at all clocks, behind what the stream was given before; nobody waits."""
        self._kernel.launch(own_stream(), self._slots.address, 32 * self._count)

    def found(self) -> Array:
        """What was read last: a row for each multiprocessor."""
        found = np.zeros((self._count, 2), np.int64)
        self._room.read(address_of(found), found.nbytes, own_stream())
        own_stream().wait()
        return found


def to_time(moments: Array, before: Array, after: Array) -> Array:
    """Moments in nanoseconds of the common timer since its first reading; it was read before and after."""
    begin = before[:, 0].min()
    ticks = (after[:, 0] - before[:, 0]) / (after[:, 1] - before[:, 1])
    places = moments[..., PLACE]
    since = (moments[..., :PLACE] - before[places, 1][..., None]) * ticks[places][..., None]
    return np.where(moments[..., :PLACE] > 0, since + (before[places, 0] - begin)[..., None], np.nan)


def tell(launches: CudaList, moments: Array, layer: slice) -> None:
    """Lines for the launches of some layers."""
    table = launches._table
    assert table is not None
    rows = []
    for item, launch in zip(launches._launches, launches.whole.launches, strict=True):
        row = (table.address + item.place) // GRAIN % ROWS
        rows.append((launch.kernel or "fill", launch.groups, moments[row]))
    start = np.nanmin(rows[layer.start][2][:, BEGIN])
    print("microseconds: the first, the middle and the last block; a column for each barrier before the end")
    for name, groups, found in rows[layer]:
        told = []
        for which in (BEGIN, WAITED, *BARRIERS, END):
            values = np.sort((found[:, which] - start) / 1e3)
            values = values[~np.isnan(values)]
            if len(values):
                told.append(f"{values[0]:6.2f} {values[len(values) // 2]:6.2f} {values[-1]:6.2f}")
        print(f"{name} of {groups}\n    {' | '.join(told)}")


def measure(generator: Generator, recorded: Moments) -> tuple[CudaList, Array]:
    """A token of a warm device, and when its blocks did what."""
    list(generator.run([7], Sampling(160)))
    launches = list_of_token(generator)
    assert launches is not None
    before, after = Clocks(), Clocks()
    recorded.clear()
    for _ in range(20):
        launches.replay()
    before.read()
    launches.replay()
    launches.replay()
    after.read()
    return launches, to_time(recorded.read(), before.found(), after.found())


def main() -> None:
    """Tell the launches of a token."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--first", type=int, default=12, help="the first launch that is told")
    parser.add_argument("--count", type=int, default=11)
    chosen = parser.parse_args()
    require_gpu()
    os.environ["LAMELLA_CACHE"] = ""  # what is kept tells no moments
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    config = import_module("bench.decode").qwen3(chosen.layers)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with Moments() as recorded:
            generator = Generator(Path(folder), 259, Options(precision="bf16", backend="cuda"), "cuda")
            launches, times = measure(generator, recorded)
            tell(launches, times, slice(chosen.first, chosen.first + chosen.count))


if __name__ == "__main__":
    main()
