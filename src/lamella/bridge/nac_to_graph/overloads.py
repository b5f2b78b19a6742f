"""Overload resolution: arguments without names against ATen schemas, flattened lists gathered, keywords recognised."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.dim import Dim
from lamella.base.dtype import C32, C64, ElementType, find_in
from lamella.bridge.aten.nodes import AtenCall, AtenParameter, AtenSchema, Operand
from lamella.bridge.nac_to_graph.nodes import CallArgument, first_tensor
from lamella.graph.nodes import Tensor

# --- what can stand for a parameter of an ATen schema, by the words of its type -----------------------------


WITHOUT_EFFECT = frozenset({"Device", "Layout", "MemoryFormat", "Generator", "Stream"})
"""Types whose values change nothing that a graph says."""
IGNORED = frozenset({"pin_memory", "non_blocking"})
"""Parameters of other types with the same fate."""
COMPUTED = frozenset({"Tensor", "Scalar", "int", "SymInt", "float", "bool", "SymBool"})
"""Types that results of instructions can have."""
_KIND = re.compile(r"(\w+)(\?)?(?:\[(\d*)\](\?)?)?")
_DEVICE = re.compile(r"(?:cpu|cuda|meta|mps|xpu|hpu|xla|vulkan|mkldnn|mtia|privateuseone)(?::\d{1,4})?")
_LAYOUT = re.compile(r"strided|sparse_\w+|_mkldnn|jagged")
_FORMAT = re.compile(r"\w+_format|channels_last(?:_3d)?")
_COMPLEX: Mapping[str, ElementType] = MappingProxyType({"complex64": C32, "complex128": C64})


class ParameterKind(NamedTuple):
    """A type of ATen: `SymInt[2]?` is an optional list of two SymInt, `Tensor?[]` a list of optional tensors."""

    base: str
    optional: bool
    many: bool = False
    length: int | None = None
    empty_items: bool = False


class Fit(NamedTuple):
    """A value as a parameter takes it, and how far it had to be bent."""

    value: Operand
    cost: int = 0


@cache
def read_kind(text: str) -> ParameterKind:
    """The type that ATen's words say."""
    match = _KIND.fullmatch(text)
    if match is None:
        return ParameterKind(text, optional=False)
    base, inner, length, outer = match.groups()
    if length is None:
        return ParameterKind(base, optional=inner is not None)
    return ParameterKind(base, outer is not None, True, int(length) if length else None, inner is not None)


def fit(base: str, value: Operand) -> Fit | None:
    """A single value as a type takes it; None where it does not."""
    rule = _FITS.get(base)
    return None if rule is None or value is None else rule(value)


def fit_list(kind: ParameterKind, values: tuple[Operand, ...]) -> Fit | None:
    """A list as a type takes it."""
    found = [fit_item(kind, item) for item in values]
    kept = [item for item in found if item is not None]
    if len(kept) != len(found):
        return None
    return Fit(tuple(item.value for item in kept), sum(item.cost for item in kept))


def fit_item(kind: ParameterKind, value: Operand) -> Fit | None:
    """An item of a list as its type takes it."""
    if value is None:
        return Fit(None) if kind.empty_items else None
    if kind.base == "bool" and isinstance(value, int) and value in (0, 1):
        # A constant list holds integers alone, so that `[True, False]` arrives as `(1, 0)`.
        return Fit(bool(value))
    return fit(kind.base, value)


def _is_number(value: Operand) -> bool:
    return isinstance(value, bool | int | float | Dim)


def _tensor(value: Operand) -> Fit | None:
    found = first_tensor(value)
    if found is not None:
        return Fit(found, 0 if isinstance(value, Tensor) else 1)
    # A number may stand for a tensor: `aten.add.Tensor(x, 2)` is how torch exports x + 2.
    return Fit(value, 2) if _is_number(value) else None


