"""Which kernels run as warp-specialised GEMM pipelines (TMA and `wgmma`), and in what sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import gcd
from types import MappingProxyType

from lamella.backend.arguments import written_parameters
from lamella.backend.cpu.compiled import Pipeline, TensorMap
from lamella.backend.cpu.convention import slots_of
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.fragments import COLUMNS, DEPTH, FACTORS, ROWS, WARP
from lamella.kernels.rewrite import used_values
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopApply,
    CoopLoad,
    CoopMulAdd,
    CoopScale,
    CoopStore,
    Expand,
    For,
    Function,
    If,
    Load,
    Memref,
    Parallel,
    SizeOf,
    Statement,
    Subview,
    Yield,
)
from lamella.lang.tensor.nodes.types import STORED_FLOATS

WARPGROUP = 4 * WARP
MOST_ROWS = 256
"""Rows of a tile that one instruction takes."""
MOST_BOX = 256
"""Rows or columns that one copy takes."""
LINE = 128
"""Bytes along k in a stage: the width of the swizzle."""
STEP = 64
"""Halves of them."""
WIDE = "f32"
"""Types that no tensor core multiplies as they are: threads do, by fused multiply-adds."""
WIDE_TILES = ((64, 64), (128, 32))
"""Rows and columns of the sums of a subgroup of such a product: 128 numbers of each thread."""
GRAIN = 16
"""Bytes that divide the way from column to column of what is copied."""
ATOM = 1024
"""Bytes after which the swizzle repeats: stages begin at multiples of it."""
BLOCK_BYTES = 232448
"""Local memory that a block of Hopper may have."""
MOST_STAGES = 8
PAIR = 2
"""Blocks of a cluster that multicast a tile of A."""
STORED = 64
"""Rows that one copy stores."""
MOST_STEPS = 512
"""The most stages of a loop whose copies are unrolled."""
EVALUATED: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "div": operator.floordiv,
        "rem": operator.mod,
        "min": min,
        "max": max,
    }
)
"""Functions of integers that are run at once; div and rem for what is not negative."""
PURE = (Arith, Builtin, Cast, Compare, Constant, Load, SizeOf)
"""Instructions that a producer may repeat; what they load their kernel does not write."""


def _step(load: CoopLoad) -> int:
    """Elements of k in a stage."""
    return LINE // BYTES[load.type.element]


def _require(holds: bool) -> None:
    if not holds:
        raise Unsupported("no loop of products that a pipeline computes")


def _require_mn_major(load: CoopLoad, size: int) -> None:
    """Whole panels of halves, none of which leaves its array."""
    _require(load.type.element in FACTORS and not load.checked and size % STEP == 0)


def _loads_sums(statement: Statement) -> bool:
    """Whether a statement loads sums, or tells where they lie."""
    node = statement.instruction
    return isinstance(node, Subview | Expand) or (
        isinstance(node, CoopLoad) and node.type.use == "matrix_acc"
    )


# --- which kernels suit ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A kernel as a pipeline."""

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
    """Stores by TMA; their tensor maps follow those of the operands."""
    maps: tuple[TensorMap, ...]
    slots: int
    steps: tuple[tuple[int, int], ...] | None
    """For each stage where B is read along k, and by how much its columns are shifted; None for one after another."""
    base: str
    """The first column of B of a subgroup."""
    cluster: int
    """The cluster size: 2 where pairs of work-groups multiply the same tile of A, and each multicasts half of it."""
    mn_major: tuple[bool, bool] = (False, False)
    """Whether A and B lie along their rows or columns instead of along k."""
    begin: tuple[Statement, ...] = ()
    """What loads the initial sums of the loop; the producer leaves it out."""
    guard: str = ""
    """Whether a work-group has anything to do, where that is asked."""
    first: str = ""
    """The k at which the loop begins, where that is not 0: split-K."""

    @property
    def uses_fma(self) -> bool:
        """Whether threads multiply with fused multiply-adds (f32), not tensor cores."""
        return self.left.type.element == WIDE

    @property
    def step(self) -> int:
        """Elements of k in a stage."""
        return _step(self.left)

    @property
    def columns(self) -> int:
        """Columns of a subgroup."""
        return self.product.type.columns

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
        return self.left_bytes + self.warpgroups * 4 * self.columns * LINE

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
        """The launch parameters of the pipeline."""
        staged = self.staged_bytes * 4 * self.warpgroups
        size = ATOM + self.stages * (self.stage_bytes + 16) + staged
        return Pipeline(self.threads, size, self.maps, self.cluster)


