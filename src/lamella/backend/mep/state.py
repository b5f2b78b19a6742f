"""The state of a running plan: slots, models, loops, budgets, and the host behind its capabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, element_type_of, to_exchange
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, LARGEST, SMALLEST, Limits
from lamella.lang.nac.check.data import name_problem
from lamella.lang.nac.check.plan import Values, text_of
from lamella.lang.nac.nodes import File
from lamella.lang.nac.rules import sections
from lamella.ops.fault import Fault

# --- failures; the interpreter makes findings of them that name the instruction and its byte ----------------


def fault(problem: str, repair: str) -> Fault:
    """A value that an instruction cannot work with."""
    return Fault(sections.FAULT, problem=problem, repair=repair)


def denied(action: str, flag: str) -> Fault:
    """An action that nobody allowed."""
    return Fault(sections.NOT_ALLOWED, action=action, flag=flag)


def exceeded(problem: str, limit: str) -> Fault:
    """A budget that is used up."""
    return Fault(sections.BUDGET, problem=problem, limit=limit)


def refused(problem: str, repair: str) -> Fault:
    """An action that is allowed, but cannot be done."""
    return Fault(sections.REFUSED, problem=problem, repair=repair)


# --- the host: the interpreter touches nothing itself, and asks only for what is granted --------------------


PROMPT, PRINT, READ, WRITE, MODELS, TRAIN = "prompt", "print", "read", "write", "models", "train"
CAPABILITIES: tuple[str, ...] = (PROMPT, PRINT, READ, WRITE, MODELS, TRAIN)
"""What can be granted: asking a person, printing, reading and writing files, models of other files, training."""
FOLDERS: tuple[str, ...] = (READ, WRITE, MODELS)
"""Capabilities that are granted for one folder and what lies below it."""


class PlanTokenizer(Protocol):
    """Texts to numbers and back."""

    def encode(self, text: str, /) -> Sequence[int]:
        """The ids of a text."""

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of ids."""

    def id_of(self, token: str, /) -> int | None:
        """The id of a token, or None where there is no such token."""


@dataclass(frozen=True, slots=True)
class PlanTraining:
    """A step of training that a plan asks for."""

    loss: int
    """0 compares classes (cross-entropy), 1 numbers (squared error); a training graph of the file has its own."""
    inputs: Sequence[Array]
    targets: Sequence[Array]
    rate: float
    only: Sequence[str] = ()
    """The parameters that are trained; all where none are named."""


class PlanModel(Protocol):
    """A model that a plan has loaded."""

    def __call__(self, *inputs: Array) -> Sequence[Array]:
        """Run once: the inputs in the order of their instructions, the outputs in theirs."""

    def run_block(self, first: int, last: int, values: Sequence[Array], /) -> Sequence[Array]:
        """Run instructions `first` to `last`: what `lang.nac.blocks.find_block` says that they take and give.

        Called from two threads at once where a plan runs two blocks side by side.
        """

    def train_step(self, step: PlanTraining, /) -> float:
        """Change parameters by their gradients; gives the loss before that."""

    def zero_grad(self) -> None:
        """Forget gradients that were collected."""

    def weights(self) -> bytes:
        """All weights as they are now, as a file of safetensors."""


class UntrainedModel:
    """The part of a model that plans train, of one that cannot be trained."""

    __slots__ = ()

    def train_step(self, step: PlanTraining, /) -> float:
        """No step is taken."""
        raise _no_training()

    def zero_grad(self) -> None:
        """There are no gradients."""
        raise _no_training()

    def weights(self) -> bytes:
        """There are no weights but those of the file."""
        raise _no_training()


def _no_training() -> InputError:
    return InputError(
        "plans do not train here", hint="allow it: `lamella run FILE --plan --allow train`, or leave it out"
    )


class Host(Protocol):
    """The outside of a plan; methods may raise LamellaError, of which an InputError tells why a request cannot be met.

    Paths are relative, lead down, and are meant from the folder that was granted.
    """

    @property
    def own_names(self) -> Collection[str]:
        """Paths that name the file of the plan itself, beside `self`."""

    def load_model(self, path: str, /) -> PlanModel:
        """A model by its path; `self` is that of the plan's own file."""

    def tokenizer(self, path: str, /) -> PlanTokenizer:
        """The tokenizer that comes with the model of a path."""

    def prompt(self, question: str, /) -> str:
        """The answer of a person."""

    def read_array(self, path: str, /) -> Array:
        """The array of a `.npy` file."""

    def read_image(self, path: str, height: int, width: int, /) -> Array:
        """A picture as uint8 of shape (height, width, 3), resized; a width of 0 keeps the proportions.

        The shorter side has `height` pixels then.
        """

    def print_text(self, stream: str, text: str, /) -> None:
        """Print on `stdout` or `stderr`; the text brings its own line ends."""

    def write_file(self, path: str, data: bytes, append: bool, /) -> None:
        """Write a file whole, or add to its end."""


# --- values of slots: sizes and conversions -----------------------------------------------------------------


Number: TypeAlias = bool | int | float
Value: TypeAlias = Number | str | bytes | tuple[Number, ...] | Array | PlanTokenizer | None
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


def as_tokenizer(value: Value) -> PlanTokenizer:
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


T = TypeVar("T")
_NARROW = (
    *(types.BF16, types.F8E4M3, types.F8E4M3FNUZ, types.F8E5M2, types.F8E5M2FNUZ, types.F4E2M1),
    *(types.I2, types.I4, types.U2, types.U4),
)
_BELOW = "paths lead down from the folder that is allowed, as 'data/words.npy' does"


@dataclass(frozen=True, slots=True)
class PlanBudget:
    """How much a plan may use: steps, bytes held in slots at once, and as many bytes printed and written."""

    steps: int = DEFAULT.max_steps
    bytes: int = DEFAULT.max_total_bytes

    @staticmethod
    def of(limits: Limits) -> PlanBudget:
        """The budget that the limits of a run allow."""
        return PlanBudget(limits.max_steps, limits.max_total_bytes)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with the path that it was loaded from."""

    path: str
    model: PlanModel


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What stays the same while a plan runs."""

    file: File
    host: Host
    grants: Collection[str]
    budget: PlanBudget
    values: Values
    """The constants of the plan by id."""
    answers: Iterator[str]
    """What is answered before anybody is asked."""
    random: np.random.Generator


@dataclass(slots=True)
class PlanState:
    """What changes while a plan runs."""

    around: PlanContext
    models: dict[int, LoadedModel] = field(default_factory=dict)
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
        """What the host does; where it cannot, the finding names the action and the reason."""
        try:
            return function()
        except InputError as problem:
            raise refused(f"{action}: {problem.message}", problem.hint or _BELOW) from None

    def take(self, action: str, array: object) -> Array:
        """An array of numbers that the host gave; narrow floats are widened, so that all can compute with them."""
        if isinstance(array, np.generic):
            array = np.asarray(array)
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OUSMm":
            raise refused(f"{action}: what came back is no array of numbers", "give arrays of numbers")
        return to_exchange(array) if element_type_of(array.dtype) in _NARROW else array

    def model(self, number: int) -> LoadedModel:
        """A model that is loaded."""
        if number not in self.models:
            raise fault(f"uses model {number}, which is not loaded", "load it before")
        return self.models[number]


Action = Callable[[PlanState, tuple[int, ...]], None]
"""What an instruction does with its operands, the slots of lists one by one."""
Actions = Mapping[int, Action]
