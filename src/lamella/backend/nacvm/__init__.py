"""The virtual machine of NAC: runs the instructions of a file and obeys its memory schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import length_hint
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import Drawn, types_of
from lamella.backend.executor.findings import findings_at
from lamella.backend.executor.inputs import (
    SMALL,
    as_array,
    draw,
    find_picks,
    fit,
    generator,
    reading,
    smallest,
)
from lamella.backend.formula.storage import Storage, known_shape
from lamella.backend.formula.tape import SlotAllocator, Slots, SlotStep, clear
from lamella.backend.nacvm.link import (
    Linker,
    find_sizes,
    find_states,
    last_instruction,
    origin_of,
    word_of,
)
from lamella.backend.nacvm.operations import CallGenerator, OperationLowering
from lamella.backend.nacvm.preload import ParameterLoad, WeightReader
from lamella.backend.nacvm.program import MemoryEvent, NacProgram, ProgramState, Result, paths
from lamella.backend.nacvm.schedule import DROP, PRELOAD, ByteAccount, MemoryMove, Ticks, follow, held_bytes
from lamella.backend.progress import Progress, no_progress
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dim import Extent
from lamella.base.errors import Found, InputError, Malformed
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE, Span
from lamella.graph.nodes import Graph, Tensor
from lamella.lang.nac.check.memory.peak import peak_bytes
from lamella.lang.nac.nodes import CONTROL_FLOW, INPUT, OUTPUT, Command
from lamella.lang.nac.operations import PARAMETER, USER
from lamella.lang.nac.regions import InstructionBlock, InstructionBlocks
from lamella.lang.nac.rules.schedule import INPUT_ELEMENTS, INPUT_NAME, INPUT_SHAPE
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction
from lamella.ops.instance import Instance

# --- inputs of a run: arrays by name, checked, or random from the seed ---------------------------------------


Picks = Callable[[], Mapping[str, Sequence[Extent]]]
"""For integer inputs that are indices, the extents that they pick from, by the names of tensors."""


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """An input: its instruction, the name that callers use, the tensor that it is."""

    index: int
    name: str
    tensor: Tensor
    span: Span

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return known_shape(self.tensor.shape, {})

    @property
    def type(self) -> str:
        """Its element type and shape, in words."""
        return f"{self.tensor.element}{list(self.shape)}"


def _take_inputs(
    entries: Sequence[ProgramInput],
    given: Mapping[str, npt.ArrayLike],
    storage: Storage,
    seed: int,
    picks: Picks,
) -> list[Array]:
    """The arrays of all inputs in order; all findings about those that are given are raised at once."""
    found: list[Array | None] = []
    findings = _unknown(entries, given)
    for entry in entries:
        array = _enter(entry, given[entry.name], storage) if entry.name in given else None
        found.append(None if isinstance(array, Diagnostic) else array)
        findings += [array] if isinstance(array, Diagnostic) else []
    if findings:
        raise LamellaError(findings)
    pairs = zip(entries, found, strict=True)
    return [_draw(entry, storage, seed, picks) if array is None else array for entry, array in pairs]


def _unknown(entries: Sequence[ProgramInput], given: Mapping[str, npt.ArrayLike]) -> list[Diagnostic]:
    known = {entry.name for entry in entries}
    if given.keys() <= known:
        return []
    span = entries[0].span if entries else NOWHERE
    names = ", ".join(entry.name for entry in entries) or "none"
    return [INPUT_NAME.at(span, name=name, names=names) for name in given if name not in known]


def _enter(entry: ProgramInput, given: npt.ArrayLike, storage: Storage) -> Array | Diagnostic:
    try:
        array = as_array(given)
        if array.shape != entry.shape:
            return INPUT_SHAPE.at(entry.span, name=entry.name, type=entry.type, found=list(array.shape))
        return fit(array, entry.tensor.element, storage)
    except Malformed as misfit:
        element = entry.tensor.element.name
        return INPUT_ELEMENTS.at(entry.span, name=entry.name, element=element, found=str(misfit))


def _draw(entry: ProgramInput, storage: Storage, seed: int, picks: Picks) -> Array:
    element = entry.tensor.element
    below = smallest(picks().get(entry.tensor.name, ()), {}) if element.is_integer else SMALL
    return np.asarray(draw(generator(seed, entry.name), element, entry.shape, storage, below))


def _find_entries(program: NacProgram) -> tuple[ProgramInput, ...]:
    """The inputs of a program in the order of its instructions; those without a name have the tensor's."""
    names = {item.index: item.name for item in program.file.inputs}
    found = []
    for index, item in enumerate(program.file.instructions):
        result = program.results[index]
        if item.operation == INPUT and item.variant == USER and isinstance(result, Tensor):
            found.append(ProgramInput(index, names.get(index, result.name), result, item.span))
    return tuple(found)