def find_pipeline(function: Function, target: Target) -> PipelinePlan | None:
    """The pipeline of a kernel whose matrices are fragments; None where it does not suit."""
    if not target.has_warpgroups:
        return None
    try:
        return _PipelineReader(function).read()
    except Unsupported:
        return None


@dataclass(slots=True)
class _PipelineReader:
    """Recognises a pipeline, statement by statement."""

    function: Function
    constants: dict[str, int] = field(default_factory=dict)
    shares: dict[str, int] = field(default_factory=dict)
    """By how much each integer grows from one subgroup to the next; what is not there is unknown."""
    quotients: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Integers that are (g div a) mod b for the work-group's number g: a and b; b is 0 where nothing is left out."""
    steps: tuple[tuple[int, int], ...] | None = None
    base: str = ""
    """The first column of B of a subgroup, where the loop shifts it."""
    grains: dict[str, int] = field(default_factory=dict)
    """Integers that depend on g div d alone: d, which is 0 where they do not depend on g."""
    beyond: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Integers that are another one and a number."""

    def read(self) -> PipelinePlan:
        """Unsupported: it does not suit."""
        rows, columns = default_sizes(self.function).work_group_size
        warpgroups, rest = divmod(rows, WARPGROUP)
        _require(columns == 1 and not rest and warpgroups in (1, 2))
        *outside, region = self.function.body.statements
        parallel = region.instruction
        _require(isinstance(parallel, Parallel))
        inside = parallel.body.statements if isinstance(parallel, Parallel) else ()
        before_guard, inside, guard = self._open_guard(outside, inside)
        places = [place for place, item in enumerate(inside) if isinstance(item.instruction, For)]
        _require(len(places) == 1)
        loop = inside[places[0]].instruction
        above = (*before_guard, *inside[: places[0]])
        loaded = [item.instruction for item in above if isinstance(item.instruction, Load)]
        written = written_parameters(self.function)
        _require(not any(item.operand.name in written for item in loaded))
        _require(not guard or not any(isinstance(item.instruction, Load) for item in inside[: places[0]]))
        begin = tuple(item for item in above if _loads_sums(item))
        before = tuple(item for item in above if not _loads_sums(item))
        for statement in before:
            self._follow(statement)
        if not isinstance(loop, For):
            raise Unsupported("no loop")
        left, right, product = self._read_loop(loop)
        plan = self._plan(
            (before, loop, inside[places[0]], inside[places[0] + 1 :]), (left, right, product), warpgroups
        )
        return replace(plan, begin=begin, guard=guard)

    def _open_guard(
        self, outside: Sequence[Statement], inside: Sequence[Statement]
    ) -> tuple[tuple[Statement, ...], tuple[Statement, ...], str]:
        """What stands before and inside a last `if` that all of a work-group takes or leaves, and what it asks."""
        last = inside[-1].instruction if inside else None
        if not isinstance(last, If):
            return tuple(outside), tuple(inside), ""
        _require(last.otherwise is None)
        before = (*outside, *inside[:-1])
        for statement in before:
            self._follow(statement)
        _require(self.shares.get(last.condition.name) == 0)
        return before, last.then.statements, last.condition.name

    def _plan(
        self,
        parts: tuple[tuple[Statement, ...], For, Statement, tuple[Statement, ...]],
        body: tuple[CoopLoad, CoopLoad, CoopMulAdd],
        warpgroups: int,
    ) -> PipelinePlan:
        before, loop, statement, after = parts
        left, right, product = body
        for item in after:
            _require(isinstance(item.instruction, (*PURE, Subview, Expand, CoopApply, CoopStore, CoopScale)))
            if isinstance(item.instruction, PURE):
                self._follow(item)
        mn_major = not left.transposed, right.transposed
        first, length = self._bounds(loop)
        cluster = PAIR if self._is_paired(left, product.type.rows, first) else 1
        boxes = product.type.rows // cluster, min(MOST_BOX, 4 * product.type.columns * warpgroups)
        # Transposed operands come in panels of 64 rows or columns, for all k of a stage.
        boxes = STEP if mn_major[0] else boxes[0], STEP if mn_major[1] else boxes[1]
        maps = [self._map(left, boxes[0]), self._map(right, boxes[1])]
        stores = [item.instruction for item in after if isinstance(item.instruction, CoopStore)]
        copied = [item for item in stores if self._is_copied(item, product.type.rows)]
        maps += [self._map(item, COLUMNS) for item in copied]
        plan = PipelinePlan(
            before,
            loop,
            statement.results[0].name,
            after,
            left,
            right,
            product,
            -(-length // _step(left)),
            warpgroups,
            1,
            tuple(copied),
            tuple(maps),
            sum(len(slots_of(item)) for item in self.function.parameters),
            self.steps,
            self.base or (right.row if mn_major[1] else right.column).name,
            cluster,
            mn_major,
            first=first,
        )
        free = BLOCK_BYTES - ATOM - plan.staged_bytes * 4 * warpgroups
        stages = min(MOST_STAGES, free // (plan.stage_bytes + 16))
        _require(stages >= 2)
        return replace(plan, stages=stages)

    def _is_paired(self, left: CoopLoad, rows: int, first: str) -> bool:
        """Whether work-groups 2i and 2i+1 load the same tile (multicast in a cluster), half of which is a box."""
        even = left.transposed and rows % (2 * ROWS) == 0
        names = [left.column.name, *([first] if first else [])]
        return even and all(self.grains.get(name, 1) % PAIR == 0 for name in names)

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
            case Load() | Compare():
                given = node.indices if isinstance(node, Load) else (node.left, node.right)
                self._share(name, [self.shares.get(item.name) for item in given], "other")
                self.grains[name] = gcd(*(self.grains.get(item.name, 1) for item in given))
            case Cast():
                self._share(name, [self.shares.get(node.operand.name)], "same")
                self.grains[name] = self.grains.get(node.operand.name, 1)
            case Arith():
                names = [item.name for item in node.operands]
                self._share(name, [self.shares.get(item) for item in names], node.function, names)
                self._grain(name, node.function, names)
                if node.function == "add" and names[-1] in self.constants:
                    self.beyond[name] = names[0], self.constants[names[-1]]

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

    def _bounds(self, loop: For) -> tuple[str, int]:
        """Where a loop begins, empty for 0, and how far it goes; one that begins elsewhere ends a number behind it."""
        if self.constants.get(loop.begin.name) == 0:
            return "", self.constants.get(loop.end.name, 0)
        begin, length = self.beyond.get(loop.end.name, ("", 0))
        _require(begin == loop.begin.name and self.shares.get(begin) == 0)
        return begin, length

    def _read_loop(self, loop: For) -> tuple[CoopLoad, CoopLoad, CoopMulAdd]:
        """The two loads and the product of a loop that does nothing else."""
        step = loop.step
        first, length = self._bounds(loop)
        _require(len(loop.carried) == 1 and step is not None)
        nodes = [item.instruction for item in loop.body.statements if not isinstance(item.instruction, Yield)]
        loads = {item.type.use: item for item in nodes if isinstance(item, CoopLoad)}
        products = [item for item in nodes if isinstance(item, CoopMulAdd)]
        others = [item for item in nodes if not isinstance(item, CoopLoad | CoopMulAdd)]
        _require(all(isinstance(item, Arith | Constant) for item in others) and len(nodes) == len(others) + 3)
        _require(len(products) == 1 and {"matrix_a", "matrix_b"} == set(loads))
        left, right, product = loads["matrix_a"], loads["matrix_b"], products[0]
        width = left.type.columns
        # TMA gives zeros where an array ends; what is not checked must end with a stage.
        step_size = _step(left)
        whole = length % step_size == 0 or (left.checked == right.checked == "both" and not first)
        _require(length > 0 and whole and self.constants.get(step.name if step else "") == width)
        _require(
            step_size % width == 0
            and width % DEPTH == 0
            and product.accumulator.name == loop.carried[0][0].name
        )
        _require(not others or left.type.element in FACTORS)
        # Of a loop that begins anywhere all stages are read: what A has along k.
        held = self._memref(left.operand.name)
        depth = held.shape[0] if first and held is not None else length
        self.steps = self._read_steps(loop, right, depth or 0) if others else None
        self._require_tiles(left, right, product, loop.variable.name)
        return left, right, product

    def _read_steps(self, loop: For, right: CoopLoad, length: int) -> tuple[tuple[int, int], ...]:
        """Where B is read for each stage: its place along k, and by how much its columns are shifted.

        The statements of the loop are run with numbers, for every 16th k, with columns that begin at 0 and at 1.
        """
        _require(length % STEP == 0 and length // STEP <= MOST_STEPS)
        used = {item.name for one in loop.body.statements for item in used_values(one.instruction)}
        bases = [name for name, share in self.shares.items() if share == COLUMNS and name in used]
        _require(len(bases) == 1)
        (self.base,) = bases
        found = []
        for k in range(0, length, DEPTH):
            one, other = (self._evaluate(loop, right, {loop.variable.name: k}, start) for start in (0, 1))
            _require(other == (one[0], one[1] + 1))
            found.append(one)
        stages = found[:: STEP // DEPTH]
        for number, (place, shift) in enumerate(found):
            stage, rest = divmod(number, STEP // DEPTH)
            _require((place, shift) == (stages[stage][0] + rest * DEPTH, stages[stage][1]))
        return tuple(stages)

    def _evaluate(self, loop: For, right: CoopLoad, known: dict[str, int], start: int) -> tuple[int, int]:
        """The row and the column of a load with numbers for integers; those of the tile begin at `start`."""
        known = {**self.constants, **known, self.base: start}
        for statement in loop.body.statements:
            node = statement.instruction
            if isinstance(node, Constant) and isinstance(node.value, int):
                known[statement.results[0].name] = node.value
            elif isinstance(node, Arith):
                values = [known.get(item.name) for item in node.operands]
                numbers = [item for item in values if item is not None]
                _require(len(numbers) == len(values) == 2 and node.function in EVALUATED)
                _require(node.function not in ("div", "rem") or (numbers[0] >= 0 and numbers[1] > 0))
                known[statement.results[0].name] = EVALUATED[node.function](*numbers)
        _require(right.row.name in known and right.column.name in known)
        return known[right.row.name], known[right.column.name]

    def _require_tiles(self, left: CoopLoad, right: CoopLoad, product: CoopMulAdd, variable: str) -> None:
        """Every subgroup the same tile of A, and columns of B that follow those of the subgroup before."""
        sums = product.type
        width, wide = sums.columns, left.type.element == WIDE
        fits = (sums.rows, width) in WIDE_TILES if wide else sums.rows <= MOST_ROWS and width == COLUMNS
        _require(sums.rows % ROWS == 0 and fits)
        elements = {left.type.element, right.type.element}
        alike = len(elements) == 1 and elements <= {*FACTORS, WIDE}
        _require(alike or elements <= set(STORED_FLOATS))
        along, across = (left.row, left.column) if left.transposed else (left.column, left.row)
        _require(along.name == variable and self.shares.get(across.name) == 0)
        if not left.transposed:
            _require_mn_major(left, sums.rows)
        if right.transposed:
            _require_mn_major(right, STEP)
            _require(right.column.name == variable and self.shares.get(right.row.name) == width)
        elif self.steps is None:
            _require(right.row.name == variable and self.shares.get(right.column.name) == width)
        else:
            _require(left.transposed and left.checked == right.checked == "both")

    def _is_copied(self, store: CoopStore, rows: int) -> bool:
        """Whether TMA can store a tile: sums of two bytes whose rows are contiguous."""
        found = self._memref(store.operand.name)
        whole = rows % STORED == 0 and not store.flag
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
        if first != 1 or rows is None or width is None or stride is None:
            raise Unsupported("its extents are open")
        if stride * BYTES[found.element] % GRAIN:
            raise Unsupported("the copy engine cannot read it")
        slot = 0
        for item in self.function.parameters:
            if item.value.name == name:
                break
            slot += len(slots_of(item))
        return TensorMap(slot, found.element, (rows, width), stride, columns)
