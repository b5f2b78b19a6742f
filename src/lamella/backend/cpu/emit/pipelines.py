"""Warp-specialised GEMM pipelines on Hopper: a TMA producer fills stages of shared memory, `wgmma` consumers multiply.

A kernel suits whose work-items multiply tiles in one loop over k: every subgroup loads the same tile of A and 16
columns of B of its own, side by side, both K-major, and adds to sums that begin anywhere. Four subgroups are a
warpgroup, whose instruction multiplies 64 columns at once; the fragments of the sums are those of `fragments`. The
producer is one more thread; it runs the statements that compute positions as consumers do. The kernel is persistent: a
block takes one work-group after another, so that the copies of the next begin while the sums of this one are stored.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import product
from typing import Protocol

from lamella.backend.cpu.compiled import TensorMap, maps_offset
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.matrices.layout import named_matrix
from lamella.backend.cpu.emit.pipeline_plan import (
    ATOM,
    LINE,
    MOST_BOX,
    PAIR,
    STEP,
    STORED,
    WARPGROUP,
    PipelinePlan,
)
from lamella.backend.cpu.emit.text import IrWriter
from lamella.backend.cpu.emit.values import LLVM, MatrixValue
from lamella.kernels.fragments import COLUMNS, DEPTH, ROWS
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import CoopStore
from lamella.lang.tensor.nodes.types import STORED_FLOATS

CONSUMER_REGISTERS, PRODUCER_REGISTERS = {1: 240, 2: 232, 3: 160}, {1: 24, 2: 40, 3: 24}
"""Of a thread, by warpgroups: 65536 are for all, and with more than that the kernel would wait for registers for ever.

