"""Launch lists of graphs that are planned for a GPU, run without one.

They run as machine code of this processor, with fewer launches or as they are; or by the interpreter, after all passes
for the GPU and in any order. There whatever has no order is mixed, so that a barrier which lacks shows; memory begins
as no number; and what a kernel may read before the one in front has ended must be there when it can begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lamella.backend import interpreter
from lamella.backend.cpu import compile_program
from lamella.backend.cpu.run.lists import NativeList, NativeMachine
from lamella.backend.cpu.run.memory import SharedArena
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.cuda.compile import fit_kernels
from lamella.backend.executor.kernels import KernelExecutable, compile_graph
from lamella.base.arrays import Array
from lamella.base.limits import DEFAULT
from lamella.graph.model import Model, Streaming
from lamella.kernels.arena_plan import place_buffers
from lamella.kernels.fuse_launches import fuse_launches
from lamella.kernels.fuse_launches.dependent_launch import SETTLED, SETTLES, UNCHANGING
from lamella.kernels.launches import ELEMENT_TYPES, FILL, BufferView, Launch, LaunchList, LaunchTime
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.passes import lower
from lamella.kernels.target import Target, find_target
from lamella.lang.tensor.nodes import Function, Program
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options

HOPPER = "sm_90a"
NO_NUMBER = 0xFF
MOST_STEPS = 10**8


def plan_for_device(
    model: Model, options: Options, target: Target | None = None, extents: Mapping[str, int] = {}
) -> KernelGraph:
    """The kernels of a graph for a GPU, an H200 where none is named.

    With an extent that a call decides, states are updated where they lie.
    """
    chosen = target or find_target(HOPPER)
    return fit_kernels(to_kernels(prepare(model, options, True), options, extents, True, chosen))


def run_native(made: KernelGraph, fuses: bool) -> KernelExecutable:
    """A graph whose launch lists are machine code of this processor."""
    source = ProvingSource(compile_program(Program(())))
    machine = FusingMachine(source, SharedArena(), made=made, fuses=fuses)
    return compile_graph(made, compile_program(made.program).call, machine=machine)


def run_shuffled(made: KernelGraph, seed: int, fuses: bool = True) -> KernelExecutable:
    """A graph whose launch lists are interpreted in the order that a seed gives."""
    source = ProvingSource(compile_program(Program(())))
    machine = ShufflingMachine(source, SharedArena(), made=made, fuses=fuses, seed=seed)
    alone = interpreter.compile_program(made.program, check_bounds=True, seed=seed)
    return compile_graph(made, alone.call, machine=machine)


def fused_program(made: KernelGraph) -> Program:
    """All kernels of a graph, with those that several launches become."""
    source = ProvingSource(compile_program(Program(())))
    machine = ShufflingMachine(source, SharedArena(), made=made, fuses=True, seed=1)
    compile_graph(made, interpreter.compile_program(made.program).call, machine=machine)
    return Program((*made.program.functions, *machine.kernels.values()))


@dataclass(frozen=True)
class FusingMachine(NativeMachine):
    """A machine of the processor that keeps the lists that it is given, with fewer launches where asked."""

    made: KernelGraph = field(kw_only=True)
    fuses: bool = field(kw_only=True)
    lists: list[LaunchList] = field(default_factory=list, kw_only=True)
    kernels: dict[str, Function] = field(default_factory=dict, kw_only=True)
    """Those that several launches became."""

    def compile(self, whole: LaunchList, once: bool = False) -> NativeList:
        """Make a list runnable."""
        whole, functions = self.fuse(whole, once)
        return NativeList(ProvingSource(compile_program(Program(functions))), whole, SharedArena())

    def fuse(self, whole: LaunchList, once: bool) -> tuple[LaunchList, tuple[Function, ...]]:
        """The list that is run, and its kernels."""
        functions = {item.name: item for item in self.made.program.functions}
        more: tuple[Function, ...] = ()
        if self.fuses and not once:
            whole, more = fuse_launches(whole, functions)
        self.kernels.update({item.name: item for item in more})
        if not once:
            self.lists.append(whole)
        return whole, (*functions.values(), *more)


@dataclass(frozen=True)
class ShufflingMachine(FusingMachine):
    """A machine whose lists are interpreted."""

    seed: int = field(kw_only=True)

    def compile(self, whole: LaunchList, once: bool = False) -> Any:
        """Make a list runnable."""
        whole, functions = self.fuse(whole, once)
        used = {item.kernel for item in whole.launches}
        program = Program(tuple(item for item in functions if item.name in used))
        return ShuffledList(whole, program, self.seed)


class ShuffledList:
    """A launch list that is interpreted, in memory that its buffers share as they do on the device."""

    outside_bytes = 0

    def __init__(self, whole: LaunchList, program: Program, seed: int) -> None:
        self.whole = whole
        self.functions = {item.name: item for item in program.functions}
        lowered = lower(program, find_target(HOPPER))
        limits = replace(DEFAULT, max_steps=MOST_STEPS)
        self.kernels = interpreter.compile_program(lowered, limits=limits, check_bounds=True, seed=seed)
        self.plan = place_buffers(whole, {view.buffer for view in whole.inputs.values()})
        self.arena_bytes, self.blocks = self.plan.shared_bytes, self.plan.blocks
        self.bound: Mapping[str, Array] = {}

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Let all later runs read arrays that they are not given."""
        self.bound = {name: array for name, array in inputs.items() if name in self.whole.inputs}

    def stream(self, policies: Mapping[str, Streaming]) -> None:
        """Nothing lies in files."""

    def run(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], times: list[LaunchTime] | None = None
    ) -> bool:
        """Run all launches; False where one found something wrong."""
        rooms, given = self._open(), {**self.bound, **inputs}
        for name, view in self.whole.inputs.items():
            rooms[view.buffer][: given[name].nbytes] = _bytes_of(given[name])
        there = {name: room.copy() for name, room in rooms.items()}
        """What was there when a launch could begin at the earliest."""
        for launch in self.whole.launches:
            function = self.functions.get(launch.kernel)
            if function is not None:
                _judge_promises(launch, function, rooms, there)
                if function.attributes is not None and function.attributes.find(SETTLES) is True:
                    there = {name: room.copy() for name, room in rooms.items()}
            if not self._launch(launch, [_view(view, rooms) for view in launch.arguments]):
                return False
        for name, view in self.whole.outputs.items():
            start = view.offset * ELEMENT_TYPES[view.element].itemsize
            raw = rooms[view.buffer][start : start + outputs[name].nbytes].tobytes()
            np.copyto(outputs[name], np.frombuffer(raw, outputs[name].dtype).reshape(outputs[name].shape))
        for name in self.whole.overwritten:
            room = rooms[self.whole.inputs[name].buffer]
            _bytes_of(given[name])[...] = room[: given[name].nbytes]
        return True

    def _open(self) -> dict[str, Array]:
        """The memory of each buffer, which others may share."""
        found, buffers = dict[str, Array](), self.whole.buffers
        for places, size in (
            (self.plan.shared, self.plan.shared_bytes),
            (self.plan.outside, self.plan.outside_bytes),
        ):
            room = np.full(size, NO_NUMBER, np.uint8)
            found |= {name: room[start : start + buffers[name].size] for name, start in places.items()}
        zeros = np.zeros(self.plan.own_bytes, np.uint8)
        found |= {name: zeros[start : start + buffers[name].size] for name, start in self.plan.own.items()}
        rest = buffers.keys() - found.keys()
        return found | {name: np.full(buffers[name].size, NO_NUMBER, np.uint8) for name in rest}

    def _launch(self, launch: Launch, arrays: Sequence[Array]) -> bool:
        if launch.kernel == FILL:
            arrays[0][...] = np.zeros((), arrays[0].dtype)
            return True
        # Parts of a tensor lie between each other; the language wants arrays that overlap nowhere.
        apart = [
            array.copy(order="K") if place in launch.writes and _overlaps(place, arrays) else array
            for place, array in enumerate(arrays)
        ]
        before = [array.copy(order="K") for array in apart]
        fault = np.zeros(1, np.int32)
        self.kernels.call(launch.kernel, [*apart, *([fault] if launch.has_fault else [])], launch.groups)
        for array, own, old in zip(arrays, apart, before, strict=True):
            if own is not array:
                kind = np.dtype(f"u{own.dtype.itemsize}")
                changed = np.ascontiguousarray(own).view(kind) != np.ascontiguousarray(old).view(kind)
                array[changed] = own[changed]
        return not fault[0]


