"""What happens to a tile behind the inner loop: alpha, beta, rounding, and how it reaches memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value
from lamella.kernels.passes.lower_linalg.operands import GemmOperands, MatrixOperand, ScalarFactor
from lamella.lang.tensor.nodes import Coopmatrix, CoopScale, CoopStore, Number, Scalar, Type, Value
from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS


def make_number(number: int, element: str) -> Number:
    """An integer as a constant of a scalar type is written."""
    if element in COMPLEX:
        return float(number), 0.0
    return float(number) if element in FLOATS else number


def constant(builder: Builder, number: int, type_: Scalar | Coopmatrix) -> Value:
    """A constant of a scalar type, or a matrix that is full of it."""
    element = type_.name if isinstance(type_, Scalar) else type_.element
    return builder.constant(make_number(number, element), type_)


@dataclass(frozen=True, slots=True)
class Piece:
    """A matrix of sums, and where in its tile it begins."""

    row: int
    column: int
    type: Coopmatrix


@dataclass(frozen=True, slots=True)
class Storing:
    """The part of C that a tile is stored to, and what has to be checked there."""

    place: MatrixOperand
    checked: str

    def load(self, builder: Builder, piece: Piece) -> Value:
        """What a piece of a tile has been so far, in the type of the sums."""
        stored = self._stored(piece)
        found = self.place.load(builder, (piece.row, piece.column), stored, self.checked)
        return cast(builder, found, stored, piece.type)

    def store(self, builder: Builder, value: Value, piece: Piece, flag: str = "") -> None:
        """Store a piece of a tile, rounded to what C holds."""
        rounded = cast(builder, value, piece.type, self._stored(piece))
        row, column = as_value(builder, piece.row), as_value(builder, piece.column)
        builder.put(CoopStore(rounded, self.place.value, row, column, self.checked, flag))

    def _stored(self, piece: Piece) -> Coopmatrix:
        return replace(piece.type, element=self.place.type.element)


@dataclass(frozen=True, slots=True)
class Scaling:
    """alpha and beta in the type of the sums, and whether C is read."""

    product: GemmOperands
    alpha: Value | None
    """None where it is 1."""
    beta: Value | None
    """None where it is 1."""
    overwrite: Value | bool
    """Whether C is not read, known now or a condition."""

    def finish(self, builder: Builder, tile: Value, piece: Piece, place: Storing) -> None:
        """Store the sums of a piece of a tile where they belong."""
        if self.alpha is not None:
            tile = builder.value(CoopScale(self.alpha, tile, piece.type))
        if self.product.atomic:
            flag = "atomic" if self.product.beta.is_known(0) else "atomic_add"
            place.store(builder, tile, piece, flag)
        elif isinstance(self.overwrite, bool):
            place.store(builder, tile if self.overwrite else self._add(builder, tile, piece, place), piece)
        else:
            with builder.choice(self.overwrite) as (then, otherwise):
                place.store(then, tile, piece)
                place.store(otherwise, self._add(otherwise, tile, piece, place), piece)

    def _add(self, builder: Builder, tile: Value, piece: Piece, place: Storing) -> Value:
        before = place.load(builder, piece)
        if self.beta is not None:
            before = builder.value(CoopScale(self.beta, before, piece.type))
        return builder.arith("add", tile, before, type_=piece.type)


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of a tile, and what becomes of them."""

    scaling: Scaling
    pieces: tuple[Piece, ...]
    values: tuple[Value, ...]

    def finish(self, builder: Builder, place: Storing) -> None:
        """Store all of them."""
        for piece, value in zip(self.pieces, self.values, strict=True):
            self.scaling.finish(builder, value, piece, place)


def start_scaling(builder: Builder, product: GemmOperands) -> Scaling:
    """The factors as a product without blocks uses them."""
    beta = product.beta
    alpha_value = None if product.alpha.is_known(1) else _widen(builder, product.alpha, product.wide)
    beta_value = None if beta.is_known(1) or beta.is_known(0) else _widen(builder, beta, product.wide)
    overwrite: Value | bool = beta.is_known(0)
    if beta.known is None:
        overwrite = builder.compare("eq", beta.value, constant(builder, 0, beta.type))
    return Scaling(product, alpha_value, beta_value, overwrite)


def scale_block(builder: Builder, whole: Scaling, begin: Value) -> Scaling:
    """The factors for a block of the sum: only the first one, which begins at 0, applies beta."""
    if whole.overwrite is False and whole.beta is None:
        return whole
    first = builder.compare("eq", begin, builder.constant(0))
    beta = whole.beta
    if beta is not None:
        kind = Scalar(whole.product.wide)
        beta = builder.arith("select", first, beta, constant(builder, 1, kind), type_=kind)
    if isinstance(whole.overwrite, bool):
        return replace(whole, beta=beta, overwrite=first if whole.overwrite else False)
    return replace(
        whole, beta=beta, overwrite=builder.arith("and", first, whole.overwrite, type_=Scalar("bool"))
    )


def cast(builder: Builder, value: Value, type_: Type, wanted: Type) -> Value:
    """A value in another type, where that differs."""
    return value if type_ == wanted else builder.cast(value, wanted)


def _widen(builder: Builder, factor: ScalarFactor, wide: str) -> Value:
    return cast(builder, factor.value, factor.type, Scalar(wide))
