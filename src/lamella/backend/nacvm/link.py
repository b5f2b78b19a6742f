"""Links a program: for each instruction its steps, which read and write slots by the indices of instructions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter, methodcaller

import numpy as np

from lamella.backend.executor.findings import findings_at
from lamella.backend.executor.run import open_symbols
from lamella.backend.formula.tape import Register, SlotAllocator, Slots, SlotStep, Tape, bind
from lamella.backend.nacvm.operations import Env, OperationLowering
from lamella.backend.nacvm.preload import ParameterLoad, WeightReader
from lamella.backend.nacvm.program import NacProgram, Path, Result, paths, size_of, tensor_bytes
from lamella.backend.nacvm.schedule import MemoryPlan, held_bytes
from lamella.base.arrays import Array, to_exchange
from lamella.base.diagnostic import Rule
from lamella.base.origin import Origin
from lamella.graph.nodes import Tensor, tensors
from lamella.lang.nac.check.memory.flow import is_state
from lamella.lang.nac.nodes import INPUT, OUTPUT, Instruction
from lamella.lang.nac.operations import FINAL, LIFTED, PARAMETER, SYSTEM_NAMES, USER
from lamella.lang.nac.regions import InstructionBlock, InstructionBlocks, has_blocks, is_handing, read_blocks
from lamella.lang.nac.rules.schedule import RESULT_GONE
from lamella.lang.skriptnd.rules.graphs import NO_MEANING, TOO_MUCH_MEMORY
from lamella.ops.fault import Fault

SMALL = 64
"""Elements of a constant that formulas may compute with before the run; larger ones stand in one slot."""


def last_instruction(program: NacProgram) -> int:
    """The instruction that ends a run: the first final output."""
    for index, item in enumerate(program.file.instructions):
        if item.operation == OUTPUT and item.variant == FINAL:
            return index
    return len(program.file.instructions) - 1


def find_states(program: NacProgram) -> tuple[tuple[int, str], ...]:
    """The instructions that load a state, each with the name of its variable."""
    names = {state.id: state.tensor.name for state in program.states}
    items = enumerate(program.file.instructions)
    loads = [(index, item.constants[0]) for index, item in items if is_state(item) and item.constants]
    return tuple((index, names[id_]) for index, id_ in loads if id_ in names)


def find_sizes(program: NacProgram) -> dict[int, int]:
    """The bytes of each instruction's result, where it has any."""
    return {
        index: size_of(result)
        for index, result in enumerate(program.results)
        if isinstance(result, Tensor | tuple) and program.file.instructions[index].operation != OUTPUT
    }


def origin_of(program: NacProgram, index: int) -> Origin:
    """An instruction, for findings."""
    steps = program.steps[index]
    made = steps[0].origin if steps else None
    above = None if made is None else made.above
    span = program.file.instructions[index].span
    return Origin(f"instruction {index} {word_of(program, index)}", span, above)


def word_of(program: NacProgram, index: int) -> str:
    """What an instruction calls."""
    number = program.file.instructions[index].operation
    name = next((entry.name for entry in program.file.operations if entry.id == number), None)
    called = program.steps[index][0].operator if program.steps[index] else ""
    return name or SYSTEM_NAMES.get(number) or called or str(number)


