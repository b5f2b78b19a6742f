"""Kernels that stream tiles on Hopper: every matrix_a comes through the copy engine, in the order of the text.

A kernel suits whose subgroups all load the same tiles as left factors, anywhere among its statements and loops, and
multiply them with 16 columns of their own: attention, whose loop has two products with rows of sums between them. One
thread beside the warpgroups runs the statements that tell positions and trips, and copies; stages follow each other in
a ring. Products are begun and not waited for: who uses their sums waits, so that those of one tile run while what was
made of another is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.backend.cpu.compiled import Pipeline, TensorMap
from lamella.backend.cpu.convention import slots_of
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import dynamic, number
from lamella.backend.cpu.emit.matrices.layout import named_matrix
from lamella.backend.cpu.emit.pipeline_plan import ATOM, BLOCK_BYTES, LINE, MOST_STAGES, PURE, STEP, WARPGROUP
from lamella.backend.cpu.emit.pipelines import COPY, PipelineEmitter, wait_lines
from lamella.backend.cpu.emit.scalars import make_constant
from lamella.backend.cpu.emit.values import MatrixValue
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.fragments import COLUMNS, DEPTH, FACTORS, SUMS
from lamella.kernels.rewrite import used_values
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Barrier,
    Builtin,
    CoopLoad,
    CoopMulAdd,
    CoopReduce,
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
NEVER = 0xFFC0DEAD


def _require(holds: bool) -> None:
    if not holds:
        raise Unsupported("no kernel that streams tiles")


# --- which kernels suit ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A kernel as it streams tiles."""

    statements: tuple[Statement, ...]
    """Those of a work-group; loops carry how many stages were used before."""
    copying: tuple[Statement, ...]
    """Those of them that tell positions and trips."""
    counters: Mapping[str, str]
    """For each tile, by the name of its load, what holds how many stages were used before it."""
    releases: Mapping[str, str]
    """For each product, by its name, the tile that nobody reads after it."""
    maps: tuple[TensorMap, ...]
    sources: Mapping[str, int]
    """For each tile its map."""
    last: str
    """What holds how many stages were used in the end."""
    warpgroups: int
    stages: int
    stage_bytes: int
    slots: int
    views: Mapping[str, Subview]
    """Parts of parameters that tiles are read from."""
    staged_bytes: int = 0
    cluster: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.warpgroups + 1) * WARPGROUP

    @property
    def pipeline(self) -> Pipeline:
        """What a launch has to know."""
        return Pipeline(self.threads, ATOM + self.stages * (self.stage_bytes + 16), self.maps)


def find_stream(function: Function, target: Target) -> StreamPlan | None:
    """How a kernel whose matrices lie in fragments streams its left factors; None where it does not."""
    if not target.has_warpgroups:
        return None
    try:
        return _StreamReader(function).read()
    except Unsupported:
        return None


