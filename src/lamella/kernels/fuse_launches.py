"""Launches that become one: on a GPU a launch costs more than a small kernel computes.

Small launches in a row are *phases* of one kernel with one work-group: each subgroup takes work-groups of a phase in
turn. Phases that have nothing to do with each other run side by side; barriers stand between the others. Where a larger
launch alone reads what small ones before it make, each of its work-groups makes that itself, in local memory: the norm
before a product, the activation between two. What only phases touch lies in local memory. A copy of memory that lies in
a row is no launch at all: who reads it reads the original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.build import HOLDERS, Builder, FreshNames, regions
from lamella.kernels.launches import ELEMENT_BYTES, FILL, BufferView, Launch, LaunchList
from lamella.kernels.rewrite import constants_of, copy_region, make_names_unique, walk
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Barrier,
    Blas,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopMulAdd,
    Dictionary,
    DictionaryEntry,
    For,
    Foreach,
    Function,
    If,
    Load,
    Math,
    Memref,
    Parallel,
    Parameter,
    Region,
    Scalar,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import INDEX, make_memref

WARP = 32
MOST_SUBGROUPS = 32
"""Subgroups of the one work-group that runs small launches."""
SHARED_SUBGROUPS = 8
"""Subgroups of a work-group that makes by itself what it reads."""
MOST_STEPS = 512
"""Trips of the loops of a subgroup, over all its work-groups, up to which a launch is small."""
MOST_ROUNDS = 2
"""Work-groups of a small launch for each subgroup that takes them."""
MOST_PHASES = 24
MOST_REPEATED = 1 << 13
"""Work-groups of a launch up to which each of them may do again what a small launch did."""
MOST_LOCAL = 40 << 10
"""Bytes of local memory that phases share."""
ROW_BYTES = 64
"""What the start of a view is a multiple of, where it is to be one of another buffer."""
LANE = Scalar("i32")
PURE = (Constant, Arith, Cast, Compare, Math, Load)
INSIDE = (*PURE, Store, Yield, SubgroupBroadcast, SubgroupOperation)
"""Instructions of work-items that phases may have, beside loops and branches."""


def fuse_launches(
    whole: LaunchList, functions: Mapping[str, Function]
) -> tuple[LaunchList, tuple[Function, ...]]:
    """The list with fewer launches, and the kernels that these need beside those that there are.

    A list that overwrites states for good stays as it is: what may fail has to come before that.
    """
    if whole.overwritten:
        return whole, ()
    forwarded = forward_copies(whole, functions)
    fusing = _Fusing(forwarded, functions)
    for launch in forwarded.launches:
        fusing.add(launch)
    fusing.flush()
    made = {item.name: item for item in fusing.made.values()}
    fewer, promised = fit_promises(
        _pruned(replace(forwarded, launches=tuple(fusing.done))), {**functions, **made}
    )
    used = {launch.kernel for launch in fewer.launches}
    return fewer, tuple(item for item in (*made.values(), *promised) if item.name in used)


def fit_promises(
    whole: LaunchList, functions: Mapping[str, Function]
) -> tuple[LaunchList, tuple[Function, ...]]:
    """The list with kernels that are told which arrays none of its launches writes, and these kernels.

    Weights have memory of their own, which nobody writes from one run to the next: a kernel may load them before the
    one in front of it has ended. Kernels that a copy engine feeds are left as they are. Of an array that begins
    elsewhere than its kernel expects nothing is promised.
    """
    written = {launch.arguments[place].buffer for launch in whole.launches for place in launch.writes}
    still = {whole.inputs[name].buffer for name in whole.bound & whole.inputs.keys()} - written
    made: dict[tuple[str, tuple[int, ...], tuple[int, ...]], Function] = {}
    launches = []
    for launch in whole.launches:
        function = functions.get(launch.kernel)
        if function is not None:
            places = tuple(place for place, view in enumerate(launch.arguments) if view.buffer in still)
            key = launch.kernel, places if _is_plain(function) else (), _find_askew(launch, function)
            if (key[1] or key[2]) and key not in made:
                made[key] = _promising(function, key[1], key[2], f"{launch.kernel}_{len(made)}w")
            launch = replace(launch, kernel=made[key].name if key in made else launch.kernel)
        launches.append(launch)
    return replace(whole, launches=tuple(launches)), tuple(made.values())


def _is_plain(function: Function) -> bool:
    """Whether a kernel multiplies no matrices."""
    return not any(isinstance(item.instruction, CoopMulAdd | Blas) for item in walk(function.body))


def _find_askew(launch: Launch, function: Function) -> tuple[int, ...]:
    """The places of arguments that do not begin at a multiple of what is promised of them."""
    found = []
    pairs = zip(launch.arguments, function.parameters, strict=False)
    for place, (view, parameter) in enumerate(pairs):
        promised = None if parameter.attributes is None else parameter.attributes.find("alignment")
        if isinstance(promised, int) and view.offset * ELEMENT_BYTES[view.element] % promised:
            found.append(place)
    return tuple(found)


def _promising(function: Function, still: Sequence[int], askew: Sequence[int], name: str) -> Function:
    """A kernel some of whose parameters no kernel writes, and some begin anywhere."""
    parameters = list(function.parameters)
    for place in sorted({*still, *askew}):
        own = parameters[place]
        entries = () if own.attributes is None else own.attributes.entries
        if place in askew:
            entries = tuple(item for item in entries if item.key != "alignment")
        if place in still:
            entries = (*entries, DictionaryEntry("unchanging", True))
        parameters[place] = replace(own, attributes=Dictionary(entries) if entries else None)
    return replace(function, name=name, parameters=tuple(parameters))


def _pruned(whole: LaunchList) -> LaunchList:
    """The list with the buffers that it uses."""
    used = {item.buffer for launch in whole.launches for item in launch.arguments}
    used |= {view.buffer for view in (*whole.inputs.values(), *whole.outputs.values())}
    return replace(whole, buffers={name: item for name, item in whole.buffers.items() if name in used})


# --- copies ---------------------------------------------------------------------------------------------------


def forward_copies(whole: LaunchList, functions: Mapping[str, Function]) -> LaunchList:
    """The list without launches that copy memory in a row: later ones read where it was copied from."""
    outside = {view.buffer for view in (*whole.inputs.values(), *whole.outputs.values())}
    writers = Counter(launch.arguments[place].buffer for launch in whole.launches for place in launch.writes)
    last = {
        launch.arguments[place].buffer: number
        for number, launch in enumerate(whole.launches)
        for place in launch.writes
    }
    moved: dict[str, BufferView] = {}
    kept: list[Launch] = []
    for number, launch in enumerate(whole.launches):
        found = replace(launch, arguments=tuple(_moved(item, moved) for item in launch.arguments))
        if launch.kernel != FILL and _is_copy(functions[launch.kernel]):
            target, source = _copied(found, functions[launch.kernel])
            held = whole.buffers[target.buffer]
            whole_copy = target.reach == held.size and target.offset == 0 and not held.zeroed
            plain = target.buffer not in outside and writers[target.buffer] == 1 and not held.outside
            starts = source.offset * ELEMENT_BYTES[source.element] % ROW_BYTES == 0
            if whole_copy and plain and starts and last.get(source.buffer, -1) < number:
                moved[target.buffer] = source
                continue
        kept.append(found)
    return replace(whole, launches=tuple(kept))


def _moved(view: BufferView, moved: Mapping[str, BufferView]) -> BufferView:
    found = moved.get(view.buffer)
    if found is None:
        return view
    return replace(view, buffer=found.buffer, offset=found.offset + view.offset)


def _copied(launch: Launch, function: Function) -> tuple[BufferView, BufferView]:
    """What a copy writes, and what it reads."""
    (store,) = (item.instruction for item in walk(function.body) if isinstance(item.instruction, Store))
    names = [item.value.name for item in function.parameters]
    place = names.index(store.operand.name)
    return launch.arguments[place], launch.arguments[1 - place]


def _is_copy(function: Function) -> bool:
    """Whether a kernel of two arrays in a row stores each element at the place that it was loaded from."""
    types = [item.type for item in function.parameters]
    if len(types) != 2 or any(not isinstance(item, Memref) or item.order != 1 for item in types):
        return False
    nodes = list(walk(function.body))
    loads = [item for item in nodes if isinstance(item.instruction, Load)]
    stores = [item.instruction for item in nodes if isinstance(item.instruction, Store)]
    if len(loads) != 1 or len(stores) != 1 or types[0] != types[1]:
        return False
    if any(isinstance(item.instruction, If) for item in nodes):
        return False
    load, store = loads[0].instruction, stores[0]
    return (
        isinstance(load, Load)
        and store.value == loads[0].results[0]
        and load.indices == store.indices
        and load.operand != store.operand
        and not store.flag
    )


# --- what may be a phase ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Phase:
    """A launch whose work-groups are done by one subgroup each."""

    launch: Launch
    function: Function
    steps: int
    """Trips of the loops of one work-group."""

    @property
    def is_small(self) -> bool:
        """Whether one work-group does it in little time."""
        rounds = -(-self.launch.groups // MOST_SUBGROUPS)
        return rounds <= MOST_ROUNDS and rounds * self.steps <= MOST_STEPS


def _find_phase(launch: Launch, functions: Mapping[str, Function]) -> _Phase | None:
    """A launch as a phase; None where its kernel does what a subgroup of a larger work-group cannot."""
    function = functions.get(launch.kernel)
    if function is None or launch.kernel == FILL:
        return None
    try:
        return _Phase(launch, function, _steps_of(function))
    except Unsupported:
        return None


def _steps_of(function: Function) -> int:
    """The trips of the loops of a subgroup; Unsupported where the kernel is no phase."""
    given = Dictionary() if function.attributes is None else function.attributes
    if given.find("subgroup_size") != WARP or not all(map(_is_known, function.parameters)):
        raise Unsupported("its sizes are others")
    nodes = [item.instruction for item in walk(function.body)]
    if any(isinstance(item, Parallel) for item in nodes) and given.find("work_group_size") != (WARP, 1):
        raise Unsupported("its work-groups have several subgroups")
    return _count(function.body, constants_of(make_names_unique(function)), inside=False)


def _is_known(parameter: Parameter) -> bool:
    """Whether a parameter is memory of known sizes."""
    type_ = parameter.type
    return isinstance(type_, Memref) and None not in (*type_.shape, *type_.stride)


def _count(region: Region, numbers: Mapping[str, object], inside: bool) -> int:
    """The trips of a region; outside of what work-items do there may be nothing but numbers and branches."""
    total = 1
    for statement in region.statements:
        node = statement.instruction
        match node:
            case Parallel():
                total += _count(node.body, numbers, True)
            case Foreach() if not inside:
                trips = 1
                for place, (begin, end) in enumerate(zip(node.begins, node.ends, strict=True)):
                    trips *= _trips(begin, end, WARP if place == 0 else 1, numbers)
                total += trips * _count(node.body, numbers, True)
            case For() if inside:
                step = 1 if node.step is None else numbers.get(node.step.name)
                if not isinstance(step, int) or step < 1:
                    raise Unsupported("a loop has no known step")
                total += _trips(node.begin, node.end, step, numbers) * _count(node.body, numbers, True)
            case If():
                total += sum(_count(item, numbers, inside) for item in regions(node))
                if node.types and not inside:
                    raise Unsupported("a branch of all gives numbers")
            case Builtin():
                if node.name not in (("group_id", "subgroup_local_id") if inside else ("group_id",)):
                    raise Unsupported("it asks for its work-group")
            case _:
                if not isinstance(node, INSIDE if inside else PURE):
                    raise Unsupported("it does more than work-items do alone")
                if isinstance(node, Store) and node.flag:
                    raise Unsupported("it adds atomically")
    return total


def _trips(begin: Value, end: Value, step: int, numbers: Mapping[str, object]) -> int:
    first, last = numbers.get(begin.name), numbers.get(end.name)
    if not isinstance(first, int) or not isinstance(last, int):
        raise Unsupported("a loop has no known length")
    return max(0, -(-(last - first) // step))


# --- which launches become one ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Fusing:
    """A list while its launches become fewer."""

    whole: LaunchList
    functions: Mapping[str, Function]
    done: list[Launch] = field(default_factory=list)
    made: dict[object, Function] = field(default_factory=dict)
    _row: list[_Phase] = field(default_factory=list)
    _uses: Counter[str] = field(default_factory=Counter)
    _outside: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for launch in self.whole.launches:
            self._uses.update({item.buffer for item in launch.arguments})
        views = (*self.whole.inputs.values(), *self.whole.outputs.values())
        self._outside = frozenset(item.buffer for item in views)

    def add(self, launch: Launch) -> None:
        """The next launch of the list."""
        phase = _find_phase(launch, self.functions)
        if phase is None:
            self.flush()
            self.done.append(launch)
        elif phase.is_small:
            if len(self._row) == MOST_PHASES:
                self.flush()
            self._row.append(phase)
        else:
            self._add_large(phase)

    def _add_large(self, phase: _Phase) -> None:
        """A launch of many work-groups, with those before it that it can do again in each of them."""
        for count in range(min(len(self._row), MOST_PHASES), 0, -1):
            rest, taken = self._row[:-count], self._row[-count:]
            if phase.launch.groups <= MOST_REPEATED and self._is_private(taken, phase):
                try:
                    launch = self._fuse([*taken, phase], repeated=True)
                except Unsupported:
                    continue
                self._row = rest
                self.flush()
                self.done.append(launch)
                return
        self.flush()
        self.done.append(phase.launch)

    def _is_private(self, taken: Sequence[_Phase], phase: _Phase) -> bool:
        """Whether nobody but these and the last launch sees what these make, which the last one reads."""
        private = self._private([*taken, phase])
        made = {item.launch.arguments[place].buffer for item in taken for place in item.launch.writes}
        read = {item.buffer for item in phase.launch.arguments}
        return (
            bool(made)
            and made <= private
            and bool(made & read)
            and not any(item.launch.has_fault for item in taken)
        )

    def _private(self, phases: Sequence[_Phase]) -> set[str]:
        """The buffers that only these launches touch."""
        here: Counter[str] = Counter()
        for item in phases:
            here.update({view.buffer for view in item.launch.arguments})
        return {
            name
            for name, count in here.items()
            if count == self._uses[name] and name not in self._outside and not self.whole.buffers[name].zeroed
        }

    def flush(self) -> None:
        """Write the small launches that wait, as one where that goes."""
        row, self._row = self._row, []
        if len(row) > 1:
            try:
                self.done.append(self._fuse(row, repeated=False))
                return
            except Unsupported:
                pass
        self.done += [item.launch for item in row]

    def _fuse(self, phases: Sequence[_Phase], repeated: bool) -> Launch:
        """One launch for several; with `repeated` all but the last are done in each work-group of the last."""
        memory = _Memory(self.whole, phases, self._private(phases), repeated)
        groups = phases[-1].launch.groups
        writer = _PhaseWriter(memory, _subgroups(phases, repeated))
        key = writer.key(phases, repeated)
        if key not in self.made:
            self.made[key] = writer.write(f"phases_{len(self.made)}", phases, repeated)
        function = self.made[key]
        first = phases[-1].launch if repeated else phases[0].launch
        return Launch(
            function.name,
            tuple(memory.views.values()),
            tuple(place for place, name in enumerate(memory.views) if name in memory.written),
            -(-groups // writer.subgroups) if repeated else 1,
            memory.has_fault,
            first.operator,
            first.origin,
        )


def _subgroups(phases: Sequence[_Phase], repeated: bool) -> int:
    most = max(sum(item.launch.groups for item in level) for level in _levels(phases))
    return SHARED_SUBGROUPS if repeated else min(MOST_SUBGROUPS, -(-most // 4) * 4)


def _levels(phases: Sequence[_Phase]) -> list[list[_Phase]]:
    """Phases in the order in which they run: those of one level touch nothing that another of it writes."""
    levels: list[int] = []
    for number, item in enumerate(phases):
        before = [levels[other] + 1 for other in range(number) if _conflict(phases[other], item)]
        levels.append(max(before, default=0))
    return [
        [item for item, level in zip(phases, levels, strict=True) if level == place]
        for place in range(max(levels) + 1)
    ]


def _conflict(one: _Phase, other: _Phase) -> bool:
    """Whether one of two launches writes memory that the other touches."""
    touched = [{view.buffer for view in item.launch.arguments} for item in (one, other)]
    written = [{item.launch.arguments[place].buffer for place in item.launch.writes} for item in (one, other)]
    return bool(written[0] & touched[1] or written[1] & touched[0])


# --- the memory of phases -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Memory:
    """What the parameters of a fused kernel are: buffers that one view shows as they were, others as one row."""

    whole: LaunchList
    phases: Sequence[_Phase]
    private: set[str]
    repeated: bool
    views: dict[str, BufferView] = field(default_factory=dict)
    kept: dict[str, Parameter] = field(default_factory=dict)
    """The parameters of buffers that keep their type."""
    local: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Element and size of what lies in local memory."""
    written: set[str] = field(default_factory=set)
    has_fault: bool = False

    def __post_init__(self) -> None:
        uses: dict[str, list[tuple[BufferView, Parameter]]] = {}
        for item in self.phases:
            self.has_fault |= item.launch.has_fault
            pairs = zip(item.launch.arguments, item.function.parameters, strict=False)
            for place, (view, parameter) in enumerate(pairs):
                uses.setdefault(view.buffer, []).append((view, parameter))
                if place in item.launch.writes:
                    self.written.add(view.buffer)
        room = 0
        for name, found in uses.items():
            elements = {view.element for view, _ in found}
            if len(elements) > 1:
                raise Unsupported("memory is seen as two types")
            (element,) = elements
            end = max(view.offset + view.reach // ELEMENT_BYTES[element] for view, _ in found)
            size = -(-end * ELEMENT_BYTES[element] // ROW_BYTES) * ROW_BYTES
            # A read before the first write would find what the last run left there.
            starts = self._begins_written(name)
            if name in self.private and starts and (self.repeated or room + size <= MOST_LOCAL):
                self.local[name], room = (element, end), room + size
                continue
            if len({(view, parameter.type) for view, parameter in found}) == 1:
                self.views[name], self.kept[name] = found[0][0], _promised([item for _, item in found])
                continue
            base = min(view.offset for view, _ in found)
            self.views[name] = BufferView(name, element, (end - base,), (1,), base)
        if room > MOST_LOCAL or (self.repeated and any(name in self.views for name in self._made())):
            raise Unsupported("what they make does not fit into local memory")

    def _begins_written(self, name: str) -> bool:
        for item in self.phases:
            places = [place for place, view in enumerate(item.launch.arguments) if view.buffer == name]
            if places:
                return all(place in item.launch.writes for place in places)
        return False

    def _made(self) -> set[str]:
        """What all phases but the last write."""
        return {
            item.launch.arguments[place].buffer for item in self.phases[:-1] for place in item.launch.writes
        }


def _promised(parameters: Sequence[Parameter]) -> Parameter:
    """A parameter with the promise of the one that promises most."""

    def alignment(item: Parameter) -> int:
        found = None if item.attributes is None else item.attributes.find("alignment")
        return found if isinstance(found, int) else 0

    return max(parameters, key=alignment)


# --- the kernel -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _PhaseWriter:
    """A fused kernel while it is written."""

    memory: _Memory
    subgroups: int
    names: FreshNames = field(default_factory=lambda: FreshNames(set()))
    values: dict[str, Value] = field(default_factory=dict)
    """What holds each buffer."""

    def key(self, phases: Sequence[_Phase], repeated: bool) -> object:
        """What fused kernels have in common that are one."""
        memory, numbers = self.memory, dict[str, int]()
        for name in (*memory.views, *memory.local):
            numbers[name] = len(numbers)
        views = tuple(replace(view, buffer="") for view in memory.views.values())
        parts = tuple(
            (
                item.launch.kernel,
                item.launch.groups,
                tuple((numbers[view.buffer], view.offset) for view in item.launch.arguments),
            )
            for item in phases
        )
        return (
            parts,
            views,
            tuple(memory.local.values()),
            tuple(numbers[name] for name in memory.kept),
            repeated,
        )

    def write(self, name: str, phases: Sequence[_Phase], repeated: bool) -> Function:
        """Write it."""
        memory = self.memory
        parameters = []
        for number, (buffer, view) in enumerate(memory.views.items()):
            value = self.values[buffer] = Value(f"m{number}")
            kept = memory.kept.get(buffer)
            type_ = make_memref(view.element, view.shape) if kept is None else kept.type
            parameters.append(Parameter(value, type_, None if kept is None else kept.attributes))
        fault = Parameter(Value("fault"), make_memref("i32", (1,)))
        if memory.has_fault:
            parameters.append(fault)
        self.names = FreshNames({item.value.name for item in parameters} | {"fault"})
        builder = Builder(self.names)
        for buffer, (element, size) in memory.local.items():
            aligned = Dictionary((DictionaryEntry("alignment", ROW_BYTES),))
            self.values[buffer] = builder.value(Alloca(make_memref(element, (size,), local=True), aligned))
        # One region for all: they may say at the same place that something is wrong, and no barrier is wanted there.
        with builder.parallel() as region:
            for number, level in enumerate(_levels(phases)):
                if number:
                    region.put(Barrier(on_global=bool(memory.written & memory.views.keys()), on_local=True))
                taken = 0
                for item in level:
                    self._write_phase(region, item, repeated and item is phases[-1], taken % self.subgroups)
                    taken += item.launch.groups
        sizes = (
            DictionaryEntry("subgroup_size", WARP),
            DictionaryEntry("work_group_size", (WARP * self.subgroups, 1)),
        )
        return Function(name, tuple(parameters), builder.region(), Dictionary(sizes))

    def _write_phase(self, builder: Builder, phase: _Phase, is_shared: bool, taken: int) -> None:
        """The work-groups of a launch, one for each subgroup from the first that is not taken on.

        Where the work-groups of the fused launch share them, each has some.
        """
        own, groups = builder.cast(builder.builtin("subgroup_id", LANE), INDEX), phase.launch.groups
        count = builder.constant(self.subgroups)
        if is_shared:
            own = builder.arith("add", builder.arith("mul", builder.builtin("group_id", INDEX), count), own)
        elif taken:
            own = builder.arith(
                "rem", builder.arith("add", own, builder.constant(self.subgroups - taken)), count
            )
        rounds, rest = (0 if is_shared else groups // self.subgroups), groups % self.subgroups
        if is_shared and rest == 0:
            self._write_body(builder, phase, own)
            return
        for number in range(rounds):
            start = builder.constant(number * self.subgroups)
            self._write_body(builder, phase, builder.arith("add", own, start) if number else own)
        if rest:
            last = builder.arith("add", own, builder.constant(rounds * self.subgroups)) if rounds else own
            with builder.condition(builder.compare("lt", last, builder.constant(groups))) as inner:
                self._write_body(inner, phase, last)

    def _write_body(self, builder: Builder, phase: _Phase, group: Value) -> None:
        """What one subgroup does for a work-group."""
        function = make_names_unique(phase.function)
        given = {"fault": Value("fault")} if phase.launch.has_fault else {}
        flat: dict[str, tuple[BufferView, str]] = {}
        pairs = zip(phase.launch.arguments, function.parameters, strict=False)
        for number, (view, parameter) in enumerate(pairs):
            if view.buffer in self.memory.kept:
                given[parameter.value.name] = self.values[view.buffer]
            else:
                token = f"flat {number}"
                given[parameter.value.name] = Value(token)
                flat[token] = view, view.buffer
        if phase.launch.has_fault:
            given[function.parameters[-1].value.name] = Value("fault")
        numbers = [item for item in walk(function.body) if _is_group_number(item)]
        given |= {item.results[0].name: group for item in numbers}
        body = copy_region(function.body, self.names, given)
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        known = {
            item.results[0].name: item.instruction.value
            for item in walk(body)
            if isinstance(item.instruction, Constant) and isinstance(item.instruction.value, int)
        }
        _SpmdWriter(self, flat, lane, known).write(builder, body.statements)


def _is_group_number(statement: Statement) -> bool:
    node = statement.instruction
    return isinstance(node, Builtin) and node.name == "group_id"


@dataclass(frozen=True, slots=True)
class _SpmdWriter:
    """Statements of a kernel as one subgroup does them."""

    writer: _PhaseWriter
    flat: Mapping[str, tuple[BufferView, str]]
    lane: Value
    known: Mapping[str, int]
    """The integers that are constants."""

    def write(self, builder: Builder, statements: Sequence[Statement]) -> None:
        """Write them behind what a builder has."""
        for statement in statements:
            node = statement.instruction
            if _is_group_number(statement):
                continue
            match node:
                case Parallel():
                    self.write(builder, node.body.statements)
                case Foreach():
                    self._write_foreach(builder, node)
                case Load() if node.operand.name in self.flat:
                    memory, place = self._place(builder, node.operand, node.indices)
                    builder.put(Load(memory, (place,), node.type), statement.results)
                case Store() if node.operand.name in self.flat:
                    memory, place = self._place(builder, node.operand, node.indices)
                    builder.put(Store(node.value, memory, (place,), node.flag))
                case _ if type(node) in HOLDERS:
                    inner = []
                    for region in regions(node):
                        own = builder.inner()
                        self.write(own, region.statements)
                        inner.append(own.region())
                    builder.put(_with_regions(node, inner), statement.results)
                case _:
                    builder.add_statement(statement)

    def _write_foreach(self, builder: Builder, node: Foreach) -> None:
        """The first variable goes along the lanes, the others count."""
        first, *others = zip(node.variables, node.begins, node.ends, strict=True)
        begin, end = self.known.get(first[1].name), self.known.get(first[2].name)
        step, inner = builder.constant(WARP), builder.inner()
        whole = begin is not None and end is not None and (end - begin) % WARP == 0
        counted = self.writer.names.new() if whole else first[0]
        if whole:
            inner.put(Arith("add", (counted, self.lane), INDEX), (first[0],))
        self.write(inner, node.body.statements)
        body = inner.region()
        for variable, low, high in reversed(others):
            body = Region((Statement((), For(variable, low, high, body)),))
        if whole:
            unroll = Dictionary((DictionaryEntry("unroll", True),))
            builder.put(For(counted, first[1], first[2], body, step, attributes=unroll))
        else:
            start = builder.arith("add", first[1], self.lane)
            builder.put(For(first[0], start, first[2], body, step))

    def _place(self, builder: Builder, operand: Value, indices: Sequence[Value]) -> tuple[Value, Value]:
        """Where an element lies in the one row of its buffer."""
        view, buffer = self.flat[operand.name]
        held = self.writer.memory.views.get(buffer)
        offset = view.offset - (0 if held is None else held.offset)
        found: Value | None = None
        for index, size, stride in zip(indices, view.shape, view.strides, strict=True):
            if size == 1:
                continue
            part = index if stride == 1 else builder.arith("mul", index, builder.constant(stride))
            found = part if found is None else builder.arith("add", found, part)
        if found is None:
            found = builder.constant(offset)
        elif offset:
            found = builder.arith("add", found, builder.constant(offset))
        return self.writer.values[buffer], found


def _with_regions(node: object, inner: Sequence[Region]) -> For | If:
    if isinstance(node, For):
        return replace(node, body=inner[0])
    if isinstance(node, If):
        return replace(node, then=inner[0], otherwise=inner[1] if len(inner) > 1 else None)
    raise Unsupported("it does more than work-items do alone")
