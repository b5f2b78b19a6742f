"""Products on Hopper: a copy engine fills stages of local memory, warpgroups multiply what lies there.

A kernel suits whose work-items multiply tiles in one loop over k: every subgroup loads the same tile of A and 16
columns of B of its own, side by side, both with k contiguous, and adds to sums that begin anywhere. Four subgroups are
a warpgroup, whose instruction multiplies 64 columns at once; the fragments of the sums are those of `fragments`. Beside
them a producer, one thread, copies; it runs what computes the positions as they do. A block takes one work-group after
another, so that the copies of the next begin while the sums of this one are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from math import gcd

from lamella.backend.cpu.compiled import Pipeline, TensorMap, maps_offset
from lamella.backend.cpu.convention import slots_of
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.fragments import COLUMNS, DEPTH, FACTORS, ROWS, WARP
from lamella.backend.cpu.emit.matrices.layout import named_matrix
from lamella.backend.cpu.emit.values import LLVM, MatrixValue
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    Arith,
    Builtin,
    Cast,
    Constant,
    CoopLoad,
    CoopMulAdd,
    CoopScale,
    CoopStore,
    For,
    Function,
    Memref,
    Parallel,
    SizeOf,
    Statement,
    Yield,
)

WARPGROUP = 4 * WARP
MOST_ROWS = 256
"""Rows of a tile that one instruction takes."""
STEP = 64
"""Elements of k in a stage: 128 bytes, the width of the swizzle."""
LINE = 128
ATOM = 1024
"""Bytes after which the swizzle repeats: stages begin at multiples of it."""
BLOCK_BYTES = 232448
"""Local memory that a block of Hopper may have."""
MOST_STAGES = 8
PAIR = 2
"""Blocks of a cluster."""
STORED = 64
"""Rows that one copy stores."""
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
"""Of 65536 for 256 and 128 threads: more for the producer, and the kernel would wait for registers for ever."""
MEMORY = "@pipeline_memory"
COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
PURE = (Arith, Builtin, Cast, Constant, SizeOf)


def _require(holds: bool) -> None:
    if not holds:
        raise Unsupported("no loop of products that a pipeline computes")


# --- which kernels suit ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A kernel as a pipeline runs it."""

    before: tuple[Statement, ...]
    """What computes the positions."""
    loop: For
    result: str
    after: tuple[Statement, ...]
    left: CoopLoad
    right: CoopLoad
    product: CoopMulAdd
    trips: int
    warpgroups: int
    stages: int
    stores: tuple[CoopStore, ...]
    """Those that the copy engine does; their maps follow those of the factors."""
    maps: tuple[TensorMap, ...]
    slots: int
    cluster: int
    """2 where pairs of work-groups multiply the same tile of A: each copies half of it, for both."""

    @property
    def rows(self) -> int:
        """Rows of the sums of a subgroup."""
        return self.product.type.rows

    @property
    def left_bytes(self) -> int:
        """Bytes of A in a stage."""
        return self.rows * LINE

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""
        return self.left_bytes + self.warpgroups * STORED * LINE

    @property
    def staged_bytes(self) -> int:
        """Bytes of a subgroup for what it stores: two boxes."""
        return 2 * COLUMNS * LINE if self.stores else 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.warpgroups + 1) * WARPGROUP

    @property
    def pipeline(self) -> Pipeline:
        """What a launch has to know."""
        staged = self.staged_bytes * 4 * self.warpgroups
        size = ATOM + self.stages * (self.stage_bytes + 16) + staged
        return Pipeline(self.threads, size, self.maps, self.cluster)


def find_pipeline(function: Function, target: Target) -> PipelinePlan | None:
    """How a kernel whose matrices lie in fragments runs as a pipeline; None where it does not."""
    if not target.has_warpgroups:
        return None
    try:
        return _PipelineReader(function).read()
    except Unsupported:
        return None


