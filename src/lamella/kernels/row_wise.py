"""Kernels that compute rows apart from each other: proved from the text, and written for any number of rows.

A kernel goes *by rows* when its last mode is open (`memref<f32x512x?>`) in everything it writes, and each of its
outermost loops runs over all of it, with a variable that is nothing but the last index of operands with that mode. Then
a task on some of the rows gives just those rows of the result, and a plan may divide it into tiles.

`by_rows` writes a kernel of fixed sizes so. Its outermost loops become one: of `for a < 3 { for b < 6 { y[c,b,a] … } }`
the rows are the 18 pairs (a, b), `y` becomes `memref<f32x7x?>`. Where nothing is left inside, each element is alone,
and rows are pieces of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass, replace
from lamella.kernels.build import FreshNames, names_of
from lamella.kernels.rewrite import (
    make_names_unique,
    rename_region,
    rewrite,
    used_values,
    walk,
    with_statements,
)
from lamella.lang.tensor.nodes import (
    INDEX,
    Arith,
    Constant,
    For,
    Foreach,
    Function,
    Load,
    Memref,
    Parameter,
    Region,
    SizeOf,
    Statement,
    Store,
    Value,
)
from lamella.lang.tensor.nodes.types import make_memref

PIECE, LEAST_PIECE = 256, 16
"""Elements of a row at most where rows are pieces, and at least: below that each element is a row."""
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowKernel:
    """A kernel for any number of rows, and the shapes of its operands for all of them, outermost axis first."""

    function: Function
    shapes: tuple[Shape, ...]


def row_operands(function: Function) -> frozenset[str]:
    """The parameters that have a row for each row of the outputs, where a kernel goes by rows; else none."""
    opened = {name for name, shape in _shapes(function).items() if shape[-1:] == (None,)}
    try:
        _Proof(function, opened).run()
    except Unsupported:
        return frozenset()
    return frozenset(opened)


def by_rows(function: Function) -> RowKernel | None:
    """A kernel of fixed sizes for any number of rows, as many loops of it as can be one; None where none can."""
    function = _delinearised(make_names_unique(function))
    for depth in range(_depth(function), 0, -1):
        try:
            found = _Collapse(function, depth).run()
        except Unsupported:
            continue
        if row_operands(found.function):
            return found
    return None


class _Proof:
    """Shows that a kernel goes by rows; Unsupported where it does not."""

    def __init__(self, function: Function, opened: AbstractSet[str]) -> None:
        self.function = function
        self.shapes = _shapes(function)
        self.opened = opened
        self.zeros: set[str] = set()
        self.sizes: set[str] = set()

    def run(self) -> None:
        """Look at each statement of the outermost list."""
        _require(bool(self.opened), "no last mode is open")
        for statement in self.function.body.statements:
            item = statement.instruction
            if isinstance(item, Constant):
                self.zeros |= {value.name for value in statement.results if item.value == 0}
            elif isinstance(item, SizeOf):
                _require(item.operand.name in self.opened, "a size is that of another operand")
                self.sizes |= {
                    value.name for value in statement.results if item.mode == self._last(item.operand)
                }
            else:
                loop = _Loop.of(item)
                _require(
                    loop.begin.name in self.zeros and loop.end.name in self.sizes, "a loop leaves out rows"
                )
                self._look_into(loop)
        _require(bool(self.sizes), "no loop runs over rows")

    def _last(self, operand: Value) -> int:
        return len(self.shapes[operand.name]) - 1

    def _look_into(self, loop: _Loop) -> None:
        names = self.shapes.keys()
        for statement in walk(loop.body):
            item = statement.instruction
            used = [value.name for value in used_values(item)]
            if isinstance(item, Load | Store) and item.operand.name in self.opened:
                _require(item.indices[-1].name == loop.variable.name, "an operand is not read row by row")
                used.remove(item.operand.name)
                used.remove(loop.variable.name)
            elif isinstance(item, Load) and item.operand.name in names:
                used.remove(item.operand.name)
            _require(loop.variable.name not in used, "the number of a row is a number of the kernel")
            _require(names.isdisjoint(used), "an operand is used whole, or written and has no rows")


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop of one variable; one that is a `foreach` says nothing of the order."""

    variable: Value
    begin: Value
    end: Value
    body: Region
    parallel: bool

    @staticmethod
    def of(item: object) -> _Loop:
        """The loop that an instruction is; Unsupported where it is none of one variable and step."""
        if isinstance(item, For) and item.step is None and not item.carried:
            return _Loop(item.variable, item.begin, item.end, item.body, False)
        if isinstance(item, Foreach) and len(item.variables) == 1:
            return _Loop(item.variables[0], item.begins[0], item.ends[0], item.body, True)
        raise Unsupported("it is no loop over one variable")


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise Unsupported(problem)


def _shapes(function: Function) -> dict[str, tuple[int | None, ...]]:
    """The sizes of the modes of each operand, by name."""
    return {item.value.name: item.type.shape for item in function.parameters if isinstance(item.type, Memref)}


