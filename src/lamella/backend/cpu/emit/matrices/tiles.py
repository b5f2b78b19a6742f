"""AMX tiles: loops of products that a processor computes sixteen rows by sixteen columns at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import gcd

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import add, dynamic, multiply, number
from lamella.backend.cpu.emit.matrices.access import splat
from lamella.backend.cpu.emit.matrices.layout import find_layout, named_matrix, width_of
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, MemrefValue, ScalarValue, llvm
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.lang.tensor.check.kinds import BYTES
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

# --- the shapes of tiles, and which tile holds what ---------------------------------------------------------


PACKS = {"bf16": 2, "i8": 4}
"""How many elements of a row of A lie together in a tile."""
SUMS = {"bf16": "f32", "i8": "i32"}
"""The type in which tiles add."""
ROWS, ROW_BYTES, TILES = 16, 64, 8
"""What a tile holds at most, and how many there are."""
WORD = 4
"""Bytes of a sum, and of a pack."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The shape of a tile: rows, and bytes of a row."""

    rows: int
    row_bytes: int

    @property
    def fits(self) -> bool:
        """Whether a tile can be so large."""
        return self.rows <= ROWS and self.row_bytes <= ROW_BYTES


def tile_of(type_: Coopmatrix) -> Tile:
    """The tile of a matrix: its columns are the rows of the tile; packs of columns where it is a factor on the left."""
    if type_.use == "matrix_a":
        return Tile(type_.columns // PACKS[type_.element], type_.rows * WORD)
    return Tile(type_.columns, type_.rows * BYTES[type_.element])


def configure(tiles: Sequence[Tile]) -> bytes:
    """The 64 bytes that tell the processor the shapes of all tiles (palette 1).

    Those that a loop does not use are as large as can be, so that loops of whole tiles agree.
    """
    whole = [*tiles, *[Tile(ROWS, ROW_BYTES)] * (TILES - len(tiles))]
    widths = b"".join(tile.row_bytes.to_bytes(2, "little") for tile in whole)
    heights = bytes(tile.rows for tile in whole)
    return bytes([1]) + bytes(15) + widths.ljust(32, b"\0") + heights.ljust(16, b"\0")


def number_tiles(
    sums: Sequence[Tile], loads: Mapping[str, tuple[Tile, int, int]]
) -> tuple[dict[str, int], list[Tile]] | None:
    """A tile for each factor, which is there from one step to another; None where there are not enough.

    A tile has one shape throughout, and serves one factor after the other.
    """
    shapes, until, found = list(sums), [-1] * len(sums), dict[str, int]()
    for name, (tile, first, last) in loads.items():
        free = [
            number
            for number in range(len(sums), len(shapes))
            if until[number] < first and shapes[number] == tile
        ]
        if not free:
            shapes.append(tile)
            until.append(-1)
        found[name] = free[0] if free else len(shapes) - 1
        until[found[name]] = last
    return (found, shapes) if len(shapes) <= TILES else None


# --- which loops run on tiles: those that add products of packed columns and contiguous rows to -------------


@dataclass(frozen=True, slots=True)
class TileLoop:
    """A loop on tiles."""

    tiles: tuple[Tile, ...]
    """The shape of each tile; the first ones are the sums."""
    factors: Mapping[str, int]
    """The tile of each factor by its name."""
    products: Mapping[str, int]
    """The sum of each product by the name of its result."""


def plan_tiles(context: EmitContext, loop: For) -> TileLoop | None:
    """How a loop runs on tiles; None where it does not."""
    if not context.target.amx or context.mask is not None or not _counts_together(context, loop):
        return None
    try:
        return _TileLoopReader(context, loop).read()
    except Unsupported:
        return None


def _counts_together(context: EmitContext, loop: For) -> bool:
    bounds = [loop.begin, loop.end, *([loop.step] if loop.step is not None else [])]
    return all(context.scalar(item.name).is_uniform for item in bounds)


def _require(holds: bool) -> None:
    if not holds:
        raise Unsupported("no loop of tile products")


@dataclass(slots=True)
class _TileLoopReader:
    """Reads the body of a loop statement by statement."""

    context: EmitContext
    loop: For
    views: dict[str, Memref] = field(default_factory=dict)
    factors: dict[str, Coopmatrix] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first and the last statement that needs a factor."""
    sums: dict[str, int] = field(default_factory=dict)
    """The number of each sum by the name that it has now."""
    products: dict[str, int] = field(default_factory=dict)

    def read(self) -> TileLoop:
        tiles = [self._carry(type_) for type_ in self.loop.types]
        self.sums = {name.name: place for place, (name, _) in enumerate(self.loop.carried)}
        for place, statement in enumerate(self.loop.body.statements):
            self._read_statement(place, statement)
        _require(bool(self.products))
        loads = {name: (tile_of(type_), *self.spans[name]) for name, type_ in self.factors.items()}
        found = number_tiles(tiles, loads)
        if found is None:
            raise Unsupported("no loop of tile products")
        return TileLoop(tuple(found[1]), found[0], self.products)

    def _carry(self, type_: object) -> Tile:
        if not isinstance(type_, Coopmatrix) or type_.element not in SUMS.values():
            raise Unsupported("no loop of tile products")
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
        known = self.context.values.get(operand.name)
        if not isinstance(known, MemrefValue):
            raise Unsupported("no loop of tile products")
        return known.type

    def _read_product(self, place: int, name: str, product: CoopMulAdd) -> None:
        left, right = self.factors.get(product.left.name), self.factors.get(product.right.name)
        if left is None or right is None:
            raise Unsupported("no loop of tile products")
        total = self.sums.pop(product.accumulator.name, None)
        if total is None:
            raise Unsupported("no loop of tile products")
        _require(left.element == right.element and product.type == self.loop.types[total])
        _require(product.type.element == SUMS[left.element])
        self.sums[name] = self.products[name] = total
        for factor in (product.left.name, product.right.name):
            self.spans[factor] = (self.spans[factor][0], place)


def bounds_of(context: EmitContext, loop: For) -> tuple[ScalarValue, ScalarValue, ScalarValue | None]:
    """The bounds and the step of a loop."""
    step = context.scalar(loop.step.name) if loop.step is not None else None
    return context.scalar(loop.begin.name), context.scalar(loop.end.name), step


# --- A loop on tiles as LLVM text: sums stay in tiles from the first trip to the last -----------------------


ZERO = {"f32": "0x0000000000000000", "i32": "0"}
"""A sum of nothing, as a constant of LLVM."""
MULTIPLY = {"f32": "tdpbf16ps", "i32": "tdpbssd"}
"""The instruction that adds a product to a sum of a type."""


def emit_tile_loop(context: EmitContext, loop: For) -> list[MatrixValue] | None:
    """Write a loop on tiles; gives what it carries in the end, or None where it does not run on tiles."""
    plan = plan_tiles(context, loop)
    if plan is None:
        return None
    shapes = _name_shapes(context, plan)
    usual = context.out.surround("tiles", _shape_tiles(context, shapes), _release_tiles(context))
    if usual != _shape_tiles(context, shapes):
        context.out.line(_shape_tiles(context, shapes))
    buffers = [_start_sum(context, tile, start) for tile, (_, start) in enumerate(loop.carried)]
    _write_trips(context, loop, plan)
    for tile, buffer in enumerate(buffers):
        _call(context, "tilestored64", f"i8 {tile}, ptr {buffer}, i64 {ROW_BYTES}")
    if usual != _shape_tiles(context, shapes):
        context.out.line(usual)
    return [
        _load_sum(context, type_, buffer)
        for type_, buffer in zip(loop.types, buffers, strict=True)
        if isinstance(type_, Coopmatrix)
    ]


def _name_shapes(context: EmitContext, plan: TileLoop) -> str:
    """A constant with the shapes of all tiles."""
    content = configure(plan.tiles)
    name = f"@lamella_tiles_{content.hex()}"
    shown = "".join(f"\\{byte:02X}" for byte in content)
    context.out.need(f'{name} = private unnamed_addr constant [64 x i8] c"{shown}", align 64')
    return name


def _shape_tiles(context: EmitContext, shapes: str) -> str:
    """Tell the processor the shapes; it takes long, so that a kernel does it once where its loops agree."""
    return _spell(context, "ldtilecfg", f"ptr {shapes}")


def _release_tiles(context: EmitContext) -> str:
    """Let the system forget the tiles when it changes between threads."""
    return _spell(context, "tilerelease", "")


def _spell(context: EmitContext, name: str, operands: str) -> str:
    kinds = ", ".join(item.partition(" ")[0] for item in operands.split(", ") if item)
    context.out.need(f"declare void @llvm.x86.{name}({kinds})")
    return f"call void @llvm.x86.{name}({operands})"


def _call(context: EmitContext, name: str, operands: str) -> None:
    context.out.line(_spell(context, name, operands))


def _start_sum(context: EmitContext, tile: int, start: Value) -> str:
    """Fill the tile of a sum; gives memory for it."""
    matrix = named_matrix(context, start)
    buffer = context.out.reserve("i8", ROWS * ROW_BYTES)
    element, width = matrix.type.element, matrix.width
    if all(column == splat(context, ZERO[element], element, width) for column in matrix.parts[0]):
        _call(context, "tilezero", f"i8 {tile}")
        return buffer
    kind = llvm(element, width)
    for place, column in enumerate(matrix.parts[0]):
        pointer = context.out.value(f"getelementptr i8, ptr {buffer}, i64 {ROW_BYTES * place}")
        context.out.line(f"store {kind} {column}, ptr {pointer}, align 4")
    _call(context, "tileloadd64", f"i8 {tile}, ptr {buffer}, i64 {ROW_BYTES}")
    return buffer


def _load_sum(context: EmitContext, type_: Coopmatrix, buffer: str) -> MatrixValue:
    width = width_of(type_)
    columns = []
    for place in range(type_.columns):
        pointer = context.out.value(f"getelementptr i8, ptr {buffer}, i64 {ROW_BYTES * place}")
        columns.append(context.out.value(f"load {llvm(type_.element, width)}, ptr {pointer}, align 4"))
    return MatrixValue(type_, (tuple(columns),), width)


def _write_trips(context: EmitContext, loop: For, plan: TileLoop) -> None:
    """Count while the number is less than the end, which is tested before each trip."""
    out, (begin, end, step) = context.out, bounds_of(context, loop)
    step, kind = step or number(1, begin.element), LLVM[begin.element]
    before, body, after = out.block, out.label("tiles"), out.label("done")
    out.branch(out.value(f"icmp slt {kind} {begin.operand}, {end.operand}"), body, after)
    out.begin(body)
    hole, name = out.hole(), out.name()
    now = dynamic(name, begin.element, gcd(begin.divisor, step.divisor))
    context.values[loop.variable.name] = now
    for statement in loop.body.statements:
        _write_statement(context, plan, statement)
    following = add(context, now, step)
    out.fill(hole, f"{name} = phi {kind} [{begin.operand}, %{before}], [{following.operand}, %{out.block}]")
    out.branch(out.value(f"icmp slt {kind} {following.operand}, {end.operand}"), body, after)
    out.begin(after)


def _write_statement(context: EmitContext, plan: TileLoop, statement: Statement) -> None:
    instruction = statement.instruction
    match instruction:
        case CoopLoad():
            _write_load(context, plan.factors[statement.results[0].name], instruction)
        case CoopMulAdd(left=left, right=right, type=type_):
            total = plan.products[statement.results[0].name]
            numbers = (total, plan.factors[right.name], plan.factors[left.name])
            _call(context, MULTIPLY[type_.element], ", ".join(f"i8 {item}" for item in numbers))
        case Yield():
            pass
        case _:
            context.walk(context, (statement,))


def _write_load(context: EmitContext, tile: int, load: CoopLoad) -> None:
    layout = find_layout(context, load)
    stride = multiply(context, layout.columns.step, number(BYTES[load.type.element]))
    _call(context, "tileloadd64", f"i8 {tile}, ptr {layout.pointer}, i64 {stride.operand}")


__all__ = ["emit_tile_loop"]