@dataclass(slots=True)
class Linker:
    """Makes the steps of instructions."""

    program: NacProgram
    operations: OperationLowering
    reader: WeightReader
    loads: Mapping[int, ParameterLoad]
    plan: MemoryPlan
    room: SlotAllocator
    states: Collection[int] = ()
    """The instructions whose states are there from the start."""
    blocks: InstructionBlocks = field(init=False)
    constants: dict[str, Array] = field(init=False)
    _slots: dict[str, int] = field(default_factory=dict)
    """Where large constants stand."""

    def __post_init__(self) -> None:
        self.blocks = read_blocks(self.program.file.instructions)
        self.constants = {}
        for item in self.program.constants:
            if open_symbols(item):
                self.operations.late[item.tensor.name] = item
                continue
            with findings_at(item.tensor.name, item.tensor.origin):
                self.constants[item.tensor.name] = self.operations.array(item)

    def link(self, index: int) -> list[SlotStep]:
        """The steps of an instruction; one that its schedule breaks fails when the run comes there."""
        missing, item = self.plan.missing.get(index), self.program.file.instructions[index]
        needed, limit = self.plan.alive[index], self.operations.storage.most_bytes
        if missing is not None:
            return [_refuse(RESULT_GONE, index=index, **missing._asdict())]
        if needed > limit:
            return [_refuse(TOO_MUCH_MEMORY, needed=needed, limit=limit)]
        if item.operation == INPUT:
            return self._link_input(index, item)
        if has_blocks(item):
            fits = index in self.blocks.owned
            return [] if fits else [_refuse(NO_MEANING, reason="its blocks do not fit behind it")]
        return self._link_output(index, item) if item.operation == OUTPUT else self._link_operation(index)

    def _link_input(self, index: int, item: Instruction) -> list[SlotStep]:
        """Inputs and states are there from the start; weights are read when their instruction comes."""
        if item.variant == PARAMETER and index in self.loads:
            return [_load(self.reader, self.loads[index])]
        if item.variant == LIFTED:
            return self._link_operation(index)
        if item.variant != USER and index not in self.states:
            return [_refuse(NO_MEANING, reason=f"inputs of variant {item.variant} are not run")]
        return []

    def _link_output(self, index: int, item: Instruction) -> list[SlotStep]:
        block = self.blocks.at(index)
        if is_handing(item) and block is not None:
            return [self._hand_over(index, item, block)]
        if item.variant != FINAL:
            return [_refuse(NO_MEANING, reason=f"outputs of variant {item.variant} are not run here")]
        kept = {state.update for state in self.program.states}
        sources = [index + offset for number, offset in enumerate(item.offsets) if number not in kept]
        results = [self.program.results[source] for source in sources]
        renewed = [index + item.offsets[state.update] for state in self.program.states]

        def step(slots: Slots) -> None:
            given = [
                array
                for source, result in zip(sources, results, strict=True)
                for array in _leave(result, slots[source])
            ]
            slots[index] = given, [_keep(slots[source]) for source in renewed]

        return [step]

    def _hand_over(self, index: int, item: Instruction, block: InstructionBlock) -> SlotStep:
        """Add results of a block to that of its instruction; of convergences one for each block."""
        owner, result = block.owner, self.program.results[block.owner]
        sources = [index + offset for offset in item.offsets]
        if not isinstance(result, tuple):
            first = self.blocks.handing(self.program.file.instructions, block).start
            sources = sources[:1] if index == first else []
        count = len(result) if isinstance(result, tuple) else len(self.blocks.owned[owner])

        def step(slots: Slots) -> None:
            before = slots[owner] or ()
            slots[owner] = (*before, *(_first(slots[source]) for source in sources))[:count]

        return step

    def link_join(self, owner: int, last: int) -> list[SlotStep]:
        """The steps of a convergence, whose blocks have handed over what its operation reads."""
        tape, env = Tape(), dict[str, Register]()
        whole = tape.read(owner)
        for operation in self.program.steps[last]:
            read = (item for argument in operation.inputs for item in tensors(argument))
            env |= {item.name: tape.do(itemgetter(number), whole) for number, item in enumerate(read)}
            with findings_at(operation.operator, origin_of(self.program, owner)):
                self.operations.add(tape, operation, env)
        result = self.program.results[owner]
        if not isinstance(result, Tensor):
            return []
        return bind(tape, self._gather(tape, env, result), owner, self.room)

    def _link_operation(self, index: int) -> list[SlotStep]:
        tape, env = Tape(), dict[str, Register]()
        self._enter(tape, env, index)
        for operation in self.program.steps[index]:
            with findings_at(operation.operator, origin_of(self.program, index)):
                self.operations.add(tape, operation, env)
        result = self.program.results[index]
        if not isinstance(result, Tensor | tuple):
            return []
        return bind(tape, self._gather(tape, env, result), index, self.room)

    def _gather(self, tape: Tape, env: Env, result: Tensor | tuple[Result, ...]) -> Register:
        """The value of a result: that of a tensor, or a tuple."""
        if isinstance(result, tuple):
            items = [item for item in result if isinstance(item, Tensor | tuple)]
            return tape.do(_pack(result), *(self._gather(tape, env, item) for item in items))
        if result.name not in env:
            raise ValueError(f"nothing gives the tensor '{result.name}'")
        register = env[result.name]
        slot = tape.source(register)
        if slot is None or register in tape.given or self._size(slot) <= tensor_bytes(result):
            return register
        # A part of an array would keep the whole alive when it is freed.
        return tape.do(methodcaller("copy"), register)

    def _size(self, slot: int) -> int:
        """The bytes of what stands in a slot."""
        results = self.program.results
        return size_of(results[slot]) if slot < len(results) else held_bytes(self.room.template[slot])

    def _enter(self, tape: Tape, env: Env, index: int) -> None:
        """The tensors that an instruction may read: constants, and the results of its arguments."""
        wanted = set(self._reads(index))
        for name in wanted & self.constants.keys():
            array = self.constants[name]
            env[name] = tape.literal(array) if array.size <= SMALL else tape.read(self._slot(name))
        for offset in self.program.file.instructions[index].offsets:
            found = paths(self.program.results[index + offset]) if offset < 0 else ()
            for tensor, path in found:
                if tensor.name in wanted:
                    env[tensor.name] = _select(tape, index + offset, path)

    def _reads(self, index: int) -> Iterator[str]:
        """The names of the tensors that the operations of an instruction read, or that it gives."""
        for operation in self.program.steps[index]:
            yield from (item.name for argument in operation.inputs for item in tensors(argument))
        yield from (item.name for item, _ in paths(self.program.results[index]))

    def _slot(self, name: str) -> int:
        if name not in self._slots:
            self._slots[name] = self.room.keep(self.constants[name])
        return self._slots[name]


