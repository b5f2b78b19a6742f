"""Abstract state of the walk: what is known of values, the loops and conditions around, the memory seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.records import dataclass
from lamella.lang.tensor.check.memory.forms.affine import ZERO, Affine
from lamella.lang.tensor.check.memory.forms.integers import Integers
from lamella.lang.tensor.check.memory.forms.symbols import FREE, NOBODY, UNKNOWN, Symbol, Symbols
from lamella.lang.tensor.nodes import Coopmatrix, IndexOrSize, Memref, Size, Statement, Value

# --- abstract values: numbers as affine forms, conditions as facts, memrefs as views ------------------------


@dataclass(frozen=True, slots=True)
class KnownScalar:
    """A scalar or a cooperative matrix; only integers have a form."""

    form: Affine | None = None
    depends: frozenset[int] = NOBODY
    """The symbols that tell work-items apart and on which the value depends."""
    constant: object = None
    """Where it is a constant without a form."""
    matrix: Coopmatrix | None = None
    """The type of a cooperative matrix."""


@dataclass(frozen=True, slots=True)
class ConditionFacts:
    """Forms that are 0 or more where a condition has one of its two values; exact where they say all of it."""

    forms: tuple[Affine, ...] = ()
    exact: bool = False


ALWAYS = ConditionFacts((), True)
NEVER = ConditionFacts((Affine(-1),), True)
NOTHING = ConditionFacts()


@dataclass(frozen=True, slots=True)
class KnownCondition:
    """A boolean."""

    holds: ConditionFacts = NOTHING
    fails: ConditionFacts = NOTHING
    depends: frozenset[int] = NOBODY
    parameter: str = ""
    """The parameter that it is, which whoever launches the kernel chooses."""


Address: TypeAlias = tuple[tuple[int, Affine], ...]
"""Elements from the beginning of the memory: multiples of unknown strides, each a symbol, -1 standing for 1."""


@dataclass(frozen=True, slots=True)
class MemrefView:
    """A memref: its memory, where in it it begins, its sizes and strides."""

    name: str
    root: int
    type: Memref
    sizes: tuple[Affine, ...]
    strides: tuple[Affine | None, ...]
    address: Address | None = ((-1, ZERO),)
    """None where it is no multiple of strides."""

    def locate(self, indices: tuple[Affine, ...]) -> Address | None:
        """The address of an element."""
        found = None if self.address is None else dict(self.address)
        for index, stride in zip(indices, self.strides, strict=True):
            if found is None or stride is None:
                return None
            found = _advance(found, index, stride)
        return None if found is None else tuple(sorted(found.items()))


def _advance(address: dict[int, Affine], index: Affine, stride: Affine) -> dict[int, Affine] | None:
    if not stride.terms:
        symbol, factor = -1, stride.constant
    elif len(stride.terms) == 1 and stride.constant == 0:
        symbol, factor = stride.terms[0]
    else:
        return None
    return address | {symbol: address.get(symbol, ZERO).plus(index, factor)}


@dataclass(frozen=True, slots=True)
class MemrefGroup:
    """A group of memrefs."""

    name: str
    root: int
    type: Memref
    size: Affine
    ends: tuple[tuple[int, int], ...] = ()
    """Where a launch is known, the least and the largest size of each mode of its memrefs."""


AbstractValue: TypeAlias = KnownScalar | KnownCondition | MemrefView | MemrefGroup


@dataclass(frozen=True, slots=True)
class SubgroupSizes:
    """The subgroup size and the number of subgroups, where attributes say them."""

    subgroup: int | None = None
    subgroups: int | None = None
    least: int = 1
    """The least subgroup size where it is not said."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launch knows beside the types: how many work-groups, and the sizes of the memrefs of groups."""

    groups: int
    members: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """For each group the least and the largest size of each mode."""


@dataclass(frozen=True, slots=True)
class ConditionGuard:
    """A condition around a statement: what it says there, who it tells apart."""

    number: int
    facts: ConditionFacts
    depends: frozenset[int]
    parameter: str
    """The parameter that it is, with a '!' where it is false."""


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """A load or a store of one work-item."""

    name: str
    root: int
    address: tuple[tuple[int, Affine], ...]
    writes: bool
    stored: KnownScalar
    guards: tuple[int, ...]
    items: tuple[int, ...]
    """The symbols of which any two values do this."""


@dataclass(slots=True)
class SpmdRegion:
    """A foreach or a parallel: the symbols that tell its work-items apart, and what they accessed since a barrier."""

    items: list[int]
    is_foreach: bool
    outer_guards: int
    accesses: dict[int, list[MemoryAccess]] = field(default_factory=dict)


