"""Calls of library operators that are often right and sometimes wrong in every way."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from lamella.base.dim import Extent, symbol
from lamella.base.dtype import BOOL, F32, I64, ElementType
from lamella.lang.skriptnd.nodes import Operator, Parameter
from lamella.ops.instance import Argument, TensorLike, Value
from tests.support.ops.engine.calls import Fake, tensor

ELEMENTS: dict[str, ElementType] = {"real": F32, "int": I64, "bool": BOOL}
EXTENTS = (0, 1, 1, 2, 2, 3, 4, 6)
INTEGERS = (0, 1, 1, 2, 2, 3, -1, -2, 5, 10**12)
REALS = (0.0, 1.0, -1.0, 0.5, 1e30)
WORDS = (
    "NCX",
    "NXC",
    "XCN",
    "UPPER",
    "LOWER",
    "SYMMETRIC",
    "ALIGNED",
    "REFLECT",
    "LINEAR",
    "CUBIC",
    "NEAREST",
    "x",
)


@dataclass(frozen=True)
class Drawn:
    """The arguments and attributes of a call."""

    arguments: list[Argument]
    attributes: dict[str, Value]


def draw_call(random: Random, operator: Operator) -> Drawn:
    """A call of an operator, most of its tensors of one rank."""
    rank = random.randrange(5)
    arguments = [_argument(random, item, rank) for item in operator.parameters("input")]
    wanted = [item for item in operator.parameters("attrib") if _is_wanted(random, item)]
    return Drawn(arguments, {item.name: _attribute(random, item, rank) for item in wanted})


def _is_wanted(random: Random, attribute: Parameter) -> bool:
    return (attribute.value is None and not attribute.type.optional) or random.random() < 0.3


def _argument(random: Random, parameter: Parameter, rank: int) -> Argument:
    if parameter.type.optional and random.random() < 0.6:
        return None
    if random.random() < 0.1:
        return random.choice((1.0, 2, True))
    if random.random() < 0.3:
        rank = random.randrange(5)
    if parameter.type.pack is None:
        return _tensor(random, parameter.type.name, rank)
    first = _tensor(random, parameter.type.name, rank)
    items = [first if random.random() < 0.6 else _tensor(random, parameter.type.name, rank) for _ in range(3)]
    return tuple(items[: random.randrange(4)])


def _tensor(random: Random, word: str, rank: int) -> Fake:
    element = ELEMENTS.get(word) or random.choice((F32, F32, I64))
    return tensor(*(random.choice(EXTENTS) for _ in range(rank)), element=element)


def _attribute(random: Random, attribute: Parameter, rank: int) -> Value:
    if attribute.type.pack is not None and random.random() < 0.7:
        count = random.choice((0, 1, 2, rank, 2 * rank))
        return tuple(_single(random, attribute.type.name) for _ in range(count))
    return _single(random, attribute.type.name)


def _single(random: Random, word: str) -> int | float | str:
    if word == "str":
        return random.choice(WORDS)
    if word == "bool":
        return random.random() < 0.5
    return random.choice(REALS) if word == "real" else random.choice(INTEGERS)


def blur(random: Random, drawn: Drawn) -> tuple[Drawn, dict[str, int]]:
    """The same call with some extents known only to the run, and their values."""
    values: dict[str, int] = {}

    def extent(size: Extent) -> Extent:
        if random.random() < 0.5 or not isinstance(size, int):
            return size
        known = next((name for name, value in values.items() if value == size), None)
        name = known if known is not None and random.random() < 0.7 else f"n{len(values)}"
        values[name] = size
        return symbol(name, 7)

    def argument(item: TensorLike) -> Fake:
        return Fake(item.name, tuple(extent(size) for size in item.shape), item.element)

    def blurred(item: Argument) -> Argument:
        if isinstance(item, tuple):
            return tuple(argument(part) for part in item if isinstance(part, Fake))
        return argument(item) if isinstance(item, Fake) else item

    return Drawn([blurred(item) for item in drawn.arguments], drawn.attributes), values