def _first(held: object) -> object:
    """What a block hands over: of several values the first."""
    while isinstance(held, tuple):
        held = held[0]
    return held


def _load(reader: WeightReader, load: ParameterLoad) -> SlotStep:
    index = load.index

    def step(slots: Slots) -> None:
        slots[index] = reader.take(load)

    return step


def _refuse(rule: Rule, **values: object) -> SlotStep:
    """A step that ends the run with a finding."""

    def step(slots: Slots) -> None:
        raise Fault(rule, **values)

    return step


def _select(tape: Tape, slot: int, path: Path) -> Register:
    """An item of what stands in a slot."""
    register = tape.read(slot)
    for number in path:
        register = tape.do(itemgetter(number), register)
    return register


def _pack(items: Sequence[Result]) -> Callable[..., tuple[object, ...]]:
    """Makes a tuple of arrays, in which what is no tensor is None."""
    places = tuple(place for place, item in enumerate(items) if isinstance(item, Tensor | tuple))
    count = len(items)

    def pack(*held: object) -> tuple[object, ...]:
        found: list[object] = [None] * count
        for place, item in zip(places, held, strict=True):
            found[place] = item
        return tuple(found)

    return pack


def _leave(result: Result, held: object) -> Iterator[Array]:
    """What is given to the caller: arrays that nobody else writes to, sizes as arrays too."""
    if isinstance(result, tuple) and isinstance(held, tuple):
        for item, part in zip(result, held, strict=True):
            yield from _leave(item, part)
    elif isinstance(held, np.ndarray):
        yield np.array(to_exchange(held))
    elif isinstance(result, int):
        yield np.asarray(result, np.int64)


def _keep(held: object) -> Array:
    """What stays for the next run: an array that nobody else writes to, of several the first."""
    return np.array(_first(held))
