"""What a matrix product works on: matrices as op() shows them, factors, and the product as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from lamella.base.records import dataclass
from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, least
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    INDEX,
    Blas,
    CoopLoad,
    Coopmatrix,
    CoopScale,
    CoopStore,
    Expand,
    If,
    IndexOrSize,
    Memref,
    Number,
    Scalar,
    Slice,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS

WIDER = {"i8": "i32", "bf16": "f32", "f16": "f32"}
"""Types whose products are summed in a wider one."""
CHECKED = {(False, False): "", (True, False): "rows", (False, True): "cols", (True, True): "both"}
"""The word for what an access checks, by rows and columns."""


@dataclass(frozen=True, slots=True)
class RowSpan:
    """So many rows or columns from a position on."""

    begin: IndexOrSize
    size: IndexOrSize


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """A memref of order 2, transposed or not; rows and columns are those of what op() gives."""

    value: Value
    type: Memref
    transposed: bool = False

    @property
    def row_stride(self) -> int | None:
        """Elements from one row to the next."""
        return self.type.stride[1 if self.transposed else 0]

    @property
    def column_stride(self) -> int | None:
        """Elements from one column to the next."""
        return self.type.stride[0 if self.transposed else 1]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return BYTES[self.type.element]

    def extent(self, builder: Builder, mode: int) -> IndexOrSize:
        """The number of rows or of columns."""
        own = 1 - mode if self.transposed else mode
        size = self.type.shape[own]
        return builder.size(self.value, own) if size is None else size

    def view(self, builder: Builder, rows: RowSpan, columns: RowSpan) -> MatrixOperand:
        """A part of the matrix."""
        spans = (columns, rows) if self.transposed else (rows, columns)
        shape = tuple(item.size if isinstance(item.size, int) else None for item in spans)
        if shape == self.type.shape and all(item.begin == 0 for item in spans):
            return self
        type_ = Memref(self.type.element, shape, self.type.stride, self.type.local)
        slices = [Slice(item.begin, item.size) for item in spans]
        return MatrixOperand(builder.subview(self.value, slices, type_), type_, self.transposed)

    def load(
        self,
        builder: Builder,
        position: tuple[IndexOrSize, IndexOrSize],
        type_: Coopmatrix,
        checked: str = "",
    ) -> Value:
        """A cooperative matrix whose first component stands at a row and a column."""
        row, column = (as_value(builder, item) for item in position)
        if self.transposed:
            row, column = column, row
        return builder.value(CoopLoad(self.value, row, column, type_, self.transposed, checked))


@dataclass(frozen=True, slots=True)
class ScalarFactor:
    """alpha or beta: a scalar, with its value where that is known."""

    value: Value
    type: Scalar
    known: Number | None

    def is_known(self, number: int) -> bool:
        """Whether the factor is known to be a number."""
        if self.known is None:
            return False
        return complex(*self.known) == number if isinstance(self.known, tuple) else self.known == number


@dataclass(frozen=True, slots=True)
class GemmOperands:
    """`C := alpha * A * B + beta * C`, and the sizes of it: C has m rows and n columns, A has k columns."""

    alpha: ScalarFactor
    a: MatrixOperand
    b: MatrixOperand
    beta: ScalarFactor
    c: MatrixOperand
    m: IndexOrSize
    n: IndexOrSize
    k: IndexOrSize
    atomic: bool = False
    whole_rows: bool = False
    """Whether the rows are known to fill their tiles."""

    @property
    def wide(self) -> str:
        """The type in which products are summed."""
        return WIDER.get(self.c.type.element, self.c.type.element)


@dataclass(frozen=True, slots=True)
class RegionValues:
    """What is known of the values that a region sees: their types, and the numbers of constants."""

    types: Mapping[str, Type]
    constants: Mapping[str, Number]

    def factor(self, value: Value) -> ScalarFactor:
        """A scalar operand."""
        type_ = self.types[value.name]
        if not isinstance(type_, Scalar):
            raise TypeError(f"%{value.name} is no scalar")
        return ScalarFactor(value, type_, self.constants.get(value.name))

    def memref(self, value: Value) -> Memref:
        """The type of a memref operand."""
        type_ = self.types[value.name]
        if not isinstance(type_, Memref):
            raise TypeError(f"%{value.name} is no memref")
        return type_


def find_product(builder: Builder, blas: Blas, known: RegionValues) -> GemmOperands:
    """The product that `gemm` or `gemv` asks for; a vector is a matrix of one column."""
    alpha, left, right, beta, result = blas.operands
    a = MatrixOperand(left, known.memref(left), blas.transposes[0])
    b = _as_matrix(builder, right, known.memref(right))
    if blas.function == "gemm":
        b = MatrixOperand(right, known.memref(right), blas.transposes[1])
    c = _as_matrix(builder, result, known.memref(result))
    m = _shared(builder, (c, 0), (a, 0))
    n = _shared(builder, (c, 1), (b, 1))
    k = _shared(builder, (a, 1), (b, 0))
    return GemmOperands(known.factor(alpha), a, b, known.factor(beta), c, m, n, k, blas.atomic)


def _shared(
    builder: Builder, left: tuple[MatrixOperand, int], right: tuple[MatrixOperand, int]
) -> IndexOrSize:
    """A size that two operands share; at run time they may disagree, and none is read or written past its end."""
    sizes = [operand.extent(builder, mode) for operand, mode in (left, right)]
    return least(builder, *sizes)


def _as_matrix(builder: Builder, value: Value, type_: Memref) -> MatrixOperand:
    """A vector as a matrix of one column; a matrix as it is."""
    if type_.order == 2:
        return MatrixOperand(value, type_)
    size, stride = type_.shape[0], type_.stride[0]
    column = None if size is None or stride is None else size * stride
    wider = Memref(type_.element, (size, 1), (stride, column), type_.local)
    count = builder.size(value, 0) if size is None else size
    return MatrixOperand(builder.value(Expand(value, 0, (count, 1), wider)), wider)


# --- what happens to a tile behind the inner loop: alpha, beta, rounding, and how it reaches memory ---------


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
class AccumulatorPiece:
    """A matrix of sums, and where in its tile it begins, or in C where it is the tile."""

    row: IndexOrSize
    column: IndexOrSize
    type: Coopmatrix


@dataclass(frozen=True, slots=True)
class Storing:
    """The part of C that a tile is stored to, and what has to be checked there."""

    place: MatrixOperand
    checked: str

    def load(self, builder: Builder, piece: AccumulatorPiece) -> Value:
        """What a piece of a tile has been so far, in the type of the sums."""
        stored = self._stored(piece)
        found = self.place.load(builder, (piece.row, piece.column), stored, self.checked)
        return cast(builder, found, stored, piece.type)

    def store(self, builder: Builder, value: Value, piece: AccumulatorPiece, flag: str = "") -> None:
        """Store a piece of a tile, rounded to what C holds."""
        rounded = cast(builder, value, piece.type, self._stored(piece))
        row, column = as_value(builder, piece.row), as_value(builder, piece.column)
        builder.put(CoopStore(rounded, self.place.value, row, column, self.checked, flag))

    def _stored(self, piece: AccumulatorPiece) -> Coopmatrix:
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

    def finish(self, builder: Builder, tile: Value, piece: AccumulatorPiece, place: Storing) -> None:
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

    def _add(self, builder: Builder, tile: Value, piece: AccumulatorPiece, place: Storing) -> Value:
        before = place.load(builder, piece)
        if self.beta is not None:
            before = builder.value(CoopScale(self.beta, before, piece.type))
        return builder.arith("add", tile, before, type_=piece.type)


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of a tile, and what becomes of them."""

    scaling: Scaling
    pieces: tuple[AccumulatorPiece, ...]
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


