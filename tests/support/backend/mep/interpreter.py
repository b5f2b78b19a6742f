"""A second interpreter of plans, written from the table of opcodes alone: it judges the machine.

It knows nothing of files, verifiers, budgets or the outside, reads bytes as they stand, and gives up with `WrongError`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

LENGTHS = {
    **{0x04: "kc", 0x1F: "uu", 0x59: "kk", 0x2A: "kcn", 0x30: "kuuk", 0x39: "uknk", 0x3B: "kkk"},
    **{0x60: "ukk", 0x61: "ukkk", 0x62: "ukk", 0x68: "ukkk", 0x70: "kkkk", 0xE0: "kku"},
    **{0xA0: "k", 0xA1: "j", 0xA8: "kj", 0xA9: "kj", 0xFE: "n", 0xFF: ""},
}
I64, MANY = 2**63, 10**6
"""What integers stay below, and what no test has room for."""


class WrongError(Exception):
    """The plan does what has no meaning; with the byte where."""


class Judge:
    """One run of one plan."""

    def __init__(self, code: bytes, constants: Mapping[int, Any]) -> None:
        self.code = code
        self.constants = constants
        self.slots: dict[int, Any] = {}
        self.loops: list[int] = []
        self.steps = 0

    def operands(self, place: int) -> tuple[list[Any], int]:
        """The operands behind an opcode, and where the next one stands."""
        opcode = self.code[place]
        place += 1
        form = LENGTHS.get(opcode, "")
        if opcode == 0x38:
            form = "ukkkk" if self.code[place] == 1 else "ukkk"
        if opcode == 0x3A:
            form = "ukkk" if self.code[place] == 1 else "ukk"
        found: list[Any] = []
        for letter in form:
            if letter in "ku":
                found.append(self.code[place])
                place += 1
            elif letter == "n":
                count = self.code[place]
                found.append(list(self.code[place + 1 : place + 1 + count]))
                place += 1 + count
            else:
                found.append(struct.unpack_from("<H" if letter == "c" else "<h", self.code, place)[0])
                place += 2
        return found, place

    def run(self, most: int) -> list[Any] | None:
        """The returned values; None where the plan halts."""
        place = 0
        while True:
            self.steps += 1
            if self.steps > most:
                raise WrongError(place)
            opcode = self.code[place]
            operands, after = self.operands(place)
            if opcode == 0xFF:
                return None
            if opcode == 0xFE:
                return [self.slots[slot] for slot in operands[0]]
            try:
                place = self.jump(opcode, operands, after) if 0xA0 <= opcode <= 0xA9 else after
                if opcode < 0xA0 or opcode == 0xE0:
                    self.compute(opcode, operands)
            except (ArithmeticError, TypeError, ValueError, IndexError, KeyError, AttributeError):
                raise WrongError(place if opcode >= 0xA0 and opcode != 0xE0 else self.back(after)) from None

    def back(self, after: int) -> int:
        """Where the instruction that ends here begins."""
        place = 0
        while self.operands(place)[1] != after:
            place = self.operands(place)[1]
        return place

    def jump(self, opcode: int, operands: list[Any], after: int) -> int:
        """Where the plan goes on."""
        if opcode == 0xA0:
            count = whole(self.slots[operands[0]])
            if count > 0:
                self.loops.append(count)
                return after
            return self.past_loop(after)
        if opcode == 0xA1:
            self.loops[-1] -= 1
            if self.loops[-1] > 0:
                return int(after + operands[0])
            self.loops.pop()
            return after
        if not bool(single(self.slots[operands[0]])):
            return after
        if opcode == 0xA9:
            self.loops.pop()
        return int(after + operands[1])

    def past_loop(self, place: int) -> int:
        """Behind the end of the loop whose body begins here."""
        depth = 1
        while depth:
            opcode = self.code[place]
            depth += (opcode == 0xA0) - (opcode == 0xA1)
            place = self.operands(place)[1]
        return place

    def compute(self, opcode: int, o: list[Any]) -> None:
        """What an instruction that does not jump does."""
        s = self.slots
        if opcode == 0x04:
            s[o[0]] = self.constants[o[1]]
        elif opcode == 0x1F:
            s.pop(o[1], None)
        elif opcode == 0x59:
            s[o[0]] = s[o[1]]
        elif opcode == 0x2A:
            s[o[0]] = self.constants[o[1]].format(*[in_words(s[slot]) for slot in o[2]])
        elif opcode == 0x30:
            s[o[0]] = create(o[1], o[2], s[o[3]])
        elif opcode == 0x38:
            s[o[1]] = manipulate(o[0], s[o[2]], [s[slot] for slot in o[3:]])
        elif opcode == 0x39:
            s[o[1]] = np.concatenate([numbers(s[slot]) for slot in o[2]], axis=whole(s[o[3]]))
        elif opcode == 0x3A:
            shape = list(numbers(s[o[2]]).shape)
            s[o[1]] = shape if o[0] == 0 else shape[whole(s[o[3]])] if o[0] == 1 else single(s[o[2]])
        elif opcode == 0x3B:
            s[o[0]] = extract(numbers(s[o[1]]), whole(s[o[2]]))
        elif opcode == 0x60:
            s[o[1]] = unary(o[0], s[o[2]])
        elif opcode == 0x61:
            s[o[1]] = binary(o[0], s[o[2]], s[o[3]])
        elif opcode == 0x62:
            array = numbers(s[o[2]])
            s[o[1]] = plain(np.array([r.tolist().index(max(r.tolist())) for r in array.reshape(-1, array.shape[-1])])
                            .reshape(array.shape[:-1]))  # fmt: skip
        elif opcode == 0x68:
            s[o[1]] = compare(o[0], s[o[2]], s[o[3]])
        elif opcode == 0x70:
            self.top(o)
        elif opcode == 0xE0:
            s[o[0]] = in_words(s[o[1]]) if o[2] == 0 else in_json(s[o[1]])

    def top(self, o: list[int]) -> None:
        """The largest elements and where they are."""
        flat = numbers(self.slots[o[0]]).reshape(-1)
        count = whole(self.slots[o[1]])
        if not 0 <= count <= flat.size:
            raise ValueError
        order = sorted(range(flat.size), key=lambda index: (-flat[index].item(), index))[:count]
        self.slots[o[2]] = np.array(order, np.int64)
        self.slots[o[3]] = np.array([flat[index] for index in order], flat.dtype)


def numbers(value: Any) -> Any:
    """An array, where the value has numbers."""
    if isinstance(value, str):
        raise TypeError
    return np.array(value)


def single(value: Any) -> Any:
    """One number."""
    (found,) = numbers(value).reshape(-1).tolist()
    return found


def whole(value: Any) -> int:
    """One integer."""
    found = single(value)
    if found != int(found):
        raise ValueError
    return int(found)


def plain(value: Any) -> Any:
    """A number where there are no axes."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and not value.ndim else value


