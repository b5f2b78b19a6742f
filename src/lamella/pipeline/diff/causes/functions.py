"""Elementwise functions known by their numbers: which activation, rounding or division each side computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from lamella.pipeline.diff.causes.case import Case, Cause, Computation
from lamella.pipeline.diff.causes.relations import ROUNDINGS
from lamella.pipeline.diff.gap import Numbers, is_close, numbers_of

SAMPLE = 4096
SAME = 3e-6


def _sigmoid(x: Numbers) -> Numbers:
    found: Numbers = 0.5 * (1 + np.tanh(0.5 * x))
    return found


def _erf(x: Numbers) -> Numbers:
    return np.array([math.erf(item) for item in x.reshape(-1)]).reshape(x.shape)


def _softplus(x: Numbers) -> Numbers:
    return np.logaddexp(0.0, x)


UNARY: Mapping[str, Callable[[Numbers], Numbers]] = {
    "the identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu (erf)": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu (tanh)": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu (sigmoid of 1.702 x)": lambda x: x * _sigmoid(1.702 * x),
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "hard sigmoid (x/6 + 1/2)": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard sigmoid (x/5 + 1/2)": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "hard swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "relu6": lambda x: np.clip(x, 0, 6),
    "squared relu": lambda x: np.maximum(x, 0.0) ** 2,
    "softplus": _softplus,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "the exponential": np.exp,
    "the exponential of −x": lambda x: np.exp(-x),
    "the sine": np.sin,
    "the cosine": np.cos,
    "the square": lambda x: x * x,
    "the square root": np.sqrt,
    "the reciprocal of the square root": lambda x: 1 / np.sqrt(x),
    "the reciprocal": lambda x: 1 / x,
    "the logarithm": np.log,
    "the logarithm of base 2": np.log2,
    "the absolute value": np.abs,
    "−x": lambda x: -x,
    **{f"x {word}": change for word, change in ROUNDINGS.items()},
}
BINARY: Mapping[str, Callable[[Numbers, Numbers], Numbers]] = {
    "the sum": lambda a, b: a + b,
    "the difference": lambda a, b: a - b,
    "the difference, the other way round": lambda a, b: b - a,
    "the product": lambda a, b: a * b,
    "the quotient": lambda a, b: a / b,
    "the quotient, the other way round": lambda a, b: b / a,
    "the quotient, rounded down": lambda a, b: np.floor(a / b),
    "the quotient, cut off": lambda a, b: np.trunc(a / b),
    "the remainder, with the sign of the divisor": np.mod,
    "the remainder, with the sign of the dividend": np.fmod,
    "the power": lambda a, b: a**b,
    "the larger": np.maximum,
    "the smaller": np.minimum,
}
GATES = ("gelu (erf)", "gelu (tanh)", "gelu (sigmoid of 1.702 x)", "silu", "sigmoid", "relu", "tanh")
"""Activations of the first operand that the second is multiplied by."""
ROUNDING = ("rounded", "cut off", "remainder")


def find_functions(case: Case) -> Iterator[Cause]:
    """Two sides that compute different elementwise functions of what they both read."""
    left, right = dict(named_functions(case.left)), dict(named_functions(case.right))
    names = dict(case.borders)
    for key, function in left.items():
        there = tuple(names.get(name, name) for name in key)
        partner = right.get(there)
        if partner is None and right.get(there[::-1]) == function:
            yield Cause("swapped operands", f"left computes {function}, right the same with them exchanged")
        elif partner is not None and partner != function:
            kind = _kind_of(function, partner)
            yield Cause(kind, f"left computes {function}, right {partner}")
    for key, function in left.items():
        slopes = _slopes(case, key[0]) if len(key) == 1 else None
        if slopes is not None and function.startswith("relu"):
            yield slopes


def _kind_of(one: str, other: str) -> str:
    if any(word in item for word in ROUNDING for item in (one, other)):
        return "integer division" if "quotient" in one or "remainder" in one else "rounding"
    if "gelu" in one and "gelu" in other:
        return "gelu variant"
    return "operand order" if "other way round" in one + other else "function"


def named_functions(side: Computation) -> Iterator[tuple[tuple[str, ...], str]]:
    """The elementwise functions that a result is of operands of its side, by the operands."""
    y = numbers_of(side.output)
    if not y.size:
        return
    operands = [(name, numbers_of(value)) for name, value in side.operands.items()]
    for name, x in operands:
        if x.shape == y.shape:
            found = _unary(x, y)
            if found:
                yield (name,), found
    pairs = [(a, b) for a in operands for b in operands if a[0] != b[0]]
    for first, second in pairs[:20]:
        try:
            shape = np.broadcast_shapes(first[1].shape, second[1].shape)
        except ValueError:
            continue
        if shape == y.shape:
            found = _binary(*(_sample(np.broadcast_to(item, shape)) for item in (first[1], second[1], y)))
            if found:
                yield (first[0], second[0]), found


def _sample(x: Numbers) -> Numbers:
    return x.reshape(-1)[:: max(1, x.size // SAMPLE)]


def _unary(x: Numbers, y: Numbers) -> str | None:
    x, y = _sample(x), _sample(y)
    if np.ptp(x) == 0:
        return None
    with np.errstate(all="ignore"):
        found = [(word, f(x)) for word, f in UNARY.items()]
    return next((word for word, value in found if is_close(y, value, SAME)), None)


def _binary(a: Numbers, b: Numbers, y: Numbers) -> str | None:
    with np.errstate(all="ignore"):
        found = [(word, f(a, b)) for word, f in BINARY.items()]
        found += [(f"{word} of the first operand times the second", UNARY[word](a) * b) for word in GATES]
    return next((word for word, value in found if is_close(y, value, SAME)), None)


def _slopes(case: Case, name: str) -> Cause | None:
    """Rectifiers that differ in what they make of negative numbers."""
    x, y = numbers_of(case.left.values[name]), numbers_of(case.right.output)
    below = x < 0
    if y.shape != x.shape or not below.any() or not is_close(x[~below], y[~below], SAME):
        return None
    slope = float((x[below] * y[below]).sum() / (x[below] ** 2).sum())
    if not is_close(slope * x[below], y[below], SAME):
        return None
    return Cause("function", f"left computes relu, right a leaky relu of slope {slope:.6g}")
