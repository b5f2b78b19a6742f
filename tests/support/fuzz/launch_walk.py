"""One launch both ways: the interpreter judges, machine code runs on arrays between pages that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.backend import cpu, interpreter
from lamella.backend.cpu.run.launch import ArgumentPacker
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.nodes import Program
from tests.support.backend.interpreter.kernels import DTYPES
from tests.support.strategies.tensor_launches import (
    ArrayOf,
    Layout,
    RandomKernel,
    RandomLaunch,
    draw_kernel,
    draw_launch,
)

Array = npt.NDArray[Any]
Share = tuple[int, int, int]
"""A seed, the first kernel and how many."""
Prepare = Callable[[], None]
MEMORY_FAULTS = {f"TEN{number}" for number in (140, 215, 216, 217, 218, 220, 221, 222, 223)}
"""What machine code must refuse or find as the interpreter does."""
LIMITS = replace(DEFAULT, max_steps=60_000)
LAUNCHES = 20
"""Launches of each kernel."""
PAGES, SLOTS, CANARY = 6, 16, 0xA5
PROT_NONE = 0


# --- memory between guards ----------------------------------------------------------------------------------


class GuardedMemory:
    """Slots of a few pages, each between two pages that end the process when they are touched."""

    def __init__(self) -> None:
        self._page = mmap.PAGESIZE
        self._stride = (PAGES + 1) * self._page
        self._map = mmap.mmap(-1, SLOTS * self._stride + self._page)
        self.bytes: Array = np.frombuffer(self._map, np.uint8)
        libc, start = ctypes.CDLL(None, use_errno=True), self.bytes.ctypes.data
        for slot in range(SLOTS + 1):
            place = ctypes.c_void_p(start + slot * self._stride)
            if libc.mprotect(place, ctypes.c_size_t(self._page), PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def slot(self, number: int) -> Array:
        """The bytes of a slot that may be used."""
        first = number * self._stride + self._page
        return self.bytes[first : first + PAGES * self._page]


def place_array(memory: Array, dtype: np.dtype[Any], layout: Layout) -> Array:
    """An array at one end of some bytes."""
    reach = sum((size - 1) * step for size, step in zip(layout.shape, layout.strides, strict=True))
    size = (reach + 1) * dtype.itemsize if 0 not in layout.shape else 0
    first = len(memory) - size if layout.at_end and size else 0
    strides = [step * dtype.itemsize for step in layout.strides]
    return np.ndarray(layout.shape, dtype, memory.data, first, strides)


# --- cases --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a launch, the bytes that they lie in, and all arrays among them."""

    values: list[object]
    arrays: list[Array]
    memories: list[Array]


def make_arguments(kernel: RandomKernel, launch: RandomLaunch, memories: Iterator[Array]) -> Arguments:
    """The arguments of a launch in given memory; the same numbers for the same launch."""
    random = np.random.default_rng(launch.seed)
    found = Arguments([], [], [])
    for item, layouts in zip(kernel.arrays, launch.layouts, strict=True):
        made = []
        for layout in layouts:
            memory = next(memories)
            memory[:] = CANARY
            array = place_array(memory, DTYPES[item.element], layout)
            array[...] = _numbers(random, item, layout.shape)
            found.memories.append(memory)
            made.append(array)
        found.arrays.extend(made)
        found.values.append(made if item.group else made[0])
    found.values.extend(launch.integers)
    return found


def _numbers(random: np.random.Generator, item: ArrayOf, shape: tuple[int, ...]) -> Array:
    numbers = random.integers(0, 7, shape)
    if item.use == "read" and item.element in ("i8", "i16", "i32", "i64"):
        odd = random.random(shape) < (0.06 if random.random() < 0.3 else 0.0)
        numbers = np.where(odd, random.choice([-1, 20, 100, 127, -128], shape), numbers)
        if item.element == "i64" and random.random() < 0.2:
            huge = random.choice([2**63 - 1, -(2**63), 2**61], shape)
            numbers = np.where(random.random(shape) < 0.1, huge, numbers)
    return np.asarray(numbers)


@dataclass(slots=True)
class Kernel:
    """A kernel that is launched in all ways; machine code is made when something is to run."""

    random: RandomKernel
    program: Program
    judge: interpreter.InterpretedKernels
    packer: ArgumentPacker
    code: cpu.CompiledKernels | None = None

    def machine(self) -> cpu.CompiledKernels:
        """The kernel as machine code."""
        if self.code is None:
            self.code = cpu.compile_program(self.program, threads=1)
            function, _, runner = self.code._ready["k"]
            self.code._ready["k"] = (function, self.packer, runner)  # what is proved once is not proved again
        return self.code


def make_kernel(random: Random) -> Kernel | None:
    """A random kernel; None where its text has errors."""
    kernel = draw_kernel(random, "k")
    parsed = parse(Source("k.tensor", kernel.text))
    if errors([*parsed.findings, *check(parsed.program)]):
        return None
    judge = interpreter.compile_program(parsed.program, check_bounds=True, limits=LIMITS)
    return Kernel(kernel, parsed.program, judge, ArgumentPacker(parsed.program.functions[0]))


class FoundError(Exception):
    """The fuzzer found something."""


