"""Statements on memory: what they access is proved to lie inside, to be nobody else's, to be written first."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field, replace
from itertools import product
from math import prod

from lamella.base.diagnostic import Diagnostic
from lamella.base.records import dataclass
from lamella.lang.tensor.check.memory.bounds import (
    AccessSite,
    check_expansion,
    check_fusion,
    check_pack,
    check_positions,
    check_shapes,
    positions_of_indices,
    positions_of_matrix,
    positions_of_slices,
)
from lamella.lang.tensor.check.memory.forms.affine import ZERO, Affine
from lamella.lang.tensor.check.memory.forms.integers import BITS, assumed_range
from lamella.lang.tensor.check.memory.forms.symbols import FREE, NOBODY, Symbol
from lamella.lang.tensor.check.memory.races import check_access, check_matrix_store
from lamella.lang.tensor.check.memory.scalars import unknown_value
from lamella.lang.tensor.check.memory.state import (
    AbstractValue,
    KnownCondition,
    KnownScalar,
    MemoryState,
    MemrefGroup,
    MemrefView,
    OpenLoop,
)
from lamella.lang.tensor.check.roles import word_of
from lamella.lang.tensor.nodes import (
    BOOL,
    Alloca,
    AtomicUpdate,
    Barrier,
    Blas,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
    Dictionary,
    Expand,
    Function,
    Fuse,
    Group,
    LifetimeStop,
    Load,
    Memref,
    Parameter,
    Scalar,
    SizeOf,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Value,
)
from lamella.lang.tensor.rules import memory as rules

# --- memrefs as views of memory: parameters, elements of groups, subview, expand and fuse -------------------


def _make_parameter(state: MemoryState, parameter: Parameter) -> AbstractValue:
    """What is known of a parameter: whoever launches the kernel chooses it."""
    type_, name = parameter.type, parameter.value.name
    if isinstance(type_, Memref):
        return _with_divisors(state, state.make_view(name, type_), parameter.attributes)
    if isinstance(type_, Group):
        ends = () if state.launch is None else state.launch.members.get(name, ())
        size = state.size(type_.size, f"size %{name}[0]")
        return MemrefGroup(name, state.new_root(), type_.memref, size, tuple(ends))
    if type_ == BOOL:
        return KnownCondition(parameter=name)
    if isinstance(type_, Scalar) and type_.name in BITS:
        low, high = assumed_range(type_.name, state.integers.strict)
        return KnownScalar(state.integers.new(Symbol(f"%{name}", FREE, low, high)))
    return KnownScalar()


def _with_divisors(state: MemoryState, view: MemrefView, attributes: Dictionary | None) -> MemrefView:
    """A memref whose unknown sizes are multiples of what `shape_gcd` promises."""
    promised = None if attributes is None else attributes.find("shape_gcd")
    if not isinstance(promised, tuple):
        return view
    sizes = list(view.sizes)
    for mode, (divisor, size) in enumerate(zip(promised, view.type.shape, strict=False)):
        if size is None and isinstance(divisor, int) and divisor > 1:
            sizes[mode] = state.size(None, f"size %{view.name}[{mode}]", divisor)
    return replace(view, sizes=tuple(sizes))


def _load_member(state: MemoryState, family: MemrefGroup, index: Affine, name: str) -> MemrefView:
    """An element of a group; the same index gives the same memory."""
    key = (family.root, index)
    if key not in state.members:
        state.members[key] = state.make_view(name, family.type, family.ends)
    return replace(state.members[key], name=name)


def _make_subview(state: MemoryState, view: MemrefView, item: Subview, name: str) -> MemrefView:
    """A block of each mode; a mode of static size 0 goes away."""
    offsets = tuple(state.form(part.offset) for part in item.slices)
    kept = [mode for mode, part in enumerate(item.slices) if part.size != 0]
    sizes = tuple(state.form(item.slices[mode].size) for mode in kept)
    strides = tuple(view.strides[mode] for mode in kept)
    return MemrefView(name, view.root, item.type, sizes, strides, view.locate(offsets))


def _make_expand(state: MemoryState, view: MemrefView, item: Expand, name: str) -> MemrefView:
    """A mode as several, the first of them fastest."""
    mode, factors = item.mode, tuple(state.form(size) for size in item.sizes)
    strides: list[Affine | None] = [view.strides[mode]]
    for factor in factors[:-1]:
        strides.append(_product(strides[-1], factor))
    sizes = (*view.sizes[:mode], *factors, *view.sizes[mode + 1 :])
    steps = (*view.strides[:mode], *strides, *view.strides[mode + 1 :])
    return MemrefView(name, view.root, item.type, sizes, steps, view.address)


def _product(stride: Affine | None, factor: Affine) -> Affine | None:
    if stride is None or (stride.terms and factor.terms):
        return None
    return stride.times(factor.constant) if not factor.terms else factor.times(stride.constant)


def _make_fuse(state: MemoryState, view: MemrefView, item: Fuse, name: str) -> MemrefView:
    """Several modes as one."""
    size: Affine | None = view.sizes[item.first]
    for other in view.sizes[item.first + 1 : item.last + 1]:
        size = None if size is None else _product(size, other)
    if size is None:
        size = state.integers.new(Symbol(f"size %{name}[{item.first}]", low=0))
    sizes = (*view.sizes[: item.first], size, *view.sizes[item.last + 1 :])
    strides = (*view.strides[: item.first + 1], *view.strides[item.last + 1 :])
    return MemrefView(name, view.root, item.type, sizes, strides, view.address)


# --- local memory that is read before anything was written to it --------------------------------------------


@dataclass(slots=True)
class LocalAllocation:
    """Local memory: the loops it stands in, where it was written to."""

    loops: int
    writes: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EarlyRead:
    """A read that no write precedes in the text."""

    allocation: LocalAllocation
    finding: Diagnostic
    loop: OpenLoop | None
    """The outermost loop around it that the memory outlives."""
    is_first: bool
    """Whether its first trip is sure to read."""


class LocalMemory:
    """Follows the local memory of a function."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._allocations: dict[int, LocalAllocation] = {}
        self._early: list[EarlyRead] = []

    def allocate(self, root: int) -> None:
        """Local memory begins undefined."""
        self._allocations[root] = LocalAllocation(len(self._state.loops))

    def write(self, root: int) -> None:
        """Something is written; how much of it is not followed."""
        if root in self._allocations:
            self._allocations[root].writes.append(self._state.position)

    def read(self, root: int, place: AccessSite, instruction: str) -> None:
        """Something is read."""
        found = self._allocations.get(root)
        if found is None or found.writes or self._state.dead:
            return
        around = self._state.loops[found.loops :]
        finding = rules.UNINITIALISED.at(place.span, instruction=instruction, name=place.name)
        loop = around[0] if around else None
        is_first = len(around) == 1 and around[0].depth == self._state.depth
        self._early.append(EarlyRead(found, finding, loop, is_first))

    def findings(self) -> list[Diagnostic]:
        """Reads of what nobody has written; a later write in a loop may have come a trip before."""
        return [item.finding for item in self._early if item.is_first or not _is_written_in(item)]


