"""Bounds checks written into a kernel: what a proof leaves open is tested where it stands.

An access that would leave its memory is left out: a load gives 0, a store does nothing. Each test has slots of its own
in an array of integers that the kernel gets as its last argument: whether it failed, in which work-group, with which
numbers. Views are tested where they are made; what is accessed through one that leaves its memref is left out too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.build import Builder, FreshNames, names_of
from lamella.kernels.rewrite import defined_types, rewrite, used_values, walk
from lamella.lang.tensor.check.memory import shape_pairs, show_shapes
from lamella.lang.tensor.nodes import (
    BOOL,
    INDEX,
    Arith,
    AtomicUpdate,
    Blas,
    CoopLoad,
    Coopmatrix,
    CoopStore,
    Expand,
    Function,
    Fuse,
    If,
    IndexOrSize,
    Instruction,
    Load,
    Memref,
    Parameter,
    Region,
    Scalar,
    SizeOf,
    Slice,
    Statement,
    Store,
    Subview,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import COMPLEX, INTEGERS, make_memref
from lamella.lang.tensor.rules import running as rules

I64 = Scalar("i64")
OUTSIDE = -(1 << 40)
"""A position far before the beginning of any memory, at which a checked matrix access touches nothing."""
FAILED, GROUP, NUMBERS = range(3)
"""The slots of a test: whether it failed, the work-group in which it did, then the numbers of its sentence."""
Sentence = Callable[[Sequence[int]], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class BoundsTest:
    """A test in the code: where its slots begin, and the finding that they make."""

    place: int
    numbers: int
    statement: Statement
    rule: Rule
    sentence: Sentence

    def finding(self, slots: Sequence[int]) -> Diagnostic:
        """The finding of a failed check, from all slots of a launch."""
        own = slots[self.place : self.place + NUMBERS + self.numbers]
        place = f" (work-group {own[GROUP]})"
        words = self.sentence(own[NUMBERS:])
        return self.rule.at(self.statement.span, hint=None, labels=(), place=place, **words)


@dataclass(frozen=True, slots=True)
class TestedKernel:
    """A kernel with bounds checks, whose last parameter are the slots of its tests."""

    function: Function
    tests: tuple[BoundsTest, ...]
    slots: int

    def findings(self, slots: Sequence[int]) -> list[Diagnostic]:
        """The findings of a launch: the first check in the order of the text that failed."""
        failed = (test for test in self.tests if slots[test.place + FAILED])
        return [test.finding(slots) for test in failed][:1]


def add_bounds_checks(function: Function, is_open: Collection[int]) -> TestedKernel:
    """The kernel in which the statements with these identities are tested, and all that goes through their views."""
    writer = _Tests(names_of(function))
    writer.plan(function, is_open)
    body = rewrite(function.body, writer.visit)
    kind = make_memref("i64", (max(1, writer.slots),))
    parameters = (*function.parameters, Parameter(writer.fault, kind))
    return TestedKernel(
        replace(function, parameters=parameters, body=body), tuple(writer.tests), max(1, writer.slots)
    )


@dataclass(frozen=True, slots=True)
class _StatementTests:
    """What is done about a statement: its own test, and what has to be so for its operands to be memory at all."""

    tested: bool
    needed: tuple[Value, ...]
    made: Value | None
    """The condition under which the view that it makes is one."""
    matrix: Coopmatrix | None
    orders: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Condition:
    """Something to be tested: whether it holds, and what is said where it does not."""

    holds: Value
    rule: Rule
    numbers: tuple[Value, ...]
    sentence: Sentence


@dataclass(slots=True)
class _Tests:
    """Writes the tests of a kernel."""

    names: FreshNames
    tests: list[BoundsTest] = field(default_factory=list)
    slots: int = 0
    fault: Value = field(init=False)
    _plans: dict[int, _StatementTests] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fault = self.names.new()

    # --- which statements -----------------------------------------------------------------------------------

    def plan(self, function: Function, is_open: Collection[int]) -> None:
        """Decide in the order of the text what is tested; a name may stand for another value in another region."""
        types: dict[str, Type] = {item.value.name: item.type for item in function.parameters}
        doubtful: dict[str, Value] = {}
        for statement in walk(function.body):
            item, tested = statement.instruction, id(statement) in is_open
            needed = [doubtful[value.name] for value in used_values(item) if value.name in doubtful]
            for name, kind in defined_types(statement):
                types[name] = kind
                doubtful.pop(name, None)
            if not tested and not needed:
                continue
            made = self._made(item, tested, needed)
            if made is not None and statement.results:
                doubtful[statement.results[0].name] = made
            found = types.get(item.value.name) if isinstance(item, CoopStore) else None
            matrix = found if isinstance(found, Coopmatrix) else None
            orders = {
                value.name: memref.order
                for value in used_values(item)
                if isinstance(memref := types.get(value.name), Memref)
            }
            self._plans[id(statement)] = _StatementTests(
                tested, tuple(dict.fromkeys(needed)), made, matrix, orders
            )

    def _made(self, item: Instruction, tested: bool, needed: Sequence[Value]) -> Value | None:
        if not isinstance(item, Subview | Expand | Fuse) and not (
            isinstance(item, Load) and isinstance(item.type, Memref)
        ):
            return None
        return self.names.new() if tested or not needed else needed[0]

    def visit(self, region: Region, _: bool) -> Region:
        """A region with its tests."""
        found: list[Statement] = []
        for statement in region.statements:
            plan = self._plans.get(id(statement))
            found += [statement] if plan is None else self._write(statement, plan)
        return replace(region, statements=tuple(found))

    # --- statements -----------------------------------------------------------------------------------------

    def _write(self, statement: Statement, plan: _StatementTests) -> list[Statement]:
        out = Builder(self.names, statement.span)
        match statement.instruction:
            case Load(type=Memref()) as item:
                self._member(out, statement, item, plan)
            case (Load() | AtomicUpdate()) as item:
                self._load(out, statement, item, plan)
            case Store() as item:
                tests = self._indices(out, item) if plan.tested else []
                self._guard(out, statement, tests, plan)
            case Subview() as item:
                self._subview(out, statement, item, plan)
            case Expand() as item if plan.tested:
                self._expand(out, statement, item, plan)
            case (CoopLoad() | CoopStore()) as item:
                self._matrix(out, statement, item, plan)
            case Blas() as item:
                tests = self._shapes(out, item, plan) if plan.tested else []
                self._guard(out, statement, tests, plan)
            case Fuse() | Expand() if not plan.tested:
                out.add_statement(statement)
            case SizeOf():
                out.add_statement(statement)
            case item:
                raise Unsupported(type(item).__name__)
        return out.statements

    def _guard(
        self, out: Builder, statement: Statement, tests: Sequence[_Condition], plan: _StatementTests
    ) -> None:
        """A statement without results that is executed only where all is well."""
        whole = self._all(out, [test.holds for test in tests], plan.needed)
        with out.choice(whole) as (then, otherwise):
            then.add_statement(statement)
            self._record(otherwise, statement, tests, plan.needed)

    def _load(
        self, out: Builder, statement: Statement, item: Load | AtomicUpdate, plan: _StatementTests
    ) -> None:
        """What gives an element: 0 where there is none."""
        tests = self._indices(out, item) if plan.tested else []
        whole = self._all(out, [test.holds for test in tests], plan.needed)
        then, otherwise = out.inner(), out.inner()
        then.give(then.value(item))
        self._record(otherwise, statement, tests, plan.needed)
        otherwise.give(otherwise.constant(_zero(item.type), item.type))
        out.put(If(whole, then.region(), otherwise.region(), (item.type,)), statement.results)

    def _member(self, out: Builder, statement: Statement, item: Load, plan: _StatementTests) -> None:
        """A memref of a group: where there is none the first one stands in, and nothing is accessed through it."""
        index, size = item.indices[0], out.size(item.operand, 0)
        holds = self._between(out, index, size)
        words: Sentence = partial(_words, ("index", "size"), {"name": item.operand.name})
        test = _Condition(holds, rules.GROUP_OUT_OF_BOUNDS, (index, size), words)
        made = self._make(out, [holds], plan)
        found = out.arith("select", made, index, out.constant(0))
        out.put(replace(item, indices=(found,)), statement.results)
        self._tell(out, statement, [test], plan)

    def _subview(self, out: Builder, statement: Statement, item: Subview, plan: _StatementTests) -> None:
        tests = list(self._slices(out, item)) if plan.tested else []
        made = self._make(out, [test.holds for test in tests], plan) if plan.tested else plan.made
        if made is None:
            raise Unsupported("subview")

        def or_else(part: IndexOrSize, number: int) -> IndexOrSize:
            return part if isinstance(part, int) else out.arith("select", made, part, out.constant(number))

        slices = tuple(Slice(or_else(part.offset, 0), or_else(part.size, 1)) for part in item.slices)
        out.put(replace(item, slices=slices), statement.results)
        self._tell(out, statement, tests, plan)

    def _expand(self, out: Builder, statement: Statement, item: Expand, plan: _StatementTests) -> None:
        """New sizes are divided out of the old one, which cannot become too large as a product can."""
        size, one = out.size(item.operand, item.mode), out.constant(1)
        factors = [self._value(out, factor) for factor in item.sizes]
        rest, least, conditions = size, factors[0], list[Value]()
        for factor in factors:
            positive = out.compare("ge", factor, one)
            divisor = out.arith("select", positive, factor, one)
            even = out.compare("eq", out.arith("rem", rest, divisor), out.constant(0))
            conditions += [positive, even]
            rest = out.arith("div", rest, divisor)
            least = out.arith("min", least, factor)
        conditions.append(out.compare("eq", rest, one))
        empty = self._all(
            out, [out.compare("eq", size, out.constant(0)), out.compare("eq", least, out.constant(0))]
        )
        holds = out.arith("or", self._all(out, conditions), empty, type_=BOOL)
        sentence: Sentence = partial(_expansion_words, item)
        test = _Condition(holds, rules.WRONG_EXPANSION, (size, *factors), sentence)
        made = self._make(out, [holds], plan)
        sizes = tuple(
            part if isinstance(part, int) else out.arith("select", made, part, one) for part in item.sizes
        )
        out.put(replace(item, sizes=sizes), statement.results)
        self._tell(out, statement, [test], plan)

    def _matrix(
        self, out: Builder, statement: Statement, item: CoopLoad | CoopStore, plan: _StatementTests
    ) -> None:
        """A matrix access leaves out what lies outside, and all of it where its memref is none."""
        matrix = item.type if isinstance(item, CoopLoad) else plan.matrix
        if matrix is None:
            raise Unsupported(type(item).__name__)
        tests = list(self._blocks(out, item, matrix, plan.orders[item.operand.name])) if plan.tested else []
        row, column = item.row, item.column
        if plan.needed:
            whole, outside = self._all(out, [], plan.needed), out.constant(OUTSIDE)
            row, column = (out.arith("select", whole, place, outside) for place in (row, column))
        out.put(replace(item, row=row, column=column, checked="both"), statement.results)
        self._tell(out, statement, tests, plan)

    # --- conditions -----------------------------------------------------------------------------------------

    def _indices(self, out: Builder, item: Load | Store | AtomicUpdate) -> list[_Condition]:
        found = []
        for mode, index in enumerate(item.indices):
            size = out.size(item.operand, mode)
            words: Sentence = partial(_words, ("index", "size"), {"mode": mode, "name": item.operand.name})
            holds = self._between(out, index, size)
            found.append(_Condition(holds, rules.OUT_OF_BOUNDS, (index, size), words))
        return found

    def _slices(self, out: Builder, item: Subview) -> Iterator[_Condition]:
        name, one = item.operand.name, out.constant(1)
        for mode, part in enumerate(item.slices):
            offset, size = self._value(out, part.offset), out.size(item.operand, mode)
            taken = one if part.size == 0 else self._value(out, part.size)
            if isinstance(part.size, Value):
                words: Sentence = partial(_words, ("size",), {"mode": mode, "name": name})
                yield _Condition(out.compare("ge", taken, one), rules.EMPTY_SLICE, (taken,), words)
            # Where a size is no size the difference may wrap, and the condition before has failed.
            room = out.arith("sub", size, taken)
            after, before = out.compare("ge", offset, out.constant(0)), out.compare("le", offset, room)
            holds = out.arith("and", after, before, type_=BOOL)
            sentence: Sentence = partial(_slice_words, mode, name)
            yield _Condition(holds, rules.VIEW_OUT_OF_BOUNDS, (offset, taken, size), sentence)

    def _blocks(
        self, out: Builder, item: CoopLoad | CoopStore, matrix: Coopmatrix, order: int
    ) -> Iterator[_Condition]:
        counts = [matrix.rows, matrix.columns]
        word = item.checked.removesuffix("_checked")
        checked = [word in ("rows", "both"), word in ("cols", "both")]
        if isinstance(item, CoopLoad) and item.transposed:
            counts.reverse()
            checked.reverse()
        for side, start in enumerate((item.row, item.column)):
            mode = side + order - 2
            size = whole = out.size(item.operand, mode)
            if order == 3 and side == 1:
                pack = out.size(item.operand, 0)
                whole = out.arith("mul", size, pack)
                first = out.compare("eq", out.arith("rem", start, pack), out.constant(0))
                words: Sentence = partial(_words, ("column", "pack"), {"name": item.operand.name})
                yield _Condition(first, rules.PACKED_POSITION, (start, pack), words)
            if checked[side]:
                continue
            room = out.arith("sub", whole, out.constant(counts[side]))
            after, before = out.compare("ge", start, out.constant(0)), out.compare("le", start, room)
            holds = out.arith("and", after, before, type_=BOOL)
            sentence: Sentence = partial(_block_words, mode, item.operand.name)
            yield _Condition(holds, rules.OUT_OF_BOUNDS, (start, whole, size), sentence)

    def _shapes(self, out: Builder, item: Blas, plan: _StatementTests) -> list[_Condition]:
        memrefs = [value for value in item.operands if value.name in plan.orders]
        shapes = [[out.size(value, mode) for mode in range(plan.orders[value.name])] for value in memrefs]
        equal = [out.compare("eq", one, other) for one, other in shape_pairs(item, shapes)]
        holds = self._all(out, equal)
        numbers = tuple(size for shape in shapes for size in shape)
        sentence: Sentence = partial(_shape_words, item, [len(shape) for shape in shapes])
        return [_Condition(holds, rules.SHAPES_DISAGREE, numbers, sentence)]

    def _between(self, out: Builder, index: Value, size: Value) -> Value:
        after, before = out.compare("ge", index, out.constant(0)), out.compare("lt", index, size)
        return out.arith("and", after, before, type_=BOOL)

    def _value(self, out: Builder, part: IndexOrSize) -> Value:
        return out.constant(part) if isinstance(part, int) else part

    def _all(self, out: Builder, conditions: Sequence[Value], more: Sequence[Value] = ()) -> Value:
        whole: Value | None = None
        for condition in (*more, *conditions):
            whole = condition if whole is None else out.arith("and", whole, condition, type_=BOOL)
        return out.constant(True, BOOL) if whole is None else whole

    def _make(self, out: Builder, conditions: Sequence[Value], plan: _StatementTests) -> Value:
        """Name the condition under which a view is one."""
        if plan.made is None:
            raise Unsupported("a view")
        whole = self._all(out, conditions, plan.needed)
        out.put(Arith("and", (whole, whole), BOOL), (plan.made,))
        return plan.made

    # --- what is reported ---------------------------------------------------------------------------------------

    def _tell(
        self, out: Builder, statement: Statement, tests: Sequence[_Condition], plan: _StatementTests
    ) -> None:
        """Behind a statement that stands in spite of what its tests found."""
        if tests:
            whole = self._all(out, [test.holds for test in tests], plan.needed)
            with out.condition(out.arith("not", whole, type_=BOOL)) as inner:
                self._record(inner, statement, tests, plan.needed)

    def _record(
        self, out: Builder, statement: Statement, tests: Sequence[_Condition], needed: Sequence[Value]
    ) -> None:
        """Fill the slots of the tests that failed; what a wrong view brings is not reported a second time."""
        for test in tests:
            place = self.slots
            self.slots += NUMBERS + len(test.numbers)
            self.tests.append(BoundsTest(place, len(test.numbers), statement, test.rule, test.sentence))
            failed = self._all(out, [out.arith("not", test.holds, type_=BOOL)], needed)
            with out.condition(failed) as inner:
                group = inner.builtin("group_id", INDEX)
                values = [inner.constant(1, I64), *(inner.cast(item, I64) for item in (group, *test.numbers))]
                for slot, number in enumerate(values, place):
                    inner.store(number, self.fault, [inner.constant(slot)], "atomic")


def _zero(kind: Type) -> bool | int | float | tuple[float, float]:
    name = str(kind)
    if name in COMPLEX:
        return 0.0, 0.0
    return 0 if name in INTEGERS else name != "bool" and 0.0


def _words(keys: Sequence[str], known: Mapping[str, object], numbers: Sequence[int]) -> Mapping[str, object]:
    return {**known, **dict(zip(keys, numbers, strict=True))}


def _slice_words(mode: int, name: str, numbers: Sequence[int]) -> Mapping[str, object]:
    offset, taken, size = numbers
    return {"offset": offset, "last": offset + taken - 1, "mode": mode, "name": name, "size": size}


def _block_words(mode: int, name: str, numbers: Sequence[int]) -> Mapping[str, object]:
    """The first position that leaves: the end of the mode, or a beginning that lies outside."""
    start, whole, size = numbers
    index = (whole if 0 <= start < whole else start) // max(1, whole // size if size else 1)
    return {"index": index, "mode": mode, "name": name, "size": size}


def _expansion_words(item: Expand, numbers: Sequence[int]) -> Mapping[str, object]:
    size, *sizes = numbers
    return {"mode": item.mode, "name": item.operand.name, "size": size, "sizes": "x".join(map(str, sizes))}


def _shape_words(item: Blas, orders: Sequence[int], numbers: Sequence[int]) -> Mapping[str, object]:
    shapes, left = list[list[int]](), list(numbers)
    for order in orders:
        shapes.append(left[:order])
        left = left[order:]
    return {"function": item.function, "shapes": show_shapes(item, shapes)}
