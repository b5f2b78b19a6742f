"""A plan ready to run: call it with arrays by name, get arrays by name.

Inputs are what is read before it is written, and imported buffers; outputs are the buffers in L2 and DDR that are
written, as bytes, and the named typed regions in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import Drawn, name_inputs, refuse_missing, types_of
from lamella.backend.npu.access import BufferAccess, reads_of, writes_of
from lamella.backend.npu.findings import RunFindings
from lamella.backend.npu.memory import (
    MemoryImage,
    allocate,
    byte_places,
    read_tensor,
    within_memory,
    write_tensor,
)
from lamella.backend.npu.opcodes import OpcodeInput
from lamella.backend.npu.opcodes.call import element_of
from lamella.backend.npu.order import Instance, program_order, random_order
from lamella.backend.npu.ports import Ports
from lamella.backend.npu.vpu import Vpu
from lamella.backend.progress import Progress, no_progress
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.card import Card, join_names, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError, Rule, errors
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem.codecs import CODECS
from lamella.lang.nem.resolved import Plan, Task, TensorType
from lamella.lang.nem.rules import MEMORY_NEEDED, UNINITIALISED
from lamella.lang.nem.words import MOVES
from lamella.plan.wdm import make_packable

OUTSIDE = ("L2", "DDR")


@dataclass(frozen=True, slots=True)
class Interface:
    """Names in order, and for each buffer the mask of the bytes that must come from outside."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    needed: Mapping[str, Array]


def find_interface(plan: Plan, limits: Limits = DEFAULT) -> Interface:
    """Follow the plan in program order, byte by byte, without computing anything."""
    needed, written = (allocate(plan.buffers, np.dtype(np.bool_), limits) for _ in range(2))
    done: set[int] = set()
    for task, iteration in program_order(plan, limits):
        # A task that touches the same bytes in every iteration adds nothing after the first.
        if task.number in done:
            continue
        for access in reads_of(task, iteration):
            places = byte_places(access.offset, access.type)
            needed[access.buffer][places] |= ~written[access.buffer][places]
        for access in writes_of(task, iteration):
            written[access.buffer][byte_places(access.offset, access.type)] = True
        if all(region.offset.is_constant for region in (*task.inputs, *task.outputs)):
            done.add(task.number)
    ports = Ports(plan)
    return Interface(_input_names(ports, needed), _output_names(ports, written), needed)


def _input_names(ports: Ports, needed: Mapping[str, Array]) -> tuple[str, ...]:
    """Regions that hold needed bytes, behind their buffer where it is imported or they do not cover it."""
    names: dict[str, list[str]] = {name: [] for name in ports.buffers}
    rest = {name: mask.copy() for name, mask in needed.items()}
    for name, access in ports.regions.items():
        places = byte_places(access.offset, access.type)
        if needed[access.buffer][places].any():
            names[access.buffer].append(name)
            rest[access.buffer][places] = False
    for name, buffer in ports.buffers.items():
        if buffer.imported or rest[name].any():
            names[name].insert(0, name)
    return tuple(name for group in names.values() for name in group)


def _output_names(ports: Ports, written: Mapping[str, Array]) -> tuple[str, ...]:
    outside = {
        name: mask for name, mask in written.items() if ports.buffers[name].memory in OUTSIDE and mask.any()
    }
    regions = (
        name
        for name, access in ports.regions.items()
        if access.buffer in outside and outside[access.buffer][byte_places(access.offset, access.type)].any()
    )
    return (*outside, *regions)


# --- seeded random inputs: each byte is drawn as the type as which it is read first --------------------------


BIAS = 1 << 15
"""Biases are drawn from ±2^15, so that an i32 accumulator rarely overflows."""
_LINEAR = ("gemm", "matmul", "conv1d", "conv2d", "conv3d", "depthwise_conv2d")


def random_inputs(plan: Plan, seed: int = 0, limits: Limits = DEFAULT) -> dict[str, Array]:
    """An array for each input of the plan, by name; the same seed gives the same arrays."""
    interface = find_interface(plan, limits)
    drawing = _Drawing(plan, interface, seed)
    for task, iteration in program_order(plan, limits):
        if not drawing.pending:
            break
        drawing.visit(task, iteration)
    drawing.make_storable()
    return {name: drawing.array(name) for name in interface.inputs}


