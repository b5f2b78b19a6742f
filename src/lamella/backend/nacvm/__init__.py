"""The virtual machine of NAC: runs the instructions of a file and obeys its memory schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import length_hint
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import Drawn, types_of
from lamella.backend.nacvm.inputs import Entry, take_inputs
from lamella.backend.nacvm.link import (
    Linker,
    find_entries,
    find_loads,
    find_sizes,
    find_states,
    last_instruction,
    name_outputs,
    origin_of,
    word_of,
)
from lamella.backend.nacvm.operations import Draws, Operations
from lamella.backend.nacvm.preload import Reader
from lamella.backend.nacvm.program import Event, Program, Result, State
from lamella.backend.nacvm.schedule import DROP, PRELOAD, Move, follow
from lamella.backend.nacvm.tape import Room, Slots, Step, clear
from lamella.backend.nacvm.ticks import Account, Ticks, held_bytes
from lamella.backend.reference.draws import find_picks, reading
from lamella.backend.reference.findings import told
from lamella.backend.reference.storage import Storage
from lamella.backend.watch import Watch, unwatched
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dim import Extent
from lamella.base.errors import Found, InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.graph.nodes import Graph, Tensor
from lamella.lang.nac.check.memory.peak import peak_bytes
from lamella.lang.nac.nodes import CONTROL_FLOW, Command
from lamella.lang.nac.regions import Block, Blocks
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction
from lamella.ops.instance import Instance

# --- blocks as jumps: only the chosen block of a branch runs; the memory commands of the other are ----------


@dataclass(slots=True)
class Cursor:
    """Goes through steps, some of which set where it goes on."""

    steps: Sequence[Step]
    place: int = 0

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        if self.place >= len(self.steps):
            raise StopIteration
        self.place += 1
        return self.steps[self.place - 1]

    def __length_hint__(self) -> int:
        return len(self.steps) - self.place


@dataclass(slots=True)
class Jumps:
    """Puts the steps round blocks between those of instructions."""

    blocks: Blocks
    linker: Linker
    ticks: Ticks
    cursor: Cursor
    starts: dict[int, int] = field(default_factory=dict)
    """By instructions the places of their first steps."""
    joins: dict[int, int] = field(default_factory=dict)
    """By the owners of blocks the places behind the last of them."""
    _preloads: Mapping[int, int] | None = None
    _choices: dict[int, bool] = field(default_factory=dict)

    def begin(self, index: int, place: int) -> None:
        """Come to an instruction whose steps start at a place."""
        self.starts[index] = place

    def test(self, index: int) -> list[Step]:
        """Read the condition of a branch, before the commands of its tick drop it."""
        if index not in self.blocks.owned or not self._is_branch(index):
            return []
        source = index + self.linker.program.file.instructions[index].offsets[0]
        choices = self._choices

        def step(slots: Slots) -> None:
            choices[index] = bool(np.all(slots[source]))

        return [step]

    def behind(self, index: int, place: int) -> list[Step]:
        """What comes behind the steps of an instruction, the next of which stands at a place."""
        found: list[Step] = []
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

    def _end(self, block: Block, place: int) -> list[Step]:
        """The end of a block: on to the next one, or over it, or the join."""
        found, owned = self.ticks.flush(), self.blocks.owned[block.owner]
        if block.number + 1 < len(owned):
            return [*found, self._leave(owned[-1])] if self._is_branch(block.owner) else found
        self.joins[block.owner] = place + len(found)
        if not self._is_branch(block.owner):
            found += self.linker.link_join(block.owner, block.stop - 1)
        if Move(DROP, block.owner) in self.ticks.plan.moves[block.owner]:
            return [*found, clear((block.owner,))]
        self.ticks.join(block.owner)
        return found

    # --- jumps ----------------------------------------------------------------------------------------------

    def _choose(self, index: int) -> Step:
        """Go on with the first block, or skip it."""
        first, second = self.blocks.owned[index]
        choices, skip, cursor, starts = self._choices, self._skip(first), self.cursor, self.starts

        def step(slots: Slots) -> None:
            if not choices[index]:
                skip(slots)
                cursor.place = starts[second.start]

        return step

    def _leave(self, block: Block) -> Step:
        """Skip the last block."""
        skip, cursor, joins, owner = self._skip(block), self.cursor, self.joins, block.owner

        def step(slots: Slots) -> None:
            skip(slots)
            cursor.place = joins[owner]

        return step

    def _skip(self, block: Block) -> Step:
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

    def _moves(self, block: Block) -> Iterator[tuple[int, Move]]:
        """What ticks of a block do to results outside it."""
        for tick in range(block.start, block.stop):
            yield from ((tick, move) for move in self.ticks.plan.moves[tick] if not block.holds(move.target))

    def _waiting(self, block: Block) -> Iterator[int]:
        """Loads of a block that are preloaded before it."""
        if self._preloads is None:
            moves = enumerate(self.ticks.plan.moves)
            self._preloads = {
                move.target: tick for tick, row in moves for move in row if move.kind == PRELOAD
            }
        for load in range(block.start, block.stop):
            if self._preloads.get(load, block.start) < block.start:
                yield load


# --- the virtual machine: runs the instructions of a program one after the other and obeys its --------------


def compile_program(
    program: Program,
    outputs: Sequence[str] = (),
    *,
    seed: int = 0,
    limits: Limits = DEFAULT,
    traced: bool = False,
    state: dict[str, Array] | None = None,
) -> Machine:
    """Prepare a program: every instruction becomes a few callables on slots.

    `outputs` are the names of the outputs, where the file does not say them; the seed picks random inputs and what
    random operators draw. A traced machine tells in `trace` what it did to memory. Machines that are given the same
    `state` share what they keep between calls.
    """
    if seed < 0:
        raise InputError(f"the seed is {seed}; seeds start at 0")
    return Machine(program, outputs, seed, limits, traced, {} if state is None else state)


@dataclass(frozen=True, slots=True)
class _Named:
    """An instruction as a watcher sees it: what it calls, and the steps that it takes."""

    operator: str
    steps: Iterator[Step]


@dataclass(frozen=True, slots=True)
class _Code:
    """Prepared steps: each with the instruction it belongs to, the slots they start from, what comes after them."""

    steps: list[Step]
    owners: list[int]
    template: Slots
    ticks: Ticks


class Machine:
    """A program ready to run: call it with arrays by the names of its inputs, get arrays by the names of its outputs.

    `peak_bytes` is the largest sum of bytes of results that were held at once in the last call; values that an
    instruction makes on its way to its result are not counted. `schedule_bytes` is what the schedule promises.
    """

    def __init__(
        self,
        program: Program,
        outputs: Sequence[str],
        seed: int,
        limits: Limits,
        traced: bool,
        state: dict[str, Array],
    ) -> None:
        self.program = program
        self.findings: list[Diagnostic] = []
        """What the last call found."""
        self.watch: Watch = unwatched
        """Wraps the steps of a call, for a progress bar."""
        self.trace: list[Event] = []
        """What the last call did to memory, where the machine is traced."""
        self.peak_bytes = 0
        self.drawn = Drawn()
        """What the last call drew."""
        self._seed = seed
        self._storage = Storage(False, limits.max_total_bytes)
        self._draws = Draws(seed)
        self._account = Account()
        self._reader = Reader(program.load, self._storage, self.trace if traced else None)
        self._operations = Operations(program.library, self._storage, limits, self._draws)
        self._entries: tuple[Entry, ...] = find_entries(program)
        self._outputs = name_outputs(program, outputs)
        self._last = last_instruction(program)
        self._cursor = Cursor(())
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
        account = self._account
        account.now = account.most = 0
        slots = self._code.template.copy()
        taken = take_inputs(self._entries, inputs, self._storage, self._seed, lambda: self._picks)
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
        waiting: Iterator[Step] = iter(steps)
        if self._cursor.steps:
            self._cursor.place = 0
            waiting = self._cursor
        try:
            if self.watch is unwatched:
                for step in waiting:
                    step(slots)
            else:
                self._run_watched(slots, waiting)
        except (Fault, Found, ZeroDivisionError, MemoryError, LamellaError) as problem:
            self._tell(self._owner(waiting), problem)

    def _owner(self, waiting: Iterator[Step]) -> int:
        """The instruction of the step that was taken last."""
        return self._code.owners[len(self._code.steps) - length_hint(waiting) - 1]

    def _run_watched(self, slots: Slots, waiting: Iterator[Step]) -> None:
        """Instruction by instruction, each with its word, for those who look; a branch leaves some out."""
        words = {index: word_of(self.program, index) for index in set(self._code.owners)}
        taken = groupby(waiting, lambda step: self._owner(waiting))
        named = (_Named(words[owner], steps) for owner, steps in taken)
        for item in self.watch(named, len(words)):
            for step in item.steps:
                step(slots)

    def _tell(self, index: int, problem: Exception) -> None:
        """Raise what went wrong in an instruction as findings that name it."""
        origin = origin_of(self.program, index)
        if isinstance(problem, LamellaError):
            findings = [item.from_origin(*item.origins, *origin.words()) for item in problem.findings]
            raise LamellaError(findings) from problem
        with told(origin.what, origin):
            raise problem

    # --- preparing ------------------------------------------------------------------------------------------

    def _link(self) -> _Code:
        program, sizes, loads = self.program, find_sizes(self.program), find_loads(self.program)
        plan = follow(program.file, sizes, self._last + 1)
        room = Room([None] * len(program.file.instructions))
        known = {index for index, _ in self._states}
        linker = Linker(program, self._operations, self._reader, loads, plan, room, known)
        tuples = frozenset(index for index, item in enumerate(program.results) if isinstance(item, tuple))
        blocks = linker.blocks
        ticks = Ticks(plan, sizes, tuples, self._account, self._reader, loads, blocks.owned)
        jumps = Jumps(blocks, linker, ticks, self._cursor)
        commands: Mapping[int, Sequence[Command]] = {
            tick.index: tick.commands for tick in program.file.schedule
        }
        steps: list[Step] = []
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
        return _Code(steps, owners, room.template, ticks)

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


__all__ = ["Event", "Machine", "Program", "Result", "State", "compile_program"]
