"""Kernels that stream tiles on Hopper (flash attention): every matrix_a comes by TMA, in the order of the text.

A kernel suits whose subgroups all load the same tiles as left operands, anywhere among its statements and loops, and
multiply them with 16 columns of their own: attention, whose loop has two products with rows of sums between them. A
producer thread runs the slice of the statements that tells positions and trips, and copies; stages are a ring buffer. A
tile that is loaded a second time, transposed, is the one that is there. Right operands that a work-group loads once, 16
columns for each subgroup, stay in shared memory beside the ring; others are in registers. Products are asynchronous
(`wgmma`): who uses their sums waits, so that those of one tile run while what was made of another is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import dynamic, number
from lamella.backend.cpu.emit.matrices.layout import named_matrix
from lamella.backend.cpu.emit.pipeline_plan import LINE, PAIR, STEP, WARPGROUP
from lamella.backend.cpu.emit.pipelines import COPY, PipelineEmitter, wait_lines
from lamella.backend.cpu.emit.scalars import make_constant
from lamella.backend.cpu.emit.stream_plan import (
    NEVER,
    ONE,
    USED,
    WARPGROUP_COLUMNS,
    ResidentOperand,
    StreamPlan,
    tile_bytes,
)
from lamella.backend.cpu.emit.values import MatrixValue
from lamella.base.records import dataclass
from lamella.kernels.fragments import DEPTH, SUMS
from lamella.kernels.rewrite import used_values
from lamella.lang.tensor.nodes import (
    CoopLoad,
    CoopMulAdd,
    CoopReduce,
    For,
    Instruction,
    Statement,
    Value,
)

PING_PONG_BYTES = 1 << 14
"""The fewest bytes of a tile with which products take so long that ping-pong pays."""
# --- the kernel ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Begun:
    """A product in flight: its sums unless another adds to them, the stage that is free then."""

    name: str
    matrix: MatrixValue | None
    stage: str | None


class StreamEmitter(PipelineEmitter):
    """Emits a kernel that streams tiles."""

    def __init__(self, context: EmitContext, plan: StreamPlan) -> None:
        super().__init__(context, plan)
        self._stream = plan
        self._begun: list[_Begun] = []
        self._tiles: dict[str, tuple[CoopLoad, str, str]] = {}
        """For each tile its load, the barrier of its stage and where that begins."""
        self._resident: dict[str, str] = {}
        """For each resident operand the descriptor of the columns of this warpgroup."""
        self._copies = False
        self._computed = ""
        """The last reduction behind the products that are in flight."""
        self._ping_pong: tuple[str, str] | None = None
        """The named barriers at which this warpgroup and the other one wait for each other (ping-pong)."""
        self._has_turn = False

    def _run(self, statements: Sequence[Statement], used: str) -> str:
        context = self._context
        context.collective = False
        context.values[USED.name] = dynamic(used, "i32")
        context.values[ONE.name] = number(1, "i32")
        context.stream = self
        for place, statement in enumerate(statements):
            context.walk(context, [statement])
            if not self._copies:
                self._free_resident(place)
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

    # --- ping-pong of warpgroups ----------------------------------------------------------------------------------

    def _begin_consumers(self) -> None:
        """Ping-pong: let the first of two warpgroups begin; one computes rows while the other multiplies."""
        out = self._out
        if self._stream.warpgroups != PAIR or self._stream.stage_bytes < PING_PONG_BYTES:
            return
        own = out.value(f"lshr i32 {self._thread}, 7")
        group = out.intrinsic("i32", "llvm.nvvm.shfl.sync.idx.i32", f"i32 -1, i32 {own}, i32 0, i32 31")
        self._ping_pong = out.value(f"add i32 {group}, 1"), out.value(f"sub i32 2, {group}")
        second = out.value(f"icmp eq i32 {group}, 1")
        self._when(second, f"bar.arrive 1, {PAIR * WARPGROUP};", "", "")

    def _enter_ping_pong(self) -> None:
        if self._ping_pong is not None and not self._has_turn:
            self._asm(f"bar.sync $0, {PAIR * WARPGROUP};", "r", f"i32 {self._ping_pong[0]}")
            self._has_turn = True

    def _leave_ping_pong(self) -> None:
        if self._ping_pong is not None and self._has_turn:
            self._asm(f"bar.arrive $0, {PAIR * WARPGROUP};", "r", f"i32 {self._ping_pong[1]}")
            self._has_turn = False

    # --- tiles ----------------------------------------------------------------------------------------------

    def take(self, statement: Statement) -> bool:
        """Emit tiles and their products; for other statements, wait for the sums that they use."""
        node = statement.instruction
        self._wait_for(node)
        name = statement.results[0].name if statement.results else ""
        if isinstance(node, CoopReduce) and not self._copies:
            self._computed = name
        if isinstance(node, CoopLoad) and name in self._stream.counters:
            self._load(node, name)
            return True
        if isinstance(node, CoopLoad) and name in self._stream.transposed:
            _, full, place = self._tiles[self._stream.transposed[name]]
            self._tiles[name] = node, full, place
            return True
        if isinstance(node, CoopLoad) and name in self._stream.resident:
            self._load_resident(node, name)
            return True
        if isinstance(node, CoopMulAdd):
            self._context.values[name] = self._multiply(node, name)
            return True
        return False

    def _wait_for(self, node: Instruction) -> None:
        """Wait for sums that are used; what a product adds to may still be in flight."""
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
        """Producer: copy a tile to its stage; consumer: wait until it is there."""
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

    # --- factors that stay ------------------------------------------------------------------------------------

    def _bytes_behind_stages(self) -> int:
        return self._stream.resident_bytes

    def _more_barriers(self) -> int:
        return len(self._stream.resident)

    def _resident_barrier(self, held: ResidentOperand) -> str:
        return self._out.value(f"add i32 {self._barriers}, {16 * self._stream.stages + held.barrier}")

    def _parity(self) -> str:
        """The parity of a barrier that each work-group of the block passes once."""
        out = self._out
        blocks = out.value(f"zext i32 {out.intrinsic('i32', 'llvm.nvvm.read.ptx.sreg.nctaid.x', '')} to i64")
        rounds = out.value(f"udiv i64 {self._context.group_id}, {blocks}")
        return out.value(f"and i32 {out.value(f'trunc i64 {rounds} to i32')}, 1")

    def _load_resident(self, load: CoopLoad, name: str) -> None:
        """Producer: copy a resident operand to its place; consumer: wait until it is there."""
        out, plan, held = self._out, self._stream, self._stream.resident[name]
        place = out.value(f"add i32 {self._memory}, {plan.stages * plan.stage_bytes + held.offset}")
        barrier, parity = self._resident_barrier(held), self._parity()
        if self._copies:
            row, column = self._start(load, 0), self._start(load, 1, held.base)
            lines = [
                "{",
                ".reg .pred p;",
                ".reg .b32 e, d, r;",
                "add.u32 e, $1, 8;",
                *wait_lines("e", "$2", "FREE"),
                f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], {load.type.rows * 2 * plan.columns};",
            ]
            for panel in range(load.type.rows // STEP):
                lines += [
                    f"add.u32 d, $0, {panel * plan.columns * LINE};",
                    f"add.u32 r, $4, {panel * STEP};",
                    f"{COPY} [d], [$3, {{r, $5}}], [$1];",
                ]
            free = out.value(f"xor i32 {parity}, 1")
            given = [f"i32 {item}" for item in (place, barrier, free)]
            given += [f"i64 {self._map(held.source)}", f"i32 {row}", f"i32 {column}"]
            self._asm("\\0A".join([*lines, "}"]), "r,r,r,l,r,r", ", ".join(given))
            return
        text = "\\0A".join(["{", ".reg .pred p;", *wait_lines("$0", "$1", "FULL"), "}"])
        self._asm(text, "r,r", f"i32 {barrier}, i32 {parity}")
        # The first thread tells the others, so that the assembler sees that they agree.
        own = out.value(f"lshr i32 {self._thread}, 7")
        group = out.intrinsic("i32", "llvm.nvvm.shfl.sync.idx.i32", f"i32 -1, i32 {own}, i32 0, i32 31")
        lines_before = out.value(f"mul i32 {group}, {WARPGROUP_COLUMNS * LINE}")
        self._resident[name] = self._descriptor(out.value(f"add i32 {place}, {lines_before}"))

    def _free_resident(self, place: int) -> None:
        """Release operands that nobody reads after a statement."""
        for held in self._stream.resident.values():
            if held.last == place:
                self._wait_all()
                first = self._out.value(f"icmp eq i32 {self._context.lane}, 0")
                text = "mbarrier.arrive.shared::cta.b64 _, [$0 + 8];"
                self._when(first, text, "r", f"i32 {self._resident_barrier(held)}")

    def _start(self, load: CoopLoad, mode: int, name: str = "") -> str:
        """Where a tile begins in its array, along a mode."""
        place = self._position(name or (load.row, load.column)[mode].name)
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
        """Issue a product of a tile and of words in registers."""
        self._computed = ""
        self._enter_ping_pong()
        context, held = self._context, self._stream.resident.get(add.right.name)
        sums = named_matrix(context, add.accumulator).parts[0]
        words = () if held is not None else named_matrix(context, add.right).parts[0]
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
        lines = ["{", ".reg .pred z, t;", ".reg .b64 c, a;", "setp.ne.u32 z, 0, 0;", "setp.eq.u32 t, 0, 0;"]
        lines += ["wgmma.fence.sync.aligned;"]
        for step in range(steps):
            factor = "{" + ", ".join(f"${shift + 1 + 4 * step + item}" for item in range(4)) + "}"
            told, turns = "z" if fresh and step == 0 else "t", str(int(not load.transposed))
            lines += [f"add.u64 c, ${shift}, {self._step(load, step)};"]
            if held is not None:
                lines += [f"add.u64 a, ${shift + 1}, {held.step(step, self._stream.columns)};"]
                factor, turns = "a", f"0, {turns}"
            lines += [f"{product} {{{shown}}}, {factor}, c, {told}, 1, 1, {turns};"]
        lines += ["wgmma.commit_group.sync.aligned;", "}"]
        tied = [] if fresh else [str(item) for item in range(count)]
        factors = ["l"] if held is not None else ["r"] * (4 * steps)
        ways = ",".join([*["=f"] * count, *tied, "l", *factors, "~{memory}"])
        given = [] if fresh else [f"float {item}" for item in sums]
        given += [f"i64 {first}", *(f"i32 {word}" for word in words)]
        given += [f"i64 {self._resident[add.right.name]}"] if held is not None else []
        found = self._sums("\\0A".join(lines), ways, given, count)
        matrix = MatrixValue(add.type, (found,))
        for item in self._begun:
            if item.name == add.accumulator.name:
                item.matrix = None
        tile = self._stream.transposed.get(add.left.name, add.left.name)
        released = full if self._stream.releases.get(name) == tile else None
        self._begun.append(_Begun(name, matrix, released))
        return matrix

    def _finish_before(self) -> None:
        """Keep what the text computes before a wait there: the assembler would move the wait up.

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
        """Wait for the oldest products in flight, and free their stages."""
        self._leave_ping_pong()
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
