"""Which kernels stream tiles on Hopper, and how: left operands come by TMA in the order of the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.backend.cpu.compiled import Pipeline, TensorMap
from lamella.backend.cpu.convention import slots_of
from lamella.backend.cpu.emit.pipeline_plan import ATOM, BLOCK_BYTES, LINE, MOST_STAGES, PURE, STEP, WARPGROUP
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.fragments import COLUMNS, DEPTH, FACTORS
from lamella.kernels.rewrite import used_values
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Barrier,
    Builtin,
    Cast,
    Constant,
    CoopLoad,
    CoopMulAdd,
    For,
    Function,
    If,
    Instruction,
    Memref,
    Parallel,
    Region,
    Scalar,
    Statement,
    Subview,
    Value,
    Yield,
)

MOST_ROWS, MOST_WARPGROUPS = 256, 3
USED, ONE = Value("stages used"), Value("one stage")
"""How many stages were used before, and 1: no name of a text has a blank."""
COUNTER = Scalar("i32")
WARPGROUP_COLUMNS = 4 * COLUMNS
RESIDENT_BARRIERS = 16
"""Bytes of the two barriers of a resident operand."""
NEVER = 0xFFC0DEAD


def _require(holds: bool) -> None:
    if not holds:
        raise Unsupported("no kernel that streams tiles")


# --- which kernels suit ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResidentOperand:
    """A right operand of all subgroups, side by side, which stays in shared memory while a work-group runs."""

    load: CoopLoad
    base: str
    """Where the columns of the first subgroup begin."""
    source: int
    """Its tensor map."""
    offset: int
    """Its offset behind the stages."""
    barrier: int
    """The offset of its barriers behind those of the stages: full, and free."""
    last: int
    """The last statement of a work-group that reads it."""

    def step(self, number: int, columns: int) -> int:
        """How far the descriptor of the next 16 elements along k is from that of the first."""
        panel, within = divmod(number * DEPTH, STEP)
        return (panel * columns * LINE + within * 2) >> 4


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A kernel that streams tiles."""

    statements: tuple[Statement, ...]
    """Those of a work-group; loops carry how many stages were used before."""
    copying: tuple[Statement, ...]
    """The program slice of the producer: the statements that tell positions and trips."""
    counters: Mapping[str, str]
    """For each tile, by the name of its load, what holds how many stages were used before it."""
    releases: Mapping[str, str]
    """For each product, by its name, the tile that nobody reads after it."""
    maps: tuple[TensorMap, ...]
    sources: Mapping[str, int]
    """The tensor map of each tile."""
    last: str
    """What holds how many stages were used in the end."""
    warpgroups: int
    stages: int
    stage_bytes: int
    slots: int
    views: Mapping[str, Subview]
    """Parts of parameters that tiles are read from."""
    transposed: Mapping[str, str] = field(default_factory=dict)
    """Loads of tiles that lie there already, with the loads that brought them."""
    resident: Mapping[str, ResidentOperand] = field(default_factory=dict)
    resident_bytes: int = 0
    staged_bytes: int = 0
    cluster: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.warpgroups + 1) * WARPGROUP

    @property
    def columns(self) -> int:
        """Columns of a work-group."""
        return self.warpgroups * WARPGROUP_COLUMNS

    @property
    def pipeline(self) -> Pipeline:
        """The launch parameters of the stream."""
        resident = self.resident_bytes + RESIDENT_BARRIERS * len(self.resident)
        return Pipeline(self.threads, ATOM + self.stages * (self.stage_bytes + 16) + resident, self.maps)


def find_stream(function: Function, target: Target) -> StreamPlan | None:
    """The stream of a kernel whose matrices are fragments; None where it does not suit."""
    if not target.has_warpgroups:
        return None
    try:
        return _StreamReader(function).read()
    except Unsupported:
        return None


