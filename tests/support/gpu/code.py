"""PTX kernels as functions of Python, one for each basic block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import CodeType
from typing import Any

import numpy as np

from tests.support.gpu import mathematics
from tests.support.gpu.memory import DeviceMemory
from tests.support.gpu.ptx import Entry, Instruction
from tests.support.gpu.translate import WARP, Translator, Untranslated

DTYPES = {"p": np.bool_, "h": np.uint16, "w": np.uint32, "d": np.uint64}
EXIT = 1 << 30
UNKNOWN = 0xABABABAB
"""What registers hold before they are written."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A basic block, and what follows it; or one instruction at which lanes wait."""

    kind: str
    """fall, branch or exit; or warp, block, cluster, poll or warpgroup for those that wait."""
    target: int = EXIT
    following: int = EXIT
    predicate: str = ""
    negated: bool = False
    item: Instruction | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """What a kernel is launched with."""

    grid: int
    block: tuple[int, int]
    shared_bytes: int
    cluster: int
    parameters: tuple[int, ...]
    is_early: bool = False
    """Whether it may begin before the launch in front of it has ended."""


class Code:
    """A kernel that can be run."""

    def __init__(self, entry: Entry, constants: Mapping[str, int], memory: DeviceMemory) -> None:
        self.entry, self.memory = entry, memory
        self._translator = Translator(entry, dict(constants))
        self.segments = tuple(self._cut())
        self.lengths = [end - start for start, end in self._ranges]
        """Instructions of each segment."""
        self.has_warpgroups = any(item.head == "wgmma" for item in entry.instructions)

    def _cut(self) -> Iterator[Segment]:
        """Segments, which follow each other as their instructions do."""
        items, labels = self.entry.instructions, self.entry.labels
        cuts = {0, len(items), *labels.values()}
        for place, item in enumerate(items):
            if item.head in ("bra", "ret", "exit", "trap") or _waits(item):
                cuts |= {place + 1}
            if _waits(item):
                cuts |= {place}
        starts = sorted(cuts)
        numbers = {place: number for number, place in enumerate(starts)}
        self._ranges = list(pairwise(starts))
        for _, end in self._ranges:
            last = items[end - 1]
            following = numbers[end] if end < len(items) else EXIT
            if kind := _waits(last):
                yield Segment(kind, following=following, item=last)
            elif last.head in ("bra", "ret", "exit"):
                where = EXIT if last.head != "bra" else numbers[labels[str(last.operands[-1])]]
                where = where if where < len(self._ranges) else EXIT
                if last.guard:
                    negated = last.guard.startswith("!")
                    yield Segment("branch", where, following, last.guard.lstrip("!"), negated, last)
                else:
                    yield Segment("fall", following=where)
            else:
                yield Segment("fall", following=following)

    @cached_property
    def _program(self) -> tuple[CodeType, list[tuple[str, str, str]]]:
        """The functions of all segments, and the rows that they name, with their registers and how they are seen."""
        body = []
        for number, ((start, end), segment) in enumerate(zip(self._ranges, self.segments, strict=True)):
            items = self.entry.instructions[start:end]
            if segment.kind in ("poll", "block", "cluster"):
                items = []
            lines = [
                line
                for item in items
                if item.head not in ("bra", "ret", "exit")
                for line in self._lines(item)
            ]
            body += [f"def run_{number}(m):", *(f"    {line}" for line in lines), "    return"]
            body += [f"def tell_{number}():", f"    return {self._told(segment)}"]
        text = "\n".join(body)
        rows = []
        for word in sorted(set(re.findall(r"[A-Za-z_]\w*", text))):
            for name, seen in ((word, ""), (word[:-1], word[-1])):
                if name in self.entry.registers and seen in ("", "s", "f"):
                    rows.append((word, name, seen))
        return compile(text, f"<{self.entry.name}>", "exec"), rows

    def make(self, lanes: object, count: int, special: Mapping[str, Any]) -> dict[str, Any]:
        """The functions of all segments for some lanes, and the rows of registers that they work on."""
        program, named = self._program
        rows: dict[str, Any] = {}
        for kind, dtype in DTYPES.items():
            names = [name for name, held in self.entry.registers.items() if held == kind]
            unknown = UNKNOWN % (1 << 8 * np.dtype(dtype).itemsize)
            rows |= zip(names, np.full((len(names), count), unknown, dtype), strict=True)
        scope: dict[str, Any] = {f"one_f{bits}": np.dtype(f"f{bits // 8}").type(1) for bits in (16, 32, 64)}
        scope |= {
            "np": np,
            "maths": mathematics,
            "put": np.copyto,
            "lanes": lanes,
            "carry": np.zeros(count, np.bool_),
        }
        scope |= self._translator.values
        scope |= special
        for word, name, seen in named:
            row = rows[name]
            scope[word] = row.view({"s": f"i{row.itemsize}", "f": f"f{row.itemsize}"}[seen]) if seen else row
        exec(program, scope)
        return {**scope, **rows}

    def _lines(self, item: Instruction) -> list[str]:
        try:
            return list(self._translator.lines(item))
        except (Untranslated, KeyError, AssertionError, ValueError) as problem:
            raise Untranslated(f"{item.text}: {problem!r}") from problem

    def _told(self, segment: Segment) -> str:
        """What the scheduler has to know of an instruction that waits."""
        item = segment.item
        if item is None or segment.kind not in ("warp", "block", "poll"):
            return "None"
        read = self._translator.read
        if segment.kind == "poll":
            assert item.operands[0] in self.entry.registers
            address = self._translator.address(item.operands[1])
            return f"({item.operands[0]}, {address}, {read(item.operands[2], 'u32')})"
        if segment.kind == "block":
            return "(" + "".join(f"{read(operand, 'u32')}, " for operand in item.operands) + ")"
        if item.head == "shfl" or item.name.startswith("bar.warp"):
            return read(item.operands[-1], "u32")
        return "np.uint32(0xFFFFFFFF)"


def _waits(item: Instruction) -> str:
    """How an instruction waits for other lanes; empty where it does not."""
    if item.name.startswith(WARP):
        return "warp"
    if item.name.startswith(("bar.sync", "barrier.cta", "barrier.sync")):
        return "block"
    if item.name.startswith("barrier.cluster.wait"):
        return "cluster"
    if item.name.startswith("mbarrier.try_wait"):
        return "poll"
    return "warpgroup" if item.head == "wgmma" else ""