@dataclass(slots=True)
class _PipelineReader:
    """Reads a kernel statement by statement."""

    function: Function
    constants: dict[str, int] = field(default_factory=dict)
    shares: dict[str, int] = field(default_factory=dict)
    """By how much each integer grows from one subgroup to the next; what is not there is unknown."""
    quotients: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Integers that are (g div a) mod b for the work-group's number g: a and b; b is 0 where nothing is left out."""
    grains: dict[str, int] = field(default_factory=dict)
    """Integers that depend on g div d alone: d, which is 0 where they do not depend on g."""

    def read(self) -> PipelinePlan:
        """Unsupported: it does not suit."""
        rows, columns = default_sizes(self.function).work_group_size
        warpgroups, rest = divmod(rows, WARPGROUP)
        _require(columns == 1 and not rest and warpgroups in (1, 2))
        *outside, region = self.function.body.statements
        parallel = region.instruction
        _require(isinstance(parallel, Parallel))
        inside = parallel.body.statements if isinstance(parallel, Parallel) else ()
        places = [place for place, item in enumerate(inside) if isinstance(item.instruction, For)]
        _require(len(places) == 1)
        loop = inside[places[0]].instruction
        before = (*outside, *inside[: places[0]])
        for statement in before:
            self._follow(statement)
        if not isinstance(loop, For):
            raise Unsupported("no loop")
        left, right, product = self._read_loop(loop)
        return self._plan(
            (before, loop, inside[places[0]], inside[places[0] + 1 :]), (left, right, product), warpgroups
        )

    def _plan(
        self,
        parts: tuple[tuple[Statement, ...], For, Statement, tuple[Statement, ...]],
        body: tuple[CoopLoad, CoopLoad, CoopMulAdd],
        warpgroups: int,
    ) -> PipelinePlan:
        before, loop, statement, after = parts
        left, right, product = body
        for item in after:
            _require(isinstance(item.instruction, (*PURE, CoopStore, CoopScale)))
        cluster = PAIR if self._is_paired(left, product.type.rows) else 1
        maps = [self._map(left, product.type.rows // cluster), self._map(right, STORED * warpgroups)]
        stores = [item.instruction for item in after if isinstance(item.instruction, CoopStore)]
        copied = [item for item in stores if self._is_copied(item, product.type.rows)]
        maps += [self._map(item, COLUMNS) for item in copied]
        length = self.constants[loop.end.name]
        plan = PipelinePlan(
            before,
            loop,
            statement.results[0].name,
            after,
            left,
            right,
            product,
            length // STEP,
            warpgroups,
            1,
            tuple(copied),
            tuple(maps),
            sum(len(slots_of(item)) for item in self.function.parameters),
            cluster,
        )
        free = BLOCK_BYTES - ATOM - plan.staged_bytes * 4 * warpgroups
        stages = min(MOST_STAGES, free // (plan.stage_bytes + 16))
        _require(stages >= 2)
        return replace(plan, stages=stages)

    def _is_paired(self, left: CoopLoad, rows: int) -> bool:
        """Whether work-groups 2i and 2i+1 load the same tile, half of which is a box."""
        return rows % (2 * ROWS) == 0 and self.grains.get(left.column.name, 1) % PAIR == 0

    def _follow(self, statement: Statement) -> None:
        """What is known of a value: its number, and how it differs from subgroup to subgroup."""
        node, name = statement.instruction, statement.results[0].name if statement.results else ""
        _require(isinstance(node, PURE))
        match node:
            case Constant():
                if isinstance(node.value, int):
                    self.constants[name], self.shares[name], self.grains[name] = node.value, 0, 0
            case Builtin():
                _require(
                    node.name in ("group_id", "group_size", "subgroup_id", "num_subgroups", "subgroup_size")
                )
                self.shares[name] = int(node.name == "subgroup_id")
                self.grains[name] = int(node.name == "group_id")
                if node.name == "group_id":
                    self.quotients[name] = 1, 0
            case SizeOf():
                self.shares[name] = self.grains[name] = 0
            case Cast():
                self._share(name, [self.shares.get(node.operand.name)], "same")
                self.grains[name] = self.grains.get(node.operand.name, 1)
            case Arith():
                names = [item.name for item in node.operands]
                self._share(name, [self.shares.get(item) for item in names], node.function, names)
                self._grain(name, node.function, names)

    def _grain(self, name: str, function: str, operands: Sequence[str]) -> None:
        """What is known of a result: where c divides b, (g div a) mod b div c is (g div ac) mod (b/c)."""
        self.grains[name] = gcd(*(self.grains.get(item, 1) for item in operands))
        divisor = self.constants.get(operands[-1], 0)
        if function not in ("div", "rem") or operands[0] not in self.quotients or divisor < 1:
            return
        step, size = self.quotients[operands[0]]
        if size % divisor:
            return
        found = (step * divisor, size // divisor) if function == "div" else (step, divisor)
        self.quotients[name], self.grains[name] = found, found[0]

    def _share(
        self, name: str, given: Sequence[int | None], function: str, operands: Sequence[str] = ()
    ) -> None:
        known = [item for item in given if item is not None]
        if len(known) < len(given):
            return
        if not any(known):
            self.shares[name] = 0
        elif function == "same":
            self.shares[name] = known[0]
        elif function in ("add", "sub"):
            self.shares[name] = known[0] + known[1] if function == "add" else known[0] - known[1]
        elif function == "mul":
            for own, other in ((0, 1), (1, 0)):
                if known[other] == 0 and operands[other] in self.constants:
                    self.shares[name] = known[own] * self.constants[operands[other]]

    def _read_loop(self, loop: For) -> tuple[CoopLoad, CoopLoad, CoopMulAdd]:
        """The two loads and the product of a loop from 0 on that does nothing else."""
        step = loop.step
        _require(len(loop.carried) == 1 and self.constants.get(loop.begin.name) == 0 and step is not None)
        nodes = [item.instruction for item in loop.body.statements if not isinstance(item.instruction, Yield)]
        loads = {item.type.use: item for item in nodes if isinstance(item, CoopLoad)}
        products = [item for item in nodes if isinstance(item, CoopMulAdd)]
        others = [item for item in nodes if not isinstance(item, CoopLoad | CoopMulAdd)]
        _require(
            not others and len(nodes) == 3 and len(products) == 1 and {"matrix_a", "matrix_b"} == set(loads)
        )
        left, right, product = loads["matrix_a"], loads["matrix_b"], products[0]
        length, width = self.constants.get(loop.end.name, 0), left.type.columns
        _require(length > 0 and length % STEP == 0 and self.constants.get(step.name if step else "") == width)
        _require(
            STEP % width == 0 and width % DEPTH == 0 and product.accumulator.name == loop.carried[0][0].name
        )
        self._require_tiles(left, right, product, loop.variable.name)
        return left, right, product

    def _require_tiles(self, left: CoopLoad, right: CoopLoad, product: CoopMulAdd, variable: str) -> None:
        """Every subgroup the same tile of A, and columns of B that follow those of the subgroup before."""
        sums = product.type
        _require(sums.rows % ROWS == 0 and sums.rows <= MOST_ROWS and sums.columns == COLUMNS)
        _require(left.transposed and not right.transposed and not left.checked and not right.checked)
        _require(left.type.element == right.type.element and left.type.element in FACTORS)
        _require(left.row.name == variable and right.row.name == variable)
        _require(self.shares.get(left.column.name) == 0 and self.shares.get(right.column.name) == COLUMNS)

    def _is_copied(self, store: CoopStore, rows: int) -> bool:
        """Whether the copy engine can store a tile: sums of two bytes whose rows are contiguous."""
        found = self._memref(store.operand.name)
        whole = rows % STORED == 0 and not store.checked and not store.flag
        return (
            whole
            and found is not None
            and found.element in FACTORS
            and self.shares.get(store.row.name) == 0
            and self.shares.get(store.column.name) == COLUMNS
            and found.stride[0] == 1
            and isinstance(found.stride[1], int)
            and found.stride[1] % 8 == 0
            and None not in found.shape
        )

    def _memref(self, name: str) -> Memref | None:
        for item in self.function.parameters:
            if item.value.name == name and isinstance(item.type, Memref) and item.type.order == 2:
                return item.type
        return None

    def _map(self, access: CoopLoad | CoopStore, columns: int) -> TensorMap:
        name = access.operand.name
        found = self._memref(name)
        if found is None:
            raise Unsupported("it is no parameter")
        (rows, width), (first, stride) = found.shape, found.stride
        if first != 1 or rows is None or width is None or stride is None or stride % 8:
            raise Unsupported("the copy engine cannot read it")
        slot = 0
        for item in self.function.parameters:
            if item.value.name == name:
                break
            slot += len(slots_of(item))
        return TensorMap(slot, found.element, (rows, width), stride, columns)


# --- the kernel ------------------------------------------------------------------------------------------------


class PipelineEmitter:
    """Writes a kernel as a pipeline."""

    def __init__(self, context: EmitContext, plan: PipelinePlan) -> None:
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
        self._set_registers("dec", PRODUCER_REGISTERS)
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
        self._set_registers("inc", CONSUMER_REGISTERS)
        self._fence_maps()
        self._each_group(self._consume)
        if plan.stores:
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
        """A block of two warpgroups that compute has more threads than registers would do for without it."""
        if self._plan.warpgroups == 2:
            self._asm(f"setmaxnreg.{way}.sync.aligned.u32 {count};", "", "")

    def _begin(self) -> None:
        """Local memory, its barriers, and all threads at once."""
        out, plan = self._out, self._plan
        out.need(f"{MEMORY} = external addrspace(3) global [0 x i8], align {ATOM}")
        start = out.value(f"ptrtoint ptr addrspace(3) {MEMORY} to i32")
        above = out.value(f"add i32 {start}, {ATOM - 1}")
        self._memory = out.value(f"and i32 {above}, {-ATOM}")
        staged = plan.staged_bytes * 4 * plan.warpgroups
        self._barriers = out.value(f"add i32 {self._memory}, {plan.stages * plan.stage_bytes + staged}")
        if plan.cluster > 1:
            self._blocks = out.intrinsic("i32", "llvm.nvvm.read.ptx.sreg.cluster.nctarank", "")
            self._rank = out.intrinsic("i32", "llvm.nvvm.read.ptx.sreg.cluster.ctarank", "")
        first, after = out.label("first"), out.label("ready")
        out.branch(out.value(f"icmp eq i32 {self._thread}, 0"), first, after)
        out.begin(first)
        warps = out.value(f"mul i32 {self._blocks}, {4 * plan.warpgroups}")
        for stage in range(plan.stages):
            for offset, count in ((8 * stage, "1"), (8 * (plan.stages + stage), warps)):
                text = f"mbarrier.init.shared::cta.b64 [$0 + {offset}], $1;"
                self._asm(text, "r,r", f"i32 {self._barriers}, i32 {count}")
        self._asm("fence.mbarrier_init.release.cluster;", "", "")
        out.jump(after)
        out.begin(after)
        if plan.cluster > 1:
            self._asm("barrier.cluster.arrive.release;\\0Abarrier.cluster.wait.acquire;", "", "")
        else:
            self._asm("bar.sync 0;", "", "")

    def _map(self, number: int) -> str:
        """The address of a map, an i64."""
        offset = maps_offset(self._plan.slots) + 128 * number
        place = self._out.value(f"getelementptr i8, ptr %args, i64 {offset}")
        return self._out.value(f"ptrtoint ptr {place} to i64")

    def _fence_maps(self) -> None:
        """The host wrote the maps: the copy engine must not see what was there before."""
        for number in range(len(self._plan.maps)):
            text = "fence.proxy.tensormap::generic.acquire.sys [$0], 128;"
            self._asm(text, "l", f"i64 {self._map(number)}")

    def _each_group(self, body: Callable[[str], None]) -> None:
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
        body(used)
        following = out.value(f"add i64 {group}, {blocks}")
        more = out.value(f"add i32 {used}, {self._plan.trips}")
        out.fill(hole, f"{group} = phi i64 [{block}, %{before}], [{following}, %{out.block}]")
        out.fill(other, f"{used} = phi i32 [0, %{before}], [{more}, %{out.block}]")
        out.branch(out.value(f"icmp slt i64 {following}, %groups"), loop, after)
        out.begin(after)

    def _walk_before(self) -> None:
        self._context.collective = False
        self._context.walk(self._context, self._plan.before)

    def _position(self, name: str) -> str:
        """An index as the copy engine wants it, an i32."""
        return self._out.value(f"trunc i64 {self._context.scalar(name).operand} to i32")

    # --- the producer --------------------------------------------------------------------------------------

    def _produce(self, used: str) -> None:
        plan = self._plan
        self._walk_before()
        row, column = self._position(plan.left.column.name), self._position(plan.right.column.name)
        lines = [
            "{",
            ".reg .pred p, q;",
            ".reg .b32 s, h, b, e, d, k, r;",
            ".reg .b16 m;",
            "mov.b32 k, 0;",
            "mov.b32 s, $2;",
            "xor.b32 h, $9, 1;",
            "mov.b16 m, 3;",
            "setp.eq.u32 q, $7, 2;",
            "NEXT${:uid}:",
            "mad.lo.u32 b, s, 8, $1;",
            f"add.u32 e, b, {8 * plan.stages};",
            *_wait("e"),
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], {plan.stage_bytes};",
            f"mad.lo.u32 d, s, {plan.stage_bytes}, $0;",
            *self._copy_left(),
            f"mad.lo.u32 d, s, {plan.stage_bytes}, $0;",
            f"add.u32 d, d, {plan.left_bytes};",
            f"{COPY} [d], [$4, {{k, $6}}], [b];",
            *self._advance(),
            f"add.u32 k, k, {STEP};",
            f"setp.lt.u32 p, k, {plan.trips * STEP};",
            "@p bra NEXT${:uid};",
            "}",
        ]
        stage, parity = self._begin_stage(used)
        given = [f"i32 {item}" for item in (self._memory, self._barriers, stage)]
        given += [f"i64 {self._map(0)}", f"i64 {self._map(1)}", f"i32 {row}", f"i32 {column}"]
        given += [f"i32 {item}" for item in (self._blocks, self._rank, parity)]
        self._asm("\\0A".join(lines), "r,r,r,l,l,r,r,r,r,r", ", ".join(given))

    def _copy_left(self) -> list[str]:
        """The tile of A; of two blocks each copies its half for both."""
        plan = self._plan
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

    def _begin_stage(self, used: str) -> tuple[str, str]:
        """The stage that follows so many, and the parity that its barrier has when it is full."""
        out, stages = self._out, self._plan.stages
        rounds = out.value(f"udiv i32 {used}, {stages}")
        return out.value(f"urem i32 {used}, {stages}"), out.value(f"and i32 {rounds}, 1")

    def _advance(self) -> list[str]:
        """The next stage; behind the last one comes the first, with the other parity."""
        return [
            "add.u32 s, s, 1;",
            f"setp.eq.u32 p, s, {self._plan.stages};",
            "selp.b32 s, 0, s, p;",
            "@p xor.b32 h, h, 1;",
        ]

    # --- consumers ------------------------------------------------------------------------------------------

    def _consume(self, used: str) -> None:
        plan, context = self._plan, self._context
        self._walk_before()
        start = named_matrix(context, plan.loop.carried[0][1])
        context.values[plan.result] = self._multiply(used, start)
        copied = {id(item): number for number, item in enumerate(plan.stores, 2)}
        for statement in plan.after:
            node = statement.instruction
            if isinstance(node, CoopStore) and id(node) in copied:
                self._store(node, copied[id(node)])
            else:
                context.walk(context, [statement])

    def _descriptor(self, address: str) -> str:
        """How a warpgroup is told of a matrix in local memory whose lines have 128 bytes."""
        out = self._out
        short = out.value(f"lshr i32 {address}, 4")
        low = out.value(f"zext i32 {short} to i64")
        fixed = (1 << 62) | (ATOM >> 4 << 32) | (1 << 16)
        return out.value(f"or i64 {low}, {fixed}")

    def _multiply(self, used: str, start: MatrixValue) -> MatrixValue:
        out, plan = self._out, self._plan
        count = len(start.parts[0])
        # The first thread tells the others, so that the assembler sees that they agree.
        own = out.value(f"lshr i32 {self._thread}, 7")
        group = out.intrinsic("i32", "llvm.nvvm.shfl.sync.idx.i32", f"i32 -1, i32 {own}, i32 0, i32 31")
        stage, parity = self._begin_stage(used)
        rows = out.value(f"mul i32 {group}, {STORED * LINE}")
        right = out.value(f"add i32 {self._memory}, {plan.left_bytes}")
        wide = self._descriptor(out.value(f"add i32 {right}, {rows}"))
        narrow = self._descriptor(self._memory)
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

    def _loop(self, count: int) -> list[str]:
        plan, element = self._plan, self._plan.left.type.element
        leader, barriers, stage, wide, narrow, told, parity = (f"${count + place}" for place in range(7))
        sums = ", ".join(f"${place}" for place in range(count))
        product = f"wgmma.mma_async.sync.aligned.m64n{plan.rows}k16.f32.{element}.{element}"
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
            *_wait("b"),
            f"mul.wide.u32 o, s, {plan.stage_bytes >> 4};",
            f"add.u64 a, {wide}, o;",
            f"add.u64 c, {narrow}, o;",
            "wgmma.fence.sync.aligned;",
        ]
        for step in range(STEP // DEPTH):
            moved = ["add.u64 a, a, 2;", "add.u64 c, c, 2;"] if step else []
            lines += [*moved, f"{product} {{{sums}}}, a, c, t, 1, 1, 0, 0;"]
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
        """Store the tile of a subgroup: 64 rows by 16 columns at a time through local memory, two at once."""
        out, plan, context = self._out, self._plan, self._context
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
                turned = out.value(f"xor i32 {out.value(f'add i32 {side}, {chunk}')}, {turn}")
                place = out.value(f"add i32 {own}, {out.value(f'shl i32 {turned}, 4')}")
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

    def _when(self, condition: str, text: str, ways: str, operands: str) -> None:
        out = self._out
        then, after = out.label("then"), out.label("after")
        out.branch(condition, then, after)
        out.begin(then)
        self._asm(text, ways, operands)
        out.jump(after)
        out.begin(after)

    def _pair(self, element: str, low: str, high: str) -> str:
        """Two numbers of 16 bits as a word."""
        out, kind = self._out, LLVM[element]
        first = out.value(f"insertelement <2 x {kind}> poison, {kind} {low}, i64 0")
        both = out.value(f"insertelement <2 x {kind}> {first}, {kind} {high}, i64 1")
        return out.value(f"bitcast <2 x {kind}> {both} to i32")


def _wait(barrier: str) -> list[str]:
    """Wait until a barrier has passed the phase of a parity."""
    label = f"{barrier.upper()}WAIT${{:uid}}"
    return [
        f"{label}:",
        f"mbarrier.try_wait.parity.shared::cta.b64 p, [{barrier}], h;",
        f"@!p bra {label};",
    ]