class _Drawing:
    """Images of the needed bytes, and for bytes that were moved the place they came from."""

    def __init__(self, plan: Plan, interface: Interface, seed: int) -> None:
        self.ports = Ports(plan)
        self.random = np.random.default_rng(seed)
        ends = np.cumsum([0, *(buffer.size for buffer in plan.buffers)])
        self.base = {buffer.name: int(ends[number]) for number, buffer in enumerate(plan.buffers)}
        self.image = np.zeros(int(ends[-1]), np.uint8)
        self.open = np.zeros(int(ends[-1]), np.bool_)
        for buffer in plan.buffers:
            start = self.base[buffer.name]
            if buffer.imported or interface.needed[buffer.name].any():
                self.image[start : start + buffer.size] = self.random.integers(0, 256, buffer.size, np.uint8)
            self.open[start : start + buffer.size] = interface.needed[buffer.name]
        self.pending = int(self.open.sum())
        moved = {task.outputs[0].buffer for task in plan.tasks() if task.opcode in MOVES}
        # Numbers of bytes count from 1; 0 says that a byte was computed.
        self.origin = {buffer.name: self._own_numbers(buffer.name, buffer.size) for buffer in moved}

    def _own_numbers(self, buffer: str, size: int) -> Array:
        return np.arange(size, dtype=np.int64) + self.base[buffer] + 1

    def visit(self, task: Task, iteration: Mapping[int, int]) -> None:
        """Draw what a task reads with a type; follow what it moves."""
        reads, writes = reads_of(task, iteration), writes_of(task, iteration)
        if task.opcode in MOVES:
            self.origin[writes[0].buffer][self._places(writes[0])] = self._origins(reads[0])
            return
        for index, access in enumerate(reads):
            self._draw(task, index, access)
        for access in writes:
            if access.buffer in self.origin:
                self.origin[access.buffer][self._places(access)] = 0

    @staticmethod
    def _places(access: BufferAccess) -> slice | Array:
        return byte_places(access.offset, access.type)

    def _origins(self, access: BufferAccess) -> Array:
        places = self._places(access)
        if access.buffer in self.origin:
            return self.origin[access.buffer][places]
        if isinstance(places, slice):
            places = np.arange(places.start, places.stop)
        return places + self.base[access.buffer] + 1

    def _draw(self, task: Task, index: int, access: BufferAccess) -> None:
        origins = self._origins(access) - 1
        wanted = (origins >= 0) & self.open[origins]
        if not wanted.any():
            return
        values = _draw_values(self.random, task, index, access.type)
        places = byte_places(0, access.type)
        extent = places.stop if isinstance(places, slice) else int(places.max()) + 1
        part = np.zeros(extent, np.uint8)
        write_tensor(part, 0, access.type, values)
        drawn = origins[wanted]
        self.image[drawn] = part[places][wanted]
        self.open[drawn] = False
        self.pending -= np.unique(drawn).size

    def make_storable(self) -> None:
        """Buffers that are stored by a codec get bytes that it can hold."""
        for buffer in self.ports.stored():
            part = slice(self.base[buffer.name], self.base[buffer.name] + buffer.size)
            self.image[part] = make_packable(self.image[part], CODECS[buffer.codec], buffer.stored)

    def array(self, name: str) -> Array:
        """The drawn bytes as the array of an input."""
        access = self.ports.find(name)
        return arrays.to_exchange(
            read_tensor(self.image, self.base[access.buffer] + access.offset, access.type)
        )


def _draw_values(random: np.random.Generator, task: Task, index: int, type: TensorType) -> Array:
    """Floats are standard normal, integers use their whole range, indices are legal ones."""
    element = element_of(type)
    if element.is_float:
        return arrays.cast(random.standard_normal(type.shape), element)
    low, high = element.minimum, element.maximum
    if task.opcode == "gather" and index == 1:
        low, high = 0, min(high, _axis_size(task) - 1)
    elif task.opcode in _LINEAR and index == 2:
        low, high = max(low, -BIAS), min(high, BIAS)
    return arrays.cast(random.integers(low, high, type.shape, np.int64, endpoint=True), element)


def _axis_size(task: Task) -> int:
    """The size of the axis that a gather picks from."""
    type, axis = task.inputs[0].type, task.attributes.get("axis", 0)
    return type.shape[axis] if type is not None and isinstance(axis, int) else 1


# --- executes a plan on a memory image, one task instance after the other -----------------------------------


def run_plan(
    plan: Plan, memory: MemoryImage, order: Iterable[Instance], limits: Limits = DEFAULT
) -> list[Diagnostic]:
    """Run the instances in a legal order; an error ends the run, warnings do not. The findings are returned."""
    findings, vpu = RunFindings(plan), Vpu(plan.kernels, limits)
    for task, iteration in order:
        try:
            run_instance(memory, findings, vpu, task, iteration)
        except LamellaError as problem:
            return [*findings.diagnostics(), *problem.findings]
        except MemoryError:
            return [*findings.diagnostics(), _too_large(plan, task)]
        if findings.failed:
            break
    return findings.diagnostics()


def run_instance(
    memory: MemoryImage, findings: RunFindings, vpu: Vpu, task: Task, iteration: Mapping[int, int]
) -> None:
    """Read the operands, apply the opcode, write the results unless an error was found."""

    def report(rule: Rule, **values: object) -> None:
        findings.add(task, iteration, rule, values)

    reads, writes = reads_of(task, iteration), writes_of(task, iteration)
    for access in reads:
        missing = memory.unwritten(access.buffer, access.offset, access.type)
        if missing is not None:
            report(UNINITIALISED, range=f"bytes [{missing[0]}, {missing[1]})", buffer=access.buffer)
    operands = [_load(memory, access) for access in reads]
    results = vpu.apply(task.opcode, operands, [access.type for access in writes], task.attributes, report)
    if findings.failed:
        return
    for access, values in zip(writes, results, strict=True):
        memory.write(access.buffer, access.offset, access.type, values)


