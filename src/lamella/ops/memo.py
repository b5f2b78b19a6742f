"""A memo of bound calls: calls that differ in the names and origins of their tensors alone are bound once.

Binding asks a tensor for its element type and its shape, and for its name in messages only. A call is kept where
nothing else of its tensors went into the instance: no assertion was left to the run (its message has names), no helper
symbol holds a tensor or something that only the run knows, and no string of the definition prints a value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from threading import Lock
from types import MappingProxyType, NoneType
from typing import cast

from lamella.base.dim import Dim
from lamella.base.dtype import ElementType
from lamella.base.records import replace
from lamella.ops.bind.plan import OperatorPlan
from lamella.ops.instance import Argument, Fill, Instance, Repeated, Value

MOST_CALLS = 4096
"""Calls that a memo keeps; the oldest goes first."""
LONGEST = 64
"""Items of a pack in a call that is kept: long ones cost more to compare than to bind, and memory."""
SINGLES = frozenset({int, float, bool, str, NoneType, Dim})


def exact(value: object) -> Hashable:
    """A value that equals no other: 1, 1.0 and True are three, 0.0 and -0.0 are two."""
    kind = type(value)
    if kind is float or kind is bool:
        return kind, value.hex() if isinstance(value, float) else value
    if isinstance(value, tuple):
        return (tuple, *map(exact, value))
    return (Repeated, exact(value.item), value.length) if isinstance(value, Repeated) else value


def call_key(
    plan: OperatorPlan,
    arguments: Sequence[Argument],
    attributes: Mapping[str, Value],
    types: Mapping[str, ElementType],
    results: Sequence[str],
) -> Hashable | None:
    """What a call is bound by; None for one that is not kept.

    The names of results count where extents are named after them.
    """
    if plan.prints or not all(_is_plain(item) for item in attributes.values()):
        return None
    given: list[Hashable] = []
    for argument in arguments:
        if isinstance(argument, tuple):
            found = [_signature(item) for item in argument[: LONGEST + 1]]
            if None in found or len(found) > LONGEST:
                return None
            given.append((tuple, *found))
        elif argument is None:
            given.append(None)
        else:
            single = _signature(argument)
            if single is None:
                return None
            given.append(single)
    named = frozenset((name, exact(value)) for name, value in attributes.items())
    names = tuple(results) if plan.is_open else ()
    return id(plan), tuple(given), named, frozenset(types.items()), names


def _signature(argument: object) -> Hashable | None:
    """What binding asks of a tensor or a scalar; None where that cannot be compared."""
    if _is_plain(argument):
        return None if argument is None else (Fill, exact(argument))
    shape, element = getattr(argument, "shape", None), getattr(argument, "element", None)
    if not isinstance(shape, tuple) or not isinstance(element, ElementType) or isinstance(argument, Fill):
        return None
    return element, shape, getattr(argument, "size", None)


def _is_plain(value: object) -> bool:
    """Whether a value is known and can be compared; not a number equals nothing."""
    if type(value) is tuple:
        return len(value) <= LONGEST and all(type(item) in SINGLES and item == item for item in value)
    return type(value) in SINGLES and value == value


def _is_tensor(argument: object) -> bool:
    return hasattr(argument, "shape")


class CallMemo:
    """Calls that were bound, without their tensors; threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Instance, dict[str, object]]] = {}
        self._lock = Lock()

    def find(self, key: Hashable, arguments: Sequence[Argument]) -> Instance | None:
        """The instance of a call, with its own tensors."""
        found = self._kept.get(key)
        if found is None:
            return None
        kept, symbols, inputs = found[0], found[1].copy(), list(found[0].inputs)
        for place, argument in enumerate(arguments):
            if argument is not None:
                name = inputs[place][0]
                inputs[place] = name, argument
                symbols[name] = _with_tensors(argument, symbols[name])
        # Not by replace(), which costs more than all that stands above.
        return Instance(
            definition=kept.definition,
            types=kept.types,
            attributes=kept.attributes,
            inputs=tuple(inputs),
            symbols=MappingProxyType(symbols),
            outputs=kept.outputs,
            constants=kept.constants,
            variables=kept.variables,
            plan=kept.plan,
            memo=kept.memo,
        )

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: Hashable | None, arguments: Sequence[Argument], instance: Instance) -> None:
        """Keep an instance, where nothing of its tensors but types and shapes went into it."""
        if key is None or key in self._kept:
            return
        symbols = dict(instance.symbols)
        for (name, _), argument in zip(instance.inputs, arguments, strict=False):
            if not _holds(symbols[name], argument):
                return
            symbols[name] = _without_tensors(symbols[name])
        if instance.checks or not all(map(_is_settled, _values(instance, symbols))):
            return
        inputs = tuple((name, cast("Argument", _without_tensors(value))) for name, value in instance.inputs)
        bare = replace(instance, inputs=inputs, symbols=MappingProxyType(symbols))
        with self._lock:
            if len(self._kept) >= MOST_CALLS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = bare, symbols


def _values(instance: Instance, symbols: Mapping[str, object]) -> Iterator[object]:
    yield from symbols.values()
    yield from (value for _, value in instance.constants)


def _is_settled(value: object) -> bool:
    """Whether a symbol, tensors of inputs aside, has a value of its own."""
    if isinstance(value, tuple):
        return len(value) <= LONGEST and all(map(_is_settled, value))
    if isinstance(value, Fill):
        return type(value.value) in SINGLES
    return isinstance(value, ElementType) or type(value) in SINGLES


def _holds(symbol: object, argument: object) -> bool:
    """Whether an input stands for the tensors that were passed for it."""
    if isinstance(argument, tuple) and isinstance(symbol, tuple):
        return all(map(_holds, symbol, argument))
    return symbol is argument or not _is_tensor(argument)


def _without_tensors(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_without_tensors, value))
    return None if _is_tensor(value) and not isinstance(value, Fill) else value


def _with_tensors(argument: object, symbol: object) -> object:
    """What an input stands for: the tensors of this call, and the fills of scalars that were kept."""
    if isinstance(argument, tuple) and isinstance(symbol, tuple):
        return tuple(map(_with_tensors, argument, symbol))
    return argument if _is_tensor(argument) else symbol
