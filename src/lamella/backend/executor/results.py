"""What leaves a run: outputs, in arrays of the caller where there are some, and the new values of states.

A state that nobody else holds any more is written again two calls later, so that states need no new memory.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import combinations
from typing import Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from lamella.backend.executor.segments import Segment
from lamella.base.arrays import Array, DType
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.optional import Foreign
from lamella.base.records import dataclass
from lamella.base.suggest import list_known


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outputs of a run and the new values of its variables, both by name; no two share memory."""

    outputs: Mapping[str, Array]
    states: Mapping[str, Array]


# --- where outputs go ----------------------------------------------------------------------------------------

DEVICE, PASSING = "device", "device, passing"
"""Says that all outputs stay on the device, or those that launches make: who asks for that brings them home."""
PLACES = f"arrays by the names of outputs, or '{DEVICE}'"
Out: TypeAlias = Mapping[str, object] | str
"""The arrays of a caller for outputs, by name; or `DEVICE`."""


class Upload(Protocol):
    """Inputs that are on their way to a device."""

    @property
    def arrays(self) -> Mapping[str, object]:
        """The arrays of the device by name."""

    def enter(self) -> None:
        """Let launches from now on wait until they are there."""

    def close(self) -> None:
        """Give back their memory: nobody reads it any more."""


@runtime_checkable
class Download(Protocol):
    """Outputs that are on their way home."""

    def outputs(self) -> dict[str, Array]:
        """All outputs, when they are there."""


class DeviceSide(Protocol):
    """What knows the arrays of a device; an array of the host stands for each that launches read or write."""

    def adopt(self, given: object, dtype: DType) -> Array | None:
        """An array of the device as one of the host, which launches know by itself.

        Of the given type it need not be read here. None for what is no array of a device.
        """

    def lend(self, name: str, given: object) -> tuple[Array, Array] | None:
        """What stands for an array of the device that an output is written to, and where that lies.

        None for what is no array of a device.
        """

    def reserve(self, shape: Sequence[int], dtype: DType) -> Array:
        """What stands for new memory of the device."""

    def hand_over(self, array: Array) -> Array:
        """The array of the device that one stands for, as outsiders take it; it has what launches or the host wrote."""

    def forget(self, array: Array) -> None:
        """Note that the host has written an array."""

    def findings(self) -> list[Diagnostic]:
        """What there is to say of a run whose launches were timed."""

    def has(self, given: object) -> bool:
        """Whether somebody gives an array of the device."""

    def upload(self, arrays: Mapping[str, Array]) -> Upload:
        """Begin to copy arrays to the device, beside what runs there."""

    def download(self, found: Mapping[str, Array]) -> Download:
        """Begin to copy outputs home that are on the device, beside what runs there from now on."""

    def release_spare(self) -> None:
        """Give back memory through which arrays were copied."""


@dataclass(slots=True)
class OutputTargets:
    """Where the outputs of a call go: to arrays of the caller, to memory of the device, or to new arrays."""

    given: dict[str, Array]
    """The arrays of the caller, by the names of outputs; for one of a device what stands for it."""
    lent: set[str]
    """The outputs that go to a device."""
    device: DeviceSide | None
    stays: bool = False
    """Whether outputs stay on the device that launches make there."""
    brings: bool = False
    """Whether those go there that the host makes."""

    def take(self, segment: Segment, given: Sequence[Array], read: Collection[str]) -> dict[str, Array]:
        """The arrays that the launches of a segment write themselves, which is given some.

        What the host reads of a call comes to the host. InputError where an array of the device does not fit.
        """
        for name, (shape, dtype) in segment.outputs.items():
            if name in self.lent:
                _require_fit(name, (shape, dtype), self.given[name])
            elif self.stays and self.device is not None and name not in read and segment.parts == 1:
                self.given[name] = self.device.reserve(shape, dtype)
                self.lent.add(name)
        aside = self.lent if segment.parts > 1 else self.lent.intersection(read)
        # What stands for an array of a device fits by now, and shares no memory with what is read.
        return {
            name: array
            for name, array in self.given.items()
            if name not in aside and (name in self.lent or segment.can_write(name, array, given))
        }

    def deliver(self, name: str, array: Array, dtype: DType) -> Array:
        """An output in the array that its caller gave, where there is one; on a device it has this type."""
        out = self.given.get(name)
        if self.stays and not self.brings and out is not array:
            return array
        if self.brings and out is None and self.device is not None:
            out = self.given[name] = self.device.reserve(array.shape, dtype)
            self.lent.add(name)
        if self.device is None or name not in self.lent:
            return _deliver(name, array, out)
        if out is not None and out is not array:
            _require_fit(name, (array.shape, dtype), out)
            np.copyto(out, array, casting="unsafe")  # to the type that it had before it came to outsiders
            self.device.forget(out)
        return self.device.hand_over(array if out is None else out)


def place_outputs(names: Sequence[str], out: Out, device: DeviceSide | None = None) -> OutputTargets:
    """Where the outputs of these names go, once it is certain that what a caller gives can be written."""
    if isinstance(out, str):
        if out not in (DEVICE, PASSING):
            raise InputError(f"'{out[:80]}' is no place for outputs", hint=PLACES)
        if device is None:
            raise InputError("outputs cannot stay on a device: this backend has none", hint="--backend cuda")
        return OutputTargets({}, set(), device, stays=True, brings=out == DEVICE)
    if not isinstance(out, Mapping):
        raise InputError(f"what is of type '{type(out).__name__[:80]}' is no place for outputs", hint=PLACES)
    found, places, lent = {}, {}, set()
    for name, given in out.items():
        if name not in names:
            raise InputError(
                f"there is no output '{str(name)[:80]}'", hint=list_known(str(name), names, "outputs are:")
            )
        there = None if device is None else device.lend(name, given)
        if there is not None:
            found[name], places[name] = there
            lent.add(name)
        else:
            found[name] = places[name] = _writable(name, given)
    for (name, one), (other, two) in combinations(places.items(), 2):
        if np.may_share_memory(one, two):
            raise InputError(f"the arrays for outputs '{name}' and '{other}' share memory")
    return OutputTargets(found, lent, device)


def _writable(name: str, given: object) -> Array:
    """The memory of an array of the host, which can be written."""
    array = _memory_of(given)
    if array is None or not array.flags.writeable:
        hint = "an array of NumPy, or what shows its memory by DLPack or __array_interface__"
        raise InputError(f"what is given for output '{name}' is no array that can be written", hint=hint)
    return array


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


def _deliver(name: str, array: Array, out: Array | None) -> Array:
    if out is None or out is array:
        return array
    _require_fit(name, (array.shape, array.dtype), out)
    np.copyto(out, array)
    return out


def _require_fit(name: str, wanted: tuple[Sequence[int], DType], out: Array) -> None:
    shape, dtype = wanted
    if out.shape != tuple(shape) or out.dtype != dtype:
        found = f"{out.dtype}{list(out.shape)}"
        raise InputError(f"output '{name}' is {dtype}{list(shape)}, its array {found}")


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
