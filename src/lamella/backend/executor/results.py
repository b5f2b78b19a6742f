"""What leaves a run: outputs, in arrays of the caller where there are some, and the new values of states.

A state that nobody else holds any more is written again two calls later, so that states need no new memory.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import combinations
from typing import cast

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.optional import Foreign
from lamella.base.records import dataclass
from lamella.base.suggest import list_known


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outputs of a run and the new values of its variables, both by name; no two share memory."""

    outputs: Mapping[str, Array]
    states: Mapping[str, Array]


# --- arrays of the caller ------------------------------------------------------------------------------------


def verify_out(names: Sequence[str], out: Mapping[str, object]) -> dict[str, Array]:
    """The arrays that a caller gives for outputs, once it is certain that they can be written."""
    found: dict[str, Array] = {}
    for name, given in out.items():
        if name not in names:
            raise InputError(
                f"there is no output '{name[:80]}'", hint=list_known(name, names, "outputs are:")
            )
        array = _memory_of(given)
        if array is None or not array.flags.writeable:
            hint = "an array of NumPy, or what shows its memory by DLPack or __array_interface__"
            raise InputError(f"what is given for output '{name}' is no array that can be written", hint=hint)
        found[name] = array
    for (name, one), (other, two) in combinations(found.items(), 2):
        if np.may_share_memory(one, two):
            raise InputError(f"the arrays for outputs '{name}' and '{other}' share memory")
    return found


def _memory_of(given: object) -> Array | None:
    """The memory of an array, also of another library, never a copy of it; None where it is not to be had."""
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, np.generic):  # whose memory NumPy would copy
        return None
    if hasattr(given, "__array_interface__"):
        return np.asarray(given)
    if hasattr(given, "__dlpack__"):
        # What is on a device, of a type that NumPy has not, or watched by a gradient says so in one of these ways.
        with suppress(BufferError, RuntimeError, TypeError, ValueError):
            return np.from_dlpack(cast(Foreign, given))
    return None


def deliver(name: str, array: Array, out: Array | None) -> Array:
    """An output in the array that its caller gave, where there is one."""
    if out is None or out is array:
        return array
    if out.shape != array.shape or out.dtype != array.dtype:
        wanted = f"{array.dtype}{list(array.shape)}"
        raise InputError(f"output '{name}' is {wanted}, its array {out.dtype}{list(out.shape)}")
    np.copyto(out, array)
    return out


# --- states --------------------------------------------------------------------------------------------------


def _references(box: list[Array]) -> tuple[int, int]:
    """How many references there are to the one array of a list, and to the array that owns its memory."""
    return sys.getrefcount(box[0]), sys.getrefcount(box[0].base)


ALONE = _references([np.zeros(2)[1:]])
"""The references to a view of memory of its own that nobody else holds: counted the way that this Python does."""


@dataclass(slots=True)
class SpareStates:
    """Arrays that were values of variables, and that nobody holds any more: by the names of the variables."""

    _spare: dict[str, Array] = field(default_factory=dict)
    _made: dict[str, weakref.ref[Array]] = field(default_factory=dict)
    """The values that runs made: an array of somebody else is never written."""

    def take(self, name: str) -> Array | None:
        """An array for the next value of a variable."""
        return self._spare.pop(name, None)

    def list_foreign(self, state: dict[str, Array], names: Iterable[str]) -> list[str]:
        """Those of some variables whose array no run made, or somebody else holds too."""
        found, made = [], self._made
        for name in names:
            reference = made.get(name)
            if reference is None or reference() is not state.get(name):
                found.append(name)
                continue
            box = [state.pop(name)]
            if _references(box) != ALONE:
                found.append(name)
            state[name] = box.pop()
        return found

    def replace(self, state: dict[str, Array], name: str, array: Array) -> None:
        """Give a variable its next value, and keep the array of the last one where nobody else does."""
        self.exchange(state, name, array)
        self._made[name] = weakref.ref(array)

    def exchange(self, state: dict[str, Array], name: str, array: Array) -> None:
        """The same with an array of somebody else, which no run writes."""
        made = self._made.pop(name, None)
        box = [state.pop(name)] if name in state else []
        state[name] = array
        if box and made is not None and made() is box[0] and _references(box) == ALONE:
            self._spare[name] = box[0]