# --- what linear algebra on single elements shares: `C := alpha * f + beta * C`, element by element ---------


I32 = Scalar("i32")


@dataclass(frozen=True, slots=True)
class MemrefOperand:
    """A memref operand."""

    value: Value
    type: Memref

    def extent(self, builder: Builder, mode: int) -> IndexOrSize:
        """The size of a mode."""
        size = self.type.shape[mode]
        return builder.size(self.value, mode) if size is None else size


@dataclass(frozen=True, slots=True)
class Update:
    """An instruction taken apart: its operands, and the factors in the type in which it computes."""

    blas: Blas
    sources: tuple[MemrefOperand, ...]
    target: MemrefOperand
    wide: Scalar
    alpha: Value | None
    """None where it is 1."""
    beta: Value | None
    """None where it is 1."""
    overwrite: bool
    """Whether C is not read."""

    def load(self, builder: Builder, source: int, indices: Sequence[Value]) -> Value:
        """An element of an operand in the type in which is computed."""
        return self._load(builder, self.sources[source], indices)

    def finish(self, builder: Builder, value: Value, indices: Sequence[Value]) -> None:
        """Store the element that belongs to a value of f."""
        if self.alpha is not None:
            value = builder.arith("mul", self.alpha, value, type_=self.wide)
        flag = ""
        if self.blas.atomic:
            flag = "atomic" if self.overwrite else "atomic_add"
        elif not self.overwrite:
            before = self._load(builder, self.target, indices)
            if self.beta is not None:
                before = builder.arith("mul", self.beta, before, type_=self.wide)
            value = builder.arith("add", value, before, type_=self.wide)
        rounded = cast(builder, value, self.wide, Scalar(self.target.type.element))
        builder.store(rounded, self.target.value, indices, flag)

    def zero(self, builder: Builder) -> Value:
        """The number that changes no sum."""
        return constant(builder, 0, self.wide)

    def add(self, builder: Builder, left: Value, right: Value) -> Value:
        """The sum of two values."""
        return builder.arith("add", left, right, type_=self.wide)

    def _load(self, builder: Builder, array: MemrefOperand, indices: Sequence[Value]) -> Value:
        kind = Scalar(array.type.element)
        return cast(builder, builder.load(array.value, indices, kind), kind, self.wide)