def _scalar(value: Operand) -> Fit | None:
    # A truth value is a number, but rather one of another parameter.
    return Fit(value, int(isinstance(value, bool))) if _is_number(value) else None


def _integer(value: Operand) -> Fit | None:
    return Fit(value) if isinstance(value, int | Dim) and not isinstance(value, bool) else None


def _number(value: Operand) -> Fit | None:
    if isinstance(value, float):
        return Fit(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
        return Fit(float(value), 1)
    return None


def _truth(value: Operand) -> Fit | None:
    return Fit(value) if isinstance(value, bool) else None


def _word(value: Operand) -> Fit | None:
    return Fit(value) if isinstance(value, str) else None


def _element(value: Operand) -> Fit | None:
    found = find_element(value) if isinstance(value, str) else None
    return None if found is None else Fit(found)


def find_element(word: str) -> ElementType | None:
    """The element type that torch calls by a word."""
    short = word.removeprefix("torch.")
    return find_in("nac", short) or _COMPLEX.get(short)


def _words(pattern: re.Pattern[str]) -> Callable[[Operand], Fit | None]:
    return lambda value: Fit(value) if isinstance(value, str) and pattern.fullmatch(value) else None


_FITS: Mapping[str, Callable[[Operand], Fit | None]] = MappingProxyType(
    {
        **{"Tensor": _tensor, "Scalar": _scalar, "int": _integer, "SymInt": _integer, "float": _number},
        **{"bool": _truth, "str": _word, "ScalarType": _element, "SymBool": _truth},
        **{"Device": _words(_DEVICE), "Layout": _words(_LAYOUT), "MemoryFormat": _words(_FORMAT)},
    }
)


MOST_READINGS = 16
"""Ways to read one instruction that are tried."""
MOST_STEPS = 4096
"""Parameters that are considered for one instruction and one overload."""


class OverloadReading(NamedTuple):
    """A call that an instruction may stand for, and how far its arguments had to be bent for it."""

    call: AtenCall
    cost: int


Taken = tuple[tuple[str, Fit], ...]


def find_readings(schemas: Sequence[AtenSchema], given: Sequence[CallArgument]) -> list[OverloadReading]:
    """The calls that arguments may stand for, the likeliest first."""
    found = [
        reading
        for schema in schemas
        for reading in islice(_Matching(schema, given).readings(), MOST_READINGS)
    ]
    return sorted(found, key=lambda item: item.cost)[:MOST_READINGS]


class _Matching:
    """One schema and the arguments that it may take.

    Arguments stand in the order of the parameters. From some place on they may be the values of keywords, which stand
    in any order and are recognised by what they are.
    """

    def __init__(self, schema: AtenSchema, given: Sequence[CallArgument]) -> None:
        self.schema = schema
        self.parameters = schema.parameters
        self.given = given
        self.operands = [item.value for item in given]
        self.steps = 0
        self.dead: set[tuple[int, int]] = set()

    def readings(self) -> Iterator[OverloadReading]:
        """Every way to read the arguments, longest lists first."""
        for taken in self._match(0, 0, ()):
            yield OverloadReading(
                AtenCall(self.schema, dict(self._kept(taken))), sum(item.cost for _, item in taken)
            )

    def _kept(self, taken: Taken) -> Iterator[tuple[str, Operand]]:
        """What has an effect."""
        for name, found in taken:
            parameter = self.schema.find(name)
            if parameter is not None and not _is_ignored(parameter):
                yield name, found.value

    def _match(self, number: int, place: int, taken: Taken) -> Iterator[Taken]:
        """Readings of the arguments from a place on by the parameters from a number on."""
        self.steps += 1
        if (number, place) in self.dead or self.steps > MOST_STEPS:
            return
        if place == len(self.operands):
            if not any(map(_is_needed, self.parameters[number:])):
                yield taken
            return
        alive = False
        if number < len(self.parameters):
            parameter = self.parameters[number]
            for count, found in self._fits(parameter, place):
                for reading in self._match(number + 1, place + count, (*taken, (parameter.name, found))):
                    alive = True
                    yield reading
        keywords = self._keywords(number, place)
        if keywords is not None:
            alive = True
            yield (*taken, *keywords)
        if not alive:
            self.dead.add((number, place))

    def _fits(self, parameter: AtenParameter, place: int) -> Iterator[tuple[int, Fit]]:
        """What a parameter can take from a place on, and how many arguments that is."""
        kind, value = read_kind(parameter.type), self.operands[place]
        if _stays_open(kind, self.given[place]):
            yield 1, Fit(None)
        if not kind.many:
            found = fit(kind.base, value)
            if found is not None:
                yield 1, found
            return
        whole = fit_list(kind, value) if isinstance(value, tuple) else None
        if whole is not None:
            yield 1, whole
        run = self._run(parameter, place)
        for count in range(len(run), 0, -1):
            if kind.length in (None, 1, count):
                yield count, self._gathered(run[:count], place)
        if run and kind.length is not None and kind.length > 1:
            yield 1, Fit((run[0].value,) * kind.length, run[0].cost + 1)

    def _run(self, parameter: AtenParameter, place: int) -> list[Fit]:
        """The items of a flattened list from a place on, as many as there may be."""
        kind, run = read_kind(parameter.type), list[Fit]()
        for item in self.given[place:]:
            found = _fit_one(kind, item)
            if found is None or (found.cost > 1 and kind.base == "Tensor"):
                break
            run.append(found)
        return run

    def _gathered(self, run: Sequence[Fit], place: int) -> Fit:
        """A flattened list; one without anything computed would have been a constant as a whole."""
        computed = any(item.computed for item in self.given[place : place + len(run)])
        cost = sum(item.cost for item in run)
        return Fit(tuple(item.value for item in run), cost if computed else cost + 1)

    def _keywords(self, number: int, place: int) -> Taken | None:
        """The rest of the arguments as values of keywords; None where they cannot be."""
        rest = self.parameters[number:]
        if any(map(_is_needed, rest)):
            return None
        free = sorted(rest, key=lambda item: not item.keyword)
        taken: list[tuple[str, Fit]] = []
        for given in self.given[place:]:
            fitting = [(item, fitted) for item in free if (fitted := self._alone(item, given))]
            found = min(fitting, key=lambda item: item[1].cost, default=None)
            if found is None or (not taken and rest and found[0] is rest[0]):
                return None
            free.remove(found[0])
            taken.append((found[0].name, found[1]))
        return tuple(taken)

    def _alone(self, parameter: AtenParameter, given: CallArgument) -> Fit | None:
        """One argument for one parameter."""
        kind, value = read_kind(parameter.type), given.value
        if not given.typed:
            return Fit(None) if kind.base in COMPUTED else None
        if value is None:
            return Fit(None) if kind.optional else None
        if kind.many:
            return fit_list(kind, value if isinstance(value, tuple) else (value,))
        return fit(kind.base, value)


def _stays_open(kind: ParameterKind, given: CallArgument) -> bool:
    """Whether a parameter takes an argument without a value: nothing is given, or only a run tells what."""
    if given.typed:
        return given.value is None and (kind.optional or kind.base in WITHOUT_EFFECT)
    return kind.base in COMPUTED


def _fit_one(kind: ParameterKind, given: CallArgument) -> Fit | None:
    """An argument as an item of a list."""
    if not given.typed:
        return Fit(None) if kind.base in COMPUTED else None
    return fit_item(kind, given.value)


def _is_needed(parameter: AtenParameter) -> bool:
    """Whether a call must give a parameter."""
    return parameter.default is None and not parameter.type.endswith("?")


def _is_ignored(parameter: AtenParameter) -> bool:
    """Whether a value changes nothing that a graph says."""
    without = parameter.name in IGNORED or read_kind(parameter.type).base in WITHOUT_EFFECT
    return without and not _is_needed(parameter)