def _depth(function: Function) -> int:
    """How many loops stand one in the other, at least, wherever one begins."""
    found = []
    for statement in function.body.statements:
        count, item = 0, statement.instruction
        while isinstance(item, For | Foreach) and item.body.statements:
            count += 1
            item = item.body.statements[-1].instruction
        if count:
            found.append(count)
    return min(found, default=0)


# --- loops over several axes at once ------------------------------------------------------------------------


def _delinearised(function: Function) -> Function:
    """A kernel in which `for g < a·b` that uses `g / b` and `g mod b` alone is `for i < a { for j < b }`."""
    names = names_of(function)
    statements: list[Statement] = []
    for statement in function.body.statements:
        new = [statement]
        while (found := _two_loops(new[-1], _integers((*statements, *new)), names)) is not None:
            new[-1:] = found
        statements += new
    return replace(function, body=replace(function.body, statements=tuple(statements)))


def _integers(statements: Iterable[Statement]) -> dict[str, int]:
    """The values that constants of a list give to names."""
    return {
        value.name: item.instruction.value
        for item in statements
        if isinstance(item.instruction, Constant) and isinstance(item.instruction.value, int)
        for value in item.results
    }


def _two_loops(statement: Statement, known: Mapping[str, int], names: FreshNames) -> list[Statement] | None:
    """A loop over two axes at once as one in the other, with the constants that they need; None where it is none."""
    loop = statement.instruction
    if not isinstance(loop, For) or loop.step is not None or loop.carried:
        return None
    count = known.get(loop.end.name, 0) if known.get(loop.begin.name) == 0 else 0
    size = _divisor(loop, {**known, **_integers(loop.body.statements)})
    if size is None or not 1 < size < count or count % size:
        return None
    outer, inner, ends = names.new(), names.new(), (names.new(), names.new())
    renaming = {
        item.results[0].name: inner if item.instruction.function == "rem" else outer
        for item in loop.body.statements
        if isinstance(item.instruction, Arith) and item.instruction.operands[0] == loop.variable
    }
    kept = [item for item in loop.body.statements if not (item.results and item.results[0].name in renaming)]
    body = rename_region(with_statements(loop.body, kept), renaming)
    nested = Statement((), replace(loop, variable=inner, end=ends[1], body=body))
    return [
        Statement((ends[0],), Constant(count // size, INDEX)),
        Statement((ends[1],), Constant(size, INDEX)),
        Statement((), replace(loop, variable=outer, end=ends[0], body=Region((nested,)))),
    ]


def _divisor(loop: For, known: Mapping[str, int]) -> int | None:
    """The one number by which a loop divides its variable, where it does nothing else with it, and at once."""
    divisors: set[int] = set()
    own = {id(item) for item in loop.body.statements}
    for statement in walk(loop.body):
        item = statement.instruction
        if loop.variable not in used_values(item):
            continue
        divides = isinstance(item, Arith) and item.function in ("div", "rem") and id(statement) in own
        if not (isinstance(item, Arith) and divides and item.operands[0] == loop.variable):
            return None
        divisors.add(known.get(item.operands[1].name, 0))
    return divisors.pop() if len(divisors) == 1 else None


# --- writing a kernel by rows -------------------------------------------------------------------------------


class _Collapse:
    """Makes one loop of the `depth` outermost ones; Unsupported where they are not alike."""

    def __init__(self, function: Function, depth: int) -> None:
        self.function = function
        self.depth = depth
        self.names = names_of(function)
        self.constants = _integers(function.body.statements)
        self.counts: Shape = ()
        """Iterations of the loops that become one, outermost first."""
        self.shapes = _shapes(function)
        self.rows: dict[str, bool] = {}
        """Which operands go by rows, of those that were seen."""
        self.piece = 0
        """Elements of a row where each element is alone; 0 where rows have modes of their own."""

    def run(self) -> RowKernel:
        """The kernel, and the shapes of its operands."""
        body = self.function.body.statements
        nests = [self._nest(item) for item in body if not isinstance(item.instruction, Constant)]
        for nest, _ in nests:
            self._look(nest)
        opened = [name for name in self.shapes if self.rows.get(name)]
        _require(bool(opened) and prod(self.counts) > 1, "nothing goes by rows")
        inner = [self._inner(name) for name in opened]
        if not any(inner):
            self.piece = _piece(prod(self.counts))
        size, zero, width = (self.names.new() for _ in range(3))
        head = [
            Statement((zero,), Constant(0, INDEX)),
            Statement((size,), SizeOf(Value(opened[0]), len(inner[0]) + bool(self.piece))),
            *([Statement((width,), Constant(self.piece, INDEX))] if self.piece else []),
        ]
        constants = [item for item in body if isinstance(item.instruction, Constant)]
        constants += [item for _, between in nests for item in between]
        loops = [self._write(nest, (zero, size, width)) for nest, _ in nests]
        parameters = tuple(self._parameter(item) for item in self.function.parameters)
        statements = (*head, *self._needed(constants, loops), *loops)
        function = replace(self.function, parameters=parameters, body=Region(statements))
        return RowKernel(function, tuple(self._shape(item) for item in self.function.parameters))

    def _nest(self, statement: Statement) -> tuple[list[_Loop], list[Statement]]:
        """Loops one in the other, and the constants that stand between them."""
        loops = [_Loop.of(statement.instruction)]
        constants: list[Statement] = []
        while len(loops) < self.depth:
            *before, last = loops[-1].body.statements
            _require(all(isinstance(item.instruction, Constant) for item in before), "loops are not nested")
            self.constants |= _integers(before)
            constants += before
            loops.append(_Loop.of(last.instruction))
        counts = tuple(self._count(item) for item in loops)
        _require(self.counts in ((), counts), "loops have different lengths")
        self.counts = counts
        return loops, constants

    def _count(self, loop: _Loop) -> int:
        known = self.constants
        _require(
            known.get(loop.begin.name) == 0 and loop.end.name in known, "a loop is not from 0 to a constant"
        )
        return known[loop.end.name]

    def _long(self, name: str) -> list[int]:
        """The modes of an operand that have more than one element."""
        return [mode for mode, size in enumerate(self.shapes[name]) if size != 1]

    def _inner(self, name: str) -> list[int]:
        """The modes inside a row."""
        return self._long(name)[: -self.depth]

    def _look(self, loops: Sequence[_Loop]) -> None:
        """Which operands go by rows: their outermost modes are the variables of the loops, in all places alike."""
        variables = [loop.variable.name for loop in reversed(loops)]
        wanted = list(reversed(self.counts))
        for statement in walk(loops[-1].body):
            item = statement.instruction
            if not isinstance(item, Load | Store) or item.operand.name not in self.shapes:
                continue
            name, shape = item.operand.name, self.shapes[item.operand.name]
            outer = self._long(name)[-self.depth :]
            rows = [item.indices[mode].name for mode in outer] == variables
            rows = rows and [shape[mode] for mode in outer] == wanted
            _require(self.rows.setdefault(name, rows) == rows, "an operand is read in two ways")

    @staticmethod
    def _needed(constants: Sequence[Statement], body: Sequence[Statement]) -> list[Statement]:
        """The constants that are still asked for."""
        used = _names_used(Region(tuple(body)))
        return [item for item in constants if not used.isdisjoint(value.name for value in item.results)]

    def _write(self, loops: Sequence[_Loop], known: tuple[Value, Value, Value]) -> Statement:
        """The one loop of a nest; `known` are zero, the number of rows, and the elements of a piece."""
        zero, size, width = known
        row, place = self.names.new(), self.names.new()
        indices = (place, row) if self.piece else (row,)
        body = self._rewritten(loops[-1].body, indices)
        variables = {loop.variable.name for loop in loops}
        _require(variables.isdisjoint(_names_used(body)), "the number of a row is a number of the kernel")
        if self.piece:
            body = Region((Statement((), Foreach((place,), (zero,), (width,), body)),))
        parallel = loops[-1].parallel and not self.piece
        loop = Foreach((row,), (zero,), (size,), body) if parallel else For(row, zero, size, body)
        return Statement((), loop)

    def _rewritten(self, region: Region, indices: tuple[Value, ...]) -> Region:
        def visit(found: Region, _: bool) -> Region:
            return with_statements(found, [change(item) for item in found.statements])

        def change(statement: Statement) -> Statement:
            item = statement.instruction
            if not isinstance(item, Load | Store) or not self.rows.get(item.operand.name):
                return statement
            inner = tuple(item.indices[mode] for mode in self._inner(item.operand.name))
            return replace(statement, instruction=replace(item, indices=(*inner, *indices)))

        return rewrite(region, visit)

    def _sizes(self, name: str) -> Shape:
        """The sizes of the modes inside a row, innermost first."""
        shape = self.shapes[name]
        inner = tuple(shape[mode] or 0 for mode in self._inner(name))
        return (self.piece,) if self.piece else inner

    def _parameter(self, item: Parameter) -> Parameter:
        if not self.rows.get(item.value.name) or not isinstance(item.type, Memref):
            return item
        shape = (*self._sizes(item.value.name), None)
        return replace(item, type=make_memref(item.type.element, shape))

    def _shape(self, item: Parameter) -> Shape:
        name = item.value.name
        if not self.rows.get(name):
            return tuple(size or 0 for size in reversed(self.shapes.get(name, ())))
        count = prod(self.counts) // (self.piece or 1)
        return (count, *reversed(self._sizes(name)))


def _names_used(region: Region) -> set[str]:
    return {value.name for item in walk(region) for value in used_values(item.instruction)}


def _piece(count: int) -> int:
    """The elements of a row where each element is alone; 0 where they have no divisor that is worth it."""
    found = next(size for size in range(min(PIECE, count // 2), 0, -1) if count % size == 0)
    return found if found >= LEAST_PIECE else 0
