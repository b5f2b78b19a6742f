"""Operations with fixed numbers and ATen names, and the codes of signatures with the coercions of their constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.errors import Malformed
from lamella.lang.nac.nodes import (
    CONTROL_FLOW,
    CONVERGENCE,
    INPUT,
    NONE,
    OUTPUT,
    V1_5,
    V1_6,
    ConstantValue,
    File,
    Input,
    Instruction,
)

# --- the codes of a signature: what each argument of an operation is, and how a constant becomes one --------


TENSOR_CODES: Mapping[str, str] = MappingProxyType(
    {
        **{"Q": "query", "K": "key", "V": "value", "M": "mask"},
        **{"B": "bias", "W": "weight", "T": "tensor", "P": "parameter"},
    }
)
"""The codes of arguments that other instructions compute."""

CONSTANT_CODES: Mapping[str, str] = MappingProxyType(
    {
        **{"A": "an axis", "S": "a shape", "i": "an integer", "f": "a number"},
        **{"b": "a truth value", "s": "a string", "c": "any constant"},
    }
)
"""The codes of arguments that are constants unless an offset says otherwise."""


def coerce(code: str, value: ConstantValue) -> ConstantValue:
    """The value of a constant as the code of its argument wants it; Malformed where it cannot be that.

    Real files hold 1.0 where an integer stands, and True where a number does: equal constants share a record there.
    """
    return _COERCIONS[code](value) if code in _COERCIONS else value


def _integer(value: ConstantValue) -> int:
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise Malformed("is no integer")


def _number(value: ConstantValue) -> float:
    if isinstance(value, int | float):
        return _as_float(value)
    raise Malformed("is no number")


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Malformed("is beyond double precision") from None


def _truth(value: ConstantValue) -> bool:
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise Malformed("is neither 0 nor 1")


def _string(value: ConstantValue) -> str:
    if isinstance(value, str):
        return value
    raise Malformed("is no string")


def _shape(value: ConstantValue) -> tuple[int, ...] | tuple[float, ...]:
    """A list; of integers where all its numbers are whole, as a list of scales is not."""
    if not isinstance(value, tuple) or not all(math.isfinite(item) for item in value):
        raise Malformed("is no list of finite numbers")
    whole = all(float(item).is_integer() for item in value)
    return tuple(int(item) for item in value) if whole else value


_COERCIONS: Mapping[str, Callable[[ConstantValue], ConstantValue]] = MappingProxyType(
    {"A": _integer, "i": _integer, "f": _number, "b": _truth, "s": _string, "S": _shape}
)


SYSTEM_NAMES: Mapping[int, str] = MappingProxyType(
    {
        **{NONE: "<NONE>", INPUT: "<INPUT>", OUTPUT: "<OUTPUT>"},
        **{CONTROL_FLOW: "<CONTROL_FLOW>", CONVERGENCE: "<CONVERGENCE>"},
    }
)
"""The system operations that exist; the other numbers below 10 are not used."""

FIRST_CUSTOM = 201
"""The first number that the specification leaves to operations of a file's own."""
LAST = 255
"""The largest number that an instruction can name."""

USER, PARAMETER, STATE, LIFTED, SAVED, TARGET = range(6)
"""Where an input comes from; saved activations and targets stand only in training graphs."""
FINAL, SUBGRAPH, UPDATE, TRAINED = 0, 1, 3, 4
"""What an output ends; updates and the end of training stand only in training graphs."""


