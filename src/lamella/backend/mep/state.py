"""What a plan has in its hands while it runs: slots, models, loops, and the budgets that it uses up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from lamella.backend.mep.faults import denied, exceeded, fault, refused
from lamella.backend.mep.host import FOLDERS, Host, HostError, Model
from lamella.backend.mep.values import Value, bytes_of
from lamella.base import dtype as types
from lamella.base.arrays import Array, element_type_of, to_exchange
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nac.check.data import name_problem
from lamella.lang.nac.check.plan import Values, text_of
from lamella.lang.nac.nodes import File

T = TypeVar("T")
_NARROW = (types.BF16, types.F8E4M3, types.F8E5M2, types.F4E2M1, types.I4, types.U4)
_BELOW = "paths lead down from the folder that is allowed, as 'data/words.npy' does"


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a plan may use: steps, bytes held in slots at once, and as many bytes printed and written."""

    steps: int = DEFAULT.max_steps
    bytes: int = DEFAULT.max_total_bytes

    @staticmethod
    def of(limits: Limits) -> Budget:
        """The budget that the limits of a run allow."""
        return Budget(limits.max_steps, limits.max_total_bytes)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with the path that it was loaded from."""

    path: str
    model: Model


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stays the same while a plan runs."""

    file: File
    host: Host
    grants: Collection[str]
    budget: Budget
    values: Values
    """The constants of the plan by id."""
    answers: Iterator[str]
    """What is answered before anybody is asked."""
    random: np.random.Generator


@dataclass(slots=True)
class State:
    """What changes while a plan runs."""

    around: Surroundings
    models: dict[int, Loaded] = field(default_factory=dict)
    loops: list[int] = field(default_factory=list)
    held: int = 0
    peak: int = 0
    emitted: int = 0
    _slots: dict[int, Value] = field(default_factory=dict)

    # --- slots ----------------------------------------------------------------------------------------------

    def read(self, slot: int) -> Value:
        """What a slot holds."""
        if slot not in self._slots:
            raise fault(f"reads slot {slot}, which is empty", "write the slot before")
        return self._slots[slot]

    def read_all(self, slots: Iterable[int]) -> list[Value]:
        """What some slots hold."""
        return [self.read(slot) for slot in slots]

    def write(self, slot: int, value: Value) -> None:
        """Put a value into a slot, where there is room for it."""
        self.clear(slot)
        size = bytes_of(value)
        self.keep_room(size)
        self._slots[slot] = value
        self.held += size
        self.peak = max(self.peak, self.held)

    def clear(self, slot: int) -> None:
        """Empty a slot."""
        if slot in self._slots:
            self.held -= bytes_of(self._slots.pop(slot))

    def keep_room(self, size: int) -> None:
        """Refuse what would take more bytes than are left, before it is made."""
        most = self.around.budget.bytes
        if self.held + size > most:
            problem = f"needs {size} bytes beside the {self.held} that slots hold; {most} are allowed"
            raise exceeded(problem, "max_total_bytes")

    def emit(self, size: int) -> None:
        """Count what is printed and written."""
        most = self.around.budget.bytes
        if self.emitted + size > most:
            problem = f"writes {size} bytes after {self.emitted}; {most} are allowed"
            raise exceeded(problem, "max_total_bytes")
        self.emitted += size

    # --- constants ------------------------------------------------------------------------------------------

    def constant(self, id_: int) -> Value:
        """A constant of the plan."""
        return self.around.values.get(id_)

    def text(self, id_: int) -> str:
        """A constant that is used as a text."""
        return text_of(self.around.values.get(id_)) or ""

    # --- the outside ----------------------------------------------------------------------------------------

    def allow(self, capability: str, action: str) -> None:
        """Refuse an action that nobody granted."""
        if capability not in self.around.grants:
            raise denied(action, f"{capability}=DIR" if capability in FOLDERS else capability)

    def allow_path(self, capability: str, action: str, path: str) -> None:
        """Refuse an action on a file that nobody granted, and paths that lead elsewhere than down."""
        self.allow(capability, action)
        if len(path) > DEFAULT.max_name or any(map(name_problem, path.split("/"))):
            raise refused(f"{action}, which is no path below a folder", _BELOW)

    def ask(self, action: str, function: Callable[[], T]) -> T:
        """What the host does; where it cannot, the action and its reason are told."""
        try:
            return function()
        except HostError as problem:
            raise refused(f"{action}: {problem.reason}", problem.repair) from None
        except InputError as problem:
            raise refused(f"{action}: {problem.message}", problem.hint or _BELOW) from None

    def take(self, action: str, array: object) -> Array:
        """An array of numbers that the host gave; narrow floats are widened, so that all can compute with them."""
        if isinstance(array, np.generic):
            array = np.asarray(array)
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OUSMm":
            raise refused(f"{action}: what came back is no array of numbers", "give arrays of numbers")
        return to_exchange(array) if element_type_of(array.dtype) in _NARROW else array

    def model(self, number: int) -> Loaded:
        """A model that is loaded."""
        if number not in self.models:
            raise fault(f"uses model {number}, which is not loaded", "load it before")
        return self.models[number]


Action = Callable[[State, tuple[int, ...]], None]
"""What an instruction does with its operands, the slots of lists one by one."""
Actions = Mapping[int, Action]
