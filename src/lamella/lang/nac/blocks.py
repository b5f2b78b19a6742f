"""Blocks of instructions that a plan runs by themselves: what they take, what they give, and the file they make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lamella.lang.nac.nodes import (
    CONTROL_FLOW,
    CONVERGENCE,
    FIRST_REGULAR,
    INPUT,
    OUTPUT,
    File,
    Input,
    Instruction,
    Orchestrator,
)
from lamella.lang.nac.notes import operators_module

_USER, _PARAMETER, _CONSTANT = 0, 1, 3


@dataclass(frozen=True, slots=True)
class PlanBlock:
    """The instructions from `first` to `last`, both included.

    `takes` are the instructions whose results it is given: user inputs in its midst and what stands before it, but
    for weights and constants, which it loads itself. `gives` are its results that later instructions use. Both ascend.
    """

    first: int
    last: int
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    loads: tuple[int, ...]
    """Loads of weights and constants before the block that it uses."""


def block_problem(file: File, first: int, last: int) -> str:
    """Why instructions are no block, as the rest of a sentence; nothing where they are."""
    count = len(file.instructions)
    if not first <= last < count:
        return f"runs instructions {first} to {last} of a model that has {count}"
    inside = file.instructions[first : last + 1]
    if any(item.operation in (CONTROL_FLOW, CONVERGENCE) for item in inside):
        return f"runs instructions {first} to {last}, among which branches begin"
    return ""


def find_block(file: File, first: int, last: int) -> PlanBlock:
    """What a block takes and gives; there is no problem with it."""
    before = {
        source for index in range(first, last + 1) for source in _sources(file, index) if source < first
    }
    loads = tuple(sorted(index for index in before if _is_load(file.instructions[index])))
    inputs = [index for index in range(first, last + 1) if _is_user(file.instructions[index])]
    takes = (*sorted(before.difference(loads)), *inputs)
    later = range(last + 1, len(file.instructions))
    used = {source for index in later for source in _sources(file, index)}
    used |= {source for index in range(first, last + 1) for source in _outputs(file, index)}
    gives = (
        index for index in range(first, last + 1) if index in used and _computes(file.instructions[index])
    )
    return PlanBlock(first, last, takes, tuple(gives), loads)


def extract_block(file: File, first: int, last: int) -> File:
    """The block as a file of its own: inputs in the order of `takes`, outputs in the order of `gives`.

    Inputs that were results of instructions are named `result.INDEX`. What belongs to the whole (schedule, plan,
    manifest, resources) is left out.
    """
    block = find_block(file, first, last)
    inside = (index for index in range(first, last + 1) if file.instructions[index].operation != OUTPUT)
    kept = [*sorted((*block.loads, *block.takes[: _count_before(block)])), *inside]
    places = {index: place for place, index in enumerate(kept)}
    code = [_moved(file, index, places, first) for index in kept]
    code.append(Instruction(OUTPUT, offsets=tuple(places[index] - len(code) for index in block.gives)))
    names = {item.index: item.name for item in file.inputs}
    inputs = (Input(places[index], names.get(index, f"result.{index}")) for index in block.takes)
    return replace(
        file,
        header=replace(file.header, inputs=len(block.takes), outputs=len(block.gives)),
        instructions=tuple(code),
        inputs=tuple(inputs),
        schedule=(),
        manifest=b"",
        orchestrator=Orchestrator(),
        resources=tuple(item for item in file.resources if operators_module(item.name) is not None),
        training=(),
        arrays=(),
    )


def _count_before(block: PlanBlock) -> int:
    return sum(index < block.first for index in block.takes)


def _moved(file: File, index: int, places: dict[int, int], first: int) -> Instruction:
    """An instruction at its new place; a result from before the block is an input now."""
    item = file.instructions[index]
    if index < first and not _is_load(item):
        return Instruction(INPUT)
    offsets = (offset and places[index + offset] - places[index] for offset in item.offsets)
    return replace(item, offsets=tuple(offsets))


def _sources(file: File, index: int) -> Iterator[int]:
    """The instructions whose results one uses."""
    return (index + offset for offset in file.instructions[index].offsets if -index <= offset < 0)


def _outputs(file: File, index: int) -> Iterator[int]:
    return _sources(file, index) if file.instructions[index].operation == OUTPUT else iter(())


def _is_load(item: Instruction) -> bool:
    return item.operation == INPUT and item.variant in (_PARAMETER, _CONSTANT)


def _is_user(item: Instruction) -> bool:
    return item.operation == INPUT and item.variant == _USER


def _computes(item: Instruction) -> bool:
    return item.operation >= FIRST_REGULAR
