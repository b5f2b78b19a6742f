"""Components of cooperative matrices: a matrix of one number, a component of each lane, and one replaced."""

from __future__ import annotations

from lamella.backend.cpu.emit import integers, threads
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.matrices.places import uniform
from lamella.backend.cpu.emit.matrices.shapes import named_matrix, value_count, width_of
from lamella.backend.cpu.emit.matrices.vectors import assemble, splat
from lamella.backend.cpu.emit.scalars import make_constant
from lamella.backend.cpu.emit.values import LLVM, Lanes, Matrix, llvm
from lamella.lang.tensor.layout import component_place
from lamella.lang.tensor.nodes import CoopConstruct, CoopExtract, CoopInsert


def emit_construct(here: Here, construct: CoopConstruct) -> Matrix:
    """A cooperative matrix with one number everywhere."""
    type_ = construct.type
    number, width = uniform(here, here.scalar(construct.scalar.name)), width_of(type_)
    parts = [splat(here, part, type_.element, width) for part in number.parts]
    return Matrix(type_, tuple((part,) * value_count(type_) for part in parts), width)


def _places(here: Here, matrix: Matrix, component: int) -> list[tuple[int, int] | None]:
    """The row and column of a component of each lane."""
    lanes = here.subgroup_size
    return [component_place(matrix.type, lanes, lane, component) for lane in range(lanes)]


def _home(matrix: Matrix, place: tuple[int, int]) -> tuple[int, int | None]:
    """Which value of a matrix holds a component, and in which of its lanes; None where it is the value."""
    row, column = place
    if matrix.width > 1:
        return column, row
    return column * matrix.type.rows + row, None


def _read(here: Here, matrix: Matrix, part: int, place: tuple[int, int] | None) -> str:
    """A part of a component; behind the last column there is 0."""
    if place is None:
        return make_constant(0, matrix.type.element).parts[part]
    number, lane = _home(matrix, place)
    value = matrix.parts[part][number]
    if lane is None:
        return value
    return here.out.value(f"extractelement {llvm(matrix.type.element, matrix.width)} {value}, i64 {lane}")


def emit_extract(here: Here, extract: CoopExtract) -> Lanes:
    """A component of each lane."""
    matrix = named_matrix(here, extract.operand)
    places, element = _places(here, matrix, extract.component), matrix.type.element
    cells = [[_read(here, matrix, part, place) for place in places] for part in range(len(matrix.parts))]
    if len(places) == 1:
        return Lanes(element, tuple(cell[0] for cell in cells))
    if here.threads:
        return threads.choose_lane(here, element, cells)
    return Lanes(element, tuple(assemble(here, element, cell) for cell in cells), len(places))


def emit_insert(here: Here, insert: CoopInsert) -> Matrix:
    """The matrix with a component of each lane replaced."""
    matrix, scalar = named_matrix(here, insert.operand), here.scalar(insert.scalar.name)
    element = matrix.type.element
    parts = [list(part) for part in matrix.parts]
    for lane, place in enumerate(_places(here, matrix, insert.component)):
        if place is None:
            continue
        number, row = _home(matrix, place)
        for part, operand in zip(parts, _of_lane(here, scalar, lane).parts, strict=True):
            part[number] = (
                operand if row is None else _put(here, element, matrix.width, part[number], operand, row)
            )
    return Matrix(matrix.type, tuple(map(tuple, parts)), matrix.width)


def _put(here: Here, element: str, width: int, column: str, operand: str, row: int) -> str:
    """A column with another number in one row."""
    return here.out.value(
        f"insertelement {llvm(element, width)} {column}, {LLVM[element]} {operand}, i64 {row}"
    )


def _of_lane(here: Here, scalar: Lanes, lane: int) -> Lanes:
    """What one lane has."""
    if here.threads:
        return threads.of_lane(here, scalar, lane)
    if scalar.is_uniform:
        return scalar
    wide = integers.spread(here, scalar)
    kind = llvm(wide.element, wide.count)
    parts = [here.out.value(f"extractelement {kind} {part}, i64 {lane}") for part in wide.parts]
    return Lanes(wide.element, tuple(parts))