def create(code: int, kind: int, value: Any) -> Any:
    """TENSOR_CREATE."""
    dtype = {0: np.float32, 5: np.int64}[code]
    if kind == 0:
        return np.array([numbers(value).reshape(-1).tolist()]).astype(dtype)
    if kind == 1:
        if whole(value) > MANY:
            raise ValueError
        return np.array([list(range(whole(value)))], dtype)
    shape = numbers(value).reshape(-1).tolist()
    if any(not isinstance(extent, int) or not 0 <= extent <= MANY for extent in shape):
        raise ValueError
    return np.full(shape, 1 if kind == 2 else 0, dtype)


def manipulate(kind: int, value: Any, more: list[Any]) -> Any:
    """TENSOR_MANIPULATE."""
    array = numbers(value)
    if kind == 1:
        width, filler = whole(more[0]), single(more[1])
        if array.ndim == 0 or not 0 <= width <= MANY:
            raise ValueError
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(width, 0)], constant_values=filler)
    axis = whole(more[0])
    rank = array.ndim + (kind == 2)
    if not -rank <= axis < rank:
        raise IndexError
    shape = list(array.shape)
    if kind == 2:
        shape.insert(axis % rank, 1)
    elif shape.pop(axis) != 1:
        raise ValueError
    return array.reshape(shape)


def extract(array: Any, index: int) -> Any:
    """TENSOR_EXTRACT."""
    found = {1: lambda: array[index], 2: lambda: array[0, index], 3: lambda: array[0, index, :]}[array.ndim]()
    return plain(found)


def unary(kind: int, value: Any) -> Any:
    """MATH_UNARY."""
    array = numbers(value)
    with np.errstate(all="ignore"):
        if kind == 0:
            rows = array.reshape(-1, array.shape[-1]).astype(np.float64)
            shares = [
                [np.exp(x - max(row)) / sum(np.exp(y - max(row)) for y in row) for x in row] for row in rows
            ]
            kept = array.dtype if array.dtype.kind == "f" else np.float64
            return np.array(shares).reshape(array.shape).astype(kept)
        table = {1: lambda: array**0.5, 2: lambda: abs(array), 3: lambda: 0 - array, 5: lambda: 1 / array}
        return plain(table[kind]())


def binary(kind: int, a: Any, b: Any) -> Any:
    """MATH_BINARY."""
    if isinstance(a, bool | int | float) and isinstance(b, bool | int | float):
        table: list[Callable[[], Any]] = [
            lambda: a + b,
            lambda: a - b,
            lambda: a * b,
            lambda: a / b,
            lambda: a**b,
        ]
        found = (max(a, b) if kind == 5 else min(a, b)) if kind > 4 else table[kind]()
        if isinstance(found, complex) or (isinstance(found, int) and not -I64 <= found < I64):
            raise ArithmeticError
        return found
    x, y = numbers(a), numbers(b)
    with np.errstate(all="ignore"):
        rows = [lambda: x + y, lambda: x - y, lambda: x * y, lambda: x / y, lambda: x**y]
        if kind > 4:
            return plain(np.where((x >= y) if kind == 5 else (x <= y), x, y).astype(np.result_type(x, y)))
        return plain(rows[kind]())


def compare(kind: int, a: Any, b: Any) -> Any:
    """LOGIC_COMPARE."""
    if isinstance(a, str) and isinstance(b, str) and kind < 2:
        return (a == b) == (kind == 0)
    x, y = numbers(a), numbers(b)
    return plain((x == y, x != y, x > y, x < y)[kind])


def in_words(value: Any) -> str:
    """A value in a text."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return str(list(value) if isinstance(value, tuple) else value)


def in_json(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value.tolist() if isinstance(value, np.ndarray) else value, allow_nan=False)
