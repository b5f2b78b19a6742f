"""The pass that computes what is known before the run, and leaves out what nobody needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field

from lamella.base.records import dataclass, replace
from lamella.kernels.build import HOLDERS, regions
from lamella.kernels.fold import fold_arith, fold_cast, fold_compare, simplify_arith
from lamella.kernels.rewrite import (
    change_functions,
    constant_value,
    rename_region,
    rewrite,
    split_yield,
    types_of,
    used_values,
    walk,
)
from lamella.kernels.sizes import Sizes, default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    INDEX,
    Arith,
    AtomicUpdate,
    Barrier,
    Blas,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopScale,
    CoopStore,
    For,
    Function,
    If,
    Instruction,
    LifetimeStop,
    Memref,
    Number,
    Program,
    Region,
    Scalar,
    SizeOf,
    Statement,
    Store,
    Type,
    Value,
    Yield,
)

# --- statements that nobody needs: values without use, loops and branches that do nothing -------------------


EFFECTS = (Store, CoopStore, AtomicUpdate, Blas, Barrier, LifetimeStop)
NEEDED = frozenset((*EFFECTS, Yield))


def drop_unused(body: Region) -> Region:
    """The region without values that nobody uses and regions that do nothing; no name stands for two values."""
    dead = _find_dead(body)

    def visit(region: Region, _: bool) -> Region:
        kept = tuple(item for item in region.statements if not _is_dropped(item, dead))
        return region if len(kept) == len(region.statements) else replace(region, statements=kept)

    return rewrite(body, visit)


def _is_dropped(statement: Statement, dead: set[str]) -> bool:
    """Whether a statement, whose regions are done, gives what nobody needs or does nothing."""
    if statement.results:
        return all(value.name in dead for value in statement.results)
    instruction = statement.instruction
    return type(instruction) in HOLDERS and not _has_effect(instruction)


def _find_dead(body: Region) -> set[str]:
    """The values that nobody needs, found from the end of the text: what only they use is needed by nobody either."""
    statements = list(walk(body))
    uses = Counter(value.name for item in statements for value in used_values(item.instruction))
    gone: set[int] = set()
    dead: set[str] = set()
    for statement in reversed(statements):
        if _is_needed(statement, uses):
            continue
        dead.update(value.name for value in statement.results)
        for item in walk(Region((statement,))):
            if id(item) not in gone:
                gone.add(id(item))
                uses.subtract(value.name for value in used_values(item.instruction))
    return dead


def _is_needed(statement: Statement, uses: Counter[str]) -> bool:
    return any(uses[value.name] > 0 for value in statement.results) or _has_effect(statement.instruction)


def _has_effect(instruction: Instruction) -> bool:
    """Whether an instruction does more than give values; a yield belongs to what it ends."""
    kind = type(instruction)
    if kind in NEEDED or kind not in HOLDERS:
        return kind in NEEDED
    inner = (item.instruction for region in regions(instruction) for item in walk(region))
    return any(isinstance(item, EFFECTS) for item in inner)


WIDE = (Scalar("i32"), Scalar("i64"), INDEX)
"""Types that hold the number of any work-item."""


def fold_constants(program: Program, _: Target) -> Program:
    """A program in which constants are computed, branches that are never taken and values without use left out."""
    return change_functions(program, fold_function)


def fold_function(function: Function) -> Function:
    """A kernel in which constants are computed; no name stands for two values."""
    work = _KnownValues(types_of(function), default_sizes(function))
    for statement in walk(function.body):
        work.learn(statement)
    body = rewrite(function.body, lambda region, _: work.visit(region))
    return replace(function, body=drop_unused(rename_region(body, _last({**work.same, **work.gone}))))


@dataclass(slots=True)
class _KnownValues:
    """What is known of the values of a function, each under a name of its own."""

    types: dict[str, Type]
    sizes: Sizes
    known: dict[str, Number] = field(default_factory=dict)
    same: dict[str, Value] = field(default_factory=dict)
    """Values that are other values."""
    gone: dict[str, Value] = field(default_factory=dict)
    """Results of branches and loops that are left out, with what they are instead."""
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the greatest value of numbers of work-items."""

    # --- what is known, in the order of the text

    def learn(self, statement: Statement) -> None:
        """Note what a statement gives, all before it being noted."""
        if len(statement.results) != 1:
            return
        name, instruction = statement.results[0].name, statement.instruction
        found = self._value(instruction)
        if found is not None:
            self.known[name] = found
            return
        other = self._other(instruction)
        if other is not None:
            self.same[name] = self._resolve(other)
        elif isinstance(instruction, Builtin):
            self._bound(name, instruction)
        elif isinstance(instruction, Cast) and instruction.type in WIDE:
            bounds = self.bounds.get(self._resolve(instruction.operand).name)
            self.bounds.update({} if bounds is None else {name: bounds})

    def _value(self, instruction: Instruction) -> Number | None:
        match instruction:
            case Constant():
                return constant_value(instruction)
            case Arith(function=function, operands=operands, type=type_):
                numbers = [item for item in map(self._number, operands) if item is not None]
                return fold_arith(function, numbers, type_) if len(numbers) == len(operands) else None
            case Compare() as compare:
                return self._compare(compare)
            case Cast(operand=operand, type=type_):
                number = self._number(operand)
                return None if number is None else fold_cast(number, self._type(operand), type_)
            case SizeOf(operand=operand, mode=mode):
                memref = self._type(operand)
                return memref.shape[mode] if isinstance(memref, Memref) and mode < memref.order else None
            case Builtin(name="subgroup_size"):
                return self.sizes.subgroup_size
            case Builtin(name="num_subgroups"):
                return self._subgroups
            case _:
                return None

    def _compare(self, item: Compare) -> bool | None:
        left, right = self._number(item.left), self._number(item.right)
        if left is not None and right is not None:
            return fold_compare(item.function, left, right, self._type(item.left))
        bounds = self.bounds.get(self._resolve(item.left).name)
        if bounds is None or not isinstance(right, int) or item.function not in ("lt", "eq"):
            return None
        if item.function == "eq":
            return (
                True if bounds == (right, right) else False if not bounds[0] <= right <= bounds[1] else None
            )
        return True if bounds[1] < right else False if bounds[0] >= right else None

    def _other(self, instruction: Instruction) -> Value | None:
        match instruction:
            case Arith(operands=operands) as arith:
                return simplify_arith(arith, [self._number(item) for item in operands])
            case Cast(operand=operand, type=type_) if self._type(operand) == type_:
                return operand
            case CoopScale(scalar=scalar, operand=operand) if self._number(scalar) in (1, (1.0, 0.0)):
                return operand
            case _:
                return None

    def _bound(self, name: str, builtin: Builtin) -> None:
        largest = {"subgroup_local_id": self.sizes.subgroup_size, "subgroup_id": self._subgroups}
        if builtin.name in largest:
            self.bounds[name] = (0, largest[builtin.name] - 1)
            if largest[builtin.name] == 1:
                self.known[name] = 0

    @property
    def _subgroups(self) -> int:
        rows, columns = self.sizes.work_group_size
        return max(1, rows * columns // self.sizes.subgroup_size)

    def _resolve(self, value: Value) -> Value:
        return self.same.get(value.name, value)

    def _number(self, value: Value) -> Number | None:
        return self.known.get(self._resolve(value).name)

    def _type(self, value: Value) -> Type | None:
        return self.types.get(self._resolve(value).name)

    # --- what is left of a region

    def visit(self, region: Region) -> Region:
        """A region without what is known; its inner regions are done."""
        replaced: dict[str, Value] = {}
        found: list[Statement] = []
        for statement in region.statements:
            found += self._replace(statement, replaced)
        self.gone.update(replaced)
        new = replace(region, statements=tuple(found))
        return rename_region(new, _last(replaced))

    def _replace(self, statement: Statement, replaced: dict[str, Value]) -> Iterator[Statement]:
        instruction = statement.instruction
        if isinstance(instruction, If) and (taken := self._number(instruction.condition)) is not None:
            branch = instruction.then if taken else instruction.otherwise
            statements, yielded = ((), ()) if branch is None else split_yield(branch)
            replaced.update(zip((item.name for item in statement.results), yielded, strict=False))
            yield from statements
        elif isinstance(instruction, For) and self._is_skipped(instruction):
            starts = (start for _, start in instruction.carried)
            replaced.update(zip((item.name for item in statement.results), starts, strict=False))
        elif (name := _only_result(statement)) in self.known:
            yield replace(statement, instruction=Constant(self.known[name], self.types.get(name, INDEX)))
        elif name not in self.same:
            yield statement

    def _is_skipped(self, loop: For) -> bool:
        begin, end = self._number(loop.begin), self._number(loop.end)
        return isinstance(begin, int) and isinstance(end, int) and begin >= end


def _only_result(statement: Statement) -> str:
    """The name of the result; nothing has the empty name that stands for none or several."""
    return statement.results[0].name if len(statement.results) == 1 else ""


def _last(renaming: dict[str, Value]) -> dict[str, Value]:
    """Names that lead to their last meaning."""
    found: dict[str, Value] = {}
    for name in renaming:
        chain = [name]
        while (last := chain[-1]) in renaming and last not in found:
            chain.append(renaming[last].name)
        found.update(dict.fromkeys(chain[:-1], found[last] if last in found else renaming[chain[-2]]))
    return found