@dataclass(slots=True)
class _StreamReader:
    """Recognises a stream of tiles."""

    function: Function
    even: set[str] = field(default_factory=set)
    """Uniform integers: all work-items of a work-group agree on them, and they depend on its number alone."""
    loads: dict[str, CoopLoad] = field(default_factory=dict)
    products: dict[str, CoopMulAdd] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    """The last product that reads each tile."""
    counters: dict[str, str] = field(default_factory=dict)
    views: dict[str, Subview] = field(default_factory=dict)
    """Parts of parameters, at positions that all work-items agree on."""
    transposed: dict[str, str] = field(default_factory=dict)
    own: dict[str, str | int] = field(default_factory=dict)
    """Integers that count columns of subgroups: so many for each, or from where on each has its 16."""
    numbers: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, CoopLoad] = field(default_factory=dict)
    """Candidates for resident operands."""
    made: int = 0

    def read(self) -> StreamPlan:
        """Unsupported: it does not suit."""
        rows, columns = default_sizes(self.function).work_group_size
        warpgroups, rest = divmod(rows, WARPGROUP)
        _require(columns == 1 and not rest and 1 <= warpgroups <= MOST_WARPGROUPS)
        *outside, region = self.function.body.statements
        parallel = region.instruction
        if not isinstance(parallel, Parallel):
            raise Unsupported("it is not parallel")
        whole = (*outside, *parallel.body.statements)
        self._follow(whole, 0)
        _require(bool(self.loads) and set(self.readers) == set(self.loads))
        statements, last = self._count(whole, USED)
        maps: list[TensorMap] = []
        sources = {name: _number_of(maps, self._map(load)) for name, load in self.loads.items()}
        resident = self._hold(statements, maps, warpgroups * WARPGROUP_COLUMNS)
        resident_bytes = sum(tile_bytes(item.load) * 4 * warpgroups for item in resident.values())
        size = max(map(tile_bytes, self.loads.values()))
        room = BLOCK_BYTES - ATOM - resident_bytes - RESIDENT_BARRIERS * len(resident)
        stages = min(MOST_STAGES, room // (size + 16))
        _require(stages >= 2)
        self.waiting = {name: item.load for name, item in resident.items()}
        return StreamPlan(
            statements,
            self._slice(statements, last),
            self.counters,
            {product: tile for tile, product in self.readers.items()},
            tuple(maps),
            sources,
            last.name,
            warpgroups,
            stages,
            size,
            sum(len(slots_of(item)) for item in self.function.parameters),
            self.views,
            self.transposed,
            resident,
            resident_bytes,
        )

    def _follow(self, statements: Sequence[Statement], depth: int) -> None:
        own: set[str] = set()
        for statement in statements:
            node, names = statement.instruction, [item.name for item in statement.results]
            _require(not isinstance(node, Alloca | Barrier))
            used = {item.name for item in used_values(node)}
            match node:
                case CoopLoad() if node.type.use == "matrix_a":
                    self._require_tile(node)
                    same = next((item for item in own if self._is_transposed(node, item)), None)
                    if same is None:
                        self.loads[names[0]] = node
                    else:
                        self.transposed[names[0]] = same
                    own.add(names[0])
                case CoopLoad() if node.type.use == "matrix_b" and not depth and self._may_stay(node):
                    self.waiting[names[0]] = node
                case CoopMulAdd():
                    # A tile is read where it is loaded, so that it is known when it may go.
                    _require(node.left.name in own and node.type.columns == COLUMNS)
                    _require(node.type.rows <= MOST_ROWS and node.right.name not in own)
                    self.products[names[0]] = node
                    self.readers[self.transposed.get(node.left.name, node.left.name)] = names[0]
                case For():
                    _require(not used & self._tiles)
                    bounds = {item.name for item in (node.begin, node.end, node.step) if item is not None}
                    before = len(self.loads)
                    if bounds <= self.even:
                        self.even.add(node.variable.name)
                    self._follow(node.body.statements, depth + 1)
                    _require(bounds <= self.even or len(self.loads) == before)
                case If():
                    before = len(self.loads)
                    for region in (node.then, node.otherwise):
                        self._follow(region.statements if region is not None else (), depth + 1)
                    _require(len(self.loads) == before)
                case Subview():
                    starts = {item.offset.name for item in node.slices if isinstance(item.offset, Value)}
                    if starts <= self.even:
                        self.views[names[0]] = node
                case Builtin():
                    if node.name in ("group_id", "group_size"):
                        self.even.update(names)
                    elif node.name == "subgroup_id":
                        self.own[names[0]] = 1
                case _:
                    _require(not used & self._tiles)
                    if isinstance(node, PURE) and used <= self.even:
                        self.even.update(names)
                    if names:
                        self._count_columns(names[0], node)

    @property
    def _tiles(self) -> set[str]:
        return {*self.loads, *self.transposed}

    def _count_columns(self, name: str, node: Instruction) -> None:
        """Know what multiples of the subgroup's number are, and what is one of them behind an even place."""
        if isinstance(node, Constant) and isinstance(node.value, int):
            self.numbers[name] = node.value
        elif isinstance(node, Cast):
            each = self.own.get(node.operand.name)
            if isinstance(each, int):
                self.own[name] = each
        elif isinstance(node, Arith) and len(node.operands) == 2:
            first, second = (item.name for item in node.operands)
            if second in self.own:
                first, second = second, first
            each = self.own.get(first)
            if node.function == "mul" and isinstance(each, int) and second in self.numbers:
                self.own[name] = each * self.numbers[second]
            elif node.function == "add" and each == COLUMNS and second in self.even:
                self.own[name] = second

    def _is_transposed(self, load: CoopLoad, name: str) -> bool:
        """Whether a tile is one that is there already, seen transposed."""
        other = self.loads.get(name)
        if other is None or other.transposed == load.transposed:
            return False
        same = (other.operand, other.row, other.column) == (load.operand, load.row, load.column)
        return same and (other.type.rows, other.type.columns) == (load.type.columns, load.type.rows)

    def _may_stay(self, load: CoopLoad) -> bool:
        """Whether all subgroups load a right operand side by side, whole panels of 128 bytes, once."""
        kind = load.type
        plain = kind.element in FACTORS and not (load.checked or load.transposed)
        whole = kind.rows % STEP == 0 and kind.columns == COLUMNS and load.row.name in self.even
        return plain and whole and isinstance(self.own.get(load.column.name), str)

    def _hold(
        self, statements: Sequence[Statement], maps: list[TensorMap], columns: int
    ) -> dict[str, ResidentOperand]:
        """The resident right operands: nothing but products reads them, and TMA can bring them."""
        found: dict[str, ResidentOperand] = {}
        offset = 0
        for name, load in self.waiting.items():
            readers = [item for item in _deep(Region(tuple(statements))) if _reads(item, name)]
            if not readers or not all(_multiplies(item, name) for item in readers):
                continue
            try:
                kind = replace(load.type, rows=load.type.columns, columns=columns)
                source = _number_of(maps, self._map(replace(load, type=kind)))
            except Unsupported:
                continue
            last = max(number for number, item in enumerate(statements) if _holds_reader(item, name))
            base = str(self.own[load.column.name])
            found[name] = ResidentOperand(load, base, source, offset, RESIDENT_BARRIERS * len(found), last)
            offset += load.type.rows * 2 * columns
        return found

    def _require_tile(self, load: CoopLoad) -> None:
        """Whole panels of 128 bytes, at a position that all subgroups agree on, of a parameter; nothing is checked."""
        rows, depth = load.type.rows, load.type.columns
        along, across = (depth, rows) if load.transposed else (rows, depth)
        _require({load.row.name, load.column.name} <= self.even and not load.checked)
        _require(
            load.type.element in FACTORS and along % STEP == 0 and across % 8 == 0 and across <= MOST_ROWS
        )

    def _map(self, load: CoopLoad) -> TensorMap:
        slot, view = 0, self.views.get(load.operand.name)
        name = load.operand.name if view is None else view.operand.name
        for item in self.function.parameters:
            if item.value.name == name:
                break
            slot += len(slots_of(item))
        else:
            raise Unsupported("it is no parameter")
        found = item.type
        if not isinstance(found, Memref) or found.order != 2:
            raise Unsupported("it is no matrix")
        (rows, columns), (first, stride) = found.shape, found.stride
        if first != 1 or rows is None or columns is None or stride is None or stride % 8:
            raise Unsupported("the copy engine cannot read it")
        across = load.type.rows if load.transposed else load.type.columns
        return TensorMap(slot, found.element, (rows, columns), stride, across)

    # --- statements that count, and those that copy ------------------------------------------------------------

    def _count(self, statements: Sequence[Statement], used: Value) -> tuple[tuple[Statement, ...], Value]:
        """Statements that count stages behind each tile, and what holds the count in the end."""
        found: list[Statement] = []
        for statement in statements:
            node = statement.instruction
            if isinstance(node, For) and self._has_tiles(node.body):
                statement, used = self._count_loop(statement, node, used)
            found.append(statement)
            if statement.results and statement.results[0].name in self.loads:
                self.counters[statement.results[0].name] = used.name
                following = self._name()
                found.append(Statement((following,), Arith("add", (used, ONE), COUNTER)))
                used = following
        return tuple(found), used

    def _count_loop(self, statement: Statement, loop: For, used: Value) -> tuple[Statement, Value]:
        begin, end = self._name(), self._name()
        body, last = self._count(loop.body.statements, begin)
        *before, final = (
            body if isinstance(body[-1].instruction, Yield) else (*body, Statement((), Yield(())))
        )
        given = final.instruction
        values = given.values if isinstance(given, Yield) else ()
        closed = replace(final, instruction=Yield((*values, last)))
        counted = replace(
            loop,
            body=replace(loop.body, statements=(*before, closed)),
            carried=(*loop.carried, (begin, used)),
            types=(*loop.types, COUNTER),
        )
        return replace(statement, results=(*statement.results, end), instruction=counted), end

    def _name(self) -> Value:
        self.made += 1
        return Value(f"stages used {self.made}")

    def _has_tiles(self, region: Region) -> bool:
        return any(item.name in self.loads for one in _deep(region) for item in one.results)

    def _slice(self, statements: Sequence[Statement], last: Value) -> tuple[Statement, ...]:
        """The program slice of the producer: tiles, and what their positions, trips and counts are made of."""
        needed = {last.name}
        size = -1
        while size != len(needed):
            size = len(needed)
            for statement in _deep(Region(tuple(statements))):
                node = statement.instruction
                names = {item.name for item in statement.results}
                if isinstance(node, For):
                    if self._has_tiles(node.body):
                        needed |= {
                            item.name for item in (node.begin, node.end, node.step) if item is not None
                        }
                        needed |= {node.carried[-1][1].name}
                        needed |= {node.body.statements[-1].instruction.values[-1].name}  # type: ignore[union-attr]
                elif isinstance(node, CoopLoad) and names & (set(self.loads) | set(self.waiting)):
                    column = self.own[node.column.name] if names & set(self.waiting) else node.column.name
                    needed |= {node.row.name, str(column)}
                    view = self.views.get(node.operand.name)
                    if view is not None:
                        needed |= {item.offset.name for item in view.slices if isinstance(item.offset, Value)}
                elif names & needed:
                    needed |= {item.name for item in used_values(node)}
        return self._kept(statements, needed)

    def _kept(self, statements: Sequence[Statement], needed: set[str]) -> tuple[Statement, ...]:
        found = []
        for statement in statements:
            node, names = statement.instruction, {item.name for item in statement.results}
            if isinstance(node, For):
                if self._has_tiles(node.body):
                    *inner, final = node.body.statements
                    count = final.instruction.values[-1:] if isinstance(final.instruction, Yield) else ()
                    body = (*self._kept(inner, needed), Statement((), Yield(count)))
                    loop = replace(
                        node,
                        body=replace(node.body, statements=body),
                        carried=node.carried[-1:],
                        types=node.types[-1:],
                    )
                    found.append(replace(statement, results=statement.results[-1:], instruction=loop))
            elif names & (needed | set(self.loads) | set(self.waiting)):
                found.append(statement)
        return tuple(found)


def _deep(region: Region) -> Iterator[Statement]:
    """Statements of a region and of the loops in it."""
    waiting = list(region.statements)
    while waiting:
        statement = waiting.pop()
        yield statement
        if isinstance(statement.instruction, For):
            waiting += statement.instruction.body.statements


def _number_of(maps: list[TensorMap], found: TensorMap) -> int:
    """The number of a map, which is new or one that is there."""
    if found not in maps:
        maps.append(found)
    return maps.index(found)


def _reads(statement: Statement, name: str) -> bool:
    return any(item.name == name for item in used_values(statement.instruction))


def _multiplies(statement: Statement, name: str) -> bool:
    """Whether a statement reads a matrix as the right factor of a product alone."""
    node = statement.instruction
    return isinstance(node, CoopMulAdd) and node.right.name == name != node.accumulator.name


def _holds_reader(statement: Statement, name: str) -> bool:
    return any(_reads(item, name) for item in _deep(Region((statement,))))


def tile_bytes(load: CoopLoad) -> int:
    """The bytes of a tile in shared memory."""
    return prod((load.type.rows, load.type.columns)) * 2