@dataclass(slots=True)
class OpenLoop:
    """A `for` or `foreach` around a statement: its trip symbols (None where trips are not numbered) and its extent."""

    trips: list[int | None]
    depends: frozenset[int]
    needed: tuple[Affine, ...]
    """What is 0 or more where there is a trip."""
    start: int
    depth: int
    end: int | None = None
    dead: bool = False
    """Whether there is never a trip."""


@dataclass(slots=True)
class MemoryState:
    """The abstract state at a place of a function."""

    sizes: SubgroupSizes
    symbols: Symbols = field(default_factory=Symbols)
    values: dict[str, AbstractValue] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    guards: list[ConditionGuard] = field(default_factory=list)
    loops: list[OpenLoop] = field(default_factory=list)
    spmd: SpmdRegion | None = None
    position: int = 0
    """How many statements were visited."""
    depth: int = 0
    """How many regions are open."""
    builtins: dict[str, Affine] = field(default_factory=dict)
    members: dict[tuple[int, Affine], MemrefView] = field(default_factory=dict)
    """The elements of groups that were seen."""
    roots: int = 0
    dead: int = 0
    """How many of the regions around are never executed."""
    told_of_groups: bool = False
    launch: Launch | None = None
    """Where a launch is proved: then nothing is taken for granted that its arguments could break."""
    current: Statement | None = None
    """The statement that is being visited."""
    open: dict[int, Statement] = field(default_factory=dict)
    """The statements of a launch that are not proved to stay inside their memory, by their identity."""
    opaque: bool = False
    """Whether something of a launch cannot be followed at all."""
    integers: Integers = field(init=False)

    def __post_init__(self) -> None:
        self.integers = Integers(self.symbols, self.launch is not None)

    def leave_open(self) -> None:
        """Keep that the statement at hand is not proved, unless it is never executed."""
        if not self.dead and self.current is not None:
            self.open[id(self.current)] = self.current

    def give_up(self) -> None:
        """Keep that something is not followed, unless it is never executed."""
        if not self.dead:
            self.opaque = True

    def report(self, finding: Diagnostic) -> None:
        """Keep a finding, unless it is about what is never executed."""
        if not self.dead:
            self.findings.append(finding)

    def number(self, value: Value) -> KnownScalar:
        """What is known of a scalar."""
        found = self.values.get(value.name)
        if isinstance(found, KnownScalar):
            return found
        return KnownScalar(None, NOBODY if found is None else self.depends_of(found))

    def form(self, value: IndexOrSize) -> Affine:
        """The form of an integer; one without a form gets it now."""
        if isinstance(value, int):
            return Affine(value)
        found = self.number(value)
        if found.form is not None:
            return found.form
        # Kept, so that every use of the value is the same symbol.
        form = self.integers.unknown("index", found.depends, f"%{value.name}")
        self.values[value.name] = KnownScalar(form, found.depends)
        return form

    def view(self, value: Value) -> MemrefView | None:
        """What is known of a memref."""
        found = self.values.get(value.name)
        return found if isinstance(found, MemrefView) else None

    def depends_of(self, known: AbstractValue) -> frozenset[int]:
        """The symbols that tell work-items apart and on which a value depends."""
        match known:
            case MemrefView(address=address):
                return self.symbols.depends(form for _, form in address or ())
            case KnownScalar(depends=depends) | KnownCondition(depends=depends):
                return depends
            case _:
                return NOBODY

    def new_root(self) -> int:
        """A memory that was not seen before."""
        self.roots += 1
        return self.roots

    def make_view(self, name: str, type_: Memref, ends: Sequence[tuple[int, int]] = ()) -> MemrefView:
        """A memref whose sizes and strides are those of its type, or chosen by who launches the kernel."""
        between = dict(enumerate(ends))
        sizes = tuple(
            self.size(size, f"size %{name}[{mode}]", ends=between.get(mode))
            for mode, size in enumerate(type_.shape)
        )
        strides = tuple(
            self.size(stride, f"stride %{name}[{mode}]") for mode, stride in enumerate(type_.stride)
        )
        return MemrefView(name, self.new_root(), type_, sizes, strides)

    def size(self, size: Size, name: str, divisor: int = 1, ends: tuple[int, int] | None = None) -> Affine:
        """The form of a size or stride; one of several memrefs lies between two ends."""
        if size is not None:
            return Affine(size)
        if ends is not None:
            return self.integers.new(Symbol(name, UNKNOWN, *ends))
        shown = name if divisor == 1 else f"({name} / {divisor})"
        return self.integers.new(Symbol(shown, FREE, low=0)).times(divisor)

    def trips(self) -> list[int | None]:
        """The trip symbols of all loops around, outermost first."""
        return [trip for loop in self.loops for trip in loop.trips]

    def item_symbols(self) -> list[int]:
        """The symbols of the builtins that tell work-items apart."""
        names = ("subgroup_id", "subgroup_local_id")
        forms = [self.builtins.get(name, ZERO) for name in names]
        return [form.terms[0][0] for form in forms if form.terms]