def _find_loads(program: NacProgram) -> dict[int, ParameterLoad]:
    """The instructions that load a parameter."""
    found = {}
    for index, item in enumerate(program.file.instructions):
        result = program.results[index]
        if item.operation == INPUT and item.variant == PARAMETER and isinstance(result, Tensor):
            found[index] = ParameterLoad(index, item.constants[0] if item.constants else 0, result, item.span)
    return found


def _name_outputs(program: NacProgram, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the outputs: those that are given, else those of the tensors where they differ."""
    last = last_instruction(program)
    if last < 0 or program.file.instructions[last].operation != OUTPUT:
        return ()
    found: list[str] = []
    kept = {state.update for state in program.states}
    for number, offset in enumerate(program.file.instructions[last].offsets):
        if number in kept:
            continue
        result = program.results[last + offset]
        several = [tensor.name for tensor, _ in paths(result)]
        found += several if isinstance(result, Tensor | tuple) else [""]
    plain = len(set(found)) == len(found) and "" not in found
    known = found if plain else [f"output{number}" for number in range(len(found))]
    return tuple(names) if len(names) == len(known) else tuple(known)


# --- blocks as jumps: only the chosen block of a branch runs -------------------------------------------------


@dataclass(slots=True)
class StepCursor:
    """Goes through steps, some of which set where it goes on."""

    steps: Sequence[SlotStep]
    place: int = 0

    def __iter__(self) -> Iterator[SlotStep]:
        return self

    def __next__(self) -> SlotStep:
        if self.place >= len(self.steps):
            raise StopIteration
        self.place += 1
        return self.steps[self.place - 1]

    def __length_hint__(self) -> int:
        return len(self.steps) - self.place


@dataclass(slots=True)
class BlockJumps:
    """Puts the steps round blocks between those of instructions."""

    blocks: InstructionBlocks
    linker: Linker
    ticks: Ticks
    cursor: StepCursor
    starts: dict[int, int] = field(default_factory=dict)
    """By instructions the places of their first steps."""
    joins: dict[int, int] = field(default_factory=dict)
    """By the owners of blocks the places behind the last of them."""
    _preloads: Mapping[int, int] | None = None
    _choices: dict[int, bool] = field(default_factory=dict)

    def begin(self, index: int, place: int) -> None:
        """Come to an instruction whose steps start at a place."""
        self.starts[index] = place

    def test(self, index: int) -> list[SlotStep]:
        """Read the condition of a branch, before the commands of its tick drop it."""
        if index not in self.blocks.owned or not self._is_branch(index):
            return []
        source = index + self.linker.program.file.instructions[index].offsets[0]
        choices = self._choices

        def step(slots: Slots) -> None:
            choices[index] = bool(np.all(slots[source]))

        return [step]

    def behind(self, index: int, place: int) -> list[SlotStep]:
        """What comes behind the steps of an instruction, the next of which stands at a place."""
        found: list[SlotStep] = []
        if index in self.blocks.owned:
            found += self.ticks.flush()
            if self._is_branch(index):
                found.append(self._choose(index))
        block = self.blocks.at(index)
        if block is not None and block.stop == index + 1:
            found += self._end(block, place)
        return found

    def _is_branch(self, owner: int) -> bool:
        return self.linker.program.file.instructions[owner].operation == CONTROL_FLOW

    def _end(self, block: InstructionBlock, place: int) -> list[SlotStep]:
        """The end of a block: on to the next one, or over it, or the join."""
        found, owned = self.ticks.flush(), self.blocks.owned[block.owner]
        if block.number + 1 < len(owned):
            return [*found, self._leave(owned[-1])] if self._is_branch(block.owner) else found
        self.joins[block.owner] = place + len(found)
        if not self._is_branch(block.owner):
            found += self.linker.link_join(block.owner, block.stop - 1)
        if MemoryMove(DROP, block.owner) in self.ticks.plan.moves[block.owner]:
            return [*found, clear((block.owner,))]
        self.ticks.join(block.owner)
        return found

    # --- jumps ----------------------------------------------------------------------------------------------

    def _choose(self, index: int) -> SlotStep:
        """Go on with the first block, or skip it."""
        first, second = self.blocks.owned[index]
        choices, skip, cursor, starts = self._choices, self._skip(first), self.cursor, self.starts

        def step(slots: Slots) -> None:
            if not choices[index]:
                skip(slots)
                cursor.place = starts[second.start]

        return step

    def _leave(self, block: InstructionBlock) -> SlotStep:
        """Skip the last block."""
        skip, cursor, joins, owner = self._skip(block), self.cursor, self.joins, block.owner

        def step(slots: Slots) -> None:
            skip(slots)
            cursor.place = joins[owner]

        return step

    def _skip(self, block: InstructionBlock) -> SlotStep:
        """What is done to memory where a block does not run."""
        moves = tuple(self._moves(block))
        waiting = tuple(self._waiting(block))
        account, reader = self.ticks.account, self.ticks.reader
        loads, sizes = self.ticks.loads, self.ticks.sizes

        def step(slots: Slots) -> None:
            for load in waiting:
                reader.forget(loads[load])
                account.now -= sizes.get(load, 0)
            for tick, (kind, target) in moves:
                if kind == DROP:
                    account.now -= held_bytes(slots[target]) if target in sizes else 0
                    slots[target] = None
                else:
                    account.add(sizes.get(target, 0))
                    reader.start(loads[target], tick)

        return step

    def _moves(self, block: InstructionBlock) -> Iterator[tuple[int, MemoryMove]]:
        """What ticks of a block do to results outside it."""
        for tick in range(block.start, block.stop):
            yield from ((tick, move) for move in self.ticks.plan.moves[tick] if not block.holds(move.target))

    def _waiting(self, block: InstructionBlock) -> Iterator[int]:
        """Loads of a block that are preloaded before it."""
        if self._preloads is None:
            moves = enumerate(self.ticks.plan.moves)
            self._preloads = {
                move.target: tick for tick, row in moves for move in row if move.kind == PRELOAD
            }
        for load in range(block.start, block.stop):
            if self._preloads.get(load, block.start) < block.start:
                yield load


# --- the virtual machine: instructions in order, under the memory schedule -----------------------------------


def compile_program(
    program: NacProgram,
    outputs: Sequence[str] = (),
    *,
    seed: int = 0,
    limits: Limits = DEFAULT,
    traced: bool = False,
    state: dict[str, Array] | None = None,
) -> NacMachine:
    """Prepare a program: every instruction becomes a few callables on slots.

    `outputs` are the names of the outputs, where the file does not say them; the seed picks random inputs and what
    random operators draw. A traced machine tells in `trace` what it did to memory. Machines that are given the same
    `state` share what they keep between calls.
    """
    if seed < 0:
        raise InputError(f"the seed is {seed}; seeds start at 0")
    return NacMachine(program, outputs, seed, limits, traced, {} if state is None else state)


@dataclass(frozen=True, slots=True)
class _NamedInstruction:
    """An instruction as a watcher sees it: what it calls, and the steps that it takes."""

    operator: str
    steps: Iterator[SlotStep]


@dataclass(frozen=True, slots=True)
class _LinkedCode:
    """Prepared steps: each with the instruction it belongs to, the slots they start from, what comes after them."""

    steps: list[SlotStep]
    owners: list[int]
    template: Slots
    ticks: Ticks


class NacMachine:
    """A program ready to run: call it with arrays by the names of its inputs, get arrays by the names of its outputs.

    `peak_bytes` is the largest sum of bytes of results that were held at once in the last call; values that an
    instruction makes on its way to its result are not counted. `schedule_bytes` is what the schedule promises.
    """

    def __init__(
        self,
        program: NacProgram,
        outputs: Sequence[str],
        seed: int,
        limits: Limits,
        traced: bool,
        state: dict[str, Array],
    ) -> None:
        self.program = program
        self.findings: list[Diagnostic] = []
        """What the last call found."""
        self.progress: Progress = no_progress
        """Wraps the steps of a call, for a progress bar."""
        self.trace: list[MemoryEvent] = []
        """What the last call did to memory, where the machine is traced."""
        self.peak_bytes = 0
        self.drawn = Drawn()
        """What the last call drew."""
        self._seed = seed
        self._storage = Storage(False, limits.max_total_bytes)
        self._draws = CallGenerator(seed)
        self._account = ByteAccount()
        self._reader = WeightReader(program.load, self._storage, self.trace if traced else None)
        self._operations = OperationLowering(program.library, self._storage, limits, self._draws)
        self._entries: tuple[ProgramInput, ...] = _find_entries(program)
        self._outputs = _name_outputs(program, outputs)
        self._last = last_instruction(program)
        self._cursor = StepCursor(())
        self._states = find_states(program)
        self._state = state
        if any(item.tensor.name not in state for item in program.states):
            self.reset()
        self._code = self._link()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(entry.name for entry in self._entries)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return self._outputs

    @cached_property
    def schedule_bytes(self) -> int:
        """The most bytes that are alive at once by the schedule of the file."""
        return peak_bytes(self.program.file, find_sizes(self.program)).bytes

    @property
    def state(self) -> Mapping[str, Array]:
        """What is kept between calls, by name, as it is now."""
        return MappingProxyType(self._state)

    def reset(self) -> None:
        """Give the states the values that they started with."""
        self._state.update({item.tensor.name: item.start() for item in self.program.states})

    def __call__(self, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; inputs that are not given are random, from the seed. A run that fails changes no state."""
        self.trace.clear()
        self._draws.generator = None
        self._operations.extents.clear()
        account = self._account
        account.now = account.most = 0
        slots = self._code.template.copy()
        taken = _take_inputs(self._entries, inputs, self._storage, self._seed, lambda: self._picks)
        for entry, array in zip(self._entries, taken, strict=True):
            slots[entry.index] = array
        pairs = zip(self._entries, taken, strict=True)
        self.drawn = Drawn(
            types_of({entry.name: array for entry, array in pairs if entry.name not in inputs})
        )
        for index, name in self._states:
            slots[index] = self._state[name]
        try:
            with np.errstate(all="ignore"):
                self._run(slots)
            self._code.ticks.count_rest(slots)
        finally:
            self._reader.close()
            self.peak_bytes = account.most
        found, renewed = slots[self._last] if self._outputs or self.program.states else ([], [])
        # All states at once, from what the run computed.
        for state, array in zip(self.program.states, renewed, strict=True):
            self._state[state.tensor.name] = array
        return dict(zip(self._outputs, found, strict=True))

    def _run(self, slots: Slots) -> None:
        steps = self._code.steps
        waiting: Iterator[SlotStep] = iter(steps)
        if self._cursor.steps:
            self._cursor.place = 0
            waiting = self._cursor
        try:
            if self.progress is no_progress:
                for step in waiting:
                    step(slots)
            else:
                self._run_watched(slots, waiting)
        except (Fault, Found, ZeroDivisionError, MemoryError, LamellaError) as problem:
            self._tell(self._owner(waiting), problem)

    def _owner(self, waiting: Iterator[SlotStep]) -> int:
        """The instruction of the step that was taken last."""
        return self._code.owners[len(self._code.steps) - length_hint(waiting) - 1]

    def _run_watched(self, slots: Slots, waiting: Iterator[SlotStep]) -> None:
        """Instruction by instruction, each with its word, for those who look; a branch leaves some out."""
        words = {index: word_of(self.program, index) for index in set(self._code.owners)}
        taken = groupby(waiting, lambda step: self._owner(waiting))
        named = (_NamedInstruction(words[owner], steps) for owner, steps in taken)
        for item in self.progress(named, len(words)):
            for step in item.steps:
                step(slots)

    def _tell(self, index: int, problem: Exception) -> None:
        """Raise what went wrong in an instruction as findings that name it."""
        origin = origin_of(self.program, index)
        if isinstance(problem, LamellaError):
            findings = [item.from_origin(*item.origins, *origin.words()) for item in problem.findings]
            raise LamellaError(findings) from problem
        with findings_at(origin.what, origin):
            raise problem

    # --- preparing ------------------------------------------------------------------------------------------

    def _link(self) -> _LinkedCode:
        program, sizes, loads = self.program, find_sizes(self.program), _find_loads(self.program)
        plan = follow(program.file, sizes, self._last + 1)
        room = SlotAllocator([None] * len(program.file.instructions))
        known = {index for index, _ in self._states}
        linker = Linker(program, self._operations, self._reader, loads, plan, room, known)
        tuples = frozenset(index for index, item in enumerate(program.results) if isinstance(item, tuple))
        blocks = linker.blocks
        ticks = Ticks(plan, sizes, tuples, self._account, self._reader, loads, blocks.owned)
        jumps = BlockJumps(blocks, linker, ticks, self._cursor)
        commands: Mapping[int, Sequence[Command]] = {
            tick.index: tick.commands for tick in program.file.schedule
        }
        steps: list[SlotStep] = []
        owners: list[int] = []
        for index in range(self._last + 1):
            jumps.begin(index, len(steps))
            found = linker.link(index) + jumps.test(index)
            if self._reader.trace is not None:
                found += ticks.note(index, commands.get(index, ()))
            found += ticks.follow(index)
            found += jumps.behind(index, len(steps) + len(found))
            steps += found
            owners += [index] * len(found)
        if blocks.owned:
            self._cursor.steps = steps
        return _LinkedCode(steps, owners, room.template, ticks)

    # --- random inputs --------------------------------------------------------------------------------------

    @cached_property
    def _picks(self) -> Mapping[str, Sequence[Extent]]:
        graph = Graph("", tuple(entry.tensor for entry in self._entries), (), ())
        return find_picks(graph, self._bound_operations(graph))

    def _bound_operations(
        self, graph: Graph
    ) -> Iterator[tuple[Sequence[str], Instance, Sequence[Contraction]]]:
        operations = (item for row in self.program.steps for item in row)
        for operation in reading(self.program.library, graph, operations):
            names = [item.name if isinstance(item, Tensor) else "" for item in operation.inputs]
            prepared = self._operations.operators.prepare(operation)
            yield names, prepared.instance, prepared.formulas


__all__ = ["MemoryEvent", "NacMachine", "NacProgram", "ProgramState", "Result", "compile_program"]
