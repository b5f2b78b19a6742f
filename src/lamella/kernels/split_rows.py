"""Rows split across warps: on a GPU one subgroup for a row has too few loads in flight.

    for i from lane to n by 32  →  for i from lane + 32 * subgroup to n by 32 * subgroups
    subgroup_add.reduce x       →  the same of each subgroup to local memory, a barrier, and the sum of them
    x[row + i] in a later loop  →  what the first loop left of it in local memory
    y / s, s a sum of the row   →  y * (1 / s): a division is a branch, which no load or store passes

Written for kernels of graphs whose work-groups are one subgroup: each loop over the lanes runs from 0 in steps of the
subgroup, and what work-items leave in local memory they read again themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.build import Builder, FreshNames, names_of
from lamella.kernels.rewrite import constants_of, walk
from lamella.kernels.sizes import default_sizes
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    AtomicUpdate,
    Barrier,
    Blas,
    Builtin,
    Cast,
    Constant,
    CoopLoad,
    Dictionary,
    DictionaryEntry,
    For,
    Foreach,
    ForeachTile,
    Function,
    If,
    Load,
    Parallel,
    Program,
    Region,
    Scalar,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Value,
)
from lamella.lang.tensor.nodes.types import INDEX, make_memref

SHARES = (8, 4, 2)
"""Numbers of subgroups that may share a row."""
FEWEST = 8
"""Elements of a row that a work-item keeps."""
FEWEST_UNROLLED, MOST_UNROLLED = 4, 16
FEWEST_GROUPS = 65
"""Work-groups of a launch from which on it is none of the small ones that become phases of one kernel."""
MOST_KEPT = 6144
"""The most elements of a row in local memory."""
LANE, REAL = Scalar("i32"), Scalar("f32")
OTHERS = (
    *(
        Alloca,
        AtomicUpdate,
        Barrier,
        Blas,
        CoopLoad,
        Foreach,
        ForeachTile,
        Parallel,
        Subview,
        SubgroupBroadcast,
    ),
)
"""What no kernel of rows has that could be shared so."""


def split_rows(program: Program, groups: Mapping[str, int]) -> Program:
    """The kernels of a program with several subgroups for each row, where many work-groups have long rows."""
    functions = [
        _shared(item) if groups.get(item.name, 0) >= FEWEST_GROUPS else item for item in program.functions
    ]
    return replace(program, functions=tuple(functions))


def _shared(function: Function) -> Function:
    try:
        return _RowSplit(function).write()
    except Unsupported:
        return function


def _require(holds: bool) -> None:
    if not holds:
        raise Unsupported("no kernel of rows that subgroups can share")


@dataclass(slots=True)
class _RowSplit:
    """Rewrites a kernel."""

    function: Function
    lanes: set[str] = field(default_factory=set)
    """Names of the number of a work-item in its subgroup."""
    constants: dict[str, int] = field(default_factory=dict)
    locals: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    sums: set[str] = field(default_factory=set)
    """Results of reductions that add."""
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Loads of an element of the row, by name: the memref, and what is added to the number of the element."""
    elements: dict[str, Value] = field(default_factory=dict)
    """For each of them the number of the element."""
    filled: set[tuple[str, str]] = field(default_factory=set)
    kept: dict[tuple[str, str], Value] = field(default_factory=dict)
    """Where elements that several loops read lie in local memory."""

    def write(self) -> Function:
        """Unsupported: it does not suit."""
        sizes = default_sizes(self.function)
        size = sizes.subgroup_size
        _require(sizes.work_group_size == (size, 1))
        *outside, region = self.function.body.statements
        parallel = region.instruction
        if not isinstance(parallel, Parallel):
            raise Unsupported("it is not parallel")
        self._read(outside, parallel.body.statements)
        loops = [item.instruction for item in parallel.body.statements if isinstance(item.instruction, For)]
        lengths = [self._length(loop, size) for loop in loops]
        reduced = any(isinstance(item.instruction, SubgroupOperation) for item in parallel.body.statements)
        _require(bool(lengths) and reduced)
        fitting = [
            count
            for count in SHARES
            if all(item % (size * count) == 0 and item >= size * count * FEWEST for item in lengths)
        ]
        _require(bool(fitting))
        return self._rewrite(outside, region, size, fitting[0])

    def _read(self, outside: Sequence[Statement], inside: Sequence[Statement]) -> None:
        self.constants = {
            name: int(value)
            for name, value in constants_of(self.function).items()
            if isinstance(value, int) and not isinstance(value, bool)
        }
        for statement in outside:
            if isinstance(statement.instruction, Alloca):
                self.locals.add(statement.results[0].name)
            else:
                _require(not isinstance(statement.instruction, (*OTHERS, Store, For, If)))
        for statement in inside:
            self._read_statement(statement)

    def _read_statement(self, statement: Statement) -> None:
        node = statement.instruction
        _require(not isinstance(node, OTHERS))
        match node:
            case If():
                self._read_once(node)
            case Builtin(name="subgroup_local_id"):
                self.lanes.add(statement.results[0].name)
            case Cast(operand=operand) if operand.name in self.lanes:
                self.lanes.add(statement.results[0].name)
            case Arith(function="add", operands=operands):
                rest = [item.name for item in operands if item.name not in self.lanes]
                if len(rest) == 1 and self.constants.get(rest[0]) == 0:
                    self.lanes.add(statement.results[0].name)
            case Load(operand=operand) | Store(operand=operand):
                _require(operand.name not in self.locals)
            case SubgroupOperation(form=form, function=function):
                _require(form == "reduce")
                if function == "add":
                    self.sums.add(statement.results[0].name)
            case For():
                self._read_loop(node)
                self._read_elements(node)
            case _:
                return

    def _read_once(self, node: If) -> None:
        """A value that one work-item stores and all of them know; nobody of the work-group reads it."""
        nodes = [item.instruction for item in node.then.statements]
        stores = [item for item in nodes if isinstance(item, Store)]
        plain = all(isinstance(item, Arith | Cast | Constant | Store) for item in nodes)
        _require(plain and node.otherwise is None and not any(item.flag for item in stores))
        read = {
            item.instruction.operand.name
            for item in walk(self.function.body)
            if isinstance(item.instruction, Load)
        }
        _require(not any(item.operand.name in read | self.locals for item in stores))

    def _read_loop(self, loop: For) -> None:
        """Work-items touch elements of local memory that are their own."""
        own = set()
        for statement in walk(loop.body):
            node = statement.instruction
            _require(not isinstance(node, (*OTHERS, SubgroupOperation, Builtin)))
            match node:
                case Arith(function="add", operands=operands):
                    names = {item.name for item in operands}
                    if loop.variable.name in names and names & self.lanes:
                        own.add(statement.results[0].name)
                case Load(operand=operand, indices=indices) | Store(operand=operand, indices=indices):
                    _require(
                        operand.name not in self.locals or [item.name in own for item in indices] == [True]
                    )
                    _require(not isinstance(node, Store) or not node.flag)
                case _:
                    continue

    def _read_elements(self, loop: For) -> None:
        """Which loads are of `memref[start + number of the element]`, in the loop itself."""
        own: set[str] = set()
        moved: dict[str, tuple[str, Value]] = {}
        made = {item.name for statement in loop.body.statements for item in statement.results}
        for statement in loop.body.statements:
            node = statement.instruction
            if isinstance(node, Arith) and node.function == "add" and len(node.operands) == 2:
                names = [item.name for item in node.operands]
                if loop.variable.name in names and self.lanes & set(names):
                    own.add(statement.results[0].name)
                found = [item for item in node.operands if item.name in own]
                start = [name for name in names if name not in made]
                if found and len(start) == 1 and start[0] != loop.variable.name:
                    moved[statement.results[0].name] = start[0], found[0]
            elif isinstance(node, Load) and len(node.indices) == 1 and node.indices[0].name in moved:
                start_name, element = moved[node.indices[0].name]
                self.places[statement.results[0].name] = node.operand.name, start_name
                self.elements[statement.results[0].name] = element
            elif isinstance(node, Store):
                self.written.add(node.operand.name)

    def _length(self, loop: For, size: int) -> int:
        step = None if loop.step is None else self.constants.get(loop.step.name)
        _require(self.constants.get(loop.begin.name) == 0 and step == size)
        return self.constants.get(loop.end.name, 0)

    # --- the kernel --------------------------------------------------------------------------------------------

    def _rewrite(self, outside: Sequence[Statement], region: Statement, size: int, count: int) -> Function:
        names = names_of(self.function)
        parallel = region.instruction
        if not isinstance(parallel, Parallel):
            raise TypeError("it was parallel")
        rooms = self._make_rooms(parallel.body.statements, names)
        body = Builder(names)
        reciprocals: dict[str, Value] = {}
        subgroup = body.builtin("subgroup_id", LANE)
        own, step = body.cast(subgroup, INDEX), body.constant(size * count)
        for statement in parallel.body.statements:
            node = statement.instruction
            if isinstance(node, Builtin) and node.name == "subgroup_local_id":
                # From here on the number of a work-item is that in its work-group.
                lane = body.value(node)
                first = body.arith("mul", subgroup, body.constant(size, LANE), type_=LANE)
                body.put(Arith("add", (first, lane), LANE), statement.results)
                continue
            if isinstance(node, For):
                self._invert(body, node, reciprocals)
                loop = self._with_rooms(self._spread(node, step, size * count), reciprocals)
                statement = replace(statement, instruction=loop)
            body.statements.append(statement)
            if isinstance(node, SubgroupOperation):
                room = names.new()
                kind = node.type.name if isinstance(node.type, Scalar) else ""
                rooms.append(Statement((room,), Alloca(make_memref(kind, (count,), local=True))))
                body.statements[-1] = replace(statement, results=(names.new(),))
                self._meet(body, node, (room, own, statement.results[0]), count)
        whole = (*outside, *rooms, replace(region, instruction=Parallel(Region(tuple(body.statements)))))
        return replace(
            self.function,
            body=replace(self.function.body, statements=whole),
            attributes=_wider(self.function.attributes, size * count),
        )

    def _make_rooms(self, statements: Sequence[Statement], names: FreshNames) -> list[Statement]:
        """Allocate local memory for elements that several loops of one length read, and that nobody writes."""
        found: list[Statement] = []
        readers: dict[tuple[str, str], set[int]] = {}
        kinds: dict[tuple[str, str], tuple[str, int]] = {}
        lengths = set()
        for number, statement in enumerate(statements):
            node = statement.instruction
            if not isinstance(node, For):
                continue
            lengths.add(self.constants[node.end.name])
            for inner in node.body.statements:
                key = self.places.get(inner.results[0].name) if inner.results else None
                if key is not None and isinstance(inner.instruction, Load) and key[0] not in self.written:
                    readers.setdefault(key, set()).add(number)
                    kind = inner.instruction.type
                    kinds[key] = kind.name if isinstance(kind, Scalar) else "", self.constants[node.end.name]
        for key, numbers in readers.items():
            if len(numbers) > 1 and len(lengths) == 1 and kinds[key][1] <= MOST_KEPT:
                room = names.new()
                self.kept[key] = room
                found.append(
                    Statement((room,), Alloca(make_memref(kinds[key][0], (kinds[key][1],), local=True)))
                )
        return found

    def _with_rooms(self, loop: For, reciprocals: Mapping[str, Value]) -> For:
        """The loop, which keeps elements that it is the first to load, and finds the others in local memory."""
        statements: list[Statement] = []
        for statement in loop.body.statements:
            node, name = statement.instruction, statement.results[0].name if statement.results else ""
            key = self.places.get(name)
            room = None if key is None else self.kept.get(key)
            if isinstance(node, Arith) and node.function == "div" and node.operands[1].name in reciprocals:
                factors = node.operands[0], reciprocals[node.operands[1].name]
                node = replace(node, function="mul", operands=factors)
                statement = replace(statement, instruction=node)
            if room is None or key is None or not isinstance(node, Load):
                statements.append(statement)
            elif key in self.filled:
                found = replace(node, operand=room, indices=(self.elements[name],))
                statements.append(replace(statement, instruction=found))
            else:
                put = Store(statement.results[0], room, (self.elements[name],))
                statements += [statement, Statement((), put)]
                self.filled.add(key)
        return replace(loop, body=replace(loop.body, statements=tuple(statements)))

    def _invert(self, body: Builder, loop: For, reciprocals: dict[str, Value]) -> None:
        """Strength reduction: what a sum divides in a loop is multiplied by its reciprocal, hoisted before."""
        for statement in loop.body.statements:
            node = statement.instruction
            if isinstance(node, Arith) and node.function == "div" and node.type == REAL:
                divisor = node.operands[1]
                if divisor.name in self.sums and divisor.name not in reciprocals:
                    one = body.constant(1.0, REAL)
                    reciprocals[divisor.name] = body.arith("div", one, divisor, type_=REAL)

    def _spread(self, loop: For, step: Value, share: int) -> For:
        trips = self.constants[loop.end.name] // share
        unrolled = max(item for item in range(1, MOST_UNROLLED + 1) if trips % item == 0)
        # Of a number of trips that nothing divides, a loop of its own does the rest.
        unrolled = unrolled if unrolled >= FEWEST_UNROLLED else min(trips, MOST_UNROLLED // 2)
        attributes = Dictionary((DictionaryEntry("unroll", unrolled),))
        return replace(loop, step=step, attributes=attributes)

    def _meet(
        self, body: Builder, node: SubgroupOperation, place: tuple[Value, Value, Value], count: int
    ) -> None:
        """The partial reductions of subgroups, combined by each work-item in the same order."""
        room, own, result = place
        body.store(body.statements[-1].results[0], room, [own])
        body.put(Barrier(on_local=True))
        total = body.load(room, [body.constant(0)], node.type)
        for other in range(1, count):
            more = body.load(room, [body.constant(other)], node.type)
            total = body.arith(node.function, total, more, type_=node.type)
        body.statements[-1] = replace(body.statements[-1], results=(result,))


def _wider(attributes: Dictionary | None, items: int) -> Dictionary:
    given = () if attributes is None else attributes.entries
    kept = [entry for entry in given if entry.key != "work_group_size"]
    whole = sorted([*kept, DictionaryEntry("work_group_size", (items, 1))], key=lambda entry: entry.key)
    return Dictionary(tuple(whole))
