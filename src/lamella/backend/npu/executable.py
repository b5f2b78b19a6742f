"""A plan ready to run: call it with arrays by name, get arrays by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy.typing as npt

from lamella.backend.drawing import Drawn, refuse_missing, types_of
from lamella.backend.npu.access import BufferAccess, reads_of, writes_of
from lamella.backend.npu.findings import RunFindings
from lamella.backend.npu.generate import random_inputs
from lamella.backend.npu.interface import Interface, find_interface
from lamella.backend.npu.memory import MemoryImage, byte_places, within_memory
from lamella.backend.npu.opcodes import OpcodeInput, apply
from lamella.backend.npu.order import Instance, program_order, random_order
from lamella.backend.npu.ports import Ports
from lamella.backend.progress import Progress, no_progress
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, Rule, errors
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem.resolved import Plan, Task
from lamella.lang.nem.rules import MEMORY_NEEDED, UNINITIALISED

# --- executes a plan on a memory image, one task instance after the other -----------------------------------


def run_plan(plan: Plan, memory: MemoryImage, order: Iterable[Instance]) -> list[Diagnostic]:
    """Run the instances in a legal order; an error ends the run, warnings do not. The findings are returned."""
    findings = RunFindings(plan)
    for task, iteration in order:
        try:
            run_instance(memory, findings, task, iteration)
        except LamellaError as problem:
            return [*findings.diagnostics(), *problem.findings]
        except MemoryError:
            return [*findings.diagnostics(), _too_large(plan, task)]
        if findings.failed:
            break
    return findings.diagnostics()


def run_instance(
    memory: MemoryImage, findings: RunFindings, task: Task, iteration: Mapping[int, int]
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
    results = apply(task.opcode, operands, [access.type for access in writes], task.attributes, report)
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
        self.watch: Progress = no_progress
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

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return self._interface.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return self._interface.outputs

    def __call__(self, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; inputs that are not given are random from the seed where that is wanted, else missing."""
        self.findings = []
        memory = self._fill(inputs)
        self.findings = run_plan(self.plan, memory, self.watch(self._instances(), self.plan.instances()))
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
