"""The formulas of one operation as a program of NumPy calls: lowered once for known shapes, then run with arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from lamella.backend.formula.lower import FormulaSet, lower_formulas
from lamella.backend.formula.tape import Function, Register, SlotAllocator, Slots, SlotStep, Tape, bind
from lamella.backend.formula.terms import StoredTensor
from lamella.base.arrays import Array, DType
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.ops.fault import Fault


class TypedArray(Protocol):
    """An array, or what is known of one before the run."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""

    @property
    def dtype(self) -> DType:
        """Its stored type."""


ProgramTypes: TypeAlias = Mapping[str, "TypedArray | tuple[TypedArray, ...]"]
"""What an operation reads, by the names of its definition; a pack is a tuple."""
Constants: TypeAlias = Mapping[str, "Array | tuple[Array, ...]"]


@dataclass(frozen=True, slots=True)
class FormulaProgram:
    """Straight-line code on slots: the inputs stand in the first ones, then the tuple of the outputs."""

    steps: tuple[SlotStep, ...]
    template: Slots
    finite: tuple[int, ...]
    """Inputs that meet the zeros beyond the edges of a tensor: the code is right where they are finite."""

    def run(self, arrays: Sequence[Array]) -> tuple[Array, ...] | None:
        """The arrays of the outputs; None where an input is not finite that must be."""
        for slot in self.finite:
            if not np.isfinite(arrays[slot]).all():
                return None
        count = len(arrays)
        slots = [*arrays, *self.template[count:]]
        for step in self.steps:
            step(slots)
        results: tuple[Array, ...] = slots[count]
        return results


def compile_formulas(
    formulas: FormulaSet, inputs: ProgramTypes, constants: Constants
) -> FormulaProgram | None:
    """The program of an operation; None where NumPy has no functions for the structure of a formula."""
    tape = Tape()
    types: list[TypedArray] = []
    tensors: dict[str, StoredTensor | tuple[StoredTensor, ...]] = {}
    for name, value in inputs.items():
        items = value if isinstance(value, tuple) else (value,)
        first = len(types)
        types += items
        stored = tuple(
            StoredTensor(tape.read(first + place), item.shape, item.dtype) for place, item in enumerate(items)
        )
        tensors[name] = stored if isinstance(value, tuple) else stored[0]
    try:
        results = lower_formulas(tape, formulas, {**tensors, **dict(literals(tape, constants))})
    except (Unsupported, Fault):
        return None
    if not tape.finite <= tape.given.keys():
        return None
    owned = [_copied_part(tape, register, types) for register in results]
    allocator = SlotAllocator([None] * (len(types) + 1))
    steps = bind(tape, tape.do(_pack, *owned), len(types), allocator)
    finite = tuple(sorted(tape.given[register] for register in tape.finite))
    return FormulaProgram(tuple(steps), allocator.template, finite)


def literals(
    tape: Tape, constants: Constants
) -> Iterator[tuple[str, StoredTensor | tuple[StoredTensor, ...]]]:
    """Constants as values that are known before the run."""
    for name, value in constants.items():
        items = value if isinstance(value, tuple) else (value,)
        stored = tuple(StoredTensor(tape.literal(item), item.shape, item.dtype) for item in items)
        yield name, stored if isinstance(value, tuple) else stored[0]


def _copied_part(tape: Tape, register: Register, inputs: Sequence[TypedArray]) -> Register:
    """An output; a copy where it may be a part of an input, which it would keep alive when that is freed."""
    slot = tape.source(register)
    if slot is None or register in tape.given:
        return register
    whole = inputs[slot]
    return tape.do(_copy_smaller(int(np.prod(whole.shape, dtype=np.int64)) * whole.dtype.itemsize), register)


def _copy_smaller(size: int) -> Function:
    """Copies an array of less than so many bytes."""

    def copy(array: Array) -> Array:
        return array.copy() if array.nbytes < size else array

    return copy


def _pack(*arrays: Array) -> tuple[Array, ...]:
    return arrays
