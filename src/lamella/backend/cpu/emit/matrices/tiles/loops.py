"""A loop on tiles as LLVM text: sums stay in tiles from the first trip to the last."""

from __future__ import annotations

from math import gcd

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.integers import add, dynamic, multiply, number
from lamella.backend.cpu.emit.matrices.places import find_layout
from lamella.backend.cpu.emit.matrices.shapes import named_matrix, width_of
from lamella.backend.cpu.emit.matrices.tiles.pattern import Plan, bounds_of, plan_tiles
from lamella.backend.cpu.emit.matrices.tiles.shapes import ROW_BYTES, ROWS, configure
from lamella.backend.cpu.emit.matrices.vectors import splat
from lamella.backend.cpu.emit.values import LLVM, Matrix, llvm
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import CoopLoad, Coopmatrix, CoopMulAdd, For, Statement, Value, Yield

ZERO = {"f32": "0x0000000000000000", "i32": "0"}
"""A sum of nothing, as a constant of LLVM."""
MULTIPLY = {"f32": "tdpbf16ps", "i32": "tdpbssd"}
"""The instruction that adds a product to a sum of a type."""


def emit_tile_loop(here: Here, loop: For) -> list[Matrix] | None:
    """Write a loop on tiles; gives what it carries in the end, or None where it does not run on tiles."""
    plan = plan_tiles(here, loop)
    if plan is None:
        return None
    shapes = _name_shapes(here, plan)
    usual = here.out.surround("tiles", _shape_tiles(here, shapes), _release_tiles(here))
    if usual != _shape_tiles(here, shapes):
        here.out.line(_shape_tiles(here, shapes))
    buffers = [_start_sum(here, tile, start) for tile, (_, start) in enumerate(loop.carried)]
    _write_trips(here, loop, plan)
    for tile, buffer in enumerate(buffers):
        _call(here, "tilestored64", f"i8 {tile}, ptr {buffer}, i64 {ROW_BYTES}")
    if usual != _shape_tiles(here, shapes):
        here.out.line(usual)
    return [
        _load_sum(here, type_, buffer)
        for type_, buffer in zip(loop.types, buffers, strict=True)
        if isinstance(type_, Coopmatrix)
    ]


def _name_shapes(here: Here, plan: Plan) -> str:
    """A constant with the shapes of all tiles."""
    content = configure(plan.tiles)
    name = f"@lamella_tiles_{content.hex()}"
    shown = "".join(f"\\{byte:02X}" for byte in content)
    here.out.need(f'{name} = private unnamed_addr constant [64 x i8] c"{shown}", align 64')
    return name


def _shape_tiles(here: Here, shapes: str) -> str:
    """Tell the processor the shapes; it takes long, so that a kernel does it once where its loops agree."""
    return _spell(here, "ldtilecfg", f"ptr {shapes}")


def _release_tiles(here: Here) -> str:
    """Let the system forget the tiles when it changes between threads."""
    return _spell(here, "tilerelease", "")


def _spell(here: Here, name: str, operands: str) -> str:
    kinds = ", ".join(item.partition(" ")[0] for item in operands.split(", ") if item)
    here.out.need(f"declare void @llvm.x86.{name}({kinds})")
    return f"call void @llvm.x86.{name}({operands})"


def _call(here: Here, name: str, operands: str) -> None:
    here.out.line(_spell(here, name, operands))


def _start_sum(here: Here, tile: int, start: Value) -> str:
    """Fill the tile of a sum; gives memory for it."""
    matrix = named_matrix(here, start)
    buffer = here.out.reserve("i8", ROWS * ROW_BYTES)
    element, width = matrix.type.element, matrix.width
    if all(column == splat(here, ZERO[element], element, width) for column in matrix.parts[0]):
        _call(here, "tilezero", f"i8 {tile}")
        return buffer
    kind = llvm(element, width)
    for place, column in enumerate(matrix.parts[0]):
        pointer = here.out.value(f"getelementptr i8, ptr {buffer}, i64 {ROW_BYTES * place}")
        here.out.line(f"store {kind} {column}, ptr {pointer}, align 4")
    _call(here, "tileloadd64", f"i8 {tile}, ptr {buffer}, i64 {ROW_BYTES}")
    return buffer


def _load_sum(here: Here, type_: Coopmatrix, buffer: str) -> Matrix:
    width = width_of(type_)
    columns = []
    for place in range(type_.columns):
        pointer = here.out.value(f"getelementptr i8, ptr {buffer}, i64 {ROW_BYTES * place}")
        columns.append(here.out.value(f"load {llvm(type_.element, width)}, ptr {pointer}, align 4"))
    return Matrix(type_, (tuple(columns),), width)


def _write_trips(here: Here, loop: For, plan: Plan) -> None:
    """Count while the number is less than the end, which is tested before each trip."""
    out, (begin, end, step) = here.out, bounds_of(here, loop)
    step, kind = step or number(1, begin.element), LLVM[begin.element]
    before, body, after = out.block, out.label("tiles"), out.label("done")
    out.branch(out.value(f"icmp slt {kind} {begin.operand}, {end.operand}"), body, after)
    out.begin(body)
    hole, name = out.hole(), out.name()
    now = dynamic(name, begin.element, gcd(begin.divisor, step.divisor))
    here.values[loop.variable.name] = now
    for statement in loop.body.statements:
        _write_statement(here, plan, statement)
    following = add(here, now, step)
    out.fill(hole, f"{name} = phi {kind} [{begin.operand}, %{before}], [{following.operand}, %{out.block}]")
    out.branch(out.value(f"icmp slt {kind} {following.operand}, {end.operand}"), body, after)
    out.begin(after)


def _write_statement(here: Here, plan: Plan, statement: Statement) -> None:
    instruction = statement.instruction
    match instruction:
        case CoopLoad():
            _write_load(here, plan.factors[statement.results[0].name], instruction)
        case CoopMulAdd(left=left, right=right, type=type_):
            total = plan.products[statement.results[0].name]
            numbers = (total, plan.factors[right.name], plan.factors[left.name])
            _call(here, MULTIPLY[type_.element], ", ".join(f"i8 {item}" for item in numbers))
        case Yield():
            pass
        case _:
            here.walk(here, (statement,))


def _write_load(here: Here, tile: int, load: CoopLoad) -> None:
    layout = find_layout(here, load)
    stride = multiply(here, layout.columns.step, number(BYTES[load.type.element]))
    _call(here, "tileloadd64", f"i8 {tile}, ptr {layout.pointer}, i64 {stride.operand}")