def _is_written_in(item: EarlyRead) -> bool:
    if item.loop is None:
        return False
    writes = item.allocation.writes
    end = item.loop.end
    after = bisect_right(writes, item.loop.start)
    return after < len(writes) and (end is None or writes[after] <= end)


# --- collective instructions whose result shares memory with an operand -------------------------------------


IN_PLACE = ("axpby", "cumsum", "hadamard")
"""Instructions whose result may be one of their operands, element by element."""
MOST_ELEMENTS = 4096


def _check_aliases(state: MemoryState, place: AccessSite, item: Blas) -> None:
    """A collective instruction may not write to what it still has to read."""
    output = state.view(item.operands[-1])
    if output is None:
        return
    for operand in item.operands[1:-2]:
        view = state.view(operand)
        if view is None or view.root != output.root or _is_in_place(item, view, output):
            continue
        if _overlap(view, output):
            words = {"instruction": item.function, "output": output.name, "input": view.name}
            state.report(rules.ALIAS.at(place.span, hint=None, labels=(), **words))
            return


def _is_in_place(item: Blas, view: MemrefView, output: MemrefView) -> bool:
    same = (view.address, view.sizes, view.strides) == (output.address, output.sizes, output.strides)
    moved = any(item.transposes) and len(view.sizes) > 1
    return same and item.function in IN_PLACE and not moved


def _overlap(view: MemrefView, output: MemrefView) -> bool:
    """Whether two views of one memory have an element in common for certain, if they have any elements."""
    if view.address is None or output.address is None:
        return False
    left, right = dict(view.address), dict(output.address)
    moved = {key: left.get(key, ZERO) - right.get(key, ZERO) for key in {*left, *right}}
    if all(form == ZERO for form in moved.values()):
        return True
    distance = moved.pop(-1, ZERO)
    if distance.terms or any(form != ZERO for form in moved.values()):
        return False
    here, there = _elements(view, distance.constant), _elements(output, 0)
    return here is not None and there is not None and not here.isdisjoint(there)


