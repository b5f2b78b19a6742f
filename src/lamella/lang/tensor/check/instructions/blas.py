"""The linear algebra instructions: promotion, orders, shapes and atomic updates."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.lang.tensor.check.here import Here
from lamella.lang.tensor.check.instructions.accesses import check_atomic
from lamella.lang.tensor.check.kinds import is_promotable, promote, scalar_name, spell_shape
from lamella.lang.tensor.nodes import Blas, Memref, Size, Type, Value
from lamella.lang.tensor.rules import instructions as rules

ROLES = {
    "axpby": ("alpha", "A", "beta", "B"),
    "cumsum": ("alpha", "A", "beta", "B"),
    "sum": ("alpha", "A", "beta", "b"),
    "gemm": ("alpha", "A", "B", "beta", "C"),
    "gemv": ("alpha", "A", "b", "beta", "c"),
    "ger": ("alpha", "a", "b", "beta", "C"),
    "hadamard": ("alpha", "a", "b", "beta", "c"),
}
ORDERS = {"gemm": (2, 2, 2), "gemv": (2, 1, 1), "ger": (1, 1, 2)}
CONSTANTS = (0, 1, (0.0, 0.0), (1.0, 0.0))


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand with its role in the formula and its scalar or element type."""

    role: str
    value: Value
    name: str
    memref: Memref | None = None

    @property
    def shape(self) -> tuple[Size, ...]:
        """The shape of a tensor."""
        return self.memref.shape if self.memref else ()


def check_blas(here: Here, blas: Blas) -> None:
    """Check a linear algebra instruction."""
    types = here.context.types_of(*blas.operands)
    if types is None:
        return
    found = [
        _operand(here, role, value, type_)
        for role, value, type_ in zip(ROLES[blas.function], blas.operands, types, strict=True)
    ]
    operands = [item for item in found if item is not None]
    if len(operands) < len(found):
        return
    tensors = [item for item in operands if item.memref]
    _check_promotion(here, operands[0], tensors, operands[-2])
    _check_atomic(here, blas, operands)
    if _check_orders(here, blas, tensors) and not _shapes_fit(blas, tensors):
        shapes = ", ".join(f"{item.role}={spell_shape(item.shape)}" for item in tensors)
        transposes = "".join(".t" if flag else ".n" for flag in blas.transposes)
        word = blas.function + transposes
        here.say(rules.SHAPES, here.span, [item.value for item in tensors], instruction=word, shapes=shapes)


def _operand(here: Here, role: str, value: Value, type_: Type) -> Operand | None:
    if role in ("alpha", "beta"):
        name = scalar_name(type_)
        fits = here.expect(value, type_, name is not None, f"a scalar as {role}")
        return Operand(role, value, name) if fits and name else None
    if isinstance(type_, Memref):
        return Operand(role, value, type_.element, type_)
    here.expect(value, type_, False, f"a memref as {role}")
    return None


def _check_promotion(here: Here, alpha: Operand, tensors: list[Operand], beta: Operand) -> None:
    *inputs, output = tensors
    both = Operand(" and ".join(item.role for item in inputs), inputs[-1].value, inputs[0].name)
    if len(inputs) == 2:
        name = promote(inputs[0].name, inputs[1].name)
        if name is None:
            words = {"left": inputs[0].name, "right": inputs[1].name, "names": both.role}
            here.say(rules.PROMOTION_PAIR, here.span, [item.value for item in inputs], **words)
            return
        both = Operand(both.role, both.value, name)
    _expect_promotable(here, alpha, both)
    _expect_promotable(here, both, output)
    _expect_promotable(here, beta, output)


def _expect_promotable(here: Here, source: Operand, target: Operand) -> None:
    if not is_promotable(source.name, target.name):
        words = {"left": source.role, "right": target.role, "source": source.name, "target": target.name}
        here.say(rules.PROMOTION, source.value.span, [source.value, target.value], **words)


def _check_atomic(here: Here, blas: Blas, operands: list[Operand]) -> None:
    if not blas.atomic:
        return
    check_atomic(here, operands[-1].name, "atomic")
    beta = operands[-2].value
    entry = here.context.find(beta)
    if entry is None or entry.constant not in CONSTANTS:
        here.say(rules.ATOMIC_BETA, beta.span, [beta], name=beta.name)


def _check_orders(here: Here, blas: Blas, tensors: list[Operand]) -> bool:
    """Whether the tensors are of the orders that an instruction takes."""
    before = here.context.errors
    wanted = ORDERS.get(blas.function)
    if wanted is not None:
        for item, order in zip(tensors, wanted, strict=True):
            _expect_order(here, item, (order,))
    elif blas.function == "hadamard":
        for item in tensors:
            _expect_order(here, item, (1, 2))
    elif blas.function == "axpby":
        _expect_order(here, tensors[-1], (0, 1, 2))
    elif blas.function == "sum" and _expect_order(here, tensors[-1], (0, 1)):
        _expect_order(here, tensors[0], (len(tensors[-1].shape) + 1,))
    elif blas.function == "cumsum":
        _check_cumsum(here, blas.mode or 0, tensors[0])
    return here.context.errors == before


def _expect_order(here: Here, item: Operand, wanted: tuple[int, ...]) -> bool:
    order = len(item.shape)
    if order not in wanted:
        choice = " or ".join(map(str, wanted))
        here.say(rules.ORDER, item.value.span, [item.value], operand=item.role, order=order, wanted=choice)
    return order in wanted


def _check_cumsum(here: Here, mode: int, tensor: Operand) -> None:
    order = len(tensor.shape)
    if order == 0:
        here.say(
            rules.ORDER, tensor.value.span, [tensor.value], operand=tensor.role, order=0, wanted="1 or more"
        )
    elif not 0 <= mode < order:
        here.say(rules.CUMSUM_MODE, here.span, [tensor.value], mode=mode, order=order)


def _shapes_fit(blas: Blas, tensors: list[Operand]) -> bool:
    """Whether shapes agree; a size that is known only at the run agrees with another such size."""
    flags = (*blas.transposes, False, False)
    shapes = [item.shape for item in tensors]
    first = shapes[0][::-1] if flags[0] and len(shapes[0]) == 2 else shapes[0]
    output = shapes[-1]
    match blas.function:
        case "gemm":
            second = shapes[1][::-1] if flags[1] else shapes[1]
            return first[1] == second[0] and output == (first[0], second[1])
        case "gemv":
            return first[1] == shapes[1][0] and output == (first[0],)
        case "ger":
            return output == (first[0], shapes[1][0])
        case "sum":
            return output == first[:-1]
        case "hadamard":
            return first == shapes[1] == output
        case _:
            return first == output