The producer of an attention spills with fewer than 40, and nothing that two warpgroups compute does with 232.
"""
PIECES = 2
"""Unrolling: pieces of 16 bytes along k that are multiplied without a branch."""
MEMORY = "@pipeline_memory"
COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"


# --- the kernel ------------------------------------------------------------------------------------------------


class CopiedPlan(Protocol):
    """The common part of plans of kernels that TMA feeds."""

    @property
    def warpgroups(self) -> int:
        """Consumer warpgroups."""

    @property
    def stages(self) -> int:
        """Stages of the ring buffer."""

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""

    @property
    def staged_bytes(self) -> int:
        """Bytes of a subgroup for what it stores."""

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """The tensor maps."""

    @property
    def slots(self) -> int:
        """Slots of the parameters, behind which the maps lie."""

    @property
    def cluster(self) -> int:
        """Blocks that share what they copy."""


class PipelineEmitter(ABC):
    """Emits a warp-specialised kernel: one producer thread, consumer warpgroups, persistent blocks."""

    def __init__(self, context: EmitContext, plan: CopiedPlan) -> None:
        self._context, self._out, self._plan = context, context.out, plan
        self._memory = self._barriers = self._thread = ""
        self._blocks, self._rank = "1", "0"

    def emit(self) -> None:
        """The whole body, behind the parameters."""
        out, plan = self._out, self._plan
        self._thread = out.intrinsic("i32", "llvm.nvvm.read.ptx.sreg.tid.x", "")
        self._begin()
        consumer, producer, end = out.label("consumer"), out.label("producer"), out.label("end")
        out.branch(
            out.value(f"icmp ult i32 {self._thread}, {plan.warpgroups * WARPGROUP}"), consumer, producer
        )
        out.begin(producer)
        self._set_registers("dec", PRODUCER_REGISTERS[plan.warpgroups])
        first = out.value(f"icmp eq i32 {self._thread}, {plan.warpgroups * WARPGROUP}")
        copy = out.label("copy")
        out.branch(first, copy, end)
        out.begin(copy)
        self._fence_maps()
        own, self._context.subgroup_id = self._context.subgroup_id, "0"
        self._each_group(self._produce)
        self._context.subgroup_id = own
        out.jump(end)
        out.begin(consumer)
        self._set_registers("inc", CONSUMER_REGISTERS[plan.warpgroups])
        self._fence_maps()
        self._begin_consumers()
        self._each_group(self._consume)
        if plan.staged_bytes:
            self._asm("cp.async.bulk.wait_group 0;", "", "")
        out.jump(end)
        out.begin(end)
        if plan.cluster > 1:
            # Nobody leaves while the other may still write to its local memory.
            self._asm("barrier.cluster.arrive.release;\\0Abarrier.cluster.wait.acquire;", "", "")
        out.line("ret void")

    def _asm(self, text: str, ways: str, operands: str) -> None:
        listed = ",".join(filter(None, (ways, "~{memory}")))
        self._out.line(f'call void asm sideeffect "{text}", "{listed}"({operands})')

    def _set_registers(self, way: str, count: int) -> None:
        """`setmaxnreg`: two consumer warpgroups and a producer would not have registers enough otherwise."""
        if self._plan.warpgroups > 1:
            self._asm(f"setmaxnreg.{way}.sync.aligned.u32 {count};", "", "")

    def _begin(self) -> None:
        """Local memory, its barriers, and all threads at once."""
        out, plan = self._out, self._plan
        out.need(f"{MEMORY} = external addrspace(3) global [0 x i8], align {ATOM}")
        start = out.value(f"ptrtoint ptr addrspace(3) {MEMORY} to i32")
        above = out.value(f"add i32 {start}, {ATOM - 1}")
        self._memory = out.value(f"and i32 {above}, {-ATOM}")
        before = plan.stages * plan.stage_bytes + self._bytes_behind_stages()
        self._barriers = out.value(f"add i32 {self._memory}, {before}")
        if plan.cluster > 1:
            self._blocks = out.intrinsic("i32", "llvm.nvvm.read.ptx.sreg.cluster.nctarank", "")
            self._rank = out.intrinsic("i32", "llvm.nvvm.read.ptx.sreg.cluster.ctarank", "")
        first, after = out.label("first"), out.label("ready")
        out.branch(out.value(f"icmp eq i32 {self._thread}, 0"), first, after)
        out.begin(first)
        warps = out.value(f"mul i32 {self._blocks}, {4 * plan.warpgroups}")
        begun = [(8 * stage, 8 * (plan.stages + stage)) for stage in range(plan.stages)]
        begun += [
            (16 * (plan.stages + more), 16 * (plan.stages + more) + 8)
            for more in range(self._more_barriers())
        ]
        for full, free in begun:
            for offset, count in ((full, "1"), (free, warps)):
                text = f"mbarrier.init.shared::cta.b64 [$0 + {offset}], $1;"
                self._asm(text, "r,r", f"i32 {self._barriers}, i32 {count}")
        self._asm("fence.mbarrier_init.release.cluster;", "", "")
        out.jump(after)
        out.begin(after)
        if plan.cluster > 1:
            self._asm("barrier.cluster.arrive.release;\\0Abarrier.cluster.wait.acquire;", "", "")
        else:
            self._asm("bar.sync 0;", "", "")

    def _begin_consumers(self) -> None:
        """What those that compute do once: those of products nothing."""
        return

    def _bytes_behind_stages(self) -> int:
        """Local memory between the stages and their barriers."""
        return self._plan.staged_bytes * 4 * self._plan.warpgroups

    def _more_barriers(self) -> int:
        """How many pairs of barriers follow those of the stages."""
        return 0

    def _map(self, number: int) -> str:
        """The address of a map, an i64."""
        offset = maps_offset(self._plan.slots) + 128 * number
        place = self._out.value(f"getelementptr i8, ptr %args, i64 {offset}")
        return self._out.value(f"ptrtoint ptr {place} to i64")

    def _fence_maps(self) -> None:
        """The host wrote the tensor maps: a proxy fence, so that TMA does not see what was there before."""
        for number in range(len(self._plan.maps)):
            text = "fence.proxy.tensormap::generic.acquire.sys [$0], 128;"
            self._asm(text, "l", f"i64 {self._map(number)}")

    @abstractmethod
    def _produce(self, used: str) -> str:
        """The producer: copy for one work-group, after so many stages; gives how many were used then."""

    @abstractmethod
    def _consume(self, used: str) -> str:
        """The consumers: compute one work-group."""

    def _each_group(self, body: Callable[[str], str]) -> None:
        """A loop over the work-groups of a block; `body` gets how many stages were used before, an i32 operand."""
        out = self._out
        blocks = out.value(f"zext i32 {out.intrinsic('i32', 'llvm.nvvm.read.ptx.sreg.nctaid.x', '')} to i64")
        block = out.value(f"zext i32 {out.intrinsic('i32', 'llvm.nvvm.read.ptx.sreg.ctaid.x', '')} to i64")
        before, loop, after = out.block, out.label("group"), out.label("done")
        out.jump(loop)
        out.begin(loop)
        hole, group = out.hole(), out.name()
        other, used = out.hole(), out.name()
        self._context.group_id = group
        more = body(used)
        following = out.value(f"add i64 {group}, {blocks}")
        out.fill(hole, f"{group} = phi i64 [{block}, %{before}], [{following}, %{out.block}]")
        out.fill(other, f"{used} = phi i32 [0, %{before}], [{more}, %{out.block}]")
        out.branch(out.value(f"icmp slt i64 {following}, %groups"), loop, after)
        out.begin(after)

    def _position(self, name: str) -> str:
        """An index as TMA wants it, an i32."""
        return self._out.value(f"trunc i64 {self._context.scalar(name).operand} to i32")

    def _begin_stage(self, used: str) -> tuple[str, str]:
        """The stage that follows so many, and the parity that its barrier has when it is full."""
        out, stages = self._out, self._plan.stages
        rounds = out.value(f"udiv i32 {used}, {stages}")
        return out.value(f"urem i32 {used}, {stages}"), out.value(f"and i32 {rounds}, 1")

    def _descriptor(self, address: str, panel: int = 16) -> str:
        """The `wgmma` descriptor of a matrix in swizzled lines of 128 bytes, panels of so many bytes."""
        out = self._out
        short = out.value(f"lshr i32 {address}, 4")
        low = out.value(f"zext i32 {short} to i64")
        fixed = (1 << 62) | (ATOM >> 4 << 32) | (panel >> 4 << 16)
        return out.value(f"or i64 {low}, {fixed}")

    def _when(self, condition: str, text: str, ways: str, operands: str) -> None:
        out = self._out
        then, after = out.label("then"), out.label("after")
        out.branch(condition, then, after)
        out.begin(then)
        self._asm(text, ways, operands)
        out.jump(after)
        out.begin(after)


class ProductEmitter(PipelineEmitter):
    """Emits a GEMM pipeline."""

    def __init__(self, context: EmitContext, plan: PipelinePlan) -> None:
        super().__init__(context, plan)
        self._product = plan

    def _walk_before(self) -> None:
        self._context.collective = False
        self._context.walk(self._context, self._product.before)

    # --- the producer --------------------------------------------------------------------------------------

    def _when_used(self, used: str, body: Callable[[str], str]) -> str:
        """What a work-group does where it has anything to do; the stages that were used then."""
        out, guard = self._out, self._product.guard
        if not guard:
            return body(used)
        then, after, before = out.label("then"), out.label("after"), out.block
        out.branch(self._context.scalar(guard).operand, then, after)
        out.begin(then)
        more, last = body(used), out.block
        out.jump(after)
        out.begin(after)
        return out.value(f"phi i32 [{used}, %{before}], [{more}, %{last}]")

    def _produce(self, used: str) -> str:
        self._walk_before()
        return self._when_used(used, self._copy_stages)

    def _copy_stages(self, used: str) -> str:
        plan = self._product
        first = plan.left.row if plan.mn_major[0] else plan.left.column
        row, column = self._position(first.name), self._position(plan.base)
        lines = [
            "{",
            ".reg .pred p, q;",
            ".reg .b32 s, h, b, e, d, k, r, u, v, z;",
            ".reg .b64 t, w;",
            ".reg .b16 m;",
            "mov.b64 t, $10;",
            *self._begin_sum(),
            "mov.b32 s, $2;",
            "xor.b32 h, $9, 1;",
            "mov.b16 m, 3;",
            "setp.eq.u32 q, $7, 2;",
            "NEXT${:uid}:",
            "mad.lo.u32 b, s, 8, $1;",
            f"add.u32 e, b, {8 * plan.stages};",
            *wait_lines("e", "h", "FREE"),
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], {plan.stage_bytes};",
            f"mad.lo.u32 d, s, {plan.stage_bytes}, $0;",
            *self._copy_left(),
            f"mad.lo.u32 d, s, {plan.stage_bytes}, $0;",
            f"add.u32 d, d, {plan.left_bytes};",
            *self._copy_right(),
            *self._advance(),
            f"add.u32 k, k, {plan.step};",
            f"setp.lt.u32 p, k, {'z' if plan.first else plan.trips * plan.step};",
            "@p bra NEXT${:uid};",
            "}",
        ]
        stage, parity = self._begin_stage(used)
        given = [f"i32 {item}" for item in (self._memory, self._barriers, stage)]
        given += [f"i64 {self._map(0)}", f"i64 {self._map(1)}", f"i32 {row}", f"i32 {column}"]
        given += [f"i32 {item}" for item in (self._blocks, self._rank, parity)]
        given += [f"ptr addrspace(1) {self._steps()}"]
        ways = "r,r,r,l,l,r,r,r,r,r,l"
        if plan.first:
            given, ways = [*given, f"i32 {self._position(plan.first)}"], f"{ways},r"
        self._asm("\\0A".join(lines), ways, ", ".join(given))
        return self._after(used)

    def _begin_sum(self) -> list[str]:
        """Where the copies along k begin and end, and where the table of stages is read first."""
        plan = self._product
        if not plan.first:
            return ["mov.b32 k, 0;"]
        lines = ["mov.b32 k, $11;", f"add.u32 z, k, {plan.trips * plan.step};"]
        if plan.steps is not None:
            lines += [f"div.u32 r, k, {plan.step};", "mul.wide.u32 w, r, 8;", "add.u64 t, t, w;"]
        return lines

    def _after(self, used: str) -> str:
        return self._out.value(f"add i32 {used}, {self._product.trips}")

    def _steps(self) -> str:
        """Where it stands what is copied of B for each stage, in memory of the device; nowhere where k tells it."""
        if self._product.steps is None:
            return "null"
        words = [number for item in self._product.steps for number in item]
        name = f"@stages_{zlib.crc32(repr(words).encode()):08x}_{len(words)}"
        listed = ", ".join(f"i32 {number}" for number in words)
        self._out.need(f"{name} = internal addrspace(1) constant [{len(words)} x i32] [{listed}], align 16")
        return name

    def _copy_right(self) -> list[str]:
        """The tile of B, which lies along k or where the table of stages tells."""
        if self._product.mn_major[1]:
            return self._copy_panels("$4", "$6", range(self._product.warpgroups))
        if self._product.steps is None:
            lines = [f"{COPY} [d], [$4, {{k, $6}}], [b];"]
            for first in range(MOST_BOX, 4 * self._product.columns * self._product.warpgroups, MOST_BOX):
                lines += [f"add.u32 d, d, {MOST_BOX * LINE};", f"add.u32 r, $6, {first};"]
                lines += [f"{COPY} [d], [$4, {{k, r}}], [b];"]
            return lines
        return [
            "ld.global.nc.v2.u32 {u, v}, [t];",
            "add.u64 t, t, 8;",
            "add.u32 v, v, $6;",
            f"{COPY} [d], [$4, {{u, v}}], [b];",
        ]

    def _copy_left(self) -> list[str]:
        """Copy the tile of A; of two blocks of a cluster each multicasts its half."""
        plan = self._product
        if plan.mn_major[0]:
            return self._copy_panels("$3", "$5", range(plan.rows // STEP))
        if plan.cluster == 1:
            return [f"{COPY} [d], [$3, {{k, $5}}], [b];"]
        rows, size = plan.rows // PAIR, plan.left_bytes // PAIR
        return [
            "@q bra SHARED${:uid};",
            f"{COPY} [d], [$3, {{k, $5}}], [b];",
            f"add.u32 d, d, {size};",
            f"add.u32 r, $5, {rows};",
            f"{COPY} [d], [$3, {{k, r}}], [b];",
            "bra COPIED${:uid};",
            "SHARED${:uid}:",
            f"mad.lo.u32 d, $8, {size}, d;",
            f"mad.lo.u32 r, $8, {rows}, $5;",
            f"{COPY}.multicast::cluster [d], [$3, {{k, r}}], [b], m;",
            "COPIED${:uid}:",
        ]

    def _copy_panels(self, source: str, first: str, panels: range) -> list[str]:
        """Panels of 64 rows or columns, one behind the other, with 64 k each."""
        lines = []
        for panel in panels:
            if panel:
                lines += [f"add.u32 d, d, {STEP * LINE};"]
            lines += [f"add.u32 r, {first}, {panel * STEP};"]
            lines += [f"{COPY} [d], [{source}, {{r, k}}], [b];"]
        return lines

    def _advance(self) -> list[str]:
        """The next stage; behind the last one comes the first, with the other parity."""
        return [
            "add.u32 s, s, 1;",
            f"setp.eq.u32 p, s, {self._product.stages};",
            "selp.b32 s, 0, s, p;",
            "@p xor.b32 h, h, 1;",
        ]

    # --- consumers ------------------------------------------------------------------------------------------

    def _consume(self, used: str) -> str:
        self._walk_before()
        return self._when_used(used, self._compute)

    def _compute(self, used: str) -> str:
        plan, context = self._product, self._context
        context.walk(context, plan.begin)
        start = named_matrix(context, plan.loop.carried[0][1])
        context.values[plan.result] = (
            self._multiply_fma(used, start) if plan.uses_fma else self._multiply(used, start)
        )
        copied = {id(item): number for number, item in enumerate(plan.stores, 2)}
        for statement in plan.after:
            node = statement.instruction
            if isinstance(node, CoopStore) and id(node) in copied:
                self._store(node, copied[id(node)])
            else:
                context.walk(context, [statement])
        return self._after(used)

    def _multiply(self, used: str, start: MatrixValue) -> MatrixValue:
        out, plan = self._out, self._product
        count = len(start.parts[0])
        # The first thread tells the others, so that the assembler sees that they agree.
        own = out.value(f"lshr i32 {self._thread}, 7")
        group = out.intrinsic("i32", "llvm.nvvm.shfl.sync.idx.i32", f"i32 -1, i32 {own}, i32 0, i32 31")
        stage, parity = self._begin_stage(used)
        rows = out.value(f"mul i32 {group}, {STORED * LINE}")
        right = out.value(f"add i32 {self._memory}, {plan.left_bytes}")
        wide = self._descriptor(out.value(f"add i32 {right}, {rows}"))
        narrow = self._descriptor(self._memory, STEP * LINE if plan.mn_major[0] else 16)
        # Thread r of a warp tells block r that the warp has done with a stage.
        tells = out.value(f"icmp ult i32 {self._context.lane}, {self._blocks}")
        leader = out.value(f"zext i1 {tells} to i32")
        told = out.value(f"select i1 {tells}, i32 {self._context.lane}, i32 0")
        text = "\\0A".join(self._loop(count))
        ways = ",".join([*["=f"] * count, *"rrrllrr", *map(str, range(count)), "~{memory}"])
        given = [f"i32 {leader}", f"i32 {self._barriers}", f"i32 {stage}", f"i64 {wide}", f"i64 {narrow}"]
        given += [f"i32 {told}", f"i32 {parity}"]
        given += [f"float {item}" for item in start.parts[0]]
        kind = "{ " + ", ".join(["float"] * count) + " }"
        found = out.value(f'call {kind} asm sideeffect "{text}", "{ways}"({", ".join(given)})')
        sums = tuple(out.value(f"extractvalue {kind} {found}, {place}") for place in range(count))
        return MatrixValue(plan.product.type, (sums,))

    def _multiply_fma(self, used: str, start: MatrixValue) -> MatrixValue:
        """Fused multiply-adds: each thread has two rows of eight and a column of eight, and loads four along k."""
        out, plan = self._out, self._product
        group, pair = _thread_places(out, self._context.lane)
        columns = out.value(f"mul i32 {self._context.subgroup_id}, {plan.columns}")
        line = out.value(f"add i32 {columns}, {group}")
        right = out.value(f"add i32 {out.value(f'mul i32 {line}, {LINE}')}, {plan.left_bytes}")
        left = out.value(f"mul i32 {pair}, {LINE}")
        tells = out.value(f"icmp ult i32 {self._context.lane}, {self._blocks}")
        told = out.value(f"select i1 {tells}, i32 {self._context.lane}, i32 0")
        first, parity = self._begin_stage(used)
        before, loop = out.block, out.label("stage")
        out.jump(loop)
        out.begin(loop)
        kinds = ["i32", "i32", "i32", *["float"] * len(start.parts[0])]
        held = _Phis(out, kinds, ["0", first, parity, *start.parts[0]], before)
        trip, stage, phase, *sums = held.names
        self._wait_for_stage(stage, phase)
        base = out.value(f"add i32 {self._memory}, {out.value(f'mul i32 {stage}, {plan.stage_bytes}')}")
        places = (out.value(f"add i32 {base}, {left}"), out.value(f"add i32 {base}, {right}"))
        sums = self._multiply_lines(places, (group, pair), sums)
        text = (
            "{\\0A.reg .b32 r;\\0Amapa.shared::cluster.u32 r, $0, $1;\\0A"
            "mbarrier.arrive.shared::cluster.b64 _, [r];\\0A}"
        )
        free = out.value(f"add i32 {self._barriers}, {8 * plan.stages}")
        free = out.value(f"add i32 {free}, {out.value(f'shl i32 {stage}, 3')}")
        self._asm("bar.warp.sync -1;", "", "")
        self._when(tells, text, "r,r", f"i32 {free}, i32 {told}")
        next_trip, following = out.value(f"add i32 {trip}, 1"), out.value(f"add i32 {stage}, 1")
        turns = out.value(f"icmp eq i32 {following}, {plan.stages}")
        following = out.value(f"select i1 {turns}, i32 0, i32 {following}")
        flipped = out.value(f"xor i32 {phase}, {out.value(f'zext i1 {turns} to i32')}")
        after = out.label("multiplied")
        held.close([next_trip, following, flipped, *sums])
        out.branch(out.value(f"icmp ult i32 {next_trip}, {plan.trips}"), loop, after)
        out.begin(after)
        return MatrixValue(plan.product.type, (tuple(sums),))

    def _wait_for_stage(self, stage: str, parity: str) -> None:
        full = self._out.value(f"add i32 {self._barriers}, {self._out.value(f'shl i32 {stage}, 3')}")
        text = "\\0A".join(["{", ".reg .pred p;", *wait_lines("$0", "$1", "FULL"), "}"])
        self._asm(text, "r,r", f"i32 {full}, i32 {parity}")

    def _multiply_lines(
        self, places: tuple[str, str], threads: tuple[str, str], start: list[str]
    ) -> list[str]:
        """The products of a stage: eight pieces of 16 bytes of each line, which the swizzle has moved."""
        out = self._out
        (left, right), (group, pair) = places, threads
        before, loop, after = out.block, out.label("piece"), out.label("pieces")
        out.jump(loop)
        out.begin(loop)
        held = _Phis(out, ["i32", *["float"] * len(start)], ["0", *start], before)
        piece, *sums = held.names
        odd = out.value(f"or i32 {pair}, 1")
        for ahead in range(PIECES):
            here = out.value(f"add i32 {piece}, {ahead}")
            below = out.value(f"add i32 {left}, {LINE}")
            rows = [self._piece(left, here, pair), self._piece(below, here, odd)]
            self._multiply_piece(rows, self._piece(right, here, group), sums)
        following = out.value(f"add i32 {piece}, {PIECES}")
        held.close([following, *sums])
        out.branch(out.value(f"icmp ult i32 {following}, {LINE // 16}"), loop, after)
        out.begin(after)
        return sums

    def _multiply_piece(self, rows: Sequence[str], column: str, sums: list[str]) -> None:
        """What four elements along k add, those of one k after those of the one before: no sum waits for itself."""
        out, plan = self._out, self._product
        blocks = plan.rows // ROWS
        wide = [self._load_piece(column, ATOM * number) for number in range(plan.columns // ROWS)]
        for block in range(blocks):
            narrow = [self._load_piece(place, ATOM * block) for place in rows]
            for k, side, number in product(range(len(wide[0])), range(2), range(len(wide))):
                # Every second row goes back: the column before is at hand.
                number = len(wide) - 1 - number if side else number
                place = ((number // 2) * blocks + block) * 4 + number % 2 * 2 + side
                operands = f"float {narrow[side][k]}, float {wide[number][k]}, float {sums[place]}"
                sums[place] = out.intrinsic("float", "llvm.fma.f32", operands)

    def _piece(self, line: str, piece: str, turn: str) -> str:
        out = self._out
        swizzled = out.value(f"shl i32 {out.value(f'xor i32 {piece}, {turn}')}, 4")
        return out.value(f"add i32 {line}, {swizzled}")

    def _load_piece(self, place: str, offset: int) -> list[str]:
        """Four numbers of local memory."""
        out = self._out
        at = out.value(f"inttoptr i32 {out.value(f'add i32 {place}, {offset}')} to ptr addrspace(3)")
        four = out.value(f"load <4 x float>, ptr addrspace(3) {at}, align 16")
        return [out.value(f"extractelement <4 x float> {four}, i64 {number}") for number in range(4)]

    def _loop(self, count: int) -> list[str]:
        plan = self._product
        leader, barriers, stage, wide, narrow, told, parity = (f"${count + place}" for place in range(7))
        sums = ", ".join(f"${place}" for place in range(count))
        # What the hardware calls A is the factor on the right.
        kinds = [item.type.element for item in (plan.right, plan.left)]
        narrow_kinds = kinds[0] in STORED_FLOATS
        words = ".".join(item.removeprefix("f8") if narrow_kinds else item for item in kinds)
        depth = LINE // 4 // BYTES[kinds[0]]
        multiply = f"wgmma.mma_async.sync.aligned.m64n{plan.rows}k{depth}.f32.{words}"
        lines = [
            "{",
            ".reg .pred p, q, l, t;",
            ".reg .b32 s, h, b, e, f, i, r;",
            ".reg .b64 a, c, o;",
            f"mapa.shared::cluster.u32 r, {barriers}, {told};",
            f"add.u32 r, r, {8 * plan.stages};",
            f"setp.ne.u32 l, {leader}, 0;",
            "setp.eq.u32 t, 0, 0;",
            f"mov.b32 i, {plan.trips};",
            "mov.b32 f, r;",
            "setp.ne.u32 q, 0, 0;",
            f"mov.b32 s, {stage};",
            f"mov.b32 h, {parity};",
            "NEXT${:uid}:",
            f"mad.lo.u32 b, s, 8, {barriers};",
            *wait_lines("b", "h", "FULL"),
            f"mul.wide.u32 o, s, {plan.stage_bytes >> 4};",
            f"add.u64 a, {wide}, o;",
            f"add.u64 c, {narrow}, o;",
            "wgmma.fence.sync.aligned;",
        ]
        mn_major = [int(item) for item in plan.mn_major]
        steps = [DEPTH * LINE >> 4 if item else 2 for item in mn_major]
        ways = "" if narrow_kinds else f", {mn_major[1]}, {mn_major[0]}"
        for step in range(plan.step // depth):
            moved = [f"add.u64 a, a, {steps[1]};", f"add.u64 c, c, {steps[0]};"] if step else []
            lines += [*moved, f"{multiply} {{{sums}}}, a, c, t, 1, 1{ways};"]
        return [
            *lines,
            "wgmma.commit_group.sync.aligned;",
            "mad.lo.u32 e, s, 8, r;",
            *self._advance(),
            "wgmma.wait_group.sync.aligned 1;",
            "@q mbarrier.arrive.shared::cluster.b64 _, [f];",
            "mov.pred q, l;",
            "mov.b32 f, e;",
            "sub.u32 i, i, 1;",
            "setp.ne.u32 p, i, 0;",
            "@p bra NEXT${:uid};",
            "wgmma.wait_group.sync.aligned 0;",
            "@l mbarrier.arrive.shared::cluster.b64 _, [f];",
            "}",
        ]

    def _store(self, store: CoopStore, number: int) -> None:
        """Store the tile of a subgroup: 64 rows by 16 columns at a time through shared memory, two at once."""
        out, plan, context = self._out, self._product, self._context
        matrix, element = named_matrix(context, store.value), named_matrix(context, store.value).type.element
        words = [
            self._pair(element, *pair)
            for pair in zip(matrix.parts[0][::2], matrix.parts[0][1::2], strict=True)
        ]
        first, column = self._position(store.row.name), self._position(store.column.name)
        staged = out.value(f"mul i32 {context.subgroup_id}, {plan.staged_bytes}")
        begin = out.value(f"add i32 {self._memory}, {plan.stages * plan.stage_bytes}")
        room = out.value(f"add i32 {begin}, {staged}")
        turn = out.value(f"and i32 {context.lane}, 7")
        matrices = out.value(f"lshr i32 {context.lane}, 3")
        line = out.value(f"shl i32 {out.value(f'and i32 {context.lane}, 15')}, 7")
        own = out.value(f"add i32 {room}, {line}")
        side = out.value(f"lshr i32 {matrices}, 1")
        leader = out.value(f"icmp eq i32 {context.lane}, 0")
        address = self._map(number)
        for box in range(plan.rows // STORED):
            self._when(leader, "cp.async.bulk.wait_group.read 1;", "", "")
            self._asm("bar.warp.sync -1;", "", "")
            for chunk in range(0, STORED // ROWS, 2):
                at = (box * (STORED // ROWS) + chunk) * 2
                swizzled = out.value(f"xor i32 {out.value(f'add i32 {side}, {chunk}')}, {turn}")
                place = out.value(f"add i32 {own}, {out.value(f'shl i32 {swizzled}, 4')}")
                offset = (box % 2) * COLUMNS * LINE
                text = f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0 + {offset}], {{$1, $2, $3, $4}};"
                given = ", ".join([f"i32 {place}", *(f"i32 {word}" for word in words[at : at + 4])])
                self._asm(text, "r,r,r,r,r", given)
            self._asm("fence.proxy.async.shared::cta;", "", "")
            self._asm("bar.warp.sync -1;", "", "")
            text = (
                "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [$0, {$1, $2}], [$3];\\0A"
                "cp.async.bulk.commit_group;"
            )
            row = out.value(f"add i32 {first}, {box * STORED}")
            held = out.value(f"add i32 {room}, {(box % 2) * COLUMNS * LINE}")
            self._when(leader, text, "l,r,r,r", f"i64 {address}, i32 {row}, i32 {column}, i32 {held}")

    def _pair(self, element: str, low: str, high: str) -> str:
        """Two numbers of 16 bits as a word."""
        out, kind = self._out, LLVM[element]
        first = out.value(f"insertelement <2 x {kind}> poison, {kind} {low}, i64 0")
        both = out.value(f"insertelement <2 x {kind}> {first}, {kind} {high}, i64 1")
        return out.value(f"bitcast <2 x {kind}> {both} to i32")


class _Phis:
    """Values that a loop carries, opened before what comes back is known."""

    def __init__(self, out: IrWriter, kinds: Sequence[str], start: Sequence[str], before: str) -> None:
        self._out, self._kinds, self._start, self._before = out, kinds, start, before
        self._holes = [out.hole() for _ in kinds]
        self.names = [out.name() for _ in kinds]

    def close(self, values: Sequence[str]) -> None:
        """Write them; what comes back does so from the block that is being written."""
        rows = zip(self._holes, self.names, self._kinds, self._start, values, strict=True)
        for hole, name, kind, first, value in rows:
            text = f"{name} = phi {kind} [{first}, %{self._before}], [{value}, %{self._out.block}]"
            self._out.fill(hole, text)


def _thread_places(out: IrWriter, lane: str) -> tuple[str, str]:
    """The group of four of a thread, and twice its number there."""
    return out.value(f"lshr i32 {lane}, 2"), out.value(f"shl i32 {out.value(f'and i32 {lane}, 3')}, 1")


def wait_lines(barrier: str, parity: str, name: str) -> list[str]:
    """Wait until a barrier has passed the phase of a parity; p is a predicate of whoever writes it."""
    label = f"{name}${{:uid}}"
    return [
        f"{label}:",
        f"mbarrier.try_wait.parity.shared::cta.b64 p, [{barrier}], {parity};",
        f"@!p bra {label};",
    ]
