"""Bounds bugs that are planted on purpose, each where one could be: the fuzzer of launches must find them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from lamella.backend.cpu.run import proof as proof_module
from lamella.kernels import bounds_checks
from lamella.kernels.build import Builder
from lamella.lang.tensor.check.memory import bounds, statements, walk
from lamella.lang.tensor.check.memory.bounds import Position
from lamella.lang.tensor.check.memory.forms.affine import ONE, ZERO, Affine
from lamella.lang.tensor.check.memory.forms.integers import Integers
from lamella.lang.tensor.check.memory.forms.symbols import Symbols
from lamella.lang.tensor.check.memory.state import State
from lamella.lang.tensor.nodes import Load, Value


def _one_too_many() -> None:
    Position.needed = property(lambda self: (self.first, self.size - self.last))  # type: ignore[method-assign,assignment]


def _nothing_is_negative() -> None:
    Position.needed = property(lambda self: (ONE, self.size - ONE - self.last))  # type: ignore[method-assign,assignment]


def _one_group() -> None:
    true = proof_module.Launch
    proof_module.Launch = lambda groups, ends: true(min(groups, 1), ends)  # type: ignore[misc,assignment]


def _products_without_sign() -> None:
    def multiply(self: Integers, left: Affine, right: Affine) -> Affine | None:
        if not right.terms:
            return left.times(abs(right.constant))
        return true(self, left, right)

    true = Integers.multiply
    Integers.multiply = multiply  # type: ignore[method-assign]
    _binary("mul", multiply)


def _binary(name: str, function: Callable[[Integers, Affine, Affine], Affine | None]) -> None:
    table = Integers.evaluate.__globals__
    table["BINARY"] = MappingProxyType({**table["BINARY"], name: function})


def _remainders_too_small() -> None:
    def remainder(self: Integers, left: Affine, right: Affine) -> Affine | None:
        found = true(self, left, right)
        return found if found is None or not found.terms else self._bounded(0, right.constant // 2, (left,))

    true = Integers.remainder
    _binary("rem", remainder)


def _offsets_of_views_dropped() -> None:
    def positions(state: State, view: Any, item: Any) -> Iterator[Position]:
        for found in true(state, view, item):
            yield replace(found, first=ZERO, last=found.last - found.first) if found.least == 0 else found

    true = bounds.positions_of_slices
    statements.positions_of_slices = positions  # type: ignore[attr-defined]


def _second_mode_skipped() -> None:
    true = bounds.positions_of_indices
    statements.positions_of_indices = lambda *given: true(*given)[:1]  # type: ignore[attr-defined]


def _strides_ignored() -> None:
    statements.check_fusion = lambda *_: None  # type: ignore[attr-defined]


def _data_are_trusted() -> None:
    def unknown(state: State, type_: Any, depends: frozenset[int], name: str = "") -> Any:
        found = true(state, type_, depends, name)
        is_loaded = state.current is not None and isinstance(state.current.instruction, Load)
        return replace(found, form=ZERO) if is_loaded and getattr(found, "form", None) is not None else found

    true = statements.unknown_value
    statements.unknown_value = unknown  # type: ignore[attr-defined]


def _atomics_skipped() -> None:
    def store(self: Any, statement: Any, item: Any) -> None:
        if item.flag != "atomic_add":
            true(self, statement, item)

    true = statements.Statements._store
    statements.Statements._store = store  # type: ignore[method-assign]


def _last_trip_forgotten() -> None:
    def define(self: Any, variable: Value, ends: tuple[Affine, Affine, Affine], *more: Any) -> int | None:
        begin, end, step = ends
        return true(self, variable, (begin, end - ONE, step), *more)

    true = walk.Walk._define_trip
    walk.Walk._define_trip = define  # type: ignore[method-assign]


def _conditions_hold_for_ever() -> None:
    Symbols.retract = lambda self, fact: None  # type: ignore[method-assign]


def _members_skipped() -> None:
    def positions(state: State, memory: Any, indices: Any) -> list[Position]:
        return true(state, memory, indices) if isinstance(memory, bounds.View) else []

    true = bounds.positions_of_indices
    statements.positions_of_indices = positions  # type: ignore[attr-defined]


def _shapes_agree() -> None:
    statements.check_shapes = lambda *_: None  # type: ignore[attr-defined]


def _tests_from_below_only() -> None:
    def between(self: Any, out: Builder, index: Value, size: Value) -> Value:
        return out.compare("ge", index, out.constant(0))

    bounds_checks._Tests._between = between  # type: ignore[method-assign]


def _views_are_not_told() -> None:
    bounds_checks._Tests._make = lambda self, out, conditions, plan: _put_true(out, plan)  # type: ignore[method-assign]


def _put_true(out: Builder, plan: Any) -> Value:
    out.put(bounds_checks.Arith("or", (out.constant(True, bounds_checks.BOOL),) * 2, bounds_checks.BOOL), (plan.made,))
    found: Value = plan.made
    return found


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
        "products have no sign": Bug(_products_without_sign, 118),
        "remainders are less than half": Bug(_remainders_too_small, 10),
        "views begin at 0": Bug(_offsets_of_views_dropped, 10),
        "arrays have one mode": Bug(_second_mode_skipped, 6),
        "modes lie one behind the other": Bug(_strides_ignored, 15),
        "data are 0": Bug(_data_are_trusted, 9),
        "atomic additions need no proof": Bug(_atomics_skipped, 13),
        "loops end one trip early": Bug(_last_trip_forgotten, 71),
        "conditions hold behind their if": Bug(_conditions_hold_for_ever, 89),
        "groups are long enough": Bug(_members_skipped, 9),
        "shapes agree": Bug(_shapes_agree, 4),
        "tests look below only": Bug(_tests_from_below_only, 9, True),
        "wrong views are used": Bug(_views_are_not_told, 284, True),
    }
)
"""Each by what it takes for granted; those that run are bugs of the tests in machine code, the others of proofs."""