def _load(memory: MemoryImage, access: BufferAccess) -> OpcodeInput:
    return OpcodeInput(memory.read(access.buffer, access.offset, access.type), access.type)


def _too_large(plan: Plan, task: Task) -> Diagnostic:
    needed = sum(buffer.size for buffer in plan.buffers)
    return MEMORY_NEEDED.at(task.span, needed=needed, limit="the memory of this machine")


PROGRAM, RANDOM = "program", "random"


def compile_plan(
    plan: Plan, *, seed: int = 0, order: str = PROGRAM, limits: Limits = DEFAULT
) -> PlanExecutable:
    """Make a checked plan callable; the seed picks random inputs, `order` is "program", "random" or "random:SEED"."""
    return PlanExecutable(plan, seed, order, limits)


class PlanExecutable:
    """Runs a plan; `findings` are those of the last call."""

    def __init__(self, plan: Plan, seed: int, order: str, limits: Limits) -> None:
        self.plan = plan
        self.findings: list[Diagnostic] = []
        self.progress: Progress = no_progress
        self.draws = True
        """Whether inputs that a call does not give are random; where not, they are missing."""
        self.drawn = Drawn()
        """What the last call drew."""
        if seed < 0:
            raise InputError(f"the seed is {seed}; seeds start at 0")
        self._seed = seed
        self._order_seed = order_seed(order, seed)
        self._limits = limits
        self._ports = Ports(plan)
        with within_memory(plan.buffers):
            self._interface: Interface = find_interface(plan, limits)

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """What it is: the device, how many tasks a run executes, what it takes and gives."""
        device = self.plan.device.name if self.plan.device else "no device"
        interface = f"{join_names(self.inputs)} -> {join_names(self.outputs)}"
        facts = (
            ("task instances", f"{self.plan.instances():,}"),
            ("device", device),
            ("interface", interface),
        )
        return Card("executable plan", self.plan.name, facts)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return self._interface.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return self._interface.outputs

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once, inputs in order or by name; what is not given is drawn where that is wanted, else missing."""
        self.findings = []
        memory = self._fill(name_inputs(self.inputs, arrays, inputs))
        instances = self.progress(self._instances(), self.plan.instances())
        self.findings = run_plan(self.plan, memory, instances, self._limits)
        if errors(self.findings):
            raise LamellaError(self.findings)
        return {name: self._ports.read(memory, name) for name in self.outputs}

    def _fill(self, inputs: Mapping[str, npt.ArrayLike]) -> MemoryImage:
        """Memory as a run finds it: random inputs, and over them those that are given, in order."""
        missing = self._missing(inputs)
        if not self.draws:
            refuse_missing({name: str(self._ports.find(name).type) for name in missing})
        memory = MemoryImage(self.plan.buffers, self._limits)
        self.drawn = Drawn()
        if missing:
            drawn = self._write_random(memory)
            self.drawn = Drawn(types_of({name: drawn[name] for name in missing}))
        self._ports.write(memory, inputs)
        self._ports.verify_stored(memory)
        return memory

    def _missing(self, given: Iterable[str]) -> list[str]:
        """The inputs of which bytes are needed that nobody gives, under their own name or that of what they lie in."""
        needed = {name: mask.copy() for name, mask in self._interface.needed.items()}
        for access in map(self._ports.find, given):
            needed[access.buffer][byte_places(access.offset, access.type)] = False
        places = {name: self._ports.find(name) for name in self.inputs}
        return [
            name
            for name, access in places.items()
            if needed[access.buffer][byte_places(access.offset, access.type)].any()
        ]

    def _write_random(self, memory: MemoryImage) -> Mapping[str, Array]:
        """Nobody outside can fill an L1, so that its random bytes do not count as written."""
        with within_memory(self.plan.buffers):
            drawn: Mapping[str, Array] = random_inputs(self.plan, self._seed, self._limits)
            self._ports.write(memory, drawn)
        inside = {
            buffer.name for buffer in self.plan.buffers if buffer.memory == "L1" and not buffer.imported
        }
        for name in drawn:
            buffer = self._ports.find(name).buffer
            if buffer in inside:
                memory.written[buffer][:] = False
        return drawn

    def _instances(self) -> Iterable[Instance]:
        if self._order_seed is None:
            return program_order(self.plan, self._limits)
        return random_order(self.plan, self._order_seed, self._limits)


def order_seed(order: str, seed: int) -> int | None:
    """The seed of a random order, or None for that of the program."""
    word, colon, digits = order.partition(":")
    if order == PROGRAM:
        return None
    if word != RANDOM or (colon and not (digits.isascii() and digits.isdigit())):
        raise InputError(f"'{order[:40]}' is not an order", hint="orders are: program, random, random:SEED")
    return int(digits[:18]) if digits else seed