def try_launch(kernel: Kernel, launch: RandomLaunch, guarded: GuardedMemory, blind: bool = False) -> str:
    """One launch both ways; the word of how it went. A blind try runs machine code whatever is proved."""
    sizes = range(sum(map(len, launch.layouts)))
    plain = make_arguments(kernel.random, launch, (np.empty(PAGES * mmap.PAGESIZE, np.uint8) for _ in sizes))
    expected = _outcome(lambda: kernel.judge.call("k", plain.values, launch.groups))
    if expected and not expected & MEMORY_FAULTS:
        return "other"
    given = make_arguments(kernel.random, launch, (guarded.slot(number) for number in sizes))
    if not blind:
        doubts = _outcome(lambda: _refuse_doubts(kernel, given, launch))
        if expected and not doubts:
            raise FoundError(f"it is proved, and the interpreter finds {expected}")
        if expected and "TEN140" in doubts:
            return "refused"
    found = _outcome(lambda: kernel.machine().call("k", given.values, launch.groups))
    if bool(expected) != bool(found & MEMORY_FAULTS) or found - MEMORY_FAULTS:
        raise FoundError(f"the interpreter finds {expected}, machine code {found}")
    _compare(plain, given, bool(expected))
    if expected:
        return "refused" if "TEN140" in found else "tested"
    return "proved" if not kernel.machine().findings else "clean"


def _refuse_doubts(kernel: Kernel, given: Arguments, launch: RandomLaunch) -> None:
    """Raise what a launch is refused for, or that something of it is not proved."""
    doubts = kernel.packer.pack(given.values, launch.groups).doubts
    if doubts is not None:
        raise LamellaError(doubts.doubts or [_NOTE])


_NOTE = parse(Source("note.tensor", "func @")).findings[0]
"""Stands for something that cannot be followed, of which nothing is said."""


def _outcome(call: Callable[[], None]) -> set[str]:
    """The codes of what a call raises."""
    try:
        call()
    except LamellaError as error:
        return {item.code if item.code in MEMORY_FAULTS else str(item) for item in error.findings}
    return set()


def _compare(plain: Arguments, given: Arguments, faulted: bool) -> None:
    """Nothing beside the arrays has changed; where nothing was refused, they hold what the interpreter computed."""
    for place, (one, other) in enumerate(zip(plain.memories, given.memories, strict=True)):
        if faulted:
            # What stands in arrays after a fault is not said, so only the bytes around them are compared.
            given.arrays[place][...] = 0
            plain.arrays[place][...] = 0
        if one.tobytes() != other.tobytes():
            where = np.flatnonzero(one != other)[:4]
            raise FoundError(f"array {place}: bytes {where} differ, faulted: {faulted}")


# --- children -----------------------------------------------------------------------------------------------


def run_cases(seed: int, first: int, count: int, blind: bool = False, machine: bool = True) -> Iterator[str]:
    """The words of how cases went, kernel by kernel; what is found is raised with the text and the launch."""
    guarded = GuardedMemory()
    for number in range(first, first + count):
        random = Random(f"{seed}:{number}")
        kernel = make_kernel(random)
        if kernel is None:
            continue
        for _ in range(LAUNCHES):
            launch = draw_launch(random, kernel.random)
            try:
                yield try_launch(kernel, launch, guarded, blind) if machine else try_proof(kernel, launch)
            except FoundError as error:
                raise FoundError(f"kernel {seed}:{number}: {error}\n{launch}\n{kernel.random.text}") from None


def try_proof(kernel: Kernel, launch: RandomLaunch) -> str:
    """A launch that is proved or refused but not run: what is proved, the interpreter must not find wrong."""
    sizes = range(sum(map(len, launch.layouts)))
    plain = make_arguments(kernel.random, launch, (np.empty(PAGES * mmap.PAGESIZE, np.uint8) for _ in sizes))
    doubts = _outcome(lambda: _refuse_doubts(kernel, plain, launch))
    if doubts and "TEN140" not in doubts:
        return "open"
    expected = _outcome(lambda: kernel.judge.call("k", plain.values, launch.groups))
    if (not doubts and expected & MEMORY_FAULTS) or (doubts and not expected):
        raise FoundError(f"the proof says {doubts or 'inside'}, the interpreter {expected or 'inside'}")
    return "refused" if doubts else "proved"


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a share of cases in a process of its own."""

    words: tuple[str, ...]
    problem: str
    """What was found; a signal is one too."""


def run_in_child(share: Share, prepare: Prepare | None = None, **options: bool) -> Report:
    """Run cases (seed, first kernel, kernels) in a child, so that a crash is seen and told with its case."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            os.close(read)
            code = _run_child(write, share, prepare, options)
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    words, _, problem = content.partition("\0")
    if os.WIFSIGNALED(status):
        problem = f"signal {os.WTERMSIG(status)} after {len(words.split())} cases of {tuple(share)}"
    elif os.WEXITSTATUS(status) and not problem:
        problem = f"exit {os.WEXITSTATUS(status)}"
    return Report(tuple(words.split()), problem)


def _run_child(write: int, share: Share, prepare: Prepare | None, options: dict[str, bool]) -> int:
    with os.fdopen(write, "w", buffering=1) as pipe:
        try:
            if prepare is not None:
                prepare()
            blind, machine = options.get("blind", False), options.get("machine", True)
            for word in run_cases(*share, blind, machine):
                pipe.write(f"{word}\n")
        except FoundError as error:
            pipe.write(f"\0{error}")
        except Exception:  # noqa: BLE001 - whatever ends a child is told by its parent
            pipe.write(f"\0{traceback.format_exc()}")
    return 0