def _elements(view: MemrefView, start: int) -> frozenset[int] | None:
    """The addresses of all elements; None where that are too many or not known."""
    sizes = [size.constant for size in view.sizes if not size.terms]
    strides = [step.constant for step in view.strides if step is not None and not step.terms]
    if len(sizes) < len(view.sizes) or len(strides) < len(view.strides) or prod(sizes) > MOST_ELEMENTS:
        return None
    steps = product(
        *(range(0, size * step, step) if step else (0,) for size, step in zip(sizes, strides, strict=True))
    )
    return frozenset(start + sum(step) for step in steps)


class MemoryStatements:
    """Visits statements without regions that are about memory."""

    def __init__(self, state: MemoryState, function: Function) -> None:
        self.local = LocalMemory(state)
        self._state = state
        self._function = function.name
        for parameter in function.parameters:
            state.values[parameter.value.name] = _make_parameter(state, parameter)

    def visit(self, statement: Statement) -> None:
        """Check a statement and name its result."""
        match statement.instruction:
            case Load() as item:
                self._load(statement, item)
            case Store() as item:
                self._store(statement, item)
            case AtomicUpdate() as item:
                self._update(statement, item)
            case (Subview() | Expand() | Fuse()) as item:
                self._view(statement, item)
            case Alloca() as item:
                self._allocate(statement, item)
            case SizeOf() as item:
                self._size(statement, item)
            case Blas() as item:
                self._collective(statement, item)
            case _:
                self._visit_spmd(statement)

    def _visit_spmd(self, statement: Statement) -> None:
        match statement.instruction:
            case CoopLoad() as item:
                self._matrix_load(statement, item)
            case CoopStore() as item:
                self._matrix_store(statement, item)
            case CoopMulAdd(left=left, right=right, accumulator=added, type=type_):
                self._bind(statement, unknown_value(self._state, type_, self._depends(left, right, added)))
            case CoopScale(scalar=scalar, operand=operand, type=type_):
                self._bind(statement, unknown_value(self._state, type_, self._depends(scalar, operand)))
            case CoopConstruct(scalar=scalar, type=type_):
                self._bind(statement, unknown_value(self._state, type_, self._depends(scalar)))
            case CoopExtract(operand=operand, type=type_) | CoopReduce(operand=operand, type=type_):
                self._bind(statement, unknown_value(self._state, type_, self._depends(operand)))
            case CoopInsert(scalar=scalar, operand=operand, type=type_):
                self._bind(statement, unknown_value(self._state, type_, self._depends(scalar, operand)))
            case (SubgroupBroadcast() | SubgroupOperation()) as item:
                self._together(statement, item)
            case Barrier() if self._state.spmd is not None:
                # A barrier orders what is before it and what is behind it: they do not race.
                self._state.spmd.accesses.clear()
            case Barrier() | LifetimeStop():
                return
            case _:
                self._lose(statement)

    def _lose(self, statement: Statement) -> None:
        """An instruction that is not followed: nothing is known of its results any more."""
        self._state.give_up()
        for value in statement.results:
            self._state.values.pop(value.name, None)

    def _place(self, statement: Statement, operand: Value) -> AccessSite:
        return AccessSite(self._function, statement.span, operand.name)

    def _bind(self, statement: Statement, known: AbstractValue) -> None:
        for value in statement.results[:1]:
            self._state.values[value.name] = known

    def _depends(self, *values: Value) -> frozenset[int]:
        known = (self._state.values.get(value.name) for value in values)
        return NOBODY.union(*(self._state.depends_of(item) for item in known if item is not None))

    # --- elements -------------------------------------------------------------------------------------------

    def _load(self, statement: Statement, item: Load) -> None:
        state, memory = self._state, self._state.values.get(item.operand.name)
        if not isinstance(memory, MemrefView | MemrefGroup):
            self._lose(statement)
            return
        place = self._place(statement, item.operand)
        check_positions(state, place, positions_of_indices(state, memory, item.indices))
        name = _name_of(statement)
        if isinstance(memory, MemrefGroup):
            self._bind(statement, _load_member(state, memory, state.form(item.indices[0]), name))
            return
        check_access(state, place, item, memory)
        self.local.read(memory.root, place, word_of(item))
        depends = self._depends(item.operand, *item.indices)
        self._bind(statement, unknown_value(state, item.type, depends, f"%{name}"))

    def _store(self, statement: Statement, item: Store) -> None:
        state, view = self._state, self._state.view(item.operand)
        if view is None:
            self._lose(statement)
            return
        place = self._place(statement, item.operand)
        check_positions(state, place, positions_of_indices(state, view, item.indices))
        check_access(state, place, item, view)
        self._write(view, place, item)

    def _update(self, statement: Statement, item: AtomicUpdate) -> None:
        """An atomic update reads and writes one element, and is in nobody's way."""
        state, view = self._state, self._state.view(item.operand)
        if view is None:
            self._lose(statement)
            return
        name = f"%{_name_of(statement)}"
        depends = self._depends(item.operand, item.value, *item.indices)
        self._bind(statement, unknown_value(state, item.type, depends, name))
        place = self._place(statement, item.operand)
        check_positions(state, place, positions_of_indices(state, view, item.indices))
        self.local.read(view.root, place, word_of(item))
        self.local.write(view.root)

    def _write(self, view: MemrefView, place: AccessSite, item: Store | CoopStore) -> None:
        """A store; an addition reads as well."""
        if item.flag == "atomic_add":
            self.local.read(view.root, place, word_of(item))
        self.local.write(view.root)

    # --- views ----------------------------------------------------------------------------------------------

    def _view(self, statement: Statement, item: Subview | Expand | Fuse) -> None:
        state, view, name = self._state, self._state.view(item.operand), _name_of(statement)
        if view is None:
            self._lose(statement)
            return
        place = self._place(statement, item.operand)
        match item:
            case Subview():
                check_positions(state, place, list(positions_of_slices(state, view, item)))
                self._bind(statement, _make_subview(state, view, item, name))
            case Expand():
                check_expansion(state, place, view, item)
                self._bind(statement, _make_expand(state, view, item, name))
            case Fuse():
                check_fusion(state, view, item)
                self._bind(statement, _make_fuse(state, view, item, name))

    def _allocate(self, statement: Statement, item: Alloca) -> None:
        view = self._state.make_view(_name_of(statement), item.type)
        self.local.allocate(view.root)
        self._bind(statement, view)

    def _size(self, statement: Statement, item: SizeOf) -> None:
        memory = self._state.values.get(item.operand.name)
        if isinstance(memory, MemrefView):
            self._bind(statement, KnownScalar(memory.sizes[item.mode]))
        elif isinstance(memory, MemrefGroup):
            self._bind(statement, KnownScalar(memory.size))

    # --- subgroups ------------------------------------------------------------------------------------------

    def _matrix_load(self, statement: Statement, item: CoopLoad) -> None:
        state, view = self._state, self._state.view(item.operand)
        if view is not None:
            place = self._place(statement, item.operand)
            check_positions(state, place, list(positions_of_matrix(state, view, item, item.type)))
            check_pack(state, place, view, item)
            self.local.read(view.root, place, word_of(item))
        else:
            state.give_up()
        depends = self._depends(item.operand, item.row, item.column)
        self._bind(statement, unknown_value(state, item.type, depends))

    def _matrix_store(self, statement: Statement, item: CoopStore) -> None:
        state, view = self._state, self._state.view(item.operand)
        matrix = state.number(item.value).matrix
        if view is None:
            self._lose(statement)
            return
        place = self._place(statement, item.operand)
        if matrix is None:
            state.give_up()
        else:
            check_positions(state, place, list(positions_of_matrix(state, view, item, matrix)))
            check_pack(state, place, view, item)
        check_matrix_store(state, place, item, view)
        self._write(view, place, item)

    def _together(self, statement: Statement, item: SubgroupBroadcast | SubgroupOperation) -> None:
        """What a subgroup computes together is one value for all its lanes, but for scans."""
        depends = self._depends(item.operand)
        if isinstance(item, SubgroupBroadcast) or item.form == "reduce":
            lane = self._state.builtins.get("subgroup_local_id")
            depends -= frozenset() if lane is None else lane.symbols
        known = unknown_value(self._state, item.type, depends, f"%{_name_of(statement)}")
        self._bind(statement, known)

    # --- collective instructions ----------------------------------------------------------------------------

    def _collective(self, statement: Statement, item: Blas) -> None:
        *inputs, beta, output = item.operands
        word = word_of(item)
        target = self._state.view(output)
        views = [self._state.view(operand) for operand in (*inputs[1:], output)]
        known = [view for view in views if view is not None]
        if target is None or len(known) < len(views):
            self._lose(statement)
            return
        if self._state.launch is not None:
            check_shapes(self._state, self._place(statement, output), item, known)
        _check_aliases(self._state, self._place(statement, output), item)
        for operand in inputs[1:]:
            view = self._state.view(operand)
            if view is not None:
                self.local.read(view.root, self._place(statement, operand), word)
        if not self._is_zero(beta):
            self.local.read(target.root, self._place(statement, output), word)
        self.local.write(target.root)

    def _is_zero(self, beta: Value) -> bool:
        """Whether beta is a constant 0, with which the output is not read; a factor of the run may be anything."""
        found = self._state.number(beta)
        if found.form is not None:
            return found.form == ZERO
        return found.constant in ZEROS


ZEROS = (0, (0.0, 0.0))
"""Constants that are 0, real or complex."""


def _name_of(statement: Statement) -> str:
    return statement.results[0].name if statement.results else ""