@dataclass(frozen=True, slots=True)
class Standard:
    """A standard operation: its name and its arguments in order."""

    name: str
    arguments: tuple[str, ...]
    required: int
    open_ended: bool = False
    """Whether more arguments may follow, which have no effect."""

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many arguments."""
        return self.required <= count and (self.open_ended or count <= len(self.arguments))

    @property
    def counts(self) -> str:
        """How many arguments it takes, in words."""
        if self.open_ended:
            return f"{self.required} or more"
        most = len(self.arguments)
        return str(most) if most == self.required else f"{self.required} to {most}"


def _standard(name: str, arguments: str) -> Standard:
    """An operation from its usage: arguments in brackets may be left out, dots let more follow."""
    words = arguments.split()
    names = tuple(word.strip("[]") for word in words if word != "…")
    required = sum(not word.startswith("[") for word in words if word != "…")
    return Standard(f"nac.{name}", names, required, "…" in words)


_FIRST: Mapping[int, Standard] = MappingProxyType(
    {
        10: _standard("pass", "x …"),
        11: _standard("add", "a b [alpha]"),
        12: _standard("sub", "a b [alpha]"),
        13: _standard("gt", "a b"),
        14: _standard("neg", "x"),
        15: _standard("where", "cond x y"),
        16: _standard("clone", "x [memory_format] …"),
        17: _standard("view", "x [shape] …"),
        18: _standard("le", "a b"),
        19: _standard("arange", "[start] end [step] [dtype] [device] [pin_memory] …"),
    }
)
_SECOND: Mapping[int, Standard] = MappingProxyType(
    {
        **_FIRST,
        20: _standard("mul", "a b"),
        21: _standard("div", "a b"),
        22: _standard("matmul", "a b"),
        23: _standard("transpose", "x [dim0] [dim1]"),
        24: _standard("zeros", "shape …"),
        25: _standard("zeros_like", "x …"),
        26: _standard("new_zeros", "x shape …"),
        27: _standard("ones", "shape …"),
        28: _standard("ones_like", "x …"),
        29: _standard("new_ones", "x shape …"),
        30: _standard("full", "shape value …"),
        31: _standard("full_like", "x value …"),
    }
)


def standard_operations(version: str) -> Mapping[int, Standard]:
    """The operations with fixed numbers in files of a version."""
    return _FIRST if version in (V1_5, V1_6) else _SECOND


@dataclass(frozen=True, slots=True)
class Canonical:
    """What an operation is called in a file, and which of its arguments it takes in which order."""

    name: str
    order: tuple[int, ...] | None = None
    """The places of the old arguments in the new order; None keeps them all as they are."""


_OVERLOADS = ("default", "Tensor", "Scalar", "int", "dim", "dim_IntList", "using_ints", "start", "self")
_FIRST_ALIASES: Mapping[str, Canonical] = MappingProxyType(
    {
        **dict.fromkeys(("detach", "dropout", "pass_through"), Canonical("nac.pass")),
        **{"lift_fresh_copy": Canonical("nac.clone"), "true_divide": Canonical("nac.div")},
        **dict.fromkeys(("unsafe_view", "squeeze"), Canonical("nac.view")),
        **{"rsub": Canonical("nac.sub", (1, 0)), "masked_fill": Canonical("nac.where", (1, 2, 0))},
    }
)
_SECOND_ALIASES: Mapping[str, Canonical] = MappingProxyType(
    {
        **_FIRST_ALIASES,
        **{"copy": Canonical("nac.clone"), "t": Canonical("nac.transpose")},
        **dict.fromkeys(("mm", "bmm"), Canonical("nac.matmul")),
    }
)


def canonise(name: str, version: str = V1_6) -> Canonical:
    """What the specification calls an ATen operation; names it has no word for stay whole.

    Names without the namespace of ATen are those of Python's operators on sizes and tuples, and stay whole too.
    """
    dotted = name.replace("::", ".")
    if not dotted.startswith("aten.") or "aten.sym_size" in dotted:
        return Canonical(dotted)
    short = _stripped(dotted)
    alias = (_FIRST_ALIASES if version in (V1_5, V1_6) else _SECOND_ALIASES).get(short)
    if alias is not None:
        return alias
    names = {item.name for item in standard_operations(version).values()}
    return Canonical(f"nac.{short}" if f"nac.{short}" in names else dotted)


def _stripped(name: str) -> str:
    """An ATen name without its namespace, without one overload, without underscores around it."""
    short = name.removeprefix("aten.")
    stem, _, overload = short.rpartition(".")
    return (stem if stem and overload in _OVERLOADS else short).strip("_")


_ATEN = (
    "sym_size.int relu ones exp cos sin eq.Scalar ones_like cat silu group_norm scaled_dot_product_attention pad addmm"
    " linear layer_norm split.Tensor mul.Tensor zeros zeros_like expand select.int mean.dim lt.Scalar min.other abs log"
    " full_like rsqrt div.Tensor tanh pow.Tensor_Scalar triu transpose.int unsqueeze softmax.int embedding slice.Tensor"
    " _to_copy slice_scatter copy full ne.Scalar cumsum type_as gelu conv2d max_pool2d tril ge.Tensor"
    " _native_batch_norm_legit_no_training upsample_nearest2d.vec adaptive_avg_pool2d permute matmul"
)
_NEWER = (
    "clamp eq ne lt le gt ge __and__ __or__ __not__ where.ScalarOther index.Tensor sum.dim_IntList sigmoid hardsigmoid"
    " hardswish empty_like fill scalar_tensor"
)
READABLE_NAMES: frozenset[str] = frozenset({"getitem", *(f"aten.{name}" for name in _ATEN.split())})
"""The names beside the standard ones that files of the public compiler are known to contain."""
_PUBLIC = READABLE_NAMES | {f"aten.{name}" for name in _NEWER.split()}


def is_public(name: str, version: str = V1_6) -> bool:
    """Whether an operation is one that the public runtimes have: a standard one, or one of their lists of names.

    A name of the lists without an overload stands for its usual ones. Operators of Python on sizes have bare names.
    """
    if name in {item.name for item in standard_operations(version).values()} or "." not in name:
        return True
    stem, _, overload = name.rpartition(".")
    return name in _PUBLIC or (overload in _OVERLOADS and stem in _PUBLIC)


def user_inputs(file: File) -> tuple[Input, ...]:
    """The names of what a caller gives; lifted constants may have names beside them."""
    count = len(file.instructions)
    places = {item.index for item in file.inputs if item.index < count}
    taken = {index for index in places if is_user_input(file.instructions[index])}
    return tuple(item for item in file.inputs if item.index in taken)


def is_user_input(item: Instruction) -> bool:
    """Whether an instruction takes one of the model's inputs."""
    return item.operation == INPUT and item.variant == USER