@dataclass(slots=True)
class _StreamReader:
    """Reads a kernel."""

    function: Function
    even: set[str] = field(default_factory=set)
    """Integers that all work-items of a work-group agree on, made of nothing but its number."""
    loads: dict[str, CoopLoad] = field(default_factory=dict)
    products: dict[str, CoopMulAdd] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    """The last product that reads each tile."""
    counters: dict[str, str] = field(default_factory=dict)
    views: dict[str, Subview] = field(default_factory=dict)
    """Parts of parameters, at positions that all work-items agree on."""
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
        sources = {}
        for name, load in self.loads.items():
            found = self._map(load)
            if found not in maps:
                maps.append(found)
            sources[name] = maps.index(found)
        size = max(map(tile_bytes, self.loads.values()))
        stages = min(MOST_STAGES, (BLOCK_BYTES - ATOM) // (size + 16))
        _require(stages >= 2)
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
                    self.loads[names[0]] = node
                    own.add(names[0])
                case CoopMulAdd():
                    # A tile is read where it is loaded, so that it is known when it may go.
                    _require(node.left.name in own and node.type.columns == COLUMNS)
                    _require(node.type.rows <= MOST_ROWS and node.right.name not in self.loads)
                    self.products[names[0]] = node
                    self.readers[node.left.name] = names[0]
                case For():
                    _require(not used & set(self.loads))
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
                case _:
                    _require(not used & set(self.loads))
                    if isinstance(node, PURE) and used <= self.even:
                        self.even.update(names)

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
        """What the thread that copies runs: tiles, and what their positions, trips and counts are made of."""
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
                elif isinstance(node, CoopLoad) and names & set(self.loads):
                    needed |= {node.row.name, node.column.name}
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
            elif names & (needed | set(self.loads)):
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


def tile_bytes(load: CoopLoad) -> int:
    """What a tile takes of local memory."""
    return prod((load.type.rows, load.type.columns)) * 2


# --- the kernel ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Begun:
    """A product that nobody has waited for: its sums unless another adds to them, the stage that is free then."""

    name: str
    matrix: MatrixValue | None
    stage: str | None


class StreamEmitter(PipelineEmitter):
    """Writes a kernel that streams tiles."""

    def __init__(self, context: EmitContext, plan: StreamPlan) -> None:
        super().__init__(context, plan)
        self._stream = plan
        self._begun: list[_Begun] = []
        self._tiles: dict[str, tuple[CoopLoad, str, str]] = {}
        """For each tile its load, the barrier of its stage and where that begins."""
        self._copies = False
        self._computed = ""
        """The last reduction that stands behind the products that are under way."""

    def _run(self, statements: Sequence[Statement], used: str) -> str:
        context = self._context
        context.collective = False
        context.values[USED.name] = dynamic(used, "i32")
        context.values[ONE.name] = number(1, "i32")
        context.stream = self
        context.walk(context, statements)
        context.stream = None
        return context.scalar(self._stream.last).operand

    def _produce(self, used: str) -> str:
        self._copies = True
        return self._run(self._stream.copying, used)

    def _consume(self, used: str) -> str:
        self._copies = False
        found = self._run(self._stream.statements, used)
        self._wait_all()
        return found

    # --- tiles ----------------------------------------------------------------------------------------------

    def take(self, statement: Statement) -> bool:
        """Emit tiles and their products; of other statements, wait for the sums that they use."""
        node = statement.instruction
        self._wait_for(node)
        name = statement.results[0].name if statement.results else ""
        if isinstance(node, CoopReduce) and not self._copies:
            self._computed = name
        if isinstance(node, CoopLoad) and name in self._stream.counters:
            self._load(node, name)
            return True
        if isinstance(node, CoopMulAdd):
            self._context.values[name] = self._multiply(node, name)
            return True
        return False

    def _wait_for(self, node: Instruction) -> None:
        """Wait for sums that are used; what a product adds to may still be under way."""
        names = {item.name for item in used_values(node)}
        if isinstance(node, CoopMulAdd):
            names.discard(node.accumulator.name)
        if isinstance(node, For):
            self._wait_all()
        for place in reversed(range(len(self._begun))):
            if self._begun[place].name in names:
                self._wait(place + 1)
                break

    def _load(self, load: CoopLoad, name: str) -> None:
        """Copy a tile to its stage, or wait until it lies there."""
        out, plan = self._out, self._stream
        stage, parity = self._begin_stage(self._context.scalar(plan.counters[name]).operand)
        offset = out.value(f"mul i32 {stage}, {plan.stage_bytes}")
        place = out.value(f"add i32 {self._memory}, {offset}")
        full = out.value(f"add i32 {self._barriers}, {out.value(f'shl i32 {stage}, 3')}")
        if self._copies:
            self._copy(load, name, (place, full, out.value(f"xor i32 {parity}, 1")))
            return
        text = "\\0A".join(["{", ".reg .pred p;", *wait_lines("$0", "$1", "FULL"), "}"])
        self._asm(text, "r,r", f"i32 {full}, i32 {parity}")
        self._tiles[name] = load, full, place

    def _start(self, load: CoopLoad, mode: int) -> str:
        """Where a tile begins in its array, along a mode."""
        place = self._position((load.row, load.column)[mode].name)
        view = self._stream.views.get(load.operand.name)
        if view is None:
            return place
        offset = view.slices[mode].offset
        first = self._position(offset.name) if isinstance(offset, Value) else str(offset)
        return self._out.value(f"add i32 {place}, {first}")

    def _copy(self, load: CoopLoad, name: str, place: tuple[str, str, str]) -> None:
        plan = self._stream
        row, column = self._start(load, 0), self._start(load, 1)
        along = load.type.columns if load.transposed else load.type.rows
        across = load.type.rows if load.transposed else load.type.columns
        lines = [
            "{",
            ".reg .pred p;",
            ".reg .b32 e, d, r;",
            f"add.u32 e, $1, {8 * plan.stages};",
            *wait_lines("e", "$2", "FREE"),
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], {tile_bytes(load)};",
        ]
        for panel in range(along // STEP):
            lines += [
                f"add.u32 d, $0, {panel * across * LINE};",
                f"add.u32 r, $4, {panel * STEP};",
                f"{COPY} [d], [$3, {{r, $5}}], [$1];",
            ]
        given = [f"i32 {item}" for item in place]
        given += [f"i64 {self._map(plan.sources[name])}", f"i32 {row}", f"i32 {column}"]
        self._asm("\\0A".join([*lines, "}"]), "r,r,r,l,r,r", ", ".join(given))

    # --- products -------------------------------------------------------------------------------------------

    def _multiply(self, add: CoopMulAdd, name: str) -> MatrixValue:
        """Begin a product of a tile and of words in registers."""
        self._computed = ""
        context = self._context
        right, added = named_matrix(context, add.right), named_matrix(context, add.accumulator)
        words, sums = right.parts[0], added.parts[0]
        count = len(sums)
        zero = make_constant(0.0, SUMS).operand
        fresh = all(item == zero for item in sums)
        load, full, place = self._tiles[add.left.name]
        first = self._descriptor(place, 16 if load.transposed else load.type.columns * LINE)
        steps = load.type.columns // DEPTH
        shown = ", ".join(f"${item}" for item in range(count))
        shift = count if fresh else 2 * count
        product = (
            f"wgmma.mma_async.sync.aligned.m64n{add.type.rows}k16.f32.{load.type.element}.{load.type.element}"
        )
        lines = ["{", ".reg .pred z, t;", ".reg .b64 c;", "setp.ne.u32 z, 0, 0;", "setp.eq.u32 t, 0, 0;"]
        lines += ["wgmma.fence.sync.aligned;"]
        for step in range(steps):
            factor = ", ".join(f"${shift + 1 + 4 * step + item}" for item in range(4))
            told = "z" if fresh and step == 0 else "t"
            lines += [f"add.u64 c, ${shift}, {self._step(load, step)};"]
            lines += [f"{product} {{{shown}}}, {{{factor}}}, c, {told}, 1, 1, {int(not load.transposed)};"]
        lines += ["wgmma.commit_group.sync.aligned;", "}"]
        tied = [] if fresh else [str(item) for item in range(count)]
        ways = ",".join([*["=f"] * count, *tied, "l", *["r"] * (4 * steps), "~{memory}"])
        given = [] if fresh else [f"float {item}" for item in sums]
        given += [f"i64 {first}", *(f"i32 {word}" for word in words)]
        found = self._sums("\\0A".join(lines), ways, given, count)
        matrix = MatrixValue(add.type, (found,))
        for item in self._begun:
            if item.name == add.accumulator.name:
                item.matrix = None
        released = full if self._stream.releases.get(name) == add.left.name else None
        self._begun.append(_Begun(name, matrix, released))
        return matrix

    def _finish_before(self) -> None:
        """What the text computes before it waits is to be done before: the assembler sees no reason why.

        So a store that never happens needs its last reduction; no arithmetic makes a NaN of these bits.
        """
        if not self._computed:
            return
        matrix = self._context.values[self._computed]
        if isinstance(matrix, MatrixValue):
            sums = matrix.parts[0]
            count = len(sums)
            lines = [
                f"setp.eq.u32 p, ${place}, {NEVER};\\0A@p st.volatile.shared.b32 [${count}], 0;"
                for place in range(count)
            ]
            bits = [self._out.value(f"bitcast float {item} to i32") for item in sums]
            text = "\\0A".join(["{", ".reg .pred p;", *lines, "}"])
            given = ", ".join(f"i32 {item}" for item in (*bits, self._barriers))
            self._asm(text, ",".join(["r"] * (count + 1)), given)
        self._computed = ""

    def _sums(self, text: str, ways: str, given: Sequence[str], count: int) -> tuple[str, ...]:
        kind = "{ " + ", ".join(["float"] * count) + " }"
        found = self._out.value(f'call {kind} asm sideeffect "{text}", "{ways}"({", ".join(given)})')
        return tuple(self._out.value(f"extractvalue {kind} {found}, {place}") for place in range(count))

    def _step(self, load: CoopLoad, step: int) -> int:
        """How far the descriptor of the next 16 elements along k is from that of the first."""
        if not load.transposed:
            return step * DEPTH * LINE >> 4
        panel, within = divmod(step * DEPTH, STEP)
        return (panel * load.type.rows * LINE + within * 2) >> 4

    def _wait_all(self) -> None:
        if self._begun:
            self._wait(len(self._begun))

    def _wait(self, count: int) -> None:
        """Wait for the first products that were begun, and free their stages."""
        self._finish_before()
        done, self._begun = self._begun[:count], self._begun[count:]
        held = [(one.name, one.matrix) for one in done if one.matrix is not None]
        sums = [item for _, matrix in held for item in matrix.parts[0]]
        text = f"wgmma.wait_group.sync.aligned {len(self._begun)};"
        ways = ",".join([*["=f"] * len(sums), *map(str, range(len(sums))), "~{memory}"])
        found = self._sums(text, ways, [f"float {item}" for item in sums], len(sums))
        for name, matrix in held:
            size = len(matrix.parts[0])
            self._context.values[name] = replace(matrix, parts=(found[:size],))
            found = found[size:]
        first = self._out.value(f"icmp eq i32 {self._context.lane}, 0")
        for one in done:
            if one.stage is not None:
                text = f"mbarrier.arrive.shared::cta.b64 _, [$0 + {8 * self._stream.stages}];"
                self._when(first, text, "r", f"i32 {one.stage}")
