"""Arguments of instructions: what each one is, its code, and which lists are one constant."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.dim import Dim, Extent
from lamella.base.dtype import ElementType, name_in
from lamella.base.errors import Found
from lamella.base.source import NOWHERE
from lamella.bridge.aten.nodes import Call, Operand
from lamella.bridge.graph_to_nac.calls.restate import Inexpressible, written_name, written_operands
from lamella.bridge.graph_to_nac.calls.said import OwnCall, Saying
from lamella.graph.nodes import Tensor
from lamella.lang.nac.nodes import ConstantValue
from lamella.lang.nac.rules import roads as rules
from lamella.lang.nac.signatures import TENSOR_CODES
from lamella.ops.instance import Repeated

INT32 = range(-(1 << 31), 1 << 31)


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of an instruction: a tensor by its name, a size by its text, a tuple by its number."""

    key: str


@dataclass(frozen=True, slots=True)
class Word:
    """One argument with its code."""

    code: str
    value: Ref | ConstantValue


Sizes: TypeAlias = Callable[[Dim], Ref]
"""Gives the instruction that computes a size."""

# --- roles --------------------------------------------------------------------------------------------------

_WEIGHTS: Mapping[str, str] = MappingProxyType({"weight": "W", "filter": "W", "scale": "W", "bias": "B"})
_ROLES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "aten.scaled_dot_product_attention": {"query": "Q", "key": "K", "value": "V", "attn_mask": "M"},
        "aten.addmm": {"self": "B", "mat2": "W"},
    }
)
"""Codes of tensors by operators and the names of their parameters, where the names alone do not tell."""
_AXES = frozenset(("axis", "dim", "dim0", "dim1", "start_dim", "end_dim"))


def role(operator: str, parameter: str) -> str:
    """The code of a tensor by what it is to an operator; `T` where it is nothing special."""
    own = _ROLES.get(".".join(operator.split(".")[:2]), _WEIGHTS)
    return own.get(parameter, "T")


def plain(words: Sequence[Word]) -> tuple[Word, ...]:
    """The arguments as the public compiler writes them: tensors are tensors, axes are integers."""
    return tuple(Word(_plain(word.code), word.value) for word in words)


def _plain(code: str) -> str:
    if code in TENSOR_CODES:
        return "T"
    return "i" if code == "A" else code


# --- arguments ----------------------------------------------------------------------------------------------


def say(saying: Saying, sizes: Sizes) -> tuple[str, tuple[Word, ...]]:
    """The name of a call in the file, and its arguments."""
    if isinstance(saying, Call):
        operator = saying.schema.name
        words = [
            word
            for name, operand in written_operands(saying)
            for word in _aten_words(operator, name, operand, sizes)
        ]
        return written_name(saying), tuple(words)
    return saying.operator, tuple(_own_words(saying, sizes))


def _aten_words(operator: str, name: str, operand: Operand, sizes: Sizes) -> Iterator[Word]:
    """An operand of ATen; a list that is no constant stands item by item."""
    if not isinstance(operand, tuple):
        yield _word(operator, name, operand, sizes)
        return
    constant = constant_list(operand)
    if constant is not None:
        yield Word("S", constant)
    else:
        for item in operand:
            yield from _aten_words(operator, "", item, sizes)


def _own_words(call: OwnCall, sizes: Sizes) -> Iterator[Word]:
    """Inputs, all attributes, and the types that the tensors do not tell."""
    for name, value in zip(call.names, call.inputs, strict=False):
        if isinstance(value, tuple):
            yield Word("i", len(value))
            yield from (_word(call.operator, "", item, sizes) for item in value)
        else:
            yield _word(call.operator, name, _operand(value), sizes)
    for name, attribute in call.attributes:
        yield from _attribute(call.operator, name, attribute, sizes)
    yield from (Word("s", element.name) for element in call.types.values())


def _attribute(operator: str, name: str, value: object, sizes: Sizes) -> Iterator[Word]:
    """An attribute; a list that is no constant stands item by item behind its length."""
    if not isinstance(value, tuple):
        yield _word(operator, name, _operand(value), sizes)
        return
    constant = constant_list(value)
    if constant is not None:
        yield Word("S", constant)
        return
    yield Word("i", len(value))
    for item in value:
        yield _word(operator, "", _operand(item), sizes)


def _operand(value: object) -> Operand:
    """A value of a graph that an instruction can hold or compute."""
    if value is None or isinstance(value, Tensor | int | float | str | Dim):
        return value
    if isinstance(value, Repeated):
        raise Inexpressible(value, "is a list whose length only the run tells")
    raise Inexpressible(value, "is a condition, and sizes have none")


def _word(operator: str, name: str, operand: Operand, sizes: Sizes) -> Word:
    match operand:
        case Tensor():
            return Word(role(operator, name), Ref(operand.name))
        case Dim():
            return Word("T", sizes(operand))
        case bool():
            return Word("b", operand)
        case int():
            return Word("A" if name in _AXES else "i", operand)
        case float():
            return Word("f", operand)
        case str():
            return Word("s", operand)
        case ElementType():
            return Word("c", _element_word(operator, operand))
        case _:
            return Word("c", None)


def _element_word(operator: str, element: ElementType) -> str:
    found = name_in("nac", element)
    if found is None:
        raise Found(rules.ELEMENT.at(NOWHERE, what="the result of", name=operator, element=element))
    return found


def constant_list(items: Sequence[object]) -> tuple[int, ...] | tuple[float, ...] | None:
    """A list as one constant, where that holds it exactly."""
    whole = tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool))
    if len(whole) == len(items) and all(item in INT32 for item in whole):
        return whole
    reals = tuple(item for item in items if isinstance(item, float))
    return reals if len(reals) == len(items) and all(map(_is_single, reals)) else None


def _is_single(value: float) -> bool:
    """Whether float32 holds a number; NaN is one number for all languages here."""
    if value != value:
        return True
    try:
        return struct.unpack("<f", struct.pack("<f", value)) == (value,)
    except OverflowError:
        return False


def size_words(*operands: Extent | Ref) -> tuple[Word, ...]:
    """The arguments of an instruction that computes with sizes."""
    return tuple(Word("T", item) if isinstance(item, Ref) else Word("i", _known(item)) for item in operands)


def _known(extent: Extent) -> int:
    return extent if isinstance(extent, int) else 0