def _judge_promises(
    launch: Launch, function: Function, rooms: Mapping[str, Array], there: Mapping[str, Array]
) -> None:
    """What a kernel may read early is what it was when the kernel could begin at the earliest."""
    for view, parameter in zip(launch.arguments, function.parameters, strict=False):
        promised = parameter.attributes
        if promised is not None and (promised.find(UNCHANGING) is True or promised.find(SETTLED) is True):
            now, early = (_view(view, held) for held in (rooms, there))
            assert now.tobytes() == early.tobytes(), f"{launch.kernel} reads {parameter.value.name} early"


def _view(view: BufferView, rooms: Mapping[str, Array]) -> Array:
    kind = np.dtype(ELEMENT_TYPES[view.element])
    start = view.offset * kind.itemsize
    flat = rooms[view.buffer][start : start + view.reach].view(kind)
    return as_strided(flat, view.shape, [step * kind.itemsize for step in view.strides])


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _overlaps(place: int, arrays: Sequence[Array]) -> bool:
    return any(
        np.may_share_memory(arrays[place], other) for number, other in enumerate(arrays) if number != place
    )


def with_fewer(target: Target, multiprocessors: int) -> Target:
    """A GPU of so many multiprocessors, which small tensors fill."""
    return replace(target, multiprocessors=multiprocessors)
