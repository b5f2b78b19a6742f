"""What slots hold, how large it is, and how one kind is taken for another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from lamella.backend.mep.faults import fault
from lamella.backend.mep.host import Tokenizer
from lamella.base.arrays import Array
from lamella.base.limits import DEFAULT, LARGEST, SMALLEST

Number: TypeAlias = bool | int | float
Value: TypeAlias = Number | str | bytes | tuple[Number, ...] | Array | Tokenizer | None
"""A list is a tuple of numbers; bytes are a picture that was serialised."""

CHARACTER, ITEM = 4, 32
"""Bytes that a character of a text and an item of a list are counted for."""
_ARITHMETIC = (TypeError, ValueError, IndexError, ArithmeticError, MemoryError)


def bytes_of(value: Value) -> int:
    """The bytes that a value is counted for."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes) + ITEM
    if isinstance(value, str):
        return CHARACTER * len(value) + ITEM
    if isinstance(value, bytes):
        return len(value) + ITEM
    return ITEM * (1 + len(value)) if isinstance(value, tuple) else ITEM


def words_for(value: Value) -> str:
    """What a value is, as messages say it."""
    if value is None:
        return "nothing"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {list(value.shape)}"
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    if isinstance(value, bytes):
        return f"a picture of {len(value)} bytes"
    if isinstance(value, tuple):
        return f"a list of {len(value)} numbers"
    return f"the number {value}" if isinstance(value, bool | int | float) else "a tokenizer"


def as_array(value: Value) -> Array:
    """A value that is computed with as an array: numbers and lists become one."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bool | int | float | tuple):
        return compute(np.asarray, value)
    raise fault(f"needs numbers and finds {words_for(value)}", "give an array, a list or a number")


def as_scalar(value: Value) -> Number:
    """The one number that a value holds."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf":
        found: Number = value.reshape(-1)[0].item()
        return found
    if isinstance(value, tuple) and len(value) == 1:
        return value[0]
    if isinstance(value, bool | int | float):
        return value
    raise fault(f"needs one number and finds {words_for(value)}", "give a number, or an array of one element")


def as_integer(value: Value) -> int:
    """The one integer of 64 bits that a value holds."""
    number = as_scalar(value)
    if not math.isfinite(number) or number != int(number) or not SMALLEST <= number <= LARGEST:
        raise fault(f"needs an integer and finds {number}", "give a whole number of 64 bits")
    return int(number)


def as_text(value: Value) -> str:
    """A value that has to be a text."""
    if isinstance(value, str):
        return value
    raise fault(f"needs a text and finds {words_for(value)}", "give a text")


def as_truth(value: Value) -> bool:
    """A condition: one number, which is true where it is not 0."""
    return bool(as_scalar(value))


def as_integers(value: Value) -> tuple[int, ...]:
    """A list of integers: token ids, or the extents of a shape."""
    array = as_array(value)
    if array.dtype.kind not in "biu" and array.size:
        raise fault(f"needs integers and finds {words_for(value)}", "give whole numbers")
    return tuple(int(item) for item in array.reshape(-1).tolist())


def as_shape(value: Value) -> tuple[int, ...]:
    """The extents of an array that is to be made."""
    shape = as_integers(value)
    if len(shape) > DEFAULT.max_rank or any(extent < 0 for extent in shape):
        raise fault(f"cannot make an array of shape {list(shape)[:32]}", "extents are no less than 0")
    return shape


def as_tokenizer(value: Value) -> Tokenizer:
    """A value that has to be a tokenizer."""
    if value is None or isinstance(value, bool | int | float | str | bytes | tuple | np.ndarray):
        found = words_for(value)
        raise fault(f"needs a tokenizer and finds {found}", "load one with RES_LOAD_EXTERN of type 0")
    return value


def show(value: Value) -> str:
    """A value as plain text: numbers as Python writes them, lists and arrays in brackets."""
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    if isinstance(value, tuple):
        return str(list(value))
    if value is None or isinstance(value, bool | int | float | str):
        return str(value)
    raise fault(f"cannot say {words_for(value)} in words", "print texts, numbers and arrays")


def shown_bytes(values: Sequence[Value]) -> int:
    """An upper bound of the bytes that values take as text."""
    return sum(_shown_bytes(value) for value in values)


def _shown_bytes(value: Value) -> int:
    if isinstance(value, np.ndarray):
        return CHARACTER * (28 + 2 * value.ndim) * (value.size + 1)
    if isinstance(value, tuple):
        return CHARACTER * 28 * (len(value) + 1)
    return bytes_of(value) + CHARACTER * 28


def compute(function: Callable[..., Array], *values: object) -> Array:
    """The result of a function of NumPy, whose refusals become faults that say what it was given."""
    try:
        found: Array = function(*values)
    except _ARITHMETIC:
        shown = " and ".join(map(_words, values))
        raise fault(f"cannot compute with {shown}", "look at the shapes and the element types") from None
    return found


def _words(value: object) -> str:
    if isinstance(value, np.ndarray):
        return words_for(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value[:8])) or "nothing"
    return str(value)[:40]


def unwrap(array: Array) -> Value:
    """An array without axes as the number it is."""
    if array.ndim or array.dtype.kind not in "biuf":
        return array
    found: Number = array.item()
    return found
