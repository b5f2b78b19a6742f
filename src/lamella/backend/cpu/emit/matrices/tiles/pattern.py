"""Which loops run on tiles: those that add products of packed columns and contiguous rows to what they carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.matrices.tiles.shapes import PACKS, SUMS, Tile, number_tiles, tile_of
from lamella.backend.cpu.emit.values import Lanes, Memory
from lamella.lang.tensor.nodes import (
    Arith,
    Cast,
    Constant,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    Expand,
    For,
    Fuse,
    Memref,
    SizeOf,
    Statement,
    Subview,
    Value,
    Yield,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A loop on tiles."""

    tiles: tuple[Tile, ...]
    """The shape of each tile; the first ones are the sums."""
    factors: Mapping[str, int]
    """The tile of each factor by its name."""
    products: Mapping[str, int]
    """The sum of each product by the name of its result."""


class _Unsuitable(Exception):
    """The loop is not of the kind that tiles can run."""


def plan_tiles(here: Here, loop: For) -> Plan | None:
    """How a loop runs on tiles; None where it does not."""
    if not here.target.amx or here.mask is not None or not _counts_together(here, loop):
        return None
    try:
        return _Reader(here, loop).read()
    except _Unsuitable:
        return None


def _counts_together(here: Here, loop: For) -> bool:
    bounds = [loop.begin, loop.end, *([loop.step] if loop.step is not None else [])]
    return all(here.scalar(item.name).is_uniform for item in bounds)


def _require(holds: bool) -> None:
    if not holds:
        raise _Unsuitable


@dataclass(slots=True)
class _Reader:
    """Reads the body of a loop statement by statement."""

    here: Here
    loop: For
    views: dict[str, Memref] = field(default_factory=dict)
    factors: dict[str, Coopmatrix] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first and the last statement that needs a factor."""
    sums: dict[str, int] = field(default_factory=dict)
    """The number of each sum by the name that it has now."""
    products: dict[str, int] = field(default_factory=dict)

    def read(self) -> Plan:
        tiles = [self._carry(type_) for type_ in self.loop.types]
        self.sums = {name.name: place for place, (name, _) in enumerate(self.loop.carried)}
        for place, statement in enumerate(self.loop.body.statements):
            self._read_statement(place, statement)
        _require(bool(self.products))
        loads = {name: (tile_of(type_), *self.spans[name]) for name, type_ in self.factors.items()}
        found = number_tiles(tiles, loads)
        if found is None:
            raise _Unsuitable
        return Plan(tuple(found[1]), found[0], self.products)

    def _carry(self, type_: object) -> Tile:
        if not isinstance(type_, Coopmatrix) or type_.element not in SUMS.values():
            raise _Unsuitable
        tile = tile_of(type_)
        _require(type_.use == "matrix_acc" and tile.fits)
        return tile

    def _read_statement(self, place: int, statement: Statement) -> None:
        instruction = statement.instruction
        match instruction:
            case CoopLoad():
                self._read_load(place, statement.results[0].name, instruction)
            case CoopMulAdd():
                self._read_product(place, statement.results[0].name, instruction)
            case Subview() | Expand() | Fuse():
                self.views[statement.results[0].name] = instruction.type
            case Arith() | Cast() | Constant():
                _require(not isinstance(instruction.type, Coopmatrix))
            case Yield():
                given = [self.sums.get(item.name) for item in instruction.values]
                _require(given == list(range(len(self.loop.carried))))
            case _:
                _require(isinstance(instruction, SizeOf))

    def _read_load(self, place: int, name: str, load: CoopLoad) -> None:
        type_, memory = load.type, self._memory(load.operand)
        _require(type_.element in PACKS and not load.checked)
        pack = PACKS[type_.element]
        depth = type_.columns if type_.use == "matrix_a" else type_.rows
        _require(depth % pack == 0 and tile_of(type_).fits)
        if type_.use == "matrix_a":
            _require(memory.order == 3 and memory.stride[:2] == (1, pack))
        else:
            along = 1 if load.transposed else 0
            _require(type_.use == "matrix_b" and memory.order == 2 and memory.stride[along] == 1)
        self.factors[name], self.spans[name] = type_, (place, place)

    def _memory(self, operand: Value) -> Memref:
        if operand.name in self.views:
            return self.views[operand.name]
        known = self.here.values.get(operand.name)
        if not isinstance(known, Memory):
            raise _Unsuitable
        return known.type

    def _read_product(self, place: int, name: str, product: CoopMulAdd) -> None:
        left, right = self.factors.get(product.left.name), self.factors.get(product.right.name)
        if left is None or right is None:
            raise _Unsuitable
        total = self.sums.pop(product.accumulator.name, None)
        if total is None:
            raise _Unsuitable
        _require(left.element == right.element and product.type == self.loop.types[total])
        _require(product.type.element == SUMS[left.element])
        self.sums[name] = self.products[name] = total
        for factor in (product.left.name, product.right.name):
            self.spans[factor] = (self.spans[factor][0], place)


def bounds_of(here: Here, loop: For) -> tuple[Lanes, Lanes, Lanes | None]:
    """Where a loop begins and ends, and its step."""
    step = here.scalar(loop.step.name) if loop.step is not None else None
    return here.scalar(loop.begin.name), here.scalar(loop.end.name), step