def write_updates(
    builder: Builder, blas: Blas, known: RegionValues, write: Callable[[Builder, Update], None]
) -> None:
    """Write an instruction: once, or once with C read and once without it where only the run tells whether it is."""
    alpha, *sources, beta, target = blas.operands
    arrays = tuple(MemrefOperand(item, known.memref(item)) for item in sources)
    result = MemrefOperand(target, known.memref(target))
    wide = Scalar(WIDER.get(result.type.element, result.type.element))
    factors = known.factor(alpha), known.factor(beta)
    first, second = (_updates_widen(builder, factor, wide) for factor in factors)
    update = Update(blas, arrays, result, wide, first, second, factors[1].is_known(0))
    if factors[1].known is not None:
        write(builder, update)
        return
    condition = builder.compare("eq", beta, constant(builder, 0, factors[1].type))
    with builder.choice(condition) as (then, otherwise):
        write(then, replace(update, overwrite=True))
        write(otherwise, update)


def _updates_widen(builder: Builder, factor: ScalarFactor, wide: Scalar) -> Value | None:
    """A factor in the type in which is computed; None where it changes nothing."""
    if factor.is_known(1):
        return None
    return cast(builder, factor.value, factor.type, wide)


# --- extents and work-items ---------------------------------------------------------------------------------


def shared_extent(builder: Builder, *modes: tuple[MemrefOperand, int]) -> IndexOrSize:
    """A size that operands share; at run time they may disagree, and none is touched past its end."""
    found, *others = (array.extent(builder, mode) for array, mode in modes)
    for item in others:
        found = least(builder, found, item)
    return found


@dataclass(frozen=True, slots=True)
class Lanes:
    """The work-item at hand in a `parallel`: its number in the subgroup, the sizes, the subgroup's number."""

    lane: Value
    size: Value
    subgroup: Value
    subgroups: Value


def find_lanes(builder: Builder) -> Lanes:
    """Ask for the place of the work-item."""
    names = ("subgroup_local_id", "subgroup_size", "subgroup_id", "num_subgroups")
    return Lanes(*(builder.cast(builder.builtin(name, I32), INDEX) for name in names))


@contextmanager
def each_line(
    builder: Builder, extents: Sequence[IndexOrSize], lanes: Lanes
) -> Iterator[tuple[Builder, list[Value]]]:
    """All positions in some modes, shared among the subgroups; without a mode the first subgroup does all."""
    if not extents:
        first = builder.compare("eq", lanes.subgroup, builder.constant(0))
        with builder.condition(first) as inner:
            yield inner, []
        return
    indices: list[Value] = []
    with ExitStack() as loops:
        for extent in reversed(extents):
            begin, step = (builder.constant(0), None) if indices else (lanes.subgroup, lanes.subgroups)
            loop = loops.enter_context(builder.loop(begin, as_value(builder, extent), step))
            builder = loop.body
            indices.insert(0, loop.variable)
        yield builder, indices


def choose(
    builder: Builder, condition: Value, kind: Scalar, then: Callable[[Builder], Value], otherwise: Value
) -> Value:
    """A value that is computed only where a condition holds."""
    first, second = builder.inner(), builder.inner()
    first.give(then(first))
    second.give(otherwise)
    return builder.value(If(condition, first.region(), second.region(), (kind,)))
