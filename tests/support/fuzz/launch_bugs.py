"""Bounds bugs that are planted on purpose, each where one could be: the fuzzer of launches must find them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from lamella.backend.cpu.run import proof as proof_module
from lamella.kernels import bounds_checks
from lamella.kernels.build import Builder
from lamella.lang.tensor.check import memory as walk
from lamella.lang.tensor.check.memory import Launch, bounds, statements
from lamella.lang.tensor.check.memory.bounds import Position
from lamella.lang.tensor.check.memory.forms import integers
from lamella.lang.tensor.check.memory.forms.affine import ONE, ZERO, Affine
from lamella.lang.tensor.check.memory.forms.integers import Integers
from lamella.lang.tensor.check.memory.forms.symbols import Symbols
from lamella.lang.tensor.check.memory.scalars import unknown_value
from lamella.lang.tensor.check.memory.state import KnownScalar, MemoryState, MemrefView
from lamella.lang.tensor.nodes import BOOL, Arith, Load, Value


def _plant(owner: Any, name: str, value: object) -> None:
    setattr(owner, name, value)


def _one_too_many() -> None:
    _plant(Position, "needed", property(lambda self: (self.first, self.size - self.last)))


def _nothing_is_negative() -> None:
    _plant(Position, "needed", property(lambda self: (ONE, self.size - ONE - self.last)))


def _one_group() -> None:
    _plant(proof_module, "Launch", lambda groups, ends: Launch(min(groups, 1), ends))


def _products_without_sign() -> None:
    def multiply(self: Integers, left: Affine, right: Affine) -> Affine | None:
        return self.multiply(left, right) if right.terms else left.times(abs(right.constant))

    _plant(integers, "BINARY", {**integers.BINARY, "mul": multiply})


def _remainders_too_small() -> None:
    def remainder(self: Integers, left: Affine, right: Affine) -> Affine | None:
        found = self.remainder(left, right)
        return found if found is None or not found.terms else self._bounded(0, right.constant // 2, (left,))

    _plant(integers, "BINARY", {**integers.BINARY, "rem": remainder})


def _offsets_of_views_dropped() -> None:
    def positions(state: MemoryState, view: Any, item: Any) -> Iterator[Position]:
        for found in bounds.positions_of_slices(state, view, item):
            yield replace(found, first=ZERO, last=found.last - found.first) if found.least == 0 else found

    _plant(statements, "positions_of_slices", positions)


def _second_mode_skipped() -> None:
    _plant(statements, "positions_of_indices", lambda *given: bounds.positions_of_indices(*given)[:1])


def _strides_ignored() -> None:
    _plant(statements, "check_fusion", lambda *_: None)


def _data_are_trusted() -> None:
    def unknown(state: MemoryState, type_: Any, depends: frozenset[int], name: str = "") -> Any:
        found = unknown_value(state, type_, depends, name)
        is_loaded = state.current is not None and isinstance(state.current.instruction, Load)
        has_form = isinstance(found, KnownScalar) and found.form is not None
        return KnownScalar(ZERO, depends) if is_loaded and has_form else found

    _plant(statements, "unknown_value", unknown)


def _atomics_skipped() -> None:
    def store(self: Any, statement: Any, item: Any) -> None:
        if item.flag != "atomic_add":
            true(self, statement, item)

    true = statements.MemoryStatements._store
    _plant(statements.MemoryStatements, "_store", store)


def _last_trip_forgotten() -> None:
    def define(self: Any, variable: Value, ends: tuple[Affine, Affine, Affine], *more: Any) -> int | None:
        begin, end, step = ends
        return true(self, variable, (begin, end - ONE, step), *more)

    true = walk.MemoryWalk._define_trip
    _plant(walk.MemoryWalk, "_define_trip", define)


def _conditions_hold_for_ever() -> None:
    _plant(Symbols, "retract", lambda self, fact: None)


def _members_skipped() -> None:
    def positions(state: MemoryState, memory: Any, indices: Any) -> list[Position]:
        return bounds.positions_of_indices(state, memory, indices) if isinstance(memory, MemrefView) else []

    _plant(statements, "positions_of_indices", positions)


def _shapes_agree() -> None:
    _plant(statements, "check_shapes", lambda *_: None)


def _tests_from_below_only() -> None:
    def between(self: Any, out: Builder, index: Value, size: Value) -> Value:
        return out.compare("ge", index, out.constant(0))

    _plant(bounds_checks._Tests, "_between", between)


def _wrong_views_are_used() -> None:
    def make(self: Any, out: Builder, conditions: Any, plan: Any) -> Value:
        true = out.constant(True, BOOL)
        out.put(Arith("or", (true, true), BOOL), (plan.made,))
        made: Value = plan.made
        return made

    _plant(bounds_checks._Tests, "_make", make)


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug: how it is planted, from which kernel on it is looked for, whether it shows only when code runs."""

    plant: Callable[[], None]
    first: int
    runs: bool = False


BUGS: Mapping[str, Bug] = MappingProxyType(
    {
        "a position may be one behind the last": Bug(_one_too_many, 11),
        "nothing is negative": Bug(_nothing_is_negative, 2),
        "there is one work-group": Bug(_one_group, 4),
        "products have no sign": Bug(_products_without_sign, 12),
        "remainders are less than half": Bug(_remainders_too_small, 10),
        "views begin at 0": Bug(_offsets_of_views_dropped, 10),
        "arrays have one mode": Bug(_second_mode_skipped, 6),
        "modes lie one behind the other": Bug(_strides_ignored, 76),
        "data are 0": Bug(_data_are_trusted, 9),
        "atomic additions need no proof": Bug(_atomics_skipped, 13),
        "loops end one trip early": Bug(_last_trip_forgotten, 71),
        "conditions hold behind their if": Bug(_conditions_hold_for_ever, 89),
        "groups are long enough": Bug(_members_skipped, 9),
        "shapes agree": Bug(_shapes_agree, 4),
        "tests look below only": Bug(_tests_from_below_only, 9, True),
        "wrong views are used": Bug(_wrong_views_are_used, 460, True),
    }
)
"""Each by what it takes for granted; those that run are bugs of the tests in machine code, the others of proofs."""
