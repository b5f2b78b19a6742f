"""Autotuning on the device: how long the candidates of a product take, and whether they compute the same.

A candidate runs once, and its numbers are compared with those of the default one. Then its launches are captured as a
CUDA graph, each with copies of its own of constants, and replayed between two events. Before that the second-level
cache is flushed by writing a large piece of memory: weights come from memory then, as they do in a model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cache, partial

import numpy as np

from lamella.backend.arguments import written_parameters
from lamella.backend.cuda.arrays import DeviceArray, DeviceMemory
from lamella.backend.cuda.compile import compile_program, device_target, with_sizes
from lamella.backend.cuda.cublaslt import WORKSPACE, bind_product, usable_version
from lamella.backend.cuda.driver import Event, LaunchGraph, device, own_stream
from lamella.backend.cuda.driver import call as call_driver
from lamella.backend.cuda.kernels import CudaKernels
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.base.tuning import MeasuredWay
from lamella.kernels.candidates import Candidate, Place
from lamella.kernels.launches import ELEMENT_BYTES, ELEMENT_TYPES
from lamella.kernels.native_products import NativeProduct, find_native
from lamella.kernels.nodes import KernelCall, KernelOperand
from lamella.kernels.split_rows import split_rows
from lamella.lang.tensor.nodes import Function, Program
from lamella.lang.tensor.nodes.types import FLOATS, STORED_FLOATS

LAUNCHES, ENOUGH = 16, 0.01
"""Launches of a way that are timed together, each with its own copy of what never changes; fewer where they would take
longer than so many seconds."""
MOST_COPIED = 1 << 30
"""Bytes of all copies together."""
REPLAYS = 5
"""How often they are timed; the shortest time counts."""
PATTERN = 1_000_003
"""The period of the numbers that memory is filled with: a prime, so that rows differ."""
SEEDS = 5
"""How many such patterns there are: neighbouring operands differ."""
CLOSE = {"bfloat16": 1e-2, "float16": 2e-3, "float8_e4m3fn": 0.1, "float8_e5m2": 0.2}
"""The tolerance between candidates, relative to the norm, where the output is rounded to such a type."""
CLOSE_SUMS = 1e-4
"""The tolerance of outputs that hold unrounded sums."""
MOST_COMPARED = 1 << 22
"""Numbers of an output that are compared."""
HALF = MOST_COMPARED // 2
DIFFERS = "computes other numbers"

Launch = Callable[[], None]


@dataclass(slots=True)
class _Memory:
    """The operands of a problem on the device: outside ones are shared by all candidates, temporaries belong to one."""

    fixed: frozenset[Place]
    copies: int
    places: dict[tuple[Place, int], DeviceMemory] = field(default_factory=dict)

    def array(self, operand: KernelOperand, number: int) -> DeviceArray:
        """The memref of an operand, in one of the copies where it is fixed."""
        place = operand.name, operand.item
        memory = self.places[place, number if place in self.fixed else 0]
        width, dtype = ELEMENT_BYTES[operand.element], ELEMENT_TYPES[operand.element]
        strides = operand.strides or _packed(operand.shape)
        return DeviceArray(
            memory.address + operand.offset * width,
            operand.shape,
            dtype,
            [step * width for step in strides],
            memory,
        )

    def sample(self, place: Place, element: str) -> Array:
        """An operand as it lies in memory, for ways may see it in other shapes; of a large one both ends."""
        memory, dtype = self.places[place, 0], ELEMENT_TYPES[element]
        count = memory.size // dtype.itemsize
        parts = [(0, count)] if count <= MOST_COMPARED else [(0, HALF), (count - HALF, HALF)]
        arrays = [
            DeviceArray(memory.address + first * dtype.itemsize, (size,), dtype, owner=memory).numpy()
            for first, size in parts
        ]
        return np.concatenate(arrays)

    def reserve(self, sizes: Mapping[Place, tuple[int, str]], fill: bool) -> None:
        """Memory of so many bytes, filled with numbers of a type or with zeros; copies of what is fixed."""
        for place, (size, element) in sizes.items():
            for number in range(self.copies if place in self.fixed else 1):
                memory = DeviceMemory(size)
                if fill:
                    _fill(memory, element, len(self.places))
                else:
                    memory.fill(own_stream())
                self.places[place, number] = memory


class DeviceMeasurer:
    """Measures candidates on the GPU of this process."""

    @property
    def machine(self) -> str:
        """The device, its driver, and the library that it may compute with."""
        here = device()
        return f"{here.name}, CUDA {here.driver}, cuBLASLt {usable_version()}"

    @property
    def has_library(self) -> bool:
        """Whether cuBLASLt may compute products."""
        return bool(usable_version())

    def measure(
        self, candidates: Sequence[Candidate], fixed: frozenset[Place], until: float
    ) -> list[MeasuredWay] | None:
        """The time of each candidate, the default being first; None where the clock passes `until` before the end."""
        outside = _sizes([call for item in candidates for call in item.calls], False)
        weights = sum(size for place, (size, _) in outside.items() if place in fixed)
        copies = max(2, min(LAUNCHES, MOST_COPIED // max(1, 2 * weights)))
        try:
            timing = _Timing(_Memory(fixed, copies), self.has_library)
            timing.shared.reserve(outside, True)
        except LamellaError as problem:  # no room for all copies
            return [MeasuredWay(item.name, None, _why(problem)) for item in candidates]
        timing.compile(candidates)
        found: list[MeasuredWay] = []
        want: dict[Place, Array] = {}
        for item in candidates:
            if found and time.monotonic() > until:
                return None
            try:
                seconds, numbers = timing.time(item)
            except (Unsupported, LamellaError) as problem:
                found.append(MeasuredWay(item.name, None, _why(problem)))
                continue
            want = want or numbers
            alike = numbers.keys() == want.keys() and all(
                _are_close(numbers[place], want[place]) for place in want
            )
            found.append(MeasuredWay(item.name, seconds) if alike else MeasuredWay(item.name, None, DIFFERS))
        return found


class _Timing:
    """The candidates of one product while they are timed: what they share on the device."""

    def __init__(self, shared: _Memory, by_library: bool) -> None:
        self.shared = shared
        self._target = device_target()
        self._workspace = DeviceMemory(WORKSPACE) if by_library else None
        self._flushed = DeviceMemory(2 * device().l2_bytes)
        self._fault = DeviceMemory(ELEMENT_BYTES["i32"])
        self._kernels: dict[Function, tuple[CudaKernels, str]] = {}
        """What was compiled, and what it is called there."""

    def compile(self, candidates: Sequence[Candidate]) -> None:
        """Compile the kernels of all candidates as one program; if that fails, each in its turn."""
        found = dict.fromkeys(function for item in candidates for function in self._functions(item))
        with suppress(Unsupported, LamellaError):
            self._add([item for item in found if self._find_product(item) is None])

    def _add(self, functions: Sequence[Function]) -> None:
        """Compile some kernels under names of their own: those of different ways have the same."""
        named = {f"way_{number}": item for number, item in enumerate(functions)}
        program = Program(tuple(replace(item, name=name) for name, item in named.items()))
        compiled = compile_program(program, target=self._target)
        compiled.bring()  # what is assembled meanwhile would disturb the clock
        self._kernels |= {item: (compiled, name) for name, item in named.items()}

    def _functions(self, candidate: Candidate) -> tuple[Function, ...]:
        """The kernels of a way as a graph would have them."""
        groups = {item.kernel: item.groups for item in candidate.calls}
        return split_rows(with_sizes(Program(candidate.functions)), groups).functions

    def _find_product(self, function: Function) -> NativeProduct | None:
        return None if self._workspace is None else find_native(function)

    def time(self, candidate: Candidate) -> tuple[float, dict[Place, Array]]:
        """The seconds of one run of a candidate, and its outputs."""
        made = self.shared.fixed | _made_once(candidate)
        memory = _Memory(made, self.shared.copies, dict(self.shared.places))
        memory.reserve(_sizes(candidate.calls, True), False)
        runs, outputs, stream = self._bind_all(candidate, memory), _outputs(candidate), own_stream()
        for place in outputs:
            memory.places[place, 0].fill(stream)  # what the way before left there is none of its numbers
        _launch_all(runs[0])
        stream.wait("measuring a way")
        numbers = {place: memory.sample(place, element) for place, element in outputs.items()}
        once = self._seconds(partial(_launch_all, runs[1]))
        count = max(1, min(LAUNCHES, int(ENOUGH / max(once, 1e-9))))
        launches = [launch for number in range(count) for launch in runs[number % memory.copies]]
        graph = LaunchGraph(stream, partial(_launch_all, launches))
        return min(self._seconds(graph.launch) for _ in range(REPLAYS)) / count, numbers

    def _bind_all(self, candidate: Candidate, memory: _Memory) -> list[list[Launch]]:
        """The launches of a run for each copy of the constants; what is computed from them once is computed here."""
        kernels = {item.name: item for item in self._functions(candidate)}
        missing = [
            item for item in kernels.values() if item not in self._kernels and not self._find_product(item)
        ]
        if missing:
            self._add(missing)
        runs: list[list[Launch]] = []
        for number in range(memory.copies):
            bound = [
                (item, self._bind(kernels[item.kernel], item, memory, number)) for item in candidate.calls
            ]
            _launch_all([launch for item, launch in bound if item.once])
            runs.append([launch for item, launch in bound if not item.once])
        return runs

    def _seconds(self, work: Launch) -> float:
        """The time of some work on the device, with a cold second-level cache."""
        stream, begin, end = own_stream(), Event(), Event()
        self._flushed.fill(stream)
        begin.record(stream)
        work()
        end.record(stream)
        return end.seconds_since(begin)

    def _bind(self, function: Function, item: KernelCall, memory: _Memory, number: int) -> Launch:
        arrays = [memory.array(operand, number) for operand in item.operands]
        product = self._find_product(function)
        if product is not None and self._workspace is not None:
            bound = bind_product(product, [array.address for array in arrays], self._workspace.address)
            return partial(bound.launch, own_stream())
        if item.has_fault:
            arrays.append(DeviceArray(self._fault.address, (1,), np.dtype(np.int32), owner=self._fault))
        kernels, name = self._kernels[function]
        return kernels.bind(name, arrays, item.groups).launch


def _launch_all(launches: Sequence[Launch]) -> None:
    for launch in launches:
        launch()


# --- operands ------------------------------------------------------------------------------------------------------


def _packed(shape: Sequence[int]) -> list[int]:
    found, step = [], 1
    for size in shape:
        found.append(step)
        step *= size
    return found


def _sizes(calls: Sequence[KernelCall], temporary: bool) -> dict[Place, tuple[int, str]]:
    found: dict[Place, tuple[int, str]] = {}
    for item in (operand for one in calls for operand in one.operands):
        if item.is_temporary == temporary:
            place, size = (item.name, item.item), item.reach * ELEMENT_BYTES[item.element]
            found[place] = max(size, found.get(place, (0, ""))[0]), item.element
    return found


def _written(candidate: Candidate, item: KernelCall) -> Iterator[KernelOperand]:
    """The operands that a launch writes."""
    function = next(one for one in candidate.functions if one.name == item.kernel)
    names = written_parameters(function)
    for parameter, operand in zip(function.parameters, item.operands, strict=False):
        if parameter.value.name in names:
            yield operand


def _made_once(candidate: Candidate) -> frozenset[Place]:
    """The launches that run once, on weights alone."""
    calls = [item for item in candidate.calls if item.once]
    return frozenset((one.name, one.item) for item in calls for one in _written(candidate, item))


@cache
def _pattern(element: str, seed: int) -> Array:
    """Small numbers of a type; integers are zeros and ones."""
    random, dtype = np.random.default_rng(seed), ELEMENT_TYPES[element]
    if element in (*FLOATS, *STORED_FLOATS):
        return (random.random(PATTERN, np.float32) - 0.5).astype(dtype)
    return random.integers(0, 2, PATTERN).astype(dtype)


def _fill(memory: DeviceMemory, element: str, seed: int) -> None:
    """Fill memory with numbers of a type."""
    numbers = _pattern(element, seed % SEEDS)
    stream, size = own_stream(), min(memory.size, numbers.nbytes)
    memory.write(numbers.ctypes.data, size, stream)
    stream.wait()
    while size < memory.size:
        more = min(size, memory.size - size)
        call_driver("cuMemcpyDtoDAsync_v2", memory.address + size, memory.address, more, stream.handle)
        size += more


def _outputs(candidate: Candidate) -> dict[Place, str]:
    """The tensors of the outside that the launches of a way write, and their types."""
    return {
        (operand.name, operand.item): operand.element
        for item in candidate.calls
        for operand in _written(candidate, item)
        if not operand.is_temporary
    }


def _are_close(found: Array, want: Array) -> bool:
    """Whether two outputs differ by rounding alone; NaNs must stand in the same places."""
    close = CLOSE.get(str(want.dtype), CLOSE_SUMS)
    left, right = (np.ravel(item).astype(np.float64) for item in (found, want))
    finite = np.isfinite(right)
    if not np.array_equal(finite, np.isfinite(left)):
        return False
    apart = np.linalg.norm(left[finite] - right[finite])
    return bool(apart <= close * np.linalg.norm(right[finite]))


def _why(problem: Exception) -> str:
    """Why a way was not measured."""
    words = problem.findings[0].message if isinstance(problem, LamellaError) else str(problem)
    return f"cannot run ({words[:80]})"
