"""Values for config parameters that nobody gave, to see what is wrong with a declaration whatever they are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.lang.module.instantiate import Known
from lamella.lang.module.instantiate.bind import type_of
from lamella.lang.module.instantiate.nodes import Value
from lamella.lang.module.nodes import ConfigParam

TRIES = 20
LARGEST = 12
"""The largest power of two that is tried."""
ODD = 15
"""A factor of the later examples: not every divisor is a power of two."""
FEW = 2
FEW_OF = ("layers", "blocks", "depth", "repeat")
"""How many, and parts of names that count what is built as often."""
_OTHERS: Mapping[str, Value] = MappingProxyType({"float": 0.5, "dtype": "fp32", "bool": True, "string": ""})
SOURCE = "example"


def example_values(params: Sequence[ConfigParam]) -> Iterator[dict[str, Known]]:
    """Sets of values for parameters without a default; none where one of them is of a type without examples.

    Integers are distinct powers of two: what divides by one of them, or multiplies some, fits in one of the sets,
    while two parameters that should be one differ in all. In the first they fall in the order of the text, in
    which heads stand behind widths.
    """
    if not all(_has_example(param) for param in params):
        return
    sizes = [param.name for param in params if type_of(param).name == "int" and not _is_count(param.name)]
    draw = random.Random(0)
    powers = list(range(len(sizes), 0, -1))
    factor = 1
    for number in range(TRIES):
        values = {name: factor * 2**power for name, power in zip(sizes, powers, strict=True)}
        yield {item.name: Known(_value(item, values, number), SOURCE) for item in params}
        powers = draw.sample(range(1, max(LARGEST, len(sizes)) + 1), len(sizes))
        factor = ODD if number > TRIES // 2 else 1


def _has_example(param: ConfigParam) -> bool:
    kind = type_of(param)
    return not kind.listed and (kind.name in ("int", "enum") or kind.name in _OTHERS)


def _is_count(name: str) -> bool:
    return any(word in name for word in FEW_OF)


def _value(param: ConfigParam, sizes: Mapping[str, int], number: int) -> Value:
    kind = type_of(param)
    if kind.name == "int":
        return sizes.get(param.name, FEW)
    if kind.name == "enum":
        return kind.choices[number % len(kind.choices)]
    return number % 2 == 0 if kind.name == "bool" else _OTHERS[kind.name]
